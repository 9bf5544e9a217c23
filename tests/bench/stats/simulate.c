/* Noise of a known kind, and experiments in it. */
#include "tests/bench/stats/simulate.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment_parts.h"

const struct noise NOISES[] = {
    { "independent", "normal, nothing else", .normal = 1 },
    { "drift", "normal, and the machine slows down steadily by half of that per cell", .normal = 1,
      .slope = 0.5 },
    { "random walk", "normal, and a random walk with steps of half of that", .normal = 1, .walk = 0.5 },
    { "AR(1) 0.5", "a cell remembers half of the last", .ar = 1, .phi = 0.5 },
    { "AR(1) 0.9", "a cell remembers nine tenths of the last", .ar = 1, .phi = 0.9 },
    { "heavy tails", "Student's t with 3 degrees of freedom", .heavy = 1 },
    { "disturbed", "normal, and 5 % of cells are slower by 10 %", .normal = 1, .disturbed = 0.05 },
    { "all of these", "drift, walk, memory, tails and disturbed cells", .slope = 0.1, .walk = 0.3, .ar = 1,
      .phi = 0.9, .heavy = 1, .disturbed = 0.05 },
    { "rhythm", "every fourth cell is slower: sizes of block effects repeat", .normal = 0.05, .rhythm = 3 },
};
const int NOISE_COUNT = COUNT_OF(NOISES);

const struct noise *noise_find(const char *name)
{
    for (int i = 0; i < NOISE_COUNT; i++)
        if (!strcmp(NOISES[i].name, name)) return &NOISES[i];
    return NULL;
}

/* ---------------------------------------------------------------- noise */

struct source {
    const struct noise *noise;
    uint64_t random;
    double walk, memory;
    int64_t cell, phase;
};

static double uniform(struct source *s) /* in (0, 1) */
{
    return ((double)(stats_random(&s->random) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(struct source *s)
{
    const double radius = sqrt(-2 * log(uniform(s)));
    return radius * cos(2 * M_PI * uniform(s));
}

static double student3(struct source *s) /* over its standard deviation, the root of 3 */
{
    const double a = normal(s), b = normal(s), c = normal(s);
    return normal(s) / sqrt(a * a + b * b + c * c);
}

static void source_start(struct source *s, const struct noise *n, uint64_t seed, uint64_t number)
{
    uint64_t state = seed ^ number * 0x9e3779b97f4a7c15u;
    *s = (struct source){ .noise = n, .random = stats_random(&state) };
    s->memory = normal(s); /* the process has been running for ever */
    s->phase = (int64_t)(stats_random(&s->random) & 3);
}

/* Log time of the next cell, in units of the scale. */
static double source_next(struct source *s)
{
    const struct noise *n = s->noise;
    const int64_t cell = s->cell++;
    double y = n->slope * (double)cell;
    if (n->normal > 0) y += n->normal * normal(s);
    if (n->walk > 0) y += s->walk += n->walk * normal(s);
    if (n->ar > 0) {
        s->memory = n->phi * s->memory + sqrt(1 - n->phi * n->phi) * normal(s);
        y += n->ar * s->memory;
    }
    if (n->heavy > 0) y += n->heavy * student3(s);
    if ((cell + s->phase) % 4 == 0) y += n->rhythm;
    return y;
}

double noise_unit_sd(const struct noise *n)
{
    enum { BLOCKS = 100000 };
    struct source s;
    double squares = 0;
    source_start(&s, n, 1, 1);
    for (int i = 0; i < BLOCKS; i++) {
        double y[4];
        for (int k = 0; k < 4; k++) y[k] = source_next(&s);
        const double d = 0.5 * (y[1] + y[2]) - 0.5 * (y[0] + y[3]);
        squares += d * d;
    }
    return sqrt(squares / BLOCKS);
}

double noise_block_sd(const struct noise *n, double sd)
{
    const double slower = log(1.1); /* four cells, each weighs one half */
    return sqrt(sd * sd + n->disturbed * (1 - n->disturbed) * slower * slower);
}

/* ---------------------------------------------------------------- one experiment */

bool claims_difference(enum verdict v)
{
    return v == VERDICT_BETTER || v == VERDICT_WORSE || v == VERDICT_NEGLIGIBLE;
}

static bool excludes_zero(struct interval i)
{
    return i.lower > 0 || i.upper < 0;
}

static enum verdict decide(const double *d, int n, double margin)
{
    const struct interval i = stats_anytime_interval(d, n, 0.95), wide = stats_anytime_interval(d, n, 0.90);
    if (excludes_zero(i) && fabs(i.estimate) > margin) return i.estimate > 0 ? VERDICT_BETTER : VERDICT_WORSE;
    if (wide.lower >= -margin && wide.upper <= margin) return VERDICT_EQUIVALENT;
    if (excludes_zero(i) && i.lower >= -margin && i.upper <= margin) return VERDICT_NEGLIGIBLE;
    return VERDICT_INCONCLUSIVE;
}

void trial_run(const struct trial *t, uint64_t number, struct experiment_state *scratch, struct outcome *out)
{
    struct source s;
    double d[EXPERIMENT_BLOCKS];
    (void)scratch;
    source_start(&s, t->noise, t->seed, number);
    *out = (struct outcome){ .blocks = { 0, t->max_blocks } };
    for (int b = 0; b < t->max_blocks; b++) {
        int side[BLOCK_CELLS];
        double v[BLOCK_CELLS];
        block_order(t->seed + number, CELL_BLOCK, b, 2, side);
        for (int i = 0; i < 4; i++) {
            double y = t->scale * source_next(&s);
            if (t->noise->disturbed > 0 && uniform(&s) < t->noise->disturbed) y += log(1.1);
            v[i] = exp((side[i] ? t->effect[1] : 0) - y);
        }
        d[b] = block_effect(v, side, 2, 1, 1);
        const int n = b + 1;
        if (!out->verdict[1] || out->verdict[1] == VERDICT_INCONCLUSIVE) {
            out->verdict[1] = decide(d, n, t->margin);
            if (out->verdict[1] != VERDICT_INCONCLUSIVE) out->blocks[1] = n;
        }
        const bool apart = excludes_zero(stats_t_interval(d, n, 0.95));
        out->peeked |= n >= BLOCKS_FOR_A_CLAIM && apart;
        out->t_evalue |= n >= BLOCKS_FOR_A_CLAIM && stats_t_evalue(d, n, 1) >= 20;
        if (n == t->fixed_blocks) out->fixed = apart;
    }
}
