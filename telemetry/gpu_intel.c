/* telemetry/gpu_intel.c - Intel GPUs through the i915 and xe drivers' files.
 *
 * Neither driver has a busy counter in sysfs. Both count the time the GPU slept (RC6 / GT-C6): the rest is
 * time it was awake, an upper bound of busy, and reported as busy. Integrated GPUs share the processor's
 * memory and power: both absent here. */
#include "telemetry/sensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where the drivers keep a thing, i915 first; read below /sys/class/drm/cardN/. */
static const char *const CLOCK_MHZ[] = { "gt/gt0/rps_act_freq_mhz", "gt_act_freq_mhz",
                                         "device/tile0/gt0/freq0/act_freq" };
static const char *const ASLEEP_MS[] = { "gt/gt0/rc6_residency_ms", "power/rc6_residency_ms",
                                         "device/tile0/gt0/gtidle/idle_residency_ms" };
static const char *const THROTTLED[] = { "gt/gt0/throttle_reason_status",
                                         "device/tile0/gt0/freq0/throttle/status" };

struct intel {
    struct drm_cards cards;
    char hwmon[MACHINE_GPUS][SYS_NAME];
    struct rate asleep[MACHINE_GPUS], energy[MACHINE_GPUS];
};

static double first_number(const char *root, const char *card, const char *const *files, size_t n)
{
    double v = NAN;
    for (size_t i = 0; i < n && isnan(v); i++) v = sys_number(root, "/sys/class/drm/%s/%s", card, files[i]);
    return v;
}

static enum err_code intel_open(void **state, const struct sensors *s, struct err *why)
{
    struct intel *g = calloc(1, sizeof *g);
    if (!g) return err_set(why, ERR_NOMEM, "out of memory opening the Intel GPU sensors");
    drm_cards_find(&g->cards, s->root, "0x8086");
    if (!g->cards.count) {
        free(g);
        return err_set(why, ERR_ABSENT, "no Intel GPU in '%s/sys/class/drm'", s->root);
    }
    for (int i = 0; i < g->cards.count; i++) {
        struct sys_list list;
        sys_list(&list, s->root, "hwmon", "/sys/class/drm/%s/device/hwmon", g->cards.card[i]);
        if (list.count) memcpy(g->hwmon[i], list.name[0], SYS_NAME);
    }
    *state = g;
    return ERR_OK;
}

static void intel_sample_hwmon(struct intel *g, int i, struct sensors *s, double *row)
{
    const char *card = g->cards.card[i], *hwmon = g->hwmon[i];
    if (s->due[METRIC_GPU_POWER]) {
        double uj = sys_number(s->root, "/sys/class/drm/%s/device/hwmon/%s/energy1_input", card, hwmon);
        gpu_merge(row, METRIC_GPU_POWER, rate_next(&g->energy[i], uj, 0, s->now_ns) / 1e6);
    }
    if (s->due[METRIC_GPU_TEMPERATURE]) { /* temp1: i915 package; temp2: xe package */
        double milli = sys_number(s->root, "/sys/class/drm/%s/device/hwmon/%s/temp1_input", card, hwmon);
        if (isnan(milli))
            milli = sys_number(s->root, "/sys/class/drm/%s/device/hwmon/%s/temp2_input", card, hwmon);
        gpu_merge(row, METRIC_GPU_TEMPERATURE, milli / 1e3);
    }
}

static void intel_sample(void *state, struct sensors *s, double *row)
{
    struct intel *g = state;
    for (int i = 0; i < g->cards.count; i++) {
        const char *card = g->cards.card[i];
        if (s->due[METRIC_GPU_CLOCK]) {
            double mhz = first_number(s->root, card, CLOCK_MHZ, COUNT_OF(CLOCK_MHZ));
            gpu_merge(row, METRIC_GPU_CLOCK, mhz >= 0 ? mhz * 1e6 : NAN);
        }
        if (s->due[METRIC_GPU_BUSY]) {
            double ms = first_number(s->root, card, ASLEEP_MS, COUNT_OF(ASLEEP_MS));
            double asleep = rate_next(&g->asleep[i], ms, UINT32_MAX, s->now_ns) / 1e3;
            gpu_merge(row, METRIC_GPU_BUSY, isnan(asleep) ? NAN : 1 - MIN(asleep, 1));
        }
        if (s->due[METRIC_GPU_THROTTLE]) {
            double on = first_number(s->root, card, THROTTLED, COUNT_OF(THROTTLED));
            gpu_merge(row, METRIC_GPU_THROTTLE, isnan(on) ? NAN : on != 0);
        }
        if (*g->hwmon[i]) intel_sample_hwmon(g, i, s, row);
    }
}

static int intel_identify(const char *root, struct gpu_identity *gpu, int count, int max)
{
    struct drm_cards cards;
    drm_cards_find(&cards, root, "0x8086");
    for (int i = 0; i < cards.count && count < max; i++)
        drm_card_identify(&gpu[count++], root, cards.card[i], "intel");
    return count;
}

const struct source SOURCE_GPU_INTEL = { "gpu_intel", intel_open, intel_sample, free, intel_identify };
