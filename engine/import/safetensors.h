/* engine/import/safetensors.h - parses one safetensors file. Source: huggingface/safetensors, README and
 * safetensors/src/tensor.rs. */
#ifndef QDYNO_ENGINE_IMPORT_SAFETENSORS_H
#define QDYNO_ENGINE_IMPORT_SAFETENSORS_H

#include <stdint.h>

#include "base/base.h"

/* X(name in files, bits of a number): every type of the specification. */
#define ST_TYPES(X)                                                                                          \
    X(BOOL, 8)                                                                                               \
    X(U8, 8)                                                                                                 \
    X(I8, 8)                                                                                                 \
    X(I16, 16)                                                                                               \
    X(U16, 16)                                                                                               \
    X(F16, 16)                                                                                               \
    X(BF16, 16)                                                                                              \
    X(I32, 32)                                                                                               \
    X(U32, 32)                                                                                               \
    X(F32, 32)                                                                                               \
    X(I64, 64)                                                                                               \
    X(U64, 64)                                                                                               \
    X(F64, 64)                                                                                               \
    X(C64, 64)                                                                                               \
    X(F8_E5M2, 8)                                                                                            \
    X(F8_E4M3, 8)                                                                                            \
    X(F8_E8M0, 8)                                                                                            \
    X(F8_E5M2FNUZ, 8)                                                                                        \
    X(F8_E4M3FNUZ, 8)                                                                                        \
    X(F4, 4)                                                                                                 \
    X(F6_E2M3, 6)                                                                                            \
    X(F6_E3M2, 6)

#define ST_ENUM(name, bits) ST_##name,
enum st_type { ST_TYPES(ST_ENUM) ST_TYPE_COUNT };

enum { ST_DIMS_MAX = 8 };

struct st_tensor {
    const char *name; /* NUL-terminated, in the arena */
    enum st_type type;
    int dims;                   /* 0: one number */
    int64_t shape[ST_DIMS_MAX]; /* row-major: the last one is the fastest; unused ones are 1 */
    int64_t count;              /* numbers */
    const unsigned char *data;  /* in the file, unaligned */
    int64_t bytes;
    bool used; /* for the caller: some tensor of the model is made from it */
};

const char *st_type_name(enum st_type type);

/* Parse a whole file. *out [*count] is allocated from `memory`, and so are the names. The data is checked: no
 * tensor leaves the file or overlaps another, and together they cover all bytes behind the header.
 * ERR_FORMAT, ERR_NOMEM. */
enum err_code safetensors_parse(struct st_tensor **out, int64_t *count, const unsigned char *data,
                                size_t size, struct arena *memory, struct err *why);

#endif
