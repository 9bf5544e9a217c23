/* Static activation quantization, shared by int8_static and quanto: checks the calibration and writes the
 * scale of a matrix's input to its companion tensor. */
#include "engine/quant/static_input.h"

#include <assert.h>

int static_input_companion(struct companion_tensor *out)
{
    *out = (struct companion_tensor){ .what = COMPANION_INPUT_SCALE, .size = 3 };
    return 1;
}

enum err_code static_input_known(const struct tensor_job *job, struct err *why)
{
    if (!job->input)
        return err_set(why, ERR_USAGE, "method %s: the calibration has no statistics of the inputs of '%s'",
                       job->params.method->name, job->name);
    if (!job->input->batches)
        return err_set(
            why, ERR_USAGE,
            "method %s needs the ranges of inputs, and calib= contains mean squares only (an imatrix): "
            "give it a file made by qdyno calibrate, or a text",
            job->params.method->name);
    return ERR_OK;
}

void static_input_put(struct tensor_job *job, struct affine a, int most)
{
    const struct companion_tensor *companion = job_companion(job, COMPANION_INPUT_SCALE);
    assert(companion);
    float *values = companion->data;
    values[0] = a.scale, values[1] = (float)a.zero, values[2] = (float)most;
}
