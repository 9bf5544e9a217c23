#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

static int64_t time_ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum err_code state_of(int fd, struct file_state *out, struct stat *st, struct err *why)
{
    if (fstat(fd, st)) return err_set(why, ERR_IO, "cannot read the file's status: %s", strerror(errno));
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
    if (fd < 0) return err_set(why, ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    struct file_state opened;
    struct stat st;
    enum err_code rc = state_of(fd, &opened, &st, why);
    if (rc)
        err_prefix(why, "'%s'", path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(why, ERR_FORMAT, "'%s' is not a regular file", path);
    if (!rc && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED) {
            *out = (struct file_map){ p, (size_t)st.st_size, fd, opened };
            return ERR_OK;
        }
        rc = err_set(why, ERR_IO, "cannot map '%s': %s", path, strerror(errno));
    }
    close(fd);
    return rc;
}

void file_unmap(struct file_map *m)
{
    if (m->data) {
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
    if (rc || (now.size == m->opened.size && now.modified_ns == m->opened.modified_ns)) return rc;
    return err_set(
        why, ERR_FORMAT,
        "the file was changed while it was in use (%lld bytes when it was opened, %lld now): run again "
        "when nothing writes to it",
        (long long)m->opened.size, (long long)now.size);
}

enum err_code file_read(char **out, size_t *size, const char *path, size_t limit, struct err *why)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(why, ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    struct str text = { 0 };
    enum err_code rc = ERR_OK;
    for (;;) {
        char part[16384];
        ssize_t n = read(fd, part, sizeof part);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) rc = err_set(why, ERR_IO, "cannot read '%s': %s", path, strerror(errno));
        if (n <= 0) break;
        str_append_n(&text, part, (size_t)n);
        if (text.len > limit) {
            rc = err_set(why, ERR_FORMAT, "'%s' is larger than the %zu bytes expected here", path, limit);
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

enum err_code atomic_file_open(struct atomic_file *f, const char *path, struct err *why)
{
    *f = (struct atomic_file){ 0 };
    struct str temp = { 0 };
    str_printf(&temp, "%s.tmp.XXXXXX", path);
    f->path = strdup(path);
    f->temp = str_take(&temp);
    if (!f->path || !f->temp) {
        free(f->path);
        free(f->temp);
        *f = (struct atomic_file){ 0 };
        return err_set(why, ERR_NOMEM, "out of memory opening '%s'", path);
    }
    int fd = mkostemp(f->temp, O_CLOEXEC);
    if (fd >= 0) {
        mode_t mask = umask(0);
        umask(mask);
        fchmod(fd, 0666 & ~mask); /* mkostemp creates with mode 0600; use the usual mode */
        f->stream = fdopen(fd, "wb");
        if (f->stream) return ERR_OK;
        close(fd);
        unlink(f->temp);
    }
    enum err_code rc = err_set(why, ERR_IO, "cannot create a file next to '%s': %s", path, strerror(errno));
    free(f->path);
    free(f->temp);
    *f = (struct atomic_file){ 0 };
    return rc;
}

/* Sets path and temp of f. False: out of memory. */
static bool name_partial(struct atomic_file *f, const char *path)
{
    struct str temp = { 0 };
    str_printf(&temp, "%s.partial", path);
    *f = (struct atomic_file){ .path = strdup(path), .temp = str_take(&temp), .keep = true };
    return f->path && f->temp;
}

enum err_code atomic_file_resume(struct atomic_file *f, const char *path, struct err *why)
{
    if (!name_partial(f, path)) {
        atomic_file_abort(f);
        return err_set(why, ERR_NOMEM, "out of memory opening '%s'", path);
    }
    const int fd = open(f->temp, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        err_set(why, ERR_IO, "'%s' is being written by another process", f->temp);
    } else {
        f->stream = fd >= 0 ? fdopen(fd, "r+b") : NULL;
        if (f->stream) return ERR_OK;
        err_set(why, ERR_IO, "cannot create a file next to '%s': %s", path, strerror(errno));
    }
    if (fd >= 0) close(fd);
    atomic_file_abort(f);
    return ERR_IO;
}

enum err_code atomic_file_commit(struct atomic_file *f, struct err *why)
{
    bool bad = ferror(f->stream) || fflush(f->stream) || fsync(fileno(f->stream));
    int cause = errno;
    if (!bad && rename(f->temp, f->path)) {
        bad = true;
        cause = errno;
    }
    enum err_code code = cause == ENOSPC || cause == EDQUOT ? ERR_FIT : ERR_IO;
    enum err_code rc = bad ? err_set(why, code, "cannot write '%s': %s", f->path, strerror(cause)) : ERR_OK;
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
        if (mkdir(part, 0777) && (stat(part, &st) || !S_ISDIR(st.st_mode)))
            return err_set(why, ERR_IO, "cannot make folder '%s': %s", part, strerror(errno));
        if (!was) return ERR_OK;
        *p = was;
    }
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
    if (!rc && !(*out = str_take(&path))) rc = err_set(why, ERR_NOMEM, "out of memory");
    str_free(&path);
    return rc;
}

enum err_code file_share(char **out, const char *name, struct err *why)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
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
