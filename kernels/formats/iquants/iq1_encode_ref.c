/* Reference encoders of iq1_s and iq1_m, with and without an importance matrix. The bytes are those of ggml.
 * A weight is scale * (l + shift) with l = -1, 0 or 1 and a shift of +1/8 or -1/8. As in ggml, a larger
 * weight never gets a smaller l than a smaller weight. So the weights of a sub-block are sorted, and every
 * division of the sorted list into three runs (l = -1, 0, 1) is tried with every shift; the largest gain of a
 * least squares fit wins (see kquants/search.c). Every operation is one rounded binary32 operation in the
 * order written. */
#include <math.h>

#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/iquants/layout.h"
#include "kernels/formats/iquants/neighbours.h"
#include "kernels/formats/kquants/search.h"

enum { MOST_GROUPS = IQ_GROUPS };

/* The values of a weight at scale 1: [0] with shift +1/8, [1] with shift -1/8. */
#define SHIFT 0.125f
static const float VALUES[2][3] = { { -1 + SHIFT, SHIFT, 1 + SHIFT }, { -1 - SHIFT, -SHIFT, 1 - SHIFT } };

struct iq1_sub_block {
    int n; /* number of weights: 32 (iq1_s, one shift for all) or 16 (iq1_m, one shift for each eight) */
    const float *x;
    float w[SEARCH_MOST];
    int order[SEARCH_MOST]; /* indices of the weights, by ascending x */
    uint8_t level[SEARCH_MOST];
    int row[MOST_GROUPS];
    bool down[MOST_GROUPS]; /* true: the shift of these eight weights is -1/8 */
};

static void error_weights_set(struct iq1_sub_block *s, const float *importance, float mean)
{
    if (importance)
        search_weights(s->n, s->x, importance, 2 * mean, s->w);
    else
        for (int i = 0; i < s->n; i++) s->w[i] = s->x[i] * s->x[i];
}

