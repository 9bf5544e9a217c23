/* engine/import/export_internal.h - shared by the files that write a checkpoint. */
#ifndef QDYNO_ENGINE_IMPORT_EXPORT_INTERNAL_H
#define QDYNO_ENGINE_IMPORT_EXPORT_INTERNAL_H

#include "engine/import/checkpoint.h"
#include "engine/import/export.h"

/* How the bytes of a tensor are made. */
enum piece_kind {
    PIECE_COPY,   /* the checkpoint's own */
    PIECE_FLOATS, /* of our tensor, as F32 */
    PIECE_CODES,
    PIECE_ZEROS,
    PIECE_SCALES,
    PIECE_GROUPS, /* the group of each column (act-order) */
    PIECE_SHAPE,  /* rows and columns */
};

/* A tensor of the new checkpoint. */
struct piece {
    const char *name; /* in the arena */
    enum piece_kind kind;
    enum st_type type;
    int dims;
    int64_t shape[2], bytes;
    const struct st_tensor *from; /* COPY; FLOATS: the tensor that it replaces */
    const struct origin *origin;
    const struct gguf_tensor *made;
    const float
        *order; /* of a quantized matrix: column i of ours is column order[i] of theirs; NULL: the same */
};

struct exporter {
    struct checkpoint c;
    const struct gguf *made;
    enum export_kind kind;
    int64_t shard_bytes;
    struct arena memory;
    struct piece *pieces; /* [count] */
    int64_t count, room;
    struct export_report report;
    bool zero_of_0; /* a zero point is 0, which the first version of GPTQ's format cannot hold */
    json_t *kept;   /* names of the modules whose matrices stay in floats */
    import_step_fn *step;
    void *ctx;
};

/* export_pack.c: the bytes of a piece. *out [p->bytes], owned by the caller. ERR_NOMEM, ERR_INTERNAL. */
enum err_code piece_fill(unsigned char **out, const struct exporter *e, const struct piece *p,
                         struct err *why);
/* Check that a quantized matrix fits, and note what the config must say of it. ERR_USAGE. */
enum err_code matrix_check(struct exporter *e, const struct gguf_tensor *t, const float *order,
                           struct err *why);

/* Whether two quantized matrices have the same codes, scales and zero points for every weight. Orders of
 * columns as in struct piece: two that sort the columns of a group differently are the same. ERR_NOMEM,
 * ERR_USAGE. */
enum err_code matrices_compare(bool *same, const struct gguf_tensor *a, const float *order_a,
                               const struct gguf_tensor *b, const float *order_b, struct err *why);

/* export_files.c: write all pieces, the config and the files of the tokenizer into the folder `to`, which is
 * empty and ends with a slash. ERR_IO, ERR_NOMEM, what the step returns. */
enum err_code export_files(struct exporter *e, const char *to, struct err *why);

#endif
