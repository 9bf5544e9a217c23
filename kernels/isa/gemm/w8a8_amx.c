/* W8A8 GEMM on AMX tiles. The sums of all inputs of a block stay in tiles and are scaled at the end only.
 * Five loads and six products cover 64 inputs, where bf16 tiles (gemm_amx.c) cover 32: twice the arithmetic
 * from the same bandwidth. */
#include "kernels/isa/amx.h"
#include "kernels/isa/isa_kernels.h"
#include "kernels/isa/gemm/w8a8_512.h"

enum {
    MIN_ROWS = 5, /* dots take four at once */
    PANEL_ROWS = 96,
    KC = 4096, /* a panel is 384 KiB */
    MC = 256,  /* and the packed activations of a sweep 1 MiB */
    FEW_ROWS = 32,
    FEW_DEPTH = 256,
    AHEAD = 384, /* prefetch distance in bytes, where tiles read weights in place */
};

#define PRODUCT _tile_dpbsud
#include "kernels/isa/gemm/panels_amx.h"

static void multiply_amx(const struct gemm_step *p)
{
    multiply_panel(p, w8a8_run(p->k));
    for (int r = 0; r < p->rows; r++)
        for (int h = 0; h < 2; h++) w8a8_store(p, r, h, _mm512_load_si512(p->c + r * SLIVER + h * TILE_ROWS));
}

static void pack_amx(const uint8_t *code, int64_t stride, int tokens, int k, void *sliver)
{
    w8a8_pack(code, stride, tokens, k, sliver);
}

static void unpack_amx(const struct unpacking *u)
{
    w8a8_unpack(u);
}

/* ---------------------------------------------------------------- a single sliver */

/* Multiply 64 inputs of 16 rows; tiles read the weights in place. Products with ones yield the sums of rows.
 */
ALWAYS_INLINE void few_group_0(const uint8_t *w, int64_t stride, const uint8_t *b, const uint8_t *b2,
                               const uint8_t *ones, const bool wide)
{
    _tile_loadd(6, w, stride);
    _tile_loadd(7, b, 64);
    _tile_dpbsud(0, 6, 7);
    if (wide) {
        _tile_loadd(7, b2, 64);
        _tile_dpbsud(1, 6, 7);
    }
    _tile_loadd(7, ones, 64);
    _tile_dpbsud(4, 6, 7);
}

ALWAYS_INLINE void few_group_1(const uint8_t *w, int64_t stride, const uint8_t *b, const uint8_t *b2,
                               const uint8_t *ones, const bool wide)
{
    _tile_loadd(6, w, stride);
    _tile_loadd(7, ones, 64);
    _tile_dpbsud(5, 6, 7);
    _tile_loadd(7, b, 64);
    _tile_dpbsud(2, 6, 7);
    if (!wide) return;
    _tile_loadd(7, b2, 64);
    _tile_dpbsud(3, 6, 7);
}

/* Copy 64 inputs of 16 rows with zero padding, for tiles with missing inputs or rows. */
static void copy_tile(const uint8_t *w, int64_t row_bytes, int rows, int64_t have, uint8_t *tile)
{
    const __mmask64 here = first_bytes(have);
    for (int r = 0; r < TILE_ROWS; r++, w += row_bytes)
        _mm512_store_si512(tile + r * W8A8_DEPTH,
                           r < rows ? _mm512_maskz_loadu_epi8(here, w) : _mm512_setzero_si512());
}

ALWAYS_INLINE void few_rows(const struct few_product *p, const uint8_t *ones, const bool wide)
{
    const struct unpacking *u = &p->u;
    const int64_t row_bytes = u->row_bytes;
    uint8_t *spare = u->group;
    const uint8_t *b = p->sliver;
    for (int64_t i = 0; i < u->k; i += FEW_DEPTH) {
        const int k = MIN((int)FEW_DEPTH, u->k - i);
        const uint8_t *b2 = b + w8a8_run(k);
        for (int j = 0; j < k; j += W8A8_DEPTH, b += W8A8_TILE, b2 += W8A8_TILE) {
            const uint8_t *w = u->w + i + j, *w2 = w + TILE_ROWS * row_bytes;
            for (int r = 0; r < FEW_ROWS; r++)
                _mm_prefetch((const char *)w + AHEAD + r * row_bytes, _MM_HINT_T0);
            if (u->rows == FEW_ROWS && j + W8A8_DEPTH <= k) {
                few_group_0(w, row_bytes, b, b2, ones, wide);
                few_group_1(w2, row_bytes, b, b2, ones, wide);
                continue;
            }
            copy_tile(w, row_bytes, u->rows, k - j, spare);
            copy_tile(w2, row_bytes, u->rows - TILE_ROWS, k - j, spare + W8A8_TILE);
            few_group_0(spare, W8A8_DEPTH, b, b2, ones, wide);
            few_group_1(spare + W8A8_TILE, W8A8_DEPTH, b, b2, ones, wide);
        }
        b = b2;
    }
}

static void multiply_few(const struct few_product *p)
{
    int32_t sums[2][TILE_ROWS][TILE_ROWS] __attribute__((aligned(64)));
    uint8_t ones[W8A8_TILE] __attribute__((aligned(64)));
    memset(ones, 1, sizeof ones);
    AMX_ZERO(0, 1);
    AMX_ZERO(2, 3);
    AMX_ZERO(4, 5);
    if (p->tokens > TILE_ROWS)
        few_rows(p, ones, true);
    else
        few_rows(p, ones, false);
    AMX_STORE(0, 1, p->c);
    AMX_STORE(2, 3, p->c + TILE_ROWS * SLIVER);
    _tile_stored(4, sums[0], 64);
    _tile_stored(5, sums[1], 64);
    for (int r = 0; r < p->u.rows; r++) {
        const __m512i off = _mm512_mullo_epi32(_mm512_set1_epi32(p->zero),
                                               _mm512_load_si512(sums[r / TILE_ROWS][r % TILE_ROWS]));
        for (int h = 0; h < 2; h++) {
            float *at = p->c + r * SLIVER + h * TILE_ROWS;
            _mm512_store_ps(at, _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_load_si512(at), off)));
        }
    }
}

const struct gemm_kernel GEMM_W8A8_AMX = {
    .name = "int8_tile",
    .min_rows = MIN_ROWS,
    .panel_rows = PANEL_ROWS,
    .kc = KC,
    .mc = MC,
    .long_chunks = true,
    .depth = W8A8_DEPTH,
    .panel_step = W8A8_TILE,
    .sliver_step = 2 * W8A8_TILE,
    .begin = amx_begin,
    .end = amx_end,
    .pack_codes = pack_amx,
    .unpack = unpack_amx,
    .multiply = multiply_amx,
    .multiply_few = multiply_few,
    .few_rows = FEW_ROWS,
    .few_depth = FEW_DEPTH,
};
