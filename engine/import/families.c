/* The table of Hugging Face architectures. A row is read only if checkpoints of it are proven by a test:
 * tests/engine/test_import.c runs each against logits of the original. */
#include "engine/import/families.h"

#include <string.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

/* clang-format off */
const struct hf_name HF_NAMES[] = {
    { SLOT_TOKEN_EMBD, "@embed_tokens.weight", 0 },
    { SLOT_OUTPUT_NORM, "@norm.weight", 0 },
    { SLOT_OUTPUT_NORM_B, "@norm.bias", 0 },
    { SLOT_OUTPUT, "lm_head.weight", 0 },
    { SLOT_OUTPUT_B, "lm_head.bias", 0 },
    { SLOT_ATTN_NORM, "input_layernorm.weight", 0 },
    { SLOT_ATTN_NORM_B, "input_layernorm.bias", 0 },
    { SLOT_Q, "self_attn.q_proj.weight", 0 },
    { SLOT_Q_B, "self_attn.q_proj.bias", 0 },
    { SLOT_K, "self_attn.k_proj.weight", 0 },
    { SLOT_K_B, "self_attn.k_proj.bias", 0 },
    { SLOT_V, "self_attn.v_proj.weight", 0 },
    { SLOT_V_B, "self_attn.v_proj.bias", 0 },
    { SLOT_QKV, "self_attn.qkv_proj.weight", 0 },
    { SLOT_Q_NORM, "self_attn.q_norm.weight", 0 },
    { SLOT_K_NORM, "self_attn.k_norm.weight", 0 },
    { SLOT_Q_NORM_EACH, "self_attn.q_norm.weight", 0 },
    { SLOT_K_NORM_EACH, "self_attn.k_norm.weight", 0 },
    { SLOT_ATTN_OUT, "self_attn.o_proj.weight", 0 },
    { SLOT_ATTN_OUT_B, "self_attn.o_proj.bias", 0 },
    /* with a norm behind attention, the one before the feed-forward has a name of its own */
    { SLOT_FFN_NORM, "pre_feedforward_layernorm.weight", 0 },
    { SLOT_POST_ATTN_NORM, "post_attention_layernorm.weight", 0 },
    { SLOT_POST_FFN_NORM, "post_feedforward_layernorm.weight", 0 },
    { SLOT_FFN_NORM, "post_attention_layernorm.weight", 0 },
    { SLOT_FFN_NORM_B, "post_attention_layernorm.bias", 0 },
    { SLOT_FFN_NORM_2, "post_attention_layernorm.weight", 0 },
    { SLOT_GATE, "mlp.gate_proj.weight", 0 },
    { SLOT_GATE_B, "mlp.gate_proj.bias", 0 },
    { SLOT_UP, "mlp.up_proj.weight", 0 },
    { SLOT_UP_B, "mlp.up_proj.bias", 0 },
    { SLOT_DOWN, "mlp.down_proj.weight", 0 },
    { SLOT_DOWN_B, "mlp.down_proj.bias", 0 },
    { SLOT_SINKS, "self_attn.sinks", 0 },
    { SLOT_ROUTER, "mlp.gate.weight", 0 },
    { SLOT_ROUTER_CHOICE, "mlp.gate.e_score_correction_bias", 0 },
    { SLOT_GATE_EXPERTS, "mlp.experts.%d.gate_proj.weight", 0 },
    { SLOT_UP_EXPERTS, "mlp.experts.%d.up_proj.weight", 0 },
    { SLOT_DOWN_EXPERTS, "mlp.experts.%d.down_proj.weight", 0 },
    { SLOT_GATE_SHARED, "mlp.shared_expert.gate_proj.weight", 0 },
    { SLOT_UP_SHARED, "mlp.shared_expert.up_proj.weight", 0 },
    { SLOT_DOWN_SHARED, "mlp.shared_expert.down_proj.weight", 0 },
    { SLOT_SHARED_SCORE, "mlp.shared_expert_gate.weight", 0 },
};
const size_t HF_NAME_COUNT = COUNT_OF(HF_NAMES);

