/* advisor/predict/cost.c - predicts the seconds of one operation.
 *
 * If the machine's kernels were timed (`qdyno detect --kernels`), those times are interpolated to other
 * shapes, row counts, thread counts and cache levels. Otherwise a fixed share of the machine's ceilings
 * replaces them (SHARES, MANY_ROWS). Measured on undisturbed machines were streaming and bf16 tiles (Xeon
 * with AMX), bf16_dot, int8_dot and f32_fma (Zen 5). The others are guesses: such predictions have wide
 * intervals, and the correction model adjusts them after a few runs. */
#include "advisor/predict/cost.h"

#include <math.h>
#include <string.h>

/* Share of a ceiling that a kernel is assumed to reach when it was not timed. */
static const struct {
    double stream; /* of read bandwidth: GEMV, weights in memory */
    /* GEMV, weights in a cache: of 8-bit dot products, or of f32 when the weights are floats */
    double one_row;
    double few_rows; /* the same with 4 to 16 rows */
    double attend;   /* attention of one row: of f32 arithmetic */
    double attend_many;
} SHARES = { .stream = 0.93, .one_row = 0.075, .few_rows = 0.20, .attend = 0.10, .attend_many = 0.25 };
/* Share of an arithmetic ceiling that GEMM reaches after unpacking and packing. */
static const struct {
    const char *ceiling;
    double share;
} MANY_ROWS[] = { { .ceiling = "bf16_tile", .share = 0.30 },
                  { .ceiling = "int8_tile", .share = 0.20 },
                  { .ceiling = "bf16_dot", .share = 0.70 },
                  { .ceiling = "int8_dot", .share = 0.55 },
                  { .ceiling = "f32_fma", .share = 0.60 } };
/* Share of the bandwidth of all memory nodes that remains when threads of every node read one mapped file.
 * Used when that was not measured. */
static const double NUMA_SHARE = 0.6;
enum { MANY_ROWS_FROM = 16 }; /* with fewer rows, products are computed as dot products */
/* Defaults for a parallel region and for a layer's norms and rotations, when they were not timed. */
static const double REGION_S = 3e-6, GLUE_S = 6e-6, GLUE_ELEMENT_S = 1.5e-9, EDGE_S = 4e-10;

/* Shares of the vendor's figures for GPUs; every operation also costs a launch. These are guesses: we
 * measured no GPU. Programs and cards differ widely, so the interval is wide. */
static const struct {
    double stream, many, attend, launch_s;
} GPU_SHARES = { .stream = 0.50, .many = 0.40, .attend = 0.15, .launch_s = 5e-6 };

static double positive_or_nan(double v)
{
    return v > 0 && isfinite(v) ? v : NAN;
}

/* ---------------------------------------------------------------- ceilings */

int cost_threads(const struct config *c, const struct machine *m)
{
    int all = machine_threads(m);
    const int asked = (int)config_int(c, KNOB_THREADS);
    if (config_choice(c, KNOB_NUMA) == NUMA_LOCAL && m->numa_nodes > 1)
        all = MAX(MIN(all, m->cores / m->numa_nodes), 1);
    return asked > 0 ? asked : all;
}

static uint32_t config_isa(const struct config *c, const struct machine *m)
{
    uint32_t allowed, usable, bits = m->isa;
    const char *text = config_text(c, KNOB_ISA);
    struct err ignored;
    const bool described = !*m->host; /* a description or recording names no host */
    if (!described && bits == isa_detect() && !isa_usable(&usable, &ignored))
        bits &= usable; /* this machine: QDYNO_ISA applies, too */
    if (!strcmp(text, "auto") || isa_parse(&allowed, text, &ignored)) return bits;
    return bits & allowed;
}

