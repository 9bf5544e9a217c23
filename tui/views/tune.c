/* tui/views/tune.c - a search for the best configuration: where it is, what it measures and why; the
 * candidates with their intervals on one axis; the confirmation and the result. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "base/cut/cut.h"

/* ---------------------------------------------------------------- where it is */

static struct mark phase_state(const struct tune_watch *t, int phase)
{
    const bool here = phase == (int)t->phase;
    if (phase > (int)t->phase) return (struct mark){ "·", TUNE_PHASE_NAMES[phase], ROLE_DIM };
    if (here && t->running) return (struct mark){ "●", TUNE_PHASE_NAMES[phase], ROLE_TITLE };
    if (here && (t->stopped || t->error[0])) return (struct mark){ "○", TUNE_PHASE_NAMES[phase], ROLE_WARN };
    return (struct mark){ "✓", TUNE_PHASE_NAMES[phase], ROLE_TEXT };
}

/* "✓ machine  ✓ space  ● race  · quality  · confirm  · save" */
static void row_phases(struct grid *g, struct rect in, int row, const struct tune_watch *t)
{
    struct pen p = pen_at(g, in, 0, row);
    for (int i = 0; i < TUNE_PHASES; i++) {
        const struct mark m = phase_state(t, i);
        const unsigned bold = i == (int)t->phase ? STYLE_BOLD : 0u;
        pen_printf(&p, (unsigned)m.role | bold, "%s %s", m.glyph, m.word);
        pen_put(&p, ROLE_TEXT, "  ");
    }
}

static void row_budget(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    enum { FIGURES = 44 };
    const struct tune_watch *t = &s->tune;
    struct pen p = pen_at(g, in, 0, row);
    pen_meter(&p, MAX(in.w - FIGURES, 8), t->share, ROLE_METER);
    pen_printf(&p, ROLE_TEXT | STYLE_BOLD, " %s", figure_percent(t->share).text);
    if (t->running) pen_printf(&p, ROLE_TEXT, "  ETA %s", figure_duration(t->left_s).text);
    pen_printf(&p, ROLE_DIM, "  %d of %d timed, %d judged", t->timed, t->possible, t->judged);
}

static void row_now(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    const struct tune_watch *t = &s->tune;
    struct pen p = pen_at(g, in, 0, row);
    pen_put(&p, ROLE_DIM, "now  ");
    if (t->running && s->task_cancelled) {
        pen_put(&p, ROLE_WARN, "stopping");
    } else if (t->running) {
        pen_printf(&p, ROLE_TEXT | STYLE_BOLD, "%s%s", *t->what ? t->what : TUNE_PHASE_NAMES[t->phase],
                   *t->what     ? " of "
                   : *t->config ? ": "
                                : "");
        pen_field(&p, pen_left(&p), ROLE_TEXT | STYLE_BOLD, t->config);
    } else {
        const bool stopped = t->stopped || t->error[0];
        pen_put(&p, stopped ? ROLE_WARN : ROLE_TEXT, stopped ? "○ stopped" : "✓ done");
    }
}

static void row_why(struct grid *g, struct rect in, int row, const struct tune_watch *t)
{
    struct pen p = pen_at(g, in, 0, row);
    if (!t->running) return;
    pen_put(&p, ROLE_DIM, "why  ");
    pen_field(&p, pen_left(&p), ROLE_TEXT, t->why);
}

static void box_state(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct tune_watch *t = &s->tune;
    const char *slash = strrchr(t->model, '/');
    char title[200] = "Search for the best configuration";
    if (t->run_id)
        text_cutf(title, sizeof title, "Search for the best configuration   run %lld   %s",
                  (long long)t->run_id, slash ? slash + 1 : t->model);
    struct rect in = grid_box(g, area, title, NULL);
    row_phases(g, in, 0, t);
    row_budget(g, in, 1, s);
    row_now(g, in, 2, s);
    row_why(g, in, 3, t);
}

/* ---------------------------------------------------------------- the candidates */

struct bar_scale {
    double lo, hi;   /* tokens/s */
    double current;  /* NAN unknown */
    int from, cells; /* columns of the axis */
};

static int bar_cell(const struct bar_scale *b, double v)
{
    const double part = (v - b->lo) / (b->hi - b->lo);
    return b->from + (int)lround(fmin(fmax(part, 0), 1) * (b->cells - 1));
}

