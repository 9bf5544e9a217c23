/* Proves: two processes may write at once and lose nothing; kill -9 during transactions leaves only
 * complete cells; a full disk is ERR_FIT and the handle stays usable; a read-only file can be read;
 * foreign, damaged and newer files and those with views or triggers are refused with a message; files of
 * versions 1 and 2 are migrated with their rows; two processes may create the same file. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/db/temp.h"

enum { SAMPLES = 2000 };

/* A cell with SAMPLES samples: so large that a kill interrupts its transaction. */
static enum err_code put_cell(struct db *d, int64_t run, struct err *why)
{
    static struct sample_row s[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) s[i] = (struct sample_row){ i, "cpu_busy_ratio", i };
    struct cell_row c = { .run_id = run, .phase = "block", .seconds = 1 };
    const struct measurement m = { "decode_tok_s", "token/s", 5 };
    return db_cell_insert(d, &c, &m, 1, s, SAMPLES, NULL, 0, why);
}

static int64_t ask(const char *file, const char *sql)
{
    sqlite3 *raw;
    sqlite3_stmt *s;
    int64_t v = -1;
    CHECK_EQ(sqlite3_open(file, &raw), SQLITE_OK);
    if (sqlite3_prepare_v2(raw, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        v = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(raw);
    return v;
}

static void sql_execute(const char *file, const char *sql)
{
    sqlite3 *raw;
    CHECK_EQ(sqlite3_open(file, &raw), SQLITE_OK);
    assert_int_equal(sqlite3_exec(raw, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(raw);
}

static void write_bytes(const char *file, const void *bytes, size_t n)
{
    FILE *f = fopen(file, "wb");
    CHECK(f);
    CHECK_EQ(fwrite(bytes, 1, n, f), n);
    CHECK(!fclose(f));
}

/* fork() and run; the child must not touch cmocka's state, so it answers by exit status alone. */
static pid_t spawn(int (*body)(const char *file, int64_t arg), const char *file, int64_t arg)
{
    pid_t pid = fork();
    if (!pid) _exit(body(file, arg));
    CHECK_LT(0, pid);
    return pid;
}

static int reap(pid_t pid)
{
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A child's last words. */
static int say(const struct err *why, int status)
{
    fprintf(stderr, "%s\n", why->message);
    return status;
}

static int child_writes(const char *file, int64_t run)
{
    struct db *d;
    if (db_open(&d, file, NULL)) return 2;
    for (int i = 0; i < 25; i++)
        if (put_cell(d, run, NULL)) return 3;
    db_close(d);
    return 0;
}

static void two_processes_write(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    int64_t run = temp_run(d);
    db_close(d);
    pid_t a = spawn(child_writes, t->file, run), b = spawn(child_writes, t->file, run);
    assert_int_equal(reap(a), 0);
    assert_int_equal(reap(b), 0);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM cell"), 50);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM sample"), 50 * SAMPLES);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'wal'"), 1);
}

static int child_opens(const char *file, int64_t arg)
{
    struct db *d;
    (void)arg;
    enum err_code rc = db_open(&d, file, NULL);
    db_close(d);
    return (int)rc;
}

static void many_create_the_same_file(void **state)
{
    const struct temp *t = *state;
    pid_t pid[6];
    for (int round = 0; round < 10; round++) {
        char file[112];
        snprintf(file, sizeof file, "%s/%d.db", t->folder, round);
        for (size_t i = 0; i < COUNT_OF(pid); i++) pid[i] = spawn(child_opens, file, 0);
        for (size_t i = 0; i < COUNT_OF(pid); i++) assert_int_equal(reap(pid[i]), ERR_OK);
    }
}

static int child_writes_forever(const char *file, int64_t run)
{
    struct db *d;
    if (db_open(&d, file, NULL)) return 2;
    for (;;)
        if (put_cell(d, run, NULL)) return 3;
}

static void a_kill_loses_the_running_cell_only(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    int64_t run = temp_run(d);
    db_close(d);
    int64_t cells = 0;
    for (int round = 0; round < 8; round++) {
        pid_t pid = spawn(child_writes_forever, t->file, run);
        clock_sleep_ns((30 + 7 * round) * 1000000LL);
        kill(pid, SIGKILL);
        assert_int_equal(reap(pid), 128 + SIGKILL);
        CHECK_OK(db_open(&d, t->file, &why));
        CHECK_OK(db_check(d, &why));
        CHECK_OK(put_cell(d, run, &why)); /* no lock is left behind */
        db_close(d);
        int64_t now = ask(t->file, "SELECT count(*) FROM cell");
        CHECK_LT(cells, now);
        cells = now;
        assert_int_equal(ask(t->file, "SELECT count(*) FROM sample"), cells * SAMPLES);
        assert_int_equal(ask(t->file, "SELECT count(*) FROM measurement"), cells);
    }
}

/* The kill that is surely inside: rows written and even spilled to the log, no COMMIT. */
static int child_dies_before_commit(const char *file, int64_t run)
{
    sqlite3 *raw;
    char sql[200];
    snprintf(sql, sizeof sql,
             "INSERT INTO event(run_id, unix_ms, kind, text) VALUES(%lld, 1, 'x', hex(zeroblob(9999)))",
             (long long)run);
    if (sqlite3_open(file, &raw)) return 2;
    sqlite3_exec(raw, "PRAGMA cache_size = 5; BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (int i = 0; i < 200; i++)
        if (sqlite3_exec(raw, sql, NULL, NULL, NULL)) return 3;
    return raise(SIGKILL);
}

static void a_kill_before_commit_leaves_nothing(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct stat log;
    char name[112];
    CHECK_OK(db_open(&d, t->file, &why));
    int64_t run = temp_run(d);
    CHECK_OK(db_event_add(d, run, "note", "before", &why));
    db_close(d);
    assert_int_equal(reap(spawn(child_dies_before_commit, t->file, run)), 128 + SIGKILL);
    snprintf(name, sizeof name, "%s-wal", t->file);
    CHECK(!stat(name, &log));
    CHECK_LT(1000000, log.st_size); /* the lost rows did reach the disk */
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_OK(db_check(d, &why));
    db_close(d);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM event"), 1);
}

/* A file-size limit is the full disk that every machine has. Exit status: what went wrong first. */
static int child_fills_the_disk(const char *file, int64_t run)
{
    struct db *d;
    struct err why;
    int kept = 0;
    signal(SIGXFSZ, SIG_IGN);
    if (db_open(&d, file, NULL)) return 2;
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 400000, RLIM_INFINITY })) return 3;
    enum err_code rc;
    while (!(rc = put_cell(d, run, &why)))
        if (++kept > 1000) return 4;
    if (rc != ERR_FIT || !strstr(why.message, "make room")) return say(&why, 5);
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY })) return 6;
    if (put_cell(d, run, &why)) return 7; /* room again: the same handle goes on */
    struct cell_row *cells;
    int n;
    if (db_cell_list(d, run, &cells, &n, &why)) return 8;
    free(cells);
    db_close(d);
    return n == kept + 1 ? 0 : 9;
}

