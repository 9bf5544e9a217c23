/* Proves: perf events are encoded as the format folders of units describe, and refused if a chip encodes
 * them differently; a counter follows a thread into processes it starts, adds up, and keeps its count when
 * they end; for what cannot be counted there is a reason. Counting is tested with page faults, which every
 * kernel counts. */
#include "tests/telemetry/roots.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/perf.h"
#include "telemetry/sensors/sensors.h"

#define UNITS "sys/bus/event_source/devices/"

static void unit_write(const struct root *r, const char *unit, const char *file, const char *text)
{
    char name[160];
    snprintf(name, sizeof name, UNITS "%s/%s", unit, file);
    root_write(r, name, text);
}

static void events_as_the_folders_say(void **state)
{
    (void)state;
    struct root r = root_empty();
    struct perf_event e;
    unit_write(&r, "uncore_imc_0", "type", "18\n");
    unit_write(&r, "uncore_imc_0", "format/event", "config:0-7\n");
    unit_write(&r, "uncore_imc_0", "format/umask", "config:8-15\n");
    unit_write(&r, "uncore_imc_0", "format/edge", "config:18\n");
    unit_write(&r, "uncore_imc_0", "format/wide", "config:0-7,21,60-63\n");
    unit_write(&r, "uncore_imc_0", "format/other", "config1:0-7\n");
    unit_write(&r, "uncore_imc_0", "format/all", "config:0-63\n");
    unit_write(&r, "uncore_imc_0", "events/cas_count_read", "event=0x04,umask=0x03\n");
    unit_write(&r, "uncore_imc_0", "events/cas_count_read.scale", "6.103515625e-5\n");
    unit_write(&r, "uncore_imc_0", "events/cas_count_read.unit", "MiB\n");
    unit_write(&r, "uncore_imc_0", "events/clockticks", "event=0x00,edge\n");
    unit_write(&r, "uncore_imc_0", "events/broken", "event=,umask=0x03\n");
    CHECK(perf_event_find(&e, r.path, "uncore_imc_0", "cas_count_read"));
    assert_int_equal(e.type, 18);
    assert_int_equal(e.config, 0x0304);
    CHECK_NEAR(e.scale, 64, 1e-9); /* bytes */
    CHECK(perf_event_find(&e, r.path, "uncore_imc_0", "clockticks"));
    assert_int_equal(e.config, 1 << 18);
    CHECK_NEAR(e.scale, 1, 0);
    CHECK(perf_event_find(&e, r.path, "uncore_imc_0", "wide=0x1b5a"));
    CHECK_EQ(e.config, (UINT64_C(0x5a) | UINT64_C(1) << 21 | UINT64_C(0xd) << 60));
    CHECK(perf_event_find(&e, r.path, "uncore_imc_0", "all=0xffffffffffffffff"));
    CHECK_EQ(e.config, UINT64_MAX);
    static const char *const REFUSED[] = {
        "cas_count_write", "event=0x100", "wide=0x2000", "other=1",
        "nothing=1",       "broken",      "event=x",     "event=1,nothing=0",
    };
    for (size_t i = 0; i < COUNT_OF(REFUSED); i++)
        if (perf_event_find(&e, r.path, "uncore_imc_0", REFUSED[i])) fail_msg("'%s' was taken", REFUSED[i]);
    CHECK(!perf_event_find(&e, r.path, "uncore_imc_1", "event=1"));
    static const char *const GARBAGE[] = { "",           "config",      "config:",     "config:x",
                                           "config:3-1", "config:0-64", "config:0-7;9" };
    for (size_t i = 0; i < COUNT_OF(GARBAGE); i++) {
        unit_write(&r, "uncore_imc_0", "format/event", GARBAGE[i]);
        if (perf_event_find(&e, r.path, "uncore_imc_0", "event=1"))
            fail_msg("format '%s' was taken", GARBAGE[i]);
    }
    root_remove(&r);
}

enum { PAGES = 500 };
static void touch_pages(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) _exit(1);
    madvise(p, PAGES * page, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < PAGES; i++) ((volatile char *)p)[i * page] = 1;
    munmap(p, PAGES * page);
}

/* A child that touches pages on command: itself ('s'), or in a new process ('p'). */
static pid_t child_start(int in[2], int out[2])
{
    assert_int_equal(pipe(in) | pipe(out), 0);
    const pid_t child = fork();
    if (child) return child;
    close(in[1]);
    for (char order; read(in[0], &order, 1) == 1;) {
        if (order == 's') touch_pages();
        if (order == 'p') {
            pid_t grandchild = fork();
            if (!grandchild) {
                touch_pages();
                _exit(0);
            }
            waitpid(grandchild, NULL, 0);
        }
        if (write(out[1], &order, 1) != 1) break;
    }
    _exit(0);
}

