/* Layers whose feed-forward is a mixture of experts: a router chooses a few experts for each row, the rows
 * are sorted by expert so that each expert's matrices are read once, and the outputs are added by their
 * weights. The router's product runs on the backend; the choice is made on the host. Where the backend can,
 * it runs all experts at once; otherwise each expert's products are operations of their own, on copies of its
 * rows (an observer sees those, too). */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/model/pass.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

enum err_code expert_lists_alloc(struct expert_lists *out, const struct model_shape *s, int batch,
                                 struct err *why)
{
    const int64_t rows = batch, all = s->experts, used = s->experts_used;
    *out = (struct expert_lists){ 0 };
    if (!all) return ERR_OK;
    out->memory = calloc(1, (size_t)expert_list_bytes(s, batch));
    if (!out->memory) return err_set(why, ERR_NOMEM, "out of memory for %d rows of experts", batch);
    out->products = out->memory; /* first, because it needs the strictest alignment */
    float *at = (float *)(void *)(out->products + 2 * all);
    out->scores = at;
    out->weights = at += rows * (all + 1);
    out->input_weights = at += rows * (used + 1);
    out->pair_weights = at += rows * used;
    out->rank = at += rows * used;
    int32_t *list = (int32_t *)(void *)(at + 2 * all);
    out->place = list;
    out->chosen = list += rows * (used + 1);
    out->row = list += rows * used;
    out->first = list + rows * used;
    return ERR_OK;
}

/* ---------------------------------------------------------------- choosing */

static void softmax(float *x, int n)
{
    float most = x[0], sum = 0;
    for (int i = 1; i < n; i++) most = fmaxf(most, x[i]);
    for (int i = 0; i < n; i++) {
        x[i] = expf(x[i] - most);
        sum += x[i];
    }
    for (int i = 0; i < n; i++) x[i] /= sum;
}

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* The index of the largest of n numbers that are not NAN, the first among equals; 0 if all are. */
static int largest(const float *x, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
    return MAX(best, 0);
}

/* Remove the experts outside the best groups: their rank becomes NAN. A group's score is the sum of its two
 * largest ranks; `score` is working space for one per group. */
static void keep_best_groups(float *rank, float *score, int experts, int groups, int best)
{
    const int size = experts / groups;
    for (int g = 0; g < groups; g++) {
        const float *x = rank + g * size;
        const int first = largest(x, size);
        float second = -INFINITY;
        for (int i = 0; i < size; i++)
            if (i != first && x[i] > second) second = x[i];
        score[g] = size > 1 ? x[first] + second : x[first];
    }
    for (int i = 0; i < best; i++) score[largest(score, groups)] = NAN;
    for (int g = 0; g < groups; g++)
        for (int i = 0; !isnan(score[g]) && i < size; i++) rank[g * size + i] = NAN;
}

/* The weights of the chosen experts. */
static void weigh(const struct hyper *h, const float *score, const int32_t *chosen, int used, float *weight)
{
    const float LEAST_SUM = 6.1e-5f; /* as other engines: the smallest normal f16 */
    float sum = 0;
    for (int j = 0; j < used; j++) {
        weight[j] = score[chosen[j]];
        sum += weight[j];
    }
    if (h->router.score == ROUTER_CHOSEN) softmax(weight, used);
    if (h->router.score == ROUTER_INPUT)
        for (int j = 0; j < used; j++) weight[j] = sigmoid(weight[j]);
    for (int j = 0; j < used; j++) {
        if (h->router.sum_one) weight[j] /= sum < LEAST_SUM ? LEAST_SUM : sum;
        weight[j] *= h->router.scale;
    }
}

