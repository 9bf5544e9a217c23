/* Proves: a capsule says what a run was made of and nothing that changes by itself; the difference of two
 * names what was changed, and only that; an arm is found by its line wherever it stood; a canary is stored
 * beside the arms without being one, and knows which metrics it makes comparable. */
#include "tests/advisor/fake.h"
#include "tests/db/reads.h"
#include "tests/db/temp.h"
#include "tests/telemetry/roots.h"

#include <math.h>

#include "advisor/history/history.h"
#include "advisor/run/run.h"

static struct config config_of_line(const char *line)
{
    struct config c;
    struct err why;
    CHECK_OK(config_parse(&c, line, &why));
    return c;
}

static json_t *take(const struct root *r, const char *line_a, const char *line_b, const char *sha)
{
    struct machine m;
    struct err why;
    CHECK_OK(machine_detect(&m, r->path, &why));
    m.memory_available_bytes = rand(); /* as different at every look as it gets */
    const struct config a = config_of_line(line_a), b = config_of_line(line_b);
    const struct capsule_arm arm[] = { { line_a, &a, "/m/toy.gguf", "toy.gguf", sha, NULL, NULL },
                                       { line_b, &b, "/m/toy.gguf", "toy.gguf", sha, NULL, NULL } };
    return capsule_take(&(struct capsule_of){ &m, r->path, NULL, arm, 2 });
}

static void says_what_it_was(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    json_t *c = take(&r, "q8_0,threads=2", "default", "feed");
    assert_string_equal(json_get_str(c, "schema", ""), "qdyno.capsule/1");
    assert_string_equal(json_get_str(json_object_get(c, "governor"), "governor", ""), "powersave");
    CHECK(str_starts(json_get_str(json_object_get(c, "library"), "libc", ""), "glibc 2."));
    const json_t *program = json_object_get(c, "program");
    assert_string_equal(json_get_str(program, "version", ""), QDYNO_VERSION);
    assert_int_equal(strlen(json_get_str(program, "sha256", "")), 64);
    CHECK_GT(strlen(json_get_str(program, "compiler", "")), 3);
    const json_t *config = json_array_get(json_object_get(c, "config"), 0);
    assert_string_equal(json_get_str(config, "line", ""), "q8_0,threads=2");
    CHECK_EQ(json_get_int(config, "threads", 0), 2); /* resolved, key by key */
    CHECK(json_object_get(config, "batch"));
    assert_string_equal(json_get_str(json_array_get(json_object_get(c, "model"), 1), "sha256", ""), "feed");
    CHECK(!json_object_get(json_object_get(c, "machine"), "memory_available_bytes"));
    CHECK_EQ(json_get_int(json_object_get(c, "machine"), "cores", 0), 4);
    json_decref(c);
    root_remove(&r);
}

/* The diff as "group.key;group.key;" */
static struct str keys(const json_t *diff)
{
    struct str s = { 0 };
    size_t i;
    json_t *c;
    json_array_foreach(diff, i, c)
        str_printf(&s, "%s.%s;", json_get_str(c, "group", "?"), json_get_str(c, "key", "?"));
    return s;
}

static void check_diff(json_t *before, json_t *after, const char *line, const char *want)
{
    json_t *diff = capsule_diff(before, after, line);
    struct str s = keys(diff);
    assert_string_equal(str_text(&s), want);
    str_free(&s);
    json_decref(diff);
}

