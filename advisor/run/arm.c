/* advisor/run/arm.c - arms (run.h). Each call goes to the functions of the arm's kind. */
#include "advisor/run/run.h"

#include <math.h>
#include <stdlib.h>

#include "advisor/run/arm_kind.h"
#include "engine/parallel/parallel.h"

static const struct arm_kind *const ARM_KINDS[ENGINE_COUNT] = {
    [ENGINE_QDYNO] = &ARM_WORKER,           [ENGINE_LLAMA_SERVER] = &ARM_LLAMA_SERVER,
    [ENGINE_LLAMA_BENCH] = &ARM_LLAMA_TOOL, [ENGINE_LLAMA_PERPLEXITY] = &ARM_LLAMA_TOOL,
    [ENGINE_OPENAI] = &ARM_OPENAI,
};

static const double JOULES_PER_KWH = 3.6e6;

struct arm {
    const struct arm_kind *kind;
    void *state;
    json_t *description;
    const struct log *log;
    double grid_g_per_j; /* grams of CO2 per joule; NAN: unknown */
};

/* Threads as the arm describes them: also another engine's, unless it does not say how many it has. */
static void note_threads(struct arm *a)
{
    char text[320];
    const int threads = (int)json_get_int(a->description, "threads", 0);
    if (!*usable_cpus_warning(usable_cpus(), threads, text, sizeof text)) return;
    if (!json_object_get(a->description, "notes")) json_put(a->description, "notes", json_array());
    json_array_append_new(json_object_get(a->description, "notes"), json_string(text));
}

enum err_code arm_open(struct arm **out, const struct arm_spec *spec, arm_event_fn *event, void *ctx,
                       struct err *why)
{
    *out = NULL;
    struct arm *a = calloc(1, sizeof(*a));
    if (!a) return err_set(why, ERR_NOMEM, "no memory for an arm");
    a->kind = ARM_KINDS[spec->train ? ENGINE_QDYNO : config_engine(spec->config)];
    a->log = spec->log;
    const int64_t grid = config_int(spec->config, KNOB_GRID);
    a->grid_g_per_j = grid < 0 ? (double)NAN : (double)grid / JOULES_PER_KWH;
    enum err_code rc = a->kind->open(&a->state, &a->description, spec, event, ctx, why);
    if (rc) {
        arm_close(a);
        return rc;
    }
    shapes_take(a->description, a->log);
    note_threads(a);
    *out = a;
    return ERR_OK;
}

void arm_close(struct arm *a)
{
    if (!a) return;
    if (a->state) a->kind->close(a->state);
    json_decref(a->description);
    free(a);
}

int arm_pid(const struct arm *a)
{
    return a->kind->pid(a->state);
}

const json_t *arm_description(const struct arm *a)
{
    return a->description;
}

bool arm_on_gpu(const struct arm *a)
{
    return json_is_string(json_object_get(a->description, "gpu"));
}

const char *arm_note(const struct arm *a, size_t i)
{
    return json_string_value(json_array_get(json_object_get(a->description, "notes"), i));
}

void arm_watch(const struct arm *a, struct sampler_thread *sampler)
{
    if (!sampler) return;
    sampler_monitor_process(sampler, arm_pid(a));
    sampler_select_gpu(sampler, json_get_str(a->description, "gpu", NULL));
}

void other_machines_add(struct other_machines *m, const json_t *ranks)
{
    struct rank_usage rank[RANKS_MAX];
    double seconds = NAN, watts = NAN;
    const int n = rank_usage_list(rank, ranks);
    if (n || !ranks) watts = ranks_other_watts(rank, n, &seconds);
    m->joules += watts * seconds;
    m->seconds += seconds;
}

/* Their counters are read inside the cell, where each repetition begins and ends. The power in the rest of
 * the cell may be anything from 0 to twice the mean, and a reading may be as old as the counter's resolution.
 */
static struct energy energy_of_others(const struct other_machines *m, double seconds)
{
    if (m->seconds == 0 && m->joules == 0) return (struct energy){ 0, 0 };
    const double watts = m->joules / m->seconds, stale_s = METRICS[METRIC_CPU_POWER].least_ms * 1e-3,
                 outside_s = m->seconds - seconds;
    return (struct energy){ watts * seconds,
                            2 * watts * sqrt(stale_s * stale_s / 6 + outside_s * outside_s / 3) };
}

void arm_energy(const struct arm *a, const struct sample *samples, int n, int64_t from_ns, double seconds,
                const struct other_machines *others, double value[METRIC_COUNT])
{
    const int64_t to_ns = from_ns + (int64_t)(seconds * 1e9);
    struct energy e = energy_integral(samples, n, METRIC_CPU_POWER, from_ns, to_ns);
    if (arm_on_gpu(a)) {
        const struct energy gpu = energy_integral(samples, n, METRIC_GPU_POWER, from_ns, to_ns);
        if (isnan(e.joules)) e = (struct energy){ 0, 0 };
        e = (struct energy){ e.joules + gpu.joules, hypot(e.half_joules, gpu.half_joules) };
    }
    const struct energy more = energy_of_others(others, seconds);
    e = (struct energy){ e.joules + more.joules, hypot(e.half_joules, more.half_joules) };
    value[METRIC_ENERGY] = e.joules;
    value[METRIC_ENERGY_HALF] = e.half_joules;
    value[METRIC_CO2] = a->grid_g_per_j * e.joules;
}

