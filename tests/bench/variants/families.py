"""The variants: what each changes of a family's smallest configuration.

A variant is (name, model type, arguments of the config class, edits of config.json after saving). An edit of ABSENT removes
the key; None writes null. The reference is what transformers computes from the edited folder.
"""

ABSENT = object()

SMALL = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
ENDS = {"vocab_size": 96, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
ROUTED = {**EXPERTS, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
S, F = "sliding_attention", "full_attention"

# The smallest configuration of each family, by model type.
FAMILIES = {
    "llama": SMALL,
    "mistral": {**SMALL, "sliding_window": None},
    "mixtral": {**SMALL, **LOCAL},
    "qwen2": SMALL,
    "qwen3": {**SMALL, "head_dim": 16},
    "qwen3_moe": {**SMALL, "head_dim": 16, **ROUTED, "norm_topk_prob": True},
    "phi3": {**SMALL, "head_dim": 16},
    "gemma": {**SMALL, "head_dim": 16},
    "gemma2": {**SMALL, "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 24},
    "gemma3_text": {**SMALL, "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 24, "layer_types": [S, S, F, S]},
    "starcoder2": SMALL,
    "olmo2": SMALL,
    "granite": {**SMALL, "embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.6,
                "attention_multiplier": 0.2},
    "cohere": {**SMALL, "logit_scale": 0.5},
    "gpt_oss": {**SMALL, **LOCAL, "head_dim": 16, "sliding_window": 8, "layer_types": [S, F, S, F],
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "qwen2_moe": {**SMALL, **ROUTED, "shared_expert_intermediate_size": 16},
    "olmoe": {**SMALL, **EXPERTS},
    "granitemoe": {**SMALL, **LOCAL, "embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.6,
                   "attention_multiplier": 0.2},
    "smollm3": SMALL,
    "cohere2": {**SMALL, "head_dim": 16, "sliding_window": 8, "logit_scale": 0.5},
    "glm4": {**SMALL, "head_dim": 16, "attention_bias": True},
    "seed_oss": {**SMALL, "head_dim": 16},
    "ernie4_5": {**SMALL, "head_dim": 16},
    "stablelm": {**SMALL, "use_qkv_bias": True},
    "exaone4": {**SMALL, "sliding_window": 8, "sliding_window_pattern": 4},
    "olmo3": {**SMALL, "sliding_window": 8},
    "phi": {**SMALL, "num_key_value_heads": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                                 "partial_rotary_factor": 0.5}},
    "hunyuan_v1_dense": {**SMALL, "head_dim": 16},
    "gpt2": {**ENDS, "n_positions": 128, "n_embd": 64, "n_layer": 3, "n_head": 4},
    "gpt_neox": {**ENDS, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
                 "max_position_embeddings": 128},
    "falcon": {**ENDS, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "bias": False},
}


def rope(kind, **values):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **values}}


def old_rope(value, **more):
    """The keys of configurations before 2026."""
    return {"rope_parameters": ABSENT, "rope_theta": 10000.0, "rope_scaling": value, **more}


PAIRS = 8  # rotated pairs of a head of 16
ROWS = []


def add(kind, rows):
    """rows: name -> (arguments, edits) or arguments."""
    for name, row in rows.items():
        arguments, edits = row if isinstance(row, tuple) else (row, {})
        ROWS.append((f"{kind}: {name}", kind, {**FAMILIES[kind], **arguments}, edits))


def edit(**edits):
    return ({}, edits)


for kind in FAMILIES:
    add(kind, {"as it is": {}})

# ---- biases
for kind in ("llama", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "olmo2", "granite", "cohere", "cohere2", "olmoe",
             "granitemoe", "smollm3", "olmo3", "hunyuan_v1_dense"):
    add(kind, {"attention_bias": {"attention_bias": True}})
for kind in ("llama", "granite", "smollm3", "seed_oss"):
    add(kind, {"mlp_bias": {"mlp_bias": True}})
add("glm4", {"no biases": {"attention_bias": False}})
add("gpt_oss", {"no biases": {"attention_bias": False}})
add("gpt_neox", {"no biases": {"attention_bias": False}})
add("seed_oss", {"no biases": {"attention_bias": False}, "bias of the output": {"attention_out_bias": True}})
add("starcoder2", {"no biases": {"use_bias": False}})
add("ernie4_5", {"use_bias": {"use_bias": True}})
add("stablelm", {"no biases": {"use_qkv_bias": False}})
add("qwen2_moe", {"no biases": {"qkv_bias": False}})
add("falcon", {"bias": {"bias": True}})

# ---- the output matrix
for kind in ("llama", "qwen2", "mixtral", "phi3", "gpt_oss", "olmoe", "granite", "stablelm", "gpt_neox", "qwen3_moe", "phi"):
    add(kind, {"tied": {"tie_word_embeddings": True}})
for kind in ("gemma", "gemma2", "gemma3_text", "cohere", "starcoder2", "gpt2", "falcon", "ernie4_5"):
    add(kind, {"not tied": {"tie_word_embeddings": False}})
for kind in ("llama", "gemma2", "cohere"):
    add(kind, {"tie_word_embeddings absent": edit(tie_word_embeddings=ABSENT)})

# ---- windows
for kind in ("mistral", "mixtral", "starcoder2", "phi3"):
    add(kind, {"window of 8": {"sliding_window": 8}, "window absent": edit(sliding_window=ABSENT)})
for kind in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
    on = {"use_sliding_window": True, "sliding_window": 8}
    add(kind, {"window in all layers": {**on, "max_window_layers": 0}, "window in upper layers": {**on, "max_window_layers": 2},
               "window off": {**on, "use_sliding_window": False}})
add("qwen2", {"use_sliding_window absent": edit(use_sliding_window=ABSENT, sliding_window=8, layer_types=ABSENT),
              "layer_types absent": ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2},
                                     {"layer_types": ABSENT})})
