/* kernels/isa/encode/lanes_avx2.h - the interface of search_lanes.h with AVX2: eight lanes. */
#ifndef QDYNO_KERNELS_ISA_ENCODE_LANES_AVX2_H
#define QDYNO_KERNELS_ISA_ENCODE_LANES_AVX2_H

#include <immintrin.h>

#include "kernels/isa/inline.h"
#include "kernels/isa/isa_kernels.h"

#define LANES_TABLE(name) name##_AVX2
#define LANES_VECTORS     VECTORS_AVX2
#define LANES_SHORT
enum { LANES = 8 };
typedef float floats __attribute__((vector_size(32)));
typedef __m256i lane_mask;

ALWAYS_INLINE floats max_of(floats a, floats b)
{
    return _mm256_max_ps(a, b);
}

ALWAYS_INLINE floats min_of(floats a, floats b)
{
    return _mm256_min_ps(a, b);
}

ALWAYS_INLINE floats root_of(floats a)
{
    return _mm256_sqrt_ps(a);
}

ALWAYS_INLINE floats magnitude_of(floats a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

ALWAYS_INLINE lane_mask less(floats a, floats b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

ALWAYS_INLINE lane_mask differ(floats a, floats b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_NEQ_UQ));
}

ALWAYS_INLINE floats choose(lane_mask m, floats yes, floats no)
{
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(m));
}

ALWAYS_INLINE bool any(lane_mask m)
{
    return _mm256_movemask_ps(_mm256_castsi256_ps(m)) != 0;
}

/* table[number of middles not above v]: the upper or the lower eight by one comparison, then three steps
 * among those, each a look-up of the next middle. */
ALWAYS_INLINE floats step_of(const float middles[15], const float table[16], floats v)
{
    const __m256 upper = _mm256_cmp_ps(v, _mm256_set1_ps(middles[7]), _CMP_GE_OQ);
    const __m256 low = _mm256_loadu_ps(middles),
                 high = _mm256_loadu_ps(middles + 7); /* [1..7]: of the upper */
    __m256i at = _mm256_setzero_si256();
#pragma GCC unroll 3
    for (int half = 4; half; half /= 2) {
        const __m256i next = _mm256_add_epi32(at, _mm256_set1_epi32(half - 1));
        const __m256 middle = _mm256_blendv_ps(
            _mm256_permutevar8x32_ps(low, next),
            _mm256_permutevar8x32_ps(high, _mm256_add_epi32(next, _mm256_set1_epi32(1))), upper);
        const __m256i above = _mm256_castps_si256(_mm256_cmp_ps(v, middle, _CMP_GE_OQ));
        at = _mm256_add_epi32(at, _mm256_and_si256(above, _mm256_set1_epi32(half)));
    }
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(_mm256_loadu_ps(table), at),
                            _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), at), upper);
}

#endif
