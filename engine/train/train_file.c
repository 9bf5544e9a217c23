/* Files of a training run. PATH.train is a GGUF file with the vocabulary as in the final model, the options
 * as one line of text, and vectors: parameters, running means, losses. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/train/train_ranks.h"
#include "engine/train/trainer.h"
#include "engine/train/vocabulary.h"
#include "engine/text/text.h"

static const char IDENTITY[] = "qdyno.train.options";

/* ---------------------------------------------------------------- creating the state file */

/* Learn the vocabulary from the first training stories. */
static enum err_code trainer_learn_vocabulary(const struct trainer *t, struct vocabulary *v, struct err *why)
{
    struct str text = { 0 };
    for (int64_t i = 0; i < t->o->vocabulary_stories; i++) {
        str_append(&text, " "); /* so that a text's first word has a space before it, like all others */
        corpus_story(t->corpus, (struct story_id){ t->o->seed, CORPUS_TRAIN, (uint64_t)i }, &text);
    }
    enum err_code rc = text.failed ? err_set(why, ERR_NOMEM, "out of memory for stories")
                                   : vocabulary_train(v, str_text(&text), text.len, t->o->shape.vocab, why);
    str_free(&text);
    return rc;
}

/* Create PATH.train with the vocabulary and the options. */
static enum err_code trainer_create_state(const struct trainer *t, struct err *why)
{
    struct vocabulary v = { 0 };
    struct gguf_writer *w = NULL;
    enum err_code rc = trainer_learn_vocabulary(t, &v, why);
    if (!rc) rc = gguf_writer_open(&w, t->state_path, why);
    if (!rc) {
        gguf_writer_put_string(w, "general.architecture", "llama");
        gguf_writer_put_string(w, IDENTITY, t->identity);
        vocabulary_put(&v, w);
        rc = gguf_writer_commit(w, why);
    }
    vocabulary_free(&v);
    return rc;
}

enum err_code trainer_open_state(struct trainer *t, struct err *why)
{
    enum err_code rc = access(t->state_path, F_OK) ? trainer_create_state(t, why) : ERR_OK;
    if (!rc) rc = gguf_open(&t->gguf, t->state_path, why);
    if (!rc) {
        const struct gguf_string begun = gguf_get_string(t->gguf, IDENTITY);
        if (!gguf_string_is(begun, t->identity))
            rc = err_set(why, ERR_USAGE,
                         "'%s' was started with other options (%.*s); remove it to start again",
                         t->state_path, (int)MIN(begun.len, 300), begun.data ? begun.data : "");
    }
    return rc ? rc : tokenizer_open(&t->tokenizer, t->gguf, why);
}

/* ---------------------------------------------------------------- loading and saving the state */

struct state_vector {
    const char *name;
    float *data;
    int64_t n;
};
enum { VECTORS = 4 };

/* The vectors that PATH.train stores. */
static void state_vectors(const struct trainer *t, struct state_vector v[VECTORS])
{
    const int64_t n = network_params(t->learner.network);
    v[0] = (struct state_vector){ "train.weights", network_weights(t->learner.network), n };
    v[1] = (struct state_vector){ "train.m", t->learner.m, n };
    v[2] = (struct state_vector){ "train.v", t->learner.v, n };
    v[3] = (struct state_vector){ "train.losses", t->losses, t->o->steps };
}

enum err_code trainer_load(struct trainer *t, bool *found, struct err *why)
{
    struct state_vector v[VECTORS];
    state_vectors(t, v);
    *found = gguf_tensor_find(t->gguf, v[0].name) != NULL;
    for (int i = 0; *found && i < VECTORS; i++) {
        const struct gguf_tensor *x = gguf_tensor_find(t->gguf, v[i].name);
        if (!x || x->format != &FORMATS[FORMAT_F32] || x->bytes != v[i].n * (int64_t)sizeof(float))
            return err_set(why, ERR_FORMAT, "'%s': expected %" PRId64 " f32 numbers in '%s'", t->state_path,
                           v[i].n, v[i].name);
        memcpy(v[i].data, x->data, (size_t)x->bytes);
    }
    if (!*found) return ERR_OK;
    t->step = gguf_get_int(t->gguf, "qdyno.train.step", -1);
    t->updates = gguf_get_int(t->gguf, "qdyno.train.updates", -1);
    t->skipped = gguf_get_int(t->gguf, "qdyno.train.skipped", -1);
    t->scale.scale = (float)gguf_get_num(t->gguf, "qdyno.train.loss_scale", NAN);
    t->scale.good = (int)gguf_get_int(t->gguf, "qdyno.train.loss_scale_good", -1);
    if (t->step < 0 || t->step > t->o->steps || t->updates < 0 || t->skipped < 0 || t->scale.good < 0 ||
        !(t->scale.scale >= 1))
        return err_set(why, ERR_FORMAT,
                       "'%s': its step counters or loss scale are invalid; remove it to start again",
                       t->state_path);
    network_changed(t->learner.network);
    return ERR_OK;
}

static void trainer_copy_vocabulary(const struct trainer *t, struct gguf_writer *w)
{
    for (int64_t i = 0; i < gguf_kv_count(t->gguf); i++) {
        const struct gguf_kv *kv = gguf_kv_at(t->gguf, i);
        if (kv->key.len > 10 && !memcmp(kv->key.data, "tokenizer.", 10)) gguf_writer_copy_kv(w, kv);
    }
}

