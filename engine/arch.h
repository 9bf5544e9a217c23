/* engine/arch.h - what distinguishes one transformer from the next, as rows of a table.
 *
 * A row says which tensors a layer has and how they are combined; the forward pass reads it and has no idea
 * of model names. Internal to engine/. */
#ifndef QDYNO_ENGINE_ARCH_H
#define QDYNO_ENGINE_ARCH_H

#include "engine/gguf.h"
#include "engine/model.h"

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

#endif
