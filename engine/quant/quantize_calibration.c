/* Obtains the activation statistics and the sample text that a method needs. */
#include <inttypes.h>

#include <stdlib.h>

#include "engine/arch/arch.h"
#include "engine/quant/calibration.h"
#include "engine/quant/quantize_internal.h"

/* Calibrating keeps the file's progress at 0, but lets the user cancel. */
static bool calibration_progress(void *ctx, double done)
{
    const struct quantize_options *o = ctx;
    (void)done;
    return !o->progress || o->progress(o->ctx, 0);
}

/* Most methods use figures of a whole tensor's inputs, which for experts would mix rows that other matrices
 * see. */
static enum err_code method_check_experts(const struct quantization *q, const struct method *m,
                                          struct err *why)
{
    struct model_shape shape;
    const enum err_code rc = m->experts ? ERR_OK : model_shape_read(&shape, q->source, why);
    if (rc || m->experts || !shape.experts) return rc;
    return err_set(
        why, ERR_FORMAT,
        "method %s uses activation statistics, and this model has experts, each of which sees other "
        "rows: use a GGUF format with an importance matrix (q4_K_M:imatrix=true), or a method "
        "without calibration (`qdyno methods`)",
        m->name);
}

enum err_code quantize_calibrate(struct quantization *q, struct err *why)
{
    const struct method *m = q->params.method;
    const char *path = config_text(q->options->config, KNOB_CALIB);
    int count = 0, tokens = 0;
    const enum calibration_need need = method_needs(&q->params);
    if (need == CALIBRATION_NONE) {
        if (!path[0]) return ERR_OK;
        return err_set(why, ERR_USAGE, "calib=%s: method %s%s uses weights only, so it takes no calibration",
                       path, m ? m->name : "none", m && m->needs ? " with these parameters" : "");
    }
    if (need == CALIBRATION_OPTIONAL && !path[0]) return ERR_OK;
    const enum err_code known = method_check_experts(q, m, why);
    if (known) return known;
    if (m->samples) m->samples(&q->params, &count, &tokens);
    const struct calibration_options o = { .path = path,
                                           .threads = q->options->threads,
                                           .force = config_choice(q->options->config, KNOB_FORCE),
                                           .ctx = tokens,
                                           .tokens = (int64_t)count * tokens,
                                           .progress = calibration_progress,
                                           .progress_ctx = (void *)q->options,
                                           .log = q->options->log };
    if (!path[0])
        log_write(q->options->log, LOG_WARN,
                  "method %s uses activation statistics and calib= is not given: using the bundled text",
                  m->name);
    const enum err_code rc = calibration_obtain(&q->calibration, q->source, &o, why);
    return rc && path[0] ? err_prefix(why, "calib=%s", path) : rc;
}

void quantize_note_floored(const struct quantization *q)
{
    int64_t floored = 0, columns = 0, matrices = 0;
    for (int64_t i = 0; i < q->count; i++) {
        const struct unit *u = &q->units[i];
        const struct calibration_input *in = u->converts && u->by_method && u->format->weighted
                                                 ? calibration_find(q->calibration, u->source->name)
                                                 : NULL;
        if (!in || !q->params.method->rows || !in->floored) continue;
        floored += in->floored;
        columns += in->parts * in->cols;
        matrices++;
    }
    if (floored)
        log_write(
            q->options->log, LOG_WARN,
            "%" PRId64 " of %" PRId64 " columns in %" PRId64
            " matrices have an importance of 0 or nearly 0 in %s: they count with 1e-8 of the mean of their "
            "matrix (all equally where all are 0); a longer calibration text may reach them",
            floored, columns, matrices, calibration_name(q->calibration));
}

enum err_code quantize_samples(const struct quantization *q, struct samples *s, int32_t **ids,
                               struct err *why)
{
    const int available = calibration_samples(q->calibration, s->tokens, NULL, 0);
    *ids = NULL;
    if (!available)
        return err_set(
            why, ERR_USAGE,
            "method %s runs the model on samples of %d tokens, and %s contains none: give calib= a file "
            "made by qdyno calibrate (an imatrix contains no text), or a longer text",
            q->params.method->name, s->tokens, calibration_name(q->calibration));
    s->count = MIN(s->count, available);
    *ids = malloc((size_t)s->count * (size_t)s->tokens * sizeof **ids);
    if (!*ids) return err_set(why, ERR_NOMEM, "out of memory for %d samples", s->count);
    calibration_samples(q->calibration, s->tokens, *ids, s->count);
    return ERR_OK;
}
