/* The CPU backend: memory, scratch and weights. Weights are used in place in the mapped file where possible.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/inputs.h"

enum { ALIGNMENT = 64 };

enum err_code cpu_open(struct backend **out, const char *device, const struct backend_options *options,
                       struct err *why)
{
    struct cpu *b = calloc(1, sizeof *b);
    if (!b) return err_set(why, ERR_NOMEM, "out of memory for the backend of %s", device);
    b->k = kernels_select(options->isa & isa_detect()); /* a wrong value must not crash */
    b->skip_prefetch = kernels_skip_prefetch();
    enum err_code rc = autotune_read(b, options, why);
    if (!rc && options->numa != NUMA_OFF) rc = numa_open(&b->nodes, why);
    if (rc) {
        free(b->tuned);
        free(b);
        return rc;
    }
    *out = &b->base;
    return ERR_OK;
}

static void cpu_close(struct backend *base)
{
    struct cpu *b = (struct cpu *)base;
    free(b->shared);
    free(b->threads);
    free(b->tuned);
    numa_close(b->nodes);
    free(b);
}

static int64_t scratch_bytes(const struct backend_options *o, const struct scratch_plan *p)
{
    return p->shared_bytes + o->threads * p->thread_bytes;
}

static void cpu_describe(const struct backend *base, struct backend_info *out)
{
    const struct cpu *b = (const struct cpu *)base;
    out->device = "cpu";
    out->isa = b->k.isa;
    out->nodes = b->nodes ? cpu_nodes(b) : 0;
    out->placed_bytes = b->placed_bytes;
    out->huge_wanted_bytes = b->huge_wanted_bytes;
    out->copied_bytes = b->copied_bytes;
    out->repacked_bytes = b->repacked_bytes;
    out->scratch_bytes = scratch_bytes(&base->options, &b->plan);
    out->inputs = b->inputs;
}

static enum err_code cpu_finish(struct backend *base, struct err *why)
{
    (void)base, (void)why; /* every operation is complete when it returns */
    return ERR_OK;
}

static void cpu_free(struct backend *b, void *p)
{
    (void)b;
    free(p);
}

static void cpu_write(struct backend *b, void *dst, const void *host_src, size_t bytes)
{
    (void)b;
    memcpy(dst, host_src, bytes);
}

static void cpu_read(struct backend *b, void *host_dst, const void *src, size_t bytes)
{
    (void)b;
    memcpy(host_dst, src, bytes);
}

int64_t cpu_weight_bytes(const struct backend_options *o, const struct format *f, int64_t rows, int64_t cols,
                         int arrays)
{
    (void)arrays; /* the CPU uses them in place */
    const struct format *held = backend_held_format(o, f);
    const int64_t bytes = rows * format_row_bytes(held, cols);
    const int64_t copies = o->numa == NUMA_REPLICATE ? MAX(o->nodes, 1) : 1;
    return cpu_copies_weights(o) || held != f ? round_up(bytes, ALIGNMENT) * copies : bytes;
}

/* ---------------------------------------------------------------- scratch */

_Static_assert(FORMAT_COUNT <= 64, "a set of formats has 64 bits: format_bit");

/* The set of input kinds that products can use: those that weights prescribe, and the one that the options
 * choose for weights that prescribe nothing. */
static uint32_t input_kinds_in_use(const struct backend_options *o, uint32_t prescribed)
{
    const bool tokens = prescribed & 1u << INPUT_FREE && o->activations == ACTIVATIONS_INT8_TOKEN;
    return prescribed | (tokens ? 1u << INPUT_INT8_TOKEN : 0);
}

/* Rows of activations for which there is scratch memory, so that many experts run in one parallel region. */
static int64_t experts_rows(const struct backend_work *w)
{
    return MIN(w->pairs * SLIVER, (int64_t)EXPERT_ROWS); /* each expert's rows fill slivers of their own */
}

