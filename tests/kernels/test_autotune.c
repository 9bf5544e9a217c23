/* Proves, for a backend with COMPILE_AUTOTUNE: every kernel that can be chosen stays within the error bound
 * of the precision, for every weight format and instruction set; measured choices survive as text, so that
 * nothing is measured twice; other settings measure again; and damaged text changes nothing. With
 * COMPILE_OFF, products and gated pairs give the results of COMPILE_FUSED. */
#include "kernels/cpu.h"
#include "tests/kernels/opencl_here.h"

enum { ROWS = 64, COLS = 512, OUTPUTS = 96 };

static struct backend *opened(uint32_t isa, enum precision precision, int threads, enum compile compile,
                              const char *shapes)
{
    struct err why;
    struct backend *b;
    const struct backend_options o = {
        .threads = threads, .isa = isa, .precision = precision, .compile = compile, .shapes = shapes
    };
    CHECK_OK(backend_open(&b, "cpu", &o, &why));
    CHECK_OK(backend_reserve(b, &(struct backend_work){ .rows = ROWS, .cols = COLS }, &why));
    return b;
}

/* Weights of one format, and their products with x in binary64. */
struct scene {
    const struct format *f;
    void *bytes;
    float x[ROWS * COLS], w[OUTPUTS * COLS];
    double want[ROWS * OUTPUTS], terms[ROWS * OUTPUTS];
};

static void scene_make(struct scene *s, const struct format *f)
{
    struct rng r = { 5 };
    s->f = f;
    s->bytes = malloc((size_t)(OUTPUTS * format_row_bytes(f, COLS)));
    fill_gauss(&r, s->x, ROWS * COLS, 1);
    fill_gauss(&r, s->w, OUTPUTS * COLS, 0.05);
    format_encode_rows(f, s->w, s->bytes, OUTPUTS, COLS);
    format_decode_rows(f, s->bytes, s->w, OUTPUTS, COLS);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < OUTPUTS; j++) {
            double sum = 0, terms = 0;
            for (int k = 0; k < COLS; k++) {
                const double term = (double)s->x[i * COLS + k] * s->w[j * COLS + k];
                sum += term, terms += fabs(term);
            }
            s->want[i * OUTPUTS + j] = sum;
            s->terms[i * OUTPUTS + j] = terms;
        }
}

static void bound_to(struct weight *w, struct backend *b, const struct scene *s, int64_t rows)
{
    struct err why;
    CHECK_OK(backend_weight_bind(b, w, s->f, rows, COLS, NULL, s->bytes, &why));
}

static void multiply(struct backend *b, const struct weight *w, const struct scene *s, int n, float *y)
{
    backend_matmul(
        b, &(struct matmul){ .w = w, .x = s->x, .x_stride = COLS, .n = n, .y = y, .y_stride = w->rows }, 1);
}

/* The line of the settings of `b` with one matrix and the given choices. */
static void line_of(const struct backend *b, const char *items, char *out, size_t size)
{
    char names[128];
    struct backend_info info;
    backend_describe(b, &info);
    snprintf(out, size, "someone else's\tline\ncpu|%s|threads=%d|precision=%d|act=%d\t%s\n",
             isa_names(info.isa, names, sizeof names), b->options.threads, (int)b->options.precision,
             (int)b->options.activations, items);
}

/* ---------------------------------------------------------------- candidates */

static void check_product(const struct scene *s, enum precision precision, const struct weight *w,
                          struct backend *b, int n, const char *what)
{
    static float y[ROWS * OUTPUTS];
    double error = 0, power = 0;
    multiply(b, w, s, n, y);
    for (int i = 0; i < n * OUTPUTS; i++) {
        const double d = y[i] - s->want[i];
        error += d * d, power += s->want[i] * s->want[i];
        const double bound = precision == PRECISION_HIGHEST ? 1e-6 : 3e-5;
        if (precision != PRECISION_MEDIUM && !(fabs(d) <= bound * s->terms[i]))
            fail_msg("%s: %g instead of %g", what, (double)y[i], s->want[i]);
    }
    if (!(error <= 1e-4 * power)) fail_msg("%s: NMSE %g", what, error / power);
}

