/* engine/quant/hqq.h - half-quadratic quantization: zero points that make the error sparse, without data.
 *
 * A group's range fixes its scale; its zero point then moves, a few times, to where the errors that are no
 * outliers balance (an lp norm with p < 1 decides what an outlier is). Pure functions on matrices in memory;
 * bytes do not depend on the number of threads. Source: the solver of Badri and Shaji, "Half-Quadratic
 * Quantization of Large Machine Learning Models", as its code has it (beta stays, the last zero is kept). */
#ifndef QDYNO_ENGINE_QUANT_HQQ_H
#define QDYNO_ENGINE_QUANT_HQQ_H

#include "base/base.h"

enum { HQQ_GROUP_MAX = 1024 };

struct hqq_options {
    int bits;  /* 2 .. 8 */
    int group; /* weights that share a scale and a zero: a multiple of 8, at most HQQ_GROUP_MAX */
    int axis;  /* 1: a group is consecutive weights; 0: those whose indexes are equal modulo n / group */
    double lp_norm, beta;
    int iters;
    bool round_zero; /* the first zero is a whole number */
};
/* What the reference takes for this many bits: groups of 64 along axis 1. */
struct hqq_options hqq_defaults(int bits);

/* How a group's weights become codes: code = w * per_unit + zero, so weight = (code - zero) / per_unit. */
struct hqq_group {
    float per_unit, zero;
};

/* Groups of w [n], n a multiple of o->group, into groups [n / o->group]. The iterations end for all groups
 * together, when the mean error of the whole matrix has stopped falling. Errors: ERR_NOMEM. */
enum err_code hqq_solve(const float *w, int64_t n, const struct hqq_options *o, struct threadpool *pool,
                        struct hqq_group *groups, struct err *why);

/* codes [n] in the order of w. */
void hqq_codes(const float *w, int64_t n, const struct hqq_options *o, const struct hqq_group *groups,
               uint8_t *codes);

/* What an error e of one weight keeps once the shrinking step has had its way: sgn(e) * max(|e| -
 * |e|^(lp_norm - 1) / beta, 0). `floor` is the |e| below which that is 0 (shrink_floor): most are. */
float shrink(float e, double lp_norm, double beta);
float shrink_floor(double lp_norm, double beta);

#endif
