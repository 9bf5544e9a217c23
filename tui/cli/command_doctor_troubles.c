/* tui/cli/command_doctor_troubles.c - one table of troubles. What a sensor does not tell is no trouble. */
#include "tui/cli/command_doctor_troubles.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void found(struct trouble *t, const char *advice, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void found(struct trouble *t, const char *advice, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->found, sizeof t->found, fmt, args);
    va_end(args);
    snprintf(t->advice, sizeof t->advice, "%s", advice);
}

static bool swapping(struct trouble *t, const struct trouble_case *c)
{
    char used[16];
    const double moving = fmax(c->row[METRIC_SWAP_IN], c->row[METRIC_SWAP_OUT]);
    if (!(c->row[METRIC_SWAP_USED] > 0.02 * c->row[METRIC_SWAP_TOTAL]) && !(moving > 0)) return false;
    found(
        t,
        "a model that is swapped decodes at the disk's pace: qdyno fit says what fits; close programs, or swapoff -a",
        "%s in swap%s", str_from_bytes((int64_t)fmax(c->row[METRIC_SWAP_USED], 0), used, sizeof used),
        moving > 0 ? ", and moving" : "");
    return true;
}

static bool short_of_memory(struct trouble *t, const struct trouble_case *c)
{
    char left[16];
    const struct machine *m = c->machine;
    const bool pressed = c->row[METRIC_PSI_MEMORY] > 0.05;
    if (!(m->memory_available_bytes >= 0 && m->memory_available_bytes < m->memory_bytes / 10) && !pressed)
        return false;
    found(
        t,
        "out of memory is near: a smaller format, context or kv=q8_0 (qdyno fit -C q4_0,kv=q8_0), or fewer programs",
        "%s of memory left%s", str_from_bytes(m->memory_available_bytes, left, sizeof left),
        pressed ? ", and programs wait for it" : "");
    return true;
}

static bool busy_otherwise(struct trouble *t, const struct trouble_case *c)
{
    if (!(c->row[METRIC_OTHERS_BUSY] > 0.1)) return false;
    found(t, "measurements are discarded while others compute: wait, or stop them (top)",
          "other programs take %.0f %% of the processors", 100 * c->row[METRIC_OTHERS_BUSY]);
    return true;
}

static bool stolen(struct trouble *t, const struct trouble_case *c)
{
    if (!(c->row[METRIC_CPU_STEAL] > 0.02)) return false;
    found(t, "the host gives this virtual machine's time to others: another hour, or a machine of one's own",
          "%.0f %% of time stolen", 100 * c->row[METRIC_CPU_STEAL]);
    return true;
}

static bool too_hot(struct trouble *t, const struct trouble_case *c)
{
    const double held = c->row[METRIC_CPU_THROTTLE];
    if (!(held > 0)) return false;
    found(t, "rates fall while it lasts: cooling, a power limit, or fewer threads (threads=N)",
          "processors held their clocks down for heat, %.3g times a second", held);
    return true;
}

static bool gpu_held_back(struct trouble *t, const struct trouble_case *c)
{
    if (!(c->row[METRIC_GPU_THROTTLE] > 0)) return false;
    found(t, "qdyno telemetry names the reason; power and heat limits are the usual ones",
          "a GPU is held back");
    return true;
}

static bool container_throttled(struct trouble *t, const struct trouble_case *c)
{
    const struct machine *m = c->machine;
    if (m->cgroup_cpus >= 1 && m->cgroup_cpus < m->cores) {
        char advice[160];
        snprintf(advice, sizeof advice,
                 "threads=%d: more of them wait for each other and are stopped by the quota",
                 (int)m->cgroup_cpus);
        found(t, advice, "a limit of %.3g processors, %d cores", m->cgroup_cpus, m->cores);
        return true;
    }
    if (!(c->row[METRIC_CGROUP_THROTTLED] > 0)) return false;
    found(t, "its quota stops it in every period: fewer threads, or a larger quota",
          "the container is throttled");
    return true;
}

static bool no_driver(struct trouble *t, const struct trouble_case *c)
{
    for (int i = 0; i < c->machine->gpus; i++) {
        const struct gpu_identity *u = &c->machine->gpu[i];
        if (*u->driver || strcmp(u->source, "kernel")) continue;
        found(t, "install the maker's driver, or check that it fits the kernel (dmesg, modinfo)",
              "%s %s: the bus shows it, no driver answers", u->vendor, u->name);
        return true;
    }
    return false;
}

