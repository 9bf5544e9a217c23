/* tui/views/quality.c - the quality lost by each method of storing the model, and the sensitivity of its
 * tensors. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/stats/stats.h"
#include "base/cut/cut.h"

/* ---------------------------------------------------------------- methods */

/* A lower bound near 0 would stretch the logarithmic axis, so it does not count. */
static struct axis loss_axis(const struct quality_results *q)
{
    struct axis a = { .lo = NAN, .hi = NAN, .log = true, .show = figure_nats };
    for (int i = 0; i < q->count; i++) {
        const struct interval *k = &q->line[i].kld;
        if (k->estimate > 0 && !q->line[i].foreign) {
            a.lo = fmin(a.lo, k->lower > k->estimate / 100 ? k->lower : k->estimate);
            a.hi = fmax(a.hi, isfinite(k->upper) ? k->upper : k->estimate);
        }
    }
    return axis_around(a);
}

/* The loss and its interval on an axis that all rows share; or the other text that it was measured on. */
static void draw_loss(struct pen *p, int columns, int item, unsigned extra, const void *ctx)
{
    const struct quality_results *q = ctx;
    const struct interval *k = &q->line[item].kld;
    if (q->line[item].foreign) {
        pen_put(p, extra ? ROLE_TEXT | extra : (unsigned)ROLE_WARN, " on ");
        pen_field(p, columns - 5, extra ? ROLE_TEXT | extra : (unsigned)ROLE_WARN, q->line[item].text);
        return;
    }
    const struct axis axis = loss_axis(q);
    const unsigned style = extra ? ROLE_TEXT | extra : (unsigned)ROLE_GRAPH;
    const struct rect at = { p->area.x + p->x + 1, p->area.y + p->y, columns - 2, 1 };
    const struct plane plane = {
        .g = p->g, .at = at, .x = axis, .y = { .lo = 0, .hi = 1, .show = figure_nats }
    };
    if (isfinite(k->upper))
        plane_whisker_x(&plane, k->lower > axis.lo ? k->lower : axis.lo, k->upper, 0.5, style);
    if (k->estimate > 0) plane_mark(&plane, k->estimate, 0.5, 0x25cf, style | STYLE_BOLD);
}

/* All figures of the selected row, with intervals. */
static void method_details(struct grid *g, struct rect in, const struct quality_results *all, int item)
{
    const struct quality_result *q = &all->line[item];
    char text[600];
    if (all->trouble[0]) {
        grid_wrap(g, in, ROLE_WARN, all->trouble);
        return;
    }
    if (q->foreign) {
        snprintf(
            text, sizeof text,
            "measured on %s (run %lld), but this model's text is %s: not ranked. The command below measures "
            "it on %s; \" changes the text.",
            q->text, (long long)q->run_id, all->text, all->text);
        grid_wrap_cut(g, in, ROLE_WARN, text, "Enter: all");
        return;
    }
    if (!q->windows) {
        snprintf(
            text, sizeof text,
            "%s against %s, %s (search, run %lld): KL divergence %.3g nats [%.3g, %.3g]. A search keeps no "
            "other figures of quality; the command below measures them.",
            q->config, q->reference, q->text, (long long)q->run_id, q->kld.estimate, q->kld.lower,
            q->kld.upper);
        grid_wrap(g, in, ROLE_DIM, text);
        return;
    }
    snprintf(
        text, sizeof text,
        "%s against %s, %lld window%s of %d tokens of %s (run %lld): KL divergence %.3g nats [%.3g, %.3g], "
        "same top-1 %.1f%% [%.1f, %.1f], perplexity %.4g [%.4g, %.4g], ratio %.4f [%.4f, %.4f]",
        q->config, q->reference, (long long)q->windows, str_plural(q->windows), q->ctx, q->text,
        (long long)q->run_id, q->kld.estimate, q->kld.lower, q->kld.upper, 100 * q->top1.estimate,
        100 * q->top1.lower, 100 * q->top1.upper, q->ppl.estimate, q->ppl.lower, q->ppl.upper,
        q->ppl_ratio.estimate, q->ppl_ratio.lower, q->ppl_ratio.upper);
    grid_wrap_cut(g, in, ROLE_DIM, text, "Enter: all");
}

static void draw_no_methods(struct grid *g, struct rect in, const struct snapshot *s)
{
    const struct quality_results *q = &s->quality;
    grid_wrap(
        g, in,
        q->error[0]     ? ROLE_ERROR
        : q->trouble[0] ? ROLE_WARN
                        : ROLE_DIM,
        q->error[0]         ? q->error
        : !s->model_path[0] ? "no model is loaded: m chooses one"
        : q->trouble[0]     ? q->trouble
        : q->count < 0      ? "reading the database"
        : s->proposals.quantized
            ? "n/a: no quality was measured on this model. Its file is quantized already, so the command below "
              "compares the predictions of another configuration with those of this file, token by token, on a "
              "text. ! runs it; an A/B (b) can measure it, too."
            : "n/a: the quality of no method was measured on this model. The command "
              "below compares the predictions of a method with those of the original "
              "model, token by token, on a text. ! runs it; an A/B (b) can measure it, too.");
}

