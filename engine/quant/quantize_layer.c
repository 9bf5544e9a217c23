/* Quantizes with a method that works on whole layers: loads the layer's tensors as f32, gives the method
 * samples of the layer's input, and writes the result. Only one layer is in memory at a time. */
#include <stdlib.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "engine/quant/calibration.h"
#include "engine/quant/quantize_internal.h"

struct layer_matrix *layer_matrix_at(struct layer_job *job, enum slot slot)
{
    for (int i = 0; i < job->matrix_count; i++)
        if (job->matrices[i].slot == slot) return &job->matrices[i];
    return NULL;
}

struct layer_vector *layer_vector_at(struct layer_job *job, enum slot slot)
{
    for (int i = 0; i < job->vector_count; i++)
        if (job->vectors[i].slot == slot) return &job->vectors[i];
    return NULL;
}

/* At most so many tensors of a layer are given to the method; no architecture has more. */
enum { UNITS_MAX = SLOT_COUNT };

/* A layer being converted: the method's job, and the unit behind each of its tensors. */
struct layer_work {
    struct quantization *q;
    struct layer_job job;
    struct layer_matrix matrices[UNITS_MAX];
    struct layer_vector vectors[UNITS_MAX];
    struct unit *matrix_unit[UNITS_MAX], *vector_unit[UNITS_MAX];
};

/* Decode a matrix of the layer and allocate its output. */
static enum err_code layer_load_matrix(struct layer_work *w, struct unit *u, enum slot slot, struct err *why)
{
    const int at = w->job.matrix_count++;
    struct layer_matrix *m = &w->matrices[at];
    w->matrix_unit[at] = u;
    *m = (struct layer_matrix){ .job = unit_job(w->q, u), .slot = slot, .converts = u->by_method };
    m->job.x = malloc((size_t)(m->job.rows * m->job.cols) * sizeof(float));
    m->job.out = malloc((size_t)(m->job.rows * format_row_bytes(u->format, m->job.cols)));
    if (!m->job.x || !m->job.out)
        return err_set(why, ERR_NOMEM, "out of memory for layer %d while quantizing", w->job.layer);
    enum err_code rc = companions_alloc(&m->job, why);
    return rc ? rc : unit_load(w->q, u, m->job.x, why);
}

/* Decode a norm or bias of the layer. */
static enum err_code layer_load_vector(struct layer_work *w, struct unit *u, enum slot slot, struct err *why)
{
    const int at = w->job.vector_count++;
    struct layer_vector *v = &w->vectors[at];
    w->vector_unit[at] = u;
    *v = (struct layer_vector){ .name = u->source->name, .slot = slot, .n = u->source->shape[0] };
    v->x = malloc((size_t)v->n * sizeof(float));
    if (!v->x) return err_set(why, ERR_NOMEM, "out of memory for layer %d while quantizing", w->job.layer);
    return unit_load(w->q, u, v->x, why);
}

/* Load all tensors that the architecture defines; others are written at once. */
static enum err_code layer_load(struct layer_work *w, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int64_t i = 0; i < w->q->count && !rc; i++) {
        struct unit *u = &w->q->units[i];
        if (u->layer != w->job.layer) continue;
        int layer;
        enum slot slot;
        const bool part = arch_slot_find(&layer, &slot, w->job.arch, w->job.shape, u->source->name);
        w->q->layer_bytes += u->source->bytes;
        if (!part || w->job.matrix_count == UNITS_MAX || w->job.vector_count == UNITS_MAX)
            rc = unit_write(w->q, u, why);
        else
            rc = u->source->dims > 1 ? layer_load_matrix(w, u, slot, why)
                                     : layer_load_vector(w, u, slot, why);
    }
    return rc;
}

/* Write a tensor that keeps the source's format: copied, or encoded again if the method changed it. */
static enum err_code layer_put_unquantized(struct layer_work *w, struct unit *u, struct tensor_job *job,
                                           bool changed, struct err *why)
{
    if (!changed && !u->converts) {
        const struct checked what = { .out = gguf_tensor_data(u->source), .rows = unit_rows(u) };
        enum err_code rc = encoded_check(w->q, u, u->source->format, &what, why);
        if (!rc) rc = gguf_writer_select(w->q->writer, u->source->name, why);
        return rc ? rc : gguf_writer_write(w->q->writer, gguf_tensor_data(u->source), u->source->bytes, why);
    }
    enum err_code rc = unit_encode(w->q, u, job, why);
    return rc ? rc : unit_put(w->q, u, job, why);
}

/* Encode what the method left, and write all tensors of the layer. */
static enum err_code layer_put(struct layer_work *w, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < w->job.matrix_count && !rc; i++) {
        struct layer_matrix *m = &w->matrices[i];
        struct unit *u = w->matrix_unit[i];
        if (!m->converts) {
            rc = layer_put_unquantized(w, u, &m->job, m->changed, why);
            continue;
        }
        if (!m->encoded) rc = unit_encode(w->q, u, &m->job, why);
        if (!rc) rc = unit_put(w->q, u, &m->job, why);
    }
    for (int i = 0; i < w->job.vector_count && !rc; i++) {
        struct layer_vector *v = &w->vectors[i];
        struct tensor_job job = unit_job(w->q, w->vector_unit[i]);
        job.x = v->x;
        job.out = malloc((size_t)format_row_bytes(job.format, v->n));
        rc = job.out ? layer_put_unquantized(w, w->vector_unit[i], &job, v->changed, why)
                     : err_set(why, ERR_NOMEM, "out of memory");
        free(job.out);
    }
    return rc;
}

