/* qdyno eval: perplexity of a text under each config, with an error whose unit is the window, because
 * tokens of one window are correlated. With --ref also the difference of the predictions from those of a
 * reference, token by token. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/run/run.h"
#include "engine/eval/eval.h"
#include "engine/model/model.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/command_endings.h"
#include "tui/cli/command_eval_columns.h"
#include "tui/cli/command_eval_run.h"
#include "tui/cli/command_eval_task.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/measured.h"
#include "tui/cli/lib/gates.h"
#include "tui/cli/lib/runs.h"
#include "tui/cli/lib/sampling.h"
#include "engine/prompts/prompts.h"

/* clang-format off */
const struct cli_flag FLAGS_EVAL[] = {
    FLAG_MODEL_ROW,
    { .name = "-f", .alias = "--file", .value = "TEXT",
      .help = "text file to score; default: the model's text (the bundled held-out stories, until --set-text)" },
    { .name = "--prompts", .value = "FILE",
      .help = "score these prompts (docs/prompts.md) with their answers, one after the other, instead of a text" },
    { .name = "--set-text",
      .help = "make the text the one that all commands measure this model's quality on; without -f: the bundled text" },
    { .name = "-c", .alias = "--ctx-size", .value = "N", .kind = FLAG_INT, .min = 8, .max = 1 << 24,
      .help = "tokens per window; default 512" },
    { .name = "--chunks", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 24,
      .help = "score at most N windows; default: all" },
    { .name = "--task", .value = "FILE",
      .help = "ask questions with choices instead (JSON lines, docs/quantize.md), and print the share of right answers" },
    { .name = "--shots", .needs = "--task", .value = "N", .kind = FLAG_INT, .min = 0, .max = 64,
      .help = "with --task: show the first N items with their answers before each question; default 0" },
    { .name = "--chat", .needs = "--task",
      .help = "with --task: the model's chat template asks the question, and a choice begins the answer" },
    { .name = "--template", .needs = "--chat", .value = "NAME|FILE", .help = "with --chat: a chat template instead of the model's: built in (see `qdyno help template`), or a Jinja file" },
    FLAG_CONFIGS_ROW,
    { .name = "--ref", .value = "CONFIG",
      .help = "compare the predictions of every config with those of this one (KL divergence)" },
    FLAG_GATE_ROW("kld_mean < 0.02 and ppl_ratio < 1.01"),
    FLAG_LABEL_ROW,
    { .name = NULL },
};
/* clang-format on */

struct eval {
    struct measured m;
    char *text;
    size_t n;
    const struct eval_plan *plan;
    const char *file;
    char text_sha256[HASH_HEX], model_sha256[HASH_HEX]; /* of the text; of the open model */
    struct quality_text usual;                          /* of the first config's model */
    int ctx;
    bool not_finite;                /* a result was infinite or NaN */
    json_t *gates;                  /* outcome of the gate for each config */
    enum gate_outcome gate_outcome; /* of all configs so far */
    struct interval effect;         /* perplexity ratio of the first config */
    struct {
        struct model *model; /* NULL without --ref; open for all configs */
        char line[CONFIG_LINE], *path;
        bool printed; /* its own values are in `extra` of the table */
    } ref;
    struct logit_cache logit_cache; /* the logits of ref on the text */
    bool random, unverified;
};

static bool eval_on_chunk(void *arg, int64_t chunk, int64_t of, double nll)
{
    struct eval *e = arg;
    if (isnan(nll))
        progress_show(&e->m.progress, "%d/%d %s  greedy text %lld/%lld", e->m.at + 1, e->m.n, e->m.line,
                      (long long)chunk, (long long)of);
    else
        progress_report(&e->m.progress, PROGRESS_AT((double)chunk / (double)MAX(of, 1), NAN),
                        "%d/%d %s  window %lld/%lld  perplexity %.4f", e->m.at + 1, e->m.n, e->m.line,
                        (long long)chunk, (long long)of, exp(nll));
    return !cli_is_interrupted(e->m.g);
}