static void box_methods(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const struct quality_results *q = &s->quality;
    const int height = area.h - 2, wide = area.w >= 112;
    const char *slash = strrchr(s->written, '/'), *note = snapshot_caution(s);
    char title[60 + TEXT_LABEL], offer[160];
    snprintf(title, sizeof title, "Quality of methods: %s%s%s",
             wide ? "KL divergence of predictions" : "KL divergence", q->text[0] ? " on " : "", q->text);
    if (!note && q->bundled && q->count > 0 && !model_is_bundled(s->model_path))
        note = wide ? "\" sets a text that is more like yours" : "\" sets another text";
    if (ui_written_unmeasured(s)) {
        text_cutf(offer, sizeof offer, "! measures %s, written last", slash ? slash + 1 : s->written);
        note = offer;
    }
    const struct list_view list = { .g = g,
                                    .box = area,
                                    .title = title,
                                    .note = note,
                                    .s = s,
                                    .u = u,
                                    .below = height >= 7 ? MIN(height / 3, wide ? 3 : 4) : 0,
                                    .draw = draw_loss,
                                    .ctx = q };
    struct rect in = list_draw(&list);
    const int chosen = list_selected(u, s);
    if (q->count <= 0)
        draw_no_methods(g, in, s);
    else if (chosen >= 0 && in.h)
        method_details(g, in, q, chosen);
}

/* ---------------------------------------------------------------- tensors */

static const char *tensor_kind_name(const void *data, int row)
{
    return ((const struct sensitivity_map *)data)->kind[row];
}

static double kind_loss(const void *data, int row, int column)
{
    return (double)((const struct sensitivity_map *)data)->loss[row][column];
}

static bool kind_estimated(const void *data, int row, int column)
{
    return ((const struct sensitivity_map *)data)->estimated[row][column];
}

/* Column 0 holds tensors outside of layers. */
static int layer_number(const void *data, int column)
{
    (void)data;
    return column - 1;
}

/* The map of the selected method's format, else the first one. */
static const struct sensitivity_map *selected_map(const struct snapshot *s, const struct ui *u)
{
    const struct sensitivity *all = &s->sensitivity;
    const int row = list_selected(u, s);
    for (int i = 0; row >= 0 && i < all->maps; i++)
        if (!strcmp(s->quality.line[row].format, all->map[i].format)) return &all->map[i];
    return &all->map[0];
}

static void box_layers(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const struct sensitivity_map *m = selected_map(s, u);
    char title[160] = "Sensitivity by tensor and layer", note[160] = "";
    if (s->sensitivity.maps) {
        int row = -1, column = -1;
        char name[64];
        snprintf(title, sizeof title, "Sensitivity: KL divergence with a single tensor in %s", m->format);
        if (sensitivity_most(m, &row, &column))
            snprintf(note, sizeof note, "most: %s, %.2e nats",
                     sensitivity_name(m, row, column, name, sizeof name), (double)m->loss[row][column]);
        struct rect in = grid_box(g, area, title, note[0] ? note : NULL);
        const int basis = in.h > m->kinds + 2 ? 1 : 0;
        struct pen p = pen_at(g, in, 0, in.h - 1);
        if (basis) {
            pen_put(&p, ROLE_DIM,
                    "~: estimated from another format; first column: outside of layers; measured on ");
            pen_field(&p, pen_left(&p), ROLE_DIM, s->sensitivity.basis);
        }
        chart_heat(g, rect_rows(in, 0, in.h - basis),
                   &(struct heat){ m->kinds, m->layers, tensor_kind_name, kind_loss, m, row, column,
                                   layer_number, "layer", kind_estimated });
        return;
    }
    struct rect in = grid_box(g, area, title, NULL);
    grid_wrap(
        g, in, ROLE_DIM,
        s->proposals.quantized
            ? "n/a: this file is quantized already. The sensitivity of tensors is measured on a file of the model "
              "in f32, f16 or bf16 (qdyno recipe)."
        : s->sensitivity.missing[0] ? s->sensitivity.missing
                                    : "n/a");
}

void view_quality(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[QUALITY_PANES];
    layout_quality(body, box);
    panes_place(g, box, QUALITY_PANES, body, u);
    box_methods(g, box[QUALITY_METHODS], s, u);
    box_layers(g, box[QUALITY_LAYERS], s, u);
}
