/* tui/views/settings.c - every key of a config line, what it is now, what it may be. Rows are KNOBS. */
#include "tui/views/views.h"

#include <string.h>

enum { KEY_COLUMNS = 18, VALUE_COLUMNS = 16, CHOICES = 128 };

/* What the arm runs with, as resolved by its worker; else what was asked; else the default. */
static const char *value_of(const struct snapshot *s, int arm, enum knob_id id)
{
    const struct experiment_state *x = &s->experiment;
    if (!s->experiment_known || arm >= experiment_arms(x)) return KNOBS[id].otherwise;
    const struct config *c = x->arm[arm].merged_known ? &x->arm[arm].merged : &x->spec.config[arm];
    const char *v = config_text(c, id);
    return v ? v : "";
}

static const char *range_text(enum knob_id id, char *buf, size_t size)
{
    const struct knob *k = &KNOBS[id];
    const char *names[CHOICES];
    size_t n = MIN(knob_choices(id, names, CHOICES), (size_t)CHOICES);
    struct str text = { 0 };
    if (k->kind == KNOB_INT)
        str_printf(&text, "%lld to %lld%s%s", (long long)k->min, (long long)k->max, *k->unit ? " " : "",
                   k->unit);
    for (size_t i = 0; i < n; i++) str_printf(&text, "%s%s", i ? " " : "", names[i]);
    if (k->kind == KNOB_TEXT) str_append(&text, "text");
    snprintf(buf, size, "%s", str_text(&text));
    str_free(&text);
    return buf;
}

static void knob_row(struct grid *g, struct rect in, int row, const struct snapshot *s, int id, bool chosen)
{
    const bool both = s->experiment_known;
    const unsigned style = id < 0 ? (unsigned)ROLE_DIM : ROLE_TEXT | (chosen ? STYLE_REVERSE : 0u);
    char range[1024];
    struct pen p = pen_at(g, in, 0, row);
    pen_field(&p, KEY_COLUMNS, style | (id < 0 ? 0u : STYLE_BOLD), id < 0 ? "key" : KNOBS[id].key);
    for (int arm = 0; arm < (both ? 2 : 1); arm++) {
        const char *head = !both ? "default"
                           : arm ? "B"
                                 : "A",
                   *v = id < 0 ? head : value_of(s, arm, (enum knob_id)id);
        pen_field(&p, VALUE_COLUMNS - 1, style, *v ? v : "-");
        pen_put(&p, style, " ");
    }
    pen_field(&p, pen_left(&p), style, id < 0 ? "may be" : range_text((enum knob_id)id, range, sizeof range));
}

static void box_list(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    struct rect in = grid_box(g, area, "Settings of a config line", NULL);
    const int rows = in.h - 1, chosen = u->selected[VIEW_SETTINGS];
    const int top = MAX(MIN(chosen - rows / 2, KNOB_COUNT - rows), 0);
    knob_row(g, in, 0, s, -1, false);
    for (int i = top; i < KNOB_COUNT && i - top < rows; i++) {
        knob_row(g, in, 1 + i - top, s, i, i == chosen);
        grid_hit(g, rect_rows(in, 1 + i - top, 1), HIT_ROW, i);
    }
}

static void box_detail(struct grid *g, struct rect area, const struct ui *u)
{
    const int i = MAX(0, MIN(u->selected[VIEW_SETTINGS], KNOB_COUNT - 1));
    char range[1024];
    struct rect in = grid_box(g, area, KNOBS[i].key, NULL);
    int y = grid_wrap(g, in, ROLE_TEXT, KNOBS[i].help);
    y += grid_wrap(g, rect_rows(in, y, in.h - y), ROLE_DIM, range_text((enum knob_id)i, range, sizeof range));
    if (KNOBS[i].changes_answers)
        grid_wrap(g, rect_rows(in, y, in.h - y), ROLE_WARN,
                  "changes answers: not recommended without a measurement of quality");
}

void view_settings(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[SETTINGS_BOXES];
    layout_settings(body, box);
    box_list(g, box[SETTINGS_LIST], s, u);
    box_detail(g, box[SETTINGS_DETAIL], u);
}
