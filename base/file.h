/* base/file.h - files that are either whole or absent, and where they live (XDG). */
#ifndef QDYNO_BASE_FILE_H
#define QDYNO_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

/* Which file this is and when its content last changed, as fstat tells it. Times in ns since 1970. */
struct file_state {
    uint64_t device, inode;
    int64_t size, modified_ns, status_ns; /* status: also when links, owner or mode changed */
};

/* A read-only view of a whole file, and the descriptor it was mapped from: the view stays that of the opened
 * file when another file takes its path. Owned: file_unmap. Empty files map as size 0, data NULL. */
struct file_map {
    const unsigned char *data;
    size_t size;
    int fd;                   /* open while data is not NULL */
    struct file_state opened; /* when it was mapped */
};
enum err_code file_map(struct file_map *out, const char *path,
                       struct err *why); /* ERR_IO, ERR_FORMAT: not a file */
void file_unmap(struct file_map *m);

/* The mapped file's state now. ERR_IO. */
enum err_code file_map_state(const struct file_map *m, struct file_state *out, struct err *why);
/* ERR_FORMAT when the content changed since the file was mapped (another size or time of modification). That
 * another file took its path, or that it was deleted, is no change: the view still holds what was opened. */
enum err_code file_map_check(const struct file_map *m, struct err *why);

/* The whole file as NUL-terminated bytes (free()); *size without the terminator, may be NULL. `limit` bytes
 * at most (ERR_FORMAT above). Works for /proc and /sys, whose sizes are not known beforehand. */
enum err_code file_read(char **out, size_t *size, const char *path, size_t limit, struct err *why);

/* Write to a temporary neighbour, then rename over `path`: a reader sees the old file or the new one.
 *   atomic_file_open -> write to f.stream -> atomic_file_commit (fsync + rename) or atomic_file_abort. */
struct atomic_file {
    FILE *stream;
    char *path, *temp;
    bool keep; /* abort leaves the temporary file */
};
enum err_code atomic_file_open(struct atomic_file *f, const char *path, struct err *why);
/* The same with PATH.partial as the temporary file, which abort leaves there and the next opening finds
 * again, read and write from its start. ERR_IO: another process has it open so. */
enum err_code atomic_file_resume(struct atomic_file *f, const char *path, struct err *why);
enum err_code atomic_file_commit(struct atomic_file *f,
                                 struct err *why); /* on error the temp file is removed */
void atomic_file_abort(struct atomic_file *f);     /* safe after commit and on {0} */

/* mkdir -p; fine when it is there. */
enum err_code file_make_dirs(const char *path, struct err *why);

/* $XDG_DATA_HOME/qdyno, $XDG_CACHE_HOME/qdyno, $XDG_CONFIG_HOME/qdyno or their defaults; created on demand.
 * *out is owned (free). ERR_IO when neither the variable nor HOME is set or the folder cannot be made. */
enum file_place { FILE_DATA, FILE_CACHE, FILE_CONFIG };
enum err_code file_place(char **out, enum file_place place, struct err *why);

/* A file of share/ (installed data): $QDYNO_SHARE, else <exe>/../share/qdyno (installed) or <exe>/share
 * (build tree), whichever holds `name`. *out is owned. ERR_ABSENT when none does. */
enum err_code file_share(char **out, const char *name, struct err *why);

#endif
