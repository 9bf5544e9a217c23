/* Proves: jobs run in order on their own thread; a full queue refuses a job; closing waits for the running
 * job, but not longer than asked; the log keeps its newest lines and has each alert of `qdyno watch` once;
 * runs that were read with an older filter are dropped; the history on screen follows what runs. */
#include "tests/check.h"
#include "tui/dashboard/loop.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int64_t ran[64];
static _Atomic int count;
static _Atomic bool gate, started; /* started: a job waits for the gate */

static void note(struct background *b, const struct job *j)
{
    (void)b;
    ran[atomic_fetch_add(&count, 1)] = j->id;
}

static void wait_for_gate(struct background *b, const struct job *j)
{
    started = true;
    while (!gate) clock_sleep_ns(1000000);
    note(b, j);
}

static void in_order(void **state)
{
    (void)state;
    struct err why;
    struct background *b;
    struct jobs *q;
    count = 0;
    gate = started = false;
    CHECK_OK(background_open(&b, ":memory:", &why));
    CHECK_OK(jobs_open(&q, b, &why));
    CHECK(jobs_put(q, &(struct job){ .run = wait_for_gate, .id = 1 }));
    CHECK(!jobs_idle(q));
    while (!started) clock_sleep_ns(1000000); /* it has left the queue: no place becomes free meanwhile */
    int put = 0;
    for (int i = 0; i < 40; i++) put += jobs_put(q, &(struct job){ .run = note, .id = 2 + i });
    CHECK_GE(put, 8);
    CHECK_LT(put, 40); /* bounded */
    gate = true;
    for (int i = 0; i < 60000 && !jobs_idle(q); i++) clock_sleep_ns(1000000);
    CHECK_EQ(count, put + 1);
    for (int i = 0; i < count; i++) CHECK_EQ(ran[i], i + 1);
    CHECK(jobs_close(q, 1000));
    background_close(b);
}

static void log_keeps_the_newest(void **state)
{
    (void)state;
    struct err why;
    struct background *b;
    static struct snapshot s;
    CHECK_OK(background_open(&b, NULL, &why));
    for (int i = 0; i < 200; i++) log_write(&b->log, LOG_INFO, "line %d", i);
    background_announce(b, true, "%0400d", 7);
    background_copy(b, &s);
    CHECK_EQ(s.log_count, SNAPSHOT_LOG);
    assert_string_equal(s.log[SNAPSHOT_LOG - 2].text, "line 199");
    CHECK_EQ(s.log[SNAPSHOT_LOG - 1].level, LOG_ERROR);
    char news[256];
    bool bad = false;
    CHECK(background_take_message(b, news, sizeof news, &bad));
    CHECK(bad);
    CHECK(!background_take_message(b, news, sizeof news, &bad));
    background_close(b);
}

static void firing(struct db *d, const char *name, const char *text)
{
    struct err why;
    struct alert_row a = { .machine = "m", .grade = "warning", .since_ms = clock_unix_ms() };
    snprintf(a.name, sizeof a.name, "%s", name);
    snprintf(a.text, sizeof a.text, "%s", text);
    CHECK_OK(db_alert_begin(d, &a, NULL, 0, &why));
}

/* What a watch says fires is in the log, each alert once. */
static void alerts_are_logged_once(void **state)
{
    struct err why;
    struct background *b;
    struct db *d;
    struct job j = { 0 };
    static struct snapshot s;
    char path[] = "/tmp/qdyno-board-XXXXXX", beside[64];
    (void)state;
    const int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    CHECK_OK(db_open(&d, path, &why));
    CHECK_OK(background_open(&b, path, &why));
    job_read_history(b, &j);
    background_copy(b, &s);
    const int before = s.log_count;
    firing(d, "memory", "95 % of memory is in use");
    job_read_history(b, &j);
    job_read_history(b, &j);
    firing(d, "steal", "7 % are stolen");
    job_read_history(b, &j);
    background_copy(b, &s);
    assert_int_equal(s.log_count, before + 2);
    assert_string_equal(s.log[before].text, "alert memory: 95 % of memory is in use");
    assert_string_equal(s.log[before + 1].text, "alert steal: 7 % are stolen");
    background_close(b);
    db_close(d);
    close(fd);
    unlink(path);
    static const char *const BESIDE[] = { "-wal", "-shm", "-holds" };
    for (size_t i = 0; i < COUNT_OF(BESIDE); i++) {
        snprintf(beside, sizeof beside, "%s%s", path, BESIDE[i]);
        unlink(beside);
    }
}

