/* tui/cli/command_watch_export.h - the values of a running watch for other programs: a text file of the
 * node exporter, an OpenTelemetry collector, a Pushgateway. */
#ifndef QDYNO_CLI_WATCH_PAGES_H
#define QDYNO_CLI_WATCH_PAGES_H

#include "telemetry/machine/machine.h"
#include "tui/cli/cli.h"

/* Rows for the command's flags. */
/* clang-format off */
#define WATCH_PAGES_FLAGS                                                                                    \
    { .name = "--textfile", .value = "FILE.prom",                                                            \
      .help = "write sensors and the values of the watch for the node exporter every 15 s" },               \
    { .name = "--otlp", .value = "URL",                                                                      \
      .help = "send the same values to this OpenTelemetry collector (also: OTEL_EXPORTER_OTLP_*)" },                \
    { .name = "--push", .value = "URL",                                                                      \
      .help = "push the values of the watch to this Pushgateway after each round (token: QDYNO_PUSH_BEARER)" }
/* clang-format on */

struct watch_pages;
/* Errors: ERR_USAGE for an impossible file name or URL, ERR_NOMEM. Call watch_pages_close in any case. */
enum err_code watch_pages_open(struct watch_pages **out, const struct cli_global *g, const struct cli_args *a,
                               const struct machine *m, struct err *why);
void watch_pages_close(struct watch_pages *p); /* accepts NULL */
/* Writes and sends what is due. rounds: number of finished rounds; sampler: borrowed for the call, may be
 * NULL; now: write and send even if not due (the last call, or --once). A failure is logged once, then again
 * only after a success. */
void watch_pages_step(struct watch_pages *p, struct sampler_thread *sampler, int rounds, bool now);

#endif
