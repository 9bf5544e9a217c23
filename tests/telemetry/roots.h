/* tests/telemetry/roots.h - recorded machines, as they are or as a copy that a test may change. */
#ifndef QDYNO_TESTS_ROOTS_H
#define QDYNO_TESTS_ROOTS_H

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tests/check.h"

struct root {
    char path[PATH_MAX / 2];
};

static inline struct root root_get(const char *name)
{
    struct root r;
    snprintf(r.path, sizeof r.path, "%s/tests/data/machines/%s", TEST_SOURCE_DIR, name);
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
