/* kernels/isa/gemm/w8a8_256.h - W8A8 GEMM with 256-bit vectors, for AVX2 and AVX-VNNI. A lane is a token and
 * takes `per` inputs per step in four bytes: four of 8 bits (AVX-VNNI) or two of 16 bits (AVX2, where
 * products of bytes would saturate). Weights and activations have the same layout, octets: eight rows (or
 * tokens) side by side, 32 bytes per step. Activation codes are unsigned; zero * (sum of a row's codes) is
 * subtracted at the end. */
#ifndef QDYNO_KERNELS_ISA_GEMM_W8A8_256_H
#define QDYNO_KERNELS_ISA_GEMM_W8A8_256_H

#include <string.h>

#include "kernels/isa/avx2.h"

enum {
    OCTET = 8,
    VECTOR = 32,
    W8A8_PANEL_ROWS = 64,
    W8A8_KC = 2048,
    W8A8_MC = 256,
    W8A8_CHUNK =
        1024,      /* inputs for which 16 tokens (16 or 32 KiB) stay in the first cache while all rows pass */
    W8A8_ROWS = 4, /* by two octets of tokens: eight sums in registers */
};

/* The inputs of eight steps, four bytes each, of n codes; missing ones are 0. */
typedef __m256i eight_steps_fn(const uint8_t *code);

/* sum + products of a step's inputs: x as activations were loaded, w a row's four bytes in every lane. */
typedef __m256i step_fn(__m256i sum, __m256i x, __m256i w);

struct w8a8_256 {
    int per; /* inputs a step */
    eight_steps_fn *activations, *weights;
    step_fn *step;
};

/* Bytes of an octet of k inputs. */
ALWAYS_INLINE int64_t octet_bytes(const struct w8a8_256 *how, int64_t k)
{
    return k / how->per * VECTOR;
}

/* Up to eight rows, `stride` apart; those that do not exist become 0. k a multiple of 32. */
ALWAYS_INLINE void octet_pack(const struct w8a8_256 *how, eight_steps_fn *load, const uint8_t *code,
                              int64_t stride, int rows, int k, uint8_t *out)
{
    for (int i = 0; i < k; i += OCTET * how->per, out += OCTET * VECTOR) {
        __m256i v[OCTET];
#pragma GCC unroll 8
        for (int r = 0; r < OCTET; r++)
            v[r] = r < rows ? load(code + r * stride + i) : _mm256_setzero_si256();
        turn_8x8(v);
#pragma GCC unroll 8
        for (int s = 0; s < OCTET; s++) _mm256_storeu_si256((__m256i *)(out + s * VECTOR), v[s]);
    }
}

ALWAYS_INLINE void sliver_pack(const struct w8a8_256 *how, const uint8_t *code, int64_t stride, int tokens,
                               int k, uint8_t *sliver)
{
    for (int t = 0; t < SLIVER; t += OCTET, sliver += octet_bytes(how, k))
        octet_pack(how, how->activations, code + t * stride, stride, tokens - t, k, sliver);
}

ALWAYS_INLINE int32_t sum_of_s32(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* The sum of a row's codes. */
static inline int32_t row_sum(const uint8_t *w, int64_t k)
{
    __m256i sum = _mm256_setzero_si256();
    for (int64_t i = 0; i < k; i += 16) {
        const __m256i v = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(w + i)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(v, _mm256_set1_epi16(1)));
    }
    return sum_of_s32(sum);
}

/* Unpack codes into octets and compute their sums; prefetch the next 16 rows. */
ALWAYS_INLINE void group_unpack(const struct w8a8_256 *how, const struct unpacking *u)
{
    const uint8_t *w = u->w;
    uint8_t *out = u->group;
    for (int r = 0; r < TILE_ROWS; r++) {
        for (int i = 0; i < u->k && r < u->rows; i += LINE_BYTES)
            _mm_prefetch((const char *)w + (r + TILE_ROWS) * u->row_bytes + i, _MM_HINT_T0);
        u->sums[r] = r < u->rows ? row_sum(w + r * u->row_bytes, u->k) : 0;
    }
    for (int r = 0; r < TILE_ROWS; r += OCTET, out += octet_bytes(how, u->k))
        octet_pack(how, how->weights, w + r * u->row_bytes, u->row_bytes, u->rows - r, u->k, out);
}