static json_t *eval_new_row(struct eval *e, const char *path)
{
    json_t *row = table_row(&e->m.table);
    json_put_str(row, "model", cli_base_name(path));
    json_put_str(row, "config", e->m.line);
    char label[TEXT_LABEL];
    json_put_str(row, "file", e->file);
    json_put_str(row, "text_label", quality_text_label(label, e->file, e->text_sha256));
    cli_note_text(&e->m.table, path, e->text_sha256);
    json_put_str(row, "text_sha256", e->text_sha256);
    json_put_int(row, "ctx", e->ctx);
    return row;
}

static void eval_add_failure(struct eval *e, const char *path, const struct err *why)
{
    json_put_str(eval_new_row(e, path), "error", why->message);
    if (!e->m.first.code) e->m.first = *why;
}

/* The results of one config. */
struct evaluation {
    struct perplexity ppl;
    struct quality quality; /* without --ref only its perplexity */
    double seconds;
};

/* Adds the perplexity of the reference, once, from the first comparison. */
static void put_reference(struct eval *e, const struct perplexity *p)
{
    if (e->ref.printed) return;
    json_t *ref = json_object();
    json_put_str(ref, "model", cli_base_name(e->ref.path));
    json_put_str(ref, "config", e->ref.line);
    perplexity_put_json(ref, p);
    json_put(e->m.table.extra, "reference", ref);
    table_note(&e->m.table, "reference %s: perplexity %.4f", e->ref.line, p->ppl);
    if (p->chunks > 1)
        table_note(&e->m.table, "+-: one standard error; perplexity ratio from .. to: paired 95 %% interval");
    e->random |= model_shape(e->ref.model)->random_weights;
    e->ref.printed = true;
}

/* A model that gives every token the same probability has the vocabulary's size as its perplexity. */
static void put_text_fit(struct eval *e, json_t *row, const struct perplexity *p, int64_t vocab)
{
    enum { FAR = 2 }; /* random weights scatter a little above the vocabulary's size */
    const bool fits = p->ppl <= FAR * (double)vocab;
    json_put_bool(row, "text_fits_model", fits);
    if (!fits)
        table_note(
            &e->m.table,
            "%s: text and model do not fit: perplexity %.4g is far above the %lld of guessing among all "
            "tokens; expected a text in the language of the model, and the model's own tokenizer",
            e->m.line, p->ppl, (long long)vocab);
}

/* Judges the gate on the results of one config. */
static void put_gate(struct eval *e, json_t *row, const struct evaluation *r)
{
    const struct gate *g = &e->plan->gate;
    struct gate_result out;
    if (!g->terms) return;
    claims_gate_quality(g, &r->quality, &out);
    e->gate_outcome = gate_both(e->gate_outcome, out.outcome);
    json_put_str(row, "gate", gate_outcome_name(out.outcome));
    cli_note_gate(&e->m.table, e->m.line, g, &out);
    json_t *one = gate_result_to_json(g, &out);
    json_object_del(one, "gate");
    json_put_str(one, "config", e->m.line);
    json_array_append_new(e->gates, one);
}

static void put_result(struct eval *e, const char *path, const struct evaluation *r,
                       const struct model_shape *shape)
{
    json_t *row = eval_new_row(e, path);
    bool random = shape->random_weights, unverified = shape->unknown > 0;
    put_text_fit(e, row, &r->ppl, shape->vocab);
    perplexity_put_json(row, &r->ppl);
    if (e->ref.model) {
        eval_put_quality(row, &r->quality);
        put_reference(e, &r->quality.figures.reference);
        eval_note_quality(&e->m.table, e->m.line, &r->quality);
        random |= model_shape(e->ref.model)->random_weights;
        unverified |= model_shape(e->ref.model)->unknown > 0;
        if (!e->m.at) e->effect = r->quality.ppl_ratio;
    }
    json_put_num(row, "seconds", r->seconds);
    put_gate(e, row, r);
    cli_put_cautions(row, random, unverified);
    e->random |= random;
    e->unverified |= unverified;
    e->m.ok++;
}

