/* Proves: a key of config.json that changes arithmetic is applied or refused by name, in every value that
 * JSON allows; keys that public configurations have and that change nothing are accepted, in their harmless
 * values only; keys that nobody knows are refused. The logits of such configurations: test_import_families.c.
 */
#include "engine/import/import.h"
#include "tests/engine/import_golden.h"

/* A golden checkpoint with other keys in config.json, and what the message of its refusal says; NULL: it is
 * accepted. */
static const struct change {
    const char *model, *keys, *says;
} CHANGES[] = {
    /* caps and factors: null, 0, false, a text */
    { "gemma2", "{\"final_logit_softcapping\":null}", NULL },
    { "gemma2", "{\"final_logit_softcapping\":0}",
      "'final_logit_softcapping' is 0: expected a number above 0" },
    { "gemma2", "{\"final_logit_softcapping\":false}", "final_logit_softcapping" },
    { "gemma2", "{\"attn_logit_softcapping\":-1}", "attn_logit_softcapping" },
    { "gemma2", "{\"attn_logit_softcapping\":\"50\"}", "attn_logit_softcapping" },
    { "gemma2", "{\"query_pre_attn_scalar\":null}", "'query_pre_attn_scalar' is null" },
    { "gemma2", "{\"query_pre_attn_scalar\":0}", "query_pre_attn_scalar" },
    { "gemma3", "{\"attn_logit_softcapping\":50.0}", "attn_logit_softcapping" },
    { "gemma3", "{\"attn_logit_softcapping\":null}", NULL },
    { "cohere", "{\"logit_scale\":null}", "'logit_scale' is null" },
    { "cohere", "{\"logit_scale\":0}", "logit_scale" },
    { "granite", "{\"attention_multiplier\":0}", "attention_multiplier" },
    { "granite", "{\"logits_scaling\":0.0}", "logits_scaling" },
    { "granite", "{\"residual_multiplier\":null}", "residual_multiplier" },
    { "llama3", "{\"rms_norm_eps\":null}", "rms_norm_eps" },
    { "llama3", "{\"hidden_act\":null}", "hidden_act" },
    { "llama3", "{\"hidden_act\":\"relu\"}", "relu" },
    { "qwen2moe", "{\"norm_topk_prob\":null}", "norm_topk_prob" },
    { "qwen3moe", "{\"norm_topk_prob\":false}", "norm_topk_prob" },
    { "olmoe", "{\"norm_topk_prob\":true}", "norm_topk_prob" },
    { "olmoe", "{\"clip_qkv\":0.5}", "clip_qkv" },
    { "olmoe", "{\"clip_qkv\":null}", NULL },
    { "stablelm", "{\"use_parallel_residual\":null}", "use_parallel_residual" },
    /* windows */
    { "llama3", "{\"sliding_window\":8}", "sliding_window=8 is not supported in LlamaForCausalLM" },
    { "llama3", "{\"sliding_window\":null}", NULL },
    { "mistral", "{\"sliding_window\":8,\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
      "layer_types" },
    { "gemma2", "{\"sliding_window\":null}", "sliding_window is null or 0" },
    { "exaone4",
      "{\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]}",
      "no layer would have RoPE" },
    { "cohere2", "{\"layer_types\":null,\"layer_switch\":4}", NULL },
    { "cohere2", "{\"layer_types\":null,\"layer_switch\":2}", "layer_switch" },
    /* RoPE */
    { "llama3", "{\"partial_rotary_factor\":0.5}", "partial_rotary_factor" },
    { "llama3", "{\"rope_parameters\":{\"rope_type\":\"dynamic\",\"factor\":2.0}}",
      "'dynamic' is not supported" },
    { "hunyuan", "{\"rope_parameters\":{\"rope_type\":\"dynamic\",\"factor\":2.0}}",
      "'dynamic' is not supported" },
    { "gemma3",
      "{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"},\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":2.0}}}",
      "layers with a window" },
    { "cohere2",
      "{\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4},\"sliding_attention\":{\"rope_theta\":1e5}}}",
      "layers with a window" },
    /* bookkeeping */
    { "llama3",
      "{\"_attn_implementation_autoset\":true,\"_model_name_or_path\":\"x\",\"tokenizer_class\":\"LlamaTokenizer\",\"torchscript\":true,"
      "\"trl_version\":\"0.9\",\"model_max_length\":4096,\"max_length\":20,\"top_k\":50,\"temperature\":0.7,\"typical_p\":1.0,"
      "\"do_sample\":true,\"bad_words_ids\":[[1]],\"suppress_tokens\":[1],\"num_beams\":4,\"pruned_heads\":{},\"use_bfloat16\":true,"
      "\"finetuning_task\":\"x\",\"prefix\":\"x\",\"generation_config\":{\"top_k\":1}}",
      NULL },
    { "llama3", "{\"pruned_heads\":{\"0\":[1]}}", "pruned_heads" },
    { "llama3", "{\"add_cross_attention\":true}", "add_cross_attention" },
    { "starcoder2", "{\"mlp_type\":\"default\",\"norm_type\":\"layer_norm\"}", NULL },
    { "starcoder2", "{\"mlp_type\":\"gated\"}", "mlp_type" },
    { "starcoder2", "{\"norm_type\":\"rms_norm\"}", "norm_type" },
    { "llama3", "{\"norm_type\":\"layer_norm\"}", "norm_type" },
    { "cohere2",
      "{\"order_of_interleaved_layers\":\"local_attn_first\",\"position_embedding_type\":\"rope_gptj\",\"rotary_pct\":1.0,"
      "\"use_embedding_sharing\":true,\"use_gated_activation\":true,\"use_parallel_block\":true,\"use_parallel_embedding\":true}",
      NULL },
    { "cohere2", "{\"order_of_interleaved_layers\":\"global_attn_first\"}", "order_of_interleaved_layers" },
    { "cohere2", "{\"position_embedding_type\":\"alibi\"}", "position_embedding_type" },
    { "hunyuan",
      "{\"norm_type\":\"rms\",\"use_cla\":false,\"cla_share_factor\":2,\"use_rotary_pos_emb\":true,\"dense_list\":[64,0],"
      "\"attention_head_dim\":16,\"add_classification_head\":false,\"class_num\":1,\"pool_type\":\"last\",\"org_vocab_size\":64}",
      NULL },
    { "hunyuan", "{\"use_cla\":true}", "use_cla" },
    /* off where it must be on: no other value is harmless */
    { "cohere2", "{\"use_parallel_block\":false}", "use_parallel_block" },
    { "cohere2", "{\"use_gated_activation\":false}", "use_gated_activation" },
    { "hunyuan", "{\"use_rotary_pos_emb\":false}", "use_rotary_pos_emb" },
    { "hunyuan", "{\"use_rotary_pos_emb\":null}", NULL },
    { "llama3", "{\"strange_option\":0,\"other_option\":[]}", NULL },
    { "llama3", "{\"strange_option\":3}", "strange_option" },
    { "llama3", "{\"swiglu_alpha\":1.702}", "swiglu_alpha" },
};

