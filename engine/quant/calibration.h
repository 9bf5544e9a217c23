/* engine/quant/calibration.h - what the inputs of a model's matrices were like while it read a text.
 *
 * Collected in one pass for all methods that look at activations, kept in a file. The file is GGUF with
 * general.type "imatrix", so that the field's quantizers can use the part they know; what only ours need is
 * beside it under qdyno.* (docs/formats.md). Importance matrices of others, in both of their formats, load as
 * a calibration that knows mean squares only. */
#ifndef QDYNO_QUANT_CALIBRATION_H
#define QDYNO_QUANT_CALIBRATION_H

#include "engine/gguf.h"
#include "engine/quant/observers.h"

/* One input and the matrices that read it. Columns' arrays are [cols]. */
struct calibration_input {
    char **tensors; /* names of the matrices, at least one */
    int tensor_count;
    int64_t cols;
    int64_t count;      /* what sum_squares is divided by: tokens (of a legacy imatrix file: its chunks) */
    float *sum_squares; /* as in the file */
    float *mean_square; /* sum_squares / count: the importance of a column */

    /* NULL and 0 where an imatrix file did not know. */
    float *mean_abs, *max_abs, *min, *max; /* over all tokens */
    int64_t batches;                       /* sequences seen */
    float *batch_min, *batch_max;          /* [batches] over all columns, in order */
    struct histogram histogram;
    struct symmetric_histogram symmetric;
};

struct calibration {
    char *text;           /* its name: a path, or "bundled text"; "" when unknown */
    bool bundled_text;    /* nobody chose it */
    char model[HASH_HEX]; /* model_identity of the file it was made with; "" unknown (imatrix files) */
    char *model_name;     /* "" unknown */
    int tokens;           /* of a sequence (imatrix files: of a chunk; 0 unknown) */
    int64_t sequences;    /* chunks */
    int32_t *ids;         /* [sequences][tokens] to run the model on again; NULL: unknown */
    struct calibration_input *inputs;
    int input_count;
    int *by_name; /* internal: inputs of all tensors, sorted by name */
    int name_count;
};

/* *out owned: calibration_free. By content: ours, imatrix as GGUF, legacy imatrix. Errors: ERR_IO, ERR_NOMEM,
 * ERR_FORMAT (not such a file, cut off, newer than we know, numbers that cannot be). */
enum err_code calibration_load(struct calibration **out, const char *path, struct err *why);
void calibration_free(struct calibration *c); /* NULL is fine */

/* Does the file look like one that calibration_load should read, rather than a text? ERR_IO. */
enum err_code calibration_is_file(bool *out, const char *path, struct err *why);

/* Atomic. ERR_USAGE for a calibration that came from an imatrix file: it lacks most of what belongs there. */
enum err_code calibration_save(const struct calibration *c, const char *path, struct err *why);

/* The part others know, of the matrices of layers only, as they do: legacy when the path ends in ".dat", else
 * GGUF. Atomic. */
enum err_code imatrix_save(const struct calibration *c, const char *path, struct err *why);

/* NULL: nothing is known of that matrix' input. */
const struct calibration_input *calibration_find(const struct calibration *c, const char *tensor);

/* May it be used to quantize this file? ERR_USAGE: made with another model, or (imatrix files) no matrix of
 * this model in it, or one with another number of columns. */
enum err_code calibration_check(const struct calibration *c, const struct gguf *g, struct err *why);

/* ---------------------------------------------------------------- collecting */

struct calibrate_options {
    const char *text; /* [n] bytes */
    size_t n;
    const char *text_name;
    bool bundled_text;
    int threads;    /* 0: all physical cores */
    int ctx;        /* tokens of a sequence; 0: 512, or what the model was trained on if that is less */
    int64_t tokens; /* use so many at most, in whole sequences; 0: the whole text */
    int64_t memory; /* bytes for activations at most; 0: a quarter of what is free */
    bool (*progress)(void *ctx, double done); /* 0..1, may be NULL; false cancels (ERR_CANCELLED) */
    void *progress_ctx;
    const struct log *log;
};

/* Run the model on the text, cut into windows as perplexity is measured on. Sums do not depend on threads or
 * memory. Errors: as model_open; ERR_USAGE (no tokenizer, too little text), ERR_FORMAT (an input that is not
 * finite: names the matrix), ERR_CANCELLED. */
enum err_code calibrate(struct calibration **out, const struct gguf *g, const struct calibrate_options *o,
                        struct err *why);

#endif
