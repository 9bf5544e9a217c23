/* Computes the memory plan of a session from metadata alone, and resolves the settings of a config for one
 * model. */
#include "engine/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

enum { CACHE_LINE = 64, CTX_DEFAULT_MAX = 4096 };

enum err_code session_isa(uint32_t *out, const struct config *c, struct err *why)
{
    const char *wanted = config_text(c, KNOB_ISA);
    uint32_t usable, asked;
    enum err_code rc = isa_usable(&usable, why);
    if (rc) return rc;
    *out = usable;
    if (!strcmp(wanted, "auto")) return ERR_OK;
    if ((rc = isa_parse(&asked, wanted, why))) return rc;
    if (asked & ~usable) {
        char names[128];
        return err_set(why, ERR_ABSENT, "isa=%s cannot be used here (QDYNO_ISA and this machine allow: %s)",
                       wanted, isa_names(usable, names, sizeof names));
    }
    *out = asked;
    return ERR_OK;
}

/* Device and number of layers on it, as the config asks. */
static enum err_code session_resolve_device(struct model_session *out, const struct model_shape *s,
                                            const struct config *c, struct err *why)
{
    const int64_t wanted = config_int(c, KNOB_GPU_LAYERS);
    out->device = config_text(c, KNOB_DEVICE);
    if (strcmp(out->device, "cpu")) {
        out->gpu_layers = (int)MIN(wanted, (int64_t)s->layers);
        out->expert_layers = config_expert_layers(c);
        if (!s->experts && out->expert_layers != EXPERTS_WITH_LAYER)
            return err_set(why, ERR_USAGE, "expert_place=%s, but this model has no experts: leave it out",
                           config_text(c, KNOB_EXPERT_PLACE));
        if (!wanted)
            return err_set(
                why, ERR_USAGE,
                "gpu_layers=0 uses no layer of device=%s: expected 1 or more, -1 for all that fit, or "
                "device=cpu",
                out->device);
        return ERR_OK;
    }
    out->gpu_layers = out->expert_layers = 0;
    if (config_expert_layers(c) != EXPERTS_WITH_LAYER)
        return err_set(
            why, ERR_USAGE,
            "expert_place=%s, but device=cpu: expected device=opencl:0 (`qdyno detect`), or leave it out",
            config_text(c, KNOB_EXPERT_PLACE));
    if (wanted <= 0) return ERR_OK;
    return err_set(why, ERR_USAGE,
                   "gpu_layers=%lld, but device=cpu: expected device=opencl:0 (`qdyno detect`)",
                   (long long)wanted);
}

/* Threads, and the memory nodes that they and the weights are on. */
static enum err_code session_resolve_threads(struct model_session *out, const struct config *c,
                                             struct err *why)
{
    struct numa *n;
    const enum numa_policy numa = (enum numa_policy)config_choice(c, KNOB_NUMA);
    const int64_t threads = config_int(c, KNOB_THREADS);
    out->backend.threads = threads > 0 ? (int)threads
                                       : numa_default_threads(numa, threadpool_default_threads());
    out->backend.numa = numa;
    if (numa == NUMA_OFF) return ERR_OK;
    const enum err_code rc = numa_open(&n, why);
    if (rc) return rc;
    const int nodes = numa_count(n);
    for (int i = 0, last = -1; i < out->backend.threads; i++) {
        const int node = numa_member_node(n, numa, i, out->backend.threads);
        out->backend.nodes += node != last; /* threads of a node are neighbours */
        last = node;
    }
    numa_close(n);
    if (nodes > 1 || numa == NUMA_SPREAD) return ERR_OK;
    return err_set(why, ERR_ABSENT,
                   "numa=%s places memory on nodes, and this machine has one memory node: expected numa=off",
                   config_text(c, KNOB_NUMA));
}

