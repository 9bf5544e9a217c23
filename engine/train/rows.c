/* Runs the loops of rows_loops.h for the operations of rows.h. */
#include "engine/train/rows.h"

#include <pthread.h>

#include "engine/train/rows_loops.h"
#include "kernels/kernels.h"

/* The loops with the widest vectors this machine supports. All give the same bits, so the choice does not
 * affect results. */
static const struct rows_loops *chosen = &ROWS_LOOPS_PLAIN;
static pthread_once_t chosen_once = PTHREAD_ONCE_INIT;

/* Select the widest loops the machine supports. */
static void rows_choose_loops(void)
{
    uint32_t isa;
    struct err refused; /* an invalid QDYNO_ISA was already rejected before training starts */
    if (isa_usable(&isa, &refused)) return;
#if defined(__x86_64__)
    if (isa & ISA_AVX2) chosen = &ROWS_LOOPS_AVX2;
    if (isa & ISA_AVX512) chosen = &ROWS_LOOPS_AVX512;
#endif
}

static const struct rows_loops *rows_loops(void)
{
    pthread_once(&chosen_once, rows_choose_loops);
    return chosen;
}

struct rows_share {
    rows_fn *fn;
    const void *arg;
    int64_t n;
};

static void rows_run_share(void *arg, int member, int size)
{
    const struct rows_share *s = arg;
    s->fn(s->arg, s->n * member / size, s->n * (member + 1) / size);
}

void rows_run(struct threadpool *pool, int64_t n, rows_fn *fn, const void *arg)
{
    struct rows_share s = { fn, arg, n };
    threadpool_run(pool, rows_run_share, &s);
}

float rows_dot(const float *a, const float *b, int64_t n)
{
    return rows_loops()->dot(a, b, n);
}

void rows_norm(struct threadpool *pool, const struct norm_rows *p)
{
    rows_run(pool, p->rows, rows_loops()->norm, p);
}

void rows_norm_back(struct threadpool *pool, const struct norm_back *p)
{
    rows_run(pool, p->rows, rows_loops()->norm_back, p);
    rows_run(pool, p->cols, rows_loops()->norm_weight, p);
}

void rows_swiglu(struct threadpool *pool, const float *gate, const float *up, float *s, int64_t n)
{
    rows_run(pool, n, rows_loops()->swiglu, &(struct swiglu){ .gate_in = gate, .up_in = up, .s = s });
}

void rows_swiglu_back(struct threadpool *pool, float *gate, float *up, const float *ds, int64_t n)
{
    rows_run(pool, n, rows_loops()->swiglu_back, &(struct swiglu){ .gate = gate, .up = up, .ds = ds });
}

void rows_rope(struct threadpool *pool, const struct rope_rows *p)
{
    rows_run(pool, p->rows, rows_loops()->rope, p);
}

void rows_softmax(struct threadpool *pool, float *s, int64_t n, float scale)
{
    rows_run(pool, n, rows_loops()->softmax, &(struct softmax){ .s = s, .n = n, .scale = scale });
}

void rows_softmax_back(struct threadpool *pool, const float *p, float *dp, int64_t n, float scale)
{
    rows_run(pool, n, rows_loops()->softmax_back,
             &(struct softmax){ .p = p, .s = dp, .n = n, .scale = scale });
}

void rows_cross_entropy(struct threadpool *pool, const struct cross_entropy *p)
{
    rows_run(pool, p->rows, rows_loops()->cross_entropy, p);
}

void rows_distill(struct threadpool *pool, const struct distillation *p)
{
    rows_run(pool, p->rows, rows_loops()->distill, p);
}

void rows_gather(struct threadpool *pool, const struct matrix *table, const int32_t *ids, float *y, int64_t n)
{
    rows_run(pool, n, rows_loops()->gather, &(struct gathering){ .table = table, .ids = ids, .y = y });
}

void rows_gather_back(struct threadpool *pool, const struct matrix *table, const int32_t *ids,
                      const float *dy, int64_t n)
{
    rows_run(pool, table->cols, rows_loops()->gather_back,
             &(struct gathering){ .table = table, .ids = ids, .dy = dy, .n = n });
}

void rows_mix(struct threadpool *pool, const struct mixing *p, int64_t n)
{
    rows_run(pool, n, rows_loops()->mix, p);
}

void rows_turn(struct threadpool *pool, const struct turning *p)
{
    rows_run(pool, p->cols, rows_loops()->turn, p);
}

void rows_adam(struct threadpool *pool, const struct adam_rows *p, int64_t n)
{
    rows_run(pool, n, rows_loops()->adam, p);
}
