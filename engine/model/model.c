/* Opens models and runs batches. Opening goes through file, plan, recipe, backend, weights, KV cache and
 * buffers, in this order. Nothing large is read or allocated before the plan is known to fit. */
#include "engine/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/model/model_internal.h"
#include "engine/plan/plan.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"

/* Compute shape, hyperparameters, session and plan of the file in m->gguf. */
static enum err_code read_plan(struct model *m, const struct model_options *o, struct err *why)
{
    enum err_code rc;
    if ((rc = model_shape_read(&m->shape, m->gguf, why))) return rc;
    if (!config_choice(&m->config, KNOB_FORCE) && (rc = arch_check_known(&m->shape, m->gguf, why))) return rc;
    if ((rc = hyper_read(&m->hyper, &m->shape, m->gguf, why))) return rc;
    if ((rc = session_resolve(&m->session, &m->shape, m->hyper.arch, &m->config, o->ctx, o->sequences, why)))
        return rc;
    m->session.backend.shapes = o->shapes;
    const struct recipe_view *view = o->recipe ? o->recipe->view : NULL;
    const struct parallel mode = config_parallel(&m->config);
    if (m->rank) m->session.part = part_of(&mode, rank_place(m->rank)->rank, m->shape.layers);
    rc = (m->rank ? plan_compute : plan_compute_all)(&m->plan, m->gguf, &m->shape, &m->hyper, &m->config,
                                                     view, &m->session, why);
    m->session.gpu_layers = m->plan.gpu_layers;
    m->session.expert_layers = m->plan.expert_layers;
    return rc;
}

static enum err_code open_file(struct model *m, const struct model_options *o, const char *path,
                               struct err *why)
{
    m->borrowed = o->gguf;
    m->gguf = (struct gguf *)o->gguf; /* never written through this pointer */
    return o->gguf ? ERR_OK : model_file_open(&m->gguf, path, why);
}

static void close_file(struct model *m)
{
    if (!m->borrowed) gguf_close(m->gguf);
    m->borrowed = false;
    m->gguf = NULL;
}

/* A model that runs layer by layer needs one layer's KV cache and one layer's weights at a time. */
static void plan_apart(struct memory_plan *p, int layers)
{
    const int64_t less = p->kv - p->kv / layers + p->weights - p->weights / layers;
    p->total -= less;
    p->host -= less;
    p->kv /= layers;
    p->weights /= layers;
}

/* Replace m->gguf by the file with the recipe applied. */
static enum err_code apply_recipe(struct model *m, const struct model_options *o, struct err *why)
{
    const bool as_is = !strcmp(config_text(&m->config, KNOB_METHOD), "none");
    if (!o->recipe && as_is) return ERR_OK;
    if (!o->recipe) return err_set(why, ERR_INTERNAL, "model_open cannot apply a recipe by itself");
    if (o->recipe->view->is_identity(&m->config, m->gguf)) return ERR_OK;
    struct gguf *made;
    bool worked;
    const int64_t from = clock_ns();
    enum err_code rc = o->recipe->make(&made, &worked, m->gguf, o, &m->config, m->session.backend.threads,
                                       why);
    if (rc) return rc;
    /* The quantized file's metadata names its source; recipe->make checked it. */
    const struct gguf_string source = gguf_get_string(made, SOURCE_KEY);
    snprintf(m->source_hash, sizeof m->source_hash, "%.*s", (int)source.len, source.data ? source.data : "");
    if (worked) {
        m->quantized_from_ns = from;
        m->quantized_to_ns = clock_ns();
    }
    close_file(m);
    m->gguf = made;
    if ((rc = read_plan(m, o, why))) return rc;
    /* companion tensors of the method are only known now */
    return memory_plan_check(&m->plan, m->session.device, memory_available(""), why);
}

enum err_code model_no_room(const struct model *m, const struct site *s, const char *what, int64_t bytes,
                            struct err *why)
{
    struct backend_info info;
    char all[16];
    const enum err_code rc = backend_finish(s->backend, why);
    if (rc) return rc;
    backend_describe(s->backend, &info);
    if (!info.remote)
        return err_set(why, ERR_NOMEM, "out of memory for %s of %lld bytes", what, (long long)bytes);
    return err_set(
        why, ERR_NOMEM,
        "does not fit: %s has no room for %s of %lld bytes, of %s that this session needs there. Other processes use the "
        "device, or one buffer may not be that large: use fewer layers there, a smaller context or KV type",
        info.device, what, (long long)bytes, str_from_bytes(m->plan.device, all, sizeof all));
}

