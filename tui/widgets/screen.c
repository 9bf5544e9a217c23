/* tui/widgets/screen.c - the terminal, driven through ncurses. */
#define NCURSES_WIDECHAR 1
#include "tui/widgets/widgets.h"

#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <term.h>
#include <unistd.h>
#include <wchar.h>

struct screen {
    SCREEN *curses;
    int signals; /* descriptor */
    sigset_t old_mask;
    bool masked;
    enum glyph_level glyphs;
    enum color_level colors;
    struct theme theme;
    bool mouse;
    int pointer_x, pointer_y; /* of the last click or wheel */
    struct grid shown;        /* what the terminal shows; cells NULL: unknown */
};

/* ---------------------------------------------------------------- opening */

static enum err_code terminal_check(struct err *why)
{
    const char *term = getenv("TERM");
    int status;
    if (!isatty(0) || !isatty(1))
        return err_set(
            why, ERR_ABSENT,
            "the dashboard needs a terminal on standard input and output; without one use commands "
            "such as qdyno ab, or qdyno --frames 1");
    if (!term || !*term)
        return err_set(
            why, ERR_ABSENT,
            "TERM is not set: try TERM=xterm-256color qdyno, or qdyno --linear, which only prints lines");
    if (setupterm(term, 1, &status) == ERR)
        return err_set(
            why, ERR_ABSENT,
            "this machine has no terminfo entry for the terminal '%s': try TERM=xterm-256color qdyno (or install "
            "ncurses-term), or qdyno --linear, which only prints lines",
            term);
    const char *move = tigetstr("cup");
    bool able = move && move != (char *)-1 && *move;
    del_curterm(cur_term);
    if (able) return ERR_OK;
    return err_set(
        why, ERR_ABSENT,
        "the terminal '%s' cannot place its cursor: try TERM=xterm-256color qdyno, or qdyno --linear, which only prints lines",
        term);
}

static enum err_code signals_take(struct screen *s, struct err *why)
{
    static const int WANTED[] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP, SIGCONT };
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < COUNT_OF(WANTED); i++) sigaddset(&set, WANTED[i]);
    s->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (s->signals < 0)
        return err_set(why, err_of_errno(errno), "cannot receive signals: %s", strerror(errno));
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, &s->old_mask);
    s->masked = true;
    return ERR_OK;
}

static void colors_prepare(struct screen *s, bool color)
{
    bool able = color && has_colors() && start_color() == OK;
    s->colors = color_level_choose(able ? COLORS : 0, able && tigetflag("RGB") > 0, color);
}

/* Pair numbers are role + 1: pair 0 is the terminal's own. */
void screen_theme(struct screen *s, const struct theme *theme)
{
    s->theme = *theme;
    if (s->colors != COLORS_MONO) {
        bool own = use_default_colors() == OK;
        for (int role = 0; role < ROLE_COUNT; role++) {
            int32_t front = theme_color(theme, (enum role)role, s->colors);
            init_extended_pair(role + 1, front < 0 && !own ? COLOR_WHITE : front, own ? -1 : COLOR_BLACK);
        }
    }
    screen_redraw(s);
}

/* Only presses are reported: waiting for a possible double click would delay every click. */
void screen_mouse(struct screen *s, bool on)
{
    s->mouse = on;
    mouseinterval(0);
    mousemask(on ? BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED : 0, NULL);
}

void screen_pointer(const struct screen *s, int *x, int *y)
{
    *x = s->pointer_x;
    *y = s->pointer_y;
}

static void modes_set(void)
{
    raw(); /* Ctrl-C and Ctrl-Z arrive as keys: as signals they would also hit the workers */
    noecho();
    nonl();
    intrflush(stdscr, FALSE);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    scrollok(stdscr, FALSE);
    curs_set(0); /* fails harmlessly where the cursor cannot be hidden */
}

/* The terminfo entry to use: one with 24-bit colours if the terminal has them and the entry is installed.
 * NULL: that of $TERM. */
static const char *terminal_type(bool color, char *buf, size_t size)
{
    int status;
    terminal_direct_name(getenv("TERM"), color ? getenv("COLORTERM") : NULL, buf, size);
    if (!*buf || setupterm(buf, 1, &status) == ERR) return NULL;
    const bool direct = tigetflag("RGB") > 0 && tigetnum("colors") >= 1 << 24;
    del_curterm(cur_term);
    return direct ? buf : NULL;
}

