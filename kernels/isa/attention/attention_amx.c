/* Attention on bf16 tiles. Scores are transposed, [token][query]: the maximum and the sum of a query run down
 * a column, so no register is summed across, and keys are the A operand of tile products, in plain rows as
 * stored. exp is only as exact as needed, because softmax weights are rounded to bf16. */
#include <math.h>

#include "kernels/isa/amx.h"
#include "kernels/isa/isa_kernels.h"

enum {
    GROUP = 32, /* queries */
    STEP = 32,  /* tokens of one tile's depth */
    TILE = BF16_TILE_WEIGHTS,
    S_STRIDE = GROUP * sizeof(float),
};

/* ---------------------------------------------------------------- operands */

/* Pack 16 queries into tiles of 16 input pairs: a 16 x 16 transpose of pairs. */
static void pack_half(const float *const *x, int n, int k, float by, uint16_t *out)
{
    const __m512 scale = _mm512_set1_ps(by);
    for (int i = 0; i < k; i += TILE_DEPTH, out += TILE) {
        const __mmask16 low = first_lanes(k - i), high = first_lanes(k - i - 16);
        __m512i v[16];
#pragma GCC unroll 16
        for (int t = 0; t < 16; t++)
            v[t] = t < n ? to_bf16(_mm512_mul_ps(scale, _mm512_maskz_loadu_ps(low, x[t] + i)),
                                   _mm512_mul_ps(scale, _mm512_maskz_loadu_ps(high, x[t] + i + 16)))
                         : _mm512_setzero_si512();
        transpose_16x16(v);
#pragma GCC unroll 16
        for (int p = 0; p < 16; p++) _mm512_store_si512(out + p * TILE_DEPTH, v[p]);
    }
}

static void pack_amx(const float *const *x, int n, int k, float by, uint16_t *out)
{
    const int tiles = (k + TILE_DEPTH - 1) / TILE_DEPTH;
    pack_half(x, MIN(n, (int)TILE_ROWS), k, by, out);
    pack_half(x + TILE_ROWS, n - TILE_ROWS, k, by, out + tiles * TILE);
}

