/* Encodes int8 rows. */
#include "engine/quant/int8_rows.h"

#include <math.h>

float int8_largest(const float *x, int64_t n)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    return largest;
}

/* Codes are written directly to their place in the row; packing adds the scale. */
void int8_rows_encode(const struct tensor_job *job, int8_row_fn *row, const float *x, void *out, int64_t rows)
{
    const int64_t row_bytes = format_row_bytes(job->format, job->cols);
    for (int64_t r = 0; r < rows; r++) {
        uint8_t *at = (uint8_t *)out + r * row_bytes;
        const float scale = row(x + r * job->cols, job->cols, (int8_t *)at);
        format_row_pack(job->format, at, scale, at, job->cols);
    }
}
