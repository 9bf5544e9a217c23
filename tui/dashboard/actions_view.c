/* tui/dashboard/actions_view.c - moving between and within views; mouse, theme, and leaving. */
#include "tui/dashboard/actions.h"

struct effect action_read_history(void)
{
    return effect_job(QUEUE_DATABASE, job_read_history, NULL);
}

/* ---------------------------------------------------------------- views and panes */

struct effect action_show_view(struct ui *ui, int view)
{
    ui->view = (enum view)((view + VIEW_COUNT) % VIEW_COUNT);
    ui->opened_from[ui->view] = 0;
    ui->zoomed = false;
    /* Other processes write to the same database, so the file may hold newer results. */
    const bool from_database = ui->view == VIEW_HISTORY || ui->view == VIEW_QUALITY || ui->view == VIEW_LOAD;
    return from_database ? action_read_history() : effect_none();
}

void action_enter_view(struct ui *ui, enum view view)
{
    if (view == ui->view) return;
    ui->opened_from[view] = (int)ui->view + 1;
    ui->view = view;
    ui->zoomed = false;
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

static struct effect focus_move(struct ui *ui, const struct snapshot *s, int by)
{
    int *pane = &ui->pane[ui->view];
    const int n = pane_count(ui->view, s);
    *pane = *pane ? (*pane - 1 + by + n) % n + 1 : by > 0 ? 1 : n;
    return effect_message("%s pane (%d of %d)%s", pane_name(ui->view, *pane - 1), *pane, n,
                          ui->zoomed ? ": z shows all panes again" : "");
}

struct effect action_next_pane(struct ui *ui, const struct snapshot *s)
{
    return focus_move(ui, s, 1);
}

struct effect action_previous_pane(struct ui *ui, const struct snapshot *s)
{
    return focus_move(ui, s, -1);
}

struct effect action_zoom(struct ui *ui, const struct snapshot *s)
{
    int *pane = &ui->pane[ui->view];
    if (!*pane || *pane > pane_count(ui->view, s)) *pane = 1;
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

struct effect action_move(struct ui *ui, const struct snapshot *s, int rows)
{
    ui_clamp(ui, s);
    ui->selected[ui->view] = MAX(ui->selected[ui->view] + rows, 0);
    ui_clamp(ui, s);
    return effect_none();
}

/* One step back: zoom, then focus, then the filter, then the view. */
struct effect action_back(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    const int from = ui->opened_from[ui->view];
    if (ui->zoomed) {
        ui->zoomed = false;
    } else if (ui->pane[ui->view]) {
        ui->pane[ui->view] = 0;
    } else if (*list_filter(ui)) {
        return action_clear_filter(ui);
    } else {
        ui->opened_from[ui->view] = 0;
        ui->view = from ? (enum view)(from - 1) : VIEW_LIVE;
    }
    return effect_none();
}

/* ---------------------------------------------------------------- lists */

/* The filter is typed in the lowest line of the screen and takes effect with each letter. */
struct effect action_filter(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    form_show(&ui->form, FORM_FILTER, (const char *const[FORM_FIELDS]){ list_filter(ui) });
    return effect_none();
}

void action_typed_filter(struct ui *ui)
{
    struct list_state *l = &ui->list[ui->view];
    snprintf(l->filter, sizeof l->filter, "%.63s", ui->form.field[0].text);
    l->key_row = -1;
}

/* The database searches all runs of the history, also those that were not read. */
struct effect action_accept_filter(struct ui *ui)
{
    if (ui->view != VIEW_HISTORY) return effect_none();
    snprintf(ui->filter, sizeof ui->filter, "%.63s", ui->form.field[0].text);
    ui->list[VIEW_HISTORY].filter[0] = '\0';
    return action_read_history();
}

struct effect action_clear_filter(struct ui *ui)
{
    const bool database = ui->view == VIEW_HISTORY && ui->filter[0];
    ui->list[ui->view].filter[0] = '\0';
    ui->list[ui->view].key_row = -1;
    if (!database) return effect_none();
    ui->filter[0] = '\0';
    return action_read_history();
}

static struct effect sorted_message(const struct ui *ui, const char *title)
{
    const struct list_state *l = &ui->list[ui->view];
    if (!*title) return effect_message("in the list's own order");
    return effect_message("sorted by %s%s", title, l->reversed ? ", reversed" : "");
}

struct effect action_sort(struct ui *ui, const struct snapshot *s)
{
    ui_clamp(ui, s);
    const char *title = list_sort_next(ui);
    ui_clamp(ui, s);
    return sorted_message(ui, title);
}

struct effect action_reverse(struct ui *ui, const struct snapshot *s)
{
    struct list_state *l = &ui->list[ui->view];
    ui_clamp(ui, s);
    l->reversed = !l->reversed;
    l->key_row = -1;
    ui_clamp(ui, s);
    return effect_message(l->reversed ? "reversed order" : "order as before");
}

struct effect action_sort_by(struct ui *ui, const struct snapshot *s, int column)
{
    ui_clamp(ui, s);
    const char *title = list_sort_by(ui, column);
    ui_clamp(ui, s);
    return sorted_message(ui, title);
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

struct effect action_quit(struct ui *ui, const struct snapshot *s)
{
    if (!snapshot_is_running(s) && !s->command.n && !s->queued) return effect_request(REQUEST_QUIT);
    ui->confirm_quit = true;
    return effect_none();
}