static enum kernel_variant config_variant(const struct backend_options *o)
{
    if (o->activations != ACTIVATIONS_AUTO) return KERNEL_VARIANT_INT8;
    switch (o->precision) {
    case PRECISION_HIGHEST: return KERNEL_VARIANT_HIGHEST;
    case PRECISION_HIGH: return KERNEL_VARIANT_HIGH;
    case PRECISION_MEDIUM: return KERNEL_VARIANT_MEDIUM;
    case PRECISION_AUTO: break;
    }
    return KERNEL_VARIANT_AUTO;
}

/* A ceiling for `threads` threads: n times the ceiling of one, at most the ceiling of all. If all threads
 * measured less than one did, that measurement was disturbed. */
static double rate_at_threads(const struct cost *c, double one, double all)
{
    all = fmax(all, one); /* fmax ignores a NAN */
    if (c->threads <= 1) return isnan(one) ? all : one;
    if (c->threads >= c->threads_all || isnan(one)) return all;
    return fmin(all, c->threads * one);
}

double cost_bandwidth(const struct cost *c)
{
    const struct machine_ceilings *k = c->ceilings;
    return c->on_gpu ? positive_or_nan(k->gpu.read_bytes_s) : ceilings_read_bytes_s(k, c->threads);
}

/* Highest ops/s of the named arithmetic that this machine measured and `isa` allows; NAN: not measured. */
static double isa_operations(const struct cost *c, const char *name, uint32_t isa)
{
    const struct machine_ceilings *k = c->ceilings;
    double best = NAN;
    for (int i = 0; i < k->count; i++) {
        uint32_t needs;
        struct err ignored;
        if (strcmp(k->row[i].name, name)) continue;
        if (isa_parse(&needs, k->row[i].isa, &ignored) || (needs & ~isa)) continue;
        best = fmax(best, rate_at_threads(c, k->row[i].ops_s_1, k->row[i].ops_s_all));
    }
    return best;
}

double cost_operations(const struct cost *c, const char *name)
{
    return isa_operations(c, name, c->options.isa);
}

/* Peak ops/s for weights of this format: the GPU's 8-bit units for int8 weights, its fp8 units for fp8
 * weights, otherwise its 16-bit units. */
static double gpu_operations(const struct cost *c, const struct format *f)
{
    const struct gpu_ceilings *g = &c->ceilings->gpu;
    const bool fp8 = f && !strncmp(f->name, "fp8", 3);
    if (f == &FORMATS[FORMAT_F32]) return fmax(positive_or_nan(g->f32_ops_s), positive_or_nan(g->tf32_ops_s));
    if (fp8 && g->fp8_ops_s > 0) return g->fp8_ops_s;
    if (f == &FORMATS[FORMAT_INT8] && g->int8_ops_s > 0) return g->int8_ops_s;
    return fmax(positive_or_nan(g->f16_ops_s),
                fmax(positive_or_nan(g->bf16_ops_s), positive_or_nan(g->f32_ops_s)));
}

double cost_gemv_operations(const struct cost *c, const struct format *weights)
{
    const enum precision p = c->options.precision;
    const bool exact = p == PRECISION_HIGHEST || p == PRECISION_HIGH ||
                       (p == PRECISION_AUTO && weights == &FORMATS[FORMAT_F32]);
    if (c->on_gpu) return gpu_operations(c, weights);
    /* A GEMV uses f32, or 8-bit dot products when activations may be quantized: whichever is faster. */
    return fmax(cost_operations(c, "f32_fma"), exact ? NAN : cost_operations(c, "int8_dot"));
}

static const char *gemm_ceiling_name(const struct cost *c, const struct format *weights)
{
    return weights ? matmul_ceiling(weights, &c->options) : "f32_fma";
}

double cost_gemm_operations(const struct cost *c, const struct format *weights)
{
    if (c->on_gpu) return gpu_operations(c, weights);
    return cost_operations(c, gemm_ceiling_name(c, weights));
}

