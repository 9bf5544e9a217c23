/* engine/quant/group_rows.h - shared by methods that choose codes in groups (GPTQ, AWQ): their common
 * parameters, the format these imply, and packing of codes into blocks. Internal to engine/quant/. */
#ifndef QDYNO_ENGINE_QUANT_GROUP_ROWS_H
#define QDYNO_ENGINE_QUANT_GROUP_ROWS_H

#include "engine/quant/methods.h"

/* Their rows of `params`, and the formats that these can imply. */
#define GROUP_BITS_PARAM                                                                                     \
    {                                                                                                        \
        .name = "bits", .aliases = "nbits w_bit wbits", .kind = VALUE_INT, .choices = "2 3 4 8",             \
        .otherwise = "4", .help = "bits of a code"                                                           \
    }
#define GROUP_SIZE_PARAM                                                                                     \
    {                                                                                                        \
        .name = "group_size", .aliases = "group q_group_size", .kind = VALUE_INT, .choices = "-1 32 64 128", \
        .otherwise = "128", .help = "inputs that share a scale; -1: the whole row"                           \
    }
#define GROUP_FORMATS "u4_g128 u4_g64 u4_g32 u3_g128 u3_g64 u2_g128 u2_g64 u8_g128 u8_g64"

/* The methods' `format` and `check`. */
const char *group_format_of(const struct params *p); /* NULL: no such format; group_check rejects it */
enum err_code group_check(const struct params *p, struct err *why);

/* Bits and group size of one matrix, from its format; the whole row where group_size is -1. ERR_USAGE when
 * the format contradicts parameters that were given. */
enum err_code group_of_job(const struct tensor_job *job, int *bits, int64_t *group, struct err *why);

/* Weight [row][i] = scales[row][i / group] * (codes[row][i] - zeros[row][i / group]). */
struct group_matrix {
    const uint8_t *codes;        /* [rows][cols] */
    const float *scales, *zeros; /* [rows][cols / group] */
    int64_t group;               /* a multiple of the format's block */
};
/* Pack into job->out, on the job's threads. */
void group_rows_pack(const struct tensor_job *job, const struct group_matrix *m);

#endif
