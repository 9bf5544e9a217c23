/* telemetry/gpu/gpu_amdgpu.c - AMD GPUs, through the files of the amdgpu driver (kernel documentation,
 * "amdgpu: GPU power/thermal controls and monitoring"), and through ROCm's library for what the files lack.
 *
 * Throttle reasons and energy are in the binary file gpu_metrics, whose layout depends on the chip. It is
 * read if its version is one of those below (discrete cards). Otherwise energy comes from librocm_smi64, and
 * throttle reasons are unknown. */
#include "telemetry/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/gpu/gpu_library.h"
#include "telemetry/gpu/gpu_vendor.h"
#include "base/sysfs/sysfs.h"

/* ---------------------------------------------------------------- ROCm SMI */

/* Functions and numbers as in the manual of the ROCm System Management Interface. QDYNO_ROCM_SMI names
 * another library file. */
enum shape { TEXT, BUS_ID, ENERGY_COUNT };
enum rocm_query { NAME, BUS, ENERGY, QUERIES };
static const struct gpu_query ROCM_QUERIES[QUERIES] = {
    [NAME] = { .key = "rsmi_dev_name_get", .shape = TEXT },
    [BUS] = { .key = "rsmi_dev_pci_id_get", .shape = BUS_ID, .part = { "bdfid" } },
    [ENERGY] = { .key = "rsmi_dev_energy_count_get",
                 .shape = ENERGY_COUNT,
                 .part = { "count", "nanojoules_each", "ns" } },
};

static int rocm_start(struct gpu_library *l)
{
    int (*init)(uint64_t) = gpu_library_symbol(l, "rsmi_init");
    int (*count)(uint32_t *) = gpu_library_symbol(l, "rsmi_num_monitor_devices");
    const int bad = init && count ? init(0) : LIBRARY_NO_ANSWER;
    if (bad) return bad;
    uint32_t n = 0;
    if (count(&n)) n = 0;
    l->devices = (int)MIN(n, (uint32_t)MACHINE_GPUS);
    return 0;
}

static void rocm_stop(struct gpu_library *l)
{
    int (*stop)(void) = gpu_library_symbol(l, "rsmi_shut_down");
    if (stop) stop();
}

static int rocm_call(struct gpu_library *l, int device, const struct gpu_query *q, void *fn,
                     struct gpu_answer *out)
{
    const uint32_t d = (uint32_t)device;
    float microjoules = 0;
    int code = LIBRARY_NO_ANSWER;
    (void)l;
    switch ((enum shape)q->shape) {
    case TEXT: return ((int (*)(uint32_t, char *, size_t))fn)(d, out->text, sizeof out->text);
    case BUS_ID: return ((int (*)(uint32_t, uint64_t *))fn)(d, &out->value[0]);
    case ENERGY_COUNT:
        code = ((int (*)(uint32_t, uint64_t *, float *, uint64_t *))fn)(d, &out->value[0], &microjoules,
                                                                        &out->value[2]);
        out->value[1] = (uint64_t)(microjoules * 1e3f);
        return code;
    }
    return code;
}

static const struct gpu_library_kind ROCM = {
    .name = "rocm_smi",
    .file = "librocm_smi64.so",
    .variable = "QDYNO_ROCM_SMI",
    .queries = ROCM_QUERIES,
    .n_queries = QUERIES,
    .start = rocm_start,
    .stop = rocm_stop,
    .call = rocm_call,
};

/* ---------------------------------------------------------------- the driver's files */

struct amdgpu {
    struct drm_cards cards;
    struct gpu_library *rocm; /* NULL: not installed */
    int rocm_device[MACHINE_GPUS];
    uint64_t kfd_id[MACHINE_GPUS]; /* the card's number in the compute driver (KFD); 0: none */
};

/* Units of hwmon files ("@"): microwatts, millidegrees, hertz, and 0 to 255 for the fan. Older chips have
 * power1_average, newer ones power1_input. */
