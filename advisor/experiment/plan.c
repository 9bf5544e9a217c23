/* advisor/experiment/plan.c - decisions before anything is measured: the specification with its defaults, the
 * order of cells in every block, and the expected number of blocks. */
#include "advisor/experiment/parts.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const CELL_PHASES[] = { "warmup", "control", "block", "confirm" };
const char *const PROCESSES[] = { "auto", "new", "kept", NULL };
const char *const ESTIMANDS[] = { "either", "quiet", "loaded", NULL };
const char *const TURNS[] = { "auto", "on", "off", NULL };

/* What a workload must contain for a cell to give a metric. */
enum {
    GIVES_PREFILL = 1,
    GIVES_DECODE = 2,
    GIVES_EVAL = 4,
    GIVES_TRAIN = 8,
    GIVES_ANY = 16,
    GIVES_LOAD = 32,
    GIVES_SLO = 64
};
static const char SOME_TOKENS[] = "a prompt or generated tokens";
static const struct {
    enum metric_id metric;
    unsigned needs;
    const char *text;
} GIVEN_BY[] = {
    { .metric = METRIC_PREFILL_RATE, .needs = GIVES_PREFILL, .text = "a prompt, such as pp512" },
    { .metric = METRIC_DECODE_RATE, .needs = GIVES_DECODE, .text = "generated tokens, such as tg64" },
    { .metric = METRIC_TTFT,
      .needs = GIVES_PREFILL | GIVES_DECODE | GIVES_LOAD,
      .text = "a prompt or generated tokens" },
    { .metric = METRIC_ITL_P50,
      .needs = GIVES_DECODE | GIVES_LOAD,
      .text = "generated tokens, such as tg64" },
    { .metric = METRIC_ITL_P95, .needs = GIVES_DECODE | GIVES_LOAD, .text = "at least 90 generated tokens" },
    { .metric = METRIC_ITL_P99, .needs = GIVES_DECODE | GIVES_LOAD, .text = "at least 459 generated tokens" },
    { .metric = METRIC_GOODPUT, .needs = GIVES_SLO, .text = "limits, such as load:rate=4,slo=ttft<500ms" },
    { .metric = METRIC_PEAK_MEMORY, .needs = GIVES_ANY, .text = "" },
    { .metric = METRIC_ENERGY, .needs = GIVES_ANY, .text = "" },
    { .metric = METRIC_PERPLEXITY, .needs = GIVES_EVAL, .text = "eval:FILE" },
    { .metric = METRIC_TRAIN_RATE, .needs = GIVES_TRAIN, .text = "steps of training, such as train20" },
    { .metric = METRIC_TRAIN_LOSS, .needs = GIVES_TRAIN, .text = "steps of training, such as train20" },
    { .metric = METRIC_MEMORY_AFTER, .needs = GIVES_ANY, .text = "" },
    { .metric = METRIC_SERVER_PREFILL_RATE, .needs = GIVES_PREFILL, .text = "a prompt, such as pp512" },
    { .metric = METRIC_SERVER_DECODE_RATE, .needs = GIVES_DECODE, .text = "generated tokens, such as tg64" },
    { .metric = METRIC_TOTAL_RATE, .needs = GIVES_PREFILL | GIVES_DECODE, .text = SOME_TOKENS },
    { .metric = METRIC_SEQUENCE_RATE, .needs = GIVES_PREFILL | GIVES_DECODE, .text = SOME_TOKENS },
    { .metric = METRIC_CHUNK_GAP, .needs = GIVES_DECODE, .text = "generated tokens, such as tg64" },
};

static enum err_code metric_check(const struct metric *m, const struct workload *w, struct err *why)
{
    unsigned gives = GIVES_ANY;
    if (w->prompt > 0) gives |= GIVES_PREFILL;
    if (w->gen > 0) gives |= GIVES_DECODE;
    if (*w->eval_file) gives |= GIVES_EVAL;
    if (w->train) gives |= GIVES_TRAIN;
    if (workload_is_load(w)) gives |= GIVES_LOAD;
    if (workload_is_load(w) && w->load.limits) gives |= GIVES_SLO;
    const enum metric_id id = (enum metric_id)(m - METRICS);
    if (id >= METRIC_LOAD_FIRST && id <= METRIC_LOAD_LAST && id != METRIC_GOODPUT && workload_is_load(w))
        return ERR_OK;
    for (size_t i = 0; i < COUNT_OF(GIVEN_BY); i++) {
        if (m != &METRICS[GIVEN_BY[i].metric]) continue;
        if (gives & GIVEN_BY[i].needs) return ERR_OK;
        char line[576];
        return err_set(why, ERR_USAGE, "metric %s needs a workload with %s; '%s' has none", m->name,
                       GIVEN_BY[i].text, workload_line(w, line, sizeof(line)));
    }
    return err_set(why, ERR_USAGE, "metric %s is not a figure of a cell that two arms can be compared by",
                   m->name);
}

