/* Trains a quantized model against its original with the straight-through estimator. */
#include "engine/train/recover.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"
#include "engine/train/adam.h"
#include "engine/train/rows.h"

enum { ROW_MOST = 256 };

struct recovery_run {
    const struct recover_options *o;
    const struct gguf *original, *quantized;
    struct network *teacher, *student;
    const struct gguf_tensor *
        *stored;               /* [tensors of the network] in the quantized file; NULL: a tied output */
    float *master, *m, *v;     /* [params]: f32 copy that is trained; the optimizer's running means */
    void *codes;               /* scratch: the largest matrix, encoded */
    int32_t *tokens, *targets; /* [batch][ctx]; all targets are -1, because the loss needs none */
    int64_t rows;              /* rows read so far */
};

struct recover_options recover_defaults(void)
{
    return (struct recover_options){
        .steps = 200, .batch = 4, .rate = 3e-4, .amp = AMP_BF16, .bos = -1, .threads = 1
    };
}

/* ---------------------------------------------------------------- what can be recovered */

/* The trainer's network shape for a model file. ERR_USAGE: it is not a plain llama model. */
static enum err_code shape_read(struct network_shape *out, const struct gguf *g, struct err *why)
{
    struct model_shape s;
    struct hyper h;
    enum err_code rc = model_shape_read(&s, g, why);
    if (!rc) rc = hyper_read(&h, &s, g, why);
    if (rc) return rc;
    const char *lack = NULL;
    if (strcmp(s.arch, "llama"))
        lack = "its architecture is not llama";
    else if (s.rope_dims != s.head_dim_k || s.head_dim_k != s.head_dim_v || s.head_dim_k * s.heads != s.embd)
        lack = "its heads do not divide the width evenly, or rotate only some dimensions";
    else if (h.rope_factor != 1 || h.yarn || s.window)
        lack = "its rotary positions are stretched, or attention is limited to a window";
    if (lack)
        return err_set(why, ERR_USAGE,
                       "this model cannot be recovered: %s; the trainer supports plain llama models only",
                       lack);
    *out = (struct network_shape){ .layers = s.layers,
                                   .heads = s.heads,
                                   .kv_heads = s.kv_heads,
                                   .ctx = (int)MIN(s.ctx_train, ROW_MOST),
                                   .embd = s.embd,
                                   .ff = s.ff,
                                   .vocab = s.vocab,
                                   .tied = s.tied_output,
                                   .rope_base = h.rope_base,
                                   .eps = h.eps };
    return ERR_OK;
}

/* Whether a network of this shape has a tensor of that name. */
static bool shape_has(const struct network_shape *s, const char *name)
{
    static const char *const LAYER[] = { "attn_norm", "attn_q",   "attn_k", "attn_v",  "attn_output",
                                         "ffn_norm",  "ffn_gate", "ffn_up", "ffn_down" };
    char full[64];
    if (!strcmp(name, "token_embd.weight") || !strcmp(name, "output_norm.weight")) return true;
    if (!strcmp(name, "output.weight")) return !s->tied;
    for (int l = 0; l < s->layers; l++)
        for (size_t i = 0; i < COUNT_OF(LAYER); i++) {
            snprintf(full, sizeof full, "blk.%d.%s.weight", l, LAYER[i]);
            if (!strcmp(name, full)) return true;
        }
    return false;
}

/* Check that the network has every tensor of the file and can encode its format. ERR_USAGE. */
static enum err_code tensors_check(const struct gguf *g, const struct network_shape *s, struct err *why)
{
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (!shape_has(s, t->name))
            return err_set(
                why, ERR_USAGE,
                "this model cannot be recovered: the trainer's network has no tensor '%s' (biases, "
                "experts, and what a method keeps beside a matrix are not trained)",
                t->name);
        if (!t->format->decode || (t->dims > 1 && !t->format->encode))
            return err_set(why, ERR_USAGE,
                           "this model cannot be recovered: tensor '%s' is %s, which is not encoded here",
                           t->name, t->format->name);
    }
    return ERR_OK;
}

