/* Proves: an OpenCL device decodes the rows of every format to the bits of the CPU, whatever their bytes.
 * Products are within the bounds of kernels/README.md for one, few, many and odd numbers of rows, with bias,
 * residual in place and strides, against binary64; also with reordered and divided inputs. The device memory
 * used is as estimated. */
#include "kernels/opencl/weights.h"
#include "tests/kernels/opencl_here.h"
#include "tests/kernels/input_schemes.h"

enum { ROWS_MAX = 80, COLS_MAX = 4160 };

/* ---------------------------------------------------------------- rows */

/* Random bytes are every code under every scale, infinite ones and NaN too; but f32 scales of a row or a
 * block (and f32 itself) would be out of all bounds for most: those are small numbers. */
static void random_rows(const struct format *f, int64_t rows, int64_t cols, struct rng *r, uint8_t *out)
{
    const int64_t row_bytes = format_row_bytes(f, cols);
    for (int64_t i = 0; i < rows * row_bytes; i++) out[i] = (uint8_t)rng_u32(r);
    for (int64_t i = 0; i < rows && f->row_tail_bytes; i++) {
        const float scale = rng_gauss(r, 1);
        memcpy(out + i * row_bytes + format_span_bytes(f, cols), &scale, sizeof scale);
    }
}

static bool same(float a, float b)
{
    return isnan(a) ? isnan(b) : !memcmp(&a, &b, sizeof a);
}

static void check_rows(struct backend *b, const struct format *f, int64_t rows, int64_t cols,
                       const void *bytes)
{
    enum { N = 5 };
    struct err why;
    struct weight w;
    int32_t ids[N];
    float *want = malloc((size_t)(rows * cols) * sizeof *want),
          *got = malloc((size_t)(N * (cols + 3)) * sizeof *got);
    for (int i = 0; i < N; i++) ids[i] = (int32_t)(rows - 1 - i * 7 % rows);
    format_decode_rows(f, bytes, want, rows, cols);
    CHECK_OK(backend_weight_bind(b, &w, f, rows, cols, NULL, bytes, &why));
    for (int add = 0; add < 2; add++) {
        for (int64_t i = 0; i < N * (cols + 3); i++) got[i] = 0.5f;
        float *there = sent(b, got, N * (cols + 3));
        backend_gather(b, &(struct gather){ .table = &w,
                                            .ids = ids,
                                            .n = N,
                                            .y = there,
                                            .y_stride = cols + 3,
                                            .add = add,
                                            .scale = add ? 2 : 1 });
        fetched(b, got, there, N * (cols + 3));
        for (int64_t i = 0; i < N; i++)
            for (int64_t k = 0; k < cols + 3; k++) {
                const float row = k < cols ? want[ids[i] * cols + k] : 0, y = got[i * (cols + 3) + k];
                const float wanted = k >= cols ? 0.5f : add ? 0.5f + row * 2 : row;
                if (!same(wanted, y))
                    fail_msg("%s row %d weight %d of %d: %a, want %a", f->name, ids[i], (int)k, (int)cols,
                             (double)y, (double)wanted);
            }
        backend_free(b, there);
    }
    backend_weight_release(b, &w);
    free(want);
    free(got);
}

static void rows_as_decoded(void **state)
{
    (void)state;
    enum { ROWS = 9 };
    static const int64_t COLS[] = { 1, 5, 531, 32, 160, 256, 768 };
    static uint8_t bytes[ROWS * 768 * 4];
    struct backend *b = opencl_or_skip(16, 1024);
    struct rng r = { 3 };
    for (int id = 0; id < FORMAT_COUNT; id++) {
        const struct format *f = &FORMATS[id];
        for (size_t c = 0; c < COUNT_OF(COLS) && f->decode; c++) {
            if (COLS[c] % f->block_weights) continue;
            random_rows(f, ROWS, COLS[c], &r, bytes);
            check_rows(b, f, ROWS, COLS[c], bytes);
        }
    }
    backend_close(b);
}

