/* The 256-weight formats, encoding as ggml does it, with and without an importance matrix, to the same bytes:
 * search a scale (and minimum) for each sub-block, store those in a few bits, then choose every code anew
 * under what was stored. A sub-block whose stored scale is zero keeps the search's codes. With importance,
 * sub-blocks' scales are searched for in their turn, each as heavy as its weights together. */
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

/* values >= 0 as integers 0..top of *d. heavy: how heavy each is, where that counts (else NULL). */
static void scales_to_bits(const float *values, const float *heavy, int n, int top, uint8_t *bits,
                           uint16_t *d)
{
    if (heavy) {
        *d = half_from_float(search_positive(n, top, values, heavy, bits));
        return;
    }
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

/* How the family's formats differ in their search. */
struct min_search {
    int sub, top; /* weights of a sub-block, largest scale or minimum as it is stored */
    struct search_grid plain, important;
    float per_square; /* what the mean square is multiplied by, with importance: in ggml's order, sum first */
};

static float sum_of(const float *w, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += w[i];
    return sum;
}

/* Weights of errors without importance: q2_K takes magnitudes, the others add the root mean square. */
static void plain_weights(int n, const float *x, float base, float *w)
{
    for (int i = 0; i < n; i++) w[i] = base + fabsf(x[i]);
}

/* Everything but where the bits go. */
static void search_block(const struct min_search *f, const float *x, const float *importance, uint16_t *d,
                         uint16_t *dmin, struct sub_blocks *s)
{
    const int subs = K_BLOCK / f->sub;
    const struct search_grid *grid = importance ? &f->important : &f->plain;
    const float base = importance ? f->per_square * search_squares(K_BLOCK, x) / K_BLOCK : 0;
    float heavy[K_SUBS], w[SEARCH_MOST];
    for (int j = 0; j < subs; j++) {
        const float *v = x + j * f->sub;
        if (importance)
            search_weights(f->sub, v, importance + j * f->sub, base, w);
        else
            plain_weights(f->sub, v, f->sub == 32 ? sqrtf(search_squares(f->sub, v) / 32) : 0, w);
        heavy[j] = sum_of(w, f->sub);
        s->scale[j] = search_min(grid, f->sub, v, w, s->code + j * f->sub, &s->min[j]);
    }
    scales_to_bits(s->scale, importance ? heavy : NULL, subs, f->top, s->scale_bits, d);
    scales_to_bits(s->min, importance ? heavy : NULL, subs, f->top, s->min_bits, dmin);
    choose_codes_min(x, f->sub, grid->nmax, *d, *dmin, s);
}

static void q2_k_block(const float *x, const float *importance, uint8_t *out)
{
    static const struct min_search SEARCH = {
        16, 15, { 3, -0.5f, 0.1f, 15, false }, { 3, -0.9f, 0.05f, 36, true }, 1
    };
    struct sub_blocks s;
    uint16_t d, dmin;
    search_block(&SEARCH, x, importance, &d, &dmin, &s);
    for (int j = 0; j < K_BLOCK / SEARCH.sub; j++)
        out[Q2_K_SCALES + j] = (uint8_t)(s.scale_bits[j] | s.min_bits[j] << 4);
    put_two_bits(s.code, 0, out + Q2_K_CODES);
    store_u16(out + Q2_K_D, d);
    store_u16(out + Q2_K_DMIN, dmin);
}

/* All of q4_K and q5_K but the codes. */
static void q45_k_block(const struct min_search *f, const float *x, const float *importance, uint8_t *out,
                        struct sub_blocks *s)
{
    uint16_t d, dmin;
    search_block(f, x, importance, &d, &dmin, s);
    store_u16(out + Q4_K_D, d);
    store_u16(out + Q4_K_DMIN, dmin);
    uint8_t *b = out + Q4_K_SCALES;
    const uint8_t *sc = s->scale_bits, *mn = s->min_bits;
    for (int j = 0; j < 4; j++) {
        b[j] = (uint8_t)(sc[j] | sc[j + 4] >> 4 << 6);
        b[j + 4] = (uint8_t)(mn[j] | mn[j + 4] >> 4 << 6);
        b[j + 8] = (uint8_t)((sc[j + 4] & 15) | (mn[j + 4] & 15) << 4);
    }
}

static void q4_k_block(const float *x, const float *importance, uint8_t *out)
{
    static const struct min_search SEARCH = {
        32, 63, { 15, -1, 0.1f, 20, true }, { 15, -0.9f, 0.05f, 36, true }, 2
    };
    struct sub_blocks s;
    q45_k_block(&SEARCH, x, importance, out, &s);
    put_four_bits(s.code, out + Q4_K_CODES);
}

static void q5_k_block(const float *x, const float *importance, uint8_t *out)
{
    static const struct min_search SEARCH = {
        32, 63, { 31, -0.5f, 0.1f, 15, true }, { 31, -0.9f, 0.05f, 36, true }, 2
    };
    struct sub_blocks s;
    q45_k_block(&SEARCH, x, importance, out, &s);
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

/* The twelve bytes that hold sixteen six-bit scales. */
static void q3_k_store_scales(const int8_t *bits, uint8_t *b)
{
    memset(b, 0, 12);
    for (int j = 0; j < K_SUBS; j++) {
        const int u = bits[j] + 32;
        b[j % 8] |= (uint8_t)((u & 15) << (j / 8 * 4));
        b[8 + j % 4] |= (uint8_t)(u >> 4 << (j / 4 * 2));
    }
}

/* Sixteen signed scales as integers -32..31; returns what they are multiplied by. */
static float q3_k_scales_to_bits(const float *scale, int8_t *bits)
{
    const float largest = largest_of(scale, K_SUBS), inverse = largest != 0 ? -32 / largest : 0;
    for (int j = 0; j < K_SUBS; j++) {
        bits[j] = (int8_t)search_clamp(search_round(inverse * scale[j]), -32, 31);
        if (largest == 0) bits[j] = -32; /* all scale bytes zero */
    }
    return largest != 0 ? 1 / inverse : 0;
}

static void q3_k_block(const float *x, const float *importance, uint8_t *out)
{
    enum { SUB = 16, NMAX = 4 };
    float scale[K_SUBS], heavy[K_SUBS], w[SUB], d;
    int8_t bits[K_SUBS];
    uint8_t code[K_BLOCK], unsigned_bits[K_SUBS];
    const float base = importance ? 2 * search_squares(K_BLOCK, x) / K_BLOCK : 0;
    for (int j = 0; j < K_SUBS; j++) {
        if (importance) {
            search_weights(SUB, x + j * SUB, importance + j * SUB, base, w);
            heavy[j] = sum_of(w, SUB);
            scale[j] = search_symmetric(SUB, NMAX, x + j * SUB, w, code + j * SUB);
        } else {
            scale[j] = search_symmetric_steps(SUB, NMAX, x + j * SUB, code + j * SUB);
        }
    }
    if (importance) {
        d = search_symmetric(K_SUBS, 32, scale, heavy, unsigned_bits);
        for (int j = 0; j < K_SUBS; j++) bits[j] = (int8_t)(unsigned_bits[j] - 32);
    } else {
        d = q3_k_scales_to_bits(scale, bits);
    }
    const uint16_t stored = half_from_float(d);
    q3_k_store_scales(bits, out + Q3_K_SCALES);
    choose_codes_symmetric(x, NMAX, half_to_float(stored), bits, code);
    put_plane(code, 2, out + Q3_K_HIGH);
    put_two_bits(code, 0, out + Q3_K_CODES);
    store_u16(out + Q3_K_D, stored);
}

static void q6_k_block(const float *x, const float *importance, uint8_t *out)
{
    enum { SUB = 16, SUBS = K_BLOCK / SUB, NMAX = 32 };
    float scale[SUBS];
    int8_t bits[SUBS];
    uint8_t code[K_BLOCK];
    for (int j = 0; j < SUBS; j++)
        scale[j] = search_symmetric(SUB, NMAX, x + j * SUB, importance ? importance + j * SUB : NULL,
                                    code + j * SUB);
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

static void iq4_xs_block(const float *x, const float *importance, uint8_t *out)
{
    enum { SUB = 32, SUBS = K_BLOCK / SUB };
    float scale[SUBS], w[SUB];
    const float base = importance ? 2 * search_squares(K_BLOCK, x) / K_BLOCK : 0;
    for (int j = 0; j < SUBS; j++) {
        if (importance) search_weights(SUB, x + j * SUB, importance + j * SUB, base, w);
        scale[j] = search_codebook(SUB, x + j * SUB, importance ? w : NULL);
    }
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

typedef void block_fn(const float *x, const float *importance, uint8_t *out);

static void encode_rows(const struct encode *e, block_fn *block, int bytes)
{
    uint8_t *out = e->out;
    for (int64_t r = 0; r < e->rows; r++)
        for (int64_t k = 0; k < e->cols; k += K_BLOCK, out += bytes)
            block(e->x + r * e->cols + k, e->importance ? e->importance + k : NULL, out);
}

#define FUNCTIONS(name, NAME)                                                                                \
    void name##_encode_rows_ref(const struct encode *e)                                                      \
    {                                                                                                        \
        encode_rows(e, name##_block, NAME##_SHAPE.block_bytes);                                              \
    }                                                                                                        \
    void name##_encode_ref(const float *x, void *blocks, int64_t n)                                          \
    {                                                                                                        \
        name##_encode_rows_ref(&(struct encode){ .x = x, .out = blocks, .rows = 1, .cols = n });             \
    }
FUNCTIONS(q2_k, Q2_K)
FUNCTIONS(q3_k, Q3_K)
FUNCTIONS(q4_k, Q4_K)
FUNCTIONS(q5_k, Q5_K)
FUNCTIONS(q6_k, Q6_K)
FUNCTIONS(iq4_xs, IQ4_XS)
