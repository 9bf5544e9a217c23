/* Hyperparameters of synthetic models: completes a shape for an architecture and writes its metadata.
 *
 * Tensors follow from the metadata and engine/arch (synth.c). Here is what that table leaves open because
 * every file decides it: sizes, which optional tensors exist, the tokenizer. */
#include <stdio.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/synth/synth_internal.h"
#include "kernels/kernels.h"

/* ---------------------------------------------------------------- what files of an architecture have */

#define QKV_BIASES (SLOT_BIT(SLOT_Q_B) | SLOT_BIT(SLOT_K_B) | SLOT_BIT(SLOT_V_B))

/* Architectures without a row: a byte-level vocabulary, RoPE base 10000, no optional tensors. Pre-tokenizers
 * as in the published files. */
static const struct synth_traits TRAITS[] = {
    { .arch = "llama", .spm = true, .dense = true },
    { .arch = "qwen2", .pre = "qwen2", .rope_base = 1000000 },
    { .arch = "gpt2", .all_kv_heads = true, .never_tied = true },
    { .arch = "qwen3", .pre = "qwen2", .rope_base = 1000000 },
    { .arch = "qwen3moe", .pre = "qwen2", .rope_base = 1000000 },
    { .arch = "qwen2moe", .pre = "qwen2", .rope_base = 1000000 },
    { .arch = "qwen2vl", .pre = "qwen2", .rope_base = 1000000 },
    { .arch = "qwen3vl", .pre = "qwen2", .rope_base = 5000000 },
    { .arch = "qwen3vlmoe", .pre = "qwen2", .rope_base = 5000000 },
    { .arch = "qwen3next", .pre = "qwen2", .rope_base = 10000000 },
    { .arch = "qwen35", .pre = "qwen35", .rope_base = 10000000 },
    { .arch = "qwen35moe", .pre = "qwen35", .rope_base = 10000000 },
    { .arch = "phi3", .spm = true },
    { .arch = "gemma", .spm = true },
    { .arch = "gemma2", .spm = true },
    { .arch = "gemma3", .spm = true, .rope_base = 1000000 },
    { .arch = "gemma4",
      .spm = true,
      .rope_base = 1000000,
      .dense = true,
      .with = SLOT_BIT(SLOT_V) | SLOT_BIT(SLOT_LAYER_SCALE) },
    { .arch = "gpt-oss", .pre = "gpt-4o", .rope_base = 150000 },
    { .arch = "deepseek2", .pre = "deepseek-v3", .dense_first = true },
    { .arch = "glm4", .pre = "glm4", .with = QKV_BIASES },
    { .arch = "glm4moe",
      .pre = "glm4",
      .rope_base = 1000000,
      .dense_first = true,
      .with = QKV_BIASES | SLOT_BIT(SLOT_Q_NORM) | SLOT_BIT(SLOT_K_NORM) },
    { .arch = "dots1", .pre = "qwen2", .dense_first = true },
    { .arch = "bailingmoe2", .dense_first = true },
    { .arch = "ernie4_5-moe", .dense_first = true, .rope_base = 500000 },
    { .arch = "lfm2moe", .dense_first = true, .rope_base = 1000000 },
    { .arch = "llama4", .pre = "llama4", .rope_base = 500000 },
    { .arch = "mistral3", .pre = "tekken", .rope_base = 1000000 },
    { .arch = "seed_oss", .with = QKV_BIASES },
    { .arch = "starcoder2",
      .pre = "starcoder",
      .with = QKV_BIASES | SLOT_BIT(SLOT_ATTN_OUT_B) | SLOT_BIT(SLOT_UP_B) | SLOT_BIT(SLOT_DOWN_B) },
    { .arch = "phi2", .with = SLOT_BIT(SLOT_OUTPUT_B) },
    { .arch = "stablelm", .with = SLOT_BIT(SLOT_FFN_NORM) | SLOT_BIT(SLOT_FFN_NORM_B) },
    { .arch = "granitehybrid", .dense = true },
};
static const struct synth_traits OTHERS = { .arch = "" };

const struct synth_traits *synth_traits_find(const struct arch *a)
{
    for (size_t i = 0; i < COUNT_OF(TRAITS); i++)
        if (!strcmp(TRAITS[i].arch, a->name)) return &TRAITS[i];
    return &OTHERS;
}

/* ---------------------------------------------------------------- sizes */

static int64_t pick(int64_t given, int64_t otherwise)
{
    return given == SYNTH_NONE ? 0 : given ? given : otherwise;
}

