/* advisor/predict/cost.c - seconds of an operation.
 *
 * Where the machine's kernels were timed (`qdyno detect --kernels`) those times are used, carried to other
 * shapes, row counts, thread counts and places of the weights. Where they were not, a share of the machine's
 * ceilings stands for them: SHARES. Two of these were measured on a quiet machine (streaming and bf16 tiles,
 * on one with AMX); the others are guesses, which is why such predictions have wide intervals and learn. */
#include "advisor/predict/cost.h"

#include <math.h>
#include <string.h>

/* Shares of ceilings that stand in for times that nobody measured. */
static const struct {
    double stream;   /* of read bandwidth, one row, weights in memory */
    double one_row;  /* of 8-bit dots, or f32 where weights are floats: one row, weights in a cache */
    double few_rows; /* of the same arithmetic, 4 to 16 rows */
    double attend;   /* of f32 arithmetic, a cache read for one row */
    double attend_many;
} SHARES = { 0.93, 0.075, 0.20, 0.10, 0.25 };
/* Of the arithmetic that many rows are multiplied with: what unpacking and packing leave of it. */
static const struct {
    const char *ceiling;
    double share;
} MANY_ROWS[] = { { "bf16_tile", 0.30 },
                  { "int8_tile", 0.20 },
                  { "bf16_dot", 0.50 },
                  { "int8_dot", 0.25 },
                  { "f32_fma", 0.60 } };
/* What several memory nodes leave of their bandwidth to threads that all read one mapped file, where that was
 * not measured. */
static const double NUMA_SHARE = 0.6;
enum { MANY_ROWS_FROM = 16 }; /* fewer are dots */
/* A parallel region, and norms and rotations of a layer, where they were not measured. */
static const double REGION_S = 3e-6, GLUE_S = 6e-6, GLUE_ELEMENT_S = 1.5e-9, EDGE_S = 4e-10;

/* A GPU's, of its maker's figures; each operation costs a launch. Guesses: nothing of a GPU was measured by
 * us. The spread between programs and cards is wide, and so is the interval. */
static const struct {
    double stream, many, attend, launch_s;
} GPU_SHARES = { 0.50, 0.40, 0.15, 5e-6 };

static double known(double v)
{
    return v > 0 && isfinite(v) ? v : NAN;
}

/* ---------------------------------------------------------------- ceilings */

int cost_threads(const struct config *c, const struct machine *m)
{
    int all = MAX(m->cores, 1);
    if (m->cgroup_cpus >= 1 && m->cgroup_cpus < all) all = (int)m->cgroup_cpus;
    const int asked = (int)config_int(c, KNOB_THREADS);
    return asked > 0 ? asked : all;
}

static uint32_t isa_of(const struct config *c, const struct machine *m)
{
    uint32_t allowed, usable, bits = m->isa;
    const char *text = config_text(c, KNOB_ISA);
    struct err ignored;
    if (bits == isa_detect() && !isa_usable(&usable, &ignored))
        bits &= usable; /* QDYNO_ISA, on this machine */
    if (!strcmp(text, "auto") || isa_parse(&allowed, text, &ignored)) return bits;
    return bits & allowed;
}

static enum kernel_variant variant_of(const struct backend_options *o)
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

/* A ceiling at `threads`, between what 1 and all reach: an upper bound whatever the scaling. All that measure
 * less than one were disturbed. */
static double at_threads(const struct cost *c, double one, double all)
{
    all = fmax(all, one); /* of a NAN and a number: the number */
    if (c->threads <= 1) return isnan(one) ? all : one;
    if (c->threads >= c->threads_all || isnan(one)) return all;
    return fmin(all, c->threads * one);
}

double cost_bandwidth(const struct cost *c)
{
    const struct machine_ceilings *k = c->ceilings;
    return c->on_gpu ? known(k->gpu.read_bytes_s) : ceilings_read_bytes_s(k, c->threads);
}

/* The fastest arithmetic of that name that this machine and this configuration may use; NAN: not measured. */
static double operations_of(const struct cost *c, const char *name, uint32_t isa)
{
    const struct machine_ceilings *k = c->ceilings;
    double best = NAN;
    for (int i = 0; i < k->count; i++) {
        uint32_t needs;
        struct err ignored;
        if (strcmp(k->row[i].name, name)) continue;
        if (isa_parse(&needs, k->row[i].isa, &ignored) || (needs & ~isa)) continue;
        best = fmax(best, at_threads(c, k->row[i].ops_s_1, k->row[i].ops_s_all));
    }
    return best;
}

