/* engine/quant/rounding.h - rounding to nearest, ties to even, without a library call. Internal to
 * engine/quant/. */
#ifndef QDYNO_ENGINE_QUANT_ROUNDING_H
#define QDYNO_ENGINE_QUANT_ROUNDING_H

/* v limited to [low, high] and rounded; the limits are whole numbers, so the order of the two does not
 * matter. Floats near 1.5 * 2^23 have a spacing of 1, so the addition rounds. |low|, |high| <= 2^22. NaN
 * becomes low.
 */
static inline float round_between(float v, float low, float high)
{
    const float above = v > low ? v : low, near = above < high ? above : high;
    return (near + 12582912.0f) - 12582912.0f;
}

static inline float round_within(float v, float most)
{
    return round_between(v, 0, most);
}

#endif
