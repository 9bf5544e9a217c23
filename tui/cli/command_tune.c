/* qdyno tune: finds the best config and saves it. advisor/tune does the search; this file parses flags,
 * prints the result and saves the winner. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/tune/tune.h"
#include "engine/import/import.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/command_tune_keep.h"
#include "tui/cli/command_tune_notes.h"
#include "tui/cli/command_tune_progress.h"
#include "tui/cli/command_tune_variants.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/runs.h"
#include "tui/cli/lib/sampling.h"

/* clang-format off */
const struct cli_flag FLAGS_TUNE[] = {
    FLAG_MODEL_ROW,
    TUNE_VARIANT_FLAGS,
    FLAG_REQUANTIZE_ROW,
    FLAG_WAIT_QUIET_ROW,
    FLAG_ESTIMAND_ROW,
    { .name = "--budget", .value = "TIME", .kind = FLAG_SECONDS, .help = "time for measuring; default 10m" },
    { .name = "--goal", .value = "GOAL", .kind = FLAG_CHOICE, .choices = GOAL_NAMES,
      .help = "what to optimize; default balanced" },
    { .name = "--limit", .value = "LIMITS",
      .help = "limits of a config: memory=BYTES, kld=NATS (mean KL divergence; default 0.02), e.g. "
              "memory=8G,kld=0.05; with --task also accuracy=-0.5% (largest loss of right answers)" },
    { .name = "--task", .value = "FILE",
      .help = "questions with choices (docs/quantize.md), for --limit accuracy=" },
    { .name = "-C", .alias = "--config", .value = "CONFIG",
      .help = "current config, which a winner must beat; default: the applied config, else the default" },
    { .name = "-w", .alias = "--workload", .value = "WORKLOAD", .help = "workload to time; default tg64" },
    FLAG_PROMPTS_ROW,
    { .name = "--space", .value = "SPACE",
      .help = "values to search, e.g. recipe=file|q8_0|q4_K,threads=1|2; default: all that may help" },
    { .name = "--probe", .help = "measure the machine's limits again" },
    { .name = "-f", .alias = "--file", .value = "TEXT",
      .help = "text for the quality check; default: the model's text (`eval --set-text`)" },
    { .name = "--quality-ctx", .value = "N", .kind = FLAG_INT, .min = 8, .max = 1 << 24,
      .help = "tokens per window of that text; default: as the workload (depth, prompt and answer), at least 256" },
    { .name = "--max-ppl", .value = "SHARE", .kind = FLAG_RATIO,
      .help = "largest increase of perplexity of a winner; default 2%" },
    { .name = "--search-only", .help = "end after the search: no confirmation, no file" },
    { .name = "--resume", .value = "ID", .kind = FLAG_INT, .min = 1, .max = 9e15,
      .help = "continue a stopped or killed run; options that are not given are those of that run" },
    { .name = "--dry-run", .help = "write no config file" },
    { .name = FLAG_KEEP,
      .help = "save a winner that was found on a busy machine, too; otherwise you are asked, and scripts save none" },
    FLAG_LABEL_ROW,
    { .name = NULL },
};
/* clang-format on */

struct tuner {
    const struct cli_global *g;
    const struct cli_args *a;
    struct machine machine;
    struct machine_ceilings ceilings;
    char *model;
    struct config current;
    struct tune_stored stored; /* with --resume: the options of that run */
    enum goal goal;
    struct tune_result result;
    struct applied kept;
    struct tune_kept decision;
    char workload[WORKLOAD_LINE];
    bool written, foreign; /* foreign: it searches settings of another engine */
    struct tune_lines lines;
    struct tune_choice variants; /* files to choose from, and the target */
};

#define OF(key, heading, member, KIND, ...)                                                                  \
    COL(key, heading, MEMBER_AS(struct tuner, member, KIND), __VA_ARGS__)
