/* tests/bench/advisor/simulate.h - experiments without a machine: noise of a known kind goes through the
 * project's own order of blocks, block effects and judge, one look after every block, so that how often a
 * verdict is wrong can be counted instead of believed. Deterministic: an experiment depends on its trial and
 * number only. */
#ifndef QDYNO_BENCH_ADVISOR_SIMULATE_H
#define QDYNO_BENCH_ADVISOR_SIMULATE_H

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"

/* Logarithm of a cell's time is a sum of these, in units of the trial's scale; time runs cell by cell through
 * the whole experiment. */
struct noise {
    const char *name, *what;
    double normal;    /* independent from cell to cell */
    double slope;     /* drift per cell */
    double walk;      /* steps of a random walk */
    double ar, phi;   /* a process that remembers phi of its last value; ar: its standard deviation */
    double heavy;     /* Student's t with 3 degrees of freedom, standard deviation 1 */
    double rhythm;    /* every fourth cell is this much slower */
    double disturbed; /* share of cells that are slower by 10 %, whatever the scale */
    double spikes;    /* share of cells that are slower by three times the scale: one-sided */
    double daily;     /* amplitude of a slow wave with a period of 400 cells */
    /* Another program that is on and off for exponential times (means in cells) and makes cells slower by
     * `burst` while it is on. How much of a cell it was on is measured, with errors: the covariate. */
    double burst, on, off;
    bool unmeasured; /* there is no covariate */
    /* That program runs so much of each cell of a challenger: it reacts to the arm, which breaks every design
     */
    double reacts;
};
extern const struct noise NOISES[];
extern const int NOISE_COUNT;
const struct noise *noise_find(const char *name); /* NULL: none of that name */

/* Standard deviation of a block effect of two arms: at scale 1 without disturbed cells (from 100000 blocks),
 * and with them where the rest has spread `sd`. */
double noise_unit_sd(const struct noise *n);
double noise_block_sd(const struct noise *n, double sd);

/* x[count]: values of one series, in units of the scale; one value a cell. Depends on its arguments only. */
void noise_series(const struct noise *n, uint64_t seed, uint64_t number, double *x, int count);

/* Interval of a proportion k of n. Wilson 1927. */
struct interval wilson_interval(int64_t k, int64_t n, double confidence);

enum { TRIAL_ARMS = 5 };

struct trial {
    const struct noise *noise;
    double scale;              /* of the noise: wanted spread of block effects / noise_unit_sd */
    int arms;                  /* 2 .. TRIAL_ARMS */
    double effect[TRIAL_ARMS]; /* true log ratio of an arm's rate to that of arm 0, which is 0 */
    double margin;
    bool race; /* leave out arms that cannot win, then measure the winner on fresh blocks */
    /* EITHER: after a control of three blocks, with a budget for max_blocks. A block is disturbed when
     * another program ran for more than a tenth of one of its cells, or a cell was disturbed or had a spike.
     */
    enum estimand estimand;
    int max_blocks;
    int fixed_blocks; /* where `fixed` looks once */
    uint64_t seed;
};

struct simulated {
    unsigned seen[TRIAL_ARMS]; /* verdicts on an arm against arm 0, 1 << enum verdict, of any look until the
                                  run would have stopped; [0] unused */
    int blocks[TRIAL_ARMS];    /* after which the first of them was there, max_blocks if none */
    /* Of two arms, whatever the judge said: what other rules make of the same blocks. */
    bool peeked;   /* Student's t interval, looked at after every block, excluded 0 at some */
    bool t_evalue; /* stats_t_evalue reached 20 at some */
    bool fixed;    /* Student's t interval at fixed_blocks excluded 0 */
    /* Of two arms: what each estimand claims by itself, at any look; what a run does that stops at the one in
     * use, or at any of both, without the divided stake (evidence.c); and what the latter does with it. */
    bool quiet, loaded, in_use, any, any_divided;
    bool warned;   /* of a neighbour that reacts, at the end */
    int disturbed; /* blocks */
    int switches;  /* of the estimand in use */
    /* Of a race. */
    int winner, raced;                     /* arm that was confirmed, -1: none; blocks of the race */
    double winner_raced, winner_confirmed; /* its effect as the race saw it, and on fresh blocks */
};
/* scratch: of the caller, one for each thread. */
void trial_run(const struct trial *t, uint64_t number, struct experiment_state *scratch,
               struct simulated *out);

/* There was a verdict that says "different". */
bool claims_difference(unsigned seen);
bool says(unsigned seen, enum verdict v);

#endif
