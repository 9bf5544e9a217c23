/* Unsigned codes with a scale and a zero point for each group of inputs: GPTQ, AWQ, compressed-tensors
 * (pack-quantized) and HQQ. They differ in the order of codes in memory. Sources: AutoGPTQ and GPTQModel
 * (nn_modules/qlinear), AutoAWQ (utils/packing_utils.py), compressed-tensors (compressors), hqq
 * (core/bitpack.py).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/quantized_internal.h"
#include "kernels/kernels.h"

/* The code of bit width `bits` at place i of a run of words, lowest bits first. 3 bits: 32 codes fill 3
 * words. */
static unsigned packed_code(const struct st_tensor *t, int64_t first, int64_t stride, int64_t i, int bits)
{
    const int64_t bit = i * bits, word = bit / 32;
    const int at = (int)(bit % 32);
    uint64_t two = word_at(t, first + word * stride);
    if (at + bits > 32) two |= (uint64_t)word_at(t, first + (word + 1) * stride) << 32;
    return (unsigned)(two >> at) & ((1u << bits) - 1);
}

const int AWQ_PLACE[8] = { 0, 4, 1, 5, 2, 6, 3, 7 };

static unsigned awq_nibble(const struct st_tensor *t, int64_t in, int64_t out)
{
    return word_at(t, in * t->shape[1] + out / 8) >> 4 * AWQ_PLACE[out % 8] & 15;
}

/* ---------------------------------------------------------------- one group */

static int64_t group_of(const struct linear *l, int64_t col)
{
    return l->groups_of ? l->groups_of[col] : col / l->group;
}

typedef unsigned code_fn(const struct linear *l, int64_t row, int64_t col);
typedef void affine_fn(const struct linear *l, int64_t row, int64_t group, float *scale, float *zero);

/* Write a row of blocks, whose columns come in l->order. */
static void write_groups(const struct linear *l, int64_t row, unsigned char *to, code_fn *code,
                         affine_fn *affine)
{
    const int64_t block = l->format->block_weights;
    for (int64_t at = 0; at < l->cols; at += block, to += l->format->block_bytes) {
        struct group_codes g;
        const int64_t first = l->order ? (int64_t)l->order[at] : at;
        affine(l, row, group_of(l, first), &g.scale, &g.zero);
        for (int64_t i = 0; i < block; i++)
            g.code[i] = (uint8_t)code(l, row, l->order ? (int64_t)l->order[at + i] : at + i);
        format_group_pack(l->format, &g, to);
    }
}

static void read_groups(const struct linear *l, int64_t row, uint8_t *codes, float *weights, code_fn *code,
                        affine_fn *affine)
{
    for (int64_t i = 0; i < l->cols; i++) {
        const int64_t col = l->order ? (int64_t)l->order[i] : i;
        float scale, zero;
        affine(l, row, group_of(l, col), &scale, &zero);
        const unsigned stored = code(l, row, col);
        if (codes) codes[i] = (uint8_t)stored;
        weights[i] = (float)(((double)stored - (double)zero) * (double)scale);
    }
}

#define GROUP_READER(name)                                                                                   \
    static void name##_write(const struct linear *l, int64_t row, unsigned char *to)                         \
    {                                                                                                        \
        write_groups(l, row, to, name##_code, name##_affine);                                                \
    }                                                                                                        \
    static void name##_read_row(const struct linear *l, int64_t row, uint8_t *codes, float *weights)         \
    {                                                                                                        \
        read_groups(l, row, codes, weights, name##_code, name##_affine);                                     \
    }

/* The format whose blocks divide the groups; none: the weights are stored as numbers. */
static void choose_format(struct linear *l)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const struct format *format = &FORMATS[f];
        const bool fits = format_group_bits(format) == l->bits && l->group % format->block_weights == 0 &&
                          l->cols % format->block_weights == 0;
        if (fits && (!l->format || format->block_weights > l->format->block_weights)) l->format = format;
    }
}

/* The group size that the options give: -1 means the whole row. */
static enum err_code read_group(struct linear *l, int64_t given, struct err *why)
{
    l->group = given == -1 ? l->cols : given;
    if (l->group < 1 || l->group > l->cols)
        return err_set(why, ERR_FORMAT, "config.json: a group_size of %lld does not fit %lld columns",
                       (long long)given, (long long)l->cols);
    return ERR_OK;
}

