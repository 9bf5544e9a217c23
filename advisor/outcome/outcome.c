/* advisor/outcome/outcome.c - a finished run as samples of FAMILIES_OUTCOME.
 *
 * The next run of the same experiment on the same machine replaces an outcome as a whole. Run ids and hashes
 * appear only in _info samples. Unknown values are left out. */
#include "advisor/outcome/outcome.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/outcome/parts.h"

/* ---------------------------------------------------------------- names */

static const char *model_name(const struct experiment_state *s)
{
    for (int i = 0; i < s->spec.arms; i++)
        if (*s->arm[i].model_name) return s->arm[i].model_name;
    return path_file_name(s->spec.model);
}

/* experiment_workload_line with file names without paths: the same question asked in another folder is the
 * same question. */
static void short_workload(const struct experiment_state *s, char *buf, size_t size)
{
    size_t n = 0;
    *buf = '\0';
    for (int i = 0; i < (s->spec.by_arm ? s->spec.arms : 1) && n < size; i++) {
        const struct workload *from = experiment_workload(&s->spec, i);
        struct workload w = *from;
        char line[WORKLOAD_LINE];
        snprintf(w.eval_file, sizeof(w.eval_file), "%s", path_file_name(from->eval_file));
        snprintf(w.load.trace, sizeof(w.load.trace), "%s", path_file_name(from->load.trace));
        n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? " vs " : "",
                              workload_line(&w, line, sizeof(line)));
    }
}

static void short_line(const struct experiment_state *s, int arm, char *buf, size_t size)
{
    struct config c = s->spec.config[arm];
    const char *file = path_file_name(config_text(&s->spec.config[arm], KNOB_MODEL));
    config_resolve_text(&c, KNOB_MODEL, file, NULL);
    config_line(&c, buf, size);
}

/* Stable over runs: the same question about the same model is the same group. */
static void experiment_name(const struct experiment_state *s, char *buf, size_t size)
{
    char workload[576], line[CONFIG_LINE];
    size_t n = (size_t)snprintf(buf, size, "%s: ", model_name(s));
    for (int i = 0; i < s->spec.arms && n < size; i++) {
        short_line(s, i, line, sizeof(line));
        n += (size_t)snprintf(buf + n, size - n, "%s%.*s", i ? " vs " : "", 400 / s->spec.arms, line);
    }
    short_workload(s, workload, sizeof(workload));
    if (n < size)
        snprintf(buf + n, size - n, ", %s of %s", s->spec.metric ? s->spec.metric->name : "", workload);
}

/* ---------------------------------------------------------------- conclusion of a run */

static bool run_succeeded(const struct run_row *r)
{
    return !strcmp(r->state, "done") && strcmp(r->verdict, "invalid");
}

/* Do two runs ask the same question on the same machine? Compared before the expensive loading: files with
 * the same name in different folders are not distinguished. */
static bool asks_the_same(const struct run_row *a, const struct run_row *b)
{
    return !strcmp(a->label, b->label) && !strcmp(a->workload, b->workload) &&
           !strcmp(a->metric, b->metric) && !strcmp(a->model_name, b->model_name) &&
           !strcmp(a->machine, b->machine);
}

/* When this experiment last ended with a valid verdict, in this run or an earlier one; NAN: never. */
static double last_success(struct db *d, const struct run_row *row)
{
    struct run_row *rows = NULL;
    int n = 0;
    double at = run_succeeded(row) ? (double)row->ended_ms * 1e-3 : NAN;
    if (!isnan(at) || db_run_list(d, row->label, 1000, &rows, &n, NULL)) return at;
    for (int i = 0; i < n; i++) {
        const struct run_row *r = &rows[i];
        if (isnan(at) && run_succeeded(r) && r->id < row->id && asks_the_same(r, row))
            at = (double)r->ended_ms * 1e-3; /* newest first */
    }
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
    return at;
}

static void outcome_set_effect(struct outcome *o, const struct experiment_state *s)
{
    const struct comparison *c = experiment_headline(s);
    const struct interval ratio = stats_exp(experiment_change(s, c->effect));
    o->effect = ratio.estimate;
    o->lower = ratio.lower;
    o->upper = ratio.upper;
    o->confidence = 1 - c->alpha;
    o->blocks = s->blocks;
    o->discarded = s->discarded;
    o->noise_floor = s->noise_floor;
    const struct quality *q = &s->comparison[MAX(s->headline, 1)].quality;
    o->kld_mean = q->known ? q->figures.kld_mean : (double)NAN;
    o->kld_p99 = q->known ? q->figures.kld_p99 : (double)NAN;
    o->verdict = s->verdict;
}

