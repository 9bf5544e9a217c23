/* Proves: a deleted run is in no list and no result, can be restored with all its rows, and is removed only
 * when its mark is old; a run that is being measured cannot be deleted; a database of the version before is
 * migrated. */
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>

#include "tests/db/temp.h"

static int64_t ask(const char *path, const char *sql)
{
    sqlite3 *s = NULL;
    sqlite3_stmt *row = NULL;
    assert_int_equal(sqlite3_open(path, &s), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(s, sql, -1, &row, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(row), SQLITE_ROW);
    const int64_t v = sqlite3_column_int64(row, 0);
    sqlite3_finalize(row);
    sqlite3_close(s);
    return v;
}

static int listed(struct db *d, const char *filter)
{
    struct err why;
    struct run_row *rows = NULL;
    int n = 0;
    CHECK_OK(db_run_find(d, filter, 0, &rows, &n, &why));
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
    return n;
}

static int listed_as_deleted(struct db *d)
{
    struct err why;
    struct run_row *rows = NULL;
    int n = 0;
    CHECK_OK(db_run_list_deleted(d, 0, &rows, &n, &why));
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
    return n;
}

static struct db *open_v13(const char *path)
{
    struct err why;
    struct db *d;
    char *text;
    sqlite3 *s = NULL;
    CHECK_OK(file_read(&text, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v13.sql", 1 << 20, &why));
    assert_int_equal(sqlite3_open(path, &s), SQLITE_OK);
    assert_int_equal(sqlite3_exec(s, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(s);
    free(text);
    CHECK_EQ(db_open_reader(&d, path, 100, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "has version 13");
    CHECK_OK(db_open(&d, path, &why));
    return d;
}

static void deleted_and_restored(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct run_row run;
    struct db *d = open_v13(t->file);
    const int64_t cells = ask(t->file, "SELECT count(*) FROM cell");
    const int runs = listed(d, NULL);
    CHECK_GE(runs, 1);
    CHECK_GE(cells, 1);
    CHECK_EQ(db_run_restore(d, 4, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "not deleted");
    CHECK_EQ(db_run_delete(d, 4444, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "no run 4444");
    CHECK_OK(db_run_delete(d, 4, &why));
    CHECK_OK(db_run_delete(d, 4, &why)); /* again changes nothing */
    CHECK_EQ(listed(d, NULL), runs - 1);
    CHECK_EQ(listed(d, "!no such text"), runs - 1);
    CHECK_EQ(listed_as_deleted(d), 1);
    db_close(d); /* as after a kill: another process finds the mark and all rows */
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_EQ(ask(t->file, "SELECT count(*) FROM cell"), cells);
    CHECK_OK(db_run_get(d, 4, &run, &why)); /* its number still leads to it */
    run_row_free(&run);
    CHECK_OK(db_run_restore(d, 4, &why));
    CHECK_EQ(listed(d, NULL), runs);
    CHECK_EQ(listed_as_deleted(d), 0);
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

static void removed_when_the_mark_is_old(void **state)
{
    const struct temp *t = *state;
    struct err why;
    int removed = -1;
    struct db *d = open_v13(t->file);
    CHECK_OK(db_run_delete(d, 4, &why));
    CHECK_OK(db_runs_purge(d, clock_unix_ms() - 60000, &removed, &why));
    CHECK_EQ(removed, 0);
    CHECK_EQ(ask(t->file, "SELECT count(*) FROM run WHERE id = 4"), 1);
    CHECK_OK(db_runs_purge(d, clock_unix_ms() + 60000, &removed, &why));
    CHECK_EQ(removed, 1);
    CHECK_EQ(ask(t->file, "SELECT count(*) FROM run WHERE id = 4"), 0);
    CHECK_EQ(ask(t->file, "SELECT count(*) FROM cell WHERE run_id = 4"), 0);
    CHECK_EQ(ask(t->file, "SELECT count(*) FROM run_deleted"), 0);
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

static void not_while_it_is_measured(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d, *holder;
    struct run_row run = { .kind = "bench", .state = "running", .effect_ratio = (double)NAN };
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_OK(db_open(&holder, t->file, &why));
    CHECK_OK(db_run_insert_locked(d, holder, &run, &why));
    CHECK_EQ(db_run_delete(d, run.id, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "is being measured");
    CHECK_EQ(listed_as_deleted(d), 0);
    CHECK_OK(db_run_finish(d, run.id, "stopped", NULL, (double)NAN, NULL, &why));
    CHECK_OK(db_run_delete(d, run.id, &why));
    CHECK_OK(db_run_reopen(d, run.id, &why)); /* whoever continues a run wants it back */
    CHECK_EQ(listed_as_deleted(d), 0);
    db_close(holder);
    db_close(d);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, temp_setup, temp_teardown)
    const struct CMUnitTest tests[] = { T(deleted_and_restored), T(removed_when_the_mark_is_old),
                                        T(not_while_it_is_measured) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