/* Every code there is of the small floats, subnormal and not finite too. */
static void every_code(void **state)
{
    (void)state;
    enum { ROWS = 32, COLS = 2048 };
    static const enum format_id WIDE[] = { FORMAT_F16, FORMAT_BF16 },
                                NARROW[] = { FORMAT_FP8_E4M3, FORMAT_FP8_E5M2 };
    static uint16_t codes[ROWS * COLS];
    static uint8_t row[256 + 4];
    const float one = 1;
    struct backend *b = opencl_or_skip(16, 1024);
    for (int i = 0; i < ROWS * COLS; i++) codes[i] = (uint16_t)(i * 5);
    for (size_t i = 0; i < COUNT_OF(WIDE); i++)
        for (int first = 0; first < ROWS; first += 5)
            check_rows(b, &FORMATS[WIDE[i]], MIN(5, ROWS - first), COLS, codes + first * COLS);
    for (int i = 0; i < 256; i++) row[i] = (uint8_t)i;
    memcpy(row + 256, &one, sizeof one);
    for (size_t i = 0; i < COUNT_OF(NARROW); i++) check_rows(b, &FORMATS[NARROW[i]], 1, 256, row);
    backend_close(b);
}

/* A table that is not stored weights, but f32 rows that the backend made. */
static void rows_of_activations(void **state)
{
    (void)state;
    enum { ROWS = 6, COLS = 77, N = 3 };
    static const int32_t IDS[N] = { 5, 0, 5 };
    float x[ROWS * COLS], y[N * COLS];
    struct backend *b = opencl_or_skip(16, 1024);
    struct rng r = { 4 };
    fill_gauss(&r, x, COUNT_OF(x), 1);
    float *there = sent(b, x, COUNT_OF(x)), *out = sent(b, x, COUNT_OF(y));
    const struct weight w = {
        .format = &FORMATS[FORMAT_F32], .rows = ROWS - 1, .cols = COLS, .data = there + COLS
    };
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = IDS[i] ? IDS[i] - 1 : 0;
    backend_gather(
        b, &(struct gather){ .table = &w, .ids = ids, .n = N, .y = out, .y_stride = COLS, .scale = 1 });
    fetched(b, y, out, COUNT_OF(y));
    for (int i = 0; i < N; i++) assert_memory_equal(y + i * COLS, x + (ids[i] + 1) * COLS, COLS * sizeof *y);
    backend_close(b);
}

/* ---------------------------------------------------------------- products */

struct shape {
    int n;
    int64_t rows, cols;
};

struct fixture {
    struct shape s;
    const struct format *f;
    int64_t x_stride, y_stride;
    float *x, *bias, *weights, *before;
    void *bytes;
};

static float *floats(int64_t n)
{
    return malloc((size_t)n * sizeof(float));
}

static void fixture_make(struct fixture *t, const struct format *f, const struct shape *s, struct rng *r)
{
    *t = (struct fixture){ .s = *s, .f = f };
    t->x_stride = s->cols + rng_below(r, 2) * 4 + rng_below(r, 2); /* aligned and not */
    t->y_stride = s->rows + rng_below(r, 3);
    t->x = floats(s->n * t->x_stride);
    t->bias = floats(s->rows);
    t->weights = floats(s->rows * s->cols);
    t->before = floats(s->n * t->y_stride);
    t->bytes = malloc((size_t)(s->rows * format_row_bytes(f, s->cols)));
    fill_gauss(r, t->x, s->n * t->x_stride, 1);
    fill_gauss(r, t->bias, s->rows, 1);
    fill_gauss(r, t->before, s->n * t->y_stride, 1);
    fill_gauss(r, t->weights, s->rows * s->cols, 0.05);
    format_encode_rows(f, t->weights, t->bytes, s->rows, s->cols);
    format_decode_rows(f, t->bytes, t->weights, s->rows, s->cols);
    for (int i = 0; i < s->n; i++) /* what lies between the rows of x must not count */
        for (int64_t k = s->cols; k < t->x_stride; k++) t->x[i * t->x_stride + k] = NAN;
}

static void fixture_free(struct fixture *t)
{
    free(t->x);
    free(t->bias);
    free(t->weights);
    free(t->before);
    free(t->bytes);
}

