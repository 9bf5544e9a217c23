/* advisor/watch/watch.c - see watch.h: opening, stepping, telling, and what a restart goes on from. */
#include "advisor/watch/parts.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "advisor/experiment/experiment.h"

enum {
    LOOK_S = 10, /* of --once: what its one look covers at most */
    TROUBLE_S = 600
};

const char *const WATCH_KINDS[] = { "start",  "round",    "postponed", "failed", "pending",
                                    "firing", "resolved", "rollback",  "notice", "trouble" };

/* ---------------------------------------------------------------- telling */

void watch_say(struct watch *w, enum watch_kind kind, enum alert_grade grade, json_t *about, const char *fmt,
               ...)
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
    w->host.tell(w->host.ctx, &e);
    json_decref(e.about);
}

void watch_trouble(struct watch *w, const struct err *why)
{
    const int64_t now = clock_ns();
    /* a database that is locked is so every second: said once in ten minutes */
    if (!strcmp(w->trouble, why->message) && now < w->trouble_again_ns) return;
    snprintf(w->trouble, sizeof w->trouble, "%s", why->message);
    w->trouble_again_ns = now + TROUBLE_S * INT64_C(1000000000);
    watch_say(w, WATCH_TROUBLE, GRADE_WARNING, NULL, "%s", why->message);
}

bool watch_goes_on(struct watch *w)
{
    if (!w->stopped && !w->host.go_on(w->host.ctx)) w->stopped = true;
    return !w->stopped;
}

/* ---------------------------------------------------------------- numbers that last */

double watch_recall(struct watch *w, const char *what, const char *subject)
{
    struct watch_value *rows;
    struct err why;
    double value = NAN;
    int n;
    if (db_watch_value_list(w->db, w->machine.id, &rows, &n, &why)) {
        watch_trouble(w, &why);
        return NAN;
    }
    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].signal, what) && !strcmp(rows[i].subject, subject)) value = rows[i].value;
    free(rows);
    return value;
}

void watch_keep(struct watch *w, const char *what, const char *subject, double value)
{
    struct err why;
    struct watch_value v = { .unix_ms = clock_unix_ms(), .value = value };
    snprintf(v.signal, sizeof v.signal, "%s", what);
    snprintf(v.subject, sizeof v.subject, "%s", subject);
    if (db_watch_value_put(w->db, w->machine.id, &v, &why)) watch_trouble(w, &why);
}

/* ---------------------------------------------------------------- alerts */

static json_t *about_alert(const struct alert *a, const struct alert_instance *x)
{
    json_t *o = json_object();
    json_put_str(o, "alert", a->name);
    json_put_str(o, "subject", x->subject);
    json_put_num(o, "value", x->state.value);
    json_put_num(o, "threshold", a->threshold);
    return o;
}

static void row_of(struct alert_row *row, const struct watch *w, const struct alert *a,
                   const struct alert_instance *x)
{
    *row = (struct alert_row){ .since_ms = x->since_ms, .value = x->state.value, .threshold = a->threshold };
    snprintf(row->machine, sizeof row->machine, "%s", w->machine.id);
    snprintf(row->name, sizeof row->name, "%s", a->name);
    snprintf(row->subject, sizeof row->subject, "%s", x->subject);
    snprintf(row->grade, sizeof row->grade, "%s", GRADES[a->grade]);
    alert_text(a, x->state.value, row->text, sizeof row->text);
}

/* What there is to be told to others; returns 0 or 1, owned by the caller (free n->body). */
static int notices_of(struct notice_row *n, const struct watch *w, const struct alert_row *row,
                      const struct alert *a, enum notice_status status, const char *suggestion)
{
    if (!w->o.webhook || !(a->actions & ACTION_NOTIFY)) return 0;
    json_t *o = notice_document(&w->machine, row, a, status, suggestion);
    *n = (struct notice_row){ .kind = "webhook", .url = (char *)w->o.webhook, .body = json_line(o) };
    json_decref(o);
    return n->body != NULL;
}

