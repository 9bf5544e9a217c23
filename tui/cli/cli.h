/* tui/cli/cli.h - COMMANDS: the command line as a table. Help, completion, man page, palette and parser are
 * loops over it. */
#ifndef QDYNO_CLI_H
#define QDYNO_CLI_H

#include <signal.h>

#include "advisor/experiment/experiment.h"
#include "engine/config/config.h"

enum exit_status {
    EXIT_DONE = 0,
    EXIT_WORSE = 1,
    EXIT_INCONCLUSIVE = 2,
    EXIT_INVALID = 3,
    EXIT_USAGE = 4,
    EXIT_BAD_INPUT = 5,
    EXIT_NO_FIT = 6,
    EXIT_NO_DEVICE = 7,
    EXIT_INTERNAL = 70,
    EXIT_INTERRUPTED = 130 /* Ctrl-C: 128 + SIGINT, as shells report it */
};
int exit_status_of(enum err_code code);
int exit_status_of_verdict(enum verdict v);

enum output_format { OUTPUT_MD, OUTPUT_JSON, OUTPUT_JSONL, OUTPUT_CSV, OUTPUT_SQL };
extern const char *const OUTPUT_NAMES[]; /* indexed by enum output_format, NULL-terminated */

/* Progress of long work on stderr: for people on a terminal, or as JSON lines (lib/progress.h). */
enum progress_mode { PROGRESS_AUTO, PROGRESS_JSON, PROGRESS_OFF };
extern const char *const PROGRESS_NAMES[]; /* indexed by enum progress_mode, NULL-terminated */

enum { PLUGIN_FLAGS = 16 };

struct cli_global {
    const char *db_path; /* NULL: the default path */
    enum output_format output;
    bool output_given, quiet, verbose, no_color, help, version;
    bool yes, offline; /* fetch the model of a name without a question; never ask the network for one */
    enum progress_mode progress;
    uint64_t seed;
    const char *plugin[PLUGIN_FLAGS]; /* values of --plugin; cli_parse loads them */
    int plugin_count;
    struct log log;
    const volatile sig_atomic_t *interrupted; /* becomes 1 on Ctrl-C or SIGTERM; NULL: never */
};

enum flag_kind {
    FLAG_TEXT, /* also the kind of a switch, which has no value */
    FLAG_INT,
    FLAG_INTS, /* comma-separated whole numbers, each within min..max */
    FLAG_NUM,
    FLAG_RATIO,   /* "1%" or "0.01" */
    FLAG_BYTES,   /* "8G" */
    FLAG_SECONDS, /* "5m" */
    FLAG_CHOICE
};

struct cli_flag {
    const char *name;  /* "-m" or "--budget"; args_* find the flag by this name */
    const char *alias; /* "--model" or NULL */
    const char *value; /* placeholder in the help, e.g. "FILE"; NULL for a switch */
    const char *help;
    enum flag_kind kind;
    double min, max; /* range of FLAG_INT, FLAG_INTS, FLAG_NUM; both 0: any value */
    const char *const *choices;
    bool many;         /* repeatable; otherwise a second one is an error */
    bool optional;     /* the value may be omitted (then ""), and must follow "=" */
    bool exclusive;    /* at most one flag of the command with this mark may be given */
    const char *needs; /* the flag that it is part of: without that one it is refused; NULL: none */
    bool model;        /* its value is a model: a path or a name (lib/models.h) */
    bool login;        /* credentials and certificates: one line of the short help has all of them */
};

struct cli_args;
/* Config keys as flags of a command: none, one value each, or comma-separated values whose combinations make
 * a grid of configs. */
enum { KNOB_FLAGS_NONE, KNOB_FLAGS_ONE, KNOB_FLAGS_GRID };

