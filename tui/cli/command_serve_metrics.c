/* qdyno serve-metrics: a page for Prometheus to scrape, and the same values to an OpenTelemetry collector,
 * until SIGTERM or Ctrl-C. */
#include <string.h>

#include "tui/cli/commands.h"
#include "advisor/outcome/outcome.h"
#include "tui/cli/lib/sampling.h"

/* clang-format off */
const struct cli_flag FLAGS_SERVE_METRICS[] = {
    { .name = "--port", .value = "N", .kind = FLAG_INT, .max = 65535,
      .help = "default 9470; 0: any free one" },
    { .name = "--listen", .value = "ADDRESS",
      .help = "default 127.0.0.1: this machine only. Another address of it, 0.0.0.0 or :: for all of them, "
              "lets in whoever reaches it: no password is asked, nothing is encrypted" },
    FLAG_PERIOD_ROW,
    { .name = "--otlp", .value = "URL",
      .help = "send the same values to this OpenTelemetry collector, too, e.g. http://localhost:4318; keys "
              "and certificates from OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE ..." },
    { .name = "--otlp-every", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "from one sending to the next; default 15s" },
    { .name = NULL },
};
/* clang-format on */

enum { DEFAULT_PORT = 9470, WAIT_NS = 50 * 1000 * 1000 };
static const double SEND_EVERY_S = 15;

static const struct column COLUMNS[] = {
    { .name = "url", .title = "serving" },
    { .name = "listen", .title = "on address" },
    { .name = "port", .title = "port", .kind = COLUMN_INT },
    { .name = "database", .title = "database" },
};

/* What a person, and a script that asked for port 0, has to know, before the first scrape. */
static int announce(const struct cli_global *g, const struct cli_args *a, const char *listen, int port,
                    const char *database)
{
    struct table t;
    struct str url = { 0 };
    const bool v6 = strchr(listen, ':') != NULL;
    str_printf(&url, "http://%s%s%s:%d/metrics", v6 ? "[" : "", listen, v6 ? "]" : "", port);
    table_init(&t, "qdyno.serve-metrics/1", COLUMNS, COUNT_OF(COLUMNS));
    t.record = true;
    json_t *row = table_row(&t);
    json_put_str(row, "url", str_text(&url));
    json_put_str(row, "listen", listen);
    json_put_int(row, "port", port);
    json_put_str(row, "database", *database ? database : "up");
    const int status = cli_print(g, a, &t, EXIT_DONE);
    table_done(&t);
    str_free(&url);
    fflush(stdout);
    return status;
}

/* ---------------------------------------------------------------- the collector */

struct sender {
    struct otlp_target target; /* url NULL: nobody is told */
    struct scrape *page;       /* its own: the server's belongs to the server's thread */
    const struct machine *machine;
    const struct log *log;
    double every_s;
    int64_t due_ns;
    bool failing; /* said once, until it works again */
};

static void tell_page(void *ctx, const struct family_sink *to)
{
    scrape_tell(ctx, to);
}

static enum err_code sender_open(struct sender *s, const struct cli_global *g, const struct cli_args *a,
                                 struct sampler_thread *sampler, const struct machine *m, struct err *why)
{
    const char *url = args_text(a, "--otlp", NULL);
    *s = (struct sender){ .machine = m,
                          .log = &g->log,
                          .every_s = args_num(a, "--otlp-every", SEND_EVERY_S) };
    if (!url && args_has(a, "--otlp-every"))
        return err_set(why, ERR_USAGE, "--otlp-every without --otlp URL");
    if (!url) return ERR_OK;
    if (s->every_s < 1) return err_set(why, ERR_USAGE, "--otlp-every: want a second or more");
    enum err_code rc = otlp_target_find(&s->target, OTLP_METRICS, url, NULL, why);
    return rc ? rc : scrape_open(&s->page, g->db_path, sampler, m, why);
}

/* What a collector cannot take now is not kept: the next values are newer. */
static void sender_look(struct sender *s)
{
    const int64_t now = clock_ns();
    if (!s->target.url || now < s->due_ns) return;
    struct err why = { 0 };
    struct otlp_answer answer = { 0 };
    const struct otlp_live live = { s->machine, tell_page, s->page };
    const bool failed = otlp_metrics_send(&s->target, &live, &answer, &why);
    if (failed && !s->failing) log_write(s->log, LOG_WARN, "not sent: %s", why.message);
    if (!failed && s->failing) log_write(s->log, LOG_WARN, "%s takes it again", s->target.url);
    if (*answer.message) log_write(s->log, LOG_WARN, "the collector says: %s", answer.message);
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
    if (!rc) rc = sampler_start_periods(&sampler, "", 100, &periods, &why);
    if (!rc) rc = sender_open(&sender, g, a, sampler, &m, &why);
    if (!rc) rc = scrape_open(&page, g->db_path, sampler, &m, &why);
    if (!rc) {
        /* now: from the start of the server on the page is its thread's */
        snprintf(database, sizeof database, "%s", scrape_absence(page));
        const struct page_spec spec = { .listen = listen,
                                        .port = (int)args_int(a, "--port", DEFAULT_PORT),
                                        .metrics = scrape_page,
                                        .ctx = page };
        rc = page_server_start(&server, &spec, &port, &why);
    }
    if (rc) status = cli_fail(a, &why);
    if (!rc) status = announce(g, a, listen, port, database);
    /* rates have no value before their second reading: not at once */
    sender.due_ns = clock_ns() + (int64_t)(MIN(sender.every_s, 2) * 1e9);
    while (!rc && status == EXIT_DONE && !cli_is_interrupted(g)) {
        sender_look(&sender);
        clock_sleep_ns(WAIT_NS);
    }
    page_server_stop(server);
    sender_close(&sender);
    scrape_close(page);
    sampler_stop(sampler);
    return status;
}