int64_t cost_cache_bytes(const struct machine *m)
{
    const int64_t l2 = m->cache_bytes[1] > 0 ? m->cache_bytes[1] * MAX(m->cores, 1) : 0;
    return MAX(m->cache_bytes[2], l2);
}

/* ---------------------------------------------------------------- interpolating measured times */

/* Seconds with c->threads threads from the times of one thread and of all (Amdahl's law: a serial part plus a
 * part divided by the thread count). `scaling`: time of one / time of all, used when one thread was not
 * timed. NAN: not measured. */
static double time_at_threads(const struct cost *c, const float pair[2], double scaling)
{
    double one = positive_or_nan((double)pair[0]), all = positive_or_nan((double)pair[1]);
    if (isnan(all)) return NAN;
    if (c->threads_all <= 1) return all;
    if (isnan(one)) one = all * scaling;
    if (c->threads <= 1) return one;
    /* oversubscribed: threads wait for each other */
    if (c->threads >= c->threads_all) return all * c->threads / c->threads_all;
    const double divided = (one - all) / (1 - 1.0 / c->threads_all);
    return one - divided + divided / c->threads;
}

/* Slowdown because the config disables instruction sets: ratio of the arithmetic ceilings; 1 when none is
 * disabled. */
static double isa_slowdown(const struct cost *c, const struct format *f, int n)
{
    const struct backend_options free_options = { .isa = c->machine->isa,
                                                  .precision = c->options.precision,
                                                  .activations = c->options.activations };
    const char *usual = n >= MANY_ROWS_FROM ? matmul_ceiling(f, &free_options) : "int8_dot";
    const char *now = n >= MANY_ROWS_FROM ? matmul_ceiling(f, &c->options) : "int8_dot";
    const double ratio = isa_operations(c, usual, c->machine->isa) / cost_operations(c, now);
    return c->options.isa == c->machine->isa || !(ratio >= 1) ? 1 : ratio;
}

static double gemv_square_s(const struct cost *c, const struct format *f)
{
    return time_at_threads(c, c->ceilings->kernels.product[f - FORMATS][KERNEL_VARIANT_AUTO][0],
                           c->threads_all);
}

/* Overhead in seconds per row of weights in a GEMV, beside the weights themselves. Linear in ln(cols) between
 * the short and the long rows that were timed. */
static double row_overhead_s(const struct cost *c, const struct format *f, int64_t cols)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    const double usual = fmax(time_at_threads(c, k->row[f - FORMATS], c->threads_all), 0);
    const double brief = time_at_threads(c, k->row_short[f - FORMATS], c->threads_all);
    const double span = log((double)KERNEL_LONG_COLS / KERNEL_SHORT_COLS);
    const double share = fmin(fmax(log((double)KERNEL_LONG_COLS / (double)cols) / span, 0), 1);
    return isnan(brief) ? usual : usual + share * (brief - usual);
}

/* GEMV, seconds per weight when the weights are in a cache. If the model exceeds the cores' own caches, a
 * cyclic pass finds only the share own / footprint of it there; it is squared because LRU evicts lines before
 * they are reused. */
static double gemv_s(const struct cost *c, const struct format *f, int64_t cols)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    const double wide = gemv_square_s(c, f), near = time_at_threads(c, k->near[f - FORMATS], c->threads_all);
    const double bytes = (double)f->block_bytes / f->block_weights;
    const double own = fmax((double)c->machine->cache_bytes[1] * c->threads, bytes * KERNEL_NEAR_WEIGHTS);
    if (isnan(near)) return wide;
    double weight = fmax(wide - row_overhead_s(c, f, KERNEL_COLS) / KERNEL_COLS, 0.5 * wide);
    if (c->footprint < bytes * KERNEL_COLS * KERNEL_COLS) {
        const double found = fmin(own / c->footprint, 1);
        weight += found * found * (near - weight);
    }
    return weight + row_overhead_s(c, f, cols) / (double)cols;
}

