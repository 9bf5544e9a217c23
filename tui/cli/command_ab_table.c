/* The table that `ab` prints of an experiment, with its notes and the lines that end it; `show` and `tune`
 * print it, too. */
#include <math.h>
#include <string.h>

#include "tui/cli/command_ab_arms.h"
#include "tui/cli/command_ab_claims.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/runs.h"

static const struct column COLUMNS[] = {
    { .name = "run", .kind = COLUMN_INT },
    { .name = "model" },
    { .name = "workload" },
    { .name = "metric" },
    { .name = "unit" },
    { .name = "arm", .title = "arm" },
    { .name = "config", .title = "config" },
    { .name = "arm_workload", .title = "workload" },
    { .name = "rate", .kind = COLUMN_NUM },
    METRIC_COLUMN(METRIC_PREFILL_RATE),
    METRIC_COLUMN(METRIC_DECODE_RATE),
    METRIC_COLUMN(METRIC_TTFT),
    METRIC_COLUMN(METRIC_ITL_P50),
    METRIC_COLUMN(METRIC_ITL_P95),
    METRIC_COLUMN(METRIC_ITL_P99),
    LOAD_METRIC_COLUMNS,
    METRIC_COLUMN(METRIC_PERPLEXITY),
    METRIC_COLUMN(METRIC_TRAIN_RATE),
    METRIC_COLUMN(METRIC_TRAIN_LOSS),
    METRIC_COLUMN(METRIC_PEAK_MEMORY),
    METRIC_COLUMN(METRIC_MEMORY_AFTER),
    METRIC_COLUMN(METRIC_SERVER_PREFILL_RATE),
    METRIC_COLUMN(METRIC_SERVER_DECODE_RATE),
    METRIC_COLUMN(METRIC_CHUNK_GAP),
    METRIC_COLUMN(METRIC_TOTAL_RATE),
    METRIC_COLUMN(METRIC_SEQUENCE_RATE),
    { .name = "energy_j_token", .title = "J/token", .kind = COLUMN_NUM, .digits = 3 },
    { .name = "energy_half_j_token", .title = "+-", .kind = COLUMN_NUM, .digits = 3 },
    { .name = "co2_g_token", .title = "CO2 mg/token", .kind = COLUMN_NUM, .scale = 1e3, .digits = 3 },
    { .name = "cells", .title = "cells", .kind = COLUMN_INT },
    { .name = "error", .title = "error" },
    { .name = "verdict", .title = "verdict" },
    { .name = "effect_ratio", .title = "x A", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "effect_lower_ratio", .kind = COLUMN_NUM },
    { .name = "effect_upper_ratio", .kind = COLUMN_NUM },
    { .name = "e_value", .kind = COLUMN_NUM },
    { .name = "p_anytime", .kind = COLUMN_NUM },
    { .name = "noise_floor_ratio", .kind = COLUMN_NUM },
    { .name = "margin_ratio", .kind = COLUMN_NUM },
    { .name = "blocks", .kind = COLUMN_INT },
    { .name = "discarded_blocks", .kind = COLUMN_INT },
    AB_CLAIM_COLUMNS,
    CAUTION_KEYS,
    { .name = "quality_text" },
    { .name = "quality_text_label", .title = "quality text" },
    { .name = "as_systems", .kind = COLUMN_BOOL },
};

DOCUMENT(AB, "qdyno.ab/1", COLUMNS);
/* `baseline check` prints the same rows. */
DOCUMENT(BASELINE_CHECK, "qdyno.baseline_check/1", COLUMNS,
         .members = "baseline.* run labels.* verdict reason");

struct interval ab_effect(const struct experiment_state *s)
{
    return experiment_change(s, experiment_headline(s)->effect);
}

