/* Proves activation quantization in whole products: chosen by options instead of prescribed; shared by
 * products of one group; the same integers on every instruction set; NaN inputs give NaN results; invalid
 * schemes are refused with a message; and results agree with those of bitsandbytes, SmoothQuant and PyTorch's
 * observers (golden files, if they are beside the checkout). */
#include "kernels/inputs.h"
#include "tests/kernels/input_schemes.h"

/* act=int8_token gives the same numbers as weights that prescribe it, and does not change other formats. */
static void on_request(void **state)
{
    (void)state;
    enum { ROWS = 70, COLS = 1056, N = 40 };
    static float values[ROWS * COLS], x[N * COLS], y[3][N * ROWS];
    static uint8_t bytes[ROWS * COLS * 2];
    const struct input_scheme s = { .kind = INPUT_INT8_TOKEN };
    struct rng r = { 21 };
    uint32_t usable;
    struct err why;
    CHECK_OK(isa_usable(&usable, &why));
    fill_gauss(&r, values, ROWS * COLS, 1);
    fill_gauss(&r, x, N * COLS, 1);
    for (int f = 0; f < 2; f++) {
        const struct format *format = &FORMATS[f ? FORMAT_Q8_0 : FORMAT_INT8];
        format_encode_rows(format, values, bytes, ROWS, COLS);
        for (int i = 0; i < 3; i++) {
            struct weight w;
            const bool asked = i == 1, prescribed = i == 2 && !f;
            struct backend *b = backend_for(usable, PRECISION_MEDIUM,
                                            asked ? ACTIVATIONS_INT8_TOKEN : ACTIVATIONS_AUTO, N, COLS);
            CHECK_OK(backend_weight_bind(b, &w, format, ROWS, COLS, prescribed ? &s : NULL, bytes, &why));
            struct backend_info info; /* says which inputs really run */
            char names[64];
            backend_describe(b, &info);
            assert_string_equal(input_kind_names(info.inputs, names, sizeof names),
                                !f && i ? "int8_token" : "free");
            for (int n = 1; n <= N; n += 39)
                backend_matmul(b,
                               &(struct matmul){
                                   .w = &w, .x = x, .x_stride = COLS, .n = n, .y = y[i], .y_stride = ROWS },
                               1);
            backend_close(b);
        }
        CHECK_EQ(memcmp(y[0], y[1], sizeof y[0]) == 0, f);
        assert_memory_equal(y[1], y[2], sizeof y[0]);
    }
    char names[64], few[8];
    assert_string_equal(input_kind_names(1 << INPUT_FREE | 1 << INPUT_TF32, names, sizeof names),
                        "free tf32");
    assert_string_equal(input_kind_names(1 << INPUT_FREE | 1 << INPUT_TF32, few, sizeof few), "free tf");
    /* Only where rounding is allowed. */
    const struct backend_options exact = { .precision = PRECISION_HIGHEST,
                                           .activations = ACTIVATIONS_INT8_TOKEN };
    CHECK_EQ(inputs_kind(&exact, &FORMATS[FORMAT_INT8], COLS), INPUT_FREE);
}

/* Products of one x that are handed over together share inputs only where they may, and give the bits that
 * they give alone, with any number of threads; so does a gated pair. */
