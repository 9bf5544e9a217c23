/* tui/dashboard/actions_form.c - keys in forms and in the palette: what is typed, what is offered for it,
 * what is done when it is answered. */
#include "tui/dashboard/actions.h"

#include <stdlib.h>
#include <string.h>

#include "tui/forms/forms.h"

/* ---------------------------------------------------------------- answered */

static void start_ab(struct dashboard *d)
{
    const struct form *f = &d->ui.form;
    struct job j = { 0 };
    char command[1600];
    job_put_text(&j, START_A, f->field[AB_A].text);
    job_put_text(&j, START_B, f->field[AB_B].text);
    job_put_text(&j, START_MODEL, d->s->model_path);
    job_put_text(&j, START_WORKLOAD, f->field[AB_WORKLOAD].text);
    job_put_text(&j, START_MORE, f->field[AB_MORE].text);
    job_put_text(&j, START_QUALITY, form_says_no(f->field[AB_QUALITY].text) ? "" : f->field[AB_QUALITY].text);
    job_put_text(&j, START_MARGIN, f->field[AB_MARGIN].text);
    job_put_text(&j, START_BUDGET, f->field[AB_BUDGET].text);
    action_command(DO_NEW_AB, &d->ui, d->s, command, sizeof command);
    dashboard_start(d, &j);
    actions_say_command(d, command);
}

void actions_form_done(struct dashboard *d)
{
    struct form *f = &d->ui.form;
    struct job j = { 0 };
    char path[sizeof j.text[0]];
    if (actions_task_done(d)) return;
    switch (f->kind) {
    case FORM_AB: start_ab(d); break;
    case FORM_PUSH: actions_push_to(d, f->field[0].text); break;
    case FORM_COMMAND: actions_command_asked(d, f->field[0].text, COMMAND_SHOWS); break;
    case FORM_MODEL:
        j.run = job_read_model;
        job_put_text(&j, 0, form_path(f->field[0].text, path, sizeof path));
        actions_put(d, d->storage, &j);
        break;
    case FORM_WRITE: actions_write_start(d); break;
    case FORM_FILTER:
        snprintf(d->ui.filter, sizeof d->ui.filter, "%.63s", f->field[0].text);
        actions_read_runs(d);
        break;
    default: break;
    }
    form_hide(f);
}

/* ---------------------------------------------------------------- the palette */

/* Its line, ready for arguments. */
static void command_of_palette(struct dashboard *d, const struct palette_command *c)
{
    char why[300], line[128];
    if (action_refusal(DO_COMMAND, &d->ui, d->s, why, sizeof why)[0]) {
        dashboard_toast(d, true, "%s: %s", c->name, why);
        return;
    }
    snprintf(line, sizeof line, "%s ", c->name);
    form_show(&d->ui.form, FORM_COMMAND, (const char *const[FORM_FIELDS]){ line });
}

static void palette_choose(struct dashboard *d, int row)
{
    struct palette_entry found[PALETTE_ROWS];
    const int n = ui_palette(&d->ui, found);
    form_hide(&d->ui.form);
    if (row < 0 || row >= n) return;
    const struct palette_entry *e = &found[row];
    switch (e->kind) {
    case PALETTE_KEY: actions_do_or_refuse(d, e->key); break;
    case PALETTE_SETTING: actions_form_with_setting(d, e->knob); break;
    case PALETTE_COMMAND: command_of_palette(d, e->command); break;
    }
}

/* How many rows a key moves in a list beside which one types; 0: it does something else. */
static int step_of(int key)
{
    enum { PAGE = 10 };
    switch (key) {
    case UI_KEY_UP:
    case UI_KEY_WHEEL_UP:
    case UI_CTRL('p'): return -1;
    case UI_KEY_DOWN:
    case UI_KEY_WHEEL_DOWN:
    case UI_CTRL('n'): return 1;
    case UI_KEY_PAGE_UP: return -PAGE;
    case UI_KEY_PAGE_DOWN: return PAGE;
    default: return 0;
    }
}

static void key_in_palette(struct dashboard *d, int key)
{
    struct palette_entry found[PALETTE_ROWS];
    int *row = &d->ui.palette_row;
    const int step = step_of(key);
    if (step) {
        *row = MAX(MIN(*row + step, ui_palette(&d->ui, found) - 1), 0);
        return;
    }
    switch (form_key(&d->ui.form, key)) {
    case FORM_ACCEPTED: palette_choose(d, *row); break;
    case FORM_LEFT: form_hide(&d->ui.form); break;
    case FORM_EDITED: *row = 0; break;
    }
}

/* ---------------------------------------------------------------- offers */

/* Offer i in the place of the word. A file where nothing else is asked answers the form. */
static void take(struct dashboard *d, const struct suggestions *c, int i)
{
    struct form *f = &d->ui.form;
    if (i < 0 || i >= c->n) return;
    const struct suggestion *one = &c->list[i];
    if (one->refusal[0] && !one->more) dashboard_toast(d, true, "%s: %s", one->text, one->refusal);
    form_replace(f, c->from, c->to, one->text);
    f->chosen = f->kind == FORM_MODEL ? 0 : -1;
    if (f->kind == FORM_MODEL && !one->more && !f->field[0].error[0]) actions_form_done(d);
}

