/* List OpenCL devices and the properties that their drivers report. */
#include <stdio.h>
#include <string.h>

#include "kernels/opencl/device.h"

/* Queries of extensions that Debian's headers do not all name. */
enum {
    PCI_BUS_INFO = 0x410F, /* cl_khr_pci_bus_info */
    NV_COMPUTE_MAJOR = 0x4000,
    NV_COMPUTE_MINOR = 0x4001,
    NV_WARP_SIZE = 0x4003,
    NV_INTEGRATED_MEMORY = 0x4006,
    NV_PCI_BUS = 0x4008,
    NV_PCI_SLOT = 0x4009,
    NV_PCI_DOMAIN = 0x400A,
    AMD_TOPOLOGY = 0x4037,
    AMD_WAVEFRONT_WIDTH = 0x4043,
};

static void text_of(cl_device_id id, cl_device_info what, char *out, size_t size)
{
    char text[512] = "";
    if (clGetDeviceInfo(id, what, sizeof text - 1, text, NULL)) text[0] = 0;
    const char *from = text + strspn(text, " ");
    size_t n = strlen(from);
    while (n && from[n - 1] == ' ') n--;
    snprintf(out, size, "%.*s", (int)n, from);
}

/* A number of 4 or 8 bytes, or -1. */
static int64_t number_of(cl_device_id id, cl_device_info what)
{
    uint64_t v = 0;
    size_t size = 0;
    if (clGetDeviceInfo(id, what, sizeof v, &v, &size)) return -1;
    return size == 4 ? (int64_t)(uint32_t)v : size == 8 ? (int64_t)v : -1;
}

static void pci_of(cl_device_id id, char *out, size_t size)
{
    uint32_t at[4];
    uint8_t topology[24];
    size_t got = 0;
    out[0] = 0;
    if (!clGetDeviceInfo(id, PCI_BUS_INFO, sizeof at, at, &got) && got == sizeof at) {
        snprintf(out, size, "%04x:%02x:%02x.%x", at[0], at[1], at[2], at[3]);
    } else if (number_of(id, NV_PCI_BUS) >= 0) {
        const int64_t domain = number_of(id, NV_PCI_DOMAIN), slot = number_of(id, NV_PCI_SLOT);
        snprintf(out, size, "%04x:%02x:%02x.%x", (unsigned)MAX(domain, 0),
                 (unsigned)number_of(id, NV_PCI_BUS), (unsigned)(slot >> 3), (unsigned)(slot & 7));
    } else if (!clGetDeviceInfo(id, AMD_TOPOLOGY, sizeof topology, topology, &got) &&
               got == sizeof topology &&
               topology[0] == 1) { /* type PCIe; its last three bytes are bus, device, function */
        snprintf(out, size, "0000:%02x:%02x.%x", topology[21], topology[22], topology[23]);
    }
}

static bool extensions_have(const char *extensions, const char *name)
{
    return str_has_word(extensions, name);
}

