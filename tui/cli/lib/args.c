/* args.c - parses argv against the tables of commands, flags and knobs. Nothing is guessed or silently
 * ignored: every error names the flag, the value and what was expected. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/quant.h"
#include "tui/cli/lib/lib.h"
#include "tui/cli/lib/models.h"

const char *const OUTPUT_NAMES[] = { "md", "json", "jsonl", "csv", "sql", NULL };
const char *const PROGRESS_NAMES[] = { "auto", "json", "off", NULL };
static const double SECONDS_MOST = 36500.0 * 86400; /* in nanoseconds it still fits in 64 bits */
static const char *const LOG_LEVELS[] = { "debug", "info", "warn", "error", "quiet", NULL };

/* clang-format off */
const struct cli_flag GLOBAL_FLAGS[] = {
    { .name = "--db", .value = "FILE",
      .help = "database of all results; default $XDG_DATA_HOME/qdyno/qdyno.db" },
    { .name = "-o", .alias = "--output", .value = "FORMAT", .kind = FLAG_CHOICE, .choices = OUTPUT_NAMES,
      .help = "format of the results; default md" },
    { .name = "--quiet", .alias = "-q", .help = "print the result and errors only: no progress, notes or warnings on stderr" },
    { .name = "--verbose", .alias = "-v", .help = "also print the details of a result: other statistics, every event, all columns" },
    { .name = "--progress", .value = "MODE", .kind = FLAG_CHOICE, .choices = PROGRESS_NAMES,
      .help = "progress on stderr: auto shows it on a terminal, json writes one JSON object per line" },
    { .name = "--no-color", .help = "use no colours (also: NO_COLOR)" },
    { .name = "--seed", .alias = "-s", .value = "N", .kind = FLAG_INT, .max = 9e18,
      .help = "seed of all random choices; default 1" },
    { .name = "--yes", .help = "fetch the model that a name means without a question, if it is not here" },
    { .name = "--offline", .help = "never fetch a model (also: HF_HUB_OFFLINE=1)" },
    { .name = "--plugin", .value = "FILE", .many = true,
      .help = "load a quantization method from a shared library (also: QDYNO_PLUGINS)" },
    { .name = "--log-level", .value = "LEVEL", .kind = FLAG_CHOICE, .choices = LOG_LEVELS,
      .help = "least severe messages on stderr; default warn" },
    { .name = "--version", .help = "print the version" },
    { .name = "--help", .alias = "-h", .help = "print the help of the command" },
    { .name = NULL },
};
/* clang-format on */

/* The meaning of a word that starts with "-". */
struct flag_match {
    const struct cli_flag *flag;
    bool global;
    int knob; /* enum knob_id; -1: not a knob flag */
};

static bool name_equals(const char *name, const char *word, size_t n)
{
    return name && strlen(name) == n && !memcmp(name, word, n);
}

const struct cli_flag *flag_find(const struct cli_flag *list, const char *word, size_t n)
{
    for (; list && list->name; list++)
        if (name_equals(list->name, word, n) || name_equals(list->alias, word, n)) return list;
    return NULL;
}

const char *knob_spelling(const struct command *c, enum knob_id id, int which, char buf[KNOB_SPELLING])
{
    const char *word = KNOBS[id].flag;
    if (c->knob_flags == KNOB_FLAGS_NONE || id == KNOB_MODEL) return NULL; /* -m is a flag of the commands */
    if (which) {
        snprintf(buf, KNOB_SPELLING, "--%s", KNOBS[id].key);
        word = buf;
    }
    if (!word || flag_find(c->flags, word, strlen(word)) || flag_find(GLOBAL_FLAGS, word, strlen(word)))
        return NULL;
    return word;
}

int knob_of_flag(const struct command *c, const char *word, size_t n)
{
    char buf[KNOB_SPELLING];
    for (int k = 0; k < KNOB_COUNT; k++)
        for (int s = 0; s < KNOB_SPELLINGS; s++)
            if (name_equals(knob_spelling(c, (enum knob_id)k, s, buf), word, n)) return k;
    return -1;
}

static bool flag_match(struct flag_match *m, const struct command *c, const char *word, size_t n)
{
    *m = (struct flag_match){ .knob = -1 };
    if (c && (m->flag = flag_find(c->flags, word, n))) return true;
    if (c && (m->knob = knob_of_flag(c, word, n)) >= 0) return true;
    m->flag = flag_find(GLOBAL_FLAGS, word, n);
    m->global = m->flag != NULL;
    return m->global;
}

