/* bf16 GEMM with the dot products of AVX-512 BF16. One instruction multiplies pairs of neighbouring inputs
 * and adds both products to an f32 sum. Vector lanes are tokens, so one pair of a weight row is broadcast and
 * multiplied with the same pair of 16 tokens. With at most 8 tokens, lanes hold two or four different pairs
 * of each token (slices), and the broadcast is two or four pairs wide: few rows use full vectors, too. */
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

/* How a sliver holds its tokens: `vectors` registers for each step, with `slices` pairs of inputs in a step.
 */
struct lanes {
    int vectors, slices;
};

static struct lanes lanes_for(int tokens)
{
    if (tokens > LANES) return (struct lanes){ 2, 1 };
    return (struct lanes){ 1, tokens > LANES / 2 ? 1 : tokens > LANES / 4 ? 2 : 4 };
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

/* [step][vector][16 lanes]; lane `slices` * t + s has pair `slices` * step + s of token t. */
static void pack(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    const struct lanes l = lanes_for(tokens);
    uint32_t *out = sliver;
    if (l.slices > 1) { /* pairs of a token are neighbours already */
        memset(out, 0, (size_t)round_up(k, TILE_DEPTH) / 2 / (size_t)l.slices * LANES * sizeof *out);
        for (int t = 0; t < tokens; t++) {
            for (int i = 0; i < k; i += TILE_DEPTH) {
                const float *at = x + t * x_stride + i;
                uint32_t pair[PAIRS];
                _mm512_storeu_si512(pair, to_bf16(_mm512_maskz_loadu_ps(first_lanes(k - i), at),
                                                  _mm512_maskz_loadu_ps(first_lanes(k - i - 16), at + 16)));
                for (int p = 0; p < PAIRS; p += l.slices)
                    memcpy(out + (i / 2 + p) / l.slices * LANES + t * l.slices, pair + p,
                           (size_t)l.slices * sizeof *pair);
            }
        }
        return;
    }
    for (int i = 0; i < k; i += TILE_DEPTH, out += PAIRS * l.vectors * LANES) {
        for (int h = 0; h < l.vectors; h++) {
            __m512i v[PAIRS];
            pairs_load(x + h * LANES * x_stride + i, x_stride, tokens - h * LANES, k - i, v);
#pragma GCC unroll 16
            for (int p = 0; p < PAIRS; p++) _mm512_storeu_si512(out + (p * l.vectors + h) * LANES, v[p]);
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

static void unpack(const struct unpacking *u)
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

/* `rows`, `vectors` and `slices` are constants at every call. */
ALWAYS_INLINE void multiply_rows(const struct product *p, const int rows, const int vectors, const int slices)
{
    const uint32_t *x = p->x;
    const uint8_t *next = p->next;
    __m512 sum[TILE_ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_setzero_ps();
    for (int i = 0; i < p->k; i += 2 * slices, x += vectors * LANES) {
        const uint16_t *w = p->w + bf16_run(i / TILE_DEPTH * TILE_DEPTH) + i % TILE_DEPTH;
        __m512bh q[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) q[v] = (__m512bh)_mm512_loadu_si512(x + v * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const __m512bh pairs = (__m512bh)slices_broadcast(w + r * TILE_DEPTH, slices);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], q[v], pairs);
        }
        if (!next) continue;
#pragma GCC unroll 4
        for (int j = 0; j < slices; j++) _mm_prefetch((const char *)next + j * p->next_step, _MM_HINT_T0);
        next += slices * p->next_step;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            slices_store(sum[r][v], slices, p->c + r * SLIVER + v * LANES, p->add);
}

/* Multiply 16 rows; in a panel's last group, missing rows have any values, and their results are not used. */
static void multiply_group(struct product p, struct lanes l)
{
    if (l.vectors == 2) {
        enum { HALF = TILE_ROWS / 2 };
        multiply_rows(&p, HALF, 2, 1);
        p.w += HALF * TILE_DEPTH;
        p.c += HALF * SLIVER;
        if (p.next) p.next += p.k / 2 * p.next_step;
        multiply_rows(&p, HALF, 2, 1);
    } else if (l.slices == 1) {
        multiply_rows(&p, TILE_ROWS, 1, 1);
    } else if (l.slices == 2) {
        multiply_rows(&p, TILE_ROWS, 1, 2);
    } else {
        multiply_rows(&p, TILE_ROWS, 1, 4);
    }
}

static void multiply(const struct gemm_step *p)
{
    const struct lanes l = lanes_for(p->tokens);
    struct product group = { .w = p->panel, .x = p->sliver, .k = (int)round_up(p->k, TILE_DEPTH), .c = p->c };
    for (int r = 0; r < p->rows; r += TILE_ROWS) {
        multiply_group(group, l);
        group.w += bf16_run(p->k);
        group.c += TILE_ROWS * SLIVER;
    }
}

/* The rows of one call follow those of the call before in memory. While 256 inputs of 16 rows are multiplied,
 * a share of the next 16 rows is prefetched, line by line in the order of memory: reading the 16 rows as 16
 * streams, or prefetching between products, halves the bandwidth. */
static void multiply_few(const struct few_product *p)
{
    const struct lanes l = lanes_for(p->tokens);
    const struct unpacking *u = &p->u;
    const int64_t all = u->row_bytes * FEW_ROWS;
    /* with two vectors, the inputs are passed twice */
    const int64_t next_step = all / (l.vectors * (round_up(u->k, TILE_DEPTH) / 2));
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
                                         .next = u->w + all + i / 2 * l.vectors * next_step,
                                         .next_step = next_step },
                       l);
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
    .pack = pack,
    .unpack = unpack,
    .multiply = multiply,
    .multiply_few = multiply_few,
    .few_rows = FEW_ROWS,
    .few_depth = CHUNK,
};
