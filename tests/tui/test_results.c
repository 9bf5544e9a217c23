/* Proves: the results read from the database are those of the model on screen only, the newest one for each
 * question, smallest loss first; requests are counted by workload and config, with percentiles over all of
 * them; a sensitivity is in the row of its kind and the column of its layer. */
#include "tests/check.h"
#include "advisor/stats/stats.h"
#include "tests/db/temp.h"
#include "tests/tui/fixture.h"
#include "tui/dashboard/background.h"

#include <math.h>

static int64_t run_of(struct db *d, const char *sha256, const char *path)
{
    struct err why;
    struct run_row r = { .kind = "eval", .state = "done", .effect_ratio = NAN };
    CHECK_OK(db_model_put(d, sha256, "toy", path, "{}", &why));
    snprintf(r.model_sha256, sizeof r.model_sha256, "%s", sha256);
    CHECK_OK(db_run_insert(d, &r, &why));
    return r.id;
}

static void put_quality(struct db *d, int64_t run, const char *config, double kld, bool discarded)
{
    struct err why;
    struct cell_row c = { .run_id = run, .block = -1, .discarded = discarded };
    snprintf(c.config, sizeof c.config, "%s", config);
    char worker[512];
    c.worker_json = worker;
    snprintf(worker, sizeof worker,
             "{\"kld_mean\":%g,\"kld_se\":%g,\"top1_ratio\":0.9,\"top1_lower\":0.8,\"top1_upper\":0.95,"
             "\"chunks\":10,\"nll\":1.5,\"nll_se\":0.1,\"log_ppl_ratio\":0.01,\"log_ppl_ratio_se\":0.001,"
             "\"file\":\"t.txt\",\"ctx\":512,\"reference\":\"default\"}",
             kld, kld / 10);
    const struct measurement m = { METRICS[METRIC_KLD].name, METRICS[METRIC_KLD].unit, kld };
    CHECK_OK(db_cell_insert(d, &c, &m, 1, NULL, 0, NULL, 0, &why));
}

/* A search keeps the loss, its error and the text only, and its first candidate is no reference. */
static void put_search(struct db *d, const char *sha256, const char *path, const char *config)
{
    struct err why;
    struct run_row r = { .kind = "tune", .state = "done", .effect_ratio = NAN };
    char worker[] = "{\"file\":\"t.txt\",\"text_sha256\":\"\"}";
    CHECK_OK(db_model_put(d, sha256, "toy", path, "{}", &why));
    snprintf(r.model_sha256, sizeof r.model_sha256, "%s", sha256);
    CHECK_OK(db_run_insert(d, &r, &why));
    struct cell_row c = { .run_id = r.id, .block = -1, .worker_json = worker };
    snprintf(c.config, sizeof c.config, "%s", config);
    snprintf(c.phase, sizeof c.phase, "quality");
    const struct measurement m[] = { { METRICS[METRIC_KLD].name, "nats", 0.004 },
                                     { "kld_se_nats", "nats", 0.0001 } };
    CHECK_OK(db_cell_insert(d, &c, m, 2, NULL, 0, NULL, 0, &why));
}

static void put_requests(struct db *d, int64_t run, const char *config, const char *workload, float first)
{
    struct err why;
    struct request_figures f[10];
    float itl[50];
    struct request_rows rows = { .sequences = 4, .n = 10, .figures = f };
    struct cell_row c = { .run_id = run, .block = 0, .requests = &rows };
    snprintf(rows.model, sizeof rows.model, "toy");
    snprintf(rows.workload, sizeof rows.workload, "%s", workload);
    snprintf(c.config, sizeof c.config, "%s", config);
    for (int i = 0; i < 10; i++)
        f[i] = (struct request_figures){ 100, 20, first + (float)i * 0.01F, 0.5F, 0.25F };
    for (int i = 0; i < 50; i++) itl[i] = 0.02F;
    CHECK_OK(db_cell_insert(d, &c, NULL, 0, NULL, 0, itl, 50, &why));
}

static void put_sensitivity(struct db *d, const char *sha256, const char *tensor, const char *format,
                            double kld)
{
    struct err why;
    struct sensitivity_row r = { .bytes = 10, .kld = kld, .kld_se = NAN, .nmse = NAN };
    snprintf(r.model, sizeof r.model, "%s", sha256);
    snprintf(r.basis, sizeof r.basis, "t.txt");
    snprintf(r.tensor, sizeof r.tensor, "%s", tensor);
    snprintf(r.format, sizeof r.format, "%s", format);
    CHECK_OK(db_sensitivity_put(d, &r, &why));
}

