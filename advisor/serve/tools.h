/* advisor/serve/tools.h - internal: finds the calls of tools in generated text.
 *
 * Models write calls as text, each family in a style of its own; the chat template says which. A call is a
 * JSON object with the name of a tool of the request and an object of arguments. What is none, or of an
 * unknown style, stays text. */
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

/* Text that is being generated. Bytes leave it when they cannot be part of a call any more. */
struct tool_reader {
    const struct tool_style *style; /* NULL: all is text */
    const json_t *tools;            /* of the request, borrowed */
    struct str kept;
    bool inside;  /* `kept` begins with white space and the mark of a call */
    size_t blank; /* bytes of this white space: text, unless a call follows it */
    bool plain;   /* the answer cannot be a call */
    bool called;  /* it had a call */
};
/* Adds bytes; appends to *out what is text, and to the list `calls` {"name": TEXT, "arguments": TEXT} for
 * each call that is complete. */
void tool_reader_push(struct tool_reader *r, const char *bytes, size_t n, struct str *out, json_t *calls);
/* The text has ended. A call without its end is one if it can be read. */
void tool_reader_finish(struct tool_reader *r, struct str *out, json_t *calls);
void tool_reader_free(struct tool_reader *r);

#endif
