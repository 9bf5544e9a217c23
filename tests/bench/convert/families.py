"""The table of families: which configuration makes a tiny model of each, and how the converter is to be told about it.

Sizes are small, but every feature of a family that changes answers is switched on: windows are shorter than the prompt,
rotary parts are partial, multipliers differ from 1. A key of `config` is spelled as transformers' class spells it; keys of
`published` replace those in config.json after the model was saved (None: removed), where published files spell them in
another way.
"""

from dataclasses import dataclass, field

VOCABULARY = 512
EPS = 1e-5

BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
GROUPED = {"num_key_value_heads": 2}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
LOCAL_EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 3}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "n_shared_experts": 1}
LATENT = {"kv_lora_rank": 32, "q_lora_rank": 48, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24}
GRANITE = {"embedding_multiplier": 6.0, "logits_scaling": 2.0, "residual_multiplier": 0.22, "attention_multiplier": 0.2}
DELTA_NET = {
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "shared_expert_intermediate_size": 40,
}
STABLELM = {
    "intermediate_size": 96,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
}


def rope(theta=1e4, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


def without(*keys):
    """The base without some keys, for classes that spell them otherwise."""
    return {key: value for key, value in BASE.items() if key not in keys}


def gpt2_like(**more):
    sizes = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_inner": 96, "n_positions": 512}
    return {**without("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"), **sizes, **more}


def layers(pattern, **names):
    """`pattern` is a letter a layer; `names` says what each letter is called in layer_types."""
    return {"num_hidden_layers": len(pattern), "layer_types": [names[letter] for letter in pattern]}


NEOX = "the converter of autumn 2026 expects rotary_pct, which the transformers 5 that it loads renames, and refuses the model"
ERF = "GELU: qdyno and llama.cpp use the tanh form, transformers erf"
WINDOWS = {"s": "sliding_attention", "f": "full_attention"}

GPT_OSS = {**LOCAL_EXPERTS, **layers("sfsf", **WINDOWS), "head_dim": 32, "sliding_window": 8, "intermediate_size": 64}

GEMMA_4 = {
    **BASE,
    **GROUPED,
    **layers("sssfsf", **WINDOWS),
    "head_dim": 32,
    "sliding_window": 8,
    "final_logit_softcapping": 30.0,  # where the key is missing, qdyno and llama.cpp take this value
}
GEMMA_4_EXPERTS = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 32}


@dataclass
class Family:
    """One row: a family, or a second configuration of one that takes another path through the code."""

    name: str
    model_type: str
    config: dict
    tokenizer: str = "bpe"  # a key of TOKENIZERS in checkpoint.py
    published: dict = field(default_factory=dict)
    predictor: int = -1  # the layer that is copied as the one that predicts the next but one token; -1: none
    known: str = ""  # why an implementation is known to differ here


