/* engine/gguf/gguf.h - GGUF files: reads them by mapping, writes them completely or not at all.
 *
 * Files are untrusted: every count, length, offset, type and shape is checked against the size of the file
 * before it is used. Reads versions 1 (32-bit counts and lengths), 2 and 3, little-endian; writes version 3.
 * A model in several shards (NAME-00001-of-00003.gguf) opens as one when the first shard is given. Source:
 * the GGUF specification in ggml's docs/gguf.md. */
#ifndef QDYNO_ENGINE_GGUF_H
#define QDYNO_ENGINE_GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct format; /* kernels/kernels.h */

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
};

/* Bytes in the mapped file: not NUL-terminated, any byte may occur. */
struct gguf_string {
    const char *data;
    size_t len;
};

struct gguf_kv {
    struct gguf_string key;
    enum gguf_type type;
    enum gguf_type element;    /* of an array (never GGUF_ARRAY: nested arrays are refused); else = type */
    uint64_t count;            /* elements of an array, 1 otherwise */
    const unsigned char *data; /* first value, unaligned */
    const uint64_t *string_at; /* array of strings: offset of each from data (owned by the gguf); else NULL */
    int length_bytes;          /* of the length in front of a string's bytes: 8, or 4 in version 1 */
};

struct gguf_tensor {
    const char *name;            /* NUL-terminated copy, owned by the gguf */
    const struct format *format; /* a row of FORMATS; NULL only in files of gguf_open_any_type */
    uint32_t type;               /* its number in the file */
    const char *type_name;     /* of the format, else in ggml or in this file; NULL: the number has no name */
    int dims;                  /* 1 to 4 */
    int64_t shape[4];          /* shape[0] is the row length (fastest); unused ones are 1 */
    const unsigned char *data; /* NULL if `made` is set: use gguf_tensor_data */
    int64_t bytes; /* without a format: up to the next tensor or the end of the file, padding included */
    struct gguf_made *made; /* the bytes do not lie in a file as they are; NULL: they do */
};

struct gguf;

/* Metadata key of a quantized file: the SHA-256 of its source. */
#define SOURCE_KEY "qdyno.source"

/* *out owned: gguf_close. Errors: ERR_IO (cannot open), ERR_FORMAT (what was wanted, what the file has),
 * ERR_NOMEM. */
enum err_code gguf_open(struct gguf **out, const char *path, struct err *why);
/* The same for bytes in memory, which must outlive *out. A shard of several is ERR_FORMAT. */
enum err_code gguf_open_memory(struct gguf **out, const void *bytes, size_t size, struct err *why);
/* The same for descriptions of a file that cannot run: tensors of types without a row in FORMATS are
 * accepted, and their format is NULL. Give such a file only to functions that say so. */
enum err_code gguf_open_any_type(struct gguf **out, const char *path, struct err *why);
enum err_code gguf_open_memory_any_type(struct gguf **out, const void *bytes, size_t size, struct err *why);
/* Is this the whole header of a file of `file_bytes`, of which the first n bytes are here? *more: the header
 * is correct so far, and goes on behind them. Errors: ERR_FORMAT, also if *more; ERR_NOMEM. */
enum err_code gguf_header_check(const void *bytes, size_t n, int64_t file_bytes, bool *more, struct err *why);
/* ERR_FORMAT: a tensor has no format. The message is the one with which gguf_open refuses the file. */
enum err_code gguf_check_types(const struct gguf *g, struct err *why);
void gguf_close(struct gguf *g); /* NULL is fine */

const char *gguf_path(const struct gguf *g);
int gguf_version(const struct gguf *g);
int gguf_shards(const struct gguf *g);
int64_t gguf_file_bytes(const struct gguf *g); /* all shards */

int64_t gguf_kv_count(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, int64_t i);
const struct gguf_kv *gguf_kv_find(const struct gguf *g, const char *key); /* NULL when absent */

/* Typed look-ups. `otherwise` is returned when the key is absent or its value cannot be converted without
 * loss. */
int64_t gguf_get_int(const struct gguf *g, const char *key, int64_t otherwise);
double gguf_get_num(const struct gguf *g, const char *key, double otherwise);
bool gguf_get_bool(const struct gguf *g, const char *key, bool otherwise);
/* Borrowed bytes; {NULL,0} when absent or not a string. */
struct gguf_string gguf_get_string(const struct gguf *g, const char *key);
bool gguf_string_is(struct gguf_string s, const char *text);
/* Element i < count of an array as a number (NAN: not a number) and as a string ({0}: not a string). */
double gguf_kv_num(const struct gguf_kv *kv, uint64_t i);
struct gguf_string gguf_kv_string(const struct gguf_kv *kv, uint64_t i);

int64_t gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, int64_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g,
                                           const char *name); /* NULL when absent; hashed */

/* The bytes of a tensor [t->bytes], valid until gguf_tensor_drop or gguf_close. Bytes that do not lie in a
 * file as they are (gguf_assemble) are computed by the first call. Any thread may call it. */
const unsigned char *gguf_tensor_data(const struct gguf_tensor *t);
/* Give up the memory of bytes that were computed, and the pages of bytes that are mapped: a later
 * gguf_tensor_data computes or reads them again. No thread may use them meanwhile. */
void gguf_tensor_drop(const struct gguf_tensor *t);

/* ERR_FORMAT: a file changed since it was opened (file_map_check). Bytes in memory are not checked. */
enum err_code gguf_check_unchanged(const struct gguf *g, struct err *why);
/* The same, but only for bytes that were missing when they were read (file_map_check_read): for every step of
 * long work. */
enum err_code gguf_check_read(const struct gguf *g, struct err *why);
/* Read the present state of the file; of a model of several files, one that changes whenever one of theirs
 * does. False: a file changed since it was opened, or the model is in memory. */
