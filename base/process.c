/* base/process.c - fork and exec with PR_SET_PDEATHSIG.
 *
 * posix_spawn cannot set this signal before exec, and a program that sets it after exec may be too late: its
 * parent may have ended in between. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_NOT_STARTED = 127, FIRST_FREE_FD = 10 };

void process_die_with_parent(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_NOT_STARTED); /* it ended before the call above */
}

/* Gives the child its descriptors 0 to 3. The sources move up first, so that no dup2 overwrites one of them.
 * *report_fd keeps its meaning. False: errno says why. */
static bool child_set_descriptors(const struct process_spec *start, int *report_fd)
{
    const int report = fcntl(*report_fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
    if (report < 0) return false;
    *report_fd = report;
    const int output = fcntl(start->output_fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
    const int channel = start->channel_fd < 0 ? -1 : fcntl(start->channel_fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
    const int input = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (input < 0 || output < 0 || (start->channel_fd >= 0 && channel < 0)) return false;
    if (input == STDIN_FILENO)
        fcntl(input, F_SETFD, 0); /* dup2 to itself would keep close-on-exec */
    else if (dup2(input, STDIN_FILENO) < 0)
        return false;
    if (dup2(output, STDOUT_FILENO) < 0 || dup2(start->mute ? input : output, STDERR_FILENO) < 0)
        return false;
    if (channel >= 0 && dup2(channel, PROCESS_CHANNEL_FD) < 0) return false;
    const unsigned rest = channel >= 0 ? PROCESS_CHANNEL_FD + 1 : STDERR_FILENO + 1;
    return !close_range(rest, ~0U, CLOSE_RANGE_CLOEXEC);
}

/* Runs in the child: only async-signal-safe calls, because other threads of the parent may have held locks.
 */
static _Noreturn void child_exec(const struct process_spec *start, int report_fd, pid_t parent)
{
    sigset_t none;
    process_die_with_parent(parent);
    setpgid(0, 0);
    for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL); /* fails for SIGKILL and SIGSTOP, as it should */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (child_set_descriptors(start, &report_fd))
        execve(start->program, start->argv, start->envp ? start->envp : environ);
    const int cause = errno;
    const ssize_t ignored = write(report_fd, &cause, sizeof cause);
    (void)ignored;
    _exit(EXIT_NOT_STARTED);
}

enum err_code process_spawn(pid_t *pid, const struct process_spec *start, struct err *why)
{
    int report[2], cause = 0;
    *pid = 0;
    if (pipe2(report, O_CLOEXEC))
        return err_set(why, err_of_errno(errno), "cannot make a pipe: %s", strerror(errno));
    const pid_t parent = getpid(), child = fork();
    if (child == 0) child_exec(start, report[1], parent);
    const int fork_error = errno;
    close(report[1]);
    ssize_t n = 0; /* 0 bytes: exec succeeded and closed the pipe */
    if (child > 0)
        while ((n = read(report[0], &cause, sizeof cause)) < 0 && errno == EINTR) continue;
    close(report[0]);
    if (child < 0)
        return err_set(why, err_of_errno(fork_error), "cannot start a process for '%s': %s", start->program,
                       strerror(fork_error));
    if (n == 0) {
        *pid = child;
        return ERR_OK;
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    return err_set(why, err_of_errno(cause), "cannot start '%s': %s", start->program, strerror(cause));
}
