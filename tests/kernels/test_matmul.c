/* Proves: backend_matmul agrees with a binary64 product for every format, instruction set and precision, in
 * many shapes (one to many rows, odd columns, odd rows, bias, residual in place, several weights at once),
 * with any alignment of the weights. It reads no byte past the weights and writes none between strided rows.
 */
#include "kernels/kernel_set.h"
#include "tests/kernels/numbers.h"

struct shape {
    int n;
    int64_t rows, cols;
};

static const struct shape SHAPES[] = {
    { 1, 1, 32 },     { 1, 33, 64 },     { 2, 48, 96 },     { 3, 17, 1024 }, { 4, 100, 352 },
    { 5, 31, 160 },   { 8, 64, 288 },    { 16, 65, 544 },   { 17, 96, 256 }, { 31, 49, 96 },
    { 32, 1, 64 },    { 33, 130, 1056 }, { 65, 16, 32 },    { 77, 95, 640 }, { 1, 3, 172 },
    { 7, 20, 84 },    { 40, 51, 72 },    { 19, 12, 5 },     { 2, 9, 1 },     { 18, 33, 531 },
    { 64, 32, 4128 }, { 600, 18, 96 },   { 300, 34, 2080 }, { 9, 40, 768 },  { 70, 50, 2304 },
    { 12, 17, 1280 }, { 26, 33, 512 },
};

struct fixture {
    int n, count;
    int64_t rows, cols, x_stride, y_stride;
    const struct format *f;
    float *x, *bias, *decoded;
    double *product, *terms,
        *squares; /* [n][rows] in binary64: sums of the terms, of magnitudes, of squares */
    void *bytes;
    size_t weight_bytes, skew;
};

static void fixture_make(struct fixture *t, const struct format *f, const struct shape *s, struct rng *r)
{
    *t = (struct fixture){
        .n = s->n, .rows = s->rows, .cols = s->cols, .f = f, .skew = (size_t)rng_below(r, 3) * 2
    };
    t->x_stride = s->cols + rng_below(r, 3);
    t->y_stride = s->rows + rng_below(r, 3);
    const int64_t weights = s->rows * s->cols;
    t->weight_bytes = (size_t)(format_row_bytes(f, s->cols) * s->rows);
    t->bytes = guarded(t->weight_bytes, t->skew);
    /* The last row of x ends where an unreadable page begins, too. */
    t->x = guarded((size_t)((t->n - 1) * t->x_stride + t->cols) * sizeof(float), 0);
    t->bias = guarded((size_t)t->rows * sizeof(float), 0);
    t->decoded = malloc((size_t)weights * sizeof(float));
    for (int64_t i = 0; i < (t->n - 1) * t->x_stride + t->cols; i++) t->x[i] = rng_gauss(r, 1);
    for (int i = 0; i < t->cols && rng_below(r, 4) == 0; i++) t->x[i] = 0; /* a row of zeros now and then */
    fill_gauss(r, t->bias, t->rows, 1);
    fill_gauss(r, t->decoded, weights, 0.05);
    format_encode_rows(f, t->decoded, t->bytes, s->rows, s->cols);
    format_decode_rows(f, t->bytes, t->decoded, s->rows, s->cols);
}

static void fixture_solve(struct fixture *t)
{
    t->product = malloc((size_t)(t->n * t->rows) * sizeof(double));
    t->terms = malloc((size_t)(t->n * t->rows) * sizeof(double));
    t->squares = malloc((size_t)(t->n * t->rows) * sizeof(double));
    for (int i = 0; i < t->n; i++) {
        for (int64_t r = 0; r < t->rows; r++) {
            double sum = 0, terms = 0, squares = 0;
            for (int64_t k = 0; k < t->cols; k++) {
                const double term = (double)t->x[i * t->x_stride + k] * t->decoded[r * t->cols + k];
                sum += term, terms += fabs(term), squares += term * term;
            }
            t->product[i * t->rows + r] = sum;
            t->terms[i * t->rows + r] = terms;
            t->squares[i * t->rows + r] = squares;
        }
    }
}

static void fixture_free(struct fixture *t)
{
    guarded_free(t->bytes, t->weight_bytes, t->skew);
    guarded_free(t->x, (size_t)((t->n - 1) * t->x_stride + t->cols) * sizeof(float), 0);
    guarded_free(t->bias, (size_t)t->rows * sizeof(float), 0);
    free(t->decoded);
    free(t->product);
    free(t->terms);
    free(t->squares);
}