/* Force one kernel by text, at every measured number of rows that allows it. */
static void check_candidate(const struct scene *s, const struct isa_level *level, enum precision precision,
                            const char *name)
{
    static const int POINTS[] = { 2, 3, 4, 6, 8, 12, 16, 24, 32, 64 };
    char items[512], line[1024], what[128];
    struct weight w;
    int used = snprintf(items, sizeof items, "%s.%dx%d:", s->f->name, OUTPUTS, COLS);
    for (size_t i = 0; i < COUNT_OF(POINTS) && (strcmp(name, "gemv") || POINTS[i] <= TUNED_GEMV_ROWS); i++)
        used += snprintf(items + used, sizeof items - (size_t)used, "%s%d=%s", i ? "," : "", POINTS[i], name);
    struct backend *plain = opened(level->bits, precision, 1, COMPILE_AUTOTUNE, NULL);
    line_of(plain, items, line, sizeof line);
    backend_close(plain);
    struct backend *b = opened(level->bits, precision, 1, COMPILE_AUTOTUNE, line);
    bound_to(&w, b, s, OUTPUTS);
    snprintf(what, sizeof what, "%s, %s, precision %d, kernel %s", s->f->name, level->name, precision, name);
    if (w.tuned != 1) fail_msg("%s: the choice was not read: %s", what, line);
    for (size_t i = 0; i < COUNT_OF(POINTS); i++)
        for (int n = POINTS[i] - 1; n <= POINTS[i]; n++) check_product(s, precision, &w, b, n, what);
    backend_close(b);
}

static void candidates(void **state)
{
    (void)state;
    static struct scene s;
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    static const enum precision PRECISIONS[] = { PRECISION_HIGHEST, PRECISION_HIGH, PRECISION_MEDIUM };
    int checked = 0;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (!FORMATS[f].encode || FORMATS[f].searched || COLS % FORMATS[f].block_weights) continue;
        scene_make(&s, &FORMATS[f]);
        for (size_t l = 0; l < count * COUNT_OF(PRECISIONS); l++) {
            const enum precision precision = PRECISIONS[l % COUNT_OF(PRECISIONS)];
            const struct isa_level *level = levels[l / COUNT_OF(PRECISIONS)];
            const struct backend_options o = { .precision = precision };
            const struct kernel_set k = kernels_select(level->bits);
            struct matmul_candidate all[CANDIDATES_MAX];
            const int n = matmul_candidates(&k, &o, s.f, INPUT_FREE, all);
            for (int i = 0; i < n; i++) check_candidate(&s, level, precision, all[i].kernel->name);
            check_candidate(&s, level, precision, "gemv");
            checked += n + 1;
        }
        free(s.bytes);
    }
    assert_true(checked > 0);
}

/* ---------------------------------------------------------------- text */

static struct scene of_q8_0(void)
{
    static struct scene s;
    if (!s.f) scene_make(&s, &FORMATS[FORMAT_Q8_0]);
    return s;
}

static int tuned_by(const char *shapes, enum precision precision, int threads, enum compile compile)
{
    const struct scene s = of_q8_0();
    struct weight w;
    struct backend *b = opened(isa_detect(), precision, threads, compile, shapes);
    bound_to(&w, b, &s, OUTPUTS);
    backend_close(b);
    return w.tuned;
}

