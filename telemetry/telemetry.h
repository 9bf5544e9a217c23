/* telemetry/telemetry.h - the machine: what it is, what it is doing, what it could do, and how to tell
 * others.
 *
 * Absence is data: a sensor this machine lacks reads NAN. The root of /proc and /sys can be replaced, so
 * recorded machines replay in tests. */
#ifndef QDYNO_TELEMETRY_H
#define QDYNO_TELEMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "telemetry/exposition.h"
#include "telemetry/gpu.h"
#include "telemetry/recording.h"
#include "telemetry/http.h"
#include "telemetry/kernel_times.h"
#include "telemetry/metrics.h"
#include "telemetry/server.h"
#include "telemetry/otlp.h"

/* ---------------------------------------------------------------- what the machine is */

struct machine {
    char id[13]; /* short fingerprint: a hash of what does not change between boots (CPU, cores, caches,
                    memory class, GPUs) */
    char host[64], kernel[96], os[96], cpu[96], governor[32], hypervisor[32];
    uint32_t isa; /* bits detected (this process's machine, or from the recorded flags) */
    int sockets, cores, processors, numa_nodes;
    int64_t cache_bytes[3]; /* per core L1d, L2; whole L3; -1 unknown */
    int64_t memory_bytes;
    int64_t memory_available_bytes; /* what one more program may take, control group limits respected */
    int64_t cgroup_memory_bytes;    /* -1: no limit */
    double cgroup_cpus;             /* quota or cpuset, whichever is less; NAN: no limit */
    int gpus;
    struct gpu_identity gpu[MACHINE_GPUS];
    bool has_battery, on_battery;
};
/* root: "" for this machine, or a folder holding recorded proc/ and sys/. Unknown fields are -1, NAN or "".
 * Errors: ERR_IO when <root>/proc cannot be read. */
enum err_code machine_detect(struct machine *out, const char *root, struct err *why);
json_t *machine_to_json(const struct machine *m); /* new reference; unknown = null */
enum err_code machine_from_json(struct machine *m, const json_t *object, struct err *why);
/* How this machine is set up today: settings that change while the hardware stays, by group: "kernel"
 * (release, command line, huge pages, mitigations ...), "governor" (governor, driver, turbo, SMT ...),
 * "microcode". Texts as the system writes them; unknown = null. New reference. */
json_t *machine_state_to_json(const char *root);
/* "Xeon 2c AMX·VNNI·BF16 23.0G no GPU": for a title line. Returns buf. */
const char *machine_short(const struct machine *m, char *buf, size_t size);

/* ---------------------------------------------------------------- what it could do */

/* What one of its GPUs could do: from its maker's figures, in a machine's description. NAN or 0: unknown, or
 * not a thing this GPU has. Operations count a multiply-add as 2, without sparsity. */
struct gpu_ceilings {
    double read_bytes_s;
    double f32_ops_s, f16_ops_s, bf16_ops_s, tf32_ops_s, fp8_ops_s, int8_ops_s; /* of matrix products */
    double link_bytes_s; /* from the machine's memory */
    double power_watts;  /* its limit */
    bool unified;        /* its memory is the machine's */
};

/* What an OpenCL device was measured to do: who it was then, for one that has taken its name since. */
struct opencl_measured {
    char name[16], model[96], driver[64];
    struct device_ceilings can;
};

