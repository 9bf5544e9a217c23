/* Proves: a disk that cannot read the database is ERR_IO with the cause, although SQLite calls such a page
 * malformed; the advice is not to begin a new database; the handle works again when the disk does. */
#include "tests/db/reads.h"
#include "tests/db/temp.h"

static void a_page_that_cannot_be_read(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    char *text;
    CHECK_OK(db_open(&d, t->file, &why));
    const int64_t run = temp_run(d);
    CHECK_OK(db_capsule_put(d, run, "{}", &why));
    db_close(d);
    CHECK_OK(db_open(&d, t->file, &why));
    reads_fail(true);
    CHECK_EQ(db_capsule_get(d, run, &text, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "disk I/O error (Input/output error)");
    assert_null(strstr(why.message, "start anew"));
    reads_fail(false);
    CHECK_OK(db_capsule_get(d, run, &text, &why));
    assert_string_equal(text, "{}");
    free(text);
    db_close(d);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, temp_setup, temp_teardown)
    const struct CMUnitTest tests[] = { T(a_page_that_cannot_be_read) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
