/* Caches quantized copies, because an A/B test opens the same recipe repeatedly. The folder is kept below a
 * size limit by removing the least recently used copies; a process that has a removed copy open can still
 * read it.
 *
 * The file "sums/NAME.sha256" beside the copies holds the SHA-256 of the copy NAME. A copy runs only if it
 * has this hash. Its own hash is remembered like a model's (model_identity), so a large copy is read again
 * only after it changed. The time of a copy's last use is the modification time of the file of its sum,
 * because a new time stamp of the copy itself would look like a change.
 *
 * The file "lock" is never written. A process that makes a copy locks one byte of it, whose position follows
 * from the copy's name: so of two processes with the same recipe one quantizes, the other waits and finds the
 * result, and other recipes go on meanwhile. The kernel drops the lock of a process that dies. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "engine/quant/quant.h"

/* Raise this when the same recipe gives other bytes than before. */
#define QUANTIZER_VERSION   "2"
#define CACHE_LIMIT_DEFAULT (20LL << 30)

#define LOCK       "lock"
#define SUMS       "sums"
#define SUM_ENDING ".sha256"

enum {
    STALE_SECONDS = 24 * 3600, /* age of leftovers of killed writers, on file systems without locks */
    WAIT_NS = 50000000,        /* between two attempts to get the lock of a copy */
    WAITS_BEFORE_NOTE = 20,    /* a shorter wait is not worth a message */
};

struct cache_entry {
    char *name;
    int64_t bytes;
    struct timespec used;
};

struct cache_entries {
    struct cache_entry *list;
    size_t count, cap;
};

static int cache_entry_compare(const void *a, const void *b)
{
    const struct timespec *x = &((const struct cache_entry *)a)->used,
                          *y = &((const struct cache_entry *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* Append a file to the list. False: out of memory. A copy without a sum will not be used again, so it counts
 * as the least recently used. */
static bool cache_entries_add(struct cache_entries *e, int folder, const char *name, const struct stat *st)
{
    char sum[sizeof SUMS SUM_ENDING + NAME_MAX + 2];
    struct stat used = { 0 };
    snprintf(sum, sizeof sum, SUMS "/%s" SUM_ENDING, name);
    if (fstatat(folder, sum, &used, AT_SYMLINK_NOFOLLOW)) used.st_mtim = (struct timespec){ 0 };
    if (e->count == e->cap) {
        const size_t cap = e->cap ? 2 * e->cap : 32;
        struct cache_entry *more = realloc(e->list, cap * sizeof *more);
        if (!more) return false;
        e->list = more;
        e->cap = cap;
    }
    char *copy = strdup(name);
    if (!copy) return false;
    e->list[e->count++] = (struct cache_entry){ .name = copy, .bytes = st->st_size, .used = used.st_mtim };
    return true;
}

/* The byte of the lock file that belongs to a copy. Its name begins with a hash: 60 bits fit in an offset. */
static struct flock lock_of(const char *name)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%.15s", name);
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)strtoll(digits, NULL, 16), .l_len = 1
    };
}

/* Whether another process makes this copy now. lock: see copy_lock; -1: unknown, so a recent file may belong
 * to one. */
static bool copy_is_being_made(int lock, const char *name, const struct stat *st)
{
    struct flock l = lock_of(name);
    if (lock < 0 || fcntl(lock, F_OFD_GETLK, &l)) return time(NULL) - st->st_mtim.tv_sec <= STALE_SECONDS;
    return l.l_type != F_UNLCK; /* this process's own lock does not count: it has begun nothing yet */
}

/* Remove the least recently used copies until `need` more bytes fit below the limit. A failure is no error:
 * the cache then exceeds its limit, and a full disk is reported by the write. Also removes unfinished files
 * of killed writers. */
static void cache_make_room(const char *folder, const char *keep, int64_t need, int64_t limit, int lock)
{
    int64_t total = need;
    DIR *dir = opendir(folder);
    if (!dir) return;
    struct cache_entries e = { 0 };
    const struct dirent *d;
    while ((d = readdir(dir))) {
        struct stat st;
        if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) continue;
        if (!strcmp(d->d_name, keep) || !strcmp(d->d_name, LOCK)) continue;
        if (!str_ends(d->d_name, ".gguf")) {
            if (copy_is_being_made(lock, d->d_name, &st))
                total += st.st_size;
            else
                unlinkat(dirfd(dir), d->d_name, 0);
            continue;
        }
        total += st.st_size;
        if (!cache_entries_add(&e, dirfd(dir), d->d_name, &st)) break;
    }
    if (e.count) qsort(e.list, e.count, sizeof *e.list, cache_entry_compare);
    for (size_t i = 0; i < e.count; i++) {
        /* another process may be making room, too, and have removed it just now */
        if (total > limit && (!unlinkat(dirfd(dir), e.list[i].name, 0) || errno == ENOENT)) {
            char sum[sizeof SUMS SUM_ENDING + NAME_MAX + 2];
            snprintf(sum, sizeof sum, SUMS "/%s" SUM_ENDING, e.list[i].name);
            unlinkat(dirfd(dir), sum, 0);
            total -= e.list[i].bytes;
        }
        free(e.list[i].name);
    }
    free(e.list);
    closedir(dir);
}

