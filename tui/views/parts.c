/* tui/views/parts.c - parts of an experiment that several views draw: axis, effect plot, verdict, progress,
 * log. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/stats/stats.h"

void pen_value(struct pen *p, const char *label, const char *value)
{
    pen_put(p, ROLE_DIM, label);
    pen_put(p, strcmp(value, "n/a") ? ROLE_TEXT : ROLE_DIM, value);
}

/* ---------------------------------------------------------------- the axis of the effect */

struct scale {
    double lo, hi; /* log ratios */
};

static void scale_include(struct scale *s, double v)
{
    if (!isfinite(v)) return;
    s->lo = MIN(s->lo, v);
    s->hi = MAX(s->hi, v);
}

/* 0 .. cells-1 for a log ratio; values outside go to the edge. */
static int scale_cell(const struct scale *s, double v, int cells)
{
    double part = (v - s->lo) / (s->hi - s->lo);
    return (int)lround(MIN(MAX(part, 0.0), 1.0) * (cells - 1));
}

/* While blocks come in, the axis includes zero and the margin. After the verdict the interval fills it, and
 * it includes zero only if that is near. */
static struct scale axis_scale(const struct experiment_state *x, struct interval effect)
{
    enum { NEAR = 2 };
    const double m = experiment_margin(&x->spec), width = effect.upper - effect.lower;
    if (x->phase == PHASE_DONE && width > 0) {
        struct scale s = { effect.lower - 0.25 * width, effect.upper + 0.25 * width };
        const double to_zero = MAX(effect.lower, -effect.upper); /* below 0: the interval contains it */
        if (to_zero < NEAR * width) {
            scale_include(&s, -1.5 * m);
            scale_include(&s, 1.5 * m);
        }
        return s;
    }
    struct scale s = { -2 * m, 2 * m };
    scale_include(&s, effect.estimate * 1.1);
    /* The first intervals are many times wider than later ones: they may exceed the axis. */
    const double reach = 3 * MAX(fabs(effect.estimate), 2 * m);
    if (isfinite(reach)) {
        scale_include(&s, MAX(effect.lower, -reach));
        scale_include(&s, MIN(effect.upper, reach));
    }
    return s;
}

/* Zero and the margin; where zero is beyond the axis, the end at which it is. */
static void axis_marks(struct grid *g, struct rect line, const struct scale *s, double m)
{
    const int last = line.w - 1;
    if (s->lo > 0 || s->hi < 0) {
        grid_put(g, line, s->lo > 0 ? 0 : last, 0, s->lo > 0 ? U'←' : U'→', ROLE_TEXT);
        grid_put(g, line, s->lo > 0 ? 1 : last - 1, 0, '0', ROLE_TEXT | STYLE_BOLD);
        return;
    }
    grid_put(g, line, scale_cell(s, -m, line.w), 0, U'┤', ROLE_TEXT);
    grid_put(g, line, scale_cell(s, m, line.w), 0, U'├', ROLE_TEXT);
    grid_put(g, line, scale_cell(s, 0, line.w), 0, '0', ROLE_TEXT | STYLE_BOLD);
}

/* The interval with its ends: dots, or arrows where it goes on beyond the axis. */
static void draw_interval(struct grid *g, struct rect line, const struct scale *s, struct interval effect,
                          enum role role)
{
    const int from = scale_cell(s, effect.lower, line.w), to = scale_cell(s, effect.upper, line.w);
    for (int i = from; i <= to; i++) grid_put(g, line, i, 0, 0x2501, role);
    grid_put(g, line, from, 0, effect.lower < s->lo ? U'◀' : U'●', role);
    grid_put(g, line, to, 0, effect.upper > s->hi ? U'▶' : U'●', role);
}

