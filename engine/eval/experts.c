/* Counts which experts a model's routers choose on a text, and how many different ones batches of its tokens
 * need. A layer reads each expert that works on a batch once, so the second figure predicts what batches
 * cost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/windows.h"
#include "engine/plan/plan.h"

/* A sum over batches of one size, in one layer. */
struct distinct_sum {
    int64_t experts, batches;
};
typedef struct distinct_sum distinct_sums[EXPERT_BATCHES];

/* A text on its way through the model. */
struct counting {
    struct expert_use *out;
    int ctx, batch;
    uint16_t *chosen; /* [layers][EXPERT_WINDOWS][ctx][used]: of the latest windows */
    int *rows;        /* [layers] rows of the current window that the layer has processed */
    int slot;         /* of the current window in `chosen` */
    int64_t *stamp;   /* [experts] the batch in which an expert was counted last */
    int64_t stamps;
    distinct_sums *consecutive, *apart; /* [layers] */
};

enum err_code expert_use_check(const struct model_shape *s, struct err *why)
{
    if (s->experts) return ERR_OK;
    return err_set(why, ERR_USAGE,
                   "this %s model has no experts: expected a mixture of experts, whose layers choose among "
                   "several feed-forwards (`qdyno info` says how many)",
                   s->arch);
}

static enum err_code counting_init(struct counting *c, struct expert_use *out, const struct model *m, int ctx,
                                   struct err *why)
{
    const struct model_shape *s = model_shape(m);
    const size_t layers = (size_t)s->layers, experts = (size_t)s->experts;
    *out = (struct expert_use){ .layers = s->layers, .experts = s->experts, .used = s->experts_used };
    *c = (struct counting){ .out = out, .ctx = ctx, .batch = (int)config_int(model_config(m), KNOB_BATCH) };
    const enum err_code rc = expert_use_check(s, why);
    if (rc) return rc;
    out->count = calloc(layers * experts, sizeof *out->count);
    out->consecutive = calloc(layers, sizeof *out->consecutive);
    out->apart = calloc(layers, sizeof *out->apart);
    c->chosen = calloc(layers * EXPERT_WINDOWS * (size_t)ctx * (size_t)s->experts_used, sizeof *c->chosen);
    c->rows = calloc(layers, sizeof *c->rows);
    c->stamp = calloc(experts, sizeof *c->stamp);
    c->consecutive = calloc(layers, sizeof *c->consecutive);
    c->apart = calloc(layers, sizeof *c->apart);
    if (out->count && out->consecutive && out->apart && c->chosen && c->rows && c->stamp && c->consecutive &&
        c->apart)
        return ERR_OK;
    return err_set(why, ERR_NOMEM, "out of memory for the experts of %d windows of %d tokens", EXPERT_WINDOWS,
                   ctx);
}

static void counting_done(struct counting *c)
{
    free(c->chosen);
    free(c->rows);
    free(c->stamp);
    free(c->consecutive);
    free(c->apart);
}

/* The experts of one token. */
static uint16_t *token_experts(const struct counting *c, int layer, int slot, int position)
{
    const int64_t window = (int64_t)layer * EXPERT_WINDOWS + slot;
    return c->chosen + (window * c->ctx + position) * c->out->used;
}

static void see_choices(void *ctx, int layer, const int32_t *chosen, int n)
{
    struct counting *c = ctx;
    uint16_t *to = token_experts(c, layer, c->slot, c->rows[layer]);
    int64_t *count = c->out->count + (int64_t)layer * c->out->experts;
    for (int i = 0; i < n * c->out->used; i++) {
        to[i] = (uint16_t)chosen[i];
        count[chosen[i]]++;
    }
    c->rows[layer] += n;
}

/* ---------------------------------------------------------------- batches */

/* Add the number of distinct experts of `size` tokens: from a token on, each a number of windows and of
 * positions after the one before. */
static void add_batch(struct counting *c, struct distinct_sum *sum, int layer, int slot, int position,
                      int size, int slot_step)
{
    const int64_t stamp = ++c->stamps;
    for (int i = 0; i < size; i++) {
        const uint16_t *chosen = token_experts(c, layer, slot + i * slot_step, position + i * !slot_step);
        for (int j = 0; j < c->out->used; j++) {
            sum->experts += c->stamp[chosen[j]] != stamp;
            c->stamp[chosen[j]] = stamp;
        }
    }
    sum->batches++;
}

/* The current window in batches of consecutive tokens. */
static void add_consecutive(struct counting *c)
{
    for (int l = 0; l < c->out->layers; l++)
        for (int b = 0; b < EXPERT_BATCHES && c->rows[l]; b++)
            for (int at = 0; at + (1 << b) <= c->ctx; at += 1 << b)
                add_batch(c, &c->consecutive[l][b], l, c->slot, at, 1 << b, 0);
}

/* The first n of the latest windows, in batches with one token of each. */
static void add_apart(struct counting *c, int n)
{
    for (int l = 0; l < c->out->layers; l++)
        for (int b = 0; b < EXPERT_BATCHES && c->rows[l]; b++)
            for (int slot = 0; slot + (1 << b) <= n; slot += 1 << b)
                for (int at = 1; at < c->ctx; at++) add_batch(c, &c->apart[l][b], l, slot, at, 1 << b, 1);
}