/* Check that both files are the same model and can be trained. ERR_USAGE. */
static enum err_code models_check(struct network_shape *s, const struct gguf *original,
                                  const struct gguf *quantized, struct err *why)
{
    struct network_shape other;
    enum err_code rc = shape_read(s, original, why);
    if (!rc) rc = shape_read(&other, quantized, why);
    if (!rc) rc = tensors_check(original, s, why);
    if (!rc) rc = tensors_check(quantized, s, why);
    if (rc) return rc;
    if (s->layers != other.layers || s->heads != other.heads || s->kv_heads != other.kv_heads ||
        s->embd != other.embd || s->ff != other.ff || s->vocab != other.vocab || s->tied != other.tied)
        return err_set(why, ERR_USAGE, "the quantized file was not made from this original: shapes differ");
    if (gguf_get_string(quantized, "qdyno.act").data)
        return err_set(
            why, ERR_USAGE,
            "this model cannot be trained to recover quality: its activations are quantized as well, which "
            "training does not support; use a method that quantizes weights only");
    return ERR_OK;
}

enum err_code recover_check(const struct gguf *original, const struct gguf *quantized, struct err *why)
{
    struct network_shape shape;
    return models_check(&shape, original, quantized, why);
}

/* ---------------------------------------------------------------- weights in and out */

static void tensor_decode(const struct gguf_tensor *t, const struct network_tensor *x, float *out)
{
    format_decode_rows(t->format, gguf_tensor_data(t), out, x->rows, x->cols);
}

struct coding {
    const struct format *format;
    int64_t cols;
    const float *x;
    uint8_t *codes;
    float *back; /* receives the decoded values; NULL: not wanted */
};

static void encoding_rows(const void *arg, int64_t from, int64_t to)
{
    const struct coding *c = arg;
    uint8_t *codes = c->codes + from * format_row_bytes(c->format, c->cols);
    format_encode_rows(c->format, c->x + from * c->cols, codes, to - from, c->cols);
    if (c->back) format_decode_rows(c->format, codes, c->back + from * c->cols, to - from, c->cols);
}

/* Encode tensor i of the master into r->codes, and decode it into `back` unless that is NULL. */
static void recovery_encode(const struct recovery_run *r, int i, float *back)
{
    const struct network_tensor *x = network_tensor_at(r->student, i);
    const struct coding c = { r->stored[i]->format, x->cols, r->master + x->offset, r->codes, back };
    rows_run(network_threads(r->student), x->rows, encoding_rows, &c);
}

/* Set the student's weights: matrices of the master after quantization, and its norms unchanged. */
static void recovery_round_student(struct recovery_run *r)
{
    for (int i = 0; i < network_tensor_count(r->student); i++) {
        const struct network_tensor *x = network_tensor_at(r->student, i);
        float *w = network_weights(r->student) + x->offset;
        if (!r->stored[i]) continue;
        if (x->matrix)
            recovery_encode(r, i, w);
        else
            memcpy(w, r->master + x->offset, (size_t)(x->rows * x->cols) * sizeof *w);
    }
    network_changed(r->student);
}

/* Start value of the master. If rounding the original to nearest gives the file's values, start from the
 * original, which lies between the rounding boundaries. Otherwise a method chose better values than rounding
 * would: start from the file's own. */
static void recovery_init_tensor(struct recovery_run *r, int i)
{
    const struct network_tensor *x = network_tensor_at(r->student, i);
    const struct gguf_tensor *stored = r->stored[i], *source = gguf_tensor_find(r->original, stored->name);
    float *to = r->master + x->offset;
    tensor_decode(source, x, network_weights(r->teacher) + x->offset);
    if (x->matrix && !r->o->norms_only) {
        memcpy(to, network_weights(r->teacher) + x->offset, (size_t)(x->rows * x->cols) * sizeof *to);
        recovery_encode(r, i, NULL);
        if (!memcmp(r->codes, stored->data, (size_t)stored->bytes)) return;
    }
    tensor_decode(stored, x, to);
}

