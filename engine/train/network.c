/* The llama architecture forwards and backwards.
 *
 *   after_attention = x + Wo attention(rope(Wq h), rope(Wk h), Wv h),   h = norm(x)
 *   x'  = after_attention + Wdown (silu(Wgate h) * Wup h),              h = norm(after_attention)
 *
 * The results of norms and of the gated product are cheap, so the backward pass computes them again instead
 * of storing them. */
#include "engine/train/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/synth/synth.h"
#include "engine/train/network_internal.h"
#include "kernels/kernels.h"

/* ---------------------------------------------------------------- parts */

static const float *tensor_weights(const struct network *n, int tensor)
{
    return n->weights + n->tensors[tensor].offset;
}

static float *tensor_gradients(const struct network *n, int tensor)
{
    return n->gradients + n->tensors[tensor].offset;
}

static void norm_forward(const struct network *n, const float *x, int tensor, float *y)
{
    rows_norm(n->products.pool, &(struct norm_rows){ .x = x,
                                                     .w = tensor_weights(n, tensor),
                                                     .eps = n->o.shape.eps,
                                                     .rows = n->tokens,
                                                     .cols = n->o.shape.embd,
                                                     .y = y });
}

/* n->dx += gradient with respect to x, given n->dnormed. */
static void norm_backward(const struct network *n, const float *x, int tensor)
{
    rows_norm_back(n->products.pool, &(struct norm_back){ .x = x,
                                                          .w = tensor_weights(n, tensor),
                                                          .dy = n->dnormed,
                                                          .eps = n->o.shape.eps,
                                                          .rows = n->tokens,
                                                          .cols = n->o.shape.embd,
                                                          .dx = n->dx,
                                                          .dw = tensor_gradients(n, tensor),
                                                          .inverse = n->inverse });
}

/* y (+)= x W^T for all tokens. */
static void matrix_forward(const struct network *n, int tensor, const float *x, float *y, bool add)
{
    const struct network_tensor *t = &n->tensors[tensor];
    product_run(&n->products, &(struct product){ .x = x,
                                                 .x_stride = t->cols,
                                                 .n = n->tokens,
                                                 .w = &n->prepared[tensor].forward,
                                                 .y = y,
                                                 .y_stride = t->rows,
                                                 .add = add });
}

/* dx (+)= dy W. */
static void matrix_backward(const struct network *n, int tensor, const float *dy, float *dx, bool add)
{
    const struct network_tensor *t = &n->tensors[tensor];
    product_run(&n->products, &(struct product){ .x = dy,
                                                 .x_stride = t->rows,
                                                 .n = n->tokens,
                                                 .w = &n->prepared[tensor].backward,
                                                 .y = dx,
                                                 .y_stride = t->cols,
                                                 .add = add });
}

/* Set the transposed input x [tokens][cols] that weight gradients are computed from. */
static void network_set_input(struct network *n, const float *x, int64_t cols)
{
    operand_set_turned(&n->products, &n->input, x, cols, cols, n->tokens);
}

static void matrix_add_gradient(struct network *n, int tensor, const float *dy)
{
    const int64_t rows = n->tensors[tensor].rows;
    product_weight_gradient(&n->products, dy, rows, rows, &n->input, tensor_gradients(n, tensor));
}

/* Apply rotary positions to x, or undo them with sign -1. */
static void network_rope(const struct network *n, float *x, int heads, float sign)
{
    rows_rope(n->products.pool, &(struct rope_rows){ .x = x,
                                                     .rows = n->tokens,
                                                     .ctx = n->o.shape.ctx,
                                                     .heads = heads,
                                                     .head_dim = n->head_dim,
                                                     .cosines = n->cosines,
                                                     .sines = n->sines,
                                                     .sign = sign });
}

/* ---------------------------------------------------------------- layers */

