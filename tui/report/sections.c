/* tui/report/sections.c - what was found: verdict and effects, the arms, quality, the control, the run. */
#include "tui/report/content.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "tui/widgets/widgets.h"

static const char *probability(struct report *r, double p)
{
    if (!isfinite(p)) return "unknown";
    return p < 1e-4 ? "< 0.0001" : content_printf(r, "%.4f", fmin(p, 1));
}

static const char *seconds(struct report *r, double v)
{
    return isfinite(v) ? content_printf(r, "%s", figure_seconds(v).text) : "unknown";
}

static const char *plain_number(struct report *r, double v)
{
    return isfinite(v) ? content_printf(r, "%s", figure_number(v).text) : "unknown";
}

static void heads(struct content_table *t, const char *const *names, const char *aligned)
{
    for (int i = 0; i < t->columns; i++) {
        t->head[i] = names[i];
        t->right[i] = aligned[i] == 'r';
    }
}

/* ---------------------------------------------------------------- in short */

void section_summary(struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    if (x->random_weights)
        content_add(r, CONTENT_WARNING,
                    "The model has random weights: speed and memory are real, quality means nothing.");
    if (x->control_failed)
        content_add(
            r, CONTENT_WARNING,
            "The control failed: A against itself showed a difference, so something favours a position, and no "
            "verdict can stand.");
    for (int a = 0; a < report_arms(s); a++)
        if (x->arm[a].failed)
            content_add(r, CONTENT_WARNING,
                        content_printf(r, "Arm %s did not run: %s", report_arm_name(a),
                                       content_plain(r, x->arm[a].error)));
    struct content_table *t = content_table(r, NULL, 2);
    const char *machine = s->machine_known ? content_plain(r, s->machine.cpu) : "unknown";
    char line[600];
    content_fact(
        r, t, "workload",
        content_printf(r, "`%s`", content_plain(r, workload_line(&x->spec.workload, line, sizeof line))));
    content_fact(r, t, "compared by",
                 content_printf(r, "`%s`: %s", report_metric(s)->name, report_metric(s)->help));
    content_fact(r, t, "machine", machine);
    content_fact(r, t, "blocks", content_printf(r, "%d kept, %d discarded", x->blocks, x->discarded));
    content_fact(r, t, "differences that matter",
                 content_printf(r, "%.3g %% and more (the margin)",
                                100 * (x->spec.margin > 0 ? x->spec.margin : 0.01)));
    content_fact(r, t, "noise floor",
                 isfinite(x->noise_floor)
                     ? content_printf(r, "±%.2f %% (A against itself)", 100 * expm1(x->noise_floor))
                 : x->spec.control_blocks < 0 ? "unknown: run without a control"
                                              : "unknown: the control was not completed");
    content_fact(r, t, "smallest difference it can show",
                 isfinite(x->mde) ? content_printf(r, "%.2f %%, 4 times in 5", 100 * expm1(x->mde)) : NULL);
}

/* ---------------------------------------------------------------- results */

static void verdict_row(struct report *r, const struct report_source *s, struct content_table *t,
                        const struct comparison *c, int arm)
{
    const bool turned = report_metric(s)->better < 0;
    const enum verdict v = report_verdict(s, c);
    struct content_row *row = content_row(r, t);
    row->cell[0] = content_printf(r, "%s `%s`%s", report_arm_name(arm),
                                  content_plain(r, s->state.arm[arm].line),
                                  c == &s->state.confirmation ? " measured afresh" : "");
    row->cell[1] = c->dropped ? content_printf(r, "left out after %d blocks", c->dropped_at)
                   : v        ? verdict_name(v)
                              : "none";
    row->cell[2] = report_percent(r, s, c->effect.estimate);
    row->cell[3] = report_percent(r, s, turned ? c->effect.upper : c->effect.lower);
    row->cell[4] = report_percent(r, s, turned ? c->effect.lower : c->effect.upper);
    row->cell[5] = report_evidence(r, c->e);
    row->cell[6] = probability(r, c->p);
    row->cell[7] = content_printf(r, "%d", c->blocks);
}