/* Find each of the network's tensors in the quantized file. */
static enum err_code recovery_find_tensors(struct recovery_run *r, struct err *why)
{
    const int count = network_tensor_count(r->student);
    int64_t largest = 1;
    r->stored = calloc((size_t)count, sizeof *r->stored);
    if (!r->stored) return err_set(why, ERR_NOMEM, "out of memory for recovery");
    for (int i = 0; i < count; i++) {
        const struct network_tensor *x = network_tensor_at(r->student, i);
        if (!x->rows) continue; /* a tied output matrix */
        const struct gguf *const files[] = { r->original, r->quantized };
        for (int f = 0; f < 2; f++) {
            const struct gguf_tensor *t = gguf_tensor_find(files[f], x->name);
            if (!t || t->shape[0] != x->cols || t->shape[1] != x->rows)
                return err_set(why, ERR_FORMAT, "tensor '%s': expected [%" PRId64 ",%" PRId64 "]%s", x->name,
                               x->cols, x->rows, t ? ", the file has another shape" : ", the file has none");
            r->stored[i] = t;
        }
        largest = MAX(largest, x->rows * format_row_bytes(r->stored[i]->format, x->cols));
    }
    r->codes = malloc((size_t)largest);
    return r->codes ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for recovery");
}

/* ---------------------------------------------------------------- open, close */

/* ERR_USAGE: options out of range, or a text shorter than two rows. */
static enum err_code recover_options_check(const struct recover_options *o, int ctx, struct err *why)
{
    if (o->steps < 1 || o->steps > 1 << 24 || o->batch < 1 || !(o->rate > 0 && o->rate < 1) ||
        o->amp == AMP_FP16)
        return err_set(why, ERR_USAGE,
                       "recovery of %" PRId64
                       " steps of %d rows at rate %g: expected at least one step and one row, a "
                       "rate between 0 and 1, amp off or bf16",
                       o->steps, o->batch, o->rate);
    if (o->n < 2 * ctx)
        return err_set(why, ERR_USAGE,
                       "the training text has %" PRId64
                       " tokens and a row has %d: expected at least two rows",
                       o->n, ctx);
    return ERR_OK;
}

/* Open student and teacher; the teacher gets the original weights. */
static enum err_code recovery_open_networks(struct recovery_run *r, const struct network_shape *shape,
                                            struct recover_report *out, struct err *why)
{
    struct network_options o = { .shape = *shape,
                                 .amp = r->o->amp,
                                 .batch = r->o->batch,
                                 .checkpoint_every = 1, /* the teacher has no backward pass */
                                 .threads = r->o->threads,
                                 .isa = r->o->isa };
    enum err_code rc = network_open(&r->teacher, &o, why);
    o.checkpoint_every = 0;
    if (!rc) rc = network_open(&r->student, &o, why);
    if (rc) return rc;
    const struct network_memory a = network_memory(r->teacher), b = network_memory(r->student);
    out->memory = (struct network_memory){ a.parameters + b.parameters, a.activations + b.activations };
    out->params = network_params(r->student);
    const struct memory_plan plan = { .host = out->memory.parameters + out->memory.activations +
                                              3 * out->params * (int64_t)sizeof(float) };
    return memory_plan_check(&plan, "cpu", memory_available(""), why);
}

