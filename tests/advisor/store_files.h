/* store_files.h - a home folder with the stores of other programs, for tests of advisor/models. */
#ifndef QDYNO_TESTS_STORE_FILES_H
#define QDYNO_TESTS_STORE_FILES_H

#include "tests/advisor/fake.h"
#include "tests/advisor/shape_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include "advisor/models/scan.h"

#define COMMIT_A "0123456789012345678901234567890123456789"
#define COMMIT_B "abcdefabcdefabcdefabcdefabcdefabcdefabcd"
#define SHA_A    "00000000000000000000000000000000000000000000000000000000000000aa"
#define SHA_B    "00000000000000000000000000000000000000000000000000000000000000bb"
#define SHA_C    "00000000000000000000000000000000000000000000000000000000000000cc"

static char home[256];

static inline const char *at(const char *below)
{
    static char path[4][1024];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", home, below);
    return path[next];
}

static inline void make_folder_of(const char *path)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    struct err why = { 0 };
    CHECK_OK(file_make_dirs(folder, &why));
}

static inline void put_text(const char *below, const char *text)
{
    const char *path = at(below);
    make_folder_of(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A model that runs: one layer of a few bytes. */
static inline void put_model(const char *below)
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

static inline void put_link(const char *below, const char *to)
{
    make_folder_of(at(below));
    assert_int_equal(symlink(to, at(below)), 0);
}

static inline int set_up(void **state)
{
    static const char *const OTHERS[] = { "LLAMA_CACHE",    "HF_HUB_CACHE",  "HUGGINGFACE_HUB_CACHE",
                                          "HF_HOME",        "OLLAMA_MODELS", "MODELSCOPE_CACHE",
                                          "XDG_CACHE_HOME", "QDYNO_MODELS",  "XDG_DATA_HOME" };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(OTHERS); i++) unsetenv(OTHERS[i]);
    scratch(home, sizeof home);
    setenv("HOME", home, 1);
    setenv("OLLAMA_MODELS", at(".ollama/models"), 1); /* not the service's of this machine */
    return 0;
}

static inline int tear_down(void **state)
{
    char command[400];
    (void)state;
    snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -rf '%s'", home, home);
    return system(command);
}

static inline struct model_list find_all(void)
{
    struct model_list l;
    struct err why = { 0 };
    CHECK_OK(models_find(&l, &(struct models_options){ .names_only = false }, &why));
    return l;
}

static inline const struct model_entry *row_of(const struct model_list *l, const char *name)
{
    const struct model_entry *found = NULL;
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->row[i].name, name)) found = &l->row[i];
    if (!found)
        for (int i = 0; i < l->n; i++) print_message("listed: %s\n", l->row[i].name);
    if (!found) fail_msg("%s is not listed", name);
    return found;
}

static inline void expect_skipped(const struct model_list *l, enum models_skipped kind, int64_t n)
{
    for (int i = 0; i < SKIPPED_COUNT; i++) CHECK_EQ(l->skipped[i], i == (int)kind ? n : 0);
}

#define HUB  "./.cache/huggingface/hub/"
#define REPO HUB "models--o--r-GGUF/"

static inline void put_hub_file(const char *commit, const char *path, const char *sha)
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

static inline void put_manifest(const char *name, const char *layers)
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

#endif
