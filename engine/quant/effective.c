#include "engine/quant/effective.h"

#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"

/* Does the architecture itself use this tensor? (Gemma 4 has a scale for each expert: it multiplies outputs.)
 */
static bool architecture_uses(const struct gguf *g, const char *name)
{
    struct model_shape shape;
    enum slot slot;
    int layer;
    if (model_shape_read(&shape, g, NULL)) return false;
    const struct gguf_string arch = { .data = shape.arch, .len = strlen(shape.arch) };
    return arch_slot_find(&layer, &slot, arch_find(arch), &shape, name);
}

/* The scale beside a matrix: one number, or one for each of its experts. */
static enum err_code scale_read(struct effective *e, const struct gguf *g, struct err *why)
{
    const struct gguf_tensor *m = e->matrix, *t = matrix_scale_find(g, m->name);
    if (!t || architecture_uses(g, t->name)) return ERR_OK;
    const int64_t n = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3],
                  experts = m->shape[2] * m->shape[3];
    if (t->format != &FORMATS[FORMAT_F32] || (n != 1 && n != experts))
        return err_set(
            why, ERR_FORMAT,
            "tensor '%s', the scale of '%s': expected 1 or %lld values of f32, found %lld of %s; the "
            "file is damaged or its writer is faulty: download or quantize it again",
            t->name, m->name, (long long)experts, (long long)n, t->format->name);
    e->scale = malloc((size_t)n * sizeof *e->scale);
    if (!e->scale) return err_set(why, ERR_NOMEM, "out of memory for tensor '%s'", t->name);
    memcpy(e->scale, gguf_tensor_data(t), (size_t)n * sizeof *e->scale);
    e->scale_rows = e->rows / n;
    return ERR_OK;
}

enum err_code effective_init(struct effective *out, const struct gguf *g, const struct gguf_tensor *matrix,
                             struct err *why)
{
    *out = (struct effective){ .matrix = matrix,
                               .rows = matrix->shape[1] * matrix->shape[2] * matrix->shape[3],
                               .cols = matrix->shape[0] };
    if (!matrix->format->decode)
        return err_set(why, ERR_FORMAT, "tensor '%s': %s cannot be decoded", matrix->name,
                       matrix->format->name);
    enum err_code rc = act_read(&out->input, g, matrix, why);
    if (!rc) rc = scale_read(out, g, why);
    return rc;
}

void effective_done(struct effective *e)
{
    act_free(e->input);
    free(e->scale);
    *e = (struct effective){ 0 };
}

void effective_row(const struct effective *e, int64_t r, float *scratch, float *y)
{
    const struct gguf_tensor *m = e->matrix;
    const struct input_scheme *in = e->input;
    const int64_t cols = e->cols;
    const bool ordered = in && in->order;
    float *stored = ordered ? scratch : y;
    format_decode_rows(m->format, gguf_tensor_data(m) + r * format_row_bytes(m->format, cols), stored, 1,
                       cols);
    for (int64_t j = 0; ordered && j < cols; j++) y[in->order[j]] = stored[j];
    for (int k = 0; in && k < in->outlier_count; k++)
        y[in->outliers[k]] = f16_to_f32(in->outlier_weights[k * e->rows + r]);
    for (int64_t j = 0; in && in->divide && j < cols; j++) y[j] /= in->divide[j];
    for (int64_t j = 0; e->scale && j < cols; j++) y[j] *= e->scale[r / e->scale_rows];
}

bool effective_is_part(const struct gguf *g, const char *name, char *matrix, size_t size)
{
    if (!companion_is(name)) return matrix_scale_is(name, matrix, size) && !architecture_uses(g, name);
    snprintf(matrix, size, "%.*s", (int)(strrchr(name, '.') - name), name);
    return true;
}
