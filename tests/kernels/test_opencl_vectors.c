/* Proves: norm, rope, hadamard and activate on an OpenCL device compute what kernels.h documents, within the
 * bounds of kernels/README.md: strided, in place, short and long rows, with and without optional arguments.
 * The expected results are computed here in binary64. */
#include "tests/kernels/opencl_here.h"

struct shape {
    int n, cols;
};

/* y against binary64; what lies between the rows must not change. */
static void check_norm(struct backend *b, const struct norm *how, const float *x, float *y, double mean_by)
{
    const int n = how->n, cols = (int)how->cols, stride = (int)how->y_stride;
    static float w[70000], bias[70000];
    struct rng r = { 12 };
    fill_gauss(&r, w, cols, 1);
    fill_gauss(&r, bias, cols, 1);
    struct norm p = *how;
    float *there = sent(b, x, (int64_t)n * stride), *w_there = sent(b, w, cols),
          *bias_there = sent(b, bias, cols);
    p.x = p.y = there;
    p.w = w_there;
    p.bias = how->bias ? bias_there : NULL;
    backend_norm(b, &p);
    fetched(b, y, there, (int64_t)n * stride);
    for (int i = 0; i < n; i++) {
        const float *in = x + i * stride, *out = y + i * stride;
        double mean = 0, power = 0;
        for (int j = 0; j < cols && p.kind == NORM_LAYER; j++) mean += in[j] / (double)cols;
        for (int j = 0; j < cols; j++) power += pow(in[j] - mean, 2) / cols;
        for (int j = 0; j < cols; j++) {
            const double v = (in[j] - mean) / sqrt(power + p.eps), want = v * w[j] + (p.bias ? bias[j] : 0);
            CHECK_NEAR(out[j], want, 1e-6 * fabs(v * w[j]) * (1 + mean_by) + 1e-6 * (1 + mean_by));
        }
        for (int j = cols; j < stride; j++) CHECK_EQ(out[j], in[j]);
    }
    backend_free(b, there);
    backend_free(b, w_there);
    backend_free(b, bias_there);
}

static void norms(void **state)
{
    (void)state;
    static const struct shape SHAPES[] = { { 3, 1 }, { 33, 100 }, { 5, 601 }, { 2, 4096 }, { 1, 65537 } };
    struct backend *b = opencl_or_skip(64, 1024);
    static float x[70000], y[70000];
    struct rng r = { 11 };
    for (size_t s = 0; s < COUNT_OF(SHAPES); s++) {
        for (int kind = NORM_RMS; kind <= NORM_LAYER; kind++) {
            const int n = SHAPES[s].n, cols = SHAPES[s].cols, stride = cols + 4;
            const double offset = 30 * (s & 1); /* far from 0 next to their spread */
            fill_gauss(&r, x, (int64_t)n * stride, 3);
            for (int i = 0; i < n * stride; i++) x[i] += (float)offset;
            check_norm(b,
                       &(struct norm){ .kind = (enum norm_kind)kind,
                                       .x_stride = stride,
                                       .n = n,
                                       .cols = cols,
                                       .bias = s % 2 ? x : NULL,
                                       .eps = 1e-5f,
                                       .y_stride = stride },
                       x, y, offset / 3);
        }
    }
    backend_close(b);
}

/* Not in place, and rows of x that lie apart otherwise than those of y; one row for all (stride 0) too. */
static void norms_elsewhere(void **state)
{
    (void)state;
    enum { N = 4, COLS = 70 };
    struct backend *b = opencl_or_skip(64, 1024);
    float x[2 * N * COLS], w[COLS], y[N * (COLS + 1)];
    struct rng r = { 21 };
    fill_gauss(&r, x, COUNT_OF(x), 1);
    fill_gauss(&r, w, COLS, 1);
    float *x_there = sent(b, x, COUNT_OF(x)), *w_there = sent(b, w, COLS), *y_there = sent(b, x, COUNT_OF(y));
    for (int stride = 0; stride <= 2 * COLS; stride += 2 * COLS) {
        backend_norm(b, &(struct norm){ .kind = NORM_RMS,
                                        .x = x_there,
                                        .x_stride = stride,
                                        .n = N,
                                        .cols = COLS,
                                        .w = w_there,
                                        .eps = 0,
                                        .y = y_there,
                                        .y_stride = COLS + 1 });
        fetched(b, y, y_there, COUNT_OF(y));
        for (int i = 0; i < N; i++) {
            double power = 0;
            for (int j = 0; j < COLS; j++) power += pow(x[i * stride + j], 2) / COLS;
            for (int j = 0; j < COLS; j++)
                CHECK_NEAR(y[i * (COLS + 1) + j], x[i * stride + j] / sqrt(power) * w[j], 4e-6);
            CHECK_EQ(y[i * (COLS + 1) + COLS], x[i * (COLS + 1) + COLS]);
        }
    }
    backend_close(b);
}

