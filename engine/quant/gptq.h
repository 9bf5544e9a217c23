/* engine/quant/gptq.h - GPTQ for matrices in memory. Internal to engine/quant/.
 *
 * GPTQ quantizes a matrix column by column. After each column it adjusts the columns that are not quantized
 * yet so that they compensate the rounding error, using the second moments of the inputs (the Hessian of the
 * output error).
 * Source: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
 * Transformers", 2022; parameters and quantization grids as in AutoGPTQ and GPTQModel. */
#ifndef QDYNO_ENGINE_QUANT_GPTQ_H
#define QDYNO_ENGINE_QUANT_GPTQ_H

#include "engine/quant/linear_algebra.h"
#include "kernels/kernels.h"

struct gptq_options {
    int bits;                   /* 2, 3, 4, 8 */
    int64_t group_size;         /* inputs that share a scale; -1: the whole row */
    double damp_percent;        /* damping: share of the mean diagonal that is added to the diagonal */
    double damp_auto_increment; /* added to damp_percent until the factorization succeeds; 0: fail */
    double mse;         /* > 0: search scales for the smallest sum |error|^mse (usually 2.4); 0: no search */
    int64_t blocksize;  /* columns whose corrections are applied together; affects speed only */
    bool sym;           /* zero point in the middle of the codes */
    bool desc_act;      /* act-order: quantize columns by decreasing diagonal of the Hessian */
    bool static_groups; /* scales from the original weights; groups are neighbours in any order */
    bool act_group_aware; /* act-order within groups, and of whole groups; excludes desc_act */
    bool half_scales;     /* round scales to f16 first, so that this error is compensated as well */
};

/* Check the options for rows of `cols` weights. ERR_USAGE names the parameter, its value and what it may be.
 */

/* ERR_USAGE naming the parameter, its value and what it may be. */
enum err_code gptq_check(const struct gptq_options *o, int64_t cols, struct err *why);

/* What matrices with the same input and options share: the order of the columns and the Cholesky factor of
 * the inverse Hessian. */
struct gptq_factor;

/* hessian [cols][cols]: sum of x x^T over samples, times any constant (linear_gram_add); only the lower
 * triangle is read. *out is owned: gptq_factor_free; it takes 8 cols^2 bytes. Errors: ERR_USAGE (options),
 * ERR_FORMAT (NaN, infinity, a negative or an all-zero diagonal; not positive definite with damp_percent up
 * to 1), ERR_NOMEM. */
enum err_code gptq_factor_new(struct gptq_factor **out, struct linear_algebra *la, const float *hessian,
                              int64_t cols, const struct gptq_options *o, struct err *why);
void gptq_factor_free(struct gptq_factor *f);         /* NULL is fine */
double gptq_factor_damp(const struct gptq_factor *f); /* damp_percent that was finally used */
/* [cols]: stored column i is input order[i]; NULL: columns are stored in their original order. Borrowed. */
const int32_t *gptq_factor_order(const struct gptq_factor *f);

/* The result: weight w[row][order[i]] is scales[row][i / group] * (codes[row][i] - zeros[row][i / group]). */
struct gptq_codes {
    uint8_t *codes; /* [rows][cols], in the stored order */
    float *scales;  /* [rows][cols / group] */
    float *zeros;   /* [rows][cols / group], whole numbers */
    double loss;    /* sum of squared corrected errors, which estimates the output error (up to damping) */
};

/* Quantize weights [rows][cols], which are replaced by the dequantized values, in their original order
 * (columns of dead inputs: 0). The buffers of `out` are the caller's. Errors: ERR_FORMAT (a weight is NaN or
 * larger than 1e30; names its index), ERR_NOMEM. */
enum err_code gptq_solve(const struct gptq_factor *f, float *weights, int64_t rows, struct gptq_codes *out,
                         struct err *why);

#endif
