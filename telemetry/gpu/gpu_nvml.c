/* telemetry/gpu/gpu_nvml.c - NVIDIA GPUs, through the driver's library NVML if it is installed.
 *
 * Every function and value of the library is optional: what a card, a driver or missing permissions do not
 * provide is unknown for that card. A card that no longer answers on the bus is unknown from then on.
 *
 * Without the library, or in a recording without its answers, the kernel's files still name the cards. */
#include "telemetry/gpu/gpu_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/gpu/gpu_vendor.h"
#include "base/sysfs/sysfs.h"

/* ---------------------------------------------------------------- readings */

struct nvml {
    struct gpu_library *library; /* NULL: devices have a name but no readings */
    struct {
        bool lost, counts_pcie;
        struct rate rx, tx;
    } card[MACHINE_GPUS];
    int next_throughput; /* the card whose PCIe traffic is measured next: see nvml_traffic */
};

/* Makes one query; false when the value is unknown. Notes when the card was lost. */
static bool nvml_ask(struct nvml *n, int card, enum nvml_query q, struct gpu_answer *a)
{
    if (n->card[card].lost) return false;
    const int code = gpu_library_query(n->library, card, q, a);
    n->card[card].lost |= code == NVML_ERROR_GPU_IS_LOST;
    return !code;
}

/* A number times `scale`; NAN: unknown. */
static double nvml_number(struct nvml *n, int card, enum nvml_query q, double scale)
{
    struct gpu_answer a;
    return nvml_ask(n, card, q, &a) && a.value[0] != UINT64_MAX ? (double)a.value[0] * scale : NAN;
}

/* A whole number from 0 to `most`; -1: unknown. */
static int nvml_integer(struct nvml *n, int card, enum nvml_query q, int most)
{
    const double v = nvml_number(n, card, q, 1);
    return v >= 0 && v <= most ? (int)v : -1;
}

/* Memory used by programs. The newer call reports the driver's own part separately, and it counts as neither
 * used nor free; the older call includes it in what is used. */
static void nvml_memory(struct nvml *n, int card, struct gpu_reading *r)
{
    struct gpu_answer a;
    r->mem_used_bytes = r->mem_total_bytes = NAN;
    if (nvml_ask(n, card, MEMORY_2, &a)) {
        const uint64_t total = a.value[0], reserved = a.value[1], left = a.value[2];
        r->mem_total_bytes = (double)total;
        if (reserved + left <= total) r->mem_used_bytes = (double)(total - reserved - left);
    } else if (nvml_ask(n, card, MEMORY_1, &a)) {
        r->mem_total_bytes = (double)a.value[0];
        r->mem_used_bytes = (double)a.value[2];
    }
}

static void nvml_throttle(struct nvml *n, int card, struct gpu_reading *r)
{
    static const struct {
        uint64_t theirs, ours;
    } BITS[] = {
        { 0x1, GPU_THROTTLE_IDLE },           { 0x2, GPU_THROTTLE_CLOCK_SETTING },
        { 0x4, GPU_THROTTLE_POWER_CAP },      { 0x8, GPU_THROTTLE_HW_SLOWDOWN },
        { 0x10, GPU_THROTTLE_SYNC_BOOST },    { 0x20, GPU_THROTTLE_THERMAL },
        { 0x40, GPU_THROTTLE_HW_THERMAL },    { 0x80, GPU_THROTTLE_POWER_BRAKE },
        { 0x100, GPU_THROTTLE_CLOCK_SETTING } /* display clocks */
    };
    struct gpu_answer a;
    r->throttle_reasons = 0;
    r->throttle_known = nvml_ask(n, card, REASONS, &a) || nvml_ask(n, card, REASONS_OLD, &a);
    if (!r->throttle_known) return;
    uint64_t rest = a.value[0];
    for (size_t i = 0; i < COUNT_OF(BITS); i++) {
        if (rest & BITS[i].theirs) r->throttle_reasons |= BITS[i].ours;
        rest &= ~BITS[i].theirs;
    }
    if (rest) r->throttle_reasons |= GPU_THROTTLE_OTHER;
}

static bool processes_have(const struct gpu_answer *list, uint64_t pid)
{
    for (int i = 0; i + 1 < list->count; i += 2)
        if (list->value[i] == pid) return true;
    return false;
}

