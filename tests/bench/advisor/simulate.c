/* Noise of a known kind, and experiments in it. */
#include "tests/bench/advisor/simulate.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment/parts.h"
#include "advisor/stats/stats.h"

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
    { "AR(1) 0.99", "a cell remembers 99 % of the last: minutes", .ar = 1, .phi = 0.99, .normal = 0.2 },
    { "spikes", "normal, and one cell in ten is slower by three times that", .normal = 1, .spikes = 0.1 },
    { "daily", "normal, and a slow wave of 20 times that", .normal = 1, .daily = 20 },
    { "bursts", "another program that runs in bursts, measured beside the cells", .normal = 0.3, .burst = 3,
      .on = 2, .off = 3 },
    { "bursts, unmeasured", "the same, but how often it ran is not known", .normal = 0.3, .burst = 3, .on = 2,
      .off = 3, .unmeasured = true },
    { "rare bursts", "the same, but rare: one block in three is disturbed", .normal = 0.3, .burst = 3,
      .on = 2, .off = 40 },
    { "spells of load", "another program that runs for tens of blocks, and rests as long", .normal = 0.3,
      .burst = 3, .on = 60, .off = 60 },
    { "a neighbour that reacts",
      "another program that runs in a tenth of each cell of a challenger, never beside A", .normal = 1,
      .burst = 10, .on = 2, .off = 1e9, .reacts = 0.1 },
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
    bool on;           /* the other program runs */
    double left, load; /* cells until that changes; share of the last cell that it ran */
    int64_t cell, phase;
    bool disturbed; /* the last cell: what the contamination rules would say */
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

/* The share of the next cell in which the other program runs. */
static double burst_share(struct source *s)
{
    double share = 0, at = 0;
    while (at < 1) {
        const double step = fmin(s->left, 1 - at);
        share += s->on ? step : 0;
        at += step;
        if ((s->left -= step) > 0) continue;
        s->on = !s->on;
        s->left = -log(uniform(s)) * (s->on ? s->noise->on : s->noise->off);
    }
    return share;
}

static void source_start(struct source *s, const struct noise *n, uint64_t seed, uint64_t number)
{
    uint64_t state = seed ^ number * 0x9e3779b97f4a7c15u;
    *s = (struct source){ .noise = n, .random = stats_random(&state) };
    s->memory = normal(s); /* the process has been running for ever */
    s->phase = (int64_t)(stats_random(&s->random) & 3);
    s->load = NAN;
    if (n->burst > 0) s->left = -log(uniform(s)) * n->off;
}

/* Log time of the next cell, in units of the scale; `arm` runs in it. */
static double source_next(struct source *s, int arm)
{
    const struct noise *n = s->noise;
    const int64_t cell = s->cell++;
    s->disturbed = false;
    double y = n->slope * (double)cell;
    if (n->normal > 0) y += n->normal * normal(s);
    if (n->walk > 0) y += s->walk += n->walk * normal(s);
    if (n->ar > 0) {
        s->memory = n->phi * s->memory + sqrt(1 - n->phi * n->phi) * normal(s);
        y += n->ar * s->memory;
    }
    if (n->heavy > 0) y += n->heavy * student3(s);
    if ((cell + s->phase) % 4 == 0) y += n->rhythm;
    if (n->spikes > 0 && uniform(s) < n->spikes) {
        y += 3;
        s->disturbed = true;
    }
    y += n->daily * sin(2 * M_PI * (double)(cell + 100 * s->phase) / 400);
    if (n->burst > 0) {
        const double share = burst_share(s) + (arm > 0 ? n->reacts : 0);
        y += n->burst * share;
        s->disturbed |= share > 0.1;
        if (!n->unmeasured) s->load = share + 0.1 * normal(s);
    }
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
        for (int k = 0; k < 4; k++) y[k] = source_next(&s, 0);
        const double d = 0.5 * (y[1] + y[2]) - 0.5 * (y[0] + y[3]);
        squares += d * d;
    }
    return sqrt(squares / BLOCKS);
}