/* Largest |error| / (sum |terms| + |bias| + |residual|), and the NMSE, over all of y. Its power is that of
 * the terms, which is what a product of random signs has on average: one that happens to be near 0 does not
 * count as a large error. */
struct verdict {
    double worst, error;
};

static struct verdict judge(const struct fixture *t, const float *y, const float *before, bool bias)
{
    struct verdict v = { 0, 0 };
    double error = 0, power = 0;
    for (int i = 0; i < t->n; i++) {
        for (int64_t r = 0; r < t->rows; r++) {
            const double product = t->product[i * t->rows + r];
            double want = product, terms = t->terms[i * t->rows + r];
            if (bias) want += t->bias[r], terms += fabs(t->bias[r]);
            if (before) want += before[i * t->y_stride + r], terms += fabs(before[i * t->y_stride + r]);
            const double e = fabs(want - y[i * t->y_stride + r]), relative = e == 0 ? 0 : e / terms;
            if (!(relative <= v.worst)) v.worst = relative;
            error += e * e, power += t->squares[i * t->rows + r];
        }
    }
    v.error = error == 0 ? 0 : error / power;
    return v;
}

static struct backend *backend_for(uint32_t isa, enum precision precision, int threads)
{
    struct err why;
    struct backend *b = NULL;
    CHECK_OK(backend_open(&b, "cpu",
                          &(struct backend_options){ .threads = threads, .isa = isa, .precision = precision },
                          &why));
    CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = 600, .cols = 4128 }, &why));
    return b;
}

/* Plain, with bias, with residual in place. */
static void run_variants(struct backend *b, const struct fixture *t, enum precision precision,
                         const char *isa)
{
    struct err why;
    struct weight w;
    CHECK_OK(backend_weight_bind(b, &w, t->f, t->rows, t->cols, NULL, t->bytes, &why));
    const size_t floats = (size_t)(t->n * t->y_stride);
    float *y = aligned_alloc(64, (floats * sizeof *y + 63) / 64 * 64), *before = malloc(floats * sizeof *y);
    struct rng r = { 7 };
    fill_gauss(&r, before, (int64_t)floats, 1);
    for (int variant = 0; variant < 3; variant++) {
        memcpy(y, before, floats * sizeof *y);
        const struct matmul m = { .w = &w,
                                  .x = t->x,
                                  .x_stride = t->x_stride,
                                  .n = t->n,
                                  .bias = variant ? t->bias : NULL,
                                  .residual = variant == 2 ? y : NULL,
                                  .y = y,
                                  .y_stride = t->y_stride };
        backend_matmul(b, &m, 1);
        const struct verdict v = judge(t, y, variant == 2 ? before : NULL, variant > 0);
        /* MEDIUM: 8 bits in blocks of 32 give 3e-5 NMSE, bf16 on both sides 6e-6; few results scatter (of one
         * alone, the squared error is ten times the mean once in 600). */
        const double limit = 2e-4 * (1 + 16.0 / (double)(t->n * t->rows));
        const double bound = precision == PRECISION_HIGH ? 3e-5 : 1e-6;
        const bool good = precision == PRECISION_MEDIUM ? v.error <= limit : v.worst <= bound;
        if (!good)
            fail_msg("%s %s precision %d n %d rows %d cols %d variant %d: worst %.3g nmse %.3g", isa,
                     t->f->name, (int)precision, t->n, (int)t->rows, (int)t->cols, variant, v.worst, v.error);
        for (int i = 0; i < t->n; i++) /* what lies between the rows stays */
            for (int64_t j = t->rows; j < t->y_stride; j++)
                CHECK_EQ(y[i * t->y_stride + j], before[i * t->y_stride + j]);
    }
    free(y);
    free(before);
    backend_weight_release(b, &w);
}

/* On an emulated CPU, skip products with more than a million terms: they take minutes and test nothing that
 * smaller ones do not. */
static bool left_out(const struct shape *s, const struct format *f)
{
    enum { EMULATED_MAX = 1200000 };
    return s->cols % f->block_weights ||
           (getenv("QDYNO_TEST_EMULATED") && s->n * s->rows * s->cols > EMULATED_MAX);
}

