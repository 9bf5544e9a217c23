/* Statistics of predictions; see statistics.h for the formulas. */
#include "engine/eval/statistics.h"

#include <math.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- one position */

static int64_t logits_argmax(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

double position_surprise(const float *logits, int64_t n, int32_t id)
{
    const double most = (double)logits[logits_argmax(logits, n)];
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return log(sum) - ((double)logits[id] - most);
}

/* With a and b the logits minus their maxima: sum p ln(p/q) = (sum e^a (a - b)) / sum e^a + ln(sum e^b) -
 * ln(sum e^a). This needs one pass, and equal rows give exactly 0. */
struct position position_compare(const float *reference, const float *candidate, int64_t n, int32_t id)
{
    const int64_t top_a = logits_argmax(reference, n), top_b = logits_argmax(candidate, n);
    const double most_a = (double)reference[top_a], most_b = (double)candidate[top_b];
    double sum_a = 0, sum_b = 0, weighted = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)reference[i] - most_a, b = (double)candidate[i] - most_b, e = exp(a);
        sum_a += e;
        sum_b += exp(b);
        if (e != 0) weighted += e * (a - b); /* NAN propagates; ids with p = 0 add nothing */
    }
    const double log_a = log(sum_a), log_b = log(sum_b), kld = weighted / sum_a + (log_b - log_a);
    return (struct position){ .kld = kld < 0 ? 0 : kld, /* negative only by rounding; NAN stays */
                              .nll_reference = log_a - ((double)reference[id] - most_a),
                              .nll_candidate = log_b - ((double)candidate[id] - most_b),
                              .same_top = top_a == top_b,
                              .reference_right = top_a == id,
                              .candidate_right = top_b == id };
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

void nll_add(struct nll_sums *m, double nll)
{
    m->open += nll;
    m->squares += nll * nll;
}

void nll_close_window(struct nll_sums *m, int scored)
{
    clustered_add(&m->nll, m->open / scored);
    m->open = 0;
}

void nll_finish(struct perplexity *out, const struct nll_sums *m, int scored_per_window)
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

/* ---------------------------------------------------------------- comparisons */

enum err_code divergence_sums_init(struct divergence_sums *m, int64_t windows, int scored, struct err *why)
{
    *m = (struct divergence_sums){ .cap = windows * scored, .scored = scored };
    m->klds = calloc((size_t)m->cap, sizeof *m->klds);
    return m->klds ? ERR_OK
                   : err_set(why, ERR_NOMEM, "out of memory for the divergences of %lld positions",
                             (long long)m->cap);
}

void divergence_sums_done(struct divergence_sums *m)
{
    free(m->klds);
    m->klds = NULL;
}

int depth_begin(int scored, int i)
{
    return (int)((int64_t)scored * i / DEPTHS);
}

static int depth_of(int scored, int at)
{
    int i = DEPTHS - 1;
    while (depth_begin(scored, i) > at) i--;
    return i;
}

void divergence_add(struct divergence_sums *m, const struct position *p)
{
    m->klds[m->n++] = p->kld;
    m->open_kld += p->kld;
    m->open_same += p->same_top;
    m->open_ratio += p->nll_candidate - p->nll_reference;
    m->open_reference_right += p->reference_right;
    m->open_candidate_right += p->candidate_right;
    m->only_reference_right += p->reference_right && !p->candidate_right;
    m->only_candidate_right += p->candidate_right && !p->reference_right;
    m->open_depth[depth_of(m->scored, m->open_at++)] += p->kld;
    nll_add(&m->reference, p->nll_reference);
    nll_add(&m->candidate, p->nll_candidate);
}

