/* advisor/run/arm_worker.c - an arm in a child process: `PROGRAM worker --fd 3`, JSON lines over a
 * socketpair.
 *
 * The child may crash, hang, be stopped, be killed for memory or send garbage at any time. Each of these ends
 * in an error that quotes the child's last output, never in a hang or in the end of this process. Its stdout
 * and stderr go to a pipe, which is drained while waiting, because a full pipe would stop the child. So
 * nothing that it prints can damage the screen or a JSON document. */
#include "advisor/run/arm_kind.h"
#include "advisor/run/run.h"
#include "advisor/run/said.h"
#include "advisor/run/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    LINE_LIMIT = 64 << 20, /* bytes; an answer holds at most a number per token, far less */
    OUTPUT_MOST = 4096,    /* bytes of the child's output that are kept */
    CLOSE_MS = 2000,       /* from "close" to SIGKILL */
    CANCEL_MS = 5000,      /* from "cancel" to SIGKILL */
    KILLED_MS = 60000,     /* from SIGKILL to its end, for which it needs a processor: 10 s can be too few */
    STATUS_NO_MEMORY = 6,  /* exit status of a command that lacks memory */
};

struct worker {
    int fd;      /* -1: closed */
    pid_t pid;   /* 0: reaped */
    int status;  /* of waitpid, once pid is 0 */
    bool killed; /* by this process */
    int64_t next_id;
    struct str in; /* received bytes of an incomplete line */
    struct said said;
    struct watchdog watchdog;
    const struct log *log;
};

/* ---------------------------------------------------------------- the process */