/* sums of four rows by two octets of tokens += `steps` steps. */
ALWAYS_INLINE void add_steps(const struct w8a8_256 *how, const uint8_t *w, const uint8_t *x, int64_t octet,
                             int steps, __m256i sum[W8A8_ROWS][2])
{
    for (int i = 0; i < steps; i += OCTET, w += OCTET * VECTOR, x += OCTET * VECTOR) {
#pragma GCC unroll 8
        for (int s = 0; s < OCTET; s++) {
            const __m256i first = _mm256_loadu_si256((const __m256i *)(x + s * VECTOR));
            const __m256i second = _mm256_loadu_si256((const __m256i *)(x + octet + s * VECTOR));
#pragma GCC unroll 4
            for (int r = 0; r < W8A8_ROWS; r++) {
                int four;
                memcpy(&four, w + s * VECTOR + 4 * r, sizeof four);
                const __m256i row = _mm256_set1_epi32(four);
                sum[r][0] = in_order(how->step(sum[r][0], first, row));
                sum[r][1] = in_order(how->step(sum[r][1], second, row));
            }
        }
    }
}

/* Multiply four rows by 16 tokens. c holds integer sums between chunks; the last chunk converts them to
 * floats. */
ALWAYS_INLINE void rows_multiply(const struct w8a8_256 *how, const struct gemm_step *p, int row, int token,
                                 int from, int k)
{
    const int64_t octet = octet_bytes(how, p->k), at = octet_bytes(how, from);
    const uint8_t *w = (const uint8_t *)p->panel + row / OCTET * octet + at + row % OCTET * 4;
    const uint8_t *x = (const uint8_t *)p->sliver + token / OCTET * octet + at;
    __m256i sum[W8A8_ROWS][2];
#pragma GCC unroll 4
    for (int r = 0; r < W8A8_ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            const float *c = p->c + (row + r) * SLIVER + token + v * OCTET;
            sum[r][v] = from ? _mm256_load_si256((const __m256i *)c) : _mm256_setzero_si256();
        }
    add_steps(how, w, x, octet, k / how->per, sum);
#pragma GCC unroll 4
    for (int r = 0; r < W8A8_ROWS; r++) {
        const __m256i off = _mm256_set1_epi32(row + r < p->rows ? p->zero * p->sums[row + r] : 0);
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            float *c = p->c + (row + r) * SLIVER + token + v * OCTET;
            if (from + k < p->k)
                _mm256_store_si256((__m256i *)c, sum[r][v]);
            else
                _mm256_store_ps(c, _mm256_cvtepi32_ps(_mm256_sub_epi32(sum[r][v], off)));
        }
    }
}

ALWAYS_INLINE void panel_multiply(const struct w8a8_256 *how, const struct gemm_step *p)
{
    for (int token = 0; token < p->tokens; token += 2 * OCTET)
        for (int from = 0; from < p->k; from += W8A8_CHUNK) {
            const int k = MIN((int)W8A8_CHUNK, p->k - from);
            for (int row = 0; row < p->rows; row += W8A8_ROWS) rows_multiply(how, p, row, token, from, k);
        }
}

/* Define `kernel` from `how`, a struct w8a8_256 of constants whose field `per` is `products`; it is used from
 * that many rows of activations on. (A field of a constant struct is no constant expression in C.) */
#define GEMM_W8A8_256(kernel, how, products, at_least)                                                       \
    static void pack_codes(const uint8_t *code, int64_t stride, int tokens, int k, void *sliver)             \
    {                                                                                                        \
        sliver_pack(&(how), code, stride, tokens, k, sliver);                                                \
    }                                                                                                        \
    static void unpack_codes(const struct unpacking *u)                                                      \
    {                                                                                                        \
        group_unpack(&(how), u);                                                                             \
    }                                                                                                        \
    static void multiply_codes(const struct gemm_step *p)                                                    \
    {                                                                                                        \
        panel_multiply(&(how), p);                                                                           \
    }                                                                                                        \
    const struct gemm_kernel kernel = {                                                                      \
        .name = "int8_dot",                                                                                  \
        .min_rows = at_least,                                                                                \
        .panel_rows = W8A8_PANEL_ROWS,                                                                       \
        .kc = W8A8_KC,                                                                                       \
        .mc = W8A8_MC,                                                                                       \
        .panel_step = DEPTH_STEP / (products)*2 * VECTOR,                                                    \
        .sliver_step = DEPTH_STEP / (products)*4 * VECTOR,                                                   \
        .pack_codes = pack_codes,                                                                            \
        .unpack = unpack_codes,                                                                              \
        .multiply = multiply_codes,                                                                          \
    }

#endif
