/* advisor/tune/measure.c - measures the answers of one candidate, and stores and restores all measurements.
 *
 * Quality is measured in this process: the unchanged file and the candidate run side by side over windows of
 * the text. Nothing is timed meanwhile. Each measurement, like each timing (speed.c), is a cell of the run,
 * so that a killed search can be resumed from the database. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/tune/parts.h"
#include "advisor/recipe/recipe.h"
#include "advisor/run/run.h"
#include "base/base.h"
#include "engine/eval/eval.h"

static const char QUALITY[] = "quality"; /* phase of the cells */

double tune_spent(const struct tuning *t)
{
    return t->record.spent_before + (double)(clock_ns() - t->record.begun_ns) * 1e-9;
}

void tune_average(double *mean, int n, double x)
{
    *mean = n > 1 ? *mean + (x - *mean) / n : x;
}

/* Index of the recipe that must be made for a candidate; -1: none. */
static int candidate_recipe(const struct tuning *t, int i)
{
    int at[TUNE_DIMS];
    if (t->task.recipe_dim < 0 || t->known.list[i].index < 0) return -1;
    tune_space_at(at, &t->task.space, t->known.list[i].index);
    const int value = at[t->task.recipe_dim];
    return !strcmp(t->task.space.dim[t->task.recipe_dim].value[value], "file") ? -1 : value;
}

double tune_make_s(const struct tuning *t, int i)
{
    /* weights per second, until the first recipe was made (measured on two cores with AVX-512) */
    static const double WEIGHTS_S = 1e8;
    const int value = candidate_recipe(t, i);
    if (value < 0 || t->costs.made[value]) return 0;
    return isnan(t->costs.recipe.seconds) ? (double)t->task.shape.params / WEIGHTS_S
                                          : t->costs.recipe.seconds;
}

void tune_add_cost(struct tuning *t, int i, struct tune_mean *mean, double seconds)
{
    const int value = candidate_recipe(t, i);
    if (value >= 0 && !t->costs.made[value]) {
        t->costs.made[value] = true;
        tune_average(&t->costs.recipe.seconds, ++t->costs.recipe.n,
                     fmax(seconds - (isnan(mean->seconds) ? 0 : mean->seconds), 0));
        if (!isnan(mean->seconds)) return;
    }
    tune_average(&mean->seconds, ++mean->n, seconds);
}

/* ---------------------------------------------------------------- quality */

/* NULL: not measured. */
static struct tune_answer *answer_find(const struct tune_knowledge *k, const char *line)
{
    for (int i = 0; i < k->answers; i++)
        if (!strcmp(k->answer[i].line, line)) return &k->answer[i];
    return NULL;
}

/* Hash of an answer line; a collision within a space of 4096 is negligible with 64 bits. */
static uint64_t answer_hash(const char *line)
{
    return hash_number(line, strlen(line));
}

/* Copy the divergence to every candidate with the same answers. */
static void answer_apply(struct tuning *t, const struct tune_answer *a)
{
    const uint64_t answer = answer_hash(a->line);
    for (int i = 0; i < t->known.n; i++) {
        struct tune_candidate *c = &t->known.list[i];
        if (c->answer != answer) continue;
        c->kld = a->kld;
        c->kld_se = a->kld_se;
        c->ppl_ratio = a->ppl_ratio;
        c->quality_failed = a->failed;
    }
}

enum err_code tune_config(struct config *out, const struct tuning *t, const struct tune_candidate *c,
                          struct err *why)
{
    if (c == &t->known.list[0]) {
        *out = *t->task.o->current;
        return ERR_OK;
    }
    return tune_space_config(out, &t->task.space, c->index)
               ? ERR_OK
               : err_set(why, ERR_INTERNAL, "the configuration '%s' is invalid", c->line);
}

