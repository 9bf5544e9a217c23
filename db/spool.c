/* db/spool.c - pushes that could not be sent yet, and the groups that we created on a gateway. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

static const struct column SPOOL_COLUMNS[] = {
    COLUMN(spool_row, id, I64),          COLUMN(spool_row, target_json, OWNED),
    COLUMN(spool_row, body, OWNED),      COLUMN(spool_row, attempts, INT),
    COLUMN(spool_row, next_try_ms, I64), COLUMN(spool_row, last_error, TEXT),
};
static const struct table SPOOL = TABLE("spool", spool_row, SPOOL_COLUMNS);

void spool_row_free(struct spool_row *r)
{
    free(r->target_json);
    free(r->body);
    r->target_json = r->body = NULL;
}

enum err_code db_spool_put(struct db *d, const char *group_url, const char *target_json, const char *body,
                           struct err *why)
{
    return db_execute(
        d,
        &(struct db_call){ .doing = "spool a push",
                           .sql = "INSERT OR REPLACE INTO spool(group_url, target_json, body, attempts,"
                                  " next_try_ms, last_error) VALUES(?,?,?,0,0,'')" },
        why, "ttt", group_url, target_json, body);
}

struct spool_reader {
    struct spool_row *out;
    bool found;
};

static enum err_code spool_first(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct spool_reader *r = ctx;
    r->found = true;
    return table_read(&SPOOL, r->out, row, why);
}

enum err_code db_spool_list(struct db *d, int64_t now_ms, struct spool_row **rows, int *n, struct err *why)
{
    const struct table_query q = { .table = &SPOOL,
                                   .doing = "read the spool",
                                   .tail = "WHERE next_try_ms <= ?1 OR next_try_ms > ?2"
                                           " ORDER BY next_try_ms <= ?1, next_try_ms, id" };
    const int64_t latest_ms = MIN(now_ms, INT64_MAX - DB_RETRY_MOST_MS) + DB_RETRY_MOST_MS;
    void *list;
    const enum err_code rc = table_list(d, &q, &list, n, why, "ii", now_ms, latest_ms);
    *rows = list;
    return rc;
}

enum err_code db_spool_find(struct db *d, const char *group_url, struct spool_row *out, bool *found,
                            struct err *why)
{
    struct spool_reader r = { .out = out };
    struct str sql = { 0 };
    memset(out, 0, sizeof *out);
    table_select(&sql, &SPOOL, "WHERE group_url = ?");
    enum err_code rc = db_execute(
        d,
        &(struct db_call){ .doing = "read the spool", .sql = str_text(&sql), .row = spool_first, .ctx = &r },
        why, "t", group_url);
    str_free(&sql);
    if (rc) spool_row_free(out);
    *found = r.found && !rc;
    return rc;
}

enum err_code db_spool_sent(struct db *d, int64_t id, const char *group_url, struct err *why)
{
    static const char DOING[] = "store that a push arrived";
    enum err_code rc = db_begin(d, DOING, why);
    if (rc) return rc;
    rc = db_group_put(d, group_url, why);
    if (!rc) rc = db_spool_done(d, id, why);
    return db_end(d, rc, DOING, why);
}

enum err_code db_spool_failed(struct db *d, int64_t id, int64_t next_try_ms, const char *error,
                              struct err *why)
{
    return db_execute(d,
                      &(struct db_call){ .doing = "update the spool",
                                         .sql = "UPDATE spool SET attempts = attempts + 1, next_try_ms = ?,"
                                                " last_error = ? WHERE id = ?" },
                      why, "iti", next_try_ms, error, id);
}

enum err_code db_spool_done(struct db *d, int64_t id, struct err *why)
{
    return db_execute(
        d, &(struct db_call){ .doing = "update the spool", .sql = "DELETE FROM spool WHERE id = ?" }, why,
        "i", id);
}

static enum err_code count_read(void *ctx, sqlite3_stmt *row, struct err *why)
{
    (void)why;
    *(int *)ctx = sqlite3_column_int(row, 0);
    return ERR_OK;
}

enum err_code db_spool_count_read(struct db *d, int *n, struct err *why)
{
    *n = -1;
    return db_execute(
        d,
        &(struct db_call){
            .doing = "read the spool", .sql = "SELECT count(*) FROM spool", .row = count_read, .ctx = n },
        why, "");
}

int db_spool_count(struct db *d)
{
    int n;
    db_spool_count_read(d, &n, NULL);
    return n;
}

/* ---------------------------------------------------------------- groups on a gateway */

struct group_list {
    struct group_row *rows;
    int n, cap;
};

static enum err_code group_append(void *ctx, sqlite3_stmt *row, struct err *why)
{
    struct group_list *l = ctx;
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 16;
        struct group_row *rows = realloc(l->rows, (size_t)cap * sizeof *rows);
        if (!rows) return err_set(why, ERR_NOMEM, "out of memory listing groups");
        l->rows = rows;
        l->cap = cap;
    }
    struct group_row *g = &l->rows[l->n];
    const char *url = (const char *)sqlite3_column_text(row, 0);
    if ((size_t)sqlite3_column_bytes(row, 0) >= sizeof g->url)
        return err_set(why, ERR_FORMAT, "the address of a group is too long: %.80s...", url);
    memcpy(g->url, url, (size_t)sqlite3_column_bytes(row, 0) + 1);
    g->first_ms = sqlite3_column_int64(row, 1);
    g->last_ms = sqlite3_column_int64(row, 2);
    l->n++;
    return ERR_OK;
}

enum err_code db_group_list(struct db *d, const char *prefix, struct group_row **rows, int *n,
                            struct err *why)
{
    struct group_list l = { 0 };
    enum err_code rc = db_execute(
        d,
        &(struct db_call){ .doing = "list gateway groups",
                           .sql = "SELECT group_url, first_ms, last_ms FROM gateway_group"
                                  " WHERE substr(group_url, 1, length(?1)) = ?1"
                                  " ORDER BY last_ms, group_url",
                           .row = group_append,
                           .ctx = &l },
        why, "t", prefix);
    if (rc) {
        free(l.rows);
        l = (struct group_list){ 0 };
    }
    *rows = l.rows;
    *n = l.n;
    return rc;
}

enum err_code db_group_remove(struct db *d, const char *group_url, struct err *why)
{
    return db_execute(d,
                      &(struct db_call){ .doing = "delete a gateway group",
                                         .sql = "DELETE FROM gateway_group WHERE group_url = ?" },
                      why, "t", group_url);
}

enum err_code db_group_put(struct db *d, const char *group_url, struct err *why)
{
    int64_t now = clock_unix_ms();
    return db_execute(
        d,
        &(struct db_call){ .doing = "store a gateway group",
                           .sql = "INSERT INTO gateway_group VALUES(?,?,?)"
                                  " ON CONFLICT(group_url) DO UPDATE SET last_ms = excluded.last_ms" },
        why, "tii", group_url, now, now);
}
