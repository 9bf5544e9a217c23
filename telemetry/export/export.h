/* telemetry/export/export.h - exports values to Prometheus: the table of all exported metric families, the
 * text exposition format, and pushes to a Pushgateway.
 *
 * FAMILIES is the only place with the names, types and help texts of exported metrics; the scrape page,
 * pushes, OTLP, alert rules, dashboards and docs/metrics.md are derived from it. Code that has values hands
 * them to a struct family_sink and does not depend on where they go. */
#ifndef QDYNO_TELEMETRY_EXPORT_H
#define QDYNO_TELEMETRY_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/http/http.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

struct label {
    const char *name, *value; /* NULL value: "" */
};

/* ---------------------------------------------------------------- histograms */

/* Upper bucket bounds in ascending order. One more bucket holds the values above the last bound. */
enum { HISTOGRAM_EDGES = 40 };
struct histogram_edges {
    int n;
    double edge[HISTOGRAM_EDGES];
};
/* {0} is empty. Counts are not cumulative: bucket[i] counts the values in (edge[i-1], edge[i]]. */
struct histogram_counts {
    uint64_t bucket[HISTOGRAM_EDGES + 1], count;
    double sum;
};
/* Counts `times` observations of the same value. Ignores a value that is not finite. */
void histogram_add(struct histogram_counts *h, const struct histogram_edges *edges, double value,
                   uint64_t times);

/* The bounds of OpenTelemetry and vLLM, so that quantiles are comparable, with shorter ones in front: a local
 * GPU generates a token in 1 to 8 ms, all of which would fall into the first standard bucket. */
extern const struct histogram_edges EDGES_FIRST_TOKEN, EDGES_TOKEN, EDGES_REQUEST;

/* ---------------------------------------------------------------- families */

enum family_id {
    /* program and machine */
    FAMILY_BUILD_INFO,
    FAMILY_HOST_INFO,
    FAMILY_GPU_INFO,
    FAMILY_MODEL_INFO,
    /* sensors, one value for the machine: FAMILY_SENSOR_FIRST + enum metric_id */
    FAMILY_SENSOR_FIRST,
    FAMILY_CPU_ENERGY = FAMILY_SENSOR_FIRST + METRIC_SENSOR_COUNT,
    FAMILY_SAMPLER_COST,
    FAMILY_SAMPLER_MISSED,
    /* each GPU */
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
    /* the exporting process, under the names that all exporters use */
    FAMILY_PROCESS_CPU,
    FAMILY_PROCESS_START,
    FAMILY_PROCESS_RESIDENT,
    FAMILY_PROCESS_VIRTUAL,
    FAMILY_PROCESS_MAJOR_FAULTS,
    FAMILY_PROCESS_THREADS,
    FAMILY_PROCESS_OPEN_FDS,
    FAMILY_PROCESS_MAX_FDS,
    /* requests measured so far: totals of all runs in the database */
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
    FAMILY_DAY_ERRORS,
    FAMILY_DAY_LATENCY,
    FAMILY_DAY_MOST_AT_ONCE,
    FAMILY_DAY_BUSIEST_HOUR,
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
    FAMILY_AB_JOULES_HALF,
    FAMILY_AB_CO2,
    FAMILY_AB_PREFILL_RATE,
    FAMILY_AB_DECODE_RATE,
    FAMILY_AB_TIME_TO_FIRST_TOKEN,
    FAMILY_AB_PEAK_MEMORY,
    FAMILY_EXPERIMENT_LAST_RUN,
    FAMILY_EXPERIMENT_LAST_SUCCESS,
    FAMILY_EXPERIMENT_DURATION,
    FAMILY_EXPERIMENT_INFO,
    FAMILY_RUN_LABEL_INFO,
    /* state of an unattended `qdyno watch` */
    FAMILY_WATCH_PERFORMANCE,
    FAMILY_WATCH_CANARY,
    FAMILY_WATCH_ERRORS,
    FAMILY_WATCH_KL_DIVERGENCE,
    FAMILY_WATCH_LAST_ROUND,
    FAMILY_WATCH_LAST_SUCCESS,
    FAMILY_WATCH_DISK_AVAILABLE,
    FAMILY_WATCH_ALERT,
    FAMILY_WATCH_NOTICES,
    /* requests of `qdyno serve` since it started */
    FAMILY_SERVE_REQUESTS,
    FAMILY_SERVE_GOODPUT,
    FAMILY_SERVE_WAITING,
    FAMILY_SERVE_RUNNING,
    FAMILY_SERVE_KV_BLOCKS,
    FAMILY_SERVE_PROCESSES,
    FAMILY_SERVE_PROCESS_CHANGES,
    FAMILY_SERVE_PROMPT_TOKENS,
    FAMILY_SERVE_CACHED_TOKENS,
    FAMILY_SERVE_GENERATED_TOKENS,
    FAMILY_SERVE_PREEMPTIONS,
    FAMILY_SERVE_STEPS,
    FAMILY_SERVE_ROWS,
    FAMILY_SERVE_BUSY,
    FAMILY_SERVE_QUEUE_TIME,
    FAMILY_SERVE_FIRST_TOKEN,
    FAMILY_SERVE_TOKEN,
    FAMILY_SERVE_DURATION,
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
    FAMILIES_SERVE,
    FAMILY_SECTIONS
};
extern const char *const FAMILY_SECTION_TITLES[FAMILY_SECTIONS];

