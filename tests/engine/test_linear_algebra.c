/* Proves: products, Gram matrices, Cholesky factors and triangular inverses agree with plain loops in
 * binary64, for sizes around the tile size and strides wider than rows. Results are the same to the last bit
 * for any number of threads. Matrices without a factor or inverse, and NaN, are rejected. Without OpenBLAS
 * the message says what to install. */
#include "engine/quant/linear_algebra.h"

#include "tests/engine/algebra.h"
#include "tests/kernels/numbers.h"

static float *gauss(struct rng *r, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    fill_gauss(r, x, n, 1);
    return x;
}

static const struct {
    int64_t rows, cols, inner;
} SHAPES[] = { { 1, 1, 1 },       { 3, 5, 7 },      { 64, 33, 128 },
               { 257, 300, 129 }, { 256, 512, 64 }, { 520, 17, 300 } };

static void products_are_exact_to_rounding(void **state)
{
    (void)state;
    struct rng r = { 1 };
    struct algebra s = algebra_open(2);
    for (size_t shape = 0; shape < COUNT_OF(SHAPES); shape++)
        for (int by_rows = 0; by_rows < 2; by_rows++) {
            const int64_t m = SHAPES[shape].rows, n = SHAPES[shape].cols, k = SHAPES[shape].inner;
            const int64_t as = k + 3, bs = (by_rows ? k : n) + 2, cs = n + 1;
            float *a = gauss(&r, m * as), *b = gauss(&r, (by_rows ? n : k) * bs), *c = gauss(&r, m * cs);
            float *was = malloc((size_t)(m * cs) * sizeof *was);
            memcpy(was, c, (size_t)(m * cs) * sizeof *c);
            linear_multiply_add(s.la,
                                &(struct linear_product){ m, n, k, -0.5f, a, b, as, bs, by_rows, c, cs });
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < cs; j++) {
                    double want = was[i * cs + j], size = 1;
                    for (int64_t l = 0; j < n && l < k; l++) {
                        const double term = (double)a[i * as + l] * (by_rows ? b[j * bs + l] : b[l * bs + j]);
                        want -= 0.5 * term;
                        size += fabs(term);
                    }
                    CHECK_NEAR(c[i * cs + j], want,
                               j < n ? 1e-6 * size : 0); /* the gap between rows is not written */
                }
            free(a), free(b), free(c), free(was);
        }
    algebra_close(&s);
}

static void gram_matrices_add_up(void **state)
{
    (void)state;
    struct rng r = { 2 };
    struct algebra s = algebra_open(3);
    const int64_t sizes[] = { 1, 31, 256, 300 }, rows = 77;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const int64_t n = sizes[i], stride = n + 4;
        float *x = gauss(&r, rows * stride), *h = calloc((size_t)(n * n), sizeof *h);
        linear_gram_add(s.la, h, n, x, stride, 40);
        linear_gram_add(s.la, h, n, x + 40 * stride, stride, rows - 40);
        linear_gram_add(s.la, h, n, x, stride, 0);
        for (int64_t a = 0; a < n; a++)
            for (int64_t b = 0; b <= a; b++) {
                double want = 0, size = 0;
                for (int64_t t = 0; t < rows; t++) {
                    want += (double)x[t * stride + a] * x[t * stride + b];
                    size += fabs((double)x[t * stride + a] * x[t * stride + b]);
                }
                CHECK_NEAR(h[a * n + b], want, 1e-6 * size);
            }
        free(x), free(h);
    }
    algebra_close(&s);
}

/* Positive definite: x^T x of more rows than columns, plus a diagonal. */
static double *definite(struct rng *r, int64_t n)
{
    const int64_t rows = n + 10;
    float *x = gauss(r, rows * n);
    double *a = malloc((size_t)(n * n) * sizeof *a);
    assert_non_null(a);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = i == j ? 1 : 0;
            for (int64_t t = 0; j <= i && t < rows; t++) sum += (double)x[t * n + i] * x[t * n + j];
            a[i * n + j] = j <= i ? sum : NAN; /* never read */
        }
    free(x);
    return a;
}

