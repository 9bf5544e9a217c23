/* tui/views/busy.c - two rows on a busy machine: who uses the processors, and what can be done about it. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/run/run.h"

int busy_rows(const struct snapshot *s, const struct ui *u)
{
    const bool starts_here = u->view == VIEW_LIVE && !snapshot_is_running(s) && !s->tune.running;
    if (u->view != VIEW_AB && u->view != VIEW_TUNE && !starts_here) return 0;
    return s->busy.is_busy || u->when_busy != BUSY_ANYHOW || u->until_quiet ? (u->read_only ? 1 : 2) : 0;
}

/* "other programs use 78 % of the processors (limit 10 %); 3 s ago: cc1 40 %, ld 12 %" */
static void row_who(struct grid *g, struct rect in, const struct snapshot *s)
{
    const struct busy_state *b = &s->busy;
    const double limit = contamination_limit(METRIC_OTHERS_BUSY),
                 steal_limit = contamination_limit(METRIC_CPU_STEAL);
    const bool stolen = b->steal > steal_limit && !(b->others > limit);
    const double share = stolen ? b->steal : b->others;
    enum { WITH_WORDS = 100, FRESH_MS = 15000 }; /* older names say nothing about the share beside them */
    char text[400], when[48] = "";
    struct pen p = pen_at(g, in, 1, 0);
    const bool names = b->is_busy && b->by[0] && s->unix_ms - b->by_ms <= FRESH_MS;
    if (names) snprintf(when, sizeof when, "; %s ago: ", figure_age(s->unix_ms - b->by_ms).text);
    snprintf(text, sizeof text, "%s: %s %s%s (limit %s)%s%s", b->is_busy ? "busy" : "quiet",
             stolen ? "the hypervisor takes" : "other programs use", figure_percent(share).text,
             in.w < WITH_WORDS ? "" : " of the processors", figure_percent(stolen ? steal_limit : limit).text,
             when, names ? b->by : "");
    pen_put(&p, b->is_busy ? ROLE_WARN | STYLE_BOLD : (unsigned)ROLE_TEXT, b->is_busy ? "! " : "✓ ");
    pen_field(&p, pen_left(&p), b->is_busy ? (unsigned)ROLE_WARN : (unsigned)ROLE_TEXT, text);
}

static void pen_choice(struct pen *p, enum action action, const char *text)
{
    const int from = p->x;
    pen_put(p, ROLE_KEY | STYLE_BOLD, key_of_action(action)->name);
    pen_printf(p, ROLE_TEXT, " %s", text);
    grid_hit(p->g, (struct rect){ p->area.x + from, p->area.y, MAX(MIN(p->x, p->area.w) - from, 0), 1 },
             HIT_ACTION, (int)action);
    pen_put(p, ROLE_TEXT, "   ");
}

static void row_choices(struct grid *g, struct rect in, const struct snapshot *s, const struct ui *u)
{
    struct pen p = pen_at(g, in, 1, 0);
    if (u->until_quiet) {
        pen_choice(&p, DO_WAIT_QUIET, "continue now");
        pen_put(&p, ROLE_TEXT, "paused until the machine is quiet");
    } else if (snapshot_waits_quiet(s)) {
        pen_put(&p, ROLE_TEXT, "the A/B waits until the machine is quiet, at most 10 minutes; ");
        pen_choice(&p, DO_STOP, "stops it");
    } else if (snapshot_is_running(s)) {
        pen_choice(&p, DO_WAIT_QUIET, "pause until quiet");
        pen_put(&p, ROLE_DIM,
                s->experiment.estimand == ESTIMAND_LOADED ? "all blocks count: the speed under this load"
                                                          : "disturbed blocks are measured again");
    } else if (s->tune.running) {
        pen_put(&p, ROLE_DIM, "the search goes on under this load; s stops it, r resumes it later");
    } else {
        const bool waits = u->when_busy == BUSY_WAIT, loaded = u->when_busy == BUSY_LOADED;
        pen_choice(&p, DO_WAIT_QUIET, waits ? "✓ waits until quiet" : "wait until quiet");
        pen_choice(&p, DO_LOADED, loaded ? "✓ measures under load" : "measure under load");
        pen_put(&p, ROLE_DIM, waits || loaded ? "(t, b)" : "then t or b");
    }
}

void draw_busy(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    row_who(g, rect_rows(area, 0, 1), s);
    if (area.h > 1) row_choices(g, rect_rows(area, 1, 1), s, u);
}
