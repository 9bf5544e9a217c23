/* telemetry/metrics/metrics.h - METRICS: every number this program keeps, with its unit, its period and its
 * source.
 */
#ifndef QDYNO_TELEMETRY_METRICS_H
#define QDYNO_TELEMETRY_METRICS_H

#include <stdbool.h>
#include <stdint.h>

enum metric_kind {
    METRIC_SENSOR, /* read by the sampler, period_ms apart */
    METRIC_CELL,   /* one value per cell, reported by the worker or computed from its samples */
};

enum metric_id {
    /* sensors */
    METRIC_CPU_BUSY,
    METRIC_CPU_STEAL,
    METRIC_CPU_FREQUENCY,
    METRIC_CPU_TEMPERATURE,
    METRIC_CPU_THROTTLE,       /* times a second a processor held its clock down for heat */
    METRIC_CPU_CSTATE,         /* share of time asleep, in any C-state */
    METRIC_CPU_DEEPEST_CSTATE, /* of it, in the deepest there is */
    METRIC_CPU_CYCLES,
    METRIC_CPU_INSTRUCTIONS,
    METRIC_CPU_LLC_MISSES,
    METRIC_CPU_POWER,
    METRIC_CORES_POWER,
    METRIC_UNCORE_POWER,
    METRIC_DRAM_POWER,
    METRIC_SYSTEM_POWER,
    METRIC_MEM_TOTAL,
    METRIC_MEM_USED,
    METRIC_MEM_AVAILABLE,
    METRIC_MEM_PAGE_CACHE,
    METRIC_MEM_DIRTY,
    METRIC_MEM_THP,
    METRIC_HUGEPAGES_TOTAL,
    METRIC_HUGEPAGES_FREE,
    METRIC_MEM_READ, /* bytes a second over the memory bus, all controllers */
    METRIC_MEM_WRITE,
    METRIC_MEM_MAJOR_FAULTS, /* of all programs */
    METRIC_MEM_MINOR_FAULTS,
    METRIC_NUMA_HIT,
    METRIC_NUMA_MISSES,
    METRIC_SWAP_TOTAL,
    METRIC_SWAP_USED,
    METRIC_SWAP_IN,
    METRIC_SWAP_OUT,
    METRIC_DISK_READ,
    METRIC_DISK_WRITE,
    METRIC_DISK_BUSY,
    METRIC_PSI_CPU,
    METRIC_PSI_MEMORY,
    METRIC_PSI_IO,
    METRIC_CGROUP_MEM_USED, /* of the control group whose limit is the tightest */
    METRIC_CGROUP_MEM_LIMIT,
    METRIC_CGROUP_CPU,
    METRIC_CGROUP_CPU_LIMIT,
    METRIC_CGROUP_THROTTLED,
    METRIC_CGROUP_THROTTLED_TIME,
    METRIC_CGROUP_OTHERS,
    METRIC_PROC_RSS,
    METRIC_PROC_CPU,
    METRIC_PROC_MAJOR_FAULTS,
    METRIC_PROC_MINOR_FAULTS,
    METRIC_PROC_VOLUNTARY_SWITCHES,
    METRIC_PROC_INVOLUNTARY_SWITCHES,
    METRIC_PROC_READ, /* bytes a second from storage: what the page cache held is not in it */
    METRIC_PROC_WRITE,
    METRIC_PROC_CYCLES,
    METRIC_PROC_INSTRUCTIONS,
    METRIC_PROC_LLC_MISSES,
    METRIC_OTHERS_BUSY, /* processor time used by processes that are neither qdyno nor its workers */
    METRIC_ON_BATTERY,
    METRIC_GPU_BUSY,
    METRIC_GPU_MEM_USED,
    METRIC_GPU_MEM_TOTAL,
    METRIC_GPU_POWER,
    METRIC_GPU_TEMPERATURE,
    METRIC_GPU_CLOCK,
    METRIC_GPU_THROTTLE,
    METRIC_SENSOR_COUNT,
    /* cells */
    METRIC_PREFILL_RATE = METRIC_SENSOR_COUNT,
    METRIC_DECODE_RATE,
    METRIC_TTFT,
    METRIC_ITL_P50,
    METRIC_ITL_P95,
    METRIC_ITL_P99,
    METRIC_LOAD_TIME,
    METRIC_PEAK_MEMORY,
    METRIC_ENERGY,
    METRIC_ENERGY_HALF, /* half width of its interval (energy_integral) */
    METRIC_CO2,
    METRIC_PERPLEXITY,
    METRIC_KLD,
    METRIC_LIMIT_SHARE_PREFILL,
    METRIC_LIMIT_SHARE_DECODE,
    METRIC_CANARY_READ, /* of the canary, which has cells of its own (advisor/run/run.h) */
    METRIC_CANARY_OPS,
    METRIC_TRAIN_RATE,
    METRIC_TRAIN_LOSS,
    METRIC_MEMORY_AFTER,
    METRIC_SERVER_PREFILL_RATE, /* of other engines: by their own clock */
    METRIC_SERVER_DECODE_RATE,
    METRIC_CHUNK_GAP,
    METRIC_TOTAL_RATE, /* of cells whose experiment compares them (run_cell.sequence_rates) */
    METRIC_SEQUENCE_RATE,
    /* of loads: requests that come and go (advisor/run/load.c) */
    METRIC_TTFT_P50,
    METRIC_LOAD_FIRST = METRIC_TTFT_P50,
    METRIC_TTFT_P95,
    METRIC_TTFT_P99,
    METRIC_TTFT_SENT,
    METRIC_TPOT,
    METRIC_TPOT_P50,
    METRIC_TPOT_P95,
    METRIC_TPOT_P99,
    METRIC_ITL_MAX,
    METRIC_E2E,
    METRIC_E2E_P50,
    METRIC_E2E_P95,
    METRIC_E2E_P99,
    METRIC_QUEUE,
    METRIC_QUEUE_P50,
    METRIC_QUEUE_P95,
    METRIC_QUEUE_P99,
    METRIC_REQUEST_RATE,
    METRIC_IN_RATE,
    METRIC_OUT_RATE,
    METRIC_BATCH,
    METRIC_KV_USE,
    METRIC_PREFIX_HIT,
    METRIC_PREEMPTIONS,
    METRIC_GOODPUT,
    METRIC_LATE,
    METRIC_SCHEDULER,
    METRIC_FAILED,
    METRIC_LOAD_LAST = METRIC_FAILED,
    METRIC_COUNT
};

