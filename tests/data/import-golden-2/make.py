#!/usr/bin/env python3
"""Makes manifest.json and logits.f32 of this folder (README.md). Usage: make.py OUT (transformers 5, torch)."""
import json, os, sys, tempfile
import numpy as np
import torch
from safetensors.torch import load_file, save_file
import transformers as hf

ROWS = 4  # of logits that are kept: the last ones
IDS = [1, 17, 5, 60, 33, 2, 41, 41]
SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
OTHER = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=10000.0)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32, rope_theta=10000.0)
LONG = dict(rope_type="longrope", short_factor=[1.0, 1.5, 2.0], long_factor=[2.0, 3.0, 4.0], rope_theta=10000.0,
            original_max_position_embeddings=32, partial_rotary_factor=0.75)
MODELS = {
    "llama3": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "llama-bias": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True, head_dim=16)),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**SMALL, sliding_window=None)),
    "mixtral": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)),
    "qwen2-yarn": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SMALL, rope_parameters=YARN)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**SMALL, head_dim=16)),
    "qwen3moe": lambda: hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(**SMALL, head_dim=16, num_experts=4, norm_topk_prob=True,
                                               num_experts_per_tok=2, moe_intermediate_size=32, decoder_sparse_step=1)),
    "phi3": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**SMALL, sliding_window=3, tie_word_embeddings=False)),
    "phi3-long": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**SMALL, original_max_position_embeddings=32,
                                                          rope_parameters=LONG)),
    "gemma": lambda: hf.GemmaForCausalLM(hf.GemmaConfig(**SMALL, head_dim=16, hidden_act="gelu_pytorch_tanh")),
    "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**SMALL, head_dim=16, sliding_window=3, query_pre_attn_scalar=24)),
    "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**{**SMALL, "num_hidden_layers": 3}, head_dim=16,
                                           sliding_window=3, query_pre_attn_scalar=24,
                                           layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, **OTHER)),
    "gptneox": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(vocab_size=64, hidden_size=32, intermediate_size=48,
                       num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64, rotary_pct=0.25,
                       hidden_act="gelu", **OTHER)),
    "gptneox-serial": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(vocab_size=64, hidden_size=32, intermediate_size=48,
                       num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64, rotary_pct=1.0,
                       use_parallel_residual=False, hidden_act="gelu_new", **OTHER)),
    "falcon": lambda: hf.FalconForCausalLM(hf.FalconConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2,
                      num_attention_heads=4, multi_query=True, new_decoder_architecture=False, bias=False, **OTHER)),
    "falcon-new": lambda: hf.FalconForCausalLM(hf.FalconConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2,
                      num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True, bias=False, **OTHER)),
    "starcoder2": lambda: hf.Starcoder2ForCausalLM(hf.Starcoder2Config(**SMALL, use_bias=True, sliding_window=None)),
    "olmo2": lambda: hf.Olmo2ForCausalLM(hf.Olmo2Config(**SMALL)),
    "granite": lambda: hf.GraniteForCausalLM(hf.GraniteConfig(**SMALL, embedding_multiplier=3.0, logits_scaling=2.0,
                                             residual_multiplier=0.6, attention_multiplier=0.2)),
    "cohere": lambda: hf.CohereForCausalLM(hf.CohereConfig(**SMALL, logit_scale=0.5)),
    "cohere-qk": lambda: hf.CohereForCausalLM(hf.CohereConfig(**SMALL, logit_scale=0.5, use_qk_norm=True)),
    "qwen2moe": lambda: hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2,
                        moe_intermediate_size=32, shared_expert_intermediate_size=16, decoder_sparse_step=1)),
    "olmoe": lambda: hf.OlmoeForCausalLM(hf.OlmoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2)),
    "granitemoe": lambda: hf.GraniteMoeForCausalLM(hf.GraniteMoeConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2,
                          embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.6, attention_multiplier=0.2)),
    "smollm3": lambda: hf.SmolLM3ForCausalLM(hf.SmolLM3Config(**{**SMALL, "num_hidden_layers": 4})),
    "cohere2": lambda: hf.Cohere2ForCausalLM(hf.Cohere2Config(**{**SMALL, "num_hidden_layers": 4}, sliding_window=3)),
    "glm4": lambda: hf.Glm4ForCausalLM(hf.Glm4Config(**SMALL, head_dim=8, attention_bias=True)),
    "seed-oss": lambda: hf.SeedOssForCausalLM(hf.SeedOssConfig(**SMALL, head_dim=16)),
    "ernie": lambda: hf.Ernie4_5ForCausalLM(hf.Ernie4_5Config(**SMALL, head_dim=16)),
    "stablelm": lambda: hf.StableLmForCausalLM(hf.StableLmConfig(**SMALL, use_qkv_bias=True)),
    "exaone4": lambda: hf.Exaone4ForCausalLM(hf.Exaone4Config(**{**SMALL, "num_hidden_layers": 4}, sliding_window=3,
                                             sliding_window_pattern=4)),
    "olmo3": lambda: hf.Olmo3ForCausalLM(hf.Olmo3Config(**{**SMALL, "num_hidden_layers": 4}, sliding_window=3)),
    "phi2": lambda: hf.PhiForCausalLM(hf.PhiConfig(**{**SMALL, "num_key_value_heads": 4}, partial_rotary_factor=0.5)),
    "hunyuan": lambda: hf.HunYuanDenseV1ForCausalLM(hf.HunYuanDenseV1Config(**SMALL, head_dim=16)),
}

