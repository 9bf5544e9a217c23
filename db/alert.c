/* db/alert.c - the state of `qdyno watch`: alerts and their history, notices that wait for delivery, and the
 * last values of each round. A watch that was killed continues from this state: it delivers no notice twice
 * and loses none. */
#include "db/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct db_column ALERT_COLUMNS[] = {
    DB_COLUMN(alert_row, id, I64),         DB_COLUMN(alert_row, machine, TEXT),
    DB_COLUMN(alert_row, name, TEXT),      DB_COLUMN(alert_row, subject, TEXT),
    DB_COLUMN(alert_row, grade, TEXT),     DB_COLUMN(alert_row, since_ms, I64),
    DB_COLUMN(alert_row, ended_ms, I64),   DB_COLUMN(alert_row, value, REAL),
    DB_COLUMN(alert_row, threshold, REAL), DB_COLUMN(alert_row, text, TEXT),
    DB_COLUMN(alert_row, ended, TEXT),
};
static const struct db_table ALERT = DB_TABLE("alert", alert_row, ALERT_COLUMNS);

static const struct db_column NOTICE_COLUMNS[] = {
    DB_COLUMN(notice_row, id, I64),          DB_COLUMN(notice_row, alert_id, I64),
    DB_COLUMN(notice_row, kind, TEXT),       DB_COLUMN(notice_row, url, OWNED),
    DB_COLUMN(notice_row, body, OWNED),      DB_COLUMN(notice_row, attempts, INT),
    DB_COLUMN(notice_row, next_try_ms, I64), DB_COLUMN(notice_row, refused_ms, I64),
    DB_COLUMN(notice_row, last_error, TEXT),
};
static const struct db_table NOTICE = DB_TABLE("notice", notice_row, NOTICE_COLUMNS);

static const struct db_column VALUE_COLUMNS[] = {
    DB_COLUMN(watch_value, machine, TEXT), DB_COLUMN(watch_value, signal, TEXT),
    DB_COLUMN(watch_value, subject, TEXT), DB_COLUMN(watch_value, unix_ms, I64),
    DB_COLUMN(watch_value, value, REAL),
};
static const struct db_table VALUE = DB_TABLE_KEYED("watch_value", watch_value, VALUE_COLUMNS);

void notice_row_free(struct notice_row *r)
{
    free(r->url);
    free(r->body);
    r->url = r->body = NULL;
}

/* ---------------------------------------------------------------- alerts */

static enum err_code notices_insert(struct db *d, int64_t alert_id, struct notice_row *notices, int n,
                                    struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < n && !rc; i++) {
        notices[i].alert_id = alert_id;
        rc = db_table_insert(d, &NOTICE, &notices[i], "store a notice", why);
    }
    return rc;
}

static enum err_code count_read(void *ctx, sqlite3_stmt *row, struct err *why)
{
    (void)why;
    *(int *)ctx = sqlite3_column_int(row, 0);
    return ERR_OK;
}

enum err_code db_alert_begin(struct db *d, struct alert_row *a, struct notice_row *notices, int n,
                             struct err *why)
{
    static const char DOING[] = "store an alert";
    int firing = 0;
    enum err_code rc = db_begin(d, DOING, why);
    if (rc) return rc;
    a->ended_ms = 0;
    rc = db_execute(
        d,
        &(struct db_call){ .doing = DOING,
                           .sql = "SELECT count(*) FROM alert"
                                  " WHERE machine = ? AND name = ? AND subject = ? AND ended_ms = 0",
                           .row = count_read,
                           .ctx = &firing },
        why, "ttt", a->machine, a->name, a->subject);
    if (!rc && firing)
        rc = err_set(why, ERR_USAGE, "alert '%s'%s%s is already firing", a->name, *a->subject ? " of " : "",
                     a->subject);
    if (!rc) rc = db_table_insert(d, &ALERT, a, DOING, why);
    if (!rc) rc = notices_insert(d, a->id, notices, n, why);
    return db_end(d, rc, DOING, why);
}

enum err_code db_alert_end(struct db *d, int64_t id, const char *ended, struct notice_row *notices, int n,
                           struct err *why)
{
    static const char DOING[] = "end an alert";
    int firing = 0;
    enum err_code rc = db_begin(d, DOING, why);
    if (rc) return rc;
    rc = db_execute(d,
                    &(struct db_call){ .doing = DOING,
                                       .sql = "SELECT count(*) FROM alert WHERE id = ? AND ended_ms = 0",
                                       .row = count_read,
                                       .ctx = &firing },
                    why, "i", id);
    if (!rc && !firing) rc = err_set(why, ERR_USAGE, "alert %" PRId64 " is not firing", id);
    if (!rc)
        rc = db_execute(d,
                        &(struct db_call){ .doing = DOING,
                                           .sql = "UPDATE alert SET ended_ms = ?, ended = ? WHERE id = ?" },
                        why, "iti", clock_unix_ms(), ended, id);
    if (!rc) rc = notices_insert(d, id, notices, n, why);
    return db_end(d, rc, DOING, why);
}

