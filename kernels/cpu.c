/* The CPU backend: threads, memory, weights used where the file is mapped. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/inputs.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };

/* Rows of activations lie pages apart and are walked column by column: with 4 KiB pages every visit costs a
 * walk of the page tables, which took more time than the tile products themselves. */
static void *aligned_pages(size_t bytes, enum huge_pages huge)
{
    if (bytes < HUGE_PAGE || huge == HUGE_PAGES_OFF)
        return aligned_alloc(ALIGNMENT, (size_t)round_up((int64_t)MAX(bytes, 1u), ALIGNMENT));
    void *p = aligned_alloc(HUGE_PAGE, (size_t)round_up((int64_t)bytes, HUGE_PAGE));
    if (p) madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a wish: refused is fine */
    return p;
}

enum err_code cpu_open(struct backend **out, const char *device, const struct backend_options *options,
                       struct err *why)
{
    struct cpu *b = calloc(1, sizeof *b);
    if (!b) return err_set(why, ERR_NOMEM, "out of memory for the backend of %s", device);
    b->k = kernels_select(options->isa & isa_detect()); /* a wrong value may be slow, never a crash */
    b->hands_off = kernels_hands_off();
    *out = &b->base;
    return ERR_OK;
}

static void cpu_close(struct backend *base)
{
    struct cpu *b = (struct cpu *)base;
    free(b->shared);
    free(b->threads);
    free(b);
}

static void cpu_describe(const struct backend *base, struct backend_info *out)
{
    const struct cpu *b = (const struct cpu *)base;
    out->device = "cpu";
    out->isa = b->k.isa;
    out->huge_wanted_bytes = b->huge_wanted_bytes;
    out->copied_bytes = b->copied_bytes;
    out->repacked_bytes = b->repacked_bytes;
    out->inputs = b->inputs;
}

static enum err_code cpu_finish(struct backend *base, struct err *why)
{
    (void)base, (void)why; /* every operation ends before it returns */
    return ERR_OK;
}

/* Of an allocation, what asks for huge pages. */
static int64_t huge_part(size_t bytes, enum huge_pages huge)
{
    return huge == HUGE_PAGES_OFF ? 0 : (int64_t)(bytes / HUGE_PAGE * HUGE_PAGE);
}

static void *cpu_alloc(struct backend *base, size_t bytes)
{
    struct cpu *b = (struct cpu *)base;
    if (bytes > SIZE_MAX / 2) return NULL;
    void *p = aligned_pages(bytes, b->base.options.huge_pages);
    if (!p) return NULL;
    b->huge_wanted_bytes += huge_part(bytes, b->base.options.huge_pages);
    return memset(p, 0, bytes);
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
    (void)arrays; /* used where they lie */
    const struct format *held = backend_held_format(o, f);
    const int64_t bytes = rows * format_row_bytes(held, cols);
    const bool copied = o->huge_pages == HUGE_PAGES_ALL || held != f;
    return copied ? round_up(bytes, ALIGNMENT) : bytes;
}

/* A weight that still lies in the file, in `format`, into memory of our own. */
static enum err_code copy(struct cpu *b, struct weight *w, const struct format *format, struct err *why)
{
    const size_t bytes = (size_t)(w->rows * format_row_bytes(w->format, w->cols));
    w->owned = aligned_pages(bytes, b->base.options.huge_pages);
    if (!w->owned) return err_set(why, ERR_NOMEM, "out of memory for a copy of %zu bytes of weights", bytes);
    if (w->format == format) {
        memcpy(w->owned, w->data, bytes);
    } else {
        weight_repack(b, format, w->data, w->owned, w->rows * w->cols);
        b->repacked_bytes += (int64_t)bytes;
    }
    w->data = w->owned;
    b->huge_wanted_bytes += huge_part(bytes, b->base.options.huge_pages);
    b->copied_bytes += (int64_t)bytes;
    return ERR_OK;
}

