/* tui/dashboard/jobs_machine.c - jobs about the machine and the model: detecting, measuring limits, reading a
 * model, advice.
 *
 * Every job works on local copies without the lock and publishes the result under it. */
#include "tui/dashboard/background.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"
#include "advisor/predict/predict.h"
#include "base/cut/cut.h"
#include "engine/import/import.h"
#include "tui/forms/forms.h"

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
    background_lock(b);
    if (detected) b->known.machine = m;
    b->known.machine_known = detected;
    if (detected && found) b->known.ceilings = c;
    b->known.ceilings_known = detected && found;
    background_unlock(b);
    const char *settings = getenv("QDYNO_PERIODS");
    if ((settings && sampler_periods_parse(&periods, settings, &why)) ||
        sampler_start(&sampler, "", 100, &periods, &why))
        background_log(b, LOG_WARN, "sensors: %s", why.message);
    background_lock(b);
    b->sampler = sampler;
    background_unlock(b);
}

/* ---------------------------------------------------------------- model */

/* Everything that is about one model, until it is read of the new one. */
static void forget_model(struct snapshot *s)
{
    s->applied[0] = s->advice_error[0] = '\0';
    s->advice_count = s->advice_folded = s->recent_count = s->sensitivity.maps = 0;
    s->quality = (struct quality_results){ .count = -1 };
    s->load = (struct load_results){ .lines = -1 };
    s->stopped_ab = (struct stopped_run){ 0 };
    s->estimates = (struct line_estimates){ .total_bytes = -1, .decode_tok_s = NAN, .low = NAN, .high = NAN };
    s->checked.of = 0;
}

void job_read_model(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct gguf *g = NULL;
    struct model_shape shape = { 0 };
    struct model_summary *ledger = calloc(1, sizeof *ledger);
    enum err_code rc = strlen(j->text) >= sizeof b->known.model_path
                           ? err_set(&why, ERR_USAGE, "the path of a model can have %d bytes here: %.100s...",
                                     MODEL_PATH - 1, j->text)
                       : ledger ? model_file_open(&g, j->text, &why)
                                : err_set(&why, ERR_NOMEM, "not enough memory for the model");
    if (rc == ERR_OK) rc = model_shape_read(&shape, g, &why);
    if (rc == ERR_OK) model_summary_make(ledger, g, &shape);
    struct recipe_list *recipes = calloc(1, sizeof *recipes);
    if (recipes && rc == ERR_OK) recipe_list_make(recipes, g);
    struct proposals *proposals = calloc(1, sizeof *proposals);
    if (proposals && rc == ERR_OK) proposals_make(proposals, g, &shape, j->text);
    gguf_close(g);
    background_lock(b);
    str_put(b->known.model_path, sizeof b->known.model_path, j->text);
    snprintf(b->known.model_error, sizeof b->known.model_error, "%s", rc ? why.message : "");
    b->known.model = rc ? (struct model_shape){ 0 } : shape;
    if (ledger) b->known.summary = *ledger;
    if (recipes) b->known.recipes = *recipes;
    if (proposals) b->known.proposals = *proposals;
    forget_model(&b->known); /* it was about another model */
    background_unlock(b);
    if (rc)
        background_announce(b, true, "%s", why.message);
    else if (shape.unknown || shape.random_weights)
        background_log(b, LOG_WARN, "%s", shape.unknown ? ANSWERS_UNVERIFIED : RANDOM_WEIGHTS_TEXT);
    free(proposals);
    free(recipes);
    free(ledger);
    if (!rc) background_read_applied(b);
    struct db *d = NULL;
    if (!rc && !db_open(&d, b->db_path, &why))
        background_read_results(b, d); /* if the database cannot be opened, the history shows the error */
    db_close(d);
}

/* ---------------------------------------------------------------- advice */

/* What earlier runs say about the model on this machine. */
struct past {
    struct correction *correction;
    struct answer_klds answer_klds;
    struct evidence evidence;
};

/* Load the correction model (residuals of earlier predictions), the measured KL divergences and the measured
 * rates of configurations. Without a database the advice uses the cost model alone. */
static void past_read(struct past *past, struct background *b, const char *model, const struct machine *m,
                      const struct machine_ceilings *c)
{
    struct db *d = NULL;
    struct err why;
    enum err_code rc = db_open(&d, b->db_path, &why);
    if (!rc) rc = correction_load(&past->correction, d, m->id, c, &why);
    if (!rc) rc = answer_klds_load(&past->answer_klds, d, model, &why);
    if (!rc) rc = evidence_load(&past->evidence, d, model, m->id, &why);
    db_close(d);
    if (rc) background_log(b, LOG_WARN, "advice does not use past runs: %s", why.message);
}

static void past_free(struct past *past)
{
    correction_free(past->correction);
    answer_klds_free(&past->answer_klds);
    evidence_free(&past->evidence);
}

