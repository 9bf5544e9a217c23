/* tui/board.h - what the background found out, where the drawing thread picks it up: one lock, copies only.
 *
 * Jobs (board_job_*) run on the threads of jobs.h. None of them is ever waited for by the thread that draws.
 */
#ifndef QDYNO_TUI_BOARD_H
#define QDYNO_TUI_BOARD_H

#include <pthread.h>

#include "tui/shell.h"
#include "tui/jobs.h"
#include "tui/snapshot.h"

struct board {
    pthread_mutex_t lock;
    const char *db_path; /* borrowed, constant */
    struct snapshot
        known; /* machine, ceilings, model, advice, runs, log, states: what jobs write (under the lock) */
    struct sampler_thread *sampler;  /* under the lock; NULL until started */
    bool sampler_tried;              /* started or failed: experiments may begin */
    struct experiment_state *loaded; /* a run read from the database, taken by board_take_loaded; owned */
    struct experiment *started;      /* by board_job_start, taken by board_take_started; owned */
    char news[256];                  /* for the status line, taken by board_take_news */
    bool news_is_error;
    int64_t folder_wanted; /* the newest; under the lock */
    int command_pid;       /* of board_job_command, 0: none; under the lock */
    int64_t alert_told;    /* the newest of a watch's alerts that the log has; of the jobs' thread */
    char hashed_path[512], hashed[HASH_HEX]; /* of board_read_measured: the file it hashed last */
    struct log log;                          /* sink: board_log */
};

enum err_code board_open(struct board **out, const char *db_path, struct err *why);
void board_close(struct board *b); /* stops the sampler; NULL is fine */

/* One line for the log pane. Any thread. */
void board_log(struct board *b, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Copy what is known into *s (the caller adds what only it knows: experiment, sensors, series). */
void board_copy(struct board *b, struct snapshot *s);

/* The run loaded last, once: copied to *out, true. */
bool board_take_loaded(struct board *b, struct experiment_state *out);

struct experiment *board_take_started(struct board *b);

/* Log a line and show it in the status line too. */
void board_say(struct board *b, bool is_error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool board_take_news(struct board *b, char *text, size_t size, bool *is_error);

/* Ask the command that runs to end; false: none runs. */
bool board_cancel_command(struct board *b);

/* Quality and requests of the model on screen, out of the database. Inside of jobs. */
void board_read_measured(struct board *b, struct db *d);

struct sampler_thread *board_sampler(struct board *b, bool *tried);

/* Jobs, and what their text[] holds. */
void board_job_machine(struct board *b, const struct job *j); /* identity, cached ceilings, sampler */
void board_job_model(struct board *b, const struct job *j);   /* 0 path */
void board_job_advise(struct board *b, const struct job *j); /* 0 path; probes first when nothing is cached */
void board_job_limits(struct board *b, const struct job *j); /* 0, 1 config lines; 2 model */
void board_job_history(struct board *b, const struct job *j); /* 0 filter, "" for none */
void board_job_load(struct board *b, const struct job *j);    /* id */
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
void board_job_start(struct board *b, const struct job *j);
void board_job_push(struct board *b, const struct job *j); /* id; 0 address */
/* What is kept for the model on screen (`qdyno apply`). Inside of jobs. */
void board_read_applied(struct board *b);

void board_read_baselines(struct board *b, struct db *d); /* likewise */

/* What forms offer. 0 folder; id from board_want_folder, which calls off the folders asked for before. */
void board_job_folder(struct board *b, const struct job *j);
int64_t board_want_folder(struct board *b);
/* 0 config line, id: the cursor in it; 1 model; 2 workload: what the loader says to each of its offers. */
void board_job_judge(struct board *b, const struct job *j);

/* 0 line after "qdyno"; 1 filter of the history; 2 the file it makes, "" none; id: COMMAND_SHOWS opens what
 * it wrote when it ends */
enum { COMMAND_QUIET, COMMAND_SHOWS };
void board_job_command(struct board *b, const struct job *j);
void board_job_compare(struct board *b,
                       const struct job *j);                /* id, other_id: runs, the first and the second */
void board_job_flush(struct board *b, const struct job *j); /* what waits in the spool */

#endif
