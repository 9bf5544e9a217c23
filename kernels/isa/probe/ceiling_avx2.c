/* The rate of f32 and 8-bit multiply-adds with AVX2 whose operands are in registers. */
#include "kernels/isa/avx2.h"
#include "kernels/isa/isa_kernels.h"

double ceiling_f32_fma_avx2(int64_t rounds)
{
    enum { CHAINS = 12 };
    __m256 sum[CHAINS], a = _mm256_set1_ps(1.0000001f), b = _mm256_set1_ps(1e-9f);
#pragma GCC unroll 12
    for (int j = 0; j < CHAINS; j++) sum[j] = b;
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < CHAINS; j++) {
            sum[j] = _mm256_fmadd_ps(a, b, sum[j]);
            __asm__ volatile("" : "+x"(sum[j])); /* the compiler must not merge rounds */
        }
    }
    return 2.0 * 8 * CHAINS * (double)rounds;
}

/* Two instructions for 32 products: 16-bit sums are enough for a few products of small codes. */
double ceiling_int8_dot_avx2(int64_t rounds)
{
    enum { CHAINS = 8 };
    __m256i sum[CHAINS], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
#pragma GCC unroll 8
    for (int j = 0; j < CHAINS; j++) sum[j] = _mm256_setzero_si256();
    for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < CHAINS; j++) {
            __asm__ volatile("" : "+x"(a));
            sum[j] = _mm256_add_epi16(sum[j], _mm256_maddubs_epi16(a, b));
            __asm__ volatile("" : "+x"(sum[j]));
        }
    }
    return 2.0 * 32 * CHAINS * (double)rounds;
}
