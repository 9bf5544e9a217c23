/* engine/quant/layer_samples.h - runs samples through a layer while a method changes its weights. Internal to
 * engine/quant/. */
#ifndef QDYNO_ENGINE_QUANT_LAYER_SAMPLES_H
#define QDYNO_ENGINE_QUANT_LAYER_SAMPLES_H

#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "engine/quant/methods.h"

/* layer_bind: make the layer compute with the job's arrays. Later changes to matrices take effect at once;
 * after changing vectors (norms, biases) bind again. layer_unbind: back to the source's tensors. */
enum err_code layer_bind(struct layer_job *job, struct err *why);
enum err_code layer_unbind(struct layer_job *job, struct err *why);

/* Part of a method's work on a layer: from .. to, as shares of the whole (0 .. 1). */
struct work_part {
    double from, to;
};
/* Report that `done` (0 .. 1) of this part is finished. ERR_CANCELLED. */
enum err_code layer_report(struct layer_job *job, struct work_part part, double done, struct err *why);

/* Run every sample through the layer; `see` (may be NULL) observes the inputs of its matrices. With
 * SAMPLES_ADVANCE the samples become the layer's outputs, else they stay the layer's inputs. */
enum samples_mode { SAMPLES_KEEP, SAMPLES_ADVANCE };
enum err_code samples_run(struct layer_job *job, enum samples_mode mode, layer_observer *see, void *ctx,
                          struct work_part part, struct err *why);

/* Whether matrix `name` is multiplied with this input. */
bool input_is_of(const struct layer_input *in, const char *name);

#endif
