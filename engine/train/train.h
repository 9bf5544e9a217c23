/* engine/train/train.h - public header of engine/train: trains a small model from scratch on this machine.
 *
 * Training generates stories (corpus.h), learns a vocabulary from them, and writes a GGUF model. The same
 * options give the same model for any number of threads and processes (on other instruction sets kernels
 * round differently). The state of a run is saved as PATH.train beside the model and replaced atomically, so
 * a stopped or killed run can be continued. */
#ifndef QDYNO_ENGINE_TRAIN_H
#define QDYNO_ENGINE_TRAIN_H

#include "engine/train/adam.h"
#include "engine/train/corpus.h"
#include "engine/train/network.h"
#include "engine/train/recover.h"
#include "engine/train/train_ranks.h"
#include "engine/train/trial.h"

struct train_progress {
    int64_t step, steps;     /* finished steps, total steps */
    double loss;             /* mean nats a token of the last step; NAN before the first */
    double rate, length;     /* learning rate; length of the gradient */
    double tokens_s, left_s; /* speed; estimated seconds left */
    int64_t peak_bytes;
};

struct train_options {
    struct network_shape shape; /* shape.vocab: size of the vocabulary to learn */
    enum amp amp;
    int batch, accumulate; /* rows in a forward pass; forward passes in a step */
    int checkpoint_every;  /* layers between activation checkpoints; 0: keep all activations */
    int trim_every;        /* steps between releases of activation memory; 0: never */
    int save_every;        /* steps between saves of PATH.train */
    int64_t steps, warmup;
    enum optimizer optimizer;
    struct adam_options adam; /* Muon uses its learning rate and weight decay as well */
    uint64_t seed;
    int64_t vocabulary_stories, exam_stories;
    const struct format *format; /* of the model's matrices: f16 or f32 */
    const char *name;            /* general.name */
    int ranks;             /* processes that compute the steps; 1: this one. See parallel_check_training */
    const char *hosts;     /* file of machines for them; NULL: this machine */
    const struct log *log; /* may be NULL */
    int threads;           /* of each process; 0, with ranks: each one's part of the cores */
    uint32_t isa;
    bool (*progress)(void *ctx, const struct train_progress *p); /* may be NULL; false: save and stop */
    void *ctx;
};
/* Defaults for a model of 5 million parameters whose row lengths suit every format. */
struct train_options train_defaults(void);

struct train_report {
    float *losses; /* [steps] mean nats a token of each step, NAN: skipped; owned: train_report_done */
    int64_t steps, skipped, params, tokens; /* skipped: steps with an overflowed gradient */
    bool resumed;
    double loss;              /* mean of the last 50 steps */
    double held_out, floor;   /* nats a token on held-out stories: of the model, and the lowest possible */
    double characters;        /* per token */
    double seconds, tokens_s; /* of the steps of this call */
    int64_t peak_bytes;       /* of the process */
    struct network_memory memory;
};
/* Train, or continue training, the model at `path`. Errors: ERR_USAGE (invalid options, or other options than
 * PATH.train was started with), ERR_CANCELLED (stopped; the same call continues), ERR_FORMAT (PATH.train is
 * damaged, or the loss became NaN or infinite), ERR_IO, ERR_NOMEM. */
enum err_code train_run(const char *path, const struct train_options *o, struct train_report *out,
                        struct err *why);
void train_report_done(struct train_report *r);

#endif
