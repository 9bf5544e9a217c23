/* Proves: docs/documents.md names every key of every JSON document, with its meaning, and no key that is
 * never written; a key that no document declares is refused when it is printed; every schema in the sources
 * has a section. The table of metrics in docs/metrics.md is METRICS. */
#include "tests/check.h"
#include "tests/tui/report_fixture.h"

#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "telemetry/probe/probe.h"
#include "tui/cli/command_tune_progress.h"
#include "tui/cli/commands.h"
#include "tui/cli/documents.h"
#include "tui/cli/lib/devices.h"

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

/* The meaning of a key in the row "| `key` | meaning |" of the section that begins at `at`. "": none. */
static void meaning_documented(char *buf, size_t size, const char *at, const char *end, const char *key)
{
    char row[128];
    snprintf(row, sizeof row, "\n| `%s` | ", key);
    const char *found = strstr(at, row);
    buf[0] = '\0';
    if (!found || (end && found > end)) return;
    found += strlen(row);
    snprintf(buf, size, "%.*s", (int)strcspn(found, "|\n"), found);
}

/* Writes the rows that the section should have: known meanings are kept, the others are empty. */
static void right_section_write(const char *path, const char *text, const char *schema,
                                const struct keys *written)
{
    char head[64], meaning[512];
    snprintf(head, sizeof head, "\n## %s\n", schema);
    const char *at = strstr(text, head), *end = at ? strstr(at + 1, "\n## ") : NULL;
    FILE *f = fopen(path, "w");
    if (!f) return;
    fputs("| key | meaning |\n|---|---|\n", f);
    for (int i = 0; i < written->n; i++) {
        meaning_documented(meaning, sizeof meaning, at ? at : "", end, written->key[i]);
        fprintf(f, "| `%s` | %s|\n", written->key[i], meaning);
    }
    fclose(f);
}

static void check_section(const char *schema, const struct keys *written)
{
    struct keys documented = { 0 };
    char *text = page("documents.md"), path[256], name[64], meaning[512], head[64];
    struct str wrong = { 0 };
    snprintf(name, sizeof name, "%.*s", (int)strcspn(schema, "/"), schema);
    snprintf(path, sizeof path, TEST_BUILD_DIR "/%s.md", name);
    snprintf(head, sizeof head, "\n## %s\n", schema);
    if (!strstr(text, head)) {
        right_section_write(path, text, schema, written);
        fail_msg("docs/documents.md has no section '%s'; its rows, without meanings, are in %s", schema,
                 path);
    }
    keys_documented(&documented, text, schema);
    const char *at = strstr(text, head), *end = strstr(at + 1, "\n## ");
    for (int i = 0; i < written->n; i++) {
        meaning_documented(meaning, sizeof meaning, at, end, written->key[i]);
        if (!keys_have(&documented, written->key[i]))
            str_printf(&wrong, "written but not documented: %s\n", written->key[i]);
        else if (!*meaning)
            str_printf(&wrong, "without a meaning: %s\n", written->key[i]);
    }
    for (int i = 0; i < documented.n; i++)
        if (!keys_have(written, documented.key[i]))
            str_printf(&wrong, "documented but never written: %s\n", documented.key[i]);
    if (*str_text(&wrong)) {
        right_section_write(path, text, schema, written);
        fail_msg("%s in docs/documents.md:\n%sthe right rows are in %s", schema, str_text(&wrong), path);
    }
    str_free(&wrong);
    free(text);
}

/* The keys of a document as the page writes them: "rows[].config", and "labels" for "labels.*". */
static void keys_of_document(struct keys *k, const struct document *d)
{
    struct table t;
    char key[96];
    table_init(&t, d);
    keys_add(k, "schema");
    for (int c = 0; c < t.n_columns; c++) {
        snprintf(key, sizeof key, "%s%s", d->record ? "" : "rows[].", t.columns[c].name);
        keys_add(k, key);
    }
    for (const char *m = d->members ? d->members : ""; *m; m += strspn(m, " ")) {
        const int n = (int)strcspn(m, " ");
        const bool all = n > 2 && !strncmp(m + n - 2, ".*", 2);
        snprintf(key, sizeof key, "%.*s", all ? n - 2 : n, m);
        keys_add(k, key);
        m += n;
    }
    table_done(&t);
}

static void documents_are_documented(void **state)
{
    (void)state;
    for (size_t i = 0; i < DOCUMENT_COUNT; i++) {
        struct keys k = { 0 };
        keys_of_document(&k, DOCUMENTS[i]);
        if (DOCUMENTS[i] != &DOCUMENT_AB) /* its JSON has other keys than its columns: ab_is_documented */
            check_section(DOCUMENTS[i]->schema, &k);
    }
}