/* Largest |error| / sum |terms| of what came out. */
static double worst_of(const struct fixture *t, const float *y, bool bias, bool residual)
{
    double worst = 0;
    for (int i = 0; i < t->s.n; i++)
        for (int64_t r = 0; r < t->s.rows; r++) {
            const float before = residual ? t->before[i * t->y_stride + r] : 0, added = bias ? t->bias[r] : 0;
            double want = (double)before + added, terms = fabs(before) + fabs(added);
            for (int64_t k = 0; k < t->s.cols; k++) {
                const double term = (double)t->x[i * t->x_stride + k] * t->weights[r * t->s.cols + k];
                want += term, terms += fabs(term);
            }
            const double error = fabs(want - y[i * t->y_stride + r]),
                         relative = error == 0 ? 0 : error / terms;
            if (!(relative <= worst)) worst = relative;
        }
    return worst;
}

/* Plain; with bias; with bias and residual in place. */
static void check_products(struct backend *b, const struct fixture *t)
{
    struct err why;
    struct weight w;
    const int64_t all = t->s.n * t->y_stride;
    float *x = sent(b, t->x, t->s.n * t->x_stride), *bias = sent(b, t->bias, t->s.rows), *y = floats(all);
    CHECK_OK(backend_weight_bind(b, &w, t->f, t->s.rows, t->s.cols, NULL, t->bytes, &why));
    for (int variant = 0; variant < 3; variant++) {
        float *there = sent(b, t->before, all);
        backend_matmul(b,
                       &(struct matmul){ .w = &w,
                                         .x = x,
                                         .x_stride = t->x_stride,
                                         .n = t->s.n,
                                         .bias = variant ? bias : NULL,
                                         .residual = variant == 2 ? there : NULL,
                                         .y = there,
                                         .y_stride = t->y_stride },
                       1);
        fetched(b, y, there, all);
        const double worst = worst_of(t, y, variant > 0, variant == 2);
        if (!(worst <= 1e-6))
            fail_msg("%s n %d rows %d cols %d variant %d: worst %.3g", t->f->name, t->s.n, (int)t->s.rows,
                     (int)t->s.cols, variant, worst);
        for (int i = 0; i < t->s.n; i++) /* what lies between the rows stays */
            for (int64_t j = t->s.rows; j < t->y_stride; j++)
                CHECK_EQ(y[i * t->y_stride + j], t->before[i * t->y_stride + j]);
        backend_free(b, there);
    }
    backend_weight_release(b, &w);
    backend_free(b, x);
    backend_free(b, bias);
    free(y);
}

static void run_shapes_on(struct backend *b, const struct shape *shapes, size_t count,
                          const enum format_id *ids, size_t id_count)
{
    struct rng r = { 42 };
    for (size_t i = 0; i < id_count; i++)
        for (size_t s = 0; s < count; s++) {
            const struct format *f = &FORMATS[ids[i]];
            if (!f->encode || shapes[s].cols % f->block_weights) continue;
            struct fixture t;
            fixture_make(&t, f, &shapes[s], &r);
            check_products(b, &t);
            fixture_free(&t);
        }
}

static void run_shapes(const struct shape *shapes, size_t count, const enum format_id *ids, size_t id_count)
{
    struct backend *b = opencl_or_skip(128, COLS_MAX);
    run_shapes_on(b, shapes, count, ids, id_count);
    backend_close(b);
}

/* All formats, one row of x: what else runs decodes as look-ups do. */
static void every_format(void **state)
{
    (void)state;
    static const struct shape SHAPES[] = { { 1, 37, 1280 }, { 1, 5, 96 }, { 1, 3, 85 }, { 1, 2, 1 } };
    enum format_id ids[FORMAT_COUNT];
    for (int i = 0; i < FORMAT_COUNT; i++) ids[i] = (enum format_id)i;
    run_shapes(SHAPES, COUNT_OF(SHAPES), ids, FORMAT_COUNT);
}

/* More rows, of formats whose scales are applied to weights, and to results. */
static void every_scale(void **state)
{
    (void)state;
    static const struct shape SHAPES[] = {
        { 7, 19, 768 },  { 5, 9, 160 },  { 6, 2, 531 },  { 8, 64, 288 },
        { 40, 70, 256 }, { 67, 5, 352 }, { 33, 65, 41 }, { 100, 129, 1024 }
    };
    static const enum format_id IDS[] = { FORMAT_Q5_1, FORMAT_FP8_E4M3 };
    run_shapes(SHAPES, COUNT_OF(SHAPES), IDS, COUNT_OF(IDS));
}

