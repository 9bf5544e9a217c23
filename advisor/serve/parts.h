/* advisor/serve/parts.h - internal: what the files of this folder share. */
#ifndef QDYNO_ADVISOR_SERVE_PARTS_H
#define QDYNO_ADVISOR_SERVE_PARTS_H

#include <jansson.h>
#include <pthread.h>

#include "advisor/serve/serve.h"
#include "advisor/serve/share.h"
#include "advisor/serve/tools.h"
#include "engine/serve/serve.h"
#include "engine/text/text.h"

struct chat;

/* ---------------------------------------------------------------- what clients are refused with (refusal.c)
 */

/* An error in OpenAI's form. */
struct refusal {
    int status; /* of HTTP */
    const char *code;
    char param[48]; /* the field of the request that is wrong; "": none */
    char message[600];
    int retry_after_s; /* 0: no such header */
};
/* Fills *out and returns false, for statements such as `return refuse(...)`. param NULL: none. After an
 * allocation failed unnoticed (base/memory.h), the refusal is a consequence of that: status 500,
 * "out_of_memory"; the thread is then no longer short of memory. */
bool refuse(struct refusal *out, int status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* {"error": {"message", "type", "param", "code"}}. New reference. */
json_t *refusal_json(const struct refusal *r);

/* ---------------------------------------------------------------- requests (ask.c) */

enum endpoint { ENDPOINT_COMPLETIONS, ENDPOINT_CHAT, ENDPOINT_TOKENIZE, ENDPOINT_DETOKENIZE };

enum { STOPS_MOST = 4, CHOICES_MOST = 128 };
/* What the body of a request says. Pointers go into `body`. */
struct ask {
    enum endpoint endpoint;
    json_t *body;
    const char *model;                        /* NULL: not given */
    const json_t *prompt;                     /* a text, a list of ids, or a list of these; not empty */
    json_t *messages;                         /* owned: texts in place of lists of parts */
    const json_t *tools, *template_variables; /* NULL: not given */
    const json_t *tokens;                     /* a list of ids, to detokenize */
    const char *stop[STOPS_MOST];
    int64_t stops;
    int64_t most, least; /* tokens to generate; most -1: not given */
    int64_t choices, best_of, seed, priority, top_k, repeat_last;
    double temperature, top_p, min_p, repeat_penalty;
    int64_t top; /* log-probabilities of so many tokens; -1: none */
    bool stream, usage, usage_always, ignore_end, add_special, seed_given, no_tools;
};
/* False: *no says what is wrong. ask_free in any case. Pure. */
bool ask_parse(struct ask *out, enum endpoint endpoint, const char *body, size_t n, struct refusal *no);
void ask_free(struct ask *a);
/* Names of all fields, for a test; NULL behind the last. */
const char *ask_field_name(size_t i);

/* ---------------------------------------------------------------- stop strings (held.c) */

/* Text that is being generated: bytes leave it when they can no longer become part of a stop string, and
 * characters when they are complete. */
struct held {
    const char *const *stop; /* [stops], borrowed; each is valid UTF-8 and not empty */
    int stops;
    struct str kept;
    bool stopped;  /* a stop string was found: it and what follows are no part of the text */
    size_t length; /* bytes that left it; with `stopped`: of the whole text */
};
/* Adds bytes, and appends to *out what leaves. */
void held_push(struct held *h, const char *bytes, size_t n, struct str *out);
/* The text has ended: appends the rest. */
void held_finish(struct held *h, struct str *out);
void held_free(struct held *h);

/* ---------------------------------------------------------------- one request to generate */

/* A token with its log-probabilities, until it is sent. */
struct note {
    int32_t token;
    size_t at; /* where its bytes begin in the text */
    size_t bytes;
    float logprob;
    int top_count;
    struct token_chance top[SERVING_TOP_MOST];
};

/* Characters of a text that comes in pieces. */
struct character_count {
    size_t characters; /* complete */
    char begun[4];     /* [n] bytes of the next one */
    size_t n;
};

/* One choice of a request. Used by the engine's thread only, after it was prepared. */
struct answer {
    struct call *call;
    int index, prompt;
    int64_t id; /* of serving.h */
    struct held held;
    struct str ready; /* text that was not sent yet */
    struct tool_reader reader;
    json_t
        *calls; /* of tools, in OpenAI's form; those that were not sent yet. NULL: the request has no tools */
    int call_count;
    struct note *notes;
    int note_count, note_cap;
    size_t bytes;                 /* of all tokens so far */
    struct character_count noted; /* of the tokens whose notes were sent, for text_offset */
    int made, cached, preemptions;
    double *gaps; /* [gap_count] seconds between its tokens; only with limits */
    int gap_count, gap_cap;
    bool begun, closed; /* the client of a stream has its first, its last event */
    bool ended;
    const char *finish;                     /* "stop" "length" "tool_calls"; NULL: not ended */
    int64_t admitted_ns, first_ns, last_ns; /* 0: not yet */
};

enum call_stage { CALL_PREPARING, CALL_WAITING, CALL_RUNNING, CALL_ENDED };

/* A request from its last byte to the last byte of its answer. Belongs to one thread at a time: the
 * connections' until it is queued, then the preparing thread's, then the engine's; when it has ended, the
 * connections' again. Members marked L are guarded by server.lock. */
struct call {
    struct call *next;       /* in the queue of its stage: L */
    struct call *next_ready; /* L */
    bool is_ready;           /* L: in the list of those that the connections' thread has to look at */
    struct str body;         /* of the request, until it is parsed */
    struct ask ask;
    struct token_list *prompts; /* [prompt_count] */
    int prompt_count;
    struct answer *answers; /* [answer_count] */
    int answer_count, left; /* left: answers that have not ended */
    char id[48];
    int64_t created; /* Unix seconds */
    int64_t arrived_ns, ended_ns;
    bool generates;        /* completions and chat; others are only prepared */
    enum call_stage stage; /* L */
    int level;             /* the engine's: the config that computes it */
    bool gone;             /* L: the client went away */
    struct refusal no;     /* status 0: none. Written before the stage becomes CALL_ENDED */
    struct str pending;    /* the engine's: text for the client that is not in `out` yet */
    struct call *next_touched;
    bool touched;
    struct str out; /* L: text for the client; failed: some is missing, so that a stream has to be cut off */
    bool streaming; /* L: `out` is the beginning of a stream of events; else it is the whole document */
    void *exchange; /* the connections' thread: who waits for it; NULL: nobody any longer */
};
/* With a random name that begins so. NULL: no memory. */
struct call *call_open(const char *begin);
void call_free(struct call *c);

/* When things happened and how many, over all answers: from the first event of any to the last event of any.
 * A prompt counts once, however many answers it has; in `computed` it counts for each. */
struct call_sums {
    int64_t admitted_ns, first_ns, last_ns; /* 0: not yet */
    int64_t prompt, cached, made;
    int64_t computed, found; /* prompt tokens that were computed, and that the prefix cache had */
};
struct call_sums call_sum(const struct call *c);

/* ---------------------------------------------------------------- documents (reply.c) */

/* Generated bytes as a text: what is not UTF-8 becomes U+FFFD; zeros are kept. New reference. */
json_t *reply_text(const char *bytes, size_t n);
/* Read text that left a->held: what is text goes to a->ready, calls of tools to a->calls. ended: the answer
 * has. */
void reply_read_calls(struct answer *a, const struct str *text, bool ended);
/* The whole answer as a document. Takes the text and notes of all answers. */
json_t *reply_document(const struct server *s, struct call *c);
/* Append the events of one answer: its text so far, and its end. Nothing if there is nothing new. */
void reply_stream_answer(const struct server *s, struct call *c, struct answer *a);
/* Append the last events: usage, if it is wanted, and the end. */
void reply_stream_end(const struct server *s, struct call *c);
/* Append a document between two texts; out->failed: it is missing. Takes the reference. */
void reply_line(struct str *out, const char *before, json_t *document, const char *after);
/* Append one event. Takes the reference. */
void reply_event(struct str *out, json_t *document);

/* ---------------------------------------------------------------- the server */

struct call_list {
    struct call *first, *last;
};

/* What happened so far: L. */
struct tally {
    struct serve_figures all; /* without what `now`, `live` and the server's gauges say */
    struct serve_level at[SERVE_LEVELS];
    struct scheduler_counts now;
    struct live live;  /* its counts of requests and tokens are those of `all` */
    json_t *occupancy; /* of the KV cache, at most LOOK_MS old while something runs */
};

struct connections;
struct spans;
struct server {
    struct server_options o;
    const struct tokenizer *tokenizer;
    struct tokenizer_info vocabulary;
    struct chat *chat;                   /* NULL: no template */
    const struct tool_style *tool_style; /* NULL: unknown */
    int ctx;                             /* most tokens of a request, prompt and answer */
    int64_t started;                     /* Unix seconds */
    int64_t started_ns;
    struct serve_figures *base; /* of earlier processes in its slot; NULL: none */
    struct connections *connections;
    struct spans *spans;
    struct serving *serving[SERVE_LEVELS]; /* [levels] the engine's thread, from its start on */
    int levels;

    pthread_mutex_t lock;
    pthread_cond_t prepare_wake, engine_wake;
    /* from here on L */
    struct call_list to_prepare, to_run;
    struct call *ready; /* linked by next_ready */
    int open, waiting;  /* calls that generate: not ended; of these, before their first step */
    bool any_gone;      /* the engine has to look for them */
    bool change_wanted; /* of settings: the engine takes `change` over before its next step */
    struct config change;
    int level; /* of new requests */
    bool draining, stopping, retiring;
    bool failed;
    struct err failure;
    struct tally tally;

    pthread_t prepare_thread, engine_thread;
    bool has_prepare, has_engine;
};

/* The functions below are called without the lock, except where they say so. */

/* serve.c: hand a request to the preparing thread, and count it. False: *no says why not; it was counted, and
 * is still the caller's. */
bool server_take(struct server *s, struct call *c, struct refusal *no);
/* serve.c: the request has ended, with its answer in `out` or the reason in `no`. It belongs to the
 * connections' thread from now on. Counted if it generates. */
void server_end(struct server *s, struct call *c, enum serve_outcome outcome);
/* serve.c: the connections' thread looks at it. With the lock. */
void server_ready_locked(struct server *s, struct call *c);
/* serve.c: count a request to generate that was refused before it became a call. */
void server_count_refused(struct server *s);
void call_list_add(struct call_list *l, struct call *c);
struct call *call_list_take(struct call_list *l); /* the first; NULL: empty */

/* share.c, the first two with the lock. The figures of this process and of earlier ones in its slot. */
void server_figures_locked(const struct server *s, struct serve_figures *out);
/* After they changed: for the other processes. */
void server_publish_locked(struct server *s);
/* The figures of all processes. */
void server_sum(struct server *s, struct serve_figures *out);
/* serve.c: the part of figures that server_state has. */
struct server_state server_state_of(const struct serve_figures *f);

/* slo.c. False: no memory. */
bool slo_note_gap(const struct server *s, struct answer *a, double seconds);
/* Was a completed request within all limits? Orders its gaps. */
bool slo_is_met(const struct server *s, const struct call *c);

/* serve.c: for threads that work for some microseconds at a time. While all processors compute, Linux lets
 * them wait for milliseconds before they get one, which is then part of every time that clients see. From
 * Linux 6.12 on, a thread that asks for short slices is let in at once; older versions ignore it. */
void thread_asks_for_short_slices(void);

void *prepare_main(void *server); /* prepare.c */
void *engine_main(void *server);  /* engine.c */

/* page.c: the page for Prometheus, and the answer of /health. */
void page_write(struct server *s, struct str *out, struct err *bad);
json_t *page_health(struct server *s, bool with_figures);
/* What the server is doing, for screens. */
json_t *page_load(struct server *s);
/* Change settings: a JSON object of config keys and values. NULL: *no says why not. */
json_t *page_settings(struct server *s, const char *body, size_t n, struct refusal *no);
json_t *page_models(const struct server *s, const char *name); /* name NULL: the list; NULL: no such model */

/* http.c */
enum err_code connections_start(struct connections **out, struct server *s, int *port, struct err *why);
void connections_wake(struct connections *h); /* from any thread: look at server.ready */
int connections_count(struct connections *h); /* from any thread */
/* Sends what is ready, waits a moment for slow clients, ends the thread. All calls have ended. */
void connections_stop(struct connections *h); /* NULL is fine */

/* spans.c */
enum err_code spans_start(struct spans **out, const struct server *s, struct err *why);
/* NULL is fine. A full queue drops it, which is logged. */
void spans_add(struct spans *s, const struct call *c, enum serve_outcome outcome);
void spans_stop(struct spans *s); /* NULL is fine. Sends the rest */

#endif
