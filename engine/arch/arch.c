/* Names and shapes of tensors, and the walk over those that a model must and may have. */
#include "engine/arch/arch_internal.h"

#include <stdio.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

#define MATRIX(text, inputs, outputs)                                                                        \
    {                                                                                                        \
        .name = text, .cols = inputs, .rows = outputs                                                        \
    }
#define VECTOR(text, numbers)                                                                                \
    {                                                                                                        \
        .name = text, .cols = numbers, .rows = DIM_NONE                                                      \
    }

#define EXPERTS(text, one, inputs, outputs)                                                                  \
    {                                                                                                        \
        .name = text, .each = one, .cols = inputs, .rows = outputs, .matrices = DIM_EXPERTS                  \
    }
#define HEADS(text, inputs, outputs)                                                                         \
    {                                                                                                        \
        .name = text, .cols = inputs, .rows = outputs, .matrices = DIM_HEADS                                 \
    }
#define TABLE(text, numbers, vectors)                                                                        \
    {                                                                                                        \
        .name = text, .cols = numbers, .rows = vectors, .table = true                                        \
    }
#define EXPERT_BIASES(text, numbers) TABLE(text, numbers, DIM_EXPERTS)

const struct arch_slot ARCH_SLOTS[SLOT_COUNT] = {
    [SLOT_TOKEN_EMBD] = MATRIX("token_embd.weight", DIM_EMBD, DIM_VOCAB),
    [SLOT_POSITION_EMBD] = MATRIX("position_embd.weight", DIM_EMBD, DIM_CTX),
    [SLOT_OUTPUT_NORM] = VECTOR("output_norm.weight", DIM_EMBD),
    [SLOT_OUTPUT_NORM_B] = VECTOR("output_norm.bias", DIM_EMBD),
    [SLOT_OUTPUT_NORM_2] = VECTOR("token_embd_norm.weight", DIM_EMBD),
    [SLOT_OUTPUT] = MATRIX("output.weight", DIM_EMBD, DIM_VOCAB),
    [SLOT_OUTPUT_B] = VECTOR("output.bias", DIM_VOCAB),
    [SLOT_ROPE_FREQS] = VECTOR("rope_freqs.weight", DIM_ROPE),
    [SLOT_ROPE_LONG] = VECTOR("rope_factors_long.weight", DIM_ROPE),
    [SLOT_ROPE_SHORT] = VECTOR("rope_factors_short.weight", DIM_ROPE),
    [SLOT_LAYER_INPUTS] = MATRIX("per_layer_token_embd.weight", DIM_LAYER_INPUTS, DIM_VOCAB),
    [SLOT_LAYER_INPUTS_PROJ] = MATRIX("per_layer_model_proj.weight", DIM_EMBD, DIM_LAYER_INPUTS),
    [SLOT_LAYER_INPUTS_NORM] = VECTOR("per_layer_proj_norm.weight", DIM_LAYER_INPUT),
    [SLOT_ATTN_NORM] = VECTOR("attn_norm.weight", DIM_EMBD),
    [SLOT_ATTN_NORM_B] = VECTOR("attn_norm.bias", DIM_EMBD),
    [SLOT_ATTN_NORM_2] = VECTOR("attn_norm_2.weight", DIM_EMBD),
    [SLOT_ATTN_NORM_2_B] = VECTOR("attn_norm_2.bias", DIM_EMBD),
    [SLOT_Q] = MATRIX("attn_q.weight", DIM_EMBD, DIM_Q_ROWS),
    [SLOT_Q_B] = VECTOR("attn_q.bias", DIM_Q),
    [SLOT_K] = MATRIX("attn_k.weight", DIM_EMBD, DIM_K),
    [SLOT_K_B] = VECTOR("attn_k.bias", DIM_K),
    [SLOT_V] = MATRIX("attn_v.weight", DIM_EMBD, DIM_V),
    [SLOT_V_B] = VECTOR("attn_v.bias", DIM_V),
    [SLOT_QKV] = MATRIX("attn_qkv.weight", DIM_EMBD, DIM_QKV),
    [SLOT_QKV_B] = VECTOR("attn_qkv.bias", DIM_QKV),
    [SLOT_Q_NORM] = VECTOR("attn_q_norm.weight", DIM_Q_NORM),
    [SLOT_K_NORM] = VECTOR("attn_k_norm.weight", DIM_K_NORM),
    [SLOT_Q_NORM_EACH] = TABLE("attn_q_norm.weight", DIM_HEAD_K, DIM_HEADS),
    [SLOT_K_NORM_EACH] = TABLE("attn_k_norm.weight", DIM_HEAD_K, DIM_KV_HEADS),
    [SLOT_ATTN_OUT] = MATRIX("attn_output.weight", DIM_ATTN, DIM_EMBD),
    [SLOT_ATTN_OUT_B] = VECTOR("attn_output.bias", DIM_EMBD),
    [SLOT_POST_ATTN_NORM] = VECTOR("post_attention_norm.weight", DIM_EMBD),
    [SLOT_FFN_NORM] = VECTOR("ffn_norm.weight", DIM_EMBD),
    [SLOT_FFN_NORM_B] = VECTOR("ffn_norm.bias", DIM_EMBD),
    [SLOT_GATE] = MATRIX("ffn_gate.weight", DIM_EMBD, DIM_FF),
    [SLOT_GATE_B] = VECTOR("ffn_gate.bias", DIM_FF),
    [SLOT_UP] = MATRIX("ffn_up.weight", DIM_EMBD, DIM_UP),
    [SLOT_UP_B] = VECTOR("ffn_up.bias", DIM_UP),
    [SLOT_DOWN] = MATRIX("ffn_down.weight", DIM_FF, DIM_EMBD),
    [SLOT_DOWN_B] = VECTOR("ffn_down.bias", DIM_EMBD),
    [SLOT_POST_FFN_NORM] = VECTOR("post_ffw_norm.weight", DIM_EMBD),
    [SLOT_FFN_NORM_2] = VECTOR("post_attention_norm.weight", DIM_EMBD),
    [SLOT_SINKS] = VECTOR("attn_sinks.weight", DIM_HEADS),
    [SLOT_LAYER_SCALE] = VECTOR("layer_output_scale.weight", DIM_ONE),
    [SLOT_INPUT_GATE] = MATRIX("inp_gate.weight", DIM_EMBD, DIM_LAYER_INPUT),
    [SLOT_INPUT_OUT] = MATRIX("proj.weight", DIM_LAYER_INPUT, DIM_EMBD),
    [SLOT_INPUT_NORM] = VECTOR("post_norm.weight", DIM_EMBD),
    [SLOT_ROUTER_SCALE] = VECTOR("ffn_gate_inp.scale", DIM_EMBD),
    [SLOT_EXPERT_SCALE] = VECTOR("ffn_down_exps.scale", DIM_EXPERTS),
    [SLOT_EXPERTS_NORM] = VECTOR("pre_ffw_norm_2.weight", DIM_EMBD),
    [SLOT_POST_FFN_NORM_1] = VECTOR("post_ffw_norm_1.weight", DIM_EMBD),
    [SLOT_POST_EXPERTS_NORM] = VECTOR("post_ffw_norm_2.weight", DIM_EMBD),
    [SLOT_ROUTER] = MATRIX("ffn_gate_inp.weight", DIM_EMBD, DIM_EXPERTS),
    [SLOT_ROUTER_B] = VECTOR("ffn_gate_inp.bias", DIM_EXPERTS),
    [SLOT_ROUTER_CHOICE] = VECTOR("exp_probs_b.bias", DIM_EXPERTS),
    [SLOT_GATE_EXPERTS] = EXPERTS("ffn_gate_exps.weight", "ffn_gate.%d.weight", DIM_EMBD, DIM_EXPERT_FF),
    [SLOT_GATE_EXPERTS_B] = EXPERT_BIASES("ffn_gate_exps.bias", DIM_EXPERT_FF),
    [SLOT_UP_EXPERTS] = EXPERTS("ffn_up_exps.weight", "ffn_up.%d.weight", DIM_EMBD, DIM_EXPERT_FF),
    [SLOT_UP_EXPERTS_B] = EXPERT_BIASES("ffn_up_exps.bias", DIM_EXPERT_FF),
    [SLOT_GATE_UP_EXPERTS] = EXPERTS("ffn_gate_up_exps.weight", NULL, DIM_EMBD, DIM_EXPERT_UP),
    [SLOT_DOWN_EXPERTS] = EXPERTS("ffn_down_exps.weight", "ffn_down.%d.weight", DIM_EXPERT_FF, DIM_EMBD),
    [SLOT_DOWN_EXPERTS_B] = EXPERT_BIASES("ffn_down_exps.bias", DIM_EMBD),
    [SLOT_GATE_SHARED] = MATRIX("ffn_gate_shexp.weight", DIM_EMBD, DIM_SHARED_FF),
    [SLOT_UP_SHARED] = MATRIX("ffn_up_shexp.weight", DIM_EMBD, DIM_SHARED_FF),
    [SLOT_DOWN_SHARED] = MATRIX("ffn_down_shexp.weight", DIM_SHARED_FF, DIM_EMBD),
    [SLOT_LATENT_Q] = MATRIX("attn_q.weight", DIM_EMBD, DIM_LATENT_Q),
    [SLOT_LATENT_Q_A] = MATRIX("attn_q_a.weight", DIM_EMBD, DIM_Q_LORA),
    [SLOT_LATENT_Q_A_NORM] = VECTOR("attn_q_a_norm.weight", DIM_Q_LORA),
    [SLOT_LATENT_Q_B] = MATRIX("attn_q_b.weight", DIM_Q_LORA, DIM_LATENT_Q),
    [SLOT_LATENT_KV_A] = MATRIX("attn_kv_a_mqa.weight", DIM_EMBD, DIM_KV_A),
    [SLOT_LATENT_KV_A_NORM] = VECTOR("attn_kv_a_norm.weight", DIM_KV_LORA),
    [SLOT_LATENT_KV_B] = MATRIX("attn_kv_b.weight", DIM_KV_LORA, DIM_KV_B),
    [SLOT_LATENT_K_B] = HEADS("attn_k_b.weight", DIM_NOPE, DIM_KV_LORA),
    [SLOT_LATENT_V_B] = HEADS("attn_v_b.weight", DIM_KV_LORA, DIM_LATENT_V),
    [SLOT_STATE_QKV] = MATRIX("attn_qkv.weight", DIM_EMBD, DIM_CHANNELS),
    [SLOT_STATE_GATE] = MATRIX("attn_gate.weight", DIM_EMBD, DIM_STATE_INNER),
    [SLOT_STATE_IN] = MATRIX("ssm_in.weight", DIM_EMBD, DIM_STATE_IN),
    [SLOT_STATE_CONV] = TABLE("ssm_conv1d.weight", DIM_TAPS, DIM_CHANNELS),
    [SLOT_STATE_CONV_B] = VECTOR("ssm_conv1d.bias", DIM_CHANNELS),
    [SLOT_STATE_BETA] = MATRIX("ssm_beta.weight", DIM_EMBD, DIM_STATE_HEADS),
    [SLOT_STATE_ALPHA] = MATRIX("ssm_alpha.weight", DIM_EMBD, DIM_STATE_HEADS),
    [SLOT_STATE_BETA_ALPHA] = MATRIX("ssm_ba.weight", DIM_EMBD, DIM_STATE_HEADS_2),
    [SLOT_STATE_STEP_B] = VECTOR("ssm_dt.bias", DIM_STATE_HEADS),
    [SLOT_STATE_A] = VECTOR("ssm_a", DIM_STATE_HEADS),
    [SLOT_STATE_A_COLUMN] = TABLE("ssm_a", DIM_ONE, DIM_STATE_HEADS),
    [SLOT_STATE_D] = TABLE("ssm_d", DIM_ONE, DIM_STATE_HEADS),
    [SLOT_STATE_NORM] = VECTOR("ssm_norm.weight", DIM_STATE_VALUE),
    [SLOT_STATE_GROUP_NORM] = TABLE("ssm_norm.weight", DIM_STATE_GROUP_WIDTH, DIM_STATE_GROUPS),
    [SLOT_STATE_OUT] = MATRIX("ssm_out.weight", DIM_STATE_INNER, DIM_EMBD),
    [SLOT_SHORT_IN] = MATRIX("shortconv.in_proj.weight", DIM_EMBD, DIM_SHORT_IN),
    [SLOT_SHORT_CONV] = TABLE("shortconv.conv.weight", DIM_TAPS, DIM_CHANNELS),
    [SLOT_SHORT_OUT] = MATRIX("shortconv.out_proj.weight", DIM_EMBD, DIM_EMBD),
    [SLOT_SHARED_SCORE] = MATRIX("ffn_gate_inp_shexp.weight", DIM_EMBD, DIM_ONE),
};