enum err_code session_resolve(struct model_session *out, const struct model_shape *s, const struct arch *a,
                              const struct config *c, int ctx, int sequences, struct err *why)
{
    *out = (struct model_session){ 0 };
    if (ctx <= 0) ctx = (int)config_int(c, KNOB_CTX);
    if (ctx <= 0) ctx = (int)MIN(s->ctx_train, CTX_DEFAULT_MAX);
    out->ctx = ctx;
    out->sequences = MAX(sequences, 1);
    out->blocks = (int)config_int(c, KNOB_KV_BLOCKS);
    out->batch = (int)MAX(config_int(c, KNOB_BATCH), 1);
    if (a->rope == ROPE_NONE && ctx > s->ctx_train)
        return err_set(why, ERR_USAGE, "context %d: this %s model has only %lld learned positions", ctx,
                       s->arch, (long long)s->ctx_train);
    if ((int64_t)kv_blocks_for(ctx) * out->sequences > INT32_MAX / KV_BLOCK_TOKENS)
        return err_set(why, ERR_USAGE, "context %d in %d sequences is more than 2^31 tokens", ctx,
                       out->sequences);

    enum err_code rc = session_resolve_threads(out, c, why);
    if (rc) return rc;
    out->backend.precision = (enum precision)config_choice(c, KNOB_PRECISION);
    out->backend.activations = (enum activations)config_choice(c, KNOB_ACT);
    out->backend.affinity = (enum affinity)config_choice(c, KNOB_AFFINITY);
    out->backend.huge_pages = (enum huge_pages)config_choice(c, KNOB_HUGEPAGES);
    out->backend.repack = config_choice(c, KNOB_REPACK) != 0;
    out->backend.batch_invariant = config_choice(c, KNOB_BATCH_INVARIANT) != 0;
    out->backend.compile = (enum compile)config_choice(c, KNOB_COMPILE);
    out->exchange = config_exchange(c);
    out->prefetch = (enum prefetch)config_choice(c, KNOB_PREFETCH);

    out->backend.attention = (enum attention_method)config_choice(c, KNOB_ATTENTION);

    if ((rc = session_isa(&out->backend.isa, c, why))) return rc;
    if ((rc = session_resolve_device(out, s, c, why))) return rc;
    return session_resolve_cache(out, s, c, why);
}

/* Everything that one row's step of a layer with a state is computed from. */
static int64_t state_inputs(const struct model_shape *s, const struct arch *a)
{
    if (!s->state.taps) return 0;
    if (a->state == MIXER_CONVOLUTION) return arch_dim(DIM_SHORT_IN, a, s);
    const int64_t beta = a->state == MIXER_DELTA ? arch_dim(DIM_STATE_HEADS_2, a, s) : 0;
    return arch_dim(DIM_STATE_IN, a, s) + beta;
}

void widths_of(struct widths *out, const struct model_shape *s, const struct arch *a, int batch)
{
    const bool gated = arch_is_gated(a);
    const int64_t inner = arch_dim(DIM_STATE_INNER, a, s), heads = arch_dim(DIM_ATTN, a, s);
    const int64_t used = s->experts_used;
    /* Some architectures norm the layer's input a second time into this buffer, before attention writes it.
     */
    const int64_t attn = MAX(MAX(heads, inner), s->embd);
    const int64_t latent = arch_dim(DIM_Q_LORA, a, s) + arch_dim(DIM_LATENT_Q, a, s) +
                           arch_dim(DIM_KV_A, a, s) +
                           MAX(arch_dim(DIM_KV_B, a, s), s->heads * (int64_t)s->kv_lora);
    const int64_t gates = a->query_gate ? 2 * arch_dim(DIM_Q, a, s) + 2 * heads : 0,
                  fused = s->state.fused ? arch_dim(DIM_STATE_IN, a, s) : 0,
                  inputs = arch_dim(DIM_LAYER_INPUTS, a, s);
    *out = (struct widths){
        .embd = s->embd,
        .qkv = MAX(MAX(arch_dim(DIM_QKV, a, s), attn), state_inputs(s, a)),
        .attn = attn,
        .ff = MAX(gated ? 2 * s->ff : s->ff, 2 * s->shared_ff),
        .latent = a->latent ? latent : MAX(MAX(gates, fused), inputs),
        .inputs = inputs,
        .router = used ? s->experts + 1 : 0,
        .experts = used ? (used + 1) * s->embd : 0,
        .expert_ff = 2 * used * s->expert_ff,
        .logits = s->vocab,
        .logit_rows = MIN(batch, LOGIT_ROWS_MAX),
    };
}