/* The board with the database of `t` and the model at `path` on screen; what it then knows into *s. */
static void board_of(struct snapshot *s, const struct temp *t, const char *path)
{
    struct err why;
    struct background *b;
    struct db *d;
    CHECK_OK(background_open(&b, t->file, &why));
    snprintf(b->known.model_path, sizeof b->known.model_path, "%s", path);
    CHECK_OK(db_open(&d, t->file, &why));
    background_read_results(b, d);
    db_close(d);
    background_copy(b, s);
    background_close(b);
}

/* View 6 said that no quality was measured, while the advice showed the loss that a search had measured. */
static void quality_of_a_search(void **state)
{
    const struct temp *t = *state;
    static struct snapshot s;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    put_search(d, "aa", "/models/mine.gguf", "kv=q8_0");
    db_close(d);
    board_of(&s, t, "/models/mine.gguf");
    assert_int_equal(s.quality.count, 1);
    const struct quality_result *l = &s.quality.line[0];
    assert_string_equal(l->config, "kv=q8_0");
    assert_string_equal(l->reference, "default");
    CHECK_EQ(l->windows, 0);
    CHECK_NEAR(l->kld.estimate, 0.004, 1e-12);
    CHECK_NEAR(l->kld.upper, 0.004 + 1.96e-4, 1e-9);
    CHECK_NAN(l->top1.estimate);
    CHECK_OK(db_open(&d, t->file, &why));
    const int64_t full = run_of(d, "aa", "/models/mine.gguf"); /* an eval has all figures */
    put_quality(d, full, "kv=q8_0", 0.005, false);
    db_close(d);
    board_of(&s, t, "/models/mine.gguf");
    assert_int_equal(s.quality.count, 1);
    CHECK_EQ(s.quality.line[0].run_id, full);
}

static void quality_of_this_model(void **state)
{
    const struct temp *t = *state;
    static struct snapshot s;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    const int64_t mine = run_of(d, "aa", "/models/mine.gguf"), recipe = run_of(d, "bb", "/models/mine.gguf"),
                  other = run_of(d, "cc", "/models/other.gguf");
    put_quality(d, mine, "q4_0", 0.02, false);
    put_quality(d, mine, "q8_0", 0.001, false);
    put_quality(d, mine, "q2_K", 0.3, true);     /* discarded */
    put_quality(d, recipe, "q4_0", 0.03, false); /* the same question, measured later */
    put_quality(d, other, "q6_K", 0.0001, false);
    db_close(d);
    board_of(&s, t, "/models/mine.gguf");
    assert_int_equal(s.quality.count, 2);
    assert_string_equal(s.quality.line[0].config, "q8_0");
    assert_string_equal(s.quality.line[1].config, "q4_0");
    const struct quality_result *l = &s.quality.line[0];
    CHECK_EQ(l->run_id, mine);
    CHECK_STR(l->format, "q8_0");
    CHECK_STR(l->reference_model, "");
    CHECK_EQ(l->windows, 10);
    CHECK_EQ(l->ctx, 512);
    assert_string_equal(l->reference, "default");
    assert_string_equal(l->text, "t.txt");
    CHECK_NEAR(l->kld.estimate, 0.001, 1e-12);
    CHECK_NEAR(l->kld.upper, 0.001 + stats_t_quantile(0.975, 9) * 1e-4, 1e-12);
    CHECK_NEAR(l->ppl.estimate, exp(1.5), 1e-9);
    CHECK_NEAR(l->top1.lower, 0.8, 1e-12);
    board_of(&s, t, "/models/nobody.gguf");
    CHECK_EQ(s.quality.count, 0);
    CHECK_EQ(s.load.lines, 0);
    CHECK_EQ(s.sensitivity.maps, 0);
    CHECK_CONTAINS(s.sensitivity.missing, "n/a");
}

