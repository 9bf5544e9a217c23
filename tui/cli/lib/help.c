/* help.c - help and man page of commands, generated from COMMANDS, GLOBAL_FLAGS, KNOBS and HELP_EXAMPLES, so
 * that every flag is documented. */

#include <string.h>

#include "engine/config/config.h"
#include "tui/cli/lib/help.h"

/* The exit statuses of all commands (enum exit_status). */
const struct help_row HELP_EXITS[] = {
    { "0", "success; for a comparison: better or equivalent" },
    { "1", "worse, or a check failed" },
    { "2", "inconclusive" },
    { "3", "the measurement is invalid" },
    { "4", "wrong usage: the message names the flag, the value and what was expected" },
    { "5", "bad input file" },
    { "6", "does not fit in memory or on disk, or into a limit of processes or open files" },
    { "7", "a device or the network is missing" },
    { "70", "internal error" },
    { "130", "interrupted" },
    { NULL, NULL },
};

const struct help_row HELP_ENVIRONMENT[] = {
    { "QDYNO_ISA", "Instruction sets that may be used; can only hide some, not add any." },
    { "QDYNO_SHARE", "Folder of installed data." },
    { "QDYNO_PERIODS", "Periods of sensors, SENSOR=MS,SENSOR=MS, for every command that samples." },
    { "QDYNO_PLUGINS", "Plug-ins that are loaded, paths separated by colons." },
    { "QDYNO_MPIRUN, QDYNO_MPI_MODULE",
      "Paths of mpirun and of qdyno_mpi.so, for several processes (docs/ranks.md)." },
    { "QDYNO_RANKS_TIMEOUT", "Seconds without a sign of life after which such processes are ended." },
    { "QDYNO_GLYPHS", "Characters of the dashboard: ascii, blocks or braille." },
    { "QDYNO_CACHE_LIMIT", "Most bytes of the cache of quantized copies." },
    { "QDYNO_NVML, QDYNO_ROCM_SMI, QDYNO_OPENCL", "Paths of the libraries that report about GPUs." },
    { "QDYNO_PUSH_URL, QDYNO_PUSH_USER, QDYNO_PUSH_PASSWORD, QDYNO_PUSH_BEARER, QDYNO_PUSH_CA",
      "Defaults of --url and of the secrets of qdyno push and prune." },
    { "OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _TIMEOUT, _CERTIFICATE ...",
      "The OpenTelemetry collector, its credentials and limits; see docs/monitoring.md." },
    { "OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES", "Names of this sender for an OpenTelemetry collector." },
    { "XDG_DATA_HOME, XDG_CACHE_HOME, XDG_CONFIG_HOME",
      "Folders of the database, of quantized copies, of saved configs." },
    { "NO_COLOR", "Any value: use no colours." },
    { NULL, NULL },
};

/* ---------------------------------------------------------------- plain text */

/* Appends `text` wrapped at HELP_WIDTH. The cursor is in `column`; further lines start at `indent`. */
void help_wrap_to(struct str *out, const char *text, int indent, int column, int width)
{
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (column + (int)n > width && column > indent) {
            if (out->len && out->data[out->len - 1] == ' ') out->data[--out->len] = '\0';
            str_printf(out, "\n%*s", indent, "");
            column = indent;
        }
        str_append_n(out, text, n);
        column += (int)n;
        text += n;
        if (*text == '\n') {
            str_printf(out, "\n%*s", indent, "");
            column = indent;
            text++;
        } else if (*text == ' ') {
            str_append(out, " ");
            column++;
            text++;
        }
    }
    str_append(out, "\n");
}

void help_wrap(struct str *out, const char *text, int indent, int column)
{
    help_wrap_to(out, text, indent, column, HELP_WIDTH);
}

/* A long name gets a line of its own, so that the texts stay in one column. */
void help_line(struct str *out, const char *name, const char *text)
{
    str_printf(out, "  %-*s", HELP_NAMES, name);
    int used = (int)strlen(name);
    if (used >= HELP_NAMES) str_printf(out, "\n%*s", HELP_NAMES + 2, "");
    str_append(out, "  ");
    help_wrap(out, text, HELP_NAMES + 4, HELP_NAMES + 4);
}

