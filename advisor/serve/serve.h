/* advisor/serve/serve.h - an HTTP server with the interface of OpenAI's: many clients share one loaded model.
 *
 * Three threads: one accepts connections, reads requests and writes answers (http.c); one parses requests and
 * turns texts into tokens (prepare.c); one computes (engine.c). So neither a slow client nor a long text
 * delays the tokens of others. A fourth sends spans to a collector, if there is one (spans.c).
 *
 * A server may consist of several processes that accept connections at one socket (share.h).
 *
 * Every request to generate ends as exactly one of enum outcome, also when its client goes away, when the
 * server stops, or when the model fails. Documented for its users in docs/serve.md. */
#ifndef QDYNO_ADVISOR_SERVE_H
#define QDYNO_ADVISOR_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "engine/config/config.h"
#include "telemetry/export/export.h"

struct model;
struct server;
struct share;

/* How a request to generate ended. The names are values of a label in /metrics. */
enum serve_outcome {
    SERVE_COMPLETED,  /* it has its whole answer */
    SERVE_CANCELLED,  /* its client went away before that */
    SERVE_REFUSED,    /* 4xx: the request cannot be */
    SERVE_OVERLOADED, /* 429: too many requests wait */
    SERVE_STOPPED,    /* 503: the server is stopping */
    SERVE_FAILED,     /* 500: the model failed */
    SERVE_OUTCOMES
};
extern const char *const SERVE_OUTCOME_NAMES[SERVE_OUTCOMES];

/* May a server listen there? ERR_USAGE: the address can be reached by others, and there is no key. */
enum err_code server_address_check(const char *address, bool has_key, struct err *why);

enum { SERVE_LEVELS = 8 };
/* What one config did. */
struct serve_level {
    int64_t requests, tokens; /* completed; generated */
    double busy_s;            /* in steps */
};
struct server_options {
    /* More configs of the same model, each cheaper than the one before: server_set_level chooses which one
     * new requests get. more NULL: none. Opened as `model`, with the same vocabulary and context. */
    struct model *const *more; /* [more_count], borrowed */
    int more_count;            /* at most SERVE_LEVELS - 1 */
    struct model *model;       /* borrowed; it was opened with config_int(KNOB_MAX_SEQUENCES) sequences */
    const char *name;          /* of the model, for clients */
    const char *template_file; /* a chat template to use instead of the model's; NULL: the model's */
    const char *listen;        /* address */
    int port;                  /* 0: any free one */
    const char *key;           /* that clients must send; NULL: none, for loopback addresses only */
    int queue;                 /* most requests that wait; more are refused with 429 */
    int64_t body_bytes;        /* largest request */
    const struct load_limit
        *limits; /* [limit_count] for goodput, borrowed; times from the arrival at the server */
    int limit_count;
    const char *otlp; /* a collector for one trace per request; NULL: none */
    /* Of several processes: NULL: this is the only one. Otherwise it has this slot, accepts at the socket
     * `listener`, which its supervisor opened, and answers /metrics, /health and /load for all of them. */
    struct share *share;
    int slot, listener;
    const struct log *log; /* borrowed; may be NULL */
};
/* All strings are borrowed until server_stop. *port (may be NULL): where it listens. Errors: ERR_USAGE (no
 * key, but the address is not loopback; no such address), ERR_ABSENT (the port is in use; the model has no
 * tokenizer), ERR_FORMAT (the template cannot be parsed), ERR_NOMEM; those of serving_open. */
enum err_code server_start(struct server **out, const struct server_options *o, int *port, struct err *why);

/* From now on new requests to generate are refused with 503; those that were accepted go on. */
void server_drain(struct server *s);

/* From now on it accepts no connections and closes each one after its answer or a second without a request.
 * Requests that come until then are answered. For a process whose work others take over. */
void server_retire(struct server *s);

/* From now on new requests, and those that wait, are computed with this config: 0 is `model`, i is more[i -
 * 1]. Requests that were begun end with the config that began them. */
void server_set_level(struct server *s, int level);