enum { CEILINGS_MAX = 16, CEILINGS_OPENCL = 8, CEILINGS_READS = 12, CEILINGS_NODES = 16 };
struct machine_ceilings {
    double read_bytes_s_1, read_bytes_s_all; /* NAN: not measured */
    int threads_all;
    int reads; /* between one thread and all of them: 2, 4, 8 ... */
    struct {
        int threads;
        double bytes_s;
    } read[CEILINGS_READS];
    int nodes; /* memory nodes, where there are several: what lies on one, read by its own processors and by
                  all of the machine's. A file's pages lie like that. NAN: not measured */
    struct {
        double own_bytes_s, all_bytes_s;
    } node[CEILINGS_NODES];
    int count; /* rows below, one per kernels' CEILINGS row */
    struct {
        char name[24], isa[24]; /* as in kernels' CEILINGS: "int8_tile" "amx" */
        double ops_s_1, ops_s_all;
    } row[CEILINGS_MAX];
    int64_t measured_unix_ms;
    double others_busy_ratio; /* processor time other programs took meanwhile (METRIC_OTHERS_BUSY), NAN
                                 unknown: above a tenth, the ceilings are lower than the machine's */
    double power_watts;       /* of the processors while all of them compute; 0 or NAN unknown */
    struct gpu_ceilings gpu;  /* {0}: none known */
    int opencl_count;
    struct opencl_measured opencl[CEILINGS_OPENCL]; /* by `detect --probe` alone: foreign drivers take part */
    struct kernel_times kernels;
};
/* The device as it was measured, or NULL: never, or another driver's. */
const struct opencl_measured *ceilings_opencl(const struct machine_ceilings *c, const struct device_info *d);
/* Bytes/s that so many threads read together: measured, or between what was. NAN unknown. */
double ceilings_read_bytes_s(const struct machine_ceilings *c, int threads);
/* Bytes/s at which all threads read what lies on one memory node, on average; NAN: one node, or unknown. */
double ceilings_node_bytes_s(const struct machine_ceilings *c);
/* Measures all ceilings of the processors in at most `seconds` (default 8 when 0). progress may be NULL. */
enum err_code machine_probe(struct machine_ceilings *out, uint32_t isa_usable, double seconds,
                            void (*progress)(void *ctx, const char *what, double done), void *ctx,
                            struct err *why);
json_t *ceilings_to_json(const struct machine_ceilings *c);
enum err_code ceilings_from_json(struct machine_ceilings *c, const json_t *object, struct err *why);
/* The probe is cached per machine id in $XDG_CACHE_HOME/qdyno/ceilings-<id>.json. *found tells. */
enum err_code ceilings_load(struct machine_ceilings *c, const char *machine_id, bool *found, struct err *why);
enum err_code ceilings_save(const struct machine_ceilings *c, const char *machine_id, struct err *why);

/* ---------------------------------------------------------------- what it is doing */

struct telemetry; /* every open sensor; reading never blocks longer than 2 ms (but for the link of one older
                     NVIDIA card in five seconds: 40 ms); not thread-safe: one sampler per thread */

/* Finding no sensor is a success. Errors: ERR_NOMEM; ERR_IO when procfs itself cannot be read. */
enum err_code telemetry_open(struct telemetry **out, const char *root, struct err *why);
void telemetry_close(struct telemetry *t);

/* The process tree METRIC_PROC_* looks at: this pid and its children (0: none; NAN then). */
void telemetry_watch_process(struct telemetry *t, int pid);
/* The device METRIC_GPU_* are of, by its PCI address; "": one that nobody knows, so NAN. NULL: all of them.
 */
void telemetry_watch_gpu(struct telemetry *t, const char *bus);

/* row[METRIC_SENSOR_COUNT]; rates since the previous call (NAN on the first). */
void telemetry_sample(struct telemetry *t, double *row);
/* Per-core busy ratio of the last sample; returns how many were filled (at most max). */
int telemetry_cores(const struct telemetry *t, double *busy, int max);
/* Per-core clock of the last sample, NAN unknown (of more than 64 cores only some are read). */
int telemetry_core_hertz(const struct telemetry *t, double *hertz, int max);

/* What an energy counter has counted since the sensors were opened; NAN before two readings. Wraps are
 * followed as long as the counter is read at its period. */
struct energy_reading {
    char domain[32]; /* "package-0" "package-0-core" "package-0-dram" "psys" */
    double joules;
};
/* As of the last sample; returns how many were filled (at most max). */
int telemetry_energy(const struct telemetry *t, struct energy_reading *out, int max);

/* Why a sensor has no value here: "" when it answers or only waits for a second reading. *denied (may be
 * NULL): the hardware is there, but this user may not read it; the text says what to do. Borrowed. */
const char *telemetry_absence(const struct telemetry *t, enum metric_id sensor, bool *denied);

