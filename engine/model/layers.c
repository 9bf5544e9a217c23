/* Runs single layers of a model (model.h). All rows are positions 0 .. n-1 of sequence 0, whose KV cache has
 * room for them from the start. So lists and block table are filled once, and a layer that runs again
 * overwrites its keys and values. */
#include "engine/model/model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"

enum { TOKENS_DEFAULT = 512 };

struct layers {
    struct model *m;
    const struct gguf *gguf;
    float *zeros;   /* [tokens][width], host: residual stream of a half that runs by itself */
    char *replaced; /* [tensors of the file] 1: replaced by other values */
    layer_observer *see;
    void *see_ctx;
};

/* ---------------------------------------------------------------- opening */

static enum err_code layers_open_model(struct layers *l, const struct layers_options *o, struct err *why)
{
    struct model_shape shape;
    char line[160];
    struct config c;
    enum err_code rc = model_shape_read(&shape, l->gguf, why);
    if (rc) return rc;
    if (shape.experts && !o->experts)
        return err_set(why, ERR_FORMAT,
                       "this model has experts, and methods that use activation statistics do not know which "
                       "rows each expert sees: use a method without calibration (`qdyno methods`)");
    const int tokens = o->tokens > 0 ? o->tokens : (int)MIN(TOKENS_DEFAULT, shape.ctx_train);
    snprintf(line, sizeof line, "precision=%s,ctk=f32,ctv=f32,threads=%d,ctx=%d,batch=%d,force=%s",
             PRECISION_NAMES[o->precision], o->threads, tokens, tokens, o->force ? "on" : "off");
    if ((rc = config_parse(&c, line, why))) return rc;
    return model_open(
        &l->m, &(struct model_options){ .gguf = l->gguf, .apart = true, .config = &c, .log = o->log }, why);
}

enum err_code layers_open(struct layers **out, const struct gguf *g, const struct layers_options *o,
                          struct err *why)
{
    *out = NULL;
    struct layers *l = calloc(1, sizeof *l);
    if (!l) return err_set(why, ERR_NOMEM, "out of memory");
    l->gguf = g;
    enum err_code rc = layers_open_model(l, o, why);
    if (rc) goto fail;
    struct model *m = l->m;
    const int tokens = m->session.batch;
    l->zeros = calloc((size_t)tokens * (size_t)m->shape.embd, sizeof *l->zeros);
    l->replaced = calloc((size_t)gguf_tensor_count(g) + 1, 1);
    if (!l->zeros || !l->replaced || !kv_cache_grow(&m->cache, 0, tokens)) {
        rc = err_set(why, ERR_NOMEM, "out of memory for %d tokens", tokens);
        goto fail;
    }
    for (int i = 0; i < tokens; i++) {
        m->lists.pos[i] = m->lists.wanted[i] = i;
        m->lists.slots[i] = kv_slot(&m->cache, 0, i);
    }
    *out = l;
    return ERR_OK;
fail:
    layers_close(l);
    return rc;
}

void layers_close(struct layers *l)
{
    if (!l) return;
    model_close(l->m);
    free(l->zeros);
    free(l->replaced);
    free(l);
}

int layers_count(const struct layers *l)
{
    return l->m->shape.layers;
}
int64_t layers_width(const struct layers *l)
{
    return l->m->shape.embd;
}
int layers_tokens(const struct layers *l)
{
    return l->m->session.batch;
}
/* Layers that run one at a time run on the host. */
static const struct site *layers_host(const struct model *m)
{
    return &m->sites[SITE_HOST];
}

struct threadpool *layers_threads(const struct layers *l)
{
    return backend_threads(layers_host(l->m)->backend);
}

/* ---------------------------------------------------------------- running */

static enum err_code layers_check(const struct layers *l, int layer, int n, struct err *why)
{
    if (layer < 0 || layer >= layers_count(l))
        return err_set(why, ERR_USAGE, "layer %d: expected 0 to %d", layer, layers_count(l) - 1);
    if (n < 1 || n > layers_tokens(l))
        return err_set(why, ERR_USAGE, "a sequence of %d tokens: expected 1 to %d", n, layers_tokens(l));
    return gguf_check_read(l->gguf, why); /* long work ends soon after the file became shorter */
}

static size_t row_bytes(const struct layers *l, int n)
{
    return (size_t)n * (size_t)l->m->shape.embd * sizeof(float);
}

/* Call the caller's observer, with names instead of slots. */
static void layers_show(void *ctx, int layer, const struct observed *o)
{
    struct layers *l = ctx;
    struct layer_input in = { .layer = layer, .parts = 1, .x = o->x, .stride = o->stride, .n = o->n };
    for (int i = 0; i < o->count; i++) {
        char name[ARCH_NAME];
        arch_slot_name(name, sizeof name, layer, o->slots[i]);
        const struct gguf_tensor *t = gguf_tensor_find(l->gguf, name);
        if (!t) { /* a file with one tensor for each expert */
            arch_tensor_name(name, sizeof name, layer, o->slots[i], o->part);
            t = gguf_tensor_find(l->gguf, name);
        } else if (o->part >= 0) {
            in.part = o->part;
            in.parts = (int)t->shape[2];
        }
        in.tensors[in.count++] = t->name;
        in.cols = t->shape[0];
    }
    l->see(l->see_ctx, &in);
}

static void layers_observe(struct layers *l, layer_observer *see, void *ctx)
{
    l->see = see;
    l->see_ctx = ctx;
    l->m->observer = (struct observer){ .see = see ? layers_show : NULL, .ctx = l };
}

void layers_stop(struct layers *l)
{
    l->m->observer.enough = true;
}