bool arch_slot_is_vector(enum slot slot)
{
    return ARCH_SLOTS[slot].rows == DIM_NONE || ARCH_SLOTS[slot].table;
}

bool arch_slot_is_expert(enum slot slot)
{
    return slot >= SLOT_GATE_EXPERTS && slot <= SLOT_DOWN_SHARED;
}

bool arch_slot_is_rope(enum slot slot)
{
    return slot == SLOT_ROPE_FREQS || slot == SLOT_ROPE_LONG || slot == SLOT_ROPE_SHORT;
}
_Static_assert(SLOT_COUNT <= 128, "slots are bits of a slot_set");

static const slot_set ATTENTION_PART = SLOT_BIT(SLOT_Q) | SLOT_BIT(SLOT_Q_B) | SLOT_BIT(SLOT_K) |
                                       SLOT_BIT(SLOT_K_B) | SLOT_BIT(SLOT_V) | SLOT_BIT(SLOT_V_B) |
                                       SLOT_BIT(SLOT_QKV) | SLOT_BIT(SLOT_QKV_B) | SLOT_BIT(SLOT_Q_NORM) |
                                       SLOT_BIT(SLOT_K_NORM) | SLOT_BIT(SLOT_ATTN_OUT) |
                                       SLOT_BIT(SLOT_ATTN_OUT_B);
