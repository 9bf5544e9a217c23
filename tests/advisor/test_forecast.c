/* Proves: the arithmetic of a budget before the start (blocks that it gives and that a verdict needs, with
 * the control and for several arms; quality inside the budget and beyond it), the words for it with singular
 * and plural, the budget that it proposes, and that a speed that nobody knows makes no forecast. */
#include "advisor/experiment/parts.h"
#include "db/db.h"
#include "tests/check.h"

#include <math.h>

static struct experiment_spec spec_of(const char *workload, int arms)
{
    struct err why = { 0 };
    struct experiment_spec s = { .arms = arms, .budget_s = 300, .model = "/nowhere/m.gguf" };
    CHECK_OK(workload_parse(&s.workload, workload, &why));
    for (int i = 0; i < arms; i++) {
        char line[32];
        snprintf(line, sizeof line, "threads=%d", i + 1);
        CHECK_OK(config_parse(&s.config[i], line, &why));
    }
    return s;
}

static void test_arithmetic(void **state)
{
    (void)state;
    struct experiment_forecast f;
    struct err why = { 0 };
    char text[FORECAST_TEXT];
    struct experiment_spec s = spec_of("tg64", 2);
    CHECK_OK(spec_resolve(&s, &why));
    forecast_of(&f, &s, 60, 70, 0);
    assert_int_equal(f.given, 3);
    assert_int_equal(f.wanted, 10);
    assert_true(experiment_forecast_is_short(&f));
    assert_string_equal(
        experiment_forecast_text(text, &f),
        "one block takes about 70 s; 5 min give about 3; a verdict needs at least 10, 3 of them control blocks (A against itself)");
    assert_string_equal(f.budget, "14m"); /* 1.1 * (60 + 10 * 70) s */
    /* what it proposes is enough by its own arithmetic */
    s.budget_s = 14 * 60;
    forecast_of(&f, &s, 60, 70, 0);
    assert_false(experiment_forecast_is_short(&f));
    /* quality that takes less than half of what is left is part of the budget, else it comes on top */
    s.budget_s = 300;
    forecast_of(&f, &s, 0, 20, 100);
    assert_int_equal(f.given, 10);
    forecast_of(&f, &s, 0, 20, 200);
    assert_int_equal(f.given, 15);
    /* no room for one block; one minute; no control */
    s.budget_s = 60;
    s.control_blocks = -1;
    forecast_of(&f, &s, 0, 70, 0);
    assert_string_equal(
        experiment_forecast_text(text, &f),
        "one block takes about 70 s; 60 s are too short for a block; a verdict needs at least 7");
    /* four arms share the error probability: each needs more blocks */
    s = spec_of("tg64", 4);
    CHECK_OK(spec_resolve(&s, &why));
    forecast_of(&f, &s, 0, 70, 0);
    assert_true(f.wanted > 10);
}

/* A long start, as with a deep context, is said: otherwise "one block takes about 2 s" and "60 s are too
 * short for a block" would contradict each other. */
static void test_start_is_said(void **state)
{
    (void)state;
    struct experiment_forecast f;
    char text[FORECAST_TEXT];
    struct experiment_spec s = spec_of("tg64", 2);
    s.budget_s = 60;
    forecast_of(&f, &s, 75, 2.2, 0);
    CHECK_CONTAINS(experiment_forecast_text(text, &f),
                   "starting and warming up take about 75 s, then one block about 2.2 s; 60 s are too short");
    forecast_of(&f, &s, 3, 2.2, 0);
    CHECK_CONTAINS(experiment_forecast_text(text, &f), "one block takes about 2.2 s; 60 s give about 25");
}

/* A session that continues a run fills the caches again, also those of arms that were not timed yet; quality
 * gets as much time as the blocks. */
static void test_session_at_depth(void **state)
{
    (void)state;
    char budget[FORECAST_BUDGET];
    struct experiment_state *x = calloc(1, sizeof *x);
    assert_non_null(x);
    x->spec = spec_of("tg16@d8192", 3);
    x->spec.control_blocks = 3;
    x->block_s = NAN;
    assert_string_equal(experiment_resume_budget(budget, x, 8), ""); /* nothing was timed */
    x->arm[0].fill_s = 30;
    x->arm[0].cell_s = 0.5;
    /* 3 x 30 s, half as much again to spare; 11 blocks of 3 s; a tenth to spare */
    assert_string_equal(experiment_resume_budget(budget, x, 8), "4m");
    assert_string_equal(experiment_resume_budget(budget, x, 0), "");
    snprintf(x->spec.quality_file, sizeof x->spec.quality_file, "text");
    x->arm[0].cell_s = 5; /* 135 s, a second process of A, and twice 11 blocks of 30 s */
    assert_string_equal(experiment_resume_budget(budget, x, 8), "16m");
    free(x);
}

/* The time for quality is said, and whether the budget holds it. */
static void test_quality_is_said(void **state)
{
    (void)state;
    struct experiment_forecast f;
    char text[FORECAST_TEXT];
    struct experiment_spec s = spec_of("tg64", 2);
    s.budget_s = 40;
    forecast_of(&f, &s, 0, 1.5, 174);
    assert_non_null(strstr(experiment_forecast_text(text, &f),
                           "; measuring quality takes about 2.9 min more, on top of the budget"));
    forecast_of(&f, &s, 0, 1.5, 12);
    assert_non_null(strstr(experiment_forecast_text(text, &f),
                           "; measuring quality takes about 12 s, within the budget"));
    forecast_of(&f, &s, 0, 1.5, NAN);
    assert_non_null(strstr(experiment_forecast_text(text, &f), "unknown time more"));
    forecast_of(&f, &s, 0, 1.5, 0);
    assert_null(strstr(experiment_forecast_text(text, &f), "quality"));
}

