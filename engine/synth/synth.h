/* engine/synth/synth.h - writes models of any shape with random weights from a seed, so that speed and memory
 * can be measured without a download.
 *
 * Quality figures of such a model mean nothing. Its metadata has qdyno.synthetic=true, so that every screen
 * can say so. */
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
    bool tied; /* the embedding is also the output matrix */
    const char *help;
};
extern const struct synth_shape SYNTH_SHAPES[];
extern const size_t SYNTH_SHAPE_COUNT;
const struct synth_shape *synth_shape_find(const char *name); /* NULL when unknown; case-insensitive */

struct synth_options {
    const char *arch; /* "llama" "qwen2" "gpt2" */
    const struct synth_shape *shape;
    const struct format *format; /* of the matrices; f16 where rows do not fill its blocks; norms are f32 */
    uint64_t seed;               /* the same options give the same bytes */
    int threads;
    void (*progress)(void *ctx, double done); /* 0..1; may be NULL */
    void *ctx;
};
/* Write the model to `path` atomically, with a working SPM or BPE vocabulary of the shape's size. Takes about
 * 25 MiB of memory, whatever the model's size. "gpt2" is never tied and has as many key and value
 * heads as heads, whatever the shape says. Errors: ERR_USAGE (an unknown architecture, an impossible shape, a
 * format without encoder), ERR_IO, ERR_FIT (disk full), ERR_NOMEM. */
enum err_code synth_write(const char *path, const struct synth_options *options, struct err *why);

/* ---------------------------------------------------------------- noise (synth_noise.c) */

/* 65536 quantiles of N(0,1). They are the same bits on every machine, because only + - * / and sqrt compute
 * them. */
struct noise {
    float quantile[1 << 16];
};
void noise_init(struct noise *n);
/* out[count] = mean + deviation * N(0,1). The values depend on (seed, tensor, row) alone, so threads may fill
 * rows in any order. */
struct noise_stream {
    uint64_t seed, tensor, row;
};
void noise_fill(const struct noise *n, struct noise_stream at, float *out, int64_t count, float mean,
                float deviation);
/* out[count] = elements first, first + 1 ... of the row's endless list of uniform numbers in [0, limit). */
void noise_choose(struct noise_stream at, int64_t first, uint32_t *out, int64_t count, uint32_t limit);

#endif
