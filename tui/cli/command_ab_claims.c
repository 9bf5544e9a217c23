/* command_ab_claims.c - see ab_claims.h. */
#include "tui/cli/command_ab_claims.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/experiment/experiment.h"
#include "engine/eval/eval.h"

enum { CHUNKS = 64, GATES = 32 };
_Static_assert((int)GATE_PASS == EXIT_DONE && (int)GATE_FAIL == EXIT_WORSE &&
                   (int)GATE_UNDECIDED == EXIT_INCONCLUSIVE && (int)GATE_INVALID == EXIT_INVALID,
               "outcomes of a gate are exit statuses");

/* ---------------------------------------------------------------- flags */

static enum err_code quality_set_file(struct experiment_spec *s, const char *given, struct err *why)
{
    char *bundled = NULL;
    enum err_code rc = *given ? ERR_OK : file_share(&bundled, EVAL_TEXT, why);
    const char *path = bundled ? bundled : given;
    if (!rc && strlen(path) >= sizeof s->quality_file)
        rc = err_set(why, ERR_USAGE, "--quality: the path is longer than %zu bytes",
                     sizeof s->quality_file - 1);
    if (!rc && access(path, R_OK))
        rc = err_set(why, ERR_IO, "--quality=%s: cannot be read: %s", path, strerror(errno));
    if (!rc) snprintf(s->quality_file, sizeof s->quality_file, "%s", path);
    free(bundled);
    return rc;
}

/* Joins several --gate by "and". Each is parsed alone first, so that an error position refers to what the
 * user typed. */
static enum err_code gate_set(struct experiment_spec *s, struct gate *g, const char *const *text, int n,
                              struct err *why)
{
    struct str all = { 0 };
    enum err_code rc = ERR_OK;
    for (int i = 0; i < n && !rc; i++) {
        rc = gate_parse(g, text[i], why);
        str_printf(&all, n > 1 ? "%s(%s)" : "%s%s", i ? " and " : "", text[i]);
    }
    if (!rc && n > 1) rc = gate_parse(g, str_text(&all), why);
    if (!rc) snprintf(s->gate, sizeof s->gate, "%s", str_text(&all));
    str_free(&all);
    return rc ? err_prefix(why, "--gate") : ERR_OK;
}

enum err_code ab_claims_spec(struct experiment_spec *s, const struct cli_args *a, struct err *why)
{
    const char *gates[GATES];
    struct gate g = { 0 };
    const int n = args_all(a, "--gate", gates, GATES);
    enum err_code rc = n ? gate_set(s, &g, gates, n, why) : ERR_OK;
    const bool wanted = args_has(a, "--quality") || gate_needs_quality(&g);
    if (!rc && wanted && s->workload.train)
        rc = err_set(
            why, ERR_USAGE,
            "--quality and quality gates need arms that run a model: arms that train have no quality to compare");
    if (!rc && wanted) rc = quality_set_file(s, args_text(a, "--quality", ""), why);
    if (rc || s->resume_id) return rc; /* a resumed run has its own values */
    s->quality_ctx = (int)args_int(a, "--quality-ctx", 0);
    s->quality_chunks = (int)args_int(a, "--quality-chunks", CHUNKS);
    s->kld_margin = args_num(a, "--kld-margin", KLD_MARGIN);
    if (!*s->quality_file && (args_has(a, "--quality-ctx") || args_has(a, "--quality-chunks")))
        return err_set(why, ERR_USAGE,
                       "--quality-ctx and --quality-chunks need --quality, the measurement they limit");
    return ERR_OK;
}

/* ---------------------------------------------------------------- output */

static int state_arms(const struct experiment_state *s)
{
    return s->spec.arms ? s->spec.arms : 2;
}

/* Parses the gate of the run. False if there is none, or one that only a later version can parse. */
static bool state_gate(struct gate *g, const struct experiment_state *s)
{
    return *s->spec.gate && !gate_parse(g, s->spec.gate, NULL);
}