static void verdict_table(struct report *r, const struct report_source *s)
{
    static const char *const HEADS[] = { "arm", "verdict", "difference", "from",
                                         "to",  "e-value", "p",          "blocks" };
    struct content_table *t = content_table(
        r,
        report_arms(s) > 2
            ? "Each arm against A. Intervals, e-values and p hold however often somebody looked; the intervals are right "
              "for all arms together in 95 of 100 experiments (Holm)."
            : "Interval (95 %), e-value and p hold however often somebody looked.",
        8);
    heads(t, HEADS, "llrrrrrr");
    for (int k = 1; k < report_arms(s); k++) verdict_row(r, s, t, report_comparison(s, k), k);
    if (s->state.confirming) verdict_row(r, s, t, &s->state.confirmation, s->state.headline);
}

static void companion_table(struct report *r, const struct report_source *s)
{
    static const char *const HEADS[] = { "arm", "companion", "says" };
    struct content_table *t = content_table(
        r, "Companions: the same blocks by other methods. Where they disagree, look at the blocks.", 3);
    heads(t, HEADS, "llr");
    for (int k = 1; k < report_arms(s); k++) {
        const struct comparison *c = report_comparison(s, k);
        const char *const rows[][2] = {
            { "mean and t interval (honest for one look)", report_interval(r, s, c->fixed) },
            { "Hodges-Lehmann median and Wilcoxon's interval (one look)",
              report_interval(r, s, c->hodges_lehmann) },
            { "permutation of signs, p (one look)", probability(r, c->permutation_p) },
            { "e-value of the signs alone (any number of looks)", report_evidence(r, c->e_sign) },
            { "how neighbouring blocks correlate",
              isfinite(c->lag1) ? content_printf(r, "%+.2f", c->lag1) : "unknown" },
        };
        for (size_t i = 0; i < COUNT_OF(rows); i++) {
            struct content_row *row = content_row(r, t);
            row->cell[0] = report_arm_name(k);
            row->cell[1] = rows[i][0];
            row->cell[2] = rows[i][1];
        }
    }
}

static void needs_more(struct report *r, const struct report_source *s)
{
    for (int k = 1; k < report_arms(s); k++) {
        const struct comparison *c = report_comparison(s, k);
        const enum verdict v = report_verdict(s, c);
        if ((v > VERDICT_NONE && v != VERDICT_INCONCLUSIVE) || c->dropped) continue;
        if (c->blocks_needed > 0)
            content_add(
                r, CONTENT_TEXT,
                content_printf(
                    r,
                    "To decide about %s would take about %d more block%s, if estimate and spread stay as they are.",
                    report_arm_name(k), c->blocks_needed, c->blocks_needed == 1 ? "" : "s"));
    }
}

static const char *memory(struct report *r, int64_t n)
{
    return n >= 0 ? content_printf(r, "%s", figure_bytes(n).text) : "unknown";
}