/* Enlarge the plan for products of weights in format f with inputs of that kind. */
static void scratch_plan_products(struct scratch_plan *p, const struct kernel_set *k,
                                  const struct backend_options *o, const struct backend_work *w,
                                  const struct format *f, enum input_kind kind)
{
    if (input_is_int8(kind) && f != &FORMATS[FORMAT_INT8]) return;
    for (int64_t n = 1; n <= w->rows; n = n < SLIVER || n == w->rows ? n + 1 : w->rows) {
        const struct gemm_kernel *g = matmul_scheme(k, o, f, kind, (int)MIN(n, (int64_t)INT32_MAX));
        if (!g) continue;
        p->shared_bytes = MAX(p->shared_bytes, gemm_shared_bytes(g, MAX(n, experts_rows(w)), w->cols));
        p->thread_bytes = MAX(p->thread_bytes, gemm_thread_bytes(g));
    }
    /* cpu_expert_down uses this kernel at every number of rows */
    const struct gemm_kernel *one = o->batch_invariant && w->pairs ? matmul_scheme(k, o, f, kind, INT32_MAX)
                                                                   : NULL;
    if (one) {
        p->shared_bytes = MAX(p->shared_bytes,
                              gemm_shared_bytes(one, MAX(w->rows, experts_rows(w)), w->cols));
        p->thread_bytes = MAX(p->thread_bytes, gemm_thread_bytes(one));
    }
    struct matmul_candidate all[CANDIDATES_MAX];
    for (int i = cpu_tunes(o) ? matmul_candidates(k, o, f, kind, all) - 1 : -1; i >= 0; i--) {
        p->shared_bytes = MAX(p->shared_bytes, gemm_shared_bytes(all[i].kernel, TUNED_ROWS, w->cols));
        p->thread_bytes = MAX(p->thread_bytes, gemm_thread_bytes(all[i].kernel));
    }
}

/* The measurements of kernels have up to TUNED_ROWS rows, whatever a model needs. */
static struct backend_work work_with_tuning(const struct backend_options *o, const struct backend_work *w)
{
    struct backend_work out = *w;
    if (cpu_tunes(o)) out.rows = MAX(out.rows, (int64_t)TUNED_ROWS);
    return out;
}

static int head_dim_of(const struct backend_work *w)
{
    return w->head_dim ? w->head_dim : (int)MIN(w->cols, (int64_t)HEAD_DIM_MAX);
}

/* The scratch memory for the largest operations `work`: the maximum over all formats and input kinds of a
 * model. */
static struct scratch_plan scratch_plan_for(const struct kernel_set *k, const struct backend_options *o,
                                            const struct backend_work *work)
{
    const struct backend_work enlarged = work_with_tuning(o, work), *w = &enlarged;
    const int64_t tuned = cpu_tunes(o) ? TUNED_GEMV_ROWS : 0;
    const int64_t few = MAX(
        tuned, MAX(MAX(k->gemm_f32.min_rows, k->gemm_bf16.min_rows),
                   MAX(k->gemm_int8.min_rows, k->gemm_int8.min_rows_wide))); /* GEMV has fewer, or 8 */
    const uint32_t kinds = input_kinds_in_use(o, w->inputs);
    int64_t codes = 0;
    for (int kind = 0; kind < INPUT_KIND_COUNT; kind++)
        if (kinds & 1u << kind && input_is_int8((enum input_kind)kind))
            codes = k->gemm_w8a8.multiply ? MIN(w->rows, (int64_t)k->gemm_w8a8.min_rows) : w->rows;
    const int64_t floats = MAX(MIN(w->rows, few), experts_rows(w) / EXPERT_GEMV_SHARE);
    struct scratch_plan p = { .shared_bytes = gemv_shared_bytes(floats, codes, w->cols),
                              .thread_bytes = attention_thread_bytes(k, o, head_dim_of(w)) };
    for (int f = 0; f < FORMAT_COUNT; f++)
        for (int kind = 0; kind < INPUT_KIND_COUNT; kind++)
            if (w->formats & format_bit(&FORMATS[f]) && kinds & 1u << kind)
                scratch_plan_products(&p, k, o, w, &FORMATS[f], (enum input_kind)kind);
    p.shared_bytes += inputs_shared_bytes(o->threads, w->rows, w->cols);
    p.shared_bytes = round_up(MAX(p.shared_bytes, attention_shared_bytes(o, w, head_dim_of(w))), ALIGNMENT);
    p.thread_bytes = round_up(p.thread_bytes, 4096);
    return p;
}

int64_t cpu_scratch_bytes(const struct backend_options *options, const struct backend_work *work)
{
    const struct kernel_set k = kernels_select(options->isa & isa_detect());
    const struct scratch_plan p = scratch_plan_for(&k, options, work);
    return scratch_bytes(options, &p);
}

/* Reallocate the scratch memory for `work` and make it b->work. Weights may be bound before anything is
 * reserved; work->rows is 0 then and nothing is allocated. */