static void begin_alert(struct watch *w, const struct alert *a, struct alert_instance *x)
{
    struct err why;
    struct alert_row row;
    struct notice_row notice = { 0 };
    char suggestion[192] = "";
    row_of(&row, w, a, x);
    if (a->actions & ACTION_SUGGEST)
        scale_suggestion(x->state.value, a->signal == SIGNAL_BUSY ? w->psi_cpu : NAN, suggestion,
                         sizeof suggestion);
    const int n = notices_of(&notice, w, &row, a, NOTICE_FIRING, suggestion);
    if (db_alert_begin(w->db, &row, &notice, n, &why)) {
        watch_trouble(w, &why);
        if (n) notify_now(w, &notice);
        row.id = 0;
    }
    x->id = row.id;
    free(notice.body);
    w->alertmanager_ns = 0; /* hears of it at once */
    watch_say(w, WATCH_FIRING, a->grade, about_alert(a, x), "%s%s%s: %s. %s%s%s", a->name,
              *x->subject ? " " : "", x->subject, row.text, a->todo, *suggestion ? " Suggestion: " : "",
              suggestion);
}

/* ended: why, where it is not that the value is good again. */
static void end_alert(struct watch *w, const struct alert *a, struct alert_instance *x, const char *ended)
{
    struct err why;
    struct alert_row row;
    struct notice_row notice = { 0 };
    char value[48], over[192];
    snprintf(over, sizeof over, "over, now %s",
             alert_value_text(a->signal, x->state.value, value, sizeof value));
    if (*ended) snprintf(over, sizeof over, "%s", ended);
    row_of(&row, w, a, x);
    row.id = x->id;
    row.ended_ms = clock_unix_ms();
    snprintf(row.ended, sizeof row.ended, "%s", over);
    const int n = notices_of(&notice, w, &row, a, NOTICE_RESOLVED, "");
    const bool kept = x->id && !db_alert_end(w->db, x->id, over, &notice, n, &why);
    if (x->id && !kept) watch_trouble(w, &why);
    if (n && !kept) notify_now(w, &notice);
    free(notice.body);
    x->id = 0;
    w->alertmanager_ns = 0;
    watch_say(w, WATCH_RESOLVED, a->grade, about_alert(a, x), "%s%s%s: %s", a->name, *x->subject ? " " : "",
              x->subject, over);
}

void watch_end_alerts_of(struct watch *w, const char *subject, const char *ended)
{
    for (int i = 0; i < w->alerts.n; i++) {
        struct alert_instance *x = &w->alerts.instance[i];
        if (x->state.phase != ALERT_FIRING || strcmp(x->subject, subject)) continue;
        x->state = (struct alert_state){ .value = x->state.value };
        end_alert(w, &w->alerts.rules.row[x->rule], x, ended);
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
        case CHANGE_FIRING: begin_alert(w, a, e[i].instance); break;
        case CHANGE_RESOLVED: end_alert(w, a, e[i].instance, ""); break;
        default:
            watch_say(w, WATCH_PENDING, GRADE_INFO, about_alert(a, e[i].instance), "%s%s%s: %s", a->name,
                      *subject ? " " : "", subject,
                      e[i].change == CHANGE_PENDING ? "may fire" : "calm again");
        }
    }
    w->summary.highest = alerts_highest(&w->alerts);
}

void watch_feed_stored(struct watch *w, enum signal_id signal, const char *subject, double value)
{
    watch_keep(w, SIGNALS[signal].name, subject, value);
    watch_feed(w, signal, subject, value);
}

/* ---------------------------------------------------------------- sensors */

double disk_free(const struct watch *w)
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
    return (double)clock_unix_ms() * 1e-3 - w->success_s;
}

/* Means of all sensors over the last seconds, NAN where nothing was read. */
static void means(const struct watch *w, double seconds, double row[METRIC_SENSOR_COUNT])
{
    enum { MOST = 256 };
    const int64_t now = clock_ns();
    struct sample *s = w->sampler ? calloc(MOST, sizeof *s) : NULL;
    const int n = s ? sampler_window(w->sampler, now - (int64_t)(seconds * 1e9), now, s, MOST) : 0;
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) {
        double sum = 0;
        int known = 0;
        for (int i = 0; i < n; i++)
            if (!isnan(s[i].value[m])) {
                sum += s[i].value[m];
                known++;
            }
        row[m] = known ? sum / known : NAN;
    }
    free(s);
}

