/* tui/frame/text_page.c - lines of a text page. */
#include "tui/frame/frame.h"

#include <string.h>

/* Drop the last character if cutting the text left it incomplete (UTF-8). */
static void text_drop_partial(char *text)
{
    size_t n = strlen(text), start = n;
    uint32_t code;
    while (start > 0 && n - start < 4 && ((unsigned char)text[start - 1] & 0xc0) == 0x80) start--;
    if (start > 0 && (unsigned char)text[start - 1] >= 0xc0) start--;
    if (start < n && str_utf8_next(text + start, n - start, &code) != n - start) text[start] = '\0';
}

void text_page_put(struct text_page *p, enum page_tone tone, const char *fmt, ...)
{
    if (p->count == PAGE_LINES) {
        p->left_out++;
        return;
    }
    struct page_line *l = &p->line[p->count++];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(l->text, sizeof l->text, fmt, args);
    va_end(args);
    l->tone = tone;
    if (n >= (int)sizeof l->text) text_drop_partial(l->text);
}

int text_page_columns(const struct text_page *p)
{
    int most = 0;
    for (int i = 0; i < p->count; i++) most = MAX(most, text_columns(p->line[i].text));
    return most;
}
