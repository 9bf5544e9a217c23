/* engine/arch/arch.h - what distinguishes one transformer from the next, as rows of a table.
 *
 * A row says which tensors a layer has and how they are combined; the forward pass reads it and has no idea
 * of model names. */
#ifndef QDYNO_ENGINE_ARCH_H
#define QDYNO_ENGINE_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

/* ---------------------------------------------------------------- shapes */

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

/* ---------------------------------------------------------------- architectures */

/* Every tensor some architecture has; ARCH_SLOTS gives name and shape. */
enum slot {
    SLOT_TOKEN_EMBD,
    SLOT_POSITION_EMBD,
    SLOT_OUTPUT_NORM,
    SLOT_OUTPUT_NORM_B,
    SLOT_OUTPUT,
    SLOT_OUTPUT_B,
    SLOT_ROPE_FREQS,
    SLOT_ROPE_LONG,
    SLOT_ROPE_SHORT,
    SLOT_GLOBAL_COUNT,
    SLOT_ATTN_NORM = SLOT_GLOBAL_COUNT, /* from here on: once per layer, "blk.N." in front */
    SLOT_ATTN_NORM_B,
    SLOT_ATTN_NORM_2,
    SLOT_ATTN_NORM_2_B,
    SLOT_Q,
    SLOT_Q_B,
    SLOT_K,
    SLOT_K_B,
    SLOT_V,
    SLOT_V_B,
    SLOT_QKV,
    SLOT_QKV_B,
    SLOT_Q_NORM,
    SLOT_K_NORM,
    SLOT_ATTN_OUT,
    SLOT_ATTN_OUT_B,
    SLOT_POST_ATTN_NORM,
    SLOT_FFN_NORM,
    SLOT_FFN_NORM_B,
    SLOT_GATE,
    SLOT_GATE_B,
    SLOT_UP,
    SLOT_UP_B,
    SLOT_DOWN,
    SLOT_DOWN_B,
    SLOT_POST_FFN_NORM,
    SLOT_COUNT
};
#define SLOT_BIT(slot) (1ULL << (slot))

/* Sizes by meaning, so that a slot's shape can be written down once for all models. */
enum dim {
    DIM_NONE, /* of a vector's rows */
    DIM_EMBD,
    DIM_VOCAB,
    DIM_CTX,
    DIM_ROPE, /* rotated pairs */
    DIM_Q,
    DIM_K,
    DIM_V,
    DIM_QKV,
    DIM_ATTN, /* heads x value length: input of the attention output matrix */
    DIM_Q_NORM,
    DIM_K_NORM,
    DIM_FF,
    DIM_UP, /* FF, twice that where gate and up are one matrix */
};

struct arch_slot {
    const char *name;    /* behind "blk.N." for layer slots */
    enum dim cols, rows; /* rows DIM_NONE: a vector */
};
extern const struct arch_slot ARCH_SLOTS[SLOT_COUNT];

enum rope_style { ROPE_NONE, ROPE_NEIGHBOURS, ROPE_HALVES }; /* which elements form a pair */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_ROW };    /* over each head, or over the whole row */
enum residual { RESIDUAL_SEQUENTIAL, RESIDUAL_PARALLEL, RESIDUAL_BY_KEY /* use_parallel_residual */ };

struct arch {
    const char *name;   /* general.architecture */
    uint64_t need, may; /* SLOT_BITs that must, and that can, be in a file */
    enum norm_kind norm;
    enum rope_style rope; /* ROPE_NONE: learned positions */
    enum activation act;
    enum qk_norm qk_norm;
    enum residual residual;
    bool gate_in_up;         /* one matrix holds gate, then up */
    bool embedding_root;     /* token embeddings times sqrt(embd) */
    bool logits_divided;     /* by logit_scale instead of multiplied */
    int window_period;       /* 0: no layer; 1: every layer; n: all but the n-th of every n has the window */
    int window;              /* where the file does not say */
    double window_rope_base; /* of layers with a window, not scaled; 0: as the others */
    float attn_softcap, logit_softcap; /* where the file does not say; 0: none */
    int wide_query_layers; /* a model of so many layers scales q by 1/sqrt(embd / heads), not by head size */
};
extern const struct arch ARCHS[];
extern const size_t ARCH_COUNT;
const struct arch *arch_find(struct gguf_string name); /* NULL when unknown */

