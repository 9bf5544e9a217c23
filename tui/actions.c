/* tui/actions.c - what keys do. An action that cannot be done says why; one that is done says its command. */
#include "tui/actions.h"

#include <stdlib.h>
#include <string.h>

#include "tui/settings.h"

void dashboard_toast(struct dashboard *d, bool is_error, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(d->ui.toast, sizeof d->ui.toast, fmt, args);
    va_end(args);
    d->ui.toast_is_error = is_error;
    d->ui.toast_until_ms = clock_unix_ms() + (is_error ? 6000 : 4000);
}

bool dashboard_is_running(const struct dashboard *d)
{
    return d->experiment && !experiment_finished(d->experiment);
}

const char ACTIONS_BUSY[] = "too much is waiting already: try again in a moment";

void actions_put(struct dashboard *d, struct jobs *queue, const struct job *j)
{
    if (!jobs_put(queue, j)) dashboard_toast(d, true, "%s", ACTIONS_BUSY);
}

void job_put_text(struct job *j, int i, const char *text)
{
    snprintf(j->text[i], sizeof j->text[i], "%s", text ? text : "");
}

/* ---------------------------------------------------------------- one function per action that does
 * something */

static void do_model(struct dashboard *d)
{
    form_show(&d->ui.form, FORM_MODEL, (const char *const[]){ d->s->model_path, NULL, NULL });
}

static void do_filter(struct dashboard *d)
{
    form_show(&d->ui.form, FORM_FILTER, (const char *const[]){ d->ui.filter, NULL, NULL });
}

static void runs_read(struct dashboard *d)
{
    struct job j = { .run = board_job_history };
    job_put_text(&j, 0, d->ui.filter);
    actions_put(d, d->storage, &j);
}

static void go_to(struct dashboard *d, int view)
{
    d->ui.view = (enum view)((view + VIEW_COUNT) % VIEW_COUNT);
    if (d->ui.view == VIEW_HISTORY) runs_read(d);
}

static void do_back(struct dashboard *d)
{
    d->ui.toast[0] = '\0';
    if (d->ui.view == VIEW_HISTORY && d->ui.filter[0]) {
        d->ui.filter[0] = '\0';
        runs_read(d);
    } else if (d->ui.view != VIEW_LIVE) {
        d->ui.view = VIEW_LIVE;
    }
}

static void do_palette(struct dashboard *d)
{
    d->ui.palette_row = 0;
    form_show(&d->ui.form, FORM_PALETTE, NULL);
}

static void do_mouse(struct dashboard *d)
{
    d->ui.mouse = !d->ui.mouse;
    if (d->screen) screen_mouse(d->screen, d->ui.mouse);
    dashboard_toast(d, false,
                    d->ui.mouse ? "mouse on: what is drawn as a key or a row can be clicked"
                                : "mouse off: the terminal selects text");
}

static void do_theme(struct dashboard *d)
{
    enum { MOST = 64 };
    char names[MOST][THEME_NAME];
    struct err why = { 0 };
    const int n = theme_names(names, MOST);
    int at = 0;
    while (at < n && strcmp(names[at], d->theme_named)) at++;
    at = (at + 1) % n;
    snprintf(d->theme_named, sizeof d->theme_named, "%s", names[at]); /* T goes on behind a bad one, too */
    const bool bad = theme_find(&d->theme, names[at], &why) != ERR_OK;
    if (d->screen) screen_theme(d->screen, &d->theme);
    if (bad)
        dashboard_toast(d, true, "%s", why.message);
    else
        dashboard_toast(d, false, "theme %s (%d of %d); W keeps it", d->theme.name, at + 1, n);
}

static void do_save(struct dashboard *d)
{
    struct err why = { 0 };
    char *path = NULL;
    if (settings_write(&path, &(struct settings){ .theme = d->theme_named, .mouse = d->ui.mouse }, &why))
        dashboard_toast(d, true, "%s", why.message);
    else
        dashboard_toast(d, false, "kept in %s", path);
    free(path);
}

static void do_quit(struct dashboard *d)
{
    if (dashboard_is_running(d) || d->s->command[0])
        d->ui.confirm_quit = true;
    else
        d->leaving = true;
}

