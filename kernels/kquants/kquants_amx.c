/* The 256-weight formats to bf16 tiles: every value is computed as the reference does and rounded once. */
#include "kernels/isa/amx.h"
#include "kernels/kquants/kquants.h"
#include "kernels/kquants/kquants_avx512.h"

/* A row at a time, eight tiles apart by 1 KiB each: a block's scales are unpacked once. */
ALWAYS_INLINE void unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out,
                          const struct k_shape *shape, k_scales_fn *scales, k_codes512_fn *codes)
{
    enum { TILES = K_BLOCK / TILE_DEPTH };
    for (int64_t i = 0; i < k; i += K_BLOCK, w += shape->block_bytes, out += TILES * AMX_TILE_WEIGHTS) {
        for (int r = 0; r < TILE_ROWS; r++) {
            uint16_t *to = out + r * TILE_DEPTH;
            if (r >= rows) {
                for (int t = 0; t < TILES; t++)
                    _mm512_store_si512(to + t * AMX_TILE_WEIGHTS, _mm512_setzero_si512());
                continue;
            }
            struct k_unpacked u;
            k_unpack(w + r * row_bytes, shape, scales, codes, &u);
#pragma GCC unroll 8
            for (int t = 0; t < TILES; t++)
                _mm512_store_si512(to + t * AMX_TILE_WEIGHTS,
                                   to_bf16(k_weights16(&u, shape, 2 * t), k_weights16(&u, shape, 2 * t + 1)));
        }
    }
}

#define K_UNPACK(name, shape, scales, codes)                                                                 \
    static void name##_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)       \
    {                                                                                                        \
        unpack(w, row_bytes, rows, k, out, &shape, scales, codes);                                           \
    }
K_UNPACK(q2_k, Q2_K_SHAPE, q2_k_scales, q2_k_codes512)
K_UNPACK(q3_k, Q3_K_SHAPE, q3_k_scales, q3_k_codes512)
K_UNPACK(q4_k, Q4_K_SHAPE, q4_k_scales, q4_k_codes512)
K_UNPACK(q5_k, Q5_K_SHAPE, q4_k_scales, q5_k_codes512)
K_UNPACK(q6_k, Q6_K_SHAPE, q6_k_scales, q6_k_codes512)
K_UNPACK(iq4_xs, IQ4_XS_SHAPE, iq4_xs_scales, iq4_xs_codes512)

const struct format_row KQUANTS_AMX[KQUANT_COUNT] = {
    { FORMAT_Q2_K, { .unpack_bf16 = q2_k_unpack } }, { FORMAT_Q3_K, { .unpack_bf16 = q3_k_unpack } },
    { FORMAT_Q4_K, { .unpack_bf16 = q4_k_unpack } }, { FORMAT_Q5_K, { .unpack_bf16 = q5_k_unpack } },
    { FORMAT_Q6_K, { .unpack_bf16 = q6_k_unpack } }, { FORMAT_IQ4_XS, { .unpack_bf16 = iq4_xs_unpack } },
};
