/* Proves: a name means the file that is documented; of equal names in one store that of its first folder is
 * taken, and two matches are refused; what could be fetched is never replaced by a model with a similar name;
 * revisions are told apart; what is not whole, or not kept as a file, is refused with the reason. */
#include "tests/advisor/store_files.h"

static void expect_path(const char *text, const char *below)
{
    char *path = NULL, *real, *want = realpath(at(below), NULL);
    struct err why = { 0 };
    print_message("%s\n", text);
    CHECK_OK(model_resolve(&path, NULL, text, &why));
    real = realpath(path, NULL);
    assert_non_null(real);
    assert_string_equal(real, want);
    free(path);
    free(real);
    free(want);
}

static void expect_error(const char *text, enum err_code code, const char *part)
{
    char *path = NULL;
    struct err why = { 0 };
    print_message("%s\n", text);
    assert_int_equal(model_resolve(&path, NULL, text, &why), code);
    assert_null(path);
    if (!strstr(why.message, part)) fail_msg("'%s' lacks '%s'", why.message, part);
}

static void names_mean_files(void **state)
{
    (void)state;
    put_text(REPO "refs/main", COMMIT_A);
    put_hub_file(COMMIT_A, "r-Q4_K_M.gguf", SHA_A);
    put_hub_file(COMMIT_A, "sub/r-Q8_0.gguf", SHA_B);
    put_hub_file(COMMIT_A, "mmproj-r-F16.gguf", SHA_C);
    put_model(REPO "snapshots/" COMMIT_B "/r-Q4_K_M.gguf");
    put_model(".ollama/models/blobs/sha256-" SHA_A);
    put_model(".ollama/models/blobs/sha256-" SHA_B);
    put_manifest("registry.ollama.ai/library/llama3.2/latest", LAYER("model", SHA_A));
    put_manifest("registry.ollama.ai/library/llama3.2/3b", LAYER("model", SHA_A));
    put_manifest("registry.ollama.ai/library/gemma/2b", LAYER("model", SHA_B));
    put_model(".lmstudio/models/pub/phi-GGUF/phi-Q4_0.gguf");
    put_model(".cache/llama.cpp/x_y-GGUF_y-Q4_K_M.gguf");
    put_model("here.gguf");
    expect_path(at("here.gguf"), "here.gguf");
    expect_path("hf:o/r-GGUF", REPO "blobs/" SHA_A);
    expect_path("HF:O/R-gguf:q8_0", REPO "blobs/" SHA_B);
    expect_path("o/r-GGUF:Q8_0", REPO "blobs/" SHA_B);
    expect_path("hf:o/r-GGUF/sub/r-Q8_0.gguf", REPO "blobs/" SHA_B);
    expect_path("hf:o/r-GGUF:Q4_K_M@main", REPO "blobs/" SHA_A);
    expect_path("hf:o/r-GGUF:Q4_K_M@abcdefab", REPO "snapshots/" COMMIT_B "/r-Q4_K_M.gguf");
    expect_path("hf:x/y-GGUF:Q4_K_M", ".cache/llama.cpp/x_y-GGUF_y-Q4_K_M.gguf");
    expect_path("ollama:llama3.2", ".ollama/models/blobs/sha256-" SHA_A);
    expect_path("llama3.2:latest", ".ollama/models/blobs/sha256-" SHA_A);
    expect_path("llama3.2:3b", ".ollama/models/blobs/sha256-" SHA_A);
    expect_path("llama3.2", ".ollama/models/blobs/sha256-" SHA_A);
    expect_path("GEMMA", ".ollama/models/blobs/sha256-" SHA_B);
    expect_path("phi", ".lmstudio/models/pub/phi-GGUF/phi-Q4_0.gguf");
    expect_path("pub/phi-GGUF:Q4_0", ".lmstudio/models/pub/phi-GGUF/phi-Q4_0.gguf");
    expect_error("r-gguf", ERR_USAGE,
                 "matches 3 models: hf:o/r-GGUF:Q4_K_M, hf:o/r-GGUF:Q4_K_M@abcdefabcdef");
    expect_error("mmproj", ERR_ABSENT, "'mmproj' is neither a file nor");
    expect_error("ollama:llama3", ERR_ABSENT, "qdyno models --pull ollama:llama3");
    expect_error("hf:o/r-GGUF:Q2_K", ERR_ABSENT, "qdyno models --pull hf:o/r-GGUF:Q2_K");
    expect_error("gema:2b", ERR_ABSENT, "did you mean 'gemma:2b'");
    expect_error("hf:../x", ERR_USAGE, "expected hf:OWNER/REPO");
    setenv("QDYNO_MODELS", home, 1); /* a path wins over the same name in a store */
    assert_int_equal(chdir(home), 0);
    put_model("llama3.2:3b");
    expect_path("llama3.2:3b", "llama3.2:3b");
    unsetenv("QDYNO_MODELS");
    assert_int_equal(chdir("/"), 0);
}