/* What is known of the arms. A column that no arm has a figure for is named under the table instead. */
static void arms_table(struct report *r, const struct report_source *s)
{
    static const char *const NAMES[] = { "prefill tok/s", "decode tok/s", "first token", "gap p50",   "p95",
                                         "p99",           "peak memory",  "J/token",     "perplexity" };
    enum { FIGURES = COUNT_OF(NAMES) };
    const char *value[EXPERIMENT_ARMS][FIGURES];
    bool known[FIGURES] = { false };
    for (int a = 0; a < report_arms(s); a++) {
        const struct experiment_arm *x = &s->state.arm[a];
        const char *const of[FIGURES] = { plain_number(r, x->prefill_tok_s),
                                          plain_number(r, x->decode_tok_s),
                                          seconds(r, x->ttft_s),
                                          seconds(r, x->itl_p50_s),
                                          seconds(r, x->itl_p95_s),
                                          seconds(r, x->itl_p99_s),
                                          memory(r, x->peak_rss_bytes),
                                          plain_number(r, x->joules_per_token),
                                          plain_number(r, x->perplexity) };
        for (int i = 0; i < FIGURES; i++) {
            value[a][i] = of[i];
            known[i] = known[i] || strcmp(of[i], "unknown");
        }
    }
    struct content_table *t = content_table(
        r,
        "Means over kept cells (geometric). A percentile stands only where enough tokens were timed to know it.",
        3);
    t->head[0] = "arm";
    t->head[1] = "configuration";
    t->head[2] = "cells";
    t->right[2] = true;
    struct str missing = { 0 };
    for (int i = 0; i < FIGURES; i++) {
        if (known[i]) {
            t->head[t->columns] = NAMES[i];
            t->right[t->columns++] = true;
        } else {
            str_printf(&missing, "%s%s", missing.len ? ", " : "", NAMES[i]);
        }
    }
    for (int a = 0; a < report_arms(s); a++) {
        struct content_row *row = content_row(r, t);
        row->cell[0] = report_arm_name(a);
        row->cell[1] = content_printf(r, "`%s`", content_plain(r, s->state.arm[a].line));
        row->cell[2] = content_printf(r, "%d", s->state.arm[a].cells);
        for (int i = 0, k = 3; i < FIGURES; i++)
            if (known[i]) row->cell[k++] = value[a][i];
    }
    if (missing.len)
        content_add(r, CONTENT_TEXT,
                    content_printf(r, "Unknown in this run, for every arm: %s.", str_text(&missing)));
    str_free(&missing);
}

/* Arms for the card: name, configuration, the compared figure, its change, memory. */
static void card_table(struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    struct content_table *t = arena_alloc(&r->arena, sizeof *t);
    if (!t) return;
    t->columns = 5;
    for (int a = 0; a < report_arms(s); a++) {
        const struct comparison *c = a == x->headline ? experiment_headline(x) : report_comparison(s, a);
        const bool memory = x->arm[a].peak_rss_bytes >= 0 && report_metric(s) != &METRICS[METRIC_PEAK_MEMORY];
        struct content_row *row = content_row(r, t);
        row->cell[0] = report_arm_name(a);
        row->cell[1] = content_plain(r, x->arm[a].line);
        row->cell[2] = x->arm[a].failed ? "did not run" : report_value(r, report_metric(s), x->arm[a].rate);
        row->cell[3] = a && c->blocks ? report_percent(r, s, c->effect.estimate) : "";
        row->cell[4] = memory ? content_printf(r, "peak %s", figure_bytes(x->arm[a].peak_rss_bytes).text)
                              : "";
    }
    r->card_table = t;
}

/* One figure a comparison; how to read it is said at the first. */
static void effect_figures(struct report *r, const struct report_source *s)
{
    const struct comparison *headline = experiment_headline(&s->state);
    bool told = false;
    for (int k = 1; k <= report_arms(s); k++) {
        const bool afresh = k == report_arms(s);
        const struct comparison *c = afresh ? &s->state.confirmation : report_comparison(s, k);
        struct figure_plots f;
        if (afresh && !s->state.confirming) break;
        if (!figure_effect(&f, r, s, c, afresh ? s->state.headline : k)) continue;
        if (told) f.reading = NULL;
        told = true;
        if (c == headline) r->card_plot = f.plot[0];
        content_figure(r, &f);
    }
}

void section_results(struct report *r, const struct report_source *s)
{
    struct figure_plots f;
    content_add(r, CONTENT_SECTION, "Result");
    verdict_table(r, s);
    needs_more(r, s);
    joint_sentences(r, s);
    effect_figures(r, s);
    if (figure_evidence(&f, r, s)) content_figure(r, &f);
    companion_table(r, s);
    content_add(r, CONTENT_SECTION, "The arms");
    arms_table(r, s);
    if (figure_spread(&f, r, s))
        content_figure(r, &f);
    else
        content_add(r, CONTENT_TEXT,
                    "No cell of the comparison was kept, so there is no distribution to show.");
    if (figure_pareto(&f, r, s)) content_figure(r, &f);
    card_table(r, s);
}

/* ---------------------------------------------------------------- control */

