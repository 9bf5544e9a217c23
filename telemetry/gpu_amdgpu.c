/* telemetry/gpu_amdgpu.c - AMD GPUs through the amdgpu driver's own files (kernel documentation,
 * "amdgpu: GPU power/thermal controls and monitoring"): no library needed.
 *
 * Throttling is told only by the binary gpu_metrics file, whose layout changes with the chip: absent here. */
#include "telemetry/sensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct amdgpu {
    struct drm_cards cards;
    char hwmon[MACHINE_GPUS][SYS_NAME]; /* "" when the card has none */
};

static void hwmon_find(const char *root, const char *card, char hwmon[SYS_NAME])
{
    struct sys_list list;
    sys_list(&list, root, "hwmon", "/sys/class/drm/%s/device/hwmon", card);
    hwmon[0] = '\0';
    if (list.count) memcpy(hwmon, list.name[0], SYS_NAME);
}

static enum err_code amdgpu_open(void **state, const struct sensors *s, struct err *why)
{
    struct amdgpu *a = calloc(1, sizeof *a);
    if (!a) return err_set(why, ERR_NOMEM, "out of memory opening the AMD GPU sensors");
    drm_cards_find(&a->cards, s->root, "0x1002");
    if (!a->cards.count) {
        free(a);
        return err_set(why, ERR_ABSENT, "no AMD GPU in '%s/sys/class/drm'", s->root);
    }
    for (int i = 0; i < a->cards.count; i++) hwmon_find(s->root, a->cards.card[i], a->hwmon[i]);
    *state = a;
    return ERR_OK;
}

static void amdgpu_sample(void *state, struct sensors *s, double *row)
{
    /* hwmon files: microwatts, millidegrees, hertz; power1_average on older chips, power1_input on newer */
    static const struct {
        enum metric_id metric;
        const char *file, *other_file;
        bool in_hwmon;
        double scale;
    } FILES[] = {
        { METRIC_GPU_BUSY, "gpu_busy_percent", NULL, false, 1e-2 },
        { METRIC_GPU_MEM_USED, "mem_info_vram_used", NULL, false, 1 },
        { METRIC_GPU_MEM_TOTAL, "mem_info_vram_total", NULL, false, 1 },
        { METRIC_GPU_POWER, "power1_average", "power1_input", true, 1e-6 },
        { METRIC_GPU_TEMPERATURE, "temp1_input", NULL, true, 1e-3 },
        { METRIC_GPU_CLOCK, "freq1_input", NULL, true, 1 },
    };
    struct amdgpu *a = state;
    for (int i = 0; i < a->cards.count; i++)
        for (size_t k = 0; k < COUNT_OF(FILES); k++) {
            if (!s->due[FILES[k].metric]) continue;
            const char *card = a->cards.card[i], *hwmon = a->hwmon[i];
            double v = NAN;
            for (int other = 0; other < 2 && isnan(v); other++) {
                const char *file = other ? FILES[k].other_file : FILES[k].file;
                if (!file || (FILES[k].in_hwmon && !*hwmon)) continue;
                v = FILES[k].in_hwmon
                        ? sys_number(s->root, "/sys/class/drm/%s/device/hwmon/%s/%s", card, hwmon, file)
                        : sys_number(s->root, "/sys/class/drm/%s/device/%s", card, file);
            }
            bool may_be_negative = FILES[k].metric == METRIC_GPU_TEMPERATURE;
            gpu_merge(row, FILES[k].metric, v < 0 && !may_be_negative ? NAN : v * FILES[k].scale);
        }
}

static int amdgpu_identify(const char *root, struct gpu_identity *gpu, int count, int max)
{
    struct drm_cards cards;
    drm_cards_find(&cards, root, "0x1002");
    for (int i = 0; i < cards.count && count < max; i++) {
        drm_card_identify(&gpu[count], root, cards.card[i], "amd");
        gpu[count++].memory_bytes = sys_integer(root, "/sys/class/drm/%s/device/mem_info_vram_total",
                                                cards.card[i]);
    }
    return count;
}

const struct source SOURCE_GPU_AMDGPU = { "gpu_amdgpu", amdgpu_open, amdgpu_sample, free, amdgpu_identify };