double cost_operations(const struct cost *c, const char *name)
{
    return operations_of(c, name, c->options.isa);
}

/* What a GPU multiplies weights of this format with: 8-bit units where both sides are integers of 8 bits or
 * fp8 is a thing it has, else its 16-bit units. */
static double gpu_operations(const struct cost *c, const struct format *f)
{
    const struct gpu_ceilings *g = &c->ceilings->gpu;
    const bool fp8 = f && !strncmp(f->name, "fp8", 3);
    if (f == &FORMATS[FORMAT_F32]) return fmax(known(g->f32_ops_s), known(g->tf32_ops_s));
    if (fp8 && g->fp8_ops_s > 0) return g->fp8_ops_s;
    if (f == &FORMATS[FORMAT_INT8] && g->int8_ops_s > 0) return g->int8_ops_s;
    return fmax(known(g->f16_ops_s), fmax(known(g->bf16_ops_s), known(g->f32_ops_s)));
}

double cost_one_row_operations(const struct cost *c, const struct format *weights)
{
    const enum precision p = c->options.precision;
    const bool exact = p == PRECISION_HIGHEST || p == PRECISION_HIGH ||
                       (p == PRECISION_AUTO && weights == &FORMATS[FORMAT_F32]);
    if (c->on_gpu) return gpu_operations(c, weights);
    /* One row is dotted in f32, or in 8 bits where activations may be rounded: whichever is faster. */
    return fmax(cost_operations(c, "f32_fma"), exact ? NAN : cost_operations(c, "int8_dot"));
}

static const char *many_rows_ceiling(const struct cost *c, const struct format *weights)
{
    return weights ? matmul_ceiling(weights, &c->options) : "f32_fma";
}

double cost_many_rows_operations(const struct cost *c, const struct format *weights)
{
    if (c->on_gpu) return gpu_operations(c, weights);
    return cost_operations(c, many_rows_ceiling(c, weights));
}

int64_t cost_cache_bytes(const struct machine *m)
{
    const int64_t l2 = m->cache_bytes[1] > 0 ? m->cache_bytes[1] * MAX(m->cores, 1) : 0;
    return MAX(m->cache_bytes[2], l2);
}

/* ---------------------------------------------------------------- carrying measured times over */

/* A time at these threads between that of one and of all: what does not scale stays. NAN: not measured. */
static double time_at_threads(const struct cost *c, const float pair[2], double scaling)
{
    double one = known((double)pair[0]), all = known((double)pair[1]);
    if (isnan(all)) return NAN;
    if (c->threads_all <= 1) return all;
    if (isnan(one)) one = all * scaling;
    if (c->threads <= 1) return one;
    if (c->threads >= c->threads_all) return all * c->threads / c->threads_all; /* more wait for each other */
    const double divided = (one - all) / (1 - 1.0 / c->threads_all);
    return one - divided + divided / c->threads;
}

/* How much longer the arithmetic takes by instruction sets that were taken away; 1: none were. */
static double barred(const struct cost *c, const struct format *f, int n)
{
    const struct backend_options free_options = { .isa = c->machine->isa,
                                                  .precision = c->options.precision,
                                                  .activations = c->options.activations };
    const char *usual = n >= MANY_ROWS_FROM ? matmul_ceiling(f, &free_options) : "int8_dot";
    const char *now = n >= MANY_ROWS_FROM ? matmul_ceiling(f, &c->options) : "int8_dot";
    const double ratio = operations_of(c, usual, c->machine->isa) / cost_operations(c, now);
    return c->options.isa == c->machine->isa || !(ratio >= 1) ? 1 : ratio;
}

static double one_row_wide(const struct cost *c, const struct format *f)
{
    return time_at_threads(c, c->ceilings->kernels.product[f - FORMATS][KERNEL_VARIANT_AUTO][0],
                           c->threads_all);
}

/* Seconds beside its weights that a row of so many takes: by the logarithm of that between those timed. */
static double a_row(const struct cost *c, const struct format *f, int64_t cols)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    const double usual = fmax(time_at_threads(c, k->row[f - FORMATS], c->threads_all), 0);
    const double brief = time_at_threads(c, k->row_short[f - FORMATS], c->threads_all);
    const double span = log((double)KERNEL_LONG_COLS / KERNEL_SHORT_COLS);
    const double share = fmin(fmax(log((double)KERNEL_LONG_COLS / (double)cols) / span, 0), 1);
    return isnan(brief) ? usual : usual + share * (brief - usual);
}