static void table_add_arm(struct table *t, const struct experiment_state *s, int i)
{
    const struct experiment_arm *x = &s->arm[i];
    const struct metric *m = experiment_metric(&s->spec);
    char workload[640];
    json_t *row = table_row(t);
    cli_put_run(row, s->run_id);
    json_put_str(row, "model", *s->spec.model || !*x->model_name ? s->spec.model : x->model_name);
    json_put_str(row, "workload", workload_line(experiment_workload(&s->spec, i), workload, sizeof workload));
    if (s->spec.by_arm) json_put_str(row, "arm_workload", workload);
    json_put_bool(row, "as_systems", s->spec.as_systems);
    json_put_str(row, "metric", m->name);
    json_put_str(row, "unit", m->unit);
    json_put_str(row, "arm", (char[]){ (char)('A' + i), 0 });
    json_put_str(row, "config", x->line);
    json_put_num(row, "rate", x->rate);
    table_put_metrics(t, row, x->value);
    json_put_num(row, "energy_j_token", x->joules_per_token);
    json_put_num(row, "energy_half_j_token", x->joules_per_token_half);
    json_put_num(row, "co2_g_token", x->co2_g_per_token);
    json_put_int(row, "cells", x->cells);
    json_put_str(row, "error", *x->error ? x->error : NULL);
    cli_put_cautions(row, s->random_weights, s->answers_unverified);
    if (!i) return; /* arm A is the reference: it has no verdict */
    const struct comparison *c = experiment_comparison(s, i);
    const char *verdict = verdict_name(experiment_verdict(s, i));
    json_put_str(row, "verdict", *verdict ? verdict : NULL);
    const struct interval ratio = stats_exp(experiment_change(s, c->effect));
    json_put_num(row, "effect_ratio", ratio.estimate);
    json_put_num(row, "effect_lower_ratio", ratio.lower);
    json_put_num(row, "effect_upper_ratio", ratio.upper);
    json_put_num(row, "e_value", c->e);
    json_put_num(row, "p_anytime", c->p);
    json_put_num(row, "noise_floor_ratio", s->noise_floor);
    json_put_num(row, "margin_ratio", s->spec.margin);
    json_put_int(row, "blocks", c->blocks);
    json_put_int(row, "discarded_blocks", s->discarded);
    ab_claims_row(row, s, i);
}

static void note_comparison(struct table *t, const struct experiment_state *s, const struct comparison *c,
                            int arm)
{
    const struct metric *m = experiment_metric(&s->spec);
    const struct interval e = experiment_change(s, c->effect);
    const char *word = verdict_name(c == experiment_comparison(s, arm) ? experiment_verdict(s, arm)
                                                                       : c->verdict);
    if (isfinite(e.lower))
        table_detail(
            t, "%c against A, %s: %+.2f %% [%+.2f, %+.2f] (%.3g %% at every interim analysis)   %s%s",
            'A' + arm, m->name, stats_percent(e.estimate), stats_percent(e.lower), stats_percent(e.upper),
            100 * (1 - c->alpha), word, c->dropped ? " (dropped from the race)" : "");
    else
        table_detail(t, "%c against A, %s: %s", 'A' + arm, m->name,
                     *word ? word : "too few blocks for an interval");
    if (arm != MAX(s->headline, 1) && *c->reason) table_note(t, "%c: %s", 'A' + arm, c->reason);
}

/* E-value, and what common fixed-sample methods give. They are not part of the verdict. */
static void note_other_methods(struct table *t, const struct experiment_state *s)
{
    const struct comparison *c = experiment_headline(s);
    const struct interval f = experiment_change(s, c->fixed), h = experiment_change(s, c->hodges_lehmann);
    if (c->blocks < 2) return;
    table_detail(
        t,
        "evidence that the arms differ: e-value %.3g, and 20 proves it (from the signs alone %.3g); p %.2g, valid at "
        "every interim analysis",
        c->e, c->e_sign, c->p);
    if (isfinite(f.lower) && isfinite(h.lower))
        table_detail(
            t,
            "valid for a single analysis only: t [%+.2f, %+.2f] %%, Hodges-Lehmann %+.2f [%+.2f, %+.2f] %%, permutation p "
            "%.2g",
            stats_percent(f.lower), stats_percent(f.upper), stats_percent(h.estimate), stats_percent(h.lower),
            stats_percent(h.upper), c->permutation_p);
}

