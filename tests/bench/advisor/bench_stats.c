/* How often a verdict is wrong, counted: simulated experiments of a known truth through the project's own
 * blocks and judge, with an interim analysis after every block. Exit 1 when false claims exceed 5 %, or an
 * effect is found less often than planned.
 *
 *   bench_stats [--experiments N] [--threads N] [--seed N] [--table NAME] [--noise NAME] [--json]
 *
 * The tables are in docs/statistics.md, which says what they mean. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "tests/bench/advisor/simulate.h"

/* Blocks for a Student t interval of that half width that is computed once, at the end; at least 2. */
static int blocks_for_one_analysis(double sd, double half_width, double confidence)
{
    enum { BEYOND_REASON = 1000000 };
    if (!(sd >= 0) || !(half_width > 0) || !(confidence > 0 && confidence < 1)) return BEYOND_REASON;
    const double p = 0.5 + 0.5 * confidence;
    const double z = stats_normal_quantile(p) * sd / half_width;
    if (z * z >= BEYOND_REASON) return BEYOND_REASON;
    int n = (int)floor(z * z); /* the normal count never exceeds the t count: start there and climb */
    if (n < 2) n = 2;
    while (stats_t_quantile(p, n - 1) * sd / sqrt(n) > half_width) n++;
    return n;
}

enum { EXIT_WRONG = 1, EXIT_USAGE = 4, EXIT_MEMORY = 6, MEMBERS = 64, ROWS = 128, CHUNK = 8 };
/* A plan is made for normal noise and 80 %; five points are what other kinds of noise may cost it. */
static const double FALSE_CLAIMS_MOST = 0.05, POWER = 0.80, FOUND_LEAST = 0.75, REPORTED_LEAST = 0.50;

/* What a row counts as a hit, and whether hits are errors or successes. */
enum question { FALSE_ALARM, FALSE_EQUIVALENCE, FOUND, FAMILY, RACE, CHOICE, FOUND_BY_CHOICE };
static const struct {
    const char *name, *title, *head;
} QUESTIONS[] = {
    [FALSE_ALARM] = { "false_alarm",
                      "A against A: a difference is claimed, with an interim analysis after every block",
                      "| noise | s_d % | t interval, peeked at % | t e-value % | verdict % | 95 % | |\n"
                      "|---|---:|---:|---:|---:|---|---|" },
    [FALSE_EQUIVALENCE] = { "false_equivalence",
                            "A true effect of the size of the margin is called equivalent",
                            "| noise | s_d % | verdict % | 95 % | |\n|---|---:|---:|---|---|" },
    [FOUND] = { "found", "A true effect is found within the planned blocks",
                "| noise | s_d % | effect % | found % | 95 % | mean blocks | planned | one look: planned | found "
                "% | |\n|---|---:|---:|---:|---|---:|---:|---:|---:|---|" },
    [FAMILY] = { "family", "Four challengers: one that is no different is called different",
                 "| noise | s_d % | first challenger % | verdict on another % | 95 % | |\n|---|---:|---:|---:|---|---|" },
    [RACE] = { "race", "A race of four: its confirmed winner is no different, and is called different",
               "| noise | s_d % | first challenger % | verdict % | 95 % | wins % | effect of the winner: raced % | "
               "confirmed % | |\n|---|---:|---:|---:|---|---:|---:|---:|---|" },
    [CHOICE] = { "choice", "A against A, `--estimand either`: a difference is claimed",
                 "| noise | disturbed % | switches | quiet alone % | loaded alone % | in use, undivided % | any, undivided % "
                 "| any, divided % | verdict % | 95 % | reaction reported % | |\n"
                 "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---|" },
    [FOUND_BY_CHOICE] = { "found_by_choice",
                          "What the divided stake costs: a true effect is found, `--estimand either`",
                          "| noise | disturbed % | effect % | found % | 95 % | in use, undivided % | |\n"
                          "|---|---:|---:|---:|---|---:|---|" },
};

struct tally {
    int64_t experiments, hits, blocks, peeked, t_evalue, fixed;
    int64_t confirmed, first_won; /* races whose winner was measured again, and was the first challenger */
    double raced_sum, confirmed_sum;
    /* of CHOICE: as in struct simulated; the blocks, and how many of them were disturbed */
    int64_t quiet, loaded, in_use, any, any_divided, warned, all_blocks, disturbed, switches;
};

struct row {
    enum question question;
    struct trial trial;
    double block_sd;
    int64_t experiments;
    struct tally total;
};

