/* Keys of config.json, as tables. Source: the configuration classes of transformers 5.24, and configurations
 * of published models. `./dev bench variants` compares what the values mean. */
#include "engine/import/config_keys.h"

#include <stdlib.h>
#include <string.h>

#include "engine/import/families.h"
#include "kernels/kernels.h"

/* clang-format off */
/* What an absent key means: the default of the family's class. Only defaults that differ between families, or from what the
 * functions that read the key assume. */
static const struct config_default {
    const char *key, *value; /* JSON */
    const char *families;    /* without "ForCausalLM" */
    bool nullable;           /* null is a value of its own; else null is refused */
} DEFAULTS[] = {
    { "rms_norm_eps", "1e-6", "Llama Mistral Qwen2 Qwen3 Qwen3Moe Gemma Gemma2 Gemma3 Granite Qwen2Moe GraniteMoe SmolLM3 SeedOss", false },
    { "rms_norm_eps", "1e-5", "Mixtral Phi3 Olmo2 GptOss Olmoe Ernie4_5 Exaone4 Olmo3 HunYuanDenseV1", false },
    { "rms_norm_eps", "1.5625e-07", "Glm4", false },
    { "layer_norm_eps", "1e-5", "Cohere Cohere2 StableLm Phi GPTNeoX", false },
    { "layer_norm_epsilon", "1e-5", "GPT2LMHeadModel Falcon", false },
    { "norm_epsilon", "1e-5", "Starcoder2", false },
    { "hidden_act", "\"gelu_pytorch_tanh\"", "Gemma Starcoder2", false },
    { "hidden_act", "\"gelu_new\"", "Phi", false },
    { "hidden_act", "\"gelu\"", "GPTNeoX", false },
    { "hidden_act", "\"silu\"", "Llama Mistral Mixtral Qwen2 Qwen3 Qwen3Moe Phi3 Olmo2 Granite Cohere GptOss Qwen2Moe Olmoe "
                                "GraniteMoe SmolLM3 Cohere2 Glm4 SeedOss Ernie4_5 StableLm Exaone4 Olmo3 HunYuanDenseV1", false },
    { "hidden_activation", "\"gelu_pytorch_tanh\"", "Gemma2 Gemma3", false },
    { "activation_function", "\"gelu_new\"", "GPT2LMHeadModel", false },
    { "activation", "\"gelu\"", "Falcon", false },
    { "rope_theta", "1000000.0", "Mixtral Gemma3", false },
    { "rope_theta", "500000.0", "Cohere Ernie4_5 Olmo3", false },
    { "rope_theta", "2000000.0", "SmolLM3", false },
    { "partial_rotary_factor", "0.5", "Glm4 Phi", false },
    { "partial_rotary_factor", "0.25", "StableLm", false },
    { "rotary_pct", "0.25", "GPTNeoX", false },
    { "original_max_position_embeddings", "4096", "Phi3", false },
    { "num_key_value_heads", "8", "Mistral Mixtral GptOss SeedOss", true },
    { "num_key_value_heads", "4", "Qwen3Moe Gemma2 Gemma3 SmolLM3", true },
    { "num_key_value_heads", "32", "Qwen2 Qwen3 Exaone4", true },
    { "num_key_value_heads", "16", "Gemma Qwen2Moe", true },
    { "num_key_value_heads", "2", "Glm4 Ernie4_5 Starcoder2", true },
    { "head_dim", "128", "Qwen3 Glm4 SeedOss Ernie4_5", true },
    { "head_dim", "256", "Gemma Gemma2 Gemma3", true },
    { "head_dim", "64", "GptOss", true },
    { "tie_word_embeddings", "true", "Gemma Gemma2 Gemma3 Starcoder2 Cohere SmolLM3 Cohere2 Ernie4_5 GPT2LMHeadModel Falcon", true },
    { "sliding_window", "4096", "Mistral Gemma2 Gemma3 Cohere2 Exaone4 Olmo3", true },
    { "sliding_window", "128", "GptOss", true },
    { "use_sliding_window", "false", "Qwen2 Qwen3 Qwen3Moe Qwen2Moe SmolLM3", false },
    { "max_window_layers", "28", "Qwen2 Qwen3", false },
    { "attn_logit_softcapping", "50.0", "Gemma2", true },
    { "final_logit_softcapping", "30.0", "Gemma2", true },
    { "query_pre_attn_scalar", "256", "Gemma2 Gemma3", false },
    { "logit_scale", "0.0625", "Cohere Cohere2", false },
    { "embedding_multiplier", "1.0", "Granite GraniteMoe", false },
    { "logits_scaling", "1.0", "Granite GraniteMoe", false },
    { "residual_multiplier", "1.0", "Granite GraniteMoe", false },
    { "attention_multiplier", "1.0", "Granite GraniteMoe", false },
    { "use_parallel_residual", "false", "StableLm", false },
    { "use_parallel_residual", "true", "GPTNeoX", false },
    { "norm_topk_prob", "false", "Qwen2Moe Qwen3Moe Olmoe", false },
    { "num_experts_per_tok", "2", "Mixtral GraniteMoe", false },
    { "num_experts_per_tok", "8", "Qwen3Moe Olmoe", false },
    { "num_experts_per_tok", "4", "Qwen2Moe", false },
};

