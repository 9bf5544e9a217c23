/* telemetry/gpu/gpu_intel.c - Intel GPUs, through the files of the i915 and xe drivers.
 *
 * Neither driver has a busy counter in sysfs, but both count the time the GPU sleeps (RC6, GT-C6). The
 * remaining time, in which it was awake, is reported as busy; it is an upper bound. Memory and power of
 * integrated GPUs are shared with the processor and unknown here. Of a card with several tiles only the first
 * is read. */
#include "telemetry/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/gpu/gpu_vendor.h"
#include "base/sysfs/sysfs.h"

/* Several rows for one field are alternatives: i915 first, old kernels, then xe. */
#define FIELD(name) offsetof(struct gpu_reading, name)
static const struct drm_file FILES[] = {
    { .due = DUE_CLOCK, .offset = FIELD(core_hertz), .file = "gt/gt0/rps_act_freq_mhz", .scale = 1e6 },
    { .due = DUE_CLOCK, .offset = FIELD(core_hertz), .file = "gt_act_freq_mhz", .scale = 1e6 },
    { .due = DUE_CLOCK,
      .offset = FIELD(core_hertz),
      .file = "device/tile0/gt0/freq0/act_freq",
      .scale = 1e6 },
    { .due = DUE_SLOW, .offset = FIELD(core_max_hertz), .file = "gt/gt0/rps_RP0_freq_mhz", .scale = 1e6 },
    { .due = DUE_SLOW, .offset = FIELD(core_max_hertz), .file = "gt_RP0_freq_mhz", .scale = 1e6 },
    { .due = DUE_SLOW,
      .offset = FIELD(core_max_hertz),
      .file = "device/tile0/gt0/freq0/rp0_freq",
      .scale = 1e6 },
    { .due = DUE_POWER, .offset = FIELD(power_limit_watts), .file = "@power1_max", .scale = 1e-6 },
    { .due = DUE_POWER, .offset = FIELD(energy_joules), .file = "@energy1_input", .scale = 1e-6 },
    { .due = DUE_POWER,
      .offset = FIELD(energy_joules),
      .file = "@energy2_input",
      .scale = 1e-6 }, /* xe: of the package alone */
    /* i915: temp1 is the package; xe: temp2 the package, temp3 the memory */
    { .due = DUE_SLOW,
      .offset = FIELD(temperature_celsius),
      .file = "@temp1_input",
      .scale = 1e-3,
      .may_be_negative = true },
    { .due = DUE_SLOW,
      .offset = FIELD(temperature_celsius),
      .file = "@temp2_input",
      .scale = 1e-3,
      .may_be_negative = true },
    { .due = DUE_SLOW,
      .offset = FIELD(memory_temperature_celsius),
      .file = "@temp3_input",
      .scale = 1e-3,
      .may_be_negative = true },
};
static const char *const ASLEEP_MS[] = { "gt/gt0/rc6_residency_ms", "power/rc6_residency_ms",
                                         "device/tile0/gt0/gtidle/idle_residency_ms" };
static const char *const REASON_FILES[] = { "gt/gt0/throttle_reason_", "gt_throttle_reason_",
                                            "device/tile0/gt0/freq0/throttle/reason_" };
static const char *const STATUS_FILES[] = { "gt/gt0/throttle_reason_status", "gt_throttle_reason_status",
                                            "device/tile0/gt0/freq0/throttle/status" };

struct intel {
    struct drm_cards cards;
    struct rate asleep[MACHINE_GPUS], energy[MACHINE_GPUS];
};

static double first_number(const char *root, const char *card, const char *const *files, size_t n)
{
    double v = NAN;
    for (size_t i = 0; i < n && isnan(v); i++) v = sys_number(root, "/sys/class/drm/%s/%s", card, files[i]);
    return v;
}

/* Each reason has a file that holds 0 or 1. pl1 and pl2 are the sustained and burst power limits, pl4 and
 * vr_tdc limit current, ratl is the running average thermal limit. */
static bool intel_has_reason(const char *root, const char *card, const char *reason)
{
    for (size_t i = 0; i < COUNT_OF(REASON_FILES); i++) {
        const double v = sys_number(root, "/sys/class/drm/%s/%s%s", card, REASON_FILES[i], reason);
        if (!isnan(v)) return v != 0;
    }
    return false;
}

static void intel_throttle(const char *root, const char *card, struct gpu_reading *r)
{
    static const struct {
        const char *theirs;
        uint64_t ours;
    } REASONS[] = {
        { "pl1", GPU_THROTTLE_POWER_CAP },      { "pl2", GPU_THROTTLE_POWER_CAP },
        { "pl4", GPU_THROTTLE_CURRENT },        { "vr_tdc", GPU_THROTTLE_CURRENT },
        { "thermal", GPU_THROTTLE_THERMAL },    { "ratl", GPU_THROTTLE_THERMAL },
        { "prochot", GPU_THROTTLE_HW_THERMAL }, { "vr_thermalert", GPU_THROTTLE_HW_THERMAL },
    };
    const double status = first_number(root, card, STATUS_FILES, COUNT_OF(STATUS_FILES));
    r->throttle_known = !isnan(status);
    r->throttle_reasons = 0;
    if (!(status > 0)) return; /* unknown, or no reason holds */
    for (size_t i = 0; i < COUNT_OF(REASONS); i++)
        if (intel_has_reason(root, card, REASONS[i].theirs)) r->throttle_reasons |= REASONS[i].ours;
    if (!r->throttle_reasons) r->throttle_reasons = GPU_THROTTLE_OTHER;
}

static void intel_sample(void *state, const char *root, const struct gpu_due *due, int64_t now_ns,
                         struct gpu_reading *reading)
{
    struct intel *g = state;
    for (int i = 0; i < g->cards.count; i++) {
        struct gpu_reading *r = &reading[i];
        const char *card = g->cards.card[i];
        drm_files_read(FILES, COUNT_OF(FILES), root, &g->cards, i, due, r);
        if (due->power) {
            r->power_watts = rate_next(&g->energy[i], r->energy_joules, 0, now_ns);
            if (!(r->power_limit_watts > 0)) r->power_limit_watts = NAN; /* 0: no limit is set */
        }
        if (due->busy) {
            const double ms = first_number(root, card, ASLEEP_MS, COUNT_OF(ASLEEP_MS));
            const double asleep = rate_next(&g->asleep[i], ms, UINT32_MAX, now_ns) / 1e3;
            r->busy_ratio = isnan(asleep) ? NAN : 1 - MIN(asleep, 1);
        }
        if (due->throttle) intel_throttle(root, card, r);
        if (due->slow) drm_pcie_link(root, card, &r->pcie_generation, &r->pcie_width);
    }
}

static enum err_code intel_open(void **state, const char *root, struct gpu_list *list, struct err *why)
{
    struct intel *g = calloc(1, sizeof *g);
    if (!g) return err_set(why, ERR_NOMEM, "out of memory opening the Intel GPU sensors");
    const int first = list->count;
    drm_cards_find(&g->cards, root, "0x8086");
    drm_cards_identify(list, root, &g->cards, "intel", "intel");
    g->cards.count = list->count - first; /* fewer when the list is full */
    if (!g->cards.count) {
        free(g);
        return err_set(why, ERR_ABSENT, "no Intel GPU in '%s/sys/class/drm'", root);
    }
    *state = g;
    return ERR_OK;
}

const struct gpu_vendor GPU_VENDOR_INTEL = {
    .name = "intel", .open = intel_open, .sample = intel_sample, .close = free
};
