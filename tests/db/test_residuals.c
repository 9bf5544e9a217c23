/* Proves: prediction residuals are stored per machine and basis, and listed newest first; unknown values
 * stay unknown; deleting those of one machine keeps the others; databases of versions 7 and 10 are
 * migrated. */
#include <math.h>
#include <sqlite3.h>

#include "tests/check.h"
#include "tests/db/temp.h"

static struct residual_row row_of(const char *machine, const char *basis, double measured)
{
    struct residual_row r = { .untaught = 10, .predicted = 11, .low = 9, .high = 13, .measured = measured };
    snprintf(r.machine, sizeof r.machine, "%s", machine);
    snprintf(r.basis, sizeof r.basis, "%s", basis);
    snprintf(r.metric, sizeof r.metric, "decode_tok_s");
    return r;
}

static void kept_per_machine_and_basis(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct residual_row *rows;
    int n;
    CHECK_OK(db_open(&d, t->file, &why));
    for (int i = 0; i < 100; i++) {
        struct residual_row r = row_of(i % 2 ? "m1" : "m2", i < 50 ? "old" : "new", i ? i : NAN);
        r.memory_ratio = i % 4 ? 0.01 * i : NAN;
        r.core_ratio = 0.5 * r.memory_ratio;
        r.foretold = 12;
        CHECK_OK(db_residual_insert(d, &r, &why));
        CHECK_EQ(r.id, i + 1);
        CHECK_LT(0, r.unix_ms);
    }
    CHECK_OK(db_residual_list(d, "m1", "new", 1000, &rows, &n, &why));
    assert_int_equal(n, 25);
    CHECK_EQ(rows[0].memory_ratio, 0.99);
    CHECK_EQ(rows[0].core_ratio, 0.495);
    CHECK_EQ(rows[0].foretold, 12);
    CHECK_EQ(rows[0].measured, 99);
    CHECK_EQ(rows[24].measured, 51);
    CHECK_EQ(rows[0].predicted, 11);
    assert_string_equal(rows[0].metric, "decode_tok_s");
    free(rows);
    CHECK_OK(db_residual_list(d, "m2", NULL, 1000, &rows, &n, &why));
    assert_int_equal(n, 50);
    CHECK_NAN(rows[49].measured);
    CHECK_NAN(rows[49].memory_ratio);
    free(rows);
    CHECK_OK(db_residual_list(d, "m2", NULL, 3, &rows, &n, &why));
    assert_int_equal(n, 3);
    free(rows);
    CHECK_OK(db_residual_clear(d, "m2", &why));
    CHECK_OK(db_residual_list(d, "m2", NULL, 1000, &rows, &n, &why));
    CHECK_EQ(n, 0);
    CHECK(!rows);
    CHECK_OK(db_residual_list(d, "m1", NULL, 1000, &rows, &n, &why));
    assert_int_equal(n, 50);
    free(rows);
    db_close(d);
}

static void sql_execute(const char *file, const char *sql)
{
    sqlite3 *s = NULL;
    assert_int_equal(sqlite3_open(file, &s), SQLITE_OK);
    assert_int_equal(sqlite3_exec(s, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(s);
}

static void version_7_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct residual_row *rows, r = row_of("ab12", "b", 3);
    char *text;
    int n;
    CHECK_OK(file_read(&text, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v7.sql", 1 << 20, &why));
    sql_execute(t->file, text);
    free(text);
    CHECK_EQ(db_open_reader(&d, t->file, 100, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "has version 7");
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_EQ(db_trace_due_count(d), 1);
    CHECK_OK(db_residual_list(d, "ab12", NULL, 10, &rows, &n, &why));
    CHECK_EQ(n, 0);
    CHECK_OK(db_residual_insert(d, &r, &why));
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

static void version_10_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct residual_row *rows, r = row_of("ab12", "b", 3);
    int n;
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_OK(db_residual_insert(d, &r, &why));
    db_close(d);
    sql_execute(
        t->file,
        "DROP TABLE model_text; DROP TABLE run_deleted; DROP TABLE run_label; ALTER TABLE residual DROP COLUMN memory_ratio; ALTER TABLE residual DROP COLUMN foretold;"
        "ALTER TABLE residual DROP COLUMN core_ratio;"
        "PRAGMA user_version = 10");
    CHECK_EQ(db_open_reader(&d, t->file, 100, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "has version 10");
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_OK(db_residual_list(d, "ab12", NULL, 10, &rows, &n, &why));
    CHECK_EQ(n, 1);
    CHECK_EQ(rows[0].measured, 3);
    CHECK_NAN(rows[0].memory_ratio);
    CHECK_NAN(rows[0].foretold);
    CHECK_NAN(rows[0].core_ratio);
    free(rows);
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, temp_setup, temp_teardown)
    const struct CMUnitTest tests[] = { T(kept_per_machine_and_basis), T(version_7_is_migrated),
                                        T(version_10_is_migrated) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
