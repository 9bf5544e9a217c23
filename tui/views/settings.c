/* tui/views/settings.c - every key of a config line: its value in each arm, what it may be, and what this
 * machine or model rules out. The rows are KNOBS. */
#include "tui/views/parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"

enum { KEY_COLUMNS = 17, VALUE_COLUMNS = 14, CHOICES_SHOWN = 128 };

/* The value the arm's worker resolved; before that the requested one; otherwise the default. */
static const char *arm_value(const struct snapshot *s, int arm, enum knob_id id)
{
    const struct experiment_state *x = &s->experiment;
    if (!s->experiment_known || arm >= experiment_arms(x)) return KNOBS[id].otherwise;
    const struct config *c = x->arm[arm].merged_known ? &x->arm[arm].merged : &x->spec.config[arm];
    const char *v = config_text(c, id);
    return v && *v ? v : KNOBS[id].otherwise;
}

/* ---------------------------------------------------------------- impossible values */

static const char *refuse_isa(const struct snapshot *s, const char *value)
{
    for (size_t i = 0; s->machine_known && i < ISA_LEVEL_COUNT; i++)
        if (!strcmp(ISA_LEVELS[i].name, value) && (ISA_LEVELS[i].bits & ~s->machine.isa))
            return "this machine lacks these instructions";
    return "";
}

static const char *refuse_recipe(const struct snapshot *s, const char *value)
{
    for (int i = 0; i < s->recipes.count; i++)
        if (!strcmp(s->recipes.row[i].name, value)) return s->recipes.row[i].refusal;
    return "";
}

/* Why a value is impossible on this machine with this model; "" when it is possible. */
static const char *choice_refusal(const struct snapshot *s, enum knob_id id, const char *value)
{
    switch (id) {
    case KNOB_ISA: return refuse_isa(s, value);
    case KNOB_FORMAT:
    case KNOB_METHOD: return refuse_recipe(s, value);
    default: return "";
    }
}

/* A useful limit of a number on this machine or for this model. Returns buf. */
static const char *number_note(const struct snapshot *s, enum knob_id id, char *buf, size_t size)
{
    buf[0] = '\0';
    if (id == KNOB_THREADS && s->machine_known)
        snprintf(buf, size,
                 "this machine has %d cores and %d logical CPUs: more threads only wait for each other",
                 s->machine.cores, s->machine.processors);
    if (id == KNOB_CTX && s->model.arch[0])
        snprintf(buf, size, "the model was trained on %" PRId64 " tokens: longer contexts give worse answers",
                 s->model.ctx_train);
    return buf;
}

/* ---------------------------------------------------------------- rows */

static const char *knob_range(enum knob_id id, char *buf, size_t size)
{
    const struct knob *k = &KNOBS[id];
    const char *names[CHOICES_SHOWN];
    const size_t n = MIN(knob_choices(id, names, CHOICES_SHOWN), (size_t)CHOICES_SHOWN);
    struct str text = { 0 };
    if (k->kind == VALUE_INT) str_printf(&text, "%" PRId64 " to %" PRId64 " %s", k->min, k->max, k->unit);
    for (size_t i = 0; i < n; i++) str_printf(&text, "%s%s", i ? " " : "", names[i]);
    if (k->kind == VALUE_TEXT) str_append(&text, "text");
    snprintf(buf, size, "%s", str_text(&text));
    str_free(&text);
    return buf;
}

static const char *knob_work(unsigned work)
{
    return work == FOR_TRAIN                            ? "training"
           : (work & FOR_ALL) == FOR_ALL                ? "everything"
           : work & FOR_QUALITY                         ? "speed, answers"
           : !(work & FOR_DECODE) && work & FOR_PREFILL ? "prompts, memory"
           : !(work & (FOR_DECODE | FOR_PREFILL))       ? "memory"
                                                        : "speed";
}