static void every_shape(void **state)
{
    (void)state;
    static const struct shape SHAPES[] = { { 1, 1, 32 },    { 2, 33, 4160 }, { 3, 8, 64 },
                                           { 4, 17, 1056 }, { 9, 70, 96 },   { 20, 130, 640 },
                                           { 32, 1, 96 },   { 1, 600, 256 }, { 35, 31, 512 } };
    static const enum format_id IDS[] = { FORMAT_Q4_0 };
    run_shapes(SHAPES, COUNT_OF(SHAPES), IDS, COUNT_OF(IDS));
}

/* Several at once, n = 0 among them; and act(gate) * up as products and the activation one after another. */
static void together(void **state)
{
    (void)state;
    enum { ROWS = 48, COLS = 64 };
    static const int NS[] = { 1, 20 };
    struct backend *b = opencl_or_skip(32, COLS);
    struct rng r = { 8 };
    struct err why;
    for (size_t i = 0; i < COUNT_OF(NS); i++) {
        struct fixture t[2];
        struct weight w[2];
        struct matmul m[3];
        const int n = NS[i];
        for (int j = 0; j < 2; j++) {
            fixture_make(&t[j], &FORMATS[j ? FORMAT_Q8_0 : FORMAT_Q4_0], &(struct shape){ n, ROWS, COLS },
                         &r);
            CHECK_OK(backend_weight_bind(b, &w[j], t[j].f, ROWS, COLS, NULL, t[j].bytes, &why));
        }
        float *x = sent(b, t[0].x, n * t[0].x_stride),
              *y[2] = { sent(b, t[0].before, n * ROWS), sent(b, t[0].before, n * ROWS) };
        static float gate[20 * ROWS], up[20 * ROWS], got[20 * ROWS];
        for (int j = 0; j < 2; j++)
            m[2 * j] = (struct matmul){
                .w = &w[j], .x = x, .x_stride = t[0].x_stride, .n = n, .y = y[j], .y_stride = ROWS
            };
        m[1] = m[0];
        m[1].n = 0;
        m[1].x = m[1].y = NULL;
        backend_matmul(b, m, 3);
        fetched(b, gate, y[0], n * ROWS);
        fetched(b, up, y[1], n * ROWS);
        backend_gated(
            b, &(struct gated){ .gate = m[0], .up = m[2], .act = ACT_SILU, .y = y[0], .y_stride = ROWS });
        fetched(b, got, y[0], n * ROWS);
        for (int j = 0; j < n * ROWS; j++) {
            const double want = gate[j] / (1 + exp(-(double)gate[j])) * up[j];
            CHECK_NEAR(got[j], want, 1e-5 * (1 + fabs(want)));
        }
        for (int j = 0; j < 2; j++) {
            fixture_free(&t[j]);
            backend_weight_release(b, &w[j]);
        }
    }
    backend_close(b);
}

/* ---------------------------------------------------------------- inputs */

enum { IN = 192, OUT = 24, MANY = 11 };

struct treated {
    enum format_id format;
    struct input_scheme s;
};

/* A product and a look-up on that device. */
static void run_treated(struct backend *b, const struct treated *t, const void *bytes, int n, float *x,
                        float *y, float *row)
{
    static const int32_t ID = 7;
    struct err why;
    struct weight w;
    CHECK_OK(backend_weight_bind(b, &w, &FORMATS[t->format], OUT, IN, &t->s, bytes, &why));
    float *there = sent(b, x, n * IN), *out = sent(b, x, MAX(n * OUT, IN));
    backend_matmul(
        b, &(struct matmul){ .w = &w, .x = there, .x_stride = IN, .n = n, .y = out, .y_stride = OUT }, 1);
    fetched(b, y, out, n * OUT);
    backend_gather(b,
                   &(struct gather){ .table = &w, .ids = &ID, .n = 1, .y = out, .y_stride = IN, .scale = 3 });
    fetched(b, row, out, IN);
    backend_free(b, there);
    backend_free(b, out);
    backend_weight_release(b, &w);
}

