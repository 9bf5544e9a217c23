/* engine/model/model.h - a loaded model and the forward pass over a batch of rows.
 *
 * There is one forward pass for all architectures; what differs between them are rows of a table
 * (engine/arch/arch.h). A batch is a list of rows (token, position, sequence). The KV cache of a sequence
 * consists of blocks, found through a block table; a single sequence is only the special case. Not
 * thread-safe: one thread drives one model; the backend has threads of its own. */
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
struct rank;        /* engine/parallel/parallel.h, also the next two */
struct rank_command;
struct rank_usage;

struct model;
struct model_options;

/* How to apply a recipe while a model is opened: functions that engine/quant implements (recipe_model_open),
 * so that this module need not know recipes. */
struct model_recipe {
    const struct recipe_view *view;
    /* Make the quantized file of `source`, or find it in the cache (*worked false). *made owned: gguf_close.
     * `o` gives the progress callback. Errors: as recipe_cached. */
    enum err_code (*make)(struct gguf **made, bool *worked, const struct gguf *source,
                          const struct model_options *o, const struct config *c, int threads,
                          struct err *why);
};

/* Open the file, check every tensor's shape, allocate the KV cache and buffers for `ctx` tokens in each of
 * `sequences`. *out owned: model_close. Errors: ERR_IO, ERR_FORMAT, ERR_USAGE (a setting that this model
 * cannot run with), ERR_FIT (the plan exceeds the available memory; the message has both numbers), ERR_NOMEM.
 */
struct model_options {
    const char *path; /* the model when the config has no model= */
    /* An open file, used instead of any path; it must outlive the model. May be NULL. */
    const struct gguf *gguf;
    bool apart; /* for engine/model/layers.c: layers run one at a time, with one cache; model_forward is not
                   used */
    const struct config *config;
    int ctx;               /* 0: config's ctx, else the model's training context (at most 4096) */
    int sequences;         /* 0 means 1 */
    const struct log *log; /* may be NULL */
    const char *shapes;    /* as struct backend_options has it */
    /* NULL: the file runs as it is (ERR_INTERNAL if the config has a recipe). recipe_model_open sets it. */
    const struct model_recipe *recipe;
    /* This process is one of several that run the model (parallel=), and has its part. NULL: it starts them
     * itself, if the config asks for several. */
    struct rank *rank;
    /* Called with 0..1 and phase "quantize" while a recipe is applied, also while another process applies the
     * same one and this one waits; "autotune" while kernels are measured.
     * May be NULL; returning false cancels. */
    bool (*progress)(void *arg, const char *phase, double done);
    void *progress_arg;
};
enum err_code model_open(struct model **out, const struct model_options *options, struct err *why);
void model_close(struct model *m); /* NULL is fine */

const struct model_shape *model_shape(const struct model *m);
const struct memory_plan *model_plan(const struct model *m);
/* SHA-256 of the file that was opened, if its quantized copy runs; "": the file itself runs. */
const char *model_source_hash(const struct model *m);
const struct gguf *
model_gguf(const struct model *m); /* the file that runs: with a recipe the quantized one */
const struct tokenizer *
model_tokenizer(const struct model *m); /* NULL: the file has none that is supported */
const struct config *
model_config(const struct model *m); /* resolved: the actual values in place of "auto" and 0 */
void model_backend(const struct model *m, struct backend_info *out);
int model_ctx(const struct model *m);

/* When opening applied the recipe (clock_ns); 0, 0: no recipe, or the file was in the cache. */
void model_quantized(const struct model *m, int64_t *from_ns, int64_t *to_ns);

/* With compile=autotune: what opening measured, because options.shapes had no choice of kernels for some
 * matrices. Borrowed from the model. */
const struct autotuned *model_autotuned(const struct model *m);

/* Outcome of the settings about memory (hugepages, repack, prefetch) when the model was opened. */
struct model_memory {
    int64_t huge_wanted_bytes, huge_bytes; /* requested as huge pages, and granted (-1: unknown) */
    int64_t copied_bytes;                  /* weights that were copied out of the mapped file */
    int64_t repacked_bytes;                /* of these, weights that are stored in another format */
    int64_t prefetched_bytes;              /* read ahead, or requested from the kernel */
    double prefetch_s;
};
void model_memory(const struct model *m, struct model_memory *out);

struct batch_row {
    int32_t token, pos, seq;
    bool logits; /* are this row's logits requested? */
};

