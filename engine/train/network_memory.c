/* Lists a network's tensors and lays out its memory. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/train/network_internal.h"
#include "engine/config/config.h"

/* ---------------------------------------------------------------- tensors */

/* Describe tensor i; a layer below 0 means it belongs to no layer. */
static void network_add_tensor(struct network *n, int i, const char *name, int layer, int64_t rows,
                               int64_t cols)
{
    struct network_tensor *t = &n->tensors[i];
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s.weight", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s.weight", layer, name);
    t->rows = rows;
    t->cols = cols;
    t->matrix = rows > 1;
    t->offset = n->params;
    n->params += rows * cols;
}

/* Reject shapes that the network cannot compute. ERR_USAGE. */
static enum err_code network_check_shape(const struct network_options *o, struct err *why)
{
    const struct network_shape *s = &o->shape;
    bool ok = s->layers >= 1 && s->layers <= 256 && s->heads >= 1 && s->kv_heads >= 1 &&
              s->heads % s->kv_heads == 0 && s->embd >= 2 && s->embd <= 1 << 14 && s->embd % s->heads == 0 &&
              s->embd / s->heads % 2 == 0 && s->ff >= 2 && s->ff <= 1 << 16 && s->vocab >= 2 &&
              s->vocab <= 1 << 18 && s->ctx >= 2 && s->ctx <= 1 << 14 && o->batch >= 1 && o->batch <= 4096;
    if (!ok)
        return err_set(why, ERR_USAGE,
                       "cannot train a model of %d layers, width %" PRId64
                       ", %d heads, %d key-value heads, feed-forward %" PRId64 ", vocabulary %" PRId64
                       ", context %d, batch %d: heads must divide the width into parts of even size, "
                       "and key-value heads must divide heads",
                       s->layers, s->embd, s->heads, s->kv_heads, s->ff, s->vocab, s->ctx, o->batch);
    if (o->checkpoint_every < 0 || o->checkpoint_every > s->layers)
        return err_set(why, ERR_USAGE, "checkpoint_every is %d and the model has %d layers: expected 0 to %d",
                       o->checkpoint_every, s->layers, s->layers);
    return ERR_OK;
}

enum err_code network_describe(struct network *n, struct err *why)
{
    const struct network_shape *s = &n->o.shape;
    enum err_code rc = network_check_shape(&n->o, why);
    if (rc) return rc;
    n->head_dim = (int)(s->embd / s->heads);
    n->kv = (int64_t)n->head_dim * s->kv_heads;
    n->tokens = (int64_t)n->o.batch * s->ctx;
    n->tensor_count = END_TENSORS + s->layers * LAYER_TENSORS;
    n->tensors = calloc((size_t)n->tensor_count, sizeof *n->tensors);
    if (!n->tensors) return err_set(why, ERR_NOMEM, "out of memory for a network");
    const struct {
        const char *name;
        int64_t rows, cols;
    } layer[LAYER_TENSORS] = {
        [T_ATTN_NORM] = { .name = "attn_norm", .rows = 1, .cols = s->embd },
        [T_Q] = { .name = "attn_q", .rows = s->embd, .cols = s->embd },
        [T_K] = { .name = "attn_k", .rows = n->kv, .cols = s->embd },
        [T_V] = { .name = "attn_v", .rows = n->kv, .cols = s->embd },
        [T_ATTN_OUT] = { .name = "attn_output", .rows = s->embd, .cols = s->embd },
        [T_FFN_NORM] = { .name = "ffn_norm", .rows = 1, .cols = s->embd },
        [T_GATE] = { .name = "ffn_gate", .rows = s->ff, .cols = s->embd },
        [T_UP] = { .name = "ffn_up", .rows = s->ff, .cols = s->embd },
        [T_DOWN] = { .name = "ffn_down", .rows = s->embd, .cols = s->ff },
    };
    network_add_tensor(n, T_EMBD, "token_embd", -1, s->vocab, s->embd);
    network_add_tensor(n, T_OUTPUT_NORM, "output_norm", -1, 1, s->embd);
    network_add_tensor(n, T_OUTPUT, "output", -1, s->tied ? 0 : s->vocab, s->embd);
    for (int l = 0; l < s->layers; l++)
        for (int t = 0; t < LAYER_TENSORS; t++)
            network_add_tensor(n, tensor_index(l, (enum layer_tensor)t), layer[t].name, l, layer[t].rows,
                               layer[t].cols);
    return ERR_OK;
}