/* Stable insertion sort: ggml's bytes depend on the order of equal weights. */
static void order_sort(struct iq1_sub_block *s)
{
    for (int i = 0; i < s->n; i++) {
        int at = i;
        for (; at > 0 && s->x[s->order[at - 1]] > s->x[i]; at--) s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
}

/* The best division so far. Weights order[0 .. first) get the lowest value, order[first .. second) the middle
 * one, the others the highest. */
struct division {
    int first, second, shifts; /* shifts: -1 = no division found yet; bit g = the shift of group g is -1/8
                                  (iq1_s: all bits are equal) */
    float scale, gain;
};

static void division_take(struct division *best, int first, int second, int shifts, float a, float b)
{
    if (!(b > 0 && a * a > best->gain * b)) return;
    best->scale = a / b, best->gain = best->scale * a;
    best->first = first, best->second = second, best->shifts = shifts;
}

/* Try all divisions with one shift for all weights. The sums over a run are differences of two prefix sums.
 */
static void divide_32(const struct iq1_sub_block *s, struct division *best)
{
    float wx[SEARCH_MOST + 1] = { 0 }, w[SEARCH_MOST + 1] = { 0 };
    const int n = s->n;
    for (int j = 0; j < n; j++) {
        const int i = s->order[j];
        wx[j + 1] = wx[j] + s->w[i] * s->x[i];
        w[j + 1] = w[j] + s->w[i];
    }
    for (int first = 0; first <= n; first++)
        for (int second = first; second <= n; second++)
            for (int down = 0; down < 2; down++) {
                const float *v = VALUES[down];
                const float a = (wx[first] - wx[0]) * v[0] + (wx[second] - wx[first]) * v[1] +
                                (wx[n] - wx[second]) * v[2];
                const float b = (w[first] - w[0]) * v[0] * v[0] + (w[second] - w[first]) * v[1] * v[1] +
                                (w[n] - w[second]) * v[2] * v[2];
                division_take(best, first, second, down ? 15 : 0, a, b);
            }
}

/* Sums of the least squares fit for the four combinations of two shifts. */
struct sums {
    float a[4], b[4];
};

static void terms_of(const struct iq1_sub_block *s, struct sums terms[][3])
{
    for (int i = 0; i < s->n; i++) {
        for (int l = 0; l < 3; l++) {
            for (int k = 0; k < 4; k++) {
                const float v = VALUES[i < 8 ? k & 1 : k >> 1][l];
                terms[i][l].a[k] = s->w[i] * v * s->x[i];
                terms[i][l].b[k] = s->w[i] * v * v;
            }
        }
    }
}

static void sums_add(struct sums *t, const struct sums *more)
{
    for (int k = 0; k < 4; k++) t->a[k] += more->a[k];
    for (int k = 0; k < 4; k++) t->b[k] += more->b[k];
}

/* Try all divisions with one shift for each eight weights. ggml adds the terms in the order of the sorted
 * weights, and so does this function to get the same rounding; sums of the first two runs are reused by the
 * next divisions. ORDER is ggml's order of the combinations, with the shift of the first group in bit 0. */
static void divide_16(const struct iq1_sub_block *s, struct division *best)
{
    enum { N = 16 };
    static const int ORDER[4] = { 0, 2, 1, 3 };
    struct sums low = { { 0 }, { 0 } }, terms[N][3];
    terms_of(s, terms);
    for (int first = 0; first <= N; first++) {
        struct sums middle = low;
        for (int second = first; second <= N; second++) {
            struct sums all = middle;
            for (int j = second; j < N; j++) sums_add(&all, &terms[s->order[j]][2]);
            for (int k = 0; k < 4; k++)
                division_take(best, first, second, ORDER[k], all.a[ORDER[k]], all.b[ORDER[k]]);
            if (second < N) sums_add(&middle, &terms[s->order[second]][1]);
        }
        if (first < N) sums_add(&low, &terms[s->order[first]][0]);
    }
}

static float value_of(const struct iq1_sub_block *s, int g, int level)
{
    return VALUES[s->down[g]][level];
}

static int nearest_neighbour(const struct iq1_sub_block *s, int g, const struct iq_map *m,
                             const uint16_t *list, float scale)
{
    float best = INFINITY, cost[8][3];
    int row = -1;
    for (int i = 0; i < 8; i++) {
        for (int l = 0; l < 3; l++) {
            const float miss = scale * value_of(s, g, l) - s->x[8 * g + i];
            cost[i][l] = s->w[8 * g + i] * miss * miss;
        }
    }
    for (int j = 1; j <= list[0]; j++) {
        const int combination = IQ1_INDEX[list[j]];
        float sum = 0;
        for (int i = 0; i < 8; i++) sum += cost[i][iq_level(m, combination, i)];
        if (sum < best) best = sum, row = list[j];
    }
    return row < 0 ? list[1] : row;
}

/* Choose codebook rows for the levels of the best division. Returns the scale: refitted to the rows if a
 * group's levels were not a row and a neighbour was used, else unchanged. */
static float rows_choose(struct iq1_sub_block *s, float scale)
{
    const struct iq_map *m = iq_map_iq1();
    bool missed = false;
    for (int g = 0; g < s->n / 8; g++) {
        int combination = 0;
        for (int i = 0; i < 8; i++) combination |= s->level[8 * g + i] << m->bits * i;
        const int place = m->place[combination];
        missed |= place < 0;
        s->row[g] = place >= 0 ? place : nearest_neighbour(s, g, m, m->list + (-1 - place), scale);
    }
    if (!missed) return scale;
    float a = 0, b = 0;
    for (int i = 0; i < s->n; i++) {
        const float q = value_of(s, i / 8, iq_level(m, IQ1_INDEX[s->row[i / 8]], i % 8));
        a += s->w[i] * q * s->x[i];
        b += s->w[i] * q * q;
    }
    return a > 0 && b > 0 ? a / b : scale;
}

/* Search scale, shifts and rows of a sub-block. Returns the scale; 0 means that its bytes stay zero. */
static float scale_search(struct iq1_sub_block *s, float nearly_zero)
{
    float most = fabsf(s->x[0]);
    for (int i = 1; i < s->n; i++)
        if (fabsf(s->x[i]) > most) most = fabsf(s->x[i]);
    if (most < nearly_zero) return 0;
    struct division best = { .shifts = -1, .scale = most, .gain = -3.402823466e38f };
    order_sort(s);
    if (s->n == 32)
        divide_32(s, &best);
    else
        divide_16(s, &best);
    if (best.shifts < 0) return 0; /* the importance of all columns is zero */
    for (int j = 0; j < s->n; j++)
        s->level[s->order[j]] = (uint8_t)(j < best.first ? 0 : j < best.second ? 1 : 2);
    if (best.scale < 0) {
        for (int j = 0; j < s->n; j++) s->level[j] = (uint8_t)(2 - s->level[j]);
        best.scale = -best.scale, best.shifts = ~best.shifts;
    }
    for (int g = 0; g < MOST_GROUPS; g++) s->down[g] = best.shifts >> g & 1;
    return rows_choose(s, best.scale);
}

/* ---------------------------------------------------------------- blocks */

static void iq1_s_block(const float *x, const float *importance, uint8_t *out)
{
    enum { SUB = 32, LARGEST = 15 };
    struct iq1_sub_block s = { .n = SUB };
    const float mean = search_squares(K_BLOCK, x) / K_BLOCK;
    float scale[IQ_PARTS], most = 0;
    bool down[IQ_PARTS];
    for (int j = 0; j < IQ_PARTS; j++) {
        uint32_t high = 0;
        s.x = x + j * SUB;
        error_weights_set(&s, importance + j * SUB, mean);
        scale[j] = scale_search(&s, 1e-12f);
        down[j] = s.down[0];
        if (scale[j] == 0) continue;
        for (int g = 0; g < IQ_GROUPS; g++) {
            out[IQ_CODES + IQ_GROUPS * j + g] = (uint8_t)s.row[g];
            high |= (uint32_t)s.row[g] >> 8 << 3 * g;
        }
        store_u16(out + IQ1_S_HIGH + 2 * j, (uint16_t)high);
        if (scale[j] > most) most = scale[j];
    }
    if (most == 0) return;
    const float d = most / LARGEST, inverse = 1 / d;
    store_u16(out, half_from_float(d * 1.125f)); /* the factor was found by experiment */
    for (int j = 0; j < IQ_PARTS; j++) {
        const int code = search_clamp(search_round(0.5f * (inverse * scale[j] - 1)), 0, 7) | down[j] << 3;
        store_u16(out + IQ1_S_HIGH + 2 * j, (uint16_t)(load_u16(out + IQ1_S_HIGH + 2 * j) | code << 12));
    }
}

/* Store the codes of the scales. Returns d, fitted again by least squares to these codes. */
static float iq1_m_scales_store(const float *scale, const struct iq1_sub_block *subs, float d, uint8_t *out)
{
    enum { SUB = 16 };
    const float inverse = 1 / d;
    float a = 0, b = 0;
    for (int j = 0; j < K_SUBS; j++) {
        const struct iq1_sub_block *s = &subs[j];
        const int code = search_clamp(search_round(0.5f * (inverse * scale[j] - 1)), 0, 7);
        uint8_t *word = out + IQ1_M_SCALES + j / 4 * 2;
        store_u16(word, (uint16_t)(load_u16(word) | code << 3 * (j % 4)));
        for (int i = 0; i < SUB; i++) {
            const int level = iq_level(iq_map_iq1(), IQ1_INDEX[s->row[i / 8]], i % 8);
            const float q = value_of(s, i / 8, level) * (float)(2 * code + 1);
            a += s->w[i] * q * s->x[i];
            b += s->w[i] * q * q;
        }
    }
    return b > 0 ? a / b : d;
}

static void iq1_m_block(const float *x, const float *importance, uint8_t *out)
{
    enum { SUB = 16, LARGEST = 15 };
    struct iq1_sub_block subs[K_SUBS];
    const float mean = search_squares(K_BLOCK, x) / K_BLOCK;
    float scale[K_SUBS], most = 0;
    for (int j = 0; j < K_SUBS; j++) {
        struct iq1_sub_block *s = &subs[j];
        *s = (struct iq1_sub_block){ .n = SUB, .x = x + j * SUB };
        error_weights_set(s, importance ? importance + j * SUB : NULL, mean);
        scale[j] = scale_search(s, 1e-7f);
        if (scale[j] == 0) continue;
        int high = 0;
        for (int g = 0; g < 2; g++) {
            out[IQ1_M_CODES + 2 * j + g] = (uint8_t)s->row[g];
            high |= (s->row[g] >> 8 | s->down[g] << 3) << 4 * g;
        }
        out[IQ1_M_HIGH + j] = (uint8_t)high;
        if (scale[j] > most) most = scale[j];
    }
    if (most == 0) return;
    const float fitted = iq1_m_scales_store(scale, subs, most / LARGEST, out);
    const uint16_t d = half_from_float(fitted * 1.1125f); /* the factor was found by experiment */
    for (int i = 0; i < 4; i++) out[IQ1_M_SCALES + 2 * i + 1] |= (uint8_t)((d >> 4 * i & 15) << 4);
}

typedef void block_fn(const float *x, const float *importance, uint8_t *out);

/* needs_importance (iq1_s): the block is encoded with equal importance if the caller has none. */
static void rows_encode(const struct encode *e, block_fn *block, bool needs_importance, int bytes)
{
    float equal[K_BLOCK];
    for (int i = 0; i < K_BLOCK; i++) equal[i] = 1;
    uint8_t *out = e->out;
    for (int64_t r = 0; r < e->rows; r++) {
        for (int64_t k = 0; k < e->cols; k += K_BLOCK, out += bytes) {
            memset(out, 0, (size_t)bytes);
            block(e->x + r * e->cols + k,
                  e->importance      ? e->importance + k
                  : needs_importance ? equal
                                     : NULL,
                  out);
        }
    }
}

#define FUNCTIONS(name, NAME, needs_importance)                                                              \
    void name##_encode_rows_ref(const struct encode *e)                                                      \
    {                                                                                                        \
        rows_encode(e, name##_block, needs_importance, NAME##_SHAPE.block_bytes);                            \
    }                                                                                                        \
    void name##_encode_ref(const float *x, void *blocks, int64_t n)                                          \
    {                                                                                                        \
        name##_encode_rows_ref(&(struct encode){ .x = x, .out = blocks, .rows = 1, .cols = n });             \
    }
FUNCTIONS(iq1_s, IQ1_S, true)
FUNCTIONS(iq1_m, IQ1_M, false)
