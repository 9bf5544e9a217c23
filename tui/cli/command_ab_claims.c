/* command_ab_claims.c - see ab_claims.h. */
#include "tui/cli/command_ab_claims.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tui/cli/lib/lib.h"
#include "tui/cli/lib/gates.h"

/* ---------------------------------------------------------------- flags */

/* The model that decides which text is the default: that of A, the reference. */
static const char *reference_model(const struct experiment_spec *s)
{
    const char *own = config_text(&s->config[0], KNOB_MODEL);
    return *own ? own : s->model;
}

static enum err_code quality_set_file(struct experiment_spec *s, const struct cli_global *g,
                                      const char *given, struct err *why)
{
    char *usual = NULL;
    enum err_code rc = *given ? ERR_OK : cli_quality_text(&usual, g, reference_model(s), why);
    const char *path = usual ? usual : given;
    if (!rc && strlen(path) >= sizeof s->quality_file)
        rc = err_set(why, ERR_USAGE, "--quality: the path is longer than %zu bytes",
                     sizeof s->quality_file - 1);
    if (!rc && access(path, R_OK))
        rc = err_set(why, err_of_errno(errno), "--quality=%s: cannot be read: %s", path, strerror(errno));
    if (!rc) snprintf(s->quality_file, sizeof s->quality_file, "%s", path);
    free(usual);
    return rc;
}

static void quality_follow_workload(struct experiment_spec *s, const struct cli_global *g, bool own_chunks)
{
    struct quality_context c;
    char text[QUALITY_CONTEXT_TEXT];
    experiment_quality_follow(&c, s, own_chunks);
    if (*quality_context_text(text, &c)) cli_note(g, "%s", text);
    if (c.ctx > QUALITY_CTX)
        cli_note(g, "quality is measured in %d window%s of %d tokens%s (--quality-ctx N sets another length)",
                 s->quality_chunks, str_plural(s->quality_chunks), c.ctx,
                 c.ctx == c.wanted ? ", as long as the workload" : "");
}

enum err_code ab_claims_spec(struct experiment_spec *s, const struct cli_global *g, const struct cli_args *a,
                             struct err *why)
{
    struct gate gate;
    enum err_code rc = cli_gate(&gate, a, why);
    if (!rc && gate.terms) snprintf(s->gate, sizeof s->gate, "%s", gate.text);
    const bool wanted = args_has(a, "--quality") || gate_needs_quality(&gate);
    if (!rc && wanted && s->workload.train)
        rc = err_set(
            why, ERR_USAGE,
            "--quality and quality gates need arms that run a model: arms that train have no quality to compare");
    if (!rc && wanted) rc = quality_set_file(s, g, args_text(a, "--quality", ""), why);
    if (rc || s->resume_id) return rc; /* a resumed run has its own values */
    s->quality_ctx = (int)args_int(a, "--quality-ctx", 0);
    s->quality_chunks = (int)args_int(a, "--quality-chunks", QUALITY_CHUNKS);
    s->quality_least = args_has(a, "--quality-chunks") ? 0 : QUALITY_LEAST;
    if (!args_has(a, "--quality-ctx")) quality_follow_workload(s, g, args_has(a, "--quality-chunks"));
    s->kld_margin = args_num(a, "--kld-margin", KLD_MARGIN);
    if (!*s->quality_file && (args_has(a, "--quality-ctx") || args_has(a, "--quality-chunks")))
        return err_set(why, ERR_USAGE,
                       "--quality-ctx and --quality-chunks need --quality, the measurement they limit");
    return ERR_OK;
}

