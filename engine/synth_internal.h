/* engine/synth_internal.h - what the files of the model maker share; no outsider includes it. */
#ifndef QDYNO_ENGINE_SYNTH_INTERNAL_H
#define QDYNO_ENGINE_SYNTH_INTERNAL_H

#include "engine/gguf.h"
#include "engine/synth.h"

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

/* ---------------------------------------------------------------- vocabulary (synth_vocab.c) */

/* Put tokenizer.ggml.* for `size` tokens. Errors: ERR_USAGE (too small a vocabulary), ERR_NOMEM. */
enum err_code synth_vocab_spm(struct gguf_writer *w, int64_t size, struct err *why);
enum err_code synth_vocab_bpe(struct gguf_writer *w, int64_t size, const char *pre, struct err *why);

#endif