static void together(void **state)
{
    (void)state;
    enum { COUNT = 6, ROWS = 83, COLS = 96, N = 50 };
    static float x[N * COLS], values[ROWS * COLS], one[COUNT][N * ROWS], all[COUNT][N * ROWS];
    static uint8_t bytes[COUNT][ROWS * COLS * 4];
    static int32_t order[COLS];
    static const int NS[] = { 1, 6, 20, 50 };
    struct rng r = { 4 };
    struct err why;
    uint32_t usable;
    shuffle(&r, order, COLS);
    fill_gauss(&r, x, N * COLS, 2);
    const struct input_scheme schemes[COUNT] = { { .kind = INPUT_INT8_TOKEN },
                                                 { .kind = INPUT_INT8_TOKEN },
                                                 { .kind = INPUT_INT8_TOKEN, .order = order },
                                                 { .kind = INPUT_INT8_OUTLIERS, .threshold = 5 },
                                                 { .kind = INPUT_FREE },
                                                 { .kind = INPUT_INT8_TENSOR } };
    CHECK_OK(isa_usable(&usable, &why));
    for (size_t c = 0; c < COUNT_OF(NS); c++)
        for (int threads = 1; threads <= 3; threads++) {
            struct backend *b = NULL;
            struct weight w[COUNT];
            struct matmul m[COUNT];
            const struct backend_options o = { .threads = threads,
                                               .isa = usable,
                                               .precision = PRECISION_MEDIUM };
            CHECK_OK(backend_open(&b, "cpu", &o, &why));
            CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = N, .cols = COLS }, &why));
            for (int j = 0; j < COUNT; j++) {
                fill_gauss(&r, values, ROWS * COLS, 1);
                if (threads == 1 && c == 0)
                    format_encode_rows(&FORMATS[FORMAT_INT8], values, bytes[j], ROWS, COLS);
                CHECK_OK(backend_weight_bind(b, &w[j], &FORMATS[FORMAT_INT8], ROWS, COLS, &schemes[j],
                                             bytes[j], &why));
                m[j] = (struct matmul){ .w = &w[j], .x = x, .x_stride = COLS, .n = NS[c], .y_stride = ROWS };
                m[j].y = threads == 1 ? one[j] : all[j];
                if (threads == 1) backend_matmul(b, &m[j], 1);
            }
            if (threads > 1) {
                memset(all, 0xff, sizeof all);
                backend_matmul(b, m, COUNT);
                for (int j = 0; j < COUNT; j++)
                    assert_memory_equal(all[j], one[j], (size_t)NS[c] * ROWS * sizeof(float));
            }
            for (int j = 1; j < COUNT; j++) { /* 0 and 1 are alike, the other pairs are not */
                static float want[2 * N * ROWS], gated[2 * N * ROWS];
                for (int i = 0; i < 2; i++) {
                    struct matmul pair[] = { m[0], m[j] };
                    pair[0].y = i ? want : gated, pair[1].y = pair[0].y + N * ROWS;
                    const struct activate act = { .act = ACT_SILU,
                                                  .gate = want,
                                                  .up = want + N * ROWS,
                                                  .stride = ROWS,
                                                  .n = NS[c],
                                                  .cols = ROWS,
                                                  .y = want,
                                                  .y_stride = ROWS };
                    if (i)
                        backend_matmul(b, pair, 2), backend_activate(b, &act);
                    else
                        backend_gated(b, &(struct gated){ .gate = pair[0],
                                                          .up = pair[1],
                                                          .act = ACT_SILU,
                                                          .y = gated,
                                                          .y_stride = ROWS });
                }
                for (int i = 0; i < NS[c] * ROWS; i++)
                    CHECK_NEAR(gated[i], want[i], 1e-6 * (fabs(want[i]) + 1e-3));
            }
            backend_close(b);
        }
}

/* The same codes from every instruction set, to the ties of a true division; NaN is the largest of numbers.
 */
