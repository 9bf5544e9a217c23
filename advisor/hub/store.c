/* store.c - where the files of a model go: the layouts of the stores, locks, and making a file visible.
 *
 * A file is transferred beside its place, under a lock that other programs respect, and renamed when it is
 * complete and on the disk. The small file that makes a model known (the hub's ref, Ollama's manifest) is
 * written last. */
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advisor/hub/hub_internal.h"

/* ---------------------------------------------------------------- items */

/* printf to a new string; NULL: out of memory. */
__attribute__((format(printf, 1, 2))) static char *text_of(const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;
    va_start(ap, fmt);
    const int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : text;
}

static enum err_code items_new(struct hub_pull *p, int n, struct err *why)
{
    p->items = calloc((size_t)MAX(n, 1), sizeof *p->items);
    p->n = p->items ? n : 0;
    return p->items ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

static void item_set(struct pull_item *i, const struct hub_file *f)
{
    i->size = f->size;
    memcpy(i->sha256, f->sha256, sizeof i->sha256);
    memcpy(i->git_sha1, f->oid, sizeof i->git_sha1);
    i->name = strdup(path_file_name(f->path));
}

static enum err_code item_check(const struct pull_item *i, struct err *why)
{
    return i->name && i->url && i->blob && i->temp && i->lock ? ERR_OK
                                                              : err_set(why, ERR_NOMEM, "out of memory");
}

/* ---------------------------------------------------------------- Hugging Face */

/* Asks for the file's ETag, which names its blob, and so whether the file may be fetched at all. */
static enum err_code etag_ask(char etag[HUB_ETAG], struct hub_pull *p, const struct hub_repo *r,
                              const struct hub_file *f, const char *url, struct err *why)
{
    struct hub_ask a = { .method = "HEAD", .url = url, .what = r->repo, .stop_at_redirect_to_other = true };
    int64_t size = f->size;
    enum err_code rc = hub_send(p->hub, &a, why);
    const char *linked = rc ? "" : hub_header(&a, HEADER_LINKED_ETAG);
    if (!rc && !hub_etag_parse(*linked ? linked : hub_header(&a, HEADER_ETAG), etag))
        rc = err_set(why, ERR_FORMAT, "%s: the server gives no usable ETag for '%s'", r->repo, f->path);
    if (!rc && *hub_header(&a, HEADER_LINKED_SIZE))
        (void)str_to_i64(hub_header(&a, HEADER_LINKED_SIZE), &size);
    if (!rc && size != f->size)
        rc = err_set(why, ERR_FORMAT, "%s: '%s' has %lld bytes by the list of files and %lld by its header",
                     r->repo, f->path, (long long)f->size, (long long)size);
    if (!rc && *f->sha256 && hub_is_hex(etag, HASH_HEX - 1) && strcmp(etag, f->sha256) != 0)
        rc = err_set(why, ERR_FORMAT,
                     "%s: '%s' has the SHA-256 %.12s... by the list of files and %.12s... by its ETag",
                     r->repo, f->path, f->sha256, etag);
    hub_ask_done(&a);
    return rc;
}

static enum err_code hub_item(struct hub_pull *p, struct pull_item *i, const struct hub_repo *r,
                              const struct hub_file *f, const char *folder, struct err *why)
{
    char etag[HUB_ETAG];
    struct str url = { 0 }, up = { 0 };
    hub_file_url(&url, p->hub, r, f->path);
    item_set(i, f);
    i->url = str_take(&url);
    if (!i->url) return err_set(why, ERR_NOMEM, "out of memory");
    const enum err_code rc = etag_ask(etag, p, r, f, i->url, why);
    if (rc) return rc;
    if (!*i->sha256 && hub_is_hex(etag, HASH_HEX - 1)) memcpy(i->sha256, etag, HASH_HEX);
    i->blob = text_of("%s/%s/blobs/%s", p->folder, folder, etag);
    i->temp = text_of("%s/%s/blobs/%s.incomplete", p->folder, folder,
                      etag); /* as the hub's library until 2026 */
    i->lock = text_of("%s/.locks/%s/%s.lock", p->folder, folder, etag);
    i->link = text_of("%s/%s/snapshots/%s/%s", p->folder, folder, r->commit, f->path);
    for (const char *c = f->path; *c; c++) str_append(&up, *c == '/' ? "../" : "");
    i->link_to = text_of("../../%sblobs/%s", str_text(&up), etag);
    str_free(&up);
    return i->link && i->link_to ? item_check(i, why) : err_set(why, ERR_NOMEM, "out of memory");
}

enum err_code pull_of_hub(struct hub_pull *p, const struct hub_repo *r, const int *index, int n,
                          struct err *why)
{
    const size_t owner = strcspn(r->asked, "/");
    char folder[300];
    snprintf(folder, sizeof folder, "models--%.*s--%s", (int)owner, r->asked, r->asked + owner + 1);
    enum err_code rc = items_new(p, n, why);
    for (int i = 0; i < n && !rc; i++) rc = hub_item(p, &p->items[i], r, &r->files[index[i]], folder, why);
    if (rc || !strcmp(r->commit, r->revision)) return rc;
    if (!hub_path_is_safe(r->revision)) return err_set(why, ERR_USAGE, "'%s' is no branch", r->revision);
    p->mark = text_of("%s/%s/refs/%s", p->folder, folder, r->revision);
    p->mark_text = strdup(r->commit);
    p->mark_temp = text_of("%s/%s/.qdyno-ref.XXXXXX", p->folder, folder);
    return p->mark && p->mark_text && p->mark_temp ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

/* ---------------------------------------------------------------- ModelScope */

enum err_code pull_of_modelscope(struct hub_pull *p, const struct hub_repo *r, const int *index, int n,
                                 struct err *why)
{
    struct str repo = { 0 };
    for (const char *c = r->repo; *c; c++) *c == '.' ? str_append(&repo, "___") : str_append_n(&repo, c, 1);
    enum err_code rc = items_new(p, n, why);
    for (int k = 0; k < n && !rc; k++) {
        const struct hub_file *f = &r->files[index[k]];
        struct pull_item *i = &p->items[k];
        struct str url = { 0 };
        hub_file_url(&url, p->hub, r, f->path);
        item_set(i, f);
        i->url = str_take(&url);
        i->blob = text_of("%s/models/%s/%s", p->folder, str_text(&repo), f->path);
        /* not in ModelScope's folder for unfinished files: its library knows no lock of ours */
        i->temp = text_of("%s.qdyno-incomplete", i->blob ? i->blob : "");
        i->lock = text_of("%s.qdyno-lock", i->blob ? i->blob : "");
        rc = item_check(i, why);
    }
    str_free(&repo);
    return rc;
}

/* ---------------------------------------------------------------- Ollama */

static const char MANIFEST_TYPE[] = "application/vnd.docker.distribution.manifest.v2+json";

/* Is the folder blobs/ a link to, or the mount point of, another disk? */
static bool blobs_are_elsewhere(const char *folder)
{
    struct stat a, b;
    char *blobs = text_of("%s/blobs", folder), *own = text_of("%s/.qdyno", folder);
    const bool known = blobs && own && !stat(blobs, &a) && (!stat(own, &b) || !stat(folder, &b));
    free(blobs);
    free(own);
    return known && a.st_dev != b.st_dev;
}

static enum err_code ollama_item(struct hub_pull *p, int k, const struct hub_file *f, const char *base,
                                 struct err *why)
{
    static const char MODEL[] = "application/vnd.ollama.image.model";
    struct pull_item *i = &p->items[k];
    const char *word = strrchr(f->path, '.');
    item_set(i, f);
    free(i->name);
    i->name = text_of("%s (%s)", p->name, word ? word + 1 : f->path);
    if (!strcmp(f->path, MODEL) && p->main < 0) p->main = k;
    i->url = text_of("%s/blobs/sha256:%s", base, f->sha256);
    i->blob = text_of("%s/blobs/sha256-%s", p->folder, f->sha256);
    /* Ollama removes what it does not know in blobs/ when it starts; but a file cannot be renamed from one
     * disk to another */
    i->temp = blobs_are_elsewhere(p->folder)
                  ? text_of("%s/blobs/sha256-%s.qdyno-incomplete", p->folder, f->sha256)
                  : text_of("%s/.qdyno/%s.incomplete", p->folder, f->sha256);
    i->lock = text_of("%s/.qdyno/%s.lock", p->folder, f->sha256);
    return item_check(i, why);
}

enum err_code pull_of_ollama(struct hub_pull *p, const struct model_name *name, struct err *why)
{
    const size_t host = strcspn(name->repo, "/");
    const char *tag = *name->tag ? name->tag : "latest";
    struct hub_repo r = { .store = STORE_OLLAMA };
    struct str base = { 0 }, url = { 0 };
    if (!hub_path_is_safe(name->repo) || !name->repo[host] || !hub_path_is_safe(tag) || strchr(tag, '/'))
        return err_set(why, ERR_USAGE, "'%s:%s' is no name of Ollama", name->repo, tag);
    str_printf(&base, "http://%s", name->repo);
    const bool plain = http_url_is_loopback(str_text(&base));
    str_clear(&base);
    str_printf(&base, "%s://%.*s/v2/%s", plain ? "http" : "https", (int)host, name->repo,
               name->repo + host + 1);
    str_printf(&url, "%s/manifests/%s", str_text(&base), tag);
    struct hub_ask a = { .method = "GET",
                         .url = str_text(&url),
                         .what = p->name,
                         .accept = MANIFEST_TYPE,
                         .total_s = 600,
                         .body_most = 1 << 20 };
    enum err_code rc = hub_send(p->hub, &a, why);
    if (!rc) rc = hub_manifest_parse(&r, str_text(&a.body), a.body.len, why);
    if (!rc) rc = items_new(p, r.n, why);
    p->main = -1;
    for (int k = 0; k < r.n && !rc; k++) rc = ollama_item(p, k, &r.files[k], str_text(&base), why);
    if (!rc && p->main < 0)
        rc = err_set(why, ERR_FORMAT, "%s has no model layer that is a GGUF file: qdyno cannot use it",
                     p->name);
    p->mark = text_of("%s/manifests/%s/%s", p->folder, name->repo, tag);
    p->mark_text = a.body.failed ? NULL : strdup(str_text(&a.body));
    p->mark_temp = text_of("%s/.qdyno/manifest.XXXXXX", p->folder);
    if (!rc && (!p->mark || !p->mark_text || !p->mark_temp)) rc = err_set(why, ERR_NOMEM, "out of memory");
    hub_ask_done(&a);
    hub_repo_done(&r);
    str_free(&base);
    str_free(&url);
    return rc;
}

/* ---------------------------------------------------------------- what is here */

const char *pull_item_path(const struct pull_item *i)
{
    return i->link ? i->link : i->blob;
}

static bool is_file_of(const char *path, int64_t size)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode) && st.st_size == size;
}

