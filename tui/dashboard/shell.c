/* tui/dashboard/shell.c - runs a child process and passes its lines on. */
#include "tui/dashboard/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

json_t *progress_line_parse(const char *line)
{
    json_t *o = NULL;
    if (line[0] != '{' || json_parse(&o, line, strlen(line), NULL)) return NULL;
    if (!strcmp(json_get_str(o, "schema", ""), "qdyno.progress/1")) return o;
    json_decref(o);
    return NULL;
}

void task_progress_read(struct task_progress *out, const json_t *o)
{
    *out = (struct task_progress){ .done = json_get_num(o, "done", NAN),
                                   .rate = json_get_num(o, "rate", NAN),
                                   .left_s = json_get_num(o, "left_s", NAN) };
    snprintf(out->unit, sizeof out->unit, "%s", json_get_str(o, "unit", ""));
    snprintf(out->text, sizeof out->text, "%s", json_get_str(o, "text", ""));
}

/* ---------------------------------------------------------------- the process */

/* Call r->line for each line until the pipe closes. A line longer than the buffer arrives in pieces. */
static void shell_read_lines(const struct shell_run *r, int fd)
{
    char buf[1 << 16]; /* a search's line of progress holds a dozen config lines */
    size_t have = 0;
    for (;;) {
        const ssize_t n = read(fd, buf + have, sizeof buf - 1 - have);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        have += (size_t)n;
        buf[have] = '\0';
        char *from = buf;
        for (char *end; (end = strpbrk(from, "\r\n")); from = end + 1) {
            *end = '\0';
            if (*from) r->line(r->ctx, from);
        }
        have = strlen(from);
        memmove(buf, from, have + 1);
        if (have == sizeof buf - 1) {
            r->line(r->ctx, buf);
            have = 0;
        }
    }
    if (have) r->line(r->ctx, buf);
}

enum err_code shell_run(const struct shell_run *r, int *status, struct err *why)
{
    int ends[2], how = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC))
        return err_set(why, err_of_errno(errno), "cannot make a pipe: %s", strerror(errno));
    const struct process_spec start = { .program = r->program ? r->program : "/proc/self/exe",
                                        .argv = r->argv,
                                        .output_fd = ends[1],
                                        .channel_fd = r->channel_fd ? r->channel_fd : -1 };
    enum err_code rc = process_spawn(&pid, &start, why);
    close(ends[1]);
    if (!rc) {
        r->started(r->ctx, pid);
        shell_read_lines(r, ends[0]);
        siginfo_t ended;
        while (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) continue;
        r->started(r->ctx, 0); /* while its pid cannot be that of another process */
        while (waitpid(pid, &how, 0) < 0 && errno == EINTR) continue;
        *status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    }
    close(ends[0]);
    return rc;
}
