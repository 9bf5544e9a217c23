/* A training run: steps, evaluation on held-out stories, and writing the model. */
#include "engine/train/train.h"

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/train/train_ranks.h"
#include "engine/train/trainer.h"
#include "engine/gguf/gguf.h"
#include "engine/text/text.h"

enum { LAST_STEPS = 50 }; /* the report's loss is the mean over these */

struct train_options train_defaults(void)
{
    return (struct train_options){
        .shape = { .layers = 6,
                   .heads = 4,
                   .kv_heads = 2,
                   .ctx = 256,
                   .embd = 256,
                   .ff = 768,
                   .vocab = 1536,
                   .tied = true,
                   .rope_base = 10000,
                   .eps = 1e-5f },
        .amp = AMP_BF16,
        .batch = 8,
        .accumulate = 2,
        .save_every = 200,
        .steps = 8000,
        .warmup = 200,
        .adam = { .rate = 3e-3,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .epsilon = 1e-8,
                  .weight_decay = 0.1,
                  .clip = 1 },
        .seed = 1,
        .vocabulary_stories = 20000,
        .exam_stories = 1000,
        .format = &FORMATS[FORMAT_F16],
        .name = "qdyno stories",
        .ranks = 1,
        .threads = 1,
    };
}

static int64_t peak_bytes(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) ? -1 : (int64_t)u.ru_maxrss * 1024;
}

/* ---------------------------------------------------------------- one step */

enum err_code train_rows_open(struct train_rows *r, int64_t rows, int ctx, struct err *why)
{
    r->tokens = malloc((size_t)(rows * ctx) * sizeof *r->tokens);
    r->targets = malloc((size_t)(rows * ctx) * sizeof *r->targets);
    return r->tokens && r->targets ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for tokens");
}

void train_rows_close(struct train_rows *r)
{
    free(r->tokens);
    free(r->targets);
}

static int64_t count_targets(const int32_t *targets, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += targets[i] >= 0;
    return count;
}

static bool trim_follows(const struct trainer *t, int64_t step)
{
    return t->o->trim_every && step % t->o->trim_every == 0;
}

/* Compute a step here or in the ranks. p->loss becomes the sum over targets. */
static enum err_code trainer_compute(struct trainer *t, const struct learner_step *step,
                                     const struct train_rows *rows, struct train_progress *p, struct err *why)
{
    const struct learner_rows r = { .tokens = rows->tokens, .targets = rows->targets };
    struct learner_result result;
    enum err_code rc = ERR_OK;
    if (t->ranks)
        rc = train_ranks_step(t->ranks, step, &r, &result, why);
    else {
        result.loss = learner_gradients(&t->learner, step, &r);
        result.length = learner_update(&t->learner, step);
    }
    if (rc) return rc;
    p->loss = result.loss;
    p->length = result.length;
    return ERR_OK;
}

enum err_code trainer_step(struct trainer *t, struct train_rows *r, struct train_progress *p, struct err *why)
{
    const struct train_options *o = t->o;
    const int64_t rows = (int64_t)o->batch * o->accumulate, ctx = o->shape.ctx;
    enum err_code rc = ERR_OK;
    for (int64_t i = 0; !rc && i < rows; i++)
        rc = story_rows_train(&t->source, (uint64_t)(t->step * rows + i), r->tokens + i * ctx,
                              r->targets + i * ctx, why);
    if (rc) return rc;
    const int64_t targets = count_targets(r->targets, rows * ctx);
    const struct learner_step step = { .t = t->updates + 1,
                                       .rate = learning_rate(o->adam.rate, t->step, o->steps, o->warmup),
                                       .scale = t->scale.scale,
                                       .by = t->scale.scale / (float)targets,
                                       .trim = trim_follows(t, t->step + 1),
                                       .positions = rows * ctx };
    rc = trainer_compute(t, &step, r, p, why);
    if (rc) return rc;
    p->loss /= (double)targets;
    p->rate = step.rate;
    const bool finite = isfinite(p->length);
    if (!finite && (o->amp != AMP_FP16 || t->scale.scale <= 1))
        return err_set(why, ERR_FORMAT,
                       "step %" PRId64
                       ": loss %g and its gradient are not finite numbers; a smaller learning rate may help",
                       t->step + 1, p->loss);
    loss_scale_update(&t->scale, o->amp, finite);
    t->updates += finite;
    t->skipped += !finite;
    t->losses[t->step++] = finite ? (float)p->loss : NAN;
    return ERR_OK;
}