/* What people want when they use a command: the groups of `qdyno help`. */
enum command_group {
    GROUP_NONE, /* in `qdyno help --all` only */
    GROUP_MEASURE,
    GROUP_CHOOSE,
    GROUP_USE,
    GROUP_WATCH,
    GROUP_COUNT
};
struct command {
    const char *name;
    const char *arguments;        /* "A B [-w WORKLOAD]" */
    const char *help;             /* one line */
    const struct cli_flag *flags; /* ends with a NULL name; NULL: no flags */
    int (*run)(const struct cli_global *g, const struct cli_args *a);
    bool hidden; /* not in help and completion: the worker */
    enum command_group group;
    bool takes_model;       /* the first argument may be the model, in place of -m */
    bool compares;          /* its arguments are configs to compare: several models are, too */
    bool first_model_opens; /* of two models to compare, the first is -m and "default" */
    int model_args;         /* so many of the first arguments are models */
    int min_args, max_args;
    int knob_flags;      /* KNOB_FLAGS_* */
    unsigned work;       /* FOR_* bits of the config keys that matter for it; 0: FOR_ALL */
    const char *details; /* text below the flags in `help COMMAND` and in the man page; may be NULL */
};
extern const struct command COMMANDS[];
extern const size_t COMMAND_COUNT;
const struct command *command_find(const char *name); /* NULL: unknown */

/* How config keys are spelled as flags of a command. A spelling has one meaning: one that a flag of the
 * command or of every command has is no spelling of a key there. Such a key is set with -C KEY=VALUE. */
enum { KNOB_SPELLINGS = 2, KNOB_SPELLING = 40 };
/* Spelling `which` of a key: 0 its short flag ("-t"), 1 "--KEY". NULL: the command does not take it. */
const char *knob_spelling(const struct command *c, enum knob_id id, int which, char buf[KNOB_SPELLING]);
/* The config key of a word that is n bytes long; -1: the word sets none. */
int knob_of_flag(const struct command *c, const char *word, size_t n);
/* The flag of this name or alias; NULL: none. */
const struct cli_flag *flag_find(const struct cli_flag *list, const char *word, size_t n);

/* Flags of every command; ends with a NULL name. */
extern const struct cli_flag GLOBAL_FLAGS[];

/* A parsed command line. Strings are borrowed from argv, or `owned`. Every value is valid for the kind of its
 * flag. */
enum { ARGS_GIVEN = 64, ARGS_MAX = 64, ARGS_OWNED = 64 };
struct cli_args {
    const struct command *command;
    bool named; /* argv names the command; false: the dashboard by default */
    int given_count, knob_count, n;
    struct {
        const struct cli_flag *flag;
        const char *value;
    } given[ARGS_GIVEN];
    struct {
        enum knob_id id;
        const char *value;
    } knob[KNOB_COUNT];
    const char *arg[ARGS_MAX]; /* positional */
    int owned_count;
    char *owned[ARGS_OWNED]; /* cli_args_done */
};
void cli_args_done(struct cli_args *a);

/* Parses argv. Without a command in argv the command is "dashboard". Also loads the plug-ins, because they
 * add methods that config lines may name. Errors: ERR_USAGE with the flag, the value, what was expected and
 * the nearest spelling; those of plugins_load. */
enum err_code cli_parse(struct cli_global *g, struct cli_args *a, int argc, char **argv, struct err *why);

bool args_has(const struct cli_args *a, const char *flag);
const char *args_text(const struct cli_args *a, const char *flag, const char *otherwise);
int64_t args_int(const struct cli_args *a, const char *flag, int64_t otherwise);
double args_num(const struct cli_args *a, const char *flag, double otherwise); /* also ratio, seconds */
int64_t args_bytes(const struct cli_args *a, const char *flag, int64_t otherwise);
/* All values of a repeatable flag. Returns their number, at most max. */
int args_all(const struct cli_args *a, const char *flag, const char **out, int max);
/* The numbers of a FLAG_INTS value, or of `otherwise` (same syntax). Returns their number, at most max. */
int args_ints(const struct cli_args *a, const char *flag, const char *otherwise, int64_t *out, int max);

/* Append help texts, generated from COMMANDS, GLOBAL_FLAGS and KNOBS. c NULL: the overview of the commands.
 * The short ones fit a screen: at most HELP_SCREEN lines, HELP_COMMAND for a command, with one line for each
 * flag. The others have every command, every flag and the whole texts. */
enum { HELP_SCREEN = 24, HELP_COMMAND = 45 };
void help_short(struct str *out, const struct command *c);
void help_text(struct str *out, const struct command *c);
void help_knobs(struct str *out);
void help_man(struct str *out);

/* The completion script of each shell, by the flag of `qdyno help`; the last row has flag NULL. */
struct completion_script {
    const char *flag, *text;
};
extern const struct completion_script COMPLETION_SCRIPTS[];

#endif
