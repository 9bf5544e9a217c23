/* advisor/experiment/cell.c - one timed cell on one arm, and the block of them that is the unit of
 * comparison.
 *
 * A cell runs the workload `cell_repeats` times without a pause (run/run.h), equally often for all arms. */
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

/* Notes of the run about its prompts, which are stored, also become events of the state. */
static void prompts_tell(struct experiment *x)
{
    const char *all = str_text(&x->run.prompt_notes);
    while (all[x->prompt_notes_told]) {
        char text[sizeof x->state.event[0].text];
        const char *line = all + x->prompt_notes_told;
        const size_t n = strcspn(line, "\n");
        snprintf(text, sizeof text, "%.*s", (int)n, line);
        x->prompt_notes_told += n + (line[n] == '\n');
        struct experiment_state *s = state_edit(x);
        state_event(s, clock_unix_ms(), RUN_PROMPT_EVENT, text);
        state_done(x);
    }
}

enum flow cell_account(struct experiment *x, int arm, struct measured_cell *c)
{
    if (x->sampler) {
        x->cost.sampler_sum += sampler_cost_ratio(x->sampler) * c->seconds;
        x->cost.seconds += c->seconds;
    }
    x->totals.cell_seconds += c->seconds;
    x->totals.cells++;
    if (c->failure.code) return arm_fail(x, arm, &c->failure);
    prompts_tell(x);
    if (json_object_get(c->answer, "ranks")) {
        arm_ranks_read(&state_edit(x)->arm[arm], json_object_get(c->answer, "ranks"));
        state_done(x);
    }
    char *first = x->totals.work_hash[work_of_arm(&x->state.spec, arm)];
    if (!*first) {
        snprintf(first, sizeof(x->totals.work_hash[0]), "%s", c->work_hash);
    } else if (*c->work_hash && strcmp(c->work_hash, first)) {
        struct experiment_state *s = state_edit(x);
        snprintf(s->reason, sizeof(s->reason),
                 "the arms do not do the same work: arm %c had work %s, the first cell of its file and "
                 "workload %s",
                 'A' + arm, c->work_hash, first);
        state_done(x);
        return FLOW_INVALID;
    }
    return FLOW_CONTINUE;
}

/* Measures a cell and stores it. cell_done(c) in any case. */
static enum flow cell_do(struct experiment *x, const struct cell_place *p, struct measured_cell *c)
{
    show_cell(x, p);
    char workload[576];
    workload_line(experiment_workload(&x->state.spec, p->arm), workload, sizeof(workload));
    const bool warmup = p->phase == CELL_WARMUP;
    json_t *echo = cell_echo(&x->state, 0, warmup ? arm_description(x->pool.process[p->process]) : NULL);
    if (x->state.spec.by_arm) json_put_str(echo, "workload", workload); /* that of the run names all arms' */
    const struct run_cell what = { .arm = x->pool.process[p->process],
                                   .workload = workload,
                                   .repeats = x->state.cell_repeats,
                                   .seed = x->state.spec.seed,
                                   .event = experiment_event,
                                   .ctx = x,
                                   .contamination = warmup ? CONTAMINATION_IGNORED : CONTAMINATION_DISCARDS,
                                   .control_frequency = x->state.control_frequency,
                                   .sample_conditions = p->last,
                                   .sequence_rates = spec_has_sequence_rates(&x->state.spec),
                                   .place = { .arm = p->arm,
                                              .block = p->block,
                                              .slot = p->slot,
                                              .phase = CELL_PHASES[p->phase],
                                              .config = x->state.arm[p->arm].line,
                                              .echo = echo } };
    const enum err_code rc = run_cell(&x->run, &what, c, &x->why);
    json_decref(echo);
    if (rc) return rc == ERR_CANCELLED ? FLOW_STOPPED : FLOW_BROKEN;
    return cell_account(x, p->arm, c);
}

enum flow cell_warm_up(struct experiment *x, int arm, double *seconds, double *value)
{
    enum flow f = process_start(x, arm, arm);
    if (f == FLOW_ARM) return arm_fail(x, arm, &x->why);
    if (f) return f;
    struct measured_cell c = { 0 };
    f = cell_do(x, &(struct cell_place){ .arm = arm, .process = arm, .block = -1, .phase = CELL_WARMUP }, &c);
    if (f == FLOW_CONTINUE || f == FLOW_INVALID) { /* it was measured, even if the arms cannot be compared */
        const double fill_s = fmax(c.field[FIELD_FILL_S], 0); /* 0 if it is unknown */
        *seconds = fmax(c.seconds - fill_s, 0);
        *value = c.value[x->state.spec.metric - METRICS];
        totals_add_cell(&x->totals, arm, CELL_WARMUP, c.value, c.itl, c.n_itl);
        struct experiment_state *s = state_edit(x);
        s->arm[arm].cell_s = *seconds;
        if (fill_s > 0) s->arm[arm].fill_s = fill_s; /* later warm-up cells find the cache filled */
        totals_summarize(&x->totals, s);
        state_done(x);
    }
    cell_done(&c);
    return f;
}

/* ---------------------------------------------------------------- one block */

