/* Reference encoders of the 2- and 3-bit codebook formats, with and without an importance matrix. The bytes
 * are those of ggml. For each sub-block: store the signs separately, then try a range of scales. With each
 * scale, the magnitudes are rounded to indices. If the indices of a group (of 8 or 4 weights) are not a row
 * of the codebook, the neighbouring row with the smallest error is used. The scale with the largest gain of
 * its least squares fit wins. Every operation is one rounded binary32 operation in the order written. */
#include <math.h>

#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/iquants/layout.h"
#include "kernels/formats/iquants/neighbours.h"
#include "kernels/formats/kquants/search.h"

enum { MOST_GROUPS = 8, MOST_LEVELS = 8 };

/* Parameters of a format's search. The values are ggml's. */
struct iq_search {
    const struct iq_map *(*map)(void);
    int sub, reach;    /* number of weights that share a scale; number of trials on each side of the scale at
                          which the largest weight has the largest magnitude */
    float step;        /* distance of two trials, in units of half a step of the magnitudes' index */
    float nearly_zero; /* a sub-block whose weights are all below this is stored as zero bytes */
    bool even_signs; /* the file stores only 7 signs of 8 weights; the number of negative ones must be even */
    bool fits_first; /* the middle of the range of scales is found by search_positive */
    float base, own_base; /* factors of the block's mean square in error weights, see error_weights_set */
    enum { REFINE_MISSES, REFINE_IF_MISSED, REFINE_ALWAYS } refine;
    float stored; /* factor of d when it is stored; ggml's, found by experiment */
};

/* The codebook rows of a trial, one per group. missed: the rounded indices were not a row, so a neighbour was
 * used. */
struct choice {
    int row[MOST_GROUPS];
    bool missed[MOST_GROUPS];
};

struct sub_block {
    const struct iq_search *plan;
    const struct iq_map *map;
    float x[SEARCH_MOST];    /* magnitudes; with even_signs, one weight of eight may be negative */
    float w[SEARCH_MOST];    /* error weights */
    float root[SEARCH_MOST]; /* sqrt(w): ggml's error weights when it compares neighbours */
    /* Terms of weight i in the sums of the least squares fit for every index, so that trials only add them.
     */
    float a[SEARCH_MOST][MOST_LEVELS], b[SEARCH_MOST][MOST_LEVELS];
    uint8_t negative[SEARCH_MOST / 8];
    struct choice choice;
};

struct scale_fit {
    float a, b; /* best scale a / b, gain a^2 / b (see kquants/search.c) */
};

/* Compute the error weights. mean: mean square of the block. With importance: see search_weights; without:
 * own_base * base * mean + x^2. */
static void error_weights_set(struct sub_block *s, const float *x, const float *importance, float mean)
{
    const struct iq_search *p = s->plan;
    if (importance)
        search_weights(p->sub, x, importance, p->base * mean, s->w);
    else
        for (int i = 0; i < p->sub; i++) s->w[i] = p->own_base * (p->base * mean) + x[i] * x[i];
    for (int i = 0; i < p->sub; i++) s->root[i] = sqrtf(s->w[i]);
}

/* Split the weights into magnitudes and signs. If the number of negative weights of eight must be even and is
 * not, the sign of the weight with the smallest w * x^2 is stored wrong, because that changes the error
 * least. Its "magnitude" becomes negative, so that the search sees the error. */
static void signs_split(struct sub_block *s, const float *x)
{
    for (int g = 0; g < s->plan->sub / 8; g++) {
        float *to = s->x + 8 * g;
        const float *from = x + 8 * g, *w = s->w + 8 * g;
        int negative = 0, least = 0;
        for (int i = 0; i < 8; i++) {
            to[i] = from[i] >= 0 ? from[i] : -from[i];
            if (!(from[i] >= 0)) negative |= 1 << i;
            if (w[i] * from[i] * from[i] < w[least] * from[least] * from[least]) least = i;
        }
        if (s->plan->even_signs && __builtin_parity((unsigned)negative)) {
            to[least] = -to[least];
            negative ^= 1 << least;
        }
        s->negative[g] = (uint8_t)negative;
    }
}