void help_paragraph(struct str *out, const char *text)
{
    help_wrap(out, text, 0, 0);
    str_append(out, "\n");
}

static void choices_append(struct str *out, const char *const *choices)
{
    for (size_t i = 0; choices && choices[i]; i++) str_printf(out, "%s%s", i ? "|" : "", choices[i]);
}

void help_flag_name(struct str *out, const struct cli_flag *f)
{
    str_printf(out, "%s", f->name);
    if (f->alias) str_printf(out, ", %s", f->alias);
    if (f->value) str_printf(out, f->optional ? "[=%s]" : " %s", f->value);
}

static void flag_help(struct str *out, const struct cli_flag *f)
{
    str_append(out, f->help);
    if (f->kind == FLAG_CHOICE) {
        str_append(out, "; one of ");
        choices_append(out, f->choices);
    }
    if (f->many) str_append(out, " (repeatable)");
}

/* As a flag of the command: "-t, --KEY[=VALUE]", the value in brackets where the key alone has a meaning
 * (knob->bare). Nothing where only a config line sets the key. */
static void knob_name(struct str *out, const struct command *c, enum knob_id id)
{
    char buf[KNOB_SPELLING];
    const struct knob *k = &KNOBS[id];
    for (int s = 0; s < KNOB_SPELLINGS; s++) {
        const char *word = knob_spelling(c, id, s, buf);
        if (word) str_printf(out, "%s%s", out->len ? ", " : "", word);
    }
    if (out->len)
        str_printf(out, k->bare ? "[=%s]" : " %s",
                   k->kind == VALUE_INT      ? "N"
                   : k->kind == VALUE_CHOICE ? "NAME"
                                             : "TEXT");
}

void help_taken_keys(struct str *out, const struct command *c)
{
    struct str keys = { 0 };
    char buf[KNOB_SPELLING];
    const char *lead = flag_find(c->flags, "-C", 2) ? "-C " : "";
    for (int k = 0; k < KNOB_COUNT && c->knob_flags != KNOB_FLAGS_NONE; k++)
        if (k != KNOB_MODEL && !knob_spelling(c, (enum knob_id)k, 1, buf))
            str_printf(&keys, "%s%s%s=VALUE", keys.len ? ", " : "", lead, KNOBS[k].key);
    if (keys.len)
        str_printf(out, "Config keys with the name of a flag above are set in a config line: %s\n",
                   str_text(&keys));
    str_free(&keys);
}

static void knob_choices_append(struct str *out, enum knob_id id)
{
    const char *names[64];
    size_t n = MIN(knob_choices(id, names, COUNT_OF(names)), COUNT_OF(names));
    for (size_t i = 0; i < n; i++) str_printf(out, "%s%s", i ? "|" : "", names[i]);
}

/* What the key accepts and what holds without it, so that nobody has to look it up elsewhere. */
static void knob_range(struct str *out, const struct knob *k)
{
    if (k->kind == VALUE_INT)
        str_printf(out, "; %lld to %lld%s%s", (long long)k->min, (long long)k->max, *k->unit ? " " : "",
                   k->unit);
    if (k->kind == VALUE_CHOICE) {
        str_append(out, "; ");
        knob_choices_append(out, (enum knob_id)(k - KNOBS));
    }
    str_printf(out, "; default %s", *k->otherwise ? k->otherwise : "none");
    if (k->changes_answers) str_append(out, "; can change answers");
}

/* Nothing for a command without flags. */
static void flags_text(struct str *out, const char *title, const struct cli_flag *flags)
{
    if (!flags || !flags->name) return;
    str_printf(out, "\n%s\n", title);
    for (; flags->name; flags++) {
        struct str name = { 0 }, text = { 0 };
        help_flag_name(&name, flags);
        flag_help(&text, flags);
        help_line(out, str_text(&name), str_text(&text));
        str_free(&name);
        str_free(&text);
    }
}