static void outcome_set_arms(struct outcome *o, const struct experiment_state *s)
{
    o->arms = s->spec.arms;
    for (int i = 0; i < o->arms; i++) {
        const struct experiment_arm *a = &s->arm[i];
        o->arm[i].joules_per_token = a->joules_per_token;
        o->arm[i].joules_per_token_half = a->joules_per_token_half;
        o->arm[i].co2_g_per_token = a->co2_g_per_token;
        memcpy(o->arm[i].value, a->value, sizeof(a->value));
        snprintf(o->arm[i].model, sizeof(o->arm[i].model), "%s", a->model_name);
        snprintf(o->arm[i].arch, sizeof(o->arm[i].arch), "%s", a->arch);
        snprintf(o->arm[i].quant, sizeof(o->arm[i].quant), "%s", a->dominant_format);
        snprintf(o->arm[i].quantization, sizeof(o->arm[i].quantization), "%s",
                 *a->quantization ? a->quantization : a->dominant_format);
        snprintf(o->arm[i].recipe, sizeof(o->arm[i].recipe), "%s", a->recipe);
        snprintf(o->arm[i].sha256_8, sizeof(o->arm[i].sha256_8), "%.8s", a->sha256);
    }
}

static void outcome_set_times(struct outcome *o, const struct experiment_state *s, struct db *d,
                              const struct run_row *row)
{
    o->last_run = (double)(row->ended_ms ? row->ended_ms : row->started_ms) * 1e-3;
    o->last_success = last_success(d, row);
    o->duration = s->elapsed_s > 0 ? s->elapsed_s
                  : row->ended_ms  ? (double)(row->ended_ms - row->started_ms) * 1e-3
                                   : (double)NAN;
}

enum err_code outcome_load(struct outcome *out, struct db *d, int64_t run_id, struct err *why)
{
    struct run_row row = { 0 };
    enum err_code rc = db_run_get(d, run_id, &row, why);
    if (rc) return rc;
    struct experiment_state *s = malloc(sizeof(*s)); /* large, so not on the stack */
    rc = s ? experiment_load(s, d, run_id, why) : err_set(why, ERR_NOMEM, "out of memory for a run");
    if (!rc) {
        *out = (struct outcome){ .run_id = run_id };
        experiment_name(s, out->experiment, sizeof(out->experiment));
        short_workload(s, out->workload, sizeof(out->workload));
        snprintf(out->machine, sizeof(out->machine), "%s", s->machine_id);
        snprintf(out->metric, sizeof(out->metric), "%s", s->spec.metric ? s->spec.metric->name : "");
        outcome_set_effect(out, s);
        outcome_set_arms(out, s);
        outcome_set_times(out, s, d, &row);
        rc = db_labels_get(d, run_id, &out->labels, why);
    }
    free(s);
    run_row_free(&row);
    return rc;
}

/* ---------------------------------------------------------------- newest run of each experiment */

static bool is_there(const struct outcome *o, int n, const struct outcome *x)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(o[i].experiment, x->experiment) && !strcmp(o[i].machine, x->machine)) return true;
    return false;
}

static const struct outcome *outcome_find(const struct outcome *o, int n, int64_t run_id)
{
    for (int i = 0; i < n; i++)
        if (o[i].run_id == run_id) return &o[i];
    return NULL;
}

/* Is run i the newest one of its question? */
static bool outcome_may_be_new(const struct run_row *rows, int i)
{
    for (int k = 0; k < i; k++)
        if (!strcmp(rows[k].state, "done") && !strcmp(rows[k].kind, "ab") &&
            asks_the_same(&rows[k], &rows[i]))
            return false;
    return true;
}

enum err_code outcomes_latest(struct outcome out[OUTCOMES_MAX], int *n, struct db *d, struct err *why)
{
    enum { LOOK_AT = 200 }; /* of the newest runs */
    struct run_row *rows = NULL;
    int n_rows = 0, n_now = 0;
    struct outcome *now = calloc(OUTCOMES_MAX + 1, sizeof(*now)); /* one more, to load into */
    if (!now) return err_set(why, ERR_NOMEM, "out of memory for outcomes");
    enum err_code rc = db_run_list(d, "ab", LOOK_AT, &rows, &n_rows, why);
    for (int i = 0; i < n_rows && n_now < OUTCOMES_MAX && !rc; i++) {
        if (strcmp(rows[i].kind, "ab") || strcmp(rows[i].state, "done") || !outcome_may_be_new(rows, i))
            continue;
        const struct outcome *known = outcome_find(out, *n, rows[i].id);
        struct outcome *o = &now[n_now];
        if (known)
            *o = *known;
        else
            rc = outcome_load(o, d, rows[i].id, why);
        n_now += !rc && !is_there(now, n_now, o);
    }
    for (int i = 0; i < n_rows; i++) run_row_free(&rows[i]);
    free(rows);
    if (!rc) {
        memcpy(out, now, (size_t)n_now * sizeof(*out));
        *n = n_now;
    }
    free(now);
    return rc;
}

