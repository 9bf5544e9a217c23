/* telemetry/probe/kernel_probe.c - measures how long each operation of our own kernels takes.
 *
 * Each operation runs through the backend as the engine runs it: with weights that stay in a cache, and for
 * one row of activations also with weights in main memory. Several passes visit all formats. Operations that
 * most predictions depend on come first, so that even a short measurement is useful. */
#include "telemetry/probe/kernel_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "telemetry/probe/probe.h"
#include "telemetry/probe/stopwatch.h"

enum { PASSES = STOPWATCH_SAMPLES / STOPWATCH_RUNS };
static const double DEFAULT_SECONDS = 55, READ_S = 0.05;
/* A byte that is a small normal number in every floating-point and scale format: no denormals, no NAN. */
enum { UNCACHED_BYTE = 0x2c };

/* Reports progress. False when the user cancelled or the time is used up. */
static bool bench_has_time(struct bench *b, const char *what)
{
    const double now = probe_now_s();
    if (b->progress && !b->progress(b->ctx, what, (now - b->begun_s) / (b->deadline_s - b->begun_s)))
        b->cancelled = true;
    return !b->cancelled && now < b->deadline_s;
}

/* ---------------------------------------------------------------- correction to the reference state */

/* README.md, "Correction to a reference state", explains the formulas of this section. */

struct memory_conditions {
    double usual_s; /* r_usual: seconds per weight of the memory probe */
    double slower;  /* s: how many times slower than at best the cores were beside the memory probes */
};

/* Seconds per unit of work that waits for memory. ratio: m, its time divided by the memory probe's.
 * computing_s: the reference time of the same work in caches. */
static double stream_reference_s(const struct memory_conditions *m, double ratio, double computing_s)
{
    const double waiting_s = kernel_time_waiting(ratio * m->usual_s, computing_s * m->slower);
    return kernel_time_together(computing_s, waiting_s);
}

static void streams_to_reference(struct bench *b, int t, const struct memory_conditions *m)
{
    struct kernel_times *k = b->out;
    const double probe_s = stream_reference_s(m, 1,
                                              (double)k->product[FORMAT_Q8_0][KERNEL_VARIANT_AUTO][0][t]);
    if (time_is_valid(probe_s)) k->memory_speed[t] = (float)(1 / probe_s);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const double weight_s = stream_reference_s(m, samples_median(&b->stream[f][t]),
                                                   (double)k->product[f][KERNEL_VARIANT_AUTO][0][t]);
        const double attend_s = stream_reference_s(m, samples_median(&b->attend_far[f][t]),
                                                   (double)k->attend_one[f][t]);
        if (time_is_valid(weight_s)) k->stream[f][t] = (float)weight_s;
        if (time_is_valid(attend_s)) k->attend_far[f][t] = (float)attend_s;
    }
}

static void time_scale(float *s, double by)
{
    *s = (float)((double)*s * by);
}

/* Converts all times of work in caches to the reference state, in which the cores run at their best speed.
 * best_s: the time of the speed probe at that speed; first_compute_s: its time at the start of the
 * measurement. The stopwatch already converted each time to the speed at the start, because the best speed is
 * known only at the end. A time t of work with load sensitivity e becomes t * (best_s / first_compute_s)^e;
 * times of work with e = 1 are multiplied by `by`. struct kernel_times (probe.h) explains the fields. */
