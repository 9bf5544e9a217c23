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
