/* telemetry/memory_linux.c - memory and swap, from /proc/meminfo and /proc/vmstat. */
#include "telemetry/sensors.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

struct memory {
    struct rate swap_in;
    double page_bytes;
};

static enum err_code memory_open(void **state, const struct sensors *s, struct err *why)
{
    struct memory *m = calloc(1, sizeof *m);
    (void)s;
    if (!m) return err_set(why, ERR_NOMEM, "out of memory opening the memory sensors");
    m->page_bytes = (double)sysconf(_SC_PAGESIZE);
    *state = m;
    return ERR_OK;
}

static void memory_sample(void *state, struct sensors *s, double *row)
{
    struct memory *m = state;
    char text[16384];
    if (s->due[METRIC_MEM_USED] || s->due[METRIC_MEM_AVAILABLE] || s->due[METRIC_SWAP_USED]) {
        sys_read(s->root, text, sizeof text, "/proc/meminfo");
        double total = sys_field(text, "MemTotal:"), available = sys_field(text, "MemAvailable:");
        double used[] = { 1024 * (total - available),
                          1024 * (sys_field(text, "SwapTotal:") - sys_field(text, "SwapFree:")) };
        if (s->due[METRIC_MEM_USED] && used[0] >= 0) row[METRIC_MEM_USED] = used[0];
        if (s->due[METRIC_MEM_AVAILABLE] && available >= 0) row[METRIC_MEM_AVAILABLE] = 1024 * available;
        if (s->due[METRIC_SWAP_USED] && used[1] >= 0) row[METRIC_SWAP_USED] = used[1];
    }
    if (s->due[METRIC_SWAP_IN]) {
        sys_read(s->root, text, sizeof text, "/proc/vmstat");
        row[METRIC_SWAP_IN] = m->page_bytes *
                              rate_next(&m->swap_in, sys_field(text, "pswpin "), 0, s->now_ns);
    }
}

const struct source SOURCE_MEMORY_LINUX = { "memory_linux", memory_open, memory_sample, free };
