/* Proves: a model that is replaced or rewritten while it is opened, hashed or run never gets another model's
 * identity. At each of 20 points between opening and the end of a run the file is replaced by rename, or
 * changed in place; then the recorded hash is the SHA-256 of what was mapped, or the run says that the file
 * changed, and the file that took the path gets its own hash and its own quantized copy. Names the bug: the
 * hash of the old mapping was kept under the new inode, for good. A model that becomes shorter at one of
 * these points ends the work with an error that says so, on all threads, and leaves no file of a
 * quantization; the bug: SIGBUS ended the process. */
#include <fcntl.h>
#include <sys/stat.h>

#include "engine/eval/eval.h"
#include "engine/quant/quant.h"
#include "engine/synth/synth.h"
#include "engine/worker/worker.h"
#include "tests/engine/session.h"

enum { OFFSETS = 20, WINDOW = 16, WINDOWS = 18 };

static char folder[] = "/tmp/qdyno-test-replaced-XXXXXX", model_path[128], other_path[128], spare_path[128];

static void make_model(const char *path, uint64_t seed)
{
    struct err why = { 0 };
    CHECK_OK(synth_write(path,
                         &(struct synth_options){ .arch = "llama",
                                                  .shape = synth_shape_find("tiny"),
                                                  .layers = 1,
                                                  .format = format_find("f16"),
                                                  .seed = seed,
                                                  .threads = 1 },
                         &why));
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(model_path, sizeof model_path, "%s/model.gguf", folder);
    snprintf(other_path, sizeof other_path, "%s/other.gguf", folder);
    snprintf(spare_path, sizeof spare_path, "%s/spare.gguf", folder);
    return setenv("XDG_CACHE_HOME", folder, 1);
}

/* What happens to the file at some point of the program under test. */
enum event { REPLACE, REWRITE, TRUNCATE };

static void truncate_model(int point)
{
    struct stat st;
    CHECK(!stat(model_path, &st));
    const off_t sizes[] = { 0, 1000, st.st_size / 2,
                            st.st_size - 100 }; /* the last one: no page is missing */
    CHECK(!truncate(model_path, sizes[point % (int)COUNT_OF(sizes)]));
}

static void happen(enum event what)
{
    if (what == REPLACE) {
        make_model(spare_path, 2);
        CHECK(!rename(spare_path, model_path));
        return;
    }
    const int fd = open(model_path, O_WRONLY);
    struct stat st;
    CHECK_GE(fd, 0);
    CHECK(!fstat(fd, &st));
    const uint16_t value = 0x3c00;
    CHECK_EQ(pwrite(fd, &value, sizeof value, st.st_size - 4096), sizeof value);
    CHECK(!close(fd));
}

/* The points, in the order in which a worker passes them. */
struct walk {
    int point, wanted;
    int windows; /* of text that are evaluated; each ends with a point */
    enum event what;
};

static void at_point(struct walk *w)
{
    const int point = w->point++;
    if (point != w->wanted) return;
    if (w->what == TRUNCATE)
        truncate_model(point);
    else
        happen(w->what);
}

static bool on_progress(void *arg, int64_t done, int64_t of, double nll)
{
    (void)done, (void)of, (void)nll;
    at_point(arg);
    return true;
}

/* Opens the model with `line`, identifies it, runs and evaluates it; `hash` is what a run would record. */
static enum err_code worker_like(struct walk *w, const char *line, char hash[HASH_HEX], struct err *why)
{
    static char text[8192];
    for (size_t i = 0; i < sizeof text; i++) text[i] = "the cat sat "[i % 12];
    struct model *m = NULL;
    struct perplexity p;
    struct cell_result cell = { 0 };
    struct workload work;
    hash[0] = '\0';
    at_point(w);
    enum err_code rc = session_try(&m, model_path, line, 64, 1, why);
    if (rc) return rc;
    at_point(w);
    if (!rc) rc = model_source_identity(m, hash, why);
    at_point(w);
    if (!rc) rc = workload_parse(&work, "pp8+tg8", why);
    if (!rc) rc = cell_run(&cell, m, &work, 1, NULL, why);
    cell_result_free(&cell);
    at_point(w);
    if (!rc) rc = eval_perplexity(&p, m, text, sizeof text, WINDOW, w->windows, on_progress, w, why);
    model_close(m);
    return rc;
}

static void check_point(int wanted, enum event what, const char *line)
{
    char before[HASH_HEX], after[HASH_HEX], recorded[HASH_HEX], again[HASH_HEX];
    struct err why = { 0 };
    struct walk w = { .wanted = wanted, .windows = WINDOWS, .what = what };
    make_model(model_path, 1);
    CHECK_OK(hash_file(model_path, before, &why));
    const enum err_code rc = worker_like(&w, line, recorded, &why);
    if (w.point <= wanted)
        happen(what); /* the run ended sooner: what comes next is about the new file alone */
    CHECK_OK(hash_file(model_path, after, &why));
    if (rc && (rc != ERR_FORMAT || !strstr(why.message, "changed")))
        fail_msg("point %d: status %d: %s", wanted, rc, why.message);
    if (!rc && what == REWRITE && wanted > 0 && w.point > wanted)
        fail_msg("point %d: the file was rewritten while in use, and nobody said so", wanted);
    if (!rc && strcmp(recorded, before) && strcmp(recorded, after))
        fail_msg("point %d: the hash recorded is that of no file there was", wanted);
    if (!rc && wanted > 0 && strcmp(recorded, before))
        fail_msg("point %d: what ran was the first file, recorded was the second", wanted);
    /* The next run, of the file that is there now, records that file's hash, and no copy of the other runs.
     */
    struct walk quiet = { .wanted = -1, .windows = 1 };
    CHECK_OK(worker_like(&quiet, line, again, &why));
    assert_string_equal(again, after);
}

