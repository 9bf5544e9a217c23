/* engine/train/network.h - a model of the llama architecture that can be differentiated.
 *
 * Parameters and gradients are one array each, in the order of the tensors below. Activations live in one
 * block of memory sized at opening: all layers', or with checkpoint_every k only what enters every k-th layer
 * and the activations of k layers, which are computed again on the way back. */
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
    int batch;            /* rows of ctx tokens that are worked on at once */
    int checkpoint_every; /* 0: keep all activations */
    int threads;
    uint32_t isa;
};

struct network;
/* *out owned: network_close. Parameters are zero. ERR_USAGE: a shape that cannot be; ERR_NOMEM. */
enum err_code network_open(struct network **out, const struct network_options *o, struct err *why);
void network_close(struct network *n); /* NULL is fine */

struct network_tensor {
    char name[64]; /* as in GGUF */
    int64_t rows, cols, offset;
    bool matrix; /* else a norm's vector (rows 1) */
};
int network_tensor_count(const struct network *n);
const struct network_tensor *network_tensor_at(const struct network *n, int i);
int64_t network_params(const struct network *n);
float *network_weights(struct network *n);   /* [params]; call network_changed after writing */
float *network_gradients(struct network *n); /* [params]; what network_backward adds to */
int network_ctx(const struct network *n);    /* tokens of a row */
struct threadpool *network_threads(struct network *n);
const struct products *
network_products(const struct network *n); /* for products between matrices of its size */

/* N(0, 0.02) for matrices, less for those that add to the residual stream; 1 for norms. Same seed, same
 * numbers.
 */
enum err_code network_randomize(struct network *n, uint64_t seed, struct err *why);
void network_changed(struct network *n);

/* tokens and targets [batch][ctx]; a negative target is not counted. Returns the sum of the losses in nats,
 * of which each position's is at network_losses and its logits at network_logits until the next call. */
double network_forward(struct network *n, const int32_t *tokens, const int32_t *targets);
/* The same, and adds `scale` times the gradient of that sum to the gradients; logits are gone. */
double network_backward(struct network *n, const int32_t *tokens, const int32_t *targets, float scale);
/* As network_backward, against whole distributions instead of targets: teacher [batch][ctx][vocab] logits of
 * the same tokens. Returns the sum over positions of KL(teacher || model) in nats. */
double network_distill(struct network *n, const int32_t *tokens, const float *teacher, float scale);
const double *network_losses(const struct network *n); /* [batch][ctx], 0 where not counted */
const float *network_logits(const struct network *n);  /* [batch][ctx][vocab] */

/* Bytes: parameters, gradients and their copies for products; activations and scratch. */
struct network_memory {
    int64_t parameters, activations;
};
struct network_memory network_memory(const struct network *n);
/* Give activations back to the system until they are written again. */
void network_trim(struct network *n);

#endif
