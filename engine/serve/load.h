/* engine/serve/load.h - a load: a fixed list of requests, and the loop that sends them to a model.
 *
 * Workload, seed and text determine the list: when each request arrives, its prompt, and the length of its
 * answer. The config of the model plays no part in it, so two configs get the same requests at the same times
 * (common random numbers).
 *
 * The loop sends every request at its scheduled time, or as soon after it as the step that runs has ended,
 * and never skips or moves one because the server is slow. Answers are greedy and go on after a token that
 * ends a text, so their lengths are those of the list. */
#ifndef QDYNO_ENGINE_SERVE_LOAD_H
#define QDYNO_ENGINE_SERVE_LOAD_H

#include "engine/config/config.h"
#include "engine/serve/live.h"
#include "engine/serve/serving.h"

/* A prompt of the user's own, for one request. */
struct load_prompt {
    const int32_t *ids; /* [n]; NULL: its length is estimated, and a server gets the text itself */
    int n;
    int generate; /* tokens of the answer as the file has it; 0: unknown */
    int item;     /* which prompt of the file */
    int class;    /* of the file; -1: none */
};

/* Where the tokens of prompts come from. */
struct load_text {
    const int32_t *ids; /* [all] of a text; NULL: prompts are pseudo-random tokens */
    int64_t n;   /* prompts are cut from the first n ids if none has more tokens, else all from all of them */
    int64_t all; /* at least n; 0: n */
    /* The user's own prompts: request i gets own[order[i]]; NULL: none. Then the ids above serve the salt
     * only. */
    const struct load_prompt *own;
    const int *order; /* [requests] */
    int64_t vocab;
    int32_t bos; /* begins every prompt; -1: none */
    /* Changes the first tokens of each text and nothing else, so that a server that still has the prompts of
     * an earlier run finds none of these in its cache. It is no part of the work: the plan's hash is that of
     * the texts without it. 0: no change. */
    uint64_t salt;
};

struct load_request {
    /* Seconds after the start. NAN: think_s after another one has ended: the earlier request of its
     * conversation, or, for the first of a conversation (closed loop), the last one of a client. */
    double arrival_s;
    double think_s;
    int conversation, turn;
    const int32_t *prompt; /* [n] what is new in this turn */
    int n;
    int generate;
    int item, class; /* of struct load_prompt; -1: the prompt is not the user's own, or has no class */
};
struct load_plan {
    struct load_request *request; /* [n] conversations one after another, in order of arrival */
    int n, conversations, turns;
    int tokens_most; /* of a conversation */
    int clients;     /* closed loop: at a time; otherwise 0 */
    int cut;         /* requests whose lengths were cut to fit into the context */
    int skipped;     /* of a trace: requests without prompt or answer */
    bool repeats;    /* a text is shorter than a prompt, which therefore contains it more than once */
    char hash[17];   /* of all of it, but for the salt: equal hashes mean the same work */
    int32_t *tokens; /* owned: the prompts */
};
/* *out owned: load_plan_free. Errors: those of load_trace_read; ERR_USAGE for rate=auto, which names no rate;
 * ERR_FORMAT (the text has a token that the model has not), ERR_NOMEM. */
enum err_code load_plan_make(struct load_plan **out, const struct workload_load *l, uint64_t seed,
                             const struct load_text *text, struct err *why);
void load_plan_free(struct load_plan *p); /* NULL is fine */

enum load_outcome {
    LOAD_OPEN,     /* not ended */
    LOAD_DONE,     /* all tokens were generated */
    LOAD_FAILED,   /* the model computed values that are not numbers */
    LOAD_REFUSED,  /* it can never fit into the cache */
    LOAD_NOT_SENT, /* an earlier request of its conversation did not end well */
    LOAD_OUTCOMES
};
extern const char *const LOAD_OUTCOME_NAMES[LOAD_OUTCOMES];

/* What happened to a request. Seconds after the start; NAN: it did not happen. */
struct load_record {
    double scheduled_s;    /* when it arrives */
    double sent_s;         /* when it was given to the scheduler: later, if a step was running */
    double admitted_s;     /* start of the first step that computed some of it */
    double first_s, end_s; /* its first and last token */
    int64_t token;         /* index of its first token in struct load_result */
    int tokens;            /* generated */
    int prompt, cached;    /* tokens of its whole prompt; of these, found in the prefix cache; -1: unknown */
    int preemptions;
    enum load_outcome outcome;
};
struct load_result {
    struct load_record *record; /* [n], as the plan's requests */
    int n;
    double *token_s;              /* when each token was there */
    double seconds;               /* from the start until the last request ended */
    int64_t steps, step_requests; /* steps that computed something; requests in them, summed */
    double step_s, model_s;       /* seconds of these steps; of them, of the model and of copies of blocks */
    double kv_use;                /* share of the cache's blocks that requests used: mean over the run */
    int running_most, waiting_most;
    char output_hash[17]; /* of all generated tokens */
};
/* A load while it runs. */
struct load_now {
    struct serving *serving;
    const struct live *live;
    int done, of; /* requests: ended, all */
    double seconds;
    /* Out; 1: as now. Requests come so many times as fast from now on; in a closed loop there is one client
     * more (above 1) or less (below 1, at least one stays). The list of requests stays the same, but not its
     * times: such a run cannot be compared with others. */
    double rate_by;
};
struct load_hooks {
    /* After each step; its time counts as the step's. NULL: none. */
    void (*after_step)(void *ctx, int64_t started_ns);
    /* At most every 100 ms; false cancels. It may change the settings of now->serving. NULL: none. */
    bool (*progress)(void *ctx, struct load_now *now);
    void *ctx;
    const struct load_limit *limit; /* [limits] of each request, for struct live; borrowed */
    int limits;
};
/* Run all requests of a plan. load_result_free also after an error. Errors: ERR_CANCELLED; ERR_NOMEM; those
 * of serving_step. */
enum err_code load_run(struct load_result *out, struct serving *s, const struct load_plan *p,
                       const struct load_hooks *hooks, struct err *why);
void load_result_free(struct load_result *r);

/* One array for each figure of the requests, in their order, and "token_s": when each token of each request
 * was there; "class" of the plan's prompts, if some have one. Unknown is null. New reference. */
json_t *load_records_to_json(const struct load_result *r, const struct load_plan *p);

/* A request has ended. scratch: room for its gaps. */
void live_end_add(struct live *l, const struct load_record *record, const double *token_s,
                  enum load_outcome outcome, double *scratch);

#endif