/* Reordered, divided and rounded as on a CPU: one code that differs would be seen. */
static void treated(void **state)
{
    (void)state;
    static int32_t order[IN];
    static float divide[IN], values[OUT * IN], x[MANY * IN], y[2][MANY * OUT], row[2][IN];
    static uint8_t bytes[OUT * (IN + 4) * 4];
    const struct treated CASES[] = {
        { FORMAT_Q8_0, { .order = order, .divide = divide } },
        { FORMAT_F16, { .divide = divide } },
        { FORMAT_INT8, { .kind = INPUT_INT8_TOKEN } },
        { FORMAT_INT8, { .kind = INPUT_INT8_TOKEN, .order = order, .divide = divide } },
        { FORMAT_INT8, { .kind = INPUT_INT8_STATIC, .scale = 0.03f, .zero = 125, .most = 200 } },
        { FORMAT_FP8_E4M3, { .kind = INPUT_FP8_TOKEN, .limit = 2 } },
        { FORMAT_FP8_E5M2, { .kind = INPUT_FP8_TOKEN, .divide = divide } },
        { FORMAT_FP8_E4M3, { .kind = INPUT_FP8_STATIC, .scale = 0.01f } },
        { FORMAT_F32, { .kind = INPUT_TF32 } },
    };
    struct backend *there = opencl_or_skip(MANY, IN),
                   *here = backend_for(isa_detect(), PRECISION_HIGHEST, ACTIVATIONS_AUTO, MANY, IN);
    struct rng r = { 15 };
    shuffle(&r, order, IN);
    for (int i = 0; i < IN; i++) divide[i] = (float)exp((double)rng_gauss(&r, 0.5));
    fill_gauss(&r, values, OUT * IN, 1);
    fill_gauss(&r, x, MANY * IN, 2);
    x[IN + 3] = 1e-6f, x[IN + 4] = 300; /* a token with an outlier: most of its numbers are small */
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        const struct treated *t = &CASES[c];
        format_encode_rows(&FORMATS[t->format], values, bytes, OUT, IN);
        for (int n = 1; n <= MANY; n += MANY - 1) {
            run_treated(here, t, bytes, n, x, y[0], row[0]);
            run_treated(there, t, bytes, n, x, y[1], row[1]);
            for (int i = 0; i < n * OUT; i++) /* sums of about 14 * 2, or 300 in that token */
                CHECK_NEAR(y[1][i], y[0][i], (i / OUT == 1 ? 1e-3 : 1e-4));
            for (int k = 0; k < IN; k++) CHECK_NEAR(row[1][k], row[0][k], 1e-6 * fabs(row[0][k]));
        }
    }
    backend_close(here);
    backend_close(there);
}

/* Products of one x that are handed over together share inputs only where they may. */
static void made_once(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    static int32_t order[IN];
    static float divide[IN], values[OUT * IN], x[MANY * IN], one[COUNT][MANY * OUT], all[COUNT][MANY * OUT];
    static uint8_t bytes[OUT * (IN + 4)];
    const struct input_scheme SCHEMES[COUNT] = { { .kind = INPUT_INT8_TOKEN, .order = order },
                                                 { .kind = INPUT_INT8_TOKEN, .order = order },
                                                 { .kind = INPUT_INT8_TOKEN, .divide = divide },
                                                 { .kind = INPUT_FREE } };
    struct backend *b = opencl_or_skip(MANY, IN);
    struct rng r = { 16 };
    struct weight w[COUNT];
    struct matmul m[COUNT];
    struct err why;
    shuffle(&r, order, IN);
    for (int i = 0; i < IN; i++) divide[i] = 2;
    fill_gauss(&r, x, MANY * IN, 1);
    fill_gauss(&r, values, OUT * IN, 1);
    format_encode_rows(&FORMATS[FORMAT_INT8], values, bytes, OUT, IN);
    float *there = sent(b, x, MANY * IN);
    for (int i = 0; i < COUNT; i++) {
        CHECK_OK(backend_weight_bind(b, &w[i], &FORMATS[FORMAT_INT8], OUT, IN, &SCHEMES[i], bytes, &why));
        m[i] = (struct matmul){ .w = &w[i], .x = there, .x_stride = IN, .n = MANY, .y_stride = OUT };
        m[i].y = sent(b, one[i], MANY * OUT);
        backend_matmul(b, &m[i], 1);
        fetched(b, one[i], m[i].y, MANY * OUT);
    }
    backend_matmul(b, m, COUNT);
    for (int i = 0; i < COUNT; i++) fetched(b, all[i], m[i].y, MANY * OUT);
    assert_memory_equal(all, one, sizeof all);
    assert_memory_equal(all[0], all[1], sizeof all[0]);
    CHECK(memcmp(all[1], all[2], sizeof all[0]));
    CHECK(memcmp(all[2], all[3], sizeof all[0]));
    backend_close(b);
}