/* Seconds per weight with KERNEL_ROWS_AT[r] rows, weights in a cache; NAN: not measured. Variants other than
 * AUTO are timed for one row and for the most rows only, so the row counts between are scaled by the same
 * ratio to AUTO. */
static double product_measured_s(const struct cost *c, const struct format *f, int r, int64_t cols)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    const int id = (int)(f - FORMATS), end = r == 0 ? 0 : KERNEL_ROWS - 1;
    const double usual = r ? time_at_threads(c, k->product[id][KERNEL_VARIANT_AUTO][r], c->threads_all)
                           : gemv_s(c, f, cols);
    if (c->variant == KERNEL_VARIANT_AUTO) return usual;
    const double here = positive_or_nan((double)k->product[id][c->variant][end][1]);
    const double there = positive_or_nan((double)k->product[id][KERNEL_VARIANT_AUTO][end][1]);
    return isnan(here) || isnan(there) ? NAN : usual * here / there;
}

/* Slowdown of work with this load sensitivity (0 to 1), relative to undisturbed cores: compute_slowdown ^
 * sensitivity. */
static double load_slowdown(const struct cost *c, double sensitivity)
{
    return pow(c->compute_slowdown, sensitivity);
}

/* Seconds per weight when the kernel was not timed: its operations over the share of the ceiling that such
 * kernels reach. */
static double product_assumed_s(const struct cost *c, const struct format *f, int n)
{
    const double few = 2 / cost_gemv_operations(c, f);
    double share = 0.4;
    for (size_t i = 0; i < COUNT_OF(MANY_ROWS); i++)
        if (!strcmp(MANY_ROWS[i].ceiling, gemm_ceiling_name(c, f))) share = MANY_ROWS[i].share;
    const bool split = c->options.precision == PRECISION_HIGH ||
                       (c->options.precision == PRECISION_AUTO && f == &FORMATS[FORMAT_F16]);
    if (split && !strcmp(gemm_ceiling_name(c, f), "bf16_tile"))
        share /= 3; /* split into three products for more precision */
    const double one = few / SHARES.one_row;
    const double many = fmin(n * few / SHARES.few_rows, n * 2 / (share * cost_gemm_operations(c, f)));
    return fmax(one, many);
}

/* GEMM or GEMV, seconds per weight on undisturbed cores, weights in a cache. Interpolates ln(seconds) over
 * ln(rows) between the row counts that were timed. */
static double product_weight_s(struct cost *c, const struct format *f, int64_t cols, int n)
{
    const int r = kernel_rows_before(n);
    const double a = product_measured_s(c, f, r, cols), b = product_measured_s(c, f, r + 1, cols);
    if (isnan(a) || isnan(b)) {
        c->assumed_lookups++;
        return product_assumed_s(c, f, n);
    }
    const double from = log(KERNEL_ROWS_AT[r]), to = log(KERNEL_ROWS_AT[r + 1]);
    const double slope = log(b / a) / (to - from);
    /* beyond the largest timed count: proportional to n */
    const double seconds = n >= KERNEL_ROWS_AT[KERNEL_ROWS - 1] ? b * n / KERNEL_ROWS_AT[KERNEL_ROWS - 1]
                                                                : a * exp(slope * (log(n) - from));
    return seconds * isa_slowdown(c, f, n);
}

/* Read bandwidth in bytes/s for a working set of `bytes` that is read repeatedly; NAN: not measured.
 * Interpolated over ln(bytes). */
static double read_rate_measured(const struct cost *c, double bytes)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    double before = NAN;
    for (int i = 0; i < KERNEL_READS; i++) {
        const double one = positive_or_nan((double)k->read[i][0]),
                     all = positive_or_nan((double)k->read[i][1]);
        const double here = rate_at_threads(c, one, all);
        if (isnan(here)) return before;
        if (bytes <= (double)KERNEL_READ_AT[i]) {
            if (isnan(before)) return here;
            const double share = log(bytes / (double)KERNEL_READ_AT[i - 1]) /
                                 log((double)KERNEL_READ_AT[i] / (double)KERNEL_READ_AT[i - 1]);
            return exp((1 - share) * log(before) + share * log(here));
        }
        before = here;
    }
    return before;
}

