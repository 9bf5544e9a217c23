/* engine/quant/quantize_internal.h - one quantization in progress, shared by the driver's files. */
#ifndef QDYNO_ENGINE_QUANT_QUANTIZE_INTERNAL_H
#define QDYNO_ENGINE_QUANT_QUANTIZE_INTERNAL_H

#include "engine/quant/methods.h"

/* A tensor of the source, and what becomes of it. */
struct unit {
    const struct gguf_tensor *source;
    const struct format *format; /* in the new file */
    bool converts;               /* other numbers than the source's, or in another format */
    bool by_method;              /* converts, and the method makes that format (else: to the nearest) */
    int layer;                   /* -1: of no layer */
    struct companion_tensor companion[COMPANION_COUNT];
    int companions;
};

struct quantization {
    const struct quantize_options *options;
    const struct gguf *source;
    struct params params; /* method NULL: none */
    struct threadpool *pool;
    struct gguf_writer *writer;
    struct calibration *calibration; /* NULL: none */
    struct unit *units;              /* [gguf_tensor_count] */
    int64_t count;
    int64_t done, total; /* source bytes, for progress */
    int64_t layer_bytes; /* of the layer in work */
};

/* What becomes of each tensor, from headers alone; q->units owned. Errors: see quantize_file. */
enum err_code units_plan(struct quantization *q, struct err *why);
/* Its companion tensors' names and sizes. */
void unit_list_companions(const struct quantization *q, struct unit *u);

/* q->calibration, where the method has use for one. ERR_USAGE: it cannot be used for this. */
enum err_code quantize_calibrate(struct quantization *q, struct err *why);
/* Cut s->count samples of s->tokens, or fewer and shorter ones, from the calibration's text; s becomes what
 * there is. *ids [count][tokens] owned. */
enum err_code quantize_samples(const struct quantization *q, struct samples *s, int32_t **ids,
                               struct err *why);

int64_t unit_rows(const struct unit *u);

/* What a method is told about a unit; x and out not set. */
struct tensor_job unit_job(const struct quantization *q, const struct unit *u);

/* The unit into the file, from the source. ERR_FORMAT: a value that is not finite. */
enum err_code unit_write(struct quantization *q, struct unit *u, struct err *why);

/* Its values as f32 [rows][cols] into x, on all threads. ERR_FORMAT as above. */
enum err_code unit_load(struct quantization *q, const struct unit *u, float *x, struct err *why);

/* Encode x [rows][cols], whatever makes it: the method or the nearest number, into the job's out. */
enum err_code unit_encode(struct quantization *q, const struct unit *u, struct tensor_job *job,
                          struct err *why);
/* Memory for its companion tensors' data, in job->companion. companions_free gives it back. */
enum err_code companions_alloc(struct tensor_job *job, struct err *why);
void companions_free(struct tensor_job *job);
/* A finished job's bytes and companion tensors into the file. */
enum err_code unit_put(struct quantization *q, const struct unit *u, const struct tensor_job *job,
                       struct err *why);
bool unit_finished(const struct quantization *q, const struct unit *u);

/* All units of all layers through the method's `layer`. */
enum err_code layers_quantize(struct quantization *q, struct err *why);

/* `bytes` more of the source are done. ERR_CANCELLED. */
enum err_code quantize_report(struct quantization *q, int64_t bytes, struct err *why);

#endif