/* Bytes of the cache of any layer. */
static int64_t largest_cache(const struct model *m)
{
    int64_t most = 0;
    for (int l = 0; l < m->shape.layers; l++)
        most = MAX(most, session_cache_bytes(&m->session, &m->shape, l, l + 1));
    return most;
}

/* Allocate the KV cache of layers [from, to). */
static enum err_code alloc_site_cache(struct model *m, struct site *s, int from, int to, struct err *why)
{
    const int64_t all = session_cache_bytes(&m->session, &m->shape, from, to),
                  bytes = m->apart ? largest_cache(m) : all;
    if (!all) return ERR_OK;
    s->kv_memory = backend_alloc(s->backend, (size_t)bytes);
    if (!s->kv_memory) return model_no_room(m, s, "a KV cache", bytes, why);
    char *next = s->kv_memory;
    for (int l = from; l < to; l++) {
        struct kv_layer *kv = &m->layers[l].kv;
        if (m->shape.parts[l].mixer != MIXER_ATTENTION) continue;
        if (!part_has_layer(&m->session.part, l)) continue;
        if (!shape_layer_has_cache(&m->shape, l)) {
            *kv = m->layers[m->shape.parts[l].kv_layer].kv;
            continue;
        }
        *kv = session_kv_layer(&m->session, &m->shape, l);
        kv->k = next;
        kv->v = kv->v_in_k ? next : next + kv_layer_k_bytes(kv);
        if (!m->apart && session_layer_is_kept(&m->session, &m->shape, l)) next += session_kv_bytes(kv);
    }
    return ERR_OK;
}

static enum err_code alloc_cache(struct model *m, struct err *why)
{
    const int there = m->session.gpu_layers, layers = m->shape.layers,
              blocks = session_kv_layer(&m->session, &m->shape, 0).blocks;
    const struct model_session *e = &m->session;
    const enum cache_layout layout = e->part.cp > 1 ? CACHE_CONTIGUOUS : e->cache;
    enum err_code rc = layout == CACHE_PAGED
                           ? kv_cache_init(&m->cache, e->ctx, e->sequences, blocks, why)
                           : kv_cache_init_whole(&m->cache, layout, e->ctx, e->sequences, why);
    if (!rc) rc = alloc_site_cache(m, &m->sites[SITE_DEVICE], 0, there, why);
    return rc ? rc : alloc_site_cache(m, &m->sites[SITE_HOST], there, layers, why);
}

static enum err_code alloc_activations(struct model *m, struct site *s, struct err *why)
{
    const int batch = m->session.batch;
    const struct widths *w = &m->widths;
    const char *device = s == &m->sites[SITE_DEVICE] ? m->session.device : "cpu";
    const bool has_output = s == model_site(m, -1);
    const struct output_bytes output = has_output ? output_bytes_of(w, device) : (struct output_bytes){ 0 };
    struct buffers *b = &s->buffers;
    const int64_t bytes = widths_bytes(w, batch) + output.logits + output.best + output.scratch;
    s->compute_memory = backend_alloc(s->backend, (size_t)bytes);
    if (!s->compute_memory) return model_no_room(m, s, "activations", bytes, why);
    char *at = s->compute_memory;
    const struct {
        float **buffer;
        int64_t floats;
    } PARTS[] = { { &b->x, w->embd * batch },
                  { &b->h, w->embd * batch },
                  { &b->qkv, w->qkv * batch },
                  { &b->attn, w->attn * batch },
                  { &b->ff, w->ff * batch },
                  { &b->latent, w->latent * batch },
                  { &b->router, w->router * batch },
                  { &b->experts, w->experts * batch },
                  { &b->expert_ff, w->expert_ff * batch },
                  { &b->inputs, w->inputs * batch } };
    for (size_t i = 0; i < COUNT_OF(PARTS); i++) {
        *PARTS[i].buffer = (float *)(void *)at;
        at += vector_bytes(PARTS[i].floats);
    }
    if (!has_output) return ERR_OK;
    b->logits = (float *)(void *)at;
    b->best = (struct ranked *)(void *)(at + output.logits);
    b->top_scratch = at + output.logits + output.best;
    return ERR_OK;
}

