/* Writes a model file of any shape from a seed.
 *
 * Speed and memory do not depend on the values of weights, so a random model answers "how fast would a 7B
 * model be here" without a download. Matrices are N(0, 1/sqrt(columns)): activations keep their magnitude
 * from layer to layer, and logits are close to N(0,1). synth_weights.c generates and writes them. */
#include "engine/synth/synth.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/gguf/gguf.h"
#include "engine/synth/synth_internal.h"
#include "kernels/kernels.h"

const struct synth_shape SYNTH_SHAPES[] = {
    { .name = "tiny",
      .layers = 3,
      .heads = 4,
      .kv_heads = 2,
      .embd = 256,
      .ff = 512,
      .vocab = 1024,
      .ctx = 2048,
      .tied = true,
      .help = "2 M parameters: bundled, starts at once, every format fits its rows" },
    { .name = "15m",
      .layers = 6,
      .heads = 6,
      .kv_heads = 6,
      .embd = 288,
      .ff = 768,
      .vocab = 32000,
      .ctx = 1024,
      .tied = true,
      .help = "15 M: rows of 288 do not fit 256-wide blocks" },
    { .name = "135m",
      .layers = 30,
      .heads = 9,
      .kv_heads = 3,
      .embd = 576,
      .ff = 1536,
      .vocab = 49152,
      .ctx = 2048,
      .tied = true,
      .help = "135 M: deep and narrow" },
    { .name = "0.5b",
      .layers = 24,
      .heads = 14,
      .kv_heads = 2,
      .embd = 896,
      .ff = 4864,
      .vocab = 151936,
      .ctx = 4096,
      .tied = true,
      .help = "494 M: a quarter of it is vocabulary" },
    { .name = "1b",
      .layers = 16,
      .heads = 32,
      .kv_heads = 8,
      .embd = 2048,
      .ff = 8192,
      .vocab = 32000,
      .ctx = 4096,
      .tied = false,
      .help = "1.1 G parameters" },
    { .name = "3b",
      .layers = 28,
      .heads = 24,
      .kv_heads = 8,
      .embd = 3072,
      .ff = 8192,
      .vocab = 32000,
      .ctx = 4096,
      .tied = false,
      .help = "3.0 G parameters" },
    { .name = "7b",
      .layers = 32,
      .heads = 32,
      .kv_heads = 32,
      .embd = 4096,
      .ff = 11008,
      .vocab = 32000,
      .ctx = 4096,
      .tied = false,
      .help = "6.7 G parameters, no grouped heads" },
};
const size_t SYNTH_SHAPE_COUNT = COUNT_OF(SYNTH_SHAPES);

const struct synth_shape *synth_shape_find(const char *name)
{
    for (size_t i = 0; i < SYNTH_SHAPE_COUNT; i++)
        if (!strcasecmp(name, SYNTH_SHAPES[i].name)) return &SYNTH_SHAPES[i];
    return NULL;
}

/* ---------------------------------------------------------------- tensors of an architecture */

enum dim { DIM_1, DIM_EMBD, DIM_KV, DIM_QKV, DIM_FF, DIM_VOCAB, DIM_CTX };

enum fill {
    FILL_MATRIX, /* N(0, 1/sqrt(columns)), in the wanted format */
    FILL_NORM,   /* 1 + N(0, 0.1), f32 */
    FILL_BIAS,   /* N(0, 0.02), f32 */
    FILL_TABLE,  /* as FILL_MATRIX but f32: positions are added, not multiplied with */
};

struct part {
    const char *name;
    enum dim cols, rows;
    enum fill fill;
};

struct arch {
    const char *name, *pre; /* pre NULL: SPM vocabulary */
    bool rms, rope;
    double rope_base;
    const struct part *layer, *ends; /* the last row has name NULL */
};

