/* Importance matrices of llama.cpp: the mean square of each input column, for the matrices of layers. This
 * file reads and writes the legacy format; the GGUF one is in calibration_file.c. Layout, all numbers 32-bit
 * little-endian: entry count, then for each entry name length, name, number of calls, number of values,
 * values; then, from newer writers, chunk count and text name. Every length is checked against the file's
 * size before use. Source: llama.cpp, tools/imatrix. */
#include "engine/quant/calibration_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the legacy format, reading */

struct cursor {
    const unsigned char *at, *end;
    bool truncated; /* a read went beyond the end of the file */
};

/* The next `bytes` bytes. NULL, and c->truncated set, when the file has fewer. */
static const void *cursor_take(struct cursor *c, int64_t bytes)
{
    if (bytes < 0 || bytes > c->end - c->at) {
        c->truncated = true;
        return NULL;
    }
    const void *p = c->at;
    c->at += bytes;
    return p;
}

static int32_t cursor_take_int(struct cursor *c)
{
    int32_t v = 0;
    const void *p = cursor_take(c, sizeof v);
    if (p) memcpy(&v, p, sizeof v);
    return v;
}

/* A string stored as its length and bytes. NULL, and c->short_of set, when it is truncated or has a zero. */
static const char *cursor_take_string(struct cursor *c, struct arena *a)
{
    const int32_t n = cursor_take_int(c);
    const char *p = cursor_take(c, n);
    if (p && !memchr(p, 0, (size_t)n)) return arena_strndup(a, p, (size_t)n);
    c->truncated = true;
    return NULL;
}

/* Parse one matrix. */
static enum err_code imatrix_parse_entry(struct calibration *c, struct cursor *at, int entry,
                                         const char *path, struct err *why)
{
    const char *name = cursor_take_string(at, &c->memory);
    const int32_t calls = cursor_take_int(at), n = cursor_take_int(at);
    const void *values = n > 0 ? cursor_take(at, (int64_t)n * (int64_t)sizeof(float)) : NULL;
    if (at->truncated || !name || !name[0] || !values || calls < 0)
        return err_set(why, ERR_FORMAT, "'%s': entry %d of the importance matrix is truncated or damaged",
                       path, entry + 1);
    const enum err_code rc = calibration_list(c, &name, 1, why);
    if (rc) return err_prefix(why, "'%s'", path);
    struct calibration_input *in = calibration_add(c, &name, 1, n, 1, 0);
    if (!in) return err_set(why, ERR_NOMEM, "out of memory for '%s'", path);
    in->count = in->part_count[0] = MAX(calls, 1); /* very old files store means and a count of 0 */
    memcpy(in->sum_squares, values, (size_t)n * sizeof(float));
    return ERR_OK;
}

enum err_code imatrix_parse(struct calibration **out, const void *bytes, size_t size, const char *path,
                            struct err *why)
{
    struct cursor at = { bytes, (const unsigned char *)bytes + size, false };
    *out = NULL;
    const int32_t entries = cursor_take_int(&at);
    if (entries < 1)
        return err_set(why, ERR_FORMAT, "'%s' is neither a calibration nor an importance matrix", path);
    struct calibration *c = calibration_new();
    if (!c) return err_set(why, ERR_NOMEM, "out of memory for '%s'", path);
    c->imatrix = true;
    enum err_code rc = ERR_OK;
    for (int i = 0; i < entries && !rc; i++) rc = imatrix_parse_entry(c, &at, i, path, why);
    if (!rc && at.at < at.end) { /* newer writers append the number of chunks and the text's name */
        const int32_t chunks = cursor_take_int(&at);
        c->sequences = MAX(chunks, 0);
        const char *text = at.at < at.end ? cursor_take_string(&at, &c->memory) : "";
        if (text) c->text = text;
        if (at.truncated || at.at < at.end)
            rc = err_set(why, ERR_FORMAT,
                         "'%s': the data after the %d entries of the importance matrix is damaged", path,
                         entries);
    }
    if (!rc) rc = calibration_finish(c, why);
    if (!rc) {
        *out = c;
        return ERR_OK;
    }
    calibration_close(c);
    return rc;
}

/* ---------------------------------------------------------------- writing */

bool imatrix_holds(const char *name)
{
    return !strncmp(name, "blk.", 4);
}

static int imatrix_count(const struct calibration *c)
{
    int count = 0;
    for (int i = 0; i < c->name_count; i++) count += imatrix_holds(c->names[i].name);
    return count;
}

static void imatrix_put_int(FILE *to, int64_t v)
{
    const int32_t n = (int32_t)v;
    fwrite(&n, sizeof n, 1, to);
}

/* Write the legacy format. */
static enum err_code imatrix_save_legacy(const struct calibration *c, const char *path, struct err *why)
{
    struct atomic_file f;
    const int32_t chunks = (int32_t)MIN(MAX(c->sequences, 1), INT32_MAX);
    enum err_code rc = atomic_file_open(&f, path, why);
    if (rc) return rc;
    imatrix_put_int(f.stream, imatrix_count(c));
    for (int i = 0; i < c->name_count; i++) {
        const struct calibration_input *in = &c->inputs[c->names[i].input];
        if (!imatrix_holds(c->names[i].name)) continue;
        imatrix_put_int(f.stream, (int64_t)strlen(c->names[i].name));
        fputs(c->names[i].name, f.stream);
        imatrix_put_int(f.stream, in->count == chunks ? in->count : chunks);
        imatrix_put_int(f.stream, in->parts * in->cols);
        for (int64_t k = 0; k < in->parts * in->cols;
             k++) { /* an imatrix that was loaded is written back bit for bit */
            const bool same = in->parts == 1 && in->count == chunks;
            const float v = same ? in->sum_squares[k] : in->mean_square[k] * (float)chunks;
            fwrite(&v, sizeof v, 1, f.stream);
        }
    }
    imatrix_put_int(f.stream, chunks);
    imatrix_put_int(f.stream, (int64_t)strlen(c->text));
    fputs(c->text, f.stream);
    return atomic_file_commit(&f, why);
}

enum err_code imatrix_save(const struct calibration *c, const char *path, struct err *why)
{
    const size_t n = strlen(path);
    if (!imatrix_count(c))
        return err_set(
            why, ERR_USAGE,
            "an importance matrix holds statistics of matrices in layers ('blk.N...'), and this "
            "calibration of %d matrices has none, so '%s' was not written: calibrate a model with layers",
            c->name_count, path);
    return n > 4 && !strcasecmp(path + n - 4, ".dat") ? imatrix_save_legacy(c, path, why)
                                                      : calibration_write(c, path, CALIBRATION_IMATRIX, why);
}
