/* engine/model/model.h - a loaded model and the forward pass over a batch of rows.
 *
 * Architectures are rows of a table (norm kind, position scheme, activation, biases, fused tensors ...),
 * never forks of the forward pass. A batch is rows of (token, position, sequence); the KV cache is read
 * through block tables; a single sequence is only the special case. Not thread-safe: one thread drives one
 * model. */
#ifndef QDYNO_ENGINE_MODEL_H
#define QDYNO_ENGINE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "kernels/kernels.h"

struct config;
struct gguf;
struct memory_plan; /* engine/plan/plan.h */
struct model_shape; /* engine/arch/arch.h */
struct recipe_view; /* engine/plan/plan.h */
struct tokenizer;   /* engine/text/text.h */

struct model;
struct model_options;

/* A recipe to apply while a model is opened, as functions: recipe_model_open of engine/quant/quant.h has
 * them. */
struct model_recipe {
    const struct recipe_view *view;
    /* Make the file that runs; *made owned by the caller (gguf_close). *worked: false when it was there
     * already. */
    enum err_code (*make)(struct gguf **made, bool *worked, const struct gguf *source,
                          const struct model_options *o, const struct config *c, int threads,
                          struct err *why);
};

/* Opens the file, checks every tensor's shape,
 * allocates KV and buffers for `ctx` tokens in each of `sequences`. *out owned: model_close. Errors: ERR_IO,
 * ERR_FORMAT, ERR_USAGE (impossible config), ERR_FIT (plan exceeds what is available: both numbers),
 * ERR_NOMEM. */
struct model_options {
    const char *path; /* used when the config has no model= */
    /* A file already open, used instead of any path and borrowed for the model's life; may be NULL. */
    const struct gguf *gguf;
    bool apart; /* for engine/layers.h: layers run one at a time, with one cache; model_forward is not used */
    const struct config *config;
    int ctx;               /* 0: config's ctx, else the model's training context (at most 4096) */
    int sequences;         /* 0 means 1 */
    const struct log *log; /* may be NULL */
    const char *shapes;    /* as struct backend_options has it */
    /* Applies the config's recipe; NULL: there is none (ERR_INTERNAL when the config has one). engine/quant
     * sets it. */
    const struct model_recipe *recipe;
    /* phase "quantize" while a recipe is made; 0..1. May be NULL; returning false cancels. */
    bool (*progress)(void *arg, const char *phase, double done);
    void *progress_arg;
};
enum err_code model_open(struct model **out, const struct model_options *options, struct err *why);
void model_close(struct model *m); /* NULL is fine */

const struct model_shape *model_shape(const struct model *m);
const struct memory_plan *model_plan(const struct model *m);
/* SHA-256 of the file that was opened, where a quantized copy of it runs; "" where it runs itself. */
const char *model_source_hash(const struct model *m);
const struct gguf *model_gguf(const struct model *m); /* of the file that runs (maybe the cached recipe) */
const struct tokenizer *model_tokenizer(const struct model *m); /* NULL when the file has none */
const struct config *model_config(const struct model *m); /* merged: no "auto" or 0 left that was resolved */
void model_backend(const struct model *m, struct backend_info *out);
int model_ctx(const struct model *m);

/* From when to when (clock_ns) opening made the file of a recipe; 0, 0: nothing was to make, or it was there.
 */
void model_quantized(const struct model *m, int64_t *from_ns, int64_t *to_ns);

/* What became of the wishes about memory while the model was opened. */
struct model_memory {
    int64_t huge_wanted_bytes, huge_bytes; /* asked for in huge pages, and given (-1: not known here) */
    int64_t copied_bytes;                  /* weights that are not used in the mapped file */
    int64_t repacked_bytes;                /* of these, what is held in another format */
    int64_t prefetched_bytes;              /* read ahead, or asked for */
    double prefetch_s;
};
void model_memory(const struct model *m, struct model_memory *out);

struct batch_row {
    int32_t token, pos, seq;
    bool logits; /* wanted for this row */
};

/* Run rows (any number: cut into the config's batch internally). Positions of a sequence must continue where
 * its cache ends. Logits of the rows that asked, in order, are at model_logits(). Errors: ERR_USAGE (token,
 * position or sequence out of range), ERR_FIT (no free KV block), ERR_FORMAT (a hidden state or logit is an
 * infinity or NaN; the message names the first such row, and the cache is as long as before). */
enum err_code model_forward(struct model *m, const struct batch_row *rows, int n, struct err *why);

/* The same where only the largest logit matters: best[i] is its id in the i-th row that asked, of equals the
 * smallest. Logits stay where they were made:
 * model_logits has none of this forward. best NULL: model_forward. */
enum err_code model_forward_best(struct model *m, const struct batch_row *rows, int n, int32_t *best,
                                 struct err *why);

/* Row i of the last forward's wanted logits: [vocab] floats in host memory, valid until the next forward. The
 * plan holds one row per sequence; a forward that asks for more lets the buffer grow once (ERR_NOMEM). */
const float *model_logits(const struct model *m, int i);

/* Touch every weight once (a file is mapped, not read, by opening) and have a device compile what it runs, so
 * that the first timed run does not pay for loading. Once per model, later calls do nothing. Sequence 0 is
 * emptied. */
enum err_code model_warm(struct model *m, struct err *why);

/* Tokens in a sequence's cache. */
int model_length(const struct model *m, int seq);