/* Two columns of one name would be one key of JSON, and an error in SQL. */
static void columns_have_names_of_their_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < DOCUMENT_COUNT; i++) {
        struct table t;
        table_init(&t, DOCUMENTS[i]);
        for (int c = 0; c < t.n_columns; c++)
            for (int k = 0; k < c; k++)
                if (!strcmp(t.columns[c].name, t.columns[k].name))
                    fail_msg("%s has two columns '%s'", DOCUMENTS[i]->schema, t.columns[c].name);
        table_done(&t);
    }
}

/* Schemas that a page describes in another way than by a table of keys. */
static const struct {
    const char *schema, *page;
} ELSEWHERE[] = {
    { .schema = "qdyno.alert/1", .page = "alerts.md" },
    { .schema = "qdyno.watch/1", .page = "alerts.md" },
    { .schema = "qdyno.watch_round/1", .page = "documents.md" },
    { .schema = "qdyno.recording/1", .page = "machines.md" },
};

static void schema_check(const char *schema, const char *file, const char *documents)
{
    char head[80], *text;
    snprintf(head, sizeof head, "\n## %s\n", schema);
    if (strstr(documents, head)) return;
    for (size_t i = 0; i < COUNT_OF(ELSEWHERE); i++)
        if (!strcmp(schema, ELSEWHERE[i].schema)) {
            text = page(ELSEWHERE[i].page);
            if (!strstr(text, schema))
                fail_msg("%s writes '%s', which docs/%s does not name", file, schema, ELSEWHERE[i].page);
            free(text);
            return;
        }
    fail_msg("%s writes '%s', which has no section in docs/documents.md", file, schema);
}

static char *documents_page;
static int schemas_seen;

static int file_schemas_check(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    char *text = NULL, schema[64];
    struct err why;
    (void)about;
    (void)place;
    if (kind != FTW_F || !str_ends(path, ".c")) return 0;
    CHECK_OK(file_read(&text, NULL, path, 1 << 20, &why));
    for (const char *at = strstr(text, "\"qdyno."); at; at = strstr(at + 1, "\"qdyno.")) {
        const size_t n = strcspn(at + 1, "\"");
        snprintf(schema, sizeof schema, "%.*s", (int)n, at + 1);
        if (!str_ends(schema, "/1")) continue; /* a key of model files */
        schema_check(schema, path, documents_page);
        schemas_seen++;
    }
    free(text);
    return 0;
}

/* A document that no table prints, and one that is missing in DOCUMENTS, is found by its schema. */
static void schemas_in_sources_are_documented(void **state)
{
    (void)state;
    static const char *const PLACES[] = { "tui", "advisor", "telemetry", "engine", "db" };
    documents_page = page("documents.md");
    for (size_t i = 0; i < COUNT_OF(PLACES); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", TEST_SOURCE_DIR, PLACES[i]);
        CHECK_EQ(nftw(path, file_schemas_check, 8, FTW_PHYS), 0);
    }
    CHECK_GT(schemas_seen, (int)DOCUMENT_COUNT);
    free(documents_page);
}

/* Builds with tests refuse to print a key that no column and no member declares. */
static void undeclared_keys_are_refused(void **state)
{
    (void)state;
    static const struct column COLUMNS[] = { { .name = "known" } };
    static const struct document D = { .schema = "qdyno.test/1",
                                       .columns = COLUMNS,
                                       .n_columns = COUNT_OF(COLUMNS),
                                       .members = "list[].name labels.*" };
    struct table t;
    struct err why = { 0 };
    table_init(&t, &D);
    json_t *row = table_row(&t), *item = json_object(), *list = json_array(), *labels = json_object();
    json_put_str(row, "known", "x");
    json_put(t.extra, "list", list);
    json_put(t.extra, "labels", labels);
    CHECK_OK(document_check(&t, &why)); /* an empty list and an empty object are declared, too */
    json_put_str(item, "name", "x");
    json_array_append_new(list, item);
    json_put_str(labels, "any", "x");
    CHECK_OK(document_check(&t, &why));
    json_put_str(item, "other", "x");
    CHECK_EQ(document_check(&t, &why), ERR_INTERNAL);
    CHECK_CONTAINS(why.message, "list[].other");
    json_object_del(item, "other");
    json_put_str(row, "unknown", "x");
    CHECK_EQ(document_check(&t, &why), ERR_INTERNAL);
    CHECK_CONTAINS(why.message, "'unknown'");
    table_done(&t);
}

