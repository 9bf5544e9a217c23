/* advisor/tune/speed.c - times one candidate.
 *
 * A timing runs the candidate in a new process: one warm-up cell, then up to four cells that count.
 * Candidates are timed one after another on a machine that others may use, so a candidate timed during a
 * disturbance would lose unfairly. Each cell therefore lies between two probes of the machine conditions, and
 * the race compares normalized rates: the measured rate times the ratio of the predictions for usual and for
 * probed conditions. A shared CPU changes within tenths of a second; where the two probes of a cell disagree,
 * the cell gets a smaller weight. Without kernel times there is no reference, and normalized rates equal
 * measured ones. */
#include "advisor/tune/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char TUNE_RACE[] = "race";
enum { CELLS = 4 }; /* per timing, at most */
/* Of the budget: the length of a cell of a short workload, and the time after which a timing starts no
 * further cell. */
static const double CELL_SHARE = 0.0025, TIMING_SHARE = 0.02;

/* ---------------------------------------------------------------- machine conditions */

/* Probe the machine conditions while the candidate is idle. Zeros: no reference for its thread count. */
static struct conditions conditions_measure(struct tuning *t, const struct tune_candidate *of, int pid)
{
    if (of->probe < 0) return (struct conditions){ 0 };
    struct conditions_probe **w = &t->scratch.probe[of->probe];
    if (!*w) {
        const int threads = of->probe ? t->task.o->ceilings->threads_all : 1;
        struct err ignored;
        *w = calloc(1, sizeof **w);
        if (*w && conditions_probe_open(*w, threads, t->task.o->ceilings, &ignored))
            conditions_probe_close(*w); /* a closed probe measures nothing */
    }
    if (!*w) return (struct conditions){ 0 };
    conditions_probe_restart(*w);
    conditions_probe_run(*w, pid);
    return conditions_probe_result(*w);
}

void tune_probes_close(struct tune_scratch *s)
{
    for (size_t i = 0; i < COUNT_OF(s->probe); i++) {
        if (s->probe[i]) conditions_probe_close(s->probe[i]);
        free(s->probe[i]);
        s->probe[i] = NULL;
    }
}

double tune_predicted(const struct tune_task *task, const struct prediction *p)
{
    if (task->metric == &METRICS[METRIC_DECODE_RATE]) return p->decode_tok_s.estimate;
    return task->metric == &METRICS[METRIC_PREFILL_RATE] ? p->prefill_tok_s.estimate : (double)NAN;
}

double tune_normalization(const struct tune_task *task, const struct config *c,
                          const struct conditions *conditions)
{
    struct predict_for what = task->what;
    const struct tune_options *o = task->o;
    struct prediction usual, current;
    struct err ignored;
    if (!(conditions->core_ratio > 0) ||
        predict(&usual, task->file, c, o->machine, o->ceilings, &what, &ignored))
        return 1;
    what.conditions = *conditions;
    if (predict(&current, task->file, c, o->machine, o->ceilings, &what, &ignored)) return 1;
    const double factor = tune_predicted(task, &usual) / tune_predicted(task, &current);
    return isfinite(factor) && factor > 0 ? factor : 1;
}

/* ---------------------------------------------------------------- noise and updates */

/* The machine changed at an unknown moment between the two probes: a uniform distribution over the cell,
 * whose standard deviation is the range / sqrt(12). */
struct tune_cell tune_cell_normalize(double before, double after, double rate)
{
    const double a = log(before), b = log(after);
    return (struct tune_cell){ rate, log(rate) + 0.5 * (a + b), fabs(a - b) / sqrt(12) };
}

/* Update the noise of one cell: two consecutive cells differ by the noise of both. */
static void noise_update(struct tune_noise *noise, const struct tune_cell *before,
                         const struct tune_cell *now)
{
    enum { PRIOR_N = 4 };
    static const double PRIOR = 0.03, LEAST = 0.005;
    const double step = now->ln_normalized - before->ln_normalized;
    if (!isfinite(step) || before->sd > noise->sd || now->sd > noise->sd) return;
    noise->sum += 0.5 * step * step;
    noise->n++;
    noise->sd = fmax(LEAST, sqrt((noise->sum + PRIOR_N * PRIOR * PRIOR) / (noise->n + PRIOR_N)));
}

static double cell_precision(const struct tune_noise *noise, const struct tune_cell *cell)
{
    return 1 / (noise->sd * noise->sd + cell->sd * cell->sd);
}

/* Mean of a timing's cells, weighted by precision (1 / variance). If the cells scatter more than their
 * precision allows, the variance is scaled up (Birge ratio). Processes of the same config differ, too:
 * PROCESS_SD. */