static const struct part LLAMA_LAYER[] = {
    { .name = "attn_norm.weight", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_NORM },
    { .name = "attn_q.weight", .cols = DIM_EMBD, .rows = DIM_EMBD, .fill = FILL_MATRIX },
    { .name = "attn_k.weight", .cols = DIM_EMBD, .rows = DIM_KV, .fill = FILL_MATRIX },
    { .name = "attn_v.weight", .cols = DIM_EMBD, .rows = DIM_KV, .fill = FILL_MATRIX },
    { .name = "attn_output.weight", .cols = DIM_EMBD, .rows = DIM_EMBD, .fill = FILL_MATRIX },
    { .name = "ffn_norm.weight", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_NORM },
    { .name = "ffn_gate.weight", .cols = DIM_EMBD, .rows = DIM_FF, .fill = FILL_MATRIX },
    { .name = "ffn_up.weight", .cols = DIM_EMBD, .rows = DIM_FF, .fill = FILL_MATRIX },
    { .name = "ffn_down.weight", .cols = DIM_FF, .rows = DIM_EMBD, .fill = FILL_MATRIX },
    { .name = NULL },
};
static const struct part QWEN2_LAYER[] = {
    { .name = "attn_norm.weight", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_NORM },
    { .name = "attn_q.weight", .cols = DIM_EMBD, .rows = DIM_EMBD, .fill = FILL_MATRIX },
    { .name = "attn_q.bias", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_BIAS },
    { .name = "attn_k.weight", .cols = DIM_EMBD, .rows = DIM_KV, .fill = FILL_MATRIX },
    { .name = "attn_k.bias", .cols = DIM_KV, .rows = DIM_1, .fill = FILL_BIAS },
    { .name = "attn_v.weight", .cols = DIM_EMBD, .rows = DIM_KV, .fill = FILL_MATRIX },
    { .name = "attn_v.bias", .cols = DIM_KV, .rows = DIM_1, .fill = FILL_BIAS },
    { .name = "attn_output.weight", .cols = DIM_EMBD, .rows = DIM_EMBD, .fill = FILL_MATRIX },
    { .name = "ffn_norm.weight", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_NORM },
    { .name = "ffn_gate.weight", .cols = DIM_EMBD, .rows = DIM_FF, .fill = FILL_MATRIX },
    { .name = "ffn_up.weight", .cols = DIM_EMBD, .rows = DIM_FF, .fill = FILL_MATRIX },
    { .name = "ffn_down.weight", .cols = DIM_FF, .rows = DIM_EMBD, .fill = FILL_MATRIX },
    { .name = NULL },
};
static const struct part GPT2_LAYER[] = {
    { .name = "attn_norm.weight", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_NORM },
    { .name = "attn_norm.bias", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_BIAS },
    { .name = "attn_qkv.weight", .cols = DIM_EMBD, .rows = DIM_QKV, .fill = FILL_MATRIX },
    { .name = "attn_qkv.bias", .cols = DIM_QKV, .rows = DIM_1, .fill = FILL_BIAS },
    { .name = "attn_output.weight", .cols = DIM_EMBD, .rows = DIM_EMBD, .fill = FILL_MATRIX },
    { .name = "attn_output.bias", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_BIAS },
    { .name = "ffn_norm.weight", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_NORM },
    { .name = "ffn_norm.bias", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_BIAS },
    { .name = "ffn_up.weight", .cols = DIM_EMBD, .rows = DIM_FF, .fill = FILL_MATRIX },
    { .name = "ffn_up.bias", .cols = DIM_FF, .rows = DIM_1, .fill = FILL_BIAS },
    { .name = "ffn_down.weight", .cols = DIM_FF, .rows = DIM_EMBD, .fill = FILL_MATRIX },
    { .name = "ffn_down.bias", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_BIAS },
    { .name = NULL },
};
static const struct part LLAMA_ENDS[] = {
    { .name = "token_embd.weight", .cols = DIM_EMBD, .rows = DIM_VOCAB, .fill = FILL_MATRIX },
    { .name = "output_norm.weight", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_NORM },
    { .name = "output.weight",
      .cols = DIM_EMBD,
      .rows = DIM_VOCAB,
      .fill = FILL_MATRIX }, /* not written when tied */
    { .name = NULL },
};
static const struct part GPT2_ENDS[] = {
    { .name = "token_embd.weight", .cols = DIM_EMBD, .rows = DIM_VOCAB, .fill = FILL_MATRIX },
    { .name = "position_embd.weight", .cols = DIM_EMBD, .rows = DIM_CTX, .fill = FILL_TABLE },
    { .name = "output_norm.weight", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_NORM },
    { .name = "output_norm.bias", .cols = DIM_EMBD, .rows = DIM_1, .fill = FILL_BIAS },
    { .name = "output.weight", .cols = DIM_EMBD, .rows = DIM_VOCAB, .fill = FILL_MATRIX },
    { .name = NULL },
};

