/* Proves: one handle at a time measures a run, in this process and in others; others' runs stay free; a
 * holder that closes or is killed holds nothing, whatever name the file was opened by. */
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
    CHECK(db_run_hold(d, run, &why) == ERR_USAGE);
    snprintf(pid, sizeof pid, "process %d:", (int)by);
    if (!strstr(why.message, pid)) fail_msg("'%s' does not name '%s'", why.message, pid);
}

static void one_handle(void **state)
{
    struct temp *t = *state;
    struct err why = { 0 };
    struct db *a = opened(t->file), *b = opened(t->file);
    const int64_t run = temp_run(a), other = temp_run(a);
    CHECK_OK(db_run_hold(a, run, &why));
    CHECK_OK(db_run_hold(a, run, &why)); /* it has it */
    refused(b, run, getpid());
    CHECK_OK(db_run_hold(b, other, &why));
    refused(a, other, getpid());
    struct run_row r;
    CHECK_OK(db_run_get(b, run, &r, &why)); /* reading is for all */
    run_row_free(&r);
    db_close(a);
    CHECK_OK(db_run_hold(b, run, &why));
    struct db *c = opened(t->file);
    refused(c, run, getpid());
    db_run_release(b);
    db_run_release(b); /* nothing is held: fine */
    CHECK_OK(db_run_hold(c, run, &why));
    CHECK_OK(db_run_hold(c, other, &why));
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
    CHECK_OK(db_watch_hold(a, &why));
    CHECK(db_watch_hold(b, &why) == ERR_USAGE && strstr(why.message, "a watch uses"));
    CHECK(!db_run_held(b, &pid)); /* a watch that waits measures nothing */
    CHECK_OK(db_run_hold(a, 7, &why));
    CHECK(db_run_held(b, &pid) && pid == (int)getpid());
    CHECK(!db_run_held(a, &pid)); /* it is its own */
    db_run_release(a);
    CHECK(!db_run_held(b, &pid));
    CHECK_OK(db_watch_hold(b, &why));
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
    CHECK_OK(db_run_hold(a, 1, &why));
    refused(b, 1, getpid());
    db_close(a);
    db_close(b);
}

static void memory_is_private(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct db *a = opened(":memory:"), *b = opened(":memory:");
    CHECK_OK(db_run_hold(a, 1, &why));
    CHECK_OK(db_run_hold(b, 1, &why));
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
    CHECK(child >= 0);
    if (child == 0) {
        struct db *d;
        const bool held = !db_open(&d, t->file, &why) && !db_run_hold(d, 7, &why);
        if (write(ready[1], held ? "y" : "n", 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    struct db *d = opened(t->file);
    refused(d, 7, child);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    CHECK_OK(db_run_hold(d, 7, &why));
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
    assert_int_equal(mkdir(path, 0700), 0); /* whoever we are, a folder cannot be opened for writing */
    CHECK(db_run_hold(d, 1, &why) == ERR_IO && strstr(why.message, "-holds"));
    db_close(d);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
