/* The 256-weight formats, encoding as ggml does it without an importance matrix, to the same bytes: search a
 * scale (and minimum) for each sub-block, store those in a few bits, then choose every code anew under what
 * was stored. A sub-block whose stored scale is zero keeps the search's codes. */
#include <math.h>

#include "kernels/half.h"
#include "kernels/kquants/kquants.h"
#include "kernels/kquants/layout.h"
#include "kernels/kquants/search.h"

/* ---------------------------------------------------------------- putting bits where they belong */

static void put_two_bits(const uint8_t code[K_BLOCK], int from_bit, uint8_t *out)
{
    memset(out, 0, K_BLOCK / 4);
    for (int i = 0; i < K_BLOCK; i++)
        out[i / 128 * 32 + i % 32] |= (uint8_t)((code[i] >> from_bit & 3) << (i % 128 / 32 * 2));
}

static void put_four_bits(const uint8_t code[K_BLOCK], uint8_t *out)
{
    memset(out, 0, K_BLOCK / 2);
    for (int i = 0; i < K_BLOCK; i++)
        out[i / 64 * 32 + i % 32] |= (uint8_t)((code[i] & 15) << (i % 64 / 32 * 4));
}

static void put_plane(const uint8_t code[K_BLOCK], int from_bit, uint8_t *out)
{
    memset(out, 0, K_BLOCK / 8);
    for (int i = 0; i < K_BLOCK; i++) out[i % 32] |= (uint8_t)((code[i] >> from_bit & 1) << (i / 32));
}

/* ---------------------------------------------------------------- scales with minima: q2_K q4_K q5_K */

struct sub_blocks {
    float scale[K_SUBS], min[K_SUBS];
    uint8_t scale_bits[K_SUBS], min_bits[K_SUBS];
    uint8_t code[K_BLOCK];
};

/* values >= 0 as integers 0..top of *d. */
static void scales_to_bits(const float *values, int n, int top, uint8_t *bits, uint16_t *d)
{
    float most = 0;
    for (int j = 0; j < n; j++)
        if (values[j] > most) most = values[j];
    const float inverse = most > 0 ? (float)top / most : 0;
    for (int j = 0; j < n; j++) bits[j] = (uint8_t)search_clamp(search_round(inverse * values[j]), 0, top);
    *d = half_from_float(most > 0 ? most / (float)top : 0);
}

static void choose_codes_min(const float *x, int sub, int nmax, uint16_t d, uint16_t dmin,
                             struct sub_blocks *s)
{
    for (int j = 0; j < K_BLOCK / sub; j++) {
        const float scale = half_to_float(d) * (float)s->scale_bits[j];
        const float min = half_to_float(dmin) * (float)s->min_bits[j];
        if (scale == 0) continue;
        for (int i = j * sub; i < (j + 1) * sub; i++)
            s->code[i] = (uint8_t)search_clamp(search_round((x[i] + min) / scale), 0, nmax);
    }
}

static void q2_k_block(const float *x, uint8_t *out)
{
    enum { SUB = 16, NMAX = 3, TOP = 15 };
    static const struct search_grid GRID = { NMAX, -0.5f, 0.1f, 15, false };
    struct sub_blocks s;
    for (int j = 0; j < K_BLOCK / SUB; j++) {
        float w[SUB];
        for (int i = 0; i < SUB; i++) w[i] = fabsf(x[j * SUB + i]);
        s.scale[j] = search_min(&GRID, SUB, x + j * SUB, w, s.code + j * SUB, &s.min[j]);
    }
    uint16_t d, dmin;
    scales_to_bits(s.scale, K_BLOCK / SUB, TOP, s.scale_bits, &d);
    scales_to_bits(s.min, K_BLOCK / SUB, TOP, s.min_bits, &dmin);
    choose_codes_min(x, SUB, NMAX, d, dmin, &s);
    for (int j = 0; j < K_BLOCK / SUB; j++)
        out[Q2_K_SCALES + j] = (uint8_t)(s.scale_bits[j] | s.min_bits[j] << 4);
    put_two_bits(s.code, 0, out + Q2_K_CODES);
    store_u16(out + Q2_K_D, d);
    store_u16(out + Q2_K_DMIN, dmin);
}

