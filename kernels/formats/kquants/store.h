/* kernels/formats/kquants/store.h - the second half of encoding a block of 256 weights. A search (search.h)
 * has found a float scale (and minimum) for each sub-block. Here they are quantized to a few bits each,
 * codes are chosen again for the quantized scales, and all fields are written in the layout of the format.
 * The loops are plain C, which the compiler vectorizes; the reference and the encoders of every instruction
 * set include this file. Every operation is one rounded binary32 operation in the order written, as ggml
 * does it. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_STORE_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_STORE_H

#include <math.h>

#include "kernels/formats/kquants/layout.h"
#include "kernels/formats/kquants/search.h"

/* Parameters of search_min for the formats with minima. The values are ggml's. */
struct k_min_search {
    int sub;
    bool adds_mean; /* error weights without importance: root mean square of the sub-block + |x|, else |x| */
    struct search_grid plain, important;
};
static const struct k_min_search
    Q2_K_SEARCH = { .sub = 16,
                    .plain = { .nmax = 3, .rmin = -0.5f, .rdelta = 0.1f, .steps = 15 },
                    .important = { .nmax = 3,
                                   .rmin = -0.9f,
                                   .rdelta = 0.05f,
                                   .steps = 36,
                                   .squared = true } },
    Q4_K_SEARCH = { .sub = 32,
                    .adds_mean = true,
                    .plain = { .nmax = 15, .rmin = -1, .rdelta = 0.1f, .steps = 20, .squared = true },
                    .important = { .nmax = 15,
                                   .rmin = -0.9f,
                                   .rdelta = 0.05f,
                                   .steps = 36,
                                   .squared = true } },
    Q5_K_SEARCH = { .sub = 32,
                    .adds_mean = true,
                    .plain = { .nmax = 31, .rmin = -0.5f, .rdelta = 0.1f, .steps = 15, .squared = true },
                    .important = {
                        .nmax = 31, .rmin = -0.9f, .rdelta = 0.05f, .steps = 36, .squared = true } };

/* Results of the search. */
struct k_found {
    float scale[K_SUBS], min[K_SUBS];
    float error_weight[K_SUBS]; /* sum of the error weights of each sub-block; set only with importance */
    uint8_t code[K_BLOCK];
};
/* Write one block. important: there is an importance matrix, so the scales of sub-blocks are quantized by a
 * weighted search instead of rounding. s->code is overwritten. */
typedef void k_store_fn(const float *x, struct k_found *s, bool important, uint8_t *out);

/* ---------------------------------------------------------------- packing of codes */

static inline void k_put_two_bits(const uint8_t code[K_BLOCK], int from_bit, uint8_t *out)
{
    for (int half = 0; half < 2; half++, code += 128, out += 32)
        for (int l = 0; l < 32; l++)
            out[l] = (uint8_t)((code[l] >> from_bit & 3) | (code[l + 32] >> from_bit & 3) << 2 |
                               (code[l + 64] >> from_bit & 3) << 4 | (code[l + 96] >> from_bit & 3) << 6);
}

static inline void k_put_four_bits(const uint8_t code[K_BLOCK], uint8_t *out)
{
    for (int c = 0; c < 4; c++, code += 64, out += 32)
        for (int l = 0; l < 32; l++) out[l] = (uint8_t)((code[l] & 15) | (code[l + 32] & 15) << 4);
}

static inline void k_put_plane(const uint8_t code[K_BLOCK], int from_bit, uint8_t *out)
{
    for (int l = 0; l < 32; l++) {
        int byte = 0;
        for (int b = 0; b < 8; b++) byte |= (code[32 * b + l] >> from_bit & 1) << b;
        out[l] = (uint8_t)byte;
    }
}

/* ---------------------------------------------------------------- scales with minima: q2_K q4_K q5_K */

/* Quantize n values >= 0 to bits[j] * *d with integers bits[j] in 0 .. top. error_weight: of each value, for
 * a weighted search; NULL: scale the largest value to `top` and round. */
static inline void k_scales_to_bits(const float *values, const float *error_weight, int n, int top,
                                    uint8_t *bits, uint16_t *d)
{
    if (error_weight) {
        *d = half_from_float(search_positive(n, top, values, error_weight, bits));
        return;
    }
    float most = 0;
    for (int j = 0; j < n; j++)
        if (values[j] > most) most = values[j];
    const float inverse = most > 0 ? (float)top / most : 0;
    for (int j = 0; j < n; j++) bits[j] = (uint8_t)search_clamp(search_round(inverse * values[j]), 0, top);
    *d = half_from_float(most > 0 ? most / (float)top : 0);
}

