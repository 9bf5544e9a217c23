/* engine/synth/synth_internal.h - declarations shared by the files of engine/synth. */
#ifndef QDYNO_ENGINE_SYNTH_INTERNAL_H
#define QDYNO_ENGINE_SYNTH_INTERNAL_H

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/synth/synth.h"

/* ---------------------------------------------------------------- vocabulary (synth_vocab.c) */

/* Write the metadata tokenizer.ggml.* of a vocabulary of `size` tokens. ERR_USAGE: the size is too small.
 * ERR_NOMEM. */
enum err_code synth_vocab_spm(struct gguf_writer *w, int64_t size, struct err *why);
enum err_code synth_vocab_bpe(struct gguf_writer *w, int64_t size, const char *pre, struct err *why);

/* ---------------------------------------------------------------- hyperparameters (synth_arch.c) */

/* What published files of an architecture have that engine/arch leaves open. */
struct synth_traits {
    const char *arch;
    bool spm;          /* the vocabulary */
    const char *pre;   /* otherwise: the pre-tokenizer; NULL: that of GPT-2 */
    double rope_base;  /* 0: 10000 */
    slot_set with;     /* optional tensors, beside those of experts */
    bool dense;        /* no experts, unless the shape has some */
    bool dense_first;  /* the first layer has no experts */
    bool all_kv_heads; /* as many KV heads as heads */
    bool never_tied;
};
const struct synth_traits *synth_traits_find(const struct arch *a); /* never NULL */

enum { SYNTH_PARTS = 3 }; /* kinds of layers where each has one part */

/* Derive the sizes that the shape leaves open, and those that the architecture forces. */
void synth_shape_complete(struct synth_shape *s, const struct arch *a);

/* Write all metadata but the vocabulary, of a completed shape. The writer keeps the first failure. */
void synth_put_metadata(struct gguf_writer *w, const struct arch *a, const struct synth_shape *s);
/* ERR_USAGE: the vocabulary is too small. ERR_NOMEM. */
enum err_code synth_put_vocabulary(struct gguf_writer *w, const struct arch *a, const struct synth_shape *s,
                                   struct err *why);

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