/* Keys that do not make the model refused. */
static const struct config_keys {
    const char *why;
    const char *only; /* JSON: the values that are harmless, separated by spaces; NULL: every value */
    const char *names;
    const char *families; /* only there; NULL: in all */
} KNOWN[] = {
    { "read by the functions that fill the metadata", NULL,
      "num_hidden_layers n_layer hidden_size n_embd max_position_embeddings n_positions num_attention_heads n_head "
      "num_experts num_local_experts n_routed_experts num_experts_per_tok experts_per_token moe_intermediate_size "
      "attn_logit_softcapping final_logit_softcapping logit_scale logits_scaling embedding_multiplier residual_multiplier "
      "attention_multiplier num_key_value_heads num_kv_heads head_dim intermediate_size n_inner ffn_hidden_size "
      "rope_theta rope_scaling rope_parameters rotary_emb_base rotary_pct partial_rotary_factor rope_local_base_freq "
      "sliding_window use_sliding_window layer_types sliding_window_pattern _sliding_window_pattern max_window_layers hidden_act "
      "hidden_activation activation_function activation rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon "
      "norm_topk_prob query_pre_attn_scalar use_parallel_residual original_max_position_embeddings tie_word_embeddings "
      "quantization_config text_config model_type architectures swiglu_limit new_decoder_architecture multi_query parallel_attn "
      "num_ln_in_parallel_attn alibi initial_context_length mlp_only_layers decoder_sparse_step scale_attn_weights "
      "scale_attn_by_inverse_layer_idx reorder_and_upcast_attn use_bidirectional_attention no_rope_layers no_rope_layer_interval "
      "is_causal vocab_size apply_residual_connection_post_layernorm _name_or_path layer_switch", NULL },
    { "the tensors say whether and how large these parts are", NULL,
      "attention_bias attention_out_bias mlp_bias bias use_bias qkv_bias use_qkv_bias qk_layernorm use_qk_norm no_bias "
      "shared_expert_intermediate_size attention_head_dim org_vocab_size padded_vocab_size", NULL },
    { "dropout and other settings of training", NULL,
      "attention_dropout hidden_dropout residual_dropout embedding_dropout classifier_dropout resid_pdrop embd_pdrop attn_pdrop "
      "embd_dropout resid_dropout ffn_dropout attention_probs_dropout_prob hidden_dropout_prob attn_dropout dropout "
      "initializer_range initializer_factor init_std output_router_logits router_aux_loss_coef router_jitter_noise "
      "router_z_loss_coef aux_loss_alpha seq_aux gradient_checkpointing use_reentrant max_grad_norm label_smoothing "
      "pretraining_tp tf_legacy_loss problem_type finetuning_task loss_type num_labels pretrained_on base_model_name", NULL },
    { "heads for other tasks, which text generation does not run", NULL,
      "summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj summary_hidden_size "
      "id2label label2id task_specific_params add_classification_head class_num pool_type score_bias custom_pipelines "
      "is_decoder is_encoder_decoder tie_encoder_decoder decoder_start_token_id prefix", NULL },
    { "ids and limits of the tokenizer, which its own files give", NULL,
      "bos_token_id eos_token_id eod_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id bos_token "
      "eos_token pad_token unk_token eod_id pad_id sep_id tokenizer_class tokenizer model_max_length max_seq_len "
      "max_sequence_length seq_length seq_len n_ctx im_start_id im_end_id im_newline_id text_start_id text_end_id "
      "mask_init_id skip_cls_token", NULL },
    { "how the checkpoint was stored, made or fine-tuned", NULL,
      "torch_dtype dtype transformers_version transformers.js_config unsloth_version unsloth_fixed unsloth_tiled_mlp trl_version "
      "peft_version adapter_path model_name name_or_path _model_name_or_path model_name_or_path auto_map _commit_hash "
      "axolotl_version llamafactory_version mergekit_version neftune_noise_alpha _from_model_config torch_compile architecture "
      "use_bfloat16 fp32 bf16 fp16 onnx_config quantization_status revision license", NULL },
    { "how a program runs the model: kernels, caches, what it returns", NULL,
      "use_cache _attn_implementation _attn_implementation_autoset attn_implementation _experts_implementation "
      "_flash_attn_2_enabled use_flash_attn use_flash_attn_2 use_flash_attention attention_softmax_in_fp32 "
      "scale_attention_softmax_in_fp32 enable_attention_fp32_softmax enable_lm_head_fp32 fused_norm rms_norm_fused torchscript "
      "output_attentions output_hidden_states return_dict use_return_dict chunk_size_feed_forward cache_implementation "
      "use_mamba_kernels use_memory_efficient_attention unpad_inputs attention_type_cache tp_size ep_size", NULL },
    { "defaults of generation, which the caller's settings replace", NULL,
      "max_length max_new_tokens min_length min_new_tokens early_stopping do_sample num_beams num_beam_groups diversity_penalty "
      "temperature top_k top_p min_p typical_p epsilon_cutoff eta_cutoff repetition_penalty encoder_repetition_penalty "
      "length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids force_words_ids renormalize_logits "
      "constraints forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty "
      "suppress_tokens begin_suppress_tokens sequence_bias guidance_scale num_return_sequences output_scores output_logits "
      "return_dict_in_generate penalty_alpha low_memory watermarking_config generation_config num_assistant_tokens "
      "num_assistant_tokens_schedule assistant_confidence_threshold prompt_lookup_num_tokens max_time stop_strings", NULL },
    { "parts for images, which do not run", NULL,
      "vision_config image_token_index boi_token_index eoi_token_index mm_tokens_per_image image_token_id video_token_id "
      "vision_start_token_id vision_end_token_id vision_token_id vit_path vit_type vit_patch vit_token vit_used_rms_norm "
      "vit_norm_type vit_remove_prenorm vit_input_resolution vit_mapping_type vit_add_patchemb_bias vit_text_in_context "
      "num_media_embeds anyres_pooling_size anyres_vit_max_image_size anyres_vit_two_views max_image_size", NULL },
    { "cross attention is in no model here", "false", "add_cross_attention", NULL },
    { "cross attention is in no model here", "null", "cross_attention_hidden_size", NULL },
    { "no heads are cut out", "{} null", "pruned_heads", NULL },
    { "the activation of gpt-oss", "1.702", "swiglu_alpha", "GptOss" },
    { "a feed-forward without a gate", "\"default\"", "mlp_type", "Starcoder2" },
    { "the norm of these families", "\"layer_norm\"", "norm_type", "Starcoder2 Cohere Cohere2" },
    { "the norm of this family", "\"rms\" \"rms_norm\"", "norm_type", "HunYuanDenseV1" },
    { "windows in all but each n-th layer", "\"local_attn_first\"", "order_of_interleaved_layers", "Cohere2" },
    { "rotated pairs are neighbours", "\"rope_gptj\"", "position_embedding_type", "Cohere Cohere2" },
    { "attention and feed-forward side by side, with a gate, and a tied output", "true",
      "use_parallel_block use_gated_activation use_embedding_sharing", "Cohere Cohere2" },
    { "how the embedding is divided among GPUs", NULL, "use_parallel_embedding", "Cohere Cohere2" },
    { "RoPE is there", "true", "use_rotary_pos_emb", "HunYuanDenseV1" },
    { "other forms of attention are off", "false", "use_cla position_embedding_xdrope use_mla", "HunYuanDenseV1" },
    { "without experts and use_cla nothing reads them", NULL, "cla_share_factor dense_list", "HunYuanDenseV1" },
};
/* clang-format on */

