/* telemetry/sensors/sampler.c - a thread that reads each sensor at its own period into a ring of 10 minutes.
 *
 * The thread reads sensors without holding the lock, so a slow driver delays only the next sample; other
 * threads wait at most for a copy. The thread measures its own processor time. */
#include "telemetry/sensors/sensors.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "telemetry/gpu/gpu.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/source.h"
#include "base/sysfs/sysfs.h"

enum { RING_MS = 10 * 60 * 1000, CORES_MAX = 1024 };
static const int64_t MS = 1000000;

struct sampler_thread {
    char root[PATH_MAX];
    int tick_ms;
    int period_ms[METRIC_SENSOR_COUNT];
    pthread_t thread;

    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t wake;
    bool stopping;
    int monitored_pid;
    bool one_gpu;
    char selected_gpu[24];
    struct sample *ring; /* [capacity], oldest at (head - count) */
    int capacity, head, count;
    double latest[METRIC_SENSOR_COUNT];
    double cores[CORES_MAX];
    int n_cores;
    struct energy_reading energy[ENERGY_MAX];
    int energies;
    struct gpu_reading gpu[MACHINE_GPUS];
    int n_gpus;
    int64_t started_ns, now_ns,
        cpu_ns; /* start; time and processor time of the last sample (now_ns 0: none) */
    int64_t ticks, missed;
};

static int64_t thread_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Makes a sample visible to other threads. */
static void sampler_publish(struct sampler_thread *s, const struct sample *sample, const bool *due,
                            const struct telemetry *t, int64_t missed)
{
    pthread_mutex_lock(&s->lock);
    s->ring[s->head] = *sample;
    s->head = (s->head + 1) % s->capacity;
    s->count = MIN(s->count + 1, s->capacity);
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++)
        if (due[i]) s->latest[i] = sample->value[i];
    s->n_cores = telemetry_cores(t, s->cores, CORES_MAX);
    s->energies = telemetry_energy(t, s->energy, ENERGY_MAX);
    s->n_gpus = telemetry_gpus(t, s->gpu, MACHINE_GPUS);
    s->now_ns = clock_ns();
    s->cpu_ns = thread_cpu_ns();
    s->ticks++;
    s->missed += missed;
    pthread_mutex_unlock(&s->lock);
}

/* Sleeps until at_ns on the monotonic clock. False: sampler_stop was called. */
static bool sampler_sleep_until(struct sampler_thread *s, int64_t at_ns)
{
    struct timespec at = { at_ns / 1000000000, at_ns % 1000000000 };
    pthread_mutex_lock(&s->lock);
    while (!s->stopping && pthread_cond_timedwait(&s->wake, &s->lock, &at) != ETIMEDOUT) continue;
    bool go = !s->stopping;
    pthread_mutex_unlock(&s->lock);
    return go;
}

static void *sampler_main(void *arg)
{
    pthread_setname_np(pthread_self(), "sampler");
    struct sampler_thread *s = arg;
    struct telemetry *t; /* opened on this thread, because a GPU driver may take a second to wake up */
    /* A lack of memory or of descriptors may pass. Without this a `watch` would never see a sensor again. */
    while (telemetry_open(&t, s->root, NULL))
        if (!sampler_sleep_until(s, clock_ns() + s->tick_ms * MS)) return NULL;
    const int64_t tick_ns = s->tick_ms * MS;
    int64_t next = clock_ns(), due_ns[METRIC_SENSOR_COUNT] = { 0 };
    while (sampler_sleep_until(s, next)) {
        bool due[METRIC_SENSOR_COUNT];
        for (int i = 0; i < METRIC_SENSOR_COUNT; i++) {
            due[i] = next >= due_ns[i];
            /* a sensor is due at the first tick after its period: with ticks of 100 ms, a period of 250 ms
             * becomes 200 and 300 ms in turn */
            if (due[i]) due_ns[i] = MAX(due_ns[i], next - tick_ns + 1) + s->period_ms[i] * MS;
        }
        pthread_mutex_lock(&s->lock);
        const int pid = s->monitored_pid;
        const bool one_gpu = s->one_gpu;
        char bus[sizeof s->selected_gpu];
        memcpy(bus, s->selected_gpu, sizeof bus);
        pthread_mutex_unlock(&s->lock);

        struct sample sample;
        telemetry_monitor_process(t, pid);
        telemetry_select_gpu(t, one_gpu ? bus : NULL);
        telemetry_sample_due(t, due, sample.value);
        sample.t_ns = clock_ns();
        /* when late, skip ticks instead of catching up in a burst */
        const int64_t missed = (sample.t_ns - next) / tick_ns;
        sampler_publish(s, &sample, due, t, missed);
        next += (1 + missed) * tick_ns;
    }
    telemetry_close(t);
    return NULL;
}

static void sampler_free(struct sampler_thread *s)
{
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s->ring);
    free(s);
}

