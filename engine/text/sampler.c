/* Chooses a token from a row of logits. A vocabulary has about 10^5 entries, and a choice depends on a few
 * hundred of them, so the row is never sorted as a whole. Passes over all logits only compare or add f32
 * weights, in loops that the compiler vectorizes; only the candidates above a threshold are ordered. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/text.h"
#include "kernels/kernels.h"

const struct sampler_options SAMPLER_DEFAULTS = {
    .temperature = 0, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1, .repeat_last = 64, .seed = 0
};

struct candidate {
    float logit;
    int32_t id;
};

struct sampler {
    struct sampler_options o;
    int32_t n_vocab;
    struct candidate *candidates; /* [n_vocab] */
    float *weights;               /* [n_vocab] e^(logit - largest) of all tokens, or of the candidates */
    float *penalized;             /* [n_vocab] */
    uint32_t *stamps, stamp;      /* [n_vocab] stamps[id] == stamp: the penalty was applied in this call */
    int32_t *recent;              /* [repeat_last] ring buffer of the last ids */
    int recent_count, recent_next;
    uint64_t state[4];
};

/* ---------------------------------------------------------------- random numbers: xoshiro256** */

static uint64_t bits_rotate_left(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

static uint64_t random_next(uint64_t s[4])
{
    const uint64_t result = bits_rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = bits_rotate_left(s[3], 45);
    return result;
}

/* Expand one number into the state with splitmix64, so that neighbouring seeds give unrelated draws. */
static void random_seed(uint64_t s[4], uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        s[i] = hash_mix(seed += HASH_STEP);
    }
}

/* Uniform in [0, 1). */
static double random_unit(uint64_t s[4])
{
    return (double)(random_next(s) >> 11) * 0x1p-53;
}

/* ---------------------------------------------------------------- opening */