static void equal_names_are_told_apart(void **state)
{
    (void)state;
    put_model(".ollama/models/blobs/sha256-" SHA_A);
    put_manifest("registry.ollama.ai/library/x/latest", LAYER("model", SHA_A));
    put_model(".local/share/qdyno/models/ollama/blobs/sha256-" SHA_A);
    put_text(".local/share/qdyno/models/ollama/manifests/registry.ollama.ai/library/x/latest",
             "{\"layers\":[" LAYER("model", SHA_A) "]}");
    put_model("a/m.gguf");
    put_model("b/m.gguf");
    put_model("a/Case.gguf");
    put_model("a/case.gguf");
    char folders[600];
    snprintf(folders, sizeof folders, "%s:%s", at("a"), at("b"));
    setenv("QDYNO_MODELS", folders, 1);
    /* two folders of a store: its own one counts */
    expect_path("ollama:x", ".ollama/models/blobs/sha256-" SHA_A);
    expect_path("x:latest", ".ollama/models/blobs/sha256-" SHA_A);
    /* two folders of the user: the names do not tell which file is meant, the paths do */
    expect_error("m.gguf", ERR_USAGE, "'m.gguf' matches 2 models: /");
    expect_error("m.gguf", ERR_USAGE, "/b/m.gguf; give the path of one");
    expect_path("Case.gguf", "a/Case.gguf");
    unsetenv("QDYNO_MODELS");
}

/* What qdyno could fetch is never replaced by a model whose name only contains it. */
static void fetchable_names_match_exactly(void **state)
{
    (void)state;
    put_text(REPO "refs/main", COMMIT_A);
    put_hub_file(COMMIT_A, "r-Q4_K_M.gguf", SHA_A);
    put_model(".ollama/models/blobs/sha256-" SHA_B);
    put_manifest("registry.ollama.ai/library/llama3.2/3b", LAYER("model", SHA_B));
    put_model(".lmstudio/models/a (b)/c d-GGUF/c d-Q4_0.gguf");
    put_model(".cache/llama.cpp/o_r-GGUF_r-Q8_0.gguf");
    expect_error("o/r-GGUF:Q4_K", ERR_ABSENT, "qdyno models --pull hf:o/r-GGUF:Q4_K");
    expect_error("r/r-GGUF:Q4_K_M", ERR_ABSENT, "not on this machine");
    expect_error("HF:o/r", ERR_ABSENT, "qdyno models --pull hf:o/r");
    expect_error("OLLAMA:llama3", ERR_ABSENT, "qdyno models --pull ollama:llama3");
    expect_error("hf:o/r-GGUF:Q8_0@v1", ERR_ABSENT, "hf:o/r-GGUF:Q8_0@v1"); /* a folder without revisions */
    expect_path("hf:o/r-GGUF:Q8_0", ".cache/llama.cpp/o_r-GGUF_r-Q8_0.gguf");
    expect_path("llamacpp:o_r-GGUF_r-Q8_0.gguf", ".cache/llama.cpp/o_r-GGUF_r-Q8_0.gguf");
    expect_path("lmstudio:a (b)/c d-GGUF:Q4_0", ".lmstudio/models/a (b)/c d-GGUF/c d-Q4_0.gguf");
    expect_error("lmstudio:a (b)/other", ERR_USAGE, "expected lmstudio:PUBLISHER/MODEL");
}

