/* Finds the module for MPI and mpirun. Both are optional: what is missing is named with its package. */
#include "engine/parallel/parallel_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHAT_TO_INSTALL                                                                                      \
    "ranks need Open MPI (Debian: apt install openmpi-bin libopenmpi-dev) and a qdyno built with it"

enum err_code module_path(char **out, struct err *why)
{
    static const char *const PLACES[] = { "qdyno_mpi.so", "../lib/qdyno/qdyno_mpi.so" };
    const char *given = getenv("QDYNO_MPI_MODULE");
    char exe[PATH_MAX];
    *out = NULL;
    if (given) {
        if (access(given, R_OK))
            return err_set(why, ERR_ABSENT, "QDYNO_MPI_MODULE=%s: %s", given, strerror(errno));
        *out = strdup(given);
        return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    }
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n < 0) return err_set(why, err_of_errno(errno), "/proc/self/exe: %s", strerror(errno));
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash) *slash = '\0';
    for (size_t i = 0; i < COUNT_OF(PLACES); i++) {
        struct str path = { 0 };
        str_printf(&path, "%s/%s", exe, PLACES[i]);
        if (!path.failed && !access(str_text(&path), R_OK)) {
            *out = str_take(&path);
            return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
        }
        str_free(&path);
    }
    return err_set(why, ERR_ABSENT,
                   "no module for MPI beside the program (%s/qdyno_mpi.so): " WHAT_TO_INSTALL, exe);
}

enum err_code mpirun_path(char **out, struct err *why)
{
    const char *given = getenv("QDYNO_MPIRUN"), *list = getenv("PATH");
    *out = NULL;
    if (given) {
        if (access(given, X_OK))
            return err_set(why, ERR_ABSENT, "QDYNO_MPIRUN=%s: %s", given, strerror(errno));
        *out = strdup(given);
        return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    }
    for (const char *p = list ? list : ""; *p;) {
        const size_t n = strcspn(p, ":");
        struct str path = { 0 };
        str_printf(&path, "%.*s/mpirun", (int)n, p);
        p += n + (p[n] == ':');
        if (n && !path.failed && !access(str_text(&path), X_OK)) {
            *out = str_take(&path);
            return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
        }
        str_free(&path);
    }
    return err_set(why, ERR_ABSENT, "no program mpirun in PATH: " WHAT_TO_INSTALL);
}

enum err_code ranks_possible(struct err *why)
{
    char *path;
    enum err_code rc = mpirun_path(&path, why);
    free(path);
    if (rc) return rc;
    rc = module_path(&path, why);
    free(path);
    return rc;
}