static const json_t *find_model(const json_t *manifest, const char *name)
{
    const json_t *models = json_object_get(manifest, "models");
    for (size_t i = 0; i < json_array_size(models); i++)
        if (!strcmp(json_get_str(json_array_get(models, i), "name", ""), name))
            return json_array_get(models, i);
    fail_msg("no model '%s'", name);
    return NULL;
}

static void check_change(const json_t *manifest, const struct change *change)
{
    char folder[] = "/tmp/qdyno-keys-XXXXXX";
    struct err why = { 0 };
    struct model *m;
    json_t *keys;
    const json_t *model = find_model(manifest, change->model);
    json_t *config = json_deep_copy(json_object_get(model, "config"));
    CHECK_OK(json_parse(&keys, change->keys, strlen(change->keys), &why));
    CHECK(!json_object_update(config, keys));
    write_checkpoint(folder, config, json_object_get(model, "tensors"));
    const enum err_code rc = session_try(&m, folder, EXACT, 32, 1, &why);
    if (!change->says && rc) fail_msg("%s with %s: %s", change->model, change->keys, why.message);
    if (change->says && (rc != ERR_FORMAT || !strstr(why.message, change->says)))
        fail_msg("%s with %s: want a refusal with '%s', got %d: %s", change->model, change->keys,
                 change->says, rc, rc ? why.message : "");
    if (!rc) model_close(m);
    remove_checkpoint(folder);
    json_decref(config);
    json_decref(keys);
}

