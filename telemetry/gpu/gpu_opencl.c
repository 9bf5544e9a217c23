/* telemetry/gpu/gpu_opencl.c - name and memory of devices that no other vendor's code lists, through OpenCL:
 * ARM, Qualcomm and Imagination GPUs, and accelerators. OpenCL has no sensors, so all other values are
 * unknown.
 *
 * Loading OpenCL loads the drivers of all installed devices, which takes time and memory. So it is not loaded
 * when all drivers belong to vendors whose devices are already listed. The numbers are those of the
 * OpenCL 3.0 specification. QDYNO_OPENCL names another library file. */
#include "telemetry/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/gpu/gpu_library.h"
#include "telemetry/gpu/gpu_vendor.h"
#include "base/sysfs/sysfs.h"

enum { CL_GPU = 1 << 2, CL_ACCELERATOR = 1 << 3, PLATFORMS = 16 };

enum shape { TEXT, U32, U64, BUS_ADDRESS };
enum opencl_query { NAME, VENDOR, DRIVER, MEMORY, CLOCK, BUS, QUERIES };
static const struct gpu_query OPENCL_QUERIES[QUERIES] = {
    [NAME] = { .key = "clGetDeviceInfo(NAME)", .shape = TEXT, .argument = 0x102b },
    [VENDOR] = { .key = "clGetDeviceInfo(VENDOR_ID)", .shape = U32, .argument = 0x1001, .part = { "id" } },
    [DRIVER] = { .key = "clGetDeviceInfo(DRIVER_VERSION)", .shape = TEXT, .argument = 0x102d },
    [MEMORY] = { .key = "clGetDeviceInfo(GLOBAL_MEM_SIZE)",
                 .shape = U64,
                 .argument = 0x101f,
                 .part = { "bytes" } },
    [CLOCK] = { .key = "clGetDeviceInfo(MAX_CLOCK_FREQUENCY)",
                .shape = U32,
                .argument = 0x100c,
                .part = { "MHz" } },
    [BUS] = { .key = "clGetDeviceInfo(PCI_BUS_INFO_KHR)",
              .shape = BUS_ADDRESS,
              .argument = 0x410f,
              .part = { "domain", "bus", "device", "function" } },
};

typedef int (*platforms_fn)(uint32_t, void **, uint32_t *);
typedef int (*devices_fn)(void *, uint64_t, uint32_t, void **, uint32_t *);
typedef int (*info_fn)(void *, uint32_t, size_t, void *, size_t *);

static int opencl_start(struct gpu_library *l)
{
    platforms_fn platforms = gpu_library_symbol(l, "clGetPlatformIDs");
    devices_fn devices = gpu_library_symbol(l, "clGetDeviceIDs");
    void *platform[PLATFORMS], *device[MACHINE_GPUS];
    uint32_t n = 0, found;
    const int bad = platforms && devices ? platforms(PLATFORMS, platform, &n) : LIBRARY_NO_ANSWER;
    if (bad) return bad;
    for (uint32_t i = 0; i < MIN(n, (uint32_t)PLATFORMS); i++) {
        if (devices(platform[i], CL_GPU | CL_ACCELERATOR, MACHINE_GPUS, device, &found)) continue;
        for (uint32_t k = 0; k < MIN(found, (uint32_t)MACHINE_GPUS) && l->devices < MACHINE_GPUS; k++)
            l->device[l->devices++] = device[k];
    }
    return 0;
}

static void opencl_stop(struct gpu_library *l)
{
    (void)l; /* opencl_start acquired nothing */
}

static int opencl_call(struct gpu_library *l, int device, const struct gpu_query *q, void *fn,
                       struct gpu_answer *out)
{
    info_fn info = (info_fn)fn;
    void *const d = l->device[device];
    uint32_t u[4] = { 0 };
    uint64_t v = 0;
    int code = LIBRARY_NO_ANSWER;
    switch ((enum shape)q->shape) {
    case TEXT: return info(d, (uint32_t)q->argument, sizeof out->text - 1, out->text, NULL);
    case U64:
        code = info(d, (uint32_t)q->argument, sizeof v, &v, NULL);
        out->value[0] = v;
        return code;
    case U32: code = info(d, (uint32_t)q->argument, sizeof u[0], u, NULL); break;
    case BUS_ADDRESS: code = info(d, (uint32_t)q->argument, sizeof u, u, NULL); break;
    }
    for (int i = 0; i < 4; i++) out->value[i] = u[i];
    return code;
}

static const struct gpu_library_kind OPENCL = {
    .name = "opencl",
    .file = "libOpenCL.so.1",
    .variable = "QDYNO_OPENCL",
    .queries = OPENCL_QUERIES,
    .n_queries = QUERIES,
    .start = opencl_start,
    .stop = opencl_stop,
    .call = opencl_call,
};

/* ---------------------------------------------------------------- identification */

static bool has_vendor(const struct gpu_list *list, const char *vendor)
{
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->gpu[i].vendor, vendor)) return true;
    return false;
}

