/* kernels/isa/probe/ceiling_int8_v128.h - the rate of 8-bit multiply-adds with 128-bit vectors whose
 * operands are in registers. Include an implementation of isa/v128.h first. */
#ifndef QDYNO_KERNELS_ISA_PROBE_CEILING_INT8_V128_H
#define QDYNO_KERNELS_ISA_PROBE_CEILING_INT8_V128_H

#include "kernels/isa/isa_kernels.h"

double V128(ceiling_int8_dot)(int64_t rounds)
{
    enum { CHAINS = 8 };
    s32x4 sum[CHAINS];
    u8x16 a = (u8x16){ 0 } + 3;
    const s8x16 b = (s8x16){ 0 } + 5;
#pragma GCC unroll 8
    for (int j = 0; j < CHAINS; j++) sum[j] = (s32x4){ 0 };
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < CHAINS; j++) {
            u8x16 pinned;
            keep_u8(&a);
            sum[j] += fold(multiply_small(a, b));
            pinned = (u8x16)sum[j];
            keep_u8(&pinned);
            sum[j] = (s32x4)pinned;
        }
    }
    return 2.0 * 16 * CHAINS * (double)rounds;
}

#endif
