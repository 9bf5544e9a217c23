/* tui/cli/lib/pause.c - SIGTSTP is blocked and polled with sigtimedwait, so no code runs in a signal handler.
 */
#include "tui/cli/lib/pause.h"

#include <time.h>

#include "advisor/experiment/experiment.h"

static sigset_t stop_signal(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    return set;
}

void cli_pause_begin(struct cli_pause *p)
{
    const sigset_t stop = stop_signal();
    p->wanted = false;
    pthread_sigmask(SIG_BLOCK, &stop, &p->before);
}

void cli_pause_poll(struct cli_pause *p, struct experiment *x, const struct experiment_state *now)
{
    const sigset_t stop = stop_signal();
    const struct timespec at_once = { 0 };
    if (sigtimedwait(&stop, NULL, &at_once) == SIGTSTP && !p->wanted) {
        p->wanted = true;
        experiment_pause(x, true);
    }
    if (!p->wanted || !now->paused_since_ms) return;
    p->wanted = false;
    raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL); /* the process stops here and continues here */
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    experiment_pause(x, false);
}

void cli_pause_end(struct cli_pause *p)
{
    pthread_sigmask(SIG_SETMASK, &p->before, NULL);
}
