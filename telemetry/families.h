/* telemetry/families.h - FAMILIES: every name that is told to monitoring systems (part of the door
 * telemetry.h).
 *
 * Scrape page, pushes, OTLP, alert rules, boards and the table in docs/monitoring.md take names, types and
 * help from here, so a name is written once. Names are promises: they and their meaning stay. Beside each
 * stands what others call the same thing. Whoever has the values (the readings below, advisor/ for requests
 * and outcomes) hands them to a struct family_sink, and does not know where they go. */
#ifndef QDYNO_TELEMETRY_FAMILIES_H
#define QDYNO_TELEMETRY_FAMILIES_H

#include "telemetry/telemetry.h"

enum family_id {
    /* the program and the machine */
    FAMILY_BUILD_INFO,
    FAMILY_HOST_INFO,
    FAMILY_GPU_INFO,
    FAMILY_MODEL_INFO,
    /* sensors, one number for the machine: FAMILY_SENSOR_FIRST + enum metric_id */
    FAMILY_SENSOR_FIRST,
    FAMILY_CPU_ENERGY = FAMILY_SENSOR_FIRST + METRIC_SENSOR_COUNT,
    FAMILY_SAMPLER_COST,
    FAMILY_SAMPLER_MISSED,
    /* GPUs one by one */
    FAMILY_GPU_UTILIZATION,
    FAMILY_GPU_MEMORY_BUSY,
    FAMILY_GPU_MEMORY_USED,
    FAMILY_GPU_MEMORY_TOTAL,
    FAMILY_GPU_ENERGY,
    FAMILY_GPU_POWER,
    FAMILY_GPU_POWER_LIMIT,
    FAMILY_GPU_TEMPERATURE,
    FAMILY_GPU_CLOCK,
    FAMILY_GPU_FAN,
    FAMILY_GPU_THROTTLE,
    FAMILY_GPU_ECC_ERRORS,
    FAMILY_GPU_PCIE,
    FAMILY_GPU_PROCESSES,
    FAMILY_GPU_LOST,
    /* the process that tells, under the names every exporter uses */
    FAMILY_PROCESS_CPU,
    FAMILY_PROCESS_START,
    FAMILY_PROCESS_RESIDENT,
    FAMILY_PROCESS_VIRTUAL,
    FAMILY_PROCESS_MAJOR_FAULTS,
    FAMILY_PROCESS_THREADS,
    FAMILY_PROCESS_OPEN_FDS,
    FAMILY_PROCESS_MAX_FDS,
    /* requests measured so far, of all runs in the database */
    FAMILY_DATABASE_UP,
    FAMILY_RUNS,
    FAMILY_CELLS,
    FAMILY_PROMPT_TOKENS,
    FAMILY_PROMPT_SECONDS,
    FAMILY_GENERATED_TOKENS,
    FAMILY_GENERATE_SECONDS,
    FAMILY_TIME_TO_FIRST_TOKEN,
    FAMILY_INTER_TOKEN_LATENCY,
    FAMILY_TIME_PER_OUTPUT_TOKEN,
    FAMILY_REQUEST_DURATION,
    FAMILY_PREFILL_SECONDS,
    FAMILY_DECODE_SECONDS,
    FAMILY_CANARY_READ,
    FAMILY_CANARY_OPS,
    FAMILY_CANARY_TIME,
    /* the outcome of an experiment */
    FAMILY_AB_EFFECT,
    FAMILY_AB_EFFECT_LOWER,
    FAMILY_AB_EFFECT_UPPER,
    FAMILY_AB_CONFIDENCE,
    FAMILY_AB_BLOCKS,
    FAMILY_AB_DISCARDED,
    FAMILY_AB_NOISE_FLOOR,
    FAMILY_AB_VERDICT,
    FAMILY_AB_KL_DIVERGENCE,
    FAMILY_AB_JOULES_PER_TOKEN,
    FAMILY_AB_PREFILL_RATE,
    FAMILY_AB_DECODE_RATE,
    FAMILY_AB_TIME_TO_FIRST_TOKEN,
    FAMILY_AB_PEAK_MEMORY,
    FAMILY_EXPERIMENT_LAST_RUN,
    FAMILY_EXPERIMENT_LAST_SUCCESS,
    FAMILY_EXPERIMENT_DURATION,
    FAMILY_EXPERIMENT_INFO,
    /* what an unattended watch says (advisor/watch.h) */
    FAMILY_WATCH_PERFORMANCE,
    FAMILY_WATCH_CANARY,
    FAMILY_WATCH_ERRORS,
    FAMILY_WATCH_KL_DIVERGENCE,
    FAMILY_WATCH_LAST_ROUND,
    FAMILY_WATCH_LAST_SUCCESS,
    FAMILY_WATCH_DISK_AVAILABLE,
    FAMILY_WATCH_ALERT,
    FAMILY_WATCH_NOTICES,
    FAMILY_COUNT
};

