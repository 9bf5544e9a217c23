/* Proves: JSON of RFC 8259 is read and written without loss, or refused by the name of what cannot be held:
 * U+0000, integers of more than 64 bits, fractions, byte order marks, numbers beyond a double, keys that
 * stand twice, halves of surrogate pairs, depth. The end of a value in a text is found by the grammar. */
#include "tests/check.h"

#include <stdlib.h>

#include "base/base.h"

/* ---------------------------------------------------------------- exact documents */

/* Parsed as an exact document and written again: want; NULL: as it is. */
static const struct {
    const char *text, *want;
} KEPT[] = {
    { "[0.1,1.0,-0.5,1e-7,5e-324,1.7976931348623157e308]", NULL },
    { "0.30000000000000004", NULL },
    { "[1E5,1e+20,123456789012345680.0]", "[100000.0,1e20,1.2345678901234568e17]" },
    { "[9223372036854775807,-9223372036854775808]", NULL },
    { "[18446744073709551615,-9223372036854775809,9223372036854775808]", NULL },
    { "18446744073709551615", NULL },
    { "{\"a\":0.5,\"b\":{\"id\":18446744073709551615,\"c\":[1.5,99999999999999999999,2.5]}}", NULL },
    { "{\"a\":\"18446744073709551615\",\"b\":[\"\\\"18446744073709551615\"]}", NULL },
    { "[1000000000000000019884624838656000000000000000000000000000000000000000000000000000000000000000]",
      NULL },
    { "\"a\\u0000b\"", NULL },
    { "{\"k\":[\"\\u0000\",\"\\u0001\\u001F\"]}", NULL },
    { "\"\\ud83d\\ude00 \\u00fc \\/ \\b\\f\\n\\r\\t\"", "\"\xf0\x9f\x98\x80 \xc3\xbc / \\b\\f\\n\\r\\t\"" },
    { "\xef\xbb\xbf{\"a\":1}", "{\"a\":1}" },
    { " \t\r\n[ ] \n", "[]" },
    { "{}", NULL },
    { "[null,true,false,-0.0,\"\",[],{}]", NULL },
    { "{\"z\":1,\"a\":2}", NULL },
    { "{\"\":0}", NULL },
};

static void documents_keep_their_values(void **state)
{
    struct err why = { 0 };
    json_t *v, *again;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(KEPT); i++) {
        CHECK_OK(json_parse_exact(&v, KEPT[i].text, strlen(KEPT[i].text), 1, &why));
        char *line = json_line(v);
        CHECK_STR(line, KEPT[i].want ? KEPT[i].want : KEPT[i].text);
        CHECK_OK(json_parse_exact(&again, line, strlen(line), 1, &why));
        CHECK(json_equal(v, again));
        free(line);
        json_decref(v);
        json_decref(again);
    }
}

static void big_integers(void **state)
{
    static const char TEXT[] = "{\"n\": 18446744073709551615, \"m\": [1.5, -99999999999999999999]}";
    struct err why = { 0 };
    json_t *v;
    (void)state;
    CHECK_OK(json_parse_exact(&v, TEXT, sizeof TEXT - 1, 1, &why));
    json_t *copy = json_deep_copy(v), *n = json_object_get(copy, "n");
    CHECK_STR(json_big_integer(n), "18446744073709551615");
    CHECK(!json_is_text(n) && !json_text(n));
    CHECK_STR(json_big_integer(json_array_get(json_object_get(copy, "m"), 1)), "-99999999999999999999");
    json_decref(copy);
    json_decref(v);
    CHECK_OK(json_parse(&v, TEXT, sizeof TEXT - 1, &why)); /* elsewhere they are reals */
    CHECK_NEAR(json_get_num(v, "n", 0), 18446744073709551615.0, 1);
    assert_null(json_big_integer(json_object_get(v, "n")));
    json_decref(v);
    CHECK_OK(json_parse_exact(&v, "[\"a\\u0000b\", \"ab\", 3]", 21, 1, &why));
    CHECK(json_is_text(json_array_get(v, 0)));
    assert_null(json_text(json_array_get(v, 0)));
    CHECK_STR(json_text(json_array_get(v, 1)), "ab");
    assert_null(json_text(json_array_get(v, 2)));
    json_decref(v);
}

/* ---------------------------------------------------------------- refused */

static const struct {
    const char *text, *message;
    bool exact_too;
} REFUSED[] = {
    { "{\"a\": 1e400}", "line 1 column 7: the number 1e400 is beyond the range of double precision", true },
    { "[\n-1E+309]", "line 2 column 1: the number -1E+309 is beyond", true },
    { "{\"a\":1,\"a\":2}", "duplicate object key near '\"a\"'", true },
    { "[\"x\\ud83d\"]", "line 1 column 4: \\ud83d is half of a surrogate pair", true },
    { "[\"\\udc00\\ud800\"]", "\\udc00 is half of a surrogate pair", true },
    { "[\"\\ud800\\u0041\"]", "\\ud800 is half of a surrogate pair", true },
    { "{\"a\\u0000\": 1}", "\\u0000 is not supported in a key", true },
    { "{\"a\": \"\\u0000\"}", "line 1 column 8: \\u0000 is not supported in a text here", false },
    { "", "bad JSON at line 1", true },
    { "{\"a\": 1} x", "bad JSON at line 1 column 10", true },
    { "[1,]", "bad JSON", true },
    { "[01]", "bad JSON", true },
    { "[NaN]", "bad JSON", true },
    { "[\"a\tb\"]", "bad JSON", true },
    { "[\"\xff\"]", "bad JSON", true },
    { "\xff\xfe{\0}\0", "bad JSON", true },
    { "{'a': 1}", "bad JSON", true },
    { "[18446744073709551615", "bad JSON", true },
    { "[18446744073709551615,]", "bad JSON", true },
};

