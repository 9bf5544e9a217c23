/* engine/quant/calibration_internal.h - the fields of a calibration, for the files that create one. Internal.
 */
#ifndef QDYNO_ENGINE_QUANT_CALIBRATION_INTERNAL_H
#define QDYNO_ENGINE_QUANT_CALIBRATION_INTERNAL_H

#include "engine/quant/calibration.h"

struct calibration {
    struct arena memory; /* owns everything below */
    const char *text, *model_name, *line;
    char model[HASH_HEX];
    bool bundled_text, imatrix;
    int tokens;
    int64_t sequences;
    int32_t *ids; /* [sequences][tokens] token ids of the text; NULL: unknown */
    int32_t bos;  /* replaces the first id of each sequence when the model runs; -1: nothing does */
    struct calibration_input *inputs;
    int input_count, input_cap;
    struct calibration_name { /* one for every matrix, sorted by name once finished */
        const char *name;
        int input;
    } * names;
    int name_count;
    struct name_index listed; /* while a file is read: names of the matrices so far */
};

/* The per-column arrays of an input, in the order they have in the file: mean_abs, max_abs, min, max. */
enum { CALIBRATION_COLUMNS = 4 };
float **calibration_column(struct calibration_input *in, int i);

/* calibration_new: an empty calibration. calibration_add: a new input read by `count` matrices, with memory
 * for the sums and, if batches > 0, for everything else except the histograms. NULL: out of memory. */
struct calibration *calibration_new(void);
struct calibration_input *calibration_add(struct calibration *c, const char *const *tensors, int count,
                                          int64_t cols, int parts, int64_t batches);

/* Note matrices that a file lists, before anything is read for them: a list that repeats one name a million
 * times must not become a million copies of its statistics. The names must outlive the calibration.
 * ERR_FORMAT: one is listed already; ERR_NOMEM. */
enum err_code calibration_list(struct calibration *c, const char *const *names, int count, struct err *why);

/* Call once all inputs are added: computes means from sums, sorts names, checks all values. ERR_FORMAT: no
 * inputs, a matrix listed twice, impossible values; ERR_NOMEM. */
enum err_code calibration_finish(struct calibration *c, struct err *why);

/* Parse the legacy binary format of importance matrices. `path` is for messages. */
enum err_code imatrix_parse(struct calibration **out, const void *bytes, size_t size, const char *path,
                            struct err *why);

/* Write a GGUF file: everything, or only the importance matrix that llama.cpp reads. */
enum calibration_parts { CALIBRATION_ALL, CALIBRATION_IMATRIX };
enum err_code calibration_write(const struct calibration *c, const char *path, enum calibration_parts parts,
                                struct err *why);
/* Whether llama.cpp's importance matrices contain this matrix: only those of layers. */
bool imatrix_holds(const char *name);

/* Run the model on a text and collect statistics (see calibration_obtain). */
struct calibration_text {
    const char *name;
    bool bundled;
    const char *bytes;
    size_t n;
};
enum err_code calibration_collect(struct calibration **out, const struct gguf *g,
                                  const struct calibration_text *text, const struct calibration_options *o,
                                  struct err *why);

#endif
