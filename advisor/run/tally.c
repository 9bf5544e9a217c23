/* advisor/run/tally.c - totals over the repetitions of one config on one workload (run.h). */
#include "advisor/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/stats/stats.h"
#include "base/base.h"

/* A cell without prompt or without generation has no tokens of that kind. */
static double tokens_of(double field)
{
    return field > 0 ? field : 0;
}

static void totals_add(struct tally_totals *s, const struct measured_cell *c)
{
    if (s->n < TALLY_RATES) {
        s->prefill[s->n] = c->value[METRIC_PREFILL_RATE];
        s->decode[s->n] = c->value[METRIC_DECODE_RATE];
    }
    s->n++;
    s->prompt_tokens += tokens_of(c->field[FIELD_PROMPT_TOKENS]);
    s->prefill_s += c->field[FIELD_PREFILL_S];
    s->gen_tokens += tokens_of(c->field[FIELD_GEN_TOKENS]);
    s->decode_s += c->field[FIELD_DECODE_S];
    s->decode_experts += c->field[FIELD_DECODE_EXPERTS];
    s->ttft_s += c->value[METRIC_TTFT];
    s->server_prefill_s += c->field[FIELD_SERVER_PREFILL_S];
    s->server_decode_s += c->field[FIELD_SERVER_DECODE_S];
    s->chunk_gap_s += c->field[FIELD_CHUNK_GAP_S];
    for (int m = METRIC_LOAD_FIRST; m <= METRIC_LOAD_LAST; m++) s->load[m - METRIC_LOAD_FIRST] += c->value[m];
    s->ttft_half_s += c->load.ttft_half_s;
    s->tpot_half_s += c->load.tpot_half_s;
    s->goodput_half += c->load.goodput_half;
    s->warmup += MAX(c->load.warmup, 0);
    s->steady += c->load.steady == STEADY_REACHED;
    if (*c->load.unsteady) snprintf(s->unsteady, sizeof s->unsteady, "%s", c->load.unsteady);
    if (*c->load.failed) snprintf(s->failed, sizeof s->failed, "%s", c->load.failed);
    s->energy_j += c->value[METRIC_ENERGY];
    s->energy_half_j += c->value[METRIC_ENERGY_HALF];
    s->co2_g += c->value[METRIC_CO2];
    s->peak_bytes = fmax(s->peak_bytes, c->value[METRIC_PEAK_MEMORY]); /* fmax ignores one NAN */
}

enum err_code tally_add(struct cell_tally *t, const struct measured_cell *c, struct err *why)
{
    totals_add(&t->all, c);
    if (!*c->disturbed) totals_add(&t->undisturbed, c);
    if (!c->n_itl) return ERR_OK;
    if (!array_room(&t->itl, &t->room_itl, (int64_t)t->n_itl + c->n_itl, sizeof *t->itl))
        return err_set(why, ERR_NOMEM, "no memory for %d latencies", c->n_itl);
    memcpy(t->itl + t->n_itl, c->itl, (size_t)c->n_itl * sizeof *t->itl);
    t->n_itl += c->n_itl;
    return ERR_OK;
}

void tally_free(struct cell_tally *t)
{
    free(t->itl);
    *t = (struct cell_tally){ 0 };
}

int tally_rates(const struct tally_totals *s)
{
    return MIN(s->n, (int)TALLY_RATES);
}

double tally_prefill_rate(const struct tally_totals *s)
{
    return s->prompt_tokens > 0 ? s->prompt_tokens / s->prefill_s : (double)NAN;
}

double tally_decode_rate(const struct tally_totals *s)
{
    return s->gen_tokens > 0 ? s->gen_tokens / s->decode_s : (double)NAN;
}

void tally_values(struct cell_tally *t, double value[METRIC_COUNT])
{
    const struct tally_totals *s = &t->all;
    for (int m = 0; m < METRIC_COUNT; m++)
        value[m] = METRICS[m].combine == COMBINE_POOLED_QUANTILE
                       ? stats_latency_quantile(t->itl, t->n_itl, METRICS[m].quantile)
                       : (double)NAN;
    value[METRIC_PREFILL_RATE] = tally_prefill_rate(s);
    value[METRIC_DECODE_RATE] = tally_decode_rate(s);
    value[METRIC_TTFT] = s->ttft_s / s->n;
    value[METRIC_SERVER_PREFILL_RATE] = s->prompt_tokens / s->server_prefill_s;
    value[METRIC_SERVER_DECODE_RATE] = s->gen_tokens / s->server_decode_s;
    value[METRIC_CHUNK_GAP] = s->chunk_gap_s / s->n;
    value[METRIC_ENERGY] = s->energy_j / s->n;
    value[METRIC_ENERGY_HALF] = s->energy_half_j / s->n;
    value[METRIC_CO2] = s->co2_g / s->n;
    for (int m = METRIC_LOAD_FIRST; m <= METRIC_LOAD_LAST; m++)
        value[m] = s->load[m - METRIC_LOAD_FIRST] / s->n;
    if (s->peak_bytes > 0) value[METRIC_PEAK_MEMORY] = s->peak_bytes;
}

double tally_row_cost(const struct tally_totals *t, const struct tally_totals *one, int sequences, double *sd)
{
    double cost[TALLY_RATES];
    int n = 0;
    for (int i = 0; i < MIN(tally_rates(t), tally_rates(one)); i++) {
        const double c = sequences * one->decode[i] / t->decode[i];
        if (isfinite(c)) cost[n++] = c;
    }
    stats_sort(cost, n);
    *sd = stats_sd(cost, n);
    return n ? stats_quantile_sorted(cost, n, 0.5) : (double)NAN;
}

double rates_noise(const double *rates, int n)
{
    const double mean = stats_mean(rates, n), sd = stats_sd(rates, n);
    return n > 1 && mean > 0 && sd > 0 ? sd / mean / sqrt(n) : 0;
}
