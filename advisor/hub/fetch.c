/* fetch.c - transfers one file: in order into a file whose length says how far it came.
 *
 * The file always holds a beginning of the bytes and nothing else, so that a later attempt, also of another
 * program, goes on at its end whatever ended this one. Where a single connection is fast and much is left,
 * several ranges are requested at the same time: the first one is written as it arrives, and what arrives of
 * the later ones waits in memory until it is their turn. Together they wait for less than a second at the
 * rate that was measured, so no more than that is lost when the process is killed. SHA-256 is computed over
 * the bytes as they are written. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advisor/hub/hub_internal.h"

enum { LANES = 4, ATTEMPTS = 10, REDIRECTS = 8, PIECE_LEAST = 1 << 20, PIECE_MOST = 8 << 20 };
static const int64_t FIRST_BYTES = 32 << 20, RATE_LEAST = 4 << 20, REST_LEAST = 64 << 20;
static const double CONNECT_S = 30, STALL_S = 30, RATE_WINDOW_S = 3;

/* A connection and the range that it transfers. */
struct lane {
    struct fetch *f;
    bool used, open;       /* has a range; a request is in progress */
    int64_t from, size;    /* the range */
    int64_t got, written;  /* bytes of it that have arrived, and that are in the file */
    char *kept;            /* [got - written] bytes that wait for earlier ones; room for `size` */
    int64_t skip;          /* bytes before the range that the response begins with and nobody needs */
    bool checked, stopped; /* the response was compared with the range; ended by lane_receive */
    bool dropped;          /* another lane gets its bytes */
    struct http_request request;
    struct http_auth auth;
    struct http_wanted header[HEADER_COUNT];
    char *url, range[64];
    int redirects, refusals; /* since bytes arrived; those of the transfer when the request was sent */
    double retry_after_s;
};

struct fetch {
    const struct fetch_spec *s;
    int fd;
    int64_t done; /* bytes in the file */
    struct fetch_digest *digest;
    struct http_many *many;
    struct lane lane[LANES];
    char *url;                  /* where the last redirect led; the spec's at first */
    bool no_ranges, single;     /* the server sends whole files only; several connections did not help */
    double single_rate, rate;   /* bytes per second; NAN: not known yet */
    int64_t rate_done, rate_ns; /* when the present window began */
    int64_t several_from, several_ns; /* done and the time when several connections began; 0: not yet */
    int attempts;                     /* since the last progress; failures at the same time are one */
    int64_t progress_done, again_ns;  /* done at the last failure; no request before that time */
    int refusals;      /* ranges that were refused; from the second one on, none is asked for */
    bool restart;      /* begin at 0 now */
    struct err failed; /* what ends the transfer */
};

/* ---------------------------------------------------------------- file */

static enum err_code write_error(const struct fetch *f, int cause, struct err *why)
{
    const enum err_code code = err_of_errno(cause);
    return err_set(why, code, "cannot write '%s': %s%s", f->s->temp, strerror(cause),
                   code == ERR_FIT
                       ? "; what has arrived stays and is used by the next attempt: free some space first, "
                         "or delete the file"
                       : "");
}

/* Appends to the file. */
static enum err_code file_append(struct fetch *f, const char *data, size_t n, struct err *why)
{
    while (n) {
        const ssize_t wrote = pwrite(f->fd, data, n, f->done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return write_error(f, wrote ? errno : ENOSPC, why);
        fetch_digest_add(f->digest, data, (size_t)wrote);
        f->done += wrote;
        data += wrote;
        n -= (size_t)wrote;
    }
    return ERR_OK;
}

static enum err_code file_restart(struct fetch *f, struct err *why)
{
    fetch_digest_close(f->digest);
    f->digest = NULL;
    f->done = f->progress_done = f->rate_done = f->several_from = 0;
    f->attempts = 0;
    f->single = false;
    f->rate = NAN;
    f->rate_ns = clock_ns();
    if (ftruncate(f->fd, 0)) return write_error(f, errno, why);
    return fetch_digest_open(&f->digest, f->s, why);
}

int64_t fetch_beginning(int fd, int64_t most)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > most) return 0;
    const off_t hole = lseek(fd, 0, SEEK_HOLE);
    return hole < 0 ? st.st_size : MIN((int64_t)hole, (int64_t)st.st_size);
}

