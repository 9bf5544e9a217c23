/* engine/serve/load_trace.h - reads traces of requests: when they came, and how long they were.
 *
 * Three public forms are recognized by their content:
 *
 *   Azure LLM inference 2023   CSV: TIMESTAMP,ContextTokens,GeneratedTokens; dates with fractions of seconds
 *   BurstGPT                   CSV: Timestamp,...,Request tokens,Response tokens,...; seconds
 *   Mooncake                   JSON lines: timestamp (ms), input_length, output_length, hash_ids
 *
 * hash_ids name the prompt's blocks of LOAD_TRACE_BLOCK tokens: equal ids mean equal text up to the block's
 * end. Other columns and keys are ignored. */
#ifndef QDYNO_ENGINE_SERVE_LOAD_TRACE_H
#define QDYNO_ENGINE_SERVE_LOAD_TRACE_H

#include <stdint.h>

#include "base/base.h"

enum { LOAD_TRACE_BLOCK = 512 };

struct load_trace_row {
    double at_s;  /* after the first request */
    int in, out;  /* tokens, at least 1 */
    int64_t hash; /* index of its first block in struct load_trace */
    int hashes;   /* its blocks; 0: unknown */
};
struct load_trace {
    struct load_trace_row *row; /* [n] in order of time */
    int n;
    int64_t *hash; /* [hashes] */
    int64_t hashes;
    int skipped; /* requests without prompt or answer tokens */
};

/* The first `most` usable requests of a text; load_trace_free also after an error. Errors: ERR_FORMAT with
 * the line's number; ERR_NOMEM. */
enum err_code load_trace_parse(struct load_trace *out, const char *text, size_t size, int most,
                               struct err *why);
/* The same of a file. Errors also: ERR_ABSENT, ERR_IO. */
enum err_code load_trace_read(struct load_trace *out, const char *path, int most, struct err *why);
void load_trace_free(struct load_trace *t);

#endif
