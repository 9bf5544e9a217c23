/* engine/quant/group_rows.h - what methods share that choose codes in groups by themselves: which format that
 * is, and the way from codes to its blocks. Internal to engine/quant/. */
#ifndef QDYNO_ENGINE_QUANT_GROUP_ROWS_H
#define QDYNO_ENGINE_QUANT_GROUP_ROWS_H

#include "engine/quant/methods.h"

/* Their rows of `params`, and what these can mean. */
#define GROUP_BITS_PARAM                                                                                     \
    {                                                                                                        \
        .name = "bits", .aliases = "nbits w_bit wbits", .kind = PARAM_INT, .choices = "2 3 4 8",             \
        .otherwise = "4", .help = "bits of a code"                                                           \
    }
#define GROUP_SIZE_PARAM                                                                                     \
    {                                                                                                        \
        .name = "group_size", .aliases = "group q_group_size", .kind = PARAM_INT, .choices = "-1 32 64 128", \
        .otherwise = "128", .help = "inputs under one scale; -1: all of a row"                               \
    }
#define GROUP_FORMATS "u4_g128 u4_g64 u4_g32 u3_g128 u3_g64 u2_g128 u2_g64 u8_g128 u8_g64"

/* A method's `format` and `check` for them. */
const char *group_format_of(const struct params *p); /* NULL: group_check refuses it */
enum err_code group_check(const struct params *p, struct err *why);

/* Bits and group of one matrix: what its format says, and whole rows where group_size is -1. ERR_USAGE when
 * the format contradicts parameters that were given. */
enum err_code group_of_job(const struct tensor_job *job, int *bits, int64_t *group, struct err *why);

/* Weight [row][i] = scales[row][i / group] * (codes[row][i] - zeros[row][i / group]). */
struct group_matrix {
    const uint8_t *codes;        /* [rows][cols] */
    const float *scales, *zeros; /* [rows][cols / group] */
    int64_t group;               /* a multiple of the format's blocks */
};
/* Into job->out, on the job's threads. */
void group_rows_pack(const struct tensor_job *job, const struct group_matrix *m);

#endif
