/* advisor/compare.h - two finished runs against each other: what each measured, and whether that differs.
 *
 * Two moments are compared, so whatever else changed between them is in the difference: this is weaker than
 * an experiment, which measures both sides now. Beside the difference as it was measured stands the one
 * divided by the canary of each run, which takes out what slowed the whole machine.
 *
 * Interval: Welch's t over the runs' units in logs (their blocks, or repetitions), 95 %; equivalence by two
 * one-sided tests at 5 %. Several differences are a family: each keeps its own interval, and is claimed only
 * if it holds after Holm's correction, too. Blocks of one run share its process and its hour: the interval
 * does not know of differences that a second run of the same would show. */
#ifndef QDYNO_ADVISOR_COMPARE_H
#define QDYNO_ADVISOR_COMPARE_H

#include "advisor/experiment.h"
#include "advisor/results.h"

/* The words of an experiment, from intervals of a log ratio (positive: better) alone. NAN: inconclusive. */
enum verdict compare_verdict(struct interval effect95, struct interval effect90, double margin);

struct compared {
    const struct result *before, *after; /* NULL: only the other run has it */
    enum metric_id metric;
    int n_before, n_after;
    struct interval rate_before, rate_after; /* of the metric itself: e^(mean of logs), 95 % */
    struct interval effect, effect90;        /* log ratio after / before, positive: better */
    double p, p_family; /* against "no difference"; adjusted for all pairs of the two runs (Holm) */
    double canary;      /* log ratio of what divides the metric, with its sign; 0 nothing, NAN unknown */
    struct interval normalized; /* effect without the canary's share; NAN unknown. The canary's own error is
                                   not in it. */
    enum verdict verdict;       /* of effect; NONE when either is missing */
    char reason[160];           /* why there is none, "" otherwise */
};
/* Every result of `before` with its partner of `after`: the same config line and work, else the same arm and
 * work; what finds none stands alone. metric NULL: of each pair its main one. Borrows from both. *out:
 * free().
 */
enum err_code compare_runs(struct compared **out, int *n, const struct results *before,
                           const struct results *after, const struct metric *metric, double margin,
                           struct err *why);
/* The verdict that decides: worse, else inconclusive, else the first; INVALID when nothing could be compared.
 */
enum verdict compare_worst(const struct compared *c, int n);

/* ---------------------------------------------------------------- was an effect reproduced? */

enum reproduction { REPRODUCTION_UNKNOWN, REPRODUCED, NOT_REPRODUCED };
const char *reproduction_name(enum reproduction r); /* "inconclusive" "reproduced" "not reproduced" */

struct reproduced {
    int arm; /* k against A */
    int n_before, n_after;
    struct interval before, after;            /* effect of k against A, 95 %, log ratio, positive: k better */
    struct interval difference, difference90; /* after - before, two independent estimates (Welch) */
    double p;                                 /* of the difference, adjusted for all arms (Holm) */
    enum reproduction verdict;
};
/* Effects of every arm against arm 0, block by block. REPRODUCED: the difference lies within the margin (two
 * one-sided tests at 5 %); NOT_REPRODUCED: it excludes 0 and is larger than the margin. *out: free(). */
enum err_code compare_effects(struct reproduced **out, int *n, const struct results *before,
                              const struct results *after, const struct metric *metric, double margin,
                              struct err *why);

#endif