void trainer_trim(const struct trainer *t)
{
    if (trim_follows(t, t->step)) malloc_trim(0);
}

/* Loss on whole held-out stories, and its lower bound, the stories' entropy under the grammar. */
static enum err_code trainer_evaluate(struct trainer *t, struct train_report *out, struct err *why)
{
    const int batch = t->o->batch, ctx = t->o->shape.ctx;
    struct train_rows r = { 0 };
    struct held_out_row e = { 0 };
    double sum = 0, floor_nats = 0;
    int64_t targets = 0;
    enum err_code rc = train_rows_open(&r, batch, ctx, why);
    while (!rc && e.number < (uint64_t)t->o->exam_stories) {
        for (int i = 0; !rc && i < batch; i++) {
            rc = story_rows_held_out(&t->source, &e, r.tokens + i * ctx, r.targets + i * ctx, why);
            targets += e.counted;
            floor_nats += e.floor_nats;
        }
        if (!rc) sum += network_forward(t->learner.network, r.tokens, r.targets);
    }
    train_rows_close(&r);
    if (!rc && targets) {
        out->held_out = sum / (double)targets;
        out->floor = floor_nats / (double)targets;
    }
    return rc;
}

/* ---------------------------------------------------------------- the run */

/* Report progress; false: the user wants to stop. */
static bool trainer_report_progress(const struct trainer *t, struct train_progress *p, int64_t first,
                                    int64_t start_ns)
{
    const double seconds = (double)(clock_ns() - start_ns) * 1e-9;
    const struct train_options *o = t->o;
    p->step = t->step;
    p->steps = o->steps;
    p->tokens_s = (double)(t->step - first) * o->batch * o->accumulate * o->shape.ctx / seconds;
    p->left_s = seconds / (double)(t->step - first) * (double)(o->steps - t->step);
    p->peak_bytes = peak_bytes();
    return !o->progress || o->progress(o->ctx, p);
}

/* Run steps until the end or until the user stops; saves the state regularly. */
static enum err_code trainer_run_steps(struct trainer *t, struct train_report *out, struct err *why)
{
    const struct train_options *o = t->o;
    struct train_rows r = { 0 };
    struct train_progress p = { .loss = NAN };
    const int64_t first = t->step, start = clock_ns();
    bool going = true;
    enum err_code rc = train_rows_open(&r, (int64_t)o->batch * o->accumulate, o->shape.ctx, why);
    while (!rc && going && t->step < o->steps) {
        rc = trainer_step(t, &r, &p, why);
        if (rc) break;
        trainer_trim(t);
        going = trainer_report_progress(t, &p, first, start);
        if (t->step % o->save_every == 0 || t->step == o->steps || !going) rc = trainer_save(t, why);
    }
    out->seconds = (double)(clock_ns() - start) * 1e-9;
    if (t->step > first) out->tokens_s = p.tokens_s;
    train_rows_close(&r);
    if (!rc && !going && t->step < o->steps)
        rc = err_set(why, ERR_CANCELLED,
                     "stopped after step %" PRId64 " of %" PRId64 "; run the same command to continue",
                     t->step, o->steps);
    return rc;
}

/* Mean loss of the last steps that were not skipped. */
static double trainer_last_loss(const struct trainer *t)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = MAX(0, t->step - LAST_STEPS); i < t->step; i++)
        if (isfinite(t->losses[i])) sum += (double)t->losses[i], n++;
    return n ? sum / (double)n : NAN;
}

