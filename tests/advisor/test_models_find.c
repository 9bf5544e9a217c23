/* Proves: the layouts of all stores are listed with the right names, kinds and sizes; a split model is one
 * row, and a file with several names is one row; links to nothing, loops of links, damaged and huge
 * manifests, folders without permission and unfinished downloads neither crash nor become models, and are
 * counted; headers are read once, and a damaged cache of them costs time only. */
#include <math.h>

#include "tests/advisor/store_files.h"

/* ---------------------------------------------------------------- layouts */

static void hub_layout_is_read(void **state)
{
    (void)state;
    put_text(REPO "refs/main", COMMIT_A);
    put_text(REPO "refs/refs/pr/3", COMMIT_B);
    put_hub_file(COMMIT_A, "r-Q4_K_M.gguf", SHA_A);
    put_hub_file(COMMIT_A, "sub/r-Q8_0.gguf", SHA_B);
    put_hub_file(COMMIT_A, "mmproj-F16.gguf", SHA_C);
    put_hub_file(COMMIT_B, "r-Q4_K_M.gguf", SHA_A);
    put_model(REPO "snapshots/" COMMIT_B "/r-Q5_K_M.gguf"); /* a copy: links are off */
    put_text(REPO "blobs/" SHA_C ".1234.incomplete", "x");
    put_text(REPO "snapshots/" COMMIT_A "/r-Q6_K.gguf.downloadInProgress", "x");
    put_text(REPO ".no_exist/" COMMIT_A "/config.json", "");
    put_text(HUB "models--plain/snapshots/" COMMIT_A "/config.json", "{}");
    put_text(HUB "models--plain/snapshots/" COMMIT_A "/model.safetensors", "");
    put_text(HUB "models--twice/snapshots/" COMMIT_A "/config.json", "{}");
    put_text(HUB "models--twice/snapshots/" COMMIT_A "/model.safetensors.index.json", "{}");
    put_text(HUB "models--twice/snapshots/" COMMIT_A "/model-00001-of-00002.safetensors", "abc");
    put_text(HUB "models--twice/snapshots/" COMMIT_A "/model-00002-of-00002.safetensors", "de");
    put_text(HUB "models--twice/snapshots/" COMMIT_A "/consolidated.safetensors", "abcde");
    put_text(HUB "datasets--o--d/snapshots/" COMMIT_A "/d.gguf", "");
    struct model_list l = find_all();
    CHECK_EQ(l.n, 6);
    CHECK_EQ(row_of(&l, "hf:twice")->bytes, 5); /* the weights once */
    CHECK_EQ(row_of(&l, "hf:twice")->shards, 2);
    const struct model_entry *e = row_of(&l, "hf:o/r-GGUF:Q4_K_M");
    assert_string_equal(e->sha256, SHA_A);
    assert_true(e->header.runs);
    assert_string_equal(e->header.arch, "llama");
    CHECK_EQ(e->header.ctx_train, 128);
    CHECK_EQ(e->shards, 1);
    assert_null(e->also); /* the other revision has the same file */
    assert_int_equal(row_of(&l, "hf:o/r-GGUF:Q8_0")->kind, MODEL_WEIGHTS);
    assert_int_equal(row_of(&l, "hf:o/r-GGUF/mmproj-F16.gguf")->kind, MODEL_PROJECTOR);
    assert_string_equal(row_of(&l, "hf:o/r-GGUF:Q5_K_M@refs/pr/3")->revision, "refs/pr/3");
    e = row_of(&l, "hf:plain");
    assert_true(e->checkpoint);
    assert_false(e->header.runs);
    assert_true(*e->header.why != '\0');
    expect_skipped(&l, SKIPPED_COUNT, 0);
    models_done(&l);
}

