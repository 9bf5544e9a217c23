/* pace.c - how fast weights come from memory, and how fast cores multiply, just now. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu.h"

enum { WIDE = 2048, MATRICES = PACE_BYTES / (WIDE * WIDE / 32 * 34) };
/* A small number as a scale and as a code: nothing denormal, no NAN. */
enum { BANK_BYTE = 0x2c };
enum { MULTIPLY_NS = 1500000 };

struct pacer {
    struct backend *backend;
    struct weight weight[MATRICES];
    int bound;
    uint8_t *bank; /* [PACE_BYTES] */
    float *x, *y;  /* [WIDE] */
    ceiling_fn *multiply;
    int64_t rounds; /* of it: long enough to be timed, short beside what is looked at */
    double *speed;  /* [threads] operations/s, the last time */
};

void pace_close(struct pacer *p)
{
    if (!p) return;
    for (int i = 0; i < p->bound; i++) backend_weight_release(p->backend, &p->weight[i]);
    backend_close(p->backend);
    if (p->bank) munmap(p->bank, PACE_BYTES);
    free(p->x);
    free(p->y);
    free(p->speed);
    free(p);
}

/* The bank in huge pages where they can be had: of plain ones it is a fifth slower or faster by where they
 * happened to lie, in every process anew. */
static enum err_code take_memory(struct pacer *p, struct err *why)
{
    p->x = aligned_alloc(64, WIDE * sizeof *p->x); /* rows that straddle lines cost a tenth */
    p->y = aligned_alloc(64, WIDE * sizeof *p->y);
    if (!p->x || !p->y) return err_set(why, ERR_NOMEM, "no memory to look at the memory's speed");
    for (int i = 0; i < WIDE; i++) p->x[i] = 0.125f * (float)(i % 17 - 8);
    p->bank = mmap(NULL, PACE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->bank == MAP_FAILED) {
        p->bank = NULL;
        return err_set(why, ERR_NOMEM, "looking at the memory's speed takes %d MB of memory",
                       PACE_BYTES >> 20);
    }
    madvise(p->bank, PACE_BYTES, MADV_HUGEPAGE); /* only a hint */
    memset(p->bank, BANK_BYTE, PACE_BYTES);
    return ERR_OK;
}

/* Each member's own speed: that of the pool would be the slowest one's, whom kernels do not wait for. */
static void multiply_member(void *arg, int member, int size)
{
    struct pacer *p = arg;
    (void)size;
    const int64_t from = clock_ns();
    const double operations = p->multiply(p->rounds);
    p->speed[member] = operations / ((double)MAX(clock_ns() - from, (int64_t)1) * 1e-9);
}

double pace_multiply_s(struct pacer *p)
{
    double sum = 0;
    threadpool_run(p->backend->pool, multiply_member, p);
    for (int i = 0; i < threadpool_size(p->backend->pool); i++) sum += p->speed[i];
    return 1 / sum;
}

/* The widest f32 multiply-adds of those instruction sets, and how many rounds of them take their time. */
static enum err_code size_multiplying(struct pacer *p, uint32_t isa, struct err *why)
{
    p->speed = calloc((size_t)threadpool_size(p->backend->pool), sizeof *p->speed);
    if (!p->speed) return err_set(why, ERR_NOMEM, "no memory to look at the cores' speed");
    p->multiply = kernels_ceiling(ceiling_widest("f32_fma", isa)); /* one needs nothing */
    p->rounds = 1024;
    for (int64_t taken = 0; taken < MULTIPLY_NS / 2; p->rounds *= 2) {
        const int64_t from = clock_ns();
        p->multiply(p->rounds);
        taken = clock_ns() - from;
    }
    return ERR_OK;
}

enum err_code pace_open(struct pacer **out, uint32_t isa, int threads, struct err *why)
{
    const struct format *f = &FORMATS[FORMAT_Q8_0];
    const struct backend_options o = { .threads = threads, .isa = isa };
    *out = NULL;
    struct pacer *p = calloc(1, sizeof *p);
    if (!p) return err_set(why, ERR_NOMEM, "no memory to look at the memory's speed");
    enum err_code rc = take_memory(p, why);
    if (!rc) rc = backend_open(&p->backend, "cpu", &o, why);
    if (!rc) rc = backend_reserve(p->backend, &(struct backend_work){ .rows = 1, .cols = WIDE }, why);
    for (; p->bound < MATRICES && !rc; p->bound += !rc)
        rc = backend_weight_bind(p->backend, &p->weight[p->bound], f, WIDE, WIDE, NULL,
                                 p->bank + p->bound * WIDE * format_row_bytes(f, WIDE), why);
    if (!rc) rc = size_multiplying(p, isa, why);
    if (rc)
        pace_close(p);
    else
        *out = p;
    return rc;
}

double pace_read_s(struct pacer *p)
{
    struct matmul m = { .x = p->x, .x_stride = WIDE, .n = 1, .y = p->y, .y_stride = WIDE };
    const int64_t from = clock_ns();
    for (int i = 0; i < MATRICES; i++) {
        m.w = &p->weight[i];
        backend_matmul(p->backend, &m, 1);
    }
    return (double)MAX(clock_ns() - from, (int64_t)1) * 1e-9 / PACE_BYTES;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pace_usual_s(double *reading_s, int n)
{
    double sum = 0;
    const int from = n / 4, to = n - n / 4;
    if (n < 1) return NAN;
    qsort(reading_s, (size_t)n, sizeof *reading_s, by_value);
    for (int i = from; i < to; i++) sum += reading_s[i];
    return sum / (to - from);
}

double pace_best_s(double *reading_s, int n)
{
    if (n < 1) return NAN;
    qsort(reading_s, (size_t)n, sizeof *reading_s, by_value);
    return reading_s[n / 10];
}