for kind in ("gemma2", "gemma3_text", "cohere2", "gpt_oss", "exaone4", "olmo3"):
    add(kind, {"all layers with a window": {"layer_types": [S] * 4}, "no layer with a window": {"layer_types": [F] * 4},
               "other layers with a window": {"layer_types": [F, S, S, F]},
               "layer_types absent": edit(layer_types=ABSENT),
               "window absent": edit(sliding_window=ABSENT)})
add("gemma3_text", {"pattern of 2": edit(layer_types=ABSENT, sliding_window_pattern=2, _sliding_window_pattern=2)})
add("cohere2", {"pattern of 2": edit(layer_types=ABSENT, sliding_window_pattern=2, _sliding_window_pattern=2)})
add("exaone4", {"windows null": edit(sliding_window=None), "pattern LLG": edit(layer_types=ABSENT, sliding_window_pattern="LLG")})
add("smollm3", {"other layers without RoPE": {"no_rope_layers": [1, 0, 1, 1]}, "all with RoPE": {"no_rope_layers": [1] * 4},
                "interval of 2": {"no_rope_layers": None, "no_rope_layer_interval": 2}})

# ---- RoPE
for kind in ("llama", "qwen2", "mistral", "granite"):
    add(kind, {
        "rope linear": rope("linear", factor=4.0),
        "rope yarn": rope("yarn", factor=4.0, original_max_position_embeddings=32),
        "rope of 2025, yarn": edit(**old_rope({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32})),
        "rope llama3": rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                            original_max_position_embeddings=32),
        "rope dynamic": rope("dynamic", factor=2.0),
    })
