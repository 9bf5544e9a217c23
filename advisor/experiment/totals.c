/* advisor/experiment/totals.c - sums over the cells of complete blocks, for each estimand: what the arms'
 * figures, the comparisons and the description of the machine's load are made of. */
#include "advisor/stats/stats.h"
#include "advisor/experiment/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

void totals_free(struct run_totals *l)
{
    for (int e = 0; e < ESTIMANDS_COUNT; e++)
        for (int a = 0; a < EXPERIMENT_ARMS; a++)
            for (int p = 0; p < CELL_PHASES_COUNT; p++) free(l->arm[e][a][p].itl);
}

/* ---------------------------------------------------------------- cells */

static void keep_itl(struct phase_totals *t, const float *itl, int n)
{
    /* without memory the percentile is over fewer tokens; itl_samples says how many */
    if (!array_room(&t->itl, &t->cap_itl, (int64_t)t->n_itl + n, sizeof *t->itl)) return;
    if (n) memcpy(t->itl + t->n_itl, itl, (size_t)n * sizeof(*itl));
    t->n_itl += n;
}

/* Adds a cell to the sums of its arm and phase. Means are geometric, so metrics that were not measured (NAN
 * or 0) are skipped. itl: [n_itl] seconds between tokens; NULL: the cell generated none. */
static void phase_add_cell(struct phase_totals *t, const double value[METRIC_COUNT], const float *itl,
                           int n_itl)
{
    if (!t->cells) t->peak_bytes = NAN;
    t->cells++;
    for (int i = 0; i < CELL_METRICS; i++) {
        const double v = value[METRIC_SENSOR_COUNT + i];
        if (!isnan(v)) {
            t->sum[i] += v;
            t->known[i]++;
        }
        if (!(v > 0)) continue;
        t->log_sum[i] += log(v);
        t->n[i]++;
    }
    t->peak_bytes = fmax(t->peak_bytes, value[METRIC_PEAK_MEMORY]); /* fmax ignores one NAN */
    if (itl) keep_itl(t, itl, n_itl);
}

void totals_add_cell(struct run_totals *l, int arm, enum cell_phase phase, const double value[METRIC_COUNT],
                     const float *itl, int n_itl)
{
    for (int e = ESTIMAND_QUIET; e <= ESTIMAND_LOADED; e++)
        phase_add_cell(&l->arm[e][arm][phase], value, itl, n_itl);
}

/* The sensors that describe the machine's load, in the order of struct machine_load. */
static const enum metric_id LOAD_METRICS[] = { METRIC_OTHERS_BUSY, METRIC_CPU_STEAL, METRIC_PSI_CPU };

static void load_add(struct load_sum *to, const double value[METRIC_COUNT])
{
    for (size_t i = 0; i < COUNT_OF(LOAD_METRICS); i++) {
        if (isnan(value[LOAD_METRICS[i]])) continue;
        to->sum[i] += value[LOAD_METRICS[i]];
        to->n[i]++;
    }
}

static struct machine_load load_mean(const struct load_sum *l)
{
    double mean[COUNT_OF(LOAD_METRICS)];
    for (size_t i = 0; i < COUNT_OF(LOAD_METRICS); i++) mean[i] = l->n[i] ? l->sum[i] / l->n[i] : NAN;
    return (struct machine_load){ .others_busy = mean[0], .steal = mean[1], .stalled = mean[2] };
}

static void totals_add_cells(struct run_totals *l, const struct block_values *b)
{
    for (int e = ESTIMAND_QUIET; e <= ESTIMAND_LOADED; e++) {
        if (e == ESTIMAND_QUIET && b->disturbed) continue;
        for (int i = 0; i < b->cells; i++) {
            phase_add_cell(&l->arm[e][b->arm[b->place[i]]][b->phase], b->value[i], b->itl[i], b->n_itl[i]);
            load_add(&l->load[e], b->value[i]);
        }
    }
    for (int i = 0; i < b->cells && b->phase == CELL_CONTROL; i++) {
        const double f = b->value[i][METRIC_CPU_FREQUENCY];
        if (f > 0 && l->n_frequency < EXPERIMENT_BLOCKS) l->frequency[l->n_frequency++] = f;
    }
}

