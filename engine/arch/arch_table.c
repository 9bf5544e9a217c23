/* The architecture table. A new model family is a row here; only a new kind of operation changes the forward
 * pass. docs/models.md is made from it. */
#include "engine/arch/arch.h"

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

/* Groups of slots that occur together. */
#define NEED_ENDS  (SLOT_BIT(SLOT_TOKEN_EMBD) | SLOT_BIT(SLOT_OUTPUT_NORM))
#define NEED_QKV   (SLOT_BIT(SLOT_Q) | SLOT_BIT(SLOT_K) | SLOT_BIT(SLOT_V) | SLOT_BIT(SLOT_ATTN_OUT))
#define NEED_FUSED (SLOT_BIT(SLOT_QKV) | SLOT_BIT(SLOT_ATTN_OUT))
#define NEED_NORMS (SLOT_BIT(SLOT_ATTN_NORM) | SLOT_BIT(SLOT_FFN_NORM))
#define NEED_NORM_BIASES                                                                                     \
    (SLOT_BIT(SLOT_OUTPUT_NORM_B) | SLOT_BIT(SLOT_ATTN_NORM_B) | SLOT_BIT(SLOT_FFN_NORM_B))
#define NEED_GATED     (SLOT_BIT(SLOT_GATE) | SLOT_BIT(SLOT_UP) | SLOT_BIT(SLOT_DOWN))
#define NEED_PLAIN_FFN (SLOT_BIT(SLOT_UP) | SLOT_BIT(SLOT_DOWN))
#define NEED_FUSED_BIASES                                                                                    \
    (SLOT_BIT(SLOT_QKV_B) | SLOT_BIT(SLOT_ATTN_OUT_B) | SLOT_BIT(SLOT_UP_B) | SLOT_BIT(SLOT_DOWN_B))
#define QKV_BIASES    (SLOT_BIT(SLOT_Q_B) | SLOT_BIT(SLOT_K_B) | SLOT_BIT(SLOT_V_B))
#define QK_NORMS      (SLOT_BIT(SLOT_Q_NORM) | SLOT_BIT(SLOT_K_NORM))
#define QK_NORMS_EACH (SLOT_BIT(SLOT_Q_NORM_EACH) | SLOT_BIT(SLOT_K_NORM_EACH))
#define FFN_BIASES    (SLOT_BIT(SLOT_GATE_B) | SLOT_BIT(SLOT_UP_B) | SLOT_BIT(SLOT_DOWN_B))
#define MAY_ENDS      (SLOT_BIT(SLOT_OUTPUT) | SLOT_BIT(SLOT_OUTPUT_B))
#define POST_NORMS    (SLOT_BIT(SLOT_POST_ATTN_NORM) | SLOT_BIT(SLOT_POST_FFN_NORM))
#define LLAMA_LIKE    (NEED_ENDS | NEED_NORMS | NEED_QKV | NEED_GATED)

/* Gate and up are two tensors or one: expert_form_check */
#define EXPERT_NEED (SLOT_BIT(SLOT_ROUTER) | SLOT_BIT(SLOT_DOWN_EXPERTS))
#define EXPERT_MAY  (SLOT_BIT(SLOT_GATE_EXPERTS) | SLOT_BIT(SLOT_UP_EXPERTS) | SLOT_BIT(SLOT_GATE_UP_EXPERTS))
#define EXPERT_BIAS_SLOTS                                                                                    \
    (SLOT_BIT(SLOT_GATE_EXPERTS_B) | SLOT_BIT(SLOT_UP_EXPERTS_B) | SLOT_BIT(SLOT_DOWN_EXPERTS_B))
#define SHARED_EXPERT (SLOT_BIT(SLOT_GATE_SHARED) | SLOT_BIT(SLOT_UP_SHARED) | SLOT_BIT(SLOT_DOWN_SHARED))

/* Layers with a state. A delta net computes its q, k, v and z by two matrices or one: arch_need */
#define DELTA_NEED                                                                                           \
    (SLOT_BIT(SLOT_STATE_CONV) | SLOT_BIT(SLOT_STATE_STEP_B) | SLOT_BIT(SLOT_STATE_A) |                      \
     SLOT_BIT(SLOT_STATE_NORM) | SLOT_BIT(SLOT_STATE_OUT))
