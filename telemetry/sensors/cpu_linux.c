/* telemetry/sensors/cpu_linux.c - busy and stolen time, clocks, temperature and throttling of the processors.
 *
 * A clock is reported only if cpufreq or the APERF/MPERF counters measure it. In a virtual machine the line
 * "cpu MHz" of /proc/cpuinfo is the constant nominal clock, which is not a measurement. */
#include "telemetry/sensors/source.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "telemetry/metrics/metrics.h"
#include "base/sysfs/sysfs.h"

/* Reading a clock may interrupt its processor. So at most CLOCKS_READ processors are read, evenly spread,
 * which suffices for a mean. */
enum { CLOCKS_READ = 64, STAT_BYTES = 128 << 10, HWMON_NAME = 160 };

struct core_times {
    double busy, total;
};

struct cpu {
    char *text; /* [STAT_BYTES] */
    double tick_s;
    struct core_times was, was_steal; /* last readings of all processors; was_steal.busy: stolen time */
    struct core_times *core_was;
    int core_cap;
    bool measured_mhz; /* "cpu MHz" in /proc/cpuinfo is a measurement */
    int processors;
    int number[SYS_CPUS];            /* [processors] numbers of those online */
    char temperature[8][HWMON_NAME]; /* files below the root */
    int temperatures;
    bool counts_throttling;
    struct rate throttle;
};

/* Parses "user nice system idle iowait irq softirq steal ..." of /proc/stat. The columns after steal are
 * guest time, which is already part of user time. */
static bool core_times_parse(const char *p, double v[8])
{
    for (int i = 0; i < 8; i++) {
        char *end;
        if (*p == '\n' || !*p) {
            v[i] = 0; /* kernels before 2.6.11 have fewer columns */
            if (i < 4) return false;
            continue;
        }
        v[i] = (double)strtoull(p, &end, 10);
        if (end == p) return false;
        p = end + strspn(end, " ");
    }
    return true;
}

/* The increase of `part` divided by that of `total` since the last call; NAN on the first call. */
static double core_times_ratio(struct core_times *was, double part, double total)
{
    double d_part = part - was->busy, d_total = total - was->total;
    bool known = was->total > 0;
    *was = (struct core_times){ part, total };
    /* the kernel's idle and iowait counters can decrease slightly when a processor goes offline or online */
    if (!known || !(d_total > 0)) return NAN;
    return d_part < 0 ? 0 : MIN(d_part / d_total, 1);
}

/* Grows the arrays per processor to hold at least n + 1 elements. */
static bool cpu_reserve_cores(struct cpu *c, struct sensors *s, int n)
{
    if (n < c->core_cap && n < s->cores_cap) return true;
    int cap = MAX(64, 2 * n);
    struct core_times *was = realloc(c->core_was, (size_t)cap * sizeof *was);
    if (was) c->core_was = was;
    double *busy = realloc(s->core_busy, (size_t)cap * sizeof *busy);
    if (busy) s->core_busy = busy;
    double *hertz = realloc(s->core_hertz, (size_t)cap * sizeof *hertz);
    if (hertz) s->core_hertz = hertz;
    if (!was || !busy || !hertz) return false;
    for (int i = c->core_cap; i < cap; i++) {
        was[i] = (struct core_times){ 0 };
        busy[i] = hertz[i] = NAN;
    }
    c->core_cap = s->cores_cap = cap;
    return true;
}

static void cpu_sample_stat(struct cpu *c, struct sensors *s, double *row)
{
    int cores = 0;
    s->busy_s = s->total_s = NAN;
    sys_read(s->root, c->text, STAT_BYTES, "/proc/stat");
    for (char *save, *line = strtok_r(c->text, "\n", &save); line && !strncmp(line, "cpu", 3);
         line = strtok_r(NULL, "\n", &save)) {
        double v[8], total = 0;
        char *p = line + strcspn(line, " ");
        if (!core_times_parse(p + strspn(p, " "), v)) continue;
        for (int i = 0; i < 8; i++) total += v[i];
        double busy = v[0] + v[1] + v[2] + v[5] + v[6]; /* without idle, iowait and steal */
        if (line[3] == ' ') {
            s->busy_s = busy * c->tick_s;
            s->total_s = total * c->tick_s;
            if (s->due[METRIC_CPU_BUSY]) row[METRIC_CPU_BUSY] = core_times_ratio(&c->was, busy, total);
            if (s->due[METRIC_CPU_STEAL])
                row[METRIC_CPU_STEAL] = core_times_ratio(&c->was_steal, v[7], total);
        } else if (s->due[METRIC_CPU_BUSY] && cpu_reserve_cores(c, s, cores + 1)) {
            s->core_busy[cores] = core_times_ratio(&c->core_was[cores], busy, total);
            cores++;
        }
    }
    if (s->due[METRIC_CPU_BUSY]) s->cores = cores;
}