static enum err_code arm_request(struct arm *a, json_t *request, json_t **answer, arm_event_fn *event,
                                 void *ctx, struct err *why)
{
    *answer = NULL;
    if (!request) return err_set(why, ERR_NOMEM, "no memory for a request");
    enum err_code rc = a->kind->request(a->state, request, answer, event, ctx, why);
    json_decref(request);
    if (!rc) shapes_take(*answer, a->log);
    return rc;
}

enum err_code arm_cell_in_turns(struct arm *a, const struct turns_spec *what, json_t **answer,
                                arm_event_fn *event, void *ctx, struct err *why)
{
    json_t *r = json_object();
    json_put_str(r, "op", "cell");
    json_put_str(r, "workload", what->workload);
    json_put_int(r, "seed", (int64_t)what->seed); /* the worker reads the same 64 bits as unsigned */
    if (what->turn.steps) json_put_int(r, "turn_steps", what->turn.steps);
    if (what->turn.passes) json_put_int(r, "turn_passes", what->turn.passes);
    return arm_request(a, r, answer, event, ctx, why);
}

enum err_code arm_cell(struct arm *a, const char *workload, uint64_t seed, json_t **answer,
                       arm_event_fn *event, void *ctx, struct err *why)
{
    const struct turns_spec what = { .workload = workload, .seed = seed };
    return arm_cell_in_turns(a, &what, answer, event, ctx, why);
}

enum err_code arm_profile(struct arm *a, const char *workload, uint64_t seed, json_t **answer,
                          arm_event_fn *event, void *ctx, struct err *why)
{
    json_t *r = json_object();
    *answer = NULL;
    if (a->kind != &ARM_WORKER) {
        json_decref(r);
        return err_set(why, ERR_USAGE, "engine=%s: its operators cannot be timed: expected engine=qdyno",
                       a->kind->name);
    }
    json_put_str(r, "op", "cell");
    json_put_str(r, "workload", workload);
    json_put_int(r, "seed", (int64_t)seed);
    json_put_bool(r, "profile", true);
    return arm_request(a, r, answer, event, ctx, why);
}

enum err_code arm_change_load(struct arm *a, double rate_by, const char *settings, struct err *why)
{
    if (!a->kind->tell)
        return err_set(why, ERR_USAGE,
                       "engine=%s: its load cannot be changed while it runs: expected engine=qdyno",
                       a->kind->name);
    json_t *o = json_object();
    json_put_str(o, "op", "change");
    json_put_num(o, "rate_by", rate_by);
    if (*settings) json_put_str(o, "settings", settings);
    const enum err_code rc = a->kind->tell(a->state, o, why);
    json_decref(o);
    return rc;
}

enum err_code arm_generate(struct arm *a, const struct generate_spec *spec, json_t **answer,
                           arm_event_fn *event, void *ctx, struct err *why)
{
    json_t *r = json_object();
    json_put_str(r, "op", "generate");
    json_put_str(r, "prompt", spec->prompt);
    json_put_int(r, "n", spec->n);
    json_put_num(r, "temp", spec->temp);
    if (spec->turn_s > 0) json_put_num(r, "turn_s", spec->turn_s);
    return arm_request(a, r, answer, event, ctx, why);
}

enum err_code arm_quality(struct arm *a, const struct quality_spec *spec, json_t **answer,
                          arm_event_fn *event, void *ctx, struct err *why)
{
    struct str line = { 0 };
    char *shapes;
    const enum err_code rc = shapes_of(&shapes, spec->reference, event, ctx, a->log, why);
    if (rc) return rc;
    config_append_line(spec->reference, &line);
    if (line.failed) {
        free(shapes);
        return err_set(why, ERR_NOMEM, "no memory for a request");
    }
    json_t *r = json_object(), *reference = json_object();
    json_put_str(reference, "model", spec->model ? spec->model : "");
    json_put_str(reference, "config", str_text(&line));
    if (shapes) json_put_str(reference, "shapes", shapes);
    free(shapes);
    json_put_str(r, "op", "quality");
    json_put_str(r, "file", spec->file ? spec->file : "");
    json_put_int(r, "ctx", spec->ctx);
    json_put_int(r, "chunks", spec->chunks);
    if (spec->without_greedy) json_put_bool(r, "greedy", false);
    json_put(r, "reference", reference);
    str_free(&line);
    return arm_request(a, r, answer, event, ctx, why);
}
