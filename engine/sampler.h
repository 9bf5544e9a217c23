/* engine/sampler.h - one token out of a row of logits. Deterministic by seed. */
#ifndef QDYNO_ENGINE_SAMPLER_H
#define QDYNO_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct sampler_options {
    float temperature;    /* 0: greedy, the others then do not matter (but repeat_penalty) */
    int top_k;            /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off; over the last repeat_last tokens */
    int repeat_last;
    uint64_t seed;
};
extern const struct sampler_options SAMPLER_DEFAULTS; /* greedy */

/* Whether these always take the largest logit, the first of equals: what model_forward_best says is what
 * sampler_next would. */
bool sampler_is_greedy(const struct sampler_options *o);

struct sampler;
enum err_code sampler_open(struct sampler **out, const struct sampler_options *o, int32_t n_vocab,
                           struct err *why);
void sampler_close(struct sampler *s);

/* Order of stages: repeat penalty, top-k, top-p, min-p, temperature, draw. Remembers the result for the
 * penalty. NaN in logits: returns -1. */
int32_t sampler_next(struct sampler *s, const float *logits);
void sampler_accept(struct sampler *s, int32_t id); /* prompt tokens, for the penalty */

#endif