static void unpack_amx(const float *o, const float *by, int n, int v_dim, float *const *y)
{
    for (int half = 0; half < n; half += 16) {
        const __m512 scale = _mm512_loadu_ps(by + half);
        for (int d = 0; d < v_dim; d += 16) {
            __m512i v[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                v[i] = _mm512_castps_si512(_mm512_mul_ps(scale, _mm512_loadu_ps(o + (d + i) * GROUP + half)));
            transpose_16x16(v);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                if (half + i < n) _mm512_mask_storeu_epi32(y[half + i] + d, first_lanes(v_dim - d), v[i]);
        }
    }
}

/* 16 registers of token pairs, one 32-bit lane a dim, to rows of dims. Lane l holds dim l % 4 of the l / 4-th
 * eight dims, from `first` on: that is how the unpack instructions leave them. */
ALWAYS_INLINE void turn_pairs(__m512i v[16], int first, uint16_t *out, int64_t out_stride)
{
    transpose_16x16(v);
#pragma GCC unroll 16
    for (int l = 0; l < 16; l++) {
        const int dim = l / 4 * 8 + first + l % 4;
        _mm512_store_si512(out + dim / TILE_ROWS * out_stride + dim % TILE_ROWS * STEP, v[l]);
    }
}

static void transpose_v_amx(const uint16_t *a, const uint16_t *b, int tiles, uint16_t *out,
                            int64_t out_stride)
{
    for (int i = 0; i < tiles; i++, a += TILE, b += TILE, out += 2 * out_stride) {
        __m512i low[16], high[16];
#pragma GCC unroll 16
        for (int p = 0; p < 16; p++) {
            const uint16_t *pair = (p < 8 ? a : b) + p % 8 * 2 * TILE_DEPTH;
            const __m512i even = _mm512_load_si512(pair), odd = _mm512_load_si512(pair + TILE_DEPTH);
            low[p] = _mm512_unpacklo_epi16(even, odd);
            high[p] = _mm512_unpackhi_epi16(even, odd);
        }
        turn_pairs(low, 0, out, out_stride);
        turn_pairs(high, 4, out, out_stride);
    }
}

/* ---------------------------------------------------------------- tile products */

/* A queue of tile products, executed one step (32 deep, up to 2 x 2 tiles) at a time, so that the tile unit
 * works while the vector units turn other scores into weights. */
struct products {
    const struct attend *scores; /* s[tokens][32] = k q, 32 tokens x 32 queries a block; NULL: done */
    const struct attend *values; /* then o[v_dim][32] += v p, 32 dims x 32 queries a block; NULL: done */
    int block, step;
};

static int count_steps(const struct products *w)
{
    const int scores = w->scores ? w->scores->tokens / STEP * w->scores->depth : 0;
    return scores + (w->values ? w->values->v_dim / STEP * (w->values->tokens / STEP) : 0);
}

/* c (+)= [a; a2] [b b2], where b2 is the right half of 32 queries. */
ALWAYS_INLINE void tiles_multiply(const uint16_t *a, const uint16_t *a2, const uint16_t *b,
                                  const uint16_t *b2, bool wide)
{
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a2, 64);
    _tile_dpbf16ps(2, 5, 6);
    if (!wide) return;
    _tile_loadd(7, b2, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
}

ALWAYS_INLINE void tiles_store(float *c, bool wide)
{
    _tile_stored(0, c, S_STRIDE);
    _tile_stored(2, c + TILE_ROWS * GROUP, S_STRIDE);
    if (!wide) return;
    _tile_stored(1, c + TILE_ROWS, S_STRIDE);
    _tile_stored(3, c + TILE_ROWS * GROUP + TILE_ROWS, S_STRIDE);
}

ALWAYS_INLINE void tiles_load(const float *c, bool wide)
{
    /* Force earlier vector stores to memory: the tile intrinsics do not declare that they read it. */
    __asm__ volatile("" : : : "memory");
    _tile_loadd(0, c, S_STRIDE);
    _tile_loadd(2, c + TILE_ROWS * GROUP, S_STRIDE);
    if (!wide) return;
    _tile_loadd(1, c + TILE_ROWS, S_STRIDE);
    _tile_loadd(3, c + TILE_ROWS * GROUP + TILE_ROWS, S_STRIDE);
}

ALWAYS_INLINE void step_scores(struct products *w)
{
    const struct attend *a = w->scores;
    const int64_t run = (int64_t)a->depth * TILE, d = (int64_t)w->step * TILE;
    const uint16_t *k = a->k + w->block * 2 * run + d, *q = a->q + d;
    const bool wide = a->queries > TILE_ROWS;
    if (w->step == 0) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    tiles_multiply(k, k + run, q, q + run, wide);
    if (++w->step < a->depth) return;
    tiles_store(a->s + (int64_t)w->block * STEP * GROUP, wide);
    w->step = 0;
    if (++w->block == a->tokens / STEP) w->scores = NULL, w->block = 0;
}

ALWAYS_INLINE void step_values(struct products *w)
{
    const struct attend *a = w->values;
    const uint16_t *v = a->v + w->block * 2 * a->v_stride + (int64_t)w->step * TILE;
    const uint16_t *p = a->p + (int64_t)w->step * 2 * TILE;
    float *o = a->o + (int64_t)w->block * STEP * GROUP;
    const bool wide = a->queries > TILE_ROWS;
    if (w->step == 0) tiles_load(o, wide);
    tiles_multiply(v, v + a->v_stride, p, p + TILE, wide);
    if (++w->step < a->tokens / STEP) return;
    tiles_store(o, wide);
    w->step = 0;
    if (++w->block == a->v_dim / STEP) w->values = NULL, w->block = 0;
}

ALWAYS_INLINE void step_products(struct products *w)
{
    if (w->scores)
        step_scores(w);
    else if (w->values)
        step_values(w);
}

static void finish_products(struct products *w)
{
    while (w->scores || w->values) step_products(w);
}

/* ---------------------------------------------------------------- softmax */

/* 2^x with a relative error of at most 7.5e-5: a minimax polynomial of the fraction 0 <= f <= 1. 2^-inf is 0.
 */
ALWAYS_INLINE __m512 exp2_short(__m512 x)
{
    const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.07802452f), f, _mm512_set1_ps(0.22606716f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69583354f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.99992522f));
    return _mm512_scalef_ps(p, x);
}

