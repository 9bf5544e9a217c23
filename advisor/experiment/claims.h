/* advisor/experiment/claims.h - what an experiment found, put before a gate and before the joint verdict:
 * which figure is meant, which interval goes with it, and whether it can be trusted. All pure. Included by
 * experiment.h.
 */
#ifndef QDYNO_ADVISOR_EXPERIMENT_CLAIMS_H
#define QDYNO_ADVISOR_EXPERIMENT_CLAIMS_H

/* The gate for one challenger (arm 1 or higher). What is compared with A is judged by the paired interval,
 * which is valid at every interim analysis; a bound that is a number by the interval of the arm's own blocks.
 */
void claims_gate(const struct gate *g, const struct experiment_state *s, int arm, struct gate_result *out);

/* The gate for predictions that were compared without timing, as `eval --ref` does. Figures for which
 * gate_timed_figure is not NULL are unknown, so they leave a condition undecided. */
void claims_gate_quality(const struct gate *g, const struct quality *q, struct gate_result *out);

/* All challengers together: each must pass. */
enum gate_outcome claims_gate_all(const struct gate *g, const struct experiment_state *s);

/* More blocks could not settle anything in the gate: its terms about cells are decided or cannot be, or the
 * whole is decided without them. True without a gate. */
bool claims_gate_settled(const struct experiment_state *s);

/* Speed is the compared metric if it is one of speed, else the decode rate, the prefill rate, whichever was
 * measured. Labels are config lines. */
void claims_joint(struct joint *out, const struct experiment_state *s);

/* {"gate":TEXT,"outcome":,"arms":[{"arm":"b","outcome":,"terms":[...]}]}; null where the spec has none. New
 * reference. */
json_t *claims_gate_json(const struct experiment_state *s);

/* ---------------------------------------------------------------- usual claims about quantization */

enum quant_arm { QUANT_16BIT, QUANT_8BIT, QUANT_4BIT, QUANT_ARMS };
extern const char *const QUANT_CLAIM_ARMS[QUANT_ARMS]; /* recipes; the first is the reference */
enum quant_figure { QUANT_WEIGHT_BYTES, QUANT_DECODE_RATE };
#define QUANT_FASTER_FROM 1.5
#define QUANT_FASTER_TO   3.0
/* The figure of `arm` divided by that of the 16-bit arm is claimed to lie in from..to. */
struct quant_claim {
    const char *text;
    enum quant_arm arm;
    enum quant_figure figure;
    double from, to;
};
extern const struct quant_claim QUANT_CLAIMS[];
extern const int QUANT_CLAIM_COUNT;

/* Makes a spec, whose configs are QUANT_CLAIM_ARMS, measure decoding until the claims are decided. */
void quant_claims_spec(struct experiment_spec *s);

/* Confirmed: the whole interval lies in the claimed range; refuted: no part of it does. */
enum quant_outcome { QUANT_CONFIRMED, QUANT_REFUTED, QUANT_NOT_DECIDED };
const char *quant_outcome_name(enum quant_outcome o);
struct quant_judgement {
    enum quant_outcome outcome;
    struct interval ratio; /* to the 16-bit arm; bounds equal the estimate where it is exact; NAN unknown */
    char reason[512];      /* why it is not decided, "" otherwise */
};
/* Judges one claim by an experiment that quant_claims_spec specified. Pure. */
void quant_claim_judge(const struct quant_claim *c, const struct experiment_state *s,
                       struct quant_judgement *out);

/* What is usually said of each method, relative to 16-bit weights. 0, NULL: nothing is said. */
struct quant_method {
    const char *config;
    double memory_from, memory_to, speed_from, speed_to;
    const char *accuracy; /* with the model it was published for */
};
extern const struct quant_method QUANT_METHODS[];
extern const int QUANT_METHOD_COUNT;

#endif
