/* Proves: with act=int8, an OpenCL device multiplies the same activation codes as the CPU (8 bits in blocks
 * of 32, bit for bit). The expected products are computed here in binary64: for every format with integer
 * codes, with one, few and many rows, odd sizes, reordered and divided inputs, and work-group shapes of GPUs.
 * Float formats and higher precisions keep f32. The scratch memory is part of the estimate. */
#include "kernels/opencl/products.h"
#include "tests/kernels/opencl_here.h"
#include "tests/kernels/input_schemes.h"

enum { BLOCK = 32, ROWS_MAX = 128, COLS_MAX = 2048, N_MAX = 100 };

static struct backend *int8_or_skip(enum precision precision)
{
    struct err why;
    struct backend *b;
    struct device_info device;
    const struct backend_options o = { .threads = 1,
                                       .activations = ACTIVATIONS_INT8,
                                       .precision = precision };
    if (!opencl_devices(&device, 1)) {
        print_message("SKIPPED: no OpenCL device here\n");
        skip();
    }
    CHECK_OK(backend_open(&b, device.name, &o, &why));
    CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = N_MAX, .cols = COLS_MAX }, &why));
    return b;
}

/* ---------------------------------------------------------------- what is meant */

/* x[cols] as 8 bits in blocks of 32 stand for it, in binary32 as kernels/README.md has it. */
static void rounded_row(const float *x, int64_t cols, double *out)
{
    for (int64_t b = 0; b < cols; b += BLOCK) {
        const float amax = largest_in(x + b, BLOCK), by = amax != 0 ? 127 / amax : 0, d = amax / 127;
        for (int j = 0; j < BLOCK; j++) out[b + j] = (double)d * (double)rintf(x[b + j] * by);
    }
}

struct scene {
    const struct format *f;
    int n;
    int64_t rows, cols, x_stride;
    const struct input_scheme *input;
    float *x, *weights;
    void *bytes;
};

static void scene_make(struct scene *s, struct rng *r)
{
    const int64_t all = s->n * s->x_stride, weights = s->rows * s->cols;
    s->x = malloc((size_t)all * sizeof *s->x);
    s->weights = malloc((size_t)weights * sizeof *s->weights);
    s->bytes = malloc((size_t)(s->rows * format_row_bytes(s->f, s->cols)));
    fill_gauss(r, s->x, all, 1);
    for (int64_t k = 0; k < MIN(s->cols, 2 * BLOCK); k++)
        s->x[k] *= k < BLOCK ? 0 : 16; /* no scale; a large one */
    for (int i = 0; i < s->n; i++)     /* what lies between the rows of x must not count */
        for (int64_t k = s->cols; k < s->x_stride; k++) s->x[i * s->x_stride + k] = NAN;
    fill_gauss(r, s->weights, weights, 0.05);
    format_encode_rows(s->f, s->weights, s->bytes, s->rows, s->cols);
    format_decode_rows(s->f, s->bytes, s->weights, s->rows, s->cols);
}

static void scene_free(struct scene *s)
{
    free(s->x);
    free(s->weights);
    free(s->bytes);
}

/* y[n][rows] on the device, bias and residual in place where they are. */
static void scene_run(struct backend *b, const struct scene *s, const float *bias, const float *residual,
                      float *y)
{
    struct err why;
    struct weight w;
    CHECK_OK(backend_weight_bind(b, &w, s->f, s->rows, s->cols, s->input, s->bytes, &why));
    float *x = sent(b, s->x, s->n * s->x_stride),
          *out = backend_alloc(b, (size_t)(s->n * s->rows) * sizeof *y);
    float *plus = bias ? sent(b, bias, s->rows) : NULL;
    if (residual) backend_write(b, out, residual, (size_t)(s->n * s->rows) * sizeof *y);
    backend_matmul(b,
                   &(struct matmul){ .w = &w,
                                     .x = x,
                                     .x_stride = s->x_stride,
                                     .n = s->n,
                                     .bias = plus,
                                     .residual = residual ? out : NULL,
                                     .y = out,
                                     .y_stride = s->rows },
                   1);
    fetched(b, y, out, s->n * s->rows);
    backend_weight_release(b, &w);
    backend_free(b, x);
    backend_free(b, out);
    if (plus) backend_free(b, plus);
}

