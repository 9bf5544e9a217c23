/* tui/views/chrome.c - the lines around every view: title, status line, footer; and the order in which
 * overlays are drawn. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"

/* To add a view: a value in enum view and its panes (frame.h), a layout (layout.c), a function in a file of
 * its own (declared in parts.h), a row here, and a key with DO_VIEW_* (tui/forms/keys.c). */
const struct view_row VIEWS[VIEW_COUNT] = {
    [VIEW_LIVE] = { "live", view_live },       [VIEW_AB] = { "A/B", view_ab },
    [VIEW_ADVICE] = { "advice", view_advice }, [VIEW_HISTORY] = { "history", view_history },
    [VIEW_MODEL] = { "model", view_model },    [VIEW_QUALITY] = { "quality", view_quality },
    [VIEW_LOAD] = { "load", view_load },       [VIEW_SETTINGS] = { "settings", view_settings },
    [VIEW_LOG] = { "log", view_log },          [VIEW_WRITE] = { "write", view_write },
    [VIEW_TUNE] = { "tune", view_tune },       [VIEW_JOBS] = { "queue", view_jobs },
};

enum { TITLE_PART = 1024 };

static void draw_too_small(struct grid *g, const struct snapshot *s, const struct ui *u)
{
    char text[256];
    struct rect all = grid_area(g);
    if (u->confirm_quit)
        snprintf(text, sizeof text, "%s  y yes  n no", ui_quit_question(s));
    else
        snprintf(text, sizeof text, "qdyno needs %dx%d and has %dx%d; q quits", VIEW_MIN_W, VIEW_MIN_H, g->w,
                 g->h);
    grid_wrap(g, all.h > 6 ? rect_rows(all, all.h / 2 - 2, all.h) : all, ROLE_WARN, text);
}

static void running_state(const struct experiment_state *x, struct mark m, char *buf, size_t size)
{
    const bool paused = x->pausing || x->paused_since_ms;
    const bool in_block = x->phase >= PHASE_CONTROL && x->phase <= PHASE_CONFIRM && x->block >= 0;
    int n = snprintf(buf, size, "%s %s", m.glyph, x->phase == PHASE_BLOCKS && !paused ? "A/B" : m.word);
    if (in_block && n < (int)size)
        n += snprintf(buf + n, size - (size_t)n, "  block %d", x->block + 1);
    else if (x->phase == PHASE_QUALITY && x->cell_of > 0 && n < (int)size)
        n += snprintf(buf + n, size - (size_t)n, " %d/%d", x->cell_done, x->cell_of);
    if (isfinite(x->eta_s) && !paused && n < (int)size)
        snprintf(buf + n, size - (size_t)n, "  ETA %s", figure_duration(x->eta_s).text);
}

/* "● quantize 42%", or the running time if the command reports no progress. */
static void command_state(const struct snapshot *s, char *buf, size_t size)
{
    const bool known = s->task_known && isfinite(s->task.done);
    snprintf(buf, size, "● %.16s %s", words_at(&s->command, 1),
             known ? figure_percent(s->task.done).text
                   : figure_duration((double)(s->unix_ms - s->command_started_ms) * 1e-3).text);
}

static void title_state(const struct snapshot *s, char *buf, size_t size)
{
    const struct experiment_state *x = &s->experiment;
    struct mark m = phase_mark(s);
    if (snapshot_is_running(s))
        running_state(x, m, buf, size);
    else if (s->command.n)
        command_state(s, buf, size);
    else if (s->write_known && s->write.running)
        snprintf(buf, size, "● writing");
    else if (s->experiment_known && !s->experiment_live)
        snprintf(buf, size, "○ idle");
    else if (s->experiment_known && x->phase == PHASE_DONE)
        snprintf(buf, size, "%s A/B done: %s %s", m.glyph, verdict_mark(x->verdict).glyph,
                 verdict_mark(x->verdict).word);
    else
        snprintf(buf, size, "%s %s", m.glyph, m.word);
}