static void fd_close(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static enum err_code spawn_child(struct worker *w, const char *program, int child_fd, int child_err,
                                 struct err *why)
{
    char fd_text[16];
    snprintf(fd_text, sizeof(fd_text), "%d", PROCESS_CHANNEL_FD);
    char *argv[] = { (char *)program, "worker", "--fd", fd_text, NULL };
    const struct process_spec start = {
        .program = program, .argv = argv, .output_fd = child_err, .channel_fd = child_fd
    };
    return process_spawn(&w->pid, &start, why) ? err_prefix(why, "worker") : ERR_OK;
}

/* Raises the child's OOM score: when memory runs out, the kernel kills the arm first. Errors are ignored. */
static void prefer_as_oom_victim(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t ignored = write(fd, "500", 3);
    (void)ignored;
    close(fd);
}

static enum err_code worker_start(struct worker *w, const char *program, struct err *why)
{
    int pair[2] = { -1, -1 }, output = -1;
    enum err_code rc = said_open(&w->said, OUTPUT_MOST, &output, why);
    if (!rc && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        rc = err_set(why, err_of_errno(errno), "cannot make a channel to a worker: %s", strerror(errno));
    if (!rc) {
        fcntl(pair[0], F_SETFL, O_NONBLOCK);
        rc = spawn_child(w, program, pair[1], output, why);
    }
    fd_close(&pair[1]);
    fd_close(&output);
    w->fd = pair[0];
    if (!rc) prefer_as_oom_victim(w->pid);
    return rc;
}

/* ---------------------------------------------------------------- its last words, and its death */

/* Waits up to timeout_ms for the child to end. True when it has been reaped. */
static bool child_reap(struct worker *w, int timeout_ms)
{
    const int64_t until = clock_ns() + (int64_t)timeout_ms * 1000000;
    while (w->pid) {
        const pid_t got = waitpid(w->pid, &w->status, WNOHANG);
        if (got == w->pid || (got < 0 && errno != EINTR)) {
            if (got < 0) w->status = 0; /* another part of the program reaped it: its status is unknown */
            w->pid = 0;
            break;
        }
        if (clock_ns() >= until) return false;
        said_take(&w->said);
        clock_sleep_ns(2000000);
    }
    said_take(&w->said);
    return true;
}

static void kill_child(struct worker *w)
{
    if (!w->pid) return;
    w->killed = true;
    kill(w->pid, SIGKILL);
    child_reap(w, KILLED_MS);
}

/* The connection is broken: reports how the child ended. */
static enum err_code child_died_error(struct worker *w, struct err *why)
{
    fd_close(&w->fd);
    if (!child_reap(w, CLOSE_MS)) kill_child(w);
    char said[SAID_LAST];
    said_last(&w->said, said);
    if (w->killed) return err_set(why, ERR_INTERNAL, "the worker closed its channel and hung%s", said);
    if (WIFSIGNALED(w->status)) {
        const int sig = WTERMSIG(w->status);
        if (sig == SIGKILL)
            return err_set(why, ERR_FIT, "the worker was killed, probably for memory%s", said);
        return err_set(why, ERR_INTERNAL, "the worker died of signal %d (SIG%s)%s", sig,
                       sigabbrev_np(sig) ? sigabbrev_np(sig) : "?", said);
    }
    const int status = WIFEXITED(w->status) ? WEXITSTATUS(w->status) : -1;
    if (status == STATUS_NO_MEMORY) return err_set(why, ERR_NOMEM, "the worker ran out of memory%s", said);
    return err_set(why, ERR_INTERNAL, "the worker ended with status %d in the middle of a request%s", status,
                   said);
}

/* Kills a worker that hangs. */
static enum err_code check_alive(struct worker *w, struct err *why)
{
    const enum err_code rc = w->pid ? watchdog_check(&w->watchdog, w->pid, why) : ERR_OK;
    if (!rc) return rc;
    kill_child(w);
    fd_close(&w->fd);
    return rc;
}

/* ---------------------------------------------------------------- lines */

static enum err_code send_line(struct worker *w, const json_t *object, struct err *why)
{
    char *line = json_line(object);
    if (!line) return err_set(why, ERR_NOMEM, "no memory for a request");
    size_t n = strlen(line), at = 0;
    line[n++] = '\n'; /* replaces the terminator: the line is sent by its length */
    enum err_code rc = ERR_OK;
    while (at < n && !rc) {
        const ssize_t k = send(w->fd, line + at, n - at, MSG_NOSIGNAL);
        if (k > 0) {
            at += (size_t)k;
        } else if (errno == EAGAIN) {
            struct pollfd p = { .fd = w->fd, .events = POLLOUT };
            poll(&p, 1, TICK_MS);
            said_take(&w->said);
            rc = p.revents & (POLLERR | POLLHUP) ? child_died_error(w, why) : check_alive(w, why);
        } else if (errno != EINTR) {
            rc = child_died_error(w, why);
        }
    }
    free(line);
    return rc;
}

static enum err_code code_of(const char *name)
{
    static const char *const NAMES[] = {
#define CODE_NAME(code, text) #code,
        ERR_LIST(CODE_NAME)
#undef CODE_NAME
    };
    for (size_t i = 1; name && i < COUNT_OF(NAMES); i++)
        if (!strcmp(NAMES[i], name)) return (enum err_code)i;
    return ERR_INTERNAL;
}

/* The state of waiting for one answer. */
struct waiting {
    int64_t id;
    arm_event_fn *event;
    void *ctx;
    int64_t last_call_ns, cancelled_ns; /* cancelled_ns 0: not cancelled */
    json_t *answer;
};

/* Sends a message that has no answer: "cancel" or "go", about the running request. */
static enum err_code send_word(struct worker *w, const char *op, struct err *why)
{
    json_t *word = json_object();
    json_put_int(word, "id", 0);
    json_put_str(word, "op", op);
    enum err_code rc = send_line(w, word, why);
    json_decref(word);
    return rc;
}

static enum err_code worker_tell(void *state, const json_t *message, struct err *why)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)message);
    json_put_int(copy, "id", 0);
    const enum err_code rc = send_line(state, copy, why);
    json_decref(copy);
    return rc;
}

