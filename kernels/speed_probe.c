/* The speed probe (kernels.h): how fast weights come from memory and how fast cores multiply them right now.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu.h"

enum { WIDE = SPEED_PROBE_COLS, MATRICES = SPEED_PROBE_BYTES / (WIDE * WIDE / 32 * 34) };
/* Fills the weights: this byte yields an ordinary small number both as a scale and as a code (no subnormals,
 * no NaN, which would slow down arithmetic). */
enum { UNCACHED_BYTE = 0x2c };
enum { NEAR_ROWS = 128, COMPUTE_NS = 100000 };

struct speed_probe {
    struct backend *backend; /* borrowed */
    struct weight weight[MATRICES];
    int bound;
    uint8_t *uncached; /* [SPEED_PROBE_BYTES] */
    float *x, *y;      /* [WIDE] */
    struct act_q8 q;   /* of x */
    double *speed;     /* [threads] weights/s of the last core measurement */
};

void speed_probe_close(struct speed_probe *p)
{
    if (!p) return;
    for (int i = 0; i < p->bound; i++) backend_weight_release(p->backend, &p->weight[i]);
    if (p->uncached) munmap(p->uncached, SPEED_PROBE_BYTES);
    free(p->x);
    free(p->y);
    free(p->q.q);
    free(p->q.d);
    free(p->speed);
    free(p);
}

/* Allocate the operands. The weights request huge pages: with 4 KiB pages, their physical placement makes the
 * result vary by a fifth from process to process. */
static enum err_code speed_probe_allocate(struct speed_probe *p, struct err *why)
{
    p->x = aligned_alloc(64, WIDE * sizeof *p->x); /* loads that cross cache lines cost a tenth */
    p->y = aligned_alloc(64, WIDE * sizeof *p->y);
    if (!p->x || !p->y) return err_set(why, ERR_NOMEM, "out of memory for the speed probe");
    for (int i = 0; i < WIDE; i++) p->x[i] = 0.125f * (float)(i % 17 - 8);
    p->q = (struct act_q8){ .q = aligned_alloc(64, WIDE),
                            .d = aligned_alloc(64, 2 * WIDE / Q8_BLOCK * sizeof(float)),
                            .q_stride = WIDE,
                            .d_stride = WIDE / Q8_BLOCK };
    p->speed = calloc((size_t)threadpool_size(p->backend->pool), sizeof *p->speed);
    if (!p->q.q || !p->q.d || !p->speed) return err_set(why, ERR_NOMEM, "out of memory for the speed probe");
    p->q.sum = p->q.d + WIDE / Q8_BLOCK;
    ((const struct cpu *)p->backend)->k.vec.quantize_q8(p->x, WIDE, p->q.q, p->q.d, p->q.sum);
    p->uncached = mmap(NULL, SPEED_PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->uncached == MAP_FAILED) {
        p->uncached = NULL;
        return err_set(why, ERR_NOMEM, "out of memory: the speed probe needs %d MB", SPEED_PROBE_BYTES >> 20);
    }
    madvise(p->uncached, SPEED_PROBE_BYTES, MADV_HUGEPAGE); /* only a hint */
    memset(p->uncached, UNCACHED_BYTE, SPEED_PROBE_BYTES);
    return ERR_OK;
}

/* Measure one thread's core speed with weights that stay in the core's own cache. Each thread is timed by
 * itself: the time of the whole pool would be that of its slowest thread, but dynamic scheduling lets
 * products avoid waiting for it. */
static void compute_member(void *arg, int member, int size)
{
    struct speed_probe *p = arg;
    const struct cpu *b = (const struct cpu *)p->backend;
    const struct format_kernels *kernels = &b->k.format[FORMAT_Q8_0];
    dot_fn *dot = kernels->dot_q8 ? kernels->dot_q8 : kernels->dot_f32;
    float y[NEAR_ROWS];
    const struct dot d = { .w = p->uncached,
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
    dot(&d); /* bring the weights into the core's cache */
    const int64_t from = clock_ns();
    int64_t passed = 0, weights = 0;
    for (; passed < COMPUTE_NS; passed = clock_ns() - from) {
        dot(&d);
        weights += (int64_t)NEAR_ROWS * WIDE;
    }
    p->speed[member] = (double)weights / ((double)passed * 1e-9);
}

double speed_probe_compute_s(struct speed_probe *p, struct backend *on)
{
    double sum = 0;
    threadpool_run(on->pool, compute_member, p);
    for (int i = 0; i < threadpool_size(on->pool); i++) sum += p->speed[i];
    return 1 / sum;
}

enum err_code speed_probe_open(struct speed_probe **out, struct backend *backend, struct err *why)
{
    const struct format *f = &FORMATS[FORMAT_Q8_0];
    *out = NULL;
    struct speed_probe *p = calloc(1, sizeof *p);
    if (!p) return err_set(why, ERR_NOMEM, "out of memory for the speed probe");
    p->backend = backend;
    enum err_code rc = speed_probe_allocate(p, why);
    for (; p->bound < MATRICES && !rc; p->bound += !rc)
        rc = backend_weight_bind(backend, &p->weight[p->bound], f, WIDE, WIDE, NULL,
                                 p->uncached + p->bound * WIDE * format_row_bytes(f, WIDE), why);
    if (rc)
        speed_probe_close(p);
    else
        *out = p;
    return rc;
}

double speed_probe_read_s(struct speed_probe *p)
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

double speed_probe_typical_s(double *reading_s, int n)
{
    double sum = 0;
    const int from = n / 4, to = n - n / 4;
    if (n < 1) return NAN;
    qsort(reading_s, (size_t)n, sizeof *reading_s, by_value);
    for (int i = from; i < to; i++) sum += reading_s[i];
    return sum / (to - from);
}

double speed_probe_best_s(double *reading_s, int n)
{
    if (n < 1) return NAN;
    qsort(reading_s, (size_t)n, sizeof *reading_s, by_value);
    return reading_s[n / 10];
}
