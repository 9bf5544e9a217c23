/* Proves: the processors, cores and threads that a process may use follow from affinity mask, cpusets and CPU
 * quotas of both versions of control groups at every level, also in containers that show a part of the
 * machine, with long lists, and where files are absent or malformed. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/check.h"

enum { FILES = 10, PATH_SIZE = 256 };

static char root[PATH_SIZE];

static void write_file(const char *path, const char *text)
{
    char full[2 * PATH_SIZE];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int open_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s/usable_cpus.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[2 * PATH_SIZE];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

/* Processors `first` to `last`; with pair > 0, processor c and c + pair are one core. */
static void write_processors(const char *online, int first, int last, int pair)
{
    write_file("sys/devices/system/cpu/online", online);
    for (int c = first; c <= last; c++) {
        char path[PATH_SIZE], list[64];
        snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", c);
        if (pair)
            snprintf(list, sizeof list, "%d,%d\n", c % pair, c % pair + pair);
        else
            snprintf(list, sizeof list, "%d\n", c);
        write_file(path, list);
    }
}

static void write_status(const char *list)
{
    char text[1024];
    snprintf(text, sizeof text,
             "Name:\tqdyno\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\nMems_allowed_list:\t0\n", list);
    write_file("proc/self/status", text);
}

struct limits {
    const char *name;
    struct {
        const char *path, *text;
    } file[FILES];
    int processors, cores, threads;
    double quota;
};

#define V2 "sys/fs/cgroup"
static const struct limits LIMITS[] = {
    { "none", { { NULL, NULL } }, 8, 4, 4, NAN },
    { "mask of one processor", { { "proc/self/status", "Cpus_allowed_list:\t1\n" } }, 1, 1, 1, NAN },
    { "mask of both threads of a core",
      { { "proc/self/status", "Cpus_allowed_list:\t2,6\n" } },
      2,
      1,
      1,
      NAN },
    { "mask of second threads", { { "proc/self/status", "Cpus_allowed_list:\t4-7\n" } }, 4, 4, 4, NAN },
    { "mask that is no list", { { "proc/self/status", "Cpus_allowed_list:\tall\n" } }, 8, 4, 4, NAN },
    { "mask of processors that do not exist",
      { { "proc/self/status", "Cpus_allowed_list:\t90-91\n" } },
      8,
      4,
      4,
      NAN },
    { "quota of the own group",
      { { "proc/self/cgroup", "0::/a/b\n" }, { V2 "/a/b/cpu.max", "250000 100000\n" } },
      8,
      4,
      2,
      2.5 },
    { "quota of the parent is lower",
      { { "proc/self/cgroup", "0::/a/b\n" },
        { V2 "/a/b/cpu.max", "300000 100000\n" },
        { V2 "/a/cpu.max", "150000 100000\n" } },
      8,
      4,
      1,
      1.5 },
    { "quota of the top group",
      { { "proc/self/cgroup", "0::/a\n" }, { V2 "/cpu.max", "50000 100000\n" } },
      8,
      4,
      1,
      0.5 },
    { "no quota is the text max",
      { { "proc/self/cgroup", "0::/a\n" }, { V2 "/a/cpu.max", "max 100000\n" } },
      8,
      4,
      4,
      NAN },
    { "quota above the cores",
      { { "proc/self/cgroup", "0::/a\n" }, { V2 "/a/cpu.max", "1600000 100000\n" } },
      8,
      4,
      4,
      16 },
    { "version 1 quota, nested",
      { { "proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n" },
        { V2 "/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n" },
        { V2 "/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n" },
        { V2 "/cpu,cpuacct/docker/cpu.cfs_quota_us", "200000\n" },
        { V2 "/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n" } },
      8,
      4,
      2,
      2 },
    { "version 1 cpuset",
      { { "proc/self/cgroup", "3:cpuset:/x\n" }, { V2 "/cpuset/x/cpuset.cpus", "0-2\n" } },
      3,
      3,
      3,
      NAN },
    { "cpuset and mask",
      { { "proc/self/cgroup", "0::/a\n" },
        { V2 "/a/cpuset.cpus.effective", "0-3\n" },
        { "proc/self/status", "Cpus_allowed_list:\t3-6\n" } },
      1,
      1,
      1,
      NAN },
    { "mask and quota",
      { { "proc/self/cgroup", "0::/a\n" },
        { V2 "/a/cpu.max", "100000 100000\n" },
        { "proc/self/status", "Cpus_allowed_list:\t0-2\n" } },
      3,
      3,
      1,
      1 },
};

static void limits_are_combined(void **state)
{
    for (size_t i = 0; i < COUNT_OF(LIMITS); i++) {
        const struct limits *l = &LIMITS[i];
        struct usable_cpus u;
        assert_int_equal(open_root(state), 0);
        write_processors("0-7\n", 0, 7, 4);
        write_status("0-7");
        for (int f = 0; f < FILES && l->file[f].path; f++) write_file(l->file[f].path, l->file[f].text);
        usable_cpus_read(&u, root);
        if (u.processors != l->processors || u.cores != l->cores || u.threads != l->threads)
            fail_msg("%s: %d processors, %d cores, %d threads", l->name, u.processors, u.cores, u.threads);
        CHECK(isnan(l->quota) ? isnan(u.quota_cpus) : u.quota_cpus == l->quota);
        assert_int_equal(u.online, 8);
        assert_int_equal(u.online_cores, 4);
        assert_int_equal(remove_root(state), 0);
    }
}

