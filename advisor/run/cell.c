/* advisor/run/cell.c - one timed cell: its repeats, its values, its rows in the database (run.h). */
#include "advisor/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/cell_parts.h"
#include "advisor/stats/stats.h"

enum merge { SUM, LARGEST, AVERAGE };
static const struct {
    const char *key; /* in the worker's answer */
    enum merge merge;
    const char *stored, *unit; /* the measurement of this name; NULL: it is one of METRICS, or not stored */
} FIELDS[FIELD_COUNT] = {
    [FIELD_PREFILL_S] = { "prefill_s", SUM, "prefill_seconds", "seconds" },
    [FIELD_DECODE_S] = { "decode_s", SUM, "decode_seconds", "seconds" },
    [FIELD_TTFT_S] = { "ttft_s", AVERAGE },
    [FIELD_PROMPT_TOKENS] = { "prompt_tokens", SUM, "prompt_tokens", "tokens" },
    [FIELD_GEN_TOKENS] = { "gen_tokens", SUM, "generated_tokens", "tokens" },
    [FIELD_DECODE_EXPERTS] = { "decode_experts", AVERAGE },
    [FIELD_CPU_S] = { "cpu_s", SUM, "cpu_seconds", "seconds" },
    [FIELD_PEAK_BYTES] = { "peak_rss_bytes", LARGEST },
    [FIELD_RSS_BYTES] = { "rss_bytes", LARGEST, "rss_bytes", "bytes" },
    [FIELD_MAJOR_FAULTS] = { "major_faults", SUM, "major_faults", "" },
    [FIELD_MINOR_FAULTS] = { "minor_faults", SUM, "minor_faults", "" },
    [FIELD_VOLUNTARY] = { "voluntary_switches", SUM, "voluntary_switches", "" },
    [FIELD_INVOLUNTARY] = { "involuntary_switches", SUM, "involuntary_switches", "" },
    [FIELD_PERPLEXITY] = { "perplexity", AVERAGE },
    [FIELD_NLL] = { "nll", AVERAGE, "nll_nats", "nats" },
    [FIELD_NLL_SE] = { "nll_se", AVERAGE, "nll_se_nats", "nats" },
    [FIELD_SCORED] = { "scored_tokens", LARGEST, "scored_tokens", "tokens" },
    [FIELD_KLD_SE] = { "kld_se", AVERAGE, "kld_se_nats", "nats" },
    [FIELD_PPL_RATIO] = { "ppl_ratio", AVERAGE, "ppl_ratio", "" },
    [FIELD_TRAIN_S] = { "train_s", SUM, "train_seconds", "seconds" },
    [FIELD_TRAIN_TOKENS] = { "train_tokens", SUM, "train_tokens", "tokens" },
    [FIELD_TRAIN_LOSS] = { "train_loss", AVERAGE },
    [FIELD_SERVER_PREFILL_S] = { "server_prefill_s", SUM, "server_prefill_seconds", "seconds" },
    [FIELD_SERVER_DECODE_S] = { "server_decode_s", SUM, "server_decode_seconds", "seconds" },
    [FIELD_CHUNK_GAP_S] = { "chunk_gap_s", AVERAGE },
    [FIELD_FILL_S] = { "fill_s", SUM, CELL_FILL, "seconds" },
    [FIELD_FILLED_TOKENS] = { "filled_tokens", SUM, "filled_tokens", "tokens" },
    [FIELD_CACHED_TOKENS] = { "cached_tokens", SUM, "cached_tokens", "tokens" },
};

/* ---------------------------------------------------------------- what answers and sensors say */

static bool cell_add_itl(struct measured_cell *c, const json_t *list)
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

static bool cell_add_turns(struct measured_cell *c, const json_t *answer)
{
    const json_t *list = json_object_get(answer, "turn_s");
    const size_t n = json_array_size(list), prefill = (size_t)json_get_int(answer, "prefill_turns", 0);
    if (!n) return true;
    struct cell_turn *grown = realloc(c->turn, ((size_t)c->n_turns + n) * sizeof(*grown));
    if (!grown) return false;
    c->turn = grown;
    for (size_t i = 0; i < n; i++)
        c->turn[c->n_turns++] = (struct cell_turn){
            .seconds = (float)json_number_value(json_array_get(list, i)), .prefill = i < prefill
        };
    return true;
}

