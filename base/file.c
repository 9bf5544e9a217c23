#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/str.h"

static int64_t time_ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum err_code state_of(int fd, struct file_state *out, struct stat *st, struct err *why)
{
    if (fstat(fd, st))
        return err_set(why, err_of_errno(errno), "cannot read the file's status: %s", strerror(errno));
    *out = (struct file_state){ .device = st->st_dev,
                                .inode = st->st_ino,
                                .size = st->st_size,
                                .modified_ns = time_ns(st->st_mtim),
                                .status_ns = time_ns(st->st_ctim) };
    return ERR_OK;
}

enum err_code file_map(struct file_map *out, const char *path, struct err *why)
{
    *out = (struct file_map){ 0 };
    const int fd = open(path,
                        O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is refused below, not waited for */
    if (fd < 0) return err_set(why, err_of_errno(errno), "cannot open '%s': %s", path, strerror(errno));
    struct file_state opened;
    struct stat st;
    enum err_code rc = state_of(fd, &opened, &st, why);
    if (rc)
        err_prefix(why, "'%s'", path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(why, ERR_FORMAT, "'%s' is not a regular file", path);
    if (!rc && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        const int cause = errno;
        struct map_guard *guard = p == MAP_FAILED ? NULL : map_guard_add(p, (size_t)st.st_size, fd, path);
        if (guard) {
            *out = (struct file_map){ p, (size_t)st.st_size, fd, opened, guard };
            return ERR_OK;
        }
        rc = p == MAP_FAILED ? err_set(why, err_of_errno(cause), "cannot map '%s': %s", path, strerror(cause))
                             : err_set(why, ERR_NOMEM, "out of memory opening '%s'", path);
        if (p != MAP_FAILED) munmap(p, (size_t)st.st_size);
    }
    close(fd);
    return rc;
}

void file_unmap(struct file_map *m)
{
    if (m->data) {
        map_guard_remove(m->guard);
        munmap((void *)m->data, m->size);
        close(m->fd);
    }
    *m = (struct file_map){ 0 };
}

enum err_code file_map_state(const struct file_map *m, struct file_state *out, struct err *why)
{
    struct stat st;
    *out = m->opened; /* an empty file has no descriptor */
    return m->data ? state_of(m->fd, out, &st, why) : ERR_OK;
}

enum err_code file_map_check(const struct file_map *m, struct err *why)
{
    struct file_state now;
    const enum err_code rc = file_map_state(m, &now, why);
    const bool damaged = m->guard && map_guard_is_damaged(m->guard);
    if (rc || (!damaged && now.size == m->opened.size && now.modified_ns == m->opened.modified_ns)) return rc;
    const char *const what = now.size < m->opened.size ? "the file became shorter while it was in use"
                             : damaged ? "a part of the file could not be read (check the disk), or the file "
                                         "was shorter for some time"
                                       : "the file was changed while it was in use";
    map_guard_set_reported(m->guard);
    return err_set(why, ERR_FORMAT,
                   "'%s': %s (%lld bytes when it was opened, %lld now): run again when nothing writes to it",
                   map_guard_path(m->guard), what, (long long)m->opened.size, (long long)now.size);
}

enum err_code file_map_check_read(const struct file_map *m, struct err *why)
{
    return m->guard && map_guard_is_damaged(m->guard) ? file_map_check(m, why) : ERR_OK;
}

/* Whether a read can wait for somebody to write: a FIFO, pipe or terminal. */
static bool is_stream(int fd)
{
    struct stat st;
    return !fstat(fd, &st) && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode) || S_ISSOCK(st.st_mode));
}

/* Waits for data or the end of a stream. The program's signal handlers let system calls continue; poll is one
 * of the few that end all the same, so that Ctrl-C ends a wait for data that never come. */
static enum err_code wait_for_data(int fd, const char *path, struct err *why)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    if (poll(&p, 1, -1) >= 0) return ERR_OK;
    if (errno == EINTR)
        return err_set(why, ERR_CANCELLED, "interrupted while waiting for data of '%s'", path);
    return err_set(why, err_of_errno(errno), "cannot wait for data of '%s': %s", path, strerror(errno));
}

