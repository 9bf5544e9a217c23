/* engine/model.h - a loaded model and the forward pass over a batch of rows.
 *
 * Architectures are rows of a table (norm kind, position scheme, activation, biases, fused tensors ...),
 * never forks of the forward pass. A batch is rows of (token, position, sequence); the KV cache is read
 * through block tables; a single sequence is only the special case. Not thread-safe: one thread drives one
 * model. */
#ifndef QDYNO_ENGINE_MODEL_H
#define QDYNO_ENGINE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/config.h"

struct gguf;
struct tokenizer;

/* What a model is, from its metadata. */
struct model_shape {
    char arch[32];  /* "llama" */
    char name[128]; /* general.name, "" when absent */
    int layers, heads, kv_heads, head_dim_k, head_dim_v, rope_dims;
    int64_t embd, ff, vocab, ctx_train;
    int64_t params;           /* elements of all tensors */
    int64_t weight_bytes;     /* tensor bytes in the file */
    char dominant_format[16]; /* the format most weight bytes are in: "q4_0" */
    bool tied_output;
    bool random_weights; /* made by synth: quality figures mean nothing (qdyno.synthetic metadata) */
};
/* Errors: ERR_FORMAT (architecture unknown: lists the known ones; key missing or absurd). */
enum err_code model_shape_read(struct model_shape *out, const struct gguf *g, struct err *why);
const char *const *model_architectures(void); /* NULL-terminated */

/* Bytes, computed before anything is loaded; the loader allocates by it. */
struct memory_plan {
    int64_t weights; /* mapped or converted weights */
    int64_t kv;
    int64_t compute; /* activations and logits of one batch */
    int64_t scratch; /* the backend's own (packed operands, quantized rows) */
    int64_t total;   /* on the host and on the device */
    int64_t host;    /* of the total, what is in the host's memory: all where a device has none of its own */
    int64_t device;  /* of the total, what is on a device */
    int gpu_layers;  /* layers that run on the device */
    int64_t device_room;  /* bytes of it that may be taken; -1: unknown, or no device */
    int64_t device_least; /* what one layer there would take, where not one fits */
    int64_t kv_bytes_per_token;
    int64_t decode_read_bytes; /* bytes of weights one decode step reads (depth 0) */
    double flops_per_token;    /* multiply-adds x 2 in the layers' matrices, per token in prefill */
    int ctx, batch, sequences; /* what it was computed for */
};
/* ctx and sequences of the session wanted; config gives formats, KV types, batch. Pure. */
enum err_code memory_plan_compute(struct memory_plan *out, const struct gguf *g, const struct config *c,
                                  int ctx, int sequences, struct err *why);
/* ERR_FIT, with what is needed and what is there, when the host's part is more than `available` bytes (-1:
 * unknown) or the device's part more than it has. device: the config's. */
enum err_code memory_plan_check(const struct memory_plan *p, const char *device, int64_t available,
                                struct err *why);

struct model;

/* Opens file, applies the recipe (quantizing into the cache if needed), checks every tensor's shape,
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
    /* phase "quantize" while a recipe is made; 0..1. May be NULL; returning false cancels. */
    bool (*progress)(void *arg, const char *phase, double done);
    void *progress_arg;
};
enum err_code model_open(struct model **out, const struct model_options *options, struct err *why);
void model_close(struct model *m); /* NULL is fine */

const struct model_shape *model_shape(const struct model *m);
const struct memory_plan *model_plan(const struct model *m);
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
 * position or sequence out of range), ERR_FIT (no free KV block). */
enum err_code model_forward(struct model *m, const struct batch_row *rows, int n, struct err *why);

/* The same where only the largest logit matters: best[i] is its id in the i-th row that asked, of equals the
 * smallest, and -1 where a logit is NaN or none is above minus infinity. Logits stay where they were made:
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

#endif
