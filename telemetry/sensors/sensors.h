/* telemetry/sensors/sensors.h - reads the sensors of this machine, once or periodically on a thread.
 *
 * A sensor that this machine lacks reads NAN. Values are in the units of METRICS. */
#ifndef QDYNO_TELEMETRY_SENSORS_H
#define QDYNO_TELEMETRY_SENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/metrics/metrics.h"

/* ---------------------------------------------------------------- reading once */

/* All open sensors. Reading them takes at most 2 ms, except that one older NVIDIA card is asked for its PCI
 * Express traffic every 5 s, which takes 40 ms. Not thread-safe: use one per thread. */
struct telemetry;

/* root: "" for this machine, or a folder with recorded proc/ and sys/ trees. Finding no sensor is a success.
 * *out: telemetry_close. Errors: ERR_NOMEM; ERR_IO when procfs itself cannot be read. */
enum err_code telemetry_open(struct telemetry **out, const char *root, struct err *why);
/* Only processors, their RAPL counters and memory, which takes little time; all other metrics are NAN. */
enum err_code telemetry_open_host(struct telemetry **out, const char *root, struct err *why);
void telemetry_close(struct telemetry *t); /* NULL is fine */

/* The files below `root` are copies, so their counters never advance: rates and power are unknown, not 0. A
 * root with the file RECORDING_ABOUT is treated so by itself. */
void telemetry_freeze(struct telemetry *t);

/* METRIC_PROC_* describe process `pid` and its descendants from now on. 0: no process, and they are NAN. */
void telemetry_monitor_process(struct telemetry *t, int pid);
/* METRIC_GPU_* describe the device with PCI address `bus` from now on. NULL: all devices together. "": a
 * device whose address is unknown, so they are NAN. */
void telemetry_select_gpu(struct telemetry *t, const char *bus);

/* Reads all sensors into row[METRIC_SENSOR_COUNT]. Rates are per second since the previous call, and NAN on
 * the first call. */
void telemetry_sample(struct telemetry *t, double *row);

/* The following return values of the last sample. Each writes at most `max` elements and returns how many. */

/* Share of time each processor was busy; NAN: unknown. */
int telemetry_cores(const struct telemetry *t, double *busy, int max);
/* Clock of each processor; NAN: unknown. On machines with more than 64 processors only some are read. */
int telemetry_core_hertz(const struct telemetry *t, double *hertz, int max);

/* Energy that a counter has measured since the sensors were opened; NAN before its second reading. A counter
 * that wraps around is followed correctly if it is read at its period. */
struct energy_reading {
    char domain[32]; /* "package-0" "package-0-core" "package-0-dram" "psys" */
    double joules;
};
int telemetry_energy(const struct telemetry *t, struct energy_reading *out, int max);
/* Readings of each GPU. Returns how many GPUs there are, which may exceed max; out NULL: only counts. */
int telemetry_gpus(const struct telemetry *t, struct gpu_reading *out, int max);

/* Why a sensor has no value on this machine. "": it has one, or it is a rate and waits for its second
 * reading. *denied (may be NULL): the hardware exists, but this user may not read it; the text then says how
 * to get permission. Borrowed until the next sample. */
const char *telemetry_absence(const struct telemetry *t, enum metric_id sensor, bool *denied);

/* Finds a sensor by its name in METRICS. ERR_USAGE: unknown name; the message suggests the nearest one. */
enum err_code sensor_find(enum metric_id *out, const char *name, struct err *why);

/* ---------------------------------------------------------------- reading periodically */

/* A thread that reads each sensor at its period and keeps the samples of the last 10 minutes in a ring. All
 * functions below are thread-safe. */
struct sampler_thread;

struct sample {
    int64_t t_ns;                      /* clock_ns() after reading */
    double value[METRIC_SENSOR_COUNT]; /* NAN: sensor absent, or not due at this tick */
};

/* Sampling periods that replace those of METRICS. */
enum { SAMPLER_PERIOD_MAX_MS = 60000 };
struct sampler_periods {
    int ms[METRIC_SENSOR_COUNT]; /* 0: the period in METRICS */
};
/* Adds settings such as "cpu_temperature_celsius=1000,gpu_power_watts=500" to *p. ERR_USAGE: an unknown
 * sensor (the message suggests the nearest name), or a period below the sensor's resolution or above
 * SAMPLER_PERIOD_MAX_MS. */
enum err_code sampler_periods_parse(struct sampler_periods *p, const char *settings, struct err *why);

/* Starts the thread and returns at once; the thread opens the sensors, which may take a second with a GPU
 * driver. tick_ms: from 10 to 60000 (usually 100); no sensor is read more often, except that a period in *p
 * below tick_ms shortens the tick. p NULL: the periods in METRICS. *out: sampler_stop.
 * Errors: ERR_USAGE (tick_ms), ERR_NOMEM, ERR_IO when procfs itself cannot be read. */
enum err_code sampler_start(struct sampler_thread **out, const char *root, int tick_ms,
                            const struct sampler_periods *p, struct err *why);
void sampler_stop(struct sampler_thread *s); /* NULL is fine */

void sampler_monitor_process(struct sampler_thread *s, int pid);    /* see telemetry_monitor_process */
void sampler_select_gpu(struct sampler_thread *s, const char *bus); /* see telemetry_select_gpu */

/* The latest known value of each sensor (NAN: none) and each processor's busy share. Returns how many
 * processors were written, at most max_cores. */
int sampler_latest(struct sampler_thread *s, double row[METRIC_SENSOR_COUNT], double *cores, int max_cores);
/* As telemetry_energy and telemetry_gpus, for the latest sample. */
int sampler_energy(struct sampler_thread *s, struct energy_reading *out, int max);
int sampler_gpus(struct sampler_thread *s, struct gpu_reading *out, int max);
/* Copies the samples taken from from_ns to to_ns, oldest first, at most `max`. Returns how many. */
int sampler_window(struct sampler_thread *s, int64_t from_ns, int64_t to_ns, struct sample *out, int max);
/* The energy between two times from the samples of a power sensor, and the half width of its interval of
 * about 95 %. NAN without samples. docs/metrics.md has the formula. */
struct energy {
    double joules, half_joules;
};
struct energy energy_integral(const struct sample *s, int n, enum metric_id power, int64_t from_ns,
                              int64_t to_ns);
/* The mean of each sensor over that time; NAN: it has no sample there. */
void sampler_means(struct sampler_thread *s, int64_t from_ns, int64_t to_ns, double row[METRIC_SENSOR_COUNT]);

/* Processor seconds the thread uses per second of wall time; NAN before the first sample. */
double sampler_cost_ratio(struct sampler_thread *s);
/* Number of ticks so far. *missed (may be NULL): ticks skipped because the previous one took too long or the
 * thread did not get a processor. */
int64_t sampler_ticks(struct sampler_thread *s, int64_t *missed);

#endif
