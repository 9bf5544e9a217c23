/* bf16 GEMM with the dot products of AVX-512 BF16. One instruction multiplies pairs of neighbouring inputs
 * and adds both products to an f32 sum. Vector lanes are tokens, so one pair of a weight row is broadcast and
 * multiplied with the same pair of 16 tokens. Each lane adds its inputs in order, so a result does not
 * depend on the number of tokens. */
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/isa/bf16_tiles.h"
#include "kernels/isa/isa_kernels.h"

enum {
    MIN_ROWS = 5,
    PANEL_ROWS = 48,
    KC = 1024, /* a sliver is 64 KiB, a panel 96 KiB */
    MC = 256,  /* packed activations of a pass: 512 KiB. All fit a second-level cache of 1 MiB */
    FEW_ROWS = 16,
    CHUNK = 256, /* inputs unpacked at a time: a multiple of every format's block */
    LANES = 16,
    PAIRS = TILE_DEPTH / 2, /* pairs of inputs in a vector of 32 bf16 */
};

/* The number of vectors of 16 tokens in a sliver. */
static int vectors_for(int tokens)
{
    return tokens > LANES ? 2 : 1;
}

/* ---------------------------------------------------------------- packing */

/* 32 inputs of 16 tokens, from `first` on, as 16 vectors: vector p has pair p of each token. */
static void pairs_load(const float *x, int64_t x_stride, int tokens, int left, __m512i v[PAIRS])
{
    const __mmask16 low = first_lanes(left), high = first_lanes(left - 16);
#pragma GCC unroll 16
    for (int t = 0; t < LANES; t++) {
        const float *at = x + t * x_stride;
        v[t] = t < tokens ? to_bf16(_mm512_maskz_loadu_ps(low, at), _mm512_maskz_loadu_ps(high, at + 16))
                          : _mm512_setzero_si512();
    }
    transpose_16x16(v);
}

/* [pair][vector][token] */
static void bf16_pack(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    const int vectors = vectors_for(tokens);
    uint32_t *out = sliver;
    for (int i = 0; i < k; i += TILE_DEPTH, out += PAIRS * vectors * LANES) {
        for (int h = 0; h < vectors; h++) {
            __m512i v[PAIRS];
            pairs_load(x + h * LANES * x_stride + i, x_stride, tokens - h * LANES, k - i, v);
#pragma GCC unroll 16
            for (int p = 0; p < PAIRS; p++) _mm512_storeu_si512(out + (p * vectors + h) * LANES, v[p]);
        }
    }
}

/* Convert any format through f32: slower than a format's own function, but needs only `decode`. */
static void unpack_by_decoding(const struct format *format, format_decode_fn *decode, const uint8_t *w,
                               int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    float row[CHUNK];
    for (int64_t from = 0; from < k; from += CHUNK, out += bf16_run(CHUNK)) {
        const uint8_t *at = w + format_span_bytes(format, from);
        const int64_t n = MIN(k - from, (int64_t)CHUNK);
        for (int r = 0; r < rows; r++) {
            decode(at + r * row_bytes, row, n);
            for (int64_t i = 0; i < n; i += TILE_DEPTH)
                _mm512_store_si512(out + bf16_run(i) + r * TILE_DEPTH,
                                   to_bf16(_mm512_maskz_loadu_ps(first_lanes(n - i), row + i),
                                           _mm512_maskz_loadu_ps(first_lanes(n - i - 16), row + i + 16)));
        }
    }
}

void unpack_bf16_tiles(const struct format *format, const struct format_kernels *f, const uint8_t *w,
                       int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    if (f->unpack_bf16)
        f->unpack_bf16(w, row_bytes, rows, k, out);
    else
        unpack_by_decoding(format, f->decode, w, row_bytes, rows, k, out);
}

static void bf16_unpack(const struct unpacking *u)
{
    unpack_bf16_tiles(u->format, u->f, u->w, u->row_bytes, u->rows, u->k, u->group);
}

/* ---------------------------------------------------------------- products */

/* The operands of one product: weight rows in tile order (bf16_tiles.h) and a sliver. */
struct product {
    const uint16_t *w;
    const uint32_t *x;
    int k;
    float *c; /* [rows][SLIVER] */
    bool add;
    const uint8_t *next; /* stored weights to prefetch, next_step bytes for each pair of inputs; NULL: none */
    int64_t next_step;
};

