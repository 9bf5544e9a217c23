/* Encode floats to blocks with the fastest kernels of this machine; quantizers and the KV cache use it. Every
 * encoder writes the bytes of the reference, so the result depends neither on the machine nor on how rows are
 * divided among threads. */
#include <pthread.h>

#include "kernels/kernel_set.h"

void encode_with(const struct kernel_set *k, const struct format *f, const struct encode *e)
{
    encode_rows_fn *rows = k->format[f - FORMATS].encode;
    if (rows) {
        rows(e);
        return;
    }
    const int64_t at_once = f->row_tail_bytes || f->row_encode ? 1 : e->rows,
                  row_bytes = format_row_bytes(f, e->cols);
    for (int64_t r = 0; r < e->rows; r += at_once)
        f->encode(e->x + r * e->cols, e->out + r * row_bytes, at_once * e->cols);
}

/* Selected once and constant afterwards. QDYNO_ISA is respected; an invalid value selects the reference
 * kernels here, and the callers of isa_usable report it. */
static struct kernel_set encode_kernels;
static pthread_once_t encode_once = PTHREAD_ONCE_INIT;

static void encode_kernels_select(void)
{
    uint32_t usable = 0;
    if (isa_usable(&usable, NULL)) usable = 0;
    encode_kernels = kernels_select(usable);
}

float kernels_largest_magnitude(const float *x, int64_t n)
{
    pthread_once(&encode_once, encode_kernels_select);
    return encode_kernels.rounding.largest(x, n);
}

void format_encode_weighted(const struct format *f, const float *x, const float *importance, void *out,
                            int64_t rows, int64_t cols)
{
    const struct encode e = { .x = x, .importance = importance, .out = out, .rows = rows, .cols = cols };
    pthread_once(&encode_once, encode_kernels_select);
    encode_with(&encode_kernels, f, &e);
}

void format_encode_rows(const struct format *f, const float *x, void *out, int64_t rows, int64_t cols)
{
    format_encode_weighted(f, x, NULL, out, rows, cols);
}