static void refusals_name_their_cause(void **state)
{
    json_t *v;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(REFUSED); i++)
        for (int exact = 0; exact < (REFUSED[i].exact_too ? 2 : 1); exact++) {
            struct err why = { 0 };
            const size_t n = strlen(REFUSED[i].text);
            const enum err_code rc = exact ? json_parse_exact(&v, REFUSED[i].text, n, 1, &why)
                                           : json_parse(&v, REFUSED[i].text, n, &why);
            CHECK_EQ(rc, ERR_FORMAT);
            assert_null(v);
            CHECK_CONTAINS(why.message, REFUSED[i].message);
        }
    struct err why = { 0 };
    CHECK_EQ(json_parse_line(&v, "{\"a\": 1e400}", 12, 7, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "line 7 column 7");
}

static void depth_is_limited(void **state)
{
    struct err why = { 0 };
    struct str deep = { 0 };
    json_t *v;
    (void)state;
    for (int i = 0; i < JSON_DEPTH_MOST; i++) str_append(&deep, "[");
    for (int i = 0; i < JSON_DEPTH_MOST; i++) str_append(&deep, "]");
    CHECK_OK(json_parse(&v, str_text(&deep), deep.len, &why));
    json_decref(v);
    str_clear(&deep);
    for (int i = 0; i < 100000; i++) str_append(&deep, "[");
    CHECK_EQ(json_parse(&v, str_text(&deep), deep.len, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "column 1001: lists and objects are nested deeper than 1000 levels");
    str_free(&deep);
}

/* ---------------------------------------------------------------- the end of a value */

static const struct {
    const char *text;
    enum json_end end;
    size_t used;
} ENDS[] = {
    { "{\"a\":\"}\"}</tool_call>", JSON_COMPLETE, 9 },
    { " [1, [2]] x", JSON_COMPLETE, 9 },
    { "{\"a\":\"\\\"}\"} }", JSON_COMPLETE, 11 },
    { "\"a\" b", JSON_COMPLETE, 3 },
    { "12,", JSON_COMPLETE, 2 },
    { "true]", JSON_COMPLETE, 4 },
    { "{\"a\": \"", JSON_UNFINISHED, 7 },
    { "[1, ", JSON_UNFINISHED, 4 },
    { "{\"a\"", JSON_UNFINISHED, 4 },
    { "\"\\u00", JSON_UNFINISHED, 5 },
    { "-", JSON_UNFINISHED, 1 },
    { "nul", JSON_UNFINISHED, 3 },
    { "", JSON_UNFINISHED, 0 },
    { "{\"a\": \"\n\"}", JSON_WRONG, 7 },
    { "[1 2]", JSON_WRONG, 3 },
    { "{1: 2}", JSON_WRONG, 1 },
    { "[1}", JSON_WRONG, 2 },
    { "x", JSON_WRONG, 0 },
};

static void ends_of_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(ENDS); i++) {
        size_t used;
        const enum json_end end = json_value_end(ENDS[i].text, strlen(ENDS[i].text), &used);
        if (end != ENDS[i].end || used != ENDS[i].used)
            fail_msg("%s: %d after %zu bytes", ENDS[i].text, (int)end, used);
    }
}

/* ---------------------------------------------------------------- layouts */

static void layouts(void **state)
{
    static const char TEXT[] = "{\"a\":[1,0.1],\"b\":{},\"c\":[]}";
    struct err why = { 0 };
    json_t *v;
    (void)state;
    CHECK_OK(json_parse(&v, TEXT, sizeof TEXT - 1, &why));
    static const struct {
        enum json_layout layout;
        size_t flags;
    } SAME[] = { { JSON_TIGHT, JSON_COMPACT }, { JSON_SPACED, 0 }, { JSON_INDENTED, JSON_INDENT(2) } };
    for (size_t i = 0; i < COUNT_OF(SAME);
         i++) { /* as jansson wrote them, which files of earlier versions are */
        char *ours = json_write(v, SAME[i].layout, 5),
             *theirs = json_dumps(v, SAME[i].flags | JSON_REAL_PRECISION(5));
        CHECK_STR(ours, theirs);
        free(ours);
        free(theirs);
    }
    json_decref(v);
    assert_null(json_line(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(documents_keep_their_values),
                                        cmocka_unit_test(big_integers),
                                        cmocka_unit_test(refusals_name_their_cause),
                                        cmocka_unit_test(depth_is_limited),
                                        cmocka_unit_test(ends_of_values),
                                        cmocka_unit_test(layouts) };
    json_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
