/* engine/import/quantized.h - matrices of quantized checkpoints, row by row in one of our formats. */
#ifndef QDYNO_ENGINE_IMPORT_QUANTIZED_H
#define QDYNO_ENGINE_IMPORT_QUANTIZED_H

#include "engine/import/checkpoint.h"

struct format;

/* A quantized matrix, or several of the same shape (experts). Codes, scales and zero points go over
 * unchanged. Allocated from the checkpoint's memory. */
struct linear {
    int64_t rows, cols, matrices;
    const struct format *format; /* F32: none of ours has blocks of this size */
    /* Write row `row` (of all matrices together) in `format`. */
    void (*write_row)(const struct linear *l, int64_t row, unsigned char *to);
    /* The same row as the checkpoint stores it: the codes [cols], in the order of `order`, and the weights
     * [cols] computed from them in binary64 and rounded once. codes NULL: not wanted. */
    void (*read_row)(const struct linear *l, int64_t row, uint8_t *codes, float *weights);
    const float *order; /* column i of ours is column order[i] of the checkpoint's; NULL: the same order */
    const float *scale; /* factor of all weights; NULL: 1 */

    /* the checkpoint's tensors, by the method's own meaning */
    struct st_tensor codes, scales, zeros, nested;
    int bits;
    int64_t group;                 /* columns with the same scale */
    bool zero_less_one;            /* zero points are stored minus one */
    bool by_output;                /* codes of consecutive outputs share a word (AWQ) */
    float offset;                  /* of nested scales */
    const int32_t *groups_of;      /* [cols] group of a column of the checkpoint; NULL: column / group */
    const struct linear *parts[2]; /* of linear_find_joined */
};

/* Read how the checkpoint is quantized. ERR_FORMAT: in a way that is not supported, by name. */
enum err_code linear_read_config(struct checkpoint *c, struct err *why);

/* The quantized matrix that the checkpoint has in place of the tensor `name`
 * ("model.layers.0.mlp.up_proj.weight"). *out NULL: it has none, the tensor's numbers are the weights. Marks
 * the tensors that it uses. */
enum err_code linear_find(struct linear **out, struct checkpoint *c, const char *name, struct err *why);

/* The rows of one matrix, then those of another: gate and up, where a program that quantizes stored them
 * apart. *out NULL: the checkpoint does not have both, quantized. ERR_FORMAT: they differ in more than their
 * rows. */
enum err_code linear_find_joined(struct linear **out, struct checkpoint *c, const char *first,
                                 const char *second, struct err *why);

#endif