static void kernel_times_to_reference(struct bench *b, int t)
{
    struct kernel_times *k = b->out;
    struct stopwatch *w = b->stopwatch[t];
    const double best_s = stopwatch_best_compute_s(w);
    const double by = best_s / w->first_compute_s; /* the factor for a load sensitivity of 1 */
    const double by_attention = pow(by, KERNEL_LOAD_SENSITIVITY_ATTENTION);
    if (!time_is_valid(best_s)) return; /* nothing was timed */
    k->compute_speed[t] = (float)(1 / best_s);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const struct format *format = &FORMATS[f];
        for (int v = 0; v < KERNEL_VARIANTS; v++) {
            for (int r = 0; r < KERNEL_ROWS; r++)
                time_scale(&k->product[f][v][r][t],
                           pow(by, probe_load_sensitivity(b, format, v, KERNEL_ROWS_AT[r])));
            time_scale(&k->attend_many[f][v][t], by_attention);
        }
        time_scale(&k->edge[f][t],
                   pow(by, probe_load_sensitivity(b, format, KERNEL_VARIANT_AUTO, PROBE_ROWS)));
        time_scale(&k->attend_one[f][t], by);
        time_scale(&k->narrow_one[f][t], by);
        time_scale(&k->apart_one[f][t], by);
        time_scale(&k->narrow_many[f][t], by_attention);
        /* `near` (seconds per weight) comes from products with a small matrix. It therefore includes
         * `region`, the seconds that starting the threads takes in each product. Predictions add `region`
         * themselves, so its share per weight is subtracted here. Both are measured, so at least 10 % of
         * `near` stays. */
        k->near[f][t] = fmaxf(k->near[f][t] - k->region[t] / KERNEL_NEAR_WEIGHTS, 0.1f * k->near[f][t]);
        time_scale(&k->near[f][t], by);
        time_scale(&k->row[f][t], by);
        time_scale(&k->row_short[f][t], by);
    }
    time_scale(&k->region[t], by);
    time_scale(&k->glue[t], by);
    time_scale(&k->glue_element[t], by);
    /* usual_beside_s: the usual time of the compute probes that ran beside the memory probes */
    const struct memory_conditions conditions = { .usual_s = stopwatch_usual_memory_s(w),
                                                  .slower = fmax(stopwatch_usual_beside_s(w) / best_s, 1) };
    streams_to_reference(b, t, &conditions);
}

/* ---------------------------------------------------------------- the measurement */

static enum err_code bench_backend_open(struct backend **out, const struct bench *b, enum kernel_variant v,
                                        int t, struct err *why)
{
    const struct backend_options o = probe_options(b, v, t);
    enum err_code rc = backend_open(out, "cpu", &o, why);
    if (!rc)
        rc = backend_reserve(*out, &(struct backend_work){ .rows = PROBE_ROWS, .cols = PROBE_WIDE }, why);
    if (rc) {
        backend_close(*out);
        *out = NULL;
    }
    return rc;
}

/* Times all formats once. again: a later pass, which repeats only what decoding depends on and what appears
 * disturbed. */
static void bench_formats(struct bench *b, struct backend *backend, enum kernel_variant v, int t, bool again)
{
    char what[96];
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (!FORMATS[f].encode || !FORMATS[f].decode) continue;
        snprintf(what, sizeof what, "%s%s, %s, %d thread%s", FORMATS[f].name, again ? " again" : "",
                 KERNEL_VARIANT_NAMES[v], b->threads[t], b->threads[t] == 1 ? "" : "s");
        if (!bench_has_time(b, what)) return;
        probe_products(b, backend, f, v, t, v != KERNEL_VARIANT_AUTO || (again && !probe_disturbed(b, f, t)));
        if (v == KERNEL_VARIANT_AUTO) probe_stream(b, backend, f, t);
    }
}

/* Times attention, and for default settings everything else that does not depend on the weight format. */
static void bench_rest(struct bench *b, struct backend *backend, enum kernel_variant v, int t, bool again)
{
    /* formats of the KV cache, the two most common first */
    static const int KV[] = {
        FORMAT_F16, FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_F32, FORMAT_BF16, FORMAT_FP8_E4M3
    };
    const size_t most = again ? 2 : v == KERNEL_VARIANT_AUTO ? COUNT_OF(KV) : 1;
    for (size_t i = 0; i < most && bench_has_time(b, "attention"); i++) {
        probe_attention(b, backend, KV[i], v, t);
        if (v == KERNEL_VARIANT_AUTO) probe_attention_far(b, backend, KV[i], t);
    }
    if (v != KERNEL_VARIANT_AUTO) return;
    probe_region(b, backend, t);
    probe_glue(b, backend, t);
    if (t) probe_wake(b, backend);
}

static void bench_reads(struct bench *b, int t)
{
    const struct ceiling_reading all = { .threads = b->threads[t] };
    for (int i = 0; i < KERNEL_READS && bench_has_time(b, "memory read"); i++) {
        samples_add(&b->read[i][t], 1 / ceiling_read_bytes_s(&all, KERNEL_READ_AT[i], READ_S));
        const double speed = 1 / samples_median(&b->read[i][t]);
        if (time_is_valid(speed)) b->out->read[i][t] = (float)speed;
    }
}