void noise_series(const struct noise *n, uint64_t seed, uint64_t number, double *x, int count)
{
    struct source s;
    source_start(&s, n, seed, number);
    for (int i = 0; i < count; i++) x[i] = source_next(&s, 0);
}

double noise_block_sd(const struct noise *n, double sd)
{
    const double slower = log(1.1); /* four cells, each weighs one half */
    return sqrt(sd * sd + n->disturbed * (1 - n->disturbed) * slower * slower);
}

/* ---------------------------------------------------------------- counting */

struct interval wilson_interval(int64_t k, int64_t n, double confidence)
{
    if (n < 1 || k < 0 || k > n) return (struct interval){ NAN, NAN, NAN };
    const double z = stats_normal_quantile(0.5 + 0.5 * confidence), count = (double)n, p = (double)k / count;
    const double scale = 1 + z * z / count, middle = (p + z * z / (2 * count)) / scale;
    const double half = z / scale * sqrt(p * (1 - p) / count + z * z / (4 * count * count));
    /* The ends are exact: rounding must not leave a bound of 1e-17 where there is none. */
    return (struct interval){ p, k == 0 ? 0 : middle - half, k == n ? 1 : middle + half };
}

/* ---------------------------------------------------------------- one experiment */

bool says(unsigned seen, enum verdict v)
{
    return seen >> v & 1;
}

bool claims_difference(unsigned seen)
{
    return says(seen, VERDICT_BETTER) || says(seen, VERDICT_WORSE) || says(seen, VERDICT_NEGLIGIBLE);
}

static bool excludes_zero(struct interval i)
{
    return i.lower > 0 || i.upper < 0;
}

/* The next block's cells, in the project's own order; their block effects to every arm that still runs. */
static void block_add(const struct trial *t, struct source *source, uint64_t number, int block,
                      enum cell_phase phase, struct experiment_state *s)
{
    int arm[EXPERIMENT_ARMS], place[BLOCK_CELLS];
    double rate[BLOCK_CELLS], load[BLOCK_CELLS];
    bool disturbed = false;
    const int arms = arms_live(s, phase, arm);
    block_order(t->seed + number, phase, block, arms, place);
    for (int i = 0; i < 2 * arms; i++) {
        double slower = t->scale * source_next(source, arm[place[i]]);
        if (t->noise->disturbed > 0 && uniform(source) < t->noise->disturbed) {
            slower += log(1.1);
            disturbed = true;
        }
        disturbed |= source->disturbed;
        rate[i] = exp(t->effect[arm[place[i]]] - slower);
        load[i] = exp(source->load); /* block_effect takes logarithms */
    }
    for (int k = 1; k < arms; k++) {
        struct block_series *to = phase == CELL_CONTROL ? &s->control_all
                                  : s->confirming       ? &s->confirmation.all
                                                        : &s->comparison[arm[k]].all;
        series_add(to, block_effect(rate, place, 2 * arms, k, 1), block_effect(load, place, 2 * arms, k, 1),
                   disturbed);
    }
    s->elapsed_s += s->block_s;
    s->complete += phase != CELL_CONTROL;
    s->disturbed += disturbed && phase != CELL_CONTROL;
    estimand_use(s, estimand_choose(s));
}

enum { CONTROL = 3 };

/* The control, and the plan that follows from it: only they tell the estimands apart. */
static void control_run(const struct trial *t, struct source *source, uint64_t number,
                        struct experiment_state *s)
{
    for (int b = 0; b < CONTROL; b++) block_add(t, source, number, b, CELL_CONTROL, s);
    s->planned_blocks = plan_blocks(&s->spec, stats_sd(s->control_d, s->control_blocks));
}

/* What the judge says after this block. Every look counts: a claim that was seen once was made. */
static void look(const struct trial *t, struct experiment_state *s, struct simulated *out)
{
    experiment_judge(s);
    for (int k = 1; k < t->arms; k++) {
        const bool confirms = s->confirming && k == s->headline;
        if (t->race && !confirms) continue; /* a race claims nothing; only its winner's fresh blocks do */
        const struct comparison *c = confirms ? &s->confirmation : &s->comparison[k];
        if (c->verdict == VERDICT_INCONCLUSIVE) continue;
        if (!out->seen[k]) out->blocks[k] = c->blocks;
        out->seen[k] |= 1u << c->verdict;
    }
}

