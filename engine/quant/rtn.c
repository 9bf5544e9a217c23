/* Round to nearest, the field's base line: every other method has to beat it to be worth its time. */
#include "engine/quant/methods.h"

static void rtn_rows(const struct tensor_job *job, const float *x, void *out, int64_t rows)
{
    format_encode_rows(job->format, x, out, rows, job->cols);
}

const struct method METHOD_RTN = {
    .name = "rtn",
    .help = "round to nearest: each block by itself, no calibration",
    .good = "8 bits and more; a base line that costs nothing",
    .bad = "below 4 bits",
    .rows = rtn_rows,
};
