/* Proves: the largest numbers of rows on an OpenCL device are those that sorting on the host finds, in order,
 * with equal ones by index and NaN in front: one and many, of short rows and of rows that take several
 * rounds, more rows than scratch takes at once. */
#include "kernels/opencl/opencl.h"
#include "tests/kernels/opencl_here.h"

static int larger_first(const void *a, const void *b)
{
    const struct ranked *u = a, *v = b;
    const int nan = isnan(v->value) - isnan(u->value);
    if (nan) return nan;
    if (u->value > v->value || u->value < v->value) return u->value > v->value ? -1 : 1;
    return u->id - v->id;
}

static void check_top(struct backend *b, const float *x, int n, int cols, int stride, int k)
{
    struct err why;
    struct ranked *got = malloc((size_t)(n * k) * sizeof *got), *want = malloc((size_t)cols * sizeof *want);
    float *there = sent(b, x, (int64_t)n * stride);
    struct ranked *out = backend_alloc(b, (size_t)(n * k) * sizeof *out);
    opencl_top(b, &(struct top){ .x = there, .x_stride = stride, .n = n, .k = k, .cols = cols, .out = out });
    backend_read(b, got, out, (size_t)(n * k) * sizeof *got);
    CHECK_OK(backend_finish(b, &why));
    for (int row = 0; row < n; row++) {
        for (int i = 0; i < cols; i++) want[i] = (struct ranked){ x[row * stride + i], i };
        qsort(want, (size_t)cols, sizeof *want, larger_first);
        for (int i = 0; i < k; i++) {
            const struct ranked *g = &got[row * k + i], *w = &want[i];
            if (g->id != w->id || !(g->value == w->value || (isnan(g->value) && isnan(w->value))))
                fail_msg("%d of %d, row %d: place %d is %g of %d, want %g of %d", k, cols, row, i, g->value,
                         g->id, w->value, w->id);
        }
    }
    backend_free(b, there);
    backend_free(b, out);
    free(got);
    free(want);
}

static void tops(void **state)
{
    (void)state;
    static const struct {
        int n, cols;
    } SHAPES[] = { { 1, 1 }, { 3, 5 }, { 2, 1024 }, { 35, 1025 }, { 2, 40000 }, { 1, 1100000 } };
    struct backend *b = opencl_or_skip(1, 64);
    struct rng r = { 41 };
    for (size_t s = 0; s < COUNT_OF(SHAPES); s++) {
        const int n = SHAPES[s].n, cols = SHAPES[s].cols, stride = cols + 3;
        float *x = malloc((size_t)(n * stride) * sizeof *x);
        fill_gauss(&r, x, (int64_t)n * stride, 3);
        for (int k = 1; k <= MIN(cols, TOP_MAX); k = k * 8 - (k == 8)) {
            check_top(b, x, n, cols, stride, k);
            for (int i = 0; i < n * stride; i++)
                x[i] = rintf(x[i]); /* many equal ones, zeros of both signs */
            check_top(b, x, n, cols, stride, k);
        }
        free(x);
    }
    float odd[] = { -INFINITY, -0.0f, 0, -3e-39f, NAN, INFINITY, -NAN, 1, -1, 3e38f, INFINITY };
    check_top(b, odd, 1, COUNT_OF(odd), COUNT_OF(odd), COUNT_OF(odd));
    check_top(b, odd, 1, COUNT_OF(odd), COUNT_OF(odd), 1);
    check_top(b, odd, 1, 4, COUNT_OF(odd), 1); /* the first of two zeros */
    backend_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(tops) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
