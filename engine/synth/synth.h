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

enum { SYNTH_NONE = -1 }; /* where 0 means "derive" */

/* Sizes of a model. Those from `arch` on may be 0: then synth_write derives them from the others, as the
 * architecture needs them (docs/synth.md). Sizes that an architecture does not have are ignored. */
struct synth_shape {
    const char *name; /* "tiny" "15m" "1b" "7b" ... */
    int layers, heads, kv_heads;
    int64_t embd, ff, vocab, ctx;
    bool tied; /* the embedding is also the output matrix */
    const char *help;
    const char *arch;          /* the only architecture that the shape is meant for; NULL: any */
    const char *expert_format; /* of the experts' matrices, as in the published files */
    int head_dim, rope_dims;   /* of one head, and the rotated part of it */
    int window;
    int experts, experts_used, dense_layers; /* dense_layers: the first ones, which have no experts */
    int64_t expert_ff, shared_ff;            /* shared_ff: of the expert that every token uses */
    int64_t q_lora, kv_lora;                 /* latent attention; q_lora may be SYNTH_NONE */
    int layer_inputs, shared_kv_layers;      /* of Gemma 4; both may be SYNTH_NONE */
    struct {
        int heads, groups, key_dim, value_dim;
    } state; /* of layers with a state instead of attention */
};
extern const struct synth_shape SYNTH_SHAPES[]; /* dense models of any architecture */
extern const size_t SYNTH_SHAPE_COUNT;
extern const struct synth_shape SYNTH_PRESETS[]; /* layer shapes of well-known models */
extern const size_t SYNTH_PRESET_COUNT;
const struct synth_shape *synth_shape_find(const char *name); /* NULL when unknown; case-insensitive */

struct synth_options {
    const char *arch; /* a row of ARCHS; NULL: that of the shape, else llama */
    const struct synth_shape *shape;
    int layers;                         /* so many instead of the shape's; 0: the shape's */
    const struct format *format;        /* of the matrices; f16 where rows do not fill its blocks */
    const struct format *expert_format; /* of the experts' matrices; NULL: that of the shape, else `format` */
    uint64_t seed;                      /* the same options give the same bytes */
    int threads;
    void (*progress)(void *ctx, double done); /* 0..1; may be NULL */
    void *ctx;
};
/* What these options resolve to. */
const char *synth_arch_name(const struct synth_options *o);
const struct format *synth_expert_format(const struct synth_options *o);

/* Write the model to `path` atomically, with a working SPM or BPE vocabulary of the shape's size. Tensors and
 * metadata are those that engine/arch requires of the architecture; vectors, routers, convolutions and
 * learned positions are f32. Takes about 25 MiB of memory, whatever the model's size. "gpt2" has as many key
 * and value heads as heads, whatever the shape says. Errors: ERR_USAGE (an unknown architecture, an
 * impossible shape, a format without encoder), ERR_IO, ERR_FIT (disk full), ERR_NOMEM. */
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
