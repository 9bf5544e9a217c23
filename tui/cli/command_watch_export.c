/* command_watch_export.c - see command_watch_export.h. Values that cannot be sent are dropped, because the
 * next ones are newer; advisor/watch delivers alerts separately and keeps them. */
#include "tui/cli/command_watch_export.h"

#include <stdlib.h>
#include <string.h>

#include "advisor/watch/watch.h"
#include "db/db.h"
#include "telemetry/export/export.h"
#include "telemetry/otlp/otlp.h"
#include "tui/cli/lib/lib.h"
#include "tui/cli/lib/textfile.h"

static const double EVERY_S = 15;

enum page { PAGE_TEXTFILE, PAGE_OTLP, PAGE_PUSH, PAGES };

struct watch_pages {
    const struct cli_global *g;
    const struct machine *machine;
    const char *textfile, *push;
    struct otlp_target otlp; /* url NULL: none */
    char *bearer;            /* of the gateway; owned, NULL: none */
    struct watch_export watched;
    struct readings readings; /* too large for the stack */
    bool failing[PAGES];
    int64_t due_ns;
    int rounds; /* finished rounds at the last push */
};

static const char *const NAMES[PAGES] = { "the text file", "the collector", "the Pushgateway" };

/* Logs the first failure of a receiver and its next success. */
static void outcome_log(struct watch_pages *p, enum page which, enum err_code rc, const struct err *why)
{
    if (rc && !p->failing[which]) log_write(&p->g->log, LOG_WARN, "values not delivered: %s", why->message);
    if (!rc && p->failing[which]) log_write(&p->g->log, LOG_WARN, "%s accepts values again", NAMES[which]);
    p->failing[which] = rc != ERR_OK;
}

/* ---------------------------------------------------------------- opening */

enum err_code watch_pages_open(struct watch_pages **out, const struct cli_global *g, const struct cli_args *a,
                               const struct machine *m, struct err *why)
{
    const char *otlp = args_text(a, "--otlp", NULL);
    struct watch_pages *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return err_set(why, ERR_NOMEM, "out of memory");
    p->g = g;
    p->machine = m;
    p->textfile = args_text(a, "--textfile", NULL);
    p->push = args_text(a, "--push", NULL);
    enum err_code rc = p->textfile ? textfile_name_check(p->textfile, why) : ERR_OK;
    if (!rc && p->push) rc = http_url_check("gateway", p->push, HTTP_URL_BASE, why);
    if (!rc && otlp) rc = otlp_target_find(&p->otlp, OTLP_METRICS, otlp, NULL, why);
    const char *bearer = getenv("QDYNO_PUSH_BEARER");
    if (!rc && p->push && bearer && *bearer && !(p->bearer = strdup(bearer)))
        rc = err_set(why, ERR_NOMEM, "out of memory");
    return rc;
}

void watch_pages_close(struct watch_pages *p)
{
    if (!p) return;
    otlp_target_done(&p->otlp);
    watch_export_free(&p->watched);
    free(p->bearer);
    free(p);
}

/* ---------------------------------------------------------------- writing and sending */

static void values_write(void *ctx, const struct family_sink *to)
{
    const struct watch_pages *p = ctx;
    readings_export(&p->readings, to);
    watch_export_write(&p->watched, to);
}

/* Reads the values of the watch from the database, and the sensors. */
static enum err_code values_read(struct watch_pages *p, struct sampler_thread *sampler, struct err *why)
{
    struct db *d = NULL;
    enum err_code rc = db_open(&d, p->g->db_path, why);
    if (!rc) rc = watch_export_read(&p->watched, d, p->machine->id, why);
    db_close(d);
    if (sampler) readings_take(&p->readings, sampler, p->machine);
    return rc;
}

static void textfile_write(struct watch_pages *p)
{
    struct exposition e = { 0 };
    struct err why = { 0 };
    const struct family_sink to = exposition_sink(&e);
    values_write(p, &to);
    enum err_code rc = e.bad.code ? err_set(&why, e.bad.code, "%s", e.bad.message)
                                  : textfile_replace(p->textfile, &e.text, &why);
    outcome_log(p, PAGE_TEXTFILE, rc, &why);
    exposition_free(&e);
}

static void collector_send(struct watch_pages *p)
{
    struct err why = { 0 };
    struct otlp_answer answer = { 0 };
    const struct otlp_live live = { p->machine, values_write, p };
    outcome_log(p, PAGE_OTLP, otlp_metrics_send(&p->otlp, &live, &answer, &why), &why);
}

/* Pushes the values of the last round: one group for each machine, replaced each time. */
static void gateway_push(struct watch_pages *p)
{
    struct exposition e = { 0 };
    struct err why = { 0 };
    struct db *d = NULL;
    char *url = NULL;
    const struct family_sink to = exposition_sink(&e);
    const struct label grouping[] = { { "watch", "rounds" }, { "machine", p->machine->id } };
    const struct push_target target = { .url = p->push,
                                        .job = "qdyno",
                                        .grouping = grouping,
                                        .n_grouping = COUNT_OF(grouping),
                                        .auth = { .bearer = p->bearer } };
    build_export(p->machine->isa, &to);
    watch_export_write(&p->watched, &to);
    enum err_code rc = db_open(&d, p->g->db_path, &why);
    if (!rc) rc = push_url(&url, &target, &why);
    if (!rc) rc = db_group_put(d, url, &why); /* so that `prune` can delete it */
    if (!rc) rc = push_put(&target, str_text(&e.text), NULL, &why);
    outcome_log(p, PAGE_PUSH, rc, &why);
    db_close(d);
    free(url);
    exposition_free(&e);
}

void watch_pages_step(struct watch_pages *p, struct sampler_thread *sampler, int rounds, bool now)
{
    const int64_t t = clock_ns();
    struct err why;
    const bool due = now || t >= p->due_ns, round = rounds != p->rounds;
    if ((!p->textfile && !p->otlp.url && !p->push) || (!due && !round)) return;
    if (values_read(p, sampler, &why)) log_write(&p->g->log, LOG_WARN, "%s", why.message);
    if (due) p->due_ns = t + (int64_t)(EVERY_S * 1e9);
    if (p->textfile && due) textfile_write(p);
    if (p->otlp.url && due) collector_send(p);
    if (p->push && round) gateway_push(p);
    p->rounds = rounds;
}
