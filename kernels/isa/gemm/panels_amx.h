/* kernels/isa/gemm/panels_amx.h - multiply a packed panel by a sliver on tiles. The including file defines
 * PRODUCT, the intrinsic that multiplies two tiles. Operands are runs of 1 KiB tiles, one run for every 16
 * rows of weights or tokens; results are accumulated in tiles over the whole run. */
#ifndef PRODUCT
#error "define PRODUCT as the intrinsic that multiplies two tiles"
#endif

static void multiply_48(const uint8_t *a, const uint8_t *b, int64_t run, float *c)
{
    const uint8_t *a2 = a + run, *a3 = a2 + run, *b2 = b + run;
    AMX_ZERO(0, 1);
    AMX_ZERO(2, 3);
    AMX_ZERO(4, 5);
    for (int64_t t = 0; t < run; t += AMX_TILE_BYTES) {
        _tile_loadd(6, b + t, 64);
        _tile_loadd(7, a + t, 64);
        PRODUCT(0, 7, 6);
        _tile_loadd(7, a2 + t, 64);
        PRODUCT(2, 7, 6);
        _tile_loadd(7, a3 + t, 64);
        PRODUCT(4, 7, 6);
        _tile_loadd(6, b2 + t, 64);
        PRODUCT(5, 7, 6);
        _tile_loadd(7, a2 + t, 64);
        PRODUCT(3, 7, 6);
        _tile_loadd(7, a + t, 64);
        PRODUCT(1, 7, 6);
    }
    AMX_STORE(0, 1, c);
    AMX_STORE(2, 3, c + TILE_ROWS * SLIVER);
    AMX_STORE(4, 5, c + 2 * TILE_ROWS * SLIVER);
}

/* 32 rows by 32 tokens by one tile's inputs, into tiles 0 to 3. */
ALWAYS_INLINE void step_32(const void *a, const void *a2, const void *b, const void *b2)
{
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    PRODUCT(0, 4, 6);
    _tile_loadd(7, b2, 64);
    PRODUCT(1, 4, 7);
    _tile_loadd(5, a2, 64);
    PRODUCT(2, 5, 6);
    PRODUCT(3, 5, 7);
}

static void multiply_32(const uint8_t *a, const uint8_t *b, int64_t run, float *c)
{
    const uint8_t *a2 = a + run, *b2 = b + run;
    AMX_ZERO(0, 1);
    AMX_ZERO(2, 3);
    for (int64_t t = 0; t < run; t += AMX_TILE_BYTES) step_32(a + t, a2 + t, b + t, b2 + t);
    AMX_STORE(0, 1, c);
    AMX_STORE(2, 3, c + TILE_ROWS * SLIVER);
}

static void multiply_16(const uint8_t *a, const uint8_t *b, int64_t run, float *c)
{
    const uint8_t *b2 = b + run;
    AMX_ZERO(0, 1);
    for (int64_t t = 0; t < run; t += AMX_TILE_BYTES) {
        _tile_loadd(4, a + t, 64);
        _tile_loadd(6, b + t, 64);
        PRODUCT(0, 4, 6);
        _tile_loadd(7, b2 + t, 64);
        PRODUCT(1, 4, 7);
    }
    AMX_STORE(0, 1, c);
}

/* Multiply all rows of a panel, up to 48 at a time. run: bytes of 16 rows. */
static void multiply_panel(const struct gemm_step *p, int64_t run)
{
    static void (*const by_groups[])(const uint8_t *, const uint8_t *, int64_t,
                                     float *) = { multiply_16, multiply_32, multiply_48 };
    const uint8_t *a = p->panel;
    float *c = p->c;
    for (int groups = (p->rows + TILE_ROWS - 1) / TILE_ROWS, now; groups > 0; groups -= now) {
        now = MIN(groups, 3);
        by_groups[now - 1](a, p->sliver, run, c);
        a += now * run;
        c += now * TILE_ROWS * SLIVER;
    }
}
