/* tui/dashboard/actions_view.c - moving between and within views; mouse, theme, and leaving. */
#include "tui/dashboard/actions.h"

struct effect action_read_history(const struct ui *ui)
{
    return effect_job(QUEUE_DATABASE, job_read_history, ui->filter);
}

/* ---------------------------------------------------------------- views and panes */

struct effect action_show_view(struct ui *ui, int view)
{
    ui->view = (enum view)((view + VIEW_COUNT) % VIEW_COUNT);
    ui->zoomed = false;
    /* Other processes write to the same database, so the file may hold newer results. */
    const bool from_database = ui->view == VIEW_HISTORY || ui->view == VIEW_QUALITY || ui->view == VIEW_LOAD;
    return from_database ? action_read_history(ui) : effect_none();
}

struct effect action_next_view(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    return action_show_view(ui, (int)ui->view + 1);
}

struct effect action_previous_view(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    return action_show_view(ui, (int)ui->view - 1);
}

static struct effect focus_move(struct ui *ui, int by)
{
    int *pane = &ui->pane[ui->view];
    const int n = pane_count(ui->view);
    *pane = *pane ? (*pane - 1 + by + n) % n + 1 : by > 0 ? 1 : n;
    return effect_message("%s pane: z %s", pane_name(ui->view, *pane - 1),
                          ui->zoomed ? "shows all panes again" : "fills the screen with it");
}

struct effect action_next_pane(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    return focus_move(ui, 1);
}

struct effect action_previous_pane(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    return focus_move(ui, -1);
}

struct effect action_zoom(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    int *pane = &ui->pane[ui->view];
    if (!*pane) *pane = 1;
    ui->zoomed = !ui->zoomed;
    if (!ui->zoomed) return effect_none();
    return effect_message("%s fills the screen: z shows all panes again, Tab shows the next pane",
                          pane_name(ui->view, *pane - 1));
}

struct effect action_details(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    ui->details = !ui->details;
    return effect_none();
}

/* ---------------------------------------------------------------- rows */

enum { PAGE_ROWS = 10, ALL_ROWS = 1000000 };

/* The log counts lines back from the newest, so there moving up increases the count. */
static struct effect row_move(struct ui *ui, const struct snapshot *s, int rows)
{
    ui->selected[ui->view] += ui->view == VIEW_LOG ? -rows : rows;
    ui_clamp(ui, s);
    return effect_none();
}

struct effect action_up(struct ui *ui, const struct snapshot *s)
{
    return row_move(ui, s, -1);
}

struct effect action_down(struct ui *ui, const struct snapshot *s)
{
    return row_move(ui, s, 1);
}

struct effect action_page_up(struct ui *ui, const struct snapshot *s)
{
    return row_move(ui, s, -PAGE_ROWS);
}

struct effect action_page_down(struct ui *ui, const struct snapshot *s)
{
    return row_move(ui, s, PAGE_ROWS);
}

struct effect action_first(struct ui *ui, const struct snapshot *s)
{
    return row_move(ui, s, -ALL_ROWS);
}

struct effect action_last(struct ui *ui, const struct snapshot *s)
{
    return row_move(ui, s, ALL_ROWS);
}

/* Undo one step: zoom, then focus, then the filter of the history, then the view. */
struct effect action_back(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    if (ui->zoomed) {
        ui->zoomed = false;
    } else if (ui->pane[ui->view]) {
        ui->pane[ui->view] = 0;
    } else if (ui->view == VIEW_HISTORY && ui->filter[0]) {
        ui->filter[0] = '\0';
        return action_read_history(ui);
    } else {
        ui->view = VIEW_LIVE;
    }
    return effect_none();
}

/* ---------------------------------------------------------------- help, palette, looks, leaving */

struct effect action_help(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    ui->help = true;
    ui->help_scroll = 0;
    return effect_none();
}

struct effect action_palette(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    ui->palette_row = 0;
    form_show(&ui->form, FORM_PALETTE, NULL);
    return effect_none();
}

struct effect action_mouse(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    ui->mouse = !ui->mouse;
    struct effect e = effect_message(ui->mouse ? "mouse on: keys in the footer, panes and rows can be clicked"
                                               : "mouse off: the terminal selects text");
    e.requests = REQUEST_SET_MOUSE;
    return e;
}

struct effect action_theme(struct ui *ui, const struct snapshot *s)
{
    (void)ui;
    (void)s;
    return effect_request(REQUEST_NEXT_THEME);
}

struct effect action_save(struct ui *ui, const struct snapshot *s)
{
    (void)ui;
    (void)s;
    return effect_request(REQUEST_SAVE_PREFERENCES);
}

struct effect action_redraw(struct ui *ui, const struct snapshot *s)
{
    (void)ui;
    (void)s;
    return effect_request(REQUEST_REDRAW);
}

struct effect action_suspend(struct ui *ui, const struct snapshot *s)
{
    (void)ui;
    (void)s;
    return effect_request(REQUEST_SUSPEND);
}

struct effect action_quit(struct ui *ui, const struct snapshot *s)
{
    if (!snapshot_is_running(s) && !s->command[0]) return effect_request(REQUEST_QUIT);
    ui->confirm_quit = true;
    return effect_none();
}
