/* site.c - the pages of `qdyno report --all` besides those of single runs: the index, and the trade-offs
 * between speed, loss and memory. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "base/base.h"
#include "telemetry/metrics/metrics.h"
#include "tui/report/content.h"
#include "tui/widgets/widgets.h"

/* One arm of one run. The rate of a challenger is that of A times its effect, which the blocks compared. */
struct site_point {
    char arm; /* its letter in the page of the run */
    char line[CONFIG_LINE];
    struct interval rate;      /* of the compared metric; bounds NAN for A */
    double kld;                /* against the unchanged file; NAN: unknown */
    struct measured_text text; /* that the loss was measured on; name "" none */
    double memory_bytes;       /* NAN: unknown */
};
struct site_run {
    int64_t id, started_ms;
    char model[128], sha256[HASH_HEX], machine[16], cpu[128], workload[600], verdict[16], arms[400];
    const struct metric *metric;
    double effect;                    /* log ratio of the headline arm, positive is better; NAN */
    double change;                    /* of the metric itself, B/A - 1; NAN */
    double kld;                       /* of the headline arm against A; NAN */
    struct measured_text text, usual; /* that it was measured on; the model's */
    struct site_point point[EXPERIMENT_ARMS];
    int points;
};
struct report_site {
    char about[256];
    struct site_run *run; /* [n] */
    int n, cap;
};

enum err_code report_site_open(struct report_site **out, const char *about, struct err *why)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return err_set(why, ERR_NOMEM, "out of memory for a site of reports");
    snprintf((*out)->about, sizeof(*out)->about, "%s", about);
    return ERR_OK;
}

void report_site_close(struct report_site *site)
{
    if (!site) return;
    free(site->run);
    free(site);
}

/* ---------------------------------------------------------------- adding a run */

static struct measured_text text_of(const struct quality *q)
{
    struct measured_text t = { 0 };
    if (!q->known) return t;
    snprintf(t.name, sizeof t.name, "%.127s", q->text);
    snprintf(t.sha256, sizeof t.sha256, "%s", q->text_sha256);
    return t;
}

static struct site_point point_of(const struct report_source *s, int arm)
{
    const struct experiment_arm *a = &s->state.arm[arm];
    const bool from_file = !strcmp(s->state.arm[0].line, "default");
    const struct quality *q = &s->state.comparison[arm].quality;
    const int64_t bytes = metric_bytes(a->value[METRIC_PEAK_MEMORY]);
    struct site_point p = { .arm = (char)('A' + arm),
                            .rate = experiment_rate(&s->state, arm),
                            .kld = NAN,
                            .memory_bytes = bytes >= 0 ? (double)bytes : (double)NAN };
    snprintf(p.line, sizeof p.line, "%s", a->line);
    if (from_file && (!arm || q->known)) p.kld = arm ? q->kld.estimate : 0;
    if (arm) p.text = text_of(q);
    return p;
}

/* Cells outside of complete blocks are too few to rank anything by. */
static bool arm_counts(const struct report_source *s, int arm)
{
    bool any = false;
    for (int k = 1; k < experiment_arms(&s->state.spec); k++)
        any = any || experiment_comparison(&s->state, k)->blocks > 0;
    return arm ? experiment_comparison(&s->state, arm)->blocks > 0 : any;
}