static void bar_include(struct bar_scale *b, double v)
{
    if (!isfinite(v)) return;
    if (!(b->lo <= v)) b->lo = v;
    if (!(b->hi >= v)) b->hi = v;
}

/* Spans the intervals of the first rows and of the current configuration. */
static struct bar_scale bar_scale_of(const struct tune_watch *t, int rows, int from, int cells)
{
    struct bar_scale b = { NAN, NAN, NAN, from, cells };
    for (int i = 0; i < t->rows; i++) {
        if (i >= rows && !t->row[i].is_current) continue;
        bar_include(&b, t->row[i].lower);
        bar_include(&b, t->row[i].upper);
        if (t->row[i].is_current) b.current = t->row[i].rate;
    }
    if (!(b.hi > b.lo)) {
        b.lo = 0.95 * b.lo;
        b.hi = 1.05 * b.hi;
    }
    return b;
}

/* "├──●─┤" between the bounds; "│" at the rate of the current configuration. */
static void row_bar(struct grid *g, struct rect in, int row, const struct bar_scale *b,
                    const struct tune_row *r, unsigned style)
{
    if (b->cells < 4 || !(b->hi > b->lo)) return;
    if (isfinite(b->current)) grid_put(g, in, bar_cell(b, b->current), row, U'│', ROLE_BORDER);
    if (!isfinite(r->rate)) return;
    if (isfinite(r->lower) && isfinite(r->upper)) {
        const int from = bar_cell(b, r->lower), to = bar_cell(b, r->upper);
        for (int x = from; x <= to; x++) grid_put(g, in, x, row, U'─', style);
        grid_put(g, in, from, row, U'├', style);
        grid_put(g, in, to, row, U'┤', style);
    }
    grid_put(g, in, bar_cell(b, r->rate), row, U'●', style | STYLE_BOLD);
}

enum {
    MARK = 2,
    RATE = 9,
    MEMORY = 8,
    LOSS = 11,
    CONFIG_MOST = 60,
    CONFIG_LEAST = 14,
    TAG = 10,
    BARS_LEAST = 18
};

static void row_candidate(struct grid *g, struct rect in, int row, const struct tune_watch *t, int i,
                          const struct bar_scale *b)
{
    const struct tune_row *r = &t->row[i];
    const unsigned style = tune_row_style(t, i);
    char loss[48];
    const int field = b->from - MARK - RATE - 1;
    struct pen p = pen_at(g, in, 0, row);
    const bool now = t->running && *t->what && !strcmp(t->config, r->config);
    pen_field(&p, MARK, ROLE_TITLE | STYLE_BOLD, now ? "●" : r == tune_watch_leader(t) ? "▸" : "");
    const int config = r->is_current ? MIN(text_columns(r->config), field - TAG) : field;
    pen_field(&p, config, style, r->config);
    if (r->is_current) pen_field(&p, field - config, style, " (current)");
    pen_field_right(&p, RATE, style, r->timings ? figure_number(r->rate).text : "n/a");
    row_bar(g, in, row, b, r, style);
    p.x = b->from + b->cells;
    pen_field_right(&p, MEMORY, style, figure_bytes(r->bytes).text);
    if (isnan(r->kld))
        snprintf(loss, sizeof loss, "%s", r->excluded[0] ? "✕" : "n/a");
    else
        snprintf(loss, sizeof loss, "%s%.2g", r->excluded[0] ? "✕ " : "", r->kld);
    pen_field_right(&p, LOSS, r->excluded[0] ? ROLE_WORSE : style, loss);
}

/* The columns of the bars: what the longest config line leaves, within limits. */
static struct bar_scale list_scale(struct rect in, const struct tune_watch *t, int rows)
{
    int config = CONFIG_LEAST;
    for (int i = 0; i < rows; i++)
        config = MAX(config, text_columns(t->row[i].config) + (t->row[i].is_current ? TAG : 0));
    const int fixed = MARK + RATE + 1 + MEMORY + LOSS;
    config = MAX(MIN(MIN(config, CONFIG_MOST), in.w - fixed - BARS_LEAST), CONFIG_LEAST);
    return bar_scale_of(t, rows, MARK + config + RATE + 1, MAX(in.w - fixed - config, 0));
}

/* The rows that fit; the current configuration is always among them. */
static void list_rows(struct grid *g, struct rect in, const struct tune_watch *t, const struct bar_scale *b)
{
    int current = -1;
    for (int i = 0; i < t->rows; i++)
        if (t->row[i].is_current) current = i;
    const int n = MIN(t->rows, in.h);
    for (int i = 0; i < n; i++) row_candidate(g, in, i, t, i == n - 1 && current > i ? current : i, b);
}