/* ---------------------------------------------------------------- samples */

const char *arm_letter(int i)
{
    static const char LETTERS[EXPERIMENT_ARMS][2] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    return LETTERS[i];
}

enum { LABELS_MAX = 16 };
struct label_list {
    struct label label[LABELS_MAX];
    int n;
};

static void label_add(struct label_list *l, const char *name, const char *value)
{
    l->label[l->n++] = (struct label){ name, value };
}

/* The labels that every sample of an outcome begins with. */
static struct label_list outcome_labels(const struct outcome *o, enum outcome_labels kind)
{
    struct label_list l = { .n = 0 };
    if (kind == OUTCOME_ALONE) {
        label_add(&l, "experiment", o->experiment);
        label_add(&l, "machine", o->machine);
    }
    return l;
}

/* Values of a whole outcome: offset, and whether the labels metric and workload are added. */
static const struct {
    enum family_id family;
    bool compared; /* add the labels metric and workload */
    const char *label, *value;
    size_t offset;
} NUMBERS[] = {
#define NUMBER(FAMILY, COMPARED, LABEL, VALUE, FIELD)                                                        \
    {                                                                                                        \
        FAMILY_##FAMILY, COMPARED, LABEL, VALUE, offsetof(struct outcome, FIELD)                             \
    }
    NUMBER(AB_EFFECT, true, NULL, NULL, effect),
    NUMBER(AB_EFFECT_LOWER, true, NULL, NULL, lower),
    NUMBER(AB_EFFECT_UPPER, true, NULL, NULL, upper),
    NUMBER(AB_CONFIDENCE, true, NULL, NULL, confidence),
    NUMBER(AB_BLOCKS, true, NULL, NULL, blocks),
    NUMBER(AB_DISCARDED, true, NULL, NULL, discarded),
    NUMBER(AB_NOISE_FLOOR, true, NULL, NULL, noise_floor),
    NUMBER(AB_KL_DIVERGENCE, true, "stat", "mean", kld_mean),
    NUMBER(AB_KL_DIVERGENCE, true, "stat", "p99", kld_p99),
    NUMBER(EXPERIMENT_LAST_RUN, false, NULL, NULL, last_run),
    NUMBER(EXPERIMENT_LAST_SUCCESS, false, NULL, NULL, last_success),
    NUMBER(EXPERIMENT_DURATION, false, NULL, NULL, duration),
#undef NUMBER
};

/* Metrics that are exported for each arm. */
static const struct {
    enum family_id family;
    enum metric_id metric;
} ARM_METRICS[] = {
    { FAMILY_AB_PREFILL_RATE, METRIC_PREFILL_RATE },
    { FAMILY_AB_DECODE_RATE, METRIC_DECODE_RATE },
    { FAMILY_AB_TIME_TO_FIRST_TOKEN, METRIC_TTFT },
    { FAMILY_AB_PEAK_MEMORY, METRIC_PEAK_MEMORY },
};

static double number_at(const void *base, size_t offset)
{
    double v;
    memcpy(&v, (const char *)base + offset, sizeof(v));
    return v;
}

static void numbers_export(const struct outcome *o, enum outcome_labels kind, enum family_id f,
                           const struct family_sink *to)
{
    for (size_t i = 0; i < COUNT_OF(NUMBERS); i++) {
        if (NUMBERS[i].family != f) continue;
        struct label_list l = outcome_labels(o, kind);
        if (NUMBERS[i].compared) label_add(&l, "metric", o->metric);
        if (NUMBERS[i].compared) label_add(&l, "workload", o->workload);
        if (NUMBERS[i].label) label_add(&l, NUMBERS[i].label, NUMBERS[i].value);
        family_value(to, f, l.label, l.n, number_at(o, NUMBERS[i].offset));
    }
}

