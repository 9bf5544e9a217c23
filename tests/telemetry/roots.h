/* tests/telemetry/roots.h - recorded machines, as they are or as a copy that a test may change. */
#ifndef QDYNO_TESTS_ROOTS_H
#define QDYNO_TESTS_ROOTS_H

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/recording/recording.h"
#include "base/sysfs/sysfs.h"
#include "tests/check.h"

struct root {
    char path[PATH_MAX / 2];
};

/* Unpacked once per process and removed at its end. */
enum { ROOTS_UNPACKED = 24 };
struct root_unpacked {
    char name[64];
    struct recording recording;
};
static inline struct root_unpacked *roots_unpacked(void)
{
    static struct root_unpacked all[ROOTS_UNPACKED];
    return all;
}

static inline void roots_remove_unpacked(void)
{
    for (int i = 0; i < ROOTS_UNPACKED; i++) recording_close(&roots_unpacked()[i].recording);
}

/* A folder of tests/data/machines. */
static inline struct root root_get(const char *name)
{
    struct root r = { "" };
    for (int i = 0; i < ROOTS_UNPACKED && !*r.path; i++) {
        struct root_unpacked *u = &roots_unpacked()[i];
        if (!*u->name) {
            char folder[PATH_MAX / 2];
            struct err why;
            if (!i) atexit(roots_remove_unpacked);
            snprintf(folder, sizeof folder, "%s/tests/data/machines/%s", TEST_SOURCE_DIR, name);
            if (recording_open(&u->recording, folder, &why)) fail_msg("%s", why.message);
            snprintf(u->name, sizeof u->name, "%s", name);
        }
        if (!strcmp(u->name, name))
            snprintf(r.path, sizeof r.path, "%.*s", (int)sizeof r.path - 1, u->recording.root);
    }
    if (!*r.path) fail_msg("more machines than ROOTS_UNPACKED");
    return r;
}

static inline void root_run(const char *command)
{
    if (system(command)) fail_msg("%s", command);
}

static inline struct root root_empty(void)
{
    struct root r;
    snprintf(r.path, sizeof r.path, "%s/root.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(r.path)) fail_msg("mkdtemp %s", r.path);
    return r;
}

static inline struct root root_copy(const char *name)
{
    struct root from = root_get(name), to = root_empty();
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command, "cp -R '%s/.' '%s'", from.path, to.path);
    root_run(command);
    char about[PATH_MAX]; /* removed, so that the sensors treat the changed copy as a live machine */
    snprintf(about, sizeof about, "%s/" RECORDING_ABOUT, to.path);
    unlink(about);
    return to;
}

static inline void root_remove(const struct root *r)
{
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s'", r->path);
    root_run(command);
}

/* A file below the root; its folders are made. text NULL removes it. */
static inline void root_write(const struct root *r, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", r->path, name);
    unlink(path); /* some file systems wait for the disk when a file is cut and written again */
    if (!text) return;
    char *slash = strrchr(path, '/');
    *slash = '\0';
    if (file_make_dirs(path, NULL)) fail_msg("folder of %s", name);
    *slash = '/';
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f)) fail_msg("cannot write %s", path);
}

#endif
