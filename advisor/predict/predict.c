/* advisor/predict/predict.c - the work of a forward pass, added up. */
#include "advisor/predict/predict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advisor/predict/cost.h"
#include "engine/quant/quant.h"

enum { PROMPT = 512 };

/* Standard deviations of ln(measured / predicted) before any run: with the kernels' times of this machine,
 * and with shares of ceilings; of a GPU by its maker's figures; of a model in a cache that nobody timed. What
 * a machine's own runs say soon replaces them (predict.h). */
static const double TIMED_DECODE_SD = 0.08, TIMED_PREFILL_SD = 0.11;
static const double SHARE_DECODE_SD = 0.30, SHARE_PREFILL_SD = 0.35;
static const double GPU_DECODE_SD = 0.45, GPU_PREFILL_SD = 0.55;
static const double TIMED_CACHED_SD = 0.14, CACHED_SD = 0.70, BARRED_SD = 0.15, NUMA_SD = 0.40;
static const double LOAD_SD = 0.60, PEAK_SD = 0.018, ENERGY_SD = 0.30;

/* Finding the most likely of the logits, and handing them over: per entry. */
static const double LOGIT_S = 0.8e-9;
/* Opening: reading the header and the vocabulary; copying; asking for pages ahead. */
static const double OPEN_S = 0.01, VOCABULARY_S = 0.4e-6, PAGES_BYTES_S = 8e9;
/* A GPU's driver keeps some of its memory; of a unified memory the system keeps a quarter. */
static const double GPU_SHARE = 0.92, UNIFIED_SHARE = 0.75;

int predict_depth(int ctx)
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

static int64_t memory_for_us(const struct machine *m)
{
    int64_t bytes = m->memory_available_bytes > 0 ? m->memory_available_bytes : m->memory_bytes;
    if (m->cgroup_memory_bytes > 0 && (bytes < 0 || m->cgroup_memory_bytes < bytes))
        bytes = m->cgroup_memory_bytes;
    return bytes;
}

/* All GPUs of a machine hold one model together, layer by layer. */
static int64_t gpu_memory(const struct machine *m, const struct machine_ceilings *k)
{
    double bytes = 0;
    if (k->gpu.unified) return (int64_t)(UNIFIED_SHARE * (double)m->memory_bytes);
    for (int i = 0; i < m->gpus; i++) bytes += (double)MAX(m->gpu[i].memory_bytes, 0);
    return bytes > 0 ? (int64_t)(GPU_SHARE * bytes) : -1;
}

int64_t predict_memory(const struct machine *m, const struct machine_ceilings *k, bool on_gpu)
{
    return on_gpu ? gpu_memory(m, k) : memory_for_us(m);
}

/* What a worker holds beside its plan: code, libraries, vocabulary; between 11.9 and 12.7 MiB of the models
 * this was looked at with. */
static const double PROGRAM_BYTES = 12.4 * (1 << 20);

/* ---------------------------------------------------------------- work */

struct work {
    struct cost cost;
    struct model_operations o;
    const struct predict_for *what;
    int sequences, depth, prompt;
    double untouched; /* bytes of the plan that such a run never looks at */
};

/* Of a layer, on average: those with a window look back no further than that. */
static double seconds_attending(struct work *w, double n, double depth, bool many)
{
    const struct model_operations *o = &w->o;
    struct cost_attention a = { .k = o->k_format,
                                .v = o->v_format,
                                .heads = o->shape.heads,
                                .kv_heads = o->shape.kv_heads,
                                .dim_k = o->shape.head_dim_k,
                                .dim_v = o->shape.head_dim_v,
                                .n = n,
                                .depth = depth,
                                .many = many };
    const int near = o->windowed_layers, all = o->shape.layers;
    double s = (all - near) * cost_attention(&w->cost, &a);
    if (near) {
        a.depth = fmin(depth, o->window);
        s += near * cost_attention(&w->cost, &a);
    }
    return s;
}

static double seconds_a_token(struct work *w)
{
    const struct model_operations *o = &w->o;
    const int n = w->sequences;
    double s = 0;
    for (int i = 0; i < o->n; i++) {
        const struct model_product *p = &o->product[i];
        s += p->count * cost_product(&w->cost, p, n);
    }
    s += o->shape.layers * cost_glue(&w->cost, o->shape.embd, n);
    s += seconds_attending(w, n, w->depth, false);
    return s + LOGIT_S * (double)o->shape.vocab * n;
}

/* Of a run's tokens on average. What else the machine did before it has emptied the caches, and without a
 * prompt the other threads sleep. */