void tune_describe(struct tune_candidate *c, const struct tuning *t, const struct config *config,
                   const struct prediction *p)
{
    char answer[CONFIG_LINE];
    config_line(config, c->line, sizeof c->line);
    answer_line(config, answer, sizeof answer);
    const bool decode = t->task.metric != &METRICS[METRIC_PREFILL_RATE];
    const struct interval rate = decode ? p->decode_tok_s : p->prefill_tok_s;
    c->predicted = tune_predicted(&t->task, p);
    c->low = rate.lower;
    c->high = rate.upper;
    if (isnan(c->predicted)) c->low = c->high = NAN; /* of a load, nothing is predicted */
    /* A candidate without a prediction starts as fast as the current config, and is known by its measurements
     * only. */
    if (!(c->predicted > 0)) c->predicted = tune_predicted(&t->task, &t->task.reference);
    if (!(c->predicted > 0)) c->predicted = 1;
    const int threads = decode || p->plan.gpu_layers ? p->decode_threads : p->prefill_work.threads;
    c->probe = threads == 1 ? 0 : threads == t->task.o->ceilings->threads_all ? 1 : -1;
    c->memory_bytes = p->plan.total;
    c->read_bytes = (double)p->plan.decode_read_bytes + (double)p->plan.kv_bytes_per_token * p->depth;
    if (!strcmp(answer, "default")) {
        c->kld = c->kld_se = c->accuracy_change = c->accuracy_lower = c->accuracy_upper = 0;
        c->ppl_ratio = 1;
    }
    c->answer = answer_hash(answer);
    c->same_answers = c->answer == (c == t->known.list ? c : t->known.list)->answer;
    c->ln_guess = tune_prior_ln_kld(config);
    for (int k = 0; k < KNOB_COUNT; k++) c->settings += config->given[k];
}

static enum err_code answer_add(struct tuning *t, int i, const struct tune_answer *now, struct err *why)
{
    int at[TUNE_DIMS];
    struct tune_answer *a = answer_find(&t->known, now->line);
    if (!a && !array_room(&t->known.answer, &t->known.answer_room, (int64_t)t->known.answers + 1,
                          sizeof *t->known.answer))
        return err_set(why, ERR_NOMEM, "out of memory for measured answers");
    if (!a) a = &t->known.answer[t->known.answers++];
    const bool first = i >= 0 && t->known.list[i].index >= 0 && isnan(t->known.list[i].kld) && !now->failed;
    /* record the observation first: a NAN divergence stands for the estimate that it is compared with */
    if (first) {
        double mean, sd;
        tune_space_at(at, &t->task.space, t->known.list[i].index);
        tune_estimate_kld(t, i, &mean, &sd);
        double believed, ignored;
        tune_regression_estimate(t->known.kld, at, &believed, &ignored);
        tune_regression_add(t->known.kld, at, log(fmax(now->kld, 1e-9)) - (mean - believed), 0.1);
    }
    *a = *now;
    answer_apply(t, a);
    return ERR_OK;
}

static bool eval_progress(void *arg, int64_t chunk, int64_t of, double nll)
{
    (void)chunk, (void)of, (void)nll;
    return tune_event(arg, NULL);
}

static bool opening(void *arg, const char *phase, double done)
{
    (void)phase, (void)done;
    return tune_event(arg, NULL);
}

enum err_code tune_open_model(struct model **out, struct tuning *t, const struct config *c, int ctx,
                              struct err *why)
{
    const int64_t trained = t->task.shape.ctx_train;
    const struct model_options o = { .path = t->task.o->model_path,
                                     .config = c,
                                     .ctx = trained > 0 ? (int)MIN(trained, (int64_t)ctx) : ctx,
                                     .sequences = 1,
                                     .log = t->task.o->log,
                                     .progress = opening,
                                     .progress_arg = t };
    return shapes_model_open(out, &o, why);
}

void tune_config_as_is(struct config *out, const struct config *c)
{
    config_default(out);
    if (c->given[KNOB_FORCE]) config_take(out, c, KNOB_FORCE);
}

static enum err_code quality_compare(struct divergence *d, struct tuning *t, const struct config *c,
                                     int windows, struct err *why)
{
    struct config as_is;
    struct model *m = NULL;
    enum err_code rc = ERR_OK;
    tune_config_as_is(&as_is, c);
    if (!t->quality.original) rc = tune_open_model(&t->quality.original, t, &as_is, t->out->quality.ctx, why);
    if (!rc) rc = tune_open_model(&m, t, c, t->out->quality.ctx, why);
    if (!rc) {
        const struct eval_request r = { .text = t->quality.text,
                                        .n = t->quality.text_n,
                                        .ctx = MIN(model_ctx(m), t->out->quality.ctx),
                                        .max_chunks = windows,
                                        .progress = eval_progress,
                                        .arg = t,
                                        .logit_cache = &t->quality.logit_cache };
        rc = eval_divergence(d, t->quality.original, m, &r, why);
    }
    model_close(m);
    return rc;
}