enum err_code screen_open(struct screen **out, bool color, struct err *why)
{
    enum err_code rc;
    *out = NULL;
    struct screen *s = calloc(1, sizeof *s);
    if (!s) return err_set(why, ERR_NOMEM, "not enough memory for the screen");
    s->signals = -1;
    if ((rc = terminal_check(why))) goto fail;
    if ((rc = signals_take(s, why))) goto fail;
    setlocale(LC_CTYPE, "");
    s->glyphs = glyph_level_choose(nl_langinfo(CODESET), getenv("TERM"), getenv("QDYNO_GLYPHS"));
    char type[128];
    s->curses = newterm(terminal_type(color, type, sizeof type), stdout, stdin);
    if (!s->curses) {
        rc = err_set(why, ERR_ABSENT,
                     "the terminal '%s' cannot show the dashboard: try TERM=xterm-256color qdyno",
                     getenv("TERM"));
        goto fail;
    }
    set_escdelay(25);
    modes_set();
    colors_prepare(s, color);
    screen_theme(s, &THEME_DEFAULT);
    *out = s;
    return ERR_OK;
fail:
    screen_close(s);
    return rc;
}

void screen_close(struct screen *s)
{
    if (!s) return;
    if (s->curses) {
        endwin();
        delscreen(s->curses);
    }
    if (s->signals >= 0) close(s->signals);
    if (s->masked) pthread_sigmask(SIG_SETMASK, &s->old_mask, NULL);
    grid_close(&s->shown);
    free(s);
}

void screen_size(const struct screen *s, int *w, int *h)
{
    (void)s;
    getmaxyx(stdscr, *h, *w);
}

enum glyph_level screen_glyphs(const struct screen *s)
{
    return s->glyphs;
}

/* ---------------------------------------------------------------- painting */

static void style_set(const struct screen *s, unsigned style)
{
    unsigned shown_style = theme_attributes(&s->theme, style, s->colors);
    attr_t attributes = A_NORMAL;
    if (shown_style & STYLE_BOLD) attributes |= A_BOLD;
    if (shown_style & STYLE_REVERSE) attributes |= A_REVERSE;
    if (shown_style & STYLE_UNDERLINE) attributes |= A_UNDERLINE;
    short pair = s->colors == COLORS_MONO ? 0 : (short)((style & STYLE_ROLE) + 1);
    attr_set(attributes, pair, NULL);
}

static bool cells_equal(const struct cell *a, const struct cell *b)
{
    return a->code == b->code && a->style == b->style;
}

/* One run of changed cells of one style, from column x; returns the column after it. */
static int paint_run(const struct screen *s, const struct grid *g, int x, int y)
{
    enum { RUN = 256 };
    wchar_t text[RUN];
    int n = 0, at = x;
    const struct cell *row = g->cells + y * g->w, *old = s->shown.cells + y * g->w;
    unsigned style = row[x].style;
    for (; at < g->w && n < RUN && row[at].style == style &&
           (!cells_equal(&row[at], &old[at]) || row[at].code == 0);
         at++)
        if (row[at].code) text[n++] = (wchar_t)row[at].code;
    style_set(s, style);
    mvaddnwstr(y, x, text, n);
    return MAX(at, x + 1);
}

static void grid_forget(struct grid *g)
{
    for (int i = 0; i < g->w * g->h; i++) g->cells[i] = (struct cell){ 0xffffffff, 0 };
}

void screen_paint(struct screen *s, const struct grid *g)
{
    struct err why;
    if (!s->shown.cells || s->shown.w != g->w || s->shown.h != g->h) {
        grid_close(&s->shown);
        if (grid_open(&s->shown, g->w, g->h, g->glyphs, &why)) return;
        grid_forget(&s->shown);
        erase();
    }
    int w, h;
    screen_size(s, &w, &h);
    for (int y = 0; y < MIN(g->h, h); y++)
        for (int x = 0; x < MIN(g->w, w);) {
            const struct cell *cell = &g->cells[y * g->w + x];
            bool unchanged = cells_equal(cell, &s->shown.cells[y * g->w + x]);
            x = unchanged || cell->code == 0 ? x + 1 : paint_run(s, g, x, y);
        }
    memcpy(s->shown.cells, g->cells, sizeof *g->cells * (size_t)(g->w * g->h));
    refresh();
}

void screen_redraw(struct screen *s)
{
    if (s->shown.cells) grid_forget(&s->shown);
    clearok(curscr, TRUE);
}

/* ---------------------------------------------------------------- events */

static int mouse_translate(struct screen *s)
{
    MEVENT e;
    if (getmouse(&e) != OK) return UI_KEY_NONE;
    s->pointer_x = e.x;
    s->pointer_y = e.y;
    return e.bstate & BUTTON1_PRESSED   ? UI_KEY_CLICK
           : e.bstate & BUTTON4_PRESSED ? UI_KEY_WHEEL_UP
           : e.bstate & BUTTON5_PRESSED ? UI_KEY_WHEEL_DOWN
                                        : UI_KEY_NONE;
}

