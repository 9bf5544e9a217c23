/* advisor/watch/watch.c - opens and steps a watch, turns signals into alerts and events, and restores its
 * state after a restart. */
#include "advisor/watch/parts.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "advisor/experiment/experiment.h"

enum {
    ONCE_S = 10, /* seconds of samples that a --once run averages */
    TROUBLE_S = 600
};

const char *const WATCH_KINDS[] = {
    [WATCH_START] = "start",       [WATCH_ROUND] = "round",       [WATCH_POSTPONED] = "postponed",
    [WATCH_FAILED] = "failed",     [WATCH_PENDING] = "pending",   [WATCH_FIRING] = "firing",
    [WATCH_RESOLVED] = "resolved", [WATCH_ROLLBACK] = "rollback", [WATCH_NOTICE] = "notice",
    [WATCH_TROUBLE] = "trouble",
};

/* ---------------------------------------------------------------- events */

void watch_report(struct watch *w, enum watch_kind kind, enum alert_grade grade, json_t *about,
                  const char *fmt, ...)
{
    struct watch_event e = { .kind = kind,
                             .unix_ms = clock_unix_ms(),
                             .grade = grade,
                             .bell = kind == WATCH_FIRING && grade == GRADE_CRITICAL,
                             .about = about ? about : json_object() };
    char when[32];
    va_list args;
    va_start(args, fmt);
    vsnprintf(e.text, sizeof e.text, fmt, args);
    va_end(args);
    json_put_str(e.about, "schema", "qdyno.watch/1");
    json_put_str(e.about, "time", clock_iso8601(e.unix_ms, when, sizeof when));
    json_put_str(e.about, "event", WATCH_KINDS[kind]);
    json_put_str(e.about, "severity", GRADES[grade]);
    json_put_str(e.about, "text", e.text);
    pthread_mutex_lock(&w->reporting);
    w->host.on_event(w->host.ctx, &e);
    pthread_mutex_unlock(&w->reporting);
    json_decref(e.about);
}

void watch_report_trouble(struct watch *w, const struct err *why)
{
    const int64_t now = clock_ns();
    pthread_mutex_lock(&w->reporting);
    /* a locked database fails every second: report it once in ten minutes */
    if (strcmp(w->trouble.text, why->message) || now >= w->trouble.again_ns) {
        snprintf(w->trouble.text, sizeof w->trouble.text, "%s", why->message);
        w->trouble.again_ns = now + TROUBLE_S * INT64_C(1000000000);
        watch_report(w, WATCH_TROUBLE, GRADE_WARNING, NULL, "%s", why->message);
    }
    pthread_mutex_unlock(&w->reporting);
}

static void reporting_init(struct watch *w)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&w->reporting, &attr);
    pthread_mutexattr_destroy(&attr);
}

bool watch_continues(struct watch *w)
{
    if (!w->schedule.stopped && !w->host.go_on(w->host.ctx)) w->schedule.stopped = true;
    return !w->schedule.stopped;
}

/* ---------------------------------------------------------------- stored values */

double watch_value_get(struct watch *w, const char *what, const char *subject)
{
    struct watch_value *rows;
    struct err why;
    double value = NAN;
    int n;
    if (db_watch_value_list(w->db, w->setup.machine.id, &rows, &n, &why)) {
        watch_report_trouble(w, &why);
        return NAN;
    }
    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].signal, what) && !strcmp(rows[i].subject, subject)) value = rows[i].value;
    free(rows);
    return value;
}

void watch_value_put(struct watch *w, const char *what, const char *subject, double value)
{
    struct err why;
    struct watch_value v = { .unix_ms = clock_unix_ms(), .value = value };
    snprintf(v.signal, sizeof v.signal, "%s", what);
    snprintf(v.subject, sizeof v.subject, "%s", subject);
    if (db_watch_value_put(w->db, w->setup.machine.id, &v, &why)) watch_report_trouble(w, &why);
}

/* ---------------------------------------------------------------- alerts */

static json_t *alert_json(const struct alert *a, const struct alert_instance *x)
{
    json_t *o = json_object();
    json_put_str(o, "alert", a->name);
    json_put_str(o, "subject", x->subject);
    json_put_num(o, "value", x->state.value);
    json_put_num(o, "threshold", a->threshold);
    return o;
}

