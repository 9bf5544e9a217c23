/* engine/train/network_internal.h - the fields of a network, shared by network.c, network_memory.c and
 * attention.c. Internal. */
#ifndef QDYNO_ENGINE_TRAIN_NETWORK_INTERNAL_H
#define QDYNO_ENGINE_TRAIN_NETWORK_INTERNAL_H

#include "engine/train/network.h"
#include "engine/train/rows.h"

enum layer_tensor { T_ATTN_NORM, T_Q, T_K, T_V, T_ATTN_OUT, T_FFN_NORM, T_GATE, T_UP, T_DOWN, LAYER_TENSORS };
enum { T_EMBD, T_OUTPUT_NORM, T_OUTPUT, END_TENSORS };

/* A matrix as operand of the forward and of the backward products. */
struct prepared {
    struct operand forward, backward; /* [rows][cols] and [cols][rows] */
};

/* Activations that a layer keeps for the backward pass, all [tokens][...]. */
struct layer_kept {
    float *q, *k, *v, *attn;
    float *after_attention; /* the layer's input plus the output of attention */
    float *gate, *up;
};

struct network {
    struct network_options o;
    int head_dim;
    int64_t tokens, kv; /* batch * ctx; width of keys */
    struct backend *backend;
    struct products products;

    struct network_tensor *tensors;
    int tensor_count;
    int64_t params;
    float *weights, *gradients;
    struct prepared *prepared; /* [tensor_count], matrices only */

    /* Activations: one block of memory, divided by network_memory.c. */
    void *memory;
    int64_t memory_bytes, parameter_bytes;
    float **x;               /* [layers + 1]: input of each layer; with checkpoints, several share memory */
    struct layer_kept *kept; /* [layers]; likewise */
    float *normed, *gated;   /* scratch [tokens][embd] and [tokens][ff] */
    float *dx, *dnormed, *dgated, *dq, *dk, *dv, *dattn;
    float *logits, *inverse; /* [tokens][vocab], [tokens] */
    double *losses;
    float *scores, *dscores, *turned_scores; /* [ctx][ctx] */
    struct operand input;                    /* a transposed activation, for weight gradients */
    struct operand keys, values;             /* of one sequence and head, in attention.c */
    float *cosines, *sines;                  /* [ctx][head_dim / 2] */
};

static inline int tensor_index(int layer, enum layer_tensor t)
{
    return END_TENSORS + layer * LAYER_TENSORS + (int)t;
}

/* network_memory.c */
enum err_code network_describe(struct network *n, struct err *why); /* tensors */
enum err_code network_allocate(struct network *n, struct err *why);
void network_release(struct network *n);

/* attention.c: forward computes attn from q, k and v; backward computes dq, dk and dv from dattn. */
void attention_forward(struct network *n, const struct layer_kept *a);
void attention_backward(struct network *n, const struct layer_kept *a);

#endif
