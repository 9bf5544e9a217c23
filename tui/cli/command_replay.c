/* qdyno replay: repeats an A/B with its specification and reports whether the result is the same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/history/history.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/runs.h"

/* clang-format off */
const struct cli_flag FLAGS_REPLAY[] = {
    { .name = "--budget", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "start no new block after this time; default: the budget of the run" },
    { .name = "--estimand", .value = "either|quiet|loaded", .kind = FLAG_CHOICE, .choices = ESTIMANDS,
      .help = "which blocks count (see `qdyno ab --help`); default: as in the run" },
    FLAG_LABEL_ROW,
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    { .name = "arm", .title = "arm" },
    { .name = "config", .title = "config" },
    { .name = "metric", .title = "metric" },
    { .name = "blocks_before", .kind = COLUMN_INT },
    { .name = "blocks_after", .kind = COLUMN_INT },
    { .name = "effect_before_ratio", .title = "then", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "effect_before_lower_ratio", .title = "from", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "effect_before_upper_ratio", .title = "to", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "effect_after_ratio", .title = "now", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "effect_after_lower_ratio", .title = "from", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "effect_after_upper_ratio", .title = "to", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "difference_ratio", .title = "now/then", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "difference_lower_ratio", .title = "from", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "difference_upper_ratio", .title = "to", .kind = COLUMN_NUM, .digits = 4 },
    { .name = "p", .kind = COLUMN_NUM },
    { .name = "reproduction", .title = "verdict" },
};

DOCUMENT(REPLAY, "qdyno.replay/1", COLUMNS,
         .members = "run replay_of margin verdict reason load changes[].*");

static enum err_code spec_read(struct experiment_spec *s, const struct run_row *run, struct err *why)
{
    json_t *object = NULL;
    if (strcmp(run->kind, "ab"))
        return err_set(
            why, ERR_USAGE,
            "run %lld is of kind '%s': expected an A/B, the only kind that can be repeated. For another run "
            "measure again and compare: qdyno compare %lld NEW_RUN",
            (long long)run->id, run->kind, (long long)run->id);
    if (!run->spec_json)
        return err_set(why, ERR_FORMAT, "run %lld has no stored specification", (long long)run->id);
    enum err_code rc = json_parse(&object, run->spec_json, strlen(run->spec_json), why);
    if (!rc) rc = experiment_spec_from_json(s, object, why);
    json_decref(object);
    s->resume_id = 0;
    return rc ? (err_prefix(why, "run %lld", (long long)run->id), rc) : ERR_OK;
}

/* Checks that the model file of an arm still has its hash: otherwise the runs are not comparable. */
static enum err_code arm_model_check(const struct results *then, const struct experiment_spec *s, int arm,
                                     struct err *why)
{
    const char *path = config_model_file(&s->config[arm], s->model);
    char line[CONFIG_LINE];
    if (!*path) return ERR_OK; /* the model of a running server */
    config_line(&s->config[arm], line, sizeof line);
    enum err_code rc = model_check(path, results_model(then, line), why);
    if (rc) err_prefix(why, "arm %c of run %lld", 'A' + arm, (long long)then->run.id);
    return rc;
}

static enum err_code models_check(const struct results *then, const struct experiment_spec *s,
                                  struct err *why)
{
    enum err_code rc = ERR_OK;
    if (s->workload.train) return ERR_OK; /* training needs no model file */
    for (int i = 0; i < s->arms && !rc; i++) rc = arm_model_check(then, s, i, why);
    return rc;
}

/* Adds NAME_ratio, NAME_lower_ratio and NAME_upper_ratio: the arm's metric divided by A's. effect: the
 * logarithm, positive if the arm is better. sign: -1 if less of the metric is better, else +1. */
static void put_effect_as_ratio(json_t *row, const char *name, struct interval effect, int sign)
{
    char key[64];
    const struct interval ratio = stats_exp(stats_turned(effect, sign));
    snprintf(key, sizeof key, "%s_ratio", name);
    json_put_num(row, key, ratio.estimate);
    snprintf(key, sizeof key, "%s_lower_ratio", name);
    json_put_num(row, key, ratio.lower);
    snprintf(key, sizeof key, "%s_upper_ratio", name);
    json_put_num(row, key, ratio.upper);
}

static void put_arm(json_t *row, const struct reproduced *r, const struct experiment_state *s)
{
    const int sign = metric_sign(s->spec.metric);
    json_put_str(row, "arm", (char[]){ (char)('A' + r->arm), '\0' });
    json_put_str(row, "config", s->arm[r->arm].line);
    json_put_str(row, "metric", s->spec.metric->name);
    json_put_int(row, "blocks_before", r->n_before);
    json_put_int(row, "blocks_after", r->n_after);
    put_effect_as_ratio(row, "effect_before", r->before, sign);
    put_effect_as_ratio(row, "effect_after", r->after, sign);
    put_effect_as_ratio(row, "difference", r->difference, sign);
    json_put_num(row, "p", r->p);
    json_put_str(row, "reproduction", reproduction_name(r->verdict));
}