static const struct hf_name MIXTRAL[] = {
    { SLOT_ROUTER, "block_sparse_moe.gate.weight", 0 },
    { SLOT_GATE_EXPERTS, "block_sparse_moe.experts.%d.w1.weight", 0 },
    { SLOT_DOWN_EXPERTS, "block_sparse_moe.experts.%d.w2.weight", 0 },
    { SLOT_UP_EXPERTS, "block_sparse_moe.experts.%d.w3.weight", 0 },
    { .name = NULL },
};

static const struct hf_name PHI3[] = {
    { SLOT_UP, "mlp.gate_up_proj.weight", 0 },
    { .name = NULL },
};

static const struct hf_name GPT2[] = {
    { SLOT_TOKEN_EMBD, "@wte.weight", 0 },
    { SLOT_POSITION_EMBD, "@wpe.weight", 0 },
    { SLOT_OUTPUT_NORM, "@ln_f.weight", 0 },
    { SLOT_OUTPUT_NORM_B, "@ln_f.bias", 0 },
    { SLOT_ATTN_NORM, "ln_1.weight", 0 },
    { SLOT_ATTN_NORM_B, "ln_1.bias", 0 },
    { SLOT_QKV, "attn.c_attn.weight", CHANGE_TRANSPOSED },
    { SLOT_QKV_B, "attn.c_attn.bias", 0 },
    { SLOT_ATTN_OUT, "attn.c_proj.weight", CHANGE_TRANSPOSED },
    { SLOT_ATTN_OUT_B, "attn.c_proj.bias", 0 },
    { SLOT_FFN_NORM, "ln_2.weight", 0 },
    { SLOT_FFN_NORM_B, "ln_2.bias", 0 },
    { SLOT_UP, "mlp.c_fc.weight", CHANGE_TRANSPOSED },
    { SLOT_UP_B, "mlp.c_fc.bias", 0 },
    { SLOT_DOWN, "mlp.c_proj.weight", CHANGE_TRANSPOSED },
    { SLOT_DOWN_B, "mlp.c_proj.bias", 0 },
    { .name = NULL },
};

static const struct hf_name GPT_NEOX[] = {
    { SLOT_TOKEN_EMBD, "@embed_in.weight", 0 },
    { SLOT_OUTPUT_NORM, "@final_layer_norm.weight", 0 },
    { SLOT_OUTPUT_NORM_B, "@final_layer_norm.bias", 0 },
    { SLOT_OUTPUT, "embed_out.weight", 0 },
    { SLOT_QKV, "attention.query_key_value.weight", CHANGE_QKV_HEADS },
    { SLOT_QKV_B, "attention.query_key_value.bias", CHANGE_QKV_HEADS },
    { SLOT_ATTN_OUT, "attention.dense.weight", 0 },
    { SLOT_ATTN_OUT_B, "attention.dense.bias", 0 },
    { SLOT_UP, "mlp.dense_h_to_4h.weight", 0 },
    { SLOT_UP_B, "mlp.dense_h_to_4h.bias", 0 },
    { SLOT_DOWN, "mlp.dense_4h_to_h.weight", 0 },
    { SLOT_DOWN_B, "mlp.dense_4h_to_h.bias", 0 },
    { .name = NULL },
};

static const struct hf_name FALCON[] = {
    { SLOT_TOKEN_EMBD, "@word_embeddings.weight", 0 },
    { SLOT_OUTPUT_NORM, "@ln_f.weight", 0 },
    { SLOT_OUTPUT_NORM_B, "@ln_f.bias", 0 },
    { SLOT_ATTN_NORM, "ln_mlp.weight", 0 }, /* two norms; the one of attention is ln_attn */
    { SLOT_ATTN_NORM_B, "ln_mlp.bias", 0 },
    { SLOT_ATTN_NORM_2, "ln_attn.weight", 0 },
    { SLOT_ATTN_NORM_2_B, "ln_attn.bias", 0 },
    { SLOT_ATTN_NORM, "input_layernorm.weight", 0 },
    { SLOT_ATTN_NORM_B, "input_layernorm.bias", 0 },
    { SLOT_QKV, "self_attention.query_key_value.weight", CHANGE_QKV_GROUPS },
    { SLOT_ATTN_OUT, "self_attention.dense.weight", 0 },
    { SLOT_UP, "mlp.dense_h_to_4h.weight", 0 },
    { SLOT_DOWN, "mlp.dense_4h_to_h.weight", 0 },
    { .name = NULL },
};

