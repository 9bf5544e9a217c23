/* engine/quant/calibration.h - activation statistics: what the inputs of a model's matrices looked like while
 * it read a calibration text.
 *
 * One pass over the text collects everything that the methods need. The result is saved in a GGUF file whose
 * general.type is "imatrix", so llama.cpp's tools can read its importance matrix; further statistics are
 * stored under qdyno.* keys (docs/formats.md). Importance matrices written by llama.cpp, in both of its
 * formats, load as a calibration that contains mean squares only. */
#ifndef QDYNO_QUANT_CALIBRATION_H
#define QDYNO_QUANT_CALIBRATION_H

#include "kernels/kernels.h"
#include "engine/quant/ranges.h"

struct gguf;

extern const char CALIBRATION_TEXT[]; /* path below share/ of the bundled stories, the default text */

/* Statistics of one input, shared by all matrices that are multiplied with it. Arrays by column are [cols].
 */
struct calibration_input {
    char **tensors; /* [tensor_count] names of those matrices */
    int tensor_count;
    int64_t cols;
    /* Matrices in each of these tensors: experts, or heads. Each has rows of its own, hence sums and a count
     * of its own; all other figures are over all of their rows. */
    int parts;
    int64_t count;       /* rows of all parts (in legacy imatrix files: chunks) */
    int64_t *part_count; /* [parts] divisors of sum_squares; 0: no row ever reached this matrix */
    float *sum_squares;  /* [parts][cols] sum of x^2, as stored in the file */
    /* [parts][cols] sum_squares / part_count, the diagonal second moment: importance of a column. Of a matrix
     * that no row reached: the mean over the rows of all. */
    float *mean_square;
    /* [parts][cols] what encoders weigh columns with: mean_square, of which the smallest are raised to a
     * floor, so that a block of columns that were never active keeps its weights; and divided by a power of
     * two where sums of squares would leave the range of f32. */
    float *importance;
    int64_t floored; /* columns of all parts that were raised */

    /* NULL and 0 in calibrations that come from an imatrix file. */
    float *mean_abs, *max_abs, *min, *max; /* over all tokens */
    int64_t batches;                       /* number of sequences */
    float *batch_min, *batch_max;          /* [batches] extremes over all columns of each sequence */
    struct histogram histogram;            /* over [low, high], as PyTorch's HistogramObserver builds it */
    struct histogram symmetric;            /* over [-high, high], odd number of bins, for range_entropy */
};

struct calibration; /* immutable after creation: any number of threads may read it */

/* Statistics of the input of matrix `tensor`; NULL: the calibration has none. */
const struct calibration_input *calibration_find(const struct calibration *c, const char *tensor);

/* Importance of the columns of matrix `part` of a tensor with rows of `cols` weights: [cols]. */
const float *calibration_importance(const struct calibration_input *in, int64_t cols, int64_t part);

/* Cut the calibration text's token ids into sequences of `tokens`, each starting with BOS if the model wants
 * one. Writes at most `cap` of them to ids [cap][tokens] (NULL: only count) and returns how many; 0 when the
 * text is unknown (imatrix files) or too short. */
int calibration_samples(const struct calibration *c, int tokens, int32_t *ids, int cap);

/* What a calibration was made from, for records and display. */
struct calibration_summary {
    const char *text;       /* a path, or "bundled text"; "" unknown */
    bool bundled_text;      /* the default text, because none was given */
    bool imatrix;           /* from an imatrix file: contains mean squares only */
    const char *model;      /* model_identity of the model it was made with; "" unknown */
    const char *model_name; /* "" unknown */
    int tokens;             /* in each sequence; 0 unknown */
    int64_t sequences;      /* (imatrix: chunks) */
    int inputs, matrices;
};
void calibration_describe(const struct calibration *c, struct calibration_summary *about);
const struct calibration_input *calibration_at(const struct calibration *c, int i); /* 0 .. inputs-1 */
/* One line: "12 sequences of 512 tokens of bundled text". Owned by c. */
const char *calibration_name(const struct calibration *c);

/* ---------------------------------------------------------------- files */

/* Load a calibration or an importance matrix (GGUF or legacy); the content decides which. *out is owned:
 * calibration_close. Errors: ERR_IO, ERR_NOMEM, ERR_FORMAT (another kind of file, truncated, a newer layout
 * version, impossible values). */
enum err_code calibration_load(struct calibration **out, const char *path, struct err *why);
enum err_code calibration_load_memory(struct calibration **out, const void *bytes, size_t size,
                                      struct err *why); /* bytes may be freed afterwards */
void calibration_close(struct calibration *c);          /* NULL is fine */

/* Write the whole calibration, atomically. ERR_USAGE when it comes from an imatrix file: most statistics are
 * missing. */
enum err_code calibration_save(const struct calibration *c, const char *path, struct err *why);

/* Write an importance matrix for llama.cpp, which contains only matrices of layers. Legacy format when the
 * path ends in ".dat", else GGUF. Atomic. */
enum err_code imatrix_save(const struct calibration *c, const char *path, struct err *why);

/* Check that the calibration belongs to this model file. ERR_USAGE: it was made with another model, or (from
 * imatrix files, which do not record the model) no matrix name or column count matches. */
enum err_code calibration_check(const struct calibration *c, const struct gguf *g, struct err *why);

/* ---------------------------------------------------------------- collecting */

struct calibration_options {
    const char *path; /* calibration or imatrix file, or a text; "": the bundled text */
    bool text_only;   /* treat path as a text whatever it contains */
    int threads;      /* 0: all physical cores */
    int ctx; /* tokens in a sequence; 0: CALIBRATION_CTX. Reduced to the model's training context, and so
              * that the text gives at least two sequences */
    int64_t tokens; /* use at most this many, in whole sequences; 0: CALIBRATION_TOKENS, below 0: all */
    enum precision precision; /* of matrix products; 0: PRECISION_HIGHEST */
    bool force;               /* run a model with unknown parts (force=on) */
    int64_t memory;           /* limit for activations in bytes; 0: a quarter of the free memory */
    bool (*progress)(void *ctx, double done); /* 0..1, may be NULL; false cancels (ERR_CANCELLED) */
    void *progress_ctx;
    const struct log *log;
};
enum { CALIBRATION_CTX = 512, CALIBRATION_TOKENS = 128 * CALIBRATION_CTX };

/* Load a calibration for `source`, or make one by running the model on a text cut into windows like those of
 * perplexity. The statistics do not depend on the number of threads or on the memory limit. Errors: as
 * calibration_load, calibration_check and model_open; ERR_USAGE (no tokenizer, text too short), ERR_FORMAT
 * (an input is not finite: names the matrix), ERR_ABSENT (the bundled text is not installed), ERR_CANCELLED.
 */
enum err_code calibration_obtain(struct calibration **out, const struct gguf *source,
                                 const struct calibration_options *o, struct err *why);

#endif