void draw_axis(struct grid *g, struct rect row, const struct experiment_state *x, int arm)
{
    const struct interval effect = experiment_change(x, experiment_comparison(x, arm)->effect);
    const struct scale s = axis_scale(x, effect);
    struct pen p = pen_at(g, row, 0, 0);
    /* where the interval goes on beyond the axis, its own end stands there instead of the axis's */
    pen_field_right(&p, 7, effect.lower < s.lo ? ROLE_TEXT : ROLE_DIM,
                    figure_change(fmin(s.lo, effect.lower)).text);
    pen_put(&p, ROLE_DIM, " ");
    int cells = row.w - p.x - 9;
    if (cells < 8) return;
    struct rect line = { row.x + p.x, row.y, cells, row.h };
    for (int i = 0; i < cells; i++) grid_put(g, line, i, 0, 0x2500, ROLE_BORDER);
    axis_marks(g, line, &s, experiment_margin(&x->spec));
    if (isfinite(effect.estimate)) {
        enum role role = verdict_mark(experiment_verdict(x, arm)).role;
        if (isfinite(effect.lower) && isfinite(effect.upper)) draw_interval(g, line, &s, effect, role);
        grid_put(g, line, scale_cell(&s, effect.estimate, cells), 0, 0x25c6, role | STYLE_BOLD);
    }
    p.x += cells;
    pen_put(&p, ROLE_DIM, " ");
    pen_put(&p, effect.upper > s.hi ? ROLE_TEXT : ROLE_DIM, figure_change(fmax(s.hi, effect.upper)).text);
}

/* ---------------------------------------------------------------- effect over blocks */

struct effect_plot {
    struct grid *g;
    struct rect area; /* without labels */
    struct scale s;
    const struct comparison *c;
    struct interval effect;      /* of c, and of its blocks, as changes of the metric */
    double d[EXPERIMENT_BLOCKS]; /* [c->blocks] */
    int better;                  /* of the metric */
    enum role role;              /* of the verdict */
    int first, step;             /* first block shown, columns per block */
};

static int plot_row(const struct effect_plot *p, double v)
{
    return p->area.h - 1 - scale_cell(&p->s, v, p->area.h);
}

static bool plot_contains(const struct effect_plot *p, double v)
{
    return v >= p->s.lo && v <= p->s.hi;
}

static void plot_line(const struct effect_plot *p, double v, uint32_t code, unsigned style)
{
    if (!plot_contains(p, v)) return;
    for (int i = 0; i < p->area.w; i++) grid_put(p->g, p->area, i, plot_row(p, v), code, style);
}

/* A horizontal line drawn over the band but behind dots and the last interval. */
static void plot_line_behind(const struct effect_plot *p, double v, uint32_t code, unsigned style)
{
    if (!plot_contains(p, v)) return;
    const int y = p->area.y + plot_row(p, v);
    for (int i = 0; i < p->area.w; i++) {
        const int x = p->area.x + i;
        if (x >= p->g->w || y >= p->g->h) return;
        const uint32_t there = p->g->cells[y * p->g->w + x].code;
        if (there != 0x25cf && there != 0x2503 && there != 'o' && there != '|')
            grid_put(p->g, p->area, i, plot_row(p, v), code, style);
    }
}

/* The range of the plot. It includes zero while the effect is close to it. For a large effect it shows the
 * shrinking interval instead; the axis below the plot still includes zero. */
static struct scale plot_scale(const struct effect_plot *p, double m)
{
    struct scale s = { p->d[p->first], p->d[p->first] };
    for (int i = p->first; i < p->c->blocks; i++) scale_include(&s, p->d[i]);
    double spread = MAX(s.hi - s.lo, 2 * m), middle = (s.lo + s.hi) / 2;
    if (fabs(middle) < 5 * spread) {
        scale_include(&s, -1.5 * m);
        scale_include(&s, 1.5 * m);
        spread = s.hi - s.lo;
        middle = (s.lo + s.hi) / 2;
    }
    scale_include(&s, middle - spread / 2);
    scale_include(&s, middle + spread / 2);
    scale_include(&s, MAX(p->effect.lower, middle - spread));
    scale_include(&s, MIN(p->effect.upper, middle + spread));
    double pad = (s.hi - s.lo) * 0.05;
    return (struct scale){ s.lo - pad, s.hi + pad };
}

/* The anytime-valid interval after block i. */
static struct interval interval_after(const struct effect_plot *p, int i)
{
    const double alpha = p->c->alpha > 0 ? p->c->alpha : 0.05;
    return stats_turned(evidence_interval(p->c, i + 1, 1 - alpha), p->better);
}

/* Dots of all blocks over the band of the interval at that time. Computing an interval takes about 50 us, so
 * at most INTERVALS are computed, and each is drawn until the next. */