/* ---------------------------------------------------------------- act-order */

/* Sort the columns by their group (g_idx), stable. l->order NULL: they are in order already. ERR_FORMAT:
 * groups are of unequal size, or a column has none. */
static enum err_code read_order(struct linear *l, const struct st_tensor *g_idx, struct checkpoint *c,
                                struct err *why)
{
    const int64_t groups = (l->cols + l->group - 1) / l->group, shape[] = { l->cols };
    enum err_code rc = linear_expect(g_idx, ST_I32, 1, shape, why);
    if (rc) return rc;
    int32_t *of = arena_alloc(&c->parts.memory, (size_t)l->cols * sizeof *of);
    float *order = arena_alloc(&c->parts.memory, (size_t)l->cols * sizeof *order);
    int64_t *at = calloc((size_t)groups + 1, sizeof *at);
    if (!of || !order || !at) rc = err_set(why, ERR_NOMEM, "out of memory for g_idx");
    bool sorted = true;
    for (int64_t i = 0; !rc && i < l->cols; i++) {
        of[i] = (int32_t)word_at(g_idx, i);
        if (of[i] < 0 || of[i] >= groups)
            rc = err_set(why, ERR_FORMAT, "'%.120s': column %lld is in group %d, expected 0 to %lld",
                         g_idx->name, (long long)i, of[i], (long long)groups - 1);
        else
            at[of[i] + 1]++;
        sorted = sorted && !rc && of[i] == i / l->group;
    }
    for (int64_t g = 0; !rc && g < groups; g++) {
        if (at[g + 1] != MIN(l->group, l->cols - g * l->group))
            rc = err_set(why, ERR_FORMAT, "'%.120s': group %lld has %lld columns, expected %lld", g_idx->name,
                         (long long)g, (long long)at[g + 1], (long long)l->group);
        at[g + 1] += at[g];
    }
    for (int64_t i = 0; !rc && !sorted && i < l->cols; i++) order[at[of[i]]++] = (float)i;
    free(at);
    if (!rc && !sorted) {
        l->order = order;
        l->groups_of = of;
    }
    return rc;
}

/* ---------------------------------------------------------------- GPTQ */

static unsigned gptq_code(const struct linear *l, int64_t row, int64_t col)
{
    return packed_code(&l->codes, row, l->rows, col, l->bits);
}

static unsigned gptq_stored_zero(const struct linear *l, int64_t row, int64_t group)
{
    return packed_code(&l->zeros, group * l->zeros.shape[1], 1, row, l->bits);
}

static void gptq_affine(const struct linear *l, int64_t row, int64_t group, float *scale, float *zero)
{
    *scale = linear_number(&l->scales, group * l->rows + row);
    *zero = (float)(gptq_stored_zero(l, row, group) + (l->zero_less_one ? 1 : 0));
}

GROUP_READER(gptq)

/* In the first version of the format a zero point of 0 is stored as -1. Writers let it spill into its
 * neighbours or cut it off, and readers differ, so nobody knows what the checkpoint means. */
static enum err_code check_zeros(const struct linear *l, int64_t groups, struct err *why)
{
    const unsigned most = (1u << l->bits) - 1;
    for (int64_t g = 0; l->zero_less_one && g < groups; g++)
        for (int64_t r = 0; r < l->rows; r++)
            if (gptq_stored_zero(l, r, g) == most)
                return err_set(why, ERR_FORMAT,
                               "'%.120s': group %lld of output %lld has a zero point of 0 or %u, which "
                               "checkpoint_format 'gptq' cannot store safely: convert it to gptq_v2",
                               l->zeros.name, (long long)g, (long long)r, most + 1);
    return ERR_OK;
}

