/* The rate of AMX tile products without loads: products into four independent result tiles. */
#include <immintrin.h>

#include "kernels/isa/isa_kernels.h"

static void tiles_begin(void)
{
    GEMM_BF16_AMX.begin();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
}

double ceiling_bf16_tile_amx(int64_t rounds)
{
    tiles_begin();
    for (int64_t i = 0; i < rounds; i++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    GEMM_BF16_AMX.end();
    return 2.0 * 16 * 16 * 32 * 4 * (double)rounds;
}

double ceiling_int8_tile_amx(int64_t rounds)
{
    tiles_begin();
    for (int64_t i = 0; i < rounds; i++) {
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 5);
        _tile_dpbssd(2, 4, 5);
        _tile_dpbssd(3, 4, 5);
    }
    GEMM_BF16_AMX.end();
    return 2.0 * 16 * 16 * 64 * 4 * (double)rounds;
}
