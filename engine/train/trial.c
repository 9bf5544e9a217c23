/* Trains from scratch repeatedly in one process. */
#include "engine/train/trial.h"

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/config/config.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"
#include "engine/train/train_ranks.h"
#include "engine/train/trainer.h"

/* Learning a vocabulary of the same size from fewer stories is faster, and a worker does it at every start.
 * The tokens differ from the bundled model's, the amount of work does not. */
enum { VOCABULARY_STORIES = 2000 };

struct trial {
    struct train_options o;
    struct config config;
    struct trainer trainer;
    int64_t params, optimizer_bytes;
    struct network_memory memory;
    bool begun; /* the ranks have learners */
};

/* ---------------------------------------------------------------- open, close */

/* Training options from a config. ERR_USAGE: a key that training does not use. */
static enum err_code trial_read_options(struct train_options *o, const struct config *c, struct err *why)
{
    const struct knob *stray = config_stray(c, FOR_TRAIN);
    if (stray) return err_set(why, ERR_USAGE, "the key %s has no effect on training", stray->key);
    const int64_t threads = config_int(c, KNOB_THREADS);
    *o = train_defaults();
    o->amp = (enum amp)config_choice(c, KNOB_AMP);
    o->optimizer = (enum optimizer)config_choice(c, KNOB_OPTIMIZER);
    o->checkpoint_every = (int)config_int(c, KNOB_CHECKPOINT_EVERY);
    o->trim_every = (int)config_int(c, KNOB_TRIM_EVERY);
    o->batch = (int)config_int(c, KNOB_TRAIN_BATCH);
    o->accumulate = (int)config_int(c, KNOB_ACCUMULATE);
    const struct parallel mode = config_parallel(c);
    o->ranks = mode.dp;
    o->hosts = *config_text(c, KNOB_HOSTS) ? config_text(c, KNOB_HOSTS) : NULL;
    o->threads = threads || mode.dp > 1 ? (int)threads : threadpool_default_threads();
    o->vocabulary_stories = VOCABULARY_STORIES;
    const enum err_code rc = parallel_check_training(&mode, o->accumulate, why);
    return rc ? rc : session_isa(&o->isa, c, why);
}

/* A unique path for the vocabulary, which is a file only until it is opened. */
static char *trial_temporary_path(struct err *why)
{
    char *folder;
    struct str path = { 0 };
    if (file_place(&folder, FILE_CACHE, why)) return NULL;
    str_printf(&path, "%s/trial-%d-%" PRId64, folder, (int)getpid(), clock_ns());
    free(folder);
    return str_take(&path);
}

static enum err_code trial_resolve_config(struct trial *t, struct err *why)
{
    enum err_code rc = config_resolve_int(&t->config, KNOB_THREADS, t->o.threads, why);
    for (size_t i = 0; i < ISA_LEVEL_COUNT && !rc; i++)
        if (ISA_LEVELS[i].bits == t->o.isa)
            rc = config_resolve_text(&t->config, KNOB_ISA, ISA_LEVELS[i].name, why);
    return rc;
}

/* A learner in each rank, as a run begins with it. */
static enum err_code trial_begin_ranks(struct trial *t, struct err *why)
{
    const struct learner_options learner = trainer_learner_options(&t->o);
    struct train_ranks_info info;
    const enum err_code rc = train_ranks_open(t->trainer.ranks, &learner, t->o.seed, &info, why);
    if (rc) return rc;
    t->begun = true;
    t->o.threads = (int)info.threads;
    t->memory = info.memory;
    t->optimizer_bytes = info.optimizer_bytes;
    return ERR_OK;
}

/* Start the ranks, if there are any, and find out what they compute with and need. */
static enum err_code trial_open_ranks(struct trial *t, struct err *why)
{
    const struct ranks_options options = { .count = t->o.ranks, .hosts = t->o.hosts };
    if (t->o.ranks == 1) return ERR_OK;
    const enum err_code rc = ranks_start(&t->trainer.ranks, &options, why);
    return rc ? rc : trial_begin_ranks(t, why);
}

enum err_code trial_open(struct trial **out, const struct config *c, struct err *why)
{
    *out = NULL;
    struct trial *t = calloc(1, sizeof *t);
    if (!t) return err_set(why, ERR_NOMEM, "out of memory for training");
    t->config = *c;
    enum err_code rc = trial_read_options(&t->o, c, why);
    char *path = rc ? NULL : trial_temporary_path(why);
    if (!rc && !path) rc = why ? why->code : ERR_IO;
    if (!rc) rc = trainer_open(&t->trainer, path, &t->o, why);
    if (!rc) {
        t->params = network_params(t->trainer.learner.network);
        t->memory = network_memory(t->trainer.learner.network);
        t->optimizer_bytes = learner_optimizer_bytes(&t->trainer.learner);
        rc = trial_open_ranks(t, why);
    }
    if (!rc) rc = trial_resolve_config(t, why);
    trial_rest(t);
    if (t->trainer.state_path) unlink(t->trainer.state_path); /* the open file stays readable */
    free(path);
    if (rc) {
        trial_close(t);
        return rc;
    }
    *out = t;
    return ERR_OK;
}

