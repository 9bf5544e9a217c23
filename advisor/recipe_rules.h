/* advisor/recipe_rules.h - one format a tensor, as a config line that is short enough to be one. Pure. */
#ifndef QDYNO_ADVISOR_RECIPE_RULES_H
#define QDYNO_ADVISOR_RECIPE_RULES_H

#include "engine/config/config.h"
#include "kernels/kernels.h"

struct assigned {
    const char *tensor; /* "blk.3.ffn_down.weight" */
    const struct format *format;
};

/* "q4_K,tensors=ffn_down@0-3+7:q6_K;token_embd:q8_0": the base format that makes it shortest, then rules for
 * what differs. False when it is longer than a value of a config line may be; *line is cut off then. */
enum { RECIPE_LINE = CONFIG_VALUE + 64 };
bool recipe_rules_line(const struct assigned *a, int n, char line[RECIPE_LINE]);

/* The part of a tensor's name that rules are by: "ffn_down" of "blk.3.ffn_down.weight"; *layer -1 outside of
 * layers. False: the name is of another kind (then its whole name is its part). */
bool recipe_rules_part(const char *tensor, char part[64], int *layer);

#endif
