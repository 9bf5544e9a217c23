/* Proves: memory, NUMA, disks, C-states, energy, storage of the monitored process tree and control groups
 * are read correctly (values calculated by hand from the recorded machines); nothing is counted twice;
 * energy is correct when its counter wraps; an absent or denied sensor gives a reason. */
#include "tests/telemetry/spans.h"

#include <math.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"
#include "telemetry/sensors/source.h"

static double row[METRIC_SENSOR_COUNT];

static bool says(const struct telemetry *t, enum metric_id metric, const char *words)
{
    return strstr(telemetry_absence(t, metric, NULL), words) != NULL;
}

static void memory_gauges(void **state)
{
    (void)state;
    struct root r = root_get("avx2-laptop");
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_MEM_TOTAL], 16247316.0 * 1024, 0);
    CHECK_NEAR(row[METRIC_MEM_PAGE_CACHE], 2000000.0 * 1024, 0); /* without shared memory */
    CHECK_NEAR(row[METRIC_MEM_DIRTY], 1234.0 * 1024, 0);
    CHECK_NEAR(row[METRIC_MEM_THP], 204800.0 * 1024, 0);
    CHECK_NEAR(row[METRIC_HUGEPAGES_TOTAL], 16 << 20, 0);
    CHECK_NEAR(row[METRIC_HUGEPAGES_FREE], 10 << 20, 0);
    CHECK_NEAR(row[METRIC_SWAP_TOTAL], 2097148.0 * 1024, 0);
    telemetry_close(t);
}

static void laptop_swaps(const struct root *r)
{
    root_write(r, "proc/vmstat", "pswpin 500\npswpout 21\npgfault 9876643\npgmajfault 1099\n");
    root_write(r, "sys/devices/system/node/node0/numastat", "numa_hit 1000300\nnuma_miss 100\n");
}

static void memory_rates(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    struct telemetry *t = open_at(&r);
    struct span s = sample_after(t, row, &r, laptop_swaps);
    check_rate(row[METRIC_SWAP_OUT], 4.0 * (double)sysconf(_SC_PAGESIZE), s);
    CHECK_NEAR(row[METRIC_SWAP_IN], 0, 0);
    check_rate(row[METRIC_MEM_MAJOR_FAULTS], 10, s);
    check_rate(row[METRIC_MEM_MINOR_FAULTS], 90, s);
    CHECK_NEAR(row[METRIC_NUMA_HIT], 0.75, 1e-9);
    check_rate(row[METRIC_NUMA_MISSES], 100, s);
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_NUMA_HIT]); /* no page was wanted: no share of them */
    CHECK_NEAR(row[METRIC_NUMA_MISSES], 0, 0);
    telemetry_close(t);
    root_remove(&r);
}

static void second_node_works(const struct root *r)
{
    root_write(r, "sys/devices/system/node/node1/numastat", "numa_hit 5000091\nnuma_miss 1010\n");
}

static void all_nodes_count(void **state)
{
    (void)state;
    struct root r = root_copy("nvidia-box");
    struct telemetry *t = open_at(&r);
    sample_after(t, row, &r, second_node_works);
    CHECK_NEAR(row[METRIC_NUMA_HIT], 0.9, 1e-9);
    telemetry_close(t);
    root_remove(&r);
}

static void disks_work(const struct root *r)
{
    root_write(r, "proc/diskstats",
               " 259       0 nvme0n1 5000 100 1002000 3000 2000 50 400100 1500 0 7010 4500 0 0 0 0 0 0\n"
               " 259       1 nvme0n1p1 4000 100 902000 2500 1900 50 390100 1400 0 6510 3900 0 0 0 0 0 0\n"
               " 259       2 nvme0c0n1 5000 100 1002000 3000 2000 50 400100 1500 0 7010 4500 0 0 0 0 0 0\n"
               " 253       0 dm-0 4000 0 902000 2600 1950 0 390100 1600 0 6610 4200 0 0 0 0 0 0\n"
               "   7       0 loop0 10 0 1800 3 0 0 0 0 0 14 3 0 0 0 0 0 0\n"
               "   8       0 sda 300 0 20008 90 10 0 800 20 0 120 110\n");
}