/* Seconds a weight of one row in caches, by which of them hold the model and how long its rows are. What is
 * gone through from end to end finds little of itself in a cache that it exceeds. */
static double one_row(const struct cost *c, const struct format *f, int64_t cols)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    const double wide = one_row_wide(c, f), near = time_at_threads(c, k->near[f - FORMATS], c->threads_all);
    const double bytes = (double)f->block_bytes / f->block_weights;
    const double own = fmax((double)c->machine->cache_bytes[1] * c->threads, bytes * KERNEL_NEAR_WEIGHTS);
    if (isnan(near)) return wide;
    double weight = fmax(wide - a_row(c, f, KERNEL_COLS) / KERNEL_COLS, 0.5 * wide);
    if (c->footprint < bytes * KERNEL_COLS * KERNEL_COLS) {
        const double found = fmin(own / c->footprint, 1);
        weight += found * found * (near - weight);
    }
    return weight + a_row(c, f, cols) / (double)cols;
}

/* Seconds a weight at KERNEL_ROWS_AT[r] rows, in a cache; NAN: not measured. Other variants are measured at
 * one row and many: between them they go as the usual one does. */
static double measured_product(const struct cost *c, const struct format *f, int r, int64_t cols)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    const int id = (int)(f - FORMATS), end = r == 0 ? 0 : KERNEL_ROWS - 1;
    const double usual = r ? time_at_threads(c, k->product[id][KERNEL_VARIANT_AUTO][r], c->threads_all)
                           : one_row(c, f, cols);
    if (c->variant == KERNEL_VARIANT_AUTO) return usual;
    const double here = known((double)k->product[id][c->variant][end][1]);
    const double there = known((double)k->product[id][KERNEL_VARIANT_AUTO][end][1]);
    return isnan(here) || isnan(there) ? NAN : usual * here / there;
}

/* How much longer now than on cores at their best, what feels so much of it. */
static double slowed(const struct cost *c, double feels)
{
    return pow(c->computing, feels);
}

/* What stands for it: arithmetic at the share that such kernels reach. */
static double assumed_product(const struct cost *c, const struct format *f, int n)
{
    const double few = 2 / cost_one_row_operations(c, f);
    double share = 0.4;
    for (size_t i = 0; i < COUNT_OF(MANY_ROWS); i++)
        if (!strcmp(MANY_ROWS[i].ceiling, many_rows_ceiling(c, f))) share = MANY_ROWS[i].share;
    const bool split = c->options.precision == PRECISION_HIGH ||
                       (c->options.precision == PRECISION_AUTO && f == &FORMATS[FORMAT_F16]);
    if (split && !strcmp(many_rows_ceiling(c, f), "bf16_tile"))
        share /= 3; /* three products instead of one */
    const double one = few / SHARES.one_row;
    const double many = fmin(n * few / SHARES.few_rows, n * 2 / (share * cost_many_rows_operations(c, f)));
    return fmax(one, many);
}

/* On cores at their best. Log-log between the row counts that were measured. */
static double product_per_weight(struct cost *c, const struct format *f, int64_t cols, int n)
{
    const int r = kernel_rows_before(n);
    const double a = measured_product(c, f, r, cols), b = measured_product(c, f, r + 1, cols);
    if (isnan(a) || isnan(b)) {
        c->assumed++;
        return assumed_product(c, f, n);
    }
    const double from = log(KERNEL_ROWS_AT[r]), to = log(KERNEL_ROWS_AT[r + 1]);
    const double slope = log(b / a) / (to - from);
    /* beyond the last, in proportion */
    const double seconds = n >= KERNEL_ROWS_AT[KERNEL_ROWS - 1] ? b * n / KERNEL_ROWS_AT[KERNEL_ROWS - 1]
                                                                : a * exp(slope * (log(n) - from));
    return seconds * barred(c, f, n);
}

