/* engine/worker/worker_internal.h - the channel of a worker and its requests, for the files of engine/worker.
 */
#ifndef QDYNO_ENGINE_WORKER_INTERNAL_H
#define QDYNO_ENGINE_WORKER_INTERNAL_H

#include "engine/config/config.h"
#include "engine/parallel/parallel.h"
#include "engine/text/text.h"
#include "engine/worker/kept_fill.h"
#include "engine/worker/worker.h"

/* Lines in both directions over one socket. */
struct channel {
    int fd;
    struct str in;      /* bytes received; those before `start` are processed */
    size_t start;       /* the first line that is not processed */
    size_t scanned;     /* from `start` to here there is no newline */
    size_t looked;      /* from `start` to here are requests that wait for the end of the running one */
    bool closed;        /* the parent closed its end */
    bool cancelled;     /* "cancel" was received during the current request */
    bool go;            /* "go" was received and not used yet */
    json_t *change;     /* the last "change" that was received and not used yet; NULL: none */
    int64_t request_id; /* repeated in every answer; -1: the request had none */
};

/* Wait for the next request line. *line owned: free; NULL: end of file. ERR_IO, ERR_FORMAT (line too long),
 * ERR_NOMEM. */
enum err_code channel_read(struct channel *c, char **line, struct err *why);

/* Check for "cancel" and end of file without waiting; other requests stay in the buffer. True: stop the
 * request. */
bool channel_stop(struct channel *c);

/* The last "change" of the running request, once. New reference; NULL: none. */
json_t *channel_take_change(struct channel *c);

/* Wait for "go". False: stop the request. */
bool channel_wait_go(struct channel *c);

/* Send an object as one line; steals the reference. If the parent is gone, only sets `closed`. */
void channel_send(struct channel *c, json_t *object);
void channel_done(struct channel *c);

/* New objects {"id":..,"event":name} and {"id":..,"ok":true}; channel_fail sends the answer to a failed
 * request. */
json_t *channel_event(const struct channel *c, const char *name);
json_t *channel_ok(const struct channel *c);
void channel_fail(struct channel *c, const struct err *why);

/* What each rank of the model used (parallel=); n = 0: none. */
struct ranks_usage {
    int n;
    struct rank_usage rank[RANKS_MAX];
};

struct worker {
    struct channel channel;
    struct model *model;   /* NULL: before the request "open" */
    struct kept_fill kept; /* in the cache of the model, for the next cell */
    struct trial *trial;   /* instead of a model, after "open" with "train" */
    char sha256[HASH_HEX];
    const struct log *log;
    struct ranks_usage ranks_begin; /* when the running cell began (ranks_cell_begin) */
    int64_t ranks_told_ns;          /* when the parent was told of the ranks */
};

/* The requests. Each one sends its result (channel_ok), or returns an error, which the caller sends. */
enum err_code worker_open(struct worker *w, const json_t *request, struct err *why);
enum err_code worker_cell(struct worker *w, const json_t *request, struct err *why);
enum err_code worker_generate(struct worker *w, const json_t *request, struct err *why);
enum err_code worker_quality(struct worker *w, const json_t *request, struct err *why);
/* Do a reference of `wanted` bytes and the open model's `mapped` file fit in memory together? The kernel
 * counts pages of a mapped file as available, but this model's pages are about to be read, so they must stay.
 * ERR_FIT, with the numbers. available -1: unknown, no error. */
enum err_code worker_quality_fits(int64_t wanted, int64_t mapped, int64_t available, struct err *why);

/* Add "autotune_s" to an answer, and "autotune" if opening that model measured kernels. */
void worker_put_autotune(json_t *answer, const struct model *m);

/* ERR_USAGE unless a model is open. */
enum err_code worker_needs_model(const struct worker *w, struct err *why);

/* Progress callback of model_open: sends {"event":"progress"} at most ten times a second; arg is a struct
 * open_progress. */
struct open_progress {
    struct worker *w;
    int64_t started_ns, reported_ns;
};
bool worker_report_open(void *arg, const char *phase, double done);

/* Resources that this process has used so far; usage_put writes the difference to an earlier reading into a
 * result. */
struct usage {
    double cpu_s;
    int64_t major_faults, minor_faults, voluntary_switches, involuntary_switches;
};
struct usage usage_now(void);
void usage_put(json_t *o, struct usage before);

/* worker_ranks.c: the same for each rank of the model. A cell starts with ranks_cell_begin. ranks_usage_put
 * follows usage_put: it writes the list "ranks" and adds them to processor time and memory.
 * ranks_progress_put adds the list to a progress event, at most once a second: each rank must answer for it.
 */
void ranks_cell_begin(struct worker *w);
void ranks_usage_put(json_t *o, struct worker *w);
void ranks_progress_put(json_t *o, struct worker *w);
/* Reset the peak memory to the current use, so that reading a file to quantize or hash it does not count for
 * the arm. If the kernel does not allow it, the peak remains that of the whole process. */
void usage_reset_peak(void);

/* The requests "open" and "cell" of a worker that trains (worker_train.c). */
enum err_code worker_open_trial(struct worker *w, const struct config *c, struct err *why);
enum err_code worker_train(struct worker *w, const struct workload *load, uint64_t seed, struct err *why);

/* The request "cell" for a workload of requests that come and go (worker_load.c). */
enum err_code worker_load(struct worker *w, const struct workload *load, uint64_t seed, struct err *why);

/* worker_profile.c: prepare the profiles both[2] of a cell (struct cell_hooks); write them into the cell's
 * result (NULL: there is none) and free them. Errors: those of profile_init; ERR_USAGE for a workload without
 * prompt and decode steps. */
enum err_code worker_profile_begin(struct pass_profile *both, const struct worker *w,
                                   const struct workload *load, struct err *why);
void worker_profile_end(json_t *o, struct pass_profile *both);

/* Append to a result's "spans": when a phase ran (clock_ns). */
void worker_put_span(json_t *answer, const char *name, int64_t from_ns, int64_t to_ns);

/* A progress event; worker_progress also sends it and returns whether to continue. */
json_t *worker_progress_event(const struct worker *w, const char *phase, int64_t done, int64_t of,
                              double seconds); /* new reference, not sent */
bool worker_progress(struct worker *w, const char *phase, int64_t done, int64_t of, double seconds);

#endif