static const struct hf_name STARCODER2[] = {
    { SLOT_UP, "mlp.c_fc.weight", 0 },
    { SLOT_UP_B, "mlp.c_fc.bias", 0 },
    { SLOT_DOWN, "mlp.c_proj.weight", 0 },
    { SLOT_DOWN_B, "mlp.c_proj.bias", 0 },
    { .name = NULL },
};

static const struct hf_name GPT_OSS[] = {
    { SLOT_ROUTER, "mlp.router.weight", 0 },
    { SLOT_ROUTER_B, "mlp.router.bias", 0 },
    { SLOT_GATE_EXPERTS, "mlp.experts.gate_up_proj", CHANGE_TRANSPOSED | CHANGE_EVEN_ROWS },
    { SLOT_UP_EXPERTS, "mlp.experts.gate_up_proj", CHANGE_TRANSPOSED | CHANGE_ODD_ROWS },
    { SLOT_DOWN_EXPERTS, "mlp.experts.down_proj", CHANGE_TRANSPOSED },
    { SLOT_GATE_EXPERTS_B, "mlp.experts.gate_up_proj_bias", CHANGE_EVEN_ROWS },
    { SLOT_UP_EXPERTS_B, "mlp.experts.gate_up_proj_bias", CHANGE_ODD_ROWS },
    { SLOT_DOWN_EXPERTS_B, "mlp.experts.down_proj_bias", 0 },
    { .name = NULL },
};

static const struct hf_name GRANITE_MOE[] = {
    { SLOT_ROUTER, "block_sparse_moe.router.layer.weight", 0 },
    { SLOT_GATE_UP_EXPERTS, "block_sparse_moe.input_linear.weight", 0 },
    { SLOT_DOWN_EXPERTS, "block_sparse_moe.output_linear.weight", 0 },
    { .name = NULL },
};

static const struct hf_name GLM4[] = {
    { SLOT_POST_ATTN_NORM, "post_self_attn_layernorm.weight", 0 },
    { SLOT_FFN_NORM, "post_attention_layernorm.weight", 0 },
    { SLOT_POST_FFN_NORM, "post_mlp_layernorm.weight", 0 },
    { SLOT_UP, "mlp.gate_up_proj.weight", 0 },
    { .name = NULL },
};

static const struct hf_name PHI2[] = {
    { SLOT_OUTPUT_NORM, "@final_layernorm.weight", 0 },
    { SLOT_OUTPUT_NORM_B, "@final_layernorm.bias", 0 },
    { SLOT_ATTN_OUT, "self_attn.dense.weight", 0 },
    { SLOT_ATTN_OUT_B, "self_attn.dense.bias", 0 },
    { SLOT_UP, "mlp.fc1.weight", 0 },
    { SLOT_UP_B, "mlp.fc1.bias", 0 },
    { SLOT_DOWN, "mlp.fc2.weight", 0 },
    { SLOT_DOWN_B, "mlp.fc2.bias", 0 },
    { .name = NULL },
};

static const struct hf_name HUNYUAN[] = {
    { SLOT_Q_NORM, "self_attn.query_layernorm.weight", 0 },
    { SLOT_K_NORM, "self_attn.key_layernorm.weight", 0 },
    { .name = NULL },
};

#define LLAMA_ROOTS "model. - model.language_model. language_model.model."
#define ROW(hf, gguf, root, layers, table, bits)                                                             \
    { .architecture = hf, .arch = gguf, .roots = root, .layer = layers, .names = table, .flags = bits }
#define LIKE_LLAMA(hf, gguf, table, bits) ROW(hf, gguf, LLAMA_ROOTS, "layers.%d.", table, bits)

