/* tui/views/lists.c - the views that are lists: history, log. */
#include "tui/views/parts.h"

/* ---------------------------------------------------------------- history, log */

void view_history(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    const struct list_view list = {
        .g = g, .box = body, .title = "History", .note = snapshot_caution(s), .s = s, .u = u
    };
    struct rect in = list_draw(&list);
    if (s->run_error[0])
        grid_wrap(g, in, ROLE_ERROR, s->run_error);
    else if (s->run_count <= 0)
        grid_wrap(g, in, ROLE_DIM,
                  s->run_count < 0 ? "reading the database"
                  : u->filter[0]   ? "no run matches: Esc shows all runs"
                                   : "no runs yet: b starts an A/B");
}

void view_jobs(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    const struct list_view list = { .g = g,
                                    .box = body,
                                    .title = "Queue",
                                    .note = s->queued ? "the next job starts when nothing else runs" : NULL,
                                    .s = s,
                                    .u = u };
    struct rect in = list_draw(&list);
    struct queued_job now;
    if (!s->queued && !snapshot_running_job(s, &now))
        grid_wrap(
            g, in, ROLE_DIM,
            "Nothing runs and nothing waits. A/Bs (b), searches (t), quantizations and commands (!) that are "
            "started while something runs wait here and start one after the other.");
}

/* The selected message in full below the list, whose rows are cut at the edge. */
void view_log(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    enum { FULL = 4 };
    const int chosen = list_selected(u, s);
    const struct list_view list = { .g = g,
                                    .box = body,
                                    .title = "Log",
                                    .note = "Enter shows a message alone",
                                    .s = s,
                                    .u = u,
                                    .below = FULL };
    struct rect in = list_draw(&list);
    if (s->log_count == 0) {
        grid_wrap(g, in, ROLE_DIM, "no messages yet");
        return;
    }
    if (chosen < 0) return;
    for (int x = 0; x < in.w; x++) grid_put(g, in, x, 0, 0x2500, ROLE_BORDER);
    grid_wrap(g, rect_rows(in, 1, in.h - 1), ROLE_TEXT, s->log[chosen].text);
}
