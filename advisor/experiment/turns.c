/* advisor/experiment/turns.c - a block whose arms use the machine in turns of about BLOCK_TURN_S, for
 * disturbed machines: one cell of each arm, all at the same time (run/turns.c). */
#include "advisor/experiment/parts.h"

#include <math.h>
#include <stdio.h>

static bool workload_has_turns(const struct workload *w)
{
    return !w->train && !*w->eval_file && !workload_is_load(w); /* a load keeps its own time */
}

/* Metrics that depend on the time of the arm's own steps. Energy cannot be divided among arms that work at
 * the same time, and memory does not depend on the load. */
static bool metric_has_turns(const struct metric *m)
{
    static const enum metric_id TIMES[] = { METRIC_PREFILL_RATE, METRIC_DECODE_RATE, METRIC_TTFT,
                                            METRIC_ITL_P50,      METRIC_ITL_P95,     METRIC_ITL_P99 };
    for (size_t i = 0; i < COUNT_OF(TIMES); i++)
        if (m == &METRICS[TIMES[i]]) return true;
    return false;
}

/* Another engine cannot be interrupted between tokens. */
static bool arms_have_turns(const struct experiment_spec *s)
{
    for (int i = 0; i < s->arms; i++)
        if (config_is_foreign(&s->config[i])) return false;
    return true;
}

bool block_runs_in_turns(const struct experiment *x, enum cell_phase phase)
{
    const struct experiment_state *s = &x->state;
    const bool twin = phase == CELL_CONTROL && x->pool.lifetime == LIFETIME_RUN && !x->pool.process[TWIN];
    if (x->pool.lifetime == LIFETIME_CELL || s->spec.turns == TURNS_OFF) return false;
    if (s->spec.by_arm) return false; /* a turn is the same work for every arm */
    if (!workload_has_turns(&s->spec.workload) || !metric_has_turns(s->spec.metric)) return false;
    if (!arms_have_turns(&s->spec)) return false;
    if (s->spec.turns != TURNS_ON && s->estimand != ESTIMAND_LOADED && !x->clock.last_disturbed) return false;
    return !twin || twin_fits(x);
}

/* The length of a turn, from what the arms need for the workload: the same work for each. */
static struct turn_length turn_length_of(const struct experiment_state *s, const struct block_values *b)
{
    const struct workload *w = &s->spec.workload;
    double prefill_s = 0, decode_s = 0;
    int64_t batch = config_int(&s->spec.config[0], KNOB_BATCH);
    for (int i = 0; i < b->arms; i++) {
        const struct experiment_arm *a = &s->arm[b->arm[i]];
        const double share = (double)workload_sequences(w) / b->arms;
        if (w->prompt) prefill_s += share * w->prompt / a->value[METRIC_PREFILL_RATE];
        if (w->gen) decode_s += share * w->gen / a->value[METRIC_DECODE_RATE];
        if (a->merged_known) batch = MIN(batch, config_int(&a->merged, KNOB_BATCH));
    }
    return turn_length_for(w, (int)MAX(batch, 1), prefill_s, decode_s, BLOCK_TURN_S);
}

/* The process of the arm at this place. In a control both arms are A, in two processes. */
static int process_of(const struct experiment *x, const struct block_values *b, int place)
{
    if (b->phase != CELL_CONTROL) return b->arm[place];
    if (x->pool.lifetime == LIFETIME_BLOCK) return place;
    return place ? TWIN : 0;
}

static enum flow prepare_all(struct experiment *x, const struct block_values *b)
{
    for (int k = 0; k < b->arms; k++) {
        const enum flow f = process_prepare(x, process_of(x, b, k), b->arm[k]);
        if (f != FLOW_CONTINUE) return f;
    }
    return FLOW_CONTINUE;
}

static void show_block(struct experiment *x, const struct block_values *b, int block)
{
    struct experiment_state *s = state_edit(x);
    s->running_arm = b->arm[b->place[0]];
    s->block = block;
    s->slot = 0;
    s->cell_phase[0] = 0;
    s->cell_done = s->cell_of = 0;
    s->live_tok_s = NAN;
    state_done(x);
}

/* Accounts for all cells, and returns the worst that one of them says. */
static enum flow account_all(struct experiment *x, const struct block_values *b,
                             struct measured_cell cell[BLOCK_CELLS])
{
    enum flow worst = FLOW_CONTINUE;
    for (int i = 0; i < b->cells; i++) {
        if (cell[i].failure.code == ERR_CANCELLED) continue; /* because of another arm's failure */
        const enum flow f = cell_account(x, b->arm[b->place[i]], &cell[i]);
        if (f != FLOW_CONTINUE) worst = f;
    }
    return worst;
}

enum flow block_in_turns(struct experiment *x, struct block_values *b, int block,
                         struct measured_cell cell[BLOCK_CELLS])
{
    char workload[576];
    struct run_cell what[EXPERIMENT_ARMS];
    struct arm_events events[EXPERIMENT_ARMS];
    enum flow f = experiment_wait_while_paused(x);
    if (f == FLOW_STOPPED) return f;
    if ((f = prepare_all(x, b)) != FLOW_CONTINUE) return f;
    show_block(x, b, block);
    workload_line(&x->state.spec.workload, workload, sizeof(workload));
    /* as much work as two short cells; a long one has turns enough */
    const int once = x->state.cell_repeats, repeats = once > 1 ? MIN(2 * once, CELL_REPEATS_MAX) : 1;
    json_t *echo = cell_echo(&x->state, repeats, NULL);
    b->cells = b->arms;
    for (int i = 0; i < b->cells; i++) {
        const int arm = b->arm[b->place[i]];
        events[i] = (struct arm_events){ x, arm };
        what[i] = (struct run_cell){ .arm = x->pool.process[process_of(x, b, b->place[i])],
                                     .workload = workload,
                                     .repeats = repeats,
                                     .seed = x->state.spec.seed,
                                     .event = experiment_arm_event,
                                     .ctx = &events[i],
                                     .contamination = CONTAMINATION_DISCARDS,
                                     .control_frequency = x->state.control_frequency,
                                     .sample_conditions = i == b->cells - 1,
                                     .place = { .arm = arm,
                                                .block = block,
                                                .slot = i,
                                                .phase = CELL_PHASES[b->phase],
                                                .config = x->state.arm[arm].line,
                                                .echo = echo } };
    }
    const struct metric *metric = x->state.spec.metric;
    struct run_turns turns = { .length = turn_length_of(&x->state, b),
                               .prefill = metric == &METRICS[METRIC_PREFILL_RATE] ||
                                          (metric == &METRICS[METRIC_TTFT] &&
                                           x->state.spec.workload.prompt) };
    while (b->place[turns.reference]) turns.reference++; /* A is at place 0 */
    const enum err_code rc = run_cells_in_turns(&x->run, what, b->cells, &turns, cell, &x->why);
    json_decref(echo);
    if (rc) return rc == ERR_CANCELLED ? FLOW_STOPPED : FLOW_BROKEN;
    return account_all(x, b, cell);
}