static void same_codes(void **state)
{
    (void)state;
    enum { N = 4099 };
    static float x[N], rounded_here[2][N];
    static uint8_t codes[2][N];
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    const struct kernel_set ref = kernels_select(0);
    static const struct small_float KINDS[] = { { 13, 0x1p-14f, 0.75f, 65504 },
                                                { 13, 0, 0, INFINITY },
                                                { 20, 0x1p-6f, 0x1.8p14f, 448 },
                                                { 21, 0x1p-14f, 0x1.8p7f, 57344 } };
    struct rng r = { 1 };
    for (int trial = 0; trial < 40; trial++) {
        const float by = ldexpf(1 + (float)rng_below(&r, 1 << 23) * 0x1p-23f, rng_below(&r, 30) - 20);
        const struct u8_scale scales[] = { { by, 1 / by, trial % 256 }, { 0, 1 / by, 128 } };
        for (int i = 0; i < N; i++) { /* about half a step beside a number of steps */
            x[i] = by * ((float)(rng_below(&r, 300) - 150) + 0.5f);
            for (int j = rng_below(&r, 3); j > 0; j--) x[i] = nextafterf(x[i], i % 2 ? 1e30f : -1e30f);
        }
        x[7] = 3e38f, x[8] = -3e38f, x[9] = 1e-40f, x[10] = -0.f;
        for (size_t l = 0; l < count; l++) {
            const struct kernel_set k = kernels_select(levels[l]->bits);
            for (int s = 0; s < 2; s++) {
                ref.rounding.quantize_u8(x, N, &scales[s], codes[0]);
                k.rounding.quantize_u8(x, N, &scales[s], codes[1]);
                assert_memory_equal(codes[0], codes[1], N);
            }
            for (size_t s = 0; s < COUNT_OF(KINDS); s++) {
                ref.rounding.round(x, N, by, &KINDS[s], rounded_here[0]);
                k.rounding.round(x, N, by, &KINDS[s], rounded_here[1]);
                assert_memory_equal(rounded_here[0], rounded_here[1], sizeof x);
            }
            CHECK_EQ(k.rounding.largest(x, N), 3e38f);
            const float kept = x[N - 1];
            x[N - 1] = NAN;
            CHECK_NAN(k.rounding.largest(x, N));
            x[N - 1] = kept;
        }
    }
}

/* NaN inputs give NaN results instead of some code. */
static void not_hidden(void **state)
{
    (void)state;
    enum { ROWS = 20, COLS = 64, N = 3 };
    static const enum input_kind KINDS[] = { INPUT_INT8_TOKEN, INPUT_INT8_TENSOR, INPUT_INT8_OUTLIERS,
                                             INPUT_FP8_TOKEN, INPUT_TF32 };
    static float values[ROWS * COLS], x[N * COLS], y[N * ROWS];
    static uint8_t bytes[ROWS * (COLS + 4)];
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    struct rng r = { 6 };
    struct err why;
    fill_gauss(&r, values, ROWS * COLS, 1);
    fill_gauss(&r, x, N * COLS, 1);
    format_encode_rows(&FORMATS[FORMAT_INT8], values, bytes, ROWS, COLS);
    x[COLS + 5] = NAN;
    for (size_t i = 0; i < COUNT_OF(KINDS) * count; i++) {
        struct weight w;
        const struct input_scheme s = { .kind = KINDS[i % COUNT_OF(KINDS)] };
        struct backend *b = backend_for(levels[i / COUNT_OF(KINDS)]->bits, PRECISION_MEDIUM, ACTIVATIONS_AUTO,
                                        N, COLS);
        CHECK_OK(backend_weight_bind(b, &w, &FORMATS[FORMAT_INT8], ROWS, COLS, &s, bytes, &why));
        backend_matmul(
            b, &(struct matmul){ .w = &w, .x = x, .x_stride = COLS, .n = N, .y = y, .y_stride = ROWS }, 1);
        for (int j = 0; j < ROWS; j++) CHECK_NAN(y[ROWS + j]);
        CHECK(s.kind == INPUT_INT8_TENSOR || s.kind == INPUT_INT8_OUTLIERS || !isnan(y[0]));
        backend_close(b);
    }
}

