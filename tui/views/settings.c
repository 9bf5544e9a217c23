/* tui/views/settings.c - every key of a config line: its value in each arm, what it may be, and what this
 * machine or model rules out. The rows are KNOBS. */
#include "tui/views/parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "base/cut/cut.h"

enum { CHOICES_SHOWN = 128 };

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
                 "%d cores and %d logical CPUs may be used here: more threads only wait for each other",
                 machine_usable_cores(&s->machine),
                 s->machine.usable_processors > 0 ? s->machine.usable_processors : s->machine.processors);
    if (id == KNOB_CTX && s->model.arch[0])
        snprintf(buf, size, "the model was trained on %" PRId64 " tokens: longer contexts give worse answers",
                 s->model.ctx_train);
    return buf;
}

/* ---------------------------------------------------------------- the list */

static void box_settings(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const struct list_view list = { .g = g,
                                    .box = area,
                                    .title = s->experiment_known
                                                 ? "Settings of a config line: values of the arms"
                                                 : "Settings of a config line",
                                    .note = "Enter changes this setting",
                                    .s = s,
                                    .u = u };
    list_draw(&list);
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
        text_cutf(text, sizeof text, "✕ %s", reason[k]);
        y += grid_wrap(g, rect_rows(in, y, in.h - y), ROLE_WARN, text);
    }
    return y;
}

static void box_detail(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const int i = MAX(list_selected(u, s), 0);
    const struct knob_name *absent = knob_row_absent(i);
    char text[300], names[200];
    struct rect in = grid_box(g, area, absent ? absent->name : KNOBS[i].key, NULL);
    if (absent) {
        snprintf(text, sizeof text, "A setting of %s. %s.", absent->program, absent->instead);
        grid_wrap(g, in, ROLE_WARN, text);
        return;
    }
    const struct knob *k = &KNOBS[i];
    int y = grid_wrap(g, in, ROLE_TEXT, k->help);
    if (*knob_names_text((enum knob_id)i, names, sizeof names)) {
        snprintf(text, sizeof text, "elsewhere called: %s", names);
        y += grid_wrap(g, rect_rows(in, y, in.h - y), ROLE_DIM, text);
    }
    snprintf(text, sizeof text, "effect on this model: %s",
             knob_effect(s, (enum knob_id)i, names, sizeof names));
    y += grid_wrap(g, rect_rows(in, y, in.h - y), ROLE_TEXT, text);
    if (k->changes_answers)
        y += grid_wrap(
            g, rect_rows(in, y, in.h - y), ROLE_WARN,
            "This setting changes what the model answers. Advice may list it before their quality was measured, and "
            "says so; a search (t) measures first.");
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
