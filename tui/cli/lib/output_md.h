/* output_md.h - internal: what output.c and output_md.c share. */
#ifndef QDYNO_CLI_OUTPUT_MD_H
#define QDYNO_CLI_OUTPUT_MD_H

#include "tui/cli/lib/output.h"

/* The value of a cell; NULL: it has none. Borrowed. */
const json_t *table_cell(const struct table *t, size_t row, int column);
bool value_is_null(const json_t *v);
/* Appends a value as plain text; nothing for null. */
void value_append(const json_t *v, struct str *out);

/* As table_write_styled, in Markdown. Errors: ERR_NOMEM. */
enum err_code table_write_md(const struct table *t, struct table_style style, FILE *out, struct err *why);

#endif