static const struct column COLUMNS[] = {
    OF("model", "model", model, WORDS),
    { .name = "machine", .title = "machine" },
    OF("run", "run", result.run_id, ID),
    { .name = "goal", .title = "goal" },
    OF("current", "current config", result.current.line, TEXT),
    OF("candidate", "candidate", result.winner.line, TEXT),
    OF("runner_up", "runner-up", result.runner_up.line, TEXT),
    OF("configurations", "configurations", result.space, COUNT),
    OF("fitting", "  possible winners", result.fitting, COUNT),
    OF("raced", "  speed measured", result.raced, COUNT),
    OF("judged", "  quality measurements", result.judged, COUNT),
    OF("left_out", "  not searched", result.left_out, TEXT),
    OF("confirm_run", "A/B run", result.confirm_run, ID),
    { .name = "metric", .title = "metric" },
    OF("predicted_tok_s", "candidate predicted (tokens/s)", result.winner.predicted, NUM, .digits = 1),
    OF("current_rate", "current measured", result.current.rate, NUM, .digits = 2),
    OF("candidate_rate", "candidate measured", result.winner.rate, NUM, .digits = 2),
    OF("effect_ratio", "candidate / current", result.effect.estimate, LOG_RATIO, .digits = 4),
    OF("effect_lower_ratio", "  interval from", result.effect.lower, LOG_RATIO, .digits = 4),
    OF("effect_upper_ratio", "  interval to", result.effect.upper, LOG_RATIO, .digits = 4),
    { .name = "effect_level", .title = "  its level (%)", .kind = COLUMN_NUM, .scale = 100, .digits = 1 },
    { .name = "verdict", .title = "verdict" },
    OF("blocks", "blocks", result.blocks, INT),
    OF("noise_floor_ratio", NULL, result.noise_floor, NUM),
    OF("current_bytes", "current memory", result.current.memory_bytes, BYTES),
    OF("candidate_bytes", "candidate memory", result.winner.memory_bytes, BYTES),
    OF("current_kld", NULL, result.current.kld, NUM),
    OF("candidate_kld", "candidate's KL divergence", result.winner.kld, NUM, .digits = 6),
    OF("candidate_kld_se", "  +-", result.winner.kld_se, NUM, .digits = 6),
    OF("candidate_ppl_ratio", "candidate's perplexity ratio", result.winner.ppl_ratio, NUM, .digits = 4),
    { .name = "candidate_accuracy_change", .kind = COLUMN_NUM },
    { .name = "candidate_accuracy_lower", .kind = COLUMN_NUM },
    { .name = "candidate_accuracy_upper", .kind = COLUMN_NUM },
    { .name = "accuracy_limit", .kind = COLUMN_NUM },
    { .name = "asked", .kind = COLUMN_INT },
    OF("gain", NULL, result.gain.estimate, NUM),
    OF("gain_lower", NULL, result.gain.lower, NUM),
    OF("gain_upper", NULL, result.gain.upper, NUM),
    { .name = "winner", .title = "winner" },
    OF("because", "reason", result.because, STRING),
    OF("seconds", "seconds", result.seconds, NUM, .digits = 1),
    OF("search_s", NULL, result.search_s, NUM),
    OF("spent_s", NULL, result.seconds, NUM),
    { .name = "enough_s", .kind = COLUMN_NUM },
    { .name = "written", .title = "written to" },
    OF("random_weights", "random weights", result.random_weights, BOOL),
    OF("answers_unverified", NULL, result.answers_unverified, BOOL),
    OF("doubles", NULL, result.doubles, TEXT),
    OF("alike", NULL, result.alike, TEXT),
    /* Always null; kept for scripts of earlier versions, which compared perplexities. */
    { .name = "reason" },
    { .name = "current_perplexity", .kind = COLUMN_NUM },
    { .name = "candidate_perplexity", .kind = COLUMN_NUM },
    OF("text", NULL, result.text, TEXT),
    { .name = "text_label", .title = "text of KL divergences" },
    OF("text_sha256", NULL, result.text_sha256, TEXT),
    { .name = "loaded", .kind = COLUMN_BOOL },
    { .name = "others_busy_ratio", .kind = COLUMN_NUM },
    { .name = "undisturbed_blocks", .kind = COLUMN_INT },
    OF("not_applied", NULL, decision.reason, TEXT),
    { .name = "confirm_command" },
    OF("reference", "losses against", result.reference, TEXT),
    { .name = "target", .title = "target" },
    { .name = "target_outcome" },
    { .name = "target_answer" },
};