/* Largest |error| / sum |terms| against inputs that are rounded (or not). */
static double worst_of(const struct scene *s, const float *y, bool is_rounded)
{
    double worst = 0, *x = malloc((size_t)s->cols * sizeof *x);
    float *in = malloc((size_t)s->cols * sizeof *in);
    for (int i = 0; i < s->n; i++) {
        for (int64_t k = 0; k < s->cols; k++) {
            const int64_t from = s->input && s->input->order ? s->input->order[k] : k;
            in[k] = s->x[i * s->x_stride + from];
            if (s->input && s->input->divide) in[k] /= s->input->divide[from];
            x[k] = (double)in[k];
        }
        if (is_rounded) rounded_row(in, s->cols, x);
        for (int64_t r = 0; r < s->rows; r++) {
            double want = 0, terms = 0;
            for (int64_t k = 0; k < s->cols; k++) {
                const double term = x[k] * (double)s->weights[r * s->cols + k];
                want += term, terms += fabs(term);
            }
            const double error = fabs(want - (double)y[i * s->rows + r]);
            if (!(error <= worst * terms)) worst = error / terms;
        }
    }
    free(x);
    free(in);
    return worst;
}

static void check(struct backend *b, const struct format *f, int n, int64_t rows, int64_t cols,
                  const struct input_scheme *input, struct rng *r)
{
    struct scene s = {
        .f = f, .n = n, .rows = rows, .cols = cols, .x_stride = cols + rng_below(r, 4), .input = input
    };
    float *y = malloc((size_t)(n * rows) * sizeof *y);
    if (cols % f->block_weights) fail_msg("%s has no rows of %d", f->name, (int)cols);
    scene_make(&s, r);
    scene_run(b, &s, NULL, NULL, y);
    const double worst = worst_of(&s, y, true), plain = worst_of(&s, y, false);
    if (!(worst <= 1e-6))
        fail_msg("%s n %d rows %d cols %d: worst %.3g", f->name, n, (int)rows, (int)cols, worst);
    CHECK_GT(plain, 1e-5); /* as it is not without rounding */
    scene_free(&s);
    free(y);
}

/* ---------------------------------------------------------------- tests */

static void every_format(void **state)
{
    (void)state;
    enum { INTEGER_FORMATS = 35 };
    struct backend *b = int8_or_skip(PRECISION_AUTO);
    struct rng r = { 21 };
    int count = 0;
    for (int id = 0; id < FORMAT_COUNT; id++) {
        const struct format *f = &FORMATS[id];
        if (!opencl_code_bits(f)) continue;
        check(b, f, 1, 35, 1280, NULL, &r);
        check(b, f, 33, 37, 768, NULL, &r);
        count++;
    }
    CHECK_EQ(count, INTEGER_FORMATS);
    backend_close(b);
}

/* One of each way in which codes are cut and scales lie, at all sizes. */
static void every_size(void **state)
{
    (void)state;
    static const enum format_id IDS[] = { FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_Q2_K };
    struct backend *b = int8_or_skip(PRECISION_AUTO);
    struct rng r = { 22 };
    for (size_t i = 0; i < COUNT_OF(IDS); i++) {
        const struct format *f = &FORMATS[IDS[i]];
        const int64_t least = f->block_weights;
        for (int n = 1; n <= PRODUCT_FEW_MAX; n++) check(b, f, n, 2 * n + 1, 256 * n, NULL, &r);
        check(b, f, 9, 70, 3 * least, NULL, &r);
        check(b, f, 32, 1, 2 * least, NULL, &r);
        check(b, f, 67, 65, least, NULL, &r);
        check(b, f, N_MAX, ROWS_MAX, 1024, NULL, &r);
    }
    check(b, &FORMATS[FORMAT_Q4_0], 5, 3, 32, NULL, &r);
    backend_close(b);
}

