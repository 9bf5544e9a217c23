/* engine/layers.h - a model run one layer at a time over many sequences, for methods that look at what flows
 * through it.
 *
 * Quantizers want the inputs of every matrix, the output of half a layer with other numbers in it, and all of
 * that for a model that may be larger than memory: so one layer is run for all sequences before the next one
 * is touched, and the caller keeps the activations x [tokens][width] of each sequence between layers. The
 * forward pass is the model's own; products are exact (f32) unless asked otherwise. Not thread-safe: one
 * thread drives it, the threads inside are its own. */
#ifndef QDYNO_ENGINE_LAYERS_H
#define QDYNO_ENGINE_LAYERS_H

#include "engine/model.h"

struct gguf;

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