/* A load's figures from its requests. Loads are not repeated within a cell. */
static enum err_code cell_add_load(struct measured_cell *c, const json_t *answer, struct err *why)
{
    struct workload w;
    if (!json_object_get(answer, "requests")) return ERR_OK;
    free(c->itl);
    c->itl = NULL;
    enum err_code rc = workload_parse(&w, json_get_str(answer, "workload", ""), why);
    if (!rc) rc = load_figures(&c->load, c->value, &c->itl, &c->n_itl, answer, &w.load, why);
    free(c->load_request);
    if (!rc) rc = load_request_rows(&c->load_request, &c->requests.n, answer, why);
    c->requests.sequences = 1;
    snprintf(c->requests.model, sizeof(c->requests.model), "%s", json_get_str(answer, "model", ""));
    snprintf(c->requests.workload, sizeof(c->requests.workload), "%s", json_get_str(answer, "workload", ""));
    return rc;
}

/* Combines one answer with the cell, which already contains `done` answers. False without memory. */
static bool cell_add(struct measured_cell *c, const json_t *answer, int done)
{
    for (int f = 0; f < FIELD_COUNT; f++) {
        const double v = json_get_num(answer, FIELDS[f].key, NAN);
        double *to = &c->field[f];
        if (!done)
            *to = v;
        else if (FIELDS[f].merge == SUM)
            *to += v; /* NAN once is NAN for the cell */
        else if (FIELDS[f].merge == LARGEST)
            *to = v > *to ? v : *to;
        else
            *to += (v - *to) / (done + 1);
    }
    if (json_get_bool(answer, "untimed_work", false)) c->untimed_work = true;
    const char *work = json_get_str(answer, "work_hash", "");
    c->requests.n += request_read(&c->requests, &c->request[c->requests.n], answer);
    if (!done) {
        snprintf(c->work_hash, sizeof(c->work_hash), "%s", work);
        snprintf(c->output_hash, sizeof(c->output_hash), "%s", json_get_str(answer, "output_hash", ""));
    }
    return cell_add_turns(c, answer) && cell_add_itl(c, json_object_get(answer, "itl_s"));
}

static double positive_quotient(double a, double b)
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

/* Computes the metrics that follow from the worker's fields and latencies. */
void cell_derive(struct measured_cell *c)
{
    c->value[METRIC_PREFILL_RATE] = positive_quotient(c->field[FIELD_PROMPT_TOKENS],
                                                      c->field[FIELD_PREFILL_S]);
    c->value[METRIC_DECODE_RATE] = positive_quotient(c->field[FIELD_GEN_TOKENS], c->field[FIELD_DECODE_S]);
    if (!c->load.requests) c->value[METRIC_TTFT] = c->field[FIELD_TTFT_S];
    c->value[METRIC_PEAK_MEMORY] = c->field[FIELD_PEAK_BYTES];
    c->value[METRIC_PERPLEXITY] = c->field[FIELD_PERPLEXITY];
    c->value[METRIC_TRAIN_RATE] = positive_quotient(c->field[FIELD_TRAIN_TOKENS], c->field[FIELD_TRAIN_S]);
    c->value[METRIC_TRAIN_LOSS] = c->field[FIELD_TRAIN_LOSS];
    c->value[METRIC_MEMORY_AFTER] = c->field[FIELD_RSS_BYTES];
    c->value[METRIC_SERVER_PREFILL_RATE] = positive_quotient(c->field[FIELD_PROMPT_TOKENS],
                                                             c->field[FIELD_SERVER_PREFILL_S]);
    c->value[METRIC_SERVER_DECODE_RATE] = positive_quotient(c->field[FIELD_GEN_TOKENS],
                                                            c->field[FIELD_SERVER_DECODE_S]);
    c->value[METRIC_CHUNK_GAP] = c->field[FIELD_CHUNK_GAP_S];
    for (int m = METRIC_SENSOR_COUNT; m < METRIC_COUNT; m++)
        if (METRICS[m].combine == COMBINE_POOLED_QUANTILE)
            c->value[m] = stats_latency_quantile(c->itl, c->n_itl, METRICS[m].quantile);
}

void cell_derive_sequences(struct measured_cell *c)
{
    const double tokens = fmax(c->field[FIELD_PROMPT_TOKENS], 0) + fmax(c->field[FIELD_GEN_TOKENS], 0),
                 seconds = fmax(c->field[FIELD_PREFILL_S], 0) + fmax(c->field[FIELD_DECODE_S], 0);
    if (c->load.requests || !c->requests.n) return; /* requests that come and go have rates of their own */
    c->value[METRIC_TOTAL_RATE] = positive_quotient(tokens, seconds);
    c->value[METRIC_SEQUENCE_RATE] = c->value[METRIC_TOTAL_RATE] / c->requests.sequences;
}

