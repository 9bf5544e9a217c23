/* tui/dashboard/jobs.h - work that takes time, one piece after the other, away from the thread that draws.
 *
 * What a job finds out it writes onto the board (board.h), from where the next snapshot takes it. */
#ifndef QDYNO_TUI_JOBS_H
#define QDYNO_TUI_JOBS_H

#include "base/base.h"

struct background;
enum { JOB_ARMS = 2 }; /* that the form asks for, and whose limits are looked up */
struct job {
    void (*run)(struct background *b, const struct job *j);
    char text[8][640]; /* what it is about: paths, config lines, a filter, an address */
    int64_t id, other_id;
};

struct jobs;

/* Starts the thread. *out owned: jobs_close. `board` must outlive it. */
enum err_code jobs_open(struct jobs **out, struct background *background, struct err *why);

/* Queue a copy; false when the queue is full (nothing was queued). */
bool jobs_put(struct jobs *q, const struct job *j);

/* Nothing runs and nothing waits. */
bool jobs_idle(struct jobs *q);

/* Forget what waits and wait `timeout_ms` for what runs. False: it still runs, and its memory (board
 * included) must stay: only right when the process is about to end. NULL is fine (true). */
bool jobs_close(struct jobs *q, int timeout_ms);

#endif
