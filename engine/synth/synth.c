/* Writes a model file of any shape and architecture from a seed.
 *
 * Speed and memory do not depend on the values of weights, so a random model answers "how fast would a 7B
 * model be here" without a download. Which tensors a file needs is what engine/arch requires of a file with
 * its metadata: the metadata are written first, read back by the same code that loads models, and the tensors
 * follow. Matrices are N(0, 1/sqrt(columns)): activations keep their magnitude from layer to layer, and
 * logits are close to N(0,1). synth_weights.c generates and writes them. */
#include "engine/synth/synth.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/synth/synth_internal.h"
#include "kernels/kernels.h"

/* ---------------------------------------------------------------- sizes, as a loader reads them */

static void add_vector(struct gguf_writer *w, const char *name, int64_t count)
{
    gguf_writer_add_tensor(w, name, &FORMATS[FORMAT_F32], 2, (int64_t[]){ 1, count });
}

/* Tensors whose presence or size model_shape_read looks at, with one column. */
static void add_markers(struct gguf_writer *w, const struct arch *a, const struct synth_shape *s)
{
    char name[ARCH_NAME];
    arch_slot_name(name, sizeof name, -1, SLOT_TOKEN_EMBD);
    add_vector(w, name, s->vocab);
    if (a->latent) {
        arch_slot_name(name, sizeof name, 0, SLOT_LATENT_K_B);
        add_vector(w, name, 1);
    }
    for (int l = 0; l < s->layers && s->shared_ff; l++) {
        arch_slot_name(name, sizeof name, l, SLOT_UP_SHARED);
        add_vector(w, name, s->shared_ff);
    }
}

/* Read the sizes of the model that `s` describes from its metadata. `path`: where it will be. */
static enum err_code read_sizes(struct model_shape *out, const struct arch *a, const struct synth_shape *s,
                                const char *path, struct err *why)
{
    struct gguf_writer *w = NULL;
    struct gguf *g = NULL;
    struct str bytes = { 0 };
    enum err_code rc = gguf_writer_open(&w, path, why);
    if (!rc) {
        synth_put_metadata(w, a, s);
        add_markers(w, a, s);
        rc = gguf_writer_preview(w, &bytes, why);
    }
    gguf_writer_abort(w);
    if (!rc) rc = gguf_open_memory(&g, bytes.data, bytes.len, why);
    if (!rc) rc = model_shape_read(out, g, why);
    if (!rc) rc = hyper_read(&(struct hyper){ 0 }, out, g, why);
    gguf_close(g);
    str_free(&bytes);
    return rc;
}

/* ---------------------------------------------------------------- the list of tensors */

/* Distributions other than those of matrices, norms (1 + N(0, 0.1)) and biases (N(0, 0.02)). deviation 0:
 * 1/sqrt(columns). */
static const struct fill {
    enum slot slot;
    float mean, deviation;
} FILLS[] = {
    { .slot = SLOT_SINKS, .deviation = 1 },
    { .slot = SLOT_STATE_CONV },
    { .slot = SLOT_SHORT_CONV },
    { .slot = SLOT_STATE_A, .mean = -1, .deviation = 0.1f }, /* a decay: negative */
    { .slot = SLOT_STATE_A_COLUMN, .mean = -1, .deviation = 0.1f },
};

static const struct fill *fill_find(enum slot slot)
{
    static const struct fill NORM = { .mean = 1, .deviation = 0.1f },
                             BIAS = { .mean = 0, .deviation = 0.02f }, MATRIX = { .mean = 0, .deviation = 0 };
    for (size_t i = 0; i < COUNT_OF(FILLS); i++)
        if (FILLS[i].slot == slot) return &FILLS[i];
    if (!arch_slot_is_vector(slot)) return &MATRIX;
    return strstr(ARCH_SLOTS[slot].name, ".bias") ? &BIAS : &NORM;
}

/* Published files keep these in f32, too. */
static bool slot_is_f32(enum slot slot)
{
    return arch_slot_is_vector(slot) || slot == SLOT_POSITION_EMBD || slot == SLOT_ROUTER;
}