struct server_state {
    int64_t outcome[SERVE_OUTCOMES],
        accepted;                           /* accepted: all requests to generate, in whatever way they end */
    int open;                               /* requests to generate that have not ended */
    int connections;                        /* of clients, with or without a request */
    int waiting, running;                   /* of the open ones: before and after their first step */
    bool draining, has_chat;                /* has_chat: there is a chat template */
    int ctx;                                /* most tokens of a request, prompt and answer */
    int blocks, blocks_used, blocks_cached; /* of the KV cache */
    int64_t prompt_tokens, cached_tokens, generated_tokens, preemptions, steps;
    double first_token_s, gap_s; /* times to the first token, and between tokens, summed */
    int64_t first_tokens, gaps;  /* how many */
    int level;                   /* of new requests */
    struct serve_level at[SERVE_LEVELS];
};
void server_read(struct server *s, struct server_state *out);

/* ERR_OK while the server works. Otherwise what the model or its file failed with: nothing more is computed,
 * and only server_stop makes sense. */
enum err_code server_error(struct server *s, struct err *why);

/* Ends all open requests (SERVE_STOPPED): nothing is computed any more. */
void server_end_requests(struct server *s);
/* The same, and ends the server. NULL is fine. */
void server_stop(struct server *s);

/* ---------------------------------------------------------------- several processes (share.c) */

enum { SERVE_PROCESSES = 64 }; /* most processes of a server */

enum scale_change { SCALE_NONE, SCALE_UP, SCALE_DOWN, SCALE_RESTART, SCALE_CHANGES };
/* Values of a label in /metrics. */
extern const char *const SCALE_CHANGE_NAMES[SCALE_CHANGES];

/* A supervisor opens the shared memory before it forks. Each process has a slot, and one process at a time
 * has a slot. Errors: ERR_NOMEM and others of mmap. */
enum err_code share_open(struct share **out, int slots, struct err *why);
void share_close(struct share *sh); /* NULL is fine */

/* The supervisor: before it starts a process; after the process of a slot has ended. Requests that were open
 * then are counted as failed. */
void share_begin(struct share *sh, int slot);
void share_end(struct share *sh, int slot);
/* Ask the process of a slot, or all, to end; they see it by share_phase and share_is_stopping. */
void share_retire(struct share *sh, int slot);
void share_stop(struct share *sh);
bool share_is_stopping(struct share *sh);
void share_count_change(struct share *sh, enum scale_change change);

enum share_phase {
    SHARE_NONE,     /* no process */
    SHARE_STARTING, /* it opens its model */
    SHARE_READY,    /* it answers requests */
    SHARE_RETIRING  /* it has been asked to end */
};
enum share_phase share_phase(struct share *sh, int slot);

struct share_state {
    int ready, starting, retiring; /* processes */
    int sequences;                 /* requests that one computes at a time; 0: none was ready yet */
    int64_t process_bytes;         /* memory that one needs; 0: the same */
    struct server_state sum;       /* over all processes, also those that have ended */
};
void share_read(struct share *sh, struct share_state *out);

/* ---------------------------------------------------------------- how many processes (scale.c) */

struct scale_rule {
    int least, most;   /* processes */
    double waiting;    /* another one is needed when at least so many requests */
    double up_s;       /* have waited for so long; */
    double down_s;     /* one less, when the others could have done the work for so long; */
    double cooldown_s; /* and never sooner than this after the last change */
};
/* "waiting=2,up=5s,down=1m,cooldown=10s": any of these. "2", "1..4". Errors: ERR_USAGE with the part that is
 * wrong. */
enum err_code scale_rule_parse(struct scale_rule *r, const char *text, struct err *why);
enum err_code scale_limits_parse(struct scale_rule *r, const char *text, struct err *why);

struct scale_observation {
    int processes;        /* that answer requests or start */
    int starting;         /* of these, that start */
    int waiting, running; /* requests */
    int sequences;        /* requests that one process computes at a time */
};
struct scale_since {
    bool holds;
    int64_t ns; /* since then */
};
struct scale_state { /* {0} is the start */
    struct scale_since busy, idle;
    bool changed;
    int64_t changed_ns; /* time of the last change */
};
/* Decides, and notes the change in *s as made at `now_ns` (of a monotonic clock). There is no change while a
 * process starts. Returns SCALE_NONE, SCALE_UP or SCALE_DOWN. Pure. */
enum scale_change scale_step(const struct scale_rule *r, struct scale_state *s,
                             const struct scale_observation *o, int64_t now_ns);
/* Seconds to wait before a process that ended unexpectedly is restarted, after so many such ends in
 * succession. Pure. */
double scale_restart_delay_s(int crashes);

#endif