/* The largest multiple of a usual block up to n, so that rows fill it. */
static int64_t whole_blocks(int64_t n)
{
    static const int64_t BLOCKS[] = { 256, 32 };
    for (size_t i = 0; i < COUNT_OF(BLOCKS); i++)
        if (n >= BLOCKS[i]) return n / BLOCKS[i] * BLOCKS[i];
    return n;
}

static void complete_experts(struct synth_shape *s, const struct arch *a, const struct synth_traits *t)
{
    const slot_set shared = (a->expert_need | a->expert_may) & SLOT_BIT(SLOT_UP_SHARED);
    if (!a->router || (t->dense && !s->experts)) {
        s->experts = 0;
        return;
    }
    s->experts = (int)pick(s->experts, 8);
    s->experts_used = (int)MIN(pick(s->experts_used, 2), (int64_t)s->experts);
    s->expert_ff = pick(s->expert_ff, MAX(whole_blocks(s->ff / 4), 1));
    s->shared_ff = shared ? pick(s->shared_ff, s->expert_ff) : 0;
    s->dense_layers = (int)MIN(pick(s->dense_layers, t->dense_first), (int64_t)s->layers - 1);
}

static void complete_state(struct synth_shape *s, const struct arch *a)
{
    const int dim = MIN(s->head_dim, RECURRENCE_DIM_MAX);
    const bool scan = a->state == MIXER_SCAN;
    s->state.groups = (int)pick(s->state.groups, s->kv_heads);
    s->state.heads = (int)pick(s->state.heads, scan ? 2 * s->heads : s->heads);
    s->state.value_dim = (int)pick(s->state.value_dim, dim);
    s->state.key_dim = (int)pick(s->state.key_dim, dim);
}

/* Layers of Gemma 4: the last ones read keys and values of the last of their kind before, so the layers
 * before them are whole periods. */
static void complete_shared(struct synth_shape *s, int period)
{
    const int own = period * MAX(1, s->layers * 6 / 10 / period);
    s->shared_kv_layers = (int)pick(s->shared_kv_layers, s->experts ? SYNTH_NONE : MAX(s->layers - own, 0));
    s->layer_inputs = (int)pick(s->layer_inputs, s->experts ? SYNTH_NONE : whole_blocks(s->embd / 8));
    s->shared_kv_layers = MAX(s->shared_kv_layers, 0);
    s->layer_inputs = MAX(s->layer_inputs, 0);
}

static int period_of(const struct arch *a, const struct synth_shape *s)
{
    if (a->layers_differ) return MIN(a->window_period, MAX(2, s->layers / 2));
    return MIN(MAX(a->window_period, MAX(a->attention_period, 4)), s->layers);
}

void synth_shape_complete(struct synth_shape *s, const struct arch *a)
{
    const struct synth_traits *t = synth_traits_find(a);
    if (t->all_kv_heads) s->kv_heads = s->heads;
    if (t->never_tied) s->tied = false;
    if (!((a->need | a->may) & SLOT_BIT(SLOT_OUTPUT))) s->tied = true;
    s->head_dim = (int)pick(s->head_dim, s->embd / s->heads);
    s->rope_dims = (int)pick(s->rope_dims, a->latent ? MAX(s->head_dim / 4 * 2, 2) : s->head_dim);
    complete_experts(s, a, t);
    if (a->window_period) s->window = (int)pick(s->window, a->window ? a->window : MAX(s->ctx / 4, 1));
    if (a->latent) {
        s->kv_lora = pick(s->kv_lora, MIN(4 * s->head_dim, 512));
        s->q_lora = pick(s->q_lora, MAX(whole_blocks(s->embd / 4), 1));
    }
    if (a->state != MIXER_ATTENTION) complete_state(s, a);
    if (a->layers_differ) complete_shared(s, period_of(a, s));
}

/* ---------------------------------------------------------------- metadata */

/* What layer l is, in architectures whose metadata lists it: the last layer of each period has attention; of
 * the others every second is a feed-forward alone, where layers have one part. */
static bool layer_has_attention(const struct arch *a, const struct synth_shape *s, int l)
{
    return (l + 1) % period_of(a, s) == 0;
}

static bool layer_has_feed_forward(const struct arch *a, const struct synth_shape *s, int l)
{
    return !layer_has_attention(a, s, l) && l % period_of(a, s) % 2 == 1;
}

typedef bool layer_test(const struct arch *a, const struct synth_shape *s, int l);

