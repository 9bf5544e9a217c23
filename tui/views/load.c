/* tui/views/load.c - how the engine handles requests: their latencies, the KV cache, and the run on the
 * roofline of the machine. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "base/cut/cut.h"

static const struct stored_load *load_selected(const struct snapshot *s, const struct ui *u)
{
    const int item = list_selected(u, s);
    return item >= 0 ? &s->load.line[item] : NULL;
}

/* ---------------------------------------------------------------- requests */

/* What the columns are. A load prints other figures where it is measured: those of its steady state, and
 * tokens per second of all requests together. */
static const char *requests_note(const struct load_results *l, int columns)
{
    bool loads = false;
    for (int i = 0; i < l->lines; i++) loads |= l->line[i].is_load;
    if (columns < 58) return loads ? "tok/s of a load: of one request" : "medians; tok/s: with stalls";
    return loads ? columns < 90 ? "medians of all requests; tok/s: of one"
                                : "TTFT, ITL: medians of all requests; tok/s of a load: of one request"
                 : "TTFT, ITL: medians; tok/s: with stalls";
}

static void box_requests(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const struct load_results *l = &s->load;
    const struct list_view list = {
        .g = g, .box = area, .title = "Requests by workload", .note = requests_note(l, area.w), .s = s, .u = u
    };
    struct rect in = list_draw(&list);
    if (l->lines <= 0)
        grid_wrap(g, in, l->error[0] ? ROLE_ERROR : ROLE_DIM,
                  l->error[0]         ? l->error
                  : !s->model_path[0] ? "no model is loaded: m chooses one"
                  : l->lines < 0      ? "reading the database"
                                 : "n/a: no requests to this model were measured yet. b starts an A/B; the "
                                   "command below measures one workload");
}

/* ---------------------------------------------------------------- latencies */

/* Two histograms, side by side if the box is wide enough. */
static void box_latency(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const struct stored_load *l = load_selected(s, u);
    char title[sizeof l->workload + 64] = "Latency";
    if (l)
        text_cutf(title, sizeof title, "Latency of %s, %d sequence%s", l->workload, MAX(l->sequences, 1),
                  l->sequences > 1 ? "s" : "");
    struct rect in = grid_box(g, area, title, NULL), part[2];
    if (!l) {
        grid_wrap(g, in, ROLE_DIM, "n/a: no requests were measured");
        return;
    }
    const bool beside = in.w >= 76;
    for (int i = 0; i < 2; i++)
        part[i] = beside ? (struct rect){ in.x + i * (in.w / 2 + 1), in.y, in.w / 2 - 1, in.h }
                         : rect_rows(in, i * (in.h / 2), i ? in.h - in.h / 2 : in.h / 2);
    if (!l->ttft.n || !l->itl.n) { /* one that is missing takes a row, not half of the box */
        const int first = l->ttft.n ? MAX(in.h - 1, 0) : 1;
        part[0] = rect_rows(in, 0, first);
        part[1] = rect_rows(in, first, MAX(in.h - first, 0));
    }
    static const char *const NAMES[] = { "TTFT", "ITL" };
    const struct latency_histogram *of[] = { &l->ttft, &l->itl };
    for (int i = 0; i < 2; i++) chart_latency(g, part[i], NAMES[i], of[i], i ? ROLE_GRAPH : ROLE_METER);
}

/* ---------------------------------------------------------------- roofline */

/* A point of the roofline: arithmetic intensity (operations per byte) and rate (operations per second). */
struct roof_point {
    double intensity, ops_s;
};

/* Counts matrix products only. A decode step reads the weights once for all sequences, and the KV cache of
 * each sequence once: intensity = flops per step / (weight bytes + sequences x cached tokens x KV bytes per
 * token). */
