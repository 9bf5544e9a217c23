/* kernels/formats/iquants/neighbours.h - a codebook holds only some of the possible combinations of
 * magnitudes. This map tells an encoder, for any combination, its row in the codebook or the rows nearest to
 * it. */
#ifndef QDYNO_KERNELS_FORMATS_IQUANTS_NEIGHBOURS_H
#define QDYNO_KERNELS_FORMATS_IQUANTS_NEIGHBOURS_H

#include <stdint.h>

/* A combination packs the magnitude indices of `weights` weights, `bits` bits each. place[combination] >= 0
 * is its row. A negative entry -1 - n says that its neighbours start at list[n]: first their number, then
 * their rows, nearest first, equally near ones in the order of the codebook. Entries with an index >=
 * `levels` are not used. */
struct iq_map {
    const uint16_t *index; /* [rows] the combination of each row */
    int rows, weights, bits, levels;
    int shells; /* the neighbours are all rows at the `shells` smallest distances that occur */
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
