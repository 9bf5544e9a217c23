/* Methods that are no more than a format, and say how activations are treated: MXFP4, and TF32, which saves
 * nothing here and exists so that what GPUs compute with it can be compared. */
#include <string.h>

#include "engine/quant/methods.h"

const struct method METHOD_MXFP4 = {
    .name = "mxfp4",
    .help = "four-bit floats in blocks of 32 under a power of two, as the OCP microscaling format has it",
    .good = "models trained in it; hardware that multiplies it",
    .bad = "made after training it is weaker than iq4_xs or nf4 at the same size",
    .formats = "mxfp4",
    .linear_only = true,
    .default_format = "mxfp4",
    .rows = nearest_rows,
};

/* Ten bits of mantissa, to nearest, ties to even; x is finite, and may round to infinity only from above
 * what a float of ten bits can hold. */
static float to_tf32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const uint32_t rounded = (u + 0xfff + (u >> 13 & 1)) & ~0x1fffu;
    u = (rounded & 0x7f800000) == 0x7f800000 ? u & ~0x1fffu : rounded;
    memcpy(&x, &u, sizeof u);
    return x;
}

static struct act_scheme tf32_act(const struct params *p)
{
    (void)p;
    return (struct act_scheme){ .kind = INPUT_TF32 };
}

static void tf32_rows(const struct tensor_job *job, const float *x, void *out, int64_t rows)
{
    unsigned char *at = out;
    for (int64_t i = 0; i < rows * job->cols; i++) {
        const float y = to_tf32(x[i]);
        memcpy(at + i * (int64_t)sizeof y, &y, sizeof y);
    }
}

const struct method METHOD_TF32 = {
    .name = "tf32",
    .help = "weights and activations with ten bits of mantissa, kept and multiplied as f32",
    .good = "seeing what GPUs' TF32 products do to a model",
    .bad = "everything else: neither smaller nor faster than f32 here",
    .formats = "f32",
    .linear_only = false,
    .default_format = "f32",
    .act = tf32_act,
    .rows = tf32_rows,
};