int cell_thin(const struct sample *window, int n, int64_t t0_ns, struct sample_row *out)
{
    const int most = WINDOW_STORED / METRIC_SENSOR_COUNT;
    int rows = 0;
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) {
        int have = 0, seen = 0;
        for (int i = 0; i < n; i++) have += !isnan(window[i].value[m]);
        const int stride = (have + most - 1) / MAX(most, 1);
        for (int i = 0; i < n; i++) {
            if (isnan(window[i].value[m])) continue;
            if (seen++ % MAX(stride, 1)) continue;
            out[rows++] = (struct sample_row){ window[i].t_ns - t0_ns, METRICS[m].name, window[i].value[m] };
        }
    }
    return rows;
}

/* ---------------------------------------------------------------- running it */

int cell_repeats(double seconds, double least_s)
{
    return (int)fmin(fmax(ceil(least_s / seconds), 1), CELL_REPEATS_MAX);
}

enum err_code cell_run_repeats(struct measured_cell *c, const struct cell_ask *ask, struct err *why)
{
    for (int i = 0; i < MIN(MAX(1, ask->repeats), CELL_REPEATS_MAX); i++) {
        json_t *answer = NULL;
        const struct turns_spec what = { ask->workload, ask->seed, ask->turn };
        enum err_code rc = arm_cell_in_turns(ask->arm, &what, &answer, ask->event, ask->ctx, why);
        if (rc) return rc;
        const bool ok = cell_add(c, answer, i);
        c->switch_s += json_get_num(answer, "skipped_s", 0);
        c->switch_tokens += json_get_num(answer, "skipped_tokens", 0);
        other_machines_add(&c->others, json_object_get(answer, "ranks"));
        c->n_spans = spans_read(c->spans, c->n_spans, COUNT_OF(c->spans), answer, c->begun);
        if (ok) rc = cell_add_load(c, answer, why);
        json_object_del(answer, "itl_s");
        json_object_del(answer, "turn_s");
        json_decref(c->answer);
        c->answer = answer;
        if (!ok) return err_set(why, ERR_NOMEM, "no memory for the latencies of a cell");
        if (rc) return rc;
    }
    return ERR_OK;
}

void cell_init(struct measured_cell *c)
{
    *c = (struct measured_cell){ .n_spans = 1, .others_running = NAN, .turn_log_ratio = NAN };
    for (int f = 0; f < FIELD_COUNT; f++) c->field[f] = NAN;
    for (int m = 0; m < METRIC_COUNT; m++) c->value[m] = NAN;
}

void cell_done(struct measured_cell *c)
{
    free(c->itl);
    free(c->load_request);
    free(c->turn);
    json_decref(c->answer);
    *c = (struct measured_cell){ 0 };
}

void cell_clock_start(struct measured_cell *c)
{
    const struct moment now = moment_now();
    c->started_ms = now.unix_ns / 1000000;
    c->begun = now;
    c->begun_ns = now.clock_ns;
}

void cell_clock_stop(struct measured_cell *c, struct sampler_thread *sampler, struct sample *window, int *n)
{
    c->spans[0] = span_until_now("cell", c->begun, NULL);
    const int64_t took_ns = c->spans[0].ended_ns - c->spans[0].begun_ns;
    c->seconds = (double)took_ns * 1e-9;
    *n = sampler ? sampler_window(sampler, c->begun_ns, c->begun_ns + took_ns, window, WINDOW_SAMPLES) : 0;
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) c->value[m] = sensor_mean(window, *n, m);
}

enum err_code cell_take(struct measured_cell *c, const struct cell_ask *ask, struct sample *window, int *n,
                        struct err *why)
{
    cell_init(c);
    arm_watch(ask->arm, ask->sampler);
    cell_clock_start(c);
    const enum err_code rc = cell_run_repeats(c, ask, why);
    cell_clock_stop(c, ask->sampler, window, n);
    if (ask->sampler) sampler_select_gpu(ask->sampler, NULL);
    cell_derive(c);
    /* sensors know nothing of phases: with work that is not timed, the energy of the tokens is unknown */
    if (!c->untimed_work) arm_energy(ask->arm, window, *n, c->begun_ns, c->seconds, &c->others, c->value);
    return rc;
}