/* Bytes/s when so much is read again and again; NAN: not measured. */
static double measured_read(const struct cost *c, double bytes)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    double before = NAN;
    for (int i = 0; i < KERNEL_READS; i++) {
        const double one = known((double)k->read[i][0]), all = known((double)k->read[i][1]);
        const double here = at_threads(c, one, all);
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

/* Seconds a weight streamed from memory. Between one thread and all the time goes as that of reading alone.
 */
static double streamed_per_weight(const struct cost *c, const struct format *f)
{
    const struct machine_ceilings *k = c->ceilings;
    const float *pair = k->kernels.stream[f - FORMATS];
    const double one = 1 / ceilings_read_bytes_s(k, 1), all = 1 / ceilings_read_bytes_s(k, k->threads_all);
    const double share = (1 / cost_bandwidth(c) - all) / (one - all);
    if (c->threads <= 1 || c->threads >= c->threads_all || !(one > all) || !(pair[0] > 0))
        return time_at_threads(c, pair, one / all);
    return (1 - share) * known((double)pair[1]) + share * (double)pair[0];
}

/* What is left of the bandwidth where a file's pages lie on the node that read it first, and threads of all
 * nodes want them. */
static double shared_node(const struct cost *c)
{
    const double node = ceilings_node_bytes_s(c->ceilings);
    if (c->machine->numa_nodes < 2) return 1;
    return isnan(node) ? NUMA_SHARE : fmin(1, node / cost_bandwidth(c));
}

/* Of what more it takes from memory than from a cache, the share that is paid where this model lies: between
 * both ends as reading alone goes; beyond, more weights are only more of the same. NAN: not measured. */
static double share_from_memory(const struct cost *c)
{
    const double stream_bytes = (double)c->ceilings->kernels.stream_bytes;
    const double here = measured_read(c, c->footprint), near = measured_read(c, (double)KERNEL_READ_AT[0]);
    const double bank = measured_read(c, stream_bytes);
    if (isnan(here) || isnan(near) || isnan(bank)) return NAN;
    const double span = 1 / bank - 1 / near, place = 1 / here - 1 / near;
    return span > 0 && c->footprint < stream_bytes ? fmin(fmax(place / span, 0), 1) : 1;
}

/* Of times measured in a cache and from memory: what it takes now from where this model lies, where
 * computing alone takes `here`. */
static double from_where_it_lies(const struct cost *c, double here, double near, double far, double share)
{
    if (!(far > near)) return here * c->computing;
    return kernel_time_together(here * c->computing, kernel_time_waiting(far, near) * share * c->waiting);
}

/* Seconds a weight that one row pays for reading it from where it lies; `cached`: on cores at their best. */
static double read_per_weight(struct cost *c, const struct format *f, double cached)
{
    const double bytes = (double)f->block_bytes / f->block_weights;
    const double far = streamed_per_weight(c, f), share = share_from_memory(c);
    if (isnan(far) || isnan(share)) {
        c->assumed++;
        const bool in_cache = c->footprint <= (double)cost_cache_bytes(c->machine);
        return in_cache ? 0 : bytes / (c->bandwidth * SHARES.stream * shared_node(c));
    }
    return from_where_it_lies(c, cached, one_row_wide(c, f), far, share);
}

/* A look at memory is a row of q8_0, which waits while it computes: how long computing takes now says the
 * look at the cores, and what both took was measured with the kernels. */
static void put_conditions(struct cost *c, const struct conditions *now)
{
    static const double FASTEST = 0.5, SLOWEST = 4; /* beyond, it is the looks' noise */
    const struct kernel_times *k = &c->ceilings->kernels;
    const int all = c->threads >= c->threads_all;
    const double cached = (double)k->product[FORMAT_Q8_0][KERNEL_VARIANT_AUTO][0][all];
    const double then = 1 / (double)k->memory_speed[all];
    c->computing = now->core_ratio > 0 ? 1 / now->core_ratio : 1;
    c->waiting = 1;
    if (!(now->memory_ratio > 0)) return;
    c->waiting = 1 / now->memory_ratio;
    if (isfinite(then))
        c->waiting = kernel_time_waiting(then / now->memory_ratio, cached * c->computing) /
                     kernel_time_waiting(then, cached);
    c->waiting = fmin(fmax(c->waiting, FASTEST), SLOWEST);
}

void cost_init(struct cost *c, const struct machine *machine, const struct machine_ceilings *ceilings,
               const struct config *config, bool on_gpu, const struct conditions *now)
{
    *c = (struct cost){
        .machine = machine,
        .ceilings = ceilings,
        .options = { .isa = isa_of(config, machine),
                     .precision = (enum precision)config_choice(config, KNOB_PRECISION),
                     .activations = (enum activations)config_choice(config, KNOB_ACT) },
        .threads = cost_threads(config, machine),
        .threads_all = MAX(ceilings->threads_all, 1),
        .on_gpu = on_gpu,
        .computing = 1,
        .waiting = 1,
    };
    c->variant = variant_of(&c->options);
    if (!on_gpu) put_conditions(c, now);
    c->bandwidth = cost_bandwidth(c) / c->waiting;
}

/* Of handing a call's work to the threads; those of one product where a call has several: its part. */
static double region_seconds(const struct cost *c)
{
    if (c->on_gpu) return GPU_SHARES.launch_s;
    const double s = time_at_threads(c, c->ceilings->kernels.region, 0.2);
    return (isnan(s) ? (c->threads > 1 ? REGION_S : REGION_S / 5) : s) * c->computing;
}

static double gpu_product(struct cost *c, const struct model_product *p, int n)
{
    const struct format *f = p->format;
    const double weights = (double)p->rows * (double)p->cols;
    const double bytes = weights * f->block_bytes / f->block_weights;
    c->assumed++;
    return fmax(c->cached ? 0 : bytes / (c->bandwidth * GPU_SHARES.stream),
                2 * weights * n / (gpu_operations(c, f) * GPU_SHARES.many));
}

static double cpu_product(struct cost *c, const struct model_product *p, int n)
{
    const struct format *f = p->format;
    const double weights = (double)p->rows * (double)p->cols;
    double per_weight = product_per_weight(c, f, p->cols, n);
    double edge = time_at_threads(c, c->ceilings->kernels.edge[f - FORMATS], c->threads_all);
    if (isnan(edge)) edge = EDGE_S / c->threads;
    if (n >= MANY_ROWS_FROM) { /* the measured time has the edges of a square matrix in it */
        const double there = edge * n * 2 / KERNEL_COLS;
        per_weight = fmax(per_weight - there, 0.4 * per_weight);
        per_weight += edge * n * (double)(p->rows + p->cols) / weights;
    }
    const double computing = per_weight * slowed(c, kernel_load_sensitivity(f, &c->options, n));
    if (c->cached) return weights * computing;
    const double reading = read_per_weight(c, f, fmin(per_weight, product_per_weight(c, f, p->cols, 1)));
    return weights * fmax(computing, reading);
}

/* Takes the others' threads away where such a call leaves them alone. Returns how many there were. */
static int take_threads(struct cost *c, enum work_kind kind, double amount)
{
    const int threads = c->threads;
    if (!c->on_gpu && backend_runs_alone(kind, amount)) c->threads = 1;
    c->shared |= c->threads > 1;
    return threads;
}

double cost_product(struct cost *c, const struct model_product *p, int n)
{
    const int threads = take_threads(c, n < MANY_ROWS_FROM ? WORK_DOTS : WORK_PRODUCTS,
                                     (double)p->together * n);
    const double call = region_seconds(c) * (double)p->rows * (double)p->cols / (double)p->together;
    const double s = call + (c->on_gpu ? gpu_product(c, p, n) : cpu_product(c, p, n));
    c->threads = threads;
    return s;
}

/* A time of which K has one half and V the other. NAN: not measured. */
static double of_both(const struct cost *c, const float k[2], const float v[2])
{
    return 0.5 * (time_at_threads(c, k, c->threads_all) + time_at_threads(c, v, c->threads_all));
}

/* A time of one of them by how long heads are: per element shorter ones cost more. Between KERNEL_HEAD_DIM
 * and narrow heads with the logarithm. */
static double by_heads(const struct cost *c, const float usual[2], const float narrow[2],
                       const struct format *f, int dim)
{
    const int few = kernel_narrow_dim(f);
    const double wide = time_at_threads(c, usual, c->threads_all);
    const double short_ones = time_at_threads(c, narrow, c->threads_all);
    if (isnan(short_ones) || dim >= KERNEL_HEAD_DIM || few >= KERNEL_HEAD_DIM) return wide;
    if (dim <= few) return short_ones * few / dim;
    const double share = log((double)dim / few) / log((double)KERNEL_HEAD_DIM / few);
    return exp((1 - share) * log(short_ones) + share * log(wide));
}

static const double OWN_THERE = (double)KERNEL_KV_HEADS / KERNEL_HEADS;

/* How much longer one row looks back where a head has `own` of a K and V, otherwise than where it was timed:
 * what is unpacked of a token is for all heads that share it. */
static double by_sharing(const struct cost *c, const struct format *f, double own)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    const double shared = time_at_threads(c, k->attend_one[f - FORMATS], c->threads_all);
    const double apart = time_at_threads(c, k->apart_one[f - FORMATS], c->threads_all);
    if (isnan(shared) || isnan(apart)) return 1;
    const double unpacking = fmin(fmax(apart - shared, 0) / (1 - OWN_THERE), shared / OWN_THERE);
    return 1 + unpacking / shared * (own - OWN_THERE);
}