static void round_trip(void **state)
{
    (void)state;
    const struct scene s = of_q8_0();
    struct err why;
    struct autotuned first, second, more;
    struct weight w[3];
    struct weight *list[] = { &w[0], &w[1], &w[2] };
    struct backend *b = opened(isa_detect(), PRECISION_MEDIUM, 1, COMPILE_AUTOTUNE, NULL);
    bound_to(&w[0], b, &s, OUTPUTS);
    bound_to(&w[1], b, &s, OUTPUTS / 2);
    bound_to(&w[2], b, &s, OUTPUTS);
    CHECK_OK(backend_autotune(b, list, 3, NULL, NULL, &first, &why));
    assert_int_equal(first.measured, 2); /* two of the three matrices are alike */
    assert_true(first.seconds > 0);
    assert_int_equal(w[0].tuned, w[2].tuned);
    assert_int_not_equal(w[0].tuned, w[1].tuned);
    for (int n = 1; n <= ROWS; n++) check_product(&s, PRECISION_MEDIUM, &w[0], b, n, "measured");
    CHECK_OK(backend_autotune(b, list, 3, NULL, NULL, &second, &why));
    assert_int_equal(second.measured, 0);
    assert_null(second.text);
    backend_close(b);

    b = opened(isa_detect(), PRECISION_MEDIUM, 1, COMPILE_AUTOTUNE, first.text);
    bound_to(&w[0], b, &s, OUTPUTS);
    bound_to(&w[1], b, &s, OUTPUTS / 2);
    bound_to(&w[2], b, &s, OUTPUTS / 3);
    assert_true(w[0].tuned && w[1].tuned && !w[2].tuned);
    CHECK_OK(backend_autotune(b, list, 3, NULL, NULL, &more, &why));
    assert_int_equal(more.measured, 1); /* only what is new; the rest stays as it was */
    assert_memory_equal(more.text, first.text, strlen(first.text));
    backend_close(b);

    assert_true(tuned_by(first.text, PRECISION_MEDIUM, 1, COMPILE_AUTOTUNE));
    assert_false(tuned_by(first.text, PRECISION_MEDIUM, 2, COMPILE_AUTOTUNE));
    assert_false(tuned_by(first.text, PRECISION_HIGHEST, 1, COMPILE_AUTOTUNE));
    assert_false(tuned_by(first.text, PRECISION_MEDIUM, 1, COMPILE_FUSED));
    free(first.text);
    free(more.text);
}

static bool stop(void *ctx, int done, int of)
{
    (void)ctx, (void)done, (void)of;
    return false;
}

static void cancelled(void **state)
{
    (void)state;
    const struct scene s = of_q8_0();
    struct err why;
    struct autotuned out;
    struct weight w, *list[] = { &w };
    struct backend *b = opened(isa_detect(), PRECISION_MEDIUM, 1, COMPILE_AUTOTUNE, NULL);
    bound_to(&w, b, &s, OUTPUTS);
    assert_int_equal(backend_autotune(b, list, 1, stop, NULL, &out, &why), ERR_CANCELLED);
    backend_close(b);
    b = opened(isa_detect(), PRECISION_MEDIUM, 1, COMPILE_FUSED, NULL);
    bound_to(&w, b, &s, OUTPUTS);
    CHECK_OK(backend_autotune(b, list, 1, stop, NULL, &out, &why)); /* nothing to measure */
    assert_int_equal(out.measured, 0);
    backend_close(b);
}

static void damaged(void **state)
{
    (void)state;
    static const char *const WRONG[] = {
        "",
        "q8_0.96x512",
        "q8_0.96x512:2",
        "q8_0.96x512:2=",
        "q8_0.96x512:2=amazing",
        "q8_0.96x512:64=gemv", /* its scratch memory would be too small */
        "q8_0.96x512:5=f32",
        "q8_0.96x512:2=f32,2=f32",
        "q8_0.96x512:-2=f32",
        "q8_0.96x512:99999999999999999999=f32",
        "q8_0.96x512 :2=f32",
        "q8_0.-96x512:2=f32",
        "q8_0.96x99999999999999999999:2=f32",
        "q9_9.96x512:2=f32",
        "q8_0.0x512:",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:",
    };
    static const char GOOD[] = "q4_0.7x32:;q8_0.96x512:2=f32,8=gemv;q4_0.8x32:";
    const struct scene s = of_q8_0();
    char line[1024];
    struct backend *b = opened(isa_detect(), PRECISION_MEDIUM, 1, COMPILE_AUTOTUNE, NULL);
    for (size_t i = 0; i < COUNT_OF(WRONG); i++) {
        line_of(b, WRONG[i], line, sizeof line);
        if (tuned_by(line, PRECISION_MEDIUM, 1, COMPILE_AUTOTUNE)) fail_msg("'%s' was used", WRONG[i]);
    }
    line_of(b, GOOD, line, sizeof line);
    assert_int_equal(tuned_by(line, PRECISION_MEDIUM, 1, COMPILE_AUTOTUNE), 2);
    struct rng r = { 3 };
    const size_t n = strlen(line), tail = sizeof GOOD + 1;
    for (int try = 0; try < 2000; try++) {
        char copy[1024];
        struct weight w;
        memcpy(copy, line, n + 1);
        for (int i = rng_below(&r, 3); i >= 0; i--)
            copy[n - 1 - (size_t)rng_below(&r, (int)tail)] = (char)rng_below(&r, 256);
        struct backend *c = opened(isa_detect(), PRECISION_MEDIUM, 1, COMPILE_AUTOTUNE, copy);
        bound_to(&w, c, &s, OUTPUTS);
        if (try % 50 == 0)
            check_product(&s, PRECISION_MEDIUM, &w, c, 1 + rng_below(&r, ROWS), "damaged text");
        backend_close(c);
    }
    backend_close(b);
}

