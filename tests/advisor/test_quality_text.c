/* Proves: a model's text is the bundled one, whatever was measured first, until one is chosen, and again when
 * the bundled content is chosen; a chosen text that is missing or was changed is named with what to do; a
 * loss on the model's text replaces a newer one on another text; the name stands for the content where an
 * older version measured; advice does not rank a loss on another text and says how to get one that counts. */
#include "tests/advisor/fake.h"

#include <math.h>
#include <unistd.h>

#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"
#include "advisor/quality/quality.h"
#include "engine/synth/synth.h"

struct bench {
    char dir[256], model[300], mine[300], bundled[300], sha256[HASH_HEX];
    struct db *db;
};

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    struct err why = { 0 };
    struct gguf *g = NULL;
    char command[600], file[300];
    if (!b) return -1;
    scratch(b->dir, sizeof b->dir);
    snprintf(b->model, sizeof b->model, "%s/m.gguf", b->dir);
    snprintf(b->mine, sizeof b->mine, "%s/mine.txt", b->dir);
    snprintf(b->bundled, sizeof b->bundled, "%s/share/%s", b->dir, EVAL_TEXT);
    snprintf(command, sizeof command, "mkdir -p '%s/share/text'", b->dir);
    assert_int_equal(system(command), 0);
    write_text(b->bundled, "once\n");
    write_text(b->mine, "twice\n");
    snprintf(file, sizeof file, "%s/share", b->dir);
    setenv("QDYNO_SHARE", file, 1);
    const struct synth_options o = { .arch = "llama",
                                     .shape = synth_shape_find("tiny"),
                                     .format = format_find("f32"),
                                     .seed = 3,
                                     .threads = 1 };
    CHECK_OK(synth_write(b->model, &o, &why));
    CHECK_OK(gguf_open(&g, b->model, &why));
    CHECK_OK(model_identity(g, b->sha256, &why));
    gguf_close(g);
    snprintf(file, sizeof file, "%s/q.db", b->dir);
    CHECK_OK(db_open(&b->db, file, &why));
    CHECK_OK(db_machine_put(b->db, "here", "{}", &why));
    CHECK_OK(db_model_put(b->db, b->sha256, "m", b->model, "{}", &why));
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    char command[320];
    db_close(b->db);
    snprintf(command, sizeof command, "rm -rf '%s'", b->dir);
    free(b);
    return system(command);
}

static struct quality_text text_of(const struct bench *b)
{
    struct err why;
    struct quality_text t;
    CHECK_OK(quality_text_of(&t, b->db, b->model, &why));
    return t;
}

static void choose(const struct bench *b, const char *path)
{
    struct err why;
    char sha256[HASH_HEX];
    CHECK_OK(hash_file(path, sha256, &why));
    CHECK_OK(quality_text_choose(b->db, b->sha256, path, sha256, &why));
}

/* A run of one cell with a KL divergence; text and sha256 NULL: not in the cell. */
static int64_t store(const struct bench *b, const char *kind, const char *config, double kld,
                     const char *text, const char *sha256)
{
    struct err why = { 0 };
    struct run_row r = { .effect_ratio = NAN, .state = "running", .machine = "here", .workload = "eval:x" };
    snprintf(r.kind, sizeof r.kind, "%s", kind);
    snprintf(r.model_sha256, sizeof r.model_sha256, "%s", b->sha256);
    CHECK_OK(db_run_insert(b->db, &r, &why));
    struct cell_row c = { .run_id = r.id, .block = -1, .phase = "eval" };
    snprintf(c.config, sizeof c.config, "%s", config);
    json_t *o = json_object();
    json_put_str(o, "reference", "default");
    if (text) json_put_str(o, "file", text);
    if (sha256) json_put_str(o, "text_sha256", sha256);
    char *line = json_line(o);
    c.worker_json = line;
    json_decref(o);
    const struct measurement m = { "kld_mean", "nat/token", kld };
    CHECK_OK(db_cell_insert(b->db, &c, &m, 1, NULL, 0, NULL, 0, &why));
    free(line);
    CHECK_OK(db_run_finish(b->db, r.id, "done", "", NAN, NULL, &why));
    return r.id;
}

