/* Rotary positions (RoPE): the angle per position of every pair, including the scalings that extend a model
 * beyond its training context (linear, YaRN). Computed once in double; the backend multiplies by the
 * position. Source: Su et al. 2021 (RoFormer), Peng et al. 2023 (YaRN). */
#include "engine/model/model_internal.h"

#include <math.h>

#include "engine/arch/arch.h"

/* The (fractional) index of the pair that makes `rotations` turns within the original context. */
static double yarn_pair(double rotations, int rope_dims, double base, double ctx)
{
    return rope_dims * log(ctx / (rotations * 2 * M_PI)) / (2 * log(base));
}

void rope_frequencies(float *freq, float *magnitude, const struct hyper *h, int rope_dims,
                      const float *factors)
{
    double low = 0, high = 0;
    *magnitude = (float)h->rope_attn_factor;
    if (h->yarn) {
        const double ctx = (double)h->rope_ctx_original;
        low = yarn_pair(h->yarn_beta_fast, rope_dims, h->rope_base, ctx);
        high = yarn_pair(h->yarn_beta_slow, rope_dims, h->rope_base, ctx);
        low = fmax(h->yarn_exact ? low : floor(low), 0);
        high = fmin(h->yarn_exact ? high : ceil(high), rope_dims - 1);
        const double growth = 0.1 * log(h->rope_factor);
        if (!h->arch->latent) *magnitude *= (float)((1 + growth) / (1 + h->yarn_log_multiplier * growth));
    }
    for (int i = 0; i < rope_dims / 2; i++) {
        double angle = pow(h->rope_base, -2.0 * i / rope_dims);
        if (factors) angle /= (double)factors[i];
        const double stretched = angle / h->rope_factor;
        /* YaRN: fast pairs keep their angle, slow pairs are scaled, with a linear ramp between them. */
        const double keep = h->yarn ? 1 - fmin(fmax((i - low) / fmax(0.001, high - low), 0), 1) : 0;
        freq[i] = (float)(stretched * (1 - keep) + angle * keep);
    }
}
