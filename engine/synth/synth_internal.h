/* engine/synth/synth_internal.h - declarations shared by the files of engine/synth. */
#ifndef QDYNO_ENGINE_SYNTH_INTERNAL_H
#define QDYNO_ENGINE_SYNTH_INTERNAL_H

#include "engine/gguf/gguf.h"
#include "engine/synth/synth.h"

/* ---------------------------------------------------------------- vocabulary (synth_vocab.c) */

/* Write the metadata tokenizer.ggml.* of a vocabulary of `size` tokens. ERR_USAGE: the size is too small.
 * ERR_NOMEM. */
enum err_code synth_vocab_spm(struct gguf_writer *w, int64_t size, struct err *why);
enum err_code synth_vocab_bpe(struct gguf_writer *w, int64_t size, const char *pre, struct err *why);

/* ---------------------------------------------------------------- weights (synth_weights.c) */

/* A tensor of the file. Its values are mean + deviation * N(0,1). */
struct synth_tensor {
    char name[96];
    const struct format *format;
    int dims;
    int64_t shape[3]; /* shape[0] is the row length; unused ones are 1 */
    float mean, deviation;
};

struct synth_plan {
    struct synth_tensor *tensors;
    int64_t count;
};

/* Rows of a tensor, over all its matrices, and bytes of all of them. */
int64_t synth_tensor_rows(const struct synth_tensor *t);
int64_t synth_tensor_bytes(const struct synth_tensor *t);

/* Generate all tensors, which the writer knows in this order, and append them. ERR_IO, ERR_FIT, ERR_NOMEM. */
enum err_code synth_write_weights(struct gguf_writer *w, const struct synth_plan *plan,
                                  const struct synth_options *o, struct err *why);

#endif