enum family_section {
    FAMILIES_ABOUT,
    FAMILIES_MACHINE,
    FAMILIES_GPU,
    FAMILIES_PROCESS,
    FAMILIES_REQUESTS,
    FAMILIES_OUTCOME,
    FAMILIES_WATCH,
    FAMILY_SECTIONS
};
extern const char *const FAMILY_SECTION_TITLES[FAMILY_SECTIONS];

enum family_type { FAMILY_GAUGE, FAMILY_COUNTER, FAMILY_HISTOGRAM };
extern const char *const FAMILY_TYPE_NAMES[]; /* "gauge" "counter" "histogram" */

struct family {
    const char *name; /* NULL in a sensor's row: not exported (told device by device instead) */
    enum family_section section;
    enum family_type type;
    const char *labels;      /* "device sensor": words; "" none */
    const char *unit, *help; /* NULL: those of its sensor (family_unit, family_help) */
    /* what others call it; NULL: nothing like it. Their units may differ: said in brackets. */
    const char *otel, *vllm, *llama_server, *dcgm;
    const struct histogram_edges *edges; /* FAMILY_HISTOGRAM */
};
extern const struct family FAMILIES[FAMILY_COUNT];
enum family_id family_of_sensor(enum metric_id sensor);
const char *family_unit(enum family_id f); /* base unit as in METRICS; "" for counts, flags and infos */
const char *family_help(enum family_id f);

/* Bucket edges. Those of OpenTelemetry and vLLM, so that quantiles compare, with shorter ones in front: a
 * local GPU decodes in 1 to 8 ms a token, and the first stock bucket would hold everything. */
extern const struct histogram_edges EDGES_FIRST_TOKEN, EDGES_TOKEN, EDGES_REQUEST;

/* ---------------------------------------------------------------- values */

/* Where samples go. Families come one after the other, all samples of one together, in no promised order.
 * NAN is never handed over. Labels are borrowed for the call. */
struct family_sink {
    void *ctx;
    void (*value)(void *ctx, enum family_id f, const struct label *labels, int n, double value);
    void (*histogram)(void *ctx, enum family_id f, const struct label *labels, int n,
                      const struct histogram_counts *h);
};
/* Hand one value over, unless it is NAN. */
void family_value(const struct family_sink *to, enum family_id f, const struct label *labels, int n,
                  double value);

/* A sink that writes text; e outlives it. Misuse shows in e->bad. */
struct family_sink exposition_sink(struct exposition *e);

/* Of one process; NAN unknown. */
struct process_reading {
    double cpu_seconds, start_time_seconds; /* used so far; Unix time */
    double resident_bytes, virtual_bytes, major_faults, threads, open_fds, max_fds;
};
void process_read(struct process_reading *out, int pid); /* pid 0: this process */

/* All that a live page tells of the machine. */
enum { READINGS_DOMAINS = 64 };
struct readings {
    const struct machine *machine; /* borrowed; NULL: nothing is said about it */
    double row[METRIC_SENSOR_COUNT];
    struct gpu_reading gpu[MACHINE_GPUS];
    int gpus;
    struct energy_reading energy[READINGS_DOMAINS];
    int energies;
    double sampler_cost_ratio, sampler_missed_ticks;
    struct process_reading process;
};
/* The latest of a sampling thread, and of this process. */
void readings_take(struct readings *out, struct sampler_thread *s, const struct machine *machine);
/* Build, host, sensors, GPUs, process. */
void readings_tell(const struct readings *r, const struct family_sink *to);
void build_tell(uint32_t isa, const struct family_sink *to);
void host_tell(const struct machine *m, const struct family_sink *to);

#endif