static enum err_code bench_variant(struct bench *b, enum kernel_variant v, int t, bool again, struct err *why)
{
    struct backend *backend = b->backend[t];
    enum err_code rc = v == KERNEL_VARIANT_AUTO ? ERR_OK : bench_backend_open(&backend, b, v, t, why);
    if (rc) return rc;
    bench_formats(b, backend, v, t, again);
    bench_rest(b, backend, v, t, again);
    if (v == KERNEL_VARIANT_AUTO)
        bench_reads(b, t);
    else
        backend_close(backend);
    return ERR_OK;
}

static void normal_fill(float *x, int64_t n)
{
    uint64_t seed = 88172645463325252u;
    for (int64_t i = 0; i < n; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++) { /* the sum of twelve uniform numbers approximates a normal one */
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            sum += (double)(seed >> 11) * 0x1p-53;
        }
        x[i] = (float)sum;
    }
}

static enum err_code bench_allocate(struct bench *b, struct err *why)
{
    const size_t rows = sizeof(float) * PROBE_ROWS * PROBE_WIDE;
    b->x = aligned_alloc(64, rows);
    b->y = aligned_alloc(64, rows);
    b->matrix = aligned_alloc(64, sizeof(float) * PROBE_WIDE * PROBE_WIDE);
    b->normal_row = aligned_alloc(64, sizeof(float) * PROBE_WIDE);
    b->uncached = mmap(NULL, (size_t)PROBE_UNCACHED_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->uncached == MAP_FAILED) b->uncached = NULL;
    if (!b->x || !b->y || !b->matrix || !b->normal_row || !b->uncached)
        return err_set(why, ERR_NOMEM, "timing the compute kernels needs 600 MB of memory");
    /* The speed of small pages depends on where in physical memory they are. Times measured with huge pages
     * predict a model's decoding within 3 % (four formats); with small pages they are up to 4 % too long. */
    madvise(b->uncached, (size_t)PROBE_UNCACHED_BYTES, MADV_HUGEPAGE); /* only a hint */
    memset(b->uncached, UNCACHED_BYTE, (size_t)PROBE_UNCACHED_BYTES);
    normal_fill(b->normal_row, PROBE_WIDE);
    for (int64_t i = 0; i < (int64_t)PROBE_ROWS * PROBE_WIDE; i++) b->x[i] = b->normal_row[i % PROBE_WIDE];
    return ERR_OK;
}

enum err_code kernel_times_measure(struct kernel_times *out, uint32_t isa_usable_bits, double seconds,
                                   kernel_progress_fn *progress, void *ctx, struct err *why)
{
    const int all = threadpool_default_threads();
    struct bench b = {
        .out = out, .isa = isa_usable_bits, .threads = { 1, all }, .progress = progress, .ctx = ctx
    };
    memset(out, 0, sizeof *out);
    out->stream_bytes = PROBE_UNCACHED_BYTES;
    enum err_code rc = bench_allocate(&b, why);
    const int last = all > 1 ? 0 : 1;
    for (int t = last; t < 2 && !rc; t++) {
        rc = bench_backend_open(&b.backend[t], &b, KERNEL_VARIANT_AUTO, t, why);
        if (!rc) rc = stopwatch_open(&b.stopwatch[t], b.backend[t], why);
    }
    b.begun_s = probe_now_s();
    b.deadline_s = b.begun_s + (seconds > 0 ? seconds : DEFAULT_SECONDS);
    for (int pass = 0; pass < PASSES && !rc; pass++) {
        for (int t = 1; t >= last && !rc; t--) rc = bench_variant(&b, KERNEL_VARIANT_AUTO, t, pass > 0, why);
        for (int v = 1; v < KERNEL_VARIANTS && pass == 1 && !rc; v++)
            rc = bench_variant(&b, v, 1, false, why);
    }
    for (int t = 0; t < 2; t++) {
        if (b.stopwatch[t]) kernel_times_to_reference(&b, t);
        stopwatch_close(b.stopwatch[t]);
        backend_close(b.backend[t]);
    }
    free(b.x);
    free(b.y);
    free(b.matrix);
    free(b.normal_row);
    if (b.uncached) munmap(b.uncached, (size_t)PROBE_UNCACHED_BYTES);
    if (!rc && b.cancelled) rc = err_set(why, ERR_CANCELLED, "interrupted");
    out->measured = !rc;
    out->measured_unix_ms = clock_unix_ms();
    return rc;
}
