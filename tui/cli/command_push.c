/* qdyno push: sends the outcome of a run to a Pushgateway, and its trace and outcome to an OpenTelemetry
 * collector. Stored earlier outcomes that could not be sent then go along. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/outcome/outcome.h"
#include "telemetry/export/export.h"
#include "telemetry/otlp/otlp.h"
#include "tui/cli/command_push_queue.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/runs.h"
#include "tui/cli/lib/server_flags.h"
#include "tui/cli/lib/textfile.h"

/* clang-format off */
const struct cli_flag FLAGS_PUSH[] = {
    { .name = "--url", .value = "URL",
      .help = "Pushgateway, e.g. http://localhost:9091 (also: QDYNO_PUSH_URL)" },
    { .name = "--otlp", .value = "URL",
      .help = "OpenTelemetry collector, OTLP over HTTP, e.g. http://localhost:4318 (also: "
              "OTEL_EXPORTER_OTLP_ENDPOINT)" },
    { .name = "--textfile", .value = "FILE",
      .help = "write the latest outcome of every experiment to this file, which ends in .prom, in the "
              "folder that prometheus-node-exporter reads" },
    { .name = "--list", .exclusive = true, .help = "list the outcomes that are stored because they could not be sent, and why" },
    { .name = "--retry", .exclusive = true, .help = "send the stored outcomes now; credentials are for --url only" },
    { .name = "--drop", .exclusive = true, .value = "ID", .help = "delete a stored outcome without sending it; all: every one" },
    TARGET_FLAGS("QDYNO_PUSH", "time for sending in all; what has not been sent then stays stored"),
    { .name = NULL },
};
/* clang-format on */

static const double DEFAULT_TIMEOUT_S = 10;

/* The run to push: the given one, or the newest finished A/B. */
static enum err_code choose_run(int64_t *id, struct db *d, const struct cli_args *a, struct err *why)
{
    if (a->n) return cli_run_id(id, a->arg[0], why);
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
    return err_set(
        why, ERR_USAGE,
        "no finished A/B to push: run `qdyno ab` first, or give a run number that `qdyno history` lists");
}

static const struct column COLUMNS[] = {
    COL("run", "run", .kind = COLUMN_INT),
    COL("url", "gateway"),
    COL("pushed", "pushed", .kind = COLUMN_BOOL),
    COL("sent_from_spool", "stored outcomes sent", .kind = COLUMN_INT),
    COL("waiting", "stored outcomes left", .kind = COLUMN_INT),
    COL("otlp", "collector"),
    COL("spans", "spans", .kind = COLUMN_INT),
    COL("points", "metric points", .kind = COLUMN_INT),
    COL("traces_sent_late", "stored runs sent", .kind = COLUMN_INT),
    COL("traces_waiting", "stored runs left", .kind = COLUMN_INT),
};

DOCUMENT(PUSH, "qdyno.push/1", COLUMNS, .record = true);

struct push {
    const struct cli_global *g;
    const struct cli_args *a;
    struct db *db;
    int64_t run;
    struct target to;
    bool to_gateway, to_collector;
    int64_t begun_ns;
    json_t *row;  /* of the table; borrowed */
    bool spooled; /* the gateway could not be reached: the outcome is stored */
};

/* When sending to a receiver ends. --timeout limits both together, so that each has half of it; without the
 * flag the environment of OpenTelemetry may give the collector more. */
static int64_t deadline(const struct push *p, bool collector)
{
    const double all_s = p->to.auth.timeout_s > 0 ? p->to.auth.timeout_s : DEFAULT_TIMEOUT_S;
    const double share = !collector && p->to_collector ? 0.5 : 1;
    if (collector && !(p->to.auth.timeout_s > 0)) return 0;
    return p->begun_ns + (int64_t)(share * all_s * 1e9);
}