static void shapes(enum precision precision)
{
    const struct isa_level *levels[16];
    struct backend *b[16];
    const size_t count = levels_here(levels);
    struct rng r = { 42 };
    for (size_t l = 0; l < count; l++) b[l] = backend_for(levels[l]->bits, precision, 2);
    for (int id = 0; id < FORMAT_COUNT; id++) {
        for (size_t s = 0; s < COUNT_OF(SHAPES) && FORMATS[id].encode; s++) {
            if (left_out(&SHAPES[s], &FORMATS[id])) continue;
            struct fixture t;
            fixture_make(&t, &FORMATS[id], &SHAPES[s], &r);
            fixture_solve(&t);
            for (size_t l = 0; l < count; l++) run_variants(b[l], &t, precision, levels[l]->name);
            fixture_free(&t);
        }
    }
    for (size_t l = 0; l < count; l++) backend_close(b[l]);
}

static void highest(void **state)
{
    (void)state;
    shapes(PRECISION_HIGHEST);
}

static void high(void **state)
{
    (void)state;
    shapes(PRECISION_HIGH);
}

static void medium(void **state)
{
    (void)state;
    shapes(PRECISION_MEDIUM);
}

/* Results larger than a cache use streaming stores: with rows that fill whole cache lines, and rows that do
 * not. */
static void far(void **state)
{
    (void)state;
    const struct shape shapes_[] = { { 600, 512, 64 }, { 600, 519, 64 } };
    const enum format_id formats[] = { FORMAT_F32, FORMAT_Q8_0 };
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct rng r = { 5 };
    if (getenv("QDYNO_TEST_EMULATED")) skip();
    for (size_t i = 0; i < COUNT_OF(shapes_) * COUNT_OF(formats); i++) {
        struct fixture t;
        fixture_make(&t, &FORMATS[formats[i / 2]], &shapes_[i % 2], &r);
        t.y_stride = t.rows; /* a multiple of a line or not */
        fixture_solve(&t);
        for (size_t l = 0; l < count; l++) {
            struct backend *b = backend_for(levels[l]->bits, PRECISION_MEDIUM, 2);
            run_variants(b, &t, PRECISION_MEDIUM, levels[l]->name);
            backend_close(b);
        }
        fixture_free(&t);
    }
}

/* The fused act(gate) * up equals two products followed by the activation. */
static void check_gated(struct backend *b, const char *isa, const struct fixture *g, const struct fixture *u)
{
    struct err why;
    struct weight gate, up;
    CHECK_OK(backend_weight_bind(b, &gate, g->f, g->rows, g->cols, NULL, g->bytes, &why));
    CHECK_OK(backend_weight_bind(b, &up, u->f, u->rows, u->cols, NULL, u->bytes, &why));
    const int64_t stride = 2 * u->rows;
    const size_t floats = (size_t)(u->n * stride);
    float *want = malloc(floats * sizeof *want), *got = malloc(floats * sizeof *got);
    struct matmul m[] = {
        { .w = &gate,
          .x = u->x,
          .x_stride = u->x_stride,
          .n = u->n,
          .bias = g->bias,
          .y = want,
          .y_stride = stride },
        { .w = &up, .x = u->x, .x_stride = u->x_stride, .n = u->n, .y = want + u->rows, .y_stride = stride },
    };
    for (int i = 0; i < 2; i++) backend_matmul(b, &m[i], 1);
    backend_activate(b, &(struct activate){ .act = ACT_SILU,
                                            .gate = want,
                                            .up = want + u->rows,
                                            .stride = stride,
                                            .n = u->n,
                                            .cols = u->rows,
                                            .y = want,
                                            .y_stride = stride });
    struct gated p = { .gate = m[0], .up = m[1], .act = ACT_SILU, .y = got, .y_stride = stride };
    p.gate.y = got;
    p.up.y = got + u->rows;
    backend_gated(b, &p);
    for (int i = 0; i < u->n; i++)
        for (int64_t j = 0; j < u->rows; j++) {
            const double a = want[i * stride + j], e = fabs(a - got[i * stride + j]);
            if (!(e <= 1e-5 * (1 + fabs(a))))
                fail_msg("%s %s n %d row %d of %d: %g, want %g", isa, u->f->name, u->n, (int)j, (int)u->rows,
                         got[i * stride + j], a);
        }
    free(want);
    free(got);
    backend_weight_release(b, &gate);
    backend_weight_release(b, &up);
}

/* A gated pair of these formats on all levels. */
static void check_gated_pair(const struct shape *s, const struct format *gate, const struct format *up,
                             struct rng *r)
{
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct fixture g, u;
    fixture_make(&g, gate, s, r);
    fixture_make(&u, up, s, r);
    for (size_t l = 0; l < count; l++) {
        struct backend *b = backend_for(levels[l]->bits, PRECISION_AUTO, 2);
        check_gated(b, levels[l]->name, &g, &u);
        backend_close(b);
    }
    fixture_free(&g);
    fixture_free(&u);
}