/* The work-group shapes of GPUs give correct results on this device, too. */
static void other_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        enum format_id format;
        int n;
    } CASES[] = {
        { "product.one_int8.4bit", "lanes=32 ways=4 rows=2", FORMAT_Q4_K, 1 },
        { "product.few_int8.8bit", "lanes=16 ways=3 rows=4", FORMAT_U8_G64, 7 },
        { "product.narrow_int8.4bit", "tm=64 tn=16 rm=4 rn=2", FORMAT_Q6_K, 20 },
        { "product.wide_int8.2bit", "tm=64 tn=64 rm=4 rn=4", FORMAT_Q3_K, 70 },
    };
    struct backend *b = int8_or_skip(PRECISION_AUTO);
    struct rng r = { 23 };
    struct err why;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        char name[OPENCL_TUNING_TEXT];
        int at = 0;
        while (at < OPENCL_TUNINGS && strcmp(opencl_tuning_name(at, name, sizeof name), CASES[i].name)) at++;
        CHECK_OK(opencl_tuning_use(b, at, CASES[i].text, &why));
        CHECK(opencl_tuning_is_used(at));
        check(b, &FORMATS[CASES[i].format], CASES[i].n, 75, 512, NULL, &r);
        CHECK_EQ(opencl_tuning_use(b, at,
                                   CASES[i].n > 8 ? "tm=32 tn=32 rm=2 rn=2 half_tiles"
                                                  : "lanes=8 ways=1 rows=1 staged",
                                   &why),
                 ERR_FORMAT);
    }
    for (int i = 0, used = 0; i < OPENCL_TUNINGS; i++) {
        used += opencl_tuning_is_used(i);
        if (i == OPENCL_TUNINGS - 1)
            CHECK_EQ(used, 4 * WEIGHT_FAMILY_COUNT + 4 * (WEIGHT_FAMILY_COUNT - FAMILY_8));
    }
    backend_close(b);
}

/* Order and division come before rounding; bias and residual after all. */
static void treated(void **state)
{
    (void)state;
    enum { IN = 288, OUT = 21, N = 11 };
    static int32_t order[IN];
    static float divide[IN], y[2][N * OUT], bias[OUT], residual[N * OUT];
    struct backend *b = int8_or_skip(PRECISION_MEDIUM);
    struct rng r = { 24 };
    shuffle(&r, order, IN);
    for (int i = 0; i < IN; i++) divide[i] = (float)(1 << rng_below(&r, 3)); /* exact everywhere */
    const struct input_scheme s = { .order = order, .divide = divide };
    for (int n = 1; n <= N; n += N - 1) check(b, &FORMATS[FORMAT_Q4_0], n, OUT, IN, &s, &r);
    struct scene t = { .f = &FORMATS[FORMAT_INT8], .n = N, .rows = OUT, .cols = IN, .x_stride = IN };
    scene_make(&t, &r);
    fill_gauss(&r, bias, OUT, 1);
    fill_gauss(&r, residual, N * OUT, 1);
    scene_run(b, &t, NULL, NULL, y[0]);
    scene_run(b, &t, bias, residual, y[1]);
    for (int i = 0; i < N * OUT; i++) {
        const float want = y[0][i] + bias[i % OUT] + residual[i];
        CHECK_NEAR(y[1][i], want, 1e-6 * (double)(fabsf(y[0][i]) + 8));
    }
    scene_free(&t);
    backend_close(b);
}

