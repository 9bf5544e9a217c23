/* advisor/watch/round.c - one round: is it due, is the machine free, what does each item measure, and how
 * does that compare with its reference?
 *
 * The reference, a baseline's value or the usual speed of this machine, was measured on another day. That is
 * too weak for a verdict (docs/ab.md measures both sides now), but good enough to alert on a loss of a fifth,
 * provided that the canary shows whether the machine itself changed. An item that looks too slow is measured
 * a second time before an alert. */
#include "advisor/watch/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"

enum { USUAL_ROUNDS = 5, ATTEMPTS = 20, RETRY_S = 120, QUIET_S = 10 };

void subject_set(struct watch_own_item *item)
{
    char line[CONFIG_LINE], workload[576];
    struct config c = item->item.config;
    const char *model = *config_text(&c, KNOB_MODEL) ? config_text(&c, KNOB_MODEL) : item->item.model,
               *slash = strrchr(model, '/');
    char name[96];
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : model);
    config_unset(&c, KNOB_MODEL);
    snprintf(item->subject, sizeof item->subject, "%s%s%s %s", name, *name ? " " : "",
             workload_line(&item->item.workload, workload, sizeof workload),
             config_line(&c, line, sizeof line));
}

/* ---------------------------------------------------------------- references */

/* Running mean of ln(value) over the first rounds; NAN before the first. ln_value updates it, unless it is
 * NAN or more than 0.2 away from the mean. */
static double usual_update(struct watch *w, const char *what, const char *subject, double ln_value)
{
    char mean_key[32], n_key[32];
    snprintf(mean_key, sizeof mean_key, USUAL "%s", what);
    snprintf(n_key, sizeof n_key, USUAL "%.20s n", what);
    const double mean = watch_value_get(w, mean_key, subject), kept = watch_value_get(w, n_key, subject),
                 n = isnan(mean) || isnan(kept) ? 0 : kept;
    const bool near = n < 1 || fabs(ln_value - mean) < 0.2;
    if (n < USUAL_ROUNDS && !isnan(ln_value) && near) {
        watch_value_put(w, mean_key, subject, n < 1 ? ln_value : mean + (ln_value - mean) / (n + 1));
        watch_value_put(w, n_key, subject, n + 1);
    }
    return n < 1 ? NAN : mean;
}

/* A baseline without a value on this machine: its own first rounds are the reference, whatever config runs
 * now. */
static double champion_usual_update(struct watch *w, const struct watch_own_item *item, double ln_value)
{
    struct watch_own_item *champion = malloc(sizeof *champion);
    double ln = NAN;
    if (!champion) return NAN;
    *champion = *item;
    if (!config_parse(&champion->item.config, item->item.baseline.config, NULL)) {
        subject_set(champion);
        ln = usual_update(w, "value", champion->subject, is_champion(item) ? ln_value : NAN);
    }
    free(champion);
    return ln;
}

/* ln of the reference; NAN: none yet. `from` says where it comes from. */
static double reference_find(struct watch *w, const struct watch_own_item *item, double ln_value, char *from,
                             size_t size)
{
    const struct baseline_row *b = &item->item.baseline;
    if (item->item.has_baseline && b->value > 0 &&
        (!*b->machine || !strcmp(b->machine, w->setup.machine.id))) {
        snprintf(from, size, "baseline %s", b->name);
        return log(b->value);
    }
    if (item->item.has_baseline) {
        snprintf(from, size, "the first rounds of baseline %s", b->name);
        return champion_usual_update(w, item, ln_value);
    }
    snprintf(from, size, "its own first rounds");
    return usual_update(w, "value", item->subject, ln_value);
}

/* ---------------------------------------------------------------- one item */

struct item_round {
    struct item_measurement m;
    double ln_reference, loss; /* share below the reference; NAN: unknown */
    char from[96];
};

double gain_ratio(const struct metric *metric, double ln_value, double ln_reference)
{
    return exp(metric_sign(metric) * (ln_value - ln_reference)) - 1;
}

/* The smallest loss that any enabled alert fires at. */
static double alert_loss_min(const struct watch *w)
{
    double least = INFINITY;
    for (int i = 0; i < ALERT_COUNT; i++)
        if (w->alerts.rules.row[i].signal == SIGNAL_PERFORMANCE && !w->alerts.rules.off[i])
            least = fmin(least, w->alerts.rules.row[i].threshold);
    return least;
}