static const slot_set OWN_KEYS = SLOT_BIT(SLOT_K) | SLOT_BIT(SLOT_K_B) | SLOT_BIT(SLOT_V) |
                                 SLOT_BIT(SLOT_V_B) | SLOT_BIT(SLOT_K_NORM);
static const slot_set DENSE_FFN = SLOT_BIT(SLOT_GATE) | SLOT_BIT(SLOT_UP) | SLOT_BIT(SLOT_DOWN) |
                                  SLOT_BIT(SLOT_GATE_B) | SLOT_BIT(SLOT_UP_B) |
                                  SLOT_BIT(SLOT_DOWN_B); /* what experts replace */

int64_t arch_layer_dim(enum dim d, const struct arch *a, const struct model_shape *s, int layer)
{
    const struct layer_parts *l = layer < 0 ? NULL : &s->parts[layer];
    const int64_t dim_k = l ? l->head_dim_k : s->head_dim_k, dim_v = l ? l->head_dim_v : s->head_dim_v,
                  kv_heads = l ? l->kv_heads : s->kv_heads, ff = l ? l->ff : s->ff;
    const int64_t q = s->heads * dim_k, k = kv_heads * dim_k, v = kv_heads * dim_v,
                  inner = (int64_t)s->state.heads * s->state.value_dim;
    switch (d) {
    case DIM_NONE:
    case DIM_ONE: return 1;
    case DIM_EMBD: return s->embd;
    case DIM_VOCAB: return s->vocab;
    case DIM_CTX: return s->ctx_train;
    case DIM_ROPE: return s->rope_dims / 2;
    case DIM_Q: return q;
    case DIM_Q_ROWS: return a->query_gate ? 2 * q : q;
    case DIM_K: return k;
    case DIM_V: return v;
    case DIM_QKV: return q + k + v;
    case DIM_ATTN: return (int64_t)s->heads * (s->kv_lora ? s->latent_v_dims : dim_v);
    case DIM_HEAD_K: return dim_k;
    case DIM_KV_HEADS: return kv_heads;
    case DIM_Q_NORM: return a->qk_norm == QK_NORM_ROW ? q : dim_k;
    case DIM_K_NORM: return a->qk_norm == QK_NORM_ROW ? k : dim_k;
    case DIM_FF: return ff;
    case DIM_UP: return a->gate_in_up ? 2 * ff : ff;
    case DIM_HEADS: return s->heads;
    case DIM_EXPERTS: return s->experts;
    case DIM_EXPERT_FF: return s->expert_ff;
    case DIM_EXPERT_UP: return 2 * s->expert_ff;
    case DIM_SHARED_FF: return s->shared_ff;
    case DIM_LATENT_Q: return (int64_t)s->heads * (s->nope_dims + s->rope_dims);
    case DIM_Q_LORA: return s->q_lora;
    case DIM_KV_LORA: return s->kv_lora;
    case DIM_KV_A: return s->kv_lora + s->rope_dims;
    case DIM_KV_B: return (int64_t)s->heads * (s->nope_dims + s->latent_v_dims);
    case DIM_NOPE: return s->nope_dims;
    case DIM_LATENT_V: return s->latent_v_dims;
    case DIM_LAYER_INPUT: return s->layer_inputs;
    case DIM_LAYER_INPUTS: return (int64_t)s->layer_inputs * s->layers;
    case DIM_TAPS: return s->state.taps;
    case DIM_CHANNELS: return s->state.channels;
    case DIM_STATE_IN: /* inputs of the convolution, gates, and the steps of Mamba-2 */
        return s->state.channels + inner + (a->state == MIXER_SCAN ? s->state.heads : 0);
    case DIM_STATE_HEADS: return s->state.heads;
    case DIM_STATE_HEADS_2: return 2 * (int64_t)s->state.heads;
    case DIM_STATE_VALUE: return s->state.value_dim;
    case DIM_STATE_INNER: return inner;
    case DIM_STATE_GROUPS: return s->state.groups;
    case DIM_STATE_GROUP_WIDTH: return inner / MAX(s->state.groups, 1);
    case DIM_SHORT_IN: return 3 * s->embd;
    }
    return 0;
}

