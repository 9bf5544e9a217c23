/* tui/dashboard/jobs_check.c - checks the texts of a form with the functions that the command itself uses
 * before it starts (advisor/experiment, engine/quant): a program that is not installed, a recipe that the
 * file does not allow, a file that is no model. Only headers are read. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "engine/import/import.h"
#include "engine/quant/quant.h"
#include "tui/dashboard/background.h"

static void refuse(struct form_checked *out, int field, enum err_code rc, const struct err *why)
{
    if (!rc) return;
    snprintf(out->refusal[field], sizeof out->refusal[field], "%.*s", (int)sizeof out->refusal[field] - 1,
             why->message);
}

/* Whether the form still has the texts of this job. */
static bool is_wanted(struct background *b, const struct job *j)
{
    background_lock(b);
    const bool wanted = b->check_wanted == (uint64_t)j->id;
    background_unlock_if(b, false);
    return wanted;
}

/* What the budget gives: after the checks, because it may have to hash a model. */
static void forecast(struct background *b, const struct job *j, struct experiment_spec *s)
{
    struct err why;
    struct experiment_forecast f;
    struct correction *correction = NULL;
    struct db *d = NULL;
    const struct known_machine k = background_machine(b);
    if (!k.machine_known || s->budget_s <= 0) return;
    if (db_open(&d, b->db_path, &why)) d = NULL;
    if (d && k.ceilings_known && correction_load(&correction, d, k.machine.id, &k.ceilings, &why))
        correction = NULL;
    experiment_forecast(&f, s,
                        &(struct forecast_sources){ .db = d,
                                                    .machine = &k.machine,
                                                    .ceilings = k.ceilings_known ? &k.ceilings : NULL,
                                                    .correction = correction });
    correction_free(correction);
    db_close(d);
    background_lock(b);
    const bool wanted = b->check_wanted == (uint64_t)j->id;
    if (wanted) {
        b->known.forecast = f;
        b->known.forecast_of = (uint64_t)j->id;
    }
    background_unlock_if(b, wanted);
}

/* The arms as `qdyno ab` opens them. False: there is nothing to forecast. */
static bool check_ab(struct form_checked *out, struct experiment_spec *s, const struct job *j,
                     struct err *why)
{
    static const enum form_ab FIELDS[] = { AB_A, AB_B, AB_MORE };
    const char *quality = j->form->field[AB_QUALITY].text;
    bool good = !form_experiment(s, j->form, j->text, why);
    if (*j->form->field[AB_WORKLOAD].error) return false; /* arms are checked for a workload */
    for (int arm = 0; arm < s->arms; arm++) {
        if (*j->form->field[FIELDS[arm]].error) continue; /* its field says so itself */
        refuse(out, (int)FIELDS[arm], experiment_check_arm(s, arm, why), why);
        good = good && !out->refusal[FIELDS[arm]][0];
    }
    if (!form_says_no(quality)) {
        s->quality_chunks = QUALITY_CHUNKS;
        s->quality_least = QUALITY_LEAST;
        str_put(s->quality_file, sizeof s->quality_file,
                strcmp(quality, "yes") ? quality : "the model's text");
    }
    return good;
}

/* A config line that runs with its usual context. */
static void check_line(struct form_checked *out, int field, const char *line, const char *model,
                       struct err *why)
{
    struct config c;
    if (!config_parse(&c, line, why)) refuse(out, field, arm_check(&c, model, 0, 1, why), why);
}

static void check_setting(struct form_checked *out, struct background *b, const struct job *j,
                          struct err *why)
{
    char line[CONFIG_LINE];
    struct snapshot *s = malloc(sizeof *s);
    if (!s) return;
    background_copy(b, s);
    const enum err_code rc = knob_changed_line(s, j->form->field[0].text, line, sizeof line, why);
    refuse(out, 0, rc, why);
    if (!rc) check_line(out, 0, line, j->text, why);
    free(s);
}

/* As `qdyno quantize`, up to where it begins to read weights. */
static void check_quantize(struct form_checked *out, const struct job *j, struct err *why)
{
    struct config c;
    struct gguf *g = NULL;
    struct quantize_plan plan = { 0 };
    if (config_parse(&c, j->form->field[QUANTIZE_RECIPE].text, why)) return;
    enum err_code rc = model_file_open(&g, j->text, why);
    if (!rc) rc = quantize_plan_init(&plan, g, &c, why);
    if (!rc) quantize_plan_done(&plan);
    refuse(out, 0, rc, why);
    gguf_close(g);
}

static void check_model_file(struct form_checked *out, const char *path, struct err *why)
{
    struct gguf *g = NULL;
    struct model_shape shape;
    char whole[PATH_MAX];
    enum err_code rc = model_file_open(&g, form_path(path, whole, sizeof whole), why);
    if (!rc) rc = model_shape_read(&shape, g, why);
    refuse(out, 0, rc, why);
    gguf_close(g);
}

void job_check_form(struct background *b, const struct job *j)
{
    struct err why = { 0 };
    struct form_checked *out = calloc(1, sizeof *out);
    const struct form *f = j->form;
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    bool forecasts = false;
    if (!out || !spec || !is_wanted(b, j)) {
        free(out);
        free(spec);
        return;
    }
    out->of = (uint64_t)j->id;
    switch (f->kind) {
    case FORM_AB: forecasts = check_ab(out, spec, j, &why); break;
    case FORM_RESUME: forecasts = !form_experiment(spec, f, j->text, &why); break;
    case FORM_WRITE:
        for (int i = 1; i <= SIDEBYSIDE_ARMS; i++) check_line(out, i, f->field[i].text, j->text, &why);
        break;
    case FORM_SETTING: check_setting(out, b, j, &why); break;
    case FORM_QUANTIZE: check_quantize(out, j, &why); break;
    case FORM_MODEL: check_model_file(out, f->field[0].text, &why); break;
    default: break;
    }
    background_lock(b);
    const bool wanted = b->check_wanted == out->of;
    if (wanted) b->known.checked = *out;
    background_unlock_if(b, wanted);
    if (wanted && forecasts) forecast(b, j, spec);
    free(spec);
    free(out);
}
