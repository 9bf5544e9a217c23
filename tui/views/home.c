/* tui/views/home.c - the first screen, before anything was measured since the start: what to do next, what is
 * in use, what was interrupted, what waits, and the last runs of this model on this machine. */
#include "tui/views/parts.h"

#include <string.h>

#include "base/cut/cut.h"

/* The name of a key, and what it does; a click does it, too. */
static void put_step(struct pen *p, enum action action, unsigned style, const char *text)
{
    const int from = p->x;
    pen_put(p, ROLE_KEY | STYLE_BOLD, key_of_action(action)->name);
    pen_printf(p, style, ": %s", text);
    grid_hit(p->g,
             (struct rect){ p->area.x + from, p->area.y + p->y, MAX(MIN(p->x, p->area.w) - from, 0), 1 },
             HIT_ACTION, (int)action);
    pen_put(p, ROLE_TEXT, "   ");
}

static void draw_resume(struct grid *g, struct rect in, int row, const struct stopped_run *r,
                        const char *what)
{
    char text[400];
    struct pen p = pen_at(g, in, 0, row);
    text_cutf(text, sizeof text, "%s the %s that %s (run %lld, %s, %s)", r->undecided ? "continue" : "resume",
              what,
              r->undecided                   ? "ended undecided"
              : !strcmp(r->state, "stopped") ? "was stopped"
                                             : "was interrupted",
              (long long)r->id, figure_date(r->started_ms).text, r->model);
    put_step(&p, DO_RESUME, ROLE_TEXT, text);
}

/* What runs of this model use, since when, and why. */
static void draw_applied(struct grid *g, struct rect in, int row, const struct snapshot *s,
                         const struct ui *u)
{
    enum { UNDO = 12 };
    char text[900], line[200];
    struct pen p = pen_at(g, in, 0, row);
    text_shorten(s->applied, NULL, 0, MAX(in.w / 2, 10), line, sizeof line);
    snprintf(text, sizeof text, "in use: %s%s%s%.10s%s%s", line,
             *s->applied_load ? " (found on a busy machine)" : "", *s->applied_when ? ", since " : "",
             s->applied_when, *s->applied_because ? ", " : "", s->applied_because);
    pen_field(&p, MAX(in.w - UNDO, 8), ROLE_TEXT, text);
    pen_put(&p, ROLE_TEXT, "  ");
    if (!u->read_only) put_step(&p, DO_UNDO, ROLE_TEXT, "undo");
}

static void draw_waiting(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    char text[300];
    struct pen p = pen_at(g, in, 0, row);
    char next[LIST_CELL];
    text_cutf(text, sizeof text, "%d job%s in the queue, next: %s", s->queued, str_plural(s->queued),
              words_shown(&s->queue[0].command, 1, next, sizeof next));
    put_step(&p, DO_VIEW_JOBS, ROLE_TEXT, text);
}

/* "12  11-21 10:46  ▲ better  B (q4_0) is 58 % faster at decoding ..." in `rows` rows. */
static void draw_recent(struct grid *g, struct rect in, int row, int rows, const struct recent_run *r)
{
    enum { HEAD = 35 };
    const struct mark m = run_mark(&r->line);
    struct pen p = pen_at(g, in, 0, row);
    pen_printf(&p, ROLE_DIM, "%5lld  %s  ", (long long)r->line.id, figure_date(r->line.started_ms).text);
    pen_printf(&p, (unsigned)m.role, "%s %s", m.glyph, m.word);
    struct rect text = { in.x + HEAD, in.y + row, MAX(in.w - HEAD, 0), rows };
    struct pen one = pen_at(g, text, 0, 0);
    if (rows > 1)
        grid_wrap(g, text, ROLE_TEXT, r->text);
    else
        pen_field(&one, text.w, ROLE_TEXT, r->text);
}

/* What can be started, and continued. Returns the next free row. */
static int draw_steps(struct grid *g, struct rect in, const struct snapshot *s)
{
    int row = 0;
    struct pen p = pen_at(g, in, 0, row++);
    put_step(&p, DO_TUNE, ROLE_TEXT | STYLE_BOLD, "find the best setting for this model");
    const bool wide = pen_left(&p) >= 32;
    if (!wide) p = pen_at(g, in, 0, row++);
    char compare[160] = "compare two configurations";
    if (!wide)
        text_cutf(compare, sizeof compare, "compare two: A default, B %s", proposed_line(s, "default"));
    put_step(&p, DO_NEW_AB, ROLE_TEXT, compare);
    const bool tune = s->stopped_tune.id > s->stopped_ab.id;
    if (s->stopped_tune.id || s->stopped_ab.id)
        draw_resume(g, in, row++, tune ? &s->stopped_tune : &s->stopped_ab, tune ? "search" : "A/B");
    return row;
}

void draw_home(struct grid *g, struct rect in, const struct snapshot *s, const struct ui *u)
{
    int row = u->read_only ? 0 : draw_steps(g, in, s);
    if (u->read_only)
        row += grid_wrap(g, in, ROLE_DIM, "Started with --read-only: nothing is measured or changed here.");
    if (s->applied[0]) draw_applied(g, in, row++, s, u);
    if (s->queued) draw_waiting(g, in, row++, s);
    if (!s->recent_count) {
        grid_wrap(
            g, rect_rows(in, row, in.h - row), ROLE_DIM,
            "Each measures on this machine and reports which is faster, by how much, and how certain that is.");
        return;
    }
    const int each = MAX(MIN((in.h - row) / s->recent_count, 3), 1);
    for (int i = 0; i < s->recent_count && row < in.h; i++, row += each)
        draw_recent(g, in, row, MIN(each, in.h - row), &s->recent[i]);
}
