/* Runs plug-in code in child processes. Such code may crash, hang, print, exit or write anywhere; the result
 * must be an error message, not damage to the program. Children are forked without exec, so that they can
 * read the matrix in the parent's memory; they keep none of the parent's open files. What they print goes
 * through the parent, because a terminal would obey control characters in it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/quant/plugin.h"

enum {
    TICK_MS = 20,
    CHILD_FD = 3,
    ANSWER_LIMIT = 1 << 20,
    PATIENCE_S = 60,
    SHOWN = 240, /* bytes of a plug-in's reason quoted in a message */
    PIPE_SIZE = 1 << 16,
    PRINTED_LINE = 400, /* bytes; the rest of a longer line is the next line */
    PRINTED_LINES = 20, /* of a crew; what it prints after these is only counted */
};

/* First byte of an answer. SHORT: memory ran out in the child; the rest says where, if it could. */
static const char DONE = '+', FAILED = '-', SHORT = '!';

enum err_code plugin_patience(int64_t *ns, struct err *why)
{
    const char *text = getenv("QDYNO_PLUGIN_TIMEOUT");
    double seconds = PATIENCE_S;
    if (text && text[0] && (!str_to_seconds(text, &seconds) || !(seconds > 0 && seconds < 1e8)))
        return err_set(why, ERR_USAGE, "QDYNO_PLUGIN_TIMEOUT='%.40s': expected a time such as 90s or 5m",
                       text);
    *ns = (int64_t)(seconds * 1e9);
    return ERR_OK;
}

/* ---------------------------------------------------------------- in the child */

/* Writes to the parent. It may no longer read: then it is about to kill this process. */
static void child_write(int fd, const char *data, size_t n)
{
    while (n) {
        const ssize_t sent = write(fd, data, n);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return;
        data += sent;
        n -= (size_t)sent;
    }
}

/* Does the loader fail for lack of memory? It has an errno of its own, which its message does not always
 * tell: then map the file as it does. */
static bool loader_lacks_memory(const char *path, const char *message)
{
    struct stat st;
    if (strstr(message, strerror(ENOMEM)) || strstr(message, "out of memory")) return true;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool lacks = false;
    if (fd >= 0 && !fstat(fd, &st) && st.st_size > 0) {
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        lacks = map == MAP_FAILED && errno == ENOMEM;
        if (map != MAP_FAILED) munmap(map, (size_t)st.st_size);
    }
    if (fd >= 0) close(fd);
    return lacks;
}

/* Load the library in the child. NULL, and the reason in *out, when it is not a plug-in of this version. */
static const struct qdyno_plugin *child_load_plugin(const char *path, struct str *out)
{
    const struct qdyno_plugin *p;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *message = dlerror();
        if (loader_lacks_memory(path, message)) memory_short_set();
        str_printf(out, "cannot be loaded: %s", message);
        return NULL;
    }
    /* POSIX requires that an object pointer can hold a function pointer; ISO C has no cast for it. */
    const struct qdyno_plugin *(*get)(void);
    *(void **)(&get) = dlsym(library, QDYNO_PLUGIN_SYMBOL);
    if (!get) {
        str_printf(out, "is not a plug-in: it does not export %s", QDYNO_PLUGIN_SYMBOL);
        return NULL;
    }
    if (!(p = get())) {
        str_printf(out, "%s returned NULL", QDYNO_PLUGIN_SYMBOL);
        return NULL;
    }
    if (p->version == QDYNO_PLUGIN_VERSION) return p;
    str_printf(out,
               "was compiled for version %u of the plug-in interface, this program has version %d: recompile "
               "it with this program's qdyno_plugin.h",
               (unsigned)p->version, QDYNO_PLUGIN_VERSION);
    return NULL;
}

