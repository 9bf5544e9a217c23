/* tui/views/live.c - everything on one screen: machine, engine, the running A/B, advice, log. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"

/* ---------------------------------------------------------------- engine */

/* The arm shown in the engine box: the running one, else the last that ran; -1 without an experiment. */
static int engine_arm(const struct snapshot *s)
{
    if (!s->experiment_known) return -1;
    if (s->experiment.running_arm >= 0) return s->experiment.running_arm;
    return s->experiment.arm[1].cells > 0 ? 1 : 0;
}

struct rate_row {
    const char *label, *phase;
    const struct series *series;
    double mean, limit;
    const char *limit_name;
};

/* The live rate of the running cell, otherwise the mean of the arm. A share above 1 means that the weights
 * fit in a cache, so the limit of the memory does not apply. */
static void row_rate(struct grid *g, struct rect in, int row, const struct snapshot *s,
                     const struct rate_row *r)
{
    bool live = snapshot_is_timing(s) && !strcmp(s->experiment.cell_phase, r->phase) &&
                isfinite(s->experiment.live_tok_s);
    double rate = live ? s->experiment.live_tok_s : r->mean;
    double share = snapshot_limit_share(rate, r->limit);
    struct pen p = pen_at(g, in, 0, row);
    pen_field(&p, 8, ROLE_DIM, r->label);
    pen_field_right(&p, 5, isfinite(rate) ? ROLE_TEXT | STYLE_BOLD : ROLE_DIM, figure_number(rate).text);
    if (!isfinite(rate)) return;
    pen_put(&p, ROLE_DIM, " tok/s ");
    pen_graph(&p, MIN(MAX(in.w - 34, 2), 40),
              &(struct graph){ r->series->v, r->series->n, 0, NAN, ROLE_GRAPH });
    if (!isfinite(share)) return; /* the limit is unknown: the machine pane says how to measure it */
    pen_value(&p, " ", figure_percent(share).text);
    pen_put(&p, ROLE_DIM, share > 1 ? " (cache)" : r->limit_name);
}

/* Planned parts as a sum where they explain the peak, otherwise as a plan beside it. */
static void row_memory(struct grid *g, struct rect in, int row, const struct experiment_arm *a)
{
    struct pen p = pen_at(g, in, 0, row);
    const int64_t peak = a ? metric_bytes(a->value[METRIC_PEAK_MEMORY]) : -1;
    pen_value(&p, "peak ", figure_bytes(peak).text);
    if (!a || a->plan.total <= 0) return;
    const int64_t known = a->plan.weights + a->plan.kv + MAX(a->plan.state, 0);
    const bool adds_up = peak >= known; /* a mapped file need not be in memory as a whole */
    pen_printf(&p, ROLE_DIM, adds_up ? " = weights %s" : "; planned: weights %s",
               figure_bytes(a->plan.weights).text);
    pen_printf(&p, ROLE_DIM, adds_up ? " + KV %s" : ", KV %s", figure_bytes(a->plan.kv).text);
    if (a->plan.state > 0)
        pen_printf(&p, ROLE_DIM, adds_up ? " + states %s" : ", states %s", figure_bytes(a->plan.state).text);
    if (pen_left(&p) > 12)
        pen_printf(&p, ROLE_DIM, adds_up ? " + rest %s" : ", rest %s",
                   figure_bytes(adds_up ? peak - known : a->plan.compute + a->plan.scratch).text);
}

/* Three rows: what the model is, its shape, its vocabulary and context. */
static void rows_model(struct grid *g, struct rect in, const struct snapshot *s)
{
    const struct model_shape *m = &s->model;
    if (!m->arch[0]) {
        grid_wrap(g, in, s->model_error[0] ? ROLE_ERROR : ROLE_DIM,
                  s->model_error[0] ? s->model_error : "no model is loaded");
        return;
    }
    char quantization[96];
    struct pen p = pen_at(g, in, 0, 0);
    pen_printf(&p, ROLE_TEXT, "%s  %sM params  %s in %s", m->arch,
               figure_number((double)m->params / 1e6).text, figure_bytes(m->weight_bytes).text,
               quantization_text(m, quantization, sizeof quantization));
    p = pen_at(g, in, 0, 1);
    pen_printf(&p, ROLE_DIM, "%d layers, %d heads (%d KV), width %lld", m->layers, m->heads, m->kv_heads,
               (long long)m->embd);
    p = pen_at(g, in, 0, 2);
    pen_printf(&p, ROLE_DIM, "context %lld, vocabulary %lld", (long long)m->ctx_train, (long long)m->vocab);
}