double watch_mean(const struct watch *w, enum metric_id metric, double seconds)
{
    double row[METRIC_SENSOR_COUNT];
    means(w, seconds, row);
    return row[metric];
}

void watch_look(struct watch *w)
{
    struct gpu_reading gpu[MACHINE_GPUS];
    struct sense sense[SENSES_MAX];
    struct senses in = {
        .gpu = gpu, .measuring = w->measuring, .disk_free_bytes = disk_free(w), .stale_s = NAN
    };
    const int64_t now = clock_ns();
    if (w->sensed_ns && (w->o.once || now - w->sensed_ns < (int64_t)TICK_MS * 900000)) return;
    w->sensed_ns = now;
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) in.row[i] = NAN;
    if (w->sampler) {
        if (w->o.once)
            means(w, LOOK_S, in.row); /* one look is more than one tick */
        else
            sampler_latest(w->sampler, in.row, NULL, 0);
        in.gpus = MIN(sampler_gpus(w->sampler, gpu, MACHINE_GPUS), MACHINE_GPUS);
    }
    /* before the first round nothing could have been measured yet */
    if (w->items && w->summary.rounds) in.stale_s = stale_s(w);
    w->psi_cpu = in.row[METRIC_PSI_CPU];
    const int n = senses_read(&in, sense);
    for (int i = 0; i < n; i++) watch_feed(w, sense[i].signal, sense[i].subject, sense[i].value);
    for (int i = 0; i < SIGNAL_COUNT && !w->o.once && !w->measuring; i++) {
        const double unknown_s = alerts_unknown_s(&w->alerts, (enum signal_id)i, now);
        if (!isnan(unknown_s)) watch_feed(w, SIGNAL_BLIND, SIGNALS[i].name, unknown_s);
    }
}

enum err_code watch_sampler_at(struct watch *w, int tick_ms, struct err *why)
{
    sampler_stop(w->sampler);
    w->sampler = NULL;
    return sampler_start_periods(&w->sampler, w->o.root, tick_ms, w->o.periods, why);
}

/* ---------------------------------------------------------------- opening */

static const char *keep_text(struct watch *w, const char *text)
{
    if (!text) return NULL;
    char *copy = strdup(text);
    if (copy) w->kept[w->n_kept++] = copy;
    return copy;
}

static enum err_code copy_options(struct watch *w, const struct watch_options *o, struct err *why)
{
    w->o = *o;
    w->machine = *o->machine;
    if (o->auth) w->auth = *o->auth;
    if (o->log) w->log = *o->log;
    const char **texts[] = { &w->o.db_path,   &w->o.root,    &w->o.program,     &w->o.rollback,
                             &w->o.reference, &w->o.webhook, &w->o.alertmanager };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        const char *was = *texts[i];
        *texts[i] = keep_text(w, was);
        if (was && !*texts[i]) return err_set(why, ERR_NOMEM, "no memory for a watch");
    }
    if (!w->o.root) w->o.root = "";
    w->window = calloc(WINDOW_SAMPLES, sizeof *w->window);
    w->stored = calloc(WINDOW_STORED, sizeof *w->stored);
    if (!w->window || !w->stored) return err_set(why, ERR_NOMEM, "no memory for a watch");
    w->o.repetitions = MAX(1, o->repetitions);
    w->alerts.rules = o->rules;
    w->alerts.at_once = o->once;
    return ERR_OK;
}

static enum err_code take_item(struct watch *w, const struct watch_item *item, struct err *why)
{
    struct watch_own_item *own = &w->item[w->items++];
    own->item = *item;
    own->metric = item->has_baseline ? metric_find(item->baseline.metric)
                                     : experiment_default_metric(&item->workload);
    if (!own->metric)
        return err_set(why, ERR_FORMAT, "metric '%s' of baseline '%s' is unknown to this version",
                       item->baseline.metric, item->baseline.name);
    enum err_code rc = workload_check(&item->workload, &item->config, why);
    if (!rc && *item->model)
        rc = model_check(item->model, item->has_baseline ? item->baseline.model_sha256 : "", why);
    subject_set(own);
    return rc;
}

