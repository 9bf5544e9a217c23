/* engine/model_identity.h - which model is this, without reading gigabytes every time it is opened. */
#ifndef QDYNO_ENGINE_MODEL_IDENTITY_H
#define QDYNO_ENGINE_MODEL_IDENTITY_H

#include "engine/gguf.h"

/* As gguf_hash, remembered in the cache folder for a file that has not changed since (same device, inode,
 * size and time of change). Where nothing can be remembered it is computed. */
enum err_code model_identity(const struct gguf *g, char hex[HASH_HEX], struct err *why);

/* Of the file that was asked for, not of the quantized copy of it that may run. */
struct model;
enum err_code model_source_identity(const struct model *m, char hex[HASH_HEX], struct err *why);

#endif
