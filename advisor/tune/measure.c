/* advisor/tune/measure.c - one look at a configuration's answers, and the database that remembers all looks.
 *
 * Both models in this process, the file as it is and the candidate, side by side over windows of the text;
 * nothing is timed then. Like those at speed (speed.c) it is a cell of the run, so that a search that
 * was killed knows what it had found out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/tune/parts.h"
#include "advisor/run/run.h"
#include "engine/eval/eval.h"

static const char QUALITY[] = "quality"; /* phase of cells */
enum { CTX = 256, TEXT_LIMIT = 1 << 28 };

double tune_spent(const struct tuning *t)
{
    return t->spent_before + (double)(clock_ns() - t->begun_ns) * 1e-9;
}

bool tune_event(void *ctx, const json_t *event)
{
    const struct tuning *t = ctx;
    (void)event;
    return !t->o->progress || t->o->progress(t->o->ctx, NULL, NAN);
}

bool tune_tell(const struct tuning *t, const char *what, const char *line)
{
    char text[160];
    snprintf(text, sizeof text, "%s %s", what, line);
    return !t->o->progress || t->o->progress(t->o->ctx, text, tune_spent(t) / t->o->budget_s);
}

void tune_average(double *mean, int n, double x)
{
    *mean = n > 1 ? *mean + (x - *mean) / n : x;
}

/* The value of the recipe that a candidate needs made; -1: none. */
static int recipe_of(const struct tuning *t, int i)
{
    int at[TUNE_DIMS];
    if (t->recipe_dim < 0 || t->list[i].index < 0) return -1;
    tune_space_at(at, &t->space, t->list[i].index);
    const int value = at[t->recipe_dim];
    return !strcmp(t->space.dim[t->recipe_dim].value[value], "file") ? -1 : value;
}

double tune_make_s(const struct tuning *t, int i)
{
    static const double WEIGHTS_S = 1e8; /* until the first was made: two cores with AVX-512 */
    const int value = recipe_of(t, i);
    if (value < 0 || t->made[value]) return 0;
    return isnan(t->make_s) ? (double)t->shape.params / WEIGHTS_S : t->make_s;
}

void tune_learn_cost(struct tuning *t, int i, double *mean, int *n, double seconds)
{
    const int value = recipe_of(t, i);
    if (value >= 0 && !t->made[value]) {
        t->made[value] = true;
        tune_average(&t->make_s, ++t->makes, fmax(seconds - (isnan(*mean) ? 0 : *mean), 0));
        if (!isnan(*mean)) return;
    }
    tune_average(mean, ++*n, seconds);
}

/* ---------------------------------------------------------------- quality */

struct tune_answer *tune_answer_find(const struct tuning *t, const char *line)
{
    for (int i = 0; i < t->answers; i++)
        if (!strcmp(t->answer[i].line, line)) return &t->answer[i];
    return NULL;
}

/* Of 2^64, no two answers of a space meet. */
static uint64_t answer_of(const char *line)
{
    return hash_number(line, strlen(line));
}

