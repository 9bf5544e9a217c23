/* advisor/outcome/push.c - sends outcomes to a Pushgateway, and deletes them there.
 *
 * Every body is spooled before the network is tried, so a gateway, a network or a process that fails loses
 * nothing. One process sends to a gateway at a time (db_spool_lock): a body is never sent twice concurrently,
 * and an old one never overtakes a newer one of its group. A PUT replaces its group, so a body that is sent
 * again after an unrecorded success does no harm. */
#include "advisor/outcome/outcome.h"

#include <stdlib.h>
#include <string.h>

#include "advisor/outcome/parts.h"
#include "advisor/run/run.h"

enum { BACK_OFF_FIRST_MS = 30 * 1000, BACK_OFF_MOST_MS = DB_RETRY_MOST_MS, HOLD_TIMEOUTS = 3 };

static const char JOB[] = "qdyno";
static const double DEFAULT_TIMEOUT_S = 10, SHORTEST_S = 0.01;

static double timeout_of(const struct push_target *t)
{
    return t->auth.timeout_s > 0 ? t->auth.timeout_s : DEFAULT_TIMEOUT_S;
}

/* Seconds until the deadline of the target, at most `most_s`. */
static double seconds_left(const struct push_target *t, double most_s)
{
    return t->deadline_ns ? MIN(most_s, (double)(t->deadline_ns - clock_ns()) * 1e-9) : most_s;
}

/* Limits the next request by the target's deadline. */
static enum err_code deadline_apply(struct push_target *t, struct err *why)
{
    t->auth.timeout_s = seconds_left(t, timeout_of(t));
    if (t->auth.timeout_s >= SHORTEST_S) return ERR_OK;
    return err_set(why, ERR_ABSENT, "no time left to send: give more with --timeout (%s)", t->url);
}

/* ---------------------------------------------------------------- push and spool */

static void path_append(json_t *o, const char *key, const char *value)
{
    if (value) json_put_str(o, key, value);
}

/* A target without its secrets. */
static char *target_document(const struct push_target *t)
{
    json_t *o = json_object(), *grouping = json_array();
    json_put_str(o, "url", t->url);
    json_put_str(o, "job", t->job);
    for (int i = 0; i < t->n_grouping; i++) {
        json_t *pair = json_array();
        json_array_append_new(pair, json_string(t->grouping[i].name));
        json_array_append_new(pair, json_string(t->grouping[i].value));
        json_array_append_new(grouping, pair);
    }
    json_put(o, "grouping", grouping);
    path_append(o, "ca_file", t->auth.ca_file);
    path_append(o, "cert_file", t->auth.cert_file);
    path_append(o, "key_file", t->auth.key_file);
    json_put_bool(o, "insecure", t->auth.insecure);
    json_put_num(o, "timeout_s", t->auth.timeout_s);
    char *text = json_line(o);
    json_decref(o);
    return text;
}

/* Record in the spool the result of sending a body. The caller holds the spool. */
static void failure_record(struct db *d, const struct spool_row *row, const struct err *bad)
{
    const int64_t wait = MIN((int64_t)BACK_OFF_FIRST_MS << MIN(row->attempts, 20), BACK_OFF_MOST_MS);
    struct err ignored;
    (void)db_spool_failed(d, row->id, clock_unix_ms() + wait, bad->message, &ignored);
}

/* Send what waits for this group: our body, or a newer one that replaced it. Nothing there: another process
 * has sent it. */
static enum err_code group_send(struct db *d, const struct push_target *target, const char *url,
                                bool *spooled, struct err *why)
{
    struct spool_row row = { 0 };
    bool found;
    int status = 0;
    enum err_code rc = db_spool_find(d, url, &row, &found, why);
    if (rc || !found) return rc;
    struct err bad = { 0 };
    struct push_target now = *target;
    rc = deadline_apply(&now, &bad);
    if (!rc) rc = push_put(&now, row.body, &status, &bad);
    if (!rc) {
        rc = db_spool_sent(d, row.id, url, why);
    } else {
        struct err ignored;
        *spooled = rc == ERR_ABSENT;
        if (*spooled)
            failure_record(d, &row, &bad);
        else
            (void)db_spool_done(d, row.id, &ignored); /* refused permanently: report it now */
        if (why) *why = bad;
    }
    spool_row_free(&row);
    return rc;
}

