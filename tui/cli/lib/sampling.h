/* tui/cli/lib/sampling.h - how often sensors are read: one flag and one environment variable for all commands
 * that sample. */
#ifndef QDYNO_CLI_SAMPLING_H
#define QDYNO_CLI_SAMPLING_H

#include "telemetry/sensors/sensors.h"
#include "tui/cli/lib/lib.h"

#define FLAG_PERIOD_ROW                                                                                      \
    {                                                                                                        \
        .name = "--period", .value = "SENSOR=MS", .many = true,                                              \
        .help = "period of a sensor in ms, e.g. cpu_temperature_celsius=1000 (also: QDYNO_PERIODS)"          \
    }

/* Reads QDYNO_PERIODS ("A=MS,B=MS"), then the --period flags, which win. a NULL: no flags. Errors: ERR_USAGE.
 */
enum err_code cli_periods(struct sampler_periods *out, const struct cli_args *a, struct err *why);

/* Starts the sampler of a measuring command: this machine, those periods, ticks of 100 ms. Without readable
 * sensors *out is NULL and the call succeeds, because timings are valid without them. Errors: ERR_USAGE for a
 * bad period. */
enum err_code cli_sampler(struct sampler_thread **out, const struct cli_args *a, struct err *why);

#endif