/* A thread that samples each metric at its period into a ring. */
struct sampler_thread;
struct sample {
    int64_t t_ns;                      /* clock_ns() */
    double value[METRIC_SENSOR_COUNT]; /* NAN where absent or not due at this tick (last value is not
                                          repeated) */
};
/* Returns at once: sensors are opened on the thread (a GPU driver may take a second). tick_ms 10 to 60000:
 * no sensor is read more often. Errors: ERR_USAGE (tick_ms), ERR_NOMEM, ERR_IO when procfs itself cannot be
 * read. */
enum err_code sampler_start(struct sampler_thread **out, const char *root, int tick_ms /* 100 */,
                            struct err *why);

/* Periods other than those of METRICS. */
enum { SAMPLER_PERIOD_MAX_MS = 60000 };
struct sampler_periods {
    int ms[METRIC_SENSOR_COUNT]; /* 0: the default */
};
/* Adds "cpu_temperature_celsius=1000,gpu_power_watts=500" to *p. Errors: ERR_USAGE: no such sensor (with the
 * nearest name), below the sensor's own resolution, above SAMPLER_PERIOD_MAX_MS. */
enum err_code sampler_periods_parse(struct sampler_periods *p, const char *settings, struct err *why);
/* sampler_start with periods of one's own, p NULL: none. A period below tick_ms makes the tick shorter. */
enum err_code sampler_start_periods(struct sampler_thread **out, const char *root, int tick_ms,
                                    const struct sampler_periods *p, struct err *why);
/* A sensor by its name. ERR_USAGE with the nearest name. */
enum err_code sensor_find(enum metric_id *out, const char *name, struct err *why);

void sampler_stop(struct sampler_thread *s); /* NULL is fine */
void sampler_watch_process(struct sampler_thread *s, int pid);
void sampler_watch_gpu(struct sampler_thread *s, const char *bus); /* as telemetry_watch_gpu */
/* Latest known value of each sensor (NAN absent), and per-core busy. Thread-safe. Returns cores filled. */
int sampler_latest(struct sampler_thread *s, double row[METRIC_SENSOR_COUNT], double *cores, int max_cores);
/* telemetry_core_hertz and telemetry_energy of the sampler's last reading. Thread-safe. */
int sampler_core_hertz(struct sampler_thread *s, double *hertz, int max);
int sampler_energy(struct sampler_thread *s, struct energy_reading *out, int max);
/* Samples with t in [from, to], oldest first, at most `max`; returns the count. The ring holds 10 minutes.
 * Thread-safe. */
int sampler_window(struct sampler_thread *s, int64_t from_ns, int64_t to_ns, struct sample *out, int max);
/* What sampling costs: processor seconds of the thread per second of wall time; NAN before the first sample.
 */
double sampler_cost_ratio(struct sampler_thread *s);
/* Ticks so far; *missed (may be NULL): those left out because the one before took too long or the thread got
 * no processor. Thread-safe. */
int64_t sampler_ticks(struct sampler_thread *s, int64_t *missed);

/* ---------------------------------------------------------------- telling others */

/* A push to a Prometheus Pushgateway (see docs/monitoring.md). */
struct push_target {
    const char *url;              /* "http://host:9091", a path prefix is kept */
    const char *job;              /* "qdyno" */
    const struct label *grouping; /* further grouping labels, stable order */
    int n_grouping;
    struct http_auth auth;
};
/* ".../metrics/job/qdyno/experiment@base64/…": free(). ERR_USAGE on a bad URL or label name. */
enum err_code push_url(char **out, const struct push_target *t, struct err *why);
/* PUT replaces the group, DELETE takes it away. *status and errors are those of http_send. */
enum err_code push_put(const struct push_target *t, const char *body, int *status, struct err *why);
enum err_code push_delete(const struct push_target *t, int *status, struct err *why);
/* The same for a group by the address that push_url once gave; of t only auth counts. */
enum err_code push_delete_url(const struct push_target *t, const char *url, int *status, struct err *why);

#include "telemetry/families.h"
#include "telemetry/otlp_metrics.h"

#endif