struct synth_file {
    const struct arch *arch;
    const struct model_shape *sizes;
    slot_set optional; /* the optional tensors that the file gets */
    const struct synth_options *options;
};

static const struct format *slot_format(const struct synth_file *m, enum slot slot, int64_t cols)
{
    const struct synth_options *o = m->options;
    if (slot_is_f32(slot)) return &FORMATS[FORMAT_F32];
    const struct format *f = arch_is_of_experts(ARCH_SLOTS[slot].name) ? o->expert_format : o->format;
    return cols % f->block_weights ? &FORMATS[FORMAT_F16] : f;
}

static void plan_slot(struct synth_plan *plan, const struct synth_file *m, enum slot slot, int layer)
{
    const struct arch_slot *d = &ARCH_SLOTS[slot];
    const struct fill *fill = fill_find(slot);
    struct synth_tensor *t = &plan->tensors[plan->count++];
    const int64_t cols = arch_layer_dim(d->cols, m->arch, m->sizes, layer);
    *t = (struct synth_tensor){
        .format = slot_format(m, slot, cols),
        .dims = d->matrices != DIM_NONE ? 3
                : d->rows != DIM_NONE   ? 2
                                        : 1,
        .shape = { cols, arch_layer_dim(d->rows, m->arch, m->sizes, layer),
                   arch_layer_dim(d->matrices, m->arch, m->sizes, layer) },
        .mean = fill->mean,
        .deviation = fill->deviation > 0 ? fill->deviation : (float)(1 / sqrt((double)cols)),
    };
    arch_slot_name(t->name, sizeof t->name, layer, slot);
}

static enum err_code plan_make(struct synth_plan *plan, const struct synth_file *m, struct err *why)
{
    const int layers = m->sizes->layers;
    plan->tensors = calloc((size_t)(layers + 1) * SLOT_COUNT, sizeof *plan->tensors);
    if (!plan->tensors) return err_set(why, ERR_NOMEM, "out of memory for the list of tensors");
    for (int layer = -1; layer < layers; layer++) {
        const slot_set has = arch_need(m->arch, m->sizes, layer) |
                             (arch_may(m->arch, m->sizes, layer) & m->optional);
        for (int slot = 0; slot < SLOT_COUNT; slot++)
            if (has & SLOT_BIT(slot)) plan_slot(plan, m, (enum slot)slot, layer);
    }
    return ERR_OK;
}

/* Gate and up of experts are two tensors where there is a choice. */
static slot_set optional_slots(const struct arch *a, const struct synth_shape *s)
{
    const slot_set shared = SLOT_BIT(SLOT_GATE_SHARED) | SLOT_BIT(SLOT_UP_SHARED) |
                            SLOT_BIT(SLOT_DOWN_SHARED);
    slot_set set = synth_traits_find(a)->with | a->state_may;
    set |= a->expert_may & ~SLOT_BIT(SLOT_GATE_UP_EXPERTS);
    if (!s->shared_ff) set &= ~shared;
    return s->tied ? set : set | SLOT_BIT(SLOT_OUTPUT);
}

/* ---------------------------------------------------------------- options */

static enum err_code shape_check(const struct synth_shape *s, const struct arch *a, struct err *why)
{
    if (a->one_part && s->layers < SYNTH_PARTS)
        return err_set(why, ERR_USAGE,
                       "%d layers: expected at least %d, because a layer of %s has attention, a state or a "
                       "feed-forward",
                       s->layers, SYNTH_PARTS, a->name);
    const bool ok = s->layers >= 1 && s->layers <= LAYERS_MAX && s->heads >= 1 && s->kv_heads >= 1 &&
                    s->heads % s->kv_heads == 0 && s->embd >= 1 && s->ff >= 1 && s->vocab >= 1 &&
                    s->ctx >= 1 && (s->head_dim || s->embd % s->heads == 0);
    const int64_t head_dim = !ok ? 0 : s->head_dim ? s->head_dim : s->embd / s->heads;
    if (!ok || head_dim % 2)
        return err_set(
            why, ERR_USAGE,
            "shape '%s': %d layers, %" PRId64
            " wide with %d heads and %d KV heads are impossible: expected 1 to %d layers; the width must be a multiple of the heads, and these of the KV heads",
            s->name, s->layers, s->embd, s->heads, s->kv_heads, LAYERS_MAX);
    return ERR_OK;
}

