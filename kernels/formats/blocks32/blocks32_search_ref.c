/* Reference encoders of blocks of 32 weights that search a scale: iq4_nl always, q4_0 q4_1 q5_0 q5_1 if
 * columns have an importance (otherwise they need no search). The bytes are those of ggml. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/store.h"
#include "kernels/formats/blocks32/blocks32.h"

enum { BLOCK = 32 };

/* Encode one block with error weights w (NULL: no importance). */
typedef void search_fn(const float *x, const float *w, struct b32_found *s);

static void q4_0_search(const float *x, const float *w, struct b32_found *s)
{
    s->scale = search_symmetric(BLOCK, 8, x, w, s->code);
}

static void q5_0_search(const float *x, const float *w, struct b32_found *s)
{
    s->scale = search_symmetric(BLOCK, 16, x, w, s->code);
}

static void q4_1_search(const float *x, const float *w, struct b32_found *s)
{
    s->scale = search_min(&Q4_1_GRID, BLOCK, x, w, s->code, &s->min);
}

static void q5_1_search(const float *x, const float *w, struct b32_found *s)
{
    s->scale = search_min(&Q5_1_GRID, BLOCK, x, w, s->code, &s->min);
}

/* Error weights use the mean square of the whole row. */
static void encode_rows(const struct encode *e, search_fn *search, b32_store_fn *store, int bytes)
{
    uint8_t *out = e->out;
    for (int64_t r = 0; r < e->rows; r++) {
        const float *x = e->x + r * e->cols, base = search_squares(e->cols, x) / (float)e->cols;
        for (int64_t k = 0; k < e->cols; k += BLOCK, out += bytes) {
            struct b32_found s;
            float w[BLOCK];
            search_weights(BLOCK, x + k, e->importance + k, base, w);
            search(x + k, w, &s);
            store(x + k, &s, out);
        }
    }
}

#define FUNCTION(name, NAME)                                                                                 \
    void name##_encode_rows_ref(const struct encode *e)                                                      \
    {                                                                                                        \
        if (e->importance)                                                                                   \
            encode_rows(e, name##_search, name##_store, NAME##_BYTES);                                       \
        else                                                                                                 \
            name##_encode_ref(e->x, e->out, e->rows * e->cols);                                              \
    }
FUNCTION(q4_0, Q4_0)
FUNCTION(q4_1, Q4_1)
FUNCTION(q5_0, Q5_0)
FUNCTION(q5_1, Q5_1)

/* Here error weights use twice the mean square of the block. */
void iq4_nl_encode_rows_ref(const struct encode *e)
{
    uint8_t *out = e->out;
    for (int64_t i = 0; i < e->rows * e->cols; i += BLOCK, out += IQ4_NL_BYTES) {
        const float *x = e->x + i;
        struct b32_found s;
        float w[BLOCK];
        if (e->importance)
            search_weights(BLOCK, x, e->importance + i % e->cols, search_squares(BLOCK, x) * (2.0f / BLOCK),
                           w);
        s.scale = search_codebook(BLOCK, x, e->importance ? w : NULL);
        iq4_nl_store(x, &s, out);
    }
}

void iq4_nl_encode_ref(const float *x, void *blocks, int64_t n)
{
    iq4_nl_encode_rows_ref(&(struct encode){ .x = x, .out = blocks, .rows = 1, .cols = n });
}
