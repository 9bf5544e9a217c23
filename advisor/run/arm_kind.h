/* advisor/run/arm_kind.h - the functions of a kind of arm. Private to advisor/run/.
 *
 * A new kind is a file with one such table, and a row of ARM_KINDS in arm.c. */
#ifndef QDYNO_ADVISOR_ARM_KIND_H
#define QDYNO_ADVISOR_ARM_KIND_H

#include "advisor/run/run.h"

struct arm_kind {
    const char *name;
    /* Fills *state (owned by the kind, given back through `close` also when open fails) and *description (new
     * reference). */
    enum err_code (*open)(void **state, json_t **description, const struct arm_spec *spec,
                          arm_event_fn *event, void *ctx, struct err *why);
    /* `request` has "op" and its arguments; borrowed. *answer: new reference. */
    enum err_code (*request)(void *state, json_t *request, json_t **answer, arm_event_fn *event, void *ctx,
                             struct err *why);
    /* Sends a message about the running request that has no answer; from the event callback only. NULL: this
     * kind takes no such messages. */
    enum err_code (*tell)(void *state, const json_t *message, struct err *why);
    int (*pid)(const void *state); /* 0: no process of ours */
    void (*close)(void *state);
};

extern const struct arm_kind ARM_WORKER;
extern const struct arm_kind ARM_LLAMA_SERVER;
extern const struct arm_kind ARM_LLAMA_TOOL; /* llama-bench and llama-perplexity */
extern const struct arm_kind ARM_OPENAI;

#endif
