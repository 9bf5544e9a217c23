/* advisor/history/baseline.c - stores baselines, and builds the experiment that checks one (history.h). */
#include "advisor/history/history.h"
#include "advisor/run/run.h"
#include "engine/import/import.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum err_code model_check(const char *path, const char *want, struct err *why)
{
    struct gguf *file;
    char hex[HASH_HEX];
    if (model_file_open(&file, path, why)) {
        err_prefix(why, "the model file is missing or cannot be read");
        return ERR_FORMAT;
    }
    enum err_code rc = gguf_hash(file, hex, why);
    gguf_close(file);
    if (rc || !*want || !strcmp(want, hex)) return rc;
    return err_set(
        why, ERR_FORMAT,
        "'%s' is another model than before: its SHA-256 is %.12s, expected %.12s; restore that file, or measure again",
        path, hex, want);
}

/* ---------------------------------------------------------------- from a run */

static const struct result *run_best_arm(const struct results *r, enum metric_id metric, const char *workload)
{
    const int better = metric_sign(&METRICS[metric]);
    const struct result *best = NULL;
    for (int i = 0; i < r->n; i++) {
        const double y = better * result_mean(&r->result[i], metric);
        if (isnan(y) || (workload && strcmp(r->result[i].workload, workload))) continue;
        if (!best || y > better * result_mean(best, metric)) best = &r->result[i];
    }
    return best;
}

static enum err_code result_pick(const struct result **out, const struct results *r, int arm,
                                 const char *workload, enum metric_id metric, struct err *why)
{
    int found = 0;
    if (arm < 0 && !strcmp(r->run.verdict, verdict_name(VERDICT_BETTER)) && metric != METRIC_COUNT) {
        *out = run_best_arm(r, metric, workload);
        if (*out) return ERR_OK;
    }
    for (int i = 0; i < r->n; i++) {
        const struct result *x = &r->result[i];
        if (x->arm != MAX(arm, 0) || (workload && strcmp(x->workload, workload))) continue;
        *out = x;
        found++;
    }
    if (found == 1) return ERR_OK;
    if (found)
        return err_set(why, ERR_USAGE, "run %" PRId64 " has several workloads: choose one with -w",
                       r->run.id);
    return err_set(why, ERR_USAGE, "run %" PRId64 " has no result of arm %c%s%s", r->run.id,
                   'A' + MAX(arm, 0), workload ? " on " : "", workload ? workload : "");
}

enum err_code baseline_of_run(struct baseline_row *out, const struct results *r, int arm,
                              const char *workload, struct err *why)
{
    const struct result *x = NULL;
    const struct metric *m = metric_find(r->run.metric);
    enum metric_id metric = m ? (enum metric_id)(m - METRICS) : METRIC_COUNT;
    enum err_code rc = result_pick(&x, r, arm, workload, metric, why);
    if (rc) return rc;
    if (metric == METRIC_COUNT) metric = result_main_metric(x);
    if (metric == METRIC_COUNT || isnan(result_mean(x, metric)))
        return err_set(why, ERR_USAGE, "run %" PRId64 " has no result that a baseline could be made of",
                       r->run.id);
    const char *path = json_get_str(capsule_model(r->capsule, x->config), "path", "");
    struct workload w;
    /* trained from scratch: there is no model file */
    const bool trains = !workload_parse(&w, x->workload, NULL) && w.train;
    if (!*path && !trains)
        return err_set(why, ERR_USAGE,
                       "run %" PRId64
                       " does not name its model's file: give the config and the file instead of the "
                       "run: qdyno baseline set NAME CONFIG -m FILE",
                       r->run.id);
    snprintf(out->config, sizeof out->config, "%s", x->config);
    snprintf(out->workload, sizeof out->workload, "%s", x->workload);
    snprintf(out->metric, sizeof out->metric, "%s", METRICS[metric].name);
    snprintf(out->model_path, sizeof out->model_path, "%s", path);
    snprintf(out->model_sha256, sizeof out->model_sha256, "%s", results_model(r, x->config));
    snprintf(out->model_name, sizeof out->model_name, "%s", r->run.model_name);
    snprintf(out->machine, sizeof out->machine, "%s", r->run.machine);
    out->value = exp(result_mean(x, metric));
    out->run_id = r->run.id;
    return ERR_OK;
}

