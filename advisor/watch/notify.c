/* advisor/watch/notify.c - sends alerts to a webhook and to Prometheus' Alertmanager.
 *
 * A webhook gets one document when an alert begins and one when it ends, in order. Each waits in the database
 * until the server accepts it. Alertmanager expects firing alerts to be repeated and treats silence as the
 * end: it gets the complete state every minute and needs no queue.
 *
 * The watch sends between its rounds. A measurement takes minutes and can hang, so during a round a thread
 * sends, with a database handle of its own. */
#include "advisor/watch/watch.h"
#include "advisor/watch/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    AT_ONCE = 4, /* notices per step: sensors must not wait for the network */
    FIRST_RETRY_S = 5,
    LAST_RETRY_S = 300,
    AGAIN_S = 60, /* interval of the state for Alertmanager */
    /* a firing alert expires at Alertmanager this long after the last repetition */
    ALIVE_MS = 5 * 60 * 1000,
    ENDED_MS = 15 * 60 * 1000, /* how long an ended alert is still sent, as Prometheus does */
    ALERTS_MOST = 256,
};

/* ---------------------------------------------------------------- documents */

static void json_put_time(json_t *o, const char *key, int64_t unix_ms)
{
    char when[32];
    json_put_str(o, key, unix_ms ? clock_iso8601(unix_ms, when, sizeof when) : NULL);
}

static json_t *labels_json(const struct machine *m, const struct alert_row *row)
{
    json_t *o = json_object();
    char name[64];
    const struct alert *a = alert_find(row->name);
    json_put_str(o, "alertname", a ? alert_prometheus_name(a, name, sizeof name) : row->name);
    json_put_str(o, "severity", row->grade);
    json_put_str(o, "subject", row->subject);
    json_put_str(o, "machine", row->machine);
    json_put_str(o, "host", m->host);
    return o;
}

static void json_put_summary(json_t *o, const struct alert_row *row, const struct alert *a)
{
    char text[512];
    snprintf(text, sizeof text, "%s%s%s", row->subject, *row->subject ? ": " : "", row->text);
    json_put_str(o, "summary", text);
    json_put_str(o, "description", a->meaning);
    json_put_str(o, "todo", a->todo);
}

json_t *notice_document(const struct machine *m, const struct alert_row *row, const struct alert *a,
                        enum notice_status status, const char *suggestion)
{
    json_t *o = json_object();
    json_put_str(o, "schema", "qdyno.alert/1");
    json_put_str(o, "status", status == NOTICE_FIRING ? "firing" : "resolved");
    json_put_str(o, "alert", row->name);
    json_put_str(o, "severity", row->grade);
    json_put_str(o, "signal", SIGNALS[a->signal].name);
    json_put(o, "labels", labels_json(m, row));
    json_put_num(o, "value", row->value);
    json_put_num(o, "threshold", row->threshold);
    json_put_str(o, "comparison", a->side == SIDE_ABOVE ? "above" : "below");
    json_put_num(o, "for_s", a->for_s);
    json_put_time(o, "since", row->since_ms);
    json_put_time(o, "ended", row->ended_ms);
    json_put_str(o, "reason", *row->ended ? row->ended : NULL);
    json_put_summary(o, row, a);
    json_put_str(o, "suggestion", *suggestion ? suggestion : NULL);
    json_put_str(o, "machine", row->machine);
    json_put_str(o, "host", m->host);
    json_put_str(o, "version", QDYNO_VERSION);
    return o;
}

/* Times that are later than now were stored before the clock was set back. Alertmanager refuses all alerts of
 * a request if one starts in the future, and an end in the future means that the alert fires. */
json_t *alertmanager_document(const struct machine *m, const struct alert_row *rows, int n, int64_t now_ms)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const struct alert *a = alert_find(rows[i].name);
        if (!a || !(a->actions & ACTION_NOTIFY)) continue;
        if (rows[i].ended_ms && llabs(now_ms - rows[i].ended_ms) > ENDED_MS) continue;
        json_t *o = json_object(), *about = json_object();
        json_put(o, "labels", labels_json(m, &rows[i]));
        json_put_summary(about, &rows[i], a);
        json_put(o, "annotations", about);
        json_put_time(o, "startsAt", MIN(rows[i].since_ms, now_ms));
        json_put_time(o, "endsAt", rows[i].ended_ms ? MIN(rows[i].ended_ms, now_ms) : now_ms + ALIVE_MS);
        json_array_append_new(list, o);
    }
    return list;
}

/* ---------------------------------------------------------------- sending */

const char *webhook_name(const char *url, char buf[WEBHOOK_NAME])
{
    enum { HASH_DIGITS = 16 };
    char shown[HTTP_SHOWN_MAX], hex[HASH_HEX];
    hash_bytes(url, strlen(url), hex);
    snprintf(buf, WEBHOOK_NAME, "%s %.*s", http_url_shown(url, HTTP_SHOW_HOST, shown), HASH_DIGITS, hex);
    return buf;
}

enum err_code notify_open(struct watch *w, struct err *why)
{
    const char *url = w->setup.o.webhook;
    if (!url) return ERR_OK;
    /* earlier versions stored the address itself */
    return db_notice_rename(w->db, url, webhook_name(url, w->setup.webhook_name), why);
}

static enum err_code receiver_post(const struct watch *w, const char *url, const char *body,
                                   double *retry_after_s, struct err *why)
{
    const bool webhook = url == w->setup.o.webhook;
    const struct http_request r = { .method = "POST",
                                    .url = url,
                                    .secret_path = webhook,
                                    .content_type = "application/json",
                                    .body = body,
                                    .n_body = strlen(body),
                                    .auth = webhook ? &w->setup.webhook_auth : &w->setup.alertmanager_auth,
                                    .retry_after_s = retry_after_s };
    return http_send(&r, NULL, why);
}

