/* Proves: the table of keys in docs/config.md is the KNOBS table, so that the manual cannot rot. On a
 * difference the right table is printed: paste it. */
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "tests/check.h"

static void append_values(struct str *s, int id)
{
    const char *names[64];
    const struct knob *k = &KNOBS[id];
    if (k->kind == VALUE_TEXT) str_append(s, "text");
    if (k->kind == VALUE_INT) str_printf(s, "%lld to %lld", (long long)k->min, (long long)k->max);
    size_t n = knob_choices((enum knob_id)id, names, COUNT_OF(names));
    CHECK_LE(n, COUNT_OF(names));
    for (size_t i = 0; i < n; i++) str_printf(s, "%s`%s`", i ? " " : "", names[i]);
}

static void append_row(struct str *s, int id)
{
    static const struct {
        unsigned bit;
        const char *name;
    } WORK[] = { { FOR_PREFILL, "prefill" }, { FOR_DECODE, "decode" },  { FOR_QUALITY, "quality" },
                 { FOR_MEMORY, "memory" },   { FOR_TRAIN, "training" }, { FOR_LOAD, "serving" } };
    const struct knob *k = &KNOBS[id];
    str_printf(s, "| `%s` | ", k->key);
    append_values(s, id);
    str_printf(s, " | %s%s%s | %s | ", *k->otherwise ? "`" : "", k->otherwise, *k->otherwise ? "`" : "",
               k->changes_answers ? "yes" : "no");
    if (k->matters_for == FOR_ALL) {
        str_append(s, "all");
    } else {
        const char *comma = "";
        for (size_t i = 0; i < COUNT_OF(WORK); i++)
            if (k->matters_for & WORK[i].bit) {
                str_printf(s, "%s%s", comma, WORK[i].name);
                comma = ", ";
            }
    }
    str_printf(s, " | %s%s%s | %s |\n", k->flag ? "`" : "", k->flag ? k->flag : "", k->flag ? "`" : "",
               k->help);
}

static void config_page_holds_the_knobs(void **state)
{
    struct err why;
    struct str want = { 0 };
    char *page;
    (void)state;
    str_append(&want, "| key | values | default | answers | matters for | flag | meaning |\n"
                      "|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < KNOB_COUNT; i++) append_row(&want, i);
    CHECK_OK(file_read(&page, NULL, TEST_SOURCE_DIR "/docs/config.md", 1 << 20, &why));
    if (!strstr(page, str_text(&want))) {
        static const char RIGHT[] = TEST_BUILD_DIR "/config-table.md";
        FILE *f = fopen(RIGHT, "w");
        if (f) {
            fputs(str_text(&want), f);
            fclose(f);
        }
        fail_msg("the table in docs/config.md is not KNOBS; the right one is in %s", RIGHT);
    }
    free(page);
    str_free(&want);
}

static void load_page_holds_the_keys(void **state)
{
    struct err why;
    struct str want = { 0 };
    char *page;
    (void)state;
    str_append(&want, "| key | value | meaning |\n|---|---|---|\n");
    for (size_t i = 0; i < LOAD_KEY_COUNT; i++) {
        str_printf(&want, "| `%s` | ", LOAD_KEYS[i].key);
        for (const char *c = LOAD_KEYS[i].value; *c; c++)
            str_printf(&want, "%s%c", *c == '|' ? "\\" : "", *c);
        str_printf(&want, " | %s |\n", LOAD_KEYS[i].help);
    }
    CHECK_OK(file_read(&page, NULL, TEST_SOURCE_DIR "/docs/load.md", 1 << 20, &why));
    if (!strstr(page, str_text(&want)))
        fail_msg("docs/load.md, \"Reference\", is not LOAD_KEYS; the right table is\n%s", str_text(&want));
    free(page);
    str_free(&want);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(config_page_holds_the_knobs),
                                        cmocka_unit_test(load_page_holds_the_keys) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