void arch_slot_name(char *buf, size_t size, int layer, enum slot slot)
{
    if (slot < SLOT_GLOBAL_COUNT)
        snprintf(buf, size, "%s", ARCH_SLOTS[slot].name);
    else
        snprintf(buf, size, "blk.%d.%s", layer, ARCH_SLOTS[slot].name);
}

static void shape_text(char *buf, size_t size, const struct gguf_tensor *t)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < t->dims && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%lld", i ? "," : "", (long long)t->shape[i]);
}

int shape_count(const struct model_shape *s, enum mixer mixer, int n)
{
    int count = 0;
    for (int l = 0; l < n; l++) count += s->parts[l].mixer == mixer;
    return count;
}

int shape_count_states(const struct model_shape *s, int n)
{
    return n - shape_count(s, MIXER_ATTENTION, n) - shape_count(s, MIXER_NONE, n);
}

int64_t shape_state_floats(const struct model_shape *s)
{
    const struct state_shape *t = &s->state;
    return t->taps ? (t->taps - 1) * t->channels + (int64_t)t->heads * t->key_dim * t->value_dim : 0;
}

bool arch_is_gated(const struct arch *a)
{
    return a->gate_in_up || (a->need & SLOT_BIT(SLOT_GATE)) != 0;
}

/* The tensors that this form of latent attention needs; which form it is follows from the metadata. */
static slot_set latent_need(const struct model_shape *s)
{
    const slot_set q = s->q_lora ? SLOT_BIT(SLOT_LATENT_Q_A) | SLOT_BIT(SLOT_LATENT_Q_A_NORM) |
                                       SLOT_BIT(SLOT_LATENT_Q_B)
                                 : SLOT_BIT(SLOT_LATENT_Q);
    return q | (s->latent_cached ? SLOT_BIT(SLOT_LATENT_K_B) | SLOT_BIT(SLOT_LATENT_V_B)
                                 : SLOT_BIT(SLOT_LATENT_KV_B));
}

