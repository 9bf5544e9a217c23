/* engine/quant/calibration_internal.h - a calibration from the inside: for the files that make one. */
#ifndef QDYNO_ENGINE_QUANT_CALIBRATION_INTERNAL_H
#define QDYNO_ENGINE_QUANT_CALIBRATION_INTERNAL_H

#include "engine/quant/calibration.h"

struct calibration {
    struct arena memory; /* everything below */
    const char *text, *model_name, *line;
    char model[HASH_HEX];
    bool bundled_text, imatrix;
    int tokens;
    int64_t sequences;
    int32_t *ids; /* [sequences][tokens] as the text has them; NULL: not known */
    int32_t bos;  /* put in the place of a sequence's first id; -1: nothing is */
    struct calibration_input *inputs;
    int input_count, input_cap;
    struct calibration_name { /* of every matrix, in the order of names once finished */
        const char *name;
        int input;
    } * names;
    int name_count;
};

/* Columns' arrays of an input, by the names they have in the file; sums first. */
enum { CALIBRATION_COLUMNS = 4 };
float **calibration_column(struct calibration_input *in, int i); /* mean_abs max_abs min max */

/* An empty one, and an input of it with `count` matrices, with room for sums or (batches > 0) for everything
 * but the histograms. NULL: out of memory. */
struct calibration *calibration_new(void);
struct calibration_input *calibration_add(struct calibration *c, const char *const *tensors, int count,
                                          int64_t cols, int64_t batches);

/* When all inputs are there: means from sums, names in order, the line that describes it. ERR_FORMAT: no
 * input at all, a matrix twice, numbers that cannot be; ERR_NOMEM. */
enum err_code calibration_finish(struct calibration *c, struct err *why);

/* The legacy format of imatrix files.
 * `path` for messages. */
enum err_code imatrix_parse(struct calibration **out, const void *bytes, size_t size, const char *path,
                            struct err *why);

/* As GGUF: all of it, or what others know of the matrices they know. */
enum calibration_parts { CALIBRATION_ALL, CALIBRATION_IMATRIX };
enum err_code calibration_write(const struct calibration *c, const char *path, enum calibration_parts parts,
                                struct err *why);
bool imatrix_holds(const char *name); /* is it a matrix whose inputs are in the field's files? */

/* Run the model (see calibration_obtain) on a text. */
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
