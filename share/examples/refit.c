/* refit.c - a plug-in for qdyno: rounds to nearest, then alternately fits scale and zero to the codes and
 * rounds again.
 *
 *   cc -O2 -shared -fPIC -I DIRECTORY_OF_qdyno_plugin.h -o refit.so refit.c
 *   qdyno --plugin ./refit.so ab rtn:u4_g64 refit:u4_g64 -w eval:text.txt -m model.gguf
 *
 * Rounding to nearest derives the scale from the smallest and the largest weight of a group, so one outlier
 * makes the steps large for all weights. For given codes, the best scale and zero are a least-squares line
 * through the points (code, weight). For a given line, the best codes are the nearest ones. Neither step
 * increases the squared error, so the alternation ends. With a calibration, errors are weighted by the mean
 * square of the inputs of their column.
 *
 * docs/plugins.md explains this file. You may copy it as a start. */
#include <math.h>
#include <stdio.h>

#include <qdyno_plugin.h>

enum { ITERS }; /* positions in PARAMETERS and in qdyno_rows.value */

static const struct qdyno_parameter PARAMETERS[] = {
    [ITERS] = { .name = "iters",
                .help = "largest number of fits",
                .kind = QDYNO_INT,
                .min = 0,
                .max = 1000,
                .otherwise = "20" },
    { .name = NULL },
};

/* weight = scale * (code - zero) */
struct line {
    double scale, zero;
};

static uint8_t nearest(struct line l, double x, int most)
{
    const double code = floor(x / l.scale + l.zero + 0.5);
    return (uint8_t)(code < 0 ? 0 : code > most ? most : code);
}

/* The line of rounding to nearest: from the smallest to the largest weight, including 0. */
static struct line whole_range(const float *x, int64_t n, int most)
{
    double low = 0, high = 0;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
    }
    const double scale = high > low ? (high - low) / most : 1;
    return (struct line){ scale, floor(-low / scale + 0.5) };
}

/* Computes the codes of a group for a line. Returns the weighted squared error. */
static double round_group(struct line l, const float *x, const float *weight, int64_t n, int most,
                          uint8_t *codes)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        codes[i] = nearest(l, x[i], most);
        const double error = l.scale * (codes[i] - l.zero) - x[i];
        sum += error * error * (weight ? weight[i] : 1);
    }
    return sum;
}

/* The weighted least-squares line through (code, x); the old line if none can be fitted. */
static struct line fit(struct line old, const float *x, const float *weight, int64_t n, const uint8_t *codes)
{
    double w = 0, c = 0, y = 0, cc = 0, cy = 0;
    for (int64_t i = 0; i < n; i++) {
        const double k = weight ? weight[i] : 1;
        w += k;
        c += k * codes[i];
        y += k * x[i];
        cc += k * codes[i] * codes[i];
        cy += k * codes[i] * x[i];
    }
    const double spread = w * cc - c * c, scale = spread > 0 ? (w * cy - c * y) / spread : 0;
    if (!(scale > 0)) return old; /* all codes are equal, or all inputs are 0 */
    const struct line l = { scale, (scale * c - y) / (w * scale) };
    return fabs(l.zero) < 1000 ? l : old; /* a zero far from 0 would lose precision in 16 bits */
}

static struct line refit_group(const float *x, const float *weight, int64_t n, int most, int iters,
                               uint8_t *codes)
{
    struct line best = whole_range(x, n, most);
    double error = round_group(best, x, weight, n, most, codes);
    for (int i = 0; i < iters; i++) {
        const struct line next = fit(best, x, weight, n, codes);
        const double got = round_group(next, x, weight, n, most, codes);
        if (!(got < error)) break;
        error = got;
        best = next;
    }
    round_group(best, x, weight, n, most, codes); /* the last fit may have been worse */
    return best;
}

static int encode(struct qdyno_rows *r)
{
    const int64_t n = r->group, groups = r->cols / n;
    const int most = (1 << r->bits) - 1;
    if (r->bits < 1 || r->bits > 8) { /* impossible with the formats below; shows how to refuse */
        snprintf(r->error, r->error_size, "%s has codes of %d bits; expected 1 to 8", r->format, r->bits);
        return 1;
    }
    for (int64_t g = 0; g < r->rows * groups; g++) {
        const float *weight = r->mean_square ? r->mean_square + g % groups * n : NULL;
        const struct line l = refit_group(r->x + g * n, weight, n, most, (int)r->value[ITERS],
                                          r->codes + g * n);
        r->scales[g] = (float)l.scale;
        r->zeros[g] = (float)l.zero;
    }
    return 0;
}

const struct qdyno_plugin *qdyno_plugin_get(void)
{
    static const struct qdyno_plugin PLUGIN = {
        .version = QDYNO_PLUGIN_VERSION,
        .name = "refit",
        .help = "round to nearest, then fit scale and zero by least squares, alternately",
        .good = "3 and 4 bits, in seconds; with a calibration, where some inputs are much larger than others",
        .bad = "2 bits, where columns must compensate the errors of each other",
        .formats = "u4_g64 u4_g32 u4_g128 u3_g64 u3_g128 u2_g64 u2_g128 u8_g64 u8_g128",
        .answer = QDYNO_CODES,
        .calibration = QDYNO_CALIBRATION_OPTIONAL,
        .parameters = PARAMETERS,
        .encode = encode,
    };
    return &PLUGIN;
}
