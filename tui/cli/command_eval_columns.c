/* tui/cli/command_eval_columns.c - the columns of `qdyno eval`, with which `qdyno show` prints its stored
 * tables, too, and the figures of quality in them. */
#include "tui/cli/command_eval_columns.h"

#include <math.h>

#include "tui/cli/commands.h"

static const struct column EVAL_COLUMNS[] = {
    COL("model", "model"),
    COL("config", "config", .keep = true),
    KEY("file"),
    COL("text_label", "text"),
    COL("ctx", "window", .kind = COLUMN_INT),
    COL("chunks", "windows", .kind = COLUMN_INT),
    COL("scored_tokens", "tokens", .kind = COLUMN_INT),
    { .metric = &METRICS[METRIC_PERPLEXITY], .keep = true },
    COL("perplexity_se", "+-", .kind = COLUMN_NUM, .digits = 4),
    KEY("perplexity_se_token", .kind = COLUMN_NUM),
    COL("nll", "nats/token", .kind = COLUMN_NUM, .digits = 5),
    KEY("nll_se", .kind = COLUMN_NUM),
    { .metric = &METRICS[METRIC_KLD], .keep = true },
    COL("kld_se", "+-", .kind = COLUMN_NUM, .digits = 6),
    COL("kld_p50", "p50", .kind = COLUMN_NUM, .digits = 6),
    COL("kld_p90", "p90", .kind = COLUMN_NUM, .digits = 6),
    COL("kld_p99", "p99", .kind = COLUMN_NUM, .digits = 6),
    COL("kld_max", "max", .kind = COLUMN_NUM, .digits = 6),
    COL("top1_ratio", "same top-1 %", .kind = COLUMN_NUM, .scale = 100, .digits = 2, .keep = true),
    COL("top1_se", "+-", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    KEY("top1_lower", .kind = COLUMN_NUM),
    KEY("top1_upper", .kind = COLUMN_NUM),
    KEY("kld_lower", .kind = COLUMN_NUM),
    KEY("kld_upper", .kind = COLUMN_NUM),
    COL("ppl_ratio", "perplexity ratio", .kind = COLUMN_NUM, .digits = 5, .keep = true),
    COL("ppl_ratio_lower", "from", .kind = COLUMN_NUM, .digits = 5),
    COL("ppl_ratio_upper", "to", .kind = COLUMN_NUM, .digits = 5),
    KEY("accuracy_reference", .kind = COLUMN_NUM),
    COL("accuracy", "right %", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    COL("accuracy_change", "change", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    KEY("only_reference_right", .kind = COLUMN_INT),
    KEY("only_candidate_right", .kind = COLUMN_INT),
    COL("mcnemar_p", "McNemar p", .kind = COLUMN_NUM, .digits = 4),
    COL("first_divergence_median", "same greedy text", .kind = COLUMN_NUM, .digits = 1),
    KEY("first_divergence_diverged", .kind = COLUMN_INT),
    KEY("first_divergence_prompts", .kind = COLUMN_INT),
    KEY("first_divergence_limit", .kind = COLUMN_INT),
    KEY("depth"),
    COL("seconds", "seconds", .kind = COLUMN_NUM, .digits = 1),
    KEY("random_weights", .kind = COLUMN_BOOL),
    KEY("text_fits_model", .kind = COLUMN_BOOL),
    KEY("answers_unverified", .kind = COLUMN_BOOL),
    COL("gate", "gate", .keep = true),
    COL("error", "error", .keep = true),
    KEY("text_sha256"),
};

DOCUMENT(EVAL, "qdyno.eval/1", EVAL_COLUMNS,
         .members = "run machine labels.* reference.* gate.* baseline.* text.path text.sha256 "
                    "text.is_text_of_model",
         .unprinted = "log_ppl_ratio log_ppl_ratio_se accuracy_change_se perplexity_lower perplexity_upper");

/* Of nested values only the list of depths is copied. */
void eval_put_quality(json_t *row, const struct quality *q)
{
    const struct greedy_divergence *g = &q->figures.greedy;
    json_t *all = quality_to_json(q);
    for (void *at = json_object_iter(all); at; at = json_object_iter_next(all, at)) {
        const char *key = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);
        if (!json_is_object(value) && !json_object_get(row, key)) json_object_set(row, key, value);
    }
    json_decref(all);
    json_put_num(row, "first_divergence_median", g->median);
    json_put_int(row, "first_divergence_diverged", g->diverged);
    json_put_int(row, "first_divergence_prompts", g->prompts);
    json_put_int(row, "first_divergence_limit", g->limit);
}

void eval_note_quality(struct table *t, const char *config, const struct quality *q)
{
    const struct divergence *d = &q->figures;
    const struct greedy_divergence *g = &d->greedy;
    struct str line = { 0 };
    for (int i = 0; i < DEPTHS; i++)
        if (d->depth[i].to > d->depth[i].from)
            str_printf(&line, "%s%d..%d %.6f", *str_text(&line) ? ", " : "", d->depth[i].from,
                       d->depth[i].to - 1, d->depth[i].mean);
    table_note(t, "%s: KLD at depth %s", config, str_text(&line));
    if (g->prompts)
        table_note(t,
                   "%s: greedy texts of %d tokens differ from those of the reference for %d of %d prompt%s",
                   config, g->limit, g->diverged, g->prompts, str_plural(g->prompts));
    str_free(&line);
}
