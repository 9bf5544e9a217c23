/* kernels/isa/amx.h - helpers of the AMX kernels. Weights are the A operand of tile products, whose rows are
 * stored plainly, so weights are never transposed. Activations are the B operand, which interleaves pairs of
 * inputs; they are packed once per product. */
#ifndef QDYNO_KERNELS_ISA_AMX_H
#define QDYNO_KERNELS_ISA_AMX_H

#include "kernels/isa/bf16_tiles.h"

enum { AMX_TILE_BYTES = 1024 };

/* Configure all eight tiles as 16 rows of 64 bytes for this thread, and release them (gemm_amx.c). */
void amx_begin(void);
void amx_end(void);

/* Two tiles with the results of 16 rows by 32 tokens: zero them, and store them as results of a panel. */
enum { AMX_C_STRIDE = SLIVER * sizeof(float) };
#define AMX_ZERO(first, second)                                                                              \
    _tile_zero(first);                                                                                       \
    _tile_zero(second)
#define AMX_STORE(first, second, c)                                                                          \
    _tile_stored(first, c, AMX_C_STRIDE);                                                                    \
    _tile_stored(second, (c) + TILE_ROWS, AMX_C_STRIDE)

#endif