static void alert_row_fill(struct alert_row *row, const struct watch *w, const struct alert *a,
                           const struct alert_instance *x)
{
    *row = (struct alert_row){ .since_ms = x->since_ms, .value = x->state.value, .threshold = a->threshold };
    snprintf(row->machine, sizeof row->machine, "%s", w->setup.machine.id);
    snprintf(row->name, sizeof row->name, "%s", a->name);
    snprintf(row->subject, sizeof row->subject, "%s", x->subject);
    snprintf(row->grade, sizeof row->grade, "%s", GRADES[a->grade]);
    alert_text(a, x->state.value, row->text, sizeof row->text);
}

/* Build the webhook's notice for an alert. Returns the number of notices, 0 or 1; the caller frees n->body.
 */
static int alert_notice(struct notice_row *n, const struct watch *w, const struct alert_row *row,
                        const struct alert *a, enum notice_status status, const char *suggestion)
{
    if (!w->setup.o.webhook || !(a->actions & ACTION_NOTIFY)) return 0;
    json_t *o = notice_document(&w->setup.machine, row, a, status, suggestion);
    *n = (struct notice_row){ .kind = "webhook", .url = (char *)w->setup.webhook_name, .body = json_line(o) };
    json_decref(o);
    return n->body != NULL;
}

static void alert_begin(struct watch *w, const struct alert *a, struct alert_instance *x)
{
    struct err why;
    struct alert_row row;
    struct notice_row notice = { 0 };
    char suggestion[256] = "";
    alert_row_fill(&row, w, a, x);
    if (a->actions & ACTION_SUGGEST)
        scale_suggestion(x->state.value, a->signal == SIGNAL_BUSY ? w->psi_cpu : NAN, suggestion,
                         sizeof suggestion);
    const int n = alert_notice(&notice, w, &row, a, NOTICE_FIRING, suggestion);
    if (db_alert_begin(w->db, &row, &notice, n, &why)) {
        watch_report_trouble(w, &why);
        if (n) notify_now(w, &notice);
        row.id = 0;
    }
    x->id = row.id;
    free(notice.body);
    w->receivers.alertmanager_ns = 0; /* send to Alertmanager with the next step */
    watch_report(w, WATCH_FIRING, a->grade, alert_json(a, x), "%s%s%s: %s. %s%s%s", a->name,
                 *x->subject ? " " : "", x->subject, row.text, a->todo, *suggestion ? " Suggestion: " : "",
                 suggestion);
}

/* Stores the end of an alert and notifies those who heard of it. a NULL: the row is of another version. */
static void row_end(struct watch *w, struct alert_row *row, const struct alert *a, json_t *about,
                    const char *ended)
{
    struct err why;
    struct notice_row notice = { 0 };
    row->ended_ms = clock_unix_ms();
    snprintf(row->ended, sizeof row->ended, "%s", ended);
    const int n = a ? alert_notice(&notice, w, row, a, NOTICE_RESOLVED, "") : 0;
    const bool kept = row->id && !db_alert_end(w->db, row->id, ended, &notice, n, &why);
    if (row->id && !kept) watch_report_trouble(w, &why);
    if (n && !kept) notify_now(w, &notice);
    free(notice.body);
    watch_report(w, WATCH_RESOLVED, a ? a->grade : GRADE_INFO, about, "%s%s%s: %s", row->name,
                 *row->subject ? " " : "", row->subject, ended);
}

/* `ended`: why it ended, if not because the value is good again (""). */
static void alert_end(struct watch *w, const struct alert *a, struct alert_instance *x, const char *ended)
{
    struct alert_row row;
    char value[48], over[192];
    snprintf(over, sizeof over, "resolved, now %s",
             alert_value_text(a->signal, x->state.value, value, sizeof value));
    alert_row_fill(&row, w, a, x);
    row.id = x->id;
    x->id = 0;
    w->receivers.alertmanager_ns = 0;
    row_end(w, &row, a, alert_json(a, x), *ended ? ended : over);
}

void watch_end_alerts_of(struct watch *w, const char *subject, const char *ended)
{
    for (int i = 0; i < w->alerts.n; i++) {
        struct alert_instance *x = &w->alerts.instance[i];
        if (x->state.phase != ALERT_FIRING || strcmp(x->subject, subject)) continue;
        x->state = (struct alert_state){ .value = x->state.value };
        alert_end(w, &w->alerts.rules.row[x->rule], x, ended);
    }
    w->summary.highest = alerts_highest(&w->alerts);
}