/* All of q4_K and q5_K but the codes. */
static void q45_k_block(const struct search_grid *g, const float *x, uint8_t *out, struct sub_blocks *s)
{
    enum { SUB = 32, SUBS = K_BLOCK / SUB, TOP = 63 };
    for (int j = 0; j < SUBS; j++) {
        const float *v = x + j * SUB;
        float w[SUB], squares = 0;
        for (int i = 0; i < SUB; i++) squares += v[i] * v[i];
        const float base = sqrtf(squares / SUB);
        for (int i = 0; i < SUB; i++) w[i] = base + fabsf(v[i]);
        s->scale[j] = search_min(g, SUB, v, w, s->code + j * SUB, &s->min[j]);
    }
    uint16_t d, dmin;
    scales_to_bits(s->scale, SUBS, TOP, s->scale_bits, &d);
    scales_to_bits(s->min, SUBS, TOP, s->min_bits, &dmin);
    choose_codes_min(x, SUB, g->nmax, d, dmin, s);
    store_u16(out + Q4_K_D, d);
    store_u16(out + Q4_K_DMIN, dmin);
    uint8_t *b = out + Q4_K_SCALES;
    const uint8_t *sc = s->scale_bits, *mn = s->min_bits;
    for (int j = 0; j < SUBS / 2; j++) {
        b[j] = (uint8_t)(sc[j] | sc[j + 4] >> 4 << 6);
        b[j + 4] = (uint8_t)(mn[j] | mn[j + 4] >> 4 << 6);
        b[j + 8] = (uint8_t)((sc[j + 4] & 15) | (mn[j + 4] & 15) << 4);
    }
}

static void q4_k_block(const float *x, uint8_t *out)
{
    static const struct search_grid GRID = { 15, -1, 0.1f, 20, true };
    struct sub_blocks s;
    q45_k_block(&GRID, x, out, &s);
    put_four_bits(s.code, out + Q4_K_CODES);
}

static void q5_k_block(const float *x, uint8_t *out)
{
    static const struct search_grid GRID = { 31, -0.5f, 0.1f, 15, true };
    struct sub_blocks s;
    q45_k_block(&GRID, x, out, &s);
    put_plane(s.code, 4, out + Q5_K_HIGH);
    put_four_bits(s.code, out + Q5_K_CODES);
}

/* ---------------------------------------------------------------- signed scales: q3_K q6_K iq4_xs */

/* The scale of largest magnitude, the first if several. */
static float largest_of(const float *scale, int n)
{
    float most = 0, largest = 0;
    for (int j = 0; j < n; j++)
        if (fabsf(scale[j]) > most) most = fabsf(scale[j]), largest = scale[j];
    return largest;
}

static void choose_codes_symmetric(const float *x, int nmax, float d, const int8_t *scale, uint8_t *code)
{
    enum { SUB = 16 };
    for (int j = 0; j < K_BLOCK / SUB; j++) {
        const float s = d * (float)scale[j];
        if (s == 0) continue;
        for (int i = j * SUB; i < (j + 1) * SUB; i++)
            code[i] = (uint8_t)(search_clamp(search_round(x[i] / s), -nmax, nmax - 1) + nmax);
    }
}

static void q3_k_block(const float *x, uint8_t *out)
{
    enum { SUB = 16, SUBS = K_BLOCK / SUB, NMAX = 4 };
    float scale[SUBS];
    int8_t bits[SUBS];
    uint8_t code[K_BLOCK], *b = out + Q3_K_SCALES;
    for (int j = 0; j < SUBS; j++) scale[j] = search_symmetric_steps(SUB, NMAX, x + j * SUB, code + j * SUB);
    const float largest = largest_of(scale, SUBS), inverse = largest != 0 ? -32 / largest : 0;
    const uint16_t d = half_from_float(largest != 0 ? 1 / inverse : 0);
    memset(b, 0, 12);
    for (int j = 0; j < SUBS; j++) {
        bits[j] = (int8_t)search_clamp(search_round(inverse * scale[j]), -32, 31);
        if (largest == 0) bits[j] = -32; /* all scale bytes zero */
        const int u = bits[j] + 32;
        b[j % 8] |= (uint8_t)((u & 15) << (j / 8 * 4));
        b[8 + j % 4] |= (uint8_t)(u >> 4 << (j / 4 * 2));
    }
    choose_codes_symmetric(x, NMAX, half_to_float(d), bits, code);
    put_plane(code, 2, out + Q3_K_HIGH);
    put_two_bits(code, 0, out + Q3_K_CODES);
    store_u16(out + Q3_K_D, d);
}

