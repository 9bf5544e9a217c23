/* Proves: the shapes of a device are stored once, the newest replacing older ones; a malformed line is
 * refused; a database of version 9 is migrated. */
#include <sqlite3.h>

#include "tests/check.h"
#include "tests/db/temp.h"

static void kept_once(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    char *all;
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_OK(db_shapes_all(d, &all, &why));
    assert_string_equal(all, "");
    free(all);
    CHECK_OK(db_shapes_put(d, "P|board|1.2\tproduct.one.4bit:lanes=32 ways=4 rows=2", &why));
    CHECK_OK(db_shapes_put(d, "P|another|1.2\tx:y", &why));
    CHECK_OK(db_shapes_put(d, "P|board|1.2\tproduct.one.4bit:lanes=64 ways=2 rows=1", &why));
    CHECK_OK(db_shapes_all(d, &all, &why));
    assert_string_equal(all, "P|another|1.2\tx:y\nP|board|1.2\tproduct.one.4bit:lanes=64 ways=2 rows=1\n");
    free(all);
    static const char *const WRONG[] = { "", "no tab", "\tno device", "two\tlines\nof it" };
    for (size_t i = 0; i < COUNT_OF(WRONG); i++) CHECK_EQ(db_shapes_put(d, WRONG[i], &why), ERR_USAGE);
    db_close(d);
}

static void version_9_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    sqlite3 *s;
    char *all;
    CHECK_OK(db_open(&d, t->file, &why));
    db_close(d);
    assert_int_equal(sqlite3_open(t->file, &s), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(
            s,
            "DROP TABLE model_text; DROP TABLE run_deleted; DROP TABLE run_label; DROP TABLE device_shapes; ALTER TABLE residual DROP COLUMN memory_ratio;"
            "ALTER TABLE residual DROP COLUMN foretold;"
            "ALTER TABLE residual DROP COLUMN core_ratio; PRAGMA user_version = 9",
            NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(s);
    CHECK_EQ(db_open_reader(&d, t->file, 100, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "has version 9");
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_OK(db_shapes_put(d, "a\tb", &why));
    CHECK_OK(db_shapes_all(d, &all, &why));
    assert_string_equal(all, "a\tb\n");
    free(all);
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, temp_setup, temp_teardown)
    const struct CMUnitTest tests[] = { T(kept_once), T(version_9_is_migrated) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
