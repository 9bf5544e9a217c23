/* kernels/isa/probe/ceiling_f32_v128.h - the rate of f32 multiply-adds with 128-bit vectors whose operands
 * are in registers. Include an implementation of isa/v128.h first. */
#ifndef QDYNO_KERNELS_ISA_PROBE_CEILING_F32_V128_H
#define QDYNO_KERNELS_ISA_PROBE_CEILING_F32_V128_H

#include "kernels/isa/isa_kernels.h"

double V128(ceiling_f32_fma)(int64_t rounds)
{
    enum { CHAINS = 12 };
    f32x4 sum[CHAINS], a = all_f32(1.0000001f), b = all_f32(1e-9f);
#pragma GCC unroll 12
    for (int j = 0; j < CHAINS; j++) sum[j] = b;
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < CHAINS; j++) {
            keep_f32(&a); /* else, without fused multiply-adds, a * b would be computed only once */
            sum[j] = fma_f32(a, b, sum[j]);
            keep_f32(&sum[j]);
        }
    }
    return 2.0 * 4 * CHAINS * (double)rounds;
}

#endif