/* Choose the experts of one row by its raw scores, which are changed. */
static void choose(const struct model *m, const struct layer *l, float *score, int32_t *chosen, float *weight)
{
    const struct hyper *h = &m->hyper;
    const int experts = m->shape.experts;
    float *rank = m->expert_lists.rank;
    bool finite = true;
    for (int e = 0; e < experts; e++) {
        finite &= isfinite(score[e]) != 0;
        /* a scale of the router's input goes with a division by sqrt(embd) */
        if (layer_slot(l, SLOT_ROUTER_SCALE)->v) score[e] /= sqrtf((float)m->shape.embd);
    }
    if (h->router.score == ROUTER_SOFTMAX) softmax(score, experts);
    for (int e = 0; e < experts; e++) {
        if (h->router.score == ROUTER_SIGMOID) score[e] = sigmoid(score[e]);
        rank[e] = score[e] + (l->router_choice ? l->router_choice[e] : 0);
    }
    if (h->router.groups_used < h->router.groups)
        keep_best_groups(rank, rank + experts, experts, h->router.groups, h->router.groups_used);
    for (int j = 0; j < m->shape.experts_used; j++) {
        chosen[j] = largest(rank, experts);
        rank[chosen[j]] = NAN;
    }
    weigh(h, score, chosen, m->shape.experts_used, weight);
    for (int j = 0; l->expert_scale && j < m->shape.experts_used; j++)
        weight[j] *= l->expert_scale[chosen[j]];
    if (!finite) weight[0] = NAN; /* an expert that was not chosen must not hide it */
}

/* How many outputs are added for a row: of its experts, and of the expert that every row uses. */
static int outputs_of(const struct model *m, const struct layer *l)
{
    return m->shape.experts_used + (layer_slot(l, SLOT_DOWN_SHARED)->w.data != NULL);
}

/* Sort the pairs of a row and an expert by expert. */
static void sort_by_expert(const struct model *m, const struct layer *l, int n)
{
    const struct expert_lists *x = &m->expert_lists;
    const int used = m->shape.experts_used, experts = m->shape.experts, outputs = outputs_of(m, l);
    const bool input = m->hyper.router.score == ROUTER_INPUT;
    memset(x->first, 0, ((size_t)experts + 1) * sizeof *x->first);
    for (int i = 0; i < n * used; i++) x->first[x->chosen[i] + 1]++;
    for (int e = 0; e < experts; e++) x->first[e + 1] += x->first[e];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < used; j++) {
            const int32_t at =
                x->first[x->chosen[i * used + j]]++; /* moves to the end of the expert's pairs */
            float *weight = &x->weights[i * outputs + j];
            x->place[i * outputs + j] = at;
            x->row[at] = i;
            x->input_weights[at] = input ? *weight : 1;
            if (input) *weight = 1;
            x->pair_weights[at] = *weight;
        }
    for (int e = experts; e > 0; e--) x->first[e] = x->first[e - 1];
    x->first[0] = 0;
}

/* Fill the lists for the rows of h. */
static void route(const struct pass *p, const struct layer *l, const float *h)
{
    struct model *m = p->m;
    const struct expert_lists *x = &m->expert_lists;
    const int experts = m->shape.experts, used = m->shape.experts_used, outputs = outputs_of(m, l);
    const struct bound *router = layer_slot(l, SLOT_ROUTER), *shared = layer_slot(l, SLOT_SHARED_SCORE);
    const int64_t scores = (int64_t)p->n * experts;
    struct matmul mm[2];
    int count = 0;
    if (router->w.rows) {
        mm[count] = pass_product(p, router, layer_slot(l, SLOT_ROUTER_B), h, m->shape.embd);
        mm[count].y = p->b.router + router->from;
        mm[count++].y_stride = experts;
    }
    if (shared->w.data) {
        mm[count] = (struct matmul){ .w = &shared->w, .x = h, .x_stride = m->shape.embd, .n = p->n };
        mm[count].y = p->b.router + scores;
        mm[count++].y_stride = 1;
    }
    if (count) operator_matmul(p, OPERATOR_ROUTER, mm, count);
    if (model_is_part(m)) pass_exchange_scores(p);
    backend_read(p->site->backend, x->scores, p->b.router,
                 (size_t)(scores + (shared->w.data ? p->n : 0)) * sizeof(float));
    const int64_t begun = operator_begin(p);
    for (int i = 0; i < p->n; i++) {
        float *weight = &x->weights[i * outputs];
        choose(m, l, x->scores + (int64_t)i * experts, x->chosen + (int64_t)i * used, weight);
        if (outputs == used) continue;
        x->place[i * outputs + used] = p->n * used + i;
        weight[used] = shared->w.data ? sigmoid(x->scores[scores + i]) : 1;
    }
    const struct experts_watch *w = &m->experts_watch;
    if (w->see) w->see(w->ctx, (int)(l - m->layers), x->chosen, p->n);
    sort_by_expert(m, l, p->n);
    operator_end(p, OPERATOR_ROUTER, begun, 0);
}