enum err_code file_read(char **out, size_t *size, const char *path, size_t limit, struct err *why)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO: without waiting for its writer */
    if (fd < 0) return err_set(why, err_of_errno(errno), "cannot open '%s': %s", path, strerror(errno));
    struct str text = { 0 };
    enum err_code rc = ERR_OK;
    const bool stream = is_stream(fd);
    for (;;) {
        char part[16384];
        if (stream && (rc = wait_for_data(fd, path, why))) break;
        ssize_t n = read(fd, part, sizeof part);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) rc = err_set(why, err_of_errno(errno), "cannot read '%s': %s", path, strerror(errno));
        if (n <= 0) break;
        str_append_n(&text, part, (size_t)n);
        if (text.len > limit) {
            rc = err_set(why, ERR_FORMAT,
                         "file '%s' has more than %zu bytes, the limit for this kind of file: check the path",
                         path, limit);
            break;
        }
    }
    close(fd);
    size_t len = text.len;
    if (!rc && !(*out = str_take(&text))) rc = err_set(why, ERR_NOMEM, "out of memory reading '%s'", path);
    if (rc) str_free(&text);
    if (size) *size = rc ? 0 : len;
    return rc;
}

/* Does `path` name a file that cannot be replaced by another: a device, FIFO, socket or folder? Follows
 * symbolic links. *mode: the permissions of an existing regular file, else those of a new one. */
static bool is_special(const char *path, mode_t *mode)
{
    struct stat st;
    const mode_t mask = umask(0);
    umask(mask);
    *mode = 0666 & ~mask;
    if (stat(path, &st)) return false;
    if (S_ISREG(st.st_mode)) *mode = st.st_mode & 0777;
    return !S_ISREG(st.st_mode);
}

/* The path that the symbolic links at `path` lead to, which need not exist; the caller frees *out. */
static enum err_code follow_links(char **out, const char *path, struct err *why)
{
    enum { LINKS_MAX = 40 };
    char at[PATH_MAX], link[PATH_MAX];
    int n = snprintf(at, sizeof at, "%s", path), links = 0;
    ssize_t length;
    *out = NULL;
    for (; n < (int)sizeof at && (length = readlink(at, link, sizeof link - 1)) >= 0; links++) {
        if (links == LINKS_MAX) return err_set(why, ERR_IO, "too many symbolic links at '%s'", path);
        link[length] = '\0';
        const char *slash = strrchr(at, '/');
        struct str next = { 0 };
        if (link[0] != '/' && slash) str_append_n(&next, at, (size_t)(slash + 1 - at));
        str_append(&next, link);
        n = snprintf(at, sizeof at, "%s", str_text(&next));
        str_free(&next);
    }
    if (n >= (int)sizeof at) return err_set(why, ERR_IO, "path too long: '%s'", path);
    *out = strdup(at);
    return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory opening '%s'", path);
}

/* Sets f->path, the file to replace, and f->temp beside it: `path` with `ending`. */
static enum err_code name_files(struct atomic_file *f, const char *path, const char *ending, struct err *why)
{
    struct str temp = { 0 };
    const enum err_code rc = follow_links(&f->path, path, why);
    if (rc) return rc;
    str_printf(&temp, "%s%s", f->path, ending);
    f->temp = str_take(&temp);
    return f->temp ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory opening '%s'", path);
}

/* Opens a file for writing in place. For a FIFO, waits until somebody reads it. -1 and errno; EINTR: a signal
 * ended the wait. */
static int open_for_reader(const char *path)
{
    enum { WAIT_MS = 20 };
    int fd;
    while ((fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) < 0 && errno == ENXIO)
        if (poll(NULL, 0, WAIT_MS) < 0) return -1;
    if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

/* Opens what cannot be replaced for writing in place; then f->temp is NULL. */
static enum err_code open_in_place(struct atomic_file *f, const char *path, struct err *why)
{
    struct stat st;
    const bool fifo = !stat(path, &st) && S_ISFIFO(st.st_mode);
    const int fd = fifo ? open_for_reader(path) : open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 && errno == EINTR)
        return err_set(why, ERR_CANCELLED,
                       "interrupted while waiting for another program to open the FIFO '%s' for reading",
                       path);
    f->stream = fd >= 0 ? fdopen(fd, "wb") : NULL;
    f->path = f->stream ? strdup(path) : NULL;
    if (f->path) return ERR_OK;
    const enum err_code rc = err_set(why, err_of_errno(errno), "cannot write to '%s': %s", path,
                                     strerror(errno));
    if (fd >= 0 && !f->stream) close(fd);
    atomic_file_abort(f);
    return rc;
}