DOCUMENT(TUNE, "qdyno.tune/1", COLUMNS, .record = true,
         .members =
             "tried[].config tried[].predicted_tok_s tried[].tok_s tried[].usual_tok_s "
             "tried[].usual_sd tried[].looks tried[].bytes tried[].kld tried[].ppl_ratio "
             "tried[].accuracy_change tried[].accuracy_lower tried[].accuracy_upper "
             "tried[].score tried[].error tried[].bits_per_weight tried[].tok_s_lower "
             "tried[].tok_s_upper tried[].kld_lower tried[].kld_upper tried[].front tried[].knee "
             "tried[].target commands[].program commands[].text not_compared[].config not_compared[].tok_s "
             "not_compared[].why labels.*");

static bool tune_on_progress(void *ctx, const struct tune_progress *at)
{
    struct tuner *t = ctx;
    tune_lines_show(&t->lines, at);
    return !cli_is_interrupted(t->g);
}

static bool tuner_resumes(const struct tuner *t)
{
    return args_has(t->a, "--resume");
}

/* The current config: -C or flags come first; then, of a run that is resumed, its own. */
static enum err_code tuner_config(struct tuner *t, struct err *why)
{
    enum err_code rc = cli_config(&t->current, t->a, args_text(t->a, "-C", NULL), why);
    if (!rc && tuner_resumes(t) && !args_has(t->a, "-C") && !t->a->knob_count) t->current = t->stored.current;
    return rc;
}

