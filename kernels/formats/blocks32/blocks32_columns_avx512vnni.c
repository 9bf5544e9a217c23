/* Blocks of 32 weights as columns of 16 rows, for products with few rows of activations. 16 stored bytes of
 * each row are transposed first and then expanded, so that one instruction expands codes of 16 rows. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"
#include "kernels/isa/gemm/columns_avx512.h"

/* Convert the f16 at the start of every block of 16 rows: 2-byte copies of a piece, then whole vectors. */
ALWAYS_INLINE void scales_unpack(const uint8_t *w, int64_t row_bytes, int64_t blocks, const int block_bytes,
                                 struct q8_columns *out)
{
    uint16_t half[Q8_PIECE / Q8_BLOCK][TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++, w += row_bytes)
        if (blocks == Q8_PIECE / Q8_BLOCK)
#pragma GCC unroll 8
            for (int b = 0; b < Q8_PIECE / Q8_BLOCK; b++) half[b][r] = load_u16(w + b * block_bytes);
        else
            for (int b = 0; b < blocks; b++) half[b][r] = load_u16(w + b * block_bytes);
    for (int b = 0; b < blocks; b++)
        _mm512_store_ps(out[b].scale[0], _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)half[b])));
}

struct q8_kind q4_0_unpack_columns(const uint8_t *w, int64_t row_bytes, int64_t k, struct q8_columns *out,
                                   struct prefetch *ahead)
{
    scales_unpack(w, row_bytes, k / Q8_BLOCK, Q4_0_BYTES, out);
    for (int64_t i = 0; i < k; i += Q8_BLOCK, w += Q4_0_BYTES, out++) {
        __m512i bytes[4];
        prefetch_step(ahead);
        columns_load(w + Q4_0_CODES, row_bytes, bytes);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            _mm512_store_si512(out->code[j], byte_bits(bytes[j], 0, 15));
            _mm512_store_si512(out->code[4 + j], byte_bits(bytes[j], 4, 15));
        }
    }
    return (struct q8_kind){ .sub = 32, .bias = 8 };
}

struct q8_kind q8_0_unpack_columns(const uint8_t *w, int64_t row_bytes, int64_t k, struct q8_columns *out,
                                   struct prefetch *ahead)
{
    const __m512i bias = _mm512_set1_epi8((char)0x80);
    scales_unpack(w, row_bytes, k / Q8_BLOCK, Q8_0_BYTES, out);
    for (int64_t i = 0; i < k; i += Q8_BLOCK, w += Q8_0_BYTES, out++) {
        prefetch_step(ahead);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m512i bytes[4];
            columns_load(w + Q8_0_CODES + 16 * half, row_bytes, bytes);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                _mm512_store_si512(out->code[4 * half + j], _mm512_xor_si512(bytes[j], bias));
        }
    }
    return (struct q8_kind){ .sub = 32, .bias = 128, .wide = true };
}
