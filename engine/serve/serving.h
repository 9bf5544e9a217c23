/* engine/serve/serving.h - serves requests with a loaded model: the scheduler's steps, computed.
 *
 * Many requests share one model. Each step computes the rows that the scheduler chose, takes the next token
 * of every request that is far enough, and reports it. The config of the model gives the policies
 * (max_sequences, step_tokens, kv_blocks, prefix_cache, evict, preempt, schedule, itl_limit).
 *
 * With batch_invariant=on a request has the same tokens whatever else is served. Not thread-safe: one thread
 * drives it. */
#ifndef QDYNO_ENGINE_SERVE_SERVING_H
#define QDYNO_ENGINE_SERVE_SERVING_H

#include "engine/serve/scheduler.h"
#include "engine/text/text.h"

struct model;
struct serving;

struct serving_options {
    struct model *model; /* borrowed; it was opened with config_int(KNOB_MAX_SEQUENCES) sequences */
    /* Does this token end an answer? NULL: no token does. */
    bool (*ends)(void *ctx, int32_t token);
    void *ends_ctx;
};
/* Takes over the model's KV cache: until serving_close, nothing else may run the model. *out owned:
 * serving_close. Errors: those of scheduler_open; ERR_USAGE: prefix_cache=on was given, and the model keeps a
 * state that cannot be shared (without being given it is off for such models). */
enum err_code serving_open(struct serving **out, const struct serving_options *o, struct err *why);
void serving_close(struct serving *s); /* NULL is fine */

struct serving_request {
    const int32_t *prompt; /* [n], copied */
    int n;
    int generate; /* most tokens to generate, at least 1 */
    int priority; /* higher: more important */
    struct sampler_options sampling;
    int least;       /* tokens before which none that ends an answer is chosen */
    bool ignore_end; /* goes on after tokens that end an answer */
    int top;         /* log-probabilities of each token and of so many most likely ones; -1: none at all */
    void *user;      /* returned with each token */
};
enum { SERVING_TOP_MOST = 20 };
/* *id: its number. Errors: ERR_USAGE (an empty prompt, a token that the model has not, top), ERR_FIT (it can
 * never fit into the cache), ERR_NOMEM. */
enum err_code serving_submit(struct serving *s, const struct serving_request *r, int64_t *id,
                             struct err *why);

/* What the scheduler knows of a request. NULL: it has ended. */
const struct request *serving_find(const struct serving *s, int64_t id);

/* The request ends without another token. Nothing happens if it has ended already. */
void serving_cancel(struct serving *s, int64_t id);

enum finish {
    FINISH_NONE,   /* it goes on */
    FINISH_END,    /* the model ended the answer: `token` is the token that did and is no part of it */
    FINISH_LENGTH, /* `token` is the last one that was asked for */
    FINISH_FAILED, /* the model computed values that are not numbers; no token */
};
struct token_chance {
    int32_t token;
    float logprob; /* natural logarithm of the softmax of the logits, before temperature */
};
/* The next token of a request, or its end. */
struct serving_token {
    int64_t id;
    void *user;
    int32_t token;
    enum finish finish;
    int index;                      /* of the token among the generated ones, from 0 */
    int cached;                     /* tokens of the prompt that the prefix cache had when it was admitted */
    int preemptions;                /* so far */
    float logprob;                  /* NAN: not asked for */
    const struct token_chance *top; /* [top_count], the most likely first */
    int top_count;
};
struct serving_result {
    const struct serving_token *token; /* [tokens], valid until the next call */
    int tokens;
    int rows, prompt_rows; /* computed in this step, of these in prompts; 0: there was nothing to do */
    int requests;          /* with rows in this step */
    double model_s;        /* seconds of the forward pass and the copies of blocks */
    double seconds;        /* of the whole step: choosing, computing, sampling */
};
/* Run one step. flush: no more requests come (SCHEDULE_STATIC need not wait for a full batch). Where values
 * are not numbers, the requests that cause them end with FINISH_FAILED and the others go on. Errors, after
 * which only serving_close is allowed: those of the device and the model's file, ERR_NOMEM. */
enum err_code serving_step(struct serving *s, bool flush, struct serving_result *out, struct err *why);

/* The settings that can change while requests are served: schedule, evict, preempt, prefix_cache, itl_limit
 * and max_sequences, which can be at most what the model was opened with. */
enum { SERVING_KNOBS_MOST = 6 };
extern const enum knob_id SERVING_KNOBS[SERVING_KNOBS_MOST];
/* They are given in it, and nothing else is. */
const struct config *serving_settings(const struct serving *s);
/* Are the given keys of a config among them? ERR_USAGE: the message names one that is not. */
enum err_code serving_keys_check(const struct config *changes, struct err *why);
/* Can what is given in a config change? ERR_USAGE: a key that is not among them, or a value that this model
 * or its cache cannot have. Any thread. */
enum err_code serving_change_check(const struct serving *s, const struct config *changes, struct err *why);
/* Change what is given, between two steps. Errors: those of serving_change_check, ERR_NOMEM; then nothing has
 * changed. */
enum err_code serving_change(struct serving *s, const struct config *changes, struct err *why);

/* What is in the cache, and what waits. */
struct scheduler_counts serving_count(const struct serving *s);

/* As model_occupancy_to_json (rows: of the last step; batch: most rows of a step), with the map by use: '#'
 * shared by requests, '-' cached, '.' free, else the letter of the request's sequence; and {"cached",
 * "spared": blocks; "running", "waiting": requests}. New reference. */
json_t *serving_occupancy_to_json(const struct serving *s);

#endif
