/* tui/views/ab.c - the experiment in full: arms, effect block by block, control and verdict. */
#include "tui/views/views.h"
#include "tui/figures.h"

#include <math.h>
#include <string.h>

/* The table of arms: one row per column of it. Text of a figure for one arm. */
struct arm_column {
    const char *head;
    int columns;
    struct figure (*show)(const struct experiment_arm *a);
};

static struct figure show_rate(const struct experiment_arm *a)
{
    return figure_number(a->rate);
}
static struct figure show_prefill(const struct experiment_arm *a)
{
    return figure_number(a->prefill_tok_s);
}
static struct figure show_decode(const struct experiment_arm *a)
{
    return figure_number(a->decode_tok_s);
}
static struct figure show_ttft(const struct experiment_arm *a)
{
    return figure_seconds(a->ttft_s);
}
static struct figure show_p50(const struct experiment_arm *a)
{
    return figure_seconds(a->itl_p50_s);
}
static struct figure show_p99(const struct experiment_arm *a)
{
    return figure_seconds(a->itl_p99_s);
}
static struct figure show_ppl(const struct experiment_arm *a)
{
    return figure_number(a->perplexity);
}
static struct figure show_peak(const struct experiment_arm *a)
{
    return figure_bytes(a->peak_rss_bytes);
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

/* In order of weight: a narrow screen shows the first ones. */
static const struct arm_column COLUMNS[] = {
    { "metric", 9, show_rate },
    { "prefill/s", 11, show_prefill },
    { "decode/s", 10, show_decode },
    { "TTFT", 8, show_ttft },
    { "ITL p50", 9, show_p50 },
    { "p99", 8, show_p99 },
    { "peak", 7, show_peak },
    { "cells", 7, show_cells },
    { "PPL", 8, show_ppl },
    { "weights", 9, show_weights },
    { "KV", 7, show_kv },
};

static void row_figures(struct grid *g, struct rect in, int row, const struct experiment_arm *a, int arm)
{
    struct pen p = pen_at(g, in, 0, row);
    pen_put(&p, a ? (arm ? ROLE_ARM_B : ROLE_ARM_A) | STYLE_BOLD : ROLE_DIM,
            !a    ? "   "
            : arm ? "B  "
                  : "A  ");
    if (a && a->failed) {
        pen_put(&p, ROLE_ERROR, "✕ ");
        pen_field(&p, pen_left(&p), ROLE_ERROR, a->error);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(COLUMNS) && pen_left(&p) >= COLUMNS[i].columns; i++) {
        struct figure f = a ? COLUMNS[i].show(a) : (struct figure){ "" };
        const char *text = a ? f.text : COLUMNS[i].head;
        pen_field_right(&p, COLUMNS[i].columns, !a || !strcmp(text, "n/a") ? ROLE_DIM : ROLE_TEXT, text);
    }
}

static void row_config(struct grid *g, struct rect in, int row, const struct experiment_arm *a, int arm)
{
    struct pen p = pen_at(g, in, 0, row);
    pen_put(&p, (arm ? ROLE_ARM_B : ROLE_ARM_A) | STYLE_BOLD, arm ? "B  " : "A  ");
    pen_field(&p, MIN(text_columns(a->line), pen_left(&p)), ROLE_TEXT, a->line);
    if (a->recipe[0]) pen_printf(&p, ROLE_DIM, "   recipe %s", a->recipe);
    pen_printf(&p, ROLE_DIM, "   %s", a->failed ? "" : a->ready ? "loaded" : a->cells ? "" : "loading");
}

static void box_arms(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct experiment_state *x = &s->experiment;
    char title[800], workload[600];
    const char *name = strrchr(x->spec.model, '/');
    snprintf(title, sizeof title, "Arms   run %lld   %.100s   %.500s   %s", (long long)x->run_id,
             name ? name + 1 : x->spec.model, workload_line(&x->spec.workload, workload, sizeof workload),
             experiment_metric(x)->name);
    struct rect in = grid_box(g, area, title, snapshot_random_weights(s) ? RANDOM_WEIGHTS_TEXT : NULL);
    row_config(g, in, 0, &x->arm[0], 0);
    row_config(g, in, 1, &x->arm[1], 1);
    row_figures(g, in, 2, NULL, 0);
    row_figures(g, in, 3, &x->arm[0], 0);
    row_figures(g, in, 4, &x->arm[1], 1);
}

static void box_verdict(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct experiment_state *x = &s->experiment;
    char text[300];
    struct rect in = grid_box(g, area, "Verdict on B", NULL);
    struct pen p = pen_at(g, in, 0, 0);
    draw_verdict(&p, x);
    pen_printf(&p, ROLE_DIM, "   margin ±%.2g%%", expm1(x->spec.margin) * 100);
    if (isfinite(x->mde)) pen_printf(&p, ROLE_DIM, "   can see ±%.2g%%", expm1(x->mde) * 100);
    p = pen_at(g, in, 0, 1);
    draw_control(&p, x);
    if (isfinite(x->control.lower))
        pen_printf(&p, ROLE_DIM, "   A/A %s [%s, %s]", figure_change(x->control.estimate).text,
                   figure_change(x->control.lower).text, figure_change(x->control.upper).text);
    p = pen_at(g, in, 0, 2);
    bool reason = x->reason[0] != '\0';
    pen_put(&p, ROLE_DIM, reason ? "why: " : "next: ");
    pen_field(&p, pen_left(&p), ROLE_TEXT, reason ? x->reason : next_step(s, text, sizeof text));
    p = pen_at(g, in, 0, 3);
    draw_progress(&p, s);
}

void view_ab(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    (void)u;
    const struct experiment_state *x = &s->experiment;
    struct rect box[AB_BOXES];
    if (!s->experiment_known) {
        struct rect in = grid_box(g, body, "A/B", snapshot_random_weights(s) ? RANDOM_WEIGHTS_TEXT : NULL);
        grid_wrap(
            g, in, ROLE_TEXT,
            "No experiment on screen. b starts one; 4 lists the earlier ones (Enter opens, r resumes a stopped one).");
        return;
    }
    layout_ab(body, box);
    box_arms(g, box[AB_ARMS], s);
    char title[96];
    snprintf(title, sizeof title,
             "Effect, B against A: %d blocks (dot: one block, bar: 95%% interval so far)", x->blocks);
    struct rect in = grid_box(g, box[AB_EFFECT], title, NULL);
    draw_effect(g, rect_rows(in, 0, in.h - 1), x);
    draw_axis(g, rect_rows(in, in.h - 1, 1), x);
    box_verdict(g, box[AB_VERDICT], s);
}