static void ollama_layout_is_read(void **state)
{
    (void)state;
    put_model(".ollama/models/blobs/sha256-" SHA_A);
    put_model(".ollama/models/blobs/sha256-" SHA_B);
    put_text(".ollama/models/blobs/sha256-" SHA_C "-partial-0", "x");
    put_manifest("registry.ollama.ai/library/llama3.2/3b",
                 LAYER("model", SHA_A) "," LAYER("template", SHA_C));
    put_manifest("registry.ollama.ai/library/llama3.2/latest", LAYER("model", SHA_A));
    put_manifest("hf.co/o/r/Q4_0", LAYER("model", SHA_B) "," LAYER("projector", SHA_B));
    put_manifest("registry.ollama.ai/me/mx/latest", LAYER("tensor", SHA_A) "," LAYER("tensor", SHA_B));
    put_manifest("registry.ollama.ai/me/gone/latest", LAYER("model", SHA_C));
    struct model_list l = find_all();
    CHECK_EQ(l.n, 3);
    const struct model_entry *e = row_of(&l, "ollama:llama3.2:3b");
    assert_string_equal(e->also, "ollama:llama3.2");
    assert_string_equal(e->sha256, SHA_A);
    assert_true(e->header.runs);
    assert_string_equal(row_of(&l, "ollama:hf.co/o/r:Q4_0")->repo, "hf.co/o/r");
    e = row_of(&l, "ollama:me/mx");
    assert_int_equal(e->kind, MODEL_OTHER);
    assert_null(e->path);
    CHECK_EQ(e->bytes, 14);
    assert_non_null(strstr(e->header.why, "2 tensors, not as a GGUF file"));
    expect_skipped(&l, SKIPPED_DANGLING, 1);
    models_done(&l);
}

static void other_layouts_are_read(void **state)
{
    (void)state;
    put_model(".lmstudio/models/pub/m-GGUF/m-Q4_0.gguf");
    put_model(".cache/lm-studio/models/pub/old/old.gguf");
    put_model(".cache/llama.cpp/o_r_r-Q4_K_M.gguf");
    put_text(".cache/llama.cpp/o_r_r-Q8_0.gguf.downloadInProgress", "x");
    put_text(".cache/llama.cpp/o_r_r-Q4_K_M.gguf.json", "{}");
    put_model(".cache/modelscope/hub/old/m1___5/m1.5-Q8_0.gguf");
    put_model(".cache/modelscope/hub/models/new/m2/m2-Q8_0.gguf");
    put_text(".cache/modelscope/hub/models/new/m2/.msc", "\x80\x04");
    put_model(".cache/modelscope/hub/models/._____temp/new/m3/m3.gguf");
    put_model("mine/a/b-00001-of-00002.gguf");
    put_model("mine/a/b-00002-of-00002.gguf");
    put_model("mine/c-00001-of-00003.gguf");
    put_model("mine/d-imatrix.gguf");
    put_model("mine/mtp-d.gguf");
    setenv("QDYNO_MODELS", at("mine"), 1);
    struct model_list l = find_all();
    unsetenv("QDYNO_MODELS");
    CHECK_EQ(l.n, 9);
    row_of(&l, "lmstudio:pub/m-GGUF:Q4_0");
    row_of(&l, "lmstudio:pub/old/old.gguf");
    row_of(&l, "llamacpp:o_r_r-Q4_K_M");
    row_of(&l, "modelscope:old/m1.5:Q8_0");
    row_of(&l, "modelscope:new/m2:Q8_0");
    const struct model_entry *e = row_of(&l, "a/b-00001-of-00002.gguf");
    CHECK_EQ(e->shards, 2);
    CHECK_EQ(e->shards_here, 2);
    e = row_of(&l, "c-00001-of-00003.gguf");
    CHECK_EQ(e->shards_here, 1);
    assert_string_equal(e->header.why, "1 of 3 files of the split model are here");
    assert_int_equal(row_of(&l, "d-imatrix.gguf")->kind, MODEL_IMATRIX);
    assert_int_equal(row_of(&l, "mtp-d.gguf")->kind, MODEL_DRAFT);
    expect_skipped(&l, SKIPPED_COUNT, 0);
    models_done(&l);
}

/* ---------------------------------------------------------------- hostile stores */

static void links_and_loops_are_survived(void **state)
{
    char many[64];
    (void)state;
    put_model("m/real.gguf");
    put_link("m/again.gguf", "real.gguf");
    put_link("m/nothing.gguf", "missing");
    put_link("m/self.gguf", "self.gguf");
    put_link("m/loop", ".");
    put_link("m/up", "..");
    for (int i = 0; i < 12; i++) { /* without a memory of folders these are 12^12 paths */
        snprintf(many, sizeof many, "m/all%d", i);
        put_link(many, "../m");
    }
    put_text("m/empty.gguf", "");
    put_text("m/lie.gguf", "GGUF");
    assert_int_equal(mkfifo(at("m/pipe.gguf"), 0600), 0);
    setenv("QDYNO_MODELS", at("m"), 1);
    struct model_list l = find_all();
    CHECK_EQ(l.n, 3);
    assert_string_equal(l.row[0].name, "again.gguf");
    assert_string_equal(l.row[0].also, "real.gguf");
    assert_false(row_of(&l, "empty.gguf")->header.runs);
    assert_false(row_of(&l, "lie.gguf")->header.read);
    expect_skipped(&l, SKIPPED_DANGLING, 2);
    char text[200];
    assert_true(models_skipped_text(&l, text, sizeof text));
    assert_string_equal(text, "skipped: 2 links to files that are missing");
    models_done(&l);
    setenv("QDYNO_MODELS", "/nowhere", 1);
    l = find_all();
    CHECK_EQ(l.n, 0);
    expect_skipped(&l, SKIPPED_UNREADABLE, 1);
    models_done(&l);
    unsetenv("QDYNO_MODELS");
    struct err why = { 0 };
    const char *dir = "/nowhere";
    assert_int_equal(models_find(&l, &(struct models_options){ .dir = &dir, .dirs = 1 }, &why), ERR_IO);
    assert_non_null(strstr(why.message, "/nowhere"));
    models_done(&l);
}