static enum err_code alloc_buffers(struct model *m, struct err *why)
{
    const int batch = m->session.batch;
    for (struct site *s = m->sites; s < m->sites + SITE_COUNT; s++) {
        const enum err_code rc = s->backend ? alloc_activations(m, s, why) : ERR_OK;
        if (rc) return rc;
    }
    int32_t **const LISTS[] = { &m->lists.ids, &m->lists.pos, &m->lists.seq, &m->lists.slots,
                                &m->lists.wanted };
    m->lanes = MAX(MAX(batch, m->shape.heads), m->shape.state.groups);
    const size_t rows = (size_t)batch, lanes = (size_t)m->lanes,
                 count = COUNT_OF(LISTS) * rows + lanes + (size_t)m->session.sequences;
    m->list_memory = calloc(count, sizeof *m->list_memory);
    m->logits_cap = m->session.sequences;
    m->logits = malloc((size_t)m->logits_cap * (size_t)m->shape.vocab * sizeof(float));
    m->row_scale = calloc(rows, sizeof *m->row_scale);
    m->ones = calloc(lanes, sizeof *m->ones);
    m->history = calloc(1, (size_t)session_history_bytes(&m->session) + 1);
    m->head_products = calloc((size_t)m->shape.heads, sizeof *m->head_products);
    if (!m->list_memory || !m->logits || !m->row_scale || !m->ones || !m->history || !m->head_products)
        return err_set(why, ERR_NOMEM, "out of memory for a batch of %d rows", batch);
    for (size_t i = 0; i < COUNT_OF(LISTS); i++) *LISTS[i] = m->list_memory + i * rows;
    m->lists.every = m->list_memory + COUNT_OF(LISTS) * rows;
    for (int i = 0; i < m->lanes; i++) {
        m->lists.every[i] = i;
        m->ones[i] = 1;
    }
    m->expected = m->lists.every + lanes;
    return expert_lists_alloc(&m->expert_lists, &m->shape, batch, why);
}

/* A model with an unsupported tokenizer can still be timed: token ids are only numbers. */
static enum err_code open_tokenizer(struct model *m, const struct log *log, struct err *why)
{
    struct err reason = { 0 };
    const enum err_code rc = tokenizer_open(&m->tokenizer, m->gguf, &reason);
    if (!rc || rc == ERR_ABSENT) return ERR_OK;
    if (rc != ERR_FORMAT) return err_set(why, rc, "%s", reason.message);
    log_write(log, LOG_WARN, "this model cannot read or write text: %s", reason.message);
    return ERR_OK;
}

/* Store the config as it really runs: numbers for "automatic", one name where an instruction-set level has
 * one. */
static enum err_code resolve_config(struct model *m, const char *path, struct err *why)
{
    struct config *c = &m->config;
    const struct model_session *s = &m->session;
    enum err_code rc = config_resolve_text(c, KNOB_MODEL, path, why);
    if (!rc) rc = config_resolve_int(c, KNOB_THREADS, s->backend.threads, why);
    if (!rc) rc = config_resolve_int(c, KNOB_CTX, s->ctx, why);
    if (!rc && s->gpu_layers) rc = config_resolve_int(c, KNOB_GPU_LAYERS, s->gpu_layers, why);
    for (size_t i = 0; i < ISA_LEVEL_COUNT && !rc; i++)
        if (ISA_LEVELS[i].bits == s->backend.isa)
            rc = config_resolve_text(c, KNOB_ISA, ISA_LEVELS[i].name, why);
    return rc;
}

static enum err_code open_site(struct model *m, int site, const char *device, struct err *why)
{
    struct site *s = &m->sites[site];
    const enum err_code rc = backend_open(&s->backend, device, &m->session.backend, why);
    if (rc) return rc;
    const struct backend_work work = session_work(&m->session, &m->shape, m->hyper.arch);
    return backend_reserve(s->backend, &work, why);
}

/* The host's backend is not opened when all layers and experts run on the device. */
static enum err_code open_sites(struct model *m, const struct log *log, struct err *why)
{
    const int there = m->session.gpu_layers, layers = m->shape.layers;
    enum err_code rc = ERR_OK;
    widths_of(&m->widths, &m->shape, m->hyper.arch, m->session.batch);
    if (there) rc = open_site(m, SITE_DEVICE, m->session.device, why);
    if (!rc && (there < layers || model_has_experts_apart(m))) rc = open_site(m, SITE_HOST, "cpu", why);
    if (!rc && there && there < layers)
        log_write(log, LOG_WARN, "%d of %d layers run on %s, the others on the CPU", there, layers,
                  m->session.device);
    if (!rc && model_has_experts_apart(m))
        log_write(log, LOG_WARN, "the experts of %d of the %d layers on %s run on the CPU",
                  there - m->session.expert_layers, there, m->session.device);
    return rc;
}

