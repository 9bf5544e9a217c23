/* The largest numbers of rows. Hardly any number of a long row is among them, so it is passed over by blocks
 * that are only compared with the last of those found so far, in loops a compiler turns into vectors. */
#include <float.h>
#include <math.h>

#include "kernels/cpu.h"

enum { BLOCK = 64 };

/* Whether a value comes in front of one with a smaller index. Values that are not finite are NaN here. */
static bool ahead(float later, float earlier)
{
    return later > earlier || (isnan(later) && !isnan(earlier));
}

/* x, of a larger index than all that are equal to it, to its place among the *n <= k first so far. */
static void insert(struct ranked *first, int *n, int k, struct ranked x)
{
    int at = *n;
    if (at < k)
        ++*n;
    else if (!ahead(x.value, first[--at].value))
        return;
    for (; at > 0 && ahead(x.value, first[at - 1].value); at--) first[at] = first[at - 1];
    first[at] = x;
}

/* Whether one of x[0..n) is larger than `than` or not finite. */
static bool holds_more(const float *x, int64_t n, float than)
{
    int any = 0;
    for (int64_t i = 0; i < n; i++) any |= !(x[i] <= than) | !(x[i] >= -FLT_MAX); /* NaN fails both */
    return any;
}

static void find(const float *x, int64_t cols, int k, struct ranked *first)
{
    int n = 0;
    for (int64_t at = 0; at < cols; at += BLOCK) {
        const int64_t end = MIN(at + BLOCK, cols);
        if (n == k && isnan(first[k - 1].value)) break; /* nothing is in front of k of those */
        if (n == k && !holds_more(x + at, end - at, first[k - 1].value)) continue;
        for (int64_t i = at; i < end; i++)
            insert(first, &n, k, (struct ranked){ isfinite(x[i]) ? x[i] : NAN, (int32_t)i });
    }
}

static void find_rows(const struct top *p, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) find(p->x + i * p->x_stride, p->cols, p->k, p->out + i * p->k);
}

void top_rows(const struct top *p)
{
    find_rows(p, 0, p->n);
}

static void top_member(void *arg, int member, int size)
{
    const struct top *p = arg;
    int64_t from, to;
    share_of(p->n, member, size, &from, &to);
    find_rows(p, from, to);
}

/* By rows only: one of 262144 takes 40 us, hardly more than the threads take to begin and end. */
void cpu_top(struct backend *base, const struct top *p)
{
    struct top rows = *p;
    cpu_run((struct cpu *)base, p->n > 1 ? p->n * p->cols / COMPARED_AN_ELEMENT : 0, top_member, &rows);
}
