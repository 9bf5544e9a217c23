/* engine/quant/gptq.h - GPTQ on matrices in memory: codes chosen one input after the other, each one's
 * rounding error made up for by the inputs still to come, as far as the calibration text says they move
 * together.
 *
 * Source: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
 * Transformers", 2022; parameters and grids as in AutoGPTQ and GPTQModel. */
#ifndef QDYNO_ENGINE_QUANT_GPTQ_H
#define QDYNO_ENGINE_QUANT_GPTQ_H

#include "engine/quant/linear_algebra.h"
#include "kernels/kernels.h"

struct gptq_options {
    int bits;                   /* 2, 3, 4, 8 */
    int64_t group_size;         /* inputs under one scale; -1: all of a row */
    double damp_percent;        /* this share of the diagonal's mean is added to it */
    double damp_auto_increment; /* added to damp_percent, again and again, while the factorization fails; 0:
                                   give up */
    double mse;           /* > 0: scales by a search for the least sum |error|^mse; 2.4 is the reference's */
    int64_t blocksize;    /* inputs whose corrections are applied together; no other result, other speed */
    bool sym;             /* zero point in the middle */
    bool desc_act;        /* inputs in the order of falling diagonals */
    bool static_groups;   /* scales from the weights as they came, groups of neighbours whatever the order */
    bool act_group_aware; /* the order falls inside groups and from group to group; not with desc_act */
    bool half_scales;     /* scales as f16 stores them: errors of that rounding are made up for, too */
};

/* ERR_USAGE naming the parameter, its value and what it may be. */
enum err_code gptq_check(const struct gptq_options *o, int64_t cols, struct err *why);

/* What matrices with the same input and options share: the order of the inputs and the factor of the inverse.
 */
struct gptq_factor;

/* hessian [cols][cols]: sum over samples of x x^T times anything (linear_gram_add); the lower triangle is
 * read. *out owned: gptq_factor_free. Takes 8 cols^2 bytes. Errors: ERR_USAGE (options), ERR_FORMAT (NaN,
 * infinity, a negative or an all-zero diagonal, or no factorization with damp_percent up to 1), ERR_NOMEM. */
enum err_code gptq_factor_new(struct gptq_factor **out, struct linear_algebra *la, const float *hessian,
                              int64_t cols, const struct gptq_options *o, struct err *why);
void gptq_factor_free(struct gptq_factor *f);          /* NULL is fine */
double gptq_factor_damp(const struct gptq_factor *f);  /* damp_percent as it was in the end */
int64_t gptq_factor_dead(const struct gptq_factor *f); /* inputs that were always 0 */
const int32_t *
gptq_factor_order(const struct gptq_factor *f); /* [cols]: stored input i is input order[i]; NULL: as it is */

/* The result: weight w[row][order[i]] is scales[row][i / group] * (codes[row][i] - zeros[row][i / group]). */
struct gptq_codes {
    uint8_t *codes; /* [rows][cols], in stored order */
    float *scales;  /* [rows][cols / group] */
    float *zeros;   /* [rows][cols / group], whole numbers */
    double loss;    /* sum of squared corrected errors: how much the outputs moved, but for the damping */
};

/* weights [rows][cols] become those the codes stand for, in their own order (dead inputs' too: 0). The
 * buffers of out are the caller's. Errors: ERR_FORMAT (NaN, or beyond 1e30, with its index), ERR_NOMEM. */
enum err_code gptq_solve(const struct gptq_factor *f, float *weights, int64_t rows, struct gptq_codes *out,
                         struct err *why);

#endif
