/* head.c - the header of a GGUF file that is not here, read by range requests.
 *
 * What arrives is put at the start of a file in memory of the size that the model has, whose rest takes no
 * memory and reads as zeros. It is opened as a local file is, so that plans and predictions are computed by
 * the same code. Shards are found by their names, so each is linked under its name in a private folder while
 * it is opened. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "advisor/hub/hub_internal.h"
#include "engine/gguf/gguf.h"

enum { HEADER_LEAST = 24, HEADER_FIRST = 1 << 20, HEADER_MOST = 256 << 20 };

struct hub_head {
    struct gguf *file;
    char folder[512]; /* "": none */
    int *fd;          /* [n] */
    char **name;      /* [n] links in `folder` */
    int n;
    int64_t read_bytes;
};

void hub_head_close(struct hub_head *x)
{
    if (!x) return;
    gguf_close(x->file);
    for (int i = 0; i < x->n; i++) {
        if (x->name[i]) (void)unlink(x->name[i]);
        if (x->fd[i] >= 0) close(x->fd[i]);
        free(x->name[i]);
    }
    if (*x->folder) (void)rmdir(x->folder);
    free(x->fd);
    free(x->name);
    free(x);
}

const struct gguf *hub_head_gguf(const struct hub_head *x)
{
    return x->file;
}

int64_t hub_head_read_bytes(const struct hub_head *x)
{
    return x->read_bytes;
}

/* Appends the bytes from header->len up to `end`. */
static enum err_code part_read(struct str *header, struct hub *h, const char *url, const char *what,
                               int64_t end, struct err *why)
{
    const int64_t from = (int64_t)header->len;
    int64_t first = 0, last, total;
    struct hub_ask a = { .method = "GET", .url = url, .what = what, .body_most = (size_t)(end - from) };
    snprintf(a.range, sizeof a.range, "bytes=%" PRId64 "-%" PRId64, from, end - 1);
    enum err_code rc = hub_send(h, &a, why);
    const char *range = hub_header(&a, HEADER_RANGE);
    if (!rc && *range && !hub_range_parse(range, &first, &last, &total)) first = -1;
    if (!rc && first != from)
        rc = err_set(why, ERR_FORMAT, "%s: the server cannot send a part of the file (it sends '%.60s')",
                     what, *range ? range : "all of it");
    if (!rc && (int64_t)a.body.len < end - from)
        rc = err_set(why, ERR_ABSENT, "%s: %zu of %" PRId64 " bytes of the header arrived", what, a.body.len,
                     end - from);
    if (!rc) str_append_n(header, str_text(&a.body), a.body.len);
    hub_ask_done(&a);
    return rc ? rc : header->failed ? err_set(why, ERR_NOMEM, "out of memory for a header") : ERR_OK;
}

/* Reads until the header is complete: 1 MiB at first, and twice as much each time. */
static enum err_code header_read(struct str *header, struct hub *h, const char *url, const struct hub_file *f,
                                 struct err *why)
{
    bool more = true;
    enum err_code rc = ERR_OK;
    if (f->size < HEADER_LEAST)
        return err_set(why, ERR_FORMAT, "%s: no GGUF file: it has %" PRId64 " bytes", f->path, f->size);
    for (int64_t end = HEADER_FIRST; more; end *= 2) {
        if ((int64_t)header->len >= HEADER_MOST)
            return err_set(why, ERR_FORMAT, "%s: its header is longer than %d MiB", f->path,
                           HEADER_MOST >> 20);
        rc = part_read(header, h, url, f->path, MIN(end, f->size), why);
        if (rc) return rc;
        rc = gguf_header_check(str_text(header), header->len, f->size, &more, why);
    }
    if (rc) err_prefix(why, "%s", f->path);
    return rc;
}

/* A file in memory of the model's size that begins with the header. */
static enum err_code header_put(struct hub_head *x, int i, const struct str *header, const struct hub_file *f,
                                struct err *why)
{
    struct str link = { 0 };
    char target[64];
    x->fd[i] = memfd_create("gguf header", MFD_CLOEXEC);
    if (x->fd[i] < 0 || ftruncate(x->fd[i], f->size))
        return err_set(why, err_of_errno(errno), "cannot make a file in memory for a header: %s",
                       strerror(errno));
    for (size_t at = 0; at < header->len;) {
        const ssize_t n = pwrite(x->fd[i], header->data + at, header->len - at, (off_t)at);
        if (n <= 0) return err_set(why, ERR_NOMEM, "cannot write a header to memory: %s", strerror(errno));
        at += (size_t)n;
    }
    str_printf(&link, "%s/%s", x->folder, path_file_name(f->path));
    x->name[i] = str_take(&link);
    snprintf(target, sizeof target, "/proc/self/fd/%d", x->fd[i]);
    if (!x->name[i]) return err_set(why, ERR_NOMEM, "out of memory");
    return symlink(target, x->name[i])
               ? err_set(why, err_of_errno(errno), "cannot link '%s': %s", x->name[i], strerror(errno))
               : ERR_OK;
}

static enum err_code head_new(struct hub_head **out, int n, struct err *why)
{
    struct hub_head *x = *out = calloc(1, sizeof *x);
    if (!x) return err_set(why, ERR_NOMEM, "out of memory");
    x->fd = malloc((size_t)n * sizeof *x->fd);
    x->name = calloc((size_t)n, sizeof *x->name);
    if (!x->fd || !x->name) return err_set(why, ERR_NOMEM, "out of memory");
    for (int i = 0; i < n; i++) x->fd[i] = -1;
    x->n = n;
    const char *temporary = getenv("TMPDIR");
    if (!temporary || !*temporary) temporary = "/tmp";
    snprintf(x->folder, sizeof x->folder, "%s/qdyno-head-XXXXXX", temporary);
    if (mkdtemp(x->folder)) return ERR_OK;
    *x->folder = '\0';
    return err_set(why, err_of_errno(errno), "cannot make a folder in '%s': %s", temporary, strerror(errno));
}

enum err_code hub_head_open(struct hub_head **out, struct hub *h, const struct hub_repo *r, const int *index,
                            int n, struct err *why)
{
    struct hub_head *x = NULL;
    enum err_code rc = head_new(&x, n, why);
    *out = NULL;
    for (int i = 0; i < n && !rc; i++) {
        const struct hub_file *f = &r->files[index[i]];
        struct str url = { 0 }, header = { 0 };
        hub_file_url(&url, h, r, f->path);
        rc = url.failed ? err_set(why, ERR_NOMEM, "out of memory")
                        : header_read(&header, h, str_text(&url), f, why);
        if (!rc) rc = header_put(x, i, &header, f, why);
        x->read_bytes += (int64_t)header.len;
        str_free(&url);
        str_free(&header);
    }
    if (!rc) rc = gguf_open_any_type(&x->file, x->name[0], why);
    if (!rc) {
        *out = x;
        return ERR_OK;
    }
    hub_head_close(x);
    return rc;
}
