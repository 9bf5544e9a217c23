/* help.c - help, man page and completion as loops over COMMANDS, GLOBAL_FLAGS and KNOBS: a flag that is not
 * in a table does not exist, and one that is cannot be undocumented. */
#include "tui/cli/cli.h"

#include <string.h>

enum { FLAG_WIDTH = 26, TEXT_WIDTH = 100 };

/* ---------------------------------------------------------------- plain text */

/* `text` behind a column of FLAG_WIDTH + 4, wrapped. */
static void wrapped(struct str *out, const char *text, int indent, int column)
{
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (column + (int)n > TEXT_WIDTH && column > indent) {
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

static void line(struct str *out, const char *name, const char *text)
{
    str_printf(out, "  %-*s", FLAG_WIDTH, name);
    int used = (int)strlen(name);
    if (used >= FLAG_WIDTH) str_printf(out, "\n%*s", FLAG_WIDTH + 2, "");
    str_append(out, "  ");
    wrapped(out, text, FLAG_WIDTH + 4, FLAG_WIDTH + 4);
}

static void choices_of(struct str *out, const char *const *choices)
{
    for (size_t i = 0; choices && choices[i]; i++) str_printf(out, "%s%s", i ? "|" : "", choices[i]);
}

static void flag_name(struct str *out, const struct cli_flag *f)
{
    str_printf(out, "%s", f->name);
    if (f->alias) str_printf(out, ", %s", f->alias);
    if (f->value) str_printf(out, f->optional ? "[=%s]" : " %s", f->value);
}

static void flag_help(struct str *out, const struct cli_flag *f)
{
    str_append(out, f->help);
    if (f->kind == FLAG_CHOICE) {
        str_append(out, ": ");
        choices_of(out, f->choices);
    }
    if (f->many) str_append(out, " (may be given again)");
}

static void knob_name(struct str *out, const struct knob *k)
{
    if (k->flag) str_printf(out, "%s, ", k->flag);
    str_printf(out, "--%s %s", k->key, k->kind == KNOB_INT ? "N" : k->kind == KNOB_CHOICE ? "NAME" : "TEXT");
}

static void knob_choice_names(struct str *out, enum knob_id id)
{
    const char *names[64];
    size_t n = MIN(knob_choices(id, names, COUNT_OF(names)), COUNT_OF(names));
    for (size_t i = 0; i < n; i++) str_printf(out, "%s%s", i ? "|" : "", names[i]);
}

static void knob_range(struct str *out, const struct knob *k)
{
    if (k->kind == KNOB_INT)
        str_printf(out, "; %lld to %lld%s%s", (long long)k->min, (long long)k->max, *k->unit ? " " : "",
                   k->unit);
    if (k->kind == KNOB_CHOICE) {
        str_append(out, "; ");
        knob_choice_names(out, (enum knob_id)(k - KNOBS));
    }
    str_printf(out, "; default %s", *k->otherwise ? k->otherwise : "none");
    if (k->changes_answers) str_append(out, "; can change answers");
}

static void flags_text(struct str *out, const char *title, const struct cli_flag *flags)
{
    if (!flags || !flags->name) return;
    str_printf(out, "\n%s\n", title);
    for (; flags->name; flags++) {
        struct str name = { 0 }, text = { 0 };
        flag_name(&name, flags);
        flag_help(&text, flags);
        line(out, str_text(&name), str_text(&text));
        str_free(&name);
        str_free(&text);
    }
}

static void knob_flags_text(struct str *out)
{
    str_append(out,
               "\nSettings of the config, as defaults for every config line (a line's own value wins)\n");
    for (int k = 0; k < KNOB_COUNT; k++) {
        if (k == KNOB_MODEL) continue;
        struct str name = { 0 }, text = { 0 };
        knob_name(&name, &KNOBS[k]);
        str_append(&text, KNOBS[k].help);
        knob_range(&text, &KNOBS[k]);
        line(out, str_text(&name), str_text(&text));
        str_free(&name);
        str_free(&text);
    }
}

void help_knobs(struct str *out)
{
    str_append(out, "A config line is `key=value` pairs, comma- or space-separated, in any order:\n"
                    "  q8_0,threads=2,kv=q8_0\n"
                    "A bare format or method name is a recipe; `kv=TYPE` sets ctk and ctv.\n\nKeys\n");
    for (int k = 0; k < KNOB_COUNT; k++) {
        struct str text = { 0 };
        str_append(&text, KNOBS[k].help);
        knob_range(&text, &KNOBS[k]);
        line(out, KNOBS[k].key, str_text(&text));
        str_free(&text);
    }
}

static void overview(struct str *out)
{
    str_append(out,
               "qdyno - how fast, how good and how expensive each way of running a language model is on this "
               "machine\n\nusage: qdyno [COMMAND] [flags]      with no command: the dashboard\n\nCommands\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!COMMANDS[i].hidden) line(out, COMMANDS[i].name, COMMANDS[i].help);
    flags_text(out, "Flags of every command", GLOBAL_FLAGS);
    str_append(out,
               "\n`qdyno help COMMAND` tells the rest, `qdyno help knobs` the keys of a config line.\n"
               "Exit status: 0 done (better, equivalent, as asked), 1 worse, 2 inconclusive, 3 measurement "
               "invalid, 4 bad usage,\n5 bad input file, 6 does not fit, 7 device or network missing, 70 "
               "internal error.\n");
}

void help_text(struct str *out, const struct command *c)
{
    if (!c) {
        overview(out);
        return;
    }
    str_printf(out, "qdyno %s - %s\n\nusage: qdyno %s %s\n", c->name, c->help, c->name, c->arguments);
    flags_text(out, "Flags", c->flags);
    if (c->knob_flags != KNOB_FLAGS_NONE) knob_flags_text(out);
    if (c->knob_flags == KNOB_FLAGS_GRID)
        str_append(out, "  Several values, comma-separated, make a grid.\n");
    flags_text(out, "Flags of every command", GLOBAL_FLAGS);
    if (c->details) {
        str_append(out, "\n");
        wrapped(out, c->details, 0, 0);
    }
}

/* ---------------------------------------------------------------- man page */

static void roff(struct str *out, const char *text)
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
            str_append(out, "|\\:"); /* a long list of choices may be broken here */
        else
            str_append_n(out, text, 1);
    }
}

static void roff_item(struct str *out, const char *name, const char *text)
{
    str_append(out, ".TP\n.B ");
    roff(out, name);
    str_append(out, "\n");
    roff(out, text);
    str_append(out, "\n");
}

static void roff_flags(struct str *out, const struct cli_flag *flags)
{
    for (; flags && flags->name; flags++) {
        struct str name = { 0 }, text = { 0 };
        flag_name(&name, flags);
        flag_help(&text, flags);
        roff_item(out, str_text(&name), str_text(&text));
        str_free(&name);
        str_free(&text);
    }
}

static void roff_command(struct str *out, const struct command *c)
{
    str_append(out, ".SS \"qdyno ");
    roff(out, c->name);
    str_append(out, " ");
    roff(out, c->arguments);
    str_append(out, "\"\n");
    roff(out, c->help);
    str_append(out, ".\n");
    roff_flags(out, c->flags);
    if (c->knob_flags != KNOB_FLAGS_NONE)
        str_append(out, ".PP\nTakes the config keys as flags, too (see CONFIG LINES).\n");
    if (c->details) {
        str_append(out, ".PP\n");
        roff(out, c->details);
        str_append(out, "\n");
    }
}

void help_man(struct str *out)
{
    static const struct {
        const char *status, *text;
    } EXITS[] = {
        { "0", "Done; for tests of a claim: better, equivalent, as asked." },
        { "1", "Worse, or a check failed." },
        { "2", "Inconclusive." },
        { "3", "The measurement is invalid." },
        { "4", "Bad usage; the message names the flag, the value and what is allowed." },
        { "5", "Bad input file." },
        { "6", "Does not fit in memory or on disk." },
        { "7", "A device or the network is missing." },
        { "70", "Internal error." },
        { "130", "Interrupted." },
    };
    str_append(
        out,
        ".TH QDYNO 1 \"\" \"qdyno " QDYNO_VERSION
        "\" \"User Commands\"\n.ad l\n.SH NAME\nqdyno \\- how fast, how "
        "good and how expensive each way of running a language model is on this machine\n.SH SYNOPSIS\n.B "
        "qdyno\n[\\fICOMMAND\\fR] [\\fIflags\\fR]\n.SH DESCRIPTION\nWith no command: the dashboard. Where "
        "\\fB\\-m\\fR is left out, the bundled model is used. Results go to standard output, progress and "
        "warnings to standard error.\n.SH COMMANDS\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!COMMANDS[i].hidden) roff_command(out, &COMMANDS[i]);
    str_append(out, ".SH FLAGS OF EVERY COMMAND\n");
    roff_flags(out, GLOBAL_FLAGS);
    str_append(
        out,
        ".SH CONFIG LINES\nPairs key=value, comma- or space-separated, in any order; a bare format or "
        "method name is a recipe; kv=TYPE sets ctk and ctv. Commands that take configs take each key as a "
        "flag as well, as the default for every line.\n");
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
    for (size_t i = 0; i < COUNT_OF(EXITS); i++) roff_item(out, EXITS[i].status, EXITS[i].text);
    str_append(out, ".SH ENVIRONMENT\n");
    roff_item(out, "QDYNO_ISA", "Instruction sets that may be used; can only take away.");
    roff_item(out, "QDYNO_SHARE", "Folder of installed data.");
    roff_item(out, "QDYNO_NVML, QDYNO_ROCM_SMI, QDYNO_OPENCL",
              "Other files for the libraries that tell about GPUs.");
    roff_item(out, "QDYNO_PUSH_URL, QDYNO_PUSH_PASSWORD, QDYNO_PUSH_BEARER", "Defaults of qdyno push.");
    roff_item(
        out, "OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _TIMEOUT, _CERTIFICATE ...",
        "The OpenTelemetry collector of qdyno push, and how to be let in; docs/monitoring.md has them all.");
    roff_item(out, "OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES",
              "Who it is that tells an OpenTelemetry collector.");
    roff_item(out, "NO_COLOR", "No colour.");
}

/* ---------------------------------------------------------------- bash completion */

static void bash_words(struct str *out, const struct cli_flag *flags)
{
    for (; flags && flags->name; flags++) {
        str_printf(out, " %s", flags->name);
        if (flags->alias) str_printf(out, " %s", flags->alias);
    }
}

/* Which words follow a flag with choices: arms of a case over "<prefix><flag>". */
static void bash_values(struct str *out, const char *prefix, const struct cli_flag *flags)
{
    for (; flags && flags->name; flags++) {
        if (flags->kind != FLAG_CHOICE) continue;
        str_printf(out, "    %s%s", prefix, flags->name);
        if (flags->alias) str_printf(out, "|%s%s", prefix, flags->alias);
        str_append(out, ") COMPREPLY=($(compgen -W \"");
        for (size_t i = 0; flags->choices[i]; i++) str_printf(out, "%s%s", i ? " " : "", flags->choices[i]);
        str_append(out, "\" -- \"$cur\")); return;;\n");
    }
}

static void bash_knobs(struct str *out)
{
    for (int k = 0; k < KNOB_COUNT; k++) {
        if (k == KNOB_MODEL) continue;
        if (KNOBS[k].flag) str_printf(out, " %s", KNOBS[k].flag);
        str_printf(out, " --%s", KNOBS[k].key);
    }
}

void help_bash(struct str *out)
{
    str_append(out,
               "# bash completion of qdyno " QDYNO_VERSION "; made by `qdyno help --bash`\n_qdyno()\n{\n"
               "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= word flags=\n"
               "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    case $word in\n      ");
    for (size_t i = 0, shown = 0; i < COMMAND_COUNT; i++)
        if (!COMMANDS[i].hidden) str_printf(out, "%s%s", shown++ ? "|" : "", COMMANDS[i].name);
    str_append(out, ") command=$word; break;;\n    esac\n  done\n  case $prev in\n");
    bash_values(out, "", GLOBAL_FLAGS);
    str_append(out, "  esac\n  case $command:$prev in\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (COMMANDS[i].hidden) continue;
        char prefix[48];
        snprintf(prefix, sizeof prefix, "%s:", COMMANDS[i].name);
        bash_values(out, prefix, COMMANDS[i].flags);
    }
    str_append(out, "  esac\n  case $command in\n    '') COMPREPLY=($(compgen -W \"");
    for (size_t i = 0, shown = 0; i < COMMAND_COUNT; i++)
        if (!COMMANDS[i].hidden) str_printf(out, "%s%s", shown++ ? " " : "", COMMANDS[i].name);
    str_append(out, "\" -- \"$cur\")); [[ $cur == -* ]] || return;;\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (COMMANDS[i].hidden) continue;
        str_printf(out, "    %s) flags=\"", COMMANDS[i].name);
        bash_words(out, COMMANDS[i].flags);
        if (COMMANDS[i].knob_flags != KNOB_FLAGS_NONE) bash_knobs(out);
        str_append(out, "\";;\n");
    }
    str_append(out, "  esac\n  if [[ $cur == -* ]]; then\n    COMPREPLY=($(compgen -W \"$flags");
    bash_words(out, GLOBAL_FLAGS);
    str_append(out,
               "\" -- \"$cur\"))\n  elif [[ $command == help ]]; then\n    COMPREPLY=($(compgen -W \"knobs");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!COMMANDS[i].hidden) str_printf(out, " %s", COMMANDS[i].name);
    str_append(out, "\" -- \"$cur\"))\n  else\n    COMPREPLY=($(compgen -f -- \"$cur\"))\n  fi\n}\n"
                    "complete -o filenames -F _qdyno qdyno\n");
}