struct backend_work session_work(const struct model_session *e, const struct model_shape *s,
                                 const struct arch *a)
{
    const int64_t heads = MAX(MAX(arch_dim(DIM_ATTN, a, s), arch_dim(DIM_Q, a, s)),
                              MAX(MAX(s->q_lora, s->kv_lora), arch_dim(DIM_STATE_INNER, a, s)));
    return (struct backend_work){
        .rows = e->batch,
        .cols = MAX(MAX(s->embd, heads), MAX(s->ff, MAX(s->expert_ff, s->shared_ff))),
        .head_dim = MAX(s->head_dim_k, s->head_dim_v),
        .heads = split_first_heads(&e->part, s).heads,
        .context = e->ctx,
        .pairs = (int64_t)e->batch * s->experts_used,
    };
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

int64_t vector_bytes(int64_t n)
{
    return round_up(n * (int64_t)sizeof(float), CACHE_LINE);
}

int64_t session_state_bytes(const struct model_session *e, const struct model_shape *s)
{
    return vector_bytes(shape_state_floats(s) * e->sequences) * part_states(&e->part, s);
}

int64_t session_state_copy_bytes(const struct model_session *e, const struct model_shape *s)
{
    const struct part *p = &e->part;
    const bool whole = MAX(MAX(p->tp, p->cp), MAX(p->pp, p->dp)) <= 1;
    return whole ? session_state_bytes(e, s) : 0;
}

int64_t state_rows_bytes(const struct widths *w, const struct model_shape *s, int batch)
{
    return s->state.taps ? vector_bytes(w->qkv * batch) + vector_bytes(w->attn * batch) : 0;
}

int64_t widths_bytes(const struct widths *w, int batch)
{
    const int64_t rows[] = { w->embd,   w->embd,   w->qkv,     w->attn,      w->ff,
                             w->latent, w->router, w->experts, w->expert_ff, w->inputs };
    int64_t bytes = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++) bytes += vector_bytes(rows[i] * batch);
    return bytes;
}

int unit_weights_of(const struct model_shape *s, const struct arch *a)
{
    const int except = a->qk_norm_plain_except;
    return a->value_norm || (except && s->experts != except) ? MAX(s->head_dim_k, s->head_dim_v) : 0;
}

int64_t expert_list_bytes(const struct model_shape *s, int batch)
{
    if (!s->experts) return 0;
    const int64_t rows = batch, all = s->experts, used = s->experts_used;
    /* as expert_lists_alloc places them */
    const int64_t floats = rows * (all + 1) + 2 * rows * (used + 1) + 4 * rows * used + 3 * all + 1;
    return floats * (int64_t)sizeof(float) + 2 * all * (int64_t)sizeof(struct matmul);
}

struct output_bytes output_bytes_of(const struct widths *w, const char *device)
{
    const int rows = (int)w->logit_rows;
    return (struct output_bytes){
        .logits = vector_bytes(w->logits * rows),
        .best = round_up(rows * (int64_t)sizeof(struct ranked), CACHE_LINE),
        .scratch = round_up(backend_top_bytes(device, rows, 1, w->logits), CACHE_LINE),
    };
}

/* Bytes of weights in the layout of the host and in that of the device, and of these, bytes of experts. */
struct share {
    int64_t host, device, host_experts, device_experts;
};
struct sums {
    const struct config *config;
    const struct recipe_view *view; /* NULL: the file as it is */
    const struct gguf *gguf;
    const struct arch *arch;
    const struct model_shape *shape;
    const struct model_session *session;
    struct share *part; /* [layers + 1] tensors outside the layers, then each layer */
    int64_t read, products;
    int64_t used_read;                    /* part of `read`: the experts that work on one token */
    int64_t expert_read, expert_products; /* of all experts that have tensors of their own */
    struct backend_work work;
    struct device_room room;
};

/* Number of a matrix's companion tensors that a device stores with it. */
static int matrix_companions(const struct gguf *g, const char *matrix)
{
    return !!companion_find(g, matrix, COMPANION_ORDER) + !!companion_find(g, matrix, COMPANION_DIVISORS);
}

