/* moments.c - see moments.h. */
#include "engine/eval/moments.h"

#include <math.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- one position */

static int64_t top(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

double position_surprise(const float *logits, int64_t n, int32_t id)
{
    const double most = (double)logits[top(logits, n)];
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return log(sum) - ((double)logits[id] - most);
}

/* sum p ln(p/q) = (sum e^a (a - b)) / sum e^a + ln(sum e^b) - ln(sum e^a), a and b being the logits below
 * their maxima: one pass, and equal rows cancel exactly. */
struct position position_compare(const float *reference, const float *candidate, int64_t n, int32_t id)
{
    const int64_t top_a = top(reference, n), top_b = top(candidate, n);
    const double most_a = (double)reference[top_a], most_b = (double)candidate[top_b];
    double sum_a = 0, sum_b = 0, moment = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)reference[i] - most_a, b = (double)candidate[i] - most_b, e = exp(a);
        sum_a += e;
        sum_b += exp(b);
        if (e != 0) moment += e * (a - b); /* NAN passes; what is impossible under p costs nothing */
    }
    const double log_a = log(sum_a), log_b = log(sum_b), kld = moment / sum_a + (log_b - log_a);
    return (struct position){ .kld = kld < 0 ? 0 : kld, /* rounding only; NAN stays */
                              .nll_reference = log_a - ((double)reference[id] - most_a),
                              .nll_candidate = log_b - ((double)candidate[id] - most_b),
                              .same_top = top_a == top_b };
}

/* ---------------------------------------------------------------- windows */

void clustered_add(struct clustered *c, double window_mean)
{
    const double off = window_mean - c->mean;
    c->mean += off / (double)++c->windows;
    c->squares += off * (window_mean - c->mean);
}

double clustered_se(const struct clustered *c)
{
    const double n = (double)c->windows;
    return c->windows < 2 ? NAN : sqrt(c->squares / (n - 1) / n);
}

void nll_add(struct nll_moments *m, double nll)
{
    m->open += nll;
    m->squares += nll * nll;
}

void nll_close_window(struct nll_moments *m, int scored)
{
    clustered_add(&m->nll, m->open / scored);
    m->open = 0;
}

void nll_finish(struct perplexity *out, const struct nll_moments *m, int scored_per_window)
{
    const double mean = m->nll.mean;
    *out = (struct perplexity){ .nll = mean,
                                .ppl = exp(mean),
                                .nll_se = clustered_se(&m->nll),
                                .chunks = m->nll.windows,
                                .scored = m->nll.windows * scored_per_window };
    const double n = (double)out->scored;
    out->ppl_se = out->ppl * out->nll_se;
    out->ppl_se_token = out->ppl * sqrt(fmax(m->squares / n - mean * mean, 0) / (n - 1));
}

/* ---------------------------------------------------------------- pairs */

enum err_code divergence_moments_init(struct divergence_moments *m, int64_t positions, struct err *why)
{
    *m = (struct divergence_moments){ .cap = positions };
    m->klds = calloc((size_t)positions, sizeof *m->klds);
    return m->klds ? ERR_OK
                   : err_set(why, ERR_NOMEM, "no memory for the divergences of %lld positions",
                             (long long)positions);
}

void divergence_moments_done(struct divergence_moments *m)
{
    free(m->klds);
    m->klds = NULL;
}

void divergence_add(struct divergence_moments *m, const struct position *p)
{
    m->klds[m->n++] = p->kld;
    m->open_kld += p->kld;
    m->open_same += p->same_top;
    m->open_ratio += p->nll_candidate - p->nll_reference;
    nll_add(&m->reference, p->nll_reference);
    nll_add(&m->candidate, p->nll_candidate);
}

void divergence_close_window(struct divergence_moments *m, int scored)
{
    clustered_add(&m->kld, m->open_kld / scored);
    clustered_add(&m->same_top, m->open_same / scored);
    clustered_add(&m->log_ratio, m->open_ratio / scored);
    m->open_kld = m->open_same = m->open_ratio = 0;
    nll_close_window(&m->reference, scored);
    nll_close_window(&m->candidate, scored);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Linear between neighbours. With 99 % confidence the largest of n values lies above quantile p from
 * n >= ln(0.01)/ln(p) on; fewer would only repeat their maximum. */
static double quantile(const double *sorted, int64_t n, double p)
{
    if ((double)n < ceil(log(0.01) / log(p) - 1e-9)) return NAN;
    const double at = p * (double)(n - 1);
    const int64_t low = (int64_t)at;
    if (low + 1 >= n || sorted[low] == sorted[low + 1]) return sorted[low];
    return sorted[low] + (at - (double)low) * (sorted[low + 1] - sorted[low]);
}

/* Wilson's interval, at the number of independent positions that would have this standard error. An error of
 * 0 where all agree says nothing about how independent they are: windows are then what is counted. */
static void top1_interval(struct divergence *out)
{
    const double z = 1.959963984540054, p = out->top1_ratio, se = out->top1_se, spread = p * (1 - p);
    double n = (double)out->candidate.scored;
    out->top1_lower = out->top1_upper = NAN;
    if (isnan(se)) return;
    if (se > 0) n = fmin(spread / (se * se), n);
    if (se == 0 && spread == 0) n = (double)out->candidate.chunks;
    const double middle = (p + z * z / (2 * n)) / (1 + z * z / n);
    const double half = z / (1 + z * z / n) * sqrt(spread / n + z * z / (4 * n * n));
    out->top1_lower = fmax(middle - half, 0);
    out->top1_upper = fmin(middle + half, 1);
}

void divergence_finish(struct divergence *out, struct divergence_moments *m, int scored_per_window)
{
    qsort(m->klds, (size_t)m->n, sizeof *m->klds, ascending);
    *out = (struct divergence){ .kld_mean = m->kld.mean,
                                .kld_se = clustered_se(&m->kld),
                                .kld_p50 = quantile(m->klds, m->n, 0.50),
                                .kld_p90 = quantile(m->klds, m->n, 0.90),
                                .kld_p99 = quantile(m->klds, m->n, 0.99),
                                .kld_max = m->klds[m->n - 1],
                                .top1_ratio = m->same_top.mean,
                                .top1_se = clustered_se(&m->same_top),
                                .log_ratio = m->log_ratio.mean,
                                .log_ratio_se = clustered_se(&m->log_ratio) };
    nll_finish(&out->reference, &m->reference, scored_per_window);
    nll_finish(&out->candidate, &m->candidate, scored_per_window);
    top1_interval(out);
}
