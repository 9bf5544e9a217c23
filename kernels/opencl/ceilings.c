/* Measure the limits of a device with kernels that do nothing else: memory bandwidth, copies between host and
 * device, and arithmetic. Benchmarks report speeds as shares of these limits. Each limit is the best of
 * repeated runs, because a disturbance can only make a run slower. */
#include <math.h>
#include <string.h>

#include "kernels/opencl/opencl.h"

enum {
    ITEMS = 256,
    GROUPS = 32, /* work groups per compute unit; more than it can hold at once, so that it is never idle */
    UNITS_GUESS = 16,
    READS_AT_ONCE = 8,
    FIRST_ROUNDS = 64,
    STREAM_BYTES = 512 << 20, /* larger than the caches of current devices */
    STREAM_LEAST = 16 << 20,
    HOST_BYTES = 64 << 20,
};
static const double RUN_SECONDS = 5e-3; /* long compared with the time to launch a kernel */

/* One measurement. run() does `work` units of work (bytes or operations) and returns the seconds that it
 * took, NAN on failure. */
struct trial {
    struct opencl *o;
    double (*run)(const struct trial *t);
    double work;
    /* Parameters of run(). */
    const char *kernel, *options;
    size_t items;
    void *from, *to;
    int64_t bytes;
    int rounds;
    void *host;
};

/* Repeat t->run for `seconds` (at least twice) and return the best rate, in units of work per second. NAN on
 * failure. */
static double best_of(const struct trial *t, double seconds)
{
    const int64_t end = clock_ns() + (int64_t)(seconds * 1e9);
    double best = NAN;
    for (int i = 0; i < 2 || clock_ns() < end; i++) { /* the first run may include start-up costs */
        const double took = t->run(t);
        if (!opencl_ok(t->o)) return NAN;
        if (took > 0 && !(best >= t->work / took)) best = t->work / took;
    }
    return best;
}

/* ---------------------------------------------------------------- streams */

/* Read or copy the buffer `from` once; returns the seconds. On a GPU neighbouring work items run together, so
 * they access neighbouring 16-byte pieces, which the hardware combines. On a CPU each item accesses
 * consecutive pieces. */
static double trial_stream(const struct trial *t)
{
    const struct opencl_kernel k = { 1 << SOURCE_CEILINGS, t->options, t->kernel };
    const size_t share = (size_t)t->bytes / 16 / t->items;
    const bool gpu = t->o->device.gpu;
    const struct opencl_arg args[] = {
        ARG_MEM(opencl_place(t->o, t->from).mem),
        ARG_ULONG(share),
        ARG_ULONG(gpu ? 1 : share),
        ARG_ULONG(gpu ? t->items : 1),
        ARG_MEM(opencl_place(t->o, t->to).mem),
    };
    return opencl_time(t->o, &k, (size_t[]){ t->items, 1, 1 }, (size_t[]){ ITEMS, 1, 1 }, args,
                       COUNT_OF(args));
}

/* Allocate two buffers, as large as possible. Returns false if that fails. */
static bool trial_alloc_buffers(struct trial *t)
{
    const struct device_info *d = &t->o->device;
    const int64_t step = (int64_t)t->items * 16 * READS_AT_ONCE;
    int64_t bytes = STREAM_BYTES;
    if (d->alloc_bytes > 0) bytes = MIN(bytes, d->alloc_bytes);
    if (d->memory_bytes > 0) bytes = MIN(bytes, d->memory_bytes / 4);
    for (; bytes >= STREAM_LEAST; bytes /= 2) {
        t->bytes = MAX(bytes / step, 1) * step;
        t->from = opencl_alloc(&t->o->base, (size_t)t->bytes);
        t->to = t->from ? opencl_alloc(&t->o->base, (size_t)t->bytes) : NULL;
        if (t->to) return true;
        if (t->from) opencl_free(&t->o->base, t->from);
    }
    return false;
}

/* ---------------------------------------------------------------- copies between host and device */

static double to_device(const struct trial *t)
{
    const int64_t start = clock_ns();
    opencl_write(&t->o->base, t->to, t->host, HOST_BYTES);
    return (double)(clock_ns() - start) * 1e-9;
}

static double from_device(const struct trial *t)
{
    const int64_t start = clock_ns();
    opencl_read(&t->o->base, t->host, t->to, HOST_BYTES);
    return (double)(clock_ns() - start) * 1e-9;
}

