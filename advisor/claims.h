/* advisor/claims.h - what an experiment found, put before a gate and before the joint verdict: which figure
 * is meant, which interval goes with it, and whether it can be trusted. Pure. */
#ifndef QDYNO_ADVISOR_CLAIMS_H
#define QDYNO_ADVISOR_CLAIMS_H

#include "advisor/experiment.h"
#include "advisor/gate.h"
#include "advisor/joint.h"

/* The gate for one challenger (arm 1 or higher). What is compared with A is judged by the paired interval,
 * which holds at every look; a bound that is a number by the interval of the arm's own blocks. */
void claims_gate(const struct gate *g, const struct experiment_state *s, int arm, struct gate_result *out);

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

#endif
