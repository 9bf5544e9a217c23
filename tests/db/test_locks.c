/* Proves: only one handle, of this or another process, can lock a run; other runs stay free; a lock ends
 * when its owner closes the handle or is killed, whatever name the file was opened with. A run that is stored
 * as running and is not locked is interrupted as soon as another handle opens the file. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/db/temp.h"

static struct db *opened(const char *path)
{
    struct err why = { 0 };
    struct db *d;
    CHECK_OK(db_open(&d, path, &why));
    return d;
}

static void refused(struct db *d, int64_t run, pid_t by)
{
    struct err why = { 0 };
    char pid[32];
    CHECK_EQ(db_run_lock(d, run, &why), ERR_USAGE);
    snprintf(pid, sizeof pid, "process %d:", (int)by);
    if (!strstr(why.message, pid)) fail_msg("'%s' does not name '%s'", why.message, pid);
}

static void one_handle(void **state)
{
    struct temp *t = *state;
    struct err why = { 0 };
    struct db *a = opened(t->file), *b = opened(t->file);
    const int64_t run = temp_run(a), other = temp_run(a);
    CHECK_OK(db_run_lock(a, run, &why));
    CHECK_OK(db_run_lock(a, run, &why)); /* it has it */
    refused(b, run, getpid());
    CHECK_OK(db_run_lock(b, other, &why));
    refused(a, other, getpid());
    struct run_row r;
    CHECK_OK(db_run_get(b, run, &r, &why)); /* reading is for all */
    run_row_free(&r);
    db_close(a);
    CHECK_OK(db_run_lock(b, run, &why));
    struct db *c = opened(t->file);
    refused(c, run, getpid());
    db_unlock(b);
    db_unlock(b); /* nothing is held: fine */
    CHECK_OK(db_run_lock(c, run, &why));
    CHECK_OK(db_run_lock(c, other, &why));
    refused(b, other, getpid());
    db_close(c);
    db_close(b);
}