static bool flag_takes_value(const struct flag_match *m)
{
    return m->knob >= 0 ? !KNOBS[m->knob].bare : m->flag->value != NULL;
}

static void flag_names_append(const char **names, size_t *n, size_t max, const struct cli_flag *list)
{
    for (; list && list->name && *n + 2 < max; list++) {
        names[(*n)++] = list->name;
        if (list->alias) names[(*n)++] = list->alias;
    }
}

/* The error for a flag that nothing knows, with the nearest spelling. */
static enum err_code unknown_flag(const struct command *c, const char *word, size_t len, struct err *why)
{
    enum { NAMES = 256 };
    const char *names[NAMES];
    char typed[128], keys[KNOB_COUNT][KNOB_SPELLING];
    size_t n = 0;
    snprintf(typed, sizeof typed, "%.*s", (int)MIN(len, sizeof typed - 1), word);
    if (c) flag_names_append(names, &n, NAMES, c->flags);
    flag_names_append(names, &n, NAMES, GLOBAL_FLAGS);
    for (int k = 0; c && k < KNOB_COUNT; k++)
        for (int s = KNOB_SPELLINGS - 1; s >= 0 && n < NAMES; s--)
            if ((names[n] = knob_spelling(c, (enum knob_id)k, s, keys[k]))) n++;
    const struct knob_name *other = c && c->knob_flags ? knob_name_find(typed) : NULL;
    if (other && other->instead)
        return err_set(why, ERR_USAGE, "unknown flag '%s' (%s): %s", typed, other->program, other->instead);
    if (other)
        return err_set(why, ERR_USAGE, "unknown flag '%s' (%s): here it is --%s", typed, other->program,
                       KNOBS[other->knob].key);
    const char *near = str_nearest(typed, names, n);
    const char *name = c ? c->name : "";
    if (near)
        return err_set(why, ERR_USAGE, "unknown flag '%s': did you mean '%s'? `qdyno help %s` lists them",
                       typed, near, name);
    return err_set(why, ERR_USAGE, "unknown flag '%s': `qdyno help %s` lists the flags", typed, name);
}

static enum err_code value_error(const struct cli_flag *f, const char *value, const char *allowed,
                                 struct err *why)
{
    return err_set(why, ERR_USAGE, "%s %s: expected %s", f->name, *value ? value : "''", allowed);
}

/* Checks one number, `text`, against the flag's range; the message shows `whole`, the value as given. */
static enum err_code number_check(const struct cli_flag *f, const char *text, const char *whole,
                                  struct err *why)
{
    char allowed[96];
    bool any = f->min == 0 && f->max == 0, integer = f->kind != FLAG_NUM;
    int64_t i = 0;
    double v = NAN;
    bool ok = integer ? str_to_i64(text, &i) : str_to_double(text, &v) && isfinite(v);
    if (ok && integer) v = (double)i;
    if (ok && (any || (v >= f->min && v <= f->max))) return ERR_OK;
    if (any)
        snprintf(allowed, sizeof allowed, "a%s number", integer ? " whole" : "");
    else
        snprintf(allowed, sizeof allowed, "%s from %.10g to %.10g",
                 f->kind == FLAG_INTS ? "whole numbers"
                 : integer            ? "a whole number"
                                      : "a number",
                 f->min, f->max);
    return value_error(f, whole, allowed, why);
}

static enum err_code number_list_check(const struct cli_flag *f, const char *value, struct err *why)
{
    for (const char *p = value;;) {
        char item[64];
        size_t n = strcspn(p, ",");
        snprintf(item, sizeof item, "%.*s", (int)MIN(n, sizeof item - 1), p);
        enum err_code rc = number_check(f, item, value, why);
        if (rc) return rc;
        if (!p[n]) return ERR_OK;
        p += n + 1;
    }
}

static enum err_code choice_check(const struct cli_flag *f, const char *value, struct err *why)
{
    struct str list = { 0 };
    size_t n = 0;
    for (; f->choices[n]; n++) {
        if (!strcmp(f->choices[n], value)) {
            str_free(&list);
            return ERR_OK;
        }
        str_printf(&list, "%s%s", n ? ", " : "one of ", f->choices[n]);
    }
    const char *near = str_nearest(value, f->choices, n);
    if (near) str_printf(&list, " (did you mean '%s'?)", near);
    enum err_code rc = value_error(f, value, str_text(&list), why);
    str_free(&list);
    return rc;
}