/* The log counts lines back from the newest: there, up is more. */
static void move(struct dashboard *d, int rows)
{
    int *at = &d->ui.selected[d->ui.view];
    *at += d->ui.view == VIEW_LOG ? -rows : rows;
    ui_clamp(&d->ui, d->s);
}

static void act(struct dashboard *d, enum action action)
{
    static void (*const DOERS[ACTION_COUNT])(struct dashboard *) = {
        [DO_NEW_AB] = actions_do_new_ab,
        [DO_STOP] = actions_do_stop,
        [DO_PAUSE] = actions_do_pause,
        [DO_RESUME] = actions_do_resume,
        [DO_ADVISE] = actions_do_advise,
        [DO_OPEN] = actions_do_open,
        [DO_PUSH] = actions_do_push,
        [DO_MODEL] = do_model,
        [DO_FILTER] = do_filter,
        [DO_BACK] = do_back,
        [DO_QUIT] = do_quit,
        [DO_PALETTE] = do_palette,
        [DO_COMMAND] = actions_do_command,
        [DO_CANCEL] = actions_do_cancel,
        [DO_MOUSE] = do_mouse,
        [DO_THEME] = do_theme,
        [DO_SAVE] = do_save,
    };
    enum { PAGE = 10, FAR = 1000000 };
    if (action >= DO_VIEW_LIVE && action <= DO_VIEW_LOG) go_to(d, (int)action - DO_VIEW_LIVE);
    if (DOERS[action]) DOERS[action](d);
    switch (action) {
    case DO_NEXT_VIEW: go_to(d, (int)d->ui.view + 1); break;
    case DO_PREVIOUS_VIEW: go_to(d, (int)d->ui.view - 1); break;
    case DO_UP: move(d, -1); break;
    case DO_DOWN: move(d, 1); break;
    case DO_PAGE_UP: move(d, -PAGE); break;
    case DO_PAGE_DOWN: move(d, PAGE); break;
    case DO_FIRST: move(d, -FAR); break;
    case DO_LAST: move(d, FAR); break;
    case DO_HELP:
        d->ui.help = true;
        d->ui.help_scroll = 0;
        break;
    case DO_REDRAW:
        if (d->screen) screen_redraw(d->screen);
        break;
    case DO_SUSPEND:
        if (d->screen) screen_suspend(d->screen);
        break;
    default: break;
    }
}

/* ---------------------------------------------------------------- keys */

static void form_done(struct dashboard *d)
{
    struct form *f = &d->ui.form;
    struct job j = { 0 };
    char command[1600];
    switch (f->kind) {
    case FORM_AB:
        job_put_text(&j, 0, f->field[0].text);
        job_put_text(&j, 1, f->field[1].text);
        job_put_text(&j, 2, d->s->model_path);
        job_put_text(&j, 3, f->field[2].text);
        action_command(DO_NEW_AB, &d->ui, d->s, command, sizeof command);
        dashboard_start(d, &j);
        board_log(d->board, LOG_INFO, "$ %s", command);
        dashboard_toast(d, false, "$ %s", command);
        break;
    case FORM_PUSH: actions_push_to(d, f->field[0].text); break;
    case FORM_COMMAND: actions_command_start(d, f->field[0].text); break;
    case FORM_MODEL:
        j.run = board_job_model;
        job_put_text(&j, 0, f->field[0].text);
        actions_put(d, d->storage, &j);
        break;
    case FORM_FILTER:
        snprintf(d->ui.filter, sizeof d->ui.filter, "%.63s", f->field[0].text);
        runs_read(d);
        break;
    default: break;
    }
    form_hide(f);
}

/* Do it, or say why not. */
static void act_or_refuse(struct dashboard *d, const struct key_binding *k)
{
    char why[300];
    if (action_refusal(k->action, &d->ui, d->s, why, sizeof why)[0]) {
        dashboard_toast(d, true, "%s: %s", k->name, why);
        return;
    }
    d->ui.toast[0] = '\0';
    act(d, k->action);
}