/* The interval of a candidate in its cell of the list. */
static void draw_interval(struct pen *p, int columns, int item, unsigned extra, const void *ctx)
{
    const struct tune_watch *t = ctx;
    const struct rect at = { p->area.x + p->x, p->area.y + p->y, columns, 1 };
    const struct bar_scale b = bar_scale_of(t, t->rows, 1, columns - 2);
    row_bar(p->g, at, 0, &b, &t->row[item], extra ? ROLE_TEXT | extra : tune_row_style(t, item));
}

/* The current configuration, where the list is too long to show it for certain. */
static void draw_current(struct grid *g, struct rect in, const struct tune_watch *t)
{
    char line[CONFIG_LINE], figures[80];
    struct pen p = pen_at(g, in, 0, 0);
    for (int i = 0; i < t->rows && in.h > 0; i++) {
        if (!t->row[i].is_current) continue;
        snprintf(figures, sizeof figures, "   %s tok/s   %s", figure_number(t->row[i].rate).text,
                 figure_bytes(t->row[i].bytes).text);
        pen_put(&p, ROLE_ARM_A, "current (│): ");
        pen_put(&p, ROLE_ARM_A,
                text_shorten(t->row[i].config, NULL, 0, MAX(pen_left(&p) - text_columns(figures), 3), line,
                             sizeof line));
        pen_put(&p, ROLE_ARM_A, figures);
        return;
    }
}

static void box_list(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    enum { FRAME_AND_HEADING = 3 };
    const struct tune_watch *t = &s->tune;
    const struct bar_scale b = bar_scale_of(t, t->rows, 0, 0);
    char title[160] = "Candidates, best first by the goal", bars[64] = "";
    if (b.hi > b.lo)
        snprintf(bars, sizeof bars, " (bars: 95 %% intervals, %s to %s)", figure_number(b.lo).text,
                 figure_number(b.hi).text);
    if (*bars)
        snprintf(title, sizeof title, "%s%s",
                 area.w < 80    ? "Candidates"
                 : area.w < 110 ? "Candidates, best first by the goal"
                                : "Candidates, best first by the goal: speed, memory and loss",
                 bars);
    const struct rect in = list_draw(&(struct list_view){ .g = g,
                                                          .box = area,
                                                          .title = title,
                                                          .note = snapshot_caution(s),
                                                          .s = s,
                                                          .u = u,
                                                          .below = t->rows > area.h - FRAME_AND_HEADING,
                                                          .draw = draw_interval,
                                                          .ctx = t });
    if (t->rows)
        draw_current(g, in, t);
    else
        grid_wrap(g, in, ROLE_DIM, "nothing was measured yet");
}

/* ---------------------------------------------------------------- confirmation and result */

static void draw_confirmation(struct grid *g, struct rect in, const struct tune_watch *t)
{
    const struct mark m = verdict_mark(t->verdict);
    struct pen p = pen_at(g, in, 0, 0);
    char blocks[32], effect[96] = "no interval yet";
    if (isfinite(t->effect.lower) && isfinite(t->effect.upper))
        snprintf(effect, sizeof effect, "%s [%s, %s]", figure_change(log(t->effect.estimate)).text,
                 figure_change(log(t->effect.lower)).text, figure_change(log(t->effect.upper)).text);
    snprintf(blocks, sizeof blocks, "%d block%s", t->blocks, str_plural(t->blocks));
    pen_field(&p, MIN(text_columns(t->challenger), MAX(in.w - 54, 12)), ROLE_ARM_B | STYLE_BOLD,
              t->challenger);
    pen_printf(&p, ROLE_TEXT, "  %s  ", effect);
    pen_printf(&p, m.role | STYLE_BOLD, "%s %s", m.glyph, m.word);
    pen_printf(&p, ROLE_DIM, "  %s", blocks);
    struct bar_scale b = { .lo = NAN, .hi = NAN, .current = 1, .from = 8, .cells = in.w - 17 };
    const struct tune_row r = { .rate = t->effect.estimate,
                                .lower = t->effect.lower,
                                .upper = t->effect.upper };
    bar_include(&b, 1);
    bar_include(&b, r.lower);
    bar_include(&b, r.upper);
    if (!(b.hi > b.lo)) return;
    p = pen_at(g, in, 0, 1);
    pen_field_right(&p, 7, ROLE_DIM, figure_change(log(b.lo)).text);
    row_bar(g, in, 1, &b, &r, m.role);
    p.x = b.from + b.cells + 1;
    pen_put(&p, ROLE_DIM, figure_change(log(b.hi)).text);
}