struct bench {
    int64_t experiments;
    int threads;
    uint64_t seed;
    bool json;
    const char *table, *noise; /* only these rows; NULL: all */
    struct row row[ROWS];
    int rows;
    struct experiment_state *scratch; /* [threads] */
    struct threadpool *pool;
    const struct row *now; /* that is running */
    struct tally part[MEMBERS];
};

/* ---------------------------------------------------------------- what is simulated */

/* A trial of two arms at this spread of block effects and true effect, as rates. */
static struct row *row_add(struct bench *b, enum question q, const struct noise *n, double sd, double effect)
{
    assert(b->rows < ROWS);
    struct row *r = &b->row[b->rows++];
    *r = (struct row){ .question = q, .block_sd = noise_block_sd(n, sd), .experiments = b->experiments };
    r->trial = (struct trial){ .noise = n,
                               .scale = sd / noise_unit_sd(n),
                               .arms = 2,
                               .effect = { 0, log1p(effect) },
                               .margin = 0.01,
                               .estimand = ESTIMAND_LOADED,
                               .max_blocks = 32,
                               .seed = b->seed };
    return r;
}

/* Blocks planned for an effect, as the plan of a run and as the classic one with a single look. */
static void plan_row(struct row *r)
{
    struct trial *t = &r->trial;
    const double effect = t->effect[1];
    t->max_blocks = MIN(stats_anytime_blocks_for(r->block_sd, effect, 0.95, POWER), EXPERIMENT_BLOCKS);
    const double share = 1.959963984540054 / (1.959963984540054 + stats_normal_quantile(POWER));
    t->fixed_blocks = MIN(blocks_for_one_analysis(r->block_sd, share * effect, 0.95), EXPERIMENT_BLOCKS);
}

/* Drops the rows that --table and --noise leave out. */
static void rows_keep(struct bench *b)
{
    int kept = 0;
    for (int i = 0; i < b->rows; i++) {
        const struct row *r = &b->row[i];
        if (b->table && strcmp(b->table, QUESTIONS[r->question].name)) continue;
        if (b->noise && strcmp(b->noise, r->trial.noise->name)) continue;
        b->row[kept++] = *r;
    }
    b->rows = kept;
}

/* Kinds of noise with disturbed blocks, for runs that choose their estimand. */
static void choice_rows_add(struct bench *b)
{
    static const char *const KINDS[] = { "disturbed",      "all of these",
                                         "spikes",         "rare bursts",
                                         "bursts",         "bursts, unmeasured",
                                         "spells of load", "a neighbour that reacts" };
    for (int q = CHOICE; q <= FOUND_BY_CHOICE; q++)
        for (size_t i = 0; i < COUNT_OF(KINDS); i++) {
            const struct noise *n = noise_find(KINDS[i]);
            if (q == FOUND_BY_CHOICE && n->reacts > 0) continue;
            struct row *r = row_add(b, (enum question)q, n, 0.02, q == CHOICE ? 0 : 0.02);
            r->trial.margin = q == CHOICE ? 0.0005 : 0.005;
            r->trial.estimand = ESTIMAND_EITHER;
            r->trial.max_blocks = q == CHOICE ? 64 : 32;
        }
}

static void rows_add(struct bench *b)
{
    for (int i = 0; i < NOISE_COUNT; i++) {
        if (NOISES[i].reacts > 0) continue; /* the coin does not protect against it */
        struct row *r = row_add(b, FALSE_ALARM, &NOISES[i], 0.01, 0);
        r->trial.margin = 0.0005; /* so small that every exclusion of 0 is a claim */
        r->trial.max_blocks = 64; /* as many looks as in ab */
    }
    for (int i = 0; i < NOISE_COUNT; i++) {
        if (NOISES[i].reacts > 0) continue;
        struct row *r = row_add(b, FALSE_EQUIVALENCE, &NOISES[i], 0.005, 0);
        r->trial.effect[1] = i % 2 ? 0.01 : -0.01; /* the margin itself, a log ratio like it */
    }
    static const double EFFECTS[] = { 0.01, 0.02, 0.05 }, SPREADS[] = { 0.005, 0.01, 0.02, 0.04 };
    for (size_t e = 0; e < COUNT_OF(EFFECTS); e++)
        for (size_t s = 0; s < COUNT_OF(SPREADS); s++) {
            struct row *r = row_add(b, FOUND, &NOISES[0], SPREADS[s], EFFECTS[e]);
            r->trial.margin = 0.005;
            plan_row(r);
            if (r->trial.max_blocks == EXPERIMENT_BLOCKS) b->rows--; /* more than a run may have */
        }
    for (int i = 1; i < NOISE_COUNT; i++) {
        if (NOISES[i].reacts > 0) continue;
        struct row *r = row_add(b, FOUND, &NOISES[i], 0.02, 0.02);
        r->trial.margin = 0.005;
        plan_row(r);
    }
    choice_rows_add(b);
    static const char *const SEVERAL[] = { "independent", "all of these" };
    for (int q = FAMILY; q <= RACE; q++)
        for (size_t i = 0; i < 2 * COUNT_OF(SEVERAL); i++) { /* all alike, then one that is better */
            struct row *r = row_add(b, (enum question)q, noise_find(SEVERAL[i / 2]), 0.02, i % 2 ? 0.03 : 0);
            r->trial.arms = 5;
            r->trial.margin = 0.005;
            r->trial.race = q == RACE;
            r->trial.max_blocks = 24;
        }
    rows_keep(b);
    for (int r = 0; r < b->rows; r++)
        if (b->row[r].question == FOUND || b->row[r].question == RACE ||
            b->row[r].question == FOUND_BY_CHOICE)
            b->row[r].experiments = MAX(b->experiments / 5, 1);
}