static const struct arch ARCHS[] = {
    { .name = "llama",
      .pre = NULL,
      .rms = true,
      .rope = true,
      .rope_base = 10000,
      .layer = LLAMA_LAYER,
      .ends = LLAMA_ENDS },
    { .name = "qwen2",
      .pre = "qwen2",
      .rms = true,
      .rope = true,
      .rope_base = 1000000,
      .layer = QWEN2_LAYER,
      .ends = LLAMA_ENDS },
    { .name = "gpt2",
      .pre = "gpt-2",
      .rms = false,
      .rope = false,
      .rope_base = 0,
      .layer = GPT2_LAYER,
      .ends = GPT2_ENDS },
};

static int64_t dim_of(const struct synth_shape *s, enum dim d)
{
    switch (d) {
    case DIM_1: return 1;
    case DIM_EMBD: return s->embd;
    case DIM_KV: return s->embd / s->heads * s->kv_heads;
    case DIM_QKV: return 3 * s->embd;
    case DIM_FF: return s->ff;
    case DIM_VOCAB: return s->vocab;
    case DIM_CTX: return s->ctx;
    }
    return 0;
}

/* ---------------------------------------------------------------- the list of tensors */

static const struct format *tensor_format(const struct part *p, const struct synth_options *o, int64_t cols)
{
    if (p->fill != FILL_MATRIX) return &FORMATS[FORMAT_F32];
    return cols % o->format->block_weights ? &FORMATS[FORMAT_F16] : o->format;
}

static void plan_part(struct synth_plan *plan, const struct part *p, const struct synth_options *o, int layer)
{
    if (o->shape->tied && !strcmp(p->name, "output.weight")) return;
    struct synth_tensor *t = &plan->tensors[plan->count++];
    const int64_t cols = dim_of(o->shape, p->cols), rows = dim_of(o->shape, p->rows);
    *t = (struct synth_tensor){
        .format = tensor_format(p, o, cols),
        .dims = rows > 1 ? 2 : 1,
        .shape = { cols, rows, 1 },
        .mean = p->fill == FILL_NORM ? 1 : 0,
        .deviation = p->fill == FILL_NORM   ? 0.1f
                     : p->fill == FILL_BIAS ? 0.02f
                                            : (float)(1 / sqrt((double)cols)),
    };
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", p->name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, p->name);
}

static enum err_code plan_make(struct synth_plan *plan, const struct arch *a, const struct synth_options *o,
                               struct err *why)
{
    enum { PARTS_MAX = 16 };
    plan->tensors = calloc((size_t)(o->shape->layers + 1) * PARTS_MAX, sizeof *plan->tensors);
    if (!plan->tensors) return err_set(why, ERR_NOMEM, "out of memory for the list of tensors");
    for (const struct part *p = a->ends; p->name; p++) plan_part(plan, p, o, -1);
    for (int layer = 0; layer < o->shape->layers; layer++)
        for (const struct part *p = a->layer; p->name; p++) plan_part(plan, p, o, layer);
    return ERR_OK;
}

/* ---------------------------------------------------------------- metadata */

static void put_key_u32(struct gguf_writer *w, const struct arch *a, const char *key, int64_t v)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", a->name, key);
    gguf_writer_put_u32(w, full, (uint32_t)v);
}

static void put_key_f32(struct gguf_writer *w, const struct arch *a, const char *key, double v)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", a->name, key);
    gguf_writer_put_f32(w, full, (float)v);
}