# The same, with other values in config.json: what an absent key, null and rare values mean. "like": the model's row above.
ABSENT = object()
S, F = "sliding_attention", "full_attention"
EDITED = {
    "gemma2-no-caps": ("gemma2", dict(attn_logit_softcapping=None, final_logit_softcapping=None)),
    "gemma2-absent": ("gemma2", dict(attn_logit_softcapping=ABSENT, final_logit_softcapping=ABSENT, query_pre_attn_scalar=ABSENT,
                                     layer_types=ABSENT, hidden_activation=ABSENT)),
    "gemma3-cap": ("gemma3", dict(final_logit_softcapping=2.0)),
    "gemma3-absent": ("gemma3", dict(query_pre_attn_scalar=ABSENT, rope_parameters=ABSENT, rms_norm_eps=ABSENT)),
    "gemma-legacy": ("gemma", dict(hidden_act="gelu", hidden_activation=None)),
    "cohere-absent": ("cohere", dict(logit_scale=ABSENT, rope_parameters=ABSENT, layer_norm_eps=ABSENT)),
    "granite-absent": ("granite", dict(attention_multiplier=ABSENT, residual_multiplier=ABSENT, embedding_multiplier=ABSENT)),
    "stablelm-absent": ("stablelm", dict(use_parallel_residual=ABSENT, rope_parameters=ABSENT)),
    "neox-absent": ("gptneox", dict(rope_parameters=ABSENT, hidden_act=ABSENT, use_parallel_residual=ABSENT)),
    "phi2-absent": ("phi2", dict(rope_parameters=ABSENT, hidden_act=ABSENT)),
    "smollm3-absent": ("smollm3", dict(rope_parameters=ABSENT, no_rope_layers=ABSENT)),
    "mixtral-absent": ("mixtral", dict(rope_parameters=ABSENT, sliding_window=3)),
    "mistral-window": ("mistral", dict(sliding_window=3)),
    "starcoder2-window": ("starcoder2", dict(sliding_window=3)),
    "qwen2-window": ("qwen2-yarn", dict(sliding_window=3, use_sliding_window=True, max_window_layers=1, layer_types=ABSENT)),
    "qwen3-window": ("qwen3", dict(sliding_window=3, use_sliding_window=True, layer_types=[S, F])),
    "hunyuan-alpha": ("hunyuan", dict(rope_parameters=ABSENT, rope_theta=10000.0, rope_scaling=dict(
        type="dynamic", alpha=1000.0, factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0))),
}


def mix(z):
    """SplitMix64's finishing step, as base/hash.h has it."""
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def numbers(name, shape, width, middle):
    """bfloat16 numbers that follow from the tensor's name: uniform in middle +- width / 2."""
    seed = np.uint64(0xCBF29CE484222325)
    with np.errstate(over="ignore"):
        for byte in name.encode():
            seed = (seed ^ np.uint64(byte)) * np.uint64(0x100000001B3)
        i = np.arange(int(np.prod(shape)), dtype=np.uint64)
        bits = mix(seed + i * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    unit = bits.astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)
    return torch.from_numpy((unit * np.float32(width) + np.float32(middle)).reshape(shape)).to(torch.bfloat16)


def spread(name, shape, gemma):
    """Width and middle of a tensor's numbers."""
    norm = any(part in name for part in ("norm", "ln_", "ln_f"))
    if norm:
        return 0.5, 0.0 if gemma or name.endswith("bias") else 1.0
    if len(shape) == 1:
        return 0.5, 0.0
    if any(part in name for part in ("embed", "wte", "lm_head")):
        return 3.0, 0.0
    return round(3.5 * max(shape[-1], 16) ** -0.5, 3), 0.0


out = sys.argv[1]
manifest = {"ids": IDS, "rows": ROWS, "vocab": 64, "models": []}
everything = []
rows = [(name, make, {}) for name, make in MODELS.items()] + [(name, MODELS[like], edits) for name, (like, edits) in EDITED.items()]
for name, make, edits in rows:
    if len(sys.argv) > 2 and name not in sys.argv[2:]:
        continue
    with tempfile.TemporaryDirectory() as folder:
        model = make()
        kind = type(model)
        model.to(torch.bfloat16).save_pretrained(folder)
        path = os.path.join(folder, "model.safetensors")
        tensors = {k: (list(v.shape), *spread(k, v.shape, "Gemma" in kind.__name__)) for k, v in load_file(path).items()}
        save_file({k: numbers(k, *v) for k, v in tensors.items()}, path, metadata={"format": "pt"})
        with open(os.path.join(folder, "config.json")) as f:
            config = {**json.load(f), **edits}
        config = {key: value for key, value in config.items() if value is not ABSENT}
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        model = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager").eval()
        with torch.no_grad():
            logits = model(torch.tensor([IDS])).logits[0, -ROWS:].to(torch.float32).numpy()
        everything.append(logits)
        manifest["models"].append({"name": name, "config": config, "tensors": tensors})
        print(name, logits.std(), flush=True)
np.stack(everything).astype("<f4").tofile(os.path.join(out, "logits.f32"))
with open(os.path.join(out, "manifest.json"), "w") as f:
    json.dump(manifest, f, separators=(",", ":"))