/* Fill the report and evaluate on held-out stories. */
static enum err_code trainer_fill_report(struct trainer *t, struct train_report *out, struct err *why)
{
    const struct train_options *o = t->o;
    out->losses = malloc((size_t)o->steps * sizeof *out->losses);
    if (!out->losses) return err_set(why, ERR_NOMEM, "out of memory for a report");
    memcpy(out->losses, t->losses, (size_t)o->steps * sizeof *out->losses);
    out->steps = t->step;
    out->skipped = t->skipped;
    out->params = network_params(t->learner.network);
    out->tokens = t->step * o->batch * o->accumulate * o->shape.ctx;
    out->loss = trainer_last_loss(t);
    out->memory = network_memory(t->learner.network);
    out->peak_bytes = peak_bytes();
    return trainer_evaluate(t, out, why);
}

/* ---------------------------------------------------------------- open, close */

/* ERR_USAGE: options out of range. */
static enum err_code train_options_check(const struct train_options *o, struct err *why)
{
    const struct adam_options *a = &o->adam;
    if (o->steps < 1 || o->steps > 1 << 24 || o->accumulate < 1 || o->save_every < 1 || o->warmup < 0 ||
        o->trim_every < 0 || o->vocabulary_stories < 1 || o->exam_stories < 1)
        return err_set(
            why, ERR_USAGE,
            "--steps (at most %d), --accumulate, --save-every, --exam and the number of vocabulary stories "
            "must be at least 1, --warmup and --trim-every at least 0",
            1 << 24);
    if (!(a->rate > 0 && a->rate < 1 && a->weight_decay >= 0 && a->weight_decay < 10 && a->clip >= 0))
        return err_set(
            why, ERR_USAGE,
            "learning rate %g, weight decay %g, clip %g: expected a rate between 0 and 1, a decay from 0 "
            "to 10 and a clip of 0 or more",
            a->rate, a->weight_decay, a->clip);
    if (o->format != &FORMATS[FORMAT_F16] && o->format != &FORMATS[FORMAT_F32])
        return err_set(why, ERR_USAGE, "a model is written as f16 or f32; quantize it afterwards for others");
    return parallel_check_training(&(struct parallel){ .tp = 1, .cp = 1, .pp = 1, .dp = o->ranks },
                                   o->accumulate, why);
}

/* Text of all options that determine the resulting model. Threads, processes, saving, activation checkpoints
 * and trimming do not. */
static char *train_options_identity(const struct train_options *o)
{
    const struct network_shape *s = &o->shape;
    struct str text = { 0 };
    str_printf(&text,
               "layers=%d width=%" PRId64 " heads=%d kv_heads=%d ff=%" PRId64 " vocab=%" PRId64
               " ctx=%d tied=%d",
               s->layers, s->embd, s->heads, s->kv_heads, s->ff, s->vocab, s->ctx, s->tied);
    str_printf(&text, " amp=%s batch=%d accumulate=%d steps=%" PRId64 " warmup=%" PRId64 " seed=%" PRIu64,
               AMP_NAMES[o->amp], o->batch, o->accumulate, o->steps, o->warmup, o->seed);
    str_printf(&text, " rate=%g decay=%g clip=%g stories=%" PRId64, o->adam.rate, o->adam.weight_decay,
               o->adam.clip, o->vocabulary_stories);
    if (o->optimizer) str_printf(&text, " optimizer=%s", OPTIMIZER_NAMES[o->optimizer]);
    if (o->accumulate > 1) str_append(&text, " sums=tree"); /* until 0.1 they were added one after another */
    return str_take(&text);
}

struct learner_options trainer_learner_options(const struct train_options *o)
{
    return (struct learner_options){ .network = { .shape = o->shape,
                                                  .amp = o->amp,
                                                  .batch = o->batch,
                                                  .checkpoint_every = o->checkpoint_every,
                                                  .threads = o->threads,
                                                  .isa = o->isa },
                                     .adam = o->adam,
                                     .optimizer = o->optimizer,
                                     .passes = o->accumulate };
}

enum err_code trainer_open_network(struct trainer *t, struct err *why)
{
    struct learner_options o = trainer_learner_options(t->o);
    if (!o.network.threads) o.network.threads = threadpool_default_threads();
    if (t->o->ranks > 1) o.passes = 1; /* the ranks sum the gradients */
    return learner_open(&t->learner, &o, why);
}

void trainer_close_network(struct trainer *t)
{
    learner_close(&t->learner);
}

