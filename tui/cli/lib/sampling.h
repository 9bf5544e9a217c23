/* tui/cli/lib/sampling.h - how often sensors are read: one flag and one environment variable for all commands
 * that sample. */
#ifndef QDYNO_CLI_SAMPLING_H
#define QDYNO_CLI_SAMPLING_H

#include "telemetry/sensors/sensors.h"
#include "advisor/experiment/experiment.h"
#include "tui/cli/cli.h"
#include "tui/cli/lib/lib.h"

#define FLAG_PERIOD_ROW                                                                                      \
    {                                                                                                        \
        .name = "--period", .value = "SENSOR=MS", .many = true,                                              \
        .help = "period of a sensor in ms, e.g. cpu_temperature_celsius=1000 (also: QDYNO_PERIODS)"          \
    }

/* Shared by the commands that measure speed. */
#define FLAG_WAIT_QUIET_ROW                                                                                  \
    {                                                                                                        \
        .name = "--wait-quiet", .value = "TIME", .kind = FLAG_SECONDS,                                       \
        .help = "wait so long for a machine that nothing disturbs, then measure anyway"                      \
    }
#define FLAG_ESTIMAND_ROW                                                                                    \
    {                                                                                                        \
        .name = "--estimand", .value = "either|quiet|loaded", .kind = FLAG_CHOICE, .choices = ESTIMANDS,     \
        .help = "quiet: speed undisturbed, from blocks that nothing disturbed; loaded: speed on this "       \
                "machine as it is, from all blocks; either (default): quiet if it can be had within the "    \
                "budget, else loaded"                                                                        \
    }
/* Waits as that flag says, and prints on stderr what it waits for. Nothing without the flag or a sampler. */
void cli_wait_quiet(const struct cli_global *g, const struct cli_args *a, struct sampler_thread *sampler);

/* Reads QDYNO_PERIODS ("A=MS,B=MS"), then the --period flags, which win. a NULL: no flags. Errors: ERR_USAGE.
 */
enum err_code cli_periods(struct sampler_periods *out, const struct cli_args *a, struct err *why);

/* Starts the sampler of a measuring command: this machine, those periods, ticks of 100 ms. Without readable
 * sensors *out is NULL and the call succeeds, because timings are valid without them. Errors: ERR_USAGE for a
 * bad period. */
enum err_code cli_sampler(struct sampler_thread **out, const struct cli_args *a, struct err *why);

#endif
