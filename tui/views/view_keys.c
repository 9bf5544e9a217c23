/* tui/views/view_keys.c - the keys that only one view has, on the lower edge of its last box. The footer
 * shows the keys that work everywhere. */
#include "tui/views/parts.h"

enum { KEYS_PER_VIEW = 10, LINE = 0x2500 };

struct view_key {
    enum action action;
    const char *word;
    bool if_possible; /* left out where it would do nothing, instead of dimmed */
};
static const struct view_key VIEW_KEYS[VIEW_COUNT][KEYS_PER_VIEW] = {
    [VIEW_LIVE] = { { .action = DO_MODEL, .word = "model" },
                    { .action = DO_TUNE, .word = "tune" },
                    { .action = DO_QUANTIZE, .word = "quantize" } },
    [VIEW_AB] = { { .action = DO_DETAILS, .word = "details" },
                  { .action = DO_REPORT, .word = "report" },
                  { .action = DO_APPLY, .word = "apply" },
                  { .action = DO_BASELINE, .word = "baseline" },
                  { .action = DO_PUSH, .word = "push" },
                  { .action = DO_COPY, .word = "copy command" } },
    [VIEW_ADVICE] = { { .action = DO_VERIFY, .word = "verify" },
                      { .action = DO_KERNELS, .word = "time kernels" },
                      { .action = DO_APPLY, .word = "apply" },
                      { .action = DO_OPEN, .word = "open as A/B" },
                      { .action = DO_TUNE, .word = "tune" },
                      { .action = DO_COPY, .word = "copy command" } },
    [VIEW_HISTORY] = { { .action = DO_OPEN, .word = "open" },
                       { .action = DO_MARK, .word = "mark" },
                       { .action = DO_COMPARE, .word = "compare" },
                       { .action = DO_DELETE, .word = "delete" },
                       { .action = DO_UNDO, .word = "restore" },
                       { .action = DO_REPORT, .word = "report" },
                       { .action = DO_APPLY, .word = "apply" },
                       { .action = DO_BASELINE, .word = "baseline" },
                       { .action = DO_SORT, .word = "sort" },
                       { .action = DO_FILTER, .word = "filter" } },
    [VIEW_MODEL] = { { .action = DO_MODEL, .word = "choose" },
                     { .action = DO_QUANTIZE, .word = "quantize" },
                     { .action = DO_CALIBRATE, .word = "calibrate" } },
    [VIEW_QUALITY] = { { .action = DO_MODEL_TEXT, .word = "text" },
                       { .action = DO_OPEN, .word = "details" },
                       { .action = DO_COPY, .word = "copy command" } },
    [VIEW_LOAD] = { { .action = DO_EARLIER, .word = "more", .if_possible = true },
                    { .action = DO_LATER, .word = "less", .if_possible = true },
                    { .action = DO_SCHEDULE, .word = "next schedule", .if_possible = true },
                    { .action = DO_LOAD_SETTING, .word = "setting", .if_possible = true } },
    [VIEW_TUNE] = { { .action = DO_TUNE, .word = "start" },
                    { .action = DO_STOP, .word = "good enough, stop", .if_possible = true },
                    { .action = DO_VIEW_JOBS, .word = "queue", .if_possible = true },
                    { .action = DO_RESUME, .word = "resume", .if_possible = true },
                    { .action = DO_OPEN, .word = "use it", .if_possible = true },
                    { .action = DO_UNDO, .word = "undo", .if_possible = true },
                    { .action = DO_SORT, .word = "sort", .if_possible = true },
                    { .action = DO_FILTER, .word = "filter", .if_possible = true } },
    [VIEW_JOBS] = { { .action = DO_OPEN, .word = "details" },
                    { .action = DO_DELETE, .word = "remove" },
                    { .action = DO_EARLIER, .word = "earlier" },
                    { .action = DO_LATER, .word = "later" },
                    { .action = DO_UNDO, .word = "undo" } },
    [VIEW_LOG] = { { .action = DO_OUTPUT, .word = "last output" },
                   { .action = DO_COPY, .word = "copy command" } },
};

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