static enum err_code sampler_check_options(const struct sampler_options *o, int32_t n_vocab, struct err *why)
{
    if (n_vocab < 1) return err_set(why, ERR_USAGE, "a vocabulary of %d tokens cannot be sampled", n_vocab);
    if (!(o->temperature >= 0) || !isfinite(o->temperature))
        return err_set(why, ERR_USAGE, "temperature %g: expected 0 (greedy) or more", (double)o->temperature);
    if (o->top_k < 0) return err_set(why, ERR_USAGE, "top-k %d: expected 0 (off) or more", o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return err_set(why, ERR_USAGE, "top-p %g: expected more than 0, at most 1 (off)", (double)o->top_p);
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return err_set(why, ERR_USAGE, "min-p %g: expected 0 (off) to 1", (double)o->min_p);
    if (!(o->repeat_penalty > 0) || !isfinite(o->repeat_penalty))
        return err_set(why, ERR_USAGE, "repeat penalty %g: expected more than 0, 1 is off",
                       (double)o->repeat_penalty);
    if (o->repeat_last < 0 || o->repeat_last > 1 << 24)
        return err_set(why, ERR_USAGE, "repeat window %d: expected 0 to %d tokens", o->repeat_last, 1 << 24);
    return ERR_OK;
}

bool sampler_is_greedy(const struct sampler_options *o)
{
    const bool penalty = o->repeat_penalty != 1 && o->repeat_last > 0;
    return !penalty && (o->temperature == 0 || o->top_k == 1);
}

enum err_code sampler_open(struct sampler **out, const struct sampler_options *o, int32_t n_vocab,
                           struct err *why)
{
    *out = NULL;
    enum err_code rc = sampler_check_options(o, n_vocab, why);
    if (rc) return rc;
    struct sampler *s = calloc(1, sizeof *s);
    if (!s) return err_set(why, ERR_NOMEM, "out of memory for a sampler");
    s->o = *o;
    s->n_vocab = n_vocab;
    const size_t n = (size_t)n_vocab;
    s->candidates = malloc(n * sizeof *s->candidates);
    s->weights = malloc(n * sizeof *s->weights);
    s->penalized = malloc(n * sizeof *s->penalized);
    s->stamps = calloc(n, sizeof *s->stamps);
    s->recent = calloc((size_t)MAX(o->repeat_last, 1), sizeof *s->recent);
    if (!s->candidates || !s->weights || !s->penalized || !s->stamps || !s->recent) {
        sampler_close(s);
        return err_set(why, ERR_NOMEM, "out of memory for sampling from %d tokens", n_vocab);
    }
    random_seed(s->state, o->seed);
    *out = s;
    return ERR_OK;
}

void sampler_close(struct sampler *s)
{
    if (!s) return;
    free(s->candidates);
    free(s->weights);
    free(s->penalized);
    free(s->stamps);
    free(s->recent);
    free(s);
}

/* ---------------------------------------------------------------- stages */

void sampler_accept(struct sampler *s, int32_t id)
{
    if (id < 0 || id >= s->n_vocab || s->o.repeat_last == 0) return;
    s->recent[s->recent_next] = id;
    s->recent_next = (s->recent_next + 1) % s->o.repeat_last;
    s->recent_count = MIN(s->recent_count + 1, s->o.repeat_last);
}

/* Repeat penalty: a positive logit of a recent token is divided by it, a negative one multiplied; once per
 * token. */
static const float *sampler_penalize(struct sampler *s, const float *logits)
{
    if (s->o.repeat_penalty == 1 || s->recent_count == 0) return logits;
    memcpy(s->penalized, logits, (size_t)s->n_vocab * sizeof *logits);
    s->stamp++;
    for (int i = 0; i < s->recent_count; i++) {
        const int32_t id = s->recent[i];
        if (s->stamps[id] == s->stamp) continue;
        s->stamps[id] = s->stamp;
        float *l = &s->penalized[id];
        *l = *l > 0 ? *l / s->o.repeat_penalty : *l * s->o.repeat_penalty;
    }
    return s->penalized;
}

enum { LANES = 16 }; /* independent sums or maxima, so that the compiler can use vectors */

/* Index of the largest logit, the first one of equals. -1: a logit is NaN, or all are minus infinity. */
static int32_t logits_greedy(const float *logits, int32_t n)
{
    float most[LANES], best = -INFINITY;
    int bad[LANES] = { 0 }, any_bad = 0;
    int32_t i = 0;
    for (int j = 0; j < LANES; j++) most[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            const float v = logits[i + j];
            most[j] = v > most[j] ? v : most[j];
            bad[j] |= v != v;
        }
    }
    for (; i < n; i++) {
        most[0] = logits[i] > most[0] ? logits[i] : most[0];
        bad[0] |= isnan(logits[i]);
    }
    for (int j = 0; j < LANES; j++) {
        best = most[j] > best ? most[j] : best;
        any_bad |= bad[j];
    }
    if (any_bad || best == -INFINITY) return -1;
    for (i = 0; logits[i] != best; i++) {}
    return i;
}

/* w[i] = e^((x[i] - most) * by), relative error below 1e-6, 0 below 2^-125. Returns their sum. Requires x <=
 * most. */
static double logits_weigh(const float *x, int32_t n, float most, float by, float *w)
{
    enum { AT_ONCE = 1024 }; /* weights per f32 sum, which bounds its rounding error */
    const float turn = by * (float)M_LOG2E;
    double total = 0;
    for (int32_t from = 0; from < n; from += AT_ONCE) {
        const int32_t to = MIN(from + AT_ONCE, n);
        float sum[LANES] = { 0 };
        for (int32_t i = from; i < to; i++) { /* 2^t = 2^whole * 2^rest, rest in -1..0 */
            const float t = (x[i] - most) * turn, in = t > -125 ? t : -125;
            const int32_t whole = (int32_t)in;
            const float r = (in - (float)whole) * (float)M_LN2;
            float p = 1 +
                      r * (1 + r * (0.5f + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r / 720)))));
            const int32_t bits = (whole + 127) << 23;
            float power;
            memcpy(&power, &bits, sizeof power);
            w[i] = t > -125 ? p * power : 0;
        }
        int32_t i = from;
        for (; i + LANES <= to; i += LANES)
            for (int j = 0; j < LANES; j++) sum[j] += w[i + j];
        for (; i < to; i++) sum[0] += w[i];
        for (int j = 0; j < LANES; j++) total += (double)sum[j];
    }
    return total;
}

