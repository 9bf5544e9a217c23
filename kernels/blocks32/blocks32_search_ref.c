/* Blocks of 32 weights whose scales are searched for: q4_0 q4_1 q5_0 q5_1 where columns have an importance
 * (else their encoders are one division), iq4_nl always. Bytes are ggml's. */
#include "kernels/blocks32/blocks32.h"
#include "kernels/blocks32/layout.h"
#include "kernels/kquants/search.h"
#include "kernels/q4_0/q4_0.h"

enum { BLOCK = 32, Q4_0_CODES = 2, Q4_0_BYTES = 18 };

/* One block, its weights' errors as heavy as w (NULL: no importance). */
typedef void block_fn(const float *x, const float *w, uint8_t *out);

static void q4_0_block(const float *x, const float *w, uint8_t *out)
{
    uint8_t code[BLOCK];
    store_u16(out, half_from_float(search_symmetric(BLOCK, 8, x, w, code)));
    nibbles_store(out + Q4_0_CODES, code);
}

static void q5_0_block(const float *x, const float *w, uint8_t *out)
{
    uint8_t code[BLOCK];
    store_u16(out, half_from_float(search_symmetric(BLOCK, 16, x, w, code)));
    fifths_store(out + Q5_0_HIGH, code);
    nibbles_store(out + Q5_0_CODES, code);
}

/* Scale and minimum to the front of the block. */
static void search_line(int nmax, const float *x, const float *w, uint8_t *out, uint8_t *code)
{
    const struct search_grid grid = { nmax, -0.9f, 0.05f, 36, true };
    float min;
    store_u16(out, half_from_float(search_min(&grid, BLOCK, x, w, code, &min)));
    store_u16(out + Q4_1_MIN, half_from_float(-min));
}

static void q4_1_block(const float *x, const float *w, uint8_t *out)
{
    uint8_t code[BLOCK];
    search_line(15, x, w, out, code);
    nibbles_store(out + Q4_1_CODES, code);
}

static void q5_1_block(const float *x, const float *w, uint8_t *out)
{
    uint8_t code[BLOCK];
    search_line(31, x, w, out, code);
    fifths_store(out + Q5_1_HIGH, code);
    nibbles_store(out + Q5_1_CODES, code);
}

static void iq4_nl_block(const float *x, const float *w, uint8_t *out)
{
    const float d = search_codebook(BLOCK, x, w), inverse = d != 0 ? 1 / d : 0;
    uint8_t code[BLOCK];
    store_u16(out, half_from_float(d));
    search_codebook_codes(BLOCK, x, inverse, code);
    nibbles_store(out + IQ4_NL_CODES, code);
}

void iq4_nl_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i += BLOCK, out += IQ4_NL_BYTES) iq4_nl_block(x + i, NULL, out);
}

/* Surroundings are the whole row. */
static void encode_rows(const struct encode *e, block_fn *block, int bytes)
{
    uint8_t *out = e->out;
    for (int64_t r = 0; r < e->rows; r++) {
        const float *x = e->x + r * e->cols, base = search_squares(e->cols, x) / (float)e->cols;
        for (int64_t k = 0; k < e->cols; k += BLOCK, out += bytes) {
            float w[BLOCK];
            search_weights(BLOCK, x + k, e->importance + k, base, w);
            block(x + k, w, out);
        }
    }
}

#define FUNCTION(name, NAME)                                                                                 \
    void name##_encode_rows_ref(const struct encode *e)                                                      \
    {                                                                                                        \
        if (e->importance)                                                                                   \
            encode_rows(e, name##_block, NAME##_BYTES);                                                      \
        else                                                                                                 \
            name##_encode_ref(e->x, e->out, e->rows * e->cols);                                              \
    }
FUNCTION(q4_0, Q4_0)
FUNCTION(q4_1, Q4_1)
FUNCTION(q5_0, Q5_0)
FUNCTION(q5_1, Q5_1)

/* And here the block itself, its mean square doubled. */
void iq4_nl_encode_rows_ref(const struct encode *e)
{
    if (!e->importance) {
        iq4_nl_encode_ref(e->x, e->out, e->rows * e->cols);
        return;
    }
    uint8_t *out = e->out;
    for (int64_t i = 0; i < e->rows * e->cols; i += BLOCK, out += IQ4_NL_BYTES) {
        float w[BLOCK];
        search_weights(BLOCK, e->x + i, e->importance + i % e->cols,
                       search_squares(BLOCK, e->x + i) * (2.0f / BLOCK), w);
        iq4_nl_block(e->x + i, w, out);
    }
}
