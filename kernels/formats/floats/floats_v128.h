/* kernels/formats/floats/floats_v128.h - f32, f16 and bf16 with 128-bit vectors, four weights per load. */
#ifndef QDYNO_KERNELS_FORMATS_FLOATS_FLOATS_V128_H
#define QDYNO_KERNELS_FORMATS_FLOATS_FLOATS_V128_H

/* How a format loads four weights, or one, as f32. */
struct float_kind {
    int weight_bytes;
    f32x4 (*load4)(const uint8_t *p);
    float (*load1)(const uint8_t *p);
};

ALWAYS_INLINE f32x4 load4_f32(const uint8_t *p)
{
    return (f32x4)load_u8(p);
}

ALWAYS_INLINE float load1_f32(const uint8_t *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE float load1_bf16(const uint8_t *p)
{
    return bhalf_to_float(load_u16(p));
}

static const struct float_kind KIND_F32 = { 4, load4_f32, load1_f32 },
                               KIND_F16 = { 2, load_f16, load_one_f16 },
                               KIND_BF16 = { 2, load_bf16, load1_bf16 };

ALWAYS_INLINE void floats_decode(const struct float_kind *f, const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) store_f32x4(x + i, f->load4(in + i * f->weight_bytes));
    for (; i < n; i++) x[i] = f->load1(in + i * f->weight_bytes);
}

/* Dot products with n rows of x. `unroll` vectors of weights are processed at once, each with its own sums:
 * with one row of x, independent sums hide the latency of additions; with more, registers allow only two. */
ALWAYS_INLINE void floats_dot_unrolled(const struct float_kind *f, const struct dot *d, const int n)
{
    enum { STEP = 4, CHAINS = 4 };
    const int unroll = n == 1 ? CHAINS : 2;
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        f32x4 sum[DOT_X][CHAINS];
        float tail[DOT_X] = { 0 };
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
#pragma GCC unroll 4
            for (int u = 0; u < CHAINS; u++) sum[i][u] = all_f32(0);
        int64_t k = 0;
        for (; k + STEP * unroll <= d->cols; k += STEP * unroll) {
            if (!d->skip_prefetch) prefetch_ahead(w + k * f->weight_bytes, STEP * unroll * f->weight_bytes);
#pragma GCC unroll 4
            for (int u = 0; u < unroll; u++) {
                const f32x4 v = f->load4(w + (k + u * STEP) * f->weight_bytes);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++)
                    sum[i][u] = fma_f32(v, load_f32x4(d->x + i * d->x_stride + k + u * STEP), sum[i][u]);
            }
        }
        for (; k + STEP <= d->cols; k += STEP) {
            const f32x4 v = f->load4(w + k * f->weight_bytes);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                sum[i][0] = fma_f32(v, load_f32x4(d->x + i * d->x_stride + k), sum[i][0]);
        }
        for (; k < d->cols; k++)
            for (int i = 0; i < n; i++)
                tail[i] += f->load1(w + k * f->weight_bytes) * d->x[i * d->x_stride + k];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = tail[i] +
                                        sum_of_f32((sum[i][0] + sum[i][1]) + (sum[i][2] + sum[i][3]));
    }
}

ALWAYS_INLINE void floats_dot(const struct float_kind *f, const struct dot *d)
{
    if (d->n == DOT_X) {
        floats_dot_unrolled(f, d, DOT_X);
        return;
    }
    if (d->n >= 2) floats_dot_unrolled(f, d, 2);
    if (d->n % 2) {
        const struct dot last = last_row(d);
        floats_dot_unrolled(f, &last, 1);
    }
}

#define FLOAT_KIND_FUNCTIONS(name, KIND)                                                                     \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        floats_decode(&KIND, blocks, x, n);                                                                  \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        floats_dot(&KIND, d);                                                                                \
    }
FLOAT_KIND_FUNCTIONS(f32, KIND_F32)
FLOAT_KIND_FUNCTIONS(f16, KIND_F16)
FLOAT_KIND_FUNCTIONS(bf16, KIND_BF16)

#endif
