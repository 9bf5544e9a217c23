/* tui/views/write.c - two configurations continue a prompt side by side, A on the left, B on the right. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/sidebyside/sidebyside.h"

/* ---------------------------------------------------------------- text with a mark */

/* A text in three parts: the prompt, what both arms wrote, and what only this arm wrote. */
struct passage {
    const char *text;
    int same_from, own_from; /* bytes; own_from may be past the end */
    unsigned own;            /* style of the last part */
};

static unsigned passage_style_at(const struct passage *p, int at)
{
    return at >= p->own_from ? p->own : at >= p->same_from ? (unsigned)ROLE_TEXT : (unsigned)ROLE_DIM;
}

/* Bytes of text that fill one row of `columns`, including the blank or newline at its end. Breaks between
 * words if possible. */
static int row_bytes(const char *text, int columns)
{
    int at = 0, x = 0, word = 0;
    uint32_t code;
    while (text[at]) {
        const int used = (int)str_utf8_next(text + at, strnlen(text + at, 4), &code);
        if (code == '\n') return at + used;
        char one[8];
        snprintf(one, sizeof one, "%.*s", used, text + at);
        x += text_columns(one);
        if (x > columns && code != ' ') return word ? word : MAX(at, used);
        at += used;
        if (code == ' ') word = at;
    }
    return at;
}

/* Draw the last rows of the text that fit into `area`: new text appears there. */
static void draw_passage(struct grid *g, struct rect area, const struct passage *p)
{
    enum { ROWS = 4096 };
    int begin[ROWS], rows = 0;
    if (area.w <= 0 || area.h <= 0) return;
    for (int at = 0; p->text[at] && rows < ROWS;) {
        begin[rows++] = at;
        at += row_bytes(p->text + at, area.w - 1); /* a column is left for the mark */
    }
    const int top = MAX(rows - area.h, 0);
    for (int i = top; i < rows; i++) {
        struct pen pen = pen_at(g, area, 0, i - top);
        const int end = i + 1 < rows ? begin[i + 1] : (int)strlen(p->text);
        for (int at = begin[i]; at < end;) {
            uint32_t code;
            const int used = (int)str_utf8_next(p->text + at, strnlen(p->text + at, 4), &code);
            char one[8];
            snprintf(one, sizeof one, "%.*s", used, p->text + at);
            if (at == p->own_from) pen_put(&pen, p->own, "▸");
            if (code != '\n') pen_put(&pen, passage_style_at(p, at), one);
            at += used;
        }
    }
}

/* ---------------------------------------------------------------- one arm */

static const char *passage_ended_text(const struct sidebyside_arm *a)
{
    return !a->ended                      ? ""
           : !strcmp(a->ended, "limit")   ? "reached the token limit"
           : !strcmp(a->ended, "context") ? "the context is full"
           : !strcmp(a->ended, "room")    ? "too long to show"
                                          : "end of text";
}

static void row_state(struct grid *g, struct rect in, const struct sidebyside_arm *a)
{
    struct pen p = pen_at(g, in, 0, 1);
    switch (a->phase) {
    case SIDEBYSIDE_LOADING:
        pen_put(&p, ROLE_TITLE, "● ");
        pen_printf(&p, ROLE_TEXT, "loading %s",
                   isfinite(a->loaded_ratio) ? figure_percent(a->loaded_ratio).text : "");
        break;
    case SIDEBYSIDE_WAITING: pen_put(&p, ROLE_DIM, "○ loaded; waiting for the other"); break;
    case SIDEBYSIDE_READING: pen_put(&p, ROLE_TITLE, "● processing the prompt"); break;
    case SIDEBYSIDE_WRITING: pen_put(&p, ROLE_TITLE, "● writing"); break;
    case SIDEBYSIDE_DONE: pen_printf(&p, ROLE_TEXT, "✓ %s", passage_ended_text(a)); break;
    case SIDEBYSIDE_STOPPED: pen_put(&p, ROLE_WARN, "○ stopped"); break;
    case SIDEBYSIDE_FAILED: pen_put(&p, ROLE_ERROR, "✕ failed"); break;
    }
    const int text = 9;
    if (a->phase < SIDEBYSIDE_READING || pen_left(&p) < text) return;
    p.x = in.w - text;
    char count[24];
    snprintf(count, sizeof count, "%d tok", a->tokens);
    pen_field_right(&p, text, ROLE_TEXT, count);
}

static void row_rate(struct grid *g, struct rect in, const struct sidebyside_arm *a, int limit)
{
    struct pen p = pen_at(g, in, 0, 0);
    pen_field(&p, 6, isfinite(a->tok_s) ? ROLE_TEXT | STYLE_BOLD : ROLE_DIM, figure_number(a->tok_s).text);
    pen_put(&p, ROLE_DIM, " tok/s");
    pen_value(&p, "  prefill ", figure_seconds(a->prefill_s).text);
    if (pen_left(&p) > 34) pen_value(&p, "  loaded ", figure_seconds(a->load_s).text);
    const int bar = MIN(12, pen_left(&p) - 1);
    if (bar < 3) return;
    p.x = in.w - bar;
    pen_meter(&p, bar, (double)a->tokens / MAX(limit, 1), ROLE_METER);
}

