/* Proves: sensors become signals (the tighter of two limits, one per GPU, without our own load); a watch
 * learns usual values, fires when a round is slower than them or than its baseline, measures twice first,
 * reports an alert once in spite of restarts, and ends it; a wait for a quiet machine says what it waits for
 * and ends at its deadline, after which disturbed cells count; failures, postponements and stops are
 * distinguished and leave no half-finished run; a rollback happens only if the champion is faster now, keeps
 * the previous file, and is evaluated in the next round; notices wait in order for their receiver; documents
 * have their fields; notices are sent while a measurement runs. */
#include <math.h>
#include <sys/stat.h>

#include "advisor/watch/parts.h"
#include "advisor/watch/watch.h"
#include "tests/advisor/fake.h"

/* ---------------------------------------------------------------- a watch that remembers what it says */

struct bench {
    char dir[256], db[300];
    struct machine machine;
    struct watch_options o;
    struct watch_item item;
    struct str said; /* "firing performance ...\n" */
    int counts[16];
    bool stop;
    _Atomic bool noticed; /* an event about sending notices came */
    struct watch *w;
};

static void event_record(void *ctx, const struct watch_event *e)
{
    struct bench *b = ctx;
    b->counts[e->kind]++;
    if (e->kind == WATCH_NOTICE) b->noticed = true;
    str_printf(&b->said, "%s %s\n", WATCH_KINDS[e->kind], e->text);
    assert_string_equal(json_get_str(e->about, "schema", ""), "qdyno.watch/1");
    assert_string_equal(json_get_str(e->about, "event", ""), WATCH_KINDS[e->kind]);
}

static bool proceed(void *ctx)
{
    return !((struct bench *)ctx)->stop;
}

static void rules_enable_only(struct alert_rules *r, const char *first, const char *second)
{
    alert_rules_default(r);
    for (int i = 0; i < ALERT_COUNT; i++)
        r->off[i] = strcmp(ALERTS[i].name, first) && strcmp(ALERTS[i].name, second);
}

static int bench_open(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    struct err why;
    if (!b) return -1;
    scratch(b->dir, sizeof b->dir);
    snprintf(b->db, sizeof b->db, "%s/t.db", b->dir);
    if (machine_detect(&b->machine, "", &why)) return -1;
    b->o = (struct watch_options){ .db_path = b->db,
                                   .root = "",
                                   .machine = &b->machine,
                                   .program = FAKE_PROGRAM,
                                   .item = &b->item,
                                   .items = 1,
                                   .every_s = 3600,
                                   .repetitions = 3,
                                   .once = true,
                                   .even_if_busy = true };
    rules_enable_only(&b->o.rules, "performance",
                      "errors"); /* the state of the test machine does not matter */
    b->item.config = fake_config("rate=1000+noise=0.001");
    if (workload_parse(&b->item.workload, "tg8", &why)) return -1;
    *state = b;
    return 0;
}

static int bench_close(void **state)
{
    struct bench *b = *state;
    char command[512];
    str_free(&b->said);
    snprintf(command, sizeof command, "rm -rf '%s'", b->dir);
    const int rc = system(command);
    free(b);
    return rc;
}

static struct watch_summary round_of(struct bench *b)
{
    struct err why;
    struct watch_summary s;
    const struct watch_host host = { b, event_record, proceed };
    memset(b->counts, 0, sizeof b->counts);
    str_clear(&b->said);
    CHECK_OK(watch_open(&b->w, &b->o, &host, &why));
    watch_step(b->w);
    watch_summary(b->w, &s);
    watch_close(b->w);
    return s;
}

static void expect_event(struct bench *b, const char *what)
{
    if (!strstr(str_text(&b->said), what)) fail_msg("'%s' was not said:\n%s", what, str_text(&b->said));
}

static void put_value(struct bench *b, const char *signal, const char *subject, double value)
{
    struct db *d;
    struct err why;
    struct watch_value v = { .unix_ms = 1, .value = value };
    snprintf(v.signal, sizeof v.signal, "%s", signal);
    snprintf(v.subject, sizeof v.subject, "%s", subject);
    CHECK_OK(db_open(&d, b->db, &why));
    CHECK_OK(db_watch_value_put(d, b->machine.id, &v, &why));
    db_close(d);
}

static int firing(struct bench *b)
{
    struct db *d;
    struct err why;
    struct alert_row *rows;
    int n;
    CHECK_OK(db_open(&d, b->db, &why));
    CHECK_OK(db_alert_list(d, NULL, true, 10, &rows, &n, &why));
    free(rows);
    db_close(d);
    return n;
}

static const char SUBJECT_OF_ITEM[] = "fake:rate=1000+noise=0.001 tg8 default";