void watch_feed(struct watch *w, enum signal_id signal, const char *subject, double value)
{
    struct alert_event e[SIGNAL_RULES];
    const struct alert_feed f = { signal, subject, clock_ns(), clock_unix_ms(), value };
    const int n = alerts_feed(&w->alerts, &f, e);
    for (int i = 0; i < n; i++) {
        const struct alert *a = &w->alerts.rules.row[e[i].instance->rule];
        switch (e[i].change) {
        case CHANGE_FIRING: alert_begin(w, a, e[i].instance); break;
        case CHANGE_RESOLVED: alert_end(w, a, e[i].instance, ""); break;
        default:
            watch_report(w, WATCH_PENDING, GRADE_INFO, alert_json(a, e[i].instance), "%s%s%s: %s", a->name,
                         *subject ? " " : "", subject,
                         e[i].change == CHANGE_PENDING ? "may fire" : "calm again");
        }
    }
    w->summary.highest = alerts_highest(&w->alerts);
}

void watch_feed_stored(struct watch *w, enum signal_id signal, const char *subject, double value)
{
    watch_value_put(w, SIGNALS[signal].name, subject, value);
    watch_feed(w, signal, subject, value);
}

/* ---------------------------------------------------------------- sensors */

double watch_disk_free(const struct watch *w)
{
    char folder[PATH_MAX];
    struct statvfs s;
    const char *path = db_path(w->db);
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    if (!strcmp(path, ":memory:") || statvfs(slash ? (*folder ? folder : "/") : ".", &s)) return NAN;
    return (double)s.f_bavail * (double)s.f_frsize;
}

static double stale_s(const struct watch *w)
{
    return (double)(clock_ns() - w->schedule.success_ns) * 1e-9;
}

/* Mean of each sensor over the last `seconds`; NAN without samples. */
static void sensor_means(const struct watch *w, double seconds, double row[METRIC_SENSOR_COUNT])
{
    const int64_t now = clock_ns();
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) row[m] = NAN;
    if (w->sampler) sampler_means(w->sampler, now - (int64_t)(seconds * 1e9), now, row);
}

double watch_mean(const struct watch *w, enum metric_id metric, double seconds)
{
    double row[METRIC_SENSOR_COUNT];
    sensor_means(w, seconds, row);
    return row[metric];
}

void watch_read_sensors(struct watch *w)
{
    struct gpu_reading gpu[MACHINE_GPUS];
    struct signal_value sense[SIGNAL_VALUES_MAX];
    int pid;
    /* The load of a measurement is qdyno's own, also where another process of it measures. */
    const bool measuring = w->schedule.measuring || db_run_is_locked(w->db, &pid);
    struct sensor_state in = {
        .gpu = gpu, .measuring = measuring, .disk_free_bytes = watch_disk_free(w), .stale_s = NAN
    };
    const int64_t now = clock_ns();
    if (w->schedule.sensed_ns && (w->setup.o.once || now - w->schedule.sensed_ns < (int64_t)TICK_MS * 900000))
        return;
    w->schedule.sensed_ns = now;
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) in.row[i] = NAN;
    if (w->sampler) {
        if (w->setup.o.once)
            sensor_means(w, ONCE_S, in.row); /* a single reading is too noisy for one decision */
        else
            sampler_latest(w->sampler, in.row, NULL, 0);
        in.gpus = MIN(sampler_gpus(w->sampler, gpu, MACHINE_GPUS), MACHINE_GPUS);
    }
    /* before the first round no measurement can be overdue */
    if (w->items && w->summary.rounds) in.stale_s = stale_s(w);
    w->psi_cpu = in.row[METRIC_PSI_CPU];
    const int n = signals_from_sensors(&in, sense);
    for (int i = 0; i < n; i++) watch_feed(w, sense[i].signal, sense[i].subject, sense[i].value);
    for (int i = 0; i < SIGNAL_COUNT && !w->setup.o.once && !measuring; i++) {
        const double unknown_s = alerts_unknown_s(&w->alerts, (enum signal_id)i, now);
        if (!isnan(unknown_s)) watch_feed(w, SIGNAL_BLIND, SIGNALS[i].name, unknown_s);
    }
}

