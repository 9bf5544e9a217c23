/* kernels/isa/encode_lanes.h - encoders that search for scales, LANES sub-blocks at a time (search_lanes.h).
 * After an implementation of the lanes; the table goes to select.c.
 *
 * Sub-blocks are numbered through all rows: what is left over at the end takes lanes beside zeros. */
#ifndef QDYNO_KERNELS_ENCODE_LANES_H
#define QDYNO_KERNELS_ENCODE_LANES_H

#include "kernels/blocks32/layout.h"
#include "kernels/isa/search_lanes.h"
#include "kernels/kquants/store.h"

/* ---------------------------------------------------------------- to lanes and back */

/* n weights of each lane's sub-block, one behind the other, `have` sub-blocks. */
ALWAYS_INLINE void lanes_load(const float *x, const int n, int have, floats *out)
{
    float padded[LANES * SEARCH_MOST];
    if (have < LANES) {
        memset(padded, 0, sizeof padded);
        memcpy(padded, x, (size_t)(have * n) * sizeof *x);
        x = padded;
    }
    LANES_VECTORS.transpose(x, n, LANES, n, (float *)out, LANES);
}

/* The same of columns' importance, which begins anew with every row: sub-block i lies at weight at + i n. */
ALWAYS_INLINE void lanes_load_columns(const struct encode *e, int64_t at, const int n, int have, floats *out)
{
    float columns[LANES * SEARCH_MOST] = { 0 };
    for (int i = 0; i < have; i++)
        memcpy(columns + i * n, e->importance + (at + i * n) % e->cols, (size_t)n * sizeof *columns);
    LANES_VECTORS.transpose(columns, n, LANES, n, (float *)out, LANES);
}

/* Codes as bytes, one sub-block behind the other. */
ALWAYS_INLINE void lanes_store_codes(const floats *code, const int n, int have, uint8_t *out)
{
    float natural[LANES * SEARCH_MOST];
    LANES_VECTORS.transpose((const float *)code, LANES, n, LANES, natural, n);
    for (int i = 0; i < have * n; i++) out[i] = (uint8_t)(int)natural[i];
}

ALWAYS_INLINE void lanes_to_array(floats v, int have, float *out)
{
    float lane[LANES];
    memcpy(lane, &v, sizeof lane);
    memcpy(out, lane, (size_t)have * sizeof *out);
}

/* Sums of squares of `have` <= LANES runs of n weights (a multiple of 32), one behind the other. */
ALWAYS_INLINE void lanes_squares(const float *x, int64_t n, int have, float *out)
{
    floats sum = all(0), part[32];
    memset(part, 0, sizeof part);
    for (int64_t k = 0; k < n; k += 32) {
        LANES_VECTORS.transpose(x + k, n, have, 32, (float *)part, LANES);
        for (int i = 0; i < 32; i++) sum += part[i] * part[i];
    }
    lanes_to_array(sum, have, out);
}

/* ---------------------------------------------------------------- weights of errors */

/* As search_weights; base: by lane. */
ALWAYS_INLINE void lanes_weigh(struct lane_block *b, const int n, const floats *importance, floats base)
{
    for (int i = 0; i < n; i++) b->w[i] = importance[i] * root_of(base + b->x[i] * b->x[i]);
}

ALWAYS_INLINE void lanes_weigh_squares(struct lane_block *b, const int n)
{
    for (int i = 0; i < n; i++) b->w[i] = b->x[i] * b->x[i];
}

ALWAYS_INLINE floats lanes_sum(const floats *v, const int n)
{
    floats sum = all(0);
    for (int i = 0; i < n; i++) sum += v[i];
    return sum;
}

/* ---------------------------------------------------------------- blocks of 256 */

/* What a format searches for, with weights of errors where there is importance, else choosing its own. */
typedef void lanes_search_fn(struct lane_block *b, bool important);

struct k_encoder {
    int sub, bytes;
    float base_by;    /* of the mean square of a block in search_weights */
    bool plain_scale; /* importance itself weighs errors */
    lanes_search_fn *search;
    k_store_fn *store;
};

/* Sub-blocks from weight `at` of the matrix on, to place j of what is found. base: of each block of 256. */
ALWAYS_INLINE void k_search(const struct k_encoder *f, const struct encode *e, int64_t at, int have,
                            const float *base, struct k_found *s, int j)
{
    const int subs = K_BLOCK / f->sub;
    struct lane_block b;
    lanes_load(e->x + at, f->sub, have, b.x);
    if (e->importance && f->plain_scale) {
        lanes_load_columns(e, at, f->sub, have, b.w);
    } else if (e->importance) {
        floats importance[SEARCH_MOST], bases;
        float lane[LANES];
        for (int i = 0; i < LANES; i++) lane[i] = base[(j + i) / subs];
        memcpy(&bases, lane, sizeof bases);
        lanes_load_columns(e, at, f->sub, have, importance);
        lanes_weigh(&b, f->sub, importance, bases);
    }
    f->search(&b, e->importance != NULL);
    for (int i = 0; i < have; i += subs) { /* a block, or all there is */
        struct k_found *to = s + (j + i) / subs;
        const int from = (j + i) % subs, n = MIN(have - i, subs);
        float scale[LANES], min[LANES], heavy[LANES];
        lanes_to_array(b.scale, LANES, scale), lanes_to_array(b.min, LANES, min);
        lanes_to_array(lanes_sum(b.w, f->sub), LANES, heavy);
        memcpy(to->scale + from, scale + i, (size_t)n * sizeof *scale);
        memcpy(to->min + from, min + i, (size_t)n * sizeof *min);
        memcpy(to->heavy + from, heavy + i, (size_t)n * sizeof *heavy);
    }
    uint8_t code[LANES * SEARCH_MOST];
    lanes_store_codes(b.code, f->sub, have, code);
    for (int i = 0; i < have; i++)
        memcpy(s[(j + i) / subs].code + (j + i) % subs * f->sub, code + i * f->sub, (size_t)f->sub);
}

