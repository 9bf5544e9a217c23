/* telemetry/probe/probe.h - measures what this machine is able to do: memory bandwidth, arithmetic speed, and
 * how long each operation of our own kernels takes.
 *
 * Ceilings are upper limits of the hardware (a roofline). Kernel times are what the cost model in advisor/
 * adds up to predict how fast a model runs. */
#ifndef QDYNO_TELEMETRY_PROBE_H
#define QDYNO_TELEMETRY_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "kernels/kernels.h"

/* ---------------------------------------------------------------- kernel times */

enum { KERNEL_ROWS = 5, KERNEL_READS = 6 };
/* Attention is measured with this many heads of this many elements. */
enum { KERNEL_HEADS = 32, KERNEL_KV_HEADS = 8, KERNEL_HEAD_DIM = 64 };
/* Products are measured with square matrices of KERNEL_COLS columns, and with small matrices of
 * KERNEL_NEAR_WEIGHTS weights whose rows are long or short. */
enum { KERNEL_COLS = 2048, KERNEL_NEAR_WEIGHTS = 768 * 256, KERNEL_LONG_COLS = 256, KERNEL_SHORT_COLS = 64 };
extern const int KERNEL_ROWS_AT[KERNEL_ROWS];      /* rows multiplied at once: 1 4 16 64 512 */
extern const int64_t KERNEL_READ_AT[KERNEL_READS]; /* sizes in bytes of buffers that are read repeatedly */

/* The config settings (precision and activation quantization) that select different kernels. */
enum kernel_variant {
    KERNEL_VARIANT_AUTO,
    KERNEL_VARIANT_HIGHEST,
    KERNEL_VARIANT_HIGH,
    KERNEL_VARIANT_MEDIUM,
    KERNEL_VARIANT_INT8,
    KERNEL_VARIANTS
};
extern const char *const KERNEL_VARIANT_NAMES[KERNEL_VARIANTS];

/* Seconds, unless a field says otherwise; the last index is 0 for one thread and 1 for all threads. 0: not
 * measured. All values are corrected to one reference state of the machine: memory as fast as it usually was
 * during the measurement, and cores at their best (README.md, "Correction to a reference state"). */
struct kernel_times {
    bool measured;
    int64_t measured_unix_ms; /* 0: unknown */

    /* products with a matrix of weights */
    float product[FORMAT_COUNT][KERNEL_VARIANTS][KERNEL_ROWS][2]; /* per weight; weights in a cache */
    float stream[FORMAT_COUNT][2]; /* per weight; GEMV, weights in main memory */
    float near[FORMAT_COUNT][2];   /* per weight; GEMV, weights in a core's own cache; `row` comes on top */
    float row[FORMAT_COUNT][2];    /* per row of weights; GEMV, rows of at least KERNEL_LONG_COLS */
    float row_short[FORMAT_COUNT][2]; /* the same for rows of KERNEL_SHORT_COLS */
    float edge[FORMAT_COUNT][2];      /* per row of activations and element of input or output; on top of the
                                         time per weight */
    float region[2];                  /* per product, whatever its size: starting the threads */
    float wake;                       /* of the first product after the other threads fell asleep; on top */

    /* reference state: weights per second in q8_0 */
    float memory_speed[2];  /* from memory, as it usually was during the measurement */
    float compute_speed[2]; /* from caches, all cores at their best */

    /* attention: "token" is a token of the cache that a row attends to, "element" one of all heads' elements
     */
    float attend_one[FORMAT_COUNT][2]; /* per token and element; 1 row, cache in a CPU cache */
    float attend_far[FORMAT_COUNT][2]; /* the same, cache in main memory */
    float attend_many[FORMAT_COUNT][KERNEL_VARIANTS][2]; /* per row, token and element; many rows */
    float narrow_one[FORMAT_COUNT][2];  /* attend_one with heads of kernel_narrow_dim elements */
    float narrow_many[FORMAT_COUNT][2]; /* attend_many with such heads */
    float apart_one[FORMAT_COUNT][2];   /* attend_one where each head has a K and a V of its own */

