/* tui/dashboard/actions_form.c - keys in forms and in the palette: typing, suggestions, and accepting. */
#include "tui/dashboard/actions.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- accepting */

static struct effect model_read(struct ui *ui)
{
    char path[PATH_MAX];
    form_path(ui->form.field[0].text, path, sizeof path);
    if (strlen(path) >= MODEL_PATH)
        return effect_error(
            "the path of a model can have %d bytes here and this one has %d: use a shorter path or a "
            "symbolic link",
            MODEL_PATH - 1, (int)strlen(path));
    return effect_job(QUEUE_DATABASE, job_read_model, arena_strdup(&ui->texts, path));
}

/* The field whose text the command would refuse, and why; -1: none is known. A check that has not ended yet
 * refuses nothing: the command makes it again before it starts. */
static int refused_field(const struct ui *ui, const struct snapshot *s, const char **why)
{
    for (int i = 0; i < FORMS[ui->form.kind].fields; i++)
        if (form_field_state(ui, s, i, why) == FIELD_REFUSED) return i;
    return -1;
}

/* A budget that cannot give a verdict is said before it is spent; Enter again starts anyway. */
static bool budget_is_short(struct ui *ui, const struct snapshot *s, struct effect *out)
{
    char text[FORECAST_TEXT];
    struct form *f = &ui->form;
    const struct experiment_forecast *c = form_forecast(ui, s);
    if (!c || f->warned || !experiment_forecast_is_short(c)) return false;
    f->warned = true;
    f->focus = form_budget_field(f->kind);
    *out = effect_error("too short for a verdict: Ctrl-T sets %s, Enter starts anyway (%s)", c->budget,
                        experiment_forecast_text(text, c));
    return true;
}

void action_follow_forecast(struct ui *ui, const struct snapshot *s)
{
    struct form *f = &ui->form;
    const struct experiment_forecast *c = f->kind == FORM_RESUME ? form_forecast(ui, s) : NULL;
    struct form_field *field = c ? &f->field[form_budget_field(f->kind)] : NULL;
    if (!c || c->unknown[0] || !c->budget[0] || field->touched || field->kept) return;
    if (strcmp(field->text, c->budget) != 0) form_put(f, form_budget_field(f->kind), c->budget);
}

/* Ctrl-T: the budget that a verdict needs. */
static struct effect budget_set(struct ui *ui, const struct snapshot *s)
{
    struct form *f = &ui->form;
    const struct experiment_forecast *c = form_forecast(ui, s);
    const int field = form_budget_field(f->kind);
    if (field < 0) return effect_error("this form has no budget for a verdict");
    if (!c || !c->budget[0])
        return effect_error("%s",
                            c && c->unknown[0] ? c->unknown : "how long a block takes is not known yet");
    form_put(f, field, c->budget);
    f->field[field].touched = true;
    f->focus = field;
    return effect_message("budget %s: enough for a verdict where the blocks agree", c->budget);
}

struct effect action_form_accept(struct ui *ui, const struct snapshot *s)
{
    struct form *f = &ui->form;
    struct effect e = { 0 };
    const char *why;
    const int refused = refused_field(ui, s, &why);
    if (refused >= 0) {
        f->focus = refused;
        f->tried = true;
        return effect_error("%s", why);
    }
    if (action_run_form(ui, s, &e)) return e;
    if (f->kind == FORM_SETTING) return action_set(ui, s);
    if (f->kind == FORM_LOAD) return action_change_load(ui, s);
    if (budget_is_short(ui, s, &e)) return e;
    switch (f->kind) {
    case FORM_RESUME: action_enter_view(ui, VIEW_LIVE); /* fall through */
    case FORM_AB: e = effect_start(FORMS[f->kind].action, ui, s, REQUEST_RUN_COMMAND); break;
    case FORM_PUSH: e = action_push_typed(ui, s); break;
    case FORM_COMMAND: e = action_run_typed(ui); break;
    case FORM_MODEL: e = model_read(ui); break;
    case FORM_WRITE: e = action_start_writing(ui, s); break;
    case FORM_FILTER: e = action_accept_filter(ui); break;
    default: break;
    }
    form_hide(f);
    return e;
}

/* ---------------------------------------------------------------- the palette */

