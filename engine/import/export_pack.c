/* Packs codes, zero points and scales as GPTQ, AWQ and compressed-tensors store them. The readers of
 * linear_groups.c say where each layout comes from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/export_internal.h"
#include "engine/import/quantized_internal.h"
#include "kernels/kernels.h"

/* A quantized matrix in the checkpoint's order of rows and columns. */
struct unpacked {
    int64_t rows, cols, groups;
    int bits;
    uint8_t *code;  /* [rows][cols] */
    float *scale;   /* [rows][groups] */
    uint8_t *zero;  /* [rows][groups] */
    int32_t *group; /* [cols] */
};

static void unpacked_free(struct unpacked *u)
{
    free(u->code);
    free(u->scale);
    free(u->zero);
    free(u->group);
}

static enum err_code unpack(struct unpacked *u, const struct gguf_tensor *t, const int64_t *rows,
                            const float *order, struct err *why)
{
    const struct format *f = t->format;
    const int64_t block = f->block_weights, row_bytes = format_row_bytes(f, t->shape[0]);
    const unsigned char *data = gguf_tensor_data(t);
    *u = (struct unpacked){
        .rows = t->shape[1], .cols = t->shape[0], .groups = t->shape[0] / block, .bits = format_group_bits(f)
    };
    u->code = malloc((size_t)(u->rows * u->cols));
    u->scale = malloc((size_t)(u->rows * u->groups) * sizeof *u->scale);
    u->zero = malloc((size_t)(u->rows * u->groups));
    u->group = malloc((size_t)u->cols * sizeof *u->group);
    if (!u->code || !u->scale || !u->zero || !u->group)
        return err_set(why, ERR_NOMEM, "out of memory to unpack '%s'", t->name);
    for (int64_t i = 0; i < u->cols; i++) u->group[order ? (int64_t)order[i] : i] = (int32_t)(i / block);
    for (int64_t r = 0; r < u->rows; r++) {
        const int64_t row = rows ? rows[r] : r;
        for (int64_t g = 0; g < u->groups; g++) {
            struct group_codes c;
            format_group_unpack(f, data + r * row_bytes + g * f->block_bytes, &c);
            u->scale[row * u->groups + g] = c.scale;
            if (!(c.zero >= 0 && c.zero < 1 << u->bits) || c.zero != truncf(c.zero))
                return err_set(
                    why, ERR_USAGE,
                    "tensor '%s' has a zero point of %g, expected a whole number from 0 to %d: choose a "
                    "method with whole zero points, such as gptq or awq",
                    t->name, (double)c.zero, (1 << u->bits) - 1);
            u->zero[row * u->groups + g] = (uint8_t)c.zero;
            for (int64_t i = 0; i < block; i++) {
                const int64_t at = g * block + i;
                u->code[row * u->cols + (order ? (int64_t)order[at] : at)] = c.code[i];
            }
        }
    }
    return ERR_OK;
}

/* ---------------------------------------------------------------- checks */

static enum err_code scales_check(const struct unpacked *u, const struct gguf_tensor *t, struct err *why)
{
    for (int64_t i = 0; i < u->rows * u->groups; i++)
        if (!isfinite(u->scale[i]) || f16_to_f32(f16_from_f32(u->scale[i])) != u->scale[i])
            return err_set(why, ERR_USAGE, "tensor '%s' has a scale of %g, which binary16 cannot hold",
                           t->name, (double)u->scale[i]);
    return ERR_OK;
}

/* Words hold whole codes of consecutive inputs, and zero points of consecutive outputs. */
static enum err_code words_check(const struct exporter *e, const struct gguf_tensor *t, int bits,
                                 struct err *why)
{
    const int64_t a_word = 32 / (bits == 3 ? 1 : bits);
    if (t->shape[0] % a_word == 0 && t->shape[1] % a_word == 0) return ERR_OK;
    return err_set(
        why, ERR_USAGE, "tensor '%s' is [%lld][%lld]: --to %s needs rows and columns in multiples of %lld",
        t->name, (long long)t->shape[1], (long long)t->shape[0], EXPORT_NAMES[e->kind], (long long)a_word);
}