/* Forward pass of layer l: n->x[l + 1] from n->x[l]. */
static void layer_forward(struct network *n, int l)
{
    const struct layer_kept *a = &n->kept[l];
    const int64_t wide = n->tokens * n->o.shape.embd;
    norm_forward(n, n->x[l], tensor_index(l, T_ATTN_NORM), n->normed);
    matrix_forward(n, tensor_index(l, T_Q), n->normed, a->q, false);
    matrix_forward(n, tensor_index(l, T_K), n->normed, a->k, false);
    matrix_forward(n, tensor_index(l, T_V), n->normed, a->v, false);
    network_rope(n, a->q, n->o.shape.heads, 1);
    network_rope(n, a->k, n->o.shape.kv_heads, 1);
    attention_forward(n, a);
    memcpy(a->after_attention, n->x[l], (size_t)wide * sizeof *a->after_attention);
    matrix_forward(n, tensor_index(l, T_ATTN_OUT), a->attn, a->after_attention, true);
    norm_forward(n, a->after_attention, tensor_index(l, T_FFN_NORM), n->normed);
    matrix_forward(n, tensor_index(l, T_GATE), n->normed, a->gate, false);
    matrix_forward(n, tensor_index(l, T_UP), n->normed, a->up, false);
    rows_swiglu(n->products.pool, a->gate, a->up, n->gated, n->tokens * n->o.shape.ff);
    memcpy(n->x[l + 1], a->after_attention, (size_t)wide * sizeof *a->after_attention);
    matrix_forward(n, tensor_index(l, T_DOWN), n->gated, n->x[l + 1], true);
}

/* Backward pass of the feed-forward block of layer l. */
static void feed_forward_backward(struct network *n, int l)
{
    const struct layer_kept *a = &n->kept[l];
    const int64_t elements = n->tokens * n->o.shape.ff;
    rows_swiglu(n->products.pool, a->gate, a->up, n->gated, elements);
    network_set_input(n, n->gated, n->o.shape.ff);
    matrix_add_gradient(n, tensor_index(l, T_DOWN), n->dx);
    matrix_backward(n, tensor_index(l, T_DOWN), n->dx, n->dgated, false);
    rows_swiglu_back(n->products.pool, a->gate, a->up, n->dgated, elements);
    norm_forward(n, a->after_attention, tensor_index(l, T_FFN_NORM), n->normed);
    network_set_input(n, n->normed, n->o.shape.embd);
    matrix_add_gradient(n, tensor_index(l, T_GATE), a->gate);
    matrix_add_gradient(n, tensor_index(l, T_UP), a->up);
    matrix_backward(n, tensor_index(l, T_GATE), a->gate, n->dnormed, false);
    matrix_backward(n, tensor_index(l, T_UP), a->up, n->dnormed, true);
    norm_backward(n, a->after_attention, tensor_index(l, T_FFN_NORM));
}

/* Backward pass of the attention block of layer l. */
static void attention_block_backward(struct network *n, int l)
{
    const struct layer_kept *a = &n->kept[l];
    network_set_input(n, a->attn, n->o.shape.embd);
    matrix_add_gradient(n, tensor_index(l, T_ATTN_OUT), n->dx);
    matrix_backward(n, tensor_index(l, T_ATTN_OUT), n->dx, n->dattn, false);
    attention_backward(n, a);
    network_rope(n, n->dq, n->o.shape.heads, -1);
    network_rope(n, n->dk, n->o.shape.kv_heads, -1);
    norm_forward(n, n->x[l], tensor_index(l, T_ATTN_NORM), n->normed);
    network_set_input(n, n->normed, n->o.shape.embd);
    matrix_add_gradient(n, tensor_index(l, T_Q), n->dq);
    matrix_add_gradient(n, tensor_index(l, T_K), n->dk);
    matrix_add_gradient(n, tensor_index(l, T_V), n->dv);
    matrix_backward(n, tensor_index(l, T_Q), n->dq, n->dnormed, false);
    matrix_backward(n, tensor_index(l, T_K), n->dk, n->dnormed, true);
    matrix_backward(n, tensor_index(l, T_V), n->dv, n->dnormed, true);
    norm_backward(n, n->x[l], tensor_index(l, T_ATTN_NORM));
}

