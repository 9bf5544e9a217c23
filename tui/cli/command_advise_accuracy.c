/* command_advise_accuracy.c - see command_advise.h. Each prediction used only what was known
 * before its measurement, and the speed of the machine at that time. */
#include "tui/cli/command_advise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/predict/predict.h"
#include "db/db.h"
#include "telemetry/machine/machine.h"
#include "tui/cli/documents.h"

#define ROW(member) MEMBER(struct residual_row, member)
static const struct column COLUMNS[] = {
    COL("run", "run", .kind = COLUMN_INT),
    COL("model", "model", MEMBER_AS(struct residual_row, model, STRING)),
    COL("config", "config", MEMBER_AS(struct residual_row, config, STRING)),
    COL("workload", "workload", MEMBER_AS(struct residual_row, workload, STRING)),
    COL("metric", "metric", ROW(metric)),
    COL("predicted", "predicted", .digits = 4, ROW(predicted)),
    COL("low", "from", .digits = 4, ROW(low)),
    COL("high", "to", .digits = 4, ROW(high)),
    COL("measured", "measured", .digits = 4, ROW(measured)),
    COL("error_ratio", "error %", .kind = COLUMN_NUM, .scale = 100, .digits = 1),
    COL("in_interval", "in interval", .kind = COLUMN_BOOL),
    COL("memory_ratio", "memory %", .scale = 100, ROW(memory_ratio)),
    COL("core_ratio", "cores %", .scale = 100, ROW(core_ratio)),
    KEY("foretold", ROW(foretold)),
    KEY("untaught", ROW(untaught)),
    KEY("basis", MEMBER_AS(struct residual_row, basis, STRING)),
    KEY("unix_ms", ROW(unix_ms)),
};

DOCUMENT(ACCURACY, "qdyno.accuracy/1", COLUMNS,
         .members = "machine accuracy[].metric accuracy[].predictions accuracy[].within_10_ratio "
                    "accuracy[].within_20_ratio accuracy[].in_interval_ratio "
                    "accuracy[].median_error_ratio accuracy[].bias_ratio");

static void table_add_residual(struct table *t, const struct residual_row *r)
{
    json_t *row = table_row(t);
    if (r->run_id) json_put_int(row, "run", r->run_id);
    document_put(&DOCUMENT_ACCURACY, row, struct residual_row, r);
    json_put_num(row, "error_ratio", r->predicted / r->measured - 1);
    json_put_bool(row, "in_interval", r->measured >= r->low && r->measured <= r->high);
}

static void table_add_summary(struct table *t, const struct residual_row *rows, int n)
{
    struct accuracy all[ACCURACY_MAX];
    const int count = accuracy_of(all, rows, n);
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        const struct accuracy *x = &all[i];
        json_t *object = list_row(list);
        json_put_str(object, "metric", x->metric);
        json_put_int(object, "predictions", x->n);
        json_put_num(object, "within_10_ratio", (double)x->within_10 / x->n);
        json_put_num(object, "within_20_ratio", (double)x->within_20 / x->n);
        json_put_num(object, "in_interval_ratio", (double)x->in_interval / x->n);
        json_put_num(object, "median_error_ratio", x->median_error);
        json_put_num(object, "bias_ratio", exp(x->bias));
        table_note(
            t,
            "%-16s %3d predictions: %3.0f %% within 10 %%, %3.0f %% within 20 %%, %3.0f %% in their interval; "
            "median error %.1f %%; measured is on average %.3f times predicted",
            x->metric, x->n, 100.0 * x->within_10 / x->n, 100.0 * x->within_20 / x->n,
            100.0 * x->in_interval / x->n, 100 * x->median_error, exp(x->bias));
    }
    json_put(t->extra, "accuracy", list);
}

int accuracy_show(const struct cli_global *g, const struct cli_args *a)
{
    enum { MOST = 100000 };
    struct err why = { 0 };
    struct machine m;
    struct db *d = NULL;
    struct residual_row *rows = NULL;
    struct table t;
    int n = 0;
    enum err_code rc = machine_detect(&m, "", &why);
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc && args_has(a, "--forget")) rc = db_residual_clear(d, m.id, &why);
    if (!rc) rc = db_residual_list(d, m.id, NULL, MOST, &rows, &n, &why);
    db_close(d);
    if (rc) return cli_fail(a, &why);
    table_init(&t, &DOCUMENT_ACCURACY);
    json_put_str(t.extra, "machine", m.id);
    const int shown = MIN(n, (int)args_int(a, "--top", args_has(a, "--top") ? 0 : n > 40 ? 40 : n));
    for (int i = 0; i < shown; i++) table_add_residual(&t, &rows[i]);
    table_add_summary(&t, rows, n);
    if (!n)
        table_note(
            &t,
            "no prediction was followed by a measurement yet: run `qdyno detect --kernels`, then any `qdyno bench`");
    if (n) table_note(&t, "runs of which most blocks or repetitions were disturbed are not counted");
    if (shown < n) table_note(&t, "the newest %d of %d; --top N shows more", shown, n);
    int status = cli_finish(g, a, &t, EXIT_DONE);
    free(rows);
    return status;
}
