/* engine/train/network.h - a llama model that can be differentiated. Internal.
 *
 * All parameters form one array, all gradients another, in the order of the tensors below. Activations live
 * in one block of memory allocated at opening. It holds those of all layers; or, with checkpoint_every k,
 * only the input of every k-th layer and the activations of k layers, which the backward pass computes again.
 */
#ifndef QDYNO_ENGINE_TRAIN_NETWORK_H
#define QDYNO_ENGINE_TRAIN_NETWORK_H

#include "engine/train/product.h"
#include "engine/config/config.h"

struct network_shape {
    int layers, heads, kv_heads, ctx;
    int64_t embd, ff, vocab;
    bool tied;
    double rope_base;
    float eps;
};

struct network_options {
    struct network_shape shape;
    enum amp amp;
    int batch;            /* rows of ctx tokens in a forward pass */
    int checkpoint_every; /* layers between activation checkpoints; 0: keep all activations */
    int threads;
    uint32_t isa;
};

struct network;
/* *out is owned: network_close. Parameters are 0. ERR_USAGE: an impossible shape; ERR_NOMEM. */
enum err_code network_open(struct network **out, const struct network_options *o, struct err *why);
void network_close(struct network *n); /* NULL is fine */

struct network_tensor {
    char name[64]; /* as in GGUF */
    int64_t rows, cols, offset;
    bool matrix; /* false: the weight vector of a norm (rows is 1) */
};
int network_tensor_count(const struct network *n);
const struct network_tensor *network_tensor_at(const struct network *n, int i);
int64_t network_params(const struct network *n);
float *network_weights(struct network *n);   /* [params]; call network_changed after writing to it */
float *network_gradients(struct network *n); /* [params]; network_backward adds to it */
int network_ctx(const struct network *n);    /* tokens in a row */
struct threadpool *network_threads(struct network *n);
const struct products *
network_products(const struct network *n); /* for products between matrices of its size */

/* Initialize: matrices from N(0, 0.02), smaller for those that add to the residual stream; norms with 1. The
 * same seed gives the same numbers. ERR_NOMEM. */
enum err_code network_randomize(struct network *n, uint64_t seed, struct err *why);
void network_changed(struct network *n);

/* tokens and targets [batch][ctx]; positions with a negative target do not count. Returns the sum of the
 * losses in nats. network_logits returns the logits of each position, until the next call. */
double network_forward(struct network *n, const int32_t *tokens, const int32_t *targets);
/* The same, and adds `scale` times the gradient of that sum to the gradients. Overwrites the logits. */
double network_backward(struct network *n, const int32_t *tokens, const int32_t *targets, float scale);
/* Like network_backward, with a teacher's logits [batch][ctx][vocab] for the same tokens instead of targets.
 * Returns the sum over positions of KL(teacher || model) in nats. */
double network_distill(struct network *n, const int32_t *tokens, const float *teacher, float scale);
const float *network_logits(const struct network *n); /* [batch][ctx][vocab] */

/* Bytes of parameters, gradients and their copies for products; bytes of activations and scratch. */
struct network_memory {
    int64_t parameters, activations;
};
struct network_memory network_memory(const struct network *n);
/* Release the activations' memory to the system until they are written again. */
void network_trim(struct network *n);

#endif
