/* Proves: every form of a model's name is read as documented and written so that it reads the same; a name
 * that leaves its store is refused; the choice among the files of a repository is llama.cpp's; files that are
 * no weights are told by their names; the folders of the stores follow the environment. */
#include "tests/check.h"

#include <stdlib.h>

#include "advisor/models/models.h"
#include "base/base.h"

static void names_are_read(void **state)
{
    static const struct {
        const char *text;
        enum model_store store;
        const char *repo, *tag, *revision;
        bool is_file, remote;
        const char *again; /* model_name_text; NULL: the text itself */
    } CASES[] = {
        { "hf:o/r", STORE_HF, "o/r", "", "", false, true, NULL },
        { "hf:gpt2", STORE_HF, "gpt2", "", "", false, true, NULL },
        { "HF:o/r:Q4_K_M", STORE_HF, "o/r", "Q4_K_M", "", false, true, "hf:o/r:Q4_K_M" },
        { "o/r-GGUF:q8_0", STORE_HF, "o/r-GGUF", "q8_0", "", false, true, "hf:o/r-GGUF:q8_0" },
        { "hf:o/r/a.gguf", STORE_HF, "o/r", "a.gguf", "", true, true, NULL },
        { "hf:o/r/sub/a b.gguf", STORE_HF, "o/r", "sub/a b.gguf", "", true, true, NULL },
        { "hf:o/r/a:b.gguf", STORE_HF, "o/r", "a:b.gguf", "", true, true, NULL },
        { "hf:o/r:Q8_0@refs/pr/3", STORE_HF, "o/r", "Q8_0", "refs/pr/3", false, true, NULL },
        { "o/r:Q8_0@v1.0", STORE_HF, "o/r", "Q8_0", "v1.0", false, true, "hf:o/r:Q8_0@v1.0" },
        { "hf.co/o/r:Q8_0", STORE_HF, "o/r", "Q8_0", "", false, true, "hf:o/r:Q8_0" },
        { "https://huggingface.co/o/r", STORE_HF, "o/r", "", "", false, true, "hf:o/r" },
        { "https://huggingface.co/o/r/blob/main/x/a.gguf", STORE_HF, "o/r", "x/a.gguf", "", true, true,
          "hf:o/r/x/a.gguf" },
        { "https://huggingface.co/o/r/resolve/v2/a.gguf?download=true", STORE_HF, "o/r", "a.gguf", "v2", true,
          true, "hf:o/r/a.gguf@v2" },
        { "ollama:llama3.2", STORE_OLLAMA, "registry.ollama.ai/library/llama3.2", "latest", "", false, true,
          NULL },
        { "ollama:llama3.2:3b", STORE_OLLAMA, "registry.ollama.ai/library/llama3.2", "3b", "", false, true,
          NULL },
        { "ollama:mike/m:q4_0", STORE_OLLAMA, "registry.ollama.ai/mike/m", "q4_0", "", false, true, NULL },
        { "ollama:hf.co/o/r:Q4_K_M", STORE_OLLAMA, "hf.co/o/r", "Q4_K_M", "", false, true, NULL },
        { "ollama:localhost:5000/n/m:t", STORE_OLLAMA, "localhost:5000/n/m", "t", "", false, true, NULL },
        { "lmstudio:p/m/f.gguf", STORE_LMSTUDIO, "p/m", "f.gguf", "", true, false, NULL },
        { "modelscope:o/n:Q4_0", STORE_MODELSCOPE, "o/n", "Q4_0", "", false, true, NULL },
        { "llamacpp:o_r_f-Q4_0", STORE_LLAMACPP, "o_r_f-Q4_0", "", "", false, false, NULL },
        { "gemma-3-270m", STORE_PATH, "gemma-3-270m", "", "", false, false, NULL },
        { "./m.gguf", STORE_PATH, "./m.gguf", "", "", false, false, NULL },
        { "/a/b:c", STORE_PATH, "/a/b:c", "", "", false, false, NULL },
        { "o/r", STORE_PATH, "o/r", "", "", false, false, NULL },
        { "llama3.2:3b", STORE_PATH, "llama3.2:3b", "", "", false, false, NULL },
        { "../a/b:c", STORE_PATH, "../a/b:c", "", "", false, false, NULL },
        { "a/../b:c", STORE_PATH, "a/../b:c", "", "", false, false, NULL },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct model_name n, again;
        struct err why = { 0 };
        char text[MODEL_NAME_TEXT];
        print_message("%s\n", CASES[i].text);
        assert_int_equal(model_name_parse(&n, CASES[i].text, &why), ERR_OK);
        assert_int_equal(n.store, CASES[i].store);
        assert_string_equal(n.repo, CASES[i].repo);
        assert_string_equal(n.tag, CASES[i].tag);
        assert_string_equal(n.revision, CASES[i].revision);
        assert_int_equal(n.is_file, CASES[i].is_file);
        assert_int_equal(n.remote, CASES[i].remote);
        model_name_text(&n, text, sizeof text);
        assert_string_equal(text, CASES[i].again ? CASES[i].again : CASES[i].text);
        assert_int_equal(model_name_parse(&again, text, &why), ERR_OK);
        assert_int_equal(n.store, again.store);
        assert_int_equal(n.is_file, again.is_file);
        assert_string_equal(n.repo, again.repo);
        assert_string_equal(n.tag, again.tag);
        assert_string_equal(n.revision, again.revision);
    }
}