/* Run n rows; they are cut into batches of the config's size. Positions of a sequence must continue at the
 * end of its cache. model_logits() returns the logits of the rows that requested them, in order. Errors:
 * ERR_USAGE (token, position or sequence out of range), ERR_FIT (no free KV block), ERR_NOMEM, ERR_FORMAT (a
 * hidden state or logit is an infinity or NaN; the message names the first such row, and the lengths of the
 * caches do not change). Exception: after an error during the pass, the sequences of a model with a state are
 * empty. */
enum err_code model_forward(struct model *m, const struct batch_row *rows, int n, struct err *why);

/* The same when only the largest logits matter: best[i] is the id of the largest one in the i-th row that
 * requested logits, the smallest id of equals. Logits are not copied to the host: model_logits returns
 * nothing for this call. best NULL: model_forward. */
enum err_code model_forward_best(struct model *m, const struct batch_row *rows, int n, int32_t *best,
                                 struct err *why);

/* After ERR_FORMAT of the functions above: were values not finite, and in which sequence first? False: the
 * error has another cause, such as a file that changed. */
bool model_not_finite(const struct model *m, int *seq);

/* Logits of the i-th row that requested them in the last model_forward: [vocab] floats in host memory, valid
 * until the next call. The plan includes one row per sequence; the buffer grows when a call requests more
 * (ERR_NOMEM). */
const float *model_logits(const struct model *m, int i);

/* Called in a forward pass each time the router of a layer has chosen: chosen [n][experts_used of the shape]
 * are the experts of n rows, in the order of the batch; the best one of a row first. The last layer processes
 * only rows with requested logits. `chosen` is valid during the call. */
typedef void experts_seen_fn(void *ctx, int layer, const int32_t *chosen, int n);
/* Call `see` in all later forward passes; NULL: no longer. */
void model_watch_experts(struct model *m, experts_seen_fn *see, void *ctx);

/* Run a few rows, so that every weight is read once (opening only maps the file) and a device compiles its
 * kernels: the first timed run then does not include loading. Later calls do nothing. Empties sequence 0. */
enum err_code model_warm(struct model *m, struct err *why);

/* ---------------------------------------------------------------- profile */

/* The operators of a forward pass, and how a profile names them. A fused operation counts where its weights
 * are: the activation function of a gated pair belongs to its gate and up matrices. */
#define PASS_OPERATORS(X)                                                                                    \
    X(EMBEDDING, "embedding")                                                                                \
    X(INPUTS, "layer inputs") /* matrices of the second embedding */                                         \
    X(NORM, "norm")                                                                                          \
    X(QKV, "qkv matmul")                                                                                     \
    X(LATENT, "latent matmul") /* one matrix for each head */                                                \
    X(ROPE, "rope")                                                                                          \
    X(KV_ROTATION, "kv rotation")                                                                            \
    X(KV_STORE, "kv store")                                                                                  \
    X(ATTENTION, "attention")                                                                                \
    X(ATTENTION_OUT, "output matmul")                                                                        \
    X(STATE_IN, "state input")                                                                               \
    X(CONVOLUTION, "convolution")                                                                            \
    X(STATE, "state update")                                                                                 \
    X(STATE_OUT, "state output")                                                                             \
    X(GATE_UP, "ffn gate/up")                                                                                \
    X(ACTIVATION, "activation")                                                                              \
    X(DOWN, "ffn down")                                                                                      \
    X(ROUTER, "router")                                                                                      \
    X(EXPERTS_UP, "experts gate/up")                                                                         \
    X(EXPERTS_DOWN, "experts down")                                                                          \
    X(SHARED_UP, "shared expert gate/up")                                                                    \
    X(SHARED_DOWN, "shared expert down")                                                                     \
    X(COPY, "add and copy")                                                                                  \
    X(CHECK, "finite check")                                                                                 \
    X(LOGITS, "logits")                                                                                      \
    X(LARGEST, "largest logit")

enum pass_operator {
#define OPERATOR_ID(id, name) OPERATOR_##id,
    PASS_OPERATORS(OPERATOR_ID)
#undef OPERATOR_ID
        OPERATOR_COUNT
};
extern const char *const PASS_OPERATOR_NAMES[OPERATOR_COUNT];

/* What one operator of one layer did. */
struct profile_cell {
    int64_t calls;
    int64_t ns;    /* wall time of the thread that runs the pass */
    int64_t bytes; /* weights of products, keys and values of attention, states: each read once in a call;
                      activations of the other operators */
    double ops;    /* of products, attention and recurrences; a multiply-add counts as 2. 0: there are none */
    int64_t rows;  /* of the largest product, or of attention; 0: neither */
    const struct format *format; /* of that product's weights; NULL: no product */
    int64_t format_bytes;        /* of these */
};
/* The passes between model_profile(m, p) and model_profile(m, NULL). */
struct pass_profile {
    int layers;
    struct profile_cell *cells; /* owned: profile_free; profile_at */
    int64_t passes, ns;         /* ns: of the calls of model_forward */
};
/* Errors: ERR_NOMEM; ERR_USAGE for a model whose operators this process does not run one after the other
 * (layers on a device, ranks). *p needs profile_free also after an error. */
