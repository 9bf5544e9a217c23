/* Compares a file with the values that its source means, one by one: for files in f32, f16 and bf16, whose
 * values are either those of the source or the closest that the format holds. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/effective.h"
#include "engine/quant/quantize_internal.h"

/* What one thread found. */
struct verified {
    double largest;
    int64_t rounded, wrong; /* wrong: index in the tensor of a value that is not the closest; -1: none */
    int64_t infinite;       /* index of a value that is not a finite number; -1: none */
};

struct verification {
    struct effective was, is;
    float *scratch;         /* [threads][3][cols] */
    unsigned char *encoded; /* [threads][row bytes] */
    struct verified *found; /* [threads] */
};

/* Thread function: compare some rows. */
static void verify_rows(void *arg, int member, int size)
{
    struct verification *v = arg;
    const int64_t rows = v->was.rows, cols = v->was.cols;
    const struct format *format = v->is.matrix->format;
    const int64_t bytes = format_row_bytes(format, cols);
    float *stored = v->scratch + 3 * member * cols, *want = stored + cols, *have = want + cols;
    unsigned char *encoded = v->encoded + member * bytes;
    struct verified f = { .wrong = -1, .infinite = -1 };
    for (int64_t r = rows * member / size; r < rows * (member + 1) / size && f.wrong < 0 && f.infinite < 0;
         r++) {
        effective_row(&v->was, r, stored, want);
        effective_row(&v->is, r, stored, have);
        for (int64_t j = 0; j < cols; j++) {
            if (!isfinite(have[j])) f.infinite = r * cols + j;
            f.rounded += want[j] != have[j];
            f.largest = fmax(f.largest, fabs((double)want[j] - (double)have[j]));
        }
        format_encode_rows(format, want, encoded, 1, cols);
        format_decode_rows(format, encoded, stored, 1, cols);
        for (int64_t j = 0; j < cols && f.wrong < 0; j++)
            if (memcmp(&stored[j], &have[j], sizeof(float)) != 0) f.wrong = r * cols + j;
    }
    v->found[member] = f;
}

static enum err_code verification_run(struct verification *v, struct tensor_plan *t, struct threadpool *pool,
                                      struct err *why)
{
    const size_t size = (size_t)threadpool_size(pool), cols = (size_t)v->was.cols;
    v->scratch = malloc(3 * size * cols * sizeof *v->scratch);
    v->encoded = malloc(size * (size_t)format_row_bytes(t->format, (int64_t)cols));
    v->found = calloc(size, sizeof *v->found);
    if (!v->scratch || !v->encoded || !v->found)
        return err_set(why, ERR_NOMEM, "out of memory to compare '%s'", t->source->name);
    threadpool_run(pool, verify_rows, v);
    t->largest = 0;
    t->rounded = 0;
    for (size_t m = 0; m < size; m++) {
        const struct verified *f = &v->found[m];
        if (f->infinite >= 0)
            return err_set(why, ERR_FORMAT,
                           "tensor '%s': value %" PRId64
                           " is not a finite number: %s cannot store what the source means; use bf16 or f32",
                           t->source->name, f->infinite, t->format->name);
        if (f->wrong >= 0)
            return err_set(why, ERR_FORMAT,
                           "tensor '%s': value %" PRId64
                           " is not the closest that %s can store to the value that "
                           "the source means; the file is damaged: remove it and write it again",
                           t->source->name, f->wrong, t->format->name);
        t->largest = fmax(t->largest, f->largest);
        t->rounded += f->rounded;
    }
    return ERR_OK;
}

static enum err_code tensor_plan_verify(struct tensor_plan *t, const struct gguf *source,
                                        const struct gguf *made, struct threadpool *pool, struct err *why)
{
    struct verification v = { 0 };
    const struct gguf_tensor *is = gguf_tensor_find(made, t->source->name);
    if (!is || is->format != t->format || memcmp(is->shape, t->source->shape, sizeof is->shape) != 0)
        return quantize_tensor_mismatch(t, is, why);
    enum err_code rc = effective_init(&v.was, source, t->source, why);
    if (!rc) rc = effective_init(&v.is, made, is, why);
    if (!rc) rc = verification_run(&v, t, pool, why);
    effective_done(&v.was);
    effective_done(&v.is);
    free(v.scratch);
    free(v.encoded);
    free(v.found);
    return rc;
}

enum err_code quantize_plan_verify(struct quantize_plan *p, const struct gguf *source,
                                   const struct gguf *made, int threads, struct err *why)
{
    struct threadpool *pool = NULL;
    const struct threadpool_options o = { .threads = MAX(threads, 1) };
    enum err_code rc = threadpool_open(&pool, &o, why);
    for (int64_t i = 0; i < p->count && !rc; i++)
        if (format_is_float(p->tensors[i].format))
            rc = tensor_plan_verify(&p->tensors[i], source, made, pool, why);
    threadpool_close(pool);
    return rc;
}
