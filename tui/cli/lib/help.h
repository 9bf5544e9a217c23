/* tui/cli/lib/help.h - internal to cli: what the files that write help share. */
#ifndef QDYNO_TUI_CLI_LIB_HELP_H
#define QDYNO_TUI_CLI_LIB_HELP_H

#include "tui/cli/cli.h"

/* Columns of all help, and of the names of flags in it. */
enum { HELP_WIDTH = 100, HELP_NAMES = 26 };

/* Appends `text` wrapped. The cursor is in `column`; further lines start at `indent`. */
void help_wrap(struct str *out, const char *text, int indent, int column);
/* The same, to a width in bytes. */
void help_wrap_to(struct str *out, const char *text, int indent, int column, int width);
/* One row of a list: a name, and its text beside it. */
void help_line(struct str *out, const char *name, const char *text);
/* A paragraph, followed by an empty line. */
void help_paragraph(struct str *out, const char *text);

/* "-c, --ctx N"; "[=N]" where the value may be left out. */
void help_flag_name(struct str *out, const struct cli_flag *f);
/* One line about the config keys whose names are flags of the command; nothing where there are none. */
void help_taken_keys(struct str *out, const struct command *c);
/* The examples of a command, which come first because they say the most; nothing where it has none. */
void help_examples(struct str *out, const struct command *c);

/* A name and what it means: exit statuses, environment variables. Ends with a NULL name. */
struct help_row {
    const char *name, *text;
};
extern const struct help_row HELP_EXITS[], HELP_ENVIRONMENT[];

/* ---------------------------------------------------------------- examples (help_examples.c) */

/* A real command line of a command, and what it is for. A test passes every one to the parser. */
struct help_example {
    const char *command; /* its name; the rows of a command follow each other */
    const char *line;    /* without "qdyno" */
    const char *what;
};
extern const struct help_example HELP_EXAMPLES[];
extern const size_t HELP_EXAMPLE_COUNT;

/* ---------------------------------------------------------------- topics (help_topics.c) */

/* What `qdyno help NAME` explains besides commands. Ends with a NULL name. */
struct help_topic {
    const char *name, *help;
    void (*write)(struct str *out);
};
extern const struct help_topic HELP_TOPICS[];
const struct help_topic *help_topic_find(const char *name); /* NULL: unknown; "knobs" is "configs" */

#endif
