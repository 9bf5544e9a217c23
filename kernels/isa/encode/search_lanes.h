/* kernels/isa/encode/search_lanes.h - the searches of kquants/search.h for LANES sub-blocks at once: lane i
 * of every vector belongs to sub-block i, so each sub-block's sums are formed in the order of its weights,
 * one rounded operation after another, and the results have the reference's bits on every instruction set.
 * Include an implementation of the lanes first (lanes_avx512.h, lanes_avx2.h, lanes_v128.h), which supplies
 *
 *   LANES floats lane_mask      how many; a float in each; comparisons' results (& | ~ on them)
 *   max_of min_of               the second operand where one is NaN
 *   root_of magnitude_of        by lane
 *   less differ                 false (differ: true) where one is NaN
 *   choose any                  by lane; of all lanes
 *   step_of(middles, table, v)  table[number of middles <= v], middles ascending
 *   LANES_TABLE(name)           the name of this instruction set's table
 *   LANES_VECTORS               its vector_kernels
 *   LANES_SHORT                 attribute of functions whose loops are short
 *
 * Where + - * / have a vector and a number, the number is meant in every lane. */
#ifndef QDYNO_KERNELS_ISA_ENCODE_SEARCH_LANES_H
#define QDYNO_KERNELS_ISA_ENCODE_SEARCH_LANES_H

#include "kernels/formats/kquants/layout.h"
#include "kernels/formats/kquants/search.h"

/* The sub-blocks of all lanes in a search: x[i] and w[i] are weight i and its error weight. */
struct lane_block {
    floats x[SEARCH_MOST], w[SEARCH_MOST];
    floats code[SEARCH_MOST]; /* the result */
    floats scale, min;
};

ALWAYS_INLINE floats all(float v)
{
    return (floats){ 0 } + v;
}

/* Round to the nearest integer, ties to even, limited to low .. high. */
ALWAYS_INLINE floats nearest_of(floats v, float low, float high)
{
    v = min_of(max_of(v, all(low)), all(high));
    return (v + 12582912.f) - 12582912.f;
}

/* The value of the first weight with the largest magnitude. */
ALWAYS_INLINE floats extreme_of(const struct lane_block *b, const int n)
{
    floats most = all(0), extreme = all(0);
    for (int i = 0; i < n; i++) {
        const floats size = magnitude_of(b->x[i]);
        const lane_mask more = less(most, size);
        most = choose(more, size, most), extreme = choose(more, b->x[i], extreme);
    }
    return extreme;
}

/* ---------------------------------------------------------------- scale and minimum */

struct line_sums {
    floats l, ll, xl;
};

/* Round codes with a trial scale and compute the sums of their least squares fit. */
ALWAYS_INLINE struct line_sums line_codes(struct lane_block *b, const int n, float nmax, floats inverse,
                                          floats low, floats *code)
{
    struct line_sums s = { all(0), all(0), all(0) };
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const floats l = nearest_of(inverse * (b->x[i] - low), 0, nmax), wl = b->w[i] * l;
        code[i] = l;
        s.l += wl;
        s.ll += wl * l;
        s.xl += wl * b->x[i];
    }
    return s;
}

ALWAYS_INLINE floats line_error(const struct lane_block *b, const int n, const bool squared,
                                const floats *code, floats scale, floats low)
{
    floats sum = all(0);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const floats e = scale * code[i] + low - b->x[i];
        sum += b->w[i] * (squared ? e * e : magnitude_of(e));
    }
    return sum;
}

/* search_min for all lanes. Sets b->scale, b->min and b->code. For the best trial only its inverse scale and
 * lower end are kept; the codes are rounded again from them at the end. */
ALWAYS_INLINE void lanes_search_min(struct lane_block *b, const int n, const struct search_grid *g)
{
    const float nmax = (float)g->nmax;
    floats low = b->x[0], high = b->x[0], sw = all(0), sx = all(0), code[SEARCH_MOST];
    for (int i = 1; i < n; i++) low = min_of(b->x[i], low), high = max_of(b->x[i], high);
    for (int i = 0; i < n; i++) sw += b->w[i], sx += b->w[i] * b->x[i];
    low = choose(less(all(0), low), all(0), low);
    const lane_mask spread = less(low, high);
    const floats lowest = low;
    floats inverse = nmax / (high - low), scale = 1 / inverse, won = inverse, won_low = low;
    line_codes(b, n, nmax, inverse, low, code);
    floats best = line_error(b, n, g->squared, code, scale, low);
    for (int k = 0; k <= g->steps; k++) {
        inverse = (g->rmin + g->rdelta * (float)k + nmax) /
                  (high - low); /* a winning trial changes low, and later trials use it, as in ggml */
        const struct line_sums s = line_codes(b, n, nmax, inverse, low, code);
        const floats det = sw * s.ll - s.l * s.l;
        floats fit = (sw * s.xl - sx * s.l) / det, end = (s.ll * sx - s.l * s.xl) / det;
        const lane_mask above = less(all(0), end);
        end = choose(above, all(0), end), fit = choose(above, s.xl / s.ll, fit);
        const floats e = line_error(b, n, g->squared, code, fit, end);
        const lane_mask wins = less(all(0), det) & less(e, best);
        if (!any(wins)) continue;
        won = choose(wins, inverse, won), won_low = choose(wins, low, won_low);
        scale = choose(wins, fit, scale), low = choose(wins, end, low), best = choose(wins, e, best);
    }
    b->scale = choose(spread, scale, all(0)), b->min = -choose(spread, low, lowest);
    won = choose(spread, won, all(0)), won_low = choose(spread, won_low, all(0));
    for (int i = 0; i < n; i++) b->code[i] = nearest_of(won * (b->x[i] - won_low), 0, nmax);
}

