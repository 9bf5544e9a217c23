/* Proves: labels of runs are checked, stored, listed and searched; a database of the version before is
 * migrated with its runs. */
#include <sqlite3.h>

#include "tests/db/temp.h"

static struct run_labels labels_of(const char *one, const char *two)
{
    struct err why;
    struct run_labels l = { 0 };
    CHECK_OK(run_labels_add(&l, one, &why));
    if (two) CHECK_OK(run_labels_add(&l, two, &why));
    return l;
}

static void refused(const char *text, const char *says)
{
    struct err why = { 0 };
    struct run_labels l = { 0 };
    CHECK_EQ(run_labels_add(&l, text, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, says);
    CHECK_EQ(l.n, 0);
}

static void only_valid_labels(void **state)
{
    (void)state;
    char longest[LABEL_VALUE + 16], key[LABEL_KEY + 16];
    struct err why;
    struct run_labels l = labels_of("commit=v1.2-3-gabc", "_Branch2=main=2 \xc3\xa4");
    assert_string_equal(run_labels_find(&l, "_Branch2"), "main=2 \xc3\xa4");
    CHECK(!run_labels_find(&l, "branch2"));
    CHECK_EQ(run_labels_add(&l, "commit=again", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "given twice");
    static const char *const KEYS[] = { "commit", "=x", "1a=x", "a-b=x", "a b=x", "\xc3\xa4=x", "" };
    for (size_t i = 0; i < COUNT_OF(KEYS); i++) refused(KEYS[i], "expected KEY=VALUE");
    static const char *const VALUES[] = { "a=", "a=x\ny", "a=\x1b[1m", "a=\x7f", "a=\xff", "a=\xc2\x85" };
    for (size_t i = 0; i < COUNT_OF(VALUES); i++) refused(VALUES[i], "control characters");
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "a=", 2);
    longest[2 + LABEL_VALUE] = 0;
    refused(longest, "1 to 255 bytes");
    longest[2 + LABEL_VALUE - 1] = 0;
    CHECK_OK(run_labels_add(&l, longest, &why));
    memset(key, 'k', sizeof key);
    snprintf(key + LABEL_KEY, 4, "=v");
    refused(key, "at most 63");
    while (l.n < RUN_LABELS) {
        snprintf(key, sizeof key, "k%d=v", l.n);
        CHECK_OK(run_labels_add(&l, key, &why));
    }
    CHECK_EQ(run_labels_add(&l, "more=1", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "more than 16");
}

static void found(struct db *d, const char *filter, const struct run_labels *l, int limit, int64_t first,
                  int want)
{
    struct err why;
    struct run_row *rows;
    int n;
    CHECK_OK(db_run_find_labeled(d, filter, l, limit, &rows, &n, &why));
    CHECK_EQ(n, want);
    if (n) CHECK_EQ(rows[0].id, first);
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
}

static void kept_and_searched(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct run_labels got;
    CHECK_OK(db_open(&d, t->file, &why));
    const int64_t one = temp_run(d), two = temp_run(d), three = temp_run(d);
    const struct run_labels main1 = labels_of("branch=main", "commit=1"),
                            main2 = labels_of("branch=main", NULL), commit1 = labels_of("commit=1", NULL),
                            other = labels_of("branch=mai", NULL);
    CHECK_OK(db_labels_put(d, one, &main1, &why));
    CHECK_OK(db_labels_put(d, two, &main2, &why));
    CHECK_OK(db_labels_get(d, one, &got, &why));
    CHECK_EQ(got.n, 2);
    assert_string_equal(got.label[0].key, "branch");
    assert_string_equal(got.label[1].value, "1");
    CHECK_OK(db_labels_get(d, three, &got, &why));
    CHECK_EQ(got.n, 0);
    found(d, NULL, NULL, 10, three, 3);
    found(d, NULL, &main2, 10, two, 2);
    found(d, NULL, &main2, 1, two, 1);
    found(d, NULL, &main1, 10, one, 1); /* both labels */
    found(d, "!/x y/", &commit1, 10, one, 1);
    found(d, "nothing", &commit1, 10, 0, 0);
    found(d, NULL, &other, 10, 0, 0);
    CHECK_NE(db_labels_put(d, one, &commit1, &why), ERR_OK); /* a key occurs once */
    db_close(d);
}

static void version_12_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct run_row run;
    struct run_labels got;
    const struct run_labels l = labels_of("commit=abc", NULL);
    char *text;
    sqlite3 *s = NULL;
    CHECK_OK(file_read(&text, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v12.sql", 1 << 20, &why));
    assert_int_equal(sqlite3_open(t->file, &s), SQLITE_OK);
    assert_int_equal(sqlite3_exec(s, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(s);
    free(text);
    CHECK_EQ(db_open_reader(&d, t->file, 100, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "has version 12");
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_OK(db_run_get(d, 4, &run, &why)); /* the run is still there */
    run_row_free(&run);
    CHECK_OK(db_labels_get(d, 4, &got, &why));
    CHECK_EQ(got.n, 0);
    CHECK_OK(db_labels_put(d, 4, &l, &why));
    CHECK_OK(db_labels_get(d, 4, &got, &why));
    assert_string_equal(run_labels_find(&got, "commit"), "abc");
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, temp_setup, temp_teardown)
    const struct CMUnitTest tests[] = { cmocka_unit_test(only_valid_labels), T(kept_and_searched),
                                        T(version_12_is_migrated) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