bool pull_item_is_here(const struct pull_item *i)
{
    return is_file_of(i->blob, i->size) || (i->link && is_file_of(i->link, i->size));
}

bool pull_item_is_named_by_hash(const struct pull_item *i)
{
    const char *name = path_file_name(i->blob);
    return (*i->sha256 && strstr(name, i->sha256)) || (*i->git_sha1 && strstr(name, i->git_sha1)) || i->link;
}

/* fetch_beginning of a path; 0: it is no regular file. */
static int64_t beginning_of(const char *path, int64_t most)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return 0;
    const int64_t bytes = fetch_beginning(fd, most);
    close(fd);
    return bytes;
}

/* The unfinished file of the hub's library since 2026, ETAG.XXXXXXXX.incomplete, which has most of the bytes.
 * The caller frees it; NULL: none. */
static char *unfinished_find(const struct pull_item *i, int64_t *bytes)
{
    const char *etag = path_file_name(i->blob);
    const size_t n = strlen(etag);
    char *best = NULL;
    *bytes = 0;
    char *folder = text_of("%.*s", (int)(etag - i->blob), i->blob);
    DIR *d = folder ? opendir(folder) : NULL;
    for (const struct dirent *e; d && (e = readdir(d));) {
        const char *tail = e->d_name + n;
        if (strncmp(e->d_name, etag, n) != 0 || *tail != '.' || strcspn(tail + 1, ".") != 8 ||
            strcmp(tail + 9, ".incomplete") != 0)
            continue;
        char *path = text_of("%s%s", folder, e->d_name);
        const int64_t have = path ? beginning_of(path, i->size) : 0;
        if (have > *bytes) {
            *bytes = have;
            free(best);
            best = path;
        } else {
            free(path);
        }
    }
    if (d) closedir(d);
    free(folder);
    return best;
}