/* ---------------------------------------------------------------- effects */

/* Adds the block's effects on all metrics of challenger k. Unknown values are allowed here: only the compared
 * metric decides whether a block counts. */
static void keep_effects(struct effects *e, const struct block_values *b, int k)
{
    double value[BLOCK_CELLS];
    if (e->blocks == EXPERIMENT_BLOCKS) return;
    for (int m = 0; m < CELL_METRICS; m++) {
        for (int i = 0; i < b->cells; i++) value[i] = b->value[i][METRIC_SENSOR_COUNT + m];
        e->d[m][e->blocks] = block_effect(value, b->place, b->cells, k,
                                          METRICS[METRIC_SENSOR_COUNT + m].better);
    }
    e->disturbed[e->blocks++] = b->disturbed;
}

/* How many more other tasks were runnable beside place k than beside A; NAN unknown. */
static double load_difference(const struct block_values *b, int k)
{
    double sum[2] = { 0 };
    int n[2] = { 0 };
    for (int i = 0; i < b->cells; i++) {
        if (b->place[i] != k && b->place[i] != 0) continue;
        sum[b->place[i] == k] += b->others[i];
        n[b->place[i] == k]++;
    }
    return n[0] && n[1] ? sum[1] / n[1] - sum[0] / n[0] : NAN;
}

/* The effect of place k on the compared metric. In turns it comes from pairs of turns, for metrics of their
 * time; a latency percentile has no value for a turn and is compared as a whole. */
static double compared_effect(const struct experiment_state *s, const struct block_values *b, int k)
{
    static const enum metric_id BY_TURNS[] = { METRIC_PREFILL_RATE, METRIC_DECODE_RATE, METRIC_TTFT };
    double value[BLOCK_CELLS], ratio = NAN;
    bool by_turns = false;
    for (size_t i = 0; i < COUNT_OF(BY_TURNS); i++)
        by_turns = by_turns || s->spec.metric == &METRICS[BY_TURNS[i]];
    for (int i = 0; i < b->cells; i++) {
        value[i] = b->value[i][s->spec.metric - METRICS];
        if (b->place[i] == k && by_turns) ratio = b->turn_ratio[i];
    }
    return isnan(ratio) ? block_effect(value, b->place, b->cells, k, s->spec.metric->better) : ratio;
}

bool totals_add_block(struct run_totals *l, struct experiment_state *s, const struct block_values *b)
{
    if (!s->spec.metric) return false;
    double d[EXPERIMENT_ARMS];
    for (int k = 1; k < b->arms; k++) {
        d[k] = compared_effect(s, b, k);
        if (isnan(d[k])) return false;
    }
    s->confirming = s->confirming || b->phase == CELL_CONFIRM;
    s->disturbed += b->disturbed && b->phase != CELL_CONTROL;
    for (int k = 1; k < b->arms; k++) {
        const bool confirms = b->phase == CELL_CONFIRM;
        struct block_series *to = b->phase == CELL_CONTROL ? &s->control_all
                                  : confirms               ? &s->confirmation.all
                                                           : &s->comparison[b->arm[k]].all;
        series_add(to, d[k], load_difference(b, k), b->disturbed);
        if (b->phase != CELL_CONTROL) keep_effects(&l->effects[confirms ? 0 : b->arm[k]], b, k);
    }
    s->complete += b->phase != CELL_CONTROL;
    means_keep(l, b);
    totals_add_cells(l, b);
    estimand_use(s, s->estimand);
    return true;
}

/* ---------------------------------------------------------------- summaries */

static double geometric_mean(const struct phase_totals *t, enum metric_id id)
{
    const int i = (int)id - METRIC_SENSOR_COUNT;
    return t->n[i] ? exp(t->log_sum[i] / t->n[i]) : NAN;
}

static double arithmetic_mean(const struct phase_totals *t, enum metric_id id)
{
    const int i = (int)id - METRIC_SENSOR_COUNT;
    return t->known[i] ? t->sum[i] / t->known[i] : NAN;
}