/* ---------------------------------------------------------------- sensors */

static double value_of(const struct signal_value *s, int n, enum signal_id signal, const char *subject)
{
    for (int i = 0; i < n; i++)
        if (s[i].signal == signal && !strcmp(s[i].subject, subject)) return s[i].value;
    return NAN;
}

static void sensors_become_signals(void **state)
{
    (void)state;
    struct signal_value out[SIGNAL_VALUES_MAX];
    struct gpu_reading gpu[2] = { { .index = 0,
                                    .busy_ratio = 0.5,
                                    .mem_used_bytes = 3e9,
                                    .mem_total_bytes = 4e9,
                                    .temperature_celsius = 60,
                                    .ecc_uncorrected = NAN,
                                    .throttle_known = true,
                                    .throttle_reasons = GPU_THROTTLE_POWER_CAP | GPU_THROTTLE_IDLE },
                                  { .index = 1,
                                    .lost = true,
                                    .busy_ratio = NAN,
                                    .mem_used_bytes = NAN,
                                    .mem_total_bytes = NAN,
                                    .temperature_celsius = NAN,
                                    .ecc_uncorrected = 2,
                                    .throttle_known = true,
                                    .throttle_reasons = GPU_THROTTLE_HW_THERMAL } };
    struct sensor_state in = { .gpu = gpu, .gpus = 2, .disk_free_bytes = 5e9, .stale_s = NAN };
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) in.row[i] = NAN;
    int n = signals_from_sensors(&in, out);
    CHECK_LE(n, SIGNAL_VALUES_MAX);
    CHECK_NAN(value_of(out, n, SIGNAL_MEMORY, ""));
    in.row[METRIC_MEM_USED] = 6e9;
    in.row[METRIC_MEM_AVAILABLE] = 2e9;
    in.row[METRIC_CPU_BUSY] = 0.4;
    in.row[METRIC_CPU_STEAL] = 0.01;
    n = signals_from_sensors(&in, out);
    CHECK_NEAR(value_of(out, n, SIGNAL_MEMORY, ""), 0.75, 1e-12);
    CHECK_NEAR(value_of(out, n, SIGNAL_BUSY, ""), 0.4, 1e-12);
    CHECK_NEAR(value_of(out, n, SIGNAL_STEAL, ""), 0.01, 1e-12);
    CHECK_NEAR(value_of(out, n, SIGNAL_DISK, ""), 5e9, 1);
    in.row[METRIC_CGROUP_MEM_USED] = 0.95e9; /* the container's own limit is tighter */
    in.row[METRIC_CGROUP_MEM_LIMIT] = 1e9;
    in.row[METRIC_CGROUP_CPU] = 1.8;
    in.row[METRIC_CGROUP_CPU_LIMIT] = 2;
    n = signals_from_sensors(&in, out);
    CHECK_NEAR(value_of(out, n, SIGNAL_MEMORY, ""), 0.95, 1e-12);
    CHECK_NEAR(value_of(out, n, SIGNAL_BUSY, ""), 0.9, 1e-12);

    CHECK_NEAR(value_of(out, n, SIGNAL_GPU_MEMORY, "gpu0"), 0.75, 1e-12);
    /* idle and power cap do not count as throttling */
    CHECK_EQ(value_of(out, n, SIGNAL_GPU_THROTTLE, "gpu0"), 0);
    CHECK_EQ(value_of(out, n, SIGNAL_GPU_POWER_CAP, "gpu0"), 1);
    CHECK_NAN(value_of(out, n, SIGNAL_GPU_ECC, "gpu0"));
    CHECK_EQ(value_of(out, n, SIGNAL_GPU_LOST, "gpu0"), 0);
    CHECK_EQ(value_of(out, n, SIGNAL_GPU_THROTTLE, "gpu1"), 1);
    CHECK_EQ(value_of(out, n, SIGNAL_GPU_ECC, "gpu1"), 2);
    CHECK_NAN(value_of(out, n, SIGNAL_GPU_MEMORY, "gpu1"));
    CHECK_EQ(value_of(out, n, SIGNAL_GPU_LOST, "gpu1"), 1);
    in.measuring = true; /* our own load is ignored */
    n = signals_from_sensors(&in, out);
    CHECK_NAN(value_of(out, n, SIGNAL_BUSY, ""));
    CHECK_NAN(value_of(out, n, SIGNAL_GPU_BUSY, "gpu0"));
    CHECK_NEAR(value_of(out, n, SIGNAL_MEMORY, ""), 0.95, 1e-12);
}

