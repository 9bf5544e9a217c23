/* advisor/outcome.c - a finished run as a Pushgateway group, and the spool behind it.
 *
 * The group is the *outcome* of a batch job, replaced as a whole by the next run of the same experiment on
 * the same machine; run ids and hashes stand only in _info samples. What cannot be known is not pushed. */
#include "advisor/outcome.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPILER __VERSION__
#ifndef QDYNO_COMMIT
#define QDYNO_COMMIT ""
#endif

enum { BACK_OFF_FIRST_MS = 30 * 1000, BACK_OFF_MOST_MS = 3600 * 1000, NAME_SIZE = 1024 };

static const char JOB[] = "qdyno";

/* ---------------------------------------------------------------- names */

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *model_name(const struct experiment_state *s)
{
    for (int i = 0; i < s->spec.arms; i++)
        if (*s->arm[i].model_name) return s->arm[i].model_name;
    return file_name(s->spec.model);
}

/* Labels name files, never paths: the same question from another folder is the same question. */
static void short_workload(const struct experiment_state *s, char *buf, size_t size)
{
    struct workload w = s->spec.workload;
    if (*w.eval_file) snprintf(w.eval_file, sizeof(w.eval_file), "%s", file_name(s->spec.workload.eval_file));
    workload_line(&w, buf, size);
}

static void short_line(const struct experiment_state *s, int arm, char *buf, size_t size)
{
    struct config c = s->spec.config[arm];
    const char *file = file_name(s->spec.config[arm].value[KNOB_MODEL]);
    memmove(c.value[KNOB_MODEL], file, strlen(file) + 1);
    config_line(&c, buf, size);
}

/* Stable over runs: the same question on the same model is the same group. */
static void experiment_name(const struct experiment_state *s, char *buf, size_t size)
{
    char workload[576], line[640];
    size_t n = (size_t)snprintf(buf, size, "%s: ", model_name(s));
    for (int i = 0; i < s->spec.arms && n < size; i++) {
        short_line(s, i, line, sizeof(line));
        n += (size_t)snprintf(buf + n, size - n, "%s%.*s", i ? " vs " : "", 400 / s->spec.arms, line);
    }
    short_workload(s, workload, sizeof(workload));
    if (n < size)
        snprintf(buf + n, size - n, ", %s of %s", s->spec.metric ? s->spec.metric->name : "", workload);
}

/* ---------------------------------------------------------------- the body */

struct body {
    struct exposition e;
    const struct experiment_state *s;
    char workload[576];
};

/* One sample in a family of its own, labelled as every qdyno_ab_ family is: metric, workload, then `extra`.
 */
static void sample(struct body *b, const struct label *extra, double value)
{
    const struct label labels[] = {
        { "metric", b->s->spec.metric ? b->s->spec.metric->name : "" },
        { "workload", b->workload },
        { extra ? extra->name : "", extra ? extra->value : "" },
    };
    exposition_sample(&b->e, labels, extra ? 3 : 2, value);
}

static void gauge(struct body *b, const char *name, const char *help, double value)
{
    exposition_family(&b->e, name, "gauge", help);
    sample(b, NULL, value);
}

static void put_effect(struct body *b)
{
    const struct experiment_state *s = b->s;
    const bool turned = s->spec.metric && s->spec.metric->better < 0;
    const struct comparison *c = experiment_headline(s);
    const struct interval i = c->effect;
    gauge(b, "qdyno_ab_effect_ratio", "B (of several: the best) divided by A of the metric",
          exp(turned ? -i.estimate : i.estimate));
    gauge(b, "qdyno_ab_effect_lower_ratio", "Lower bound of qdyno_ab_effect_ratio",
          exp(turned ? -i.upper : i.lower));
    gauge(b, "qdyno_ab_effect_upper_ratio", "Upper bound of qdyno_ab_effect_ratio",
          exp(turned ? -i.lower : i.upper));
    gauge(b, "qdyno_ab_confidence_ratio", "Confidence of the bounds", 1 - c->alpha);
    gauge(b, "qdyno_ab_blocks", "Blocks of four cells that count", s->blocks);
    gauge(b, "qdyno_ab_discarded_blocks", "Blocks discarded because the machine was disturbed", s->discarded);
    gauge(b, "qdyno_ab_noise_floor_ratio", "Half width of the interval of A against itself", s->noise_floor);
    exposition_family(&b->e, "qdyno_ab_verdict", "gauge",
                      "1 for the verdict on B seen from A, 0 for the others");
    for (int v = VERDICT_BETTER; v <= VERDICT_INVALID; v++)
        sample(b, &(struct label){ "verdict", verdict_name((enum verdict)v) }, (int)s->verdict == v);
}