/* A GPU that does not tell its place could be any board. */
static bool some_place_is_unknown(const struct devices *all)
{
    for (int i = 0; i < all->count; i++)
        if (all->device[i].gpu && !*all->device[i].pci) return true;
    return false;
}

/* A board that telemetry sees and OpenCL does not: its driver for OpenCL is a package of its own. */
static bool no_opencl(struct trouble *t, const struct trouble_case *c)
{
    static const struct {
        const char *vendor, *advice;
    } ICDS[] = {
        { "nvidia",
          "apt install nvidia-opencl-icd; in a container the runtime must bring it (NVIDIA_DRIVER_CAPABILITIES=compute,"
          "utility), and /etc/OpenCL/vendors/nvidia.icd must name libnvidia-opencl.so.1" },
        { "amd", "apt install mesa-opencl-icd (or ROCm's), and be in the groups render and video" },
        { "intel", "apt install intel-opencl-icd, and be in the group render" },
    };
    if (!c->devices || some_place_is_unknown(c->devices)) return false;
    for (int i = 0; i < c->machine->gpus; i++) {
        const struct gpu_identity *u = &c->machine->gpu[i];
        if (!*u->bus || !strcmp(u->source, "opencl") || device_of_gpu(c->devices, u)) continue;
        const char *advice = "install its maker's OpenCL driver";
        for (size_t k = 0; k < COUNT_OF(ICDS); k++)
            if (!strcmp(u->vendor, ICDS[k].vendor)) advice = ICDS[k].advice;
        found(t, advice, "%.80s at %s: %s", u->name, u->bus,
              c->devices->count ? "no OpenCL platform has a device for it" : "no OpenCL driver");
        return true;
    }
    return false;
}

/* "A vs B" where B is a recipe of fewer bits and A another one or none: else it was not quantizing that was
 * slower. */
static bool compares_recipes(const char *label)
{
    static const char BETWEEN[] = " vs ";
    char line[2][256], recipe[2][CONFIG_VALUE * 2];
    struct config c;
    const char *cut = strstr(label, BETWEEN);
    if (!cut) return false;
    snprintf(line[0], sizeof line[0], "%.*s", (int)(cut - label), label);
    snprintf(line[1], sizeof line[1], "%s", cut + strlen(BETWEEN));
    for (int i = 0; i < 2; i++) {
        if (config_parse(&c, strcmp(line[i], "default") ? line[i] : "", NULL)) return false;
        config_recipe(&c, recipe[i], sizeof recipe[i]);
    }
    const struct format *f = format_find(recipe[1]); /* NULL: a method's */
    return strcmp(recipe[0], recipe[1]) && strcmp(recipe[1], "file") &&
           (!f || format_bits_per_weight(f) < 16);
}

/* The newest A/B in which fewer bits were slower. */
static bool slower_quantized(struct trouble *t, const struct trouble_case *c)
{
    for (int i = 0; i < c->n_runs; i++) {
        const struct run_row *r = &c->runs[i];
        if (strcmp(r->kind, "ab") || strcmp(r->verdict, "worse") || strcmp(r->metric, "decode_tok_s"))
            continue;
        if (!compares_recipes(r->label)) continue;
        found(
            t,
            "unpacking costs more than the bytes save here: q8_0 or q4_0 instead of K and codebook formats, all "
            "cores, and qdyno advise for what is bound by arithmetic",
            "run %lld: %.80s was slower (x %.2f)", (long long)r->id, r->label, r->effect_ratio);
        return true;
    }
    return false;
}

static bool (*const TROUBLES[])(struct trouble *t, const struct trouble_case *c) = {
    short_of_memory,     swapping,  busy_otherwise, stolen,           too_hot, gpu_held_back,
    container_throttled, no_driver, no_opencl,      slower_quantized,
};
_Static_assert(COUNT_OF(TROUBLES) <= TROUBLES_MAX, "all may be there");

int troubles_find(struct trouble out[TROUBLES_MAX], const struct trouble_case *c)
{
    int n = 0;
    for (size_t i = 0; i < COUNT_OF(TROUBLES); i++) n += TROUBLES[i](&out[n], c);
    return n;
}
