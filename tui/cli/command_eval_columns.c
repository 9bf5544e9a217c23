/* tui/cli/command_eval_columns.c - the columns of `qdyno eval`, with which `qdyno show` prints its stored
 * tables, too, and the figures of quality in them. */
#include "tui/cli/command_eval_columns.h"

#include <math.h>

#include "telemetry/metrics/metrics.h"
#include "tui/cli/commands.h"
#include "tui/cli/documents.h"

static const struct column EVAL_COLUMNS[] = {
    { .name = "model", .title = "model" },
    { .name = "config", .title = "config", .keep = true },
    { .name = "file" },
    { .name = "text_label", .title = "text" },
    { .name = "ctx", .title = "window", .kind = COLUMN_INT },
    { .name = "chunks", .title = "windows", .kind = COLUMN_INT },
    { .name = "scored_tokens", .title = "tokens", .kind = COLUMN_INT },
    { .metric = &METRICS[METRIC_PERPLEXITY], .keep = true },
    { .name = "perplexity_se", .title = "+-", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "perplexity_se_token", .kind = COLUMN_NUM },
    { .name = "nll", .title = "nats/token", .kind = COLUMN_NUM, .digits = 5 },
    { .name = "nll_se", .kind = COLUMN_NUM },
    { .metric = &METRICS[METRIC_KLD], .keep = true },
    { .name = "kld_se", .title = "+-", .kind = COLUMN_NUM, .digits = 6 },
    { .name = "kld_p50", .title = "p50", .kind = COLUMN_NUM, .digits = 6 },
    { .name = "kld_p90", .title = "p90", .kind = COLUMN_NUM, .digits = 6 },
    { .name = "kld_p99", .title = "p99", .kind = COLUMN_NUM, .digits = 6 },
    { .name = "kld_max", .title = "max", .kind = COLUMN_NUM, .digits = 6 },
    { .name = "top1_ratio",
      .title = "same top-1 %",
      .kind = COLUMN_NUM,
      .scale = 100,
      .digits = 2,
      .keep = true },
    { .name = "top1_se", .title = "+-", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },
    { .name = "top1_lower", .kind = COLUMN_NUM },
    { .name = "top1_upper", .kind = COLUMN_NUM },
    { .name = "kld_lower", .kind = COLUMN_NUM },
    { .name = "kld_upper", .kind = COLUMN_NUM },
    { .name = "ppl_ratio", .title = "perplexity ratio", .kind = COLUMN_NUM, .digits = 5, .keep = true },
    { .name = "ppl_ratio_lower", .title = "from", .kind = COLUMN_NUM, .digits = 5 },
    { .name = "ppl_ratio_upper", .title = "to", .kind = COLUMN_NUM, .digits = 5 },
    { .name = "accuracy_reference", .kind = COLUMN_NUM },
    { .name = "accuracy", .title = "right %", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },
    { .name = "accuracy_change", .title = "change", .kind = COLUMN_NUM, .scale = 100, .digits = 2 },
    { .name = "only_reference_right", .kind = COLUMN_INT },
    { .name = "only_candidate_right", .kind = COLUMN_INT },
    { .name = "mcnemar_p", .title = "McNemar p", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "first_divergence_median", .title = "same greedy text", .kind = COLUMN_NUM, .digits = 1 },
    { .name = "first_divergence_diverged", .kind = COLUMN_INT },
    { .name = "first_divergence_prompts", .kind = COLUMN_INT },
    { .name = "first_divergence_limit", .kind = COLUMN_INT },
    { .name = "depth" },
    { .name = "seconds", .title = "seconds", .kind = COLUMN_NUM, .digits = 1 },
    { .name = "random_weights", .kind = COLUMN_BOOL },
    { .name = "text_fits_model", .kind = COLUMN_BOOL },
    { .name = "answers_unverified", .kind = COLUMN_BOOL },
    { .name = "gate", .title = "gate", .keep = true },
    { .name = "error", .title = "error", .keep = true },
    { .name = "text_sha256" },
};

const struct document DOCUMENT_EVAL = {
    .schema = "qdyno.eval/1",
    .columns = EVAL_COLUMNS,
    .n_columns = COUNT_OF(EVAL_COLUMNS),
    .members = "run machine labels.* reference.* gate.* baseline.* text.path text.sha256 "
               "text.is_text_of_model",
    .unprinted = "log_ppl_ratio log_ppl_ratio_se accuracy_change_se perplexity_lower perplexity_upper",
};

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
        table_note(t, "%s: greedy texts of %d tokens differ for %d of %d prompt%s%s", config, g->limit,
                   g->diverged, g->prompts, str_plural(g->prompts),
                   isnan(g->median) ? "; at least half of them are equal to the end" : "");
    str_free(&line);
}