void model_watch_experts(struct model *m, experts_seen_fn *see, void *ctx)
{
    m->experts_watch = (struct experts_watch){ see, ctx };
}

/* ---------------------------------------------------------------- running */

/* The rows of one expert through one of its matrices. */
static struct matmul expert_product(const struct pass *p, const struct layer *l, enum slot slot,
                                    enum slot bias, int expert, const float *x, int64_t x_stride)
{
    const struct expert_lists *lists = &p->m->expert_lists;
    const struct weight *w = &layer_slot(l, slot)->experts[expert];
    const float *biases = bias == SLOT_COUNT ? NULL : layer_slot(l, bias)->v;
    return (struct matmul){ .w = w,
                            .x = x,
                            .x_stride = x_stride,
                            .n = lists->first[expert + 1] - lists->first[expert],
                            .bias = biases ? biases + expert * w->rows : NULL };
}

/* Show the rows x of expert e to the observer, before they are multiplied with its matrices `slots`. */
static void show_expert(const struct pass *p, const struct layer *l, const enum slot *slots, int count, int e,
                        const float *x, int64_t stride)
{
    const int32_t *first = p->m->expert_lists.first;
    pass_call_observer_of(p, l, &(struct observed){ slots, count, e, x, stride, first[e + 1] - first[e] });
}

/* The slots of a layer's gate (or only) matrices and of its up matrices. */
struct expert_slots {
    enum slot gate, up; /* up: SLOT_COUNT: none, or `joined` with the gate */
    bool joined;
};

static struct expert_slots expert_slots_of(const struct model *m, const struct layer *l)
{
    if (!arch_is_gated(m->hyper.arch)) return (struct expert_slots){ SLOT_UP_EXPERTS, SLOT_COUNT, false };
    if (layer_slot(l, SLOT_UP_EXPERTS)->w.data)
        return (struct expert_slots){ SLOT_GATE_EXPERTS, SLOT_UP_EXPERTS, false };
    return (struct expert_slots){ SLOT_GATE_UP_EXPERTS, SLOT_COUNT, true };
}

/* What the down matrices multiply. */
struct ff_rows {
    const float *x;
    int64_t stride;
};

/* n rows of the activations of a feed-forward of (whole) width: those of all ranks where it is divided. */
static struct ff_rows whole_ff_rows(const struct pass *p, const float *x, int64_t stride, int n,
                                    int64_t width)
{
    if (!model_is_part(p->m)) return (struct ff_rows){ x, stride };
    pass_exchange_ff(p, x, stride, n, width);
    return (struct ff_rows){ p->m->exchange.ff, width };
}

/* The sizes of the feed-forwards, before they are divided. */
static const struct model_shape *whole_shape(const struct model *m)
{
    return model_is_part(m) ? m->exchange.whole : &m->shape;
}

/* The activations of all pairs. */
static struct ff_rows pair_ff_rows(const struct pass *p)
{
    const struct model *m = p->m;
    return whole_ff_rows(p, p->b.expert_ff, 2 * m->shape.expert_ff, p->n * m->shape.experts_used,
                         whole_shape(m)->expert_ff);
}

/* The inputs of all pairs, one after the other, each times its factor, in b.experts. */
static void copy_inputs(const struct pass *p, const float *h)
{
    const struct model *m = p->m;
    const struct expert_lists *x = &m->expert_lists;
    operator_mix(p, &(struct mix){ .x = h,
                                   .x_stride = m->shape.embd,
                                   .rows = p->n,
                                   .ids = x->row,
                                   .weights = x->input_weights,
                                   .n = p->n * m->shape.experts_used,
                                   .k = 1,
                                   .cols = m->shape.embd,
                                   .y = p->b.experts,
                                   .y_stride = m->shape.embd });
}