/* Its line, ready for arguments. */
static void command_of_palette(struct dashboard *d, const struct palette_command *c)
{
    char why[300], line[128];
    if (action_refusal(DO_COMMAND, &d->ui, d->s, why, sizeof why)[0]) {
        dashboard_toast(d, true, "%s: %s", c->name, why);
        return;
    }
    snprintf(line, sizeof line, "%s ", c->name);
    form_show(&d->ui.form, FORM_COMMAND, (const char *const[]){ line, NULL, NULL });
}

static void palette_choose(struct dashboard *d, int row)
{
    struct palette_entry found[PALETTE_ROWS];
    const int n = ui_palette(&d->ui, found);
    form_hide(&d->ui.form);
    if (row < 0 || row >= n) return;
    const struct palette_entry *e = &found[row];
    switch (e->kind) {
    case PALETTE_KEY: act_or_refuse(d, e->key); break;
    case PALETTE_SETTING: actions_form_with_setting(d, e->knob); break;
    case PALETTE_COMMAND: command_of_palette(d, e->command); break;
    }
}

static void key_in_palette(struct dashboard *d, int key)
{
    struct palette_entry found[PALETTE_ROWS];
    int *row = &d->ui.palette_row;
    const int step = key == UI_KEY_UP || key == UI_KEY_WHEEL_UP || key == UI_CTRL('p')       ? -1
                     : key == UI_KEY_DOWN || key == UI_KEY_WHEEL_DOWN || key == UI_CTRL('n') ? 1
                     : key == UI_KEY_PAGE_UP                                                 ? -10
                     : key == UI_KEY_PAGE_DOWN                                               ? 10
                                                                                             : 0;
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

static void key_in_form(struct dashboard *d, int key)
{
    if (d->ui.form.kind == FORM_PALETTE) {
        key_in_palette(d, key);
        return;
    }
    switch (form_key(&d->ui.form, key)) {
    case FORM_ACCEPTED: form_done(d); break;
    case FORM_LEFT: form_hide(&d->ui.form); break;
    case FORM_EDITED: break;
    }
}

static void key_in_help(struct dashboard *d, int key)
{
    const struct key_binding *k = key_find(key);
    enum action a = k ? k->action : DO_NOTHING;
    if (a == DO_DOWN || a == DO_PAGE_DOWN)
        d->ui.help_scroll = MIN(d->ui.help_scroll + 1, (int)KEY_COUNT);
    else if (a == DO_UP || a == DO_PAGE_UP)
        d->ui.help_scroll = MAX(d->ui.help_scroll - 1, 0);
    else
        d->ui.help = false;
}

void dashboard_key(struct dashboard *d, int key)
{
    if (d->ui.confirm_quit) {
        d->ui.confirm_quit = false;
        if (key != 'y' && key != 'Y' && key != UI_KEY_ENTER) return;
        if (d->experiment) experiment_stop(d->experiment);
        d->leaving = true;
        if (dashboard_is_running(d)) dashboard_toast(d, false, "stopping the experiment");
        return;
    }
    if (d->ui.form.kind != FORM_CLOSED) {
        key_in_form(d, key);
        return;
    }
    if (d->ui.help) {
        key_in_help(d, key);
        return;
    }
    const struct key_binding *k = key_find(key);
    if (!k) {
        dashboard_toast(d, true, "that key does nothing here: ? shows the ones that do");
    } else {
        act_or_refuse(d, k);
    }
}

/* A row is chosen by the first click and opened by the second. */
static void click_row(struct dashboard *d, int row)
{
    int *at = &d->ui.selected[d->ui.view];
    if (*at == row)
        act_or_refuse(d, key_of_action(DO_OPEN));
    else
        *at = row;
    ui_clamp(&d->ui, d->s);
}

void dashboard_click(struct dashboard *d, struct hit hit)
{
    if (d->ui.confirm_quit) return;
    switch (hit.kind) {
    case HIT_NOTHING: break;
    case HIT_ACTION: act_or_refuse(d, key_of_action((enum action)hit.what)); break;
    case HIT_ROW: click_row(d, hit.what); break;
    case HIT_FIELD: d->ui.form.focus = hit.what; break;
    case HIT_ENTRY: palette_choose(d, hit.what); break;
    case HIT_CLOSE:
        d->ui.help = false;
        form_hide(&d->ui.form);
        break;
    }
}