static enum err_code answer_store(struct tuning *t, const struct tune_answer *a, struct measured_cell *c,
                                  struct err *why)
{
    json_t *echo = json_object();
    json_put_str(echo, "file", t->out->text);
    json_put_str(echo, "text_sha256", t->quality.sha256);
    const struct run_place place = { .block = -1, .phase = QUALITY, .config = a->line, .echo = echo };
    c->value[METRIC_KLD] = a->kld; /* NAN where it could not be measured */
    c->field[FIELD_KLD_SE] = a->kld_se;
    c->field[FIELD_PPL_RATIO] = a->ppl_ratio;
    const enum err_code rc = run_store(&t->record.run, &place, c, why);
    json_decref(echo);
    return rc;
}

enum err_code tune_measure_quality(struct tuning *t, int i, int windows, struct err *why)
{
    struct tune_answer a = { .kld = NAN, .kld_se = NAN, .ppl_ratio = NAN };
    struct divergence d;
    struct err failed = { 0 };
    struct config said;
    struct measured_cell c;
    enum err_code rc = tune_config(&said, t, &t->known.list[i], why);
    if (rc) return rc;
    said = answer_config(&said);
    config_line(&said, a.line, sizeof a.line);
    if (!tune_report(t, "quality", a.line)) return err_set(why, ERR_CANCELLED, "stopped");
    run_measure_begin(&t->record.run, &c, 0);
    rc = quality_compare(&d, t, &said, windows, &failed);
    run_measure_end(&t->record.run, &c);
    if (rc == ERR_CANCELLED) return err_set(why, ERR_CANCELLED, "stopped");
    a.failed = rc != ERR_OK;
    if (!rc) {
        a.kld = d.kld_mean;
        a.kld_se = isnan(d.kld_se) ? d.kld_mean : d.kld_se;
        a.ppl_ratio = exp(d.log_ratio);
    } else {
        snprintf(t->known.list[i].error, sizeof t->known.list[i].error, "%s", failed.message);
    }
    c.failure = failed; /* code 0 when there is none */
    t->known.list[i].judged = true;
    tune_add_cost(t, i, &t->costs.quality, c.seconds);
    rc = answer_add(t, i, &a, why);
    return rc ? rc : answer_store(t, &a, &c, why);
}

/* ---------------------------------------------------------------- the run in the database */

static struct tune_candidate *candidate_find(const struct tuning *t, const char *line, int *at)
{
    for (*at = 0; *at < t->known.n; ++*at)
        if (!strcmp(t->known.list[*at].line, line)) return &t->known.list[*at];
    return NULL;
}

static enum err_code cell_restore(struct tuning *t, const struct cell_row *row, struct err *why)
{
    int i;
    t->record.spent_before += row->seconds > 0 ? row->seconds : 0;
    if (!strcmp(row->phase, TUNE_RACE)) {
        struct tune_candidate *c = candidate_find(t, row->config, &i);
        if (c) tune_add_cost(t, i, &t->costs.timing, row->seconds);
        if (c && *row->error) c->failed = true;
        if (c && !c->failed) tune_restore_timing(t, c, row->id);
        return ERR_OK;
    }
    if (strcmp(row->phase, QUALITY)) return ERR_OK;
    struct tune_answer a = { .failed = *row->error != '\0' };
    snprintf(a.line, sizeof a.line, "%s", row->config);
    a.kld = db_measurement_get(t->record.db, row->id, METRICS[METRIC_KLD].name);
    a.kld_se = db_measurement_get(t->record.db, row->id, "kld_se_nats");
    a.ppl_ratio = db_measurement_get(t->record.db, row->id, "ppl_ratio");
    tune_average(&t->costs.quality.seconds, ++t->costs.quality.n, row->seconds);
    for (i = 0; i < t->known.n; i++) /* any candidate with these answers, to update the regression */
        if (t->known.list[i].index >= 0 && t->known.list[i].answer == answer_hash(a.line)) break;
    if (i < t->known.n) t->known.list[i].judged = true;
    return answer_add(t, i < t->known.n ? i : -1, &a, why);
}

/* Cells are a part of what an earlier session took: a search that ended stored the whole. */
static enum err_code spent_restore(struct tuning *t, struct err *why)
{
    struct run_row row = { 0 };
    const enum err_code rc = db_run_get(t->record.db, t->record.run.row.id, &row, why);
    json_t *o = tune_stored_json(row.outcome_json);
    t->record.spent_before = fmax(t->record.spent_before, json_get_num(o, "spent_s", 0));
    json_decref(o);
    run_row_free(&row);
    return rc;
}