/* Which of two configs serves a load better. Where clients wait for answers, tokens per second tell. Where
 * requests come whatever the server does, they set that rate, and the time until an answer is complete tells.
 */
static enum metric_id load_metric(const struct workload_load *l)
{
    return l->limits ? METRIC_GOODPUT : l->arrivals == LOAD_CLOSED ? METRIC_OUT_RATE : METRIC_E2E;
}

const struct metric *experiment_default_metric(const struct workload *w)
{
    if (workload_is_load(w)) return &METRICS[load_metric(&w->load)];
    return &METRICS[w->train        ? METRIC_TRAIN_RATE
                    : *w->eval_file ? METRIC_PERPLEXITY
                    : w->gen > 0    ? METRIC_DECODE_RATE
                                    : METRIC_PREFILL_RATE];
}

/* ERR_USAGE for settings without a meaning for the workload, and for arms that train on different rows. */
static enum err_code arms_check(const struct experiment_spec *s, struct err *why)
{
    const int64_t first = config_int(&s->config[0], KNOB_TRAIN_BATCH) *
                          config_int(&s->config[0], KNOB_ACCUMULATE);
    for (int i = 0; i < s->arms; i++) {
        const struct config *c = &s->config[i];
        const int64_t rows = config_int(c, KNOB_TRAIN_BATCH) * config_int(c, KNOB_ACCUMULATE);
        enum err_code rc = workload_check(experiment_workload(s, i), c, why);
        if (rc) return err_prefix(why, "arm %c", 'A' + i);
        if (s->workload.train && rows != first)
            return err_set(
                why, ERR_USAGE,
                "a step of arm A has %" PRId64 " rows, one of arm %c %" PRId64
                ": expected train_batch times accumulate to be the same, so that both do the same work",
                first, 'A' + i, rows);
    }
    for (int i = 0; i < s->arms; i++)
        if (experiment_workload(s, i)->load.auto_rate)
            return err_set(
                why, ERR_USAGE,
                "rate=auto is found for each config by `qdyno bench`; to compare configs, give one rate");
    if (s->workload.train && *s->model)
        return err_set(why, ERR_USAGE, "a model (%s) means nothing to a workload that trains from nothing",
                       s->model);
    return ERR_OK;
}

/* What other engines cannot do in an experiment. */
static enum err_code foreign_check(const struct experiment_spec *s, struct err *why)
{
    for (int i = 0; i < s->arms; i++) {
        const char *name = config_text(&s->config[i], KNOB_ENGINE);
        if (!config_is_foreign(&s->config[i])) continue;
        if (*s->quality_file || *s->workload.eval_file)
            return err_set(
                why, ERR_USAGE,
                "arm %c: engine=%s gives no probabilities of all tokens, so quality cannot be compared "
                "token by token: `qdyno audit FILE --engine %s` compares perplexities",
                'A' + i, name, name);
        if (s->turns == TURNS_ON)
            return err_set(why, ERR_USAGE,
                           "arm %c: engine=%s cannot be interrupted between tokens: use --turns off", 'A' + i,
                           name);
    }
    return ERR_OK;
}

