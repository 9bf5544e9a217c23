/* advisor/predict/predict.c - sums the cost of every operation of a forward pass (cost.c), corrects the sum
 * with earlier runs (correction.c), and adds limits and intervals. */
#include "advisor/predict/predict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advisor/predict/cost.h"
#include "engine/quant/quant.h"
#include "telemetry/metrics/metrics.h"

/* Standard deviations of ln(measured / predicted) before any run was recorded: TIMED_* with this machine's
 * kernel times, SHARE_* with shares of its ceilings, GPU_* with a GPU vendor's figures, CACHED_* for a model
 * that fits in a cache. BARRED_SD: instruction sets are disabled; NUMA_SD: node bandwidth unknown. The
 * residuals of the machine's own runs soon replace them (correction.c). */
static const double TIMED_DECODE_SD = 0.08, TIMED_PREFILL_SD = 0.11;
static const double SHARE_DECODE_SD = 0.30, SHARE_PREFILL_SD = 0.35;
static const double GPU_DECODE_SD = 0.45, GPU_PREFILL_SD = 0.55;
static const double TIMED_CACHED_SD = 0.14, CACHED_SD = 0.70, BARRED_SD = 0.15, NUMA_SD = 0.40;
static const double LOAD_SD = 0.60, PEAK_SD = 0.018, ENERGY_SD = 0.30;

static const struct interval UNKNOWN = { NAN, NAN, NAN };
/* Sampling: seconds per logit to find the largest and hand them over. */
static const double LOGIT_S = 0.8e-9;
/* Opening a model: seconds for the header, seconds per vocabulary entry, and bytes/s of prefaulting pages. */
static const double OPEN_S = 0.01, VOCABULARY_S = 0.4e-6, PAGES_BYTES_S = 8e9;
/* Usable share of a GPU's memory (the driver keeps the rest), and of unified memory (the system keeps the
 * rest). */
static const double GPU_SHARE = 0.92, UNIFIED_SHARE = 0.75;

/* Where a typical chat is, at which configs are compared by default. */
static int predict_depth(int ctx)
{
    return MIN(512, MAX(ctx, 0) / 8);
}

struct predict_for predict_for_workload(const struct workload *w)
{
    return (struct predict_for){ .ctx = workload_ctx(w),
                                 .depth = MAX(1, w->depth + w->prompt + w->gen / 2),
                                 .sequences = workload_sequences(w),
                                 .prompt = w->prompt,
                                 .past = w->depth,
                                 .gen = w->gen };
}

/* ---------------------------------------------------------------- memory */

static int64_t machine_memory_available(const struct machine *m)
{
    int64_t bytes = m->memory_available_bytes > 0 ? m->memory_available_bytes : m->memory_bytes;
    if (m->cgroup_memory_bytes > 0 && (bytes < 0 || m->cgroup_memory_bytes < bytes))
        bytes = m->cgroup_memory_bytes;
    return bytes;
}

/* The layers of one model are distributed over all GPUs of a machine. */
static int64_t gpu_memory(const struct machine *m, const struct machine_ceilings *k)
{
    double bytes = 0;
    if (k->gpu.unified) return (int64_t)(UNIFIED_SHARE * (double)m->memory_bytes);
    for (int i = 0; i < m->gpus; i++) bytes += (double)MAX(m->gpu[i].memory_bytes, 0);
    return bytes > 0 ? (int64_t)(GPU_SHARE * bytes) : -1;
}

int64_t predict_memory(const struct machine *m, const struct machine_ceilings *k, bool on_gpu)
{
    return on_gpu ? gpu_memory(m, k) : machine_memory_available(m);
}

/* Memory of a worker beside its memory estimate: code, libraries and vocabulary. Between 11.9 and 12.7 MiB
 * for the models that were measured. */
static const double PROGRAM_BYTES = 12.4 * (1 << 20);

/* ---------------------------------------------------------------- sums of operations */

struct work {
    struct cost cost;
    struct model_operations o;
    const struct predict_for *what;
    int sequences, depth, prompt;
    struct stored_experts stored; /* of the model file */
    const struct expert_curve *consecutive,
        *apart;       /* those of `what`, else the stored ones; NULL: random choices */
    bool recomputes;  /* kv_cache=off */
    double untouched; /* planned bytes that this run never touches */
};