/* GEMV, seconds per weight when the weights stream from memory. Between one thread and all, the time scales
 * as that of plain reading. */
static double stream_weight_s(const struct cost *c, const struct format *f)
{
    const struct machine_ceilings *k = c->ceilings;
    const float *pair = k->kernels.stream[f - FORMATS];
    const double one = 1 / ceilings_read_bytes_s(k, 1), all = 1 / ceilings_read_bytes_s(k, k->threads_all);
    const double share = (1 / cost_bandwidth(c) - all) / (one - all);
    if (c->threads <= 1 || c->threads >= c->threads_all || !(one > all) || !(pair[0] > 0))
        return time_at_threads(c, pair, one / all);
    return (1 - share) * positive_or_nan((double)pair[1]) + share * (double)pair[0];
}

/* Share of the bandwidth that remains on a machine with several NUMA nodes: the pages of a mapped file lie on
 * the node that read it first, unless the config divides weights among the nodes or copies them to each. */
static double numa_share(const struct cost *c)
{
    const double node = ceilings_node_bytes_s(c->ceilings);
    if (c->machine->numa_nodes < 2) return 1;
    if (c->options.numa == NUMA_INTERLEAVE || c->options.numa == NUMA_REPLICATE) return 1;
    return isnan(node) ? NUMA_SHARE : fmin(1, node / cost_bandwidth(c));
}

/* Position of this model between the cache (0) and memory (1), by the read times of its footprint: the share
 * of the extra time of memory reads that each weight pays. A larger model than the one timed pays all of it.
 * NAN: not measured. */
static double memory_position(const struct cost *c)
{
    const double stream_bytes = (double)c->ceilings->kernels.stream_bytes;
    const double here = read_rate_measured(c, c->footprint),
                 near = read_rate_measured(c, (double)KERNEL_READ_AT[0]);
    const double bank = read_rate_measured(c, stream_bytes);
    if (isnan(here) || isnan(near) || isnan(bank)) return NAN;
    const double span = 1 / bank - 1 / near, place = 1 / here - 1 / near;
    return span > 0 && c->footprint < stream_bytes ? fmin(fmax(place / span, 0), 1) : 1;
}

/* Current seconds, from a time measured in the cache (`near`), one measured from memory (`far`), and the
 * arithmetic alone (`here`). Only `share` of the wait for memory applies. */
static double current_read_s(const struct cost *c, double here, double near, double far, double share)
{
    if (!(far > near)) return here * c->compute_slowdown;
    return kernel_time_together(here * c->compute_slowdown,
                                kernel_time_waiting(far, near) * share * c->memory_slowdown);
}

/* GEMV, seconds per weight including the read from where the model lies. `cached`: seconds per weight in a
 * cache on undisturbed cores. */
static double gemv_read_s(struct cost *c, const struct format *f, double cached)
{
    const double bytes = (double)f->block_bytes / f->block_weights;
    const double far = stream_weight_s(c, f), share = memory_position(c);
    if (isnan(far) || isnan(share)) {
        c->assumed_lookups++;
        const bool in_cache = c->footprint <= (double)cost_cache_bytes(c->machine);
        return in_cache ? 0 : bytes / (c->bandwidth * SHARES.stream * numa_share(c));
    }
    return current_read_s(c, cached, gemv_square_s(c, f), far, share);
}

/* Set both slowdowns from the machine conditions. The memory probe is a GEMV of q8_0, which computes while it
 * waits: its arithmetic, at the current core speed, is taken off both its reference time and its current
 * time, and the ratio of the waits remains. */