/* A partition, a mapped device, a path and a loop show the same bytes again; two disks add up. */
static void disks_count_once(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    struct telemetry *t = open_at(&r);
    struct span s = sample_after(t, row, &r, disks_work);
    check_rate(row[METRIC_DISK_READ], (2000 + 8) * 512, s);
    check_rate(row[METRIC_DISK_WRITE], 100 * 512, s);
    check_rate(row[METRIC_DISK_BUSY], 0.020, s); /* the busier one, 20 of 50 ms */
    /* a disk that is pulled out takes its bytes along: unknown for once, not negative */
    root_write(&r, "proc/diskstats",
               " 259       0 nvme0n1 5000 100 1002000 3000 2000 50 400100 1500 0 7010 4500 0 0 0 0 0 0\n");
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_DISK_READ]);
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_DISK_READ], 0, 0);
    telemetry_close(t);
    root_write(&r, "proc/diskstats", NULL);
    t = open_at(&r);
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_DISK_READ]);
    CHECK(says(t, METRIC_DISK_READ, "/proc/diskstats"));
    telemetry_close(t);
    root_remove(&r);
}

static void laptop_sleeps(const struct root *r)
{
    /* of 8 processors one polls for 9 ms, one sleeps 8 ms lightly, one 16 ms deeply */
    root_write(r, "sys/devices/system/cpu/cpu1/cpuidle/state0/time", "9077\n");
    root_write(r, "sys/devices/system/cpu/cpu2/cpuidle/state1/time", "1008000\n");
    root_write(r, "sys/devices/system/cpu/cpu7/cpuidle/state2/time", "5016000\n");
}

static void cstates(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    struct telemetry *t = open_at(&r);
    struct span s = sample_after(t, row, &r, laptop_sleeps);
    check_rate(row[METRIC_CPU_CSTATE], (0.008 + 0.016) / 8, s);
    check_rate(row[METRIC_CPU_DEEPEST_CSTATE], 0.016 / 8, s);
    root_write(&r, "sys/devices/system/cpu/cpu7/cpuidle/state2/time", NULL); /* gone: no half answers */
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_CPU_CSTATE]);
    CHECK_NAN(row[METRIC_CPU_DEEPEST_CSTATE]);
    telemetry_close(t);
    root_remove(&r);
    struct root server = root_get("amx-server");
    t = open_at(&server);
    CHECK(says(t, METRIC_CPU_CSTATE, "cpuidle"));
    telemetry_close(t);
}

static double joules_of(const struct telemetry *t, const char *domain)
{
    struct energy_reading e[ENERGY_MAX];
    const int n = telemetry_energy(t, e, ENERGY_MAX);
    assert_int_equal(n, 5);
    for (int i = 0; i < n; i++)
        if (!strcmp(e[i].domain, domain)) return e[i].joules;
    fail_msg("no domain %s", domain);
    return NAN;
}

static void energy_is_used(const struct root *r)
{
    root_write(r, "sys/class/powercap/intel-rapl:0/energy_uj", "262143000000\n"); /* 1 J */
    root_write(r, "sys/class/powercap/intel-rapl:0:0/energy_uj", "1600000\n");    /* 0.6 J */
    root_write(r, "sys/class/powercap/intel-rapl:0:2/energy_uj", "250000\n");     /* wraps: 0.5 J */
    root_write(r, "sys/class/powercap/intel-rapl:1/energy_uj", "5000000\n");      /* 3 J */
}

static void energy_of_each_domain(void **state)
{
    (void)state;
    static const char *const ZONES[] = { "0", "0:0", "0:1", "0:2", "1" };
    struct root r = root_copy("avx2-laptop");
    for (size_t i = 0; i < COUNT_OF(ZONES); i++) {
        char name[96];
        snprintf(name, sizeof name, "sys/class/powercap/intel-rapl:%s/max_energy_range_uj", ZONES[i]);
        root_write(&r, name, i == 3 ? "65000000\n" : "262143328850\n");
        snprintf(name, sizeof name, "sys/class/powercap/intel-rapl:%s/energy_uj", ZONES[i]);
        root_write(&r, name,
                   i == 0   ? "262142000000\n"
                   : i == 1 ? "1000000\n"
                   : i == 3 ? "64750000\n"
                            : "2000000\n");
    }
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    CHECK_NAN(joules_of(t, "package-0")); /* one reading counts nothing */
    struct span s = sample_after(t, row, &r, energy_is_used);
    check_rate(row[METRIC_CPU_POWER], 1.0, s);
    check_rate(row[METRIC_CORES_POWER], 0.6, s);
    CHECK_NEAR(row[METRIC_UNCORE_POWER], 0, 0);
    check_rate(row[METRIC_DRAM_POWER], 0.5, s);
    check_rate(row[METRIC_SYSTEM_POWER], 3.0, s);
    CHECK_NEAR(joules_of(t, "package-0"), 1.0, 1e-6);
    CHECK_NEAR(joules_of(t, "package-0-core"), 0.6, 1e-6);
    CHECK_NEAR(joules_of(t, "package-0-dram"), 0.5, 1e-6);
    CHECK_NEAR(joules_of(t, "psys"), 3.0, 1e-6);
    root_write(&r, "sys/class/powercap/intel-rapl:0/energy_uj", "671150\n"); /* 1 J over the wrap */
    telemetry_sample(t, row);
    CHECK_NEAR(joules_of(t, "package-0"), 2.0, 1e-6);
    CHECK_NEAR(joules_of(t, "package-0-dram"), 0.5, 1e-6);
    root_write(&r, "sys/class/powercap/intel-rapl:0/energy_uj", "garbage\n");
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_CPU_POWER]);
    CHECK_NEAR(joules_of(t, "package-0"), 2.0, 1e-6); /* what was counted stays counted */
    telemetry_close(t);
    root_remove(&r);
}

