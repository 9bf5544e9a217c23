/* int8 with AVX-512, f32 activations: widen and multiply-add. */
#include "kernels/formats/int8/int8.h"
#include "kernels/isa/avx512.h"

ALWAYS_INLINE __m512 load16(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(lanes, row + i)));
}

static void int8_codes(const void *codes, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(x + i, lanes, load16(codes, i, lanes));
    }
}

static void int8_dot_f32(const struct dot *d)
{
    dot_floats(d, load16, 1);
}

const struct format_row INT8_AVX512[INT8_COUNT] = {
    { FORMAT_INT8, { .decode = int8_codes, .dot_f32 = int8_dot_f32 } },
};
