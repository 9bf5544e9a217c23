/* tui/dashboard/jobs_main.c - the slow pieces: detecting, probing, advising, the database, the network.
 *
 * Pattern: work on locals without the lock, then publish under it. */
#include "tui/dashboard/background.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"
#include "advisor/outcome/outcome.h"
#include "advisor/predict/predict.h"
#include "tui/forms/forms.h"

static void publish_begin(struct background *b)
{
    pthread_mutex_lock(&b->lock);
}

static void publish_end(struct background *b)
{
    pthread_mutex_unlock(&b->lock);
}

static void put_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%.*s", (int)size - 1, text ? text : "");
}

/* ---------------------------------------------------------------- machine */

void job_detect_machine(struct background *b, const struct job *j)
{
    (void)j;
    struct err why = { 0 };
    struct machine m;
    struct machine_ceilings c;
    struct sampler_thread *sampler = NULL;
    struct sampler_periods periods = { 0 };
    bool found = false;
    bool detected = machine_detect(&m, "", &why) == ERR_OK;
    if (!detected) background_log(b, LOG_ERROR, "machine: %s", why.message);
    if (detected && ceilings_load(&c, m.id, &found, &why))
        background_log(b, LOG_WARN, "limits: %s", why.message);
    publish_begin(b);
    if (detected) b->known.machine = m;
    b->known.machine_known = detected;
    if (detected && found) b->known.ceilings = c;
    b->known.ceilings_known = detected && found;
    publish_end(b);
    const char *settings = getenv("QDYNO_PERIODS");
    if ((settings && sampler_periods_parse(&periods, settings, &why)) ||
        sampler_start_periods(&sampler, "", 100, &periods, &why))
        background_log(b, LOG_WARN, "sensors: %s", why.message);
    publish_begin(b);
    b->sampler = sampler;
    b->sampler_tried = true;
    publish_end(b);
}

/* ---------------------------------------------------------------- model */

void job_read_model(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct gguf *g = NULL;
    struct model_shape shape = { 0 };
    struct model_summary *ledger = calloc(1, sizeof *ledger);
    enum err_code rc = ledger ? gguf_open(&g, j->text[0], &why)
                              : err_set(&why, ERR_NOMEM, "no memory for a model");
    if (rc == ERR_OK) rc = model_shape_read(&shape, g, &why);
    if (rc == ERR_OK) model_summary_make(ledger, g, &shape);
    struct recipe_list *recipes = calloc(1, sizeof *recipes);
    if (recipes && rc == ERR_OK) recipe_list_make(recipes, g);
    gguf_close(g);
    publish_begin(b);
    put_text(b->known.model_path, sizeof b->known.model_path, j->text[0]);
    put_text(b->known.model_error, sizeof b->known.model_error, rc ? why.message : "");
    b->known.model = rc ? (struct model_shape){ 0 } : shape;
    if (ledger) b->known.summary = *ledger;
    if (recipes) b->known.recipes = *recipes;
    b->known.applied[0] = '\0';
    b->known.advice_count = 0; /* spoke of another model */
    b->known.advice_error[0] = '\0';
    publish_end(b);
    if (rc)
        background_announce(b, true, "%s", why.message);
    else if (shape.random_weights)
        background_log(b, LOG_WARN, "%s", RANDOM_WEIGHTS_TEXT);
    free(recipes);
    free(ledger);
    if (!rc) background_read_applied(b);
    struct db *d = NULL;
    if (!rc && !db_open(&d, b->db_path, &why))
        background_read_results(b, d); /* else the history says why not */
    db_close(d);
}

/* ---------------------------------------------------------------- advice */

static void say_state(struct background *b, const char *text, bool probing)
{
    publish_begin(b);
    put_text(b->known.advice_state, sizeof b->known.advice_state, text);
    b->known.probing = probing;
    publish_end(b);
}

static void probe_progress(void *ctx, const char *what, double done)
{
    char text[96];
    snprintf(text, sizeof text, "measuring this machine: %.50s, %.0f %%", what, done * 100);
    say_state(ctx, text, true);
}

/* Mean share of the machine that programs other than ours took since `from_ns`; NAN when unknown. */
static double others_since(struct background *b, int64_t from_ns)
{
    enum { MOST = 512 };
    struct sampler_thread *sampler = background_sampler(b, NULL);
    struct sample *window = sampler ? malloc(MOST * sizeof *window) : NULL;
    int n = window ? sampler_window(sampler, from_ns, clock_ns(), window, MOST) : 0, known = 0;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double v = window[i].value[METRIC_OTHERS_BUSY];
        if (isnan(v)) continue;
        sum += v;
        known++;
    }
    free(window);
    return known ? sum / known : NAN;
}

