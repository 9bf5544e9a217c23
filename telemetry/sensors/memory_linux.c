/* telemetry/sensors/memory_linux.c - memory, page cache, huge pages and swap from /proc/meminfo; faults and
 * swapping from /proc/vmstat; NUMA hits and misses from numastat.
 *
 * Page cache excludes shared memory (tmpfs), which the kernel counts as cached but cannot drop. */
#include "telemetry/sensors/source.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "telemetry/metrics/metrics.h"
#include "base/sysfs/sysfs.h"

/* Fields of /proc/meminfo in kB; the value of `less`, if given, is subtracted. */
static const struct {
    enum metric_id metric;
    const char *field, *less;
} MEMINFO[] = {
    { .metric = METRIC_MEM_TOTAL, .field = "MemTotal:" },
    { .metric = METRIC_MEM_USED, .field = "MemTotal:", .less = "MemAvailable:" },
    { .metric = METRIC_MEM_PAGE_CACHE, .field = "Cached:", .less = "Shmem:" },
    { .metric = METRIC_MEM_AVAILABLE, .field = "MemAvailable:" },
    { .metric = METRIC_MEM_DIRTY, .field = "Dirty:" },
    { .metric = METRIC_MEM_THP, .field = "AnonHugePages:" },
    { .metric = METRIC_SWAP_TOTAL, .field = "SwapTotal:" },
    { .metric = METRIC_SWAP_USED, .field = "SwapTotal:", .less = "SwapFree:" },
};
/* Fields that count huge pages of the default size. */
static const struct {
    enum metric_id metric;
    const char *field;
} HUGEPAGES[] = { { METRIC_HUGEPAGES_TOTAL, "HugePages_Total:" },
                  { METRIC_HUGEPAGES_FREE, "HugePages_Free:" } };

/* Counters of /proc/vmstat. */
enum { EVENTS = 4 };
static const struct {
    enum metric_id metric;
    const char *field, *less;
    bool pages; /* the counter counts pages; the metric is in bytes */
} VMSTAT[EVENTS] = {
    { .metric = METRIC_SWAP_IN, .field = "pswpin ", .pages = true },
    { .metric = METRIC_SWAP_OUT, .field = "pswpout ", .pages = true },
    { .metric = METRIC_MEM_MAJOR_FAULTS, .field = "pgmajfault " },
    { .metric = METRIC_MEM_MINOR_FAULTS, .field = "pgfault ", .less = "pgmajfault " },
};

struct memory {
    struct rate event[EVENTS];
    struct rate wanted, misses; /* for METRIC_NUMA_HIT */
    struct rate only_misses;    /* for METRIC_NUMA_MISSES, which may have another period */
    struct sys_list nodes;
    double page_bytes;
};

static enum err_code memory_open(void **state, const struct sensors *s, struct err *why)
{
    struct memory *m = calloc(1, sizeof *m);
    if (!m) return err_set(why, ERR_NOMEM, "out of memory opening the memory sensors");
    m->page_bytes = (double)sysconf(_SC_PAGESIZE);
    sys_list(&m->nodes, s->root, "node", "/sys/devices/system/node");
    *state = m;
    return ERR_OK;
}

static void meminfo_sample(const struct sensors *s, double *row)
{
    char text[16384];
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(MEMINFO); i++) any |= s->due[MEMINFO[i].metric];
    for (size_t i = 0; i < COUNT_OF(HUGEPAGES); i++) any |= s->due[HUGEPAGES[i].metric];
    if (!any) return;
    sys_read(s->root, text, sizeof text, "/proc/meminfo");
    for (size_t i = 0; i < COUNT_OF(MEMINFO); i++) {
        if (!s->due[MEMINFO[i].metric]) continue;
        double kb = sys_field(text, MEMINFO[i].field);
        if (MEMINFO[i].less) kb -= sys_field(text, MEMINFO[i].less);
        if (kb >= 0) row[MEMINFO[i].metric] = 1024 * kb;
    }
    for (size_t i = 0; i < COUNT_OF(HUGEPAGES); i++) {
        if (!s->due[HUGEPAGES[i].metric]) continue;
        double bytes = 1024 * sys_field(text, "Hugepagesize:") * sys_field(text, HUGEPAGES[i].field);
        if (bytes >= 0) row[HUGEPAGES[i].metric] = bytes;
    }
}

static void vmstat_sample(struct memory *m, const struct sensors *s, double *row)
{
    char text[16384];
    bool any = false;
    for (int i = 0; i < EVENTS; i++) any |= s->due[VMSTAT[i].metric];
    if (!any) return;
    sys_read(s->root, text, sizeof text, "/proc/vmstat");
    for (int i = 0; i < EVENTS; i++) {
        if (!s->due[VMSTAT[i].metric]) continue;
        double count = sys_field(text, VMSTAT[i].field);
        if (VMSTAT[i].less) count -= sys_field(text, VMSTAT[i].less);
        row[VMSTAT[i].metric] = (VMSTAT[i].pages ? m->page_bytes : 1) *
                                rate_next(&m->event[i], count, 0, s->now_ns);
    }
}

/* Pages that were allocated on the requested node, and on another node, since boot. */
static void numa_counts(const struct memory *m, const char *root, double *hits, double *misses)
{
    char text[1024];
    *hits = *misses = m->nodes.count ? 0 : NAN;
    for (int i = 0; i < m->nodes.count; i++) {
        sys_read(root, text, sizeof text, "/sys/devices/system/node/%s/numastat", m->nodes.name[i]);
        *hits += sys_field(text, "numa_hit ");
        *misses += sys_field(text, "numa_miss ");
    }
}

static void numa_sample(struct memory *m, const struct sensors *s, double *row)
{
    double hits, misses;
    if (!s->due[METRIC_NUMA_HIT] && !s->due[METRIC_NUMA_MISSES]) return;
    numa_counts(m, s->root, &hits, &misses);
    if (s->due[METRIC_NUMA_MISSES])
        row[METRIC_NUMA_MISSES] = rate_next(&m->only_misses, misses, 0, s->now_ns);
    if (!s->due[METRIC_NUMA_HIT]) return;
    double wanted = rate_next(&m->wanted, hits + misses, 0, s->now_ns);
    double missed = rate_next(&m->misses, misses, 0, s->now_ns);
    if (wanted > 0) row[METRIC_NUMA_HIT] = 1 - missed / wanted; /* without allocations the ratio is unknown */
}

static void memory_sample(void *state, struct sensors *s, double *row)
{
    meminfo_sample(s, row);
    vmstat_sample(state, s, row);
    numa_sample(state, s, row);
}

const struct source SOURCE_MEMORY_LINUX = {
    .name = "memory_linux", .open = memory_open, .sample = memory_sample, .close = free
};
