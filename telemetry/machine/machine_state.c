/* telemetry/machine/machine_state.c - how this machine is set up today: what an update, an administrator or a
 * reboot changes while the hardware stays. A result from before and one from after may differ by nothing
 * else. */
#include "telemetry/machine/machine.h"

#include <stdlib.h>
#include <string.h>

#include "telemetry/sysfs/sysfs.h"

enum reading {
    READ_TEXT,   /* the file as it is */
    READ_CHOSEN, /* the word in brackets: "always [madvise] never" */
    READ_OFF_ON, /* 0 or 1 */
    READ_ON_OFF, /* the same of a file that says what is forbidden */
    READ_BOOT,   /* of a kernel command line what concerns speed: the rest names disks and consoles */
};

/* Where several rows have one key, the first whose file is there speaks. */
static const struct {
    const char *group, *key, *path;
    enum reading how;
} SETTINGS[] = {
    { "kernel", "release", "/proc/sys/kernel/osrelease", READ_TEXT },
    { "kernel", "version", "/proc/sys/kernel/version", READ_TEXT },
    { "kernel", "cmdline", "/proc/cmdline", READ_BOOT },
    { "kernel", "transparent_hugepage", "/sys/kernel/mm/transparent_hugepage/enabled", READ_CHOSEN },
    { "kernel", "transparent_hugepage_defrag", "/sys/kernel/mm/transparent_hugepage/defrag", READ_CHOSEN },
    { "kernel", "swappiness", "/proc/sys/vm/swappiness", READ_TEXT },
    { "kernel", "numa_balancing", "/proc/sys/kernel/numa_balancing", READ_OFF_ON },
    { "governor", "governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", READ_TEXT },
    { "governor", "driver", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", READ_TEXT },
    { "governor", "most_khz", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", READ_TEXT },
    { "governor", "energy_preference", "/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference",
      READ_TEXT },
    { "governor", "turbo", "/sys/devices/system/cpu/intel_pstate/no_turbo", READ_ON_OFF },
    { "governor", "turbo", "/sys/devices/system/cpu/cpufreq/boost", READ_OFF_ON },
    { "governor", "smt", "/sys/devices/system/cpu/smt/control", READ_TEXT },
    { "governor", "processors_online", "/sys/devices/system/cpu/online", READ_TEXT },
    { "microcode", "version", "/sys/devices/system/cpu/cpu0/microcode/version", READ_TEXT },
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
        const size_t n = strlen(word); /* never beyond where `word` stands: it moves left */
        memmove(to, word, n);
        to += n;
    }
    *to = '\0';
}

static bool setting_read(char *buf, size_t size, const char *root, const char *path, enum reading how)
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

/* Each known weakness of the processor, and what the kernel does about it at the cost of speed. */
static json_t *mitigations(const char *root)
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

/* Some systems name the microcode in cpuinfo only. */
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
    json_put(json_object_get(state, "kernel"), "mitigations", mitigations(root));
    return state;
}
