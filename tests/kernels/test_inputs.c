/* Proves: products use the activation quantization that a weight prescribes, on every instruction set, with
 * any number of rows, whatever the backend's options, also for reordered and divided inputs. The expected
 * results come from independent formulas in binary64. */
#include <float.h>

#include "kernels/inputs.h"
#include "tests/kernels/input_schemes.h"

/* ---------------------------------------------------------------- the formulas */

static double nearest_of_kind(double v, int mantissa_bits, int least_exponent, double largest)
{
    int e;
    if (v == 0 || isnan(v)) return v;
    frexp(v, &e); /* |v| = [0.5, 1) * 2^e */
    const int unit = (e - 1 < least_exponent ? least_exponent : e - 1) - mantissa_bits;
    const double r = ldexp(nearbyint(ldexp(v, -unit)), unit);
    return fabs(r) > largest ? copysign(largest, v) : r;
}

static double f16_of(double v)
{
    return nearest_of_kind(v, 10, -14, 65504);
}

/* Expected operands: inputs in the order of the weight's columns, as numbers. left[k]: column k is multiplied
 * as floats. */
struct expected {
    double *x; /* [n][cols] */
    bool *left;
};

static double int8_of(float x, float scale, float reciprocal, int zero)
{
    const float v = scale > 0 ? x / scale : x * reciprocal;
    const double code = zero + nearbyint((double)v);
    return (code < 0 ? 0 : code > 255 ? 255 : code) - zero;
}

static void expect_token(const float *x, int64_t cols, double *out)
{
    const float top = largest_in(x, cols), s = MAX(top, 1e-5f) / 127;
    for (int64_t k = 0; k < cols; k++) out[k] = int8_of(x[k], s, 0, 128) * (double)s;
}

static void expect_tensor(const float *x, int64_t count, double *out)
{
    double low = 0, high = 0;
    for (int64_t i = 0; i < count; i++) low = MIN(low, (double)x[i]), high = MAX(high, (double)x[i]);
    float s = (float)((high - low) / 255);
    if (s == 0) s = 0.1f;
    if (s < 6.1e-5f) { /* the tests' tensors have both signs or are all zeros */
        low *= 6.1e-5f / s, high *= 6.1e-5f / s;
        s = 6.1e-5f;
    }
    const double a = -low / s, b = 255 - high / s;
    const double z = fabs(low / s) < 255 + fabs(high / s) ? a : b;
    const int zero = (int)nearbyint(z < 0 ? 0 : z > 255 ? 255 : z);
    for (int64_t i = 0; i < count; i++) out[i] = int8_of(x[i], 0, 1 / s, zero) * (double)s;
}

static void expect_outliers(const float *x, int n, int64_t cols, float threshold, struct expected *e)
{
    for (int64_t k = 0; k < cols; k++) {
        e->left[k] = false;
        for (int t = 0; t < n && threshold > 0; t++) e->left[k] |= fabs(f16_of(x[t * cols + k])) >= threshold;
    }
    for (int t = 0; t < n; t++) {
        float top = 0;
        for (int64_t k = 0; k < cols; k++) {
            const float v = (float)fabs(f16_of(x[t * cols + k]));
            if (!(threshold > 0) || v < threshold) top = MAX(top, v);
        }
        for (int64_t k = 0; k < cols; k++) {
            const float v = (float)f16_of(x[t * cols + k]);
            e->x[t * cols + k] = e->left[k] ? v
                                 : top == 0 ? 0
                                            : int8_of(v, 0, 1 / top * 127, 128) * top / 127;
        }
    }
}

static void expect_fp8(const float *x, int64_t cols, float limit, bool e5m2, double *out)
{
    float top = largest_in(x, cols);
    if (limit > 0) top = MIN(top, limit);
    const float largest = e5m2 ? 57344 : 448, s = MAX(top, 1e-12f) / largest;
    for (int64_t k = 0; k < cols; k++) {
        const float v = x[k] / s;
        out[k] = s * nearest_of_kind(v, e5m2 ? 2 : 3, e5m2 ? -14 : -6, largest);
    }
}