enum err_code spec_resolve(struct experiment_spec *s, struct err *why)
{
    char whole[PATH_MAX]; /* absolute: a run may be resumed or replayed from another folder */
    if (*s->model && realpath(s->model, whole) && strlen(whole) < sizeof(s->model))
        memcpy(s->model, whole, strlen(whole) + 1);
    if (!s->arms) s->arms = 2;
    if (!s->metric) s->metric = workloads_default_metric(s);
    enum err_code rc = workloads_check(s, why);
    for (int i = 0; i < (s->by_arm ? s->arms : 1) && !rc; i++)
        rc = metric_check(s->metric, experiment_workload(s, i), why);
    if (rc) return rc;
    if (s->arms < 2 || s->arms > EXPERIMENT_ARMS)
        return err_set(why, ERR_USAGE, "%d arms: expected 2 to %d", s->arms, EXPERIMENT_ARMS);
    if ((rc = arms_check(s, why)) || (rc = foreign_check(s, why))) return rc;
    if (s->race && s->arms < 3)
        return err_set(why, ERR_USAGE,
                       "a race needs three arms or more, found two: name a third arm or leave out --race");
    if (s->warmup_cells < 0 || s->warmup_cells > 64)
        return err_set(why, ERR_USAGE, "%d warm-up cells: expected 1 to 64, or 0 for as many as it takes",
                       s->warmup_cells);
    if (s->margin == 0) s->margin = EXPERIMENT_MARGIN;
    if (!(s->margin > 0 && s->margin < 1))
        return err_set(why, ERR_USAGE, "a margin of %g: expected more than 0 and less than 1 (0.01 is 1 %%)",
                       s->margin);
    if (s->budget_s == 0) s->budget_s = EXPERIMENT_BUDGET_S;
    if (!(s->budget_s > 0))
        return err_set(why, ERR_USAGE, "a budget of %g seconds: expected more than 0", s->budget_s);
    if (!s->min_blocks) s->min_blocks = BLOCKS_FOR_A_CLAIM;
    if (!s->max_blocks) s->max_blocks = EXPERIMENT_BLOCKS;
    if (s->min_blocks < BLOCKS_FOR_A_CLAIM || s->max_blocks < s->min_blocks ||
        s->max_blocks > EXPERIMENT_BLOCKS)
        return err_set(why, ERR_USAGE, "%d to %d blocks: expected %d <= least <= most <= %d", s->min_blocks,
                       s->max_blocks, BLOCKS_FOR_A_CLAIM, EXPERIMENT_BLOCKS);
    if (experiment_is_exact(s)) { /* nothing is timed: one evaluation of each arm, compared token by token */
        snprintf(s->quality_file, sizeof(s->quality_file), "%s", s->workload.eval_file);
        s->quality_ctx = s->workload.eval_ctx;
        s->quality_chunks = 0;
        s->control_blocks = -1;
        s->warmup_cells = 1;
    }
    if (!s->control_blocks) s->control_blocks = 3;
    if (s->control_blocks < -1 || s->control_blocks == 1 || s->control_blocks > EXPERIMENT_BLOCKS / 2)
        return err_set(why, ERR_USAGE, "%d control blocks: expected 2 to %d, or -1 for none",
                       s->control_blocks, EXPERIMENT_BLOCKS / 2);
    return ERR_OK;
}

void block_order(uint64_t seed, enum cell_phase phase, int block, int arms, int place[BLOCK_CELLS])
{
    const uint64_t coin = hash_next(hash_next(seed) ^ ((uint64_t)phase << 32 | (uint32_t)block));
    for (int i = 0; i < arms; i++) place[i] = i;
    for (int i = arms - 1; i > 0; i--) { /* Fisher-Yates */
        const uint64_t draw = i > 1 ? hash_next(coin ^ (uint64_t)i) : coin;
        const int j = i - (int)(draw % (uint64_t)(i + 1)), k = place[i];
        place[i] = place[j];
        place[j] = k;
    }
    for (int i = 0; i < arms; i++) place[2 * arms - 1 - i] = place[i];
}

double block_effect(const double value[BLOCK_CELLS], const int place[BLOCK_CELLS], int cells, int k,
                    int better)
{
    double sum[2] = { 0 };
    int n[2] = { 0 };
    for (int i = 0; i < cells; i++) {
        if (place[i] != k && place[i] != 0) continue;
        if (!(value[i] > 0) || isinf(value[i])) return NAN;
        sum[place[i] == k] += log(value[i]);
        n[place[i] == k]++;
    }
    const double d = n[0] && n[1] ? sum[1] / n[1] - sum[0] / n[0] : NAN;
    return better < 0 ? -d : d;
}

int arms_live(const struct experiment_state *s, enum cell_phase phase, int arm[EXPERIMENT_ARMS])
{
    int n = 0;
    if (phase == CELL_CONTROL) { /* A at both places */
        arm[n++] = 0;
        arm[n++] = 0;
        return n;
    }
    for (int k = 0; k < s->spec.arms; k++)
        if (!s->arm[k].failed && !s->comparison[k].dropped &&
            (phase != CELL_CONFIRM || k == 0 || k == s->headline))
            arm[n++] = k;
    return n;
}

