/* telemetry/sensors/process_linux.c - the monitored process with its descendants, and how much processor time
 * other programs use.
 *
 * The process tree is searched at most twice a second; in between only the known processes are read.
 * Processor time and faults include those of children that ended and were waited for, so the sums never
 * decrease when a child ends. The kernel counts context switches per thread; the increases are added up
 * thread by thread, so a thread that ends does not decrease the sum either. */
#include "telemetry/sensors/process_tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/source.h"
#include "base/sysfs/sysfs.h"

enum { THREADS_MAX = 4096 };

struct totals {
    double cpu_s, minor, major, rss_bytes;
};

struct switches {
    int tid;
    double voluntary, involuntary;
};

struct process {
    struct tree monitored, own;
    double tick_s, page_bytes;
    struct rate cpu, minor, major, read, write; /* last readings of the monitored tree's counters */
    double others_busy_was, others_total_was;   /* seconds; NAN: not read yet */
    int others_server;       /* monitored process that is no descendant of ours, at that time; 0: none */
    struct switches *thread; /* [threads] of the last reading, sorted by tid */
    int threads;
    int64_t switches_ns; /* time of the last reading; 0: none */
};

/* ---------------------------------------------------------------- /proc/PID/stat */

/* Adds one process to *sum. Its name in parentheses may contain blanks and parentheses itself, so the fields
 * begin after the last ")". */
static bool totals_add_stat(const char *text, const struct process *p, struct totals *sum)
{
    enum { MINFLT = 10, CMINFLT, MAJFLT, CMAJFLT, UTIME, STIME, CUTIME, CSTIME, RSS = 24, FIELDS };
    double v[FIELDS];
    const char *q = strrchr(text, ')');
    if (!q || q[1] != ' ' || !q[2]) return false;
    q += 4; /* "R " */
    for (int i = 4; i < FIELDS; i++) {
        char *end;
        v[i] = (double)strtoll(q, &end, 10);
        if (end == q) return false;
        q = end;
    }
    sum->cpu_s += (v[UTIME] + v[STIME] + v[CUTIME] + v[CSTIME]) * p->tick_s;
    sum->minor += v[MINFLT] + v[CMINFLT];
    sum->major += v[MAJFLT] + v[CMAJFLT];
    sum->rss_bytes += v[RSS] * p->page_bytes;
    return true;
}

/* All fields are NAN when the root process of the tree has ended. */
static struct totals tree_totals(const struct tree *t, const struct process *p, const char *root)
{
    struct totals sum = { 0 };
    char text[1024];
    for (int i = 0; i < t->count; i++) {
        sys_read(root, text, sizeof text, "/proc/%d/stat", t->pid[i]);
        if (!totals_add_stat(text, p, &sum) && i == 0) break;
        if (i == t->count - 1) return sum;
    }
    return (struct totals){ NAN, NAN, NAN, NAN };
}

/* ---------------------------------------------------------------- context switches */

static int switches_by_tid(const void *a, const void *b)
{
    const struct switches *x = a, *y = b;
    return (x->tid > y->tid) - (x->tid < y->tid);
}

/* Writes all threads of the tree to *out, sorted by tid, and returns their number. -1: out of memory. */
static int switches_read(const struct tree *t, const char *root, struct switches **out)
{
    struct switches *list = malloc(THREADS_MAX * sizeof *list);
    int *tid = malloc(THREADS_MAX * sizeof *tid), n = 0;
    for (int i = 0; list && tid && i < t->count; i++) {
        int count = tree_threads(root, t->pid[i], tid, THREADS_MAX);
        for (int k = 0; k < count && n < THREADS_MAX; k++) {
            char text[4096];
            sys_read(root, text, sizeof text, "/proc/%d/task/%d/status", t->pid[i], tid[k]);
            double voluntary = sys_field(text, "voluntary_ctxt_switches:");
            double involuntary = sys_field(text, "nonvoluntary_ctxt_switches:");
            if (isnan(voluntary) || isnan(involuntary)) continue;
            list[n++] = (struct switches){ tid[k], voluntary, involuntary };
        }
    }
    free(tid);
    if (!list || !tid) {
        free(list);
        return -1;
    }
    qsort(list, (size_t)n, sizeof *list, switches_by_tid);
    *out = list;
    return n;
}

static void process_sample_switches(struct process *p, const struct sensors *s, double *row)
{
    struct switches *now = NULL;
    int n = p->monitored.count ? switches_read(&p->monitored, s->root, &now) : 0;
    double voluntary = 0, involuntary = 0, seconds = (double)(s->now_ns - p->switches_ns) / 1e9;
    for (int i = 0; i < n; i++) {
        struct switches zero = { 0 }, *was = p->thread ? bsearch(&now[i], p->thread, (size_t)p->threads,
                                                                 sizeof *now, switches_by_tid)
                                                       : NULL;
        if (!was || was->voluntary > now[i].voluntary || was->involuntary > now[i].involuntary)
            was = &zero; /* a new thread (or a reused tid): count from 0 */
        voluntary += now[i].voluntary - was->voluntary;
        involuntary += now[i].involuntary - was->involuntary;
    }
    if (n > 0 && p->switches_ns && seconds > 0) {
        row[METRIC_PROC_VOLUNTARY_SWITCHES] = voluntary / seconds;
        row[METRIC_PROC_INVOLUNTARY_SWITCHES] = involuntary / seconds;
    }
    free(p->thread);
    p->thread = now;
    p->threads = MAX(n, 0);
    p->switches_ns = n > 0 ? s->now_ns : 0;
}

/* ---------------------------------------------------------------- storage */

/* Bytes read from and written to storage, without what the page cache served. The kernel adds the bytes of
 * children that were waited for to their parent. Only the owner of a process may read these counters. */