/* ---------------------------------------------------------------- running */

static bool is_hit(const struct row *r, const struct simulated *o)
{
    const struct trial *t = &r->trial;
    switch (r->question) {
    case FALSE_ALARM:
    case CHOICE: return claims_difference(o->seen[1]);
    case FALSE_EQUIVALENCE: return says(o->seen[1], VERDICT_EQUIVALENT);
    case FOUND:
    case FOUND_BY_CHOICE: return says(o->seen[1], VERDICT_BETTER) || says(o->seen[1], VERDICT_NEGLIGIBLE);
    case FAMILY:
        for (int k = 1; k < t->arms; k++)
            if (t->effect[k] == 0 && claims_difference(o->seen[k])) return true;
        return false;
    case RACE: return o->winner > 0 && t->effect[o->winner] == 0 && claims_difference(o->seen[o->winner]);
    }
    return false;
}

static void tally_choice(struct tally *t, const struct trial *trial, const struct simulated *o)
{
    t->quiet += o->quiet;
    t->loaded += o->loaded;
    t->in_use += o->in_use;
    t->any += o->any;
    t->any_divided += o->any_divided;
    t->warned += o->warned;
    t->all_blocks += trial->max_blocks;
    t->disturbed += o->disturbed;
    t->switches += o->switches;
}

static void tally_join(struct tally *to, const struct tally *p)
{
    to->quiet += p->quiet;
    to->loaded += p->loaded;
    to->in_use += p->in_use;
    to->any += p->any;
    to->any_divided += p->any_divided;
    to->warned += p->warned;
    to->all_blocks += p->all_blocks;
    to->disturbed += p->disturbed;
    to->switches += p->switches;
}

static void run_member(void *arg, int member, int size)
{
    (void)size;
    struct bench *b = arg;
    const struct row *r = b->now;
    struct tally t = { 0 };
    for (int64_t at; (at = threadpool_next(b->pool, CHUNK)) < r->experiments;)
        for (int64_t i = at; i < MIN(at + CHUNK, r->experiments); i++) {
            struct simulated o;
            trial_run(&r->trial, (uint64_t)i, &b->scratch[member], &o);
            t.experiments++;
            t.hits += is_hit(r, &o);
            t.blocks += o.blocks[1];
            t.peeked += o.peeked;
            t.t_evalue += o.t_evalue;
            t.fixed += o.fixed;
            tally_choice(&t, &r->trial, &o);
            if (o.winner < 0) continue;
            t.confirmed++;
            t.first_won += o.winner == 1;
            t.raced_sum += o.winner_raced;
            t.confirmed_sum += o.winner_confirmed;
        }
    b->part[member] = t;
}

static void row_run(struct bench *b, struct row *r)
{
    b->now = r;
    memset(b->part, 0, sizeof b->part);
    threadpool_run(b->pool, run_member, b);
    for (int m = 0; m < b->threads; m++) {
        const struct tally *p = &b->part[m];
        r->total.experiments += p->experiments;
        r->total.hits += p->hits;
        r->total.blocks += p->blocks;
        r->total.peeked += p->peeked;
        r->total.t_evalue += p->t_evalue;
        r->total.fixed += p->fixed;
        r->total.confirmed += p->confirmed;
        r->total.first_won += p->first_won;
        r->total.raced_sum += p->raced_sum;
        r->total.confirmed_sum += p->confirmed_sum;
        tally_join(&r->total, p);
    }
}