static void plot_blocks(const struct effect_plot *p)
{
    enum { INTERVALS = 48 };
    const struct comparison *c = p->c;
    const int every = (c->blocks - p->first + INTERVALS - 1) / INTERVALS;
    struct interval so_far = { NAN, NAN, NAN };
    for (int i = p->first; i < c->blocks; i++) {
        const bool last = i == c->blocks - 1;
        const int column = (i - p->first) * p->step, middle = column + p->step / 2;
        if (last)
            so_far = p->effect;
        else if ((i - p->first) % every == 0)
            so_far = interval_after(p, i);
        const bool known = isfinite(so_far.lower) && isfinite(so_far.upper);
        const int from = known ? plot_row(p, so_far.upper) : 0, to = known ? plot_row(p, so_far.lower) : -1;
        for (int y = from; y <= to; y++) {
            for (int k = 0; k < p->step; k++) grid_put(p->g, p->area, column + k, y, 0x2591, ROLE_GRAPH);
            if (last) grid_put(p->g, p->area, middle, y, 0x2503, (unsigned)p->role | STYLE_BOLD);
        }
        /* an end beyond the plot is no end: an arrow in its place */
        if (last && known && so_far.upper > p->s.hi)
            grid_put(p->g, p->area, middle, from, U'▲', (unsigned)p->role | STYLE_BOLD);
        if (last && known && so_far.lower < p->s.lo)
            grid_put(p->g, p->area, middle, to, U'▼', (unsigned)p->role | STYLE_BOLD);
        grid_put(p->g, p->area, middle, plot_row(p, p->d[i]), 0x25cf, ROLE_ARM_B);
    }
}

static void plot_label(struct grid *g, struct rect area, int row, const char *text, unsigned style)
{
    struct pen p = pen_at(g, area, 0, row);
    pen_field_right(&p, 8, style, text);
}

static void draw_effect_labels(const struct effect_plot *p, struct rect area, double m)
{
    const struct interval e = p->effect;
    plot_label(p->g, area, 0, figure_change(fmax(p->s.hi, e.upper)).text,
               e.upper > p->s.hi ? ROLE_TEXT : ROLE_DIM);
    plot_label(p->g, area, area.h - 1, figure_change(fmin(p->s.lo, e.lower)).text,
               e.lower < p->s.lo ? ROLE_TEXT : ROLE_DIM);
    int zero = plot_row(p, 0), up = plot_row(p, m), down = plot_row(p, -m);
    if (!plot_contains(p, 0)) {
        bool below = p->s.lo > 0;
        plot_label(p->g, area, below ? area.h - 2 : 1, below ? "0 ↓" : "0 ↑", ROLE_TEXT);
        return;
    }
    if (up != zero && up > 0) plot_label(p->g, area, up, "+margin", ROLE_DIM);
    if (down != zero && down < area.h - 1) plot_label(p->g, area, down, "-margin", ROLE_DIM);
    if (zero > 0 && zero < area.h - 1) plot_label(p->g, area, zero, "0", ROLE_TEXT);
}

/* Numbers of the first and last block shown, and about how many are planned. */
static void draw_block_numbers(const struct effect_plot *p, struct rect row, int planned)
{
    char text[64];
    const int last = p->c->blocks, at = (last - 1 - p->first) * p->step + p->step / 2;
    struct pen pen = pen_at(p->g, row, 0, 0);
    snprintf(text, sizeof text, "block %d", p->first + 1);
    pen_put(&pen, ROLE_DIM, text);
    snprintf(text, sizeof text, "%d", last);
    if (at - text_columns(text) / 2 > pen.x) {
        pen.x = MIN(at - text_columns(text) / 2, row.w - text_columns(text));
        pen_put(&pen, ROLE_TEXT, text);
    }
    snprintf(text, sizeof text, "about %d planned", planned);
    if (planned <= last || pen.x + 2 + text_columns(text) > row.w) return;
    pen.x = row.w - text_columns(text);
    pen_put(&pen, ROLE_DIM, text);
}

