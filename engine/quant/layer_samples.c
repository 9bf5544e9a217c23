/* Runs samples through one layer, one after the other. With SAMPLES_KEEP, each runs on a copy. */
#include "engine/quant/layer_samples.h"

#include <stdlib.h>
#include <string.h>

enum err_code layer_bind(struct layer_job *job, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < job->matrix_count && !rc; i++) {
        const struct tensor_job *m = &job->matrices[i].job;
        rc = layers_replace(job->model, m->name, &FORMATS[FORMAT_F32], m->x, why);
    }
    for (int i = 0; i < job->vector_count && !rc; i++)
        rc = layers_replace(job->model, job->vectors[i].name, &FORMATS[FORMAT_F32], job->vectors[i].x, why);
    return rc;
}

enum err_code layer_unbind(struct layer_job *job, struct err *why)
{
    return layers_restore(job->model, NULL, why);
}

enum err_code layer_report(struct layer_job *job, struct work_part part, double done, struct err *why)
{
    if (job->progress(job->progress_ctx, part.from + (part.to - part.from) * done)) return ERR_OK;
    return err_set(why, ERR_CANCELLED, "cancelled");
}

enum err_code samples_run(struct layer_job *job, enum samples_mode mode, layer_observer *see, void *ctx,
                          struct work_part part, struct err *why)
{
    const struct samples *s = job->samples;
    const int64_t each = s->tokens * s->width;
    float *copy = mode == SAMPLES_ADVANCE ? NULL : malloc((size_t)each * sizeof *copy);
    enum err_code rc = mode == SAMPLES_ADVANCE || copy
                           ? ERR_OK
                           : err_set(why, ERR_NOMEM, "out of memory for a sample");
    for (int i = 0; i < s->count && !rc; i++) {
        float *x = s->x + i * each;
        if (copy) x = memcpy(copy, x, (size_t)each * sizeof *copy);
        rc = layers_run(job->model, job->layer, x, s->tokens, see, ctx, why);
        if (!rc) rc = layer_report(job, part, (double)(i + 1) / s->count, why);
    }
    free(copy);
    return rc;
}

bool input_is_of(const struct layer_input *in, const char *name)
{
    for (int i = 0; i < in->count; i++)
        if (!strcmp(in->tensors[i], name)) return true;
    return false;
}
