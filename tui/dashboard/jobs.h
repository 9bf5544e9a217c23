/* tui/dashboard/jobs.h - background work: queues of jobs with one thread each. Internal to the dashboard.
 *
 * A job works on its own copies and publishes what it found in struct background (background.h); the next
 * frame picks it up. The drawing thread never waits for a job. */
#ifndef QDYNO_TUI_JOBS_H
#define QDYNO_TUI_JOBS_H

#include "advisor/experiment/experiment.h"
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

enum { JOB_ARMS = 2 }; /* arms that a form always has, and whose roofline limits are computed */
/* Arguments have any length; background.h lists them for each job. Texts and structs are borrowed until
 * jobs_put() has copied them; words live as long as the dashboard. */
struct job {
    void (*run)(struct background *b, const struct job *j);
    const char *text;                         /* NULL: "" when the job runs */
    const struct experiment_spec *experiment; /* NULL: none */
    const struct form *form;                  /* NULL: none */
    struct words command;
    int64_t id, other_id;
};

struct jobs;

/* Start the thread. The caller owns *out and closes it with jobs_close(). `background` must outlive it.
 * Errors: ERR_NOMEM. */
enum err_code jobs_open(struct jobs **out, struct background *background, struct err *why);

/* Queue a copy of the job. False: the queue is full, or there is no memory; nothing was queued. */
bool jobs_put(struct jobs *q, const struct job *j);

bool jobs_idle(struct jobs *q); /* nothing runs and nothing waits */

/* Drop waiting jobs and wait `timeout_ms` for the running one. False: it still runs, so its memory (struct
 * background included) must not be freed; only correct just before the process ends. Accepts NULL (true). */
bool jobs_close(struct jobs *q, int timeout_ms);

#endif
