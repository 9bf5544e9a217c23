/* Groups with AVX-512 VNNI, 8-bit activations. */
#include "kernels/isa/gemv/block_dot_avx512vnni.h"
#include "kernels/formats/groups/codes_avx2.h"
#include "kernels/formats/groups/codes_avx512.h"
#include "kernels/formats/groups/groups.h"

/* For each of the four parts of 32 weights in a round, the f16 number of its group. p: that number in the
 * first group. */
ALWAYS_INLINE __m128 round_f16(const uint8_t *p, const int bytes, const int weights)
{
    if (weights == 32) return load_4_scales(p, bytes);
    const uint32_t first = load_u16(p), second = weights == 64 ? load_u16(p + bytes) : first;
    const __m128i pairs = _mm_cvtsi64_si128(
        (long long)((uint64_t)(second * 0x10001u) << 32 | first * 0x10001u));
    return _mm_cvtph_ps(pairs);
}

#define FUNCTIONS(name, NAME, bits, size)                                                                    \
    ALWAYS_INLINE __m256i name##_codes(const uint8_t *block, int part)                                       \
    {                                                                                                        \
        return group_codes32(block, part, bits, size);                                                       \
    }                                                                                                        \
    ALWAYS_INLINE __m512i name##_codes64(const uint8_t *block, int part)                                     \
    {                                                                                                        \
        return group_codes64(block, part, bits, size);                                                       \
    }                                                                                                        \
    ALWAYS_INLINE __m128 name##_scales(const uint8_t *block)                                                 \
    {                                                                                                        \
        return round_f16(block, GROUP_BYTES(bits, size), size);                                              \
    }                                                                                                        \
    ALWAYS_INLINE __m128 name##_mins(const uint8_t *block)                                                   \
    {                                                                                                        \
        const __m128 zeros = round_f16(block + GROUP_ZERO, GROUP_BYTES(bits, size), size);                   \
        return _mm_xor_ps(_mm_mul_ps(zeros, name##_scales(block)), _mm_set1_ps(-0.0f));                      \
    }                                                                                                        \
    static const struct block_kind512 NAME = { GROUP_BYTES(bits, size),                                      \
                                               (size) / 32,                                                  \
                                               0,                                                            \
                                               name##_codes,                                                 \
                                               name##_scales,                                                \
                                               name##_mins,                                                  \
                                               (size) > 32 ? name##_codes64 : NULL };                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        kind_dot_vnni(&NAME, d);                                                                             \
    }
GROUP_FORMATS(FUNCTIONS)

#define ROW(name, NAME, bits, size) { FORMAT_##NAME, { .dot_q8 = name##_dot_q8 } },
const struct format_row GROUPS_AVX512VNNI[GROUPS_COUNT] = { GROUP_FORMATS(ROW) };
