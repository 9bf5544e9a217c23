/* Proves: the names that settings have in llama.cpp, Ollama, vLLM and Hugging Face are found however they are
 * written; config lines with such a key are refused with the key that does the same here; a setting that
 * qdyno lacks says so and names a key that exists. */
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "tests/check.h"

static void names_are_found_however_written(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        enum knob_id knob;
    } CASES[] = {
        { "ngl", KNOB_GPU_LAYERS },
        { "-ngl", KNOB_GPU_LAYERS },
        { "--n-gpu-layers", KNOB_GPU_LAYERS },
        { "num_gpu", KNOB_GPU_LAYERS },
        { "flash attention", KNOB_ATTENTION },
        { "Flash-Attn", KNOB_ATTENTION },
        { "n_ctx", KNOB_CTX },
        { "num_ctx", KNOB_CTX },
        { "max_model_len", KNOB_CTX },
        { "--no-mmap", KNOB_PREFETCH },
        { "mlock", KNOB_PREFETCH },
        { "n_batch", KNOB_BATCH },
        { "kv_cache_dtype", KNOB_CTK },
        { "attn_implementation", KNOB_ATTENTION },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        const struct knob_name *n = knob_name_find(CASES[i].word);
        if (!n || n->knob != CASES[i].knob) fail_msg("%s: %s", CASES[i].word, n ? n->name : "not found");
    }
    CHECK(!knob_name_find("zebra"));
    CHECK(!knob_name_find(""));
    CHECK(!knob_name_find("no_"));
}

static void rows_are_unique_and_explain_themselves(void **state)
{
    (void)state;
    size_t absent = 0;
    for (size_t i = 0; i < KNOB_NAME_COUNT; i++) {
        const struct knob_name *n = &KNOB_NAMES[i];
        for (int k = 0; k < KNOB_COUNT; k++)
            if (!strcmp(n->name, KNOBS[k].key)) fail_msg("%s is a key: no row", n->name);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(n->name, KNOB_NAMES[k].name)) fail_msg("%s is there twice", n->name);
        CHECK(strspn(n->name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(n->name));
        if (!n->instead) continue;
        absent++;
        CHECK_CONTAINS(n->instead, KNOBS[n->knob].key); /* the nearest key is named */
        CHECK_CONTAINS(n->instead, "nearest");
    }
    assert_int_equal(absent, knob_absent_count());
    CHECK(knob_absent(absent - 1) != NULL);
    CHECK(!knob_absent(absent));
}

static void a_config_line_names_the_key(void **state)
{
    (void)state;
    struct config c;
    struct err why = { 0 };
    CHECK_EQ(config_parse(&c, "ngl=20", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "did you mean gpu_layers=");
    CHECK_CONTAINS(why.message, "llama.cpp");
    CHECK_EQ(config_parse(&c, "mlock=on", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "qdyno does not lock memory");
    CHECK_EQ(config_parse(&c, "threds=2", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "did you mean threads");
}

static void texts_are_searched_without_regard_to_separators(void **state)
{
    (void)state;
    char names[512];
    CHECK(knob_text_contains(knob_names_text(KNOB_GPU_LAYERS, names, sizeof names), "gpu layers"));
    CHECK(knob_text_contains("Flash-Attn", "flash attn"));
    CHECK(knob_text_contains("anything", ""));
    CHECK(!knob_text_contains("batch", "batches"));
    CHECK(knob_text_contains(knob_names_text(KNOB_CTK, names, sizeof names), "kv"));
    assert_string_equal(knob_names_text(KNOB_ISA, names, sizeof names), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_however_written),
        cmocka_unit_test(rows_are_unique_and_explain_themselves),
        cmocka_unit_test(a_config_line_names_the_key),
        cmocka_unit_test(texts_are_searched_without_regard_to_separators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