static enum err_code cache_limit(int64_t *limit, struct err *why)
{
    const char *asked = getenv("QDYNO_CACHE_LIMIT");
    *limit = CACHE_LIMIT_DEFAULT;
    if (!asked || !asked[0] || str_to_bytes(asked, limit)) return ERR_OK;
    return err_set(why, ERR_USAGE, "QDYNO_CACHE_LIMIT='%.40s': expected a size such as 500M or 20G", asked);
}

/* Hash of the calibration that the config's method uses; "" if it uses none. */
static enum err_code calibration_hash(char hash[HASH_HEX], const struct config *c, struct err *why)
{
    const struct params p = config_params(c);
    const enum calibration_need need = method_needs(&p);
    const char *path = config_text(c, KNOB_CALIB);
    char *bundled = NULL;
    hash[0] = '\0';
    if (need == CALIBRATION_NONE || (need == CALIBRATION_OPTIONAL && !path[0])) return ERR_OK;
    struct file_map map = { 0 };
    enum err_code rc = path[0] ? ERR_OK : file_share(&bundled, CALIBRATION_TEXT, why);
    if (!rc) rc = file_map(&map, path[0] ? path : bundled, why);
    if (!rc) hash_bytes(map.data, map.size, hash);
    file_unmap(&map);
    free(bundled);
    return rc && path[0] ? err_prefix(why, "calib=%s", path) : rc;
}

/* File name of a cached copy: "<sha256 of source, recipe, calibration and version>.gguf". hash: SHA-256 of
 * the source. */
static enum err_code cache_name(char name[HASH_HEX + 8], const char *hash, const struct config *c,
                                struct err *why)
{
    char learned[HASH_HEX], recipe[3 * CONFIG_VALUE], key[HASH_HEX];
    enum err_code rc = calibration_hash(learned, c, why);
    if (rc) return rc;
    struct str text = { 0 };
    str_printf(&text, "%s\n%s\n%s\n%s", hash, config_recipe(c, recipe, sizeof recipe), learned,
               QUANTIZER_VERSION);
    const struct params p = config_params(c);
    if (p.method && p.method->identity) str_printf(&text, "\n%s", p.method->identity);
    if (text.failed) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!rc) hash_bytes(str_text(&text), text.len, key);
    if (!rc) snprintf(name, HASH_HEX + 8, "%s.gguf", key);
    str_free(&text);
    return rc;
}

/* Estimated size of the quantized file in bytes. */
static int64_t quantized_bytes(const struct gguf *source, const struct config *c)
{
    int64_t bytes = gguf_file_bytes(source);
    for (int64_t i = 0; i < gguf_tensor_count(source); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(source, i);
        const struct format *f = recipe_tensor_format(c, source, t, NULL);
        bytes += format_row_bytes(f, t->shape[0]) * t->shape[1] * t->shape[2] * t->shape[3] - t->bytes;
    }
    return bytes;
}

/* Lock the copy `name`, and wait while another process has locked it. *lock: a descriptor to close; -1: no
 * locks on this file system, so both quantize, and the last rename wins. ERR_CANCELLED; ERR_NOMEM. */