/* The part of `all` that a layer has, with the tensors of its experts or its state. */
static slot_set layer_part(const struct arch *a, const struct model_shape *s, int layer, slot_set all,
                           slot_set of_experts, slot_set of_state)
{
    const slot_set inputs = SLOT_BIT(SLOT_LAYER_INPUTS) | SLOT_BIT(SLOT_LAYER_INPUTS_PROJ) |
                            SLOT_BIT(SLOT_LAYER_INPUTS_NORM) | SLOT_BIT(SLOT_INPUT_GATE) |
                            SLOT_BIT(SLOT_INPUT_OUT) | SLOT_BIT(SLOT_INPUT_NORM);
    const slot_set apart = SLOT_BIT(SLOT_Q) | SLOT_BIT(SLOT_K) | SLOT_BIT(SLOT_V) | SLOT_BIT(SLOT_Q_B) |
                           SLOT_BIT(SLOT_K_B) | SLOT_BIT(SLOT_V_B),
                   fused = SLOT_BIT(SLOT_QKV) | SLOT_BIT(SLOT_QKV_B);
    if (a->qkv_forms) all &= ~(s->fused_qkv ? apart : fused);
    if (!s->layer_inputs) all &= ~inputs;
    const slot_set global = SLOT_BIT(SLOT_GLOBAL_COUNT) - 1;
    if (layer < 0) return all & global;
    const struct layer_parts *p = &s->parts[layer];
    slot_set set = all & ~global;
    if (p->mixer != MIXER_ATTENTION) set &= ~ATTENTION_PART;
    if (p->kv_layer != layer) set &= ~OWN_KEYS;
    if (shape_layer_has_state(s, layer)) set |= of_state;
    if ((p->experts && !a->experts_beside) || !p->feed_forward) set &= ~DENSE_FFN;
    return p->experts ? set | of_experts : set;
}

