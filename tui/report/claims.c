/* claims.c - the sections about quality, the gate, and all axes together. */

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "engine/eval/eval.h"
#include "tui/report/content.h"

static const char *number_text(struct report *r, double v, const char *format)
{
    char text[64];
    if (!isfinite(v)) return "unknown";
    /* two fixed formats, so that the compiler can check them */
    if (!strcmp(format, "%.5f"))
        snprintf(text, sizeof text, "%.5f", v);
    else
        snprintf(text, sizeof text, "%.3g", v);
    return content_printf(r, "%s", text);
}

/* Without bounds only the estimate is shown: "unknown" in brackets would be read as a wide interval. */
static const char *interval_text(struct report *r, struct interval i, const char *format)
{
    if (!isfinite(i.estimate)) return "unknown";
    if (!isfinite(i.lower) || !isfinite(i.upper)) return number_text(r, i.estimate, format);
    return content_printf(r, "%s (%s to %s)", number_text(r, i.estimate, format),
                          number_text(r, i.lower, format), number_text(r, i.upper, format));
}

/* One sentence per arm: whether it wins on all of speed, memory, energy and quality, or trades one for
 * another. */
void joint_sentences(struct report *r, const struct report_source *s)
{
    struct joint j;
    claims_joint(&j, &s->state);
    for (int k = 1; k < experiment_arms(&s->state.spec) && k < JOINT_ARMS; k++)
        if (!s->state.arm[k].failed && *j.sentence[k])
            content_add(r, CONTENT_TEXT,
                        content_printf(r, "%s, over all metrics: %s.", report_arm_name(k),
                                       content_plain(r, j.sentence[k])));
}

/* ---------------------------------------------------------------- quality */

static void divergence_row(struct report *r, const struct report_source *s, struct content_table *t, int arm)
{
    const struct quality *q = &s->state.comparison[arm].quality;
    const struct divergence *d = &q->figures;
    struct content_row *row = content_row(r, t);
    row->cell[0] = report_arm_name(arm);
    if (!q->known) {
        for (int i = 1; i < t->columns; i++) row->cell[i] = "unknown";
        return;
    }
    row->cell[1] = interval_text(r, q->kld, "%.3g");
    row->cell[2] = number_text(r, d->kld_p99, "%.3g");
    row->cell[3] = isfinite(q->top1.estimate) ? content_printf(r, "%.2f %%", 100 * q->top1.estimate)
                                              : "unknown";
    row->cell[4] = interval_text(r, q->ppl_ratio, "%.5f");
    row->cell[5] = number_text(r, q->mcnemar_p, "%.3g");
}

static void divergence_table(struct report *r, const struct report_source *s, const struct quality *q)
{
    char text[TEXT_LABEL];
    static const char *const HEADS[] = {
        "arm", "KL divergence, nats", "p99", "same top token", "perplexity ratio", "McNemar p"
    };
    struct content_table *t = content_table(
        r,
        content_printf(
            r,
            "Difference of the predictions of each arm from those of A on %s, in windows of %d tokens (95 %% intervals over "
            "windows). A divergence of 0 and a ratio of 1 mean no loss.",
            content_plain(r, quality_text_label(text, q->text, q->text_sha256)), q->ctx),
        COUNT_OF(HEADS));
    for (int i = 0; i < t->columns; i++) {
        t->head[i] = HEADS[i];
        t->right[i] = i > 0;
    }
    for (int k = 1; k < experiment_arms(&s->state.spec); k++) divergence_row(r, s, t, k);
}

/* Where a report has no quality figures, it says why: quality was not requested, or the run ended before it
 * was measured. */
void section_quality(struct report *r, const struct report_source *s)
{
    const struct quality *known = NULL;
    bool perplexity = false;
    content_add(r, CONTENT_SECTION, "Quality");
    for (int k = 1; k < experiment_arms(&s->state.spec) && !known; k++)
        if (s->state.comparison[k].quality.known) known = &s->state.comparison[k].quality;
    for (int a = 0; a < experiment_arms(&s->state.spec); a++)
        perplexity = perplexity || isfinite(s->state.arm[a].value[METRIC_PERPLEXITY]);
    if (known)
        divergence_table(r, s, known);
    else if (*s->state.spec.quality_file)
        content_add(r, CONTENT_TEXT, "Requested, but the run ended before quality was measured.");
    else if (perplexity)
        content_add(r, CONTENT_TEXT, "The table of the arms contains the perplexity.");
    else
        content_add(
            r, CONTENT_TEXT,
            "Not measured in this run. The report does not show how a configuration changes the answers.");
}

/* ---------------------------------------------------------------- gate */

static void gate_rows(struct report *r, struct content_table *t, const struct gate *g,
                      const struct gate_result *got, int arm)
{
    for (int i = 0; i < got->terms; i++) {
        const struct gate_row *from = &got->row[i];
        struct content_row *row = content_row(r, t);
        row->cell[0] = report_arm_name(arm);
        row->cell[1] = content_printf(r, "`%s`", content_plain(r, g->term[i].text));
        row->cell[2] = gate_outcome_name(from->outcome);
        struct interval shown = from->interval;
        shown.estimate = from->value;
        row->cell[3] = interval_text(r, shown, "%.3g");
        row->cell[4] = number_text(r, from->bound, "%.3g");
        row->cell[5] = content_plain(r, from->reason);
    }
}

/* The stored condition is parsed again. This version may not know a metric that it names. */
void section_gate(struct report *r, const struct report_source *s)
{
    static const char *const HEADS[] = { "arm", "condition", "outcome", "measured", "bound", "reason" };
    struct gate g;
    if (!*s->state.spec.gate) return;
    content_add(r, CONTENT_SECTION, "Gate");
    if (gate_parse(&g, s->state.spec.gate, NULL)) {
        content_add(r, CONTENT_TEXT,
                    content_printf(r, "This version cannot parse the condition `%s`.",
                                   content_plain(r, s->state.spec.gate)));
        return;
    }
    content_add(r, CONTENT_TEXT,
                content_printf(r, "Condition: `%s`. Outcome over all arms: %s.",
                               content_plain(r, s->state.spec.gate),
                               gate_outcome_name(claims_gate_all(&g, &s->state))));
    struct content_table *t = content_table(r, "A condition passes if the whole interval satisfies it.",
                                            COUNT_OF(HEADS));
    for (int i = 0; i < t->columns; i++) {
        t->head[i] = HEADS[i];
        t->right[i] = i == 3 || i == 4;
    }
    for (int k = 1; k < experiment_arms(&s->state.spec); k++) {
        struct gate_result got;
        claims_gate(&g, &s->state, k, &got);
        gate_rows(r, t, &g, &got, k);
    }
}
