/* advisor/recipe/rules.c - writes formats of single tensors as rules of a config line (recipe.h). */
#include "advisor/recipe/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* of the rules alone: with the base format, the whole line stays below the limit of the database and of
 * workers */
enum { RULES_BYTES = 480 };

bool recipe_rules_part(const char *tensor, char part[64], int *layer)
{
    int n = 0;
    *layer = -1;
    const bool in_layer = sscanf(tensor, "blk.%d.%n", layer, &n) == 1 && n > 0;
    if (!in_layer) *layer = -1;
    snprintf(part, 64, "%s", tensor + (in_layer ? n : 0));
    char *tail = strstr(part, ".weight");
    if (tail && !tail[7]) *tail = '\0';
    return in_layer && tail;
}

/* A tensor with its name parsed once. */
struct named {
    char part[64];
    int layer, group; /* group: index of the first tensor with the same part */
    const struct format *format;
};

static struct named *tensors_parse(const struct assigned *a, int n)
{
    struct named *t = calloc((size_t)n + 1, sizeof *t);
    for (int i = 0; t && i < n; i++) {
        recipe_rules_part(a[i].tensor, t[i].part, &t[i].layer);
        t[i].format = a[i].format;
        t[i].group = i;
        for (int j = 0; j < i; j++)
            if ((t[i].layer < 0) == (t[j].layer < 0) && !strcmp(t[i].part, t[j].part)) {
                t[i].group = t[j].group;
                break;
            }
    }
    return t;
}

/* How many tensors of the group have that format. */
static int group_count(const struct named *t, int n, int group, const struct format *f)
{
    int found = 0;
    for (int i = group; i < n; i++) found += t[i].group == group && t[i].format == f;
    return found;
}

/* The format of most tensors of the group; of equals the first one met. */
static const struct format *group_majority(const struct named *t, int n, int group)
{
    const struct format *best = t[group].format;
    for (int i = group; i < n; i++)
        if (t[i].group == group && group_count(t, n, group, t[i].format) > group_count(t, n, group, best))
            best = t[i].format;
    return best;
}

static bool group_has_layer(const struct named *t, int n, const struct named *like, int layer)
{
    for (int i = 0; i < n; i++)
        if (t[i].layer == layer && t[i].group == like->group && t[i].format == like->format) return true;
    return false;
}

/* "0-3+7": the layers where the group has this tensor's format. */
static void layers_append(struct str *s, const struct named *t, int n, const struct named *like)
{
    int last = -1;
    bool first = true;
    for (int i = 0; i < n; i++)
        if (t[i].group == like->group) last = MAX(last, t[i].layer);
    for (int from = 0; from <= last; from++) {
        if (!group_has_layer(t, n, like, from)) continue;
        int to = from;
        while (to < last && group_has_layer(t, n, like, to + 1)) to++;
        str_printf(s, "%s%d", first ? "" : "+", from);
        if (to > from) str_printf(s, "-%d", to);
        first = false;
        from = to;
    }
}

/* Is this the first tensor of its group with its format? It writes the rule. */
static bool is_first_of_group(const struct named *t, int i)
{
    for (int j = 0; j < i; j++)
        if (t[j].group == t[i].group && t[j].format == t[i].format) return false;
    return true;
}

/* The rules for one base format: first layers that differ from their group's majority, then groups that
 * differ from the base. The first matching rule counts, so the narrow ones come first. */
static void rules_append(struct str *s, const struct named *t, int n, const struct format *base)
{
    for (int i = 0; i < n; i++) {
        if (t[i].layer < 0 || t[i].format == group_majority(t, n, t[i].group) || !is_first_of_group(t, i))
            continue;
        str_printf(s, "%s%s@", s->len ? ";" : "", t[i].part);
        layers_append(s, t, n, &t[i]);
        str_printf(s, ":%s", t[i].format->name);
    }
    for (int i = 0; i < n; i++) {
        if (t[i].group != i) continue;
        const struct format *f = group_majority(t, n, i);
        if (f != base) str_printf(s, "%s%s:%s", s->len ? ";" : "", t[i].part, f->name);
    }
}

bool recipe_rules_line(const struct assigned *a, int n, char line[RECIPE_LINE])
{
    struct str best = { 0 };
    const struct format *base = NULL;
    struct named *t = tensors_parse(a, n);
    *line = '\0';
    for (int i = 0; t && i < n; i++) {
        struct str s = { 0 };
        bool tried = false;
        for (int j = 0; j < i; j++) tried |= a[j].format == a[i].format;
        if (tried) continue;
        rules_append(&s, t, n, a[i].format);
        if (!base || s.len < best.len) {
            str_free(&best);
            best = s;
            base = a[i].format;
        } else {
            str_free(&s);
        }
    }
    const bool fits = base && best.len <= RULES_BYTES && !best.failed;
    if (base) snprintf(line, RECIPE_LINE, "%s%s%s", base->name, best.len ? ",tensors=" : "", str_text(&best));
    str_free(&best);
    free(t);
    return fits;
}
