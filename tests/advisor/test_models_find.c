/* Proves: the layouts of all stores are listed with the right names, kinds and sizes; a split model is one
 * row, and a file with several names is one row; links to nothing, loops of links, damaged and huge
 * manifests, folders without permission and unfinished downloads neither crash nor become models, and are
 * counted; headers are read once; names mean the file that is documented, and two matches are refused. */
#include "tests/advisor/fake.h"
#include "tests/advisor/shape_file.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advisor/models/models.h"

#define COMMIT_A "0123456789012345678901234567890123456789"
#define COMMIT_B "abcdefabcdefabcdefabcdefabcdefabcdefabcd"
#define SHA_A    "00000000000000000000000000000000000000000000000000000000000000aa"
#define SHA_B    "00000000000000000000000000000000000000000000000000000000000000bb"
#define SHA_C    "00000000000000000000000000000000000000000000000000000000000000cc"

static char home[256];

static const char *at(const char *below)
{
    static char path[4][1024];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", home, below);
    return path[next];
}

static void make_folder_of(const char *path)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    struct err why = { 0 };
    CHECK_OK(file_make_dirs(folder, &why));
}

static void put_text(const char *below, const char *text)
{
    const char *path = at(below);
    make_folder_of(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A model that runs: one layer of a few bytes. */
static void put_model(const char *below)
{
    const struct shape_file shape = { .arch = "llama",
                                      .format = format_find("q8_0"),
                                      .layers = 1,
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .embd = 64,
                                      .ff = 64,
                                      .vocab = 64,
                                      .ctx = 128 };
    make_folder_of(at(below));
    shape_file_write(at(below), &shape);
}

static void put_link(const char *below, const char *to)
{
    make_folder_of(at(below));
    assert_int_equal(symlink(to, at(below)), 0);
}

static int set_up(void **state)
{
    static const char *const OTHERS[] = { "LLAMA_CACHE",    "HF_HUB_CACHE",  "HUGGINGFACE_HUB_CACHE",
                                          "HF_HOME",        "OLLAMA_MODELS", "MODELSCOPE_CACHE",
                                          "XDG_CACHE_HOME", "QDYNO_MODELS" };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(OTHERS); i++) unsetenv(OTHERS[i]);
    scratch(home, sizeof home);
    setenv("HOME", home, 1);
    setenv("OLLAMA_MODELS", at(".ollama/models"), 1); /* not the service's of this machine */
    return 0;
}

static int tear_down(void **state)
{
    char command[400];
    (void)state;
    snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -rf '%s'", home, home);
    return system(command);
}

static struct model_list find_all(void)
{
    struct model_list l;
    struct err why = { 0 };
    CHECK_OK(models_find(&l, &(struct models_options){ .names_only = false }, &why));
    return l;
}

static const struct model_entry *row_of(const struct model_list *l, const char *name)
{
    const struct model_entry *found = NULL;
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->row[i].name, name)) found = &l->row[i];
    if (!found)
        for (int i = 0; i < l->n; i++) print_message("listed: %s\n", l->row[i].name);
    if (!found) fail_msg("%s is not listed", name);
    return found;
}

static void expect_skipped(const struct model_list *l, enum models_skipped kind, int64_t n)
{
    for (int i = 0; i < SKIPPED_COUNT; i++) CHECK_EQ(l->skipped[i], i == (int)kind ? n : 0);
}

/* ---------------------------------------------------------------- layouts */

#define HUB  "./.cache/huggingface/hub/"
#define REPO HUB "models--o--r-GGUF/"

static void put_hub_file(const char *commit, const char *path, const char *sha)
{
    char below[512], to[256], blob[256];
    int up = 0;
    snprintf(blob, sizeof blob, REPO "blobs/%s", sha);
    if (access(at(blob), F_OK)) put_model(blob);
    for (const char *p = path; *p; p++) up += *p == '/';
    snprintf(to, sizeof to, "%s../../blobs/%s", up ? "../" : "", sha);
    snprintf(below, sizeof below, REPO "snapshots/%s/%s", commit, path);
    put_link(below, to);
}

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
    put_text(HUB "datasets--o--d/snapshots/" COMMIT_A "/d.gguf", "");
    struct model_list l = find_all();
    CHECK_EQ(l.n, 5);
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

static void put_manifest(const char *name, const char *layers)
{
    char below[256], text[4096];
    snprintf(below, sizeof below, ".ollama/models/manifests/%s", name);
    snprintf(
        text, sizeof text,
        "{\"schemaVersion\":2,\"config\":{\"mediaType\":\"application/vnd.docker.container.image.v1+json\","
        "\"digest\":\"sha256:" SHA_C "\",\"size\":3},\"layers\":[%s]}",
        layers);
    put_text(below, text);
}

#define LAYER(type, sha)                                                                                     \
    "{\"mediaType\":\"application/vnd.ollama.image." type "\",\"digest\":\"sha256:" sha "\",\"size\":7}"

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

static void count_figure(void *ctx, struct model_entry *e, const struct gguf *g)
{
    assert_non_null(g);
    e->header.figure[1] = 2.5;
    ++*(int *)ctx;
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
    put_text(".cache/qdyno/models.json",
             "{\"version\":1,\"files\":[3]}"); /* a damaged cache costs time only */
    CHECK_OK(models_find(&l, &o, &why));
    CHECK_EQ(calls, 4);
    models_done(&l);
    unsetenv("QDYNO_MODELS");
}

/* ---------------------------------------------------------------- what a name means */

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
        TEST(names_mean_files),
    };
    map_guard_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