static void factors_and_inverses_multiply_back(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct rng r = { 3 };
    struct algebra s = algebra_open(2);
    const int64_t sizes[] = { 1, 5, 256, 257, 600 };
    for (size_t c = 0; c < COUNT_OF(sizes); c++) {
        const int64_t n = sizes[c];
        double *a = definite(&r, n), *l = malloc((size_t)(n * n) * sizeof *l),
               *m = malloc((size_t)(n * n) * sizeof *m);
        memcpy(l, a, (size_t)(n * n) * sizeof *l);
        CHECK_OK(linear_cholesky(s.la, l, n, &why));
        memcpy(m, l, (size_t)(n * n) * sizeof *m);
        CHECK_OK(linear_lower_inverse(s.la, m, n, &why));
        for (int64_t i = 0; i < n; i += 1 + n / 50)
            for (int64_t j = 0; j <= i; j += 1 + n / 70) {
                double product = 0, one = 0;
                for (int64_t k = 0; k <= j; k++) product += l[i * n + k] * l[j * n + k];
                for (int64_t k = j; k <= i; k++) one += l[i * n + k] * m[k * n + j];
                CHECK_NEAR(product, a[i * n + j], 1e-10 * (double)n);
                CHECK_NEAR(one, i == j, 1e-12 * (double)n);
            }
        free(a), free(l), free(m);
    }
    algebra_close(&s);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    struct err why = { 0 };
    enum { N = 700, ROWS = 300 };
    double *first = NULL;
    float *first_h = NULL;
    for (int threads = 1; threads <= 5; threads += 2) {
        struct rng r = { 4 };
        struct algebra s = algebra_open(threads);
        float *x = gauss(&r, ROWS * N), *h = calloc(N * N, sizeof *h);
        linear_gram_add(s.la, h, N, x, N, ROWS);
        double *a = definite(&r, N);
        CHECK_OK(linear_cholesky(s.la, a, N, &why));
        CHECK_OK(linear_lower_inverse(s.la, a, N, &why));
        for (int i = 0; i < N; i++)
            for (int j = i + 1; j < N; j++) a[i * N + j] = 0, h[i * N + j] = 0;
        if (first) {
            assert_memory_equal(a, first, sizeof *a * N * N);
            assert_memory_equal(h, first_h, sizeof *h * N * N);
            free(a), free(h);
        } else {
            first = a, first_h = h;
        }
        free(x);
        algebra_close(&s);
    }
    free(first), free(first_h);
}

static void what_has_no_factor_is_refused(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct algebra s = algebra_open(2);
    double indefinite[4] = { 1, 0, 2, 1 }, nan[4] = { 1, 0, NAN, 1 }, singular[4] = { 1, 0, 3, 0 };
    assert_int_equal(linear_cholesky(s.la, indefinite, 2, &why), ERR_FORMAT);
    assert_non_null(strstr(why.message, "pivot 2 of 2"));
    assert_int_equal(linear_cholesky(s.la, nan, 2, &why), ERR_FORMAT);
    assert_int_equal(linear_lower_inverse(s.la, singular, 2, &why), ERR_FORMAT);
    algebra_close(&s);
}

static void without_the_library_it_says_what_to_install(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct threadpool *pool;
    struct linear_algebra *la;
    CHECK_OK(threadpool_open(&pool, &(struct threadpool_options){ .threads = 1 }, &why));
    setenv("QDYNO_OPENBLAS", "/nowhere/libopenblas.so", 1);
    assert_int_equal(linear_algebra_open(&la, pool, &why), ERR_ABSENT);
    assert_null(la);
    assert_non_null(strstr(why.message, "libopenblas0"));
    setenv("QDYNO_OPENBLAS", "libc.so.6", 1); /* a library that is not OpenBLAS */
    assert_int_equal(linear_algebra_open(&la, pool, &why), ERR_ABSENT);
    assert_non_null(strstr(why.message, "openblas_set_num_threads"));
    unsetenv("QDYNO_OPENBLAS");
    threadpool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_exact_to_rounding),
        cmocka_unit_test(gram_matrices_add_up),
        cmocka_unit_test(factors_and_inverses_multiply_back),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(what_has_no_factor_is_refused),
        cmocka_unit_test(without_the_library_it_says_what_to_install),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
