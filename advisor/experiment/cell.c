/* advisor/experiment/cell.c - one timed cell on one arm, and the block of them that is the unit of
 * comparison.
 *
 * A cell runs the workload `cell_repeats` times without a break (run/run.h): the same count for all arms. */
#include "advisor/experiment/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- one cell */

static void show_cell(struct experiment *x, const struct cell_place *p)
{
    struct experiment_state *s = state_edit(x);
    s->running_arm = p->arm;
    s->block = p->block;
    s->slot = p->slot;
    s->cell_phase[0] = 0;
    s->cell_done = s->cell_of = 0;
    s->live_tok_s = NAN;
    state_done(x);
}

/* Measures a cell and stores it. FLOW_DISCARDED when the machine was disturbed; free(c->itl) in any case. */
static enum flow cell_do(struct experiment *x, const struct cell_place *p, struct measured_cell *c)
{
    show_cell(x, p);
    char workload[576];
    workload_line(&x->state.spec.workload, workload, sizeof(workload));
    const bool warmup = p->phase == CELL_WARMUP;
    json_t *echo = cell_echo(&x->state, warmup ? arm_description(x->process[p->process]) : NULL);
    const struct run_cell what = { .arm = x->process[p->process],
                                   .workload = workload,
                                   .repeats = x->state.cell_repeats,
                                   .seed = x->state.spec.seed,
                                   .event = experiment_event,
                                   .ctx = x,
                                   .contamination = warmup ? CONTAMINATION_IGNORED : CONTAMINATION_DISCARDS,
                                   .control_frequency = x->state.control_frequency,
                                   .sample_conditions = p->last,
                                   .place = { .arm = p->arm,
                                              .block = p->block,
                                              .slot = p->slot,
                                              .phase = CELL_PHASES[p->phase],
                                              .config = x->state.arm[p->arm].line,
                                              .echo = echo } };
    const enum err_code rc = run_cell(&x->run, &what, c, &x->why);
    json_decref(echo);
    if (rc) return rc == ERR_CANCELLED ? FLOW_STOPPED : FLOW_BROKEN;
    if (x->sampler) {
        x->overhead_sum += sampler_cost_ratio(x->sampler) * c->seconds;
        x->overhead_s += c->seconds;
    }
    x->ledger.cell_seconds += c->seconds;
    x->ledger.cells++;
    if (c->failure.code) return arm_gave_up(x, p->arm, &c->failure);
    if (c->discarded) return FLOW_DISCARDED;

    if (!*x->ledger.work_hash) {
        snprintf(x->ledger.work_hash, sizeof(x->ledger.work_hash), "%s", c->work_hash);
    } else if (*c->work_hash && strcmp(c->work_hash, x->ledger.work_hash)) {
        struct experiment_state *s = state_edit(x);
        snprintf(s->reason, sizeof(s->reason),
                 "the arms do not do the same work: arm %c was asked work %s, the first cell %s "
                 "(different vocabularies give different prompts)",
                 'A' + p->arm, c->work_hash, x->ledger.work_hash);
        state_done(x);
        return FLOW_INVALID;
    }
    return FLOW_ON;
}

enum flow cell_warm_up(struct experiment *x, int arm, double *seconds, double *value)
{
    enum flow f = process_start(x, arm, arm);
    if (f == FLOW_ARM) return arm_gave_up(x, arm, &x->why);
    if (f) return f;
    struct measured_cell c = { 0 };
    f = cell_do(x, &(struct cell_place){ .arm = arm, .process = arm, .block = -1, .phase = CELL_WARMUP }, &c);
    if (f == FLOW_ON || f == FLOW_INVALID) { /* measured, whether comparable or not */
        *seconds = x->cell_s[arm] = c.seconds;
        *value = c.value[x->state.spec.metric - METRICS];
        ledger_keep(&x->ledger, arm, CELL_WARMUP, c.value, c.itl, c.n_itl);
        struct experiment_state *s = state_edit(x);
        ledger_summarize(&x->ledger, s);
        state_done(x);
    }
    cell_done(&c);
    return f;
}

