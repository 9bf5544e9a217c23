/* telemetry/probe/kernel_probe.c - how long our own kernels take here, one operation at a time.
 *
 * Each operation is run through the backend as the engine runs it, with weights that stay in a cache, and for
 * one row also with weights that do not; all in what looks at the machine took beside it (stopwatch.h), in
 * several passes over all formats. The commonest settings come first, so that a short time gives what most
 * predictions stand on. */
#include "telemetry/probe/kernel_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "telemetry/probe/probe.h"
#include "telemetry/probe/stopwatch.h"

enum { PASSES = STOPWATCH_SAMPLES / STOPWATCH_RUNS };
static const double DEFAULT_SECONDS = 55, READ_S = 0.05;
/* A small number in every format of floating-point numbers and of scales: nothing denormal, no NAN. */
enum { BANK_BYTE = 0x2c };

static bool time_is_left(struct bench *b, const char *what)
{
    const double now = now_s();
    if (b->progress && !b->progress(b->ctx, what, (now - b->begun_s) / (b->deadline_s - b->begun_s)))
        b->cancelled = true;
    return !b->cancelled && now < b->deadline_s;
}

/* What took `looks` at memory, as if cores had been at their best: what is waited for is what both together
 * took at that moment less what computing took then. */
struct moment_of_reading {
    double usual_s; /* of a look at memory */
    double slower;  /* cores took so many times what they take at best */
};

static double from_memory(const struct moment_of_reading *m, double looks, double computing_s)
{
    return kernel_time_together(computing_s,
                                kernel_time_waiting(looks * m->usual_s, computing_s * m->slower));
}

static void put_streams(struct bench *b, int t, const struct moment_of_reading *m)
{
    struct kernel_times *k = b->out;
    const double look_s = from_memory(m, 1, (double)k->product[FORMAT_Q8_0][KERNEL_VARIANT_AUTO][0][t]);
    if (usable(look_s)) k->memory_speed[t] = (float)(1 / look_s);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const double weight = from_memory(m, samples_middle(&b->stream[f][t]),
                                          (double)k->product[f][KERNEL_VARIANT_AUTO][0][t]);
        const double pair = from_memory(m, samples_middle(&b->far[f][t]), (double)k->attend_one[f][t]);
        if (usable(weight)) k->stream[f][t] = (float)weight;
        if (usable(pair)) k->attend_far[f][t] = (float)pair;
    }
}

static void scale(float *s, double by)
{
    *s = (float)((double)*s * by);
}

/* All of them as if the machine had been one and the same: memory as it usually was, cores at their best. */
static void put_seconds(struct bench *b, int t)
{
    struct kernel_times *k = b->out;
    struct stopwatch *w = b->watch[t];
    const double best_s = stopwatch_best_compute_s(w), fully = best_s / w->first_s;
    if (!usable(best_s)) return; /* nothing was timed */
    k->compute_speed[t] = (float)(1 / best_s);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        for (int v = 0; v < KERNEL_VARIANTS; v++) {
            for (int r = 0; r < KERNEL_ROWS; r++)
                scale(&k->product[f][v][r][t], pow(fully, probe_feels(b, &FORMATS[f], v, KERNEL_ROWS_AT[r])));
            scale(&k->attend_many[f][v][t], pow(fully, KERNEL_LOAD_SENSITIVITY_ATTENTION));
        }
        scale(&k->edge[f][t], pow(fully, probe_feels(b, &FORMATS[f], KERNEL_VARIANT_AUTO, PROBE_ROWS)));
        scale(&k->attend_one[f][t], fully);
        scale(&k->narrow_one[f][t], fully);
        scale(&k->apart_one[f][t], fully);
        scale(&k->narrow_many[f][t], pow(fully, KERNEL_LOAD_SENSITIVITY_ATTENTION));
        k->near[f][t] = fmaxf(k->near[f][t] - k->region[t] / KERNEL_NEAR_WEIGHTS, 0.1f * k->near[f][t]);
        scale(&k->near[f][t], fully);
        scale(&k->row[f][t], fully);
        scale(&k->row_short[f][t], fully);
    }
    scale(&k->region[t], fully);
    scale(&k->glue[t], fully);
    scale(&k->glue_element[t], fully);
    put_streams(b, t,
                &(struct moment_of_reading){ .usual_s = stopwatch_usual_read_s(w),
                                             .slower = fmax(stopwatch_usual_beside_s(w) / best_s, 1) });
}

static enum err_code bench_backend(struct backend **out, const struct bench *b, enum kernel_variant v, int t,
                                   struct err *why)
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

/* `again`: a further pass over what decoding stands on, and what looks disturbed. */
static void measure_formats(struct bench *b, struct backend *backend, enum kernel_variant v, int t,
                            bool again)
{
    char what[96];
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (!FORMATS[f].encode || !FORMATS[f].decode) continue;
        snprintf(what, sizeof what, "%s%s, %s, %d thread%s", FORMATS[f].name, again ? " again" : "",
                 KERNEL_VARIANT_NAMES[v], b->threads[t], b->threads[t] == 1 ? "" : "s");
        if (!time_is_left(b, what)) return;
        probe_products(b, backend, f, v, t, v != KERNEL_VARIANT_AUTO || (again && !probe_disturbed(b, f, t)));
        if (v == KERNEL_VARIANT_AUTO) probe_stream(b, backend, f, t);
    }
}