static void round_report(struct watch *w, const struct watch_own_item *item, const struct item_round *r)
{
    char against[160], busy[256] = "";
    json_t *o = json_object();
    const double value = exp(r->m.ln_value), ratio = exp(r->m.ln_value - r->ln_reference);
    json_put_str(o, "subject", item->subject);
    json_put_int(o, "run", r->m.run_id);
    json_put_str(o, "metric", item->metric->name);
    json_put_str(o, "unit", item->metric->unit);
    json_put_num(o, "value", value);
    json_put_num(o, "reference", exp(r->ln_reference));
    json_put_str(o, "reference_from", isnan(r->ln_reference) ? NULL : r->from);
    json_put_num(o, "loss_ratio", r->loss);
    json_put_int(o, "cells", r->m.cells);
    json_put_int(o, "discarded_cells", r->m.discarded);
    json_put_int(o, "disturbed_cells", r->m.disturbed);
    json_put_num(o, "canary_read_bytes_s", r->m.canary.read_bytes_s);
    json_put_num(o, "canary_ops_s", r->m.canary.ops_s);
    json_put_bool(o, "enough_history", !isnan(r->ln_reference));
    if (isnan(r->ln_reference))
        snprintf(against, sizeof against, "not enough history yet (0 of 1): nothing to compare with yet");
    else
        snprintf(against, sizeof against, "%+.1f %% against %s", 100 * (ratio - 1), r->from);
    if (r->m.disturbed)
        snprintf(busy, sizeof busy, "; %d of %d cell%s disturbed: %s", r->m.disturbed, r->m.cells,
                 str_plural(r->m.cells), r->m.disturbance);
    watch_report(w, WATCH_ROUND, GRADE_INFO, o, "%s: %s %.5g %s, %s%s", item->subject, item->metric->name,
                 value, item->metric->unit, against, busy);
}

static void item_measure_again(struct watch *w, const struct watch_own_item *item, struct item_round *r)
{
    struct item_measurement again;
    measure_item(w, item, &item->item.config, &again);
    if (again.how != MEASURED) return; /* keep the first measurement */
    const double loss = 0 - gain_ratio(item->metric, again.ln_value, r->ln_reference);
    if (!(loss < r->loss)) return;
    r->m = again;
    r->loss = loss;
}

static void item_measured(struct watch *w, struct watch_own_item *item, struct item_round *r)
{
    r->ln_reference = reference_find(w, item, r->m.ln_value, r->from, sizeof r->from);
    r->loss = 0 - gain_ratio(item->metric, r->m.ln_value, r->ln_reference);
    if (r->loss > alert_loss_min(w)) item_measure_again(w, item, r);
    w->summary.measured++;
    w->summary.unjudged += isnan(r->ln_reference);
    w->schedule.success_ns = clock_ns();
    watch_value_put(w, "success", "", (double)clock_unix_ms() * 1e-3);
    round_report(w, item, r);
    watch_feed_stored(w, SIGNAL_PERFORMANCE, item->subject, r->loss);
}

static void item_not_measured(struct watch *w, const struct watch_own_item *item,
                              const struct item_measurement *m)
{
    json_t *o = json_object();
    json_put_str(o, "subject", item->subject);
    if (m->run_id) json_put_int(o, "run", m->run_id);
    json_put_str(o, "reason", m->reason);
    if (m->how == MEASURE_FAILED) {
        w->summary.failed++;
        watch_report(w, WATCH_FAILED, GRADE_WARNING, o, "%s: %s", item->subject, m->reason);
    } else {
        w->summary.postponed++;
        watch_report(w, WATCH_POSTPONED, GRADE_INFO, o,
                     "%s: the measurement was disturbed and is not counted: %s", item->subject, m->reason);
    }
    watch_feed(w, SIGNAL_PERFORMANCE, item->subject, NAN);
}

static void canary_check(struct watch *w, const struct canary *c)
{
    if (!*c->work) return;
    const double read = usual_update(w, METRICS[METRIC_CANARY_READ].name, c->work, log(c->read_bytes_s)),
                 ops = c->ops_s > 0 ? usual_update(w, METRICS[METRIC_CANARY_OPS].name, c->work, log(c->ops_s))
                                    : NAN;
    const double loss = fmax(1 - exp(log(c->read_bytes_s) - read), 1 - exp(log(c->ops_s) - ops));
    if (!isnan(loss)) watch_feed_stored(w, SIGNAL_CANARY, "", loss);
}

static bool quality_event(void *ctx, const json_t *event)
{
    (void)event;
    watch_read_sensors(ctx);
    return watch_continues(ctx);
}

