/* The rate of 8-bit dot products with AVX-VNNI whose operands are in registers. */
#include "kernels/isa/avx2.h"
#include "kernels/isa/isa_kernels.h"

double ceiling_int8_dot_avxvnni(int64_t rounds)
{
    enum { CHAINS = 12 };
    __m256i sum[CHAINS], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
#pragma GCC unroll 12
    for (int j = 0; j < CHAINS; j++) sum[j] = _mm256_setzero_si256();
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < CHAINS; j++) {
            sum[j] = _mm256_dpbusd_avx_epi32(sum[j], a, b);
            __asm__ volatile("" : "+x"(sum[j]));
        }
    }
    return 2.0 * 32 * CHAINS * (double)rounds;
}
