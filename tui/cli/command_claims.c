/* qdyno claims: checks what is usually promised about quantization on this machine, by one paired
 * experiment of a 16-bit, an 8-bit and a 4-bit config. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tui/cli/command_claims_methods.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/runs.h"
#include "tui/cli/lib/sampling.h"

/* clang-format off */
const struct cli_flag FLAGS_CLAIMS[] = {
    FLAG_MODEL_ROW,
    { .name = "-w", .alias = "--workload", .value = "WORKLOAD",
      .help = "workload of every config, which must decode; default tg64" },
    { .name = "--budget", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "start no new block after this time; default 5m" },
    FLAG_ESTIMAND_ROW,
    FLAG_LABEL_ROW,
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    { .name = "claim", .title = "claim" },
    { .name = "config", .title = "config" },
    { .name = "figure" },
    { .name = "measured", .title = "measured", .kind = COLUMN_NUM, .digits = 3 },
    { .name = "lower", .title = "from", .kind = COLUMN_NUM, .digits = 3 },
    { .name = "upper", .title = "to", .kind = COLUMN_NUM, .digits = 3 },
    { .name = "claimed_from", .kind = COLUMN_NUM },
    { .name = "claimed_to", .kind = COLUMN_NUM },
    { .name = "verdict", .title = "verdict" },
    { .name = "reason", .title = "reason" },
};

DOCUMENT(CLAIMS, "qdyno.claims/1", COLUMNS,
         .members = "run model workload reference labels.* random_weights methods[].config "
                    "methods[].claimed_memory_from methods[].claimed_memory_to methods[].memory_ratio "
                    "methods[].claimed_speed_from methods[].claimed_speed_to methods[].speed_ratio "
                    "methods[].speed_lower_ratio methods[].speed_upper_ratio methods[].claimed_accuracy "
                    "methods[].kld_mean");

static enum err_code spec_read(struct experiment_spec *s, const struct cli_global *g,
                               const struct cli_args *a, struct err *why)
{
    char *model = NULL;
    if (strcmp(a->arg[0], "quant"))
        return err_set(why, ERR_USAGE, "'%s': expected quant (claims about training: docs/claims.md)",
                       a->arg[0]);
    enum err_code rc = workload_parse(&s->workload, args_text(a, "-w", "tg64"), why);
    if (!rc && !s->workload.gen)
        rc = err_set(why, ERR_USAGE, "-w %s: expected a workload that decodes, such as tg64",
                     args_text(a, "-w", ""));
    for (int i = 0; i < QUANT_ARMS && !rc; i++) rc = cli_config(&s->config[i], a, QUANT_CLAIM_ARMS[i], why);
    if (!rc) rc = cli_model(&model, a, why);
    if (!rc && strlen(model) >= sizeof s->model)
        rc = err_set(why, ERR_USAGE, "the model's path is longer than %zu bytes", sizeof s->model - 1);
    if (!rc) snprintf(s->model, sizeof s->model, "%s", model);
    free(model);
    s->seed = g->seed;
    s->budget_s = args_num(a, "--budget", 0);
    s->estimand = estimand_parse(args_text(a, "--estimand", ""));
    s->margin = EXPERIMENT_MARGIN;
    quant_claims_spec(s);
    return rc;
}

static enum quant_outcome put_claim(struct table *t, const struct quant_claim *c,
                                    const struct experiment_state *s)
{
    static const char *const FIGURES[] = {
        [QUANT_WEIGHT_BYTES] = "weights_bytes", [QUANT_DECODE_RATE] = "decode_tok_s"
    };
    struct quant_judgement j;
    json_t *row = table_row(t);
    quant_claim_judge(c, s, &j);
    json_put_str(row, "claim", c->text);
    json_put_str(row, "config", s->arm[c->arm].line);
    json_put_str(row, "figure", FIGURES[c->figure]);
    json_put_num(row, "measured", j.ratio.estimate);
    json_put_num(row, "lower", j.ratio.lower);
    json_put_num(row, "upper", j.ratio.upper);
    json_put_num(row, "claimed_from", c->from);
    json_put_num(row, "claimed_to", c->to);
    json_put_str(row, "verdict", quant_outcome_name(j.outcome));
    json_put_str(row, "reason", *j.reason ? j.reason : NULL);
    return j.outcome;
}

/* 0: all confirmed, 1: one is refuted, else 2: one is not decided. A failed or invalid run has its own. */
static int claims_status(const struct experiment_state *s, const int *count)
{
    const int status = ab_status(s);
    if (s->phase == PHASE_FAILED || s->arm[0].failed || s->verdict == VERDICT_INVALID) return status;
    return count[QUANT_REFUTED] ? EXIT_WORSE : count[QUANT_NOT_DECIDED] ? EXIT_INCONCLUSIVE : EXIT_DONE;
}

/* In one word: the worst of all claims. */
static const char *claims_verdict(int status, const int *count)
{
    if (status == EXIT_INVALID) return verdict_name(VERDICT_INVALID);
    return quant_outcome_name(count[QUANT_REFUTED]       ? QUANT_REFUTED
                              : count[QUANT_NOT_DECIDED] ? QUANT_NOT_DECIDED
                                                         : QUANT_CONFIRMED);
}

static int claims_print(const struct cli_global *g, const struct cli_args *a,
                        const struct experiment_state *s)
{
    struct table t;
    char workload[640];
    int count[QUANT_NOT_DECIDED + 1] = { 0 };
    table_init(&t, &DOCUMENT_CLAIMS);
    for (int i = 0; i < QUANT_CLAIM_COUNT; i++) count[put_claim(&t, &QUANT_CLAIMS[i], s)]++;
    const int status = claims_status(s, count);
    const struct summary summary = { .effect = { NAN, NAN, NAN },
                                     .verdict = claims_verdict(status, count),
                                     .exit_status = status,
                                     .run = s->run_id };
    table_summarize(&t, &summary);
    cli_put_run(t.extra, s->run_id);
    json_put_str(t.extra, "model", s->spec.model);
    json_put_str(t.extra, "workload", workload_line(&s->spec.workload, workload, sizeof workload));
    json_put_str(t.extra, "reference", s->arm[0].line);
    json_put(t.extra, "labels", cli_labels_of_run(g, s->run_id));
    json_put_bool(t.extra, "random_weights", s->random_weights);
    table_note(&t, "measured: divided by %s; from .. to: 95 %% interval, valid at every interim analysis",
               s->arm[0].line);
    table_note(&t, "%d confirmed, %d refuted, %d not decided, of %s on %s", count[QUANT_CONFIRMED],
               count[QUANT_REFUTED], count[QUANT_NOT_DECIDED], cli_base_name(s->spec.model), workload);
    claims_put_methods(&t, g, s);
    if (s->phase == PHASE_FAILED) table_note(&t, "failed: %s", s->error);
    cli_note_run(&t, s->run_id);
    return cli_finish(g, a, &t, status);
}

int command_claims(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    struct experiment_state *s = calloc(1, sizeof *s);
    enum err_code rc = spec && s ? ERR_OK : err_set(&why, ERR_NOMEM, "out of memory");
    if (!rc) rc = spec_read(spec, g, a, &why);
    if (!rc) rc = ab_run(g, a, spec, s, &why);
    const int status = rc ? cli_fail(a, &why) : claims_print(g, a, s);
    free(spec);
    free(s);
    return status;
}
