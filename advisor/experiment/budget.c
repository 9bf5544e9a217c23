/* advisor/experiment/budget.c - a run keeps its budget within a tenth, or says at the start why it cannot.
 *
 * The budget covers everything from loading to quality. Blocks end early enough for what follows them: the
 * closing canary, whose first run was timed, and the quality, whose time is estimated from one untimed window
 * of each arm. Quality that would take more than half of what is left is measured on fewer windows, unless
 * their number was given. Where that is not enough, it comes on top of the budget: otherwise there would be
 * no time for a comparison. */
#include "advisor/experiment/parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BUDGET_SLACK 1.1

double experiment_budget_left(const struct experiment *x)
{
    return x->state.spec.budget_s - x->state.reserved_s - experiment_elapsed(x);
}

bool experiment_block_is_too_late(const struct experiment *x)
{
    const double next = x->state.block_s > 0 ? x->state.block_s : 0;
    const double slack = (BUDGET_SLACK - 1) * x->state.spec.budget_s, left = experiment_budget_left(x);
    return left <= 0 || next > left + slack;
}

/* Seconds until the latest end of the run. NAN: unknown. */
static double most_left(const struct experiment *x)
{
    const struct experiment_state *s = &x->state;
    const double elapsed = experiment_elapsed(x);
    if (s->phase == PHASE_QUALITY) return x->budget.quality_begun_s + x->budget.quality_s - elapsed;
    const int blocks = MAX(control_wanted(s) - s->control_blocks, 0) + MAX(s->spec.max_blocks - s->blocks, 0);
    const double blocks_s = fmin(fmax(s->spec.budget_s - s->reserved_s - elapsed, 0), s->block_s * blocks);
    return s->block_s > 0 ? blocks_s + s->reserved_s + x->budget.on_top_s : (double)NAN;
}

/* How many more blocks it takes is an estimate that grows and shrinks with the noise, and a time that grows
 * while somebody waits for it is worse than none. So what is shown is the latest end, and it only falls. Work
 * that goes on beyond that end takes an unknown time, not none. */
void experiment_count_down(struct experiment *x)
{
    const double left = most_left(x);
    struct experiment_state *s = state_edit(x);
    s->elapsed_s = experiment_elapsed(x);
    if (left > 0) s->eta_s = isnan(s->eta_s) ? left : fmin(s->eta_s, left);
    if (left <= 0) s->eta_s = NAN;
    state_done(x);
}

/* ---------------------------------------------------------------- what follows the blocks */

/* Seconds for one token of a prompt and one generated token. NAN: unknown. */
struct token_time {
    double prefill_s, decode_s;
};

/* The same without running anything, for an arm that filled its cache up to the workload's depth: the filling
 * read a prompt of that length, and the warm-up timed the decoding. */
static struct token_time token_time_at_depth(const struct experiment *x, int arm)
{
    const struct workload *w = experiment_workload(&x->state.spec, arm);
    const double sequences = workload_sequences(w), rate = x->state.arm[arm].value[METRIC_DECODE_RATE];
    return (struct token_time){ .prefill_s = x->state.arm[arm].fill_s / (w->depth * sequences),
                                .decode_s = rate > 0 ? 1 / rate : (double)NAN };
}

/* Runs a short workload, untimed for the run, in the arm's process as it was left by the warm-up. */
static struct token_time token_time_of(struct experiment *x, int arm)
{
    const struct experiment_spec *s = &x->state.spec;
    struct token_time t = { NAN, NAN };
    const int64_t own = config_int(&s->config[arm], KNOB_CTX);
    const int room = own > 0 ? (int)own : workload_ctx(&s->workload), generated = 4;
    const int prompt = MIN(s->quality_ctx > 0 ? s->quality_ctx : QUALITY_CTX, room - generated);
    char line[64];
    json_t *answer = NULL;
    struct err ignored;
    if (x->state.arm[arm].fill_s > 0) return token_time_at_depth(x, arm);
    if (!x->pool.process[arm] || prompt < 1) return t;
    snprintf(line, sizeof(line), "pp%d+tg%d", prompt, generated);
    if (arm_cell(x->pool.process[arm], line, s->seed, &answer, experiment_event, x, &ignored)) return t;
    t.prefill_s = json_get_num(answer, "prefill_s", NAN) / prompt;
    t.decode_s = json_get_num(answer, "decode_s", NAN) / generated;
    json_decref(answer);
    return t;
}

