/* The rate of 8-bit dot products with AVX-512 VNNI whose operands are in registers. */
#include "kernels/isa/avx512.h"
#include "kernels/isa/isa_kernels.h"

double ceiling_int8_dot_avx512vnni(int64_t rounds)
{
    enum { CHAINS = 16 };
    __m512i sum[CHAINS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
#pragma GCC unroll 16
    for (int j = 0; j < CHAINS; j++) sum[j] = _mm512_setzero_si512();
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < CHAINS; j++) {
            sum[j] = _mm512_dpbusd_epi32(sum[j], a, b);
            __asm__ volatile("" : "+v"(sum[j]));
        }
    }
    return 2.0 * 64 * CHAINS * (double)rounds;
}