#define FIELD(name) offsetof(struct gpu_reading, name)
static const struct drm_file FILES[] = {
    { .due = DUE_BUSY, .offset = FIELD(busy_ratio), .file = "device/gpu_busy_percent", .scale = 1e-2 },
    { .due = DUE_BUSY, .offset = FIELD(memory_busy_ratio), .file = "device/mem_busy_percent", .scale = 1e-2 },
    { .due = DUE_MEMORY, .offset = FIELD(mem_used_bytes), .file = "device/mem_info_vram_used", .scale = 1 },
    { .due = DUE_MEMORY, .offset = FIELD(mem_total_bytes), .file = "device/mem_info_vram_total", .scale = 1 },
    { .due = DUE_MEMORY,
      .offset = FIELD(host_mem_used_bytes),
      .file = "device/mem_info_gtt_used",
      .scale = 1 },
    { .due = DUE_CLOCK, .offset = FIELD(core_hertz), .file = "@freq1_input", .scale = 1 },
    { .due = DUE_CLOCK, .offset = FIELD(memory_hertz), .file = "@freq2_input", .scale = 1 },
    { .due = DUE_POWER, .offset = FIELD(power_watts), .file = "@power1_average", .scale = 1e-6 },
    { .due = DUE_POWER, .offset = FIELD(power_watts), .file = "@power1_input", .scale = 1e-6 },
    { .due = DUE_POWER, .offset = FIELD(power_instant_watts), .file = "@power1_input", .scale = 1e-6 },
    { .due = DUE_POWER, .offset = FIELD(power_limit_watts), .file = "@power1_cap", .scale = 1e-6 },
    { .due = DUE_SLOW,
      .offset = FIELD(temperature_celsius),
      .file = "@temp1_input",
      .scale = 1e-3,
      .may_be_negative = true },
    { .due = DUE_SLOW,
      .offset = FIELD(hotspot_temperature_celsius),
      .file = "@temp2_input",
      .scale = 1e-3,
      .may_be_negative = true },
    { .due = DUE_SLOW,
      .offset = FIELD(memory_temperature_celsius),
      .file = "@temp3_input",
      .scale = 1e-3,
      .may_be_negative = true },
    { .due = DUE_SLOW, .offset = FIELD(fan_ratio), .file = "@pwm1", .scale = 1.0 / 255 },
};

/* The file gpu_metrics of discrete cards (struct gpu_metrics_v1_3 in the kernel's kgd_pp_interface.h).
 * Versions 1.1 to 1.4 have the energy at the same offset; only 1.3 has throttle reasons in a form that does
 * not depend on the chip. */
struct gpu_metrics {
    uint16_t size;
    uint8_t format, content;
    uint16_t before_energy[10];
    uint64_t energy; /* 2^-16 J */
    uint64_t clock;
    uint16_t clocks[14];
    uint32_t chip_throttle;
    uint16_t fan, width, speed, padding;
    uint32_t activity[2];
    uint16_t hbm[4];
    uint64_t firmware_clock;
    uint16_t volts[3];
    uint64_t throttle;
};
_Static_assert(offsetof(struct gpu_metrics, energy) == 24 && offsetof(struct gpu_metrics, throttle) == 112 &&
                   sizeof(struct gpu_metrics) == 120,
               "gpu_metrics_v1_3 is the driver's layout");

/* Maps SMU_THROTTLER_*_BIT: 16 bits each for power, current, temperature and others. */
static uint64_t throttle_reasons_map(uint64_t bits)
{
    static const struct {
        int first, last;
        uint64_t ours;
    } BITS[] = {
        { .first = 0, .last = 15, .ours = GPU_THROTTLE_POWER_CAP },
        { .first = 16, .last = 31, .ours = GPU_THROTTLE_CURRENT },
        { .first = 32, .last = 43, .ours = GPU_THROTTLE_THERMAL },
        { .first = 44, .last = 45, .ours = GPU_THROTTLE_HW_THERMAL }, /* VRHOT */
        { .first = 46, .last = 47, .ours = GPU_THROTTLE_HW_THERMAL },
        { .first = 48, .last = 56, .ours = GPU_THROTTLE_OTHER }, /* PROCHOT */
        { .first = 57, .last = 57, .ours = GPU_THROTTLE_RELIABILITY },
        { .first = 58, .last = 63, .ours = GPU_THROTTLE_OTHER },
    };
    uint64_t ours = 0;
    for (size_t i = 0; i < COUNT_OF(BITS); i++)
        for (int bit = BITS[i].first; bit <= BITS[i].last; bit++)
            if (bits >> bit & 1) ours |= BITS[i].ours;
    return ours;
}

