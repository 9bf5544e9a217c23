/* engine/plan/plan.h - what a session of a model will take and do, computed from metadata before anything is
 * loaded: bytes of memory, shapes of its products. The loader allocates by the same functions. */
#ifndef QDYNO_ENGINE_PLAN_H
#define QDYNO_ENGINE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"

/* ---------------------------------------------------------------- recipes */

/* What a recipe would do to the tensors of a file, as functions: engine/quant has them (RECIPE_VIEW), and a
 * plan of the file as it is needs none. */
struct recipe_view {
    /* The format tensor `t` gets. */
    const struct format *(*format)(const struct config *c, const struct gguf *g, const struct gguf_tensor *t);
    /* How its inputs will be treated; INPUT_FREE where that cannot be read: binding it is refused. */
    enum input_kind (*input)(const struct config *c, const struct gguf *g, const struct gguf_tensor *t);
    /* Does it leave every tensor as it is? */
    bool (*is_identity)(const struct config *c, const struct gguf *g);
};

/* ---------------------------------------------------------------- the memory plan */

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
/* ctx and sequences of the session wanted; config gives formats, KV types, batch. view NULL: the file as it
 * is. Pure. */
enum err_code plan_memory(struct memory_plan *out, const struct gguf *g, const struct config *c,
                          const struct recipe_view *view, int ctx, int sequences, struct err *why);
/* ERR_FIT, with what is needed and what is there, when the host's part is more than `available` bytes (-1:
 * unknown) or the device's part more than it has. device: the config's. */
enum err_code memory_plan_check(const struct memory_plan *p, const char *device, int64_t available,
                                struct err *why);

/* ---------------------------------------------------------------- operations */

/* What one forward pass is made of, by shape and format: what a cost model adds up. */
/* When a product meets which rows. */
enum product_part {
    PRODUCT_EARLY,  /* up to attention: every row */
    PRODUCT_LATE,   /* behind it: of the last layer only rows whose logits are wanted */
    PRODUCT_OUTPUT, /* logits: rows whose logits are wanted */
};

struct model_product {
    const struct format *format;
    enum product_part part;
    int64_t rows, cols;
    int64_t together; /* weights of all that one call multiplies with the same inputs, these among them */
    int count;        /* such matrices in all layers */
    int last;         /* of them, those of the last layer */
};

enum { MODEL_PRODUCTS_MAX = 320 };
struct model_operations {
    struct model_shape shape;
    const struct format *k_format, *v_format;
    int batch;                   /* rows per pass at most */
    int window, windowed_layers; /* layers that look back `window` tokens only; 0, 0: none */
    int n;
    struct model_product product[MODEL_PRODUCTS_MAX];
};
/* Errors: as plan_memory. */
enum err_code plan_operations(struct model_operations *out, const struct gguf *g, const struct config *c,
                              const struct recipe_view *view, struct err *why);

/* ---------------------------------------------------------------- memory estimate */

/* What a model's weights and cache take, from shapes alone: for any GGUF file with the usual keys, mixtures
 * of experts and sliding windows included, or for a shape that is no file at all. Buffers of a pass are not
 * in it. */
struct synth_shape; /* engine/synth/synth.h */
struct memory_estimate {
    int layers, heads, kv_heads; /* kv_heads < heads: queries share them */
    int window, windowed_layers; /* layers that look back `window` tokens only */
    int experts, experts_used;   /* of each layer; 0: none */
    int64_t ctx, ctx_train;
    int64_t weight_bytes;    /* all tensors */
    int64_t expert_bytes;    /* of them, experts */
    int64_t read_bytes;      /* of weights, for one token: only the experts that are used */
    int64_t kv_bytes;        /* for ctx tokens in every layer */
    int64_t kv_window_bytes; /* the least it could be: windows only as long as they are */
    int64_t kv_bytes_per_token;
    int64_t total; /* weights and cache */
};
/* ctx 0: the training context, at most 4096. k, v: of the cache. Errors: ERR_FORMAT (a key is missing). */
enum err_code memory_estimate_read(struct memory_estimate *out, const struct gguf *g, int64_t ctx,
                                   const struct format *k, const struct format *v, struct err *why);
