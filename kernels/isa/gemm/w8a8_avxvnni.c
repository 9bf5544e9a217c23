/* W8A8 with AVX-VNNI: vpdpbusd multiplies unsigned activation codes by signed weights. Few rows use the AVX2
 * kernel. */
#include "kernels/isa/isa_kernels.h"
#include "kernels/isa/gemm/w8a8_256.h"

enum { PER = 4, MIN_ROWS = 8 };

ALWAYS_INLINE __m256i codes_load(const uint8_t *code)
{
    return _mm256_loadu_si256((const __m256i *)code);
}

ALWAYS_INLINE __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    return _mm256_dpbusd_avx_epi32(sum, x, w);
}

static const struct w8a8_256 HOW = { PER, codes_load, codes_load, add_products };
GEMM_W8A8_256(GEMM_W8A8_AVXVNNI, HOW, PER, MIN_ROWS);