static enum err_code synth_put_metadata(struct gguf_writer *w, const struct arch *a,
                                        const struct synth_options *o, struct err *why)
{
    const struct synth_shape *s = o->shape;
    char name[64];
    snprintf(name, sizeof name, "synthetic-%s-%s", a->name, s->name);
    gguf_writer_put_string(w, "general.architecture", a->name);
    gguf_writer_put_string(w, "general.name", name);
    gguf_writer_put_u32(w, "general.quantization_version", 2);
    gguf_writer_put_bool(w, "qdyno.synthetic", true);
    put_key_u32(w, a, "vocab_size", s->vocab);
    put_key_u32(w, a, "context_length", s->ctx);
    put_key_u32(w, a, "embedding_length", s->embd);
    put_key_u32(w, a, "block_count", s->layers);
    put_key_u32(w, a, "feed_forward_length", s->ff);
    put_key_u32(w, a, "attention.head_count", s->heads);
    put_key_u32(w, a, "attention.head_count_kv", s->kv_heads);
    put_key_f32(w, a, a->rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", 1e-5);
    if (a->rope) put_key_u32(w, a, "rope.dimension_count", s->embd / s->heads);
    if (a->rope) put_key_f32(w, a, "rope.freq_base", a->rope_base);
    return a->pre ? synth_vocab_bpe(w, s->vocab, a->pre, why) : synth_vocab_spm(w, s->vocab, why);
}

/* ---------------------------------------------------------------- the whole file */

static enum err_code shape_check(const struct synth_shape *s, struct err *why)
{
    bool ok = s->layers >= 1 && s->heads >= 1 && s->kv_heads >= 1 && s->heads % s->kv_heads == 0 &&
              s->embd >= 1 && s->embd % s->heads == 0 && s->ff >= 1 && s->vocab >= 1 && s->ctx >= 1;
    if (!ok || s->embd / s->heads % 2)
        return err_set(
            why, ERR_USAGE,
            "shape '%s': %" PRId64
            " wide with %d heads and %d KV heads is impossible: the width must be a multiple of the heads, and these of the KV heads",
            s->name, s->embd, s->heads, s->kv_heads);
    return ERR_OK;
}

static enum err_code synth_arch_find(const struct arch **out, const char *name, struct err *why)
{
    const char *names[COUNT_OF(ARCHS)];
    for (size_t i = 0; i < COUNT_OF(ARCHS); i++) {
        names[i] = ARCHS[i].name;
        if (!strcmp(name, ARCHS[i].name)) {
            *out = &ARCHS[i];
            return ERR_OK;
        }
    }
    const char *near = str_nearest(name, names, COUNT_OF(names));
    return err_set(why, ERR_USAGE, "architecture '%s' cannot be made; expected llama, qwen2 or gpt2%s%s%s",
                   name, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

enum err_code synth_write(const char *path, const struct synth_options *options, struct err *why)
{
    struct synth_options o = *options;
    struct synth_shape shape = *o.shape;
    const struct arch *a = NULL;
    struct synth_plan plan = { 0 };
    struct gguf_writer *w = NULL;
    enum err_code rc = synth_arch_find(&a, o.arch, why);
    if (!rc && !a->rope) {
        shape.kv_heads = shape.heads; /* gpt2's fused matrix has q, k and v of every head */
        shape.tied = false;           /* llama.cpp requires an output matrix in gpt2 files */
    }
    if (!rc) rc = shape_check(&shape, why);
    if (!rc && !o.format->encode)
        rc = err_set(why, ERR_USAGE, "format '%s' is known but cannot be made yet", o.format->name);
    o.shape = &shape;
    if (!rc) rc = plan_make(&plan, a, &o, why);
    if (!rc) rc = gguf_writer_open(&w, path, why);
    if (!rc) rc = synth_put_metadata(w, a, &o, why);
    for (int64_t i = 0; !rc && i < plan.count; i++) { /* commit returns a failure of these calls */
        const struct synth_tensor *t = &plan.tensors[i];
        gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
    }
    if (!rc) rc = synth_write_weights(w, &plan, &o, why);
    if (!rc) {
        rc = gguf_writer_commit(w, why);
        w = NULL;
    }
    gguf_writer_abort(w);
    free(plan.tensors);
    return rc;
}