/* ---------------------------------------------------------------- memory */

/* Hands out pieces of one block of memory for activations; with base NULL it only counts bytes. */
struct activation_arena {
    char *base;
    int64_t used;
};

static void *arena_take(struct activation_arena *a, int64_t bytes)
{
    void *p = a->base ? a->base + a->used : NULL;
    a->used += (bytes + 63) / 64 * 64;
    return p;
}

static float *arena_floats(struct activation_arena *a, int64_t n)
{
    return arena_take(a, n * (int64_t)sizeof(float));
}

static void place_operand(struct activation_arena *a, const struct network *n, struct operand *o,
                          int64_t elements)
{
    o->store = arena_take(a, operand_bytes(n->o.amp, 1, elements));
}

/* Place the activations that a layer keeps for the backward pass. */
static void place_kept(struct activation_arena *a, const struct network *n, struct layer_kept *kept)
{
    const int64_t t = n->tokens, embd = n->o.shape.embd, ff = n->o.shape.ff;
    kept->q = arena_floats(a, t * embd);
    kept->k = arena_floats(a, t * n->kv);
    kept->v = arena_floats(a, t * n->kv);
    kept->attn = arena_floats(a, t * embd);
    kept->after_attention = arena_floats(a, t * embd);
    kept->gate = arena_floats(a, t * ff);
    kept->up = arena_floats(a, t * ff);
}

/* With checkpoints, layers l, l + every, l + 2 every ... share memory, except for the input of each segment.
 */
static void place_layers(struct activation_arena *a, struct network *n)
{
    const int layers = n->o.shape.layers, every = n->o.checkpoint_every ? n->o.checkpoint_every : layers;
    for (int l = 0; l <= layers; l++)
        if (l % every == 0 || l < every || l == layers)
            n->x[l] = arena_floats(a, n->tokens * n->o.shape.embd);
        else
            n->x[l] = n->x[l % every];
    for (int l = 0; l < layers; l++)
        if (l < every)
            place_kept(a, n, &n->kept[l]);
        else
            n->kept[l] = n->kept[l % every];
}

/* Place all activations and scratch; the order decides the layout. */
static void place_all(struct activation_arena *a, struct network *n)
{
    const struct network_shape *s = &n->o.shape;
    const int64_t t = n->tokens, ctx = s->ctx, widest = MAX(MAX(s->embd, s->ff), s->vocab);
    place_layers(a, n);
    n->normed = arena_floats(a, t * s->embd);
    n->gated = arena_floats(a, t * s->ff);
    n->dx = arena_floats(a, t * s->embd);
    n->dnormed = arena_floats(a, t * s->embd);
    n->dgated = arena_floats(a, t * s->ff);
    n->dq = arena_floats(a, t * s->embd);
    n->dk = arena_floats(a, t * n->kv);
    n->dv = arena_floats(a, t * n->kv);
    n->dattn = arena_floats(a, t * s->embd);
    n->logits = arena_floats(a, t * s->vocab);
    n->inverse = arena_floats(a, t);
    n->losses = arena_take(a, t * (int64_t)sizeof(double));
    n->scores = arena_floats(a, ctx * ctx);
    n->dscores = arena_floats(a, ctx * ctx);
    n->turned_scores = arena_floats(a, ctx * ctx);
    place_operand(a, n, &n->input, t * MAX(s->embd, s->ff));
    place_operand(a, n, &n->keys, ctx * n->head_dim);
    place_operand(a, n, &n->values, ctx * n->head_dim);
    /* every matrix is also transposed, for its backward operand */
    n->products.turned = arena_floats(a, MAX(t * widest, widest * MAX(s->embd, s->ff)));
    if (n->o.amp == AMP_FP16) n->products.rounded = arena_floats(a, t * widest);
}