/* x: [n][cols] reordered and divided. */
static void expect(const struct input_scheme *s, const struct format *f, const float *x, int n, int64_t cols,
                   struct expected *e)
{
    for (int64_t k = 0; k < cols; k++) e->left[k] = false;
    if (s->kind == INPUT_INT8_TENSOR) expect_tensor(x, n * cols, e->x);
    if (s->kind == INPUT_INT8_OUTLIERS) expect_outliers(x, n, cols, s->threshold, e);
    for (int t = 0; t < n; t++) {
        const float *row = x + t * cols;
        double *out = e->x + t * cols;
        switch (s->kind) {
        case INPUT_FREE:
            for (int64_t k = 0; k < cols; k++) out[k] = row[k];
            break;
        case INPUT_INT8_TOKEN: expect_token(row, cols, out); break;
        case INPUT_INT8_STATIC:
            for (int64_t k = 0; k < cols; k++)
                out[k] = fmin(int8_of(row[k], 0, 1 / s->scale, s->zero),
                              (s->most ? s->most : 255) - s->zero) *
                         (double)s->scale;
            break;
        case INPUT_FP8_STATIC:
            for (int64_t k = 0; k < cols; k++)
                out[k] = (f == &FORMATS[FORMAT_FP8_E5M2] ? nearest_of_kind(row[k] / s->scale, 2, -14, 57344)
                                                         : nearest_of_kind(row[k] / s->scale, 3, -6, 448)) *
                         (double)s->scale;
            break;
        case INPUT_FP8_TOKEN: expect_fp8(row, cols, s->limit, f == &FORMATS[FORMAT_FP8_E5M2], out); break;
        case INPUT_TF32:
            for (int64_t k = 0; k < cols; k++) out[k] = nearest_of_kind(row[k], 10, -126, FLT_MAX);
            break;
        default: break;
        }
    }
}

/* ---------------------------------------------------------------- products */

struct fixture {
    const struct format *f;
    int n;
    int64_t rows, cols, x_stride, y_stride;
    struct input_scheme s;
    uint8_t *bytes;
    size_t weight_bytes;
    float *x, *bias, *divide, *decoded;
    int32_t *order, *outliers;
    uint16_t *kept;
    double *product, *terms; /* [n][rows] */
};

static void fixture_fill(struct fixture *t, struct rng *r)
{
    const size_t x_floats = (size_t)((t->n - 1) * t->x_stride + t->cols);
    t->weight_bytes = (size_t)(format_row_bytes(t->f, t->cols) * t->rows);
    t->bytes = guarded(t->weight_bytes, 0);
    t->x = guarded(x_floats * sizeof(float), 0);
    t->bias = guarded((size_t)t->rows * sizeof(float), 0);
    t->decoded = malloc((size_t)(t->rows * t->cols) * sizeof(float));
    fill_gauss(r, t->x, (int64_t)x_floats, 1);
    fill_gauss(r, t->bias, t->rows, 1);
    fill_gauss(r, t->decoded, t->rows * t->cols, 0.05);
    for (int i = 0; i < 5; i++) /* outlier columns and single outliers */
        for (int j = rng_below(r, 3); j < t->n; j += 2)
            t->x[j * t->x_stride + rng_below(r, 8) * (int)t->cols / 8] *= 15;
    if (t->n > 2) memset(t->x + 2 * t->x_stride, 0, (size_t)t->cols * sizeof(float)); /* a token of zeros */
    format_encode_rows(t->f, t->decoded, t->bytes, t->rows, t->cols);
    if (t->f == &FORMATS[FORMAT_INT8]) /* the extreme codes, one of which encoders never write */
        for (int64_t i = 0; i < t->rows; i++) t->bytes[i * (t->cols + 4) + i % t->cols] = i % 2 ? 0x80 : 0x7f;
    format_decode_rows(t->f, t->bytes, t->decoded, t->rows, t->cols);
}