static struct site_run run_of(const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    const struct comparison *c = experiment_headline(x);
    const struct quality *q = &x->comparison[MAX(x->headline, 1)].quality;
    struct site_run r = { .id = x->run_id,
                          .started_ms = x->started_ms,
                          .metric = experiment_metric(&s->state.spec),
                          .effect = c->effect.estimate,
                          .change = report_change(s, c->effect.estimate),
                          .kld = q->known ? q->kld.estimate : (double)NAN };
    size_t used = 0;
    snprintf(r.model, sizeof r.model, "%s", x->arm[0].model_name);
    snprintf(r.sha256, sizeof r.sha256, "%s", x->arm[0].sha256);
    snprintf(r.machine, sizeof r.machine, "%s", x->machine_id);
    snprintf(r.cpu, sizeof r.cpu, "%s", s->machine_known ? s->machine.cpu : "");
    experiment_workload_line(&x->spec, r.workload, sizeof r.workload);
    snprintf(r.verdict, sizeof r.verdict, "%s", x->verdict ? verdict_name(x->verdict) : "none");
    r.text = text_of(q);
    r.usual = s->text;
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) {
        if (arm_counts(s, a)) r.point[r.points++] = point_of(s, a);
        if (used < sizeof r.arms)
            used += (size_t)snprintf(r.arms + used, sizeof r.arms - used, "%s%.100s", a ? " vs " : "",
                                     x->arm[a].line);
    }
    return r;
}

enum err_code report_site_add(struct report_site *site, const struct report_source *s, struct err *why)
{
    if (!array_room(&site->run, &site->cap, (int64_t)site->n + 1, sizeof *site->run))
        return err_set(why, ERR_NOMEM, "out of memory for a site of %d reports", site->n + 1);
    site->run[site->n++] = run_of(s);
    return ERR_OK;
}

const char *report_site_file(int64_t run_id, char *buf, size_t size)
{
    snprintf(buf, size, "run-%lld.html", (long long)run_id);
    return buf;
}

/* ---------------------------------------------------------------- pages */

void report_site_page(struct report *r)
{
    static const struct report_link LINKS[] = { { SITE_INDEX, "all experiments" },
                                                { SITE_PARETO, "trade-offs" } };
    r->generator = SITE_GENERATOR;
    for (size_t i = 0; i < COUNT_OF(LINKS); i++) r->link[i] = LINKS[i];
}

static enum err_code page_open(struct report **out, const struct report_site *site, const char *title,
                               const char *subtitle, struct err *why)
{
    char when[32];
    struct report *r = *out = calloc(1, sizeof *r);
    if (!r) return err_set(why, ERR_NOMEM, "out of memory for a page of a site");
    r->mark = "";
    r->title = *site->about ? content_printf(r, "%s: %s", title, content_plain(r, site->about)) : title;
    r->subtitle = subtitle;
    r->footer = content_printf(r, "Written by qdyno " QDYNO_VERSION " on %s.",
                               clock_iso8601(clock_unix_ms(), when, sizeof when));
    report_site_page(r);
    return ERR_OK;
}

static enum err_code page_close(struct report **out, struct err *why)
{
    if (!(*out)->failed) return ERR_OK;
    report_free(*out);
    *out = NULL;
    return err_set(why, ERR_NOMEM, "out of memory for a page of a site");
}

static void heads_set(struct content_table *t, const char *const *heads, const char *aligned)
{
    for (int i = 0; i < t->columns; i++) {
        t->head[i] = heads[i];
        t->right[i] = aligned[i] == 'r';
    }
}

static const char *loss_text(struct report *r, double kld, const struct measured_text *text)
{
    if (!isfinite(kld)) return "not measured";
    char label[TEXT_LABEL];
    return *text->name ? content_printf(r, "%.2g nats on %s", kld,
                                        content_plain(r, quality_text_label(label, text->name, text->sha256)))
                       : content_printf(r, "%.2g", kld);
}

static int newer(const void *x, const void *y)
{
    const struct site_run *a = *(const struct site_run *const *)x, *b = *(const struct site_run *const *)y;
    if (a->started_ms != b->started_ms) return a->started_ms < b->started_ms ? 1 : -1;
    return a->id < b->id ? 1 : -1;
}

/* The runs, newest first. *out: free(). */
static enum err_code by_date(const struct site_run ***out, const struct report_site *site, struct err *why)
{
    *out = malloc((size_t)MAX(site->n, 1) * sizeof **out);
    if (!*out) return err_set(why, ERR_NOMEM, "out of memory for a list of %d runs", site->n);
    for (int i = 0; i < site->n; i++) (*out)[i] = &site->run[i];
    qsort(*out, (size_t)site->n, sizeof **out, newer);
    return ERR_OK;
}