static enum err_code spool_then_send(struct db *d, const struct push_target *target, const char *body,
                                     bool *spooled, struct err *why)
{
    char *url = NULL, *text = NULL;
    enum err_code rc = push_url(&url, target, why);
    if (!rc && !(text = target_document(target))) rc = err_set(why, ERR_NOMEM, "out of memory for a push");
    if (!rc && (rc = db_spool_put(d, url, text, body, why))) err_prefix(why, "nothing was sent");
    if (!rc) {
        *spooled = true;
        rc = db_spool_lock(d, target->url,
                           (int64_t)(seconds_left(target, HOLD_TIMEOUTS * timeout_of(target)) * 1e3), why);
        if (!rc) {
            *spooled = false;
            rc = group_send(d, target, url, spooled, why);
            db_spool_unlock(d);
        }
    }
    free(text);
    free(url);
    return rc;
}

/* Record the time of the attempt for the run's trace; a failure to record it is ignored. */
static void push_record(struct db *d, int64_t run_id, struct moment begun, const struct err *bad)
{
    struct err ignored;
    struct span_row span = span_until_now("push", begun, bad->message);
    span.run_id = run_id;
    (void)db_span_insert(d, &span, 1, &ignored);
}

enum err_code outcome_push(struct db *d, int64_t run_id, const struct machine *machine,
                           struct push_target *target, bool *spooled, struct err *why)
{
    char *body = NULL;
    *spooled = false;
    struct outcome *o = malloc(sizeof(*o));
    enum err_code rc = o ? outcome_load(o, d, run_id, why)
                         : err_set(why, ERR_NOMEM, "out of memory for a run");
    if (!rc) rc = outcome_text(&body, o, machine, why);
    if (!rc) {
        /* Labels of the group at the gateway. The machine is the one that measured the run; the parameter
         * `machine` is the one that pushes it. */
        const struct label grouping[] = { { "experiment", o->experiment }, { "machine", o->machine } };
        target->job = JOB;
        target->grouping = grouping;
        target->n_grouping = COUNT_OF(grouping);
        struct err bad = { 0 };
        const struct moment begun = moment_now();
        rc = spool_then_send(d, target, body, spooled, &bad);
        push_record(d, run_id, begun, &bad);
        if (rc && why) *why = bad;
        target->grouping = NULL; /* it points into this stack frame */
        target->n_grouping = 0;
    }
    free(body);
    free(o);
    return rc;
}

/* A spooled target. For the caller's own gateway the caller's credentials, certificates and --insecure apply,
 * all of them and nothing stored: a password must not be sent with less verification than it was given for.
 * Other gateways get no credentials. `o` must outlive *t; labels: room for `most`. */
static enum err_code target_read(struct push_target *t, struct label *labels, int most, const json_t *o,
                                 const struct push_target *auth, struct err *why)
{
    *t = (struct push_target){
        .url = json_get_str(o, "url", NULL),
        .job = json_get_str(o, "job", JOB),
        .grouping = labels,
        .auth.ca_file = json_get_str(o, "ca_file", NULL),
        .auth.cert_file = json_get_str(o, "cert_file", NULL),
        .auth.key_file = json_get_str(o, "key_file", NULL),
        .auth.insecure = json_get_bool(o, "insecure", false),
        .auth.timeout_s = json_get_num(o, "timeout_s", 0),
    };
    size_t i;
    json_t *pair;
    json_array_foreach(json_object_get(o, "grouping"), i, pair)
    {
        const char *name = json_string_value(json_array_get(pair, 0));
        const char *value = json_string_value(json_array_get(pair, 1));
        if (!name || !value || t->n_grouping == most)
            return err_set(why, ERR_FORMAT, "a spooled push has an invalid grouping key");
        labels[t->n_grouping++] = (struct label){ name, value };
    }
    if (!t->url) return err_set(why, ERR_FORMAT, "a spooled push has no url");
    if (auth) {
        t->deadline_ns = auth->deadline_ns;
        if (auth->url && !strcmp(auth->url, t->url)) t->auth = auth->auth;
    }
    return ERR_OK;
}

