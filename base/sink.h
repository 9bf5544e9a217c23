/* base/sink.h - text of others (names in model files, answers of servers, messages of plug-ins), made
 * harmless for the place where it leaves the program.
 *
 * Such text can contain control characters that a terminal obeys, marks that reverse the direction of
 * writing so that a line reads as another one, and characters with a meaning in the format around it. HTML
 * and SVG have their own function, xml_text in tui/report. */
#ifndef QDYNO_BASE_SINK_H
#define QDYNO_BASE_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum text_sink {
    SINK_TERMINAL, /* text of several lines for people */
    SINK_LINE,     /* one line of a log or a message */
    SINK_CSV,      /* a text cell, with quotes where it needs them; never a formula for a spreadsheet */
    SINK_SQL,      /* a literal of SQLite, with its quotes; it has exactly the value of the text */
    SINK_MARKDOWN, /* a cell of a table */
    SINK_JSON,     /* a document that a JSON library wrote: it keeps its meaning */
    SINK_COUNT
};

/* Appends n bytes of text in the form of the sink. What is not UTF-8 becomes U+FFFD, except in SQL. */
void sink_append(struct str *out, enum text_sink sink, const char *text, size_t n);
/* The same as a string that the caller frees; NULL: out of memory. */
char *sink_text(enum text_sink sink, const char *text);

/* Whether a terminal may obey it, or a reader be deceived by it: C0 and C1 control characters, DEL, marks
 * and overrides of the writing direction, line and paragraph separators. Also newline and tab. */
bool character_is_unsafe(uint32_t code_point);

#endif
