/* Binds the tensors of a mapped file: matrices become weights of the backend, vectors are decoded and copied.
 */
#include "engine/model/model_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

/* Values of a vector, or of a table of vectors. */
static int64_t vector_length(const struct gguf_tensor *t)
{
    return t->shape[0] * t->shape[1];
}

static enum err_code count_vector(void *ctx, int layer, enum slot slot, int expert,
                                  const struct gguf_tensor *t, struct err *why)
{
    struct model *m = ctx;
    (void)why;
    (void)expert;
    if (arch_slot_is_vector(slot) && !arch_slot_is_rope(slot) &&
        part_has_tensor(&m->session.part, &m->shape, layer, slot))
        model_slot_site(m, layer, slot)->vectors_size += vector_bytes(vector_length(t)) /
                                                         (int64_t)sizeof(float);
    return ERR_OK;
}

/* Decode a vector to f32. *out owned: free. */
static enum err_code decode_vector(float **out, const struct gguf_tensor *t, struct err *why)
{
    const int64_t n = vector_length(t);
    if (t->shape[0] % t->format->block_weights)
        return err_set(why, ERR_FORMAT, "tensor '%s': %lld values do not fill blocks of %s", t->name,
                       (long long)t->shape[0], t->format->name);
    *out = malloc((size_t)n * sizeof(float));
    if (!*out) return err_set(why, ERR_NOMEM, "out of memory for tensor '%s'", t->name);
    t->format->decode(gguf_tensor_data(t), *out, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite((*out)[i])) {
            const float bad = (*out)[i];
            free(*out);
            *out = NULL;
            return err_set(why, ERR_FORMAT,
                           "tensor '%s': value %lld of %lld is %g, expected a finite number: the "
                           "file is damaged",
                           t->name, (long long)i, (long long)n, (double)bad);
        }
    return ERR_OK;
}

struct bound *model_place(struct model *m, int layer, enum slot slot)
{
    return layer < 0 ? &m->global[slot] : &m->layers[layer].slots[slot - SLOT_GLOBAL_COUNT];
}

void bound_release(const struct site *s, struct bound *b)
{
    for (int64_t i = 0; i < b->count; i++) backend_weight_release(s->backend, &b->experts[i]);
    free(b->experts);
    if (b->w.data && !b->count) backend_weight_release(s->backend, &b->w);
    act_free(b->input);
}

/* Some files store a tensor beside a matrix whose value multiplies all weights of the matrix (or one value
 * for each expert). Set these scales in the bound matrix. A tensor that the architecture itself uses (Gemma 4
 * has a scale for each expert) is no such tensor. */
enum err_code model_bind_scales(struct bound *out, const struct model *m, const struct site *site,
                                const struct gguf_tensor *matrix, struct err *why)
{
    const struct gguf_tensor *t = matrix_scale_find(m->gguf, matrix->name);
    int layer;
    enum slot slot;
    if (!t || arch_slot_find(&layer, &slot, m->hyper.arch, &m->shape, t->name)) return ERR_OK;
    const int64_t n = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3], want = MAX(out->count, 1);
    if (t->format != &FORMATS[FORMAT_F32] || (n != 1 && n != want))
        return err_set(
            why, ERR_FORMAT,
            "the tensor that scales this matrix, '%s': expected %lld values of f32, found %lld of %s",
            t->name, (long long)want, (long long)n, t->format->name);
    if (site == &m->sites[SITE_DEVICE] && strcmp(m->session.device, "cpu"))
        return err_set(
            why, ERR_USAGE,
            "the tensor '%s' scales this matrix, which works on the CPU only: expected device=cpu, or a "
            "smaller gpu_layers, so that the layer of this matrix runs on the CPU",
            t->name);
    const float *scale = (const float *)(const void *)gguf_tensor_data(t);
    for (int64_t i = 0; i < want; i++) {
        float v;
        memcpy(&v, scale + (n > 1 ? i : 0), sizeof v);
        if (!isfinite(v) || v == 0)
            return err_set(
                why, ERR_FORMAT,
                "the tensor that scales this matrix, '%s': value %lld is %g; expected a finite number other than 0",
                t->name, (long long)i, (double)v);
        if (out->count) out->experts[i].scale = v;
        if (!i) out->w.scale = v;
    }
    return ERR_OK;
}