/* Whether other programs ran more beside one of the arms, where blocks ran in turns. */
static void note_reaction(struct table *t, const struct experiment_state *s)
{
    if (isnan(s->load_reacts)) return;
    table_detail(
        t,
        "tasks of other programs that were ready to run, while %c ran minus while A ran: %+.2f (p %.2g, valid at "
        "every interim analysis)%s",
        'A' + MAX(s->headline, 1), s->load_reacts, s->load_reacts_p,
        experiment_load_reacts(s)
            ? ": their activity depends on the arm, so a part of the difference may be theirs"
            : "");
}

/* Which blocks the verdict rests on, and what the other estimand says. */
static void note_blocks(struct table *t, const struct experiment_state *s)
{
    const struct comparison *c = experiment_headline(s);
    const struct machine_load *l = &s->load[s->estimand];
    const bool loaded = s->estimand == ESTIMAND_LOADED;
    char blocks[EXPERIMENT_BLOCKS_TEXT];
    table_detail(t, "%s%s; margin %.2f %%", loaded ? "speed on this machine as it is, with its load: " : "",
                 experiment_blocks_text(blocks, s), 100 * s->spec.margin);
    note_reaction(t, s);
    if (!s->disturbed) return;
    if (loaded && isfinite(l->others_busy)) {
        char stalled[96] = "";
        if (isfinite(l->stalled))
            snprintf(stalled, sizeof stalled, "; a task waited for a processor %.0f %% of the time",
                     100 * l->stalled);
        table_detail(
            t, "load meanwhile: other programs used %.0f %% of the processors, the hypervisor %.1f %%%s",
            100 * l->others_busy, isfinite(l->steal) ? 100 * l->steal : 0, stalled);
    }
    const enum estimand other = loaded ? ESTIMAND_QUIET : ESTIMAND_LOADED;
    const struct estimand_result *o = &c->by_estimand[other];
    const struct interval e = experiment_change(s, o->effect);
    if (isfinite(e.lower))
        table_detail(t, "%s, from %d block%s: %+.2f %% [%+.2f, %+.2f]",
                     loaded ? "undisturbed" : "as the machine is", o->blocks, str_plural(o->blocks),
                     stats_percent(e.estimate), stats_percent(e.lower), stats_percent(e.upper));
    else
        table_detail(t, "%s: too few blocks (%d) for an interval",
                     loaded ? "undisturbed" : "as the machine is", o->blocks);
}

static void note_effect(struct table *t, const struct experiment_state *s)
{
    char noise[EXPERIMENT_BLOCKS_TEXT], ratio[RATIO_TEXT];
    for (int k = 1; k < s->spec.arms; k++) {
        if (*experiment_ratio_text(ratio, s, k)) table_note(t, "%s", ratio);
        note_comparison(t, s, &s->comparison[k], k);
    }
    if (s->confirming) {
        table_note(t, "confirmation of the winner, %c, on %d further block%s:", 'A' + s->headline,
                   s->confirmation.blocks, str_plural(s->confirmation.blocks));
        note_comparison(t, s, &s->confirmation, s->headline);
    }
    /* the reason of the run is that of its headline arm, or holds for all arms */
    const char *reason = *s->reason ? s->reason : experiment_headline(s)->reason;
    if (*reason && s->spec.arms > 2 && s->verdict != VERDICT_INVALID)
        table_note(t, "%c: %s", 'A' + MAX(s->headline, 1), reason);
    else if (*reason)
        table_note(t, "%s", reason);
    if (*s->spec.workload.eval_file && !s->complete) { /* the same every time: there are no blocks */
        table_note(t, "computed once for each arm and compared token by token; margin %.2f %%",
                   100 * s->spec.margin);
        return;
    }
    ab_arms_note(t, s);
    note_other_methods(t, s);
    if (isfinite(s->noise_floor))
        table_detail(t, "noise: A against itself +-%.2f %% (A/A control, %d block%s%s)%s",
                     stats_percent(s->noise_floor), s->control_blocks, str_plural(s->control_blocks),
                     experiment_noise_text(noise, s, MAX(s->headline, 1)),
                     s->control_failed
                         ? "; FAILED: equal configs differ, so this machine is not fit to measure now"
                         : "");
    else
        table_detail(t, "no A/A control");
    note_blocks(t, s);
}