/* The flags choose the receivers; without --url and --otlp the environment does. */
static enum err_code choose_receivers(struct push *p, struct err *why)
{
    const bool url = args_has(p->a, "--url"), otlp = args_has(p->a, "--otlp");
    enum err_code rc = target_read(&p->to, p->a, "--url", "QDYNO_PUSH", why);
    if (rc) return rc;
    p->to_gateway = url || (!otlp && p->to.url);
    p->to_collector = otlp || (!url && otlp_environment());
    if (p->to_gateway || p->to_collector) return ERR_OK;
    return err_set(why, ERR_USAGE,
                   "expected --url URL (the Pushgateway to send to; or QDYNO_PUSH_URL), e.g. --url "
                   "http://localhost:9091, or --otlp URL (an OpenTelemetry collector; or "
                   "OTEL_EXPORTER_OTLP_ENDPOINT), e.g. --otlp http://localhost:4318");
}

typedef enum err_code count_fn(struct db *d, int *n, struct err *why);

/* Put how many stored results are left into the row. Returns rc, or the error of counting them. */
static enum err_code put_waiting(struct push *p, const char *name, count_fn *count, enum err_code rc,
                                 struct err *why)
{
    int n;
    struct err other = { 0 };
    const enum err_code failed = count(p->db, &n, rc ? &other : why);
    if (!failed) json_put_int(p->row, name, n);
    return rc ? rc : failed;
}

static enum err_code gateway_send(struct push *p, struct err *why)
{
    struct push_target target = { .url = p->to.url, .auth = p->to.auth, .deadline_ns = deadline(p, false) };
    struct machine m;
    struct err later = { 0 };
    int sent = 0;
    bool spooled = false;
    enum err_code rc = machine_detect(&m, "", why);
    if (!rc) rc = outcome_push(p->db, p->run, &m, &target, &spooled, why);
    /* The gateway answers now, so try the stored outcomes, too. */
    if (!rc && db_spool_count(p->db) > 0 && outcome_flush(p->db, &target, true, &sent, &later))
        log_write(&p->g->log, LOG_WARN, "an earlier outcome could not be sent and stays stored: %s",
                  later.message);
    json_put_str(p->row, "url", target.url);
    json_put_bool(p->row, "pushed", !rc);
    json_put_int(p->row, "sent_from_spool", sent);
    p->spooled = spooled && rc;
    return put_waiting(p, "waiting", db_spool_count_read, rc, why);
}

static enum err_code collector_send(struct push *p, struct err *why)
{
    struct http_auth auth = p->to.auth;
    /* A token from the environment is for the gateway: do not send it to the collector. */
    if (!args_has(p->a, "--bearer-file")) auth.bearer = NULL;
    const struct trace_target target = { args_text(p->a, "--otlp", NULL), &auth, deadline(p, true) };
    struct trace_sent sent;
    struct err later = { 0 };
    int late = 0;
    enum err_code rc = trace_push(p->db, p->run, &target, &sent, why);
    if (!rc && trace_flush(p->db, &target, &late, &later))
        log_write(&p->g->log, LOG_WARN, "an earlier run could not be sent: %s", later.message);
    if (*sent.warning) log_write(&p->g->log, LOG_WARN, "the collector reports: %s", sent.warning);
    json_put_str(p->row, "otlp", target.base ? target.base : "OTEL_EXPORTER_OTLP_ENDPOINT");
    json_put_int(p->row, "spans", sent.spans);
    json_put_int(p->row, "points", sent.points);
    json_put_int(p->row, "traces_sent_late", late);
    rc = put_waiting(p, "traces_waiting", db_trace_due_count_read, rc, why);
    if (sent.kept)
        fprintf(stderr, "qdyno push: run %" PRId64 " is stored; the next push to this collector sends it\n",
                p->run);
    return rc;
}

/* ---------------------------------------------------------------- a text file */

static const struct column TEXTFILE_COLUMNS[] = {
    COL("textfile", "textfile"),
    COL("experiments", "experiments", .kind = COLUMN_INT),
    COL("bytes", "bytes", .kind = COLUMN_BYTES),
};

DOCUMENT(TEXTFILE, "qdyno.textfile/1", TEXTFILE_COLUMNS, .record = true);