/* A machine with the counters is not one without them. */
static void forbidden_energy_says_so(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop"), server = root_get("amx-server");
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command, "chmod -R a+rX '%s' && chmod 0 '%s'/sys/class/powercap/*/energy_uj",
             r.path, r.path);
    root_run(command);
    const bool root_user = geteuid() == 0;
    if (root_user) assert_int_equal(seteuid(65534), 0); /* root may read anything */
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    if (root_user) assert_int_equal(seteuid(0), 0);
    CHECK_NAN(row[METRIC_CPU_POWER]);
    CHECK_NAN(row[METRIC_DRAM_POWER]);
    CHECK(says(t, METRIC_CPU_POWER, "only root"));
    CHECK(says(t, METRIC_DRAM_POWER, "chmod"));
    bool denied = false;
    telemetry_absence(t, METRIC_DRAM_POWER, &denied);
    CHECK(denied);
    telemetry_close(t);
    t = open_at(&server);
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_CPU_POWER]);
    CHECK(says(t, METRIC_CPU_POWER, "no RAPL"));
    CHECK(!says(t, METRIC_CPU_POWER, "only root"));
    telemetry_absence(t, METRIC_CPU_POWER, &denied);
    CHECK(!denied);
    telemetry_close(t);
    root_remove(&r);
}

static void tree_reads(const struct root *r)
{
    root_write(r, "proc/100/io",
               "rchar: 1\nread_bytes: 8192000\nwrite_bytes: 12288\ncancelled_write_bytes: 0\n");
    root_write(r, "proc/200/io", "rchar: 1\nread_bytes: 1004544\nwrite_bytes: 0\ncancelled_write_bytes: 0\n");
}

static void storage_of_the_tree(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_PROC_READ]);
    CHECK(says(t, METRIC_PROC_READ, "no process is monitored"));
    telemetry_monitor_process(t, 100);
    struct span s = sample_after(t, row, &r, tree_reads);
    check_rate(row[METRIC_PROC_READ], 4096000 + 4096, s);
    check_rate(row[METRIC_PROC_WRITE], 4096, s);
    CHECK_NEAR(*telemetry_absence(t, METRIC_PROC_READ, NULL), 0, 0);
    /* the child ends and is waited for: its bytes are its parent's now */
    root_write(&r, "proc/200/io", NULL);
    root_write(&r, "proc/200/stat", NULL);
    root_write(&r, "proc/100/io", "read_bytes: 9196544\nwrite_bytes: 12288\n");
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_PROC_READ], 0, 0);
    root_write(&r, "proc/100/io", NULL); /* and the first process, in the middle of things */
    root_write(&r, "proc/100/stat", NULL);
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_PROC_READ]);
    CHECK_NAN(row[METRIC_PROC_RSS]);
    telemetry_close(t);
    root_remove(&r);
}

static void container_works(const struct root *r)
{
    root_write(r, "sys/fs/cgroup/cpu.stat",
               "usage_usec 30015000\nnr_periods 1020\nnr_throttled 45\nthrottled_usec 2900000\n");
    root_write(r, "sys/fs/cgroup/memory.current", "1600000000\n");
}