void trial_close(struct trial *t)
{
    if (!t) return;
    trainer_close(&t->trainer);
    free(t);
}

void trial_rest(struct trial *t)
{
    trainer_close_network(&t->trainer);
    if (t->begun) train_ranks_close(t->trainer.ranks, NULL); /* an error shows when the next run begins */
    t->begun = false;
    malloc_trim(0);
}

struct ranks *trial_ranks(const struct trial *t)
{
    return t->trainer.ranks;
}

void trial_describe(const struct trial *t, struct trial_info *out)
{
    const struct network_shape *s = &t->o.shape;
    *out = (struct trial_info){ .params = t->params,
                                .memory = t->memory,
                                .optimizer_bytes = t->optimizer_bytes,
                                .ranks = t->o.ranks,
                                .threads = t->o.threads,
                                .ctx = s->ctx,
                                .isa = t->o.isa,
                                .config = t->config };
    snprintf(out->name, sizeof out->name,
             "trained from scratch: llama, %d layers, width %" PRId64 ", %" PRId64
             " tokens, rows of %d, gradients summed in pairs",
             s->layers, s->embd, s->vocab, s->ctx);
}

/* ---------------------------------------------------------------- one run */

/* Start again from a new network with the given seed. */
static enum err_code trial_begin(struct trial *t, uint64_t seed, struct err *why)
{
    struct trainer *x = &t->trainer;
    trial_rest(t);
    t->o.seed = seed;
    x->source.seed = seed;
    x->step = x->updates = x->skipped = 0;
    x->scale = loss_scale_begin(t->o.amp);
    if (x->ranks) return trial_begin_ranks(t, why);
    enum err_code rc = trainer_open_network(x, why);
    return rc ? rc : network_randomize(x->learner.network, seed, why);
}

static void hash_short(char out[17], const void *bytes, size_t n)
{
    char hex[HASH_HEX];
    hash_bytes(bytes, n, hex);
    memcpy(out, hex, 16);
    out[16] = '\0';
}

/* Run and time the steps; hashes the rows they read. */
static enum err_code trial_run_steps(struct trial *t, struct trial_result *out, int steps,
                                     struct train_rows *r, trial_progress_fn *progress, void *ctx,
                                     struct err *why)
{
    struct trainer *x = &t->trainer;
    const size_t rows = (size_t)t->o.batch * (size_t)t->o.accumulate;
    const size_t bytes = rows * (size_t)t->o.shape.ctx * sizeof *r->tokens;
    struct str work = { 0 };
    struct train_progress p = { .loss = NAN };
    enum err_code rc = ERR_OK;
    while (!rc && x->step < steps) {
        char hash[17];
        const int64_t start = clock_ns();
        rc = trainer_step(x, r, &p, why);
        trainer_trim(x);
        out->seconds += (double)(clock_ns() - start) * 1e-9;
        hash_short(hash, r->tokens, bytes);
        str_append(&work, hash);
        if (!rc && progress && !progress(ctx, (int)x->step, steps, out->seconds))
            rc = err_set(why, ERR_CANCELLED, "cancelled");
    }
    if (!rc && work.failed) rc = err_set(why, ERR_NOMEM, "out of memory");
    hash_short(out->work_hash, str_text(&work), work.len);
    str_free(&work);
    return rc;
}

enum err_code trial_run(struct trial *t, struct trial_result *out, int steps, uint64_t seed,
                        trial_progress_fn *progress, void *ctx, struct err *why)
{
    struct train_rows r = { 0 };
    *out = (struct trial_result){ .steps = steps, .first_loss = NAN, .loss = NAN };
    if (steps < 1 || steps > t->o.steps)
        return err_set(why, ERR_USAGE, "%d steps: expected 1 to %" PRId64, steps, t->o.steps);
    const int64_t rows = (int64_t)t->o.batch * t->o.accumulate;
    enum err_code rc = trial_begin(t, seed, why);
    if (!rc) rc = train_rows_open(&r, rows, t->o.shape.ctx, why);
    if (!rc) rc = trial_run_steps(t, out, steps, &r, progress, ctx, why);
    train_rows_close(&r);
    if (rc) return rc;
    out->skipped = t->trainer.skipped;
    out->tokens = steps * rows * t->o.shape.ctx;
    out->first_loss = (double)t->trainer.losses[0];
    out->loss = (double)t->trainer.losses[steps - 1];
    hash_short(out->output_hash, t->trainer.losses, (size_t)steps * sizeof *t->trainer.losses);
    return ERR_OK;
}