static float value_of(int level)
{
    return (float)(2 * level + 1);
}

static int nearest_neighbour(const struct sub_block *s, int first, int at, float scale)
{
    const struct iq_map *m = s->map;
    const uint16_t *list = m->list + at;
    float best = INFINITY, cost[8][MOST_LEVELS];
    int row = -1;
    for (int i = 0; i < m->weights; i++) {
        for (int l = 0; l < m->levels; l++) {
            const float miss = scale * value_of(l) - s->x[first + i];
            cost[i][l] = s->root[first + i] * miss * miss;
        }
    }
    for (int j = 1; j <= list[0]; j++) {
        const int combination = m->index[list[j]];
        float sum = 0;
        for (int i = 0; i < m->weights; i++) sum += cost[i][iq_level(m, combination, i)];
        if (sum < best) best = sum, row = list[j];
    }
    return row < 0 ? list[1] : row;
}

/* Choose rows for one scale and its inverse. again: only for groups whose last choice missed. */
static void rows_choose(const struct sub_block *s, float inverse, float scale, bool again, struct choice *c)
{
    const struct iq_map *m = s->map;
    for (int g = 0; g < s->plan->sub / m->weights; g++) {
        if (again && !c->missed[g]) continue;
        int combination = 0;
        for (int i = 0; i < m->weights; i++) {
            const int l = search_round(0.5f * (inverse * s->x[g * m->weights + i] - 1));
            combination |= search_clamp(l, 0, m->levels - 1) << m->bits * i;
        }
        const int place = m->place[combination];
        c->missed[g] = place < 0;
        c->row[g] = place >= 0 ? place : nearest_neighbour(s, g * m->weights, -1 - place, scale);
    }
}

static struct scale_fit fit_of(const struct sub_block *s, const struct choice *c)
{
    const struct iq_map *m = s->map;
    struct scale_fit f = { 0, 0 };
    for (int i = 0; i < s->plan->sub; i++) {
        const int level = iq_level(m, m->index[c->row[i / m->weights]], i % m->weights);
        f.a += s->a[i][level];
        f.b += s->b[i][level];
    }
    return f;
}

static bool any_missed(const struct sub_block *s)
{
    bool any = false;
    for (int g = 0; g < s->plan->sub / s->map->weights; g++) any |= s->choice.missed[g];
    return any;
}

/* Search the scale and the rows of a sub-block whose error weights, magnitudes and signs are set. Returns the
 * scale; 0 means that all bytes of the sub-block stay zero. */
static float scale_search(struct sub_block *s)
{
    const struct iq_search *p = s->plan;
    const int top = 2 * s->map->levels - 1; /* the largest magnitude, 2 * index + 1 */
    float most = s->x[0];
    for (int i = 1; i < p->sub; i++)
        if (s->x[i] > most) most = s->x[i];
    if (most < p->nearly_zero || !(most > 0)) return 0;
    float scale = most / (float)top, best = 0;
    if (p->fits_first) {
        uint8_t code[SEARCH_MOST];
        scale = search_positive(p->sub, s->map->levels + 1, s->x, s->w, code);
        most = scale * (float)s->map->levels;
        if (!(most > 0)) return 0;
    }
    for (int i = 0; i < p->sub; i++) {
        for (int l = 0; l < s->map->levels; l++) {
            s->a[i][l] = s->w[i] * s->x[i] * value_of(l);
            s->b[i][l] = s->w[i] * value_of(l) * value_of(l);
        }
    }
    s->choice = (struct choice){ .row = { 0 } };
    for (int k = -p->reach; k <= p->reach; k++) {
        const float inverse = ((float)top + (float)k * p->step) / most;
        struct choice c;
        rows_choose(s, inverse, 1 / inverse, false, &c);
        const struct scale_fit f = fit_of(s, &c);
        if (!(f.b > 0 && f.a * f.a > best * f.b)) continue;
        scale = f.a / f.b, best = scale * f.a;
        s->choice = c;
    }
    if (scale > 0 && (p->refine == REFINE_ALWAYS || any_missed(s))) {
        rows_choose(s, 1 / scale, scale, p->refine == REFINE_MISSES, &s->choice);
        const struct scale_fit f = fit_of(s, &s->choice);
        if (f.b > 0) scale = f.a / f.b;
    }
    if (!(scale < 0)) return scale;
    for (int g = 0; g < p->sub / 8; g++) s->negative[g] = (uint8_t)~s->negative[g];
    return -scale;
}