static void process_sample_io(struct process *p, const struct sensors *s, double *row)
{
    static const enum metric_id BOTH[] = { METRIC_PROC_READ, METRIC_PROC_WRITE };
    double read = 0, write = 0;
    char text[1024];
    bool denied = false;
    for (int i = 0; i < p->monitored.count; i++) {
        const int pid = p->monitored.pid[i];
        if (sys_read(s->root, text, sizeof text, "/proc/%d/io", pid) <= 0) {
            denied |= sys_denied(s->root, "/proc/%d/io", pid);
            if (denied || i == 0)
                read = write = NAN; /* an unreadable child has ended; its bytes moved to its parent */
            continue;
        }
        read += sys_field(text, "read_bytes:");
        write += sys_field(text, "write_bytes:");
    }
    for (size_t i = 0; i < COUNT_OF(BOTH); i++)
        if (denied)
            sensor_denied(
                s, BOTH[i],
                "only the owner of a process may see what it reads and writes: run as that user or as root");
        else
            sensor_absent(s, BOTH[i], "%s", "");
    if (s->due[METRIC_PROC_READ]) row[METRIC_PROC_READ] = rate_next(&p->read, read, 0, s->now_ns);
    if (s->due[METRIC_PROC_WRITE]) row[METRIC_PROC_WRITE] = rate_next(&p->write, write, 0, s->now_ns);
}

/* ---------------------------------------------------------------- the source */

static bool tree_has(const struct tree *t, int pid)
{
    for (int i = 0; i < t->count; i++)
        if (t->pid[i] == pid) return true;
    return false;
}

/* Busy time of all processors minus that of our own process tree. Also stores the latter for
 * METRIC_CGROUP_OTHERS. */
static void process_sample_others(struct process *p, struct sensors *s, double *row)
{
    int pid = s->own_pid ? s->own_pid : s->monitored_pid;
    s->own_cpu_s = NAN;
    if (!pid) return;
    tree_walk(&p->own, s->root, pid, s->now_ns);
    double own_s = tree_totals(&p->own, p, s->root).cpu_s;
    /* a server that somebody else started works for us, too */
    const int server = s->monitored_pid && !tree_has(&p->own, s->monitored_pid) ? s->monitored_pid : 0;
    if (!server) s->own_cpu_s = own_s;
    if (server) own_s += tree_totals(&p->monitored, p, s->root).cpu_s;
    if (server != p->others_server) p->others_busy_was = NAN; /* its earlier work was not counted */
    p->others_server = server;
    if (!s->due[METRIC_OTHERS_BUSY] || isnan(s->busy_s)) return;
    double others = s->busy_s - own_s;
    double d_others = others - p->others_busy_was, d_total = s->total_s - p->others_total_was;
    if (d_total > 0) row[METRIC_OTHERS_BUSY] = isnan(d_others) ? NAN : MIN(MAX(d_others / d_total, 0), 1);
    p->others_busy_was = others;
    p->others_total_was = s->total_s;
}

static void process_sample(void *state, struct sensors *s, double *row)
{
    struct process *p = state;
    if (p->monitored.root_pid != s->monitored_pid) { /* another process: its first reading has no rate */
        p->cpu = p->minor = p->major = p->read = p->write = (struct rate){ 0 };
        p->switches_ns = 0;
    }
    tree_walk(&p->monitored, s->root, s->monitored_pid, s->now_ns);
    bool any = s->due[METRIC_PROC_RSS] || s->due[METRIC_PROC_CPU] || s->due[METRIC_PROC_MINOR_FAULTS] ||
               s->due[METRIC_PROC_MAJOR_FAULTS];
    if (any && p->monitored.count) {
        struct totals sum = tree_totals(&p->monitored, p, s->root);
        if (s->due[METRIC_PROC_RSS]) row[METRIC_PROC_RSS] = sum.rss_bytes;
        if (s->due[METRIC_PROC_CPU]) row[METRIC_PROC_CPU] = rate_next(&p->cpu, sum.cpu_s, 0, s->now_ns);
        if (s->due[METRIC_PROC_MINOR_FAULTS])
            row[METRIC_PROC_MINOR_FAULTS] = rate_next(&p->minor, sum.minor, 0, s->now_ns);
        if (s->due[METRIC_PROC_MAJOR_FAULTS])
            row[METRIC_PROC_MAJOR_FAULTS] = rate_next(&p->major, sum.major, 0, s->now_ns);
    }
    if (s->due[METRIC_PROC_VOLUNTARY_SWITCHES] || s->due[METRIC_PROC_INVOLUNTARY_SWITCHES])
        process_sample_switches(p, s, row);
    if ((s->due[METRIC_PROC_READ] || s->due[METRIC_PROC_WRITE]) && p->monitored.count)
        process_sample_io(p, s, row);
    if (s->due[METRIC_OTHERS_BUSY] || s->due[METRIC_CGROUP_OTHERS]) process_sample_others(p, s, row);
}

static enum err_code process_open(void **state, const struct sensors *s, struct err *why)
{
    struct process *p = calloc(1, sizeof *p);
    (void)s;
    if (!p) return err_set(why, ERR_NOMEM, "out of memory opening the process sensors");
    long hz = sysconf(_SC_CLK_TCK);
    p->tick_s = hz > 0 ? 1.0 / (double)hz : 0.01;
    p->page_bytes = (double)sysconf(_SC_PAGESIZE);
    p->others_busy_was = p->others_total_was = NAN;
    *state = p;
    return ERR_OK;
}

static void process_close(void *state)
{
    struct process *p = state;
    if (p) free(p->thread);
    free(p);
}

const struct source SOURCE_PROCESS_LINUX = {
    .name = "process_linux", .open = process_open, .sample = process_sample, .close = process_close
};