static void scale_scores(const struct attend *a, int half)
{
    for (int t = 0; t < a->tokens; t++) {
        float *s = a->s + t * GROUP + half * 16;
        _mm512_storeu_ps(s, _mm512_mul_ps(_mm512_set1_ps(a->k_scale[t]), _mm512_loadu_ps(s)));
    }
}

/* The capped score cap * tanh(x), x = score / cap, as an exponent of 2. */
static void cap_scores(const struct attend *a, int half)
{
    const __m512 one = _mm512_set1_ps(1), by = _mm512_set1_ps(a->softcap * (float)M_LOG2E);
    for (int t = 0; t < a->tokens; t++) {
        float *s = a->s + t * GROUP + half * 16;
        const __m512 x = _mm512_loadu_ps(s), e = exp_avx512(_mm512_add_ps(x, x));
        const __m512 gone = _mm512_div_ps(_mm512_set1_ps(2), _mm512_add_ps(e, one));
        /* x - x is 0, or NaN where the score is not finite. */
        _mm512_storeu_ps(s, _mm512_fmadd_ps(by, _mm512_sub_ps(one, gone), _mm512_sub_ps(x, x)));
    }
}

/* Set masked scores to -inf. */
static void mask_scores(const struct attend *a, int half)
{
    const __m512i first = _mm512_loadu_si512(a->first + half * 16);
    const __m512i end = _mm512_loadu_si512(a->end + half * 16);
    for (int t = 0; t < a->tokens; t++) {
        float *s = a->s + t * GROUP + half * 16;
        const __m512i now = _mm512_set1_epi32(a->position + t);
        const __mmask16 hidden = _mm512_cmplt_epi32_mask(now, first) | _mm512_cmple_epi32_mask(end, now);
        _mm512_mask_storeu_ps(s, hidden, _mm512_set1_ps(-INFINITY));
    }
}

ALWAYS_INLINE __m512 scores_largest(const float *s, int tokens)
{
    __m512 m[4];
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++) m[u] = _mm512_loadu_ps(s + u * GROUP);
    for (int t = 4; t < tokens; t += 4)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) m[u] = _mm512_max_ps(m[u], _mm512_loadu_ps(s + (t + u) * GROUP));
    return _mm512_max_ps(_mm512_max_ps(m[0], m[1]), _mm512_max_ps(m[2], m[3]));
}

/* The peak that is subtracted from all exponents of this block. It only has to prevent overflow, so it
 * changes only when scores exceed it by a lot: rescaling the sums to a new peak costs a pass over them. */
static __m512 scores_peak(const struct attend *a, int half)
{
    enum { RISE = 8 }; /* sums stay below 2^8 x tokens */
    float *s = a->s + half * 16, *o = a->o + half * 16;
    const __m512 old = _mm512_loadu_ps(a->peak + half * 16), most = scores_largest(s, a->tokens);
    const __mmask16 rose = _mm512_cmp_ps_mask(most, _mm512_add_ps(old, _mm512_set1_ps(RISE)), _CMP_GT_OQ);
    const __m512 peak = _mm512_mask_mov_ps(old, rose, most);
    if (rose) {
        const __m512 total = _mm512_loadu_ps(a->total + half * 16);
        const __m512 by = _mm512_mask_mov_ps(_mm512_set1_ps(1), rose, exp2_short(_mm512_sub_ps(old, peak)));
        for (int d = 0; d < a->v_dim; d++)
            _mm512_storeu_ps(o + d * GROUP, _mm512_mul_ps(by, _mm512_loadu_ps(o + d * GROUP)));
        _mm512_storeu_ps(a->total + half * 16, _mm512_mul_ps(by, total));
        _mm512_storeu_ps(a->peak + half * 16, peak);
    }
    /* While a query has attended to nothing, any finite peak makes 2^(-inf - peak) = 0. */
    return _mm512_mask_mov_ps(peak, _mm512_cmp_ps_mask(peak, _mm512_set1_ps(-INFINITY), _CMP_EQ_OQ),
                              _mm512_setzero_ps());
}