/* ---------------------------------------------------------------- the whole model */

static int output_tensor(const struct network *n)
{
    return n->o.shape.tied ? T_EMBD : T_OUTPUT;
}

/* Sum of the losses; replaces the logits by their gradient unless scale is 0. */
static double network_loss(struct network *n, const int32_t *targets, float scale)
{
    double sum = 0;
    rows_cross_entropy(n->products.pool, &(struct cross_entropy){ .logits = n->logits,
                                                                  .targets = targets,
                                                                  .rows = n->tokens,
                                                                  .cols = n->o.shape.vocab,
                                                                  .loss = n->losses,
                                                                  .scale = scale });
    for (int64_t i = 0; i < n->tokens; i++) sum += n->losses[i];
    return sum;
}

static void network_run_forward(struct network *n, const int32_t *tokens)
{
    const struct matrix table = { n->weights + n->tensors[T_EMBD].offset, n->o.shape.vocab, n->o.shape.embd };
    rows_gather(n->products.pool, &table, tokens, n->x[0], n->tokens);
    for (int l = 0; l < n->o.shape.layers; l++) layer_forward(n, l);
    norm_forward(n, n->x[n->o.shape.layers], T_OUTPUT_NORM, n->normed);
    matrix_forward(n, output_tensor(n), n->normed, n->logits, false);
}

double network_forward(struct network *n, const int32_t *tokens, const int32_t *targets)
{
    network_run_forward(n, tokens);
    return network_loss(n, targets, 0);
}

/* Backward pass, given the gradient of the logits in their place. */
static void network_run_backward(struct network *n, const int32_t *tokens)
{
    const int layers = n->o.shape.layers, every = n->o.checkpoint_every ? n->o.checkpoint_every : layers;
    network_set_input(n, n->normed, n->o.shape.embd);
    matrix_add_gradient(n, output_tensor(n), n->logits);
    matrix_backward(n, output_tensor(n), n->logits, n->dnormed, false);
    memset(n->dx, 0, (size_t)(n->tokens * n->o.shape.embd) * sizeof *n->dx);
    norm_backward(n, n->x[layers], T_OUTPUT_NORM);
    for (int l = layers - 1; l >= 0; l--) {
        const int first = l / every * every;
        if (l + 1 < layers && (l + 1) % every == 0) /* enter a segment of checkpointed layers from its end */
            for (int again = first; again <= l; again++) layer_forward(n, again);
        feed_forward_backward(n, l);
        attention_block_backward(n, l);
    }
    const struct matrix table = { tensor_gradients(n, T_EMBD), n->o.shape.vocab, n->o.shape.embd };
    rows_gather_back(n->products.pool, &table, tokens, n->dx, n->tokens);
}

double network_backward(struct network *n, const int32_t *tokens, const int32_t *targets, float scale)
{
    network_run_forward(n, tokens);
    const double loss = network_loss(n, targets, scale);
    network_run_backward(n, tokens);
    return loss;
}

double network_distill(struct network *n, const int32_t *tokens, const float *teacher, float scale)
{
    double sum = 0;
    network_run_forward(n, tokens);
    rows_distill(n->products.pool, &(struct distillation){ .logits = n->logits,
                                                           .teacher = teacher,
                                                           .rows = n->tokens,
                                                           .cols = n->o.shape.vocab,
                                                           .loss = n->losses,
                                                           .scale = scale });
    for (int64_t i = 0; i < n->tokens; i++) sum += n->losses[i];
    if (scale != 0) network_run_backward(n, tokens);
    return sum;
}

/* ---------------------------------------------------------------- parameters */