static void cost_set_conditions(struct cost *c, const struct conditions *now)
{
    static const double FASTEST = 0.5, SLOWEST = 4; /* values outside this range are probe noise */
    const struct kernel_times *k = &c->ceilings->kernels;
    const int all = c->threads >= c->threads_all;
    const double cached = (double)k->product[FORMAT_Q8_0][KERNEL_VARIANT_AUTO][0][all];
    const double then = 1 / (double)k->memory_speed[all];
    c->compute_slowdown = now->core_ratio > 0 ? 1 / now->core_ratio : 1;
    c->memory_slowdown = 1;
    if (!(now->memory_ratio > 0)) return;
    c->memory_slowdown = 1 / now->memory_ratio;
    if (isfinite(then))
        c->memory_slowdown = kernel_time_waiting(then / now->memory_ratio, cached * c->compute_slowdown) /
                             kernel_time_waiting(then, cached);
    c->memory_slowdown = fmin(fmax(c->memory_slowdown, FASTEST), SLOWEST);
}

void cost_init(struct cost *c, const struct machine *machine, const struct machine_ceilings *ceilings,
               const struct config *config, bool on_gpu, const struct conditions *now)
{
    *c = (struct cost){
        .machine = machine,
        .ceilings = ceilings,
        .options = { .isa = config_isa(config, machine),
                     .precision = (enum precision)config_choice(config, KNOB_PRECISION),
                     .activations = (enum activations)config_choice(config, KNOB_ACT),
                     .numa = (enum numa_policy)config_choice(config, KNOB_NUMA) },
        .threads = cost_threads(config, machine),
        .threads_all = MAX(ceilings->threads_all, 1),
        .on_gpu = on_gpu,
        .compute_slowdown = 1,
        .memory_slowdown = 1,
    };
    c->variant = config_variant(&c->options);
    if (!on_gpu) cost_set_conditions(c, now);
    c->bandwidth = cost_bandwidth(c) / c->memory_slowdown;
}

/* Seconds to hand one call to the threads. When a call holds several products, each pays its part. */
static double region_s(const struct cost *c)
{
    if (c->on_gpu) return GPU_SHARES.launch_s;
    const double s = time_at_threads(c, c->ceilings->kernels.region, 0.2);
    return (isnan(s) ? (c->threads > 1 ? REGION_S : REGION_S / 5) : s) * c->compute_slowdown;
}

static double gpu_product_s(struct cost *c, const struct model_product *p, int n)
{
    const struct format *f = p->format;
    const double weights = (double)p->rows * (double)p->cols;
    const double bytes = weights * f->block_bytes / f->block_weights;
    c->assumed_lookups++;
    return fmax(c->all_cached ? 0 : bytes / (c->bandwidth * GPU_SHARES.stream),
                2 * weights * n / (gpu_operations(c, f) * GPU_SHARES.many));
}

static double cpu_product_s(struct cost *c, const struct model_product *p, int n)
{
    const struct format *f = p->format;
    const double weights = (double)p->rows * (double)p->cols;
    double per_weight = product_weight_s(c, f, p->cols, n);
    double edge = time_at_threads(c, c->ceilings->kernels.edge[f - FORMATS], c->threads_all);
    if (isnan(edge)) edge = EDGE_S / c->threads;
    /* The measured time includes the edges of a square matrix (input and output elements): replace them by
     * the edges of this one. */
    if (n >= MANY_ROWS_FROM) {
        const double there = edge * n * 2 / KERNEL_COLS;
        per_weight = fmax(per_weight - there, 0.4 * per_weight);
        per_weight += edge * n * (double)(p->rows + p->cols) / weights;
    }
    const double computing = per_weight * load_slowdown(c, kernel_load_sensitivity(f, &c->options, n));
    if (c->all_cached) return weights * computing;
    const double reading = gemv_read_s(c, f, fmin(per_weight, product_weight_s(c, f, p->cols, 1)));
    return weights * fmax(computing, reading);
}

