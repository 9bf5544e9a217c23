/* advisor/experiment_cell.c - one timed cell on one arm, and the block of them that is the unit of
 * comparison.
 *
 * A cell runs the workload `cell_repeats` times without a break: short ones (a tiny model) would otherwise
 * end between two ticks of the sensors and be mostly clock noise. The count is the same for both arms, its
 * tokens and seconds are summed, and the repeats are not replicates. */
#include "advisor/experiment_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum merge { SUM, LARGEST, AVERAGE };
static const struct {
    const char *key; /* in the worker's answer */
    enum merge merge;
} FIELDS[FIELD_COUNT] = {
    [FIELD_PREFILL_S] = { "prefill_s", SUM },
    [FIELD_DECODE_S] = { "decode_s", SUM },
    [FIELD_TTFT_S] = { "ttft_s", AVERAGE },
    [FIELD_PROMPT_TOKENS] = { "prompt_tokens", SUM },
    [FIELD_GEN_TOKENS] = { "gen_tokens", SUM },
    [FIELD_CPU_S] = { "cpu_s", SUM },
    [FIELD_PEAK_BYTES] = { "peak_rss_bytes", LARGEST },
    [FIELD_RSS_BYTES] = { "rss_bytes", LARGEST },
    [FIELD_MAJOR_FAULTS] = { "major_faults", SUM },
    [FIELD_MINOR_FAULTS] = { "minor_faults", SUM },
    [FIELD_VOLUNTARY] = { "voluntary_switches", SUM },
    [FIELD_INVOLUNTARY] = { "involuntary_switches", SUM },
    [FIELD_PERPLEXITY] = { "perplexity", AVERAGE },
    [FIELD_NLL] = { "nll", AVERAGE },
    [FIELD_NLL_SE] = { "nll_se", AVERAGE },
    [FIELD_SCORED] = { "scored_tokens", LARGEST },
    [FIELD_TRAIN_S] = { "train_s", SUM },
    [FIELD_TRAIN_TOKENS] = { "train_tokens", SUM },
    [FIELD_TRAIN_LOSS] = { "train_loss", AVERAGE },
};

/* ---------------------------------------------------------------- one cell */

static bool cell_add_itl(struct cell *c, const json_t *list)
{
    const size_t n = json_array_size(list);
    if (!n) return true;
    float *grown = realloc(c->itl, ((size_t)c->n_itl + n) * sizeof(*grown));
    if (!grown) return false;
    c->itl = grown;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_number(v)) c->itl[c->n_itl++] = (float)json_number_value(v);
    }
    return true;
}

/* Fold one answer into the cell; `done` answers are in it already. */
static bool cell_add(struct cell *c, const json_t *answer, int done)
{
    for (int f = 0; f < FIELD_COUNT; f++) {
        const double v = json_get_num(answer, FIELDS[f].key, NAN);
        double *to = &c->field[f];
        if (!done)
            *to = v;
        else if (FIELDS[f].merge == SUM)
            *to += v; /* unknown once is unknown: NAN stays */
        else if (FIELDS[f].merge == LARGEST)
            *to = v > *to ? v : *to;
        else
            *to += (v - *to) / (done + 1);
    }
    const char *work = json_get_str(answer, "work_hash", "");
    if (!done) {
        snprintf(c->work_hash, sizeof(c->work_hash), "%s", work);
        snprintf(c->output_hash, sizeof(c->output_hash), "%s", json_get_str(answer, "output_hash", ""));
    }
    return cell_add_itl(c, json_object_get(answer, "itl_s"));
}

static double quotient(double a, double b)
{
    return a > 0 && b > 0 ? a / b : NAN;
}

static double sensor_mean(const struct sample *s, int n, int metric)
{
    double sum = 0;
    int k = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(s[i].value[metric])) {
            sum += s[i].value[metric];
            k++;
        }
    return k ? sum / k : NAN;
}

static void cell_values(struct cell *c, const struct sample *samples, int n)
{
    for (int i = 0; i < METRIC_COUNT; i++)
        c->value[i] = i < METRIC_SENSOR_COUNT ? sensor_mean(samples, n, i) : NAN;
    c->value[METRIC_PREFILL_RATE] = quotient(c->field[FIELD_PROMPT_TOKENS], c->field[FIELD_PREFILL_S]);
    c->value[METRIC_DECODE_RATE] = quotient(c->field[FIELD_GEN_TOKENS], c->field[FIELD_DECODE_S]);
    c->value[METRIC_TTFT] = c->field[FIELD_TTFT_S];
    c->value[METRIC_PEAK_MEMORY] = c->field[FIELD_PEAK_BYTES];
    c->value[METRIC_PERPLEXITY] = c->field[FIELD_PERPLEXITY];
    c->value[METRIC_TRAIN_RATE] = quotient(c->field[FIELD_TRAIN_TOKENS], c->field[FIELD_TRAIN_S]);
    c->value[METRIC_TRAIN_LOSS] = c->field[FIELD_TRAIN_LOSS];
    c->value[METRIC_MEMORY_AFTER] = c->field[FIELD_RSS_BYTES];
    c->value[METRIC_ENERGY] = c->value[METRIC_CPU_POWER] * c->seconds;
    c->value[METRIC_ITL_P50] = stats_latency_quantile(c->itl, c->n_itl, 0.50);
    c->value[METRIC_ITL_P95] = stats_latency_quantile(c->itl, c->n_itl, 0.95);
    c->value[METRIC_ITL_P99] = stats_latency_quantile(c->itl, c->n_itl, 0.99);
}

/* The window's samples as rows, evenly thinned to WINDOW_STORED / METRIC_SENSOR_COUNT a metric. Returns the
 * count. */