/* Seconds of attention in all layers. A layer with a sliding window attends to at most that many tokens. */
static double attention_s(struct work *w, double n, double depth, bool many)
{
    const struct model_operations *o = &w->o;
    struct cost_attention a = { .k = o->k_format,
                                .v = o->v_format,
                                .heads = o->shape.heads,
                                .kv_heads = o->shape.kv_heads,
                                .dim_k = o->shape.head_dim_k,
                                .dim_v = o->shape.head_dim_v,
                                .v_in_k = o->shape.latent_cached,
                                .n = n,
                                .depth = depth,
                                .many = many };
    const int near = o->windowed_layers, all = o->attention_layers;
    double s = (all - near) * cost_attention(&w->cost, &a);
    if (near) {
        a.depth = fmin(depth, o->window);
        s += near * cost_attention(&w->cost, &a);
    }
    return s;
}

static void work_set_experts(struct work *w, const struct gguf *g)
{
    const int used = w->o.shape.experts_used;
    const bool stored = used && stored_experts_find(&w->stored, g, used);
    w->consecutive = w->what->experts_consecutive;
    w->apart = w->what->experts_apart;
    if (stored && !w->consecutive) w->consecutive = &w->stored.consecutive;
    if (stored && !w->apart) w->apart = &w->stored.apart;
}

/* Distinct experts of a layer that work on n rows: consecutive tokens, or one of each sequence. */
static double distinct_experts(const struct work *w, int n, bool consecutive)
{
    const struct model_shape *s = &w->o.shape;
    if (!s->experts) return 0;
    if (!consecutive && w->what->decode_experts > 0) return w->what->decode_experts;
    return experts_distinct(consecutive ? w->consecutive : w->apart, s->experts, s->experts_used, n);
}

/* Seconds of `count` of the matrices of p with n rows. Only the experts that some row chose are read, each by
 * its share of the rows. */
static double products_s(struct work *w, const struct model_product *p, int count, int n, double distinct)
{
    const int used = w->o.shape.experts_used;
    struct model_product one = *p;
    if (p->experts == PRODUCT_DENSE) return count * cost_product(&w->cost, p, n);
    const double rows = n * used / distinct, more = rows - floor(rows);
    if (n == 1 || p->experts == PRODUCT_EXPERTS_TOGETHER)
        one.together = (int64_t)((double)p->together * distinct);
    double s = cost_product(&w->cost, &one, (int)rows);
    if (more > 0) s += more * (cost_product(&w->cost, &one, (int)rows + 1) - s);
    return count * distinct / used * s;
}

/* Seconds of a pass over n rows that all need logits: of independent sequences, or consecutive tokens. */
static double step_s(struct work *w, int n, bool consecutive)
{
    const struct model_operations *o = &w->o;
    const double distinct = distinct_experts(w, n, consecutive);
    double s = 0;
    for (int i = 0; i < o->n; i++) s += products_s(w, &o->product[i], o->product[i].count, n, distinct);
    s += o->shape.layers * cost_elementwise(&w->cost, o->shape.embd, n);
    s += attention_s(w, n, w->depth, consecutive && n > 1);
    return s + LOGIT_S * (double)o->shape.vocab * n;
}

/* Seconds of one pass over `n` rows of prompts, of which `wanted` rows end a prompt and need logits. */
static double prefill_pass_s(struct work *w, int n, int wanted)
{
    const struct model_operations *o = &w->o;
    const double distinct = distinct_experts(w, n, true), last = distinct_experts(w, wanted, true);
    double s = 0;
    for (int i = 0; i < o->n; i++) {
        const struct model_product *p = &o->product[i];
        const int whole = p->part == PRODUCT_EARLY  ? p->count
                          : p->part == PRODUCT_LATE ? p->count - p->last
                                                    : 0;
        const int ends = p->count - whole;
        if (whole) s += products_s(w, p, whole, n, distinct);
        if (ends && wanted) s += products_s(w, p, ends, wanted, last);
    }
    return s + o->shape.layers * cost_elementwise(&w->cost, o->shape.embd, n);
}