enum err_code gptq_read(bool *found, struct linear *l, struct checkpoint *c, const char *stem,
                        struct err *why)
{
    const json_t *q = linear_options(c);
    struct st_tensor g_idx;
    if (!linear_take(&l->codes, c, stem, ".qweight")) return ERR_OK;
    *found = true;
    const char *format = json_get_str(q, "checkpoint_format", "gptq");
    l->bits = (int)json_get_int(q, "bits", 4);
    l->zero_less_one = !strcmp(format, "gptq");
    if ((!l->zero_less_one && strcmp(format, "gptq_v2")) ||
        strcmp(json_get_str(q, "pack_dtype", "int32"), "int32"))
        return err_set(why, ERR_FORMAT,
                       "config.json: GPTQ with checkpoint_format '%.40s' is not supported: expected "
                       "gptq or gptq_v2 in int32",
                       format);
    if (l->bits != 2 && l->bits != 3 && l->bits != 4 && l->bits != 8)
        return err_set(why, ERR_FORMAT, "config.json: GPTQ with %d bits is not supported", l->bits);
    if (json_object_size(json_object_get(q, "dynamic")))
        return err_set(why, ERR_FORMAT, "config.json: GPTQ with dynamic rules is not supported");
    const int64_t any[] = { -1, -1 };
    enum err_code rc = linear_expect(&l->codes, ST_I32, 2, any, why);
    if (rc) return rc;
    l->cols = l->codes.shape[0] * 32 / l->bits;
    l->rows = l->codes.shape[1];
    if ((rc = read_group(l, json_get_int(q, "group_size", 128), why))) return rc;
    const int64_t groups = (l->cols + l->group - 1) / l->group,
                  zeros[] = { groups, (l->rows * l->bits + 31) / 32 }, scales[] = { groups, l->rows };
    linear_take(&l->zeros, c, stem, ".qzeros");
    linear_take(&l->scales, c, stem, ".scales");
    if ((rc = linear_expect(&l->zeros, ST_I32, 2, zeros, why))) return rc;
    if ((rc = linear_expect(&l->scales, l->scales.type, 2, scales, why))) return rc;
    if ((rc = linear_check_half(&l->scales, why))) return rc;
    if ((rc = check_zeros(l, groups, why))) return rc;
    if (linear_take(&g_idx, c, stem, ".g_idx") && (rc = read_order(l, &g_idx, c, why))) return rc;
    l->write_row = gptq_write;
    l->read_row = gptq_read_row;
    choose_format(l);
    return ERR_OK;
}

/* ---------------------------------------------------------------- AWQ */

static unsigned awq_code(const struct linear *l, int64_t row, int64_t col)
{
    return awq_nibble(&l->codes, col, row);
}

static void awq_affine(const struct linear *l, int64_t row, int64_t group, float *scale, float *zero)
{
    *scale = linear_number(&l->scales, group * l->rows + row);
    *zero = (float)awq_nibble(&l->zeros, group, row);
}

GROUP_READER(awq)

enum err_code awq_read(bool *found, struct linear *l, struct checkpoint *c, const char *stem, struct err *why)
{
    const json_t *q = linear_options(c);
    if (!linear_take(&l->codes, c, stem, ".qweight")) return ERR_OK;
    *found = true;
    const char *version = json_get_str(q, "version", "gemm");
    l->bits = (int)json_get_int(q, "bits", json_get_int(q, "w_bit", 4));
    if (strcmp(version, "gemm") && strcmp(version, "GEMM"))
        return err_set(why, ERR_FORMAT, "config.json: AWQ version '%.40s' is not supported: expected gemm",
                       version);
    if (l->bits != 4)
        return err_set(why, ERR_FORMAT, "config.json: AWQ with %d bits is not supported", l->bits);
    const int64_t any[] = { -1, -1 };
    enum err_code rc = linear_expect(&l->codes, ST_I32, 2, any, why);
    if (rc) return rc;
    l->cols = l->codes.shape[0];
    l->rows = l->codes.shape[1] * 8;
    if ((rc = read_group(l, json_get_int(q, "group_size", json_get_int(q, "q_group_size", 128)), why)))
        return rc;
    const int64_t groups = (l->cols + l->group - 1) / l->group, zeros[] = { groups, l->codes.shape[1] },
                  scales[] = { groups, l->rows };
    linear_take(&l->scales, c, stem, ".scales");
    linear_take(&l->zeros, c, stem, ".qzeros");
    if ((rc = linear_expect(&l->zeros, ST_I32, 2, zeros, why))) return rc;
    if ((rc = linear_expect(&l->scales, l->scales.type, 2, scales, why))) return rc;
    if ((rc = linear_check_half(&l->scales, why))) return rc;
    l->write_row = awq_write;
    l->read_row = awq_read_row;
    choose_format(l);
    return ERR_OK;
}

/* ---------------------------------------------------------------- compressed-tensors, pack-quantized */