/* Returns the mean clock, and writes each clock to s->core_hertz, in the order of /proc/stat. */
static double cpu_frequency_hertz(struct cpu *c, struct sensors *s)
{
    double sum = 0;
    int n = 0, step = MAX(1, (c->processors + CLOCKS_READ - 1) / CLOCKS_READ);
    const bool each = c->processors && cpu_reserve_cores(c, s, c->processors);
    for (int i = 0; i < c->processors; i += step) {
        double khz = sys_number(s->root, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
                                c->number[i]);
        if (each) s->core_hertz[i] = khz > 0 ? khz * 1e3 : NAN;
        if (!(khz > 0)) continue;
        sum += khz * 1e3;
        n++;
    }
    if (n || !c->measured_mhz) return n ? sum / n : NAN;
    sys_read(s->root, c->text, STAT_BYTES, "/proc/cpuinfo");
    int i = 0;
    for (const char *p = c->text; (p = strstr(p, "\ncpu MHz")); p++, i++) {
        double mhz = sys_field(p, "cpu MHz\t\t");
        if (each && i < c->processors) s->core_hertz[i] = mhz > 0 ? mhz * 1e6 : NAN;
        if (!(mhz > 0)) continue;
        sum += mhz * 1e6;
        n++;
    }
    return n ? sum / n : NAN;
}

static double cpu_temperature_celsius(struct cpu *c, struct sensors *s)
{
    double hottest = NAN;
    for (int i = 0; i < c->temperatures; i++) {
        double milli = sys_number(s->root, "%s", c->temperature[i]);
        if (!isnan(milli) && !(milli / 1e3 <= hottest)) hottest = milli / 1e3;
    }
    return hottest;
}

static void cpu_add_temperature(struct cpu *c, const char *path)
{
    if (c->temperatures < (int)COUNT_OF(c->temperature))
        snprintf(c->temperature[c->temperatures++], HWMON_NAME, "%s", path);
}

/* Adds the chip's package temperature if one is labelled as such, otherwise all its inputs. */
static void cpu_add_hwmon(struct cpu *c, const char *root, const char *hwmon)
{
    static const char *const LABELS[] = { "Package id", "Tdie", "Tctl" };
    struct sys_list files;
    char path[HWMON_NAME], label[32];
    bool found = false;
    sys_list(&files, root, "temp", "/sys/class/hwmon/%s", hwmon);
    for (size_t l = 0; l < COUNT_OF(LABELS) && !found; l++)
        for (int i = 0; i < files.count; i++) {
            if (!str_ends(files.name[i], "_label")) continue;
            sys_read(root, label, sizeof label, "/sys/class/hwmon/%s/%s", hwmon, files.name[i]);
            if (!str_starts(label, LABELS[l])) continue;
            snprintf(path, sizeof path, "/sys/class/hwmon/%s/%.*s_input", hwmon,
                     (int)(strlen(files.name[i]) - strlen("_label")), files.name[i]);
            cpu_add_temperature(c, path);
            found = true;
        }
    for (int i = 0; i < files.count && !found; i++) {
        if (!str_ends(files.name[i], "_input")) continue;
        snprintf(path, sizeof path, "/sys/class/hwmon/%s/%s", hwmon, files.name[i]);
        cpu_add_temperature(c, path);
    }
}

