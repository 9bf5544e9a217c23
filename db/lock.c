/* db/lock.c - exclusive locks between processes: for measuring a run, for the watch, and for sending spooled
 * results to one gateway.
 *
 * If two processes continued one run, each would discard the other's unfinished block. So a run is locked by
 * one database handle. A lock is a byte range of the file "<database>-holds", locked in the kernel; it ends
 * with the process however that ends, so stale locks do not exist. The locked bytes contain the process id of
 * the owner, only for the error message of a second process; they remain after the lock ended and then mean
 * nothing. */
#include "db/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOCK_FILE_MODE = 0600, /* as the database */
    LOCK_WAIT_STEP_MS = 20
};

/* Byte ranges of the file. Run ids start at 1, so the first record is free for the watch. One byte beyond all
 * runs, and beyond the end of the file, stands for a gateway; nothing is written there. */
struct range {
    int64_t start;
    int size; /* of a process id with a newline; 1: not recorded */
};
enum { LOCK_RECORD = 16 };
static const struct range WATCH = { .start = 0, .size = LOCK_RECORD / 2 };
static const int64_t GATEWAYS_START = INT64_C(1) << 40;

static struct range run_range(int64_t run_id)
{
    return (struct range){ .start = run_id * LOCK_RECORD, .size = LOCK_RECORD };
}

/* Of two gateways with the same byte, which is improbable, one is sent to at a time. */
static struct range gateway_range(const char *gateway)
{
    char hex[HASH_HEX];
    unsigned slot = 0;
    size_t n = strlen(gateway);
    while (n && gateway[n - 1] == '/') n--;
    hash_bytes(gateway, n, hex);
    (void)sscanf(hex, "%6x", &slot);
    return (struct range){ .start = GATEWAYS_START + slot, .size = 1 };
}

/* The absolute path, which is the same whatever name the file was opened with. "": a database in memory,
 * which no other process can open. */
static const char *absolute_path(const struct db *d)
{
    const char *path = sqlite3_db_filename(d->handle, "main");
    return path ? path : "";
}

static enum err_code lock_file_open(struct db *d, struct err *why)
{
    struct str path = { 0 };
    str_printf(&path, "%s-holds", absolute_path(d));
    enum err_code rc = path.failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
    if (!rc) d->lock_file = open(str_text(&path), O_RDWR | O_CREAT | O_CLOEXEC, LOCK_FILE_MODE);
    if (!rc && d->lock_file < 0)
        rc = err_set(why, err_of_errno(errno), "cannot open the lock file '%s': %s", str_text(&path),
                     strerror(errno));
    str_free(&path);
    return rc;
}

/* The process id that a lock's owner wrote; 0: unknown. */
static int lock_owner(const struct db *d, int64_t start)
{
    char record[LOCK_RECORD + 1] = "";
    int pid = 0;
    if (pread(d->lock_file, record, LOCK_RECORD / 2, start) > 0) sscanf(record, "%d", &pid);
    return pid;
}

/* F_OFD_* locks belong to the open file, not to the process, so two experiments in one process exclude each
 * other. */
static struct flock range_flock(struct range r, short type)
{
    return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = r.start, .l_len = r.size };
}

/* Tries to lock a range. *locked: whether this handle now has the lock; if not, *pid is the owner. */
static enum err_code lock_try(struct db *d, struct range r, bool *locked, int *pid, struct err *why)
{
    *locked = !*absolute_path(d);
    *pid = 0;
    if (*locked) return ERR_OK;
    enum err_code rc = d->lock_file < 0 ? lock_file_open(d, why) : ERR_OK;
    if (rc) return rc;
    struct flock range = range_flock(r, F_WRLCK);
    if (!fcntl(d->lock_file, F_OFD_SETLK, &range)) {
        *locked = r.size == 1;
        if (*locked) return ERR_OK;
        char record[LOCK_RECORD + 1];
        snprintf(record, sizeof record, "%-*d\n", r.size - 1, (int)getpid());
        *locked = pwrite(d->lock_file, record, (size_t)r.size, r.start) == r.size;
        if (*locked) return ERR_OK;
    } else if (errno == EAGAIN || errno == EACCES) {
        *pid = lock_owner(d, r.start);
        return ERR_OK;
    }
    return err_set(why, err_of_errno(errno), "cannot write the lock file '%s-holds': %s", absolute_path(d),
                   strerror(errno));
}

/* "process 71", or "another process". Returns buf. */
static const char *process_name(int pid, char buf[32])
{
    if (pid > 0)
        snprintf(buf, 32, "process %d", pid);
    else
        snprintf(buf, 32, "another process");
    return buf;
}

enum err_code db_run_lock(struct db *d, int64_t run_id, struct err *why)
{
    char name[32];
    bool locked;
    int pid;
    enum err_code rc = lock_try(d, run_range(run_id), &locked, &pid, why);
    if (rc || locked) return rc;
    return err_set(
        why, ERR_USAGE,
        "run %" PRId64
        " is being measured by %s: wait until the run ends, or stop that process, before continuing "
        "the run",
        run_id, process_name(pid, name));
}

enum err_code db_watch_lock(struct db *d, struct err *why)
{
    char name[32];
    bool locked;
    int pid;
    enum err_code rc = lock_try(d, WATCH, &locked, &pid, why);
    if (rc || locked) return rc;
    return err_set(why, ERR_USAGE,
                   "a watch already uses database '%s' (%s): stop it, or name another file with --db",
                   d->path, process_name(pid, name));
}

