/* db/alert.c - what the watch knows: alerts and their history, what is yet to be told about them, the last
 * value of what is measured once a round. A watch that is killed goes on from here: it tells nothing twice
 * and loses nothing that was to be told. */
#include "db/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct column ALERT_COLUMNS[] = {
    COLUMN(alert_row, id, I64),       COLUMN(alert_row, machine, TEXT), COLUMN(alert_row, name, TEXT),
    COLUMN(alert_row, subject, TEXT), COLUMN(alert_row, grade, TEXT),   COLUMN(alert_row, since_ms, I64),
    COLUMN(alert_row, ended_ms, I64), COLUMN(alert_row, value, REAL),   COLUMN(alert_row, threshold, REAL),
    COLUMN(alert_row, text, TEXT),    COLUMN(alert_row, ended, TEXT),
};
static const struct table ALERT = { "alert", ALERT_COLUMNS, COUNT_OF(ALERT_COLUMNS) };

static const struct column NOTICE_COLUMNS[] = {
    COLUMN(notice_row, id, I64),          COLUMN(notice_row, alert_id, I64),
    COLUMN(notice_row, kind, TEXT),       COLUMN(notice_row, url, OWNED),
    COLUMN(notice_row, body, OWNED),      COLUMN(notice_row, attempts, INT),
    COLUMN(notice_row, next_try_ms, I64), COLUMN(notice_row, refused_ms, I64),
    COLUMN(notice_row, last_error, TEXT),
};
static const struct table NOTICE = { "notice", NOTICE_COLUMNS, COUNT_OF(NOTICE_COLUMNS) };

static const struct column VALUE_COLUMNS[] = {
    COLUMN(watch_value, signal, TEXT),
    COLUMN(watch_value, subject, TEXT),
    COLUMN(watch_value, unix_ms, I64),
    COLUMN(watch_value, value, REAL),
};
static const struct table VALUE = { "watch_value", VALUE_COLUMNS, COUNT_OF(VALUE_COLUMNS) };

void notice_row_free(struct notice_row *r)
{
    free(r->url);
    free(r->body);
    r->url = r->body = NULL;
}

/* ---------------------------------------------------------------- alerts */

static enum err_code put_notices(struct db *d, int64_t alert_id, struct notice_row *notices, int n,
                                 struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < n && !rc; i++) {
        notices[i].alert_id = alert_id;
        rc = table_insert(d, &NOTICE, &notices[i], "store a notice", why);
    }
    return rc;
}

static enum err_code read_count(void *ctx, sqlite3_stmt *row, struct err *why)
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
    rc = db_do(d,
               &(struct db_call){ DOING,
                                  "SELECT count(*) FROM alert"
                                  " WHERE machine = ? AND name = ? AND subject = ? AND ended_ms = 0",
                                  read_count, &firing },
               why, "ttt", a->machine, a->name, a->subject);
    if (!rc && firing)
        rc = err_set(why, ERR_USAGE, "alert '%s'%s%s fires already", a->name, *a->subject ? " of " : "",
                     a->subject);
    if (!rc) rc = table_insert(d, &ALERT, a, DOING, why);
    if (!rc) rc = put_notices(d, a->id, notices, n, why);
    return db_end(d, rc, DOING, why);
}

enum err_code db_alert_end(struct db *d, int64_t id, const char *ended, struct notice_row *notices, int n,
                           struct err *why)
{
    static const char DOING[] = "end an alert";
    int firing = 0;
    enum err_code rc = db_begin(d, DOING, why);
    if (rc) return rc;
    rc = db_do(d,
               &(struct db_call){ DOING, "SELECT count(*) FROM alert WHERE id = ? AND ended_ms = 0",
                                  read_count, &firing },
               why, "i", id);
    if (!rc && !firing) rc = err_set(why, ERR_USAGE, "alert %" PRId64 " does not fire", id);
    if (!rc)
        rc = db_do(
            d,
            &(struct db_call){ DOING, "UPDATE alert SET ended_ms = ?, ended = ? WHERE id = ?", NULL, NULL },
            why, "iti", clock_unix_ms(), ended, id);
    if (!rc) rc = put_notices(d, id, notices, n, why);
    return db_end(d, rc, DOING, why);
}

/* Rows of one struct, growing. */
struct list {
    const struct table *table;
    char *rows;
    size_t size;
    int n, cap;
};