static void names_what_changed(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    json_t *before = take(&r, "default", "q8_0", "feed"), *same = take(&r, "default", "q8_0", "feed");
    check_diff(before, same, NULL, "");
    json_decref(same);

    root_write(&r, "proc/sys/kernel/osrelease", "6.99.0\n");
    root_write(&r, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
    root_write(&r, "sys/devices/system/cpu/cpu0/microcode/version", "0xff\n");
    root_write(&r, "sys/devices/system/cpu/vulnerabilities/retbleed", "Mitigation: IBRS\n");
    setenv("QDYNO_ISA", "avx2", 1);
    json_t *after = take(&r, "threads=1", "q8_0", "beef");
    unsetenv("QDYNO_ISA");
    check_diff(before, after, NULL,
               "kernel.release;kernel.mitigations.retbleed;governor.governor;microcode.version;"
               "environment.QDYNO_ISA;model.A.sha256;model.B.sha256;config.A.line;config.A.threads;");
    check_diff(NULL, after, NULL, "");

    json_t *diff = capsule_diff(before, after, NULL);
    struct str text = { 0 };
    run_changes_text(&text, diff, 3);
    CHECK_CONTAINS(str_text(&text), " -> 6.99.0; kernel.mitigations.retbleed n/a -> Mitigation: IBRS; "
                                    "governor.governor powersave -> performance; 6 more");
    str_clear(&text);
    capsule_change_text(&text, json_array_get(diff, 2));
    assert_string_equal(str_text(&text), "governor.governor powersave -> performance");
    str_clear(&text);
    capsule_values_text(&text, json_array_get(diff, 1));
    assert_string_equal(str_text(&text), "n/a -> Mitigation: IBRS");
    str_free(&text);
    json_decref(diff);
    json_decref(before);
    json_decref(after);
    root_remove(&r);
}

static void an_arm_is_found_by_its_line(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    json_t *before = take(&r, "default", "q8_0", "feed"), *after = take(&r, "q8_0", "q4_K,threads=1", "feed");
    check_diff(before, after, "q8_0", ""); /* B then, A now, and the same */
    json_t *other = take(&r, "default", "q8_0", "beef");
    check_diff(before, other, "q8_0", "model.sha256;");
    json_decref(before);
    json_decref(after);
    json_decref(other);
    root_remove(&r);
}

static void goes_into_the_database_and_back(void **state)
{
    (void)state;
    struct err why;
    struct db *d;
    struct run_row run = { .kind = "ab", .state = "running", .effect_ratio = NAN };
    struct machine m;
    json_t *back, *taken;
    struct root r = root_get("avx2-laptop");
    CHECK_OK(machine_detect(&m, r.path, &why));
    CHECK_OK(db_open(&d, ":memory:", &why));
    CHECK_OK(db_run_insert(d, &run, &why));
    CHECK_OK(capsule_load(&back, d, run.id, &why));
    assert_null(back);
    const struct capsule_arm arm = {
        "default", NULL, "", "", "", NULL, NULL
    }; /* an arm that never answered */
    const struct capsule_of of = { &m, r.path, FAKE_PROGRAM, &arm, 1 };
    CHECK_OK(capsule_store(d, run.id, &of, &why));
    CHECK_OK(capsule_load(&back, d, run.id, &why));
    taken = capsule_take(&of);
    CHECK(json_equal(back, taken));
    CHECK(json_is_null(json_object_get(json_array_get(json_object_get(back, "model"), 0), "sha256")));
    json_decref(back);
    json_decref(taken);
    CHECK_OK(db_capsule_put(d, run.id, "[1", &why));
    CHECK_EQ(capsule_load(&back, d, run.id, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "provenance record of run");
    CHECK_OK(db_capsule_put(d, run.id, "[1]", &why));
    CHECK_EQ(capsule_load(&back, d, run.id, &why), ERR_FORMAT);
    CHECK(!back);
    CHECK_OK(capsule_find(&back, d, run.id, &why)); /* no object: as none */
    CHECK(!back);
    CHECK_OK(db_capsule_put(d, run.id, "{}", &why));
    CHECK_OK(capsule_find(&back, d, run.id, &why));
    CHECK(json_is_object(back));
    json_decref(back);
    db_close(d);
}

/* A capsule that cannot be read is not one that is missing. */
static void a_disk_that_fails_is_an_error(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    json_t *back;
    CHECK_OK(db_open(&d, t->file, &why));
    const int64_t run = temp_run(d);
    CHECK_OK(db_capsule_put(d, run, "{}", &why));
    db_close(d);
    CHECK_OK(db_open(&d, t->file, &why));
    reads_fail(true);
    CHECK_EQ(capsule_find(&back, d, run, &why), ERR_IO);
    reads_fail(false);
    assert_null(back);
    db_close(d);
}

static enum err_code count_value(void *ctx, const struct value_row *v, struct err *why)
{
    (void)why;
    CHECK_EQ(v->arm, -1);
    CHECK_EQ(v->block, -1);
    assert_string_equal(v->phase, CANARY_PHASE);
    CHECK_GT(v->value, 1e6);
    CHECK_CONTAINS(v->config, "64M");
    ++*(int *)ctx;
    return ERR_OK;
}

static void a_canary_is_measured_and_stored(void **state)
{
    (void)state;
    struct err why;
    struct db *d;
    struct run_row run = { .kind = "ab", .state = "running", .effect_ratio = NAN };
    struct cell_row *cells;
    int n, values = 0;
    CHECK_OK(db_open(&d, ":memory:", &why));
    CHECK_OK(db_run_insert(d, &run, &why));
    struct canary measured;
    canary_measure(&measured);
    CHECK_OK(canary_store(d, run.id, CANARY_START, &measured, &why));
    CHECK_OK(canary_store(d, run.id, CANARY_END, &measured, &why));
    CHECK_OK(db_cell_list(d, run.id, &cells, &n, &why));
    CHECK_EQ(n, 2);
    CHECK_EQ(cells[0].slot, 0);
    CHECK_EQ(cells[1].slot, 1);
    CHECK_GT(cells[0].seconds, 0);
    assert_string_equal(cells[0].config, cells[1].config); /* the same work */
    free(cells);
    CHECK_OK(db_value_list(d, run.id, count_value, &values, &why));
    assert_int_equal(values, 4);
    CHECK_EQ(canary_store(d, run.id + 1, CANARY_START, &measured, &why), ERR_USAGE);
    db_close(d);
}

static void metrics_know_their_canary(void **state)
{
    (void)state;
    int sign;
    CHECK_EQ(canary_of(METRIC_DECODE_RATE, &sign), METRIC_CANARY_READ);
    CHECK_EQ(sign, 1);
    CHECK_EQ(canary_of(METRIC_TTFT, &sign), METRIC_CANARY_OPS);
    CHECK_EQ(sign, -1);
    CHECK_EQ(canary_of(METRIC_PEAK_MEMORY, &sign), METRIC_COUNT);
    CHECK_EQ(sign, 0);
    for (int i = METRIC_SENSOR_COUNT; i < METRIC_COUNT; i++) { /* more speed of the machine is never worse */
        canary_of((enum metric_id)i, &sign);
        CHECK(sign == 0 || sign == METRICS[i].better);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_it_was),
        cmocka_unit_test(names_what_changed),
        cmocka_unit_test(an_arm_is_found_by_its_line),
        cmocka_unit_test(goes_into_the_database_and_back),
        cmocka_unit_test_setup_teardown(a_disk_that_fails_is_an_error, temp_setup, temp_teardown),
        cmocka_unit_test(a_canary_is_measured_and_stored),
        cmocka_unit_test(metrics_know_their_canary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