struct k_min_bits {
    uint16_t d, dmin;
    uint8_t scale[K_SUBS], min[K_SUBS];
};

/* Quantize scales and minima to b and choose the codes again with these scales. Where a quantized scale is 0,
 * the codes of the search are kept. */
static inline void k_choose_min(const float *x, struct k_found *s, bool important, const int sub,
                                const int nmax, const int top, struct k_min_bits *b)
{
    const int subs = K_BLOCK / sub;
    k_scales_to_bits(s->scale, important ? s->error_weight : NULL, subs, top, b->scale, &b->d);
    k_scales_to_bits(s->min, important ? s->error_weight : NULL, subs, top, b->min, &b->dmin);
    const float d = half_to_float(b->d), dmin = half_to_float(b->dmin);
    for (int j = 0; j < subs; j++) {
        const float scale = d * (float)b->scale[j], min = dmin * (float)b->min[j];
        if (scale == 0) continue;
        for (int i = j * sub; i < (j + 1) * sub; i++)
            s->code[i] = (uint8_t)search_clamp(search_round((x[i] + min) / scale), 0, nmax);
    }
}

static inline void q2_k_store(const float *x, struct k_found *s, bool important, uint8_t *out)
{
    struct k_min_bits b;
    k_choose_min(x, s, important, 16, 3, 15, &b);
    for (int j = 0; j < K_SUBS; j++) out[Q2_K_SCALES + j] = (uint8_t)(b.scale[j] | b.min[j] << 4);
    k_put_two_bits(s->code, 0, out + Q2_K_CODES);
    store_u16(out + Q2_K_D, b.d);
    store_u16(out + Q2_K_DMIN, b.dmin);
}

/* Write the scales and minima of q4_K or q5_K and choose the codes. */
static inline void q45_k_store(const float *x, struct k_found *s, bool important, const int nmax,
                               uint8_t *out)
{
    struct k_min_bits b;
    k_choose_min(x, s, important, 32, nmax, 63, &b);
    store_u16(out + Q4_K_D, b.d);
    store_u16(out + Q4_K_DMIN, b.dmin);
    uint8_t *to = out + Q4_K_SCALES;
    for (int j = 0; j < 4; j++) {
        to[j] = (uint8_t)(b.scale[j] | b.scale[j + 4] >> 4 << 6);
        to[j + 4] = (uint8_t)(b.min[j] | b.min[j + 4] >> 4 << 6);
        to[j + 8] = (uint8_t)((b.scale[j + 4] & 15) | (b.min[j + 4] & 15) << 4);
    }
}

static inline void q4_k_store(const float *x, struct k_found *s, bool important, uint8_t *out)
{
    q45_k_store(x, s, important, 15, out);
    k_put_four_bits(s->code, out + Q4_K_CODES);
}

static inline void q5_k_store(const float *x, struct k_found *s, bool important, uint8_t *out)
{
    q45_k_store(x, s, important, 31, out);
    k_put_plane(s->code, 4, out + Q5_K_HIGH);
    k_put_four_bits(s->code, out + Q5_K_CODES);
}

/* ---------------------------------------------------------------- signed scales: q3_K q6_K iq4_xs */

/* The signed scale with the largest magnitude, the first of equal ones. */
static inline float k_largest(const float *scale, int n)
{
    float most = 0, largest = 0;
    for (int j = 0; j < n; j++)
        if (fabsf(scale[j]) > most) most = fabsf(scale[j]), largest = scale[j];
    return largest;
}

static inline void k_choose_symmetric(const float *x, const int nmax, float d, const int8_t *scale,
                                      uint8_t *code)
{
    enum { SUB = 16 };
    for (int j = 0; j < K_BLOCK / SUB; j++) {
        const float s = d * (float)scale[j];
        if (s == 0) continue;
        for (int i = j * SUB; i < (j + 1) * SUB; i++)
            code[i] = (uint8_t)(search_clamp(search_round(x[i] / s), -nmax, nmax - 1) + nmax);
    }
}

