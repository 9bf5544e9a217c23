/* Parses questions with choices (task.h). */
#include "engine/eval/eval.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

struct parsing {
    struct task_set *set;
    int line, cap;
    struct err *why;
};

static enum err_code wrong(struct parsing *p, const char *what)
{
    return err_set(p->why, ERR_FORMAT, "line %d: %s", p->line, what);
}

static const char *text_of(struct parsing *p, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? arena_strdup(&p->set->memory, text) : NULL;
}

/* "a" after "b": joined by a space unless one of them has white space there. */
static const char *spaced(struct parsing *p, const char *lead, const char *text)
{
    struct str s = { 0 };
    const size_t n = strlen(lead);
    const bool gap = n && !strchr(" \n\t", lead[n - 1]) && *text && !strchr(" \n\t", *text);
    str_printf(&s, "%s%s", gap ? " " : "", text);
    const char *kept = arena_strdup(&p->set->memory, str_text(&s));
    str_free(&s);
    return kept;
}

/* The number of the right choice: an index, a letter, a digit in a string, or a choice's own text. -1: none
 * of these. */
static int answer_of(const struct task_item *t, const json_t *answer)
{
    const char *text = json_string_value(answer);
    if (json_is_integer(answer)) return (int)json_integer_value(answer);
    if (!text) return -1;
    for (int i = 0; i < t->choices; i++)
        if (!strcmp(t->ending[i] + strspn(t->ending[i], " "), text)) return i;
    if (strlen(text) == 1 && *text >= 'A' && *text < 'A' + t->choices) return *text - 'A';
    if (strlen(text) == 1 && *text >= '0' && *text <= '9') return *text - '0';
    return -1;
}

static enum err_code read_choices(struct parsing *p, struct task_item *t, const json_t *o,
                                  const char *lead_key, const char *list_key, const char *answer_key)
{
    const json_t *list = json_object_get(o, list_key);
    const char *lead = text_of(p, o, lead_key);
    t->choices = (int)MIN(json_array_size(list), (size_t)TASK_CHOICES + 1);
    if (!lead || t->choices < 2 || t->choices > TASK_CHOICES)
        return err_set(p->why, ERR_FORMAT, "line %d: expected a text '%s' and 2 to %d texts '%s'", p->line,
                       lead_key, TASK_CHOICES, list_key);
    for (int i = 0; i < t->choices; i++) {
        const char *text = json_string_value(json_array_get(list, (size_t)i));
        if (!text || !*text) return wrong(p, "a choice is no text, or an empty one");
        t->lead[i] = lead;
        t->ending[i] = spaced(p, lead, text);
        if (!t->ending[i]) return err_set(p->why, ERR_NOMEM, "out of memory for the questions");
    }
    t->answer = answer_of(t, json_object_get(o, answer_key));
    return t->answer >= 0 && t->answer < t->choices
               ? ERR_OK
               : err_set(p->why, ERR_FORMAT, "line %d: '%s' names none of the %d choices", p->line,
                         answer_key, t->choices);
}

/* Both options stand in the lead; what follows the gap is scored. */
static enum err_code read_gap(struct parsing *p, struct task_item *t, const json_t *o)
{
    const char *sentence = text_of(p, o, "sentence"), *gap = sentence ? strchr(sentence, '_') : NULL;
    const char *answer = json_string_value(json_object_get(o, "answer"));
    if (!gap || !gap[1] || strchr(gap + 1, '_') || !answer || (strcmp(answer, "1") && strcmp(answer, "2")))
        return wrong(
            p,
            "expected a 'sentence' with one _ that does not end it, option1, option2, and an answer \"1\" or \"2\"");
    t->choices = 2;
    for (int i = 0; i < 2; i++) {
        const char *option = json_string_value(json_object_get(o, i ? "option2" : "option1"));
        struct str lead = { 0 };
        if (!option || !*option) return wrong(p, "expected texts option1 and option2");
        str_printf(&lead, "%.*s%s", (int)(gap - sentence), sentence, option);
        t->lead[i] = arena_strdup(&p->set->memory, str_text(&lead));
        t->ending[i] = gap + 1;
        str_free(&lead);
        if (!t->lead[i]) return err_set(p->why, ERR_NOMEM, "out of memory for the questions");
    }
    t->answer = *answer - '1';
    return ERR_OK;
}