int plan_blocks(const struct experiment_spec *s, double sd)
{
    if (isnan(sd)) return s->max_blocks;
    const int n = stats_anytime_blocks_for(sd, s->margin, 1 - 0.05 / MAX(1, s->arms - 1), 0.80);
    return MIN(MAX(n, s->min_blocks), s->max_blocks);
}

int control_wanted(const struct experiment_state *s)
{
    const int n = s->spec.control_blocks;
    if (n < 2 || s->control_blocks < n) return MAX(n, 0);
    /* One control in twenty excludes 0 by chance. A real bias is still there after twice the blocks. */
    const struct interval first = stats_t_interval(s->control_d, n, 0.95);
    return first.lower > 0 || first.upper < 0 ? MIN(2 * n, EXPERIMENT_BLOCKS) : n;
}

/* ---------------------------------------------------------------- the spec as a document */

static json_t *config_document(const struct config *c)
{
    json_t *o = json_object(), *given = json_array();
    json_put(o, "values", config_to_json(c));
    for (int i = 0; i < KNOB_COUNT; i++)
        if (c->given[i]) json_array_append_new(given, json_string(KNOBS[i].key));
    json_put(o, "given", given);
    return o;
}

static enum err_code config_undocument(struct config *c, const json_t *o, struct err *why)
{
    enum err_code rc = config_from_json(c, json_object_get(o, "values"), why);
    if (rc) return rc;
    size_t i;
    json_t *key;
    memset(c->given, 0, sizeof(c->given));
    json_array_foreach(json_object_get(o, "given"), i,
                       key) for (int k = 0; k < KNOB_COUNT;
                                 k++) if (json_is_string(key) &&
                                          !strcmp(json_string_value(key), KNOBS[k].key)) c->given[k] = true;
    return ERR_OK;
}

/* The index of a name in a list that ends with NULL; 0 for an unknown name. */
static int name_index(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(name, names[i])) return i;
    return 0;
}

enum processes processes_parse(const char *name)
{
    return (enum processes)name_index(PROCESSES, name);
}

enum estimand estimand_parse(const char *name)
{
    return (enum estimand)name_index(ESTIMANDS, name);
}

enum turns_mode turns_parse(const char *name)
{
    return (enum turns_mode)name_index(TURNS, name);
}

json_t *experiment_spec_to_json(const struct experiment_spec *s)
{
    char text[576], seed[24];
    json_t *o = json_object(), *configs = json_array();
    json_put_str(o, "model", s->model);
    for (int i = 0; i < (s->arms ? s->arms : 2); i++)
        json_array_append_new(configs, config_document(&s->config[i]));
    json_put(o, "configs", configs);
    json_put_str(o, "workload", workload_line(&s->workload, text, sizeof(text)));
    json_put_int(o, "eval_ctx", s->workload.eval_ctx);
    if (s->by_arm) {
        json_t *all = json_array();
        for (int i = 0; i < s->arms; i++)
            json_array_append_new(all, json_string(workload_line(&s->arm_workload[i], text, sizeof(text))));
        json_put(o, "workloads", all);
        json_put_bool(o, "as_systems", s->as_systems);
    }
    json_put_str(o, "metric", s->metric ? s->metric->name : NULL);
    json_put_num(o, "margin", s->margin);
    json_put_num(o, "budget_s", s->budget_s);
    json_put_int(o, "min_blocks", s->min_blocks);
    json_put_int(o, "max_blocks", s->max_blocks);
    json_put_int(o, "control_blocks", s->control_blocks);
    json_put_int(o, "warmup_cells", s->warmup_cells);
    json_put_str(o, "processes", PROCESSES[s->processes]);
    json_put_str(o, "estimand", ESTIMANDS[s->estimand]);
    json_put_str(o, "turns", TURNS[s->turns]);
    json_put_bool(o, "race", s->race);
    if (s->race_only) json_put_bool(o, "race_only", true);
    json_put_str(o, "quality_file", *s->quality_file ? s->quality_file : NULL);
    json_put_int(o, "quality_ctx", s->quality_ctx);
    json_put_int(o, "quality_chunks", s->quality_chunks);
    if (s->quality_least) json_put_int(o, "quality_least", s->quality_least);
    if (s->quality_ctx_least) json_put_int(o, "quality_ctx_least", s->quality_ctx_least);
    json_put_num(o, "kld_margin", s->kld_margin);
    json_put_str(o, "gate", *s->gate ? s->gate : NULL);
    snprintf(seed, sizeof(seed), "%" PRIu64, s->seed);
    json_put_str(o, "seed", seed); /* as text: many JSON readers lose the low bits of 64-bit integers */
    return o;
}

