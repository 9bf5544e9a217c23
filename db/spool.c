/* db/spool.c - pushes that could not be sent yet, and the groups that we created on a gateway. */
#include "db/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const struct db_column SPOOL_COLUMNS[] = {
    DB_COLUMN(spool_row, id, I64),
    DB_COLUMN(spool_row, group_url, OWNED),
    DB_COLUMN(spool_row, target_json, OWNED),
    DB_COLUMN(spool_row, body, OWNED),
    DB_COLUMN(spool_row, attempts, INT),
    DB_COLUMN(spool_row, next_try_ms, I64),
    DB_COLUMN(spool_row, last_error, TEXT),
};
static const struct db_table SPOOL = DB_TABLE("spool", spool_row, SPOOL_COLUMNS);

void spool_row_free(struct spool_row *r)
{
    free(r->group_url);
    free(r->target_json);
    free(r->body);
    r->group_url = r->target_json = r->body = NULL;
}

enum err_code db_spool_put(struct db *d, const char *group_url, const char *target_json, const char *body,
                           struct err *why)
{
    const struct db_put p = { .table = &SPOOL, .doing = "spool a push", .verb = "INSERT OR REPLACE" };
    /* only read; the fields are not const because rows that were read own them */
    const struct spool_row row = { .group_url = (char *)group_url,
                                   .target_json = (char *)target_json,
                                   .body = (char *)body };
    return db_table_put(d, &p, &row, why);
}

enum err_code db_spool_list(struct db *d, int64_t now_ms, struct spool_row **rows, int *n, struct err *why)
{
    const struct db_query q = { .table = &SPOOL,
                                .doing = "read the spool",
                                .tail = "WHERE next_try_ms <= ?1 OR next_try_ms > ?2"
                                        " ORDER BY next_try_ms <= ?1, next_try_ms, id" };
    const int64_t latest_ms = MIN(now_ms, INT64_MAX - DB_RETRY_MOST_MS) + DB_RETRY_MOST_MS;
    void *list;
    const enum err_code rc = db_table_list(d, &q, &list, n, why, "ii", now_ms, latest_ms);
    *rows = list;
    return rc;
}

enum err_code db_spool_find(struct db *d, const char *group_url, struct spool_row *out, bool *found,
                            struct err *why)
{
    const struct db_query q = { .table = &SPOOL, .doing = "read the spool", .tail = "WHERE group_url = ?" };
    return db_table_first(d, &q, out, found, why, "t", group_url);
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

/* As stored: struct group_row has a copy of limited length. */
struct gateway_group {
    const char *group_url;
    int64_t first_ms, last_ms;
};
static const struct db_column GROUP_COLUMNS[] = {
    DB_COLUMN(gateway_group, group_url, BORROWED),
    DB_COLUMN(gateway_group, first_ms, I64),
    DB_COLUMN(gateway_group, last_ms, I64),
};
static const struct db_table GROUP = DB_TABLE_KEYED("gateway_group", gateway_group, GROUP_COLUMNS);

struct group_list {
    struct group_row *rows;
    int n, cap;
};

static enum err_code group_append(void *ctx, sqlite3_stmt *s, struct err *why)
{
    struct group_list *l = ctx;
    struct gateway_group stored;
    const enum err_code rc = db_table_read(&GROUP, &stored, s, why);
    if (rc) return rc;
    if (strlen(stored.group_url) >= sizeof l->rows->url)
        return err_set(why, ERR_FORMAT, "the address of a group is too long: %.80s...", stored.group_url);
    if (!array_room(&l->rows, &l->cap, (int64_t)l->n + 1, sizeof *l->rows))
        return err_set(why, ERR_NOMEM, "out of memory listing groups");
    struct group_row *g = &l->rows[l->n++];
    *g = (struct group_row){ .first_ms = stored.first_ms, .last_ms = stored.last_ms };
    snprintf(g->url, sizeof g->url, "%s", stored.group_url);
    return ERR_OK;
}

enum err_code db_group_list(struct db *d, const char *prefix, struct group_row **rows, int *n,
                            struct err *why)
{
    struct group_list l = { 0 };
    const struct db_query q = { .table = &GROUP,
                                .doing = "list gateway groups",
                                .tail = "WHERE substr(group_url, 1, length(?1)) = ?1"
                                        " ORDER BY last_ms, group_url" };
    const enum err_code rc = db_table_each(d, &q, group_append, &l, why, "t", prefix);
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
    const struct db_put p = { .table = &GROUP,
                              .doing = "store a gateway group",
                              .tail = "ON CONFLICT(group_url) DO UPDATE SET last_ms = excluded.last_ms" };
    const int64_t now = clock_unix_ms();
    const struct gateway_group row = { .group_url = group_url, .first_ms = now, .last_ms = now };
    return db_table_put(d, &p, &row, why);
}
