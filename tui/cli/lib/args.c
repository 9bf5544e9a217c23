/* args.c - argv against the tables: nothing is guessed, nothing is silently ignored, and every refusal names
 * the flag, the value and what would have been right. */
#include "tui/cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/quant.h"

const char *const OUTPUT_NAMES[] = { "md", "json", "jsonl", "csv", "sql", NULL };
const char *const PROGRESS_NAMES[] = { "auto", "json", "off", NULL };
static const char *const LOG_LEVELS[] = { "debug", "info", "warn", "error", "quiet", NULL };

/* clang-format off */
const struct cli_flag GLOBAL_FLAGS[] = {
    { .name = "--db", .value = "FILE",
      .help = "database of what was measured; default $XDG_DATA_HOME/qdyno/qdyno.db" },
    { .name = "-o", .alias = "--output", .value = "FORMAT", .kind = FLAG_CHOICE, .choices = OUTPUT_NAMES,
      .help = "how results are written" },
    { .name = "--quiet", .alias = "-q", .help = "no progress, no notes on stderr" },
    { .name = "--progress", .value = "MODE", .kind = FLAG_CHOICE, .choices = PROGRESS_NAMES,
      .help = "of long work, on stderr: auto = at a terminal, json = a JSON object a line" },
    { .name = "--no-color", .help = "no colour (also: NO_COLOR)" },
    { .name = "--seed", .alias = "-s", .value = "N", .kind = FLAG_INT, .max = 9e18,
      .help = "seed of everything random; default 1" },
    { .name = "--plugin", .value = "FILE", .many = true,
      .help = "a method of your own, a shared library; may be repeated (also: QDYNO_PLUGINS)" },
    { .name = "--log-level", .value = "LEVEL", .kind = FLAG_CHOICE, .choices = LOG_LEVELS,
      .help = "what stderr shows; default warn" },
    { .name = "--version", .help = "print the version" },
    { .name = "--help", .alias = "-h", .help = "help for the command" },
    { .name = NULL },
};
/* clang-format on */

/* What a word that starts with "-" turned out to be. */
struct flag_match {
    const struct cli_flag *flag;
    bool global;
    int knob; /* -1 unless a knob's own flag */
};

static bool name_is(const char *name, const char *word, size_t n)
{
    return name && strlen(name) == n && !memcmp(name, word, n);
}

static const struct cli_flag *flag_in(const struct cli_flag *list, const char *word, size_t n)
{
    for (; list && list->name; list++)
        if (name_is(list->name, word, n) || name_is(list->alias, word, n)) return list;
    return NULL;
}

/* "-t" or "--threads": a knob answers to its llama.cpp-style flag and to its key. */
static int knob_of(const char *word, size_t n)
{
    for (int k = 0; k < KNOB_COUNT; k++) {
        if (k == KNOB_MODEL) continue; /* -m belongs to the commands */
        if (name_is(KNOBS[k].flag, word, n)) return k;
        if (n > 2 && !memcmp(word, "--", 2) && name_is(KNOBS[k].key, word + 2, n - 2)) return k;
    }
    return -1;
}

static bool match_flag(struct flag_match *m, const struct command *c, const char *word, size_t n)
{
    *m = (struct flag_match){ .knob = -1 };
    if (c && (m->flag = flag_in(c->flags, word, n))) return true;
    if (c && c->knob_flags != KNOB_FLAGS_NONE && (m->knob = knob_of(word, n)) >= 0) return true;
    m->flag = flag_in(GLOBAL_FLAGS, word, n);
    m->global = m->flag != NULL;
    return m->global;
}

static bool takes_value(const struct flag_match *m)
{
    return m->knob >= 0 || m->flag->value;
}

static void add_names(const char **names, size_t *n, size_t max, const struct cli_flag *list)
{
    for (; list && list->name && *n + 2 < max; list++) {
        names[(*n)++] = list->name;
        if (list->alias) names[(*n)++] = list->alias;
    }
}

static enum err_code unknown_flag(const struct command *c, const char *word, size_t len, struct err *why)
{
    enum { NAMES = 256 };
    const char *names[NAMES];
    char typed[128], keys[KNOB_COUNT][32];
    size_t n = 0;
    snprintf(typed, sizeof typed, "%.*s", (int)MIN(len, sizeof typed - 1), word);
    if (c) add_names(names, &n, NAMES, c->flags);
    add_names(names, &n, NAMES, GLOBAL_FLAGS);
    for (int k = 0; c && c->knob_flags && k < KNOB_COUNT && n + 2 < NAMES; k++) {
        if (k == KNOB_MODEL) continue;
        snprintf(keys[k], sizeof keys[k], "--%s", KNOBS[k].key);
        names[n++] = keys[k];
        if (KNOBS[k].flag) names[n++] = KNOBS[k].flag;
    }
    const char *near = str_nearest(typed, names, n);
    const char *name = c ? c->name : "";
    if (near)
        return err_set(why, ERR_USAGE, "unknown flag '%s': did you mean '%s'? `qdyno help %s` lists them",
                       typed, near, name);
    return err_set(why, ERR_USAGE, "unknown flag '%s': `qdyno help %s` lists what is allowed", typed, name);
}