    /* everything else in a layer: norms, rotations, storing K and V */
    float glue[2];         /* per layer; 1 row */
    float glue_element[2]; /* per row and element of the model's width */

    float read[KERNEL_READS][2]; /* bytes/s when KERNEL_READ_AT bytes are read repeatedly */
    int64_t stream_bytes;        /* how much memory `stream` was measured with */
};

/* Elements of a narrow head: 16, or one block of the cache's format if that is more. */
int kernel_narrow_dim(const struct format *f);

/* The index r for which KERNEL_ROWS_AT[r] <= rows < KERNEL_ROWS_AT[r + 1]; at most KERNEL_ROWS - 2. For
 * interpolating between two measured row counts. */
int kernel_rows_before(int rows);

/* Load sensitivity: the exponent e with which a product of `rows` rows slows down when cores slow down. While
 * a core's other hardware thread is busy, a GEMV takes s times as long and this product takes s^e times as
 * long. 1 for one row, down to 0.55 for integer GEMM, which is the least sensitive. Fitted to 26000 runs in
 * ten formats between speed probes on a Zen 5. */
double kernel_load_sensitivity(const struct format *f, const struct backend_options *o, int rows);
extern const double KERNEL_LOAD_SENSITIVITY_ATTENTION; /* of attention of many rows */

/* Seconds of a GEMV that computes for computing_s and waits for memory for waiting_s. Both overlap in part:
 * t = (computing^4 + waiting^4)^(1/4), so the longer one dominates unless they are nearly equal. The exponent
 * was fitted to 44 decode rates on a busy machine: 10 % of scatter remained, against 12 % for a plain sum. */
double kernel_time_together(double computing_s, double waiting_s);
/* The inverse: waiting_s, given that both together take all_s. At least 5 % of all_s. */
double kernel_time_waiting(double all_s, double computing_s);

/* Measures all kernel times in about `seconds` (0: 55). What the time does not suffice for stays 0. Allocates
 * 600 MB meanwhile. progress may be NULL; the measurement ends early when it returns false.
 * Errors: ERR_CANCELLED (ended early), ERR_NOMEM. */
typedef bool kernel_progress_fn(void *ctx, const char *what, double done);
enum err_code kernel_times_measure(struct kernel_times *out, uint32_t isa_usable, double seconds,
                                   kernel_progress_fn *progress, void *ctx, struct err *why);
json_t *kernel_times_to_json(const struct kernel_times *k); /* new reference */
/* Ignores formats that this version does not know. ERR_FORMAT: wrong schema. */
enum err_code kernel_times_from_json(struct kernel_times *k, const json_t *object, struct err *why);

/* ---------------------------------------------------------------- dimensions */

/* Time per weight of products with rows of one length, divided by that with rows of another, on one thread,
 * weights in a CPU cache. Above 1: slower. NAN: could not be timed. */
struct dimension_price {
    double one_row, many_rows; /* rows of activations: 1 and 64 */
};
/* Measures rows of `cols` numbers against rows of `full` (>= cols) in format f, in turns; takes about a
 * second. Errors: ERR_USAGE when a length does not fill the format's blocks; ERR_NOMEM. */
enum err_code dimension_price(struct dimension_price *out, const struct format *f, int64_t cols, int64_t full,
                              uint32_t isa_usable, struct err *why);

/* ---------------------------------------------------------------- ceilings */

/* Limits of a GPU as its manufacturer states them, from a machine's description. NAN or 0: unknown, or the
 * GPU lacks the feature. A multiply-add counts as 2 operations; figures are without sparsity. */
