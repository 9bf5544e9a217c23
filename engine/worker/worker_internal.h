/* engine/worker/worker_internal.h - the worker's two halves: the channel, and what the requests do. */
#ifndef QDYNO_ENGINE_WORKER_INTERNAL_H
#define QDYNO_ENGINE_WORKER_INTERNAL_H

#include "engine/config/config.h"
#include "engine/worker/worker.h"

/* Lines in, lines out, over one socket. */
struct channel {
    int fd;
    struct str in;      /* bytes received and not yet taken */
    size_t scanned;     /* of `in` without a newline so far */
    bool closed;        /* the other end is gone */
    bool cancelled;     /* a cancel came since the current request began */
    bool go;            /* a "go" came that nobody has taken yet */
    int64_t request_id; /* echoed in every answer; -1 when the request had none */
};

/* The next request line, waiting for it. *line owned; NULL at end of file. ERR_IO, ERR_FORMAT (line too
 * long). */
enum err_code channel_read(struct channel *c, char **line, struct err *why);

/* Look for a cancel or an end of file without waiting; other requests stay where they are. True: stop. */
bool channel_stop(struct channel *c);

/* Wait for a "go". False: stop. */
bool channel_wait_go(struct channel *c);

/* One line out; takes the reference. A vanished reader only sets `closed`. */
void channel_send(struct channel *c, json_t *object);
void channel_done(struct channel *c);

/* {"id":..,"event":name}, {"id":..,"ok":true}, and the answer to a failure. */
json_t *channel_event(const struct channel *c, const char *name);
json_t *channel_ok(const struct channel *c);
void channel_fail(struct channel *c, const struct err *why);

struct worker {
    struct channel channel;
    struct model *model; /* NULL before open */
    struct trial *trial; /* instead of it: open with "train" */
    char sha256[HASH_HEX];
    const struct log *log;
};

/* Requests: each answers exactly once, by channel_send(ok) itself or by returning an error that the caller
 * sends. */
enum err_code worker_open(struct worker *w, const json_t *request, struct err *why);
enum err_code worker_cell(struct worker *w, const json_t *request, struct err *why);
enum err_code worker_generate(struct worker *w, const json_t *request, struct err *why);
enum err_code worker_quality(struct worker *w, const json_t *request, struct err *why);
/* Will a reference of `wanted` bytes and the open model's `mapped` file be in memory together? Pages of a
 * mapped file count as available, because the kernel can take them back: from a model that is about to be
 * read it must not. ERR_FIT with the numbers; available -1: unknown, and fine. */
enum err_code worker_quality_fits(int64_t wanted, int64_t mapped, int64_t available, struct err *why);

/* ERR_USAGE unless a model is open. */
enum err_code worker_needs_model(const struct worker *w, struct err *why);

/* The callback of model_open: {"event":"progress"} ten times a second at most; arg is a struct open_progress.
 */
struct open_progress {
    struct worker *w;
    int64_t started_ns, told_ns;
};
bool worker_tell_open(void *arg, const char *phase, double done);

/* What the process has used so far, and the figures of an answer since then: worker_requests.c. */
struct usage {
    double cpu_s;
    int64_t major_faults, minor_faults, voluntary_switches, involuntary_switches;
};
struct usage usage_now(void);
void usage_put(json_t *o, struct usage before);
/* From here on the peak is that of what follows: reading a source file to quantize or to hash it is not what
 * running the arm takes. Where the kernel does not allow it the peak stays that of the whole process. */
void usage_reset_peak(void);

/* open and cell of a worker that trains from nothing: worker_train.c. */
enum err_code worker_open_trial(struct worker *w, const struct config *c, struct err *why);
enum err_code worker_train(struct worker *w, const struct workload *load, uint64_t seed, struct err *why);

/* One more of an answer's "spans": when a phase ran (clock_ns). */
void worker_put_span(json_t *answer, const char *name, int64_t from_ns, int64_t to_ns);

/* {"event":"progress",...} and whether to go on. */
json_t *worker_progress_event(const struct worker *w, const char *phase, int64_t done, int64_t of,
                              double seconds); /* not sent yet */
bool worker_progress(struct worker *w, const char *phase, int64_t done, int64_t of, double seconds);

#endif