/* ---------------------------------------------------------------- saying it */

static struct interval share(const struct row *r, int64_t hits)
{
    return wilson_interval(hits, r->total.experiments, 0.95);
}

static bool is_wrong(const struct row *r)
{
    const double hits = share(r, r->total.hits).estimate;
    if (r->question == FOUND_BY_CHOICE) return false; /* no plan is made for a choice */
    if (r->trial.noise->reacts > 0) /* the coin does not protect against it: it must be reported */
        return !(share(r, r->total.warned).estimate >= REPORTED_LEAST);
    return r->question == FOUND ? !(hits >= FOUND_LEAST) : !(hits <= FALSE_CLAIMS_MOST);
}

/* Mean of n log ratios, as a per cent. */
static double percent(double sum, int64_t n)
{
    return 100 * expm1(sum / (double)n);
}

static void put_choice(const struct row *r, const char *found, const char *mark)
{
    const struct tally *t = &r->total;
    const double n = (double)t->experiments / 100;
    printf("| %s | %.0f |", r->trial.noise->name, 100 * (double)t->disturbed / (double)t->all_blocks);
    if (r->question == FOUND_BY_CHOICE) {
        printf(" %.0f | %s | %.1f | %s |\n", 100 * expm1(r->trial.effect[1]), found, (double)t->in_use / n,
               mark);
        return;
    }
    printf(" %.1f | %.2f | %.2f | %.2f | %.2f | %.2f | %s | %.2f | %s |\n",
           (double)t->switches / (double)t->experiments, (double)t->quiet / n, (double)t->loaded / n,
           (double)t->in_use / n, (double)t->any / n, (double)t->any_divided / n, found,
           (double)t->warned / n, mark);
}

static void put_row(const struct row *r)
{
    const double n = (double)r->total.experiments;
    const struct interval hits = share(r, r->total.hits);
    char found[64];
    snprintf(found, sizeof found, "**%.2f** | %.2f to %.2f", 100 * hits.estimate, 100 * hits.lower,
             100 * hits.upper);
    const char *mark = is_wrong(r) ? "WRONG" : "";
    if (r->question < CHOICE) printf("| %s | %.2f |", r->trial.noise->name, 100 * r->block_sd);
    switch (r->question) {
    case FALSE_ALARM:
        printf(" %.2f | %.2f | %s | %s |\n", 100 * (double)r->total.peeked / n,
               100 * (double)r->total.t_evalue / n, found, mark);
        break;
    case FALSE_EQUIVALENCE: printf(" %s | %s |\n", found, mark); break;
    case FOUND:
        printf(" %.0f | %s | %.1f | %d | %d | %.1f | %s |\n", 100 * expm1(r->trial.effect[1]), found,
               (double)r->total.blocks / n, r->trial.max_blocks, r->trial.fixed_blocks,
               100 * (double)r->total.fixed / n, mark);
        break;
    case FAMILY: printf(" %.0f | %s | %s |\n", 100 * expm1(r->trial.effect[1]), found, mark); break;
    case RACE:
        printf(" %.0f | %s | %.1f | %.2f | %.2f | %s |\n", 100 * expm1(r->trial.effect[1]), found,
               100 * (double)r->total.first_won / n, percent(r->total.raced_sum, r->total.confirmed),
               percent(r->total.confirmed_sum, r->total.confirmed), mark);
        break;
    case CHOICE:
    case FOUND_BY_CHOICE: put_choice(r, found, mark); break;
    }
}