static void deep_folders_end(void **state)
{
    char path[2048] = "deep";
    (void)state;
    for (int i = 0; i < 40; i++) snprintf(path + strlen(path), sizeof path - strlen(path), "/d%d", i);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/m.gguf");
    put_model(path);
    setenv("QDYNO_MODELS", at("deep"), 1);
    struct model_list l = find_all();
    CHECK_EQ(l.n, 0);
    expect_skipped(&l, SKIPPED_DEEP, 1);
    models_done(&l);
    unsetenv("QDYNO_MODELS");
}

static void hostile_manifests_are_survived(void **state)
{
    static const char *const LAYERS[] = {
        LAYER("model", "../../../etc/passwd"),
        "7",
        "null",
        "{\"mediaType\":7,\"digest\":[]}",
        "{\"mediaType\":\"application/vnd.ollama.image.tensor\",\"size\":9223372036854775807},"
        "{\"mediaType\":\"application/vnd.ollama.image.tensor\",\"size\":9223372036854775807},"
        "{\"mediaType\":\"application/vnd.ollama.image.tensor\",\"size\":-5}",
    };
    char name[64];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(LAYERS); i++) {
        snprintf(name, sizeof name, "h/n/m%zu/t", i);
        put_manifest(name, LAYERS[i]);
    }
    put_text(".ollama/models/manifests/h/n/text/t", "no JSON");
    put_text(".ollama/models/manifests/h/n/list/t", "[]");
    put_text(".ollama/models/manifests/h/n/t", "{}"); /* too few folders */
    put_text(".ollama/models/manifests/h/n/sp ace/t", "{}");
    char *deep = malloc(200001);
    assert_non_null(deep);
    memset(deep, '[', 200000);
    deep[200000] = '\0';
    put_text(".ollama/models/manifests/h/n/nested/t", deep);
    free(deep);
    put_text(".ollama/models/manifests/h/n/huge/t", "");
    assert_int_equal(truncate(at(".ollama/models/manifests/h/n/huge/t"), INT64_C(1) << 33), 0);
    struct model_list l = find_all();
    CHECK_EQ(l.n, 1);
    CHECK_EQ(row_of(&l, "ollama:h/n/m4:t")->bytes, INT64_MAX);
    expect_skipped(&l, SKIPPED_MANIFEST, 7);
    models_done(&l);
}

static void folders_without_permission_are_counted(void **state)
{
    (void)state;
    if (!geteuid()) skip(); /* root reads everything */
    put_model("m/closed/m.gguf");
    put_model("m/open.gguf");
    assert_int_equal(chmod(at("m/closed"), 0), 0);
    setenv("QDYNO_MODELS", at("m"), 1);
    struct model_list l = find_all();
    CHECK_EQ(l.n, 1);
    expect_skipped(&l, SKIPPED_UNREADABLE, 1);
    models_done(&l);
    unsetenv("QDYNO_MODELS");
}

/* ---------------------------------------------------------------- headers */

static enum err_code figure_result = ERR_OK;

static enum err_code count_figure(void *ctx, struct model_entry *e, const struct gguf *g)
{
    assert_non_null(g);
    e->header.figure[1] = 2.5;
    ++*(int *)ctx;
    return figure_result;
}