enum err_code matrix_check(struct exporter *e, const struct gguf_tensor *t, const float *order,
                           struct err *why)
{
    static const unsigned BITS[EXPORT_KIND_COUNT] = { [EXPORT_GPTQ] = 1u << 2 | 1u << 3 | 1u << 4 | 1u << 8,
                                                      [EXPORT_AWQ] = 1u << 4,
                                                      [EXPORT_PACKED] = 1u << 4 | 1u << 8 };
    struct export_report *r = &e->report;
    const int bits = format_group_bits(t->format);
    const int64_t group = t->format->block_weights;
    if (!(BITS[e->kind] & 1u << bits))
        return err_set(why, ERR_USAGE, "tensor '%s' has %d bits, which --to %s cannot hold", t->name, bits,
                       EXPORT_NAMES[e->kind]);
    if (order && e->kind == EXPORT_AWQ)
        return err_set(
            why, ERR_USAGE,
            "tensor '%s' has its columns in another order (desc_act), which --to awq cannot hold: use "
            "--to gptq",
            t->name);
    if (r->matrices && (r->bits != bits || r->group != group))
        return err_set(why, ERR_USAGE,
                       "tensor '%s' has %d bits in groups of %lld, others have %d bits in groups of %lld: a "
                       "checkpoint has one of both",
                       t->name, bits, (long long)group, r->bits, (long long)r->group);
    enum err_code rc = words_check(e, t, bits, why);
    if (rc) return rc;
    struct unpacked u;
    rc = unpack(&u, t, NULL, order, why);
    if (!rc) rc = scales_check(&u, t, why);
    if (!r->matrices) r->symmetric = true;
    for (int64_t i = 0; !rc && i < u.rows * u.groups; i++) {
        e->zero_of_0 |= u.zero[i] == 0;
        r->symmetric &= u.zero[i] == 1 << (bits - 1);
    }
    unpacked_free(&u);
    r->matrices++;
    r->bits = bits;
    r->group = group;
    r->act_order |= order != NULL;
    return rc;
}

/* ---------------------------------------------------------------- packing */

/* Put the i-th code of a run of words, lowest bits first (linear_groups.c: packed_code). */
static void put_code(uint32_t *words, int64_t first, int64_t stride, int64_t i, int bits, unsigned code)
{
    const int64_t bit = i * bits, word = bit / 32;
    const int at = (int)(bit % 32);
    words[first + word * stride] |= code << at;
    if (at + bits > 32) words[first + (word + 1) * stride] |= code >> (32 - at);
}

static void awq_put(uint32_t *words, int64_t rows, int64_t line, int64_t row, unsigned code)
{
    words[line * (rows / 8) + row / 8] |= code << 4 * AWQ_PLACE[row % 8];
}

static void put_codes(const struct exporter *e, const struct unpacked *u, uint32_t *words)
{
    for (int64_t row = 0; row < u->rows; row++)
        for (int64_t col = 0; col < u->cols; col++) {
            const unsigned code = u->code[row * u->cols + col];
            if (e->kind == EXPORT_GPTQ)
                put_code(words, row, u->rows, col, u->bits, code);
            else if (e->kind == EXPORT_AWQ)
                awq_put(words, u->rows, col, row, code);
            else
                put_code(words, row * (u->cols * u->bits / 32), 1, col, u->bits, code);
        }
}

static void put_zeros(const struct exporter *e, const struct unpacked *u, uint32_t *words)
{
    for (int64_t row = 0; row < u->rows; row++)
        for (int64_t g = 0; g < u->groups; g++) {
            const unsigned zero = u->zero[row * u->groups + g];
            if (e->kind == EXPORT_GPTQ)
                put_code(words, g * (u->rows * u->bits / 32), 1, row, u->bits,
                         e->zero_of_0 ? zero : zero - 1);
            else if (e->kind == EXPORT_AWQ)
                awq_put(words, u->rows, g, row, zero);
            else
                put_code(words, g, u->groups, row, u->bits, zero);
        }
}