/* Bind the matrices of a tensor: one, or one for each expert. On an error *out holds what was bound so far.
 */
static enum err_code bind_matrices(struct bound *out, const struct model *m, const struct site *site,
                                   enum slot slot, int expert, const struct gguf_tensor *t, struct err *why)
{
    const bool of_experts = ARCH_SLOTS[slot].matrices != DIM_NONE;
    enum err_code rc = act_read(&out->input, m->gguf, t, why);
    if (rc) return rc;
    if (of_experts && out->input)
        return err_set(why, ERR_FORMAT,
                       "prescribed quantization of activations is not supported for experts");
    if (!of_experts || expert >= 0) {
        rc = backend_weight_bind(site->backend, &out->w, t->format, t->shape[1], t->shape[0], out->input,
                                 gguf_tensor_data(t), why);
        return rc ? rc : model_bind_scales(out, m, site, t, why);
    }
    const int64_t bytes = format_row_bytes(t->format, t->shape[0]) * t->shape[1];
    out->experts = calloc((size_t)t->shape[2], sizeof *out->experts);
    if (!out->experts)
        return err_set(why, ERR_NOMEM, "out of memory for %lld experts", (long long)t->shape[2]);
    for (; out->count < t->shape[2] && !rc; out->count += !rc)
        rc = backend_weight_bind(site->backend, &out->experts[out->count], t->format, t->shape[1],
                                 t->shape[0], NULL, (const char *)gguf_tensor_data(t) + out->count * bytes,
                                 why);
    if (!rc) out->w = out->experts[0];
    return rc ? rc : model_bind_scales(out, m, site, t, why);
}

enum err_code model_place_expert(struct bound *b, const struct model *m, const struct site *site, int expert,
                                 struct bound *now, struct err *why)
{
    if (!b->experts) b->experts = calloc((size_t)m->shape.experts, sizeof *b->experts);
    if (!b->experts) {
        bound_release(site, now);
        return err_set(why, ERR_NOMEM, "out of memory for %d experts", m->shape.experts);
    }
    b->count = m->shape.experts;
    backend_weight_release(site->backend, &b->experts[expert]);
    b->experts[expert] = now->w;
    b->w = b->experts[0];
    return ERR_OK;
}

enum err_code model_bind_slot(struct model *m, int layer, enum slot slot, int expert,
                              const struct gguf_tensor *t, struct err *why)
{
    if (arch_slot_is_rope(slot)) return ERR_OK; /* load_rope reads these */
    struct bound *b = model_place(m, layer, slot);
    struct site *site = model_slot_site(m, layer, slot);
    if (!arch_slot_is_vector(slot) && m->session.part.tp > 1)
        return model_bind_rows(m, layer, slot, expert, t, why);
    if (!arch_slot_is_vector(slot)) {
        struct bound now = { .v = NULL };
        const enum err_code failed = bind_matrices(&now, m, site, slot, expert, t, why);
        if (failed) {
            bound_release(site, &now);
            return err_prefix(why, "tensor '%s'", t->name);
        }
        if (expert >= 0) return model_place_expert(b, m, site, expert, &now, why);
        bound_release(site, b);
        *b = now;
        return ERR_OK;
    }
    float *values;
    enum err_code rc = decode_vector(&values, t, why);
    if (rc) return rc;
    if (!b->v) {
        b->v = site->vectors + site->vectors_used;
        site->vectors_used += vector_bytes(vector_length(t)) / (int64_t)sizeof(float);
    }
    backend_write(site->backend, (float *)b->v, values, (size_t)vector_length(t) * sizeof(float));
    free(values);
    return ERR_OK;
}

enum err_code model_replace_matrix(struct model *m, const char *tensor, const struct format *f,
                                   const void *data, struct err *why)
{
    const struct gguf_tensor *t = gguf_tensor_find(m->gguf, tensor);
    int layer;
    enum slot slot;
    if (m->ranks || m->rank)
        return err_set(why, ERR_USAGE,
                       "matrices of a model with parallel= cannot be replaced: expected parallel=off");
    if (!t || !arch_slot_find(&layer, &slot, m->hyper.arch, &m->shape, tensor) || t->dims != 2 ||
        arch_slot_is_vector(slot))
        return err_set(why, ERR_USAGE, "tensor '%s' is not a matrix of this model", tensor);
    const int expert = arch_expert_of(tensor);
    if (!f) return model_bind_slot(m, layer, slot, expert, t, why);
    if (t->shape[0] % f->block_weights)
        return err_set(why, ERR_USAGE, "tensor '%s': its rows of %lld values do not fill blocks of %s",
                       tensor, (long long)t->shape[0], f->name);
    struct gguf_tensor replaced = *t;
    replaced.format = f;
    replaced.bytes = t->shape[1] * format_row_bytes(f, t->shape[0]);
    replaced.data = data;
    replaced.made = NULL;
    return model_bind_slot(m, layer, slot, expert, &replaced, why);
}

