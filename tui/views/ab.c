/* tui/views/ab.c - the experiment in full: arms, the effect of each block, control and verdict. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "base/cut/cut.h"

/* A column of the table of arms. */
struct arm_column {
    const char *head;
    int columns;
    int metric; /* which figure it shows; METRIC_COUNT: the one that is compared; 0: always there */
    struct figure (*show)(const struct experiment_arm *a);
};

static struct figure show_rate(const struct experiment_arm *a)
{
    return figure_number(a->rate);
}
static struct figure show_prefill(const struct experiment_arm *a)
{
    return figure_number(a->value[METRIC_PREFILL_RATE]);
}
static struct figure show_decode(const struct experiment_arm *a)
{
    return figure_number(a->value[METRIC_DECODE_RATE]);
}
static struct figure show_ttft(const struct experiment_arm *a)
{
    return figure_seconds(a->value[METRIC_TTFT]);
}
static struct figure show_p50(const struct experiment_arm *a)
{
    return figure_seconds(a->value[METRIC_ITL_P50]);
}
static struct figure show_p99(const struct experiment_arm *a)
{
    return figure_seconds(a->value[METRIC_ITL_P99]);
}
static struct figure show_ppl(const struct experiment_arm *a)
{
    return figure_number(a->value[METRIC_PERPLEXITY]);
}
static struct figure show_peak(const struct experiment_arm *a)
{
    return figure_bytes(metric_bytes(a->value[METRIC_PEAK_MEMORY]));
}
static struct figure show_weights(const struct experiment_arm *a)
{
    return figure_bytes(a->plan.total > 0 ? a->plan.weights : -1);
}
static struct figure show_kv(const struct experiment_arm *a)
{
    return figure_bytes(a->plan.total > 0 ? a->plan.kv : -1);
}
static struct figure show_cells(const struct experiment_arm *a)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%d", a->cells);
    return f;
}

/* The most important first: a narrow screen shows only those that fit. */
static const struct arm_column COLUMNS[] = {
    { .head = "metric", .columns = 9, .show = show_rate, .metric = METRIC_COUNT },
    { .head = "prefill/s", .columns = 11, .show = show_prefill, .metric = METRIC_PREFILL_RATE },
    { .head = "decode/s", .columns = 10, .show = show_decode, .metric = METRIC_DECODE_RATE },
    { .head = "TTFT", .columns = 8, .show = show_ttft, .metric = METRIC_TTFT },
    { .head = "ITL p50", .columns = 9, .show = show_p50 },
    { .head = "p99", .columns = 8, .show = show_p99 },
    { .head = "peak", .columns = 7, .show = show_peak },
    { .head = "cells", .columns = 7, .show = show_cells },
    { .head = "PPL", .columns = 8, .show = show_ppl, .metric = METRIC_PERPLEXITY },
    { .head = "weights", .columns = 9, .show = show_weights },
    { .head = "KV", .columns = 7, .show = show_kv },
};

/* A column is left out where the workload cannot give its figure (a decode has no first token after a
 * prompt), and the compared metric where it has a column of its own. */
static bool column_shown(const struct arm_column *c, const struct experiment_state *x)
{
    const struct workload *w = &x->spec.workload;
    const bool tokens = !workload_is_load(w) && !w->train && !*w->eval_file;
    const int compared = (int)(experiment_metric(&x->spec) - METRICS);
    for (int i = 0; i < experiment_arms(&x->spec) && c->metric < METRIC_COUNT; i++)
        if (isfinite(x->arm[i].value[c->metric])) return true;
    switch (c->metric) {
    case METRIC_COUNT: return compared != METRIC_PREFILL_RATE && compared != METRIC_DECODE_RATE;
    case METRIC_PREFILL_RATE:
    case METRIC_TTFT: return !tokens || w->prompt > 0 || x->spec.by_arm;
    case METRIC_DECODE_RATE: return !tokens || w->gen > 0 || x->spec.by_arm;
    case METRIC_PERPLEXITY: return !tokens;
    default: return true;
    }
}

static void row_figures(struct grid *g, struct rect in, int row, const struct experiment_state *x, int arm)
{
    const struct experiment_arm *a = arm < 0 ? NULL : &x->arm[arm]; /* -1: the heads */
    struct pen p = pen_at(g, in, 0, row);
    if (a)
        pen_printf(&p, (arm ? ROLE_ARM_B : ROLE_ARM_A) | STYLE_BOLD, "%c  ", 'A' + arm);
    else
        pen_put(&p, ROLE_DIM, "   ");
    if (a && a->failed) {
        pen_put(&p, ROLE_ERROR, "✕ ");
        pen_field(&p, pen_left(&p), ROLE_ERROR, a->error);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(COLUMNS) && pen_left(&p) >= COLUMNS[i].columns; i++) {
        if (!column_shown(&COLUMNS[i], x)) continue;
        struct figure f = a ? COLUMNS[i].show(a) : (struct figure){ "" };
        const char *text = a ? f.text : COLUMNS[i].head;
        pen_field_right(&p, COLUMNS[i].columns, !a || !strcmp(text, "n/a") ? ROLE_DIM : ROLE_TEXT, text);
    }
}

