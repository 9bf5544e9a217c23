/* base/guard/guard.c - a process that outlives this one by a moment, to kill what would be left behind. */
#include "base/guard/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD_FD = 3 }; /* of the pipe, in the guard */

/* Runs in the guard: waits for the end of the pipe, which only the parent holds open. */
static _Noreturn void guard_wait(int fd, pid_t group)
{
    char byte;
    sigset_t all;
    setpgid(0, 0); /* Ctrl-C is for the parent */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (fd != GUARD_FD) dup2(fd, GUARD_FD);
    close_range(0, GUARD_FD - 1, 0);
    close_range(GUARD_FD + 1, ~0U, 0);
    while (read(GUARD_FD, &byte, 1) < 0 && errno == EINTR) continue;
    kill(-group, SIGKILL);
    _exit(0);
}

enum err_code process_guard_start(struct process_guard *guard, pid_t group, struct err *why)
{
    int pair[2];
    *guard = (struct process_guard){ 0 };
    if (pipe2(pair, O_CLOEXEC))
        return err_set(why, err_of_errno(errno), "cannot make a pipe: %s", strerror(errno));
    const pid_t child = fork();
    if (child == 0) guard_wait(pair[0], group);
    const int cause = errno;
    close(pair[0]);
    if (child > 0) {
        *guard = (struct process_guard){ .pid = child, .fd = pair[1] };
        return ERR_OK;
    }
    close(pair[1]);
    return err_set(why, err_of_errno(cause), "cannot start a process: %s", strerror(cause));
}

void process_guard_end(struct process_guard *guard)
{
    if (!guard->pid) return;
    kill(guard->pid, SIGKILL);
    close(guard->fd);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) continue;
    *guard = (struct process_guard){ 0 };
}