/* A list with `value` for the layers that the test names and 0 for the others; without a test one number. */
static void put_by_layer(struct gguf_writer *w, const struct arch *a, const struct synth_shape *s,
                         enum arch_key name, layer_test *test, int64_t value)
{
    char key[ARCH_KEY_NAME];
    uint32_t list[LAYERS_MAX];
    arch_key_name(key, a->name, name);
    if (!test) {
        gguf_writer_put_u32(w, key, (uint32_t)value);
        return;
    }
    for (int l = 0; l < s->layers; l++) list[l] = test(a, s, l) ? (uint32_t)value : 0;
    gguf_writer_put_array(w, key, GGUF_U32, list, (uint64_t)s->layers);
}

/* One size: written if the model has what it describes. */
struct size_key {
    enum arch_key key;
    bool has;
    int64_t value;
};

static void put_sizes(struct gguf_writer *w, const struct arch *a, const struct size_key *rows, size_t n)
{
    char key[ARCH_KEY_NAME];
    for (size_t i = 0; i < n; i++)
        if (rows[i].has)
            gguf_writer_put_u32(w, arch_key_name(key, a->name, rows[i].key), (uint32_t)rows[i].value);
}

static void put_float(struct gguf_writer *w, const struct arch *a, enum arch_key name, double value)
{
    char key[ARCH_KEY_NAME];
    gguf_writer_put_f32(w, arch_key_name(key, a->name, name), (float)value);
}

static void put_attention(struct gguf_writer *w, const struct arch *a, const struct synth_shape *s)
{
    const int period = period_of(a, s);
    const bool wide = a->layers_differ, latent = a->latent,
               own_dim = wide || (int64_t)s->head_dim * s->heads != s->embd;
    /* latent attention: the cache holds kv_lora numbers and the rotated part of the key */
    const int64_t key = latent ? s->kv_lora + s->rope_dims
                        : wide ? 2 * s->head_dim
                               : s->head_dim,
                  value = latent ? s->kv_lora
                          : wide ? 2 * s->head_dim
                                 : s->head_dim;
    const struct size_key rows[] = {
        { .key = META_KEY_LENGTH, .has = own_dim || latent, .value = key },
        { .key = META_VALUE_LENGTH, .has = own_dim || latent, .value = value },
        { .key = META_LATENT_KEY_LENGTH, .has = latent, .value = s->head_dim + s->rope_dims },
        { .key = META_LATENT_VALUE_LENGTH, .has = latent, .value = s->head_dim },
        { .key = META_KV_LORA, .has = latent, .value = s->kv_lora },
        { .key = META_Q_LORA, .has = latent && s->q_lora, .value = s->q_lora },
        { .key = META_WINDOW, .has = a->window_period, .value = s->window },
        { .key = META_WINDOW_PATTERN, .has = a->window_period > period, .value = period },
        { .key = META_KEY_LENGTH_WINDOW, .has = wide, .value = s->head_dim },
        { .key = META_VALUE_LENGTH_WINDOW, .has = wide, .value = s->head_dim },
        { .key = META_ROPE_DIMENSIONS_WINDOW, .has = wide, .value = s->head_dim },
        { .key = META_SHARED_KV_LAYERS, .has = wide, .value = s->shared_kv_layers },
        { .key = META_LAYER_INPUTS, .has = wide, .value = s->layer_inputs },
    };
    put_sizes(w, a, rows, COUNT_OF(rows));
}

static void put_experts(struct gguf_writer *w, const struct arch *a, const struct synth_shape *s)
{
    enum { SIGMOID = 2 };
    const bool has = s->experts > 0;
    char key[ARCH_KEY_NAME];
    const struct size_key rows[] = {
        { .key = META_EXPERT_COUNT, .has = has, .value = s->experts },
        { .key = META_EXPERTS_USED, .has = has, .value = s->experts_used },
        { .key = META_EXPERT_FF, .has = has, .value = s->expert_ff },
        { .key = META_EXPERT_DENSE, .has = has && s->dense_layers, .value = s->dense_layers },
        { .key = META_EXPERT_SCORE, .has = has && a->router == ROUTER_BY_KEY, .value = SIGMOID },
    };
    put_sizes(w, a, rows, COUNT_OF(rows));
    if (has && a->router_sum == ROUTER_SUM_BY_KEY)
        gguf_writer_put_bool(w, arch_key_name(key, a->name, META_EXPERT_SUM), true);
}

