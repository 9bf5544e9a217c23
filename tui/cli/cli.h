/* tui/cli/cli.h - COMMANDS: the command line as a table. Help, completion, man page and palette are loops
 * over it. */
#ifndef QDYNO_CLI_H
#define QDYNO_CLI_H

#include "advisor/advisor.h"

enum exit_status {
    EXIT_DONE = 0,
    EXIT_WORSE = 1,
    EXIT_INCONCLUSIVE = 2,
    EXIT_INVALID = 3,
    EXIT_USAGE = 4,
    EXIT_BAD_INPUT = 5,
    EXIT_NO_FIT = 6,
    EXIT_NO_DEVICE = 7,
    EXIT_INTERNAL = 70
};
int exit_status_of(enum err_code code);

enum output_format { OUTPUT_MD, OUTPUT_JSON, OUTPUT_JSONL, OUTPUT_CSV, OUTPUT_SQL };

struct cli_global {
    const char *db_path;
    enum output_format output;
    bool output_given, quiet, no_color;
    uint64_t seed;
    struct log log;
};

struct cli_flag {
    const char *name;  /* "-m" or "--budget" */
    const char *alias; /* "--model" or NULL */
    const char *value; /* placeholder "FILE", NULL for a switch */
    const char *help;
};
struct command {
    const char *name;
    const char *arguments;                                         /* "A B [-w WORKLOAD]" */
    const char *help;                                              /* one line */
    const struct cli_flag *flags;                                  /* NULL-name terminated; NULL: none */
    int (*run)(const struct cli_global *g, int argc, char **argv); /* argv[0] is the command */
    bool hidden;                                                   /* worker */
};
extern const struct command COMMANDS[];
extern const size_t COMMAND_COUNT;

#endif