/* Results are comparable on the same windows of the same text only. */
static void eval_set_work(struct measured_cell *c, const struct eval *e, const struct evaluation *r)
{
    char work[HASH_HEX + 48], hex[HASH_HEX];
    const int n = snprintf(work, sizeof work, "%s/%d/%lld", e->text_sha256, e->ctx, (long long)r->ppl.chunks);
    hash_bytes(work, (size_t)n, hex);
    snprintf(c->work_hash, sizeof c->work_hash, "%.16s", hex);
}

/* Stores the cell of one config, with its results as JSON. */
static enum err_code eval_store_cell(struct eval *e, const struct evaluation *r, struct measured_cell *c,
                                     struct err *why)
{
    json_t *echo = json_object();
    json_put_str(echo, "workload", e->m.run.row.workload);
    json_put_int(echo, "ctx", e->ctx);
    if (!c->failure.code) {
        perplexity_put_json(echo, &r->ppl);
        eval_set_work(c, e, r);
        c->value[METRIC_PERPLEXITY] = r->ppl.ppl;
    }
    if (e->ref.model && !c->failure.code) {
        json_put_str(echo, "reference", e->ref.line);
        json_put_str(echo, "reference_model", cli_base_name(e->ref.path));
        eval_put_quality(echo, &r->quality);
        c->value[METRIC_KLD] = json_get_num(echo, METRICS[METRIC_KLD].name, NAN);
    }
    const struct run_place place = {
        .arm = e->m.at, .block = -1, .phase = "eval", .config = e->m.line, .echo = echo
    };
    const enum err_code rc = run_store(&e->m.run, &place, c, why);
    json_decref(echo);
    return rc;
}

static enum err_code eval_measure(struct eval *e, struct model *m, struct evaluation *r, struct err *why)
{
    const struct eval_request q = { .text = e->text,
                                    .n = e->n,
                                    .ctx = e->ctx,
                                    .max_chunks = e->plan->chunks,
                                    .progress = eval_on_chunk,
                                    .arg = e,
                                    .greedy_prompts = GREEDY_PROMPTS,
                                    .greedy_tokens = GREEDY_TOKENS,
                                    .logit_cache = e->m.n > 1 ? &e->logit_cache : NULL };
    struct divergence d;
    enum err_code rc = ERR_OK;
    if (e->ref.model) {
        rc = eval_divergence(&d, e->ref.model, m, &q, why);
    } else { /* nothing is compared: only the perplexity is known */
        d = (struct divergence){ 0 };
        rc = eval_perplexity(&d.candidate, m, q.text, q.n, q.ctx, q.max_chunks, q.progress, q.arg, why);
    }
    if (rc) return rc;
    quality_of(&r->quality, &d, e->file, e->ctx);
    snprintf(r->quality.text_sha256, sizeof r->quality.text_sha256, "%s", e->text_sha256);
    r->ppl = d.candidate;
    return ERR_OK;
}

/* All prompts of a file as one text. */
static enum err_code eval_read_prompts(struct eval *e, struct err *why)
{
    struct prompts p;
    struct str text = { 0 };
    enum err_code rc = prompts_read(&p, e->file, why);
    for (int i = 0; i < p.n && !rc; i++) prompts_append_text(&text, &p, i);
    prompts_free(&p);
    if (!rc && text.failed) rc = err_set(why, ERR_NOMEM, "out of memory for the text of prompts");
    e->n = text.len;
    if (!rc) e->text = str_take(&text);
    if (!rc && !e->text) rc = err_set(why, ERR_NOMEM, "out of memory for the text of prompts");
    str_free(&text);
    return rc;
}

/* Reads the text: that of the plan, or else the one of the first config's model. */
static enum err_code eval_open_text(struct eval *e, struct err *why)
{
    enum { LIMIT = 1 << 30 };
    char *model = NULL;
    enum err_code rc = measured_model(&model, &e->m, &e->m.configs[0], why);
    if (!rc) rc = quality_text_of(&e->usual, e->m.db, model, why);
    const char *given = e->plan->prompts ? e->plan->prompts : e->plan->file;
    if (!rc && !given && e->usual.trouble.code) {
        *why = e->usual.trouble;
        rc = why->code;
    }
    e->file = given ? given : e->usual.path;
    if (!rc)
        rc = e->plan->prompts ? eval_read_prompts(e, why) : file_read(&e->text, &e->n, e->file, LIMIT, why);
    if (!rc) hash_bytes(e->text, e->n, e->text_sha256);
    free(model);
    return rc;
}