static void the_suggestion_is_computed(void **state)
{
    (void)state;
    char buf[192];
    CHECK_CONTAINS(scale_suggestion(0.91, NAN, buf, sizeof buf), "91 % busy: about 1.4 times");
    CHECK_CONTAINS(scale_suggestion(0.91, 0.5, buf, sizeof buf),
                   "91 % busy, and programs waited for a CPU 50 % of the time: about 2.1 times");
    CHECK_CONTAINS(buf, "(91 % x 1.5, for those that waited, divided by 65 %)"); /* which gives 2.1 */
}

/* ---------------------------------------------------------------- rounds */

static void usual_values_are_learned(void **state)
{
    struct bench *b = *state;
    struct watch_summary s = round_of(b);
    CHECK_NEAR(s.rounds, 1, 0);
    CHECK_NEAR(s.measured, 1, 0);
    CHECK_NEAR(s.unjudged, 1, 0);
    CHECK(!s.failed);
    CHECK(!s.postponed);
    expect_event(b, "nothing to compare with yet");
    CHECK_NEAR(s.highest, -1, 0);
    s = round_of(b);
    CHECK_NEAR(s.measured, 1, 0);
    CHECK(!s.unjudged);
    CHECK_NEAR(s.highest, -1, 0);
    expect_event(b, "against its own first rounds");
    CHECK(!b->counts[WATCH_FIRING]);
    CHECK(!b->counts[WATCH_TROUBLE]);
}

static void a_slow_round_fires_once_and_ends(void **state)
{
    struct bench *b = *state;
    put_value(b, "usual value", SUBJECT_OF_ITEM, log(1500));
    put_value(b, "usual value n", SUBJECT_OF_ITEM, 5);
    struct watch_summary s = round_of(b);
    CHECK_EQ(s.highest, GRADE_WARNING);
    CHECK_NEAR(b->counts[WATCH_FIRING], 1, 0);
    CHECK_NEAR(firing(b), 1, 0);
    expect_event(b, "firing performance fake:rate=1000");
    expect_event(b, "performance is 33.3 % below its baseline (limit 20 %)");
    s = round_of(b); /* a restart */
    CHECK_EQ(s.highest, GRADE_WARNING);
    CHECK(!b->counts[WATCH_FIRING]);
    CHECK(!b->counts[WATCH_RESOLVED]);
    expect_event(b, "1 still firing");
    expect_event(b, "still firing: alert performance fake:rate=1000"); /* it was counted but not named */
    expect_event(b, "33.3 % then, fires above 20 %");
    put_value(b, "usual value", SUBJECT_OF_ITEM, log(1000));
    s = round_of(b);
    CHECK_NEAR(s.highest, -1, 0);
    CHECK_NEAR(b->counts[WATCH_RESOLVED], 1, 0);
    CHECK_NEAR(firing(b), 0, 0);
    expect_event(b, "resolved, now ");
}

static void forgetting_learns_anew(void **state)
{
    struct bench *b = *state;
    put_value(b, "usual value", SUBJECT_OF_ITEM, log(1500));
    put_value(b, "usual value n", SUBJECT_OF_ITEM, 5);
    b->o.forget = true;
    const struct watch_summary s = round_of(b);
    CHECK_NEAR(s.unjudged, 1, 0);
    CHECK_NEAR(s.highest, -1, 0);
}

static void alerts_of_removed_workloads_end(void **state)
{
    struct bench *b = *state;
    put_value(b, "usual value", SUBJECT_OF_ITEM, log(1500));
    put_value(b, "usual value n", SUBJECT_OF_ITEM, 5);
    round_of(b);
    CHECK_NEAR(firing(b), 1, 0);
    b->item.config = fake_config("rate=1001");
    b->o.webhook = "http://127.0.0.1:1/none";
    round_of(b);
    CHECK_NEAR(firing(b), 0, 0);
    struct db *d;
    struct err why;
    struct alert_row *rows;
    int n;
    CHECK_OK(db_open(&d, b->db, &why));
    CHECK_OK(db_alert_list(d, NULL, false, 10, &rows, &n, &why));
    CHECK_NEAR(n, 1, 0);
    assert_string_equal(rows[0].ended, "its workload is not watched any more");
    assert_int_equal(db_notice_count(d, NULL), 1); /* the receiver of the firing notice also gets its end */
    free(rows);
    db_close(d);
}

static void set_baseline(struct bench *b, const char *line, double value)
{
    b->item.has_baseline = true;
    b->item.baseline = (struct baseline_row){ .id = 1, .name = "best", .workload = "tg8", .value = value };
    snprintf(b->item.baseline.config, sizeof b->item.baseline.config, "%s", line);
    snprintf(b->item.baseline.metric, sizeof b->item.baseline.metric, "decode_tok_s");
    snprintf(b->item.baseline.machine, sizeof b->item.baseline.machine, "%s", b->machine.id);
}