/* A run that was not stored has no number: no table can name run 0. */
static void test_run_0_is_refused(void **state)
{
    (void)state;
    static const struct column COLUMNS[] = { { .name = "run", .kind = COLUMN_INT } };
    static const struct document D = {
        .schema = "qdyno.test/1", .columns = COLUMNS, .n_columns = COUNT_OF(COLUMNS), .members = "run"
    };
    static const char *const REFUSED[] = { "run 0; to print it again: qdyno show 0", "next: qdyno show 0",
                                           "next: qdyno tune --resume 0   (continues)", "run 01, and run 0" };
    static const char *const FINE[] = { "run 10; to print it again: qdyno show 10", "show 0.5 s", "run 01" };
    struct err why = { 0 };
    struct table t;
    for (size_t i = 0; i < COUNT_OF(REFUSED) + COUNT_OF(FINE); i++) {
        const bool fine = i >= COUNT_OF(REFUSED);
        table_init(&t, &D);
        table_note(&t, "%s", fine ? FINE[i - COUNT_OF(REFUSED)] : REFUSED[i]);
        CHECK_EQ(document_check(&t, &why), fine ? ERR_OK : ERR_INTERNAL);
        table_done(&t);
    }
    for (int where = 0; where < 2; where++)
        for (int64_t run = 0; run < 2; run++) {
            table_init(&t, &D);
            json_put_int(where ? t.extra : table_row(&t), "run", run);
            CHECK_EQ(document_check(&t, &why), run ? ERR_OK : ERR_INTERNAL);
            table_done(&t);
        }
}

static void check_object(const char *section, json_t *o, const char *extra)
{
    struct keys k = { 0 };
    keys_collect(&k, "", o);
    if (extra) keys_add(&k, extra);
    check_section(section, &k);
    json_decref(o);
}

/* Objects inside documents whose keys come from other modules. */
static void objects_are_documented(void **state)
{
    (void)state;
    const struct machine m = { .gpus = 1, .isa = ISA_AVX2 };
    struct gpu_reading r = { .process_count = 1,
                             .throttle_known = true,
                             .throttle_reasons = GPU_THROTTLES[0].bit };
    struct devices one = { .count = 1 };
    struct machine_ceilings *c = calloc(1, sizeof *c);
    CHECK(c);
    c->reads = c->nodes = c->count = c->opencl_count = 1;
    c->gpu.read_bytes_s = 1;
    json_t *devices = devices_to_json(&one, &m);
    check_object("Machine", machine_to_json(&m), NULL);
    check_object("Measured limits", ceilings_to_json(c), "kernels"); /* its form may change */
    check_object("OpenCL device", json_incref(json_array_get(devices, 0)), NULL);
    check_object("GPU readings", gpu_reading_to_json(&r), NULL);
    json_decref(devices);
    free(c);
}

static void summary_is_documented(void **state)
{
    (void)state;
    struct keys k = { 0 };
    const struct summary unknown = { .effect = { NAN, NAN, NAN } };
    json_t *o = summary_to_json(&unknown), *doc = json_object(), *first;
    keys_collect(&k, "", o);
    check_section("Summary", &k);
    CHECK(json_is_null(json_object_get(o, "verdict")));
    CHECK(json_is_null(json_object_get(o, "effect")));
    CHECK(json_is_null(json_object_get(o, "run")));
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
    json_t *tune = tune_progress_to_json(&at, "m.gguf", &(struct tune_end){ &r, "text", NULL, "", "" });
    json_t *o = progress_to_json(&(struct progress_figures){ .own_key = "tune", .own = tune }, "text", NAN);
    keys_collect(&k, "", o);
    json_decref(o);
    struct report_source *s = report_fixture(8, 0.05, 0.01);
    s->state.occupancy.arm = -1;
    json_t *ab = experiment_now_to_json(&s->state);
    o = progress_to_json(&(struct progress_figures){ .own_key = "ab", .own = ab }, "text", NAN);
    keys_collect(&k, "", o);
    for (int i = 0; i < 3; i++) /* added by the command */
        keys_add(&k,
                 (const char *const[]){ "ab.events[].unix_ms", "ab.events[].kind", "ab.events[].text" }[i]);
    check_section("qdyno.progress/1", &k);
    report_source_free(s);
    json_decref(ab);
    json_decref(tune);
    json_decref(o);
}

static const char *combined(const struct metric *m)
{
    static const char *const HOW[] = { [COMBINE_GEOMETRIC_MEAN] = "geometric mean",
                                       [COMBINE_MEAN] = "mean",
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
        cmocka_unit_test(test_run_0_is_refused),
        cmocka_unit_test(documents_are_documented),
        cmocka_unit_test(objects_are_documented),
        cmocka_unit_test(columns_have_names_of_their_own),
        cmocka_unit_test(schemas_in_sources_are_documented),
        cmocka_unit_test(undeclared_keys_are_refused),
        cmocka_unit_test(summary_is_documented),
        cmocka_unit_test(ab_is_documented),
        cmocka_unit_test(progress_is_documented),
        cmocka_unit_test(figures_of_cells_are_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
