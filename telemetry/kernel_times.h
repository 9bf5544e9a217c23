/* telemetry/kernel_times.h - how long our own kernels take on a machine (part of the door telemetry.h).
 *
 * Ceilings say what a machine could do, these say what it does: what the advisor's cost model is made of. In
 * seconds, for one thread [0] and for all [1]; 0 is not measured. */
#ifndef QDYNO_TELEMETRY_KERNEL_TIMES_H
#define QDYNO_TELEMETRY_KERNEL_TIMES_H

#include "kernels/kernels.h"

enum { KERNEL_ROWS = 5, KERNEL_READS = 6 };
/* Attention is timed with so many heads of so many elements. */
enum { KERNEL_HEADS = 32, KERNEL_KV_HEADS = 8, KERNEL_HEAD_DIM = 64 };
/* Products with square matrices of so many columns, and with small ones of so many weights, whose rows are
 * long or short. */
enum { KERNEL_COLS = 2048, KERNEL_NEAR_WEIGHTS = 768 * 256, KERNEL_LONG_COLS = 256, KERNEL_SHORT_COLS = 64 };
extern const int KERNEL_ROWS_AT[KERNEL_ROWS];      /* rows that are multiplied at once: 1 4 16 64 512 */
extern const int64_t KERNEL_READ_AT[KERNEL_READS]; /* bytes that are read again and again */

/* The settings that choose other kernels: precision and act of a config. */
enum kernel_variant {
    KERNEL_VARIANT_AUTO,
    KERNEL_VARIANT_HIGHEST,
    KERNEL_VARIANT_HIGH,
    KERNEL_VARIANT_MEDIUM,
    KERNEL_VARIANT_INT8,
    KERNEL_VARIANTS
};
extern const char *const KERNEL_VARIANT_NAMES[KERNEL_VARIANTS];

struct kernel_times {
    bool measured;
    int64_t measured_unix_ms;                                     /* 0: nobody wrote down when */
    float product[FORMAT_COUNT][KERNEL_VARIANTS][KERNEL_ROWS][2]; /* per weight, weights in a cache */
    float stream[FORMAT_COUNT][2];                                /* per weight, one row, from memory */
    float near[FORMAT_COUNT][2];      /* per weight, one row, in a core's own cache; beside row */
    float row[FORMAT_COUNT][2];       /* per row of weights, one row; of KERNEL_LONG_COLS and more */
    float row_short[FORMAT_COUNT][2]; /* the same of KERNEL_SHORT_COLS */
    float pace[2];               /* weights/s that usually came then, in q8_0 from memory (pace_read_s) */
    float compute[2];            /* weights/s of all threads at their best then, in caches (pace_best_s) */
    float edge[FORMAT_COUNT][2]; /* per row and element of input or output beside the weights (auto) */
    float region[2];             /* of a product, whatever its size */
    float wake;                  /* of the first product after the other threads fell asleep, beside it */
    float attend_one[FORMAT_COUNT][2]; /* one row: per token it looks at and element of all heads, tokens in a
                                          processor's cache */
    float attend_far[FORMAT_COUNT][2]; /* the same, tokens in memory, which comes as fast as usual then */
    float attend_many[FORMAT_COUNT][KERNEL_VARIANTS][2]; /* per row, token it looks at, and element */
    float narrow_one[FORMAT_COUNT][2], narrow_many[FORMAT_COUNT][2]; /* attend_* with heads of
                                                                        kernel_narrow_dim elements */
    float apart_one[FORMAT_COUNT][2]; /* attend_one where each head has a K and a V of its own */
    float glue[2];                    /* norms, rotations, storing: of a layer, one row */
    float glue_element[2];            /* per row and element of the model's width */
    float read[KERNEL_READS][2];      /* bytes/s by how much is read: KERNEL_READ_AT */
    int64_t stream_bytes;             /* that `stream` was measured with */
};

/* 16 elements, or a block of the cache's format. */
int kernel_narrow_dim(const struct format *f);

/* Between which two row counts `rows` lies: KERNEL_ROWS_AT[that] and the next; beyond the last, the last two.
 */
int kernel_rows_before(int rows);

/* A core whose sibling is busy takes longer for everything, but not equally: where one row takes s times as
 * long, products of many take s to the power of this, 1 to 0.55: integers feel it least. Of 26000 runs in ten
 * formats between looks at a Zen 5's cores. */
double kernel_feels(const struct format *f, const struct backend_options *o, int rows);
extern const double KERNEL_FEELS_ATTENTION; /* the same of many rows that look back */

/* A weight that comes from memory is waited for while others are worked on: of both times together most is
 * the longer one, and where they are near each other neither hides the other quite. Fourth powers add up: of
 * 44 decode rates on a busy machine that left 10 % of scatter, plain sums 12 %. */
double kernel_time_together(double computing_s, double waiting_s);
/* The other way: what waiting alone takes, where both together take `all_s`; a twentieth of it at least. */
double kernel_time_waiting(double all_s, double computing_s);

/* Measures all of it in about `seconds` (0: 55); what there was no time for stays 0. Needs 600 MB. progress
 * may be NULL; returning false from it ends early (ERR_CANCELLED). */
typedef bool kernel_progress_fn(void *ctx, const char *what, double done);
enum err_code kernel_times_measure(struct kernel_times *out, uint32_t isa_usable, double seconds,
                                   kernel_progress_fn *progress, void *ctx, struct err *why);
json_t *kernel_times_to_json(const struct kernel_times *k); /* new reference */
/* Formats that this version does not know are left out. ERR_FORMAT. */
enum err_code kernel_times_from_json(struct kernel_times *k, const json_t *object, struct err *why);

#endif