static struct figure show_per_second(double rate)
{
    struct figure f = figure_number(rate);
    if (isfinite(rate)) strncat(f.text, "/s", sizeof f.text - strlen(f.text) - 1);
    return f;
}

/* Graphs of both rates get what the figures leave of the box. */
static void box_engine(struct grid *g, struct rect area, const struct snapshot *s)
{
    int arm = engine_arm(s);
    const struct experiment_arm *a = arm >= 0 ? &s->experiment.arm[arm] : NULL;
    char title[64] = "Engine";
    if (a)
        snprintf(title, sizeof title, s->experiment_live ? "Engine: arm %c" : "Engine: arm %c, stored",
                 'A' + arm);
    struct rect in = grid_box(g, area, title, NULL);
    row_rate(g, in, 0, s,
             &(struct rate_row){ "decode", "decode", &s->decode, a ? a->value[METRIC_DECODE_RATE] : NAN,
                                 a ? s->decode_limit[arm] : NAN, " of reads" });
    row_rate(g, in, 1, s,
             &(struct rate_row){ "prefill", "prefill", &s->prefill, a ? a->value[METRIC_PREFILL_RATE] : NAN,
                                 a ? s->prefill_limit[arm] : NAN, " of math" });
    struct pen p = pen_at(g, in, 0, 2);
    pen_value(&p, "TTFT ", figure_seconds(a ? a->value[METRIC_TTFT] : NAN).text);
    pen_value(&p, "  ITL p50 ", figure_seconds(a ? a->value[METRIC_ITL_P50] : NAN).text);
    pen_value(&p, " p99 ", figure_seconds(a ? a->value[METRIC_ITL_P99] : NAN).text);
    row_memory(g, in, 3, a);
    rows_model(g, rect_rows(in, 4, in.h - 4), s);
    const struct axis rate = { .lo = 0, .hi = NAN, .name = "decode", .show = show_per_second },
                      prompt = { .lo = 0, .hi = NAN, .name = "prefill", .show = show_per_second };
    const double step = SNAPSHOT_STEP_MS * 1e-3;
    if (s->model.arch[0])
        draw_timelines(g, in, 7,
                       (const struct timeline[]){ { s->decode.v, s->decode.n, step, rate, ROLE_GRAPH },
                                                  { s->prefill.v, s->prefill.n, step, prompt, ROLE_GRAPH } },
                       2);
}

/* ---------------------------------------------------------------- the A/B strip */

/* A narrow box shows the verdict in a row of its own. */
static bool strip_is_narrow(struct rect in)
{
    enum { WHOLE = 72 };
    return in.w < WHOLE;
}