static void child_does(int in[2], int out[2], char order)
{
    char answer;
    assert_int_equal(write(in[1], &order, 1), 1);
    assert_int_equal(read(out[0], &answer, 1), 1);
}

static void a_tree_is_counted(void **state)
{
    (void)state;
    const struct perf_event faults = { .type = PERF_TYPE_SOFTWARE,
                                       .config = PERF_COUNT_SW_PAGE_FAULTS,
                                       .scale = 2 };
    struct perf_sum sum = { 0 };
    int in[2], out[2];
    CHECK_NAN(perf_sum_read(&sum)); /* no counter knows nothing */
    const pid_t child = child_start(in, out);
    child_does(in, out, 's'); /* before: not counted */
    const int rc = perf_sum_add(&sum, &faults, (int)child, -1);
    if (rc) {
        print_message("SKIPPED: perf_event_open: %s\n", strerror(rc));
        CHECK(*perf_advice(rc, false));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        skip();
    }
    const double zero = perf_sum_read(&sum);
    CHECK_LE(0, zero);
    CHECK_LT(zero, 2 * PAGES);
    child_does(in, out, 's');
    const double one = perf_sum_read(&sum);
    CHECK_LE(zero + 2 * PAGES, one);
#ifndef __SANITIZE_THREAD__          /* whose shadow of each page is pages, too */
    CHECK_LT(one, zero + 4 * PAGES); /* a count is worth 2 */
#endif
    child_does(in, out, 'p');
    const double two = perf_sum_read(&sum);
    CHECK_LE(one + 2 * PAGES, two);
#ifndef __SANITIZE_THREAD__
    CHECK_LT(two, one + 6 * PAGES); /* and some faults of fork itself */
#endif
    close(in[1]);
    waitpid(child, NULL, 0);
    const double end = perf_sum_read(&sum);
    CHECK_LE(two, end);
    CHECK_LT(end, two + 2 * PAGES); /* gone, but not forgotten */
    assert_int_equal(perf_sum_add(&sum, &faults, (int)child, -1), ESRCH);
    perf_sum_close(&sum);
    assert_int_equal(sum.n, 0);
    close(in[0]);
    close(out[0]);
    close(out[1]);
}

static void every_error_has_an_advice(void **state)
{
    (void)state;
    static const int ERRORS[] = { EACCES, EPERM, EMFILE, ENOSYS, ESRCH, ENOENT, EINVAL };
    for (size_t i = 0; i < COUNT_OF(ERRORS); i++) {
        CHECK(*perf_advice(ERRORS[i], true));
        CHECK(*perf_advice(ERRORS[i], false));
    }
    CHECK_CONTAINS(perf_advice(EACCES, true), "perf_event_paranoid=0");
    CHECK_CONTAINS(perf_advice(EACCES, false), "perf_event_paranoid=2");
}

/* On this machine each metric has either a value or a reason why not. */
static void this_machine_counts_or_says_why(void **state)
{
    (void)state;
    static const enum metric_id IDS[] = { METRIC_PROC_CYCLES, METRIC_PROC_INSTRUCTIONS, METRIC_CPU_CYCLES,
                                          METRIC_CPU_INSTRUCTIONS };
    double row[METRIC_SENSOR_COUNT];
    struct telemetry *t;
    struct err why;
    CHECK_OK(telemetry_open(&t, "", &why));
    telemetry_monitor_process(t, (int)getpid());
    telemetry_sample(t, row);
    touch_pages();
    clock_sleep_ns(50 * 1000000);
    telemetry_sample(t, row);
    for (size_t i = 0; i < COUNT_OF(IDS); i++) {
        const char *absent = telemetry_absence(t, IDS[i], NULL);
        print_message("%s: %g %s\n", METRICS[IDS[i]].name, row[IDS[i]], absent);
        CHECK_EQ(isnan(row[IDS[i]]), (*absent != '\0'));
        if (!isnan(row[IDS[i]])) CHECK_LT(0, row[IDS[i]]);
    }
    telemetry_monitor_process(t, 0);
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_PROC_CYCLES]);
    telemetry_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_as_the_folders_say),
        cmocka_unit_test(a_tree_is_counted),
        cmocka_unit_test(every_error_has_an_advice),
        cmocka_unit_test(this_machine_counts_or_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
