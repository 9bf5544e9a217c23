/* tui/views/load_live.c - a load or a server while it runs: its requests, latencies beside their limits, and
 * the rows of its last steps. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "base/cut/cut.h"

/* ---------------------------------------------------------------- requests */

static struct figure show_count(double v)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.0f", v);
    return f;
}

/* The last value of a series; NAN: none. */
static double newest(const struct series *s)
{
    return s->n ? (double)s->v[s->n - 1] : (double)NAN;
}

static void row_arrivals(struct grid *g, struct rect in, const struct snapshot *s, const struct live *l)
{
    struct pen p = pen_at(g, in, 0, 0);
    pen_printf(&p, ROLE_TEXT | STYLE_BOLD, "%lld", (long long)l->arrived);
    pen_printf(&p, ROLE_TEXT, " arrived");
    if (isfinite(newest(&s->traffic.arrivals)))
        pen_printf(&p, ROLE_DIM, "  %s/s", figure_number(newest(&s->traffic.arrivals)).text);
    pen_printf(&p, ROLE_TEXT, "  %lld done", (long long)l->done);
    if (l->not_done) pen_printf(&p, ROLE_WARN, "  %lld not", (long long)l->not_done);
    if (s->load_source == LOAD_OF_SERVER && s->server.overloaded)
        pen_printf(&p, ROLE_WARN, "  %lld refused (429)", (long long)s->server.overloaded);
}

static void row_now(struct grid *g, struct rect in, const struct snapshot *s, const struct live *l)
{
    struct pen p = pen_at(g, in, 0, 1);
    pen_printf(&p, l->waiting ? ROLE_WARN : ROLE_TEXT, "%d waiting", l->waiting);
    pen_printf(&p, ROLE_TEXT, "  %d running", l->running);
    if (isfinite(newest(&s->traffic.tokens)))
        pen_printf(&p, ROLE_TEXT, "  %s tok/s", figure_number(newest(&s->traffic.tokens)).text);
    if (l->prompt_tokens)
        pen_printf(&p, ROLE_DIM, "  %s of prompts cached",
                   figure_percent((double)l->cached_tokens / (double)l->prompt_tokens).text);
}

static void row_goodput(struct grid *g, struct rect in, const struct live *l)
{
    struct pen p = pen_at(g, in, 0, 2);
    const int64_t ended = l->met + l->missed;
    if (!l->limits) {
        pen_put(&p, ROLE_DIM, "goodput n/a: no limits (slo)");
        return;
    }
    pen_put(&p, ROLE_TEXT, "goodput ");
    if (ended)
        pen_printf(&p, (l->missed ? ROLE_WARN : ROLE_TEXT) | STYLE_BOLD, "%s",
                   figure_percent((double)l->met / (double)ended).text);
    else
        pen_put(&p, ROLE_DIM, "n/a");
    pen_printf(&p, ROLE_DIM, " of %lld:", (long long)ended);
    for (int i = 0; i < l->limits; i++)
        pen_printf(&p, ROLE_DIM, " %s<%s", LOAD_FIGURE_NAMES[l->limit[i].figure],
                   figure_seconds(l->limit[i].seconds).text);
}

static void row_stalls(struct grid *g, struct rect in, const struct live *l)
{
    struct pen p = pen_at(g, in, 0, 3);
    pen_printf(&p, l->stalls ? ROLE_WARN : ROLE_TEXT, "%lld stalls", (long long)l->stalls);
    pen_printf(&p, ROLE_DIM, " above %s", figure_seconds(l->stall_s).text);
    if (l->gap.n) pen_printf(&p, ROLE_TEXT, "  longest %s", figure_seconds(l->gap.most_s).text);
    if (l->preemptions) pen_printf(&p, ROLE_WARN, "  %lld preemptions", (long long)l->preemptions);
}

static const char *source_title(const struct snapshot *s, const struct live *l, char *buf, size_t size)
{
    const int arm = MAX(s->experiment.running_arm, 0);
    char speed[48] = "";
    if (s->load_source == LOAD_OF_SERVER) {
        snprintf(buf, size, "Requests"); /* the title of the screen names the server, its model and state */
        return buf;
    }
    if (l->clients)
        snprintf(speed, sizeof speed, ": %d clients", l->clients);
    else if (l->speed != 1)
        snprintf(speed, sizeof speed, ": %s times as fast", figure_number(l->speed).text);
    const char *url = snapshot_load_is_remote(s) ? config_text(&s->experiment.spec.config[arm], KNOB_URL)
                                                 : "";
    text_cutf(buf, size, "Load of %c%s%s%s", 'A' + arm, speed, *url ? " to " : "", url);
    return buf;
}

