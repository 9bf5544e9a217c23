/* engine/quant/calibration.h - what the inputs of a model's matrices were like while it read a text.
 *
 * Collected in one pass for all methods that look at activations, kept in a file. The file is GGUF with
 * general.type "imatrix", so that the field's quantizers can use the part they know; what only ours need is
 * beside it under qdyno.* (docs/formats.md). Importance matrices of others, in both of their formats, load as
 * a calibration that knows mean squares only. */
#ifndef QDYNO_QUANT_CALIBRATION_H
#define QDYNO_QUANT_CALIBRATION_H

#include "kernels/kernels.h"
#include "engine/quant/ranges.h"

struct gguf;

extern const char CALIBRATION_TEXT[]; /* of share/: stories to learn from, for when no text is named */

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
    struct histogram histogram;            /* over [low, high] of the data, as PyTorch's HistogramObserver */
    struct histogram symmetric;            /* over [-high, high], an odd number of bins: for range_entropy */
};

struct calibration; /* never changes once it is there: any number of threads may read it */

/* NULL: nothing is known of that matrix' input. */
const struct calibration_input *calibration_find(const struct calibration *c, const char *tensor);

/* Token ids of the text, cut anew into sequences of `tokens`, each beginning as the model wants a text to: at
 * most `cap` of them into ids [cap][tokens] (NULL: only counted). How many there are; 0 when the text is not
 * known (imatrix files) or too short. */
int calibration_samples(const struct calibration *c, int tokens, int32_t *ids, int cap);

/* What there is to say of it, for records and screens. */
struct calibration_summary {
    const char *text;       /* its name: a path, or "bundled text"; "" unknown */
    bool bundled_text;      /* nobody chose it */
    bool imatrix;           /* from somebody else's file: mean squares and nothing more */
    const char *model;      /* model_identity of the file it was made with; "" unknown */
    const char *model_name; /* "" unknown */
    int tokens;             /* of a sequence; 0 unknown */
    int64_t sequences;      /* (imatrix: chunks) */
    int inputs, matrices;
};
void calibration_describe(const struct calibration *c, struct calibration_summary *about);
const struct calibration_input *calibration_at(const struct calibration *c, int i); /* 0 .. inputs-1 */
/* In one line: "12 sequences of 512 tokens of bundled text". Owned by c. */
const char *calibration_name(const struct calibration *c);

/* ---------------------------------------------------------------- files */

/* *out owned: calibration_close. By content: ours, imatrix as GGUF, legacy imatrix. Errors: ERR_IO,
 * ERR_NOMEM, ERR_FORMAT (not such a file, cut off, newer than we know, numbers that cannot be). */
enum err_code calibration_load(struct calibration **out, const char *path, struct err *why);
enum err_code calibration_load_memory(struct calibration **out, const void *bytes, size_t size,
                                      struct err *why); /* bytes are not needed afterwards */
void calibration_close(struct calibration *c);          /* NULL is fine */

/* Atomic. ERR_USAGE for a calibration that came from an imatrix file: it lacks most of what belongs there. */
enum err_code calibration_save(const struct calibration *c, const char *path, struct err *why);

/* The part others know, of the matrices of layers only, as they do: legacy when the path ends in ".dat", else
 * GGUF. Atomic. */
enum err_code imatrix_save(const struct calibration *c, const char *path, struct err *why);

/* May it be used to quantize this file? ERR_USAGE: made with another model, or (imatrix files) no matrix of
 * this model in it, or one with another number of columns. */
enum err_code calibration_check(const struct calibration *c, const struct gguf *g, struct err *why);

/* ---------------------------------------------------------------- collecting */

struct calibration_options {
    const char *path; /* a calibration or imatrix file (loaded and checked), or a text; "": the bundled one */
    bool text_only;   /* path is a text whatever it looks like */
    int threads;      /* 0: all physical cores */
    int ctx; /* tokens of a sequence at most; 0: CALIBRATION_CTX. Fewer where the model was trained on less,
              * or the text is too short for two sequences */
    int64_t tokens; /* use so many at most, in whole sequences; 0: CALIBRATION_TOKENS, below 0: all */
    enum precision precision; /* of the products; 0: PRECISION_HIGHEST */
    int64_t memory;           /* bytes for activations at most; 0: a quarter of what is free */
    bool (*progress)(void *ctx, double done); /* 0..1, may be NULL; false cancels (ERR_CANCELLED) */
    void *progress_ctx;
    const struct log *log;
};
enum { CALIBRATION_CTX = 512, CALIBRATION_TOKENS = 128 * CALIBRATION_CTX };

/* What is known about the inputs of `source`, from a file, or by running the model on a text cut into windows
 * as perplexity is measured on. Sums do not depend on threads or memory. Errors: as calibration_load,
 * calibration_check and model_open; ERR_USAGE (no tokenizer, too little text), ERR_FORMAT (an input that is
 * not finite: names the matrix), ERR_ABSENT (no bundled text here), ERR_CANCELLED. */
enum err_code calibration_obtain(struct calibration **out, const struct gguf *source,
                                 const struct calibration_options *o, struct err *why);

#endif