static unsigned ct_code(const struct linear *l, int64_t row, int64_t col)
{
    return packed_code(&l->codes, row * l->codes.shape[1], 1, col, l->bits);
}

/* Codes and zero points are both stored with 2^(bits - 1) added. */
static void ct_affine(const struct linear *l, int64_t row, int64_t group, float *scale, float *zero)
{
    *scale = linear_number(&l->scales, row * l->scales.shape[1] + group);
    *zero = l->zeros.data ? (float)packed_code(&l->zeros, group, l->zeros.shape[1], row, l->bits)
                          : (float)(1 << (l->bits - 1));
}

GROUP_READER(ct)

/* The scheme of the weights: that of the only group of layers. */
static enum err_code ct_scheme(const json_t **out, const struct checkpoint *c, struct err *why)
{
    const json_t *groups = json_object_get(linear_options(c), "config_groups");
    void *first = json_object_iter((json_t *)groups);
    if (json_object_size(groups) != 1)
        return err_set(why, ERR_FORMAT,
                       "config.json: compressed-tensors with %zu config_groups is not supported: "
                       "expected 1",
                       json_object_size(groups));
    *out = json_object_get(json_object_iter_value(first), "weights");
    return ERR_OK;
}

enum err_code packed_read(bool *found, struct linear *l, struct checkpoint *c, const char *stem,
                          struct err *why)
{
    struct st_tensor shape_tensor, g_idx;
    const json_t *scheme = NULL;
    if (!strcmp(json_get_str(linear_options(c), "format", ""), "nvfp4-pack-quantized")) return ERR_OK;
    if (!linear_take(&l->codes, c, stem, ".weight_packed")) return ERR_OK;
    *found = true;
    enum err_code rc = ct_scheme(&scheme, c, why);
    if (rc) return rc;
    l->bits = (int)json_get_int(scheme, "num_bits", 0);
    if ((l->bits != 4 && l->bits != 8) || strcmp(json_get_str(scheme, "type", ""), "int"))
        return err_set(why, ERR_FORMAT,
                       "config.json: pack-quantized weights of %d bits are not supported: expected "
                       "int of 4 or 8 bits",
                       l->bits);
    const int64_t any[] = { -1, -1 }, two[] = { 2 };
    if ((rc = linear_expect(&l->codes, ST_I32, 2, any, why))) return rc;
    l->rows = l->codes.shape[0];
    l->cols = l->codes.shape[1] * 32 / l->bits;
    if (linear_take(&shape_tensor, c, stem, ".weight_shape")) {
        int64_t shape[2];
        if ((rc = linear_expect(&shape_tensor, ST_I64, 1, two, why))) return rc;
        memcpy(shape, shape_tensor.data, sizeof shape);
        if (shape[0] != l->rows || shape[1] > l->cols || (shape[1] * l->bits + 31) / 32 != l->codes.shape[1])
            return err_set(why, ERR_FORMAT, "weight_shape and weight_packed do not belong together");
        l->cols = shape[1];
    }
    const bool whole = !strcmp(json_get_str(scheme, "strategy", "group"), "channel");
    if ((rc = read_group(l, whole ? -1 : json_get_int(scheme, "group_size", -1), why))) return rc;
    const int64_t groups = (l->cols + l->group - 1) / l->group, scales[] = { l->rows, groups },
                  zeros[] = { (l->rows * l->bits + 31) / 32, groups };
    linear_take(&l->scales, c, stem, ".weight_scale");
    if ((rc = linear_expect(&l->scales, l->scales.type, 2, scales, why))) return rc;
    if ((rc = linear_check_half(&l->scales, why))) return rc;
    if (linear_take(&l->zeros, c, stem, ".weight_zero_point") &&
        (rc = linear_expect(&l->zeros, ST_I32, 2, zeros, why)))
        return rc;
    if (!l->zeros.data && !json_get_bool(scheme, "symmetric", true))
        return err_set(why, ERR_FORMAT, "it is not symmetric, and has no weight_zero_point");
    if (linear_take(&g_idx, c, stem, ".weight_g_idx") && (rc = read_order(l, &g_idx, c, why))) return rc;
    l->write_row = ct_write;
    l->read_row = ct_read_row;
    choose_format(l);
    return ERR_OK;
}

/* ---------------------------------------------------------------- HQQ, axis 1 */