enum err_code trainer_open(struct trainer *t, const char *path, const struct train_options *o,
                           struct err *why)
{
    struct str state = { 0 };
    *t = (struct trainer){ .o = o, .scale = loss_scale_begin(o->amp) };
    enum err_code rc = train_options_check(o, why);
    if (rc) return rc;
    t->path = strdup(path);
    t->identity = train_options_identity(o);
    str_printf(&state, "%s.train", path);
    t->state_path = str_take(&state);
    t->losses = calloc((size_t)o->steps, sizeof *t->losses);
    if (!t->path || !t->identity || !t->state_path || !t->losses)
        return err_set(why, ERR_NOMEM, "out of memory for training");
    rc = trainer_open_network(t, why); /* first, because it checks the shape before anything is written */
    if (!rc) rc = corpus_open(&t->corpus, why);
    if (!rc) rc = trainer_open_state(t, why);
    if (rc) return rc;
    struct tokenizer_info info;
    tokenizer_describe(t->tokenizer, &info);
    t->source = (struct story_rows){ t->corpus, t->tokenizer, o->seed, o->shape.ctx, info.bos, info.eos };
    if (info.n_vocab == o->shape.vocab) return ERR_OK;
    return err_set(why, ERR_FORMAT, "'%s': expected a vocabulary of %" PRId64 " tokens, found %" PRId32,
                   t->state_path, o->shape.vocab, info.n_vocab);
}

void trainer_close(struct trainer *t)
{
    ranks_stop(t->ranks);
    trainer_close_network(t);
    tokenizer_close(t->tokenizer);
    gguf_close(t->gguf);
    corpus_close(t->corpus);
    free(t->path);
    free(t->state_path);
    free(t->identity);
    free(t->losses);
}

/* Average number of characters a token stands for, on 100 held-out stories. */
static enum err_code trainer_measure_tokens(const struct trainer *t, struct train_report *out,
                                            struct err *why)
{
    struct str text = { 0 };
    struct token_list ids = { 0 };
    for (uint64_t i = 0; i < 100; i++) {
        if (i) str_append(&text, "\n");
        corpus_story(t->corpus, (struct story_id){ t->o->seed, CORPUS_HELD_OUT, i }, &text);
    }
    enum err_code rc = text.failed ? err_set(why, ERR_NOMEM, "out of memory for stories")
                                   : tokenizer_encode(t->tokenizer, text.data, text.len, 0, &ids, why);
    if (!rc) out->characters = (double)text.len / (double)ids.n;
    token_list_free(&ids);
    str_free(&text);
    return rc;
}

/* Start ranks with the state of this process, unless no step is left. */
static enum err_code trainer_start_ranks(struct trainer *t, struct err *why)
{
    const struct train_options *o = t->o;
    const struct ranks_options options = { .count = o->ranks, .hosts = o->hosts, .log = o->log };
    const struct learner_options learner = trainer_learner_options(o);
    struct train_ranks_info info;
    if (t->step == o->steps) return ERR_OK;
    enum err_code rc = ranks_start(&t->ranks, &options, why);
    if (!rc) rc = train_ranks_open(t->ranks, &learner, o->seed, &info, why);
    if (!rc && t->step) rc = train_ranks_load(t->ranks, &t->learner, why);
    return rc;
}

enum err_code train_run(const char *path, const struct train_options *o, struct train_report *out,
                        struct err *why)
{
    struct trainer t;
    *out = (struct train_report){
        .loss = NAN, .held_out = NAN, .floor = NAN, .characters = NAN, .tokens_s = NAN
    };
    enum err_code rc = trainer_open(&t, path, o, why);
    if (!rc) rc = trainer_load(&t, &out->resumed, why);
    if (!rc && !out->resumed) rc = network_randomize(t.learner.network, o->seed, why);
    if (!rc && o->ranks > 1) rc = trainer_start_ranks(&t, why);
    if (!rc) rc = trainer_measure_tokens(&t, out, why);
    if (!rc) rc = trainer_run_steps(&t, out, why);
    if (!rc) rc = trainer_fill_report(&t, out, why);
    if (!rc) rc = trainer_export(&t, out, why);
    trainer_close(&t);
    return rc;
}

void train_report_done(struct train_report *r)
{
    free(r->losses);
    r->losses = NULL;
}
