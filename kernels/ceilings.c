/* Measure the limits of this machine: memory bandwidth of a sequential read, and multiply-adds on registers.
 * Benchmarks report speeds as shares of these limits, measured in the same run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu.h"

/* ---------------------------------------------------------------- reading */

struct read_run {
    const uint64_t *words;
    int64_t count; /* words */
    int64_t ahead; /* software prefetch distance in words; 0: hardware prefetcher only */
    uint64_t sums[64];
};

enum { LINE = 8 /* words */, MEMBERS_MAX = 64 };

/* Prefetch distances, in words, that the measurement tries in turn. The best one differs between processors,
 * and without prefetching our GEMV kernels read faster than this "limit". */
static const int64_t AHEAD[] = { 0, 128, 256, 512, 1024 };

/* Eight independent sums, so that the latency of additions is no limit. The compiler vectorizes this loop. */
static uint64_t sum_words(const uint64_t *w, int64_t n, int64_t ahead)
{
    uint64_t s[LINE] = { 0 };
    for (int64_t i = 0; i + LINE <= n; i += LINE) {
        if (ahead) __builtin_prefetch(w + i + ahead);
        for (int j = 0; j < LINE; j++) s[j] += w[i + j];
    }
    for (int j = 1; j < LINE; j++) s[0] += s[j];
    return s[0];
}

static void read_member(void *arg, int member, int size)
{
    struct read_run *r = arg;
    int64_t from, to;
    member_share(r->count, member, size, &from, &to);
    r->sums[member % MEMBERS_MAX] += sum_words(r->words + from, to - from, r->ahead);
}

static void touch_member(void *arg, int member, int size)
{
    struct read_run *r = arg;
    int64_t from, to;
    member_share(r->count, member, size, &from, &to);
    memset((void *)(r->words + from), 1 + member, (size_t)(to - from) * sizeof *r->words);
}

/* The best bandwidth of passes repeated for `seconds`. The threads touch their pages first. */
static double read_best_bytes_s(struct read_run *r, int threads, double seconds)
{
    struct threadpool *pool = NULL;
    double best = NAN;
    if (threadpool_open(&pool, &(struct threadpool_options){ .threads = threads }, NULL)) return NAN;
    threadpool_run(pool, touch_member, r);
    const double bytes = (double)r->count * sizeof *r->words;
    const int64_t end = clock_ns() + (int64_t)(seconds * 1e9);
    int64_t now;
    int turn = 0;
    do {
        r->ahead = AHEAD[turn++ % (int)COUNT_OF(AHEAD)];
        const int64_t start = clock_ns();
        threadpool_run(pool, read_member, r);
        now = clock_ns();
        const double speed = bytes / ((double)(now - start) * 1e-9);
        if (!(best >= speed)) best = speed;
    } while (now < end || turn < (int)COUNT_OF(AHEAD));
    threadpool_close(pool);
    return best;
}

double ceiling_read_bytes_s(const struct ceiling_reading *what, int64_t bytes, double seconds)
{
    struct read_run r = { .count = bytes / (int64_t)sizeof(uint64_t) };
    if (r.count < 1) return NAN;
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NAN;
    madvise(p, (size_t)bytes, MADV_HUGEPAGE); /* a hint: measure the memory, not the TLB */
    r.words = p;
    double best = NAN;
    const bool placed = !what->nodes || numa_place(what->nodes, what->node, p, (size_t)bytes);
    if (placed && (!what->near || numa_enter(what->nodes, what->node))) {
        best = read_best_bytes_s(&r, what->threads, seconds);
        if (what->near) numa_leave(what->nodes);
    }
    munmap(p, (size_t)bytes);
    return best;
}

/* ---------------------------------------------------------------- arithmetic */

struct multiply_run {
    ceiling_fn *fn;
    int64_t rounds;
    double operations; /* of all threads together */
};

static void multiply_member(void *arg, int member, int size)
{
    struct multiply_run *m = arg;
    const double done = m->fn(m->rounds);
    if (!member) m->operations = done * size;
}

const struct ceiling *ceiling_widest(const char *name, uint32_t isa)
{
    const struct ceiling *widest = NULL;
    for (size_t i = 0; i < CEILING_COUNT; i++) /* rows of one name are in ascending width */
        if (!strcmp(CEILINGS[i].name, name) && !(CEILINGS[i].needs & ~isa)) widest = &CEILINGS[i];
    return widest;
}

double ceiling_ops_s(const struct ceiling *c, uint32_t usable, int threads, double seconds)
{
    enum { FIRST_ROUNDS = 4096, RUN_NS = 2000000 };
    struct multiply_run m = { .fn = kernels_ceiling(c), .rounds = FIRST_ROUNDS };
    struct threadpool *pool = NULL;
    if (!m.fn || (c->needs & ~usable) || (c->needs & ~isa_detect())) return NAN;
    if (threadpool_open(&pool, &(struct threadpool_options){ .threads = threads }, NULL)) return NAN;
    double best = NAN;
    const int64_t end = clock_ns() + (int64_t)(seconds * 1e9);
    int64_t now;
    do {
        const int64_t start = clock_ns();
        threadpool_run(pool, multiply_member, &m);
        now = clock_ns();
        const double speed = m.operations / ((double)MAX(now - start, (int64_t)1) * 1e-9);
        if (!(best >= speed)) best = speed;
        if (now - start < RUN_NS) m.rounds *= 2; /* until starting the threads is negligible */
    } while (now < end);
    threadpool_close(pool);
    return best;
}