static enum err_code probe(struct background *b, const struct machine *m, struct machine_ceilings *c,
                           struct err *why)
{
    uint32_t isa;
    enum err_code rc = isa_usable(&isa, why);
    if (rc) return rc;
    int64_t from = clock_ns();
    say_state(b, "measuring this machine", true);
    rc = machine_probe(c, isa, 0, probe_progress, b, why);
    if (rc) return rc;
    struct err unsaved;
    double others = others_since(b, from);
    /* Limits measured beside a compiler would mislead every later prediction: use them now, measure again
     * next time. */
    if (others > 0.1)
        background_log(b, LOG_WARN,
                       "limits are too low: other programs took %.0f %% of the machine meanwhile; not kept",
                       others * 100);
    else if (ceilings_save(c, m->id, &unsaved))
        background_log(b, LOG_WARN, "limits are not kept: %s", unsaved.message);
    publish_begin(b);
    b->known.ceilings = *c;
    b->known.ceilings_known = true;
    publish_end(b);
    background_log(b, LOG_INFO, "limits measured: reads %.1f GB/s with %d threads", c->read_bytes_s_all / 1e9,
                   c->threads_all);
    return ERR_OK;
}

/* What past runs taught; without a database predictions are the model's alone. */
static struct correction *past_of(struct answer_klds *answer_klds, struct background *b, const char *model,
                               const struct machine *m, const struct machine_ceilings *c)
{
    struct correction *correction = NULL;
    struct db *d = NULL;
    struct err why;
    enum err_code rc = db_open(&d, b->db_path, &why);
    if (!rc) rc = correction_load(&correction, d, m->id, c, &why);
    if (!rc) rc = answer_klds_load(answer_klds, d, model, &why);
    db_close(d);
    if (rc) background_log(b, LOG_WARN, "advice learns nothing from past runs: %s", why.message);
    return correction;
}

void job_advise(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct advice *list = NULL;
    int n = 0;
    publish_begin(b);
    struct machine m = b->known.machine;
    struct machine_ceilings c = b->known.ceilings;
    bool machine_known = b->known.machine_known, known = b->known.ceilings_known;
    publish_end(b);
    enum err_code rc = machine_known ? ERR_OK
                                     : err_set(&why, ERR_ABSENT, "the machine is not known: see the log");
    if (rc == ERR_OK && !known) rc = probe(b, &m, &c, &why);
    say_state(b, "working out advice", false);
    struct answer_klds answer_klds = { 0 };
    struct correction *correction = rc ? NULL : past_of(&answer_klds, b, j->text[0], &m, &c);
    if (rc == ERR_OK)
        rc = advise(&list, &n, j->text[0], &m, &c,
                    &(struct advise_options){ .goal = GOAL_BALANCED, .correction = correction, .answer_klds = &answer_klds },
                    &why);
    correction_free(correction);
    answer_klds_free(&answer_klds);
    publish_begin(b);
    struct snapshot *s = &b->known;
    s->advice_count = rc ? 0 : MIN(n, (int)SNAPSHOT_ADVICE);
    for (int i = 0; i < s->advice_count; i++) s->advice[i] = list[i];
    put_text(s->advice_error, sizeof s->advice_error,
             rc       ? why.message
             : n == 0 ? "no configuration fits this machine"
                      : "");
    s->advice_state[0] = '\0';
    s->probing = false;
    publish_end(b);
    free(list);
    if (rc) background_announce(b, true, "advice: %s", why.message);
}

void job_predict_limits(struct background *b, const struct job *j)
{
    publish_begin(b);
    struct machine m = b->known.machine;
    struct machine_ceilings c = b->known.ceilings;
    bool known = b->known.machine_known && b->known.ceilings_known;
    publish_end(b);
    for (int arm = 0; arm < JOB_ARMS; arm++) {
        struct err why = { 0 };
        struct config config;
        struct prediction p = { .decode_limit_tok_s = NAN, .prefill_limit_tok_s = NAN };
        struct gguf *g = NULL;
        bool good = known && config_parse(&config, j->text[arm], &why) == ERR_OK;
        const char *own = good ? config_text(&config, KNOB_MODEL) : "";
        if (good && gguf_open(&g, own && *own ? own : j->text[2], &why) == ERR_OK &&
            predict(&p, g, &config, &m, &c, &(struct predict_for){ .ctx = 0 }, &why))
            p.decode_limit_tok_s = p.prefill_limit_tok_s = NAN;
        gguf_close(g);
        publish_begin(b);
        b->known.decode_limit[arm] = p.decode_limit_tok_s;
        b->known.prefill_limit[arm] = p.prefill_limit_tok_s;
        publish_end(b);
    }
}

