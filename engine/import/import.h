/* engine/import/import.h - Hugging Face checkpoints: a folder with config.json and safetensors files opens as
 * a model like any other (struct gguf), without a copy of its weights.
 *
 * Metadata comes from config.json, the tokenizer from tokenizer.json, the tensors from *.safetensors.
 * Matrices whose numbers the engine can use as they are stay in the mapped files; others are put into our
 * order or packing when they are needed (gguf_tensor_data): rows in the order of our RoPE, codes and scales
 * of quantized matrices in one of our formats, unchanged. The files are untrusted and checked like GGUF
 * files. */
#ifndef QDYNO_ENGINE_IMPORT_H
#define QDYNO_ENGINE_IMPORT_H

#include <stdbool.h>

#include "engine/gguf/gguf.h"

/* Open a model: a GGUF file (gguf_open), a folder with config.json and safetensors files, or one of those
 * files. *out owned: gguf_close. Errors: as gguf_open; ERR_FORMAT: what the checkpoint has and this program
 * does not read, by name. */
enum err_code model_file_open(struct gguf **out, const char *path, struct err *why);
/* The same with gguf_open_any_type for GGUF files. */
enum err_code model_file_open_any_type(struct gguf **out, const char *path, struct err *why);

/* Write a model as a GGUF file, every tensor as the model presents it; nothing appears at `path` before it is
 * whole. `step` (NULL: none) is called after each tensor; another value than ERR_OK ends the work. Memory
 * stays below the largest tensor and the writer's buffer. Errors: as gguf_writer; ERR_FORMAT: the source
 * changed. */
typedef enum err_code import_step_fn(void *ctx, int64_t done, int64_t count, struct err *why);
enum err_code import_write(const struct gguf *g, const char *path, import_step_fn *step, void *ctx,
                           struct err *why);

/* What became of one tensor. */
struct import_check {
    bool quantized;    /* the checkpoint stores codes */
    bool identical;    /* the same codes, or the same numbers bit by bit */
    double difference; /* largest |weight as written - weight as the checkpoint means it| */
    double rounding;   /* the same, relative to the weight, in units of 2^-24 */
};
enum { IMPORT_ROUNDING = 4 }; /* the most that one rounded scale explains */
/* Compare a tensor of a file that import_write wrote with the checkpoint's own (`source`, of
 * model_file_open). Codes are unpacked again from both; weights are computed from the checkpoint's codes in
 * binary64. ERR_NOMEM. */
enum err_code import_compare(struct import_check *out, const struct gguf_tensor *source,
                             const struct gguf_tensor *written, struct err *why);

/* Is this path a folder, or does it end in .safetensors? */
bool import_is_checkpoint(const char *path);

#include "engine/import/export.h"

#endif
