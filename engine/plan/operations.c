/* Collects the matrix products of a forward pass, with the same walk over tensors as the loader and the plan.
 */
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

struct gathering {
    struct model_operations *out;
    const struct recipe_view *view; /* NULL: the file as it is */
    const struct config *config;
    const struct gguf *gguf;
    const struct arch *arch;
    const struct backend_options *backend;
};

static bool slot_is_early(enum slot slot)
{
    return slot == SLOT_Q || slot == SLOT_K || slot == SLOT_V || slot == SLOT_QKV || slot == SLOT_STATE_QKV ||
           slot == SLOT_STATE_GATE || slot == SLOT_STATE_IN || slot == SLOT_STATE_BETA ||
           slot == SLOT_STATE_ALPHA || slot == SLOT_STATE_BETA_ALPHA || slot == SLOT_SHORT_IN;
}

static enum product_experts experts_of(const struct gathering *g, enum slot slot)
{
    if (ARCH_SLOTS[slot].matrices != DIM_EXPERTS) return PRODUCT_DENSE;
    const bool has_gate = slot == SLOT_GATE_EXPERTS || (slot == SLOT_UP_EXPERTS && arch_is_gated(g->arch));
    return has_gate ? PRODUCT_EXPERTS_APART : PRODUCT_EXPERTS_TOGETHER;
}

/* Sum of the rows of all matrices that one call multiplies with the same inputs: q, k and v; gate and up. */
static int64_t rows_together(const struct gathering *g, enum slot slot, int64_t rows)
{
    const struct model_shape *s = &g->out->shape;
    if (slot == SLOT_Q || slot == SLOT_K || slot == SLOT_V)
        return arch_dim(DIM_Q_ROWS, g->arch, s) + arch_dim(DIM_K, g->arch, s) + arch_dim(DIM_V, g->arch, s);
    if (slot == SLOT_GATE || (slot == SLOT_UP && (g->arch->need & SLOT_BIT(SLOT_GATE)) != 0) ||
        experts_of(g, slot) == PRODUCT_EXPERTS_APART)
        return 2 * rows;
    return rows;
}

static enum err_code operations_add(struct model_operations *o, const struct model_product *p,
                                    struct err *why)
{
    for (int i = 0; i < o->n; i++) {
        struct model_product *q = &o->product[i];
        if (q->format != p->format || q->part != p->part || q->experts != p->experts || q->rows != p->rows ||
            q->cols != p->cols || q->together != p->together)
            continue;
        q->count += p->count;
        q->last += p->last;
        return ERR_OK;
    }
    if (o->n == MODEL_PRODUCTS_MAX)
        return err_set(why, ERR_INTERNAL, "more than %d kinds of matrices in one model", MODEL_PRODUCTS_MAX);
    o->product[o->n++] = *p;
    return ERR_OK;
}

static enum err_code gathering_add_tensor(void *ctx, int layer, enum slot slot, int expert,
                                          const struct gguf_tensor *t, struct err *why)
{
    struct gathering *g = ctx;
    const bool tied = slot == SLOT_TOKEN_EMBD && g->out->shape.tied_output;
    if (arch_slot_is_vector(slot) ||
        (layer < 0 && slot != SLOT_OUTPUT && slot != SLOT_LAYER_INPUTS_PROJ && !tied))
        return ERR_OK;
    const struct format *stored = g->view ? g->view->format(g->config, g->gguf, t) : t->format;
    /* of the experts, those that work on one token */
    const int used = g->out->shape.experts_used;
    if (expert >= used) return ERR_OK; /* experts with tensors of their own: the first stand for those used */
    const int uses = expert >= 0 ? 1 : ARCH_SLOTS[slot].matrices == DIM_EXPERTS ? used : (int)t->shape[2];
    const struct model_product p = { .format = backend_held_format(g->backend, stored),
                                     .part = slot == SLOT_LAYER_INPUTS_PROJ ? PRODUCT_EARLY
                                             : layer < 0                    ? PRODUCT_OUTPUT
                                             : slot_is_early(slot)          ? PRODUCT_EARLY
                                                                            : PRODUCT_LATE,
                                     .experts = experts_of(g, slot),
                                     .rows = t->shape[1],
                                     .cols = t->shape[0],
                                     .together = rows_together(g, slot, t->shape[1]) * t->shape[0],
                                     .count = uses,
                                     .last = layer == g->out->shape.layers - 1 ? uses : 0 };
    return operations_add(g->out, &p, why);
}

/* Number of layers with a window. */
static int windowed_layers(const struct model_shape *s)
{
    int count = 0;
    for (int l = 0; l < s->layers; l++) count += s->parts[l].window;
    return count;
}

enum err_code plan_operations(struct model_operations *out, const struct gguf *g, const struct config *c,
                              const struct recipe_view *view, struct err *why)
{
    struct hyper h;
    struct model_session e;
    enum err_code rc;
    *out = (struct model_operations){ 0 };
    if ((rc = model_shape_read(&out->shape, g, why))) return rc;
    if ((rc = hyper_read(&h, &out->shape, g, why))) return rc;
    if ((rc = session_resolve(&e, &out->shape, h.arch, c, 0, 1, why))) return rc;
    out->k_format = e.k_format;
    out->v_format = e.v_format;
    out->batch = e.batch;
    out->attention_layers = shape_count(&out->shape, MIXER_ATTENTION, out->shape.layers);
    out->windowed_layers = windowed_layers(&out->shape);
    out->window = out->shape.window;
    struct gathering gathering = {
        .out = out, .view = view, .config = c, .gguf = g, .arch = h.arch, .backend = &e.backend
    };
    return arch_walk(h.arch, &out->shape, g, gathering_add_tensor, &gathering, why);
}
