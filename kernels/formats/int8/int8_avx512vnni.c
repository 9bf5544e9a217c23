/* int8 with AVX-512 VNNI, 8-bit activations: vpdpbusd needs one unsigned operand, so the weights' top bit is
 * flipped and 128 * (sum of the activations) is subtracted once per block. */
#include "kernels/isa/gemv/block_dot_avx512vnni.h"
#include "kernels/formats/int8/int8.h"

ALWAYS_INLINE __m256i codes_of(const uint8_t *block, int part)
{
    (void)part;
    return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)block), _mm256_set1_epi8((char)0x80));
}

ALWAYS_INLINE __m128 round_scales(const uint8_t *block)
{
    (void)block;
    return _mm_set1_ps(1);
}

static const struct block_kind512 INT8 = { INT8_BLOCK, 1, 128, codes_of, round_scales, NULL, NULL };

static void int8_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&INT8, d);
}

const struct format_row INT8_AVX512VNNI[INT8_COUNT] = {
    { FORMAT_INT8, { .dot_q8 = int8_dot_q8 } },
};