/* Those that matter for what the command does. */
static void knob_flags_text(struct str *out, const struct command *c)
{
    const unsigned work = c->work ? c->work : (unsigned)FOR_ALL;
    bool all = true;
    str_append(out, "\nConfig flags: defaults for every config line (a value in the line itself wins)\n");
    for (int k = 0; k < KNOB_COUNT; k++) {
        all &= (KNOBS[k].matters_for & work) != 0;
        struct str name = { 0 }, text = { 0 };
        if (KNOBS[k].matters_for & work) knob_name(&name, c, (enum knob_id)k);
        if (name.len) {
            str_append(&text, KNOBS[k].help);
            knob_range(&text, &KNOBS[k]);
            help_line(out, str_text(&name), str_text(&text));
        }
        str_free(&name);
        str_free(&text);
    }
    struct str taken = { 0 };
    help_taken_keys(&taken, c);
    if (taken.len) str_printf(out, "  %s", str_text(&taken));
    str_free(&taken);
    if (!all) str_append(out, "  `qdyno help configs` lists all keys.\n");
}

void help_examples(struct str *out, const struct command *c)
{
    enum { LINE = 58 };
    bool any = false;
    for (size_t i = 0; i < HELP_EXAMPLE_COUNT; i++) {
        const struct help_example *e = &HELP_EXAMPLES[i];
        if (strcmp(e->command, c->name)) continue;
        if (!any) str_append(out, "Examples\n");
        any = true;
        if (strlen(e->line) > LINE)
            str_printf(out, "  qdyno %s\n  %*s  %s\n", e->line, LINE + (int)strlen("qdyno "), "", e->what);
        else
            str_printf(out, "  qdyno %-*s  %s\n", LINE, e->line, e->what);
    }
    if (any) str_append(out, "\n");
}

/* `qdyno help configs`: all keys, also those that a single command hides. */
void help_knobs(struct str *out)
{
    str_append(out, "A config line is `key=value` pairs, comma- or space-separated, in any order:\n"
                    "  q8_0,threads=2,kv=q8_0\n"
                    "A format or method name alone is a recipe. `kv=TYPE` sets both ctk and ctv.\n\nKeys\n");
    for (int k = 0; k < KNOB_COUNT; k++) {
        struct str text = { 0 };
        str_append(&text, KNOBS[k].help);
        knob_range(&text, &KNOBS[k]);
        char names[512];
        if (*knob_names_text((enum knob_id)k, names, sizeof names))
            str_printf(&text, " (in other programs: %s)", names);
        help_line(out, KNOBS[k].key, str_text(&text));
        str_free(&text);
    }
}

static void help_overview(struct str *out)
{
    str_append(
        out, "qdyno - measures speed, quality and cost of each way to run a language model on this "
             "machine\n\nusage: qdyno [COMMAND] [flags]      without a command: the dashboard\n\nCommands\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!COMMANDS[i].hidden) help_line(out, COMMANDS[i].name, COMMANDS[i].help);
    flags_text(out, "Flags of every command", GLOBAL_FLAGS);
    str_append(
        out,
        "\n`qdyno help COMMAND` describes a command, `qdyno help topics` lists what else is explained.\n\nExit status\n");
    for (const struct help_row *r = HELP_EXITS; r->name; r++) help_line(out, r->name, r->text);
}

void help_text(struct str *out, const struct command *c)
{
    if (!c) {
        help_overview(out);
        return;
    }
    str_printf(out, "qdyno %s - %s\n\n", c->name, c->help);
    help_examples(out, c);
    str_printf(out, "usage: qdyno %s %s\n", c->name, c->arguments);
    flags_text(out, "Flags", c->flags);
    if (c->knob_flags != KNOB_FLAGS_NONE) knob_flags_text(out, c);
    if (c->knob_flags == KNOB_FLAGS_GRID)
        str_append(out, "  Comma-separated values make a grid: every combination is measured.\n");
    flags_text(out, "Flags of every command", GLOBAL_FLAGS);
    if (c->details) {
        str_append(out, "\n");
        help_wrap(out, c->details, 0, 0);
    }
}

/* ---------------------------------------------------------------- man page */

/* Appends text with roff's special characters escaped. */
static void roff_text(struct str *out, const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\'')) str_append(out, "\\&");
        start = *text == '\n';
        if (*text == '\\')
            str_append(out, "\\e");
        else if (*text == '-')
            str_append(out, "\\-");
        else if (*text == '|')
            str_append(out, "|\\:"); /* allows a line break in a long list of choices */
        else
            str_append_n(out, text, 1);
    }
}

