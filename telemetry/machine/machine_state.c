/* telemetry/machine/machine_state.c - system settings that affect speed. Updates, administrators and reboots
 * change them while the hardware stays, so two results may differ only because of them. */
#include "telemetry/machine/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/sysfs/sysfs.h"

enum setting_kind {
    READ_TEXT,   /* the file's content */
    READ_CHOSEN, /* the word in brackets: "always [madvise] never" */
    READ_OFF_ON, /* 0: off, 1: on */
    READ_ON_OFF, /* 0: on, 1: off, for a file that disables something */
    READ_BOOT,   /* a kernel command line, reduced by machine_boot_parameters */
};

/* When several rows have the same key, the first whose file exists is used. */
static const struct {
    const char *group, *key, *path;
    enum setting_kind how;
} SETTINGS[] = {
    { .group = "kernel", .key = "release", .path = "/proc/sys/kernel/osrelease", .how = READ_TEXT },
    { .group = "kernel", .key = "version", .path = "/proc/sys/kernel/version", .how = READ_TEXT },
    { .group = "kernel", .key = "cmdline", .path = "/proc/cmdline", .how = READ_BOOT },
    { .group = "kernel",
      .key = "transparent_hugepage",
      .path = "/sys/kernel/mm/transparent_hugepage/enabled",
      .how = READ_CHOSEN },
    { .group = "kernel",
      .key = "transparent_hugepage_defrag",
      .path = "/sys/kernel/mm/transparent_hugepage/defrag",
      .how = READ_CHOSEN },
    { .group = "kernel", .key = "swappiness", .path = "/proc/sys/vm/swappiness", .how = READ_TEXT },
    { .group = "kernel",
      .key = "numa_balancing",
      .path = "/proc/sys/kernel/numa_balancing",
      .how = READ_OFF_ON },
    { .group = "governor",
      .key = "governor",
      .path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
      .how = READ_TEXT },
    { .group = "governor",
      .key = "driver",
      .path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
      .how = READ_TEXT },
    { .group = "governor",
      .key = "most_khz",
      .path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq",
      .how = READ_TEXT },
    { .group = "governor",
      .key = "energy_preference",
      .path = "/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference",
      .how = READ_TEXT },
    { .group = "governor",
      .key = "power_profile",
      .path = "/sys/firmware/acpi/platform_profile",
      .how = READ_TEXT },
    { .group = "governor",
      .key = "turbo",
      .path = "/sys/devices/system/cpu/intel_pstate/no_turbo",
      .how = READ_ON_OFF },
    { .group = "governor",
      .key = "turbo",
      .path = "/sys/devices/system/cpu/cpufreq/boost",
      .how = READ_OFF_ON },
    { .group = "governor", .key = "smt", .path = "/sys/devices/system/cpu/smt/control", .how = READ_TEXT },
    { .group = "governor",
      .key = "processors_online",
      .path = "/sys/devices/system/cpu/online",
      .how = READ_TEXT },
    { .group = "microcode",
      .key = "version",
      .path = "/sys/devices/system/cpu/cpu0/microcode/version",
      .how = READ_TEXT },
};

void machine_boot_parameters(char *line)
{
    static const char *const KEPT[] = { "mitigations",
                                        "isolcpus",
                                        "nohz_full",
                                        "rcu_nocbs",
                                        "nosmt",
                                        "maxcpus",
                                        "nr_cpus",
                                        "idle",
                                        "intel_idle.",
                                        "processor.",
                                        "intel_pstate",
                                        "amd_pstate",
                                        "cpufreq.",
                                        "hugepages",
                                        "hugepagesz",
                                        "default_hugepagesz",
                                        "numa_balancing",
                                        "transparent_hugepage",
                                        "spec",
                                        "spectre_",
                                        "tsx",
                                        "kvm",
                                        "preempt",
                                        "nopti",
                                        "clocksource",
                                        "mem" };
    char *to = line;
    for (char *save, *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        bool keep = false;
        for (size_t i = 0; i < COUNT_OF(KEPT) && !keep; i++) {
            const char *rest = str_starts(word, KEPT[i]) ? word + strlen(KEPT[i]) : NULL;
            keep = rest && (!*rest || *rest == '=' || strchr("._", rest[-1]));
        }
        if (!keep) continue;
        if (to != line) *to++ = ' ';
        const size_t n = strlen(word); /* words only move left, so this cannot overwrite unread text */
        memmove(to, word, n);
        to += n;
    }
    *to = '\0';
}

static bool setting_read(char *buf, size_t size, const char *root, const char *path, enum setting_kind how)
{
    if (sys_read(root, buf, size, "%s", path) <= 0) return false;
    if (how == READ_BOOT) machine_boot_parameters(buf);
    if (how == READ_CHOSEN) {
        char *open = strchr(buf, '['), *close = open ? strchr(open, ']') : NULL;
        if (!close) return false;
        *close = '\0';
        memmove(buf, open + 1, strlen(open + 1) + 1);
    } else if (how == READ_OFF_ON || how == READ_ON_OFF) {
        if (strcmp(buf, "0") && strcmp(buf, "1")) return false;
        snprintf(buf, size, "%s", (*buf == '1') == (how == READ_OFF_ON) ? "on" : "off");
    }
    return true;
}

/* The processor's known vulnerabilities, and the mitigations of the kernel, which cost speed. */
static json_t *mitigations_to_json(const char *root)
{
    static const char FOLDER[] = "/sys/devices/system/cpu/vulnerabilities";
    struct sys_list *names = malloc(sizeof *names);
    if (!names) return json_null();
    sys_list(names, root, "", "%s", FOLDER);
    json_t *all = names->count ? json_object() : json_null();
    for (int i = 0; i < names->count; i++) {
        char text[512];
        const bool known = sys_read(root, text, sizeof text, "%s/%s", FOLDER, names->name[i]) > 0;
        json_put_str(all, names->name[i], known ? text : NULL);
    }
    free(names);
    return all;
}

/* On some systems only /proc/cpuinfo contains the microcode version. */
static bool microcode_of_cpuinfo(char *buf, size_t size, const char *root)
{
    char *text = sys_read_all(root, "/proc/cpuinfo", 16 << 20, NULL);
    if (!text) return false;
    const bool found = sys_text_field(text, "microcode", buf, size);
    free(text);
    return found;
}

json_t *machine_state_to_json(const char *root)
{
    json_t *state = json_object();
    char text[4096];
    for (size_t i = 0; i < COUNT_OF(SETTINGS); i++) {
        json_t *group = json_object_get(state, SETTINGS[i].group);
        if (!group) {
            json_put(state, SETTINGS[i].group, json_object());
            group = json_object_get(state, SETTINGS[i].group);
        }
        if (json_get_str(group, SETTINGS[i].key, NULL)) continue;
        const bool known = setting_read(text, sizeof text, root, SETTINGS[i].path, SETTINGS[i].how);
        json_put_str(group, SETTINGS[i].key, known ? text : NULL);
    }
    json_t *microcode = json_object_get(state, "microcode");
    if (!json_get_str(microcode, "version", NULL) && microcode_of_cpuinfo(text, sizeof text, root))
        json_put_str(microcode, "version", text);
    json_put(json_object_get(state, "kernel"), "mitigations", mitigations_to_json(root));
    return state;
}
