/* A GGUF file with a recipe applied to it: metadata copied, tensors converted a few megabytes at a time on
 * all threads, nothing at the target path until all of it is written. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/quant.h"

enum { CHUNK_FLOATS = 1 << 20, QUANTIZATION_VERSION = 2 };

/* general.file_type as the field numbers it, for readers that show it. */
static const struct {
    enum format_id format;
    uint32_t file_type;
} FILE_TYPES[] = { { FORMAT_F32, 0 },     { FORMAT_F16, 1 },     { FORMAT_Q4_0, 2 },  { FORMAT_Q4_1, 3 },
                   { FORMAT_Q8_0, 7 },    { FORMAT_Q5_0, 8 },    { FORMAT_Q5_1, 9 },  { FORMAT_Q2_K, 10 },
                   { FORMAT_Q3_K, 12 },   { FORMAT_Q4_K, 15 },   { FORMAT_Q5_K, 17 }, { FORMAT_Q6_K, 18 },
                   { FORMAT_IQ4_NL, 25 }, { FORMAT_IQ4_XS, 30 }, { FORMAT_BF16, 32 } };

/* Written anew, or true of the source's container only. */
static const char *const DROPPED_KEYS[] = { "general.file_type",  "general.quantization_version",
                                            "general.alignment",  "qdyno.recipe",
                                            "split.no",           "split.count",
                                            "split.tensors.count" };

/* One chunk of whole rows, converted by all members. */
struct chunk {
    const struct gguf_tensor *source;
    const struct format *format;
    const struct method *method;
    int64_t first_row, rows;
    float *x;
    unsigned char *out;
    _Atomic int64_t bad; /* first index in the tensor that is not finite, or -1 */
};

static bool is_plain(const struct format *f)
{
    return f == &FORMATS[FORMAT_F32] || f == &FORMATS[FORMAT_F16] || f == &FORMATS[FORMAT_BF16];
}

static void note_bad(struct chunk *c, int64_t at)
{
    int64_t seen = atomic_load(&c->bad);
    while ((seen < 0 || at < seen) && !atomic_compare_exchange_weak(&c->bad, &seen, at)) continue;
}

static void convert_rows(void *arg, int member, int size)
{
    struct chunk *c = arg;
    const int64_t cols = c->source->shape[0], from = c->rows * member / size,
                  to = c->rows * (member + 1) / size;
    if (from == to) return;
    float *x = c->x + from * cols;
    const int64_t n = (to - from) * cols, at = (c->first_row + from) * cols;
    format_decode_rows(c->source->format,
                       c->source->data + (c->first_row + from) * format_row_bytes(c->source->format, cols), x,
                       to - from, cols);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) {
            note_bad(c, at + i);
            return;
        }
    unsigned char *out = c->out + from * format_row_bytes(c->format, cols);
    if (is_plain(c->format) || !c->method)
        format_encode_rows(c->format, x, out, to - from, cols);
    else
        c->method->quantize_rows(x, out, to - from, cols, c->format);
}

/* What the whole job carries from tensor to tensor. */
struct job {
    const struct quantize_options *options;
    const struct method *method;
    struct threadpool *pool;
    struct gguf_writer *writer;
    float *x;
    unsigned char *out;
    int64_t done, total; /* source bytes, for progress */
};

static int64_t tensor_rows(const struct gguf_tensor *t)
{
    return t->shape[1] * t->shape[2] * t->shape[3];
}

static int64_t rows_at_once(int64_t cols)
{
    return MAX(CHUNK_FLOATS / cols, 1);
}

static enum err_code report(struct job *j, int64_t bytes, struct err *why)
{
    const struct quantize_options *o = j->options;
    j->done += bytes;
    if (o->progress && !o->progress(o->ctx, j->total ? (double)j->done / (double)j->total : 1))
        return err_set(why, ERR_CANCELLED, "cancelled");
    return ERR_OK;
}

static enum err_code convert_tensor(struct job *j, const struct gguf_tensor *t, const struct format *format,
                                    struct err *why)
{
    const int64_t cols = t->shape[0], rows = tensor_rows(t), step = rows_at_once(cols);
    for (int64_t first = 0; first < rows; first += step) {
        struct chunk c = { .source = t,
                           .format = format,
                           .method = j->method,
                           .first_row = first,
                           .rows = MIN(step, rows - first),
                           .x = j->x,
                           .out = j->out };
        atomic_init(&c.bad, -1);
        threadpool_run(j->pool, convert_rows, &c);
        const int64_t bad = atomic_load(&c.bad);
        if (bad >= 0)
            return err_set(why, ERR_FORMAT, "tensor '%s': value %" PRId64 " is not a finite number", t->name,
                           bad);
        enum err_code rc = gguf_writer_write(j->writer, j->out, c.rows * format_row_bytes(format, cols), why);
        if (!rc) rc = report(j, c.rows * format_row_bytes(t->format, cols), why);
        if (rc) return rc;
    }
    return ERR_OK;
}