static void the_baseline_is_the_reference(void **state)
{
    struct bench *b = *state;
    set_baseline(b, "model=fake:rate=1000+noise=0.001", 4000);
    struct watch_summary s = round_of(b);
    CHECK_EQ(s.highest, GRADE_WARNING);
    CHECK(!s.unjudged);
    expect_event(b, "-75");
    expect_event(b, "against baseline best");
    b->item.baseline.value = 990;
    s = round_of(b);
    CHECK_NEAR(s.highest, -1, 0);
    snprintf(b->item.baseline.machine, sizeof b->item.baseline.machine,
             "elsewhere"); /* a value of another machine */
    b->item.baseline.value = 4000;
    s = round_of(b);
    CHECK_NEAR(s.highest, -1, 0);
    CHECK_NEAR(s.unjudged, 1, 0);
}

static void failures_are_counted(void **state)
{
    struct bench *b = *state;
    b->item.config = fake_config("rate=1000+at=4+do=crash");
    struct watch_summary s = round_of(b);
    CHECK_NEAR(s.failed, 1, 0);
    CHECK(!s.measured);
    CHECK_EQ(s.highest, GRADE_WARNING);
    expect_event(b, "firing errors: 100 % of the last measurements failed");
    b->item.config = fake_config("open=fit"); /* the model cannot be loaded */
    s = round_of(b);
    CHECK_NEAR(s.failed, 1, 0);
    CHECK_NEAR(b->counts[WATCH_FAILED], 1, 0);
    struct db *d;
    struct err why;
    struct run_row *runs;
    int n;
    CHECK_OK(db_open(&d, b->db, &why));
    CHECK_OK(db_run_list(d, NULL, 10, &runs, &n, &why));
    assert_int_equal(n, 2);
    for (int i = 0; i < n; i++) {
        assert_string_equal(runs[i].state, "failed");
        assert_string_equal(runs[i].kind, "watch");
        run_row_free(&runs[i]);
    }
    free(runs);
    db_close(d);
}

static void another_measurement_postpones_the_round(void **state)
{
    struct bench *b = *state;
    struct db *d;
    struct err why;
    CHECK_OK(db_open(&d, b->db, &why));
    CHECK_OK(db_run_lock(d, 1, &why));
    const struct watch_summary s = round_of(b);
    CHECK_NEAR(s.postponed, 1, 0);
    CHECK(!s.measured);
    CHECK(!s.rounds);
    expect_event(b, "another measurement is running");
    struct watch *second;
    const struct watch_host host = { b, event_record, proceed };
    db_unlock(d);
    CHECK_OK(db_watch_lock(d, &why));
    CHECK_EQ(watch_open(&second, &b->o, &host, &why), ERR_USAGE);
    CHECK(!second);
    db_close(d);
}

/* Bug: an alert that an earlier watch stored made every later single round end with status 1, also where
 * nothing had evaluated the alert again. */
static void an_alert_that_was_not_evaluated_does_not_count(void **state)
{
    struct bench *b = *state;
    struct db *d;
    struct err why;
    put_value(b, "usual value", SUBJECT_OF_ITEM, log(1500));
    put_value(b, "usual value n", SUBJECT_OF_ITEM, 5);
    CHECK_EQ(round_of(b).highest, GRADE_WARNING);
    CHECK_EQ(round_of(b).highest, GRADE_WARNING); /* evaluated again, and still slow */
    expect_event(b, "still fires: now 33.3 % (fires above 20 %, ends at 15 %)");
    CHECK_OK(db_open(&d, b->db, &why));
    CHECK_OK(db_run_lock(d, 1, &why));
    const struct watch_summary s = round_of(b);
    db_close(d);
    CHECK_NEAR(s.highest, -1, 0);
    CHECK_NEAR(s.postponed, 1, 0);
    expect_event(b, "was not evaluated in this round and does not count: it fires since ");
    CHECK_NEAR(firing(b), 1, 0); /* it stays stored, for the next round that can evaluate it */
}

/* ---------------------------------------------------------------- a busy machine */

/* A /proc/stat in which the hypervisor takes all processor time while `busy`, whatever this machine does. */
struct busy_root {
    char path[320];
    _Atomic bool busy, stop;
    _Atomic bool by_programs; /* programs of this machine take it instead */
    pthread_t thread;
};