/* What a device does not do is said before anything runs. */
static void refused(void **state)
{
    (void)state;
    static const enum input_kind KINDS[] = { INPUT_INT8_TENSOR, INPUT_INT8_OUTLIERS };
    static const uint8_t BYTES[36];
    struct backend *b = opencl_or_skip(16, 1024);
    for (size_t i = 0; i < COUNT_OF(KINDS); i++) {
        const struct input_scheme s = { .kind = KINDS[i] };
        struct weight w;
        struct err why = { 0 };
        CHECK_EQ(backend_weight_bind(b, &w, &FORMATS[FORMAT_INT8], 1, 32, &s, BYTES, &why), ERR_USAGE);
        CHECK_CONTAINS(why.message, "device=cpu");
        CHECK_CONTAINS(why.message, input_kind_name(KINDS[i]));
    }
    backend_close(b);
}

/* Formats whose codes get more bits on a device take the most there: 4 bits instead of a row of a codebook,
 * 2 instead of 1. */
static int64_t percent_most(const struct format *f)
{
    if (f == &FORMATS[FORMAT_Q1_0]) return 201;
    if (!strncmp(f->name, "iq1", 3)) return 281;
    if (!strncmp(f->name, "iq2", 3)) return 213;
    if (!strncmp(f->name, "iq3", 3)) return 144;
    return f == &FORMATS[FORMAT_TQ1_0] ? 123 : 104;
}

/* The plan knows what a matrix takes on the device: little more than in the file. */
static void bytes_as_planned(void **state)
{
    (void)state;
    enum { ROWS = 64, COLS = 1024 };
    static uint8_t bytes[ROWS * (COLS + 4) * 4];
    struct backend *b = opencl_or_skip(16, 1024);
    for (int id = 0; id < FORMAT_COUNT; id++) {
        const struct format *f = &FORMATS[id];
        struct backend_info before, after;
        struct weight w;
        struct err why;
        if (!f->decode) continue;
        const int64_t planned = opencl_weight_bytes(f, ROWS, COLS, 0),
                      stored = ROWS * format_row_bytes(f, COLS);
        backend_describe(b, &before);
        CHECK_OK(backend_weight_bind(b, &w, f, ROWS, COLS, NULL, bytes, &why));
        backend_describe(b, &after);
        CHECK_EQ(after.copied_bytes - before.copied_bytes, planned);
        CHECK_LE(stored * 99 / 100, planned);
        CHECK_LE(planned, stored * percent_most(f) / 100);
        backend_weight_release(b, &w);
    }
    backend_close(b);
}

/* ---------------------------------------------------------------- shapes of work */

static int tuning_of(const char *name)
{
    char buf[OPENCL_TUNING_TEXT];
    for (int i = 0; i < OPENCL_TUNINGS; i++)
        if (!strcmp(opencl_tuning_name(i, buf, sizeof buf), name)) return i;
    fail_msg("there is no tuning %s", name);
    return -1;
}

/* What GPUs run is right here, too. */
static void other_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        struct shape s;
    } CASES[] = {
        { "product.one.4bit", "lanes=32 ways=4 rows=2 staged", { 1, 37, 4160 } },
        { "product.few.4bit", "lanes=16 ways=3 rows=2 staged", { 3, 37, 256 } },
        { "product.one.16bit", "lanes=32 ways=2 rows=2 staged", { 1, 9, 531 } },
        { "product.narrow.4bit", "tm=64 tn=16 rm=4 rn=2", { 20, 70, 96 } },
        { "product.wide.4bit", "tm=64 tn=64 rm=4 rn=4", { 70, 100, 288 } },
    };
    static const enum format_id IDS[] = { FORMAT_Q4_0, FORMAT_F16 };
    struct backend *b = opencl_or_skip(128, COLS_MAX);
    struct err why;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        CHECK_OK(opencl_tuning_use(b, tuning_of(CASES[i].name), CASES[i].text, &why));
        run_shapes_on(b, &CASES[i].s, 1, &IDS[strstr(CASES[i].name, "16bit") != NULL], 1);
    }
    backend_close(b);
}

