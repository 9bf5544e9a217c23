/* telemetry/probe/ceilings.c - measures the ceilings of memory bandwidth and arithmetic, and answers
 * questions about them.
 *
 * Each measurement gets an equal share of the remaining time. A slow step, such as the first access to a
 * gigabyte of memory, therefore shortens the other measurements instead of lengthening the whole. */
#include "telemetry/probe/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/probe/ceilings.h"
#include "telemetry/sensors/sensors.h"

static const double DEFAULT_SECONDS = 8, LEAST_SECONDS = 0.02;

/* At least four times the last-level cache, so that no byte is still cached when it is read again; at most a
 * quarter of the available memory. */
static int64_t read_buffer_bytes(void)
{
    struct machine m;
    int64_t bytes = INT64_C(256) << 20;
    if (machine_detect(&m, "", NULL)) return bytes;
    if (m.cache_bytes[2] > 0) bytes = MAX(bytes, 4 * m.cache_bytes[2]);
    bytes = MIN(bytes, INT64_C(2) << 30);
    if (m.memory_available_bytes > 0) bytes = MIN(bytes, m.memory_available_bytes / 4);
    return bytes;
}

const struct machine_ceilings CEILINGS_UNKNOWN = {
    .read_bytes_s_1 = NAN, .read_bytes_s_all = NAN, .others_busy_ratio = NAN, .power_watts = NAN
};

/* Shares the time out among the measurements. */
struct schedule {
    double deadline_s;
    int left, total; /* measurements */
    void (*progress)(void *ctx, const char *what, double done);
    void *ctx;
};

static double now_s(void)
{
    return (double)clock_ns() / 1e9;
}

/* Announces the next measurement and returns how many seconds it may take. */
static double schedule_next(struct schedule *s, const char *what, int threads)
{
    char text[96];
    snprintf(text, sizeof text, "%s, %d thread%s", what, threads, threads == 1 ? "" : "s");
    if (s->progress) s->progress(s->ctx, text, 1 - (double)s->left / s->total);
    double share = (s->deadline_s - now_s()) / s->left--;
    return MAX(share, LEAST_SECONDS);
}

/* The list of measurements: read bandwidth with 1, 2, 4 ... and all threads, each NUMA node if there are
 * several, and arithmetic with one thread and with all. */
struct agenda {
    int threads[CEILINGS_READS + 2], counts; /* rising */
    struct numa *numa;                       /* owned; NULL: one node */
    int nodes;
    int arithmetic; /* rows of CEILINGS that are usable */
    uint32_t isa;
};

static void agenda_open(struct agenda *a, uint32_t isa)
{
    const int all = threadpool_default_threads();
    *a = (struct agenda){ .isa = isa };
    for (int n = 1; n < all && a->counts <= CEILINGS_READS; n *= 2) a->threads[a->counts++] = n;
    a->threads[a->counts++] = all;
    for (size_t i = 0; i < CEILING_COUNT; i++)
        a->arithmetic += (CEILINGS[i].needs & isa) == CEILINGS[i].needs;
    if (numa_open(&a->numa, NULL)) return;
    a->nodes = MIN(numa_count(a->numa), (int)CEILINGS_NODES);
    if (a->nodes > 1) return;
    numa_close(a->numa);
    a->numa = NULL;
    a->nodes = 0;
}

static int agenda_length(const struct agenda *a)
{
    return a->counts + 2 * a->nodes + a->arithmetic * (a->counts > 1 ? 2 : 1);
}

static void probe_reads(struct machine_ceilings *out, const struct agenda *a, struct schedule *s)
{
    const int64_t bytes = read_buffer_bytes();
    for (int i = 0; i < a->counts; i++) {
        const double share = schedule_next(s, "memory read", a->threads[i]);
        const double speed = ceiling_read_bytes_s(&(struct ceiling_reading){ .threads = a->threads[i] },
                                                  bytes, share);
        if (i == 0) out->read_bytes_s_1 = speed;
        if (i == a->counts - 1) out->read_bytes_s_all = speed;
        if (i == 0 || i == a->counts - 1) continue;
        out->read[out->reads].threads = a->threads[i];
        out->read[out->reads++].bytes_s = speed;
    }
    for (int i = 0; i < a->nodes; i++) {
        struct ceiling_reading what = { .threads = MIN(MAX(numa_cores(a->numa, i), 1), out->threads_all),
                                        .nodes = a->numa,
                                        .node = i };
        char name[48];
        snprintf(name, sizeof name, "memory read, node %d", i);
        double share = schedule_next(s, name, what.threads);
        what.near = true;
        out->node[i].own_bytes_s = numa_cores(a->numa, i) ? ceiling_read_bytes_s(&what, bytes, share) : NAN;
        what.threads = out->threads_all;
        what.near = false;
        share = schedule_next(s, name, what.threads);
        out->node[i].all_bytes_s = ceiling_read_bytes_s(&what, bytes, share);
        out->nodes = i + 1;
    }
}