/* Reads throttle reasons and energy. */
static void amdgpu_metrics_read(struct amdgpu *a, int card, const char *root, const struct gpu_due *due,
                                struct gpu_reading *r)
{
    struct gpu_metrics m = { 0 };
    const int n = sys_read_bytes(root, &m, sizeof m, "/sys/class/drm/%s/device/gpu_metrics",
                                 a->cards.card[card]);
    const bool known = n >= (int)sizeof m && m.format == 1 && m.content >= 1;
    if (due->throttle) {
        r->throttle_known = known && m.content == 3 && m.throttle != UINT64_MAX;
        r->throttle_reasons = r->throttle_known ? throttle_reasons_map(m.throttle) : 0;
    }
    if (!due->power) return;
    struct gpu_answer e;
    r->energy_joules = NAN;
    if (known && m.content <= 4 && m.energy && m.energy != UINT64_MAX)
        r->energy_joules = (double)m.energy / 65536;
    else if (a->rocm && a->rocm_device[card] >= 0 &&
             !gpu_library_query(a->rocm, a->rocm_device[card], ENERGY, &e))
        r->energy_joules = (double)e.value[0] * (double)e.value[1] * 1e-9;
}

/* The highest clock in a list such as "0: 500Mhz *\n1: 2600Mhz". */
static double amdgpu_highest_clock(const char *root, const char *card)
{
    char text[2048];
    double mhz = NAN;
    sys_read(root, text, sizeof text, "/sys/class/drm/%s/device/pp_dpm_sclk", card);
    for (const char *p = text; (p = strchr(p, ':')); p++) {
        double v;
        if (sscanf(p, ": %lfMhz", &v) == 1 && !(v < mhz)) mhz = v;
    }
    return mhz * 1e6;
}

/* The compute driver lists the processes that compute, with their memory on each card. */
static void amdgpu_processes(struct amdgpu *a, int card, const char *root, struct gpu_reading *r)
{
    struct sys_list pids;
    r->processes = -1;
    r->process_count = 0;
    if (!a->kfd_id[card] || !sys_exists(root, "/sys/class/kfd/kfd/proc")) return;
    r->processes = 0;
    sys_list(&pids, root, "", "/sys/class/kfd/kfd/proc");
    for (int i = 0; i < pids.count; i++) {
        int64_t pid;
        const double bytes = sys_number(root, "/sys/class/kfd/kfd/proc/%s/vram_%llu", pids.name[i],
                                        (unsigned long long)a->kfd_id[card]);
        if (bytes > 0 && str_to_i64(pids.name[i], &pid) && pid > 0) gpu_process_add(r, (int)pid, bytes);
    }
}

static void amdgpu_sample(void *state, const char *root, const struct gpu_due *due, int64_t now_ns,
                          struct gpu_reading *reading)
{
    struct amdgpu *a = state;
    (void)now_ns;
    for (int i = 0; i < a->cards.count; i++) {
        struct gpu_reading *r = &reading[i];
        const char *card = a->cards.card[i];
        drm_files_read(FILES, COUNT_OF(FILES), root, &a->cards, i, due, r);
        if (due->throttle || due->power) amdgpu_metrics_read(a, i, root, due, r);
        if (!due->slow) continue;
        char errors[128];
        if (sys_read(root, errors, sizeof errors, "/sys/class/drm/%s/device/ras/umc_err_count", card) > 0) {
            r->ecc_uncorrected = sys_field(errors, "ue:");
            r->ecc_corrected = sys_field(errors, "ce:");
        }
        if (!*r->uuid) sys_read(root, r->uuid, sizeof r->uuid, "/sys/class/drm/%s/device/unique_id", card);
        r->core_max_hertz = amdgpu_highest_clock(root, card);
        drm_pcie_link(root, card, &r->pcie_generation, &r->pcie_width);
        amdgpu_processes(a, i, root, r);
    }
}