/* h -> expert_ff: act(gate) * up of every pair. */
static void run_up(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const struct expert_lists *x = &m->expert_lists;
    const int64_t embd = m->shape.embd, ff = m->shape.expert_ff, stride = 2 * ff;
    const int pairs = p->n * m->shape.experts_used;
    /* all experts of a single row have the same input: no copies, and their products share its packing */
    const struct expert_slots slots = expert_slots_of(m, l);
    const bool gated = arch_is_gated(m->hyper.arch), apart = slots.up != SLOT_COUNT,
               same = p->n == 1 && m->hyper.router.score != ROUTER_INPUT, fused = apart && !same;
    int count = 0;
    if (!same) copy_inputs(p, h);
    for (int e = 0; e < m->shape.experts; e++) {
        const int32_t at = x->first[e];
        if (at == x->first[e + 1]) continue;
        const float *in = same ? h : p->b.experts + at * embd;
        struct matmul *mm = &x->products[count];
        if (apart) {
            show_expert(p, l, (const enum slot[]){ SLOT_GATE_EXPERTS, SLOT_UP_EXPERTS }, 2, e, in, embd);
            mm[0] = expert_product(p, l, SLOT_GATE_EXPERTS, SLOT_GATE_EXPERTS_B, e, in, embd);
            mm[1] = expert_product(p, l, SLOT_UP_EXPERTS, SLOT_UP_EXPERTS_B, e, in, embd);
        } else {
            show_expert(p, l, &slots.gate, 1, e, in, embd);
            mm[0] = expert_product(p, l, slots.gate, SLOT_COUNT, e, in, embd);
        }
        for (int i = 0; i < 1 + apart; i++) {
            mm[i].y = p->b.expert_ff + at * stride + i * ff;
            mm[i].y_stride = stride;
        }
        if (fused)
            operator_gated(
                p, OPERATOR_EXPERTS_UP,
                &(struct gated){
                    .gate = mm[0], .up = mm[1], .act = m->hyper.act, .y = mm[0].y, .y_stride = stride });
        else
            count += 1 + apart;
    }
    if (fused) return;
    operator_matmul(p, OPERATOR_EXPERTS_UP, x->products, count);
    operator_activate(p, &(struct activate){ .act = m->hyper.act,
                                             .gate = p->b.expert_ff,
                                             .up = gated ? p->b.expert_ff + ff : NULL,
                                             .stride = stride,
                                             .n = pairs,
                                             .cols = ff,
                                             .y = p->b.expert_ff,
                                             .y_stride = stride });
}

/* expert_ff -> experts: the outputs of every pair. */
static void run_down(const struct pass *p, const struct layer *l)
{
    const struct model *m = p->m;
    const struct expert_lists *x = &m->expert_lists;
    const struct ff_rows from = pair_ff_rows(p);
    int count = 0;
    if (!layer_slot(l, SLOT_DOWN_EXPERTS)->w.rows) return;
    for (int e = 0; e < m->shape.experts; e++) {
        const int32_t at = x->first[e];
        if (at == x->first[e + 1]) continue;
        struct matmul *mm = &x->products[count++];
        const float *in = from.x + at * from.stride;
        show_expert(p, l, (const enum slot[]){ SLOT_DOWN_EXPERTS }, 1, e, in, from.stride);
        *mm = expert_product(p, l, SLOT_DOWN_EXPERTS, SLOT_DOWN_EXPERTS_B, e, in, from.stride);
        mm->y = p->b.experts + at * m->shape.embd + pass_stream_offset(p);
        mm->y_stride = m->shape.embd;
    }
    operator_matmul(p, OPERATOR_EXPERTS_DOWN, x->products, count);
}

/* h -> ff: act(gate) * up of the expert that every row uses. */
static void run_shared_up(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd, ff = m->shape.shared_ff, stride = 2 * ff;
    const bool gated = layer_slot(l, SLOT_GATE_SHARED)->w.data;
    struct gated g = { .up = pass_product(p, layer_slot(l, SLOT_UP_SHARED), NULL, h, embd),
                       .act = m->hyper.act,
                       .y = p->b.ff,
                       .y_stride = stride };
    pass_call_observer(p, l, (const enum slot[]){ SLOT_UP_SHARED, SLOT_GATE_SHARED }, gated ? 2 : 1, h, embd);
    g.up.y = p->b.ff + (gated ? ff : 0);
    g.up.y_stride = stride;
    if (gated) {
        g.gate = pass_product(p, layer_slot(l, SLOT_GATE_SHARED), NULL, h, embd);
        g.gate.y = p->b.ff;
        g.gate.y_stride = stride;
        operator_gated(p, OPERATOR_SHARED_UP, &g);
    } else {
        operator_matmul(p, OPERATOR_SHARED_UP, &g.up, 1);
        operator_activate(p, &(struct activate){ .act = g.act,
                                                 .gate = p->b.ff,
                                                 .stride = stride,
                                                 .n = p->n,
                                                 .cols = ff,
                                                 .y = p->b.ff,
                                                 .y_stride = stride });
    }
}

