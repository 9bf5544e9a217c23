/* The rate of f32 multiply-adds with AVX-512 whose operands are in registers. */
#include "kernels/isa/avx512.h"
#include "kernels/isa/isa_kernels.h"

double ceiling_f32_fma_avx512(int64_t rounds)
{
    enum { CHAINS = 16 }; /* two ports and a latency of four cycles need at least eight */
    __m512 sum[CHAINS], a = _mm512_set1_ps(1.0000001f), b = _mm512_set1_ps(1e-9f);
#pragma GCC unroll 16
    for (int j = 0; j < CHAINS; j++) sum[j] = b;
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < CHAINS; j++) {
            sum[j] = _mm512_fmadd_ps(a, b, sum[j]);
            __asm__ volatile("" : "+v"(sum[j])); /* the compiler must not merge rounds */
        }
    }
    return 2.0 * 16 * CHAINS * (double)rounds;
}
