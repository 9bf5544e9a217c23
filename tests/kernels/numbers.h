/* tests/kernels/numbers.h - helpers of the kernel tests: reproducible random numbers, the error metric,
 * memory that ends at an unreadable page, and the instruction sets of this machine. */
#ifndef QDYNO_TESTS_NUMBERS_H
#define QDYNO_TESTS_NUMBERS_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/kernels.h"
#include "tests/check.h"

struct rng {
    uint64_t s;
};

static inline uint32_t rng_u32(struct rng *r)
{
    r->s = r->s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->s >> 32);
}

static inline int rng_below(struct rng *r, int n)
{
    return (int)((uint64_t)rng_u32(r) * (uint64_t)n >> 32);
}

static inline float rng_gauss(struct rng *r, double sigma)
{
    const double u1 = (rng_u32(r) + 1.0) / 4294967296.0, u2 = rng_u32(r) / 4294967296.0;
    return (float)(sigma * sqrt(-2 * log(u1)) * cos(6.283185307179586 * u2));
}

static inline void fill_gauss(struct rng *r, float *x, int64_t n, double sigma)
{
    for (int64_t i = 0; i < n; i++) x[i] = rng_gauss(r, sigma);
}

/* Normalized mean squared error: sum (a - b)^2 / sum a^2, where `a` is the expected result. 0 if both are all
 * zeros; NaN if either contains NaN. */
static inline double nmse(const float *a, const float *b, int64_t n)
{
    double error = 0, power = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        power += (double)a[i] * a[i];
    }
    return error == 0 ? 0 : error / power;
}

/* Allocate `bytes` of memory that end where an unreadable page begins, so that reading one byte too far
 * always crashes. `skew` bytes lie between the end and the page, to vary the alignment. Never freed: tests
 * are short. */
static inline void *guarded(size_t bytes, size_t skew)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + skew + page - 1) / page * page;
    uint8_t *p = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_NE(p, MAP_FAILED);
    assert_int_equal(mprotect(p + size, page, PROT_NONE), 0);
    return p + size - bytes - skew;
}

static inline void guarded_free(void *p, size_t bytes, size_t skew)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + skew + page - 1) / page * page;
    munmap((uint8_t *)p + bytes + skew - size, size + page);
}

/* Is this level tested in a run of its own? QDYNO_TEST_OTHER_LEVELS lists those that do (tests/isa.cmake). */
static inline bool level_tested_elsewhere(const struct isa_level *level)
{
    const char *list = getenv("QDYNO_TEST_OTHER_LEVELS"), *at = list;
    const size_t n = strlen(level->name);
    for (; at && (at = strstr(at, level->name)); at += n)
        if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return false;
}

/* List the ISA levels to test here, lowest first: the best that the machine and QDYNO_ISA allow, and lower
 * ones without a test run of their own. Returns their number. */
static inline size_t levels_here(const struct isa_level **out)
{
    uint32_t usable = 0;
    size_t n = 0;
    const struct isa_level *best = NULL;
    assert_int_equal(isa_usable(&usable, NULL), ERR_OK);
    for (size_t i = 0; i < ISA_LEVEL_COUNT; i++)
        if (!(ISA_LEVELS[i].bits & ~usable)) best = &ISA_LEVELS[i];
    for (size_t i = 0; i < ISA_LEVEL_COUNT; i++) {
        const struct isa_level *level = &ISA_LEVELS[i];
        if (!(level->bits & ~usable) && (level == best || !level_tested_elsewhere(level))) out[n++] = level;
    }
    return n;
}

#endif
