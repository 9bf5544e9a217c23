/* Which quantization a checkpoint has, and what the readers of its forms share.
 *
 * A form is recognized by the tensors that stand in place of a matrix, because layers that are not quantized
 * occur in every checkpoint. The configuration decides what the tensors do not say. */
#include "engine/import/quantized_internal.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

static const struct {
    const char *method; /* quant_method */
    linear_read_fn *read[4];
} METHODS[] = {
    { "gptq", { gptq_read } },
    { "awq", { awq_read } },
    { "bitsandbytes", { nf4_read, int8_read } },
    { "compressed-tensors", { packed_read, nvfp4_read, rows_read } },
    { "fp8", { fp8_blocks_read } },
    { "hqq", { hqq_read } },
    { "mxfp4", { mxfp4_read } },
};

const json_t *linear_options(const struct checkpoint *c)
{
    const json_t *q = hf_find(c, "quantization_config");
    return q ? q : c->quantize_config;
}

static const char *method_name(const struct checkpoint *c)
{
    const json_t *q = linear_options(c);
    return q ? json_get_str(q, "quant_method", c->quantize_config ? "gptq" : "") : NULL;
}

enum err_code linear_read_config(struct checkpoint *c, struct err *why)
{
    const char *name = method_name(c);
    struct str known = { 0 };
    if (!name) return ERR_OK;
    for (size_t i = 0; i < COUNT_OF(METHODS); i++) {
        if (!strcmp(METHODS[i].method, name)) {
            str_free(&known);
            return ERR_OK;
        }
        str_printf(&known, "%s%s", i ? " " : "", METHODS[i].method);
    }
    const enum err_code rc = err_set(
        why, ERR_FORMAT, "config.json: checkpoints quantized by '%.40s' are not supported; known: %s", name,
        str_text(&known));
    str_free(&known);
    return rc;
}

static void write_numbers(const struct linear *l, int64_t row, unsigned char *to)
{
    l->read_row(l, row, NULL, (float *)(void *)to);
}

/* No format has blocks of this matrix's size: its weights are stored as binary32, so that nothing is lost. */
static void store_numbers(struct linear *l)
{
    l->format = &FORMATS[FORMAT_F32];
    l->write_row = write_numbers;
    l->scale = NULL;
}

enum err_code linear_find(struct linear **out, struct checkpoint *c, const char *name, struct err *why)
{
    const char *method = method_name(c);
    char stem[320];
    *out = NULL;
    if (!method) return ERR_OK;
    const size_t n = strlen(name) - (str_ends(name, ".weight") ? strlen(".weight") : 0);
    snprintf(stem, sizeof stem, "%.*s", (int)n, name);
    for (size_t i = 0; i < COUNT_OF(METHODS); i++)
        for (size_t k = 0; !strcmp(METHODS[i].method, method) && k < COUNT_OF(METHODS[i].read); k++) {
            struct linear l = { .matrices = 1 };
            bool found = false;
            if (!METHODS[i].read[k]) break;
            const enum err_code rc = METHODS[i].read[k](&found, &l, c, stem, why);
            if (rc) return rc;
            if (!found) continue;
            if (l.rows < 1 || l.cols < 1 || l.cols > LINEAR_COLS_MOST)
                return err_set(why, ERR_FORMAT, "a quantized matrix of %lld rows of %lld is out of range",
                               (long long)l.rows, (long long)l.cols);
            if (!l.format || l.cols % l.format->block_weights) store_numbers(&l);
            *out = arena_alloc(&c->parts.memory, sizeof l);
            if (!*out) return err_set(why, ERR_NOMEM, "out of memory for tensors");
            **out = l;
            return ERR_OK;
        }
    return ERR_OK;
}

/* The part that has a row, and the row's number in it. */
static const struct linear *part_of_row(const struct linear *l, int64_t *row)
{
    const int64_t first = l->parts[0]->rows;
    if (*row < first) return l->parts[0];
    *row -= first;
    return l->parts[1];
}