static void one_watch(void **state)
{
    struct temp *t = *state;
    struct err why = { 0 };
    struct db *a = opened(t->file), *b = opened(t->file);
    int pid;
    CHECK_OK(db_watch_lock(a, &why));
    CHECK_EQ(db_watch_lock(b, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "a watch already uses");
    CHECK(!db_run_is_locked(b, &pid)); /* a watch that waits measures nothing */
    CHECK_OK(db_run_lock(a, 7, &why));
    CHECK(db_run_is_locked(b, &pid));
    CHECK_EQ(pid, (int)getpid());
    CHECK(!db_run_is_locked(a, &pid)); /* it is its own */
    db_unlock(a);
    CHECK(!db_run_is_locked(b, &pid));
    CHECK_OK(db_watch_lock(b, &why));
    db_close(a);
    db_close(b);
}

static void other_names(void **state)
{
    struct temp *t = *state;
    struct err why = { 0 };
    char link[128];
    struct db *a = opened(t->file);
    snprintf(link, sizeof link, "%s/link.db", t->folder);
    assert_int_equal(symlink(t->file, link), 0);
    struct db *b = opened(link);
    CHECK_OK(db_run_lock(a, 1, &why));
    refused(b, 1, getpid());
    db_close(a);
    db_close(b);
}

static void memory_is_private(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct db *a = opened(":memory:"), *b = opened(":memory:");
    CHECK_OK(db_run_lock(a, 1, &why));
    CHECK_OK(db_run_lock(b, 1, &why));
    db_close(a);
    db_close(b);
}

static void killed(void **state)
{
    struct temp *t = *state;
    struct err why = { 0 };
    int ready[2];
    char byte;
    db_close(opened(t->file));
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    CHECK_LE(0, child);
    if (child == 0) {
        struct db *d;
        const bool held = !db_open(&d, t->file, &why) && !db_run_lock(d, 7, &why);
        if (write(ready[1], held ? "y" : "n", 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    struct db *d = opened(t->file);
    refused(d, 7, child);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    CHECK_OK(db_run_lock(d, 7, &why));
    db_close(d);
    close(ready[0]);
    close(ready[1]);
}

static void no_room(void **state)
{
    struct temp *t = *state;
    struct err why = { 0 };
    char path[128];
    struct db *d = opened(t->file);
    snprintf(path, sizeof path, "%s-holds", t->file);
    assert_int_equal(mkdir(path, 0700), 0); /* even root cannot open a folder for writing */
    CHECK_EQ(db_run_lock(d, 1, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "-holds");
    db_close(d);
}

static void has_state(struct db *d, int64_t run, const char *want)
{
    struct err why = { 0 };
    struct run_row r;
    CHECK_OK(db_run_get(d, run, &r, &why));
    assert_string_equal(r.state, want);
    CHECK_EQ(r.ended_ms != 0, strcmp(want, "running") != 0);
    run_row_free(&r);
}

static void abandoned(void **state)
{
    struct temp *t = *state;
    struct err why = { 0 };
    struct db *a = opened(t->file);
    const int64_t dead = temp_run(a), alive = temp_run(a), resumed = temp_run(a);
    struct cell_row cell = {
        .run_id = dead, .phase = "block", .started_ms = INT64_C(4000000000000), .seconds = 1.5
    };
    CHECK_OK(db_cell_insert(a, &cell, NULL, 0, NULL, 0, NULL, 0, &why));
    CHECK_OK(db_run_lock(a, alive, &why));
    struct db *b = opened(t->file); /* another connection of the same process */
    has_state(b, alive, "running");
    has_state(b, dead, "interrupted");
    has_state(b, resumed, "interrupted");
    struct run_row r;
    CHECK_OK(db_run_get(b, dead, &r, &why));
    CHECK_EQ(r.ended_ms, INT64_C(4000000001500)); /* with its last cell, not when somebody looked */
    run_row_free(&r);
    CHECK_OK(db_runs_close_abandoned(a, &why)); /* its own lock counts, too */
    has_state(a, alive, "running");
    CHECK_OK(db_run_lock(a, resumed, &why));
    CHECK_OK(db_run_reopen(a, resumed, &why));
    db_close(b);
    b = opened(t->file);
    has_state(b, resumed, "running");
    db_close(a);
    CHECK_OK(db_runs_close_abandoned(b, &why));
    has_state(b, alive, "interrupted");
    has_state(b, resumed, "interrupted");
    db_close(b);
}

static int64_t counted(struct db *d, const char *state)
{
    struct err why = { 0 };
    struct count_row rows[8];
    int n;
    CHECK_OK(db_run_counts(d, rows, COUNT_OF(rows), &n, &why));
    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].what, "ab") && !strcmp(rows[i].state, state)) return rows[i].n;
    return 0;
}

/* A reader changes nothing in the file (`serve-metrics`), and still does not count a dead run as running. */
static void a_reader_counts_no_dead_run(void **state)
{
    struct temp *t = *state;
    struct err why = { 0 };
    struct db *a = opened(t->file), *reader;
    const int64_t alive = temp_run(a);
    CHECK_OK(db_run_lock(a, alive, &why));
    temp_run(a);
    temp_run(a);
    CHECK_OK(db_open_reader(&reader, t->file, 100, &why));
    CHECK_EQ(counted(reader, "running"), 1);
    CHECK_EQ(counted(reader, "interrupted"), 2);
    CHECK_EQ(counted(a, "running"), 1); /* its own lock counts, too */
    db_unlock(a);
    CHECK_EQ(counted(reader, "running"), 0);
    CHECK_EQ(counted(reader, "interrupted"), 3);
    struct run_row r;
    CHECK_OK(db_run_get(a, alive, &r, &why));
    assert_string_equal(r.state, "running"); /* nothing was changed */
    run_row_free(&r);
    db_close(reader);
    db_close(a);
}

/* A run is stored together with its lock, so that no other process sees it running without one. */
static void stored_with_lock(void **state)
{
    struct temp *t = *state;
    struct err why = { 0 };
    char path[128];
    struct run_row *rows, r = { .kind = "ab", .state = "running", .effect_ratio = 1 };
    int n;
    struct db *a = opened(t->file), *b = opened(t->file);
    CHECK_OK(db_run_insert_locked(a, b, &r, &why));
    CHECK_EQ(db_run_lock(a, r.id, &why), ERR_USAGE);
    db_close(b);
    snprintf(path, sizeof path, "%s-holds", t->file);
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    b = opened(t->file);
    CHECK_EQ(db_run_insert_locked(a, b, &r, &why), ERR_IO);
    CHECK_OK(db_run_list(a, NULL, 0, &rows, &n, &why));
    CHECK_EQ(n, 1);
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
    db_close(a);
    db_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_handle, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(one_watch, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(other_names, temp_setup, temp_teardown),
        cmocka_unit_test(memory_is_private),
        cmocka_unit_test_setup_teardown(killed, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(no_room, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(abandoned, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(a_reader_counts_no_dead_run, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(stored_with_lock, temp_setup, temp_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
