/* How a histogram grows decides the range that is found in it later, so this follows the field's observers
 * step by step, in their binary32. One thing is done otherwise: PyTorch writes old bins into an array of a
 * finer grid, which takes gigabytes once data exceeds the first batch's range a thousand times; here the
 * shares are computed. */
#include "engine/quant/observers.h"

#include <math.h>
#include <string.h>

/* Values whose bins are found together, side by side, before any is counted. */
enum { LOT = 64 };

/* ---------------------------------------------------------------- bins over all that was seen */

void growing_init(struct growing *h, double *count)
{
    *h = (struct growing){ .low = INFINITY, .high = -INFINITY, .count = count };
    memset(count, 0, HISTOGRAM_BINS * sizeof *count);
}

/* Spread the old bins, U fine cells each, over new ones of D fine cells, the first old cell being number
 * `start`: every count keeps the share of its cells that a new bin holds. */
static void spread(double *count, int64_t start, int64_t d)
{
    double old[HISTOGRAM_BINS];
    memcpy(old, count, sizeof old);
    memset(count, 0, sizeof old);
    for (int i = 0; i < HISTOGRAM_BINS; i++) {
        const int64_t from = start + (int64_t)i * HISTOGRAM_UPSAMPLE, to = from + HISTOGRAM_UPSAMPLE;
        for (int64_t at = from; old[i] > 0 && at < to;) {
            const int64_t bin = at / d, end = MIN((bin + 1) * d, to);
            /* Rounding may put the last cells a little beyond the end. */
            count[MIN(bin, HISTOGRAM_BINS - 1)] += old[i] * (double)(end - at) / HISTOGRAM_UPSAMPLE;
            at = end;
        }
    }
}

void growing_reserve(struct growing *h, float low, float high)
{
    if (h->low > h->high || h->low == h->high) { /* nothing yet, or nothing but one value: begin anew */
        memset(h->count, 0, HISTOGRAM_BINS * sizeof *h->count);
        h->low = low;
        h->high = high;
        return;
    }
    if (low >= h->low && high <= h->high) return;
    low = fminf(low, h->low);
    high = fmaxf(high, h->high);
    /* Widths of the fine cells; the upper end is moved so that new bins are whole numbers of them. */
    const float width = (h->high - h->low) / (float)(HISTOGRAM_BINS * HISTOGRAM_UPSAMPLE);
    const float bins_width = (float)HISTOGRAM_BINS * width;
    const float ratio = ceilf((high - low) / bins_width);
    if (!(bins_width > 0) || !(ratio < 0x1p40f)) { /* what was seen is a point on the new scale */
        double all = 0;
        for (int i = 0; i < HISTOGRAM_BINS; i++) all += h->count[i];
        memset(h->count, 0, HISTOGRAM_BINS * sizeof *h->count);
        const float at = (h->low - low) / (high - low) * (float)HISTOGRAM_BINS;
        h->count[MIN((int)at, HISTOGRAM_BINS - 1)] = all;
        h->low = low;
        h->high = high;
        return;
    }
    const int64_t start = (int64_t)rintf((h->low - low) / width);
    spread(h->count, start, (int64_t)ratio);
    h->low = low;
    h->high = high + (ratio * bins_width - (high - low));
}

void growing_count(const struct growing *h, const float *x, int64_t n, uint32_t *counts)
{
    const float low = h->low, range = h->high - h->low;
    if (!(range > 0)) { /* one value only */
        counts[0] += (uint32_t)n;
        return;
    }
    int bin[LOT];
    for (int64_t at = 0; at < n; at += LOT) {
        const int m = (int)MIN(n - at, LOT);
        for (int i = 0; i < m; i++) bin[i] = (int)((x[at + i] - low) / range * (float)HISTOGRAM_BINS);
        for (int i = 0; i < m; i++) counts[MIN(bin[i], HISTOGRAM_BINS - 1)]++;
    }
}

/* ---------------------------------------------------------------- bins around zero */

void symmetric_init(struct symmetric *h, double *count)
{
    *h = (struct symmetric){ .bins = SYMMETRIC_BINS, .count = count };
    memset(count, 0, SYMMETRIC_BINS_MAX * sizeof *count);
}

/* Three neighbours become one, from the middle outwards; no bin is written before it was read. */
static void coarsen(struct symmetric *h)
{
    const int side = (h->bins - 1) / 2, fewer = (side + 1) / 3;
    const float width = 2 * h->high / (float)h->bins;
    double *middle = h->count + side;
    for (int i = 1; i <= side; i++) {
        const double above = middle[i], below = middle[-i];
        const int to = (i + 1) / 3;
        middle[i] = middle[-i] = 0;
        middle[to] += above;
        middle[-to] += below;
    }
    memmove(h->count, middle - fewer, (size_t)(2 * fewer + 1) * sizeof *h->count);
    memset(h->count + 2 * fewer + 1, 0, (size_t)(h->bins - 2 * fewer - 1) * sizeof *h->count);
    h->bins = 2 * fewer + 1;
    h->high = width * (float)h->bins * 1.5f;
}

void symmetric_reserve(struct symmetric *h, float low, float high)
{
    const float limit = fmaxf(-low, high);
    if (limit <= h->high) return;
    if (h->high == 0) { /* so far zeros at most: they are in the middle of any bins */
        h->high = limit;
        return;
    }
    double more;
    float width;
    for (;;) {
        width = 2 * h->high / (float)h->bins;
        more = ceil(((double)limit - (double)h->high) / (double)width);
        if (h->bins + 2 * more <= SYMMETRIC_BINS_MAX) break;
        coarsen(h);
        if (limit <= h->high) return;
    }
    const int shift = (int)more;
    memmove(h->count + shift, h->count, (size_t)h->bins * sizeof *h->count);
    memset(h->count, 0, (size_t)shift * sizeof *h->count);
    h->bins += 2 * shift;
    h->high = fmaxf(width * (float)h->bins / 2, limit);
}

void symmetric_count(const struct symmetric *h, const float *x, int64_t n, uint32_t *counts)
{
    if (h->high == 0) {
        counts[(h->bins - 1) / 2] += (uint32_t)n;
        return;
    }
    const float high = h->high, range = 2 * h->high;
    const int last = h->bins - 1;
    int bin[LOT];
    for (int64_t at = 0; at < n; at += LOT) {
        const int m = (int)MIN(n - at, LOT);
        for (int i = 0; i < m; i++) bin[i] = (int)((x[at + i] + high) / range * (float)(last + 1));
        for (int i = 0; i < m; i++) counts[MIN(bin[i], last)]++;
    }
}