/* Calls the callback. Sends "cancel" when it returns false, and "go" in answer to the event "turn". */
static enum err_code event_report(struct worker *w, struct waiting *q, const json_t *event, struct err *why)
{
    const bool asks = event && !strcmp(json_get_str(event, "event", ""), "turn");
    const bool on = !q->event || q->cancelled_ns || q->event(q->ctx, event);
    q->last_call_ns = clock_ns();
    watchdog_skip(&w->watchdog); /* "turn" waits for other workers here */
    if (on) return asks && !q->cancelled_ns ? send_word(w, "go", why) : ERR_OK;
    q->cancelled_ns = q->last_call_ns;
    return send_word(w, "cancel", why);
}

static enum err_code take_line(struct worker *w, struct waiting *q, const char *line, size_t n,
                               struct err *why)
{
    json_t *o = NULL;
    struct err bad = { 0 };
    if (json_parse(&o, line, n, &bad) || !json_is_object(o)) {
        json_decref(o);
        kill_child(w);
        fd_close(&w->fd);
        if (bad.code == ERR_NOMEM) return err_set(why, ERR_NOMEM, "%s", bad.message);
        return err_set(why, ERR_INTERNAL, "the worker does not speak the protocol: '%.*s'%s",
                       (int)MIN(n, (size_t)60), line, n > 60 ? "..." : "");
    }
    enum err_code rc = ERR_OK;
    if (json_get_int(o, "id", -1) != q->id) {
        /* the late answer to a cancelled request */
    } else if (json_object_get(o, "event")) {
        watchdog_heard(&w->watchdog);
        rc = event_report(w, q, o, why);
    } else if (json_is_true(json_object_get(o, "ok"))) {
        q->answer = json_incref(o);
    } else {
        const char *message = json_get_str(o, "message", "the worker gave no reason");
        rc = err_set(why, code_of(json_get_str(o, "code", NULL)), "%s", message);
    }
    json_decref(o);
    return rc;
}

/* Handles every complete line received so far. */
static enum err_code take_lines(struct worker *w, struct waiting *q, struct err *why)
{
    enum err_code rc = ERR_OK;
    size_t start = 0;
    while (!rc && !q->answer && w->in.len > start) {
        const char *end = memchr(w->in.data + start, '\n', w->in.len - start);
        if (!end) break;
        const size_t n = (size_t)(end - (w->in.data + start));
        if (n) rc = take_line(w, q, w->in.data + start, n, why);
        start += n + 1;
    }
    if (start) {
        memmove(w->in.data, w->in.data + start, w->in.len - start);
        w->in.len -= start;
    }
    return rc;
}