static void gated(void **state)
{
    (void)state;
    const struct shape shapes_[] = {
        { 1, 40, 64 }, { 20, 130, 96 }, { 70, 97, 256 }, { 300, 200, 128 }, { 40, 35, 4128 }
    };
    const enum format_id formats[] = { FORMAT_F32, FORMAT_F16, FORMAT_Q4_0, FORMAT_INT8 };
    struct rng r = { 9 };
    for (size_t i = 0; i < COUNT_OF(shapes_) * COUNT_OF(formats); i++) {
        const struct shape *s = &shapes_[i % COUNT_OF(shapes_)];
        const struct format *f = &FORMATS[formats[i / COUNT_OF(shapes_)]];
        if (!left_out(s, f)) check_gated_pair(s, f, f, &r);
    }
}

/* The two matrices of a pair may have formats whose blocks differ in scales, offsets and minima. */
static void gated_of_two_formats(void **state)
{
    (void)state;
    const struct shape shapes_[] = { { 40, 130, 256 }, { 70, 35, 1024 } };
    const enum format_id formats[] = { FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_Q5_1,   FORMAT_Q2_K,
                                       FORMAT_Q5_K, FORMAT_Q6_K, FORMAT_IQ4_NL, FORMAT_F16 };
    struct rng r = { 10 };
    for (size_t i = 0; i < COUNT_OF(shapes_); i++)
        for (size_t g = 0; g < COUNT_OF(formats); g++)
            for (size_t u = 0; u < COUNT_OF(formats); u++)
                check_gated_pair(&shapes_[i], &FORMATS[formats[g]], &FORMATS[formats[u]], &r);
}

/* Products in one call give the same bits as separate calls, also with different formats and x, and with any
 * number of threads. */
static void together(void **state)
{
    (void)state;
    enum { COUNT = 4, ROWS = 83, COLS = 96 };
    static const int NS[] = { 1, 6, 50 };
    static const enum format_id IDS[COUNT] = { FORMAT_Q4_0, FORMAT_F32, FORMAT_Q8_0, FORMAT_BF16 };
    uint32_t usable;
    struct err why;
    CHECK_OK(isa_usable(&usable, &why));
    for (size_t c = 0; c < COUNT_OF(NS); c++) {
        static float x[2][50 * COLS], values[ROWS * COLS], one[COUNT][50 * ROWS], all[COUNT][50 * ROWS];
        static uint8_t bytes[COUNT][ROWS * COLS * 4];
        struct rng r = { 99 };
        struct weight w[COUNT];
        struct matmul m[COUNT];
        for (int i = 0; i < 2; i++) fill_gauss(&r, x[i], COUNT_OF(x[i]), 1);
        for (int threads = 1; threads <= 3; threads++) {
            struct backend *b = backend_for(usable, PRECISION_MEDIUM, threads);
            for (int j = 0; j < COUNT; j++) {
                fill_gauss(&r, values, COUNT_OF(values), 1);
                if (threads == 1) format_encode_rows(&FORMATS[IDS[j]], values, bytes[j], ROWS, COLS);
                CHECK_OK(backend_weight_bind(b, &w[j], &FORMATS[IDS[j]], ROWS, COLS, NULL, bytes[j], &why));
                m[j] = (struct matmul){ .w = &w[j],
                                        .x = x[j == 2],
                                        .x_stride = COLS,
                                        .n = NS[c],
                                        .y = threads == 1 ? one[j] : all[j],
                                        .y_stride = ROWS };
                if (threads == 1) backend_matmul(b, &m[j], 1);
            }
            if (threads > 1) {
                memset(all, 0xff, sizeof all);
                backend_matmul(b, m, COUNT);
                for (int j = 0; j < COUNT; j++)
                    assert_memory_equal(all[j], one[j], (size_t)NS[c] * ROWS * sizeof(float));
            }
            backend_close(b);
        }
    }
}

static void product_of(uint32_t isa, enum activations activations, const struct weight *w, const float *x,
                       int n, float *y)
{
    struct err why;
    struct backend *b = NULL;
    const struct backend_options o = {
        .threads = 2, .isa = isa, .precision = PRECISION_MEDIUM, .activations = activations
    };
    CHECK_OK(backend_open(&b, "cpu", &o, &why));
    const struct backend_work work = {
        .rows = n, .cols = w->cols, .formats = format_bit(w->format), .inputs = 1u << INPUT_FREE
    };
    CHECK_OK(backend_reserve(b, &work, &why));
    backend_matmul(
        b, &(struct matmul){ .w = w, .x = x, .x_stride = w->cols, .n = n, .y = y, .y_stride = w->rows }, 1);
    backend_close(b);
}

