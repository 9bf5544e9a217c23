/* qdyno help and qdyno worker: commands that only parse flags and call others. */
#include <stdio.h>

#include "engine/worker/worker.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/help.h"

/* clang-format off */
const struct cli_flag FLAGS_HELP[] = {
    { .name = "--all", .help = "all commands, all flags, whole texts" },
    { .name = "--man", .help = "print the manual page as roff" },
    { .name = "--bash", .help = "print the completion for bash" },
    { .name = "--zsh", .help = "print the completion for zsh" },
    { .name = "--fish", .help = "print the completion for fish" },
    { .name = NULL },
};
/* clang-format on */

static const char *completion_script(const struct cli_args *a)
{
    for (const struct completion_script *s = COMPLETION_SCRIPTS; s->flag; s++)
        if (args_has(a, s->flag)) return s->text;
    return NULL;
}

int command_help(const struct cli_global *g, const struct cli_args *a)
{
    (void)g;
    struct str text = { 0 };
    const char *topic = a->n ? a->arg[0] : NULL;
    const struct command *c = topic ? command_find(topic) : NULL;
    if (args_has(a, "--man")) {
        help_man(&text);
    } else if (completion_script(a)) {
        str_append(&text, completion_script(a));
    } else if (topic && !c && help_topic_find(topic)) {
        help_topic_find(topic)->write(&text);
    } else if (topic && !c) {
        struct err why;
        err_set(&why, ERR_USAGE,
                "no command or topic '%s': `qdyno help` lists the commands, `qdyno help topics` the topics",
                topic);
        return cli_fail(a, &why);
    } else {
        (args_has(a, "--all") ? help_text : help_short)(&text, c);
    }
    fputs(str_text(&text), stdout);
    str_free(&text);
    return EXIT_DONE;
}

/* clang-format off */
const struct cli_flag FLAGS_WORKER[] = {
    { .name = "--fd", .value = "N", .kind = FLAG_INT, .max = 1 << 20,
      .help = "open socket on which to serve" },
    { .name = NULL },
};
/* clang-format on */

int command_worker(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    if (!args_has(a, "--fd")) {
        err_set(&why, ERR_USAGE, "qdyno starts this command itself; it needs --fd N, an open socket");
        return cli_fail(a, &why);
    }
    if (worker_serve((int)args_int(a, "--fd", -1), &g->log, &why)) return cli_fail(a, &why);
    return EXIT_DONE;
}