/* A process that both computes and draws is in both lists, and is counted once. */
static void nvml_processes(struct nvml *n, int card, struct gpu_reading *r)
{
    struct gpu_answer lists[2];
    r->processes = -1;
    r->process_count = 0;
    for (int k = 0; k < 2; k++) {
        if (!nvml_ask(n, card, k ? GRAPHICS : COMPUTE, &lists[k])) {
            lists[k].count = 0;
            continue;
        }
        r->processes = MAX(r->processes, 0);
        for (int i = 0; i + 1 < lists[k].count; i += 2) {
            const uint64_t bytes = lists[k].value[i + 1];
            if (k && processes_have(&lists[0], lists[k].value[i])) continue;
            gpu_process_add(r, (int)lists[k].value[i], bytes == UINT64_MAX ? NAN : (double)bytes);
        }
    }
}

/* PCI Express traffic. Newer cards count bytes. For others the library measures the link for 20 ms, during
 * which the caller waits; so it is called for one card at a time, at the slowest period. */
static void nvml_traffic(struct nvml *n, int card, const struct gpu_due *due, int64_t now_ns,
                         struct gpu_reading *r)
{
    if (due->clock) {
        const double tx = nvml_number(n, card, PCIE_COUNT_TX, 1), rx = nvml_number(n, card, PCIE_COUNT_RX, 1);
        n->card[card].counts_pcie |= !isnan(tx) && !isnan(rx);
        if (n->card[card].counts_pcie) {
            r->pcie_tx_bytes_s = rate_next(&n->card[card].tx, tx, 0, now_ns);
            r->pcie_rx_bytes_s = rate_next(&n->card[card].rx, rx, 0, now_ns);
        }
    }
    if (due->slow && card == n->next_throughput && !n->card[card].counts_pcie) {
        r->pcie_tx_bytes_s = nvml_number(n, card, PCIE_TX, 1e3);
        r->pcie_rx_bytes_s = nvml_number(n, card, PCIE_RX, 1e3);
    }
}

static void nvml_slow(struct nvml *n, int card, struct gpu_reading *r)
{
    struct gpu_answer a;
    if (!*r->uuid && nvml_ask(n, card, UUID, &a)) snprintf(r->uuid, sizeof r->uuid, "%.47s", a.text);
    r->temperature_celsius = nvml_number(n, card, TEMPERATURE, 1);
    r->memory_temperature_celsius = nvml_number(n, card, MEMORY_TEMPERATURE, 1);
    r->fan_ratio = nvml_number(n, card, FAN, 1e-2);
    r->core_max_hertz = nvml_number(n, card, CLOCK_CORE_MAX, 1e6);
    r->pcie_generation = nvml_integer(n, card, LINK_GENERATION, 16);
    r->pcie_width = nvml_integer(n, card, LINK_WIDTH, 64);
    r->ecc_corrected = nvml_number(n, card, ECC_CORRECTED, 1);
    r->ecc_uncorrected = nvml_number(n, card, ECC_UNCORRECTED, 1);
    r->partitions = -1;
    if (nvml_ask(n, card, MIG_MODE, &a)) {
        const double parts = a.value[0] ? nvml_number(n, card, MIG_DEVICES, 1) : 0;
        r->partitions = isnan(parts) ? 0 : (int)parts;
    }
    nvml_processes(n, card, r);
}

static void nvml_sample(void *state, const char *root, const struct gpu_due *due, int64_t now_ns,
                        struct gpu_reading *reading)
{
    struct nvml *n = state;
    struct gpu_answer a;
    (void)root;
    for (int i = 0; n->library && i < n->library->devices; i++) {
        struct gpu_reading *r = &reading[i];
        if (due->busy) {
            const bool known = nvml_ask(n, i, BUSY, &a);
            r->busy_ratio = known && a.value[0] <= 100 ? (double)a.value[0] / 100 : NAN;
            r->memory_busy_ratio = known && a.value[1] <= 100 ? (double)a.value[1] / 100 : NAN;
        }
        if (due->memory) nvml_memory(n, i, r);
        if (due->clock) {
            r->core_hertz = nvml_number(n, i, CLOCK_CORE, 1e6);
            r->memory_hertz = nvml_number(n, i, CLOCK_MEMORY, 1e6);
        }
        if (due->throttle) nvml_throttle(n, i, r);
        if (due->power) {
            r->power_watts = nvml_number(n, i, POWER, 1e-3);
            r->power_instant_watts = nvml_number(n, i, POWER_INSTANT, 1e-3);
            r->power_limit_watts = nvml_number(n, i, POWER_LIMIT, 1e-3);
            r->energy_joules = nvml_number(n, i, ENERGY, 1e-3);
        }
        if (due->slow) nvml_slow(n, i, r);
        nvml_traffic(n, i, due, now_ns, r);
        if (n->card[i].lost) {
            gpu_reading_forget(r);
            r->lost = true;
        }
    }
    if (due->slow && n->library) n->next_throughput = (n->next_throughput + 1) % n->library->devices;
}

