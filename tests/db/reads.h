/* tests/db/reads.h - a disk that cannot read: the reads of SQLite fail with EIO while that is wanted. */
#ifndef QDYNO_TESTS_DB_READS_H
#define QDYNO_TESTS_DB_READS_H

#include <errno.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/check.h"

static inline ssize_t reads_eio(int fd, void *to, size_t n, off64_t at)
{
    (void)fd, (void)to, (void)n, (void)at;
    errno = EIO;
    return -1;
}

static inline void reads_fail(bool fail)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    const sqlite3_syscall_ptr replacement = fail ? (sqlite3_syscall_ptr)reads_eio : NULL; /* NULL: its own */
    static const char *const NAMES[] = { "pread", "pread64" }; /* SQLite was built with one of them */
    int known = 0;
    for (size_t i = 0; i < COUNT_OF(NAMES); i++)
        known += vfs->xGetSystemCall(vfs, NAMES[i]) && !vfs->xSetSystemCall(vfs, NAMES[i], replacement);
    CHECK_GE(known, 1);
}

#endif
