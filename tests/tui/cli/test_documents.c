/* Proves: docs/documents.md names every key of the JSON documents of bench, eval and ab and of
 * the lines of progress, and no key that is
 * never written; the table of metrics in docs/metrics.md is METRICS. */
#include "tests/check.h"
#include "tests/tui/report_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tui/cli/command_tune_progress.h"
#include "tui/cli/commands.h"

enum { KEYS_MOST = 256 };
struct keys {
    int n;
    char key[KEYS_MOST][96];
};

static bool keys_have(const struct keys *k, const char *key)
{
    for (int i = 0; i < k->n; i++)
        if (!strcmp(k->key[i], key)) return true;
    return false;
}

static void keys_add(struct keys *k, const char *key)
{
    if (keys_have(k, key)) return;
    CHECK_LT(k->n, KEYS_MOST);
    snprintf(k->key[k->n++], sizeof k->key[0], "%s", key);
}

/* Objects that the page documents as one key, because another page has their members. */
static bool is_documented_whole(const char *name)
{
    static const char *const WHOLE[] = { "merged", "quality", "joint", "gate" };
    for (size_t i = 0; i < COUNT_OF(WHOLE); i++)
        if (!strcmp(WHOLE[i], name)) return true;
    return false;
}

/* Adds the path of every leaf below `value`: "arms[].plan.kv". Keys that are names of metrics or
 * estimands become "*". */
static void keys_collect(struct keys *k, const char *path, const json_t *value)
{
    const char *name;
    json_t *item;
    size_t i;
    char inner[96];
    if (json_is_object(value) && json_object_size(value)) {
        json_object_foreach((json_t *)value, name, item)
        {
            snprintf(inner, sizeof inner, "%.60s%s%.30s", path, *path ? "." : "",
                     str_ends(path, "by_metric") || str_ends(path, "estimands") ? "*" : name);
            if (is_documented_whole(name))
                keys_add(k, inner);
            else
                keys_collect(k, inner, item);
        }
    } else if (json_is_array(value) && json_array_size(value)) {
        snprintf(inner, sizeof inner, "%.80s[]", path);
        json_array_foreach(value, i, item) keys_collect(k, inner, item);
    } else {
        keys_add(k, path);
    }
}

static char *page(const char *name)
{
    char path[512], *text = NULL;
    struct err why;
    snprintf(path, sizeof path, "%s/docs/%s", TEST_SOURCE_DIR, name);
    CHECK_OK(file_read(&text, NULL, path, 1 << 20, &why));
    return text;
}

/* The keys in the tables of the section of that schema: "| `key` | ...". */
static void keys_documented(struct keys *k, const char *text, const char *schema)
{
    char head[64];
    snprintf(head, sizeof head, "\n## %s\n", schema);
    const char *at = strstr(text, head);
    if (!at) fail_msg("docs/documents.md has no section '%s'", schema);
    const char *end = strstr(at + 1, "\n## ");
    for (at = strstr(at, "\n| `"); at && (!end || at < end); at = strstr(at + 1, "\n| `")) {
        char key[96];
        const char *from = at + 4, *to = strchr(from, '`');
        snprintf(key, sizeof key, "%.*s", (int)(to - from), from);
        keys_add(k, key);
    }
}

static void check_section(const char *schema, const struct keys *written)
{
    struct keys documented = { 0 };
    char *text = page("documents.md");
    struct str wrong = { 0 };
    keys_documented(&documented, text, schema);
    for (int i = 0; i < written->n; i++)
        if (!keys_have(&documented, written->key[i]))
            str_printf(&wrong, "written but not documented: %s\n", written->key[i]);
    for (int i = 0; i < documented.n; i++)
        if (!keys_have(written, documented.key[i]))
            str_printf(&wrong, "documented but never written: %s\n", documented.key[i]);
    if (*str_text(&wrong)) fail_msg("%s in docs/documents.md:\n%s", schema, str_text(&wrong));
    str_free(&wrong);
    free(text);
}

static void check_table(const char *schema, const struct column *columns, size_t n, const char *const *extra)
{
    struct table t;
    struct keys k = { 0 };
    table_init(&t, schema, columns, (int)n);
    for (int c = 0; c < t.n_columns; c++) {
        char key[96];
        snprintf(key, sizeof key, "rows[].%s", t.columns[c].name);
        keys_add(&k, key);
    }
    keys_add(&k, "schema");
    for (; *extra; extra++) keys_add(&k, *extra);
    check_section(schema, &k);
    table_done(&t);
}