/* What runs is what the file says. */
static enum err_code check_rollback(struct watch *w, struct err *why)
{
    if (!w->o.rollback) return ERR_OK;
    if (!w->items || !w->item[0].item.has_baseline)
        return err_set(
            why, ERR_USAGE,
            "a rollback needs a champion to go back to: qdyno baseline set NAME, then --baseline NAME");
    enum err_code rc = config_file_read(&w->item[0].item.config, w->o.rollback, why);
    if (!rc) rc = workload_check(&w->item[0].item.workload, &w->item[0].item.config, why);
    if (!rc) subject_set(&w->item[0]);
    return rc;
}

/* One that nobody looks at any more is over for those who were told of it, too. a NULL: of another version.
 */
static void end_row(struct watch *w, const struct alert_row *was, const struct alert *a, const char *ended)
{
    struct err why;
    struct notice_row notice = { 0 };
    struct alert_row row = *was;
    row.ended_ms = clock_unix_ms();
    snprintf(row.ended, sizeof row.ended, "%s", ended);
    const int n = a ? notices_of(&notice, w, &row, a, NOTICE_RESOLVED, "") : 0;
    if (db_alert_end(w->db, row.id, ended, &notice, n, &why)) watch_trouble(w, &why);
    free(notice.body);
    watch_say(w, WATCH_RESOLVED, a ? a->grade : GRADE_INFO, NULL, "%s%s%s: %s", row.name,
              *row.subject ? " " : "", row.subject, ended);
}

/* An alert that fired when the watch last ran goes on, unless nobody looks at it any more. */
static void restore(struct watch *w, const struct alert_row *row)
{
    const struct alert *a = alert_find(row->name);
    const int rule = a ? (int)(a - ALERTS) : -1;
    const char *ended = NULL;
    if (!a || w->alerts.rules.off[rule]) {
        ended = "switched off";
    } else if (SIGNALS[a->signal].subject == SUBJECT_WORKLOAD) {
        ended = "not watched any more";
        for (int i = 0; i < w->items; i++)
            if (!strcmp(w->item[i].subject, row->subject)) ended = NULL;
    }
    if (ended) {
        end_row(w, row, a, ended);
        return;
    }
    struct alert_instance *x = alerts_instance(&w->alerts, rule, row->subject);
    if (!x) return;
    x->state.phase = ALERT_FIRING;
    x->state.value = row->value;
    x->since_ms = row->since_ms;
    x->id = row->id;
}

static enum err_code restore_all(struct watch *w, int *still, struct err *why)
{
    struct alert_row *rows;
    int n;
    enum err_code rc = db_alert_list(w->db, w->machine.id, true, ALERT_INSTANCES, &rows, &n, why);
    for (int i = 0; i < n && !rc; i++) restore(w, &rows[i]);
    free(rows);
    *still = 0;
    for (int i = 0; i < w->alerts.n; i++) *still += w->alerts.instance[i].state.phase == ALERT_FIRING;
    w->summary.highest = alerts_highest(&w->alerts);
    return rc;
}

static enum err_code recall_all(struct watch *w, struct err *why)
{
    struct watch_value *rows;
    int n;
    enum err_code rc = db_watch_value_list(w->db, w->machine.id, &rows, &n, why);
    for (int i = 0; i < n && !rc && w->o.forget; i++)
        if (str_starts(rows[i].signal, USUAL)) watch_keep(w, rows[i].signal, rows[i].subject, NAN);
    free(rows);
    if (rc) return rc;
    w->success_s = watch_recall(w, "success", "");
    w->rolled_from_ln = watch_recall(w, ROLLED_BACK, "");
    if (!isnan(w->success_s)) return ERR_OK;
    w->success_s = (double)clock_unix_ms() * 1e-3;
    watch_keep(w, "success", "", w->success_s);
    return ERR_OK;
}