/* Products of one x in one call: each format gets the codes in its own order. */
static void made_once(void **state)
{
    (void)state;
    enum { IN = 512, OUT = 16, N = 3 };
    static const enum format_id IDS[] = { FORMAT_Q4_0, FORMAT_Q4_1, FORMAT_Q8_0,
                                          FORMAT_F16,  FORMAT_Q2_K, FORMAT_Q4_0 };
    enum { COUNT = COUNT_OF(IDS) };
    static float x[N * IN], values[OUT * IN], one[COUNT][N * OUT], all[COUNT][N * OUT];
    static uint8_t bytes[OUT * IN * 2];
    struct backend *b = int8_or_skip(PRECISION_AUTO);
    struct weight w[COUNT];
    struct matmul m[COUNT];
    struct err why;
    struct rng r = { 25 };
    fill_gauss(&r, x, N * IN, 1);
    fill_gauss(&r, values, OUT * IN, 1);
    float *there = sent(b, x, N * IN);
    for (int i = 0; i < COUNT; i++) {
        format_encode_rows(&FORMATS[IDS[i]], values, bytes, OUT, IN);
        CHECK_OK(backend_weight_bind(b, &w[i], &FORMATS[IDS[i]], OUT, IN, NULL, bytes, &why));
        m[i] = (struct matmul){ .w = &w[i], .x = there, .x_stride = IN, .n = N, .y_stride = OUT };
        m[i].y = sent(b, one[i], N * OUT);
        backend_matmul(b, &m[i], 1);
        fetched(b, one[i], m[i].y, N * OUT);
    }
    backend_matmul(b, m, COUNT);
    for (int i = 0; i < COUNT; i++) fetched(b, all[i], m[i].y, N * OUT);
    assert_memory_equal(all, one, sizeof all);
    for (int i = 1; i < COUNT; i++) CHECK_LT(nmse(one[0], one[i], N * OUT), 0.2); /* q2_K: 0.08 */
    backend_close(b);
}

/* Float formats keep f32, and so does every format at higher precisions. */
static void left_alone(void **state)
{
    (void)state;
    static const struct {
        enum format_id format;
        enum precision precision;
    } CASES[] = { { FORMAT_F16, PRECISION_MEDIUM },
                  { FORMAT_NF4, PRECISION_MEDIUM },
                  { FORMAT_FP8_E4M3, PRECISION_AUTO },
                  { FORMAT_Q8_0, PRECISION_HIGHEST } };
    struct rng r = { 26 };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        float y[7];
        struct backend *b = int8_or_skip(CASES[i].precision);
        struct scene s = { .f = &FORMATS[CASES[i].format], .n = 1, .rows = 7, .cols = 256, .x_stride = 256 };
        scene_make(&s, &r);
        scene_run(b, &s, NULL, NULL, y);
        CHECK_LE(worst_of(&s, y, false), 1e-6);
        scene_free(&s);
        backend_close(b);
    }
}

/* NaN and infinite inputs do not become finite results. */
static void not_finite(void **state)
{
    (void)state;
    enum { IN = 64, OUT = 3 };
    struct backend *b = int8_or_skip(PRECISION_AUTO);
    struct rng r = { 27 };
    for (int i = 0; i < 2; i++) {
        float y[OUT];
        struct scene s = { .f = &FORMATS[FORMAT_Q4_0], .n = 1, .rows = OUT, .cols = IN, .x_stride = IN };
        scene_make(&s, &r);
        s.x[IN - 5] = i ? INFINITY : NAN;
        scene_run(b, &s, NULL, NULL, y);
        for (int j = 0; j < OUT; j++) CHECK(!isfinite(y[j]));
        scene_free(&s);
    }
    backend_close(b);
}

static void scratch_as_planned(void **state)
{
    (void)state;
    enum { ROWS = 512, COLS = 11008 };
    struct backend_options o = { .threads = 1 };
    const int64_t floats = opencl_product_scratch_bytes(&o, ROWS, COLS);
    o.activations = ACTIVATIONS_INT8;
    CHECK_EQ(opencl_product_scratch_bytes(&o, ROWS, COLS), floats + ROWS * COLS * 5 / 4);
    const struct backend_work work = { .rows = ROWS, .cols = COLS };
    CHECK_GE(opencl_scratch_bytes(&o, &work), floats + ROWS * COLS * 5 / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format), cmocka_unit_test(every_size),         cmocka_unit_test(other_shapes),
        cmocka_unit_test(treated),      cmocka_unit_test(made_once),          cmocka_unit_test(left_alone),
        cmocka_unit_test(not_finite),   cmocka_unit_test(scratch_as_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