const struct family HF_FAMILIES[] = {
    LIKE_LLAMA("LlamaForCausalLM", "llama", NULL, 0),
    LIKE_LLAMA("MistralForCausalLM", "llama", NULL, FAMILY_WINDOW | FAMILY_ONE_WINDOW),
    LIKE_LLAMA("MixtralForCausalLM", "llama", MIXTRAL, FAMILY_WINDOW | FAMILY_ONE_WINDOW),
    LIKE_LLAMA("Qwen2ForCausalLM", "qwen2", NULL, FAMILY_WINDOW),
    LIKE_LLAMA("Qwen3ForCausalLM", "qwen3", NULL, FAMILY_WINDOW),
    LIKE_LLAMA("Qwen3MoeForCausalLM", "qwen3moe", NULL, 0),
    LIKE_LLAMA("Phi3ForCausalLM", "phi3", PHI3, FAMILY_WINDOW | FAMILY_ONE_WINDOW | FAMILY_PART_ROTATED),
    LIKE_LLAMA("GemmaForCausalLM", "gemma", NULL, FAMILY_PLUS_ONE),
    LIKE_LLAMA("Gemma2ForCausalLM", "gemma2", NULL, FAMILY_PLUS_ONE | FAMILY_WINDOW),
    LIKE_LLAMA("Gemma3ForCausalLM", "gemma3", NULL, FAMILY_PLUS_ONE | FAMILY_WINDOW),
    LIKE_LLAMA("Starcoder2ForCausalLM", "starcoder2", STARCODER2, FAMILY_WINDOW | FAMILY_ONE_WINDOW),
    LIKE_LLAMA("Olmo2ForCausalLM", "olmo2", NULL, 0),
    LIKE_LLAMA("GraniteForCausalLM", "granite", NULL, 0),
    LIKE_LLAMA("CohereForCausalLM", "command-r", NULL, FAMILY_NEIGHBOURS),
    LIKE_LLAMA("GptOssForCausalLM", "gpt-oss", GPT_OSS, FAMILY_WINDOW),
    LIKE_LLAMA("Qwen2MoeForCausalLM", "qwen2moe", NULL, 0),
    LIKE_LLAMA("OlmoeForCausalLM", "olmoe", NULL, 0),
    LIKE_LLAMA("GraniteMoeForCausalLM", "granitemoe", GRANITE_MOE, 0),
    LIKE_LLAMA("SmolLM3ForCausalLM", "smollm3", NULL, 0),
    LIKE_LLAMA("Cohere2ForCausalLM", "cohere2", NULL, FAMILY_NEIGHBOURS | FAMILY_WINDOW),
    LIKE_LLAMA("Glm4ForCausalLM", "glm4", GLM4, FAMILY_NEIGHBOURS | FAMILY_PART_ROTATED),
    LIKE_LLAMA("SeedOssForCausalLM", "seed_oss", NULL, 0),
    LIKE_LLAMA("Ernie4_5ForCausalLM", "ernie4_5", NULL, FAMILY_NEIGHBOURS),
    LIKE_LLAMA("StableLmForCausalLM", "stablelm", NULL, FAMILY_PART_ROTATED),
    LIKE_LLAMA("Exaone4ForCausalLM", "exaone4", NULL, FAMILY_WINDOW),
    LIKE_LLAMA("Olmo3ForCausalLM", "olmo2", NULL, FAMILY_WINDOW),
    LIKE_LLAMA("PhiForCausalLM", "phi2", PHI2, FAMILY_PART_ROTATED),
    LIKE_LLAMA("HunYuanDenseV1ForCausalLM", "hunyuan-dense", HUNYUAN, FAMILY_ROPE_ALPHA),
    ROW("GPT2LMHeadModel", "gpt2", "transformer. -", "h.%d.", GPT2, 0),
    ROW("GPTNeoXForCausalLM", "gptneox", "gpt_neox.", "layers.%d.", GPT_NEOX, FAMILY_PART_ROTATED),
    ROW("FalconForCausalLM", "falcon", "transformer.", "h.%d.", FALCON, 0),
};
/* clang-format on */
const size_t HF_FAMILY_COUNT = COUNT_OF(HF_FAMILIES);

const struct family *hf_family_find(const char *architecture)
{
    for (size_t i = 0; i < HF_FAMILY_COUNT; i++)
        if (!strcmp(HF_FAMILIES[i].architecture, architecture)) return &HF_FAMILIES[i];
    return NULL;
}