/* True when an OpenCL driver is installed whose devices are not yet listed. */
static bool opencl_is_needed(const char *root, const struct gpu_list *list)
{
    static const struct {
        const char *driver, *vendor; /* prefix of the driver's file name; NULL: it drives only processors */
    } KNOWN[] = { { "nvidia", "nvidia" }, { "amdocl", "amd" }, { "intel", "intel" }, { "pocl", NULL } };
    struct sys_list drivers;
    const char *given = getenv(OPENCL.variable);
    if (*root || (given && *given)) return true; /* replaying recorded answers is cheap */
    sys_list(&drivers, root, "", "/etc/OpenCL/vendors");
    for (int i = 0; i < drivers.count; i++) {
        bool known = false;
        for (size_t k = 0; k < COUNT_OF(KNOWN); k++)
            if (str_starts(drivers.name[i], KNOWN[k].driver))
                known = !KNOWN[k].vendor || has_vendor(list, KNOWN[k].vendor);
        if (!known) return true;
    }
    return false;
}

static const char *vendor_name(uint64_t pci_vendor)
{
    static const struct {
        uint64_t id;
        const char *name;
    } VENDORS[] = { { 0x10de, "nvidia" },   { 0x1002, "amd" },   { 0x8086, "intel" },      { 0x13b5, "arm" },
                    { 0x5143, "qualcomm" }, { 0x106b, "apple" }, { 0x1010, "imagination" } };
    for (size_t i = 0; i < COUNT_OF(VENDORS); i++)
        if (VENDORS[i].id == pci_vendor) return VENDORS[i].name;
    return "opencl";
}

/* True when the device is already listed: with the same bus address or, if OpenCL does not report the
 * address, any device of that vendor. Two OpenCL drivers may also show one device twice. */
static bool is_listed(const struct gpu_list *list, const char *vendor, const char *name, const char *bus)
{
    for (int i = 0; i < list->count; i++) {
        const struct gpu_identity *g = &list->gpu[i];
        if (*bus && *g->bus ? !strcmp(g->bus, bus) : !strcmp(g->vendor, vendor)) {
            if (strcmp(g->source, OPENCL.name) || *bus || !strcmp(g->name, name)) return true;
        }
    }
    return false;
}

static void device_identify(struct gpu_library *l, int device, struct gpu_list *list)
{
    struct gpu_answer name, vendor, a;
    char bus[24] = "";
    if (gpu_library_query(l, device, NAME, &name)) return;
    const bool has_vendor_id = !gpu_library_query(l, device, VENDOR, &vendor);
    if (!gpu_library_query(l, device, BUS, &a))
        snprintf(bus, sizeof bus, "%04x:%02x:%02x.%x", (unsigned)a.value[0] & 0xffff,
                 (unsigned)a.value[1] & 0xff, (unsigned)a.value[2] & 0xff, (unsigned)a.value[3] & 0xf);
    const char *vendor_text = vendor_name(has_vendor_id ? vendor.value[0] : 0);
    if (is_listed(list, vendor_text, name.text, bus)) return;
    struct gpu_identity *g = gpu_list_add(list, vendor_text, OPENCL.name);
    if (!g) return;
    memcpy(g->name, name.text, sizeof g->name);
    memcpy(g->bus, bus, sizeof g->bus);
    if (!gpu_library_query(l, device, DRIVER, &a)) snprintf(g->driver, sizeof g->driver, "%.47s", a.text);
    if (!gpu_library_query(l, device, MEMORY, &a) && a.value[0] <= INT64_MAX)
        g->memory_bytes = (int64_t)a.value[0];
}

struct opencl {
    int count;
    double memory_bytes[MACHINE_GPUS];
};

static enum err_code opencl_open(void **state, const char *root, struct gpu_list *list, struct err *why)
{
    struct gpu_library *l;
    const int first = list->count;
    if (!opencl_is_needed(root, list))
        return err_set(why, ERR_ABSENT, "no OpenCL driver of another GPU (one for the CPU does not count)");
    const enum err_code rc = gpu_library_open(&l, &OPENCL, root, why);
    if (rc) return rc;
    for (int i = 0; i < l->devices; i++) device_identify(l, i, list);
    gpu_library_close(l);
    if (list->count == first) return err_set(why, ERR_ABSENT, "OpenCL shows no further device");
    struct opencl *o = calloc(1, sizeof *o);
    if (!o) return err_set(why, ERR_NOMEM, "out of memory listing OpenCL devices");
    for (; o->count < list->count - first; o->count++) {
        const int64_t bytes = list->gpu[first + o->count].memory_bytes;
        o->memory_bytes[o->count] = bytes > 0 ? (double)bytes : NAN;
    }
    *state = o;
    return ERR_OK;
}

static void opencl_sample(void *state, const char *root, const struct gpu_due *due, int64_t now_ns,
                          struct gpu_reading *reading)
{
    const struct opencl *o = state;
    (void)root;
    (void)now_ns;
    for (int i = 0; due->memory && i < o->count; i++) reading[i].mem_total_bytes = o->memory_bytes[i];
}

const struct gpu_vendor GPU_VENDOR_OPENCL = {
    .name = "opencl", .open = opencl_open, .sample = opencl_sample, .close = free, .library = &OPENCL
};