/* The verdict over all arms: the weakest one. */
static enum reproduction reproduction_overall(const struct reproduced *r, int n)
{
    enum reproduction all = n ? REPRODUCED : REPRODUCTION_UNKNOWN;
    for (int i = 0; i < n; i++) {
        if (r[i].verdict == NOT_REPRODUCED) return NOT_REPRODUCED;
        if (r[i].verdict == REPRODUCTION_UNKNOWN) all = REPRODUCTION_UNKNOWN;
    }
    return all;
}

static int reproduction_status(enum reproduction r)
{
    return r == REPRODUCED ? EXIT_DONE : r == NOT_REPRODUCED ? EXIT_WORSE : EXIT_INCONCLUSIVE;
}

/* Why the runs cannot be compared; "" if they can. */
static const char *not_comparable(const struct results *then, const struct experiment_state *now)
{
    if (!strcmp(then->run.verdict, verdict_name(VERDICT_INVALID))) return "the first run was invalid";
    if (now->verdict == VERDICT_INVALID) return "the new run is invalid";
    return "";
}

/* Compares the effects of the two runs, stores the verdict and fills the table. */
static enum err_code replay_compare(struct table *t, struct db *d, const struct results *then,
                                    const struct experiment_state *now, int *status, struct err *why)
{
    struct results again;
    struct reproduced *rows = NULL;
    int n = 0;
    const double margin = now->spec.margin;
    enum err_code rc = results_read(&again, d, now->run_id, why);
    if (!rc) rc = compare_effects(&rows, &n, then, &again, now->spec.metric, margin, why);
    if (rc) {
        results_free(&again);
        return rc;
    }
    const char *invalid = not_comparable(then, now);
    const enum reproduction verdict = reproduction_overall(rows, n);
    const char *word = *invalid ? verdict_name(VERDICT_INVALID) : reproduction_name(verdict);
    *status = *invalid ? EXIT_INVALID : reproduction_status(verdict);
    rc = db_link_put(d, now->run_id, then->run.id, "replay", word, why);
    table_init(t, &DOCUMENT_REPLAY);
    for (int i = 0; i < n; i++) put_arm(table_row(t), &rows[i], now);
    table_note(t, "run %lld repeated as run %lld: %s%s%s (margin %.2f %%)", (long long)then->run.id,
               (long long)now->run_id, word, *invalid ? ": " : "", invalid, 100 * margin);
    if (now->verdict == VERDICT_INVALID && *now->reason) table_note(t, "%s", now->reason);
    json_put_int(t->extra, "run", now->run_id);
    json_put_int(t->extra, "replay_of", then->run.id);
    json_put_num(t->extra, "margin", margin);
    json_put_str(t->extra, "verdict", word);
    json_put_str(t->extra, "reason", *invalid ? invalid : NULL);
    cli_run_changes(t, then, &again);
    struct summary summary = ab_summary(now, *status);
    summary.verdict = word;
    table_summarize(t, &summary);
    free(rows);
    results_free(&again);
    return rc;
}

static bool is_over(const struct experiment_state *s)
{
    return s->phase == PHASE_DONE;
}

/* The exit status, and a message, if the new run failed or was stopped. */
static int unfinished_status(const struct cli_args *a, const struct experiment_state *s)
{
    struct err why = { 0 };
    if (s->phase == PHASE_STOPPED) {
        fprintf(stderr, "qdyno replay: stopped; to continue run %lld: qdyno ab --resume %lld\n",
                (long long)s->run_id, (long long)s->run_id);
        return EXIT_INCONCLUSIVE;
    }
    err_set(&why, s->error_code, "%s", s->error);
    return cli_fail(a, &why);
}

int command_replay(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct results then = { 0 };
    struct table t = { 0 };
    int64_t id;
    int status = EXIT_INTERNAL;
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    struct experiment_state *now = calloc(1, sizeof *now);
    enum err_code rc = spec && now ? ERR_OK : err_set(&why, ERR_NOMEM, "out of memory");
    if (!rc) rc = cli_run_id(&id, a->arg[0], &why);
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = results_read(&then, d, id, &why);
    if (!rc) rc = spec_read(spec, &then.run, &why);
    if (!rc && !then.n)
        rc = err_set(&why, ERR_USAGE, "run %lld has no valid block: there is nothing to reproduce",
                     (long long)id);
    if (!rc) rc = models_check(&then, spec, &why);
    if (!rc) {
        spec->budget_s = args_num(a, "--budget", spec->budget_s);
        spec->estimand = estimand_parse(args_text(a, "--estimand", ESTIMANDS[spec->estimand]));
        rc = ab_run(g, a, spec, now, &why);
    }
    if (!rc && is_over(now)) rc = replay_compare(&t, d, &then, now, &status, &why);
    if (rc)
        status = cli_fail(a, &why);
    else
        status = is_over(now) ? cli_print(g, a, &t, status) : unfinished_status(a, now);
    if (t.rows) table_done(&t);
    results_free(&then);
    db_close(d);
    free(spec);
    free(now);
    return status;
}
