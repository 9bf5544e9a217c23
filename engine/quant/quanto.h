/* engine/quant/quanto.h - optimum-quanto's integers in groups: a scale, and a shift that puts the smallest
 * weight on code 0.
 *
 * Pure functions on matrices in memory; bytes do not depend on the number of threads. Source: optimum-quanto,
 * MaxOptimizer and HqqOptimizer. */
#ifndef QDYNO_ENGINE_QUANT_QUANTO_H
#define QDYNO_ENGINE_QUANT_QUANTO_H

#include "base/base.h"

enum quanto_optimizer { QUANTO_MAX, QUANTO_HQQ };

struct quanto_options {
    int bits;  /* 2 or 4 */
    int group; /* consecutive weights, at most HQQ_GROUP_MAX */
    enum quanto_optimizer optimizer;
    bool zeropoint; /* shifts become whole numbers of scales: zero is a code */
    int iters;      /* of QUANTO_HQQ, as the next three */
    double lp_norm, beta, kappa;
};
struct quanto_options quanto_defaults(int bits, int group);

/* The group size quanto takes for rows of `cols` weights: 128, less where that does not divide; 0: none. */
int quanto_group_size(int64_t cols);

/* A group's weight is scale * code - shift; with `zeropoint` scale * (code - shift). */
struct quanto_group {
    float scale, shift;
};

/* Groups of w [n], n a multiple of o->group, into groups [n / o->group]. Errors: ERR_NOMEM. */
enum err_code quanto_solve(const float *w, int64_t n, const struct quanto_options *o, struct threadpool *pool,
                           struct quanto_group *groups, struct err *why);

/* codes [n] in the order of w. */
void quanto_codes(const float *w, int64_t n, const struct quanto_options *o,
                  const struct quanto_group *groups, uint8_t *codes);

#endif
