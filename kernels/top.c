/* The k largest numbers of each row. Almost no block of a long row contains one of them, so each block is
 * first compared with the smallest result so far, in a loop that the compiler vectorizes. */
#include <float.h>
#include <math.h>

#include "kernels/cpu.h"

enum { BLOCK = 64 };

/* Whether `later` ranks before `earlier`, which has a smaller index. Values that are not finite are NaN here,
 * which ranks before all numbers. */
static bool ranks_before(float later, float earlier)
{
    return later > earlier || (isnan(later) && !isnan(earlier));
}

/* Insert x into the *n <= k sorted results so far. Its index is larger than all of theirs. */
static void ranked_insert(struct ranked *first, int *n, int k, struct ranked x)
{
    int at = *n;
    if (at < k)
        ++*n;
    else if (!ranks_before(x.value, first[--at].value))
        return;
    for (; at > 0 && ranks_before(x.value, first[at - 1].value); at--) first[at] = first[at - 1];
    first[at] = x;
}

static bool block_has_larger(const float *x, int64_t n, float than)
{
    int any = 0;
    for (int64_t i = 0; i < n; i++) any |= !(x[i] <= than) | !(x[i] >= -FLT_MAX); /* NaN fails both */
    return any;
}

static void top_find_row(const float *x, int64_t cols, int k, struct ranked *first)
{
    int n = 0;
    for (int64_t at = 0; at < cols; at += BLOCK) {
        const int64_t end = MIN(at + BLOCK, cols);
        if (n == k && isnan(first[k - 1].value)) break; /* k NaNs: nothing ranks before them */
        if (n == k && !block_has_larger(x + at, end - at, first[k - 1].value)) continue;
        for (int64_t i = at; i < end; i++)
            ranked_insert(first, &n, k,
                          (struct ranked){ .value = isfinite(x[i]) ? x[i] : NAN, .id = (int32_t)i });
    }
}

static void top_find_rows(const struct top *p, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        top_find_row(p->x + i * p->x_stride, p->cols, p->k, p->out + i * p->k);
}

void top_rows(const struct top *p)
{
    top_find_rows(p, 0, p->n);
}

static void top_member(void *arg, int member, int size)
{
    const struct top *p = arg;
    int64_t from, to;
    member_share(p->n, member, size, &from, &to);
    top_find_rows(p, from, to);
}

/* Divided by rows only: one row of 262144 numbers takes 40 us, hardly more than starting the threads. */
void cpu_top(struct backend *base, const struct top *p)
{
    struct top rows = *p;
    cpu_run((struct cpu *)base, p->n > 1 ? p->n * p->cols / COMPARED_PER_ELEMENT : 0, top_member, &rows);
}