static void event_restore(void *ctx, int64_t unix_ms, const char *kind, const char *text)
{
    struct tuning *t = ctx;
    (void)unix_ms;
    if (!strcmp(kind, "confirm")) str_to_i64(text, &t->record.confirm_run);
}

enum err_code tune_restore(struct tuning *t, struct err *why)
{
    struct cell_row *cells = NULL;
    int n = 0;
    enum err_code rc = db_cell_list(t->record.db, t->record.run.row.id, &cells, &n, why);
    for (int i = 0; i < n && !rc; i++) rc = cell_restore(t, &cells[i], why);
    free(cells);
    if (!rc) rc = spent_restore(t, why);
    return rc ? rc : db_event_list(t->record.db, t->record.run.row.id, event_restore, t, why);
}

static enum err_code run_check_resumed(struct tuning *t, const char *spec_json, const char *sha256,
                                       struct err *why)
{
    struct run_row old = { 0 };
    const long long id = (long long)t->task.o->resume_id;
    enum err_code rc = tune_resumed_run(&old, t->record.db, t->task.o->resume_id, why);
    if (!rc && tune_spec_text_differs(old.spec_json, t->quality.sha256))
        rc = err_set(
            why, ERR_USAGE,
            "--resume %lld: that search measured quality on another text than %.200s, and losses on two texts "
            "do not compare: give its text with -f FILE, or start a new search",
            id, t->quality.path);
    if (!rc && (!tune_spec_same(old.spec_json, spec_json) || strcmp(old.model_sha256, sha256)))
        rc = err_set(
            why, ERR_USAGE,
            "--resume %lld: that search (model %s, workload %s) had another model file or other options. Repeat "
            "its command and add --resume %lld; only --budget and --estimand may differ",
            id, old.model_name, old.workload, id);
    run_row_free(&old);
    return rc;
}

/* The text of the options, or else of the model. */
static enum err_code quality_text_read(struct tuning *t, struct err *why)
{
    struct tune_quality *q = &t->quality;
    const struct tune_options *o = t->task.o;
    enum err_code rc = ERR_OK;
    if (o->text_file)
        snprintf(q->path, sizeof q->path, "%s", o->text_file);
    else
        rc = quality_text_path(q->path, sizeof q->path, t->record.db, o->model_path, why);
    if (!rc) rc = file_read(&q->text, &q->text_n, q->path, RECIPE_TEXT_LIMIT, why);
    if (rc) return rc;
    hash_bytes(q->text, q->text_n, q->sha256);
    snprintf(t->out->text, sizeof t->out->text, "%.127s", path_file_name(q->path));
    snprintf(t->out->text_sha256, sizeof t->out->text_sha256, "%s", q->sha256);
    quality_context_choose(&t->out->quality, &o->workload, o->model_path, q->path, TUNE_QUALITY_CTX);
    if (o->quality_ctx && o->quality_ctx != t->out->quality.ctx)
        t->out->quality = (struct quality_context){ t->out->quality.wanted, o->quality_ctx, 0, 0 };
    return ERR_OK;
}

enum err_code tune_run_begin(struct tuning *t, struct err *why)
{
    const struct tune_options *o = t->task.o;
    char sha256[HASH_HEX];
    enum err_code rc = model_identity(t->task.file, sha256, why);
    if (!rc) rc = quality_text_read(t, why);
    if (!rc) rc = tune_task_read(t, why);
    if (rc) return rc;
    char *spec_json = tune_spec_json(t);
    const struct tune_run_about about = { .label = t->known.list[0].line,
                                          .metric = t->task.metric->name,
                                          .spec_json = spec_json,
                                          .sha256 = sha256,
                                          .shape = &t->task.shape };
    if (o->resume_id) rc = run_check_resumed(t, spec_json, sha256, why);
    if (!rc) rc = tune_run_open(&t->record.run, t->record.db, o, &about, why);
    free(spec_json);
    t->record.started = !rc;
    t->out->run_id = rc ? 0 : t->record.run.row.id;
    return rc;
}

void tune_release(struct tuning *t)
{
    model_close(t->quality.original);
    t->quality.original = NULL;
    logit_cache_done(&t->quality.logit_cache);
    tune_probes_close(&t->scratch);
    tune_task_release(t);
    free(t->quality.text);
    t->quality.text = NULL;
}
