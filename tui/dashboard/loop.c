/* tui/dashboard/loop.c - the frame loops: collect a snapshot, draw it, wait for a key or the next frame.
 *
 * While a cell is being timed the dashboard draws twice a second, otherwise about seven times; a key is
 * answered at once. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tui/dashboard/actions.h"
#include "tui/dashboard/linear.h"
#include "tui/dashboard/loop.h"
#include "tui/views/views.h"

enum {
    FRAME_MS = 150,
    FRAME_TIMING_MS = 500, /* while a cell is timed, so that drawing does not disturb it */
    LINEAR_MS = 200,
    FRAMES_W = 80, /* frames without a terminal */
    FRAMES_H = 24,
};

static void loop_key(struct dashboard *d, int key)
{
    const struct effect e = input_key(&d->ui, d->s, key);
    effect_apply(d, &e);
}

static void loop_click(struct dashboard *d, struct hit hit)
{
    const struct effect e = input_click(&d->ui, d->s, hit);
    effect_apply(d, &e);
}

/* Whether the loop goes on. A running experiment is stopped before it ends. */
static bool loop_goes_on(struct dashboard *d)
{
    if (!d->leaving) return true;
    const bool measures = snapshot_is_running(d->s) || d->s->experiment_starting;
    if (measures) background_end_command(d->background);
    return measures;
}

/* ---------------------------------------------------------------- on a terminal */

static enum err_code frame_draw(struct dashboard *d, struct grid *g, struct err *why)
{
    int w, h;
    screen_size(d->screen, &w, &h);
    if (!g->cells || g->w != w || g->h != h) {
        grid_close(g);
        enum err_code rc = grid_open(g, MAX(w, 1), MAX(h, 1), screen_glyphs(d->screen), why);
        if (rc) return rc;
    }
    dashboard_collect(d);
    view_draw(g, d->s, &d->ui);
    screen_paint(d->screen, g);
    return ERR_OK;
}

enum err_code loop_terminal(struct dashboard *d, struct err *why)
{
    enum { BURST = 256 }; /* keys per frame: pasted text is one frame */
    struct grid g = { 0 };
    enum err_code rc = ERR_OK;
    while (loop_goes_on(d)) {
        if ((rc = frame_draw(d, &g, why))) break;
        int key = 0;
        enum screen_event event = screen_wait(
            d->screen, snapshot_is_timing(d->s) || d->s->tune.running ? FRAME_TIMING_MS : FRAME_MS, &key);
        for (int i = 0; event == SCREEN_KEY && i < BURST; i++) {
            int x, y;
            screen_pointer(d->screen, &x, &y);
            if (key == UI_KEY_CLICK)
                loop_click(d, grid_hit_at(&g, x, y));
            else
                loop_key(d, key);
            event = screen_wait(d->screen, 0, &key);
        }
        if (event == SCREEN_END) break;
    }
    grid_close(&g);
    return rc;
}

/* ---------------------------------------------------------------- frames as text */

enum err_code loop_frames(struct dashboard *d, struct err *why)
{
    struct grid g;
    struct str text = { 0 };
    setlocale(LC_CTYPE, "");
    enum glyph_level glyphs = glyph_level_choose(nl_langinfo(CODESET), NULL, getenv("QDYNO_GLYPHS"));
    enum err_code rc = grid_open(&g, FRAMES_W, FRAMES_H, glyphs, why);
    for (int i = 0; rc == ERR_OK && i < d->options->frames; i++) {
        if (i > 0) clock_sleep_ns(FRAME_MS * 1000000LL);
        dashboard_collect(d);
        view_draw(&g, d->s, &d->ui);
        str_clear(&text);
        if (i > 0) str_append(&text, "\f\n");
        grid_text(&g, &text);
        if (fputs(str_text(&text), stdout) < 0 || fflush(stdout))
            rc = err_set(why, ERR_IO, "cannot write frames to standard output");
    }
    str_free(&text);
    grid_close(&g);
    return rc;
}

/* ---------------------------------------------------------------- lines */

/* Print what changed in this frame. */
static enum err_code linear_write(struct dashboard *d, struct linear_reported *reported, struct str *out,
                                  struct err *why)
{
    linear_report(reported, d->s, &d->ui, out);
    char *safe = sink_text(SINK_TERMINAL, str_text(out));
    const bool failed = fputs(safe ? safe : "", stdout) < 0 || fflush(stdout);
    free(safe);
    str_clear(out);
    return failed ? err_set(why, ERR_IO, "cannot write to standard output") : ERR_OK;
}

static void linear_line(struct dashboard *d, char *line, struct str *out)
{
    int keys[FORM_TEXT + 64];
    line[strcspn(line, "\r\n")] = '\0';
    d->ui.help = d->ui.page = false; /* they would take the keys of the line */
    if (linear_answer(line, d->s, &d->ui, out)) return;
    const int n = linear_keys(line, &d->ui, keys, COUNT_OF(keys));
    for (int i = 0; i < n; i++) loop_key(d, keys[i]);
}

/* Process the complete lines on standard input; waits up to LINEAR_MS for some. False: end of input. */
static bool linear_read(struct dashboard *d, struct str *pending, struct str *out)
{
    char buf[1024];
    struct pollfd p = { .fd = 0, .events = POLLIN };
    if (poll(&p, 1, LINEAR_MS) <= 0) return true;
    const ssize_t n = read(0, buf, sizeof buf);
    if (n <= 0) return n < 0 && errno == EINTR;
    str_append_n(pending, buf, (size_t)n);
    for (char *end; pending->data && (end = strchr(pending->data, '\n'));) {
        *end = '\0';
        linear_line(d, pending->data, out);
        const size_t rest = pending->len - (size_t)(end + 1 - pending->data);
        memmove(pending->data, end + 1, rest + 1);
        pending->len = rest;
    }
    return true;
}

/* At the end of the input no more orders can come: a running experiment finishes, then the loop ends. */
enum err_code loop_linear(struct dashboard *d, struct err *why)
{
    struct linear_reported reported = { .view = VIEW_LIVE };
    struct str out = { 0 }, pending = { 0 };
    enum err_code rc = ERR_OK;
    bool open = true;
    while (!rc && loop_goes_on(d)) {
        dashboard_collect(d);
        rc = linear_write(d, &reported, &out, why);
        if (open)
            open = linear_read(d, &pending, &out);
        else
            clock_sleep_ns(LINEAR_MS * 1000000LL);
        const bool works = !jobs_idle(d->queue[QUEUE_COMMAND]) && (d->from_queue || d->measures);
        if (!open && !works && !d->waiting_count) d->leaving = true;
        if (d->options->interrupted && *d->options->interrupted) d->leaving = true;
    }
    if (!rc) {
        dashboard_collect(d);
        rc = linear_write(d, &reported, &out, why);
    }
    str_free(&out);
    str_free(&pending);
    return rc;
}
