/* engine/quant/quanto.h - optimum-quanto's integer groups: a scale, and a shift that maps the smallest weight
 * to code 0. Internal to engine/quant/.
 *
 * Pure functions on matrices in memory; results do not depend on the number of threads. Source:
 * optimum-quanto (Hugging Face), MaxOptimizer and HqqOptimizer. */
#ifndef QDYNO_ENGINE_QUANT_QUANTO_H
#define QDYNO_ENGINE_QUANT_QUANTO_H

#include "base/base.h"

enum quanto_optimizer { QUANTO_MAX, QUANTO_HQQ };

struct quanto_options {
    int bits;  /* 2 or 4 */
    int group; /* number of consecutive weights, at most HQQ_GROUP_MAX */
    enum quanto_optimizer optimizer;
    bool zeropoint; /* shifts are whole multiples of the scale, so that 0 is exactly representable */
    int iters;      /* for QUANTO_HQQ, as the next three */
    double lp_norm, beta, kappa;
};
struct quanto_options quanto_defaults(int bits, int group);

/* Group size that optimum-quanto uses for rows of `cols` weights: 128, or the next smaller multiple of 32
 * that divides; 0: none. */
int quanto_group_size(int64_t cols);

/* A group's weight is scale * code - shift; with `zeropoint`, scale * (code - shift). */
struct quanto_group {
    float scale, shift;
};

/* Find scale and shift of every group of w [n]: groups [n / o->group]; n is a multiple of o->group. Errors:
 * ERR_NOMEM. */
enum err_code quanto_solve(const float *w, int64_t n, const struct quanto_options *o, struct threadpool *pool,
                           struct quanto_group *groups, struct err *why);

#endif