static void requests_by_workload(void **state)
{
    const struct temp *t = *state;
    static struct snapshot s;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    const int64_t mine = run_of(d, "aa", "/models/mine.gguf"), other = run_of(d, "cc", "/models/other.gguf");
    put_requests(d, mine, "q8_0", "pp25+tg5@b4", 0.1F);
    put_requests(d, mine, "q8_0", "pp25+tg5@b4", 0.2F);
    put_requests(d, mine, "q4_0", "pp25+tg5@b4", 0.3F);
    put_requests(d, other, "q4_0", "pp25+tg5@b4", 9);
    db_close(d);
    board_of(&s, t, "/models/mine.gguf");
    assert_int_equal(s.load.lines, 2);
    assert_string_equal(s.load.line[0].config, "q4_0"); /* the newest first */
    const struct stored_load *l = &s.load.line[1];
    assert_string_equal(l->config, "q8_0");
    assert_string_equal(l->workload, "pp25+tg5@b4");
    CHECK_EQ(l->sequences, 4);
    CHECK_EQ(l->requests, 20);
    CHECK_EQ(l->ttft.n, 20);
    CHECK_EQ(l->itl.n, 100);
    CHECK_NEAR(l->ttft.p50, 0.195, 0.06);
    CHECK_NEAR(l->itl.p50, 0.02, 1e-6);
    CHECK_NAN(l->ttft.p99);
    CHECK_NEAR(l->prefill_tok_s, 200, 1e-6);
    CHECK_NEAR(l->decode_tok_s, 80, 1e-6);
}

/* "n/a" has a true reason: a load decodes many tokens, though its gaps may not be kept. */
static void absent_latencies_are_explained(void **state)
{
    (void)state;
    static struct stored_load l;
    static const struct {
        const char *workload, *ttft, *itl;
    } CASES[] = { { "pp512", NULL, "this workload generates at most one token" },
                  { "tg64", "this workload has no prompt", NULL },
                  { "load:concurrency=4,in=64,out=16,requests=12", NULL,
                    "kept only of loads in a steady state whose tokens came one by one" } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        l = (struct stored_load){ 0 };
        snprintf(l.workload, sizeof l.workload, "%s", CASES[i].workload);
        stored_load_explain(&l);
        CHECK_STR(l.ttft.missing ? l.ttft.missing : "", CASES[i].ttft ? CASES[i].ttft : "");
        CHECK_STR(l.itl.missing ? l.itl.missing : "", CASES[i].itl ? CASES[i].itl : "");
        CHECK_EQ(l.is_load, i == 2);
    }
}

static void sensitivity_by_layer(void **state)
{
    const struct temp *t = *state;
    static struct snapshot s;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    run_of(d, "aa", "/models/mine.gguf");
    put_sensitivity(d, "aa", "blk.0.ffn_down.weight", "q4_K", 0.01);
    put_sensitivity(d, "aa", "blk.11.ffn_down.weight", "q4_K", 0.02);
    put_sensitivity(d, "aa", "output.weight", "q4_K", 0.03);
    put_sensitivity(d, "aa", "blk.0.ffn_down.weight", "q3_K", 0.5);
    db_close(d);
    board_of(&s, t, "/models/mine.gguf");
    assert_int_equal(s.sensitivity.maps, 2);
    const struct sensitivity_map *m = &s.sensitivity.map[0];
    assert_string_equal(m->format, "q4_K");
    CHECK_EQ(m->kinds, 2);
    CHECK_EQ(m->layers, 13);
    assert_string_equal(m->kind[0], "ffn_down");
    assert_string_equal(m->kind[1], "output");
    CHECK_NEAR((double)m->loss[0][1], 0.01, 1e-6);
    CHECK_NEAR((double)m->loss[0][12], 0.02, 1e-6);
    CHECK_NEAR((double)m->loss[1][0], 0.03, 1e-6);
    CHECK_NAN(m->loss[0][2]);
    CHECK_NAN(m->loss[1][1]);
    const struct sensitivity_map *q3 = &s.sensitivity.map[1]; /* what was not measured in q3_K is estimated */
    const double ratio = format_find("q3_K")->max_nmse / format_find("q4_K")->max_nmse;
    assert_string_equal(q3->format, "q3_K");
    CHECK(!q3->estimated[0][1]);
    CHECK(!q3->estimated[0][2]);
    CHECK(q3->estimated[0][12]);
    CHECK(q3->estimated[1][0]);
    CHECK(!m->estimated[0][1]);
    CHECK(!m->estimated[0][12]);
    CHECK_NEAR((double)q3->loss[0][1], 0.5, 1e-6);
    CHECK_NEAR((double)q3->loss[0][12], 0.02 * ratio, 1e-5);
    CHECK_NAN(q3->loss[0][2]);
    int row, column;
    CHECK(sensitivity_most(q3, &row, &column));
    CHECK_EQ(row, 0);
    CHECK_EQ(column, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(quality_of_a_search, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(quality_of_this_model, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(requests_by_workload, temp_setup, temp_teardown),
        cmocka_unit_test(absent_latencies_are_explained),
        cmocka_unit_test_setup_teardown(sensitivity_by_layer, temp_setup, temp_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