/* Is `word` one of the words of a list separated by spaces? */
static bool list_has(const char *list, const char *word, size_t n)
{
    for (const char *at = list; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (length == n && !memcmp(at, word, n)) return true;
        at += length;
    }
    return false;
}

/* Is the family of the checkpoint in a list? */
static bool is_of_family(const struct checkpoint *c, const char *families)
{
    static const char END[] = "ForCausalLM";
    const char *name = c->family->architecture;
    const size_t n = strlen(name) - (str_ends(name, END) ? strlen(END) : 0);
    return list_has(families, name, n);
}

/* The value of a key, also null; NULL: it is absent. */
static const json_t *value_of(const struct checkpoint *c, const char *key)
{
    const json_t *own = json_object_get(c->config, key),
                 *text = json_object_get(json_object_get(c->config, "text_config"), key);
    return own && (!json_is_null(own) || !text) ? own : text;
}

enum err_code config_fill(struct checkpoint *c, struct err *why)
{
    for (size_t i = 0; i < COUNT_OF(DEFAULTS); i++) {
        const struct config_default *d = &DEFAULTS[i];
        if (!is_of_family(c, d->families)) continue;
        const json_t *value = value_of(c, d->key);
        if (json_is_null(value) && !d->nullable)
            return err_set(
                why, ERR_FORMAT,
                "config.json: '%s' is null: expected a value, or no such key, which means %s in %s", d->key,
                d->value, c->family->architecture);
        if (value) continue;
        json_t *stated;
        const enum err_code rc = json_parse(&stated, d->value, strlen(d->value), why);
        if (rc) return rc;
        if (json_object_set_new(c->config, d->key, stated))
            return err_set(why, ERR_NOMEM, "out of memory for config.json");
    }
    return ERR_OK;
}