/* Whether losses on this text are ranked with others of the model. */
static void note_text(struct eval *e)
{
    const bool usual = quality_text_is(&e->usual, "", e->text_sha256);
    json_t *text = json_object();
    json_put_str(text, "path", e->file);
    json_put_str(text, "sha256", e->text_sha256);
    json_put_bool(text, "is_text_of_model", usual || (e->plan->set_text && e->m.ok));
    json_put(e->m.table.extra, "text", text);
    if (e->plan->set_text && e->m.ok)
        table_note(
            &e->m.table,
            "%s is now the text of this model: `qdyno advise` and the dashboard rank only losses measured on it. "
            "Measure configs that were measured on another text again",
            cli_base_name(e->file));
    else if (e->ref.model && !usual)
        table_note(&e->m.table,
                   "measured on %s; this model's text is %s: advise and the dashboard do not rank this loss. "
                   "Leave out -f to measure on %s, or add --set-text to make %s the model's text",
                   cli_base_name(e->file), e->usual.name, e->usual.name, cli_base_name(e->file));
}

/* Opens the model of the reference once, before the first config. */
static enum err_code eval_open_reference(struct eval *e, struct err *why)
{
    const struct config *c = e->plan->ref;
    if (!c) return ERR_OK;
    config_line(c, e->ref.line, sizeof e->ref.line);
    enum err_code rc = measured_model(&e->ref.path, &e->m, c, why);
    progress_show(&e->m.progress, "reference %s  loading", e->ref.line);
    if (!rc) rc = cli_model_open(&e->ref.model, e->m.g, e->ref.path, c, e->ctx, why);
    return rc ? err_prefix(why, "reference %s", e->ref.line) : ERR_OK;
}

/* ERR_FORMAT: a result is infinite or NaN. */
static enum err_code eval_check_finite(struct eval *e, const struct evaluation *r, struct err *why)
{
    const double kld = e->ref.model ? r->quality.figures.kld_mean : 0;
    if (isfinite(r->ppl.ppl) && isfinite(kld)) return ERR_OK;
    e->not_finite = true;
    return err_set(
        why, ERR_FORMAT,
        "the result is not finite (perplexity %g, KL divergence %g): expected a model whose logits "
        "differ by less than %g; check its file",
        r->ppl.ppl, kld, log(DBL_MAX));
}

/* Measures one config and stores the result; an error of the measurement becomes a failed cell. Errors:
 * ERR_CANCELLED, those of the database. */
static enum err_code eval_run(struct eval *e, const char *path, struct model *m, int64_t start_ns,
                              struct err *why)
{
    struct evaluation r = { .seconds = NAN };
    struct measured_cell c;
    run_measure_begin(&e->m.run, &c, getpid());
    enum err_code rc = eval_measure(e, m, &r, &c.failure);
    if (!rc) rc = eval_check_finite(e, &r, &c.failure);
    c.failure.code = rc;
    run_measure_end(&e->m.run, &c);
    if (rc == ERR_CANCELLED) {
        *why = c.failure;
        return rc;
    }
    r.seconds = (double)(clock_ns() - start_ns) * 1e-9;
    if (rc) {
        eval_add_failure(e, path, &c.failure);
    } else {
        put_result(e, path, &r, model_shape(m));
    }
    const enum err_code kept = eval_store_cell(e, &r, &c, why);
    return kept || rc || !e->plan->set_text
               ? kept
               : quality_text_choose(e->m.db, e->model_sha256, e->file, e->text_sha256, why);
}