enum err_code trainer_save(struct trainer *t, struct err *why)
{
    struct state_vector v[VECTORS];
    struct gguf_writer *w;
    enum err_code rc = t->ranks ? train_ranks_save(t->ranks, &t->learner, why) : ERR_OK;
    if (!rc) rc = gguf_writer_open(&w, t->state_path, why);
    if (rc) return rc;
    state_vectors(t, v);
    gguf_writer_put_string(w, "general.architecture", "llama");
    gguf_writer_put_string(w, IDENTITY, t->identity);
    gguf_writer_put_u32(w, "qdyno.train.step", (uint32_t)t->step);
    gguf_writer_put_u32(w, "qdyno.train.updates", (uint32_t)t->updates);
    gguf_writer_put_u32(w, "qdyno.train.skipped", (uint32_t)t->skipped);
    gguf_writer_put_f32(w, "qdyno.train.loss_scale", t->scale.scale);
    gguf_writer_put_u32(w, "qdyno.train.loss_scale_good", (uint32_t)t->scale.good);
    trainer_copy_vocabulary(t, w);
    for (int i = 0; i < VECTORS; i++) gguf_writer_add_tensor(w, v[i].name, &FORMATS[FORMAT_F32], 1, &v[i].n);
    for (int i = 0; !rc && i < VECTORS; i++)
        rc = gguf_writer_write(w, v[i].data, v[i].n * (int64_t)sizeof(float), why);
    if (rc) {
        gguf_writer_abort(w);
        return rc;
    }
    return gguf_writer_commit(w, why);
}

/* ---------------------------------------------------------------- writing the model */

static void put_llama_u32(struct gguf_writer *w, const char *key, int64_t v)
{
    char full[96];
    snprintf(full, sizeof full, "llama.%s", key);
    gguf_writer_put_u32(w, full, (uint32_t)v);
}

/* Put the model's metadata. */
static void trainer_put_metadata(const struct trainer *t, const struct train_report *r, struct gguf_writer *w)
{
    const struct network_shape *s = &t->o->shape;
    gguf_writer_put_string(w, "general.architecture", "llama");
    gguf_writer_put_string(w, "general.name", t->o->name);
    gguf_writer_put_string(w, "general.license", "mit");
    gguf_writer_put_u32(w, "general.quantization_version", 2);
    gguf_writer_put_u32(w, "general.file_type", t->o->format == &FORMATS[FORMAT_F16] ? 1 : 0);
    put_llama_u32(w, "vocab_size", s->vocab);
    put_llama_u32(w, "context_length", s->ctx);
    put_llama_u32(w, "embedding_length", s->embd);
    put_llama_u32(w, "block_count", s->layers);
    put_llama_u32(w, "feed_forward_length", s->ff);
    put_llama_u32(w, "attention.head_count", s->heads);
    put_llama_u32(w, "attention.head_count_kv", s->kv_heads);
    put_llama_u32(w, "rope.dimension_count", s->embd / s->heads);
    gguf_writer_put_f32(w, "llama.rope.freq_base", (float)s->rope_base);
    gguf_writer_put_f32(w, "llama.attention.layer_norm_rms_epsilon", s->eps);
    gguf_writer_put_string(w, IDENTITY, t->identity);
    gguf_writer_put_f32(w, "qdyno.train.held_out_nats", (float)r->held_out);
    gguf_writer_put_f32(w, "qdyno.train.floor_nats", (float)r->floor);
    trainer_copy_vocabulary(t, w);
}

/* Write one tensor in the model's format. */
static enum err_code trainer_write_tensor(const struct trainer *t, struct gguf_writer *w,
                                          const struct network_tensor *x, const struct format *format,
                                          struct err *why)
{
    const float *data = network_weights(t->learner.network) + x->offset;
    const int64_t row_bytes = format_row_bytes(format, x->cols);
    void *row = malloc((size_t)row_bytes);
    enum err_code rc = row ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory writing a model");
    for (int64_t r = 0; !rc && r < x->rows; r++) {
        format_encode_rows(format, data + r * x->cols, row, 1, x->cols);
        rc = gguf_writer_write(w, row, row_bytes, why);
    }
    free(row);
    return rc;
}

enum err_code trainer_export(struct trainer *t, const struct train_report *r, struct err *why)
{
    struct gguf_writer *w;
    enum err_code rc = gguf_writer_open(&w, t->path, why);
    if (rc) return rc;
    const struct format *const formats[] = { &FORMATS[FORMAT_F32], t->o->format };
    const int count = network_tensor_count(t->learner.network);
    trainer_put_metadata(t, r, w);
    for (int i = 0; i < count; i++) {
        const struct network_tensor *x = network_tensor_at(t->learner.network, i);
        if (x->rows) /* a tied output matrix has no rows of its own */
            gguf_writer_add_tensor(w, x->name, formats[x->matrix], x->matrix ? 2 : 1,
                                   x->matrix ? (int64_t[]){ x->cols, x->rows } : (int64_t[]){ x->cols, 1 });
    }
    for (int i = 0; !rc && i < count; i++) {
        const struct network_tensor *x = network_tensor_at(t->learner.network, i);
        rc = trainer_write_tensor(t, w, x, formats[x->matrix], why);
    }
    if (rc) {
        gguf_writer_abort(w);
        return rc;
    }
    return gguf_writer_commit(w, why);
}