/* Check, estimate memory, open the networks and initialize the master. */
static enum err_code recovery_open(struct recovery_run *r, struct recover_report *out, struct err *why)
{
    struct network_shape shape;
    enum err_code rc = models_check(&shape, r->original, r->quantized, why);
    if (rc) return rc;
    if (r->o->ctx) shape.ctx = r->o->ctx;
    rc = recover_options_check(r->o, shape.ctx, why);
    if (!rc) rc = recovery_open_networks(r, &shape, out, why);
    if (!rc) rc = recovery_find_tensors(r, why);
    if (rc) return rc;
    const size_t params = (size_t)network_params(r->student),
                 tokens = (size_t)r->o->batch * (size_t)shape.ctx;
    r->master = calloc(params, sizeof *r->master);
    r->m = calloc(params, sizeof *r->m);
    r->v = calloc(params, sizeof *r->v);
    r->tokens = malloc(tokens * sizeof *r->tokens);
    r->targets = malloc(tokens * sizeof *r->targets);
    if (!r->master || !r->m || !r->v || !r->tokens || !r->targets)
        return err_set(why, ERR_NOMEM, "out of memory for recovery");
    for (size_t i = 0; i < tokens; i++) r->targets[i] = -1;
    for (int i = 0; i < network_tensor_count(r->student); i++)
        if (r->stored[i]) recovery_init_tensor(r, i);
    network_changed(r->teacher);
    recovery_round_student(r);
    return ERR_OK;
}

static void recovery_close(struct recovery_run *r)
{
    network_close(r->teacher);
    network_close(r->student);
    free(r->stored);
    free(r->master);
    free(r->m);
    free(r->v);
    free(r->codes);
    free(r->tokens);
    free(r->targets);
}

/* ---------------------------------------------------------------- steps */

/* Fill the next rows with tokens from random positions of the text. */
static void recovery_next_rows(struct recovery_run *r, int ctx)
{
    const struct recover_options *o = r->o;
    for (int i = 0; i < o->batch; i++) {
        int32_t *row = r->tokens + (int64_t)i * ctx;
        const uint64_t from = hash_next(o->seed ^ hash_next((uint64_t)r->rows++)) %
                              (uint64_t)(o->n - ctx + 1);
        memcpy(row, o->ids + from, (size_t)ctx * sizeof *row);
        if (o->bos >= 0) row[0] = o->bos;
    }
}

/* Clear the gradients of matrices: the optimizer then leaves them unchanged. */
static void recovery_freeze_matrices(struct recovery_run *r)
{
    for (int i = 0; i < network_tensor_count(r->student); i++) {
        const struct network_tensor *x = network_tensor_at(r->student, i);
        if (x->matrix)
            memset(network_gradients(r->student) + x->offset, 0, (size_t)(x->rows * x->cols) * sizeof(float));
    }
}

/* One step: teacher forward, student backward, optimizer on the master, quantize again. */
static enum err_code recovery_step(struct recovery_run *r, int64_t t, double *loss, struct err *why)
{
    static const struct adam_options ADAM = { .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-10, .clip = 1 };
    const struct recover_options *o = r->o;
    const size_t bytes = (size_t)network_params(r->student) * sizeof(float);
    const int ctx = network_ctx(r->student);
    const double tokens = (double)o->batch * ctx;
    recovery_next_rows(r, ctx);
    network_forward(r->teacher, r->tokens, r->targets);
    memset(network_gradients(r->student), 0, bytes);
    *loss = network_distill(r->student, r->tokens, network_logits(r->teacher), (float)(1 / tokens)) / tokens;
    if (o->norms_only) recovery_freeze_matrices(r);
    memcpy(network_weights(r->student), r->master, bytes);
    const double length = adam_step(
        &(struct adam_step){ .o = &ADAM,
                             .network = r->student,
                             .m = r->m,
                             .v = r->v,
                             .t = t + 1,
                             .rate = learning_rate(o->rate, t, o->steps, o->steps / 20),
                             .scale = 1 });
    memcpy(r->master, network_weights(r->student), bytes);
    if (!isfinite(length) || !isfinite(*loss))
        return err_set(why, ERR_FORMAT,
                       "step %" PRId64 ": a loss of %g has no gradient; a smaller rate may help", t + 1,
                       *loss);
    recovery_round_student(r);
    return ERR_OK;
}