enum err_code atomic_file_open(struct atomic_file *f, const char *path, struct err *why)
{
    mode_t mode;
    *f = (struct atomic_file){ 0 };
    if (is_special(path, &mode)) return open_in_place(f, path, why);
    enum err_code rc = name_files(f, path, ".tmp.XXXXXX", why);
    if (!rc) {
        const int fd = mkostemp(f->temp, O_CLOEXEC); /* a new file with mode 0600; follows no link */
        if (fd >= 0 && !fchmod(fd, mode) && (f->stream = fdopen(fd, "wb"))) return ERR_OK;
        rc = err_set(why, err_of_errno(errno), "cannot create a file next to '%s': %s", path,
                     strerror(errno));
        if (fd >= 0) close(fd);
        f->keep = fd < 0; /* nothing was created */
    }
    atomic_file_abort(f);
    return rc;
}

/* Opens the partial file, or creates it, and locks it. Somebody else may have placed a link or a FIFO there.
 * Returns the descriptor; -1: *why says why. */
static int partial_open(const struct atomic_file *f, mode_t mode, struct err *why)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat st, now;
    int seen = 0, fd = open(f->temp, flags | O_CREAT | O_EXCL, 0600);
    const bool created = fd >= 0;
    if (!created && errno == EEXIST) fd = open(f->temp, flags);
    if (fd < 0 && errno == ELOOP)
        err_set(why, ERR_IO, "'%s' is a symbolic link, expected a regular file: delete it", f->temp);
    else if (fd < 0 || fstat(fd, &st) || (created && fchmod(fd, mode)))
        err_set(why, err_of_errno(errno), "cannot create a file next to '%s': %s", f->path, strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink > 1)
        err_set(why, ERR_IO, "'%s' is not a regular file of this user with one name: delete it", f->temp);
    else if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        err_set(why, ERR_IO,
                "'%s' is being written by another process: wait for its end, or write to another file",
                f->path);
    else if ((seen = lstat(f->temp, &now)) && errno != ENOENT)
        err_set(why, err_of_errno(errno), "cannot create a file next to '%s': %s", f->path, strerror(errno));
    else if (seen || now.st_ino != st.st_ino || now.st_dev != st.st_dev)
        err_set(why, ERR_IO, "'%s' was just written by another process: start again to replace it", f->path);
    else
        return fd;
    if (fd >= 0) close(fd);
    return -1;
}

enum err_code atomic_file_resume(struct atomic_file *f, const char *path, struct err *why)
{
    mode_t mode;
    *f = (struct atomic_file){ .keep = true };
    enum err_code rc = is_special(path, &mode)
                           ? err_set(why, ERR_IO, "'%s' is not a regular file: it cannot be resumed", path)
                           : name_files(f, path, ".partial", why);
    if (!rc) {
        const int fd = partial_open(f, mode, why);
        f->stream = fd >= 0 ? fdopen(fd, "r+b") : NULL;
        if (f->stream) return ERR_OK;
        rc = fd < 0 ? ERR_IO : err_set(why, ERR_NOMEM, "out of memory opening '%s'", path);
        if (fd >= 0) close(fd);
    }
    atomic_file_abort(f);
    return rc;
}

/* The errno of an earlier failed write is lost. The file is discarded, so another byte may be written to it:
 * on a full disk that fails, too. */
static int write_cause(const struct atomic_file *f)
{
    return write(fileno(f->stream), "", 1) < 0 ? errno : EIO;
}