static void *busy_root_thread(void *arg)
{
    struct busy_root *r = arg;
    char name[360], temporary[360];
    double used = 0, idle = 0;
    int64_t was = clock_ns();
    snprintf(name, sizeof name, "%s/proc/stat", r->path);
    snprintf(temporary, sizeof temporary, "%s/proc/new", r->path);
    while (!r->stop) {
        const int64_t now = clock_ns();
        *(r->busy ? &used : &idle) += (double)(now - was) * 1e-7; /* ticks of 10 ms */
        was = now;
        FILE *f = fopen(temporary, "w");
        if (!f) break;
        const double user = r->by_programs ? used : 0, stolen = used - user;
        for (int i = 0; i < 2; i++)
            fprintf(f, "cpu%s %.0f 0 0 %.0f 0 0 0 %.0f 0 0\n", i ? "0" : "", user, idle, stolen);
        if (fclose(f) || rename(temporary, name)) break;
        clock_sleep_ns(20000000);
    }
    return NULL;
}

static void busy_root_open(struct busy_root *r, struct bench *b)
{
    char proc[360];
    *r = (struct busy_root){ .busy = true };
    snprintf(r->path, sizeof r->path, "%s/root", b->dir);
    snprintf(proc, sizeof proc, "%s/proc", r->path);
    assert_int_equal(mkdir(r->path, 0700), 0);
    assert_int_equal(mkdir(proc, 0700), 0);
    assert_int_equal(pthread_create(&r->thread, NULL, busy_root_thread, r), 0);
    b->o.root = r->path;
    b->o.even_if_busy = false;
    b->item.config = fake_config("rate=1000+noise=0.001+sleep_ms=300");
}

static void busy_root_close(struct busy_root *r)
{
    r->stop = true;
    pthread_join(r->thread, NULL);
}

static void a_wait_for_quiet_ends_at_its_deadline(void **state)
{
    struct bench *b = *state;
    struct busy_root root;
    busy_root_open(&root, b);
    struct watch_summary s = round_of(b); /* without a wait */
    CHECK_EQ(s.postponed, 1);
    CHECK_EQ(s.measured, 0);
    b->o.wait_quiet_s = 1;
    s = round_of(b);
    CHECK_EQ(s.measured, 1);
    CHECK_EQ(s.postponed, 0);
    CHECK_EQ(s.failed, 0);
    expect_event(b, "waiting for a quiet machine, at most 1 s: the hypervisor took processor time");
    expect_event(b, "not quiet in time: disturbed cells count from now on");
    expect_event(b, "3 of 3 cells disturbed: the hypervisor took processor time");
    busy_root_close(&root);
}

/* Bug: the load of an A/B in another process of qdyno fired the alert about busy CPUs. */
static void the_load_of_another_measurement_is_no_alert(void **state)
{
    struct bench *b = *state;
    struct busy_root root;
    struct db *d;
    struct err why;
    busy_root_open(&root, b);
    root.by_programs = true;
    rules_enable_only(&b->o.rules, "busy", "busy");
    CHECK_OK(db_open(&d, b->db, &why));
    CHECK_OK(db_run_lock(d, 1, &why));
    (void)round_of(b);
    CHECK_EQ(b->counts[WATCH_FIRING], 0);
    db_unlock(d);
    (void)round_of(b);
    CHECK_EQ(b->counts[WATCH_FIRING], 1);
    expect_event(b, "the CPUs are 100 % busy");
    db_close(d);
    busy_root_close(&root);
}

static struct busy_root *becomes_quiet; /* when the watch has said that it waits */

static bool proceed_quietly(void *ctx)
{
    struct bench *b = ctx;
    if (b->counts[WATCH_POSTPONED]) becomes_quiet->busy = false;
    return true;
}

static void a_wait_for_quiet_ends_when_it_is_quiet(void **state)
{
    struct bench *b = *state;
    struct busy_root root;
    struct err why;
    struct watch_summary s;
    const struct watch_host host = { b, event_record, proceed_quietly };
    busy_root_open(&root, b);
    becomes_quiet = &root;
    b->o.wait_quiet_s = 3600;
    CHECK_OK(watch_open(&b->w, &b->o, &host, &why));
    watch_step(b->w);
    watch_summary(b->w, &s);
    watch_close(b->w);
    CHECK_EQ(s.measured, 1);
    CHECK_EQ(s.postponed, 0);
    CHECK_EQ(b->counts[WATCH_POSTPONED], 1);
    expect_event(b, "waiting for a quiet machine, at most 60 min");
    CHECK_EQ(strstr(str_text(&b->said), "disturbed"), NULL);
    busy_root_close(&root);
}

static bool stop_in_the_cell(void *ctx)
{
    struct bench *b = ctx;
    return ++b->counts[15] < 20;
}