/* Seconds of passes that compute `tokens` tokens of each sequence, from the first one on. */
static double recompute_s(struct work *w, int tokens)
{
    return w->sequences * (prefill_pass_s(w, tokens, 1) + attention_s(w, tokens, 0.5 * (tokens + 1), true));
}

static double decode_step_s(struct work *w)
{
    if (w->recomputes) return recompute_s(w, w->depth + 1);
    return step_s(w, w->sequences, false);
}

/* Mean seconds of a decode step over the tokens of the run. Its first step finds no weights in the caches,
 * which other work replaced, and without a prompt before it the other threads are asleep. */
static double decode_mean_s(struct work *w)
{
    const double s = decode_step_s(w), footprint = w->cost.footprint;
    if (!w->what->gen || w->cost.all_cached) return s;
    w->cost.footprint = INFINITY;
    const double first = decode_step_s(w);
    w->cost.footprint = footprint;
    const bool asleep = !w->what->prompt && !w->what->past;
    return s + (first - s + (asleep ? cost_wake(&w->cost) : 0)) / w->what->gen;
}

static double prefill_s_total(struct work *w)
{
    if (w->recomputes) return recompute_s(w, w->what->past + w->prompt);
    const int64_t rows = (int64_t)w->prompt * w->sequences;
    const int batch = (int)MIN((int64_t)MAX(w->o.batch, 1), rows);
    const int64_t passes = rows / batch;
    const int rest = (int)(rows % batch);
    const bool asleep = w->what->prompt && !w->what->past; /* the other threads sleep before the run */
    double s = (double)(rest ? passes : passes - 1) * prefill_pass_s(w, batch, 0);
    if (asleep) s += cost_wake(&w->cost);
    s += prefill_pass_s(w, rest ? rest : batch, w->sequences);
    const double seen = w->what->past + 0.5 * (w->prompt + 1);
    return s + w->sequences * attention_s(w, w->prompt, seen, true);
}

/* ---------------------------------------------------------------- limits */