static void names_that_leave_their_store_are_refused(void **state)
{
    static const char *const CASES[] = {
        "",          "hf:",           "hf:/r",        "hf:o/",        "hf:../r",      "hf:o/..",
        "hf:o/r/",   "hf:o/r/../x",   "hf:o/r/a//b",  "hf:o/r:a/b",   "hf:o/r:",      "hf:o r",
        "hf:o/r@",   "hf:o/r@a//b",   "hf:o/r/a\\b",  "hf:o/r/a\nb",  "ollama:",      "ollama:a/b/c/d",
        "ollama::3", "ollama:../x/y", "ollama:a:b:c", "ollama:a:b/c", "llamacpp:a/b", "llamacpp:..",
        "lmstudio:", "modelscope:/",  "hf:o/r/./a",   "ollama:m:a/b", "hf:o/r:..",    "ollama:.",
    };
    struct model_name n;
    struct err why = { 0 };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        print_message("'%s'\n", CASES[i]);
        assert_int_equal(model_name_parse(&n, CASES[i], &why), ERR_USAGE);
        assert_non_null(strstr(why.message, "expected "));
        assert_int_equal(n.store, STORE_PATH);
        assert_false(n.remote);
    }
    char path[2048] = "hf:o/r/";
    memset(path + strlen(path), 'x', 1500);
    assert_int_equal(model_name_parse(&n, path, &why), ERR_USAGE);
    memset(path, '/', 1500); /* a long path is no name, and no error */
    assert_int_equal(model_name_parse(&n, path, &why), ERR_OK);
    assert_int_equal(n.store, STORE_PATH);
}

static void the_choice_is_that_of_llama_cpp(void **state)
{
    static const char *const REPO[] = {
        "README.md",
        "m-BF16.gguf",
        "m-IQ4_XS.gguf",
        "m-Q8_0.gguf",
        "mmproj-m-Q4_K_M.gguf",
        "mtp-m-Q4_K_M.gguf",
        "m-imatrix-Q4_K_M.gguf",
        "m-Q4_K_M-00002-of-00002.gguf",
        "m-Q4_K_M-00001-of-00002.gguf",
        "UD/m-UD-Q4_K_XL.gguf",
    };
    static const char *const NO_Q4[] = { "m-F16.gguf", "m-Q8_0.gguf" },
                             *const NEITHER[] = { "x.txt", "m-F16.gguf" },
                             *const NONE[] = { "mmproj-F16.gguf", "m-00002-of-00002.gguf", "config.json" };
    (void)state;
    const int n = (int)COUNT_OF(REPO);
    assert_int_equal(model_file_choose(REPO, n, NULL), 8);
    assert_int_equal(model_file_choose(REPO, n, ""), 8);
    assert_int_equal(model_file_choose(REPO, n, "q4_k_m"), 8);
    assert_int_equal(model_file_choose(REPO, n, "Q8_0"), 3);
    assert_int_equal(model_file_choose(REPO, n, "bf16"), 1);
    assert_int_equal(model_file_choose(REPO, n, "Q4_K"), -1); /* neither '-' nor '.' follows */
    assert_int_equal(model_file_choose(REPO, n, "UD-Q4_K_XL"), 9);
    assert_int_equal(model_file_choose(REPO, n, "Q2_K"), -1);
    assert_int_equal(model_file_choose(NO_Q4, 2, NULL), 1);
    assert_int_equal(model_file_choose(NEITHER, 2, NULL), 1);
    assert_int_equal(model_file_choose(NONE, 3, NULL), -1);
    assert_int_equal(model_file_choose(NULL, 0, NULL), -1);
}

static void kinds_are_told_by_names(void **state)
{
    static const struct {
        const char *name;
        enum model_file_kind kind;
    } CASES[] = {
        { "a/b/m-Q4_0.gguf", MODEL_WEIGHTS },
        { "m.GGUF", MODEL_WEIGHTS },
        { "mmproj-model-f16.gguf", MODEL_PROJECTOR },
        { "m-mmproj.gguf", MODEL_PROJECTOR },
        { "m.imatrix", MODEL_IMATRIX },
        { "imatrix_unsloth.dat", MODEL_IMATRIX },
        { "imatrix.gguf", MODEL_IMATRIX },
        { "mtp-m.gguf", MODEL_DRAFT },
        { "eagle3-m.gguf", MODEL_DRAFT },
        { "dflash-m.gguf", MODEL_DRAFT },
        { "DSPARK-m.gguf", MODEL_DRAFT },
        { "smtp-m.gguf", MODEL_WEIGHTS },
        { "mtp-x/m.gguf", MODEL_WEIGHTS },
        { "model.safetensors", MODEL_OTHER },
        { "m.gguf.downloadInProgress", MODEL_OTHER },
        { "gguf", MODEL_OTHER },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        print_message("%s\n", CASES[i].name);
        assert_int_equal(model_file_kind(CASES[i].name), CASES[i].kind);
    }
}