static void a_stop_leaves_no_half_run(void **state)
{
    struct bench *b = *state;
    struct err why;
    struct db *d;
    struct run_row *runs;
    int n;
    const struct watch_host host = { b, event_record, stop_in_the_cell };
    b->item.config = fake_config("rate=1000+sleep_ms=2000");
    CHECK_OK(watch_open(&b->w, &b->o, &host, &why));
    CHECK(!watch_step(b->w));
    watch_close(b->w);
    CHECK(!b->counts[WATCH_FAILED]);
    CHECK(!b->counts[WATCH_FIRING]);
    CHECK_OK(db_open(&d, b->db, &why));
    CHECK_OK(db_run_list(d, NULL, 10, &runs, &n, &why));
    for (int i = 0; i < n; i++) {
        assert_string_equal(runs[i].state, "stopped");
        run_row_free(&runs[i]);
    }
    free(runs);
    db_close(d);
}

static void quality_beyond_its_limit_fires(void **state)
{
    struct bench *b = *state;
    rules_enable_only(&b->o.rules, "quality", "quality");
    b->item.config = fake_config("rate=1000+kld=0.2+kld_se=0.01");
    b->o.reference = "model=fake:rate=1";
    struct watch_summary s = round_of(b);
    CHECK_EQ(s.highest, GRADE_WARNING);
    expect_event(b, "KL divergence from the reference is 0.2 nats");
}

/* ---------------------------------------------------------------- rollback */

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK_NE(f, NULL);
    fputs(text, f);
    fclose(f);
}

static void says(const char *path, const char *text)
{
    struct err why;
    char *got;
    CHECK_OK(file_read(&got, NULL, path, 1 << 16, &why));
    if (!strstr(got, text)) fail_msg("%s does not say '%s': %s", path, text, got);
    free(got);
}

static void a_rollback_where_it_helps(void **state)
{
    struct bench *b = *state;
    char path[300], previous[320];
    snprintf(path, sizeof path, "%s/model.conf", b->dir);
    snprintf(previous, sizeof previous, "%s.previous", path);
    write_file(path, "# mine\nmodel=fake:rate=400,threads=2\n");
    set_baseline(b, "model=fake:rate=1000,threads=1", 1000);
    b->o.rollback = path;
    struct watch_summary s = round_of(b);
    CHECK(s.highest == GRADE_CRITICAL || s.highest == GRADE_WARNING);
    expect_event(b, "rolled back to model=fake:rate=1000,threads=1: it is 150 %");
    says(path, "threads=1");
    says(previous, "# mine\nmodel=fake:rate=400,threads=2\n");
    s = round_of(b);
    expect_event(b, "the rollback helped: +150");
    CHECK_NEAR(s.highest, -1, 0);
    CHECK_NEAR(firing(b), 0, 0); /* the slow config's alert ended with it */
    round_of(b);
    CHECK(!b->counts[WATCH_ROLLBACK]); /* reported once */
}

static void no_rollback_where_the_machine_is_slow(void **state)
{
    struct bench *b = *state;
    char path[300];
    snprintf(path, sizeof path, "%s/model.conf", b->dir);
    write_file(path, "model=fake:rate=400,threads=2");
    set_baseline(b, "model=fake:rate=404,threads=1", 1000);
    b->o.rollback = path;
    round_of(b);
    expect_event(b, "not rolled back: the champion");
    says(path, "threads=2");
    CHECK_LE(1, firing(b));
}

