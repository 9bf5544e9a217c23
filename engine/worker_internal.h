/* engine/worker_internal.h - the worker's two halves: the channel, and what the requests do. */
#ifndef QDYNO_ENGINE_WORKER_INTERNAL_H
#define QDYNO_ENGINE_WORKER_INTERNAL_H

#include "engine/engine.h"

/* Lines in, lines out, over one socket. */
struct channel {
    int fd;
    struct str in;      /* bytes received and not yet taken */
    size_t scanned;     /* of `in` without a newline so far */
    bool closed;        /* the other end is gone */
    bool cancelled;     /* a cancel came since the current request began */
    int64_t request_id; /* echoed in every answer; -1 when the request had none */
};

/* The next request line, waiting for it. *line owned; NULL at end of file. ERR_IO, ERR_FORMAT (line too
 * long). */
enum err_code channel_read(struct channel *c, char **line, struct err *why);

/* Look for a cancel or an end of file without waiting; other requests stay where they are. True: stop. */
bool channel_stop(struct channel *c);

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
    char sha256[HASH_HEX];
    const struct log *log;
};

/* Requests: each answers exactly once, by channel_send(ok) itself or by returning an error that the caller
 * sends. */
enum err_code worker_open(struct worker *w, const json_t *request, struct err *why);
enum err_code worker_cell(struct worker *w, const json_t *request, struct err *why);
enum err_code worker_generate(struct worker *w, const json_t *request, struct err *why);
enum err_code worker_quality(struct worker *w, const json_t *request, struct err *why);

/* ERR_USAGE unless a model is open. */
enum err_code worker_needs_model(const struct worker *w, struct err *why);

/* The callback of model_open: {"event":"progress"} ten times a second at most; arg is a struct open_progress.
 */
struct open_progress {
    struct worker *w;
    int64_t started_ns, told_ns;
};
bool worker_tell_open(void *arg, const char *phase, double done);

/* {"event":"progress",...} and whether to go on. */
bool worker_progress(struct worker *w, const char *phase, int64_t done, int64_t of, double seconds);

#endif
