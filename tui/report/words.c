/* words.c - numbers and verdicts as text for readers who do not know the program. */

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "engine/config/config.h"
#include "telemetry/metrics/metrics.h"
#include "tui/report/content.h"
#include "tui/widgets/widgets.h"

const char *report_arm_name(int arm)
{
    static const char *const NAMES[EXPERIMENT_ARMS] = { "A", "B", "C", "D", "E", "F", "G", "H" };
    return NAMES[arm >= 0 && arm < EXPERIMENT_ARMS ? arm : 0];
}

double report_change(const struct report_source *s, double gain)
{
    return expm1(experiment_change_of(&s->state, gain));
}

/* Digits after the point that are meaningful for intervals of about one percent. */
static int percent_digits(double percent)
{
    return fabs(percent) >= 99.95 ? 0 : fabs(percent) >= 9.995 ? 1 : 2;
}

const char *report_percent(struct report *r, double change)
{
    const double p = stats_percent(change);
    return isfinite(p) ? content_printf(r, "%+.*f %%", percent_digits(p), p) : "unknown";
}

const char *report_interval(struct report *r, struct interval change)
{
    if (!isfinite(change.estimate)) return "unknown";
    if (!isfinite(change.lower) || !isfinite(change.upper))
        return content_printf(r, "%s (no interval yet)", report_percent(r, change.estimate));
    return content_printf(r, "%s (%s to %s)", report_percent(r, change.estimate),
                          report_percent(r, change.lower), report_percent(r, change.upper));
}

/* E-values may be as large as 1e40: then only the magnitude is printed. */
const char *report_evidence(struct report *r, double e)
{
    if (!isfinite(e)) return isinf(e) && e > 0 ? "over 1e300" : "unknown";
    if (e >= 1e5) return content_printf(r, "%.0e", e);
    return content_printf(r, "%.*f", e >= 100 ? 0 : 2, e);
}

const char *report_value(struct report *r, const struct metric *m, double v)
{
    if (!isfinite(v)) return "unknown";
    if (!strcmp(m->unit, "seconds")) return content_printf(r, "%s", figure_seconds(v).text);
    if (!strcmp(m->unit, "bytes")) return content_printf(r, "%s", figure_bytes((int64_t)v).text);
    if (!strcmp(m->unit, "ratio")) return content_printf(r, "%.1f %%", 100 * v);
    return content_printf(r, "%s%s%s", figure_number(v).text, *m->unit ? " " : "", m->unit);
}

/* ---------------------------------------------------------------- the headline */

/* Phrases for a change of a metric; "%s" is its size, e.g. "58.4 %". */
static const struct {
    enum metric_id metric;
    const char *more, *less; /* of the number itself */
} PHRASES[] = {
    { .metric = METRIC_DECODE_RATE, .more = "generates text %s faster", .less = "generates text %s slower" },
    { .metric = METRIC_PREFILL_RATE, .more = "reads prompts %s faster", .less = "reads prompts %s slower" },
    { .metric = METRIC_TTFT,
      .more = "takes %s longer to its first token",
      .less = "takes %s less time to its first token" },
    { .metric = METRIC_ITL_P50,
      .more = "has %s longer gaps between tokens",
      .less = "has %s shorter gaps between tokens" },
    { .metric = METRIC_ITL_P95,
      .more = "has slow tokens (p95) %s slower",
      .less = "has slow tokens (p95) %s faster" },
    { .metric = METRIC_ITL_P99,
      .more = "has its slowest tokens (p99) %s slower",
      .less = "has its slowest tokens (p99) %s faster" },
    { .metric = METRIC_OUT_RATE,
      .more = "generates %s more tokens per second for all requests",
      .less = "generates %s fewer tokens per second for all requests" },
    { .metric = METRIC_E2E, .more = "takes %s longer per request", .less = "takes %s less time per request" },
    { .metric = METRIC_GOODPUT,
      .more = "serves %s more requests within the limits",
      .less = "serves %s fewer requests within the limits" },
    { .metric = METRIC_LOAD_TIME, .more = "takes %s longer to load", .less = "takes %s less time to load" },
    { .metric = METRIC_PEAK_MEMORY, .more = "needs %s more memory", .less = "needs %s less memory" },
    { .metric = METRIC_ENERGY, .more = "uses %s more energy", .less = "uses %s less energy" },
    { .metric = METRIC_PERPLEXITY,
      .more = "has a perplexity %s higher",
      .less = "has a perplexity %s lower" },
    { .metric = METRIC_KLD,
      .more = "deviates %s more from the reference",
      .less = "deviates %s less from the reference" },
};