static void shards_are_told_by_names(void **state)
{
    int index = 0, count = 0;
    size_t stem = 0;
    (void)state;
    assert_true(model_file_is_shard("m-Q8-00002-of-00013.gguf", &index, &count, &stem));
    CHECK_EQ(index, 2);
    CHECK_EQ(count, 13);
    CHECK_EQ(stem, 4);
    assert_false(model_file_is_shard("m-00000-of-00002.gguf", NULL, NULL, NULL));
    assert_false(model_file_is_shard("m-00003-of-00002.gguf", NULL, NULL, NULL));
    assert_false(model_file_is_shard("-00001-of-00002.gguf", NULL, NULL, NULL)); /* has no name of its own */
    assert_false(model_file_is_shard("m-0001-of-0002.gguf", NULL, NULL, NULL));
    assert_false(model_file_is_shard("m.gguf", NULL, NULL, NULL));
}

static const char *const VARIABLES[] = {
    "LLAMA_CACHE",   "HF_HUB_CACHE",   "HUGGINGFACE_HUB_CACHE", "HF_HOME",      "HOME",
    "OLLAMA_MODELS", "XDG_CACHE_HOME", "MODELSCOPE_CACHE",      "XDG_DATA_HOME"
};

static void expect_three(enum model_store s, const char *first, const char *second, const char *third)
{
    struct model_roots r;
    struct err why = { 0 };
    char *path = NULL;
    const char *const want[] = { first, second, third };
    assert_int_equal(model_roots_of(&r, s, &why), ERR_OK);
    int n = 0;
    for (int i = 0; i < 3 && want[i]; i++, n++) {
        assert_true(i < r.n);
        assert_string_equal(r.path[i], want[i]);
    }
    CHECK_EQ(r.n, n);
    model_roots_done(&r);
    assert_int_equal(model_store_root(&path, s, &why), first ? ERR_OK : ERR_ABSENT);
    if (first)
        assert_string_equal(path, first);
    else
        assert_non_null(strstr(why.message, "HOME is not set"));
    free(path);
}

static void expect_roots(enum model_store s, const char *first, const char *second)
{
    expect_three(s, first, second, NULL);
}

static void roots_follow_the_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(VARIABLES); i++) unsetenv(VARIABLES[i]);
    expect_roots(STORE_HF, NULL, NULL);
    expect_roots(STORE_LMSTUDIO, NULL, NULL);
    setenv("HOME", "/h", 1);
    expect_roots(STORE_HF, "/h/.cache/huggingface/hub", NULL);
    expect_roots(STORE_LLAMACPP, "/h/.cache/llama.cpp", NULL);
    expect_three(STORE_OLLAMA, "/h/.ollama/models", "/usr/share/ollama/.ollama/models",
                 "/h/.local/share/qdyno/models/ollama");
    expect_roots(STORE_LMSTUDIO, "/h/.lmstudio/models", "/h/.cache/lm-studio/models");
    expect_roots(STORE_MODELSCOPE, "/h/.cache/modelscope/hub", NULL);
    setenv("XDG_CACHE_HOME", "/x/", 1);
    expect_roots(STORE_HF, "/x/huggingface/hub", NULL);
    expect_roots(STORE_LLAMACPP, "/x/llama.cpp", NULL);
    setenv("HF_HOME", "~/hf", 1);
    expect_roots(STORE_HF, "/h/hf/hub", NULL);
    setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
    expect_roots(STORE_HF, "/old", NULL);
    setenv("HF_HUB_CACHE", "/new", 1);
    expect_roots(STORE_HF, "/new", NULL);
    setenv("HF_HUB_CACHE", "", 1); /* empty counts as not set */
    expect_roots(STORE_HF, "/old", NULL);
    setenv("LLAMA_CACHE", "/l", 1);
    expect_roots(STORE_HF, "/old", "/l");
    expect_roots(STORE_LLAMACPP, "/l", NULL);
    setenv("LLAMA_CACHE", "/old/", 1); /* one folder once */
    expect_roots(STORE_HF, "/old", NULL);
    setenv("OLLAMA_MODELS", "/o", 1);
    expect_roots(STORE_OLLAMA, "/o", "/h/.local/share/qdyno/models/ollama");
    setenv("XDG_DATA_HOME", "/data", 1);
    expect_roots(STORE_OLLAMA, "/o", "/data/qdyno/models/ollama");
    setenv("MODELSCOPE_CACHE", "/m", 1);
    expect_roots(STORE_MODELSCOPE, "/m", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read),
        cmocka_unit_test(names_that_leave_their_store_are_refused),
        cmocka_unit_test(the_choice_is_that_of_llama_cpp),
        cmocka_unit_test(kinds_are_told_by_names),
        cmocka_unit_test(shards_are_told_by_names),
        cmocka_unit_test(roots_follow_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
