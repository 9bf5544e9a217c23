/* tui/cli/lib/pause.c - SIGTSTP and SIGCONT are blocked and polled with sigtimedwait, so no code runs in a
 * signal handler. */
#include "tui/cli/lib/pause.h"

#include <time.h>

#include "advisor/experiment/experiment.h"

static sigset_t both_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    sigaddset(&set, SIGCONT);
    return set;
}

/* The next signal that has come; 0: none. */
static int signal_take(void)
{
    const sigset_t both = both_signals();
    const struct timespec at_once = { 0 };
    const int signal = sigtimedwait(&both, NULL, &at_once);
    return signal > 0 ? signal : 0;
}

void cli_pause_begin(struct cli_pause *p)
{
    const sigset_t both = both_signals();
    p->wanted = false;
    pthread_sigmask(SIG_BLOCK, &both, &p->before);
}

void cli_pause_poll(struct cli_pause *p, struct experiment *x, const struct experiment_state *now)
{
    for (int signal; (signal = signal_take());) {
        const bool wanted = signal == SIGTSTP; /* SIGCONT before the pause has begun takes it back */
        if (wanted != p->wanted) experiment_pause(x, wanted);
        p->wanted = wanted;
    }
    if (!p->wanted || !now->paused_since_ms) return;
    p->wanted = false;
    raise(SIGTSTP);
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL); /* the process stops here and continues here */
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    while (signal_take()) continue;
    experiment_pause(x, false);
}

void cli_pause_end(struct cli_pause *p)
{
    while (signal_take())
        continue; /* a request that came too late must not stop a process that has finished */
    pthread_sigmask(SIG_SETMASK, &p->before, NULL);
}
