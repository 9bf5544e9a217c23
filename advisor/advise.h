/* advisor/advise.h - configurations for this machine, predicted from its measured ceilings, each with reason
 * and check. */
#ifndef QDYNO_ADVISOR_ADVISE_H
#define QDYNO_ADVISOR_ADVISE_H

#include "engine/engine.h"
#include "telemetry/telemetry.h"

enum goal { GOAL_BALANCED, GOAL_SPEED, GOAL_QUALITY, GOAL_MEMORY, GOAL_ENERGY };
const char *goal_name(enum goal g);
bool goal_parse(const char *name, enum goal *out);

/* Roofline prediction: decode = (weights read + KV at depth) / measured read bandwidth or operations /
 * measured arithmetic, whichever is slower; prefill, and sequences that decode together, likewise with a
 * batch sharing one read of the weights; each scaled by nothing: the interval says how far measured runs may
 * lie from it. NAN when a ceiling is missing. */
struct prediction {
    double decode_tok_s, decode_low, decode_high;
    double prefill_tok_s, prefill_low, prefill_high;
    double decode_limit_tok_s, prefill_limit_tok_s; /* the machine's limit itself */
    struct memory_plan plan;
    bool fits;
    int depth;     /* tokens in each cache that decode was predicted at */
    bool in_cache; /* weights fit in the last cache: the limit is arithmetic, the interval wide */
    bool decode_bound_by_memory; /* else by arithmetic */
};
/* An eighth of the context, at most 512: where a chat usually is. The check commands measure there. */
int predict_depth(int ctx);
/* What is predicted: a session, and how full it is. */
struct predict_for {
    int ctx;       /* of each sequence; 0: as the session would take it */
    int depth;     /* tokens in each cache while decoding; 0: predict_depth(ctx) */
    int sequences; /* that decode side by side: the rates are their sums; 0: one */
};
enum err_code predict(struct prediction *out, const struct gguf *g, const struct config *c,
                      const struct machine *machine, const struct machine_ceilings *ceilings,
                      const struct predict_for *what, struct err *why);

struct advice {
    struct config config;
    char line[640];
    struct prediction prediction;
    double score;
    char reason[256];  /* "decode is bandwidth-bound here: half the bytes, near twice the speed" */
    char caution[256]; /* "changes answers: quality not measured yet"; "" when none */
    char check[768];   /* the command that checks it */
};
struct advise_options {
    enum goal goal;
    int64_t memory_limit; /* 0: what the machine has */
    double target_tok_s;  /* 0: none */
    int ctx;              /* 0: 4096 or the model's own when smaller */
};
/* Ranked best first; *out: free(). */
enum err_code advise(struct advice **out, int *n, const char *model_path, const struct machine *machine,
                     const struct machine_ceilings *ceilings, const struct advise_options *o,
                     struct err *why);

#endif