static void replaced(void **state)
{
    (void)state;
    for (int i = 0; i < OFFSETS; i++) check_point(i, REPLACE, "threads=1");
}

static void rewritten(void **state)
{
    (void)state;
    for (int i = 0; i < OFFSETS; i++) check_point(i, REWRITE, "threads=1");
}

/* With a recipe, what runs is a quantized copy: a copy of the file that was replaced must not run. */
static void copies(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) check_point(i, REPLACE, "q8_0,threads=1");
}

static void truncated(void **state)
{
    (void)state;
    map_guard_install(); /* cmocka sets a handler of its own for every test */
    for (int i = 0; i < OFFSETS; i++) {
        char hash[HASH_HEX];
        struct err why = { 0 };
        struct walk w = { .wanted = i, .windows = WINDOWS, .what = TRUNCATE };
        make_model(model_path, 1);
        const enum err_code rc = worker_like(&w, "threads=2", hash, &why);
        CHECK_GE(w.point, i + 1);
        if (rc != ERR_FORMAT || (i > 0 && !strstr(why.message, "became shorter while it was in use")))
            fail_msg("point %d: status %d: %s", i, rc, why.message);
    }
}

static bool on_quantized(void *ctx, double done)
{
    (void)done;
    at_point(ctx);
    return true;
}

/* Quantizations that can be resumed keep nothing either: it may be of zeros. */
static void truncated_source(void **state)
{
    (void)state;
    map_guard_install(); /* cmocka sets a handler of its own for every test */
    static const char *const LINES[] = { "q8_0", "q4_0" };
    char out[160], partial[176];
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    snprintf(partial, sizeof partial, "%s.partial", out);
    for (int i = 0; i < 8; i++) {
        struct err why = { 0 };
        struct config c;
        struct gguf *g;
        struct walk w = { .wanted = i, .what = TRUNCATE };
        make_model(model_path, 1);
        CHECK_OK(config_parse(&c, LINES[i % 2], &why));
        CHECK_OK(gguf_open(&g, model_path, &why));
        const struct quantize_options o = {
            .config = &c, .threads = 2, .resume = true, .progress = on_quantized, .ctx = &w
        };
        CHECK_EQ(quantize_file(out, g, &o, &why), ERR_FORMAT);
        CHECK(strstr(why.message, "became shorter while it was in use"));
        gguf_close(g);
        CHECK_NE(access(out, F_OK), 0);
        CHECK_NE(access(partial, F_OK), 0);
    }
}

/* What no check saw is still said at the end, once. */
static void truncated_unseen(void **state)
{
    (void)state;
    map_guard_install(); /* cmocka sets a handler of its own for every test */
    struct err why = { 0 };
    struct file_map map;
    make_model(model_path, 1);
    CHECK_OK(map_guard_explain(&why));
    CHECK_OK(file_map(&map, model_path, &why));
    CHECK(!truncate(model_path, 0));
    CHECK_OK(map_guard_confess(&why)); /* nothing was read */
    CHECK_EQ(map.data[map.size - 1], 0);
    file_unmap(&map);
    CHECK_EQ(map_guard_confess(&why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, model_path);
    CHECK_CONTAINS(why.message, "became shorter");
    CHECK_OK(map_guard_confess(&why));
    CHECK_OK(map_guard_explain(&why));
}

/* A copy filed under the wrong model by an older program is made again. */
static void foreign_copy(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct config c;
    struct gguf *g;
    char *path, *other, first[HASH_HEX], second[HASH_HEX];
    make_model(model_path, 1);
    make_model(other_path, 5);
    CHECK_OK(config_parse(&c, "q4_0", &why));
    const struct quantize_options o = { .config = &c, .threads = 1 };
    CHECK_OK(gguf_open(&g, model_path, &why));
    CHECK_OK(recipe_cached(&path, g, &o, &why));
    CHECK_OK(hash_file(path, first, &why));
    gguf_close(g);
    CHECK_OK(gguf_open(&g, other_path, &why));
    CHECK_OK(recipe_cached(&other, g, &o, &why));
    gguf_close(g);
    CHECK(!rename(other, path));
    CHECK_OK(gguf_open(&g, model_path, &why));
    free(path);
    CHECK_OK(recipe_cached(&path, g, &o, &why));
    gguf_close(g);
    CHECK_OK(hash_file(path, second, &why));
    assert_string_equal(first, second);
    free(path);
    free(other);
}

static int teardown(void **state)
{
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(replaced),        cmocka_unit_test(rewritten),
                                        cmocka_unit_test(copies),          cmocka_unit_test(foreign_copy),
                                        cmocka_unit_test(truncated),       cmocka_unit_test(truncated_source),
                                        cmocka_unit_test(truncated_unseen) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