static void say_start(struct watch *w, int still)
{
    char every[48], waiting[64] = "",
                    what[96] = "no workload (qdyno baseline set NAME, or -w): sensors and the canary";
    int on = 0;
    if (w->items) snprintf(what, sizeof what, "%d workload%s", w->items, w->items == 1 ? "" : "s");
    for (int i = 0; i < ALERT_COUNT; i++) on += !w->alerts.rules.off[i];
    const int notices = w->o.webhook ? db_notice_count(w->db, w->o.webhook) : 0;
    if (notices > 0) snprintf(waiting, sizeof waiting, ", %d notices wait to be told", notices);
    alert_value_text(SIGNAL_STALE, w->o.every_s, every, sizeof every);
    watch_say(w, WATCH_START, GRADE_INFO, NULL, "%s%s%s, %d kinds of alerts, %d still fire%s", what,
              w->o.once ? ", once" : " every ", w->o.once ? "" : every, on, still, waiting);
}

enum err_code watch_open(struct watch **out, const struct watch_options *o, const struct watch_host *host,
                         struct err *why)
{
    struct watch *w = calloc(1, sizeof *w);
    int still = 0;
    *out = NULL;
    if (!w) return err_set(why, ERR_NOMEM, "no memory for a watch");
    w->host = *host;
    w->psi_cpu = w->rolled_from_ln = NAN;
    w->summary.highest = -1;
    enum err_code rc = copy_options(w, o, why);
    if (!rc && o->items > WATCH_ITEMS)
        rc = err_set(why, ERR_USAGE, "at most %d workloads are watched, got %d", WATCH_ITEMS, o->items);
    for (int i = 0; i < o->items && !rc; i++) rc = take_item(w, &o->item[i], why);
    w->o.item = NULL;
    if (!rc) rc = check_rollback(w, why);
    if (!rc && o->reference) rc = config_parse(&w->reference, o->reference, why);
    if (!rc) rc = db_open(&w->db, o->db_path, why);
    if (!rc) rc = db_watch_lock(w->db, why);
    if (!rc) rc = recall_all(w, why);
    if (!rc) rc = restore_all(w, &still, why);
    if (!rc) rc = watch_sampler_at(w, o->once ? MEASURE_TICK_MS : TICK_MS, why);
    if (rc) {
        watch_close(w);
        return rc;
    }
    w->next_tick_ns = w->next_round_ns = w->due_ns = clock_ns();
    say_start(w, still);
    *out = w;
    return ERR_OK;
}

void watch_close(struct watch *w)
{
    if (!w) return;
    sampler_stop(w->sampler);
    db_close(w->db);
    for (int i = 0; i < w->n_kept; i++) free(w->kept[i]);
    free(w->window);
    free(w->stored);
    free(w);
}

/* ---------------------------------------------------------------- stepping */

/* Rates need two readings, so the first are not there at once; what a machine lacks is not waited for. */
static void wait_for_sensors(struct watch *w)
{
    enum { STEPS = 15 };
    const enum metric_id slow = w->o.even_if_busy ? METRIC_CPU_BUSY : METRIC_OTHERS_BUSY;
    for (int i = 0; i < STEPS && isnan(watch_mean(w, slow, 60)) && watch_goes_on(w); i++)
        clock_sleep_ns(MEASURE_TICK_MS * 1000000LL);
}

bool watch_step(struct watch *w)
{
    const int64_t now = clock_ns(), tick = (int64_t)TICK_MS * 1000000;
    if (w->o.once) wait_for_sensors(w);
    watch_look(w);
    if (watch_goes_on(w) && now >= w->next_round_ns) {
        round_step(w);
        if (w->o.once && w->items) watch_feed(w, SIGNAL_STALE, "", stale_s(w));
    }
    if (watch_goes_on(w)) notify_step(w);
    w->next_tick_ns += tick;
    if (w->next_tick_ns < clock_ns()) w->next_tick_ns = clock_ns() + tick; /* late: skip, no burst */
    return watch_goes_on(w);
}

int64_t watch_next_ns(const struct watch *w)
{
    return w->next_tick_ns;
}

void watch_summary(const struct watch *w, struct watch_summary *out)
{
    *out = w->summary;
}

struct sampler_thread *watch_sampler(const struct watch *w)
{
    return w->sampler;
}