static void row_config(struct grid *g, struct rect in, int row, const struct experiment_state *x, int arm)
{
    const struct experiment_arm *a = &x->arm[arm];
    char line[CONFIG_LINE];
    struct pen p = pen_at(g, in, 0, row);
    pen_printf(&p, (arm ? ROLE_ARM_B : ROLE_ARM_A) | STYLE_BOLD, "%c  ", 'A' + arm);
    char recipe[sizeof a->recipe + 16] = "";
    if (a->recipe[0]) snprintf(recipe, sizeof recipe, "   recipe %s", a->recipe);
    const char *state = a->failed || (a->cells && !a->ready) ? "" : a->ready ? "   loaded" : "   loading";
    const int beside = text_columns(recipe) + text_columns(state);
    pen_put(&p, ROLE_TEXT, arm_line(x, arm, MAX(pen_left(&p) - beside, 3), line, sizeof line));
    pen_put(&p, ROLE_DIM, recipe);
    pen_put(&p, ROLE_DIM, state);
}

/* With more than two arms each has one row, with as many figures as fit. */
static void row_challenger(struct grid *g, struct rect in, int row, const struct snapshot *s, int arm,
                           bool selected)
{
    enum { LINE = 22, RATE = 9, PEAK = 7, VERDICT = 40, NARROW_VERDICT = 22, EVIDENCE = 21 };
    const struct experiment_state *x = &s->experiment;
    const struct experiment_arm *a = &x->arm[arm];
    const bool narrow = in.w < 3 + LINE + RATE + PEAK + VERDICT - 6;
    const int verdict = narrow ? NARROW_VERDICT : VERDICT, peak = narrow ? 0 : PEAK;
    struct pen p = pen_at(g, in, 0, row);
    pen_put(&p, ROLE_KEY, selected ? "▸" : " ");
    pen_printf(&p, (arm ? ROLE_ARM_B : ROLE_ARM_A) | STYLE_BOLD, "%c ", 'A' + arm);
    const int columns = narrow ? in.w - 3 - RATE - verdict
                               : MAX(LINE, in.w - 3 - RATE - peak - VERDICT - EVIDENCE);
    char line[CONFIG_LINE];
    pen_field(&p, columns, selected ? ROLE_TEXT | STYLE_REVERSE : ROLE_TEXT,
              arm_line(x, arm, columns, line, sizeof line));
    if (a->failed) {
        pen_put(&p, ROLE_ERROR, " ✕ ");
        pen_field(&p, pen_left(&p), ROLE_ERROR, a->error);
        return;
    }
    pen_field_right(&p, RATE, ROLE_TEXT, figure_number(a->rate).text);
    pen_field_right(&p, peak, ROLE_TEXT, figure_bytes(metric_bytes(a->value[METRIC_PEAK_MEMORY])).text);
    if (!arm) return;
    pen_put(&p, ROLE_TEXT, "  ");
    const int verdict_from = p.x;
    if (narrow)
        draw_verdict_briefly(&p, x, arm);
    else
        draw_verdict(&p, x, arm);
    if (in.w < verdict_from + VERDICT + EVIDENCE - 2) return;
    p.x = verdict_from + VERDICT - 2;
    draw_evidence(&p, x, arm);
}

static void rows_arms(struct grid *g, struct rect in, const struct snapshot *s, int selected)
{
    const struct experiment_state *x = &s->experiment;
    struct pen p = pen_at(g, in, 0, 0);
    pen_printf(&p, ROLE_DIM, "each against A by %s; ↑ ↓ select an arm", experiment_metric(&x->spec)->name);
    const int challengers = experiment_arms(&x->spec) - 1, rows = in.h - 2;
    row_challenger(g, in, 1, s, 0, false);
    const int first = MAX(0, MIN(selected - rows, challengers - rows));
    for (int i = 0; i < rows && first + i < challengers; i++) {
        row_challenger(g, in, 2 + i, s, first + i + 1, first + i + 1 == selected);
        grid_hit(g, rect_rows(in, 2 + i, 1), HIT_ROW, first + i);
    }
}