/* Separate the child from the parent's files, output and signal handlers. */
static void child_detach(int fd, int print_fd, pid_t parent)
{
    static const int SIGNALS[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGINT, SIGTERM, SIGPIPE };
    sigset_t none;
    process_die_with_parent(parent);
    for (size_t i = 0; i < COUNT_OF(SIGNALS); i++) signal(SIGNALS[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    __fpurge(stdout);              /* buffered output belongs to the parent, which will write it */
    dup2(print_fd, STDERR_FILENO); /* before print_fd may be replaced as CHILD_FD */
    dup2(print_fd, STDOUT_FILENO);
    if (fd != CHILD_FD) dup2(fd, CHILD_FD);
    close_range(CHILD_FD + 1, ~0U, 0);
    close(STDIN_FILENO);
    open("/dev/null", O_RDONLY);
}

/* The child process: load the library, work, answer, exit. */
static _Noreturn void child_main(const struct plugin_crew *crew, int member, int fd, int print_fd,
                                 pid_t parent)
{
    struct str out = { 0 };
    child_detach(fd, print_fd, parent);
    memory_short_clear(); /* from here on it tells of this process only */
    const struct qdyno_plugin *plugin = child_load_plugin(crew->path, &out);
    const bool failed = !plugin || crew->work(crew->arg, member, plugin, &out);
    fflush(stdout); /* what the plug-in printed with stdio */
    child_write(CHILD_FD, memory_is_short() ? &SHORT : failed ? &FAILED : &DONE, 1);
    child_write(CHILD_FD, str_text(&out), out.len);
    _exit(EXIT_SUCCESS); /* without running exit handlers */
}

/* ---------------------------------------------------------------- in the parent */

struct child {
    pid_t pid;    /* 0: ended */
    int fd;       /* the pipe with its answer; -1: closed */
    int print_fd; /* the pipe with what it prints; -1: closed */
    int status;
    int lost; /* the errno of a failed read of its answer; 0: none */
    struct str in;
    struct str line; /* printed, not yet complete */
};

/* What the children of a crew printed. */
struct printed {
    const char *path; /* of the library */
    int lines;        /* shown */
    int64_t dropped;  /* bytes not shown */
};

/* Writes "plug-in NAME: text" to standard error, with one call, so that lines of processes do not mix. */
static void printed_line(const struct printed *p, const char *text, size_t n)
{
    const char *slash = strrchr(p->path, '/');
    struct str line = { 0 };
    str_append(&line, "plug-in ");
    sink_append(&line, SINK_LINE, slash ? slash + 1 : p->path, strlen(slash ? slash + 1 : p->path));
    str_append(&line, ": ");
    sink_append(&line, SINK_LINE, text, n);
    str_append(&line, "\n");
    if (!line.failed) {
        const ssize_t ignored = write(STDERR_FILENO, line.data, line.len); /* nobody may be listening */
        (void)ignored;
    }
    str_free(&line);
}

static void printed_take(struct printed *p, const char *text, size_t n)
{
    if (p->lines == PRINTED_LINES) {
        p->dropped += (int64_t)n;
        return;
    }
    printed_line(p, text, n);
    p->lines++;
}

static void printed_end(const struct printed *p)
{
    char text[80];
    if (!p->dropped) return;
    snprintf(text, sizeof text, "printed %lld bytes more, which are not shown", (long long)p->dropped);
    printed_line(p, text, strlen(text));
}

/* Passes on the complete lines that a child printed; at its end also a line without a newline. Reads no more
 * than a pipe holds, because a child may print faster than this. */
static void child_print(struct child *c, struct printed *p, bool at_end)
{
    char piece[4096];
    for (int reads = 0; c->print_fd >= 0 && reads < PIPE_SIZE / (int)sizeof piece; reads++) {
        const ssize_t n = read(c->print_fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        for (ssize_t i = 0; i < n; i++) {
            if (piece[i] != '\n') str_append_n(&c->line, piece + i, 1);
            if (piece[i] != '\n' && c->line.len < PRINTED_LINE) continue;
            printed_take(p, str_text(&c->line), c->line.len);
            str_clear(&c->line);
        }
        if (n > 0) continue;
        close(c->print_fd);
        c->print_fd = -1;
    }
    if (at_end && c->line.len) printed_take(p, str_text(&c->line), c->line.len);
    if (at_end) str_clear(&c->line);
}

/* Fork one child. */
static enum err_code child_start(struct child *c, const struct plugin_crew *crew, int member, struct err *why)
{
    int ends[2], print[2];
    const bool made = !pipe2(ends, O_CLOEXEC);
    if (!made || pipe2(print, O_CLOEXEC)) {
        const int cause = errno;
        if (made) close(ends[0]), close(ends[1]);
        return err_set(why, err_of_errno(cause), "cannot create a pipe to the process of a plug-in: %s",
                       strerror(cause));
    }
    const pid_t parent = getpid();
    int cause = crew->lend ? crew->lend(crew->arg, member, true) : 0;
    const pid_t pid = cause ? -1 : fork();
    if (pid < 0 && !cause) cause = errno;
    if (pid == 0) child_main(crew, member, ends[1], print[1], parent);
    const int kept = crew->lend ? crew->lend(crew->arg, member, false) : 0;
    close(ends[1]);
    close(print[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(print[0], F_SETFL, O_NONBLOCK);
    c->fd = ends[0];
    c->print_fd = print[0];
    if (pid < 0)
        return err_set(why, err_of_errno(cause), "cannot start a process for plug-in %s: %s", crew->path,
                       strerror(cause));
    c->pid = pid;
    if (kept) /* further children would share this one's memory */
        return err_set(why, err_of_errno(kept), "cannot set up memory for plug-in %s: %s", crew->path,
                       strerror(kept));
    return ERR_OK;
}

/* Read what the child has written so far. */
static void child_read(struct child *c)
{
    char piece[4096];
    while (c->fd >= 0 && c->in.len <= ANSWER_LIMIT) {
        const ssize_t n = read(c->fd, piece, sizeof piece);
        if (n > 0) {
            str_append_n(&c->in, piece, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            c->lost = n < 0 ? errno : 0;
            close(c->fd);
            c->fd = -1;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

/* Check whether the child ended, then read its pipes: in this order no output of an ended child is missed. */
static void child_update(struct child *c, struct printed *p)
{
    const pid_t got = c->pid ? waitpid(c->pid, &c->status, WNOHANG) : 0;
    const bool ended = got == c->pid || (got < 0 && errno != EINTR);
    child_read(c);
    child_print(c, p, ended);
    if (ended) c->pid = 0;
}

/* Kill the child if it still runs, and free its resources. */
static void child_end(struct child *c, struct printed *p)
{
    if (c->pid) {
        kill(c->pid, SIGKILL);
        while (waitpid(c->pid, &c->status, 0) < 0 && errno == EINTR) continue;
    }
    child_print(c, p, true);
    if (c->fd >= 0) close(c->fd);
    if (c->print_fd >= 0) close(c->print_fd);
    str_free(&c->in);
    str_free(&c->line);
}

/* Copy the untrusted text after the first byte to buf, with control characters replaced by spaces. */
static void printable_text(const struct str *text, char *buf, size_t size)
{
    size_t n = 0;
    for (size_t i = 1; i < text->len && n + 1 < size; i++)
        buf[n++] = (unsigned char)text->data[i] < 32 || text->data[i] == 127 ? ' ' : text->data[i];
    buf[n] = '\0';
}

/* The result of an ended child. */
static enum err_code child_result(const struct child *c, const struct plugin_crew *crew, struct err *why)
{
    char reason[SHOWN];
    const int sig = WIFSIGNALED(c->status) ? WTERMSIG(c->status) : 0;
    if (c->lost)
        return err_set(why, err_of_errno(c->lost), "cannot read the answer of plug-in %s: %s", crew->path,
                       strerror(c->lost));
    if (sig == SIGINT || sig == SIGTERM) return err_set(why, ERR_CANCELLED, "cancelled");
    if (sig == SIGKILL)
        return err_set(why, ERR_FIT, "plug-in %s was killed while %s, probably for memory", crew->path,
                       crew->doing);
    if (sig)
        return err_set(why, ERR_FORMAT, "plug-in %s crashed with signal %d (SIG%s) while %s", crew->path, sig,
                       sigabbrev_np(sig) ? sigabbrev_np(sig) : "?", crew->doing);
    if (!c->in.len || WEXITSTATUS(c->status) != EXIT_SUCCESS)
        return err_set(why, ERR_FORMAT, "plug-in %s ended its process (status %d) while %s", crew->path,
                       WEXITSTATUS(c->status), crew->doing);
    if (c->in.failed)
        return err_set(why, ERR_NOMEM, "out of memory for the answer of plug-in %s", crew->path);
    if (c->in.data[0] == DONE) return ERR_OK;
    printable_text(&c->in, reason, sizeof reason);
    if (c->in.data[0] == SHORT)
        return err_set(why, ERR_NOMEM, "plug-in %s ran out of memory while %s%s%s", crew->path, crew->doing,
                       reason[0] ? ": " : "", reason);
    return err_set(why, ERR_FORMAT, "plug-in %s: %s", crew->path, reason);
}

/* Wait until a child writes or ends, or TICK_MS passed. polled: [2 * count]. */
static void crew_poll(const struct child *all, int count, struct pollfd *polled)
{
    bool ending = false; /* a child closed its pipe and is about to end */
    for (int i = 0; i < count; i++) {
        polled[2 * i] = (struct pollfd){ .fd = all[i].fd, .events = POLLIN };
        /* an ended child's pipe would always be ready */
        polled[2 * i + 1] = (struct pollfd){ .fd = all[i].pid ? all[i].print_fd : -1, .events = POLLIN };
        ending |= all[i].pid && all[i].fd < 0;
    }
    poll(polled, 2 * (nfds_t)count, ending ? 1 : TICK_MS);
}

/* Wait for all children; returns the first error. */
static enum err_code crew_wait(struct child *all, struct pollfd *polled, const struct plugin_crew *crew,
                               struct printed *printed, struct err *why)
{
    int64_t moved_ns = clock_ns(), seen = 0;
    for (;;) {
        int running = 0;
        for (int i = 0; i < crew->count; i++) {
            const bool was = all[i].pid != 0;
            child_update(&all[i], printed);
            running += all[i].pid != 0;
            enum err_code rc = was && !all[i].pid ? child_result(&all[i], crew, why) : ERR_OK;
            if (!rc && all[i].in.len > ANSWER_LIMIT)
                rc = err_set(why, ERR_FORMAT, "plug-in %s answered more than %d bytes while %s", crew->path,
                             ANSWER_LIMIT, crew->doing);
            if (rc) return rc;
        }
        if (!running) return ERR_OK;
        const int64_t done = crew->done ? crew->done(crew->arg) : 0, now = clock_ns();
        if (done != seen) {
            seen = done;
            moved_ns = now;
        }
        if (now - moved_ns > crew->patience_ns)
            return err_set(why, ERR_FORMAT,
                           "plug-in %s hangs: no progress while %s for %.3g s (QDYNO_PLUGIN_TIMEOUT=5m would "
                           "wait longer)",
                           crew->path, crew->doing, (double)crew->patience_ns * 1e-9);
        crew_poll(all, crew->count, polled);
    }
}

enum err_code plugin_crew_run(const struct plugin_crew *crew, struct str *answer, struct err *why)
{
    struct child *all = calloc((size_t)crew->count, sizeof *all);
    struct pollfd *polled = calloc(2 * (size_t)crew->count, sizeof *polled);
    struct printed printed = { .path = crew->path };
    enum err_code rc = all && polled ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a plug-in");
    for (int i = 0; all && i < crew->count; i++) all[i].fd = all[i].print_fd = -1;
    for (int i = 0; i < crew->count && !rc; i++) rc = child_start(&all[i], crew, i, why);
    if (!rc) rc = crew_wait(all, polled, crew, &printed, why);
    if (!rc && answer) str_append_n(answer, all[0].in.data + 1, all[0].in.len - 1);
    if (!rc && answer && answer->failed) rc = err_set(why, ERR_NOMEM, "out of memory for a plug-in");
    for (int i = 0; all && i < crew->count; i++) child_end(&all[i], &printed);
    printed_end(&printed);
    free(all);
    free(polled);
    return rc;
}
