/* engine/quant/effective.h - the weights that a matrix means: what the model multiplies its inputs with, as
 * f32 in the order of the inputs, whatever the file stores. Internal. */
#ifndef QDYNO_ENGINE_QUANT_EFFECTIVE_H
#define QDYNO_ENGINE_QUANT_EFFECTIVE_H

#include "engine/quant/methods.h"

/* A matrix with the tensors that belong to it: input order, divisors of inputs and outlier columns (struct
 * input_scheme), and the scale beside a matrix (matrix_scale_find). */
struct effective {
    const struct gguf_tensor *matrix;
    int64_t rows, cols;
    struct input_scheme *input; /* NULL: none */
    float *scale;               /* row r is multiplied by scale[r / scale_rows]; NULL: 1 */
    int64_t scale_rows;         /* the rows of the matrix, or of one expert */
};

/* Prepare to read a matrix of file `g`. *out is owned: effective_done, also after an error. Errors:
 * ERR_FORMAT (a tensor that belongs to the matrix has a wrong type, size or value; the format cannot be
 * decoded), ERR_NOMEM. */
enum err_code effective_init(struct effective *out, const struct gguf *g, const struct gguf_tensor *matrix,
                             struct err *why);
void effective_done(struct effective *e); /* accepts {0} */

/* Decode row r into y [cols]. scratch [cols]. Outlier columns have their f16 weights. Pure, any thread. */
void effective_row(const struct effective *e, int64_t r, float *scratch, float *y);

/* Is `name` a tensor that says what a matrix of file `g` means, or how its inputs are quantized, and so is of
 * no use beside the same matrix in floats? Then *matrix is the matrix's name. */
bool effective_is_part(const struct gguf *g, const char *name, char *matrix, size_t size);

#endif
