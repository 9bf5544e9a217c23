/* tui/dashboard/actions.c - what keys do. An action that cannot be done says why; one that is done says its
 * command. */
#include "tui/dashboard/actions.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/experiment/experiment.h"
#include "tui/dashboard/preferences.h"
#include "tui/views/parts.h"

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

/* Where the model is; from the bundled one on, the places models were found in before. */
static void do_model(struct dashboard *d)
{
    char folder[FORM_TEXT];
    const char *path = d->s->model_path, *slash = strrchr(path, '/');
    if (str_ends(path, "/models/bundled.gguf")) slash = NULL;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 0, path);
    if (d->made[0] && !access(d->made, R_OK)) { /* what was just made is what is wanted */
        snprintf(folder, sizeof folder, "%s", d->made);
        d->made[0] = '\0';
    }
    form_show(&d->ui.form, FORM_MODEL, (const char *const[FORM_FIELDS]){ folder });
    d->ui.form.chosen = 0;
}

static void do_filter(struct dashboard *d)
{
    form_show(&d->ui.form, FORM_FILTER, (const char *const[FORM_FIELDS]){ d->ui.filter, NULL, NULL });
}

void actions_read_runs(struct dashboard *d)
{
    struct job j = { .run = job_read_history };
    job_put_text(&j, 0, d->ui.filter);
    actions_put(d, d->storage, &j);
}

static void go_to(struct dashboard *d, int view)
{
    d->ui.view = (enum view)((view + VIEW_COUNT) % VIEW_COUNT);
    d->ui.zoomed = false;
    const enum view v = d->ui.view; /* out of the database, where other commands write, too */
    if (v == VIEW_HISTORY || v == VIEW_QUALITY || v == VIEW_LOAD) actions_read_runs(d);
}