static enum err_code eval_config(struct eval *e, struct err *why)
{
    const struct config *c = &e->m.configs[e->m.at];
    struct model *m = NULL;
    struct err opening = { 0 };
    char *path = NULL;
    config_line(c, e->m.line, sizeof e->m.line);
    enum err_code rc = measured_model(&path, &e->m, c, why);
    if (rc) return rc;
    progress_show(&e->m.progress, "%d/%d %s  loading", e->m.at + 1, e->m.n, e->m.line);
    const struct moment begun = moment_now();
    rc = cli_model_open(&m, e->m.g, path, c, e->ctx, &opening);
    if (!rc) {
        rc = eval_model_opened(&e->m, e->model_sha256, "eval", e->file, m, begun, why);
        if (!rc) rc = eval_run(e, path, m, begun.clock_ns, why);
    } else if (rc == ERR_CANCELLED) {
        *why = opening;
    } else {
        eval_add_failure(e, path, &opening);
        rc = ERR_OK; /* a config that cannot run becomes a row */
    }
    model_close(m);
    free(path);
    return rc;
}

/* The exit status. Without an error and with a gate, it is the gate's. */
static int eval_status(const struct eval *e, enum err_code rc, const struct err *why)
{
    if (rc) return exit_status_of(why->code);
    if (!e->m.ok || e->not_finite || (e->plan->gate.terms && e->m.first.code))
        return exit_status_of(e->m.first.code);
    return e->plan->gate.terms ? (int)e->gate_outcome : EXIT_DONE;
}

static void eval_put_extra(struct eval *e)
{
    json_t *gate = json_object();
    note_text(e);
    if (e->m.run.row.id) json_put_int(e->m.table.extra, "run", e->m.run.row.id);
    json_put_str(e->m.table.extra, "machine", e->m.machine.id);
    json_put(e->m.table.extra, "labels", cli_labels_json(&e->m.labels));
    if (e->plan->baseline) json_object_set(e->m.table.extra, "baseline", e->plan->baseline);
    if (e->plan->gate.terms) {
        json_put_str(gate, "gate", e->plan->gate.text);
        json_put_str(gate, "outcome", gate_outcome_name(e->gate_outcome));
        json_object_set(gate, "arms", e->gates);
        json_object_set(e->m.table.extra, "gate", gate);
    }
    json_decref(gate);
    cli_note_cautions(&e->m.table, e->random, e->unverified);
}

/* A loss is known; what it buys, only an A/B of the speeds says. */
static void eval_put_next(struct eval *e)
{
    char *path = NULL;
    if (!e->ref.model || e->m.first.code || measured_model(&path, &e->m, &e->m.configs[0], NULL)) {
        close_with_run(&e->m.table, e->m.run.row.id);
        return;
    }
    close_with_ab(&e->m.table, e->m.run.row.id,
                  &(struct next_ab){ .side = { { e->plan->ref, e->ref.path }, { &e->m.configs[0], path } },
                                     .workload = "tg64",
                                     .why = "whether the loss buys speed" });
    free(path);
}

static int eval_finish(struct eval *e, enum err_code rc, struct err *why)
{
    progress_clear(&e->m.progress);
    eval_put_extra(e);
    eval_close_table(&e->m.table, e->ref.line);
    rc = cli_run_finish(&e->m.run, &e->m.table, "done", rc, why);
    const int status = eval_status(e, rc, why);
    if (e->m.run.row.id) eval_put_next(e);
    const bool gated = e->plan->gate.terms && !rc && !e->m.first.code;
    const struct summary summary = { .gate = gated ? gate_outcome_name(e->gate_outcome) : NULL,
                                     .effect = e->effect,
                                     .exit_status = status,
                                     .run = e->m.run.row.id };
    table_summarize(&e->m.table, &summary);
    const int printed = e->m.ok ? cli_print(e->m.g, e->m.a, &e->m.table, EXIT_DONE) : EXIT_DONE;
    if (rc) return cli_fail(e->m.a, why);
    if (printed) return printed;
    return e->m.first.code && status != EXIT_DONE ? cli_fail(e->m.a, &e->m.first) : status;
}