static int thin_samples(const struct experiment *x, int n, int64_t t0_ns, struct sample_row *out)
{
    const int most = WINDOW_STORED / METRIC_SENSOR_COUNT;
    int rows = 0;
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) {
        int have = 0, seen = 0;
        for (int i = 0; i < n; i++) have += !isnan(x->window[i].value[m]);
        const int stride = (have + most - 1) / MAX(most, 1);
        for (int i = 0; i < n; i++) {
            if (isnan(x->window[i].value[m])) continue;
            if (seen++ % MAX(stride, 1)) continue;
            out[rows++] = (struct sample_row){ x->window[i].t_ns - t0_ns, METRICS[m].name,
                                               x->window[i].value[m] };
        }
    }
    return rows;
}

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

/* The work itself: fills fields, latencies, seconds. */
static enum err_code run_repeats(struct experiment *x, const struct cell_place *p, struct cell *c,
                                 struct err *why)
{
    char workload[576];
    workload_line(&x->state.spec.workload, workload, sizeof(workload));
    for (int i = 0; i < MAX(1, x->state.cell_repeats); i++) {
        json_t *answer = NULL;
        enum err_code rc = arm_cell(x->process[p->process], workload, x->state.spec.seed, &answer,
                                    experiment_event, x, why);
        if (rc) return rc;
        const bool ok = cell_add(c, answer, i);
        json_decref(answer);
        if (!ok) return err_set(why, ERR_CANCELLED, "no memory for the latencies of a cell");
    }
    return ERR_OK;
}

/* Run, observe, store. FLOW_DISCARDED when the rules say so; *c is the caller's (free c->itl). */
static enum flow cell_do(struct experiment *x, const struct cell_place *p, struct cell *c)
{
    show_cell(x, p);
    if (x->sampler) sampler_watch_process(x->sampler, arm_pid(x->process[p->process]));
    for (int f = 0; f < FIELD_COUNT; f++) c->field[f] = NAN;
    c->started_ms = clock_unix_ms();
    struct err why = { 0 };
    const int64_t t0 = clock_ns();
    enum err_code rc = run_repeats(x, p, c, &why);
    const int64_t t1 = clock_ns();
    c->seconds = (double)(t1 - t0) * 1e-9;
    const int n = x->sampler ? sampler_window(x->sampler, t0, t1, x->window, WINDOW_SAMPLES) : 0;
    cell_values(c, x->window, n);
    if (rc == ERR_CANCELLED) return FLOW_STOPPED;

    if (!rc && p->phase != CELL_WARMUP) {
        json_t *o = json_object();
        json_put_num(o, "major_faults", c->field[FIELD_MAJOR_FAULTS]);
        json_put_str(o, "device", x->state.arm[p->arm].device);
        contamination_reason(x->window, n, o, x->state.control_frequency, c->discard, sizeof(c->discard));
        json_decref(o);
    }
    if (x->sampler) {
        x->overhead_sum += sampler_cost_ratio(x->sampler) * c->seconds;
        x->overhead_s += c->seconds;
    }
    x->ledger.cell_seconds += c->seconds;
    x->ledger.cells++;
    const int stored = thin_samples(x, n, t0, x->stored);
    const json_t *description = p->phase == CELL_WARMUP ? arm_description(x->process[p->process]) : NULL;
    if (store_cell(x->db, &x->state, p, c, x->stored, stored, rc ? why.message : "", description, &x->why))
        return FLOW_BROKEN;
    if (rc) return arm_gave_up(x, p->arm, &why);
    if (*c->discard) return FLOW_DISCARDED;

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
    struct cell c = { 0 };
    f = cell_do(x, &(struct cell_place){ .arm = arm, .process = arm, .block = -1, .phase = CELL_WARMUP }, &c);
    if (f == FLOW_ON || f == FLOW_INVALID) { /* measured, whether comparable or not */
        *seconds = x->cell_s[arm] = c.seconds;
        *value = c.value[x->state.spec.metric - METRICS];
        ledger_keep(&x->ledger, arm, CELL_WARMUP, c.value, c.itl, c.n_itl);
        struct experiment_state *s = state_edit(x);
        ledger_summarize(&x->ledger, s);
        state_done(x);
    }
    free(c.itl);
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
    struct block_values b = { .phase = phase };
    struct cell cell[BLOCK_CELLS] = { 0 };
    enum flow f = FLOW_ON;
    b.arms = arms_live(&x->state, phase, b.arm);
    block_order(x->state.spec.seed, phase, block, b.arms, b.place);
    if (x->fresh == FRESH_BLOCK) processes_end(x);
    for (int i = 0; i < 2 * b.arms && f == FLOW_ON; i++) {
        const int arm = b.arm[b.place[i]];
        /* the control compares two processes, as the blocks do */
        const int process = phase == CELL_CONTROL && x->fresh == FRESH_BLOCK ? b.place[i] : arm;
        f = process_prepare(x, process, arm);
        if (f == FLOW_ON) f = cell_do(x, &(struct cell_place){ arm, process, block, i, phase }, &cell[i]);
        b.value[i] = cell[i].value;
        b.itl[i] = cell[i].itl;
        b.n_itl[i] = cell[i].n_itl;
        if (f == FLOW_DISCARDED) f = block_discard(x, phase, block, cell[i].discard);
    }
    if (f == FLOW_ON) {
        if (!block_keep(x, &b)) f = FLOW_INVALID;
    } else if (f != FLOW_DISCARDED && f != FLOW_BROKEN) {
        /* cut short by a stop or a failed arm: no contamination, but no comparison either */
        if (db_block_discard(x->db, x->state.run_id, block, CELL_PHASES[phase], "interrupted", &x->why))
            f = FLOW_BROKEN;
    }
    for (int i = 0; i < BLOCK_CELLS; i++) free(cell[i].itl);
    return f;
}
