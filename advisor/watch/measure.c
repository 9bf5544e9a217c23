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
    struct arm *arm; /* NULL: it could not be opened */
    /* holds the lock "a measurement runs"; the watch's own handle holds "a watch runs" */
    struct db *holder;
    struct run_row run;
    double sum;
    struct span_load load;
};

static bool on_event(void *ctx, const json_t *event)
{
    struct work *k = ctx;
    (void)event;
    watch_read_sensors(k->w);
    return watch_continues(k->w);
}

static enum err_code model_store(struct work *k, const char *path, struct err *why)
{
    const json_t *about = arm_description(k->arm);
    const char *sha = json_get_str(about, "sha256", "");
    if (!*sha) return ERR_OK;
    char *described = json_line(about);
    const enum err_code rc = described ? db_model_put(k->w->db, sha, k->run.model_name, path, described, why)
                                       : err_set(why, ERR_NOMEM, "out of memory for the model's description");
    snprintf(k->run.model_sha256, sizeof k->run.model_sha256, "%s", sha);
    snprintf(k->out->sha256, sizeof k->out->sha256, "%s", sha);
    free(described);
    return rc;
}

static enum err_code machine_store(struct work *k, struct err *why)
{
    json_t *machine = machine_to_json(&k->w->setup.machine);
    char *line = json_line(machine);
    const enum err_code rc = line ? db_machine_put(k->w->db, k->w->setup.machine.id, line, why)
                                  : err_set(why, ERR_NOMEM, "out of memory for the machine's description");
    snprintf(k->run.machine, sizeof k->run.machine, "%s", k->w->setup.machine.id);
    json_decref(machine);
    free(line);
    return rc;
}

static enum err_code run_capsule_store(struct work *k, struct err *why)
{
    struct config resolved;
    const json_t *keys = json_object_get(arm_description(k->arm), "config");
    struct capsule_arm arm = { .line = k->line,
                               .model_path = k->item->item.model,
                               .model_name = k->run.model_name,
                               .sha256 = k->run.model_sha256 };
    if (keys && !config_from_json(&resolved, keys, NULL)) arm.resolved = &resolved;
    return capsule_store(
        k->w->db, k->run.id,
        &(struct capsule_of){ &k->w->setup.machine, k->w->setup.o.root, k->w->setup.o.program, &arm, 1 },
        why);
}

/* Insert the run's row, also when the model cannot be opened: the failure counts. */
static enum err_code run_begin(struct work *k, struct err *why)
{
    const char *path = k->item->item.model, *slash = strrchr(path, '/');
    snprintf(k->run.kind, sizeof k->run.kind, "%s", KIND);
    snprintf(k->run.state, sizeof k->run.state, "running");
    snprintf(k->run.workload, sizeof k->run.workload, "%s", k->workload);
    snprintf(k->run.label, sizeof k->run.label, "%s", k->line);
    snprintf(k->run.metric, sizeof k->run.metric, "%s", k->item->metric->name);
    snprintf(k->run.model_name, sizeof k->run.model_name, "%s", slash ? slash + 1 : path);
    k->run.seed = k->w->setup.o.seed;
    k->run.effect_ratio = NAN;
    enum err_code rc = machine_store(k, why);
    if (!rc && k->arm) rc = model_store(k, path, why);
    if (!rc) rc = db_run_insert(k->w->db, &k->run, why);
    if (rc) return rc;
    k->out->run_id = k->run.id;
    rc = db_open(&k->holder, k->w->setup.o.db_path, why);
    if (!rc) rc = db_run_lock(k->holder, k->run.id, why);
    if (!rc && k->arm) rc = run_capsule_store(k, why);
    k->load.description = k->arm ? arm_description(k->arm) : NULL;
    return rc ? rc : spans_store_load(k->w->db, k->run.id, 0, &k->load, why);
}

/* Measure a canary and keep the faster of the two, figure by figure: a disturbance of one is not a change of
 * the machine. */
static enum err_code canary_take(struct work *k, enum canary_when when, struct err *why)
{
    struct canary c, *best = &k->out->canary;
    canary_measure(&c);
    best->read_bytes_s = fmax(best->read_bytes_s, c.read_bytes_s);
    best->ops_s = fmax(best->ops_s, c.ops_s);
    snprintf(best->work, sizeof best->work, "%s", c.work);
    return canary_store(k->w->db, k->run.id, when, &c, why);
}

static enum err_code cell_store(struct work *k, struct measured_cell *c, int samples,
                                const struct err *failed, struct err *why)
{
    struct cell_row row = { .run_id = k->run.id, .block = -1 };
    snprintf(row.phase, sizeof row.phase, "%s", PHASE);
    snprintf(row.config, sizeof row.config, "%s", k->line);
    snprintf(row.error, sizeof row.error, "%s", failed ? failed->message : "");
    const int stored = cell_thin(k->w->scratch.window, samples, c->begun_ns, k->w->scratch.stored);
    return cell_insert(k->w->db, &row, c, k->w->scratch.stored, stored, why);
}

