/* profile.c - the report of `qdyno bench --profile`, from its stored document: one flame graph for each
 * phase, as a plot with a lane for the phase, one for its layers and one for their operators, and the same as
 * a table. Unlike other flame graphs, layers are in their order, and a box is as wide as its time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tui/report/content.h"

enum { LANE_PHASE, LANE_LAYER, LANE_OPERATOR, LANES, COLOURED = 7, NAMES_MAX = 64 };
static const double LABEL_LEAST = 0.075, /* of the width: narrower boxes have no label */
    LAYER_GAP = 0.003;                   /* between layers, which have one colour */

struct named_time {
    const char *name;
    double seconds;
};
/* Rows of the document that belong to one phase. */
struct flame {
    struct report *r;
    const json_t *layers; /* its rows of layers; also of the other phase */
    const char *phase;
    double pass_s;
    struct named_time operators[NAMES_MAX]; /* the one with the most time first */
    int n;
};

static bool is_of(const struct flame *f, const json_t *row)
{
    return !strcmp(json_get_str(row, "phase", ""), f->phase);
}

static double pass_s(const json_t *row)
{
    const double s = json_get_num(row, "pass_s", NAN);
    return s > 0 ? s : 0;
}

static int by_time(const void *a, const void *b)
{
    const double x = ((const struct named_time *)a)->seconds, y = ((const struct named_time *)b)->seconds;
    return (x < y) - (x > y);
}

static void flame_rank(struct flame *f)
{
    size_t i;
    const json_t *row;
    json_array_foreach(f->layers, i, row)
    {
        const char *name = json_get_str(row, "operator", "");
        int at = 0;
        if (!is_of(f, row)) continue;
        while (at < f->n && strcmp(f->operators[at].name, name)) at++;
        if (at == NAMES_MAX) continue;
        if (at == f->n) f->operators[f->n++].name = name;
        f->operators[at].seconds += pass_s(row);
        f->pass_s += pass_s(row);
    }
    qsort(f->operators, (size_t)f->n, sizeof f->operators[0], by_time);
}

/* Colours are for the operators with the most time; the others share one. */
static int hue_of(const struct flame *f, const char *name)
{
    for (int i = 0; i < MIN(f->n, COLOURED); i++)
        if (!strcmp(f->operators[i].name, name)) return i;
    return HUE_MUTED;
}

static void box_set(struct flame *f, struct plot_point *at, int lane, double from, double seconds,
                    const char *name, const char *place)
{
    at->x_low = from * 1e6;
    at->x_high = (from + seconds - (lane == LANE_LAYER ? LAYER_GAP * f->pass_s : 0)) * 1e6;
    at->y_low = lane - 0.46;
    at->y_high = lane + 0.46;
    at->hint = content_printf(f->r, "%s%s: %.1f us, %.1f %%", name, place, 1e6 * seconds,
                              100 * seconds / f->pass_s);
    if (seconds >= LABEL_LEAST * f->pass_s) at->label = name;
}

/* The boxes of all operators with one hue. */
static void draw_operators(struct flame *f, struct plot *p, int hue)
{
    size_t i;
    const json_t *row;
    int n = 0, k = 0;
    double from = 0;
    json_array_foreach(f->layers, i, row)
        n += is_of(f, row) && hue_of(f, json_get_str(row, "operator", "")) == hue;
    struct plot_layer *l = n ? plot_layer(p, &f->r->arena, MARK_BOX, hue, n) : NULL;
    if (!l) return;
    json_array_foreach(f->layers, i, row)
    {
        const char *name = json_get_str(row, "operator", "");
        const int layer = (int)json_get_int(row, "layer", -1);
        if (!is_of(f, row)) continue;
        if (hue_of(f, name) == hue && k < n)
            box_set(f, &l->point[k++], LANE_OPERATOR, from, pass_s(row), content_plain(f->r, name),
                    layer < 0 ? "" : content_printf(f->r, " of layer %d", layer));
        from += pass_s(row);
    }
    if (hue == HUE_MUTED)
        l->name = "other operators";
    else
        l->name = content_plain(f->r, f->operators[hue].name);
}

/* The phase, and its layers: runs of rows with the same number. */
static void draw_stacks(struct flame *f, struct plot *p, int layers)
{
    struct plot_layer *l = plot_layer(p, &f->r->arena, MARK_BOX, HUE_MUTED, layers + 1);
    size_t i;
    const json_t *row;
    double at = 0;
    if (!l) return;
    l->soft = true;
    box_set(f, &l->point[0], LANE_PHASE, 0, f->pass_s, content_plain(f->r, f->phase), "");
    double *from = calloc((size_t)layers + 1, 2 * sizeof *from);
    if (!from) {
        f->r->failed = true;
        return;
    }
    double *seconds = from + layers + 1;
    json_array_foreach(f->layers, i, row)
    {
        const int layer = (int)json_get_int(row, "layer", -1);
        if (!is_of(f, row)) continue;
        if (layer >= 0 && layer < layers) {
            if (!(seconds[layer] > 0)) from[layer] = at;
            seconds[layer] += pass_s(row);
        }
        at += pass_s(row);
    }
    for (int k = 0; k < layers; k++)
        box_set(f, &l->point[1 + k], LANE_LAYER, from[k], seconds[k], content_printf(f->r, "layer %d", k),
                "");
    free(from);
}