static void quality_check(struct watch *w, const struct watch_own_item *item)
{
    struct quality q = { 0 };
    struct err why = { 0 };
    const struct arm_spec arm = { .model = item->item.model,
                                  .config = &item->item.config,
                                  .program = w->setup.o.program,
                                  .log = &w->setup.log };
    char text[4096];
    struct quality_spec spec = { .file = text,
                                 .chunks = w->setup.o.quality_chunks ? w->setup.o.quality_chunks : 4,
                                 .model = item->item.model,
                                 .reference = &w->setup.reference };
    enum err_code rc = quality_text_path(text, sizeof text, w->db, item->item.model, &why);
    if (!rc) rc = quality_measure(&q, &arm, &spec, quality_event, w, &why);
    if (rc == ERR_CANCELLED) return;
    if (rc || !q.known) {
        watch_report(w, WATCH_FAILED, GRADE_WARNING, NULL, "%s: its quality could not be measured: %s",
                     item->subject, rc ? why.message : q.missing);
        return;
    }
    watch_feed_stored(w, SIGNAL_QUALITY, item->subject, q.kld.estimate);
}

/* Read the rollback file again. A changed config is a different workload, so the alerts of the previous one
 * end. */
static void item_follow_file(struct watch *w, struct watch_own_item *item)
{
    struct err why;
    struct config c;
    char was[SUBJECT];
    if (!w->setup.o.rollback || item != &w->item[0]) return;
    if (config_file_read(&c, w->setup.o.rollback, &why)) {
        watch_report_trouble(w, &why);
        return;
    }
    snprintf(was, sizeof was, "%s", item->subject);
    item->item.config = c;
    subject_set(item);
    if (!strcmp(was, item->subject)) return;
    watch_report(w, WATCH_ROUND, GRADE_INFO, NULL, "%s now holds: %s", w->setup.o.rollback, item->subject);
    watch_end_alerts_of(w, was, "another configuration runs now");
}

static void item_run(struct watch *w, struct watch_own_item *item, struct canary *canary)
{
    struct item_round r = { .ln_reference = NAN, .loss = NAN };
    item_follow_file(w, item);
    measure_item(w, item, &item->item.config, &r.m);
    if (r.m.how == MEASURE_STOPPED) return;
    if (r.m.how == MEASURED)
        item_measured(w, item, &r);
    else
        item_not_measured(w, item, &r.m);
    canary_best(canary, &r.m.canary);
    if (r.m.how == MEASURED && item == &w->item[0]) roll_step(w, r.m.ln_value);
    if (w->setup.o.reference && r.m.how == MEASURED && watch_continues(w)) quality_check(w, item);
}

/* ---------------------------------------------------------------- the round */

static void errors_check(struct watch *w)
{
    struct run_row *runs = NULL;
    struct err why;
    int n = 0, seen = 0, failed = 0;
    if (db_run_list(w->db, "watch", 4 * ATTEMPTS, &runs, &n, &why)) watch_report_trouble(w, &why);
    for (int i = 0; i < n; i++) {
        const bool ended = !strcmp(runs[i].state, "done") || !strcmp(runs[i].state, "failed");
        if (ended && seen < ATTEMPTS && !strcmp(runs[i].kind, "watch") &&
            !strcmp(runs[i].machine, w->setup.machine.id)) {
            seen++;
            failed += !strcmp(runs[i].state, "failed");
        }
        run_row_free(&runs[i]);
    }
    free(runs);
    if (seen) watch_feed_stored(w, SIGNAL_ERRORS, "", (double)failed / seen);
}

/* Seconds that this round may still wait for a quiet machine; 0: none. */
static double wait_left_s(const struct watch *w)
{
    const double since_due_s = (double)(clock_ns() - w->schedule.due_ns) * 1e-9;
    return fmax(0, w->setup.o.wait_quiet_s - since_due_s);
}

bool round_may_wait(const struct watch *w)
{
    return wait_left_s(w) > 0;
}

bool round_counts_disturbed(const struct watch *w)
{
    return w->setup.o.even_if_busy || (w->setup.o.wait_quiet_s > 0 && !round_may_wait(w));
}

static bool round_waiting(void *ctx, const char *reason, double waited_s)
{
    struct watch *w = ctx;
    char by[RUN_BUSIEST], most[48];
    (void)waited_s;
    if (!w->schedule.wait_reported) {
        json_t *o = json_object();
        json_put_str(o, "reason", reason);
        alert_value_text(SIGNAL_STALE, w->setup.o.wait_quiet_s, most, sizeof most);
        watch_report(w, WATCH_POSTPONED, GRADE_INFO, o, "waiting for a quiet machine, at most %s: %s%s", most,
                     reason, run_busiest(by));
    }
    w->schedule.wait_reported = true;
    return watch_continues(w);
}