/* Write rows and signs of sub-block number `at`, and the four bits of its scale, to a block that was zeroed
 * before. */
typedef void store_fn(const struct sub_block *s, int at, uint8_t *out);
typedef void store_scale_fn(int at, int code, uint8_t *out);

static void block_encode(const struct iq_search *p, const float *x, const float *importance, store_fn *store,
                         store_scale_fn *store_scale, uint8_t *out)
{
    struct sub_block s = { .plan = p, .map = p->map() };
    const float mean = search_squares(K_BLOCK, x) / K_BLOCK;
    float scale[K_SUBS], most = 0;
    for (int j = 0; j < K_BLOCK / p->sub; j++) {
        const float *from = x + j * p->sub;
        error_weights_set(&s, from, importance ? importance + j * p->sub : NULL, mean);
        signs_split(&s, from);
        scale[j] = scale_search(&s);
        if (scale[j] == 0) continue;
        store(&s, j, out);
        if (scale[j] > most) most = scale[j];
    }
    if (most == 0) return;
    const float d = most / 31, inverse = 1 / d;
    store_u16(out, half_from_float(d * p->stored));
    for (int j = 0; j < K_BLOCK / p->sub; j++)
        store_scale(j, search_clamp(search_round(0.5f * (inverse * scale[j] - 1)), 0, 15), out);
}

static void word_add(uint8_t *p, uint32_t bits)
{
    const uint32_t v = k_load_u32(p) | bits;
    memcpy(p, &v, sizeof v);
}

/* Pack seven signs of each of four groups into 28 bits. */
static uint32_t signs_28(const struct sub_block *s)
{
    uint32_t v = 0;
    for (int g = 0; g < IQ_GROUPS; g++) v |= (uint32_t)(s->negative[g] & 127) << 7 * g;
    return v;
}

static void iq2_xxs_store(const struct sub_block *s, int at, uint8_t *out)
{
    for (int g = 0; g < IQ_GROUPS; g++) out[IQ_CODES + 8 * at + g] = (uint8_t)s->choice.row[g];
    word_add(out + IQ_CODES + 8 * at + 4, signs_28(s));
}

static void iq2_xxs_store_scale(int at, int code, uint8_t *out)
{
    word_add(out + IQ_CODES + 8 * at + 4, (uint32_t)code << 28);
}

static void iq2_xs_store(const struct sub_block *s, int at, uint8_t *out)
{
    for (int g = 0; g < 2; g++)
        store_u16(out + IQ_CODES + 4 * at + 2 * g,
                  (uint16_t)(s->choice.row[g] | (s->negative[g] & 127) << 9));
}

static void iq2_xs_store_scale(int at, int code, uint8_t *out)
{
    out[IQ2_XS_SCALES + at / 2] |= (uint8_t)(code << at % 2 * 4);
}

static void iq2_s_store(const struct sub_block *s, int at, uint8_t *out)
{
    for (int g = 0; g < 2; g++) {
        const int i = 2 * at + g;
        out[IQ_CODES + i] = (uint8_t)s->choice.row[g];
        out[IQ2_S_HIGH + i / 4] |= (uint8_t)(s->choice.row[g] >> 8 << i % 4 * 2);
        out[IQ2_S_SIGNS + i] = s->negative[g];
    }
}

static void iq2_s_store_scale(int at, int code, uint8_t *out)
{
    out[IQ2_S_SCALES + at / 2] |= (uint8_t)(code << at % 2 * 4);
}

static void iq3_xxs_store(const struct sub_block *s, int at, uint8_t *out)
{
    for (int g = 0; g < MOST_GROUPS; g++) out[IQ_CODES + 8 * at + g] = (uint8_t)s->choice.row[g];
    word_add(out + IQ3_XXS_WORDS + 4 * at, signs_28(s));
}