static void container_uses_its_budget(void **state)
{
    (void)state;
    struct root r = root_copy("cgroup-container");
    struct telemetry *t = open_at(&r);
    struct span s = sample_after(t, row, &r, container_works);
    CHECK_NEAR(row[METRIC_CGROUP_MEM_USED], 1600000000, 0);
    CHECK_NEAR(row[METRIC_CGROUP_MEM_LIMIT], 2147483648.0, 0);
    check_rate(row[METRIC_CGROUP_CPU], 0.015, s);
    CHECK_NEAR(row[METRIC_CGROUP_CPU_LIMIT], 1.5, 1e-12);
    CHECK_NEAR(row[METRIC_CGROUP_THROTTLED], 0.25, 1e-9);
    check_rate(row[METRIC_CGROUP_THROTTLED_TIME], 0.4, s); /* on several processors at once */
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_CGROUP_THROTTLED], 0, 0); /* idle: nothing was stopped */
    telemetry_close(t);
    root_remove(&r);
}

#define STAT_OF(TICKS)                                                                                       \
    "100 (qdyno) S 1 100 100 0 -1 4194304 13 7 2 2 " TICKS " 0 0 0 20 0 2 0 1000 99000000 2500 "             \
    "18446744073709551615 1 1 0\n"

static void container_is_shared(const struct root *r)
{
    root_write(r, "sys/fs/cgroup/cpu.stat", "usage_usec 30045000\nnr_periods 1020\nnr_throttled 45\n");
    root_write(r, "proc/100/stat", STAT_OF("103"));
}

/* The group used 45 ms of processor time, 30 of them ours; the others used 15 ms of the quota of 1.5
 * processors. */
static void others_in_the_container(void **state)
{
    (void)state;
    struct root r = root_copy("cgroup-container");
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    CHECK_NAN(row[METRIC_CGROUP_OTHERS]); /* whose processes are ours is not known of a recorded machine */
    root_write(&r, "proc/100/stat", STAT_OF("100"));
    root_write(&r, "proc/100/cgroup", "0::/\n");
    telemetry_monitor_process(t, 100);
    struct span s = sample_after(t, row, &r, container_is_shared);
    check_rate(row[METRIC_CGROUP_OTHERS] * 1.5, 0.045 - 3.0 / (double)sysconf(_SC_CLK_TCK), s);
    root_write(&r, "proc/100/stat", STAT_OF("109")); /* ticks run ahead of microseconds: none, not less */
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_CGROUP_OTHERS], 0, 0);
    telemetry_close(t);
    root_remove(&r);
}

static void container1_works(const struct root *r)
{
    root_write(r, "sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "30020000000\n");
    root_write(r, "sys/fs/cgroup/cpu,cpuacct/cpu.stat",
               "nr_periods 10\nnr_throttled 9\nthrottled_time 400000000\n");
}

static void container1_is_stopped(const struct root *r)
{
    root_write(r, "sys/fs/cgroup/cpu,cpuacct/cpu.stat",
               "nr_periods 14\nnr_throttled 11\nthrottled_time 500000000\n");
}

static void version_1_container(void **state)
{
    (void)state;
    struct root r = root_copy("cgroup1-container");
    struct telemetry *t = open_at(&r);
    struct span s = sample_after(t, row, &r, container1_works);
    CHECK_NEAR(row[METRIC_CGROUP_MEM_USED], 1073741824, 0);
    CHECK_NEAR(row[METRIC_CGROUP_MEM_LIMIT], 4294967296.0, 0);
    check_rate(row[METRIC_CGROUP_CPU], 0.020, s);
    CHECK_NAN(row[METRIC_CGROUP_CPU_LIMIT]);
    CHECK_NAN(row[METRIC_CGROUP_THROTTLED]); /* quota -1 */
    CHECK_NAN(row[METRIC_CGROUP_THROTTLED_TIME]);
    CHECK(says(t, METRIC_CGROUP_CPU_LIMIT, "no control group limits"));
    root_write(&r, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"); /* set while we look */
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_CGROUP_CPU_LIMIT], 2.5, 1e-12);
    CHECK_NEAR(*telemetry_absence(t, METRIC_CGROUP_CPU_LIMIT, NULL), 0, 0);
    s = sample_after(t, row, &r, container1_is_stopped);
    check_rate(row[METRIC_CGROUP_THROTTLED_TIME], 0.1, s);
    CHECK_NEAR(row[METRIC_CGROUP_THROTTLED], 0.5, 1e-9);
    telemetry_close(t);
    root_remove(&r);
}

