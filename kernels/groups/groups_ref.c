/* Codes in groups with scale and zero point: rounding to nearest over the group's range, and the packing
 * through which other ways of choosing codes come here. */
#include <assert.h>

#include "kernels/blocks32/dot_ref.h"
#include "kernels/dot_ref.h"
#include "kernels/groups/groups.h"
#include "kernels/groups/layout.h"

struct group_shape {
    struct block_shape block;
    int bits, weights;
};

/* ---------------------------------------------------------------- packing */

static int code_at(const struct group_shape *s, const uint8_t *block, int i)
{
    const uint8_t *low = block + GROUP_CODES;
    if (s->bits == 8) return low[i];
    if (s->bits == 4) return low[i / 32 * GROUP_UNIT_BYTES + i % 16] >> 4 * (i % 32 / 16) & 15;
    const int code = low[i / 64 * GROUP_UNIT_BYTES + i % 16] >> 2 * (i % 64 / 16) & 3;
    return s->bits == 2 ? code : code | (block[GROUP_THIRD_BITS(s->weights) + i / 8] >> i % 8 & 1) << 2;
}

static void put_code(const struct group_shape *s, uint8_t *block, int i, int code)
{
    uint8_t *low = block + GROUP_CODES;
    assert(code >> s->bits == 0);
    if (s->bits == 8) {
        low[i] = (uint8_t)code;
        return;
    }
    if (s->bits == 4) {
        low[i / 32 * GROUP_UNIT_BYTES + i % 16] |= (uint8_t)(code << 4 * (i % 32 / 16));
        return;
    }
    low[i / 64 * GROUP_UNIT_BYTES + i % 16] |= (uint8_t)((code & 3) << 2 * (i % 64 / 16));
    if (s->bits == 3) block[GROUP_THIRD_BITS(s->weights) + i / 8] |= (uint8_t)((code >> 2) << i % 8);
}

static void pack(const struct group_shape *s, const struct group_codes *g, uint8_t *block)
{
    memset(block, 0, (size_t)s->block.bytes);
    store_u16(block, half_from_float(g->scale));
    store_u16(block + GROUP_ZERO, half_from_float(g->zero));
    for (int i = 0; i < s->weights; i++) put_code(s, block, i, g->code[i]);
}

/* ---------------------------------------------------------------- to nearest */

/* To nearest, ties to even: 1.5 * 2^23 leaves units of 1, rounded by the addition itself. What is far outside
 * every range (a scale may be at its limit) stays outside. */
static inline int round_even(float v)
{
    const float near = v < -1024 ? -1024 : v > 1024 ? 1024 : v;
    return (int)(bits_of(near + 12582912.0f) - bits_of(12582912.0f));
}

static inline uint8_t limit(int v, int most)
{
    return (uint8_t)(v < 0 ? 0 : v > most ? most : v);
}

/* AWQ's rule: integer zero point, scale from the range. The range takes in 0, as GPTQ's does, so that groups
 * on one side of it are not cut off; codes are chosen for the scale that is stored. */
static void nearest(const struct group_shape *s, const float *x, struct group_codes *g)
{
    const int most = (1 << s->bits) - 1;
    float low = 0, high = 0;
    for (int i = 0; i < s->weights; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    const float range = high - low, least = 1e-5f, largest = 65504;
    const float scale = (range > least ? range : least) / (float)most;
    g->scale = half_to_float(half_from_float(scale < largest ? scale : largest));
    const int zero = limit(round_even(-low / g->scale), most);
    g->zero = (float)zero;
    for (int i = 0; i < s->weights; i++) g->code[i] = limit(round_even(x[i] / g->scale) + zero, most);
}

static void encode(const struct group_shape *s, const float *x, uint8_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += s->weights, out += s->block.bytes) {
        struct group_codes g;
        nearest(s, x + i, &g);
        pack(s, &g, out);
    }
}

/* ---------------------------------------------------------------- reading */

static void group_part(const struct group_shape *s, const uint8_t *block, int part, struct part *out)
{
    out->d = half_to_float(load_u16(block)), out->m = group_min(block);
    for (int j = 0; j < PART; j++) out->code[j] = (int16_t)code_at(s, block, part * PART + j);
}

#define FUNCTIONS(name, NAME, bits, size)                                                                    \
    static const struct group_shape NAME = { { GROUP_BYTES(bits, size), (size) / PART, true }, bits, size }; \
    static void name##_part(const uint8_t *block, int part, struct part *out)                                \
    {                                                                                                        \
        group_part(&NAME, block, part, out);                                                                 \
    }                                                                                                        \
    void name##_encode_ref(const float *x, void *blocks, int64_t n)                                          \
    {                                                                                                        \
        encode(&NAME, x, blocks, n);                                                                         \
    }                                                                                                        \
    void name##_decode_ref(const void *blocks, float *x, int64_t n)                                          \
    {                                                                                                        \
        decode_parts(&NAME.block, name##_part, blocks, x, n);                                                \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        dot_f32_by_decoding(d, FORMAT_##NAME, name##_decode_ref);                                            \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        dot_q8_parts(&NAME.block, name##_part, d);                                                           \
    }
GROUP_FORMATS(FUNCTIONS)

#define ROW(name, NAME, bits, size)                                                                          \
    { FORMAT_##NAME, { .decode = name##_decode_ref, .dot_f32 = name##_dot_f32, .dot_q8 = name##_dot_q8 } },
const struct format_row GROUPS_REF[GROUPS_COUNT] = { GROUP_FORMATS(ROW) };

/* ---------------------------------------------------------------- codes from elsewhere */

static const struct group_shape *shape_of(const struct format *f)
{
    static const struct group_shape *const SHAPES[FORMAT_COUNT] = {
#define SHAPE(name, NAME, bits, size) [FORMAT_##NAME] = &NAME,
        GROUP_FORMATS(SHAPE)
    };
    return SHAPES[f - FORMATS];
}

int format_group_bits(const struct format *f)
{
    const struct group_shape *s = shape_of(f);
    return s ? s->bits : 0;
}

void format_group_pack(const struct format *f, const struct group_codes *g, void *block)
{
    const struct group_shape *s = shape_of(f);
    assert(s);
    pack(s, g, block);
}

void format_group_unpack(const struct format *f, const void *block, struct group_codes *g)
{
    const struct group_shape *s = shape_of(f);
    assert(s);
    g->scale = half_to_float(load_u16(block));
    g->zero = half_to_float(load_u16((const uint8_t *)block + GROUP_ZERO));
    for (int i = 0; i < s->weights; i++) g->code[i] = (uint8_t)code_at(s, block, i);
}
