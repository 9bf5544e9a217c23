/* advisor/experiment/json.c - the result as a document, schema "qdyno.ab/1" (docs/documents.md lists its
 * keys). Unknown is null. Effects are B/A of the metric itself; "better" says whether more is better. */
#include "advisor/experiment/experiment.h"
#include "advisor/experiment/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const EXPERIMENT_PHASES[] = {
    [PHASE_LOADING] = "loading", [PHASE_WARMUP] = "warmup",   [PHASE_QUALITY] = "quality",
    [PHASE_CONTROL] = "control", [PHASE_BLOCKS] = "blocks",   [PHASE_CONFIRM] = "confirm",
    [PHASE_DONE] = "done",       [PHASE_STOPPED] = "stopped", [PHASE_FAILED] = "failed",
};

static const char STOPPING[] =
    "an interim analysis after every block: intervals are valid at all analyses together "
    "(evidence from the random order of blocks), so the run ends when they decide";

/* Converts an interval of log ratios, positive is better, to one of B/A. */
static json_t *ratio_interval(struct interval i, int better, double confidence)
{
    const struct interval ratio = stats_exp(stats_turned(i, better));
    json_t *o = json_object();
    json_put_num(o, "ratio", ratio.estimate);
    json_put_num(o, "lower", ratio.lower);
    json_put_num(o, "upper", ratio.upper);
    json_put_num(o, "confidence", confidence);
    return o;
}

static json_t *numbers_to_json(const double *x, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_num(x[i]));
    return list;
}

/* Negative: unknown. */
static void put_count(json_t *o, const char *key, int64_t n)
{
    if (n < 0)
        json_put(o, key, json_null());
    else
        json_put_int(o, key, n);
}

/* A metric of an arm under its own name: bytes as a whole number. */
static void put_metric(json_t *o, const struct experiment_arm *a, enum metric_id id)
{
    if (strcmp(METRICS[id].unit, "bytes"))
        json_put_num(o, METRICS[id].name, a->value[id]);
    else
        put_count(o, METRICS[id].name, metric_bytes(a->value[id]));
}

static void experiment_put_text(json_t *o, const char *key, const char *text)
{
    json_put_str(o, key, *text ? text : NULL);
}

/* The figures of requests that come and go; null for other workloads. */
static json_t *requests_document(const struct experiment_arm *a)
{
    json_t *o = json_object();
    bool known = false;
    for (int m = METRIC_LOAD_FIRST; m <= METRIC_LOAD_LAST; m++) {
        put_metric(o, a, (enum metric_id)m);
        known |= !isnan(a->value[m]);
    }
    if (known) return o;
    json_decref(o);
    return json_null();
}

json_t *experiment_engine(const struct experiment_arm *a)
{
    json_t *o = NULL;
    if (!*a->engine || json_parse(&o, a->engine, strlen(a->engine), NULL)) return json_null();
    return o;
}

static json_t *arm_document(const struct experiment_state *s, int index)
{
    const struct experiment_arm *a = &s->arm[index];
    char workload[WORKLOAD_LINE];
    json_t *o = json_object(), *itl = json_object();
    const char name[2] = { (char)('a' + index), 0 };
    json_put_str(o, "arm", name);
    json_put_str(o, "config", a->line);
    json_put_str(o, "workload",
                 workload_line(experiment_workload(&s->spec, index), workload, sizeof(workload)));
    experiment_put_text(o, "recipe", a->recipe);
    json_put(o, "merged", a->merged_known ? config_to_json(&a->merged) : json_null());
    experiment_put_text(o, "model", a->model_name);
    experiment_put_text(o, "arch", a->arch);
    experiment_put_text(o, "sha256", a->sha256);
    experiment_put_text(o, "dominant_format", a->dominant_format);
    experiment_put_text(o, "quantization", a->quantization);
    experiment_put_text(o, "isa", a->isa);
    experiment_put_text(o, "device", a->device);
    put_count(o, "threads", a->threads);
    json_put(o, "engine", experiment_engine(a));
    experiment_put_text(o, "error", a->error);
    json_put_num(o, "rate", a->rate);
    put_metric(o, a, METRIC_PREFILL_RATE);
    put_metric(o, a, METRIC_DECODE_RATE);
    put_metric(o, a, METRIC_TTFT);
    json_put_num(itl, "p50", a->value[METRIC_ITL_P50]);
    json_put_num(itl, "p95", a->value[METRIC_ITL_P95]);
    json_put_num(itl, "p99", a->value[METRIC_ITL_P99]); /* null below 459 tokens, which cannot bound it */
    json_put_int(itl, "samples", a->itl_samples);
    json_put(o, "itl_s", itl);
    put_metric(o, a, METRIC_PERPLEXITY);
    put_metric(o, a, METRIC_LOAD_TIME);
    json_put_num(o, "joules_per_token", a->joules_per_token);
    json_put_num(o, "joules_per_token_half", a->joules_per_token_half);
    json_put_num(o, "co2_g_per_token", a->co2_g_per_token);
    put_metric(o, a, METRIC_PEAK_MEMORY);
    put_metric(o, a, METRIC_MEMORY_AFTER);
    put_metric(o, a, METRIC_TRAIN_RATE);
    put_metric(o, a, METRIC_TRAIN_LOSS);
    put_metric(o, a, METRIC_SERVER_PREFILL_RATE);
    put_metric(o, a, METRIC_SERVER_DECODE_RATE);
    put_metric(o, a, METRIC_CHUNK_GAP);
    put_metric(o, a, METRIC_TOTAL_RATE);
    put_metric(o, a, METRIC_SEQUENCE_RATE);
    json_put(o, "requests", requests_document(a));
    json_put_int(o, "cells", a->cells);
    json_put(o, "plan", a->plan.total < 0 ? json_null() : memory_plan_to_json(&a->plan));
    return o;
}

