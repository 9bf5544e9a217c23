/* telemetry/recording/recording_mask.c - removes private data from recorded files.
 *
 * A recording shall show what a machine is, but not who owns it or what runs on it. Names and numbers that
 * distinguish one machine from others of its kind are masked. Content that no rule below covers is kept, so a
 * new source that reads private data needs a new rule here. */
#include "telemetry/recording/recording_mask.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "telemetry/machine/machine.h"

static const char MASKED[] = "masked";

bool recording_keeps(const char *path)
{
    /* of all processes only our own control groups are kept, which are those of the container */
    if (str_starts(path, "/proc/self/")) return !strcmp(path, "/proc/self/cgroup");
    if (str_starts(path, "/proc/") && isdigit((unsigned char)path[6])) return false;
    return !str_starts(path, "/sys/class/kfd/kfd/proc/");
}

/* ---------------------------------------------------------------- control groups */

/* Names that every system uses contain nothing private; others may contain a user, a container or a customer.
 */
static bool group_is_common(const char *name, size_t n)
{
    static const char *const COMMON[] = { "user.slice",     "system.slice", "machine.slice",
                                          "init.scope",     "docker",       "kubepods",
                                          "kubepods.slice", "app.slice",    "session.slice" };
    for (size_t i = 0; i < COUNT_OF(COMMON); i++)
        if (strlen(COMMON[i]) == n && !strncmp(COMMON[i], name, n)) return true;
    return false;
}

/* Masks names of groups: "/user.slice/user-1000.slice" becomes "/user.slice/masked-6a1". Equal names get
 * equal masks, so that the path in /proc/self/cgroup still leads to the recorded files. */
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
        if (group_is_common(path + i, end - i)) {
            str_append_n(out, path + i, end - i);
        } else {
            /* 12 bits of the FNV-1a hash. The groups of one machine rarely share one of its 4096 values. Very
             * many possible names share each value, so a mask does not identify a name. */
            uint32_t sum = 2166136261u;
            for (size_t k = i; k < end; k++) sum = (sum ^ (unsigned char)path[k]) * 16777619u;
            str_printf(out, "%s-%03x", MASKED, (sum ^ sum >> 12) & 0xfff);
        }
        i = end;
    }
}

/* The offset at which group names begin in a path: after /sys/fs/cgroup and, in version 1, after the
 * controller's mount point. 0: not a path of a control group. */
static size_t group_offset(const char *path)
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

/* True for files in a group's folder, such as "memory.max". */
static bool name_is_group_file(const char *name)
{
    static const char *const FILES[] = { "memory.", "cpu.", "cpuacct.", "cpuset.",
                                         "cgroup.", "io.",  "pids.",    "blkio." };
    for (size_t i = 0; i < COUNT_OF(FILES); i++)
        if (str_starts(name, FILES[i])) return true;
    return false;
}

void recording_mask_path(const char *path, struct str *out)
{
    const size_t at = group_offset(path);
    const char *last = at ? strrchr(path + at, '/') : NULL;
    if (!last) {
        str_append(out, path);
        return;
    }
    const size_t end = name_is_group_file(last + 1) ? (size_t)(last - path) : strlen(path);
    str_append_n(out, path, at);
    mask_group(path + at, end - at, out);
    str_append(out, path + end);
}

/* Masks the paths in /proc/self/cgroup: the text after the second colon of lines such as "4:memory:/path". */
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

/* Length of the UUID that begins at p: 8-4-4-4-12 hexadecimal digits. 0: there is none. */
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

/* True for a line such as "Serial\t\t: 10000000a0b1c2d3" in /proc/cpuinfo of a board. */
static bool line_is_serial(const char *line, size_t n)
{
    static const char KEY[] = "serial";
    return n > sizeof KEY && !strncasecmp(line, KEY, sizeof KEY - 1) && memchr(line, ':', n);
}

static void mask_line(const char *line, size_t n, struct str *out)
{
    if (line_is_serial(line, n)) {
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

/* Files whose whole content is private. */
static bool file_is_secret(const char *path)
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
    if (file_is_secret(path)) {
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
