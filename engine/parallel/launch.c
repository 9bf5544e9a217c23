/* The leader's side: starts mpirun with the ranks, exchanges messages with rank 0, and ends them.
 *
 * mpirun ends all ranks when one of them ends, so the leader sees a dead rank as the end of its socket. A
 * rank that hangs is found by the deadline: rank 0 sends a sign of life at least every few layers. */
#include "engine/parallel/parallel_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_MS = 60000, SILENCE_MS = 120000, END_MS = 3000, STEP_MS = 20, OUTPUT_MAX = 64 << 10 };

struct ranks {
    int count;
    pid_t mpirun; /* 0: not started, or collected */
    int listener, fd, output;
    int silence_ms;
    char folder[64], path[96]; /* of the socket; "" when it is removed */
    struct err failed;         /* why no rank is left; code ERR_OK: they run */
};

int ranks_count(const struct ranks *r)
{
    return r->count;
}

/* ---------------------------------------------------------------- the end */

static void sleep_ms(int ms)
{
    const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

/* Collect mpirun if it ends within `ms`. */
static bool wait_end(struct ranks *r, int ms)
{
    for (int waited = 0; r->mpirun; waited += STEP_MS) {
        const pid_t got = waitpid(r->mpirun, NULL, WNOHANG);
        if (got == r->mpirun || (got < 0 && errno != EINTR)) r->mpirun = 0;
        if (!r->mpirun || waited >= ms) break;
        sleep_ms(STEP_MS);
    }
    return !r->mpirun;
}

/* mpirun ends its ranks when it is asked to; ranks that it cannot reach any more end with it, because the
 * kernel kills them (rank_open). */
static void end_all(struct ranks *r)
{
    if (!r->mpirun) return;
    kill(r->mpirun, SIGTERM);
    if (wait_end(r, END_MS)) return;
    kill(-r->mpirun, SIGKILL);
    while (r->mpirun && waitpid(r->mpirun, NULL, 0) < 0 && errno == EINTR) continue;
    r->mpirun = 0;
}

static void remove_socket(struct ranks *r)
{
    if (r->path[0]) unlink(r->path);
    if (r->folder[0]) rmdir(r->folder);
    r->path[0] = r->folder[0] = '\0';
}

/* Is this line of mpirun's output about what happened? The others are frames and advice. */
static bool says_why(const char *line)
{
    static const char *const WORDS[] = { "mpirun noticed",   "exited on signal", "qdyno:", "error", "Error",
                                         "not enough slots", "refused",          "unable", "cannot" };
    for (size_t i = 0; i < COUNT_OF(WORDS); i++)
        if (strstr(line, WORDS[i])) return true;
    return false;
}

/* The first lines of mpirun's and the ranks' output that say what happened. */
static void output_reason(const struct ranks *r, struct str *out)
{
    char *text = calloc(1, OUTPUT_MAX + 1);
    const ssize_t n = text ? pread(r->output, text, OUTPUT_MAX, 0) : 0;
    char *rest = NULL;
    for (char *line = n > 0 ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
        if (!says_why(line) || out->len > 300) continue;
        str_printf(out, "%s%s", out->len ? " | " : "", line);
    }
    free(text);
}

/* No rank is left after this. Keeps the reason for later calls. */
static enum err_code fail(struct ranks *r, enum err_code code, const char *what, struct err *why)
{
    struct str said = { 0 };
    wait_end(r, END_MS); /* it writes its reason before it ends */
    end_all(r);
    output_reason(r, &said);
    const bool any = said.len > 0;
    err_set(&r->failed, code, "%s%s%.400s", what, any ? ": " : "", any ? str_text(&said) : "");
    str_free(&said);
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
    if (why) *why = r->failed;
    return code;
}

/* ---------------------------------------------------------------- messages */

/* Wait until the ranks say something. ERR_IO: they are gone, or silent for too long. */
static enum err_code wait_message(struct ranks *r, int ms, struct err *why)
{
    struct pollfd p = { .fd = r->fd, .events = POLLIN };
    const int64_t until = clock_ns() + (int64_t)ms * 1000000;
    if (r->failed.code) { /* no rank is left that could say something */
        if (why) *why = r->failed;
        return r->failed.code;
    }
    for (;;) {
        const int64_t left = (until - clock_ns()) / 1000000;
        const int n = poll(&p, 1, (int)MAX(left, (int64_t)0));
        if (n > 0) return ERR_OK;
        if (n < 0 && errno == EINTR) continue;
        char what[120];
        snprintf(what, sizeof what, "the ranks gave no sign of life for %d s and were ended", ms / 1000);
        if (r->mpirun) kill(-r->mpirun, SIGCONT);
        end_all(r);
        return fail(r, ERR_IO, what, why);
    }
}

static enum err_code gone(struct ranks *r, struct err *why)
{
    return fail(r, ERR_IO, "a rank ended before its work was done", why);
}

enum err_code ranks_send(struct ranks *r, enum rank_op op, const struct rank_bytes *payload, int count,
                         struct err *why)
{
    struct frame f = { .kind = FRAME_COMMAND, .what = op };
    for (int i = 0; i < count; i++) f.bytes += payload[i].n;
    if (r->failed.code) {
        if (why) *why = r->failed;
        return r->failed.code;
    }
    bool sent = frame_write(r->fd, &f, sizeof f);
    for (int i = 0; i < count && sent; i++) sent = frame_write(r->fd, payload[i].data, payload[i].n);
    return sent ? ERR_OK : gone(r, why);
}

static enum err_code read_frame(struct ranks *r, enum frame_kind wanted, int ms, struct frame *f,
                                struct err *why)
{
    do {
        const enum err_code rc = wait_message(r, ms, why);
        if (rc) return rc;
        if (!frame_read(r->fd, f, sizeof *f)) return gone(r, why);
    } while (f->kind == FRAME_ALIVE);
    return f->kind == (uint32_t)wanted ? ERR_OK : fail(r, ERR_INTERNAL, "the ranks sent something else", why);
}

/* Read the header of an answer; of an error, all of it. */
static enum err_code answer_begin(struct ranks *r, struct frame *f, struct err *why)
{
    char text[FRAME_TEXT_MAX + 1] = "";
    const enum err_code rc = read_frame(r, FRAME_ANSWER, r->silence_ms, f, why);
    if (rc || f->what == ERR_OK) return rc;
    if (f->bytes > FRAME_TEXT_MAX) return fail(r, ERR_INTERNAL, "the ranks sent something else", why);
    if (!frame_read(r->fd, text, (size_t)f->bytes)) return gone(r, why);
    return err_set(why, (enum err_code)f->what, "%s", text);
}

enum err_code ranks_receive_into(struct ranks *r, const struct rank_bytes *answer, int count, struct err *why)
{
    struct frame f;
    uint64_t wanted = 0;
    const enum err_code rc = answer_begin(r, &f, why);
    if (rc) return rc;
    for (int i = 0; i < count; i++) wanted += answer[i].n;
    if (f.bytes != wanted) return fail(r, ERR_INTERNAL, "the ranks sent something else", why);
    for (int i = 0; i < count; i++)
        if (!frame_read(r->fd, answer[i].data, answer[i].n)) return gone(r, why);
    return ERR_OK;
}

enum err_code ranks_receive(struct ranks *r, struct str *answer, struct err *why)
{
    struct frame f;
    const enum err_code rc = answer_begin(r, &f, why);
    if (rc) return rc;
    char *bytes = malloc((size_t)f.bytes + 1);
    if (!bytes) return fail(r, ERR_NOMEM, "out of memory for an answer of the ranks", why);
    const bool read = frame_read(r->fd, bytes, (size_t)f.bytes);
    if (read) str_append_n(answer, bytes, (size_t)f.bytes);
    free(bytes);
    if (!read) return gone(r, why);
    return answer->failed ? err_set(why, ERR_NOMEM, "out of memory for an answer of the ranks") : ERR_OK;
}

/* ---------------------------------------------------------------- the start */

/* A socket in a folder that only this user can enter. */
static enum err_code open_socket(struct ranks *r, struct err *why)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    snprintf(r->folder, sizeof r->folder, "/tmp/qdyno-ranks-%s", "XXXXXX"); /* TMPDIR may be too long */
    if (!mkdtemp(r->folder)) {
        r->folder[0] = '\0';
        return err_set(why, err_of_errno(errno), "cannot make a folder in /tmp: %s", strerror(errno));
    }
    snprintf(r->path, sizeof r->path, "%s/s", r->folder);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", r->path);
    r->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->listener >= 0 && !bind(r->listener, (const struct sockaddr *)(const void *)&at, sizeof at) &&
        !listen(r->listener, 1))
        return ERR_OK;
    return err_set(why, err_of_errno(errno), "cannot make the socket %s: %s", r->path, strerror(errno));
}