enum err_code sampler_start(struct sampler_thread **out, const char *root, int tick_ms,
                            const struct sampler_periods *p, struct err *why)
{
    *out = NULL;
    if (tick_ms < 10 || tick_ms > 60000)
        return err_set(why, ERR_USAGE, "sampling period: expected 10 to 60000 ms, got %d", tick_ms);
    if (strlen(root) >= PATH_MAX) return err_set(why, ERR_IO, "path too long: '%s'", root);
    if (!sys_exists(root, "/proc/stat") && !sys_exists(root, "/proc/meminfo"))
        return err_set(why, ERR_IO, "no sensors: neither '%s/proc/stat' nor '%s/proc/meminfo' exists", root,
                       root);
    for (int i = 0; p && i < METRIC_SENSOR_COUNT; i++)
        if (p->ms[i]) tick_ms = MIN(tick_ms, MAX(p->ms[i], 10));
    struct sampler_thread *s = calloc(1, sizeof *s);
    int capacity = RING_MS / tick_ms + 1;
    if (s) s->ring = calloc((size_t)capacity, sizeof *s->ring);
    if (!s || !s->ring) {
        free(s);
        return err_set(why, ERR_NOMEM, "out of memory starting the sampler");
    }
    memcpy(s->root, root, strlen(root) + 1);
    s->tick_ms = tick_ms;
    s->capacity = capacity;
    s->started_ns = clock_ns();
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) {
        s->latest[i] = NAN;
        s->period_ms[i] = p && p->ms[i] ? p->ms[i] : METRICS[i].period_ms;
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int bad = pthread_create(&s->thread, NULL, sampler_main, s);
    if (bad) {
        sampler_free(s);
        return err_set(why, ERR_NOMEM, "cannot start the sampler thread: %s", strerror(bad));
    }
    *out = s;
    return ERR_OK;
}

void sampler_stop(struct sampler_thread *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    sampler_free(s);
}

void sampler_monitor_process(struct sampler_thread *s, int pid)
{
    pthread_mutex_lock(&s->lock);
    s->monitored_pid = pid;
    pthread_mutex_unlock(&s->lock);
}

void sampler_select_gpu(struct sampler_thread *s, const char *bus)
{
    pthread_mutex_lock(&s->lock);
    s->one_gpu = bus != NULL;
    snprintf(s->selected_gpu, sizeof s->selected_gpu, "%s", bus ? bus : "");
    pthread_mutex_unlock(&s->lock);
}

int sampler_latest(struct sampler_thread *s, double row[METRIC_SENSOR_COUNT], double *cores, int max_cores)
{
    pthread_mutex_lock(&s->lock);
    memcpy(row, s->latest, sizeof s->latest);
    int n = MAX(0, MIN(max_cores, s->n_cores));
    if (n) memcpy(cores, s->cores, (size_t)n * sizeof *cores);
    pthread_mutex_unlock(&s->lock);
    return n;
}

int sampler_gpus(struct sampler_thread *s, struct gpu_reading *out, int max)
{
    pthread_mutex_lock(&s->lock);
    const int n = s->n_gpus;
    if (out && n) memcpy(out, s->gpu, (size_t)MAX(0, MIN(max, n)) * sizeof *out);
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* The i-th oldest sample of the ring. */
static const struct sample *ring_at(const struct sampler_thread *s, int i)
{
    return &s->ring[(s->head - s->count + i + s->capacity) % s->capacity];
}

/* How many samples are older than t_ns, by binary search. */
static int ring_older(const struct sampler_thread *s, int64_t t_ns)
{
    int low = 0, high = s->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (ring_at(s, middle)->t_ns < t_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int sampler_window(struct sampler_thread *s, int64_t from_ns, int64_t to_ns, struct sample *out, int max)
{
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (int i = ring_older(s, from_ns); i < s->count && n < max && ring_at(s, i)->t_ns <= to_ns; i++)
        out[n++] = *ring_at(s, i);
    pthread_mutex_unlock(&s->lock);
    return n;
}

void sampler_means(struct sampler_thread *s, int64_t from_ns, int64_t to_ns, double row[METRIC_SENSOR_COUNT])
{
    int known[METRIC_SENSOR_COUNT] = { 0 };
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) row[m] = 0;
    pthread_mutex_lock(&s->lock);
    for (int i = ring_older(s, from_ns); i < s->count && ring_at(s, i)->t_ns <= to_ns; i++) {
        const double *value = ring_at(s, i)->value;
        for (int m = 0; m < METRIC_SENSOR_COUNT; m++)
            if (!isnan(value[m])) {
                row[m] += value[m];
                known[m]++;
            }
    }
    pthread_mutex_unlock(&s->lock);
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) row[m] = known[m] ? row[m] / known[m] : (double)NAN;
}

int sampler_energy(struct sampler_thread *s, struct energy_reading *out, int max)
{
    pthread_mutex_lock(&s->lock);
    int n = MAX(MIN(max, s->energies), 0);
    memcpy(out, s->energy, (size_t)n * sizeof *out);
    pthread_mutex_unlock(&s->lock);
    return n;
}

int64_t sampler_ticks(struct sampler_thread *s, int64_t *missed)
{
    pthread_mutex_lock(&s->lock);
    const int64_t ticks = s->ticks;
    if (missed) *missed = s->missed;
    pthread_mutex_unlock(&s->lock);
    return ticks;
}

double sampler_cost_ratio(struct sampler_thread *s)
{
    pthread_mutex_lock(&s->lock);
    int64_t wall = s->now_ns - s->started_ns;
    double ratio = s->now_ns && wall > 0 ? (double)s->cpu_ns / (double)wall : NAN;
    pthread_mutex_unlock(&s->lock);
    return ratio;
}
