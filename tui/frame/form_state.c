/* tui/frame/form_state.c - what the command would say about the fields of the open form, and what the screens
 * propose to measure. */
#include "tui/frame/frame.h"

#include <string.h>

/* Fields whose text only the command can judge: it depends on the model or on what is installed. */
static bool command_checks(const struct form *f, int field)
{
    switch (FORMS[f->kind].field[field].ask) {
    case ASK_CONFIG: return f->kind != FORM_LOAD;
    case ASK_MORE: return f->field[field].text[0] != '\0';
    case ASK_RECIPE:
    case ASK_MODEL: return true;
    default: return false;
    }
}

enum field_state form_field_state(const struct ui *u, const struct snapshot *s, int field, const char **why)
{
    const struct form *f = &u->form;
    const char *unused;
    const char **reason = why ? why : &unused;
    *reason = f->field[field].error;
    if (**reason) return FIELD_REFUSED;
    if (!command_checks(f, field)) return FIELD_GOOD;
    if (s->checked.of != form_hash(f, s->model_path)) return FIELD_CHECKING;
    *reason = s->checked.refusal[field];
    return **reason ? FIELD_REFUSED : FIELD_GOOD;
}

int form_budget_field(enum form_kind kind)
{
    return kind == FORM_AB ? (int)AB_BUDGET : kind == FORM_RESUME ? 0 : -1;
}

enum err_code form_experiment(struct experiment_spec *out, const struct form *f, const char *model,
                              struct err *why)
{
    static const enum form_ab ARMS[] = { AB_A, AB_B, AB_MORE };
    double seconds;
    *out = (struct experiment_spec){ .arms = 2, .margin = EXPERIMENT_MARGIN };
    if (str_to_seconds(f->field[form_budget_field(f->kind)].text, &seconds)) out->budget_s = seconds;
    out->resume_id = f->about;
    if (f->kind == FORM_RESUME) return ERR_OK;
    out->arms = f->field[AB_MORE].text[0] ? 3 : 2;
    (void)str_to_ratio(f->field[AB_MARGIN].text, &out->margin); /* else the usual one */
    enum err_code rc = workload_parse(&out->workload, f->field[AB_WORKLOAD].text, why);
    /* training starts from random weights, without a model file */
    if (!rc && !out->workload.train && !str_put(out->model, sizeof out->model, model))
        rc = err_set(why, ERR_USAGE, "the path of the model has more than %d bytes", MODEL_PATH - 1);
    for (int arm = 0; arm < out->arms; arm++) { /* each one, for the checks of the form */
        struct err later;
        const enum err_code bad = config_parse(&out->config[arm], f->field[ARMS[arm]].text,
                                               rc ? &later : why);
        if (!rc) rc = bad;
    }
    return rc;
}

const struct experiment_forecast *form_forecast(const struct ui *u, const struct snapshot *s)
{
    const bool about_it = form_budget_field(u->form.kind) >= 0 &&
                          s->forecast_of == form_hash(&u->form, s->model_path);
    return about_it ? &s->forecast : NULL;
}

const char *proposed_line(const struct snapshot *s, const char *other)
{
    for (int i = 0; i < s->proposals.count; i++)
        if (strcmp(s->proposals.row[i].line, other) != 0) return s->proposals.row[i].line;
    return "threads=1";
}

const char *proposed_method(const struct snapshot *s)
{
    for (int i = 0; i < s->proposals.count; i++)
        if (s->proposals.row[i].changes_answers) return s->proposals.row[i].line;
    return "kv=q8_0";
}
