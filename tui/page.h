/* tui/page.h - text to be read at leisure over the view: what a command wrote, two runs compared. A value. */
#ifndef QDYNO_TUI_PAGE_H
#define QDYNO_TUI_PAGE_H

#include "base/base.h"

enum { PAGE_LINES = 240, PAGE_TEXT = 320 };

enum page_tone { PAGE_PLAIN, PAGE_HEAD, PAGE_DIM, PAGE_GOOD, PAGE_BAD, PAGE_UNSURE };

struct page {
    int64_t number; /* each new page has another; 0: none yet */
    bool opens;     /* it asks to be looked at; else it waits until somebody does */
    char title[200];
    int count, left_out; /* lines beyond PAGE_LINES */
    struct page_line {
        enum page_tone tone;
        char text[PAGE_TEXT]; /* UTF-8 */
    } line[PAGE_LINES];
};

/* One line, cut where it is longer than PAGE_TEXT, between characters. */
void page_put(struct page *p, enum page_tone tone, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Columns of the widest line. */
int page_columns(const struct page *p);

#endif