static void warn_threads(const struct model *m, const struct log *log)
{
    struct backend_info info;
    char text[320];
    model_backend(m, &info);
    if (*usable_cpus_warning(usable_cpus(), info.threads, text, sizeof text))
        log_write(log, LOG_WARN, "%s", text);
}

/* With oversize=on: say what it costs, if it is needed. */
static void warn_oversize(const struct model *m, const struct log *log)
{
    const int64_t available = memory_available("");
    char weights[16], free_bytes[16];
    if (!m->plan.on_disk || available < 0 || m->plan.host <= available) return;
    log_write(
        log, LOG_WARN,
        "weights of %s with %s of free memory: each step reads from disk what memory cannot keep, so the disk "
        "decides the speed (disk_read_bytes_s shows how fast it reads)",
        str_from_bytes(m->plan.weights, weights, sizeof weights),
        str_from_bytes(available, free_bytes, sizeof free_bytes));
}

/* Everything that runs the model in this process. */
static enum err_code open_here(struct model *m, const struct model_options *o, struct err *why)
{
    enum err_code rc;
    if ((rc = open_sites(m, o->log, why))) return rc;
    const int64_t huge_before = model_huge_bytes();
    if ((rc = model_bind(m, o->log, why))) return rc;
    model_prefetch(m, o->log);
    if ((rc = alloc_cache(m, why))) return rc;
    if ((rc = model_states_alloc(m, why))) return rc;
    if ((rc = alloc_buffers(m, why))) return rc;
    if ((rc = model_context_begin(m, why))) return rc;
    if ((rc = model_part_begin(m, why))) return rc;
    if ((rc = model_autotune(m, o, why))) return rc;
    model_account_huge(m, huge_before, o->log);
    return ERR_OK;
}

static const char *path_of(const struct model_options *o)
{
    const char *given = config_text(o->config, KNOB_MODEL);
    const char *path = o->gguf ? gguf_path(o->gguf) : given[0] ? given : o->path;
    return path ? path : "";
}

enum err_code model_open(struct model **out, const struct model_options *o, struct err *why)
{
    *out = NULL;
    const char *path = path_of(o);
    if (!o->gguf && !path[0]) return err_set(why, ERR_USAGE, "no model given: use -m FILE or model=FILE");
    enum err_code rc = config_check_own(o->config, why);
    if (rc) return rc;
    const struct knob *stray = config_stray(o->config, FOR_ALL | FOR_LOAD);
    if (stray)
        return err_set(why, ERR_USAGE,
                       "%s=%s is a setting for training, and this command only runs the model", stray->key,
                       config_text(o->config, (enum knob_id)(stray - KNOBS)));
    struct model *m = calloc(1, sizeof *m);
    if (!m) return err_set(why, ERR_NOMEM, "out of memory");
    m->config = *o->config;

    m->apart = o->apart;
    m->rank = o->rank;
    if ((rc = open_file(m, o, path, why))) goto fail;
    if ((rc = read_plan(m, o, why))) goto fail;
    if (m->apart) plan_apart(&m->plan, m->shape.layers);
    if ((rc = memory_plan_check(&m->plan, m->session.device, memory_available(""), why))) goto fail;
    if (gguf_get_bool(m->gguf, KV_SCALES_KEY, false))
        log_write(o->log, LOG_WARN,
                  "the checkpoint's scales for a KV cache in FP8 are not used: the cache has the "
                  "formats of ctk= and ctv=");
    if ((rc = apply_recipe(m, o, why))) goto fail;
    warn_oversize(m, o->log);
    if (m->session.ctx > m->shape.ctx_train)
        log_write(o->log, LOG_WARN, "context %d is beyond the %lld tokens this model was trained on",
                  m->session.ctx, (long long)m->shape.ctx_train);
    if ((rc = (m->plan.ranks ? model_ranks_open : open_here)(m, o, why))) goto fail;
    if ((rc = open_tokenizer(m, o->log, why))) goto fail;
    if ((rc = resolve_config(m, path, why))) goto fail;
    warn_threads(m, o->log);
    *out = m;
    return ERR_OK;
fail:
    model_close(m);
    return rc;
}