void network_changed(struct network *n)
{
    for (int i = 0; i < n->tensor_count; i++) {
        const struct network_tensor *t = &n->tensors[i];
        if (!t->matrix) continue;
        operand_set(&n->products, &n->prepared[i].forward, tensor_weights(n, i), t->cols, t->rows, t->cols);
        operand_set_turned(&n->products, &n->prepared[i].backward, tensor_weights(n, i), t->cols, t->cols,
                           t->rows);
    }
}

static bool adds_to_residual(const struct network_tensor *t)
{
    return str_ends(t->name, "attn_output.weight") || str_ends(t->name, "ffn_down.weight");
}

enum err_code network_randomize(struct network *n, uint64_t seed, struct err *why)
{
    struct noise *noise = malloc(sizeof *noise);
    if (!noise) return err_set(why, ERR_NOMEM, "out of memory for random numbers");
    noise_init(noise);
    for (int i = 0; i < n->tensor_count; i++) {
        const struct network_tensor *t = &n->tensors[i];
        const float deviation = adds_to_residual(t) ? 0.02f / sqrtf(2 * (float)n->o.shape.layers) : 0.02f;
        float *w = n->weights + t->offset;
        if (t->matrix)
            noise_fill(noise, (struct noise_stream){ seed, (uint64_t)i, 0 }, w, t->rows * t->cols, 0,
                       deviation);
        else
            for (int64_t c = 0; c < t->rows * t->cols; c++) w[c] = 1;
    }
    free(noise);
    network_changed(n);
    return ERR_OK;
}

/* ---------------------------------------------------------------- open, close, ask */

static enum err_code network_open_backend(struct network *n, struct err *why)
{
    const struct network_shape *s = &n->o.shape;
    const struct backend_options options = { .threads = n->o.threads,
                                             .isa = n->o.isa,
                                             .precision = PRECISION_AUTO };
    const int64_t widest = MAX(MAX(s->embd, s->ff), s->vocab);
    enum err_code rc = backend_open(&n->backend, "cpu", &options, why);
    if (rc) return rc;
    n->products = (struct products){ .backend = n->backend,
                                     .pool = backend_threads(n->backend),
                                     .amp = n->o.amp,
                                     .format = product_format(n->o.amp) };
    const int64_t most = MAX(n->tokens, widest);
    return backend_reserve(n->backend,
                           &(struct backend_work){ .rows = most,
                                                   .cols = most,
                                                   .formats = format_bit(n->products.format),
                                                   .inputs = 1u << INPUT_FREE },
                           why);
}

enum err_code network_open(struct network **out, const struct network_options *o, struct err *why)
{
    *out = NULL;
    struct network *n = calloc(1, sizeof *n);
    if (!n) return err_set(why, ERR_NOMEM, "out of memory for a network");
    n->o = *o;
    enum err_code rc = network_describe(n, why);
    if (!rc) rc = network_open_backend(n, why);
    if (!rc) rc = network_allocate(n, why);
    if (rc) {
        network_close(n);
        return rc;
    }
    network_changed(n);
    *out = n;
    return ERR_OK;
}

void network_close(struct network *n)
{
    if (!n) return;
    backend_close(n->backend);
    network_release(n);
    free(n);
}

int network_tensor_count(const struct network *n)
{
    return n->tensor_count;
}

const struct network_tensor *network_tensor_at(const struct network *n, int i)
{
    return &n->tensors[i];
}

int64_t network_params(const struct network *n)
{
    return n->params;
}

int network_ctx(const struct network *n)
{
    return n->o.shape.ctx;
}

float *network_weights(struct network *n)
{
    return n->weights;
}

float *network_gradients(struct network *n)
{
    return n->gradients;
}

struct threadpool *network_threads(struct network *n)
{
    return n->products.pool;
}

const struct products *network_products(const struct network *n)
{
    return &n->products;
}

const float *network_logits(const struct network *n)
{
    return n->logits;
}
