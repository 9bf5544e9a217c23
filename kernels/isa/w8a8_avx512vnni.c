/* Integer products under one scale a row and a token with AVX-512 VNNI. vpdpbusd multiplies unsigned bytes,
 * which activations are as they come (their code of 0 is `zero`), with signed ones, which weights are: what
 * remains is zero * (sum of the weights), summed up on the way by one instruction more.
 *
 * Panels and slivers are those of the integer tiles (w8a8_512.h). */
#include "kernels/isa/isa_kernels.h"
#include "kernels/isa/w8a8_512.h"

/* ---------------------------------------------------------------- a few rows */

enum { DOT_ROWS = 4 };

ALWAYS_INLINE __m512i add_products(__m512i sum, __m512i codes, __m512i w)
{
    return _mm512_dpbusd_epi32(sum, codes, w);
}

/* Rows r.. of the weights (`rows` of them) by n rows of codes, both constants. */
ALWAYS_INLINE void dot_rows(const struct w8a8_dot *d, int r, const int rows, const int n)
{
    const uint8_t *w = d->w + r * d->row_bytes;
    __m512i sum[DOT_ROWS][DOT_X], total[DOT_ROWS];
#pragma GCC unroll 4
    for (int j = 0; j < rows; j++) {
        total[j] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[j][i] = _mm512_setzero_si512();
    }
    for (int64_t k = 0; k < d->cols; k += W8A8_DEPTH) {
        const __mmask64 here = first_bytes(d->cols - k);
        __m512i x[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) x[i] = _mm512_maskz_loadu_epi8(here, d->code + i * d->code_stride + k);
#pragma GCC unroll 4
        for (int j = 0; j < rows; j++) {
            const uint8_t *at = w + j * d->row_bytes + k;
            prefetch_ahead(at, LINE_BYTES);
            const __m512i v = _mm512_maskz_loadu_epi8(here, at);
            total[j] = add_products(total[j], _mm512_set1_epi8(1), v);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) sum[j][i] = add_products(sum[j][i], x[i], v);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < rows; j++) {
        const int32_t off = d->zero * _mm512_reduce_add_epi32(total[j]);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r + j] = (float)(_mm512_reduce_add_epi32(sum[j][i]) - off);
    }
}

ALWAYS_INLINE void dot_n(const struct w8a8_dot *d, const int n)
{
    int r = 0;
    for (; r + DOT_ROWS <= d->rows; r += DOT_ROWS) dot_rows(d, r, DOT_ROWS, n);
    for (; r < d->rows; r++) dot_rows(d, r, 1, n);
}

void w8a8_dot_avx512vnni(const struct w8a8_dot *d)
{
    switch (d->n) {
    case 1: dot_n(d, 1); break;
    case 2: dot_n(d, 2); break;
    case 3: dot_n(d, 3); break;
    case 4: dot_n(d, 4); break;
    }
}

/* ---------------------------------------------------------------- many rows */

enum { MIN_ROWS = 9, PANEL_ROWS = 64, KC = 4096, MC = 256, STEP_ROWS = 8 };

/* 8 rows by 16 or 32 tokens (`halves`, a constant). */
ALWAYS_INLINE void multiply_rows(const struct gemm_step *p, const int8_t *w, const uint8_t *x, int r,
                                 const int halves)
{
    const int64_t run = w8a8_run(p->k);
    __m512i sum[STEP_ROWS][2];
#pragma GCC unroll 8
    for (int j = 0; j < STEP_ROWS; j++)
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++) sum[j][h] = _mm512_setzero_si512();
    for (int64_t t = 0; t < run; t += W8A8_TILE) {
#pragma GCC unroll 16
        for (int i = 0; i < W8A8_DEPTH / 4; i++) {
            __m512i codes[2];
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++) codes[h] = _mm512_load_si512(x + h * run + t + i * W8A8_DEPTH);
#pragma GCC unroll 8
            for (int j = 0; j < STEP_ROWS; j++) {
                int four;
                memcpy(&four, w + t + j * W8A8_DEPTH + 4 * i, sizeof four);
                const __m512i v = _mm512_set1_epi32(four);
#pragma GCC unroll 2
                for (int h = 0; h < halves; h++) sum[j][h] = add_products(sum[j][h], codes[h], v);
            }
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < STEP_ROWS; j++)
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++) w8a8_store(p, r + j, h, sum[j][h]);
}

static void multiply(const struct gemm_step *p)
{
    const int64_t run = w8a8_run(p->k);
    for (int r = 0; r < p->rows; r += STEP_ROWS) {
        const int8_t *w = (const int8_t *)p->panel + r / TILE_ROWS * run + r % TILE_ROWS * W8A8_DEPTH;
        if (p->tokens > TILE_ROWS)
            multiply_rows(p, w, p->sliver, r, 2);
        else
            multiply_rows(p, w, p->sliver, r, 1);
    }
}

static void pack(const uint8_t *code, int64_t stride, int tokens, int k, void *sliver)
{
    w8a8_pack(code, stride, tokens, k, sliver);
}

static void unpack(const struct unpacking *u)
{
    w8a8_unpack(u);
}

const struct gemm_kernel GEMM_W8A8_AVX512VNNI = {
    .name = "int8_dot",
    .min_rows = MIN_ROWS,
    .panel_rows = PANEL_ROWS,
    .kc = KC,
    .mc = MC,
    .depth = W8A8_DEPTH,
    .panel_step = W8A8_TILE,
    .sliver_step = 2 * W8A8_TILE,
    .pack_codes = pack,
    .unpack = unpack,
    .multiply = multiply,
};