static void revisions_are_found(void **state)
{
    (void)state;
    put_text(REPO "refs/main", COMMIT_A);
    put_text(REPO "refs/v1", COMMIT_A);
    put_text(REPO "refs/abc", COMMIT_B);
    put_hub_file(COMMIT_A, "r-Q4_K_M.gguf", SHA_A);
    put_hub_file(COMMIT_B, "r-Q4_K_M.gguf", SHA_A); /* the same blob: the list has it once */
    put_hub_file(COMMIT_B, "r-Q8_0.gguf", SHA_B);
    expect_path("hf:o/r-GGUF:Q4_K_M@" COMMIT_A, REPO "blobs/" SHA_A);
    expect_path("hf:o/r-GGUF@v1", REPO "blobs/" SHA_A);
    expect_path("hf:o/r-GGUF:Q4_K_M@abc", REPO "blobs/" SHA_A);
    expect_path("hf:o/r-GGUF:Q4_K_M@" COMMIT_B, REPO "blobs/" SHA_A);
    expect_path("hf:o/r-GGUF/r-Q8_0.gguf@abcdefabcdef", REPO "blobs/" SHA_B);
    expect_error("hf:o/r-GGUF:Q8_0@" COMMIT_A, ERR_ABSENT, "not on this machine");
    expect_error("hf:o/r-GGUF:Q8_0@abc1234", ERR_ABSENT, "not on this machine"); /* no commit of branch abc */
    struct model_list l = find_all();
    CHECK_EQ(l.n, 2);
    row_of(&l, "hf:o/r-GGUF:Q8_0@abc");
    assert_null(row_of(&l, "hf:o/r-GGUF:Q4_K_M")->also);
    models_done(&l);
}

static void what_is_not_whole_is_refused(void **state)
{
    (void)state;
    put_text(REPO "refs/main", COMMIT_A);
    put_hub_file(COMMIT_A, "r-Q4_K_M-00001-of-00002.gguf", SHA_A);
    put_hub_file(COMMIT_A, "r-F16.gguf", SHA_B);
    put_model(".ollama/models/blobs/sha256-" SHA_A);
    put_model(".ollama/models/blobs/sha256-" SHA_B);
    put_manifest("registry.ollama.ai/library/base/latest", LAYER("model", SHA_A));
    put_manifest("registry.ollama.ai/me/tuned/latest", LAYER("model", SHA_A) "," LAYER("adapter", SHA_B));
    put_manifest("registry.ollama.ai/me/mx/latest", LAYER("tensor", SHA_A));
    expect_error("hf:o/r-GGUF:Q4_K_M", ERR_ABSENT,
                 "1 of 2 files of the split model are here; to fetch the others: qdyno models --pull hf:o/r");
    expect_path("hf:o/r-GGUF", REPO "blobs/" SHA_B);
    expect_path("ollama:base", ".ollama/models/blobs/sha256-" SHA_A);
    expect_error("ollama:me/tuned", ERR_FORMAT, "Ollama applies an adapter to it, which qdyno does not");
    expect_error("ollama:me/mx", ERR_FORMAT, "1 tensors, not as a GGUF file");
    struct model_list l = find_all();
    int tuned = 0;
    for (int i = 0; i < l.n; i++)
        if (!strcmp(l.row[i].name, "ollama:me/tuned") && l.row[i].kind == MODEL_WEIGHTS) {
            tuned++;
            assert_false(l.row[i].header.runs);
            assert_null(l.row[i].path);
            assert_true(l.row[i].bytes > 0);
        }
    CHECK_EQ(tuned, 1);
    assert_true(row_of(&l, "ollama:base")->header.runs);
    assert_null(row_of(&l, "ollama:base")->also);
    models_done(&l);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(names_mean_files),    TEST(equal_names_are_told_apart),   TEST(fetchable_names_match_exactly),
        TEST(revisions_are_found), TEST(what_is_not_whole_is_refused),
    };
    map_guard_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