void draw_effect(struct grid *g, struct rect area, const struct experiment_state *x, int arm)
{
    const struct comparison *c = experiment_comparison(x, arm);
    struct rect inside = { area.x + 9, area.y, area.w - 9, area.h };
    if (inside.w < 8 || area.h < 3) return;
    if (c->blocks < 1) {
        if (x->phase >= PHASE_DONE) {
            grid_wrap(g, area, ROLE_DIM, "no block was kept, so there is no effect to show.");
            return;
        }
        grid_wrap(
            g, area, ROLE_DIM,
            "no block has been kept yet. Each block will be a dot here, inside the band of the interval at that time. "
            "The interval is valid at every interim analysis, so looking at it early does no harm.");
        return;
    }
    const int numbers = area.h >= 8 ? 1 : 0;
    inside.h = area.h -= numbers;
    int planned = x->planned_blocks > 0    ? x->planned_blocks
                  : x->spec.max_blocks > 0 ? x->spec.max_blocks
                                           : 64;
    int most = MAX(c->blocks, MIN(planned, (int)EXPERIMENT_BLOCKS));
    struct effect_plot p = {
        .g = g,
        .area = inside,
        .c = c,
        .effect = experiment_change(x, c->effect),
        .better = experiment_metric(&x->spec)->better,
        .role = verdict_mark(experiment_verdict(x, arm)).role,
    };
    for (int i = 0; i < c->blocks; i++) p.d[i] = experiment_change_of(x, c->d[i]);
    double m = experiment_margin(&x->spec);
    p.step = MIN(MAX(inside.w / most, 1), 4);
    p.first = MAX(c->blocks - inside.w / p.step, 0);
    p.s = plot_scale(&p, m);
    plot_line(&p, m, 0x2504, ROLE_DIM);
    plot_line(&p, -m, 0x2504, ROLE_DIM);
    plot_blocks(&p);
    plot_line_behind(&p, 0, 0x2500, ROLE_BORDER);
    draw_effect_labels(&p, area, m);
    if (numbers) {
        const int likely = x->planned_blocks > 0 ? x->planned_blocks : 0;
        draw_block_numbers(&p, (struct rect){ inside.x, inside.y + inside.h, inside.w, 1 }, likely);
    }
}

/* ---------------------------------------------------------------- words */

static void draw_effect_and_verdict(struct pen *p, const struct experiment_state *x, int arm, bool interval)
{
    const struct comparison *c = experiment_comparison(x, arm);
    const enum verdict v = experiment_verdict(x, arm);
    const struct mark m = verdict_mark(v);
    const struct interval change = experiment_change(x, c->effect);
    const bool known = isfinite(change.lower) && isfinite(change.upper);
    /* without its interval, or where that is wide, a middle would claim more than was shown */
    const bool decided = v == VERDICT_BETTER || v == VERDICT_WORSE;
    const bool least = interval ? stats_is_vague(change, x->noise_floor) : decided && known;
    const double shown = least ? stats_proven(change) : change.estimate;
    if (isfinite(shown))
        pen_printf(p, (unsigned)m.role | STYLE_BOLD, "%s%s",
                   !least      ? ""
                   : shown > 0 ? "≥"
                               : "≤",
                   figure_change(shown).text);
    if (isfinite(shown) && interval && known)
        pen_printf(p, ROLE_TEXT, " [%s, %s]", figure_change(change.lower).text,
                   figure_change(change.upper).text);
    if (isfinite(shown)) pen_put(p, ROLE_TEXT, " ");
    if (c->dropped)
        pen_printf(p, ROLE_DIM, "out at %d", c->dropped_at);
    else
        pen_printf(p, (unsigned)m.role | STYLE_BOLD, "%s %s", m.glyph, m.word);
}

void draw_verdict(struct pen *p, const struct experiment_state *x, int arm)
{
    draw_effect_and_verdict(p, x, arm, true);
}

void draw_verdict_briefly(struct pen *p, const struct experiment_state *x, int arm)
{
    draw_effect_and_verdict(p, x, arm, false);
}

static struct figure figure_evidence(double e)
{
    struct figure f = { "n/a" };
    if (isfinite(e)) snprintf(f.text, sizeof f.text, "%.*f", e < 9.95 ? 1 : 0, MIN(e, 9999.0));
    return f;
}

void draw_evidence(struct pen *p, const struct experiment_state *x, int arm)
{
    const struct comparison *c = experiment_comparison(x, arm);
    enum { ENOUGH = 20 };
    const bool known = c->blocks > 1 && isfinite(c->e);
    pen_put(p, ROLE_DIM, "evidence ");
    pen_printf(p,
               !known           ? ROLE_DIM
               : c->e >= ENOUGH ? ROLE_TEXT | STYLE_BOLD
                                : ROLE_TEXT,
               "%s%s", known && c->e > 9999 ? ">" : "", figure_evidence(known ? c->e : (double)NAN).text);
    pen_printf(p, ROLE_DIM, " (≥%d)", ENOUGH);
}

