/* engine/quant/hqq.h - HQQ, half-quadratic quantization: finds zero points without calibration data.
 * Internal.
 *
 * The range of a group fixes its scale. Its zero point is then optimized in a few iterations for a sparse
 * error: a shrinkage operator for the lp norm, p < 1, separates outlier errors, and the zero point moves so
 * that the remaining errors have mean 0. Pure functions on matrices in memory; results do not depend on the
 * number of threads. Source: Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models",
 * 2023, following the published code (beta is constant, the last zero point is kept). */
#ifndef QDYNO_ENGINE_QUANT_HQQ_H
#define QDYNO_ENGINE_QUANT_HQQ_H

#include "base/base.h"

enum { HQQ_GROUP_MAX = 1024 };

struct hqq_options {
    int bits;  /* 2 .. 8 */
    int group; /* weights that share scale and zero point: a multiple of 8, at most HQQ_GROUP_MAX */
    int axis;  /* 1: a group is consecutive weights; 0: weights whose indexes are equal modulo n / group */
    double lp_norm, beta;
    int iters;
    bool round_zero; /* start from a zero point that is a whole number */
};
/* The reference's defaults for this number of bits: groups of 64 along axis 1. */
struct hqq_options hqq_defaults(int bits);

/* How a group's weights become codes: code = w * per_unit + zero, weight = (code - zero) / per_unit. */
struct hqq_group {
    float per_unit, zero;
};

/* Find groups [n / o->group] for w [n]; n is a multiple of o->group. All groups stop iterating together, when
 * the mean error of the matrix no longer falls. Errors: ERR_NOMEM. */
enum err_code hqq_solve(const float *w, int64_t n, const struct hqq_options *o, struct threadpool *pool,
                        struct hqq_group *groups, struct err *why);

/* Shrinkage operator of the lp norm: sgn(e) * max(|e| - |e|^(lp_norm - 1) / beta, 0). shrink_floor: below
 * this |e| the result is 0, which holds for most weights. */
float shrink(float e, double lp_norm, double beta);
float shrink_floor(double lp_norm, double beta);

#endif
