/* tui/views/view_keys.c - the keys that only one view has, on the lower edge of its last box. The footer
 * shows the keys that work everywhere. */
#include "tui/views/parts.h"

enum { KEYS_PER_VIEW = 10, LINE = 0x2500 };

struct view_key {
    enum action action;
    const char *word;
    bool if_possible; /* left out where it would do nothing, instead of dimmed */
};
/* clang-format off */
static const struct view_key VIEW_KEYS[VIEW_COUNT][KEYS_PER_VIEW] = {
    [VIEW_LIVE] = { { DO_MODEL, "model", false }, { DO_TUNE, "tune", false },
        { DO_QUANTIZE, "quantize", false } },
    [VIEW_AB] = { { DO_DETAILS, "details", false }, { DO_REPORT, "report", false },
        { DO_APPLY, "apply", false }, { DO_BASELINE, "baseline", false }, { DO_PUSH, "push", false },
        { DO_COPY, "copy command", false } },
    [VIEW_ADVICE] = { { DO_VERIFY, "verify", false }, { DO_KERNELS, "time kernels", false },
        { DO_APPLY, "apply", false }, { DO_OPEN, "open as A/B", false }, { DO_TUNE, "tune", false },
        { DO_COPY, "copy command", false } },
    [VIEW_HISTORY] = { { DO_OPEN, "open", false }, { DO_MARK, "mark", false }, { DO_COMPARE, "compare", false },
        { DO_DELETE, "delete", false }, { DO_UNDO, "restore", false }, { DO_REPORT, "report", false },
        { DO_APPLY, "apply", false }, { DO_BASELINE, "baseline", false }, { DO_SORT, "sort", false },
        { DO_FILTER, "filter", false } },
    [VIEW_MODEL] = { { DO_MODEL, "choose", false }, { DO_QUANTIZE, "quantize", false },
        { DO_CALIBRATE, "calibrate", false } },
    [VIEW_QUALITY] = { { DO_MODEL_TEXT, "text", false }, { DO_OPEN, "details", false },
        { DO_COPY, "copy command", false } },
    [VIEW_LOAD] = { { DO_EARLIER, "more", true }, { DO_LATER, "less", true },
        { DO_SCHEDULE, "next schedule", true }, { DO_LOAD_SETTING, "setting", true } },
    [VIEW_TUNE] = { { DO_TUNE, "start", false }, { DO_STOP, "good enough, stop", true },
        { DO_VIEW_JOBS, "queue", true }, { DO_RESUME, "resume", true }, { DO_OPEN, "use it", true },
        { DO_UNDO, "undo", true }, { DO_SORT, "sort", true }, { DO_FILTER, "filter", true } },
    [VIEW_JOBS] = { { DO_OPEN, "details", false }, { DO_DELETE, "remove", false },
        { DO_EARLIER, "earlier", false }, { DO_LATER, "later", false }, { DO_UNDO, "undo", false } },
    [VIEW_LOG] = { { DO_OUTPUT, "last output", false }, { DO_COPY, "copy command", false } },
};
/* clang-format on */

/* In the search, Enter is about the row that a person selected, otherwise about the result. */
static const char *key_word(const struct view_key *k, const struct snapshot *s, const struct ui *u)
{
    return k->action == DO_OPEN && tune_row_opened(u, s) ? "details" : k->word;
}

static int view_key_columns(const struct view_key *k, const struct snapshot *s, const struct ui *u)
{
    return text_columns(key_of_action(k->action)->name) + 1 + text_columns(key_word(k, s, u)) + 2;
}

/* The straight part of the border at the right end of the lowest row: columns [*from, *to). */
static void free_edge(const struct grid *g, struct rect body, int *from, int *to)
{
    const int y = body.y + body.h - 1;
    int x = body.x + body.w - 1;
    while (x > body.x && g->cells[y * g->w + x].code != LINE) x--;
    *to = x;
    while (x > body.x && g->cells[y * g->w + x].code == LINE) x--;
    *from = x + 2;
}

/* While a search runs, t only shows it; and s stops what runs, which may be something else. */
static bool key_left_out(const struct view_key *k, const struct snapshot *s, const struct ui *u)
{
    if (u->view == VIEW_TUNE && k->action == DO_TUNE && s->tune.running) return true;
    if (u->view == VIEW_TUNE && k->action == DO_STOP && !s->tune.running) return true;
    if (u->view == VIEW_TUNE && k->action == DO_VIEW_JOBS && !s->queued) return true;
    /* what this session never allows is no offer; other keys are dimmed, because they may be possible later
     */
    if (u->read_only && refused_by_read_only(k->action, u, s)) return true;
    return k->if_possible && action_refusal(k->action, u, s)[0] != '\0';
}

static bool key_refused(const struct view_key *k, const struct snapshot *s, const struct ui *u)
{
    return action_refusal(k->action, u, s)[0] != '\0';
}

static void view_key_draw(struct pen *p, const struct view_key *v, const char *word, bool refused)
{
    const struct key_binding *k = key_of_action(v->action);
    const int at = p->x;
    pen_put(p, refused ? ROLE_DIM : (unsigned)ROLE_KEY | STYLE_BOLD, k->name);
    pen_printf(p, refused ? ROLE_DIM : ROLE_TEXT, " %s", word);
    grid_hit(p->g, (struct rect){ p->area.x + at, p->area.y, p->x - at, 1 }, HIT_ACTION, (int)k->action);
}

void view_keys(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    int from, to, used = 1, n = 0;
    const struct view_key *keys = VIEW_KEYS[u->view], *shown[KEYS_PER_VIEW];
    if (body.h < 2 || body.w < 2) return;
    free_edge(g, body, &from, &to);
    for (int i = 0; i < KEYS_PER_VIEW && keys[i].word; i++) {
        if (key_left_out(&keys[i], s, u)) continue;
        if (used + view_key_columns(&keys[i], s, u) > to - from) break;
        used += view_key_columns(&keys[i], s, u);
        shown[n++] = &keys[i];
    }
    if (!n) return;
    struct pen p = pen_at(g, (struct rect){ to - used, body.y + body.h - 1, used, 1 }, 0, 0);
    pen_put(&p, ROLE_TEXT, " ");
    for (int i = 0; i < n; i++) {
        view_key_draw(&p, shown[i], key_word(shown[i], s, u), key_refused(shown[i], s, u));
        pen_put(&p, ROLE_TEXT, i + 1 < n ? "  " : " ");
    }
}