/* How the values that an arm's cells give for one metric become the one value of that arm. */
enum metric_combine {
    COMBINE_GEOMETRIC_MEAN,  /* so that the quotient of two arms' values is the effect between them */
    COMBINE_MEAN,            /* of figures that may be 0 */
    COMBINE_LARGEST,         /* the largest value of any cell, because that much memory is needed */
    COMBINE_POOLED_QUANTILE, /* `quantile` of the token latencies of all cells together */
    COMBINE_LOADING,         /* no value of cells: the arm reports it once, when its model is loaded */
};

/* How tables print a metric. bytes are printed in binary units, and scale and digits do not count. */
struct metric_column {
    const char *title; /* column heading, with the printed unit where the name does not say it */
    double scale;      /* printed value = scale * value: 1e3 prints seconds as milliseconds; 0 means 1 */
    int digits;        /* digits after the decimal point */
};

struct metric {
    const char *name; /* in scripts and the database: "decode_tok_s", "cpu_busy_ratio" */
    const char *unit; /* base unit: "seconds" "bytes" "ratio" "celsius" "hertz" "watts" "joules"
                         "grams" "tokens/s" "bytes/s" "1/s" "" */
    enum metric_kind kind;
    int period_ms; /* sensors: default period */
    int better;    /* +1 more is better, -1 less, 0 neither */
    const char *help;
    /* sensors only */
    int least_ms;       /* shortest period that still says something new: the sensor's own resolution */
    const char *source; /* row of SOURCES that fills it in, or the start of several: "gpu_" */
    const char *reads;  /* where the value comes from, for people: "/proc/stat" */
    /* cells only */
    enum metric_combine combine;
    double quantile;             /* of COMBINE_POOLED_QUANTILE: 0 to 1 */
    struct metric_column column; /* title NULL: no table prints it */
    bool traced; /* an attribute of a cell's span in OpenTelemetry traces: "qdyno." and the name */
};
extern const struct metric METRICS[METRIC_COUNT];   /* indexed by enum metric_id */
const struct metric *metric_find(const char *name); /* NULL when there is none of that name */

/* -1 where less is better, otherwise 1: the product with a value, or with a logarithm of a ratio, is larger
 * where the metric is better. */
int metric_sign(const struct metric *m);

/* A metric's value as a whole number of bytes, for printing: -1 when it is unknown (NAN or negative),
 * INT64_MAX when it is larger than that. */
int64_t metric_bytes(double value);

#endif
