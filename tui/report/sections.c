/* sections.c - the sections about the result, the arms, the control and the course of the run. */

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "engine/config/config.h"
#include "telemetry/metrics/metrics.h"
#include "tui/report/content.h"
#include "tui/widgets/widgets.h"

/* Below 0.0001 the exact value changes no decision. */
static const char *probability_text(struct report *r, double p)
{
    if (!isfinite(p)) return "unknown";
    return p < 1e-4 ? "< 0.0001" : content_printf(r, "%.4f", fmin(p, 1));
}

static const char *seconds_text(struct report *r, double v)
{
    return isfinite(v) ? content_printf(r, "%s", figure_seconds(v).text) : "unknown";
}

static const char *number_text(struct report *r, double v)
{
    return isfinite(v) ? content_printf(r, "%s", figure_number(v).text) : "unknown";
}

static const char *uncertain_text(struct report *r, double v, double half)
{
    if (!isfinite(v) || !isfinite(half)) return number_text(r, v);
    return content_printf(r, "%s ± %s", figure_number(v).text, figure_number(half).text);
}

/* Sets the headings; aligned: "l" or "r" for each column. */
static void table_set_heads(struct content_table *t, const char *const *names, const char *aligned)
{
    for (int i = 0; i < t->columns; i++) {
        t->head[i] = names[i];
        t->right[i] = aligned[i] == 'r';
    }
}

/* ---------------------------------------------------------------- summary */

void section_summary(struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    if (x->random_weights)
        content_add(r, CONTENT_WARNING,
                    "The model has random weights: speed and memory are real, quality figures mean nothing.");
    if (x->answers_unverified)
        content_add(r, CONTENT_WARNING,
                    "Answers unverified: parts of the model file are unknown to qdyno, and force=on ran it.");
    if (x->control_failed)
        content_add(
            r, CONTENT_WARNING,
            "The control failed: A compared with itself showed a difference, so the position in a block matters and no "
            "verdict is valid.");
    for (int a = 0; a < experiment_arms(&s->state.spec); a++)
        if (x->arm[a].failed)
            content_add(r, CONTENT_WARNING,
                        content_printf(r, "Arm %s did not run: %s", report_arm_name(a),
                                       content_plain(r, x->arm[a].error)));
    struct content_table *t = content_table(r, NULL, 2);
    const char *machine = s->machine_known ? content_plain(r, s->machine.cpu) : "unknown";
    char line[600], blocks[EXPERIMENT_BLOCKS_TEXT], noise[EXPERIMENT_BLOCKS_TEXT];
    content_fact(
        r, t, "workload",
        content_printf(r, "`%s`", content_plain(r, experiment_workload_line(&x->spec, line, sizeof line))));
    content_fact(r, t, "metric",
                 content_printf(r, "`%s`: %s", experiment_metric(&s->state.spec)->name,
                                experiment_metric(&s->state.spec)->help));
    content_fact(r, t, "machine", machine);
    content_fact(r, t, "blocks", content_printf(r, "%s", experiment_blocks_text(blocks, x)));
    content_fact(r, t, "margin",
                 content_printf(r, "%.3g %%, the smallest difference that matters",
                                100 * experiment_margin(&x->spec)));
    content_fact(r, t, "noise floor",
                 isfinite(x->noise_floor)
                     ? content_printf(r, "±%.2f %% (A against itself, %d block%s%s)",
                                      stats_percent(x->noise_floor), x->control_blocks,
                                      str_plural(x->control_blocks),
                                      experiment_noise_text(noise, x, MAX(x->headline, 1)))
                 : x->spec.control_blocks < 0 ? "unknown: the run had no control"
                                              : "unknown: the control was not completed");
    content_fact(r, t, "detectable difference",
                 isfinite(x->mde)
                     ? content_printf(r, "%.2f %%, with a probability of 80 %%", stats_percent(x->mde))
                     : NULL);
}

/* ---------------------------------------------------------------- results */

