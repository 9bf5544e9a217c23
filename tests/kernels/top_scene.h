/* tests/kernels/top_scene.h - rows of numbers for tests of the k largest, and the expected results by
 * sorting. */
#ifndef QDYNO_TESTS_TOP_SCENE_H
#define QDYNO_TESTS_TOP_SCENE_H

#include "tests/kernels/numbers.h"

static inline int larger_first(const void *a, const void *b)
{
    const struct ranked *u = a, *v = b;
    const int nan = isnan(v->value) - isnan(u->value);
    if (nan) return nan;
    if (u->value > v->value || u->value < v->value) return u->value > v->value ? -1 : 1;
    return u->id - v->id;
}

struct top_scene {
    struct backend *b;
    const char *device;
};

/* k of each row, with no more scratch than the door asks for; `want` [n][cols] is sorted. */
static inline void check_top(const struct top_scene *s, const float *there, int n, int cols, int stride,
                             int k, const struct ranked *want)
{
    struct err why;
    const size_t bytes = (size_t)(n * k) * sizeof(struct ranked);
    struct ranked *got = malloc(bytes), *out = backend_alloc(s->b, bytes);
    void *scratch = backend_alloc(s->b, (size_t)backend_top_bytes(s->device, n, k, cols));
    CHECK(got);
    CHECK(out);
    CHECK(scratch);
    backend_top(
        s->b,
        &(struct top){
            .x = there, .x_stride = stride, .n = n, .k = k, .cols = cols, .scratch = scratch, .out = out });
    backend_read(s->b, got, out, bytes);
    CHECK_OK(backend_finish(s->b, &why));
    for (int i = 0; i < n * k; i++) {
        const struct ranked *g = &got[i], *w = &want[(int64_t)(i / k) * cols + i % k];
        if (g->id != w->id || !(g->value == w->value || (isnan(g->value) && isnan(w->value))))
            fail_msg("%d of %d, row %d: place %d is %g of %d, want %g of %d", k, cols, i / k, i % k,
                     (double)g->value, g->id, (double)w->value, w->id);
    }
    backend_free(s->b, out);
    backend_free(s->b, scratch);
    free(got);
}

/* x [n][stride]: every k of a few. */
static inline void check_tops(const struct top_scene *s, const float *x, int n, int cols, int stride)
{
    static const int KS[] = { 1, 11, TOP_MAX };
    struct ranked *want = malloc((size_t)n * (size_t)cols * sizeof *want);
    const size_t bytes = ((size_t)(n - 1) * (size_t)stride + (size_t)cols) * sizeof *x;
    float *there = backend_alloc(s->b, bytes);
    CHECK(want);
    CHECK(there);
    backend_write(s->b, there, x, bytes);
    for (int row = 0; row < n; row++) {
        struct ranked *w = want + (int64_t)row * cols;
        for (int i = 0; i < cols; i++) {
            const float v = x[(int64_t)row * stride + i];
            w[i] = (struct ranked){ isfinite(v) ? v : NAN, i };
        }
        qsort(w, (size_t)cols, sizeof *w, larger_first);
    }
    for (size_t i = 0; i < COUNT_OF(KS); i++)
        if (KS[i] <= cols) check_top(s, there, n, cols, stride, KS[i], want);
    backend_free(s->b, there);
    free(want);
}

/* Numbers of all kinds, and few of them so that many are equal; NaN and infinities here and there. */
static inline void check_shape(const struct top_scene *s, int n, int cols)
{
    struct rng r = { 41 };
    const int stride = cols + 3;
    const int64_t all = (int64_t)n * stride;
    float *x = malloc((size_t)all * sizeof *x);
    CHECK(x);
    fill_gauss(&r, x, all, 3);
    check_tops(s, x, n, cols, stride);
    for (int64_t i = 0; i < all; i++) x[i] = rintf(x[i]); /* zeros of both signs */
    check_tops(s, x, n, cols, stride);
    for (int64_t i = 0; i < all; i += 1 + rng_below(&r, 500))
        x[i] = (float[]){ NAN, INFINITY, -NAN, -INFINITY, 0 }[rng_below(&r, 5)];
    check_tops(s, x, n, cols, stride);
    free(x);
}

static inline void check_odd(const struct top_scene *s)
{
    enum { MANY = 70000 };
    const float odd[] = { -INFINITY, -0.0f, 0, -3e-39f, NAN, INFINITY, -NAN, 1, -1, 3e38f, INFINITY };
    float *x = malloc(MANY * sizeof *x);
    check_tops(s, odd, 1, COUNT_OF(odd), COUNT_OF(odd));
    check_tops(s, odd, 1, 4, COUNT_OF(odd));        /* the first of two zeros */
    for (int i = 0; i < MANY; i++) x[i] = (float)i; /* every one is larger than those before */
    check_tops(s, x, 1, MANY, MANY);
    for (int i = 0; i < MANY; i++) x[i] = -INFINITY;
    check_tops(s, x, 1, MANY, MANY);
    for (int i = 0; i < MANY; i++) x[i] = NAN;
    check_tops(s, x, 1, MANY, MANY);
    free(x);
}

#endif
