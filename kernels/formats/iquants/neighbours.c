/* Compute, for each codebook, the neighbours of every combination of indices that is not a row. The distance
 * of two combinations is the sum of the squared differences of their indices. The order of the neighbours
 * matters, because the encoder uses the first of equally good ones and must produce ggml's bytes. */
#include <assert.h>
#include <pthread.h>

#include "kernels/formats/iquants/grids.h"
#include "kernels/formats/iquants/neighbours.h"

enum {
    MOST_ROWS = 2048,
    MOST_DISTANCE = 8 * 49, /* above the largest distance: 4 weights * 7^2 = 196; 8 weights * 2^2 = 32 */
    COMBINATIONS_8 = 1 << 16,
    COMBINATIONS_4 = 1 << 12,
};

static int distance(const struct iq_map *m, int a, int b)
{
    int sum = 0;
    for (int i = 0; i < m->weights; i++) {
        const int step = iq_level(m, a, i) - iq_level(m, b, i);
        sum += step * step;
    }
    return sum;
}

/* Append the neighbours of a combination to the list at `at`; returns its new end. */
static int32_t neighbours_add(const struct iq_map *m, int combination, int32_t at)
{
    int of[MOST_ROWS], count[MOST_DISTANCE] = { 0 }, shells = 0;
    const int32_t start = at++;
    for (int r = 0; r < m->rows; r++) count[of[r] = distance(m, combination, m->index[r])]++;
    for (int d = 0; d < MOST_DISTANCE && shells < m->shells; d++) {
        if (!count[d]) continue;
        shells++;
        for (int r = 0; r < m->rows; r++)
            if (of[r] == d) m->list[at++] = (uint16_t)r;
    }
    m->list[start] = (uint16_t)(at - start - 1);
    return at;
}

static int is_possible(const struct iq_map *m, int combination)
{
    for (int i = 0; i < m->weights; i++)
        if (iq_level(m, combination, i) >= m->levels) return 0;
    return 1;
}

static void map_fill(const struct iq_map *m, int list_size)
{
    const int combinations = 1 << m->weights * m->bits;
    int32_t end = 0;
    for (int c = 0; c < combinations; c++) m->place[c] = -1;
    for (int r = 0; r < m->rows; r++) m->place[m->index[r]] = r;
    for (int c = 0; c < combinations; c++) {
        if (m->place[c] >= 0 || !is_possible(m, c)) continue;
        m->place[c] = -1 - end;
        end = neighbours_add(m, c, end);
    }
    assert(end == list_size);
    (void)list_size;
}

/* Define a map and its accessor. list_size: length of the neighbour lists of this codebook, counted once and
 * checked by map_fill. */
#define MAP(name, INDEX, row_count, of, index_bits, level_count, shell_count, combinations, list_size)       \
    static int32_t name##_place[combinations];                                                               \
    static uint16_t name##_list[list_size];                                                                  \
    static const struct iq_map name##_map = { INDEX,       row_count,   of,           index_bits,            \
                                              level_count, shell_count, name##_place, name##_list };         \
    static void name##_fill(void)                                                                            \
    {                                                                                                        \
        map_fill(&name##_map, list_size);                                                                    \
    }                                                                                                        \
    const struct iq_map *iq_map_##name(void)                                                                 \
    {                                                                                                        \
        static pthread_once_t once = PTHREAD_ONCE_INIT;                                                      \
        pthread_once(&once, name##_fill);                                                                    \
        return &name##_map;                                                                                  \
    }
MAP(iq2_xxs, IQ2_XXS_INDEX, IQ2_XXS_CODES, 8, 2, 3, 2, COMBINATIONS_8, 113157 + 6305)
MAP(iq2_xs, IQ2_XS_INDEX, IQ2_XS_CODES, 8, 2, 3, 2, COMBINATIONS_8, 181721 + 6049)
MAP(iq2_s, IQ2_S_INDEX, IQ2_S_CODES, 8, 2, 3, 1, COMBINATIONS_8, 44716 + 5537)
MAP(iq1, IQ1_INDEX, IQ1_CODES, 8, 2, 3, 3, COMBINATIONS_8, 327721 + 4513)
MAP(iq3_xxs, IQ3_XXS_INDEX, IQ3_XXS_CODES, 4, 3, 8, 2, COMBINATIONS_4, 18985 + 3840)
MAP(iq3_s, IQ3_S_INDEX, IQ3_S_CODES, 4, 3, 8, 3, COMBINATIONS_4, 24733 + 3584)
