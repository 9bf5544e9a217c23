/* advisor/cell.h - one timed cell: a workload run without a break until it lasts, seen by the sensors, and
 * the row it becomes. Inside advisor/ only.
 *
 * Short workloads (a tiny model) would otherwise end between two ticks of the sensors and be mostly clock
 * noise: their tokens and seconds are summed over repeats, which are not replicates. */
#ifndef QDYNO_ADVISOR_CELL_H
#define QDYNO_ADVISOR_CELL_H

#include "advisor/arm.h"
#include "advisor/conditions.h"
#include "advisor/span.h"
#include "db/db.h"
#include "telemetry/telemetry.h"

enum { CELL_REPEATS_MAX = 256 };
enum { WINDOW_SAMPLES = 6000, WINDOW_STORED = 64 * METRIC_SENSOR_COUNT };
#define CELL_LEAST_S 0.25 /* a workload is repeated inside the cell until it lasts so long, usually */

/* The worker's figures in a cell answer, besides hashes and latencies. */
enum field {
    FIELD_PREFILL_S,
    FIELD_DECODE_S,
    FIELD_TTFT_S,
    FIELD_PROMPT_TOKENS,
    FIELD_GEN_TOKENS,
    FIELD_CPU_S,
    FIELD_PEAK_BYTES,
    FIELD_RSS_BYTES,
    FIELD_MAJOR_FAULTS,
    FIELD_MINOR_FAULTS,
    FIELD_VOLUNTARY,
    FIELD_INVOLUNTARY,
    FIELD_PERPLEXITY,
    FIELD_NLL,
    FIELD_NLL_SE,
    FIELD_SCORED,
    FIELD_TRAIN_S,
    FIELD_TRAIN_TOKENS,
    FIELD_TRAIN_LOSS,
    FIELD_COUNT
};

/* What one cell gave, over all its repeats. */
struct cell {
    double field[FIELD_COUNT];  /* NAN unknown */
    double value[METRIC_COUNT]; /* by enum metric_id; sensors: mean over the cell; NAN unknown */
    float *itl;                 /* owned: free() */
    int n_itl;
    struct request_rows requests; /* its figures are below; n 0: the workload has no requests */
    struct request_figures request[CELL_REPEATS_MAX];
    char work_hash[24], output_hash[24], discard[160];
    int64_t started_ms, begun_ns;          /* wall clock; clock_ns */
    struct span_row spans[1 + SPANS_MOST]; /* when it and its phases ran; the first is the cell itself */
    int n_spans;
    double seconds;
    struct conditions beside; /* the machine; zeros: nobody looked */
    double usual_rate;        /* tokens/s that it would have been on the usual machine; 0: nobody says */
    double usual_sd;          /* of its logarithm */
};
#define CELL_MEMORY_RATIO "memory_ratio" /* its measurements in the database */
#define CELL_CORE_RATIO   "core_ratio"
#define CELL_USUAL_RATE   "usual_rate"
#define CELL_USUAL_SD     "usual_sd"

struct cell_ask {
    struct arm *arm;
    const char *workload;
    int repeats; /* 1 to CELL_REPEATS_MAX */
    uint64_t seed;
    struct sampler_thread *sampler; /* NULL: no sensors */
    arm_event_fn *event;
    void *ctx;
};
/* Run and observe. *c is filled as far as it came, also on failure; free c->itl. window: [WINDOW_SAMPLES],
 * the samples of the cell; *n of them. Errors: those of arm_cell. */
enum err_code cell_take(struct cell *c, const struct cell_ask *ask, struct sample *window, int *n,
                        struct err *why);

/* How often a workload must run so that a cell of it lasts `least_s`, when one run lasts `seconds`. */
int cell_repeats(double seconds, double least_s);

/* A window's samples as rows, evenly thinned: at most WINDOW_STORED of them, into out. Returns the count. */
int cell_thin(const struct sample *window, int n, int64_t t0_ns, struct sample_row *out);

/* Into the database: values, latencies, hashes and spans are the cell's, where it stands is the row's. */
enum err_code cell_insert(struct db *d, struct cell_row *row, const struct cell *c,
                          const struct sample_row *samples, int n_samples, struct err *why);

#endif