int64_t pull_item_partial(const struct pull_item *i)
{
    int64_t theirs = 0;
    if (i->link) free(unfinished_find(i, &theirs));
    return MAX(beginning_of(i->temp, i->size), theirs);
}

void pull_adopt(const struct pull_item *i)
{
    int64_t theirs;
    char *path = i->link ? unfinished_find(i, &theirs) : NULL;
    if (path && beginning_of(i->temp, i->size) < theirs) (void)rename(path, i->temp);
    free(path);
}

/* ---------------------------------------------------------------- locks */

enum err_code pull_make_parent(const char *path, struct err *why)
{
    char *folder = text_of("%.*s", (int)(path_file_name(path) - path), path);
    if (!folder) return err_set(why, ERR_NOMEM, "out of memory");
    const enum err_code rc = file_make_dirs(folder, why);
    free(folder);
    return rc;
}

/* Some programs delete the lock's file when they are done: what was locked may not be what the next one
 * opens. */
static bool is_same_file(int fd, const char *path)
{
    struct stat a, b;
    return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

enum err_code pull_lock(int *fd, bool *alone, const struct hub_pull *p, const struct pull_item *i,
                        struct err *why)
{
    bool told = false;
    enum err_code rc = pull_make_parent(i->lock, why);
    *fd = -1;
    *alone = true;
    while (!rc) {
        if (*fd < 0) *fd = open(i->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
        if (*fd < 0)
            return err_set(why, err_of_errno(errno), "cannot open the lock '%s': %s", i->lock,
                           strerror(errno));
        const bool locked = !flock(*fd, LOCK_EX | LOCK_NB);
        if (locked && is_same_file(*fd, i->lock)) return ERR_OK;
        if (!locked && errno != EWOULDBLOCK && errno != EINTR) { /* a file system without locks */
            *alone = false;
            return ERR_OK;
        }
        if (locked || !is_same_file(*fd, i->lock)) {
            close(*fd);
            *fd = -1;
            continue;
        }
        if (!told) hub_note(p->hub, "%s: another program is fetching it: waiting for that", i->name);
        told = true;
        rc = hub_wait(p->hub, 0.1, why);
    }
    pull_unlock(*fd);
    *fd = -1;
    return rc;
}

void pull_unlock(int fd)
{
    if (fd >= 0) close(fd); /* the file stays: who waits for it has it open */
}

enum err_code pull_temp_own(char **out, const struct pull_item *i, struct err *why)
{
    enum { TRIES = 100 };
    const char *ending = strrchr(i->temp, '.');
    *out = NULL;
    for (int n = 0; n < TRIES; n++) {
        uint32_t number;
        if (getrandom(&number, sizeof number, 0) != sizeof number) number = (uint32_t)getpid() + (uint32_t)n;
        char *path = text_of("%.*s.%08x%s", (int)(ending - i->temp), i->temp, number, ending);
        if (!path) return err_set(why, ERR_NOMEM, "out of memory");
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            close(fd);
            *out = path;
            return ERR_OK;
        }
        const int cause = errno;
        free(path);
        if (cause != EEXIST)
            return err_set(why, err_of_errno(cause), "cannot create a file beside '%s': %s", i->temp,
                           strerror(cause));
    }
    return err_set(why, ERR_IO, "cannot create a file beside '%s': all %d names that were tried exist",
                   i->temp, TRIES);
}

/* ---------------------------------------------------------------- making visible */

/* After a rename, so that the name survives a power failure, too. */
static void folder_sync(const char *path)
{
    char *folder = text_of("%.*s", (int)(path_file_name(path) - path), path);
    const int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
}

static enum err_code move(const char *from, const char *to, struct err *why)
{
    const enum err_code rc = pull_make_parent(to, why);
    if (rc) return rc;
    if (rename(from, to))
        return err_set(why, err_of_errno(errno), "cannot rename '%s' to '%s': %s", from, to, strerror(errno));
    folder_sync(to);
    return ERR_OK;
}

/* A new file or link that becomes `path` when it is renamed; NULL: out of memory. */
static char *temp_beside(const char *path)
{
    return text_of("%.*s.qdyno-%d-%lld", (int)(path_file_name(path) - path), path, (int)getpid(),
                   (long long)clock_ns());
}

/* Copies all bytes. False: errno. */
static bool copy_bytes(int from, int to)
{
    enum { PART = 1 << 20 };
    char *part = malloc(PART);
    ssize_t n = part ? 1 : -1;
    while (n > 0 && (n = read(from, part, PART)) > 0)
        for (ssize_t at = 0, wrote; at < n; at += wrote)
            if ((wrote = write(to, part + at, (size_t)(n - at))) < 0) {
                n = -1;
                break;
            }
    free(part);
    return n == 0;
}

static enum err_code copy(const char *from, const char *to, struct err *why)
{
    char *temp = temp_beside(to);
    if (!temp) return err_set(why, ERR_NOMEM, "out of memory");
    const int in = open(from, O_RDONLY | O_CLOEXEC);
    const int out = in < 0 ? -1 : open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const bool done = out >= 0 && copy_bytes(in, out) && !fsync(out) && !rename(temp, to);
    const int cause = errno;
    if (out >= 0 && !done) unlink(temp);
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    free(temp);
    if (!done)
        return err_set(why, err_of_errno(cause), "cannot copy '%s' to '%s': %s", from, to, strerror(cause));
    folder_sync(to);
    return ERR_OK;
}

/* Makes the link, also in the place of another file or link. *none: this file system has no links. */
static enum err_code link_make(const struct pull_item *i, bool *none, struct err *why)
{
    *none = hub_switch_is_on("HF_HUB_DISABLE_SYMLINKS");
    if (*none) return ERR_OK;
    char *temp = temp_beside(i->link);
    if (!temp) return err_set(why, ERR_NOMEM, "out of memory");
    const bool made = !symlink(i->link_to, temp);
    const bool done = made && !rename(temp, i->link);
    const int cause = errno;
    if (made && !done) unlink(temp);
    free(temp);
    *none = !made && (cause == EPERM || cause == ENOSYS || cause == EOPNOTSUPP);
    if (!done && !*none)
        return err_set(why, err_of_errno(cause), "cannot make the link '%s': %s", i->link, strerror(cause));
    if (done) folder_sync(i->link);
    return ERR_OK;
}

enum err_code pull_link(const struct pull_item *i, bool fresh, struct err *why)
{
    struct stat st;
    bool none = false;
    if (!i->link || is_file_of(i->link, i->size)) return ERR_OK;
    enum err_code rc = pull_make_parent(i->link, why);
    if (!rc && !lstat(i->link, &st) && S_ISDIR(st.st_mode))
        rc = err_set(why, ERR_IO, "'%s' is a folder, expected a file or nothing: remove it", i->link);
    if (!rc) rc = link_make(i, &none, why);
    if (rc || !none) return rc;
    return fresh ? move(i->blob, i->link, why) : copy(i->blob, i->link, why);
}

enum err_code pull_publish(const struct pull_item *i, struct err *why)
{
    return move(i->temp, i->blob, why);
}

enum err_code pull_mark_write(const struct hub_pull *p, struct err *why)
{
    struct stat st;
    if (!p->mark) return ERR_OK;
    enum err_code rc = pull_make_parent(p->mark, why);
    if (!rc) rc = pull_make_parent(p->mark_temp, why);
    if (rc) return rc;
    if (!lstat(p->mark, &st) && !S_ISREG(st.st_mode))
        return err_set(why, ERR_IO, "'%s' is not a regular file: remove it", p->mark);
    const int fd = mkostemp(p->mark_temp, O_CLOEXEC);
    const size_t n = strlen(p->mark_text);
    const bool done = fd >= 0 && !fchmod(fd, 0644) && write(fd, p->mark_text, n) == (ssize_t)n &&
                      !fsync(fd) && !rename(p->mark_temp, p->mark);
    const int cause = errno;
    if (fd >= 0) close(fd);
    if (fd >= 0 && !done) unlink(p->mark_temp);
    if (!done) return err_set(why, err_of_errno(cause), "cannot write '%s': %s", p->mark, strerror(cause));
    folder_sync(p->mark);
    return ERR_OK;
}