/* Whether an event changes what the figures mean: then it is printed always. All others describe the course
 * of the run, and are printed with --verbose. current: of the session that measured last. */
static bool event_matters(const struct experiment_state *s, const char *kind, bool current)
{
    static const char *const KINDS[] = { "arm", "engine", "load", "continue", "windows", RUN_PROMPT_EVENT };
    const bool open = s->verdict == VERDICT_NONE || s->verdict == VERDICT_INCONCLUSIVE;
    if (!strcmp(kind, "budget")) return open && current; /* what a short budget kept from being decided */
    if (!strcmp(kind, "quality")) /* why it is unknown; known figures have notes of their own */
        for (int k = 1; k < s->spec.arms; k++)
            if (!s->comparison[k].quality.known && !s->comparison[k].quality.bytes.pieces) return true;
    for (size_t i = 0; i < COUNT_OF(KINDS); i++)
        if (!strcmp(kind, KINDS[i])) return true;
    return false;
}

/* A continued run says again where its prompts come from. */
static bool event_was_told(const struct experiment_state *s, int i)
{
    if (strcmp(s->event[i].kind, RUN_PROMPT_EVENT)) return false;
    for (int k = 0; k < i; k++)
        if (!strcmp(s->event[k].text, s->event[i].text)) return true;
    return false;
}

/* The lines that end the output. What holds for the run, and not for one arm, is taken from the headline arm.
 */
static void close_table(struct table *t, const struct experiment_state *s)
{
    struct experiment_closing c;
    for (int i = 1; i < s->spec.arms; i++) {
        experiment_closing(&c, s, i);
        table_result(t, "%s", c.result);
    }
    experiment_closing(&c, s, MAX(s->headline, 1));
    if (*c.evidence) table_closing(t, "%s", c.evidence);
    if (*c.conditions) table_closing(t, "%s", c.conditions);
    if (*c.next) table_next(t, "%s", c.next);
}

void ab_table_fill(struct table *t, const struct experiment_state *s)
{
    table_init(t, &DOCUMENT_AB);
    table_keep(
        t, "arm config decode_tok_s prefill_tok_s peak_rss_bytes kld_mean error verdict effect_ratio gate");
    if (s->phase == PHASE_FAILED && !s->run_id) { /* there are no numbers that sentences could be about */
        table_headline(t, "nothing was measured: %s", s->error);
        for (int i = 0; i < s->spec.arms; i++) table_add_arm(t, s, i);
        cli_note_run(t, 0);
        return;
    }
    for (int i = 0; i < s->spec.arms; i++) table_add_arm(t, s, i);
    note_effect(t, s);
    ab_claims_note(t, s);
    int session = 0; /* its first event */
    for (int i = 0; i < s->events; i++)
        if (!strcmp(s->event[i].kind, "resume")) session = i;
    for (int i = 0; i < s->events; i++) {
        char when[32];
        if (event_was_told(s, i)) continue;
        if (event_matters(s, s->event[i].kind, i >= session)) table_note(t, "%s", s->event[i].text);
        table_detail(t, "  %s  %s", clock_iso8601(s->event[i].unix_ms, when, sizeof when), s->event[i].text);
    }
    if (s->phase == PHASE_FAILED) table_note(t, "failed: %s", s->error);
    cli_note_cautions(t, s->random_weights, s->answers_unverified);
    cli_note_run(t, s->run_id);
    close_table(t, s);
}