static enum err_code sums_add_tensor(void *ctx, int layer, enum slot slot, int expert,
                                     const struct gguf_tensor *t, struct err *why)
{
    struct sums *sum = ctx;
    const struct model_session *e = sum->session;
    const bool vector = arch_slot_is_vector(slot), experts = ARCH_SLOTS[slot].matrices == DIM_EXPERTS;
    const struct recipe_view *view = sum->view;
    const struct format *f = view ? view->format(sum->config, sum->gguf, t) : t->format;
    struct share *part = &sum->part[layer + 1];
    (void)why;
    if (!part_has_tensor(&e->part, sum->shape, layer, slot) || arch_slot_is_rope(slot)) return ERR_OK;
    /* Vectors are stored as f32 copies. */
    const int64_t cols = t->shape[0],
                  matrices = split_matrices(&e->part, sum->shape, layer, slot, t->shape[2]).rows,
                  rows = vector ? t->shape[1]
                                : split_row_count(&e->part, sum->arch, sum->shape, layer, slot, t->shape[1]);
    const int64_t bytes = vector ? vector_bytes(cols * rows)
                                 : backend_weight_bytes("cpu", &e->backend, f, rows, cols, 0) * matrices;
    const bool of_expert = arch_slot_is_expert(slot);
    part->host += bytes;
    part->host_experts += of_expert ? bytes : 0;
    if (!vector) {
        sum->work.formats |= format_bit(backend_held_format(&e->backend, f));
        sum->work.inputs |= 1u << (view ? view->input(sum->config, sum->gguf, t) : act_kind(sum->gguf, t));
    }
    if (e->gpu_layers) {
        const int64_t there = vector ? bytes
                                     : backend_weight_bytes(e->device, &e->backend, f, rows, cols,
                                                            matrix_companions(sum->gguf, t->name)) *
                                           matrices;
        part->device += there;
        part->device_experts += of_expert ? there : 0;
    }
    const bool looked_up = slot == SLOT_TOKEN_EMBD || slot == SLOT_POSITION_EMBD || slot == SLOT_LAYER_INPUTS;
    if (expert >= 0) {
        sum->expert_read += bytes;
        sum->expert_products += cols * rows;
        return ERR_OK;
    }
    const int64_t used = experts ? sum->shape->experts_used : matrices; /* per token */
    sum->read += looked_up ? bytes / rows : bytes / matrices * used;
    if (experts) sum->used_read += bytes / matrices * used;
    if (slot == SLOT_TOKEN_EMBD && sum->shape->tied_output)
        sum->read += bytes; /* read once more as the output matrix */
    if (layer >= 0 && !vector) sum->products += cols * rows * used;
    return ERR_OK;
}

/* Bytes of weights on the host and on the device, with the first n layers on the device and the experts of
 * the first `experts` of them. */
static struct share weights_of(const struct sums *sum, int n, int experts)
{
    const int layers = sum->shape->layers;
    struct share all = { n < layers ? sum->part[0].host : 0, n < layers ? 0 : sum->part[0].device, 0, 0 };
    for (int l = 0; l < layers; l++) {
        const struct share *part = &sum->part[l + 1];
        const bool apart = l < n && l >= experts;
        all.host += l >= n ? part->host : apart ? part->host_experts : 0;
        all.device += l >= n ? 0 : part->device - (apart ? part->device_experts : 0);
    }
    return all;
}

/* Fill the plan for a session with its first n layers on the device, and the experts of the first `experts`
 * of them. */
