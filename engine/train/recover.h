/* engine/train/recover.h - a badly quantized model taught to say what the original says.
 *
 * The student computes with the quantized weights, as the file will have them; a gradient goes straight
 * through the rounding to a copy in f32, which is encoded again after every step (Bengio et al. 2013,
 * "straight-through"). The teacher is the original: what is made small is KL(teacher || student) at every
 * position of a text. Formats stay as they are, tensor by tensor, so size and speed do. Refused is whatever
 * the trainer's network cannot be: other architectures than plain llama (biases, experts, stretched rotary
 * positions), methods that keep more than weights (order of inputs, outliers, quantized activations). */
#ifndef QDYNO_ENGINE_TRAIN_RECOVER_H
#define QDYNO_ENGINE_TRAIN_RECOVER_H

#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "engine/train/network.h"

struct gguf;

struct recover_progress {
    int64_t step, steps;
    double loss; /* KL in nats a token of the last step */
    double left_s;
};

struct recover_options {
    int64_t steps;
    int batch, ctx; /* rows of a step; tokens of a row, 0: as many as the model was trained on, at most 256 */
    double rate;    /* peak learning rate */
    bool norms_only;    /* the matrices stay as they are */
    enum amp amp;       /* of both models' products: off or bf16 */
    uint64_t seed;      /* which rows */
    const int32_t *ids; /* tokens of the text to learn from; borrowed */
    int64_t n;
    int32_t bos; /* first token of every row; -1: none */
    int threads;
    uint32_t isa;
    bool (*progress)(void *ctx, const struct recover_progress *p); /* may be NULL; false cancels */
    void *progress_ctx;
};
struct recover_options recover_defaults(void); /* 200 steps of 4 rows; no text */

struct recover_report {
    double first_loss, loss; /* KL in nats a token, means over the first and the last tenth of the steps */
    int64_t tokens, params;  /* read; trained */
    double seconds;
    struct network_memory memory; /* of both networks */
};

/* Can it be done at all? From headers alone: ERR_USAGE says what is in the way. */
enum err_code recover_check(const struct gguf *original, const struct gguf *quantized, struct err *why);

/* Write `path` (atomic): `quantized` with other numbers in its matrices and norms. Same options, same file,
 * on any number of threads. Errors: as recover_check; ERR_USAGE (options, a text shorter than a row); ERR_FIT
 * (more memory than there is: both numbers); ERR_FORMAT (a loss that is no number); ERR_CANCELLED, ERR_IO,
 * ERR_NOMEM: nothing is written. */
enum err_code recover_file(const char *path, const struct gguf *original, const struct gguf *quantized,
                           const struct recover_options *o, struct recover_report *out, struct err *why);

#endif