static void test_keys(void **state)
{
    (void)state;
    json_t *manifest = read_manifest();
    for (size_t i = 0; i < COUNT_OF(CHANGES); i++) check_change(manifest, &CHANGES[i]);
    json_decref(manifest);
}

/* Checkpoints of the libraries with the logits of transformers. reference false: there are none; they load.
 */
static void test_cases(void **state)
{
    (void)state;
    static const struct {
        const char *folder;
        bool reference;
        float
            last[4]; /* first logits after the last id, by transformers from weights decoded apart; 0: none */
    } CASES[] = {
        { "import-Mistral", true, { 0 } },
        { "import-model_name_or_path", true, { 0 } },
        { "import-r_StarCoder2", true, { 0 } },
        { "import-v_GptOss_yarn", true, { 0 } },
        { "import-w_Gemma2_nofinalcap", true, { 0 } },
        { "import-ct_FP8_BLOCK", true, { 0 } },
        { "import-gptqmodel7_phi3_defused", false, { 0.2518313f, -0.001915278f, 0.2460936f, -0.5594111f } },
        { "report-05-hf-config-harmless-keys/model", false, { 0 } },
        { "report-22-fp8-with-kv-scales/model", false, { 0 } },
    };
    enum { CASE_IDS = 40 };
    char path[4096];
    SHARED_OR_SKIP(path, "cases/import-Mistral/ids.json");
    struct err why = { 0 };
    char *text;
    size_t n;
    json_t *list;
    int32_t ids[CASE_IDS];
    struct batch_row rows[CASE_IDS];
    CHECK_OK(file_read(&text, &n, path, 1 << 16, &why));
    CHECK_OK(json_parse(&list, text, n, &why));
    CHECK_EQ(json_array_size(list), CASE_IDS);
    for (int i = 0; i < CASE_IDS; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        data_path(path, sizeof path, "cases/%s", CASES[i].folder);
        struct model *m = session_open(path, EXACT, 64, 1);
        const int64_t vocab = model_shape(m)->vocab;
        for (int k = 0; k < CASE_IDS; k++) ids[k] = (int32_t)(ids[k] % vocab);
        rows_of(rows, ids, CASE_IDS, 0, 0);
        CHECK_OK(model_forward(m, rows, CASE_IDS, &why));
        struct file_map want;
        data_path(path, sizeof path, "cases/%s/ref.f32", CASES[i].folder);
        if (CASES[i].reference) {
            CHECK_OK(file_map(&want, path, &why));
            CHECK_EQ(want.size, (size_t)(CASE_IDS * vocab) * sizeof(float));
            const double most = max_difference(model_logits(m, 0), (const float *)(const void *)want.data,
                                               CASE_IDS * vocab);
            if (!(most <= 2e-4)) fail_msg("%s: logits differ by %g", CASES[i].folder, most);
            file_unmap(&want);
        }
        const float *last = model_logits(m, CASE_IDS - 1);
        for (int k = 0; k < 4 && CASES[i].last[0] != 0; k++) CHECK_NEAR(last[k], CASES[i].last[k], 2e-4);
        model_close(m);
    }
    json_decref(list);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