/* Quantize the sixteen signed scales to integers -32 .. 31. Returns the factor d with scale ~ d * bits. */
static inline float q3_k_scales_to_bits(const struct k_found *s, bool important, int8_t *bits)
{
    if (important) {
        uint8_t code[K_SUBS];
        const float d = search_symmetric(K_SUBS, 32, s->scale, s->error_weight, code);
        for (int j = 0; j < K_SUBS; j++) bits[j] = (int8_t)(code[j] - 32);
        return d;
    }
    const float largest = k_largest(s->scale, K_SUBS), inverse = largest != 0 ? -32 / largest : 0;
    for (int j = 0; j < K_SUBS; j++) {
        bits[j] = (int8_t)search_clamp(search_round(inverse * s->scale[j]), -32, 31);
        if (largest == 0) bits[j] = -32; /* stored with an offset of 32, this makes all scale bytes 0 */
    }
    return largest != 0 ? 1 / inverse : 0;
}

static inline void q3_k_store(const float *x, struct k_found *s, bool important, uint8_t *out)
{
    int8_t bits[K_SUBS];
    uint8_t *b = out + Q3_K_SCALES;
    const uint16_t d = half_from_float(q3_k_scales_to_bits(s, important, bits));
    memset(b, 0, 12);
    for (int j = 0; j < K_SUBS; j++) {
        const int u = bits[j] + 32;
        b[j % 8] |= (uint8_t)((u & 15) << (j / 8 * 4));
        b[8 + j % 4] |= (uint8_t)(u >> 4 << (j / 4 * 2));
    }
    k_choose_symmetric(x, 4, half_to_float(d), bits, s->code);
    k_put_plane(s->code, 2, out + Q3_K_HIGH);
    k_put_two_bits(s->code, 0, out + Q3_K_CODES);
    store_u16(out + Q3_K_D, d);
}

static inline void q6_k_store(const float *x, struct k_found *s, bool important, uint8_t *out)
{
    int8_t bits[K_SUBS];
    const float largest = k_largest(s->scale, K_SUBS);
    (void)important;
    memset(out, 0, (size_t)Q6_K_SHAPE.block_bytes);
    if (fabsf(largest) < SEARCH_NEARLY_ZERO) return;
    const float inverse = -128 / largest;
    const uint16_t d = half_from_float(1 / inverse);
    for (int j = 0; j < K_SUBS; j++)
        bits[j] = (int8_t)search_clamp(search_round(inverse * s->scale[j]), -128, 127);
    k_choose_symmetric(x, 32, half_to_float(d), bits, s->code);
    for (int half = 0; half < 2; half++)
        for (int l = 0; l < 64; l++)
            out[Q6_K_LOW + 64 * half + l] = (uint8_t)((s->code[128 * half + l] & 15) |
                                                      (s->code[128 * half + 64 + l] & 15) << 4);
    k_put_two_bits(s->code, 4, out + Q6_K_HIGH);
    memcpy(out + Q6_K_SCALES, bits, sizeof bits);
    store_u16(out + Q6_K_D, d);
}

/* The search for iq4_xs yields scales only; the codes are chosen here, for the quantized scales. */
static inline void iq4_xs_store(const float *x, struct k_found *s, bool important, uint8_t *out)
{
    enum { SUB = 32, SUBS = K_BLOCK / SUB };
    const float d = -k_largest(s->scale, SUBS) / 32, inverse = d != 0 ? 1 / d : 0;
    unsigned high = 0;
    (void)important;
    memset(out, 0, (size_t)IQ4_XS_SHAPE.block_bytes);
    for (int j = 0; j < SUBS; j++) {
        const int l = search_clamp(search_round(inverse * s->scale[j]), -32, 31);
        const float dl = d * (float)l, id = dl != 0 ? 1 / dl : 0;
        uint8_t *code = s->code + j * SUB, *to = out + IQ4_XS_CODES + j * 16;
        high |= (unsigned)((l + 32) >> 4) << (2 * j);
        out[IQ4_XS_SCALES_LOW + j / 2] |= (uint8_t)(((l + 32) & 15) << (j % 2 * 4));
        search_codebook_codes(SUB, x + j * SUB, id, code);
        for (int i = 0; i < 16; i++) to[i] = (uint8_t)(code[i] | code[i + 16] << 4);
    }
    store_u16(out + IQ4_XS_D, half_from_float(d));
    store_u16(out + IQ4_XS_SCALES_HIGH, (uint16_t)high);
}

#endif
