/* advisor/tune/spec.c - the options of a search as JSON in its run's row, and back, to continue it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/tune/parts.h"
#include "base/fields/fields.h"

#define LIMIT(member, KIND) JSON_FIELD(struct tune_limits, member, "limit_" #member, KIND)
static const struct json_field LIMITS[] = { LIMIT(memory_bytes, COUNT), LIMIT(kld, NUM),
                                            LIMIT(ppl_ratio, NUM) },
                               ACCURACY[] = { LIMIT(accuracy, NUM) };

/* Absolute, so that the search can be resumed from another folder. */
static void put_path(json_t *o, const char *key, const char *path)
{
    char *whole = path ? realpath(path, NULL) : NULL;
    json_put_str(o, key, whole ? whole : path);
    free(whole);
}

json_t *tune_options_json(const struct tune_options *from, const char *text, const char *text_sha256,
                          const char *current, int quality_ctx)
{
    char work[640], seed[24];
    json_t *o = json_object();
    put_path(o, "model", from->model_path);
    json_put_str(o, "current", current);
    json_put_str(o, "workload", workload_line(&from->workload, work, sizeof work));
    json_put_str(o, "goal", goal_name(from->goal));
    json_put_str(o, "space", from->space);
    put_path(o, "text", text);
    json_put_str(o, "text_sha256", text_sha256);
    if (quality_ctx != TUNE_QUALITY_CTX) json_put_int(o, "quality_ctx", quality_ctx);
    if (from->requantize) json_put_bool(o, "requantize", true); /* not in those of earlier versions */
    json_put_num(o, "budget_s", from->budget_s);
    json_put_fields(o, LIMITS, COUNT_OF(LIMITS), &from->limits);
    json_put_str(o, "estimand", ESTIMANDS[from->estimand]);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)from->seed);
    json_put_str(o, "seed", seed);
    return o;
}

char *tune_spec_json(const struct tuning *t)
{
    json_t *o = tune_options_json(t->task.o, t->quality.path, t->quality.sha256, t->known.list[0].line,
                                  t->out->quality.ctx);
    if (t->task.o->limits.accuracy > 0) { /* a search without that limit is stored as in earlier versions */
        json_put_fields(o, ACCURACY, COUNT_OF(ACCURACY), &t->task.o->limits);
        json_put_str(o, "task_sha256", t->asked.sha256);
        put_path(o, "task", t->task.o->task_file);
    }
    char *line = json_line(o);
    json_decref(o);
    return line;
}

json_t *tune_stored_json(const char *text)
{
    json_t *o = NULL;
    return text && !json_parse(&o, text, strlen(text), NULL) ? o : NULL;
}

bool tune_spec_text_differs(const char *then, const char *sha256)
{
    json_t *o = tune_stored_json(then);
    const char *was = json_get_str(o, "text_sha256", "");
    const bool differs = *was && strcmp(was, sha256);
    json_decref(o);
    return differs;
}

bool tune_spec_same(const char *then, const char *now)
{
    /* a resumed search may have another budget and estimand; its model and task are compared by their hashes,
     * because files move */
    static const char *const IGNORED[] = { "budget_s", "model", "estimand", "task" };
    json_t *a = tune_stored_json(then), *b = tune_stored_json(now);
    const bool read = a && b;
    for (size_t i = 0; read && i < COUNT_OF(IGNORED); i++) {
        json_object_del(a, IGNORED[i]);
        json_object_del(b, IGNORED[i]);
    }
    if (read && *json_get_str(a, "text_sha256", "")) { /* the content counts, not where it lies */
        json_object_del(a, "text");
        json_object_del(b, "text");
    } else if (read) { /* older runs store the path as typed, and none for the bundled text */
        const char *text = json_get_str(a, "text", NULL);
        json_object_del(b, "text_sha256");
        if (text)
            put_path(a, "text", text);
        else
            json_object_del(b, "text"), json_object_del(a, "text");
    }
    const bool same = read && json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return same;
}

/* ---------------------------------------------------------------- back */