/* Figures of each arm: from where in struct experiment_arm. */
static const struct {
    const char *name, *help;
    size_t offset;
} ARM_FIGURES[] = {
    { "qdyno_ab_joules_per_token", "Energy of the processors per token, idle included",
      offsetof(struct experiment_arm, joules_per_token) },
    { "qdyno_ab_prefill_tokens_per_second", "Prompt tokens processed per second",
      offsetof(struct experiment_arm, prefill_tok_s) },
    { "qdyno_ab_decode_tokens_per_second", "Tokens generated per second",
      offsetof(struct experiment_arm, decode_tok_s) },
    { "qdyno_ab_time_to_first_token_seconds", "Time to the first token",
      offsetof(struct experiment_arm, ttft_s) },
};

static const char *arm_letter(int i)
{
    static const char LETTERS[EXPERIMENT_ARMS][2] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    return LETTERS[i];
}

static void put_arms(struct body *b)
{
    for (size_t f = 0; f < COUNT_OF(ARM_FIGURES); f++) {
        exposition_family(&b->e, ARM_FIGURES[f].name, "gauge", ARM_FIGURES[f].help);
        for (int i = 0; i < b->s->spec.arms; i++) {
            double v;
            memcpy(&v, (const char *)&b->s->arm[i] + ARM_FIGURES[f].offset, sizeof(v));
            sample(b, &(struct label){ "arm", arm_letter(i) }, v);
        }
    }
    exposition_family(&b->e, "qdyno_ab_peak_memory_bytes", "gauge", "Highest resident memory of the arm");
    for (int i = 0; i < b->s->spec.arms; i++) {
        const int64_t bytes = b->s->arm[i].peak_rss_bytes;
        sample(b, &(struct label){ "arm", arm_letter(i) }, bytes > 0 ? (double)bytes : NAN);
    }
}

static void put_info(struct body *b, const struct machine *m, int64_t run_id)
{
    char simd[128], id[24];
    const struct label build[] = { { "version", QDYNO_VERSION },
                                   { "commit", QDYNO_COMMIT },
                                   { "compiler", COMPILER },
                                   { "simd", isa_names(m->isa, simd, sizeof(simd)) } };
    exposition_family(&b->e, "qdyno_build_info", "gauge", "The program that measured");
    exposition_sample(&b->e, build, COUNT_OF(build), 1);
    exposition_family(&b->e, "qdyno_model_info", "gauge", "The model of each arm");
    for (int i = 0; i < b->s->spec.arms; i++) {
        const struct experiment_arm *a = &b->s->arm[i];
        char sha[9];
        snprintf(sha, sizeof(sha), "%.8s", a->sha256);
        const struct label model[] = { { "arm", arm_letter(i) }, { "model", a->model_name },
                                       { "arch", a->arch },      { "quant", a->dominant_format },
                                       { "recipe", a->recipe },  { "sha256_8", sha } };
        if (*sha) exposition_sample(&b->e, model, COUNT_OF(model), 1);
    }
    const struct label host[] = { { "host", m->host },
                                  { "cpu", m->cpu },
                                  { "gpu", m->gpus > 0 ? m->gpu[0].name : "" },
                                  { "driver", m->gpus > 0 ? m->gpu[0].driver : "" },
                                  { "kernel", m->kernel },
                                  { "governor", m->governor } };
    exposition_family(&b->e, "qdyno_host_info", "gauge", "The machine it was measured on");
    exposition_sample(&b->e, host, COUNT_OF(host), 1);
    snprintf(id, sizeof(id), "%lld", (long long)run_id);
    exposition_family(&b->e, "qdyno_experiment_info", "gauge", "The run in qdyno's own database");
    exposition_sample(&b->e, &(struct label){ "run", id }, 1, 1);
}

static bool succeeded(const struct run_row *r)
{
    return !strcmp(r->state, "done") && strcmp(r->verdict, "invalid");
}

/* When this experiment last ended with a usable verdict, this run or an earlier one; NAN when never. */
static double last_success(struct db *d, const struct run_row *row)
{
    struct run_row *rows = NULL;
    int n = 0;
    double at = succeeded(row) ? (double)row->ended_ms * 1e-3 : NAN;
    if (!isnan(at) || db_run_list(d, row->label, 1000, &rows, &n, NULL)) return at;
    for (int i = 0; i < n; i++) {
        const struct run_row *r = &rows[i];
        const bool same = succeeded(r) && r->id < row->id && !strcmp(r->label, row->label) &&
                          !strcmp(r->workload, row->workload) && !strcmp(r->metric, row->metric) &&
                          !strcmp(r->model_name, row->model_name) && !strcmp(r->machine, row->machine);
        if (same && isnan(at)) at = (double)r->ended_ms * 1e-3; /* newest first */
    }
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
    return at;
}

