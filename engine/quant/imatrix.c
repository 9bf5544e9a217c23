/* Importance matrices as llama.cpp keeps them, in both formats: mean squares of what each matrix of the
 * layers is multiplied with. The legacy one is a bare dump; every length in it is checked against the file's
 * size before it is believed. */
#include "engine/quant/calibration_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the legacy format, reading */

struct cursor {
    const unsigned char *at, *end;
    bool short_of; /* something was longer than the file */
};

static const void *take(struct cursor *c, int64_t bytes)
{
    if (bytes < 0 || bytes > c->end - c->at) {
        c->short_of = true;
        return NULL;
    }
    const void *p = c->at;
    c->at += bytes;
    return p;
}

static int32_t take_int(struct cursor *c)
{
    int32_t v = 0;
    const void *p = take(c, sizeof v);
    if (p) memcpy(&v, p, sizeof v);
    return v;
}

/* {len, bytes}; NULL when cut off or absurd. */
static const char *take_text(struct cursor *c, struct arena *a)
{
    const int32_t n = take_int(c);
    const char *p = take(c, n);
    if (p && !memchr(p, 0, (size_t)n)) return arena_strndup(a, p, (size_t)n);
    c->short_of = true;
    return NULL;
}

static enum err_code parse_entry(struct calibration *c, struct cursor *at, int entry, const char *path,
                                 struct err *why)
{
    const char *name = take_text(at, &c->memory);
    const int32_t calls = take_int(at), n = take_int(at);
    const void *values = n > 0 ? take(at, (int64_t)n * (int64_t)sizeof(float)) : NULL;
    if (at->short_of || !name || !name[0] || !values || calls < 0)
        return err_set(why, ERR_FORMAT, "'%s': entry %d of the importance matrix is cut off or damaged", path,
                       entry + 1);
    struct calibration_input *in = calibration_add(c, &name, 1, n, 0);
    if (!in) return err_set(why, ERR_NOMEM, "out of memory for '%s'", path);
    in->count = MAX(calls, 1); /* very old files hold plain means */
    memcpy(in->sum_squares, values, (size_t)n * sizeof(float));
    return ERR_OK;
}

enum err_code imatrix_parse(struct calibration **out, const void *bytes, size_t size, const char *path,
                            struct err *why)
{
    struct cursor at = { bytes, (const unsigned char *)bytes + size, false };
    *out = NULL;
    const int32_t entries = take_int(&at);
    if (entries < 1)
        return err_set(why, ERR_FORMAT, "'%s' is neither a calibration nor an importance matrix", path);
    struct calibration *c = calibration_new();
    if (!c) return err_set(why, ERR_NOMEM, "out of memory for '%s'", path);
    c->imatrix = true;
    enum err_code rc = ERR_OK;
    for (int i = 0; i < entries && !rc; i++) rc = parse_entry(c, &at, i, path, why);
    if (!rc && at.at < at.end) { /* later writers say how much of which text there was */
        const int32_t chunks = take_int(&at);
        c->sequences = MAX(chunks, 0);
        const char *text = at.at < at.end ? take_text(&at, &c->memory) : "";
        if (text) c->text = text;
        if (at.short_of || at.at < at.end)
            rc = err_set(why, ERR_FORMAT,
                         "'%s': what follows the %d entries of the importance matrix is damaged", path,
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

static int count_exported(const struct calibration *c)
{
    int count = 0;
    for (int i = 0; i < c->name_count; i++) count += imatrix_holds(c->names[i].name);
    return count;
}

static void put_int(FILE *to, int64_t v)
{
    const int32_t n = (int32_t)v;
    fwrite(&n, sizeof n, 1, to);
}

static enum err_code save_legacy(const struct calibration *c, const char *path, struct err *why)
{
    struct atomic_file f;
    const int32_t chunks = (int32_t)MIN(MAX(c->sequences, 1), INT32_MAX);
    enum err_code rc = atomic_file_open(&f, path, why);
    if (rc) return rc;
    put_int(f.stream, count_exported(c));
    for (int i = 0; i < c->name_count; i++) {
        const struct calibration_input *in = &c->inputs[c->names[i].input];
        if (!imatrix_holds(c->names[i].name)) continue;
        put_int(f.stream, (int64_t)strlen(c->names[i].name));
        fputs(c->names[i].name, f.stream);
        put_int(f.stream, in->count == chunks ? in->count : chunks);
        put_int(f.stream, in->cols);
        for (int64_t k = 0; k < in->cols; k++) { /* what was read so is written so, to the bit */
            const float v = in->count == chunks ? in->sum_squares[k] : in->mean_square[k] * (float)chunks;
            fwrite(&v, sizeof v, 1, f.stream);
        }
    }
    put_int(f.stream, chunks);
    put_int(f.stream, (int64_t)strlen(c->text));
    fputs(c->text, f.stream);
    return atomic_file_commit(&f, why);
}

enum err_code imatrix_save(const struct calibration *c, const char *path, struct err *why)
{
    const size_t n = strlen(path);
    if (!count_exported(c))
        return err_set(why, ERR_USAGE, "the calibration holds no matrix of a layer: nothing for '%s'", path);
    return n > 4 && !strcasecmp(path + n - 4, ".dat") ? save_legacy(c, path, why)
                                                      : calibration_write(c, path, CALIBRATION_IMATRIX, why);
}
