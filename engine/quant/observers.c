/* Follows the reference observers in binary32, because how a histogram grows decides the range found in it
 * later. One difference: PyTorch spreads old bins through an array at the resolution of the finer grid, which
 * takes gigabytes when data exceeds the first batch's range a thousand times; here the shares are computed
 * directly. */
#include "engine/quant/observers.h"

#include <math.h>
#include <string.h>

/* Bin indexes are computed for this many values before counting, so that the compiler can vectorize it. */
enum { CHUNK = 64 };

/* ---------------------------------------------------------------- histogram over the range of the data */

void growing_histogram_init(struct growing_histogram *h, double *count)
{
    *h = (struct growing_histogram){ .low = INFINITY, .high = -INFINITY, .count = count };
    memset(count, 0, HISTOGRAM_BINS * sizeof *count);
}

/* Spread the old bins, of HISTOGRAM_UPSAMPLE fine cells each, over new bins of d fine cells each. The first
 * old cell is fine cell number `start`. Each new bin gets the part of an old count that overlaps it. */
static void growing_histogram_spread(double *count, int64_t start, int64_t d)
{
    double old[HISTOGRAM_BINS];
    memcpy(old, count, sizeof old);
    memset(count, 0, sizeof old);
    for (int i = 0; i < HISTOGRAM_BINS; i++) {
        const int64_t from = start + (int64_t)i * HISTOGRAM_UPSAMPLE, to = from + HISTOGRAM_UPSAMPLE;
        for (int64_t at = from; old[i] > 0 && at < to;) {
            const int64_t bin = at / d, end = MIN((bin + 1) * d, to);
            /* Rounding can put the last cells slightly beyond the end. */
            count[MIN(bin, HISTOGRAM_BINS - 1)] += old[i] * (double)(end - at) / HISTOGRAM_UPSAMPLE;
            at = end;
        }
    }
}

void growing_histogram_reserve(struct growing_histogram *h, float low, float high)
{
    if (h->low > h->high || h->low == h->high) { /* no data, or a single value so far: start again */
        memset(h->count, 0, HISTOGRAM_BINS * sizeof *h->count);
        h->low = low;
        h->high = high;
        return;
    }
    if (low >= h->low && high <= h->high) return;
    low = fminf(low, h->low);
    high = fmaxf(high, h->high);
    /* Width of a fine cell. The upper end is moved so that new bins are whole numbers of cells. */
    const float width = (h->high - h->low) / (float)(HISTOGRAM_BINS * HISTOGRAM_UPSAMPLE);
    const float bins_width = (float)HISTOGRAM_BINS * width;
    const float ratio = ceilf((high - low) / bins_width);
    if (!(bins_width > 0) || !(ratio < 0x1p40f)) { /* the old range is a single point on the new scale */
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
    growing_histogram_spread(h->count, start, (int64_t)ratio);
    h->low = low;
    h->high = high + (ratio * bins_width - (high - low));
}

void growing_histogram_count(const struct growing_histogram *h, const float *x, int64_t n, uint32_t *counts)
{
    const float low = h->low, range = h->high - h->low;
    if (!(range > 0)) { /* all data has one value */
        counts[0] += (uint32_t)n;
        return;
    }
    int bin[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int m = (int)MIN(n - at, CHUNK);
        for (int i = 0; i < m; i++) bin[i] = (int)((x[at + i] - low) / range * (float)HISTOGRAM_BINS);
        for (int i = 0; i < m; i++) counts[MIN(bin[i], HISTOGRAM_BINS - 1)]++;
    }
}

/* ---------------------------------------------------------------- symmetric histogram */

void symmetric_init(struct symmetric *h, double *count)
{
    *h = (struct symmetric){ .bins = SYMMETRIC_BINS, .count = count };
    memset(count, 0, SYMMETRIC_BINS_MAX * sizeof *count);
}

/* Merge each three neighbouring bins, from the middle outwards, in place: a bin is read before it is
 * overwritten. */
static void symmetric_coarsen(struct symmetric *h)
{
    const int half = (h->bins - 1) / 2, fewer = (half + 1) / 3;
    const float width = 2 * h->high / (float)h->bins;
    double *middle = h->count + half;
    for (int i = 1; i <= half; i++) {
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
    if (h->high == 0) { /* only zeros so far, which are in the middle bin for any range */
        h->high = limit;
        return;
    }
    double more;
    float width;
    for (;;) {
        width = 2 * h->high / (float)h->bins;
        more = ceil(((double)limit - (double)h->high) / (double)width);
        if (h->bins + 2 * more <= SYMMETRIC_BINS_MAX) break;
        symmetric_coarsen(h);
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
    int bin[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int m = (int)MIN(n - at, CHUNK);
        for (int i = 0; i < m; i++) bin[i] = (int)((x[at + i] + high) / range * (float)(last + 1));
        for (int i = 0; i < m; i++) counts[MIN(bin[i], last)]++;
    }
}
