/* Groups with scale and zero point, reference: rounding to nearest over the range of a group, and packing of
 * codes that the caller chose. */
#include <assert.h>

#include "kernels/isa/gemv/block_dot_ref.h"
#include "kernels/isa/gemv/dot_ref.h"
#include "kernels/formats/groups/encode.h"

struct group_shape {
    struct block_shape block;
    int bits, weights;
};

static int code_at(const struct group_shape *s, const uint8_t *block, int i)
{
    const uint8_t *low = block + GROUP_CODES;
    if (s->bits == 8) return low[i];
    if (s->bits == 4) return low[i / 32 * GROUP_UNIT_BYTES + i % 16] >> 4 * (i % 32 / 16) & 15;
    const int code = low[i / 64 * GROUP_UNIT_BYTES + i % 16] >> 2 * (i % 64 / 16) & 3;
    return s->bits == 2 ? code : code | (block[GROUP_THIRD_BITS(s->weights) + i / 8] >> i % 8 & 1) << 2;
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
        group_encode(x, bits, size, blocks, n);                                                              \
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
    for (int i = 0; i < s->weights; i++) assert(g->code[i] >> s->bits == 0);
    group_pack(g, s->bits, s->weights, block);
}

void format_group_unpack(const struct format *f, const void *block, struct group_codes *g)
{
    const struct group_shape *s = shape_of(f);
    assert(s);
    g->scale = half_to_float(load_u16(block));
    g->zero = half_to_float(load_u16((const uint8_t *)block + GROUP_ZERO));
    for (int i = 0; i < s->weights; i++) g->code[i] = (uint8_t)code_at(s, block, i);
}