/* NAN where the family is none of an arm, which is then not exported. */
static double arm_value(const struct outcome *o, int arm, enum family_id f)
{
    if (f == FAMILY_AB_JOULES_PER_TOKEN) return o->arm[arm].joules_per_token;
    if (f == FAMILY_AB_JOULES_HALF) return o->arm[arm].joules_per_token_half;
    if (f == FAMILY_AB_CO2) return o->arm[arm].co2_g_per_token;
    for (size_t i = 0; i < COUNT_OF(ARM_METRICS); i++)
        if (ARM_METRICS[i].family == f) return o->arm[arm].value[ARM_METRICS[i].metric];
    return (double)NAN;
}

static void arms_export(const struct outcome *o, enum outcome_labels kind, enum family_id f,
                        const struct family_sink *to)
{
    for (int a = 0; a < o->arms; a++) {
        struct label_list l = outcome_labels(o, kind);
        label_add(&l, "metric", o->metric);
        label_add(&l, "workload", o->workload);
        label_add(&l, "arm", arm_letter(a));
        family_value(to, f, l.label, l.n, arm_value(o, a, f));
    }
}

static void verdict_export(const struct outcome *o, enum outcome_labels kind, const struct family_sink *to)
{
    for (int v = VERDICT_BETTER; v <= VERDICT_INVALID; v++) {
        struct label_list l = outcome_labels(o, kind);
        label_add(&l, "metric", o->metric);
        label_add(&l, "workload", o->workload);
        label_add(&l, "verdict", verdict_name((enum verdict)v));
        family_value(to, FAMILY_AB_VERDICT, l.label, l.n, (int)o->verdict == v);
    }
}

static void models_export(const struct outcome *o, enum outcome_labels kind, const struct family_sink *to)
{
    for (int i = 0; i < o->arms; i++) {
        if (!*o->arm[i].sha256_8) continue; /* it never returned a result */
        struct label_list l = outcome_labels(o, kind);
        label_add(&l, "arm", arm_letter(i));
        label_add(&l, "model", o->arm[i].model);
        label_add(&l, "arch", o->arm[i].arch);
        label_add(&l, "quant", o->arm[i].quant);
        label_add(&l, "quantization", o->arm[i].quantization);
        label_add(&l, "recipe", o->arm[i].recipe);
        label_add(&l, "sha256_8", o->arm[i].sha256_8);
        family_value(to, FAMILY_MODEL_INFO, l.label, l.n, 1);
    }
}

static void run_export(const struct outcome *o, enum outcome_labels kind, const struct family_sink *to)
{
    char id[24];
    struct label_list l = outcome_labels(o, kind);
    snprintf(id, sizeof(id), "%lld", (long long)o->run_id);
    label_add(&l, "run", id);
    family_value(to, FAMILY_EXPERIMENT_INFO, l.label, l.n, 1);
}

static void labels_export(const struct outcome *o, enum outcome_labels kind, const struct family_sink *to)
{
    for (int i = 0; i < o->labels.n; i++) {
        struct label_list l = outcome_labels(o, kind);
        label_add(&l, "key", o->labels.label[i].key);
        label_add(&l, "value", o->labels.label[i].value);
        family_value(to, FAMILY_RUN_LABEL_INFO, l.label, l.n, 1);
    }
}

void outcomes_export(const struct outcome *o, int n, enum outcome_labels labels, const struct family_sink *to)
{
    for (int i = 0; i < n; i++) models_export(&o[i], labels, to);
    /* all samples of a family must be adjacent */
    for (int f = FAMILY_AB_EFFECT; f < FAMILY_EXPERIMENT_INFO; f++)
        for (int i = 0; i < n; i++) {
            numbers_export(&o[i], labels, (enum family_id)f, to);
            arms_export(&o[i], labels, (enum family_id)f, to);
            if (f == FAMILY_AB_VERDICT) verdict_export(&o[i], labels, to);
        }
    for (int i = 0; i < n; i++) run_export(&o[i], labels, to);
    for (int i = 0; i < n; i++) labels_export(&o[i], labels, to);
}

enum err_code outcome_text(char **out, const struct outcome *o, const struct machine *machine,
                           struct err *why)
{
    struct exposition e = { 0 };
    const struct family_sink to = exposition_sink(&e);
    enum err_code rc = ERR_OK;
    outcomes_export(o, 1, OUTCOME_IN_GROUP, &to);
    build_export(machine->isa, &to);
    host_export(machine, &to);
    if (e.bad.code)
        rc = err_set(why, e.bad.code, "the exposition of run %lld: %s", (long long)o->run_id, e.bad.message);
    *out = rc ? NULL : str_take(&e.text);
    if (!rc && !*out) rc = err_set(why, ERR_NOMEM, "out of memory for the exposition of a run");
    exposition_free(&e);
    return rc;
}