/* A race has two comparisons of its winner, each with a verdict of its own. */
static enum verdict row_verdict(const struct experiment_state *x, const struct comparison *c, int arm)
{
    const bool counts = c == experiment_comparison(x, arm) || x->verdict == VERDICT_INVALID;
    return counts ? experiment_verdict(x, arm) : c->verdict;
}

static void verdict_row(struct report *r, const struct report_source *s, struct content_table *t,
                        const struct comparison *c, int arm)
{
    const struct interval change = experiment_change(&s->state, c->effect);
    const enum verdict v = row_verdict(&s->state, c, arm);
    struct content_row *row = content_row(r, t);
    row->cell[0] = content_printf(r, "%s `%s`%s", report_arm_name(arm),
                                  content_plain(r, s->state.arm[arm].line),
                                  c == &s->state.confirmation ? " (confirmation)" : "");
    row->cell[1] = c->dropped ? content_printf(r, "dropped after %d block%s", c->dropped_at,
                                               str_plural(c->dropped_at))
                   : v        ? verdict_name(v)
                              : "none";
    row->cell[2] = report_percent(r, change.estimate);
    row->cell[3] = report_percent(r, change.lower);
    row->cell[4] = report_percent(r, change.upper);
    row->cell[5] = report_evidence(r, c->e);
    row->cell[6] = probability_text(r, c->p);
    row->cell[7] = content_printf(r, "%d", c->blocks);
}

static void verdict_table(struct report *r, const struct report_source *s)
{
    static const char *const HEADS[] = { "arm", "verdict", "difference", "from",
                                         "to",  "e-value", "p",          "blocks" };
    struct content_table *t = content_table(
        r,
        experiment_arms(&s->state.spec) > 2
            ? "Each arm against A. Intervals, e-values and p are valid at every interim analysis. The intervals hold for all "
              "arms together in 95 of 100 experiments (Holm)."
            : "Interval (95 %), e-value and p are valid at every interim analysis.",
        8);
    table_set_heads(t, HEADS, "llrrrrrr");
    for (int k = 1; k < experiment_arms(&s->state.spec); k++)
        verdict_row(r, s, t, &s->state.comparison[k], k);
    if (s->state.confirming) verdict_row(r, s, t, &s->state.confirmation, s->state.headline);
}