/* What an arm's process and cells took so far, and its tokens. */
static struct arm_time arm_time_of(struct experiment *x, int arm)
{
    const struct token_time t = token_time_of(x, arm);
    return (struct arm_time){ .start_s = x->pool.start_s[arm],
                              .cell_s = fmax(x->state.arm[arm].cell_s, CELL_LEAST_S),
                              .prefill_token_s = t.prefill_s,
                              .decode_token_s = t.decode_s };
}

/* Sets on how much text quality is measured. All arms have the same text, because their losses are compared:
 * where an earlier session measured an arm, its size stays. `whole`: what the specification asked for. */
static void quality_size_set(struct experiment *x, struct quality_size size, struct quality_size whole)
{
    struct experiment_state *s = state_edit(x);
    for (int k = 1; k < s->spec.arms; k++) {
        const struct quality *q = &s->comparison[k].quality;
        if (q->known) size = (struct quality_size){ q->ctx, (int)q->figures.candidate.chunks };
    }
    if (size.ctx != whole.ctx) s->spec.quality_ctx = size.ctx;
    s->spec.quality_chunks = size.windows;
    state_done(x);
    if (size.ctx < whole.ctx)
        experiment_log_event(
            x, "windows",
            "quality is measured in %d windows of %d tokens and not of %d, the workload's length, to fit into the "
            "budget; a new run with --quality-ctx %d and a longer --budget measures it at that length",
            size.windows, size.ctx, whole.ctx, whole.ctx);
    else if (size.windows < whole.windows)
        experiment_log_event(
            x, "windows",
            "quality is measured on %d of %d window%s of the text%s: more text needs a longer "
            "budget, or --quality-chunks %d in a new run",
            size.windows, whole.windows, str_plural(whole.windows),
            size.windows > s->spec.quality_least
                ? ", so that it fits into the budget"
                : ", the fewest that are measured however short the budget is",
            whole.windows);
}

/* Plans the quality of all challengers: makes the text smaller where the budget is too short for it. Returns
 * the seconds that it takes. NAN: unknown; 0: it is not measured. */
static double quality_plan(struct experiment *x, double left_s)
{
    const struct experiment_spec *s = &x->state.spec;
    const struct quality_size whole = forecast_quality_size(s);
    struct quality_time q = { 0 };
    struct quality_size size;
    bool wanted = false;
    if (!*s->quality_file) return 0;
    const struct arm_time a = arm_time_of(x, 0);
    for (int k = 1; k < s->arms; k++) {
        if (x->state.arm[k].failed || x->state.comparison[k].quality.known) continue;
        const struct arm_time b = arm_time_of(x, k);
        forecast_quality_add(&q, &a, &b);
        wanted = true;
    }
    if (!wanted) return 0;
    const double seconds = forecast_quality_fit(&size, &q, s, left_s);
    if (s->quality_least > 0 && size.windows > 0) quality_size_set(x, size, whole);
    return seconds;
}

/* Says that the budget will not be kept, and why. */
static void announce_overrun(struct experiment *x, const char *why)
{
    x->budget.announced = true;
    experiment_log_event(x, "budget", "the run takes longer than its budget of %.3g s: %s",
                         x->state.spec.budget_s, why);
}

void experiment_budget_exact(struct experiment *x)
{
    announce_overrun(x, "each arm evaluates the whole text once, however long that takes");
}