static enum err_code scratch_resize(struct cpu *b, const struct backend_work *work, struct err *why)
{
    const struct backend_options *o = &b->base.options;
    struct scratch_plan p = b->plan;
    if (work->rows) p = scratch_plan_for(&b->k, o, work);
    if (p.shared_bytes != b->plan.shared_bytes || p.thread_bytes != b->plan.thread_bytes) {
        const size_t thread_bytes = (size_t)o->threads * (size_t)p.thread_bytes;
        uint8_t *shared = cpu_pages(b, (size_t)p.shared_bytes);
        uint8_t *threads = cpu_pages(b, thread_bytes);
        if (!shared || !threads) {
            free(shared);
            free(threads);
            return err_set(why, ERR_NOMEM,
                           "out of memory: %lld bytes of scratch for %lld rows of %lld inputs",
                           (long long)(p.shared_bytes + (int64_t)thread_bytes), (long long)work->rows,
                           (long long)work->cols);
        }
        free(b->shared);
        free(b->threads);
        /* Planned memory is resident memory: scores take most of it, and use it from the first long prompt
         * on. */
        if (o->attention == ATTENTION_PLAIN) memset(shared, 0, (size_t)p.shared_bytes);
        b->shared = shared;
        b->threads = threads;
    }
    b->plan = p;
    b->work = *work;
    return ERR_OK;
}

static enum err_code cpu_reserve(struct backend *base, const struct backend_work *wanted, struct err *why)
{
    struct cpu *b = (struct cpu *)base;
    struct backend_work work = work_with_tuning(&b->base.options, wanted);
    assert(work.rows >= 1 && work.cols >= 1);
    work.formats |= b->work.formats;
    work.inputs |= b->work.inputs;
    work.head_dim = head_dim_of(&work);
    return scratch_resize(b, &work, why);
}

/* ---------------------------------------------------------------- binding */

static enum err_code cpu_bind(struct backend *base, struct weight *out, const struct format *format,
                              int64_t rows, int64_t cols, const struct input_scheme *input, const void *host,
                              struct err *why)
{
    struct cpu *b = (struct cpu *)base;
    const struct format *held = backend_held_format(&base->options, format);
    struct backend_work work = b->work;
    if (base->options.batch_invariant && input && input_depends_on_batch(input->kind))
        return err_set(why, ERR_USAGE,
                       "batch_invariant=on cannot run these weights: their activations are of kind %s, whose "
                       "scale or outlier columns depend on all rows of a batch; choose another method, or "
                       "batch_invariant=off",
                       input_kind_name(input->kind));
    *out = (struct weight){ .format = held, .rows = rows, .cols = cols, .data = host, .input = input };
    out->tuned = autotune_find(b, &base->options, out);
    b->inputs |= 1u << inputs_scheme(&base->options, out).kind;
    work.formats |= format_bit(held);
    work.inputs |= 1u << (input ? input->kind : INPUT_FREE);
    const bool new_kind = work.formats != b->work.formats || work.inputs != b->work.inputs;
    const enum err_code rc = new_kind ? scratch_resize(b, &work, why) : ERR_OK;
    if (rc) return rc;
    return held == format && !cpu_copies_weights(&base->options) ? ERR_OK
                                                                 : cpu_copy_weight(b, out, format, why);
}

const struct backend_ops CPU_OPS = {
    .close = cpu_close,
    .describe = cpu_describe,
    .finish = cpu_finish,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .write = cpu_write,
    .read = cpu_read,
    .bind = cpu_bind,
    .release = cpu_release,
    .reserve = cpu_reserve,
    .autotune = cpu_autotune,
    .gather = cpu_gather,
    .mix = cpu_mix,
    .matmul = cpu_matmul,
    .gated = cpu_gated,
    .groups_experts = cpu_groups_experts,
    .expert_up = cpu_expert_up,
    .expert_down = cpu_expert_down,
    .norm = cpu_norm,
    .rope = cpu_rope,
    .hadamard = cpu_hadamard,
    .kv_store = cpu_kv_store,
    .attention = cpu_attention,
    .activate = cpu_activate,
    .top = cpu_top,
};

bool backend_runs_alone(enum work_kind kind, double amount)
{
    static const double AN_ELEMENT[] = {
        [WORK_ELEMENTS] = 1, [WORK_DOTS] = DOTS_PER_ELEMENT, [WORK_PRODUCTS] = PRODUCTS_PER_ELEMENT
    };
    return cpu_runs_alone((int64_t)(amount / AN_ELEMENT[kind]));
}
