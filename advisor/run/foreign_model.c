/* advisor/run/foreign_model.c - the model file of another engine, as qdyno reads it (foreign.h).
 *
 * The other engine gets the token ids that qdyno's own arms get, so the vocabulary is read here. Models of
 * architectures that qdyno cannot run are fine: only their vocabulary matters. */
#include "advisor/run/foreign.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/model/model.h"

static void shape_take(struct foreign_model *m, const struct model_shape *s)
{
    snprintf(m->arch, sizeof m->arch, "%s", s->arch);
    snprintf(m->name, sizeof m->name, "%s", s->name);
    snprintf(m->format, sizeof m->format, "%s", s->dominant_format);
    snprintf(m->quantization, sizeof m->quantization, "%s", quantization_short(s));
    m->params = s->params;
    m->random_weights = s->random_weights;
}

enum err_code foreign_model_open(struct foreign_model *m, const char *path, struct err *why)
{
    *m = (struct foreign_model){ .prompts = { .bos = -1 } };
    if (!*path) return ERR_OK;
    struct model_shape *shape = calloc(1, sizeof *shape);
    struct err unknown = { 0 };
    int64_t vocab = 0;
    enum err_code rc = shape ? gguf_open_any_type(&m->g, path, why)
                             : err_set(why, ERR_NOMEM, "out of memory for a model's shape");
    if (!rc && !model_shape_read(shape, m->g, &unknown)) {
        shape_take(m, shape);
        vocab = shape->vocab;
    }
    free(shape);
    if (!rc && tokenizer_open(&m->tokenizer, m->g, &unknown)) m->tokenizer = NULL;
    if (!rc && !vocab && m->tokenizer) {
        struct tokenizer_info info;
        tokenizer_describe(m->tokenizer, &info);
        vocab = info.n_vocab;
    }
    if (!rc && vocab <= 0)
        rc = err_set(why, ERR_FORMAT, "%s: no token ids can be made for this model: %s", path,
                     unknown.message);
    if (!rc) rc = prompt_source_open(&m->prompts, m->g, m->tokenizer, vocab, why);
    if (!rc) rc = model_identity(m->g, m->sha256, why);
    return rc;
}

void foreign_model_close(struct foreign_model *m)
{
    prompt_source_close(&m->prompts);
    tokenizer_close(m->tokenizer);
    gguf_close(m->g);
    *m = (struct foreign_model){ 0 };
}

json_t *foreign_describe(const struct foreign_model *m, const struct config *c, const char *model,
                         const char *build, const char *command)
{
    json_t *o = json_object(), *engine = json_object();
    json_put(o, "config", config_to_json(c));
    json_put_str(o, "recipe", "file");
    json_put_str(o, "arch", m->arch);
    json_put_str(o, "name", *m->name ? m->name : path_file_name(model));
    json_put_int(o, "params", m->params);
    json_put_str(o, "sha256", m->sha256);
    json_put_str(o, "device", "cpu");
    json_put_str(o, "gpu", NULL);
    json_put_bool(o, "random_weights", m->random_weights);
    json_put_bool(o, "answers_unverified", false);
    json_put_bool(o, "reads_text", m->tokenizer || !m->g);
    json_put_str(o, "dominant_format", m->format);
    json_put_str(o, "quantization", m->quantization);
    json_put_str(engine, "name", config_text(c, KNOB_ENGINE));
    json_put_str(engine, "build", build);
    json_put_str(engine, "command", command);
    json_put(o, "engine", engine);
    json_put(o, "notes", json_array());
    return o;
}

void foreign_note(json_t *description, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    json_array_append_new(json_object_get(description, "notes"), json_string(text));
}
