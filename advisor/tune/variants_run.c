/* advisor/tune/variants_run.c - the run of a search between variants: begun, stored, continued, finished. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/tune/variants.h"
#include "engine/import/import.h"

/* Not "quality", whose cells are losses of a recipe against its own file: these are against another file. */
static const char PHASE[] = "variant";

/* The content of every file, because another one may lie at the same path when the search is resumed. */
static enum err_code files_json(json_t *o, const struct variants *s, struct err *why)
{
    json_t *paths = json_array(), *contents = json_array();
    enum err_code rc = ERR_OK;
    for (int i = 0; i < s->o->files->n && !rc; i++) {
        const char *path = s->o->files->file[i].path;
        char *whole = realpath(path, NULL), sha256[HASH_HEX] = "";
        struct gguf *g = NULL;
        rc = model_file_open(&g, path, why);
        if (!rc) rc = model_identity(g, sha256, why);
        gguf_close(g);
        json_array_append_new(paths, json_string(whole ? whole : path));
        json_array_append_new(contents, json_string(sha256));
        free(whole);
    }
    json_put(o, "files", paths);
    json_put(o, "files_sha256", contents);
    return rc;
}

static enum err_code spec_json(char **out, const struct variants *s, struct err *why)
{
    char line[CONFIG_LINE];
    json_t *o = tune_options_json(s->o, s->text, s->sha256, config_line(s->o->current, line, sizeof line),
                                  s->out->quality.ctx);
    const enum err_code rc = s->files ? files_json(o, s, why) : ERR_OK;
    json_put_str(o, "target", s->has_target ? s->o->target->text : NULL);
    *out = rc ? NULL : json_line(o);
    json_decref(o);
    return rc;
}

/* sha256: of the reference. */
static enum err_code check_resumed(const struct variants *s, const char *spec, const char *sha256,
                                   struct err *why)
{
    struct run_row old = { 0 };
    const long long id = (long long)s->o->resume_id;
    enum err_code rc = tune_resumed_run(&old, s->db, s->o->resume_id, why);
    if (!rc && !tune_spec_same(old.spec_json, spec))
        rc = err_set(why, ERR_USAGE,
                     "--resume %lld: that search had other files or options. Repeat its command and add "
                     "--resume %lld; only --budget and --estimand may differ",
                     id, id);
    if (!rc && strcmp(old.model_sha256, sha256))
        rc = err_set(why, ERR_USAGE,
                     "--resume %lld: its losses are against another file than %s (sha256 %.12s..., expected "
                     "%.12s...): name the same one, or start a new search",
                     id, s->o->model_path, sha256, old.model_sha256);
    run_row_free(&old);
    return rc;
}

static void event_restore(void *ctx, int64_t unix_ms, const char *kind, const char *text)
{
    struct variants *s = ctx;
    (void)unix_ms;
    if (!strcmp(kind, "stage") && s->stages < VARIANT_STAGES) {
        struct variant_stage *stage = &s->stage[s->stages];
        const char *at = strchr(text, '=');
        if (!at || !str_to_i64(at + 1, &stage->run)) return;
        snprintf(stage->name, sizeof stage->name, "%.*s",
                 (int)MIN((size_t)(at - text), sizeof stage->name - 1), text);
        s->stages++;
    }
    if (!strcmp(kind, "found") && s->stored_n < VARIANTS)
        snprintf(s->stored[s->stored_n++], CONFIG_LINE, "%s", text);
}

/* Losses of an earlier session, for candidates with the same config line. */
static enum err_code quality_restore(struct variants *s, struct err *why)
{
    struct cell_row *cells = NULL;
    int n = 0;
    char line[CONFIG_LINE];
    enum err_code rc = db_cell_list(s->db, s->run.row.id, &cells, &n, why);
    for (int c = 0; c < n && !rc; c++) {
        s->spent_before += cells[c].seconds > 0 ? cells[c].seconds : 0;
        if (strcmp(cells[c].phase, PHASE)) continue;
        for (int i = s->reference_changed ? 0 : 1; i < s->n; i++) {
            json_t *o = NULL;
            if (strcmp(config_line(&s->v[i].config, line, sizeof line), cells[c].config)) continue;
            if (json_parse(&o, cells[c].worker_json, strlen(cells[c].worker_json), NULL)) o = NULL;
            s->v[i].quality = (struct quality){ 0 };
            quality_from_json(&s->v[i].quality, o);
            s->v[i].asked = true;
            if (*cells[c].error)
                snprintf(s->v[i].quality.missing, sizeof s->v[i].quality.missing, "%s", cells[c].error);
            if (s->v[i].quality.known)
                s->windows = MAX(s->windows, (int)s->v[i].quality.figures.candidate.chunks);
            json_decref(o);
        }
    }
    free(cells);
    int known = 0;
    for (int i = s->reference_changed ? 0 : 1; i < s->n; i++) known += s->v[i].quality.known;
    if (known == 1)
        s->windows = 0; /* perhaps the pilot: it is measured again, with as many as the budget has */
    return rc;
}

