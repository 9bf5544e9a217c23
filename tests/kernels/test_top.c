/* Proves: the k largest numbers of rows on the CPU equal those of a sort, in order, equal ones by index and
 * NaN first, for one row and for rows divided among threads, up to four million numbers; also without a
 * backend (top_rows). */
#include "tests/kernels/top_scene.h"

static void on_threads(int threads, int most_cols)
{
    static const struct {
        int n, cols;
    } SHAPES[] = { { 1, 1 },    { 3, 5 },    { 2, 64 },    { 40, 65 },
                   { 1, 1000 }, { 9, 8193 }, { 1, 65536 }, { 2, 131075 } };
    struct err why;
    struct top_scene s = { .device = "cpu" };
    CHECK_OK(backend_open(&s.b, "cpu", &(struct backend_options){ .threads = threads }, &why));
    for (size_t i = 0; i < COUNT_OF(SHAPES); i++)
        if (SHAPES[i].cols <= most_cols) check_shape(&s, SHAPES[i].n, SHAPES[i].cols);
    check_odd(&s);
    backend_close(s.b);
}

static void tops(void **state)
{
    (void)state;
    on_threads(1, 70000);
    on_threads(2, 140000);
    on_threads(5, 140000);
}

/* As many numbers as no vocabulary has, every one of them many times. */
static void millions(void **state)
{
    (void)state;
    enum { COLS = 1 << 22 };
    struct err why;
    struct rng r = { 7 };
    struct top_scene s = { .device = "cpu" };
    float *x = malloc(COLS * sizeof *x);
    CHECK(x);
    for (int i = 0; i < COLS; i++) x[i] = (float)rng_below(&r, 1 << 18);
    CHECK_OK(backend_open(&s.b, "cpu", &(struct backend_options){ .threads = 1 }, &why));
    check_tops(&s, x, 1, COLS, COLS);
    backend_close(s.b);
    free(x);
}

/* It reads nothing beyond its rows. */
static void rows(void **state)
{
    (void)state;
    enum { N = 2, COLS = 331, STRIDE = 400, K = 40, FLOATS = STRIDE + COLS };
    struct rng r = { 5 };
    float *x = guarded(FLOATS * sizeof *x, 0);
    struct ranked got[N][K], want[COLS];
    fill_gauss(&r, x, FLOATS, 1);
    top_rows(&(struct top){ .x = x, .x_stride = STRIDE, .n = N, .k = K, .cols = COLS, .out = got[0] });
    for (int row = 0; row < N; row++) {
        for (int i = 0; i < COLS; i++) want[i] = (struct ranked){ x[row * STRIDE + i], i };
        qsort(want, COLS, sizeof *want, larger_first);
        assert_memory_equal(got[row], want, sizeof got[row]);
    }
    guarded_free(x, FLOATS * sizeof *x, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(tops), cmocka_unit_test(millions),
                                        cmocka_unit_test(rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
