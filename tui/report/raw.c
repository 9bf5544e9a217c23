/* raw.c - the load of the machine during the run, and the raw rows: every stored cell as a CSV file that the
 * page contains. */

#include <math.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "tui/report/content.h"

/* ---------------------------------------------------------------- load */

struct load {
    double sum, most;
    int n;
};

static struct load load_of(const struct report_source *s, enum metric_id id)
{
    struct load l = { 0, NAN, 0 };
    for (int i = 0; i < s->cells; i++)
        for (int k = 0; k < s->cell[i].samples; k++) {
            const struct report_sample *at = &s->cell[i].sample[k];
            if (at->metric != (int)id || !isfinite(at->value)) continue;
            l.sum += at->value;
            l.most = fmax(l.most, at->value);
            l.n++;
        }
    return l;
}

void section_load(struct report *r, const struct report_source *s)
{
    static const struct {
        enum metric_id id;
        const char *name;
    } LOADS[] = {
        { METRIC_OTHERS_BUSY, "other programs, share of the processors" },
        { METRIC_CPU_STEAL, "time taken by a hypervisor" },
        { METRIC_CPU_BUSY, "processors busy in all" },
    };
    static const char *const HEADS[] = { "load during the cells", "mean", "highest" };
    struct content_table *t = NULL;
    for (size_t i = 0; i < COUNT_OF(LOADS); i++) {
        const struct load l = load_of(s, LOADS[i].id);
        if (!l.n) continue;
        if (!t) {
            t = content_table(r, "How busy the machine was", 3);
            for (int k = 0; k < 3; k++) t->head[k] = HEADS[k];
            t->right[1] = t->right[2] = true;
        }
        struct content_row *row = content_row(r, t);
        row->cell[0] = LOADS[i].name;
        row->cell[1] = content_printf(r, "%.1f %%", 100 * l.sum / l.n);
        row->cell[2] = content_printf(r, "%.1f %%", 100 * l.most);
    }
    if (!t && s->cells)
        content_add(r, CONTENT_TEXT,
                    "The load of the machine during the run is unknown: no sensor was read.");
}

/* ---------------------------------------------------------------- raw rows */

static void put_number(struct str *out, double v)
{
    if (isfinite(v))
        str_printf(out, ",%.10g", v);
    else
        str_append(out, ",");
}

static void put_text(struct str *out, const char *text)
{
    str_append(out, ",");
    sink_append(out, SINK_CSV, text, strlen(text));
}

/* Is the metric known in any cell? */
static bool is_known(const struct report_source *s, int id)
{
    for (int i = 0; i < s->cells; i++)
        if (isfinite(s->cell[i].value[id])) return true;
    return false;
}

void section_raw(struct report *r, const struct report_source *s)
{
    struct str out = { 0 };
    content_add(r, CONTENT_SECTION, "Raw rows");
    if (!s->cells) {
        content_add(r, CONTENT_TEXT, "The run has no stored cell.");
        return;
    }
    content_add(r, CONTENT_TEXT,
                content_printf(r,
                               "Every stored cell with its measurements, as CSV, in raw units; "
                               "`qdyno show %lld -o json` prints the results from the database.",
                               (long long)s->state.run_id));
    str_append(&out, "arm,config,phase,block,slot,discarded,reason,start_s,seconds");
    for (int m = METRIC_SENSOR_COUNT; m < METRIC_COUNT; m++)
        if (is_known(s, m)) put_text(&out, METRICS[m].name);
    str_append(&out, "\n");
    for (int i = 0; i < s->cells; i++) {
        const struct report_cell *c = &s->cell[i];
        const bool has_arm = c->arm >= 0; /* the canary has none */
        str_append(&out, has_arm ? report_arm_name(c->arm) : "");
        put_text(&out, has_arm ? s->state.arm[c->arm].line : "");
        put_text(&out, c->phase);
        str_printf(&out, ",%d,%d,%d", c->block, c->slot, c->discarded);
        put_text(&out, c->reason);
        put_number(&out, c->start_s);
        put_number(&out, c->seconds);
        for (int m = METRIC_SENSOR_COUNT; m < METRIC_COUNT; m++)
            if (is_known(s, m)) put_number(&out, c->value[m]);
        str_append(&out, "\n");
    }
    struct content *c = content_add(r, CONTENT_DOWNLOAD,
                                    content_printf(r, "run-%lld-cells.csv", (long long)s->state.run_id));
    c->data = content_printf(r, "%s", str_text(&out));
    str_free(&out);
}