#define SCAN_NEED                                                                                            \
    (SLOT_BIT(SLOT_STATE_IN) | SLOT_BIT(SLOT_STATE_CONV) | SLOT_BIT(SLOT_STATE_CONV_B) |                     \
     SLOT_BIT(SLOT_STATE_STEP_B) | SLOT_BIT(SLOT_STATE_A_COLUMN) | SLOT_BIT(SLOT_STATE_D) |                  \
     SLOT_BIT(SLOT_STATE_GROUP_NORM) | SLOT_BIT(SLOT_STATE_OUT))
#define SHORT_NEED (SLOT_BIT(SLOT_SHORT_IN) | SLOT_BIT(SLOT_SHORT_CONV) | SLOT_BIT(SLOT_SHORT_OUT))
#define QWEN_HYBRID                                                                                          \
    (NEED_ENDS | NEED_QKV | NEED_GATED | QK_NORMS | SLOT_BIT(SLOT_ATTN_NORM) | SLOT_BIT(SLOT_FFN_NORM_2))

/* clang-format off */
const struct arch ARCHS[] = {
    { .name = "llama", .models = "Llama 1 to 3, Mistral 7B, Mixtral, SmolLM, TinyLlama, Yi", .need = LLAMA_LIKE,
      .may = MAY_ENDS | SLOT_BIT(SLOT_ROPE_FREQS) | QKV_BIASES | SLOT_BIT(SLOT_ATTN_OUT_B) | FFN_BIASES, .expert_need = EXPERT_NEED, .expert_may = EXPERT_MAY,
      .router = ROUTER_SOFTMAX, .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS, .rope = ROPE_NEIGHBOURS, .act = ACT_SILU, .window_listed = true },
    { .name = "qwen2", .models = "Qwen 2 and 2.5", .need = LLAMA_LIKE | QKV_BIASES, .may = MAY_ENDS, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU,
      .window_listed = true },
    { .name = "gpt2", .models = "GPT-2",
      .need = NEED_ENDS | NEED_NORMS | NEED_NORM_BIASES | NEED_FUSED | NEED_PLAIN_FFN | NEED_FUSED_BIASES | SLOT_BIT(SLOT_POSITION_EMBD), .may = MAY_ENDS,
      .norm = NORM_LAYER, .rope = ROPE_NONE, .act = ACT_GELU_TANH },
    { .name = "qwen3", .models = "Qwen 3", .need = LLAMA_LIKE | QK_NORMS, .may = MAY_ENDS, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU,
      .qk_norm = QK_NORM_HEAD, .window_listed = true },
    { .name = "phi3", .models = "Phi 3 and 4", .need = NEED_ENDS | NEED_NORMS | NEED_FUSED | NEED_PLAIN_FFN,
      .may = MAY_ENDS | SLOT_BIT(SLOT_ROPE_LONG) | SLOT_BIT(SLOT_ROPE_SHORT), .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU, .gate_in_up = true,
      .window_period = 1 },
    { .name = "gptneox", .models = "GPT-NeoX, Pythia", .need = NEED_ENDS | NEED_NORMS | NEED_NORM_BIASES | NEED_FUSED | NEED_PLAIN_FFN | NEED_FUSED_BIASES,
      .may = MAY_ENDS, .norm = NORM_LAYER, .rope = ROPE_HALVES, .act = ACT_GELU_TANH, .residual = RESIDUAL_BY_KEY },
    { .name = "starcoder2", .models = "StarCoder 2", .need = NEED_ENDS | NEED_NORMS | NEED_NORM_BIASES | NEED_QKV | NEED_PLAIN_FFN,
      .may = MAY_ENDS | QKV_BIASES | SLOT_BIT(SLOT_ATTN_OUT_B) | SLOT_BIT(SLOT_UP_B) | SLOT_BIT(SLOT_DOWN_B), .norm = NORM_LAYER, .rope = ROPE_HALVES,
      .act = ACT_GELU_TANH, .window_listed = true },
    { .name = "falcon", .models = "Falcon 7B and 40B",
      .need = NEED_ENDS | SLOT_BIT(SLOT_OUTPUT_NORM_B) | SLOT_BIT(SLOT_ATTN_NORM) | SLOT_BIT(SLOT_ATTN_NORM_B) | NEED_FUSED | NEED_PLAIN_FFN,
      .may = MAY_ENDS | SLOT_BIT(SLOT_ATTN_NORM_2) | SLOT_BIT(SLOT_ATTN_NORM_2_B), .norm = NORM_LAYER, .rope = ROPE_HALVES, .act = ACT_GELU_TANH,
      .residual = RESIDUAL_PARALLEL },
    { .name = "command-r", .models = "Command R and R+", .need = NEED_ENDS | SLOT_BIT(SLOT_ATTN_NORM) | NEED_QKV | NEED_GATED,
      .may = MAY_ENDS | QKV_BIASES | SLOT_BIT(SLOT_ATTN_OUT_B) | QK_NORMS_EACH, .norm = NORM_LAYER, .rope = ROPE_NEIGHBOURS, .act = ACT_SILU,
      .qk_norm = QK_NORM_EACH, .residual = RESIDUAL_PARALLEL },
    { .name = "gemma", .models = "Gemma 1", .need = LLAMA_LIKE, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_GELU_TANH, .embedding_root = true },
    { .name = "gemma2", .models = "Gemma 2", .need = LLAMA_LIKE | POST_NORMS, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_GELU_TANH,
      .embedding_root = true, .window_period = 2, .window = 4096, .attn_softcap = 50, .logit_softcap = 30, .wide_query_layers = 46 },
    { .name = "gemma3", .models = "Gemma 3", .need = LLAMA_LIKE | QK_NORMS | POST_NORMS, .may = MAY_ENDS, .norm = NORM_RMS, .rope = ROPE_HALVES,
      .act = ACT_GELU_TANH, .qk_norm = QK_NORM_HEAD, .embedding_root = true, .window_period = 6, .window_rope_plain = true, .window_rope_base = 10000,
      .wide_query_layers = 62 },
    { .name = "olmo2", .models = "OLMo 2 and 3", .need = NEED_ENDS | NEED_QKV | NEED_GATED | QK_NORMS | POST_NORMS, .may = MAY_ENDS, .norm = NORM_RMS,
      .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_ROW, .window_period = 4 /* OLMo 3; OLMo 2 has no window */, .window_rope_plain = true },
    { .name = "granite", .models = "Granite 3", .need = LLAMA_LIKE, .may = MAY_ENDS | QKV_BIASES | SLOT_BIT(SLOT_ATTN_OUT_B), .norm = NORM_RMS,
      .rope = ROPE_NEIGHBOURS, .act = ACT_SILU, .logits_divided = true },
    { .name = "qwen2moe", .models = "Qwen 1.5 and 2 with experts", .need = LLAMA_LIKE | QKV_BIASES, .may = MAY_ENDS,
      .expert_need = EXPERT_NEED | SHARED_EXPERT | SLOT_BIT(SLOT_SHARED_SCORE), .expert_may = EXPERT_MAY, .router = ROUTER_SOFTMAX,
      .router_sum = ROUTER_SUM_BY_KEY, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU },
    { .name = "qwen3moe", .models = "Qwen 3 30B-A3B, 235B-A22B, Qwen 3 Coder", .need = LLAMA_LIKE | QK_NORMS, .may = MAY_ENDS, .expert_need = EXPERT_NEED,
      .expert_may = EXPERT_MAY, .router = ROUTER_SOFTMAX, .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU,
      .qk_norm = QK_NORM_HEAD },
    { .name = "olmoe", .models = "OLMoE", .need = LLAMA_LIKE | QK_NORMS, .may = MAY_ENDS, .expert_need = EXPERT_NEED, .expert_may = EXPERT_MAY,
      .router = ROUTER_SOFTMAX, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_ROW },
    { .name = "granitemoe", .models = "Granite 3 with experts", .need = LLAMA_LIKE, .may = MAY_ENDS, .expert_need = EXPERT_NEED,
      .expert_may = EXPERT_MAY | SHARED_EXPERT, .router = ROUTER_SOFTMAX, .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS, .rope = ROPE_NEIGHBOURS,
      .act = ACT_SILU, .logits_divided = true },
    { .name = "gpt-oss", .models = "gpt-oss 20B and 120B",
      .need = NEED_ENDS | NEED_QKV | NEED_GATED | QKV_BIASES | SLOT_BIT(SLOT_ATTN_OUT_B) | SLOT_BIT(SLOT_ATTN_NORM) | SLOT_BIT(SLOT_FFN_NORM_2) |
              SLOT_BIT(SLOT_SINKS),
      .may = MAY_ENDS, .expert_need = EXPERT_NEED | EXPERT_BIAS_SLOTS | SLOT_BIT(SLOT_ROUTER_B) | SLOT_BIT(SLOT_GATE_EXPERTS) | SLOT_BIT(SLOT_UP_EXPERTS),
      .router = ROUTER_CHOSEN, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SWIGLU_CLIPPED, .window_period = 2 },
    { .name = "deepseek2", .models = "DeepSeek V2, V3 and R1, GLM-4.7-Flash",
      .need = NEED_ENDS | NEED_NORMS | NEED_GATED | SLOT_BIT(SLOT_ATTN_OUT) | SLOT_BIT(SLOT_LATENT_KV_A) | SLOT_BIT(SLOT_LATENT_KV_A_NORM), .may = MAY_ENDS,
      .latent = true, .expert_need = EXPERT_NEED, .expert_may = EXPERT_MAY | SHARED_EXPERT | SLOT_BIT(SLOT_ROUTER_CHOICE), .router = ROUTER_BY_KEY,
      .router_sum = ROUTER_SUM_BY_KEY, .norm = NORM_RMS, .rope = ROPE_NEIGHBOURS, .act = ACT_SILU },
    { .name = "glm4moe", .models = "GLM-4.5 and 4.6", .need = NEED_ENDS | NEED_QKV | NEED_GATED | SLOT_BIT(SLOT_ATTN_NORM) | SLOT_BIT(SLOT_FFN_NORM_2),
      .may = MAY_ENDS | QKV_BIASES | QK_NORMS, .expert_need = EXPERT_NEED, .expert_may = EXPERT_MAY | SHARED_EXPERT | SLOT_BIT(SLOT_ROUTER_CHOICE),
      .router = ROUTER_BY_KEY, .router_sum = ROUTER_SUM_BY_KEY, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_HEAD },
    { .name = "dots1", .models = "dots.llm1", .need = LLAMA_LIKE | QK_NORMS, .may = MAY_ENDS, .expert_need = EXPERT_NEED,
      .expert_may = EXPERT_MAY | SHARED_EXPERT | SLOT_BIT(SLOT_ROUTER_CHOICE), .router = ROUTER_BY_KEY, .router_sum = ROUTER_SUM_BY_KEY, .norm = NORM_RMS,
      .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_HEAD },
    { .name = "minimax-m2", .models = "MiniMax M2", .need = LLAMA_LIKE | QK_NORMS, .may = MAY_ENDS, .expert_need = EXPERT_NEED | SLOT_BIT(SLOT_ROUTER_CHOICE),
      .expert_may = EXPERT_MAY, .router = ROUTER_BY_KEY, .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU,
      .qk_norm = QK_NORM_ROW },
    { .name = "bailingmoe2", .models = "Ling 2, Ring 2", .need = NEED_ENDS | NEED_NORMS | NEED_FUSED | NEED_GATED | QK_NORMS, .may = MAY_ENDS,
      .expert_need = EXPERT_NEED, .expert_may = EXPERT_MAY | SHARED_EXPERT | SLOT_BIT(SLOT_ROUTER_CHOICE), .router = ROUTER_BY_KEY,
      .router_sum = ROUTER_SUM_BY_KEY, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_HEAD },
    { .name = "ernie4_5-moe", .models = "ERNIE 4.5 with experts", .need = LLAMA_LIKE, .may = MAY_ENDS, .expert_need = EXPERT_NEED,
      .expert_may = EXPERT_MAY | SHARED_EXPERT | SLOT_BIT(SLOT_ROUTER_CHOICE), .router = ROUTER_SOFTMAX, .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS,
      .rope = ROPE_NEIGHBOURS, .act = ACT_SILU },
    { .name = "ernie4_5", .models = "ERNIE 4.5", .need = LLAMA_LIKE, .may = MAY_ENDS, .norm = NORM_RMS, .rope = ROPE_NEIGHBOURS, .act = ACT_SILU },
    { .name = "smollm3", .models = "SmolLM 3", .need = LLAMA_LIKE, .may = MAY_ENDS, .norm = NORM_RMS, .rope = ROPE_NEIGHBOURS, .act = ACT_SILU,
      .rope_period = 4 },
    { .name = "exaone4", .models = "EXAONE 4", .need = NEED_ENDS | NEED_QKV | NEED_GATED | QK_NORMS | POST_NORMS, .may = MAY_ENDS | SLOT_BIT(SLOT_ROPE_FREQS),
      .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_HEAD, .window_period = 4, .rope_in_windows = true,
      .rope_without_windows = true },
    { .name = "seed_oss", .models = "Seed-OSS", .need = NEED_ENDS | NEED_QKV | NEED_GATED | SLOT_BIT(SLOT_ATTN_NORM) | SLOT_BIT(SLOT_FFN_NORM_2),
      .may = MAY_ENDS | QKV_BIASES, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU },
    { .name = "cohere2", .models = "Command R7B, Command A", .need = NEED_ENDS | SLOT_BIT(SLOT_ATTN_NORM) | NEED_QKV | NEED_GATED,
      .may = MAY_ENDS | QKV_BIASES | SLOT_BIT(SLOT_ATTN_OUT_B), .norm = NORM_LAYER, .rope = ROPE_NEIGHBOURS, .act = ACT_SILU, .residual = RESIDUAL_PARALLEL,
      .window_period = 4, .rope_in_windows = true },
    { .name = "hunyuan-dense", .models = "Hunyuan without experts", .need = LLAMA_LIKE | QK_NORMS, .may = MAY_ENDS, .norm = NORM_RMS, .rope = ROPE_HALVES,
      .act = ACT_SILU, .qk_norm = QK_NORM_HEAD, .qk_norm_after_rope = true },
    { .name = "llama4", .models = "Llama 4 Scout and Maverick", .need = LLAMA_LIKE, .may = MAY_ENDS | SLOT_BIT(SLOT_ROPE_FREQS),
      .expert_need = EXPERT_NEED | SHARED_EXPERT, .expert_may = EXPERT_MAY, .router = ROUTER_INPUT, .norm = NORM_RMS, .rope = ROPE_NEIGHBOURS, .act = ACT_SILU,
      .rope_period = 4, .qk_norm_plain_except = 128, .chunk = 8192, .query_scale_step = 0.1, .query_scale_tokens = 8192 },
    { .name = "mistral3", .models = "Ministral 3", .need = LLAMA_LIKE, .may = MAY_ENDS, .norm = NORM_RMS, .rope = ROPE_NEIGHBOURS, .act = ACT_SILU,
      .scales_queries = true },
    { .name = "glm4", .models = "GLM-4 9B and 32B of 2025", .need = NEED_ENDS | NEED_NORMS | NEED_QKV | NEED_PLAIN_FFN | POST_NORMS,
      .may = MAY_ENDS | QKV_BIASES, .norm = NORM_RMS, .rope = ROPE_NEIGHBOURS, .act = ACT_SILU, .gate_in_up = true },
    { .name = "starcoder", .models = "StarCoder 1, SantaCoder",
      .need = NEED_ENDS | NEED_NORMS | NEED_NORM_BIASES | NEED_FUSED | NEED_PLAIN_FFN | NEED_FUSED_BIASES | SLOT_BIT(SLOT_POSITION_EMBD), .may = MAY_ENDS,
      .norm = NORM_LAYER, .rope = ROPE_NONE, .act = ACT_GELU_TANH },
    { .name = "phi2", .models = "Phi 1, 1.5 and 2",
      .need = NEED_ENDS | SLOT_BIT(SLOT_OUTPUT_NORM_B) | SLOT_BIT(SLOT_ATTN_NORM) | SLOT_BIT(SLOT_ATTN_NORM_B) | NEED_QKV | QKV_BIASES | NEED_FUSED |
              NEED_FUSED_BIASES | NEED_PLAIN_FFN,
      .may = MAY_ENDS, .norm = NORM_LAYER, .rope = ROPE_HALVES, .act = ACT_GELU_TANH, .qkv_forms = true, .residual = RESIDUAL_PARALLEL },
    { .name = "stablelm", .models = "StableLM 3B, StableLM 2",
      .need = NEED_ENDS | SLOT_BIT(SLOT_OUTPUT_NORM_B) | SLOT_BIT(SLOT_ATTN_NORM) | SLOT_BIT(SLOT_ATTN_NORM_B) | NEED_QKV | NEED_GATED,
      .may = MAY_ENDS | QKV_BIASES | QK_NORMS_EACH | SLOT_BIT(SLOT_FFN_NORM) | SLOT_BIT(SLOT_FFN_NORM_B), .norm = NORM_LAYER, .rope = ROPE_HALVES,
      .act = ACT_SILU, .qk_norm = QK_NORM_EACH, .residual = RESIDUAL_BY_KEY },
    { .name = "qwen2vl", .models = "Qwen 2 VL and 2.5 VL, without images", .need = LLAMA_LIKE | QKV_BIASES, .may = MAY_ENDS, .norm = NORM_RMS,
      .rope = ROPE_HALVES, .act = ACT_SILU },
    { .name = "qwen3vl", .models = "Qwen 3 VL, without images", .need = LLAMA_LIKE | QK_NORMS, .may = MAY_ENDS, .norm = NORM_RMS, .rope = ROPE_HALVES,
      .act = ACT_SILU, .qk_norm = QK_NORM_HEAD },
    { .name = "qwen3vlmoe", .models = "Qwen 3 VL with experts, without images", .need = LLAMA_LIKE | QK_NORMS, .may = MAY_ENDS, .expert_need = EXPERT_NEED,
      .expert_may = EXPERT_MAY, .router = ROUTER_SOFTMAX, .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU,
      .qk_norm = QK_NORM_HEAD },
    { .name = "gemma4", .models = "Gemma 4: E2B, E4B, 26B-A4B, 31B",
      .need = (LLAMA_LIKE & ~SLOT_BIT(SLOT_V)) | QK_NORMS | POST_NORMS | SLOT_BIT(SLOT_LAYER_INPUTS) | SLOT_BIT(SLOT_LAYER_INPUTS_PROJ) |
              SLOT_BIT(SLOT_LAYER_INPUTS_NORM) | SLOT_BIT(SLOT_INPUT_GATE) | SLOT_BIT(SLOT_INPUT_OUT) | SLOT_BIT(SLOT_INPUT_NORM),
      .may = MAY_ENDS | SLOT_BIT(SLOT_V) | SLOT_BIT(SLOT_ROPE_FREQS) | SLOT_BIT(SLOT_LAYER_SCALE), .layers_differ = true, .value_norm = true,
      .experts_beside = true, .attn_scale = 1,
      .expert_need = EXPERT_NEED | SLOT_BIT(SLOT_ROUTER_SCALE) | SLOT_BIT(SLOT_EXPERTS_NORM) | SLOT_BIT(SLOT_POST_FFN_NORM_1) |
              SLOT_BIT(SLOT_POST_EXPERTS_NORM),
      .expert_may = EXPERT_MAY | SLOT_BIT(SLOT_EXPERT_SCALE), .router = ROUTER_SOFTMAX, .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS, .rope = ROPE_HALVES,
      .act = ACT_GELU_TANH, .qk_norm = QK_NORM_HEAD, .embedding_root = true, .window_period = 6, .window_rope_plain = true, .window_rope_base = 10000,
      .logit_softcap = 30 },
    { .name = "qwen35", .models = "Qwen 3.5 and 3.6 without experts", .need = QWEN_HYBRID, .may = MAY_ENDS, .state = MIXER_DELTA,
      .state_need = DELTA_NEED | SLOT_BIT(SLOT_STATE_BETA) | SLOT_BIT(SLOT_STATE_ALPHA), .attention_period = 4, .state_interleaved = true, .query_gate = true,
      .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_HEAD },
    { .name = "qwen35moe", .models = "Qwen 3.5 and 3.6 with experts: 35B-A3B, 122B-A10B, 397B-A17B", .need = QWEN_HYBRID, .may = MAY_ENDS, .state = MIXER_DELTA,
      .state_need = DELTA_NEED | SLOT_BIT(SLOT_STATE_BETA) | SLOT_BIT(SLOT_STATE_ALPHA), .attention_period = 4, .state_interleaved = true, .query_gate = true,
      .expert_need = EXPERT_NEED | SHARED_EXPERT | SLOT_BIT(SLOT_SHARED_SCORE), .expert_may = EXPERT_MAY, .router = ROUTER_SOFTMAX,
      .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_HEAD },
    { .name = "qwen3next", .models = "Qwen 3 Next", .need = QWEN_HYBRID, .may = MAY_ENDS, .state = MIXER_DELTA,
      .state_need = DELTA_NEED | SLOT_BIT(SLOT_STATE_BETA_ALPHA), .attention_period = 4, .query_gate = true,
      .expert_need = EXPERT_NEED | SHARED_EXPERT | SLOT_BIT(SLOT_SHARED_SCORE), .expert_may = EXPERT_MAY, .router = ROUTER_SOFTMAX,
      .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_HEAD },
    { .name = "lfm2", .models = "LFM2 and LFM2.5 without experts",
      .need = SLOT_BIT(SLOT_TOKEN_EMBD) | SLOT_BIT(SLOT_OUTPUT_NORM_2) | NEED_NORMS | NEED_QKV | NEED_GATED | QK_NORMS, .may = MAY_ENDS,
      .state = MIXER_CONVOLUTION, .state_need = SHORT_NEED, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_HEAD },
    { .name = "lfm2moe", .models = "LFM2 and LFM2.5 with experts: 8B-A1B",
      .need = SLOT_BIT(SLOT_TOKEN_EMBD) | SLOT_BIT(SLOT_OUTPUT_NORM_2) | NEED_NORMS | NEED_QKV | NEED_GATED | QK_NORMS, .may = MAY_ENDS,
      .state = MIXER_CONVOLUTION, .state_need = SHORT_NEED, .expert_need = EXPERT_NEED | SLOT_BIT(SLOT_ROUTER_CHOICE), .expert_may = EXPERT_MAY,
      .router = ROUTER_BY_KEY, .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS, .rope = ROPE_HALVES, .act = ACT_SILU, .qk_norm = QK_NORM_HEAD },
    { .name = "nemotron_h", .models = "Nemotron-H, Nemotron Nano 2", .need = NEED_ENDS | SLOT_BIT(SLOT_ATTN_NORM) | NEED_QKV | NEED_PLAIN_FFN, .may = MAY_ENDS,
      .state = MIXER_SCAN, .state_need = SCAN_NEED, .one_part = true, .norm = NORM_RMS, .rope = ROPE_HALVES, .rope_period = 1 /* no layer has it */,
      .act = ACT_RELU_SQUARED },
    { .name = "nemotron_h_moe", .models = "Nemotron 3 Nano 30B-A3B", .need = NEED_ENDS | SLOT_BIT(SLOT_ATTN_NORM) | NEED_QKV | NEED_PLAIN_FFN, .may = MAY_ENDS,
      .state = MIXER_SCAN, .state_need = SCAN_NEED, .one_part = true, .expert_need = EXPERT_NEED | SLOT_BIT(SLOT_UP_EXPERTS) | SLOT_BIT(SLOT_ROUTER_CHOICE),
      .expert_may = SLOT_BIT(SLOT_UP_SHARED) | SLOT_BIT(SLOT_DOWN_SHARED), .router = ROUTER_BY_KEY, .router_sum = ROUTER_SUM_BY_KEY, .norm = NORM_RMS,
      .rope = ROPE_HALVES, .rope_period = 1, .act = ACT_RELU_SQUARED },
    { .name = "granitehybrid", .models = "Granite 4", .need = LLAMA_LIKE, .may = MAY_ENDS, .state = MIXER_SCAN, .state_need = SCAN_NEED,
      .expert_need = EXPERT_NEED, .expert_may = EXPERT_MAY | SHARED_EXPERT, .router = ROUTER_SOFTMAX, .router_sum = ROUTER_SUM_ONE, .norm = NORM_RMS,
      .rope = ROPE_NEIGHBOURS, .rope_if_finetuned = true, .act = ACT_SILU, .logits_divided = true },
};
/* clang-format on */
const size_t ARCH_COUNT = COUNT_OF(ARCHS);

const struct arch *arch_find(struct gguf_string name)
{
    for (size_t i = 0; i < ARCH_COUNT; i++)
        if (gguf_string_is(name, ARCHS[i].name)) return &ARCHS[i];
    return NULL;
}