static void device_describe(struct device_info *d, cl_device_id id, int index)
{
    char extensions[8192] = "";
    cl_platform_id platform = NULL;
    cl_device_type type = 0;
    *d = (struct device_info){ .subgroup_size = -1 };
    if (clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, sizeof extensions - 1, extensions, NULL)) extensions[0] = 0;
    clGetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    snprintf(d->name, sizeof d->name, "opencl:%d", index);
    text_of(id, CL_DEVICE_NAME, d->model, sizeof d->model);
    text_of(id, CL_DEVICE_VENDOR, d->vendor, sizeof d->vendor);
    text_of(id, CL_DRIVER_VERSION, d->driver, sizeof d->driver);
    text_of(id, CL_DEVICE_VERSION, d->version, sizeof d->version);
    if (clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof d->platform - 1, d->platform, NULL))
        d->platform[0] = 0;
    pci_of(id, d->pci, sizeof d->pci);
    d->gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
    d->shares_memory = number_of(id, CL_DEVICE_HOST_UNIFIED_MEMORY) > 0 ||
                       number_of(id, NV_INTEGRATED_MEMORY) > 0;
    d->fp16 = extensions_have(extensions, "cl_khr_fp16");
    d->fp64 = extensions_have(extensions, "cl_khr_fp64");
    /* The extension is written against OpenCL 3.0; its functions are declared there only. */
    d->int_dot = extensions_have(extensions, "cl_khr_integer_dot_product") &&
                 !strncmp(d->version, "OpenCL 3", 8);
    d->dp4a = number_of(id, NV_COMPUTE_MAJOR) * 10 + number_of(id, NV_COMPUTE_MINOR) >= 61;
    d->bf16 = extensions_have(extensions, "cl_intel_bfloat16_conversions");
    d->subgroups = extensions_have(extensions, "cl_khr_subgroups") ||
                   number_of(id, CL_DEVICE_MAX_NUM_SUB_GROUPS) > 0;
    const int64_t warp = number_of(id, NV_WARP_SIZE), wave = number_of(id, AMD_WAVEFRONT_WIDTH);
    d->subgroup_size = (int)MAX(warp, wave);
    d->compute_units = (int)number_of(id, CL_DEVICE_MAX_COMPUTE_UNITS);
    d->clock_mhz = (int)number_of(id, CL_DEVICE_MAX_CLOCK_FREQUENCY);
    d->memory_bytes = number_of(id, CL_DEVICE_GLOBAL_MEM_SIZE);
    d->alloc_bytes = number_of(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    d->local_bytes = number_of(id, CL_DEVICE_LOCAL_MEM_SIZE);
    d->group_items = number_of(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
}

/* Call `see` for the devices of all platforms in order, except those without a compiler. `see` returns false
 * to stop. */
static void each_device(bool (*see)(void *ctx, cl_device_id id, int index), void *ctx)
{
    enum { MOST = 16 };
    cl_platform_id platforms[MOST];
    cl_device_id ids[MOST];
    cl_uint platform_count = 0;
    int index = 0;
    if (clGetPlatformIDs(MOST, platforms, &platform_count)) return;
    for (cl_uint p = 0; p < MIN(platform_count, (cl_uint)MOST); p++) {
        cl_uint count = 0;
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MOST, ids, &count)) continue;
        for (cl_uint i = 0; i < MIN(count, (cl_uint)MOST); i++) {
            if (number_of(ids[i], CL_DEVICE_COMPILER_AVAILABLE) < 1) continue;
            if (!see(ctx, ids[i], index++)) return;
        }
    }
}

struct listing {
    struct device_info *out;
    int most, count;
};

static bool list_one(void *ctx, cl_device_id id, int index)
{
    struct listing *l = ctx;
    if (index < l->most) device_describe(&l->out[index], id, index);
    l->count++;
    return true;
}

int opencl_devices(struct device_info *out, int most)
{
    struct listing l = { .out = out, .most = most };
    each_device(list_one, &l);
    return l.count;
}

struct device_search {
    struct device_info *info;
    cl_device_id *id;
    int wanted, seen;
    bool found;
};

static bool search_visit_device(void *ctx, cl_device_id id, int index)
{
    struct device_search *s = ctx;
    s->seen++;
    if (index != s->wanted) return true;
    device_describe(s->info, id, index);
    *s->id = id;
    s->found = true;
    return false;
}

enum err_code device_find(struct device_info *out, cl_device_id *id, const char *device, struct err *why)
{
    int64_t wanted = -1;
    if (!str_starts(device, "opencl:") || !str_to_i64(device + strlen("opencl:"), &wanted) || wanted < 0 ||
        wanted > 999)
        return err_set(why, ERR_USAGE, "device=%s: expected opencl:0, opencl:1 ...", device);
    struct device_search s = { .info = out, .id = id, .wanted = (int)wanted };
    each_device(search_visit_device, &s);
    if (s.found) return ERR_OK;
    if (!s.seen)
        return err_set(why, ERR_ABSENT,
                       "device=%s: there is no OpenCL device here: install the driver of your GPU, or "
                       "pocl-opencl-icd for the processor (`qdyno detect` lists devices)",
                       device);
    return err_set(why, ERR_ABSENT, "device=%s: the last of %d OpenCL devices is opencl:%d (`qdyno detect`)",
                   device, s.seen, s.seen - 1);
}
