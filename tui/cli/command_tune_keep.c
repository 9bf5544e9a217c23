/* tui/cli/command_tune_keep.c - see command_tune_keep.h. */
#include "tui/cli/command_tune_keep.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "advisor/advise/advise.h"

/* Only a person who sees the question and can answer it is asked. */
static bool can_ask(const struct cli_global *g)
{
    return !g->quiet && g->output == OUTPUT_MD && g->progress == PROGRESS_AUTO && isatty(STDIN_FILENO) &&
           isatty(STDERR_FILENO);
}

static bool person_agrees(const struct tune_result *r, const char *load)
{
    char answer[16] = "";
    fprintf(stderr,
            "%s was found on a busy machine: %s. On a quiet machine another setting may be faster.\n"
            "Use it for this model from now on? [y/N] ",
            r->winner.line, load);
    fflush(stderr);
    if (!fgets(answer, sizeof answer, stdin)) fputc('\n', stderr);
    return answer[0] == 'y' || answer[0] == 'Y';
}

void tune_keep_decide(struct tune_kept *out, const struct cli_global *g, const struct cli_args *a,
                      const char *model, const char *workload, const struct tune_result *r)
{
    char load[RUN_LOAD_TEXT];
    *out = (struct tune_kept){ .save = r->wins && !args_has(a, "--dry-run") && !config_is_foreign(&r->keep) };
    if (r->wins && args_has(a, "--dry-run")) snprintf(out->reason, sizeof out->reason, "--dry-run was given");
    if (!r->wins || !r->load.loaded) return;
    advice_confirm_command(&out->confirm, model, r->current.line, r->winner.line, workload);
    if (!out->save || args_has(a, FLAG_KEEP)) return;
    experiment_run_load_text(load, &r->load);
    const bool asks = can_ask(g);
    out->save = asks && person_agrees(r, load);
    if (!out->save)
        snprintf(out->reason, sizeof out->reason, "it was found on a busy machine (%s)%s", load,
                 asks ? "" : "; " FLAG_KEEP " saves it nevertheless");
}