/* Numbers of the metadata that only the forward pass needs. */
struct hyper {
    const struct arch *arch;
    float eps;
    double rope_base, rope_factor; /* factor 1: not scaled */
    bool yarn;
    double yarn_beta_fast, yarn_beta_slow, rope_attn_factor;
    int64_t rope_ctx_original;
    bool parallel;
    int window; /* 0: none */
    float attn_scale, attn_softcap, logit_softcap, logit_scale, embedding_scale, residual_scale;
};
/* `s` from model_shape_read of the same file. ERR_FORMAT: a scaling type or value that is not known. */
enum err_code hyper_read(struct hyper *out, const struct model_shape *s, const struct gguf *g,
                         struct err *why);

enum { ARCH_NAME = 96 }; /* bytes that a slot's full name takes at most */
void arch_slot_name(char *buf, size_t size, int layer, enum slot slot);

int64_t arch_dim(enum dim d, const struct arch *a, const struct model_shape *s);

/* Call visit for every tensor of the model that the file has, after checking presence and shape of all:
 * layer -1 for global slots. ERR_FORMAT names the tensor, the shape wanted and the one found. */
typedef enum err_code arch_visit_fn(void *ctx, int layer, enum slot slot, const struct gguf_tensor *t,
                                    struct err *why);
enum err_code arch_walk(const struct arch *a, const struct model_shape *s, const struct gguf *g,
                        arch_visit_fn *visit, void *ctx, struct err *why);

/* Which tensor of a model of this shape has that name? Layer -1 for global slots. False: none. */
bool arch_slot_find(int *layer, enum slot *slot, const struct arch *a, const struct model_shape *s,
                    const char *tensor_name);

/* ---------------------------------------------------------------- companion tensors */

/* Small tensors that belong to a matrix and lie beside it in the file, as "<matrix>.<what>": the quantizer
 * writes them, loading a model reads them. docs/formats.md describes them. */
enum companion_kind {
    COMPANION_ORDER,           /* f32 [cols]: stored input i is input order[i] of x */
    COMPANION_DIVISORS,        /* f32 [cols]: inputs are divided by it */
    COMPANION_INPUT_SCALE,     /* f32 [3]: scale, zero and largest code of static activations */
    COMPANION_OUTLIERS,        /* f32 [n]: columns kept aside, ascending */
    COMPANION_OUTLIER_WEIGHTS, /* f16 [n][rows]: their weights, column by column */
    COMPANION_COUNT
};

/* "blk.0.attn_q.weight.order" into buf; returns buf. */
const char *companion_name(const char *matrix, enum companion_kind what, char *buf, size_t size);
const struct format *companion_format(enum companion_kind what);

/* The companion tensor of a matrix, NULL when it has none. */
const struct gguf_tensor *companion_find(const struct gguf *g, const char *matrix, enum companion_kind what);

/* Is this the name of some matrix's companion tensor? */
bool companion_is(const char *name);

/* ---------------------------------------------------------------- activation quantization */

/* How matrices treat their inputs, as a file says it: metadata for all of a format, companion tensors for one
 * matrix. docs/formats.md describes both. */
/* How matrices in the method's format treat their inputs when the model runs. */
struct act_scheme {
    enum input_kind kind;
    float threshold, limit; /* as in struct input_scheme */
};

bool act_is_key(struct gguf_string key);

/* Metadata for matrices in `format`; nothing for INPUT_FREE. */
enum err_code act_put(struct gguf_writer *w, const struct act_scheme *act, const struct format *format);

/* How one matrix of the file treats its inputs; *out owned (act_free), NULL when it is like any other.
 * ERR_FORMAT: unknown kind; a companion tensor of wrong type or size, or with values that cannot be. */
enum err_code act_read(struct input_scheme **out, const struct gguf *g, const struct gguf_tensor *matrix,
                       struct err *why);
void act_free(struct input_scheme *s); /* NULL is fine */

/* The kind alone, for plans: what cannot be read is INPUT_FREE here and refused by act_read. */
enum input_kind act_kind(const struct gguf *g, const struct gguf_tensor *matrix);

#endif
