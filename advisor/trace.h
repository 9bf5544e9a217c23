/* advisor/trace.h - a run as a tree of spans, for OpenTelemetry: experiment, its blocks, their cells, and
 * what ran in them.
 *
 *   experiment ─┬─ load ── quantize            processes that live for the whole run
 *               ├─ text_completion MODEL        warm-up cells
 *               └─ block ─┬─ load ── quantize   processes of the block
 *                         ├─ settle
 *                         └─ text_completion MODEL ─┬─ fill, prefill, decode (of its first repeats)
 *   push                                        a trace of its own, linked to the run: it comes later
 *
 * Made from the database alone, at any time later: no exporter disturbs a measurement, and a run that was
 * killed, resumed or is years old has its trace, too. A time that was not recorded has no span; a parent
 * lasts from its first child to its last, at least. Ids follow from run and machine: sent twice it is the
 * same trace. */
#ifndef QDYNO_ADVISOR_TRACE_H
#define QDYNO_ADVISOR_TRACE_H

#include "db/db.h"
#include "telemetry/telemetry.h"

struct trace {
    struct otlp_span *spans; /* [n], parents before their children; the first is the run. Owned by memory */
    int n;
    struct otlp_identity who; /* the machine and the program that measured */
    struct arena memory;
};
/* Errors: ERR_USAGE (no such run; OTEL_RESOURCE_ATTRIBUTES cannot be read), ERR_NOMEM, those of the database.
 */
enum err_code trace_build(struct trace *out, struct db *d, int64_t run_id, struct err *why);
void trace_free(struct trace *t); /* {0} is fine */

#endif