static void put_times(struct body *b, struct db *d, const struct run_row *row)
{
    const struct experiment_state *s = b->s;
    const int64_t end = row->ended_ms ? row->ended_ms : row->started_ms;
    exposition_family(&b->e, "qdyno_experiment_last_run_timestamp_seconds", "gauge", "When it last ran");
    exposition_sample(&b->e, NULL, 0, (double)end * 1e-3);
    exposition_family(&b->e, "qdyno_experiment_last_success_timestamp_seconds", "gauge",
                      "When it last ended with a verdict that is not invalid");
    exposition_sample(&b->e, NULL, 0, last_success(d, row));
    exposition_family(&b->e, "qdyno_experiment_duration_seconds", "gauge", "How long it took");
    exposition_sample(&b->e, NULL, 0,
                      s->elapsed_s > 0 ? s->elapsed_s
                      : row->ended_ms  ? (double)(row->ended_ms - row->started_ms) * 1e-3
                                       : NAN);
}

/* The state is large: on the heap, once for body and name. */
static enum err_code load_run(struct experiment_state **out, struct run_row *row, struct db *d,
                              int64_t run_id, struct err *why)
{
    *out = NULL;
    enum err_code rc = db_run_get(d, run_id, row, why);
    if (rc) return rc;
    struct experiment_state *s = malloc(sizeof(*s));
    if (!s) rc = err_set(why, ERR_NOMEM, "no memory for a run");
    if (!rc) rc = experiment_load(s, d, run_id, why);
    if (rc) {
        free(s);
        run_row_free(row);
        return rc;
    }
    *out = s;
    return ERR_OK;
}

static enum err_code exposition_of(char **out, struct db *d, const struct experiment_state *s,
                                   const struct run_row *row, const struct machine *machine, struct err *why)
{
    struct body b = { .s = s };
    short_workload(s, b.workload, sizeof(b.workload));
    put_effect(&b);
    put_arms(&b);
    put_times(&b, d, row);
    put_info(&b, machine, row->id);
    enum err_code rc = ERR_OK;
    if (b.e.bad.code)
        rc = err_set(why, ERR_INTERNAL, "the exposition of run %lld: %s", (long long)row->id,
                     b.e.bad.message);
    *out = rc ? NULL : str_take(&b.e.text);
    if (!rc && !*out) rc = err_set(why, ERR_NOMEM, "no memory for the exposition of a run");
    exposition_free(&b.e);
    return rc;
}

enum err_code outcome_exposition(char **out, struct db *d, int64_t run_id, const struct machine *machine,
                                 struct err *why)
{
    struct experiment_state *s;
    struct run_row row = { 0 };
    *out = NULL;
    enum err_code rc = load_run(&s, &row, d, run_id, why);
    if (rc) return rc;
    rc = exposition_of(out, d, s, &row, machine, why);
    free(s);
    run_row_free(&row);
    return rc;
}

/* ---------------------------------------------------------------- push and spool */

static void put_path(json_t *o, const char *key, const char *value)
{
    if (value) json_put_str(o, key, value);
}

/* All of a target but its secrets. */
static char *target_document(const struct push_target *t)
{
    json_t *o = json_object(), *grouping = json_array();
    json_put_str(o, "url", t->url);
    json_put_str(o, "job", t->job);
    for (int i = 0; i < t->n_grouping; i++) {
        json_t *pair = json_array();
        json_array_append_new(pair, json_string(t->grouping[i].name));
        json_array_append_new(pair, json_string(t->grouping[i].value));
        json_array_append_new(grouping, pair);
    }
    json_put(o, "grouping", grouping);
    put_path(o, "ca_file", t->auth.ca_file);
    put_path(o, "cert_file", t->auth.cert_file);
    put_path(o, "key_file", t->auth.key_file);
    json_put_bool(o, "insecure", t->auth.insecure);
    json_put_num(o, "timeout_s", t->auth.timeout_s);
    char *text = json_line(o);
    json_decref(o);
    return text;
}

