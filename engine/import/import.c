/* Opens a checkpoint: reads its files, then assembles metadata and tensors to a model. */
#include "engine/import/import.h"

#include "engine/import/checkpoint.h"
#include "engine/import/metadata.h"
#include "engine/import/tensors.h"
#include "engine/import/hf_tokenizer.h"

static enum err_code checkpoint_open(struct gguf **out, const char *path, struct err *why)
{
    struct checkpoint c;
    *out = NULL;
    enum err_code rc = checkpoint_read(&c, path, why);
    if (!rc) rc = metadata_put(&c, why);
    if (!rc) rc = hf_tokenizer_put(&c, why);
    if (!rc) rc = tensors_map(&c, why);
    if (!rc) rc = gguf_writer_preview(c.metadata, &c.parts.header, why);
    if (rc && rc != ERR_NOMEM) err_prefix(why, "'%s'", path);
    if (!rc) rc = gguf_assemble(out, path, &c.parts, why);
    checkpoint_close(&c);
    return rc;
}

enum err_code model_file_open(struct gguf **out, const char *path, struct err *why)
{
    return import_is_checkpoint(path) ? checkpoint_open(out, path, why) : gguf_open(out, path, why);
}

enum err_code model_file_open_any_type(struct gguf **out, const char *path, struct err *why)
{
    return import_is_checkpoint(path) ? checkpoint_open(out, path, why) : gguf_open_any_type(out, path, why);
}
