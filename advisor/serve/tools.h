/* advisor/serve/tools.h - internal: finds the calls of tools in generated text.
 *
 * Models write calls as text, each family in a style of its own; the chat template says which. A call is a
 * JSON object with the name of a tool of the request and an object of arguments. It ends where its JSON ends,
 * whatever its strings have in them. What is none, or of an unknown style, or in a thought, stays text. */
#ifndef QDYNO_ADVISOR_SERVE_TOOLS_H
#define QDYNO_ADVISOR_SERVE_TOOLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

struct tool_style;
/* The style of a model with this chat template (its text); NULL: unknown. */
const struct tool_style *tool_style_find(const char *chat_template);
const char *tool_style_name(const struct tool_style *style); /* "hermes" "mistral" "llama"; NULL: "" */
/* Does this text of a control token mark calls? Other control tokens are not part of the text. */
bool tool_style_marks(const struct tool_style *style, const char *piece);

/* Where the search for the end of a JSON value is. */
struct tool_scan {
    size_t at;
    int depth; /* of open brackets */
    bool string, escape;
};

/* Text that is being generated. Bytes leave it when they cannot be part of a call any more. */
struct tool_reader {
    const struct tool_style *style; /* NULL: all is text */
    const json_t *tools;            /* of the request, borrowed */
    struct str kept;
    bool begun;            /* it has more than white space */
    const char *thought;   /* the mark that ends the thought that it is in; NULL: it is in none */
    bool inside;           /* `kept` begins with what may be calls */
    bool chained;          /* the last of which was accepted */
    size_t at;             /* inside: bytes that were read as parts of calls */
    struct tool_scan scan; /* of the value that begins there */
    json_t *found;         /* calls before `at` that were not accepted yet */
    size_t searched;       /* outside: bytes that have no mark */
    bool plain;            /* the answer cannot be a call */
    bool called;           /* it had a call */
};
/* The end of the prompt, before all else: the answer begins in a thought if the prompt begins one. */
void tool_reader_prompt(struct tool_reader *r, const char *text, size_t n);
/* A control token that is no part of the text may begin or end a thought. */
void tool_reader_control(struct tool_reader *r, const char *piece);
/* Adds bytes; appends to *out what is text, and to the list `calls` {"name": TEXT, "arguments": TEXT} for
 * each call that is complete. */
void tool_reader_push(struct tool_reader *r, const char *bytes, size_t n, struct str *out, json_t *calls);
/* The text has ended. A call without its end is one if it can be read. */
void tool_reader_finish(struct tool_reader *r, struct str *out, json_t *calls);
void tool_reader_free(struct tool_reader *r);

#endif