/* ---------------------------------------------------------------- scale alone */

struct scale_sums {
    floats a, b; /* best scale a / b, its gain a * a / b */
};

ALWAYS_INLINE struct scale_sums scale_codes(const struct lane_block *b, const int n, float nmax,
                                            const floats *wx, floats inverse)
{
    struct scale_sums s = { all(0), all(0) };
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const floats l = nearest_of(inverse * b->x[i], -nmax, nmax - 1);
        s.a += wx[i] * l;
        s.b += b->w[i] * l * l;
    }
    return s;
}

/* search_symmetric for all lanes. Sets b->scale and b->code (0 .. 2 nmax - 1). */
ALWAYS_INLINE void lanes_search_symmetric(struct lane_block *b, const int n, const int most)
{
    enum { REACH = 9 };
    const float nmax = (float)most;
    const floats extreme = extreme_of(b, n);
    const lane_mask nothing = less(magnitude_of(extreme), all(SEARCH_NEARLY_ZERO));
    floats wx[SEARCH_MOST], won = -nmax / extreme;
    for (int i = 0; i < n; i++) wx[i] = b->w[i] * b->x[i];
    struct scale_sums s = scale_codes(b, n, nmax, wx, won);
    floats scale = choose(differ(s.b, all(0)), s.a / s.b, all(0)), best = scale * s.a;
    for (int k = -REACH; k <= REACH; k++) {
        if (!k) continue;
        const floats inverse = -(nmax + 0.1f * (float)k) / extreme;
        s = scale_codes(b, n, nmax, wx, inverse);
        const lane_mask wins = less(all(0), s.b) & less(best * s.b, s.a * s.a);
        const floats fit = s.a / s.b;
        won = choose(wins, inverse, won), scale = choose(wins, fit, scale);
        best = choose(wins, fit * s.a, best);
    }
    b->scale = choose(nothing, all(0), scale);
    for (int i = 0; i < n; i++)
        b->code[i] = choose(nothing, all(0), nearest_of(won * b->x[i], -nmax, nmax - 1) + nmax);
}

/* search_symmetric_steps for all lanes. A lane that one pass does not change is not changed by later passes,
 * so all lanes may run the same number of passes. */
ALWAYS_INLINE void lanes_search_symmetric_steps(struct lane_block *b, const int n, const int most)
{
    enum { PASSES = 5 };
    const float nmax = (float)most;
    const floats extreme = extreme_of(b, n), inverse = -nmax / extreme;
    const lane_mask nothing = less(magnitude_of(extreme), all(SEARCH_NEARLY_ZERO));
    floats wx[SEARCH_MOST], w[SEARCH_MOST], sum_a = all(0), sum_b = all(0);
    for (int i = 0; i < n; i++) {
        const floats l = nearest_of(inverse * b->x[i], -nmax, nmax - 1);
        w[i] = b->x[i] * b->x[i], wx[i] = w[i] * b->x[i];
        b->code[i] = l;
        sum_a += wx[i] * l, sum_b += w[i] * l * l;
    }
    bool changed = true;
    for (int pass = 0; pass < PASSES && changed; pass++) {
        changed = false;
        for (int i = 0; i < n; i++) {
            const floats l = b->code[i], rest_a = sum_a - wx[i] * l, rest_b = sum_b - w[i] * l * l;
            const floats other = nearest_of(b->x[i] * rest_b / rest_a, -nmax, nmax - 1);
            const floats sa = rest_a + wx[i] * other, sb = rest_b + w[i] * other * other;
            const lane_mask wins = less(all(0), rest_a) & differ(other, l) & less(all(0), sb) &
                                   less(sum_a * sum_a * sb, sa * sa * sum_b);
            if (!any(wins)) continue;
            b->code[i] = choose(wins, other, l);
            sum_a = choose(wins, sa, sum_a), sum_b = choose(wins, sb, sum_b);
            changed = true;
        }
    }
    b->scale = choose(less(all(0), sum_b) & ~nothing, sum_a / sum_b, all(0));
    for (int i = 0; i < n; i++) b->code[i] = choose(nothing, all(0), b->code[i] + nmax);
}

/* search_codebook for all lanes. Sets b->scale. */
ALWAYS_INLINE void lanes_search_codebook(struct lane_block *b, const int n)
{
    enum { REACH = 7 };
    static const float VALUES[16] = { IQ4_VALUES }, MIDDLES[15] = { SEARCH_CODEBOOK_MIDDLES };
    const floats extreme = extreme_of(b, n);
    const lane_mask nothing = less(magnitude_of(extreme), all(SEARCH_NEARLY_ZERO));
    floats scale = all(0), best = all(0);
    for (int k = -REACH - 1; k <= REACH; k++) {
        const bool first = k < -REACH;
        const floats inverse = first ? 1 / (extreme / -VALUES[0]) : ((float)k + VALUES[0]) / extreme;
        floats sum_a = all(0), sum_b = all(0);
#pragma GCC unroll 2
        for (int i = 0; i < n; i++) {
            const floats t = step_of(MIDDLES, VALUES, inverse * b->x[i]), wt = b->w[i] * t;
            sum_a += wt * b->x[i];
            sum_b += wt * t;
        }
        lane_mask wins = less(all(0), sum_b);
        const floats fit = sum_a / sum_b;
        if (!first) wins &= less(best * sum_b, sum_a * sum_a);
        scale = choose(wins, fit, scale), best = choose(wins, fit * sum_a, best);
    }
    b->scale = choose(nothing, all(0), scale);
}

#endif
