/* Codes that stand for fixed values, and bytes with a scale for a row or a tile: bitsandbytes, FP8 with
 * blocks, compressed-tensors (int- and float-quantized, NVFP4), MXFP4 of gpt-oss. Sources: bitsandbytes
 * functional.py, compressed-tensors compressors, transformers integrations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/quantized_internal.h"
#include "kernels/kernels.h"

enum {
    HALVES = 32
}; /* codes of 4 bits come 32 at a time: code j in the low half of byte j, j + 16 in the high */

static void put_f32(unsigned char *to, float v)
{
    memcpy(to, &v, sizeof v);
}

/* 16 bytes of 32 codes in the order of q4_0. */
static void put_halves(unsigned char to[16], const uint8_t code[HALVES])
{
    for (int j = 0; j < 16; j++) to[j] = (unsigned char)(code[j] | code[j + 16] << 4);
}

/* e2m1: twice the value of a code. */
static double e2m1(unsigned code)
{
    static const int TWICE[8] = { 0, 1, 2, 3, 4, 6, 8, 12 };
    return (code & 8 ? -0.5 : 0.5) * TWICE[code & 7];
}

static double e4m3(unsigned code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 0x7f) == 0x7f) return NAN;
    const double v = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 0x80 ? -v : v;
}

/* Scales in e4m3 without a sign: those that mean NaN have no place in our format. */
static enum err_code check_e4m3(const struct st_tensor *t, struct err *why)
{
    for (int64_t i = 0; i < t->count; i++)
        if (t->data[i] >= 0x7f)
            return err_set(why, ERR_FORMAT, "'%.120s': scale %lld is negative or not a number", t->name,
                           (long long)i);
    return ERR_OK;
}

static enum err_code check_finite(const struct st_tensor *t, struct err *why)
{
    for (int64_t i = 0; i < t->count; i++)
        if (!isfinite(linear_number(t, i)))
            return err_set(why, ERR_FORMAT, "'%.120s': scale %lld is not finite", t->name, (long long)i);
    return ERR_OK;
}

/* ---------------------------------------------------------------- bitsandbytes, 4 bits */

enum { NF4_UNIT = 64, NESTED_RUN = 256 };

static unsigned nf4_code(const struct linear *l, int64_t i)
{
    return l->codes.data[i / 2] >> (i % 2 ? 0 : 4) & 15; /* high half first */
}

/* Largest magnitude of a unit of 64 weights, as bitsandbytes computes it: each operation rounded. */
static float nf4_largest(const struct linear *l, int64_t unit)
{
    if (!l->nested.data) return linear_number(&l->scales, unit);
    const volatile float product = linear_number(&l->zeros, l->scales.data[unit]) *
                                   linear_number(&l->nested, unit / NESTED_RUN);
    return product + l->offset;
}

static void nf4_write(const struct linear *l, int64_t row, unsigned char *to)
{
    for (int64_t at = 0; at < l->cols; at += NF4_UNIT, to += l->format->block_bytes) {
        const int64_t first = row * l->cols + at;
        put_f32(to, nf4_largest(l, first / NF4_UNIT));
        for (int half = 0; half < 2; half++) {
            uint8_t code[HALVES];
            for (int i = 0; i < HALVES; i++) code[i] = (uint8_t)nf4_code(l, first + half * HALVES + i);
            put_halves(to + 4 + 16 * half, code);
        }
    }
}

/* The value of a code comes from our table, which check_map compared with the checkpoint's. */
static void nf4_read_row(const struct linear *l, int64_t row, uint8_t *codes, float *weights)
{
    for (int64_t i = 0; i < l->cols; i++) {
        const int64_t at = row * l->cols + i;
        unsigned char one[36] = { 0 };
        float value[NF4_UNIT];
        const unsigned code = nf4_code(l, at);
        if (codes) codes[i] = (uint8_t)code;
        put_f32(one, 1);
        one[4] = (unsigned char)code;
        l->format->decode(one, value, NF4_UNIT);
        weights[i] = (float)((double)value[0] * (double)nf4_largest(l, at / NF4_UNIT));
    }
}

/* The values that the codes mean must be those of our format, to the last bit. */
static enum err_code check_map(const struct linear *l, const struct st_tensor *map, struct err *why)
{
    const int64_t sixteen[] = { 16 };
    const enum err_code rc = linear_expect(map, ST_F32, 1, sixteen, why);
    for (unsigned i = 0; !rc && i < 16; i++) {
        unsigned char one[36] = { 0 };
        float value[NF4_UNIT];
        put_f32(one, 1);
        one[4] = (unsigned char)i;
        l->format->decode(one, value, NF4_UNIT);
        if (value[0] != linear_number(map, i))
            return err_set(why, ERR_FORMAT, "'%.120s': code %u means %g, expected %g as in %s", map->name, i,
                           (double)linear_number(map, i), (double)value[0], l->format->name);
    }
    return rc;
}

