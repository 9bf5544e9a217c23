/* kernels/formats/kquants/layout.h - where a block of 256 weights keeps what, for every kernel of the family.
 *
 * All six formats say the same thing in different bits: weight i = scale[j] * (code[i] - bias) - min[j], with
 * j = i / sub, scale[j] = d * (a small integer), min[j] = dmin * (a small integer, where the format has
 * minima). So a format supplies its shape, its integer scales (portable, below: a few shifts of 64-bit words)
 * and, per instruction set, its codes as bytes in natural order. The rest is written once. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_LAYOUT_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_LAYOUT_H

#include "kernels/half.h"
#include "kernels/kernel_set.h"

enum { K_BLOCK = 256, K_SUBS = 16 /* sub-blocks at most */ };

struct k_shape {
    int block_bytes;
    int sub;  /* weights that share a scale: 16 or 32 */
    int bias; /* a code, always unsigned here, is too large by this */
    bool has_min;
    float unit; /* a power of two by which d is multiplied */
};

static const struct k_shape Q2_K_SHAPE = { 84, 16, 0, true, 1 }, Q3_K_SHAPE = { 110, 16, 4, false, 1 },
                            Q4_K_SHAPE = { 144, 32, 0, true, 1 }, Q5_K_SHAPE = { 176, 32, 0, true, 1 },
                            Q6_K_SHAPE = { 210, 16, 32, false, 1 }, IQ4_XS_SHAPE = { 136, 32, 128, false, 1 };

/* Whether sums of half a block's products of codes with activations exceed 16 bits (see struct q8_group). */
static inline bool k_wide(const struct k_shape *shape)
{
    return shape->bias >= 64;
}

/* Byte offsets. */
enum {
    Q2_K_SCALES = 0,
    Q2_K_CODES = 16,
    Q2_K_D = 80,
    Q2_K_DMIN = 82,
    Q3_K_HIGH = 0,
    Q3_K_CODES = 32,
    Q3_K_SCALES = 96,
    Q3_K_D = 108,
    Q4_K_D = 0, /* these four for q5_K, too */
    Q4_K_DMIN = 2,
    Q4_K_SCALES = 4,
    Q4_K_CODES = 16,
    Q5_K_HIGH = 16,
    Q5_K_CODES = 48,
    Q6_K_LOW = 0,
    Q6_K_HIGH = 128,
    Q6_K_SCALES = 192,
    Q6_K_D = 208,
    IQ4_XS_D = 0,
    IQ4_XS_SCALES_HIGH = 2,
    IQ4_XS_SCALES_LOW = 4,
    IQ4_XS_CODES = 8,
};

/* iq4_nl's and iq4_xs's sixteen values. */
#define IQ4_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

/* Signed bytes, the first in the lowest bits; 8 or 16 of them as the shape says. */
struct k_scales {
    uint16_t d, dmin; /* f16 */
    uint64_t scale[2], min[2];
};
typedef void k_scales_fn(const uint8_t *block, struct k_scales *s);

static inline uint32_t k_load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t k_load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t k_bytes(uint8_t b)
{
    return 0x0101010101010101u * b;
}

/* u - 32 in every byte, u < 64: the top bit keeps borrows from leaving a byte. */
static inline uint64_t k_minus_32(uint64_t u)
{
    return ((u | k_bytes(0x80)) - k_bytes(0x20)) ^ k_bytes(0x80);
}

static inline void q2_k_scales(const uint8_t *block, struct k_scales *s)
{
    s->d = load_u16(block + Q2_K_D), s->dmin = load_u16(block + Q2_K_DMIN);
    for (int i = 0; i < 2; i++) {
        const uint64_t both = k_load_u64(block + Q2_K_SCALES + 8 * i);
        s->scale[i] = both & k_bytes(15), s->min[i] = both >> 4 & k_bytes(15);
    }
}

static inline void q3_k_scales(const uint8_t *block, struct k_scales *s)
{
    const uint64_t low = k_load_u64(block + Q3_K_SCALES), high = k_load_u32(block + Q3_K_SCALES + 8);
    /* Each byte of `high` holds the upper two bits of scales j, j + 4, j + 8, j + 12. */
    const uint64_t first = (high | high << 30) & k_bytes(3), second = (high >> 4 | high << 26) & k_bytes(3);
    s->d = load_u16(block + Q3_K_D), s->dmin = 0;
    s->scale[0] = k_minus_32((low & k_bytes(15)) | first << 4);
    s->scale[1] = k_minus_32((low >> 4 & k_bytes(15)) | second << 4);
    s->min[0] = s->min[1] = 0;
}

static inline void q4_k_scales(const uint8_t *block, struct k_scales *s)
{
    const uint64_t a = k_load_u32(block + Q4_K_SCALES), b = k_load_u32(block + Q4_K_SCALES + 4);
    const uint64_t c = k_load_u32(block + Q4_K_SCALES + 8);
    const uint64_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x30303030;
    s->d = load_u16(block + Q4_K_D), s->dmin = load_u16(block + Q4_K_DMIN);
    s->scale[0] = (a & six) | ((c & four) | (a >> 2 & two)) << 32;
    s->min[0] = (b & six) | ((c >> 4 & four) | (b >> 2 & two)) << 32;
    s->scale[1] = s->min[1] = 0;
}

static inline void q6_k_scales(const uint8_t *block, struct k_scales *s)
{
    s->d = load_u16(block + Q6_K_D), s->dmin = 0;
    for (int i = 0; i < 2; i++) s->scale[i] = k_load_u64(block + Q6_K_SCALES + 8 * i), s->min[i] = 0;
}

static inline void iq4_xs_scales(const uint8_t *block, struct k_scales *s)
{
    /* Spread eight nibbles, and eight pairs of bits, over eight bytes each. */
    uint64_t low = k_load_u32(block + IQ4_XS_SCALES_LOW), high = load_u16(block + IQ4_XS_SCALES_HIGH);
    low = (low | low << 16) & 0x0000ffff0000ffff;
    low = (low | low << 8) & 0x00ff00ff00ff00ff;
    low = (low | low << 4) & 0x0f0f0f0f0f0f0f0f;
    high = (high | high << 24) & 0x000000ff000000ff;
    high = (high | high << 12) & 0x000f000f000f000f;
    high = (high | high << 6) & 0x0303030303030303;
    s->d = load_u16(block + IQ4_XS_D), s->dmin = 0;
    s->scale[0] = k_minus_32(low | high << 4);
    s->scale[1] = s->min[0] = s->min[1] = 0;
}

#endif
