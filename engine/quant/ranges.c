/* Quantization ranges of activations. A narrow range clips large values; a wide range makes every step
 * coarser. Each search below balances the two by its own criterion. */
#include "engine/quant/ranges.h"

#include <math.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- scale and zero point */

static const float LEAST_SCALE = 0x1p-23f;

static int limit_code(double v, int least, int most)
{
    return (int)(v < least ? least : v > most ? most : v);
}

struct affine affine_observed(struct range r, int least, int most)
{
    const float low = r.low < 0 ? r.low : 0, high = r.high > 0 ? r.high : 0;
    const float wanted = (high - low) / (float)(most - least);
    const float scale = wanted > LEAST_SCALE ? wanted : LEAST_SCALE;
    return (struct affine){ scale, limit_code(least - rint(low / scale), least, most) };
}

struct affine symmetric_observed(struct range r, int least, int most)
{
    const float low = r.low < 0 ? -r.low : 0, high = r.high > 0 ? r.high : 0;
    const float wanted = (low > high ? low : high) / ((float)(most - least) / 2);
    return (struct affine){ wanted > LEAST_SCALE ? wanted : LEAST_SCALE, (least + most + 1) / 2 };
}

/* ---------------------------------------------------------------- least squared error */

static double cube_of(double v)
{
    return v * v * v;
}

/* Integral of d^2 from p to q: squared error of values spread evenly over these distances. */
static double squares_integral(double p, double q)
{
    return (cube_of(q) - cube_of(p)) / 3;
}

/* Squared error of rounding all values to 256 levels over bins start..end, including values outside. */
static double bin_range_error(const struct histogram *h, double width, int start, int end)
{
    enum { LEVELS = 256 };
    const double step = width * (end - start + 1) / LEVELS;
    double sum = 0;
    if (step == 0) return 0;
    for (int i = 0; i < h->bins; i++) {
        if (h->counts[i] == 0) continue;
        const double from = (i - start) * width, to = from + width;
        const double first = fmin(fmax(floor(from / step), 0), LEVELS - 1),
                     last = fmin(fmax(floor(to / step), 0), LEVELS - 1);
        const double error = squares_integral(from - (first + 0.5) * step, step / 2) +
                             (last - first - 1) * squares_integral(-step / 2, step / 2) +
                             squares_integral(-step / 2, to - (last + 0.5) * step);
        sum += h->counts[i] / width * error;
    }
    return sum;
}

static struct range bin_range(const struct histogram *h, double width, int start, int end)
{
    return (struct range){ (float)(h->low + width * start), (float)(h->low + width * (end + 1)) };
}

struct range range_least_error(const struct histogram *h)
{
    const double width = ((double)h->high - h->low) / h->bins, part = 1e-5;
    int start = 0, end = h->bins - 1;
    double total = 0, below = 0, upto, best = INFINITY, a = 0, b = 1;
    for (int i = 0; i < h->bins; i++) total += h->counts[i];
    upto = total; /* number of values in bins 0..end; `below`: in bins before start */
    if (!(total > 0) || !(width > 0)) return (struct range){ h->low, h->high };
    while (a < b) {
        int left = start, right = end;
        double mass_left = below, mass_right = upto;
        while (left < end && mass_left + h->counts[left] < (a + part) * total) mass_left += h->counts[left++];
        while (right > start && mass_right > (b - part) * total) mass_right -= h->counts[right--];
        int next_start = start, next_end = end;
        if (left - start > end - right)
            next_start = left, a += part;
        else
            next_end = right, b -= part;
        if (next_start == start && next_end == end) continue;
        const double error = bin_range_error(h, width, next_start, next_end);
        if (error > best) break;
        best = error;
        if (next_start != start) below = mass_left;
        if (next_end != end) upto = mass_right;
        start = next_start, end = next_end;
    }
    return bin_range(h, width, start, end);
}

/* ---------------------------------------------------------------- percentile */

struct range range_percentile(const struct histogram *h, double percentile)
{
    const double width = ((double)h->high - h->low) / h->bins;
    int start = 0, end = h->bins - 1;
    double total = 0, left = 0, right = 0;
    for (int i = 0; i < h->bins; i++) total += h->counts[i];
    const double cut = total * (1 - percentile / 100) / 2;
    while (start < end && left + h->counts[start] <= cut) left += h->counts[start++];
    while (end > start && right + h->counts[end] <= cut) right += h->counts[end--];
    return bin_range(h, width, start, end);
}

/* ---------------------------------------------------------------- entropy */

/* Give every empty bin a small mass, taken in equal parts from the others. False: they have too little. */
static bool histogram_smooth(double *p, int n)
{
    const double little = 1e-4;
    int empty = 0;
    for (int i = 0; i < n; i++) empty += p[i] == 0;
    if (empty == n) return false;
    const double taken = little * empty / (n - empty);
    if (taken >= 1) return false;
    for (int i = 0; i < n; i++) p[i] = p[i] == 0 ? little : p[i] - taken;
    return true;
}

/* Kullback-Leibler divergence of the normalized histograms p and q. */
static double histogram_divergence(const double *p, const double *q, int n)
{
    double of_p = 0, of_q = 0, sum = 0;
    for (int i = 0; i < n; i++) of_p += p[i], of_q += q[i];
    for (int i = 0; i < n; i++) sum += p[i] / of_p * log(p[i] / of_p / (q[i] / of_q));
    return sum;
}

/* Quantize a slice of bins to `levels` runs; each run's mass is spread over those of its bins where p > 0. */
static void histogram_quantize(const float *slice, const double *p, double *q, int n, int levels)
{
    for (int l = 0; l < levels; l++) {
        const int from = l * (n / levels), to = l == levels - 1 ? n : from + n / levels;
        double mass = 0;
        int filled = 0;
        for (int i = from; i < to; i++) mass += slice[i], filled += p[i] != 0;
        for (int i = from; i < to; i++) q[i] = p[i] != 0 ? mass / filled : 0;
    }
}

/* Divergence for clipping at this half width; NAN: it cannot be computed. */
static double half_width_divergence(const struct histogram *h, int half, int levels, double *p, double *q)
{
    const int centre = h->bins / 2, from = centre - half, to = MIN(h->bins, centre + half + 1), n = to - from;
    for (int i = 0; i < n; i++) p[i] = h->counts[from + i];
    for (int i = 0; i < from; i++) p[0] += h->counts[i];
    for (int i = to; i < h->bins; i++) p[n - 1] += h->counts[i];
    histogram_quantize(h->counts + from, p, q, n, levels);
    return histogram_smooth(p, n) && histogram_smooth(q, n) ? histogram_divergence(p, q, n) : NAN;
}

enum err_code range_entropy(const struct histogram *h, int levels, struct range *out, struct err *why)
{
    const double width = ((double)h->high - h->low) / h->bins;
    const int centre = h->bins / 2;
    double *p = malloc(2 * (size_t)h->bins * sizeof *p), best = INFINITY;
    if (!p) return err_set(why, ERR_NOMEM, "out of memory for a histogram of %d bins", h->bins);
    *out = (struct range){ h->low, h->high };
    const int step = MAX(h->bins / 4096, 1); /* of very fine histograms, try only some widths */
    for (int half = levels / 2; half <= centre; half += step) {
        const double found = half_width_divergence(h, half, levels, p, p + h->bins);
        if (!(found < best)) continue;
        best = found;
        *out = bin_range(h, width, centre - half, MIN(h->bins, centre + half + 1) - 1);
    }
    free(p);
    return ERR_OK;
}
