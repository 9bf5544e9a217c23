/* kernels/formats/groups/encode.h - round groups of weights to nearest and pack the codes. The loops are
 * plain C with constant bounds, which the compiler vectorizes; the reference and the encoders of every
 * instruction set include this file. */
#ifndef QDYNO_KERNELS_FORMATS_GROUPS_ENCODE_H
#define QDYNO_KERNELS_FORMATS_GROUPS_ENCODE_H

#include "kernels/formats/groups/groups.h"
#include "kernels/formats/groups/layout.h"

/* Write one block: scale, zero point and codes, which are below 2^bits. */
static inline void group_pack(const struct group_codes *g, const int bits, const int weights, uint8_t *block)
{
    uint8_t *low = block + GROUP_CODES;
    store_u16(block, half_from_float(g->scale));
    store_u16(block + GROUP_ZERO, half_from_float(g->zero));
    if (bits == 8) memcpy(low, g->code, (size_t)weights);
    for (int i = 0; i < weights && bits == 4; i += 32)
        for (int j = 0; j < 16; j++) low[i / 2 + j] = (uint8_t)(g->code[i + j] | g->code[i + j + 16] << 4);
    for (int i = 0; i < weights && bits < 4; i += 64) {
        const uint8_t *c = g->code + i;
        for (int j = 0; j < 16; j++)
            low[i / 4 + j] = (uint8_t)((c[j] & 3) | (c[j + 16] & 3) << 2 | (c[j + 32] & 3) << 4 |
                                       (c[j + 48] & 3) << 6);
    }
    for (int i = 0; i < weights && bits == 3; i += 8) {
        int third = 0;
        for (int j = 0; j < 8; j++) third |= g->code[i + j] >> 2 << j;
        block[GROUP_THIRD_BITS(weights) + i / 8] = (uint8_t)third;
    }
}

/* Round to the nearest integer. v is limited to +-1024, outside the range of all codes, because it can exceed
 * the range of int if the scale was limited to the largest f16. */
static inline int group_round(float v)
{
    return round_even(v < -1024 ? -1024 : v > 1024 ? 1024 : v);
}

static inline int group_limit(int v, int most)
{
    return v < 0 ? 0 : v > most ? most : v;
}

/* The lowest and the highest of the weights and 0. Magnitudes are compared by their bits as integers, which
 * gives the same order and lets the compiler vectorize the loop. */
static inline void group_range(const float *x, const int weights, float *low, float *high)
{
    int32_t below = 0, above = 0; /* magnitudes */
    for (int i = 0; i < weights; i++) {
        const int32_t bits = (int32_t)bits_of(x[i]), size = bits & 0x7fffffff;
        const int32_t negative = bits < 0 ? size : 0, positive = bits < 0 ? 0 : size;
        below = negative > below ? negative : below, above = positive > above ? positive : above;
    }
    *low = -float_of((uint32_t)below), *high = float_of((uint32_t)above);
}

/* AWQ's group quantizer: an integer zero point, and a scale from the range of the weights. The range always
 * contains 0, as in GPTQ, so that groups whose weights have one sign are not clipped. Codes are chosen for
 * the scale as stored in f16. */
static inline void group_nearest(const float *x, const int bits, const int weights, struct group_codes *g)
{
    const int most = (1 << bits) - 1;
    float low, high;
    group_range(x, weights, &low, &high);
    const float range = high - low, least = 1e-5f, largest = 65504;
    const float scale = (range > least ? range : least) / (float)most;
    g->scale = half_to_float(half_from_float(scale < largest ? scale : largest));
    const int zero = group_limit(group_round(-low / g->scale), most);
    g->zero = (float)zero;
    for (int i = 0; i < weights; i++)
        g->code[i] = (uint8_t)group_limit(group_round(x[i] / g->scale) + zero, most);
}

static inline void group_encode(const float *x, const int bits, const int weights, uint8_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += weights, out += GROUP_BYTES(bits, weights)) {
        struct group_codes g;
        group_nearest(x + i, bits, weights, &g);
        group_pack(&g, bits, weights, out);
    }
}

#endif
