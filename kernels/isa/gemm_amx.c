/* bf16 matrix products on AMX tiles: 2 x 2 result tiles, per 32 inputs four tile loads for four products.
 * Both operands are runs of contiguous 1 KiB tiles: rows a power of two apart would share one cache set. */
#include "kernels/isa/amx.h"
#include "kernels/isa/isa_kernels.h"

enum {
    MIN_ROWS = 6,
    PAIR = 2 * TILE_ROWS,
    PANEL_ROWS = 2 * PAIR,
    KC = 2048, /* a panel is 256 KiB */
    C_STRIDE = SLIVER * sizeof(float),
    MC = 256, /* and the packed activations of a sweep 1 MiB: together they stay in a 2 MiB second cache */
};

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "the processor's layout");

static void begin_amx(void)
{
    struct tile_config config = { .palette = 1 };
    for (int t = 0; t < 8; t++) config.row_bytes[t] = 64, config.rows[t] = 16;
    /* The intrinsic of some compilers claims to read 8 bytes: without this the others are never written. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

static void end_amx(void)
{
    _tile_release();
}

/* Tile t of 16 tokens holds, in row p, inputs 32t + 2p and 32t + 2p + 1 of each token, side by side: a 16 x
 * 16 transpose of pairs. */
static void pack_half(const float *x, int64_t x_stride, int tokens, int k, uint16_t *out)
{
    for (int i = 0; i < k; i += TILE_DEPTH, out += AMX_TILE_WEIGHTS) {
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

static int64_t run_of(int k) /* weights in the tiles of 16 rows */
{
    return (int64_t)(k + TILE_DEPTH - 1) / TILE_DEPTH * AMX_TILE_WEIGHTS;
}

static void pack_amx(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    pack_half(x, x_stride, MIN(tokens, (int)TILE_ROWS), k, sliver);
    pack_half(x + TILE_ROWS * x_stride, x_stride, tokens - TILE_ROWS, k, (uint16_t *)sliver + run_of(k));
}

/* At most 16 tokens: half a sliver. */
static void multiply_narrow(const uint16_t *a, const uint16_t *b, int64_t run, float *c)
{
    _tile_zero(0);
    _tile_zero(2);
    for (int64_t t = 0; t < run; t += AMX_TILE_WEIGHTS) {
        _tile_loadd(6, b + t, 64);
        _tile_loadd(4, a + t, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + run + t, 64);
        _tile_dpbf16ps(2, 5, 6);
    }
    _tile_stored(0, c, C_STRIDE);
    _tile_stored(2, c + TILE_ROWS * SLIVER, C_STRIDE);
}

/* 32 weight rows (what is missing is zeros, and a tile costs the same) by up to 32 tokens. */
static void multiply_wide(const uint16_t *a, const uint16_t *b, int64_t run, float *c)
{
    const uint16_t *a2 = a + run, *b2 = b + run;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t t = 0; t < run; t += AMX_TILE_WEIGHTS) {
        _tile_loadd(4, a + t, 64);
        _tile_loadd(6, b + t, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b2 + t, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a2 + t, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, C_STRIDE);
    _tile_stored(1, c + TILE_ROWS, C_STRIDE);
    _tile_stored(2, c + TILE_ROWS * SLIVER, C_STRIDE);
    _tile_stored(3, c + TILE_ROWS * SLIVER + TILE_ROWS, C_STRIDE);
}

static void multiply_amx(const void *panel, const void *sliver, int rows, int tokens, int k, float *c)
{
    const int64_t run = run_of(k);
    const uint16_t *a = panel;
    for (int r = 0; r < rows; r += PAIR, a += 2 * run, c += PAIR * SLIVER)
        (tokens <= TILE_ROWS ? multiply_narrow : multiply_wide)(a, sliver, run, c);
}

const struct gemm_kernel GEMM_BF16_AMX = { .name = "bf16_tile",
                                           .min_rows = MIN_ROWS,
                                           .panel_rows = PANEL_ROWS,
                                           .kc = KC,
                                           .mc = MC,
                                           .operand_bytes = sizeof(uint16_t),
                                           .begin = begin_amx,
                                           .end = end_amx,
                                           .pack = pack_amx,
                                           .multiply = multiply_amx };
