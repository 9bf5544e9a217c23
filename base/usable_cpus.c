/* base/usable_cpus.c - reads affinity mask, cpusets and CPU quotas from /proc and /sys only, so that recorded
 * machines give the answers that the machine itself gave. */
#include "base/usable_cpus.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/sysfs/sysfs.h"

enum {
    CPUINFO_BYTES = 16 << 20,
    LIST_BYTES = 1 << 16
}; /* a list of every second processor of 8192 has 20 KB */

struct cpu_list {
    int n;
    int cpu[USABLE_CPUS_MOST];
};

struct reading {
    struct usable_cpus *out;
    struct cpu_list list, siblings; /* what was read last, too large for a stack */
    char text[LIST_BYTES];
};

bool usable_cpus_has(const struct usable_cpus *u, int cpu)
{
    return cpu >= 0 && cpu < USABLE_CPUS_MOST && u->mask[cpu / 64] >> cpu % 64 & 1;
}

/* False if the text is no list of processors, or an empty one. */
static bool list_parse(struct cpu_list *l, const char *text)
{
    l->n = MAX(MIN(sys_cpulist(text, l->cpu, USABLE_CPUS_MOST), USABLE_CPUS_MOST), 0);
    return l->n > 0;
}

/* Intersects the mask with a list of processors. If nothing would remain, the mask stays as it is: the list
 * then numbers processors differently, as in a container. */
static void mask_intersect(struct usable_cpus *u, const struct cpu_list *l)
{
    uint64_t both[COUNT_OF(u->mask)] = { 0 };
    bool any = false;
    for (int i = 0; i < l->n; i++)
        if (usable_cpus_has(u, l->cpu[i])) {
            both[l->cpu[i] / 64] |= UINT64_C(1) << l->cpu[i] % 64;
            any = true;
        }
    if (any) memcpy(u->mask, both, sizeof both);
}

static void level_cpuset(void *ctx, const struct cgroup *g)
{
    struct reading *r = ctx;
    sys_read(g->root, r->text, sizeof r->text,
             g->version == 2 ? "%s/cpuset.cpus.effective" : "%s/cpuset.effective_cpus", g->path);
    if (!*r->text && g->version == 1) sys_read(g->root, r->text, sizeof r->text, "%s/cpuset.cpus", g->path);
    if (!list_parse(&r->list, r->text)) return;
    if (!r->out->cpuset || r->list.n < r->out->cpuset) r->out->cpuset = r->list.n;
    mask_intersect(r->out, &r->list);
}

static void level_quota(void *ctx, const struct cgroup *g)
{
    struct reading *r = ctx;
    const double cpus = cgroup_cpu_limit(g);
    if (cpus > 0 && !(r->out->quota_cpus <= cpus)) r->out->quota_cpus = cpus;
}

/* Processors per core, where sysfs has no topology (some containers). */
static int processors_per_core(const char *root)
{
    char *cpuinfo = sys_read_all(root, "/proc/cpuinfo", CPUINFO_BYTES, NULL);
    const double cores = cpuinfo ? sys_field(cpuinfo, "cpu cores") : NAN;
    const double siblings = cpuinfo ? sys_field(cpuinfo, "siblings") : NAN;
    free(cpuinfo);
    return cores >= 1 && siblings >= cores ? (int)(siblings / cores) : 1;
}

/* Physical cores with a processor in the mask. A core counts with the first of its processors that is in the
 * mask, which in a container need not be the first of the core. */
static int cores_count(struct reading *r, const char *root)
{
    const struct usable_cpus *u = r->out;
    int cores = 0, processors = 0;
    bool topology = false;
    for (int cpu = 0; cpu < USABLE_CPUS_MOST; cpu++) {
        if (!usable_cpus_has(u, cpu)) continue;
        processors++;
        sys_read(root, r->text, sizeof r->text, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 cpu);
        int first = cpu;
        if (list_parse(&r->siblings, r->text)) {
            topology = true;
            for (int i = r->siblings.n - 1; i >= 0; i--)
                if (usable_cpus_has(u, r->siblings.cpu[i])) first = r->siblings.cpu[i];
        }
        cores += first == cpu;
    }
    if (topology || !processors) return cores;
    const int share = processors_per_core(root);
    return (processors + share - 1) / share;
}

static int mask_count(const struct usable_cpus *u)
{
    int n = 0;
    for (size_t i = 0; i < COUNT_OF(u->mask); i++) n += __builtin_popcountll(u->mask[i]);
    return n;
}