enum err_code db_alert_list(struct db *d, const char *machine, bool firing_only, int limit,
                            struct alert_row **rows, int *n, struct err *why)
{
    const struct db_query q = {
        .table = &ALERT,
        .doing = "list alerts",
        .tail = "WHERE (?1 IS NULL OR machine = ?1) AND (ended_ms = 0 OR NOT ?2) ORDER BY id DESC LIMIT ?3"
    };
    void *list;
    const enum err_code rc = db_table_list(d, &q, &list, n, why, "tii", machine, (int64_t)firing_only,
                                           (int64_t)limit);
    *rows = list;
    return rc;
}

/* ---------------------------------------------------------------- notices */

enum err_code db_notice_next(struct db *d, const char *url, int64_t now_ms, struct notice_row *out,
                             bool *found, struct err *why)
{
    const struct db_query q = { .table = &NOTICE,
                                .doing = "read the notices",
                                .tail = "WHERE refused_ms = 0 AND url = ?1 ORDER BY id LIMIT 1" };
    const enum err_code rc = db_table_first(d, &q, out, found, why, "t", url);
    *found = *found && (out->next_try_ms <= now_ms || out->next_try_ms - now_ms > DB_RETRY_MOST_MS);
    if (!*found) notice_row_free(out);
    return rc;
}

enum err_code db_notice_rename(struct db *d, const char *from, const char *to, struct err *why)
{
    return db_execute(
        d,
        &(struct db_call){ .doing = "rename a receiver", .sql = "UPDATE notice SET url = ?2 WHERE url = ?1" },
        why, "tt", from, to);
}

static enum err_code notice_update(struct db *d, const char *sql, int64_t ms, const char *error, int64_t id,
                                   struct err *why)
{
    return db_execute(d, &(struct db_call){ .doing = "update a notice", .sql = sql }, why, "iti", ms, error,
                      id);
}

enum err_code db_notice_failed(struct db *d, int64_t id, int64_t next_try_ms, const char *error,
                               struct err *why)
{
    return notice_update(
        d, "UPDATE notice SET attempts = attempts + 1, next_try_ms = ?, last_error = ? WHERE id = ?",
        next_try_ms, error, id, why);
}

enum err_code db_notice_refused(struct db *d, int64_t id, const char *error, struct err *why)
{
    return notice_update(
        d, "UPDATE notice SET attempts = attempts + 1, refused_ms = ?, last_error = ? WHERE id = ?",
        clock_unix_ms(), error, id, why);
}

enum err_code db_notice_done(struct db *d, int64_t id, struct err *why)
{
    return db_execute(
        d, &(struct db_call){ .doing = "update a notice", .sql = "DELETE FROM notice WHERE id = ?" }, why,
        "i", id);
}

int db_notice_count(struct db *d, const char *url)
{
    int n = -1;
    db_execute(d,
               &(struct db_call){
                   .doing = "count the notices",
                   .sql = "SELECT count(*) FROM notice WHERE refused_ms = 0 AND (?1 IS NULL OR url = ?1)",
                   .row = count_read,
                   .ctx = &n },
               NULL, "t", url);
    return n;
}

/* ---------------------------------------------------------------- values of the last round */

enum err_code db_watch_value_put(struct db *d, const char *machine, const struct watch_value *v,
                                 struct err *why)
{
    const struct db_put p = { .table = &VALUE,
                              .doing = "store a value of the watch",
                              .verb = "INSERT OR REPLACE" };
    struct watch_value row = *v;
    snprintf(row.machine, sizeof row.machine, "%s", machine);
    return db_table_put(d, &p, &row, why);
}

enum err_code db_watch_value_list(struct db *d, const char *machine, struct watch_value **rows, int *n,
                                  struct err *why)
{
    const struct db_query q = { .table = &VALUE,
                                .doing = "list the values of the watch",
                                .tail = "WHERE machine = ? ORDER BY signal, subject" };
    void *list;
    const enum err_code rc = db_table_list(d, &q, &list, n, why, "t", machine);
    *rows = list;
    return rc;
}