static void summarize_arm(const struct phase_totals tiers[CELL_PHASES_COUNT], struct experiment_arm *a,
                          const struct experiment_spec *spec, const struct workload *w, int repeats)
{
    int tier = CELL_BLOCK;
    while (tier > CELL_WARMUP && !tiers[tier].cells) tier--;
    const struct phase_totals *t = &tiers[tier];
    a->cells = t->cells;
    if (!t->cells) return;
    if (spec->metric) a->rate = geometric_mean(t, (enum metric_id)(spec->metric - METRICS));
    for (int m = 0; m < CELL_METRICS; m++)
        a->mean[m].estimate = geometric_mean(t, (enum metric_id)(METRIC_SENSOR_COUNT + m));
    for (int m = METRIC_SENSOR_COUNT; m < METRIC_COUNT; m++) {
        if (METRICS[m].combine == COMBINE_GEOMETRIC_MEAN) a->value[m] = geometric_mean(t, (enum metric_id)m);
        if (METRICS[m].combine == COMBINE_MEAN) a->value[m] = arithmetic_mean(t, (enum metric_id)m);
        if (METRICS[m].combine == COMBINE_POOLED_QUANTILE) /* sorts the latencies: their order is not used */
            a->value[m] = stats_latency_quantile(t->itl, t->n_itl, METRICS[m].quantile);
    }
    const int tokens = repeats * workload_sequences(w) * (w->prompt + w->gen);
    const double share = tokens > 0 ? 1.0 / tokens : (double)NAN;
    a->joules_per_token = share * a->value[METRIC_ENERGY];
    a->joules_per_token_half = share * a->value[METRIC_ENERGY_HALF];
    a->co2_g_per_token = share * a->value[METRIC_CO2];
    a->itl_samples = t->n_itl;
    double peak = NAN; /* warm-up and control use memory, too */
    for (int i = 0; i < CELL_PHASES_COUNT; i++)
        if (tiers[i].cells) peak = fmax(peak, tiers[i].peak_bytes);
    if (peak > 0) a->value[METRIC_PEAK_MEMORY] = peak;
}

/* The intervals of every metric of one comparison; the compared one has the adjusted effects. */
static void summarize_comparison(const struct effects *e, struct experiment_state *s, struct comparison *c,
                                 int arm)
{
    for (int m = 0; m < CELL_METRICS; m++) {
        const bool compared = &METRICS[METRIC_SENSOR_COUNT + m] == s->spec.metric;
        c->by_metric[m] = compared ? evidence_interval(c, c->blocks, 0.95)
                                   : evidence_of_values(c, e, m, 0.95);
        if (!experiment_comparable(&s->spec, arm, METRIC_SENSOR_COUNT + m))
            c->by_metric[m] = (struct interval){ NAN, NAN, NAN };
    }
}

void totals_summarize(const struct run_totals *l, struct experiment_state *s)
{
    s->tokens_differ = works_differ(&s->spec, l->work_hash);
    for (int i = 0; i < s->spec.arms; i++) {
        summarize_arm(l->arm[s->estimand][i], &s->arm[i], &s->spec, experiment_workload(&s->spec, i),
                      MAX(1, s->cell_repeats));
        means_bounds(&l->means[i], s->estimand, s->arm[i].mean);
        if (i) summarize_comparison(&l->effects[i], s, &s->comparison[i], i);
    }
    if (s->confirming) summarize_comparison(&l->effects[0], s, &s->confirmation, s->headline);
    for (int e = ESTIMAND_QUIET; e <= ESTIMAND_LOADED; e++) s->load[e] = load_mean(&l->load[e]);
    s->block_s = l->timed_blocks ? l->blocks_s / l->timed_blocks : NAN;
    s->switch_cost = log(l->switch_s / l->switch_tokens) - log(l->turn_s / l->turn_tokens);
    if (!l->n_frequency) return;
    double sorted[EXPERIMENT_BLOCKS];
    memcpy(sorted, l->frequency, (size_t)l->n_frequency * sizeof(*sorted));
    stats_sort(sorted, l->n_frequency);
    s->control_frequency = stats_quantile_sorted(sorted, l->n_frequency, 0.5);
}
