/* Proves: a model's chosen text is stored once, replaced and removed; a text of an unknown model is refused;
 * the text that a search was given comes with its cells; a database of version 14 is migrated. */
#include <sqlite3.h>

#include "tests/check.h"
#include "tests/db/temp.h"

static int texts(struct db *d, struct model_text *first)
{
    struct err why;
    struct model_text *rows;
    int n;
    CHECK_OK(db_model_text_list(d, &rows, &n, &why));
    if (n) *first = rows[0];
    free(rows);
    return n;
}

static void chosen_replaced_removed(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct model_text row = { .model = "feed", .path = "/texts/a.txt", .sha256 = "aa" }, seen;
    CHECK_OK(db_open(&d, t->file, &why));
    assert_int_equal(texts(d, &seen), 0);
    CHECK_EQ(db_model_text_put(d, &row, &why), ERR_USAGE);
    CHECK_OK(db_model_put(d, "feed", "toy", "/models/toy.gguf", "{}", &why));
    CHECK_OK(db_model_text_put(d, &row, &why));
    CHECK_GT(row.set_ms, 0);
    snprintf(row.path, sizeof row.path, "/texts/b.txt");
    CHECK_OK(db_model_text_put(d, &row, &why));
    assert_int_equal(texts(d, &seen), 1);
    assert_string_equal(seen.model, "feed");
    assert_string_equal(seen.path, "/texts/b.txt");
    assert_string_equal(seen.sha256, "aa");
    CHECK_OK(db_model_text_remove(d, "feed", &why));
    CHECK_OK(db_model_text_remove(d, "feed", &why));
    assert_int_equal(texts(d, &seen), 0);
    db_close(d);
}

static enum err_code on_cell(void *ctx, const struct model_cell *c, struct err *why)
{
    (void)why;
    snprintf(ctx, 64, "%s %s", c->kind, c->run_text);
    return ERR_OK;
}

static void version_14_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    char *sql, of_run[64] = "";
    sqlite3 *s = NULL;
    struct model_text row = { .model = "feed", .path = "/texts/a.txt", .sha256 = "aa" };
    CHECK_OK(file_read(&sql, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v14.sql", 1 << 20, &why));
    assert_int_equal(sqlite3_open(t->file, &s), SQLITE_OK);
    assert_int_equal(sqlite3_exec(s, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(s);
    free(sql);
    CHECK_EQ(db_open_reader(&d, t->file, 100, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "has version 14");
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_OK(db_check(d, &why));
    CHECK_OK(db_model_text_put(d, &row, &why));
    const struct model_query q = { .sha256 = "feed", .metric = "kld_mean", .limit = 10 };
    CHECK_OK(db_model_cells(d, &q, on_cell, of_run, &why));
    assert_string_equal(of_run, "tune /texts/mine.txt");
    db_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(chosen_replaced_removed, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(version_14_is_migrated, temp_setup, temp_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