static enum err_code text_read(char **out, const json_t *o, const char *key, struct err *why)
{
    const char *text = json_get_str(o, key, NULL);
    *out = text ? strdup(text) : NULL;
    return !text || *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for the options of a search");
}

static enum err_code files_read(struct tune_stored *s, const json_t *list, struct err *why)
{
    const size_t n = MIN(json_array_size(list), (size_t)TUNE_FILES);
    if (!n) return ERR_OK;
    s->file = calloc(n, sizeof *s->file);
    if (!s->file) return err_set(why, ERR_NOMEM, "out of memory for the options of a search");
    for (size_t i = 0; i < n; i++) {
        const char *path = json_string_value(json_array_get(list, i));
        snprintf(s->file[s->files++], sizeof s->file[0], "%s", path ? path : "");
    }
    return ERR_OK;
}

static enum err_code stored_from_json(struct tune_stored *s, const json_t *o, struct err *why)
{
    enum err_code rc = text_read(&s->model_path, o, "model", why);
    if (!rc) rc = text_read(&s->space, o, "space", why);
    if (!rc) rc = text_read(&s->text_file, o, "text", why);
    if (!rc) rc = text_read(&s->task_file, o, "task", why);
    if (!rc) rc = text_read(&s->target, o, "target", why);
    if (!rc) rc = files_read(s, json_object_get(o, "files"), why);
    const char *current = json_get_str(o, "current", "");
    if (!rc) rc = config_parse(&s->current, current, why);
    if (!rc) rc = workload_parse(&s->workload, json_get_str(o, "workload", ""), why);
    s->budget_s = json_get_num(o, "budget_s", 0);
    s->requantize = json_get_bool(o, "requantize", false);
    s->quality_ctx = (int)json_get_int(o, "quality_ctx", TUNE_QUALITY_CTX);
    s->estimand = estimand_parse(json_get_str(o, "estimand", ""));
    json_get_fields(o, LIMITS, COUNT_OF(LIMITS), &s->limits);
    json_get_fields(o, ACCURACY, COUNT_OF(ACCURACY), &s->limits);
    const bool whole = s->model_path && s->budget_s > 0 &&
                       goal_parse(json_get_str(o, "goal", ""), &s->goal) &&
                       str_to_u64(json_get_str(o, "seed", ""), &s->seed);
    return rc || whole ? rc : err_set(why, ERR_FORMAT, "its model, budget, goal or seed is missing");
}

/* The budget that the outcome of a search names as enough; NAN: none. */
static double outcome_enough_s(const char *outcome)
{
    json_t *o = tune_stored_json(outcome);
    const double enough_s = json_get_num(o, "enough_s", NAN);
    json_decref(o);
    return enough_s;
}

enum err_code tune_stored_read(struct tune_stored *out, const char *db_path, int64_t run_id, struct err *why)
{
    struct run_row row = { 0 };
    struct db *db = NULL;
    json_t *o = NULL;
    *out = (struct tune_stored){ 0 };
    enum err_code rc = db_open(&db, db_path, why);
    if (!rc) rc = db_run_get(db, run_id, &row, why);
    db_close(db);
    if (!rc && strcmp(row.kind, "tune"))
        rc = err_set(why, ERR_USAGE, "--resume %lld: expected a tuning run, but that run is of kind '%s'",
                     (long long)run_id, row.kind);
    if (!rc) {
        rc = row.spec_json ? json_parse(&o, row.spec_json, strlen(row.spec_json), why)
                           : err_set(why, ERR_FORMAT, "it has no options");
        if (!rc) rc = stored_from_json(out, o, why);
        if (!rc) out->budget_s = fmax(out->budget_s, outcome_enough_s(row.outcome_json));
        if (rc && rc != ERR_NOMEM) rc = ERR_FORMAT;
        if (rc) err_prefix(why, "the options of run %lld", (long long)run_id);
    }
    json_decref(o);
    run_row_free(&row);
    if (rc) tune_stored_free(out);
    return rc;
}

void tune_stored_free(struct tune_stored *s)
{
    free(s->model_path);
    free(s->space);
    free(s->text_file);
    free(s->task_file);
    free(s->target);
    free(s->file);
    *s = (struct tune_stored){ 0 };
}