enum family_type { FAMILY_GAUGE, FAMILY_COUNTER, FAMILY_HISTOGRAM };
extern const char *const FAMILY_TYPE_NAMES[]; /* "gauge" "counter" "histogram" */

struct family {
    const char *name; /* NULL for a sensor that is not exported, because it is exported per device */
    enum family_section section;
    enum family_type type;
    const char *labels;      /* label names: "device sensor"; "": none */
    const char *unit, *help; /* NULL: those of its sensor (use family_unit, family_help) */
    /* names of the equivalent metric elsewhere; NULL: none. A differing unit is given in brackets. */
    const char *otel, *vllm, *llama_server, *dcgm;
    const struct histogram_edges *edges; /* of a histogram */
};
extern const struct family FAMILIES[FAMILY_COUNT]; /* indexed by enum family_id */
enum family_id family_of_sensor(enum metric_id sensor);
const char *family_unit(enum family_id f); /* base unit as in METRICS; "" for counts, flags and infos */
const char *family_help(enum family_id f);

/* ---------------------------------------------------------------- sinks */

/* Receives samples. All samples of a family come in succession; the order of families is unspecified. NAN is
 * never passed. Labels are borrowed for the call. */
struct family_sink {
    void *ctx;
    void (*value)(void *ctx, enum family_id f, const struct label *labels, int n, double value);
    void (*histogram)(void *ctx, enum family_id f, const struct label *labels, int n,
                      const struct histogram_counts *h);
};
/* Passes a value to the sink, unless it is NAN. */
void family_value(const struct family_sink *to, enum family_id f, const struct label *labels, int n,
                  double value);

/* ---------------------------------------------------------------- text exposition format 0.0.4 */

#define EXPOSITION_TYPE                                                                                      \
    "text/plain; version=0.0.4; charset=utf-8" /* the content type that readers expect                       \
                                                */

/* Builds the text sample by sample. HELP and TYPE are written once per family; all samples of a family must
 * be added in succession. {0} is empty. */
struct exposition {
    struct str text;
    char family[128]; /* the family being written */
    size_t opened;    /* where its samples begin in text */
    bool is_histogram;
    struct str names; /* all families so far, "\nname\n" */
    struct err bad;   /* the first misuse (invalid name, repeated family); nothing is written after it */
};
/* Begins a family: writes its HELP and TYPE lines. */
void exposition_family(struct exposition *e, const char *name, enum family_type type, const char *help);
/* Writes no sample for NAN, because absent data has no sample. Infinity is written as +Inf. */
void exposition_sample(struct exposition *e, const struct label *labels, int n, double value);
/* Writes _bucket (cumulative, +Inf last), _sum and _count of one series. */
void exposition_histogram(struct exposition *e, const struct label *labels, int n,
                          const struct histogram_edges *edges, const struct histogram_counts *h);