static void q6_k_block(const float *x, uint8_t *out)
{
    enum { SUB = 16, SUBS = K_BLOCK / SUB, NMAX = 32 };
    float scale[SUBS];
    int8_t bits[SUBS];
    uint8_t code[K_BLOCK];
    for (int j = 0; j < SUBS; j++) scale[j] = search_symmetric(SUB, NMAX, x + j * SUB, code + j * SUB);
    const float largest = largest_of(scale, SUBS);
    memset(out, 0, (size_t)Q6_K_SHAPE.block_bytes);
    if (fabsf(largest) < 1e-15f) return;
    const float inverse = -128 / largest;
    const uint16_t d = half_from_float(1 / inverse);
    for (int j = 0; j < SUBS; j++)
        bits[j] = (int8_t)search_clamp(search_round(inverse * scale[j]), -128, 127);
    choose_codes_symmetric(x, NMAX, half_to_float(d), bits, code);
    for (int i = 0; i < K_BLOCK; i++)
        out[Q6_K_LOW + i / 128 * 64 + i % 64] |= (uint8_t)((code[i] & 15) << (i % 128 / 64 * 4));
    put_two_bits(code, 4, out + Q6_K_HIGH);
    memcpy(out + Q6_K_SCALES, bits, sizeof bits);
    store_u16(out + Q6_K_D, d);
}

static void iq4_xs_block(const float *x, uint8_t *out)
{
    enum { SUB = 32, SUBS = K_BLOCK / SUB };
    float scale[SUBS];
    for (int j = 0; j < SUBS; j++) scale[j] = search_codebook(SUB, x + j * SUB);
    const float d = -largest_of(scale, SUBS) / 32, inverse = d != 0 ? 1 / d : 0;
    unsigned high = 0;
    memset(out, 0, (size_t)IQ4_XS_SHAPE.block_bytes);
    for (int j = 0; j < SUBS; j++) {
        const int l = search_clamp(search_round(inverse * scale[j]), -32, 31);
        const float dl = d * (float)l, id = dl != 0 ? 1 / dl : 0;
        high |= (unsigned)((l + 32) >> 4) << (2 * j);
        out[IQ4_XS_SCALES_LOW + j / 2] |= (uint8_t)(((l + 32) & 15) << (j % 2 * 4));
        for (int i = 0; i < SUB; i++)
            out[IQ4_XS_CODES + j * 16 + i % 16] |= (uint8_t)(search_codebook_nearest(id * x[j * SUB + i])
                                                             << (i / 16 * 4));
    }
    store_u16(out + IQ4_XS_D, half_from_float(d));
    store_u16(out + IQ4_XS_SCALES_HIGH, (uint16_t)high);
}

/* ---------------------------------------------------------------- rows */

static void encode(const float *x, void *blocks, int64_t n, void (*block)(const float *, uint8_t *),
                   int bytes)
{
    uint8_t *out = blocks;
    for (int64_t k = 0; k < n; k += K_BLOCK, out += bytes) block(x + k, out);
}

void q2_k_encode_ref(const float *x, void *blocks, int64_t n)
{
    encode(x, blocks, n, q2_k_block, Q2_K_SHAPE.block_bytes);
}

void q3_k_encode_ref(const float *x, void *blocks, int64_t n)
{
    encode(x, blocks, n, q3_k_block, Q3_K_SHAPE.block_bytes);
}

void q4_k_encode_ref(const float *x, void *blocks, int64_t n)
{
    encode(x, blocks, n, q4_k_block, Q4_K_SHAPE.block_bytes);
}

void q5_k_encode_ref(const float *x, void *blocks, int64_t n)
{
    encode(x, blocks, n, q5_k_block, Q5_K_SHAPE.block_bytes);
}

void q6_k_encode_ref(const float *x, void *blocks, int64_t n)
{
    encode(x, blocks, n, q6_k_block, Q6_K_SHAPE.block_bytes);
}

void iq4_xs_encode_ref(const float *x, void *blocks, int64_t n)
{
    encode(x, blocks, n, iq4_xs_block, IQ4_XS_SHAPE.block_bytes);
}
