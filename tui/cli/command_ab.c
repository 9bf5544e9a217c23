/* qdyno ab: runs a paired comparison of configs (advisor/experiment) with progress on stderr, and prints the
 * verdict with its evidence. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/command_ab_arms.h"
#include "tui/cli/command_ab_claims.h"
#include "tui/cli/command_ab_progress.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/pause.h"
#include "tui/cli/lib/runs.h"
#include "tui/cli/lib/sampling.h"
#include "tui/cli/lib/trained_context.h"

/* clang-format off */
const struct cli_flag FLAGS_AB[] = {
    FLAG_MODEL_ROW,
    { .name = "-w", .alias = "--workload", .value = "WORKLOAD", .many = true,
      .help = "workload of every arm; default tg64. Several: one for each arm" },
    FLAG_PROMPTS_ROW,
    { .name = "--as-systems",
      .help = "compare arms whose workloads are different work, by what each delivers" },
    { .name = "--margin", .value = "SHARE", .kind = FLAG_RATIO,
      .help = "smallest difference that matters; default 1%" },
    { .name = "--budget", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "start no new block after this time; default 5m" },
    { .name = "--metric", .value = "METRIC",
      .help = "metric to compare; default: the decode rate, else the prefill rate, else perplexity" },
    { .name = "--min-blocks", .value = "N", .kind = FLAG_INT, .min = 6, .max = EXPERIMENT_BLOCKS,
      .help = "least number of blocks before a verdict; default 6" },
    { .name = "--max-blocks", .value = "N", .kind = FLAG_INT, .min = 6, .max = EXPERIMENT_BLOCKS,
      .help = "largest number of blocks; default 256" },
    FLAG_ESTIMAND_ROW,
    FLAG_WAIT_QUIET_ROW,
    { .name = "--turns", .value = "auto|on|off", .kind = FLAG_CHOICE, .choices = TURNS,
      .help = "let the arms take turns of 50 ms in each block, so that other programs disturb all alike; auto "
              "(default): while the machine is disturbed" },
    { .name = "--control", .value = "N", .kind = FLAG_INT, .max = 64,
      .help = "blocks of the A/A control before the comparison; 0: none; default 3" },
    { .name = "--warmup", .value = "N", .kind = FLAG_INT, .min = 1, .max = 64,
      .help = "warm-up cells of each arm; default: until the rate is steady" },
    { .name = "--processes", .value = "new|kept|auto", .kind = FLAG_CHOICE, .choices = PROCESSES,
      .help = "start new processes for each block or keep them; default auto: new if the model loads fast" },
    { .name = "--race", .help = "drop slow arms early, then confirm the best one against A" },
    FLAG_REQUANTIZE_ROW,
    AB_CLAIM_FLAGS,
    { .name = "--resume", .value = "ID", .kind = FLAG_INT, .min = 1, .max = 9e15,
      .help = "continue a run that was stopped, killed or undecided" },
    { .name = "--load-changes", .value = "FILE",
      .help = "change the running load by lines of JSON that come from this FIFO (docs/ab.md)" },
    FLAG_LABEL_ROW,
    { .name = NULL },
};
/* clang-format on */

/* Says before the start that the budget is too short for a verdict, with the arithmetic. */
static void ab_check_budget(const struct cli_global *g, const struct experiment_spec *spec,
                            const struct machine *m)
{
    struct experiment_forecast f;
    struct machine_ceilings ceilings;
    struct correction *correction = NULL;
    struct db *d = NULL;
    struct err ignored;
    char text[FORECAST_TEXT];
    bool known = false;
    if (ceilings_load(&ceilings, m->id, &known, &ignored)) known = false;
    if (db_open(&d, g->db_path, &ignored)) d = NULL;
    if (d && known && correction_load(&correction, d, m->id, &ceilings, &ignored)) correction = NULL;
    experiment_forecast(
        &f, spec,
        &(struct forecast_sources){
            .db = d, .machine = m, .ceilings = known ? &ceilings : NULL, .correction = correction });
    correction_free(correction);
    db_close(d);
    if (experiment_forecast_is_short(&f))
        cli_note(g, "budget: %s; give --budget %s", experiment_forecast_text(text, &f), f.budget);
}