void actions_choose(struct dashboard *d, int i)
{
    if (d->ui.form.kind == FORM_PALETTE) {
        palette_choose(d, i);
        return;
    }
    struct suggestions *c = malloc(sizeof *c);
    if (!c) return;
    ui_suggestions(c, &d->ui, d->s);
    take(d, c, i);
    free(c);
    actions_form_follow(d);
}

/* Letters that all offers that begin as the word does go on with. */
static bool complete(struct dashboard *d, const struct suggestions *c)
{
    struct form *f = &d->ui.form;
    const struct form_field *field = &f->field[f->focus];
    const size_t typed = (size_t)MAX(c->to - c->from, 0);
    const char *word = field->text + c->from, *first = NULL;
    size_t same = 0;
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const char *t = c->list[i].text;
        if (strncmp(t, word, typed) != 0) continue;
        if (!n++) {
            first = t;
            same = strlen(t);
        }
        size_t k = 0;
        while (k < same && t[k] == first[k]) k++;
        same = k;
    }
    if (!n || same <= typed) return false;
    char text[sizeof c->list[0].text];
    snprintf(text, sizeof text, "%.*s", (int)same, first);
    form_replace(f, c->from, c->to, text);
    return true;
}

/* Up one folder: the part behind the last but one slash goes. */
static void leave_folder(struct form *f)
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

/* Keys that are about the offers; false: it is not one. */
static bool key_in_offers(struct dashboard *d, const struct suggestions *c, int key)
{
    struct form *f = &d->ui.form;
    const int step = step_of(key);
    const bool browses = c->files && f->chosen >= 0;
    if (step && c->n) {
        const int lowest = f->kind == FORM_MODEL ? 0 : -1;
        f->chosen = MAX(MIN(f->chosen + step, c->n - 1), lowest);
        return true;
    }
    switch (key) {
    case UI_KEY_LEFT:
        if (browses) leave_folder(f);
        return browses;
    case UI_KEY_RIGHT:
        if (browses && f->chosen < c->n && c->list[f->chosen].more) take(d, c, f->chosen);
        return browses;
    case UI_KEY_TAB:
        if (f->chosen >= 0 && f->chosen < c->n) {
            take(d, c, f->chosen);
            return true;
        }
        return (f->field[f->focus].error[0] || c->files || form_asks(f) == ASK_COMMAND) && complete(d, c);
    case '\r':
    case UI_KEY_ENTER:
        if (f->chosen < 0 || f->chosen >= c->n) return false;
        if (f->kind == FORM_MODEL && !f->field[0].error[0]) return false; /* a whole path was typed */
        take(d, c, f->chosen);
        return true;
    default: return false;
    }
}

void actions_key_in_form(struct dashboard *d, int key)
{
    struct form *f = &d->ui.form;
    if (f->kind == FORM_PALETTE) {
        key_in_palette(d, key);
        return;
    }
    if (key == UI_CTRL('y')) {
        actions_do_copy(d);
        return;
    }
    struct suggestions *c = malloc(sizeof *c);
    if (c) ui_suggestions(c, &d->ui, d->s);
    const bool taken = c && key_in_offers(d, c, key);
    free(c);
    if (!taken) {
        switch (form_key(f, key)) {
        case FORM_ACCEPTED: actions_form_done(d); break;
        case FORM_LEFT: form_hide(f); break;
        case FORM_EDITED:
            if (f->kind == FORM_MODEL && f->chosen < 0) f->chosen = 0;
            break;
        }
    }
    if (f->kind != FORM_CLOSED) actions_form_follow(d);
}

/* ---------------------------------------------------------------- what offers need */

static void ask_folder(struct dashboard *d)
{
    struct job j = { .run = job_list_folder };
    char path[sizeof j.text[0]];
    if (!suggestions_folder(&d->ui.form, path, sizeof path)) {
        d->folder_asked = false;
        return;
    }
    if (d->folder_asked && !strcmp(path, d->folder_path)) return;
    job_put_text(&j, 0, path);
    j.id = background_want_folder(d->background);
    if (!jobs_put(d->storage, &j)) return; /* at the next frame */
    snprintf(d->folder_path, sizeof d->folder_path, "%s", path);
    d->folder_asked = true;
}

static void ask_judge(struct dashboard *d)
{
    const struct form *f = &d->ui.form;
    const enum form_ask ask = form_asks(f);
    const struct form_field *field = &f->field[f->focus];
    struct job j = { .run = job_estimate_lines, .id = field->cursor };
    if (f->kind != FORM_AB || (ask != ASK_CONFIG && ask != ASK_MORE) || !d->s->model_path[0]) return;
    char key[sizeof d->judge_asked];
    snprintf(key, sizeof key, "%d %s %s", field->cursor, d->s->model_path, field->text);
    if (!strcmp(key, d->judge_asked)) return;
    job_put_text(&j, 0, field->text);
    job_put_text(&j, 1, d->s->model_path);
    job_put_text(&j, 2, f->field[AB_WORKLOAD].text);
    if (jobs_put(d->storage, &j)) memcpy(d->judge_asked, key, sizeof key);
}

void actions_form_needs(struct dashboard *d)
{
    if (d->ui.form.kind == FORM_CLOSED) {
        d->folder_asked = false; /* what is there may have changed by the next time */
        d->judge_asked[0] = '\0';
        return;
    }
    ask_folder(d);
    ask_judge(d);
}