/* Its outputs follow those of the pairs. Nothing where there is none. */
static void run_shared(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd, ff = m->shape.shared_ff;
    if (outputs_of(m, l) == m->shape.experts_used) return;
    if (ff) run_shared_up(p, l, h);
    const struct ff_rows from = whole_ff_rows(p, p->b.ff, 2 * ff, p->n, whole_shape(m)->shared_ff);
    pass_call_observer(p, l, (const enum slot[]){ SLOT_DOWN_SHARED }, 1, from.x, from.stride);
    struct matmul down = pass_product(p, layer_slot(l, SLOT_DOWN_SHARED), NULL, from.x, from.stride);
    down.y = p->b.experts + (int64_t)p->n * m->shape.experts_used * embd + pass_stream_offset(p);
    down.y_stride = embd;
    if (down.w->rows) operator_matmul(p, OPERATOR_SHARED_DOWN, &down, 1);
}

/* Columns of an output that this process computes. */
static int64_t output_columns(const struct layer *l)
{
    return layer_slot(l, SLOT_DOWN_EXPERTS)->w.rows;
}

/* The weighted sums of the experts' outputs. */
static void add_outputs(const struct pass *p, const struct layer *l, float *y, bool add)
{
    const struct model *m = p->m;
    const struct expert_lists *x = &m->expert_lists;
    const int outputs = outputs_of(m, l);
    operator_mix(p, &(struct mix){ .x = p->b.experts + pass_stream_offset(p),
                                   .x_stride = m->shape.embd,
                                   .rows = (int64_t)p->n * outputs,
                                   .ids = x->place,
                                   .weights = x->weights,
                                   .n = p->n,
                                   .k = outputs,
                                   .cols = output_columns(l),
                                   .y = y + pass_stream_offset(p),
                                   .y_stride = m->shape.embd,
                                   .add = add });
}

/* ---------------------------------------------------------------- all experts at once */

static bool is_grouped(const struct pass *p, const struct layer *l)
{
    const struct model *m = p->m;
    const struct expert_slots slots = expert_slots_of(m, l);
    return !m->observer.see &&
           backend_groups_experts(p->site->backend, layer_slot(l, slots.gate)->experts,
                                  slots.up == SLOT_COUNT ? NULL : layer_slot(l, slots.up)->experts,
                                  layer_slot(l, SLOT_DOWN_EXPERTS)->experts, m->shape.experts);
}

/* h -> expert_ff */
static void grouped_up(const struct pass *p, const struct layer *l, const struct expert_rows *to,
                       const float *h)
{
    const struct model *m = p->m;
    const struct expert_slots slots = expert_slots_of(m, l);
    const bool apart = slots.up != SLOT_COUNT, factors = m->hyper.router.score == ROUTER_INPUT;
    if (factors) copy_inputs(p, h);
    operator_expert_up(p, &(struct expert_up){
                              .to = to,
                              .gate = layer_slot(l, slots.gate)->experts,
                              .up = apart ? layer_slot(l, slots.up)->experts : NULL,
                              .joined = slots.joined,
                              .gate_bias = apart ? layer_slot(l, SLOT_GATE_EXPERTS_B)->v : NULL,
                              .up_bias = apart ? layer_slot(l, SLOT_UP_EXPERTS_B)->v : NULL,
                              .x = factors ? p->b.experts : h,
                              .x_stride = m->shape.embd,
                              .by_pair = factors,
                              .act = m->hyper.act,
                              .y = p->b.expert_ff,
                              .y_stride = 2 * m->shape.expert_ff,
                          });
}

/* y += weight * (output of the expert that every row uses) */
static void add_shared(const struct pass *p, const struct layer *l, float *y)
{
    const struct model *m = p->m;
    const struct expert_lists *x = &m->expert_lists;
    const int used = m->shape.experts_used, outputs = outputs_of(m, l);
    if (outputs == used) return;
    const int64_t offset = pass_stream_offset(p);
    for (int i = 0; i < p->n; i++) m->row_scale[i] = x->weights[i * outputs + used];
    operator_mix(p, &(struct mix){ .x = p->b.experts + (int64_t)p->n * used * m->shape.embd + offset,
                                   .x_stride = m->shape.embd,
                                   .rows = p->n,
                                   .ids = m->lists.every,
                                   .weights = m->row_scale,
                                   .n = p->n,
                                   .k = 1,
                                   .cols = output_columns(l),
                                   .y = y + offset,
                                   .y_stride = m->shape.embd,
                                   .add = true });
}

