/* qdyno detect --ranks: how long exchanges between several processes take. */
#include <math.h>
#include <string.h>

#include "advisor/predict/predict.h"
#include "engine/parallel/parallel.h"
#include "tui/cli/commands.h"

static const struct column COLUMNS[] = {
    COL("operation", "exchange"),
    COL("bytes", "size", .kind = COLUMN_BYTES),
    COL("seconds", "time (us)", .kind = COLUMN_NUM, .scale = 1e6, .digits = 2),
    COL("bytes_s", "rate (GB/s)", .kind = COLUMN_NUM, .scale = 1e-9, .digits = 3),
};

DOCUMENT(LINKS, "qdyno.links/1", COLUMNS, .members = "ranks hosts read_bytes_s[]");

static enum err_code measure(const struct cli_args *a, struct rank_links *out, struct err *why)
{
    const struct ranks_options o = { .count = (int)args_int(a, "--ranks", 2),
                                     .hosts = args_text(a, "--hosts", NULL) };
    struct ranks *r;
    enum err_code rc = ranks_start(&r, &o, why);
    if (rc) return rc;
    rc = ranks_send(r, RANK_OP_MEASURE, NULL, 0, why);
    if (!rc) rc = ranks_receive_into(r, &(struct rank_bytes){ out, sizeof *out }, 1, why);
    ranks_stop(r);
    return rc;
}

int detect_ranks(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct rank_links links;
    struct table t;
    struct machine m;
    const char *hosts = args_text(a, "--hosts", "");
    enum err_code rc = measure(a, &links, &why);
    if (!rc) rc = machine_detect(&m, "", &why);
    if (!rc) rc = links_save(&links, m.id, (int)args_int(a, "--ranks", 2), hosts, &why);
    if (rc) return cli_fail(a, &why);
    table_init(&t, &DOCUMENT_LINKS);
    json_put_int(t.extra, "ranks", args_int(a, "--ranks", 2));
    json_put_str(t.extra, "hosts", args_text(a, "--hosts", NULL));
    json_t *rates = json_array();
    struct str text = { 0 };
    for (int i = 0; i < args_int(a, "--ranks", 2); i++) {
        json_array_append_new(rates, json_num(links.read_bytes_s[i]));
        str_printf(&text, "%s%.1f", i ? ", " : "", links.read_bytes_s[i] * 1e-9);
    }
    json_put(t.extra, "read_bytes_s", rates);
    table_note(&t, "the processes read memory at %s GB/s, all at the same time", str_text(&text));
    str_free(&text);
    for (int k = 0; k < LINK_KINDS; k++)
        for (int s = 0; s < LINK_SIZES; s++) {
            json_t *row = table_row(&t);
            json_put_str(row, "operation", LINK_NAMES[k]);
            json_put_int(row, "bytes", LINK_BYTES[s]);
            json_put_num(row, "seconds", links.seconds[k][s]);
            json_put_num(row, "bytes_s", (double)LINK_BYTES[s] / links.seconds[k][s]);
        }
    return cli_finish(g, a, &t, EXIT_DONE);
}
