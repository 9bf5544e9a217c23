/* tui/cli/command_watch_export.h - what a running watch knows, told on: a file for the node exporter, a
 * collector, a Pushgateway. */
#ifndef QDYNO_CLI_WATCH_PAGES_H
#define QDYNO_CLI_WATCH_PAGES_H

#include "tui/cli/cli.h"

/* Rows for the command's flags. */
/* clang-format off */
#define WATCH_PAGES_FLAGS                                                                                    \
    { .name = "--textfile", .value = "FILE.prom",                                                            \
      .help = "keep sensors and the watch's values there for the node exporter, every 15 s" },               \
    { .name = "--otlp", .value = "URL",                                                                      \
      .help = "send the same to this OpenTelemetry collector (keys: OTEL_EXPORTER_OTLP_*)" },                \
    { .name = "--push", .value = "URL",                                                                      \
      .help = "push the watch's values to this Pushgateway after each round (token: QDYNO_PUSH_BEARER)" }
/* clang-format on */

struct watch_pages;
/* Errors: ERR_USAGE on what cannot be. */
enum err_code watch_pages_open(struct watch_pages **out, const struct cli_global *g, const struct cli_args *a,
                               const struct machine *m, struct err *why);
void watch_pages_close(struct watch_pages *p); /* NULL is fine */
/* What is due: `rounds` so far, and the sampler as it is now (borrowed for the call). What fails is said
 * once, until it works again; `now`: due or not (the last words, or --once). */
void watch_pages_step(struct watch_pages *p, struct sampler_thread *sampler, int rounds, bool now);

#endif
