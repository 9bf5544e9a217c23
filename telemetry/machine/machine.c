/* telemetry/machine/machine.c - detects what this machine is, and computes its fingerprint, a short id that
 * stays the same between boots. */
#include "telemetry/machine/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine_parts.h"
#include "base/sysfs/sysfs.h"

/* The memory size in steps of a factor of sqrt(2). The kernel's reserve changes the size by 1 or 2 % between
 * versions, which must not change the fingerprint. */
static int memory_class(int64_t bytes)
{
    return bytes > 0 ? (int)lround(2 * log2((double)bytes)) : -1;
}

/* Computes the hash of the hardware's properties. Host name, kernel, free memory and limits are not included,
 * and neither are the isa bits: a newer qdyno detects more of them, which would change the id of every
 * machine. */
static void machine_fingerprint(struct machine *m)
{
    struct str text = { 0 };
    char hex[HASH_HEX];
    str_printf(&text, "cpu=%s;sockets=%d;cores=%d;processors=%d;numa=%d;memory=%d;", m->cpu, m->sockets,
               m->cores, m->processors, m->numa_nodes, memory_class(m->memory_bytes));
    for (int i = 0; i < 3; i++) str_printf(&text, "cache=%lld;", (long long)m->cache_bytes[i]);
    for (int i = 0; i < m->gpus; i++)
        if (strcmp(m->gpu[i].source, "opencl")) /* listed only if OpenCL is installed */
            str_printf(&text, "gpu=%s/%s/%d;", m->gpu[i].vendor, m->gpu[i].name,
                       memory_class(m->gpu[i].memory_bytes));
    hash_bytes(str_text(&text), text.len, hex);
    snprintf(m->id, sizeof m->id, "%.12s", hex);
    str_free(&text);
}

/* A field of /proc/meminfo in bytes; -1: unknown, or more than any machine has. */
static int64_t kib_field(const char *text, const char *key)
{
    double kib = sys_field(text, key);
    return kib >= 0 && kib < 0x1p53 ? (int64_t)kib * 1024 : -1; /* NaN: -1 */
}

enum err_code machine_detect(struct machine *out, const char *root, struct err *why)
{
    *out = (struct machine){ .sockets = -1,
                             .cores = -1,
                             .processors = -1,
                             .numa_nodes = -1,
                             .cache_bytes = { -1, -1, -1 },
                             .memory_bytes = -1,
                             .memory_available_bytes = -1,
                             .cgroup_memory_bytes = -1,
                             .cgroup_cpus = NAN,
                             .usable_processors = -1,
                             .usable_cores = -1,
                             .usable_threads = -1 };
    struct err unread = { 0 };
    (void)sys_starved(); /* of earlier reads */
    char text[8192], *cpuinfo = sys_read_all(root, "/proc/cpuinfo", 16 << 20, &unread);
    if (!cpuinfo)
        return err_set(why, unread.code == ERR_FORMAT ? ERR_IO : unread.code,
                       "cannot identify this machine: %s", unread.message);
    machine_cpu_detect(out, root, cpuinfo);
    free(cpuinfo);
    if (!*root) out->isa = isa_detect(); /* unlike the flags it also requests permission to use AMX */

    sys_read(root, out->host, sizeof out->host, "/proc/sys/kernel/hostname");
    int n = sys_read(root, out->kernel, 16, "/proc/sys/kernel/ostype");
    if (n >= 0) out->kernel[n++] = ' ';
    sys_read(root, out->kernel + MAX(n, 0), sizeof out->kernel - (size_t)MAX(n, 0),
             "/proc/sys/kernel/osrelease");
    sys_read(root, text, sizeof text, "/etc/os-release");
    sys_text_field(text, "PRETTY_NAME", out->os, sizeof out->os);

    sys_read(root, text, sizeof text, "/proc/meminfo");
    out->memory_bytes = kib_field(text, "MemTotal:");
    out->memory_available_bytes = kib_field(text, "MemAvailable:");
    machine_cgroup_detect(out, root);
    machine_battery(root, &out->has_battery, &out->on_battery);
    out->gpus = gpu_identify(root, out->gpu);
    machine_fingerprint(out);
    const int cause = sys_starved(); /* the fingerprint would be that of another machine */
    if (cause) return err_set(why, err_of_errno(cause), "cannot identify this machine: %s", strerror(cause));
    return ERR_OK;
}
