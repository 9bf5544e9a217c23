/* telemetry/recording/recording.c - records a machine into a folder, and opens such a folder.
 *
 * No list says which files to record. Detection and two rounds of the sensors run while sysfs.h reports every
 * file they read, and all of these are stored. A new source is therefore recorded without changes here. */
#include "telemetry/recording/recording.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/recording/recording_files.h"
#include "telemetry/recording/recording_mask.h"
#include "telemetry/sensors/sensors.h"
#include "base/sysfs/sysfs.h"

/* ---------------------------------------------------------------- collecting files */

struct observation {
    bool private; /* do not mask */
    struct recorded_files files;
};

/* Shortens /proc/cpuinfo: of all blocks after the first, only lines that differ from the first are kept.
 * Otherwise a machine with a hundred processors would repeat the same flags a hundred times. */
static void cpuinfo_shorten(const char *text, size_t n, struct str *out)
{
    const char *blank = memmem(text, n, "\n\n", 2);
    const size_t first = blank ? (size_t)(blank - text) + 1 : n;
    str_append_n(out, text, first);
    for (size_t i = first; i < n;) {
        const char *newline = memchr(text + i, '\n', n - i);
        const size_t len = newline ? (size_t)(newline - text) - i : n - i;
        const char *same = len ? memmem(text, first, text + i, len + (newline != NULL)) : NULL;
        if (!same || (same > text && same[-1] != '\n')) {
            str_append_n(out, text + i, len);
            str_append(out, "\n");
        }
        i += len + 1;
    }
}

/* Shortens /proc/stat: the line of interrupts has thousands of counters, of which only the sum is kept. */
static void stat_shorten(const char *text, size_t n, struct str *out)
{
    const char *line = memmem(text, n, "\nintr ", 6);
    const char *sum = line ? memchr(line + 6, ' ', n - (size_t)(line + 6 - text)) : NULL;
    const char *end = sum ? memchr(sum, '\n', n - (size_t)(sum - text)) : NULL;
    str_append_n(out, text, sum ? (size_t)(sum - text) : n);
    if (end) str_append_n(out, end, n - (size_t)(end - text));
}

static void observation_read(void *ctx, const char *path, const void *bytes, size_t n)
{
    struct observation *l = ctx;
    struct str text = { 0 }, name = { 0 }, shorter = { 0 };
    if (!recording_keeps(path)) return;
    if (str_ends(path, "/pci.ids")) { /* reported line by line */
        recorded_files_append(&l->files, path, bytes, n);
        return;
    }
    const char *kept = bytes;
    size_t size = n;
    if (!strcmp(path, "/proc/cpuinfo") || !strcmp(path, "/proc/stat")) {
        (path[6] == 'c' ? cpuinfo_shorten : stat_shorten)(bytes, n, &shorter);
        kept = str_text(&shorter);
        size = shorter.len;
    }
    if (l->private) {
        recorded_files_add(&l->files, path, kept, size);
    } else {
        recording_mask_path(path, &name);
        recording_mask_text(path, kept, size, &text);
        recorded_files_add(&l->files, str_text(&name), str_text(&text), text.len);
    }
    l->files.failed |= text.failed || name.failed || shorter.failed;
    str_free(&text);
    str_free(&name);
    str_free(&shorter);
}

/* A folder, or a file that exists but was not read. */
static void observation_seen(void *ctx, const char *path, bool folder)
{
    struct observation *l = ctx;
    if (recording_keeps(path)) recorded_files_add(&l->files, path, folder ? NULL : "", 0);
}

/* Runs detection and the sensors, and collects all files they read. */
static enum err_code observation_run(struct observation *l, struct err *why)
{
    const struct sys_observer observer = { .ctx = l, .read = observation_read, .seen = observation_seen };
    struct machine m;
    struct telemetry *t = NULL;
    sys_observe(&observer);
    enum err_code rc = machine_detect(&m, "", why);
    if (!rc) json_decref(machine_state_to_json(""));
    if (!rc) rc = telemetry_open(&t, "", why);
    if (!rc) {
        double row[METRIC_SENSOR_COUNT];
        telemetry_sample(t, row);
        clock_sleep_ns(20000000);
        telemetry_sample(t, row); /* some files are read only after a first value */
    }
    sys_observe(NULL);
    telemetry_close(t);
    return rc ? rc : l->files.failed ? err_set(why, ERR_NOMEM, "out of memory recording") : ERR_OK;
}