/* The matrix is a list of groups, rows after rows; a word has one code of each of several parts of that list.
 */
static unsigned hqq_code(const struct linear *l, int64_t row, int64_t col)
{
    const int64_t group = (row * l->cols + col) / l->group, at = col % l->group, rows = l->codes.shape[0],
                  part = group / rows, i = group % rows * l->group + at;
    const unsigned mask = (1u << l->bits) - 1;
    if (l->bits == 3) return word_at(&l->codes, i) >> (27 - 3 * part) & mask;
    return (unsigned)l->codes.data[i] >> (8 - l->bits * (int)(part + 1)) & mask;
}

static void hqq_affine(const struct linear *l, int64_t row, int64_t group, float *scale, float *zero)
{
    const int64_t i = row * (l->cols / l->group) + group;
    *scale = linear_number(&l->scales, i);
    *zero = linear_number(&l->zeros, i);
}

GROUP_READER(hqq)

/* A whole number that the checkpoint stores as a tensor; -1: it has none. */
static int64_t hqq_number(const struct checkpoint *c, const char *stem, const char *suffix)
{
    struct st_tensor t;
    if (!linear_take(&t, c, stem, suffix) || t.count != 1 || t.type != ST_I32) return -1;
    return (int64_t)word_at(&t, 0);
}

enum err_code hqq_read(bool *found, struct linear *l, struct checkpoint *c, const char *stem, struct err *why)
{
    static const char *const REST[] = {
        ".channel_wise", ".compute_dtype", ".encoded_state_dict",  ".offload_meta",
        ".optimize",     ".packing",       ".quant_scale",         ".quant_zero",
        ".round_zero",   ".view_as_float", ".stores_quant_config", ".unpack_view_dtype"
    };
    struct st_tensor t = { 0 };
    if (!linear_take(&l->codes, c, stem, ".W_q")) return ERR_OK;
    *found = true;
    for (size_t i = 0; i < COUNT_OF(REST); i++) linear_take(&t, c, stem, REST[i]);
    const int64_t axis = hqq_number(c, stem, ".axis"), two[] = { 2 };
    l->bits = (int)hqq_number(c, stem, ".nbits");
    l->group = hqq_number(c, stem, ".group_size");
    if (axis != 1 || (l->bits != 2 && l->bits != 3 && l->bits != 4 && l->bits != 8) || l->group < 1)
        return err_set(why, ERR_FORMAT,
                       "HQQ with axis %lld, %d bits and groups of %lld is not supported: expected "
                       "axis 1 and 2, 3, 4 or 8 bits",
                       (long long)axis, l->bits, (long long)l->group);
    t = (struct st_tensor){ 0 };
    linear_take(&t, c, stem, ".shape");
    enum err_code rc = linear_expect(&t, ST_I64, 1, two, why);
    if (rc) return rc;
    int64_t shape[2], groups;
    memcpy(shape, t.data, sizeof shape);
    l->rows = shape[0];
    l->cols = shape[1];
    if (l->rows < 1 || l->cols < 1 || l->cols % l->group ||
        __builtin_mul_overflow(l->rows, l->cols / l->group, &groups))
        return err_set(why, ERR_FORMAT, "HQQ: rows of %lld weights are not whole groups of %lld",
                       (long long)l->cols, (long long)l->group);
    const int64_t parts = l->bits == 3 ? 10 : 8 / l->bits,
                  packed[] = { (groups + parts - 1) / parts, l->group }, scales[] = { groups, 1 };
    rc = linear_expect(&l->codes, l->bits == 3 ? ST_I32 : ST_U8, 2, packed, why);
    if (rc) return rc;
    if (!linear_take(&l->scales, c, stem, ".scale") || !linear_take(&l->zeros, c, stem, ".zero"))
        return err_set(why, ERR_FORMAT, "HQQ with quantized scales or zero points is not supported");
    if ((rc = linear_expect(&l->scales, l->scales.type, 2, scales, why))) return rc;
    if ((rc = linear_expect(&l->zeros, l->zeros.type, 2, scales, why))) return rc;
    if ((rc = linear_check_half(&l->scales, why))) return rc;
    if ((rc = linear_check_half(&l->zeros, why))) return rc;
    l->write_row = hqq_write;
    l->read_row = hqq_read_row;
    choose_format(l);
    return ERR_OK;
}