static enum err_code read_cloze(struct parsing *p, struct task_item *t, const json_t *o)
{
    const char *text = text_of(p, o, "text");
    size_t n = text ? strlen(text) : 0;
    while (n && strchr(" \n\t", text[n - 1])) n--;
    size_t at = n;
    while (at && !strchr(" \n\t", text[at - 1])) at--;
    if (at < 2) return wrong(p, "expected a 'text' of at least two words");
    t->choices = 1;
    t->lead[0] = arena_strndup(&p->set->memory, text, at - 1);
    t->ending[0] = arena_strndup(&p->set->memory, text + at - 1, n - at + 1);
    return t->lead[0] && t->ending[0] ? ERR_OK
                                      : err_set(p->why, ERR_NOMEM, "out of memory for the questions");
}

static enum err_code read_item(struct parsing *p, struct task_item *t, const json_t *o)
{
    *t = (struct task_item){ 0 };
    if (json_object_get(o, "choices")) return read_choices(p, t, o, "question", "choices", "answer");
    if (json_object_get(o, "endings")) return read_choices(p, t, o, "ctx", "endings", "label");
    if (json_object_get(o, "sentence")) return read_gap(p, t, o);
    if (json_object_get(o, "text")) return read_cloze(p, t, o);
    return wrong(
        p,
        "expected the keys question, choices, answer; or ctx, endings, label; or sentence, option1, option2, "
        "answer; or text");
}

static enum err_code add_line(struct parsing *p, const char *line, size_t n)
{
    struct task_set *s = p->set;
    json_t *o = NULL;
    if (strspn(line, " \t\r") >= n) return ERR_OK;
    if (!array_room(&s->item, &p->cap, (int64_t)s->n + 1, sizeof *s->item))
        return err_set(p->why, ERR_NOMEM, "out of memory for the questions");
    enum err_code rc = json_parse(&o, line, n, p->why);
    if (rc) return rc == ERR_FORMAT ? err_prefix(p->why, "line %d", p->line) : rc;
    rc = json_is_object(o) ? read_item(p, &s->item[s->n], o) : wrong(p, "expected a JSON object");
    s->n += !rc;
    json_decref(o);
    return rc;
}

/* The first `shots` items, with their right answers, before the lead of all others. */
static enum err_code put_shots(struct task_set *s, int shots, struct err *why)
{
    struct str head = { 0 };
    if (shots >= s->n)
        return err_set(why, ERR_USAGE,
                       "%d item%s: expected at least one more than the %d that are shown first", s->n,
                       s->n == 1 ? "" : "s", shots);
    if (!shots) return ERR_OK;
    for (int i = 0; i < shots; i++)
        str_printf(&head, "%s%s\n\n", s->item[i].lead[s->item[i].answer],
                   s->item[i].ending[s->item[i].answer]);
    memmove(s->item, s->item + shots, (size_t)(s->n - shots) * sizeof *s->item);
    s->n -= shots;
    enum err_code rc = ERR_OK;
    for (int i = 0; i < s->n && !rc; i++)
        for (int c = 0; c < s->item[i].choices && !rc; c++) {
            struct str all = { 0 };
            str_printf(&all, "%s%s", str_text(&head), s->item[i].lead[c]);
            s->item[i].lead[c] = arena_strdup(&s->memory, str_text(&all));
            str_free(&all);
            if (!s->item[i].lead[c]) rc = err_set(why, ERR_NOMEM, "out of memory for the questions");
        }
    str_free(&head);
    return rc;
}

enum err_code task_set_parse(struct task_set *out, const char *text, size_t n, int shots, struct err *why)
{
    struct parsing p = { .set = out, .why = why };
    enum err_code rc = ERR_OK;
    *out = (struct task_set){ 0 };
    for (const char *at = text, *end = text + n; at < end && !rc;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        p.line++;
        rc = add_line(&p, at, (size_t)(stop - at));
        at = stop + 1;
    }
    return rc ? rc : put_shots(out, shots, why);
}

void task_set_free(struct task_set *s)
{
    free(s->item);
    arena_free(&s->memory);
    *s = (struct task_set){ 0 };
}
