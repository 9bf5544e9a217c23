/* tui/dashboard/background.h - what the background found out, where the drawing thread picks it up: one lock,
 * copies only.
 *
 * Jobs (board_job_*) run on the threads of jobs.h. None of them is ever waited for by the thread that draws.
 */
#ifndef QDYNO_TUI_BOARD_H
#define QDYNO_TUI_BOARD_H

#include <pthread.h>

#include "advisor/experiment/experiment.h"
#include "tui/dashboard/jobs.h"
#include "tui/frame/frame.h"

struct background {
    pthread_mutex_t lock;
    const char *db_path; /* borrowed, constant */
    struct snapshot
        known; /* machine, ceilings, model, advice, runs, log, states: what jobs write (under the lock) */
    struct sampler_thread *sampler; /* under the lock; NULL until started */
    bool sampler_tried;             /* started or failed: experiments may begin */
    struct experiment_state
        *loaded;                /* a run read from the database, taken by background_take_loaded; owned */
    struct experiment *started; /* by job_start_experiment, taken by background_take_started; owned */
    char news[256];             /* for the status line, taken by background_take_message */
    bool news_is_error;
    int64_t folder_wanted; /* the newest; under the lock */
    int command_pid;       /* of job_run_command, 0: none; under the lock */
    int64_t alert_told;    /* the newest of a watch's alerts that the log has; of the jobs' thread */
    char hashed_path[512], hashed[HASH_HEX]; /* of background_read_results: the file it hashed last */
    struct log log;                          /* sink: background_log */
};

enum err_code background_open(struct background **out, const char *db_path, struct err *why);
void background_close(struct background *b); /* stops the sampler; NULL is fine */

/* One line for the log pane. Any thread. */
void background_log(struct background *b, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Copy what is known into *s (the caller adds what only it knows: experiment, sensors, series). */
void background_copy(struct background *b, struct snapshot *s);

/* The run loaded last, once: copied to *out, true. */
bool background_take_loaded(struct background *b, struct experiment_state *out);

struct experiment *background_take_started(struct background *b);

/* Log a line and show it in the status line too. */
void background_announce(struct background *b, bool is_error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool background_take_message(struct background *b, char *text, size_t size, bool *is_error);

/* Ask the command that runs to end; false: none runs. */
bool background_cancel_command(struct background *b);

/* Quality and requests of the model on screen, out of the database. Inside of jobs. */
void background_read_results(struct background *b, struct db *d);

struct sampler_thread *background_sampler(struct background *b, bool *tried);

/* Jobs, and what their text[] holds. */
void job_detect_machine(struct background *b, const struct job *j); /* identity, cached ceilings, sampler */
void job_read_model(struct background *b, const struct job *j);     /* 0 path */
void job_advise(struct background *b, const struct job *j); /* 0 path; probes first when nothing is cached */
void job_predict_limits(struct background *b, const struct job *j); /* 0, 1 config lines; 2 model */
void job_read_history(struct background *b, const struct job *j);   /* 0 filter, "" for none */
void job_load_run(struct background *b, const struct job *j);       /* id */
/* id to resume, or texts; MORE and QUALITY may be "" */
enum start_text {
    START_A,
    START_B,
    START_MODEL,
    START_WORKLOAD,
    START_MORE,
    START_QUALITY,
    START_MARGIN,
    START_BUDGET
};
void job_start_experiment(struct background *b, const struct job *j);
void job_push(struct background *b, const struct job *j); /* id; 0 address */
/* What is kept for the model on screen (`qdyno apply`). Inside of jobs. */
void background_read_applied(struct background *b);

void background_read_baselines(struct background *b, struct db *d); /* likewise */

/* What forms offer. 0 folder; id from background_want_folder, which calls off the folders asked for before.
 */
void job_list_folder(struct background *b, const struct job *j);
int64_t background_want_folder(struct background *b);
/* 0 config line, id: the cursor in it; 1 model; 2 workload: what the loader says to each of its offers. */
void job_estimate_lines(struct background *b, const struct job *j);

/* 0 line after "qdyno"; 1 filter of the history; 2 the file it makes, "" none; id: COMMAND_SHOWS opens what
 * it wrote when it ends */
enum { COMMAND_QUIET, COMMAND_SHOWS };
void job_run_command(struct background *b, const struct job *j);
void job_compare_runs(struct background *b,
                      const struct job *j); /* id, other_id: runs, the first and the second */
void job_flush_spool(struct background *b, const struct job *j); /* what waits in the spool */

#endif