void section_control(struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    struct figure_plots f;
    content_add(r, CONTENT_SECTION, "Control");
    if (x->spec.control_blocks < 0) {
        content_add(r, CONTENT_TEXT,
                    "None: the run was started without a control, so how much of a difference this machine "
                    "shows by itself is unknown.");
        return;
    }
    if (!x->control_blocks) {
        content_add(r, CONTENT_TEXT, "No block of A against A was completed: the noise floor is unknown.");
        return;
    }
    content_add(
        r, CONTENT_TEXT,
        content_printf(r, "%d block%s of A against A: %s. %s", x->control_blocks,
                       x->control_blocks == 1 ? "" : "s", report_interval(r, s, x->control),
                       x->control_failed ? "That is a difference where there can be none: the control failed."
                       : isfinite(x->noise_floor) ? "No bias that matters was found: the control passed."
                                                  : "Too few for an interval."));
    if (figure_control(&f, r, s)) content_figure(r, &f);
}

/* ---------------------------------------------------------------- the run */

static void discarded_table(struct report *r, const struct report_source *s)
{
    static const char *const HEADS[] = { "block", "part", "why it was thrown away" };
    struct content_table *t = NULL;
    for (int i = 0; i < s->cells; i++) {
        const struct report_cell *c = &s->cell[i], *last = i ? &s->cell[i - 1] : NULL;
        if (!c->discarded || c->block < 0) continue;
        if (last && last->discarded && last->block == c->block && last->phase == c->phase) continue;
        if (!t) {
            t = content_table(r, "Discarded blocks", 3);
            heads(t, HEADS, "rll");
        }
        struct content_row *row = content_row(r, t);
        row->cell[0] = content_printf(r, "%d", c->block);
        row->cell[1] = c->phase == REPORT_CONTROL ? "control" : "comparison";
        row->cell[2] = *c->reason ? content_plain(r, c->reason) : "not recorded";
    }
    if (!t) content_add(r, CONTENT_TEXT, "No block was discarded.");
}

static void missing_sensors(struct report *r, const struct report_source *s)
{
    static const struct {
        enum metric_id id;
        const char *name;
    } WANTED[] = { { METRIC_CPU_FREQUENCY, "processor clock" },
                   { METRIC_CPU_TEMPERATURE, "temperature" },
                   { METRIC_CPU_POWER, "power" },
                   { METRIC_CPU_STEAL, "time taken by a hypervisor" },
                   { METRIC_OTHERS_BUSY, "load of other programs" } };
    struct str names = { 0 };
    for (size_t w = 0; w < COUNT_OF(WANTED); w++) {
        bool seen = false;
        for (int i = 0; i < s->cells && !seen; i++)
            for (int k = 0; k < s->cell[i].samples && !seen; k++)
                seen = s->cell[i].sample[k].metric == (int)WANTED[w].id;
        if (!seen) str_printf(&names, "%s%s", names.len ? ", " : "", WANTED[w].name);
    }
    if (names.len)
        content_add(
            r, CONTENT_TEXT,
            content_printf(r, "Unknown, because this machine gave no reading: %s.", str_text(&names)));
    str_free(&names);
}

static void event_table(struct report *r, const struct report_source *s)
{
    static const char *const HEADS[] = { "time (UTC)", "what happened" };
    if (!s->events) return;
    struct content_table *t = content_table(r, "Events", 2);
    heads(t, HEADS, "ll");
    for (int i = 0; i < s->events; i++) {
        char when[32];
        struct content_row *row = content_row(r, t);
        row->cell[0] = content_printf(r, "%s", clock_iso8601(s->event[i].unix_ms, when, sizeof when));
        row->cell[1] = content_plain(r, s->event[i].text);
    }
}

void section_timeline(struct report *r, const struct report_source *s)
{
    struct figure_plots f;
    content_add(r, CONTENT_SECTION, "The run in time");
    if (figure_timeline(&f, r, s))
        content_figure(r, &f);
    else
        content_add(r, CONTENT_TEXT, "No cell was stored: nothing ran long enough to be seen.");
    if (s->cells) missing_sensors(r, s);
    discarded_table(r, s);
    event_table(r, s);
}