/* Sum of the weights of all logits >= least. */
static double weights_sum_from(const float *x, const float *w, int32_t n, float least)
{
    double total[LANES] = { 0 }, sum = 0;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) total[j] += (double)(x[i + j] >= least ? w[i + j] : 0);
    for (; i < n; i++) sum += (double)(x[i] >= least ? w[i] : 0);
    for (int j = 0; j < LANES; j++) sum += total[j];
    return sum;
}

/* Total order of candidates: larger logits first, of equal ones the smaller id. */
static bool candidate_ahead(struct candidate a, struct candidate b)
{
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

static void candidates_swap(struct candidate *a, struct candidate *b)
{
    const struct candidate t = *a;
    *a = *b;
    *b = t;
}

/* Partition c[low..high] at the median of three (Hoare). Afterwards no candidate of c[*i..high] is ahead of
 * one in c[low..*j], and *i - *j is 1 or 2 (2: the candidate between them is in its final place). */
static void candidates_partition(struct candidate *c, int32_t low, int32_t high, int32_t *i, int32_t *j)
{
    const int32_t middle = low + (high - low) / 2;
    if (candidate_ahead(c[middle], c[low])) candidates_swap(&c[middle], &c[low]);
    if (candidate_ahead(c[high], c[low])) candidates_swap(&c[high], &c[low]);
    if (candidate_ahead(c[high], c[middle])) candidates_swap(&c[high], &c[middle]);
    const struct candidate pivot = c[middle];
    *i = low, *j = high;
    while (*i <= *j) {
        while (candidate_ahead(c[*i], pivot)) ++*i;
        while (candidate_ahead(pivot, c[*j])) --*j;
        if (*i <= *j) candidates_swap(&c[(*i)++], &c[(*j)--]);
    }
}

/* Quickselect: move the k best of c[0..n) to the front, in any order. */
static void candidates_select_first(struct candidate *c, int32_t n, int32_t k)
{
    int32_t low = 0, high = n - 1, i, j;
    while (low < high) {
        candidates_partition(c, low, high, &i, &j);
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            return;
    }
}

/* Quickselect by weight: move the smallest number of best candidates whose weights w[id] sum to at least
 * `wanted` to the front of c[0..n). Returns this number. */
static int32_t candidates_select_weight(struct candidate *c, int32_t n, const float *w, double wanted)
{
    int32_t low = 0, high = n - 1, i, j;
    double before = 0; /* sum of the weights of c[0..low), below `wanted` */
    while (low < high) {
        double part_weight = 0;
        candidates_partition(c, low, high, &i, &j);
        for (int32_t m = low; m <= j; m++) part_weight += (double)w[c[m].id];
        if (before + part_weight >= wanted) {
            high = j;
            continue;
        }
        before += part_weight;
        for (low = j + 1; low < i; low++) {
            before += (double)w[c[low].id];
            if (before >= wanted) return low + 1;
        }
    }
    return MIN(low + 1, n);
}

/* Collect all tokens with a logit >= least as candidates, in the order of their ids. */
static int32_t candidates_gather_from(const struct sampler *s, const float *logits, float least)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (logits[i] >= least) s->candidates[n++] = (struct candidate){ logits[i], i };
    return n;
}

/* Collect the k best tokens as candidates, in any order. At most 4 k candidates are buffered: whenever the
 * buffer is full, all but the k best are dropped, and the k-th sets the new threshold. */