static double seconds_decoding(struct work *w)
{
    const double s = seconds_a_token(w), footprint = w->cost.footprint;
    if (!w->what->gen || w->cost.cached) return s;
    w->cost.footprint = INFINITY;
    const double first = seconds_a_token(w);
    w->cost.footprint = footprint;
    const bool asleep = !w->what->prompt && !w->what->past;
    return s + (first - s + (asleep ? cost_waking(&w->cost) : 0)) / w->what->gen;
}

/* One pass over `n` rows of prompts; `wanted` of them end one. */
static double seconds_passing(struct work *w, int n, int wanted)
{
    const struct model_operations *o = &w->o;
    double s = 0;
    for (int i = 0; i < o->n; i++) {
        const struct model_product *p = &o->product[i];
        const int whole = p->part == PRODUCT_EARLY  ? p->count
                          : p->part == PRODUCT_LATE ? p->count - p->last
                                                    : 0;
        const int ends = p->count - whole;
        if (whole) s += whole * cost_product(&w->cost, p, n);
        if (ends && wanted) s += ends * cost_product(&w->cost, p, wanted);
    }
    return s + o->shape.layers * cost_glue(&w->cost, o->shape.embd, n);
}

static double seconds_prefilling(struct work *w)
{
    const int64_t rows = (int64_t)w->prompt * w->sequences;
    const int batch = (int)MIN((int64_t)MAX(w->o.batch, 1), rows);
    const int64_t passes = rows / batch;
    const int rest = (int)(rows % batch);
    const bool asleep = w->what->prompt && !w->what->past; /* the other threads, before a run */
    double s = (double)(rest ? passes : passes - 1) * seconds_passing(w, batch, 0);
    if (asleep) s += cost_waking(&w->cost);
    s += seconds_passing(w, rest ? rest : batch, w->sequences);
    const double seen = w->what->past + 0.5 * (w->prompt + 1);
    return s + w->sequences * seconds_attending(w, w->prompt, seen, true);
}

/* ---------------------------------------------------------------- limits */

