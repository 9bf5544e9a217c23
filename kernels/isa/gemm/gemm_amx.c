/* bf16 GEMM on AMX tiles. Both operands are runs of contiguous 1 KiB tiles, because rows a power of two apart
 * would compete for one cache set. Panels use 3 x 2 result tiles: for six products, five tiles are loaded
 * from the second-level cache, whose bandwidth is the limit. With a single sliver, unpacking is the limit.
 * There, unpacking is interleaved with products of the previous chunk, and the CPU executes both at the same
 * time. */
#include <string.h>

#include "kernels/half.h"
#include "kernels/isa/amx.h"
#include "kernels/isa/isa_kernels.h"

enum {
    MIN_ROWS = 6,
    PANEL_ROWS = 96,
    KC = 2048, /* a panel is 384 KiB */
    MC = 256,  /* packed activations of a pass are 1 MiB: both fit a second-level cache of 2 MiB */
    FEW_ROWS = 32,
    CHUNK = 256, /* inputs unpacked at a time: a multiple of every format's block */
    CHUNK_TILES = CHUNK / TILE_DEPTH,
};

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "the processor's layout");

void amx_begin(void)
{
    struct tile_config config = { .palette = 1 };
    for (int t = 0; t < 8; t++) config.row_bytes[t] = 64, config.rows[t] = 16;
    /* The intrinsic of some compilers declares to read 8 bytes only; without this, the others are never
     * written. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

void amx_end(void)
{
    _tile_release();
}

/* Tile t of 16 tokens holds, in row p, inputs 32t + 2p and 32t + 2p + 1 of each token, side by side: a 16 x
 * 16 transpose of pairs. */
static void pack_half(const float *x, int64_t x_stride, int tokens, int k, uint16_t *out)
{
    for (int i = 0; i < k; i += TILE_DEPTH, out += BF16_TILE_WEIGHTS) {
        const __mmask16 low = first_lanes(k - i), high = first_lanes(k - i - 16);
        __m512i v[16];
#pragma GCC unroll 16
        for (int t = 0; t < 16; t++) {
            const float *at = x + t * x_stride + i;
            v[t] = t < tokens ? to_bf16(_mm512_maskz_loadu_ps(low, at), _mm512_maskz_loadu_ps(high, at + 16))
                              : _mm512_setzero_si512();
        }
        transpose_16x16(v);
#pragma GCC unroll 16
        for (int p = 0; p < 16; p++) _mm512_store_si512(out + p * TILE_DEPTH, v[p]);
    }
}

static void pack_amx(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    pack_half(x, x_stride, MIN(tokens, (int)TILE_ROWS), k, sliver);
    pack_half(x + TILE_ROWS * x_stride, x_stride, tokens - TILE_ROWS, k, (uint16_t *)sliver + bf16_run(k));
}

/* Unpack a piece of a few rows (as many as the CPU's line fill buffers handle), and prefetch the next piece:
 * 16 rows are more streams than the hardware prefetcher follows. */
static void unpack_piece(const struct unpacking *u, const uint8_t *w, int rows, int k, const uint8_t *next,
                         uint16_t *out)
{
    const int64_t bytes = format_span_bytes(u->format, k);
    for (int r = 0; r < rows; r++)
        for (int64_t b = 0; b < bytes; b += LINE_BYTES)
            _mm_prefetch((const char *)next + r * u->row_bytes + b, _MM_HINT_T0);
    unpack_bf16_tiles(u->format, u->f, w, u->row_bytes, rows, k, out);
}

static void unpack_amx(const struct unpacking *u)
{
    enum { ROWS = 4 };
    if (u->rows < TILE_ROWS) memset(u->group, 0, (size_t)bf16_run(u->k) * sizeof(uint16_t));
    for (int i = 0; i < u->k; i += CHUNK) {
        const int k = MIN((int)CHUNK, u->k - i);
        const uint8_t *w = u->w + format_span_bytes(u->format, i);
        for (int r = 0; r < u->rows; r += ROWS, w += ROWS * u->row_bytes)
            unpack_piece(u, w, MIN((int)ROWS, u->rows - r), k, w + TILE_ROWS * u->row_bytes,
                         (uint16_t *)u->group + bf16_run(i) + r * TILE_DEPTH);
    }
}

/* ---------------------------------------------------------------- panels */

#define PRODUCT _tile_dpbf16ps
#include "kernels/isa/gemm/panels_amx.h"

static void multiply_amx(const struct gemm_step *p)
{
    multiply_panel(p, bf16_run(p->k) * (int64_t)sizeof(uint16_t));
}

/* ---------------------------------------------------------------- a single sliver */

/* A chunk of 256 inputs of 32 weight rows: [2][8] tiles. */
struct chunk {
    uint16_t tile[2][CHUNK_TILES][BF16_TILE_WEIGHTS];
};

/* Unpack inputs i .. of two rows in each half of the 32 rows. A chunk consists of as many parts as it has
 * tiles. */
static void unpack_part(const struct unpacking *u, int i, int part, struct chunk *to)
{
    const int k = MIN((int)CHUNK, u->k - i);
    const uint8_t *w = u->w + format_span_bytes(u->format, i);
    const uint8_t *next = i + CHUNK < u->k ? w + format_span_bytes(u->format, CHUNK)
                                           : u->w + FEW_ROWS * u->row_bytes;
    for (int half = 0; half < 2; half++) {
        const int row = half * TILE_ROWS + 2 * part, rows = MIN(2, u->rows - row);
        if (rows > 0)
            unpack_piece(u, w + row * u->row_bytes, rows, k, next + row * u->row_bytes,
                         &to->tile[half][0][2 * part * TILE_DEPTH]);
    }
}

ALWAYS_INLINE void product_narrow(const struct chunk *a, const uint16_t *b, int t)
{
    _tile_loadd(6, b + t * BF16_TILE_WEIGHTS, 64);
    _tile_loadd(4, a->tile[0][t], 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a->tile[1][t], 64);
    _tile_dpbf16ps(2, 5, 6);
}

static void multiply_few_amx(const struct few_product *p)
{
    struct chunk *chunks = p->u.group;
    const bool wide = p->tokens > TILE_ROWS;
    const uint16_t *b = p->sliver, *before_b = NULL;
    int before_k = 0; /* inputs of the previous chunk, which is unpacked but not multiplied yet */
    if (p->u.rows < FEW_ROWS) memset(chunks, 0, 2 * sizeof *chunks);
    AMX_ZERO(0, 1);
    AMX_ZERO(2, 3);
    for (int i = 0, which = 0; i < p->u.k || before_k; i += CHUNK, which ^= 1) {
        const int k = MAX(0, MIN((int)CHUNK, p->u.k - i));
        for (int part = 0; part < CHUNK_TILES; part++) {
            if (k) unpack_part(&p->u, i, part, &chunks[which]);
            if (part * TILE_DEPTH >= before_k) continue;
            if (wide)
                step_32(chunks[which ^ 1].tile[0][part], chunks[which ^ 1].tile[1][part],
                        before_b + part * BF16_TILE_WEIGHTS,
                        before_b + bf16_run(before_k) + part * BF16_TILE_WEIGHTS);
            else
                product_narrow(&chunks[which ^ 1], before_b, part);
        }
        before_k = k;
        before_b = b;
        b += 2 * bf16_run(k);
    }
    AMX_STORE(0, 1, p->c);
    AMX_STORE(2, 3, p->c + TILE_ROWS * SLIVER);
}

const struct gemm_kernel GEMM_BF16_AMX = {
    .name = "bf16_tile",
    .min_rows = MIN_ROWS,
    .panel_rows = PANEL_ROWS,
    .kc = KC,
    .mc = MC,
    .long_chunks = true,
    .panel_step = BF16_TILE_WEIGHTS * sizeof(uint16_t),
    .sliver_step = 2 * BF16_TILE_WEIGHTS * sizeof(uint16_t),
    .begin = amx_begin,
    .end = amx_end,
    .pack = pack_amx,
    .unpack = unpack_amx,
    .multiply = multiply_amx,
    .multiply_few = multiply_few_amx,
    .few_rows = FEW_ROWS,
    .few_depth = CHUNK,
};