/* Seconds of one row's look at one token, an element of a head; `least`: no faster than memory is. Heads that
 * share K and V wait for them together. */
static double attend_one(struct cost *c, const struct cost_attention *a, double least)
{
    const struct kernel_times *t = &c->ceilings->kernels;
    const int k = (int)(a->k - FORMATS), v = (int)(a->v - FORMATS);
    const double own = (double)a->kv_heads / a->heads;
    const double near = of_both(c, t->attend_one[k], t->attend_one[v]),
                 far = of_both(c, t->attend_far[k], t->attend_far[v]), share = share_from_memory(c);
    const double here = 0.5 * (by_heads(c, t->attend_one[k], t->narrow_one[k], a->k, a->dim_k) *
                                   by_sharing(c, a->k, own) +
                               by_heads(c, t->attend_one[v], t->narrow_one[v], a->v, a->dim_v) *
                                   by_sharing(c, a->v, own));
    if (c->cached && !isnan(here)) return here * c->computing;
    if (!isnan(here) && !isnan(far) && !isnan(share))
        return from_where_it_lies(c, here, near, far, share * own / OWN_THERE);
    if (!isnan(here)) return fmax(here * c->computing, least);
    c->assumed++;
    return fmax(4 / (cost_operations(c, "f32_fma") * SHARES.attend) * c->computing, least);
}

