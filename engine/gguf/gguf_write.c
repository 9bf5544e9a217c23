/* Writing GGUF version 3: the directory is collected in memory, weights stream behind it, and the file
 * appears under its name only when it is whole. */
#include "engine/gguf/gguf_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

struct planned {
    char *name;
    const struct format *format;
    int64_t bytes, offset; /* offset: in the data section */
    int64_t written;       /* bytes of it so far */
};

struct gguf_writer {
    struct atomic_file file;
    struct err failed; /* the first failure; code ERR_OK: none so far */
    struct str kv, headers;
    char **keys;
    int64_t key_count, key_cap;
    struct planned *tensors;
    int64_t tensor_count, tensor_cap;
    struct name_index key_index, tensor_index;
    int64_t data_bytes;  /* of the data section, padding included */
    int64_t data_offset; /* of that section in the file */
    int64_t current;     /* tensor that is being written */
    bool streaming;      /* the header is written: no more declarations */
};

/* GGML_MAX_NAME of the programs that read our files is 64, with the terminating NUL. */
enum { WRITE_NAME_MAX = 63 };

static int64_t data_padded(int64_t n)
{
    return (n + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

static void writer_fail(struct gguf_writer *w, enum err_code code, const char *what, const char *name)
{
    if (!w->failed.code)
        err_set(&w->failed, code, "writing '%s': %s '%s'", w->file.path ? w->file.path : "(memory)", what,
                name);
}

/* Index a name, which stays valid with the writer; one that is known already fails the writer. */
static void writer_index(struct gguf_writer *w, struct name_index *x, const char *name, int64_t i,
                         const char *twice)
{
    switch (name_index_add(x, name, strlen(name), i)) {
    case NAME_ADDED: break;
    case NAME_KNOWN: writer_fail(w, ERR_USAGE, twice, name); break;
    case NAME_NO_MEMORY: writer_fail(w, ERR_NOMEM, "out of memory for", name); break;
    }
}

/* Make room for one more element. On failure the old array stays valid. */
static bool array_grow(void **items, int64_t count, int64_t *cap, size_t size)
{
    if (count < *cap) return true;
    int64_t more = *cap ? *cap * 2 : 64;
    void *p = realloc(*items, (size_t)more * size);
    if (!p) return false;
    *items = p;
    *cap = more;
    return true;
}

typedef enum err_code open_file_fn(struct atomic_file *f, const char *path, struct err *why);

static enum err_code writer_new(struct gguf_writer **out, const char *path, open_file_fn *open_file,
                                struct err *why)
{
    *out = NULL;
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (!w) return err_set(why, ERR_NOMEM, "out of memory writing '%s'", path);
    enum err_code rc = open_file(&w->file, path, why);
    if (rc) {
        free(w);
        return rc;
    }
    *out = w;
    return ERR_OK;
}

enum err_code gguf_writer_open(struct gguf_writer **out, const char *path, struct err *why)
{
    return writer_new(out, path, atomic_file_open, why);
}

enum err_code gguf_writer_resume(struct gguf_writer **out, const char *path, struct err *why)
{
    return writer_new(out, path, atomic_file_resume, why);
}

enum err_code gguf_writer_open_memory(struct gguf_writer **out, struct err *why)
{
    *out = calloc(1, sizeof **out);
    return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for metadata");
}

static void str_append_string(struct str *s, struct gguf_string text)
{
    uint64_t n = text.len;
    str_append_n(s, &n, sizeof n);
    str_append_n(s, text.data, text.len);
}

/* Append a key and its type. False: the writer failed, now or before. */
static bool writer_begin_kv(struct gguf_writer *w, struct gguf_string key, enum gguf_type type)
{
    if (w->failed.code) return false;
    char *name = strndup(key.data, key.len);
    if (!name || !array_grow((void **)&w->keys, w->key_count, &w->key_cap, sizeof *w->keys)) {
        free(name);
        writer_fail(w, ERR_NOMEM, "out of memory for", "metadata");
        return false;
    }
    if (w->streaming) writer_fail(w, ERR_USAGE, "metadata declared after the weights began:", name);
    if (!key.len) writer_fail(w, ERR_USAGE, "an empty metadata key", name);
    writer_index(w, &w->key_index, name, w->key_count, "metadata key put twice:");
    w->keys[w->key_count++] = name;
    if (w->failed.code) return false;
    uint32_t id = type;
    str_append_string(&w->kv, key);
    str_append_n(&w->kv, &id, sizeof id);
    return true;
}

static struct gguf_string string_of(const char *text)
{
    return (struct gguf_string){ text, strlen(text) };
}

static enum err_code writer_status(struct gguf_writer *w)
{
    if (w->kv.failed || w->headers.failed) writer_fail(w, ERR_NOMEM, "out of memory for", "metadata");
    return w->failed.code;
}

static enum err_code writer_put_scalar(struct gguf_writer *w, const char *key, enum gguf_type type,
                                       const void *value)
{
    if (writer_begin_kv(w, string_of(key), type)) str_append_n(&w->kv, value, gguf_type_size(type));
    return writer_status(w);
}

enum err_code gguf_writer_put_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    return writer_put_scalar(w, key, GGUF_U32, &v);
}

enum err_code gguf_writer_put_f32(struct gguf_writer *w, const char *key, float v)
{
    return writer_put_scalar(w, key, GGUF_F32, &v);
}

enum err_code gguf_writer_put_bool(struct gguf_writer *w, const char *key, bool v)
{
    uint8_t byte = v;
    return writer_put_scalar(w, key, GGUF_BOOL, &byte);
}

enum err_code gguf_writer_put_string(struct gguf_writer *w, const char *key, const char *text)
{
    if (writer_begin_kv(w, string_of(key), GGUF_STRING)) str_append_string(&w->kv, string_of(text));
    return writer_status(w);
}

static bool writer_begin_array(struct gguf_writer *w, struct gguf_string key, enum gguf_type element,
                               uint64_t count)
{
    if (!writer_begin_kv(w, key, GGUF_ARRAY)) return false;
    uint32_t id = element;
    str_append_n(&w->kv, &id, sizeof id);
    str_append_n(&w->kv, &count, sizeof count);
    return true;
}

enum err_code gguf_writer_put_array(struct gguf_writer *w, const char *key, enum gguf_type element,
                                    const void *values, uint64_t count)
{
    size_t size = gguf_type_size(element);
    if (!size) writer_fail(w, ERR_USAGE, "an array of strings or arrays:", key);
    if (writer_begin_array(w, string_of(key), element, count))
        str_append_n(&w->kv, values, (size_t)count * size);
    return writer_status(w);
}

enum err_code gguf_writer_put_strings(struct gguf_writer *w, const char *key,
                                      const struct gguf_string *values, uint64_t count)
{
    if (writer_begin_array(w, string_of(key), GGUF_STRING, count))
        for (uint64_t i = 0; i < count; i++) str_append_string(&w->kv, values[i]);
    return writer_status(w);
}

enum err_code gguf_writer_copy_kv(struct gguf_writer *w, const struct gguf_kv *kv)
{
    if (gguf_string_is(kv->key, "general.alignment") || gguf_string_is(kv->key, GGUF_OWN_FORMATS) ||
        (kv->key.len > 6 && !memcmp(kv->key.data, "split.", 6)))
        return w->failed.code;
    bool begun = kv->type == GGUF_ARRAY ? writer_begin_array(w, kv->key, kv->element, kv->count)
                                        : writer_begin_kv(w, kv->key, kv->type);
    if (!begun) return w->failed.code;
    if (kv->element == GGUF_STRING)
        for (uint64_t i = 0; i < kv->count; i++) str_append_string(&w->kv, gguf_kv_string(kv, i));
    else
        str_append_n(&w->kv, kv->data, (size_t)kv->count * gguf_type_size(kv->element));
    return writer_status(w);
}

/* Bytes of a tensor; -1: the shape is impossible in this format. */
static int64_t tensor_bytes(const struct format *f, int dims, const int64_t *shape)
{
    if (dims < 1 || dims > GGUF_DIMS_MAX || shape[0] < 1 || shape[0] % f->block_weights) return -1;
    int64_t n = shape[0] / f->block_weights;
    if (__builtin_mul_overflow(n, (int64_t)f->block_bytes, &n) ||
        __builtin_add_overflow(n, (int64_t)f->row_tail_bytes, &n))
        return -1;
    for (int i = 1; i < dims; i++)
        if (shape[i] < 1 || __builtin_mul_overflow(n, shape[i], &n)) return -1;
    return n <= INT64_MAX / 2 ? n : -1;
}

enum err_code gguf_writer_add_tensor(struct gguf_writer *w, const char *name, const struct format *format,
                                     int dims, const int64_t *shape)
{
    int64_t bytes = tensor_bytes(format, dims, shape);
    if (w->streaming) writer_fail(w, ERR_USAGE, "tensor declared after the weights began:", name);
    if (bytes < 0) writer_fail(w, ERR_USAGE, "no whole blocks or an impossible shape in tensor", name);
    if (!name[0] || strlen(name) > WRITE_NAME_MAX)
        writer_fail(w, ERR_USAGE, "a tensor's name of 0 or over 63 bytes:", name);
    if (w->failed.code) return w->failed.code;

    char *copy = strdup(name);
    if (!copy || !array_grow((void **)&w->tensors, w->tensor_count, &w->tensor_cap, sizeof *w->tensors)) {
        free(copy);
        writer_fail(w, ERR_NOMEM, "out of memory for tensor", name);
        return w->failed.code;
    }
    writer_index(w, &w->tensor_index, copy, w->tensor_count, "tensor declared twice:");
    w->tensors[w->tensor_count++] = (struct planned){ copy, format, bytes, w->data_bytes, 0 };
    uint32_t rank = (uint32_t)dims, type = format->ggml_type;
    uint64_t offset = (uint64_t)w->data_bytes;
    str_append_string(&w->headers, string_of(name));
    str_append_n(&w->headers, &rank, sizeof rank);
    str_append_n(&w->headers, shape, (size_t)dims * sizeof *shape);
    str_append_n(&w->headers, &type, sizeof type);
    str_append_n(&w->headers, &offset, sizeof offset);
    w->data_bytes += data_padded(bytes);
    return writer_status(w);
}

static void writer_emit(struct gguf_writer *w, const void *bytes, size_t n)
{
    if (w->failed.code || !n || fwrite(bytes, 1, n, w->file.stream) == n) return;
    writer_fail(w, err_of_errno(errno), "cannot write:", strerror(errno));
}

/* List our own types in the metadata: "int8=1002 nf4=1030". */
static void writer_put_own_formats(struct gguf_writer *w)
{
    struct str text = { 0 };
    for (int f = 0; f < FORMAT_COUNT; f++) {
        bool used = false;
        for (int64_t i = 0; i < w->tensor_count && !used; i++) used = w->tensors[i].format == &FORMATS[f];
        if (used && FORMATS[f].ggml_type >= FORMAT_OWN_TYPES)
            str_printf(&text, "%s%s=%" PRIu32, text.len ? " " : "", FORMATS[f].name, FORMATS[f].ggml_type);
    }
    if (text.failed) writer_fail(w, ERR_NOMEM, "out of memory for", "metadata");
    if (text.len) gguf_writer_put_string(w, GGUF_OWN_FORMATS, str_text(&text));
    str_free(&text);
}

static void writer_seek(struct gguf_writer *w, int64_t to)
{
    if (!w->failed.code && fseeko(w->file.stream, to, SEEK_SET))
        writer_fail(w, err_of_errno(errno), "cannot write:", strerror(errno));
}

/* An unfinished file has one byte per tensor after the weights: 1 when the whole tensor is on disk. Returns
 * the offset of these marks. */
static int64_t writer_marks_offset(const struct gguf_writer *w)
{
    return w->data_offset + w->data_bytes;
}

/* Keep the tensors that an earlier writer finished, if its header was identical. */
static void writer_keep_finished(struct gguf_writer *w, const struct str *header)
{
    char *before = malloc(header->len + (size_t)w->tensor_count + 1);
    if (!before) {
        writer_fail(w, ERR_NOMEM, "out of memory for", "metadata");
        return;
    }
    char *marks = before + header->len;
    const bool same = fread(before, 1, header->len, w->file.stream) == header->len &&
                      !memcmp(before, header->data, header->len);
    writer_seek(w, writer_marks_offset(w));
    const size_t n = same ? fread(marks, 1, (size_t)w->tensor_count, w->file.stream) : 0;
    for (size_t i = 0; i < n; i++)
        if (marks[i] == 1) w->tensors[i].written = w->tensors[i].bytes;
    if (!same && ftruncate(fileno(w->file.stream), 0))
        writer_fail(w, err_of_errno(errno), "cannot start anew:", strerror(errno));
    free(before);
}

/* The header, padded to where the weights begin. */
static void writer_header(struct gguf_writer *w, struct str *header)
{
    const struct {
        uint32_t magic, version;
        uint64_t tensors, kvs;
    } head = { GGUF_MAGIC, 3, (uint64_t)w->tensor_count, (uint64_t)w->key_count };
    str_append_n(header, &head, sizeof head);
    str_append_n(header, w->kv.data, w->kv.len);
    str_append_n(header, w->headers.data, w->headers.len);
    static const char ZEROS[GGUF_ALIGNMENT];
    str_append_n(header, ZEROS, (size_t)(data_padded((int64_t)header->len) - (int64_t)header->len));
    if (header->failed) writer_fail(w, ERR_NOMEM, "out of memory for", "metadata");
}

static void writer_write_header(struct gguf_writer *w)
{
    struct str header = { 0 };
    writer_put_own_formats(w);
    writer_header(w, &header);
    w->streaming = true;
    w->data_offset = (int64_t)header.len;
    if (!w->failed.code && w->file.keep) writer_keep_finished(w, &header);
    writer_seek(w, 0);
    writer_emit(w, str_text(&header), header.len);
    str_free(&header);
}

static enum err_code writer_error(const struct gguf_writer *w, struct err *why)
{
    return w->failed.code ? err_set(why, w->failed.code, "%s", w->failed.message) : ERR_OK;
}

enum err_code gguf_writer_preview(struct gguf_writer *w, struct str *out, struct err *why)
{
    static const char ZEROS[4096];
    writer_header(w, out);
    for (int64_t left = w->data_bytes; left > 0 && !out->failed; left -= (int64_t)sizeof ZEROS)
        str_append_n(out, ZEROS, (size_t)MIN(left, (int64_t)sizeof ZEROS));
    if (out->failed) writer_fail(w, ERR_NOMEM, "out of memory for", "metadata");
    return writer_error(w, why);
}

static struct planned *writer_find_tensor(struct gguf_writer *w, const char *tensor)
{
    if (!w->failed.code && !w->streaming) writer_write_header(w);
    const int64_t i = name_index_find(&w->tensor_index, tensor, strlen(tensor));
    return i >= 0 ? &w->tensors[i] : NULL;
}

bool gguf_writer_finished(struct gguf_writer *w, const char *tensor)
{
    const struct planned *t = writer_find_tensor(w, tensor);
    return t && t->written == t->bytes;
}

enum err_code gguf_writer_select(struct gguf_writer *w, const char *tensor, struct err *why)
{
    struct planned *t = writer_find_tensor(w, tensor);
    if (!t) {
        writer_fail(w, ERR_USAGE, "no tensor was declared as", tensor);
        return writer_error(w, why);
    }
    w->current = t - w->tensors;
    t->written = 0;
    writer_seek(w, w->data_offset + t->offset);
    return writer_error(w, why);
}

/* The tensor is complete: mark it for a resuming writer, after its bytes reached the disk. */
static void writer_finish_tensor(struct gguf_writer *w)
{
    static const char MARK = 1;
    const struct planned *t = &w->tensors[w->current];
    if (w->file.keep) {
        if (fflush(w->file.stream) || fdatasync(fileno(w->file.stream)))
            writer_fail(w, err_of_errno(errno), "cannot write:", strerror(errno));
        writer_seek(w, writer_marks_offset(w) + w->current);
        writer_emit(w, &MARK, 1);
    }
    writer_seek(w, w->data_offset + t->offset + data_padded(t->bytes));
    w->current++;
}

enum err_code gguf_writer_write(struct gguf_writer *w, const void *bytes, int64_t n, struct err *why)
{
    const char *p = bytes;
    if (!w->failed.code && !w->streaming) writer_write_header(w);
    while (n > 0 && !w->failed.code) {
        if (w->current == w->tensor_count) {
            writer_fail(w, ERR_USAGE, "more weights than were declared, after", "the last tensor");
            break;
        }
        struct planned *t = &w->tensors[w->current];
        const int64_t part = MIN(n, t->bytes - t->written);
        writer_emit(w, p, (size_t)part);
        p += part;
        n -= part;
        t->written += part;
        if (t->written == t->bytes) writer_finish_tensor(w);
    }
    return writer_error(w, why);
}

/* Cut the file to its final length: padding after the last tensor, no marks. */
static void writer_set_length(struct gguf_writer *w)
{
    if (w->failed.code) return;
    if (fflush(w->file.stream) || ftruncate(fileno(w->file.stream), writer_marks_offset(w)))
        writer_fail(w, err_of_errno(errno), "cannot write:", strerror(errno));
}

enum err_code gguf_writer_commit(struct gguf_writer *w, struct err *why)
{
    if (!w->failed.code && !w->streaming) writer_write_header(w);
    for (int64_t i = 0; i < w->tensor_count && !w->failed.code; i++)
        if (w->tensors[i].written < w->tensors[i].bytes)
            writer_fail(w, ERR_USAGE, "weights missing, from tensor", w->tensors[i].name);
    writer_set_length(w);
    enum err_code rc = writer_error(w, why);
    if (!rc) rc = atomic_file_commit(&w->file, why);
    gguf_writer_abort(w);
    return rc;
}

void gguf_writer_discard(struct gguf_writer *w)
{
    if (w) w->file.keep = false;
    gguf_writer_abort(w);
}

void gguf_writer_abort(struct gguf_writer *w)
{
    if (!w) return;
    atomic_file_abort(&w->file);
    for (int64_t i = 0; i < w->key_count; i++) free(w->keys[i]);
    for (int64_t i = 0; i < w->tensor_count; i++) free(w->tensors[i].name);
    free(w->keys);
    name_index_free(&w->key_index);
    name_index_free(&w->tensor_index);
    free(w->tensors);
    str_free(&w->kv);
    str_free(&w->headers);
    free(w);
}
