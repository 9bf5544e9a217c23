/* db/hold.c - who measures a run. Two processes that go on with one run would each discard the other's
 * unfinished block, so a run has one holder. The kernel keeps it: a lock on a range of bytes of a file beside
 * the database, which ends with the process however that ends, so there is no stale holder to recognize. The
 * bytes themselves hold its number, for the message to whoever comes second; they outlive it and mean nothing
 * by themselves. */
#include "db/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { RECORD = 16, MODE = 0666 /* less the umask: who may write the database may hold its runs */ };

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

static enum err_code refuse(const struct db *d, int64_t run_id, struct err *why)
{
    char record[RECORD + 1] = "";
    int pid = 0;
    if (pread(d->holds, record, RECORD, run_id * RECORD) == RECORD) sscanf(record, "%d", &pid);
    char by[48] = "another process";
    if (pid > 0) snprintf(by, sizeof by, "process %d", pid);
    return err_set(why, ERR_USAGE,
                   "run %" PRId64
                   " is being measured by %s: wait for it, or stop it, before going on with it",
                   run_id, by);
}

static enum err_code unsaid(const struct db *d, int64_t run_id, struct err *why)
{
    return err_set(why, ERR_IO, "cannot say in '%s-holds' that run %" PRId64 " is being measured: %s",
                   whole_path(d), run_id, strerror(errno));
}

enum err_code db_run_hold(struct db *d, int64_t run_id, struct err *why)
{
    if (!*whole_path(d)) return ERR_OK;
    enum err_code rc = d->holds < 0 ? open_file(d, why) : ERR_OK;
    if (rc) return rc;
    /* Of the open file, not of the process: two experiments of one process are two holders. */
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = run_id * RECORD, .l_len = RECORD
    };
    if (fcntl(d->holds, F_OFD_SETLK, &range)) {
        if (errno == EAGAIN || errno == EACCES) return refuse(d, run_id, why);
        return unsaid(d, run_id, why);
    }
    char record[RECORD + 1];
    snprintf(record, sizeof record, "%-*d\n", RECORD - 1, (int)getpid());
    if (pwrite(d->holds, record, RECORD, range.l_start) == RECORD) return ERR_OK;
    return unsaid(d, run_id, why);
}

void db_run_release(struct db *d)
{
    if (d->holds >= 0) close(d->holds);
    d->holds = -1;
}