bool db_run_is_locked(struct db *d, int *pid)
{
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_RECORD, .l_len = GATEWAYS_START - LOCK_RECORD
    };
    *pid = 0;
    if (!*absolute_path(d) || (d->lock_file < 0 && lock_file_open(d, NULL)) ||
        fcntl(d->lock_file, F_OFD_GETLK, &range) || range.l_type == F_UNLCK)
        return false;
    *pid = lock_owner(d, range.l_start);
    return true;
}

/* ---------------------------------------------------------------- abandoned runs */

struct abandoned {
    int lock_file; /* a descriptor of its own: a handle's own locks would not show through its own; -1: no
                      file */
    struct abandoned_run *run;
    int n;
};

static enum err_code abandoned_row(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct abandoned *a = ctx;
    const int64_t id = sqlite3_column_int64(row, 0);
    struct flock range = range_flock(run_range(id), F_WRLCK);
    /* without an answer the run counts as locked */
    if (a->lock_file >= 0 && (fcntl(a->lock_file, F_OFD_GETLK, &range) || range.l_type != F_UNLCK))
        return ERR_OK;
    struct abandoned_run *more = realloc(a->run, ((size_t)a->n + 1) * sizeof *more);
    if (!more) return err_set(why, ERR_NOMEM, "out of memory listing runs");
    a->run = more;
    more[a->n].id = id;
    snprintf(more[a->n].kind, sizeof more[a->n].kind, "%s", (const char *)sqlite3_column_text(row, 1));
    a->n++;
    return ERR_OK;
}

static enum err_code abandoned_find(struct db *d, struct abandoned *a, struct err *why)
{
    a->n = 0;
    return db_execute(d,
                      &(struct db_call){ .doing = "list running runs",
                                         .sql = "SELECT id, kind FROM run WHERE state = 'running'",
                                         .row = abandoned_row,
                                         .ctx = a },
                      why, "");
}

/* Opens the lock file and finds abandoned runs; the caller calls abandoned_done, also after an error. */
static enum err_code abandoned_open(struct db *d, struct abandoned *a, struct err *why)
{
    struct str path = { 0 };
    *a = (struct abandoned){ .lock_file = -1 };
    if (!*absolute_path(d)) return ERR_OK; /* in memory: all runs are of this process */
    str_printf(&path, "%s-holds", absolute_path(d));
    enum err_code rc = path.failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
    if (!rc) a->lock_file = open(str_text(&path), O_RDONLY | O_CLOEXEC);
    if (!rc && a->lock_file < 0 && errno != ENOENT)
        rc = err_set(why, err_of_errno(errno), "cannot open the lock file '%s': %s", str_text(&path),
                     strerror(errno));
    str_free(&path);
    return rc ? rc : abandoned_find(d, a, why);
}

static void abandoned_done(struct abandoned *a)
{
    if (a->lock_file >= 0) close(a->lock_file);
    free(a->run);
}

enum err_code abandoned_list(struct db *d, struct abandoned_run **out, int *n, struct err *why)
{
    struct abandoned a;
    const enum err_code rc = abandoned_open(d, &a, why);
    *out = rc ? NULL : a.run;
    *n = rc ? 0 : a.n;
    if (!rc) a.run = NULL;
    abandoned_done(&a);
    return rc;
}

/* The runs are listed again inside the transaction. Whoever continues one locks it before the row changes, so
 * its change comes after this one and stays. */
static enum err_code abandoned_close(struct db *d, struct abandoned *a, struct err *why)
{
    static const char SQL[] = "UPDATE run SET state = 'interrupted', ended_ms = max(started_ms, coalesce("
                              "(SELECT max(started_ms + CAST(coalesce(1e3 * seconds, 0) AS INTEGER))"
                              " FROM cell WHERE run_id = run.id), 0)) WHERE id = ?";
    enum err_code rc = db_begin(d, "close interrupted runs", why);
    if (rc) return rc;
    rc = abandoned_find(d, a, why);
    for (int i = 0; i < a->n && !rc; i++)
        rc = db_execute(d, &(struct db_call){ .doing = "close an interrupted run", .sql = SQL }, why, "i",
                        a->run[i].id);
    return db_end(d, rc, "close interrupted runs", why);
}

enum err_code db_runs_close_abandoned(struct db *d, struct err *why)
{
    struct abandoned a;
    enum err_code rc = abandoned_open(d, &a, why);
    if (!rc && a.n) rc = abandoned_close(d, &a, why);
    abandoned_done(&a);
    return rc;
}

/* ---------------------------------------------------------------- sending */

enum err_code db_spool_lock(struct db *d, const char *gateway, int64_t wait_ms, struct err *why)
{
    const struct range range = gateway_range(gateway);
    bool locked = false;
    int pid;
    for (int64_t waited = 0;; waited += LOCK_WAIT_STEP_MS) {
        enum err_code rc = lock_try(d, range, &locked, &pid, why);
        if (!rc && locked) d->sending_at = range.start;
        if (rc || locked) return rc;
        if (waited >= wait_ms)
            return err_set(why, ERR_ABSENT,
                           "another process is sending results to %s and has not finished yet", gateway);
        clock_sleep_ns(LOCK_WAIT_STEP_MS * 1000000LL);
    }
}

void db_spool_unlock(struct db *d)
{
    struct flock range = range_flock((struct range){ .start = d->sending_at, .size = 1 }, F_UNLCK);
    if (d->lock_file >= 0 && d->sending_at)
        (void)fcntl(d->lock_file, F_OFD_SETLK, &range); /* closing would release it, too */
    d->sending_at = 0;
}

void db_unlock(struct db *d)
{
    if (d->lock_file >= 0) close(d->lock_file);
    d->lock_file = -1;
}