/* "generates text 58.4 % faster"; "at least 0.3 % faster" where the middle of the interval says more than is
 * proven. */
static const char *change_phrase(struct report *r, const struct report_source *s, struct interval gain)
{
    const struct metric *m = experiment_metric(&s->state.spec);
    const struct interval change = experiment_change(&s->state, gain);
    const bool vague = stats_is_vague(change, s->state.noise_floor);
    const double p = stats_percent(vague ? stats_proven(change) : change.estimate);
    const char *much = content_printf(r, "%s%.*f %%", vague ? "at least " : "", percent_digits(p), fabs(p));
    if (!isfinite(p)) return "has an unknown effect";
    for (size_t i = 0; i < COUNT_OF(PHRASES); i++)
        if (m == &METRICS[PHRASES[i].metric]) {
            const char *phrase = p >= 0 ? PHRASES[i].more : PHRASES[i].less, *at = strstr(phrase, "%s");
            return content_printf(r, "%.*s%s%s", (int)(at - phrase), phrase, much, at + 2);
        }
    return content_printf(r, "has %s %s %s", m->name, much, p >= 0 ? "higher" : "lower");
}

static const char *verdict_mark(enum verdict v)
{
    static const char *const MARKS[] = {
        [VERDICT_NONE] = "… no verdict",       [VERDICT_BETTER] = "▲ better",
        [VERDICT_WORSE] = "▼ worse",           [VERDICT_EQUIVALENT] = "≈ equivalent",
        [VERDICT_NEGLIGIBLE] = "≈ negligible", [VERDICT_INCONCLUSIVE] = "? inconclusive",
        [VERDICT_INVALID] = "✕ invalid",
    };
    return (size_t)v < COUNT_OF(MARKS) ? MARKS[v] : MARKS[VERDICT_NONE];
}

/* "B (`q4_0`)" */
static const char *arm_title(struct report *r, const struct report_source *s, int arm)
{
    char line[CONFIG_LINE + WORKLOAD_LINE];
    return content_printf(r, "%s (`%s`)", report_arm_name(arm),
                          content_plain(r, experiment_arm_line(&s->state, arm, line, sizeof line)));
}

static double margin_percent(const struct report_source *s)
{
    return 100 * experiment_margin(&s->state.spec);
}

static const char *title_of_pair(struct report *r, const struct report_source *s, const struct comparison *c,
                                 int arm)
{
    const char *a = arm_title(r, s, 0), *b = arm_title(r, s, arm), *how = change_phrase(r, s, c->effect);
    switch (experiment_verdict(&s->state, arm)) {
    case VERDICT_BETTER:
    case VERDICT_WORSE: return content_printf(r, "%s %s than %s", b, how, a);
    case VERDICT_EQUIVALENT:
        return content_printf(r, "%s and %s are equivalent: they differ by less than %.3g %%", b, a,
                              margin_percent(s));
    case VERDICT_NEGLIGIBLE:
        return content_printf(r, "%s %s than %s: a proven difference, but smaller than the margin of %.3g %%",
                              b, how, a, margin_percent(s));
    case VERDICT_INCONCLUSIVE:
        return content_printf(r, "Undecided: %s against %s after %d block%s", b, a, c->blocks,
                              c->blocks == 1 ? "" : "s");
    case VERDICT_INVALID: return content_printf(r, "No valid measurement: %s against %s", b, a);
    default: return content_printf(r, "No verdict: %s against %s", b, a);
    }
}

