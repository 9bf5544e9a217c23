/* engine/import/quantized_internal.h - what the readers of quantized matrices share. */
#ifndef QDYNO_ENGINE_IMPORT_QUANTIZED_INTERNAL_H
#define QDYNO_ENGINE_IMPORT_QUANTIZED_INTERNAL_H

#include "engine/import/quantized.h"

enum { LINEAR_COLS_MOST = 1 << 18 };

/* Find a matrix in the form of one method. `stem`: the name without ".weight". *l is zero. *found false: the
 * checkpoint has this matrix in another form. */
typedef enum err_code linear_read_fn(bool *found, struct linear *l, struct checkpoint *c, const char *stem,
                                     struct err *why);
linear_read_fn gptq_read, awq_read, packed_read, hqq_read;                              /* linear_groups.c */
linear_read_fn nf4_read, int8_read, rows_read, nvfp4_read, mxfp4_read, fp8_blocks_read; /* linear_blocks.c */

/* The tensor stem.suffix, copied to *out and marked as used. False: there is none. */
bool linear_take(struct st_tensor *out, const struct checkpoint *c, const char *stem, const char *suffix);
/* Check type and shape (-1: any size). ERR_FORMAT. */
enum err_code linear_expect(const struct st_tensor *t, enum st_type type, int dims, const int64_t *shape,
                            struct err *why);
/* A number of a tensor of F16, BF16 or F32, and whether binary16 holds all of them exactly. */
float linear_number(const struct st_tensor *t, int64_t i);
enum err_code linear_check_half(const struct st_tensor *t, struct err *why);

/* AWQ: nibble i of a word is output 8c + (0, 2, 4, 6, 1, 3, 5, 7)[i]; so output k is in nibble AWQ_PLACE[k].
 */
extern const int AWQ_PLACE[8];

static inline uint32_t word_at(const struct st_tensor *t, int64_t i)
{
    const unsigned char *p = t->data + i * 4;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The options of config.json for quantization, or of quantize_config.json; NULL: none. */
const json_t *linear_options(const struct checkpoint *c);

#endif