FAMILIES = [
    Family("llama", "llama", {**BASE, **GROUPED, **rope(5e5)}),
    Family("llama, SentencePiece", "llama", {**BASE, **GROUPED, "tie_word_embeddings": True}, "spm"),
    Family(
        "llama, scaled as Llama 3",
        "llama",
        {
            **BASE,
            **GROUPED,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    Family("mistral", "mistral", {**BASE, **GROUPED, "sliding_window": None}),
    Family("ministral3", "ministral3", {**BASE, **GROUPED, "head_dim": 16}),
    Family("mixtral", "mixtral", {**BASE, **GROUPED, **LOCAL_EXPERTS}),
    Family("qwen2", "qwen2", {**BASE, **GROUPED}),
    Family("qwen2_moe", "qwen2_moe", {**BASE, **GROUPED, **EXPERTS, "shared_expert_intermediate_size": 40}),
    Family("qwen3", "qwen3", {**BASE, **GROUPED, "head_dim": 32}),
    Family("qwen3_moe", "qwen3_moe", {**BASE, **GROUPED, **EXPERTS, "head_dim": 32, "norm_topk_prob": True}),
    Family("qwen3_next", "qwen3_next", {**BASE, **GROUPED, **EXPERTS, **DELTA_NET}, predictor=3),
    Family(
        "qwen3_5", "qwen3_5_text", {**BASE, **GROUPED, **DELTA_NET}, published={"mtp_num_hidden_layers": 1}, predictor=3
    ),
    Family(
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        {**BASE, **GROUPED, **EXPERTS, **DELTA_NET},
        published={"mtp_num_hidden_layers": 1},
        predictor=3,
    ),
    Family("gemma", "gemma", {**BASE, "num_key_value_heads": 1, "head_dim": 32}, "spm"),
    Family(
        "gemma2",
        "gemma2",
        {
            **BASE,
            **GROUPED,
            "head_dim": 32,
            "sliding_window": 8,
            "query_pre_attn_scalar": 32,
            "attn_logit_softcapping": 5.0,
        },
        "spm",
    ),
    Family(
        "gemma3",
        "gemma3_text",
        {
            **BASE,
            **GROUPED,
            **layers("sssssfss", **WINDOWS),
            "head_dim": 32,
            "sliding_window": 8,
            "query_pre_attn_scalar": 32,
        },
        "spm",
    ),
    Family("gemma4", "gemma4_text", {**GEMMA_4, "hidden_size_per_layer_input": 0}, "bpe with bytes"),
    Family(
        "gemma4, small",
        "gemma4_text",
        {
            **GEMMA_4,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": VOCABULARY,
            "num_kv_shared_layers": 2,
        },
        "bpe with bytes",
    ),
    Family(
        "gemma4, experts",
        "gemma4_text",
        {**GEMMA_4, **GEMMA_4_EXPERTS, "hidden_size_per_layer_input": 0},
        "bpe with bytes",
    ),
    Family("phi2", "phi", {**BASE, "num_key_value_heads": 4, "intermediate_size": 256}),
    Family("phi3", "phi3", {**BASE, **GROUPED, "sliding_window": None}, "spm"),
    Family("gpt2", "gpt2", gpt2_like(n_inner=256), published={"n_ctx": 512}),
    Family(
        "gpt_neox",
        "gpt_neox",
        {**BASE, **rope(1e4, partial_rotary_factor=0.5)},
        known=NEOX,
    ),
    Family(
        "gpt_neox, one after the other",
        "gpt_neox",
        {**BASE, "use_parallel_residual": False},
        known=NEOX,
    ),
    Family("falcon 7B", "falcon", {**without("intermediate_size"), "multi_query": True, "num_kv_heads": 1}, known=ERF),
    Family(
        "falcon 40B",
        "falcon",
        {**without("intermediate_size"), "new_decoder_architecture": True, "num_kv_heads": 2},
        known=ERF,
    ),
    Family("starcoder", "gpt_bigcode", gpt2_like(n_inner=256)),
    Family("starcoder2", "starcoder2", {**BASE, **GROUPED}),
    Family("stablelm", "stablelm", {**BASE, **STABLELM, **GROUPED}),
    Family("stablelm 2 1.6B", "stablelm", {**BASE, **STABLELM, **GROUPED, "use_qkv_bias": True}),
    Family(
        "stablelm 2 12B",
        "stablelm",
        {**BASE, **STABLELM, **GROUPED, "use_parallel_residual": True, "qk_layernorm": True},
        known="the converter of autumn 2026 loses the norms of queries and keys and refuses the model",
    ),
    Family("olmo2", "olmo2", {**BASE, **GROUPED}),
    Family("olmo3", "olmo3", {**BASE, **GROUPED, **layers("sssf", **WINDOWS), "sliding_window": 8}),
    Family("olmoe", "olmoe", {**BASE, **GROUPED, **EXPERTS, "intermediate_size": 32}),
    Family("granite", "granite", {**BASE, **GROUPED, **GRANITE}),
    Family("granitemoe", "granitemoe", {**BASE, **GROUPED, **GRANITE, **LOCAL_EXPERTS, "intermediate_size": 32}),
    Family(
        "granitemoeshared",
        "granitemoeshared",
        {**BASE, **GROUPED, **GRANITE, **LOCAL_EXPERTS, "intermediate_size": 32, "shared_intermediate_size": 48},
    ),
    Family(
        "granitehybrid",
        "granitemoehybrid",
        {
            **BASE,
            **GROUPED,
            **GRANITE,
            **LOCAL_EXPERTS,
            **layers("mmfm", m="linear_attention", f="full_attention"),
            "intermediate_size": 32,
            "shared_intermediate_size": 48,
            "mamba_n_heads": 8,
            "mamba_d_head": 16,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
        },
        published={"layer_types": ["mamba", "mamba", "attention", "mamba"]},
    ),
    Family("cohere", "cohere", {**BASE, **GROUPED}),
    Family("cohere, normed queries and keys", "cohere", {**BASE, **GROUPED, "use_qk_norm": True}),
    Family(
        "cohere2",
        "cohere2",
        {**BASE, **GROUPED, **layers("sssf", **WINDOWS), "head_dim": 16, "sliding_window": 8},
        published={"rotary_pct": 1.0},
    ),
    Family(
        "gpt_oss",
        "gpt_oss",
        {**BASE, **GROUPED, **GPT_OSS},
        known="YaRN: files cannot say truncate=false; qdyno and llama.cpp round the ramp, transformers does not",
    ),
    Family("gpt_oss, plain RoPE", "gpt_oss", {**BASE, **GROUPED, **GPT_OSS, **rope(1e4)}),
    Family(
        "deepseek_v2",
        "deepseek_v2",
        {
            **BASE,
            **LATENT,
            **ROUTED,
            "num_key_value_heads": 4,
            "first_k_dense_replace": 1,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
    Family(
        "deepseek_v2 Lite",
        "deepseek_v2",
        {**BASE, **LATENT, **ROUTED, "q_lora_rank": None, "num_key_value_heads": 4, "first_k_dense_replace": 1},
    ),
    Family(
        "deepseek_v3",
        "deepseek_v3",
        {
            **BASE,
            **LATENT,
            **ROUTED,
            "num_key_value_heads": 4,
            "first_k_dense_replace": 1,
            "n_group": 4,
            "topk_group": 2,
        },
        published={"scoring_func": "sigmoid"},
    ),
    Family("glm4", "glm4", {**BASE, **GROUPED, "head_dim": 32}),
    Family("glm4_moe", "glm4_moe", {**BASE, **GROUPED, **ROUTED, "head_dim": 32, "use_qk_norm": True}),
    Family(
        "glm4_moe_lite",
        "glm4_moe_lite",
        {**BASE, **LATENT, **ROUTED, "num_key_value_heads": 4},
        published={"first_k_dense_replace": 1, "scoring_func": "sigmoid"},
    ),
    Family(
        "llama4",
        "llama4_text",
        {
            **BASE,
            **GROUPED,
            "head_dim": 16,
            "intermediate_size": 32,
            "intermediate_size_mlp": 96,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
            "moe_layers": None,
            "layer_types": None,
        },
    ),
    Family("ernie4_5", "ernie4_5", {**BASE, **GROUPED, "head_dim": 32}, "spm"),
    Family(
        "ernie4_5_moe",
        "ernie4_5_moe",
        {**BASE, **GROUPED, "moe_intermediate_size": 32, "moe_k": 3, "moe_num_experts": 8, "moe_layer_end_index": 3},
        "spm",
    ),
    Family(
        "lfm2",
        "lfm2",
        {
            **BASE,
            **GROUPED,
            **layers("ccfc", c="conv", f="full_attention"),
            "block_auto_adjust_ff_dim": False,
        },
    ),
    Family(
        "lfm2_moe",
        "lfm2_moe",
        {**BASE, **GROUPED, **EXPERTS, **layers("ccfc", c="conv", f="full_attention"), "num_dense_layers": 1},
    ),
    Family(
        "nemotron_h",
        "nemotron_h",
        {
            **without("num_hidden_layers"),
            **GROUPED,
            "time_step_min": 1e-9,  # transformers cuts time steps off there, files cannot say it
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"],
            "head_dim": 16,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 2,
        },
        published={"rms_norm_eps": EPS, "num_experts_per_tok": None},
        known="transformers 5, which the converter loads, adds num_experts_per_tok, so it looks for experts",
    ),
    Family(
        "nemotron_h_moe",
        "nemotron_h",
        {
            **without("num_hidden_layers"),
            **GROUPED,
            **ROUTED,
            "time_step_min": 1e-9,  # transformers cuts time steps off there, files cannot say it
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
            "moe_shared_expert_intermediate_size": 48,
            "head_dim": 16,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 2,
        },
        published={"rms_norm_eps": EPS},
    ),
    Family("exaone4", "exaone4", {**BASE, **GROUPED, **layers("ffff", **WINDOWS), "sliding_window": None}),
    Family(
        "exaone4, windows",
        "exaone4",
        {**BASE, **GROUPED, **layers("sssf", **WINDOWS), "sliding_window": 8, "sliding_window_pattern": 4},
    ),
    Family("smollm3", "smollm3", {**BASE, **GROUPED}),
    Family("seed_oss", "seed_oss", {**BASE, **GROUPED, "head_dim": 32}),
    Family("hunyuan dense", "hunyuan_v1_dense", {**BASE, **GROUPED, "head_dim": 16}),
    Family(
        "minimax_m2",
        "minimax_m2",
        {**BASE, **GROUPED, **LOCAL_EXPERTS, "head_dim": 32, "intermediate_size": 32},
        published={"rotary_dim": 32},
    ),
    Family("dots1", "dots1", {**BASE, **GROUPED, **ROUTED, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}),
]
