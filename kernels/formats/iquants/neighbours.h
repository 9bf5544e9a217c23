/* kernels/formats/iquants/neighbours.h - which rows of a codebook are near a combination of magnitudes that
 * is no row itself: what the encoders choose from. */
#ifndef QDYNO_KERNELS_FORMATS_IQUANTS_NEIGHBOURS_H
#define QDYNO_KERNELS_FORMATS_IQUANTS_NEIGHBOURS_H

#include <stdint.h>

/* A combination packs the indices of the magnitudes of `weights` weights, `bits` bits each. `place` has, for
 * every combination of indices below `levels`, its row, or -1 - (where in `list` its neighbours are: their
 * number, then their rows, nearest first, equally near ones in the order of the codebook). */
struct iq_map {
    const uint16_t *index; /* the rows, as combinations */
    int rows, weights, bits, levels;
    int shells; /* neighbours have one of this many smallest distances */
    int32_t *place;
    uint16_t *list;
};

/* The map of a codebook: computed at the first call, constant afterwards. Thread-safe. */
const struct iq_map *iq_map_iq2_xxs(void);
const struct iq_map *iq_map_iq2_xs(void);
const struct iq_map *iq_map_iq2_s(void);
const struct iq_map *iq_map_iq1(void);
const struct iq_map *iq_map_iq3_xxs(void);
const struct iq_map *iq_map_iq3_s(void);

static inline int iq_level(const struct iq_map *m, int combination, int i)
{
    return combination >> m->bits * i & ((1 << m->bits) - 1);
}

#endif