/* How a file of a delta net computes q, k, v and z, and beta and alpha. */
static slot_set delta_need(const struct model_shape *s)
{
    return s->state.fused ? SLOT_BIT(SLOT_STATE_IN) : SLOT_BIT(SLOT_STATE_QKV) | SLOT_BIT(SLOT_STATE_GATE);
}

slot_set arch_need(const struct arch *a, const struct model_shape *s, int layer)
{
    return layer_part(a, s, layer, a->need | (a->latent ? latent_need(s) : 0), a->expert_need,
                      a->state_need | (a->state == MIXER_DELTA ? delta_need(s) : 0));
}

slot_set arch_may(const struct arch *a, const struct model_shape *s, int layer)
{
    return layer_part(a, s, layer, a->may, a->expert_may, a->state_may);
}

/* The shape that a tensor must have, and as text. */
static void slot_shape(int64_t want[3], char *text, size_t size, enum slot slot, const struct arch *a,
                       const struct model_shape *s, int layer)
{
    const struct arch_slot *d = &ARCH_SLOTS[slot];
    const enum dim dims[3] = { d->cols, d->rows, d->matrices };
    size_t used = 0;
    for (int i = 0; i < 3; i++) {
        want[i] = arch_layer_dim(dims[i], a, s, layer);
        if (dims[i] == DIM_NONE || used >= size) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "," : "", (long long)want[i]);
    }
}

void arch_tensor_name(char *buf, size_t size, int layer, enum slot slot, int expert)
{
    char one[ARCH_NAME];
    if (expert < 0) {
        arch_slot_name(buf, size, layer, slot);
        return;
    }
    const char *name = ARCH_SLOTS[slot].each, *number = strstr(name, "%d");
    snprintf(one, sizeof one, "%.*s%d%s", (int)(number - name), name, expert, number + 2);
    snprintf(buf, size, "blk.%d.%s", layer, one);
}

/* The number in a name without the prefix "blk.N.", which is `each` with a number for %d; -1: it is not. */
static int number_in(const char *name, const char *each)
{
    const size_t before = each ? (size_t)(strstr(each, "%d") - each) : 0;
    int n = -1, length = 0;
    if (!each || strncmp(name, each, before) || name[before] < '0' || name[before] > '9') return -1;
    if (sscanf(name + before, "%9d%n", &n, &length) != 1 || (name[before] == '0' && length > 1)) return -1;
    return strcmp(name + before + length, each + before + 2) ? -1 : n;
}

static int layer_prefix(const char *name)
{
    int layer, behind = 0;
    return sscanf(name, "blk.%d.%n", &layer, &behind) == 1 ? behind : 0;
}

int arch_expert_of(const char *name)
{
    const int behind = layer_prefix(name);
    int n = -1;
    for (int i = 0; i < SLOT_COUNT && behind && n < 0; i++) n = number_in(name + behind, ARCH_SLOTS[i].each);
    return n;
}

bool arch_is_of_experts(const char *name)
{
    return strstr(name, "_exps") || arch_expert_of(name) >= 0;
}