/* Greater of two times of which either may be unknown: then the result is, too. */
static double longer(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

static double rate(double seconds)
{
    return seconds > 0 ? 1 / seconds : NAN;
}

/* The format most weights are in. NULL unknown. */
static const struct format *dominant(const struct model_operations *o)
{
    const struct format *most = NULL;
    double bytes = 0;
    for (int i = 0; i < o->n; i++) {
        const struct model_product *p = &o->product[i];
        double sum = 0;
        for (int k = 0; k < o->n; k++)
            if (o->product[k].format == p->format)
                sum += (double)o->product[k].count * (double)o->product[k].rows * (double)o->product[k].cols;
        if (sum > bytes) {
            bytes = sum;
            most = p->format;
        }
    }
    return most;
}

static void put_limits(struct prediction *out, struct work *w)
{
    const struct memory_plan *p = &out->plan;
    const struct format *weights = dominant(&w->o);
    const double bytes = (double)p->decode_read_bytes +
                         (double)p->kv_bytes_per_token * w->depth * w->sequences;
    const double one_row = cost_one_row_operations(&w->cost, weights);
    const double many_rows = cost_many_rows_operations(&w->cost, weights);
    /* Rows that are decoded together may be dotted like one or multiplied like a prompt. */
    const double think_s = p->flops_per_token * w->sequences /
                           (w->sequences > 1 ? fmax(one_row, many_rows) : one_row);
    const double row_s = p->flops_per_token / many_rows;
    const double read_s = bytes / w->cost.bandwidth;
    const double batch = (double)MAX(w->o.batch, 1); /* rows that share one pass over the weights */
    const double decode_s = longer(read_s, think_s);
    const double prefill_s = longer((double)p->decode_read_bytes / w->cost.bandwidth / batch, row_s);
    out->in_cache = !w->cost.on_gpu &&
                    (double)p->decode_read_bytes <= (double)cost_cache_bytes(w->cost.machine);
    out->decode_bound_by_memory = read_s >= think_s;
    /* From the cache weights come faster than the memory's measured bandwidth: then only arithmetic limits.
     */
    out->decode_limit_tok_s = w->sequences * rate(out->in_cache && !isnan(decode_s) ? think_s : decode_s);
    out->prefill_limit_tok_s = rate(out->in_cache && !isnan(prefill_s) ? row_s : prefill_s);
}

/* ---------------------------------------------------------------- intervals */

/* Before anything was measured, nobody is above the limit; measured runs may show that the limit was measured
 * on a busy machine. */
static struct estimate capped(struct estimate e, double limit)
{
    if (e.runs || !(limit > 0)) return e;
    return (struct estimate){ fmin(e.value, limit), fmin(e.low, limit), fmin(e.high, limit), 0 };
}

static double root_of_squares(double a, double b)
{
    return sqrt(a * a + b * b);
}

struct spreads {
    double decode, prefill;
};

static struct spreads spreads_of(const struct prediction *p, const struct cost *c)
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

/* What is predicted in one go: the metric's name and where its estimate goes. */
static void put_estimate(struct estimate e, double *value, double *low, double *high)
{
    *value = e.value;
    *low = e.low;
    *high = e.high;
}

static double seconds_loading(const struct work *w, const struct memory_plan *p, const struct config *c)
{
    double s = OPEN_S + VOCABULARY_S * (double)w->o.shape.vocab;
    if (w->cost.on_gpu) return s + (double)p->weights / w->cost.ceilings->gpu.link_bytes_s;
    if (config_choice(c, KNOB_HUGEPAGES) == HUGE_PAGES_ALL)
        s += 2 * (double)p->weights / w->cost.ceilings->read_bytes_s_1;
    if (!strcmp(config_text(c, KNOB_PREFETCH), "populate")) s += (double)p->weights / PAGES_BYTES_S;
    return s;
}

/* Watts while these threads compute; NAN unknown. A thread that computes draws some ten: a start for what
 * runs with a meter teach, told to nobody. */
static const double THREAD_WATTS = 10;
static double watts_of(const struct cost *c)
{
    const struct machine_ceilings *k = c->ceilings;
    const double all = c->on_gpu ? k->gpu.power_watts : k->power_watts;
    const double BASE = 0.3; /* of it is drawn by what is not cores */
    if (!(all > 0)) return NAN;
    return c->on_gpu ? 0.7 * all : all * (BASE + (1 - BASE) * fmin(1, (double)c->threads / c->threads_all));
}

/* Of a mapped file only what is touched is in memory: of the embedding the rows of tokens that occurred, each
 * with the 64 KiB around it that the kernel maps at once. A text repeats itself: a fifth of its tokens are
 * new ones. */
static double untouched_bytes(const struct work *w, const struct gguf *g, const struct config *c)
{
    const double NEW_TOKENS = 0.2, AROUND = 65536;
    const struct backend_options held = { .repack = config_choice(c, KNOB_REPACK) != 0 };
    const struct gguf_tensor *t = gguf_tensor_find(g, "token_embd.weight");
    const struct format *f = t ? recipe_tensor_format(c, g, t, NULL) : NULL;
    if (!t || backend_held_format(&held, f) != f || w->o.shape.tied_output ||
        config_choice(c, KNOB_HUGEPAGES) == HUGE_PAGES_ALL ||
        !strcmp(config_text(c, KNOB_PREFETCH), "populate"))
        return 0;
    const double bytes = (double)format_row_bytes(f, t->shape[0]) * (double)t->shape[1];
    const double tokens = NEW_TOKENS * ((double)w->prompt * w->sequences + w->depth);
    return bytes * exp(-tokens * AROUND / bytes);
}

/* Share of a time that is waiting for memory: what is saved were all in a cache. */
static double reading_share(struct work *w, double (*seconds)(struct work *w), double all_s)
{
    w->cost.cached = true;
    const double share = 1 - seconds(w) / all_s;
    w->cost.cached = false;
    return share > 0 ? share : 0; /* NAN: nothing is known */
}

static void put_works(struct prediction *out, struct work *w, double decode_s, double prefill_s)
{
    out->decode_work = out->prefill_work = (struct lesson_work){
        .batch = w->o.batch, .sequences = w->sequences, .threads = w->cost.threads, .now = w->what->now
    };
    out->decode_work.depth = w->depth;
    out->decode_work.reading = reading_share(w, seconds_decoding, decode_s);
    out->prefill_work.depth = w->what->past;
    out->prefill_work.reading = reading_share(w, seconds_prefilling, prefill_s);
}

static void put_estimates(struct prediction *out, struct work *w, const struct config *c, double decode_s,
                          double prefill_s)
{
    const struct lessons *l = w->what->lessons;
    struct lesson_traits t;
    const struct spreads sd = spreads_of(out, &w->cost);
    lesson_traits_of(&t, &w->o.shape, c, &out->decode_work);
    struct estimate e = capped(
        lessons_correct(l, "decode_tok_s", &t, w->sequences * rate(decode_s), sd.decode),
        out->decode_limit_tok_s);
    put_estimate(e, &out->decode_tok_s, &out->decode_low, &out->decode_high);
    out->runs = e.runs;
    const double watts = watts_of(&w->cost);
    out->token_untaught_j = (isnan(watts) ? THREAD_WATTS * w->cost.threads : watts) * decode_s / w->sequences;
    e = lessons_correct(l, "token_j", &t, out->token_untaught_j, ENERGY_SD);
    if (isnan(watts) && !e.runs) e = (struct estimate){ NAN, NAN, NAN, 0 };
    put_estimate(e, &out->token_j, &out->token_low_j, &out->token_high_j);
    lesson_traits_of(&t, &w->o.shape, c, &out->prefill_work);
    e = capped(lessons_correct(l, "prefill_tok_s", &t, (double)w->prompt * w->sequences * rate(prefill_s),
                               sd.prefill),
               out->prefill_limit_tok_s);
    put_estimate(e, &out->prefill_tok_s, &out->prefill_low, &out->prefill_high);
    put_estimate(lessons_correct(l, "load_s", &t, seconds_loading(w, &out->plan, c), LOAD_SD), &out->load_s,
                 &out->load_low_s, &out->load_high_s);
    put_estimate(lessons_correct(l, "peak_rss_bytes", &t,
                                 (double)out->plan.total + PROGRAM_BYTES - w->untouched, PEAK_SD),
                 &out->peak_bytes, &out->peak_low_bytes, &out->peak_high_bytes);
}

/* Of an OpenCL device no kernel was timed yet: what the processor would do says nothing of it. */
static void put_unknown(struct prediction *out)
{
    static const struct estimate NONE = { NAN, NAN, NAN, 0 };
    out->decode_limit_tok_s = out->prefill_limit_tok_s = out->token_untaught_j = NAN;
    put_estimate(NONE, &out->decode_tok_s, &out->decode_low, &out->decode_high);
    put_estimate(NONE, &out->prefill_tok_s, &out->prefill_low, &out->prefill_high);
    put_estimate(NONE, &out->token_j, &out->token_low_j, &out->token_high_j);
    put_estimate(NONE, &out->load_s, &out->load_low_s, &out->load_high_s);
    put_estimate(NONE, &out->peak_bytes, &out->peak_low_bytes, &out->peak_high_bytes);
    out->runs = 0;
}

/* The config with that machine's number of threads in the place of "all": the plan's buffers follow it, and
 * this machine need not be asked (which costs a look at its topology each time). */
static struct config sized_for(const struct config *c, const struct machine *m)
{
    struct config sized = *c;
    if (config_int(c, KNOB_THREADS) == 0)
        snprintf(sized.value[KNOB_THREADS], sizeof sized.value[0], "%d", cost_threads(c, m));
    return sized;
}

enum err_code predict(struct prediction *out, const struct gguf *g, const struct config *c,
                      const struct machine *machine, const struct machine_ceilings *ceilings,
                      const struct predict_for *what, struct err *why)
{
    struct work w = { .what = what, .sequences = MAX(what->sequences, 1) };
    memset(out, 0, sizeof *out);
    const struct config sized = sized_for(c, machine);
    enum err_code rc = recipe_plan_memory(&out->plan, g, &sized, what->ctx, w.sequences, why);
    if (!rc) rc = recipe_plan_operations(&w.o, g, &sized, why);
    if (rc) return rc;
    const struct memory_plan *p = &out->plan;
    const int64_t have = predict_memory(machine, ceilings, what->on_gpu);
    out->on_gpu = what->on_gpu;
    out->fits = !memory_plan_check(p, config_text(c, KNOB_DEVICE), have, NULL);
    out->depth = w.depth = what->depth > 0 ? what->depth : predict_depth(p->ctx);
    w.prompt = what->prompt > 0 ? what->prompt : PROMPT;
    cost_init(&w.cost, machine, ceilings, c, what->on_gpu, &what->now);
    w.cost.footprint = (double)p->decode_read_bytes + (double)p->kv_bytes_per_token * w.depth * w.sequences;
    w.untouched = untouched_bytes(&w, g, c);
    put_limits(out, &w);
    const double decode_s = seconds_decoding(&w);
    out->decode_threads = p->gpu_layers ? 0 : w.cost.shared ? cost_threads(c, machine) : 1;
    const double prefill_s = seconds_prefilling(&w);
    out->assumed = w.cost.assumed > 0;
    put_works(out, &w, decode_s, prefill_s);
    put_estimates(out, &w, c, isnan(out->decode_limit_tok_s) ? NAN : decode_s,
                  isnan(out->prefill_limit_tok_s) ? NAN : prefill_s);
    if (p->gpu_layers) put_unknown(out);
    return ERR_OK;
}