static void plan_place(struct memory_plan *p, const struct sums *sum, const struct hyper *h, int n,
                       int experts)
{
    const struct model_session *e = sum->session;
    const struct model_shape *s = sum->shape;
    const bool host = n < s->layers, apart = s->experts && experts < n, host_runs = host || apart;
    struct widths w;
    widths_of(&w, s, h->arch, e->batch);
    const struct output_bytes parts = output_bytes_of(&w, host ? "cpu" : e->device);
    const int64_t activations = widths_bytes(&w, e->batch) +
                                unit_weights_of(s, h->arch) * (int64_t)sizeof(float),
                  output = parts.logits + parts.best + parts.scratch,
                  logits = vector_bytes(w.logits * e->sequences), /* on the host, as the lists */
        lists = expert_list_bytes(s, e->batch) + (n ? state_rows_bytes(&w, s, e->batch) : 0) +
                session_history_bytes(e) + session_state_copy_bytes(e, s);
    const int64_t host_scratch = host_runs ? backend_scratch_bytes("cpu", &e->backend, &sum->work) : 0,
                  scratch = n ? backend_scratch_bytes(e->device, &e->backend, &sum->work) : 0;
    const struct share weights = weights_of(sum, n, apart ? experts : n);
    p->weights = weights.host + weights.device;
    p->kv = session_cache_bytes(e, s, 0, s->layers);
    p->state = session_state_bytes(e, s);
    const struct exchange_sizes exchange = exchange_sizes(&e->part, s, h->arch, e->batch, e->exchange);
    const struct share_sizes shares = share_sizes(e, s, h->arch);
    p->compute = activations * (host_runs + (n > 0)) + output + logits + lists + exchange_bytes(&exchange) +
                 share_bytes(&shares);
    p->scratch = host_scratch + scratch;
    p->total = p->weights + p->kv + p->state + p->compute + p->scratch;
    p->device = n ? weights.device + session_cache_bytes(e, s, 0, n) + activations + (host ? 0 : output) +
                        scratch
                  : 0;
    p->host = sum->room.shares_memory ? p->total : p->total - p->device;
    p->gpu_layers = n;
    p->expert_layers = s->experts ? MIN(experts, n) : 0;
}

/* Layers that share keys and values with others run where those are: the largest number up to n of layers
 * that a device may run. */
static int layers_together(const struct model_shape *s, int n)
{
    for (int l = n; l < s->layers && n < s->layers; l++)
        if (s->parts[l].mixer == MIXER_ATTENTION) n = MIN(n, s->parts[l].kv_layer);
    return n;
}

/* Choose the number of layers on the device, and of those with their experts there, as many as its memory
 * takes. Experts leave first: of a layer's bytes they are most, and a token reads few of them. */
static void plan_place_layers(struct memory_plan *p, const struct sums *sum, const struct hyper *h)
{
    const int wanted = sum->session->gpu_layers, experts = sum->session->expert_layers;
    int n = layers_together(sum->shape, wanted < 0 ? sum->shape->layers : wanted),
        with = experts < 0 ? n : MIN(experts, n);
    p->device_room = sum->room.bytes;
    plan_place(p, sum, h, n, with);
    p->device_least = p->device;
    while (p->device_room >= 0 && p->device > p->device_room) {
        if (experts < 0 && with > 0)
            with--;
        else if (wanted < 0 && n > 0)
            n = layers_together(sum->shape, n - 1);
        else
            return;
        with = MIN(with, n);
        p->device_least = p->device;
        plan_place(p, sum, h, n, with);
    }
}

enum err_code plan_compute(struct memory_plan *out, const struct gguf *g, const struct model_shape *s,
                           const struct hyper *h, const struct config *c, const struct recipe_view *view,
                           const struct model_session *e, struct err *why)
{
    /* Beyond 2^60 bytes the sums below could overflow; no real session comes near. */
    const double state = (double)shape_state_floats(s) * e->sequences * s->layers * 4;
    const double cache = (double)e->ctx * e->sequences * s->layers * s->kv_heads *
                             (s->head_dim_k + s->head_dim_v) * 4 +
                         state;
    if (cache > 0x1p60)
        return err_set(why, ERR_FIT,
                       "keys, values and states for %d tokens in %d sequences would take %.3g bytes", e->ctx,
                       e->sequences, cache);
    struct sums sum = { .config = c,
                        .view = view,
                        .gguf = g,
                        .arch = h->arch,
                        .shape = s,
                        .session = e,
                        .work = session_work(e, s, h->arch),
                        .room = { .bytes = -1 } };
    if (e->gpu_layers) device_room(&sum.room, e->device);
    sum.part = calloc((size_t)s->layers + 1, sizeof *sum.part);
    if (!sum.part) return err_set(why, ERR_NOMEM, "out of memory for a plan of %d layers", s->layers);
    const enum err_code rc = arch_walk(h->arch, s, g, sums_add_tensor, &sum, why);
    const int64_t used_read = sum.expert_read / MAX(s->experts, 1) * s->experts_used;
    sum.read += used_read;
    sum.products += sum.expert_products / MAX(s->experts, 1) * s->experts_used;
    *out = (struct memory_plan){
        .kv_bytes_per_token = session_token_bytes(e, s),
        .decode_read_bytes = sum.read,
        .expert_read_bytes = sum.used_read + used_read,
        .flops_per_token = 2.0 * (double)sum.products,
        .ctx = e->ctx,
        .batch = e->batch,
        .sequences = e->sequences,
    };
    if (!rc) plan_place_layers(out, &sum, h);
    /* Only weights that are used in the mapped file can be dropped and read again. */
    if (!rc && config_choice(c, KNOB_OVERSIZE) && !e->gpu_layers && !e->backend.repack &&
        !config_copies_weights(c))
        out->on_disk = out->weights - MIN(out->weights, 2 * out->weights / MAX(s->layers, 1));
    free(sum.part);
    return rc;
}