/* ---------------------------------------------------------------- output */

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
        row_put_metric(row, METRIC_KLD, q->kld.estimate);
        json_put_num(row, "kld_lower", q->kld.lower);
        json_put_num(row, "kld_upper", q->kld.upper);
        json_put_num(row, "top1_ratio", q->top1.estimate);
        json_put_num(row, "ppl_ratio", q->ppl_ratio.estimate);
        char label[TEXT_LABEL];
        json_put_str(row, "quality_text", q->text);
        json_put_str(row, "quality_text_label", quality_text_label(label, q->text, q->text_sha256));
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
    char text[TEXT_LABEL];
    if (q->bytes.pieces) {
        table_note(
            t,
            "%c quality (%s, %lld pieces, %lld bytes scored): %.4f bits per byte against %.4f, difference "
            "%+.4f [%+.4f, %+.4f]; no KLD: %s",
            'A' + arm, quality_text_label(text, q->text, q->text_sha256), (long long)q->bytes.pieces,
            (long long)q->bytes.bytes, q->bytes.candidate, q->bytes.reference, q->bytes.change,
            q->bits_change.lower, q->bits_change.upper, q->missing);
        return;
    }
    if (!q->known) return;
    cli_note_text(t, s->spec.model, q->text_sha256);
    table_note(
        t,
        "%c quality (%s, %lld window%s of %d tokens): KLD %.3g [%.3g, %.3g], p99 %.3g, max %.3g; same top-1 %.2f %%; "
        "perplexity %.4f against %.4f, ratio %.5f [%.5f, %.5f]",
        'A' + arm, quality_text_label(text, q->text, q->text_sha256), (long long)d->candidate.chunks,
        str_plural(d->candidate.chunks), q->ctx, q->kld.estimate, q->kld.lower, q->kld.upper, d->kld_p99,
        d->kld_max, 100 * q->top1.estimate, q->ppl.estimate, d->reference.ppl, q->ppl_ratio.estimate,
        q->ppl_ratio.lower, q->ppl_ratio.upper);
    table_detail(
        t,
        "  most likely token right only in A: %lld, only in %c: %lld, McNemar p %.3g; greedy texts of %d tokens "
        "differ for %d of %d prompt%s",
        (long long)d->only_reference_right, 'A' + arm, (long long)d->only_candidate_right, q->mcnemar_p,
        g->limit, g->diverged, g->prompts, str_plural(g->prompts));
}

static void note_front(struct table *t, const struct joint *j)
{
    struct str yes = { 0 }, open = { 0 };
    for (int i = 0; i < j->arms; i++)
        if (j->front[i] != FRONT_NO) {
            struct str *to = j->front[i] == FRONT_YES ? &yes : &open;
            str_printf(to, "%s%c", to->len ? ", " : "", 'A' + i);
        }
    table_note(t, "arms that no other arm beats in everything that was measured (Pareto front): %s%s%s",
               yes.len ? str_text(&yes) : "none is proven to be one", open.len ? "; undecided: " : "",
               str_text(&open));
    str_free(&yes);
    str_free(&open);
}

void ab_claims_note(struct table *t, const struct experiment_state *s)
{
    struct gate g;
    struct joint j;
    const bool gated = state_gate(&g, s);
    claims_joint(&j, s);
    for (int k = 1; k < experiment_arms(&s->spec); k++) {
        if (s->arm[k].failed) continue;
        note_quality(t, s, k);
        if (gated) {
            struct gate_result r;
            claims_gate(&g, s, k, &r);
            cli_note_gate(t, (char[]){ (char)('A' + k), 0 }, &g, &r);
        }
    }
    if (experiment_arms(&s->spec) > 2) note_front(t, &j);
    if (*s->spec.gate && !gated) table_note(t, "this version cannot parse the gate '%s'", s->spec.gate);
}

/* Whether a gate decides: an error does before any gate, because a missing file fails no gate. */
static bool gate_decides(struct gate *g, const struct experiment_state *s)
{
    for (int i = 0; i < experiment_arms(&s->spec); i++)
        if (s->arm[i].failed) return false;
    return s->phase != PHASE_FAILED && state_gate(g, s);
}

const char *ab_claims_outcome(const struct experiment_state *s)
{
    struct gate g;
    return gate_decides(&g, s) ? gate_outcome_name(claims_gate_all(&g, s)) : NULL;
}

int ab_claims_status(const struct experiment_state *s, int status)
{
    struct gate g;
    return gate_decides(&g, s) ? (int)claims_gate_all(&g, s) : status;
}