/* What other rules make of the blocks of two arms so far. */
static void compare_rules(const struct trial *t, const struct comparison *c, struct simulated *out)
{
    const bool apart = excludes_zero(stats_t_interval(c->d, c->blocks, 0.95));
    if (c->blocks >= BLOCKS_FOR_A_CLAIM) {
        out->peeked |= apart;
        out->t_evalue |= stats_t_evalue(c->d, c->blocks, 1) >= 20;
    }
    if (c->blocks == t->fixed_blocks) out->fixed = apart;
}

/* What each estimand says by itself after this block, and both together. */
static void compare_estimands(const struct experiment_state *s, const struct comparison *c,
                              struct simulated *out)
{
    double d[ESTIMANDS_COUNT][EXPERIMENT_BLOCKS];
    bool claims[ESTIMANDS_COUNT];
    struct stats_stake part[2];
    const double share = evidence_share_loaded(s);
    for (int e = ESTIMAND_QUIET; e <= ESTIMAND_LOADED; e++) {
        const int n = series_select(&c->all, &s->control_all, (enum estimand)e, d[e]);
        part[e - ESTIMAND_QUIET] = (struct stats_stake){ d[e], n, e == ESTIMAND_LOADED ? share : 1 - share };
        claims[e] = n >= BLOCKS_FOR_A_CLAIM && stats_coin_evalue(d[e], n) >= 20;
    }
    out->quiet |= claims[ESTIMAND_QUIET];
    out->loaded |= claims[ESTIMAND_LOADED];
    out->in_use |= claims[s->estimand];
    out->any |= claims[ESTIMAND_QUIET] || claims[ESTIMAND_LOADED];
    out->any_divided |= (claims[ESTIMAND_QUIET] || claims[ESTIMAND_LOADED]) &&
                        stats_mixed_evalue(part, 2) >= 20;
    out->disturbed = s->disturbed;
}

void trial_run(const struct trial *t, uint64_t number, struct experiment_state *s, struct simulated *out)
{
    struct experiment_spec spec = { .arms = t->arms,
                                    .metric = &METRICS[METRIC_DECODE_RATE],
                                    .margin = t->margin,
                                    .max_blocks = t->max_blocks,
                                    .race = t->race,
                                    .estimand = t->estimand,
                                    .budget_s = CONTROL + t->max_blocks };
    struct source source;
    source_start(&source, t->noise, t->seed, number);
    state_init(s, &spec);
    s->block_s = 1;
    *out = (struct simulated){ .winner = -1 };
    if (t->estimand == ESTIMAND_EITHER) control_run(t, &source, number, s);
    for (int k = 1; k < t->arms; k++) out->blocks[k] = t->max_blocks;
    bool over = false;
    for (int b = 0; b < t->max_blocks && !(over && t->arms > 2); b++) {
        const enum estimand before = s->estimand;
        block_add(t, &source, number, b, CELL_BLOCK, s);
        out->switches += s->estimand != before;
        if (!over) {
            look(t, s, out);
            over = t->race ? judge_race(s) : judge_is_decided(s);
        }
        if (t->arms == 2) compare_rules(t, &s->comparison[1], out);
        if (t->estimand == ESTIMAND_EITHER) compare_estimands(s, &s->comparison[1], out);
    }
    out->raced = s->blocks;
    out->warned = experiment_load_reacts(s);
    if (!t->race || s->comparison[s->headline].effect.upper < 0) return; /* A leads: nothing to confirm */
    s->confirming = true;
    out->winner = s->headline;
    out->winner_raced = s->comparison[s->headline].effect.estimate;
    over = false;
    for (int b = 0; b < t->max_blocks && !over; b++) {
        block_add(t, &source, number, b, CELL_CONFIRM, s);
        look(t, s, out);
        over = judge_is_decided(s);
    }
    out->winner_confirmed = s->confirmation.effect.estimate;
}