static json_t *row_to_json(const struct row *r)
{
    const double n = (double)r->total.experiments;
    const struct interval hits = share(r, r->total.hits);
    json_t *o = json_object();
    json_put_str(o, "question", QUESTIONS[r->question].name);
    json_put_str(o, "noise", r->trial.noise->name);
    json_put_int(o, "arms", r->trial.arms);
    json_put_num(o, "block_sd", r->block_sd);
    json_put_num(o, "effect", r->trial.effect[1]);
    json_put_num(o, "margin", r->trial.margin);
    json_put_int(o, "max_blocks", r->trial.max_blocks);
    json_put_int(o, "experiments", r->total.experiments);
    json_put_num(o, "share", hits.estimate);
    json_put_num(o, "lower", hits.lower);
    json_put_num(o, "upper", hits.upper);
    json_put_num(o, "mean_blocks", (double)r->total.blocks / n);
    if (r->question == FALSE_ALARM) {
        json_put_num(o, "t_interval_peeked", (double)r->total.peeked / n);
        json_put_num(o, "t_evalue", (double)r->total.t_evalue / n);
    }
    if (r->question == FOUND) {
        json_put_int(o, "fixed_blocks", r->trial.fixed_blocks);
        json_put_num(o, "fixed_found", (double)r->total.fixed / n);
    }
    if (r->question >= CHOICE) {
        json_put_num(o, "quiet", (double)r->total.quiet / n);
        json_put_num(o, "loaded", (double)r->total.loaded / n);
        json_put_num(o, "in_use", (double)r->total.in_use / n);
        json_put_num(o, "any", (double)r->total.any / n);
        json_put_num(o, "any_divided", (double)r->total.any_divided / n);
        json_put_num(o, "reported", (double)r->total.warned / n);
    }
    if (r->question == RACE) {
        json_put_num(o, "first_won", (double)r->total.first_won / n);
        json_put_num(o, "winner_raced", r->total.raced_sum / (double)r->total.confirmed);
        json_put_num(o, "winner_confirmed", r->total.confirmed_sum / (double)r->total.confirmed);
    }
    json_put(o, "ok", json_boolean(!is_wrong(r)));
    return o;
}

/* Runs every row; how many are wrong. A table grows as it is computed. */
static int run_all(struct bench *b)
{
    int wrong = 0;
    json_t *rows = json_array();
    for (int i = 0; i < b->rows; i++) {
        struct row *r = &b->row[i];
        row_run(b, r);
        wrong += is_wrong(r);
        if (b->json) {
            json_array_append_new(rows, row_to_json(r));
            continue;
        }
        if (!i || r->question != b->row[i - 1].question)
            printf("\n### %s\n\n%s\n", QUESTIONS[r->question].title, QUESTIONS[r->question].head);
        put_row(r);
        fflush(stdout);
    }
    if (b->json) {
        json_t *o = json_object();
        json_put_str(o, "schema", "qdyno.bench.stats/1");
        json_put(o, "rows", rows);
        json_put_int(o, "wrong", wrong);
        json_dumpf(o, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
        putchar('\n');
        json_decref(o);
        return wrong;
    }
    json_decref(rows);
    if (wrong) printf("\n%d of %d rows are wrong\n", wrong, b->rows);
    return wrong;
}

static int usage(const char *what)
{
    fprintf(
        stderr,
        "bench_stats: %s\nusage: bench_stats [--experiments N] [--threads N] [--seed N] [--table NAME] [--noise NAME] "
        "[--json]\n"
        "N experiments a row (default 10000; a fifth of that for power and races); --table, --noise: only rows of "
        "that table (false_alarm, choice, ...) and that kind of noise\n",
        what);
    return EXIT_USAGE;
}

static bool read_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    return text && str_to_u64(text, out) && *out >= least && *out <= most;
}

int main(int argc, char **argv)
{
    static struct bench b = { .experiments = 10000, .seed = 20261121 };
    b.threads = MIN(threadpool_default_threads(), MEMBERS);
    for (int i = 1; i < argc; i++) {
        uint64_t n;
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--json"))
            b.json = true;
        else if (!strcmp(argv[i], "--experiments") && read_number(value, 1, 10000000, &n) && ++i)
            b.experiments = (int64_t)n;
        else if (!strcmp(argv[i], "--threads") && read_number(value, 1, MEMBERS, &n) && ++i)
            b.threads = (int)n;
        else if (!strcmp(argv[i], "--seed") && read_number(value, 0, UINT64_MAX, &n) && ++i)
            b.seed = n;
        else if (!strcmp(argv[i], "--table") && value && ++i)
            b.table = value;
        else if (!strcmp(argv[i], "--noise") && value && ++i)
            b.noise = value;
        else
            return usage(argv[i]);
    }
    struct err why = { 0 };
    if (threadpool_open(&b.pool, &(struct threadpool_options){ .threads = b.threads }, &why)) {
        fprintf(stderr, "bench_stats: %s\n", why.message);
        return EXIT_MEMORY;
    }
    b.scratch = calloc((size_t)b.threads, sizeof *b.scratch);
    if (!b.scratch) return EXIT_MEMORY;
    rows_add(&b);
    if (!b.rows) return usage("no such row");
    const int wrong = run_all(&b);
    free(b.scratch);
    threadpool_close(b.pool);
    return wrong ? EXIT_WRONG : 0;
}
