/* Reads and writes how inputs of matrices are quantized. The file is untrusted: sizes, indexes and numbers
 * are checked here once, so that the kernels need not check them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

static const char KEY[] = "qdyno.act", KEY_FORMAT[] = "qdyno.act.format",
                  KEY_THRESHOLD[] = "qdyno.act.threshold", KEY_LIMIT[] = "qdyno.act.limit";

bool act_is_key(struct gguf_string key)
{
    const char *const KEYS[] = { KEY, KEY_FORMAT, KEY_THRESHOLD, KEY_LIMIT };
    for (size_t i = 0; i < COUNT_OF(KEYS); i++)
        if (gguf_string_is(key, KEYS[i])) return true;
    return false;
}

enum err_code act_put(struct gguf_writer *w, const struct act_scheme *act, const struct format *format)
{
    if (act->kind == INPUT_FREE || !format) return ERR_OK;
    enum err_code rc = gguf_writer_put_string(w, KEY, input_kind_name(act->kind));
    if (!rc) rc = gguf_writer_put_string(w, KEY_FORMAT, format->name);
    if (!rc && act->threshold > 0) rc = gguf_writer_put_f32(w, KEY_THRESHOLD, act->threshold);
    if (!rc && act->limit > 0) rc = gguf_writer_put_f32(w, KEY_LIMIT, act->limit);
    return rc;
}

/* ---------------------------------------------------------------- reading */

static enum err_code kind_read(struct input_scheme *s, const struct gguf *g, const struct gguf_tensor *matrix,
                               struct err *why)
{
    const struct gguf_string name = gguf_get_string(g, KEY), format = gguf_get_string(g, KEY_FORMAT);
    if (!name.data || (format.data && !gguf_string_is(format, matrix->format->name))) return ERR_OK;
    for (int k = INPUT_FREE + 1; k < INPUT_KIND_COUNT && !s->kind; k++)
        if (gguf_string_is(name, input_kind_name((enum input_kind)k))) s->kind = (enum input_kind)k;
    if (!s->kind)
        return err_set(why, ERR_FORMAT,
                       "%s is '%.*s', which this program does not know; it needs a newer one", KEY,
                       (int)MIN(name.len, 40), name.data);
    s->threshold = (float)gguf_get_num(g, KEY_THRESHOLD, 0);
    s->limit = (float)gguf_get_num(g, KEY_LIMIT, 0);
    if (!(s->threshold >= 0) || !(s->limit >= 0))
        return err_set(why, ERR_FORMAT, "%s: its threshold or limit is not a positive number", KEY);
    return ERR_OK;
}

/* Read a companion tensor as f32. *values owned; NULL: the matrix has none. want: the expected size, -1: any.
 */
static enum err_code companion_read(float **values, int64_t *size, const struct gguf *g,
                                    const struct gguf_tensor *matrix, enum companion_kind what, int64_t want,
                                    struct err *why)
{
    const struct gguf_tensor *t = companion_find(g, matrix->name, what);
    *values = NULL;
    if (!t) return ERR_OK;
    *size = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    if (t->format != companion_format(what) || (want >= 0 && *size != want))
        return err_set(why, ERR_FORMAT,
                       "tensor '%s', which belongs to matrix '%s': expected %lld values of %s, found %lld of "
                       "%s; the file is damaged or its writer is faulty: download or quantize it again",
                       t->name, matrix->name, (long long)(want >= 0 ? want : *size),
                       companion_format(what)->name, (long long)*size, t->format->name);
    *values = malloc((size_t)*size * sizeof(float));
    if (!*values) return err_set(why, ERR_NOMEM, "out of memory for tensor '%s'", t->name);
    t->format->decode(gguf_tensor_data(t), *values, *size);
    for (int64_t i = 0; i < *size; i++)
        if (!isfinite((*values)[i]))
            return err_set(why, ERR_FORMAT, "tensor '%s': value %lld is not a finite number", t->name,
                           (long long)i);
    return ERR_OK;
}

/* Convert the companion tensor `list` of a matrix to column numbers: whole numbers from 0 to below - 1, each
 * at most once. *out owned. */
static enum err_code indexes_from(const int32_t **out, const float *values, int64_t n, int64_t below,
                                  const char *matrix, enum companion_kind list, struct err *why)
{
    char name[160];
    int32_t *index = malloc((size_t)n * sizeof *index + 1);
    bool *seen = calloc((size_t)below, sizeof *seen);
    enum err_code rc = index && seen ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for '%s'", matrix);
    for (int64_t i = 0; i < n && !rc; i++) {
        const float v = values[i];
        const bool valid = v >= 0 && v < (float)below && v == floorf(v);
        if (!valid || seen[(int64_t)v])
            rc = err_set(
                why, ERR_FORMAT,
                "tensor '%s': value %lld is %g, which %s; expected different whole numbers from 0 to "
                "%lld (columns of '%s')",
                companion_name(matrix, list, name, sizeof name), (long long)i, (double)v,
                valid ? "occurs twice" : "is no column", (long long)below - 1, matrix);
        if (rc) break;
        seen[(int64_t)v] = true;
        index[i] = (int32_t)v;
    }
    free(seen);
    *out = index;
    return rc;
}

