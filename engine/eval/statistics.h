/* engine/eval/statistics.h - from two rows of logits to a divergence with its error: pure arithmetic, no
 * model.
 *
 * Tokens of one window share their context and are no independent observations: every standard error here
 * counts windows. All windows score equally many positions, so the mean over windows of their means is the
 * mean, and SE^2 = C/(C-1) sum_c (sum_{t in c} (x_t - mean))^2 / N^2 is the variance of window means over C.
 */
#ifndef QDYNO_ENGINE_EVAL_MOMENTS_H
#define QDYNO_ENGINE_EVAL_MOMENTS_H

#include "engine/eval/eval.h"

/* What one position says. Softmax in double precision. */
struct position {
    double kld; /* >= 0; infinite where q is 0 and p is not; NAN from logits that are NAN */
    double nll_reference, nll_candidate; /* of `id` */
    bool same_top;
    bool reference_right, candidate_right; /* `id` is the most likely one (of equals: the first) */
};
/* reference, candidate [n]; 0 <= id < n. Equal rows give a kld of exactly 0. */
struct position position_compare(const float *reference, const float *candidate, int64_t n, int32_t id);

/* -ln p of `id` under softmax(logits). */
double position_surprise(const float *logits, int64_t n, int32_t id);

/* Mean and variance of window means as they come (Welford: a small spread of large means keeps its digits).
 */
struct clustered {
    int64_t windows;
    double mean, squares;
};
void clustered_add(struct clustered *c, double window_mean);
double clustered_se(const struct clustered *c); /* NAN below two windows */

/* Likelihoods of one model, window by window; `open` is the window being summed. */
struct nll_sums {
    struct clustered nll;
    double open, squares; /* squares: over tokens */
};
void nll_add(struct nll_sums *m, double nll);
void nll_close_window(struct nll_sums *m, int scored);
void nll_finish(struct perplexity *out, const struct nll_sums *m, int scored_per_window);

struct divergence_sums {
    struct nll_sums reference, candidate;
    struct clustered kld, same_top, log_ratio, reference_right, candidate_right, change;
    double open_kld, open_same, open_ratio;
    int64_t open_reference_right, open_candidate_right, only_reference_right, only_candidate_right;
    struct clustered depth[DEPTHS];
    double open_depth[DEPTHS];
    int scored, open_at; /* positions of a window, and of the open one so far */
    double *klds;        /* [n] of every position, for the quantiles; owned: divergence_sums_done */
    int64_t n, cap;
};
/* Room for `windows` of `scored` positions each. ERR_NOMEM. */
enum err_code divergence_sums_init(struct divergence_sums *m, int64_t windows, int scored, struct err *why);
void divergence_sums_done(struct divergence_sums *m);
void divergence_add(struct divergence_sums *m, const struct position *p);
void divergence_close_window(struct divergence_sums *m);
/* Sorts klds. At least one closed window; `first` is the position in a window of the first scored one. */
void divergence_finish(struct divergence *out, struct divergence_sums *m, int first);

/* The first of `scored` positions that belongs to depth piece i; i == DEPTHS: scored. */
int depth_begin(int scored, int i);

/* same[prompts]: tokens before the first difference; -1: none within `limit`. Sorts. */
void greedy_divergence_finish(struct greedy_divergence *out, int *same, int prompts, int limit);

#endif
