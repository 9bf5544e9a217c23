/* The rate of bf16 dot products with AVX-512 BF16 whose operands are in registers. */
#include "kernels/isa/avx512.h"
#include "kernels/isa/isa_kernels.h"

double ceiling_bf16_dot_avx512bf16(int64_t rounds)
{
    enum { CHAINS = 16 };
    __m512 sum[CHAINS];
    const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = (__m512bh)_mm512_set1_epi16(0x3000);
#pragma GCC unroll 16
    for (int j = 0; j < CHAINS; j++) sum[j] = _mm512_setzero_ps();
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < CHAINS; j++) {
            sum[j] = _mm512_dpbf16_ps(sum[j], a, b);
            __asm__ volatile("" : "+v"(sum[j]));
        }
    }
    return 2.0 * 32 * CHAINS * (double)rounds;
}