/* GPTQ and AWQ store them by group, compressed-tensors by row. */
static void put_scales(const struct exporter *e, const struct unpacked *u, uint16_t *to)
{
    for (int64_t row = 0; row < u->rows; row++)
        for (int64_t g = 0; g < u->groups; g++)
            to[e->kind == EXPORT_PACKED ? row * u->groups + g : g * u->rows + row] = f16_from_f32(
                u->scale[row * u->groups + g]);
}

/* Our numbers in the checkpoint's order of rows. */
static enum err_code put_floats(const struct piece *p, float *to, struct err *why)
{
    const struct gguf_tensor *t = p->made;
    const bool vector = t->dims == 1;
    const int64_t cols = vector ? 1 : t->shape[0], rows = vector ? t->shape[0] : t->shape[1];
    float *values = malloc((size_t)(rows * cols) * sizeof *values);
    if (!values) return err_set(why, ERR_NOMEM, "out of memory for '%s'", p->name);
    format_decode_rows(t->format, gguf_tensor_data(t), values, vector ? 1 : rows, t->shape[0]);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t row = p->origin->rows ? p->origin->rows[r] : r;
        for (int64_t i = 0; i < cols; i++)
            to[p->origin->transposed ? i * rows + row : row * cols + i] = values[r * cols + i] -
                                                                          (p->origin->plus_one ? 1 : 0);
    }
    free(values);
    return ERR_OK;
}

enum err_code piece_fill(unsigned char **out, const struct exporter *e, const struct piece *p,
                         struct err *why)
{
    *out = calloc((size_t)p->bytes + 1, 1);
    if (!*out) return err_set(why, ERR_NOMEM, "out of memory for '%s'", p->name);
    if (p->kind == PIECE_COPY) {
        memcpy(*out, p->from->data, (size_t)p->bytes);
        return ERR_OK;
    }
    if (p->kind == PIECE_FLOATS) return put_floats(p, (float *)(void *)*out, why);
    if (p->kind == PIECE_SHAPE) {
        const int64_t shape[2] = { p->made->shape[1], p->made->shape[0] };
        memcpy(*out, shape, sizeof shape);
        return ERR_OK;
    }
    struct unpacked u;
    const enum err_code rc = unpack(&u, p->made, p->origin->rows, p->order, why);
    if (!rc && p->kind == PIECE_CODES) put_codes(e, &u, (uint32_t *)(void *)*out);
    if (!rc && p->kind == PIECE_ZEROS) put_zeros(e, &u, (uint32_t *)(void *)*out);
    if (!rc && p->kind == PIECE_SCALES) put_scales(e, &u, (uint16_t *)(void *)*out);
    if (!rc && p->kind == PIECE_GROUPS) memcpy(*out, u.group, (size_t)p->bytes);
    unpacked_free(&u);
    return rc;
}

enum err_code matrices_compare(bool *same, const struct gguf_tensor *a, const float *order_a,
                               const struct gguf_tensor *b, const float *order_b, struct err *why)
{
    struct unpacked x, y = { 0 };
    *same = false;
    if (a->format != b->format || a->shape[0] != b->shape[0] || a->shape[1] != b->shape[1]) return ERR_OK;
    enum err_code rc = unpack(&x, a, NULL, order_a, why);
    if (!rc) rc = unpack(&y, b, NULL, order_b, why);
    if (!rc)
        *same = !memcmp(x.code, y.code, (size_t)(x.rows * x.cols)) &&
                !memcmp(x.scale, y.scale, (size_t)(x.rows * x.groups) * sizeof *x.scale) &&
                !memcmp(x.zero, y.zero, (size_t)(x.rows * x.groups)) &&
                !memcmp(x.group, y.group, (size_t)x.cols * sizeof *x.group);
    unpacked_free(&x);
    unpacked_free(&y);
    return rc;
}
