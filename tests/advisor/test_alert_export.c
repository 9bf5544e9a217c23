/* Proves: the rule file of share/monitoring/ is what the tables say; every name in every expression of rules
 * and board is an exported family with the labels it is queried by, or a recording rule; throttle reasons
 * agree with the GPUs' table; the board's JSON has what Grafana requires, and its panels do not overlap; a
 * disabled alert has no rule, and a changed threshold is the rule's. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "advisor/watch/watch.h"

#define SHIPPED TEST_SOURCE_DIR "/share/monitoring/"

/* ---------------------------------------------------------------- names */

static bool is_family(const char *name, size_t n, const struct family **out)
{
    static const char *const TAILS[] = { "", "_bucket", "_sum", "_count" };
    for (int f = 0; f < FAMILY_COUNT; f++) {
        if (!FAMILIES[f].name) continue;
        const size_t tails = FAMILIES[f].type == FAMILY_HISTOGRAM ? COUNT_OF(TAILS) : 1;
        for (size_t k = 0; k < tails; k++) {
            char whole[128];
            snprintf(whole, sizeof whole, "%s%s", FAMILIES[f].name, TAILS[k]);
            if (strlen(whole) == n && !strncmp(whole, name, n)) {
                *out = &FAMILIES[f];
                return true;
            }
        }
    }
    return false;
}

static bool is_recorded(const char *name, size_t n)
{
    for (int i = 0; recorded_name(i); i++)
        if (strlen(recorded_name(i)) == n && !strncmp(recorded_name(i), name, n)) return true;
    return false;
}

/* The labels a selector may use: those of the family, and those of every scrape. */
static void check_labels(const char *selector, const struct family *f, const char *expression)
{
    static const char SCRAPED[] = "instance job machine experiment";
    const char *end = strchr(selector, '}');
    CHECK(end);
    for (const char *at = selector + 1; at < end;) {
        char label[64];
        const size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
        snprintf(label, sizeof label, "%.*s", (int)n, at);
        if (!str_has_word(SCRAPED, label) && !str_has_word(f->labels, label))
            fail_msg("'%s' asks %s by '%s': it has '%s'", expression, f->name, label, f->labels);
        at = strchr(at, '"');
        at = at ? strchr(at + 1, '"') : NULL;
        CHECK(at);
        at += 1 + strspn(at + 1, ", ");
    }
}

static int check_names(const char *expression)
{
    int found = 0;
    for (const char *at = expression; *at;) {
        if (!isalpha((unsigned char)*at)) {
            if (*at == '"') { /* a matcher's value is not a name */
                at = strchr(at + 1, '"');
                CHECK(at);
            }
            at++;
            continue;
        }
        size_t n = 0;
        while (isalnum((unsigned char)at[n]) || at[n] == '_' || at[n] == ':') n++;
        const struct family *f = NULL;
        const bool ours = !strncmp(at, "qdyno_", 6) || memchr(at, ':', n);
        if (ours) {
            found++;
            if (!is_recorded(at, n) && !is_family(at, n, &f))
                fail_msg("'%s' names '%.*s', which nobody exports", expression, (int)n, at);
            if (f && at[n] == '{') check_labels(at + n, f, expression);
        }
        at += n;
    }
    return found;
}

/* The board as it ships. json_decref. */
static json_t *board_read(void)
{
    struct err why;
    char *text;
    size_t n;
    json_t *o;
    CHECK_OK(file_read(&text, &n, SHIPPED "grafana-qdyno.json", 1 << 20, &why));
    CHECK_OK(json_parse(&o, text, n, &why));
    free(text);
    return o;
}

static void expressions_name_what_is_exported(void **state)
{
    (void)state;
    int signals = 0, expressions = 0;
    json_t *board = board_read(), *panel, *target;
    size_t p, k;
    for (int i = 0; i < SIGNAL_COUNT; i++)
        if (SIGNALS[i].promql) {
            CHECK_LE(1, check_names(SIGNALS[i].promql));
            signals++;
        }
    assert_int_equal(signals, SIGNAL_COUNT - 1); /* all but `blind` */
    json_array_foreach(json_object_get(board, "panels"), p, panel)
    {
        json_array_foreach(json_object_get(panel, "targets"), k, target)
        {
            const char *expression = json_get_str(target, "expr", "");
            if (!check_names(expression)) CHECK_CONTAINS(expression, "ALERTS{");
            expressions++;
        }
    }
    CHECK_LE(20, expressions);
    json_decref(board);
}

static void reasons_are_those_of_the_table(void **state)
{
    (void)state;
    const char *e = SIGNALS[SIGNAL_GPU_THROTTLE].promql, *at = strstr(e, "=~\"");
    CHECK(at);
    for (int i = 0; i < GPU_THROTTLE_COUNT; i++) {
        const struct gpu_throttle *g = &GPU_THROTTLES[i];
        bool listed = false;
        for (const char *word = at + 3; !listed && *word != '"'; word += word[0] == '|') {
            const size_t n = strcspn(word, "|\"");
            listed = strlen(g->name) == n && !strncmp(word, g->name, n);
            word += n;
        }
        CHECK_EQ(listed, g->limits && g->bit != GPU_THROTTLE_POWER_CAP);
    }
}

/* ---------------------------------------------------------------- what ships */

