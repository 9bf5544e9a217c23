/* Estimates the bytes of weights and KV cache from shapes alone. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/plan/plan.h"
#include "engine/synth/synth.h"
#include "kernels/kernels.h"

enum { CTX_USUAL = 4096 };

static int64_t key_int(const struct gguf *g, const char *arch, const char *name, int64_t otherwise)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    return gguf_get_int(g, key, otherwise);
}

/* The largest value of a list with one for each layer, or the only value. */
static int64_t key_most(const struct gguf *g, const char *arch, const char *name, int64_t otherwise)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    if (!kv || kv->type != GGUF_ARRAY) return gguf_get_int(g, key, otherwise);
    double most = -1;
    for (uint64_t i = 0; i < kv->count; i++) most = fmax(most, gguf_kv_num(kv, i));
    return most >= 0 && most < 1e9 ? (int64_t)most : -1;
}

/* Bytes of K (or V) of one token in one layer. Block formats store whole blocks per head. */
static int64_t token_bytes(int64_t kv_heads, int64_t dim, const struct format *f)
{
    const int64_t whole = (dim + f->block_weights - 1) / f->block_weights * f->block_weights;
    return kv_heads * format_row_bytes(f, whole);
}

static void estimate_cache(struct memory_estimate *l, int64_t dim_k, int64_t dim_v, const struct format *k,
                           const struct format *v)
{
    const int64_t layer = token_bytes(l->kv_heads, dim_k, k) + token_bytes(l->kv_heads, dim_v, v);
    const int64_t seen = l->windowed_layers ? MIN(l->ctx, (int64_t)l->window) : l->ctx;
    const int64_t all = l->attention_layers;
    l->kv_bytes_per_token = layer * all;
    l->kv_bytes = l->kv_bytes_per_token * l->ctx;
    l->kv_window_bytes = layer * ((all - l->windowed_layers) * l->ctx + l->windowed_layers * seen);
    l->total = l->weight_bytes + l->kv_bytes + l->state_bytes;
}

/* Which layers have attention and which of them a window is known for models that this engine can run. Others
 * are assumed to have both in all layers, and the most KV heads of any layer. */
static void estimate_read_layers(struct memory_estimate *l, const struct gguf *g, const char *name)
{
    struct model_shape s;
    struct hyper h;
    l->attention_layers = l->layers;
    if (model_shape_read(&s, g, NULL) || hyper_read(&h, &s, g, NULL)) {
        l->window = (int)MAX(key_int(g, name, "attention.sliding_window", 0), 0);
        l->windowed_layers = l->window ? l->layers : 0;
        return;
    }
    l->attention_layers = shape_count(&s, MIXER_ATTENTION, s.layers);
    l->kv_heads = s.kv_heads;
    l->state_bytes = shape_state_floats(&s) * (int64_t)sizeof(float) * shape_count_states(&s, s.layers);
    l->window = h.window;
    for (int i = 0; i < s.layers; i++) l->windowed_layers += hyper_layer_has_window(&h, i);
}

static void estimate_read_tensors(struct memory_estimate *l, const struct gguf *g)
{
    bool output = false;
    int64_t embedding = 0, row = 0;
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        l->weight_bytes += t->bytes;
        if (strstr(t->name, "_exps")) l->expert_bytes += t->bytes;
        output |= !strcmp(t->name, "output.weight");
        if (!strcmp(t->name, "token_embd.weight")) {
            embedding = t->bytes;
            row = t->bytes / MAX(t->shape[1], 1);
        }
    }
    /* one row of the embedding, or all of it when it is the output matrix, too */
    l->read_bytes = l->weight_bytes - l->expert_bytes - (output ? embedding - row : 0);
    if (l->experts) l->read_bytes += l->expert_bytes * l->experts_used / l->experts;
}

enum err_code memory_estimate_read(struct memory_estimate *out, const struct gguf *g, int64_t ctx,
                                   const struct format *k, const struct format *v, struct err *why)
{
    const struct gguf_string arch = gguf_get_string(g, "general.architecture");
    char name[64];
    *out = (struct memory_estimate){ 0 };
    if (!arch.data)
        return err_set(why, ERR_FORMAT, "metadata 'general.architecture' is missing: not a model");
    snprintf(name, sizeof name, "%.*s", (int)MIN(arch.len, sizeof name - 1), arch.data);
    const int64_t embd = key_int(g, name, "embedding_length", -1);
    out->layers = (int)key_int(g, name, "block_count", -1);
    out->heads = (int)key_int(g, name, "attention.head_count", -1);
    out->kv_heads = (int)key_most(g, name, "attention.head_count_kv", out->heads);
    out->ctx_train = key_int(g, name, "context_length", CTX_USUAL);
    if (embd < 1 || out->layers < 1 || out->heads < 1 || out->kv_heads < 1 || out->layers > 65536 ||
        embd > INT64_C(1) << 26 || out->kv_heads > 65536)
        return err_set(
            why, ERR_FORMAT,
            "'%s': expected embedding_length, block_count and attention.head_count, found %lld, %d, %d", name,
            (long long)embd, out->layers, out->heads);
    out->experts = (int)MAX(key_int(g, name, "expert_count", 0), 0);
    out->experts_used = (int)MIN(MAX(key_int(g, name, "expert_used_count", out->experts), 0), out->experts);
    out->ctx = ctx > 0 ? ctx : MIN(MAX(out->ctx_train, 1), (int64_t)CTX_USUAL);
    estimate_read_layers(out, g, name);
    estimate_read_tensors(out, g);
    const int64_t even = embd / out->heads;
    estimate_cache(out, MIN(key_int(g, name, "attention.key_length", even), 65536),
                   MIN(key_int(g, name, "attention.value_length", even), 65536), k, v);
    return ERR_OK;
}

void memory_estimate_of(struct memory_estimate *out, const struct synth_shape *s, const struct format *format,
                        int64_t ctx, const struct format *k, const struct format *v)
{
    const int64_t dim = s->embd / s->heads, kv = dim * s->kv_heads;
    const struct {
        int64_t rows, cols;
    } LAYER[] = { { s->embd, s->embd }, { kv, s->embd },    { kv, s->embd },   { s->embd, s->embd },
                  { s->ff, s->embd },   { s->ff, s->embd }, { s->embd, s->ff } };
    int64_t layer = 2 * s->embd * (int64_t)sizeof(float);
    for (size_t i = 0; i < COUNT_OF(LAYER); i++) {
        const struct format *f = LAYER[i].cols % format->block_weights ? &FORMATS[FORMAT_F16] : format;
        layer += LAYER[i].rows * format_row_bytes(f, LAYER[i].cols);
    }
    const struct format *ends = s->embd % format->block_weights ? &FORMATS[FORMAT_F16] : format;
    const int64_t row = format_row_bytes(ends, s->embd);
    *out = (struct memory_estimate){ .layers = s->layers,
                                     .attention_layers = s->layers,
                                     .heads = s->heads,
                                     .kv_heads = s->kv_heads,
                                     .ctx = ctx > 0 ? ctx : MIN(s->ctx, (int64_t)CTX_USUAL),
                                     .ctx_train = s->ctx,
                                     .weight_bytes = layer * s->layers + row * s->vocab * (s->tied ? 1 : 2),
                                     .read_bytes = layer * s->layers + row * (s->vocab + 1) };
    estimate_cache(out, dim, dim, k, v);
}