/* Config line, rate, memory and verdict of one arm; a failed arm shows its error in place of the figures. */
static void row_arm(struct grid *g, struct rect in, int row, const struct snapshot *s, int arm)
{
    const struct experiment_arm *a = &s->experiment.arm[arm];
    const struct metric *metric = experiment_metric(&s->experiment.spec);
    bool rate = !strcmp(metric->unit, "tokens/s");
    enum { VERDICT_COLUMNS = 38, RATE_COLUMNS = 13, BYTES_COLUMNS = 7 };
    const bool narrow = strip_is_narrow(in);
    int room = in.w - 2 - RATE_COLUMNS - BYTES_COLUMNS - (narrow ? 0 : VERDICT_COLUMNS);
    char line[CONFIG_LINE];
    struct pen p = pen_at(g, in, 0, row);
    pen_printf(&p, (arm ? ROLE_ARM_B : ROLE_ARM_A) | STYLE_BOLD, "%c ", 'A' + arm);
    if (a->failed) {
        room = MIN(room, 24);
        pen_field(&p, room, ROLE_TEXT, arm_line(&s->experiment, arm, room, line, sizeof line));
        pen_put(&p, ROLE_ERROR, " ✕ ");
        pen_field(&p, pen_left(&p), ROLE_ERROR, a->error);
        return;
    }
    pen_field(&p, room, ROLE_TEXT, arm_line(&s->experiment, arm, room, line, sizeof line));
    char text[48];
    snprintf(text, sizeof text, "%s %s", figure_number(a->rate).text, rate ? "tok/s" : metric->unit);
    pen_field_right(&p, RATE_COLUMNS, ROLE_TEXT, isfinite(a->rate) ? text : "n/a");
    pen_field_right(&p, BYTES_COLUMNS, ROLE_TEXT,
                    figure_bytes(metric_bytes(a->value[METRIC_PEAK_MEMORY])).text);
    pen_put(&p, ROLE_TEXT, "  ");
    if (arm && !narrow) draw_verdict(&p, &s->experiment, arm);
}

/* What the experiment does next, e.g. when it can decide. */
static void draw_next(struct pen *p, const struct snapshot *s)
{
    enum { ENOUGH = 30 }; /* columns, fewer are not worth a beginning */
    char text[600];
    if (pen_left(p) < ENOUGH) return;
    pen_put(p, ROLE_DIM, "   next: ");
    pen_field(p, pen_left(p), ROLE_TEXT, next_step(s, text, sizeof text));
}

/* The search, if one runs, or if nothing else was measured since the start. */
static bool live_shows_tune(const struct snapshot *s)
{
    const bool about_model = !s->tune.model[0] || !strcmp(s->tune.model, s->model_path);
    return s->tune.running || (s->tune.known && about_model && !s->experiment_known);
}

enum { PLOT_LEAST = 5 }; /* rows of the effect plot */

static void box_ab(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const struct experiment_state *x = &s->experiment;
    char title[700] = "A/B", workload[WORKLOAD_LINE];
    char run[64];
    if (s->experiment_known)
        snprintf(title, sizeof title,
                 experiment_arms(&x->spec) > 2 ? "%s  %s  %s   %c leads of %d (2: all)" : "%s  %s  %s",
                 run_title(s, run, sizeof run), experiment_workload_line(&x->spec, workload, sizeof workload),
                 experiment_metric(&x->spec)->name, 'A' + MAX(x->headline, 1), experiment_arms(&x->spec) - 1);
    if (live_shows_tune(s)) {
        draw_tune(g, grid_box(g, area, "Search for the best configuration (t shows all of it)", NULL), s);
        return;
    }
    if (!s->experiment_known) snprintf(title, sizeof title, "Start");
    struct rect in = grid_box(g, area, title, snapshot_caution(s));
    if (!s->experiment_known) {
        draw_home(g, in, s, u);
        return;
    }
    row_arm(g, in, 0, s, 0);
    const int leader = MAX(x->headline, 1);
    row_arm(g, in, 1, s, leader);
    const int tail = 2, at = strip_is_narrow(in) ? 3 : 2, plot = in.h - at - 1 - tail;
    struct pen p = pen_at(g, in, 2, 2);
    if (at == 3) draw_verdict(&p, x, leader);
    if (plot >= PLOT_LEAST) draw_effect(g, rect_rows(in, at + 1, plot), x, leader);
    struct rect axis = rect_rows(in, at, 1);
    axis.w = MAX(axis.w - EVIDENCE_COLUMNS, 0);
    draw_axis(g, axis, x, leader);
    p = pen_at(g, in, axis.w, at);
    draw_evidence(&p, x, leader);
    bool running = snapshot_is_running(s);
    if (x->phase == PHASE_DONE && !running) {
        char text[EXPERIMENT_SENTENCE];
        const int from = plot >= PLOT_LEAST ? in.h - tail : at + 1;
        enum { FEW = 2 }; /* rows that the result needs more than the step after it */
        const int rows = in.h - from,
                  used = grid_wrap_cut(g, rect_rows(in, from, rows > FEW ? rows - 1 : rows), ROLE_TEXT,
                                       experiment_sentence(text, sizeof text, x, leader), "2: all");
        if (from + used >= in.h) return;
        p = pen_at(g, in, 0, from + used);
        pen_put(&p, ROLE_DIM, "next: ");
        pen_field(&p, pen_left(&p), ROLE_TEXT, next_step(s, text, sizeof text));
        return;
    }
    p = pen_at(g, in, 0, in.h - 2);
    draw_control(&p, x, leader);
    if (running) draw_next(&p, s);
    p = pen_at(g, in, 0, in.h - 1);
    if (!running && x->reason[0]) {
        pen_put(&p, ROLE_DIM, "why: ");
        pen_field(&p, pen_left(&p), ROLE_TEXT, x->reason);
        return;
    }
    draw_progress(&p, s);
    if (!running && x->phase != PHASE_FAILED) draw_next(&p, s);
}