void exposition_free(struct exposition *e);

/* A sink that writes to *e, which must outlive it. Misuse sets e->bad. */
struct family_sink exposition_sink(struct exposition *e);

/* ---------------------------------------------------------------- machine values */

struct process_reading {                    /* NAN: unknown */
    double cpu_seconds, start_time_seconds; /* used so far; Unix time */
    double resident_bytes, virtual_bytes, major_faults, threads, open_fds, max_fds;
};
void process_read(struct process_reading *out, int pid); /* pid 0: this process */

/* All machine values of a scrape page at one time. */
enum { READINGS_DOMAINS = 64 };
struct readings {
    const struct machine *machine; /* borrowed; NULL: the page does not describe the machine */
    double row[METRIC_SENSOR_COUNT];
    struct gpu_reading gpu[MACHINE_GPUS];
    int gpus;
    struct energy_reading energy[READINGS_DOMAINS];
    int energies;
    double sampler_cost_ratio, sampler_missed_ticks;
    struct process_reading process;
};
/* Copies the latest values of a sampler thread, and reads those of this process. */
void readings_take(struct readings *out, struct sampler_thread *s, const struct machine *machine);
/* Passes build, host, sensor, GPU and process values to the sink. */
void readings_export(const struct readings *r, const struct family_sink *to);
void process_export(const struct process_reading *p, const struct family_sink *to); /* FAMILY_PROCESS_* */
void build_export(uint32_t isa, const struct family_sink *to);                      /* FAMILY_BUILD_INFO */
void host_export(const struct machine *m, const struct family_sink *to);            /* FAMILY_HOST_INFO */

/* ---------------------------------------------------------------- Pushgateway */

struct push_target {
    const char *url;              /* "http://host:9091"; a path prefix is kept */
    const char *job;              /* "qdyno" */
    const struct label *grouping; /* further grouping labels, in stable order */
    int n_grouping;
    struct http_auth auth;
    int64_t deadline_ns; /* clock_ns; advisor/outcome ends all requests by then. 0: no common limit */
};
/* The address of the group: ".../metrics/job/qdyno/experiment@base64/…". The caller frees *out. ERR_USAGE:
 * bad URL or label name. */
enum err_code push_url(char **out, const struct push_target *t, struct err *why);
/* Replaces all metrics of the group (PUT). *status and errors as for http_send. */
enum err_code push_put(const struct push_target *t, const char *body, int *status, struct err *why);
/* Deletes a group by its address from push_url; of t only auth is used. *status and errors as for http_send.
 */
enum err_code push_delete_url(const struct push_target *t, const char *url, int *status, struct err *why);

/* ---------------------------------------------------------------- scrape server */

/* Answers GET and HEAD of /metrics, of / (a page with a link to /metrics) and of /-/healthy; 404 for other
 * paths, 405 for other methods. Implemented with libmicrohttpd. It has no TLS and no password, so it listens
 * on loopback unless an address is given; use a proxy with both to cross a network. */

/* Writes the page to *body, which is empty before. An error becomes HTTP 500 with its message. Called by one
 * thread of the server, one call at a time. */
typedef enum err_code page_fn(void *ctx, struct str *body, struct err *why);

struct page_server;
struct page_spec {
    const char *listen; /* NULL: loopback; else an address of this machine: "0.0.0.0", "::", "192.0.2.7" */
    int port;           /* 0: any free port */
    page_fn *metrics;
    void *ctx;
};
/* *port (may be NULL): the port it listens on. Errors: ERR_USAGE (not an address of this machine, or a port
 * this user may not open), ERR_ABSENT (the port is in use), ERR_NOMEM. */
enum err_code page_server_start(struct page_server **out, const struct page_spec *spec, int *port,
                                struct err *why);
/* Answers pending requests, then stops. NULL is fine. */
void page_server_stop(struct page_server *s);

#endif