/* mpirun refuses to run as root, and to start more ranks than there are cores, unless it is told to. The
 * ranks bind themselves (placement.c). Without other machines, nothing must open a port. */
static enum err_code start_mpirun(struct ranks *r, const struct ranks_options *o, struct err *why)
{
    char count[16], *mpirun;
    const char *argv[32];
    int n = 0;
    enum err_code rc = mpirun_path(&mpirun, why);
    if (rc) return rc;
    snprintf(count, sizeof count, "%d", o->count);
    static const char *const ALWAYS[] = { "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to",
                                          "none" };
    for (size_t i = 0; i < COUNT_OF(ALWAYS); i++) argv[n++] = ALWAYS[i];
    if (o->hosts) {
        static const char *const EXPORTED[] = { "QDYNO_ISA", "QDYNO_MPI_MODULE" }; /* to other machines */
        argv[n++] = "--hostfile";
        argv[n++] = o->hosts;
        for (size_t i = 0; i < COUNT_OF(EXPORTED); i++) {
            if (!getenv(EXPORTED[i])) continue;
            argv[n++] = "-x";
            argv[n++] = EXPORTED[i];
        }
    } else {
        argv[n++] = "--mca";
        argv[n++] = "btl";
        argv[n++] = "self,vader";
    }
    const char *const LAST[] = { "-n", count, "/proc/self/exe", "rank", "--socket", r->path, NULL };
    char exe[4096];
    const ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (length < 0) rc = err_set(why, err_of_errno(errno), "/proc/self/exe: %s", strerror(errno));
    exe[MAX(length, (ssize_t)0)] = '\0';
    for (size_t i = 0; i < COUNT_OF(LAST); i++) argv[n++] = i == 2 ? exe : LAST[i];
    r->output = memfd_create("qdyno-ranks", MFD_CLOEXEC);
    if (!rc && r->output < 0) rc = err_set(why, err_of_errno(errno), "memfd_create: %s", strerror(errno));
    const struct process_spec spec = {
        .program = mpirun, .argv = (char *const *)argv, .output_fd = r->output, .channel_fd = -1
    };
    if (!rc) rc = process_spawn(&r->mpirun, &spec, why);
    free(mpirun);
    return rc;
}