static void reserve(struct experiment *x, double canary_s)
{
    const double left = experiment_budget_left(x) - canary_s, quality = quality_plan(x, left);
    const bool fits = quality <= 0.5 * left;
    struct experiment_state *s = state_edit(x);
    s->reserved_s = canary_s + (fits ? quality : 0);
    state_done(x);
    x->budget.quality_s = quality;
    x->budget.on_top_s = fits ? 0 : quality;
    if (fits || quality == 0) return;
    struct str why = { 0 };
    if (isnan(quality)) {
        str_append(&why, "measuring quality follows the blocks, and how long that takes is not known");
    } else {
        str_append(&why, "measuring quality takes about ");
        forecast_put_time(&why, quality);
        str_append(&why,
                   " and begins when the budget is used up, because at least half of the budget is kept for "
                   "the blocks");
    }
    announce_overrun(x, str_text(&why));
    str_free(&why);
}

/* The control, and as many blocks as a verdict needs where all agree: with what the warm-up measured. */
static void check_blocks(struct experiment *x)
{
    const struct experiment_state *s = &x->state;
    double cells_s = 0, starts_s = 0;
    if (s->blocks || s->control_blocks) return;
    for (int i = 0; i < s->spec.arms; i++) {
        if (s->arm[i].failed) continue;
        cells_s += 2 * fmax(x->state.arm[i].cell_s, CELL_LEAST_S);
        starts_s += x->pool.lifetime == LIFETIME_RUN ? 0 : x->pool.start_s[i] + x->state.arm[i].fill_s;
    }
    struct experiment_forecast f;
    char text[FORECAST_TEXT];
    forecast_of(&f, &s->spec, experiment_elapsed(x), cells_s + starts_s, x->budget.quality_s);
    if (experiment_forecast_is_short(&f))
        experiment_log_event(
            x, "budget",
            "judging by the warm-up, the budget is too short for a verdict: %s; --budget %s would be enough",
            experiment_forecast_text(text, &f), f.budget);
}

bool experiment_filling_is_too_long(struct experiment *x, int arms_filled)
{
    const struct experiment_state *s = &x->state;
    double fill_s = 0, cell_s = 0;
    for (int i = 0; i < arms_filled; i++) {
        fill_s += s->arm[i].fill_s / arms_filled;
        cell_s += fmax(s->arm[i].cell_s, CELL_LEAST_S) / arms_filled;
    }
    const double more_s = (s->spec.arms - arms_filled) * (fill_s + cell_s) + 2 * s->spec.arms * cell_s;
    if (!(fill_s > 0) || experiment_elapsed(x) + more_s <= BUDGET_SLACK * s->spec.budget_s) return false;
    char enough[FORECAST_BUDGET];
    const int blocks = s->blocks_needed > 0 ? s->blocks_needed : forecast_fewest_blocks(&s->spec);
    x->budget.ends_early = x->budget.announced = true;
    experiment_log_event(
        x, "budget",
        "the run ends before its %s block: filling the cache up to a depth of %d tokens takes "
        "about %.2g s for each of %d arms, and the budget is %.3g s; --budget %s has time for the blocks that a "
        "verdict needs%s",
        s->complete ? "next" : "first", s->spec.workload.depth, fill_s, s->spec.arms, s->spec.budget_s,
        experiment_resume_budget(enough, s, blocks),
        *s->spec.quality_file ? ", and for measuring quality" : "");
    return true;
}

void experiment_budget_plan(struct experiment *x, double canary_s)
{
    const double spent = experiment_elapsed(x);
    char why[96];
    reserve(x, canary_s);
    if (spent + canary_s > BUDGET_SLACK * x->state.spec.budget_s && !x->budget.announced) {
        snprintf(why, sizeof(why), "loading and warming up took %.1f s", spent);
        announce_overrun(x, why);
    }
    check_blocks(x);
}

void experiment_budget_end(struct experiment *x)
{
    const double spent = experiment_elapsed(x), budget = x->state.spec.budget_s;
    if (x->budget.announced || spent <= BUDGET_SLACK * budget) return;
    experiment_log_event(
        x, "budget",
        "the run took %.1f s, more than a tenth over its budget of %.3g s: its last steps took "
        "longer than such steps did before",
        spent, budget);
}
