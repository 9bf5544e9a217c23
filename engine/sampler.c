/* Choosing a token. A vocabulary has 10^5 entries and a choice needs a few hundred of them at most, so
 * nothing here sorts it whole: candidates are selected first, then only they are ordered. */
#include "engine/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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
    double *weights;              /* [n_vocab] of the candidates, not normalized */
    float *penalized;             /* [n_vocab] */
    uint32_t *stamps, stamp;      /* [n_vocab] which tokens this round's penalty has met */
    int32_t *recent;              /* [repeat_last] ring */
    int recent_count, recent_next;
    uint64_t state[4];
};

/* ---------------------------------------------------------------- random numbers: xoshiro256** */

static uint64_t rotate(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

static uint64_t random_next(uint64_t s[4])
{
    const uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

/* Spread one number over the state (splitmix64): neighbouring seeds must not give neighbouring draws. */
static void random_seed(uint64_t s[4], uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15ULL;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        s[i] = z ^ (z >> 31);
    }
}

/* [0, 1) */
static double random_unit(uint64_t s[4])
{
    return (double)(random_next(s) >> 11) * 0x1p-53;
}

/* ---------------------------------------------------------------- opening */

static enum err_code check_options(const struct sampler_options *o, int32_t n_vocab, struct err *why)
{
    if (n_vocab < 1) return err_set(why, ERR_USAGE, "a vocabulary of %d tokens cannot be sampled", n_vocab);
    if (!(o->temperature >= 0) || !isfinite(o->temperature))
        return err_set(why, ERR_USAGE, "temperature %g: want 0 (greedy) or more", (double)o->temperature);
    if (o->top_k < 0) return err_set(why, ERR_USAGE, "top-k %d: want 0 (off) or more", o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return err_set(why, ERR_USAGE, "top-p %g: want more than 0, at most 1 (off)", (double)o->top_p);
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return err_set(why, ERR_USAGE, "min-p %g: want 0 (off) to 1", (double)o->min_p);
    if (!(o->repeat_penalty > 0) || !isfinite(o->repeat_penalty))
        return err_set(why, ERR_USAGE, "repeat penalty %g: want more than 0, 1 is off",
                       (double)o->repeat_penalty);
    if (o->repeat_last < 0 || o->repeat_last > 1 << 24)
        return err_set(why, ERR_USAGE, "repeat window %d: want 0 to %d tokens", o->repeat_last, 1 << 24);
    return ERR_OK;
}

enum err_code sampler_open(struct sampler **out, const struct sampler_options *o, int32_t n_vocab,
                           struct err *why)
{
    *out = NULL;
    enum err_code rc = check_options(o, n_vocab, why);
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

/* Tokens seen lately lose: a positive logit shrinks, a negative one grows, once however often they came. */
static const float *penalize(struct sampler *s, const float *logits)
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

/* The largest, the first of equals; -1 when any is NaN or none is above minus infinity. */
static int32_t greedy(const float *logits, int32_t n)
{
    int32_t best = -1;
    float most = -INFINITY;
    bool bad = false;
    for (int32_t i = 0; i < n; i++) {
        bad |= isnan(logits[i]);
        if (logits[i] > most) {
            most = logits[i];
            best = i;
        }
    }
    return bad ? -1 : best;
}

/* Total order: larger logits first, of equals the smaller id. */
static bool ahead(struct candidate a, struct candidate b)
{
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

static int compare(const void *a, const void *b)
{
    return ahead(*(const struct candidate *)a, *(const struct candidate *)b) ? -1 : 1;
}

static void swap(struct candidate *a, struct candidate *b)
{
    const struct candidate t = *a;
    *a = *b;
    *b = t;
}

/* Bring the k first of c[0..n) to the front, in any order (quickselect, median of three). */
static void select_first(struct candidate *c, int32_t n, int32_t k)
{
    int32_t low = 0, high = n - 1;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (ahead(c[middle], c[low])) swap(&c[middle], &c[low]);
        if (ahead(c[high], c[low])) swap(&c[high], &c[low]);
        if (ahead(c[high], c[middle])) swap(&c[high], &c[middle]);
        const struct candidate pivot = c[middle];
        int32_t i = low, j = high;
        while (i <= j) {
            while (ahead(c[i], pivot)) i++;
            while (ahead(pivot, c[j])) j--;
            if (i <= j) swap(&c[i++], &c[j--]);
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            return;
    }
}

/* Candidates in order, as few as top-k and top-p need; how many. */
static int32_t choose_candidates(struct sampler *s, const float *logits, float most)
{
    enum { FIRST_STEP = 256 };
    struct candidate *c = s->candidates;
    int32_t n = 0;
    /* min-p compares with the largest only; which candidates are left does not change what it means. */
    const float least = s->o.min_p > 0 ? most + logf(s->o.min_p) : -INFINITY;
    for (int32_t i = 0; i < s->n_vocab; i++) c[n++] = (struct candidate){ logits[i], i };
    const int32_t limit = s->o.top_k > 0 ? MIN(s->o.top_k, n) : n;
    int32_t ordered = 0, kept = limit;
    if (limit < n) {
        select_first(c, n, limit);
        n = limit;
    }
    if (s->o.top_p < 1) {
        double total = 0, sum = 0;
        for (int32_t i = 0; i < n; i++) total += exp((double)(c[i].logit - most));
        kept = 0;
        while (kept < n && sum < (double)s->o.top_p * total) {
            if (kept == ordered) { /* order a few more; most distributions are done with the first step */
                const int32_t step = MIN(n - ordered, MAX(FIRST_STEP, ordered));
                select_first(c + ordered, n - ordered, step);
                qsort(c + ordered, (size_t)step, sizeof *c, compare);
                ordered += step;
            }
            sum += exp((double)(c[kept++].logit - most));
        }
    }
    n = 0;
    for (int32_t i = 0; i < kept; i++)
        if (c[i].logit >= least) c[n++] = c[i];
    return n;
}

/* One of the candidates by weight. The order they lie in follows from the logits alone, so a seed means one
 * answer. */
static int32_t draw(struct sampler *s, int32_t n, float most)
{
    double total = 0;
    for (int32_t i = 0; i < n; i++) {
        s->weights[i] = exp((double)(s->candidates[i].logit - most) / (double)s->o.temperature);
        total += s->weights[i];
    }
    double left = random_unit(s->state) * total;
    for (int32_t i = 0; i < n; i++) {
        left -= s->weights[i];
        if (left < 0) return s->candidates[i].id;
    }
    return s->candidates[n - 1].id; /* rounding used up the last grain */
}

int32_t sampler_next(struct sampler *s, const float *logits)
{
    const float *l = penalize(s, logits);
    int32_t id = greedy(l, s->n_vocab);
    if (id >= 0 && s->o.temperature > 0 && isfinite(l[id])) {
        const int32_t n = choose_candidates(s, l, l[id]);
        id = draw(s, n, l[id]);
    }
    sampler_accept(s, id);
    return id;
}