static void flame_add(struct report *r, const json_t *layers, const char *phase)
{
    static const char *const LANE_NAMES[LANES] = { "pass", "layers", "operators" };
    struct figure_plots figure = {
        .title = content_printf(r, "Flame graph of %s", phase),
        .reading =
            "The width of a box is its mean time in a pass; point at one for its name and its share. Layers "
            "follow in their order, before them what belongs to no layer."
    };
    struct flame f = { .r = r, .layers = layers, .phase = phase };
    int count = 0;
    size_t i;
    const json_t *row;
    flame_rank(&f);
    if (!(f.pass_s > 0)) return;
    json_array_foreach(layers, i, row) count = MAX(count, 1 + (int)json_get_int(row, "layer", -1));
    struct plot *p = figure_plot(&figure, r);
    if (!p) return;
    p->height = 150;
    p->x = (struct plot_axis){
        .title = "microseconds of a pass", .unit = UNIT_NUMBER, .low = 0, .high = 1e6 * f.pass_s
    };
    p->y = (struct plot_axis){
        .unit = UNIT_COUNT, .low = -0.5, .high = LANES - 0.5, .names = LANE_NAMES, .n_names = LANES
    };
    for (int hue = 0; hue < MIN(f.n, COLOURED); hue++) draw_operators(&f, p, hue);
    draw_operators(&f, p, HUE_MUTED);
    draw_stacks(&f, p, count);
    content_figure(r, &figure);
    r->card_plot = p;
}

static const char *number_text(struct report *r, const json_t *row, const char *key, double scale, int digits)
{
    const double v = json_get_num(row, key, NAN);
    return isnan(v) ? "" : content_printf(r, "%.*f", digits, v * scale);
}

static void table_add(struct report *r, const json_t *rows)
{
    static const char *const HEAD[] = { "phase",      "operator", "calls",      "us/pass", "time %",
                                        "bytes/pass", "Mop/pass", "of limit %", "limit" };
    struct content_table *t = content_table(r, "All layers together", COUNT_OF(HEAD));
    size_t i;
    const json_t *row;
    for (size_t k = 0; k < COUNT_OF(HEAD); k++) {
        t->head[k] = HEAD[k];
        t->right[k] = k >= 2 && k < COUNT_OF(HEAD) - 1;
    }
    json_array_foreach(rows, i, row)
    {
        struct content_row *to = content_row(r, t);
        to->cell[0] = content_plain(r, json_get_str(row, "phase", ""));
        to->cell[1] = content_plain(r, json_get_str(row, "operator", ""));
        to->cell[2] = number_text(r, row, "calls", 1, 0);
        to->cell[3] = number_text(r, row, "pass_s", 1e6, 1);
        to->cell[4] = number_text(r, row, "time_ratio", 100, 1);
        to->cell[5] = number_text(r, row, "pass_bytes", 1, 0);
        to->cell[6] = number_text(r, row, "pass_ops", 1e-6, 3);
        to->cell[7] = number_text(r, row, "limit_ratio", 100, 1);
        to->cell[8] = content_plain(r, json_get_str(row, "limit", ""));
    }
}

static void facts_add(struct report *r, const json_t *extra, int64_t run_id)
{
    static const char *const TEXTS[] = { "model", "config", "workload", "machine" };
    struct content_table *t = content_table(r, NULL, 2);
    const char *phase;
    json_t *o;
    content_fact(r, t, "run", content_printf(r, "%lld", (long long)run_id));
    for (size_t i = 0; i < COUNT_OF(TEXTS); i++)
        content_fact(r, t, TEXTS[i], content_plain(r, json_get_str(extra, TEXTS[i], "")));
    json_object_foreach(json_object_get(extra, "phases"), phase, o)
        content_fact(r, t, content_printf(r, "%s", content_plain(r, phase)),
                     content_printf(r, "%lld passes; with a profile it took %+.2f %% longer than without",
                                    (long long)json_get_int(o, "passes", 0),
                                    100 * json_get_num(o, "overhead_ratio", NAN)));
}

enum err_code report_profile(struct report **out, const json_t *document, int64_t run_id, struct err *why)
{
    const json_t *extra = json_object_get(document, "extra"), *layers = json_object_get(extra, "layers");
    *out = NULL;
    if (!json_array_size(layers))
        return err_set(why, ERR_USAGE, "run %lld has no profile: it did not finish", (long long)run_id);
    struct report *r = calloc(1, sizeof *r);
    if (!r) return err_set(why, ERR_NOMEM, "out of memory for the report");
    r->title = content_printf(r, "Where the time of `%s` goes",
                              content_plain(r, json_get_str(extra, "model", "")));
    r->subtitle = content_printf(r, "config %s, workload %s",
                                 content_plain(r, json_get_str(extra, "config", "")),
                                 content_plain(r, json_get_str(extra, "workload", "")));
    r->mark = "";
    r->footer =
        "The time of an operator is the wall time of the thread that runs the pass. Bytes are those that it "
        "must read: weights, keys and values once each; the limit is the machine's, as `qdyno detect` "
        "measured it.";
    r->verdict = VERDICT_INCONCLUSIVE;
    content_add(r, CONTENT_SECTION, "What ran");
    facts_add(r, extra, run_id);
    content_add(r, CONTENT_SECTION, "Flame graphs");
    flame_add(r, layers, "prefill");
    flame_add(r, layers, "decode");
    content_add(r, CONTENT_SECTION, "Operators");
    table_add(r, json_object_get(document, "rows"));
    if (r->failed) {
        report_free(r);
        return err_set(why, ERR_NOMEM, "out of memory for the report of run %lld", (long long)run_id);
    }
    *out = r;
    return ERR_OK;
}
