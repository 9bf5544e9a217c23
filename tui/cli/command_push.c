/* qdyno push: the outcome of a run to a Pushgateway; what could not be sent before goes along. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tui/cli/rows.h"
#include "tui/cli/target.h"

const struct cli_flag FLAGS_PUSH[] = {
    { "--url", NULL, "URL", "Pushgateway, e.g. http://localhost:9091 (also: QDYNO_PUSH_URL)", FLAG_TEXT },
    TARGET_FLAGS("QDYNO_PUSH"),
    { NULL },
};

/* The run to push: the one asked for, or the newest that reached its end. */
static enum err_code choose_run(int64_t *id, struct db *d, const struct cli_args *a, struct err *why)
{
    if (a->n) {
        if (str_to_i64(a->arg[0], id) && *id > 0) return ERR_OK;
        return err_set(why, ERR_USAGE, "'%s' is no run: want a number from `qdyno history`", a->arg[0]);
    }
    struct run_row *runs = NULL;
    int n = 0;
    enum err_code rc = db_run_list(d, "ab", 1000, &runs, &n, why);
    *id = 0;
    for (int i = 0; i < n; i++) {
        if (!*id && !strcmp(runs[i].kind, "ab") && !strcmp(runs[i].state, "done")) *id = runs[i].id;
        run_row_free(&runs[i]);
    }
    free(runs);
    if (rc || *id) return rc;
    return err_set(why, ERR_USAGE,
                   "no finished A/B to push: run `qdyno ab` first, or name a run of `qdyno history`");
}

static const struct column COLUMNS[] = {
    { "run", "run", COLUMN_INT },
    { "url", "gateway", COLUMN_TEXT },
    { "pushed", "pushed", COLUMN_BOOL },
    { "sent_from_spool", "sent from the spool", COLUMN_INT },
    { "waiting", "waiting in the spool", COLUMN_INT },
};

int command_push(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 }, flush_why = { 0 };
    struct target to;
    struct push_target target;
    struct machine m;
    struct db *d = NULL;
    int64_t id = 0;
    int sent = 0;
    bool spooled = false;
    enum err_code rc = target_read(&to, a, "--url", "QDYNO_PUSH", &why);
    if (!rc && !to.url)
        rc = err_set(&why, ERR_USAGE, "want --url URL (or QDYNO_PUSH_URL), e.g. --url http://localhost:9091");
    target = (struct push_target){ .url = to.url, .auth = to.auth };
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = choose_run(&id, d, a, &why);
    if (!rc) rc = machine_detect(&m, "", &why);
    if (!rc) rc = outcome_push(d, id, &m, &target, &spooled, &why);
    /* the gateway answered: a good moment for what waited */
    if (!rc && db_spool_count(d) > 0 && outcome_flush(d, &target, true, &sent, &flush_why))
        log_write(&g->log, LOG_WARN, "an earlier outcome is still waiting: %s", flush_why.message);
    int status;
    if (rc) {
        status = cli_fail(a, &why);
        if (spooled) fprintf(stderr, "qdyno push: kept; the next push sends it\n");
    } else {
        struct table t;
        table_init(&t, "qdyno.push/1", COLUMNS, COUNT_OF(COLUMNS));
        t.record = true;
        json_t *row = table_row(&t);
        json_put_int(row, "run", id);
        json_put_str(row, "url", target.url);
        json_put_bool(row, "pushed", true);
        json_put_int(row, "sent_from_spool", sent);
        json_put_int(row, "waiting", db_spool_count(d));
        status = cli_print(g, a, &t, EXIT_DONE);
        table_done(&t);
    }
    db_close(d);
    target_done(&to);
    return status;
}
