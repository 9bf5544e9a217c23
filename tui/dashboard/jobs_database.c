/* tui/dashboard/jobs_database.c - jobs that read and write runs: the history, and one run. */
#include "tui/dashboard/background.h"

#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "base/cut/cut.h"

struct run_line run_line_of(const struct run_row *r)
{
    struct run_line l = { .id = r->id, .started_ms = r->started_ms, .effect_ratio = r->effect_ratio };
    text_cut(l.metric, sizeof l.metric, r->metric);
    snprintf(l.kind, sizeof l.kind, "%s", r->kind);
    snprintf(l.state, sizeof l.state, "%s", r->state);
    snprintf(l.verdict, sizeof l.verdict, "%s", r->verdict);
    snprintf(l.label, sizeof l.label, "%s", r->label);
    snprintf(l.model, sizeof l.model, "%s", r->model_name);
    text_cut(l.workload, sizeof l.workload, r->workload);
    return l;
}

/* Log alerts that a `qdyno watch` process has raised for this machine, each once. */
static void history_log_alerts(struct background *b, struct db *d)
{
    enum { MOST = 16, FRESH_MS = 60000 };
    struct err why;
    struct alert_row *rows = NULL;
    int n = 0;
    if (db_alert_list(d, NULL, true, MOST, &rows, &n, &why))
        background_log(b, LOG_WARN, "alerts: %s", why.message);
    for (int i = n - 1; i >= 0; i--) { /* the oldest first */
        if (rows[i].id <= b->alert_logged) continue;
        b->alert_logged = rows[i].id;
        char ago[96] = "";
        if (clock_unix_ms() - rows[i].since_ms > FRESH_MS)
            snprintf(ago, sizeof ago, " (fired %s ago; no watch has looked and found it good since)",
                     figure_age(clock_unix_ms() - rows[i].since_ms).text);
        background_log(b, LOG_WARN, "alert %s%s%s%s: %s", rows[i].name, *rows[i].subject ? " " : "",
                       rows[i].subject, ago, rows[i].text);
    }
    free(rows);
}

struct stopped_run stopped_run_of(const struct run_row *r)
{
    struct stopped_run s = { .id = r->id, .started_ms = r->started_ms };
    snprintf(s.state, sizeof s.state, "%s", r->state);
    snprintf(s.model, sizeof s.model, "%s", r->model_name);
    return s;
}

/* The newest search, if it was stopped or killed: *out.id 0 if not. */
static enum err_code stopped_tune_find(struct stopped_run *out, struct db *d, struct err *why)
{
    enum { MOST = 16 }; /* the filter also finds runs with "tune" in another field */
    struct run_row *rows = NULL;
    int n = 0;
    *out = (struct stopped_run){ 0 };
    enum err_code rc = db_run_find(d, "tune", MOST, &rows, &n, why);
    const struct run_row *newest = NULL;
    for (int i = 0; i < n && !newest; i++)
        if (!strcmp(rows[i].kind, "tune")) newest = &rows[i];
    if (newest && (!strcmp(newest->state, "stopped") || !strcmp(newest->state, "interrupted")))
        *out = stopped_run_of(newest);
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
    return rc;
}

void background_publish_runs(struct background *b, const char *filter, const struct run_row *rows, int n,
                             const char *error)
{
    background_lock(b);
    struct snapshot *s = &b->known;
    const bool wanted = !strcmp(filter, b->history_filter);
    if (wanted) {
        snprintf(s->run_filter, sizeof s->run_filter, "%s", filter);
        text_cut(s->run_error, sizeof s->run_error, error);
        s->run_count = MIN(n, (int)SNAPSHOT_RUNS);
        for (int i = 0; i < s->run_count; i++) s->run[i] = run_line_of(&rows[i]);
    }
    background_unlock_if(b, wanted);
}

/* Read and publish the list of runs. d NULL: the database cannot be opened, and *why says it. */
static enum err_code runs_read(struct background *b, struct db *d, struct err *why)
{
    char filter[sizeof b->history_filter];
    struct run_row *rows = NULL;
    int n = 0;
    background_lock(b);
    memcpy(filter, b->history_filter, sizeof filter);
    background_unlock_if(b, false);
    const enum err_code rc = d ? db_run_find(d, *filter ? filter : NULL, SNAPSHOT_RUNS, &rows, &n, why)
                               : why->code;
    background_publish_runs(b, filter, rows, rc ? 0 : n, rc ? why->message : "");
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
    return rc;
}

void job_read_runs(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    (void)j;
    db_open(&d, b->db_path, &why);
    runs_read(b, d, &why);
    db_close(d);
}

void job_read_history(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct stopped_run stopped = { 0 };
    (void)j;
    db_open(&d, b->db_path, &why);
    enum err_code rc = runs_read(b, d, &why);
    if (rc == ERR_OK) rc = stopped_tune_find(&stopped, d, &why);
    int spooled = rc ? -1 : db_spool_count(d);
    if (rc == ERR_OK) history_log_alerts(b, d);
    if (rc == ERR_OK) background_read_results(b, d);
    if (rc == ERR_OK) background_read_baselines(b, d);
    background_lock(b);
    b->known.spool_count = spooled;
    b->known.stopped_tune = stopped;
    background_unlock(b);
    db_close(d);
    background_read_limits(b);
    if (rc == ERR_OK) background_refresh_advice(b);
}

/* ---------------------------------------------------------------- deleting runs */

typedef enum err_code run_change_fn(struct db *d, int64_t id, struct err *why);

/* Change one run, say so, and read the history again. */
static void change_run(struct background *b, const struct job *j, run_change_fn *change, const char *said)
{
    struct err why = { 0 };
    struct db *d = NULL;
    enum err_code rc = db_open(&d, b->db_path, &why);
    if (!rc) rc = change(d, j->id, &why);
    db_close(d);
    if (rc)
        background_announce(b, true, "%s", why.message);
    else
        background_announce(b, false, "run %lld %s", (long long)j->id, said);
    job_read_history(b, j);
}

void job_delete_run(struct background *b, const struct job *j)
{
    change_run(b, j, db_run_delete, "deleted: u restores it");
}

void job_restore_run(struct background *b, const struct job *j)
{
    change_run(b, j, db_run_restore, "restored");
}

void job_purge_runs(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    int removed = 0;
    const int64_t kept_ms = INT64_C(86400000) * RUN_DELETED_KEPT_DAYS;
    (void)j;
    enum err_code rc = db_open(&d, b->db_path, &why);
    if (!rc) rc = db_runs_purge(d, clock_unix_ms() - kept_ms, &removed, &why);
    db_close(d);
    if (rc) background_log(b, LOG_WARN, "%s", why.message);
    if (removed)
        background_log(b, LOG_INFO, "%d run%s deleted more than %d days ago: removed", removed,
                       str_plural(removed), (int)RUN_DELETED_KEPT_DAYS);
}

void job_load_run(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct experiment_state *state = calloc(1, sizeof *state);
    enum err_code rc = state ? db_open(&d, b->db_path, &why)
                             : err_set(&why, ERR_NOMEM, "not enough memory for the run");
    if (rc == ERR_OK) rc = experiment_load(state, d, j->id, &why);
    db_close(d);
    if (rc)
        background_announce(b, true, "run %lld: %s", (long long)j->id, why.message);
    else
        background_publish_run(b, state, false);
    free(state);
}