/* Report when sending starts to fail and when it works again, not every failure. */
static void receiver_set_state(struct watch *w, bool *down, const char *receiver, const struct err *why)
{
    const bool was = *down;
    *down = why != NULL;
    if (*down == was) return;
    if (why)
        watch_report(w, WATCH_NOTICE, GRADE_WARNING, NULL, "%s does not accept notices, will retry: %s",
                     receiver, why->message);
    else
        watch_report(w, WATCH_NOTICE, GRADE_INFO, NULL, "%s accepts notices again", receiver);
}

static double retry_delay_s(int attempts, double asked_s)
{
    double s = FIRST_RETRY_S;
    for (int i = 0; i < attempts && s < LAST_RETRY_S; i++) s *= 2;
    return fmax(fmin(s, LAST_RETRY_S), isnan(asked_s) ? 0 : fmin(asked_s, DB_RETRY_MOST_MS * 1e-3));
}

/* True when the next notice may follow at once. */
static bool notice_send(struct watch *w, struct db *db, const struct notice_row *n)
{
    struct err why, stored;
    double retry_after_s = NAN;
    enum err_code rc = receiver_post(w, w->setup.o.webhook, n->body, &retry_after_s, &why), kept;
    if (!rc) {
        receiver_set_state(w, &w->receivers.webhook_down, "the webhook", NULL);
        kept = db_notice_done(db, n->id, &stored);
    } else if (rc == ERR_USAGE) { /* permanent: the server would refuse it again */
        watch_report(w, WATCH_NOTICE, GRADE_WARNING, NULL,
                     "a notice was refused and will not be sent again: %s", why.message);
        kept = db_notice_refused(db, n->id, why.message, &stored);
    } else {
        const int64_t next = clock_unix_ms() + (int64_t)(1e3 * retry_delay_s(n->attempts, retry_after_s));
        receiver_set_state(w, &w->receivers.webhook_down, "the webhook", &why);
        kept = db_notice_failed(db, n->id, next, why.message, &stored);
    }
    if (kept) watch_report_trouble(w, &stored);
    return !kept && (!rc || rc == ERR_USAGE);
}

void notify_now(struct watch *w, const struct notice_row *n)
{
    struct err why;
    if (receiver_post(w, w->setup.o.webhook, n->body, NULL, &why))
        watch_report(w, WATCH_NOTICE, GRADE_WARNING, NULL,
                     "a notice could neither be stored nor sent, and is lost: %s", why.message);
}

static void webhook_step(struct watch *w, struct db *db)
{
    bool more = w->setup.o.webhook != NULL;
    for (int i = 0; i < AT_ONCE && more && !w->receivers.stop; i++) {
        struct notice_row n = { 0 };
        struct err why;
        bool found;
        if (db_notice_next(db, w->setup.webhook_name, clock_unix_ms(), &n, &found, &why)) {
            watch_report_trouble(w, &why);
            return;
        }
        more = found && notice_send(w, db, &n);
        notice_row_free(&n);
    }
}

static void alertmanager_step(struct watch *w, struct db *db)
{
    struct alert_row *rows;
    struct err why;
    struct str url = { 0 };
    int n;
    const int64_t now = clock_ns();
    if (!w->setup.o.alertmanager || now < w->receivers.alertmanager_ns) return;
    w->receivers.alertmanager_ns = now + AGAIN_S * INT64_C(1000000000);
    enum err_code rc = db_alert_list(db, w->setup.machine.id, false, ALERTS_MOST, &rows, &n, &why);
    if (rc) {
        watch_report_trouble(w, &why);
        return;
    }
    json_t *list = alertmanager_document(&w->setup.machine, rows, n, clock_unix_ms());
    char *body = json_line(list);
    const size_t base = strlen(w->setup.o.alertmanager);
    str_printf(&url, "%.*s/api/v2/alerts",
               (int)(base && w->setup.o.alertmanager[base - 1] == '/' ? base - 1 : base),
               w->setup.o.alertmanager);
    if (json_array_size(list) && body && !url.failed) {
        rc = receiver_post(w, str_text(&url), body, NULL, &why);
        receiver_set_state(w, &w->receivers.alertmanager_down, "Alertmanager", rc ? &why : NULL);
    }
    str_free(&url);
    free(body);
    json_decref(list);
    free(rows);
}

void notify_step(struct watch *w, struct db *db)
{
    webhook_step(w, db);
    alertmanager_step(w, db);
}

/* ---------------------------------------------------------------- during a round */

static void *sender_thread(void *arg)
{
    enum { WAIT_MS = 100, WAITS = 10 };
    struct watch *w = arg;
    struct db *db = NULL;
    struct err why;
    if (db_open(&db, w->setup.o.db_path, &why)) watch_report_trouble(w, &why);
    while (db && !w->receivers.stop) {
        notify_step(w, db);
        for (int i = 0; i < WAITS && !w->receivers.stop; i++) clock_sleep_ns(WAIT_MS * 1000000LL);
    }
    db_close(db);
    return NULL;
}

void notify_begin(struct watch *w)
{
    struct err why;
    if (!w->setup.o.webhook && !w->setup.o.alertmanager) return;
    w->receivers.sending = !pthread_create(&w->receivers.thread, NULL, sender_thread, w);
    if (w->receivers.sending) return;
    err_set(&why, ERR_NOMEM, "cannot start the thread that sends notices: they wait until this round ends");
    watch_report_trouble(w, &why);
}

void notify_end(struct watch *w)
{
    if (!w->receivers.sending) return;
    w->receivers.stop = true;
    pthread_join(w->receivers.thread, NULL);
    w->receivers.stop = w->receivers.sending = false;
}
