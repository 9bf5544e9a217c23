/* Proves: text of others cannot command a terminal, reverse a line, become a formula in a spreadsheet or
 * leave its literal in SQL; harmless text is unchanged; JSON and SQL keep their meaning. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/check.h"

#define C1       "\xc2\x9b" /* U+009B: the control sequence introducer */
#define OVERRIDE "\xe2\x80\xae"

static void each_sink_has_its_form(void **state)
{
    (void)state;
    static const struct {
        enum text_sink sink;
        const char *text, *want;
    } cases[] = {
        { SINK_TERMINAL, "plain \xc3\xa4\xe2\x82\xac text\n\tnext",
          "plain \xc3\xa4\xe2\x82\xac text\n\tnext" },
        { SINK_TERMINAL, "\x1b]0;title\a", "\\x1b]0;title\\x07" },
        { SINK_TERMINAL, "a" C1 "2Jb", "a\\x9b2Jb" },
        { SINK_TERMINAL,
          "a\x9b"
          "2J",
          "a\xef\xbf\xbd"
          "2J" },
        { SINK_TERMINAL, "gpj" OVERRIDE "exe", "gpj\\u202eexe" },
        { SINK_TERMINAL, "over\rwritten\x7f", "over\\x0dwritten\\x7f" },
        { SINK_LINE, "one\ntwo", "one\\x0atwo" },
        { SINK_CSV, "plain", "plain" },
        { SINK_CSV, "", "" },
        { SINK_CSV, "a,\"b\"", "\"a,\"\"b\"\"\"" },
        { SINK_CSV, "=1+1", "'=1+1" },
        { SINK_CSV, "+1", "'+1" },
        { SINK_CSV, "-1", "'-1" },
        { SINK_CSV, "@x", "'@x" },
        { SINK_CSV, "\t=1", "'\t=1" },
        { SINK_CSV, "\r=1,2", "\"'\r=1,2\"" },
        { SINK_CSV, "\x1b[2J", "\\x1b[2J" },
        { SINK_SQL, "it's", "'it''s'" },
        { SINK_SQL, "a\nb", "'a\nb'" },
        { SINK_SQL, "\x1b'", "CAST(X'1b27' AS TEXT)" },
        { SINK_SQL, "\xff", "CAST(X'ff' AS TEXT)" },
        { SINK_MARKDOWN, "a|b\nc" C1, "a\\|b c\\x9b" },
        { SINK_JSON, "{\n\t\"k\": \"\\n" C1 OVERRIDE "\x7f\"}", "{\n\t\"k\": \"\\n\\u009b\\u202e\\u007f\"}" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char *got = sink_text(cases[i].sink, cases[i].text);
        assert_non_null(got);
        assert_string_equal(got, cases[i].want);
        free(got);
    }
}

static void json_keeps_its_meaning(void **state)
{
    (void)state;
    struct err why = { 0 };
    json_t *o = json_object(), *back;
    json_put_str(o, "name",
                 "a" C1 OVERRIDE "\x7f"
                 "b");
    char *line = json_line(o), *safe = sink_text(SINK_JSON, line);
    CHECK(!strstr(safe, C1));
    CHECK_OK(json_parse(&back, safe, strlen(safe), &why));
    CHECK(json_equal(o, back));
    json_decref(o);
    json_decref(back);
    free(line);
    free(safe);
}

/* A byte 0 in the middle: SQL keeps it. */
static void bytes_after_a_zero_are_kept(void **state)
{
    (void)state;
    struct str s = { 0 };
    sink_append(&s, SINK_SQL, "a\0b", 3);
    assert_string_equal(str_text(&s), "CAST(X'610062' AS TEXT)");
    str_free(&s);
}

static void unfinished_characters(void **state)
{
    (void)state;
    CHECK_EQ(str_utf8_unfinished("a", 1), 0);
    CHECK_EQ(str_utf8_unfinished("\xe2\x80", 2), 2);
    CHECK_EQ(str_utf8_unfinished("\xe2\x80\xae", 3), 0);
    CHECK_EQ(str_utf8_unfinished("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sink_has_its_form),
        cmocka_unit_test(json_keeps_its_meaning),
        cmocka_unit_test(bytes_after_a_zero_are_kept),
        cmocka_unit_test(unfinished_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
