/* engine/plan/plan.h - what a session of a model needs, computed from metadata before anything is loaded: the
 * memory plan, and the matrix products of a forward pass. The loader allocates with the same functions, so
 * plan and reality cannot differ. */
#ifndef QDYNO_ENGINE_PLAN_H
#define QDYNO_ENGINE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/plan/split.h"

/* ---------------------------------------------------------------- recipes */

/* What a recipe would do to the tensors of a file. engine/quant implements these functions (RECIPE_VIEW), so
 * that this module need not know recipes. A plan of the file as it is passes NULL. */
struct recipe_view {
    /* The format tensor `t` gets. */
    const struct format *(*format)(const struct config *c, const struct gguf *g, const struct gguf_tensor *t);
    /* How its inputs will be quantized; INPUT_FREE if that cannot be read (loading then fails). */
    enum input_kind (*input)(const struct config *c, const struct gguf *g, const struct gguf_tensor *t);
    /* Does the recipe keep every tensor as it is? */
    bool (*is_identity)(const struct config *c, const struct gguf *g);
};

/* ---------------------------------------------------------------- the memory plan */

/* Bytes of memory that a session takes. */
struct memory_plan {
    int64_t weights; /* mapped or converted weights */
    int64_t kv;
    int64_t state;   /* of layers that keep a state instead of keys and values; in host memory */
    int64_t compute; /* activations and logits of one batch; a copy of the states to go back to */
    int64_t scratch; /* of the backend: packed operands, quantized rows */
    int64_t total;   /* on the host and on the device */
    int64_t host;    /* part of the total in host memory; all of it if the device shares the host's memory */
    int64_t device;  /* part of the total on the device */
    int64_t on_disk; /* with oversize=on: part of `host` that may stay on disk, the weights of all layers but
                        two */
    int gpu_layers;  /* layers that run on the device */
    int expert_layers; /* of these, the first so many have their experts there; the others' experts run on the
                          host */
    int64_t device_room;  /* bytes that a plan may take on the device; -1: unknown, or no device */
    int64_t device_least; /* bytes for a single layer on the device: what is missing when none fits */
    int64_t kv_bytes_per_token;
    int64_t decode_read_bytes; /* bytes of weights one decode step reads (depth 0) */
    int64_t expert_read_bytes; /* of these, bytes of the experts that work on one token; 0: no experts */
    double flops_per_token;    /* 2 x multiply-adds in the layers' matrices, per token in prefill */
    int ctx, batch, sequences; /* the session that the plan is for */
    /* Of a model that several processes run. The figures above are of all of them together on one machine;
     * weights that several of them map are in memory once. */
    int ranks;           /* number of processes; 0: the model is not divided */
    int64_t rank_total;  /* bytes of the process that needs most, its weights included */
    int64_t ranks_total; /* sum over all processes, with the weights of each */
};
/* ctx: tokens per sequence, 0: the config's. The config gives formats, KV types and batch. view NULL: the
 * file as it is. Loads nothing. Errors: ERR_FORMAT (metadata), ERR_USAGE (a setting that this model cannot
 * run with), ERR_ABSENT (isa), ERR_FIT (2^60 bytes or more), ERR_NOMEM. */
enum err_code plan_memory(struct memory_plan *out, const struct gguf *g, const struct config *c,
                          const struct recipe_view *view, int ctx, int sequences, struct err *why);
/* A plan as a JSON object, for the worker's answer and for documents. New reference. */
json_t *memory_plan_to_json(const struct memory_plan *p);
/* The reverse: false when `object` is no object, and *out is unchanged. Members it lacks are unknown: -1, 0
 * on a device, NAN for flops_per_token. */
bool memory_plan_from_json(struct memory_plan *out, const json_t *object);
/* ERR_FIT, with the bytes needed and available: the host's part (without what may stay on disk) exceeds
 * `available` (-1: unknown), or the device's part exceeds the device's memory. device: the config's value. */
