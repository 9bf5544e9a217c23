/* kernels/formats/blocks32/store.h - writes a block of 32 weights after the search for its scale: scale,
 * minimum and codes. The reference and the encoders of every instruction set use it. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS32_STORE_H
#define QDYNO_KERNELS_FORMATS_BLOCKS32_STORE_H

#include "kernels/formats/blocks32/layout.h"
#include "kernels/formats/kquants/search.h"

/* The result of the search: x ~ scale * (code - bias) or scale * code - min. */
struct b32_found {
    float scale, min;
    uint8_t code[32];
};
typedef void b32_store_fn(const float *x, struct b32_found *s, uint8_t *out);

static inline void q4_0_store(const float *x, struct b32_found *s, uint8_t *out)
{
    (void)x;
    store_u16(out, half_from_float(s->scale));
    nibbles_store(out + Q4_0_CODES, s->code);
}

static inline void q5_0_store(const float *x, struct b32_found *s, uint8_t *out)
{
    (void)x;
    store_u16(out, half_from_float(s->scale));
    fifths_store(out + Q5_0_HIGH, s->code);
    nibbles_store(out + Q5_0_CODES, s->code);
}

static inline void q4_1_store(const float *x, struct b32_found *s, uint8_t *out)
{
    (void)x;
    store_u16(out, half_from_float(s->scale));
    store_u16(out + Q4_1_MIN, half_from_float(-s->min));
    nibbles_store(out + Q4_1_CODES, s->code);
}

static inline void q5_1_store(const float *x, struct b32_found *s, uint8_t *out)
{
    (void)x;
    store_u16(out, half_from_float(s->scale));
    store_u16(out + Q5_1_MIN, half_from_float(-s->min));
    fifths_store(out + Q5_1_HIGH, s->code);
    nibbles_store(out + Q5_1_CODES, s->code);
}

/* The search yields the scale only; codes are chosen here. */
static inline void iq4_nl_store(const float *x, struct b32_found *s, uint8_t *out)
{
    store_u16(out, half_from_float(s->scale));
    search_codebook_codes(32, x, s->scale != 0 ? 1 / s->scale : 0, s->code);
    nibbles_store(out + IQ4_NL_CODES, s->code);
}

/* Parameters of search_min for q4_1 and q5_1; the values are ggml's. */
static const struct search_grid
    Q4_1_GRID = { .nmax = 15, .rmin = -0.9f, .rdelta = 0.05f, .steps = 36, .squared = true },
    Q5_1_GRID = { .nmax = 31, .rmin = -0.9f, .rdelta = 0.05f, .steps = 36, .squared = true };

#endif
