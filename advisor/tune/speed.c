/* advisor/tune/speed.c - one look at the speed of a configuration.
 *
 * A process of its own, a cell that warms up, and a few that count. Configurations are timed one after the
 * other, on a machine that others may use: one that was timed in a bad moment would be dropped for it. So
 * each cell stands between two looks at the machine, and what its rate would have been on the usual one is
 * what the race goes by; what the predictor says of both is all it takes for that. A processor that is shared
 * changes from one tenth of a second to the next: where the two looks disagree, the cell counts for less.
 * Where kernels were not timed nobody knows what is usual, and rates stand as they are. */
#include "advisor/tune/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char TUNE_RACE[] = "race";
enum { CELLS = 4 }; /* of a look that count, at most */
/* Of the budget: a cell of short work; and a look, beyond which no further cell begins. */
static const double CELL_SHARE = 0.0025, LOOK_SHARE = 0.02;

/* ---------------------------------------------------------------- the machine */

/* How fast it is now, while nothing of the candidate works. Zeros: nothing can be compared. */
static struct conditions look_at_machine(struct tuning *t, const struct tune_candidate *of, int pid)
{
    if (of->looks_by < 0) return (struct conditions){ 0 };
    struct conditions_probe **w = &t->watch[of->looks_by];
    if (!*w) {
        const int threads = of->looks_by ? t->o->ceilings->threads_all : 1;
        struct err ignored;
        *w = calloc(1, sizeof **w);
        if (*w && conditions_probe_open(*w, threads, t->o->ceilings, &ignored))
            conditions_probe_close(*w); /* it looks at nothing then */
    }
    if (!*w) return (struct conditions){ 0 };
    conditions_probe_restart(*w);
    conditions_probe_run(*w, pid);
    return conditions_probe_result(*w);
}

void tune_speed_close(struct tuning *t)
{
    for (size_t i = 0; i < COUNT_OF(t->watch); i++) {
        if (t->watch[i]) conditions_probe_close(t->watch[i]);
        free(t->watch[i]);
        t->watch[i] = NULL;
    }
}

double tune_predicted(const struct tuning *t, const struct prediction *p)
{
    return t->out->metric == &METRICS[METRIC_DECODE_RATE] ? p->decode_tok_s : p->prefill_tok_s;
}

double tune_usual_factor(const struct tuning *t, const struct config *c, const struct conditions *now)
{
    struct predict_for what = t->what;
    struct prediction usual, then;
    struct err ignored;
    if (!(now->core_ratio > 0) || predict(&usual, t->file, c, t->o->machine, t->o->ceilings, &what, &ignored))
        return 1;
    what.conditions = *now;
    if (predict(&then, t->file, c, t->o->machine, t->o->ceilings, &what, &ignored)) return 1;
    const double by = tune_predicted(t, &usual) / tune_predicted(t, &then);
    return isfinite(by) && by > 0 ? by : 1;
}

/* ---------------------------------------------------------------- what it teaches */

/* The machine changed at some moment between the looks, nobody knows when: a uniform share of the cell. */
struct tune_cell tune_cell_between(double before, double after, double rate)
{
    const double a = log(before), b = log(after);
    return (struct tune_cell){ rate, log(rate) + 0.5 * (a + b), fabs(a - b) / sqrt(12) };
}

/* Two cells in a row differ by the noise of both. */
static void learn_noise(struct tuning *t, const struct tune_cell *before, const struct tune_cell *now)
{
    enum { PRIOR_N = 4 };
    static const double PRIOR = 0.03, LEAST = 0.005;
    const double step = now->ln_usual - before->ln_usual;
    if (!isfinite(step) || before->doubt > t->noise || now->doubt > t->noise) return;
    t->noise_sum += 0.5 * step * step;
    t->noise_n++;
    t->noise = fmax(LEAST, sqrt((t->noise_sum + PRIOR_N * PRIOR * PRIOR) / (t->noise_n + PRIOR_N)));
}

static double precision_of(const struct tuning *t, const struct tune_cell *cell)
{
    return 1 / (t->noise * t->noise + cell->doubt * cell->doubt);
}

/* The mean of a look's cells by their precision, which is not believed where they differ by more than it
 * says; and processes of one configuration differ. */
