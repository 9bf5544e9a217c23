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

/* ---------------------------------------------------------------- the other formats */

/* How a format stores a block of 32 codes of four bits, or of five. */
struct columns_kind {
    int bytes, codes;
    int high;            /* offset of the word of fifth bits; 0: none */
    int min;             /* offset of an f16 that is added; 0: none */
    bool exponent;       /* the scale is that of mxfp4 */
    const int8_t *table; /* [16] what a code stands for; NULL: itself */
    struct q8_kind kind;
};

enum { RECENTRED = 16 /* codes of formats with a minimum are treated as -16 .. 15 */ };

/* Bits 0 to 3 of every lane become bit 4 of the lane's four bytes. */
ALWAYS_INLINE __m512i fifth_bits(__m512i word)
{
    const __m512i four = _mm512_and_si512(word, _mm512_set1_epi32(15));
    return _mm512_and_si512(_mm512_mullo_epi32(four, _mm512_set1_epi32(0x02040810)),
                            _mm512_set1_epi32(0x10101010));
}

ALWAYS_INLINE __m512i columns_u32(const uint8_t *w, int64_t row_bytes)
{
    uint32_t word[TILE_ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; r++) word[r] = load_u32(w + r * row_bytes);
    return _mm512_loadu_si512(word);
}

ALWAYS_INLINE __m512 columns_scale(const struct columns_kind *f, const uint8_t *w, int64_t row_bytes)
{
    float scale[TILE_ROWS];
    if (!f->exponent) return columns_f16(w, row_bytes);
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; r++) scale[r] = mxfp4_scale(w + r * row_bytes);
    return _mm512_loadu_ps(scale);
}

ALWAYS_INLINE struct q8_kind kind_unpack_columns(const struct columns_kind *f, const uint8_t *w,
                                                 int64_t row_bytes, int64_t k, struct q8_columns *out,
                                                 struct prefetch *ahead)
{
    const __m512i table = f->table ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)f->table))
                                   : _mm512_setzero_si512();
    for (int64_t i = 0; i < k; i += Q8_BLOCK, w += f->bytes, out++) {
        const __m512 scale = columns_scale(f, w, row_bytes);
        const __m512i high = f->high ? columns_u32(w + f->high, row_bytes) : _mm512_setzero_si512();
        __m512i bytes[4];
        prefetch_step(ahead);
        _mm512_store_ps(out->scale[0], scale);
        if (f->min)
            _mm512_store_ps(out->min[0], _mm512_add_ps(columns_f16(w + f->min, row_bytes),
                                                       _mm512_mul_ps(_mm512_set1_ps(RECENTRED), scale)));
        columns_load(w + f->codes, row_bytes, bytes);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m512i low = byte_bits(bytes[j], 0, 15), up = byte_bits(bytes[j], 4, 15);
            if (f->table) {
                low = _mm512_shuffle_epi8(table, low);
                up = _mm512_shuffle_epi8(table, up);
            }
            if (f->high) {
                low = _mm512_or_si512(low, fifth_bits(_mm512_srli_epi32(high, (unsigned)(4 * j))));
                up = _mm512_or_si512(up, fifth_bits(_mm512_srli_epi32(high, (unsigned)(16 + 4 * j))));
            }
            _mm512_store_si512(out->code[j], low);
            _mm512_store_si512(out->code[4 + j], up);
        }
    }
    return f->kind;
}

static const int8_t IQ4_NL_TABLE[16] = { IQ4_NL_BIASED }, MXFP4_TABLE[16] = { MXFP4_BIASED };
static const struct columns_kind Q4_1 = { .bytes = Q4_1_BYTES,
                                          .codes = Q4_1_CODES,
                                          .min = Q4_1_MIN,
                                          .kind = { .sub = 32, .bias = RECENTRED, .has_min = true } },
                                 Q5_0 = { .bytes = Q5_0_BYTES,
                                          .codes = Q5_0_CODES,
                                          .high = Q5_0_HIGH,
                                          .kind = { .sub = 32, .bias = Q5_0_BIAS } },
                                 Q5_1 = { .bytes = Q5_1_BYTES,
                                          .codes = Q5_1_CODES,
                                          .high = Q5_1_HIGH,
                                          .min = Q5_1_MIN,
                                          .kind = { .sub = 32, .bias = RECENTRED, .has_min = true } },
                                 IQ4_NL = { .bytes = IQ4_NL_BYTES,
                                            .codes = IQ4_NL_CODES,
                                            .table = IQ4_NL_TABLE,
                                            .kind = { .sub = 32, .bias = IQ4_NL_BIAS, .wide = true } },
                                 MXFP4 = { .bytes = MXFP4_BYTES,
                                           .codes = MXFP4_CODES,
                                           .exponent = true,
                                           .table = MXFP4_TABLE,
                                           .kind = { .sub = 32, .bias = MXFP4_BIAS } };

#define KIND_UNPACK_COLUMNS(name, KIND)                                                                      \
    struct q8_kind name##_unpack_columns(const uint8_t *w, int64_t row_bytes, int64_t k,                     \
                                         struct q8_columns *out, struct prefetch *ahead)                     \
    {                                                                                                        \
        return kind_unpack_columns(&KIND, w, row_bytes, k, out, ahead);                                      \
    }
KIND_UNPACK_COLUMNS(q4_1, Q4_1)
KIND_UNPACK_COLUMNS(q5_0, Q5_0)
KIND_UNPACK_COLUMNS(q5_1, Q5_1)
KIND_UNPACK_COLUMNS(iq4_nl, IQ4_NL)
KIND_UNPACK_COLUMNS(mxfp4, MXFP4)
