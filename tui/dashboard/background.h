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

struct background {
    const char *db_path;                 /* borrowed, constant */
    const char *server_url, *server_key; /* borrowed, constant; NULL: none */
    struct log log;                      /* constant; its lines go to background_log() */
    pthread_mutex_t lock;
    /* under the lock */
    struct snapshot known;           /* the part of the snapshot that jobs write */
    int64_t version;                 /* of `known`: it counts changes */
    struct sampler_thread *sampler;  /* NULL until it runs */
    bool sampler_tried;              /* it runs or failed to start: experiments may begin */
    struct experiment_state *loaded; /* a run read from the database, for background_take_loaded(); owned */
    struct experiment *started;      /* for background_take_started(); owned */
    char message[256];               /* for the status line, for background_take_message() */
    bool message_is_error;
    int64_t folder_wanted;            /* number of the newest request for a folder */
    uint64_t check_wanted;            /* form_hash() of the newest check; set by background_want_check() */
    char history_filter[FILTER_TEXT]; /* set by background_filter_history() */
    int command_pid;                  /* process of the running command, 0: none */
    /* only used by jobs of QUEUE_DATABASE */
    int64_t alert_logged;                    /* id of the newest alert that was logged */
    char hashed_path[512], hashed[HASH_HEX]; /* the model file hashed last, and its hash */
};

/* For jobs: what was written between the two is published. background_unlock_if(), changed false: nothing was
 * written, so no frame copies it again. */
void background_lock(struct background *b);
void background_unlock(struct background *b);
void background_unlock_if(struct background *b, bool changed);

/* The caller owns *out. Errors: ERR_NOMEM. */
enum err_code background_open(struct background **out, const char *db_path, struct err *why);
void background_close(struct background *b); /* stops the sampler; accepts NULL */

/* Append a line to the log pane. Any thread. */
void background_log(struct background *b, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Append an event of an experiment (experiment_deps.on_event). Any thread. */
void background_log_event(void *background, const char *kind, const char *text);
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

/* Copy what jobs know into *s, and leave the rest of it. background_refresh(): only if it has changed since
 * the version in *seen, or the caller has changed its copy. Returns whether it was copied. */
void background_copy(struct background *b, struct snapshot *s);
bool background_refresh(struct background *b, struct snapshot *s, int64_t *seen, bool changed);

/* Each returns what a job left for the drawing thread, once. background_take_started(): owned by the caller,
 * NULL for none; the others: false for none. */
struct experiment *background_take_started(struct background *b);
bool background_take_loaded(struct background *b, struct experiment_state *out);
bool background_take_message(struct background *b, char *text, size_t size, bool *is_error);

/* The running sampler, NULL for none. tried (may be NULL): it runs or could not be started. */
struct sampler_thread *background_sampler(struct background *b, bool *tried);

/* Publish at once that something is about to start, so that nothing else starts before its job runs: an
 * experiment, the machine probe, a command. background_claim_command() also queues the job; false: the queue
 * is full. */
void background_set_starting(struct background *b);
void background_reserve_probe(struct background *b);
bool background_claim_command(struct background *b, struct jobs *queue, const struct job *j);

/* Send SIGINT to the running command. False: none runs. */
bool background_cancel_command(struct background *b);

/* A new number for a folder request; it cancels the requests before. */
int64_t background_want_folder(struct background *b);

/* From now on the texts with this form_hash() are to be checked: a check of others publishes nothing any
 * more. */
void background_want_check(struct background *b, uint64_t hash);

/* The filter with which jobs read the history from now on, "" for none; each job drops the runs that it was
 * reading with another one. */
void background_filter_history(struct background *b, const char *filter);

/* ---------------------------------------------------------------- jobs, and their arguments: text[0] and
 * others */

void job_detect_machine(struct background *b, const struct job *j); /* identity, stored limits, sampler */
void job_read_model(struct background *b, const struct job *j);     /* 0 path */
void job_advise(struct background *b,
                const struct job *j); /* 0 model; measures the machine first if needed */
void job_find_busiest(struct background *b, const struct job *j);   /* publishes busy.by */
void job_predict_limits(struct background *b, const struct job *j); /* experiment: its first two arms */
void job_read_history(struct background *b, const struct job *j);
void job_read_runs(struct background *b, const struct job *j);   /* the list of runs alone */
void job_delete_run(struct background *b, const struct job *j);  /* id */
void job_restore_run(struct background *b, const struct job *j); /* id */
void job_purge_runs(struct background *b, const struct job *j);  /* rows of runs deleted long ago */
void job_load_run(struct background *b, const struct job *j);    /* id */
/* experiment; 0 the text for its quality: "" none, "yes" the model's, else a path */
void job_start_experiment(struct background *b, const struct job *j);
void job_push(struct background *b, const struct job *j); /* id; 0 address */
void job_flush_spool(struct background *b, const struct job *j);
void job_read_server(struct background *b, const struct job *j);
void job_change_server(struct background *b, const struct job *j); /* 0 config line of what changes */
/* command; id 1: open its output when it ends */
void job_run_command(struct background *b, const struct job *j);
/* command: one that only reads, beside what else runs; 0 title of the page that its output becomes */
void job_read_command(struct background *b, const struct job *j);
void job_list_folder(struct background *b, const struct job *j); /* 0 path; id of background_want_folder() */
void job_check_form(struct background *b, const struct job *j);  /* form; 0 model; id: its form_hash() */
void job_estimate_lines(struct background *b, const struct job *j); /* form: of an A/B; 0 model */

/* ---------------------------------------------------------------- parts of jobs */

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