/* Invalid schemes are refused with a message when the weight is bound. */
static void refused(void **state)
{
    (void)state;
    enum { COLS = 64 };
    static uint8_t bytes[COLS * 8];
    int32_t order[COLS], twice[] = { 5, 5 };
    float divide[COLS];
    uint16_t kept[2] = { 0 };
    for (int i = 0; i < COLS; i++) order[i] = i, divide[i] = 1;
    order[3] = 4;
    divide[60] = 0;
    const struct {
        enum format_id format;
        struct input_scheme s;
        enum err_code rc;
        const char *says;
    } CASES[] = {
        { FORMAT_Q8_0, { .kind = INPUT_INT8_TOKEN }, ERR_USAGE, "int8_token need int8 weights" },
        { FORMAT_INT8, { .kind = INPUT_INT8_STATIC }, ERR_FORMAT, "static activation scale" },
        { FORMAT_INT8, { .kind = INPUT_INT8_STATIC, .scale = NAN }, ERR_FORMAT, "static activation scale" },
        { FORMAT_INT8, { .kind = INPUT_INT8_STATIC, .scale = 1, .zero = 256 }, ERR_FORMAT, "256" },
        { FORMAT_INT8, { .kind = INPUT_INT8_OUTLIERS, .threshold = -1 }, ERR_FORMAT, "-1" },
        { FORMAT_F32, { .order = order }, ERR_FORMAT, "4 occurs twice" },
        { FORMAT_F32, { .divide = divide }, ERR_FORMAT, "divisor of input 60 is 0" },
        { FORMAT_INT8,
          { .kind = INPUT_INT8_OUTLIERS, .outliers = twice, .outlier_count = 2, .outlier_weights = kept },
          ERR_FORMAT,
          "must ascend" },
        { FORMAT_INT8, { .kind = INPUT_INT8_OUTLIERS, .outlier_count = 2 }, ERR_FORMAT, "2 outlier columns" },
    };
    struct backend *b = backend_for(0, PRECISION_AUTO, ACTIVATIONS_AUTO, 1, COLS);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct weight w;
        struct err why = { 0 };
        const enum err_code rc = backend_weight_bind(b, &w, &FORMATS[CASES[i].format], 1, COLS, &CASES[i].s,
                                                     bytes, &why);
        if (rc != CASES[i].rc || !strstr(why.message, CASES[i].says))
            fail_msg("case %zu: %d, %s", i, (int)rc, why.message);
    }
    order[3] = COLS;
    const struct input_scheme outside = { .order = order };
    struct weight w;
    struct err why = { 0 };
    CHECK_EQ(backend_weight_bind(b, &w, &FORMATS[FORMAT_F32], 1, COLS, &outside, bytes, &why), ERR_FORMAT);
    backend_close(b);
}

/* ---------------------------------------------------------------- golden files */

enum { TOKENS = 384, IN = 256, OUT = 64 };

static void *golden(const char *name, size_t bytes)
{
    char path[512];
    data_path(path, sizeof path, "quant-golden/peers/%s", name);
    FILE *f = fopen(path, "rb");
    void *p = malloc(bytes);
    if (!f || fread(p, 1, bytes, f) != bytes || fgetc(f) != EOF) fail_msg("%s is not %zu bytes", path, bytes);
    fclose(f);
    return p;
}

static float *golden_f16(const char *name, int64_t n)
{
    uint16_t *h = golden(name, (size_t)n * sizeof *h);
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = f16_to_f32(h[i]);
    free(h);
    return x;
}

struct peer {
    float *x, *out;
    uint8_t *bytes;
    struct input_scheme s;
};

/* Compare with another engine's results for its weights, and with its codes of the first tokens, if the file
 * has them. */
static void check_peer(const struct peer *p, const int8_t *codes, int tokens, int bias, double bound)
{
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    static float y[TOKENS * OUT];
    struct err why;
    for (size_t l = 0; l < count; l++) {
        struct weight w;
        struct backend *b = backend_for(levels[l]->bits, PRECISION_AUTO, ACTIVATIONS_AUTO, TOKENS, IN);
        CHECK_OK(backend_weight_bind(b, &w, &FORMATS[FORMAT_INT8], OUT, IN, &p->s, p->bytes, &why));
        const struct matmul m = { .w = &w, .x = p->x, .x_stride = IN, .n = TOKENS, .y = y, .y_stride = OUT };
        struct inputs in = inputs_of((struct cpu *)b, &m);
        uint8_t made[IN];
        inputs_measure(&in, 0, TOKENS, 0);
        inputs_combine(&in, 0, 1);
        for (int t = 0; t < tokens; t++) {
            inputs_codes(&in, t, 0, IN, made);
            for (int k = 0; k < IN; k++) CHECK_EQ((uint8_t)(made[k] - bias), (uint8_t)codes[t * IN + k]);
        }
        backend_matmul(b, &m, 1);
        for (int i = 0; p->out && i < TOKENS * OUT; i++) CHECK_NEAR(y[i], p->out[i], bound);
        backend_close(b);
    }
}

