/* Calibrations and importance matrices are untrusted. Reading any bytes ends in an error or in numbers that
 * can all be used. */
#include <math.h>
#include <stdlib.h>

#include "engine/quant/quant.h"
#include "tests/fuzz/cost.h"
#include "tests/fuzz/draft.h"

static const struct cost_ceiling CEILING = {
    .seconds = 0.1, .seconds_per_mb = 10, .mb = 8, .mb_per_mb = 100
};

static void check_histogram(const struct histogram *h)
{
    double all = 0;
    for (int i = 0; i < h->bins; i++) all += (double)h->counts[i];
    if (!(all > 0) || !(h->low <= h->high)) abort();
}

static void check_input(const struct calibration *c, const struct calibration_input *in)
{
    double all = 0;
    for (int t = 0; t < in->tensor_count; t++)
        if (calibration_find(c, in->tensors[t]) != in) abort();
    for (int64_t i = 0; i < in->cols; i++) {
        if (!(in->mean_square[i] >= 0) || !isfinite(in->mean_square[i])) abort();
        if (in->batches) all += (double)in->mean_abs[i] + (double)in->max_abs[i] - (double)in->min[i];
    }
    for (int64_t i = 0; i < in->batches; i++) all += (double)in->batch_max[i] - (double)in->batch_min[i];
    if (!isfinite(all)) abort();
    if (!in->batches) return;
    check_histogram(&in->histogram);
    check_histogram(&in->symmetric);
}

static void use(const uint8_t *data, size_t size)
{
    struct calibration *c;
    struct calibration_summary about;
    struct err why = { 0 };
    if (calibration_load_memory(&c, data, size, &why)) {
        if (c || !why.message[0] || why.code == ERR_INTERNAL) abort();
        return;
    }
    calibration_describe(c, &about);
    for (int i = 0; i < about.inputs; i++) check_input(c, calibration_at(c, i));
    int32_t ids[2 * 3];
    if (calibration_samples(c, 3, ids, 2) > 2 || !calibration_name(c)[0]) abort();
    calibration_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