/* ---------------------------------------------------------------- identification */

/* Finds each card's number in the compute driver, which identifies cards by location_id: bus, device and
 * function in one number. */
static void kfd_find(struct amdgpu *a, const char *root, const struct gpu_identity *gpu)
{
    struct sys_list nodes;
    sys_list(&nodes, root, "", "/sys/class/kfd/kfd/topology/nodes");
    for (int k = 0; k < nodes.count; k++) {
        char text[4096];
        const int64_t id = sys_integer(root, "/sys/class/kfd/kfd/topology/nodes/%s/gpu_id", nodes.name[k]);
        if (id <= 0) continue; /* the node is a processor */
        sys_read(root, text, sizeof text, "/sys/class/kfd/kfd/topology/nodes/%s/properties", nodes.name[k]);
        const double location = sys_field(text, "location_id"), domain = sys_field(text, "domain");
        if (!(location >= 0)) continue;
        char bus[24];
        const unsigned l = (unsigned)location;
        snprintf(bus, sizeof bus, "%04x:%02x:%02x.%x", domain > 0 ? (unsigned)domain : 0, l >> 8 & 0xff,
                 l >> 3 & 0x1f, l & 7);
        for (int i = 0; i < a->cards.count; i++)
            if (!strcmp(gpu[i].bus, bus)) a->kfd_id[i] = (uint64_t)id;
    }
}

static void rocm_find(struct amdgpu *a, const char *root, struct gpu_identity *gpu)
{
    for (int i = 0; i < a->cards.count; i++) a->rocm_device[i] = -1;
    if (gpu_library_open(&a->rocm, &ROCM, root, NULL)) return;
    for (int d = 0; d < a->rocm->devices; d++) {
        struct gpu_answer id, name;
        char bus[24];
        if (gpu_library_query(a->rocm, d, BUS, &id)) continue;
        const uint64_t v = id.value[0];
        snprintf(bus, sizeof bus, "%04x:%02x:%02x.%x", (unsigned)(v >> 32) & 0xffff,
                 (unsigned)(v >> 8) & 0xff, (unsigned)(v >> 3) & 0x1f, (unsigned)v & 7);
        for (int i = 0; i < a->cards.count; i++) {
            if (strcmp(gpu[i].bus, bus)) continue;
            a->rocm_device[i] = d;
            /* neither the card nor the PCI id list provided a name */
            if (str_starts(gpu[i].name, "amd GPU") && !gpu_library_query(a->rocm, d, NAME, &name))
                memcpy(gpu[i].name, name.text, sizeof gpu[i].name);
        }
    }
}

static void amdgpu_close(void *state)
{
    struct amdgpu *a = state;
    gpu_library_close(a->rocm);
    free(a);
}

static enum err_code amdgpu_open(void **state, const char *root, struct gpu_list *list, struct err *why)
{
    struct amdgpu *a = calloc(1, sizeof *a);
    if (!a) return err_set(why, ERR_NOMEM, "out of memory opening the AMD GPU sensors");
    const int first = list->count;
    drm_cards_find(&a->cards, root, "0x1002");
    drm_cards_identify(list, root, &a->cards, "amd", "amdgpu");
    a->cards.count = list->count - first; /* fewer when the list is full */
    if (!a->cards.count) {
        free(a);
        return err_set(why, ERR_ABSENT, "no AMD GPU in '%s/sys/class/drm'", root);
    }
    struct gpu_identity *gpu = &list->gpu[first];
    for (int i = 0; i < a->cards.count; i++)
        gpu[i].memory_bytes = sys_integer(root, "/sys/class/drm/%s/device/mem_info_vram_total",
                                          a->cards.card[i]);
    kfd_find(a, root, gpu);
    rocm_find(a, root, gpu);
    *state = a;
    return ERR_OK;
}

const struct gpu_vendor GPU_VENDOR_AMDGPU = {
    .name = "amdgpu", .open = amdgpu_open, .sample = amdgpu_sample, .close = amdgpu_close, .library = &ROCM
};
