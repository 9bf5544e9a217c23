/* advisor/doctor/troubles.c - see doctor.h. A table of checks; a sensor without a value never makes a
 * trouble. */
#include "advisor/doctor/doctor.h"
#include "advisor/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cut/cut.h"
#include "db/db.h"
#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"

static void trouble_set(struct trouble *t, const char *advice, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void trouble_set(struct trouble *t, const char *advice, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    text_cutv(t->found, sizeof t->found, fmt, args);
    va_end(args);
    text_cut(t->advice, sizeof t->advice, advice);
}

static bool find_swapping(struct trouble *t, const struct trouble_case *c)
{
    char used[16];
    const double moving = fmax(c->row[METRIC_SWAP_IN], c->row[METRIC_SWAP_OUT]);
    if (!(c->row[METRIC_SWAP_USED] > 0.02 * c->row[METRIC_SWAP_TOTAL]) && !(moving > 0)) return false;
    trouble_set(
        t,
        "a swapped model decodes at the speed of the disk: check `qdyno fit`, close programs, or run swapoff -a",
        "%s of swap in use%s", str_from_bytes((int64_t)fmax(c->row[METRIC_SWAP_USED], 0), used, sizeof used),
        moving > 0 ? ", with pages moving now" : "");
    return true;
}

static bool find_little_memory(struct trouble *t, const struct trouble_case *c)
{
    char left[16];
    const struct machine *m = c->machine;
    const bool pressed = c->row[METRIC_PSI_MEMORY] > 0.05;
    if (!(m->memory_available_bytes >= 0 && m->memory_available_bytes < m->memory_bytes / 10) && !pressed)
        return false;
    trouble_set(t,
                "use a smaller format or context, or kv=q8_0 (qdyno fit -C q4_0,kv=q8_0), or close programs",
                "only %s of memory available%s", str_from_bytes(m->memory_available_bytes, left, sizeof left),
                pressed ? ", and programs wait for memory" : "");
    return true;
}

static bool find_busy_cpus(struct trouble *t, const struct trouble_case *c)
{
    if (!(c->row[METRIC_OTHERS_BUSY] > contamination_limit(METRIC_OTHERS_BUSY))) return false;
    const bool named = c->busiest && *c->busiest;
    trouble_set(
        t,
        named
            ? "speeds measured now are those beside this load, and are reported so: for others wait, or stop these "
              "programs"
            : "speeds measured now are those beside this load, and are reported so: for others wait, or stop these "
              "programs (see top)",
        "other programs use %.0f %% of the CPUs%s%s", 100 * c->row[METRIC_OTHERS_BUSY], named ? ": " : "",
        named ? c->busiest : "");
    return true;
}

static bool find_stolen_time(struct trouble *t, const struct trouble_case *c)
{
    if (!(c->row[METRIC_CPU_STEAL] > 0.02)) return false;
    trouble_set(
        t,
        "the host gives CPU time of this virtual machine to others: measure at another time, or on a dedicated machine",
        "the host takes away %.0f %% of the CPU time (steal)", 100 * c->row[METRIC_CPU_STEAL]);
    return true;
}

static bool find_cpu_throttling(struct trouble *t, const struct trouble_case *c)
{
    const double held = c->row[METRIC_CPU_THROTTLE];
    if (!(held > 0)) return false;
    trouble_set(
        t,
        "rates fall during throttling: improve cooling, set a power limit, or use fewer threads (threads=N)",
        "the CPU throttled its clock for heat %.3g times a second", held);
    return true;
}

static bool find_gpu_throttling(struct trouble *t, const struct trouble_case *c)
{
    if (!(c->row[METRIC_GPU_THROTTLE] > 0)) return false;
    trouble_set(t, "`qdyno telemetry` prints the reason, usually a power or temperature limit",
                "a GPU is throttled");
    return true;
}

/* Both limits may be there: the one that gives fewer threads is the cause. A cpuset is in cgroup_cpus, too,
 * but it then has at least as many CPUs as there are usable cores. */
const char *machine_limit_text(const struct machine *m, char *buf, size_t size)
{
    const int cores = machine_usable_cores(m);
    *buf = '\0';
    if (machine_threads(m) >= m->cores) return buf;
    if (m->cgroup_cpus < cores)
        snprintf(buf, size, "a CPU quota of the control group (cgroup) allows %.3g CPUs on %d cores",
                 m->cgroup_cpus, m->cores);
    else
        snprintf(buf, size, "an affinity mask or cpuset allows %d of %d cores", cores, m->cores);
    return buf;
}

static bool find_container_limit(struct trouble *t, const struct trouble_case *c)
{
    const struct machine *m = c->machine;
    if (machine_threads(m) < m->cores) {
        char advice[160], limit[MACHINE_LIMIT_TEXT];
        snprintf(advice, sizeof advice, "use threads=%d (the default): more threads wait for each other",
                 machine_threads(m));
        trouble_set(t, advice, "%s", machine_limit_text(m, limit, sizeof limit));
        return true;
    }
    if (!(c->row[METRIC_CGROUP_THROTTLED] > 0)) return false;
    trouble_set(t, "use fewer threads, or raise the CPU quota",
                "the container's CPU quota throttles this process");
    return true;
}

static bool find_missing_driver(struct trouble *t, const struct trouble_case *c)
{
    for (int i = 0; i < c->machine->gpus; i++) {
        const struct gpu_identity *u = &c->machine->gpu[i];
        if (*u->driver || strcmp(u->source, "kernel")) continue;
        trouble_set(t, "install the vendor's driver, or check that it matches the kernel (dmesg, modinfo)",
                    "%s %s is on the PCI bus, but no driver answers", u->vendor, u->name);
        return true;
    }
    return false;
}

/* A GPU without a known PCI address could be any board. */
static bool has_device_without_address(const struct trouble_case *c)
{
    for (int i = 0; i < c->n_devices; i++)
        if (c->device[i].gpu && !*c->device[i].pci) return true;
    return false;
}

bool gpu_is_device(const struct gpu_identity *gpu, const struct device_info *d)
{
    return *d->pci && *gpu->bus && !strcasecmp(gpu->bus, d->pci);
}

const struct device_info *device_of_gpu(const struct gpu_identity *gpu, const struct device_info *d, int n)
{
    for (int i = 0; i < n; i++)
        if (gpu_is_device(gpu, &d[i])) return &d[i];
    return NULL;
}

/* A board that telemetry finds and OpenCL does not: its OpenCL driver is a separate package. */
static bool find_missing_opencl(struct trouble *t, const struct trouble_case *c)
{
    static const struct {
        const char *vendor, *advice;
    } ICDS[] = {
        { .vendor = "nvidia",
          .advice =
              "apt install nvidia-opencl-icd; in a container set NVIDIA_DRIVER_CAPABILITIES=compute,utility, and "
              "/etc/OpenCL/vendors/nvidia.icd must name libnvidia-opencl.so.1" },
        { .vendor = "amd",
          .advice = "apt install mesa-opencl-icd (or that of ROCm), and join the groups render and video" },
        { .vendor = "intel", .advice = "apt install intel-opencl-icd, and join the group render" },
    };
    if (!c->devices_known || has_device_without_address(c)) return false;
    for (int i = 0; i < c->machine->gpus; i++) {
        const struct gpu_identity *u = &c->machine->gpu[i];
        if (!*u->bus || !strcmp(u->source, "opencl") || device_of_gpu(u, c->device, c->n_devices)) continue;
        const char *advice = "install the vendor's OpenCL driver";
        for (size_t k = 0; k < COUNT_OF(ICDS); k++)
            if (!strcmp(u->vendor, ICDS[k].vendor)) advice = ICDS[k].advice;
        trouble_set(t, advice, "%s at %s: %s", u->name, u->bus,
                    c->n_devices ? "no OpenCL platform has a device for it" : "no OpenCL driver");
        return true;
    }
    return false;
}

/* Is the label "A vs B" with a quantized B and another recipe, or none, in A? Otherwise it was not
 * quantization that was slower. */
static bool label_compares_recipes(const char *label)
{
    static const char BETWEEN[] = " vs ";
    char line[2][RUN_LABEL], recipe[2][CONFIG_VALUE * 2];
    struct config c;
    const char *cut = strstr(label, BETWEEN);
    if (!cut) return false;
    snprintf(line[0], sizeof line[0], "%.*s", (int)(cut - label), label);
    snprintf(line[1], sizeof line[1], "%s", cut + strlen(BETWEEN));
    for (int i = 0; i < 2; i++) {
        if (config_parse(&c, line[i], NULL)) return false;
        config_recipe(&c, recipe[i], sizeof recipe[i]);
    }
    const struct format *f = format_find(recipe[1]); /* NULL: a recipe with a method */
    return strcmp(recipe[0], recipe[1]) && strcmp(recipe[1], "file") &&
           (!f || format_bits_per_weight(f) < 16);
}

/* The newest A/B in which the quantized config was slower. */
static bool find_slower_quantized(struct trouble *t, const struct trouble_case *c)
{
    for (int i = 0; i < c->n_runs; i++) {
        const struct run_row *r = &c->runs[i];
        if (strcmp(r->kind, "ab") || strcmp(r->verdict, "worse") ||
            strcmp(r->metric, METRICS[METRIC_DECODE_RATE].name))
            continue;
        if (!label_compares_recipes(r->label)) continue;
        trouble_set(
            t,
            "unpacking costs more time than the smaller weights save: use q8_0 or q4_0 instead of K and codebook "
            "formats, use all cores, and ask `qdyno advise`",
            "run %lld: %s was slower (x %.2f)", (long long)r->id, r->label, r->effect_ratio);
        return true;
    }
    return false;
}

static bool (*const TROUBLES[])(struct trouble *t, const struct trouble_case *c) = {
    find_little_memory,  find_swapping,         find_busy_cpus,       find_stolen_time,
    find_cpu_throttling, find_gpu_throttling,   find_container_limit, find_missing_driver,
    find_missing_opencl, find_slower_quantized,
};
_Static_assert(COUNT_OF(TROUBLES) <= TROUBLES_MAX, "all troubles may occur together");

int troubles_find(struct trouble out[TROUBLES_MAX], const struct trouble_case *c)
{
    int n = 0;
    for (size_t i = 0; i < COUNT_OF(TROUBLES); i++) n += TROUBLES[i](&out[n], c);
    return n;
}