/* ---------------------------------------------------------------- database */

static struct run_line run_line_of(const struct run_row *r)
{
    struct run_line l = { .id = r->id, .started_ms = r->started_ms, .effect_ratio = r->effect_ratio };
    snprintf(l.kind, sizeof l.kind, "%s", r->kind);
    snprintf(l.state, sizeof l.state, "%s", r->state);
    snprintf(l.verdict, sizeof l.verdict, "%s", r->verdict);
    snprintf(l.label, sizeof l.label, "%s", r->label);
    snprintf(l.model, sizeof l.model, "%s", r->model_name);
    snprintf(l.workload, sizeof l.workload, "%.*s", (int)sizeof l.workload - 1, r->workload);
    return l;
}

/* What a watch of this machine, in a process of its own, says fires: each once. */
static void log_alerts(struct background *b, struct db *d)
{
    enum { MOST = 16 };
    struct err why;
    struct alert_row *rows = NULL;
    int n = 0;
    if (db_alert_list(d, NULL, true, MOST, &rows, &n, &why))
        background_log(b, LOG_WARN, "alerts: %s", why.message);
    for (int i = n - 1; i >= 0; i--) { /* the oldest first */
        if (rows[i].id <= b->alert_logged) continue;
        b->alert_logged = rows[i].id;
        background_log(b, LOG_WARN, "alert %s%s%s: %s", rows[i].name, *rows[i].subject ? " " : "",
                       rows[i].subject, rows[i].text);
    }
    free(rows);
}

void job_read_history(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct run_row *rows = NULL;
    int n = 0;
    enum err_code rc = db_open(&d, b->db_path, &why);
    if (rc == ERR_OK) rc = db_run_find(d, j->text[0][0] ? j->text[0] : NULL, SNAPSHOT_RUNS, &rows, &n, &why);
    int spooled = rc ? -1 : db_spool_count(d);
    if (rc == ERR_OK) log_alerts(b, d);
    if (rc == ERR_OK) background_read_results(b, d);
    if (rc == ERR_OK) background_read_baselines(b, d);
    publish_begin(b);
    struct snapshot *s = &b->known;
    put_text(s->run_error, sizeof s->run_error, rc ? why.message : "");
    s->run_count = rc ? 0 : MIN(n, (int)SNAPSHOT_RUNS);
    for (int i = 0; i < s->run_count; i++) s->run[i] = run_line_of(&rows[i]);
    s->spool_count = spooled;
    publish_end(b);
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
    db_close(d);
}

void job_load_run(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    struct experiment_state *state = calloc(1, sizeof *state);
    enum err_code rc = state ? db_open(&d, b->db_path, &why)
                             : err_set(&why, ERR_NOMEM, "no memory for a run");
    if (rc == ERR_OK) rc = experiment_load(state, d, j->id, &why);
    db_close(d);
    if (rc) {
        background_announce(b, true, "run %lld: %s", (long long)j->id, why.message);
        free(state);
        return;
    }
    publish_begin(b);
    free(b->loaded);
    b->loaded = state;
    publish_end(b);
}

static double share_of(const char *text)
{
    double v = NAN;
    char number[32];
    const size_t n = strlen(text);
    const bool percent = n && text[n - 1] == '%';
    snprintf(number, sizeof number, "%.*s", (int)(percent ? n - 1 : n), text);
    return str_to_double(number, &v) ? (percent ? v / 100 : v) : (double)NAN;
}

/* The text that quality is measured on: "yes" is the bundled one. */
static enum err_code quality_text(char *out, size_t size, const char *text, struct err *why)
{
    char *bundled = NULL;
    enum err_code rc = ERR_OK;
    if (!*text) return ERR_OK;
    if (strcmp(text, "yes"))
        form_path(text, out, size);
    else if (!(rc = file_share(&bundled, "text/sample.txt", why)))
        put_text(out, size, bundled);
    free(bundled);
    return rc;
}

/* What the form asks beyond arms and workload; an empty text: the default. */
static enum err_code start_options(struct experiment_spec *spec, const struct job *j, struct err *why)
{
    enum { CHUNKS = 64 }; /* as `ab --quality` */
    double seconds;
    const double margin = share_of(j->text[START_MARGIN]);
    if (margin > 0) spec->margin = margin;
    if (str_to_seconds(j->text[START_BUDGET], &seconds)) spec->budget_s = seconds;
    spec->quality_chunks = CHUNKS;
    return quality_text(spec->quality_file, sizeof spec->quality_file, j->text[START_QUALITY], why);
}

