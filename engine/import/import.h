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

/* Is this path a folder, or does it end in .safetensors? */
bool import_is_checkpoint(const char *path);

#endif