enum err_code memory_plan_check(const struct memory_plan *p, const char *device, int64_t available,
                                struct err *why);

/* ---------------------------------------------------------------- experts of a batch */

/* Mean number of distinct experts of a layer that work on a batch of 1, 2, 4 ... 512 rows. */
enum { EXPERT_BATCHES = 10 };
struct expert_curve {
    double distinct[EXPERT_BATCHES]; /* NAN from the first size on that was not measured */
};
/* That number for a batch of `rows` rows, interpolated between the measured sizes. curve NULL, or nothing
 * measured: as if every row chose `used` of `experts` at random, E (1 - (1 - k / E)^r). From `used` to
 * `experts`. */
double experts_distinct(const struct expert_curve *curve, int experts, int used, double rows);
/* Bytes of weights that a step reads in which so many experts of each layer work; a model without experts:
 * decode_read_bytes. */
double plan_step_bytes(const struct memory_plan *p, const struct model_shape *s, double distinct);

/* ---------------------------------------------------------------- operations */

/* The matrix products of one forward pass, by shape and format, for cost models. */

/* Which rows of a batch a product processes. */
enum product_part {
    PRODUCT_EARLY,  /* up to and including attention: all rows */
    PRODUCT_LATE,   /* after attention: all rows; in the last layer only rows whose logits are requested */
    PRODUCT_OUTPUT, /* the output matrix: rows whose logits are requested */
};

/* Which matrices of a layer's experts a product stands for, and how they are called. */
enum product_experts {
    PRODUCT_DENSE,           /* no experts */
    PRODUCT_EXPERTS_APART,   /* several rows: one call for each expert that works on the batch */
    PRODUCT_EXPERTS_TOGETHER /* one call for all of them */
};

struct model_product {
    const struct format *format;
    enum product_part part;
    enum product_experts experts;
    int64_t rows, cols;
    int64_t together; /* weights of all matrices that one call multiplies with the same inputs, this one
                         included; of experts: those of one expert */
    int count;        /* number of such matrices in all layers; of experts: for one row */
    int last;         /* of these, how many are in the last layer */
};

enum { MODEL_PRODUCTS_MAX = 320 };
struct model_operations {
    struct model_shape shape;
    const struct format *k_format, *v_format;
    int batch;                   /* largest number of rows per pass */
    int attention_layers;        /* that have attention */
    int window, windowed_layers; /* of these, layers that look back `window` tokens only; 0, 0: none */
    int n;
    struct model_product product[MODEL_PRODUCTS_MAX];
};
/* Errors: as plan_memory. */
enum err_code plan_operations(struct model_operations *out, const struct gguf *g, const struct config *c,
                              const struct recipe_view *view, struct err *why);

/* ---------------------------------------------------------------- memory estimate */

/* Bytes of a model's weights and KV cache, from shapes alone. Works for any GGUF file with the usual keys,
 * including mixtures of experts and sliding windows that this engine does not run, and for shapes without a
 * file. Activations are not included; the memory plan includes them, but only for models that this engine
 * runs. */
struct synth_shape; /* engine/synth/synth.h */
struct memory_estimate {
    int layers, heads, kv_heads; /* kv_heads < heads: several query heads share one */
    int attention_layers;        /* that store keys and values */
    int window, windowed_layers; /* layers that look back `window` tokens only */
    int experts, experts_used;   /* of each layer; 0: none */
    int64_t ctx, ctx_train;
    int64_t weight_bytes;    /* all tensors */
    int64_t expert_bytes;    /* of these, tensors of experts */
    int64_t read_bytes;      /* weights read per token: only the experts that are used */
    int64_t kv_bytes;        /* KV cache of ctx tokens in every layer with attention */
    int state_layers;        /* that keep a state instead */
    int64_t state_bytes;     /* of all of these, of one sequence */
    int64_t kv_window_bytes; /* KV cache if layers with a window stored the window only */
    int64_t kv_bytes_per_token;
    int64_t total; /* weights and cache */
};
/* Works on files of gguf_open_any_type, too. ctx 0: the training context, at most 4096. k, v: formats of the
 * cache. ERR_FORMAT: a key is missing. */