/* reordered: also reorder and divide the inputs, and store some outlier columns as f16. */
static void fixture_prescribe(struct fixture *t, bool reordered, struct rng *r)
{
    if (!reordered) return;
    t->order = malloc((size_t)t->cols * sizeof *t->order);
    t->divide = malloc((size_t)t->cols * sizeof *t->divide);
    shuffle(r, t->order, t->cols);
    for (int64_t i = 0; i < t->cols; i++) t->divide[i] = 0.5f + 0.001f * (float)rng_below(r, 1500);
    t->s.order = t->order, t->s.divide = t->divide;
    if (t->s.kind != INPUT_INT8_OUTLIERS) return;
    t->s.outlier_count = (int)t->cols / 2;
    t->outliers = malloc((size_t)t->cols * sizeof *t->outliers);
    t->kept = malloc((size_t)(t->cols * t->rows) * sizeof *t->kept);
    for (int i = 0; i < t->s.outlier_count; i++) t->outliers[i] = 2 * i + i % 2;
    for (int64_t i = 0; i < t->s.outlier_count * t->rows; i++) t->kept[i] = f16_from_f32(rng_gauss(r, 0.05));
    t->s.outliers = t->outliers, t->s.outlier_weights = t->kept;
}

static double weight_met(const struct fixture *t, const struct expected *e, int64_t row, int64_t k)
{
    for (int i = 0; e->left[k] && i < t->s.outlier_count; i++)
        if (t->outliers[i] == k) return f16_to_f32(t->kept[i * t->rows + row]);
    return t->decoded[row * t->cols + k];
}

static void fixture_solve(struct fixture *t)
{
    const size_t inputs = (size_t)(t->n * t->cols);
    struct expected e = { malloc(inputs * sizeof(double)), malloc((size_t)t->cols * sizeof(bool)) };
    float *x = malloc(inputs * sizeof *x);
    for (int i = 0; i < t->n; i++)
        for (int64_t k = 0; k < t->cols; k++) {
            const int64_t from = t->order ? t->order[k] : k;
            const float v = t->x[i * t->x_stride + from];
            x[i * t->cols + k] = t->divide ? v / t->divide[from] : v;
        }
    expect(&t->s, t->f, x, t->n, t->cols, &e);
    t->product = calloc((size_t)(t->n * t->rows), sizeof(double));
    t->terms = calloc((size_t)(t->n * t->rows), sizeof(double));
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t k = 0; k < t->cols; k++) {
            const double w = weight_met(t, &e, r, k);
            for (int i = 0; i < t->n; i++) {
                t->product[i * t->rows + r] += w * e.x[i * t->cols + k];
                t->terms[i * t->rows + r] += fabs(w * e.x[i * t->cols + k]);
            }
        }
    free(e.x);
    free(e.left);
    free(x);
}

static void fixture_free(struct fixture *t)
{
    guarded_free(t->bytes, t->weight_bytes, 0);
    guarded_free(t->x, (size_t)((t->n - 1) * t->x_stride + t->cols) * sizeof(float), 0);
    guarded_free(t->bias, (size_t)t->rows * sizeof(float), 0);
    free(t->decoded);
    free(t->order);
    free(t->divide);
    free(t->outliers);
    free(t->kept);
    free(t->product);
    free(t->terms);
}

/* Largest error relative to the sum of magnitudes. */
static double worst_error(const struct fixture *t, const float *y, const float *before, bool bias)
{
    double worst = 0;
    for (int i = 0; i < t->n; i++)
        for (int64_t r = 0; r < t->rows; r++) {
            double want = t->product[i * t->rows + r], terms = t->terms[i * t->rows + r];
            if (bias) want += t->bias[r], terms += fabs(t->bias[r]);
            if (before) want += before[i * t->y_stride + r], terms += fabs(before[i * t->y_stride + r]);
            const double e = fabs(want - y[i * t->y_stride + r]), relative = e == 0 ? 0 : e / terms;
            if (!(relative <= worst)) worst = relative;
        }
    return worst;
}