static void joined_write(const struct linear *l, int64_t row, unsigned char *to)
{
    const struct linear *part = part_of_row(l, &row);
    part->write_row(part, row, to);
}

static void joined_read_row(const struct linear *l, int64_t row, uint8_t *codes, float *weights)
{
    const struct linear *part = part_of_row(l, &row);
    part->read_row(part, row, codes, weights);
}

enum err_code linear_find_joined(struct linear **out, struct checkpoint *c, const char *first,
                                 const char *second, struct err *why)
{
    struct linear *a, *b;
    *out = NULL;
    enum err_code rc = linear_find(&a, c, first, why);
    if (!rc) rc = linear_find(&b, c, second, why);
    if (rc || !a || !b) return rc;
    if (a->cols != b->cols || a->format != b->format || a->order || b->order || a->scale || b->scale ||
        a->matrices != 1 || b->matrices != 1)
        return err_set(
            why, ERR_FORMAT,
            "'%.120s' and '%.120s' form one matrix here: expected the same columns, the same format, and no "
            "order or scale of their own",
            first, second);
    *out = arena_alloc(&c->parts.memory, sizeof **out);
    if (!*out) return err_set(why, ERR_NOMEM, "out of memory for tensors");
    **out = (struct linear){ .rows = a->rows + b->rows,
                             .cols = a->cols,
                             .matrices = 1,
                             .format = a->format,
                             .bits = a->bits,
                             .write_row = joined_write,
                             .read_row = joined_read_row,
                             .parts = { a, b } };
    return ERR_OK;
}

bool linear_take(struct st_tensor *out, const struct checkpoint *c, const char *stem, const char *suffix)
{
    char name[400];
    snprintf(name, sizeof name, "%s%s", stem, suffix);
    struct st_tensor *t = checkpoint_find(c, name);
    if (!t) return false;
    t->used = true;
    *out = *t;
    return true;
}

enum err_code linear_expect(const struct st_tensor *t, enum st_type type, int dims, const int64_t *shape,
                            struct err *why)
{
    struct str want = { 0 };
    bool fits = t->data && t->type == type && t->dims == dims && t->count > 0;
    for (int i = 0; i < dims; i++) {
        str_printf(&want, "%s", i ? "," : "");
        if (shape[i] < 0)
            str_append(&want, "n");
        else
            str_printf(&want, "%lld", (long long)shape[i]);
        fits = fits && (shape[i] < 0 || t->shape[i] == shape[i]);
    }
    const enum err_code rc = fits ? ERR_OK
                                  : err_set(why, ERR_FORMAT, "'%.120s': expected %s [%s]%s",
                                            t->name ? t->name : "its scales or zero points",
                                            st_type_name(type), str_text(&want),
                                            !t->data    ? ", the checkpoint has none"
                                            : !t->count ? ", it is empty"
                                                        : "");
    str_free(&want);
    return rc;
}

float linear_number(const struct st_tensor *t, int64_t i)
{
    uint16_t half;
    float v;
    if (t->type == ST_F32) {
        memcpy(&v, t->data + i * 4, sizeof v);
        return v;
    }
    memcpy(&half, t->data + i * 2, sizeof half);
    return t->type == ST_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

enum err_code linear_check_half(const struct st_tensor *t, struct err *why)
{
    if (t->type != ST_F16 && t->type != ST_BF16 && t->type != ST_F32)
        return err_set(why, ERR_FORMAT, "'%.120s': expected F16, BF16 or F32, it has %s", t->name,
                       st_type_name(t->type));
    for (int64_t i = 0; i < t->count; i++) {
        const float v = linear_number(t, i);
        if (!isfinite(v))
            return err_set(why, ERR_FORMAT, "'%.120s': value %lld is not finite", t->name, (long long)i);
        if (f16_to_f32(f16_from_f32(v)) != v)
            return err_set(
                why, ERR_FORMAT,
                "'%.120s': value %lld is %g, which no binary16 holds exactly: a format with wider scales "
                "is not supported",
                t->name, (long long)i, (double)v);
    }
    return ERR_OK;
}