static enum err_code restore(struct variants *s, struct err *why)
{
    struct run_row row = { 0 };
    s->stored = calloc(VARIANTS, sizeof *s->stored);
    if (!s->stored) return err_set(why, ERR_NOMEM, "out of memory for the candidates of a search");
    enum err_code rc = db_event_list(s->db, s->run.row.id, event_restore, s, why);
    for (int i = 0; i < s->stored_n && !rc; i++) {
        struct config c;
        rc = config_parse(&c, s->stored[i], why);
        if (!rc) rc = variants_add(s, &c, NAN, why);
    }
    if (!rc) rc = quality_restore(s, why);
    if (!rc) rc = db_run_get(s->db, s->run.row.id, &row, why);
    json_t *o = rc ? NULL : tune_stored_json(row.outcome_json);
    s->spent_before = fmax(s->spent_before, json_get_num(o, "spent_s", 0));
    json_decref(o);
    run_row_free(&row);
    return rc;
}

enum err_code variants_begin(struct variants *s, struct err *why)
{
    const struct tune_options *o = s->o;
    struct gguf *g = NULL;
    struct model_shape shape = { 0 };
    char sha256[HASH_HEX] = "";
    enum err_code rc = model_file_open(&g, o->model_path, why);
    if (!rc) rc = model_shape_read(&shape, g, why);
    if (!rc) rc = model_identity(g, sha256, why);
    gguf_close(g);
    if (rc) return rc;
    s->out->random_weights = shape.random_weights;
    s->out->answers_unverified = shape.unknown > 0;
    s->out->reference_quantized = !format_is_full_precision(shape.dominant_format);
    char *spec = NULL;
    rc = spec_json(&spec, s, why);
    const struct tune_run_about about = { .label = s->seen[0].line,
                                          .metric = s->metric->name,
                                          .spec_json = spec,
                                          .sha256 = sha256,
                                          .shape = &shape };
    if (!rc && o->resume_id) rc = check_resumed(s, spec, sha256, why);
    if (!rc) rc = tune_run_open(&s->run, s->db, o, &about, why);
    free(spec);
    s->started = !rc;
    s->out->run_id = rc ? 0 : s->run.row.id;
    return rc || !o->resume_id ? rc : restore(s, why);
}

enum err_code variants_store_quality(struct variants *s, int i, struct measured_cell *c, struct err *why)
{
    char line[CONFIG_LINE];
    const struct quality *q = &s->v[i].quality;
    json_t *o = quality_to_json(q);
    const struct run_place place = {
        .block = -1, .phase = PHASE, .config = config_line(&s->v[i].config, line, sizeof line), .echo = o
    };
    if (q->known) c->value[METRIC_KLD] = q->kld.estimate;
    const enum err_code rc = run_store(&s->run, &place, c, why);
    json_decref(o);
    return rc;
}

int64_t variants_stage_run(const struct variants *s, const char *name)
{
    int64_t run = 0;
    for (int i = 0; i < s->stages; i++)
        if (!strcmp(s->stage[i].name, name)) run = s->stage[i].run; /* the newest */
    return run;
}

enum err_code variants_stage_set(struct variants *s, const char *name, int64_t run, struct err *why)
{
    char text[64];
    if (!run || variants_stage_run(s, name) == run || s->stages == VARIANT_STAGES) return ERR_OK;
    struct variant_stage *stage = &s->stage[s->stages++];
    snprintf(stage->name, sizeof stage->name, "%s", name);
    stage->run = run;
    snprintf(text, sizeof text, "%s=%lld", name, (long long)run);
    const enum err_code rc = db_event_add(s->db, s->run.row.id, "stage", text, why);
    return rc ? rc : db_link_put(s->db, run, s->run.row.id, "confirm", "", why);
}

enum err_code variants_finish(struct variants *s, enum err_code rc, struct err *why)
{
    struct tune_result *r = s->out;
    char load[RUN_LOAD_TEXT];
    r->seconds = r->search_s = variants_spent(s);
    r->stopped = rc == ERR_CANCELLED;
    if (!s->started) return rc;
    json_t *o = json_object();
    json_put_str(o, "winner", r->wins ? r->winner.line : r->current.line);
    json_put_str(o, "candidate", r->winner.line);
    json_put_str(o, "because", r->because);
    json_put_str(o, "reference", *r->reference ? r->reference : NULL);
    json_put_str(o, "target", r->target.asked ? r->target.text : NULL);
    json_put_str(o, "load", r->load.loaded ? experiment_run_load_text(load, &r->load) : NULL);
    json_put_int(o, "confirm_run", r->confirm_run);
    json_put_num(o, "spent_s", r->seconds);
    if (r->unfinished || r->stopped) json_put_num(o, "enough_s", fmax(r->enough_s, s->o->budget_s));
    const struct run_outcome outcome = { .state = r->stopped || r->unfinished ? "stopped"
                                                  : rc                        ? "failed"
                                                                              : "done",
                                         /* reaching a target is not a verdict of a comparison */
                                         .verdict = r->wins && !r->target.asked ? verdict_name(VERDICT_BETTER)
                                                                                : NULL,
                                         .effect_ratio = exp(r->effect.estimate),
                                         .document = o };
    const enum err_code kept = run_finish(&s->run, &outcome, rc ? NULL : why);
    json_decref(o);
    return r->stopped ? ERR_OK : rc ? rc : kept;
}