enum err_code report_site_index(struct report **out, const struct report_site *site, struct err *why)
{
    static const char *const HEADS[] = { "date (UTC)", "run",      "arms",  "verdict",      "difference",
                                         "metric",     "workload", "model", "quality loss", "machine" };
    const struct site_run **run = NULL;
    enum err_code rc = by_date(&run, site, why);
    if (!rc)
        rc = page_open(out, site, "Experiments",
                       "Every experiment in the database, the newest first. A difference is that of the "
                       "headline arm from arm A; the page of a run has its interval.",
                       why);
    if (rc) {
        free(run);
        return rc;
    }
    struct report *r = *out;
    r->wide = true;
    struct content_table *t = content_table(r, NULL, COUNT_OF(HEADS));
    heads_set(t, HEADS, "lrllrlllll");
    for (int i = 0; i < site->n; i++) {
        const struct site_run *x = run[i];
        struct content_row *row = content_row(r, t);
        char when[32], file[48];
        clock_iso8601(x->started_ms, when, sizeof when);
        row->cell[0] = content_printf(r, "%.10s %.5s", when, when + 11);
        row->cell[1] = content_printf(r, "%lld", (long long)x->id);
        row->cell[2] = content_printf(r, "`%s`", content_plain(r, x->arms));
        row->cell[3] = x->verdict[0] ? content_printf(r, "%s", x->verdict) : "none";
        row->cell[4] = isfinite(x->change) ? content_printf(r, "%+.1f %%", 100 * x->change) : "unknown";
        row->cell[5] = x->metric->name;
        row->cell[6] = content_printf(r, "`%s`", content_plain(r, x->workload));
        row->cell[7] = *x->model ? content_plain(r, x->model) : "unknown";
        row->cell[8] = loss_text(r, x->kld, &x->text);
        row->cell[9] = *x->cpu ? content_plain(r, x->cpu) : "unknown";
        row->link = content_printf(r, "%s", report_site_file(x->id, file, sizeof file));
        row->linked = 1;
    }
    free(run);
    return page_close(out, why);
}

/* ---------------------------------------------------------------- trade-offs */

enum { GROUP_POINTS = 64 };

/* The newest measurement of a config, and its newest loss on the model's text, which an older run may have:
 * what a newer run measured on another text is not ranked. */
struct group_config {
    const struct site_run *of, *loss_of; /* the runs of these points */
    const struct site_point *point, *loss;
    bool front;
};
/* The configs measured on one model, machine, workload and metric. */
struct group {
    const struct site_run *first;
    struct group_config config[GROUP_POINTS];
    int n;
    bool measured; /* the loss of a config was measured on the model's text */
};

static bool same_group(const struct site_run *a, const struct site_run *b)
{
    return !strcmp(a->sha256, b->sha256) && !strcmp(a->machine, b->machine) &&
           !strcmp(a->workload, b->workload) && a->metric == b->metric;
}

/* Whether this loss is ranked: it was measured on the model's text. The unchanged file loses nothing on any.
 */
static bool loss_counts(const struct group *g, const struct site_point *p)
{
    return p->kld == 0 || (isfinite(p->kld) && measured_text_same(&p->text, &g->first->usual));
}

static double group_kld(const struct group *g, int i)
{
    const struct site_point *p = g->config[i].loss;
    return loss_counts(g, p) ? p->kld : (double)NAN;
}