/* A run is in the history while it runs, and has ended there when it has. */
static void a_running_run_is_in_the_history(void **state)
{
    char path[] = "/tmp/qdyno-test-jobs-XXXXXX", beside[sizeof path + 8];
    struct err why;
    struct background *b;
    struct db *d, *holder;
    static struct snapshot s;
    struct run_row r = { .kind = "ab", .state = "running", .machine = "m", .effect_ratio = NAN };
    (void)state;
    const int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    memset(r.label, 'c', sizeof r.label - 1);
    CHECK_OK(db_open(&d, path, &why));
    CHECK_OK(db_open(&holder, path, &why));
    CHECK_OK(db_machine_put(d, "m", "{}", &why));
    CHECK_OK(background_open(&b, path, &why));
    job_read_runs(b, &(struct job){ 0 });
    background_copy(b, &s);
    CHECK_EQ(s.run_count, 0);
    CHECK_OK(db_run_insert_locked(d, holder, &r, &why)); /* as a process that measures it does */
    job_read_runs(b, &(struct job){ 0 });
    background_copy(b, &s);
    CHECK_EQ(s.run_count, 1);
    CHECK_STR(s.run[0].state, "running");
    CHECK_STR(s.run[0].label, r.label); /* whole */
    CHECK_OK(db_run_finish(d, r.id, "done", "better", 1.2, NULL, &why));
    job_read_runs(b, &(struct job){ 0 });
    background_copy(b, &s);
    CHECK_STR(s.run[0].state, "done");
    CHECK_STR(s.run[0].verdict, "better");
    background_close(b);
    db_close(holder);
    db_close(d);
    close(fd);
    static const char *const BESIDE[] = { "", "-wal", "-shm", "-holds" };
    for (size_t i = 0; i < COUNT_OF(BESIDE); i++) {
        snprintf(beside, sizeof beside, "%s%s", path, BESIDE[i]);
        unlink(beside);
    }
}

/* One frame, and the jobs that it asked for. */
static const char *state_after_frame(struct dashboard *d, bool searches)
{
    d->background->known.tune.running = searches;
    background_log(d->background, LOG_INFO, "another frame"); /* so that it copies what is known */
    dashboard_collect(d);
    while (!jobs_idle(d->queue[QUEUE_DATABASE])) clock_sleep_ns(1000000);
    return d->background->known.run[0].state;
}