/* Open the command form with the command's name, ready for its arguments. */
static struct effect palette_command_open(struct ui *ui, const struct snapshot *s,
                                          const struct palette_command *c)
{
    char line[128];
    const char *why = action_refusal(DO_COMMAND, ui, s);
    if (*why) return effect_error("%s: %s", c->name, why);
    snprintf(line, sizeof line, "%s ", c->name);
    form_show(&ui->form, FORM_COMMAND, (const char *const[FORM_FIELDS]){ line });
    return effect_none();
}

static struct effect palette_choose(struct ui *ui, const struct snapshot *s, int row)
{
    struct palette_entry found[PALETTE_ROWS];
    const int n = ui_palette(ui, found);
    form_hide(&ui->form);
    if (row < 0 || row >= n) return effect_none();
    const struct palette_entry *e = &found[row];
    switch (e->kind) {
    case PALETTE_KEY: return input_action(ui, s, e->key);
    case PALETTE_SETTING: return action_ab_with_setting(ui, s, e->knob);
    case PALETTE_COMMAND: return palette_command_open(ui, s, e->command);
    }
    return effect_none();
}

/* How many rows a key moves in a list while letters go to the field above it; 0: the key does something else.
 */
static int list_step(int key)
{
    enum { PAGE_ROWS = 10 };
    switch (key) {
    case UI_KEY_UP:
    case UI_KEY_WHEEL_UP:
    case UI_CTRL('p'): return -1;
    case UI_KEY_DOWN:
    case UI_KEY_WHEEL_DOWN:
    case UI_CTRL('n'): return 1;
    case UI_KEY_PAGE_UP: return -PAGE_ROWS;
    case UI_KEY_PAGE_DOWN: return PAGE_ROWS;
    default: return 0;
    }
}

static struct effect palette_key(struct ui *ui, const struct snapshot *s, int key)
{
    struct palette_entry found[PALETTE_ROWS];
    const int step = list_step(key);
    if (step) {
        ui->palette_row = MAX(MIN(ui->palette_row + step, ui_palette(ui, found) - 1), 0);
        return effect_none();
    }
    switch (form_key(&ui->form, key)) {
    case FORM_ACCEPTED: return palette_choose(ui, s, ui->palette_row);
    case FORM_LEFT: form_hide(&ui->form); break;
    case FORM_EDITED: ui->palette_row = 0; break;
    }
    return effect_none();
}

/* ---------------------------------------------------------------- the filter of a list */

/* Letters go to the filter, the arrow keys move in the list. */
static struct effect filter_key(struct ui *ui, const struct snapshot *s, int key)
{
    const int step = list_step(key);
    struct effect e = { 0 };
    if (step) {
        ui->selected[ui->view] = MAX(ui->selected[ui->view] + step, 0);
        ui_clamp(ui, s);
        return e;
    }
    switch (form_key(&ui->form, key)) {
    case FORM_ACCEPTED: e = action_form_accept(ui, s); break;
    case FORM_LEFT:
        form_hide(&ui->form);
        e = action_clear_filter(ui);
        break;
    case FORM_EDITED: action_typed_filter(ui); break;
    }
    ui_clamp(ui, s);
    return e;
}

/* ---------------------------------------------------------------- suggestions */

/* Put suggestion i in the place of the word. In the model form a file answers the whole form. */
static struct effect suggestion_take(struct ui *ui, const struct snapshot *s, const struct suggestions *list,
                                     int i)
{
    struct form *f = &ui->form;
    if (i < 0 || i >= list->n) return effect_none();
    const struct suggestion *one = &list->list[i];
    struct effect e = { 0 };
    form_replace(f, list->from, list->to, one->text);
    f->chosen = f->kind == FORM_MODEL ? 0 : -1;
    if (f->kind == FORM_MODEL && !one->more && !f->field[0].error[0]) e = action_form_accept(ui, s);
    if (one->refusal[0] && !one->more) {
        e.is_error = true;
        snprintf(e.message, sizeof e.message, "%s: %s", one->text, one->refusal);
    }
    return e;
}

struct effect action_choose(struct ui *ui, const struct snapshot *s, int i)
{
    if (ui->form.kind == FORM_PALETTE) return palette_choose(ui, s, i);
    struct suggestions *list = malloc(sizeof *list);
    if (!list) return effect_error("not enough memory for suggestions");
    ui_suggestions(list, ui, s);
    const struct effect e = suggestion_take(ui, s, list, i);
    free(list);
    action_follow_fields(ui, s);
    return e;
}

