/* tui/report/claims.c - what goes beyond the compared metric: quality, the gate, and all axes together. */
#include "tui/report/content.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"

static const char *figure(struct report *r, double v, const char *format)
{
    char text[64];
    if (!isfinite(v)) return "unknown";
    /* formats are this file's own: "%.3g" and the like */
    if (!strcmp(format, "%.5f"))
        snprintf(text, sizeof text, "%.5f", v);
    else
        snprintf(text, sizeof text, "%.3g", v);
    return content_printf(r, "%s", text);
}

static const char *with_bounds(struct report *r, struct interval i, const char *format)
{
    if (!isfinite(i.estimate)) return "unknown";
    if (!isfinite(i.lower) || !isfinite(i.upper)) return figure(r, i.estimate, format);
    return content_printf(r, "%s (%s to %s)", figure(r, i.estimate, format), figure(r, i.lower, format),
                          figure(r, i.upper, format));
}

void joint_sentences(struct report *r, const struct report_source *s)
{
    struct joint j;
    claims_joint(&j, &s->state);
    for (int k = 1; k < report_arms(s) && k < JOINT_ARMS; k++)
        if (!s->state.arm[k].failed && *j.sentence[k])
            content_add(r, CONTENT_TEXT,
                        content_printf(r, "%s, all axes together: %s.", report_arm_name(k),
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
    row->cell[1] = with_bounds(r, q->kld, "%.3g");
    row->cell[2] = figure(r, d->kld_p99, "%.3g");
    row->cell[3] = isfinite(q->top1.estimate) ? content_printf(r, "%.2f %%", 100 * q->top1.estimate)
                                              : "unknown";
    row->cell[4] = with_bounds(r, q->ppl_ratio, "%.5f");
    row->cell[5] = figure(r, q->mcnemar_p, "%.3g");
}

static void divergence_table(struct report *r, const struct report_source *s, const struct quality *q)
{
    static const char *const HEADS[] = {
        "arm", "KL divergence, nats", "p99", "same top token", "perplexity ratio", "McNemar p"
    };
    struct content_table *t = content_table(
        r,
        content_printf(
            r,
            "What each arm's predictions lose against A's, on %s in windows of %d tokens (95 %% over windows). A "
            "divergence of 0 and a ratio of 1 are no loss.",
            content_plain(r, q->text), q->ctx),
        COUNT_OF(HEADS));
    for (int i = 0; i < t->columns; i++) {
        t->head[i] = HEADS[i];
        t->right[i] = i > 0;
    }
    for (int k = 1; k < report_arms(s); k++) divergence_row(r, s, t, k);
}

void section_quality(struct report *r, const struct report_source *s)
{
    const struct quality *known = NULL;
    bool perplexity = false;
    content_add(r, CONTENT_SECTION, "Quality");
    for (int k = 1; k < report_arms(s) && !known; k++)
        if (s->state.comparison[k].quality.known) known = &s->state.comparison[k].quality;
    for (int a = 0; a < report_arms(s); a++) perplexity = perplexity || isfinite(s->state.arm[a].perplexity);
    if (known)
        divergence_table(r, s, known);
    else if (*s->state.spec.quality_file)
        content_add(r, CONTENT_TEXT, "Asked for, but not measured: the run ended before.");
    else if (perplexity)
        content_add(r, CONTENT_TEXT, "Perplexity is in the table of the arms.");
    else
        content_add(r, CONTENT_TEXT,
                    "Not measured in this run: nothing here says what a configuration does to the answers.");
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
        row->cell[3] = with_bounds(r, shown, "%.3g");
        row->cell[4] = figure(r, from->bound, "%.3g");
        row->cell[5] = content_plain(r, from->reason);
    }
}

void section_gate(struct report *r, const struct report_source *s)
{
    static const char *const HEADS[] = { "arm", "condition", "outcome", "measured", "bound", "because" };
    struct gate g;
    if (!*s->state.spec.gate) return;
    content_add(r, CONTENT_SECTION, "Gate");
    if (gate_parse(&g, s->state.spec.gate, NULL)) {
        content_add(r, CONTENT_TEXT,
                    content_printf(r, "The condition `%s` cannot be read by this version.",
                                   content_plain(r, s->state.spec.gate)));
        return;
    }
    content_add(r, CONTENT_TEXT,
                content_printf(r, "What had to hold: `%s`. All arms together: %s.",
                               content_plain(r, s->state.spec.gate),
                               gate_outcome_name(claims_gate_all(&g, &s->state))));
    struct content_table *t = content_table(r, "A condition passes when the whole interval satisfies it.",
                                            COUNT_OF(HEADS));
    for (int i = 0; i < t->columns; i++) {
        t->head[i] = HEADS[i];
        t->right[i] = i == 3 || i == 4;
    }
    for (int k = 1; k < report_arms(s); k++) {
        struct gate_result got;
        claims_gate(&g, &s->state, k, &got);
        gate_rows(r, t, &g, &got, k);
    }
}