/* Runs come newest first. */
static void group_add(struct group *g, const struct site_run *run)
{
    for (int a = 0; a < run->points; a++) {
        const struct site_point *p = &run->point[a];
        int i = 0;
        while (i < g->n && strcmp(g->config[i].point->line, p->line) != 0) i++;
        struct group_config *c = &g->config[MIN(i, GROUP_POINTS - 1)];
        if (i == g->n && (g->n == GROUP_POINTS || !isfinite(p->rate.estimate))) continue;
        if (i == g->n) {
            *c = (struct group_config){ .of = run, .loss_of = run, .point = p, .loss = p };
            g->n++;
        } else if (loss_counts(g, p) && !loss_counts(g, c->loss)) {
            c->loss_of = run;
            c->loss = p;
        }
        g->measured |= group_kld(g, i) > 0;
    }
}

static void group_sort(struct group *g)
{
    const int better = metric_sign(g->first->metric);
    for (int i = 1; i < g->n; i++)
        for (int k = i; k > 0; k--) {
            struct group_config *c = &g->config[k];
            if (better * (c[0].point->rate.estimate - c[-1].point->rate.estimate) <= 0) break;
            const struct group_config faster = c[0];
            c[0] = c[-1];
            c[-1] = faster;
        }
}

/* What is better when larger: rate, loss and memory, the last two negated. */
enum { GAINS = 3 };
static void group_gains(double gain[GAINS], const struct group *g, int i)
{
    gain[0] = metric_sign(g->first->metric) * g->config[i].point->rate.estimate;
    gain[1] = -group_kld(g, i);
    gain[2] = -g->config[i].point->memory_bytes;
}

static void group_mark_front(struct group *g)
{
    double gain[GROUP_POINTS][GAINS];
    for (int a = 0; a < g->n; a++) group_gains(gain[a], g, a);
    for (int a = 0; a < g->n; a++) {
        g->config[a].front = isfinite(group_kld(g, a)) || !g->measured;
        for (int b = 0; b < g->n; b++)
            g->config[a].front = g->config[a].front && (b == a || !stats_dominates(gain[b], gain[a], GAINS));
    }
}

static void group_plot(struct figure_plots *f, struct report *r, const struct group *g, bool memory)
{
    int known = 0;
    for (int i = 0; i < g->n; i++)
        known += isfinite(memory ? g->config[i].point->memory_bytes : group_kld(g, i));
    struct plot *p = known > 1 ? figure_plot(f, r) : NULL;
    if (!p) return;
    p->title = memory ? "Speed and memory"
                      : content_printf(r, "Speed and loss on %s", content_plain(r, g->first->usual.name));
    p->height = 220;
    p->x = (struct plot_axis){ .title = content_printf(r, "%s, %s (%s is better)", g->first->metric->name,
                                                       g->first->metric->unit,
                                                       g->first->metric->better < 0 ? "left" : "right"),
                               .low = NAN,
                               .high = NAN };
    p->y = (struct plot_axis){ .title = memory ? "peak memory (down is better)"
                                               : "KL divergence from the file, nats (down is better)",
                               .unit = memory ? UNIT_BYTES : UNIT_NUMBER,
                               .low = NAN,
                               .high = NAN };
    for (int front = 1; front >= 0; front--) {
        struct plot_layer *l = plot_layer(p, &r->arena, MARK_DOT, front ? 0 : HUE_MUTED, g->n);
        if (!l) return;
        l->name = front ? "on the Pareto front" : "not on it, or its loss is unknown";
        for (int i = 0; i < g->n; i++) {
            if (g->config[i].front != front) continue;
            l->point[i].x = g->config[i].point->rate.estimate;
            l->point[i].y = memory ? g->config[i].point->memory_bytes : group_kld(g, i);
            l->point[i].label = content_printf(r, "%d", i + 1);
            l->point[i].hint = content_plain(r, g->config[i].point->line);
        }
    }
}