enum err_code ab_run(const struct cli_global *g, const struct cli_args *a, const struct experiment_spec *spec,
                     struct experiment_state *out, struct err *why)
{
    struct run_labels labels;
    struct machine m;
    struct sampler_thread *sampler = NULL;
    struct experiment *x = NULL;
    struct ab_lines lines;
    struct ab_changes changes;
    struct cli_pause pause;
    enum err_code rc = cli_labels(&labels, a, why);
    if (!rc) rc = ab_changes_open(&changes, args_text(a, "--load-changes", NULL), why);
    if (rc) return rc;
    ab_lines_begin(&lines, g);
    cli_pause_begin(&pause);
    rc = machine_detect(&m, "", why);
    if (!rc)
        rc = cli_sampler(&sampler, NULL, why); /* without sensors, only the worker detects disturbances */
    if (rc) {
        ab_changes_close(&changes);
        cli_pause_end(&pause);
        return rc;
    }
    ab_check_budget(g, spec, &m);
    struct experiment_deps deps = {
        .db_path = g->db_path, .sampler = sampler, .machine = &m, .log = &g->log, .labels = &labels
    };
    rc = experiment_start(&x, spec, &deps, why);
    int64_t version = 0;
    bool asked = false;
    while (!rc && !experiment_finished(x)) {
        experiment_wait(x, &version, 200);
        experiment_state(x, out);
        ab_lines_show(&lines, out);
        ab_changes_poll(&changes, g, x);
        cli_pause_poll(&pause, x, out);
        if (!asked && cli_is_interrupted(g)) {
            experiment_stop(x);
            asked = true;
        }
    }
    if (!rc) experiment_state(x, out);
    if (!rc) ab_lines_end(&lines, out);
    ab_changes_close(&changes);
    experiment_close(x);
    sampler_stop(sampler);
    cli_pause_end(&pause);
    return rc;
}

static enum err_code spec_load(struct experiment_spec *s, const struct cli_global *g, int64_t id,
                               struct err *why)
{
    struct db *d = NULL;
    struct run_row run = { 0 };
    json_t *object = NULL;
    enum err_code rc = db_open(&d, g->db_path, why);
    if (!rc) rc = db_run_get(d, id, &run, why);
    if (!rc && strcmp(run.kind, "ab"))
        rc = err_set(why, ERR_USAGE, "--resume %lld: that run is of kind '%s'; expected an A/B",
                     (long long)id, run.kind);
    if (!rc && !run.spec_json)
        rc = err_set(why, ERR_FORMAT, "run %lld has no stored specification", (long long)id);
    if (!rc) rc = json_parse(&object, run.spec_json, strlen(run.spec_json), why);
    if (!rc) rc = experiment_spec_from_json(s, object, why);
    s->resume_id = id;
    json_decref(object);
    run_row_free(&run);
    db_close(d);
    return rc;
}

static enum err_code spec_new(struct experiment_spec *s, const struct cli_args *a, struct err *why)
{
    char *model = NULL;
    bool all_named = true;
    enum err_code rc = ab_arms(s, a, why);
    for (int i = 0; i < s->arms && !rc; i++) rc = cli_requantize(&s->config[i], a, why);
    for (int i = 0; i < s->arms && !rc; i++) all_named &= *config_text(&s->config[i], KNOB_MODEL) != '\0';
    const bool wanted = !all_named && !s->workload.train; /* training needs no model file */
    if (!rc && (wanted || args_has(a, "-m"))) rc = cli_model(&model, a, why);
    if (!rc && model && strlen(model) >= sizeof s->model)
        rc = err_set(why, ERR_USAGE, "the model's path is longer than %zu bytes", sizeof s->model - 1);
    if (!rc) snprintf(s->model, sizeof s->model, "%s", model ? model : "");
    free(model);
    s->margin = EXPERIMENT_MARGIN;
    return rc;
}

static enum err_code spec_read(struct experiment_spec *s, const struct cli_global *g,
                               const struct cli_args *a, struct err *why)
{
    static const char *const FIXED[] = {
        "-m",         "-w",       "--as-systems", "--margin",      "--metric",
        "--control",  "--warmup", "--race",       "--processes",   "--min-blocks",
        "--quality",  "--gate",   "--kld-margin", "--quality-ctx", "--quality-chunks",
        "--estimand", "--turns",  "--label",      "--prompts",     "--requantize"
    };
    int64_t id = args_int(a, "--resume", 0);
    if (id) {
        for (size_t i = 0; i < COUNT_OF(FIXED); i++)
            if (args_has(a, FIXED[i]))
                return err_set(why, ERR_USAGE, "--resume continues run %lld unchanged: leave %s out",
                               (long long)id, FIXED[i]);
        if (a->n || a->knob_count)
            return err_set(why, ERR_USAGE,
                           "--resume continues run %lld with its own configs: leave the others out",
                           (long long)id);
    }
    enum err_code rc = id ? spec_load(s, g, id, why) : spec_new(s, a, why);
    if (rc) return rc;
    if (!id) s->seed = g->seed;
    s->margin = args_num(a, "--margin", s->margin);
    s->budget_s = args_num(a, "--budget", s->budget_s);
    s->min_blocks = (int)args_int(a, "--min-blocks", s->min_blocks);
    s->max_blocks = (int)args_int(a, "--max-blocks", s->max_blocks);
    s->warmup_cells = (int)args_int(a, "--warmup", s->warmup_cells);
    s->race = s->race || args_has(a, "--race");
    s->processes = processes_parse(args_text(a, "--processes", PROCESSES[s->processes]));
    s->estimand = estimand_parse(args_text(a, "--estimand", ESTIMANDS[s->estimand]));
    s->wait_quiet_s = args_num(a, "--wait-quiet", 0);
    s->turns = turns_parse(args_text(a, "--turns", TURNS[s->turns]));
    if (args_has(a, "--control")) {
        int n = (int)args_int(a, "--control", 0);
        s->control_blocks = n ? n : -1; /* 0 in the spec means the default */
    }
    if (s->min_blocks && s->max_blocks && s->min_blocks > s->max_blocks)
        return err_set(why, ERR_USAGE, "--min-blocks %d is more than --max-blocks %d", s->min_blocks,
                       s->max_blocks);
    if (args_has(a, "--metric") && (rc = cli_metric(&s->metric, a, why))) return rc;
    return ab_claims_spec(s, g, a, why);
}