/* Every candidate that says the same as this one. */
static void spread(struct tuning *t, const struct tune_answer *a)
{
    const uint64_t answer = answer_of(a->line);
    for (int i = 0; i < t->n; i++) {
        struct tune_candidate *c = &t->list[i];
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
    if (c == &t->list[0]) {
        *out = *t->o->current;
        return ERR_OK;
    }
    return tune_space_config(out, &t->space, c->index)
               ? ERR_OK
               : err_set(why, ERR_INTERNAL, "'%s' cannot be", c->line);
}

void tune_describe(struct tune_candidate *c, const struct tuning *t, const struct config *config,
                   const struct prediction *p)
{
    char answer[640];
    config_line(config, c->line, sizeof c->line);
    answer_line(config, answer, sizeof answer);
    const bool decode = t->out->metric == &METRICS[METRIC_DECODE_RATE];
    c->predicted = tune_predicted(t, p);
    c->low = decode ? p->decode_low : p->prefill_low;
    c->high = decode ? p->decode_high : p->prefill_high;
    /* Where nothing is known it is taken for as fast as the current configuration: what is learned is all
     * there is. */
    if (!(c->predicted > 0)) c->predicted = tune_predicted(t, &t->reference);
    if (!(c->predicted > 0)) c->predicted = 1;
    const int threads = decode || p->plan.gpu_layers ? p->decode_threads : p->prefill_work.threads;
    c->looks_by = threads == 1 ? 0 : threads == t->o->ceilings->threads_all ? 1 : -1;
    c->memory_bytes = p->plan.total;
    c->read_bytes = (double)p->plan.decode_read_bytes + (double)p->plan.kv_bytes_per_token * p->depth;
    c->rate = c->usual_rate = c->usual_sd = c->score = NAN;
    const bool same = !strcmp(answer, "default");
    c->kld = c->kld_se = same ? 0 : NAN;
    c->ppl_ratio = same ? 1 : NAN;
    c->answer = answer_of(answer);
    c->ln_guess = tune_guess(config);
    for (int k = 0; k < KNOB_COUNT; k++) c->settings += config->given[k];
}

static enum err_code keep_answer(struct tuning *t, int i, const struct tune_answer *now, struct err *why)
{
    int at[TUNE_DIMS];
    struct tune_answer *a = tune_answer_find(t, now->line);
    if (!a && t->answers == t->answer_room) {
        const int room = t->answer_room ? 2 * t->answer_room : 32;
        struct tune_answer *grown = realloc(t->answer, (size_t)room * sizeof *grown);
        if (!grown) return err_set(why, ERR_NOMEM, "no memory for answers");
        t->answer = grown;
        t->answer_room = room;
    }
    if (!a) a = &t->answer[t->answers++];
    const bool first = i >= 0 && t->list[i].index >= 0 && isnan(t->list[i].kld) && !now->failed;
    if (first) { /* NAN means believed: learn before it becomes a fact */
        double mean, sd;
        tune_space_at(at, &t->space, t->list[i].index);
        tune_loss_of(t, i, &mean, &sd);
        double believed, ignored;
        tune_belief_tell(t->loss, at, &believed, &ignored);
        tune_belief_see(t->loss, at, log(fmax(now->kld, 1e-9)) - (mean - believed), 0.1);
    }
    *a = *now;
    spread(t, a);
    return ERR_OK;
}

static bool go_on(void *arg, int64_t chunk, int64_t of, double nll)
{
    (void)chunk, (void)of, (void)nll;
    return tune_event(arg, NULL);
}

static bool go_on_making(void *arg, const char *phase, double done)
{
    (void)phase, (void)done;
    return tune_event(arg, NULL);
}

static enum err_code open_model(struct model **out, struct tuning *t, const struct config *c, struct err *why)
{
    const int ctx = t->shape.ctx_train > 0 ? (int)MIN(t->shape.ctx_train, (int64_t)CTX) : CTX;
    const struct model_options o = { .path = t->o->model_path,
                                     .config = c,
                                     .ctx = ctx,
                                     .sequences = 1,
                                     .log = t->o->log,
                                     .progress = go_on_making,
                                     .progress_arg = t };
    return shapes_model_open(out, &o, why);
}

static enum err_code read_text(struct tuning *t, struct err *why)
{
    char *path = NULL;
    if (t->text) return ERR_OK;
    enum err_code rc = t->o->text_file ? ERR_OK : file_share(&path, EVAL_TEXT, why);
    if (!rc) rc = file_read(&t->text, &t->text_n, t->o->text_file ? t->o->text_file : path, TEXT_LIMIT, why);
    free(path);
    return rc;
}

static enum err_code compare(struct divergence *d, struct tuning *t, const struct config *c, int windows,
                             struct err *why)
{
    struct config as_is;
    struct model *m = NULL;
    config_default(&as_is);
    enum err_code rc = read_text(t, why);
    if (!rc && !t->as_is) rc = open_model(&t->as_is, t, &as_is, why);
    if (!rc) rc = open_model(&m, t, c, why);
    if (!rc) {
        const struct eval_request r = { .text = t->text,
                                        .n = t->text_n,
                                        .ctx = MIN(model_ctx(m), (int)CTX),
                                        .max_chunks = windows,
                                        .progress = go_on,
                                        .arg = t,
                                        .logit_cache = &t->logit_cache };
        rc = eval_divergence(d, t->as_is, m, &r, why);
    }
    model_close(m);
    return rc;
}

static enum err_code store_answer(struct tuning *t, const struct tune_answer *a, double seconds,
                                  const struct err *failed, struct err *why)
{
    struct cell_row row = {
        .run_id = t->run.id, .block = -1, .seconds = seconds, .started_ms = clock_unix_ms()
    };
    const struct measurement m[] = { { METRICS[METRIC_KLD].name, METRICS[METRIC_KLD].unit, a->kld },
                                     { "kld_se_nats", "nats", a->kld_se },
                                     { "ppl_ratio", "", a->ppl_ratio } };
    snprintf(row.phase, sizeof row.phase, "%s", QUALITY);
    snprintf(row.config, sizeof row.config, "%s", a->line);
    snprintf(row.error, sizeof row.error, "%s", failed->code ? failed->message : "");
    return db_cell_insert(t->db, &row, m, a->failed ? 0 : (int)COUNT_OF(m), NULL, 0, NULL, 0, why);
}

enum err_code tune_judge(struct tuning *t, int i, int windows, struct err *why)
{
    struct tune_answer a = { .kld = NAN, .kld_se = NAN, .ppl_ratio = NAN };
    struct divergence d;
    struct err failed = { 0 };
    struct config said;
    const int64_t t0 = clock_ns();
    enum err_code rc = tune_config(&said, t, &t->list[i], why);
    if (rc) return rc;
    answer_line(&said, a.line, sizeof a.line);
    if (!tune_tell(t, "answers of", a.line)) return err_set(why, ERR_CANCELLED, "stopped");
    if ((rc = config_parse(&said, a.line, why))) return rc;
    rc = compare(&d, t, &said, windows, &failed);
    if (rc == ERR_CANCELLED) return err_set(why, ERR_CANCELLED, "stopped");
    a.failed = rc != ERR_OK;
    if (!rc) {
        a.kld = d.kld_mean;
        a.kld_se = isnan(d.kld_se) ? d.kld_mean : d.kld_se;
        a.ppl_ratio = exp(d.log_ratio);
    } else {
        snprintf(t->list[i].error, sizeof t->list[i].error, "%s", failed.message);
    }
    const double seconds = (double)(clock_ns() - t0) * 1e-9;
    tune_learn_cost(t, i, &t->judge_s, &t->judged, seconds);
    rc = keep_answer(t, i, &a, why);
    return rc ? rc : store_answer(t, &a, seconds, &failed, why);
}

/* ---------------------------------------------------------------- the run and its past */

static struct tune_candidate *find_line(const struct tuning *t, const char *line, int *at)
{
    for (*at = 0; *at < t->n; ++*at)
        if (!strcmp(t->list[*at].line, line)) return &t->list[*at];
    return NULL;
}

static enum err_code recall_cell(struct tuning *t, const struct cell_row *row, struct err *why)
{
    int i;
    t->spent_before += row->seconds > 0 ? row->seconds : 0;
    if (!strcmp(row->phase, TUNE_RACE)) {
        struct tune_candidate *c = find_line(t, row->config, &i);
        if (c) tune_learn_cost(t, i, &t->look_s, &t->looks, row->seconds);
        if (c && *row->error) c->failed = true;
        if (c && !c->failed) tune_speed_recall(t, c, row->id);
        return ERR_OK;
    }
    if (strcmp(row->phase, QUALITY)) return ERR_OK;
    struct tune_answer a = { .failed = *row->error != '\0' };
    snprintf(a.line, sizeof a.line, "%s", row->config);
    a.kld = db_measurement_get(t->db, row->id, METRICS[METRIC_KLD].name);
    a.kld_se = db_measurement_get(t->db, row->id, "kld_se_nats");
    a.ppl_ratio = db_measurement_get(t->db, row->id, "ppl_ratio");
    tune_average(&t->judge_s, ++t->judged, row->seconds);
    for (i = 0; i < t->n; i++) /* one that gives these answers, to learn by */
        if (t->list[i].index >= 0 && t->list[i].answer == answer_of(a.line)) break;
    return keep_answer(t, i < t->n ? i : -1, &a, why);
}

static void recall_event(void *ctx, int64_t unix_ms, const char *kind, const char *text)
{
    struct tuning *t = ctx;
    (void)unix_ms;
    if (!strcmp(kind, "confirm")) str_to_i64(text, &t->confirm_run);
}

enum err_code tune_recall(struct tuning *t, struct err *why)
{
    struct cell_row *cells = NULL;
    int n = 0;
    enum err_code rc = db_cell_list(t->db, t->run.id, &cells, &n, why);
    for (int i = 0; i < n && !rc; i++) rc = recall_cell(t, &cells[i], why);
    free(cells);
    return rc ? rc : db_event_list(t->db, t->run.id, recall_event, t, why);
}

static enum err_code put_identities(struct tuning *t, struct err *why)
{
    char sha256[HASH_HEX];
    const char *slash = strrchr(t->o->model_path, '/');
    json_t *machine = machine_to_json(t->o->machine);
    char *line = json_line(machine);
    enum err_code rc = line ? db_machine_put(t->db, t->o->machine->id, line, why)
                            : err_set(why, ERR_NOMEM, "no memory to describe a machine");
    json_decref(machine);
    free(line);
    snprintf(t->run.model_name, sizeof t->run.model_name, "%s", slash ? slash + 1 : t->o->model_path);
    if (!rc) rc = model_identity(t->file, sha256, why);
    json_t *model = json_object();
    json_put_str(model, "name", t->shape.name);
    json_put_str(model, "arch", t->shape.arch);
    json_put_int(model, "params", t->shape.params);
    line = json_line(model);
    json_decref(model);
    if (!rc && line) rc = db_model_put(t->db, sha256, t->run.model_name, t->o->model_path, line, why);
    free(line);
    if (rc) return rc;
    snprintf(t->run.machine, sizeof t->run.machine, "%s", t->o->machine->id);
    snprintf(t->run.model_sha256, sizeof t->run.model_sha256, "%s", sha256);
    return ERR_OK;
}

static char *spec_text(const struct tuning *t)
{
    char work[640], seed[24];
    json_t *o = json_object();
    json_put_str(o, "model", t->o->model_path);
    json_put_str(o, "current", t->list[0].line);
    json_put_str(o, "workload", workload_line(&t->o->workload, work, sizeof work));
    json_put_str(o, "goal", goal_name(t->o->goal));
    json_put_str(o, "space", t->o->space);
    json_put_str(o, "text", t->o->text_file);
    json_put_num(o, "budget_s", t->o->budget_s);
    json_put_int(o, "limit_memory_bytes", t->o->limits.memory_bytes);
    json_put_num(o, "limit_kld", t->o->limits.kld);
    json_put_num(o, "limit_ppl_ratio", t->o->limits.ppl_ratio);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)t->o->seed);
    json_put_str(o, "seed", seed);
    char *line = json_line(o);
    json_decref(o);
    return line;
}