struct tune_timing tune_timing_combine(const struct tune_noise *noise, const struct tune_cell *cell, int n)
{
    static const double PROCESS_SD = 0.02;
    struct tune_timing all = { 0 };
    double weights = 0, mean = 0, scatter = 0;
    for (int i = 0; i < n; i++) {
        const double w = cell_precision(noise, &cell[i]);
        weights += w;
        mean += w * cell[i].ln_normalized;
        all.rate += cell[i].rate / n;
    }
    mean /= weights;
    for (int i = 0; i < n; i++) {
        const double off = cell[i].ln_normalized - mean;
        scatter += cell_precision(noise, &cell[i]) * off * off / fmax(n - 1, 1);
    }
    all.normalized_rate = exp(mean);
    all.sd = sqrt(fmax(scatter, 1) / weights + PROCESS_SD * PROCESS_SD);
    return all;
}

/* Update the dispersion: timings of one candidate that differ by more than their standard errors allow
 * increase the variance of all later ones. */
static void dispersion_update(struct tune_noise *noise, const struct tune_candidate *c,
                              const struct tune_timing *now)
{
    enum { PRIOR_N = 4 };
    const double off = log(now->normalized_rate / c->normalized_rate);
    noise->dispersion_sum += off * off / (now->sd * now->sd + c->normalized_sd * c->normalized_sd);
    noise->dispersion_n++;
    noise->dispersion = fmax(1, (noise->dispersion_sum + PRIOR_N) / (noise->dispersion_n + PRIOR_N));
}

void tune_add_timing(struct tuning *t, struct tune_candidate *c, struct tune_timing now)
{
    int at[TUNE_DIMS];
    if (c->timings) dispersion_update(&t->noise, c, &now);
    now.sd *= sqrt(t->noise.dispersion);
    const double w = 1 / (now.sd * now.sd), had = c->timings ? 1 / (c->normalized_sd * c->normalized_sd) : 0;
    const double ln = ((had > 0 ? had * log(c->normalized_rate) : 0) + w * log(now.normalized_rate)) /
                      (had + w);
    tune_average(&c->rate, ++c->timings, now.rate);
    c->normalized_rate = exp(ln);
    c->normalized_sd = 1 / sqrt(had + w);
    if (c->index < 0 || !(c->predicted > 0)) return;
    tune_space_at(at, &t->task.space, c->index);
    tune_regression_add(t->known.speed, at, log(now.normalized_rate / c->predicted), now.sd);
}

/* ---------------------------------------------------------------- one timing */

struct timing {
    struct tuning *t;
    struct tune_candidate *c;
    struct config config;
    struct arm *arm;
    struct measured_cell cell; /* of the last cell that ran */
    char work[640];
};

static enum err_code timing_run_cell(struct timing *l, int repeats, double *rate, struct err *why)
{
    const struct run_cell what = { .arm = l->arm,
                                   .workload = l->work,
                                   .repeats = repeats,
                                   .seed = l->t->task.o->seed,
                                   .event = tune_event,
                                   .ctx = l->t };
    cell_done(&l->cell);
    const enum err_code rc = run_measure_cell(&l->t->record.run, &what, &l->cell,
                                              why); /* timing_store stores it */
    *rate = l->cell.value[l->t->task.metric - METRICS];
    return rc || *rate > 0 ? rc : err_set(why, ERR_INTERNAL, "the cell returned no rate");
}

static double mean_if_known(double a, double b)
{
    return a > 0 && b > 0 ? 0.5 * (a + b) : 0;
}

static enum err_code timing_run_cells(struct tune_timing *out, struct timing *l, struct err *why)
{
    struct tuning *t = l->t;
    struct tune_cell cell[CELLS];
    struct conditions probe[2];
    double factor[2]; /* normalization by each of the two probes */
    const int pid = arm_pid(l->arm);
    const double whole = t->task.o->budget_s;
    const int64_t until = clock_ns() + (int64_t)(1e9 * fmax(CELL_LEAST_S, TIMING_SHARE * whole));
    double rate;
    enum err_code rc = timing_run_cell(l, 1, &rate, why);
    if (rc) return rc;
    const int repeats = workload_is_load(&t->task.o->workload)
                            ? 1
                            : cell_repeats(l->cell.seconds, fmin(CELL_LEAST_S, CELL_SHARE * whole));
    int n = 0;
    probe[1] = conditions_measure(t, l->c, pid);
    factor[1] = tune_normalization(&t->task, &l->config, &probe[1]);
    while (n < CELLS && (!n || clock_ns() < until)) {
        if ((rc = timing_run_cell(l, repeats, &rate, why))) return rc;
        probe[0] = probe[1];
        factor[0] = factor[1];
        probe[1] = conditions_measure(t, l->c, pid);
        factor[1] = tune_normalization(&t->task, &l->config, &probe[1]);
        cell[n] = tune_cell_normalize(factor[0], factor[1], rate);
        if (n) noise_update(&t->noise, &cell[n - 1], &cell[n]);
        tune_average(&t->costs.cell.seconds, ++t->costs.cell.n, l->cell.seconds);
        n++;
    }
    l->cell.beside = (struct conditions){ mean_if_known(probe[0].memory_ratio, probe[1].memory_ratio),
                                          mean_if_known(probe[0].core_ratio, probe[1].core_ratio) };
    *out = tune_timing_combine(&t->noise, cell, n);
    return ERR_OK;
}