enum err_code profile_init(struct pass_profile *p, const struct model *m, struct err *why);
void profile_free(struct pass_profile *p);
/* layer -1: outside the layers. */
static inline struct profile_cell *profile_at(const struct pass_profile *p, int layer, enum pass_operator op)
{
    return &p->cells[(layer + 1) * OPERATOR_COUNT + (int)op];
}
/* Add up all later forward passes in p, which is borrowed; NULL: no longer. */
void model_profile(struct model *m, struct pass_profile *p);

/* ---------------------------------------------------------------- several processes */

/* With parallel= in its config, ranks run the model (engine/parallel), and every function above works as for
 * a model of this process. These do not: model_replace_matrix, copies of blocks to and from other memory
 * (ERR_USAGE). */
int model_ranks(const struct model *m); /* number of them; 0: this process runs the model */
/* What each of them used so far: out[model_ranks]. Errors: a rank ended. */
enum err_code model_ranks_usage(struct model *m, struct rank_usage *out, struct err *why);

/* In a rank: execute a command of the leader. *m: the model that it opened, NULL before. */
void model_rank_execute(struct model **m, struct rank *r, const struct rank_command *c,
                        const struct log *log);

/* ---------------------------------------------------------------- blocks of the KV cache */

/* A scheduler (engine/serve) chooses the blocks of every sequence itself, so that sequences can share them.
 * After the first call of model_assign_blocks the model takes no blocks by itself: a forward pass of a
 * sequence without blocks for its rows is ERR_FIT. */
int model_blocks(const struct model *m); /* of the cache, with KV_BLOCK_TOKENS tokens each */
void model_assign_blocks(struct model *m, int seq, const int32_t *blocks, int count, int length);

/* Bytes of one block in all layers; what the next three functions copy. */
int64_t model_block_bytes(const struct model *m);
/* Copy the contents of a block to another one; out of the cache to `to`, or back, both [model_block_bytes].
 * Errors: those of the device. */
enum err_code model_copy_block(struct model *m, int32_t from, int32_t to, struct err *why);
enum err_code model_read_block(struct model *m, int32_t block, void *to, struct err *why);
enum err_code model_write_block(struct model *m, int32_t block, const void *from, struct err *why);

/* Number of tokens in a sequence's cache. */
int model_length(const struct model *m, int seq);

/* Remove all tokens of a sequence from position `from` on (0: all). False, and nothing changed: the model
 * keeps a state that cannot be cut there; model_state_restore can. */
bool model_truncate(struct model *m, int seq, int from);

/* Some models keep, beside keys and values, a state of constant size for each sequence. Bytes of a copy of
 * one sequence's state; 0: the model has none. */
int64_t model_state_bytes(const struct model *m);
/* Copy the state of a sequence to out [model_state_bytes]. */
void model_state_save(const struct model *m, int seq, void *out);
/* Go back to `length` tokens, with a copy that was saved when the sequence had exactly these. False, and
 * nothing changed: it has fewer now. */
bool model_state_restore(struct model *m, int seq, const void *from, int length);

/* Use other weights for a matrix: `data` is [rows] rows in format f, borrowed until it is replaced again. f
 * NULL: restore the file's own. ERR_USAGE: no such matrix, or its rows do not fill blocks of f. */
enum err_code model_replace_matrix(struct model *m, const char *tensor, const struct format *f,
                                   const void *data, struct err *why);

/* How full the KV cache is: {"blocks": number of blocks; "used": of these, in use; "block_tokens": tokens per
 * block; "rows": of the last batch; "batch": largest number of rows; "map": at most 1024 characters, one for
 * "step" consecutive blocks: '.' all free, else the sequence that owns the first one in use: 0-9 a-z for
 * sequences 0 to 35, '+' for others}. New reference. Takes some microseconds. */
json_t *model_occupancy_to_json(const struct model *m);

/* ---------------------------------------------------------------- identity */

/* As gguf_hash, of the mapped bytes. The hash is stored in the cache folder under the state of the opened
 * descriptor (device, inode, size, times of change), if this state was the same before and after hashing.
 * Otherwise it is computed each time. Errors: those of gguf_hash; ERR_FORMAT: the file changed since it was
 * opened. */
enum err_code model_identity(const struct gguf *g, char hex[HASH_HEX], struct err *why);

