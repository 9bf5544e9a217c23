/* help_short.c - help that fits a screen: the usual commands by what people want, and for a command its
 * examples and one line for each of its flags. `--all` prints the whole texts (help.c). */
#include <string.h>

#include "tui/cli/lib/help.h"

enum { COMMAND_NAME = 9 };

static const char *const GROUPS[GROUP_COUNT] = {
    [GROUP_MEASURE] = "Measure", [GROUP_CHOOSE] = "Choose", [GROUP_USE] = "Use", [GROUP_WATCH] = "Watch"
};

static void overview(struct str *out)
{
    str_append(out, "qdyno - measures the speed, quality and cost of each way to run a language model\n\n"
                    "usage: qdyno [COMMAND] [flags]      without a command: the dashboard\n");
    for (int group = GROUP_MEASURE; group < GROUP_COUNT; group++) {
        str_printf(out, "%s\n", GROUPS[group]);
        for (size_t i = 0; i < COMMAND_COUNT; i++)
            if (COMMANDS[i].group == (enum command_group)group)
                str_printf(out, "  %-*s  %s\n", COMMAND_NAME, COMMANDS[i].name, COMMANDS[i].help);
    }
    str_append(out, "`qdyno help COMMAND` explains one, `qdyno help --all` lists all commands and flags\n");
}

/* As much of a text as `room` bytes hold, up to the end of a clause where there is one. */
static void clause_append(struct str *out, const char *text, size_t room)
{
    static const char *const ENDS[] = { "; ", " (", ": ", ", ", ". " };
    size_t n = 0;
    if (strlen(text) <= room) {
        str_append(out, text);
        return;
    }
    for (size_t e = 0; e < COUNT_OF(ENDS) && !n; e++)
        for (const char *at = text; (at = strstr(at, ENDS[e])) && (size_t)(at - text) <= room; at++)
            n = (size_t)(at - text);
    if (n) {
        str_append_n(out, text, n);
        return;
    }
    for (size_t i = 0; i + 4 <= room; i++)
        if (text[i] == ' ') n = i;
    str_append_n(out, text, n);
    str_append(out, " ...");
}

static void flag_line(struct str *out, const struct cli_flag *f)
{
    struct str name = { 0 };
    help_flag_name(&name, f);
    const size_t column = name.len < HELP_NAMES ? (size_t)HELP_NAMES : name.len;
    str_printf(out, "  %-*s  ", HELP_NAMES, str_text(&name));
    clause_append(out, f->help, (size_t)HELP_WIDTH > column + 4 ? HELP_WIDTH - column - 4 : 0);
    str_append(out, "\n");
    str_free(&name);
}

static void flag_lines(struct str *out, const struct cli_flag *flags)
{
    struct str logins = { 0 };
    for (const struct cli_flag *f = flags; f && f->name; f++) {
        if (f->login)
            str_printf(&logins, "%s%s", logins.len ? " " : "", f->name);
        else
            flag_line(out, f);
    }
    if (logins.len) help_line(out, "credentials and TLS", str_text(&logins));
    str_free(&logins);
}

static int lines_of(const struct str *s)
{
    int n = 0;
    for (const char *at = str_text(s); *at; at++) n += *at == '\n';
    return n;
}

static void command_help(struct str *out, const struct command *c)
{
    struct str end = { 0 }, details = { 0 };
    str_printf(out, "qdyno %s - %s\n\n", c->name, c->help);
    help_examples(out, c);
    str_printf(out, "usage: qdyno %s %s\n", c->name, c->arguments);
    if (c->flags && c->flags->name) str_append(out, "\nFlags\n");
    flag_lines(out, c->flags);
    str_append(&end, "\n");
    if (c->knob_flags != KNOB_FLAGS_NONE)
        str_append(&end,
                   "Config keys are flags, too (--threads 2, --kv q8_0): `qdyno help configs` lists them.\n");
    help_taken_keys(&end, c);
    str_append(&end, "-q prints the result only, -v also its details; -o json is for scripts.\n");
    str_printf(&end, "Whole texts and the flags of every command: `qdyno help %s --all`\n", c->name);
    if (c->details) {
        str_append(&details, "\n");
        help_wrap(&details, c->details, 0, 0);
    }
    if (lines_of(out) + lines_of(&details) + lines_of(&end) <= HELP_COMMAND)
        str_append(out, str_text(&details));
    str_append(out, str_text(&end));
    str_free(&end);
    str_free(&details);
}

void help_short(struct str *out, const struct command *c)
{
    if (c)
        command_help(out, c);
    else
        overview(out);
}