static struct answer_kld loss_of(const struct bench *b, const char *line)
{
    struct err why;
    struct config c;
    struct answer_klds l;
    struct answer_kld found = { .kld = NAN };
    CHECK_OK(config_parse(&c, line, &why));
    CHECK_OK(answer_klds_load(&l, b->db, b->model, &why));
    const struct answer_kld *row = answer_klds_find(&l, &c);
    if (row) found = *row;
    answer_klds_free(&l);
    return found;
}

static void bundled_until_chosen(void **state)
{
    const struct bench *b = *state;
    struct err why;
    char path[4096];
    store(b, "eval", "q8_0", 0.1, "mine.txt", "00");
    struct quality_text t = text_of(b);
    assert_string_equal(t.path, b->bundled);
    assert_string_equal(t.name, "held-out.txt");
    assert_false(t.chosen);
    assert_int_equal(t.trouble.code, ERR_OK);
    choose(b, b->mine);
    t = text_of(b);
    assert_string_equal(t.path, b->mine);
    assert_true(t.chosen);
    CHECK_OK(quality_text_path(path, sizeof path, b->db, b->model, &why));
    assert_string_equal(path, b->mine);
    CHECK_EQ(quality_text_path(path, 4, b->db, b->model, &why), ERR_USAGE);
    choose(b, b->bundled);
    t = text_of(b);
    assert_string_equal(t.path, b->bundled);
    assert_false(t.chosen);
}

static void missing_or_changed(void **state)
{
    const struct bench *b = *state;
    struct err why;
    char path[4096];
    choose(b, b->mine);
    write_text(b->mine, "thrice\n");
    struct quality_text t = text_of(b);
    assert_int_equal(t.trouble.code, ERR_FORMAT);
    CHECK_CONTAINS(t.trouble.message, "mine.txt was changed");
    CHECK_CONTAINS(t.trouble.message, "--set-text");
    CHECK_EQ(quality_text_path(path, sizeof path, b->db, b->model, &why), ERR_FORMAT);
    assert_int_equal(unlink(b->mine), 0);
    t = text_of(b);
    assert_int_equal(t.trouble.code, ERR_IO);
    CHECK_CONTAINS(t.trouble.message, "cannot be read: No such file");
    CHECK_EQ(quality_text_path(path, sizeof path, b->db, b->model, &why), ERR_IO);
    choose(b, b->bundled); /* out of it */
    CHECK_OK(quality_text_path(path, sizeof path, b->db, b->model, &why));
}

static void losses_on_the_models_text(void **state)
{
    const struct bench *b = *state;
    const struct quality_text t = text_of(b);
    store(b, "eval", "q8_0", 0.1, "held-out.txt", t.sha256);
    store(b, "eval", "q8_0", 0.2, "mine.txt", "00"); /* newer, but on another text */
    CHECK_NEAR(loss_of(b, "q8_0").kld, 0.1, 0);
    assert_false(loss_of(b, "q8_0").foreign);
    const int64_t other = store(b, "eval", "q4_0", 0.3, "mine.txt", "00");
    assert_true(loss_of(b, "q4_0").foreign);
    assert_int_equal(loss_of(b, "q4_0").run_id, other);
    assert_string_equal(loss_of(b, "q4_0").text.name, "mine.txt");
    store(b, "eval", "q6_K", 0.4, "held-out.txt", "00"); /* same name, other content */
    assert_true(loss_of(b, "q6_K").foreign);
    store(b, "eval", "q5_0", 0.5, "held-out.txt", NULL); /* an older version */
    assert_false(loss_of(b, "q5_0").foreign);
    store(b, "eval", "q5_1", 0.6, "sample.txt", NULL);
    assert_true(loss_of(b, "q5_1").foreign);
    store(b, "tune", "q4_1", 0.7, NULL, NULL); /* an older search, on the bundled text */
    assert_false(loss_of(b, "q4_1").foreign);
    choose(b, b->mine);
    assert_true(loss_of(b, "q8_0").foreign);
    CHECK_NEAR(loss_of(b, "q8_0").kld, 0.2, 0);
}