static void peer_free(struct peer *p)
{
    free(p->x);
    free(p->out);
    free(p->bytes);
}

/* Codes identical, sums of f32 or f64 in another order: 2e-5 of the largest results. */
static void bitsandbytes(void **state)
{
    (void)state;
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/peers/bnb/int8.CB.i8");
    struct peer p = { .x = golden_f16("in/activation.f16", TOKENS * IN),
                      .out = golden("bnb/int8.thr6.out.f32", sizeof(float) * TOKENS * OUT),
                      .bytes = malloc(OUT * (IN + 4)),
                      .s = { .kind = INPUT_INT8_OUTLIERS, .threshold = 6 } };
    int8_t *cb = golden("bnb/int8.CB.i8", OUT * IN), *ca = golden("bnb/int8.thr6.CA.i8", TOKENS * IN);
    float *scb = golden("bnb/int8.SCB.f32", sizeof(float) * OUT);
    for (int r = 0; r < OUT; r++)
        format_row_pack(&FORMATS[FORMAT_INT8], (const uint8_t *)cb + r * IN, scb[r] / 127,
                        p.bytes + r * (IN + 4), IN);
    check_peer(&p, ca, TOKENS, 128, 2e-5 * largest_in(p.out, TOKENS * OUT));
    free(ca);
    free(p.out);
    p.out = NULL;
    p.s.threshold = 0;
    ca = golden("bnb/int8.thr0.CA.i8", 32 * IN);
    check_peer(&p, ca, 32, 128, 0);
    free(ca);
    free(cb);
    free(scb);
    peer_free(&p);
}

/* Smoothed weights meet inputs that are divided on the way. */
static void smoothquant(void **state)
{
    (void)state;
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/peers/smoothquant/w8a8.a0.5.out.f32");
    float *smooth = golden("smoothquant/smooth.a0.5.f32", sizeof(float) * IN);
    float *w = golden_f16("in/weight.f16", OUT * IN);
    struct peer p = { .x = golden_f16("in/activation.f16", TOKENS * IN),
                      .out = golden("smoothquant/w8a8.a0.5.out.f32", sizeof(float) * TOKENS * OUT),
                      .bytes = malloc(OUT * (IN + 4)),
                      .s = { .kind = INPUT_INT8_TOKEN, .divide = smooth } };
    for (int i = 0; i < OUT * IN; i++) w[i] *= smooth[i % IN];
    format_encode_rows(&FORMATS[FORMAT_INT8], w, p.bytes, OUT, IN);
    check_peer(&p, NULL, 0, 0, 1e-5 * largest_in(p.out, TOKENS * OUT));
    free(smooth);
    free(w);
    peer_free(&p);
}

/* Frozen scale and zero of a histogram observer. */
static void observers(void **state)
{
    (void)state;
    char path[512];
    SHARED_OR_SKIP(path, "quant-golden/peers/observers/act_histogram.q.first32tokens.u8");
    int8_t *codes = golden("observers/act_histogram.q.first32tokens.u8", 32 * IN);
    struct peer p = { .x = golden_f16("in/activation.f16", TOKENS * IN),
                      .bytes = calloc(OUT, IN + 4),
                      .s = { .kind = INPUT_INT8_STATIC, .scale = 0.7859867811203003f, .zero = 125 } };
    check_peer(&p, codes, 32, 0, 0);
    free(codes);
    peer_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_request),  cmocka_unit_test(together),  cmocka_unit_test(same_codes),
        cmocka_unit_test(not_hidden),  cmocka_unit_test(refused),   cmocka_unit_test(bitsandbytes),
        cmocka_unit_test(smoothquant), cmocka_unit_test(observers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