/* rows and vectors are constants at every call. */
ALWAYS_INLINE void multiply_rows(const struct product *p, const int rows, const int vectors)
{
    const uint32_t *x = p->x;
    const uint8_t *next = p->next;
    __m512 sum[TILE_ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[r][v] = p->add ? _mm512_loadu_ps(p->c + r * SLIVER + v * LANES) : _mm512_setzero_ps();
    for (int i = 0; i < p->k; i += 2, x += vectors * LANES) {
        const uint16_t *w = p->w + bf16_run(i / TILE_DEPTH * TILE_DEPTH) + i % TILE_DEPTH;
        __m512bh q[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) q[v] = (__m512bh)_mm512_loadu_si512(x + v * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            int two;
            memcpy(&two, w + r * TILE_DEPTH, sizeof two);
            const __m512bh pair = (__m512bh)_mm512_set1_epi32(two);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], q[v], pair);
        }
        if (next) _mm_prefetch((const char *)next, _MM_HINT_T0), next += p->next_step;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) _mm512_storeu_ps(p->c + r * SLIVER + v * LANES, sum[r][v]);
}

/* Multiply 16 rows; in a panel's last group, missing rows have any values, and their results are not used. */
static void multiply_group(struct product p, int vectors)
{
    enum { HALF = TILE_ROWS / 2 };
    if (vectors == 1) {
        multiply_rows(&p, TILE_ROWS, 1);
        return;
    }
    multiply_rows(&p, HALF, 2);
    p.w += HALF * TILE_DEPTH;
    p.c += HALF * SLIVER;
    if (p.next) p.next += p.k / 2 * p.next_step;
    multiply_rows(&p, HALF, 2);
}

static void bf16_multiply(const struct gemm_step *p)
{
    struct product group = { .w = p->panel, .x = p->sliver, .k = (int)round_up(p->k, TILE_DEPTH), .c = p->c };
    for (int r = 0; r < p->rows; r += TILE_ROWS) {
        multiply_group(group, vectors_for(p->tokens));
        group.w += bf16_run(p->k);
        group.c += TILE_ROWS * SLIVER;
    }
}

/* The rows of one call follow those of the call before in memory. While 256 inputs of 16 rows are multiplied,
 * a share of the next 16 rows is prefetched, line by line in the order of memory: reading the 16 rows as 16
 * streams, or prefetching between products, halves the bandwidth. */
static void multiply_few(const struct few_product *p)
{
    const struct unpacking *u = &p->u;
    const int vectors = vectors_for(p->tokens);
    /* with two vectors, the inputs are passed twice */
    const int64_t next_step = p->next_bytes / (vectors * (round_up(u->k, TILE_DEPTH) / 2));
    const uint8_t *sliver = p->sliver;
    uint16_t *tiles = u->group;
    if (u->rows < FEW_ROWS) memset(tiles, 0, sizeof *tiles * (size_t)bf16_run(CHUNK));
    for (int i = 0; i < u->k; i += CHUNK, sliver += CHUNK * SLIVER * sizeof *tiles) {
        const int k = MIN((int)CHUNK, u->k - i);
        unpack_bf16_tiles(u->format, u->f, u->w + format_span_bytes(u->format, i), u->row_bytes, u->rows, k,
                          tiles);
        multiply_group((struct product){ .w = tiles,
                                         .x = (const uint32_t *)sliver,
                                         .k = (int)round_up(k, TILE_DEPTH),
                                         .c = p->c,
                                         .add = i > 0,
                                         .next = p->next + i / 2 * vectors * next_step,
                                         .next_step = next_step },
                       vectors);
    }
}

const struct gemm_kernel GEMM_BF16_AVX512 = {
    .name = "bf16_dot",
    .min_rows = MIN_ROWS,
    .panel_rows = PANEL_ROWS,
    .kc = KC,
    .mc = MC,
    .panel_step = BF16_TILE_WEIGHTS * sizeof(uint16_t),
    .sliver_step = SLIVER * TILE_DEPTH * sizeof(uint16_t),
    .pack = bf16_pack,
    .unpack = bf16_unpack,
    .multiply = bf16_multiply,
    .multiply_few = multiply_few,
    .few_rows = FEW_ROWS,
    .few_depth = CHUNK,
};