static void cpu_find_temperatures(struct cpu *c, const char *root)
{
    static const char *const CHIPS[] = { "coretemp", "k10temp", "zenpower", "cpu_thermal" };
    struct sys_list list;
    char name[32], path[HWMON_NAME];
    sys_list(&list, root, "hwmon", "/sys/class/hwmon");
    for (int i = 0; i < list.count; i++) {
        sys_read(root, name, sizeof name, "/sys/class/hwmon/%s/name", list.name[i]);
        for (size_t k = 0; k < COUNT_OF(CHIPS); k++)
            if (!strcmp(name, CHIPS[k])) cpu_add_hwmon(c, root, list.name[i]);
    }
    if (c->temperatures) return;
    sys_list(&list, root, "thermal_zone", "/sys/class/thermal");
    for (int i = 0; i < list.count; i++) {
        sys_read(root, name, sizeof name, "/sys/class/thermal/%s/type", list.name[i]);
        if (strcmp(name, "x86_pkg_temp") && !str_starts(name, "cpu")) continue;
        snprintf(path, sizeof path, "/sys/class/thermal/%s/temp", list.name[i]);
        cpu_add_temperature(c, path);
    }
}

/* How often cores and packages exceeded their temperature limit since boot, from Intel's counters; NAN: there
 * are no counters. */
static double cpu_throttle_events(const struct cpu *c, const char *root)
{
    static const char *const COUNTERS[] = { "core", "package" };
    double sum = NAN;
    for (int i = 0; i < c->processors && c->counts_throttling; i++)
        for (size_t k = 0; k < COUNT_OF(COUNTERS); k++) {
            const double n = sys_number(root,
                                        "/sys/devices/system/cpu/cpu%d/thermal_throttle/%s_throttle_count",
                                        c->number[i], COUNTERS[k]);
            if (!isnan(n)) sum = isnan(sum) ? n : sum + n;
        }
    return sum;
}

static void cpu_close(void *state)
{
    struct cpu *c = state;
    if (!c) return;
    free(c->text);
    free(c->core_was);
    free(c);
}

static enum err_code cpu_open(void **state, const struct sensors *s, struct err *why)
{
    struct cpu *c = calloc(1, sizeof *c);
    if (c) c->text = malloc(STAT_BYTES);
    if (!c || !c->text) {
        cpu_close(c);
        return err_set(why, ERR_NOMEM, "out of memory opening the processor's sensors");
    }
    long hz = sysconf(_SC_CLK_TCK);
    c->tick_s = hz > 0 ? 1.0 / (double)hz : 0.01;
    char online[1024], flags[8192];
    sys_read(s->root, online, sizeof online, "/sys/devices/system/cpu/online");
    c->processors = MIN(MAX(0, sys_cpulist(online, c->number, SYS_CPUS)), SYS_CPUS);
    sys_read(s->root, c->text, STAT_BYTES, "/proc/cpuinfo");
    sys_text_field(c->text, "flags", flags, sizeof flags);
    c->measured_mhz = strstr(flags, " aperfmperf") != NULL;
    cpu_find_temperatures(c, s->root);
    if (!c->temperatures)
        sensor_absent(s, METRIC_CPU_TEMPERATURE,
                      "no temperature of the processor in hwmon or the thermal zones%s",
                      strstr(flags, " hypervisor") ? ": a virtual machine" : "");
    c->counts_throttling = !isnan(
        sys_number(s->root, "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"));
    if (!c->counts_throttling)
        sensor_absent(s, METRIC_CPU_THROTTLE,
                      "no thermal throttling counters: only Intel processors outside virtual machines have "
                      "them");
    if (!c->measured_mhz && !sys_exists(s->root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"))
        sensor_absent(s, METRIC_CPU_FREQUENCY,
                      "nothing measures the clock: no cpufreq, no APERF/MPERF counters%s",
                      strstr(flags, " hypervisor") ? " in this virtual machine" : "");
    *state = c;
    return ERR_OK;
}

static void cpu_sample(void *state, struct sensors *s, double *row)
{
    struct cpu *c = state;
    if (s->due[METRIC_CPU_BUSY] || s->due[METRIC_CPU_STEAL] || s->due[METRIC_OTHERS_BUSY])
        cpu_sample_stat(c, s, row);
    if (s->due[METRIC_CPU_FREQUENCY]) row[METRIC_CPU_FREQUENCY] = cpu_frequency_hertz(c, s);
    if (s->due[METRIC_CPU_TEMPERATURE]) row[METRIC_CPU_TEMPERATURE] = cpu_temperature_celsius(c, s);
    if (s->due[METRIC_CPU_THROTTLE])
        row[METRIC_CPU_THROTTLE] = rate_next(&c->throttle, cpu_throttle_events(c, s->root), 0, s->now_ns);
}

const struct source SOURCE_CPU_LINUX = {
    .name = "cpu_linux", .open = cpu_open, .sample = cpu_sample, .close = cpu_close
};