/* Store the last cell's samples with the results of the whole timing. */
static enum err_code timing_store(struct timing *l, const struct tune_timing *now, const struct err *failed,
                                  struct err *why)
{
    struct tuning *t = l->t;
    const struct run_place place = { .block = -1, .phase = TUNE_RACE, .config = l->c->line };
    l->cell.failure = *failed;
    l->cell.value[t->task.metric - METRICS] = now->rate;
    l->cell.usual_rate = now->normalized_rate;
    l->cell.usual_sd = now->sd;
    return run_store(&t->record.run, &place, &l->cell, why);
}

void tune_restore_timing(struct tuning *t, struct tune_candidate *c, int64_t cell_id)
{
    const struct tune_timing then = { db_measurement_get(t->record.db, cell_id, t->task.metric->name),
                                      db_measurement_get(t->record.db, cell_id, CELL_USUAL_RATE),
                                      db_measurement_get(t->record.db, cell_id, CELL_USUAL_SD) };
    if (then.rate > 0 && then.normalized_rate > 0 && then.sd > 0) tune_add_timing(t, c, then);
}

static struct arm_spec timing_arm_spec(const struct tuning *t, const struct config *config)
{
    return (struct arm_spec){ .model = t->task.o->model_path,
                              .config = config,
                              .ctx = workload_ctx(&t->task.o->workload),
                              .sequences = workload_sequences_for(&t->task.o->workload, config),
                              .program = t->task.o->program,
                              .log = t->task.o->log };
}

/* Open the candidate, time it, close it. `failed` says why there is no result. */
static enum err_code timing_run(struct tune_timing *now, struct timing *l, struct err *why)
{
    const struct arm_spec spec = timing_arm_spec(l->t, &l->config);
    workload_line(&l->t->task.o->workload, l->work, sizeof l->work);
    struct tuning *t = l->t;
    const bool made = !(tune_make_s(t, (int)(l->c - t->known.list)) > 0);
    const int64_t t0 = clock_ns();
    enum err_code rc = arm_open(&l->arm, &spec, tune_event, t, why);
    if (!rc && made)
        tune_average(&t->costs.start.seconds, ++t->costs.start.n, (double)(clock_ns() - t0) * 1e-9);
    if (!rc) rc = timing_run_cells(now, l, why);
    arm_close(l->arm);
    return rc;
}

enum err_code tune_measure_speed(struct tuning *t, int i, struct err *why)
{
    struct tune_candidate *c = &t->known.list[i];
    struct timing *l = calloc(1, sizeof *l);
    struct tune_timing now = { NAN, 0, 0 };
    struct err failed = { 0 };
    const int64_t t0 = clock_ns();
    if (!l) return err_set(why, ERR_NOMEM, "out of memory for a timing");
    *l = (struct timing){ .t = t, .c = c };
    cell_init(&l->cell);
    cell_clock_start(&l->cell); /* a timing whose process does not start is stored, too */
    enum err_code rc = tune_config(&l->config, t, c, why);
    if (!rc && !tune_report(t, "speed", c->line)) rc = err_set(why, ERR_CANCELLED, "stopped");
    if (!rc) {
        const enum err_code timed = timing_run(&now, l, &failed);
        l->cell.seconds = (double)(clock_ns() - t0) * 1e-9; /* including the start of the process */
        if (timed == ERR_CANCELLED) {
            rc = err_set(why, ERR_CANCELLED, "stopped");
        } else {
            tune_add_cost(t, i, &t->costs.timing, l->cell.seconds);
            c->failed = timed != ERR_OK;
            snprintf(c->error, sizeof c->error, "%s", timed ? failed.message : "");
            if (!timed) tune_add_timing(t, c, now);
            rc = timing_store(l, &now, &failed, why);
        }
    }
    cell_done(&l->cell);
    free(l);
    return rc;
}