static void do_back(struct dashboard *d)
{
    d->ui.toast[0] = '\0';
    if (d->ui.zoomed) {
        d->ui.zoomed = false;
    } else if (d->ui.pane[d->ui.view]) {
        d->ui.pane[d->ui.view] = 0;
    } else if (d->ui.view == VIEW_HISTORY && d->ui.filter[0]) {
        d->ui.filter[0] = '\0';
        actions_read_runs(d);
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
    if (preferences_write(&path, &(struct preferences){ .theme = d->theme_named, .mouse = d->ui.mouse },
                          &why))
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

static void move_focus(struct dashboard *d, int by)
{
    int *pane = &d->ui.pane[d->ui.view];
    const int n = pane_count(d->ui.view);
    *pane = *pane ? (*pane - 1 + by + n) % n + 1 : by > 0 ? 1 : n;
    dashboard_toast(d, false, "%s: z %s", pane_name(d->ui.view, *pane - 1),
                    d->ui.zoomed ? "brings the others back" : "lets it fill the screen");
}

static void do_zoom(struct dashboard *d)
{
    int *pane = &d->ui.pane[d->ui.view];
    if (!*pane) *pane = 1;
    d->ui.zoomed = !d->ui.zoomed;
    if (d->ui.zoomed)
        dashboard_toast(d, false, "%s fills the screen: z brings the others back, Tab shows the next",
                        pane_name(d->ui.view, *pane - 1));
}

static void act(struct dashboard *d, enum action action)
{
    static void (*const DOERS[ACTION_COUNT])(struct dashboard *) = {
        [DO_NEW_AB] = actions_do_new_ab,
        [DO_MARK] = actions_do_mark,
        [DO_SORT] = actions_do_sort,
        [DO_COMPARE] = actions_do_compare,
        [DO_VERIFY] = actions_do_verify,
        [DO_APPLY] = actions_do_apply,
        [DO_BASELINE] = actions_do_baseline,
        [DO_REPORT] = actions_do_report,
        [DO_QUANTIZE] = actions_do_quantize,
        [DO_CALIBRATE] = actions_do_calibrate,
        [DO_TUNE] = actions_do_tune,
        [DO_COPY] = actions_do_copy,
        [DO_OUTPUT] = actions_do_output,
        [DO_STOP] = actions_do_stop,
        [DO_WRITE] = actions_do_write,
        [DO_ZOOM] = do_zoom,
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
    if (action >= DO_VIEW_LIVE && action <= DO_VIEW_WRITE) go_to(d, (int)action - DO_VIEW_LIVE);
    if (DOERS[action]) DOERS[action](d);
    switch (action) {
    case DO_NEXT_VIEW: go_to(d, (int)d->ui.view + 1); break;
    case DO_PREVIOUS_VIEW: go_to(d, (int)d->ui.view - 1); break;
    case DO_NEXT_PANE: move_focus(d, 1); break;
    case DO_PREVIOUS_PANE: move_focus(d, -1); break;
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
    case DO_SUSPEND: dashboard_suspend(d); break;
    default: break;
    }
}

/* ---------------------------------------------------------------- keys */

/* Do it, or say why not. */
void actions_do_or_refuse(struct dashboard *d, const struct key_binding *k)
{
    char why[300];
    if (action_refusal(k->action, &d->ui, d->s, why, sizeof why)[0]) {
        dashboard_toast(d, true, "%s: %s", k->name, why);
        return;
    }
    d->ui.toast[0] = '\0';
    act(d, k->action);
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

/* A page moves under the keys that move anywhere; others close it. */
static void key_in_page(struct dashboard *d, int key)
{
    enum { FAST = 10, SIDE = 8 };
    struct ui *u = &d->ui;
    const struct key_binding *k = key_find(key);
    switch (k ? k->action : DO_NOTHING) {
    case DO_DOWN: u->page_row++; break;
    case DO_UP: u->page_row--; break;
    case DO_PAGE_DOWN: u->page_row += FAST; break;
    case DO_PAGE_UP: u->page_row -= FAST; break;
    case DO_FIRST: u->page_row = u->page_column = 0; break;
    case DO_LAST: u->page_row = PAGE_LINES; break;
    case DO_NEXT_VIEW: u->page_column += SIDE; break;
    case DO_PREVIOUS_VIEW: u->page_column -= SIDE; break;
    case DO_REDRAW:
        if (d->screen) screen_redraw(d->screen);
        break;
    default: u->page = false;
    }
    u->page_row = MAX(MIN(u->page_row, d->s->page.count - 1), 0);
    u->page_column = MAX(MIN(u->page_column, text_page_columns(&d->s->page) - SIDE), 0);
}

void dashboard_key(struct dashboard *d, int key)
{
    if (key == UI_CTRL('z')) { /* wherever one is: the shell is wanted */
        dashboard_suspend(d);
        return;
    }
    if (d->ui.question.text[0]) {
        if (key == 'y' || key == 'Y')
            actions_answer(d, true);
        else if (key == 'n' || key == 'N' || key == UI_KEY_ESC || key == UI_CTRL('c'))
            actions_answer(d, false);
        else
            dashboard_toast(d, true, "first the question: y or n");
        return;
    }
    if (d->ui.confirm_quit) {
        d->ui.confirm_quit = false;
        if (key != 'y' && key != 'Y' && key != UI_KEY_ENTER) return;
        if (d->experiment) experiment_stop(d->experiment);
        d->leaving = true;
        if (dashboard_is_running(d)) dashboard_toast(d, false, "stopping the experiment");
        return;
    }
    if (d->ui.form.kind != FORM_CLOSED) {
        actions_key_in_form(d, key);
        return;
    }
    if (d->ui.help) {
        key_in_help(d, key);
        return;
    }
    if (d->ui.page) {
        key_in_page(d, key);
        return;
    }
    const struct key_binding *k = key_find(key);
    if (!k) {
        dashboard_toast(d, true, "that key does nothing here: ? shows the ones that do");
    } else {
        actions_do_or_refuse(d, k);
    }
}

/* A row is chosen by the first click and opened by the second. */
static void click_row(struct dashboard *d, int row)
{
    int *at = &d->ui.selected[d->ui.view];
    if (*at == row)
        actions_do_or_refuse(d, key_of_action(DO_OPEN));
    else
        *at = row;
    ui_clamp(&d->ui, d->s);
}

void dashboard_click(struct dashboard *d, struct hit hit)
{
    if (d->ui.confirm_quit || d->ui.question.text[0]) return;
    switch (hit.kind) {
    case HIT_NOTHING: break;
    case HIT_ACTION: actions_do_or_refuse(d, key_of_action((enum action)hit.what)); break;
    case HIT_ROW: click_row(d, hit.what); break;
    case HIT_FIELD:
        d->ui.form.focus = hit.what;
        d->ui.form.chosen = -1;
        break;
    case HIT_PANE: d->ui.pane[d->ui.view] = hit.what + 1; break;
    case HIT_ENTRY: actions_choose(d, hit.what); break;
    case HIT_CLOSE:
        d->ui.help = d->ui.page = false;
        form_hide(&d->ui.form);
        break;
    }
}