bool arch_slot_is_split(const struct model_shape *s, const struct gguf *g, int layer, enum slot slot)
{
    char name[ARCH_NAME];
    if (layer < 0 || !ARCH_SLOTS[slot].each) return false;
    arch_tensor_name(name, sizeof name, layer, slot, -1);
    bool found = false;
    for (int e = 0; e < s->experts && !found && !gguf_tensor_find(g, name); e++) {
        char one[ARCH_NAME];
        arch_tensor_name(one, sizeof one, layer, slot, e);
        found = gguf_tensor_find(g, one);
    }
    return found;
}

/* Check one tensor (expert -1: that of the slot). *out stays NULL for an optional tensor that the file does
 * not contain. */
static enum err_code slot_check(const struct gguf_tensor **out, const struct arch *a,
                                const struct model_shape *s, const struct gguf *g, int layer, enum slot slot,
                                int expert, struct err *why)
{
    char name[ARCH_NAME], want[64], have[96];
    int64_t shape[3];
    arch_tensor_name(name, sizeof name, layer, slot, expert);
    slot_shape(shape, want, sizeof want, slot, a, s, layer);
    if (expert >= 0) {
        shape[2] = 1;
        *strrchr(want, ',') = '\0';
    }

    const struct gguf_tensor *t = gguf_tensor_find(g, name);
    *out = t;
    if (!t) {
        if (expert < 0 && !(arch_need(a, s, layer) & SLOT_BIT(slot))) return ERR_OK;
        return err_set(why, ERR_FORMAT, "tensor '%s': expected [%s], file has none of this name", name, want);
    }
    const bool fits = t->shape[0] == shape[0] && t->shape[1] == shape[1] && t->shape[2] == shape[2] &&
                      t->shape[3] == 1;
    if (!fits) {
        shape_text(have, sizeof have, t);
        return err_set(why, ERR_FORMAT, "tensor '%s': expected [%s], file has [%s]", name, want, have);
    }
    if (!t->format->decode)
        return err_set(why, ERR_FORMAT, "tensor '%s' is %s, and no kernel runs this format yet", name,
                       t->format->name);
    return ERR_OK;
}

enum err_code arch_walk(const struct arch *a, const struct model_shape *s, const struct gguf *g,
                        arch_visit_fn *visit, void *ctx, struct err *why)
{
    const enum err_code incomplete = arch_check_sets(a, s, g, why);
    if (incomplete) return incomplete;
    for (int slot = 0; slot < SLOT_COUNT; slot++) {
        const bool global = slot < SLOT_GLOBAL_COUNT;
        for (int layer = global ? -1 : 0; layer < (global ? 0 : s->layers); layer++) {
            if (!((arch_need(a, s, layer) | arch_may(a, s, layer)) & SLOT_BIT(slot))) continue;
            const bool split = arch_slot_is_split(s, g, layer, (enum slot)slot);
            for (int e = split ? 0 : -1; e < (split ? s->experts : 0); e++) {
                const struct gguf_tensor *t;
                enum err_code rc = slot_check(&t, a, s, g, layer, (enum slot)slot, e, why);
                if (!rc && t && visit) rc = visit(ctx, layer, (enum slot)slot, e, t, why);
                if (rc) return rc;
            }
        }
    }
    return ERR_OK;
}

/* Is it the slot's name, or that of one of its experts? */
static bool name_is_of(const char *name, const struct arch_slot *slot, const struct model_shape *s)
{
    const int expert = number_in(name, slot->each);
    return !strcmp(name, slot->name) || (expert >= 0 && expert < s->experts);
}

bool arch_slot_find(int *layer, enum slot *slot, const struct arch *a, const struct model_shape *s,
                    const char *name)
{
    int n = -1, behind = 0;
    const bool in_layer = sscanf(name, "blk.%d.%n", &n, &behind) == 1 && behind > 0;
    if (in_layer && (n < 0 || n >= s->layers)) return false;
    *layer = in_layer ? n : -1;
    for (int i = in_layer ? SLOT_GLOBAL_COUNT : 0; i < (in_layer ? SLOT_COUNT : SLOT_GLOBAL_COUNT); i++) {
        if (!((arch_need(a, s, *layer) | arch_may(a, s, *layer)) & SLOT_BIT(i)) ||
            !name_is_of(name + behind, &ARCH_SLOTS[i], s))
            continue;
        *slot = (enum slot)i;
        return true;
    }
    return false;
}
