/* kernels/isa/encode/encode_lanes.h - encoders that search for scales, LANES sub-blocks at a time
 * (search_lanes.h). Include an implementation of the lanes first; the table goes to select.c.
 *
 * Sub-blocks are numbered through all rows. The last ones share a vector with lanes of zeros. */
#ifndef QDYNO_KERNELS_ISA_ENCODE_ENCODE_LANES_H
#define QDYNO_KERNELS_ISA_ENCODE_ENCODE_LANES_H

#include "kernels/isa/encode/encode_plain.h"
#include "kernels/isa/encode/search_lanes.h"
#include "kernels/formats/kquants/store.h"

/* ---------------------------------------------------------------- to lanes and back */

/* Load n weights of each of `have` consecutive sub-blocks, one sub-block per lane. */
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

/* The same for the importance of columns, which repeats with every row; sub-block i starts at weight at + i
 * n. */
ALWAYS_INLINE void lanes_load_columns(const struct encode *e, int64_t at, const int n, int have, floats *out)
{
    float columns[LANES * SEARCH_MOST] = { 0 };
    for (int i = 0; i < have; i++)
        memcpy(columns + i * n, e->importance + (at + i * n) % e->cols, (size_t)n * sizeof *columns);
    LANES_VECTORS.transpose(columns, n, LANES, n, (float *)out, LANES);
}

/* Store codes as bytes, one sub-block after the other. */
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

/* ---------------------------------------------------------------- error weights */

/* search_weights for all lanes; base: of the sub-block in each lane. */
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

/* The search of a format, with error weights from importance, or with its own error weights. */
typedef void lanes_search_fn(struct lane_block *b, bool important);

struct k_encoder {
    int sub, bytes;
    float base_by;    /* base of search_weights, in mean squares of the block */
    bool plain_scale; /* error weights are the importance itself, without search_weights */
    lanes_search_fn *search;
    k_store_fn *store;
};

