/* Reference encoders of the formats with blocks of 256 weights, with and without an importance matrix. The
 * bytes are those of ggml. This file searches the scale (and minimum) of one sub-block after the other;
 * store.h writes the block. */
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/kquants/store.h"

/* Search all sub-blocks of a block. importance: of the block's 256 columns, or NULL. */
typedef void search_fn(const float *x, const float *importance, struct k_found *s);

static float sum_of(const float *w, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += w[i];
    return sum;
}

/* Formats with minima. base: see search_weights. Without importance, the error weight of x is |x| (q2_K), or
 * |x| plus the root mean square of the sub-block (adds_mean). */
static void search_mins(const struct k_min_search *f, const float *x, const float *importance, float base,
                        struct k_found *s)
{
    const struct search_grid *grid = importance ? &f->important : &f->plain;
    for (int j = 0; j < K_BLOCK / f->sub; j++) {
        const float *v = x + j * f->sub;
        float w[SEARCH_MOST];
        if (importance) {
            search_weights(f->sub, v, importance + j * f->sub, base, w);
        } else {
            const float mean = f->adds_mean ? sqrtf(search_squares(f->sub, v) / (float)f->sub) : 0;
            for (int i = 0; i < f->sub; i++) w[i] = mean + fabsf(v[i]);
        }
        s->error_weight[j] = sum_of(w, f->sub);
        s->scale[j] = search_min(grid, f->sub, v, w, s->code + j * f->sub, &s->min[j]);
    }
}

static void q2_k_search(const float *x, const float *importance, struct k_found *s)
{
    search_mins(&Q2_K_SEARCH, x, importance, search_squares(K_BLOCK, x) / K_BLOCK, s);
}

static void q4_k_search(const float *x, const float *importance, struct k_found *s)
{
    search_mins(&Q4_K_SEARCH, x, importance, 2 * search_squares(K_BLOCK, x) / K_BLOCK, s);
}

static void q5_k_search(const float *x, const float *importance, struct k_found *s)
{
    search_mins(&Q5_K_SEARCH, x, importance, 2 * search_squares(K_BLOCK, x) / K_BLOCK, s);
}

static void q3_k_search(const float *x, const float *importance, struct k_found *s)
{
    enum { SUB = 16, NMAX = 4 };
    const float base = 2 * search_squares(K_BLOCK, x) / K_BLOCK;
    for (int j = 0; j < K_SUBS; j++) {
        const float *v = x + j * SUB;
        uint8_t *code = s->code + j * SUB;
        if (importance) {
            float w[SUB];
            search_weights(SUB, v, importance + j * SUB, base, w);
            s->error_weight[j] = sum_of(w, SUB);
            s->scale[j] = search_symmetric(SUB, NMAX, v, w, code);
        } else {
            s->scale[j] = search_symmetric_steps(SUB, NMAX, v, code);
        }
    }
}

static void q6_k_search(const float *x, const float *importance, struct k_found *s)
{
    enum { SUB = 16, NMAX = 32 };
    for (int j = 0; j < K_SUBS; j++)
        s->scale[j] = search_symmetric(SUB, NMAX, x + j * SUB, importance ? importance + j * SUB : NULL,
                                       s->code + j * SUB);
}

static void iq4_xs_search(const float *x, const float *importance, struct k_found *s)
{
    enum { SUB = 32 };
    const float base = 2 * search_squares(K_BLOCK, x) / K_BLOCK;
    for (int j = 0; j < K_BLOCK / SUB; j++) {
        float w[SUB];
        if (importance) search_weights(SUB, x + j * SUB, importance + j * SUB, base, w);
        s->scale[j] = search_codebook(SUB, x + j * SUB, importance ? w : NULL);
    }
}

static void encode_rows(const struct encode *e, search_fn *search, k_store_fn *store, int bytes)
{
    uint8_t *out = e->out;
    for (int64_t r = 0; r < e->rows; r++) {
        for (int64_t k = 0; k < e->cols; k += K_BLOCK, out += bytes) {
            const float *x = e->x + r * e->cols + k;
            struct k_found s;
            search(x, e->importance ? e->importance + k : NULL, &s);
            store(x, &s, e->importance != NULL, out);
        }
    }
}

#define FUNCTIONS(name, NAME)                                                                                \
    void name##_encode_rows_ref(const struct encode *e)                                                      \
    {                                                                                                        \
        encode_rows(e, name##_search, name##_store, NAME##_SHAPE.block_bytes);                               \
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