/* y = sum of the experts' outputs, or y += that sum; y may be h. */
static void run_grouped(const struct pass *p, const struct layer *l, const float *h, float *y, bool add)
{
    const struct model *m = p->m;
    const struct expert_lists *x = &m->expert_lists;
    const struct expert_rows to = {
        .experts = m->shape.experts, .first = x->first, .row = x->row, .rows = p->n
    };
    run_shared(p, l, h);
    if (m->shape.expert_ff) grouped_up(p, l, &to, h);
    const struct ff_rows from = pair_ff_rows(p);
    if (!output_columns(l)) return;
    operator_expert_down(p, &(struct expert_down){ .to = &to,
                                                   .weight = x->pair_weights,
                                                   .down = layer_slot(l, SLOT_DOWN_EXPERTS)->experts,
                                                   .bias = layer_slot(l, SLOT_DOWN_EXPERTS_B)->v,
                                                   .x = from.x,
                                                   .x_stride = from.stride,
                                                   .y = y + pass_stream_offset(p),
                                                   .y_stride = m->shape.embd,
                                                   .add = add });
    add_shared(p, l, y);
}

/* ---------------------------------------------------------------- the layer */

/* y = scale * (sum of the experts' outputs), or y += that. Ranks without rows of a matrix exchange all the
 * same. */
static void run_experts(const struct pass *p, const struct layer *l, const float *h, float *y, bool add,
                        float scale)
{
    const struct model *m = p->m;
    const struct expert_lists *x = &m->expert_lists;
    for (int i = 0; i < p->n * outputs_of(m, l); i++) x->weights[i] *= scale;
    for (int i = 0; i < p->n * m->shape.experts_used; i++) x->pair_weights[i] *= scale;
    if (is_grouped(p, l)) {
        run_grouped(p, l, h, y, add);
    } else {
        if (m->shape.expert_ff) run_up(p, l, h);
        run_down(p, l);
        run_shared(p, l, h);
        if (output_columns(l)) add_outputs(p, l, y, add);
    }
    if (model_is_part(m)) pass_exchange_stream(p, y, m->shape.embd);
}

/* Do the layer's experts run on the host, while the layer is on the device? */
static bool are_apart(const struct pass *p, const struct layer *l)
{
    return p->site != model_slot_site(p->m, (int)(l - p->m->layers), SLOT_DOWN_EXPERTS);
}

/* experts(h) -> b.h of the device, by way of the host: only rows of the model's width are copied. */
static void run_apart(const struct pass *p, const struct layer *l, const float *h)
{
    const struct site *host = &p->m->sites[SITE_HOST];
    const size_t bytes = (size_t)p->n * (size_t)p->m->shape.embd * sizeof(float);
    struct pass there = *p;
    there.site = host;
    there.b = host->buffers;
    backend_read(p->site->backend, there.b.h, h, bytes);
    /* x of the host is free, because no layer runs there now. */
    run_experts(&there, l, there.b.h, there.b.x, false, 1);
    backend_write(p->site->backend, p->b.h, there.b.x, bytes);
}

void pass_run_experts(const struct pass *p, const struct layer *l, const float *scored, const float *h)
{
    route(p, l, scored);
    if (are_apart(p, l))
        run_apart(p, l, h);
    else
        run_experts(p, l, h, p->b.h, false, 1);
}

void pass_add_experts(const struct pass *p, const struct layer *l, const float *h)
{
    const struct bound *post_norm = layer_slot(l, SLOT_POST_FFN_NORM);
    const bool apart = are_apart(p, l), plain = !post_norm->v && !apart;
    route(p, l, h);
    if (apart)
        run_apart(p, l, h);
    else
        run_experts(p, l, h, plain ? p->b.x : p->b.h, plain, plain ? p->m->hyper.residual_scale : 1);
    if (!plain) pass_add_rows(p, post_norm);
}