static enum err_code value_check(const struct cli_flag *f, const char *value, struct err *why)
{
    double d;
    int64_t i;
    switch (f->kind) {
    case FLAG_TEXT: return ERR_OK;
    case FLAG_INT:
    case FLAG_NUM: return number_check(f, value, value, why);
    case FLAG_INTS: return number_list_check(f, value, why);
    case FLAG_RATIO:
        return str_to_ratio(value, &d) ? ERR_OK : value_error(f, value, "a share such as 1% or 0.01", why);
    case FLAG_BYTES:
        return str_to_bytes(value, &i) && i >= 0 ? ERR_OK
                                                 : value_error(f, value, "bytes such as 512M or 8G", why);
    case FLAG_SECONDS:
        return str_to_seconds(value, &d) && d > 0 && d <= SECONDS_MOST
                   ? ERR_OK
                   : value_error(f, value, "a time such as 90s or 5m, at most 36500d", why);
    case FLAG_CHOICE: return choice_check(f, value, why);
    }
    return ERR_OK;
}

/* Index of a value that choice_check accepted. */
static int choice_index(const char *const *choices, const char *value)
{
    int i = 0;
    while (strcmp(choices[i], value)) i++;
    return i;
}

static enum err_code global_flag_apply(struct cli_global *g, const struct cli_flag *f, const char *value,
                                       struct err *why)
{
    const char *name = f->name;
    if (!strcmp(name, "--db")) g->db_path = value;
    if (!strcmp(name, "--verbose")) {
        g->verbose = true;
    } else if (!strcmp(name, "--quiet")) {
        g->quiet = true;
        g->log.level = MAX(g->log.level, LOG_ERROR);
    }
    if (!strcmp(name, "--no-color")) g->no_color = true;
    if (!strcmp(name, "--seed")) str_to_u64(value, &g->seed);
    if (!strcmp(name, "--log-level")) g->log.level = (enum log_level)log_level_parse(value);
    if (!strcmp(name, "--yes")) g->yes = true;
    if (!strcmp(name, "--offline")) g->offline = true;
    if (!strcmp(name, "--version")) g->version = true;
    if (!strcmp(name, "--help")) g->help = true;
    if (!strcmp(name, "--progress")) g->progress = (enum progress_mode)choice_index(PROGRESS_NAMES, value);
    if (!strcmp(name, "-o")) {
        g->output = (enum output_format)choice_index(OUTPUT_NAMES, value);
        g->output_given = true;
    }
    if (!strcmp(name, "--plugin")) {
        if (g->plugin_count == PLUGIN_FLAGS)
            return err_set(why, ERR_USAGE, "%s is given more than %d times", name, PLUGIN_FLAGS);
        g->plugin[g->plugin_count++] = value;
    }
    return ERR_OK;
}

static enum err_code knob_add(struct cli_args *a, int id, const char *value, struct err *why)
{
    for (int i = 0; i < a->knob_count; i++)
        if (a->knob[i].id == (enum knob_id)id)
            return err_set(why, ERR_USAGE, "--%s is given twice (%s and %s)", KNOBS[id].key, a->knob[i].value,
                           value);
    a->knob[a->knob_count].id = (enum knob_id)id;
    a->knob[a->knob_count++].value = value;
    return ERR_OK;
}

/* Checks the values of all knob flags. Called after all plug-ins are loaded, because they add methods and
 * parameters. */