void model_close(struct model *m)
{
    if (!m) return;
    ranks_stop(m->ranks);
    model_states_free(m);
    model_part_free(m);
    model_context_free(m);
    model_unbind(m);
    for (struct site *s = m->sites; s < m->sites + SITE_COUNT; s++) {
        if (!s->backend) continue;
        backend_free(s->backend, s->vectors);
        backend_free(s->backend, s->unit_weights);
        backend_free(s->backend, s->kv_memory);
        backend_free(s->backend, s->compute_memory);
        backend_close(s->backend);
    }
    kv_cache_done(&m->cache);
    tokenizer_close(m->tokenizer);
    close_file(m);
    free(m->list_memory);
    free(m->expert_lists.memory);
    free(m->autotuned.text);
    free(m->row_scale);
    free(m->ones);
    free(m->history);
    free(m->head_products);
    free(m->logits);
    free(m);
}

const struct model_shape *model_shape(const struct model *m)
{
    return &m->shape;
}
const struct memory_plan *model_plan(const struct model *m)
{
    return &m->plan;
}
const char *model_source_hash(const struct model *m)
{
    return m->source_hash;
}

const struct gguf *model_gguf(const struct model *m)
{
    return m->gguf;
}
const struct tokenizer *model_tokenizer(const struct model *m)
{
    return m->tokenizer;
}
const struct config *model_config(const struct model *m)
{
    return &m->config;
}
void model_backend(const struct model *m, struct backend_info *out)
{
    const struct site *s = &m->sites[m->session.gpu_layers ? SITE_DEVICE : SITE_HOST];
    *out = m->remote;
    if (!m->ranks) backend_describe(s->backend, out);
}
void model_quantized(const struct model *m, int64_t *from_ns, int64_t *to_ns)
{
    *from_ns = m->quantized_from_ns;
    *to_ns = m->quantized_to_ns;
}

void model_memory(const struct model *m, struct model_memory *out)
{
    *out = m->memory;
}
int model_ctx(const struct model *m)
{
    return m->session.ctx;
}
int model_length(const struct model *m, int seq)
{
    return m->cache.lengths[seq];
}
const float *model_logits(const struct model *m, int i)
{
    return m->logits + (int64_t)i * m->shape.vocab;
}
bool model_truncate(struct model *m, int seq, int from)
{
    if (m->shape.state.taps && from > 0 && from < m->cache.lengths[seq]) return false;
    kv_cache_truncate(&m->cache, seq, from);
    if (m->ranks) model_ranks_truncate(m, seq, from);
    return true;
}

/* Check that every row is in range, and that positions continue at the end of each sequence's cache. */
static enum err_code batch_check_rows(struct model *m, const struct batch_row *rows, int n, int *wanted,
                                      struct err *why)
{
    memcpy(m->expected, m->cache.lengths, (size_t)m->session.sequences * sizeof *m->expected);
    *wanted = 0;
    for (int i = 0; i < n; i++) {
        const struct batch_row *r = &rows[i];
        if (r->seq < 0 || r->seq >= m->session.sequences)
            return err_set(why, ERR_USAGE, "sequence %d: expected 0 to %d", r->seq, m->session.sequences - 1);
        if (r->token < 0 || r->token >= m->shape.vocab)
            return err_set(why, ERR_USAGE, "token %d: expected 0 to %lld", r->token,
                           (long long)m->shape.vocab - 1);
        if (r->pos >= m->session.ctx)
            return err_set(why, ERR_USAGE, "position %d is outside the context of %d tokens", r->pos,
                           m->session.ctx);
        if (r->pos != m->expected[r->seq])
            return err_set(why, ERR_USAGE, "position %d in sequence %d: the next one is %d", r->pos, r->seq,
                           m->expected[r->seq]);
        m->expected[r->seq]++;
        *wanted += r->logits;
    }
    return ERR_OK;
}

static enum err_code model_make_room(struct model *m, int wanted, struct err *why)
{
    if (wanted > m->logits_cap) {
        float *more = realloc(m->logits, (size_t)wanted * (size_t)m->shape.vocab * sizeof(float));
        if (!more) return err_set(why, ERR_NOMEM, "out of memory for %d rows of logits", wanted);
        m->logits = more;
        m->logits_cap = wanted;
    }
    for (int s = 0; s < m->session.sequences; s++) {
        if (kv_cache_grow(&m->cache, s, m->expected[s])) continue;
        for (int t = 0; t < s; t++) kv_cache_truncate(&m->cache, t, m->cache.lengths[t]);
        return err_set(why, ERR_FIT, "no free block in the KV cache for sequence %d at %d tokens", s,
                       m->expected[s]);
    }
    return ERR_OK;
}

