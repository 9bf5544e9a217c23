/* Proves: a request to pause that comes when the experiment has finished does not stop the process. */
#include "tests/check.h"
#include "tui/cli/lib/pause.h"

#include <sys/wait.h>
#include <unistd.h>

static void a_late_request_is_dropped(void **state)
{
    (void)state;
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) { /* in a process group of its own, as a command of a shell or of the dashboard */
        struct cli_pause p;
        if (setpgid(0, 0)) _exit(9);
        signal(SIGTSTP, SIG_DFL);
        cli_pause_begin(&p);
        raise(SIGTSTP);
        cli_pause_end(&p);
        sigset_t now;
        sigprocmask(SIG_BLOCK, NULL, &now);
        _exit(sigismember(&now, SIGTSTP) ? 8 : 0);
    }
    int how = 0;
    CHECK_EQ(waitpid(pid, &how, WUNTRACED), pid);
    if (WIFSTOPPED(how)) kill(pid, SIGKILL);
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_late_request_is_dropped) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