/* Writes the sizes of layers that have no attention but keep a state of constant size per sequence: gated
 * delta nets (MIXER_DELTA), Mamba-2 (MIXER_SCAN) and short gated convolutions (MIXER_CONVOLUTION).
 * META_ATTENTION_PERIOD is n if one layer of n has attention. */
static void put_state(struct gguf_writer *w, const struct arch *a, const struct synth_shape *s)
{
    enum { TAPS = 4, TAPS_SHORT = 3 }; /* tokens under a convolution's kernel, as in published models */
    const bool recurrent = a->state == MIXER_DELTA || a->state == MIXER_SCAN;
    const struct size_key rows[] = {
        { .key = META_STATE_TAPS, .has = recurrent, .value = TAPS },
        { .key = META_STATE_KEY, .has = recurrent, .value = s->state.key_dim },
        { .key = META_STATE_GROUPS, .has = recurrent, .value = s->state.groups },
        { .key = META_STATE_HEADS, .has = recurrent, .value = s->state.heads },
        { .key = META_STATE_INNER, .has = recurrent, .value = (int64_t)s->state.heads * s->state.value_dim },
        { .key = META_STATE_TAPS_SHORT, .has = a->state == MIXER_CONVOLUTION, .value = TAPS_SHORT },
        { .key = META_ATTENTION_PERIOD, .has = a->attention_period, .value = period_of(a, s) },
    };
    put_sizes(w, a, rows, COUNT_OF(rows));
}

static void put_hyper(struct gguf_writer *w, const struct arch *a, const struct synth_shape *s)
{
    const struct synth_traits *t = synth_traits_find(a);
    const bool listed = a->state != MIXER_ATTENTION && !a->attention_period;
    char key[ARCH_KEY_NAME];
    snprintf(key, sizeof key, "%s.vocab_size", a->name);
    gguf_writer_put_u32(w, key, (uint32_t)s->vocab);
    const struct size_key sizes[] = {
        { .key = META_CONTEXT_LENGTH, .has = true, .value = s->ctx },
        { .key = META_EMBEDDING_LENGTH, .has = true, .value = s->embd },
        { .key = META_BLOCK_COUNT, .has = true, .value = s->layers },
    };
    put_sizes(w, a, sizes, COUNT_OF(sizes));
    put_by_layer(w, a, s, META_FEED_FORWARD_LENGTH, a->one_part ? layer_has_feed_forward : NULL, s->ff);
    put_sizes(w, a, &(struct size_key){ .key = META_HEAD_COUNT, .has = true, .value = s->heads }, 1);
    put_by_layer(w, a, s, META_HEAD_COUNT_KV, listed ? layer_has_attention : NULL,
                 a->latent ? 1 : s->kv_heads);
    put_float(w, a, a->norm == NORM_RMS ? META_RMS_EPSILON : META_LAYER_EPSILON, 1e-5);
    if (a->rope != ROPE_NONE) {
        const int64_t dims = a->layers_differ ? 2 * s->head_dim : s->rope_dims;
        put_sizes(w, a, &(struct size_key){ .key = META_ROPE_DIMENSIONS, .has = true, .value = dims }, 1);
        put_float(w, a, META_ROPE_BASE, t->rope_base > 0 ? t->rope_base : 10000);
    }
    if (t->with & SLOT_BIT(SLOT_FFN_NORM) && a->residual == RESIDUAL_BY_KEY)
        gguf_writer_put_bool(w, arch_key_name(key, a->name, META_PARALLEL_RESIDUAL), false);
    put_attention(w, a, s);
    put_experts(w, a, s);
    put_state(w, a, s);
}

void synth_put_metadata(struct gguf_writer *w, const struct arch *a, const struct synth_shape *s)
{
    char name[128];
    snprintf(name, sizeof name, "synthetic-%s-%s", a->name, s->name);
    gguf_writer_put_string(w, "general.architecture", a->name);
    gguf_writer_put_string(w, "general.name", name);
    gguf_writer_put_u32(w, "general.quantization_version", 2);
    gguf_writer_put_bool(w, "qdyno.synthetic", true);
    put_hyper(w, a, s);
}

enum err_code synth_put_vocabulary(struct gguf_writer *w, const struct arch *a, const struct synth_shape *s,
                                   struct err *why)
{
    const struct synth_traits *t = synth_traits_find(a);
    return t->spm ? synth_vocab_spm(w, s->vocab, why)
                  : synth_vocab_bpe(w, s->vocab, t->pre ? t->pre : "gpt-2", why);
}