/* Set c->threads to 1 when a call of this size runs on the calling thread alone (backend_runs_alone). Returns
 * the previous number, which the caller restores. */
static int threads_for_call(struct cost *c, enum work_kind kind, double amount)
{
    const int threads = c->threads;
    if (!c->on_gpu && backend_runs_alone(kind, amount)) c->threads = 1;
    c->multi_threaded |= c->threads > 1;
    return threads;
}

double cost_product(struct cost *c, const struct model_product *p, int n)
{
    const int threads = threads_for_call(c, n < MANY_ROWS_FROM ? WORK_DOTS : WORK_PRODUCTS,
                                         (double)p->together * n);
    const double call = region_s(c) * (double)p->rows * (double)p->cols / (double)p->together;
    const double s = call + (c->on_gpu ? gpu_product_s(c, p, n) : cpu_product_s(c, p, n));
    c->threads = threads;
    return s;
}

/* Mean of a time for K's format and one for V's. NAN: not measured. */
static double mean_of_k_v(const struct cost *c, const float k[2], const float v[2])
{
    return 0.5 * (time_at_threads(c, k, c->threads_all) + time_at_threads(c, v, c->threads_all));
}

/* Attention time per element of a head of `dim` elements. wide, narrow: measured with heads of
 * KERNEL_HEAD_DIM and of kernel_narrow_dim elements; [0] one thread, [1] all threads. Narrower heads cost
 * more per element: interpolates ln(seconds) over ln(dim) between the two. Heads narrower than the narrow
 * ones take the same time in total as these. */
static double attention_head_s(const struct cost *c, const float wide[2], const float narrow[2],
                               const struct format *f, int dim)
{
    const int narrow_dim = kernel_narrow_dim(f);
    const double wide_s = time_at_threads(c, wide, c->threads_all);
    const double narrow_s = time_at_threads(c, narrow, c->threads_all);
    if (isnan(narrow_s) || dim >= KERNEL_HEAD_DIM || narrow_dim >= KERNEL_HEAD_DIM) return wide_s;
    if (dim <= narrow_dim) return narrow_s * narrow_dim / dim;
    const double share = log((double)dim / narrow_dim) / log((double)KERNEL_HEAD_DIM / narrow_dim);
    return exp((1 - share) * log(narrow_s) + share * log(wide_s));
}

static const double TIMED_KV_SHARE = (double)KERNEL_KV_HEADS / KERNEL_HEADS;

/* Attention of one row: factor for heads that share K and V differently from the timed model. `own`: KV heads
 * / heads. Unpacking a cached token is paid once for all heads that share it. */
static double kv_sharing_factor(const struct cost *c, const struct format *f, double own)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    const double shared = time_at_threads(c, k->attend_one[f - FORMATS], c->threads_all);
    const double apart = time_at_threads(c, k->apart_one[f - FORMATS], c->threads_all);
    if (isnan(shared) || isnan(apart)) return 1;
    const double unpacking = fmin(fmax(apart - shared, 0) / (1 - TIMED_KV_SHARE), shared / TIMED_KV_SHARE);
    return 1 + unpacking / shared * (own - TIMED_KV_SHARE);
}

/* Attention of one row: seconds per cached token and element of a head, at least `least` (the memory's
 * limit). Heads that share K and V wait for them once. */
