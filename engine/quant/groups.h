/* engine/quant/groups.h - groups with a scale and a zero point, as methods found them, into the formats that
 * store them (u4_g64 and its kin). Internal to engine/quant/. */
#ifndef QDYNO_ENGINE_QUANT_GROUPS_H
#define QDYNO_ENGINE_QUANT_GROUPS_H

#include "engine/quant/methods.h"

/* weight = scale * (code - zero). */
struct group_choice {
    float scale, zero;
};

/* What a block can keep of a choice: both rounded to f16 and within its range, scale > 0. A group whose zero
 * lies beyond f16 is nearly a constant, and is kept as one. */
struct group_choice group_stored(struct group_choice c);

/* x [groups * block_weights] -> blocks. Codes are the nearest for the scale and zero that are stored, which
 * costs nothing and is never worse than the codes for the unrounded ones. */
void groups_encode(const struct format *f, const float *x, const struct group_choice *choices, int64_t groups,
                   struct threadpool *pool, void *out);

/* The format of so many bits whose blocks are groups of that size, or (-1: all of a row is a group) the
 * smallest one, which fits the most rows and repeats the group's scale in every block. NULL: there is none.
 */
const struct format *group_format(int bits, int64_t size);

#endif