/* Plain, and with bias and residual in place. */
static void run_on(const struct fixture *t, struct backend *b, const char *isa, double bound)
{
    struct err why;
    struct weight w;
    const size_t floats = (size_t)(t->n * t->y_stride);
    float *y = malloc(floats * sizeof *y), *before = malloc(floats * sizeof *y);
    struct rng r = { 5 };
    CHECK_OK(backend_weight_bind(b, &w, t->f, t->rows, t->cols, &t->s, t->bytes, &why));
    for (int variant = 0; variant < 2; variant++) {
        fill_gauss(&r, before, (int64_t)floats, 1);
        memcpy(y, before, floats * sizeof *y);
        backend_matmul(b,
                       &(struct matmul){ .w = &w,
                                         .x = t->x,
                                         .x_stride = t->x_stride,
                                         .n = t->n,
                                         .bias = variant ? t->bias : NULL,
                                         .residual = variant ? y : NULL,
                                         .y = y,
                                         .y_stride = t->y_stride },
                       1);
        const double worst = worst_error(t, y, variant ? before : NULL, variant);
        if (!(worst <= bound))
            fail_msg("%s %s %s [%d][%d] n %d reordered %d: %g", isa, input_kind_name(t->s.kind), t->f->name,
                     (int)t->rows, (int)t->cols, t->n, t->order != NULL, worst);
        for (int i = 0; i < t->n; i++)
            for (int64_t j = t->rows; j < t->y_stride; j++)
                CHECK_EQ(y[i * t->y_stride + j], before[i * t->y_stride + j]);
    }
    backend_weight_release(b, &w);
    free(y);
    free(before);
}

struct shape {
    int n;
    int64_t rows, cols;
};
static const struct shape SHAPES[] = {
    { 1, 1, 32 },    { 1, 33, 96 },   { 2, 19, 544 },  { 3, 17, 64 },   { 4, 100, 352 },
    { 5, 31, 160 },  { 8, 64, 288 },  { 9, 16, 1056 }, { 16, 65, 544 }, { 17, 96, 256 },
    { 33, 130, 96 }, { 70, 50, 608 }, { 40, 7, 8256 }, { 1, 5, 4128 },  { 32, 49, 2080 },
};

static void one_kind(const struct input_scheme *s, enum format_id id, double bound)
{
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct rng r = { 17 + (uint64_t)s->kind };
    for (size_t i = 0; i < COUNT_OF(SHAPES); i++) {
        for (int reordered = 0; reordered < 2; reordered++) {
            struct fixture t = { .f = &FORMATS[id], .n = SHAPES[i].n, .rows = SHAPES[i].rows, .s = *s };
            const int64_t block = t.f->block_weights;
            t.cols = (SHAPES[i].cols + block - 1) / block * block;
            t.x_stride = t.cols + rng_below(&r, 3);
            t.y_stride = t.rows + rng_below(&r, 3);
            fixture_fill(&t, &r);
            fixture_prescribe(&t, reordered, &r);
            fixture_solve(&t);
            for (size_t l = 0; l < count; l++) {
                const enum precision p = i % 3 == 0   ? PRECISION_MEDIUM
                                         : i % 3 == 1 ? PRECISION_AUTO
                                                      : PRECISION_HIGHEST;
                struct backend *b = backend_for(levels[l]->bits, p, ACTIVATIONS_AUTO, t.n, t.cols);
                run_on(&t, b, levels[l]->name, bound);
                backend_close(b);
            }
            fixture_free(&t);
        }
    }
}

static void integers(void **state)
{
    (void)state;
    static const struct input_scheme SCHEMES[] = {
        { .kind = INPUT_INT8_TOKEN },
        { .kind = INPUT_INT8_TENSOR },
        { .kind = INPUT_INT8_STATIC, .scale = 0.03f, .zero = 120 },
        { .kind = INPUT_INT8_STATIC, .scale = 0.01f, .zero = 0 },
        { .kind = INPUT_INT8_STATIC, .scale = 0.02f, .zero = 255 },
        { .kind = INPUT_INT8_STATIC, .scale = 0.03f, .zero = 60, .most = 127 },
        { .kind = INPUT_INT8_OUTLIERS, .threshold = 6 },
        { .kind = INPUT_INT8_OUTLIERS, .threshold = 1 }, /* most columns */
        { .kind = INPUT_INT8_OUTLIERS },                 /* none */
    };
    for (size_t i = 0; i < COUNT_OF(SCHEMES); i++) one_kind(&SCHEMES[i], FORMAT_INT8, 1e-6);
}