enum err_code outcome_push(struct db *d, int64_t run_id, const struct machine *machine,
                           struct push_target *target, bool *spooled, struct err *why)
{
    struct experiment_state *s = NULL;
    struct run_row row = { 0 };
    char *body = NULL, *url = NULL, name[NAME_SIZE];
    *spooled = false;
    enum err_code rc = load_run(&s, &row, d, run_id, why);
    if (rc) return rc;
    experiment_name(s, name, sizeof(name));
    /* The machine of the run, not of whoever pushes it. */
    const struct label grouping[] = { { "experiment", name }, { "machine", s->machine_id } };
    target->job = JOB;
    target->grouping = grouping;
    target->n_grouping = COUNT_OF(grouping);
    rc = exposition_of(&body, d, s, &row, machine, why);
    if (!rc) rc = push_url(&url, target, why);
    if (!rc) {
        int status = 0;
        rc = push_put(target, body, &status, why);
        if (!rc) rc = db_group_put(d, url, why);
        if (rc == ERR_ABSENT) {
            char *text = target_document(target);
            struct err bad = { 0 };
            if (text && !db_spool_put(d, url, text, body, &bad))
                *spooled = true;
            else
                err_prefix(why, "not sent and not spooled (%.100s)", bad.message);
            free(text);
        }
    }
    target->grouping = NULL; /* it points into this frame */
    target->n_grouping = 0;
    free(url);
    free(body);
    free(s);
    run_row_free(&row);
    return rc;
}

/* A spooled target again, with the caller's secrets if they are meant for the same gateway. `o` must outlive
 * *t; labels: room for `most`. */
static enum err_code target_read(struct push_target *t, struct label *labels, int most, const json_t *o,
                                 const struct push_target *auth, struct err *why)
{
    *t = (struct push_target){
        .url = json_get_str(o, "url", NULL),
        .job = json_get_str(o, "job", JOB),
        .grouping = labels,
        .auth.ca_file = json_get_str(o, "ca_file", NULL),
        .auth.cert_file = json_get_str(o, "cert_file", NULL),
        .auth.key_file = json_get_str(o, "key_file", NULL),
        .auth.insecure = json_get_bool(o, "insecure", false),
        .auth.timeout_s = json_get_num(o, "timeout_s", 0),
    };
    size_t i;
    json_t *pair;
    json_array_foreach(json_object_get(o, "grouping"), i, pair)
    {
        const char *name = json_string_value(json_array_get(pair, 0));
        const char *value = json_string_value(json_array_get(pair, 1));
        if (!name || !value || t->n_grouping == most)
            return err_set(why, ERR_FORMAT, "a spooled push has a bad grouping key");
        labels[t->n_grouping++] = (struct label){ name, value };
    }
    if (!t->url) return err_set(why, ERR_FORMAT, "a spooled push has no url");
    if (auth && (!auth->url || !strcmp(auth->url, t->url))) {
        t->auth.user = auth->auth.user;
        t->auth.password = auth->auth.password;
        t->auth.bearer = auth->auth.bearer;
    }
    return ERR_OK;
}

static enum err_code send_spooled(struct db *d, const struct spool_row *row, const struct push_target *auth,
                                  struct err *why)
{
    json_t *o = NULL;
    struct label labels[8];
    struct push_target t;
    char *url = NULL;
    int status = 0;
    enum err_code rc = json_parse(&o, row->target_json, strlen(row->target_json), why);
    if (!rc) rc = target_read(&t, labels, COUNT_OF(labels), o, auth, why);
    if (!rc) rc = push_url(&url, &t, why);
    if (!rc) rc = push_put(&t, row->body, &status, why);
    if (!rc) rc = db_group_put(d, url, why);
    free(url);
    json_decref(o);
    return rc;
}

enum err_code outcome_flush(struct db *d, const struct push_target *auth, bool ignore_back_off, int *sent,
                            struct err *why)
{
    enum err_code worst = ERR_OK;
    *sent = 0;
    /* A row that fails moves behind the others, so going round once is `count` steps. */
    for (int left = db_spool_count(d); left > 0; left--) {
        struct spool_row row;
        bool found;
        const int64_t now = clock_unix_ms();
        enum err_code rc = db_spool_next(d, ignore_back_off ? INT64_MAX : now, &row, &found, why);
        if (rc) return rc;
        if (!found) break;
        struct err bad = { 0 };
        rc = send_spooled(d, &row, auth, &bad);
        if (!rc) {
            rc = db_spool_done(d, row.id, &bad);
            *sent += !rc;
        } else {
            /* Refused ones are kept, too: the reason may be another group's type, and stands in the row. */
            const int64_t wait = MIN((int64_t)BACK_OFF_FIRST_MS << MIN(row.attempts, 20), BACK_OFF_MOST_MS);
            struct err ignored;
            (void)db_spool_failed(d, row.id, now + wait, bad.message, &ignored);
        }
        if (rc && !worst) {
            worst = rc;
            if (why) *why = bad;
        }
        spool_row_free(&row);
    }
    return worst;
}
