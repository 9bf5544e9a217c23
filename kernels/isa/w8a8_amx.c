/* Integer products under one scale a row and a token on AMX tiles: sums of all inputs of a block stay in the
 * tiles, nothing is scaled before the end. Per 64 inputs the same five loads and six products as bf16 tiles
 * (gemm_amx.c) make of 32: twice the arithmetic from the same bandwidth. */
#include "kernels/isa/amx.h"
#include "kernels/isa/isa_kernels.h"
#include "kernels/isa/w8a8_512.h"

enum {
    MIN_ROWS = 9,
    PANEL_ROWS = 96,
    KC = 4096, /* a panel is 384 KiB */
    MC = 256,  /* and the packed activations of a sweep 1 MiB */
};

static void multiply_48(const uint8_t *a, const uint8_t *b, int64_t run, float *c)
{
    const uint8_t *a2 = a + run, *a3 = a2 + run, *b2 = b + run;
    AMX_ZERO(0, 1);
    AMX_ZERO(2, 3);
    AMX_ZERO(4, 5);
    for (int64_t t = 0; t < run; t += W8A8_TILE) {
        _tile_loadd(6, b + t, 64);
        _tile_loadd(7, a + t, 64);
        _tile_dpbsud(0, 7, 6);
        _tile_loadd(7, a2 + t, 64);
        _tile_dpbsud(2, 7, 6);
        _tile_loadd(7, a3 + t, 64);
        _tile_dpbsud(4, 7, 6);
        _tile_loadd(6, b2 + t, 64);
        _tile_dpbsud(5, 7, 6);
        _tile_loadd(7, a2 + t, 64);
        _tile_dpbsud(3, 7, 6);
        _tile_loadd(7, a + t, 64);
        _tile_dpbsud(1, 7, 6);
    }
    AMX_STORE(0, 1, c);
    AMX_STORE(2, 3, c + TILE_ROWS * SLIVER);
    AMX_STORE(4, 5, c + 2 * TILE_ROWS * SLIVER);
}

static void multiply_32(const uint8_t *a, const uint8_t *b, int64_t run, float *c)
{
    const uint8_t *a2 = a + run, *b2 = b + run;
    AMX_ZERO(0, 1);
    AMX_ZERO(2, 3);
    for (int64_t t = 0; t < run; t += W8A8_TILE) {
        _tile_loadd(4, a + t, 64);
        _tile_loadd(6, b + t, 64);
        _tile_dpbsud(0, 4, 6);
        _tile_loadd(7, b2 + t, 64);
        _tile_dpbsud(1, 4, 7);
        _tile_loadd(5, a2 + t, 64);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
    }
    AMX_STORE(0, 1, c);
    AMX_STORE(2, 3, c + TILE_ROWS * SLIVER);
}

static void multiply_16(const uint8_t *a, const uint8_t *b, int64_t run, float *c)
{
    const uint8_t *b2 = b + run;
    AMX_ZERO(0, 1);
    for (int64_t t = 0; t < run; t += W8A8_TILE) {
        _tile_loadd(4, a + t, 64);
        _tile_loadd(6, b + t, 64);
        _tile_dpbsud(0, 4, 6);
        _tile_loadd(7, b2 + t, 64);
        _tile_dpbsud(1, 4, 7);
    }
    AMX_STORE(0, 1, c);
}

static void multiply_amx(const struct gemm_step *p)
{
    static void (*const by_groups[])(const uint8_t *, const uint8_t *, int64_t,
                                     float *) = { multiply_16, multiply_32, multiply_48 };
    const int64_t run = w8a8_run(p->k);
    const uint8_t *a = p->panel;
    float *c = p->c;
    int groups = (p->rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int now; groups > 0; groups -= now) {
        now = MIN(groups, 3);
        by_groups[now - 1](a, p->sliver, run, c);
        a += now * run;
        c += now * TILE_ROWS * SLIVER;
    }
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

const struct gemm_kernel GEMM_W8A8_AMX = {
    .name = "int8_tile",
    .min_rows = MIN_ROWS,
    .panel_rows = PANEL_ROWS,
    .kc = KC,
    .mc = MC,
    .depth = W8A8_DEPTH,
    .panel_step = W8A8_TILE,
    .sliver_step = 2 * W8A8_TILE,
    .begin = amx_begin,
    .end = amx_end,
    .pack_codes = pack_amx,
    .unpack = unpack_amx,
    .multiply = multiply_amx,
};
