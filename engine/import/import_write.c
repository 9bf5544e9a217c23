/* Writes a model as a GGUF file, and compares the file with the checkpoint it came from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/import.h"
#include "engine/import/tensors.h"
#include "kernels/kernels.h"

static enum err_code write_tensor(struct gguf_writer *w, const struct gguf_tensor *t, struct err *why)
{
    enum { PIECE = 16 << 20 };
    const unsigned char *data = gguf_tensor_data(t);
    enum err_code rc = ERR_OK;
    for (int64_t at = 0; at < t->bytes && !rc; at += PIECE)
        rc = gguf_writer_write(w, data + at, MIN((int64_t)PIECE, t->bytes - at), why);
    gguf_tensor_drop(t);
    return rc;
}

enum err_code import_write(const struct gguf *g, const char *path, import_step_fn *step, void *ctx,
                           struct err *why)
{
    struct gguf_writer *w = NULL;
    char hash[HASH_HEX];
    enum err_code rc = gguf_hash(g, hash, why);
    if (!rc) rc = gguf_writer_open(&w, path, why);
    if (rc) return rc;
    for (int64_t i = 0; i < gguf_kv_count(g); i++)
        if (!gguf_string_is(gguf_kv_at(g, i)->key, SOURCE_KEY)) gguf_writer_copy_kv(w, gguf_kv_at(g, i));
    gguf_writer_put_string(w, SOURCE_KEY, hash);
    const int64_t count = gguf_tensor_count(g);
    for (int64_t i = 0; i < count; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
    }
    for (int64_t i = 0; i < count && !rc; i++) {
        rc = write_tensor(w, gguf_tensor_at(g, i), why);
        if (!rc) rc = gguf_check_read(g, why);
        if (!rc && step) rc = step(ctx, i + 1, count, why);
    }
    if (!rc) rc = gguf_check_unchanged(g, why);
    if (!rc) return gguf_writer_commit(w, why);
    gguf_writer_abort(w);
    return rc;
}

/* ---------------------------------------------------------------- comparing */

/* 32 codes from 16 bytes in the order of q4_0. */
static void take_halves(const unsigned char *from, uint8_t *code)
{
    for (int j = 0; j < 16; j++) {
        code[j] = from[j] & 15;
        code[j + 16] = from[j] >> 4;
    }
}

/* The codes of a block [block_weights]. False: the format has none that a checkpoint could have. */
static bool block_codes(const struct format *f, const unsigned char *block, uint8_t *code)
{
    struct group_codes g;
    const int first = f == &FORMATS[FORMAT_MXFP4] ? 1 : 4; /* behind the scale */
    if (format_group_bits(f)) {
        format_group_unpack(f, block, &g);
        memcpy(code, g.code, f->block_weights);
    } else if (f == &FORMATS[FORMAT_NF4] || f == &FORMATS[FORMAT_FP4] || f == &FORMATS[FORMAT_MXFP4]) {
        for (uint32_t i = 0; i < f->block_weights; i += 32) take_halves(block + first + i / 2, code + i);
    } else if (f == &FORMATS[FORMAT_NVFP4]) {
        for (uint32_t i = 0; i < f->block_weights; i++)
            code[i] = block[first + i / 16 * 8 + i % 8] >> (i % 16 < 8 ? 0 : 4) & 15;
    } else if (f == &FORMATS[FORMAT_INT8] || f == &FORMATS[FORMAT_FP8_E4M3] ||
               f == &FORMATS[FORMAT_FP8_E4M3_B128]) {
        memcpy(code, block, f->block_weights);
    } else {
        return false;
    }
    return true;
}

/* The larger of two differences; one that is not a number stays the largest. */
static double larger(double most, double d)
{
    return isnan(most) || d <= most ? most : d;
}

/* Compare one row: codes and weights as written with those of the checkpoint. */
static void compare_row(struct import_check *out, const struct linear *l, const struct gguf_tensor *written,
                        const unsigned char *bytes, const uint8_t *codes, const float *want, float *got)
{
    const struct format *f = written->format;
    const int64_t cols = written->shape[0];
    format_decode_rows(f, bytes, got, 1, cols);
    for (int64_t at = 0; at < cols; at += f->block_weights, bytes += f->block_bytes) {
        uint8_t block[256];
        if (!block_codes(f, bytes, block) || memcmp(block, codes + at, f->block_weights))
            out->identical = false;
    }
    for (int64_t i = 0; i < cols; i++) {
        const float v = l->scale ? got[i] * *l->scale : got[i];
        const double d = isnan(v) && isnan(want[i]) ? 0 : fabs((double)v - (double)want[i]);
        out->difference = larger(out->difference, d);
        out->rounding = larger(out->rounding, d > 0 ? d / fabs((double)want[i]) * 0x1p24 : d);
    }
}

enum err_code import_compare(struct import_check *out, const struct gguf_tensor *source,
                             const struct gguf_tensor *written, struct err *why)
{
    const struct linear *l = tensor_matrix(source);
    const int64_t cols = written->shape[0], rows = written->shape[1] * written->shape[2];
    *out = (struct import_check){ .quantized = l != NULL };
    out->identical = source->format == written->format && source->bytes == written->bytes &&
                     !memcmp(source->shape, written->shape, sizeof source->shape);
    if (!out->identical) {
        out->difference = out->rounding = INFINITY;
        return ERR_OK;
    }
    if (!l) {
        out->identical = !memcmp(gguf_tensor_data(source), gguf_tensor_data(written), (size_t)source->bytes);
        if (!out->identical) out->difference = out->rounding = INFINITY;
        gguf_tensor_drop(source);
        return ERR_OK;
    }
    uint8_t *codes = malloc((size_t)cols);
    float *want = malloc((size_t)cols * sizeof *want), *got = malloc((size_t)cols * sizeof *got);
    const enum err_code rc = codes && want && got
                                 ? ERR_OK
                                 : err_set(why, ERR_NOMEM, "out of memory to compare '%s'", written->name);
    const int64_t bytes = format_row_bytes(written->format, cols);
    for (int64_t r = 0; r < rows && !rc; r++) {
        l->read_row(l, tensor_matrix_row(source, r), codes, want);
        compare_row(out, l, written, gguf_tensor_data(written) + r * bytes, codes, want, got);
    }
    free(codes);
    free(want);
    free(got);
    return rc;
}
