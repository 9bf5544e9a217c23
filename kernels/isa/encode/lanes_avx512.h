/* kernels/isa/encode/lanes_avx512.h - the interface of search_lanes.h with AVX-512: sixteen lanes, masks in
 * their own registers. */
#ifndef QDYNO_KERNELS_ISA_ENCODE_LANES_AVX512_H
#define QDYNO_KERNELS_ISA_ENCODE_LANES_AVX512_H

#include <immintrin.h>

#include "kernels/isa/inline.h"
#include "kernels/isa/isa_kernels.h"

#define LANES_TABLE(name) name##_AVX512
#define LANES_VECTORS     VECTORS_AVX512
#define LANES_SHORT                                                                                          \
    __attribute__((target("prefer-vector-width=256"))) /* loops of 32: less to fold at their ends */
enum { LANES = 16 };
typedef float floats __attribute__((vector_size(64)));
typedef __mmask16 lane_mask;

ALWAYS_INLINE floats max_of(floats a, floats b)
{
    return _mm512_max_ps(a, b);
}

ALWAYS_INLINE floats min_of(floats a, floats b)
{
    return _mm512_min_ps(a, b);
}

ALWAYS_INLINE floats root_of(floats a)
{
    return _mm512_sqrt_ps(a);
}

ALWAYS_INLINE floats magnitude_of(floats a)
{
    return _mm512_abs_ps(a);
}

ALWAYS_INLINE lane_mask less(floats a, floats b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

ALWAYS_INLINE lane_mask differ(floats a, floats b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ);
}

ALWAYS_INLINE floats choose(lane_mask m, floats yes, floats no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}

ALWAYS_INLINE bool any(lane_mask m)
{
    return m != 0;
}

/* table[number of middles not above v]: a search in four steps, each a look-up of the next middle. */
ALWAYS_INLINE floats step_of(const float middles[15], const float table[16], floats v)
{
    const __m512 middle = _mm512_maskz_loadu_ps(0x7fff, middles);
    __m512i at = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int half = 8; half; half /= 2) {
        const __m512i next = _mm512_add_epi32(at, _mm512_set1_epi32(half - 1));
        const __mmask16 above = _mm512_cmp_ps_mask(_mm512_permutexvar_ps(next, middle), v, _CMP_LE_OQ);
        at = _mm512_mask_add_epi32(at, above, at, _mm512_set1_epi32(half));
    }
    return _mm512_permutexvar_ps(at, _mm512_loadu_ps(table));
}

#endif