/* Everything but the time must be as it was. */
static bool is_same_search(const char *then, const char *now)
{
    json_t *a = NULL, *b = NULL;
    const bool read = then && now && !json_parse(&a, then, strlen(then), NULL) &&
                      !json_parse(&b, now, strlen(now), NULL);
    if (read) json_object_del(a, "budget_s");
    if (read) json_object_del(b, "budget_s");
    const bool same = read && json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return same;
}

static enum err_code check_resumed(struct tuning *t, struct err *why)
{
    struct run_row old = { 0 };
    const long long id = (long long)t->o->resume_id;
    enum err_code rc = db_run_get(t->db, t->o->resume_id, &old, why);
    if (!rc && strcmp(old.kind, "tune"))
        rc = err_set(why, ERR_USAGE, "--resume %lld: that run is of kind '%s', not a search", id, old.kind);
    if (!rc && !strcmp(old.state, "done"))
        rc = err_set(why, ERR_USAGE, "--resume %lld: that search is done: qdyno show %lld", id, id);
    if (!rc &&
        (!is_same_search(old.spec_json, t->run.spec_json) || strcmp(old.model_sha256, t->run.model_sha256)))
        rc = err_set(
            why, ERR_USAGE,
            "--resume %lld: that was another search (%s, %s): give the same command, only the budget may differ",
            id, old.model_name, old.workload);
    run_row_free(&old);
    return rc;
}