enum err_code model_forward(struct model *m, const struct batch_row *rows, int n, struct err *why)
{
    return model_forward_best(m, rows, n, NULL, why);
}

/* Did the forward pass run, and with finite numbers? */
static enum err_code pass_result(struct model *m, struct err *why)
{
    enum err_code rc;
    for (const struct site *s = m->sites; s < m->sites + SITE_COUNT; s++)
        if (s->backend && (rc = backend_finish(s->backend, why))) return rc;
    if ((rc = gguf_check_read(m->gguf, why))) return rc;
    if (!m->not_finite.found) return ERR_OK;
    return err_set(why, ERR_FORMAT,
                   "position %d of sequence %d: the model computed values that are not numbers (infinity or "
                   "NaN): its weights are damaged, or too large for the precision they run in",
                   m->not_finite.pos, m->not_finite.seq);
}

bool model_not_finite(const struct model *m, int *seq)
{
    *seq = m->not_finite.seq;
    return m->not_finite.found;
}

/* After a failed pass: states have moved on and cannot be undone, so their sequences become empty. */
static void forget_states(struct model *m)
{
    for (int s = 0; s < m->session.sequences && m->shape.state.taps; s++)
        if (m->expected[s] != m->cache.lengths[s]) kv_cache_truncate(&m->cache, s, 0);
}

/* Rows of each pass over n rows. Stages of a pipeline work at the same time, on different passes. */
static int forward_step(const struct model *m, int n)
{
    enum { PASSES = 2, ROWS_LEAST = 64 }; /* for each stage; smaller passes read the weights too often */
    const int pp = m->session.part.pp, most = m->session.batch;
    return pp > 1 ? MIN(most, MAX((n - 1) / (PASSES * pp) + 1, ROWS_LEAST)) : most;
}

enum err_code model_forward_best(struct model *m, const struct batch_row *rows, int n, int32_t *best,
                                 struct err *why)
{
    int wanted;
    enum err_code rc;
    const int64_t begun = m->profile ? clock_ns() : 0;
    if ((rc = batch_check_rows(m, rows, n, &wanted, why))) return rc;
    if ((rc = model_make_room(m, best && model_logits_are_raw(m) ? 0 : wanted, why))) return rc;
    m->logits_count = 0;
    m->best = best;
    m->rows = MIN(n, m->session.batch);
    m->not_finite = (struct not_finite){ 0 };
    if (m->ranks) rc = model_ranks_forward(m, rows, n, wanted, best, why);
    const int step = forward_step(m, n);
    if (m->session.cache == CACHE_OFF)
        forward_again(m, rows, n);
    else
        for (int i = 0; i < n && !m->ranks; i += step) forward_pass(m, rows + i, MIN(n - i, step));
    m->best = NULL;
    model_part_agree(m);
    if (!rc) rc = pass_result(m, why);
    if (rc) {
        forget_states(m);
        return rc;
    }
    memcpy(m->cache.lengths, m->expected, (size_t)m->session.sequences * sizeof *m->expected);
    if (m->profile) m->profile->ns += clock_ns() - begun;
    return ERR_OK;
}

/* Run n rows of sequence 0, which is empty before and after. */
static enum err_code warm_rows(struct model *m, struct batch_row *rows, int n, struct err *why)
{
    model_truncate(m, 0, 0);
    int32_t best; /* the kernel that finds it is compiled, too */
    for (int i = 0; i < n; i++) rows[i] = (struct batch_row){ .pos = i, .logits = i == n - 1 };
    const enum err_code rc = model_forward_best(m, rows, n, &best, why);
    model_truncate(m, 0, 0);
    return rc;
}

enum err_code model_warm(struct model *m, struct err *why)
{
    /* A device compiles a kernel when it first runs; different numbers of rows use different kernels.
     */
    static const int SIZES[] = { 1, 2, 4, 8, 16, 33 };
    const int sizes = m->session.gpu_layers ? (int)COUNT_OF(SIZES) : 1,
              most = MIN(m->session.batch, m->session.ctx);
    if (m->warm) return ERR_OK;
    if (m->ranks) return model_ranks_warm(m, why);
    struct batch_row *rows = calloc((size_t)most, sizeof *rows);
    enum err_code rc = rows ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %d rows", most);
    for (int i = 0; i < sizes && !rc; i++)
        if (i == 0 || SIZES[i - 1] < most) rc = warm_rows(m, rows, MIN(SIZES[i], most), why);
    free(rows);
    m->warm = !rc;
    return rc;
}