struct tune_timing tune_timing_of(const struct tuning *t, const struct tune_cell *cell, int n)
{
    static const double PROCESS_SD = 0.02;
    struct tune_timing all = { 0 };
    double weights = 0, mean = 0, misfit = 0;
    for (int i = 0; i < n; i++) {
        const double w = precision_of(t, &cell[i]);
        weights += w;
        mean += w * cell[i].ln_usual;
        all.rate += cell[i].rate / n;
    }
    mean /= weights;
    for (int i = 0; i < n; i++) {
        const double off = cell[i].ln_usual - mean;
        misfit += precision_of(t, &cell[i]) * off * off / fmax(n - 1, 1);
    }
    all.usual_rate = exp(mean);
    all.sd = sqrt(fmax(misfit, 1) / weights + PROCESS_SD * PROCESS_SD);
    return all;
}

/* Looks at one configuration that differ by more than they say make all that follow count for less. */
static void learn_misfit(struct tuning *t, const struct tune_candidate *c, const struct tune_timing *now)
{
    enum { PRIOR_N = 4 };
    const double off = log(now->usual_rate / c->usual_rate);
    t->misfit_sum += off * off / (now->sd * now->sd + c->usual_sd * c->usual_sd);
    t->misfit_n++;
    t->misfit = fmax(1, (t->misfit_sum + PRIOR_N) / (t->misfit_n + PRIOR_N));
}

void tune_learn_speed(struct tuning *t, struct tune_candidate *c, struct tune_timing now)
{
    int at[TUNE_DIMS];
    if (c->looks) learn_misfit(t, c, &now);
    now.sd *= sqrt(t->misfit);
    const double w = 1 / (now.sd * now.sd), had = c->looks ? 1 / (c->usual_sd * c->usual_sd) : 0;
    const double ln = ((had > 0 ? had * log(c->usual_rate) : 0) + w * log(now.usual_rate)) / (had + w);
    tune_average(&c->rate, ++c->looks, now.rate);
    c->usual_rate = exp(ln);
    c->usual_sd = 1 / sqrt(had + w);
    if (c->index < 0 || !(c->predicted > 0)) return;
    tune_space_at(at, &t->space, c->index);
    tune_belief_see(t->speed, at, log(now.usual_rate / c->predicted), now.sd);
}

/* ---------------------------------------------------------------- the look */

struct looking {
    struct tuning *t;
    struct tune_candidate *c;
    struct config config;
    struct arm *arm;
    struct measured_cell cell; /* the last that ran */
    int samples;               /* its, in t->window */
    char work[640];
};

static enum err_code take(struct looking *l, int repeats, double *rate, struct err *why)
{
    const struct cell_ask ask = { .arm = l->arm,
                                  .workload = l->work,
                                  .repeats = repeats,
                                  .seed = l->t->o->seed,
                                  .sampler = l->t->o->sampler,
                                  .event = tune_event,
                                  .ctx = l->t };
    free(l->cell.itl);
    const enum err_code rc = cell_take(&l->cell, &ask, l->t->window, &l->samples, why);
    *rate = l->cell.value[l->t->out->metric - METRICS];
    return rc || *rate > 0 ? rc : err_set(why, ERR_INTERNAL, "it gave no rate");
}

static double mean_of(double a, double b)
{
    return a > 0 && b > 0 ? 0.5 * (a + b) : 0;
}

static enum err_code take_cells(struct tune_timing *out, struct looking *l, struct err *why)
{
    struct tuning *t = l->t;
    struct tune_cell cell[CELLS];
    struct conditions look[2];
    double factor[2]; /* that each says */
    const int pid = arm_pid(l->arm);
    const double whole = t->o->budget_s;
    const int64_t until = clock_ns() + (int64_t)(1e9 * fmax(CELL_LEAST_S, LOOK_SHARE * whole));
    double rate;
    enum err_code rc = take(l, 1, &rate, why);
    if (rc) return rc;
    const int repeats = cell_repeats(l->cell.seconds, fmin(CELL_LEAST_S, CELL_SHARE * whole));
    int n = 0;
    look[1] = look_at_machine(t, l->c, pid);
    factor[1] = tune_usual_factor(t, &l->config, &look[1]);
    while (n < CELLS && (!n || clock_ns() < until)) {
        if ((rc = take(l, repeats, &rate, why))) return rc;
        look[0] = look[1];
        factor[0] = factor[1];
        look[1] = look_at_machine(t, l->c, pid);
        factor[1] = tune_usual_factor(t, &l->config, &look[1]);
        cell[n] = tune_cell_between(factor[0], factor[1], rate);
        if (n) learn_noise(t, &cell[n - 1], &cell[n]);
        tune_average(&t->cell_s, ++t->cells, l->cell.seconds);
        n++;
    }
    l->cell.beside = (struct conditions){ mean_of(look[0].memory_ratio, look[1].memory_ratio),
                                          mean_of(look[0].core_ratio, look[1].core_ratio) };
    *out = tune_timing_of(t, cell, n);
    return ERR_OK;
}