/* Spread `steps` tile products evenly over `chances` iterations of the loop below. */
struct pace {
    struct products *products;
    int steps, chances, due;
};

ALWAYS_INLINE void pace_step(struct pace *c)
{
    for (c->due += c->steps; c->due >= c->chances; c->due -= c->chances) step_products(c->products);
}

/* Convert scores to softmax weights in bf16. Row p of a tile contains tokens 2p and 2p + 1 side by side. A
 * step has two tiles, one for each half of the queries. */
ALWAYS_INLINE void scores_to_weights(const struct attend *a, int half, __m512 peak, struct pace *pace,
                                     const bool scaled)
{
    enum { AT_ONCE = 8 };
    const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                           7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512 sum[2] = { _mm512_setzero_ps(), _mm512_loadu_ps(a->total + half * 16) };
    const float *s = a->s + half * 16;
    for (int i = 0; i < a->tokens; i += AT_ONCE) {
        uint16_t *out = a->p + (i / STEP * 2 + half) * TILE + i % STEP / 2 * TILE_DEPTH;
        pace_step(pace);
#pragma GCC unroll 4
        for (int t = 0; t < AT_ONCE; t += 2, s += 2 * GROUP, out += TILE_DEPTH) {
            __m512 u = exp2_short(_mm512_sub_ps(_mm512_loadu_ps(s), peak));
            __m512 v = exp2_short(_mm512_sub_ps(_mm512_loadu_ps(s + GROUP), peak));
            sum[0] = _mm512_add_ps(sum[0], u);
            sum[1] = _mm512_add_ps(sum[1], v);
            if (scaled) {
                u = _mm512_mul_ps(u, _mm512_set1_ps(a->v_scale[i + t]));
                v = _mm512_mul_ps(v, _mm512_set1_ps(a->v_scale[i + t + 1]));
            }
            _mm512_store_si512(out, _mm512_permutexvar_epi16(pairs, to_bf16(u, v)));
        }
    }
    _mm512_storeu_ps(a->total + half * 16, _mm512_add_ps(sum[0], sum[1]));
}

/* Turn the scores of a block into softmax weights, and compute other tile products `meanwhile`. */
static void scores_softmax(const struct attend *a, struct products *meanwhile)
{
    const int halves = a->queries > TILE_ROWS ? 2 : 1;
    struct pace pace = { meanwhile, count_steps(meanwhile), halves * a->tokens / 8, 0 };
    for (int half = 0; half < halves; half++) {
        if (a->k_scale) scale_scores(a, half);
        if (a->softcap > 0) cap_scores(a, half);
        if (a->masked) mask_scores(a, half);
        const __m512 peak = scores_peak(a, half);
        if (a->v_scale)
            scores_to_weights(a, half, peak, &pace, true);
        else
            scores_to_weights(a, half, peak, &pace, false);
    }
    finish_products(meanwhile);
}

/* While one group's scores become weights, the tile unit computes the scores of the next group and the
 * weighted values of the previous one. */
static void attend_amx(const struct attend *a, int count)
{
    finish_products(&(struct products){ .scores = a });
    for (int i = 0; i < count; i++)
        scores_softmax(a + i, &(struct products){ .scores = i + 1 < count ? a + i + 1 : NULL,
                                                  .values = i > 0 ? a + i - 1 : NULL });
    finish_products(&(struct products){ .values = a + count - 1 });
}

const struct attention_kernel ATTEND_BF16_AMX = { .begin = amx_begin,
                                                  .end = amx_end,
                                                  .pack = pack_amx,
                                                  .load = unpack_bf16_tiles,
                                                  .transpose_v = transpose_v_amx,
                                                  .attend = attend_amx,
                                                  .unpack = unpack_amx };
