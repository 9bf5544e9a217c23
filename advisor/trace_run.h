/* advisor/trace_run.h - one generation (`qdyno run`) as a trace: run, its load, and the text completion with
 * its prefill and decode. Nothing of the text itself is told. */
#ifndef QDYNO_ADVISOR_TRACE_RUN_H
#define QDYNO_ADVISOR_TRACE_RUN_H

#include "advisor/trace_push.h"

/* When a part ran, by clock_ns; to_ns 0: it did not, and has no span. */
struct trace_time {
    int64_t from_ns, to_ns;
};
struct trace_generation {
    const char *model, *config; /* "" unknown */
    struct trace_time load, quantize, prefill, decode;
    int64_t first_token_ns; /* clock_ns; 0: there was none */
    int64_t input_tokens, output_tokens;
    const char *finish; /* why it ended: "stop" "length"; "" unknown */
    const char *error;  /* "": it went well */
};
/* Errors: as trace_push; nothing is kept for later: a generation is in no database. */
enum err_code trace_generation_send(const struct trace_generation *g, const struct machine *m,
                                    const struct trace_target *to, struct trace_sent *sent, struct err *why);

#endif
