/* engine/quant/group_rows.h - what methods share that choose codes in groups by themselves: which format that
 * is, and the way from codes to its blocks. Internal to engine/quant/. */
#ifndef QDYNO_ENGINE_QUANT_GROUP_ROWS_H
#define QDYNO_ENGINE_QUANT_GROUP_ROWS_H

#include "engine/quant/methods.h"

/* The group format of so many bits whose blocks make up groups of that size: equal, or (group_size -1: all of
 * a row) the smallest, which fits the most rows and repeats the group's scale in every block. NULL: there is
 * none. */
const char *group_format_name(int64_t bits, int64_t group_size);

/* A method's `check` for parameters bits and group_size. */
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