/* Replaces each value of the cache's rows by `row`. */
static void damage_rows(json_t *(*damaged)(void))
{
    struct err why = { 0 };
    char *text = NULL;
    size_t size = 0;
    json_t *whole = NULL, *row;
    const char *key;
    void *next;
    CHECK_OK(file_read(&text, &size, at(".cache/qdyno/models.json"), 1 << 20, &why));
    CHECK_OK(json_parse(&whole, text, size, &why));
    json_t *files = json_object_get(whole, "files");
    assert_true(json_object_size(files) > 0);
    json_object_foreach_safe(files, next, key, row)
    {
        json_object_set_new(files, key, damaged());
    }
    char *changed = json_line(whole);
    put_text(".cache/qdyno/models.json", changed);
    free(changed);
    free(text);
    json_decref(whole);
}

static json_t *a_number(void)
{
    return json_integer(3);
}

static void damaged_caches_cost_time_only(const struct models_options *o, const int *calls)
{
    static const char *const FILES[] = { "[3]", "3", "null" };
    json_t *(*const rows[])(void) = { a_number, json_array, json_null, json_object };
    struct model_list l;
    struct err why = { 0 };
    char text[128];
    for (size_t i = 0; i < COUNT_OF(FILES) + COUNT_OF(rows); i++) {
        const int before = *calls;
        if (i < COUNT_OF(FILES)) { /* of this version, so that it is read */
            snprintf(text, sizeof text, "{\"version\":%d,\"program\":\"%s\",\"files\":%s}",
                     MODELS_CACHE_VERSION, QDYNO_VERSION, FILES[i]);
            put_text(".cache/qdyno/models.json", text);
        } else {
            damage_rows(rows[i - COUNT_OF(FILES)]);
        }
        CHECK_OK(models_find(&l, o, &why));
        CHECK_EQ(*calls, before + 1);
        CHECK_EQ(l.files_cached, 0);
        assert_string_equal(row_of(&l, "a-Q4_0.gguf")->header.arch, "llama");
        models_done(&l);
    }
}

static void headers_are_cached(void **state)
{
    struct model_list l;
    struct err why = { 0 };
    int calls = 0;
    (void)state;
    put_model("m/a-Q4_0.gguf");
    put_text("m/bad.gguf", "x");
    setenv("QDYNO_MODELS", at("m"), 1);
    struct models_options o = { .figures = count_figure, .ctx = &calls, .basis = "1" };
    for (int i = 0; i < 2; i++) {
        CHECK_OK(models_find(&l, &o, &why));
        CHECK_EQ(l.n, 2);
        CHECK_EQ(calls, 1);
        CHECK_EQ(l.files_read, i ? 0 : 2);
        CHECK_EQ(l.files_cached, i ? 2 : 0);
        const struct model_entry *e = row_of(&l, "a-Q4_0.gguf");
        assert_true(e->header.runs);
        assert_string_equal(e->header.arch, "llama");
        assert_string_equal(e->header.quantization, "q8_0"); /* no tensor bears the name out */
        assert_non_null(strstr(e->header.quantization_note, "Q4_0"));
        assert_true(e->header.params > 0);
        CHECK_EQ(e->header.figure[1], 2.5);
        assert_true(isnan(e->header.figure[0]));
        assert_true(*row_of(&l, "bad.gguf")->header.why != '\0');
        models_done(&l);
    }
    o.basis = "2"; /* other figures */
    CHECK_OK(models_find(&l, &o, &why));
    CHECK_EQ(calls, 2);
    models_done(&l);
    put_model("m/other.gguf"); /* another file at the same path */
    assert_int_equal(rename(at("m/other.gguf"), at("m/a-Q4_0.gguf")), 0);
    CHECK_OK(models_find(&l, &o, &why));
    CHECK_EQ(calls, 3);
    models_done(&l);
    damaged_caches_cost_time_only(&o, &calls);
    static const enum err_code CODES[] = { ERR_NOMEM, ERR_IO, ERR_FIT, ERR_FORMAT };
    for (size_t i = 0; i < COUNT_OF(CODES); i++) { /* what may end is not kept; a file's own fault is */
        const int before = calls;
        figure_result = CODES[i];
        o.basis = err_text(CODES[i]);
        for (int k = 0; k < 2; k++) {
            CHECK_OK(models_find(&l, &o, &why));
            models_done(&l);
        }
        CHECK_EQ(calls - before, CODES[i] == ERR_FORMAT ? 1 : 2);
    }
    figure_result = ERR_OK;
    unsetenv("QDYNO_MODELS");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(hub_layout_is_read),
        TEST(ollama_layout_is_read),
        TEST(other_layouts_are_read),
        TEST(links_and_loops_are_survived),
        TEST(deep_folders_end),
        TEST(hostile_manifests_are_survived),
        TEST(folders_without_permission_are_counted),
        TEST(headers_are_cached),
    };
    map_guard_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