static enum err_code answer_receive(struct worker *w, struct err *why)
{
    char buf[65536];
    const ssize_t n = recv(w->fd, buf, sizeof(buf), 0);
    if (n > 0) {
        str_append_n(&w->in, buf, (size_t)n);
        if (!w->in.failed && w->in.len <= LINE_LIMIT) return ERR_OK;
        kill_child(w);
        fd_close(&w->fd);
        if (w->in.failed) return err_set(why, ERR_NOMEM, "out of memory for an answer of the worker");
        return err_set(why, ERR_INTERNAL, "the worker sent a line of more than %d MiB", LINE_LIMIT >> 20);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return ERR_OK;
    return child_died_error(w, why);
}

static enum err_code wait_answer(struct worker *w, struct waiting *q, struct err *why)
{
    for (;;) {
        enum err_code rc = take_lines(w, q, why);
        if (rc || q->answer) return rc;
        struct pollfd p[2] = { { .fd = w->fd, .events = POLLIN }, { .fd = w->said.fd, .events = POLLIN } };
        poll(p, 2, TICK_MS);
        if (p[1].revents) said_take(&w->said);
        if (p[0].revents && (rc = answer_receive(w, why))) return rc;
        /* before the callback, whose time does not count */
        if (!q->cancelled_ns && (rc = check_alive(w, why))) return rc;
        const int64_t now = clock_ns();
        if (now - q->last_call_ns >= (int64_t)TICK_MS * 1000000 && (rc = event_report(w, q, NULL, why)))
            return rc;
        if (q->cancelled_ns && now - q->cancelled_ns > (int64_t)CANCEL_MS * 1000000) {
            kill_child(w);
            fd_close(&w->fd);
            return err_set(why, ERR_CANCELLED,
                           "cancelled (the worker did not stop by itself and was killed)");
        }
    }
}

/* ---------------------------------------------------------------- the kind */

static enum err_code worker_request(void *state, json_t *request, json_t **answer, arm_event_fn *event,
                                    void *ctx, struct err *why)
{
    struct worker *w = state;
    if (w->fd < 0) return err_set(why, ERR_INTERNAL, "the worker of this arm is gone");
    struct waiting q = { .id = ++w->next_id, .event = event, .ctx = ctx, .last_call_ns = clock_ns() };
    char what[640];
    snprintf(what, sizeof(what), "%s %s", json_get_str(request, "op", ""),
             json_get_str(request, "workload", ""));
    json_put_int(request, "id", q.id);
    watchdog_begin(&w->watchdog, what);
    enum err_code rc = send_line(w, request, why);
    if (!rc) rc = wait_answer(w, &q, why);
    if (!rc) watchdog_answered(&w->watchdog);
    if (rc)
        json_decref(q.answer);
    else
        *answer = q.answer;
    return rc;
}

static void worker_close(void *state)
{
    struct worker *w = state;
    if (w->fd >= 0) {
        json_t *bye = json_object();
        json_put_int(bye, "id", ++w->next_id);
        json_put_str(bye, "op", "close");
        struct err ignored;
        (void)send_line(w, bye, &ignored);
        json_decref(bye);
        if (w->fd >= 0)
            shutdown(w->fd, SHUT_WR); /* end of file also makes the worker close, if it missed the request */
    }
    if (!child_reap(w, CLOSE_MS)) kill_child(w);
    fd_close(&w->fd);
    char said[SAID_LAST];
    if (*said_last(&w->said, said)) log_write(w->log, LOG_DEBUG, "the worker ended%s", said);
    said_close(&w->said);
    str_free(&w->in);
    free(w);
}

static enum err_code worker_open(void **state, json_t **description, const struct arm_spec *spec,
                                 arm_event_fn *event, void *ctx, struct err *why)
{
    struct worker *w = calloc(1, sizeof(*w));
    if (!w) return err_set(why, ERR_NOMEM, "out of memory starting the worker process");
    w->fd = w->said.fd = -1;
    w->log = spec->log;
    w->watchdog.least_s = spec->silence_s;
    *state = w; /* after an error, too, the caller closes it */
    enum err_code rc = worker_start(w, spec->program ? spec->program : "/proc/self/exe", why);
    if (rc) return rc;

    struct str line = { 0 };
    json_t *request = json_object();
    config_append_line(spec->config, &line);
    if (line.failed || !request) {
        str_free(&line);
        json_decref(request);
        return err_set(why, ERR_NOMEM, "no memory for a request");
    }
    json_put_str(request, "op", "open");
    if (spec->train) json_put_bool(request, "train", true);
    json_put_str(request, "model", spec->model ? spec->model : "");
    json_put_str(request, "config", str_text(&line));
    json_put_int(request, "ctx", spec->ctx);
    json_put_int(request, "sequences", MAX(spec->sequences, 1));
    char *shapes = NULL; /* kernels measured earlier (run.h) */
    rc = spec->train ? ERR_OK : shapes_of(&shapes, spec->config, event, ctx, spec->log, why);
    if (shapes) json_put_str(request, "shapes", shapes);
    if (!rc) rc = worker_request(w, request, description, event, ctx, why);
    json_decref(request);
    free(shapes);
    str_free(&line);
    return rc;
}

static int worker_pid(const void *state)
{
    return (int)((const struct worker *)state)->pid;
}

const struct arm_kind ARM_WORKER = {
    .name = "worker",
    .open = worker_open,
    .request = worker_request,
    .tell = worker_tell,
    .pid = worker_pid,
    .close = worker_close,
};
