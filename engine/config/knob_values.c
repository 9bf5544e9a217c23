/* The values that a key of a config line may have, and the check of one value against the key's row. */
#include "engine/config/config_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/config/config.h"
#include "kernels/kernels.h"

/* ---------------------------------------------------------------- choices */

struct list {
    const char **names;
    size_t count, cap;
};

static void list_add(struct list *l, const char *name)
{
    if (l->count < l->cap) l->names[l->count] = name;
    l->count++;
}

static void list_add_formats(struct list *l)
{
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (FORMATS[i].encode) list_add(l, FORMATS[i].name);
}

size_t knob_choices(enum knob_id id, const char **names, size_t cap)
{
    struct list l = { names, 0, cap };
    const struct knob *k = &KNOBS[id];
    if (k->kind != VALUE_CHOICE) return 0;
    if (k->choices) {
        for (const char *const *c = k->choices; *c; c++) list_add(&l, *c);
        return l.count;
    }
    list_add(&l, k->otherwise);
    if (id == KNOB_FORMAT) list_add_formats(&l);
    if (id == KNOB_METHOD)
        for (size_t i = 0; i < method_count(); i++) list_add(&l, method_name(method_at(i)));
    if (id == KNOB_ISA)
        for (size_t i = 0; i < ISA_LEVEL_COUNT; i++) list_add(&l, ISA_LEVELS[i].name);
    return l.count;
}

const char *choices_text(const char *word, const char *const *names, size_t count, char *buf, size_t size)
{
    struct str s = { 0 };
    const char *near = str_nearest(word, names, count); /* first, because a long message is cut at its end */
    if (near) str_printf(&s, "(did you mean %s?) ", near);
    for (size_t i = 0; i < count; i++) str_printf(&s, "%s%s", i ? " " : "", names[i]);
    snprintf(buf, size, "%s", str_text(&s));
    str_free(&s);
    return buf;
}

/* ---------------------------------------------------------------- one value */

enum err_code recipe_format_check(const char *name, const struct format **out, struct err *why)
{
    const char *names[CHOICES_MAX];
    char text[320];
    struct list l = { names, 0, CHOICES_MAX };
    list_add_formats(&l);
    const struct format *f = format_find(name);
    if (f && f->encode) {
        *out = f;
        return ERR_OK;
    }
    return err_set(why, ERR_USAGE, "format '%.40s' %s: %s", name,
                   f ? "is known but has no encoder; formats with one are"
                     : "does not exist; expected one of",
                   choices_text(f ? "" : name, names, MIN(l.count, CHOICES_MAX), text, sizeof text));
}

/* The rule of a knob's row; names of its choices in names[CHOICES_MAX]. */
static struct value_rule knob_rule(enum knob_id id, const char **names)
{
    const struct knob *k = &KNOBS[id];
    struct value_rule rule = { .kind = k->kind, .min = (double)k->min, .max = (double)k->max };
    if (k->kind == VALUE_CHOICE) {
        rule.names = names;
        rule.count = MIN(knob_choices(id, names, CHOICES_MAX), CHOICES_MAX);
    }
    return rule;
}

/* "3%" -> "3" for knobs in percent, "50ms" -> "50" for those in milliseconds, and the word for -1 that
 * gpu_layers has. */
static const char *knob_number_text(enum knob_id id, const char *value, char *buf, size_t size)
{
    const size_t n = strlen(value), unit = strlen(KNOBS[id].unit);
    const bool may_follow = !strcmp(KNOBS[id].unit, "%") || !strcmp(KNOBS[id].unit, "ms");
    if (id == KNOB_GPU_LAYERS && !strcasecmp(value, "auto")) return "-1";
    if (!may_follow || n <= unit || strcmp(value + n - unit, KNOBS[id].unit) || n > size) return value;
    snprintf(buf, size, "%.*s", (int)(n - unit), value);
    return buf;
}

static enum err_code knob_check_text(const struct knob *k, const char *value, struct err *why)
{
    if (strlen(value) >= CONFIG_VALUE)
        return err_set(why, ERR_USAGE, "%s: longer than %d bytes", k->key, CONFIG_VALUE - 1);
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 32)
            return err_set(why, ERR_USAGE, "%s: contains a control character", k->key);
    return ERR_OK;
}

enum err_code knob_parse(enum knob_id id, const char *value, struct value *out, struct err *why)
{
    const struct knob *k = &KNOBS[id];
    const char *names[CHOICES_MAX];
    const struct format *f;
    char number[32], wanted[400];
    if (id == KNOB_TENSORS) return tensor_rules_parse(value, out->text, why);
    if (id == KNOB_PARAMS) return params_parse(value, out->text, why);
    if (id == KNOB_PARALLEL) {
        struct parallel p;
        const enum err_code rc = parallel_parse(&p, value, why);
        if (!rc) parallel_text(&p, out->text, sizeof out->text);
        return rc;
    }
    if (id == KNOB_EXPERT_PLACE) return expert_place_check(value, out->text, why);
    const struct value_rule rule = knob_rule(id, names);
    if (k->kind == VALUE_TEXT) {
        const enum err_code rc = knob_check_text(k, value, why);
        if (rc) return rc;
    }
    const char *text = k->kind == VALUE_INT ? knob_number_text(id, value, number, sizeof number) : value;
    if (value_parse(out, &rule, text)) return ERR_OK;
    if (id == KNOB_FORMAT && format_find(value)) return recipe_format_check(value, &f, why);
    return err_set(why, ERR_USAGE, "%s=%.40s: expected %s", k->key, value,
                   value_wanted(&rule, value, wanted, sizeof wanted));
}