/* Does the backend have copies of all matrices that were bound from a tensor of this slot? */
static bool is_copied(const struct bound *b, int expert)
{
    bool all = b->count || b->w.owned;
    for (int64_t i = 0; i < b->count; i++) all &= (expert >= 0 && i != expert) || b->experts[i].owned;
    return all;
}

static enum err_code bind_tensor(void *ctx, int layer, enum slot slot, int expert,
                                 const struct gguf_tensor *t, struct err *why)
{
    struct model *m = ctx;
    if (!part_has_tensor(&m->session.part, &m->shape, layer, slot)) return ERR_OK;
    enum err_code rc = model_bind_slot(m, layer, slot, expert, t, why);
    /* another model of the same file may use bytes that were computed for it */
    if (!rc && is_copied(model_place(m, layer, slot), expert) && !(t->made && m->borrowed))
        gguf_tensor_drop(t);
    return rc;
}

/* The tensor with RoPE factors, NULL: none. Files can contain two sets, for long and for short contexts: the
 * size of the session's context decides, not the length of the text. */
static const struct gguf_tensor *rope_factors(const struct model *m)
{
    const slot_set may = m->hyper.arch->may | m->hyper.arch->need;
    const enum slot slot = (may & SLOT_BIT(SLOT_ROPE_FREQS))             ? SLOT_ROPE_FREQS
                           : m->session.ctx > m->hyper.rope_ctx_original ? SLOT_ROPE_LONG
                                                                         : SLOT_ROPE_SHORT;
    return (may & SLOT_BIT(slot)) ? gguf_tensor_find(m->gguf, ARCH_SLOTS[slot].name) : NULL;
}

static int window_rope_dims(const struct model_shape *s)
{
    int layer = 0;
    while (layer < s->layers - 1 && !s->parts[layer].window) layer++;
    return s->parts[layer].rope_dims;
}

static enum err_code load_rope(struct model *m, struct err *why)
{
    if (m->hyper.arch->rope == ROPE_NONE) return ERR_OK;
    float *factors = NULL;
    const struct gguf_tensor *t = rope_factors(m);
    m->rope_freq = calloc((size_t)m->shape.rope_dims + 1, sizeof(float));
    if (!m->rope_freq) return err_set(why, ERR_NOMEM, "out of memory");
    enum err_code rc = t ? decode_vector(&factors, t, why) : ERR_OK;
    if (rc) return rc;
    for (int i = 0; factors && i < m->shape.rope_dims / 2 && !rc; i++)
        if (!(factors[i] > 0))
            rc = err_set(why, ERR_FORMAT, "tensor '%s': factor %d is %g", t->name, i, (double)factors[i]);
    if (!rc) rope_frequencies(m->rope_freq, &m->rope_magnitude[0], &m->hyper, m->shape.rope_dims, factors);
    if (!rc && m->hyper.window_rope_base > 0) {
        struct hyper near = m->hyper; /* layers with a window see short contexts only: no RoPE scaling */
        near.rope_base = m->hyper.window_rope_base;
        near.rope_factor = 1;
        near.yarn = false;
        rope_frequencies(m->rope_freq + m->shape.rope_dims / 2, &m->rope_magnitude[1], &near,
                         window_rope_dims(&m->shape), NULL);
    }
    free(factors);
    return rc;
}

/* *out = a copy of a vector with a number for each expert; NULL: the file has none. */
static enum err_code read_per_expert(float **out, struct model *m, int layer, enum slot slot, struct err *why)
{
    const float *v = layer_slot(&m->layers[layer], slot)->v;
    const size_t bytes = (size_t)m->shape.experts * sizeof **out;
    if (!v) return ERR_OK;
    *out = malloc(bytes);
    if (!*out) return err_set(why, ERR_NOMEM, "out of memory for a router");
    backend_read(model_site(m, layer)->backend, *out, v, bytes);
    return ERR_OK;
}