/* The JSON that bitsandbytes stores as a tensor of bytes. */
static enum err_code nf4_state(struct linear *l, const struct st_tensor *state, struct err *why)
{
    json_t *j;
    enum err_code rc = json_parse(&j, (const char *)state->data, (size_t)state->bytes, why);
    if (rc) return err_prefix(why, "'%.120s'", state->name);
    const json_t *shape = json_object_get(j, "shape");
    l->rows = json_integer_value(json_array_get(shape, 0));
    l->cols = json_integer_value(json_array_get(shape, 1));
    l->offset = (float)json_get_num(j, "nested_offset", 0);
    const int64_t unit = json_get_int(j, "blocksize", NF4_UNIT),
                  run = json_get_int(j, "nested_blocksize", NESTED_RUN);
    int64_t count;
    if (json_array_size(shape) != 2 || l->rows < 1 || l->cols < 1 ||
        __builtin_mul_overflow(l->rows, l->cols, &count) || count % 2 || count / 2 != l->codes.count)
        rc = err_set(why, ERR_FORMAT, "'%.120s': its shape does not fit the %lld bytes of codes", state->name,
                     (long long)l->codes.count);
    else if (unit != NF4_UNIT || run != NESTED_RUN)
        rc = err_set(why, ERR_FORMAT,
                     "'%.120s': blocks of %lld weights and %lld scales are not supported: expected "
                     "%d and %d",
                     state->name, (long long)unit, (long long)run, NF4_UNIT, NESTED_RUN);
    json_decref(j);
    return rc;
}

enum err_code nf4_read(bool *found, struct linear *l, struct checkpoint *c, const char *stem, struct err *why)
{
    struct st_tensor state, map = { 0 };
    const bool nf4 = linear_take(&state, c, stem, ".weight.quant_state.bitsandbytes__nf4");
    if (!nf4 && !linear_take(&state, c, stem, ".weight.quant_state.bitsandbytes__fp4")) return ERR_OK;
    *found = true;
    const int64_t any[] = { -1, -1 };
    l->format = &FORMATS[nf4 ? FORMAT_NF4 : FORMAT_FP4];
    linear_take(&l->codes, c, stem, ".weight");
    linear_take(&l->scales, c, stem, ".weight.absmax");
    linear_take(&map, c, stem, ".weight.quant_map");
    const bool nested = linear_take(&l->nested, c, stem, ".weight.nested_absmax");
    enum err_code rc = linear_expect(&l->codes, ST_U8, 2, any, why);
    if (!rc) rc = nf4_state(l, &state, why);
    if (!rc) rc = check_map(l, &map, why);
    if (rc) return rc;
    const int64_t units = (l->rows * l->cols + NF4_UNIT - 1) / NF4_UNIT, scales[] = { units },
                  runs[] = { (units + NESTED_RUN - 1) / NESTED_RUN }, values[] = { 256 };
    if ((rc = linear_expect(&l->scales, nested ? ST_U8 : ST_F32, 1, scales, why))) return rc;
    if (nested) {
        linear_take(&l->zeros, c, stem, ".weight.nested_quant_map");
        if ((rc = linear_expect(&l->nested, ST_F32, 1, runs, why))) return rc;
        if ((rc = linear_expect(&l->zeros, ST_F32, 1, values, why))) return rc;
    }
    if ((rc = check_finite(nested ? &l->nested : &l->scales, why))) return rc;
    l->bits = 4;
    l->write_row = nf4_write;
    l->read_row = nf4_read_row;
    return ERR_OK;
}

/* ---------------------------------------------------------------- bytes with a scale for a row */

/* Row scale as our row stores it. LLM.int8 stores the largest magnitude, which 127 stands for. */
static float row_scale(const struct linear *l, int64_t row)
{
    const float v = linear_number(&l->scales, l->scales.count == 1 ? 0 : row);
    return l->group == 127 ? (float)((double)v / 127) : v;
}

static void bytes_write(const struct linear *l, int64_t row, unsigned char *to)
{
    format_row_pack(l->format, l->codes.data + row * l->cols, row_scale(l, row), to, l->cols);
}