/* What the title says: where a model runs, the model, and what it does. */
struct title {
    char place[TITLE_PART], model[TITLE_PART], state[TITLE_PART];
    enum role role; /* of the state */
};

static void title_of_machine(struct title *t, const struct snapshot *s)
{
    title_state(s, t->state, sizeof t->state);
    t->role = phase_mark(s).role;
    if (s->machine_known) machine_short(&s->machine, t->place, sizeof t->place);
    const char *slash = strrchr(s->model_path, '/');
    snprintf(t->model, sizeof t->model, "no model");
    if (s->model_path[0])
        snprintf(t->model, sizeof t->model, "%s %s", slash ? slash + 1 : s->model_path,
                 quantization_short(&s->model));
    if (s->model_path[0] && s->applied[0]) {
        const size_t n = strlen(t->model);
        snprintf(t->model + n, sizeof t->model - n, " → %s%s", s->applied,
                 *s->applied_load ? " (found busy)" : "");
    }
}

static void title_of_server(struct title *t, const struct snapshot *s)
{
    const struct server_watch *w = &s->server;
    const int running = w->live.running, waiting = w->live.waiting;
    static const char PLAIN[] = "http://";
    snprintf(t->place, sizeof t->place, "server %s",
             str_starts(w->url, PLAIN) ? w->url + strlen(PLAIN) : w->url);
    snprintf(t->model, sizeof t->model, "%s", w->model);
    t->role = ROLE_DIM;
    if (w->error[0]) {
        t->role = ROLE_ERROR;
        snprintf(t->state, sizeof t->state, "✕ no answer");
    } else if (!w->known) {
        snprintf(t->state, sizeof t->state, "○ reading");
    } else if (strcmp(w->status, "ok") != 0) {
        t->role = ROLE_WARN;
        snprintf(t->state, sizeof t->state, "● %s", w->status);
    } else if (running || waiting) {
        t->role = ROLE_TITLE;
        const int n = snprintf(t->state, sizeof t->state, "● %d running", running);
        if (waiting) snprintf(t->state + n, sizeof t->state - (size_t)n, ", %d waiting", waiting);
    } else {
        snprintf(t->state, sizeof t->state, "○ idle");
    }
}

/* The view of a server is about that server and its model; the others are about this machine and the model
 * that was opened here. */
static void draw_title(struct grid *g, struct rect row, const struct snapshot *s, const struct ui *u)
{
    struct title t = { .place = "", .model = "", .state = "" };
    if (u->view == VIEW_LOAD && s->load_source == LOAD_OF_SERVER)
        title_of_server(&t, s);
    else
        title_of_machine(&t, s);
    struct pen p = pen_at(g, row, 0, 0);
    pen_put(&p, ROLE_TITLE | STYLE_BOLD, " qdyno  ");
    int room = MAX(row.w - p.x - text_columns(t.state) - 3, 0);
    int for_model = MIN(text_columns(t.model), room * 65 / 100);
    int for_place = MIN(text_columns(t.place), room - for_model - 2);
    pen_field(&p, for_place, ROLE_TEXT, t.place);
    if (for_place > 0) pen_put(&p, ROLE_TEXT, "  ");
    pen_field(&p, for_model, ROLE_TEXT | STYLE_BOLD, t.model);
    p.x = row.w - text_columns(t.state) - 1;
    pen_put(&p, t.role, t.state);
}