add("llama", {
    "rope longrope": rope("longrope", factor=4.0, short_factor=[1.5] * PAIRS, long_factor=[3.0] * PAIRS,
                          original_max_position_embeddings=32),
    "yarn with attention_factor": rope("yarn", factor=4.0, original_max_position_embeddings=32, attention_factor=1.3),
    "yarn with mscale": rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=0.8),
    "yarn with equal mscales": rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=1.0),
    "yarn with mscale 0": rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=0, mscale_all_dim=0),
    "yarn not truncated": rope("yarn", factor=4.0, original_max_position_embeddings=32, truncate=False),
    "yarn with betas": rope("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=16.0, beta_slow=2.0),
    "yarn without original context": rope("yarn", factor=4.0),
    "partial RoPE": rope("default", partial_rotary_factor=0.5),
    "rope_theta of 2025": edit(rope_parameters=ABSENT, rope_theta=500000.0),
    "no rope key": edit(rope_parameters=ABSENT),
    "rope_scaling of 2025 null": edit(**old_rope(None)),
    "linear with type": edit(**old_rope({"type": "linear", "factor": 2.0})),
})
add("phi3", {
    "longrope, short": rope("longrope", short_factor=[1.5] * PAIRS, long_factor=[3.0] * PAIRS),
    "longrope, long": ({**rope("longrope", short_factor=[1.5] * PAIRS, long_factor=[3.0] * PAIRS),
                        "original_max_position_embeddings": 16}, {}),
})
for kind, part in (("glm4", 1.0), ("stablelm", 0.5), ("gpt_neox", 1.0), ("phi", 1.0)):
    add(kind, {"another part rotated": rope("default", partial_rotary_factor=part),
               "no rope key": edit(rope_parameters=ABSENT)})
for kind in ("gpt_oss", "smollm3", "mixtral", "cohere", "ernie4_5", "gemma3_text"):
    add(kind, {"no rope key": edit(rope_parameters=ABSENT)})
