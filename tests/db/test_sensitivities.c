/* Proves: a tensor's sensitivity is stored once per model, basis and format, and a later measurement
 * replaces it; unknown values stay unknown; the newest basis is found; a database of version 8 is
 * migrated. */
#include <math.h>
#include <sqlite3.h>

#include "tests/check.h"
#include "tests/db/temp.h"

static struct sensitivity_row row_of(const char *basis, const char *tensor, const char *format, double kld)
{
    struct sensitivity_row r = { .bytes = 1000, .kld = kld, .kld_se = kld / 10, .nmse = NAN };
    snprintf(r.model, sizeof r.model, "abc");
    snprintf(r.basis, sizeof r.basis, "%s", basis);
    snprintf(r.tensor, sizeof r.tensor, "%s", tensor);
    snprintf(r.format, sizeof r.format, "%s", format);
    return r;
}

static void kept_once(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct sensitivity_row *rows, r;
    int n;
    CHECK_OK(db_open(&d, t->file, &why));
    r = row_of("text1", "blk.0.ffn_up.weight", "q4_K", 0.01);
    CHECK_OK(db_sensitivity_put(d, &r, &why));
    r = row_of("text1", "blk.0.ffn_up.weight", "q3_K", 0.05);
    CHECK_OK(db_sensitivity_put(d, &r, &why));
    r = row_of("text1", "blk.0.ffn_up.weight", "q4_K", 0.02);
    CHECK_OK(db_sensitivity_put(d, &r, &why));
    CHECK_OK(db_sensitivity_list(d, "abc", "text1", &rows, &n, &why));
    assert_int_equal(n, 2);
    assert_string_equal(rows[1].format, "q4_K"); /* measured last */
    CHECK_EQ(rows[1].kld, 0.02);
    CHECK_NAN(rows[1].nmse);
    CHECK_LT(0, rows[1].unix_ms);
    CHECK_EQ(rows[1].bytes, 1000);
    free(rows);
    r = row_of("text2", "output.weight", "q4_K", NAN);
    CHECK_OK(db_sensitivity_put(d, &r, &why));
    CHECK_OK(db_sensitivity_list(d, "abc", NULL, &rows, &n, &why));
    assert_int_equal(n, 1);
    CHECK_NAN(rows[0].kld);
    assert_string_equal(rows[0].basis, "text2");
    free(rows);
    CHECK_OK(db_sensitivity_list(d, "none", NULL, &rows, &n, &why));
    CHECK_EQ(n, 0);
    CHECK(!rows);
    db_close(d);
}

static void version_8_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct sensitivity_row *rows, r = row_of("text1", "output.weight", "q4_K", 0.5);
    struct residual_row *residuals;
    char *text;
    sqlite3 *s = NULL;
    int n;
    CHECK_OK(file_read(&text, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v8.sql", 1 << 20, &why));
    assert_int_equal(sqlite3_open(t->file, &s), SQLITE_OK);
    assert_int_equal(sqlite3_exec(s, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(s);
    free(text);
    CHECK_EQ(db_open_reader(&d, t->file, 100, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "has version 8");
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_OK(db_residual_list(d, "ab12", NULL, 10, &residuals, &n, &why));
    CHECK_EQ(n, 1);
    CHECK_EQ(residuals[0].measured, 812.5);
    free(residuals);
    CHECK_OK(db_sensitivity_list(d, "abc", NULL, &rows, &n, &why));
    CHECK_EQ(n, 0);
    CHECK_OK(db_sensitivity_put(d, &r, &why));
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, temp_setup, temp_teardown)
    const struct CMUnitTest tests[] = { T(kept_once), T(version_8_is_migrated) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