void divergence_close_window(struct divergence_sums *m)
{
    const double n = m->scored;
    clustered_add(&m->kld, m->open_kld / n);
    clustered_add(&m->same_top, m->open_same / n);
    clustered_add(&m->log_ratio, m->open_ratio / n);
    clustered_add(&m->reference_right, (double)m->open_reference_right / n);
    clustered_add(&m->candidate_right, (double)m->open_candidate_right / n);
    clustered_add(&m->change, (double)(m->open_candidate_right - m->open_reference_right) / n);
    m->open_kld = m->open_same = m->open_ratio = 0;
    m->open_reference_right = m->open_candidate_right = 0;
    for (int i = 0; i < DEPTHS; i++) {
        const int positions = depth_begin(m->scored, i + 1) - depth_begin(m->scored, i);
        if (positions) clustered_add(&m->depth[i], m->open_depth[i] / positions);
        m->open_depth[i] = 0;
    }
    m->open_at = 0;
    nll_close_window(&m->reference, m->scored);
    nll_close_window(&m->candidate, m->scored);
}

static int double_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Quantile p with linear interpolation. NAN for n < ln(0.01) / ln(p): only from there on does the largest of
 * n values exceed the true quantile with 99 % confidence. */
static double quantile_or_nan(const double *sorted, int64_t n, double p)
{
    if ((double)n < ceil(log(0.01) / log(p) - 1e-9)) return NAN;
    const double at = p * (double)(n - 1);
    const int64_t low = (int64_t)at;
    if (low + 1 >= n || sorted[low] == sorted[low + 1]) return sorted[low];
    return sorted[low] + (at - (double)low) * (sorted[low + 1] - sorted[low]);
}

/* Wilson's interval for a proportion, with the effective number of positions: that many independent ones
 * would have the clustered standard error. If all positions agree, the standard error is 0 and does not tell
 * how independent they are; then the number of windows is used. */
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

/* Compute the mean and standard error of each depth piece. */
static void depth_finish(struct divergence *out, const struct divergence_sums *m, int first)
{
    for (int i = 0; i < DEPTHS; i++) {
        const struct clustered *c = &m->depth[i];
        out->depth[i] = (struct depth){ .from = first + depth_begin(m->scored, i),
                                        .to = first + depth_begin(m->scored, i + 1),
                                        .mean = c->windows ? c->mean : NAN,
                                        .se = clustered_se(c) };
    }
}

void divergence_finish(struct divergence *out, struct divergence_sums *m, int first)
{
    qsort(m->klds, (size_t)m->n, sizeof *m->klds, double_compare);
    *out = (struct divergence){ .kld_mean = m->kld.mean,
                                .kld_se = clustered_se(&m->kld),
                                .kld_p50 = quantile_or_nan(m->klds, m->n, 0.50),
                                .kld_p90 = quantile_or_nan(m->klds, m->n, 0.90),
                                .kld_p99 = quantile_or_nan(m->klds, m->n, 0.99),
                                .kld_max = m->klds[m->n - 1],
                                .top1_ratio = m->same_top.mean,
                                .top1_se = clustered_se(&m->same_top),
                                .log_ratio = m->log_ratio.mean,
                                .log_ratio_se = clustered_se(&m->log_ratio),
                                .only_reference_right = m->only_reference_right,
                                .only_candidate_right = m->only_candidate_right,
                                .accuracy_reference = m->reference_right.mean,
                                .accuracy_candidate = m->candidate_right.mean,
                                .accuracy_change = m->change.mean,
                                .accuracy_change_se = clustered_se(&m->change),
                                .greedy.median = NAN };
    nll_finish(&out->reference, &m->reference, m->scored);
    nll_finish(&out->candidate, &m->candidate, m->scored);
    top1_interval(out);
    depth_finish(out, m, first);
}

/* ---------------------------------------------------------------- greedy continuations */

static int prefix_compare(const void *a, const void *b)
{
    const unsigned x = (unsigned)*(const int *)a,
                   y = (unsigned)*(const int *)b; /* -1, no difference, sorts last */
    return (x > y) - (x < y);
}

void greedy_divergence_finish(struct greedy_divergence *out, int *same, int prompts, int limit)
{
    qsort(same, (size_t)prompts, sizeof *same, prefix_compare);
    *out = (struct greedy_divergence){ .prompts = prompts, .limit = limit, .median = NAN };
    while (out->diverged < prompts && same[out->diverged] >= 0) out->diverged++;
    const int low = (prompts - 1) / 2, high = prompts / 2;
    if (prompts && high < out->diverged) out->median = 0.5 * (same[low] + same[high]);
}
