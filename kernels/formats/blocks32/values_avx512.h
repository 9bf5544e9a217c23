/* kernels/formats/blocks32/values_avx512.h - the 16 or 32 values that the codes of a block can mean, as
 * registers for look-ups. The operations and their order are those of the reference, so the bits are, too. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS32_VALUES_AVX512_H
#define QDYNO_KERNELS_FORMATS_BLOCKS32_VALUES_AVX512_H

#include "kernels/formats/blocks32/layout.h"
#include "kernels/isa/avx512.h"

typedef void values_fn(const uint8_t *block, __m512 out[2]); /* out[1] only where codes have a fifth bit */

/* Offsets of the codes of a format; high is 0 if they have four bits. */
struct look_up {
    int bytes, codes, high;
    values_fn *values;
};

static const float IQ4_NL_VALUE[16] = { IQ4_NL_VALUES }, MXFP4_VALUE[16] = { MXFP4_VALUES };

ALWAYS_INLINE __m512 ascending_from(float from)
{
    const __m512 zero_up = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_ps(zero_up, _mm512_set1_ps(from));
}

ALWAYS_INLINE void q4_1_values(const uint8_t *block, __m512 out[2])
{
    out[0] = _mm512_add_ps(_mm512_mul_ps(ascending_from(0), broadcast_f16(block)),
                           broadcast_f16(block + Q4_1_MIN));
}

ALWAYS_INLINE void q5_0_values(const uint8_t *block, __m512 out[2])
{
    const __m512 d = broadcast_f16(block);
    out[0] = _mm512_mul_ps(ascending_from(-Q5_0_BIAS), d);
    out[1] = _mm512_mul_ps(ascending_from(0), d);
}

ALWAYS_INLINE void q5_1_values(const uint8_t *block, __m512 out[2])
{
    const __m512 d = broadcast_f16(block), m = broadcast_f16(block + Q5_1_MIN);
    out[0] = _mm512_add_ps(_mm512_mul_ps(ascending_from(0), d), m);
    out[1] = _mm512_add_ps(_mm512_mul_ps(ascending_from(16), d), m);
}

ALWAYS_INLINE void iq4_nl_values(const uint8_t *block, __m512 out[2])
{
    out[0] = _mm512_mul_ps(_mm512_loadu_ps(IQ4_NL_VALUE), broadcast_f16(block));
}

ALWAYS_INLINE void mxfp4_values(const uint8_t *block, __m512 out[2])
{
    out[0] = _mm512_mul_ps(_mm512_loadu_ps(MXFP4_VALUE), _mm512_set1_ps(mxfp4_scale(block)));
}

static const struct look_up Q4_1 = { Q4_1_BYTES, Q4_1_CODES, 0, q4_1_values },
                            Q5_0 = { Q5_0_BYTES, Q5_0_CODES, Q5_0_HIGH, q5_0_values },
                            Q5_1 = { Q5_1_BYTES, Q5_1_CODES, Q5_1_HIGH, q5_1_values },
                            IQ4_NL = { IQ4_NL_BYTES, IQ4_NL_CODES, 0, iq4_nl_values },
                            MXFP4 = { MXFP4_BYTES, MXFP4_CODES, 0, mxfp4_values };

#endif
