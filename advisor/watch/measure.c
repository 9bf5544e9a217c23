/* advisor/watch/measure.c - measures one config on one workload and stores it as a run of kind "watch": a new
 * process, warm-up cells, cells until enough were undisturbed, and a canary before and after. The cells are
 * stored like those of `bench`, so history and results read them, too. */
#include "advisor/watch/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "advisor/experiment/experiment.h"

static const char KIND[] = "watch", PHASE[] = "bench";

struct work {
    struct watch *w;
    const struct watch_own_item *item;
    const struct config *config;
    struct item_measurement *out;
    char line[CONFIG_LINE], workload[576];
    struct arm *arm;   /* NULL: it could not be opened */
    struct db *holder; /* says that we measure; the watch's own handle says that we watch */
    struct run run;
    struct machine_ceilings *ceilings; /* owned */
    struct cell_tally tally;
    double sum;
    struct span_load load;
};

static bool measure_on_event(void *ctx, const json_t *event)
{
    struct work *k = ctx;
    (void)event;
    watch_read_sensors(k->w);
    return watch_continues(k->w);
}

/* The run's row, also when the model could not be opened: that failure counts. */
static enum err_code measurement_begin(struct work *k, struct err *why)
{
    const char *path = k->item->item.model;
    const json_t *about = k->arm ? arm_description(k->arm) : NULL;
    const struct capsule_arm arm = {
        .line = k->line, .model_path = path, .model_name = path_file_name(path), .description = about
    };
    bool known = false;
    k->ceilings = calloc(1, sizeof *k->ceilings);
    if (!k->ceilings) return err_set(why, ERR_NOMEM, "no memory for a measurement");
    (void)ceilings_load(k->ceilings, k->w->setup.machine.id, &known, NULL);
    enum err_code rc = db_open(&k->holder, k->w->setup.o.db_path, why);
    const struct run_spec spec = { .kind = KIND,
                                   .workload = k->workload,
                                   .label = k->line,
                                   .metric = k->item->metric->name,
                                   .seed = k->w->setup.o.seed,
                                   .has_canary = k->arm != NULL,
                                   .machine = &k->w->setup.machine,
                                   .ceilings = known ? k->ceilings : NULL,
                                   .sampler = k->w->sampler,
                                   .root = k->w->setup.o.root,
                                   .program = k->w->setup.o.program,
                                   .labels = k->w->setup.o.labels,
                                   .holder = k->holder, /* the watch's own handle holds the watch */
                                   .arm = &arm,
                                   .arms = 1 };
    if (!rc) rc = run_begin(&k->run, k->w->db, &spec, why);
    k->out->run_id = k->run.row.id;
    snprintf(k->out->sha256, sizeof k->out->sha256, "%s", json_get_str(about, "sha256", ""));
    k->load.description = about;
    return rc ? rc : run_arm_opened(&k->run, 0, &k->load, why);
}

static struct run_cell cell_of(struct work *k, int repeats)
{
    return (struct run_cell){ .arm = k->arm,
                              .workload = k->workload,
                              .repeats = repeats,
                              .seed = k->w->setup.o.seed,
                              .event = measure_on_event,
                              .ctx = k,
                              .contamination = round_counts_disturbed(k->w) ? CONTAMINATION_NOTED
                                                                            : CONTAMINATION_DISCARDS,
                              .control_frequency = NAN,
                              .sample_conditions = true,
                              .place = { .block = -1, .phase = PHASE, .config = k->line } };
}

/* One timed cell; kept or not, it is in the database. */
static enum err_code cell_measure(struct work *k, int repeats, struct err *why)
{
    const struct run_cell what = cell_of(k, repeats);
    struct measured_cell c;
    struct err stored = { 0 };
    enum err_code rc = run_cell(&k->run, &what, &c, &stored);
    if (rc && rc != ERR_CANCELLED) watch_report_trouble(k->w, &stored);
    rc = c.failure.code;
    if (rc) *why = c.failure;
    const double value = c.value[k->item->metric - METRICS];
    if (!rc && c.discarded) {
        k->out->discarded++;
        snprintf(k->out->reason, sizeof k->out->reason, "%s", c.disturbed);
    } else if (!rc && value > 0) {
        k->out->cells++;
        k->sum += log(value);
        k->out->disturbed += *c.disturbed != '\0';
        if (*c.disturbed) snprintf(k->out->disturbance, sizeof k->out->disturbance, "%s", c.disturbed);
        rc = tally_add(&k->tally, &c, why);
    } else if (!rc) {
        rc = err_set(why, ERR_INTERNAL, "a cell of %s gave no value of %s", k->workload,
                     k->item->metric->name);
    }
    cell_done(&c);
    return rc;
}

/* The first run of the workload is not timed, and says how often it must run to last; the second settles
 * caches and clocks. */
static enum err_code cells_warm_up(struct work *k, int *repeats, struct err *why)
{
    enum err_code rc = ERR_OK;
    *repeats = 1;
    for (int i = 0; i < 2 && !rc; i++) {
        const struct run_cell what = cell_of(k, *repeats);
        struct measured_cell c;
        rc = run_measure_cell(&k->run, &what, &c, why);
        if (!i && !workload_is_load(&k->item->item.workload))
            *repeats = cell_repeats(c.seconds, CELL_LEAST_S);
        cell_done(&c);
    }
    return rc;
}

