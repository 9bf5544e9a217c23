/* pace.c - how fast weights come from memory, and how fast cores work on them, just now. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu.h"

enum { WIDE = PACE_COLS, MATRICES = PACE_BYTES / (WIDE * WIDE / 32 * 34) };
/* A small number as a scale and as a code: nothing denormal, no NAN. */
enum { BANK_BYTE = 0x2c };
enum { NEAR_ROWS = 128, COMPUTE_NS = 100000 };

struct pacer {
    struct backend *backend; /* borrowed */
    struct weight weight[MATRICES];
    int bound;
    uint8_t *bank;   /* [PACE_BYTES] */
    float *x, *y;    /* [WIDE] */
    struct act_q8 q; /* of x */
    double *speed;   /* [threads] weights/s, the last time */
};

void pace_close(struct pacer *p)
{
    if (!p) return;
    for (int i = 0; i < p->bound; i++) backend_weight_release(p->backend, &p->weight[i]);
    if (p->bank) munmap(p->bank, PACE_BYTES);
    free(p->x);
    free(p->y);
    free(p->q.q);
    free(p->q.d);
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
    p->q = (struct act_q8){ .q = aligned_alloc(64, WIDE),
                            .d = aligned_alloc(64, 2 * WIDE / Q8_BLOCK * sizeof(float)),
                            .q_stride = WIDE,
                            .d_stride = WIDE / Q8_BLOCK };
    p->speed = calloc((size_t)threadpool_size(p->backend->pool), sizeof *p->speed);
    if (!p->q.q || !p->q.d || !p->speed)
        return err_set(why, ERR_NOMEM, "no memory to look at the cores' speed");
    p->q.sum = p->q.d + WIDE / Q8_BLOCK;
    ((const struct cpu *)p->backend)->k.vec.quantize_q8(p->x, WIDE, p->q.q, p->q.d, p->q.sum);
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

/* Rows of weights that stay in a core's own cache. Each member's own speed: that of the pool would be the
 * slowest one's, whom kernels do not wait for. */
static void compute_member(void *arg, int member, int size)
{
    struct pacer *p = arg;
    const struct cpu *b = (const struct cpu *)p->backend;
    const struct format_kernels *kernels = &b->k.format[FORMAT_Q8_0];
    dot_fn *dot = kernels->dot_q8 ? kernels->dot_q8 : kernels->dot_f32;
    float y[NEAR_ROWS];
    const struct dot d = { .w = p->bank,
                           .row_bytes = format_row_bytes(&FORMATS[FORMAT_Q8_0], WIDE),
                           .rows = NEAR_ROWS,
                           .cols = WIDE,
                           .x = p->x,
                           .x_stride = WIDE,
                           .q = p->q,
                           .n = 1,
                           .y = y,
                           .y_stride = NEAR_ROWS };
    (void)size;
    dot(&d); /* from memory, where reading left it */
    const int64_t from = clock_ns();
    int64_t passed = 0, weights = 0;
    for (; passed < COMPUTE_NS; passed = clock_ns() - from) {
        dot(&d);
        weights += (int64_t)NEAR_ROWS * WIDE;
    }
    p->speed[member] = (double)weights / ((double)passed * 1e-9);
}

double pace_compute_s(struct pacer *p, struct backend *on)
{
    double sum = 0;
    threadpool_run(on->pool, compute_member, p);
    for (int i = 0; i < threadpool_size(on->pool); i++) sum += p->speed[i];
    return 1 / sum;
}

enum err_code pace_open(struct pacer **out, struct backend *backend, struct err *why)
{
    const struct format *f = &FORMATS[FORMAT_Q8_0];
    *out = NULL;
    struct pacer *p = calloc(1, sizeof *p);
    if (!p) return err_set(why, ERR_NOMEM, "no memory to look at the memory's speed");
    p->backend = backend;
    enum err_code rc = take_memory(p, why);
    for (; p->bound < MATRICES && !rc; p->bound += !rc)
        rc = backend_weight_bind(backend, &p->weight[p->bound], f, WIDE, WIDE, NULL,
                                 p->bank + p->bound * WIDE * format_row_bytes(f, WIDE), why);
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
    return (double)MAX(clock_ns() - from, (int64_t)1) * 1e-9 / ((double)MATRICES * WIDE * WIDE);
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