/* The running command: what it does, a progress bar, its rate, the time left. */
static void draw_task(struct pen *p, const struct snapshot *s)
{
    enum { BAR = 12, TAIL = 66 };
    const struct task_progress *t = &s->task;
    const bool known = s->task_known && isfinite(t->done);
    char name[LIST_CELL];
    if (s->task_known && t->text[0] && !known)
        snprintf(name, sizeof name, "%s", t->text);
    else
        words_shown(&s->command, 1, name, sizeof name);
    pen_put(p, ROLE_TITLE, "● ");
    pen_field(p, MIN(text_columns(name), MAX(pen_left(p) - TAIL, 12)), ROLE_TEXT, name);
    pen_put(p, ROLE_TEXT, "  ");
    if (known) {
        pen_meter(p, BAR, t->done, ROLE_METER);
        pen_printf(p, ROLE_TEXT, " %.0f%%", t->done * 100);
        if (isfinite(t->rate) && t->rate > 0)
            pen_printf(p, ROLE_DIM, "  %s%s %s",
                       figure_number(t->rate >= 1e6 ? t->rate * 1e-6 : t->rate).text,
                       t->rate >= 1e6 ? "M" : "", t->unit);
        if (isfinite(t->left_s)) pen_printf(p, ROLE_TEXT, "  ETA %s", figure_duration(t->left_s).text);
    } else {
        pen_put(p, ROLE_DIM, figure_duration((double)(s->unix_ms - s->command_started_ms) * 1e-3).text);
    }
    pen_put(p, ROLE_KEY | STYLE_BOLD, s->task_cancelled ? "" : "  s");
    pen_put(p, ROLE_TEXT, s->task_cancelled ? "  stopping" : " stops");
}

static void draw_status(struct grid *g, struct rect row, const struct snapshot *s, const struct ui *u)
{
    char text[1200], cost[96];
    int n = snprintf(cost, sizeof cost, "own cost %s", figure_percent(s->own_cost_ratio).text);
    if (s->spool_count > 0 && n < (int)sizeof cost)
        snprintf(cost + n, sizeof cost - (size_t)n, "  %d to push", s->spool_count);
    struct pen p = pen_at(g, row, 1, 0);
    int room = row.w - 4 - text_columns(cost);
    if (u->confirm_quit) {
        pen_printf(&p, ROLE_WARN | STYLE_BOLD, "%s  y yes  n no", ui_quit_question(s));
        return;
    }
    if (u->message[0] && s->unix_ms < u->message_until_ms) {
        pen_field(&p, row.w - 2, u->message_is_error ? ROLE_WARN | STYLE_BOLD : ROLE_TEXT | STYLE_BOLD,
                  u->message);
        return;
    }
    if (s->command.n && !snapshot_is_running(s) && u->form.kind == FORM_CLOSED) {
        draw_task(&p, s);
        return;
    }
    screen_command_shown(u, s, text, sizeof text);
    if (text[0]) {
        pen_put(&p, ROLE_DIM, "$ ");
        pen_field(&p, room - 2, ROLE_DIM, text);
    }
    p.x = row.w - 1 - text_columns(cost);
    pen_put(&p, ROLE_DIM, cost);
}

/* A narrow footer uses brief labels and leaves out keys that do nothing now. The narrowest shows of the other
 * views only their keys. */
static bool footer_is_narrow(int columns)
{
    return columns < 130;
}

enum { NUMBERS_ONLY = 80 }; /* columns: fewer show of the other views only their keys, 1 to 9 */

static const char *footer_label(const struct key_binding *k, int columns, bool current)
{
    const bool numbered = k->name[0] >= '0' && k->name[0] <= '9';
    if (columns < NUMBERS_ONLY && numbered && !current) return "";
    return footer_is_narrow(columns) && k->brief ? k->brief : k->label;
}

static int footer_gap(int columns)
{
    return columns < 100 ? 1 : 2;
}

static void footer_item(struct pen *p, const struct key_binding *k, bool current, bool refused)
{
    const int from = p->x;
    pen_put(p, refused ? ROLE_DIM : (unsigned)ROLE_KEY | STYLE_BOLD, k->name);
    const char *label = footer_label(k, p->area.w, current);
    if (*label) pen_put(p, ROLE_TEXT, " ");
    pen_put(p,
            current   ? ROLE_TEXT | STYLE_REVERSE
            : refused ? (unsigned)ROLE_DIM
                      : (unsigned)ROLE_TEXT,
            label);
    grid_hit(p->g, (struct rect){ p->area.x + from, p->area.y, p->x - from, 1 }, HIT_ACTION, (int)k->action);
    p->x += footer_gap(p->area.w);
}