/* Of many arms the title names the best one, or says that none is proven better, with counts. */
static const char *title_of_many(struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    const int all = experiment_arms(&s->state.spec) - 1;
    int count[VERDICT_INVALID + 1] = { 0 };
    for (int k = 1; k <= all; k++) count[experiment_verdict(&s->state, k)]++;
    const char *a = arm_title(r, s, 0);
    if (x->verdict == VERDICT_INVALID)
        return content_printf(r, "No valid measurement of %d configurations against %s", all, a);
    if (x->verdict == VERDICT_BETTER)
        return content_printf(r, "The best of %d configurations, %s, %s than %s%s", all,
                              arm_title(r, s, x->headline),
                              change_phrase(r, s, experiment_headline(x)->effect), a,
                              x->confirming ? ", confirmed by a second measurement" : "");
    return content_printf(
        r,
        "None of %d configurations is proven better than %s (%d worse, %d equivalent or negligible, %d undecided)",
        all, a, count[VERDICT_WORSE], count[VERDICT_EQUIVALENT] + count[VERDICT_NEGLIGIBLE],
        count[VERDICT_INCONCLUSIVE] + count[VERDICT_NONE]);
}

/* Why the run ended without a verdict; "" if it has one. */
static const char *ending_text(struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    if (x->phase == PHASE_FAILED)
        return content_printf(r, "The run failed: %s. ",
                              *x->error ? content_plain(r, x->error) : "no reason was stored");
    if (x->phase == PHASE_STOPPED) return "The run was stopped before a verdict. ";
    if (x->phase != PHASE_DONE)
        return "The run is not finished, or was killed: this report contains what had been measured when it was written. ";
    return "";
}

static const char *subtitle_of(struct report *r, const struct report_source *s)
{
    const struct comparison *c = experiment_headline(&s->state);
    const struct interval change = experiment_change(&s->state, c->effect);
    const char *end = ending_text(r, s), *metric = experiment_metric(&s->state.spec)->name,
               *estimate = report_percent(r, change.estimate);
    const char *reason = *s->state.reason ? content_printf(r, "%s. ", content_plain(r, s->state.reason)) : "";
    if (!c->blocks || !isfinite(c->effect.estimate))
        return content_printf(r, "%s%sNo block of the comparison was completed.", end, reason);
    if (!isfinite(c->effect.lower) || !isfinite(c->effect.upper))
        return content_printf(r, "%s%s%s: %s after %d block%s, too few for an interval.", end, reason, metric,
                              estimate, c->blocks, c->blocks == 1 ? "" : "s");
    return content_printf(
        r, "%s%s%s: %s, %.3g %% interval %s to %s; evidence for a difference: e-value %s (20 is enough).",
        end, reason, metric, estimate, 100 * (1 - (c->alpha > 0 ? c->alpha : 0.05)),
        report_percent(r, change.lower), report_percent(r, change.upper), report_evidence(r, c->e));
}

void report_headline(struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    char when[32];
    r->verdict = x->verdict;
    r->mark = verdict_mark(x->verdict);
    r->title = experiment_arms(&s->state.spec) > 2 ? title_of_many(r, s)
                                                   : title_of_pair(r, s, experiment_headline(x), 1);
    r->subtitle = subtitle_of(r, s);
    char line[600];
    r->footer = content_printf(r, "Run %lld of %s: workload `%s` on %s. Written by qdyno " QDYNO_VERSION ".",
                               (long long)x->run_id, clock_iso8601(x->started_ms, when, sizeof when),
                               content_plain(r, experiment_workload_line(&x->spec, line, sizeof line)),
                               s->machine_known ? content_plain(r, s->machine.cpu) : "an unknown machine");
}