/* ---------------------------------------------------------------- identification */

/* Lists the cards that the kernel module names. */
static void proc_identify(const char *root, struct gpu_list *list)
{
    struct sys_list cards;
    char text[2048], name[96], version[512];
    sys_list(&cards, root, "", "/proc/driver/nvidia/gpus");
    for (int i = 0; i < cards.count; i++) {
        sys_read(root, text, sizeof text, "/proc/driver/nvidia/gpus/%s/information", cards.name[i]);
        if (!sys_text_field(text, "Model", name, sizeof name)) continue;
        struct gpu_identity *g = gpu_list_add(list, "nvidia", "kernel");
        if (!g) return;
        memcpy(g->name, name, sizeof g->name);
        snprintf(g->bus, sizeof g->bus, "%.23s", cards.name[i]);
        sys_read(root, version, sizeof version, "/sys/module/nvidia/version");
        snprintf(g->driver, sizeof g->driver, "%.47s", version);
    }
}

static void library_identify(struct nvml *n, struct gpu_list *list)
{
    for (int i = 0; i < n->library->devices; i++) {
        struct gpu_identity *g = gpu_list_add(list, "nvidia", "nvml");
        struct gpu_answer a;
        if (!g) {
            n->library->devices = i; /* the list is full */
            return;
        }
        if (nvml_ask(n, i, NAME, &a))
            snprintf(g->name, sizeof g->name, "%s", a.text);
        else
            snprintf(g->name, sizeof g->name, "NVIDIA GPU %d", i);
        if (nvml_ask(n, i, DRIVER, &a)) snprintf(g->driver, sizeof g->driver, "%.47s", a.text);
        if (nvml_ask(n, i, BUS, &a))
            snprintf(g->bus, sizeof g->bus, "%04x:%02x:%02x.0", (unsigned)a.value[0] & 0xffffff,
                     (unsigned)a.value[1] & 0xff, (unsigned)a.value[2] & 0xff);
        if (nvml_ask(n, i, MEMORY_2, &a) || nvml_ask(n, i, MEMORY_1, &a))
            g->memory_bytes = a.value[0] <= INT64_MAX ? (int64_t)a.value[0] : -1;
        if (nvml_ask(n, i, CAPABILITY, &a) && a.value[0] < 1000 && a.value[1] < 1000) {
            g->compute_major = (int)a.value[0];
            g->compute_minor = (int)a.value[1];
        }
    }
}

/* Explains why a card that only the kernel names has no readings. */
static void explain_trouble(struct gpu_identity *g, const struct err *missing)
{
    if (!strcmp(g->driver, "nouveau"))
        snprintf(g->trouble, sizeof g->trouble,
                 "its driver nouveau provides no sensors: install NVIDIA's driver");
    else if (strstr(missing->message, "cannot be used"))
        snprintf(g->trouble, sizeof g->trouble, "%.159s", missing->message);
    else
        snprintf(g->trouble, sizeof g->trouble,
                 "its sensors need %s, which comes with NVIDIA's driver (Debian: libnvidia-ml1)", NVML.file);
}

static void nvml_close(void *state)
{
    struct nvml *n = state;
    if (n) gpu_library_close(n->library);
    free(n);
}

static enum err_code nvml_open(void **state, const char *root, struct gpu_list *list, struct err *why)
{
    const int before = list->count;
    struct nvml *n = calloc(1, sizeof *n);
    if (!n) return err_set(why, ERR_NOMEM, "out of memory opening the NVIDIA sensors");
    struct err missing = { 0 };
    const enum err_code rc = gpu_library_open(&n->library, &NVML, root, &missing);
    if (rc) err_set(why, rc, "%s", missing.message);
    if (!rc) {
        library_identify(n, list);
    } else {
        proc_identify(root, list);
        if (list->count == before) {
            struct drm_cards cards;
            drm_cards_find(&cards, root, "0x10de");
            drm_cards_identify(list, root, &cards, "nvidia", "kernel");
        }
        for (int i = before; i < list->count; i++) explain_trouble(&list->gpu[i], &missing);
    }
    if (list->count == before) {
        nvml_close(n);
        return rc ? rc : ERR_ABSENT;
    }
    *state = n;
    return ERR_OK;
}

const struct gpu_vendor GPU_VENDOR_NVML = {
    .name = "nvml", .open = nvml_open, .sample = nvml_sample, .close = nvml_close, .library = &NVML
};