static void iq3_xxs_store_scale(int at, int code, uint8_t *out)
{
    word_add(out + IQ3_XXS_WORDS + 4 * at, (uint32_t)code << 28);
}

static void iq3_s_store(const struct sub_block *s, int at, uint8_t *out)
{
    for (int g = 0; g < MOST_GROUPS; g++) {
        out[IQ_CODES + 8 * at + g] = (uint8_t)s->choice.row[g];
        out[IQ3_S_HIGH + at] |= (uint8_t)(s->choice.row[g] >> 8 << g);
    }
    memcpy(out + IQ3_S_SIGNS + 4 * at, s->negative, IQ_GROUPS);
}

static void iq3_s_store_scale(int at, int code, uint8_t *out)
{
    out[IQ3_S_SCALES + at / 2] |= (uint8_t)(code << at % 2 * 4);
}

static const struct iq_search IQ2_XXS = { .map = iq_map_iq2_xxs,
                                          .sub = 32,
                                          .reach = 6,
                                          .step = 0.1f,
                                          .nearly_zero = 1e-15f,
                                          .even_signs = true,
                                          .fits_first = true,
                                          .base = 1,
                                          .refine = REFINE_ALWAYS,
                                          .stored = 1 },
                              IQ2_XS = { .map = iq_map_iq2_xs,
                                         .sub = 16,
                                         .reach = 9,
                                         .step = 0.1f,
                                         .nearly_zero = 1e-15f,
                                         .even_signs = true,
                                         .base = 1,
                                         .refine = REFINE_MISSES,
                                         .stored = 1 },
                              IQ2_S = { .map = iq_map_iq2_s,
                                        .sub = 16,
                                        .reach = 9,
                                        .step = 0.1f,
                                        .nearly_zero = 1e-8f,
                                        .base = 2,
                                        .own_base = 0.25f,
                                        .refine = REFINE_MISSES,
                                        .stored = 0.9875f },
                              IQ3_XXS = { .map = iq_map_iq3_xxs,
                                          .sub = 32,
                                          .reach = 15,
                                          .step = 0.2f,
                                          .nearly_zero = 1e-8f,
                                          .even_signs = true,
                                          .base = 2,
                                          .refine = REFINE_MISSES,
                                          .stored = 1.0125f },
                              IQ3_S = { .map = iq_map_iq3_s,
                                        .sub = 32,
                                        .reach = 9,
                                        .step = 0.2f,
                                        .base = 2,
                                        .refine = REFINE_IF_MISSED,
                                        .stored = 1.033f };

/* A format with needs_importance is encoded with equal importance if the caller has none. */
static void rows_encode(const struct encode *e, const struct iq_search *p, bool needs_importance,
                        store_fn *store, store_scale_fn *store_scale, int bytes)
{
    float equal[K_BLOCK];
    for (int i = 0; i < K_BLOCK; i++) equal[i] = 1;
    uint8_t *out = e->out;
    for (int64_t r = 0; r < e->rows; r++) {
        for (int64_t k = 0; k < e->cols; k += K_BLOCK, out += bytes) {
            const float *importance = e->importance ? e->importance + k : needs_importance ? equal : NULL;
            memset(out, 0, (size_t)bytes);
            block_encode(p, e->x + r * e->cols + k, importance, store, store_scale, out);
        }
    }
}

#define FUNCTIONS(name, NAME, needs_importance)                                                              \
    void name##_encode_rows_ref(const struct encode *e)                                                      \
    {                                                                                                        \
        rows_encode(e, &NAME, needs_importance, name##_store, name##_store_scale, NAME##_SHAPE.block_bytes); \
    }                                                                                                        \
    void name##_encode_ref(const float *x, void *blocks, int64_t n)                                          \
    {                                                                                                        \
        name##_encode_rows_ref(&(struct encode){ .x = x, .out = blocks, .rows = 1, .cols = n });             \
    }
FUNCTIONS(iq2_xxs, IQ2_XXS, true)
FUNCTIONS(iq2_xs, IQ2_XS, true)
FUNCTIONS(iq2_s, IQ2_S, false)
FUNCTIONS(iq3_xxs, IQ3_XXS, false)
FUNCTIONS(iq3_s, IQ3_S, false)