static double attention_one_s(struct cost *c, const struct cost_attention *a, double least)
{
    const struct kernel_times *t = &c->ceilings->kernels;
    const int k = (int)(a->k - FORMATS), v = (int)(a->v - FORMATS);
    const double own = (double)a->kv_heads / a->heads;
    const double near = mean_of_k_v(c, t->attend_one[k], t->attend_one[v]),
                 far = mean_of_k_v(c, t->attend_far[k], t->attend_far[v]), share = memory_position(c);
    const double here = 0.5 * (attention_head_s(c, t->attend_one[k], t->narrow_one[k], a->k, a->dim_k) *
                                   kv_sharing_factor(c, a->k, own) +
                               attention_head_s(c, t->attend_one[v], t->narrow_one[v], a->v, a->dim_v) *
                                   kv_sharing_factor(c, a->v, own));
    if (c->all_cached && !isnan(here)) return here * c->compute_slowdown;
    if (!isnan(here) && !isnan(far) && !isnan(share))
        return current_read_s(c, here, near, far, share * own / TIMED_KV_SHARE);
    if (!isnan(here)) return fmax(here * c->compute_slowdown, least);
    c->assumed_lookups++;
    return fmax(4 / (cost_operations(c, "f32_fma") * SHARES.attend) * c->compute_slowdown, least);
}

static double attention_many_s(struct cost *c, const struct cost_attention *a)
{
    const float(*f16)[2] = c->ceilings->kernels.attend_many[FORMAT_F16];
    const double ratio = (double)f16[c->variant][1] / (double)f16[KERNEL_VARIANT_AUTO][1];
    const struct kernel_times *t = &c->ceilings->kernels;
    const int k = (int)(a->k - FORMATS), v = (int)(a->v - FORMATS);
    const double per = 0.5 * (attention_head_s(c, t->attend_many[k][KERNEL_VARIANT_AUTO], t->narrow_many[k],
                                               a->k, a->dim_k) +
                              attention_head_s(c, t->attend_many[v][KERNEL_VARIANT_AUTO], t->narrow_many[v],
                                               a->v, a->dim_v));
    if (!isnan(per))
        return per * (ratio > 0 && isfinite(ratio) ? ratio : 1) *
               load_slowdown(c, KERNEL_LOAD_SENSITIVITY_ATTENTION);
    c->assumed_lookups++;
    return 4 / (cost_operations(c, "f32_fma") * SHARES.attend_many) *
           load_slowdown(c, KERNEL_LOAD_SENSITIVITY_ATTENTION);
}

double cost_attention(struct cost *c, const struct cost_attention *a)
{
    const double elements = 0.5 * a->heads * (a->dim_k + a->dim_v), pairs = a->n * a->depth;
    const double bytes = a->depth * a->kv_heads *
                         ((double)format_row_bytes(a->k, a->dim_k) +
                          (a->v_in_k ? 0 : (double)format_row_bytes(a->v, a->dim_v)));
    if (c->on_gpu) {
        const double work = 4 * pairs * elements /
                            (gpu_operations(c, &FORMATS[FORMAT_F16]) * GPU_SHARES.attend);
        return fmax(work, (a->many ? 1 : a->n) * bytes / (c->bandwidth * GPU_SHARES.stream));
    }
    const int threads = threads_for_call(c, WORK_DOTS, 2 * pairs * elements);
    const double least = a->n * bytes / c->bandwidth / (pairs * elements);
    const double s = pairs * elements * (a->many ? attention_many_s(c, a) : attention_one_s(c, a, least));
    c->threads = threads;
    return s;
}

double cost_elementwise(struct cost *c, int64_t embd, int n)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    if (c->on_gpu) return 6 * GPU_SHARES.launch_s;
    const int threads = threads_for_call(c, WORK_ELEMENTS, (double)embd * n);
    double fixed = time_at_threads(c, k->glue, 0.5), element = time_at_threads(c, k->glue_element, 1);
    if (isnan(fixed)) fixed = GLUE_S;
    if (isnan(element)) element = GLUE_ELEMENT_S / c->threads;
    c->threads = threads;
    return (fixed + element * (double)embd * n) * c->compute_slowdown;
}

double cost_wake(const struct cost *c)
{
    const double s = positive_or_nan((double)c->ceilings->kernels.wake);
    return c->on_gpu || c->threads < 2 || isnan(s) ? 0 : s;
}
