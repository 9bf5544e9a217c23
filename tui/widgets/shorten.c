/* tui/widgets/shorten.c - config lines in less space than they need, so that different lines stay different.
 */
#include "tui/widgets/widgets.h"

#include <string.h>

static const char SEPARATORS[] = ", |";

/* Whether a line has this word between separators. */
static bool line_has_word(const char *line, const char *word, size_t n)
{
    while (*line) {
        line += strspn(line, SEPARATORS);
        const size_t own = strcspn(line, SEPARATORS);
        if (own == n && !strncmp(line, word, n)) return true;
        line += own;
    }
    return false;
}

enum { WORDS = 48 };

/* The words of a line, and how many of the other lines have each. */
struct line_words {
    int n;
    struct word {
        const char *text;
        size_t gap, bytes; /* separators before it; its own */
        int others;
        bool dropped, stays;
    } word[WORDS];
};

/* Words beyond WORDS belong to the last one. */
static void words_split(struct line_words *l, const char *text, const char *const *others, int n)
{
    l->n = 0;
    while (*text && l->n < WORDS) {
        struct word *w = &l->word[l->n++];
        *w = (struct word){ .text = text, .gap = strspn(text, SEPARATORS) };
        w->bytes = l->n == WORDS ? strlen(text + w->gap) : strcspn(text + w->gap, SEPARATORS);
        w->stays = w->bytes == 2 && !strncmp(text + w->gap, "vs", 2); /* between two arms */
        for (int i = 0; i < n; i++) w->others += line_has_word(others[i], text + w->gap, w->bytes);
        w->dropped = n > 0 && w->bytes > 0 && w->others == n && !w->stays;
        text += w->gap + w->bytes;
    }
}

/* Drop what both arms of "A vs B" have: it does not say how they differ. */
static void words_drop_repeated(struct line_words *l)
{
    bool compares = false;
    for (int i = 0; i < l->n; i++) compares |= l->word[i].stays;
    for (int i = 0; compares && i < l->n; i++) {
        struct word *a = &l->word[i];
        for (int k = i + 1; k < l->n && !a->stays && a->bytes; k++) {
            struct word *b = &l->word[k];
            if (a->bytes == b->bytes && !strncmp(a->text + a->gap, b->text + b->gap, a->bytes))
                a->dropped = b->dropped = true;
        }
    }
}

/* The line with "…" in place of each group of dropped words. */
static void words_join(const struct line_words *l, struct str *out)
{
    bool dropped = false;
    str_clear(out);
    for (int i = 0; i < l->n; i++) {
        const struct word *w = &l->word[i];
        if (!w->dropped || !dropped) str_append_n(out, w->text, w->gap);
        if (w->dropped && !dropped) str_append(out, "…");
        if (!w->dropped) str_append_n(out, w->text + w->gap, w->bytes);
        dropped = w->dropped;
    }
}

/* The kept word that most other lines have: it tells the line apart the least. -1: only one is left. */
static int words_commonest(const struct line_words *l)
{
    int at = -1, kept = 0;
    for (int i = 0; i < l->n; i++) {
        if (l->word[i].dropped || l->word[i].stays) continue;
        kept++;
        if (at < 0 || l->word[i].others >= l->word[at].others) at = i;
    }
    return kept > 1 ? at : -1;
}

/* Without the words that all other lines have, then without those that most of them have, until it fits. */
static void drop_common(const char *text, const char *const *others, int n, int columns, struct str *out)
{
    struct line_words l;
    words_split(&l, text, others, n);
    words_drop_repeated(&l);
    words_join(&l, out);
    for (int at; n > 0 && text_columns(str_text(out)) > columns && (at = words_commonest(&l)) >= 0;) {
        l.word[at].dropped = true;
        words_join(&l, out);
    }
}

/* The first bytes of `text` that take at most `columns`. */
static size_t head_bytes(const char *text, int columns)
{
    size_t n = 0;
    uint32_t code;
    char part[8];
    while (text[n]) {
        const size_t step = str_utf8_next(text + n, strlen(text + n), &code);
        snprintf(part, sizeof part, "%.*s", (int)MIN(step, sizeof part - 1), text + n);
        columns -= text_columns(part);
        if (columns < 0) break;
        n += step;
    }
    return n;
}

/* Where the last `columns` of the text begin. */
static size_t tail_from(const char *text, int columns)
{
    size_t from = 0;
    uint32_t code;
    while (text[from] && text_columns(text + from) > columns)
        from += str_utf8_next(text + from, strlen(text + from), &code);
    return from;
}

const char *text_shorten(const char *text, const char *const *others, int n, int columns, char *buf,
                         size_t size)
{
    if (text_columns(text) <= columns || columns < 3) {
        snprintf(buf, size, "%s", text);
        return buf;
    }
    enum { SPLIT_FROM = 8 }; /* below, a beginning says more than two ends */
    struct str line = { 0 };
    drop_common(text, others, n, columns, &line);
    const char *t = str_text(&line);
    if (text_columns(t) <= columns)
        snprintf(buf, size, "%s", t);
    else if (columns < SPLIT_FROM)
        snprintf(buf, size, "%.*s…", (int)head_bytes(t, columns - 1), t);
    else
        snprintf(buf, size, "%.*s…%s", (int)head_bytes(t, columns / 2), t,
                 t + tail_from(t, columns - 1 - columns / 2));
    str_free(&line);
    return buf;
}
