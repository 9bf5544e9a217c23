/* W8A8 with AVX-512 VNNI. vpdpbusd multiplies unsigned bytes (the activation codes) by signed bytes (the
 * weights). One more instruction sums the weights on the way, so that zero * (sum of the weights) can be
 * subtracted.
 *
 * Panels and slivers are those of the integer tiles (w8a8_512.h). */
#include "kernels/isa/isa_kernels.h"
#include "kernels/isa/gemm/w8a8_512.h"

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

ALWAYS_INLINE void dot_unrolled(const struct w8a8_dot *d, const int n)
{
    int r = 0;
    for (; r + DOT_ROWS <= d->rows; r += DOT_ROWS) dot_rows(d, r, DOT_ROWS, n);
    for (; r < d->rows; r++) dot_rows(d, r, 1, n);
}

void w8a8_dot_avx512vnni(const struct w8a8_dot *d)
{
    switch (d->n) {
    case 1: dot_unrolled(d, 1); break;
    case 2: dot_unrolled(d, 2); break;
    case 3: dot_unrolled(d, 3); break;
    case 4: dot_unrolled(d, 4); break;
    }
}

/* ---------------------------------------------------------------- many rows */

enum { MIN_ROWS = 9, PANEL_ROWS = 64, KC = 4096, MC = 256, STEP_ROWS = 8, FEW_ROWS = 16, AHEAD = 512 };

/* Rows of weights, in a panel or in place: start, and distances to the next row and the next 64 inputs. */
struct rows {
    const uint8_t *w;
    int64_t row, tile;
    bool stored; /* a constant: these come from memory */
};

/* sum += 8 rows by 16 or 32 tokens (`halves`, a constant), k inputs of a packed block. */
ALWAYS_INLINE void add_rows(const struct rows *a, const uint8_t *x, int64_t k, const int halves,
                            __m512i sum[STEP_ROWS][2])
{
    const int64_t run = w8a8_run(k);
    for (int64_t t = 0; t * W8A8_DEPTH < k; t++) {
        const uint8_t *w = a->w + t * a->tile;
        if (a->stored) {
#pragma GCC unroll 8
            for (int j = 0; j < STEP_ROWS; j++) __builtin_prefetch(w + j * a->row + AHEAD);
        }
        const int fours = a->stored ? (int)MIN((int64_t)W8A8_DEPTH, k - t * W8A8_DEPTH) / 4 : W8A8_DEPTH / 4;
        for (int i = 0; i < fours; i += 8) { /* k is a multiple of 32 */
#pragma GCC unroll 8
            for (int s = i; s < i + 8; s++) {
                __m512i codes[2];
#pragma GCC unroll 2
                for (int h = 0; h < halves; h++)
                    codes[h] = _mm512_load_si512(x + h * run + t * W8A8_TILE + s * W8A8_DEPTH);
#pragma GCC unroll 8
                for (int j = 0; j < STEP_ROWS; j++) {
                    int four;
                    memcpy(&four, w + j * a->row + 4 * s, sizeof four);
#pragma GCC unroll 2
                    for (int h = 0; h < halves; h++)
                        sum[j][h] = add_products(sum[j][h], codes[h], _mm512_set1_epi32(four));
                }
            }
        }
    }
}

ALWAYS_INLINE void sums_clear(__m512i sum[STEP_ROWS][2])
{
#pragma GCC unroll 8
    for (int j = 0; j < STEP_ROWS; j++) sum[j][0] = sum[j][1] = _mm512_setzero_si512();
}

ALWAYS_INLINE void multiply_panel(const struct gemm_step *p, const int halves)
{
    for (int r = 0; r < p->rows; r += STEP_ROWS) {
        const struct rows a = { .w = (const uint8_t *)p->panel + r / TILE_ROWS * w8a8_run(p->k) +
                                     r % TILE_ROWS * W8A8_DEPTH,
                                .row = W8A8_DEPTH,
                                .tile = W8A8_TILE };
        __m512i sum[STEP_ROWS][2];
        sums_clear(sum);
        add_rows(&a, p->sliver, p->k, halves, sum);
#pragma GCC unroll 8
        for (int j = 0; j < STEP_ROWS; j++)
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++) w8a8_store(p, r + j, h, sum[j][h]);
    }
}

static void w8a8_panel_multiply(const struct gemm_step *p)
{
    if (p->tokens > TILE_ROWS)
        multiply_panel(p, 2);
    else
        multiply_panel(p, 1);
}

/* Multiply eight rows from r on, read in place, `stride` apart. */
ALWAYS_INLINE void few_rows(const struct few_product *p, int r, int64_t stride, const int halves)
{
    const struct unpacking *u = &p->u;
    const uint8_t *x = p->sliver;
    int32_t sums[FEW_ROWS];
    const struct gemm_step step = { .c = p->c, .zero = p->zero, .sums = sums };
    __m512i sum[STEP_ROWS][2];
    sums_clear(sum);
    for (int i = 0; i < u->k; i += KC) {
        const int k = MIN((int)KC, u->k - i);
        const struct rows a = {
            .w = u->w + r * u->row_bytes + i, .row = stride, .tile = W8A8_DEPTH, .stored = true
        };
        add_rows(&a, x, k, halves, sum);
        x += 2 * w8a8_run(k);
    }
    for (int j = 0; j < STEP_ROWS; j++) sums[r + j] = w8a8_sum(u->w + r * u->row_bytes + j * stride, u->k);
#pragma GCC unroll 8
    for (int j = 0; j < STEP_ROWS; j++)
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++) w8a8_store(&step, r + j, h, sum[j][h]);
}

/* Multiply 8 rows of weights at a time. The second 8 may overlap the first. Fewer than 8 rows are processed
 * one by one, each as 8 equal rows. */
ALWAYS_INLINE void few_multiply(const struct few_product *p, const int halves)
{
    const int rows = p->u.rows;
    if (rows >= STEP_ROWS) few_rows(p, 0, p->u.row_bytes, halves);
    if (rows > STEP_ROWS) few_rows(p, rows - STEP_ROWS, p->u.row_bytes, halves);
    for (int r = 0; r < rows && rows < STEP_ROWS; r++) few_rows(p, r, 0, halves);
}

static void multiply_few(const struct few_product *p)
{
    if (p->tokens > TILE_ROWS)
        few_multiply(p, 2);
    else
        few_multiply(p, 1);
}

static void w8a8_codes_pack(const uint8_t *code, int64_t stride, int tokens, int k, void *sliver)
{
    w8a8_pack(code, stride, tokens, k, sliver);
}

static void w8a8_panel_unpack(const struct unpacking *u)
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
    .pack_codes = w8a8_codes_pack,
    .unpack = w8a8_panel_unpack,
    .multiply = w8a8_panel_multiply,
    .multiply_few = multiply_few,
    .few_rows = FEW_ROWS,
    .few_depth = KC,
};