/* A model of that shape with all matrices in `format` (f16 where rows do not fit its blocks). */
void memory_estimate_of(struct memory_estimate *out, const struct synth_shape *s, const struct format *format,
                        int64_t ctx, const struct format *k, const struct format *v);

/* ---------------------------------------------------------------- sessions */

enum { KV_BLOCK_TOKENS = 32 }; /* of the KV cache */

static inline int kv_blocks_for(int64_t tokens)
{
    return (int)((tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
}

/* A config's runtime part as values. */
struct model_session {
    struct backend_options backend;
    enum prefetch prefetch;
    const char *device; /* "cpu", or where the first gpu_layers layers run */
    int gpu_layers;     /* -1: as many as fit, which the plan says; 0 on the cpu */
    int ctx, batch, sequences;
    const struct format *k_format, *v_format;
};
/* ctx 0: the config's, else the training context (at most 4096). ERR_USAGE: what cannot be, with the
 * reason; ERR_ABSENT: an instruction set this machine lacks or QDYNO_ISA took away. */
enum err_code session_resolve(struct model_session *out, const struct model_shape *s, const struct arch *a,
                              const struct config *c, int ctx, int sequences, struct err *why);

/* The instruction sets its isa= means here; errors as above. */
enum err_code session_isa(uint32_t *out, const struct config *c, struct err *why);

/* Row widths of the activation buffers, in floats; every buffer has `batch` rows. */
struct widths {
    int64_t embd;   /* x, normed x */
    int64_t qkv;    /* also takes gathered attention outputs, so at least attn */
    int64_t attn;   /* heads x value length, at least embd */
    int64_t ff;     /* gate and up side by side where there are both */
    int64_t logits; /* of one row, `logit_rows` of them */
    int64_t logit_rows;
};
enum { LOGIT_ROWS_MAX = 32 };
void widths_of(struct widths *out, const struct model_shape *s, const struct arch *a, int batch);
/* What its operations ask of a backend, but for the weights. */
struct backend_work session_work(const struct model_session *e, const struct model_shape *s,
                                 const struct arch *a);
int64_t widths_bytes(const struct widths *w, int batch); /* two of embd, one of each other, rounded */
int64_t vector_bytes(int64_t n);                         /* n floats, rounded to whole cache lines */

/* What is beside them where the output matrix is, each rounded: logits, the largest of each row of them, and
 * what finding it takes. */
struct output_bytes {
    int64_t logits, best, scratch;
};
struct output_bytes output_bytes_of(const struct widths *w, const char *device);

/* One layer's cache for this session; k and v NULL. */
struct kv_layer session_kv_layer(const struct model_session *e, const struct model_shape *s);
int64_t session_kv_bytes(const struct kv_layer *kv); /* of one layer, K and V, rounded */
/* Bytes of its K half, rounded so that V starts on a cache line. */
int64_t kv_layer_k_bytes(const struct kv_layer *kv);

/* Bytes this process may still take: MemAvailable, and what the memory limits of its control groups leave
 * (file cache of the group counts as free, it can be dropped). -1 unknown. `root`: "" or a recorded machine's
 * folder, in front of /proc and /sys. */
int64_t memory_available(const char *root);

/* What a plan may take of a device. "cpu" is no such device. */
struct device_room {
    int64_t bytes;      /* -1: unknown */
    bool shares_memory; /* with the host */
};
void device_room(struct device_room *out, const char *device);
/* As plan_memory, for values that are already resolved. */
enum err_code plan_compute(struct memory_plan *out, const struct gguf *g, const struct model_shape *s,
                           const struct hyper *h, const struct config *c, const struct recipe_view *view,
                           const struct model_session *e, struct err *why);

#endif
