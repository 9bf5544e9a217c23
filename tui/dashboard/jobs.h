/* tui/dashboard/jobs.h - background work: queues of jobs with one thread each. Internal to the dashboard.
 *
 * A job works on its own copies and publishes what it found in struct background (background.h); the next
 * frame picks it up. The drawing thread never waits for a job. */
#ifndef QDYNO_TUI_JOBS_H
#define QDYNO_TUI_JOBS_H

#include "tui/forms/forms.h"

struct background;

/* One queue, and thus one thread, per resource: jobs that use the same resource run one after the other. */
enum job_queue {
    QUEUE_PROCESSOR, /* detecting and measuring the machine, advice, roofline limits */
    QUEUE_DATABASE,  /* reading models, the history and runs; starting experiments */
    QUEUE_NETWORK,   /* pushes */
    QUEUE_COMMAND,   /* child processes: the commands of the command line */
    QUEUES
};

enum { JOB_TEXTS = 8, JOB_TEXT = COMMAND_TEXT };
enum { JOB_ARMS = 2 }; /* arms that a form always has, and whose roofline limits are computed */
struct job {
    void (*run)(struct background *b, const struct job *j);
    char text[JOB_TEXTS][JOB_TEXT]; /* arguments; background.h lists them for each job */
    int64_t id, other_id;
    bool too_long; /* an argument did not fit: the job must not run, and jobs_put() refuses it */
};
/* NULL: "". A text that does not fit sets too_long: a part of it would be another path or command. */
void job_put_text(struct job *j, int i, const char *text);

struct jobs;

/* Start the thread. The caller owns *out and closes it with jobs_close(). `background` must outlive it.
 * Errors: ERR_NOMEM. */
enum err_code jobs_open(struct jobs **out, struct background *background, struct err *why);

/* Queue a copy of the job. False: the queue is full, or an argument of the job did not fit; nothing was
 * queued. */
bool jobs_put(struct jobs *q, const struct job *j);

bool jobs_idle(struct jobs *q); /* nothing runs and nothing waits */

/* Drop waiting jobs and wait `timeout_ms` for the running one. False: it still runs, so its memory (struct
 * background included) must not be freed; only correct just before the process ends. Accepts NULL (true). */
bool jobs_close(struct jobs *q, int timeout_ms);

#endif