enum err_code layers_embed(struct layers *l, const int32_t *ids, int n, float *x, struct err *why)
{
    struct model *m = l->m;
    enum err_code rc = layers_check(l, 0, n, why);
    for (int i = 0; i < n && !rc; i++)
        if (ids[i] < 0 || ids[i] >= m->shape.vocab)
            rc = err_set(why, ERR_USAGE, "token %d: expected 0 to %lld", ids[i],
                         (long long)m->shape.vocab - 1);
    if (rc) return rc;
    memcpy(m->lists.ids, ids, (size_t)n * sizeof *ids);
    forward_part(m, FORWARD_EMBED, 0, n);
    backend_read(layers_host(m)->backend, x, layers_host(m)->buffers.x, row_bytes(l, n));
    return ERR_OK;
}

enum err_code layers_run(struct layers *l, int layer, float *x, int n, layer_observer *see, void *ctx,
                         struct err *why)
{
    struct model *m = l->m;
    enum err_code rc = layers_check(l, layer, n, why);
    if (rc) return rc;
    backend_write(layers_host(m)->backend, layers_host(m)->buffers.x, x, row_bytes(l, n));
    layers_observe(l, see, ctx);
    forward_part(m, FORWARD_LAYER, layer, n);
    layers_observe(l, NULL, NULL);
    backend_read(layers_host(m)->backend, x, layers_host(m)->buffers.x, row_bytes(l, n));
    return ERR_OK;
}

enum err_code layers_head(struct layers *l, const float *x, int n, float *logits, layer_observer *see,
                          void *ctx, struct err *why)
{
    struct model *m = l->m;
    enum err_code rc = layers_check(l, 0, n, why);
    if (rc) return rc;
    backend_write(layers_host(m)->backend, layers_host(m)->buffers.x, x, row_bytes(l, n));
    layers_observe(l, see, ctx);
    forward_part(m, FORWARD_OUTPUT_NORM, 0, n);
    layers_observe(l, NULL, NULL);
    if (!logits) return ERR_OK;
    float *own = m->logits; /* the pass writes to the caller's buffer */
    m->logits = logits;
    m->logits_count = 0;
    m->not_finite = (struct not_finite){ 0 };
    forward_part(m, FORWARD_OUTPUT, 0, n);
    m->logits = own;
    return m->not_finite.found
               ? err_set(why, ERR_FORMAT, "the model's logits are not numbers (infinity or NaN)")
               : ERR_OK;
}

static enum err_code run_half(struct layers *l, enum forward_part part, int layer, const float *h, int n,
                              float *y, struct err *why)
{
    struct model *m = l->m;
    enum err_code rc = layers_check(l, layer, n, why);
    if (rc) return rc;
    backend_write(layers_host(m)->backend, layers_host(m)->buffers.h, h, row_bytes(l, n));
    backend_write(layers_host(m)->backend, layers_host(m)->buffers.x, l->zeros, row_bytes(l, n));
    forward_part(m, part, layer, n);
    backend_read(layers_host(m)->backend, y, layers_host(m)->buffers.x, row_bytes(l, n));
    return ERR_OK;
}

enum err_code layers_attention(struct layers *l, int layer, const float *h, int n, float *y, struct err *why)
{
    return run_half(l, FORWARD_ATTENTION, layer, h, n, y, why);
}

enum err_code layers_feed_forward(struct layers *l, int layer, const float *h, int n, float *y,
                                  struct err *why)
{
    return run_half(l, FORWARD_FEED_FORWARD, layer, h, n, y, why);
}

/* ---------------------------------------------------------------- other weights */

/* Bind t, which has the name and shape of a tensor of the file, to its slot. */
static enum err_code layers_bind(struct layers *l, const struct gguf_tensor *t, struct err *why)
{
    const struct model *m = l->m;
    int layer;
    enum slot slot;
    if (!arch_slot_find(&layer, &slot, m->hyper.arch, &m->shape, t->name) ||
        (slot < SLOT_GLOBAL_COUNT && ARCH_SLOTS[slot].cols == DIM_ROPE))
        return err_set(why, ERR_USAGE, "tensor '%s' is not one of this model's matrices, norms or biases",
                       t->name);
    return model_bind_slot(l->m, layer, slot, arch_expert_of(t->name), t, why);
}

enum err_code layers_replace(struct layers *l, const char *tensor, const struct format *f, const void *data,
                             struct err *why)
{
    const struct gguf_tensor *t = gguf_tensor_find(l->gguf, tensor);
    if (!t) return err_set(why, ERR_USAGE, "the model has no tensor '%s'", tensor);
    if (t->dims < 2 && f != &FORMATS[FORMAT_F32])
        return err_set(why, ERR_USAGE, "tensor '%s' is a vector: expected f32, not %s", tensor, f->name);
    if (t->shape[0] % f->block_weights)
        return err_set(why, ERR_USAGE, "tensor '%s': rows of %lld weights do not fill blocks of %s", tensor,
                       (long long)t->shape[0], f->name);
    struct gguf_tensor other = *t;
    other.format = f;
    other.data = data;
    other.made = NULL;
    enum err_code rc = layers_bind(l, &other, why);
    for (int64_t i = 0; !rc && i < gguf_tensor_count(l->gguf); i++)
        if (gguf_tensor_at(l->gguf, i) == t) l->replaced[i] = 1;
    return rc;
}

enum err_code layers_restore(struct layers *l, const char *tensor, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int64_t i = 0; i < gguf_tensor_count(l->gguf) && !rc; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(l->gguf, i);
        if (!l->replaced[i] || (tensor && strcmp(t->name, tensor))) continue;
        rc = layers_bind(l, t, why);
        l->replaced[i] = 0;
    }
    return rc;
}