enum err_code memory_estimate_read(struct memory_estimate *out, const struct gguf *g, int64_t ctx,
                                   const struct format *k, const struct format *v, struct err *why);
/* For a model of this shape with all matrices in `format` (f16 where rows do not fill its blocks). */
void memory_estimate_of(struct memory_estimate *out, const struct synth_shape *s, const struct format *format,
                        int64_t ctx, const struct format *k, const struct format *v);

/* ---------------------------------------------------------------- sessions */

enum { KV_BLOCK_TOKENS = 32 }; /* tokens per block of the KV cache */

static inline int kv_blocks_for(int64_t tokens)
{
    return (int)((tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
}

/* The settings of a config that concern running, resolved for one model and this machine. */
struct model_session {
    struct backend_options backend;
    enum prefetch prefetch;
    const char *device; /* "cpu", or the device that runs the first gpu_layers layers */
    int gpu_layers;     /* -1: as many as fit (the plan decides); 0: all on the CPU */
    int expert_layers;  /* the experts of the first so many of them run there, too; EXPERTS_THAT_FIT: the plan
                           decides */
    int ctx, sequences;
    int batch;                     /* largest number of rows of a pass; CACHE_OFF: at least ctx */
    struct part part;              /* of the model that this process runs; zeroed: all of it */
    const struct format *exchange; /* of activations between processes */
    enum cache_layout cache;
    int blocks; /* of the KV cache; 0: enough for all sequences with full contexts */
    const struct format *k_format, *v_format;
    bool k_rotated, v_rotated; /* the cache stores Hadamard transforms (hadamard_block) of keys, of values */
};
/* ctx 0: the config's, else the training context (at most 4096). ERR_USAGE: settings that this model cannot
 * run with; ERR_ABSENT: an instruction set that this machine lacks or QDYNO_ISA excludes. */
enum err_code session_resolve(struct model_session *out, const struct model_shape *s, const struct arch *a,
                              const struct config *c, int ctx, int sequences, struct err *why);

/* The part of session_resolve that concerns the KV cache; may enlarge out->batch. */
enum err_code session_resolve_cache(struct model_session *out, const struct model_shape *s,
                                    const struct config *c, struct err *why);

/* The instruction sets that the config's isa= means on this machine. Errors as above. */
enum err_code session_isa(uint32_t *out, const struct config *c, struct err *why);

/* Row widths of the activation buffers, in floats; every buffer has `batch` rows. */
struct widths {
    int64_t embd; /* x, normed x */
    int64_t qkv;  /* q, k and v side by side; reused for gathered attention outputs, so at least attn */
    int64_t attn; /* heads x value length, at least embd */
    int64_t ff; /* gate and up side by side if the model has both; of the expert that every token uses, too */
    int64_t router;  /* scores of the experts, and that of the expert that every token uses; 0: no experts */
    int64_t experts; /* inputs and outputs of a token's experts */
    int64_t expert_ff; /* gate and up of a token's experts */
    int64_t logits;    /* vocabulary size; the buffer has `logit_rows` rows */
    int64_t logit_rows;
    int64_t inputs; /* the layers' parts of a token's second embedding; 0: none */
    int64_t latent; /* parts of latent attention: reduced queries, queries, reduced keys, keys and values or
                       attention outputs. Of attention with gates: queries beside gates, gates, and outputs.
                       Of a delta net with one matrix: its product. 0: none of these */
};
enum { LOGIT_ROWS_MAX = 32 };
void widths_of(struct widths *out, const struct model_shape *s, const struct arch *a, int batch);
/* What a backend must reserve for the operations of this session, apart from weights. */
struct backend_work session_work(const struct model_session *e, const struct model_shape *s,
                                 const struct arch *a);
int64_t widths_bytes(const struct widths *w,
                     int batch); /* all buffers: two of embd, one of each other, rounded */
/* Bytes of the states of all layers, for all sequences; each layer's part is the sequences' states one after
 * the other, rounded. */
int64_t session_state_bytes(const struct model_session *e, const struct model_shape *s);
/* Bytes of the copy of the states with which a sequence goes back to an earlier length, such as the depth of
 * a workload; 0 in a part of a model, which does not make one. */
int64_t session_state_copy_bytes(const struct model_session *e, const struct model_shape *s);
/* Bytes of host copies of rows that layers with a state need when they run on a device. */
int64_t state_rows_bytes(const struct widths *w, const struct model_shape *s, int batch);
/* Numbers of a vector of ones, with which some models norm queries, keys or values; 0: none. */
int unit_weights_of(const struct model_shape *s, const struct arch *a);
/* Bytes of the lists on the host that say which rows go to which experts. */
int64_t expert_list_bytes(const struct model_shape *s, int batch);
int64_t vector_bytes(int64_t n); /* n floats, rounded to whole cache lines */

/* Buffers beside these on the site of the output matrix, each rounded: logits, the largest logit of each row,
 * and scratch memory to find it. */
struct output_bytes {
    int64_t logits, best, scratch;
};
struct output_bytes output_bytes_of(const struct widths *w, const char *device);

/* Blocks of the KV cache in this session. */
int session_blocks(const struct model_session *e);
/* The layout of one layer's KV cache in this session; its k and v are NULL. */
struct kv_layer session_kv_layer(const struct model_session *e, const struct model_shape *s, int layer);
/* Does this layer keep its keys and values after it has run? With CACHE_OFF only layers do whose keys and
 * values later layers read; the others use the same memory one after the other. */
bool session_layer_is_kept(const struct model_session *e, const struct model_shape *s, int layer);
/* Bytes of keys and values of one token in all layers. */
int64_t session_token_bytes(const struct model_session *e, const struct model_shape *s);
/* Bytes of the token ids that are kept to compute them again (CACHE_OFF), else 0. */
int64_t session_history_bytes(const struct model_session *e);
/* Bytes of the caches of layers [from, to). */
int64_t session_cache_bytes(const struct model_session *e, const struct model_shape *s, int from, int to);
int64_t session_kv_bytes(const struct kv_layer *kv); /* bytes of one layer, K and V, rounded */
/* Bytes of the K half, rounded so that V starts on a cache line. */
int64_t kv_layer_k_bytes(const struct kv_layer *kv);

/* Bytes that this process can still allocate: the minimum of MemAvailable and what the memory limits of its
 * control groups leave (file cache of the group counts as free, because the kernel can drop it). -1: unknown.
 * `root`: prefix of /proc and /sys, "" or the folder of a recorded machine. */
int64_t memory_available(const char *root);

/* How much memory a plan may take on a device other than the CPU. */
struct device_room {
    int64_t bytes;      /* -1: unknown */
    bool shares_memory; /* with the host */
};
void device_room(struct device_room *out, const char *device);
/* As plan_memory, for a session that is already resolved; of its part of the model. */
enum err_code plan_compute(struct memory_plan *out, const struct gguf *g, const struct model_shape *s,
                           const struct hyper *h, const struct config *c, const struct recipe_view *view,
                           const struct model_session *e, struct err *why);
/* The same for all processes that run the model together; e->part is not used. Errors also: ERR_USAGE, the
 * model cannot be divided so (split_check). */
enum err_code plan_compute_all(struct memory_plan *out, const struct gguf *g, const struct model_shape *s,
                               const struct hyper *h, const struct config *c, const struct recipe_view *view,
                               const struct model_session *e, struct err *why);

#endif