/* ---------------------------------------------------------------- one block */

/* False when the compared metric has no value in one of its cells. */
static bool block_keep(struct experiment *x, const struct block_values *b)
{
    struct experiment_state *s = state_edit(x);
    const bool kept = ledger_block(&x->ledger, s, b);
    if (kept && b->phase == CELL_CONTROL) judge_control(s);
    if (kept && b->phase != CELL_CONTROL) judge_numbers(s);
    if (!kept) snprintf(s->reason, sizeof(s->reason), "a cell gave no value of %s", s->spec.metric->name);
    ledger_summarize(&x->ledger, s);
    state_done(x);
    return kept;
}

static enum flow block_discard(struct experiment *x, enum cell_phase phase, int block, const char *reason)
{
    if (db_block_discard(x->db, x->state.run_id, block, CELL_PHASES[phase], reason, &x->why))
        return FLOW_BROKEN;
    struct experiment_state *s = state_edit(x);
    if (phase == CELL_CONTROL)
        s->control_discarded++;
    else
        s->discarded++;
    state_done(x);
    experiment_tell(x, "discard", "%s %d discarded: %s", phase == CELL_CONTROL ? "control block" : "block",
                    block + 1, reason);
    return FLOW_DISCARDED;
}

enum flow block_run(struct experiment *x, enum cell_phase phase)
{
    const int block = x->ledger.next_block[phase]++;
    x->at = (struct cell_place){ .block = block, .phase = phase };
    struct block_values b = { .phase = phase };
    struct measured_cell cell[BLOCK_CELLS] = { 0 };
    enum flow f = FLOW_ON;
    b.arms = arms_live(&x->state, phase, b.arm);
    block_order(x->state.spec.seed, phase, block, b.arms, b.place);
    if (x->fresh == FRESH_BLOCK) processes_end(x);
    for (int i = 0; i < 2 * b.arms && f == FLOW_ON; i++) {
        const int arm = b.arm[b.place[i]];
        f = experiment_rest(x);
        if (f == FLOW_PAUSED && !i) f = FLOW_ON; /* nothing of this block had run */
        if (f != FLOW_ON) break;
        /* the control compares two processes, as the blocks do */
        const int process = phase == CELL_CONTROL && x->fresh == FRESH_BLOCK ? b.place[i] : arm;
        f = process_prepare(x, process, arm);
        if (f == FLOW_ON)
            f = cell_do(x,
                        &(struct cell_place){ .arm = arm,
                                              .process = process,
                                              .block = block,
                                              .slot = i,
                                              .phase = phase,
                                              .last = i == 2 * b.arms - 1 },
                        &cell[i]);
        b.value[i] = cell[i].value;
        b.itl[i] = cell[i].itl;
        b.n_itl[i] = cell[i].n_itl;
        if (f == FLOW_DISCARDED) f = block_discard(x, phase, block, cell[i].disturbed);
    }
    if (f == FLOW_ON) {
        if (!block_keep(x, &b)) f = FLOW_INVALID;
    } else if (f != FLOW_DISCARDED && f != FLOW_BROKEN) {
        /* cut short by a stop, a pause or a failed arm: no contamination, but no comparison either */
        const char *reason = f == FLOW_PAUSED ? BLOCK_PAUSED : BLOCK_INTERRUPTED;
        if (db_block_discard(x->db, x->state.run_id, block, CELL_PHASES[phase], reason, &x->why))
            f = FLOW_BROKEN;
        else if (f == FLOW_PAUSED)
            f = FLOW_ON; /* the next one takes its place */
    }
    for (int i = 0; i < BLOCK_CELLS; i++) cell_done(&cell[i]);
    x->at.block = -1;
    return f;
}
