/* engine/ledger.h - what a model's weights and cache take, from shapes alone.
 *
 * The memory plan is the loader's own and exists only for models that this engine runs. The ledger is made
 * from metadata and tensor shapes of any GGUF file with the usual keys, mixtures of experts and sliding
 * windows included, or of a shape that is no file at all: for models one does not run here, and models one
 * does not have yet. Buffers of a pass are not in it. */
#ifndef QDYNO_ENGINE_LEDGER_H
#define QDYNO_ENGINE_LEDGER_H

#include "engine/gguf.h"
#include "engine/synth.h"

struct shape_ledger {
    int layers, heads, kv_heads; /* kv_heads < heads: queries share them */
    int window, windowed_layers; /* layers that look back `window` tokens only */
    int experts, experts_used;   /* of each layer; 0: none */
    int64_t ctx, ctx_train;
    int64_t weight_bytes;    /* all tensors */
    int64_t expert_bytes;    /* of them, experts */
    int64_t read_bytes;      /* of weights, for one token: only the experts that are used */
    int64_t kv_bytes;        /* for ctx tokens in every layer */
    int64_t kv_window_bytes; /* the least it could be: windows only as long as they are */
    int64_t kv_bytes_per_token;
    int64_t total; /* weights and cache */
};
/* ctx 0: the training context, at most 4096. k, v: of the cache. Errors: ERR_FORMAT (a key is missing). */
enum err_code shape_ledger_read(struct shape_ledger *out, const struct gguf *g, int64_t ctx,
                                const struct format *k, const struct format *v, struct err *why);
/* A model of that shape with all matrices in `format` (f16 where rows do not fit its blocks). */
void shape_ledger_of(struct shape_ledger *out, const struct synth_shape *s, const struct format *format,
                     int64_t ctx, const struct format *k, const struct format *v);

#endif