static void probe_arithmetic(struct machine_ceilings *out, const struct agenda *a, struct schedule *s)
{
    for (size_t i = 0; i < CEILING_COUNT; i++) {
        const struct ceiling *c = &CEILINGS[i];
        const bool usable = (c->needs & a->isa) == c->needs;
        double one = NAN, all = NAN;
        char what[64];
        snprintf(what, sizeof what, "%s (%s)", c->name, c->isa);
        if (usable) one = all = ceiling_ops_s(c, a->isa, 1, schedule_next(s, what, 1));
        if (usable && a->counts > 1)
            all = ceiling_ops_s(c, a->isa, out->threads_all, schedule_next(s, what, out->threads_all));
        out->row[i].ops_s_1 = one;
        out->row[i].ops_s_all = all;
        snprintf(out->row[i].name, sizeof out->row[0].name, "%s", c->name);
        snprintf(out->row[i].isa, sizeof out->row[0].isa, "%s", c->isa);
    }
    out->count = (int)CEILING_COUNT;
}

enum err_code machine_probe(struct machine_ceilings *out, uint32_t isa_usable_bits, double seconds,
                            void (*progress)(void *ctx, const char *what, double done), void *ctx,
                            struct err *why)
{
    struct agenda a;
    double row[METRIC_SENSOR_COUNT];
    struct telemetry *sensors = NULL; /* NULL: others_busy_ratio stays unknown */
    *out = CEILINGS_UNKNOWN;
    if (!(seconds >= 0) || seconds > 3600)
        return err_set(why, ERR_USAGE, "probe time: expected 0 to 3600 seconds, got %g", seconds);
    if (CEILING_COUNT > CEILINGS_MAX)
        return err_set(why, ERR_INTERNAL, "%zu ceilings, room for %d", CEILING_COUNT, CEILINGS_MAX);
    agenda_open(&a, isa_usable_bits);
    out->threads_all = a.threads[a.counts - 1];
    if (!telemetry_open(&sensors, "", NULL)) telemetry_sample(sensors, row);
    struct schedule s = { .deadline_s = now_s() + (seconds > 0 ? seconds : DEFAULT_SECONDS),
                          .left = agenda_length(&a),
                          .total = agenda_length(&a),
                          .progress = progress,
                          .ctx = ctx };
    probe_reads(out, &a, &s);
    probe_arithmetic(out, &a, &s);
    numa_close(a.numa);
    out->measured_unix_ms = clock_unix_ms();
    if (sensors) {
        telemetry_sample(sensors, row);
        out->others_busy_ratio = row[METRIC_OTHERS_BUSY];
        telemetry_close(sensors);
    }
    if (progress) progress(ctx, "done", 1);
    return ERR_OK;
}

/* ---------------------------------------------------------------- queries */

double ceilings_read_bytes_s(const struct machine_ceilings *c, int threads)
{
    const double one = c->read_bytes_s_1, all = fmax(c->read_bytes_s_all, one); /* fmax ignores NAN */
    if (threads <= 1) return isnan(one) ? all : one;
    if (threads >= c->threads_all || isnan(one)) return all;
    int from = 1, to = c->threads_all;
    double low = one, high = all;
    for (int i = 0; i < c->reads; i++) {
        if (isnan(c->read[i].bytes_s)) continue;
        if (c->read[i].threads <= threads) {
            from = c->read[i].threads;
            low = c->read[i].bytes_s;
        } else if (c->read[i].threads < to) {
            to = c->read[i].threads;
            high = c->read[i].bytes_s;
        }
    }
    /* between two thread counts: proportional to the threads, up to the bandwidth of the larger count */
    return fmin(fmax(low, high), low * threads / from);
}

double ceilings_node_bytes_s(const struct machine_ceilings *c)
{
    double sum = 0;
    for (int i = 0; i < c->nodes; i++) sum += c->node[i].all_bytes_s;
    return c->nodes > 1 ? sum / c->nodes : NAN;
}

const struct opencl_measured *ceilings_opencl(const struct machine_ceilings *c, const struct device_info *d)
{
    for (int i = 0; i < c->opencl_count; i++) {
        const struct opencl_measured *m = &c->opencl[i];
        if (!strcmp(m->name, d->name) && !strcmp(m->model, d->model) && !strcmp(m->driver, d->driver))
            return m;
    }
    return NULL;
}
