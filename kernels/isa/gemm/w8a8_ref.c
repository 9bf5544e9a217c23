/* W8A8 in plain C (struct w8a8_dot): a loop that the compiler turns into 16-bit multiplications with 32-bit
 * sums. */
#include "kernels/isa/isa_kernels.h"

static int32_t row_dot(const int8_t *restrict w, const uint8_t *restrict code, int16_t zero, int64_t n)
{
    int32_t sum = 0;
    for (int64_t k = 0; k < n; k++) sum += w[k] * (int16_t)(code[k] - zero);
    return sum;
}

void w8a8_dot_ref(const struct w8a8_dot *d)
{
    for (int r = 0; r < d->rows; r++)
        for (int i = 0; i < d->n; i++)
            d->y[i * d->y_stride + r] = (float)row_dot((const int8_t *)d->w + r * d->row_bytes,
                                                       d->code + i * d->code_stride, (int16_t)d->zero,
                                                       d->cols);
}