static void bytes_read_row(const struct linear *l, int64_t row, uint8_t *codes, float *weights)
{
    const double scale = linear_number(&l->scales, l->scales.count == 1 ? 0 : row),
                 part = l->group == 127 ? 127 : 1;
    for (int64_t i = 0; i < l->cols; i++) {
        const uint8_t code = l->codes.data[row * l->cols + i];
        if (codes) codes[i] = code;
        const double v = l->codes.type == ST_I8 ? (double)(int8_t)code : e4m3(code);
        weights[i] = (float)(v * scale / part);
    }
}

static enum err_code bytes_check(struct linear *l, struct err *why)
{
    const bool whole = l->codes.type == ST_I8, half = l->codes.type == ST_F8_E4M3;
    const int64_t any[] = { -1, -1 };
    if (!whole && !half)
        return err_set(why, ERR_FORMAT, "'%.120s': expected I8 or F8_E4M3, it has %s", l->codes.name,
                       st_type_name(l->codes.type));
    enum err_code rc = linear_expect(&l->codes, l->codes.type, 2, any, why);
    if (rc) return rc;
    l->rows = l->codes.shape[0];
    l->cols = l->codes.shape[1];
    l->bits = 8;
    l->format = &FORMATS[whole ? FORMAT_INT8 : FORMAT_FP8_E4M3];
    l->write_row = bytes_write;
    l->read_row = bytes_read_row;
    if (l->scales.type != ST_F32 && l->scales.type != ST_F16 && l->scales.type != ST_BF16)
        return err_set(why, ERR_FORMAT, "'%.120s': expected scales in F32, F16 or BF16", l->scales.name);
    if (l->scales.count != 1 && (l->scales.count != l->rows || l->scales.shape[0] != l->rows))
        return err_set(why, ERR_FORMAT,
                       "'%.120s': %lld scales are not supported: expected one, or one for each of %lld "
                       "rows: [rows] or [rows,1]",
                       l->scales.name, (long long)l->scales.count, (long long)l->rows);
    return check_finite(&l->scales, why);
}

/* ---------------------------------------------------------------- FP8 with a scale for each tile */

enum { TILE = 128 };

static float tile_scale(const struct linear *l, int64_t row, int64_t col)
{
    return linear_number(&l->scales, row / TILE * l->scales.shape[1] + col / TILE);
}

static void tiles_write(const struct linear *l, int64_t row, unsigned char *to)
{
    const int64_t block = l->format->block_weights;
    for (int64_t at = 0; at < l->cols; at += block, to += l->format->block_bytes) {
        memcpy(to, l->codes.data + row * l->cols + at, (size_t)block);
        put_f32(to + block, tile_scale(l, row, at));
    }
}

static void tiles_read_row(const struct linear *l, int64_t row, uint8_t *codes, float *weights)
{
    for (int64_t i = 0; i < l->cols; i++) {
        const uint8_t code = l->codes.data[row * l->cols + i];
        if (codes) codes[i] = code;
        weights[i] = (float)(e4m3(code) * (double)tile_scale(l, row, i));
    }
}

static enum err_code tiles_check(struct linear *l, struct err *why)
{
    const int64_t any[] = { -1, -1 };
    enum err_code rc = linear_expect(&l->codes, ST_F8_E4M3, 2, any, why);
    if (rc) return rc;
    l->rows = l->codes.shape[0];
    l->cols = l->codes.shape[1];
    const int64_t scales[] = { (l->rows + TILE - 1) / TILE, (l->cols + TILE - 1) / TILE };
    if ((rc = linear_expect(&l->scales, l->scales.type, 2, scales, why))) return rc;
    if (l->scales.type != ST_F32 && l->scales.type != ST_BF16)
        return err_set(why, ERR_FORMAT, "'%.120s': expected scales in F32 or BF16", l->scales.name);
    if ((rc = check_finite(&l->scales, why))) return rc;
    l->bits = 8;
    l->format = &FORMATS[FORMAT_FP8_E4M3_B128];
    l->write_row = tiles_write;
    l->read_row = tiles_read_row;
    return ERR_OK;
}

/* compressed-tensors: is there a scale for each block of the weights? Its blocks must be those of FP8
 * checkpoints. */