enum err_code tune_begin(struct tuning *t, struct err *why)
{
    struct run_row *r = &t->run;
    *r = (struct run_row){ .seed = t->o->seed, .effect_ratio = NAN };
    snprintf(r->kind, sizeof r->kind, "tune");
    snprintf(r->state, sizeof r->state, "running");
    snprintf(r->label, sizeof r->label, "%s", t->list[0].line);
    snprintf(r->metric, sizeof r->metric, "%s", t->out->metric->name);
    workload_line(&t->o->workload, r->workload, sizeof r->workload);
    enum err_code rc = put_identities(t, why);
    if (rc) return rc;
    r->spec_json = spec_text(t);
    if (t->o->resume_id) {
        r->id = t->o->resume_id;
        rc = check_resumed(t, why);
        if (!rc) rc = db_run_hold(t->db, r->id, why);
        if (!rc) rc = db_run_reopen(t->db, r->id, why);
    } else {
        rc = db_run_insert(t->db, r, why);
        if (!rc) rc = db_run_hold(t->db, r->id, why);
    }
    t->started = !rc;
    t->out->run_id = rc ? 0 : r->id;
    return rc;
}

void tune_end(struct tuning *t)
{
    model_close(t->as_is);
    t->as_is = NULL;
    logit_cache_done(&t->logit_cache);
    tune_speed_close(t);
    free(t->text);
    t->text = NULL;
}
