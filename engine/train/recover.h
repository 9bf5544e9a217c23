/* engine/train/recover.h - recovers quality of a quantized model by training it to predict what the original
 * predicts (distillation).
 *
 * The student computes with the quantized weights, exactly as the file stores them. Its gradient is applied
 * to an f32 copy (straight-through estimator), which is quantized again after every step. The loss is
 * KL(teacher || student) at every position of a text. Formats do not change, so neither do size and speed.
 * Rejected: architectures other than plain llama (biases, experts, stretched rotary positions), and methods
 * that store more than weights (input order, outliers, quantized activations).
 * Source of the estimator: Bengio et al., "Estimating or Propagating Gradients Through Stochastic Neurons",
 * 2013. */
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
    int batch, ctx;     /* rows in a step; tokens in a row, 0: the model's training context, at most 256 */
    double rate;        /* peak learning rate */
    bool norms_only;    /* train only the norms */
    enum amp amp;       /* of both models' products: off or bf16 */
    uint64_t seed;      /* selects the rows */
    const int32_t *ids; /* [n] tokens of the training text; borrowed */
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
    int64_t tokens, params;  /* tokens read; parameters trained */
    double seconds;
    struct network_memory memory; /* of student and teacher together */
};

/* Check from headers whether recovery is possible. ERR_USAGE says what prevents it. */
enum err_code recover_check(const struct gguf *original, const struct gguf *quantized, struct err *why);

/* Write `path` (atomically): `quantized` with new values in its matrices and norms. The same options give the
 * same file on any number of threads. On errors nothing is written: those of recover_check; ERR_USAGE
 * (options; a text shorter than a row), ERR_FIT (not enough memory: both numbers), ERR_FORMAT (the loss is
 * not a number), ERR_CANCELLED, ERR_IO, ERR_NOMEM. */
enum err_code recover_file(const char *path, const struct gguf *original, const struct gguf *quantized,
                           const struct recover_options *o, struct recover_report *out, struct err *why);

#endif