static void a_full_disk_is_said_and_survived(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    int64_t run = temp_run(d);
    db_close(d);
    assert_int_equal(reap(spawn(child_fills_the_disk, t->file, run)), 0);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM sample"),
                     SAMPLES * ask(t->file, "SELECT count(*) FROM cell"));
}

/* As an ordinary user, because root may write everything. arg: a run that is in the file. */
static int child_reads_only(const char *file, int64_t run)
{
    struct db *d;
    struct err why;
    struct run_row r;
    char *sql;
    if (!geteuid() && setuid(65534)) return 2;
    if (db_open(&d, file, &why)) return say(&why, 3);
    if (db_run_get(d, run, &r, &why)) return 4;
    run_row_free(&r);
    if (db_run_sql(d, run, &sql, &why)) return 5;
    free(sql);
    if (db_event_add(d, run, "note", "x", &why) != ERR_IO || !strstr(why.message, "may not write")) return 6;
    db_close(d);
    return 0;
}

static void a_read_only_file_reads(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    int64_t run = temp_run(d);
    db_close(d);
    CHECK(!chmod(t->file, 0444));
    CHECK(!chmod(t->folder, 0555)); /* no room for side files either */
    assert_int_equal(reap(spawn(child_reads_only, t->file, run)), 0);
    CHECK(!chmod(t->folder, 0755));
    assert_int_equal(reap(spawn(child_reads_only, t->file, run)), 0);
}

static void refused(const char *file, enum err_code want, const char *words)
{
    struct err why = { 0 };
    struct db *d = (struct db *)1;
    enum err_code rc = db_open(&d, file, &why);
    if (rc != want || d || !strstr(why.message, words))
        fail_msg("%s: got %d '%s', want %d with '%s'", file, rc, why.message, want, words);
}