enum err_code atomic_file_commit(struct atomic_file *f, struct err *why)
{
    const enum err_code incomplete = memory_check("write the whole file", why);
    if (incomplete) {
        atomic_file_abort(f);
        return incomplete;
    }
    const bool failed = ferror(f->stream);
    bool bad = failed || fflush(f->stream) || (f->temp && fsync(fileno(f->stream)));
    int cause = failed ? write_cause(f) : errno;
    if (!bad && f->temp && rename(f->temp, f->path)) {
        bad = true;
        cause = errno;
    }
    enum err_code rc = bad ? err_set(why, err_of_errno(cause), "cannot write '%s': %s", f->path,
                                     strerror(cause))
                           : ERR_OK;
    if (!bad) { /* the temporary file is gone; abort must not remove a new one of that name */
        free(f->temp);
        f->temp = NULL;
    }
    atomic_file_abort(f);
    return rc;
}

void atomic_file_abort(struct atomic_file *f)
{
    if (f->stream) fclose(f->stream);
    if (f->temp && !f->keep) unlink(f->temp);
    free(f->temp);
    free(f->path);
    *f = (struct atomic_file){ 0 };
}

enum err_code file_make_dirs(const char *path, struct err *why)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return err_set(why, ERR_IO, "path too long: '%s'", path);
    for (char *p = part + 1;; p++) {
        if (*p && *p != '/') continue;
        char was = *p;
        *p = '\0';
        struct stat st;
        if (mkdir(part, 0777)) {
            int cause = errno;
            const bool unknown = stat(part, &st) != 0;
            if (unknown && cause == EEXIST) cause = errno;
            if (unknown || !S_ISDIR(st.st_mode))
                return err_set(why, err_of_errno(cause), "cannot make folder '%s': %s", part,
                               strerror(cause));
        }
        if (!was) return ERR_OK;
        *p = was;
    }
}

void file_make_private(const char *path)
{
    struct stat st;
    if (stat(path, &st) || st.st_uid != geteuid() || !(st.st_mode & 077)) return;
    (void)chmod(path, st.st_mode & 07700); /* on a file system without permissions there is nothing to take */
}

enum err_code file_place(char **out, enum file_place place, struct err *why)
{
    static const struct {
        const char *variable, *fallback;
    } PLACES[] = {
        [FILE_DATA] = { "XDG_DATA_HOME", ".local/share" },
        [FILE_CACHE] = { "XDG_CACHE_HOME", ".cache" },
        [FILE_CONFIG] = { "XDG_CONFIG_HOME", ".config" },
    };
    struct str path = { 0 };
    const char *base = getenv(PLACES[place].variable), *home = getenv("HOME");
    *out = NULL;
    if (base && base[0] == '/')
        str_printf(&path, "%s/qdyno", base);
    else if (home && home[0])
        str_printf(&path, "%s/%s/qdyno", home, PLACES[place].fallback);
    else
        return err_set(why, ERR_IO, "neither %s nor HOME is set: no place for qdyno's files",
                       PLACES[place].variable);
    enum err_code rc = file_make_dirs(str_text(&path), why);
    if (!rc) file_make_private(str_text(&path));
    if (!rc && !(*out = str_take(&path))) rc = err_set(why, ERR_NOMEM, "out of memory");
    str_free(&path);
    return rc;
}

enum err_code file_share(char **out, const char *name, struct err *why)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n < 0)
        return err_set(why, err_of_errno(errno), "cannot find qdyno's own file '%s': /proc/self/exe: %s",
                       name, strerror(errno));
    exe[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash) *slash = '\0';

    const char *given = getenv("QDYNO_SHARE");
    const char *const TAILS[] = { "/../share/qdyno", "/share", "/../share" };
    *out = NULL;
    for (int i = given ? -1 : 0; i < (given ? 0 : 3); i++) {
        struct str path = { 0 };
        str_printf(&path, "%s%s/%s", i < 0 ? given : exe, i < 0 ? "" : TAILS[i], name);
        if (!path.failed && !access(str_text(&path), R_OK)) {
            *out = str_take(&path);
            return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
        }
        str_free(&path);
    }
    return err_set(why, ERR_ABSENT, "qdyno's own file '%s' is not beside the program (%s); set QDYNO_SHARE",
                   name, given ? given : exe);
}
