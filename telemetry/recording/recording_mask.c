/* telemetry/recording/recording_mask.c - a recording shows what a machine is, not whose it is and not what
 * runs on it.
 *
 * Masked are names and numbers that tell one machine from all others of its kind. What remains is what
 * detection needs; anything that no rule here knows is kept, so a new source that reads something private
 * adds a rule. */
#include "telemetry/recording/recording_mask.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "telemetry/machine/machine.h"

static const char MASKED[] = "masked";

bool recording_keeps(const char *path)
{
    /* of processes only our own control groups, which are the container's */
    if (str_starts(path, "/proc/self/")) return !strcmp(path, "/proc/self/cgroup");
    if (str_starts(path, "/proc/") && isdigit((unsigned char)path[6])) return false;
    return !str_starts(path, "/sys/class/kfd/kfd/proc/");
}

/* ---------------------------------------------------------------- control groups */

/* Names that systems give by themselves tell nothing; all others may hold a user, a container, a customer. */
static bool is_common_group(const char *name, size_t n)
{
    static const char *const COMMON[] = { "user.slice",     "system.slice", "machine.slice",
                                          "init.scope",     "docker",       "kubepods",
                                          "kubepods.slice", "app.slice",    "session.slice" };
    for (size_t i = 0; i < COUNT_OF(COMMON); i++)
        if (strlen(COMMON[i]) == n && !strncmp(COMMON[i], name, n)) return true;
    return false;
}

/* "/user.slice/user-1000.slice" -> "/user.slice/masked-6a1c": the same name becomes the same mask everywhere,
 * or the path in /proc/self/cgroup would lead nowhere. */
static void mask_group(const char *path, size_t n, struct str *out)
{
    for (size_t i = 0; i < n;) {
        if (path[i] == '/') {
            str_append(out, "/");
            i++;
            continue;
        }
        size_t end = i;
        while (end < n && path[end] != '/') end++;
        if (is_common_group(path + i, end - i)) {
            str_append_n(out, path + i, end - i);
        } else {
            uint32_t sum =
                2166136261u; /* FNV-1a, and of that 12 bits: enough to differ, too few to find back */
            for (size_t k = i; k < end; k++) sum = (sum ^ (unsigned char)path[k]) * 16777619u;
            str_printf(out, "%s-%03x", MASKED, (sum ^ sum >> 12) & 0xfff);
        }
        i = end;
    }
}

/* How much of a path below /sys/fs/cgroup is no group: the mount of version 1's controller comes first. */
static size_t group_starts(const char *path)
{
    static const char TOP[] = "/sys/fs/cgroup";
    static const char *const MOUNTS[] = { "unified",     "memory", "cpu",  "cpuacct",
                                          "cpu,cpuacct", "cpuset", "pids", "blkio" };
    size_t at = sizeof TOP - 1;
    if (strncmp(path, TOP, at) || path[at] != '/') return 0;
    const size_t n = strcspn(path + at + 1, "/");
    for (size_t i = 0; i < COUNT_OF(MOUNTS); i++)
        if (strlen(MOUNTS[i]) == n && !strncmp(path + at + 1, MOUNTS[i], n)) return at + 1 + n;
    return at;
}

/* "memory.max": a file of a group, no group. */
static bool is_group_file(const char *name)
{
    static const char *const FILES[] = { "memory.", "cpu.", "cpuacct.", "cpuset.",
                                         "cgroup.", "io.",  "pids.",    "blkio." };
    for (size_t i = 0; i < COUNT_OF(FILES); i++)
        if (str_starts(name, FILES[i])) return true;
    return false;
}

void recording_mask_path(const char *path, struct str *out)
{
    const size_t at = group_starts(path);
    const char *last = at ? strrchr(path + at, '/') : NULL;
    if (!last) {
        str_append(out, path);
        return;
    }
    const size_t end = is_group_file(last + 1) ? (size_t)(last - path) : strlen(path);
    str_append_n(out, path, at);
    mask_group(path + at, end - at, out);
    str_append(out, path + end);
}

/* "4:memory:/path": the part behind the second colon. */
static void mask_groups(const char *text, size_t n, struct str *out)
{
    for (size_t i = 0; i < n;) {
        size_t end = i, colons = 0, at = i;
        while (end < n && text[end] != '\n') {
            if (text[end] == ':' && ++colons == 2) at = end + 1;
            end++;
        }
        if (colons < 2) at = end;
        str_append_n(out, text + i, at - i);
        mask_group(text + at, end - at, out);
        if (end < n) str_append(out, "\n");
        i = end + 1;
    }
}

/* ---------------------------------------------------------------- serial numbers, UUIDs */

/* Length of a UUID here: 8-4-4-4-12 hexadecimal digits; 0: none. */
static size_t uuid_length(const char *p, size_t n)
{
    static const int GROUPS[] = { 8, 4, 4, 4, 12 };
    size_t at = 0;
    for (size_t g = 0; g < COUNT_OF(GROUPS); g++) {
        if (g && (at >= n || p[at++] != '-')) return 0;
        for (int i = 0; i < GROUPS[g]; i++, at++)
            if (at >= n || !isxdigit((unsigned char)p[at])) return 0;
    }
    return at;
}

/* "Serial\t\t: 10000000a0b1c2d3" of a board's cpuinfo. */
static bool is_serial_line(const char *line, size_t n)
{
    static const char KEY[] = "serial";
    return n > sizeof KEY && !strncasecmp(line, KEY, sizeof KEY - 1) && memchr(line, ':', n);
}

static void mask_line(const char *line, size_t n, struct str *out)
{
    if (is_serial_line(line, n)) {
        const char *colon = memchr(line, ':', n);
        str_append_n(out, line, (size_t)(colon - line) + 1);
        str_printf(out, " %s", MASKED);
        return;
    }
    for (size_t i = 0; i < n;) {
        const size_t uuid = uuid_length(line + i, n - i);
        if (uuid)
            str_append(out, "00000000-0000-0000-0000-000000000000");
        else
            str_append_n(out, line + i, 1);
        i += uuid ? uuid : 1;
    }
}

/* ---------------------------------------------------------------- files */

static bool is_secret_file(const char *path)
{
    static const char *const NAMES[] = {
        "/proc/sys/kernel/hostname", "/unique_id",   "/serial", "/serial_number", "_serial",
        "/product_serial",           "/product_uuid"
    };
    for (size_t i = 0; i < COUNT_OF(NAMES); i++)
        if (str_ends(path, NAMES[i])) return true;
    return false;
}

void recording_mask_text(const char *path, const char *text, size_t n, struct str *out)
{
    if (is_secret_file(path)) {
        str_append(out, MASKED);
    } else if (!strcmp(path, "/proc/self/cgroup")) {
        mask_groups(text, n, out);
    } else if (!strcmp(path, "/proc/cmdline")) {
        char line[4096];
        snprintf(line, sizeof line, "%.*s", (int)MIN(n, sizeof line - 1), text);
        line[strcspn(line, "\n")] = '\0';
        machine_boot_parameters(line);
        str_append(out, line);
    } else if (memchr(text, '\0', n)) {
        str_append_n(out, text, n);
    } else {
        for (size_t i = 0; i < n;) {
            const char *newline = memchr(text + i, '\n', n - i);
            const size_t len = newline ? (size_t)(newline - text) - i : n - i;
            mask_line(text + i, len, out);
            if (newline) str_append(out, "\n");
            i += len + 1;
        }
    }
}
