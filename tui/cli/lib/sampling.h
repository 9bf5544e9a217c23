/* tui/cli/lib/sampling.h - how often sensors are read: one flag and one variable for all commands that
 * sample. */
#ifndef QDYNO_CLI_SAMPLING_H
#define QDYNO_CLI_SAMPLING_H

#include "tui/cli/lib/lib.h"

#define FLAG_PERIOD_ROW                                                                                      \
    {                                                                                                        \
        .name = "--period", .value = "SENSOR=MS", .many = true,                                              \
        .help = "read a sensor that often, e.g. cpu_temperature_celsius=1000; also in QDYNO_PERIODS"         \
    }

/* QDYNO_PERIODS ("A=MS,B=MS"), then the --period flags of the command (a NULL: of none). Errors: ERR_USAGE.
 */
enum err_code cli_periods(struct sampler_periods *out, const struct cli_args *a, struct err *why);

/* The sampler of a command that measures: this machine at those periods, ticks of 100 ms. Errors: ERR_USAGE
 * for a bad period. A machine without readable sensors is no error, what is measured beside them is still
 * good: *out NULL. */
enum err_code cli_sampler(struct sampler_thread **out, const struct cli_args *a, struct err *why);

#endif