/* A resumed search continues with its own model unless another one is named. */
static enum err_code tuner_model(struct tuner *t, struct err *why)
{
    const bool given = args_has(t->a, "-m") || *config_text(&t->current, KNOB_MODEL);
    enum err_code rc = tune_choice_read(&t->variants, t->a, &t->stored, given, why);
    if (rc) return rc;
    if (*t->variants.model) {
        t->model = strdup(t->variants.model);
        return t->model ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    }
    if (!tuner_resumes(t) || given) return cli_config_model(&t->model, t->a, &t->current, why);
    t->model = strdup(t->stored.model_path);
    return t->model ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

/* The limits of the machine come first, because every prediction of the search needs them. */
static enum err_code tuner_init(struct tuner *t, struct err *why)
{
    enum err_code rc = ERR_OK;
    if (tuner_resumes(t))
        rc = tune_stored_read(&t->stored, t->g->db_path, args_int(t->a, "--resume", 0), why);
    if (!rc) rc = tuner_config(t, why);
    if (!rc) rc = tuner_model(t, why);
    /* what an earlier `tune` or `apply` saved for this model; files that are compared run as they are */
    if (!rc && !tuner_resumes(t) && t->variants.files.n < 2 && !*config_text(&t->current, KNOB_MODEL))
        rc = cli_applied_config_of(&t->current, t->g, t->a, t->model, why);
    config_unset(&t->current, KNOB_MODEL); /* every candidate runs t->model */
    if (rc) return rc;
    t->lines.model = t->model;
    tune_lines_enter(&t->lines, TUNE_PHASE_MACHINE, "measuring the limits of this machine, once");
    t->foreign = t->variants.files.n < 2 &&
                 tune_is_foreign(&t->current, args_text(t->a, "--space", t->stored.space));
    return cli_machine(t->g,
                       args_has(t->a, "--probe") ? PROBE_FRESH
                       : t->foreign              ? PROBE_CACHED
                                                 : PROBE_IF_MISSING,
                       &t->machine, &t->ceilings, NULL, why);
}

/* Options that are not given: those of the run to resume, else the defaults. */
static enum err_code tuner_options(struct tune_options *o, struct tuner *t, struct err *why)
{
    const struct cli_args *a = t->a;
    const struct tune_stored *old = &t->stored;
    const bool resumes = tuner_resumes(t);
    const bool limits = args_has(a, "--limit") || args_has(a, "--max-ppl");
    o->budget_s = args_num(a, "--budget", resumes ? old->budget_s : 600);
    o->space = args_text(a, "--space", old->space);
    o->requantize = args_has(a, "--requantize") || old->requantize;
    o->text_file = args_text(a, "-f", old->text_file);
    o->quality_ctx = (int)args_int(a, "--quality-ctx", old->quality_ctx); /* 0: as the workload */
    o->task_file = args_text(a, "--task", old->task_file);
    o->seed = resumes && t->g->seed == 1 ? old->seed : t->g->seed; /* 1: the default */
    t->goal = resumes ? old->goal : GOAL_BALANCED;
    if (args_has(a, "--goal")) goal_parse(args_text(a, "--goal", ""), &t->goal);
    o->goal = t->goal;
    o->estimand = estimand_parse(args_text(a, "--estimand", ESTIMANDS[old->estimand]));
    enum err_code rc = ERR_OK;
    if (resumes && !args_has(a, "-w") && !args_has(a, "--prompts"))
        o->workload = old->workload;
    else
        rc = workload_parse_prompts(&o->workload, args_text(a, "-w", tune_choice_workload(&t->variants)),
                                    args_text(a, "--prompts", NULL), why);
    o->files = &t->variants.files;
    o->reference = t->variants.reference;
    o->target = &t->variants.target;
    if (resumes && !limits) {
        o->limits = old->limits;
        return rc;
    }
    o->limits.ppl_ratio = args_num(a, "--max-ppl", 0.02);
    if (!rc) rc = cli_limits(&o->limits.memory_bytes, &o->limits.kld, &o->limits.accuracy, a, why);
    if (!rc && (o->limits.accuracy > 0) != (o->task_file != NULL))
        rc = err_set(why, ERR_USAGE,
                     o->task_file ? "--task needs --limit accuracy=-SHARE, e.g. accuracy=-0.5%%"
                                  : "--limit accuracy= needs --task FILE (docs/quantize.md)");
    return rc;
}

/* One sampler serves the run of the search and the A/B that confirms its result. */
static enum err_code tuner_search(struct tuner *t, struct err *why)
{
    struct sampler_thread *sampler = NULL;
    const struct cli_args *a = t->a;
    struct run_labels labels;
    struct tune_options o = { .model_path = t->model,
                              .current = &t->current,
                              .resume_id = args_int(a, "--resume", 0),
                              .search_only = args_has(a, "--search-only"),
                              .machine = &t->machine,
                              .ceilings = &t->ceilings,
                              .db_path = t->g->db_path,
                              .labels = &labels,
                              .log = &t->g->log,
                              .progress = tune_on_progress,
                              .ctx = t };
    enum err_code rc = tuner_options(&o, t, why);
    if (!rc) workload_line(&o.workload, t->workload, sizeof t->workload);
    if (!rc) rc = cli_labels(&labels, a, why);
    if (!rc) rc = cli_sampler(&sampler, NULL, why);
    o.sampler = sampler;
    if (!rc) cli_wait_quiet(t->g, a, sampler);
    if (!rc) rc = tune(&t->result, &o, why);
    progress_clear(&t->lines.progress);
    sampler_stop(sampler);
    return rc;
}

/* Saves the winner. Without a winner the applied config stays; settings of other engines cannot be applied.
 */
static enum err_code tuner_save(struct tuner *t, struct err *why)
{
    const struct tune_result *r = &t->result;
    char load[RUN_LOAD_TEXT];
    const struct apply_request q = { .model_path = t->model,
                                     .config = &r->keep,
                                     .machine = &t->machine,
                                     .because = r->because,
                                     .run_id = r->confirm_run,
                                     .load = experiment_run_load_text(load, &r->load) };
    if (*config_text(&r->keep, KNOB_MODEL)) return ERR_OK; /* of several files: there are commands for them */
    tune_keep_decide(&t->decision, t->g, t->a, t->model, t->workload, r);
    if (!t->decision.save) return ERR_OK;
    if (t->lines.progress.json)
        tune_lines_enter(&t->lines, TUNE_PHASE_SAVE, "saving the winner for this model");
    enum err_code rc = apply_write(&t->kept, &q, why);
    t->written = !rc;
    return rc;
}

/* What depends on more than one member: figures of a limit that was not set, and of an A/B that did not run,
 * are left out. */
static void put_result(json_t *row, const struct tuner *t)
{
    const struct tune_result *r = &t->result;
    char label[TEXT_LABEL], machine[128];
    json_put_str(row, "machine", machine_short(&t->machine, machine, sizeof machine));
    json_put_str(row, "goal", goal_name(t->goal));
    json_put_str(row, "metric", r->metric->name);
    json_put_num(row, "effect_level", isfinite(r->effect.lower) ? 1 - r->alpha : (double)NAN);
    json_put_str(row, "verdict", *verdict_name(r->verdict) ? verdict_name(r->verdict) : NULL);
    json_put_str(row, "winner", r->wins ? r->winner.line : r->current.line);
    json_put_num(row, "enough_s", r->unfinished ? r->enough_s : (double)NAN);
    json_put_str(row, "text_label", *r->text ? quality_text_label(label, r->text, r->text_sha256) : NULL);
    json_put_str(row, "written", t->written ? t->kept.path : NULL);
    json_put_str(row, "confirm_command", t->decision.confirm.len ? str_text(&t->decision.confirm) : NULL);
    if (r->asked) json_put_int(row, "asked", r->asked);
    if (r->accuracy_limit > 0) {
        json_put_num(row, "accuracy_limit", -r->accuracy_limit);
        json_put_num(row, "candidate_accuracy_change", r->winner.accuracy_change);
        json_put_num(row, "candidate_accuracy_lower", r->winner.accuracy_lower);
        json_put_num(row, "candidate_accuracy_upper", r->winner.accuracy_upper);
    }
    if (!r->blocks) return;
    json_put_bool(row, "loaded", r->load.loaded);
    json_put_num(row, "others_busy_ratio", r->load.others_busy);
    json_put_int(row, "undisturbed_blocks", r->load.undisturbed);
}

/* Status 2: no config is better than the current one for certain, so nothing was saved. A search without a
 * comparison (--search-only) was not asked to save anything. */
static int tuner_status(const struct tuner *t)
{
    if (t->result.stopped) return EXIT_INTERRUPTED;
    if (t->result.target.asked) return (int)t->result.target.reach;
    return t->result.wins || args_has(t->a, "--search-only") ? EXIT_DONE : EXIT_INCONCLUSIVE;
}

/* After the result: what it rests on, what the machine did meanwhile, and one command. */
static void close_tune(struct table *out, const struct tuner *t)
{
    const struct tune_result *r = &t->result;
    if (*r->reference) {
        tune_close_conditions(out, r, t->g->db_path);
        tune_close_variants(out, r, &t->variants, t->model, t->workload);
        return;
    }
    const long long run = (long long)r->run_id, raced = (long long)r->raced;
    const long long space = MAX((long long)r->space, raced);
    char noise[64] = "";
    struct str compared = { 0 };
    snprintf(noise, sizeof noise, isfinite(r->noise_floor) ? ", noise +-%.2g %%" : ", noise unknown",
             stats_percent(r->noise_floor));
    if (r->blocks)
        str_printf(&compared, "the best compared with the current one in %d block%s%s", r->blocks,
                   str_plural(r->blocks), noise);
    else
        str_append(&compared, "none was compared with the current one in blocks");
    table_closing(out, "evidence: %lld configuration%s timed, the current one included, of %lld; %s", raced,
                  str_plural(raced), space, str_text(&compared));
    str_free(&compared);
    tune_close_conditions(out, r, t->g->db_path);
    if (t->written) {
        struct str model = { 0 };
        word_append(&model, t->model);
        table_closing(
            out, "saved: `qdyno run`, `bench` and the dashboard use it. To undo: qdyno apply --undo -m %s",
            str_text(&model));
        str_free(&model);
    }
    if (*t->decision.reason) table_closing(out, "not saved: %s", t->decision.reason);
    if (r->unfinished)
        table_next(
            out,
            "next: qdyno tune --resume %lld --budget %.0fs   (continues the search; the budget is in all)",
            run, r->enough_s);
    else if (r->stopped && !t->foreign) /* one of another engine cannot be continued */
        table_next(out, "next: qdyno tune --resume %lld   (continues the search)", run);
    else if (t->decision.confirm.len)
        table_next(out, "next: %s   (compares them again when the machine is quiet)",
                   str_text(&t->decision.confirm));
    else if (r->confirm_run && r->verdict == VERDICT_INCONCLUSIVE)
        table_next(out, "next: qdyno ab --resume %lld --budget %.0fs   (more blocks of the comparison)",
                   (long long)r->confirm_run, ceil(r->seconds));
    else if (run)
        table_next(out, "next: qdyno show %lld   (prints this again; --cells: every measurement)", run);
}

/* A search varies the settings of one file; another file of the same model may change more. */
static void note_sibling(struct table *out, const struct tuner *t)
{
    struct gguf *g = NULL;
    struct model_shape shape;
    struct config arm;
    char path[PATH_MAX] = "", line[CONFIG_LINE];
    if (!model_file_open(&g, t->model, NULL) && !model_shape_read(&shape, g, NULL))
        proposals_sibling(path, sizeof path, g, &shape, t->model);
    gguf_close(g);
    config_default(&arm);
    if (!*path || config_set(&arm, "model", path, NULL)) return;
    struct str command = { 0 };
    advice_ab_command(&command, t->model, "default", config_line(&arm, line, sizeof line), t->workload);
    str_append(&command, " --quality");
    table_note(out, "another file of this model lies beside it. To compare both: %s", str_text(&command));
    str_free(&command);
}

static int tuner_print(struct tuner *t)
{
    struct table out;
    char sentence[TUNE_SENTENCE], context[QUALITY_CONTEXT_TEXT];
    const struct tune_result *r = &t->result;
    const struct tune_end end = { r, tune_sentence(sentence, sizeof sentence, r),
                                  t->written ? t->kept.path : NULL, t->decision.reason,
                                  str_text(&t->decision.confirm) };
    tune_lines_end(&t->lines, &end);
    json_t *row = table_record(&out, &DOCUMENT_TUNE);
    out.skip_absent = true;
    table_result(&out, "%s", sentence);
    close_tune(&out, t);
    document_put(&DOCUMENT_TUNE, row, struct tuner, t);
    put_result(row, t);
    tune_put_target(row, r, &t->variants);
    tune_note_tried(&out, r);
    tune_note_variants(&out, r, &t->variants);
    tune_note_passed(&out, r);
    if (r->judged && !*r->reference)
        table_note(&out, "configurations that give the same answers share one measurement of quality (KLD)");
    if (r->judged) cli_note_text(&out, t->model, r->text_sha256);
    if (r->judged && *quality_context_text(context, &r->quality))
        table_note(&out, "%s (--quality-ctx N sets another length)", context);
    cli_note_prompts(&out, t->g, r->run_id);
    if (t->variants.files.n < 2) note_sibling(&out, t);
    if (*r->doubles)
        table_note(&out, "not tried, because they make the same file of this model: %s", r->doubles);
    if (*r->alike)
        table_note(&out, "not tried: %s (on this machine it has the same settings as %s, the current config)",
                   r->alike, r->current.line);
    if (*r->left_out) table_note(&out, "not searched, to keep the search space small: %s", r->left_out);
    cli_note_cautions(&out, r->random_weights, r->answers_unverified);
    if (t->foreign && !r->winner.same_answers)
        table_note(&out, "the answers were not compared: `qdyno audit` checks those of another engine");
    if (r->wins && config_is_foreign(&r->keep) && !*r->reference)
        table_note(
            &out, "not saved, because `run` and the dashboard use qdyno's own engine: start the other engine "
                  "with these settings");
    if (t->written)
        table_note(
            &out,
            "`run`, `bench` and the dashboard ignore the saved config with -C default; other commands use it "
            "only with -C applied");
    int status = tuner_status(t);
    struct summary summary = { .verdict = *verdict_name(r->verdict) ? verdict_name(r->verdict) : NULL,
                               .effect = stats_exp(r->effect),
                               .exit_status = status,
                               .run = r->run_id };
    snprintf(summary.text, sizeof summary.text, "%s", sentence);
    table_summarize(&out, &summary);
    json_put(out.extra, "labels", cli_labels_of_run(t->g, r->run_id));
    json_put_str(out.summary, "applied", t->written ? t->kept.path : NULL);
    struct err unstored = { 0 }; /* a stopped search has no result yet: `show` lists what it measured */
    if (!r->stopped && cli_run_store_table(t->g, r->run_id, "tune", &out, &unstored))
        cli_note(t->g, "`qdyno show %lld` cannot print this page again: %s", (long long)r->run_id,
                 unstored.message);
    return cli_finish(t->g, t->a, &out, status);
}

int command_tune(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct tuner *t = calloc(1, sizeof *t);
    if (!t) return cli_fail_memory(a);
    t->g = g;
    t->a = a;
    progress_init(&t->lines.progress, g);
    enum err_code rc = tuner_init(t, &why);
    if (!rc) rc = tuner_search(t, &why);
    if (!rc) rc = tuner_save(t, &why);
    const int status = rc ? cli_fail(a, &why) : tuner_print(t);
    str_free(&t->decision.confirm);
    tune_result_free(&t->result);
    tune_stored_free(&t->stored);
    free(t->model);
    free(t);
    return status;
}