static double attend_many(struct cost *c, const struct cost_attention *a)
{
    const float(*f16)[2] = c->ceilings->kernels.attend_many[FORMAT_F16];
    const double ratio = (double)f16[c->variant][1] / (double)f16[KERNEL_VARIANT_AUTO][1];
    const struct kernel_times *t = &c->ceilings->kernels;
    const int k = (int)(a->k - FORMATS), v = (int)(a->v - FORMATS);
    const double per = 0.5 * (by_heads(c, t->attend_many[k][KERNEL_VARIANT_AUTO], t->narrow_many[k], a->k,
                                       a->dim_k) +
                              by_heads(c, t->attend_many[v][KERNEL_VARIANT_AUTO], t->narrow_many[v], a->v,
                                       a->dim_v));
    if (!isnan(per))
        return per * (ratio > 0 && isfinite(ratio) ? ratio : 1) *
               slowed(c, KERNEL_LOAD_SENSITIVITY_ATTENTION);
    c->assumed++;
    return 4 / (cost_operations(c, "f32_fma") * SHARES.attend_many) *
           slowed(c, KERNEL_LOAD_SENSITIVITY_ATTENTION);
}

double cost_attention(struct cost *c, const struct cost_attention *a)
{
    const double elements = 0.5 * a->heads * (a->dim_k + a->dim_v), pairs = a->n * a->depth;
    const double bytes = a->depth * a->kv_heads *
                         ((double)format_row_bytes(a->k, a->dim_k) +
                          (double)format_row_bytes(a->v, a->dim_v));
    if (c->on_gpu) {
        const double work = 4 * pairs * elements /
                            (gpu_operations(c, &FORMATS[FORMAT_F16]) * GPU_SHARES.attend);
        return fmax(work, (a->many ? 1 : a->n) * bytes / (c->bandwidth * GPU_SHARES.stream));
    }
    const int threads = take_threads(c, WORK_DOTS, 2 * pairs * elements);
    const double least = a->n * bytes / c->bandwidth / (pairs * elements);
    const double s = pairs * elements * (a->many ? attend_many(c, a) : attend_one(c, a, least));
    c->threads = threads;
    return s;
}

double cost_glue(struct cost *c, int64_t embd, int n)
{
    const struct kernel_times *k = &c->ceilings->kernels;
    if (c->on_gpu) return 6 * GPU_SHARES.launch_s;
    const int threads = take_threads(c, WORK_ELEMENTS, (double)embd * n);
    double fixed = time_at_threads(c, k->glue, 0.5), element = time_at_threads(c, k->glue_element, 1);
    if (isnan(fixed)) fixed = GLUE_S;
    if (isnan(element)) element = GLUE_ELEMENT_S / c->threads;
    c->threads = threads;
    return (fixed + element * (double)embd * n) * c->computing;
}

double cost_waking(const struct cost *c)
{
    const double s = known((double)c->ceilings->kernels.wake);
    return c->on_gpu || c->threads < 2 || isnan(s) ? 0 : s;
}
