/* kernels/isa/encode/lanes_v128.h - the interface of search_lanes.h with 128-bit vectors: four lanes. Include
 * an implementation of isa/v128.h first. */
#ifndef QDYNO_KERNELS_ISA_ENCODE_LANES_V128_H
#define QDYNO_KERNELS_ISA_ENCODE_LANES_V128_H

#include "kernels/isa/isa_kernels.h"

#define LANES_TABLE(name) V128_TABLE(name)
#define LANES_VECTORS     V128_TABLE(VECTORS)
#define LANES_SHORT
enum { LANES = 4 };
typedef f32x4 floats;
typedef s32x4 lane_mask;

ALWAYS_INLINE floats max_of(floats a, floats b)
{
    return max_f32(a, b);
}

ALWAYS_INLINE floats min_of(floats a, floats b)
{
    return min_f32(a, b);
}

ALWAYS_INLINE floats root_of(floats a)
{
    return root_f32(a);
}

ALWAYS_INLINE floats magnitude_of(floats a)
{
    return abs_f32(a);
}

ALWAYS_INLINE lane_mask less(floats a, floats b)
{
    return (lane_mask)(a < b);
}

ALWAYS_INLINE lane_mask differ(floats a, floats b)
{
    return (lane_mask)(a != b);
}

ALWAYS_INLINE bool any(lane_mask m)
{
    typedef int64_t pair __attribute__((vector_size(16)));
    const pair p = (pair)m;
    return (p[0] | p[1]) != 0;
}

/* table[number of middles <= v]. The differences of neighbouring entries are exact, so adding them yields the
 * entry itself. */
ALWAYS_INLINE floats step_of(const float middles[15], const float table[16], floats v)
{
    floats t = all_f32(table[0]);
#pragma GCC unroll 15
    for (int i = 0; i < 15; i++) {
        const u32x4 above = (u32x4)(v >= all_f32(middles[i]));
        t += (f32x4)(above & (u32x4)all_f32(table[i + 1] - table[i]));
    }
    return t;
}

#endif