/* ---------------------------------------------------------------- advice and log */

static void box_advice(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    char note[64];
    /* a prediction stands beside rates that were measured under load: it has to say what it is */
    struct rect in = grid_box(g, area, s->advice_count ? "Advice (~ predicted, when quiet)" : "Advice",
                              s->advice_count ? advice_note(s, note, sizeof note) : NULL);
    if (s->advice_count == 0) {
        const char *text =
            s->advice_state[0]   ? s->advice_state
            : s->advice_error[0] ? s->advice_error
            : s->ceilings_known
                ? "a ranks configurations for this machine"
                : "a measures this machine's limits (about 8 s, once) and ranks configurations for it";
        grid_wrap(g, in, s->advice_error[0] && !s->advice_state[0] ? ROLE_ERROR : ROLE_DIM, text);
        return;
    }
    int chosen = u->view == VIEW_LIVE ? u->selected[VIEW_LIVE] : -1;
    for (int i = 0, y = 0; i < s->advice_count && y < in.h; i++, y += 2) {
        const struct advice *a = &s->advice[i];
        struct pen p = pen_at(g, in, 0, y);
        grid_hit(g, rect_rows(in, y, 2), HIT_ROW, i);
        if (snapshot_is_folded(s, i)) {
            pen_printf(&p, ROLE_DIM,
                       i ? "%d more: too uncertain to rank (press 3)"
                         : "all %d are too uncertain to rank (3 shows which to measure)",
                       s->advice_folded);
            break;
        }
        pen_printf(&p, ROLE_KEY, "%d ", i + 1);
        pen_field(&p, MAX(in.w - 24, 8), i == chosen ? ROLE_TEXT | STYLE_REVERSE : ROLE_TEXT | STYLE_BOLD,
                  a->line);
        char text[48];
        int runs;
        const double rate = advice_decode_rate(a, &runs).estimate;
        snprintf(text, sizeof text, "%s%s tok/s", runs ? "" : "~", figure_number(rate).text);
        pen_field_right(&p, 14, ROLE_TEXT, isfinite(rate) ? text : "n/a");
        pen_field_right(&p, 7, ROLE_TEXT, figure_bytes(a->prediction.plan.total).text);
        p = pen_at(g, in, 2, y + 1);
        pen_field(&p, pen_left(&p), ROLE_DIM, a->reason);
    }
}

void view_live(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[LIVE_PANES];
    layout_live(body, box);
    panes_place(g, box, LIVE_PANES, body, u);
    box_machine(g, box[LIVE_MACHINE], s);
    box_engine(g, box[LIVE_ENGINE], s);
    box_ab(g, box[LIVE_AB], s, u);
    box_advice(g, box[LIVE_ADVICE], s, u);
    draw_log(g, grid_box(g, box[LIVE_LOG], "Log", NULL), s, 0);
}
