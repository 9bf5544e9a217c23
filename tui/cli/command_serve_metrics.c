/* qdyno serve-metrics: a page for Prometheus to scrape, until SIGTERM or Ctrl-C. */
#include <string.h>

#include "tui/cli/rows.h"

const struct cli_flag FLAGS_SERVE_METRICS[] = {
    { "--port", NULL, "N", "default 9470; 0: any free one", FLAG_INT, 0, 65535 },
    { "--listen", NULL, "ADDRESS",
      "default 127.0.0.1: this machine only. Another address of it, 0.0.0.0 or :: for all of them, lets in "
      "whoever reaches it: no password is asked, nothing is encrypted",
      FLAG_TEXT },
    { NULL },
};

enum { DEFAULT_PORT = 9470, WAIT_NS = 50 * 1000 * 1000 };

static const struct column COLUMNS[] = {
    { "url", "serving", COLUMN_TEXT },
    { "listen", "on address", COLUMN_TEXT },
    { "port", "port", COLUMN_INT },
    { "database", "database", COLUMN_TEXT },
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

int command_serve_metrics(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct machine m;
    struct sampler_thread *sampler = NULL;
    struct scrape *page = NULL;
    struct page_server *server = NULL;
    const char *listen = args_text(a, "--listen", "127.0.0.1");
    int port = 0, status = EXIT_DONE;
    enum err_code rc = machine_detect(&m, "", &why);
    if (!rc) rc = sampler_start(&sampler, "", 100, &why);
    if (!rc) rc = scrape_open(&page, g->db_path, sampler, &m, &why);
    if (!rc) {
        const struct page_spec spec = { .listen = listen,
                                        .port = (int)args_int(a, "--port", DEFAULT_PORT),
                                        .metrics = scrape_page,
                                        .ctx = page };
        rc = page_server_start(&server, &spec, &port, &why);
    }
    if (rc) status = cli_fail(a, &why);
    if (!rc) status = announce(g, a, listen, port, scrape_absence(page));
    while (!rc && status == EXIT_DONE && !cli_is_interrupted(g)) clock_sleep_ns(WAIT_NS);
    page_server_stop(server);
    scrape_close(page);
    sampler_stop(sampler);
    return status;
}