static int footer_columns(const struct key_binding *k, int columns, bool current)
{
    const int label = text_columns(footer_label(k, columns, current));
    return text_columns(k->name) + (label ? 1 + label : 0) + footer_gap(columns);
}

static void draw_footer(struct grid *g, struct rect row, const struct snapshot *s, const struct ui *u)
{
    const struct key_binding *help = key_of_action(DO_HELP), *quit = key_of_action(DO_QUIT);
    int end = footer_columns(help, row.w, false) + footer_columns(quit, row.w, false) - 1;
    struct pen p = pen_at(g, row, 1, 0);
    for (size_t i = 0; i < KEY_COUNT; i++) {
        const struct key_binding *k = &KEYS[i];
        if (!k->label || k == help || k == quit) continue;
        bool refused = action_refusal(k->action, u, s)[0] != '\0';
        /* Of stop, resume and pause show only those that are possible now. */
        if (refused && (k->action == DO_STOP || k->action == DO_RESUME || k->action == DO_PAUSE)) continue;
        if (refused && (footer_is_narrow(row.w) || refused_by_read_only(k->action, u, s))) continue;
        const bool current = action_view(k->action) == (int)u->view ||
                             (k->action == DO_TUNE && u->view == VIEW_TUNE);
        /* Away from the other numbers, a 0 without its label is a riddle. */
        if (k->action == DO_VIEW_WRITE && row.w < NUMBERS_ONLY && !current) continue;
        if (p.x + footer_columns(k, row.w, current) > row.w - end) continue;
        footer_item(&p, k, current, refused);
    }
    p.x = MAX(row.w - end, p.x);
    footer_item(&p, help, u->help, false);
    footer_item(&p, quit, false, false);
}

/* ---------------------------------------------------------------- the whole frame */

/* The view in its part of the body. Where one pane is shown at a time, a row above it names all of them;
 * while the view has none (nothing was measured yet), it gets that row, too. */
static struct rect draw_view(struct grid *g, struct rect body, bool single, const struct snapshot *s,
                             const struct ui *u)
{
    if (single && pane_count(u->view, s) > 1) {
        const struct rect view = rect_rows(body, 1, body.h - 1);
        VIEWS[u->view].draw(g, view, s, u);
        if (panes_tabs(g, rect_rows(body, 0, 1), s, u)) return view;
        grid_clear(g);
    }
    VIEWS[u->view].draw(g, body, s, u);
    return body;
}

void view_draw(struct grid *g, const struct snapshot *s, const struct ui *u)
{
    grid_clear(g);
    struct layout l = layout_frame(g->w, g->h);
    if (l.too_small) {
        draw_too_small(g, s, u);
        return;
    }
    const int busy = busy_rows(s, u);
    const struct rect view = draw_view(g, rect_rows(l.body, 0, l.body.h - busy), l.single, s, u);
    draw_title(g, l.title, s, u);
    if (busy) draw_busy(g, rect_rows(l.body, l.body.h - busy, busy), s, u);
    panes_mark(g, u);
    view_keys(g, view, s, u);
    draw_status(g, l.status, s, u);
    draw_footer(g, l.footer, s, u);
    if (u->form.kind == FORM_PALETTE)
        view_palette(g, l.body, u);
    else if (u->form.kind == FORM_FILTER)
        view_filter(g, l.status, s, u);
    else if (u->form.kind != FORM_CLOSED)
        view_form(g, l.body, s, u);
    if (u->page && u->form.kind == FORM_CLOSED) view_page(g, l.body, s, u);
    if (u->help) view_help(g, l.body, s, u);
    if (u->explains) view_explanation(g, l.body, s, u);
    if (u->question.text[0]) view_question(g, l.body, u);
}