static enum err_code has_blocks(bool *out, const struct checkpoint *c, struct err *why)
{
    const json_t *groups = json_object_get(linear_options(c), "config_groups");
    void *first = json_object_iter((json_t *)groups);
    const json_t *weights = json_object_get(first ? json_object_iter_value(first) : NULL, "weights"),
                 *size = json_object_get(weights, "block_structure");
    *out = json_object_size(groups) == 1 && !strcmp(json_get_str(weights, "strategy", ""), "block");
    if (!*out || (json_integer_value(json_array_get(size, 0)) == TILE &&
                  json_integer_value(json_array_get(size, 1)) == TILE))
        return ERR_OK;
    return err_set(why, ERR_FORMAT, "config.json: expected a block_structure of [%d, %d]", TILE, TILE);
}

enum err_code int8_read(bool *found, struct linear *l, struct checkpoint *c, const char *stem,
                        struct err *why)
{
    struct st_tensor order;
    if (!linear_take(&l->scales, c, stem, ".SCB")) return ERR_OK;
    *found = true;
    if (linear_take(&order, c, stem, ".weight_format") && (order.count != 1 || order.data[0] != 0))
        return err_set(why, ERR_FORMAT,
                       "LLM.int8 weights in the order of a GPU are not supported: expected "
                       "weight_format 0");
    if (!linear_take(&l->codes, c, stem, ".weight"))
        return err_set(why, ERR_FORMAT, "the checkpoint has scales (SCB) without weights");
    l->group = 127;
    return bytes_check(l, why);
}

enum err_code rows_read(bool *found, struct linear *l, struct checkpoint *c, const char *stem,
                        struct err *why)
{
    struct st_tensor unused;
    if (!linear_take(&l->scales, c, stem, ".weight_scale")) return ERR_OK;
    *found = true;
    linear_take(&unused, c, stem, ".input_scale"); /* of activations, which are not quantized here */
    if (linear_take(&unused, c, stem, ".weight_zero_point"))
        return err_set(why, ERR_FORMAT, "bytes with a zero point are not supported");
    if (!linear_take(&l->codes, c, stem, ".weight"))
        return err_set(why, ERR_FORMAT, "the checkpoint has scales without weights");
    bool blocks;
    const enum err_code rc = has_blocks(&blocks, c, why);
    return rc ? rc : blocks ? tiles_check(l, why) : bytes_check(l, why);
}

enum err_code fp8_blocks_read(bool *found, struct linear *l, struct checkpoint *c, const char *stem,
                              struct err *why)
{
    const json_t *q = linear_options(c), *size = json_object_get(q, "weight_block_size");
    struct st_tensor unused;
    linear_take(&unused, c, stem, ".input_scale");
    if (linear_take(&l->scales, c, stem, ".weight_scale")) { /* one scale for the matrix or for each row */
        *found = true;
        if (!linear_take(&l->codes, c, stem, ".weight"))
            return err_set(why, ERR_FORMAT, "the checkpoint has scales without weights");
        return bytes_check(l, why);
    }
    if (!linear_take(&l->scales, c, stem, ".weight_scale_inv")) return ERR_OK;
    *found = true;
    linear_take(&l->codes, c, stem, ".weight");
    if (json_array_size(size) != 2 || json_integer_value(json_array_get(size, 0)) != TILE ||
        json_integer_value(json_array_get(size, 1)) != TILE)
        return err_set(why, ERR_FORMAT,
                       "config.json: FP8 with another weight_block_size than [%d, %d] is not supported", TILE,
                       TILE);
    return tiles_check(l, why);
}

/* ---------------------------------------------------------------- NVFP4 */

enum { NV_GROUP = 16, NV_BLOCK = 64, NV_CODES = 4 };

static unsigned nv_code(const struct linear *l, int64_t row, int64_t col)
{
    return l->codes.data[row * l->codes.shape[1] + col / 2] >> (col % 2 ? 4 : 0) & 15;
}

static void nv_write(const struct linear *l, int64_t row, unsigned char *to)
{
    for (int64_t at = 0; at < l->cols; at += NV_BLOCK, to += l->format->block_bytes)
        for (int g = 0; g < NV_BLOCK / NV_GROUP; g++) {
            const int64_t first = at + g * NV_GROUP;
            to[g] = l->scales.data[row * l->scales.shape[1] + first / NV_GROUP];
            for (int j = 0; j < NV_GROUP / 2; j++)
                to[NV_CODES + g * 8 + j] = (unsigned char)(nv_code(l, row, first + j) |
                                                           nv_code(l, row, first + j + 8) << 4);
        }
}

static void nv_read_row(const struct linear *l, int64_t row, uint8_t *codes, float *weights)
{
    const double global = linear_number(&l->nested, 0);
    for (int64_t i = 0; i < l->cols; i++) {
        const unsigned code = nv_code(l, row, i);
        if (codes) codes[i] = (uint8_t)code;
        const double scale = e4m3(l->scales.data[row * l->scales.shape[1] + i / NV_GROUP]);
        weights[i] = (float)(e2m1(code) * scale / global);
    }
}