/* act=int8 gives the same bits as a machine without tiles, which uses 8 bits by default, and bits that differ
 * from those of tiles. */
static void eight_bits(void **state)
{
    (void)state;
    enum { ROWS = 50, COLS = 2304, N = 70 };
    static const enum format_id IDS[] = { FORMAT_Q4_0, FORMAT_Q8_0, FORMAT_Q4_K, FORMAT_Q6_K, FORMAT_INT8 };
    static float values[ROWS * COLS], x[N * COLS], asked[N * ROWS], without[N * ROWS], usual[N * ROWS];
    static uint8_t bytes[ROWS * (COLS + 4) * 2];
    struct rng r = { 11 };
    uint32_t usable;
    CHECK(!isa_usable(&usable, NULL));
    fill_gauss(&r, x, COUNT_OF(x), 1);
    fill_gauss(&r, values, COUNT_OF(values), 0.05);
    for (size_t i = 0; i < COUNT_OF(IDS); i++) {
        const struct format *f = &FORMATS[IDS[i]];
        const struct weight w = { .format = f, .rows = ROWS, .cols = COLS, .data = bytes };
        const struct backend_options o = { .isa = usable, .precision = PRECISION_MEDIUM };
        format_encode_rows(f, values, bytes, ROWS, COLS);
        for (int n = 1; n <= N; n += 23) {
            product_of(usable, ACTIVATIONS_INT8, &w, x, n, asked);
            product_of(usable & ~(uint32_t)ISA_AMX, ACTIVATIONS_AUTO, &w, x, n, without);
            assert_memory_equal(asked, without, (size_t)n * ROWS * sizeof *asked);
        }
        product_of(usable, ACTIVATIONS_AUTO, &w, x, N, usual);
        const bool tiles = !strcmp(matmul_ceiling(f, &o), "bf16_tile");
        CHECK_EQ(tiles, memcmp(asked, usual, sizeof asked) != 0);
    }
}

/* Extremes: the largest codes everywhere (nothing saturates or overflows), and all zeros. */
static void extremes(void **state)
{
    (void)state;
    enum { ROWS = 20, COLS = 512 };
    static const int NS[] = { 1, 4, 33 };
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    static float values[ROWS * COLS], back[ROWS * COLS], x[33 * COLS], y[33 * ROWS];
    static uint8_t bytes[ROWS * COLS * 4];
    for (size_t l = 0; l < count; l++) {
        for (int p = PRECISION_HIGHEST; p <= PRECISION_MEDIUM; p++) {
            struct backend *b = backend_for(levels[l]->bits, (enum precision)p, 1);
            for (int id = 0; id < FORMAT_COUNT; id++) {
                if (!FORMATS[id].encode) continue;
                for (int zero = 0; zero < 2; zero++) {
                    for (int i = 0; i < ROWS * COLS; i++) values[i] = zero ? 0 : i & 4 ? -1000.f : 1000.f;
                    for (int i = 0; i < 33 * COLS; i++) x[i] = i & 4 ? -500.f : 500.f;
                    format_encode_rows(&FORMATS[id], values, bytes, ROWS, COLS);
                    format_decode_rows(&FORMATS[id], bytes, back, ROWS, COLS);
                    struct weight w;
                    CHECK(!backend_weight_bind(b, &w, &FORMATS[id], ROWS, COLS, NULL, bytes, NULL));
                    for (size_t c = 0; c < COUNT_OF(NS); c++) {
                        memset(y, 0xff, sizeof y);
                        backend_matmul(
                            b,
                            &(struct matmul){
                                .w = &w, .x = x, .x_stride = COLS, .n = NS[c], .y = y, .y_stride = ROWS },
                            1);
                        for (int i = 0; i < NS[c] * ROWS; i++) {
                            double want = 0;
                            for (int k = 0; k < COLS; k++) want += (double)x[k] * back[i % ROWS * COLS + k];
                            CHECK_NEAR(y[i], want, 4e-3 * fabs(want)); /* two roundings to bf16 */
                        }
                    }
                }
            }
            backend_close(b);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(highest),  cmocka_unit_test(high),       cmocka_unit_test(medium),
        cmocka_unit_test(far),      cmocka_unit_test(gated),      cmocka_unit_test(gated_of_two_formats),
        cmocka_unit_test(together), cmocka_unit_test(eight_bits), cmocka_unit_test(extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
