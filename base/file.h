/* base/file.h - reads files, replaces files atomically, finds the folders for data, cache and config. */
#ifndef QDYNO_BASE_FILE_H
#define QDYNO_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/map_guard.h"

/* The identity of a file and when its content last changed, from fstat. Unix times in ns. */
struct file_state {
    uint64_t device, inode;
    int64_t size, modified_ns, status_ns; /* status: also when links, owner or mode changed */
};

/* A read-only mapping of a whole file and its descriptor: file_unmap. The mapping remains that of the opened
 * file when another file is renamed to its path. For an empty file size is 0 and data is NULL. Where the file
 * became shorter, or cannot be read, the mapping reads as zeros (map_guard.h), and file_map_check fails. */
struct file_map {
    const unsigned char *data;
    size_t size;
    int fd;                   /* open while data is not NULL */
    struct file_state opened; /* when it was mapped */
    struct map_guard *guard;  /* while data is not NULL */
};
enum err_code file_map(struct file_map *out, const char *path,
                       struct err *why); /* ERR_IO; ERR_FORMAT: not a regular file */
void file_unmap(struct file_map *m);

/* The current state of the mapped file. ERR_IO. */
enum err_code file_map_state(const struct file_map *m, struct file_state *out, struct err *why);
/* ERR_FORMAT: the content changed since the file was mapped (another size or modification time), or a part of
 * it could not be read; the message names the file. Replacing the file at its path, or deleting it, is not a
 * change, because the mapping keeps the opened file. */
enum err_code file_map_check(const struct file_map *m, struct err *why);
/* The same, but only for bytes that were read and were missing. No system call unless there are such. */
enum err_code file_map_check_read(const struct file_map *m, struct err *why);

/* Reads a whole file, NUL-terminated; the caller frees *out. *size (may be NULL) is without the terminator.
 * ERR_FORMAT: longer than `limit` bytes. Works for /proc and /sys, whose files do not report their size.
 * Waits for the writer of a FIFO or terminal; ERR_CANCELLED: this thread handled a signal meanwhile. */
enum err_code file_read(char **out, size_t *size, const char *path, size_t limit, struct err *why);

/* Writes a temporary file next to `path` and renames it: readers see the old or the new file. Follows links;
 * a device or FIFO is written in place; ERR_CANCELLED: a signal came before a FIFO had a reader. Open, write
 * to f.stream, then commit (fsync, rename) or abort. */
struct atomic_file {
    FILE *stream;
    char *path, *temp; /* temp NULL: written in place */
    bool keep;         /* atomic_file_abort keeps the temporary file */
};
enum err_code atomic_file_open(struct atomic_file *f, const char *path, struct err *why);
/* The same with PATH.partial, which atomic_file_abort keeps and the next call opens again, for reading and
 * writing from its start. ERR_IO: another process has it open; it is a link or another user's. */
enum err_code atomic_file_resume(struct atomic_file *f, const char *path, struct err *why);
enum err_code atomic_file_commit(struct atomic_file *f,
                                 struct err *why); /* on error removes the temporary file */
void atomic_file_abort(struct atomic_file *f);     /* no effect after commit and on {0} */

/* Like mkdir -p: no error if the folder exists. */
enum err_code file_make_dirs(const char *path, struct err *why);

/* Takes the permissions of group and others from a file or folder of this user. Those of another user, and
 * one that does not exist, stay as they are. */
void file_make_private(const char *path);

/* $XDG_DATA_HOME/qdyno, $XDG_CACHE_HOME/qdyno, $XDG_CONFIG_HOME/qdyno or their defaults; creates the folder,
 * and makes it private, because databases and logs may hold what others must not read. The caller frees *out.
 * ERR_IO: neither the variable nor HOME is set, or the folder cannot be created. */
enum file_place { FILE_DATA, FILE_CACHE, FILE_CONFIG };
enum err_code file_place(char **out, enum file_place place, struct err *why);

/* Finds an installed data file: in $QDYNO_SHARE, else in <exe>/../share/qdyno (installed) or <exe>/share
 * (build tree), whichever contains `name`. The caller frees *out. ERR_ABSENT: not found. */
enum err_code file_share(char **out, const char *name, struct err *why);

#endif