enum err_code watch_sampler_restart(struct watch *w, int tick_ms, struct err *why)
{
    sampler_stop(w->sampler);
    w->sampler = NULL;
    return sampler_start(&w->sampler, w->setup.o.root, tick_ms, w->setup.o.periods, why);
}

/* ---------------------------------------------------------------- open and close */

static const char *option_copy(struct watch *w, const char *text)
{
    if (!text) return NULL;
    char *copy = strdup(text);
    if (copy) w->setup.kept[w->setup.n_kept++] = copy;
    return copy;
}

static enum err_code options_copy(struct watch *w, const struct watch_options *o, struct err *why)
{
    w->setup.o = *o;
    w->setup.machine = *o->machine;
    if (o->webhook_auth) w->setup.webhook_auth = *o->webhook_auth;
    if (o->alertmanager_auth) w->setup.alertmanager_auth = *o->alertmanager_auth;
    if (o->log) w->setup.log = *o->log;
    const char **texts[] = { &w->setup.o.db_path,     &w->setup.o.root,      &w->setup.o.program,
                             &w->setup.o.rollback,    &w->setup.o.reference, &w->setup.o.webhook,
                             &w->setup.o.alertmanager };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        const char *was = *texts[i];
        *texts[i] = option_copy(w, was);
        if (was && !*texts[i]) return err_set(why, ERR_NOMEM, "out of memory for a watch");
    }
    if (!w->setup.o.root) w->setup.o.root = "";
    w->setup.o.repetitions = MAX(1, o->repetitions);
    w->alerts.rules = o->rules;
    w->alerts.at_once = o->once;
    return ERR_OK;
}

static enum err_code item_add(struct watch *w, const struct watch_item *item, struct err *why)
{
    struct watch_own_item *own = &w->item[w->items++];
    own->item = *item;
    own->metric = item->has_baseline ? metric_find(item->baseline.metric)
                                     : experiment_default_metric(&item->workload);
    if (!own->metric)
        return err_set(why, ERR_FORMAT, "metric '%s' of baseline '%s' is unknown to this version of qdyno",
                       item->baseline.metric, item->baseline.name);
    enum err_code rc = workload_check(&item->workload, &item->config, why);
    if (!rc && *item->model)
        rc = model_check(item->model, item->has_baseline ? item->baseline.model_sha256 : "", why);
    subject_set(own);
    return rc;
}

/* With a rollback file, item 0 runs the config that the file holds. */
static enum err_code rollback_check(struct watch *w, struct err *why)
{
    if (!w->setup.o.rollback) return ERR_OK;
    if (!w->items || !w->item[0].item.has_baseline)
        return err_set(
            why, ERR_USAGE,
            "a rollback needs a baseline to return to: qdyno baseline set NAME, then --baseline NAME");
    enum err_code rc = config_file_read(&w->item[0].item.config, w->setup.o.rollback, why);
    if (!rc) rc = workload_check(&w->item[0].item.workload, &w->item[0].item.config, why);
    if (!rc) subject_set(&w->item[0]);
    return rc;
}

/* Continue an alert that was firing when the watch stopped; end it if it is switched off or its workload is
 * no longer watched. */
static void stored_alert_restore(struct watch *w, const struct alert_row *row)
{
    const struct alert *a = alert_find(row->name);
    const int rule = a ? (int)(a - ALERTS) : -1;
    const char *ended = NULL;
    if (!a || w->alerts.rules.off[rule]) {
        ended = "switched off";
    } else if (SIGNALS[a->signal].subject == SUBJECT_WORKLOAD) {
        ended = "its workload is not watched any more";
        for (int i = 0; i < w->items; i++)
            if (!strcmp(w->item[i].subject, row->subject)) ended = NULL;
    }
    if (ended) { /* nothing evaluates it any more */
        struct alert_row was = *row;
        row_end(w, &was, a, NULL, ended);
        return;
    }
    struct alert_instance *x = alerts_instance(&w->alerts, rule, row->subject);
    if (!x) return;
    x->state.phase = ALERT_FIRING;
    x->state.value = row->value;
    x->since_ms = row->since_ms;
    x->id = row->id;
    x->restored = true;
}

