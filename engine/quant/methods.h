/* engine/quant/methods.h - what single methods are given to work on, and what they give to the table.
 * Internal to engine/quant/.
 *
 * The driver (quantize.c) reads, checks, threads, writes, resumes and reports; a method only chooses numbers:
 *   rows    stateless, rows by themselves: called by all threads on pieces of a tensor; nothing is kept
 *   tensor  one whole matrix in memory
 *   layer   all of one layer in memory as f32, to change and, where the method must, to encode by itself
 * Per matrix the driver takes `layer`'s encoding where there is one, else `tensor`, else `rows`. Matrices
 * whose format is not among the method's own (rules, fall-backs) are rounded to nearest. */
#ifndef QDYNO_ENGINE_QUANT_METHODS_H
#define QDYNO_ENGINE_QUANT_METHODS_H

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "engine/quant/quant.h"

struct calibration_input; /* engine/quant/calibration.h */
struct calibration;
struct layers; /* engine/layers.h */

/* A tensor that lies beside a matrix. */
struct companion_tensor {
    enum companion_kind what;
    int64_t size; /* elements; of COMPANION_OUTLIER_WEIGHTS n * rows */
    void *data;   /* zeroed memory of the driver's: the method fills it */
};

struct tensor_job {
    const char *name; /* of the matrix: "blk.0.attn_q.weight" */
    const struct format *format;
    struct params params;
    int64_t rows, cols;
    const struct calibration_input *input; /* what its inputs were like; NULL: not known */
    float *x;                              /* `tensor` only: [rows][cols], the method may change it */
    void *out;                             /* `tensor` only: rows * format_row_bytes */
    struct companion_tensor companion[COMPANION_COUNT];
    int companions;
    struct threadpool *pool; /* `tensor` and `layer` only */
};
struct companion_tensor *job_companion(struct tensor_job *job,
                                       enum companion_kind what); /* NULL: not declared */
/* What `rows` is, and the one that most methods use: to the nearest, by the format's own rule. */
typedef void rows_fn(const struct tensor_job *job, const float *x, void *out, int64_t rows);
rows_fn nearest_rows;
/* For `tensor`: all of job->x into job->out by rows, on all threads. */
void job_encode_rows(struct tensor_job *job, rows_fn *rows);

struct layer_matrix {
    struct tensor_job
        job; /* x and out as in `tensor`; format == the source's own: it will not be converted */
    enum slot slot;
    bool converts; /* it is to be encoded; false: out is NULL, x is written as it then is */
    bool changed;  /* set it when x was changed in a matrix that does not convert */
    bool encoded;  /* set it when out and sides are filled */
};
struct layer_vector { /* norm or bias */
    const char *name;
    enum slot slot;
    float *x; /* [n], may be changed */
    int64_t n;
    bool changed; /* set it then */
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