static enum err_code start_spec(struct experiment_spec *spec, const struct job *j, struct err *why)
{
    *spec = (struct experiment_spec){
        .arms = JOB_ARMS, .margin = 0.01, .resume_id = j->id, .seed = (uint64_t)clock_unix_ms()
    };
    if (j->id) return ERR_OK;
    static const enum start_text ARMS[] = { START_A, START_B, START_MORE };
    enum err_code rc = workload_parse(&spec->workload, j->text[START_WORKLOAD], why);
    if (!spec->workload.train)
        put_text(spec->model, sizeof spec->model, j->text[START_MODEL]); /* else from nothing */
    spec->arms = j->text[START_MORE][0] ? JOB_ARMS + 1 : JOB_ARMS;
    for (int arm = 0; rc == ERR_OK && arm < spec->arms; arm++) {
        const char *line = j->text[ARMS[arm]];
        rc = config_parse(&spec->config[arm], strcmp(line, "default") ? line : "", why);
    }
    return rc ? rc : start_options(spec, j, why);
}

/* Opening the database may wait for another qdyno: so this too happens here. */
void job_start_experiment(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct experiment *x = NULL;
    struct experiment_spec *spec = malloc(sizeof *spec);
    publish_begin(b);
    struct machine m = b->known.machine;
    bool known = b->known.machine_known;
    struct sampler_thread *sampler = b->sampler;
    publish_end(b);
    enum err_code rc = spec ? ERR_OK : err_set(&why, ERR_NOMEM, "no memory for an experiment");
    if (rc == ERR_OK && !known) rc = err_set(&why, ERR_ABSENT, "the machine is not known: see the log");
    if (rc == ERR_OK) rc = start_spec(spec, j, &why);
    struct experiment_deps deps = {
        .db_path = b->db_path, .sampler = sampler, .machine = &m, .log = &b->log
    };
    if (rc == ERR_OK) rc = experiment_start(&x, spec, &deps, &why);
    free(spec);
    if (rc) background_announce(b, true, "A/B: %s", why.message);
    publish_begin(b);
    b->started = x;
    b->known.experiment_starting = false;
    publish_end(b);
}

/* ---------------------------------------------------------------- network */

/* Secrets come from the environment, as for `qdyno push`; never from the screen. */
static struct push_target target_from_environment(const char *url)
{
    return (struct push_target){ .url = url,
                                 .auth.user = getenv("QDYNO_PUSH_USER"),
                                 .auth.password = getenv("QDYNO_PUSH_PASSWORD"),
                                 .auth.bearer = getenv("QDYNO_PUSH_BEARER"),
                                 .auth.ca_file = getenv("QDYNO_PUSH_CA") };
}

void job_push(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct db *d = NULL;
    bool spooled = false;
    publish_begin(b);
    struct machine m = b->known.machine;
    b->known.pushing = true;
    publish_end(b);
    struct push_target target = target_from_environment(j->text[0]);
    enum err_code rc = db_open(&d, b->db_path, &why);
    if (rc == ERR_OK) rc = outcome_push(d, j->id, &m, &target, &spooled, &why);
    int waiting = d ? db_spool_count(d) : -1;
    db_close(d);
    publish_begin(b);
    b->known.pushing = false;
    b->known.spool_count = waiting;
    publish_end(b);
    if (rc == ERR_OK)
        background_announce(b, false, "run %lld pushed to %s", (long long)j->id, j->text[0]);
    else
        background_announce(b, true, "push of run %lld: %s%s", (long long)j->id,
                            spooled ? "kept, will be tried again: " : "", why.message);
}

void job_flush_spool(struct background *b, const struct job *j)
{
    (void)j;
    struct err why = { 0 };
    struct db *d = NULL;
    int sent = 0;
    struct push_target auth = target_from_environment(NULL);
    enum err_code rc = db_open(&d, b->db_path, &why);
    if (rc == ERR_OK) rc = outcome_flush(d, &auth, false, &sent, &why);
    int waiting = d ? db_spool_count(d) : -1;
    db_close(d);
    publish_begin(b);
    b->known.spool_count = waiting;
    publish_end(b);
    if (sent > 0)
        background_log(b, LOG_INFO, "%d result%s that waited for the network pushed", sent,
                       sent == 1 ? "" : "s");
}
