/* engine/train/train.h - the door of engine/train/: a model made from nothing, on this machine.
 *
 * Training reads stories (corpus.h), learns their vocabulary, and writes a GGUF model. Same options, same
 * model, whatever the number of threads (kernels of other instruction sets round differently). What is needed
 * to go on is kept beside the model as PATH.train and replaced as a whole, so a stopped or killed run
 * continues. */
#ifndef QDYNO_ENGINE_TRAIN_H
#define QDYNO_ENGINE_TRAIN_H

#include "engine/train/adam.h"
#include "engine/train/corpus.h"
#include "engine/train/network.h"
#include "engine/train/recover.h"
#include "engine/train/trial.h"

struct train_progress {
    int64_t step, steps; /* done, of */
    double loss;         /* mean nats a token of the last step; NAN before the first */
    double rate, length; /* learning rate, gradient's length */
    double tokens_s, left_s;
    int64_t peak_bytes;
};

struct train_options {
    struct network_shape shape; /* vocab: tokens wanted */
    enum amp amp;
    int batch, accumulate; /* rows worked on at once; how often before a step */
    int checkpoint_every;  /* layers; 0: keep all activations */
    int trim_every;        /* steps; 0: never give memory back between steps */
    int save_every;        /* steps */
    int64_t steps, warmup;
    enum optimizer optimizer;
    struct adam_options adam; /* Muon's rate and decay, too */
    uint64_t seed;
    int64_t vocabulary_stories, exam_stories;
    const struct format *format; /* of the model's matrices: f16 or f32 */
    const char *name;            /* general.name */
    int threads;
    uint32_t isa;
    bool (*progress)(void *ctx, const struct train_progress *p); /* may be NULL; false: stop, and keep */
    void *ctx;
};
/* A model of 5 million parameters whose rows fit every format; to be changed as wanted. */
struct train_options train_defaults(void);

struct train_report {
    float *losses; /* [steps] mean nats a token of each step, owned: train_report_done; NAN: skipped */
    int64_t steps, skipped, params, tokens; /* skipped: steps whose gradients overflowed */
    bool resumed;
    double loss;              /* mean of the last steps */
    double held_out, floor;   /* nats a token of whole held-out stories: the model's, and the language's */
    double characters;        /* a token */
    double seconds, tokens_s; /* of this run's own steps */
    int64_t peak_bytes;       /* of the process */
    struct network_memory memory;
};
/* Errors: ERR_USAGE (options that cannot be, or not those PATH.train was begun with), ERR_CANCELLED (stopped;
 * the same call goes on), ERR_FORMAT (PATH.train damaged; or the loss is no number any more), ERR_IO,
 * ERR_NOMEM.
 */
enum err_code train_run(const char *path, const struct train_options *o, struct train_report *out,
                        struct err *why);
void train_report_done(struct train_report *r);

#endif