static void strange_files_are_refused(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    char other[112], missing[112];
    snprintf(missing, sizeof missing, "%s/no/such/t.db", t->folder);
    refused(missing, ERR_IO, "folder must exist");
    refused(t->folder, ERR_IO, "cannot");

    write_bytes(t->file,
                "this is a letter to my aunt, not a database, and it is long enough to have a header. "
                "It goes on and on about the weather.",
                120);
    refused(t->file, ERR_FORMAT, "not a database");
    unlink(t->file);
    sql_execute(t->file, "CREATE TABLE cookies(id)");
    refused(t->file, ERR_FORMAT, "another program's");
    assert_int_equal(ask(t->file, "SELECT count(*) FROM sqlite_schema"), 1); /* and left alone */

    snprintf(other, sizeof other, "%s/n.db", t->folder);
    CHECK_OK(db_open(&d, other, &why));
    db_close(d);
    sql_execute(other, "PRAGMA user_version = 99");
    refused(other, ERR_FORMAT, "version 99");
    sql_execute(other, "PRAGMA user_version = -1"); /* an index below the first step of the schema */
    refused(other, ERR_FORMAT, "version -1, expected 1 to");
    sql_execute(other, "PRAGMA user_version = 0"); /* all steps would run again */
    refused(other, ERR_FORMAT, "version 0, expected 1 to");
}

