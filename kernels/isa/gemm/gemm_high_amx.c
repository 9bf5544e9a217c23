/* GEMM almost as exact as f32 on bf16 tiles. Every operand is split into a bf16 number (high) and its
 * rounding error as another bf16 number (low), 16 bits of precision together. Three of the four products are
 * computed; low times low is only 2^-17 of the result. Error: at most 2^-15 of the sum of abs(terms) in
 * theory, usually below 2^-18. The exponent range of bf16 is that of f32, so nothing overflows. */
#include <string.h>

#include "kernels/isa/amx.h"
#include "kernels/isa/isa_kernels.h"

enum {
    MIN_ROWS = 17, /* fewer are faster as f32 dots */
    PANEL_ROWS = 64,
    KC = 1024,
    MC = 256, /* panel 256 KiB, packed activations 1 MiB, as in gemm_amx.c */
    CHUNK = 256,
};

/* Pairs of bf16 numbers: x rounded, and the difference rounded. */
struct split {
    __m512i high, low;
};

ALWAYS_INLINE __m512 bf16_to_floats(__m256i bf16)
{
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16);
}

/* The low part of infinities and NaN is NaN, so the product becomes NaN. */
ALWAYS_INLINE struct split split_pair(__m512 a, __m512 b)
{
    struct split s = { .high = to_bf16(a, b) };
    const __m512 rest_a = _mm512_sub_ps(a, bf16_to_floats(_mm512_castsi512_si256(s.high)));
    const __m512 rest_b = _mm512_sub_ps(b, bf16_to_floats(_mm512_extracti64x4_epi64(s.high, 1)));
    s.low = to_bf16(rest_a, rest_b);
    return s;
}

ALWAYS_INLINE struct split split_at(const float *x, int64_t have)
{
    const __mmask16 first = first_lanes(have), second = first_lanes(have - 16);
    return split_pair(_mm512_maskz_loadu_ps(first, x), _mm512_maskz_loadu_ps(second, x + 16));
}

ALWAYS_INLINE void store_turned(__m512i v[16], uint16_t *tile)
{
    transpose_16x16(v);
#pragma GCC unroll 16
    for (int p = 0; p < 16; p++) _mm512_store_si512(tile + p * TILE_DEPTH, v[p]);
}

/* Pack 16 tokens: a run of tiles of high parts, then one of low parts. */
static void pack_half(const float *x, int64_t x_stride, int tokens, int k, uint16_t *out)
{
    const int64_t run = bf16_run(k);
    for (int i = 0; i < k; i += TILE_DEPTH, out += BF16_TILE_WEIGHTS) {
        __m512i high[16], low[16];
#pragma GCC unroll 16
        for (int t = 0; t < 16; t++) {
            struct split s = { .high = _mm512_setzero_si512(), .low = _mm512_setzero_si512() };
            if (t < tokens) s = split_at(x + t * x_stride + i, k - i);
            high[t] = s.high, low[t] = s.low;
        }
        store_turned(high, out);
        store_turned(low, out + run);
    }
}

static void pack_high(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    pack_half(x, x_stride, MIN(tokens, (int)TILE_ROWS), k, sliver);
    pack_half(x + TILE_ROWS * x_stride, x_stride, tokens - TILE_ROWS, k,
              (uint16_t *)sliver + 2 * bf16_run(k));
}

/* Unpack weights in the same way, without a transposition. */
static void unpack_high(const struct unpacking *u)
{
    const int64_t run = bf16_run(u->k);
    uint16_t *out = u->group;
    float row[CHUNK];
    if (u->rows < TILE_ROWS) memset(out, 0, 2 * (size_t)run * sizeof *out);
    for (int r = 0; r < u->rows; r++, out += TILE_DEPTH) {
        uint16_t *tile = out;
        for (int i = 0; i < u->k; i += CHUNK) {
            const int k = MIN((int)CHUNK, u->k - i);
            u->f->decode(u->w + r * u->row_bytes + format_span_bytes(u->format, i), row, k);
            for (int j = 0; j < k; j += TILE_DEPTH, tile += BF16_TILE_WEIGHTS) {
                const struct split s = split_at(row + j, k - j);
                _mm512_store_si512(tile, s.high);
                _mm512_store_si512(tile + run, s.low);
            }
        }
    }
}

/* Multiply 16 weight rows by 32 tokens whose high parts are in tiles 6 and 7. `first` and `second` are the
 * result tiles (constants). */
#define THREE_PRODUCTS(first, second, a, b, b2)                                                              \
    _tile_loadd(4, a, 64);                                                                                   \
    _tile_dpbf16ps(first, 4, 6);                                                                             \
    _tile_dpbf16ps(second, 4, 7);                                                                            \
    _tile_loadd(5, (b) + run, 64);                                                                           \
    _tile_dpbf16ps(first, 4, 5);                                                                             \
    _tile_loadd(5, (b2) + run, 64);                                                                          \
    _tile_dpbf16ps(second, 4, 5);                                                                            \
    _tile_loadd(4, (a) + run, 64);                                                                           \
    _tile_dpbf16ps(first, 4, 6);                                                                             \
    _tile_dpbf16ps(second, 4, 7)

/* One or two groups of 16 rows (two is a constant at every call). */
ALWAYS_INLINE void multiply_groups(const uint16_t *a, const uint16_t *b, int64_t run, float *c,
                                   const bool two)
{
    const uint16_t *a2 = a + 2 * run, *b2 = b + 2 * run;
    AMX_ZERO(0, 1);
    AMX_ZERO(2, 3);
    for (int64_t t = 0; t < run; t += BF16_TILE_WEIGHTS) {
        _tile_loadd(6, b + t, 64);
        _tile_loadd(7, b2 + t, 64);
        THREE_PRODUCTS(0, 1, a + t, b + t, b2 + t);
        if (!two) continue;
        THREE_PRODUCTS(2, 3, a2 + t, b + t, b2 + t);
    }
    AMX_STORE(0, 1, c);
    if (!two) return;
    AMX_STORE(2, 3, c + TILE_ROWS * SLIVER);
}

static void multiply_high(const struct gemm_step *p)
{
    const int64_t run = bf16_run(p->k);
    const uint16_t *a = p->panel;
    float *c = p->c;
    int groups = (p->rows + TILE_ROWS - 1) / TILE_ROWS;
    for (; groups >= 2; groups -= 2, a += 4 * run, c += 2 * TILE_ROWS * SLIVER)
        multiply_groups(a, p->sliver, run, c, true);
    if (groups) multiply_groups(a, p->sliver, run, c, false);
}

const struct gemm_kernel GEMM_HIGH_AMX = {
    .name = "bf16x3_tile",
    .min_rows = MIN_ROWS,
    .panel_rows = PANEL_ROWS,
    .kc = KC,
    .mc = MC,
    .long_chunks = true,
    .panel_step = 2 * BF16_TILE_WEIGHTS * sizeof(uint16_t),
    .sliver_step = 4 * BF16_TILE_WEIGHTS * sizeof(uint16_t),
    .begin = amx_begin,
    .end = amx_end,
    .pack = pack_high,
    .unpack = unpack_high,
    .multiply = multiply_high,
};
