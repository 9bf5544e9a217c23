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

/* The line with "…" in place of each group of words that all other lines have, too. */
static void drop_common(const char *text, const char *const *others, int n, struct str *out)
{
    bool dropped = false;
    while (*text) {
        const size_t gap = strspn(text, SEPARATORS), word = strcspn(text + gap, SEPARATORS);
        bool common = word > 0;
        for (int i = 0; i < n && common; i++) common = line_has_word(others[i], text + gap, word);
        if (!common || !dropped) str_append_n(out, text, gap);
        if (common && !dropped) str_append(out, "…");
        if (!common) str_append_n(out, text + gap, word);
        dropped = common;
        text += gap + word;
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
    if (n > 0)
        drop_common(text, others, n, &line);
    else
        str_append(&line, text);
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