/* Forget a sequence's cache from position `from` on (0: all of it). */
void model_truncate(struct model *m, int seq, int from);

/* Use other bytes for a matrix of the model: `data` [rows][row bytes of f], borrowed until it is put back. f
 * NULL: the file's own again. ERR_USAGE: no such matrix, or its rows do not fill blocks of f. */
enum err_code model_replace_matrix(struct model *m, const char *tensor, const struct format *f,
                                   const void *data, struct err *why);

/* {"blocks","used","block_tokens": of the cache; "rows","batch": of the last forward pass, and the most one
 * may have; "step": blocks that a character of "map" stands for; "map": at most 1024 characters, one
 * for `step` blocks of memory in their order: '.' all of them free, else whose the first one in use is: 0-9
 * a-z for sequences 0 to 35, '+' for later ones}. New reference. Takes some microseconds. */
json_t *model_occupancy_to_json(const struct model *m);

/* ---------------------------------------------------------------- identity */

/* As gguf_hash: the SHA-256 of what is mapped. It is kept in the cache folder under the state of the opened
 * descriptor (device, inode, size, times of change), and only when that state was the same before and after
 * hashing. Where nothing can be kept it is computed. Errors: ERR_FORMAT when the file's content changed since
 * it was opened; those of gguf_hash. */
enum err_code model_identity(const struct gguf *g, char hex[HASH_HEX], struct err *why);

/* The identity of the file that was opened first, not of the quantized copy of it that may run. */
enum err_code model_source_identity(const struct model *m, char hex[HASH_HEX], struct err *why);

/* ---------------------------------------------------------------- layer by layer */

/* A model run one layer at a time over many sequences, for methods that look at what flows through it.
 *

 * Quantizers want the inputs of every matrix, the output of half a layer with other numbers in it, and all of
 * that for a model that may be larger than memory: so one layer is run for all sequences before the next one
 * is touched, and the caller keeps the activations x [tokens][width] of each sequence between layers. The
 * forward pass is the model's own; products are exact (f32) unless asked otherwise. Not thread-safe: one
 * thread drives it, the threads inside are its own. */
struct layers_options {
    int threads; /* 0: all physical cores */
    int tokens;  /* of the longest sequence; 0: 512, or all the model was trained on if that is less */
    enum precision precision; /* 0: PRECISION_HIGHEST */
    const struct log *log;    /* may be NULL */
};

struct layers;

/* *out owned: layers_close. `g` is borrowed and outlives it; its weights are used where they lie and read as
 * layers need them, so only one layer's weights, `tokens` rows of activations and one layer's cache of keys
 * and values have to fit in memory. Errors: as model_open. */
enum err_code layers_open(struct layers **out, const struct gguf *g, const struct layers_options *o,
                          struct err *why);
void layers_close(struct layers *l); /* NULL is fine */

int layers_count(const struct layers *l);
int64_t layers_width(const struct layers *l);             /* of a row of x */
int layers_tokens(const struct layers *l);                /* rows of a sequence at most */
const struct model *layers_model(const struct layers *l); /* shape, tokenizer; never run it */
/* The threads it runs on, for work between calls and inside an observer. */
struct threadpool *layers_threads(const struct layers *l);

/* One input that matrices are multiplied with, in host memory, before the products are made. */
struct layer_input {
    int layer;              /* -1: of the output matrix, see layers_head */
    const char *tensors[4]; /* the matrices that read it (q, k and v share one): names the file owns */
    int count;
    const float *x; /* [n][cols], valid during the call */
    int64_t stride; /* floats from row to row */
    int n;
    int64_t cols;
};
typedef void layer_observer(void *ctx, const struct layer_input *in);

/* Everything below is about one sequence that begins at position 0: n rows, 1 .. layers_tokens. ERR_USAGE:
 * a layer, row count or token id that is not there; nothing has been changed then. */

/* x [n][width] = what enters layer 0. */
enum err_code layers_embed(struct layers *l, const int32_t *ids, int n, float *x, struct err *why);

/* x [n][width], in place: through the layer. `see` (may be NULL) is called once for each distinct input. */
enum err_code layers_run(struct layers *l, int layer, float *x, int n, layer_observer *see, void *ctx,
                         struct err *why);

/* x [n][width] as the last layer left it: normed, seen (layer -1, the output matrix; of a model that ties it,
 * the token embedding), and multiplied where logits [n][vocab] is not NULL. x is not changed. */
enum err_code layers_head(struct layers *l, const float *x, int n, float *logits, layer_observer *see,
                          void *ctx, struct err *why);

/* Half a layer by itself: h [n][width], its input behind the norm in front of it, -> y [n][width], what it
 * adds to the stream (output matrix, norm behind it and residual scale included). y may be h. */
enum err_code layers_attention(struct layers *l, int layer, const float *h, int n, float *y, struct err *why);
enum err_code layers_feed_forward(struct layers *l, int layer, const float *h, int n, float *y,
                                  struct err *why);

/* Use other numbers for a tensor of the model until it is put back: of the same shape, a matrix in any format
 * (row-major; borrowed until then, and its bytes may change between calls), a vector as f32 (copied).
 * ERR_USAGE: no such tensor, or it is not used in products, norms or biases. */
enum err_code layers_replace(struct layers *l, const char *tensor, const struct format *f, const void *data,
                             struct err *why);
enum err_code layers_restore(struct layers *l, const char *tensor, struct err *why); /* NULL: all of them */

#endif