static void group_table(struct report *r, const struct group *g)
{
    static const char *const HEADS[] = { "number", "configuration", "rate",  "from", "to",
                                         "loss",   "peak memory",   "front", "run" };
    struct content_table *t = content_table(
        r, "The numbers are those in the plots. Bounds: 95 % interval relative to arm A of the same run.",
        COUNT_OF(HEADS));
    heads_set(t, HEADS, "rlrrrlrlr");
    for (int i = 0; i < g->n; i++) {
        const struct group_config *c = &g->config[i];
        const struct site_point *p = c->point;
        struct content_row *row = content_row(r, t);
        char file[48];
        row->cell[0] = content_printf(r, "%d", i + 1);
        row->cell[1] = content_printf(r, "`%s`", content_plain(r, p->line));
        row->cell[2] = content_printf(r, "%s", figure_number(p->rate.estimate).text);
        row->cell[3] = isfinite(p->rate.lower) ? content_printf(r, "%s", figure_number(p->rate.lower).text)
                                               : "";
        row->cell[4] = isfinite(p->rate.upper) ? content_printf(r, "%s", figure_number(p->rate.upper).text)
                                               : "";
        row->cell[5] = loss_text(r, c->loss->kld, &c->loss->text);
        if (c->loss_of != c->of)
            row->cell[5] = content_printf(r, "%s, run %lld", row->cell[5], (long long)c->loss_of->id);
        row->cell[6] = isfinite(p->memory_bytes)
                           ? content_printf(r, "%s", figure_bytes((int64_t)p->memory_bytes).text)
                           : "unknown";
        row->cell[7] = g->config[i].front ? "★" : "";
        row->cell[8] = content_printf(r, "%lld, arm %c", (long long)g->config[i].of->id, p->arm);
        row->link = content_printf(r, "%s", report_site_file(g->config[i].of->id, file, sizeof file));
        row->linked = 8;
    }
}

static void group_put(struct report *r, struct group *g)
{
    struct figure_plots f = {
        .title = "Speed against loss and memory",
        .reading =
            "Each number is a configuration of the table below. A configuration is on the Pareto front if no "
            "other one is at least as good in speed, loss and memory. A loss measured on another text than the "
            "model's counts as unknown, and a configuration of unknown loss is not on the front. Of two "
            "configurations, a quantity that is unknown for both is left out."
    };
    content_add(r, CONTENT_SECTION,
                content_printf(r, "%s, `%s`, on %s",
                               *g->first->model ? content_plain(r, g->first->model) : "unknown model",
                               content_plain(r, g->first->workload),
                               *g->first->cpu ? content_plain(r, g->first->cpu) : "an unknown machine"));
    group_sort(g);
    group_mark_front(g);
    group_plot(&f, r, g, false);
    group_plot(&f, r, g, true);
    if (!f.plots)
        content_add(r, CONTENT_TEXT,
                    "No plot: neither the loss nor the memory of two configurations is known here.");
    content_figure(r, &f);
    group_table(r, g);
}

enum err_code report_site_pareto(struct report **out, const struct report_site *site, struct err *why)
{
    const struct site_run **run = NULL;
    struct group *g = calloc(1, sizeof *g);
    bool *done = calloc((size_t)MAX(site->n, 1), sizeof *done);
    enum err_code rc = g && done ? by_date(&run, site, why)
                                 : err_set(why, ERR_NOMEM, "out of memory for a page of a site");
    if (!rc)
        rc = page_open(
            out, site, "Trade-offs",
            "Speed, loss and memory of every measured configuration, the newest measurement of each; the loss is the "
            "newest one on the model's text. "
            "Rates of different runs were measured at different times.",
            why);
    for (int i = 0; !rc && i < site->n; i++) {
        if (done[i]) continue;
        *g = (struct group){ .first = run[i] };
        for (int k = i; k < site->n; k++) {
            if (!same_group(run[i], run[k])) continue;
            done[k] = true;
            if (strcmp(run[k]->verdict, "invalid")) group_add(g, run[k]);
        }
        if (g->n) group_put(*out, g);
    }
    free(run);
    free(done);
    free(g);
    return rc ? rc : page_close(out, why);
}