/* The companions of the verdict; each is valid for a single analysis only. */
static json_t *companions_document(const struct comparison *c, int better)
{
    json_t *o = json_object();
    json_put(o, "t_interval", ratio_interval(c->fixed, better, 0.95));
    json_put(o, "hodges_lehmann", ratio_interval(c->hodges_lehmann, better, 0.95));
    json_put_num(o, "permutation_p", c->permutation_p);
    json_put_num(o, "lag1_correlation", c->lag1);
    return o;
}

static json_t *load_document(const struct machine_load *l)
{
    json_t *o = json_object();
    json_put_num(o, "others_busy_ratio", l->others_busy);
    json_put_num(o, "steal_ratio", l->steal);
    json_put_num(o, "cpu_stalled_ratio", l->stalled);
    return o;
}

/* What the blocks of each estimand say, and what the load was during them. */
static json_t *estimands_document(const struct experiment_state *s, const struct comparison *c, int better)
{
    json_t *all = json_object();
    for (int e = ESTIMAND_QUIET; e <= ESTIMAND_LOADED; e++) {
        const struct estimand_result *x = &c->by_estimand[e];
        json_t *o = json_object();
        json_put_int(o, "blocks", x->blocks);
        json_put(o, "effect", ratio_interval(x->effect, better, 1 - c->alpha));
        json_put_num(o, "e_value", x->e);
        json_put_num(o, "p_anytime", x->p);
        json_put(o, "load", load_document(&s->load[e]));
        json_put(all, ESTIMANDS[e], o);
    }
    return all;
}

/* Adds the figures of one comparison to its object. */
static void put_comparison(json_t *o, const struct comparison *c, int better)
{
    json_put(o, "effect", ratio_interval(c->effect, better, 1 - c->alpha));
    json_put(o, "effect90", ratio_interval(c->effect90, better, 1 - 2 * c->alpha));
    json_put_num(o, "e_value", c->e);
    json_put_num(o, "e_value_sign", c->e_sign);
    json_put_num(o, "p_anytime", c->p);
    json_put(o, "companions", companions_document(c, better));
    json_put(o, "log_ratios", numbers_to_json(c->d, c->blocks)); /* per kept block, positive: better than A */
    json_t *by = json_object();
    for (int m = 0; m < CELL_METRICS; m++) {
        const struct metric *metric = &METRICS[METRIC_SENSOR_COUNT + m];
        if (!isnan(c->by_metric[m].estimate))
            json_put(by, metric->name, ratio_interval(c->by_metric[m], metric->better, 0.95));
    }
    json_put(o, "by_metric", by);
}