static struct roof_point decode_point(const struct experiment_arm *a, const struct workload *w)
{
    const double sequences = MAX(w->sequences, 1), held = w->depth + w->prompt + w->gen / 2.0;
    const double flops = a->plan.flops_per_token * sequences,
                 bytes = (double)a->plan.decode_read_bytes +
                         sequences * held * (double)a->plan.kv_bytes_per_token;
    return (struct roof_point){ flops / bytes, a->plan.flops_per_token * a->value[METRIC_DECODE_RATE] };
}

static struct roof_point prefill_point(const struct experiment_arm *a, const struct workload *w)
{
    const double rows = MIN((double)a->plan.batch, (double)w->prompt * MAX(w->sequences, 1));
    return (struct roof_point){ rows * a->plan.flops_per_token / (double)a->plan.decode_read_bytes,
                                a->plan.flops_per_token * a->value[METRIC_PREFILL_RATE] };
}

static struct figure show_ops(double v)
{
    struct figure f;
    const char *unit = v >= 1e12 ? "T" : v >= 1e9 ? "G" : "M";
    snprintf(f.text, sizeof f.text, "%.3g%s", v / (v >= 1e12 ? 1e12 : v >= 1e9 ? 1e9 : 1e6), unit);
    return f;
}

static struct figure show_intensity(double v)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.2g", v);
    if (v >= 99.5) snprintf(f.text, sizeof f.text, "%.0f", v);
    return f;
}

/* Rows of the highest arithmetic limit and of the best f32 limit; -1 for none. */
static void choose_roofs(const struct machine_ceilings *c, int *high, int *low)
{
    *high = *low = -1;
    for (int i = 0; i < c->count; i++) {
        const double ops = c->row[i].ops_s_all;
        if (!isfinite(ops)) continue;
        if (*high < 0 || ops > c->row[*high].ops_s_all) *high = i;
        const bool f32 = !strcmp(c->row[i].name, "f32_fma");
        if (f32 && (*low < 0 || ops > c->row[*low].ops_s_all)) *low = i;
    }
    if (*low == *high) *low = -1;
}

static void draw_roof(const struct plane *p, double bytes_s, double ops_s, const char *name, unsigned style)
{
    const double knee = ops_s / bytes_s;
    plane_line(p, (const double[]){ p->x.lo, p->x.lo * bytes_s }, (const double[]){ knee, ops_s }, style);
    plane_line(p, (const double[]){ knee, ops_s }, (const double[]){ p->x.hi, ops_s }, style);
    const int row = (int)lround((1 - log(ops_s / p->y.lo) / log(p->y.hi / p->y.lo)) * (p->at.h - 1));
    const int columns = text_columns(name);
    if (columns > p->at.w / 2 || row + 1 >= p->at.h) return;
    struct pen pen = pen_at(p->g, p->at, p->at.w - columns, row + 1);
    pen_put(&pen, ROLE_DIM, name);
}

struct roof_mark {
    struct roof_point at;
    uint32_t code;
    unsigned style;
};

/* 'A' and 'B' decode, 'a' and 'b' prefill. Returns the count. */
static int roof_marks(const struct experiment_state *x, struct roof_mark *out)
{
    int n = 0;
    for (int arm = 0; arm < experiment_arms(&x->spec); arm++) {
        const struct experiment_arm *a = &x->arm[arm];
        const unsigned style = (unsigned)(arm ? ROLE_ARM_B : ROLE_ARM_A) | STYLE_BOLD;
        if (a->plan.total <= 0 || !(a->plan.flops_per_token > 0)) continue;
        if (isfinite(a->value[METRIC_DECODE_RATE]))
            out[n++] = (struct roof_mark){ decode_point(a, experiment_workload(&x->spec, arm)),
                                           'A' + (uint32_t)arm, style };
        if (isfinite(a->value[METRIC_PREFILL_RATE]))
            out[n++] = (struct roof_mark){ prefill_point(a, experiment_workload(&x->spec, arm)),
                                           'a' + (uint32_t)arm, style };
    }
    return n;
}