static enum err_code copy_tensor(struct job *j, const struct gguf_tensor *t, struct err *why)
{
    enum { PIECE = 16 << 20 };
    for (int64_t at = 0; at < t->bytes; at += PIECE) {
        const int64_t n = MIN(PIECE, t->bytes - at);
        enum err_code rc = gguf_writer_write(j->writer, t->data + at, n, why);
        if (!rc) rc = report(j, n, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

static bool is_dropped(const struct gguf_kv *kv)
{
    for (size_t i = 0; i < COUNT_OF(DROPPED_KEYS); i++)
        if (gguf_string_is(kv->key, DROPPED_KEYS[i])) return true;
    return false;
}

static enum err_code write_metadata(struct gguf_writer *w, const struct gguf *source,
                                    const struct config *config)
{
    char recipe[2 * CONFIG_VALUE];
    enum err_code rc = ERR_OK;
    for (int64_t i = 0; i < gguf_kv_count(source) && !rc; i++)
        if (!is_dropped(gguf_kv_at(source, i))) rc = gguf_writer_copy_kv(w, gguf_kv_at(source, i));
    if (rc) return rc;
    const struct format *f = format_find(config_text(config, KNOB_FORMAT));
    for (size_t i = 0; f && i < COUNT_OF(FILE_TYPES) && !rc; i++)
        if (f == &FORMATS[FILE_TYPES[i].format])
            rc = gguf_writer_put_u32(w, "general.file_type", FILE_TYPES[i].file_type);
    if (!rc) rc = gguf_writer_put_u32(w, "general.quantization_version", QUANTIZATION_VERSION);
    if (!rc) rc = gguf_writer_put_string(w, "qdyno.recipe", config_recipe(config, recipe, sizeof recipe));
    return rc;
}

/* Everything that can be refused from headers alone is refused before a byte is written. */
static enum err_code check_tensor(const struct gguf_tensor *t, const struct format *format, struct err *why)
{
    if (format == t->format) return ERR_OK;
    if (!is_plain(t->format))
        return err_set(
            why, ERR_USAGE,
            "tensor '%s' is %s already: quantizing it again to %s would hide what is measured; use an f32, "
            "f16 or bf16 file",
            t->name, t->format->name, format->name);
    if (!format->encode)
        return err_set(why, ERR_USAGE, "tensor '%s': %s is known but cannot be made yet", t->name,
                       format->name);
    return ERR_OK;
}

static enum err_code declare(struct job *j, const struct gguf *source, struct err *why)
{
    const struct config *config = j->options->config;
    int64_t row_floats = CHUNK_FLOATS, out_bytes = 1;
    enum err_code rc = write_metadata(j->writer, source, config);
    for (int64_t i = 0; i < gguf_tensor_count(source) && !rc; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(source, i);
        const struct format *format = recipe_tensor_format(config, t, NULL);
        if ((rc = check_tensor(t, format, why))) return rc;
        rc = gguf_writer_add_tensor(j->writer, t->name, format, t->dims, t->shape);
        row_floats = MAX(row_floats, t->shape[0]);
        out_bytes = MAX(out_bytes, rows_at_once(t->shape[0]) * format_row_bytes(format, t->shape[0]));
        j->total += t->bytes;
    }
    if (rc) return err_set(why, rc, "cannot describe the quantized file: %s", err_text(rc));
    j->x = malloc((size_t)row_floats * sizeof(float));
    j->out = malloc((size_t)out_bytes);
    if (!j->x || !j->out) return err_set(why, ERR_NOMEM, "out of memory while quantizing");
    return ERR_OK;
}

enum err_code quantize_file(const char *out_path, const struct gguf *source, const struct quantize_options *o,
                            struct err *why)
{
    struct job j = { .options = o, .method = method_find(config_text(o->config, KNOB_METHOD)) };
    const struct threadpool_options pool = { .threads = MAX(o->threads, 1) };
    enum err_code rc;
    if ((rc = threadpool_open(&j.pool, &pool, why))) goto done;
    if ((rc = gguf_writer_open(&j.writer, out_path, why))) goto done;
    if ((rc = declare(&j, source, why))) goto done;
    for (int64_t i = 0; i < gguf_tensor_count(source) && !rc; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(source, i);
        const struct format *format = recipe_tensor_format(o->config, t, NULL);
        rc = format == t->format ? copy_tensor(&j, t, why) : convert_tensor(&j, t, format, why);
    }
    if (!rc) {
        rc = gguf_writer_commit(j.writer, why);
        j.writer = NULL;
    }
done:
    gguf_writer_abort(j.writer);
    threadpool_close(j.pool);
    free(j.x);
    free(j.out);
    return rc;
}
