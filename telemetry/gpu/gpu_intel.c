/* telemetry/gpu/gpu_intel.c - Intel GPUs through the i915 and xe drivers' files.
 *
 * Neither driver has a busy counter in sysfs. Both count the time the GPU slept (RC6 / GT-C6): the rest is
 * time it was awake, an upper bound of busy, and reported as busy. Integrated GPUs share the processor's
 * memory and power: both unknown here. Where a card has several tiles the first speaks for it. */
#include "telemetry/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/gpu/gpu_vendor.h"
#include "telemetry/sysfs/sysfs.h"

/* Where the drivers keep a thing, i915 first, old kernels last. */
#define FIELD(name) offsetof(struct gpu_reading, name)
static const struct drm_file FILES[] = {
    { DUE_CLOCK, FIELD(core_hertz), "gt/gt0/rps_act_freq_mhz", 1e6, false },
    { DUE_CLOCK, FIELD(core_hertz), "gt_act_freq_mhz", 1e6, false },
    { DUE_CLOCK, FIELD(core_hertz), "device/tile0/gt0/freq0/act_freq", 1e6, false },
    { DUE_SLOW, FIELD(core_max_hertz), "gt/gt0/rps_RP0_freq_mhz", 1e6, false },
    { DUE_SLOW, FIELD(core_max_hertz), "gt_RP0_freq_mhz", 1e6, false },
    { DUE_SLOW, FIELD(core_max_hertz), "device/tile0/gt0/freq0/rp0_freq", 1e6, false },
    { DUE_POWER, FIELD(power_limit_watts), "@power1_max", 1e-6, false },
    { DUE_POWER, FIELD(energy_joules), "@energy1_input", 1e-6, false },
    { DUE_POWER, FIELD(energy_joules), "@energy2_input", 1e-6, false }, /* xe: of the package alone */
    /* i915: temp1 is the package; xe: temp2 the package, temp3 the memory */
    { DUE_SLOW, FIELD(temperature_celsius), "@temp1_input", 1e-3, true },
    { DUE_SLOW, FIELD(temperature_celsius), "@temp2_input", 1e-3, true },
    { DUE_SLOW, FIELD(memory_temperature_celsius), "@temp3_input", 1e-3, true },
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

/* Files of one reason each, 0 or 1: pl1 and pl2 are the sustained and the burst power limit, pl4 and vr_tdc
 * limits of current, ratl the running average thermal limit. */
static bool has_reason(const char *root, const char *card, const char *reason)
{
    for (size_t i = 0; i < COUNT_OF(REASON_FILES); i++) {
        const double v = sys_number(root, "/sys/class/drm/%s/%s%s", card, REASON_FILES[i], reason);
        if (!isnan(v)) return v != 0;
    }
    return false;
}

static void throttle(const char *root, const char *card, struct gpu_reading *r)
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
    if (!(status > 0)) return; /* unknown or none: no need to ask for each */
    for (size_t i = 0; i < COUNT_OF(REASONS); i++)
        if (has_reason(root, card, REASONS[i].theirs)) r->throttle_reasons |= REASONS[i].ours;
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
            if (!(r->power_limit_watts > 0)) r->power_limit_watts = NAN; /* 0: switched off */
        }
        if (due->busy) {
            const double ms = first_number(root, card, ASLEEP_MS, COUNT_OF(ASLEEP_MS));
            const double asleep = rate_next(&g->asleep[i], ms, UINT32_MAX, now_ns) / 1e3;
            r->busy_ratio = isnan(asleep) ? NAN : 1 - MIN(asleep, 1);
        }
        if (due->throttle) throttle(root, card, r);
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
    g->cards.count = list->count - first; /* as many as the list has room for */
    if (!g->cards.count) {
        free(g);
        return err_set(why, ERR_ABSENT, "no Intel GPU in '%s/sys/class/drm'", root);
    }
    *state = g;
    return ERR_OK;
}

const struct gpu_vendor GPU_VENDOR_INTEL = { "intel", intel_open, intel_sample, free, NULL };
