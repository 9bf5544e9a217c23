/* tui/views/load.c - what is asked of the engine and how it copes: requests, their latencies, the KV cache,
 * and the run against what the machine could do. */
#include "tui/views/views.h"
#include "tui/figures.h"

#include <math.h>

static void line_row(struct grid *g, struct rect in, int row, const struct load_line *l, bool chosen)
{
    const unsigned style = !l ? (unsigned)ROLE_DIM : ROLE_TEXT | (chosen ? STYLE_REVERSE : 0u);
    char n[32] = "n";
    if (l) snprintf(n, sizeof n, "%lld", (long long)l->requests);
    struct pen p = pen_at(g, in, 0, row);
    pen_field(&p, MAX(in.w - 5 - 8 - 8 - 8, 6), style, l ? l->workload : "workload");
    pen_field_right(&p, 5, style, n);
    pen_field_right(&p, 8, style, l ? figure_seconds(l->ttft.p50).text : "TTFT");
    pen_field_right(&p, 8, style, l ? figure_seconds(l->itl.p50).text : "ITL");
    pen_field_right(&p, 8, style, l ? figure_number(l->decode_tok_s).text : "tok/s");
}

static void box_requests(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const struct measured_load *l = &s->load;
    struct rect in = grid_box(g, area, "Requests", NULL);
    if (l->lines <= 0) {
        grid_wrap(g, in, l->error[0] ? ROLE_ERROR : ROLE_DIM,
                  l->error[0]    ? l->error
                  : l->lines < 0 ? "reading what was measured"
                                 : "n/a: no request of this model was measured yet: b, or the command below");
        return;
    }
    line_row(g, in, 0, NULL, false);
    const int rows = in.h - 1, chosen = u->selected[VIEW_LOAD];
    const int top = MAX(MIN(chosen - rows / 2, l->lines - rows), 0);
    for (int i = top; i < l->lines && i - top < rows; i++) {
        line_row(g, in, 1 + i - top, &l->line[i], i == chosen);
        grid_hit(g, rect_rows(in, 1 + i - top, 1), HIT_ROW, i);
    }
}

static void row_latency(struct grid *g, struct rect in, int row, const char *name, const struct latency *l)
{
    struct pen p = pen_at(g, in, 0, row);
    pen_field(&p, 5, ROLE_DIM, name);
    if (!l->n) {
        pen_put(&p, ROLE_DIM, "n/a");
        return;
    }
    pen_value(&p, "p50 ", figure_seconds(l->p50).text);
    pen_value(&p, " p95 ", figure_seconds(l->p95).text);
    pen_value(&p, " p99 ", figure_seconds(l->p99).text);
    pen_printf(&p, ROLE_DIM, " of %d", l->n);
}

static void box_latency(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    struct rect in = grid_box(g, area, "Latency", NULL);
    if (s->load.lines <= 0) return;
    const struct load_line *l = &s->load.line[MAX(0, MIN(u->selected[VIEW_LOAD], s->load.lines - 1))];
    row_latency(g, in, 0, "TTFT", &l->ttft);
    row_latency(g, in, 1, "ITL", &l->itl);
}

void view_load(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[LOAD_BOXES];
    layout_load(body, box);
    box_requests(g, box[LOAD_REQUESTS], s, u);
    box_latency(g, box[LOAD_LATENCY], s, u);
    grid_box(g, box[LOAD_BLOCKS], "KV cache", NULL);
    grid_box(g, box[LOAD_ROOFLINE], "Against the machine's limits", NULL);
}