static int key_translate(struct screen *s, int status, wint_t code)
{
    static const struct {
        int curses, ours;
    } MAP[] = {
        { KEY_UP, UI_KEY_UP },         { KEY_DOWN, UI_KEY_DOWN },       { KEY_LEFT, UI_KEY_LEFT },
        { KEY_RIGHT, UI_KEY_RIGHT },   { KEY_HOME, UI_KEY_HOME },       { KEY_END, UI_KEY_END },
        { KEY_PPAGE, UI_KEY_PAGE_UP }, { KEY_NPAGE, UI_KEY_PAGE_DOWN }, { KEY_DC, UI_KEY_DELETE },
        { KEY_BTAB, UI_KEY_BACKTAB },  { KEY_ENTER, UI_KEY_ENTER },     { KEY_BACKSPACE, UI_KEY_BACKSPACE },
        { KEY_F(1), UI_KEY_F1 },
    };
    if (status == OK) return code == '\r' ? UI_KEY_ENTER : (int)code;
    if (code == KEY_MOUSE) return mouse_translate(s);
    for (size_t i = 0; i < COUNT_OF(MAP); i++)
        if (MAP[i].curses == (int)code) return MAP[i].ours;
    return UI_KEY_NONE;
}

static void resize_follow(void)
{
    struct winsize size;
    if (!ioctl(1, TIOCGWINSZ, &size) && size.ws_row > 0 && size.ws_col > 0)
        resizeterm(size.ws_row, size.ws_col);
}

static void screen_resume(struct screen *s)
{
    reset_prog_mode();
    modes_set();
    screen_mouse(s, s->mouse);
    resize_follow();
    screen_redraw(s);
}

void screen_suspend(struct screen *s)
{
    struct sigaction old, plain = { .sa_handler = SIG_DFL };
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    def_prog_mode();
    endwin();
    /* Stop the whole process group, so that a calling script stops, too. SIGTSTP and not SIGSTOP: where no
     * shell could continue the program (the only one of a tmux window), the kernel ignores SIGTSTP. */
    sigaction(SIGTSTP, &plain, &old);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL);
    kill(0, SIGTSTP);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    sigaction(SIGTSTP, &old, NULL);
    screen_resume(s);
}

/* The event of a pending signal; SCREEN_TIMEOUT for none. */
static enum screen_event signals_read(struct screen *s, int *key)
{
    enum screen_event event = SCREEN_TIMEOUT;
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        switch (info.ssi_signo) {
        case SIGWINCH:
            resize_follow();
            event = SCREEN_RESIZE;
            break;
        case SIGTSTP:
            /* Handled like the key: the dashboard may have to pause an experiment first. */
            *key = UI_CTRL('z');
            return SCREEN_KEY;
        case SIGCONT:
            screen_resume(s);
            event = SCREEN_RESIZE;
            break;
        default: return SCREEN_END;
        }
    }
    return event;
}

/* A key that ncurses has buffered, or SCREEN_TIMEOUT. */
static enum screen_event key_read(struct screen *s, int *key)
{
    wint_t code;
    for (;;) {
        int status = get_wch(&code);
        if (status == ERR) return SCREEN_TIMEOUT;
        if (status == KEY_CODE_YES && code == KEY_RESIZE) return SCREEN_RESIZE;
        *key = key_translate(s, status, code);
        if (*key != UI_KEY_NONE) return SCREEN_KEY;
    }
}

enum screen_event screen_wait(struct screen *s, int timeout_ms, int *key)
{
    enum screen_event event = signals_read(s, key);
    if (event != SCREEN_TIMEOUT || (event = key_read(s, key)) != SCREEN_TIMEOUT) return event;
    struct pollfd fds[] = { { .fd = 0, .events = POLLIN }, { .fd = s->signals, .events = POLLIN } };
    if (poll(fds, COUNT_OF(fds), timeout_ms) <= 0) return SCREEN_TIMEOUT;
    if (fds[1].revents && (event = signals_read(s, key)) != SCREEN_TIMEOUT) return event;
    if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)) return SCREEN_END;
    return fds[0].revents & POLLIN ? key_read(s, key) : SCREEN_TIMEOUT;
}

/* ---------------------------------------------------------------- the clipboard */

static void base64_put(struct str *out, const char *text)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)text;
    for (size_t left = strlen(text); left;) {
        const size_t n = MIN(left, (size_t)3);
        const uint32_t bits = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0) | (n > 2 ? p[2] : 0);
        const char four[] = { DIGITS[bits >> 18], DIGITS[bits >> 12 & 63],
                              n > 1 ? DIGITS[bits >> 6 & 63] : '=', n > 2 ? DIGITS[bits & 63] : '=' };
        str_append_n(out, four, sizeof four);
        p += n;
        left -= n;
    }
}

bool screen_copy(struct screen *s, const char *text)
{
    (void)s;
    const char *term = getenv("TERM");
    if (!term || !strcmp(term, "linux") || str_starts(term, "vt"))
        return false; /* consoles have no clipboard */
    struct str all = { 0 };
    str_append(&all, "\033]52;c;");
    base64_put(&all, text);
    str_append(&all, "\a");
    const bool sent = !all.failed && fputs(str_text(&all), stdout) >= 0 && !fflush(stdout);
    str_free(&all);
    return sent;
}
