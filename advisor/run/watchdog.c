/* advisor/run/watchdog.c - tells a worker that hangs from one that works (watchdog.h).
 *
 * How long a request takes is not known before it was answered once: a forward pass of a large model may be
 * silent for minutes. So a silent worker is judged by what the kernel says about it: a worker that is stopped
 * or uses no CPU time is killed soon, one that works is killed late. Once the same request was answered, its
 * longest silence is known, and a worker that is silent for much longer is killed although it works. */
#include "advisor/run/watchdog.h"

#include <stdio.h>
#include <string.h>

static const double LEAST_S = 60;        /* of silence, unless the caller sets another limit */
static const double TIMES_EXPECTED = 20; /* of the longest silence of the same request */
static const double TIMES_LEAST = 60;    /* silence of a worker that works on something new */
static const double STOPPED_S = 5;
static const double TREE_SHARE = 0.25;  /* of least_s without CPU time: then look at the descendants, too */
static const double LONGEST_STEP_S = 1; /* between two questions; more means that this process was stopped */
static const int64_t LOOK_NS = 500000000;

/* State letter and used CPU time of a process. False: unknown. */
static bool process_look(pid_t pid, char *state, uint64_t *cpu_ticks)
{
    char path[32], text[1024];
    unsigned long long user, system;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    const size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')'); /* the name may contain anything */
    if (!name_end || sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", state,
                            &user, &system) != 3)
        return false;
    *cpu_ticks = user + system;
    return true;
}

void watchdog_begin(struct watchdog *d, const char *what)
{
    if (!(d->least_s > 0)) d->least_s = LEAST_S;
    snprintf(d->running, sizeof(d->running), "%s", what);
    d->longest_gap_s = d->silent_s = d->idle_s = d->stopped_s = 0;
    d->asked_ns = clock_ns();
}

void watchdog_answered(struct watchdog *d)
{
    watchdog_heard(d);
    memcpy(d->known, d->running, sizeof(d->known));
    d->known_gap_s = d->longest_gap_s;
}

void watchdog_heard(struct watchdog *d)
{
    d->longest_gap_s = MAX(d->longest_gap_s, d->silent_s);
    d->silent_s = d->idle_s = d->stopped_s = 0;
}

void watchdog_skip(struct watchdog *d)
{
    d->asked_ns = clock_ns();
}

/* Adds the time since the last question. */
static void watchdog_count(struct watchdog *d, pid_t worker)
{
    const int64_t now = clock_ns();
    const double step = MIN((double)(now - d->asked_ns) * 1e-9, LONGEST_STEP_S);
    d->asked_ns = now;
    d->silent_s += step;
    d->idle_s += step;
    d->stopped_s += step;
    if (now - d->looked_ns < LOOK_NS) return;
    char state;
    uint64_t cpu_ticks;
    d->looked_ns = now;
    if (!process_look(worker, &state, &cpu_ticks)) return;
    if (state != 'T') d->stopped_s = 0;
    if (cpu_ticks != d->cpu_ticks || state == 'D') d->idle_s = 0;
    d->cpu_ticks = cpu_ticks;
    if (!d->tree_cpu_s || d->idle_s < TREE_SHARE * d->least_s) return;
    const double tree_s = d->tree_cpu_s((int)worker);
    if (tree_s > d->tree_s || tree_s < d->tree_s) d->idle_s = 0; /* not where it is unknown: NAN */
    d->tree_s = tree_s;
}

enum err_code watchdog_check(struct watchdog *d, pid_t worker, struct err *why)
{
    watchdog_count(d, worker);
    const bool known = *d->known && !strcmp(d->known, d->running);
    const double expected = MAX(d->longest_gap_s, known ? d->known_gap_s : 0);
    const double idle_limit = MAX(d->least_s, TIMES_EXPECTED * expected);
    const double limit = known ? idle_limit : MAX(TIMES_LEAST * d->least_s, idle_limit);
    if (d->stopped_s >= STOPPED_S)
        return err_set(why, ERR_INTERNAL,
                       "the worker was stopped by a signal for %.0f s and was killed: find out who sent "
                       "SIGSTOP to it, then measure again",
                       d->stopped_s);
    if (d->idle_s >= idle_limit)
        return err_set(why, ERR_INTERNAL,
                       "the worker hung and was killed: for %.0f s it sent nothing and used no CPU time",
                       d->idle_s);
    if (d->silent_s >= limit)
        return err_set(why, ERR_INTERNAL,
                       "the worker hung and was killed: it worked for %.0f s without sending anything, "
                       "expected at most %.0f s",
                       d->silent_s, limit);
    return ERR_OK;
}