static enum err_code order_read(struct input_scheme *s, const struct gguf *g, const struct gguf_tensor *m,
                                struct err *why)
{
    float *values;
    int64_t n = 0;
    enum err_code rc = companion_read(&values, &n, g, m, COMPANION_ORDER, m->shape[0], why);
    if (!rc && values) rc = indexes_from(&s->order, values, n, m->shape[0], m->name, COMPANION_ORDER, why);
    free(values);
    if (!rc)
        rc = companion_read(&values, &n, g, m, COMPANION_DIVISORS, m->shape[0], why);
    else
        return rc;
    s->divide = values;
    for (int64_t i = 0; values && i < n && !rc; i++)
        if (values[i] == 0)
            rc = err_set(why, ERR_FORMAT, "tensor '%s': a divisor of its inputs is 0", m->name);
    return rc;
}

static enum err_code static_read(struct input_scheme *s, const struct gguf *g, const struct gguf_tensor *m,
                                 struct err *why)
{
    float *values;
    int64_t n = 0;
    enum err_code rc = companion_read(&values, &n, g, m, COMPANION_INPUT_SCALE, 3, why);
    if (!rc && !values)
        rc = err_set(why, ERR_FORMAT, "tensor '%s': static activation quantization without a scale", m->name);
    if (!rc && (!(values[0] > 0) || !(values[2] >= 1 && values[2] <= 255) ||
                !(values[1] >= 0 && values[1] <= values[2])))
        rc = err_set(why, ERR_FORMAT,
                     "tensor '%s': input scale %g, zero point %g and largest code %g are out of range",
                     m->name, (double)values[0], (double)values[1], (double)values[2]);
    if (!rc) {
        s->scale = values[0];
        s->zero = (int)values[1];
        s->most = (int)values[2];
    }
    free(values);
    return rc;
}

static enum err_code outliers_read(struct input_scheme *s, const struct gguf *g, const struct gguf_tensor *m,
                                   struct err *why)
{
    const struct gguf_tensor *weights = companion_find(g, m->name, COMPANION_OUTLIER_WEIGHTS);
    float *values;
    int64_t n = 0;
    enum err_code rc = companion_read(&values, &n, g, m, COMPANION_OUTLIERS, -1, why);
    if (!rc && values &&
        (!weights || weights->format != companion_format(COMPANION_OUTLIER_WEIGHTS) ||
         weights->bytes != n * m->shape[1] * 2))
        rc = err_set(why, ERR_FORMAT, "tensor '%s': %lld outlier columns without their weights", m->name,
                     (long long)n);
    if (!rc && values)
        rc = indexes_from(&s->outliers, values, n, m->shape[0], m->name, COMPANION_OUTLIERS, why);
    for (int64_t i = 1; i < n && !rc; i++)
        if (s->outliers[i] <= s->outliers[i - 1])
            rc = err_set(why, ERR_FORMAT, "tensor '%s': outlier columns are not in ascending order", m->name);
    if (!rc && values) {
        s->outlier_count = (int)n;
        s->outlier_weights = (const uint16_t *)(const void *)gguf_tensor_data(weights);
    }
    free(values);
    return rc;
}

enum err_code act_read(struct input_scheme **out, const struct gguf *g, const struct gguf_tensor *matrix,
                       struct err *why)
{
    struct input_scheme *s = calloc(1, sizeof *s);
    *out = s;
    if (!s) return err_set(why, ERR_NOMEM, "out of memory for tensor '%s'", matrix->name);
    enum err_code rc = kind_read(s, g, matrix, why);
    if (!rc) rc = order_read(s, g, matrix, why);
    if (!rc && (s->kind == INPUT_INT8_STATIC || s->kind == INPUT_FP8_STATIC))
        rc = static_read(s, g, matrix, why);
    if (!rc && s->kind == INPUT_INT8_OUTLIERS) rc = outliers_read(s, g, matrix, why);
    if (!rc && (s->kind || s->order || s->divide)) return ERR_OK;
    act_free(s);
    *out = NULL;
    return rc;
}

enum input_kind act_kind(const struct gguf *g, const struct gguf_tensor *matrix)
{
    struct input_scheme s = { 0 };
    return kind_read(&s, g, matrix, NULL) ? INPUT_FREE : s.kind;
}

void act_free(struct input_scheme *s)
{
    if (!s) return;
    free((void *)s->order);
    free((void *)s->divide);
    free((void *)s->outliers);
    free(s);
}
