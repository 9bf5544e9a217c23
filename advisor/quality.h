/* advisor/quality.h - what a challenger's predictions lose against the reference's, as a statement with
 * intervals.
 *
 * The engine counts (engine/eval/eval.h); here stands what may be said. Deterministic: repeats would give the
 * same figures, so the errors are those of the text being a sample, windows being what was drawn. */
#ifndef QDYNO_ADVISOR_QUALITY_H
#define QDYNO_ADVISOR_QUALITY_H

#include <stdbool.h>

#include "advisor/arm.h"
#include "advisor/stats.h"
#include "engine/eval/eval.h"

/* A value; {0} is "not measured". */
struct quality {
    bool known;
    char missing[160];         /* why it is unknown although it was asked for; "" otherwise */
    char text[256];            /* base name of the file */
    int ctx;                   /* tokens of a window */
    struct divergence figures; /* of the challenger (candidate) against A (reference) */
    /* 95 %, over windows; bounds NAN for a single window */
    struct interval kld;       /* mean KL divergence, nats; never below 0 */
    struct interval top1;      /* share of positions with the same most likely token */
    struct interval ppl;       /* the challenger's perplexity */
    struct interval ppl_ratio; /* of the challenger's perplexity to A's, paired by token */
    /* Is one of the two right about the next token more often? Exact, two-sided; takes positions as
     * independent, which those of one window are not: read it as a lower bound. */
    double mcnemar_p;
};

/* The statement about figures. */
void quality_of(struct quality *q, const struct divergence *figures, const char *text, int ctx);

/* Keys as `qdyno eval -o json`; null when not known. New reference. From JSON: known is false for null. */
json_t *quality_to_json(const struct quality *q);
void quality_from_json(struct quality *q, const json_t *object);

/* Opens the arm described by `arm` (its ctx is replaced by the window's) in a process of its own, the
 * reference beside it, and closes both: do it when no cell needs quiet or the memory. Events come with phase
 * "load", "quantize", "eval" and "greedy"; returning false from `event` cancels. Errors: as arm_open and
 * eval_divergence (names the side), ERR_FIT when both together do not fit in memory, ERR_CANCELLED. */
enum err_code quality_measure(struct quality *q, const struct arm_spec *arm, const struct quality_spec *spec,
                              arm_event_fn *event, void *ctx, struct err *why);

#endif