static enum err_code alerts_restore(struct watch *w, int *still, struct err *why)
{
    struct alert_row *rows;
    int n;
    enum err_code rc = db_alert_list(w->db, w->setup.machine.id, true, ALERT_INSTANCES, &rows, &n, why);
    for (int i = 0; i < n && !rc; i++) stored_alert_restore(w, &rows[i]);
    free(rows);
    *still = 0;
    for (int i = 0; i < w->alerts.n; i++) *still += w->alerts.instance[i].state.phase == ALERT_FIRING;
    w->summary.highest = alerts_highest(&w->alerts);
    return rc;
}

static enum err_code values_restore(struct watch *w, struct err *why)
{
    struct watch_value *rows;
    int n;
    enum err_code rc = db_watch_value_list(w->db, w->setup.machine.id, &rows, &n, why);
    for (int i = 0; i < n && !rc && w->setup.o.forget; i++)
        if (str_starts(rows[i].signal, USUAL)) watch_value_put(w, rows[i].signal, rows[i].subject, NAN);
    free(rows);
    if (rc) return rc;
    const double now_s = (double)clock_unix_ms() * 1e-3, success_s = watch_value_get(w, "success", "");
    /* a time after now was stored before the clock was set back */
    w->schedule.success_ns = clock_ns() - (int64_t)(1e9 * fmax(isnan(success_s) ? 0 : now_s - success_s, 0));
    w->rolled_from_ln = watch_value_get(w, ROLLED_BACK, "");
    if (isnan(success_s)) watch_value_put(w, "success", "", now_s);
    return ERR_OK;
}

static void start_report(struct watch *w, int still)
{
    char every[48], waiting[64] = "",
                    what[96] = "no workload (qdyno baseline set NAME, or -w): only sensors and the canary";
    int on = 0;
    if (w->items) snprintf(what, sizeof what, "%d workload%s", w->items, w->items == 1 ? "" : "s");
    for (int i = 0; i < ALERT_COUNT; i++) on += !w->alerts.rules.off[i];
    const int notices = w->setup.o.webhook ? db_notice_count(w->db, w->setup.webhook_name) : 0;
    if (notices > 0)
        snprintf(waiting, sizeof waiting, ", %d notice%s wait%s to be sent", notices, str_plural(notices),
                 notices == 1 ? "s" : "");
    alert_value_text(SIGNAL_STALE, w->setup.o.every_s, every, sizeof every);
    watch_report(w, WATCH_START, GRADE_INFO, NULL, "%s%s%s, %d kind%s of alerts, %d still firing%s", what,
                 w->setup.o.once ? ", once" : " every ", w->setup.o.once ? "" : every, on, str_plural(on),
                 still, waiting);
    for (int i = 0; i < w->alerts.n; i++) {
        const struct alert_instance *x = &w->alerts.instance[i];
        const struct alert *a = &w->alerts.rules.row[x->rule];
        char since[32], value[48];
        if (x->state.phase != ALERT_FIRING) continue;
        watch_report(
            w, WATCH_START, a->grade, NULL,
            "still firing: alert %s%s%s, since %s (%s then, fires %s %s): it ends when the value is good "
            "again",
            a->name, *x->subject ? " " : "", x->subject, clock_iso8601(x->since_ms, since, sizeof since),
            alert_value_text(a->signal, x->state.value, value, sizeof value),
            a->side == SIDE_ABOVE ? "above" : "below",
            alert_value_text(a->signal, a->threshold, (char[48]){ "" }, 48));
    }
}

