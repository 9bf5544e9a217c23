/* qdyno serve-metrics: serves a page for Prometheus and sends the same values to an OpenTelemetry
 * collector, until SIGTERM or Ctrl-C. */
#include <string.h>

#include "advisor/outcome/outcome.h"
#include "telemetry/export/export.h"
#include "telemetry/otlp/otlp.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/sampling.h"

/* clang-format off */
const struct cli_flag FLAGS_SERVE_METRICS[] = {
    { .name = "--port", .value = "N", .kind = FLAG_INT, .max = 65535,
      .help = "TCP port; default 9470; 0: any free port" },
    { .name = "--listen", .value = "ADDRESS",
      .help = "address to listen on; default 127.0.0.1, this machine only. 0.0.0.0 or :: opens all "
              "addresses to everyone who reaches them, without password and encryption" },
    FLAG_PERIOD_ROW,
    { .name = "--otlp", .value = "URL",
      .help = "also send the values to this OpenTelemetry collector, e.g. http://localhost:4318; keys and "
              "certificates come from OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE ..." },
    { .name = "--otlp-every", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "time between two sendings; default 15s" },
    { .name = NULL },
};
/* clang-format on */

enum { DEFAULT_PORT = 9470, WAIT_NS = 50 * 1000 * 1000 };
static const double SEND_EVERY_S = 15;

static const struct column COLUMNS[] = {
    COL("url", "serving"),
    COL("listen", "on address"),
    COL("port", "port", .kind = COLUMN_INT),
    COL("database", "database"),
};

DOCUMENT(SERVE_METRICS, "qdyno.serve-metrics/1", COLUMNS, .record = true);

/* Prints the address, which a script that asked for port 0 needs. */
static int address_print(const struct cli_global *g, const struct cli_args *a, const char *listen, int port,
                         const char *database)
{
    struct table t;
    struct str url = { 0 };
    const bool v6 = strchr(listen, ':') != NULL;
    str_printf(&url, "http://%s%s%s:%d/metrics", v6 ? "[" : "", listen, v6 ? "]" : "", port);
    json_t *row = table_record(&t, &DOCUMENT_SERVE_METRICS);
    json_put_str(row, "url", str_text(&url));
    json_put_str(row, "listen", listen);
    json_put_int(row, "port", port);
    json_put_str(row, "database", *database ? database : "up");
    const int status = cli_print_now(g, a, &t, EXIT_DONE);
    table_done(&t);
    str_free(&url);
    return status;
}

/* ---------------------------------------------------------------- the collector */

struct sender {
    struct otlp_target target; /* url NULL: no collector */
    struct scrape *page; /* separate from the page of the server, which belongs to the server's thread */
    const struct machine *machine;
    const struct log *log;
    double every_s;
    int64_t due_ns;
    bool failing; /* a failure is logged once, then again only after a success */
};

static void page_write(void *ctx, const struct family_sink *to)
{
    scrape_export(ctx, to);
}

static enum err_code sender_open(struct sender *s, const struct cli_global *g, const struct cli_args *a,
                                 struct sampler_thread *sampler, const struct machine *m, struct err *why)
{
    const char *url = args_text(a, "--otlp", NULL);
    *s = (struct sender){ .machine = m,
                          .log = &g->log,
                          .every_s = args_num(a, "--otlp-every", SEND_EVERY_S) };
    if (!url && args_has(a, "--otlp-every")) return err_set(why, ERR_USAGE, "--otlp-every needs --otlp URL");
    if (!url) return ERR_OK;
    if (s->every_s < 1) return err_set(why, ERR_USAGE, "--otlp-every: expected at least 1s");
    enum err_code rc = otlp_target_find(&s->target, OTLP_METRICS, url, NULL, why);
    return rc ? rc : scrape_open(&s->page, g->db_path, sampler, m, why);
}

/* Sends the values if they are due. Values that cannot be sent are dropped: the next ones are newer. */
static void sender_poll(struct sender *s)
{
    const int64_t now = clock_ns();
    if (!s->target.url || now < s->due_ns) return;
    struct err why = { 0 };
    struct otlp_answer answer = { 0 };
    const struct otlp_live live = { s->machine, page_write, s->page };
    const bool failed = otlp_metrics_send(&s->target, &live, &answer, &why);
    if (failed && !s->failing) log_write(s->log, LOG_WARN, "the collector was not reached: %s", why.message);
    if (!failed && s->failing) log_write(s->log, LOG_WARN, "%s accepts values again", s->target.url);
    if (*answer.message) log_write(s->log, LOG_WARN, "the collector reports: %s", answer.message);
    s->failing = failed;
    s->due_ns = now + (int64_t)(s->every_s * 1e9);
}

static void sender_close(struct sender *s)
{
    scrape_close(s->page);
    otlp_target_done(&s->target);
}

int command_serve_metrics(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct machine m;
    struct sampler_thread *sampler = NULL;
    struct sampler_periods periods;
    struct scrape *page = NULL;
    struct page_server *server = NULL;
    struct sender sender = { .page = NULL };
    const char *listen = args_text(a, "--listen", "127.0.0.1");
    char database[512] = "";
    int port = 0, status = EXIT_DONE;
    enum err_code rc = machine_detect(&m, "", &why);
    if (!rc) rc = cli_periods(&periods, a, &why);
    if (!rc) rc = sampler_start(&sampler, "", 100, &periods, &why);
    if (!rc) rc = sender_open(&sender, g, a, sampler, &m, &why);
    if (!rc) rc = scrape_open(&page, g->db_path, sampler, &m, &why);
    if (!rc) {
        /* read before the server starts, because its thread owns the page from then on */
        snprintf(database, sizeof database, "%s", scrape_absence(page));
        const struct page_spec spec = { .listen = listen,
                                        .port = (int)args_int(a, "--port", DEFAULT_PORT),
                                        .metrics = scrape_page,
                                        .ctx = page };
        rc = page_server_start(&server, &spec, &port, &why);
    }
    if (rc) status = cli_fail(a, &why);
    if (!rc) status = address_print(g, a, listen, port, database);
    /* wait for the second reading, before which rates have no value */
    sender.due_ns = clock_ns() + (int64_t)(MIN(sender.every_s, 2) * 1e9);
    while (!rc && status == EXIT_DONE && !cli_is_interrupted(g)) {
        sender_poll(&sender);
        clock_sleep_ns(WAIT_NS);
    }
    page_server_stop(server);
    sender_close(&sender);
    scrape_close(page);
    sampler_stop(sampler);
    return status;
}