static void the_rule_file_is_what_the_tables_say(void **state)
{
    (void)state;
    struct err why;
    struct str rules = { 0 };
    struct alert_rules r;
    char *got;
    alert_rules_default(&r);
    alert_rules_write(&rules, &r);
    CHECK_OK(file_read(&got, NULL, SHIPPED "qdyno.rules.yml", 1 << 20, &why));
    if (strcmp(got, str_text(&rules)))
        fail_msg(
            "share/monitoring/qdyno.rules.yml is not what the tables say: qdyno watch --print-rules > it");
    free(got);
    str_free(&rules);
}

static void settings_reach_the_rules(void **state)
{
    (void)state;
    struct err why;
    struct str text = { 0 };
    struct alert_rules r;
    alert_rules_default(&r);
    CHECK_OK(alert_rules_set(&r, "memory=50%:2m", &why));
    CHECK_OK(alert_rules_set(&r, "battery=off", &why));
    alert_rules_write(&text, &r);
    CHECK_CONTAINS(str_text(&text), "instance:qdyno_memory_used:ratio > 0.5\n");
    const char *rule = strstr(str_text(&text), "- alert: QdynoMemory\n");
    CHECK(rule);
    CHECK_LT(strstr(rule, "        for: 2m\n"), strstr(rule, "- alert: QdynoMemoryCritical"));
    CHECK_LACKS(str_text(&text), "QdynoBattery");
    CHECK_LACKS(str_text(&text), "QdynoBlind");
    CHECK_CONTAINS(str_text(&text), "- alert: QdynoDiskCritical\n");
    CHECK_CONTAINS(str_text(&text), "qdyno_watch_disk_available_bytes < 1073741824\n");
    str_free(&text);
}

/* The page lists every alert with its grade, alone or in a row with its other grade. */
static void the_page_lists_every_alert(void **state)
{
    (void)state;
    struct err why;
    char *page;
    CHECK_OK(file_read(&page, NULL, TEST_SOURCE_DIR "/docs/alerts.md", 1 << 20, &why));
    for (int i = 0; i < ALERT_COUNT; i++) {
        char name[80];
        snprintf(name, sizeof name, "`%s`", ALERTS[i].name);
        const char *row = strstr(page, "| alert | grade |");
        CHECK(row);
        const char *at = strstr(row, name);
        if (!at) fail_msg("docs/alerts.md does not list %s", name);
        char line[512];
        while (at > row && at[-1] != '\n') at--;
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        if (*line != '|' || !strstr(line, GRADES[ALERTS[i].grade]))
            fail_msg("docs/alerts.md: %s is %s: %s", name, GRADES[ALERTS[i].grade], line);
    }
    free(page);
}

/* ---------------------------------------------------------------- the board */

struct place {
    int x, y, w, h;
};

static struct place place_of(const json_t *panel)
{
    const json_t *g = json_object_get(panel, "gridPos");
    return (struct place){ (int)json_get_int(g, "x", -1), (int)json_get_int(g, "y", -1),
                           (int)json_get_int(g, "w", -1), (int)json_get_int(g, "h", -1) };
}

static void the_board_is_a_board(void **state)
{
    (void)state;
    static const char *const INTERVALS[] = { "1s", "5s", "1m",
                                             "30s" }; /* performance resources errors trend */
    int seen[COUNT_OF(INTERVALS)] = { 0 };
    json_t *o = board_read();
    CHECK_LE(36, json_get_int(o, "schemaVersion", 0));
    CHECK(*json_get_str(o, "uid", ""));
    const json_t *variables = json_object_get(json_object_get(o, "templating"), "list");
    assert_string_equal(json_get_str(json_array_get(variables, 0), "type", ""), "datasource");
    assert_string_equal(json_get_str(json_array_get(variables, 1), "name", ""), "instance");
    assert_string_equal(json_get_str(json_array_get(variables, 2), "name", ""), "machine");
    const json_t *panels = json_object_get(o, "panels");
    const size_t n = json_array_size(panels);
    for (size_t i = 0; i < n; i++) {
        const json_t *p = json_array_get(panels, i);
        const struct place a = place_of(p);
        CHECK_EQ(json_get_int(p, "id", 0), (int64_t)i + 1);
        CHECK(*json_get_str(p, "title", ""));
        CHECK_LE(0, a.x);
        CHECK_LE(0, a.y);
        CHECK_LT(0, a.w);
        CHECK_LT(0, a.h);
        CHECK_LE(a.x + a.w, 24);
        for (size_t k = 0; k < i; k++) {
            const struct place b = place_of(json_array_get(panels, k));
            CHECK(a.x >= b.x + b.w || b.x >= a.x + a.w || a.y >= b.y + b.h || b.y >= a.y + a.h);
        }
        if (!strcmp(json_get_str(p, "type", ""), "row")) continue;
        for (size_t k = 0; k < COUNT_OF(INTERVALS); k++)
            seen[k] += !strcmp(json_get_str(p, "interval", ""), INTERVALS[k]);
        CHECK_LE(1, json_array_size(json_object_get(p, "targets")));
        assert_string_equal(json_get_str(json_object_get(p, "datasource"), "uid", ""), "${datasource}");
    }
    for (size_t k = 0; k < COUNT_OF(INTERVALS); k++) CHECK_LE(1, seen[k]);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_name_what_is_exported),
        cmocka_unit_test(reasons_are_those_of_the_table),
        cmocka_unit_test(the_rule_file_is_what_the_tables_say),
        cmocka_unit_test(settings_reach_the_rules),
        cmocka_unit_test(the_page_lists_every_alert),
        cmocka_unit_test(the_board_is_a_board),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
