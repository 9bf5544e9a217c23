/* engine/synth/synth.h - models of any shape with seeded random weights: speed and memory without a download.
 *
 * Random weights say nothing about quality; the file carries qdyno.synthetic=true so that every screen can
 * say so. */
#ifndef QDYNO_ENGINE_SYNTH_H
#define QDYNO_ENGINE_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

struct format; /* kernels/kernels.h */

struct synth_shape {
    const char *name; /* "tiny" "15m" "1b" "7b" ... */
    int layers, heads, kv_heads;
    int64_t embd, ff, vocab, ctx;
    bool tied; /* the embedding is the output matrix too */
    const char *help;
};
extern const struct synth_shape SYNTH_SHAPES[];
extern const size_t SYNTH_SHAPE_COUNT;
const struct synth_shape *synth_shape_find(const char *name); /* NULL when unknown; case-insensitive */

struct synth_options {
    const char *arch; /* "llama" "qwen2" "gpt2" */
    const struct synth_shape *shape;
    const struct format
        *format;   /* of the matrices; norms stay f32; rows that do not fit a block fall back to f16 */
    uint64_t seed; /* same options, same bytes */
    int threads;
    void (*progress)(void *ctx, double done); /* 0..1; may be NULL */
    void *ctx;
};
/* Writes `path` atomically, with a working SPM or BPE vocabulary of the wanted size: about 8 MiB of memory
 * per thread whatever the model's size. "gpt2" is never tied and has a key and a value head for
 * every head, whatever the shape says. Errors: ERR_USAGE (architecture, shape or format that cannot be),
 * ERR_IO, ERR_FIT (disk full), ERR_NOMEM. */
enum err_code synth_write(const char *path, const struct synth_options *options, struct err *why);

/* ---------------------------------------------------------------- noise (synth_noise.c) */

/* 2^16 equally likely values that together are N(0,1): the same bits on every machine, for nothing but
 * + - * / and sqrt made them. */
struct noise {
    float quantile[1 << 16];
};
void noise_init(struct noise *n);
/* out[count] = mean + deviation * N(0,1). The stream is chosen by (seed, tensor, row) alone, so threads may
 * make rows in any order. */
struct noise_stream {
    uint64_t seed, tensor, row;
};
void noise_fill(const struct noise *n, struct noise_stream at, float *out, int64_t count, float mean,
                float deviation);

#endif
