/* Proves: gather, norm, rope and activate compute what kernels.h documents, with and without threads, in
 * place and strided. The expected results are computed here. */
#include "kernels/kernel_set.h"
#include "tests/kernels/numbers.h"

/* Sanitizers abort a program that allocates an impossible size; this makes them return NULL, which the test
 * expects. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static struct backend *open_here(int threads)
{
    struct err why;
    struct backend *b;
    uint32_t usable;
    CHECK_OK(isa_usable(&usable, &why));
    CHECK_OK(backend_open(&b, "cpu", &(struct backend_options){ .threads = threads, .isa = usable }, &why));
    return b;
}

static void gather(void **state)
{
    (void)state;
    enum { ROWS = 5, COLS = 544, N = 40 };
    static const enum format_id IDS[] = { FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8_0, FORMAT_Q4_0 };
    static float values[ROWS * COLS], back[ROWS * COLS], y[N * (COLS + 1)];
    static uint8_t bytes[ROWS * COLS * 4];
    int32_t ids[N];
    struct err why;
    struct rng r = { 11 };
    struct backend *b = open_here(2);
    for (int i = 0; i < N; i++) ids[i] = rng_below(&r, ROWS);
    for (size_t f = 0; f < COUNT_OF(IDS); f++) {
        struct weight w;
        fill_gauss(&r, values, ROWS * COLS, 1);
        format_encode_rows(&FORMATS[IDS[f]], values, bytes, ROWS, COLS);
        format_decode_rows(&FORMATS[IDS[f]], bytes, back, ROWS, COLS);
        CHECK_OK(backend_weight_bind(b, &w, &FORMATS[IDS[f]], ROWS, COLS, NULL, bytes, &why));
        for (int add = 0; add < 2; add++) {
            for (int i = 0; i < N * (COLS + 1); i++) y[i] = 7;
            backend_gather(b, &(struct gather){ .table = &w,
                                                .ids = ids,
                                                .n = N,
                                                .y = y,
                                                .y_stride = COLS + 1,
                                                .add = add,
                                                .scale = 0.5f });
            for (int i = 0; i < N; i++) {
                for (int j = 0; j < COLS; j++)
                    CHECK_EQ(y[i * (COLS + 1) + j], (add ? 7 : 0) + back[ids[i] * COLS + j] * 0.5f);
                CHECK_EQ(y[i * (COLS + 1) + COLS], 7);
            }
        }
    }
    struct weight w;
    const struct format unknown = { .name = "q9_x", .block_weights = 32, .block_bytes = 40 }; /* no decode */
    CHECK_EQ(backend_weight_bind(b, &w, &unknown, 1, 256, NULL, bytes, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "q9_x");
    CHECK_EQ(backend_weight_bind(b, &w, &FORMATS[FORMAT_Q4_0], 1, 40, NULL, bytes, &why), ERR_USAGE);
    backend_close(b);
}

static void norms(void **state)
{
    (void)state;
    enum { N = 33, COLS = 601, STRIDE = 605 };
    static float x[N * STRIDE], y[N * STRIDE], w[COLS], bias[COLS];
    struct rng r = { 12 };
    fill_gauss(&r, x, N * STRIDE, 3);
    fill_gauss(&r, w, COLS, 1);
    fill_gauss(&r, bias, COLS, 1);
    for (int threads = 1; threads <= 3; threads += 2) {
        struct backend *b = open_here(threads);
        for (int kind = NORM_RMS; kind <= NORM_LAYER; kind++) {
            memcpy(y, x, sizeof y);
            backend_norm(b, &(struct norm){ .kind = (enum norm_kind)kind,
                                            .x = y,
                                            .x_stride = STRIDE,
                                            .n = N,
                                            .cols = COLS,
                                            .w = w,
                                            .bias = bias,
                                            .eps = 1e-5f,
                                            .y = y,
                                            .y_stride = STRIDE });
            for (int i = 0; i < N; i++) {
                double mean = 0, power = 0;
                for (int j = 0; j < COLS && kind == NORM_LAYER; j++) mean += x[i * STRIDE + j] / (double)COLS;
                for (int j = 0; j < COLS; j++) power += pow(x[i * STRIDE + j] - mean, 2) / COLS;
                for (int j = 0; j < COLS; j++)
                    CHECK_NEAR(y[i * STRIDE + j],
                               (x[i * STRIDE + j] - mean) / sqrt(power + 1e-5) * w[j] + bias[j], 1e-5);
                for (int j = COLS; j < STRIDE; j++) CHECK_EQ(y[i * STRIDE + j], x[i * STRIDE + j]);
            }
        }
        backend_close(b);
    }
}

