/* header.c - what the header of a model file says, and whether the model runs here. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/models/scan.h"
#include "base/cut/cut.h"
#include "engine/arch/arch.h"
#include "engine/chat/chat.h"
#include "engine/import/import.h"

static void put_shape(struct model_header *h, const struct model_shape *s)
{
    text_cut(h->arch, sizeof h->arch, s->arch);
    text_cut(h->title, sizeof h->title, s->name);
    text_cut(h->quantization, sizeof h->quantization, quantization_short(s));
    text_cut(h->quantization_source, sizeof h->quantization_source,
             quantization_source_name(s->quantization.source));
    text_cut(h->quantization_note, sizeof h->quantization_note, s->quantization.note);
    text_cut(h->dominant_format, sizeof h->dominant_format, s->dominant_format);
    h->params = s->params;
    h->weight_bytes = s->weight_bytes;
    h->ctx_train = s->ctx_train;
    h->random_weights = s->random_weights;
}

/* Of an architecture without a row in ARCHS. */
static int64_t context_of(const struct gguf *g, const char *arch)
{
    char key[ARCH_KEY_NAME];
    const int64_t n = gguf_get_int(g, arch_key_name(key, arch, META_CONTEXT_LENGTH), 0);
    return n > 0 ? n : 0;
}

/* What the file says that it is, where its name does not. */
static enum model_file_kind kind_of(const struct gguf *g, enum model_file_kind by_name)
{
    static const struct {
        const char *type;
        enum model_file_kind kind;
    } TYPES[] = { { "mmproj", MODEL_PROJECTOR }, { "adapter", MODEL_ADAPTER }, { "imatrix", MODEL_IMATRIX } };
    const struct gguf_string type = gguf_get_string(g, "general.type");
    for (size_t i = 0; i < COUNT_OF(TYPES); i++)
        if (gguf_string_is(type, TYPES[i].type)) return TYPES[i].kind;
    if (gguf_string_is(gguf_get_string(g, "general.architecture"), "clip")) return MODEL_PROJECTOR;
    return by_name;
}

bool models_error_is_lasting(enum err_code code)
{
    return code == ERR_OK || code == ERR_FORMAT || code == ERR_USAGE || code == ERR_ABSENT;
}

static enum err_code put_model(struct model_entry *e, const struct gguf *g, const struct models_options *o)
{
    struct model_header *h = &e->header;
    struct model_shape *shape = calloc(1, sizeof *shape);
    struct err why = { 0 };
    if (!shape) {
        snprintf(h->why, sizeof h->why, "out of memory");
        return ERR_NOMEM;
    }
    enum err_code rc = model_shape_read(shape, g, &why);
    put_shape(h, shape);
    h->read = true;
    h->chat_template = chat_has_template(g);
    if (rc && *h->arch) h->ctx_train = context_of(g, shape->arch);
    if (!rc) rc = gguf_check_types(g, &why);
    e->kind = kind_of(g, e->kind);
    if (rc)
        text_cut(h->why, sizeof h->why, why.message);
    else if (shape->unknown)
        text_cutf(h->why, sizeof h->why, "%d part%s of the file not known to qdyno: runs with force=on only",
                  shape->unknown, shape->unknown > 1 ? "s" : "");
    h->runs = !rc && !shape->unknown && e->kind == MODEL_WEIGHTS;
    if (!rc && e->kind == MODEL_WEIGHTS && o->figures) rc = o->figures(o->ctx, e, g);
    free(shape);
    return rc;
}

bool header_read(struct model_entry *e, const struct models_options *o)
{
    struct gguf *g = NULL;
    struct err why = { 0 };
    struct model_header *h = &e->header;
    *h = (struct model_header){ .read = false };
    for (int i = 0; i < MODEL_FIGURES; i++) h->figure[i] = NAN;
    if (e->shards_here < e->shards) {
        text_cutf(h->why, sizeof h->why, "%d of %d files of the split model are here", e->shards_here,
                  e->shards);
        return true;
    }
    enum err_code rc = model_file_open_any_type(&g, e->path, &why);
    if (rc)
        text_cut(h->why, sizeof h->why, why.message);
    else
        rc = put_model(e, g, o);
    gguf_close(g);
    return models_error_is_lasting(rc);
}
