/* engine/gguf/gguf_internal.h - declarations shared by the files of engine/gguf. */
#ifndef QDYNO_ENGINE_GGUF_INTERNAL_H
#define QDYNO_ENGINE_GGUF_INTERNAL_H

#include <pthread.h>

#include "engine/gguf/gguf.h"

/* Metadata key: the names of the private tensor types that the file uses (docs/formats.md). */
#define GGUF_OWN_FORMATS "qdyno.formats"

enum {
    GGUF_MAGIC = 0x46554747,      /* "GGUF" read as a little-endian u32 */
    GGUF_ALIGNMENT = 32,          /* when general.alignment is absent, and in files we write */
    GGUF_ALIGNMENT_MAX = 1 << 20, /* far above any real file; keeps sums below 2^63 */
    GGUF_KEY_MAX = 65535,         /* by the specification */
    GGUF_NAME_MAX = 255,          /* ggml writes at most 63; other writers may write more */
    GGUF_DIMS_MAX = 4,
};

/* One file of a model. Tensors point into `data`. */
struct gguf_shard {
    const unsigned char *data;
    size_t size;
    /* Of a file of which only the first `size` bytes are here: its whole size; 0: all are here. */
    uint64_t whole;
    bool cut;            /* output: parsing failed because more bytes of the file are needed */
    struct file_map map; /* owns data; {0} when the bytes are borrowed */
    bool any_type;       /* accept tensors of types without a row in FORMATS */
    int version;
    struct gguf_kv *kv;
    int64_t kv_count;
    struct gguf_tensor *tensors;
    int64_t tensor_count;
};

/* Bytes of a tensor that are computed. */
struct gguf_made {
    gguf_fill_fn *fill;
    const void *how;
    unsigned char *to; /* reserved addresses, a multiple of the page size */
    size_t reserved;
    pthread_mutex_t lock;
    bool filled; /* under lock */
};
void gguf_made_free(struct gguf_made *m); /* NULL is fine */

/* Parse shard->data; all arrays are allocated from `memory`. The caller checks for names that occur
 * twice. ERR_FORMAT, ERR_NOMEM. */
enum err_code gguf_shard_parse(struct gguf_shard *shard, struct arena *memory, struct err *why);

/* Refuse a tensor without a format. Always ERR_FORMAT: the message names the tensor and its type. */
enum err_code gguf_type_error(const struct gguf_tensor *t, struct err *why);

/* Bytes of one value of a scalar type other than string; 0 for strings, arrays and unknown types. */
size_t gguf_type_size(enum gguf_type type);
const char *gguf_type_name(enum gguf_type type); /* "u32"; "unknown" out of range */

#endif
