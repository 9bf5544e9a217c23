/* tui/dashboard/background.h - the state shared between background jobs and the drawing thread. Internal to
 * the dashboard.
 *
 * Jobs (job_*, below) run on the threads of jobs.h. They publish what they found into `known`; the drawing
 * thread copies that when it has changed. One lock protects everything, and it is only held for copies. */
#ifndef QDYNO_TUI_BACKGROUND_H
#define QDYNO_TUI_BACKGROUND_H

#include <pthread.h>

#include "advisor/experiment/experiment.h"
#include "tui/dashboard/jobs.h"
#include "tui/frame/frame.h"

/* They count the changes of the two parts of what jobs know: from `command` and from `machine_known` on. */
struct known_versions {
    int64_t running, facts;
};

struct background {
    const char *db_path;                 /* borrowed, constant */
    const char *server_url, *server_key; /* borrowed, constant; NULL: none */
    struct log log;                      /* constant; its lines go to background_log() */
    pthread_mutex_t lock;
    /* under the lock */
    struct snapshot known; /* the part of the snapshot that jobs write */
    struct known_versions version;
    struct sampler_thread *sampler;  /* NULL until it runs */
    struct experiment_state *loaded; /* the run to show, for background_take_loaded(); owned */
    bool loaded_live;                /* a command measures it, or has ended it */
    char message[256];               /* for the status line, for background_take_message() */
    bool message_is_error;
    int64_t folder_wanted;            /* number of the newest request for a folder */
    uint64_t check_wanted;            /* form_hash() of the newest check; set by background_want_check() */
    char history_filter[FILTER_TEXT]; /* set by background_filter_history() */
    int command_pid;                  /* process of the running command, 0: none */
    bool pausable;                    /* it measures an A/B that has not finished (tui/cli/lib/pause.h) */
    int changes_fd;                   /* changes of its load go there (background_change_load), 0: nowhere */
    /* only used by jobs of QUEUE_DATABASE */
    int64_t alert_logged;                    /* id of the newest alert that was logged */
    char hashed_path[512], hashed[HASH_HEX]; /* the model file hashed last, and its hash */
};

/* For jobs: what was written between the two is published. background_unlock_if(), changed false: nothing was
 * written, so no frame copies it again. background_unlock_running(): only what comes before `machine_known`.
 */
void background_lock(struct background *b);
void background_unlock(struct background *b);
void background_unlock_if(struct background *b, bool changed);
void background_unlock_running(struct background *b);

/* The caller owns *out. Errors: ERR_NOMEM. */
enum err_code background_open(struct background **out, const char *db_path, struct err *why);
void background_close(struct background *b); /* stops the sampler; accepts NULL */