static void ropes(void **state)
{
    (void)state;
    enum { N = 21, HEADS = 7, DIM = 90, ROT = 80, STRIDE = HEADS * DIM + 4 };
    static float x[N * STRIDE], y[N * STRIDE];
    float freq[ROT / 2];
    int32_t pos[N];
    struct backend *b = opencl_or_skip(64, 1024);
    struct rng r = { 13 };
    fill_gauss(&r, x, N * STRIDE, 1);
    for (int i = 0; i < ROT / 2; i++) freq[i] = (float)pow(10000, -2.0 * i / ROT);
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < N; i++) pos[i] = i < 2 ? i : rng_below(&r, 100000); /* the same array, changed */
        float *there = sent(b, x, N * STRIDE);
        backend_rope(b, &(struct rope){ .x = there,
                                        .x_stride = STRIDE,
                                        .n = N,
                                        .heads = HEADS,
                                        .head_dim = DIM,
                                        .rot_dims = ROT,
                                        .half_split = half,
                                        .freq = freq,
                                        .magnitude = 1.5f,
                                        .pos = pos });
        fetched(b, y, there, N * STRIDE);
        backend_free(b, there);
        for (int i = 0; i < N * STRIDE; i++) {
            const int d = i % STRIDE % DIM, row = i / STRIDE;
            if (i % STRIDE >= HEADS * DIM || d >= ROT) {
                CHECK_EQ(y[i], x[i]);
                continue;
            }
            const bool second = half ? d >= ROT / 2 : d & 1;
            const int j = half ? d % (ROT / 2) : d / 2,
                      other = half ? (second ? -ROT / 2 : ROT / 2) : (second ? -1 : 1);
            const double angle = (double)((float)pos[row] * freq[j]); /* in f32, as published models do */
            const double want = second ? x[i + other] * sin(angle) + x[i] * cos(angle)
                                       : x[i] * cos(angle) - x[i + other] * sin(angle);
            CHECK_NEAR(y[i], 1.5 * want, 3e-7 * (fabs(x[i]) + fabs(x[i + other])) * 1.5);
        }
    }
    backend_close(b);
}

static double activated(enum activation act, double g, double up)
{
    const double least = fmin(g, 7), clipped = fmin(fmax(up, -7), 7);
    switch (act) {
    case ACT_SILU: return up * g / (1 + exp(-g));
    case ACT_GELU_TANH: return up * 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
    case ACT_GELU_ERF: return up * 0.5 * g * erfc(-g / sqrt(2));
    case ACT_RELU: return g > 0 ? up * g : 0;
    case ACT_RELU_SQUARED: return g > 0 ? up * g * g : 0;
    case ACT_SIGMOID: return up / (1 + exp(-g));
    case ACT_SWIGLU_CLIPPED: return least / (1 + exp(-1.702 * least)) * (clipped + 1);
    case ACT_COUNT: break;
    }
    return NAN;
}

/* 2e-6 of the result where it is not the small difference of large numbers, and 1e-6 beside it. */
static void activations(void **state)
{
    (void)state;
    enum { N = 7, COLS = 611, STRIDE = 613 };
    static float gate[N * STRIDE], up[N * STRIDE], y[N * STRIDE];
    struct backend *b = opencl_or_skip(64, 1024);
    struct rng r = { 14 };
    fill_gauss(&r, gate, N * STRIDE, 4);
    fill_gauss(&r, up, N * STRIDE, 1);
    gate[3] = -300, gate[4] = 300, gate[5] = 0;
    float *up_there = sent(b, up, N * STRIDE);
    for (int act = 0; act < ACT_COUNT; act++) {
        for (int with_up = act == ACT_SWIGLU_CLIPPED; with_up < 2; with_up++) {
            float *there = sent(b, gate, N * STRIDE);
            backend_activate(b, &(struct activate){ .act = (enum activation)act,
                                                    .gate = there,
                                                    .up = with_up ? up_there : NULL,
                                                    .stride = STRIDE,
                                                    .n = N,
                                                    .cols = COLS,
                                                    .y = there,
                                                    .y_stride = STRIDE });
            fetched(b, y, there, N * STRIDE);
            backend_free(b, there);
            for (int i = 0; i < N * STRIDE; i++) {
                const double by = with_up ? up[i] : 1, want = activated((enum activation)act, gate[i], by);
                if (i % STRIDE < COLS)
                    CHECK_NEAR(y[i], want, 2e-6 * fabs(want) + 1e-6 * fabs(by));
                else
                    CHECK_EQ(y[i], gate[i]);
            }
        }
    }
    backend_close(b);
}