/* ---------------------------------------------------------------- other devices */

static void opencl_lines(void **state)
{
    (void)state;
    struct err why;
    struct autotuned out;
    struct weight w = { 0 }, *list[] = { &w };
    struct device_info d;
    char line[512];
    assert_false(opencl_shapes_known("a|b|c\tx:y\n", "opencl:99"));
    struct backend *b = opencl_or_skip(ROWS, COLS);
    CHECK_OK(backend_autotune(b, list, 1, stop, NULL, &out, &why)); /* its shapes are measured elsewhere */
    assert_int_equal(out.measured, 0);
    backend_close(b);
    assert_true(opencl_devices(&d, 1) > 0);
    snprintf(line, sizeof line, "cpu|ref\t\n%s|%s|%s\tx:y\n", d.platform, d.model, d.driver);
    assert_true(opencl_shapes_known(line, d.name));
    assert_false(opencl_shapes_known(NULL, d.name));
    snprintf(line, sizeof line, "%s|%s|%s another\tx:y\n", d.platform, d.model, d.driver);
    assert_false(opencl_shapes_known(line, d.name));
}

/* ---------------------------------------------------------------- off */

static void run_gated(enum compile compile, float *out)
{
    const struct scene s = of_q8_0();
    static float gate[ROWS * OUTPUTS], up[ROWS * OUTPUTS];
    struct weight w;
    struct backend *b = opened(isa_detect(), PRECISION_MEDIUM, 1, compile, NULL);
    bound_to(&w, b, &s, OUTPUTS);
    struct gated g = { .act = ACT_SILU, .y = out, .y_stride = OUTPUTS };
    g.gate = (struct matmul){
        .w = &w, .x = s.x, .x_stride = COLS, .n = ROWS, .y = gate, .y_stride = OUTPUTS
    };
    g.up = g.gate;
    g.up.y = up;
    memset(gate, 0, sizeof gate);
    backend_gated(b, &g);
    /* a fused pair leaves no products of its parts */
    if (compile == COMPILE_OFF) assert_true(fabs(gate[0] - s.want[0]) <= 0.1 * s.terms[0]);
    struct matmul both[] = { g.gate, g.up };
    backend_matmul(b, both, 2);
    check_product(&s, PRECISION_MEDIUM, &w, b, ROWS, "one at a time");
    assert_memory_equal(gate, up, sizeof gate);
    backend_close(b);
}

static void off_agrees(void **state)
{
    (void)state;
    static float off[ROWS * OUTPUTS], fused[ROWS * OUTPUTS];
    run_gated(COMPILE_OFF, off);
    run_gated(COMPILE_FUSED, fused);
    assert_true(nmse(off, fused, ROWS * OUTPUTS) <= 1e-10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates), cmocka_unit_test(round_trip),   cmocka_unit_test(cancelled),
        cmocka_unit_test(damaged),    cmocka_unit_test(opencl_lines), cmocka_unit_test(off_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