/* Measure copies in both directions. The host buffer is allocated by the driver (CL_MEM_ALLOC_HOST_PTR), so
 * the device can access it directly. */
static void measure_copies(struct trial t, struct device_ceilings *out, double seconds)
{
    struct opencl *o = t.o;
    cl_int code = 0;
    cl_mem pinned = clCreateBuffer(o->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, HOST_BYTES, NULL,
                                   &code);
    if (!pinned) return;
    t.host = clEnqueueMapBuffer(o->queue, pinned, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, HOST_BYTES, 0, NULL,
                                NULL, &code);
    if (t.host) {
        t.work = HOST_BYTES;
        t.run = to_device;
        out->to_device_bytes_s = best_of(&t, seconds);
        t.run = from_device;
        out->from_device_bytes_s = best_of(&t, seconds);
        opencl_fail(o, clEnqueueUnmapMemObject(o->queue, pinned, t.host, 0, NULL, NULL),
                    "giving back memory");
        opencl_fail(o, clFinish(o->queue), "giving back memory");
    }
    clReleaseMemObject(pinned);
}

/* ---------------------------------------------------------------- arithmetic */

static double trial_multiply(const struct trial *t)
{
    const struct opencl_kernel k = { 1 << SOURCE_DOT | 1 << SOURCE_CEILINGS, t->options, t->kernel };
    const struct opencl_arg args[] = { ARG_MEM(opencl_place(t->o, t->to).mem), ARG_INT(t->rounds),
                                       ARG_FLOAT(0.996f), ARG_FLOAT(0.004f) };
    return opencl_time(t->o, &k, (size_t[]){ t->items, 1, 1 }, (size_t[]){ ITEMS, 1, 1 }, args,
                       COUNT_OF(args));
}

/* Operations per second of an arithmetic kernel. An item does `each` operations in a round; the number of
 * rounds is doubled until a run takes RUN_SECONDS. */
static double measure_arithmetic(struct trial t, const char *kernel, const char *options, int each,
                                 double seconds)
{
    t.kernel = kernel;
    t.options = options;
    t.run = trial_multiply;
    double took;
    for (t.rounds = FIRST_ROUNDS; (took = trial_multiply(&t)) < RUN_SECONDS && t.rounds < 1 << 24;)
        t.rounds *= 2;
    if (isnan(took)) return NAN;
    t.work = (double)t.items * t.rounds * each;
    return best_of(&t, seconds);
}

static void ceilings_measure(struct opencl *o, struct device_ceilings *out, double seconds)
{
    const int units = o->device.compute_units > 0 ? o->device.compute_units : UNITS_GUESS;
    struct trial t = { .o = o, .options = "", .items = (size_t)units * GROUPS * ITEMS };
    if (!trial_alloc_buffers(&t)) return;
    t.run = trial_stream;
    t.kernel = "read_all";
    t.work = (double)t.bytes;
    out->read_bytes_s = best_of(&t, seconds);
    t.kernel = "copy_all";
    t.work = 2.0 * (double)t.bytes;
    out->copy_bytes_s = best_of(&t, seconds);
    out->f32_ops_s = measure_arithmetic(t, "multiply_f32", "", 64 * 2, seconds);
    if (o->device.fp16) out->f16_ops_s = measure_arithmetic(t, "multiply_f16", "", 64 * 2, seconds);
    if (o->device.int_dot || o->device.dp4a)
        out->int8_ops_s = measure_arithmetic(t, "multiply_int8", "-DINT_DOT", 16 * 8, seconds);
    if (t.bytes >= HOST_BYTES) measure_copies(t, out, seconds);
    opencl_free(&o->base, t.from);
    opencl_free(&o->base, t.to);
}

enum err_code opencl_ceilings(struct device_ceilings *out, const char *device, double seconds,
                              struct err *why)
{
    const double n = NAN;
    struct backend *b;
    *out = (struct device_ceilings){ n, n, n, n, n, n, n };
    if (strncmp(device, "opencl:", 7)) return err_set(why, ERR_USAGE, "%s is no OpenCL device", device);
    enum err_code rc = backend_open(&b, device, &(struct backend_options){ .threads = 1 }, why);
    if (rc) return rc;
    ceilings_measure(opencl_of(b), out, seconds);
    rc = backend_finish(b, why);
    backend_close(b);
    return rc;
}