/* Search `have` sub-blocks from weight `at` of the matrix on. Results go to place j, counted in sub-blocks of
 * s. base[i]: of search_weights in block i of s. */
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
    for (int i = 0; i < have; i += subs) { /* copy the results of one block, or of fewer sub-blocks */
        struct k_found *to = s + (j + i) / subs;
        const int from = (j + i) % subs, n = MIN(have - i, subs);
        float scale[LANES], min[LANES], error_weight[LANES];
        lanes_to_array(b.scale, LANES, scale), lanes_to_array(b.min, LANES, min);
        lanes_to_array(lanes_sum(b.w, f->sub), LANES, error_weight);
        memcpy(to->scale + from, scale + i, (size_t)n * sizeof *scale);
        memcpy(to->min + from, min + i, (size_t)n * sizeof *min);
        memcpy(to->error_weight + from, error_weight + i, (size_t)n * sizeof *error_weight);
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

/* Also for iq4_nl. */
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

/* ---------------------------------------------------------------- blocks of 32 */

struct b32_encoder {
    int bytes;
    bool row_base; /* the mean square of the row is the base of the weights, else twice that of the block */
    lanes_search_fn *search;
    b32_store_fn *store;
};

/* Encode `have` blocks from weight `at` of the matrix on. base: of search_weights for the row of each block.
 */
ALWAYS_INLINE void b32_encode_lanes(const struct b32_encoder *f, const struct encode *e, int64_t at, int have,
                                    floats base)
{
    enum { BLOCK = 32 };
    struct lane_block b;
    lanes_load(e->x + at, BLOCK, have, b.x);
    if (e->importance) {
        floats importance[BLOCK], squares = all(0);
        for (int i = 0; i < BLOCK; i++) squares += b.x[i] * b.x[i];
        lanes_load_columns(e, at, BLOCK, have, importance);
        lanes_weigh(&b, BLOCK, importance, f->row_base ? base : squares * (2.0f / BLOCK));
    }
    f->search(&b, e->importance != NULL);
    float scale[LANES], min[LANES];
    uint8_t code[LANES * BLOCK];
    lanes_to_array(b.scale, LANES, scale), lanes_to_array(b.min, LANES, min);
    lanes_store_codes(b.code, BLOCK, have, code);
    for (int i = 0; i < have; i++) {
        struct b32_found s = { .scale = scale[i], .min = min[i] };
        memcpy(s.code, code + i * BLOCK, BLOCK);
        f->store(e->x + at + i * BLOCK, &s, e->out + (at / BLOCK + i) * f->bytes);
    }
}

/* Process LANES rows at a time, so that their mean squares are computed together. */
ALWAYS_INLINE void b32_encode(const struct b32_encoder *f, const struct encode *e)
{
    const int64_t of_row = e->cols / 32;
    for (int64_t r = 0; r < e->rows; r += LANES) {
        const int rows = (int)MIN(e->rows - r, (int64_t)LANES);
        float base[LANES] = { 0 };
        if (e->importance && f->row_base) {
            lanes_squares(e->x + r * e->cols, e->cols, rows, base);
            for (int i = 0; i < rows; i++) base[i] = base[i] / (float)e->cols;
        }
        for (int64_t j = 0; j < rows * of_row; j += LANES) {
            const int have = (int)MIN(rows * of_row - j, (int64_t)LANES);
            float lane[LANES] = { 0 };
            floats bases;
            for (int i = 0; i < have; i++) lane[i] = base[(j + i) / of_row];
            memcpy(&bases, lane, sizeof bases);
            b32_encode_lanes(f, e, r * e->cols + j * 32, have, bases);
        }
    }
}

static void q4_0_search(struct lane_block *b, bool important)
{
    (void)important;
    b->min = all(0);
    lanes_search_symmetric(b, 32, 8);
}

static void q5_0_search(struct lane_block *b, bool important)
{
    (void)important;
    b->min = all(0);
    lanes_search_symmetric(b, 32, 16);
}

static void q4_1_search(struct lane_block *b, bool important)
{
    (void)important;
    lanes_search_min(b, 32, &Q4_1_GRID);
}

static void q5_1_search(struct lane_block *b, bool important)
{
    (void)important;
    lanes_search_min(b, 32, &Q5_1_GRID);
}

/* These formats search only if columns have an importance. Without it, ggml rounds, and so does the plain
 * encoder. */
#define B32_FUNCTION(name, NAME)                                                                             \
    static void name##_encode(const struct encode *e)                                                        \
    {                                                                                                        \
        static const struct b32_encoder ENCODER = { NAME##_BYTES, true, name##_search, name##_store };       \
        if (e->importance)                                                                                   \
            b32_encode(&ENCODER, e);                                                                         \
        else                                                                                                 \
            name##_encode_plain(e);                                                                          \
    }
B32_FUNCTION(q4_0, Q4_0)
B32_FUNCTION(q4_1, Q4_1)
B32_FUNCTION(q5_0, Q5_0)
B32_FUNCTION(q5_1, Q5_1)

static void iq4_nl_encode(const struct encode *e)
{
    static const struct b32_encoder ENCODER = { IQ4_NL_BYTES, false, iq4_xs_search, iq4_nl_store };
    b32_encode(&ENCODER, e);
}

/* Rows of the table: FORMAT_##NAME, encoded by the functions called name##_encode or name##_encode_plain. */
#define SEARCHED(name, NAME)               { FORMAT_##NAME, { .encode = name##_encode } },
#define PLAIN(name, NAME)                  { FORMAT_##NAME, { .encode = name##_encode_plain } },
#define LISTED_PLAIN(name, NAME, one, two) PLAIN(name, NAME)
const struct format_row LANES_TABLE(ENCODERS)[ENCODER_COUNT] = {
    SEARCHED(q4_0, Q4_0) SEARCHED(q4_1, Q4_1) SEARCHED(q5_0, Q5_0) SEARCHED(q5_1, Q5_1) SEARCHED(q2_k, Q2_K)
        SEARCHED(q3_k, Q3_K) SEARCHED(q4_k, Q4_K) SEARCHED(q5_k, Q5_K) SEARCHED(q6_k, Q6_K)
            SEARCHED(iq4_nl, IQ4_NL) SEARCHED(iq4_xs, IQ4_XS) PLAIN(f16, F16) PLAIN(bf16, BF16)
                PLAIN(q8_0, Q8_0) PLAIN(mxfp4, MXFP4) PLAIN(int8, INT8) PLAIN(fp8_e4m3, FP8_E4M3)
                    PLAIN(fp8_e5m2, FP8_E5M2) GROUP_FORMATS(LISTED_PLAIN)
};

#endif