/* Wait for rank 0's connection, or the end of mpirun. Only processes of this user are accepted. */
static enum err_code accept_rank(struct ranks *r, struct err *why)
{
    struct pollfd p = { .fd = r->listener, .events = POLLIN };
    struct ucred peer;
    socklen_t size = sizeof peer;
    struct frame f;
    for (int waited = 0; waited < START_MS; waited += STEP_MS) {
        if (poll(&p, 1, STEP_MS) > 0) {
            r->fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
            break;
        }
        if (wait_end(r, 0)) return fail(r, ERR_IO, "mpirun could not start the ranks", why);
    }
    if (r->fd < 0) return fail(r, ERR_IO, "the ranks did not start within a minute", why);
    if (getsockopt(r->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || peer.uid != getuid())
        return fail(r, ERR_IO, "a process of another user connected in place of rank 0", why);
    const enum err_code rc = read_frame(r, FRAME_HELLO, START_MS, &f, why);
    if (!rc && f.what != (uint32_t)r->count)
        return fail(r, ERR_IO, "mpirun started another number of ranks", why);
    return rc;
}

enum err_code ranks_start(struct ranks **out, const struct ranks_options *o, struct err *why)
{
    const char *silence = getenv("QDYNO_RANKS_TIMEOUT");
    int64_t seconds = SILENCE_MS / 1000;
    *out = NULL;
    if (o->count < 1 || o->count > RANKS_MAX)
        return err_set(why, ERR_USAGE, "%d ranks: expected 1 to %d", o->count, RANKS_MAX);
    if (silence && (!str_to_i64(silence, &seconds) || seconds < 1 || seconds > 86400))
        return err_set(why, ERR_USAGE, "QDYNO_RANKS_TIMEOUT=%s: expected 1 to 86400 seconds", silence);
    enum err_code rc = ranks_possible(why);
    if (rc) return rc;
    if (o->hosts && access(o->hosts, R_OK))
        return err_set(why, ERR_USAGE, "hosts file '%s': %s", o->hosts, strerror(errno));
    struct ranks *r = calloc(1, sizeof *r);
    if (!r) return err_set(why, ERR_NOMEM, "out of memory");
    *r = (struct ranks){ .count = o->count, .listener = -1, .fd = -1, .output = -1 };
    r->silence_ms = (int)(seconds * 1000);
    rc = open_socket(r, why);
    if (!rc) rc = start_mpirun(r, o, why);
    if (!rc) rc = accept_rank(r, why);
    if (r->listener >= 0) close(r->listener);
    r->listener = -1;
    remove_socket(r);
    if (rc) {
        ranks_stop(r);
        return rc;
    }
    *out = r;
    return ERR_OK;
}

void ranks_stop(struct ranks *r)
{
    if (!r) return;
    if (r->fd >= 0 && !r->failed.code) {
        ranks_send(r, RANK_OP_CLOSE, NULL, 0, NULL);
        if (r->fd >= 0) close(r->fd);
        wait_end(r, END_MS);
    } else if (r->fd >= 0) {
        close(r->fd);
    }
    end_all(r);
    if (r->listener >= 0) close(r->listener);
    if (r->output >= 0) close(r->output);
    remove_socket(r);
    free(r);
}