/* Results of common fixed-sample methods. They are not part of the verdict. */
static void other_methods_table(struct report *r, const struct report_source *s)
{
    static const char *const HEADS[] = { "arm", "method", "result" };
    struct content_table *t = content_table(
        r, "The same blocks analysed by other methods, which are not part of the verdict.", 3);
    table_set_heads(t, HEADS, "llr");
    for (int k = 1; k < experiment_arms(&s->state.spec); k++) {
        const struct comparison *c = experiment_comparison(&s->state, k);
        const char *const rows[][2] = {
            { "mean and t interval (valid for a single analysis)",
              report_interval(r, experiment_change(&s->state, c->fixed)) },
            { "Hodges-Lehmann median and Wilcoxon interval (single analysis)",
              report_interval(r, experiment_change(&s->state, c->hodges_lehmann)) },
            { "p of the sign permutation test (single analysis)", probability_text(r, c->permutation_p) },
            { "e-value from the signs alone (any number of analyses)", report_evidence(r, c->e_sign) },
            { "correlation of neighbouring blocks",
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

static void note_blocks_needed(struct report *r, const struct report_source *s)
{
    for (int k = 1; k < experiment_arms(&s->state.spec); k++) {
        const struct comparison *c = experiment_comparison(&s->state, k);
        const enum verdict v = experiment_verdict(&s->state, k);
        if ((v > VERDICT_NONE && v != VERDICT_INCONCLUSIVE) || c->dropped) continue;
        char needed[BLOCKS_NEEDED_TEXT];
        if (*experiment_blocks_needed_text(needed, &s->state, c))
            content_add(r, CONTENT_TEXT,
                        content_printf(r, "A verdict on %s needs %s, if estimate and spread stay the same.",
                                       report_arm_name(k), needed));
    }
}

static const char *bytes_text(struct report *r, int64_t n)
{
    return n >= 0 ? content_printf(r, "%s", figure_bytes(n).text) : "unknown";
}

/* One row for each arm. Columns without any value are listed below the table instead. */
static void arms_table(struct report *r, const struct report_source *s)
{
    static const char *const NAMES[] = { "prefill tok/s", "decode tok/s", "first token", "gap p50",
                                         "p95",           "p99",          "peak memory", "J/token",
                                         "g CO2/token",   "perplexity" };
    enum { FIGURES = COUNT_OF(NAMES) };
    const char *value[EXPERIMENT_ARMS][FIGURES];
    bool known[FIGURES] = { false };
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) {
        const struct experiment_arm *x = &s->state.arm[a];
        const char *const of[FIGURES] = { number_text(r, x->value[METRIC_PREFILL_RATE]),
                                          number_text(r, x->value[METRIC_DECODE_RATE]),
                                          seconds_text(r, x->value[METRIC_TTFT]),
                                          seconds_text(r, x->value[METRIC_ITL_P50]),
                                          seconds_text(r, x->value[METRIC_ITL_P95]),
                                          seconds_text(r, x->value[METRIC_ITL_P99]),
                                          bytes_text(r, metric_bytes(x->value[METRIC_PEAK_MEMORY])),
                                          uncertain_text(r, x->joules_per_token, x->joules_per_token_half),
                                          number_text(r, x->co2_g_per_token),
                                          number_text(r, x->value[METRIC_PERPLEXITY]) };
        for (int i = 0; i < FIGURES; i++) {
            value[a][i] = of[i];
            known[i] = known[i] || strcmp(of[i], "unknown");
        }
    }
    struct content_table *t = content_table(
        r, "Geometric means over kept cells. A percentile is shown only if enough tokens were timed.", 3);
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
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) {
        struct content_row *row = content_row(r, t);
        row->cell[0] = report_arm_name(a);
        char line[CONFIG_LINE + WORKLOAD_LINE];
        row->cell[1] = content_printf(r, "`%s`",
                                      content_plain(r, experiment_arm_line(&s->state, a, line, sizeof line)));
        row->cell[2] = content_printf(r, "%d", s->state.arm[a].cells);
        for (int i = 0, k = 3; i < FIGURES; i++)
            if (known[i]) row->cell[k++] = value[a][i];
    }
    if (missing.len)
        content_add(r, CONTENT_TEXT, content_printf(r, "Not measured in this run: %s.", str_text(&missing)));
    str_free(&missing);
}

/* The arms on the card: name, configuration, value of the metric, its change, memory. */
static void card_table(struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    struct content_table *t = arena_alloc(&r->arena, sizeof *t);
    if (!t) return;
    t->columns = 5;
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) {
        const struct comparison *c = experiment_comparison(x, a);
        const bool memory = x->arm[a].value[METRIC_PEAK_MEMORY] >= 0 &&
                            experiment_metric(&s->state.spec) != &METRICS[METRIC_PEAK_MEMORY];
        struct content_row *row = content_row(r, t);
        row->cell[0] = report_arm_name(a);
        char line[CONFIG_LINE + WORKLOAD_LINE];
        row->cell[1] = content_plain(r, experiment_arm_line(x, a, line, sizeof line));
        row->cell[2] = x->arm[a].failed ? "did not run"
                                        : report_value(r, experiment_metric(&s->state.spec), x->arm[a].rate);
        row->cell[3] = a && c->blocks ? report_percent(r, experiment_change(x, c->effect).estimate) : "";
        row->cell[4] = memory ? content_printf(
                                    r, "peak %s",
                                    figure_bytes(metric_bytes(x->arm[a].value[METRIC_PEAK_MEMORY])).text)
                              : "";
    }
    r->card_table = t;
}

/* One figure for each comparison; only the first explains how to read it. */
static void effect_figures(struct report *r, const struct report_source *s)
{
    const struct comparison *headline = experiment_headline(&s->state);
    bool explained = false;
    for (int k = 1; k <= experiment_arms(&s->state.spec); k++) {
        const bool confirming = k == experiment_arms(&s->state.spec);
        const struct comparison *c = confirming ? &s->state.confirmation : &s->state.comparison[k];
        struct figure_plots f;
        if (confirming && !s->state.confirming) break;
        if (!figure_effect(&f, r, s, c, confirming ? s->state.headline : k)) continue;
        if (explained) f.reading = NULL;
        explained = true;
        if (c == headline) r->card_plot = f.plot[0];
        content_figure(r, &f);
    }
}

void section_results(struct report *r, const struct report_source *s)
{
    struct figure_plots f;
    content_add(r, CONTENT_SECTION, "Result");
    verdict_table(r, s);
    note_blocks_needed(r, s);
    joint_sentences(r, s);
    effect_figures(r, s);
    if (figure_evidence(&f, r, s)) content_figure(r, &f);
    other_methods_table(r, s);
    content_add(r, CONTENT_SECTION, "The arms");
    arms_table(r, s);
    if (figure_spread(&f, r, s))
        content_figure(r, &f);
    else
        content_add(r, CONTENT_TEXT,
                    "No cell of the comparison is valid, so there is no distribution to show.");
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
                    "The run had no control, so the size of random differences on this machine is unknown.");
        return;
    }
    if (!x->control_blocks) {
        content_add(r, CONTENT_TEXT, "No block of A against A was completed, so the noise floor is unknown.");
        return;
    }
    content_add(r, CONTENT_TEXT,
                content_printf(r, "%d block%s of A against A: %s. %s", x->control_blocks,
                               x->control_blocks == 1 ? "" : "s",
                               report_interval(r, experiment_change(&s->state, x->control)),
                               x->control_failed          ? "Equal arms differ: the control failed."
                               : isfinite(x->noise_floor) ? "No relevant bias: the control passed."
                                                          : "Too few blocks for an interval."));
    if (figure_control(&f, r, s)) content_figure(r, &f);
}