/* Is the value one of a list of JSON texts? */
static bool is_one_of(const char *texts, const json_t *value)
{
    char *text = json_line(value);
    const bool found = text && list_has(texts, text, strlen(text));
    free(text);
    return found;
}

/* A number is equal in any spelling: 1.702 is written as 1.702 or 1.7020000000000000. */
static bool is_harmless(const struct config_keys *k, const json_t *value)
{
    if (!k->only) return true;
    if (!json_is_number(value)) return is_one_of(k->only, value);
    char *end;
    const double want = strtod(k->only, &end);
    return end != k->only && want == json_number_value(value);
}

/* Does the value mean that a feature is off? */
static bool is_off(const json_t *v)
{
    return json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

bool config_key_is_known(const struct checkpoint *c, const char *name, const json_t *value)
{
    if (json_is_null(value)) return true;
    for (size_t i = 0; i < COUNT_OF(DEFAULTS); i++)
        if (!strcmp(DEFAULTS[i].key, name)) return true;
    for (size_t i = 0; i < COUNT_OF(KNOWN); i++)
        if (list_has(KNOWN[i].names, name, strlen(name)) &&
            (!KNOWN[i].families || is_of_family(c, KNOWN[i].families)))
            return is_harmless(&KNOWN[i], value);
    return is_off(value); /* of a key that nobody knows: whatever it would switch on is off */
}