/* A bug: a run that was stopped and resumed stayed "stopped" in the history that was on screen. */
static void a_resumed_run_is_read_again(void **state)
{
    char path[] = "/tmp/qdyno-test-jobs-XXXXXX", beside[sizeof path + 8];
    struct err why;
    struct db *d, *holder;
    const struct dashboard_options options = { .read_only = true };
    struct dashboard *at = calloc(1, sizeof *at);
    struct run_row r = { .kind = "tune", .state = "running", .machine = "m", .effect_ratio = NAN };
    (void)state;
    const int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    CHECK(at);
    CHECK_OK(db_open(&d, path, &why));
    CHECK_OK(db_open(&holder, path, &why));
    CHECK_OK(db_machine_put(d, "m", "{}", &why));
    CHECK_OK(db_run_insert_locked(d, holder, &r, &why));
    CHECK_OK(background_open(&at->background, path, &why));
    for (int i = 0; i < QUEUES; i++) CHECK_OK(jobs_open(&at->queue[i], at->background, &why));
    at->options = &options;
    at->ui.view = VIEW_HISTORY;
    at->s = calloc(1, sizeof *at->s);
    CHECK(at->s);
    at->background->known.tune.run_id = r.id;
    CHECK_STR(state_after_frame(at, true), "running");
    CHECK_OK(db_run_finish(d, r.id, "stopped", NULL, NAN, NULL, &why));
    job_read_runs(at->background, &(struct job){ 0 }); /* as the end of the command does */
    CHECK_STR(state_after_frame(at, false), "stopped");
    CHECK_OK(db_run_reopen(d, r.id, &why));
    CHECK_STR(state_after_frame(at, true), "running");
    for (int i = 0; i < QUEUES; i++) CHECK(jobs_close(at->queue[i], 60000));
    background_close(at->background);
    free(at->s);
    free(at);
    db_close(holder);
    db_close(d);
    close(fd);
    static const char *const BESIDE[] = { "", "-wal", "-shm", "-holds" };
    for (size_t i = 0; i < COUNT_OF(BESIDE); i++) {
        snprintf(beside, sizeof beside, "%s%s", path, BESIDE[i]);
        unlink(beside);
    }
}

/* A read that began before the filter changed is dropped, so rows never come back for a moment. */
static void runs_of_an_older_filter_are_dropped(void **state)
{
    struct err why;
    struct background *b;
    static struct snapshot s;
    const struct run_row rows[2] = { { .id = 2 }, { .id = 1 } };
    (void)state;
    CHECK_OK(background_open(&b, ":memory:", &why));
    background_publish_runs(b, "", rows, 2, "");
    background_filter_history(b, "threads");
    background_publish_runs(b, "", rows, 2, "");
    background_publish_runs(b, "threads", rows, 1, "");
    background_copy(b, &s);
    CHECK_EQ(s.run_count, 1);
    assert_string_equal(s.run_filter, "threads");
    background_filter_history(b, "");
    background_publish_runs(b, "threads", rows, 0, "no such table");
    background_copy(b, &s);
    CHECK_EQ(s.run_count, 1);
    assert_string_equal(s.run_error, "");
    background_publish_runs(b, "", rows, 2, "");
    background_copy(b, &s);
    CHECK_EQ(s.run_count, 2);
    assert_string_equal(s.run_filter, "");
    background_close(b);
}

/* A check whose texts were replaced meanwhile publishes nothing; that of the newest texts does. */
static void a_newer_check_supersedes_an_older_one(void **state)
{
    struct err why;
    struct background *b;
    static struct snapshot s;
    static struct form first, second;
    form_show(&first, FORM_MODEL, (const char *const[FORM_FIELDS]){ "/nowhere/old.gguf" });
    form_show(&second, FORM_MODEL, (const char *const[FORM_FIELDS]){ "/nowhere/new.gguf" });
    const struct job old = { .run = job_check_form, .text = "", .form = &first, .id = 11 };
    const struct job newer = { .run = job_check_form, .text = "", .form = &second, .id = 12 };
    (void)state;
    CHECK_OK(background_open(&b, ":memory:", &why));
    background_want_check(b, 11);
    job_check_form(b, &old);
    background_copy(b, &s);
    CHECK_EQ(s.checked.of, 11);
    background_want_check(b, 12);
    job_check_form(b, &newer);
    job_check_form(b, &old); /* it ends after the newer one */
    background_copy(b, &s);
    CHECK_EQ(s.checked.of, 12);
    CHECK_CONTAINS(s.checked.refusal[0], "new.gguf");
    background_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_running_run_is_in_the_history),
                                        cmocka_unit_test(a_newer_check_supersedes_an_older_one),
                                        cmocka_unit_test(a_resumed_run_is_read_again),
                                        cmocka_unit_test(in_order),
                                        cmocka_unit_test(log_keeps_the_newest),
                                        cmocka_unit_test(alerts_are_logged_once),
                                        cmocka_unit_test(runs_of_an_older_filter_are_dropped) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