static void draw_step_line(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    char text[600];
    struct pen p = pen_at(g, in, 0, row);
    pen_field(&p, pen_left(&p), ROLE_TEXT | STYLE_BOLD, tune_next_step(s, text, sizeof text));
}

/* The sentence, or how far the confirmation is, above what can be done. */
static void draw_result(struct grid *g, struct rect in, const struct snapshot *s)
{
    const struct tune_watch *t = &s->tune;
    struct rect upper = rect_rows(in, 0, MAX(in.h - 1, 0));
    if (t->ended)
        grid_wrap(g, upper, t->wins ? ROLE_BETTER | STYLE_BOLD : ROLE_TEXT, t->text);
    else if (t->error[0])
        grid_wrap(g, upper, ROLE_ERROR, t->error);
    else if (t->challenger[0])
        draw_confirmation(g, upper, t);
    else
        grid_wrap(
            g, upper, ROLE_DIM,
            "The best candidates then run in a new A/B against the current configuration, because the fastest of many "
            "short timings is partly luck. Nothing changes unless that proves one better.");
    draw_step_line(g, in, in.h - 1, s);
}

/* The place of the first search in the queue, counted from 1; 0: none waits. */
static int waiting_search(const struct snapshot *s)
{
    for (int i = 0; i < s->queued; i++)
        if (words_run(&s->queue[i].command, "tune")) return i + 1;
    return 0;
}

/* Before the first search of this process: one that waits, else what a search is. */
static void draw_no_search(struct grid *g, struct rect in, const struct snapshot *s, const struct ui *u)
{
    const int place = waiting_search(s);
    if (place) {
        struct str text = { 0 };
        const char *first = jobs_wait_for(s);
        str_printf(&text, "The search waits in the queue as number %d, until %s has ended: $ ", place,
                   *first ? first : "what runs");
        command_print(&text, u, &s->queue[place - 1].command);
        str_append(&text, ". & shows the queue, where it can be removed.");
        grid_wrap(g, in, ROLE_TEXT | STYLE_BOLD, str_text(&text));
        str_free(&text);
        return;
    }
    int y = grid_wrap(
        g, in, ROLE_TEXT,
        "t finds the best setting for this model on this machine: it predicts every configuration, measures the "
        "promising ones, checks that their answers stay good, and confirms the winner in an A/B. The winner is then "
        "used by run, bench and the dashboard; u undoes that.");
    char text[300];
    if (!s->stopped_tune.id) return;
    snprintf(text, sizeof text, "r resumes the search of %s that was %s (run %lld).", s->stopped_tune.model,
             s->stopped_tune.state, (long long)s->stopped_tune.id);
    grid_wrap(g, rect_rows(in, y + 1, in.h - y - 1), ROLE_TEXT | STYLE_BOLD, text);
}

void view_tune(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[TUNE_PANES];
    if (!s->tune.known) {
        draw_no_search(g, grid_box(g, body, "Search for the best configuration", snapshot_caution(s)), s, u);
        return;
    }
    layout_tune(body, box);
    struct ui focus = *u; /* a screen with room for one pane shows the result of a search that has ended */
    if (s->tune.ended && !s->tune.running && !focus.pane[VIEW_TUNE] && layout_frame(g->w, g->h).single)
        focus.pane[VIEW_TUNE] = TUNE_END + 1;
    panes_place(g, box, TUNE_PANES, body, &focus);
    box_state(g, box[TUNE_STATE], s);
    box_list(g, box[TUNE_LIST], s, u);
    draw_result(g, grid_box(g, box[TUNE_END], s->tune.running ? "Confirmation" : "Result", NULL), s);
}

void draw_tune(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct tune_watch *t = &s->tune;
    if (!t->running) {
        draw_result(g, area, s);
        return;
    }
    row_budget(g, area, 0, s);
    row_now(g, area, 1, s);
    const struct rect list = rect_rows(area, 2, area.h - 2);
    const struct bar_scale b = list_scale(area, t, MIN(t->rows, list.h));
    if (t->rows) list_rows(g, list, t, &b);
}
