/* kernels/formats/codebooks/tables.h - the values of codes. They equal those of bitsandbytes to the last
 * bit; the integers approximate them for products with 8-bit activations. */
#ifndef QDYNO_KERNELS_FORMATS_CODEBOOKS_TABLES_H
#define QDYNO_KERNELS_FORMATS_CODEBOOKS_TABLES_H

/* Quantiles of a normal distribution, scaled to [-1, 1]. */
#define NF4_VALUES                                                                                           \
    -1.0f, -0.696192801f, -0.525073051f, -0.394917488f, -0.284441382f, -0.18477343f, -0.0910500363f, 0.0f,   \
        0.0795802996f, 0.160930201f, 0.246112302f, 0.337915242f, 0.440709829f, 0.562617004f, 0.722956836f,   \
        1.0f
/* Twelfths of powers of two and their sums, not in the order of their size. */
#define FP4_VALUES                                                                                           \
    0.0f, 0.00520833349f, 0.666666687f, 1.0f, 0.333333343f, 0.5f, 0.166666672f, 0.25f, 0.0f,                 \
        -0.00520833349f, -0.666666687f, -1.0f, -0.333333343f, -0.5f, -0.166666672f, -0.25f

/* value = (128 * high + low) / scale. NF4: within 1.6e-05 of the value; FP4: exact but for the rounding of
 * the twelfths. */
enum { NF4_SCALE = 15684, FP4_SCALE = 16128 };
#define NF4_HIGH -123, -85, -64, -48, -35, -23, -11, 0, 10, 20, 30, 41, 54, 69, 89, 123
#define NF4_LOW  60, -39, -43, -50, 19, 46, -20, 0, -32, -36, 20, 52, 0, -8, -53, -60
#define FP4_HIGH 0, 1, 84, 126, 42, 63, 21, 32, 0, -1, -84, -126, -42, -63, -21, -31
#define FP4_LOW  0, -44, 0, 0, 0, 0, 0, -64, 0, 44, 0, 0, 0, 0, 0, -64

/* The dynamic map of bitsandbytes, ascending: what the 8-bit codes of nested scales mean. */
extern const float CODEBOOK_DYNAMIC_MAP[256];

#endif