void draw_quality(struct pen *p, const struct experiment_state *x, int arm)
{
    const struct quality *q = &x->comparison[arm].quality;
    if (!q->known) return;
    pen_put(p, ROLE_DIM, "KLD ");
    pen_printf(p, ROLE_TEXT, "%.3g", q->kld.estimate);
    if (isfinite(q->kld.lower)) pen_printf(p, ROLE_TEXT, " [%.3g, %.3g]", q->kld.lower, q->kld.upper);
    char text[TEXT_LABEL];
    pen_printf(p, ROLE_DIM, " on %s", quality_text_label(text, q->text, q->text_sha256));
    pen_put(p, ROLE_DIM, "  same top-1 ");
    pen_printf(p, ROLE_TEXT, "%.1f%%", 100 * q->top1.estimate);
    pen_put(p, ROLE_DIM, "  perplexity ");
    pen_put(p, ROLE_TEXT, figure_change(log(q->ppl_ratio.estimate)).text);
}

void draw_control(struct pen *p, const struct experiment_state *x, int arm)
{
    char text[EXPERIMENT_BLOCKS_TEXT];
    if (x->control_failed)
        pen_put(p, ROLE_ERROR, "✕ A/A control failed");
    else if (x->spec.control_blocks < 0)
        pen_put(p, ROLE_WARN, "? no A/A control");
    else if (isfinite(x->noise_floor))
        pen_printf(p, ROLE_TEXT, "noise ±%.2g%% (A/A, %d block%s%s)", stats_percent(x->noise_floor),
                   x->control_blocks, str_plural(x->control_blocks), experiment_noise_text(text, x, arm));
    else
        pen_value(p, "noise (A/A) ", "n/a");
    if (!x->complete && !x->discarded && !x->blocks)
        pen_put(p, ROLE_DIM, x->phase >= PHASE_DONE ? "   no block was measured" : "   no block yet");
    else if (x->estimand == ESTIMAND_LOADED)
        pen_printf(p, ROLE_WARN, "   busy machine: %d of %d block%s disturbed, all count", x->disturbed,
                   x->complete, str_plural(x->complete));
    else
        pen_printf(p, x->discarded ? ROLE_WARN : ROLE_TEXT, "   %d of %d block%s left out", x->discarded,
                   x->discarded + x->blocks, str_plural(x->discarded + x->blocks));
}

static void draw_cell(struct pen *p, const struct experiment_state *x)
{
    if (!strcmp(x->cell_phase, EXPERIMENT_WAITS)) pen_put(p, ROLE_TEXT, "waiting until the machine is quiet");
    if (x->running_arm < 0 || !strcmp(x->cell_phase, EXPERIMENT_WAITS)) return;
    pen_printf(p, x->running_arm ? ROLE_ARM_B | STYLE_BOLD : ROLE_ARM_A | STYLE_BOLD, "%c ",
               'A' + x->running_arm);
    pen_printf(p, ROLE_TEXT, "%s ", x->cell_phase[0] ? x->cell_phase : "waiting");
    if (x->cell_of > 0) {
        pen_meter(p, MIN(10, pen_left(p)), (double)x->cell_done / x->cell_of, ROLE_METER);
        pen_printf(p, ROLE_TEXT, " %d/%d", x->cell_done, x->cell_of);
    }
    if (!isfinite(x->live_tok_s)) return;
    /* a load counts requests, all other cells count tokens */
    pen_printf(p, ROLE_TEXT, strcmp(x->cell_phase, "requests") ? "  %s tok/s" : "  %s requests/s",
               figure_number(x->live_tok_s).text);
}

/* Whether the run was measured in more than one session: its own time is then only that of the last one. */
static bool was_resumed(const struct experiment_state *x)
{
    enum { SLACK_S = 5 };
    const double span_s = (double)(x->ended_ms - x->started_ms) * 1e-3 - x->paused_s;
    return x->spec.resume_id || (x->started_ms && x->ended_ms && span_s > 1.1 * x->elapsed_s + SLACK_S);
}