bool round_wait_quiet(struct watch *w)
{
    if (!round_may_wait(w) || !w->sampler) return false;
    if (run_wait_quiet(w->sampler, wait_left_s(w), round_waiting, w)) return true;
    if (watch_continues(w))
        watch_report(w, WATCH_POSTPONED, GRADE_INFO, NULL,
                     "the machine was not quiet in time: disturbed cells count from now on");
    return false;
}

/* Why no measurement may start now; "" when it may. */
static const char *round_obstacle(struct watch *w, char *buf, size_t size)
{
    int pid;
    const double busy = watch_mean(w, METRIC_OTHERS_BUSY, QUIET_S);
    buf[0] = '\0';
    if (db_run_is_locked(w->db, &pid)) /* never two measurements at once, not even with even_if_busy */
        snprintf(buf, size, "another measurement is running (process %d)", pid);
    else if (busy > contamination_limit(METRIC_OTHERS_BUSY) && !w->schedule.found_quiet &&
             !round_counts_disturbed(w))
        snprintf(buf, size, "other programs use %.0f %% of the CPUs", 100 * busy);
    return buf;
}

static void round_postpone(struct watch *w, const char *why)
{
    double retry_s = fmin(w->setup.o.every_s / 4, RETRY_S);
    if (round_may_wait(w)) retry_s = fmin(retry_s, wait_left_s(w)); /* a wait ends at its deadline */
    char when[48];
    w->summary.postponed++;
    if (!w->schedule.postponed_in_row++) { /* report it once, not on every retry of a busy night */
        json_t *o = json_object();
        json_put_str(o, "reason", why);
        alert_value_text(SIGNAL_STALE, retry_s, when, sizeof when);
        watch_report(w, WATCH_POSTPONED, GRADE_INFO, o, "the round is postponed: %s; %s%s", why,
                     w->setup.o.once ? "try later" : "next try every ", w->setup.o.once ? "" : when);
    }
    w->schedule.next_round_ns = clock_ns() + (int64_t)(retry_s * 1e9);
}

static void round_measure(struct watch *w)
{
    struct err why;
    struct canary canary = { NAN, NAN, "", NAN };
    w->schedule.measuring = true;
    if (watch_sampler_restart(w, MEASURE_TICK_MS, &why)) watch_report_trouble(w, &why);
    notify_begin(w);
    for (int i = 0; i < w->items && watch_continues(w); i++) item_run(w, &w->item[i], &canary);
    if (!w->items) canary_measure(&canary);
    notify_end(w);
    if (watch_sampler_restart(w, TICK_MS, &why)) watch_report_trouble(w, &why);
    w->schedule.measuring = false;
    /* sensors were not read during the round: restart their timeouts */
    for (int i = 0; i < SIGNAL_COUNT; i++)
        if (w->alerts.known_ns[i]) w->alerts.known_ns[i] = clock_ns();
    if (!watch_continues(w)) return;
    w->summary.rounds++;
    canary_check(w, &canary);
    if (w->items) errors_check(w);
    watch_value_put(w, "round", "", (double)clock_unix_ms() * 1e-3);
    watch_value_put(w, SIGNALS[SIGNAL_DISK].name, "", watch_disk_free(w));
}

void round_step(struct watch *w)
{
    char why[128];
    const int64_t every = (int64_t)(w->setup.o.every_s * 1e9);
    w->schedule.wait_reported = false;
    if (w->setup.o.once) w->schedule.due_ns = clock_ns(); /* not while the sensors had no values yet */
    /* a single round waits here; repeated rounds try again later */
    w->schedule.found_quiet = w->setup.o.once && round_wait_quiet(w);
    if (!watch_continues(w)) return;
    if (*round_obstacle(w, why, sizeof why)) {
        round_postpone(w, why);
        return;
    }
    w->schedule.postponed_in_row = 0;
    round_measure(w);
    w->schedule.due_ns += every; /* from the schedule, not from now, so that rounds do not drift */
    const int64_t now = clock_ns();
    if (w->schedule.due_ns <= now)
        w->schedule.due_ns += (now - w->schedule.due_ns) / every * every + every; /* skip missed rounds */
    w->schedule.next_round_ns = w->schedule.due_ns;
}
