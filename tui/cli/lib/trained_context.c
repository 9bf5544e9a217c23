/* tui/cli/lib/trained_context.c - see trained_context.h. */
#include "tui/cli/lib/trained_context.h"

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"

/* 0: the file does not say, or cannot be read. */
static int64_t model_trained_context(const char *path)
{
    struct gguf *file = NULL;
    struct model_shape shape;
    int64_t tokens = 0;
    if (!model_file_open(&file, path, NULL) && !model_shape_read(&shape, file, NULL))
        tokens = shape.ctx_train;
    gguf_close(file);
    return tokens;
}

bool trained_context_add(struct trained_context *k, const char *model, const struct config *c, int64_t needed)
{
    const int64_t own = config_int(c, KNOB_CTX), tokens = own ? own : needed;
    const int64_t trained = *model ? model_trained_context(model) : 0;
    k->known |= trained > 0;
    if (k->tokens || trained <= 0 || tokens <= trained) return false;
    k->tokens = tokens;
    k->trained = trained;
    return true;
}

void trained_context_put(json_t *document, const struct trained_context *k)
{
    if (k->known) json_put_bool(document, "beyond_trained_context", k->tokens > 0);
}