void ab_claims_row(json_t *row, const struct experiment_state *s, int arm)
{
    const struct quality *q = &s->comparison[arm].quality;
    struct gate g;
    struct joint j;
    if (!arm) return;
    if (q->known) {
        json_put_num(row, "kld_mean", q->kld.estimate);
        json_put_num(row, "kld_lower", q->kld.lower);
        json_put_num(row, "kld_upper", q->kld.upper);
        json_put_num(row, "top1_ratio", q->top1.estimate);
        json_put_num(row, "ppl_ratio", q->ppl_ratio.estimate);
    }
    if (state_gate(&g, s)) {
        struct gate_result r;
        claims_gate(&g, s, arm, &r);
        json_put_str(row, "gate", gate_outcome_name(r.outcome));
    }
    claims_joint(&j, s);
    json_put_str(row, "joint", joint_relation_name(j.relation[arm][0]));
}

static void note_quality(struct table *t, const struct experiment_state *s, int arm)
{
    const struct quality *q = &s->comparison[arm].quality;
    const struct divergence *d = &q->figures;
    const struct greedy_divergence *g = &d->greedy;
    if (!q->known) return;
    table_note(
        t,
        "%c quality (%s, %lld windows of %d): KLD %.3g [%.3g, %.3g], p99 %.3g, max %.3g; same top-1 %.2f %%; "
        "perplexity %.4f against %.4f, ratio %.5f [%.5f, %.5f]",
        'A' + arm, q->text, (long long)d->candidate.chunks, q->ctx, q->kld.estimate, q->kld.lower,
        q->kld.upper, d->kld_p99, d->kld_max, 100 * q->top1.estimate, q->ppl.estimate, d->reference.ppl,
        q->ppl_ratio.estimate, q->ppl_ratio.lower, q->ppl_ratio.upper);
    table_note(
        t,
        "  most likely token right only in A: %lld, only in %c: %lld, McNemar p %.3g; greedy texts of %d tokens "
        "differ for %d of %d prompts",
        (long long)d->only_reference_right, 'A' + arm, (long long)d->only_candidate_right, q->mcnemar_p,
        g->limit, g->diverged, g->prompts);
}

static void note_gate(struct table *t, const struct experiment_state *s, const struct gate *g, int arm)
{
    struct gate_result r;
    claims_gate(g, s, arm, &r);
    table_note(t, "%c gate: %s", 'A' + arm, gate_outcome_name(r.outcome));
    for (int i = 0; i < r.terms; i++) {
        const struct gate_row *x = &r.row[i];
        struct str line = { 0 };
        str_printf(&line, "  %-9s  %s", gate_outcome_name(x->outcome), g->term[i].text);
        if (isfinite(x->value)) str_printf(&line, ": %.6g", x->value);
        if (isfinite(x->interval.lower) && x->interval.lower < x->interval.upper)
            str_printf(&line, " [%.6g, %.6g]", x->interval.lower, x->interval.upper);
        if (isfinite(x->value) && isfinite(x->bound)) str_printf(&line, ", bound %.6g", x->bound);
        if (*x->reason) str_printf(&line, ": %s", x->reason);
        table_note(t, "%s", str_text(&line));
        str_free(&line);
    }
}

static void note_front(struct table *t, const struct joint *j)
{
    struct str yes = { 0 }, open = { 0 };
    for (int i = 0; i < j->arms; i++)
        if (j->front[i] != FRONT_NO) {
            struct str *to = j->front[i] == FRONT_YES ? &yes : &open;
            str_printf(to, "%s%c", to->len ? ", " : "", 'A' + i);
        }
    table_note(t, "Pareto front: %s%s%s", yes.len ? str_text(&yes) : "no arm for certain",
               open.len ? "; undecided: " : "", str_text(&open));
    str_free(&yes);
    str_free(&open);
}

void ab_claims_note(struct table *t, const struct experiment_state *s)
{
    struct gate g;
    struct joint j;
    const bool gated = state_gate(&g, s);
    claims_joint(&j, s);
    for (int k = 1; k < state_arms(s); k++) {
        if (s->arm[k].failed) continue;
        note_quality(t, s, k);
        table_note(t, "%s", j.sentence[k]);
        if (gated) note_gate(t, s, &g, k);
    }
    if (state_arms(s) > 2) note_front(t, &j);
    if (*s->spec.gate && !gated) table_note(t, "this version cannot parse the gate '%s'", s->spec.gate);
}

int ab_claims_status(const struct experiment_state *s, int status)
{
    struct gate g;
    if (!state_gate(&g, s)) return status;
    for (int i = 0; i < state_arms(s); i++)
        if (s->arm[i].failed) return status; /* the error decides: a missing file fails no gate */
    return s->phase == PHASE_FAILED ? status : (int)claims_gate_all(&g, s);
}
