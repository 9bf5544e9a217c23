/* story.c - the run in about five sentences, at the top of a report: what was compared, the result, quality,
 * memory and energy, and how noisy the machine was. */

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "telemetry/metrics/metrics.h"
#include "tui/report/content.h"
#include "tui/widgets/widgets.h"

static void put_compared(struct report *r, const struct report_source *s, struct str *out)
{
    const struct experiment_state *x = &s->state;
    char line[600], arm[CONFIG_LINE + WORKLOAD_LINE];
    const char *model = content_plain(r, x->arm[0].model_name);
    str_printf(out, "%d configurations%s%s were compared on the workload `%s`%s%s: ",
               experiment_arms(&s->state.spec), *model ? " of " : "", model,
               content_plain(r, experiment_workload_line(&x->spec, line, sizeof line)),
               s->machine_known ? ", on a machine with " : "",
               s->machine_known ? content_plain(r, s->machine.cpu) : "");
    for (int a = 0; a < experiment_arms(&s->state.spec); a++)
        str_printf(out, "%s%s (`%s`)", a ? a + 1 == experiment_arms(&s->state.spec) ? " and " : ", " : "",
                   report_arm_name(a), content_plain(r, experiment_arm_line(x, a, arm, sizeof arm)));
    str_append(out, ".");
    if (x->spec.as_systems)
        str_append(out, " They do different work and were compared as systems: by what each delivers.");
}

/* Training changes the weights on purpose, so a divergence from A says nothing about its quality. */
static void put_quality(struct report *r, const struct report_source *s, struct str *out)
{
    const struct quality *q = &s->state.comparison[MAX(s->state.headline, 1)].quality;
    char text[TEXT_LABEL];
    if (s->state.spec.workload.train) return;
    if (!q->known) return; /* the sentence before says so */
    str_printf(out,
               " On %s, its predictions differ from those of A by a KL divergence of %.2g nats per token "
               "and name the same most likely token at %.1f %% of all positions.",
               content_plain(r, quality_text_label(text, q->text, q->text_sha256)), q->kld.estimate,
               100 * q->top1.estimate);
    if (quality_text_is_bundled(q->text_sha256) && !model_is_bundled(s->state.spec.model))
        str_append(
            out,
            " Those are simple English for children: `qdyno eval -f TEXT --set-text` sets a text that is "
            "more like yours.");
}

/* What the speed costs in memory and energy. What was not measured is called unknown, not left out. */
static void put_costs(struct report *r, const struct report_source *s, struct str *out)
{
    const struct experiment_state *x = &s->state;
    int memory = 0, energy = 0;
    (void)r;
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) {
        const int64_t bytes = metric_bytes(x->arm[a].value[METRIC_PEAK_MEMORY]);
        if (bytes < 0) continue;
        str_printf(out, "%s %s %s", memory++ ? "," : " Peak memory:", report_arm_name(a),
                   figure_bytes(bytes).text);
    }
    if (memory) str_append(out, ";");
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) {
        if (!isfinite(x->arm[a].joules_per_token)) continue;
        str_printf(out, "%s %s %s",
                   energy++ ? ","
                   : memory ? " energy per token:"
                            : " Energy per token:",
                   report_arm_name(a), figure_number(x->arm[a].joules_per_token).text);
        if (isfinite(x->arm[a].joules_per_token_half))
            str_printf(out, " ± %s", figure_number(x->arm[a].joules_per_token_half).text);
        str_append(out, " J");
        if (isfinite(x->arm[a].co2_g_per_token))
            str_printf(out, " (%s g of CO2)", figure_number(x->arm[a].co2_g_per_token).text);
    }
    str_append(out, energy ? "." : memory ? " energy is unknown." : " Memory and energy are unknown.");
}

/* Closes with what limits the result: noise, and blocks that other programs disturbed. The words differ by
 * estimand, because on a loaded machine disturbed blocks count. */
static void put_noise(const struct report_source *s, struct str *out)
{
    const struct experiment_state *x = &s->state;
    const int measured = x->blocks + x->discarded;
    if (isfinite(x->noise_floor))
        str_printf(out, " A compared with itself differed by up to %.3g %%", stats_percent(x->noise_floor));
    else
        str_append(out, " How large random differences are here is unknown");
    if (!measured && !x->complete)
        str_append(out, "; no block of the comparison was completed.");
    else if (x->estimand == ESTIMAND_LOADED)
        str_printf(out, "; other work disturbed %d of %d block%s, and all count.", x->disturbed,
                   MAX(x->complete, x->disturbed), str_plural(MAX(x->complete, x->disturbed)));
    else
        str_printf(out, "; other work disturbed %d of %d block%s, which %s not count.", x->discarded,
                   measured, str_plural(measured), x->discarded == 1 ? "does" : "do");
}

void section_story(struct report *r, const struct report_source *s)
{
    struct str out = { 0 };
    char sentence[1200];
    put_compared(r, s, &out);
    content_add(r, CONTENT_TEXT, content_printf(r, "%s", str_text(&out)));
    str_clear(&out);
    experiment_sentence(sentence, sizeof sentence, &s->state, MAX(s->state.headline, 1));
    str_append(&out, content_plain(r, sentence));
    if (!str_ends(sentence, ".")) str_append(&out, ".");
    put_quality(r, s, &out);
    put_costs(r, s, &out);
    put_noise(s, &out);
    content_add(r, CONTENT_TEXT, content_printf(r, "%s", str_text(&out)));
    str_free(&out);
}