bool gguf_state(const struct gguf *g, struct file_state *now);

/* Is the file with this inode (stat) one of those that the model was opened from? Of a checkpoint, also
 * config.json and the other files that were read. */
bool gguf_has_file(const struct gguf *g, uint64_t device, uint64_t inode);

/* The model's identity: SHA-256 of the file; of a sharded model, SHA-256 of the list of the shards' hashes,
 * one per line. Reads the whole file. ERR_IO, ERR_NOMEM. */
enum err_code gguf_hash(const struct gguf *g, char hex[HASH_HEX], struct err *why);

/* ---------------------------------------------------------------- models in files of other kinds */

/* Compute the bytes of a tensor: to [t->bytes], zeros before. It cannot fail: what it needs was checked when
 * the model was assembled. `how` is the caller's. */
typedef void gguf_fill_fn(const void *how, const struct gguf_tensor *t, unsigned char *to);

/* What a model consists of whose files are no GGUF files (engine/import). gguf_assemble takes all of it over,
 * also on an error; {0} is empty. */
struct gguf_parts {
    struct str header;      /* bytes of a GGUF file with the metadata and without tensors */
    struct arena memory;    /* what the tensors point to */
    struct file_map *files; /* [file_count] all files of the model: malloc */
    int file_count;
    int weight_files;            /* how many of them have weights: gguf_shards */
    struct gguf_tensor *tensors; /* [tensor_count] in memory; `data` set, or given to gguf_parts_make */
    int64_t tensor_count;
};
/* Let `fill` compute the bytes of t, whose format and shape are set. Reserves addresses, no memory.
 * ERR_NOMEM. */
enum err_code gguf_parts_make(struct gguf_parts *p, struct gguf_tensor *t, gguf_fill_fn *fill,
                              const void *how, struct err *why);
/* What gguf_parts_make was given as `how` for a tensor of this `fill`; NULL: it was not. */
const void *gguf_tensor_how(const struct gguf_tensor *t, gguf_fill_fn *fill);
/* *out owned: gguf_close. `path`: what the user calls the model. Its identity is that of its files, as for
 * shards. ERR_FORMAT: a key or tensor occurs twice; ERR_NOMEM. */
enum err_code gguf_assemble(struct gguf **out, const char *path, struct gguf_parts *parts, struct err *why);
void gguf_parts_free(struct gguf_parts *p); /* parts that were not assembled */
/* Are these GGUF files (gguf_open), not a model of gguf_assemble? */
bool gguf_is_file(const struct gguf *g);

/* Writing: declare all metadata and tensors, then write tensor data, in the declared order or in any order of
 * tensors (gguf_writer_select). Version 3, alignment 32. gguf_writer_open -> put_* / copy_kv -> add_tensor
 * (all) -> write (all) -> commit. Nothing appears at `path` before commit. After the first failure all calls
 * return the same error, and commit returns its message, so a caller may check commit alone. A key or tensor
 * name that is declared twice is ERR_USAGE. copy_kv skips general.alignment and split.*, which describe the
 * layout of the source, not the model. */
struct gguf_writer;
enum err_code gguf_writer_open(struct gguf_writer **out, const char *path, struct err *why);
/* The same without a file, for gguf_writer_preview: commit, select and write are not allowed. */
enum err_code gguf_writer_open_memory(struct gguf_writer **out, struct err *why);
/* The same for long work. When the writer is aborted or its process dies, PATH.partial keeps what was
 * written. A later writer that declares the same header keeps the tensors that were finished
 * (gguf_writer_finished). ERR_IO: another process is writing the file. */
enum err_code gguf_writer_resume(struct gguf_writer **out, const char *path, struct err *why);
enum err_code gguf_writer_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
enum err_code gguf_writer_put_f32(struct gguf_writer *w, const char *key, float v);
enum err_code gguf_writer_put_bool(struct gguf_writer *w, const char *key, bool v);
enum err_code gguf_writer_put_string(struct gguf_writer *w, const char *key, const char *text);
/* element: any scalar type except string. values: [count] packed, little-endian. */
enum err_code gguf_writer_put_array(struct gguf_writer *w, const char *key, enum gguf_type element,
                                    const void *values, uint64_t count);
enum err_code gguf_writer_put_strings(struct gguf_writer *w, const char *key,
                                      const struct gguf_string *values, uint64_t count);
enum err_code gguf_writer_copy_kv(struct gguf_writer *w, const struct gguf_kv *kv);
enum err_code gguf_writer_add_tensor(struct gguf_writer *w, const char *name, const struct format *format,
                                     int dims, const int64_t *shape);
/* Append to *out (empty) the file that the declarations so far describe, with zeros for weights: the bytes of
 * gguf_open_memory, for those who need to know what a reader makes of the metadata. The writer goes on as if
 * nothing happened. */
enum err_code gguf_writer_preview(struct gguf_writer *w, struct str *out, struct err *why);
/* Append n bytes to the current tensor. When it is full, the next declared tensor becomes the current one. */
enum err_code gguf_writer_write(struct gguf_writer *w, const void *bytes, int64_t n, struct err *why);
/* Make this tensor the current one, at its first byte. No declarations after this call. */
enum err_code gguf_writer_select(struct gguf_writer *w, const char *tensor, struct err *why);
/* Is the whole tensor written, by this writer or an earlier one? No declarations after this call. */
bool gguf_writer_finished(struct gguf_writer *w, const char *tensor);
enum err_code gguf_writer_commit(struct gguf_writer *w, struct err *why); /* frees w in any case */
void gguf_writer_abort(struct gguf_writer *w);                            /* NULL is fine */
void gguf_writer_discard(struct gguf_writer *w); /* the same, and removes PATH.partial; NULL is fine */

#endif
