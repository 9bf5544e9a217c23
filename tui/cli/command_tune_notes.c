/* tui/cli/command_tune_notes.c - see command_tune_notes.h. */
#include "tui/cli/command_tune_notes.h"

#include <math.h>
#include <string.h>

#include "tui/cli/command_show_result.h"

void tune_note_passed(struct table *t, const struct tune_result *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_passed; i++) {
        const struct tune_passed *p = &r->passed[i];
        json_t *o = list_row(list);
        json_put_str(o, "config", p->line);
        json_put_num(o, "tok_s", p->rate);
        json_put_str(o, "why", p->why);
        table_note(t, "not compared: %s (%.1f tok/s): %s", p->line, p->rate, p->why);
    }
    json_put(t->extra, "not_compared", list);
}

void tune_close_conditions(struct table *out, const struct tune_result *r, const char *db_path)
{
    struct str text = { 0 };
    struct db *d = NULL;
    if (r->blocks && isfinite(r->load.others_busy)) {
        table_closing(out,
                      "conditions: %d of %d block%s disturbed; other programs used %.0f %% of the CPU time",
                      r->load.blocks - r->load.undisturbed, r->load.blocks, str_plural(r->load.blocks),
                      100 * r->load.others_busy);
        return;
    }
    if (!r->run_id || db_open(&d, db_path, NULL)) return;
    show_conditions_text(&text, d, r->run_id);
    table_closing(out, "conditions: %s", str_text(&text));
    str_free(&text);
    db_close(d);
}

#define CANDIDATE(member, name, KIND) JSON_FIELD(struct tune_candidate, member, name, KIND)
static const struct json_field CANDIDATE_FIELDS[] = {
    CANDIDATE(line, "config", TEXT),
    CANDIDATE(predicted, "predicted_tok_s", NUM),
    CANDIDATE(rate, "tok_s", NUM),
    CANDIDATE(normalized_rate, "usual_tok_s", NUM),
    CANDIDATE(normalized_sd, "usual_sd", NUM),
    CANDIDATE(timings, "looks", INT),
    CANDIDATE(memory_bytes, "bytes", COUNT),
    CANDIDATE(kld, "kld", NUM),
    CANDIDATE(ppl_ratio, "ppl_ratio", NUM),
    CANDIDATE(accuracy_change, "accuracy_change", NUM),
    CANDIDATE(accuracy_lower, "accuracy_lower", NUM),
    CANDIDATE(accuracy_upper, "accuracy_upper", NUM),
    CANDIDATE(score, "score", NUM),
    CANDIDATE(error, "error", TEXT),
    CANDIDATE(bits, "bits_per_weight", NUM),
    CANDIDATE(rate_interval.lower, "tok_s_lower", NUM),
    CANDIDATE(rate_interval.upper, "tok_s_upper", NUM),
    CANDIDATE(kld_interval.lower, "kld_lower", NUM),
    CANDIDATE(kld_interval.upper, "kld_upper", NUM),
    CANDIDATE(front, "front", BOOL),
    CANDIDATE(knee, "knee", BOOL),
};

/* Lists the first candidates whose speed was measured. */
void tune_note_tried(struct table *t, const struct tune_result *r)
{
    enum { SHOWN = 8, NAMES_MOST = 60 };
    int names = 20;
    static const double VISIBLE = 0.01; /* smallest ln ratio of two rates worth printing */
    json_t *tried = json_array();
    for (int i = 0; i < MIN(r->n_seen, SHOWN); i++)
        names = MIN(MAX(names, (int)strlen(r->seen[i].line)), NAMES_MOST);
    for (int i = 0; i < r->n_seen; i++) {
        const struct tune_candidate *c = &r->seen[i];
        char bytes[16], kld[32] = "not measured", usually[48] = "", answers[96] = "";
        json_t *row = list_row(tried);
        json_put_fields(row, CANDIDATE_FIELDS, COUNT_OF(CANDIDATE_FIELDS), c);
        if (*r->reference) json_put_str(row, "target", r->target.asked ? gate_outcome_name(c->target) : NULL);
        if (i >= SHOWN || *r->reference) continue; /* variants have a list of their own */
        if (!c->timings) {
            table_note(t, "  %-*s failed: %s", names, c->line, c->error);
            continue;
        }
        if (!isnan(c->kld)) snprintf(kld, sizeof kld, "%.2g", c->kld);
        if (r->asked && !isnan(c->accuracy_lower))
            snprintf(answers, sizeof answers, "  right answers %+.2f %% [%+.2f, %+.2f]",
                     100 * c->accuracy_change, 100 * c->accuracy_lower, 100 * c->accuracy_upper);
        if (fabs(log(c->normalized_rate / c->rate)) > VISIBLE)
            snprintf(usually, sizeof usually, " (%.1f at usual machine speed)", c->normalized_rate);
        table_note(t, "  %-*s %10.1f tok/s%s  %7s  KLD %s%s", names, c->line, c->rate, usually,
                   c->memory_bytes > 0 ? str_from_bytes(c->memory_bytes, bytes, sizeof bytes) : "n/a", kld,
                   answers);
    }
    if (r->asked)
        table_note(
            t,
            "right answers: change against the unchanged model on %d question%s, with its paired 95 %% "
            "interval; the limit is %+.2f %%",
            r->asked, str_plural(r->asked), -100 * r->accuracy_limit);
    json_put(t->extra, "tried", tried);
}