/* The workloads of the arms, where they differ. */
static enum err_code workloads_undocument(struct experiment_spec *s, const json_t *lines, struct err *why)
{
    struct workload w[EXPERIMENT_ARMS];
    enum err_code rc = ERR_OK;
    if (!lines) return ERR_OK;
    if (json_array_size(lines) != (size_t)s->arms)
        return err_set(why, ERR_FORMAT, "the experiment's spec has %zu workloads for %d arms",
                       json_array_size(lines), s->arms);
    for (int i = 0; i < s->arms && !rc; i++) {
        const char *line = json_string_value(json_array_get(lines, (size_t)i));
        rc = workload_parse(&w[i], line ? line : "", why);
    }
    if (!rc) experiment_set_workloads(s, w, s->arms);
    return rc;
}

enum err_code experiment_spec_from_json(struct experiment_spec *s, const json_t *object, struct err *why)
{
    memset(s, 0, sizeof(*s));
    if (!json_is_object(object)) return err_set(why, ERR_FORMAT, "an experiment's spec must be an object");
    snprintf(s->model, sizeof(s->model), "%s", json_get_str(object, "model", ""));
    const json_t *configs = json_object_get(object, "configs");
    s->arms = (int)MIN(json_array_size(configs), (size_t)EXPERIMENT_ARMS + 1);
    if (s->arms < 2 || s->arms > EXPERIMENT_ARMS)
        return err_set(why, ERR_FORMAT, "the experiment's spec has %zu configs, not 2 to %d",
                       json_array_size(configs), EXPERIMENT_ARMS);
    for (int i = 0; i < s->arms; i++) {
        enum err_code rc = config_undocument(&s->config[i], json_array_get(configs, (size_t)i), why);
        if (rc) return rc;
    }
    enum err_code rc = workload_parse(&s->workload, json_get_str(object, "workload", ""), why);
    if (rc) return rc;
    s->workload.eval_ctx = (int)json_get_int(object, "eval_ctx", s->workload.eval_ctx);
    if ((rc = workloads_undocument(s, json_object_get(object, "workloads"), why))) return rc;
    s->as_systems = json_get_bool(object, "as_systems", false);
    const char *metric = json_get_str(object, "metric", NULL);
    s->metric = metric ? metric_find(metric) : NULL;
    if (metric && !s->metric)
        return err_set(why, ERR_FORMAT, "the experiment's metric '%s' is unknown to this version", metric);
    s->margin = json_get_num(object, "margin", 0);
    s->budget_s = json_get_num(object, "budget_s", 0);
    s->min_blocks = (int)json_get_int(object, "min_blocks", 0);
    s->max_blocks = (int)json_get_int(object, "max_blocks", 0);
    s->control_blocks = (int)json_get_int(object, "control_blocks", 0);
    s->warmup_cells = (int)json_get_int(object, "warmup_cells", 0);
    s->processes = processes_parse(
        json_get_str(object, "processes", "kept")); /* the default when old runs were made */
    /* Before estimands were recorded, only undisturbed blocks counted. */
    s->estimand = estimand_parse(json_get_str(object, "estimand", "quiet"));
    s->turns = turns_parse(json_get_str(object, "turns", "off"));
    s->race = json_get_bool(object, "race", false);
    s->race_only = json_get_bool(object, "race_only", false);
    snprintf(s->quality_file, sizeof(s->quality_file), "%s", json_get_str(object, "quality_file", ""));
    s->quality_ctx = (int)json_get_int(object, "quality_ctx", 0);
    s->quality_chunks = (int)json_get_int(object, "quality_chunks", 0);
    s->quality_least = (int)json_get_int(object, "quality_least", 0);
    s->quality_ctx_least = (int)json_get_int(object, "quality_ctx_least", 0);
    s->kld_margin = json_get_num(object, "kld_margin", 0);
    snprintf(s->gate, sizeof(s->gate), "%s", json_get_str(object, "gate", ""));
    if (!str_to_u64(json_get_str(object, "seed", ""), &s->seed))
        return err_set(why, ERR_FORMAT, "the experiment's spec has no seed");
    return ERR_OK;
}