/* Sums of weighted rows: added or not, in place, and strided. */
static void mixes(void **state)
{
    (void)state;
    enum { ROWS = 9, COLS = 1300, STRIDE = 1303, N = 5, K = 3 };
    static float x[ROWS * STRIDE], y[N * STRIDE], weights[N * K];
    int32_t ids[N * K];
    struct rng r = { 21 };
    fill_gauss(&r, x, ROWS * STRIDE, 1);
    fill_gauss(&r, weights, N * K, 1);
    for (int i = 0; i < N * K; i++) ids[i] = rng_below(&r, ROWS);
    struct backend *b = opencl_or_skip(64, 2048);
    float *x_there = sent(b, x, ROWS * STRIDE);
    for (int add = 0; add < 2; add++) {
        for (int i = 0; i < N * STRIDE; i++) y[i] = 7;
        float *y_there = sent(b, y, N * STRIDE);
        backend_mix(b, &(struct mix){ .x = x_there,
                                      .x_stride = STRIDE,
                                      .rows = ROWS,
                                      .ids = ids,
                                      .weights = weights,
                                      .n = N,
                                      .k = K,
                                      .cols = COLS,
                                      .y = y_there,
                                      .y_stride = STRIDE,
                                      .add = add });
        fetched(b, y, y_there, N * STRIDE);
        backend_free(b, y_there);
        for (int i = 0; i < N * STRIDE; i++) {
            double want = add ? 7 : 0;
            for (int j = 0; j < K; j++)
                want += (double)weights[i / STRIDE * K + j] *
                        x[ids[i / STRIDE * K + j] * STRIDE + i % STRIDE];
            if (i % STRIDE < COLS)
                CHECK_NEAR(y[i], want, 1e-5);
            else
                CHECK_EQ(y[i], 7);
        }
    }
    backend_free(b, x_there);
    backend_close(b);
}

/* Every size of block, by the definition; what lies between the rows must not change. */
static void hadamards(void **state)
{
    (void)state;
    enum { N = 3, COLS = 1536, STRIDE = COLS + 5 };
    static float x[N * STRIDE], y[N * STRIDE];
    struct backend *b = opencl_or_skip(64, 2048);
    struct rng r = { 31 };
    fill_gauss(&r, x, N * STRIDE, 1);
    for (int block = 1; block <= HADAMARD_MAX; block *= 2) {
        float *there = sent(b, x, N * STRIDE);
        struct hadamard p = { .x = there, .x_stride = STRIDE, .n = N, .cols = COLS, .block = block };
        backend_hadamard(b, &p);
        fetched(b, y, there, N * STRIDE);
        for (int i = 0; i < N * STRIDE; i++) {
            const int d = i % STRIDE, row = d % block;
            double want = 0;
            if (d >= COLS) {
                CHECK_EQ(y[i], x[i]);
                continue;
            }
            for (int j = 0; j < block; j++)
                want += __builtin_parity((unsigned)(row & j)) ? -x[i - row + j] : x[i - row + j];
            CHECK_NEAR(y[i], want / sqrt(block), 3e-6);
        }
        backend_hadamard(b, &p);
        fetched(b, y, there, N * STRIDE);
        for (int i = 0; i < N * STRIDE; i++) CHECK_NEAR(y[i], x[i], 3e-6);
        backend_free(b, there);
    }
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),       cmocka_unit_test(norms_elsewhere), cmocka_unit_test(ropes),
        cmocka_unit_test(activations), cmocka_unit_test(mixes),           cmocka_unit_test(hadamards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