static void layer_free(struct layer_work *w)
{
    for (int i = 0; i < w->job.matrix_count; i++) {
        companions_free(&w->matrices[i].job);
        free(w->matrices[i].job.x);
        free(w->matrices[i].job.out);
    }
    for (int i = 0; i < w->job.vector_count; i++) free(w->vectors[i].x);
}

/* Passes progress within a layer on, as a share of the whole file. */
static bool layer_progress(void *ctx, double done)
{
    const struct layer_work *w = ctx;
    const struct quantization *q = w->q;
    const struct quantize_options *o = q->options;
    const double bytes = (double)q->done + done * (double)q->layer_bytes;
    return !o->progress || o->progress(o->ctx, q->total ? bytes / (double)q->total : 1);
}

/* Whether an earlier run already wrote all tensors of this layer. */
static bool layer_finished(const struct quantization *q, int layer)
{
    for (int64_t i = 0; i < q->count; i++)
        if (q->units[i].layer == layer && !unit_finished(q, &q->units[i])) return false;
    return true;
}

/* What all layers share: the source as a runnable model, and the samples' hidden states. */
struct layer_run {
    struct layers *model;
    struct samples samples;
    struct model_shape shape;
    const struct arch *arch;
};

/* Open the model and compute the token embeddings of the samples, the input of the first layer. */
static enum err_code layer_run_embed(struct layer_run *r, const struct quantization *q, struct err *why)
{
    struct samples *s = &r->samples;
    int32_t *ids;
    q->params.method->samples(&q->params, &s->count, &s->tokens);
    s->tokens = (int)MIN(s->tokens, r->shape.ctx_train);
    enum err_code rc = quantize_samples(q, s, &ids, why);
    /* PRECISION_HIGH: relative errors of 3e-5, against 5e-3 of 8-bit quantization, in less than half the time
     * of PRECISION_HIGHEST on matrix tiles. */
    const struct layers_options o = { .threads = q->options->threads,
                                      .tokens = s->tokens,
                                      .precision = PRECISION_HIGH,
                                      .force = config_choice(q->options->config, KNOB_FORCE),
                                      .log = q->options->log };
    if (!rc) rc = layers_open(&r->model, q->source, &o, why);
    s->width = rc ? 0 : layers_width(r->model);
    s->x = malloc((size_t)s->count * (size_t)s->tokens * (size_t)s->width * sizeof(float) + 1);
    if (!rc && !s->x)
        rc = err_set(why, ERR_NOMEM, "out of memory for %d samples of %d tokens", s->count, s->tokens);
    for (int i = 0; i < s->count && !rc; i++)
        rc = layers_embed(r->model, ids + (int64_t)i * s->tokens, s->tokens,
                          s->x + (int64_t)i * s->tokens * s->width, why);
    free(ids);
    return rc;
}

static enum err_code layer_run_open(struct layer_run *r, const struct quantization *q, struct err *why)
{
    enum err_code rc = model_shape_read(&r->shape, q->source, why);
    if (rc) return rc;
    r->arch = arch_find(gguf_get_string(q->source, "general.architecture"));
    return q->params.method->samples ? layer_run_embed(r, q, why) : ERR_OK;
}

/* Load one layer, run the method on it, and write it. */
static enum err_code layer_run_one(struct layer_run *r, struct quantization *q, int layer, struct err *why)
{
    struct layer_work *w = calloc(1, sizeof *w);
    if (!w) return err_set(why, ERR_NOMEM, "out of memory while quantizing");
    w->q = q;
    w->job = (struct layer_job){ .layer = layer,
                                 .source = q->source,
                                 .arch = r->arch,
                                 .shape = &r->shape,
                                 .params = q->params,
                                 .matrices = w->matrices,
                                 .vectors = w->vectors,
                                 .calibration = q->calibration,
                                 .model = r->model,
                                 .samples = r->model ? &r->samples : NULL,
                                 .pool = q->pool,
                                 .log = q->options->log,
                                 .progress = layer_progress,
                                 .progress_ctx = w };
    q->layer_bytes = 0;
    enum err_code rc = layer_load(w, why);
    if (!rc) rc = q->params.method->layer(&w->job, why);
    if (!rc) rc = layer_put(w, why);
    if (!rc) rc = quantize_report(q, q->layer_bytes, why);
    for (int64_t i = 0; i < q->count && !r->model; i++) /* a model uses the bytes that were computed */
        if (q->units[i].layer == layer && q->units[i].source->made) gguf_tensor_drop(q->units[i].source);
    layer_free(w);
    free(w);
    return rc;
}

enum err_code layers_quantize(struct quantization *q, struct err *why)
{
    struct layer_run r = { .model = NULL };
    enum err_code rc = layer_run_open(&r, q, why);
    for (int layer = 0; layer < r.shape.layers && !rc; layer++) {
        /* With samples, a finished layer still has to run: later layers need its outputs. */
        if (r.model || !layer_finished(q, layer)) rc = layer_run_one(&r, q, layer, why);
    }
    layers_close(r.model);
    free(r.samples.x);
    return rc;
}
