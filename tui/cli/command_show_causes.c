/* qdyno show RUN --causes: the cells at which the level of a run's main metric changed, and which metric
 * moved first. */
#include <inttypes.h>
#include <math.h>

#include "advisor/history/history.h"
#include "tui/cli/command_show_causes.h"
#include "tui/cli/documents.h"

static const struct column COLUMNS[] = {
    { .name = "cell", .title = "cell", .kind = COLUMN_INT },
    { .name = "metric", .title = "metric" },
    { .name = "effect_ratio", .title = "after/before", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "p", .kind = COLUMN_NUM },
    { .name = "priority", .title = "priority" },
    { .name = "first", .title = "moved first" },
    { .name = "moved" },
};

DOCUMENT(CAUSES, "qdyno.causes/1", COLUMNS, .members = "cells run.*");

json_t *moved_to_json(const struct moved *m, int n, int at)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_t *o = json_object();
        json_put_str(o, "metric", METRICS[m[i].metric].name);
        json_put_str(o, "unit", METRICS[m[i].metric].unit);
        json_put_int(o, "earlier", at - m[i].at);
        json_put_num(o, "before", m[i].before);
        json_put_num(o, "after", m[i].after);
        json_put_num(o, "p", m[i].p);
        json_array_append_new(list, o);
    }
    return list;
}

static void table_add_change(struct table *t, const struct run_causes *c, const struct run_change *x)
{
    const int better = metric_sign(&METRICS[c->metric]);
    const char *name = METRICS[c->metric].name;
    const bool fell = better * x->change.effect < 0;
    struct str text = { 0 };
    json_t *row = table_row(t);
    moved_sentence(&text, x->moved, x->n_moved, x->change.at, name, fell, "cell");
    json_put_int(row, "cell", x->cell_id);
    json_put_str(row, "metric", name);
    json_put_num(row, "effect_ratio", exp(better * x->change.effect));
    json_put_num(row, "p", x->change.p);
    json_put_str(row, "priority", priority_name(x->priority));
    json_put_str(row, "first", str_text(&text));
    json_put(row, "moved", moved_to_json(x->moved, x->n_moved, x->change.at));
    str_free(&text);
}

enum err_code show_causes(struct table *t, struct db *d, int64_t id, struct err *why)
{
    struct run_causes c;
    table_init(t, &DOCUMENT_CAUSES);
    enum err_code rc = run_causes_read(&c, d, id, 0.01, why);
    if (rc) return rc;
    if (c.metric == METRIC_COUNT) {
        rc = err_set(why, ERR_USAGE, "run %" PRId64 " has no results in which something could have changed",
                     id);
    } else {
        for (int i = 0; i < c.changes; i++) table_add_change(t, &c, &c.change[i]);
        json_put_int(t->extra, "cells", c.cells);
        if (!c.changes)
            table_note(t, "%s kept its level in all %d cell%s%s", METRICS[c.metric].name, c.cells,
                       str_plural(c.cells), c.cells < HISTORY_LEAST ? ", but so few show no change" : "");
        else
            table_note(
                t,
                "each arm's level is removed; a change needs 3 cells on each side, 1 %% and p < 0.001; what moves first "
                "need not be the cause");
    }
    run_causes_free(&c);
    return rc;
}