/* The error that decides the status: of arm A, of one of two arms (a missing file is not "worse"), or of the
 * experiment. ERR_OK: none. */
static enum err_code ab_error(const struct experiment_state *s, const char **text)
{
    for (int i = 0; i < s->spec.arms; i++) {
        *text = s->arm[i].error;
        if (s->arm[i].failed && (i == 0 || s->spec.arms == 2)) return s->arm[i].code;
    }
    *text = s->error;
    return s->phase == PHASE_FAILED ? s->error_code : ERR_OK;
}

int ab_status(const struct experiment_state *s)
{
    const char *text;
    const enum err_code rc = ab_error(s, &text);
    if (rc) return exit_status_of(rc);
    if (s->phase == PHASE_STOPPED) return EXIT_INCONCLUSIVE;
    return exit_status_of_verdict(s->verdict);
}

struct summary ab_summary(const struct experiment_state *s, int status)
{
    const struct interval e = ab_effect(s);
    const char *verdict = verdict_name(s->verdict);
    struct summary summary = { .verdict = *verdict ? verdict : NULL,
                               .gate = ab_claims_outcome(s),
                               .effect = { exp(e.estimate), exp(e.lower), exp(e.upper) },
                               .exit_status = status,
                               .run = s->run_id,
                               .estimand = *verdict && s->complete ? ESTIMANDS[s->estimand] : NULL };
    experiment_sentence(summary.text, sizeof summary.text, s, MAX(s->headline, 1));
    return summary;
}

json_t *ab_document(const struct cli_global *g, const struct experiment_state *s,
                    const struct summary *summary)
{
    json_t *result = experiment_to_json(s), *doc = result;
    json_put(result, "labels", cli_labels_of_run(g, s->run_id));
    if (summary) {
        doc = summary_put_first(summary, result);
        json_decref(result);
    }
    return doc;
}

/* Compares the contexts of all arms with what their models were trained on; a note names the first one
 * beyond. */
static void ab_check_contexts(struct trained_context *out, const struct cli_global *g,
                              const struct experiment_spec *s)
{
    for (int i = 0; i < s->arms; i++) {
        if (trained_context_add(out, config_model_file(&s->config[i], s->model), &s->config[i],
                                workload_ctx(experiment_workload(s, i))))
            cli_note(g, TRAINED_CONTEXT_NOTE, (long long)out->tokens, (long long)out->trained);
    }
}

static int ab_print(const struct cli_global *g, const struct cli_args *a, const struct experiment_state *s,
                    const struct trained_context *trained, int status)
{
    struct err why = { 0 };
    const char *text;
    const enum err_code rc = ab_error(s, &text);
    if (g->output == OUTPUT_JSON) {
        const struct summary summary = ab_summary(s, status);
        json_t *doc = ab_document(g, s, &summary);
        trained_context_put(doc, trained);
        if (output_json(doc, stdout, &why)) status = cli_fail(a, &why);
        json_decref(doc);
        /* Who reads a document looks for errors on stderr; the table has them in its notes. */
        if (rc && !why.code) {
            err_set(&why, rc, "%s", text);
            (void)cli_fail(a, &why);
        }
        return status;
    }
    struct table t;
    ab_table_fill(&t, s);
    return cli_finish(g, a, &t, status);
}

int command_ab(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct experiment_state *s = calloc(1, sizeof *s);
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    int status;
    enum err_code rc = s && spec ? ERR_OK : err_set(&why, ERR_NOMEM, "out of memory");
    if (!rc) rc = spec_read(spec, g, a, &why);
    if (!rc && !spec->resume_id)
        rc = experiment_check(spec, &why); /* before anything is measured or stored */
    struct trained_context trained = { 0 };
    if (!rc) ab_check_contexts(&trained, g, spec);
    if (!rc) rc = ab_run(g, a, spec, s, &why);
    if (rc)
        status = cli_fail(a, &why);
    else
        status = ab_print(g, a, s, &trained, ab_claims_status(s, ab_status(s)));
    free(spec);
    free(s);
    return status;
}
