/* The OpenCL backend: open a device, run kernels on it, and keep its errors. */
#include "kernels/opencl/opencl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/opencl/device.h"

const char *opencl_error_name(cl_int code)
{
    static const struct {
        cl_int code;
        const char *name;
    } NAMES[] = {
        { CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND" },
        { CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE" },
        { CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE" },
        { CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE" },
        { CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES" },
        { CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY" },
        { CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE" },
        { CL_INVALID_VALUE, "CL_INVALID_VALUE" },
        { CL_INVALID_CONTEXT, "CL_INVALID_CONTEXT" },
        { CL_INVALID_COMMAND_QUEUE, "CL_INVALID_COMMAND_QUEUE" },
        { CL_INVALID_MEM_OBJECT, "CL_INVALID_MEM_OBJECT" },
        { CL_INVALID_BUILD_OPTIONS, "CL_INVALID_BUILD_OPTIONS" },
        { CL_INVALID_PROGRAM_EXECUTABLE, "CL_INVALID_PROGRAM_EXECUTABLE" },
        { CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME" },
        { CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS" },
        { CL_INVALID_ARG_INDEX, "CL_INVALID_ARG_INDEX" },
        { CL_INVALID_ARG_VALUE, "CL_INVALID_ARG_VALUE" },
        { CL_INVALID_ARG_SIZE, "CL_INVALID_ARG_SIZE" },
        { CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE" },
        { CL_INVALID_WORK_ITEM_SIZE, "CL_INVALID_WORK_ITEM_SIZE" },
        { CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE" },
    };
    for (size_t i = 0; i < COUNT_OF(NAMES); i++)
        if (NAMES[i].code == code) return NAMES[i].name;
    return "an OpenCL error";
}

bool opencl_is_memory(cl_int code)
{
    return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY ||
           code == CL_INVALID_BUFFER_SIZE;
}

void opencl_fail(struct opencl *o, cl_int code, const char *what)
{
    if (!code || !opencl_ok(o)) return;
    const bool memory = opencl_is_memory(code);
    /* Drivers return one of these codes when a kernel crashed or the device was reset, and the context is
     * unusable. The first code may also mean that a kernel needs too many registers; the queue still works
     * then. */
    o->lost = (code == CL_OUT_OF_RESOURCES && clFinish(o->queue)) || code == CL_DEVICE_NOT_AVAILABLE ||
              code == CL_INVALID_CONTEXT || code == CL_INVALID_COMMAND_QUEUE;
    err_set(&o->failed,
            memory    ? ERR_NOMEM
            : o->lost ? ERR_ABSENT
                      : ERR_INTERNAL,
            "%s (%s): %s: %s (%d)%s", o->device.name, o->device.model, what, opencl_error_name(code), code,
            memory    ? ": the device is out of memory"
            : o->lost ? ": the device is lost; open it again"
                      : "");
}

static enum err_code opencl_finish(struct backend *b, struct err *why)
{
    struct opencl *o = opencl_of(b);
    if (opencl_ok(o)) opencl_fail(o, clFinish(o->queue), "waiting for the device");
    const struct err e = o->failed;
    if (!o->lost) o->failed.code = ERR_OK;
    return e.code ? err_set(why, e.code, "%s", e.message) : ERR_OK;
}

/* The kernel with its arguments, or NULL. */
static cl_kernel kernel_prepare(struct opencl *o, const struct opencl_kernel *k,
                                const struct opencl_arg *args, int count)
{
    if (!opencl_ok(o)) return NULL;
    cl_kernel kernel = opencl_kernel(o, k);
    for (int i = 0; i < count && kernel && opencl_ok(o); i++)
        opencl_fail(o, clSetKernelArg(kernel, (cl_uint)i, args[i].size, &args[i].v), k->name);
    return opencl_ok(o) ? kernel : NULL;
}

void opencl_run(struct opencl *o, const struct opencl_kernel *k, const size_t global[3],
                const size_t local[3], const struct opencl_arg *args, int count)
{
    cl_kernel kernel = kernel_prepare(o, k, args, count);
    if (!kernel) return;
    opencl_fail(o, clEnqueueNDRangeKernel(o->queue, kernel, 3, NULL, global, local, 0, NULL, NULL), k->name);
}

double opencl_time(struct opencl *o, const struct opencl_kernel *k, const size_t global[3],
                   const size_t local[3], const struct opencl_arg *args, int count)
{
    cl_event event = NULL;
    cl_ulong from = 0, to = 0;
    cl_int code = 0;
    cl_kernel kernel = kernel_prepare(o, k, args, count);
    if (!kernel) return (double)NAN;
    if (!(code = clEnqueueNDRangeKernel(o->queue, kernel, 3, NULL, global, local, 0, NULL, &event))) {
        code = clWaitForEvents(1, &event);
        if (!code)
            code = clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof from, &from, NULL);
        if (!code) code = clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof to, &to, NULL);
        clReleaseEvent(event);
    }
    opencl_fail(o, code, k->name);
    return code ? (double)NAN : (double)(to - from) * 1e-9;
}

/* ---------------------------------------------------------------- open and close */

static void opencl_close(struct backend *b)
{
    struct opencl *o = opencl_of(b);
    if (o->queue) clFinish(o->queue);
    opencl_programs_close(o);
    opencl_memory_close(o);
    if (o->queue) clReleaseCommandQueue(o->queue);
    if (o->context) clReleaseContext(o->context);
    free(o);
}

static bool open_device(struct opencl *o)
{
    cl_int code = 0;
    o->context = clCreateContext(NULL, 1, &o->id, NULL, NULL, &code);
    if (o->context) o->queue = clCreateCommandQueue(o->context, o->id, CL_QUEUE_PROFILING_ENABLE, &code);
    opencl_fail(o, code, "opening the device");
    if (!opencl_ok(o)) return false;
    enum { NOTHING = 64 };
    o->scratch = opencl_alloc(&o->base, NOTHING);
    if (!o->scratch) opencl_fail(o, CL_MEM_OBJECT_ALLOCATION_FAILURE, "the first buffer");
    return o->scratch;
}

/* A device may allow smaller groups, or have less local memory, than the largest kernel needs. It would fail
 * in the middle of a pass. */
static enum err_code check_limits(const struct device_info *d, struct err *why)
{
    enum { GROUP_ITEMS = 256, LOCAL_BYTES = 28 << 10 };
    if (d->group_items >= 0 && d->group_items < GROUP_ITEMS)
        return err_set(
            why, ERR_ABSENT,
            "%s (%s) allows work groups of %lld items; the kernels need groups of %d: expected another "
            "device, or device=cpu",
            d->name, d->model, (long long)d->group_items, GROUP_ITEMS);
    if (d->local_bytes >= 0 && d->local_bytes < LOCAL_BYTES)
        return err_set(
            why, ERR_ABSENT,
            "%s (%s) has %lld bytes of local memory; the kernels need %d: expected another device, or "
            "device=cpu",
            d->name, d->model, (long long)d->local_bytes, LOCAL_BYTES);
    return ERR_OK;
}

enum err_code opencl_open(struct backend **out, const char *device, const struct backend_options *options,
                          struct err *why)
{
    struct opencl *o = calloc(1, sizeof *o);
    if (!o) return err_set(why, ERR_NOMEM, "out of memory for the backend of %s", device);
    enum err_code rc = device_find(&o->device, &o->id, device, why);
    if (!rc) rc = check_limits(&o->device, why);
    if (rc) {
        free(o);
        return rc;
    }
    if (!open_device(o)) {
        const struct err e = o->failed;
        opencl_close(&o->base);
        return err_set(why, e.code, "%s", e.message);
    }
    opencl_shapes_use(o, options->shapes);
    *out = &o->base;
    return ERR_OK;
}

static void opencl_describe(const struct backend *b, struct backend_info *out)
{
    const struct opencl *o = (const struct opencl *)b;
    out->device = o->device.name;
    out->gpu = o->device.gpu ? o->device.pci : NULL;
    out->remote = true;
    out->copied_bytes = o->uploaded_bytes;
    for (int i = 0; i < o->region_count; i++) out->device_bytes += (int64_t)o->regions[i].bytes;
    out->scratch_bytes = o->scratch_bytes;
    out->inputs = o->inputs;
}

int64_t opencl_scratch_bytes(const struct backend_options *options, const struct backend_work *work)
{
    return MAX(opencl_product_scratch_bytes(options, work->rows, work->cols),
               opencl_attention_scratch_bytes(work->rows, work->cols));
}

int64_t opencl_plan_bytes(const struct backend_options *options, const struct format *f, int64_t rows,
                          int64_t cols, int arrays)
{
    (void)options;
    return opencl_weight_bytes(f, rows, cols, arrays);
}

static enum err_code opencl_reserve(struct backend *b, const struct backend_work *work, struct err *why)
{
    struct opencl *o = opencl_of(b);
    const int64_t bytes = opencl_scratch_bytes(&b->options, work);
    char *scratch = opencl_alloc(b, (size_t)bytes);
    if (!scratch && !opencl_ok(o)) return err_set(why, o->failed.code, "%s", o->failed.message);
    if (!scratch)
        return err_set(
            why, ERR_NOMEM,
            "does not fit: %s has no room for a buffer of %lld bytes, in which products and attention keep "
            "intermediate results; the device has %lld bytes in all and allows %lld in one buffer: set a "
            "smaller batch or gpu_layers, or end other programs that use the device",
            o->device.name, (long long)bytes, (long long)o->device.memory_bytes,
            (long long)o->device.alloc_bytes);
    opencl_free(b, o->scratch);
    o->scratch = scratch;
    o->scratch_bytes = bytes;
    return ERR_OK;
}

const struct backend_ops OPENCL_OPS = {
    .close = opencl_close,
    .describe = opencl_describe,
    .finish = opencl_finish,
    .alloc = opencl_alloc,
    .free = opencl_free,
    .write = opencl_write,
    .read = opencl_read,
    .bind = opencl_bind,
    .release = opencl_release,
    .reserve = opencl_reserve,
    .gather = opencl_gather,
    .matmul = opencl_matmul,
    .gated = gated_separately,
    .norm = opencl_norm,
    .rope = opencl_rope,
    .hadamard = opencl_hadamard,
    .kv_store = opencl_kv_store,
    .attention = opencl_attention,
    .activate = opencl_activate,
    .mix = opencl_mix,
    .top = opencl_top,
};