static enum err_code synth_arch_find(const struct arch **out, const char *name, struct err *why)
{
    *out = arch_find((struct gguf_string){ name, strlen(name) });
    if (*out) return ERR_OK;
    const char *const *known = model_architectures();
    struct str list = { 0 };
    size_t n = 0;
    for (; known[n]; n++) str_printf(&list, " %s", known[n]);
    const char *near = str_nearest(name, known, n);
    const enum err_code rc = err_set(why, ERR_USAGE, "architecture '%s'%s%s%s: known are%s", name,
                                     near ? " (did you mean " : "", near ? near : "", near ? "?)" : "",
                                     str_text(&list));
    str_free(&list);
    return rc;
}

const char *synth_arch_name(const struct synth_options *o)
{
    return o->arch ? o->arch : o->shape->arch ? o->shape->arch : "llama";
}

const struct format *synth_expert_format(const struct synth_options *o)
{
    const struct format *of_shape = format_find(o->shape->expert_format);
    return o->expert_format ? o->expert_format : of_shape ? of_shape : o->format;
}

static enum err_code formats_check(const struct synth_options *o, struct err *why)
{
    const struct format *const both[] = { o->format, o->expert_format };
    for (size_t i = 0; i < COUNT_OF(both); i++)
        if (!both[i]->encode)
            return err_set(why, ERR_USAGE, "format '%s' is known but cannot be made yet", both[i]->name);
    return ERR_OK;
}

/* ---------------------------------------------------------------- the whole file */

static enum err_code write_file(const char *path, const struct synth_file *m, const struct synth_shape *s,
                                const struct synth_plan *plan, struct err *why)
{
    struct gguf_writer *w = NULL;
    enum err_code rc = gguf_writer_open(&w, path, why);
    if (rc) return rc;
    synth_put_metadata(w, m->arch, s);
    rc = synth_put_vocabulary(w, m->arch, s, why);
    for (int64_t i = 0; !rc && i < plan->count; i++) { /* commit returns a failure of these calls */
        const struct synth_tensor *t = &plan->tensors[i];
        gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
    }
    if (!rc) rc = synth_write_weights(w, plan, m->options, why);
    if (!rc) return gguf_writer_commit(w, why);
    gguf_writer_abort(w);
    return rc;
}

enum err_code synth_write(const char *path, const struct synth_options *options, struct err *why)
{
    struct synth_options o = *options;
    struct synth_shape shape = *o.shape;
    struct synth_file m = { .options = &o };
    struct synth_plan plan = { 0 };
    struct model_shape *sizes = malloc(sizeof *sizes);
    if (!sizes) return err_set(why, ERR_NOMEM, "out of memory for the model's sizes");
    m.sizes = sizes;
    o.shape = &shape;
    o.expert_format = synth_expert_format(&o);
    if (o.layers) shape.layers = o.layers;
    enum err_code rc = synth_arch_find(&m.arch, synth_arch_name(&o), why);
    if (!rc) rc = shape_check(&shape, m.arch, why);
    if (!rc) rc = formats_check(&o, why);
    if (!rc) synth_shape_complete(&shape, m.arch);
    if (!rc) rc = read_sizes(sizes, m.arch, &shape, path, why);
    if (!rc) {
        m.optional = optional_slots(m.arch, &shape);
        rc = plan_make(&plan, &m, why);
    }
    if (!rc) rc = write_file(path, &m, &shape, &plan, why);
    free(plan.tensors);
    free(sizes);
    return rc;
}