/* Weights in f16 tiles, where rounding is allowed: other numbers, but hardly. */
static void half_tiles(void **state)
{
    (void)state;
    enum { N = 40, ROWS = 33, COLS = 96 };
    static float y[2][N * ROWS];
    struct rng r = { 77 };
    struct fixture t;
    struct err why;
    fixture_make(&t, &FORMATS[FORMAT_Q4_0], &(struct shape){ N, ROWS, COLS }, &r);
    for (int half = 0; half < 2; half++) {
        struct device_info device;
        struct backend *b;
        struct weight w;
        if (!opencl_devices(&device, 1)) skip();
        const struct backend_options o = { .threads = 1,
                                           .precision = half ? PRECISION_AUTO : PRECISION_HIGHEST };
        CHECK_OK(backend_open(&b, device.name, &o, &why));
        CHECK_OK(
            opencl_tuning_use(b, tuning_of("product.wide.4bit"), "tm=32 tn=32 rm=2 rn=2 half_tiles", &why));
        CHECK_OK(backend_weight_bind(b, &w, t.f, ROWS, COLS, NULL, t.bytes, &why));
        float *x = sent(b, t.x, N * t.x_stride), *out = sent(b, y[half], N * ROWS);
        backend_matmul(
            b,
            &(struct matmul){ .w = &w, .x = x, .x_stride = t.x_stride, .n = N, .y = out, .y_stride = ROWS },
            1);
        fetched(b, y[half], out, N * ROWS);
        backend_close(b);
    }
    const double error = nmse(y[0], y[1], N * ROWS);
    CHECK_LT(1e-10, error);
    CHECK_LT(error, 1e-6); /* 11 bits: 4e-8 */
    fixture_free(&t);
}

/* What is measured is used and comes back as text; what no device could run is refused. */
static void measured(void **state)
{
    (void)state;
    static const char *const BAD[] = { "",
                                       "lanes=32",
                                       "lanes=32 ways=4 rows=2 staged and more",
                                       "lanes=24 ways=1 rows=1",
                                       "lanes=32768 ways=100 rows=1",
                                       "lanes=32 ways=0 rows=1",
                                       "tm=64 tn=64 rm=4 rn=4" };
    struct backend *b = opencl_or_skip(16, 1024);
    struct opencl_trial trials[8];
    char text[OPENCL_TUNING_TEXT];
    struct err why;
    int count = 0;
    const int one = tuning_of("product.one.4bit");
    CHECK_OK(opencl_tune(b, one, text, trials, COUNT_OF(trials), &count, &why));
    CHECK_GE(count, 2);
    const struct opencl_trial *best = &trials[0];
    for (int i = 1; i < count; i++)
        if (trials[i].seconds < best->seconds) best = &trials[i];
    assert_string_equal(text, best->text);
    CHECK_GT(best->seconds, 0);
    CHECK_OK(opencl_tuning_use(b, one, text, &why));
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        if (opencl_tuning_use(b, one, BAD[i], &why) != ERR_FORMAT)
            fail_msg("'%s' is taken for a shape", BAD[i]);
        CHECK_CONTAINS(why.message, "product.one.4bit");
    }
    CHECK_EQ(opencl_tuning_use(b, tuning_of("product.wide.8bit"), "tm=64 tn=64 rm=5 rn=4", &why), ERR_FORMAT);
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_as_decoded),
        cmocka_unit_test(every_code),
        cmocka_unit_test(rows_of_activations),
        cmocka_unit_test(every_format),
        cmocka_unit_test(every_scale),
        cmocka_unit_test(every_shape),
        cmocka_unit_test(together),
        cmocka_unit_test(made_once),
        cmocka_unit_test(treated),
        cmocka_unit_test(refused),
        cmocka_unit_test(bytes_as_planned),
        cmocka_unit_test(other_shapes),
        cmocka_unit_test(half_tiles),
        cmocka_unit_test(measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
