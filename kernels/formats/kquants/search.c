/* The reference searches for scales and codes; see search.h.
 *
 * For fixed codes l[i], the scale that minimizes sum w[i] (x[i] - scale * l[i])^2 is a / b with a = sum w x l
 * and b = sum w l^2. It reduces the error by a^2 / b compared with scale 0. This reduction is called the
 * gain, and the trial with the largest gain wins. Gains are compared without a division: a^2 > best * b. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/formats/kquants/layout.h"
#include "kernels/formats/kquants/search.h"

/* The signed value of the first element with the largest magnitude. */
static float extreme_of(int n, const float *x)
{
    float most = 0, extreme = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > most) most = fabsf(x[i]), extreme = x[i];
    return extreme;
}

/* Codes of one trial, and the sums of their least squares fit. */
struct code_fit {
    int code[SEARCH_MOST];
    float a, b;
};

static void fit_symmetric(struct code_fit *f, int n, int nmax, const float *x, const float *w, float inverse)
{
    f->a = f->b = 0;
    for (int i = 0; i < n; i++) {
        const int l = search_clamp(search_round(inverse * x[i]), -nmax, nmax - 1);
        f->code[i] = l;
        f->a += w[i] * x[i] * (float)l;
        f->b += w[i] * (float)l * (float)l;
    }
}

static void fit_store_codes(const struct code_fit *f, int n, int nmax, uint8_t *code)
{
    for (int i = 0; i < n; i++) code[i] = (uint8_t)(f->code[i] + nmax);
}

/* Return the error weights w, or x * x where w is NULL. */
static const float *weights_or_squares(int n, const float *x, const float *w, float squares[SEARCH_MOST])
{
    if (w) return w;
    for (int i = 0; i < n; i++) squares[i] = x[i] * x[i];
    return squares;
}

float search_symmetric(int n, int nmax, const float *x, const float *w, uint8_t *code)
{
    enum { REACH = 9 };
    const float extreme = extreme_of(n, x);
    float squares[SEARCH_MOST];
    memset(code, 0, (unsigned)n);
    if (fabsf(extreme) < SEARCH_NEARLY_ZERO) return 0;
    struct code_fit f;
    w = weights_or_squares(n, x, w, squares);
    fit_symmetric(&f, n, nmax, x, w, (float)-nmax / extreme);
    fit_store_codes(&f, n, nmax, code);
    float scale = f.b != 0 ? f.a / f.b : 0, best = scale * f.a;
    for (int k = -REACH; k <= REACH; k++) {
        if (!k) continue;
        fit_symmetric(&f, n, nmax, x, w, -((float)nmax + 0.1f * (float)k) / extreme);
        if (f.b > 0 && f.a * f.a > best * f.b) {
            fit_store_codes(&f, n, nmax, code);
            scale = f.a / f.b, best = scale * f.a;
        }
    }
    return scale;
}

/* One step of coordinate descent. With the other codes fixed, their least squares scale is a / b, so the
 * nearest code of x is round(x * b / a). Take it if it increases the gain. Returns true if the code changed.
 */
static bool fit_improve_code(struct code_fit *f, int i, int nmax, float x)
{
    const float w = x * x, l = (float)f->code[i];
    float a = f->a - w * x * l;
    if (!(a > 0)) return false;
    float b = f->b - w * l * l;
    const int better = search_clamp(search_round(x * b / a), -nmax, nmax - 1);
    if (better == f->code[i]) return false;
    a += w * x * (float)better;
    b += w * (float)better * (float)better;
    if (!(b > 0 && a * a * f->b > f->a * f->a * b)) return false;
    f->code[i] = better, f->a = a, f->b = b;
    return true;
}

float search_symmetric_steps(int n, int nmax, const float *x, uint8_t *code)
{
    enum { PASSES = 5 };
    const float extreme = extreme_of(n, x);
    memset(code, 0, (unsigned)n);
    if (fabsf(extreme) < SEARCH_NEARLY_ZERO) return 0;
    struct code_fit f;
    float squares[SEARCH_MOST];
    fit_symmetric(&f, n, nmax, x, weights_or_squares(n, x, NULL, squares), (float)-nmax / extreme);
    bool changed = true;
    for (int pass = 0; pass < PASSES && changed; pass++) {
        changed = false;
        for (int i = 0; i < n; i++) changed |= fit_improve_code(&f, i, nmax, x[i]);
    }
    fit_store_codes(&f, n, nmax, code);
    return f.b > 0 ? f.a / f.b : 0;
}

static int positive_code(float v, int nmax)
{
    const int code = search_round(v);
    return code < nmax ? code : nmax;
}

/* fit_improve_code for codes 0 .. nmax and given error weights. */
static bool improve_positive(struct code_fit *f, int i, int nmax, float x, float w)
{
    const float l = (float)f->code[i];
    float a = f->a - w * x * l, b = f->b - w * l * l;
    if (!(a > 0 && b > 0)) return false;
    const int better = positive_code(x * b / a, nmax);
    if (better == f->code[i]) return false;
    a += w * x * (float)better;
    b += w * (float)better * (float)better;
    if (!(a * a * f->b > f->a * f->a * b)) return false;
    f->code[i] = (uint8_t)better, f->a = a, f->b = b;
    return true;
}

static float positive_error(int n, int nmax, const float *x, const float *w, float inverse)
{
    const float scale = 1 / inverse;
    float sum = 0;
    for (int i = 0; i < n; i++) {
        const float d = x[i] - scale * (float)positive_code(inverse * x[i], nmax);
        sum += w[i] * d * d;
    }
    return sum;
}