static void rollbacks_that_cannot_be_are_refused(void **state)
{
    struct bench *b = *state;
    struct err why;
    struct watch *w;
    char path[300];
    const struct watch_host host = { b, event_record, proceed };
    snprintf(path, sizeof path, "%s/none.conf", b->dir);
    b->o.rollback = path;
    CHECK_EQ(watch_open(&w, &b->o, &host, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "baseline set");
    set_baseline(b, "threads=1", 1000);
    CHECK_EQ(watch_open(&w, &b->o, &host, &why), ERR_IO);
    write_file(path, "# nothing\n\n");
    CHECK_EQ(watch_open(&w, &b->o, &host, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "expected a config line");
}

/* ---------------------------------------------------------------- telling others */

static void notices_wait_for_their_receiver(void **state)
{
    struct bench *b = *state;
    struct db *d;
    struct err why;
    struct notice_row n;
    bool found;
    put_value(b, "usual value", SUBJECT_OF_ITEM, log(1500));
    put_value(b, "usual value n", SUBJECT_OF_ITEM, 5);
    b->o.webhook = "http://127.0.0.1:1/none"; /* no server listens on port 1 */
    round_of(b);
    CHECK_NEAR(b->counts[WATCH_NOTICE], 1, 0);
    expect_event(b, "the webhook does not accept notices");
    put_value(b, "usual value", SUBJECT_OF_ITEM, log(1000));
    round_of(b);
    expect_event(b, "1 notice waits");
    CHECK_OK(db_open(&d, b->db, &why));
    char name[WEBHOOK_NAME];
    webhook_name(b->o.webhook, name);
    CHECK_LACKS(name, "none"); /* the path may be a password */
    assert_int_equal(db_notice_count(d, name), 2);
    CHECK_OK(db_notice_next(d, name, INT64_MAX, &n, &found, &why));
    CHECK(found);
    CHECK_CONTAINS(n.body, "\"status\":\"firing\"");
    CHECK_LE(1, n.attempts);
    notice_row_free(&n);
    db_close(d);
}

/* The database refuses an alert: the notice is sent at once, and a failure to send it is reported. */
static void an_alert_that_cannot_be_stored_is_sent_at_once(void **state)
{
    struct bench *b = *state;
    struct db *d;
    struct err why;
    struct alert_row other = { .name = "performance", .grade = "warning", .since_ms = 1 };
    const struct watch_host host = { b, event_record, proceed };
    put_value(b, "usual value", SUBJECT_OF_ITEM, log(1500));
    put_value(b, "usual value n", SUBJECT_OF_ITEM, 5);
    b->o.webhook = "http://127.0.0.1:1/none";
    CHECK_OK(watch_open(&b->w, &b->o, &host, &why));
    CHECK_OK(db_open(&d, b->db, &why)); /* a row with the same id is in the way */
    snprintf(other.machine, sizeof other.machine, "%s", b->machine.id);
    snprintf(other.subject, sizeof other.subject, "%s", SUBJECT_OF_ITEM);
    CHECK_OK(db_alert_begin(d, &other, NULL, 0, &why));
    watch_step(b->w);
    watch_close(b->w);
    CHECK_NEAR(b->counts[WATCH_FIRING], 1, 0);
    CHECK_NEAR(b->counts[WATCH_TROUBLE], 1, 0);
    expect_event(b, "neither be stored nor sent, and is lost: cannot reach");
    db_close(d);
}

static bool stop_when_noticed(void *ctx)
{
    struct bench *b = ctx;
    const int asks_most = 600; /* ten a second */
    return !b->noticed && ++b->counts[15] < asks_most;
}

/* The watch ends during the measurement, so only the measurement's time is left for sending. */
static void notices_are_sent_during_a_measurement(void **state)
{
    struct bench *b = *state;
    struct db *d;
    struct err why;
    struct alert_row row = { .name = "performance", .grade = "warning", .since_ms = 1 };
    const struct watch_host host = { b, event_record, stop_when_noticed };
    b->o.webhook = "http://127.0.0.1:1/none";
    b->item.config = fake_config("rate=1000+sleep_ms=300000");
    struct notice_row notice = { .kind = "webhook", .url = (char *)b->o.webhook, .body = (char *)"{}" };
    snprintf(row.machine, sizeof row.machine, "%s", b->machine.id);
    snprintf(row.subject, sizeof row.subject, "%s", SUBJECT_OF_ITEM);
    CHECK_OK(db_open(&d, b->db, &why));
    CHECK_OK(db_alert_begin(d, &row, &notice, 1, &why));
    db_close(d);
    CHECK_OK(watch_open(&b->w, &b->o, &host, &why));
    CHECK(!watch_step(b->w));
    watch_close(b->w);
    CHECK(b->noticed);
    expect_event(b, "the webhook does not accept notices");
}

static void documents_have_their_fields(void **state)
{
    (void)state;
    struct machine m = { .id = "ab12cd34ef56", .host = "box" };
    struct alert_row row = { .since_ms = 1700000000000, .value = 0.95, .threshold = 0.9, .ended_ms = 0 };
    snprintf(row.machine, sizeof row.machine, "%s", m.id);
    snprintf(row.name, sizeof row.name, "gpu_memory");
    snprintf(row.subject, sizeof row.subject, "gpu0");
    snprintf(row.grade, sizeof row.grade, "warning");
    snprintf(row.text, sizeof row.text, "95 %% of it");
    json_t *o = notice_document(&m, &row, alert_find("gpu_memory"), NOTICE_FIRING, "more of it");
    assert_string_equal(json_get_str(o, "schema", ""), "qdyno.alert/1");
    assert_string_equal(json_get_str(o, "status", ""), "firing");
    assert_string_equal(json_get_str(o, "summary", ""), "gpu0: 95 % of it");
    assert_string_equal(json_get_str(o, "since", ""), "2023-11-14T22:13:20Z");
    assert_string_equal(json_get_str(o, "suggestion", ""), "more of it");
    CHECK_EQ(json_get_num(o, "value", NAN), 0.95);
    CHECK(json_is_null(json_object_get(o, "ended")));
    json_t *labels = json_object_get(o, "labels");
    assert_string_equal(json_get_str(labels, "alertname", ""), "QdynoGpuMemory");
    assert_string_equal(json_get_str(labels, "host", ""), "box");
    json_decref(o);

    struct alert_row rows[3] = { row, row, row };
    const int64_t now = row.since_ms + 3600000;
    rows[1].ended_ms = now - 60000;
    rows[2].ended_ms = now - 3000000; /* ended long ago */
    o = alertmanager_document(&m, rows, 3, now);
    assert_int_equal(json_array_size(o), 2);
    assert_string_equal(json_get_str(json_array_get(o, 0), "startsAt", ""), "2023-11-14T22:13:20Z");
    assert_string_equal(json_get_str(json_array_get(o, 0), "endsAt", ""), "2023-11-14T23:18:20Z");
    assert_string_equal(json_get_str(json_array_get(o, 1), "endsAt", ""), "2023-11-14T23:12:20Z");
    json_decref(o);
    /* the clock was set back since: an alert begins now at the latest, and an end in the future is not sent
     */
    o = alertmanager_document(&m, rows, 3, rows[0].since_ms - INT64_C(31536000000));
    assert_int_equal(json_array_size(o), 1);
    assert_string_equal(json_get_str(json_array_get(o, 0), "startsAt", ""), "2022-11-14T22:13:20Z");
    assert_string_equal(json_get_str(json_array_get(o, 0), "endsAt", ""), "2022-11-14T22:18:20Z");
    json_decref(o);
}

static void the_latest_values_are_exported(void **state)
{
    struct bench *b = *state;
    struct db *d;
    struct err why;
    struct exposition e = { 0 };
    struct watch_export exported = { 0 };
    put_value(b, "usual value", SUBJECT_OF_ITEM, log(1500));
    put_value(b, "usual value n", SUBJECT_OF_ITEM, 5);
    round_of(b);
    CHECK_OK(db_open(&d, b->db, &why));
    struct family_sink sink = exposition_sink(&e);
    CHECK_OK(watch_export_read(&exported, d, b->machine.id, &why));
    watch_export_write(&exported, &sink);
    CHECK(!e.bad.code);
    const char *page = str_text(&e.text);
    const char *ratio = strstr(
        page, "qdyno_watch_performance_ratio{subject=\"fake:rate=1000+noise=0.001 tg8 default\"} 0.66");
    if (!ratio) fail_msg("%s", page);
    CHECK_CONTAINS(page, "qdyno_watch_alert_firing{alert=\"performance\",severity=\"warning\"");
    CHECK_CONTAINS(page, "\nqdyno_watch_errors_ratio 0\n");
    CHECK_CONTAINS(page, "\nqdyno_watch_notices_waiting 0\n");
    CHECK_CONTAINS(page, "\nqdyno_watch_last_success_timestamp_seconds 1");
    exposition_free(&e);
    e = (struct exposition){ 0 };
    sink = exposition_sink(&e);
    /* no watch on this machine: nothing is exported */
    CHECK_OK(watch_export_read(&exported, d, "another", &why));
    watch_export_write(&exported, &sink);
    watch_export_free(&exported);
    assert_string_equal(str_text(&e.text), "");
    exposition_free(&e);
    db_close(d);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, bench_open, bench_close)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sensors_become_signals),
        cmocka_unit_test(the_suggestion_is_computed),
        T(usual_values_are_learned),
        T(a_slow_round_fires_once_and_ends),
        T(forgetting_learns_anew),
        T(alerts_of_removed_workloads_end),
        T(the_baseline_is_the_reference),
        T(failures_are_counted),
        T(another_measurement_postpones_the_round),
        T(an_alert_that_was_not_evaluated_does_not_count),
        T(the_load_of_another_measurement_is_no_alert),
        T(a_wait_for_quiet_ends_at_its_deadline),
        T(a_wait_for_quiet_ends_when_it_is_quiet),
        T(a_stop_leaves_no_half_run),
        T(quality_beyond_its_limit_fires),
        T(a_rollback_where_it_helps),
        T(no_rollback_where_the_machine_is_slow),
        T(rollbacks_that_cannot_be_are_refused),
        T(notices_wait_for_their_receiver),
        T(an_alert_that_cannot_be_stored_is_sent_at_once),
        T(notices_are_sent_during_a_measurement),
        cmocka_unit_test(documents_have_their_fields),
        T(the_latest_values_are_exported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