void box_traffic(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct live *l = snapshot_live(s);
    const struct load_traffic *t = &s->traffic;
    char title[200];
    struct rect in = grid_box(g, area, source_title(s, l, title, sizeof title), NULL);
    if (s->load_source == LOAD_OF_SERVER && (s->server.error[0] || !s->server.known)) {
        grid_wrap(g, in, s->server.error[0] ? ROLE_ERROR : ROLE_DIM,
                  s->server.error[0] ? s->server.error : "reading the server");
        return;
    }
    row_arrivals(g, in, s, l);
    row_now(g, in, s, l);
    row_goodput(g, in, l);
    row_stalls(g, in, l);
    char settings[LIVE_SETTINGS];
    snprintf(settings, sizeof settings, "%s", l->settings);
    for (char *c = settings; *c; c++)
        if (*c == ',') *c = ' '; /* lines break there */
    const int wrapped = grid_wrap(g, rect_rows(in, 4, MIN(2, in.h - 4)), ROLE_DIM, settings);
    const double step = SNAPSHOT_STEP_MS * 1e-3;
    const struct axis arrivals = { .lo = 0, .hi = NAN, .name = "new/s", .show = figure_number },
                      waiting = { .lo = 0, .hi = NAN, .name = "waiting", .show = show_count },
                      running = { .lo = 0, .hi = NAN, .name = "running", .show = show_count };
    draw_timelines(g, in, 4 + wrapped,
                   (const struct timeline[]){ { t->arrivals.v, t->arrivals.n, step, arrivals, ROLE_GRAPH },
                                              { t->waiting.v, t->waiting.n, step, waiting, ROLE_WARN },
                                              { t->running.v, t->running.n, step, running, ROLE_METER } },
                   3);
}

/* ---------------------------------------------------------------- latencies */

void box_live_latency(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct live *l = snapshot_live(s);
    struct rect in = grid_box(g, area, "Latency so far", NULL), part[2];
    const bool beside = in.w >= 76;
    for (int i = 0; i < 2; i++) {
        struct latency_histogram h;
        const struct load_limit *limit = live_limit(l, !i);
        part[i] = beside ? (struct rect){ in.x + i * (in.w / 2 + 1), in.y, in.w / 2 - 1, in.h }
                         : rect_rows(in, i * (in.h / 2), i ? in.h - in.h / 2 : in.h / 2);
        latency_histogram_of_live(&h, i ? &l->gap : &l->first, limit ? limit->seconds : 0);
        if (h.n)
            chart_latency(g, part[i], i ? "ITL" : "TTFT", &h, i ? ROLE_GRAPH : ROLE_METER);
        else
            grid_wrap(g, part[i], ROLE_DIM,
                      i ? "ITL: no token came after another yet" : "TTFT: no token yet");
    }
}

/* ---------------------------------------------------------------- steps */

static struct figure show_steps_ago(double v)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.0f", v);
    return f;
}

/* The values of the last steps, newest last, over an axis that counts steps. */
static void chart_steps(struct grid *g, struct rect area, const float *v, int n, struct axis y,
                        unsigned style)
{
    const int wide = MAX(area.w - PLANE_LEFT, 1), per_cell = g->glyphs == GLYPHS_BRAILLE ? 2 : 1;
    y.hi = y.lo + 1e-3;
    for (int i = MAX(n - wide * per_cell, 0); i < n; i++) y.hi = fmax(y.hi, (double)v[i]);
    const struct axis x = { .lo = -wide * per_cell, .hi = 0, .name = "steps", .show = show_steps_ago };
    const struct plane p = plane_open(g, area, x, y);
    if (p.at.w > 0) grid_graph(g, p.at, &(struct graph){ v, n, y.lo, y.hi, style });
}

void box_steps(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct live *l = snapshot_live(s);
    float rows[LIVE_STEPS], ms[LIVE_STEPS];
    double requests = 0, prompts = 0, all = 0;
    int n = 0;
    for (int64_t k = MAX(l->steps - LIVE_STEPS, 0); k < l->steps; k++, n++) {
        const struct live_step *p = &l->step[k % LIVE_STEPS];
        rows[n] = (float)p->rows;
        ms[n] = (float)(p->seconds * 1e3);
        requests += p->requests;
        prompts += p->prompt_rows;
        all += p->rows;
    }
    struct rect in = grid_box(g, area, "Batch by step", NULL);
    if (!n) {
        grid_wrap(g, in, ROLE_DIM,
                  !snapshot_load_is_remote(s)
                      ? "no step was computed yet"
                      : "n/a: this load is sent over HTTP, and a server does not tell its clients its steps");
        return;
    }
    struct pen p = pen_at(g, in, 0, 0);
    pen_printf(&p, ROLE_TEXT, "mean of %d step%s: ", n, str_plural(n));
    pen_printf(&p, ROLE_TEXT, "%s requests, ", figure_number(requests / n).text);
    pen_printf(&p, ROLE_TEXT, "%s tokens, ", figure_number(all / n).text);
    const bool room = pen_left(&p) >= 24;
    pen_printf(&p, ROLE_DIM, room ? "%s of them in prompts" : "%s prompt",
               figure_percent(all > 0 ? prompts / all : NAN).text);
    const int half = (in.h - 1) / 2;
    if (half < 4) {
        chart_steps(g, rect_rows(in, 1, in.h - 1), rows, n,
                    (struct axis){ .name = "rows", .show = show_count }, ROLE_GRAPH);
        return;
    }
    chart_steps(g, rect_rows(in, 1, half), rows, n, (struct axis){ .name = "rows", .show = show_count },
                ROLE_GRAPH);
    chart_steps(g, rect_rows(in, 1 + half, in.h - 1 - half), ms, n,
                (struct axis){ .name = "ms", .show = figure_number }, ROLE_METER);
}
