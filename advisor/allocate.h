/* advisor/allocate.h - which tensor gets which format, when bytes are short: the choice with the smallest sum
 * of costs.
 *
 * Each item has choices of known size and cost (KL divergence when it alone is stored so). Minimizing the sum
 * of costs under a sum of bytes with a multiplier lambda separates: every item takes what makes cost + lambda
 * * bytes smallest, which is a corner of its own lower convex hull; one lambda serves all (Everett 1963;
 * Shoham & Gersho 1988). What the last step leaves of the bytes is spent on the best of the remaining single
 * changes. Pure. */
#ifndef QDYNO_ADVISOR_ALLOCATE_H
#define QDYNO_ADVISOR_ALLOCATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

enum { ALLOCATE_CHOICES = 16 };

struct cost_choice {
    int64_t bytes;
    double cost; /* >= 0; NAN: this choice is not offered */
};

struct item {
    struct cost_choice choice[ALLOCATE_CHOICES];
    int n;     /* choices */
    int taken; /* out: index of the choice */
};

struct allocation {
    int64_t bytes;
    double cost, lambda; /* lambda: cost a byte, at the last step */
};

/* The smallest cost with at most `limit` bytes: fills item[].taken. ERR_FIT when even the smallest choices
 * are more (says both numbers); ERR_USAGE when an item offers nothing. */
enum err_code allocate_bytes(struct allocation *out, struct item *items, int n, int64_t limit,
                             struct err *why);

/* The fewest bytes with a sum of costs of at most `limit`. ERR_FIT when even the best choices cost more. */
enum err_code allocate_cost(struct allocation *out, struct item *items, int n, double limit, struct err *why);

/* Is choice k of the item on its lower convex hull of (bytes, cost)? */
bool choice_is_efficient(const struct item *item, int k);

#endif