static enum err_code copy_lock(int *lock, const char *folder, const char *name,
                               const struct quantize_options *o, struct err *why)
{
    struct str path = { 0 };
    str_printf(&path, "%s/" LOCK, folder);
    const bool failed = path.failed;
    *lock = failed ? -1 : open(str_text(&path), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    str_free(&path);
    if (failed) return err_set(why, ERR_NOMEM, "out of memory");
    struct flock l = lock_of(name);
    for (int waits = 0; *lock >= 0 && fcntl(*lock, F_OFD_SETLK, &l); waits++) {
        const bool held = errno == EAGAIN || errno == EACCES;
        if (waits == WAITS_BEFORE_NOTE && o->log)
            log_write(o->log, LOG_WARN,
                      "another process is making the same quantized copy, '%s/%s': waiting for its end",
                      folder, name);
        const bool goes_on = !held || !o->waiting || o->waiting(o->ctx);
        if (held && goes_on) {
            clock_sleep_ns(WAIT_NS);
            continue;
        }
        close(*lock);
        *lock = -1;
        if (!goes_on)
            return err_set(why, ERR_CANCELLED,
                           "cancelled while another process was making the same quantized copy");
    }
    return ERR_OK;
}

/* A copy, the file of its sum, and what it is made of. */
struct copy {
    const char *path, *sum;
    const char *source_hash;
};

/* Whether the copy was made of this source and has the recorded sum. *why: what is wrong. ERR_ABSENT: there
 * is no copy. */
static enum err_code copy_check(const struct copy *c, struct err *why)
{
    struct gguf *g;
    char hash[HASH_HEX], *sum = NULL;
    if (access(c->path, F_OK)) return err_set(why, ERR_ABSENT, "there is none");
    if (file_read(&sum, NULL, c->sum, HASH_HEX, NULL))
        return err_set(why, ERR_FORMAT, "it has no checksum, as copies of older versions");
    enum err_code rc = gguf_open(&g, c->path, why);
    if (!rc) {
        rc = model_identity(g, hash, why);
        if (!rc && strcmp(hash, sum))
            rc = err_set(why, ERR_FORMAT, "its SHA-256 is %.16s..., expected %.16s...", hash, sum);
        if (!rc && !gguf_string_is(gguf_get_string(g, SOURCE_KEY), c->source_hash))
            rc = err_set(why, ERR_FORMAT, "it was made of another model");
        gguf_close(g);
    }
    free(sum);
    return rc;
}

/* Record the sum of a new copy. */
static enum err_code copy_write_sum(const struct copy *c, struct err *why)
{
    struct atomic_file f;
    char hash[HASH_HEX];
    enum err_code rc = hash_file(c->path, hash, why);
    if (!rc) rc = atomic_file_open(&f, c->sum, why);
    if (rc) return rc;
    fputs(hash, f.stream);
    return atomic_file_commit(&f, why);
}

/* Make the copy. If the process dies in between, the copy has no sum and is made again. */
static enum err_code copy_make(const struct copy *c, const struct gguf *source,
                               const struct quantize_options *o, struct err *why)
{
    unlink(c->sum);
    enum err_code rc = quantize_file(c->path, source, o, why);
    if (!rc) rc = copy_write_sum(c, why);
    return rc;
}

/* Make sure that there is an intact copy in `folder`. lock: see copy_lock. */
static enum err_code copy_obtain(const struct copy *c, const char *folder, int64_t limit, int lock,
                                 const struct gguf *source, const struct quantize_options *o, struct err *why)
{
    struct err bad = { 0 };
    enum err_code rc = copy_check(c, &bad);
    if (rc == ERR_NOMEM) return err_set(why, rc, "%s", bad.message);
    if (!rc) {
        utimensat(AT_FDCWD, c->sum, NULL, 0); /* if it fails, the copy is only removed sooner */
        return ERR_OK;
    }
    const bool damaged = rc != ERR_ABSENT;
    if (damaged && o->log)
        log_write(o->log, LOG_WARN, "the cached quantized copy '%s' is not used (%s): it is made again",
                  c->path, bad.message);
    if (damaged) unlink(c->path);
    cache_make_room(folder, strrchr(c->path, '/') + 1, quantized_bytes(source, o->config), limit, lock);
    rc = copy_make(c, source, o, why);
    if (!rc || !damaged || rc == ERR_CANCELLED) return rc;
    struct err cause = *why;
    return err_set(why, ERR_FORMAT,
                   "the cached quantized copy is damaged (%.150s) and cannot be made again: %s", bad.message,
                   cause.message);
}

enum err_code recipe_cached(char **path, const struct gguf *source, const struct quantize_options *o,
                            struct err *why)
{
    char *cache, name[HASH_HEX + 8], source_hash[HASH_HEX];
    int64_t limit;
    struct str folder = { 0 }, file = { 0 }, sum = { 0 };
    *path = NULL;
    enum err_code rc = cache_limit(&limit, why);
    if (!rc) rc = file_place(&cache, FILE_CACHE, why);
    if (rc) return rc;
    str_printf(&folder, "%s/models", cache);
    str_printf(&sum, "%s/models/" SUMS, cache);
    free(cache);
    if ((rc = model_identity(source, source_hash, why))) goto done;
    if ((rc = cache_name(name, source_hash, o->config, why))) goto done;
    if ((rc = file_make_dirs(str_text(&sum), why))) goto done;
    file_make_private(str_text(&folder));
    file_make_private(str_text(&sum));
    str_printf(&file, "%s/%s", str_text(&folder), name);
    str_printf(&sum, "/%s" SUM_ENDING, name);
    if (folder.failed || file.failed || sum.failed) {
        rc = err_set(why, ERR_NOMEM, "out of memory");
        goto done;
    }
    int lock;
    if ((rc = copy_lock(&lock, str_text(&folder), name, o, why))) goto done;
    const struct copy copy = { str_text(&file), str_text(&sum), source_hash };
    rc = copy_obtain(&copy, str_text(&folder), limit, lock, source, o, why);
    if (!rc) file_make_private(copy.path);
    if (!rc) file_make_private(copy.sum);
    if (lock >= 0) close(lock);
    if (!rc && !(*path = str_take(&file))) rc = err_set(why, ERR_NOMEM, "out of memory");
done:
    str_free(&folder);
    str_free(&file);
    str_free(&sum);
    return rc;
}
