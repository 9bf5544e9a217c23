/* messages.c - exit statuses, and what a command prints besides its table. */

#include "advisor/experiment/experiment.h"
#include "tui/cli/lib/lib.h"

const char RANDOM_WEIGHTS[] = "random weights: quality figures mean nothing";

int exit_status_of(enum err_code code)
{
    static const unsigned char STATUS[] = {
        [ERR_OK] = EXIT_DONE,          [ERR_NOMEM] = EXIT_NO_FIT,          [ERR_IO] = EXIT_BAD_INPUT,
        [ERR_USAGE] = EXIT_USAGE,      [ERR_FORMAT] = EXIT_BAD_INPUT,      [ERR_FIT] = EXIT_NO_FIT,
        [ERR_ABSENT] = EXIT_NO_DEVICE, [ERR_CANCELLED] = EXIT_INTERRUPTED, [ERR_INTERNAL] = EXIT_INTERNAL,
    };
    return (size_t)code < COUNT_OF(STATUS) ? STATUS[code] : EXIT_INTERNAL;
}

int exit_status_of_verdict(enum verdict v)
{
    switch (v) {
    case VERDICT_BETTER:
    case VERDICT_EQUIVALENT:
    case VERDICT_NEGLIGIBLE: return EXIT_DONE;
    case VERDICT_WORSE: return EXIT_WORSE;
    case VERDICT_INVALID: return EXIT_INVALID;
    case VERDICT_NONE:
    case VERDICT_INCONCLUSIVE: break;
    }
    return EXIT_INCONCLUSIVE;
}

int cli_fail(const struct cli_args *a, const struct err *why)
{
    fflush(stdout);
    fprintf(stderr, "qdyno%s%s: %s\n", a && a->command ? " " : "", a && a->command ? a->command->name : "",
            why->message);
    return exit_status_of(why->code);
}

int cli_fail_memory(const struct cli_args *a)
{
    struct err why;
    err_set(&why, ERR_NOMEM, "out of memory");
    return cli_fail(a, &why);
}

int cli_print(const struct cli_global *g, const struct cli_args *a, const struct table *t, int status)
{
    struct err why = { 0 };
    if (table_write(t, g->output, stdout, &why)) return cli_fail(a, &why);
    return status;
}

bool cli_is_interrupted(const struct cli_global *g)
{
    return g->interrupted && *g->interrupted;
}

void cli_note(const struct cli_global *g, const char *fmt, ...)
{
    if (g->quiet) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "%s\n", text);
}