/* The larger of two times; NAN when either is unknown. */
static double max_or_nan(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

static double rate_of(double seconds)
{
    return seconds > 0 ? 1 / seconds : NAN;
}

/* The format that holds the largest number of weights, over all matrix products of the model. NULL: there are
 * no products, or that format is unknown. */
static const struct format *dominant_format(const struct model_operations *o)
{
    const struct format *most = NULL;
    double most_weights = 0;
    for (int i = 0; i < o->n; i++) {
        const struct model_product *p = &o->product[i];
        double weights = 0;
        for (int k = 0; k < o->n; k++)
            if (o->product[k].format == p->format)
                weights += (double)o->product[k].count * (double)o->product[k].rows *
                           (double)o->product[k].cols;
        if (weights > most_weights) {
            most_weights = weights;
            most = p->format;
        }
    }
    return most;
}

/* Bytes that a decode step of w->sequences sequences reads: weights, keys and values, and states. */
static double decode_bytes(const struct work *w, const struct memory_plan *p)
{
    return plan_step_bytes(p, &w->o.shape, distinct_experts(w, w->sequences, false)) +
           (double)p->kv_bytes_per_token * w->depth * w->sequences + (double)p->state;
}

static void set_limits(struct prediction *out, struct work *w)
{
    const struct memory_plan *p = &out->plan;
    const struct format *weights = dominant_format(&w->o);
    const double bytes = decode_bytes(w, p),
                 batch = (double)MAX(w->o.batch, 1); /* rows that share one pass */
    const double one_row = cost_gemv_operations(&w->cost, weights);
    const double many_rows = cost_gemm_operations(&w->cost, weights);
    /* Rows that are decoded together are computed as dot products or as GEMM, whichever is faster. */
    const double think_s = p->flops_per_token * w->sequences /
                           (w->sequences > 1 ? fmax(one_row, many_rows) : one_row);
    const double row_s = p->flops_per_token / many_rows;
    const double read_s = bytes / w->cost.bandwidth;
    const double decode_s = max_or_nan(read_s, think_s);
    const double pass_bytes = plan_step_bytes(p, &w->o.shape, distinct_experts(w, (int)batch, true));
    const double prefill_s = max_or_nan(pass_bytes / w->cost.bandwidth / batch, row_s);
    out->in_cache = !w->cost.on_gpu &&
                    (double)p->decode_read_bytes <= (double)cost_cache_bytes(w->cost.machine);
    out->decode_bound_by_memory = read_s >= think_s;
    /* A cache delivers weights faster than the measured memory bandwidth: only arithmetic limits then. */
    out->decode_limit_tok_s = w->sequences * rate_of(out->in_cache && !isnan(decode_s) ? think_s : decode_s);
    out->prefill_limit_tok_s = rate_of(out->in_cache && !isnan(prefill_s) ? row_s : prefill_s);
}

/* ---------------------------------------------------------------- intervals */

/* Without earlier runs, a prediction cannot exceed the machine's limit. With them it may: the ceilings may
 * have been measured while the machine was busy. */
static struct estimate estimate_cap_at_limit(struct estimate e, double limit)
{
    if (e.runs || !(limit > 0)) return e;
    return (struct estimate){
        { fmin(e.value.estimate, limit), fmin(e.value.lower, limit), fmin(e.value.upper, limit) }, 0
    };
}

static double root_of_squares(double a, double b)
{
    return sqrt(a * a + b * b);
}

struct spreads {
    double decode, prefill;
};

static struct spreads prior_spreads(const struct prediction *p, const struct cost *c)
{
    struct spreads s = { TIMED_DECODE_SD, TIMED_PREFILL_SD };
    if (p->on_gpu)
        s = (struct spreads){ GPU_DECODE_SD, GPU_PREFILL_SD };
    else if (p->in_cache && p->assumed)
        s = (struct spreads){ CACHED_SD, CACHED_SD };
    else if (p->in_cache)
        s = (struct spreads){ TIMED_CACHED_SD, TIMED_CACHED_SD };
    else if (p->assumed)
        s = (struct spreads){ SHARE_DECODE_SD, SHARE_PREFILL_SD };
    if (p->assumed && !p->on_gpu && c->machine->numa_nodes > 1 && isnan(ceilings_node_bytes_s(c->ceilings)))
        s.decode = root_of_squares(s.decode, NUMA_SD);
    if (c->options.isa != c->machine->isa && !p->on_gpu)
        s = (struct spreads){ root_of_squares(s.decode, BARRED_SD), root_of_squares(s.prefill, BARRED_SD) };
    return s;
}

static double load_s(const struct work *w, const struct memory_plan *p, const struct config *c)
{
    double s = OPEN_S + VOCABULARY_S * (double)w->o.shape.vocab;
    if (w->cost.on_gpu) return s + (double)p->weights / w->cost.ceilings->gpu.link_bytes_s;
    if (config_copies_weights(c)) s += 2 * (double)p->weights / w->cost.ceilings->read_bytes_s_1;
    if (!strcmp(config_text(c, KNOB_PREFETCH), "populate")) s += (double)p->weights / PAGES_BYTES_S;
    return s;
}

/* Estimated watts while these threads compute; NAN: unknown. Without a power reading, THREAD_WATTS per thread
 * is only the starting point for the correction by runs that had a power sensor; it is never printed. */
static const double THREAD_WATTS = 10;
static double power_watts(const struct cost *c)
{
    const struct machine_ceilings *k = c->ceilings;
    const double all = c->on_gpu ? k->gpu.power_watts : k->power_watts;
    const double BASE = 0.3; /* share of full power that everything but the cores draws */
    if (!(all > 0)) return NAN;
    return c->on_gpu ? 0.7 * all : all * (BASE + (1 - BASE) * fmin(1, (double)c->threads / c->threads_all));
}

/* Pages of a mapped file are resident only after a first access. Of the embedding these are the rows of the
 * tokens that occurred, each with the 64 KiB that the kernel maps around it. About a fifth of a text's tokens
 * are new ones. */
static double untouched_bytes(const struct work *w, const struct gguf *g, const struct config *c)
{
    const double NEW_TOKENS = 0.2, AROUND = 65536;
    const struct backend_options held = { .repack = config_choice(c, KNOB_REPACK) != 0 };
    const struct gguf_tensor *t = gguf_tensor_find(g, "token_embd.weight");
    const struct format *f = t ? recipe_tensor_format(c, g, t, NULL) : NULL;
    if (!t || backend_held_format(&held, f) != f || w->o.shape.tied_output || config_copies_weights(c) ||
        !strcmp(config_text(c, KNOB_PREFETCH), "populate"))
        return 0;
    const double bytes = (double)format_row_bytes(f, t->shape[0]) * (double)t->shape[1];
    const double tokens = NEW_TOKENS * ((double)w->prompt * w->sequences + w->depth);
    return bytes * exp(-tokens * AROUND / bytes);
}

/* Share of a time that is waiting for memory: the time saved if all weights were in a cache. */
static double memory_share(struct work *w, double (*seconds)(struct work *w), double all_s)
{
    w->cost.all_cached = true;
    const double share = 1 - seconds(w) / all_s;
    w->cost.all_cached = false;
    return share > 0 ? share : 0; /* also when the result is NAN (unknown) */
}

static void set_residual_work(struct prediction *out, struct work *w, double decode_s, double prefill_s)
{
    out->decode_work = out->prefill_work = (struct residual_work){ .batch = w->o.batch,
                                                                   .sequences = w->sequences,
                                                                   .threads = w->cost.threads,
                                                                   .conditions = w->what->conditions };
    out->decode_work.depth = w->depth;
    out->decode_work.memory_share = memory_share(w, decode_mean_s, decode_s);
    out->prefill_work.depth = w->what->past;
    out->prefill_work.memory_share = memory_share(w, prefill_s_total, prefill_s);
}

static void set_estimates(struct prediction *out, struct work *w, const struct config *c, double decode_s,
                          double prefill_s)
{
    const struct correction *l = w->what->correction;
    struct residual_traits t;
    const struct spreads sd = prior_spreads(out, &w->cost);
    residual_traits_of(&t, &w->o.shape, c, &out->decode_work);
    struct estimate e = estimate_cap_at_limit(correction_estimate(l, METRICS[METRIC_DECODE_RATE].name, &t,
                                                                  w->sequences * rate_of(decode_s),
                                                                  sd.decode),
                                              out->decode_limit_tok_s);
    out->decode_tok_s = e.value;
    out->runs = e.runs;
    const double watts = power_watts(&w->cost);
    out->token_uncorrected_j = (isnan(watts) ? THREAD_WATTS * w->cost.threads : watts) * decode_s /
                               w->sequences;
    e = correction_estimate(l, RESIDUAL_TOKEN_J, &t, out->token_uncorrected_j, ENERGY_SD);
    out->token_j = isnan(watts) && !e.runs ? UNKNOWN : e.value;
    residual_traits_of(&t, &w->o.shape, c, &out->prefill_work);
    e = estimate_cap_at_limit(correction_estimate(l, METRICS[METRIC_PREFILL_RATE].name, &t,
                                                  (double)w->prompt * w->sequences * rate_of(prefill_s),
                                                  sd.prefill),
                              out->prefill_limit_tok_s);
    out->prefill_tok_s = e.value;
    out->load_s =
        correction_estimate(l, METRICS[METRIC_LOAD_TIME].name, &t, load_s(w, &out->plan, c), LOAD_SD).value;
    out->peak_bytes = correction_estimate(l, METRICS[METRIC_PEAK_MEMORY].name, &t,
                                          (double)out->plan.total + PROGRAM_BYTES - w->untouched, PEAK_SD)
                          .value;
}

/* No kernel of an OpenCL device was timed yet, and the CPU's times say nothing about it. */
static void set_unknown(struct prediction *out)
{
    out->decode_limit_tok_s = out->prefill_limit_tok_s = out->token_uncorrected_j = NAN;
    out->decode_tok_s = out->prefill_tok_s = out->token_j = out->load_s = out->peak_bytes = UNKNOWN;
    out->runs = 0;
}

/* The config with `threads=0` replaced by that machine's number of threads: the memory estimate depends on
 * it, and the estimate need not read this machine's topology on every call. */
static struct config config_with_threads(const struct config *c, const struct machine *m)
{
    struct config sized = *c;
    if (config_int(c, KNOB_THREADS) == 0) config_resolve_int(&sized, KNOB_THREADS, cost_threads(c, m), NULL);
    return sized;
}

enum err_code predict(struct prediction *out, const struct gguf *g, const struct config *c,
                      const struct machine *machine, const struct machine_ceilings *ceilings,
                      const struct predict_for *what, struct err *why)
{
    const struct parallel mode = config_parallel(c);
    if (parallel_ranks(&mode) > 1) return predict_ranks(out, g, c, machine, ceilings, what, why);
    struct work w = { .what = what, .sequences = MAX(what->sequences, 1) };
    memset(out, 0, sizeof *out);
    out->exchange_ratio = out->prefill_exchange_ratio = NAN;
    const struct config sized = config_with_threads(c, machine);
    enum err_code rc = recipe_plan_memory(&out->plan, g, &sized, what->ctx, w.sequences, why);
    if (!rc) rc = recipe_plan_operations(&w.o, g, &sized, why);
    if (rc) return rc;
    work_set_experts(&w, g);
    const struct memory_plan *p = &out->plan;
    const int64_t have = predict_memory(machine, ceilings, what->on_gpu);
    out->on_gpu = what->on_gpu;
    out->fits = !memory_plan_check(p, config_text(c, KNOB_DEVICE), have, NULL);
    out->step_read_bytes = plan_step_bytes(p, &w.o.shape, distinct_experts(&w, w.sequences, false));
    out->depth = w.depth = what->depth > 0 ? what->depth : predict_depth(p->ctx);
    w.prompt = what->prompt > 0 ? what->prompt : PREDICT_PROMPT;
    cost_init(&w.cost, machine, ceilings, c, what->on_gpu, &what->conditions);
    w.cost.footprint = decode_bytes(&w, p);
    w.untouched = untouched_bytes(&w, g, c);
    w.recomputes = config_choice(c, KNOB_KV_CACHE) == CACHE_OFF;
    set_limits(out, &w);
    const double decode_s = decode_mean_s(&w);
    out->decode_threads = p->gpu_layers ? 0 : w.cost.multi_threaded ? cost_threads(c, machine) : 1;
    const double prefill_s = prefill_s_total(&w);
    out->assumed = w.cost.assumed_lookups > 0;
    set_residual_work(out, &w, decode_s, prefill_s);
    set_estimates(out, &w, c, isnan(out->decode_limit_tok_s) ? NAN : decode_s,
                  isnan(out->prefill_limit_tok_s) ? NAN : prefill_s);
    if (p->gpu_layers) set_unknown(out);
    return ERR_OK;
}

enum err_code predict_steps(double *seconds, const struct gguf *g, const struct config *c,
                            const struct machine *machine, const struct machine_ceilings *ceilings,
                            const struct predict_for *what, struct err *why)
{
    const int *rows = what->rows;
    const bool consecutive = what->consecutive;
    struct work w = { .what = what };
    struct memory_plan plan;
    const struct config sized = config_with_threads(c, machine);
    enum err_code rc = recipe_plan_memory(&plan, g, &sized, what->ctx, 1, why);
    if (!rc) rc = recipe_plan_operations(&w.o, g, &sized, why);
    if (rc) return rc;
    work_set_experts(&w, g);
    w.depth = what->depth > 0 ? what->depth : predict_depth(plan.ctx);
    for (int i = 0; i < what->steps; i++) {
        const int caches = consecutive ? 1 : rows[i];
        cost_init(&w.cost, machine, ceilings, c, what->on_gpu, &what->conditions);
        w.cost.footprint = plan_step_bytes(&plan, &w.o.shape, distinct_experts(&w, rows[i], consecutive)) +
                           ((double)plan.kv_bytes_per_token * w.depth + (double)plan.state) * caches;
        seconds[i] = plan.gpu_layers ? NAN : step_s(&w, rows[i], consecutive);
    }
    return ERR_OK;
}
