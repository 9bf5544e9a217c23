/* tui/frame/text_page.c - lines of a text page. */
#include "tui/frame/frame.h"

#include "base/cut/cut.h"

void text_page_put(struct text_page *p, enum page_tone tone, const char *fmt, ...)
{
    if (p->count == PAGE_LINES) {
        p->left_out++;
        return;
    }
    struct page_line *l = &p->line[p->count++];
    va_list args;
    va_start(args, fmt);
    text_cutv(l->text, sizeof l->text, fmt, args);
    va_end(args);
    l->tone = tone;
}

int text_page_columns(const struct text_page *p)
{
    int most = 0;
    for (int i = 0; i < p->count; i++) most = MAX(most, text_columns(p->line[i].text));
    return most;
}
