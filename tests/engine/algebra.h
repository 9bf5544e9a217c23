/* tests/engine/algebra.h - a thread pool and linear algebra for a test. Without OpenBLAS the test is skipped,
 * visibly
 * (./dev test installs it; the emulated runs do not have it). */
#ifndef QDYNO_TESTS_ALGEBRA_H
#define QDYNO_TESTS_ALGEBRA_H

#include "engine/quant/linear_algebra.h"
#include "tests/check.h"

struct algebra {
    struct threadpool *pool;
    struct linear_algebra *la;
};

static inline struct algebra algebra_open(int threads)
{
    struct err why = { 0 };
    struct algebra a;
    CHECK_OK(threadpool_open(&a.pool, &(struct threadpool_options){ .threads = threads }, &why));
    if (linear_algebra_open(&a.la, a.pool, &why) == ERR_ABSENT) {
        threadpool_close(a.pool);
        print_message("SKIPPED: %s\n", why.message);
        skip();
    }
    assert_non_null(a.la);
    return a;
}

static inline void algebra_close(struct algebra *a)
{
    linear_algebra_close(a->la);
    threadpool_close(a->pool);
}

#endif