static int32_t candidates_gather_first(const struct sampler *s, const float *logits, int32_t k)
{
    struct candidate *c = s->candidates;
    const int32_t room = k < s->n_vocab / 4 ? 4 * k : s->n_vocab;
    float least = -INFINITY;
    int32_t n = 0, i = 0;
    for (; i < s->n_vocab && n < k; i++) c[n++] = (struct candidate){ logits[i], i };
    for (; i < s->n_vocab; i++) {
        if (!(logits[i] > least)) continue; /* of equal logits the earlier id wins */
        c[n++] = (struct candidate){ logits[i], i };
        if (n < room) continue;
        candidates_select_first(c, n, k);
        n = k;
        least = c[0].logit;
        for (int32_t j = 1; j < k; j++) least = c[j].logit < least ? c[j].logit : least;
    }
    if (n > k) candidates_select_first(c, n, k);
    return MIN(n, k);
}

/* Collect the candidates that top-k and top-p leave, and return their number. */
static int32_t sampler_choose_candidates(struct sampler *s, const float *logits, float most)
{
    struct candidate *c = s->candidates;
    const int32_t all = s->n_vocab;
    const bool some = s->o.top_k > 0 && s->o.top_k < all;
    const double p = (double)s->o.top_p;
    /* min-p compares with the largest logit only, so it can be applied first without changing the result. */
    const float least = s->o.min_p > 0 ? most + logf(s->o.min_p) : -INFINITY;
    int32_t n;
    if (s->o.top_p < 1 && !some) {
        const double wanted = p * logits_weigh(logits, all, most, 1, s->weights);
        float reach = 1;
        while (reach < 128 && weights_sum_from(logits, s->weights, all, most - reach) < wanted * 1.0001)
            reach *= 1.5f;
        n = candidates_gather_from(s, logits, reach < 128 ? most - reach : -INFINITY);
        n = candidates_select_weight(c, n, s->weights, wanted);
    } else if (some) {
        n = candidates_gather_first(s, logits, s->o.top_k);
        double total = 0;
        for (int32_t i = 0; i < n && s->o.top_p < 1; i++)
            total += (double)(s->weights[c[i].id] = (float)exp((double)(c[i].logit - most)));
        if (s->o.top_p < 1) n = candidates_select_weight(c, n, s->weights, p * total);
    } else {
        return candidates_gather_from(s, logits, least);
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (c[i].logit >= least) c[kept++] = c[i];
    return kept;
}

/* The first index whose cumulative weight exceeds `left`; the last index when rounding leaves none. */
static int32_t weights_walk(const float *w, int32_t n, double left)
{
    enum { AT_ONCE = 256 };
    int32_t from = 0;
    for (; from + AT_ONCE < n; from += AT_ONCE) { /* skip whole runs */
        double run = 0;
        for (int32_t i = from; i < from + AT_ONCE; i++) run += (double)w[i];
        if (left < run) break;
        left -= run;
    }
    for (int32_t i = from; i < n; i++) {
        left -= (double)w[i];
        if (left < 0) return i;
    }
    while (n > 1 && w[n - 1] == 0) n--;
    return n - 1;
}

/* Draw one token by weight, from all or from the candidates. The order of the candidates depends on the
 * logits alone, so the same seed gives the same token. */
static int32_t sampler_draw(struct sampler *s, const float *logits, float most)
{
    const float by = 1 / s->o.temperature;
    if (s->o.top_k == 0 && s->o.top_p >= 1 && s->o.min_p <= 0) {
        const double total = logits_weigh(logits, s->n_vocab, most, by, s->weights);
        return weights_walk(s->weights, s->n_vocab, random_unit(s->state) * total);
    }
    const int32_t n = sampler_choose_candidates(s, logits, most);
    double total = 0;
    for (int32_t i = 0; i < n; i++) {
        s->weights[i] = (float)exp((double)(s->candidates[i].logit - most) / (double)s->o.temperature);
        total += (double)s->weights[i];
    }
    return s->candidates[weights_walk(s->weights, n, random_unit(s->state) * total)].id;
}

int32_t sampler_next(struct sampler *s, const float *logits)
{
    const float *l = sampler_penalize(s, logits);
    int32_t id = logits_greedy(l, s->n_vocab);
    if (id >= 0 && s->o.temperature > 0 && isfinite(l[id])) id = sampler_draw(s, l, l[id]);
    sampler_accept(s, id);
    return id;
}