static void measure_rest(struct bench *b, struct backend *backend, enum kernel_variant v, int t, bool again)
{
    /* what caches of conversations are kept in, the two commonest first */
    static const int KV[] = {
        FORMAT_F16, FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_F32, FORMAT_BF16, FORMAT_FP8_E4M3
    };
    const size_t most = again ? 2 : v == KERNEL_VARIANT_AUTO ? COUNT_OF(KV) : 1;
    for (size_t i = 0; i < most && time_is_left(b, "attention"); i++) {
        probe_attention(b, backend, KV[i], v, t);
        if (v == KERNEL_VARIANT_AUTO) probe_far(b, backend, KV[i], t);
    }
    if (v != KERNEL_VARIANT_AUTO) return;
    probe_region(b, backend, t);
    probe_glue(b, backend, t);
    if (t) probe_waking(b, backend);
}

static void measure_reads(struct bench *b, int t)
{
    const struct ceiling_reading all = { .threads = b->threads[t] };
    for (int i = 0; i < KERNEL_READS && time_is_left(b, "memory read"); i++) {
        samples_add(&b->read[i][t], 1 / ceiling_read_bytes_s(&all, KERNEL_READ_AT[i], READ_S));
        const double speed = 1 / samples_middle(&b->read[i][t]);
        if (usable(speed)) b->out->read[i][t] = (float)speed;
    }
}

static enum err_code measure_variant(struct bench *b, enum kernel_variant v, int t, bool again,
                                     struct err *why)
{
    struct backend *backend = b->backend[t];
    enum err_code rc = v == KERNEL_VARIANT_AUTO ? ERR_OK : bench_backend(&backend, b, v, t, why);
    if (rc) return rc;
    measure_formats(b, backend, v, t, again);
    measure_rest(b, backend, v, t, again);
    if (v == KERNEL_VARIANT_AUTO)
        measure_reads(b, t);
    else
        backend_close(backend);
    return ERR_OK;
}

static void fill_numbers(float *x, int64_t n)
{
    uint64_t seed = 88172645463325252u;
    for (int64_t i = 0; i < n; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++) { /* twelve uniform numbers are near enough to a normal one */
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            sum += (double)(seed >> 11) * 0x1p-53;
        }
        x[i] = (float)sum;
    }
}

static enum err_code bench_memory(struct bench *b, struct err *why)
{
    const size_t rows = sizeof(float) * PROBE_ROWS * PROBE_WIDE;
    b->x = aligned_alloc(64, rows);
    b->y = aligned_alloc(64, rows);
    b->small = aligned_alloc(64, sizeof(float) * PROBE_WIDE * PROBE_WIDE);
    b->numbers = aligned_alloc(64, sizeof(float) * PROBE_WIDE);
    b->bank = mmap(NULL, (size_t)PROBE_BANK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                   0);
    if (b->bank == MAP_FAILED) b->bank = NULL;
    if (!b->x || !b->y || !b->small || !b->numbers || !b->bank)
        return err_set(why, ERR_NOMEM, "measuring the kernels takes 600 MB of memory");
    /* A model of four formats decoded in what streams through huge pages take, within 3 %, and in up to 4 %
     * less than through plain ones. */
    madvise(b->bank, (size_t)PROBE_BANK_BYTES, MADV_HUGEPAGE); /* only a hint */
    memset(b->bank, BANK_BYTE, (size_t)PROBE_BANK_BYTES);
    fill_numbers(b->numbers, PROBE_WIDE);
    for (int64_t i = 0; i < (int64_t)PROBE_ROWS * PROBE_WIDE; i++) b->x[i] = b->numbers[i % PROBE_WIDE];
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
    out->stream_bytes = PROBE_BANK_BYTES;
    enum err_code rc = bench_memory(&b, why);
    const int last = all > 1 ? 0 : 1;
    for (int t = last; t < 2 && !rc; t++) {
        rc = bench_backend(&b.backend[t], &b, KERNEL_VARIANT_AUTO, t, why);
        if (!rc) rc = stopwatch_open(&b.watch[t], b.backend[t], why);
    }
    b.begun_s = now_s();
    b.deadline_s = b.begun_s + (seconds > 0 ? seconds : DEFAULT_SECONDS);
    for (int pass = 0; pass < PASSES && !rc; pass++) {
        for (int t = 1; t >= last && !rc; t--)
            rc = measure_variant(&b, KERNEL_VARIANT_AUTO, t, pass > 0, why);
        for (int v = 1; v < KERNEL_VARIANTS && pass == 1 && !rc; v++)
            rc = measure_variant(&b, v, 1, false, why);
    }
    for (int t = 0; t < 2; t++) {
        if (b.watch[t]) put_seconds(&b, t);
        stopwatch_close(b.watch[t]);
        backend_close(b.backend[t]);
    }
    free(b.x);
    free(b.y);
    free(b.small);
    free(b.numbers);
    if (b.bank) munmap(b.bank, (size_t)PROBE_BANK_BYTES);
    if (!rc && b.cancelled) rc = err_set(why, ERR_CANCELLED, "interrupted");
    out->measured = !rc;
    out->measured_unix_ms = clock_unix_ms();
    return rc;
}