int eval_plan_run(const struct cli_global *g, const struct cli_args *a, const struct eval_plan *plan)
{
    struct err why = { 0 };
    struct eval *e = calloc(1, sizeof *e);
    if (!e) return cli_fail_memory(a);
    measured_init(&e->m, g, a, &DOCUMENT_EVAL);
    e->plan = plan;
    e->file = "";
    e->ctx = plan->ctx;
    e->m.configs = plan->configs;
    e->m.n = plan->n;
    e->m.model = plan->model;
    e->gates = json_array();
    e->effect = (struct interval){ NAN, NAN, NAN };
    enum err_code rc = measured_open(&e->m, NULL, &why);
    if (!rc) rc = eval_open_text(e, &why);
    if (!rc) rc = eval_open_reference(e, &why);
    for (e->m.at = 0; e->m.at < e->m.n && !rc; e->m.at++) rc = eval_config(e, &why);
    const int status = eval_finish(e, rc, &why);
    measured_close(&e->m);
    json_decref(e->gates);
    logit_cache_done(&e->logit_cache);
    model_close(e->ref.model);
    free(e->ref.path);
    free(e->text);
    free(e);
    return status;
}

/* ---------------------------------------------------------------- the command */

/* Parses --ref. Config flags apply to it, too, unless they list several values, because there is only one
 * reference. */
static enum err_code read_reference(struct config *out, const struct cli_args *a, const char *line,
                                    struct err *why)
{
    struct cli_args single = *a;
    single.knob_count = 0;
    for (int i = 0; i < a->knob_count; i++)
        if (!strchr(a->knob[i].value, ',')) single.knob[single.knob_count++] = a->knob[i];
    enum err_code rc = cli_config(out, &single, line, why);
    return rc ? err_prefix(why, "--ref %s", line) : ERR_OK;
}

/* ERR_USAGE for a figure that `eval` does not measure. */
static enum err_code gate_check(const struct gate *g, bool compares, struct err *why)
{
    const char *timed = gate_timed_figure(g), *compared = gate_compared_figure(g);
    if (timed)
        return err_set(why, ERR_USAGE,
                       "--gate: eval times nothing, so %s is unknown: expected figures of quality such as "
                       "kld_mean, ppl_ratio or ppl; `qdyno ab --gate` also takes figures of speed",
                       timed);
    if (compared && !compares)
        return err_set(why, ERR_USAGE, "--gate: %s compares with a reference: give --ref CONFIG", compared);
    return ERR_OK;
}

int command_eval(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct config *configs = NULL, ref;
    char *bundled = NULL;
    const char *ref_line = args_text(a, "--ref", NULL);
    struct eval_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return cli_fail_memory(a);
    *plan = (struct eval_plan){ .file = args_text(a, "-f", NULL),
                                .ctx = (int)args_int(a, "-c", 512),
                                .chunks = args_int(a, "--chunks", 0),
                                .set_text = args_has(a, "--set-text"),
                                .prompts = args_text(a, "--prompts", NULL),
                                .ref = ref_line ? &ref : NULL };
    enum err_code rc = plan->prompts && (plan->file || plan->set_text)
                           ? err_set(&why, ERR_USAGE, "--prompts is scored instead of a text: leave %s out",
                                     plan->file ? "-f" : "--set-text")
                           : cli_gate(&plan->gate, a, &why);
    if (!rc) rc = gate_check(&plan->gate, ref_line != NULL, &why);
    if (!rc && !plan->file && plan->set_text) rc = file_share(&bundled, EVAL_TEXT, &why);
    if (bundled) plan->file = bundled;
    if (!rc) rc = cli_config_grid(&configs, &plan->n, a, &why);
    if (!rc && ref_line) rc = read_reference(&ref, a, ref_line, &why);
    plan->configs = configs;
    if (!rc) rc = eval_task_check(a, &why);
    const int status = rc                      ? cli_fail(a, &why)
                       : args_has(a, "--task") ? eval_task(g, a, configs, plan->n, plan->ref)
                                               : eval_plan_run(g, a, plan);
    free(configs);
    free(bundled);
    free(plan);
    return status;
}
