/* Measures the sensitivity of a model to one matrix: compares it with itself, with that matrix alone in
 * another format. The new bytes are made in memory, bound to the model for one comparison, and then replaced
 * by the original ones. No file is written, so hundreds of matrices can be measured in turn. */
#include <math.h>
#include <stdlib.h>

#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"

/* Encode matrix t in format f into made. Returns the NMSE. row, back [cols]: scratch. */
static double substitution_encode(const struct gguf_tensor *t, const struct format *f, unsigned char *made,
                                  float *row, float *back)
{
    const int64_t cols = t->shape[0], rows = t->shape[1];
    const int64_t from = format_row_bytes(t->format, cols), to = format_row_bytes(f, cols);
    double error = 0, power = 0;
    for (int64_t r = 0; r < rows; r++) {
        format_decode_rows(t->format, gguf_tensor_data(t) + r * from, row, 1, cols);
        format_encode_rows(f, row, made + r * to, 1, cols);
        format_decode_rows(f, made + r * to, back, 1, cols);
        for (int64_t i = 0; i < cols; i++) {
            const double d = (double)back[i] - (double)row[i];
            error += d * d;
            power += (double)row[i] * (double)row[i];
        }
    }
    return power > 0 ? error / power : NAN;
}

enum err_code eval_substitution(struct divergence *out, double *nmse, struct model *reference,
                                struct model *candidate, const struct substitution *s,
                                const struct eval_request *r, struct err *why)
{
    const struct gguf_tensor *t = gguf_tensor_find(model_gguf(candidate), s->tensor);
    if (!t || t->dims != 2)
        return err_set(why, ERR_USAGE, "tensor '%s' is not a matrix of this model", s->tensor);
    if (!s->format->encode || t->shape[0] % s->format->block_weights)
        return err_set(why, ERR_USAGE, "tensor '%s': its rows of %lld values do not fill blocks of %s",
                       s->tensor, (long long)t->shape[0], s->format->name);
    const int64_t bytes = t->shape[1] * format_row_bytes(s->format, t->shape[0]);
    unsigned char *made = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
    float *row = malloc((size_t)t->shape[0] * 2 * sizeof *row);
    if (!made || !row) {
        free(made);
        free(row);
        return err_set(why, ERR_NOMEM, "out of memory for tensor '%s' in another format", s->tensor);
    }
    *nmse = substitution_encode(t, s->format, made, row, row + t->shape[0]);
    enum err_code rc = model_replace_matrix(candidate, s->tensor, s->format, made, why);
    if (!rc) rc = eval_divergence(out, reference, candidate, r, why);
    /* Binding the file's own bytes succeeded before: only memory can fail, and then the model cannot be used
     * any more. */
    struct err back = { 0 };
    const enum err_code bound = model_replace_matrix(candidate, s->tensor, NULL, NULL, &back);
    if (!rc && bound) {
        rc = bound;
        if (why) *why = back;
    }
    free(made);
    free(row);
    return rc;
}
