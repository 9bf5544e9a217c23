/* tui/screen.h - the terminal: paints grids, reads keys, and is put back as it was whatever happens.
 *
 * The only file that knows ncurses. Signals come through a descriptor, so nothing runs inside a handler and
 * the terminal is always restored by the ordinary way out. Not thread-safe: one thread draws. */
#ifndef QDYNO_TUI_SCREEN_H
#define QDYNO_TUI_SCREEN_H

#include "tui/grid.h"
#include "tui/theme.h"

struct screen;

/* Take the terminal over. Blocks SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP, SIGCONT and SIGPIPE in the
 * calling thread: threads started later inherit that, and screen_close() undoes it. *out owned. Errors:
 * ERR_ABSENT (no terminal, unknown or too simple TERM: says what to do), ERR_IO. */
enum err_code screen_open(struct screen **out, bool color, struct err *why);
void screen_close(struct screen *s); /* NULL is fine */

void screen_size(const struct screen *s, int *w, int *h);
enum glyph_level screen_glyphs(const struct screen *s);
enum color_level screen_colors(const struct screen *s);

/* The default at first; paints everything anew. */
void screen_theme(struct screen *s, const struct theme *theme);
/* Whether clicks and the wheel are ours (off at first); then the terminal selects text with a modifier only.
 */
void screen_mouse(struct screen *s, bool on);
/* Where the last UI_KEY_CLICK or UI_KEY_WHEEL_* was: column and row from 0. */
void screen_pointer(const struct screen *s, int *x, int *y);

/* Show g; only what differs from the last one is sent. A grid of another size than the screen is clipped. */
void screen_paint(struct screen *s, const struct grid *g);
/* Hand a text to the terminal's clipboard (OSC 52). False: the terminal is known not to take it; true: it was
 * sent, and no terminal says whether it took it. */
bool screen_copy(struct screen *s, const char *text);
void screen_redraw(struct screen *s); /* the next paint sends everything */

enum screen_event {
    SCREEN_TIMEOUT,
    SCREEN_KEY,    /* *key: code point or UI_KEY_* */
    SCREEN_RESIZE, /* or the terminal came back: draw again */
    SCREEN_END,    /* told to end (SIGTERM, SIGHUP, SIGINT), or the terminal is gone */
};
enum screen_event screen_wait(struct screen *s, int timeout_ms, int *key);

/* Give the terminal back to the shell and stop; returns when continued. */
void screen_suspend(struct screen *s);

#endif
