/* advisor/outcome/parts.h - what the files of advisor/outcome/ share. */
#ifndef QDYNO_ADVISOR_OUTCOME_PARTS_H
#define QDYNO_ADVISOR_OUTCOME_PARTS_H

#include "advisor/outcome/outcome.h"

/* The body of a push (names: docs/monitoring.md). free(). Errors: ERR_NOMEM, ERR_INTERNAL. */
enum err_code outcome_text(char **out, const struct outcome *o, const struct machine *machine,
                           struct err *why);

/* "a" to "h": the label of an arm. */
const char *arm_letter(int arm);

/* Sends spans in requests that collectors accept, and adds to *sent what was sent. Errors: as otlp_send. */
enum err_code trace_spans_send(const struct otlp_target *t, const struct otlp_resource *who,
                               const struct otlp_span *spans, int n, struct trace_sent *sent,
                               struct err *why);

#endif