/* ---------------------------------------------------------------- writing */

static enum err_code recording_write_text(const char *dir, const char *name, const char *text,
                                          struct err *why)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wx");
    if (!f) return err_set(why, err_of_errno(errno), "cannot write '%s': %s", path, strerror(errno));
    const bool ok = fputs(text, f) >= 0 && !fflush(f) && !fsync(fileno(f));
    const int cause = errno;
    return fclose(f) == 0 && ok ? ERR_OK
                                : err_set(why, err_of_errno(ok ? errno : cause), "cannot write '%s': %s",
                                          path, strerror(ok ? errno : cause));
}

static enum err_code recording_write_json(const char *dir, const char *name, json_t *value, struct err *why)
{
    char *text = value ? json_write(value, JSON_INDENTED, 0) : NULL;
    if (!text) return err_set(why, ERR_NOMEM, "out of memory recording");
    const enum err_code rc = recording_write_text(dir, name, text, why);
    free(text);
    return rc;
}

static enum err_code recording_write_libraries(const char *dir, bool private, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < GPU_VENDOR_COUNT && !rc; i++) {
        json_t *answers = gpu_library_answers(i, !private);
        char name[64];
        if (!answers) continue;
        snprintf(name, sizeof name, "%s.json", gpu_library_name(i));
        rc = recording_write_json(dir, name, answers, why);
        json_decref(answers);
    }
    return rc;
}

static json_t *recording_about(bool private, struct err *why)
{
    struct machine m;
    char text[256];
    if (machine_detect(&m, "", why)) return NULL;
    json_t *o = json_object();
    json_put_str(o, "schema", "qdyno.recording/1");
    json_put_str(o, "origin", "recorded");
    json_put_str(o, "date", clock_iso8601(clock_unix_ms(), text, sizeof text));
    json_put_str(o, "program", "qdyno " QDYNO_VERSION);
    json_put_str(o, "machine", machine_short(&m, text, sizeof text));
    json_put_str(o, "id", m.id);
    json_put_bool(o, "masked", !private);
    json_put_str(
        o, "left_out",
        private ? "processes and their command lines"
                : "processes and their command lines; masked: host name, names of control groups, serial "
                  "numbers, UUIDs, and of the kernel's command line all that does not concern speed");
    return o;
}

static enum err_code recording_write_all(const char *dir, struct observation *l, const json_t *ceilings,
                                         struct err *why)
{
    struct str text = { 0 };
    str_append(&text, "# Files of a machine, as qdyno read them: see docs/machines.md for this format.\n");
    recorded_files_write(&l->files, &text);
    enum err_code rc = l->files.failed ? err_set(why, ERR_NOMEM, "out of memory recording") : ERR_OK;
    if (!rc) rc = recording_write_text(dir, "files.txt", str_text(&text), why);
    str_free(&text);
    if (!rc) rc = recording_write_libraries(dir, l->private, why);
    json_t *cpuid = machine_cpuid_to_json();
    if (!rc && cpuid) rc = recording_write_json(dir, "cpuid.json", cpuid, why);
    json_decref(cpuid);
    if (!rc && ceilings) {
        json_t *copy = json_copy((json_t *)(uintptr_t)ceilings); /* jansson's copy only reads */
        rc = recording_write_json(dir, "ceilings.json", copy, why);
        json_decref(copy);
    }
    if (rc) return rc;
    json_t *o = recording_about(l->private, why);
    rc = o ? recording_write_json(dir, RECORDING_ABOUT, o, why) : ERR_IO;
    json_decref(o);
    return rc;
}

