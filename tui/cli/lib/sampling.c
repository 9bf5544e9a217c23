/* sampling.c - see sampling.h. */
#include "tui/cli/lib/sampling.h"

#include <stdlib.h>

#include "telemetry/sensors/sensors.h"

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
    if (sampler_start_periods(out, "", 100, &p, NULL)) *out = NULL;
    return ERR_OK;
}