static void progress_tell(const struct fetch *f, int64_t done, bool checking)
{
    int open = 0;
    for (int i = 0; i < LANES; i++) open += f->lane[i].open;
    if (f->s->progress) f->s->progress(f->s->ctx, done, checking, f->rate, open);
}

/* Hashes the first bytes of the file, up to where they can be read. */
static enum err_code file_hash(struct fetch *f, int64_t have, struct err *why)
{
    enum { PART = 1 << 20 };
    char *part = have ? malloc(PART) : NULL;
    if (have && !part) return err_set(why, ERR_NOMEM, "out of memory");
    enum err_code rc = ERR_OK;
    while (!rc && f->done < have) {
        const ssize_t n = pread(f->fd, part, (size_t)MIN((int64_t)PART, have - f->done), f->done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break; /* unreadable from here on: transferred again */
        fetch_digest_add(f->digest, part, (size_t)n);
        f->done += n;
        progress_tell(f, f->done, true);
        if (!hub_goes_on(f->s->hub)) rc = err_set(why, ERR_CANCELLED, "cancelled");
    }
    free(part);
    return rc;
}

/* Goes on after what is there already. */
static enum err_code file_resume(struct fetch *f, struct err *why)
{
    int64_t have = fetch_beginning(f->fd, f->s->size);
    if (have && !fetch_digest_is_known(f->digest)) {
        hub_note(f->s->hub,
                 "%s: the server tells no hash, so what is here cannot be checked: transferring all",
                 f->s->what);
        have = 0;
    }
    enum err_code rc = file_hash(f, have, why);
    if (!rc && ftruncate(f->fd, f->done)) rc = write_error(f, errno, why);
    return rc;
}

/* ---------------------------------------------------------------- arriving bytes */

static void lane_release(struct lane *l)
{
    free(l->kept);
    free(l->url);
    hub_headers_done(l->header);
    *l = (struct lane){ .f = l->f };
}

/* Writes what waits for its turn. */
static enum err_code lanes_flush(struct fetch *f, struct err *why)
{
    for (int i = 0; i < LANES; i++) {
        struct lane *l = &f->lane[i];
        if (!l->used || l->dropped || l->got == l->written || l->from + l->written != f->done) continue;
        const enum err_code rc = file_append(f, l->kept, (size_t)(l->got - l->written), why);
        if (rc) return rc;
        l->written = l->got;
        i = -1; /* another one may follow it now */
    }
    return ERR_OK;
}

/* The server sends the whole file whatever is asked for. The lane whose turn it is takes all of it. Another
 * one ends, and those behind it, too: a range before theirs would never be requested. */
static bool lane_take_all(struct lane *l)
{
    struct fetch *f = l->f;
    f->no_ranges = true;
    const bool mine = l->from + l->got == f->done;
    for (int i = 0; i < LANES; i++) {
        struct lane *other = &f->lane[i];
        if (other == l || !other->used || (!mine && other->from < l->from)) continue;
        other->dropped = true;
        if (!other->open) lane_release(other);
    }
    if (!mine) return false;
    l->skip = f->done;
    l->size = f->s->size - l->from;
    return true;
}

/* Does the response have the bytes that were asked for? False: end it; f->failed says why, unless the lane is
 * only not needed. */
static bool lane_check(struct lane *l)
{
    struct fetch *f = l->f;
    int64_t first, last, total;
    const char *range = str_text(&l->header[HEADER_RANGE].value);
    const int64_t at = l->from + l->got;
    l->checked = true;
    if (!*range) return lane_take_all(l); /* HTTP 200 */
    if (!hub_range_parse(range, &first, &last, &total) || first != at)
        err_set(&f->failed, ERR_FORMAT, "%s: the server sends '%.60s' when asked for the bytes from %" PRId64,
                f->s->what, range, at);
    else if (total >= 0 && total != f->s->size)
        err_set(&f->failed, ERR_FORMAT,
                "%s: the server says that the file has %" PRId64 " bytes, expected %" PRId64, f->s->what,
                total, f->s->size);
    return !f->failed.code;
}

static bool lane_receive(void *ctx, const char *data, size_t n)
{
    struct lane *l = ctx;
    struct fetch *f = l->f;
    if (l->dropped || (!l->checked && !lane_check(l))) return !(l->stopped = true);
    l->redirects = 0;
    const size_t skipped = (size_t)MIN((int64_t)n, l->skip);
    l->skip -= (int64_t)skipped;
    data += skipped;
    n = (size_t)MIN((int64_t)(n - skipped), l->size - l->got);
    if (!n) return l->got < l->size || !(l->stopped = true); /* false: it goes on after what was asked for */
    if (l->from + l->got == f->done && l->got == l->written) {
        const int64_t before = f->done;
        const enum err_code rc = file_append(f, data, n, &f->failed);
        l->got += f->done - before;
        l->written = l->got;
        if (rc || (l->got == l->size && lanes_flush(f, &f->failed))) return !(l->stopped = true);
    } else {
        memcpy(l->kept + (l->got - l->written), data, n);
        l->got += (int64_t)n;
    }
    return true;
}

/* ---------------------------------------------------------------- requests that ended */

/* Begins again where redirects begin. */
static void fetch_fresh_link(struct fetch *f)
{
    free(f->url);
    f->url = strdup(f->s->url);
}

/* The server refuses a range. Another length than that of the list says why; otherwise the link may be an old
 * one, or the server may have no ranges. What is in the file stays as long as it may be right. */
static void fetch_refused(struct fetch *f, const struct lane *l, const struct err *why)
{
    int64_t size;
    const char *range = str_text(&l->header[HEADER_RANGE].value);
    if (hub_range_refused(range, &size) && size != f->s->size) {
        err_set(&f->failed, ERR_FORMAT,
                "%s: the file at the server changed: it has %" PRId64 " bytes now, expected %" PRId64,
                f->s->what, size, f->s->size);
        return;
    }
    if (l->refusals != f->refusals) return; /* sent before an earlier refusal arrived */
    f->refusals++;
    fetch_fresh_link(f);
    if (f->refusals <= 2) return;
    if (f->done && f->refusals == 3)
        f->restart = true;
    else
        f->failed = *why;
}

/* Plans the next attempt, or gives up. */
static void fetch_again(struct fetch *f, const struct lane *l, int status, enum err_code rc,
                        const struct err *why)
{
    if (f->done > f->progress_done) f->attempts = 0;
    f->progress_done = f->done;
    if (clock_ns() >= f->again_ns) f->attempts++;
    const double told_s = hub_told_wait(l->header, l->retry_after_s);
    const bool redirected = strcmp(l->url, f->s->url) != 0;
    const bool expired = rc == ERR_USAGE && status >= 400 && redirected; /* links of other servers expire */
    if (expired) fetch_fresh_link(f);
    if (rc == ERR_ABSENT && told_s > HUB_WAIT_MOST_S) {
        hub_wait_too_long(f->s->what, status, told_s, &f->failed);
        return;
    }
    if (f->attempts > ATTEMPTS || told_s > HUB_WAIT_MOST_S || (rc && rc != ERR_ABSENT && !expired)) {
        hub_explain(f->s->hub, f->s->what, l->url, status, l->header, why, &f->failed);
        if (!f->failed.code) err_set(&f->failed, ERR_ABSENT, "%s: the server ends too early", f->s->what);
        return;
    }
    double wait_s = hub_backoff_s(f->attempts);
    if (told_s > 0) {
        wait_s = told_s;
        hub_note(f->s->hub, "%s: the server asks to wait %.0f s (HTTP %d)", f->s->what, wait_s, status);
    }
    f->again_ns = MAX(f->again_ns, clock_ns() + (int64_t)(wait_s * 1e9));
}

static void fetch_redirect(struct fetch *f, struct lane *l)
{
    char *next = NULL;
    if (http_url_follow(&next, l->url, str_text(&l->header[HEADER_LOCATION].value), &f->failed)) return;
    if (++l->redirects > REDIRECTS)
        err_set(&f->failed, ERR_FORMAT, "%s: the server redirects more than %d times", f->s->what, REDIRECTS);
    free(f->url);
    f->url = next;
}

static void lane_ended(void *ctx, enum err_code rc, int status, const struct err *why)
{
    struct lane *l = ctx;
    struct fetch *f = l->f;
    l->open = false;
    if (f->failed.code) return;
    if (l->dropped || (l->stopped && l->got < l->size)) { /* not needed */
        lane_release(l);
        return;
    }
    if (l->got == l->size) {
        if (l->written == l->size) lane_release(l);
    } else if (!rc && status >= 300 && status < 400) {
        fetch_redirect(f, l);
    } else if (status == 416) {
        fetch_refused(f, l, why);
    } else {
        fetch_again(f, l, status, rc, why);
    }
}

/* ---------------------------------------------------------------- requests that begin */

/* Sends the request for what is missing of the lane's range. */
static enum err_code lane_open(struct lane *l, struct err *why)
{
    struct fetch *f = l->f;
    const char *token = hub_token_for(f->s->hub, f->url);
    free(l->url);
    if (!(l->url = strdup(f->url))) return err_set(why, ERR_NOMEM, "out of memory");
    hub_headers_done(l->header);
    hub_headers_init(l->header);
    l->refusals = f->refusals;
    l->checked = l->stopped = false;
    l->skip = 0;
    l->retry_after_s = NAN;
    snprintf(l->range, sizeof l->range, "Range: bytes=%" PRId64 "-%" PRId64, l->from + l->got,
             l->from + l->size - 1);
    l->auth = (struct http_auth){ .bearer = token,
                                  .insecure_credentials = http_insecure_credentials(),
                                  .timeout_s = CONNECT_S };
    l->request = (struct http_request){ .method = "GET",
                                        .url = l->url,
                                        .auth = &l->auth,
                                        .headers = { "Accept-Encoding: identity",
                                                     f->refusals < 2 ? l->range : NULL },
                                        .receive = lane_receive,
                                        .ctx = l,
                                        .retry_after_s = &l->retry_after_s,
                                        .wanted = l->header,
                                        .n_wanted = HEADER_COUNT,
                                        .redirects = true,
                                        .stall_s = STALL_S };
    const enum err_code rc = http_many_start(f->many, &l->request, lane_ended, why);
    l->open = !rc;
    return rc;
}

static int64_t or_usual(int64_t given, int64_t usual)
{
    return given > 0 ? given : usual;
}

/* Are several connections worth a try now? */
static bool wants_several(struct fetch *f, int64_t rest)
{
    if (f->no_ranges || f->single || !(f->rate >= (double)or_usual(f->s->rate_least, RATE_LEAST)))
        return false;
    if (!f->several_from) {
        if (rest < or_usual(f->s->rest_least, REST_LEAST)) return false;
        f->several_from = f->done;
        f->several_ns = clock_ns();
        f->single_rate = f->rate;
    }
    /* not faster after a while: a single connection loses less when it is killed, and asks less */
    f->single = (double)(clock_ns() - f->several_ns) * 1e-9 > 2 * RATE_WINDOW_S &&
                f->rate < 1.1 * f->single_rate;
    return !f->single;
}

/* Gives a free lane the next range. */
static enum err_code lane_assign(struct lane *l, int64_t from, bool several, struct err *why)
{
    struct fetch *f = l->f;
    const int64_t rest = f->s->size - from;
    int64_t size = rest;
    if (several)
        size = MIN(rest, MAX((int64_t)PIECE_LEAST, MIN((int64_t)PIECE_MOST, (int64_t)(f->rate / LANES))));
    else if (!f->no_ranges && !f->single && !f->several_from)
        size = MIN(rest, or_usual(f->s->first_bytes, FIRST_BYTES));
    *l = (struct lane){ .f = f, .used = true, .from = from, .size = size };
    if (several && !(l->kept = malloc((size_t)size)))
        return err_set(why, ERR_NOMEM, "out of memory for a transfer");
    return lane_open(l, why);
}

/* Keeps as many requests in progress as help. */
static enum err_code lanes_start(struct fetch *f, struct err *why)
{
    int64_t next = f->done;
    int used = 0;
    if (clock_ns() < f->again_ns) return ERR_OK;
    for (int i = 0; i < LANES; i++) {
        struct lane *l = &f->lane[i];
        if (!l->used || l->dropped) continue;
        used++;
        next = MAX(next, l->from + l->size);
        if (l->open || l->got == l->size) continue;
        const enum err_code rc = lane_open(l, why);
        if (rc) return rc;
    }
    const bool several = wants_several(f, f->s->size - next);
    for (int i = 0; i < LANES && next < f->s->size && used < (several ? LANES : 1); i++) {
        struct lane *l = &f->lane[i];
        if (l->used) continue;
        const enum err_code rc = lane_assign(l, next, several, why);
        if (rc) return rc;
        next = l->from + l->size;
        used++;
    }
    return ERR_OK;
}

/* ---------------------------------------------------------------- the whole transfer */

static void rate_update(struct fetch *f)
{
    const double seconds = (double)(clock_ns() - f->rate_ns) * 1e-9;
    const double now = (double)(f->done - f->rate_done) / fmax(seconds, 1e-3);
    if (isnan(f->rate) && f->done - f->rate_done >= or_usual(f->s->first_bytes, FIRST_BYTES)) f->rate = now;
    if (seconds < RATE_WINDOW_S && !(isnan(f->rate) && seconds > 1)) return;
    f->rate = now;
    f->rate_done = f->done;
    f->rate_ns = clock_ns();
}

static void lanes_release(struct fetch *f)
{
    http_many_close(f->many);
    f->many = NULL;
    for (int i = 0; i < LANES; i++) lane_release(&f->lane[i]);
}

/* Transfers all that is missing. */
static enum err_code transfer(struct fetch *f, struct err *why)
{
    enum err_code rc = http_many_open(&f->many, why);
    f->rate_ns = clock_ns();
    f->rate_done = f->progress_done = f->done;
    while (!rc && f->done < f->s->size) {
        rc = lanes_start(f, why);
        if (!rc) rc = http_many_run(f->many, 0.1, why);
        if (!rc && http_many_count(f->many) == 0 && clock_ns() < f->again_ns)
            rc = hub_wait(f->s->hub, 0.05, why);
        if (!rc) rc = lanes_flush(f, &f->failed);
        for (int i = 0; i < LANES; i++) /* complete ones that waited for earlier ones */
            if (f->lane[i].used && !f->lane[i].open && f->lane[i].written == f->lane[i].size)
                lane_release(&f->lane[i]);
        if (f->failed.code) {
            if (why) *why = f->failed;
            rc = f->failed.code;
        }
        if (!rc && !f->url) rc = err_set(why, ERR_NOMEM, "out of memory");
        rate_update(f);
        progress_tell(f, f->done, false);
        if (!rc && !hub_goes_on(f->s->hub)) rc = err_set(why, ERR_CANCELLED, "cancelled");
        if (!rc && f->restart) {
            f->restart = false;
            lanes_release(f);
            rc = file_restart(f, why);
            if (!rc) rc = http_many_open(&f->many, why);
        }
    }
    lanes_release(f);
    return rc;
}

static enum err_code fetch_open(struct fetch *f, struct err *why)
{
    for (int i = 0; i < LANES; i++) f->lane[i].f = f;
    f->url = strdup(f->s->url);
    if (!f->url) return err_set(why, ERR_NOMEM, "out of memory");
    f->fd = open(f->s->temp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (f->fd < 0)
        return err_set(why, err_of_errno(errno), "cannot write '%s': %s", f->s->temp, strerror(errno));
    enum err_code rc = fetch_digest_open(&f->digest, f->s, why);
    if (!rc) rc = file_resume(f, why);
    return rc;
}

enum err_code fetch_file(const struct fetch_spec *s, struct err *why)
{
    struct fetch f = { .s = s, .fd = -1, .rate = NAN };
    struct stat st;
    enum err_code rc = fetch_open(&f, why);
    const int64_t found = f.done;
    if (!rc) rc = transfer(&f, why);
    bool wrong = !rc && fetch_digest_check(f.digest, why);
    if (wrong && found) {
        hub_note(s->hub, "%s: what an earlier attempt left was damaged: transferring it again", s->what);
        rc = file_restart(&f, why);
        if (!rc) rc = transfer(&f, why);
        wrong = !rc && fetch_digest_check(f.digest, why);
    }
    if (wrong) rc = ERR_FORMAT;
    if (wrong) (void)!ftruncate(f.fd, f.done = 0);
    if (!rc && fsync(f.fd)) rc = write_error(&f, errno, why);
    if (rc && f.fd >= 0 && !fstat(f.fd, &st) && !st.st_size) unlink(s->temp);
    if (f.fd >= 0) close(f.fd);
    fetch_digest_close(f.digest);
    free(f.url);
    return rc;
}

enum err_code fetch_check(const struct fetch_spec *s, const char *path, struct err *why)
{
    struct fetch f = { .s = s, .rate = NAN };
    f.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f.fd < 0) return err_set(why, err_of_errno(errno), "cannot read '%s': %s", path, strerror(errno));
    enum err_code rc = fetch_digest_open(&f.digest, s, why);
    if (!rc) rc = file_hash(&f, s->size, why);
    if (!rc) rc = fetch_digest_check(f.digest, why);
    fetch_digest_close(f.digest);
    close(f.fd);
    return rc;
}