/* Quality is measured on as many windows as half of what is left of the budget gives, unless their number was
 * given, and never on fewer than the least number. */
static void test_quality_fits(void **state)
{
    (void)state;
    struct quality_size size;
    const struct arm_time each = { .start_s = 1, .prefill_token_s = 0.5 / 512, .decode_token_s = 0 };
    struct experiment_spec s = spec_of("tg64", 2);
    struct quality_time q = { 0 };
    forecast_quality_add(&q, &each, &each);
    CHECK_NEAR(512 * q.token_s, 1, 1e-9);
    CHECK_NEAR(q.fixed_s, 2, 1e-9);
    CHECK_NEAR(forecast_quality_fit(&size, &q, &s, 30), 0, 1e-9); /* it is not measured */
    snprintf(s.quality_file, sizeof s.quality_file, "text");
    s.quality_chunks = 64;
    CHECK_NEAR(forecast_quality_fit(&size, &q, &s, 30), 66, 1e-9); /* the number was given */
    assert_int_equal(size.windows, 64);
    s.quality_least = 8;
    CHECK_NEAR(forecast_quality_fit(&size, &q, &s, 45), 22, 1e-9);
    assert_int_equal(size.windows, 20);
    CHECK_NEAR(forecast_quality_fit(&size, &q, &s, 5), 10, 1e-9);
    assert_int_equal(size.windows, 8);
    CHECK_NEAR(forecast_quality_fit(&size, &q, &s, 500), 66, 1e-9);
    assert_int_equal(size.windows, 64);
    s.quality_chunks = 3; /* a short text */
    q = (struct quality_time){ 0 };
    forecast_quality_add(&q, &each, &each);
    CHECK_NEAR(forecast_quality_fit(&size, &q, &s, 1), 5, 1e-9);
    assert_int_equal(size.windows, 3);
    s.quality_ctx = 8192; /* 4 windows, 16 s each */
    s.quality_chunks = 4;
    CHECK_NEAR(forecast_quality_fit(&size, &q, &s, 200), 66, 1e-9);
    assert_int_equal(size.ctx, 8192);
    CHECK_NEAR(forecast_quality_fit(&size, &q, &s, 40), 66, 1e-9); /* that length was asked for */
    s.quality_ctx_least = 512;
    forecast_quality_fit(&size, &q, &s, 40); /* 18 s: 4 windows of 2048 tokens take 16 s */
    assert_int_equal(size.ctx, 2048);
    assert_int_equal(size.windows, 4);
    CHECK_NEAR(forecast_quality_fit(&size, &q, &s, 1), 10, 1e-9); /* the fewest of the shortest */
    assert_int_equal(size.ctx, 512);
    assert_int_equal(size.windows, 8);
}

static void test_unknown(void **state)
{
    (void)state;
    struct experiment_forecast f;
    struct machine machine = { .id = "here" };
    char text[FORECAST_TEXT];
    const struct forecast_sources from = { .machine = &machine };
    struct experiment_spec s = spec_of("tg64", 2);
    experiment_forecast(&f, &s, &from);
    assert_string_equal(experiment_forecast_text(text, &f),
                        "the speed of arm A is known after its first cells");
    assert_false(experiment_forecast_is_short(&f));
    s = spec_of("tg64", 1);
    experiment_forecast(&f, &s, &from); /* as the run would refuse it */
    assert_true(*f.unknown);
}

static int files_read;

static enum err_code count_read(char sha256[HASH_HEX], struct db *d, const char *path, struct err *why)
{
    (void)d, (void)why;
    files_read++;
    snprintf(sha256, HASH_HEX, "hash of %s", path);
    return ERR_OK;
}

/* A model file is hashed once, however many arms run it. */
static void test_one_hash_for_one_file(void **state)
{
    (void)state;
    struct err why;
    struct experiment_spec s = spec_of("tg64", 3);
    struct arm_identities k = { .read = count_read };
    struct db *d;
    CHECK_OK(db_open(&d, ":memory:", &why));
    CHECK_OK(config_parse(&s.config[2], "model=/nowhere/other.gguf", &why));
    files_read = 0;
    CHECK_STR(forecast_identity(&k, &s, 0, d), "hash of /nowhere/m.gguf");
    CHECK_STR(forecast_identity(&k, &s, 1, d), "hash of /nowhere/m.gguf");
    CHECK_EQ(files_read, 1);
    CHECK_STR(forecast_identity(&k, &s, 2, d), "hash of /nowhere/other.gguf");
    CHECK_STR(forecast_identity(&k, &s, 0, d), "hash of /nowhere/m.gguf");
    CHECK_EQ(files_read, 2);
    db_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_one_hash_for_one_file),
                                        cmocka_unit_test(test_arithmetic),
                                        cmocka_unit_test(test_quality_is_said),
                                        cmocka_unit_test(test_start_is_said),
                                        cmocka_unit_test(test_session_at_depth),
                                        cmocka_unit_test(test_quality_fits),
                                        cmocka_unit_test(test_unknown) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