static bool ratio_parse(const char *text, double *out)
{
    char digits[64];
    size_t n = strlen(text);
    bool percent = n && text[n - 1] == '%';
    if (n >= sizeof digits) return false;
    memcpy(digits, text, n + 1);
    if (percent) digits[n - 1] = '\0';
    double v;
    if (!str_to_double(digits, &v) || !isfinite(v) || v < 0) return false;
    *out = percent ? v / 100 : v;
    return true;
}

static enum err_code bad_value(const struct cli_flag *f, const char *value, const char *allowed,
                               struct err *why)
{
    return err_set(why, ERR_USAGE, "%s %s: want %s", f->name, *value ? value : "''", allowed);
}

static enum err_code check_number(const struct cli_flag *f, const char *text, const char *whole,
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
        snprintf(allowed, sizeof allowed, "%s from %.10g to %.10g", integer ? "whole numbers" : "a number",
                 f->min, f->max);
    return bad_value(f, whole, allowed, why);
}

static enum err_code check_list(const struct cli_flag *f, const char *value, struct err *why)
{
    for (const char *p = value;;) {
        char item[64];
        size_t n = strcspn(p, ",");
        snprintf(item, sizeof item, "%.*s", (int)MIN(n, sizeof item - 1), p);
        enum err_code rc = check_number(f, item, value, why);
        if (rc) return rc;
        if (!p[n]) return ERR_OK;
        p += n + 1;
    }
}

static enum err_code check_choice(const struct cli_flag *f, const char *value, struct err *why)
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
    enum err_code rc = bad_value(f, value, str_text(&list), why);
    str_free(&list);
    return rc;
}

static enum err_code check_value(const struct cli_flag *f, const char *value, struct err *why)
{
    double d;
    int64_t i;
    switch (f->kind) {
    case FLAG_TEXT: return ERR_OK;
    case FLAG_INT:
    case FLAG_NUM: return check_number(f, value, value, why);
    case FLAG_INTS: return check_list(f, value, why);
    case FLAG_RATIO:
        return ratio_parse(value, &d) ? ERR_OK : bad_value(f, value, "a share such as 1% or 0.01", why);
    case FLAG_BYTES:
        return str_to_bytes(value, &i) && i >= 0 ? ERR_OK
                                                 : bad_value(f, value, "bytes such as 512M or 8G", why);
    case FLAG_SECONDS:
        return str_to_seconds(value, &d) && d > 0 ? ERR_OK
                                                  : bad_value(f, value, "a time such as 90s or 5m", why);
    case FLAG_CHOICE: return check_choice(f, value, why);
    }
    return ERR_OK;
}

static enum err_code apply_global(struct cli_global *g, const struct cli_flag *f, const char *value,
                                  struct err *why)
{
    static const char *const NAMES[] = { "--db",        "-o",        "--quiet",  "--no-color", "--seed",
                                         "--log-level", "--version", "--plugin", "--progress", "--help" };
    size_t which = 0;
    while (strcmp(NAMES[which], f->name)) which++;
    switch (which) {
    case 0: g->db_path = value; break;
    case 1:
        for (int i = 0; OUTPUT_NAMES[i]; i++)
            if (!strcmp(OUTPUT_NAMES[i], value)) g->output = (enum output_format)i;
        g->output_given = true;
        break;
    case 2: g->quiet = true; break;
    case 3: g->no_color = true; break;
    case 4: str_to_u64(value, &g->seed); break;
    case 5: g->log.level = (enum log_level)log_level_parse(value); break;
    case 6: g->version = true; break;
    case 7:
        if (g->plugin_count == PLUGIN_FLAGS)
            return err_set(why, ERR_USAGE, "more than %d times %s", PLUGIN_FLAGS, f->name);
        g->plugin[g->plugin_count++] = value;
        break;
    case 8:
        for (int i = 0; PROGRESS_NAMES[i]; i++)
            if (!strcmp(PROGRESS_NAMES[i], value)) g->progress = (enum progress_mode)i;
        break;
    default: g->help = true; break;
    }
    return ERR_OK;
}

static enum err_code take_knob(struct cli_args *a, int id, const char *value, struct err *why)
{
    for (int i = 0; i < a->knob_count; i++)
        if (a->knob[i].id == (enum knob_id)id)
            return err_set(why, ERR_USAGE, "--%s is given twice (%s and %s)", KNOBS[id].key, a->knob[i].value,
                           value);
    a->knob[a->knob_count].id = (enum knob_id)id;
    a->knob[a->knob_count++].value = value;
    return ERR_OK;
}