static void advice_does_not_rank_other_texts(void **state)
{
    const struct bench *b = *state;
    struct err why;
    struct answer_klds l;
    struct advice *list;
    int n, seen = 0;
    const struct quality_text t = text_of(b);
    store(b, "eval", "q8_0", 0.001, "held-out.txt", t.sha256);
    store(b, "eval", "q4_0", 0.0001, "mine.txt", "00");
    CHECK_OK(answer_klds_load(&l, b->db, b->model, &why));
    const struct machine m = { .cores = 2,
                               .processors = 2,
                               .memory_bytes = 1 << 30,
                               .memory_available_bytes = 1 << 30,
                               .cgroup_memory_bytes = -1,
                               .cgroup_cpus = NAN,
                               .cache_bytes = { 32768, 65536, 262144 } };
    const struct machine_ceilings c = { .read_bytes_s_1 = 6e9,
                                        .read_bytes_s_all = 10e9,
                                        .threads_all = 2,
                                        .count = 1,
                                        .row = { { "f32_fma", "avx2", 1e11, 4e11 } } };
    const struct advise_options o = { .goal = GOAL_SPEED, .ctx = 512, .kld_limit = 0.02, .answer_klds = &l };
    CHECK_OK(advise(&list, &n, b->model, &m, &c, &o, &why));
    for (int i = 0; i < n; i++) {
        const bool ours = !strcmp(list[i].line, "q8_0"), other = !strcmp(list[i].line, "q4_0");
        seen += ours + other;
        if (ours) {
            CHECK_NEAR(list[i].kld, 0.001, 0);
            assert_string_equal(list[i].text, "held-out.txt");
            CHECK_CONTAINS(list[i].caution, "nats on held-out.txt");
            CHECK_NAN(list[i].foreign_kld);
        } else if (other) {
            CHECK_NAN(list[i].kld);
            CHECK_NEAR(list[i].foreign_kld, 0.0001, 0);
            CHECK_CONTAINS(list[i].caution, "measured on mine.txt");
            CHECK_CONTAINS(list[i].caution, "this model's text is held-out.txt");
            CHECK_CONTAINS(list[i].caution, "-C q4_0 --ref default");
            CHECK_LT(list[i].score, -1000); /* as a loss that nobody measured */
        }
    }
    assert_int_equal(seen, 2);
    free(list);
    answer_klds_free(&l);
}

/* e2e/commands.sh proves that the bundled files have these contents. */
static void texts_are_called_by_names_that_people_know(void **state)
{
    (void)state;
    static const char STORIES[] = "64584828ba828004bcb5536336ad40fb131dfadd7576b7df1cff5fb476ae16c7";
    char text[TEXT_LABEL], basis[200];
    assert_string_equal(quality_text_label(text, "held-out.txt", STORIES), "the bundled stories");
    assert_string_equal(quality_text_label(text, "/share/text/held-out.txt", STORIES), "the bundled stories");
    assert_string_equal(quality_text_label(text, "copy.txt", STORIES), "the bundled stories");
    assert_string_equal(quality_text_label(text, "/mine/held-out.txt", "feed"), "held-out.txt");
    assert_string_equal(quality_text_label(text, "held-out.txt", ""),
                        "held-out.txt"); /* may be another text */
    assert_string_equal(quality_text_label(text, "", "feedfeedfeedfeed"),
                        "the text with SHA-256 feedfeedfeed");
    assert_string_equal(quality_text_label(text, "", ""), "an unknown text");
    CHECK(quality_text_is_bundled(STORIES));
    CHECK(!quality_text_is_bundled(""));
    CHECK(!quality_text_is_bundled("6458"));
    assert_string_equal(
        quality_basis_label(basis, sizeof basis, "text c8961c2eb61c, 8 windows of 256, precision auto"),
        "the bundled calibration stories, 8 windows of 256, precision auto");
    assert_string_equal(quality_basis_label(basis, sizeof basis, "text feedfeedfeed, 8 windows of 256"),
                        "the text with SHA-256 feedfeedfeed, 8 windows of 256");
    assert_string_equal(quality_basis_label(basis, sizeof basis, "something else"), "something else");
    CHECK(model_is_bundled("/usr/share/qdyno/models/bundled.gguf"));
    CHECK(!model_is_bundled("/m/gemma.gguf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_called_by_names_that_people_know),
        cmocka_unit_test_setup_teardown(bundled_until_chosen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(missing_or_changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(losses_on_the_models_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(advice_does_not_rank_other_texts, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