/* What the host needs: it chooses experts and scales rows. */
static enum err_code read_for_host(struct model *m, int layer, struct err *why)
{
    struct layer *l = &m->layers[layer];
    const float *scale = layer_slot(l, SLOT_LAYER_SCALE)->v;
    l->output_scale = 1;
    if (scale) backend_read(model_site(m, layer)->backend, &l->output_scale, scale, sizeof *scale);
    const enum err_code rc = read_per_expert(&l->router_choice, m, layer, SLOT_ROUTER_CHOICE, why);
    return rc ? rc : read_per_expert(&l->expert_scale, m, layer, SLOT_EXPERT_SCALE, why);
}

/* Some models norm queries and keys, or values, without weights. */
enum { HEAD_SIZE_MAX = 1024 }; /* as model_shape_read allows */
static enum err_code alloc_unit_weights(struct model *m, struct err *why)
{
    const int n = unit_weights_of(&m->shape, m->hyper.arch);
    float ones[HEAD_SIZE_MAX];
    if (!n) return ERR_OK;
    for (int i = 0; i < n; i++) ones[i] = 1;
    for (struct site *s = m->sites; s < m->sites + SITE_COUNT; s++) {
        if (!s->backend) continue;
        s->unit_weights = backend_alloc(s->backend, (size_t)n * sizeof *s->unit_weights);
        if (!s->unit_weights) return model_no_room(m, s, "norms", n * (int64_t)sizeof(float), why);
        backend_write(s->backend, s->unit_weights, ones, (size_t)n * sizeof *ones);
    }
    return ERR_OK;
}

enum err_code model_bind(struct model *m, const struct log *log, struct err *why)
{
    const struct arch *a = m->hyper.arch;
    enum err_code rc;
    m->layers = calloc((size_t)m->shape.layers, sizeof *m->layers);
    if (!m->layers) return err_set(why, ERR_NOMEM, "out of memory for %d layers", m->shape.layers);
    if ((rc = arch_walk(a, &m->shape, m->gguf, count_vector, m, why))) return rc;
    for (struct site *s = m->sites; s < m->sites + SITE_COUNT; s++) {
        if (!s->backend) continue;
        const int64_t bytes = s->vectors_size * (int64_t)sizeof(float);
        s->vectors = backend_alloc(s->backend, (size_t)bytes);
        if (!s->vectors) return model_no_room(m, s, "norms and biases", bytes, why);
    }
    if ((rc = alloc_unit_weights(m, why))) return rc;
    if ((rc = arch_walk(a, &m->shape, m->gguf, bind_tensor, m, why))) return rc;
    if ((rc = load_rope(m, why))) return rc;

    for (int l = 0; l < m->shape.layers; l++) {
        const bool window = m->shape.parts[l].window;
        m->layers[l].parts = &m->shape.parts[l];
        m->layers[l].window = window ? m->shape.window : 0;
        m->layers[l].rope = window && m->hyper.window_rope_base > 0;
        m->layers[l].rotates = hyper_layer_has_rope(&m->hyper, &m->shape, l);
        if ((rc = read_for_host(m, l, why))) return rc;
    }
    if (!m->shape.unknown) return ERR_OK;
    struct str all = { 0 };
    arch_unknown(&all, a, &m->shape, m->gguf);
    log_write(log, LOG_WARN, "answers unverified, these parts of the model are not used:\n%s",
              str_text(&all));
    str_free(&all);
    return ERR_OK;
}

void model_unbind(struct model *m)
{
    for (int s = 0; s < SLOT_GLOBAL_COUNT; s++) bound_release(model_site(m, -1), &m->global[s]);
    for (int l = 0; m->layers && l < m->shape.layers; l++) {
        free(m->layers[l].router_choice);
        free(m->layers[l].expert_scale);
        for (size_t s = 0; s < COUNT_OF(m->layers[l].slots); s++)
            bound_release(model_slot_site(m, l, (enum slot)(s + SLOT_GLOBAL_COUNT)), &m->layers[l].slots[s]);
    }
    free(m->layers);
    free(m->rope_freq);
}