enum err_code nvfp4_read(bool *found, struct linear *l, struct checkpoint *c, const char *stem,
                         struct err *why)
{
    struct st_tensor unused;
    if (!linear_take(&l->nested, c, stem, ".weight_global_scale")) return ERR_OK;
    *found = true;
    linear_take(&l->codes, c, stem, ".weight_packed");
    linear_take(&l->scales, c, stem, ".weight_scale");
    linear_take(&unused, c, stem, ".input_global_scale"); /* of activations, which are not quantized here */
    const int64_t any[] = { -1, -1 }, one[] = { 1 };
    enum err_code rc = linear_expect(&l->codes, ST_U8, 2, any, why);
    if (!rc) rc = linear_expect(&l->nested, ST_F32, 1, one, why);
    if (rc) return rc;
    l->rows = l->codes.shape[0];
    l->cols = 2 * l->codes.shape[1];
    const int64_t scales[] = { l->rows, (l->cols + NV_GROUP - 1) / NV_GROUP };
    if ((rc = linear_expect(&l->scales, ST_F8_E4M3, 2, scales, why))) return rc;
    if ((rc = check_e4m3(&l->scales, why))) return rc;
    float *factor = arena_alloc(&c->parts.memory, sizeof *factor);
    const float global = linear_number(&l->nested, 0);
    if (!factor) return err_set(why, ERR_NOMEM, "out of memory for tensors");
    *factor = 1 / global;
    if (!isnormal(global) || !isnormal(*factor))
        return err_set(why, ERR_FORMAT, "'%.120s' is %g, which is no scale", l->nested.name, (double)global);
    l->scale = factor;
    l->bits = 4;
    l->format = &FORMATS[FORMAT_NVFP4];
    l->write_row = nv_write;
    l->read_row = nv_read_row;
    return ERR_OK;
}

/* ---------------------------------------------------------------- MXFP4 of gpt-oss */

/* Byte j of a block of 32 weights has weight 2j in its low half and weight 2j + 1 in its high half. */
static void mx_write(const struct linear *l, int64_t row, unsigned char *to)
{
    for (int64_t b = 0; b < l->cols / HALVES; b++, to += l->format->block_bytes) {
        const int64_t block = row * (l->cols / HALVES) + b;
        const unsigned char *from = l->codes.data + block * 16;
        uint8_t code[HALVES];
        for (int i = 0; i < HALVES; i++) code[i] = from[i / 2] >> (i % 2 ? 4 : 0) & 15;
        to[0] = l->scales.data[block];
        put_halves(to + 1, code);
    }
}

static void mx_read_row(const struct linear *l, int64_t row, uint8_t *codes, float *weights)
{
    for (int64_t i = 0; i < l->cols; i++) {
        const int64_t block = row * (l->cols / HALVES) + i / HALVES;
        const unsigned code = l->codes.data[block * 16 + i % HALVES / 2] >> (i % 2 ? 4 : 0) & 15;
        if (codes) codes[i] = (uint8_t)code;
        weights[i] = (float)ldexp(e2m1(code), l->scales.data[block] - 127);
    }
}

enum err_code mxfp4_read(bool *found, struct linear *l, struct checkpoint *c, const char *stem,
                         struct err *why)
{
    if (!linear_take(&l->codes, c, stem, "_blocks")) return ERR_OK;
    *found = true;
    linear_take(&l->scales, c, stem, "_scales");
    const int64_t codes[] = { -1, -1, -1, 16 };
    enum err_code rc = linear_expect(&l->codes, ST_U8, 4, codes, why);
    if (rc) return rc;
    const int64_t scales[] = { l->codes.shape[0], l->codes.shape[1], l->codes.shape[2] };
    if ((rc = linear_expect(&l->scales, ST_U8, 3, scales, why))) return rc;
    l->matrices = l->codes.shape[0];
    l->rows = l->codes.shape[1];
    l->cols = l->codes.shape[2] * HALVES;
    for (int64_t i = 0; i < l->scales.count; i++)
        if (l->scales.data[i] == 255)
            return err_set(why, ERR_FORMAT, "'%.120s': scale %lld is not a number", l->scales.name,
                           (long long)i);
    l->bits = 4;
    l->format = &FORMATS[FORMAT_MXFP4];
    l->write_row = mx_write;
    l->read_row = mx_read_row;
    return ERR_OK;
}
