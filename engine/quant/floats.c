/* Float methods: MXFP4, and TF32. TF32 saves neither memory nor time here; it exists to compare with what
 * GPUs compute in that mode. Source of MXFP4: OCP Microscaling Formats (MX) Specification 1.0, 2023. */
#include <string.h>

#include "engine/quant/methods.h"

const struct method METHOD_MXFP4 = {
    .name = "mxfp4",
    .help = "OCP MXFP4: 4-bit floats in blocks of 32 that share a power-of-two scale",
    .good = "models trained in it; hardware that multiplies it",
    .bad = "models not trained in it: iq4_xs and nf4 of the same size are better",
    .formats = "mxfp4",
    .linear_only = true,
    .default_format = "mxfp4",
    .rows = nearest_rows,
};

/* Round to 10 bits of mantissa, to nearest, ties to even. x is finite. Values that would round to infinity
 * are truncated instead. */
static float round_to_tf32(float x)
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
        const float y = round_to_tf32(x[i]);
        memcpy(at + i * (int64_t)sizeof y, &y, sizeof y);
    }
}

const struct method METHOD_TF32 = {
    .name = "tf32",
    .help = "weights and activations with 10 bits of mantissa, stored and multiplied as f32",
    .good = "showing how GPUs' TF32 products change a model",
    .bad = "everything else: neither smaller nor faster than f32 here",
    .formats = "f32",
    .linear_only = false,
    .default_format = "f32",
    .act = tf32_act,
    .rows = tf32_rows,
};