static void rounded(void **state)
{
    (void)state;
    static const enum format_id FORMATS8[] = { FORMAT_FP8_E4M3, FORMAT_FP8_E5M2, FORMAT_INT8, FORMAT_Q4_0,
                                               FORMAT_F32 };
    const double bound =
        2e-6; /* HIGHEST, with a few inputs far above the others in the reference's f32 sums */
    for (size_t i = 0; i < COUNT_OF(FORMATS8); i++) {
        one_kind(&(struct input_scheme){ .kind = INPUT_FP8_TOKEN }, FORMATS8[i], bound);
        one_kind(&(struct input_scheme){ .kind = INPUT_FP8_TOKEN, .limit = 2 }, FORMATS8[i], bound);
        one_kind(&(struct input_scheme){ .kind = INPUT_FP8_STATIC, .scale = 0.01f }, FORMATS8[i], bound);
    }
    one_kind(&(struct input_scheme){ .kind = INPUT_TF32 }, FORMAT_F32, bound);
    one_kind(&(struct input_scheme){ .kind = INPUT_TF32 }, FORMAT_Q4_0, bound);
}

/* Reordered and divided inputs without quantization: products of any format are exact. */
static void reordered(void **state)
{
    (void)state;
    static const enum format_id IDS[] = { FORMAT_F32, FORMAT_F16, FORMAT_Q8_0, FORMAT_U4_G128, FORMAT_INT8 };
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct rng r = { 3 };
    for (size_t i = 0; i < COUNT_OF(IDS) * COUNT_OF(SHAPES); i++) {
        const struct shape *shape = &SHAPES[i / COUNT_OF(IDS)];
        struct fixture t = { .f = &FORMATS[IDS[i % COUNT_OF(IDS)]], .n = shape->n, .rows = shape->rows };
        t.cols = round_up(shape->cols, t.f->block_weights);
        t.x_stride = t.cols, t.y_stride = t.rows + 1;
        fixture_fill(&t, &r);
        fixture_prescribe(&t, true, &r);
        fixture_solve(&t);
        for (size_t l = 0; l < count; l++) {
            struct backend *b = backend_for(levels[l]->bits, PRECISION_HIGHEST, ACTIVATIONS_AUTO, t.n,
                                            t.cols);
            run_on(&t, b, levels[l]->name, 2e-6);
            backend_close(b);
        }
        fixture_free(&t);
    }
}

/* Gathering a row of a table with reordered and divided inputs yields the row in the order and scale of x. */
static void looked_up(void **state)
{
    (void)state;
    enum { ROWS = 7, COLS = 320 };
    static float values[ROWS * COLS], back[ROWS * COLS], y[ROWS * COLS], divide[COLS];
    static int32_t order[COLS];
    static uint8_t bytes[ROWS * (COLS + 4)];
    struct rng r = { 8 };
    struct err why;
    struct weight w;
    shuffle(&r, order, COLS);
    fill_gauss(&r, values, ROWS * COLS, 1);
    for (int i = 0; i < COLS; i++) divide[i] = 0.25f * (float)(1 + rng_below(&r, 9));
    format_encode_rows(&FORMATS[FORMAT_INT8], values, bytes, ROWS, COLS);
    format_decode_rows(&FORMATS[FORMAT_INT8], bytes, back, ROWS, COLS);
    const struct input_scheme s = { .order = order, .divide = divide };
    struct backend *b = backend_for(0, PRECISION_HIGHEST, ACTIVATIONS_AUTO, 1, COLS);
    CHECK_OK(backend_weight_bind(b, &w, &FORMATS[FORMAT_INT8], ROWS, COLS, &s, bytes, &why));
    const int32_t ids[] = { 4, 0, 6 };
    for (int add = 0; add < 2; add++) {
        for (size_t i = 0; i < COUNT_OF(y); i++) y[i] = 3;
        backend_gather(
            b, &(struct gather){
                   .table = &w, .ids = ids, .n = 3, .y = y, .y_stride = COLS, .add = add, .scale = 2 });
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < COLS; k++) {
                const float v = back[ids[i] * COLS + k] / divide[order[k]] * 2;
                CHECK_NEAR(y[i * COLS + order[k]], (add ? 3 : 0) + v, 1e-6 * (3 + fabs(v)));
            }
    }
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers),
        cmocka_unit_test(rounded),
        cmocka_unit_test(reordered),
        cmocka_unit_test(looked_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