/* Allocate weights, gradients and their operands for products. */
static enum err_code network_allocate_parameters(struct network *n, struct err *why)
{
    n->weights = calloc((size_t)n->params, sizeof *n->weights);
    n->gradients = calloc((size_t)n->params, sizeof *n->gradients);
    n->prepared = calloc((size_t)n->tensor_count, sizeof *n->prepared);
    n->parameter_bytes = 2 * n->params * (int64_t)sizeof(float);
    bool ok = n->weights && n->gradients && n->prepared;
    for (int i = 0; ok && i < n->tensor_count; i++) {
        const struct network_tensor *t = &n->tensors[i];
        if (!t->matrix) continue;
        struct prepared *p = &n->prepared[i];
        const int64_t bytes = operand_bytes(n->o.amp, t->rows, t->cols);
        p->backward.store = malloc((size_t)operand_bytes(n->o.amp, t->cols, t->rows));
        p->forward.store = n->o.amp == AMP_OFF ? NULL : malloc((size_t)bytes);
        ok = p->backward.store && (n->o.amp == AMP_OFF || p->forward.store);
        n->parameter_bytes += n->o.amp == AMP_OFF ? bytes : 2 * bytes;
    }
    return ok ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %" PRId64 " parameters", n->params);
}

/* Count the bytes of all activations, allocate them, and place them. */
static enum err_code network_allocate_activations(struct network *n, struct err *why)
{
    struct activation_arena count = { 0 };
    n->x = calloc((size_t)n->o.shape.layers + 1, sizeof *n->x);
    n->kept = calloc((size_t)n->o.shape.layers, sizeof *n->kept);
    if (!n->x || !n->kept) return err_set(why, ERR_NOMEM, "out of memory for a network");
    place_all(&count, n);
    n->memory = mmap(NULL, (size_t)count.used, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (n->memory == MAP_FAILED) {
        n->memory = NULL;
        return err_set(why, ERR_NOMEM, "out of memory for %" PRId64 " bytes of activations", count.used);
    }
    n->memory_bytes = count.used;
    place_all(&(struct activation_arena){ .base = n->memory }, n);
    return ERR_OK;
}

/* Tables of cosines and sines for rotary positions. */
static enum err_code network_fill_angles(struct network *n, struct err *why)
{
    const int half = n->head_dim / 2, ctx = n->o.shape.ctx;
    n->cosines = malloc((size_t)ctx * (size_t)half * sizeof *n->cosines);
    n->sines = malloc((size_t)ctx * (size_t)half * sizeof *n->sines);
    if (!n->cosines || !n->sines) return err_set(why, ERR_NOMEM, "out of memory for a network");
    for (int i = 0; i < ctx * half; i++) {
        const double angle = (double)(float)pow(n->o.shape.rope_base, -2.0 * (i % half) / n->head_dim) *
                             (i / half);
        n->cosines[i] = (float)cos(angle);
        n->sines[i] = (float)sin(angle);
    }
    return ERR_OK;
}

enum err_code network_allocate(struct network *n, struct err *why)
{
    enum err_code rc = network_allocate_parameters(n, why);
    if (!rc) rc = network_allocate_activations(n, why);
    return rc ? rc : network_fill_angles(n, why);
}

void network_release(struct network *n)
{
    for (int i = 0; n->prepared && i < n->tensor_count; i++) {
        free(n->prepared[i].forward.store);
        free(n->prepared[i].backward.store);
    }
    if (n->memory) munmap(n->memory, (size_t)n->memory_bytes);
    free(n->prepared);
    free(n->weights);
    free(n->gradients);
    free(n->tensors);
    free(n->x);
    free(n->kept);
    free(n->cosines);
    free(n->sines);
}

struct network_memory network_memory(const struct network *n)
{
    return (struct network_memory){ n->parameter_bytes, n->memory_bytes };
}

void network_trim(struct network *n)
{
    madvise(n->memory, (size_t)n->memory_bytes, MADV_DONTNEED);
}