static void ropes(void **state)
{
    (void)state;
    enum { N = 70, HEADS = 3, DIM = 90, ROT = 80, STRIDE = HEADS * DIM + 4 };
    static float x[N * STRIDE], y[N * STRIDE], freq[ROT / 2];
    int32_t pos[N];
    struct rng r = { 13 };
    fill_gauss(&r, x, N * STRIDE, 1);
    for (int i = 0; i < ROT / 2; i++) freq[i] = (float)pow(10000, -2.0 * i / ROT);
    for (int i = 0; i < N; i++) pos[i] = i * 3;
    for (int threads = 1; threads <= 2; threads++) {
        struct backend *b = open_here(threads);
        for (int half = 0; half < 2; half++) {
            memcpy(y, x, sizeof y);
            backend_rope(b, &(struct rope){ .x = y,
                                            .x_stride = STRIDE,
                                            .n = N,
                                            .heads = HEADS,
                                            .head_dim = DIM,
                                            .rot_dims = ROT,
                                            .half_split = half,
                                            .freq = freq,
                                            .magnitude = 1.5f,
                                            .pos = pos });
            for (int i = 0; i < N; i++) {
                for (int h = 0; h < HEADS; h++) {
                    const float *in = x + i * STRIDE + h * DIM, *out = y + i * STRIDE + h * DIM;
                    for (int j = 0; j < ROT / 2; j++) {
                        const int p = half ? j : 2 * j, q = half ? j + ROT / 2 : 2 * j + 1;
                        const double angle = (double)pos[i] * freq[j];
                        CHECK_NEAR(out[p], 1.5 * (in[p] * cos(angle) - in[q] * sin(angle)), 1e-4);
                        CHECK_NEAR(out[q], 1.5 * (in[p] * sin(angle) + in[q] * cos(angle)), 1e-4);
                    }
                    for (int j = ROT; j < DIM; j++) CHECK_EQ(out[j], in[j]);
                }
            }
        }
        backend_close(b);
    }
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
    for (int threads = 1; threads <= 3; threads++) {
        struct backend *b = open_here(threads);
        for (int add = 0; add < 2; add++) {
            for (int i = 0; i < N * STRIDE; i++) y[i] = 7;
            backend_mix(b, &(struct mix){ .x = x,
                                          .x_stride = STRIDE,
                                          .rows = ROWS,
                                          .ids = ids,
                                          .weights = weights,
                                          .n = N,
                                          .k = K,
                                          .cols = COLS,
                                          .y = y,
                                          .y_stride = STRIDE,
                                          .add = add });
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
        for (int i = 0; i < N; i++) ids[i] = i;
        memcpy(y, x, sizeof y);
        backend_mix(b, &(struct mix){ .x = y,
                                      .x_stride = STRIDE,
                                      .rows = N,
                                      .ids = ids,
                                      .weights = weights,
                                      .n = N,
                                      .k = 1,
                                      .cols = COLS,
                                      .y = y,
                                      .y_stride = STRIDE });
        for (int i = 0; i < N * STRIDE; i++)
            CHECK_EQ(y[i], i % STRIDE < COLS ? weights[i / STRIDE] * x[i] : x[i]);
        for (int i = 0; i < N * K; i++) ids[i] = rng_below(&r, ROWS);
        backend_close(b);
    }
}

static double activated(enum activation act, double g, double up)
{
    const double least = fmin(g, 7), clipped = fmin(fmax(up, -7), 7);
    switch (act) {
    case ACT_SILU: return up * g / (1 + exp(-g));
    case ACT_GELU_TANH: return up * 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
    case ACT_GELU_ERF: return up * 0.5 * g * (1 + erf(g / sqrt(2)));
    case ACT_RELU: return g > 0 ? up * g : 0;
    case ACT_RELU_SQUARED: return g > 0 ? up * g * g : 0;
    case ACT_SIGMOID: return up / (1 + exp(-g));
    case ACT_SWIGLU_CLIPPED: return least / (1 + exp(-1.702 * least)) * (clipped + 1);
    case ACT_COUNT: break;
    }
    return NAN;
}

static void activations(void **state)
{
    (void)state;
    enum { N = 37, COLS = 611, STRIDE = 613 };
    static float gate[N * STRIDE], up[N * STRIDE], y[N * STRIDE];
    struct rng r = { 14 };
    fill_gauss(&r, gate, N * STRIDE, 4);
    fill_gauss(&r, up, N * STRIDE, 1);
    gate[3] = -300, gate[4] = 300, gate[5] = 0;
    for (int threads = 1; threads <= 3; threads++) {
        struct backend *b = open_here(threads);
        for (int act = 0; act < ACT_COUNT; act++) {
            for (int with_up = act == ACT_SWIGLU_CLIPPED; with_up < 2; with_up++) {
                memcpy(y, gate, sizeof y);
                backend_activate(b, &(struct activate){ .act = (enum activation)act,
                                                        .gate = y,
                                                        .up = with_up ? up : NULL,
                                                        .stride = STRIDE,
                                                        .n = N,
                                                        .cols = COLS,
                                                        .y = y,
                                                        .y_stride = STRIDE });
                for (int i = 0; i < N * STRIDE; i++) {
                    const double want = activated((enum activation)act, gate[i], with_up ? up[i] : 1);
                    if (i % STRIDE < COLS)
                        CHECK_NEAR(y[i], want, 1e-6 * fabs(want) + 1e-6);
                    else
                        CHECK_EQ(y[i], gate[i]);
                }
            }
        }
        backend_close(b);
    }
}

/* The bounds of kernels/README.md, "Precision", for every instruction set here, whole vectors and tails. */
static void curves(void **state)
{
    (void)state;
    enum { N = 4099 };
    static float x[N], y[N], sine[N], cosine[N];
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct rng r = { 15 };
    for (size_t l = 0; l < count; l++) {
        const struct vector_kernels v = kernels_select(levels[l]->bits).vec;
        for (double size = 0.01; size < 1e6; size *= 10) {
            fill_gauss(&r, x, N, size);
            v.sincos(x, N, 1, sine, cosine);
            for (int i = 0; i < N; i++) {
                CHECK_NEAR(sine[i], sin((double)x[i]), 2e-7);
                CHECK_NEAR(cosine[i], cos((double)x[i]), 2e-7);
            }
            memcpy(y, x, sizeof y);
            v.softcap(y, N, 30);
            for (int i = 0; i < N; i++)
                CHECK_NEAR(y[i], 30 * tanh(x[i] / 30.0), 5e-7 * fabs(30 * tanh(x[i] / 30.0)));
        }
        fill_gauss(&r, x, N, 3);
        v.activate[ACT_GELU_ERF](x, NULL, N, y);
        for (int i = 0; i < N; i++) {
            const double want = 0.5 * x[i] * erfc(-x[i] / sqrt(2));
            CHECK_NEAR(y[i], want, x[i] > -3 ? 2e-6 * fabs(want) : 1e-8);
        }
    }
}

/* Rows of dots: any number of rows, columns and stride, nothing read behind a row. */
static void row_dots(void **state)
{
    (void)state;
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct rng r = { 16 };
    for (size_t l = 0; l < count; l++) {
        const struct vector_kernels v = kernels_select(levels[l]->bits).vec;
        for (int n = 1; n < 40; n += 1 + n / 4) {
            for (int cols = 1; cols < 140; cols += 1 + cols / 3) {
                const size_t floats = (size_t)(n * cols);
                float *rows = guarded(floats * sizeof *rows, 0), *x = guarded((size_t)cols * sizeof *x, 0),
                      y[41];
                fill_gauss(&r, rows, (int64_t)floats, 1);
                fill_gauss(&r, x, cols, 1);
                y[n] = 7;
                v.dots(rows, cols, n, cols, x, y);
                CHECK_EQ(y[n], 7);
                for (int i = 0; i < n; i++) {
                    double want = 0, terms = 0;
                    for (int k = 0; k < cols; k++) want += (double)rows[i * cols + k] * x[k];
                    for (int k = 0; k < cols; k++) terms += fabs((double)rows[i * cols + k] * x[k]);
                    CHECK_NEAR(y[i], want, 1e-6 * terms);
                }
                guarded_free(rows, floats * sizeof *rows, 0);
                guarded_free(x, (size_t)cols * sizeof *x, 0);
            }
        }
    }
}

static void memory(void **state)
{
    (void)state;
    struct err why;
    struct backend *b = open_here(2);
    for (size_t size = 0; size < (9u << 20); size = size * 3 + 1) {
        uint8_t *p = backend_alloc(b, size);
        CHECK(p);
        CHECK_EQ((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < size; i += 97) CHECK_EQ(p[i], 0);
        if (size) {
            char in[5] = "qdyn", out[5] = "";
            const size_t n = MIN(size, sizeof in);
            backend_write(b, p + size - n, in, n);
            backend_read(b, out, p + size - n, n);
            assert_memory_equal(in, out, n);
        }
        backend_free(b, p);
    }
    CHECK(!backend_alloc(b, SIZE_MAX - 3));
    const struct backend_work endless = { .rows = (int64_t)1 << 40, .cols = 1 << 20 };
    CHECK_EQ(backend_reserve(b, &endless, &why), ERR_NOMEM);
    backend_close(b);
}

/* The plan only grows, with rows and with what weights are in, and what it says can be had. */
static void scratch(void **state)
{
    (void)state;
    const struct backend_options o = { .threads = 2, .isa = isa_detect(), .precision = PRECISION_MEDIUM };
    const uint64_t f32 = 1ull << FORMAT_F32, q8_0 = 1ull << FORMAT_Q8_0, int8 = 1ull << FORMAT_INT8;
    const uint32_t free = 1u << INPUT_FREE, tokens = 1u << INPUT_INT8_TOKEN;
    struct backend *b;
    struct err why;
    CHECK_OK(backend_open(&b, "cpu", &o, &why));
    int64_t last = 0;
    for (int64_t rows = 1; rows <= 1024; rows *= 2) {
        const struct backend_work none = { .rows = rows, .cols = 4096, .head_dim = 64 },
                                  small = { rows, 4096, 64, 0, 0, 0, q8_0, free },
                                  one = { rows, 4096, 64, 0, 0, 0, f32, free },
                                  both = { rows, 4096, 64, 0, 0, 0, f32 | q8_0, free },
                                  kinds = { rows, 4096, 64, 0, 0, 0, f32 | q8_0 | int8, free | tokens },
                                  wide = { rows, 4096, 0, 0, 0, 0, f32, free };
        const int64_t bytes = backend_scratch_bytes("cpu", &o, &both);
        CHECK_LE(last, bytes);
        CHECK_LT(bytes, (1 << 28));
        CHECK_GE(bytes,
                 MAX(backend_scratch_bytes("cpu", &o, &one), backend_scratch_bytes("cpu", &o, &small)));
        CHECK_GE(bytes, backend_scratch_bytes("cpu", &o, &none));
        CHECK_LE(bytes, backend_scratch_bytes("cpu", &o, &kinds));
        CHECK_LE(backend_scratch_bytes("cpu", &o, &one), backend_scratch_bytes("cpu", &o, &wide));
        last = bytes;
        CHECK_OK(backend_reserve(b, &both, &why));
    }
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather),      cmocka_unit_test(norms),    cmocka_unit_test(ropes),
        cmocka_unit_test(activations), cmocka_unit_test(mixes),    cmocka_unit_test(memory),
        cmocka_unit_test(curves),      cmocka_unit_test(row_dots), cmocka_unit_test(scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