static void bench_and_eval_are_documented(void **state)
{
    (void)state;
    static const char *const BENCH[] = { "run", "machine", "beyond_trained_context", "labels", NULL };
    static const char *const EVAL[] = { "run",      "machine", "reference", "gate",
                                        "baseline", "labels",  "text",      NULL };
    check_table("qdyno.bench/1", BENCH_COLUMNS, BENCH_COLUMN_COUNT, BENCH);
    check_table("qdyno.eval/1", EVAL_COLUMNS, EVAL_COLUMN_COUNT, EVAL);
}

static void summary_is_documented(void **state)
{
    (void)state;
    struct keys k = { 0 };
    const struct summary unknown = { .effect = { NAN, NAN, NAN } };
    json_t *o = summary_to_json(&unknown), *doc = json_object(), *first;
    keys_collect(&k, "", o);
    check_section("Summary", &k);
    CHECK(json_is_null(json_object_get(o, "verdict")) && json_is_null(json_object_get(o, "effect")) &&
          json_is_null(json_object_get(o, "run")));
    json_put_str(doc, "schema", "qdyno.test/1");
    first = summary_put_first(&unknown, doc);
    assert_string_equal(json_object_iter_key(json_object_iter(first)), "summary");
    json_decref(first);
    json_decref(doc);
    json_decref(o);
}

static void ab_is_documented(void **state)
{
    (void)state;
    struct report_source *s = report_fixture(8, 0.05, 0.01);
    struct keys k = { 0 };
    s->state.events = 1;
    json_t *o = experiment_to_json(&s->state);
    keys_collect(&k, "", o);
    keys_add(&k, "beyond_trained_context"); /* added by the command, which knows the model file */
    keys_add(&k, "labels");                 /* of the database, added by ab_document */
    check_section("qdyno.ab/1", &k);
    json_decref(o);
    report_source_free(s);
}

static void progress_is_documented(void **state)
{
    (void)state;
    struct keys k = { 0 };
    const struct tune_candidate c = { .line = "q4_K", .timings = 1 };
    const struct tune_result r = { .winner = c };
    const struct tune_progress at = {
        .what = "speed", .challenger = "q4_K", .n = 1, .board = { { &c, true, NULL } }
    };
    json_t *tune = tune_progress_to_json(&at, "m.gguf", &(struct tune_end){ &r, "text", NULL });
    json_t *o = progress_to_json(&(struct progress_figures){ .own_key = "tune", .own = tune }, "text", NAN);
    keys_collect(&k, "", o);
    check_section("qdyno.progress/1", &k);
    json_decref(tune);
    json_decref(o);
}

static const char *combined(const struct metric *m)
{
    static const char *const HOW[] = { [COMBINE_GEOMETRIC_MEAN] = "geometric mean",
                                       [COMBINE_LARGEST] = "largest",
                                       [COMBINE_POOLED_QUANTILE] = "quantile of all latencies",
                                       [COMBINE_LOADING] = "once, when loaded" };
    return HOW[m->combine];
}

static void figures_of_cells_are_documented(void **state)
{
    (void)state;
    struct str right = { 0 };
    char *text = page("metrics.md");
    str_append(&right, "| name | unit | better | of several cells | meaning |\n|---|---|---|---|---|\n");
    for (int i = METRIC_SENSOR_COUNT; i < METRIC_COUNT; i++) {
        const struct metric *m = &METRICS[i];
        str_printf(&right, "| `%s` | %s | %s | %s | %s |\n", m->name, m->unit,
                   m->better > 0 ? "more" : "less", combined(m), m->help);
    }
    if (!strstr(text, str_text(&right)))
        fail_msg("docs/metrics.md, \"Figures of cells\", is not METRICS; the right table is\n%s",
                 str_text(&right));
    str_free(&right);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bench_and_eval_are_documented),
        cmocka_unit_test(summary_is_documented),
        cmocka_unit_test(ab_is_documented),
        cmocka_unit_test(progress_is_documented),
        cmocka_unit_test(figures_of_cells_are_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