float search_positive(int n, int nmax, const float *x, const float *w, uint8_t *code)
{
    enum { REACH = 4, PASSES = 5 };
    float most = 0;
    for (int i = 0; i < n; i++)
        if (x[i] > most) most = x[i];
    memset(code, 0, (unsigned)n);
    if (most < SEARCH_NEARLY_ZERO) return 0;
    float inverse = (float)nmax / most, best = 0;
    for (int i = 0; i < n; i++) {
        const float d = x[i] - 1 / inverse * (float)(uint8_t)search_round(inverse * x[i]);
        best += w[i] * d * d;
    }
    for (int k = -REACH; k <= REACH; k++) {
        if (!k) continue;
        const float trial = (0.1f * (float)k + (float)nmax) / most, e = positive_error(n, nmax, x, w, trial);
        if (e < best) best = e, inverse = trial;
    }
    struct code_fit f = { .a = 0 };
    for (int i = 0; i < n; i++) {
        const int l = positive_code(inverse * x[i], nmax);
        f.code[i] = (uint8_t)l;
        f.a += w[i] * x[i] * (float)l;
        f.b += w[i] * (float)l * (float)l;
    }
    bool changed = true;
    for (int pass = 0; pass < PASSES && changed; pass++) {
        changed = false;
        for (int i = 0; i < n; i++) changed |= improve_positive(&f, i, nmax, x[i], w[i]);
    }
    fit_store_codes(&f, n, 0, code);
    return f.b > 0 ? f.a / f.b : 0;
}

static float error_of(float e, bool squared)
{
    return squared ? e * e : fabsf(e);
}

static float grid_error(const struct search_grid *g, int n, const float *x, const float *w,
                        const uint8_t *code, float scale, float lo)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += w[i] * error_of(scale * (float)code[i] + lo - x[i], g->squared);
    return sum;
}

static void grid_codes(const struct search_grid *g, int n, const float *x, float inverse, float lo,
                       uint8_t *code)
{
    for (int i = 0; i < n; i++)
        code[i] = (uint8_t)search_clamp(search_round(inverse * (x[i] - lo)), 0, g->nmax);
}

/* Weighted least squares fit of x ~ scale * code + lo with lo <= 0. Returns false if the codes do not
 * determine a line (all are equal). */
static bool fit_line(int n, const float *x, const float *w, const uint8_t *code, float *scale, float *lo)
{
    float sw = 0, sx = 0, sl = 0, sll = 0, sxl = 0;
    for (int i = 0; i < n; i++) {
        const float l = (float)code[i];
        sw += w[i];
        sx += w[i] * x[i];
        sl += w[i] * l;
        sll += w[i] * l * l;
        sxl += w[i] * l * x[i];
    }
    const float det = sw * sll - sl * sl;
    if (!(det > 0)) return false;
    *scale = (sw * sxl - sx * sl) / det;
    *lo = (sll * sx - sl * sxl) / det;
    if (*lo > 0) *lo = 0, *scale = sxl / sll;
    return true;
}

float search_min(const struct search_grid *g, int n, const float *x, const float *w, uint8_t *code,
                 float *min)
{
    float lo = x[0], hi = x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < lo) lo = x[i];
        if (x[i] > hi) hi = x[i];
    }
    if (lo > 0) lo = 0;
    memset(code, 0, (unsigned)n);
    *min = -lo;
    if (hi <= lo) return 0;
    const float nmax = (float)g->nmax;
    float inverse = nmax / (hi - lo), scale = 1 / inverse;
    grid_codes(g, n, x, inverse, lo, code);
    float best = grid_error(g, n, x, w, code, scale, lo);
    for (int k = 0; k <= g->steps; k++) {
        uint8_t trial[SEARCH_MOST];
        float s, m;
        inverse = (g->rmin + g->rdelta * (float)k + nmax) /
                  (hi - lo); /* a winning trial changes lo, and later trials use it, as in ggml */
        grid_codes(g, n, x, inverse, lo, trial);
        if (!fit_line(n, x, w, trial, &s, &m)) continue;
        const float e = grid_error(g, n, x, w, trial, s, m);
        if (e < best) {
            memcpy(code, trial, (unsigned)n);
            scale = s, lo = m, best = e;
        }
    }
    *min = -lo;
    return scale;
}

static const float VALUES[16] = { IQ4_VALUES };

static void fit_codebook(struct code_fit *f, int n, const float *x, const float *w, float inverse)
{
    uint8_t code[SEARCH_MOST];
    search_codebook_codes(n, x, inverse, code);
    f->a = f->b = 0;
    for (int i = 0; i < n; i++) {
        const float t = VALUES[code[i]];
        f->a += w[i] * t * x[i];
        f->b += w[i] * t * t;
    }
}

float search_codebook(int n, const float *x, const float *w)
{
    enum { REACH = 7 };
    const float extreme = extreme_of(n, x);
    float squares[SEARCH_MOST];
    if (fabsf(extreme) < SEARCH_NEARLY_ZERO) return 0;
    struct code_fit f;
    w = weights_or_squares(n, x, w, squares);
    fit_codebook(&f, n, x, w, 1 / (extreme / -VALUES[0]));
    float d = f.b > 0 ? f.a / f.b : 0, best = d * f.a;
    for (int k = -REACH; k <= REACH; k++) {
        fit_codebook(&f, n, x, w, ((float)k + VALUES[0]) / extreme);
        if (f.b > 0 && f.a * f.a > best * f.b) d = f.a / f.b, best = d * f.a;
    }
    return d;
}

void search_weights(int n, const float *x, const float *importance, float base, float *w)
{
    for (int i = 0; i < n; i++) w[i] = importance[i] * sqrtf(base + x[i] * x[i]);
}

float search_squares(int64_t n, const float *x)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}