/* The same without computing anything: false if the hash is not stored. */
bool model_identity_known(const struct gguf *g, char hex[HASH_HEX]);
/* The same of a model of one file, which is not opened as a model. */
bool model_path_identity_known(const char *path, char hex[HASH_HEX]);

/* The identity of the file that was opened, not of its quantized copy that a recipe may run. */
enum err_code model_source_identity(const struct model *m, char hex[HASH_HEX], struct err *why);

/* ---------------------------------------------------------------- layer by layer */

/* Runs a model one layer at a time over many sequences, for methods that need the activations.
 *

 * Quantizers need the inputs of every matrix, and the output of half a layer with other weights, for models
 that can be
 * larger than memory. So one layer runs for all sequences before the next layer is read, and the caller
 stores the
 * activations x [tokens][width] of each sequence between layers. The forward pass is the same as the model's;
 products
 * are exact (f32) by default. Not thread-safe: one thread drives it; it has threads of its own. */
struct layers_options {
    int threads;              /* 0: all physical cores */
    int tokens;               /* of the longest sequence; 0: 512, or the training context if that is less */
    enum precision precision; /* 0: PRECISION_HIGHEST */
    bool force;               /* run a model with unknown parts (force=on) */
    bool experts;             /* the caller's observer knows that a tensor can have several matrices */
    const struct log *log;    /* may be NULL */
};

struct layers;

/* *out owned: layers_close. `g` is borrowed and must outlive it. Weights are used in the mapped file, so only
 * one layer's weights, `tokens` rows of activations and one layer's KV cache must fit in memory. Errors: as
 * model_open. */
enum err_code layers_open(struct layers **out, const struct gguf *g, const struct layers_options *o,
                          struct err *why);
void layers_close(struct layers *l); /* NULL is fine */

int layers_count(const struct layers *l);
int64_t layers_width(const struct layers *l); /* floats per row of x */
int layers_tokens(const struct layers *l);    /* largest number of rows of a sequence */
/* Its threads, for work of the caller between calls and in an observer. */
struct threadpool *layers_threads(const struct layers *l);

/* An input that one or more matrices are about to be multiplied with, in host memory. */
struct layer_input {
    int layer;              /* -1: input of the output matrix (layers_head) */
    const char *tensors[4]; /* names of the matrices that read it (q, k and v share one); owned by the file */
    int count;
    /* Which matrix of these tensors reads it, of how many: an expert's, or a head's. 0, 1: they have one. */
    int part, parts;
    const float *x; /* [n][cols], valid during the call */
    int64_t stride; /* floats from row to row */
    int n;
    int64_t cols;
};
typedef void layer_observer(void *ctx, const struct layer_input *in);
/* Called by an observer that needs nothing more of this layer: layers_run leaves out the rest, as far as that
 * is possible (attention and feed-forward; not within states and latent attention), so other inputs may not
 * be shown any more, and x is undefined. */
void layers_stop(struct layers *l);

/* The functions below process one sequence that starts at position 0, of n rows from 1 to layers_tokens.
 * ERR_USAGE: the layer, the number of rows or a token id is out of range; nothing was changed. */

/* x [n][width] = the input of layer 0. */
enum err_code layers_embed(struct layers *l, const int32_t *ids, int n, float *x, struct err *why);

/* Run one layer on x [n][width], in place. `see` (may be NULL) is called once for each distinct input. */
enum err_code layers_run(struct layers *l, int layer, float *x, int n, layer_observer *see, void *ctx,
                         struct err *why);

/* Norm the last layer's output x [n][width], show it to `see` (layer -1: input of the output matrix, which is
 * the token embedding in tied models), and compute logits [n][vocab] unless NULL. x is not changed. */
enum err_code layers_head(struct layers *l, const float *x, int n, float *logits, layer_observer *see,
                          void *ctx, struct err *why);

/* Run half a layer: h [n][width], its input after the norm, -> y [n][width], what it adds to the residual
 * stream (including its output matrix, a norm after it, and the residual scale). y may be h. */
enum err_code layers_attention(struct layers *l, int layer, const float *h, int n, float *y, struct err *why);
enum err_code layers_feed_forward(struct layers *l, int layer, const float *h, int n, float *y,
                                  struct err *why);

/* Use other values for a tensor until layers_restore: of the same shape; a matrix in any format (row-major,
 * borrowed; its bytes may change between calls), a vector as f32 (copied). ERR_USAGE: the model has no such
 * tensor, or does not use it as a matrix, norm or bias. */
enum err_code layers_replace(struct layers *l, const char *tensor, const struct format *f, const void *data,
                             struct err *why);
enum err_code layers_restore(struct layers *l, const char *tensor, struct err *why); /* NULL: all tensors */

#endif
