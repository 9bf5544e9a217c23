/* Numbers to blocks, by the fastest kernels this machine has. All of them write the bytes of the reference,
 * so it does not matter which, nor how rows are shared among threads: quantizers and caches of keys and
 * values come through here alike. */
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

/* Chosen once and never written again. QDYNO_ISA is obeyed; what it misspells is reported by those who can,
 * and means the reference here. */
static struct kernel_set chosen;
static pthread_once_t choosing = PTHREAD_ONCE_INIT;

static void choose(void)
{
    uint32_t usable = 0;
    if (isa_usable(&usable, NULL)) usable = 0;
    chosen = kernels_select(usable);
}

float kernels_largest_magnitude(const float *x, int64_t n)
{
    pthread_once(&choosing, choose);
    return chosen.rounding.largest(x, n);
}

void format_encode_weighted(const struct format *f, const float *x, const float *importance, void *out,
                            int64_t rows, int64_t cols)
{
    const struct encode e = { x, importance, out, rows, cols };
    pthread_once(&choosing, choose);
    encode_with(&chosen, f, &e);
}

void format_encode_rows(const struct format *f, const float *x, void *out, int64_t rows, int64_t cols)
{
    format_encode_weighted(f, x, NULL, out, rows, cols);
}