struct gpu_ceilings {
    double read_bytes_s;
    double f32_ops_s, f16_ops_s, bf16_ops_s, tf32_ops_s, fp8_ops_s, int8_ops_s; /* matrix products */
    double link_bytes_s; /* from main memory to the GPU */
    double power_watts;  /* power limit */
    bool unified;        /* the GPU shares main memory with the processor */
};

/* Measured limits of an OpenCL device, with the names by which the device is recognized later. */
struct opencl_measured {
    char name[16], model[96], driver[64];
    struct device_ceilings can;
};

#define CEILINGS_LOADED_RATIO 0.1 /* limits measured with more load of other programs are marked */

enum { CEILINGS_MAX = 16, CEILINGS_OPENCL = 8, CEILINGS_READS = 12, CEILINGS_NODES = 16 };
struct machine_ceilings {
    double read_bytes_s_1, read_bytes_s_all; /* one thread, all threads; NAN: not measured */
    int threads_all;
    int reads; /* rows of read[]: thread counts between one and all (2, 4, 8 ...) */
    struct ceiling_read {
        int threads;
        double bytes_s;
    } read[CEILINGS_READS];
    int nodes; /* NUMA nodes; 0: there is only one */
    struct ceiling_node {
        double own_bytes_s; /* the node's own processors read memory of the node; NAN: not measured */
        double all_bytes_s; /* all processors read memory of this one node, where a file's pages may lie */
    } node[CEILINGS_NODES];
    int count; /* rows of row[]: one per row of CEILINGS in kernels/ */
    struct ceiling_arithmetic {
        char name[24], isa[24]; /* as in CEILINGS: "int8_tile" "amx" */
        double ops_s_1, ops_s_all;
    } row[CEILINGS_MAX];
    int64_t measured_unix_ms;
    double others_busy_ratio; /* METRIC_OTHERS_BUSY during the measurement; NAN: unknown. Above
                                 CEILINGS_LOADED_RATIO the ceilings are lower than the machine's true ones */
    double power_watts;       /* of the processors while all of them compute; 0 or NAN: unknown */
    struct gpu_ceilings gpu;  /* {0}: unknown */
    int opencl_count;
    struct opencl_measured opencl[CEILINGS_OPENCL]; /* measured only by `detect --probe`, because it loads the
                                                       vendors' drivers */
    struct kernel_times kernels;
};

/* The measured limits of device `d`. NULL: not measured, or measured with another driver. */
const struct opencl_measured *ceilings_opencl(const struct machine_ceilings *c, const struct device_info *d);
/* Bytes/s that `threads` threads read together: measured, or interpolated. NAN: unknown. */
double ceilings_read_bytes_s(const struct machine_ceilings *c, int threads);
/* Bytes/s with which all threads read memory of one NUMA node, averaged over nodes. NAN: one node, or
 * unknown. */
double ceilings_node_bytes_s(const struct machine_ceilings *c);

/* Measures all ceilings of the processors in at most `seconds` (0: 8). progress may be NULL; `done` is 0
 * to 1. Errors: ERR_USAGE (seconds). */
enum err_code machine_probe(struct machine_ceilings *out, uint32_t isa_usable, double seconds,
                            void (*progress)(void *ctx, const char *what, double done), void *ctx,
                            struct err *why);
json_t *ceilings_to_json(const struct machine_ceilings *c); /* new reference */
enum err_code ceilings_from_json(struct machine_ceilings *c, const json_t *object,
                                 struct err *why); /* ERR_FORMAT */

/* The ceilings are cached in $XDG_CACHE_HOME/qdyno/ceilings-<machine id>.json. *found is false when the file
 * is absent, damaged or from another version; *c is then unknown. Errors: ERR_USAGE (machine_id), ERR_NOMEM;
 * of ceilings_save also ERR_IO. */
enum err_code ceilings_load(struct machine_ceilings *c, const char *machine_id, bool *found, struct err *why);
enum err_code ceilings_save(const struct machine_ceilings *c, const char *machine_id, struct err *why);

#endif