/* ---------------------------------------------------------------- the run */

static void discarded_table(struct report *r, const struct report_source *s)
{
    static const char *const HEADS[] = { "block", "part", "reason" };
    struct content_table *t = NULL;
    for (int i = 0; i < s->cells; i++) {
        const struct report_cell *c = &s->cell[i], *last = i ? &s->cell[i - 1] : NULL;
        if (!c->discarded || c->block < 0) continue;
        if (last && last->discarded && last->block == c->block && !strcmp(last->phase, c->phase)) continue;
        if (!t) {
            t = content_table(r, "Discarded blocks", 3);
            table_set_heads(t, HEADS, "rll");
        }
        struct content_row *row = content_row(r, t);
        row->cell[0] = content_printf(r, "%d", c->block);
        row->cell[1] = !strcmp(c->phase, "control")   ? "control"
                       : !strcmp(c->phase, "confirm") ? "confirmation"
                                                      : "comparison";
        row->cell[2] = *c->reason ? content_plain(r, c->reason) : "not recorded";
    }
    if (!t) content_add(r, CONTENT_TEXT, "No block was discarded.");
}

static void missing_sensors(struct report *r, const struct report_source *s)
{
    static const struct {
        enum metric_id id;
        const char *name;
    } WANTED[] = { { METRIC_CPU_FREQUENCY, "CPU clock rate" },
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
        content_add(r, CONTENT_TEXT,
                    content_printf(r, "Unknown, because this machine has no such sensor reading: %s.",
                                   str_text(&names)));
    str_free(&names);
}

static void event_table(struct report *r, const struct report_source *s)
{
    static const char *const HEADS[] = { "time (UTC)", "event" };
    if (!s->events) return;
    struct content_table *t = content_table(r, "Events", 2);
    table_set_heads(t, HEADS, "ll");
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
    content_add(r, CONTENT_SECTION, "Course of the run");
    if (figure_timeline(&f, r, s))
        content_figure(r, &f);
    else
        content_add(r, CONTENT_TEXT, "The run has no stored cell.");
    if (s->cells) missing_sensors(r, s);
    discarded_table(r, s);
    event_table(r, s);
}
