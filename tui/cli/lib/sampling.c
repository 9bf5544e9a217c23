/* sampling.c - see sampling.h. */
#include "tui/cli/lib/sampling.h"

#include <stdlib.h>

#include "advisor/run/run.h"
#include "telemetry/sensors/sensors.h"
#include "tui/cli/lib/lib.h"

enum err_code cli_periods(struct sampler_periods *out, const struct cli_args *a, struct err *why)
{
    const char *given[ARGS_GIVEN], *variable = getenv("QDYNO_PERIODS");
    *out = (struct sampler_periods){ 0 };
    if (variable && sampler_periods_parse(out, variable, why)) return err_prefix(why, "QDYNO_PERIODS");
    const int n = a ? args_all(a, "--period", given, ARGS_GIVEN) : 0;
    for (int i = 0; i < n; i++)
        if (sampler_periods_parse(out, given[i], why)) return err_prefix(why, "--period");
    return ERR_OK;
}

enum err_code cli_sampler(struct sampler_thread **out, const struct cli_args *a, struct err *why)
{
    struct sampler_periods p;
    *out = NULL;
    const enum err_code rc = cli_periods(&p, a, why);
    if (rc) return rc;
    if (sampler_start(out, "", 100, &p, NULL)) *out = NULL;
    return ERR_OK;
}

struct quiet_wait {
    const struct cli_global *g;
    bool reported;
};

static bool quiet_waiting(void *ctx, const char *reason, double waited_s)
{
    struct quiet_wait *w = ctx;
    char by[RUN_BUSIEST];
    (void)waited_s;
    if (!w->reported) cli_note(w->g, "waiting for a quiet machine: %s%s", reason, run_busiest(by));
    w->reported = true;
    return !cli_is_interrupted(w->g);
}

void cli_wait_quiet(const struct cli_global *g, const struct cli_args *a, struct sampler_thread *sampler)
{
    const double most = args_num(a, "--wait-quiet", 0);
    struct quiet_wait w = { .g = g };
    if (!(most > 0) || !sampler) return;
    const bool quiet = run_wait_quiet(sampler, most, quiet_waiting, &w);
    if (w.reported || !quiet)
        cli_note(g, quiet ? "the machine is quiet" : "the machine was not quiet in time: measuring anyway");
}