static enum err_code cpu_bind(struct backend *base, struct weight *out, const struct format *format,
                              int64_t rows, int64_t cols, const struct input_scheme *input, const void *host,
                              struct err *why)
{
    struct cpu *b = (struct cpu *)base;
    const struct format *held = backend_held_format(&base->options, format);
    *out = (struct weight){ .format = held, .rows = rows, .cols = cols, .data = host, .input = input };
    b->inputs |= 1u << inputs_scheme(&base->options, out).kind;
    return held == format && base->options.huge_pages != HUGE_PAGES_ALL ? ERR_OK : copy(b, out, format, why);
}

static void cpu_release(struct backend *base, struct weight *w)
{
    (void)base;
    free(w->owned);
}

/* ---------------------------------------------------------------- scratch */

static struct scratch_plan plan_for(const struct kernel_set *k, const struct backend_options *o, int64_t rows,
                                    int64_t cols)
{
    struct scratch_plan p = { .rows = rows, .cols = cols, .thread_bytes = attention_thread_bytes(k, cols) };
    const int64_t few = MAX(MAX(k->gemm_f32.min_rows, k->gemm_bf16.min_rows),
                            MAX(k->gemm_int8.min_rows, k->gemm_int8.min_rows_wide)); /* dots end before */
    const int64_t codes = k->gemm_w8a8.multiply ? MIN(rows, (int64_t)k->gemm_w8a8.min_rows) : rows;
    p.shared_bytes = gemv_shared_bytes(MIN(rows, few), codes, cols);
    for (int i = 0; i < FORMAT_COUNT * INPUT_KIND_COUNT;
         i++) { /* a model may mix formats, and with them schemes */
        const struct format *f = &FORMATS[i / INPUT_KIND_COUNT];
        for (int64_t n = 1; n <= rows; n = n < SLIVER || n == rows ? n + 1 : rows) {
            const struct gemm_kernel *g = matmul_scheme(k, o, f, (enum input_kind)(i % INPUT_KIND_COUNT),
                                                        (int)MIN(n, (int64_t)INT32_MAX));
            if (!g) continue;
            p.shared_bytes = MAX(p.shared_bytes, gemm_shared_bytes(g, n, cols));
            p.thread_bytes = MAX(p.thread_bytes, gemm_thread_bytes(g));
        }
    }
    p.shared_bytes += inputs_shared_bytes(o->threads, rows, cols);
    p.shared_bytes = round_up(MAX(p.shared_bytes, attention_shared_bytes(o->threads, cols)), ALIGNMENT);
    p.thread_bytes = round_up(p.thread_bytes, 4096);
    return p;
}

int64_t cpu_scratch_bytes(const struct backend_options *options, int64_t rows, int64_t max_cols)
{
    const struct kernel_set k = kernels_select(options->isa & isa_detect());
    const struct scratch_plan p = plan_for(&k, options, rows, max_cols);
    return p.shared_bytes + options->threads * p.thread_bytes;
}

static enum err_code cpu_reserve(struct backend *base, int64_t rows, int64_t max_cols, struct err *why)
{
    struct cpu *b = (struct cpu *)base;
    assert(rows >= 1 && max_cols >= 1);
    const struct scratch_plan p = plan_for(&b->k, &b->base.options, rows, max_cols);
    const size_t thread_bytes = (size_t)b->base.options.threads * (size_t)p.thread_bytes;
    uint8_t *shared = aligned_pages((size_t)p.shared_bytes, b->base.options.huge_pages);
    uint8_t *threads = aligned_pages(thread_bytes, b->base.options.huge_pages);
    if (!shared || !threads) {
        free(shared);
        free(threads);
        return err_set(why, ERR_NOMEM, "out of memory: %lld bytes of scratch for %lld rows of %lld inputs",
                       (long long)(p.shared_bytes + (int64_t)thread_bytes), (long long)rows,
                       (long long)max_cols);
    }
    free(b->shared);
    free(b->threads);
    b->shared = shared;
    b->threads = threads;
    b->plan = p;
    return ERR_OK;
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
    .gather = cpu_gather,
    .matmul = cpu_matmul,
    .gated = cpu_gated,
    .norm = cpu_norm,
    .rope = cpu_rope,
    .kv_store = cpu_kv_store,
    .attention = cpu_attention,
    .activate = cpu_activate,
    .top = cpu_top,
};
