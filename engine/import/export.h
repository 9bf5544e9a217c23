/* engine/import/export.h - the way back: a model that was quantized from a Hugging Face checkpoint as a
 * checkpoint that other programs load.
 *
 * Codes, scales and zero points of our group formats go over unchanged; embedding and output matrix, and the
 * tokenizer's files, are those of the original checkpoint. Norms that the method changed (AWQ folds its
 * scales into them) are written as F32. Layouts: /docs/import.md. */
#ifndef QDYNO_ENGINE_IMPORT_EXPORT_H
#define QDYNO_ENGINE_IMPORT_EXPORT_H

#include "engine/gguf/gguf.h"
#include "engine/import/import.h"

enum export_kind { EXPORT_GPTQ, EXPORT_AWQ, EXPORT_PACKED, EXPORT_KIND_COUNT };
extern const char *const EXPORT_NAMES[]; /* by kind: "gptq" "awq" "compressed-tensors"; NULL at the end */

struct export_report {
    int64_t matrices, copied; /* quantized matrices; tensors that are the checkpoint's own bytes */
    int64_t
        verified;  /* matrices that were read back with the same codes, scales and zero points: all of them */
    int64_t bytes; /* of all weight files */
    int bits, files;
    int64_t group;
    bool act_order, symmetric;
};

struct export_options {
    enum export_kind kind;
    int64_t shard_bytes; /* largest weight file, unless one tensor alone is larger; 0: 4 GiB */
};

/* Write `folder`, which must not exist. checkpoint: the folder from which `made` was quantized. Nothing
 * appears at `folder` before it is whole and every matrix was read back equal to that of `made`. Memory: the
 * unpacked codes of one matrix. `step` as in import_write. Errors: ERR_USAGE (the folder exists; the
 * kind cannot hold a tensor, by name); ERR_FORMAT; ERR_IO; ERR_NOMEM; ERR_INTERNAL: a matrix is read back
 * differently; what `step` returns. */
enum err_code export_write(struct export_report *out, const char *checkpoint, const struct gguf *made,
                           const char *folder, const struct export_options *options, import_step_fn *step,
                           void *ctx, struct err *why);

#endif