/* ---------------------------------------------------------------- into the database */

enum { LOAD_MEASUREMENTS = 8 };
/* What a load's cell keeps beside its metrics; steady: 1 reached, 0 not, absent: too few requests to tell. */
static int load_measurements(struct measurement *m, const struct load_summary *l)
{
    const struct measurement all[LOAD_MEASUREMENTS] = {
        { "requests", "", l->requests },
        { "good_requests", "", l->good },
        { "cut_requests", "", l->cut },
        { "warmup_requests", "", l->warmup >= 0 ? l->warmup : (double)NAN },
        { "steady", "", l->steady == STEADY_UNKNOWN ? (double)NAN : l->steady == STEADY_REACHED },
        { "ttft_half_seconds", "seconds", l->ttft_half_s },
        { "tpot_half_seconds", "seconds", l->tpot_half_s },
        { "goodput_half_ratio", "ratio", l->goodput_half },
    };
    int n = 0;
    for (int i = 0; i < LOAD_MEASUREMENTS; i++)
        if (!isnan(all[i].value)) m[n++] = all[i];
    return n;
}

/* Copies the spans of a cell and adds run, arm, block and phase of its row. */
static void spans_place(struct span_row *spans, const struct cell_row *row, const struct measured_cell *c)
{
    for (int i = 0; i < c->n_spans; i++) {
        spans[i] = c->spans[i];
        spans[i].run_id = row->run_id;
        spans[i].arm = row->arm;
        spans[i].block = row->block;
        snprintf(spans[i].phase, sizeof(spans[i].phase), "%s", row->phase);
    }
}

enum err_code cell_insert(struct db *d, struct cell_row *row, const struct measured_cell *c,
                          const struct sample_row *samples, int n_samples, struct err *why)
{
    struct measurement m[METRIC_COUNT + FIELD_COUNT + 7 + LOAD_MEASUREMENTS];
    int n = 0;
    for (int i = 0; i < METRIC_COUNT; i++)
        if (!isnan(c->value[i]))
            m[n++] = (struct measurement){ METRICS[i].name, METRICS[i].unit, c->value[i] };
    for (int i = 0; i < FIELD_COUNT; i++)
        if (FIELDS[i].stored && !isnan(c->field[i]))
            m[n++] = (struct measurement){ FIELDS[i].stored, FIELDS[i].unit, c->field[i] };
    if (c->load.requests) n += load_measurements(m + n, &c->load);
    if (c->beside.memory_ratio > 0)
        m[n++] = (struct measurement){ CELL_MEMORY_RATIO, "ratio", c->beside.memory_ratio };
    if (c->beside.core_ratio > 0)
        m[n++] = (struct measurement){ CELL_CORE_RATIO, "ratio", c->beside.core_ratio };
    if (c->usual_rate > 0) {
        m[n++] = (struct measurement){ CELL_USUAL_RATE, "tokens/s", c->usual_rate };
        m[n++] = (struct measurement){ CELL_USUAL_SD, "ratio", c->usual_sd };
    }
    if (!isnan(c->others_running)) m[n++] = (struct measurement){ CELL_OTHERS, "tasks", c->others_running };
    if (!isnan(c->turn_log_ratio)) m[n++] = (struct measurement){ CELL_TURN_RATIO, "", c->turn_log_ratio };
    if (*c->disturbed) m[n++] = (struct measurement){ CELL_DISTURBED, "", 1 };
    row->discarded = c->discarded;
    row->started_ms = c->started_ms;
    row->seconds = c->seconds;
    snprintf(row->discard_reason, sizeof(row->discard_reason), "%s", c->discarded ? c->disturbed : "");
    snprintf(row->work_hash, sizeof(row->work_hash), "%s", c->work_hash);
    snprintf(row->output_hash, sizeof(row->output_hash), "%s", c->output_hash);
    struct request_rows requests = c->requests;
    requests.figures = c->load_request ? c->load_request
                                       : (struct request_figures *)c->request; /* read only */
    row->requests = &requests;
    struct span_row spans[COUNT_OF(c->spans)];
    spans_place(spans, row, c);
    row->spans = spans;
    row->n_spans = c->n_spans;
    const enum err_code rc = db_cell_insert(d, row, m, n, samples, n_samples, c->itl, c->n_itl, why);
    row->requests = NULL;
    row->spans = NULL;
    row->n_spans = 0;
    return rc;
}
