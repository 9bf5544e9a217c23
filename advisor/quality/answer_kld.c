/* advisor/quality/answer_kld.c - the KL divergences that earlier runs measured of one model: the newest value
 * on the model's text per set of settings that change answers, or else the newest one on another text. */
#include "advisor/quality/quality.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/model/model.h"
#include "telemetry/metrics/metrics.h"

enum { CELLS_MOST = 2000 };

struct config answer_config(const struct config *c)
{
    struct config only;
    config_default(&only);
    for (int k = 0; k < KNOB_COUNT; k++) {
        if (!KNOBS[k].changes_answers || k == KNOB_MODEL) continue;
        /* copied even when the method was derived from the format */
        only.value[k] = c->value[k];
        only.given[k] = c->given[k];
    }
    return only;
}

void answer_line(const struct config *c, char *out, size_t size)
{
    const struct config only = answer_config(c);
    config_line(&only, out, size);
}

static struct answer_kld *answer_find(const struct answer_klds *l, const char *answer)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->row[i].answer, answer)) return &l->row[i];
    return NULL;
}

/* Is the cell's KL divergence relative to the model file without changes? Always in a tuning run; in an A/B
 * run when arm A is the default config; an eval stores its reference config. */
static bool is_relative_to_file(const struct model_cell *c, const json_t *worker)
{
    return !strcmp(c->kind, "tune") || (!strcmp(c->kind, "ab") && !strcmp(c->first_config, "default")) ||
           !strcmp(json_get_str(worker, "reference", ""), "default");
}

/* Cells come newest first. A value on the model's text replaces one on another text. */
static enum err_code answer_add(struct answer_klds *l, const struct answer_kld *row, struct err *why)
{
    struct answer_kld *known = answer_find(l, row->answer);
    if (known) {
        if (known->foreign && !row->foreign) *known = *row;
        return ERR_OK;
    }
    if (!array_room(&l->row, &l->room, (int64_t)l->n + 1, sizeof *l->row))
        return err_set(why, ERR_NOMEM, "out of memory while loading earlier KL divergences");
    l->row[l->n++] = *row;
    return ERR_OK;
}

static enum err_code cell_add(void *ctx, const struct model_cell *c, struct err *why)
{
    struct answer_klds *l = ctx;
    struct config config;
    struct answer_kld row = { .kld = c->value, .run_id = c->run_id };
    json_t *worker = NULL;
    if (config_parse(&config, c->config, NULL) || config.given[KNOB_MODEL]) return ERR_OK;
    answer_line(&config, row.answer, sizeof row.answer);
    if (!strcmp(row.answer, "default")) return ERR_OK;
    if (json_parse(&worker, c->worker_json, strlen(c->worker_json), NULL)) worker = NULL;
    measured_text_of(&row.text, c, worker);
    row.foreign = !quality_text_is(&l->text, row.text.name, row.text.sha256);
    const enum err_code rc = is_relative_to_file(c, worker) ? answer_add(l, &row, why) : ERR_OK;
    json_decref(worker);
    return rc;
}

/* db_model_list callback: has a run measured this file, or one of this name in another folder? */
struct search {
    const char *path; /* resolved */
    bool found;
};
static enum err_code model_check_path(void *ctx, const char *sha256, const char *path, struct err *why)
{
    struct search *s = ctx;
    char *real = realpath(path, NULL);
    (void)sha256, (void)why;
    s->found |= !strcmp(path_file_name(real ? real : path), path_file_name(s->path));
    free(real);
    return ERR_OK;
}

enum err_code model_file_identity(char sha256[HASH_HEX], const char *model_path, struct err *why)
{
    struct gguf *g = NULL;
    enum err_code rc = model_file_open(&g, model_path, why);
    if (!rc) rc = model_identity(g, sha256, why);
    gguf_close(g);
    return rc;
}

enum err_code measured_model_identity(char sha256[HASH_HEX], struct db *d, const char *model_path,
                                      struct err *why)
{
    char *real = realpath(model_path, NULL);
    struct search s = { .path = real ? real : model_path };
    sha256[0] = '\0';
    enum err_code rc = db_model_list(d, model_check_path, &s, why);
    if (!rc && s.found) rc = model_file_identity(sha256, model_path, why);
    free(real);
    return rc;
}

enum err_code answer_klds_load(struct answer_klds *out, struct db *d, const char *model_path, struct err *why)
{
    char sha256[HASH_HEX];
    *out = (struct answer_klds){ 0 };
    enum err_code rc = measured_model_identity(sha256, d, model_path, why);
    if (!rc) rc = quality_text_of_hash(&out->text, d, sha256, model_path, why);
    if (rc || !*sha256) return rc;
    const struct model_query q = { .sha256 = sha256,
                                   .metric = METRICS[METRIC_KLD].name,
                                   .limit = CELLS_MOST };
    return db_model_cells(d, &q, cell_add, out, why);
}

void answer_klds_free(struct answer_klds *l)
{
    free(l->row);
    *l = (struct answer_klds){ 0 };
}

const struct answer_kld *answer_klds_find(const struct answer_klds *l, const struct config *c)
{
    char answer[CONFIG_LINE];
    answer_line(c, answer, sizeof answer);
    return answer_find(l, answer);
}
