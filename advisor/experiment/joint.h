/* advisor/experiment/joint.h - one verdict over speed, memory, energy and quality. Included by experiment.h.
 */
#ifndef QDYNO_ADVISOR_EXPERIMENT_JOINT_H
#define QDYNO_ADVISOR_EXPERIMENT_JOINT_H

/* one verdict over speed, memory, energy and quality.
 *
 * A configuration that is faster and worse is neither better nor worse than A: it is a trade, and somebody
 * has to want it. Each axis is judged by its interval and a margin set in advance; from the axes follows how
 * any two arms stand to each other (Pareto), and where an interval straddles its margin the relation is open,
 * not guessed. Pure. */

enum { JOINT_ARMS = 8 };
#define KLD_MARGIN 0.02 /* nats, where nobody says otherwise: about what 5-bit formats cost a large model */

enum joint_axis { JOINT_SPEED, JOINT_MEMORY, JOINT_ENERGY, JOINT_QUALITY, JOINT_AXES };

/* What an arm gains on A along one axis, positive is better: a log ratio; for quality minus the mean KL
 * divergence in nats, so never above 0. Estimate NAN: not measured. Bounds NAN: too little was measured. */
struct joint_input {
    int arms;                      /* [0] is A, whose gains are 0 */
    const char *label[JOINT_ARMS]; /* borrowed by joint_of only */
    struct interval gain[JOINT_ARMS][JOINT_AXES];
    double margin[JOINT_AXES]; /* > 0, in the axis's unit */
    int metric[JOINT_AXES];    /* enum metric_id behind it; quality: -1 */
    const char *invalid; /* why the run has no verdict: "the A/A control failed"; NULL: it has one. Static */
};

enum joint_word {
    JOINT_UNMEASURED,
    JOINT_OPEN,   /* the interval says none of the others */
    JOINT_BETTER, /* excludes 0, and the estimate is beyond the margin; memory, quality: all of the interval
                     is */
    JOINT_WORSE,  /* so, too */
    JOINT_EQUIVALENT,  /* all of the interval is within the margin */
    JOINT_NONINFERIOR, /* no worse than by the margin; may be better */
};
const char *joint_word_name(enum joint_word w); /* "not measured" "open" "better" ... */

enum joint_relation {
    JOINT_UNRESOLVED,
    JOINT_DOMINATES, /* no worse on any measured axis, speed among them, and better on one */
    JOINT_DOMINATED,
    JOINT_TRADE, /* better on one, worse on another */
    JOINT_SAME,  /* no difference that matters on any */
};
const char *joint_relation_name(enum joint_relation r);

struct joint {
    int arms;
    struct joint_input input;                     /* labels: NULL */
    enum joint_word word[JOINT_ARMS][JOINT_AXES]; /* against A */
    /* [i][j]: how i stands to j. Not against A by the difference of both intervals, which is wider than a
     * paired one would be: cautious. */
    enum joint_relation relation[JOINT_ARMS][JOINT_ARMS];
    enum { FRONT_OPEN, FRONT_YES, FRONT_NO } front[JOINT_ARMS]; /* Pareto: no arm dominates it */
    char sentence[JOINT_ARMS]
                 [320]; /* "q4_K: +58 % decode, -42 % memory; quality not within 0.02 KLD: a trade" */
};
void joint_of(struct joint *out, const struct joint_input *in);

/* {"arms":[{"arm":"b","axes":{"speed":{"metric":,"ratio":,"lower":,"upper":,"margin":,"word":}, ...},
 * "against_a":,"front":,"sentence":}],"relations":[[...]]}. Ratios are of the metric itself; quality has
 * kld_mean instead of a ratio. New reference. */
json_t *joint_to_json(const struct joint *j);

#endif