/* Run all steps; records the mean loss at the beginning and at the end. */
static enum err_code recovery_run(struct recovery_run *r, struct recover_report *out, struct err *why)
{
    const struct recover_options *o = r->o;
    const int64_t tenth = MAX(1, o->steps / 10), start = clock_ns();
    double first = 0, last = 0, loss;
    for (int64_t t = 0; t < o->steps; t++) {
        enum err_code rc = recovery_step(r, t, &loss, why);
        if (rc) return rc;
        if (t < tenth) first += loss;
        if (t >= o->steps - tenth) last += loss;
        out->seconds = (double)(clock_ns() - start) * 1e-9;
        const struct recover_progress p = { t + 1, o->steps, loss,
                                            out->seconds / (double)(t + 1) * (double)(o->steps - t - 1) };
        if (o->progress && !o->progress(o->progress_ctx, &p)) return err_set(why, ERR_CANCELLED, "cancelled");
    }
    out->first_loss = first / (double)tenth;
    out->loss = last / (double)tenth;
    out->tokens = o->steps * o->batch * network_ctx(r->student);
    return ERR_OK;
}

/* ---------------------------------------------------------------- the file */

/* Write a tensor of the result: trained values in the file's format. */
static enum err_code recovery_write_tensor(struct recovery_run *r, struct gguf_writer *w,
                                           const struct gguf_tensor *t, struct err *why)
{
    int i = 0;
    while (strcmp(network_tensor_at(r->student, i)->name, t->name)) i++; /* exists: see check_tensors */
    const struct network_tensor *x = network_tensor_at(r->student, i);
    if (x->matrix && r->o->norms_only) return gguf_writer_write(w, gguf_tensor_data(t), t->bytes, why);
    if (!x->matrix && !t->format->encode)
        return err_set(why, ERR_USAGE, "tensor '%s' is %s, which is not encoded here", t->name,
                       t->format->name);
    recovery_encode(r, i, NULL);
    return gguf_writer_write(w, r->codes, t->bytes, why);
}

/* Write the result: the quantized file with trained values. */
static enum err_code recovery_write(struct recovery_run *r, const char *path, struct err *why)
{
    struct gguf_writer *w;
    char text[128];
    const struct gguf *g = r->quantized;
    const struct recover_options *o = r->o;
    enum err_code rc = gguf_writer_open(&w, path, why);
    if (rc) return rc;
    for (int64_t i = 0; i < gguf_kv_count(g); i++) gguf_writer_copy_kv(w, gguf_kv_at(g, i));
    snprintf(text, sizeof text, "steps=%" PRId64 " rate=%g batch=%d ctx=%d seed=%" PRIu64 "%s", o->steps,
             o->rate, o->batch, network_ctx(r->student), o->seed, o->norms_only ? " only=norms" : "");
    gguf_writer_put_string(w, "qdyno.recovered", text);
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
    }
    for (int64_t i = 0; !rc && i < gguf_tensor_count(g); i++)
        rc = recovery_write_tensor(r, w, gguf_tensor_at(g, i), why);
    if (rc) {
        gguf_writer_abort(w);
        return rc;
    }
    return gguf_writer_commit(w, why);
}

enum err_code recover_file(const char *path, const struct gguf *original, const struct gguf *quantized,
                           const struct recover_options *o, struct recover_report *out, struct err *why)
{
    struct recovery_run r = { .o = o, .original = original, .quantized = quantized };
    *out = (struct recover_report){ .first_loss = NAN, .loss = NAN };
    enum err_code rc = recovery_open(&r, out, why);
    if (!rc) rc = recovery_run(&r, out, why);
    if (!rc) rc = recovery_write(&r, path, why);
    recovery_close(&r);
    return rc;
}