ALWAYS_INLINE void k_encode(const struct k_encoder *f, const struct encode *e)
{
    enum { CHUNK = LANES }; /* blocks whose mean squares are formed together */
    const int64_t blocks = e->rows * e->cols / K_BLOCK;
    const int subs = K_BLOCK / f->sub;
    struct k_found found[CHUNK];
    for (int64_t b = 0; b < blocks; b += CHUNK) {
        const int have = (int)MIN(blocks - b, (int64_t)CHUNK);
        const float *x = e->x + b * K_BLOCK;
        float base[CHUNK + 4] = { 0 };
        if (e->importance && !f->plain_scale) {
            lanes_squares(x, K_BLOCK, have, base);
            for (int i = 0; i < have; i++) base[i] = f->base_by * base[i] / K_BLOCK;
        }
        for (int j = 0; j < have * subs; j += LANES)
            k_search(f, e, b * K_BLOCK + (int64_t)j * f->sub, MIN(have * subs - j, (int)LANES), base, found,
                     j);
        for (int i = 0; i < have; i++)
            f->store(x + (int64_t)i * K_BLOCK, &found[i], e->importance != NULL, e->out + (b + i) * f->bytes);
    }
}

ALWAYS_INLINE void mins_search(struct lane_block *b, const struct k_min_search *f, bool important)
{
    if (!important) {
        floats mean = all(0);
        for (int i = 0; i < f->sub && f->adds_mean; i++) mean += b->x[i] * b->x[i];
        mean = root_of(mean / (float)f->sub);
        for (int i = 0; i < f->sub; i++) b->w[i] = mean + magnitude_of(b->x[i]);
    }
    lanes_search_min(b, f->sub, important ? &f->important : &f->plain);
}

static void q2_k_search(struct lane_block *b, bool important)
{
    mins_search(b, &Q2_K_SEARCH, important);
}

static void q4_k_search(struct lane_block *b, bool important)
{
    mins_search(b, &Q4_K_SEARCH, important);
}

static void q5_k_search(struct lane_block *b, bool important)
{
    mins_search(b, &Q5_K_SEARCH, important);
}

static void q3_k_search(struct lane_block *b, bool important)
{
    b->min = all(0);
    if (important) {
        lanes_search_symmetric(b, 16, 4);
    } else {
        lanes_weigh_squares(b, 16);
        lanes_search_symmetric_steps(b, 16, 4);
    }
}

static void q6_k_search(struct lane_block *b, bool important)
{
    b->min = all(0);
    if (!important) lanes_weigh_squares(b, 16);
    lanes_search_symmetric(b, 16, 32);
}

static void iq4_xs_search(struct lane_block *b, bool important)
{
    b->min = all(0);
    if (!important) lanes_weigh_squares(b, 32);
    lanes_search_codebook(b, 32);
    memset(b->code, 0, sizeof b->code); /* chosen when the scale is stored */
}

/* name, NAME, sub, base_by, plain_scale */
#define K_FUNCTION(name, NAME, sub, base_by, plain_scale)                                                    \
    static void name##_encode(const struct encode *e)                                                        \
    {                                                                                                        \
        static const struct k_encoder ENCODER = { sub,         K_BYTES_##NAME, base_by,                      \
                                                  plain_scale, name##_search,  name##_store };               \
        k_encode(&ENCODER, e);                                                                               \
    }
enum {
    K_BYTES_Q2_K = 84,
    K_BYTES_Q3_K = 110,
    K_BYTES_Q4_K = 144,
    K_BYTES_Q5_K = 176,
    K_BYTES_Q6_K = 210,
    K_BYTES_IQ4_XS = 136
};
K_FUNCTION(q2_k, Q2_K, 16, 1, false)
K_FUNCTION(q3_k, Q3_K, 16, 2, false)
K_FUNCTION(q4_k, Q4_K, 32, 2, false)
K_FUNCTION(q5_k, Q5_K, 32, 2, false)
K_FUNCTION(q6_k, Q6_K, 16, 0, true)
K_FUNCTION(iq4_xs, IQ4_XS, 32, 2, false)

const struct format_row LANES_TABLE(ENCODERS)[ENCODER_COUNT] = {
    { FORMAT_Q2_K, { .encode = q2_k_encode } }, { FORMAT_Q3_K, { .encode = q3_k_encode } },
    { FORMAT_Q4_K, { .encode = q4_k_encode } }, { FORMAT_Q5_K, { .encode = q5_k_encode } },
    { FORMAT_Q6_K, { .encode = q6_k_encode } }, { FORMAT_IQ4_XS, { .encode = iq4_xs_encode } },
};

#endif