/* A tagged paragraph: the name in bold, the text indented below it. */
static void roff_item(struct str *out, const char *name, const char *text)
{
    str_append(out, ".TP\n.B ");
    roff_text(out, name);
    str_append(out, "\n");
    roff_text(out, text);
    str_append(out, "\n");
}

static void roff_flags(struct str *out, const struct cli_flag *flags)
{
    for (; flags && flags->name; flags++) {
        struct str name = { 0 }, text = { 0 };
        help_flag_name(&name, flags);
        flag_help(&text, flags);
        roff_item(out, str_text(&name), str_text(&text));
        str_free(&name);
        str_free(&text);
    }
}

/* The same examples as in the help of the command. */
static void roff_examples(struct str *out, const struct command *c)
{
    char line[300];
    for (size_t i = 0; i < HELP_EXAMPLE_COUNT; i++) {
        if (strcmp(HELP_EXAMPLES[i].command, c->name)) continue;
        snprintf(line, sizeof line, "qdyno %s", HELP_EXAMPLES[i].line);
        roff_item(out, line, HELP_EXAMPLES[i].what);
    }
}

static void roff_command(struct str *out, const struct command *c)
{
    str_append(out, ".SS \"qdyno ");
    roff_text(out, c->name);
    str_append(out, " ");
    roff_text(out, c->arguments);
    str_append(out, "\"\n");
    roff_text(out, c->help);
    str_append(out, ".\n");
    roff_flags(out, c->flags);
    roff_examples(out, c);
    if (c->knob_flags != KNOB_FLAGS_NONE)
        str_append(out, ".PP\nAlso takes the config keys as flags (see CONFIG LINES).\n");
    struct str taken = { 0 };
    help_taken_keys(&taken, c);
    roff_text(out, str_text(&taken));
    str_free(&taken);
    if (c->details) {
        str_append(out, ".PP\n");
        roff_text(out, c->details);
        str_append(out, "\n");
    }
}

void help_man(struct str *out)
{
    str_append(
        out,
        ".TH QDYNO 1 \"\" \"qdyno " QDYNO_VERSION "\" \"User Commands\"\n.ad l\n.SH NAME\nqdyno \\- measures "
        "speed, quality and cost of each way to run a language model on this machine\n.SH SYNOPSIS\n.B "
        "qdyno\n[\\fICOMMAND\\fR] [\\fIflags\\fR]\n.SH DESCRIPTION\nWithout a command, opens the dashboard. "
        "Without \\fB\\-m\\fR, uses the bundled model. Results go to standard output, progress and "
        "warnings to standard error.\n.SH COMMANDS\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!COMMANDS[i].hidden) roff_command(out, &COMMANDS[i]);
    str_append(out, ".SH FLAGS OF EVERY COMMAND\n");
    roff_flags(out, GLOBAL_FLAGS);
    str_append(
        out,
        ".SH CONFIG LINES\nPairs key=value, comma- or space-separated, in any order; a format or "
        "method name alone is a recipe; kv=TYPE sets both ctk and ctv. Commands that take config lines also take "
        "each key as a flag, which is the default for every line.\n");
    for (int k = 0; k < KNOB_COUNT; k++) {
        struct str name = { 0 }, text = { 0 };
        str_append(&name, KNOBS[k].key);
        if (KNOBS[k].flag) str_printf(&name, " (%s)", KNOBS[k].flag);
        str_append(&text, KNOBS[k].help);
        knob_range(&text, &KNOBS[k]);
        roff_item(out, str_text(&name), str_text(&text));
        str_free(&name);
        str_free(&text);
    }
    str_append(out, ".SH EXIT STATUS\n");
    for (const struct help_row *r = HELP_EXITS; r->name; r++) roff_item(out, r->name, r->text);
    str_append(out, ".SH ENVIRONMENT\n");
    for (const struct help_row *r = HELP_ENVIRONMENT; r->name; r++) roff_item(out, r->name, r->text);
}
