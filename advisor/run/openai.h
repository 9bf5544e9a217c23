/* advisor/run/openai.h - an arm that is a running server with OpenAI's interface, for the files that measure
 * it: one request at a time (arm_openai.c), and loads (openai_load.c). */
#ifndef QDYNO_ADVISOR_RUN_OPENAI_H
#define QDYNO_ADVISOR_RUN_OPENAI_H

#include "advisor/run/foreign.h"

struct openai {
    struct foreign_model model;
    char *base; /* without /v1 */
    const char *key;
    char name[256];   /* of the model */
    char *build;      /* version of the server; NULL unknown */
    bool llama_cpp;   /* it is llama.cpp's server */
    double silence_s; /* a request may be without a byte for so long */
    int pid;          /* of the server, if it is on this machine and this user's; 0 */
    bool local;       /* the server is on this machine */
    bool ids;         /* token ids are sent */
    bool chat;        /* only chat completions, with a template */
    bool plain;       /* it refuses ignore_eos and min_tokens */
    int64_t used_ns;  /* end of the last request */
    uint64_t random;
    char **word; /* [words] of the bundled text in its order, pointing into `text` */
    char *text;
    int words;
    char **brief; /* [briefs] its different words of 2 to 4 letters, sorted: most are one token anywhere */
    int briefs;
    double words_per_token;
    double words_before; /* tokens of a text without words: BOS and a chat template; NAN: not measured */
    double word_tokens;  /* tokens that each further word has */
    double rate_by;      /* how much faster a running load was asked to become; 1: not */
};

uint64_t openai_random(struct openai *s);

/* Append a message of a chat to a list. Steals `content`; returns the list. */
json_t *openai_message(json_t *list, const char *role, json_t *content);

/* The document of a request: `prompt` is a list of ids, a text, or with s->chat a list of messages. Steals
 * it. cache: a server of llama.cpp may use its prompt cache. */
json_t *openai_body(const struct openai *s, json_t *prompt, int generate, bool cache);

/* Send a text of so many short words, the first ones random, and wait for an answer of `generate` tokens.
 * reply_done(r) in any case. */
enum err_code openai_send_words(struct openai *s, int words, int generate, struct reply *r,
                                arm_event_fn *event, void *ctx, struct err *why);

/* The request "cell" with a load. *answer: new reference. */
enum err_code openai_load(struct openai *s, const struct workload *w, uint64_t seed, json_t **answer,
                          arm_event_fn *event, void *ctx, struct err *why);

#endif