static void cell_check(struct work *k, struct measured_cell *c, int samples)
{
    json_t *o = json_object();
    json_put_num(o, "major_faults", c->field[FIELD_MAJOR_FAULTS]);
    json_put_str(o, "device", json_get_str(arm_description(k->arm), "device", "cpu"));
    if (!k->w->setup.o.even_if_busy)
        contamination_reason(k->w->scratch.window, samples, o, NAN, c->discard, sizeof c->discard);
    json_decref(o);
}

/* Measure one timed cell and store it, whether it is discarded or not. */
static enum err_code cell_measure(struct work *k, int repeats, struct err *why)
{
    const struct cell_ask ask = { .arm = k->arm,
                                  .workload = k->workload,
                                  .repeats = repeats,
                                  .seed = k->w->setup.o.seed,
                                  .sampler = k->w->sampler,
                                  .event = on_event,
                                  .ctx = k };
    struct measured_cell c;
    struct err stored = { 0 };
    int samples = 0;
    enum err_code rc = cell_take(&c, &ask, k->w->scratch.window, &samples, why);
    if (rc != ERR_CANCELLED) {
        if (!rc) cell_check(k, &c, samples);
        if (cell_store(k, &c, samples, rc ? why : NULL, &stored)) watch_report_trouble(k->w, &stored);
    }
    const double value = c.value[k->item->metric - METRICS];
    if (!rc && *c.discard) {
        k->out->discarded++;
        snprintf(k->out->reason, sizeof k->out->reason, "%s", c.discard);
    } else if (!rc && value > 0) {
        k->out->cells++;
        k->sum += log(value);
    } else if (!rc) {
        rc = err_set(why, ERR_INTERNAL, "a cell of %s returned no value of %s", k->workload,
                     k->item->metric->name);
    }
    free(c.itl);
    return rc;
}

/* The first cell runs once, to find out how many repetitions make it long enough; the second one lets the
 * speed settle. */
static enum err_code cells_warm_up(struct work *k, int *repeats, struct err *why)
{
    enum err_code rc = ERR_OK;
    *repeats = 1;
    for (int i = 0; i < 2 && !rc; i++) {
        const struct cell_ask ask = { k->arm, k->workload, *repeats, k->w->setup.o.seed, NULL, on_event, k };
        struct measured_cell c;
        int samples;
        rc = cell_take(&c, &ask, k->w->scratch.window, &samples, why);
        if (!i) *repeats = cell_repeats(c.seconds, CELL_LEAST_S);
        free(c.itl);
    }
    return rc;
}

static enum err_code cells_measure(struct work *k, struct err *why)
{
    const int wanted = k->w->setup.o.repetitions;
    int repeats;
    enum err_code rc = cells_warm_up(k, &repeats, why);
    if (k->w->sampler) sampler_monitor_process(k->w->sampler, arm_pid(k->arm));
    for (int i = 0; i < 3 * wanted && k->out->cells < wanted && !rc; i++) rc = cell_measure(k, repeats, why);
    return rc;
}

static enum err_code work_arm_open(struct work *k, struct err *why)
{
    const struct workload *load = &k->item->item.workload;
    const struct arm_spec spec = { .model = k->item->item.model,
                                   .config = k->config,
                                   .ctx = config_int(k->config, KNOB_CTX) ? 0 : workload_ctx(load),
                                   .sequences = workload_sequences(load),
                                   .train = load->train > 0,
                                   .program = k->w->setup.o.program,
                                   .log = &k->w->setup.log };
    const struct moment begun = moment_now();
    const enum err_code rc = arm_open(&k->arm, &spec, on_event, k, why);
    k->load = (struct span_load){ .begun = begun, .seconds = (double)(clock_ns() - begun.clock_ns) * 1e-9 };
    return rc;
}

static void run_finish(struct work *k)
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
    char *line = json_line(o);
    json_decref(o);
    if (db_run_finish(k->w->db, k->run.id, STATES[k->out->how], "", NAN, line, &why))
        watch_report_trouble(k->w, &why);
    free(line);
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
    enum err_code rc = opened == ERR_CANCELLED ? opened : run_begin(&k, &begin);
    if (rc && !opened) why = begin;
    if (opened) rc = opened;
    if (!rc) rc = canary_take(&k, CANARY_START, &why);
    if (!rc) rc = cells_measure(&k, &why);
    arm_close(k.arm);
    if (!rc) rc = canary_take(&k, CANARY_END, &why);
    measurement_conclude(&k, rc, &why);
    if (out->run_id) run_finish(&k);
    db_close(k.holder);
}
