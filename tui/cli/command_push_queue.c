/* command_push_queue.c - see command_push_queue.h. */
#include "tui/cli/command_push_queue.h"

#include <stdlib.h>
#include <string.h>

#include "advisor/outcome/outcome.h"
#include "tui/cli/commands.h"

#define WAITING(member) MEMBER(struct spool_row, member)
static const struct column COLUMNS[] = {
    COL("id", "id", WAITING(id)),
    COL("url", "gateway"),
    COL("attempts", "attempts", WAITING(attempts)),
    COL("next_try", "next attempt"),
    COL("last_error", "why not sent", WAITING(last_error)),
};

DOCUMENT(PUSH_QUEUE, "qdyno.push-queue/1", COLUMNS, .members = "sent dropped");

static void put_row(struct table *t, const struct spool_row *r)
{
    char shown[HTTP_SHOWN_MAX], when[32];
    json_t *target = NULL, *row = table_row(t);
    document_put(&DOCUMENT_PUSH_QUEUE, row, struct spool_row, r);
    if (!json_parse(&target, r->target_json, strlen(r->target_json), NULL)) {
        const char *url = json_string_value(json_object_get(target, "url"));
        json_put_str(row, "url", url ? http_url_shown(url, HTTP_SHOW_PATH, shown) : NULL);
    }
    json_put_str(row, "next_try",
                 r->next_try_ms > 0 ? clock_iso8601(r->next_try_ms, when, sizeof when) : NULL);
    json_decref(target);
}

/* The stored outcomes, to be freed by rows_free. */
static void rows_free(struct spool_row *rows, int n)
{
    for (int i = 0; i < n; i++) spool_row_free(&rows[i]);
    free(rows);
}

/* Deletes one stored outcome, or all. Errors: ERR_USAGE when there is none with that id. */
static enum err_code drop(struct db *d, const char *which, const struct spool_row *rows, int n, int *dropped,
                          struct err *why)
{
    const bool all = !strcmp(which, "all");
    int64_t id = 0;
    enum err_code rc = ERR_OK;
    if (!all && !str_to_i64(which, &id))
        return err_set(why, ERR_USAGE, "--drop %s: expected an id that `qdyno push --list` prints, or all",
                       which);
    for (int i = 0; i < n && !rc; i++) {
        if (!all && rows[i].id != id) continue;
        rc = db_spool_done(d, rows[i].id, why);
        *dropped += !rc;
    }
    if (!rc && !all && !*dropped)
        rc = err_set(why, ERR_USAGE,
                     "--drop %s: no outcome with this id waits; `qdyno push --list` prints them", which);
    return rc;
}

bool push_queue_asked(const struct cli_args *a)
{
    return args_has(a, "--list") || args_has(a, "--retry") || args_has(a, "--drop");
}

static enum err_code args_check(const struct cli_args *a, struct err *why)
{
    if (a->n || args_has(a, "--otlp"))
        return err_set(why, ERR_USAGE,
                       "--list, --retry and --drop are about stored outcomes for Pushgateways: leave "
                       "the run number and --otlp out");
    return ERR_OK;
}

int push_queue(const struct cli_global *g, const struct cli_args *a, const struct push_target *retry)
{
    struct err why = { 0 }, bad = { 0 };
    struct table t;
    struct db *d = NULL;
    struct spool_row *rows = NULL;
    int n = 0, sent = 0, dropped = 0;
    table_init(&t, &DOCUMENT_PUSH_QUEUE);
    enum err_code rc = args_check(a, &why), failed = ERR_OK;
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc && args_has(a, "--retry")) failed = outcome_flush(d, retry, true, &sent, &bad);
    if (!rc) rc = db_spool_list(d, INT64_MAX, &rows, &n, &why);
    if (!rc && args_has(a, "--drop")) {
        rc = drop(d, args_text(a, "--drop", ""), rows, n, &dropped, &why);
        rows_free(rows, n);
        rows = NULL;
        n = 0;
        if (!rc) rc = db_spool_list(d, INT64_MAX, &rows, &n, &why);
    }
    int status = EXIT_DONE;
    if (!rc) {
        for (int i = 0; i < n; i++) put_row(&t, &rows[i]);
        if (sent) table_note(&t, "%d sent", sent);
        if (dropped) table_note(&t, "%d deleted", dropped);
        if (n)
            table_note(&t, "qdyno push --retry sends them now; qdyno push --drop ID deletes one");
        else
            table_note(&t, "no outcome waits to be sent");
        json_put_int(t.extra, "sent", sent);
        json_put_int(t.extra, "dropped", dropped);
        status = cli_print(g, a, &t, EXIT_DONE);
    }
    if (rc) status = cli_fail(a, &why);
    if (!rc && failed) status = cli_fail(a, &bad);
    rows_free(rows, n);
    table_done(&t);
    db_close(d);
    return status;
}