static enum err_code knobs_check(const struct cli_args *a, struct err *why)
{
    for (int i = 0; i < a->knob_count; i++) {
        if (a->command->knob_flags == KNOB_FLAGS_GRID && strchr(a->knob[i].value, ','))
            continue; /* cli_config_grid checks each value of the list */
        struct config c;
        config_default(&c);
        enum err_code rc = config_set(&c, KNOBS[a->knob[i].id].key, a->knob[i].value, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

static enum err_code flag_add(struct cli_global *g, struct cli_args *a, const struct flag_match *m,
                              const char *value, struct err *why)
{
    if (m->knob >= 0) return knob_add(a, m->knob, value, why);
    enum err_code rc = value_check(m->flag, value ? value : "", why);
    if (rc) return rc;
    if (m->global) return global_flag_apply(g, m->flag, value, why);
    if (!m->flag->many && args_has(a, m->flag->name) && m->flag->value) {
        char first[HTTP_SHOWN_MAX], second[HTTP_SHOWN_MAX];
        return err_set(why, ERR_USAGE, "%s is given twice (%s and %s)", m->flag->name,
                       cli_word_shown(args_text(a, m->flag->name, ""), first), cli_word_shown(value, second));
    }
    if (a->given_count == ARGS_GIVEN)
        return err_set(why, ERR_USAGE, "more than %d flags are given", ARGS_GIVEN);
    a->given[a->given_count].flag = m->flag;
    a->given[a->given_count++].value = value;
    return ERR_OK;
}

/* Length of the name in "--name=value". */
static size_t flag_name_length(const char *word)
{
    return str_starts(word, "--") ? strcspn(word, "=") : strlen(word);
}

static bool is_flag(const char *word)
{
    return word[0] == '-' && word[1];
}

/* Index of the word that names the command: the first one that is neither a flag nor the value of a flag; -1:
 * none. Flags in front of the command can only be global flags or those of the dashboard. */
static int command_index(const struct command *dashboard, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--")) return -1;
        if (!is_flag(argv[i])) return i;
        size_t n = flag_name_length(argv[i]);
        struct flag_match m;
        if (flag_match(&m, dashboard, argv[i], n) && flag_takes_value(&m) && !argv[i][n] &&
            !(m.flag && m.flag->optional))
            i++;
    }
    return -1;
}

static enum err_code unknown_command(const char *word, struct err *why)
{
    const char *names[64];
    size_t n = 0;
    for (size_t i = 0; i < COMMAND_COUNT && n < COUNT_OF(names); i++)
        if (!COMMANDS[i].hidden) names[n++] = COMMANDS[i].name;
    const char *near = str_nearest(word, names, n);
    char shown[HTTP_SHOWN_MAX];
    word = cli_word_shown(word, shown);
    if (near) return err_set(why, ERR_USAGE, "unknown command '%s': did you mean '%s'?", word, near);
    return err_set(why, ERR_USAGE,
                   "unknown command '%s': `qdyno help` lists the commands; if it is a model, give -m %s",
                   word, word);
}

static enum err_code argument_count_check(const struct cli_args *a, struct err *why)
{
    const struct command *c = a->command;
    char shown[HTTP_SHOWN_MAX];
    if (a->n < c->min_args)
        return err_set(why, ERR_USAGE, "%s needs %d argument%s, got %d; usage: qdyno %s %s", c->name,
                       c->min_args, c->min_args == 1 ? "" : "s", a->n, c->name, c->arguments);
    if (a->n > c->max_args)
        return err_set(why, ERR_USAGE, "'%s' is one argument too many; usage: qdyno %s %s",
                       cli_word_shown(a->arg[c->max_args], shown), c->name, c->arguments);
    return ERR_OK;
}

/* Parses the flag at argv[*i], and its value, for which *i moves on. */
static enum err_code flag_parse(struct cli_global *g, struct cli_args *a, int argc, char **argv, int *i,
                                struct err *why)
{
    const char *word = argv[*i];
    size_t n = flag_name_length(word);
    struct flag_match m;
    if (!flag_match(&m, a->command, word, n)) return unknown_flag(a->command, word, n, why);
    const char *value = word[n] == '=' ? word + n + 1 : NULL;
    if (m.knob >= 0 && !value) value = KNOBS[m.knob].bare;
    if (m.flag && !flag_takes_value(&m) && value)
        return err_set(why, ERR_USAGE, "%.*s takes no value", (int)n, word);
    if (m.flag && m.flag->optional && !value) value = "";
    if (flag_takes_value(&m) && !value) {
        if (*i + 1 >= argc)
            return err_set(why, ERR_USAGE, "%s needs a value (%s)", word,
                           m.knob >= 0 ? KNOBS[m.knob].help : m.flag->value);
        value = argv[++*i];
    }
    return flag_add(g, a, &m, value, why);
}

/* ERR_USAGE for flags that would be ignored silently: without the one that they are part of, or beside one
 * that excludes them. */
static enum err_code flags_together_check(const struct cli_args *a, struct err *why)
{
    const struct cli_flag *only = NULL;
    for (int i = 0; i < a->given_count; i++) {
        const struct cli_flag *f = a->given[i].flag;
        const struct cli_flag *of = f->needs ? flag_find(a->command->flags, f->needs, strlen(f->needs))
                                             : NULL;
        if (of && !args_has(a, of->name))
            return err_set(why, ERR_USAGE, "%s needs %s%s%s", f->name, of->name, of->value ? " " : "",
                           of->value ? of->value : "");
        if (f->exclusive && only && only != f)
            return err_set(why, ERR_USAGE, "%s and %s exclude each other: give one of them", only->name,
                           f->name);
        if (f->exclusive) only = f;
    }
    return ERR_OK;
}

enum err_code cli_parse(struct cli_global *g, struct cli_args *a, int argc, char **argv, struct err *why)
{
    const struct command *dashboard = command_find("dashboard");
    int at = command_index(dashboard, argc, argv);
    bool only_flags = false;
    *a = (struct cli_args){ .command = at < 0 ? dashboard : command_find(argv[at]), .named = at >= 0 };
    if (!a->command && cli_word_is_model(argv[at])) { /* `qdyno model.gguf` */
        *a = (struct cli_args){ .command = dashboard };
        at = -1;
    }
    if (!a->command) return unknown_command(argv[at], why);
    for (int i = 1; i < argc; i++) {
        if (i == at) continue;
        if (!only_flags && !strcmp(argv[i], "--")) {
            only_flags = true;
        } else if (!only_flags && is_flag(argv[i])) {
            enum err_code rc = flag_parse(g, a, argc, argv, &i, why);
            if (rc) return rc;
        } else {
            if (a->n == ARGS_MAX)
                return err_set(why, ERR_USAGE, "more than %d arguments are given", ARGS_MAX);
            a->arg[a->n++] = argv[i];
        }
    }
    if (g->help || g->version) return ERR_OK;
    enum err_code rc = plugins_load(g->plugin, g->plugin_count, why);
    if (!rc) rc = knobs_check(a, why);
    if (!rc) rc = cli_models_take(a, why);
    if (!rc) rc = flags_together_check(a, why);
    return rc ? rc : argument_count_check(a, why);
}

bool args_has(const struct cli_args *a, const char *flag)
{
    return args_text(a, flag, NULL) != NULL;
}

const char *args_text(const struct cli_args *a, const char *flag, const char *otherwise)
{
    for (int i = a->given_count - 1; i >= 0; i--)
        if (!strcmp(a->given[i].flag->name, flag)) return a->given[i].value ? a->given[i].value : "";
    return otherwise;
}

int64_t args_int(const struct cli_args *a, const char *flag, int64_t otherwise)
{
    const char *text = args_text(a, flag, NULL);
    if (text) str_to_i64(text, &otherwise);
    return otherwise;
}

double args_num(const struct cli_args *a, const char *flag, double otherwise)
{
    for (int i = a->given_count - 1; i >= 0; i--) {
        if (strcmp(a->given[i].flag->name, flag)) continue;
        enum flag_kind kind = a->given[i].flag->kind;
        if (kind == FLAG_RATIO)
            str_to_ratio(a->given[i].value, &otherwise);
        else if (kind == FLAG_SECONDS)
            str_to_seconds(a->given[i].value, &otherwise);
        else
            str_to_double(a->given[i].value, &otherwise);
        break;
    }
    return otherwise;
}

int64_t args_bytes(const struct cli_args *a, const char *flag, int64_t otherwise)
{
    const char *text = args_text(a, flag, NULL);
    if (text) str_to_bytes(text, &otherwise);
    return otherwise;
}

int args_all(const struct cli_args *a, const char *flag, const char **out, int max)
{
    int n = 0;
    for (int i = 0; i < a->given_count && n < max; i++)
        if (!strcmp(a->given[i].flag->name, flag)) out[n++] = a->given[i].value;
    return n;
}

int args_ints(const struct cli_args *a, const char *flag, const char *otherwise, int64_t *out, int max)
{
    int n = 0;
    for (const char *p = args_text(a, flag, otherwise); *p && n < max;) {
        char item[64];
        size_t len = strcspn(p, ",");
        snprintf(item, sizeof item, "%.*s", (int)MIN(len, sizeof item - 1), p);
        if (str_to_i64(item, &out[n])) n++;
        p += len;
        if (*p) p++;
    }
    return n;
}