static void box_arms(struct grid *g, struct rect area, const struct snapshot *s, int selected)
{
    const struct experiment_state *x = &s->experiment;
    char title[800], workload[WORKLOAD_LINE];
    const char *name = strrchr(x->spec.model, '/');
    char run[64] = "Arms";
    if (s->experiment_live && x->run_id) /* 0: not stored yet, or never */
        snprintf(run, sizeof run, "Arms   run %lld", (long long)x->run_id);
    else if (!s->experiment_live)
        run_title(s, run, sizeof run);
    text_cutf(title, sizeof title, "%s   %s   %s   %s", run, name ? name + 1 : x->spec.model,
              experiment_workload_line(&x->spec, workload, sizeof workload),
              experiment_metric(&x->spec)->name);
    struct rect in = grid_box(g, area, title, snapshot_caution(s));
    if (experiment_arms(&x->spec) > 2) {
        rows_arms(g, in, s, selected);
        return;
    }
    row_config(g, in, 0, x, 0);
    row_config(g, in, 1, x, 1);
    row_figures(g, in, 2, x, -1);
    row_figures(g, in, 3, x, 0);
    row_figures(g, in, 4, x, 1);
}

/* Append a line to the figures behind the verdict: wrapped, as far as there are rows. */
static void detail_row(struct grid *g, struct rect *left, unsigned style, const char *text)
{
    const int used = *text ? grid_wrap(g, *left, style, text) : 0;
    *left = rect_rows(*left, used, MAX(left->h - used, 0));
}

static const char *detail_control(const struct experiment_state *x, int arm, char *buf, size_t size)
{
    char few[EXPERIMENT_BLOCKS_TEXT];
    const struct interval control = experiment_change(x, x->control);
    if (isfinite(x->noise_floor) && isfinite(control.lower))
        snprintf(buf, size, "noise ±%.2g%% (A/A, %d block%s%s): A against itself %s [%s, %s]",
                 stats_percent(x->noise_floor), x->control_blocks, str_plural(x->control_blocks),
                 experiment_noise_text(few, x, arm), figure_change(control.estimate).text,
                 figure_change(control.lower).text, figure_change(control.upper).text);
    else
        snprintf(buf, size, "noise n/a: %s",
                 x->spec.control_blocks < 0 ? "A was not compared with itself"
                                            : "too few blocks of A against itself");
    return buf;
}

/* The figures behind the verdict, each with what it means. Rows that do not fit are left out, the last first.
 */
static void rows_details(struct grid *g, struct rect in, const struct experiment_state *x, int arm)
{
    const struct comparison *c = experiment_comparison(x, arm);
    char text[EXPERIMENT_BLOCKS_TEXT + 256];
    struct rect left = rect_rows(in, 1, MAX(in.h - 1, 0));
    struct pen p = pen_at(g, in, 0, 0);
    draw_verdict(&p, x, arm);
    snprintf(text, sizeof text, "interval of all %d block%s; margin ±%.2g%%", c->blocks,
             str_plural(c->blocks), x->spec.margin * 100);
    if (pen_left(&p) > text_columns(text) + 2)
        pen_printf(&p, ROLE_DIM, "  %s", text);
    else
        detail_row(g, &left, ROLE_DIM, text);
    detail_row(g, &left, x->control_failed ? ROLE_ERROR : ROLE_TEXT,
               detail_control(x, arm, text, sizeof text));
    if (c->blocks > 1 && isfinite(c->e)) {
        snprintf(
            text, sizeof text,
            "evidence %.3g where 20 is enough (e-value): how much likelier the data are if A and %c differ; p %.2g",
            c->e, 'A' + arm, c->p);
        detail_row(g, &left, ROLE_TEXT, text);
    }
    if (x->comparison[arm].quality.known && left.h > 0) {
        p = pen_at(g, left, 0, 0);
        draw_quality(&p, x, arm);
        left = rect_rows(left, 1, left.h - 1);
    }
    char ratio[RATIO_TEXT];
    detail_row(g, &left, ROLE_DIM, experiment_ratio_text(ratio, x, arm));
    detail_row(g, &left, ROLE_DIM, experiment_blocks_text(text, x));
    if (!isfinite(x->mde)) return;
    snprintf(text, sizeof text, "smallest effect that these blocks would probably show: %.2g%%",
             stats_percent(x->mde));
    detail_row(g, &left, ROLE_DIM, text);
}

/* The sentence on the result, "" before there is one; and what to do next, or why there is no verdict. */
struct verdict_words {
    char result[EXPERIMENT_SENTENCE], step[EXPERIMENT_SENTENCE];
    const char *label; /* of the step */
};