enum err_code plan_memory(struct memory_plan *out, const struct gguf *g, const struct config *c,
                          const struct recipe_view *view, int ctx, int sequences, struct err *why)
{
    struct model_shape s;
    struct hyper h;
    struct model_session e;
    enum err_code rc;
    if ((rc = model_shape_read(&s, g, why))) return rc;
    if ((rc = hyper_read(&h, &s, g, why))) return rc;
    if ((rc = session_resolve(&e, &s, h.arch, c, ctx, sequences, why))) return rc;
    return plan_compute_all(out, g, &s, &h, c, view, &e, why);
}

/* Does the host's part fit? */
static enum err_code plan_check_host(const struct memory_plan *p, int64_t available, struct err *why)
{
    char need[16], have[16], weights[16], kv[16];
    if (available < 0 || p->host - p->on_disk <= available) return ERR_OK;
    return err_set(
        why, ERR_FIT,
        "needs %s of memory (weights %s, KV cache %s for %d tokens), %s are available: use a smaller "
        "format, context or KV type%s",
        str_from_bytes(p->host - p->on_disk, need, sizeof need),
        str_from_bytes(p->weights, weights, sizeof weights), str_from_bytes(p->kv, kv, sizeof kv),
        p->ctx * p->sequences, str_from_bytes(available, have, sizeof have),
        !p->on_disk && p->host - p->weights <= available
            ? ", or oversize=on to read weights from disk in each step"
            : "");
}

void device_room(struct device_room *out, const char *device)
{
    enum { MOST = 16, RESERVED_PART = 16 /* drivers keep about 1/16 of the memory for themselves */ };
    struct device_info all[MOST];
    const int count = MIN(opencl_devices(all, MOST), MOST);
    *out = (struct device_room){ .bytes = -1 };
    for (int i = 0; i < count; i++) {
        if (strcmp(all[i].name, device)) continue;
        out->shares_memory = all[i].shares_memory;
        if (all[i].memory_bytes < 0) continue;
        const int64_t own = all[i].memory_bytes - all[i].memory_bytes / RESERVED_PART,
                      host = all[i].shares_memory ? memory_available("") : -1;
        out->bytes = host < 0 ? own : MIN(own, host);
    }
}

/* Does the device's part fit? If its memory is unknown, opening the model finds out. */
static enum err_code plan_check_device(const struct memory_plan *p, const char *device, struct err *why)
{
    char need[16], have[16];
    if (p->device_room < 0) return ERR_OK;
    str_from_bytes(p->device_room, have, sizeof have);
    str_from_bytes(p->device_least, need, sizeof need);
    if (!p->gpu_layers)
        return err_set(why, ERR_FIT,
                       "does not fit: a single layer needs %s on %s, which has %s: use a smaller "
                       "format, context or batch, or device=cpu",
                       need, device, have);
    if (p->device <= p->device_room) return ERR_OK;
    return err_set(
        why, ERR_FIT,
        "does not fit: needs %s on %s, which has %s: use fewer layers there (gpu_layers=auto%s), a "
        "smaller format, context or KV type",
        str_from_bytes(p->device, need, sizeof need), device, have,
        p->expert_read_bytes ? ", expert_place=auto" : "");
}

enum err_code memory_plan_check(const struct memory_plan *p, const char *device, int64_t available,
                                struct err *why)
{
    const enum err_code rc = strcmp(device, "cpu") ? plan_check_device(p, device, why) : ERR_OK;
    return rc ? rc : plan_check_host(p, available, why);
}