/* Some containers have no sysfs: then /proc/cpuinfo names the processors. */
static bool read_online(struct reading *r, const char *root)
{
    static const char KEY[] = "processor\t";
    sys_read(root, r->text, sizeof r->text, "/sys/devices/system/cpu/online");
    if (list_parse(&r->list, r->text)) return true;
    char *cpuinfo = sys_read_all(root, "/proc/cpuinfo", CPUINFO_BYTES, NULL);
    for (const char *p = cpuinfo; p && (p = strstr(p, KEY)) && r->list.n < USABLE_CPUS_MOST;
         p += sizeof KEY - 1)
        if (p == cpuinfo || p[-1] == '\n')
            r->list.cpu[r->list.n++] = (int)strtol(p + strcspn(p, "0123456789"), NULL, 10);
    free(cpuinfo);
    return r->list.n > 0;
}

static bool read_allowed(struct reading *r, const char *root)
{
    char *status = sys_read_all(root, "/proc/self/status", 1 << 20, NULL);
    const bool known = status && sys_text_field(status, "Cpus_allowed_list", r->text, sizeof r->text);
    free(status);
    return known && list_parse(&r->list, r->text);
}

static void mask_set(struct usable_cpus *u, const struct cpu_list *l)
{
    for (int i = 0; i < l->n; i++)
        if (l->cpu[i] >= 0 && l->cpu[i] < USABLE_CPUS_MOST)
            u->mask[l->cpu[i] / 64] |= UINT64_C(1) << l->cpu[i] % 64;
}

/* Begins with all processors that are online; where nothing names them, with those that /proc/self/status
 * allows. */
static void read_processors(struct reading *r, const char *root)
{
    struct usable_cpus *u = r->out;
    if (read_online(r, root)) {
        mask_set(u, &r->list);
        u->online = mask_count(u);
        u->online_cores = cores_count(r, root);
        if (read_allowed(r, root)) mask_intersect(u, &r->list);
    } else if (read_allowed(r, root)) {
        mask_set(u, &r->list);
    } else {
        return;
    }
    cgroup_walk(root, 0, "cpuset", level_cpuset, r);
    u->processors = mask_count(u);
    u->cores = u->processors == u->online ? u->online_cores : cores_count(r, root);
}

void usable_cpus_read(struct usable_cpus *out, const char *root)
{
    *out = (struct usable_cpus){ .quota_cpus = NAN, .threads = 1 };
    struct reading *r = malloc(sizeof *r);
    if (!r) {
        memory_short_set();
        return;
    }
    r->out = out;
    read_processors(r, root);
    cgroup_walk(root, 0, "cpu", level_quota, r);
    free(r);
    int cores = out->cores;
    if (!cores && !*root) cores = (int)sysconf(_SC_NPROCESSORS_ONLN); /* neither /proc nor /sys */
    if (out->quota_cpus < cores) cores = (int)out->quota_cpus;
    out->threads = MAX(cores, 1);
}

static struct usable_cpus here; /* written once, then constant */

static void here_read(void)
{
    usable_cpus_read(&here, "");
}

const struct usable_cpus *usable_cpus(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, here_read);
    return &here;
}

/* "2 of 8 processors (affinity mask or cpuset), a CPU quota of 1.5 processors": what limits a process; "" if
 * nothing does. */
static const char *limits_text(const struct usable_cpus *u, char *buf, size_t size)
{
    const bool masked = u->processors && u->processors < u->online;
    size_t at = 0;
    *buf = '\0';
    if (masked)
        at = (size_t)snprintf(buf, size, "%d of %d processors (affinity mask or cpuset)", u->processors,
                              u->online);
    if (!isnan(u->quota_cpus) && at < size)
        snprintf(buf + at, size - at, "%sa CPU quota of %.3g processors", masked ? ", " : "", u->quota_cpus);
    return buf;
}

const char *usable_cpus_warning(const struct usable_cpus *u, int threads, char *buf, size_t size)
{
    char limits[128];
    const bool beyond_mask = u->processors && threads > u->processors;
    const bool beyond_quota = threads > 1 && threads > ceil(u->quota_cpus);
    *buf = '\0';
    if (!beyond_mask && !beyond_quota) return buf;
    if (!*limits_text(u, limits, sizeof limits))
        snprintf(limits, sizeof limits, "%d processors", u->processors);
    snprintf(
        buf, size,
        "%d threads, but this process may use %s: the threads wait for each other, which can be many times slower; "
        "threads=%d, the default, avoids that",
        threads, limits, u->threads);
    return buf;
}