/* The last cell, with what all of them said. */
static enum err_code store_look(struct looking *l, const struct tune_timing *now, const struct err *failed,
                                struct err *why)
{
    struct tuning *t = l->t;
    struct cell_row row = { .run_id = t->run.id, .block = -1 };
    snprintf(row.phase, sizeof row.phase, "%s", TUNE_RACE);
    snprintf(row.config, sizeof row.config, "%s", l->c->line);
    snprintf(row.error, sizeof row.error, "%s", failed->code ? failed->message : "");
    const int stored = cell_thin(t->window, l->samples, l->cell.begun_ns, t->stored);
    l->cell.value[t->out->metric - METRICS] = now->rate;
    l->cell.usual_rate = now->usual_rate;
    l->cell.usual_sd = now->sd;
    return cell_insert(t->db, &row, &l->cell, t->stored, stored, why);
}

void tune_speed_recall(struct tuning *t, struct tune_candidate *c, int64_t cell_id)
{
    const struct tune_timing then = { db_measurement_get(t->db, cell_id, t->out->metric->name),
                                      db_measurement_get(t->db, cell_id, CELL_USUAL_RATE),
                                      db_measurement_get(t->db, cell_id, CELL_USUAL_SD) };
    if (then.rate > 0 && then.usual_rate > 0 && then.sd > 0) tune_learn_speed(t, c, then);
}

static struct arm_spec arm_of(const struct tuning *t, const struct config *config)
{
    return (struct arm_spec){ .model = t->o->model_path,
                              .config = config,
                              .ctx = workload_ctx(&t->o->workload),
                              .sequences = workload_sequences(&t->o->workload),
                              .program = t->o->program,
                              .log = t->o->log };
}

/* What was found, or why there is nothing. */
static enum err_code look_closely(struct tune_timing *now, struct looking *l, struct err *why)
{
    const struct arm_spec spec = arm_of(l->t, &l->config);
    workload_line(&l->t->o->workload, l->work, sizeof l->work);
    struct tuning *t = l->t;
    const bool made = !(tune_make_s(t, (int)(l->c - t->list)) > 0);
    const int64_t t0 = clock_ns();
    enum err_code rc = arm_open(&l->arm, &spec, tune_event, t, why);
    if (!rc && made) tune_average(&t->start_s, ++t->starts, (double)(clock_ns() - t0) * 1e-9);
    if (!rc) rc = take_cells(now, l, why);
    arm_close(l->arm);
    return rc;
}

enum err_code tune_look(struct tuning *t, int i, struct err *why)
{
    struct tune_candidate *c = &t->list[i];
    struct looking *l = calloc(1, sizeof *l);
    struct tune_timing now = { NAN, 0, 0 };
    struct err failed = { 0 };
    const int64_t t0 = clock_ns();
    if (!l) return err_set(why, ERR_NOMEM, "no memory for a look");
    *l = (struct looking){ .t = t, .c = c };
    enum err_code rc = tune_config(&l->config, t, c, why);
    if (!rc && !tune_tell(t, "speed of", c->line)) rc = err_set(why, ERR_CANCELLED, "stopped");
    if (!rc) {
        const enum err_code looked = look_closely(&now, l, &failed);
        l->cell.seconds = (double)(clock_ns() - t0) * 1e-9; /* what it cost, starting included */
        if (looked == ERR_CANCELLED) {
            rc = err_set(why, ERR_CANCELLED, "stopped");
        } else {
            tune_learn_cost(t, i, &t->look_s, &t->looks, l->cell.seconds);
            c->failed = looked != ERR_OK;
            snprintf(c->error, sizeof c->error, "%s", looked ? failed.message : "");
            if (!looked) tune_learn_speed(t, c, now);
            rc = store_look(l, &now, &failed, why);
        }
    }
    free(l->cell.itl);
    free(l);
    return rc;
}