/* A container that shows processors 7 and 8: their siblings, the first of their cores, are not visible. */
static void hidden_siblings_do_not_count(void **state)
{
    struct usable_cpus u;
    assert_int_equal(open_root(state), 0);
    write_processors("7-8\n", 7, 8, 0);
    write_file("sys/devices/system/cpu/cpu7/topology/thread_siblings_list", "7,15\n");
    write_file("sys/devices/system/cpu/cpu8/topology/thread_siblings_list", "0,8\n");
    usable_cpus_read(&u, root);
    assert_int_equal(u.processors, 2);
    assert_int_equal(u.cores, 2);
    assert_int_equal(u.threads, 2);
    assert_int_equal(remove_root(state), 0);
}

/* Every second processor of 4096: the list has 9 KB and must not be cut. */
static void long_lists_are_read_whole(void **state)
{
    struct usable_cpus u;
    struct str list = { 0 };
    assert_int_equal(open_root(state), 0);
    for (int c = 0; c < 4096; c += 2) str_printf(&list, "%s%d", c ? "," : "", c);
    write_file("sys/devices/system/cpu/online", "0-4095\n");
    write_file("proc/self/cgroup", "0::/a\n");
    write_file("sys/fs/cgroup/a/cpuset.cpus.effective", str_text(&list));
    usable_cpus_read(&u, root);
    assert_int_equal(u.processors, 2048);
    assert_int_equal(u.cpuset, 2048);
    CHECK(usable_cpus_has(&u, 4094));
    CHECK(!usable_cpus_has(&u, 4095));
    CHECK(!usable_cpus_has(&u, -1));
    CHECK(!usable_cpus_has(&u, USABLE_CPUS_MOST));
    str_free(&list);
    assert_int_equal(remove_root(state), 0);
}

/* No sysfs: the processors of the mask, with as many per core as /proc/cpuinfo says. */
static void works_without_sysfs(void **state)
{
    struct usable_cpus u;
    assert_int_equal(open_root(state), 0);
    usable_cpus_read(&u, root);
    assert_int_equal(u.processors, 0);
    assert_int_equal(u.threads, 1);
    write_status("0-5");
    usable_cpus_read(&u, root); /* only the mask is known */
    assert_int_equal(u.online, 0);
    assert_int_equal(u.threads, 6);
    write_file("proc/cpuinfo",
               "processor\t: 0\nsiblings\t: 6\ncpu cores\t: 3\n\nprocessor\t: 1\n\nprocessor\t: 2\n\n"
               "processor\t: 3\n\nprocessor\t: 4\n\nprocessor\t: 5\n");
    usable_cpus_read(&u, root);
    assert_int_equal(u.online, 6);
    assert_int_equal(u.processors, 6);
    assert_int_equal(u.cores, 3);
    assert_int_equal(u.threads, 3);
    assert_int_equal(remove_root(state), 0);
}

static void warnings_name_the_limit(void **state)
{
    (void)state;
    char text[320];
    struct usable_cpus u = {
        .online = 8, .online_cores = 4, .processors = 2, .cores = 2, .quota_cpus = NAN, .threads = 2
    };
    assert_string_equal(usable_cpus_warning(&u, 2, text, sizeof text), "");
    usable_cpus_warning(&u, 3, text, sizeof text);
    CHECK(strstr(text, "3 threads") && strstr(text, "2 of 8 processors"));
    u = (struct usable_cpus){ .online = 8, .processors = 8, .cores = 4, .quota_cpus = 1.5, .threads = 1 };
    assert_string_equal(usable_cpus_warning(&u, 2, text, sizeof text),
                        ""); /* 1.5 processors keep two threads busy */
    usable_cpus_warning(&u, 3, text, sizeof text);
    CHECK(strstr(text, "quota of 1.5"));
    u.quota_cpus = 0.5;
    assert_string_equal(usable_cpus_warning(&u, 1, text, sizeof text), ""); /* one thread cannot be fewer */
}

/* A process that may use one processor: its threads stay on it with every affinity, and a pool counts on no
 * more. In a child, because the limits are read once. */
static void pools_stay_within_the_mask(void **state)
{
    (void)state;
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int last = -1;
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &all)) last = c;
    const pid_t child = fork();
    if (!child) {
        cpu_set_t one, now;
        CPU_ZERO(&one);
        CPU_SET(last, &one);
        bool fine = !sched_setaffinity(0, sizeof one, &one) && usable_cpus()->processors == 1 &&
                    threadpool_default_threads() == 1;
        for (enum affinity a = AFFINITY_NONE; a <= AFFINITY_SPREAD && fine; a++)
            for (int threads = 1; threads <= 2 && fine; threads++) {
                struct threadpool *pool;
                const struct threadpool_options o = { .threads = threads, .affinity = a };
                fine = !threadpool_open(&pool, &o, NULL) && !sched_getaffinity(0, sizeof now, &now) &&
                       CPU_EQUAL(&now, &one);
                if (fine) threadpool_close(pool);
            }
        _exit(!fine);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_stay_within_the_mask), /* first: nothing asked for the limits yet */
        cmocka_unit_test(limits_are_combined),        cmocka_unit_test(hidden_siblings_do_not_count),
        cmocka_unit_test(long_lists_are_read_whole),  cmocka_unit_test(works_without_sysfs),
        cmocka_unit_test(warnings_name_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