static enum err_code list_append(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct list *l = ctx;
    if (l->n == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 16;
        char *grown = realloc(l->rows, (size_t)cap * l->size);
        if (!grown) return err_set(why, ERR_NOMEM, "out of memory listing the watch's rows");
        l->rows = grown;
        l->cap = cap;
    }
    return table_read(l->table, l->rows + (size_t)l->n++ * l->size, row, why);
}

static enum err_code list_end(struct list *l, enum err_code rc)
{
    if (!rc) return ERR_OK;
    free(l->rows);
    *l = (struct list){ 0 };
    return rc;
}

enum err_code db_alert_list(struct db *d, const char *machine, bool firing_only, int limit,
                            struct alert_row **rows, int *n, struct err *why)
{
    struct list l = { &ALERT, NULL, sizeof(struct alert_row), 0, 0 };
    struct str sql = { 0 };
    table_select(&sql, &ALERT,
                 "WHERE (?1 IS NULL OR machine = ?1) AND (ended_ms = 0 OR NOT ?2) ORDER BY id DESC LIMIT ?3");
    const struct db_call call = { "list alerts", str_text(&sql), list_append, &l };
    const enum err_code rc = list_end(
        &l, db_do(d, &call, why, "tii", machine, (int64_t)firing_only, (int64_t)limit));
    str_free(&sql);
    *rows = (struct alert_row *)(void *)l.rows;
    *n = l.n;
    return rc;
}

/* ---------------------------------------------------------------- what is to be told */

struct notice_reader {
    struct notice_row *out;
    bool found;
};

static enum err_code notice_first(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct notice_reader *r = ctx;
    r->found = true;
    return table_read(&NOTICE, r->out, row, why);
}

enum err_code db_notice_next(struct db *d, const char *url, int64_t now_ms, struct notice_row *out,
                             bool *found, struct err *why)
{
    struct notice_reader r = { out, false };
    struct str sql = { 0 };
    memset(out, 0, sizeof *out);
    table_select(&sql, &NOTICE, "WHERE refused_ms = 0 AND url = ?1 ORDER BY id LIMIT 1");
    const struct db_call call = { "read the notices", str_text(&sql), notice_first, &r };
    const enum err_code rc = db_do(d, &call, why, "t", url);
    str_free(&sql);
    *found = r.found && !rc && out->next_try_ms <= now_ms;
    if (!*found) notice_row_free(out);
    return rc;
}

static enum err_code notice_update(struct db *d, const char *sql, int64_t ms, const char *error, int64_t id,
                                   struct err *why)
{
    return db_do(d, &(struct db_call){ "update a notice", sql, NULL, NULL }, why, "iti", ms, error, id);
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
    return db_do(d, &(struct db_call){ "update a notice", "DELETE FROM notice WHERE id = ?", NULL, NULL },
                 why, "i", id);
}

int db_notice_count(struct db *d, const char *url)
{
    int n = -1;
    db_do(d,
          &(struct db_call){ "count the notices",
                             "SELECT count(*) FROM notice WHERE refused_ms = 0 AND (?1 IS NULL OR url = ?1)",
                             read_count, &n },
          NULL, "t", url);
    return n;
}

/* ---------------------------------------------------------------- values of rounds */

enum err_code db_watch_value_put(struct db *d, const char *machine, const struct watch_value *v,
                                 struct err *why)
{
    return db_do(
        d,
        &(struct db_call){ "store a value of the watch",
                           "INSERT OR REPLACE INTO watch_value(machine, signal, subject, unix_ms, value)"
                           " VALUES(?,?,?,?,?)",
                           NULL, NULL },
        why, "tttid", machine, v->signal, v->subject, v->unix_ms, v->value);
}

enum err_code db_watch_value_list(struct db *d, const char *machine, struct watch_value **rows, int *n,
                                  struct err *why)
{
    struct list l = { &VALUE, NULL, sizeof(struct watch_value), 0, 0 };
    struct str sql = { 0 };
    table_select(&sql, &VALUE, "WHERE machine = ? ORDER BY signal, subject");
    const struct db_call call = { "list the watch's values", str_text(&sql), list_append, &l };
    const enum err_code rc = list_end(&l, db_do(d, &call, why, "t", machine));
    str_free(&sql);
    *rows = (struct watch_value *)(void *)l.rows;
    *n = l.n;
    return rc;
}
