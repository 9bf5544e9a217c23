/* db/hold.c - who measures a run, who watches, and who sends what waits in the spool. Two processes that go
 * on with one run would each discard the other's unfinished block, so a run has one holder. The kernel keeps
 * it: a lock on a range of bytes of a file beside the database, which ends with the process however that
 * ends, so there is no stale holder to recognize. The bytes themselves hold its number, for the message to
 * whoever comes second; they outlive it and mean nothing by themselves. */
#include "db/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { MODE = 0666 /* less the umask: who may write the database may hold its runs */, WAIT_STEP_MS = 20 };

/* Bytes of the file: each holder has its own. Runs start at 1, so the first record is free for two others. */
struct range {
    int64_t start;
    int size; /* holds the number of a process and a newline */
};
enum { RECORD = 16 };
static const struct range WATCH = { 0, RECORD / 2 }, SENDER = { RECORD / 2, RECORD / 2 };

static struct range run_range(int64_t run_id)
{
    return (struct range){ run_id * RECORD, RECORD };
}

/* "" of a database in memory, which nobody else can see. */
static const char *whole_path(const struct db *d)
{
    const char *path = sqlite3_db_filename(d->handle,
                                           "main"); /* absolute: one file, whatever it was called */
    return path ? path : "";
}

static enum err_code open_file(struct db *d, struct err *why)
{
    struct str path = { 0 };
    str_printf(&path, "%s-holds", whole_path(d));
    enum err_code rc = path.failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
    if (!rc) d->holds = open(str_text(&path), O_RDWR | O_CREAT | O_CLOEXEC, MODE);
    if (!rc && d->holds < 0)
        rc = err_set(why, ERR_IO, "cannot open '%s', which says who measures a run: %s", str_text(&path),
                     strerror(errno));
    str_free(&path);
    return rc;
}

/* The process that is written there; 0 unknown. */
static int holder(const struct db *d, int64_t start)
{
    char record[RECORD + 1] = "";
    int pid = 0;
    if (pread(d->holds, record, RECORD / 2, start) > 0) sscanf(record, "%d", &pid);
    return pid;
}

/* Of the open file, not of the process: two experiments of one process are two holders. */
static struct flock lock_of(struct range r, short type)
{
    return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = r.start, .l_len = r.size };
}

/* *held: by us from now on; false when somebody else does, *pid then. `what` reads after "cannot say that".
 */
static enum err_code hold(struct db *d, struct range r, const char *what, bool *held, int *pid,
                          struct err *why)
{
    *held = !*whole_path(d);
    *pid = 0;
    if (*held) return ERR_OK;
    enum err_code rc = d->holds < 0 ? open_file(d, why) : ERR_OK;
    if (rc) return rc;
    struct flock range = lock_of(r, F_WRLCK);
    if (!fcntl(d->holds, F_OFD_SETLK, &range)) {
        char record[RECORD + 1];
        snprintf(record, sizeof record, "%-*d\n", r.size - 1, (int)getpid());
        *held = pwrite(d->holds, record, (size_t)r.size, r.start) == r.size;
        if (*held) return ERR_OK;
    } else if (errno == EAGAIN || errno == EACCES) {
        *pid = holder(d, r.start);
        return ERR_OK;
    }
    return err_set(why, errno == ENOSPC ? ERR_FIT : ERR_IO, "cannot say in '%s-holds' that %s: %s",
                   whole_path(d), what, strerror(errno));
}

/* "process 71", or "another process". Returns buf. */
static const char *by(int pid, char buf[32])
{
    if (pid > 0)
        snprintf(buf, 32, "process %d", pid);
    else
        snprintf(buf, 32, "another process");
    return buf;
}

enum err_code db_run_hold(struct db *d, int64_t run_id, struct err *why)
{
    char what[64], name[32];
    bool held;
    int pid;
    snprintf(what, sizeof what, "run %" PRId64 " is being measured", run_id);
    enum err_code rc = hold(d, run_range(run_id), what, &held, &pid, why);
    if (rc || held) return rc;
    return err_set(why, ERR_USAGE, "%s by %s: wait for it, or stop it, before going on with it", what,
                   by(pid, name));
}

enum err_code db_watch_hold(struct db *d, struct err *why)
{
    char name[32];
    bool held;
    int pid;
    enum err_code rc = hold(d, WATCH, "a watch uses it", &held, &pid, why);
    if (rc || held) return rc;
    return err_set(why, ERR_USAGE,
                   "a watch uses database '%s' already (%s): stop it, or name another file "
                   "with --db",
                   d->path, by(pid, name));
}

bool db_run_held(struct db *d, int *pid)
{
    struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = RECORD };
    *pid = 0;
    if (!*whole_path(d) || (d->holds < 0 && open_file(d, NULL)) || fcntl(d->holds, F_OFD_GETLK, &range) ||
        range.l_type == F_UNLCK)
        return false;
    *pid = holder(d, range.l_start);
    return true;
}

enum err_code db_spool_hold(struct db *d, int64_t wait_ms, struct err *why)
{
    char name[32];
    bool held = false;
    int pid;
    for (int64_t waited = 0;; waited += WAIT_STEP_MS) {
        enum err_code rc = hold(d, SENDER, "results are being sent", &held, &pid, why);
        if (rc || held) return rc;
        if (waited >= wait_ms)
            return err_set(why, ERR_ABSENT, "%s is sending results and has not ended yet", by(pid, name));
        clock_sleep_ns(WAIT_STEP_MS * 1000000LL);
    }
}

void db_spool_release(struct db *d)
{
    struct flock range = lock_of(SENDER, F_UNLCK);
    if (d->holds >= 0) (void)fcntl(d->holds, F_OFD_SETLK, &range); /* closing would free it, too */
}

void db_run_release(struct db *d)
{
    if (d->holds >= 0) close(d->holds);
    d->holds = -1;
}