/* When all flags are known: what a knob may say depends on plug-ins. */
static enum err_code check_knobs(const struct cli_args *a, struct err *why)
{
    for (int i = 0; i < a->knob_count; i++) {
        if (a->command->knob_flags == KNOB_FLAGS_GRID && strchr(a->knob[i].value, ','))
            continue; /* the grid checks each */
        struct config c;
        config_default(&c);
        enum err_code rc = config_set(&c, KNOBS[a->knob[i].id].key, a->knob[i].value, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

static enum err_code take_flag(struct cli_global *g, struct cli_args *a, const struct flag_match *m,
                               const char *value, struct err *why)
{
    if (m->knob >= 0) return take_knob(a, m->knob, value, why);
    enum err_code rc = check_value(m->flag, value ? value : "", why);
    if (rc) return rc;
    if (m->global) return apply_global(g, m->flag, value, why);
    if (!m->flag->many && args_has(a, m->flag->name) && m->flag->value)
        return err_set(why, ERR_USAGE, "%s is given twice (%s and %s)", m->flag->name,
                       args_text(a, m->flag->name, ""), value);
    if (a->given_count == ARGS_GIVEN) return err_set(why, ERR_USAGE, "more than %d flags", ARGS_GIVEN);
    a->given[a->given_count].flag = m->flag;
    a->given[a->given_count++].value = value;
    return ERR_OK;
}

/* Length of the flag's own name in "--name=value". */
static size_t name_length(const char *word)
{
    return str_starts(word, "--") ? strcspn(word, "=") : strlen(word);
}

static bool is_flag(const char *word)
{
    return word[0] == '-' && word[1];
}

/* The first word that is no flag and no flag's value names the command; -1 when there is none. Before the
 * command is known, only the dashboard's and the global flags can be told apart from their values. */
static int command_at(const struct command *dashboard, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--")) return -1;
        if (!is_flag(argv[i])) return i;
        size_t n = name_length(argv[i]);
        struct flag_match m;
        if (match_flag(&m, dashboard, argv[i], n) && takes_value(&m) && !argv[i][n] &&
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
    if (near) return err_set(why, ERR_USAGE, "unknown command '%s': did you mean '%s'?", word, near);
    return err_set(why, ERR_USAGE, "unknown command '%s': `qdyno help` lists them", word);
}

static enum err_code check_count(const struct cli_args *a, struct err *why)
{
    const struct command *c = a->command;
    if (a->n < c->min_args)
        return err_set(why, ERR_USAGE, "%s needs %d argument%s, got %d: qdyno %s %s", c->name, c->min_args,
                       c->min_args == 1 ? "" : "s", a->n, c->name, c->arguments);
    if (a->n > c->max_args)
        return err_set(why, ERR_USAGE, "'%s' is one argument too many: qdyno %s %s", a->arg[c->max_args],
                       c->name, c->arguments);
    return ERR_OK;
}

static enum err_code take_word(struct cli_global *g, struct cli_args *a, int argc, char **argv, int *i,
                               struct err *why)
{
    const char *word = argv[*i];
    size_t n = name_length(word);
    struct flag_match m;
    if (!match_flag(&m, a->command, word, n)) return unknown_flag(a->command, word, n, why);
    const char *value = word[n] == '=' ? word + n + 1 : NULL;
    if (!takes_value(&m) && value) return err_set(why, ERR_USAGE, "%.*s takes no value", (int)n, word);
    if (m.flag && m.flag->optional && !value) value = "";
    if (takes_value(&m) && !value) {
        if (*i + 1 >= argc)
            return err_set(why, ERR_USAGE, "%s needs a value (%s)", word,
                           m.knob >= 0 ? KNOBS[m.knob].help : m.flag->value);
        value = argv[++*i];
    }
    return take_flag(g, a, &m, value, why);
}

enum err_code cli_parse(struct cli_global *g, struct cli_args *a, int argc, char **argv, struct err *why)
{
    const struct command *dashboard = command_find("dashboard");
    int at = command_at(dashboard, argc, argv);
    bool only_flags = false;
    *a = (struct cli_args){ .command = at < 0 ? dashboard : command_find(argv[at]), .named = at >= 0 };
    if (!a->command) return unknown_command(argv[at], why);
    for (int i = 1; i < argc; i++) {
        if (i == at) continue;
        if (!only_flags && !strcmp(argv[i], "--")) {
            only_flags = true;
        } else if (!only_flags && is_flag(argv[i])) {
            enum err_code rc = take_word(g, a, argc, argv, &i, why);
            if (rc) return rc;
        } else {
            if (a->n == ARGS_MAX) return err_set(why, ERR_USAGE, "more than %d arguments", ARGS_MAX);
            a->arg[a->n++] = argv[i];
        }
    }
    if (g->help || g->version) return ERR_OK;
    enum err_code rc = plugins_load(g->plugin, g->plugin_count, why);
    if (!rc) rc = check_knobs(a, why);
    return rc ? rc : check_count(a, why);
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
            ratio_parse(a->given[i].value, &otherwise);
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