/* Sends a row whose gateway this handle has locked, unless another process has handled it since it was
 * listed. */
static enum err_code locked_send(struct db *d, const struct spool_row *listed, struct push_target *t,
                                 const char *url, bool *sent, struct err *why)
{
    struct spool_row row = { 0 };
    struct err bad = { 0 };
    int status = 0;
    bool found;
    enum err_code rc = db_spool_find(d, url, &row, &found, why);
    if (!rc && found && row.id == listed->id && row.attempts == listed->attempts) {
        rc = deadline_apply(t, &bad);
        if (!rc) {
            rc = push_put(t, row.body, &status, &bad);
            /* Refused bodies are kept, too: the reason may lie in another group's metric type; the row holds
             * it. */
            if (rc) failure_record(d, &row, &bad);
        }
        if (!rc && !(rc = db_spool_sent(d, row.id, url, &bad))) *sent = true;
        if (rc && why) *why = bad;
    }
    spool_row_free(&row);
    return rc;
}

/* While another process sends to the same gateway, the row is left to it. */
static enum err_code spooled_send(struct db *d, const struct spool_row *row, const struct push_target *auth,
                                  bool *sent, struct err *why)
{
    json_t *o = NULL;
    struct label labels[8];
    struct push_target t;
    char *url = NULL;
    enum err_code rc = json_parse(&o, row->target_json, strlen(row->target_json), why);
    if (!rc) rc = target_read(&t, labels, COUNT_OF(labels), o, auth, why);
    if (!rc) rc = push_url(&url, &t, why);
    if (!rc) {
        rc = db_spool_lock(d, t.url, 0, why);
        if (!rc)
            rc = locked_send(d, row, &t, url, sent, why);
        else if (rc == ERR_ABSENT)
            rc = ERR_OK;
        db_spool_unlock(d);
    } else {
        failure_record(d, row, why);
    }
    free(url);
    json_decref(o);
    return rc;
}

enum err_code outcome_flush(struct db *d, const struct push_target *auth, bool ignore_back_off, int *sent,
                            struct err *why)
{
    struct spool_row *rows = NULL;
    int n = 0;
    *sent = 0;
    enum err_code worst = db_spool_list(d, ignore_back_off ? INT64_MAX : clock_unix_ms(), &rows, &n, why);
    for (int i = 0; i < n; i++) {
        struct err bad = { 0 };
        bool done = false;
        const bool late = auth && seconds_left(auth, DEFAULT_TIMEOUT_S) < SHORTEST_S;
        const enum err_code rc = late ? ERR_OK : spooled_send(d, &rows[i], auth, &done, &bad);
        *sent += done;
        if (rc && !worst) {
            worst = rc;
            if (why) *why = bad;
        }
        spool_row_free(&rows[i]);
    }
    free(rows);
    return worst;
}

/* ---------------------------------------------------------------- prune */

static enum err_code group_delete(struct db *d, const struct push_target *target, const char *url,
                                  struct err *why)
{
    enum err_code rc = push_delete_url(target, url, NULL, why);
    return rc ? rc : db_group_remove(d, url, why);
}

enum err_code outcome_prune(struct db *d, const struct push_target *target, const struct prune_spec *spec,
                            struct err *why)
{
    struct group_row *groups = NULL;
    char *prefix = NULL;
    int n = 0;
    const struct push_target job = { .url = target->url, .job = JOB };
    enum err_code rc = push_url(&prefix, &job, why); /* ".../metrics/job/qdyno" */
    if (!rc) rc = db_group_list(d, prefix, &groups, &n, why);
    if (!rc) rc = db_spool_lock(d, target->url, (int64_t)(HOLD_TIMEOUTS * timeout_of(target) * 1e3), why);
    for (int i = 0; i < n && !rc; i++) {
        enum prune_fate fate = PRUNE_KEPT;
        if (groups[i].last_ms < spec->before_ms) {
            fate = spec->dry_run ? PRUNE_WOULD : PRUNE_DELETED;
            if (!spec->dry_run) rc = group_delete(d, target, groups[i].url, why);
        }
        if (!rc && spec->said) spec->said(spec->ctx, &groups[i], fate);
    }
    db_spool_unlock(d);
    free(groups);
    free(prefix);
    return rc;
}