/* Adds a complete block. False when one of its cells has no value of the compared metric. */
static bool block_keep(struct experiment *x, const struct block_values *b)
{
    struct experiment_state *s = state_edit(x);
    s->elapsed_s = experiment_elapsed(x);
    const bool kept = totals_add_block(&x->totals, s, b);
    totals_summarize(&x->totals, s);
    estimand_use(s, estimand_choose(s));
    totals_summarize(&x->totals, s);
    judge_control(s);
    if (kept && b->phase != CELL_CONTROL) judge_numbers(s);
    if (!kept) snprintf(s->reason, sizeof(s->reason), "a cell has no value of %s", s->spec.metric->name);
    state_done(x);
    return kept;
}

/* Records what disturbed a complete block: it counts only for the estimand "as the machine is". */
static enum err_code block_mark_disturbed(struct experiment *x, enum cell_phase phase, int block,
                                          const char *reason)
{
    if (db_block_discard(x->db, x->state.run_id, block, CELL_PHASES[phase], reason, &x->why))
        return x->why.code;
    experiment_log_event(x, EVENT_DISCARD, "%s %d was disturbed: %s",
                         phase == CELL_CONTROL ? "control block" : "block", block + 1, reason);
    return ERR_OK;
}

/* The cells of a block one after the other, two of each arm. */
static enum flow block_in_cells(struct experiment *x, struct block_values *b, int block,
                                struct measured_cell cell[BLOCK_CELLS])
{
    enum flow f = FLOW_CONTINUE;
    b->cells = 2 * b->arms;
    for (int i = 0; i < b->cells && f == FLOW_CONTINUE; i++) {
        const int arm = b->arm[b->place[i]];
        f = experiment_wait_while_paused(x);
        if (f == FLOW_PAUSED && !i) f = FLOW_CONTINUE; /* no cell of this block was interrupted */
        if (f != FLOW_CONTINUE) break;
        /* the control uses two processes, as blocks do */
        const bool two = b->phase == CELL_CONTROL && x->pool.lifetime == LIFETIME_BLOCK;
        const struct cell_place place = { .arm = arm,
                                          .process = two ? b->place[i] : arm,
                                          .block = block,
                                          .slot = i,
                                          .phase = b->phase,
                                          .last = i == b->cells - 1 };
        f = process_prepare(x, place.process, arm);
        if (f == FLOW_CONTINUE) f = cell_do(x, &place, &cell[i]);
    }
    return f;
}

/* What the measured cells of a complete block say. */
static enum flow block_finish(struct experiment *x, struct block_values *b, int block,
                              const struct measured_cell cell[BLOCK_CELLS])
{
    const char *reason = NULL;
    for (int i = 0; i < b->cells; i++) {
        b->value[i] = cell[i].value;
        b->itl[i] = cell[i].itl;
        b->n_itl[i] = cell[i].n_itl;
        b->others[i] = cell[i].others_running;
        b->turn_ratio[i] = cell[i].turn_log_ratio;
        x->totals.switch_s += cell[i].switch_s;
        x->totals.switch_tokens += cell[i].switch_tokens;
        if (cell[i].switch_tokens > 0) {
            x->totals.turn_s += cell[i].field[FIELD_DECODE_S];
            x->totals.turn_tokens += cell[i].field[FIELD_GEN_TOKENS];
        }
        if (!reason && cell[i].discarded) reason = cell[i].disturbed;
    }
    b->disturbed = x->clock.last_disturbed = reason != NULL;
    if (reason && block_mark_disturbed(x, b->phase, block, reason)) return FLOW_BROKEN;
    return block_keep(x, b) ? FLOW_CONTINUE : FLOW_INVALID;
}

enum flow block_run(struct experiment *x, enum cell_phase phase)
{
    const int block = x->totals.next_block[phase]++;
    const double begun = experiment_elapsed(x);
    x->spans.at = (struct cell_place){ .block = block, .phase = phase };
    x->changed_by_hand = false;
    struct block_values b = { .phase = phase };
    struct measured_cell cell[BLOCK_CELLS] = { 0 };
    b.arms = arms_live(&x->state, phase, b.arm);
    block_order(x->state.spec.seed, phase, block, b.arms, b.place);
    if (x->pool.lifetime == LIFETIME_BLOCK) processes_end(x);
    enum flow f = block_runs_in_turns(x, phase) ? block_in_turns(x, &b, block, cell)
                                                : block_in_cells(x, &b, block, cell);
    const bool changed = f == FLOW_CONTINUE && x->changed_by_hand;
    if (changed) f = FLOW_PAUSED;
    if (f == FLOW_CONTINUE) {
        x->totals.blocks_s += experiment_elapsed(x) - begun;
        x->totals.timed_blocks++;
        f = block_finish(x, &b, block, cell);
    } else if (f != FLOW_BROKEN) {
        /* interrupted by a stop, a pause or a failed arm: the block does not count, although nothing
         * disturbed it */
        const char *reason = changed ? BLOCK_CHANGED : f == FLOW_PAUSED ? BLOCK_PAUSED : BLOCK_INTERRUPTED;
        if (db_block_discard(x->db, x->state.run_id, block, CELL_PHASES[phase], reason, &x->why))
            f = FLOW_BROKEN;
        else if (f == FLOW_PAUSED)
            f = FLOW_CONTINUE; /* the next block replaces it */
    }
    for (int i = 0; i < BLOCK_CELLS; i++) cell_done(&cell[i]);
    x->spans.at.block = -1;
    return f;
}
