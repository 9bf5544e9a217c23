/* base/map_guard.h - keeps the process alive when a mapped file becomes shorter or its storage fails.
 *
 * A read of a page that the file no longer has raises SIGBUS, which ends the process without a message. The
 * handler puts zeros in place of the missing pages, records that the mapping is damaged, and lets the thread
 * go on, so no jump leaves a function that holds a lock. Who computes with mapped bytes asks afterwards,
 * before the result leaves the process (file_map_check). */
#ifndef QDYNO_BASE_MAP_GUARD_H
#define QDYNO_BASE_MAP_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct map_guard;

/* Installs the handler for all threads. Faults outside of guarded mappings get the action that was set
 * before. Call once, before the process has further threads. */
void map_guard_install(void);

/* Guards `bytes` bytes at `data`, the mapping of file `path`, which `fd` has open. NULL: out of memory. The
 * guard must be removed before the mapping and the descriptor. Any thread may add and remove guards. */
struct map_guard *map_guard_add(const void *data, size_t bytes, int fd, const char *path);
void map_guard_remove(struct map_guard *g); /* NULL is fine */

/* Whether zeros stand in place of bytes of the file. Cheap: no system call. */
bool map_guard_is_damaged(const struct map_guard *g);
const char *map_guard_path(const struct map_guard *g); /* valid until the guard is removed */
/* An error message now names the file: the two functions below pass over it. */
void map_guard_set_reported(struct map_guard *g);

/* For where errors are printed: ERR_FORMAT if a file became shorter while it was mapped, or could not be
 * read, and no message named it so far. Any other error may only be a consequence of that. */
enum err_code map_guard_explain(struct err *why);
/* The same, but only if zeros were read in place of the file's bytes. For the end of a process whose work
 * succeeded: its results may be wrong. */
enum err_code map_guard_confess(struct err *why);

#endif