static json_t *comparisons_document(const struct experiment_state *s, int better)
{
    json_t *list = json_array();
    for (int k = 1; k < s->spec.arms; k++) {
        const struct comparison *c = &s->comparison[k];
        const char name[2] = { (char)('a' + k), 0 };
        json_t *o = json_object();
        json_put_str(o, "arm", name);
        json_put_str(o, "config", s->arm[k].line);
        json_put_str(o, "verdict", c->verdict ? verdict_name(c->verdict) : NULL);
        experiment_put_text(o, "reason", c->reason);
        json_put_int(o, "blocks", c->blocks);
        put_count(o, "blocks_needed", c->blocks_needed);
        json_put(o, "dropped_after", c->dropped ? json_integer(c->dropped_at) : json_null());
        put_comparison(o, c, better);
        json_put(o, "estimands", estimands_document(s, c, better));
        json_put(o, "quality", quality_to_json(&c->quality));
        experiment_put_text(o, "quality_missing", c->quality.missing);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *control_document(const struct experiment_state *s)
{
    if (s->spec.control_blocks < 0) return json_null();
    json_t *o = ratio_interval(s->control, 1, 0.95);
    json_put_int(o, "blocks", s->control_blocks);
    json_put_int(o, "discarded", s->control_discarded);
    json_put_bool(o, "failed", s->control_failed);
    json_put(o, "log_ratios", numbers_to_json(s->control_d, s->control_blocks));
    json_put_num(o, "cpu_frequency_hertz", s->control_frequency);
    return o;
}

static json_t *events_document(const struct experiment_state *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->events; i++) {
        char when[32];
        json_t *e = json_object();
        json_put_str(e, "time", clock_iso8601(s->event[i].unix_ms, when, sizeof(when)));
        json_put_str(e, "text", s->event[i].text);
        json_array_append_new(list, e);
    }
    return list;
}

static void put_time(json_t *o, const char *key, int64_t unix_ms)
{
    char when[32];
    json_put_str(o, key, unix_ms > 0 ? clock_iso8601(unix_ms, when, sizeof(when)) : NULL);
}

static void put_course(json_t *o, const struct experiment_state *s)
{
    put_time(o, "started", s->started_ms);
    put_time(o, "ended", s->ended_ms);
    json_put_num(o, "elapsed_s", s->elapsed_s);
    json_put_int(o, "pauses", s->pauses);
    json_put_num(o, "paused_s", s->paused_s);
    json_put_num(o, "overhead_ratio", s->overhead_ratio);
}

json_t *experiment_to_json(const struct experiment_state *s)
{
    char workload[576], seed[24];
    const int better = s->spec.metric ? s->spec.metric->better : 1;
    const struct comparison *c = experiment_headline(s);
    const char headline[2] = { (char)('a' + s->headline), 0 };
    struct joint joint;
    json_t *o = json_object(), *arms = json_array();
    json_put_str(o, "schema", "qdyno.ab/1");
    if (s->run_id)
        json_put_int(o, "run", s->run_id);
    else
        json_put(o, "run", json_null());
    json_put_str(o, "state", EXPERIMENT_PHASES[s->phase]);
    experiment_put_text(o, "error", s->error);
    json_put_str(o, "verdict",
                 s->verdict ? verdict_name(s->verdict) : NULL); /* of the headline arm, as seen from A */
    json_put_str(o, "headline", headline);
    json_put_bool(o, "confirmed", s->confirming); /* the winner was measured again on new blocks */
    experiment_put_text(o, "reason", s->reason);
    json_put_str(o, "metric", s->spec.metric ? s->spec.metric->name : NULL);
    json_put_str(o, "unit", s->spec.metric ? s->spec.metric->unit : NULL);
    json_put_int(o, "better", better);
    json_put_str(o, "model", s->spec.model);
    json_put_str(o, "workload", experiment_workload_line(&s->spec, workload, sizeof(workload)));
    json_put_bool(o, "as_systems", s->spec.as_systems);
    json_put_bool(o, "tokens_differ", s->tokens_differ);
    put_comparison(o, c, better);
    json_put_str(o, "estimand", ESTIMANDS[s->estimand]); /* what the verdict is about */
    json_put(o, "estimands", estimands_document(s, c, better));
    json_put_num(o, "load_reacts_tasks", s->load_reacts);
    json_put_num(o, "load_reacts_p", s->load_reacts_p);
    json_put_num(o, "switch_cost_ratio", exp(s->switch_cost));
    json_put_num(o, "margin", s->spec.margin);
    json_put_num(o, "noise_floor_ratio", s->noise_floor);
    json_put_num(o, "mde_ratio", s->mde);
    json_put_str(o, "stopping", STOPPING);
    json_put_int(o, "blocks", s->blocks);
    json_put_int(o, "blocks_planned", s->planned_blocks);
    json_put_int(o, "discarded", s->discarded);
    json_put_int(o, "disturbed", s->disturbed);
    put_count(o, "blocks_needed", s->blocks_needed);
    json_put_int(o, "cell_repeats", s->cell_repeats);
    json_put(o, "comparisons", comparisons_document(s, better));
    claims_joint(&joint, s);
    json_put(o, "joint", joint_to_json(&joint));
    json_put(o, "gate", claims_gate_json(s));
    json_put(o, "control", control_document(s));
    for (int i = 0; i < s->spec.arms; i++) json_array_append_new(arms, arm_document(s, i));
    json_put(o, "arms", arms);
    json_put_bool(o, "random_weights", s->random_weights);
    json_put_bool(o, "answers_unverified", s->answers_unverified);
    experiment_put_text(o, "machine", s->machine_id);
    snprintf(seed, sizeof(seed), "%" PRIu64, s->spec.seed);
    json_put_str(o, "seed", seed);
    put_course(o, s);
    json_put(o, "events", events_document(s));
    return o;
}
