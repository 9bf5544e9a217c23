/* engine/quant/groups.h - encodes groups, given the scale and zero point that a method found, into the
 * formats that store them (u4_g64 ...). Internal to engine/quant/. */
#ifndef QDYNO_ENGINE_QUANT_GROUPS_H
#define QDYNO_ENGINE_QUANT_GROUPS_H

#include "engine/quant/methods.h"

/* weight = scale * (code - zero). */
/* Weight = scale * (code - zero); zero is in units of codes. */
struct group_choice {
    float scale, zero;
};

/* The choice as a block stores it: both rounded to f16 and within its range, scale > 0. A group whose zero
 * point is beyond f16's range is nearly constant and stored as a constant. */
struct group_choice group_stored(struct group_choice c);

/* Encode x [groups * block_weights] into blocks. Codes are the nearest ones for the stored (rounded) scale
 * and zero point, which is never worse than keeping codes chosen for the unrounded ones. */
void groups_encode(const struct format *f, const float *x, const struct group_choice *choices, int64_t groups,
                   struct threadpool *pool, void *out);

/* The format with this many bits and this group size. size -1 (whole row): the format with the smallest
 * groups, which divides most row lengths and repeats the row's scale in every block. NULL: no such format. */
const struct format *group_format(int bits, int64_t size);

#endif
