/* advisor/predict/losses.c - measured KL divergences of one model, newest first, one for each answer. */
#include "advisor/predict/predict.h"

#include <stdlib.h>
#include <string.h>

#include "telemetry/telemetry.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"

enum { CELLS_MOST = 2000 };

void answer_line(const struct config *c, char *out, size_t size)
{
    struct config only;
    config_default(&only);
    for (int k = 0; k < KNOB_COUNT; k++) {
        if (!KNOBS[k].changes_answers || k == KNOB_MODEL) continue;
        snprintf(only.value[k], sizeof only.value[k], "%s", c->value[k]); /* a derived method, too */
        only.given[k] = c->given[k];
    }
    config_line(&only, out, size);
}

static const struct loss *find(const struct losses *l, const char *answer)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->row[i].answer, answer)) return &l->row[i];
    return NULL;
}

/* What the divergence was measured against: searches take the file as it is, evals say it, A/Bs take arm A.
 */
static bool is_against_the_file(const struct model_cell *c)
{
    json_t *o = NULL;
    bool yes = !strcmp(c->kind, "tune");
    if (!yes && !strcmp(c->kind, "ab")) yes = !strcmp(c->first_config, "default");
    if (!yes && !json_parse(&o, c->worker_json, strlen(c->worker_json), NULL))
        yes = !strcmp(json_get_str(o, "reference", ""), "default");
    json_decref(o);
    return yes;
}

static enum err_code on_cell(void *ctx, const struct model_cell *c, struct err *why)
{
    struct losses *l = ctx;
    struct config config;
    struct loss row = { .kld = c->value, .run_id = c->run_id };
    if (!is_against_the_file(c) || config_parse(&config, c->config, NULL) || config.given[KNOB_MODEL])
        return ERR_OK;
    answer_line(&config, row.answer, sizeof row.answer);
    if (!strcmp(row.answer, "default") || find(l, row.answer)) return ERR_OK;
    struct loss *grown = realloc(l->row, ((size_t)l->n + 1) * sizeof *grown);
    if (!grown) return err_set(why, ERR_NOMEM, "no memory for what was measured of answers");
    l->row = grown;
    l->row[l->n++] = row;
    return ERR_OK;
}

/* Was a file of that place ever measured? Its hash is in the cache then. */
struct search {
    const char *path;
    bool found;
};
static enum err_code on_model(void *ctx, const char *sha256, const char *path, struct err *why)
{
    struct search *s = ctx;
    char *real = realpath(path, NULL);
    (void)sha256, (void)why;
    s->found |= real && !strcmp(real, s->path);
    free(real);
    return ERR_OK;
}

enum err_code losses_load(struct losses *out, struct db *d, const char *model_path, struct err *why)
{
    struct gguf *g = NULL;
    char sha256[HASH_HEX], *real = realpath(model_path, NULL);
    struct search s = { .path = real ? real : model_path };
    *out = (struct losses){ 0 };
    enum err_code rc = db_model_list(d, on_model, &s, why);
    free(real);
    if (rc || !s.found) return rc;
    rc = gguf_open(&g, model_path, why);
    if (!rc) rc = model_identity(g, sha256, why);
    if (!rc)
        rc = db_model_cells(d, &(struct model_query){ sha256, METRICS[METRIC_KLD].name, CELLS_MOST }, on_cell,
                            out, why);
    gguf_close(g);
    return rc;
}

void losses_free(struct losses *l)
{
    free(l->row);
    *l = (struct losses){ 0 };
}

const struct loss *losses_find(const struct losses *l, const struct config *c)
{
    char answer[640];
    answer_line(c, answer, sizeof answer);
    return find(l, answer);
}