/* ---------------------------------------------------------------- from a config line */

enum err_code baseline_of_config(struct baseline_row *out, const struct config *c, const char *model_path,
                                 const struct workload *w, const struct metric *metric, struct err *why)
{
    struct experiment_spec *s = calloc(1, sizeof *s);
    struct gguf *file = NULL;
    if (!s) return err_set(why, ERR_NOMEM, "out of memory for a baseline");
    s->workload = *w;
    s->metric = metric;
    snprintf(s->model, sizeof s->model, "%s", model_path);
    enum err_code rc = strlen(model_path) < sizeof s->model
                           ? spec_resolve(s, why)
                           : err_set(why, ERR_USAGE, "the model's path is longer than %zu bytes",
                                     sizeof s->model - 1);
    if (!rc && !w->train) rc = model_file_open(&file, s->model, why);
    if (!rc && !w->train) rc = gguf_hash(file, out->model_sha256, why);
    gguf_close(file);
    if (!rc) {
        const char *slash = strrchr(s->model, '/');
        config_line(c, out->config, sizeof out->config);
        workload_line(w, out->workload, sizeof out->workload);
        snprintf(out->metric, sizeof out->metric, "%s", s->metric->name);
        snprintf(out->model_path, sizeof out->model_path, "%s", s->model);
        snprintf(out->model_name, sizeof out->model_name, "%s", slash ? slash + 1 : s->model);
    }
    free(s);
    return rc;
}

/* ---------------------------------------------------------------- the experiment */

static bool is_same_file(const char *a, const char *b)
{
    char x[PATH_MAX], y[PATH_MAX];
    return !strcmp(a, b) || (realpath(a, x) && realpath(b, y) && !strcmp(x, y));
}

static void line_without_model(const struct config *c, char *buf, size_t size)
{
    struct config rest = *c;
    config_unset(&rest, KNOB_MODEL);
    config_line(&rest, buf, size);
}

/* a line's own model= overrides the model given here */
static enum err_code spec_set_model(struct config *c, const char *path, struct err *why)
{
    return *config_text(c, KNOB_MODEL) ? ERR_OK : config_set(c, KNOBS[KNOB_MODEL].key, path, why);
}

enum err_code baseline_spec(struct experiment_spec *out, const struct baseline_row *b,
                            const struct config *challenger, const char *challenger_model, struct err *why)
{
    char one[CONFIG_LINE], other[CONFIG_LINE];
    memset(out, 0, sizeof *out);
    enum err_code rc = config_parse(&out->config[0], b->config, why);
    if (!rc) rc = workload_parse(&out->workload, b->workload, why);
    if (!rc && !(out->metric = metric_find(b->metric)))
        rc = err_set(why, ERR_FORMAT, "its metric '%s' is unknown to this version of qdyno", b->metric);
    if (rc) {
        err_prefix(why, "baseline '%s'", b->name);
        return rc;
    }
    const bool trains = out->workload.train > 0;
    if (!trains && (rc = model_check(b->model_path, b->model_sha256, why))) {
        err_prefix(why, "champion of baseline '%s'", b->name);
        return rc;
    }
    out->arms = 2;
    out->config[1] = *challenger;
    out->margin = b->margin;
    /* the experiment itself refuses a model for a workload that trains */
    snprintf(out->model, sizeof out->model, "%s",
             trains && challenger_model ? challenger_model : b->model_path);
    const char *own = config_text(challenger, KNOB_MODEL), *model = *own               ? own
                                                                    : challenger_model ? challenger_model
                                                                                       : b->model_path;
    const bool one_model = trains || is_same_file(model, b->model_path);
    line_without_model(&out->config[0], one, sizeof one);
    line_without_model(challenger, other, sizeof other);
    if (one_model && !strcmp(one, other))
        return err_set(
            why, ERR_USAGE,
            "the challenger equals the champion of '%s' (%s on the same model): name another config, or another model with -m",
            b->name, one);
    if (one_model) return ERR_OK;
    rc = spec_set_model(&out->config[0], b->model_path, why);
    return rc ? rc : spec_set_model(&out->config[1], model, why);
}
