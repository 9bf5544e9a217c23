/* advisor/experiment/gate.h - a gate: the condition that a script sets on a result. Included by experiment.h.
 */
#ifndef QDYNO_ADVISOR_EXPERIMENT_GATE_H
#define QDYNO_ADVISOR_EXPERIMENT_GATE_H

/* A gate is a condition for scripts: `decode_tok_s >= 0.98*A and kld_mean < 0.02`.
 *
 * A term passes when the whole interval of its figure satisfies it, fails when the whole interval violates
 * it, and is undecided otherwise. Figures without an interval, which are the same every time, decide at once.
 * The functions are pure: the caller supplies the figures.
 *
 *   gate  = and { "or" and }          and = not { "and" not }          not = "not" not | "(" gate ")" | term
 *   term  = NAME OP bound             OP  = "<" | "<=" | ">" | ">="
 *   bound = NUMBER | NUMBER "*" "A" | "A" [ "*" NUMBER ] | "A" ("+" | "-") NUMBER
 * A is the figure of arm A. A NUMBER may end in a unit: % (a hundredth; after "A +", of A), k M G (powers of
 * 1000; of 1024 for bytes), us ms s for times. NAME is a figure of a cell (METRICS) or of quality
 * (GATE_NAMES). */

enum { GATE_TERMS = 32, GATE_NODES = 3 * GATE_TERMS, GATE_TEXT = 512 };

/* Figures that are not metrics of a cell. */
enum gate_figure {
    GATE_KLD_MEAN,
    GATE_KLD_P50,
    GATE_KLD_P90,
    GATE_KLD_P99,
    GATE_KLD_MAX,
    GATE_TOP1,
    GATE_PPL,
    GATE_PPL_RATIO,
    GATE_MCNEMAR_P,
    GATE_FIRST_DIVERGENCE,
    GATE_NOISE_FLOOR,
    GATE_ENERGY_TOKEN,
    GATE_FIGURES
};
struct gate_name {
    const char *name, *unit, *help; /* unit as in METRICS */
    bool quality;                   /* needs the quality to be measured */
};
extern const struct gate_name GATE_NAMES[GATE_FIGURES];

enum gate_op { GATE_LESS, GATE_AT_MOST, GATE_MORE, GATE_AT_LEAST };
struct gate_term {
    int metric; /* enum metric_id; -1: `figure` is meant */
    enum gate_figure figure;
    enum gate_op op;
    double scale, offset; /* the bound is scale * A + offset; scale 0: A plays no part */
    char text[96];        /* as written, spaces tidied */
};
enum gate_kind { GATE_TERM, GATE_NOT, GATE_AND, GATE_OR };
struct gate {
    char text[GATE_TEXT]; /* as given */
    int terms, nodes, root;
    struct gate_term term[GATE_TERMS];
    struct {
        enum gate_kind kind;
        int left, right; /* nodes; of GATE_TERM: left is the term */
    } node[GATE_NODES];
};

/* Errors: ERR_USAGE: position (from 1), what was expected there, the nearest valid name. */
enum err_code gate_parse(struct gate *g, const char *text, struct err *why);
bool gate_needs_quality(const struct gate *g);
/* The name of the first figure that only timed cells or an A/A control give; NULL: all figures come from
 * evaluating a text (those of GATE_NAMES that need quality, and the perplexity). Static. */
const char *gate_timed_figure(const struct gate *g);
/* The name of the first figure that compares with a reference; NULL: none does. Static. */
const char *gate_compared_figure(const struct gate *g);

/* What is known of one figure of the arm that is judged. */
struct gate_value {
    double value, a;          /* of the arm and of A, in the figure's unit; NAN unknown */
    struct interval absolute; /* of value; bounds NAN: none is known */
    struct interval ratio;    /* of value / a, paired; bounds NAN: none is known */
    bool exact;               /* the same every time: decides without an interval */
    int n;                    /* what the intervals rest on, 0 unknown, counted in ... */
    const char *of;           /* ... "blocks" or "windows" */
    const char *missing;      /* why value is unknown, NULL */
    const char *invalid;      /* why it cannot be trusted, NULL */
};
/* Fill *out (it comes as unknown) for one term. */
typedef void gate_lookup_fn(void *ctx, const struct gate_term *t, struct gate_value *out);

enum gate_outcome { GATE_PASS, GATE_FAIL, GATE_UNDECIDED, GATE_INVALID }; /* values are exit statuses */
const char *gate_outcome_name(enum gate_outcome o);
/* a and b: fails when one does; else undecided or invalid when one is. */
enum gate_outcome gate_both(enum gate_outcome a, enum gate_outcome b);
struct gate_row {
    enum gate_outcome outcome;
    double value, bound;      /* NAN unknown; in the figure's unit */
    struct interval interval; /* what was compared with the bound, same unit; bounds NAN: none */
    char reason[160];         /* "" when it passed or failed */
};
struct gate_result {
    enum gate_outcome outcome;
    int terms;
    struct gate_row row[GATE_TERMS]; /* of g->term */
};
/* INVALID where an invalid figure leaves the whole undecided. */
void gate_judge(const struct gate *g, gate_lookup_fn *lookup, void *ctx, struct gate_result *out);

/* {"gate":TEXT,"outcome":,"terms":[{"term":,"outcome":,"value":,"bound":,"lower":,"upper":,"reason":}]}. New
 * reference. */
json_t *gate_result_to_json(const struct gate *g, const struct gate_result *r);

#endif
