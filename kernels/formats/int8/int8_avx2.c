/* int8 with AVX2: stored bytes are the codes. */
#include "kernels/isa/gemv/block_dot_avx2.h"
#include "kernels/formats/int8/int8.h"

ALWAYS_INLINE __m256i codes_of(const uint8_t *block, int part)
{
    (void)part;
    return _mm256_loadu_si256((const __m256i *)block);
}

ALWAYS_INLINE float block_scale(const uint8_t *block)
{
    (void)block;
    return 1;
}

static const struct block_kind INT8 = { INT8_BLOCK, 1, 0, codes_of, products_signed, block_scale, NULL };

BLOCK_KIND_FUNCTIONS(int8, INT8)
BLOCK_KIND_UNPACK_Q8(int8, INT8)

const struct format_row INT8_AVX2[INT8_COUNT] = {
    { FORMAT_INT8,
      { .decode = int8_decode,
        .dot_f32 = int8_dot_f32,
        .dot_q8 = int8_dot_q8,
        .unpack_q8 = int8_unpack_q8,
        .wide_q8 = true } },
};
