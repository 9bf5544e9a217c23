/* advisor/rules.h - advice that follows from what a machine is, not from a prediction: hardware x model x
 * goal -> what to do, why, what that rests on, and the command that checks it. */
#ifndef QDYNO_ADVISOR_RULES_H
#define QDYNO_ADVISOR_RULES_H

#include "advisor/advise.h"

struct rule_case {
    const char *model; /* path, for the command */
    const struct model_shape *shape;
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    const struct prediction *reference; /* of the file as it is */
    enum goal goal;
    int64_t memory_limit; /* 0: what the machine has */
};
/* One rule's word on one case. */
struct rule_finding {
    const char *rule; /* its name in RULES */
    char advice[256], reason[320], evidence[256];
    char check[768]; /* "" where only the machine itself could tell */
};
enum { RULES_MAX = 32 };
/* Fills those that apply, in the order of the table; returns how many. */
int rules_apply(struct rule_finding out[RULES_MAX], const struct rule_case *c);
/* For help and tests: the names of all rules and when they apply; NULL beyond the last. */
const char *rule_name(int i);
const char *rule_about(int i);

#endif
