/* engine/eval/statistics.h - from logits to divergences and their standard errors: pure arithmetic without a
 * model. Internal to engine/eval/.
 *
 * Tokens of one window share their context, so they are not independent observations: every standard error
 * here is clustered by window. All windows score the same number of positions, so the mean over all positions
 * is the mean of window means, and with C windows of N positions in total SE^2 = C/(C-1) sum_c (sum_{t in c}
 * (x_t - mean))^2 / N^2, which equals the variance of window means divided by C. */
#ifndef QDYNO_ENGINE_EVAL_STATISTICS_H
#define QDYNO_ENGINE_EVAL_STATISTICS_H

#include "engine/eval/eval.h"

/* Comparison of the predictions at one position. Softmax in double precision. */
struct position {
    double kld;                          /* >= 0; infinite where q is 0 and p is not; NAN if a logit is NAN */
    double nll_reference, nll_candidate; /* negative log-likelihood of `id` */
    bool same_top;
    bool reference_right, candidate_right; /* `id` is ranked first (ties: lowest id) */
};
/* reference, candidate: logits [n]; `id`: the text's next token, 0 <= id < n. Equal rows give exactly kld 0.
 */
struct position position_compare(const float *reference, const float *candidate, int64_t n, int32_t id);

/* -ln p of `id` under softmax(logits). */
double position_surprise(const float *logits, int64_t n, int32_t id);

/* Running mean and variance of window means (Welford's algorithm, which is accurate for a small spread around
 * a large mean). */
struct clustered {
    int64_t windows;
    double mean, squares;
};
void clustered_add(struct clustered *c, double window_mean);
double clustered_se(const struct clustered *c); /* standard error; NAN for fewer than two windows */

/* Negative log-likelihoods of one model; `open`: sum over the current window. */
struct nll_sums {
    struct clustered nll;
    double open, squares; /* squares: sum of squares over all tokens */
};
void nll_add(struct nll_sums *m, double nll);
void nll_close_window(struct nll_sums *m, int scored);
void nll_finish(struct perplexity *out, const struct nll_sums *m, int scored_per_window);

/* All figures of a comparison; open_*: sums over the current window. */
struct divergence_sums {
    struct nll_sums reference, candidate;
    struct clustered kld, same_top, log_ratio, reference_right, candidate_right, change;
    double open_kld, open_same, open_ratio;
    int64_t open_reference_right, open_candidate_right, only_reference_right, only_candidate_right;
    struct clustered depth[DEPTHS];
    double open_depth[DEPTHS];
    int scored, open_at; /* scored positions of a window; of the current one so far */
    double *klds;        /* [n]: of every position, for quantiles; owned: divergence_sums_done */
    int64_t n, cap;
};
/* Allocate for `windows` windows of `scored` positions each. ERR_NOMEM. */
enum err_code divergence_sums_init(struct divergence_sums *m, int64_t windows, int scored, struct err *why);
void divergence_sums_done(struct divergence_sums *m);
void divergence_add(struct divergence_sums *m, const struct position *p);
void divergence_close_window(struct divergence_sums *m);
/* Compute the figures; needs at least one closed window. Sorts klds. first: position of a window's first
 * scored token. */
void divergence_finish(struct divergence *out, struct divergence_sums *m, int first);

/* Index of the first scored position in depth piece i; `scored` for i == DEPTHS. */
int depth_begin(int scored, int i);

/* same [prompts]: number of tokens before the first difference, -1: none within `limit`. Sorts same. */
void greedy_divergence_finish(struct greedy_divergence *out, int *same, int prompts, int limit);

#endif