/* id -1: the heading. Wide screens also show what the key affects and its flag. */
static void knob_row(struct grid *g, struct rect in, int row, const struct snapshot *s, int id, bool chosen)
{
    const bool head = id < 0;
    const struct knob *k = head ? NULL : &KNOBS[id];
    const unsigned style = head ? (unsigned)ROLE_DIM : ROLE_TEXT | (chosen ? STYLE_REVERSE : 0u);
    char range[1024];
    struct pen p = pen_at(g, in, 0, row);
    pen_field(&p, KEY_COLUMNS, head ? style : style | STYLE_BOLD, head ? "key" : k->key);
    const int arms = s->experiment_known ? 2 : 1;
    bool differ = false;
    for (int arm = 0; arm < arms; arm++) {
        const char *v = head ? (arms == 1 ? "default"
                                : arm     ? "B"
                                          : "A")
                             : arm_value(s, arm, (enum knob_id)id);
        if (!head && arm) differ = strcmp(v, arm_value(s, 0, (enum knob_id)id)) != 0;
        pen_field(&p, VALUE_COLUMNS - 1, differ ? style | STYLE_BOLD : style, *v ? v : "-");
        pen_put(&p, style, " ");
    }
    if (arms > 1) pen_field(&p, 2, (unsigned)ROLE_KEY | (chosen ? STYLE_REVERSE : 0u), differ ? "≠" : "");
    if (in.w >= 110) pen_field(&p, 16, style, head ? "affects" : knob_work(k->matters_for));
    if (in.w >= 110) pen_field(&p, 6, style, head ? "flag" : k->flag ? k->flag : "");
    pen_field(&p, pen_left(&p), style, head ? "range" : knob_range((enum knob_id)id, range, sizeof range));
}

static void box_settings(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    struct rect in = grid_box(g, area,
                              s->experiment_known ? "Settings of a config line: values in the running arms"
                                                  : "Settings of a config line",
                              "Enter opens an A/B with this setting");
    const int rows = in.h - 1, chosen = u->selected[VIEW_SETTINGS];
    const int top = MAX(MIN(chosen - rows / 2, KNOB_COUNT - rows), 0);
    knob_row(g, in, 0, s, -1, false);
    for (int i = top; i < KNOB_COUNT && i - top < rows; i++) {
        knob_row(g, in, 1 + i - top, s, i, i == chosen);
        grid_hit(g, rect_rows(in, 1 + i - top, 1), HIT_ROW, i);
    }
}

/* ---------------------------------------------------------------- details of the selected key */

/* The values of the key, impossible ones marked and dim; then each reason once. Returns the rows used. */
static int draw_choices(struct grid *g, struct rect in, const struct snapshot *s, enum knob_id id)
{
    const char *names[CHOICES_SHOWN], *reason[4] = { 0 };
    const size_t n = MIN(knob_choices(id, names, CHOICES_SHOWN), (size_t)CHOICES_SHOWN);
    char text[300];
    int reasons = 0, y;
    struct pen p = pen_at(g, in, 0, 0);
    for (size_t i = 0; i < n; i++) {
        const char *no = choice_refusal(s, id, names[i]);
        snprintf(text, sizeof text, "%s%s ", *no ? "✕" : "", names[i]);
        if (p.x > 0 && p.x + text_columns(text) > in.w) p = pen_at(g, in, 0, p.y + 1);
        pen_put(&p, *no ? ROLE_DIM : ROLE_TEXT, text);
        bool listed = !*no;
        for (int k = 0; k < reasons && !listed; k++) listed = !strcmp(reason[k], no);
        if (!listed && reasons < (int)COUNT_OF(reason)) reason[reasons++] = no;
    }
    y = n ? p.y + 1 : 0;
    for (int k = 0; k < reasons && y < in.h; k++) {
        snprintf(text, sizeof text, "✕ %.280s", reason[k]);
        y += grid_wrap(g, rect_rows(in, y, in.h - y), ROLE_WARN, text);
    }
    return y;
}

static void box_detail(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const int i = MAX(0, MIN(u->selected[VIEW_SETTINGS], KNOB_COUNT - 1));
    const struct knob *k = &KNOBS[i];
    char text[300];
    struct rect in = grid_box(g, area, k->key, NULL);
    int y = grid_wrap(g, in, ROLE_TEXT, k->help);
    if (k->changes_answers)
        y += grid_wrap(g, rect_rows(in, y, in.h - y), ROLE_WARN,
                       "changes answers: recommended only after its quality was measured");
    if (k->kind == VALUE_INT) {
        y += grid_wrap(g, rect_rows(in, y, in.h - y), ROLE_DIM,
                       knob_range((enum knob_id)i, text, sizeof text));
        grid_wrap(g, rect_rows(in, y, in.h - y), ROLE_TEXT,
                  number_note(s, (enum knob_id)i, text, sizeof text));
    }
    draw_choices(g, rect_rows(in, y, in.h - y), s, (enum knob_id)i);
}

void view_settings(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[SETTINGS_PANES];
    layout_settings(body, box);
    panes_place(g, box, SETTINGS_PANES, body, u);
    box_settings(g, box[SETTINGS_LIST], s, u);
    box_detail(g, box[SETTINGS_DETAIL], s, u);
}
