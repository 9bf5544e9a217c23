/* engine/quant/methods.h - the data that a method works on, and the rows of METHODS.
 * Internal to engine/quant/.
 *
 * The driver (quantize*.c) reads and checks the source, distributes work over threads, and writes the file. A
 * method only chooses numbers, in one of three functions:
 *   rows    encodes rows independently of each other; all threads call it on parts of a tensor
 *   tensor  encodes one whole matrix in memory
 *   layer   gets all tensors of one layer in memory as f32; may change them and may encode matrices itself
 * For each matrix the driver uses what `layer` encoded, else calls `tensor`, else `rows`. Matrices in a
 * format that the method cannot encode (from rules and fall-backs) are rounded to nearest. */
#ifndef QDYNO_ENGINE_QUANT_METHODS_H
#define QDYNO_ENGINE_QUANT_METHODS_H

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "engine/quant/quant.h"

struct calibration_input; /* engine/quant/calibration.h */
struct calibration;
struct layers; /* engine/model/model.h */

/* A small tensor stored beside a matrix (engine/arch/companion.c). */
struct companion_tensor {
    enum companion_kind what;
    int64_t size; /* number of elements; of COMPANION_OUTLIER_WEIGHTS: outlier columns * rows */
    void *data;   /* owned by the driver, zeroed; the method fills it */
};

/* One matrix to encode. */

struct tensor_job {
    const char *name; /* of the matrix: "blk.0.attn_q.weight" */
    const struct format *format;
    struct params params;
    int64_t rows, cols;
    const struct calibration_input *input; /* activation statistics of its input; NULL: none */
    const float *importance;               /* `rows`: [cols] of the columns of these rows; NULL: unknown */
    float *x;                              /* `tensor`: [rows][cols] weights, which the method may change */
    void *out;                             /* `tensor`: rows * format_row_bytes, to be filled */
    struct companion_tensor companion[COMPANION_COUNT];
    int companions;
    struct threadpool *pool; /* `tensor` and `layer` */
};
/* The job's companion tensor of this kind; NULL: the method did not declare one. */
struct companion_tensor *job_companion(struct tensor_job *job, enum companion_kind what);

/* Type of a method's `rows`: encode x [rows][cols] into out. nearest_rows is the one that most methods use:
 * round to nearest by the format's own encoder. */
typedef void rows_fn(const struct tensor_job *job, const float *x, void *out, int64_t rows);
rows_fn nearest_rows;
/* Encode all of job->x into job->out with `rows`, on all threads. For use in `tensor`. */
void job_encode_rows(struct tensor_job *job, rows_fn *rows);

struct layer_matrix {
    struct tensor_job job; /* x and out as in `tensor` */
    enum slot slot;
    bool converts; /* to be encoded in job.format; false: keeps the source's format, out is NULL */
    bool changed;  /* the method sets it after changing x of a matrix that does not convert */
    bool encoded;  /* the method sets it after filling out and the companion tensors */
};
struct layer_vector { /* a norm or bias */
    const char *name;
    enum slot slot;
    float *x; /* [n] values, which the method may change */
    int64_t n;
    bool changed; /* the method sets it after changing x */
};

/* Hidden states at the entry of a layer: of each sample, `tokens` rows. */
struct samples {
    int count, tokens;
    int64_t width;
    float *x; /* [count][tokens][width] */
};

struct layer_job {
    int layer;
    const struct gguf *source;
    const struct arch *arch;
    const struct model_shape *shape;
    struct params params;
    struct layer_matrix *matrices;
    int matrix_count;
    struct layer_vector *vectors;
    int vector_count;
    const struct calibration *calibration; /* NULL: none */
    struct layers *model;                  /* the source, to run it by layers; NULL without `samples` */
    struct samples *samples; /* at this layer's entry; `layer` leaves them at its exit; NULL: none */
    struct threadpool *pool;
    const struct log *log; /* what could not be done and why; may be NULL */
    /* Part of the layer's work that is done, 0..1; false: stop with ERR_CANCELLED. Never NULL. */
    bool (*progress)(void *ctx, double done);
    void *progress_ctx;
};
struct layer_matrix *layer_matrix_at(struct layer_job *job, enum slot slot); /* NULL when it has none */
struct layer_vector *layer_vector_at(struct layer_job *job, enum slot slot);

/* Rows of METHODS, one file each. */
extern const struct method METHOD_RTN;
extern const struct method METHOD_GGUF;
extern const struct method METHOD_HQQ, METHOD_QUANTO;
extern const struct method METHOD_NF4, METHOD_FP4;
extern const struct method METHOD_EETQ, METHOD_LLM_INT8, METHOD_INT8_DYNAMIC, METHOD_INT8_STATIC;
extern const struct method METHOD_FP8, METHOD_MXFP4, METHOD_TF32;
extern const struct method METHOD_GPTQ, METHOD_AWQ, METHOD_SMOOTHQUANT;

#endif