static const char *roof_missing(const struct snapshot *s)
{
    if (!s->ceilings_known)
        return "n/a: the limits of this machine are not measured: a measures them (about 8 s)";
    if (!isfinite(s->ceilings.read_bytes_s_all))
        return "n/a: the memory bandwidth of this machine is unknown";
    return "";
}

static void draw_roofline(struct grid *g, struct rect in, const struct snapshot *s)
{
    const struct machine_ceilings *c = &s->ceilings;
    struct roof_mark mark[2 * EXPERIMENT_ARMS];
    const int n = s->experiment_known ? roof_marks(&s->experiment, mark) : 0;
    int high, low;
    choose_roofs(c, &high, &low);
    if (high < 0) {
        grid_wrap(g, in, ROLE_DIM, "n/a: no arithmetic limit is known");
        return;
    }
    const double peak = c->row[high].ops_s_all, bytes_s = c->read_bytes_s_all;
    struct axis x = { 0.5, peak / bytes_s * 3, true, "op/byte", show_intensity },
                y = { bytes_s * 0.5, peak * 1.5, true, "op/s", show_ops };
    for (int i = 0; i < n; i++) {
        x.hi = fmax(x.hi, mark[i].at.intensity * 1.3);
        y.lo = fmin(y.lo, mark[i].at.ops_s / 2);
        y.hi = fmax(y.hi, mark[i].at.ops_s * 1.5); /* with weights in a cache a point lies above the roof */
    }
    char name[64];
    const int legend = in.h >= 8 ? 1 : 0;
    const struct plane p = plane_open(g, rect_rows(in, 0, in.h - legend), x, y);
    if (p.at.w <= 0) return;
    snprintf(name, sizeof name, "%s %s", c->row[high].name, c->row[high].isa);
    draw_roof(&p, bytes_s, peak, name, ROLE_TEXT);
    if (low >= 0) {
        snprintf(name, sizeof name, "%s %s", c->row[low].name, c->row[low].isa);
        draw_roof(&p, bytes_s, c->row[low].ops_s_all, name, ROLE_DIM);
    }
    for (int i = 0; i < n; i++)
        plane_mark(&p, mark[i].at.intensity, mark[i].at.ops_s, mark[i].code, mark[i].style);
    if (!legend) return;
    struct pen pen = pen_at(g, in, 0, in.h - 1);
    pen_field(
        &pen, in.w, ROLE_DIM,
        n ? in.w >= 90
                ? "A B decode, a b prefill: operations of matrix products, bytes of weights and KV cache"
                : "A B decode  a b prefill"
          : "the arms of an experiment are marked here");
}

static void box_roofline(struct grid *g, struct rect area, const struct snapshot *s)
{
    char title[128] = "Roofline";
    if (s->ceilings_known)
        snprintf(title, sizeof title, "Roofline: memory %s, %d thread%s",
                 figure_per_second(s->ceilings.read_bytes_s_all).text, s->ceilings.threads_all,
                 str_plural(s->ceilings.threads_all));
    struct rect in = grid_box(g, area, title, NULL);
    if (*roof_missing(s))
        grid_wrap(g, in, ROLE_DIM, roof_missing(s));
    else
        draw_roofline(g, in, s);
}

void view_load(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[LOAD_PANES];
    layout_load(body, box);
    panes_place(g, box, LOAD_PANES, body, u);
    if (snapshot_live(s)) {
        box_traffic(g, box[LOAD_REQUESTS], s);
        box_live_latency(g, box[LOAD_LATENCY], s);
        box_blocks(g, box[LOAD_BLOCKS], s);
        box_steps(g, box[LOAD_COMPUTE], s);
        return;
    }
    box_requests(g, box[LOAD_REQUESTS], s, u);
    box_latency(g, box[LOAD_LATENCY], s, u);
    box_blocks(g, box[LOAD_BLOCKS], s);
    box_roofline(g, box[LOAD_COMPUTE], s);
}