/* A limit anywhere above counts; the group with the least room is the one that will hit it. */
static void nearest_limit_of_all_levels(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_CGROUP_MEM_USED], 1073741824, 0); /* no limit: our own group */
    CHECK_NAN(row[METRIC_CGROUP_MEM_LIMIT]);
    CHECK(says(t, METRIC_CGROUP_MEM_LIMIT, "no control group limits"));
    root_write(&r, "sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope/memory.max", "3221225472\n");
    root_write(&r, "sys/fs/cgroup/user.slice/user-1000.slice/memory.max", "4294967296\n");
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_CGROUP_MEM_USED], 3221225472.0, 0); /* 1 GiB left above, 2 GiB in our own */
    CHECK_NEAR(row[METRIC_CGROUP_MEM_LIMIT], 4294967296.0, 0);
    root_write(&r, "sys/fs/cgroup/user.slice/user-1000.slice/memory.max",
               "99999999999999\n"); /* above the machine's */
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_CGROUP_MEM_LIMIT], 3221225472.0, 0);
    /* the watched process's groups, not ours */
    root_write(&r, "proc/100/cgroup", "0::/user.slice/user-1000.slice\n");
    telemetry_monitor_process(t, 100);
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_CGROUP_MEM_USED], 3221225472.0, 0);
    telemetry_close(t);
    root_remove(&r);
}

static void cores_have_clocks(void **state)
{
    (void)state;
    double hertz[16];
    struct root r = root_copy("avx2-laptop"), box = root_get("nvidia-box");
    /* processor 1 is switched off: what follows keeps its own clock */
    root_write(&r, "sys/devices/system/cpu/online", "0,2-7\n");
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    telemetry_core_hertz(t, hertz, 16);
    CHECK_NEAR(hertz[0], 1.6e9, 1);
    CHECK_NEAR(hertz[1], 1.8e9, 1);
    CHECK_NEAR(hertz[6], 2.3e9, 1);
    telemetry_close(t);
    t = open_at(&box); /* from cpuinfo */
    telemetry_sample(t, row);
    CHECK_LT(1, telemetry_core_hertz(t, hertz, 16));
    CHECK_LT(1e9, hertz[0]);
    CHECK_LT(1e9, hertz[1]);
    telemetry_close(t);
    root_remove(&r);
}

/* On a large machine some processors stand for all, evenly; the others' clocks are unknown, not 0. */
static void large_machines_are_sampled(void **state)
{
    (void)state;
    enum { CPUS = 130 };
    double hertz[CPUS];
    struct root r = root_empty();
    struct str stat = { 0 };
    char name[96], text[32];
    str_append(&stat, "cpu  1 0 1 1 0 0 0 0\n");
    for (int i = 0; i < CPUS; i++) {
        str_printf(&stat, "cpu%d 1 0 1 1 0 0 0 0\n", i);
        snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", i);
        snprintf(text, sizeof text, "%d\n", 1000000 + 1000 * i);
        root_write(&r, name, text);
        snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/cpuidle/state0/name", i);
        root_write(&r, name, "WFI\n"); /* the first state sleeps, too, on ARM */
        snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/cpuidle/state0/time", i);
        root_write(&r, name, "1000\n");
    }
    root_write(&r, "proc/stat", str_text(&stat));
    root_write(&r, "sys/devices/system/cpu/online", "0-129\n");
    struct telemetry *t = open_at(&r);
    telemetry_sample(t, row);
    assert_int_equal(telemetry_core_hertz(t, hertz, CPUS), CPUS);
    int known = 0;
    double sum = 0;
    for (int i = 0; i < CPUS; i++) {
        if (isnan(hertz[i])) continue;
        CHECK_NEAR(hertz[i], 1e9 + 1e6 * i, 1);
        sum += hertz[i];
        known++;
    }
    CHECK_LE(32, known);
    CHECK_LE(known, 64);
    CHECK(!isnan(hertz[0]));
    CHECK_NAN(hertz[1]);
    CHECK_NEAR(row[METRIC_CPU_FREQUENCY], sum / known, 1);
    clock_sleep_ns(10 * 1000000);
    telemetry_sample(t, row);
    CHECK_NEAR(row[METRIC_CPU_CSTATE], 0, 0); /* no sleep ended, so nothing was counted */
    telemetry_close(t);
    str_free(&stat);
    root_remove(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_gauges),
        cmocka_unit_test(memory_rates),
        cmocka_unit_test(all_nodes_count),
        cmocka_unit_test(disks_count_once),
        cmocka_unit_test(cstates),
        cmocka_unit_test(energy_of_each_domain),
        cmocka_unit_test(forbidden_energy_says_so),
        cmocka_unit_test(storage_of_the_tree),
        cmocka_unit_test(container_uses_its_budget),
        cmocka_unit_test(others_in_the_container),
        cmocka_unit_test(version_1_container),
        cmocka_unit_test(nearest_limit_of_all_levels),
        cmocka_unit_test(cores_have_clocks),
        cmocka_unit_test(large_machines_are_sampled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