static void words_make(struct verdict_words *w, const struct snapshot *s, int arm)
{
    const struct experiment_state *x = &s->experiment;
    const struct comparison *c = experiment_comparison(x, arm);
    w->result[0] = '\0';
    if (c->blocks > 0 || x->phase >= PHASE_DONE) experiment_sentence(w->result, sizeof w->result, x, arm);
    /* The sentence on an invalid run contains its reason. */
    const char *why = experiment_verdict(x, arm) == VERDICT_INVALID && x->phase == PHASE_DONE ? ""
                      : *c->reason                                                            ? c->reason
                                                                                              : x->reason;
    w->label = *why ? "why: " : "next: ";
    if (*why)
        snprintf(w->step, sizeof w->step, "%s", why);
    else
        next_step(s, w->step, sizeof w->step);
}

enum { STEP_LABEL = 6 }; /* columns of "next: " */

/* The rows of the box that shows all of it, with its frame. */
static int verdict_rows(struct grid *g, int columns, const struct snapshot *s, int arm)
{
    enum { FRAME = 2, SIDES = 4, PROGRESS = 1 };
    struct verdict_words w;
    words_make(&w, s, arm);
    return FRAME + (w.result[0] ? grid_wrap_rows(g, columns - SIDES, w.result) : 0) +
           MAX(grid_wrap_rows(g, columns - SIDES - STEP_LABEL, w.step), 1) + PROGRESS;
}

/* The result in words, then the step, then the progress. The last two keep a row each. */
static void rows_words(struct grid *g, struct rect in, const struct snapshot *s, const struct ui *u, int arm)
{
    struct verdict_words w;
    const bool alone = u->zoomed || layout_frame(g->w, g->h).single;
    const char *more = alone ? "" : "z: all";
    int row = 0;
    words_make(&w, s, arm);
    if (w.result[0]) row = grid_wrap_cut(g, rect_rows(in, 0, MAX(in.h - 2, 1)), ROLE_TEXT, w.result, more);
    if (row < in.h - 1) {
        struct pen p = pen_at(g, in, 0, row);
        pen_put(&p, ROLE_DIM, w.label);
        const struct rect rest = { in.x + p.x, in.y + row, MAX(in.w - p.x, 0), in.h - 1 - row };
        row += MAX(grid_wrap_cut(g, rest, ROLE_TEXT, w.step, more), 1);
    }
    struct pen p = pen_at(g, in, 0, MIN(row, in.h - 1));
    draw_progress(&p, s);
}

static void box_verdict(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u,
                        int arm)
{
    const struct experiment_state *x = &s->experiment;
    const struct mark m = verdict_mark(experiment_verdict(x, arm));
    char title[96];
    snprintf(title, sizeof title, "Verdict on %c%s%s%s%s", 'A' + arm, *m.word ? ": " : "",
             *m.word ? m.glyph : "", *m.word ? " " : "", m.word);
    struct rect in = grid_box(g, area, title,
                              x->confirming && arm == x->headline ? "confirmed on new blocks" : NULL);
    if (in.h < 1) return;
    if (u->details)
        rows_details(g, in, x, arm);
    else
        rows_words(g, in, s, u, arm);
}

void view_ab(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    const struct experiment_state *x = &s->experiment;
    struct rect box[AB_PANES];
    if (!s->experiment_known) {
        struct rect in = grid_box(g, body, "A/B", snapshot_caution(s));
        grid_wrap(
            g, in, ROLE_TEXT,
            "No experiment on screen. b starts one; 4 lists earlier ones (Enter opens one, r resumes a stopped one).");
        return;
    }
    const int arm = experiment_selected(x, u);
    const struct comparison *c = experiment_comparison(x, arm);
    layout_ab(body, experiment_arms(&x->spec), experiment_ranks(x), box);
    if (!u->details) layout_ab_verdict(box, verdict_rows(g, body.w, s, arm));
    panes_place(g, box, pane_count(VIEW_AB, s), body, u);
    box_arms(g, box[AB_ARMS], s, arm);
    char title[128];
    snprintf(title, sizeof title,
             "Effect, %c against A: %d block%s (dot: one block, band: %.3g%% interval%s)", 'A' + arm,
             c->blocks, str_plural(c->blocks), 100 * (1 - (c->alpha > 0 ? c->alpha : 0.05)),
             x->phase < PHASE_DONE ? " so far" : "");
    struct rect in = grid_box(g, box[AB_EFFECT], title, NULL);
    draw_effect(g, rect_rows(in, 0, in.h - 1), x, arm);
    draw_axis(g, rect_rows(in, in.h - 1, 1), x, arm);
    box_verdict(g, box[AB_VERDICT], s, u, arm);
    box_ranks(g, box[AB_RANKS], s);
}