static struct expert_curve curve_of(const struct distinct_sum *sums)
{
    struct expert_curve curve;
    for (int b = 0; b < EXPERT_BATCHES; b++)
        curve.distinct[b] = sums[b].batches ? (double)sums[b].experts / (double)sums[b].batches : (double)NAN;
    return curve;
}

/* ---------------------------------------------------------------- the text */

/* `rows` and `best` have room for a batch. */
static enum err_code count_window(struct counting *c, struct model *m, const int32_t *ids,
                                  struct batch_row *rows, int32_t *best, struct err *why)
{
    enum err_code rc = ERR_OK;
    memset(c->rows, 0, (size_t)c->out->layers * sizeof *c->rows);
    model_truncate(m, 0, 0);
    for (int at = 0; at < c->ctx && !rc; at += c->batch) {
        const int n = MIN(c->batch, c->ctx - at);
        /* without requested logits, the last layer would leave out a row's experts */
        for (int i = 0; i < n; i++)
            rows[i] = (struct batch_row){ .token = ids[at + i], .pos = at + i, .logits = true };
        rc = model_forward_best(m, rows, n, best, why);
    }
    return rc;
}

static enum err_code count_windows(struct counting *c, struct model *m, struct windows *w,
                                   const struct eval_request *r, struct err *why)
{
    struct batch_row *rows = malloc((size_t)c->batch * sizeof *rows);
    int32_t *best = malloc((size_t)c->batch * sizeof *best);
    enum err_code rc = rows && best ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    model_watch_experts(m, see_choices, c);
    for (int64_t i = 0; i < w->count && !rc; i++) {
        c->slot = (int)(i % EXPERT_WINDOWS);
        rc = count_window(c, m, windows_get(w, i), rows, best, why);
        if (rc) break;
        add_consecutive(c);
        if (c->slot == EXPERT_WINDOWS - 1 || i == w->count - 1) add_apart(c, c->slot + 1);
        if (r->progress && !r->progress(r->arg, i + 1, w->count, NAN))
            rc = err_set(why, ERR_CANCELLED, "cancelled");
    }
    model_watch_experts(m, NULL, NULL);
    free(rows);
    free(best);
    return rc;
}

enum err_code eval_experts(struct expert_use *out, struct model *m, const struct eval_request *r,
                           struct err *why)
{
    struct counting c;
    struct windows w = { 0 };
    enum err_code rc = counting_init(&c, out, m, r->ctx, why);
    if (!rc) rc = windows_cut(&w, m, r, why);
    if (!rc) rc = count_windows(&c, m, &w, r, why);
    if (!rc) rc = gguf_check_unchanged(model_gguf(m), why);
    out->windows = w.count;
    out->tokens = w.count * w.ctx;
    for (int l = 0; l < out->layers && !rc; l++) {
        out->consecutive[l] = curve_of(c.consecutive[l]);
        out->apart[l] = curve_of(c.apart[l]);
    }
    model_truncate(m, 0, 0);
    windows_done(&w);
    counting_done(&c);
    return rc;
}

void expert_use_done(struct expert_use *u)
{
    free(u->count);
    free(u->consecutive);
    free(u->apart);
    *u = (struct expert_use){ 0 };
}

/* ---------------------------------------------------------------- figures */

bool expert_use_layer(struct expert_layer *out, const struct expert_use *u, int layer)
{
    const int64_t *count = u->count + (int64_t)layer * u->experts;
    int64_t all = 0;
    *out = (struct expert_layer){ 0 };
    for (int e = 0; e < u->experts; e++) {
        all += count[e];
        out->never += !count[e];
    }
    if (!all) return false;
    for (int e = 0; e < u->experts; e++) {
        const double p = (double)count[e] / (double)all;
        if (p > 0) out->entropy_bits -= p * log2(p);
    }
    out->effective = exp2(out->entropy_bits);
    for (int i = 0; i < EXPERTS_HOTTEST; i++) {
        int best = -1; /* not among those before; the first of equals */
        for (int e = 0; e < u->experts; e++) {
            bool taken = false;
            for (int j = 0; j < i; j++) taken |= out->hottest[j] == e;
            if (!taken && (best < 0 || count[e] > count[best])) best = e;
        }
        out->hottest[i] = best;
        out->share[i] = best < 0 ? (double)NAN : (double)count[best] / (double)all;
    }
    return true;
}

struct expert_curve expert_use_mean(const struct expert_use *u, const struct expert_curve *curves)
{
    struct expert_curve mean;
    for (int b = 0; b < EXPERT_BATCHES; b++) {
        double sum = 0;
        int layers = 0;
        for (int l = 0; l < u->layers; l++)
            if (!isnan(curves[l].distinct[b])) {
                sum += curves[l].distinct[b];
                layers++;
            }
        mean.distinct[b] = layers ? sum / layers : (double)NAN;
    }
    return mean;
}
