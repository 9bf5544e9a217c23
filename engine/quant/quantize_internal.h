/* engine/quant/quantize_internal.h - state of one quantization, shared by quantize*.c. Internal. */
#ifndef QDYNO_ENGINE_QUANT_QUANTIZE_INTERNAL_H
#define QDYNO_ENGINE_QUANT_QUANTIZE_INTERNAL_H

#include "engine/quant/methods.h"

/* One tensor of the source and how it will be converted. */
struct unit {
    const struct gguf_tensor *source;
    const struct format *format; /* in the new file */
    bool converts;               /* its bytes will differ from the source's */
    bool dequantizes;            /* converts from a quantized format to the floats that its values mean */
    bool drops;                  /* not in the new file: it belongs to a matrix that is dequantized */
    bool by_method;              /* converts, and the method encodes this format (else: round to nearest) */
    int layer;                   /* -1: belongs to no layer */
    struct companion_tensor companion[COMPANION_COUNT];
    int companions;
};

struct quantization {
    const struct quantize_options *options;
    const struct gguf *source;
    struct params params; /* method NULL: the recipe names none */
    struct threadpool *pool;
    struct gguf_writer *writer;
    struct calibration *calibration; /* NULL: none */
    struct unit *units;              /* [gguf_tensor_count] */
    int64_t count;
    int64_t done, total; /* bytes of the source, for progress */
    int64_t layer_bytes; /* source bytes of the layer being converted */
    int64_t clipped;     /* values of the tensor being converted that are beyond the range of its format */
};

/* Decide how each tensor is converted, from headers alone. q->units is owned by the caller. Errors: see
 * quantize_file. */
enum err_code units_plan(struct quantization *q, struct err *why);
/* Whether every tensor in a format that needs importance has statistics of its inputs; after
 * quantize_calibrate. ERR_USAGE names the first that has none. */
enum err_code units_check_importance(const struct quantization *q, struct err *why);
/* Set the kinds and sizes of the unit's companion tensors. */
void unit_list_companions(const struct quantization *q, struct unit *u);

/* Set q->calibration if the method needs one. ERR_USAGE: calib= cannot be used with this method. */
enum err_code quantize_calibrate(struct quantization *q, struct err *why);
/* Log how many columns have so little importance that it was raised, if any. */
void quantize_note_floored(const struct quantization *q);
/* Token ids of up to s->count sequences of s->tokens from the calibration's text; s->count is set to the
 * number found. *ids [count][tokens] is owned by the caller. ERR_USAGE: the calibration has no text. */
enum err_code quantize_samples(const struct quantization *q, struct samples *s, int32_t **ids,
                               struct err *why);

int64_t unit_rows(const struct unit *u);

/* The job that a method gets for this unit, without x and out. */
struct tensor_job unit_job(const struct quantization *q, const struct unit *u);

/* Read, convert and write one tensor. ERR_FORMAT: a value is not finite. */
enum err_code unit_write(struct quantization *q, struct unit *u, struct err *why);

/* Decode the unit's values to x [rows][cols] on all threads. ERR_FORMAT: a value is not finite. */
enum err_code unit_load(struct quantization *q, const struct unit *u, float *x, struct err *why);

/* Encode job->x into job->out, by the method's `tensor` or `rows`, else rounded to nearest. */
enum err_code unit_encode(struct quantization *q, const struct unit *u, struct tensor_job *job,
                          struct err *why);
/* Allocate the data of the job's companion tensors; companions_free frees them. */
enum err_code companions_alloc(struct tensor_job *job, struct err *why);
void companions_free(struct tensor_job *job);
/* Write an encoded job and its companion tensors to the file. */
enum err_code unit_put(struct quantization *q, const struct unit *u, const struct tensor_job *job,
                       struct err *why);
/* Encoded rows of a unit. */
struct checked {
    const float *x; /* [rows][columns] what they were encoded from; NULL: they are the source's */
    const void *out;
    int64_t first_row, rows;
    bool clips; /* add values that the format clipped to q->clipped */
};
/* quantize_check.c: whether all values that were encoded in this format are finite numbers. ERR_FORMAT names
 * the tensor, the first bad place, and what to do. */
enum err_code encoded_check(struct quantization *q, const struct unit *u, const struct format *format,
                            const struct checked *what, struct err *why);
/* The same of the job's companion tensors in floats. */
enum err_code companions_check(const struct tensor_job *job, struct err *why);
/* Log how many values of the unit were clipped, if any. */
void quantize_note_clipped(struct quantization *q, const struct unit *u);

/* Whether an earlier, interrupted run already wrote this unit. */
bool unit_finished(const struct quantization *q, const struct unit *u);

/* Convert the tensors of all layers with the method's `layer`. */
enum err_code layers_quantize(struct quantization *q, struct err *why);

/* f32, f16 or bf16? */
bool format_is_float(const struct format *f);

/* Set *why to how tensor `is` of a made file (NULL: none) differs from its plan. Returns ERR_FORMAT. */
enum err_code quantize_tensor_mismatch(const struct tensor_plan *t, const struct gguf_tensor *is,
                                       struct err *why);

/* Count `bytes` of the source as done and report progress. ERR_CANCELLED. */
enum err_code quantize_report(struct quantization *q, int64_t bytes, struct err *why);

#endif