add("gpt_oss", {"yarn": rope("yarn", factor=4.0, original_max_position_embeddings=32, truncate=False, beta_fast=32.0, beta_slow=1.0)})
add("gemma3_text", {"linear in full layers": {"rope_parameters": {
    F: {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}, S: {"rope_type": "default", "rope_theta": 10000.0}}},
    "linear in layers with a window": {"rope_parameters": {
        F: {"rope_type": "default", "rope_theta": 1000000.0}, S: {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}}})
add("hunyuan_v1_dense", {"dynamic with alpha": rope("dynamic", factor=1.0, alpha=1000.0, beta_fast=32, beta_slow=1, mscale=1.0,
                                                    mscale_all_dim=1.0)})
add("olmo3", {"yarn": {"rope_parameters": {
    F: {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0,
        "beta_slow": 1.0},
    S: {"rope_type": "default", "rope_theta": 10000.0}}}})

# ---- caps and factors, in every value that JSON allows
for cap in ("final_logit_softcapping", "attn_logit_softcapping"):
    add("gemma2", {f"{cap} 5": {cap: 5.0}, f"{cap} null": edit(**{cap: None}), f"{cap} absent": edit(**{cap: ABSENT}),
                   f"{cap} 0": edit(**{cap: 0}), f"{cap} false": edit(**{cap: False})})
    add("gemma3_text", {f"{cap} 5": {cap: 5.0}, f"{cap} null": edit(**{cap: None}), f"{cap} absent": edit(**{cap: ABSENT})})
for kind in ("gemma2", "gemma3_text"):
    add(kind, {"query_pre_attn_scalar absent": edit(query_pre_attn_scalar=ABSENT),
               "query_pre_attn_scalar null": edit(query_pre_attn_scalar=None),
               "query_pre_attn_scalar 0": edit(query_pre_attn_scalar=0)})
for kind in ("cohere", "cohere2"):
    add(kind, {"logit_scale absent": edit(logit_scale=ABSENT), "logit_scale null": edit(logit_scale=None),
               "logit_scale 0": edit(logit_scale=0)})
for kind in ("granite", "granitemoe"):
    for key in ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"):
        add(kind, {f"{key} absent": edit(**{key: ABSENT}), f"{key} 0": edit(**{key: 0})})
add("stablelm", {"parallel": {"use_parallel_residual": True}, "use_parallel_residual absent": edit(use_parallel_residual=ABSENT),
                 "qk_layernorm": {"qk_layernorm": True}})
add("gpt_neox", {"sequential": {"use_parallel_residual": False},
                 "use_parallel_residual absent": edit(use_parallel_residual=ABSENT)})
add("cohere", {"use_qk_norm": {"use_qk_norm": True}})
add("phi", {"qk_layernorm": {"qk_layernorm": True}})
add("falcon", {"new decoder": {"new_decoder_architecture": True, "num_kv_heads": 2},
               "new decoder, one norm": {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
               "not parallel": {"parallel_attn": False}, "alibi": {"alibi": True},
               "many keys": {"multi_query": False}})
add("gpt2", {"scaled by layer": {"scale_attn_by_inverse_layer_idx": True}, "not scaled": {"scale_attn_weights": False},
             "n_inner": {"n_inner": 80}})
add("olmoe", {"clip_qkv": {"clip_qkv": 0.5}, "clip_qkv null": edit(clip_qkv=None)})
add("gpt_oss", {"swiglu_limit": {"swiglu_limit": 2.0}, "swiglu_alpha": {"swiglu_alpha": 1.0},
                "limits absent": edit(swiglu_limit=ABSENT, swiglu_alpha=ABSENT)})

# ---- experts
for kind in ("qwen2_moe", "qwen3_moe", "olmoe"):
    add(kind, {"norm_topk_prob": {"norm_topk_prob": True}, "not normalized": {"norm_topk_prob": False},
               "norm_topk_prob absent": edit(norm_topk_prob=ABSENT), "norm_topk_prob null": edit(norm_topk_prob=None),
               "one expert": {"num_experts_per_tok": 1}, "all experts": {"num_experts_per_tok": 4}})
for kind in ("qwen2_moe", "qwen3_moe"):
    add(kind, {"a dense layer": {"mlp_only_layers": [0]}, "every other layer dense": {"decoder_sparse_step": 2}})
for kind in ("mixtral", "granitemoe", "gpt_oss"):
    add(kind, {"one expert": {"num_experts_per_tok": 1}, "num_experts_per_tok absent": edit(num_experts_per_tok=ABSENT)})

# ---- activations
for kind, key in (("llama", "hidden_act"), ("gemma", "hidden_act"), ("gemma2", "hidden_activation"), ("starcoder2", "hidden_act"),
                  ("gpt2", "activation_function"), ("gpt_neox", "hidden_act"), ("phi", "hidden_act"), ("falcon", "activation"),
                  ("mixtral", "hidden_act"), ("granite", "hidden_act")):
    add(kind, {f"{act}": edit(**{key: act}) for act in ("gelu", "gelu_new", "relu")})
    add(kind, {"activation absent": edit(**{key: ABSENT})})
add("gemma", {"hidden_activation null": edit(hidden_act="gelu", hidden_activation=None)})
add("gpt2", {"quick_gelu": edit(activation_function="quick_gelu")})

# ---- sizes and other keys that may be absent or null
for kind in ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "granite", "phi3", "glm4", "ernie4_5"):
    add(kind, {"eps absent": edit(rms_norm_eps=ABSENT), "num_key_value_heads null": edit(num_key_value_heads=None),
               "num_key_value_heads absent": ({"num_key_value_heads": 4}, {"num_key_value_heads": ABSENT})})
for kind in ("llama", "mixtral", "phi3", "granite", "olmo2"):
    add(kind, {"head_dim null": edit(head_dim=None), "head_dim absent": edit(head_dim=ABSENT)})
for kind in ("cohere", "gpt_neox", "phi", "stablelm"):
    add(kind, {"eps absent": edit(layer_norm_eps=ABSENT), "eps 1e-3": edit(layer_norm_eps=1e-3)})
for kind in ("gpt2", "falcon"):
    add(kind, {"eps absent": edit(layer_norm_epsilon=ABSENT)})
add("starcoder2", {"eps absent": edit(norm_epsilon=ABSENT)})
add("llama", {"eps null": edit(rms_norm_eps=None), "eps 0": edit(rms_norm_eps=0), "hidden_act null": edit(hidden_act=None),
              "max_position_embeddings absent": edit(max_position_embeddings=ABSENT)})

# transformers 5.24 refuses these, and qdyno runs them.
QDYNO_ONLY = {
    "exaone4: pattern LLG",  # its published configurations say it in letters, and have layer_types, too
    "phi3: head_dim null", "granite: head_dim null", "olmo2: head_dim null",  # hidden_size / num_attention_heads, as in Llama
    "llama: eps 0",  # its type must be a float
}