const char *arm_line(const struct experiment_state *x, int arm, int columns, char *buf, size_t size)
{
    const char *others[EXPERIMENT_ARMS];
    int n = 0;
    for (int i = 0; i < experiment_arms(&x->spec); i++)
        if (i != arm) others[n++] = x->arm[i].line;
    return text_shorten(x->arm[arm].line, others, n, columns, buf, size);
}

void draw_progress(struct pen *p, const struct snapshot *s)
{
    const struct experiment_state *x = &s->experiment;
    enum { WITH_WORD = 66 }; /* columns: in fewer, the cell is worth more than the word for the phase */
    struct mark m = phase_mark(s);
    const bool brief = pen_left(p) < WITH_WORD && snapshot_is_running(s) && !x->paused_since_ms &&
                       x->block >= 0;
    pen_printf(p, (unsigned)m.role, brief ? "%s " : "%s %s  ", m.glyph, m.word);
    if (x->phase == PHASE_FAILED) {
        pen_field(p, pen_left(p), ROLE_ERROR, x->error);
        return;
    }
    if (!snapshot_is_running(s)) {
        /* the time of earlier sessions of a resumed run is not known, only that of its blocks together */
        pen_printf(p, ROLE_TEXT, "%d block%s%s in %s", x->blocks, str_plural(x->blocks),
                   was_resumed(x) ? ", the last ones" : "", figure_duration(x->elapsed_s).text);
        return;
    }
    if (x->paused_since_ms) {
        pen_printf(p, ROLE_TEXT, "for %s; %d block%s kept",
                   figure_duration((double)(s->unix_ms - x->paused_since_ms) * 1e-3).text, x->blocks,
                   str_plural(x->blocks));
        return;
    }
    if (x->block >= 0 && x->phase >= PHASE_CONTROL)
        pen_printf(p, ROLE_TEXT, "block %d cell %d/%d  ", x->block + 1, x->slot + 1,
                   x->phase == PHASE_BLOCKS ? 2 * experiment_arms(&x->spec) : 4);
    draw_cell(p, x);
}

/* Advice after a verdict; "%c" stands for the letter of the arm. */
static const char *verdict_text(enum verdict v)
{
    static const char *const TEXTS[] = {
        [VERDICT_NONE] = "no verdict on %c: too few blocks were kept",
        [VERDICT_BETTER] =
            "%c wins. p pushes the result; check its quality before you switch if it changes answers",
        [VERDICT_WORSE] = "keep A. a ranks other configurations",
        [VERDICT_EQUIVALENT] =
            "no difference beyond the margin: either will do, unless memory or quality differ",
        [VERDICT_NEGLIGIBLE] =
            "the difference is below the margin: either will do, unless memory or quality differ",
        [VERDICT_INCONCLUSIVE] =
            "undecided within the budget: r continues it with more time (its blocks count), best on a quieter machine",
    };
    return (size_t)v < COUNT_OF(TEXTS) ? TEXTS[v] : "";
}

/* An invalid run: the control failed because the machine was too busy or too noisy, or A could not run. */
static const char *invalid_step(const struct experiment_state *x)
{
    if (!x->control_failed) return "b starts another A/B; the log (9) has the whole message";
    return x->estimand == ESTIMAND_LOADED ? "i, then b: wait until the machine is quiet, then measure again"
                                          : "%, then b: measure under this load; i, then b: wait until quiet";
}

static void put_arm_letter(char *buf, size_t size, const char *text, int letter)
{
    const char *at = strstr(text, "%c");
    if (at)
        snprintf(buf, size, "%.*s%c%s", (int)(at - text), text, letter, at + 2);
    else
        snprintf(buf, size, "%s", text);
}