static int tree_remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static void tree_remove(const char *path)
{
    nftw(path, tree_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

enum err_code recording_make(const char *dir, bool private, const json_t *ceilings, struct err *why)
{
    char temp[PATH_MAX];
    struct observation l = { .private = private };
    if (!access(dir, F_OK))
        return err_set(why, ERR_USAGE, "'%s' already exists: name a new folder, or remove it first", dir);
    if (snprintf(temp, sizeof temp, "%s.XXXXXX", dir) >= (int)sizeof temp || !*dir || str_ends(dir, "/"))
        return err_set(why, ERR_USAGE, "'%s' is not a valid name for a new folder", dir);
    enum err_code rc = observation_run(&l, why);
    if (!rc && !mkdtemp(temp))
        rc = err_set(why, err_of_errno(errno), "cannot create a folder next to '%s': %s", dir,
                     strerror(errno));
    else if (!rc) {
        rc = recording_write_all(temp, &l, ceilings, why);
        if (!rc && (chmod(temp, 0755) || rename(temp, dir)))
            rc = err_set(why, err_of_errno(errno), "cannot rename the recording to '%s': %s", dir,
                         strerror(errno));
        if (rc) tree_remove(temp);
    }
    recorded_files_free(&l.files);
    return rc;
}

/* ---------------------------------------------------------------- opening */

enum { PACKED_LIMIT = 64 << 20 };

/* Makes a JSON document of the recording visible under the same name below the unpacked root. */
static enum err_code recording_link_document(const char *dir, const char *root, const char *name,
                                             struct err *why)
{
    char from[PATH_MAX], full[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s/%s", dir, name);
    snprintf(to, sizeof to, "%s/%s", root, name);
    return realpath(from, full) && symlink(full, to)
               ? err_set(why, err_of_errno(errno), "cannot create '%s': %s", to, strerror(errno))
               : ERR_OK;
}

static enum err_code recording_link_documents(const char *dir, const char *root, struct err *why)
{
    enum err_code rc = recording_link_document(dir, root, RECORDING_ABOUT, why);
    for (int i = 0; i < GPU_VENDOR_COUNT && !rc; i++) {
        char name[64];
        if (!gpu_library_name(i)) continue;
        snprintf(name, sizeof name, "%s.json", gpu_library_name(i));
        rc = recording_link_document(dir, root, name, why);
    }
    return rc;
}

/* Where to unpack hundreds of small files: in memory if possible. */
static const char *unpack_folder(void)
{
    const char *given = getenv("TMPDIR");
    if (given && *given) return given;
    return access("/dev/shm", W_OK | X_OK) ? "/tmp" : "/dev/shm";
}

static enum err_code recording_unpack(struct recording *r, const char *dir, const char *packed,
                                      struct err *why)
{
    char *text = NULL;
    size_t n;
    enum err_code rc = file_read(&text, &n, packed, PACKED_LIMIT, why);
    if (rc) return rc;
    snprintf(r->root, sizeof r->root, "%s/qdyno-machine.XXXXXX", unpack_folder());
    if (!mkdtemp(r->root)) {
        free(text);
        return err_set(why, err_of_errno(errno), "cannot create '%s': %s", r->root, strerror(errno));
    }
    r->temporary = true;
    rc = strlen(text) == n ? recorded_files_unpack(text, r->root, why)
                           : err_set(why, ERR_FORMAT, "the file contains a NUL byte");
    if (!rc) rc = recording_link_documents(dir, r->root, why);
    free(text);
    return rc ? err_prefix(why, "%s", packed) : ERR_OK;
}

/* Reads a JSON document of the recording; *out stays NULL when it does not exist. */
static enum err_code recording_read_json(json_t **out, const char *dir, const char *name, struct err *why)
{
    char path[PATH_MAX], *text = NULL;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (access(path, F_OK)) return ERR_OK;
    enum err_code rc = file_read(&text, &n, path, 1 << 20, why);
    if (!rc) rc = json_parse(out, text, n, why);
    free(text);
    return rc ? err_prefix(why, "%s", path) : ERR_OK;
}

enum err_code recording_open(struct recording *out, const char *dir, struct err *why)
{
    char packed[PATH_MAX];
    *out = (struct recording){ 0 };
    if (strlen(dir) >= sizeof packed / 2) return err_set(why, ERR_IO, "path too long: '%s'", dir);
    enum err_code rc = recording_read_json(&out->about, dir, RECORDING_ABOUT, why);
    if (!rc) rc = recording_read_json(&out->ceilings, dir, "ceilings.json", why);
    snprintf(packed, sizeof packed, "%s/files.txt", dir);
    if (!rc && !access(packed, F_OK)) {
        rc = recording_unpack(out, dir, packed, why);
    } else if (!rc) {
        snprintf(out->root, sizeof out->root, "%s", dir);
        if (!*dir || !sys_exists(dir, "/proc"))
            rc = err_set(why, ERR_IO,
                         "'%s' is not a recorded machine: it contains neither files.txt nor proc/", dir);
    }
    if (rc) recording_close(out);
    return rc;
}

void recording_close(struct recording *r)
{
    if (r->temporary) tree_remove(r->root);
    json_decref(r->about);
    json_decref(r->ceilings);
    *r = (struct recording){ 0 };
}
