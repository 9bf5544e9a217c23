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

/* windowed: bytes per token of these, of the layers with a window. */
static void estimate_cache(struct memory_estimate *l, int64_t per_token, int64_t windowed)
{
    l->kv_bytes_per_token = per_token;
    l->kv_bytes = per_token * l->ctx;
    l->kv_window_bytes = (per_token - windowed) * l->ctx + windowed * MIN(l->ctx, (int64_t)l->window);
    l->total = l->weight_bytes + l->kv_bytes + l->state_bytes;
}

/* Keys and values of a model that this engine can run. */
static void estimate_known_cache(struct memory_estimate *l, const struct model_shape *s,
                                 const struct format *k, const struct format *v)
{
    int64_t all = 0, windowed = 0;
    l->attention_layers = shape_count(s, MIXER_ATTENTION, s->layers);
    l->kv_heads = s->kv_heads;
    l->state_layers = shape_count_states(s, s->layers);
    l->state_bytes = shape_state_floats(s) * (int64_t)sizeof(float) * shape_count_states(s, s->layers);
    l->window = s->window;
    for (int i = 0; i < s->layers; i++) {
        const struct layer_parts *p = &s->parts[i];
        l->windowed_layers += p->window;
        if (!shape_layer_has_cache(s, i)) continue;
        const int64_t bytes = token_bytes(p->kv_heads, p->head_dim_k, k) +
                              (s->latent_cached ? 0 : token_bytes(p->kv_heads, p->head_dim_v, v));
        all += bytes;
        windowed += p->window ? bytes : 0;
    }
    estimate_cache(l, all, windowed);
}

/* Those of other models: all layers are assumed to have attention and, if there is a window, to have it, with
 * the most KV heads of any layer. */
static void estimate_unknown_cache(struct memory_estimate *l, const struct gguf *g, const char *name,
                                   int64_t even, const struct format *k, const struct format *v)
{
    const int64_t dim_k = MIN(key_int(g, name, "attention.key_length", even), 65536),
                  dim_v = MIN(key_int(g, name, "attention.value_length", even), 65536),
                  all = l->layers * (token_bytes(l->kv_heads, dim_k, k) + token_bytes(l->kv_heads, dim_v, v));
    l->attention_layers = l->layers;
    l->window = (int)MAX(key_int(g, name, "attention.sliding_window", 0), 0);
    l->windowed_layers = l->window ? l->layers : 0;
    estimate_cache(l, all, l->window ? all : 0);
}

static void estimate_read_tensors(struct memory_estimate *l, const struct gguf *g)
{
    bool output = false;
    int64_t embedding = 0, row = 0;
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        l->weight_bytes += t->bytes;
        if (arch_is_of_experts(t->name)) l->expert_bytes += t->bytes;
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
    estimate_read_tensors(out, g);
    struct model_shape s;
    if (model_shape_read(&s, g, NULL))
        estimate_unknown_cache(out, g, name, embd / out->heads, k, v);
    else
        estimate_known_cache(out, &s, k, v);
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
    estimate_cache(out, s->layers * (token_bytes(s->kv_heads, dim, k) + token_bytes(s->kv_heads, dim, v)), 0);
}
