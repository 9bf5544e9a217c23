/* Codebooks with AVX2: a register holds eight floats, so sixteen values take two look-ups and a selection.
 * With 8-bit activations, a value is two signed bytes, and one look-up each covers all sixteen. */
#include "kernels/formats/codebooks/codebooks.h"
#include "kernels/formats/codebooks/layout.h"
#include "kernels/isa/avx2.h"

static const float NF4_VALUE[16] = { NF4_VALUES }, FP4_VALUE[16] = { FP4_VALUES };
static const int8_t NF4_BYTES[2][16] = { { NF4_HIGH }, { NF4_LOW } },
                    FP4_BYTES[2][16] = { { FP4_HIGH }, { FP4_LOW } };

/* ---------------------------------------------------------------- floats */

struct values {
    __m256 low, high; /* the values of codes 0 to 7 and 8 to 15 */
};

ALWAYS_INLINE struct values values_of(const float book[16], float largest)
{
    const __m256 by = _mm256_set1_ps(largest);
    return (struct values){ _mm256_mul_ps(_mm256_loadu_ps(book), by),
                            _mm256_mul_ps(_mm256_loadu_ps(book + 8), by) };
}

/* Look up the codes in the low four bits of each lane: the look-ups use three bits, and the fourth, moved to
 * the sign, selects between them. */
ALWAYS_INLINE __m256 look_up(struct values v, __m256i codes)
{
    const __m256 fourth = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(v.low, codes), _mm256_permutevar8x32_ps(v.high, codes),
                            fourth);
}

/* 32 weights from the 16 bytes at p. */
ALWAYS_INLINE void book_floats(struct values v, const uint8_t *p, __m256 out[4])
{
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const __m256i codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8 * h)));
        out[h] = look_up(v, codes);
        out[2 + h] = look_up(v, _mm256_srli_epi32(codes, 4));
    }
}

ALWAYS_INLINE void book_decode(const float book[16], const void *blocks, float *x, int64_t n,
                               const int nested)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; in += block_bytes(nested)) {
        for (int u = 0; u < block_units(nested); u++) {
            const struct values values = values_of(book, unit_largest(in, u, nested));
            for (int p = 0; p < 2; p++, i += 32) {
                __m256 v[4];
                book_floats(values, unit_codes(in, u, nested) + 16 * p, v);
                for (int j = 0; j < 4; j++) _mm256_storeu_ps(x + i + 8 * j, v[j]);
            }
        }
    }
}

ALWAYS_INLINE void book_dot_f32_unrolled(const float book[16], const struct dot *d, const int nested,
                                         const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m256 sum[DOT_X][2];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
        for (int64_t k = 0; k < d->cols; w += block_bytes(nested)) {
            prefetch_ahead(w, block_bytes(nested));
            for (int u = 0; u < block_units(nested); u++) {
                const struct values values = values_of(book, unit_largest(w, u, nested));
                for (int p = 0; p < 2; p++, k += 32) {
                    __m256 v[4];
                    book_floats(values, unit_codes(w, u, nested) + 16 * p, v);
#pragma GCC unroll 4
                    for (int i = 0; i < n; i++) {
                        const float *x = d->x + i * d->x_stride + k;
#pragma GCC unroll 4
                        for (int j = 0; j < 4; j++)
                            sum[i][j & 1] = _mm256_fmadd_ps(v[j], _mm256_loadu_ps(x + 8 * j), sum[i][j & 1]);
                    }
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = sum_of_lanes(_mm256_add_ps(sum[i][0], sum[i][1]));
    }
}

/* ---------------------------------------------------------------- 8-bit activations */

/* Pairs of |w| q with the sign of w: 2 * 127 * 127 fits 16 bits. */
ALWAYS_INLINE __m256i multiply_pairs(__m256i w, __m256i q)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
}

ALWAYS_INLINE void book_dot_q8_unrolled(const int8_t bytes[2][16], const int scale, const struct dot *d,
                                        const int nested, const int n)
{
    const __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)bytes[0]));
    const __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)bytes[1]));
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m256 sum[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i] = _mm256_setzero_ps();
        for (int64_t k = 0; k < d->cols; w += block_bytes(nested)) {
            prefetch_ahead(w, block_bytes(nested));
            for (int p = 0; p < 2 * block_units(nested); p++, k += Q8_BLOCK) {
                const float largest = unit_largest(w, p / 2, nested);
                const uint8_t *at = unit_codes(w, p / 2, nested) + p % 2 * 16;
                const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)at));
                const __m256i codes = _mm256_and_si256(
                    _mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
                const __m256i a = _mm256_shuffle_epi8(high, codes), b = _mm256_shuffle_epi8(low, codes);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++) {
                    const __m256i q = _mm256_loadu_si256((const __m256i *)(d->q.q + i * d->q.q_stride + k));
                    const __m256i dots = _mm256_add_epi32(
                        _mm256_madd_epi16(multiply_pairs(a, q), _mm256_set1_epi16(128)),
                        _mm256_madd_epi16(multiply_pairs(b, q), _mm256_set1_epi16(1)));
                    const float by = largest * d->q.d[i * d->q.d_stride + k / Q8_BLOCK];
                    sum[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), _mm256_set1_ps(by), sum[i]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) d->y[i * d->y_stride + r] = sum_of_lanes(sum[i]) / (float)scale;
    }
}

/* ---------------------------------------------------------------- functions */

#define FUNCTIONS(name, NAME, book, nested)                                                                  \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        book_decode(book##_VALUE, blocks, x, n, nested);                                                     \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        switch (d->n) {                                                                                      \
        case 1: book_dot_f32_unrolled(book##_VALUE, d, nested, 1); break;                                    \
        case 2: book_dot_f32_unrolled(book##_VALUE, d, nested, 2); break;                                    \
        case 3: book_dot_f32_unrolled(book##_VALUE, d, nested, 3); break;                                    \
        case 4: book_dot_f32_unrolled(book##_VALUE, d, nested, 4); break;                                    \
        }                                                                                                    \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        switch (d->n) {                                                                                      \
        case 1: book_dot_q8_unrolled(book##_BYTES, book##_SCALE, d, nested, 1); break;                       \
        case 2: book_dot_q8_unrolled(book##_BYTES, book##_SCALE, d, nested, 2); break;                       \
        case 3: book_dot_q8_unrolled(book##_BYTES, book##_SCALE, d, nested, 3); break;                       \
        case 4: book_dot_q8_unrolled(book##_BYTES, book##_SCALE, d, nested, 4); break;                       \
        }                                                                                                    \
    }
CODEBOOK_FORMATS(FUNCTIONS)

#define ROW(name, NAME, book, nested)                                                                        \
    { FORMAT_##NAME, { .decode = name##_decode, .dot_f32 = name##_dot_f32, .dot_q8 = name##_dot_q8 } },
const struct format_row CODEBOOKS_AVX2[CODEBOOKS_COUNT] = { CODEBOOK_FORMATS(ROW) };