const char *next_step(const struct snapshot *s, char *buf, size_t size)
{
    char needed[BLOCKS_NEEDED_TEXT];
    const struct experiment_state *x = &s->experiment;
    if (!s->experiment_known) {
        snprintf(buf, size, "b starts an A/B: two configurations, one workload, a verdict");
    } else if (x->phase == PHASE_DONE && x->verdict == VERDICT_INVALID) {
        snprintf(buf, size, "%s", invalid_step(x));
    } else if (x->phase == PHASE_DONE && experiment_next_step(x, MAX(x->headline, 1)) == STEP_LESS_NOISE) {
        snprintf(
            buf, size,
            "too many blocks needed for one run: measure again on a quiet machine (keys i, then b), or with a "
            "larger margin");
    } else if (x->phase == PHASE_DONE) {
        put_arm_letter(buf, size, verdict_text(x->verdict), 'A' + MAX(x->headline, 1));
    } else if (!x->run_id && (x->phase == PHASE_FAILED || x->phase == PHASE_STOPPED)) {
        snprintf(buf, size, "nothing of it was stored, so it cannot go on: b starts another one");
    } else if (x->phase == PHASE_FAILED) {
        snprintf(buf, size, "b starts another one, r tries this one again");
    } else if (x->phase == PHASE_STOPPED || !s->experiment_live) {
        snprintf(buf, size, "finished cells are kept: r resumes run %lld", (long long)x->run_id);
    } else if (x->paused_since_ms || x->pausing) {
        snprintf(buf, size,
                 x->pausing ? "pauses after the running cell; | continues"
                            : "paused: no process of the arms is running. | continues");
    } else if (x->phase < PHASE_BLOCKS) {
        snprintf(buf, size, "%s",
                 x->phase == PHASE_WARMUP
                     ? "warming up until the rate is stable; then A against A, to measure the noise"
                     : "first A against A, to measure the noise; then the comparison");
    } else if (x->phase == PHASE_CONFIRM) {
        snprintf(buf, size,
                 "%c leads: confirming on new blocks, because the best of several arms is overestimated",
                 'A' + MAX(x->headline, 1));
    } else if (x->phase == PHASE_QUALITY) {
        snprintf(buf, size, "the blocks are over; the quality of each arm is measured once, then the result");
    } else if (x->blocks_needed == 0) {
        snprintf(buf, size, "decided: the last cells are finishing");
    } else if (*experiment_blocks_needed_text(needed, x, experiment_headline(x))) {
        snprintf(buf, size, "%s", needed);
    } else {
        snprintf(buf, size, "more blocks are needed for an estimate");
    }
    return buf;
}

static struct rect log_text_area(struct rect area, int y)
{
    int clock = area.w < 40 ? 6 : 9;
    return (struct rect){ area.x + clock + 2, area.y + y, MAX(area.w - clock - 2, 0), MAX(area.h - y, 0) };
}

/* The rows of a message, at most those of the box. */
static int log_rows(struct grid *g, struct rect area, const struct log_line *l)
{
    const struct rect nowhere = { g->w, 0, log_text_area(area, 0).w, area.h }; /* counts without drawing */
    return MAX(grid_wrap(g, nowhere, ROLE_TEXT, l->text), 1);
}

void draw_log(struct grid *g, struct rect area, const struct snapshot *s, int back)
{
    static const enum role ROLES[] = { ROLE_DIM, ROLE_TEXT, ROLE_WARN, ROLE_ERROR, ROLE_DIM };
    static const char *const MARKS[] = { " ", " ", "!", "✕", " " };
    if (s->log_count == 0) grid_wrap(g, area, ROLE_DIM, "no messages yet");
    int last = MAX(s->log_count - back, 0), first = last, rows = 0;
    while (first > 0 && rows + log_rows(g, area, &s->log[first - 1]) <= area.h)
        rows += log_rows(g, area, &s->log[--first]);
    for (int i = first, y = 0; i < last; i++) {
        const struct log_line *l = &s->log[i];
        struct pen p = pen_at(g, area, 0, y);
        pen_printf(&p, ROLE_DIM, "%.*s ", area.w < 40 ? 5 : 8, figure_clock(l->unix_ms).text);
        pen_put(&p, ROLES[l->level], MARKS[l->level]);
        grid_wrap(g, log_text_area(area, y), ROLES[l->level], l->text);
        y += log_rows(g, area, l);
    }
}

const char *run_title(const struct snapshot *s, char *buf, size_t size)
{
    const struct experiment_state *x = &s->experiment;
    char day[32];
    if (s->experiment_live)
        snprintf(buf, size, "A/B");
    else
        snprintf(buf, size, "Stored run %lld%s%.10s, not live", (long long)x->run_id,
                 x->started_ms ? " of " : "",
                 x->started_ms ? clock_iso8601(x->started_ms, day, sizeof day) : "");
    return buf;
}

int list_top(int selected, int rows, int count)
{
    int top = selected - rows / 2;
    return MAX(MIN(top, count - rows), 0);
}
