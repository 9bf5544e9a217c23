/* tui/dashboard/input.c - decides what a key or a click is for: a question, a form, an overlay, or an action.
 */
#include "tui/dashboard/actions.h"

enum { PAGE_ROWS = 10, ALL_ROWS = 1000000 };

/* What an action does: one of these. */
struct action_effect {
    action_fn *act;
    unsigned request; /* REQUEST_* */
    int rows;
};
#define BY_FUNCTION(name, keys, texts, refuse, command, effect) [DO_##name] = { .act = (effect) },
#define BY_VIEW(name, keys, texts, refuse, command, view)
#define BY_REQUEST(name, keys, texts, refuse, command, request_) [DO_##name] = { .request = (request_) },
#define BY_ROWS(name, keys, texts, refuse, command, rows_)       [DO_##name] = { .rows = (rows_) },
static const struct action_effect EFFECTS[ACTION_COUNT] = { ACTION_LIST(BY_FUNCTION, BY_VIEW, BY_REQUEST,
                                                                        BY_ROWS) };
#undef BY_FUNCTION
#undef BY_VIEW
#undef BY_REQUEST
#undef BY_ROWS

struct effect input_action(struct ui *ui, const struct snapshot *s, const struct key_binding *k)
{
    const char *why = action_refusal(k->action, ui, s);
    if (*why) return effect_error("%s: %s", k->name, why);
    ui->message[0] = '\0';
    const int view = action_view(k->action);
    const struct action_effect *e = &EFFECTS[k->action];
    return view >= 0 ? action_show_view(ui, view)
           : e->act  ? e->act(ui, s)
           : e->rows ? action_move(ui, s, e->rows)
                     : effect_request(e->request);
}

/* ---------------------------------------------------------------- keys while something covers the view */

static struct effect question_key(struct ui *ui, const struct snapshot *s, int key)
{
    if (key == 'y' || key == 'Y') return action_answer(ui, s, true);
    if (key == 'n' || key == 'N' || key == UI_KEY_ESC || key == UI_CTRL('c'))
        return action_answer(ui, s, false);
    return effect_error("answer the question first: y or n");
}

static struct effect confirm_quit_key(struct ui *ui, const struct snapshot *s, int key)
{
    ui->confirm_quit = false;
    if (key != 'y' && key != 'Y' && key != UI_KEY_ENTER) return effect_none();
    struct effect e = effect_request(REQUEST_QUIT); /* stops what runs */
    if (snapshot_is_running(s)) snprintf(e.message, sizeof e.message, "stopping the experiment");
    return e;
}

static struct effect help_key(struct ui *ui, int key)
{
    const struct key_binding *k = key_find(key);
    const enum action a = k ? k->action : DO_NOTHING;
    enum { PAGE = 8 };
    if (a == DO_DOWN || a == DO_PAGE_DOWN)
        ui->help_scroll = MIN(ui->help_scroll + (a == DO_DOWN ? 1 : PAGE), (int)KEY_COUNT);
    else if (a == DO_UP || a == DO_PAGE_UP)
        ui->help_scroll = MAX(ui->help_scroll - (a == DO_UP ? 1 : PAGE), 0);
    else
        ui->help = false;
    return effect_none();
}

/* Movement keys scroll the text page; any other key closes it. */
static struct effect page_key(struct ui *ui, const struct snapshot *s, int key)
{
    enum { FAST = 10, SIDE = 8 };
    const struct key_binding *k = key_find(key);
    switch (k ? k->action : DO_NOTHING) {
    case DO_DOWN: ui->page_row++; break;
    case DO_UP: ui->page_row--; break;
    case DO_PAGE_DOWN: ui->page_row += FAST; break;
    case DO_PAGE_UP: ui->page_row -= FAST; break;
    case DO_FIRST: ui->page_row = ui->page_column = 0; break;
    case DO_LAST: ui->page_row = PAGE_LINES; break;
    case DO_NEXT_VIEW: ui->page_column += SIDE; break;
    case DO_PREVIOUS_VIEW: ui->page_column -= SIDE; break;
    case DO_REDRAW: return effect_request(REQUEST_REDRAW);
    default: ui->page = false;
    }
    ui->page_row = MAX(MIN(ui->page_row, s->page.count - 1), 0);
    ui->page_column = MAX(MIN(ui->page_column, text_page_columns(&s->page) - SIDE), 0);
    return effect_none();
}

/* Movement keys scroll what is explained; any other key closes it. */
static struct effect explanation_key(struct ui *ui, int key)
{
    const struct key_binding *k = key_find(key);
    switch (k ? k->action : DO_NOTHING) {
    case DO_DOWN: ui->explains_row++; break;
    case DO_UP: ui->explains_row--; break;
    case DO_PAGE_DOWN: ui->explains_row += 10; break;
    case DO_PAGE_UP: ui->explains_row -= 10; break;
    case DO_REDRAW: return effect_request(REQUEST_REDRAW);
    default: ui->explains = false;
    }
    ui->explains_row = MAX(MIN(ui->explains_row, PAGE_LINES), 0);
    return effect_none();
}

/* ---------------------------------------------------------------- keys and clicks */

struct effect input_key(struct ui *ui, const struct snapshot *s, int key)
{
    if (key == UI_CTRL('z')) return effect_request(REQUEST_SUSPEND); /* works everywhere */
    if (ui->question.text[0]) return question_key(ui, s, key);
    if (ui->confirm_quit) return confirm_quit_key(ui, s, key);
    if (ui->explains) return explanation_key(ui, key);
    if (ui->form.kind != FORM_CLOSED) return action_form_key(ui, s, key);
    if (ui->help) return help_key(ui, key);
    if (ui->page) return page_key(ui, s, key);
    const struct key_binding *k = key_find(key);
    return k ? input_action(ui, s, k) : effect_error("this key has no action: ? lists the keys");
}

/* The first click selects a row, the second opens it. */
static struct effect row_click(struct ui *ui, const struct snapshot *s, int row)
{
    struct effect e = { 0 };
    ui_clamp(ui, s);
    int *selected = &ui->selected[ui->view];
    if (*selected == row) e = input_action(ui, s, key_of_action(DO_OPEN));
    *selected = row;
    ui_clamp(ui, s);
    return e;
}

struct effect input_click(struct ui *ui, const struct snapshot *s, struct hit hit)
{
    if (ui->confirm_quit || ui->question.text[0]) return effect_none();
    switch (hit.kind) {
    case HIT_NOTHING: break;
    case HIT_ACTION: return input_action(ui, s, key_of_action((enum action)hit.what));
    case HIT_ROW: return row_click(ui, s, hit.what);
    case HIT_COLUMN: return action_sort_by(ui, s, hit.what);
    case HIT_FIELD:
        ui->form.focus = hit.what;
        ui->form.chosen = -1;
        break;
    case HIT_TAB:
    case HIT_PANE: ui->pane[ui->view] = hit.what + 1; break;
    case HIT_ENTRY: return action_choose(ui, s, hit.what);
    case HIT_CLOSE:
        ui->help = ui->page = ui->explains = false;
        form_hide(&ui->form);
        break;
    }
    return effect_none();
}