/* A table that somebody dropped is damage of the file, not a fault of the program. */
static void a_missing_table_is_damage(void **state)
{
    const struct temp *t = *state;
    struct err why = { 0 };
    struct run_row *runs = NULL;
    struct db *d;
    int n = 0;
    CHECK_OK(db_open(&d, t->file, &why));
    db_close(d);
    sql_execute(t->file, "PRAGMA foreign_keys = OFF; DROP TABLE run");
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_EQ(db_run_list(d, NULL, 10, &runs, &n, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "its tables are not those of its version");
    db_close(d);
}

/* Reading the view would never end. */
static void a_table_that_is_a_query_is_refused(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    db_close(d);
    sql_execute(t->file,
                "CREATE VIEW run_all AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
                "SELECT id FROM n");
    refused(t->file, ERR_FORMAT, "contains the view run_all: expected only tables and indexes");
    sql_execute(t->file,
                "DROP VIEW run_all; CREATE TRIGGER x AFTER INSERT ON run BEGIN DELETE FROM cell; END");
    refused(t->file, ERR_FORMAT, "contains the trigger x");
}

/* Names the bug: SQLite takes a comment for a space, the check of the schema did not. */
static void a_virtual_table_behind_a_comment_is_refused(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    db_close(d);
    sql_execute(t->file,
                "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema(type, name, tbl_name, rootpage, sql) "
                "VALUES ('table', 'x', 'x', 0, 'CREATE/**/VIRTUAL TABLE x USING fts3tokenize')");
    refused(t->file, ERR_FORMAT, "contains the table x: expected only tables and indexes");
}

/* Names the bug: the list of runs took 800 MB for a column whose values an expression in the schema makes. */
static void values_without_measure_are_refused(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct run_row *runs;
    struct db *d;
    int n;
    CHECK_OK(db_open(&d, t->file, &why));
    temp_run(d);
    db_close(d);
    sql_execute(
        t->file,
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'kind TEXT NOT NULL',"
        " 'kind TEXT AS (hex(zeroblob(400000000)))') WHERE name = 'run'");
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_EQ(db_run_list(d, NULL, 10, &runs, &n, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "at most 64 MiB");
    db_close(d);
}

static void damage_is_found(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    CHECK_OK(db_open(&d, t->file, &why));
    int64_t run = temp_run(d);
    for (int i = 0; i < 5; i++) CHECK_OK(put_cell(d, run, &why));
    CHECK_OK(db_check(d, &why));
    db_close(d);
    int fd = open(t->file, O_RDWR);
    char junk[4096];
    struct stat st;
    memset(junk, 0xA5, sizeof junk);
    CHECK_LE(0, fd);
    CHECK(!fstat(fd, &st));
    CHECK_LT(50 * 4096, st.st_size);
    for (off_t at = 32 * 4096; at < st.st_size; at += 5 * 4096)
        CHECK_EQ(pwrite(fd, junk, sizeof junk, at), (ssize_t)sizeof junk);
    close(fd);
    CHECK_OK(db_open(&d, t->file, &why)); /* the first pages are whole */
    CHECK_EQ(db_check(d, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "move it away");
    db_close(d);
}

static void version_1_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    char *sql;
    CHECK_OK(file_read(&sql, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v1.sql", 1 << 20, &why));
    sql_execute(t->file, sql);
    free(sql);
    assert_int_equal(ask(t->file, "PRAGMA user_version"), 1);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM sqlite_schema WHERE name = 'spool'"), 0);

    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_LE(2, ask(t->file, "PRAGMA user_version"));
    struct run_row r;
    CHECK_OK(db_run_get(d, 4, &r, &why));
    assert_string_equal(r.label, "f32 vs q8_0");
    CHECK_EQ(r.effect_ratio, 1.31);
    run_row_free(&r);
    CHECK_EQ(db_measurement_get(d, 9, "decode_tok_s"), 812.5);
    CHECK_NAN(db_measurement_get(d, 9, "cell_energy_joules"));
    CHECK_EQ(db_spool_count(d), 0);
    CHECK_OK(db_spool_put(d, "http://gw/a", "{}", "x\n", &why));
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

static void version_2_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    char *text;
    CHECK_OK(file_read(&text, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v2.sql", 1 << 20, &why));
    sql_execute(t->file, text);
    free(text);
    assert_int_equal(ask(t->file, "PRAGMA user_version"), 2);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM sqlite_schema WHERE name = 'capsule'"), 0);

    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_LE(3, ask(t->file, "PRAGMA user_version"));
    CHECK_EQ(db_measurement_get(d, 9, "decode_tok_s"), 812.5);
    CHECK_EQ(db_spool_count(d), 1);
    CHECK_OK(db_capsule_get(d, 4, &text, &why)); /* a run from before: no capsule, and no error */
    assert_null(text);
    CHECK_OK(db_capsule_put(d, 4, "{}", &why));
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

static void version_3_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct span_row *spans, span = { .run_id = 4, .name = "load", .begun_ns = 1, .ended_ns = 2 };
    char *text;
    int n;
    CHECK_OK(file_read(&text, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v3.sql", 1 << 20, &why));
    sql_execute(t->file, text);
    free(text);
    assert_int_equal(ask(t->file, "PRAGMA user_version"), 3);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM sqlite_schema WHERE name = 'span'"), 0);

    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_LE(4, ask(t->file, "PRAGMA user_version"));
    CHECK_OK(db_capsule_get(d, 4, &text, &why));
    CHECK(text);
    CHECK_CONTAINS(text, "qdyno.capsule/1");
    free(text);
    CHECK_OK(db_span_list(d, 4, &spans, &n, &why)); /* a run from before: none, and no error */
    CHECK_EQ(n, 0);
    CHECK(!spans);
    CHECK_OK(db_span_insert(d, &span, 1, &why));
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

static void version_4_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct span_row *spans;
    struct alert_row *alerts,
        alert = { .machine = "ab12", .name = "memory", .grade = "warning", .since_ms = 5 };
    char *text;
    int n;
    CHECK_OK(file_read(&text, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v4.sql", 1 << 20, &why));
    sql_execute(t->file, text);
    free(text);
    assert_int_equal(ask(t->file, "PRAGMA user_version"), 4);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM sqlite_schema WHERE name = 'alert'"), 0);

    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_LE(5, ask(t->file, "PRAGMA user_version"));
    CHECK_OK(db_span_list(d, 4, &spans, &n, &why));
    CHECK_EQ(n, 1);
    free(spans);
    CHECK_OK(db_alert_list(d, NULL, false, 10, &alerts, &n, &why));
    CHECK_EQ(n, 0);
    CHECK(!alerts);
    CHECK_EQ(db_notice_count(d, NULL), 0);
    CHECK_OK(db_alert_begin(d, &alert, NULL, 0, &why));
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

static enum err_code count_requests(void *ctx, const struct cell_requests *c, struct err *why)
{
    (void)why;
    *(int *)ctx += c->requests.n;
    return ERR_OK;
}

static void version_5_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    char *text;
    int n = 0;
    CHECK_OK(file_read(&text, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v5.sql", 1 << 20, &why));
    sql_execute(t->file, text);
    free(text);
    assert_int_equal(ask(t->file, "PRAGMA user_version"), 5);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM sqlite_schema WHERE name = 'request'"), 0);
    /* a reader changes nothing, and its message says what to do */
    CHECK_EQ(db_open_reader(&d, t->file, 100, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "has version 5");
    assert_int_equal(ask(t->file, "PRAGMA user_version"), 5);

    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_LE(6, ask(t->file, "PRAGMA user_version"));
    CHECK_OK(db_request_list(d, 0, count_requests, &n, &why)); /* cells from before have none */
    CHECK_EQ(n, 0);
    struct request_figures f = { .prompt_tokens = 8, .gen_tokens = 4, .ttft_s = 0.5f };
    struct request_rows requests = {
        .model = "toy", .workload = "tg64", .sequences = 1, .n = 1, .figures = &f
    };
    struct cell_row c = { .run_id = 4, .phase = "block", .requests = &requests };
    CHECK_OK(db_cell_insert(d, &c, NULL, 0, NULL, 0, NULL, 0, &why));
    CHECK_OK(db_request_list(d, 0, count_requests, &n, &why));
    CHECK_EQ(n, 1);
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

/* A reader creates nothing, waits for locks only as long as requested, and respects its deadline. */
static void a_reader_only_looks(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d, *reader;
    CHECK_EQ(db_open_reader(&reader, t->file, 100, &why), ERR_ABSENT);
    CHECK_CONTAINS(why.message, "no database");
    CHECK(access(t->file, F_OK));
    CHECK_OK(db_open(&d, t->file, &why));
    struct run_row r = { .kind = "bench", .state = "done", .effect_ratio = NAN };
    CHECK_OK(db_run_insert(d, &r, &why));
    CHECK_OK(db_open_reader(&reader, t->file, 100, &why));
    struct count_row counts[4];
    int n;
    CHECK_OK(db_run_counts(reader, counts, 4, &n, &why));
    CHECK_EQ(n, 1);
    CHECK_EQ(counts[0].n, 1);
    assert_string_equal(counts[0].what, "bench");
    assert_string_equal(counts[0].state, "done");
    CHECK_EQ(db_run_insert(reader, &r, &why), ERR_IO);
    for (int i = 0; i < 200; i++) {
        struct cell_row c = { .run_id = r.id, .phase = "bench" };
        CHECK_OK(db_cell_insert(d, &c, NULL, 0, NULL, 0, NULL, 0, &why));
    }
    db_deadline(reader, clock_ns() - 1);
    CHECK_EQ(db_cell_counts(reader, counts, 4, &n, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "time limit");
    CHECK_EQ(n, 0);
    db_deadline(reader, 0);
    CHECK_OK(db_cell_counts(reader, counts, 4, &n, &why));
    CHECK_EQ(n, 1);
    CHECK_EQ(counts[0].n, 200);
    assert_string_equal(counts[0].what, "kept");
    db_close(reader);
    db_close(d);
}

static void version_6_is_migrated(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    char *text;
    int n = 0;
    CHECK_OK(file_read(&text, NULL, TEST_SOURCE_DIR "/tests/db/fixtures/v6.sql", 1 << 20, &why));
    sql_execute(t->file, text);
    free(text);
    assert_int_equal(ask(t->file, "PRAGMA user_version"), 6);
    assert_int_equal(ask(t->file, "SELECT count(*) FROM sqlite_schema WHERE name = 'trace_due'"), 0);

    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_LE(7, ask(t->file, "PRAGMA user_version"));
    CHECK_OK(db_request_list(d, 0, count_requests, &n, &why));
    CHECK_EQ(n, 1);
    CHECK_EQ(db_trace_due_count(d), 0);
    CHECK_OK(db_trace_due_put(d, 4, "http://c", "no route", &why));
    CHECK_EQ(db_trace_due_count(d), 1);
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, temp_setup, temp_teardown)
    const struct CMUnitTest tests[] = {
        T(two_processes_write),
        T(many_create_the_same_file),
        T(a_kill_loses_the_running_cell_only),
        T(a_kill_before_commit_leaves_nothing),
        T(a_full_disk_is_said_and_survived),
        T(a_read_only_file_reads),
        T(strange_files_are_refused),
        T(a_virtual_table_behind_a_comment_is_refused),
        T(values_without_measure_are_refused),
        T(damage_is_found),
        T(a_missing_table_is_damage),
        T(a_table_that_is_a_query_is_refused),
        T(version_1_is_migrated),
        T(version_2_is_migrated),
        T(version_3_is_migrated),
        T(version_4_is_migrated),
        T(version_5_is_migrated),
        T(version_6_is_migrated),
        T(a_reader_only_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
