/* advisor/predict.c - what the machine's measured ceilings allow a configuration, and how far below them a
 * run may lie.
 *
 * A roofline: a decode step reads all weights it multiplies with and the KV cache of the tokens before it,
 * and does two operations per weight; whichever takes longer sets the limit. Nothing is fitted: the
 * prediction is the limit, the interval says what share of it runs have reached. */
#include "advisor/advise.h"

#include <math.h>
#include <string.h>

/* What share of the prediction a run may fall to. Decode streams weights once and loses to synchronisation
 * and to what is not weights; prefill loses to packing operands, attention and edges of tiles. A model that
 * fits in the last-level cache may be faster than memory allows, or slower, when steps are so short that
 * waiting for threads is most of them: the interval is wide on both sides. */
static const double DECODE_LOW = 0.40, PREFILL_LOW = 0.25, CACHED_LOW = 0.05;

static int threads_of(const struct config *c, const struct machine *m)
{
    int all = MAX(m->cores, 1);
    if (m->cgroup_cpus >= 1 && m->cgroup_cpus < all) all = (int)m->cgroup_cpus;
    const int asked = (int)config_int(c, KNOB_THREADS);
    return asked > 0 ? asked : all;
}

/* A ceiling at `threads`, between what 1 and all reach: an upper bound whatever the scaling. All that measure
 * less than one were disturbed. */
static double at_threads(double one, double all, int threads, int threads_all)
{
    all = fmax(all, one); /* of a NAN and a number: the number */
    if (threads <= 1) return isnan(one) ? all : one;
    if (threads >= threads_all || isnan(one)) return all;
    return fmin(all, threads * one);
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

/* The format most weights will be in. NULL unknown. */
static const struct format *weights_of(const struct config *c, const struct gguf *g)
{
    const char *name = config_text(c, KNOB_FORMAT);
    struct model_shape shape;
    struct err ignored;
    if (strcmp(name, "file")) return format_find(name);
    return model_shape_read(&shape, g, &ignored) ? NULL : format_find(shape.dominant_format);
}

/* The fastest arithmetic of that name that this machine and this configuration may use; NAN: not measured. */
static double operations(const struct config *c, const struct machine *m, const struct machine_ceilings *k,
                         const char *name)
{
    const uint32_t isa = isa_of(c, m);
    const int threads = threads_of(c, m);
    double best = NAN;
    for (int i = 0; i < k->count; i++) {
        uint32_t needs;
        struct err ignored;
        if (strcmp(k->row[i].name, name)) continue;
        if (isa_parse(&needs, k->row[i].isa, &ignored) || (needs & ~isa)) continue;
        best = fmax(best, at_threads(k->row[i].ops_s_1, k->row[i].ops_s_all, threads, k->threads_all));
    }
    return best;
}

static int64_t cache_bytes(const struct machine *m)
{
    const int64_t l2 = m->cache_bytes[1] > 0 ? m->cache_bytes[1] * MAX(m->cores, 1) : 0;
    return MAX(m->cache_bytes[2], l2);
}

static int64_t memory_for_us(const struct machine *m)
{
    int64_t bytes = m->memory_available_bytes > 0 ? m->memory_available_bytes : m->memory_bytes;
    if (m->cgroup_memory_bytes > 0 && (bytes < 0 || m->cgroup_memory_bytes < bytes))
        bytes = m->cgroup_memory_bytes;
    return bytes;
}

/* Greater of two times of which either may be unknown: then the result is, too. */
static double longer(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

static double rate(double seconds)
{
    return seconds > 0 ? 1 / seconds : NAN;
}

enum err_code predict(struct prediction *out, const struct gguf *g, const struct config *c,
                      const struct machine *machine, const struct machine_ceilings *ceilings,
                      const struct predict_for *what, struct err *why)
{
    const int sequences = MAX(what->sequences, 1);
    memset(out, 0, sizeof(*out));
    enum err_code rc = memory_plan_compute(&out->plan, g, c, what->ctx, sequences, why);
    if (rc) return rc;
    const struct memory_plan *p = &out->plan;
    const int64_t have = memory_for_us(machine);
    out->fits = have < 0 || p->total <= have;
    out->depth = what->depth > 0 ? what->depth : predict_depth(p->ctx);

    const int threads = threads_of(c, machine);
    const double bandwidth = at_threads(ceilings->read_bytes_s_1, ceilings->read_bytes_s_all, threads,
                                        ceilings->threads_all);
    const struct format *weights = weights_of(c, g);
    const enum precision precision = (enum precision)config_choice(c, KNOB_PRECISION);
    const struct backend_options options = { .isa = isa_of(c, machine),
                                             .precision = precision,
                                             .activations = (enum activations)config_choice(c, KNOB_ACT) };
    const char *many = weights ? matmul_ceiling(weights, &options) : "f32_fma";
    /* One row is dotted in f32, or in 8 bits where activations may be rounded: whichever is faster. */
    const bool exact = precision == PRECISION_HIGHEST || precision == PRECISION_HIGH ||
                       (precision == PRECISION_AUTO && weights == &FORMATS[FORMAT_F32]);
    const double one_row = fmax(operations(c, machine, ceilings, "f32_fma"),
                                exact ? NAN : operations(c, machine, ceilings, "int8_dot"));
    const double kv = (double)p->kv_bytes_per_token * out->depth * sequences;
    const double bytes = (double)p->decode_read_bytes + kv;
    out->in_cache = (double)p->decode_read_bytes <= (double)cache_bytes(machine);

    const double many_rows = operations(c, machine, ceilings, many);
    /* Rows that are decoded together may be dotted like one or multiplied like a prompt. */
    const double think_s = p->flops_per_token * sequences /
                           (sequences > 1 ? fmax(one_row, many_rows) : one_row);
    const double row_s = p->flops_per_token / many_rows;
    const double read_s = bytes / bandwidth;
    const double batch = (double)MAX(config_int(c, KNOB_BATCH),
                                     1); /* rows that share one pass over the weights */
    const double decode_s = longer(read_s, think_s);
    const double prefill_s = longer((double)p->decode_read_bytes / bandwidth / batch, row_s);
    out->decode_bound_by_memory = read_s >= think_s;
    out->decode_tok_s = sequences * rate(decode_s);
    out->prefill_tok_s = rate(prefill_s);
    /* From the cache weights come faster than the memory's measured bandwidth: then only arithmetic limits.
     */
    out->decode_limit_tok_s = out->decode_high = sequences * rate(out->in_cache ? think_s : decode_s);
    out->prefill_limit_tok_s = out->prefill_high = rate(out->in_cache ? row_s : prefill_s);
    out->decode_low = (out->in_cache ? CACHED_LOW : DECODE_LOW) * out->decode_tok_s;
    out->prefill_low = (out->in_cache ? CACHED_LOW : PREFILL_LOW) * out->prefill_tok_s;
    return ERR_OK;
}

int predict_depth(int ctx)
{
    return MIN(512, MAX(ctx, 0) / 8);
}