enum err_code watch_open(struct watch **out, const struct watch_options *o, const struct watch_host *host,
                         struct err *why)
{
    struct watch *w = calloc(1, sizeof *w);
    int still = 0;
    *out = NULL;
    if (!w) return err_set(why, ERR_NOMEM, "out of memory for a watch");
    reporting_init(w);
    w->host = *host;
    w->psi_cpu = w->rolled_from_ln = NAN;
    w->summary.highest = -1;
    enum err_code rc = options_copy(w, o, why);
    if (!rc && o->items > WATCH_ITEMS)
        rc = err_set(why, ERR_USAGE, "expected at most %d workloads, got %d", WATCH_ITEMS, o->items);
    for (int i = 0; i < o->items && !rc; i++) rc = item_add(w, &o->item[i], why);
    w->setup.o.item = NULL;
    if (!rc) rc = rollback_check(w, why);
    if (!rc && o->reference) rc = config_parse(&w->setup.reference, o->reference, why);
    if (!rc) rc = db_open(&w->db, o->db_path, why);
    if (!rc) rc = db_watch_lock(w->db, why);
    if (!rc) rc = notify_open(w, why);
    if (!rc) rc = values_restore(w, why);
    if (!rc) rc = alerts_restore(w, &still, why);
    if (!rc) rc = watch_sampler_restart(w, o->once ? MEASURE_TICK_MS : TICK_MS, why);
    if (rc) {
        watch_close(w);
        return rc;
    }
    w->schedule.next_tick_ns = w->schedule.next_round_ns = w->schedule.due_ns = clock_ns();
    start_report(w, still);
    *out = w;
    return ERR_OK;
}

void watch_close(struct watch *w)
{
    if (!w) return;
    sampler_stop(w->sampler);
    db_close(w->db);
    for (int i = 0; i < w->setup.n_kept; i++) free(w->setup.kept[i]);
    pthread_mutex_destroy(&w->reporting);
    free(w);
}

/* ---------------------------------------------------------------- step */

/* Rates need two readings, so they are missing at first. Sensors that the machine lacks are not waited for.
 */
static void sensors_wait(struct watch *w)
{
    enum { STEPS = 15 };
    const enum metric_id slow = w->setup.o.even_if_busy ? METRIC_CPU_BUSY : METRIC_OTHERS_BUSY;
    for (int i = 0; i < STEPS && isnan(watch_mean(w, slow, 60)) && watch_continues(w); i++)
        clock_sleep_ns(MEASURE_TICK_MS * 1000000LL);
}

/* Reports what became of the alerts that fired before this single round: the value that keeps one firing, or
 * that this round did not evaluate it. */
static void once_report(struct watch *w)
{
    for (int i = 0; i < w->alerts.n; i++) {
        const struct alert_instance *x = &w->alerts.instance[i];
        const struct alert *a = &w->alerts.rules.row[x->rule];
        char since[32], value[48], limit[48], clear[48];
        if (x->state.phase != ALERT_FIRING || !x->restored) continue;
        clock_iso8601(x->since_ms, since, sizeof since);
        alert_value_text(a->signal, x->state.value, value, sizeof value);
        if (x->state.known)
            watch_report(w, WATCH_ROUND, a->grade, alert_json(a, x),
                         "alert %s%s%s still fires: now %s (fires %s %s, ends at %s)", a->name,
                         *x->subject ? " " : "", x->subject, value, a->side == SIDE_ABOVE ? "above" : "below",
                         alert_value_text(a->signal, a->threshold, limit, sizeof limit),
                         alert_value_text(a->signal, a->clear, clear, sizeof clear));
        else
            watch_report(w, WATCH_ROUND, GRADE_INFO, alert_json(a, x),
                         "alert %s%s%s was not evaluated in this round and does not count: it fires since %s "
                         "(%s then)",
                         a->name, *x->subject ? " " : "", x->subject, since, value);
    }
    w->summary.highest = alerts_highest(&w->alerts);
}

bool watch_step(struct watch *w)
{
    const int64_t now = clock_ns(), tick = (int64_t)TICK_MS * 1000000;
    if (w->setup.o.once) sensors_wait(w);
    watch_read_sensors(w);
    if (watch_continues(w) && now >= w->schedule.next_round_ns) {
        round_step(w);
        if (w->setup.o.once && w->items) watch_feed(w, SIGNAL_STALE, "", stale_s(w));
        if (w->setup.o.once) once_report(w);
    }
    if (watch_continues(w)) notify_step(w, w->db);
    w->schedule.next_tick_ns += tick;
    /* late: skip the missed ticks instead of catching up */
    if (w->schedule.next_tick_ns < clock_ns()) w->schedule.next_tick_ns = clock_ns() + tick;
    return watch_continues(w);
}

int64_t watch_next_ns(const struct watch *w)
{
    return w->schedule.next_tick_ns;
}

void watch_summary(const struct watch *w, struct watch_summary *out)
{
    *out = w->summary;
}

struct sampler_thread *watch_sampler(const struct watch *w)
{
    return w->sampler;
}
