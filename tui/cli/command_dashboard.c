/* qdyno dashboard: opens the dashboard on a terminal, or prints its frames or lines. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tui/cli/commands.h"
#include "tui/cli/lib/help.h"
#include "tui/dashboard/dashboard.h"
#include "tui/forms/forms.h"

/* clang-format off */
const struct cli_flag FLAGS_DASHBOARD[] = {
    FLAG_MODEL_ROW,
    { .name = "-w", .alias = "--workload", .value = "WORKLOAD",
      .help = "workload of the next A/B; default tg64" },
    { .name = "--url", .value = "URL", .help = "Pushgateway of the push key (also: QDYNO_PUSH_URL)" },
    { .name = "--resume", .value = "ID", .kind = FLAG_INT, .min = 1, .max = 9e15,
      .help = "continue a stopped A/B" },
    { .name = "--theme", .value = "NAME",
      .help = "colours: a name that the key ~ shows, or a file (docs/dashboard.md)" },
    { .name = "--linear",
      .help = "print one line for each change and read commands as lines, for screen readers and logs" },
    { .name = "--no-mouse", .help = "leave the mouse to the terminal" },
    { .name = "--read-only", .help = "show only; start nothing" },
    { .name = "--server", .value = "URL",
      .help = "watch a running qdyno serve in the load view, e.g. http://127.0.0.1:8080" },
    { .name = "--api-key-file", .value = "FILE",
      .help = "file with the key of that server (also: the variable QDYNO_API_KEY)" },
    { .name = "--frames", .value = "N", .kind = FLAG_INT, .min = 1, .max = 100000,
      .help = "draw N frames as text without a terminal, then exit" },
    { .name = NULL },
};
/* clang-format on */

/* Without a terminal the dashboard cannot open. Nothing is measured or saved that was not asked for. */
static int dashboard_without_terminal(const struct cli_args *a)
{
    struct err why;
    struct str text = { 0 };
    help_short(&text, a->named ? a->command : NULL);
    fputs(str_text(&text), stdout);
    str_free(&text);
    err_set(
        &why, ERR_USAGE,
        "the dashboard needs a terminal; in a script, name a command, for example `qdyno tune --budget 1m`");
    return cli_fail(a, &why);
}

/* The address of a server to watch, without "/v1" and slashes at its end, and its key. Both owned; NULL:
 * none. */
static enum err_code server_of(char **url, char **key, const struct cli_args *a, struct err *why)
{
    const char *given = args_text(a, "--server", NULL);
    if (!given) return ERR_OK;
    enum err_code rc = http_url_check("server", given, HTTP_URL_BASE, why);
    if (!rc) rc = cli_api_key(key, a, why);
    if (rc) return rc;
    *url = strdup(given);
    if (!*url) return err_set(why, ERR_NOMEM, "out of memory for an address");
    for (size_t n = strlen(*url); n && (*url)[n - 1] == '/';) (*url)[--n] = '\0';
    if (str_ends(*url, "/v1")) (*url)[strlen(*url) - strlen("/v1")] = '\0';
    return ERR_OK;
}

/* The config lines of the next A/B, with the paths of their models. Owned; NULL: none. */
static enum err_code arms_of(char *arm[2], const struct cli_args *a, struct err *why)
{
    for (int i = 0; i < a->n && i < 2; i++) {
        struct config c;
        enum err_code rc = cli_config(&c, a, a->arg[i], why);
        if (rc) return err_prefix(why, "%s", a->arg[i]);
        arm[i] = malloc(CONFIG_LINE);
        if (!arm[i]) return err_set(why, ERR_NOMEM, "out of memory for a config line");
        config_line(&c, arm[i], CONFIG_LINE);
    }
    return ERR_OK;
}

int command_dashboard(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    int frames = (int)args_int(a, "--frames", 0);
    const bool linear = args_has(a, "--linear");
    if (!frames && !linear && !(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)))
        return dashboard_without_terminal(a);
    char *model = NULL, *key = NULL, *server = NULL, *arm[2] = { NULL, NULL };
    if (server_of(&server, &key, a, &why) || cli_model(&model, a, &why) || arms_of(arm, a, &why)) {
        free(arm[0]);
        free(arm[1]);
        free(model);
        free(server);
        free(key);
        return cli_fail(a, &why);
    }
    const char *url = args_text(a, "--url", getenv("QDYNO_PUSH_URL"));
    struct palette_command commands[64];
    int count = 0;
    for (size_t i = 0; i < COMMAND_COUNT && count < (int)COUNT_OF(commands); i++)
        if (!COMMANDS[i].hidden)
            commands[count++] = (struct palette_command){ COMMANDS[i].name, COMMANDS[i].arguments,
                                                          COMMANDS[i].help };
    struct dashboard_options o = { .model = model,
                                   .db_path = g->db_path,
                                   .arms = { arm[0], arm[1] },
                                   .workload = args_text(a, "-w", NULL),
                                   .push_url = url && *url ? url : NULL,
                                   .server = server,
                                   .server_key = key,
                                   .color = !g->no_color,
                                   .theme = args_text(a, "--theme", NULL),
                                   .linear = linear,
                                   .interrupted = g->interrupted,
                                   .no_mouse = args_has(a, "--no-mouse"),
                                   .commands = commands,
                                   .command_count = count,
                                   .read_only = args_has(a, "--read-only"),
                                   .frames = frames,
                                   .resume_id = args_int(a, "--resume", 0),
                                   .log = &g->log };
    enum err_code rc = dashboard_run(&o, &why);
    free(arm[0]);
    free(arm[1]);
    free(model);
    free(server);
    free(key);
    return rc ? cli_fail(a, &why) : EXIT_DONE;
}