static struct run_timing timing_of(const struct work *k)
{
    return (struct run_timing){ .model = k->item->item.model,
                                .config = k->config,
                                .workload = &k->item->item.workload,
                                .tally = &k->tally,
                                .description = k->arm ? arm_description(k->arm) : NULL };
}

/* A prediction that cannot be corrected is no reason to lose a round. */
static void store_residuals(struct work *k)
{
    const struct run_timing t = timing_of(k);
    struct err why;
    if (t.workload->train || *t.workload->eval_file || workload_is_load(t.workload)) return;
    if (run_residuals(&k->run, &t, &why)) watch_report_trouble(k->w, &why);
}

static enum err_code cells_measure(struct work *k, struct err *why)
{
    const int wanted = k->w->setup.o.repetitions;
    int repeats;
    enum err_code rc = cells_warm_up(k, &repeats, why);
    const struct run_timing t = timing_of(k);
    struct err unknown;
    if (!rc && run_conditions_open(&k->run, &t, &unknown)) watch_report_trouble(k->w, &unknown);
    run_conditions_sample(&k->run, arm_pid(k->arm));
    int attempts = 0;
    while (attempts < 3 * wanted && k->out->cells < wanted && !rc) {
        const int discarded = k->out->discarded;
        rc = cell_measure(k, repeats, why);
        /* while the round may wait, a disturbed cell is no attempt: it waits again, and after the deadline
         * disturbed cells count */
        if (rc || k->out->discarded == discarded || !round_may_wait(k->w))
            attempts++;
        else
            (void)round_wait_quiet(k->w);
    }
    if (!rc) store_residuals(k);
    return rc;
}

static enum err_code work_arm_open(struct work *k, struct err *why)
{
    const struct workload *load = &k->item->item.workload;
    const struct arm_spec spec = { .model = k->item->item.model,
                                   .config = k->config,
                                   .ctx = config_int(k->config, KNOB_CTX) ? 0 : workload_ctx(load),
                                   .sequences = workload_sequences_for(load, k->config),
                                   .train = load->train > 0,
                                   .program = k->w->setup.o.program,
                                   .log = &k->w->setup.log };
    const struct moment begun = moment_now();
    const enum err_code rc = arm_open(&k->arm, &spec, measure_on_event, k, why);
    k->load = (struct span_load){ .begun = begun, .seconds = (double)(clock_ns() - begun.clock_ns) * 1e-9 };
    return rc;
}

static void measurement_finish(struct work *k)
{
    static const char *const STATES[] = { [MEASURED] = "done",
                                          [MEASURE_DISTURBED] = "stopped",
                                          [MEASURE_FAILED] = "failed",
                                          [MEASURE_STOPPED] = "stopped" };
    struct err why = { 0 };
    json_t *o = json_object();
    json_put_str(o, "schema", "qdyno.watch_round/1");
    json_put_str(o, "metric", k->item->metric->name);
    json_put_num(o, "value", exp(k->out->ln_value));
    json_put_int(o, "cells", k->out->cells);
    json_put_int(o, "discarded_cells", k->out->discarded);
    json_put_str(o, "reason", *k->out->reason ? k->out->reason : NULL);
    const struct run_outcome outcome = { STATES[k->out->how], NULL, NAN, o };
    if (run_finish(&k->run, &outcome, &why)) watch_report_trouble(k->w, &why);
    json_decref(o);
}

static void measurement_conclude(struct work *k, enum err_code rc, const struct err *why)
{
    struct item_measurement *m = k->out;
    const bool enough = m->cells >= (k->w->setup.o.repetitions + 1) / 2;
    m->how = rc == ERR_CANCELLED ? MEASURE_STOPPED
             : rc                ? MEASURE_FAILED
             : enough            ? MEASURED
                                 : MEASURE_DISTURBED;
    m->code = rc;
    if (rc) snprintf(m->reason, sizeof m->reason, "%s", why->message);
    if (m->how == MEASURED) {
        m->ln_value = k->sum / m->cells;
        m->reason[0] = '\0';
    }
}

void measure_item(struct watch *w, const struct watch_own_item *item, const struct config *config,
                  struct item_measurement *out)
{
    struct err why = { 0 };
    struct work k = { .w = w, .item = item, .config = config, .out = out };
    *out = (struct item_measurement){ .ln_value = NAN, .canary = { NAN, NAN, "", NAN } };
    config_line(config, k.line, sizeof k.line);
    workload_line(&item->item.workload, k.workload, sizeof k.workload);
    const enum err_code opened = work_arm_open(&k, &why);
    struct err begin = { 0 };
    k.load.error = opened ? why.message : "";
    enum err_code rc = opened == ERR_CANCELLED ? opened : measurement_begin(&k, &begin);
    if (rc && !opened) why = begin;
    if (opened) rc = opened;
    if (!rc) rc = cells_measure(&k, &why);
    arm_close(k.arm);
    k.arm = NULL;
    measurement_conclude(&k, rc, &why);
    if (out->run_id) measurement_finish(&k);
    for (int i = 0; i < 2; i++) canary_best(&out->canary, &k.run.canary[i]);
    run_close(&k.run);
    tally_free(&k.tally);
    free(k.ceilings);
    db_close(k.holder);
}
