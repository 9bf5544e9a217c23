/* kernels/formats/kquants/layout.h - byte layout of blocks of 256 weights, for every kernel of the family.
 *
 * All six formats follow one formula: weight i = scale[j] * (code[i] - bias) - min[j], with j = i / sub,
 * scale[j] = d * (a small integer), and min[j] = dmin * (a small integer) in formats with minima. A format
 * supplies its shape, its integer scales (portable code below that shifts 64-bit words) and, per instruction
 * set, a function that expands its codes to bytes in natural order. Everything else is written once for all
 * formats. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_LAYOUT_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_LAYOUT_H

#include "kernels/half.h"
#include "kernels/kernel_set.h"

enum { K_BLOCK = 256, K_SUBS = 16 /* sub-blocks at most */ };

struct k_shape {
    int block_bytes;
    int sub;  /* weights that share a scale: 16 or 32 */
    int bias; /* subtracted from codes, which are stored unsigned */
    bool has_min;
    float unit; /* a power of two by which d is multiplied */
};

static const struct k_shape Q2_K_SHAPE = { .block_bytes = 84, .sub = 16, .has_min = true, .unit = 1 },
                            Q3_K_SHAPE = { .block_bytes = 110, .sub = 16, .bias = 4, .unit = 1 },
                            Q4_K_SHAPE = { .block_bytes = 144, .sub = 32, .has_min = true, .unit = 1 },
                            Q5_K_SHAPE = { .block_bytes = 176, .sub = 32, .has_min = true, .unit = 1 },
                            Q6_K_SHAPE = { .block_bytes = 210, .sub = 16, .bias = 32, .unit = 1 },
                            IQ4_XS_SHAPE = { .block_bytes = 136, .sub = 32, .bias = 128, .unit = 1 };

/* True if sums of products over half a group of 32 weights can exceed 16 bits (see struct q8_group). */
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
    Q4_K_D = 0, /* these four also for q5_K */
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

/* The sixteen values of iq4_nl and iq4_xs. Source: ggml, kvalues_iq4nl. */
#define IQ4_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

/* The integer scales and minima of a block: 16 signed bytes (8 with sub-blocks of 32), the first in the
 * lowest bits of word 0. */
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

/* Subtract 32 from every byte; bytes of u are below 64. The top bit of each byte is set first, so that no
 * byte borrows from its neighbour. */
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
    /* Spread the eight 4-bit fields of `low` and the eight 2-bit fields of `high` over the eight bytes of a
     * word. */
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
