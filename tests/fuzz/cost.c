#include "tests/fuzz/cost.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#endif

enum { TRIES = 3 };

/* ---------------------------------------------------------------- memory */

/* Bytes that are allocated now, and the most that were since the peak was reset. Blocks that were allocated
 * before the first count may be freed later, so `live` may be negative. */
static _Atomic int64_t live, peak;

static void count(int64_t bytes)
{
    const int64_t now = atomic_fetch_add(&live, bytes) + bytes;
    int64_t seen = atomic_load(&peak);
    while (now > seen && !atomic_compare_exchange_weak(&peak, &seen, now)) continue;
}

#ifdef SANITIZED

static const double COST_SANITIZED = 15;

int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void *, size_t),
                                              void (*freed)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *p);

static void allocated(const volatile void *p, size_t n)
{
    (void)p;
    count((int64_t)n);
}

static void freed(const volatile void *p)
{
    if (p) count(-(int64_t)__sanitizer_get_allocated_size(p));
}

static void counting_start(void)
{
    static bool started;
    if (!started && !__sanitizer_install_malloc_and_free_hooks(allocated, freed)) abort();
    started = true;
}

#else

static const double COST_SANITIZED = 1;

/* Functions of this program take the place of the C library's, for its libraries, too. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

static void *counted(void *p)
{
    if (p) count((int64_t)malloc_usable_size(p));
    return p;
}

void *malloc(size_t n)
{
    return counted(__libc_malloc(n));
}

void *calloc(size_t members, size_t n)
{
    return counted(__libc_calloc(members, n));
}

void *realloc(void *p, size_t n)
{
    const int64_t before = p ? (int64_t)malloc_usable_size(p) : 0;
    void *q = __libc_realloc(p, n);
    if (q || !n) count(-before);
    return counted(q);
}

void *memalign(size_t alignment, size_t n)
{
    return counted(__libc_memalign(alignment, n));
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return counted(__libc_memalign(alignment, n));
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    void *p = counted(__libc_memalign(alignment, n));
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

void free(void *p)
{
    if (p) count(-(int64_t)malloc_usable_size(p));
    __libc_free(p);
}

static void counting_start(void) {}

#endif

/* ---------------------------------------------------------------- time */

static double thread_seconds(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) abort();
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int cost_run(void (*use)(const uint8_t *data, size_t size), const uint8_t *data, size_t size,
             const struct cost_ceiling *ceiling)
{
    const double mb = (double)size * 1e-6;
    const double most_s = (ceiling->seconds + ceiling->seconds_per_mb * mb) * COST_SANITIZED;
    const double most_mb = ceiling->mb + ceiling->mb_per_mb * mb;
    double least_s = 0, least_mb = 0;
    counting_start();
    for (int i = 0; i < TRIES; i++) {
        const int64_t before = atomic_load(&live);
        atomic_store(&peak, before);
        const double begun = thread_seconds();
        use(data, size);
        const double took_s = thread_seconds() - begun;
        const double took_mb = (double)(atomic_load(&peak) - before) * 1e-6;
        if (!i || took_s < least_s) least_s = took_s;
        if (!i || took_mb < least_mb) least_mb = took_mb;
        if (least_s <= most_s && least_mb <= most_mb) return 0;
    }
    fprintf(stderr,
            "cost: an input of %zu bytes took %.3f s and %.1f MB; expected at most %.3f s and %.1f MB\n",
            size, least_s, least_mb, most_s, most_mb);
    abort();
}