static const char NOTHING_YET[] =
    "w asks for a prompt and two configurations, which then continue it side by side";

static void box_arm(struct grid *g, struct rect area, const struct snapshot *s, int arm)
{
    const struct sidebyside_state *w = &s->write;
    const struct sidebyside_arm *a = &w->arm[arm];
    const unsigned role = (arm ? ROLE_ARM_B : ROLE_ARM_A) | STYLE_BOLD;
    char title[800], text[sizeof w->prompt + SIDEBYSIDE_TEXT];
    snprintf(title, sizeof title, "%c   %s", 'A' + arm,
             !s->write_known ? ""
             : *a->line      ? a->line
                             : "default");
    struct rect in = grid_box(g, area, title,
                              w->answers_unverified ? ANSWERS_UNVERIFIED
                              : w->random_weights   ? RANDOM_WEIGHTS_TEXT
                                                    : NULL);
    if (!s->write_known) { /* where panes are shown one at a time, this one has to say it, too */
        if (layout_frame(g->w, g->h).single) grid_wrap(g, in, ROLE_TEXT, NOTHING_YET);
        return;
    }
    row_rate(g, in, a, w->limit);
    row_state(g, in, a);
    const struct rect page = rect_rows(in, 3, in.h - 3);
    if (a->phase == SIDEBYSIDE_FAILED && !a->text_bytes) {
        grid_wrap(g, page, ROLE_ERROR, a->error);
        return;
    }
    const int from = snprintf(text, sizeof text, "%s", w->prompt);
    snprintf(text + from, sizeof text - (size_t)from, "%s", a->text);
    const int own = from + w->same_bytes; /* put the mark at a word, not at the blank before it */
    const int at = own + (int)strspn(text + own, " \n");
    draw_passage(g, page, &(struct passage){ text, from, w->differ ? at : INT32_MAX, role });
}

/* ---------------------------------------------------------------- both */

/* The word at which the texts begin to differ. */
static const char *passage_next_word(const struct sidebyside_state *w, int arm, char *buf, size_t size)
{
    const char *at = w->arm[arm].text + w->same_bytes;
    at += strspn(at, " \n");
    const int n = (int)strcspn(at, " \n");
    snprintf(buf, size, "%.*s", MIN(n, 24), at);
    if (!*buf) snprintf(buf, size, "the end");
    return buf;
}

static void draw_difference(struct pen *p, const struct sidebyside_state *w)
{
    char a[32], b[32];
    const int n = w->same_tokens;
    if (!w->differ) {
        pen_printf(p, ROLE_TEXT, "≈ identical so far: %d token%s", n, n == 1 ? "" : "s");
        return;
    }
    pen_printf(p, ROLE_TEXT, "▸ same for %d token%s, then ", n, n == 1 ? "" : "s");
    pen_printf(p, ROLE_ARM_A | STYLE_BOLD, "A: %s", passage_next_word(w, 0, a, sizeof a));
    pen_put(p, ROLE_TEXT, "   ");
    pen_printf(p, ROLE_ARM_B | STYLE_BOLD, "B: %s", passage_next_word(w, 1, b, sizeof b));
}

static void box_both(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct sidebyside_state *w = &s->write;
    struct rect in = grid_box(g, area, "Side by side", NULL);
    if (!s->write_known) {
        grid_wrap(g, in, ROLE_TEXT, NOTHING_YET);
        return;
    }
    struct pen p = pen_at(g, in, 0, 0);
    draw_difference(&p, w);
    const double a = w->arm[0].tok_s, b = w->arm[1].tok_s;
    if (a > 0 && b > 0 && pen_left(&p) > 28) {
        pen_put(&p, ROLE_TEXT, "   ");
        pen_printf(&p, ROLE_DIM, "speed B/A %.2f", b / a);
    }
    p = pen_at(g, in, 0, 1);
    pen_field(&p, pen_left(&p), ROLE_DIM,
              "the arms take turns of 0.1 s with the whole machine; b measures them");
    p = pen_at(g, in, 0, 2);
    pen_field(&p, pen_left(&p), ROLE_DIM,
              w->running ? "s stops both" : "w starts another; both take the most likely token");
}

void view_write(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[WRITE_PANES];
    layout_write(body, box);
    panes_place(g, box, WRITE_PANES, body, u);
    box_arm(g, box[WRITE_A], s, 0);
    box_arm(g, box[WRITE_B], s, 1);
    box_both(g, box[WRITE_BOTH], s);
}