/* Flags that contradict --textfile, and file names that the node exporter does not read. */
static enum err_code push_textfile_check(const struct cli_args *a, const char *path, struct err *why)
{
    if (args_has(a, "--url") || args_has(a, "--otlp"))
        return err_set(why, ERR_USAGE, "--textfile excludes --url and --otlp: use two commands");
    if (a->n)
        return err_set(why, ERR_USAGE,
                       "--textfile writes the latest outcome of every experiment: leave the run number out");
    return textfile_name_check(path, why);
}

static int push_textfile(const struct cli_global *g, const struct cli_args *a, const char *path)
{
    struct err why = { 0 };
    struct exposition e = { 0 };
    const struct family_sink to = exposition_sink(&e);
    struct db *d = NULL;
    int n = 0, status;
    struct outcome *latest = calloc(OUTCOMES_MAX, sizeof *latest);
    enum err_code rc = latest ? push_textfile_check(a, path, &why)
                              : err_set(&why, ERR_NOMEM, "out of memory");
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = outcomes_latest(latest, &n, d, &why);
    if (!rc && !n) rc = err_set(&why, ERR_USAGE, "there is no finished A/B to report: run `qdyno ab` first");
    if (!rc) outcomes_export(latest, n, OUTCOME_ALONE, &to);
    if (!rc && e.bad.code) rc = err_set(&why, e.bad.code, "%s", e.bad.message);
    if (!rc) rc = textfile_replace(path, &e.text, &why);
    if (rc) {
        status = cli_fail(a, &why);
    } else {
        struct table t;
        json_t *row = table_record(&t, &DOCUMENT_TEXTFILE);
        json_put_str(row, "textfile", path);
        json_put_int(row, "experiments", n);
        json_put_int(row, "bytes", (int64_t)e.text.len);
        status = cli_finish(g, a, &t, EXIT_DONE);
    }
    exposition_free(&e);
    db_close(d);
    free(latest);
    return status;
}

/* --retry without --url is for all gateways, without credentials. */
static int push_stored(const struct cli_global *g, const struct cli_args *a)
{
    struct target to;
    struct err why = { 0 };
    const int64_t begun_ns = clock_ns();
    enum err_code rc = target_read(&to, a, "--url", "QDYNO_PUSH", &why);
    const double limit_s = to.auth.timeout_s > 0 ? to.auth.timeout_s : DEFAULT_TIMEOUT_S;
    const struct push_target retry = { .url = to.url,
                                       .auth = to.auth,
                                       .deadline_ns = begun_ns + (int64_t)(limit_s * 1e9) };
    const int status = rc ? cli_fail(a, &why) : push_queue(g, a, &retry);
    target_done(&to);
    return status;
}

int command_push(const struct cli_global *g, const struct cli_args *a)
{
    const char *file = args_text(a, "--textfile", NULL);
    if (push_queue_asked(a)) return push_stored(g, a);
    if (file) return push_textfile(g, a, file);
    struct push p = { .g = g, .a = a, .begun_ns = clock_ns() };
    struct err why = { 0 }, second = { 0 };
    struct table t;
    p.row = table_record(&t, &DOCUMENT_PUSH);
    t.skip_absent = true; /* rows of the receiver that was not asked for */
    t.skip_zero = true;   /* stored outcomes, of which there are mostly none */
    enum err_code rc = choose_receivers(&p, &why);
    if (!rc) rc = db_open(&p.db, g->db_path, &why);
    if (!rc) rc = choose_run(&p.run, p.db, a, &why);
    json_put_int(p.row, "run", p.run);
    const bool chosen = !rc;
    if (chosen && p.to_gateway) rc = gateway_send(&p, &why);
    /* A failure of one receiver does not stop the other. */
    if (chosen && p.to_collector && collector_send(&p, rc ? &second : &why) && !rc) rc = why.code;
    if (second.code) log_write(&g->log, LOG_ERROR, "%s", second.message);
    const int status = rc ? cli_fail(a, &why) : cli_print(g, a, &t, EXIT_DONE);
    if (p.spooled) /* after the cause */
        cli_note(
            g,
            "qdyno push: the outcome is stored; the next push sends it (`qdyno push --list` shows what waits)");
    table_done(&t);
    db_close(p.db);
    target_done(&p.to);
    return status;
}