/* Append a line to the log pane. Any thread. */
void background_log(struct background *b, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Append an event of an experiment. Any thread. */
void background_log_event(struct background *b, int64_t unix_ms, const char *kind, const char *text);
/* Append a line to the log and show it in the status line. Any thread. */
void background_announce(struct background *b, bool is_error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* What is known about the machine; the path of the model on screen. Copies. */
struct known_machine {
    struct machine machine;
    struct machine_ceilings ceilings;
    bool machine_known, ceilings_known;
};
struct known_machine background_machine(struct background *b);
void background_model(struct background *b, char path[MODEL_PATH]);

/* ---------------------------------------------------------------- for the drawing thread */

/* Copy what jobs know into *s, and leave the rest of it. background_refresh(): only the parts that have
 * changed since the versions in *seen. Returns those that were copied. */
struct known_copied {
    bool running, facts;
};
void background_copy(struct background *b, struct snapshot *s);
struct known_copied background_refresh(struct background *b, struct snapshot *s, struct known_versions *seen);

/* Each returns what a job left for the drawing thread, once. False: nothing. */
bool background_take_loaded(struct background *b, struct experiment_state *out, bool *live);
bool background_take_message(struct background *b, char *text, size_t size, bool *is_error);

/* The running sampler, NULL for none. */
struct sampler_thread *background_sampler(struct background *b);

/* Queue the job of a command, and publish at once that it runs, so that nothing else starts before. False:
 * the queue is full. */
bool background_claim_command(struct background *b, struct jobs *queue, const struct job *j);

/* Send SIGINT to the running command. False: none runs. background_end_command(): only once. */
bool background_cancel_command(struct background *b);
bool background_end_command(struct background *b);
/* Pause or continue the A/B that the command measures. False: no command runs, or there is nothing to pause:
 * its A/B has not begun to report, or has finished. */
bool background_pause_command(struct background *b, bool pause);
/* Change the load that it measures, as experiment_change_load() does. False: it does not listen. */
bool background_change_load(struct background *b, double rate_by, const char *settings);

/* A new number for a folder request; it cancels the requests before. */
int64_t background_want_folder(struct background *b);

/* From now on the texts with this form_hash() are to be checked: a check of others publishes nothing any
 * more. */
void background_want_check(struct background *b, uint64_t hash);

/* The filter with which jobs read the history from now on, "" for none; each job drops the runs that it was
 * reading with another one. */
void background_filter_history(struct background *b, const char *filter);

/* ---------------------------------------------------------------- jobs, and their arguments */

void job_detect_machine(struct background *b, const struct job *j); /* identity, stored limits, sampler */
void job_read_model(struct background *b, const struct job *j);     /* text: path */
void job_advise(struct background *b,
                const struct job *j); /* text: model; the limits of the machine are known */
void job_find_busiest(struct background *b, const struct job *j);   /* publishes busy.by */
void job_predict_limits(struct background *b, const struct job *j); /* experiment: its first two arms */
void job_read_history(struct background *b, const struct job *j);
void job_read_runs(struct background *b, const struct job *j);   /* the list of runs alone */
void job_delete_run(struct background *b, const struct job *j);  /* id */
void job_restore_run(struct background *b, const struct job *j); /* id */
void job_purge_runs(struct background *b, const struct job *j);  /* rows of runs deleted long ago */
void job_load_run(struct background *b, const struct job *j);    /* id */
void job_push(struct background *b, const struct job *j);        /* id; command */
void job_flush_spool(struct background *b, const struct job *j);
void job_read_server(struct background *b, const struct job *j);
void job_change_server(struct background *b, const struct job *j); /* text: config line of what changes */
/* command; id 1: open its output when it ends */
void job_run_command(struct background *b, const struct job *j);
/* command: one that only reads, beside what else runs; text: title of the page that its output becomes */
void job_read_command(struct background *b, const struct job *j);
void job_list_folder(struct background *b,
                     const struct job *j); /* text: path; id of background_want_folder() */
void job_check_form(struct background *b, const struct job *j); /* form; text: model; id: its form_hash() */
void job_estimate_lines(struct background *b, const struct job *j); /* form: of an A/B; text: model */

/* ---------------------------------------------------------------- parts of jobs */

/* The A/B that a command measures (jobs_ab.c): {0}, a call for each object "ab" of its lines of progress, and
 * ab_watch_end() when it has ended. ab_watch_publish(): shows it then; the
 * lock is held. */
struct ab_watch {
    bool known;                     /* there is one */
    struct experiment_state *state; /* owned */
    struct db *db;                  /* owned */
    int64_t loaded_run, loaded_ns;  /* what was read of the database, or was to be read, and when */
    int64_t load_ns;                /* how long that took */
    char unread[256];               /* why that failed; "": it did not */
    bool is_old;                    /* more was stored since */
    int64_t block;
    char phase[16];
};
void ab_watch_line(struct background *b, struct ab_watch *w, const json_t *ab);
struct command_end {
    bool cancelled;
    int status;       /* as shell_run() gives it */
    const char *last; /* what it wrote last, "": nothing */
};
void ab_watch_end(struct background *b, struct ab_watch *w, const struct command_end *end);
void ab_watch_publish(struct background *b, const struct ab_watch *w);
void ab_watch_announce(struct background *b, const struct ab_watch *w);
void ab_watch_close(struct ab_watch *w);
/* Show a run. live: a command of this dashboard measures it. */
void background_publish_run(struct background *b, const struct experiment_state *s, bool live);

/* Run a command that changes nothing on this machine beside what else runs; its output goes to *page. */
enum err_code background_run_beside(struct background *b, struct text_page *page, const struct words *command,
                                    int *status, struct err *why);
/* Publish what the database holds about the model on screen: quality, latencies, sensitivity. */
void background_read_results(struct background *b, struct db *d);
void background_read_baselines(struct background *b, struct db *d);
/* Publish the stored limits of the machine where they are newer: a command may have measured them. */
void background_read_limits(struct background *b);
/* Compute the advice on screen again, with what was measured since; nothing if there is none. */
void background_refresh_advice(struct background *b);
/* Publish the rows of the history found with this filter, or why they cannot be read; nothing if another
 * filter applies meanwhile. */
void background_publish_runs(struct background *b, const char *filter, const struct run_row *rows, int n,
                             const char *error);
/* Publish the last runs of the models with these hashes on this machine. */
void background_read_home(struct background *b, struct db *d, const char (*sha)[HASH_HEX], int models);
struct run_line run_line_of(const struct run_row *r);
struct stopped_run stopped_run_of(const struct run_row *r);
/* Publish the config line that is applied to the model on screen (`qdyno apply`). */
void background_read_applied(struct background *b);
void background_publish_page(struct background *b, const struct text_page *p); /* gives it a new number */

#endif