/* Append the letters that all suggestions beginning with the word have in common. False: there are none. */
static bool word_complete(struct form *f, const struct suggestions *list)
{
    const size_t typed = (size_t)MAX(list->to - list->from, 0);
    const char *word = f->field[f->focus].text + list->from, *first = NULL;
    size_t same = 0;
    for (int i = 0; i < list->n; i++) {
        const char *t = list->list[i].text;
        if (strncmp(t, word, typed) != 0) continue;
        if (!first) {
            first = t;
            same = strlen(t);
        }
        size_t k = 0;
        while (k < same && t[k] == first[k]) k++;
        same = k;
    }
    if (!first || same <= typed) return false;
    char text[sizeof list->list[0].text];
    snprintf(text, sizeof text, "%.*s", (int)same, first);
    form_replace(f, list->from, list->to, text);
    return true;
}

/* Change the path in the field to its parent folder. */
static void folder_leave(struct form *f)
{
    char path[FORM_TEXT];
    const char *text = f->field[f->focus].text;
    snprintf(path, sizeof path, "%s", text);
    char *slash = strrchr(path, '/');
    if (slash) *slash = '\0';
    slash = strrchr(path, '/');
    if (slash)
        slash[1] = '\0';
    else
        path[0] = '\0';
    form_replace(f, 0, (int)strlen(text), path);
    f->chosen = 0;
}

/* Keys that act on suggestions. False: the key belongs to the form. */
static bool suggestion_key(struct ui *ui, const struct snapshot *s, const struct suggestions *list, int key,
                           struct effect *out)
{
    struct form *f = &ui->form;
    const int step = list_step(key);
    const bool selected = f->chosen >= 0 && f->chosen < list->n, browses = list->files && f->chosen >= 0;
    if (step && list->n) {
        const int lowest = f->kind == FORM_MODEL ? 0 : -1; /* the model form always has a selected file */
        f->chosen = MAX(MIN(f->chosen + step, list->n - 1), lowest);
        return true;
    }
    switch (key) {
    case UI_KEY_LEFT:
        if (browses) folder_leave(f);
        return browses;
    case UI_KEY_RIGHT:
        if (browses && selected && list->list[f->chosen].more) *out = suggestion_take(ui, s, list, f->chosen);
        return browses;
    case UI_KEY_TAB:
        if (selected) *out = suggestion_take(ui, s, list, f->chosen);
        if (selected) return true;
        return (f->field[f->focus].error[0] || list->files || form_asks(f) == ASK_COMMAND) &&
               word_complete(f, list);
    case '\r':
    case UI_KEY_ENTER:
        if (!selected || (f->kind == FORM_MODEL && !f->field[0].error[0])) return false; /* a whole path */
        *out = suggestion_take(ui, s, list, f->chosen);
        return true;
    default: return false;
    }
}

/* ---------------------------------------------------------------- keys */

struct effect action_form_key(struct ui *ui, const struct snapshot *s, int key)
{
    struct form *f = &ui->form;
    struct effect e = { 0 };
    if (f->kind == FORM_PALETTE) return palette_key(ui, s, key);
    if (f->kind == FORM_FILTER) return filter_key(ui, s, key);
    if (key == UI_CTRL('y')) return action_copy(ui, s);
    if (key == UI_CTRL('t')) return budget_set(ui, s);
    if (key == UI_KEY_F1 || (key == '?' && !field_takes_question_mark(form_asks(f)))) {
        ui->explains = true;
        ui->explains_row = 0;
        return e;
    }
    /* One step back: first the selected suggestion, then the form. */
    if (key == UI_KEY_ESC && f->chosen >= 0 && f->kind != FORM_MODEL) {
        f->chosen = -1;
        return e;
    }
    struct suggestions *list = malloc(sizeof *list);
    if (list) ui_suggestions(list, ui, s);
    const bool taken = list && suggestion_key(ui, s, list, key, &e);
    free(list);
    if (!taken) {
        switch (form_key(f, key)) {
        case FORM_ACCEPTED: e = action_form_accept(ui, s); break;
        case FORM_LEFT: form_hide(f); break;
        case FORM_EDITED:
            if (f->kind == FORM_MODEL && f->chosen < 0) f->chosen = 0;
            break;
        }
    }
    if (f->kind != FORM_CLOSED) action_follow_fields(ui, s);
    return e;
}
