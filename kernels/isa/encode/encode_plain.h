/* kernels/isa/encode/encode_plain.h - encoders without a search: the loops of the reference, compiled with
 * the flags of an instruction set. Include an implementation of the lanes first. */
#ifndef QDYNO_KERNELS_ISA_ENCODE_ENCODE_PLAIN_H
#define QDYNO_KERNELS_ISA_ENCODE_ENCODE_PLAIN_H

#include "kernels/formats/blocks32/encode.h"
#include "kernels/formats/fp8/encode.h"
#include "kernels/formats/groups/encode.h"
#include "kernels/formats/int8/encode.h"

/* Row by row, as formats with a scale at the end of a row require. */
#define ROW_ENCODER(name, bytes, call)                                                                       \
    static void name##_encode_plain(const struct encode *e)                                                  \
    {                                                                                                        \
        const int64_t n = e->cols;                                                                           \
        for (int64_t r = 0; r < e->rows; r++) {                                                              \
            const float *x = e->x + r * n;                                                                   \
            uint8_t *out = e->out + r * (bytes);                                                             \
            call;                                                                                            \
        }                                                                                                    \
    }
ROW_ENCODER(int8, n + 4, int8_encode_row(x, out, n))
ROW_ENCODER(fp8_e4m3, n + 4, fp8_encode_row(&E4M3, E4M3_MAX, x, out, n))
ROW_ENCODER(fp8_e5m2, n + 4, fp8_encode_row(&E5M2, E5M2_MAX, x, out, n))

#define B32_PLAIN(name, bytes)                                                                               \
    LANES_SHORT static void name##_encode_plain(const struct encode *e)                                      \
    {                                                                                                        \
        B32_ENCODE(name, bytes, e->x, e->out, e->rows * e->cols);                                            \
    }
B32_PLAIN(q8_0, 34)
B32_PLAIN(q4_0, Q4_0_BYTES)
B32_PLAIN(q4_1, Q4_1_BYTES)
B32_PLAIN(q5_0, Q5_0_BYTES)
B32_PLAIN(q5_1, Q5_1_BYTES)
B32_PLAIN(mxfp4, MXFP4_BYTES)

#define GROUP_PLAIN(name, NAME, bits, size)                                                                  \
    static void name##_encode_plain(const struct encode *e)                                                  \
    {                                                                                                        \
        group_encode(e->x, bits, size, e->out, e->rows * e->cols);                                           \
    }
GROUP_FORMATS(GROUP_PLAIN)

#define FLOAT_PLAIN(name, convert)                                                                           \
    static void name##_encode_plain(const struct encode *e)                                                  \
    {                                                                                                        \
        const int64_t n = e->rows * e->cols;                                                                 \
        const float *x = e->x;                                                                               \
        uint8_t *out = e->out;                                                                               \
        for (int64_t i = 0; i < n; i++) store_u16(out + 2 * i, convert(x[i]));                               \
    }
FLOAT_PLAIN(f16, half_from_float)
FLOAT_PLAIN(bf16, bhalf_from_float)

#endif
