/* advisor/run/http_load.h - a load as HTTP requests to a server: each is sent at its time, also while others
 * are answered, and its answer is timed as its stream arrives. Private to advisor/run/.
 *
 * All times are of this client's clock. Tokens that arrive in one chunk of the stream arrive at the same
 * time. Where that is more than one token in twenty, or the server does not count the tokens of its chunks,
 * the times between tokens are unknown: their percentiles would be about chunks. */
#ifndef QDYNO_ADVISOR_RUN_HTTP_LOAD_H
#define QDYNO_ADVISOR_RUN_HTTP_LOAD_H

#include "advisor/run/foreign.h"
#include "engine/serve/serve.h"

struct http_load_spec {
    const struct load_plan *plan;
    const char *url, *key;          /* key: bearer token; NULL: none */
    double silence_s;               /* without a byte while requests are unanswered: an error */
    const struct load_limit *limit; /* [limits] of each request, for struct live */
    int limits;
    /* The document that is sent for request i. New reference; NULL: out of memory. */
    json_t *(*body)(void *ctx, int i);
    /* Is the complete answer to request i the one that was asked for? ERR_USAGE: it counts as failed. */
    enum err_code (*check)(void *ctx, int i, const struct reply *r, struct err *why);
    void (*answered)(void *ctx, int i, const char *text); /* after a check without an error */
    bool (*progress)(void *ctx, struct load_now *now);    /* every 100 ms, now->serving NULL; false cancels */
    void *ctx;
};

struct http_load_result {
    struct load_result load; /* without figures of the server's steps */
    int64_t tokens,
        bundled;        /* generated tokens; of these, those that came in a chunk after another one's token */
    bool times_unknown; /* too many of them: the times between tokens are NAN */
    double chunk_gap_s; /* median time between two chunks of an answer; NAN: there are none */
    double server_prefill_s;   /* mean over the answers, by the server's clock; NAN: not all have it */
    char failed[240];          /* why the first request that failed did; "" */
    enum err_code failed_code; /* why it failed */
};

/* http_load_result_free also after an error. Errors: ERR_CANCELLED; ERR_ABSENT: the server is silent;
 * ERR_NOMEM; those of http_send before anything is sent. A request that fails is a result (LOAD_FAILED). */
enum err_code http_load_run(struct http_load_result *out, const struct http_load_spec *spec, struct err *why);
void http_load_result_free(struct http_load_result *r);

#endif