/* Shows the advice: one row stands for everything that is hardly known. The caller holds the lock. */
static void advice_show(struct snapshot *s, struct advice *list, int n)
{
    const int known = advice_put_vague_last(list, n);
    s->advice_folded = n - known;
    s->advice_count = MIN(known, (int)SNAPSHOT_ADVICE - (s->advice_folded > 0));
    for (int i = 0; i < s->advice_count; i++) s->advice[i] = list[i];
    if (s->advice_folded) s->advice[s->advice_count++] = list[known];
}

static enum err_code advice_compute(struct advice **list, int *n, struct background *b, const char *model,
                                    const struct known_machine *k, struct err *why)
{
    struct past past = { 0 };
    past_read(&past, b, model, &k->machine, &k->ceilings);
    const enum err_code rc = advise(list, n, model, &k->machine, &k->ceilings,
                                    &(struct advise_options){ .goal = GOAL_BALANCED,
                                                              .correction = past.correction,
                                                              .answer_klds = &past.answer_klds,
                                                              .evidence = &past.evidence },
                                    why);
    past_free(&past);
    return rc;
}

void job_advise(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct advice *list = NULL;
    int n = 0;
    background_read_limits(b);
    const struct known_machine k = background_machine(b);
    enum err_code rc =
        k.machine_known && k.ceilings_known ? ERR_OK
        : k.machine_known
            ? err_set(&why, ERR_ABSENT,
                      "the limits of this machine are not stored: o shows what the command advises")
            : err_set(&why, ERR_ABSENT, "the machine could not be detected; the log (key 9) says why");
    background_lock(b);
    snprintf(b->known.advice_state, sizeof b->known.advice_state, "computing advice");
    background_unlock(b);
    if (rc == ERR_OK) rc = advice_compute(&list, &n, b, j->text, &k, &why);
    background_lock(b);
    struct snapshot *s = &b->known;
    const bool same = !strcmp(j->text, s->model_path); /* another model may have been chosen meanwhile */
    if (same) advice_show(s, list, rc ? 0 : n);
    if (same)
        snprintf(s->advice_error, sizeof s->advice_error, "%s",
                 rc       ? why.message
                 : n == 0 ? "no configuration fits this machine"
                          : "");
    s->advice_state[0] = '\0';
    background_unlock(b);
    free(list);
    if (rc) background_announce(b, true, "advice: %s", why.message);
}

void background_read_limits(struct background *b)
{
    struct machine_ceilings measured;
    bool found = false;
    char id[sizeof b->known.machine.id];
    background_lock(b);
    memcpy(id, b->known.machine.id, sizeof id);
    background_unlock_if(b, false);
    if (!*id || ceilings_load(&measured, id, &found, NULL) || !found) return;
    background_lock(b);
    const bool newer = !b->known.ceilings_known ||
                       measured.measured_unix_ms > b->known.ceilings.measured_unix_ms;
    if (newer) b->known.ceilings = measured;
    b->known.ceilings_known = true;
    background_unlock_if(b, newer);
}

void background_refresh_advice(struct background *b)
{
    struct err why = { 0 };
    struct advice *list = NULL;
    char model[sizeof b->known.model_path];
    int n = 0;
    background_lock(b);
    const struct snapshot *s = &b->known;
    const struct known_machine k = { s->machine, s->ceilings, s->machine_known, s->ceilings_known };
    memcpy(model, s->model_path, sizeof model);
    const bool wanted = k.machine_known && s->advice_count && !s->advice_state[0];
    background_unlock_if(b, false);
    if (!wanted) return;
    const enum err_code rc = advice_compute(&list, &n, b, model, &k, &why);
    background_lock(b);
    const bool shows = !rc && !strcmp(model, s->model_path) && !s->advice_state[0];
    if (shows) advice_show(&b->known, list, n);
    background_unlock_if(b, shows);
    free(list);
    if (rc) background_log(b, LOG_WARN, "advice is older than the last run: %s", why.message);
}

void job_predict_limits(struct background *b, const struct job *j)
{
    const struct known_machine k = background_machine(b);
    const bool known = k.machine_known && k.ceilings_known;
    for (int arm = 0; arm < JOB_ARMS; arm++) {
        struct err why = { 0 };
        const struct config *config = &j->experiment->config[arm];
        struct prediction p = { .decode_limit_tok_s = NAN, .prefill_limit_tok_s = NAN };
        struct gguf *g = NULL;
        const bool good = known && !config_is_foreign(config); /* limits are those of qdyno's own kernels */
        const char *own = config_text(config, KNOB_MODEL);
        if (good && model_file_open(&g, *own ? own : j->experiment->model, &why) == ERR_OK &&
            predict(&p, g, config, &k.machine, &k.ceilings, &(struct predict_for){ .ctx = 0 }, &why))
            p.decode_limit_tok_s = p.prefill_limit_tok_s = NAN;
        gguf_close(g);
        background_lock(b);
        b->known.decode_limit[arm] = p.decode_limit_tok_s;
        b->known.prefill_limit[arm] = p.prefill_limit_tok_s;
        background_unlock(b);
    }
}
