/* engine/quant/layer_samples.h - a layer run on samples while its numbers change. Internal to engine/quant/.
 */
#ifndef QDYNO_ENGINE_QUANT_LAYER_SAMPLES_H
#define QDYNO_ENGINE_QUANT_LAYER_SAMPLES_H

#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "engine/quant/methods.h"

/* From here on the layer runs with the job's own arrays: matrices as they are at each call, vectors as they
 * are now (bind again when they changed). layer_unbind: with the source's. */
enum err_code layer_bind(struct layer_job *job, struct err *why);
enum err_code layer_unbind(struct layer_job *job, struct err *why);

/* A part of the method's work, as shares of it. */
struct share {
    double from, to;
};
/* `done` of the share is done, 0 .. 1. ERR_CANCELLED. */
enum err_code layer_report(struct layer_job *job, struct share part, double done, struct err *why);

/* Every sample through the layer, seen by `see` (may be NULL). With advance, the samples are at the layer's
 * exit afterwards, else they stay as they are. */
enum err_code samples_run(struct layer_job *job, bool advance, layer_observer *see, void *ctx,
                          struct share part, struct err *why);

/* Is matrix `name` among those that read this input? */
bool input_is_of(const struct layer_input *in, const char *name);

#endif
