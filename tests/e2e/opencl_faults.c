/* A device that fails when it is told to: preloaded between a program and its OpenCL loader (LD_PRELOAD), it
 * passes every call on, but for what the environment asks for.
 *
 *   FAULT_CALL=clFinish FAULT_AT=3   the third call of that function fails; counted in each process
 *   FAULT_CODE=-2                    with this code. CL_DEVICE_NOT_AVAILABLE (-2) is for good: from then on
 *                                    every function here that uses a queue fails likewise
 *   FAULT_WHEN=FILE                  calls are counted only while the file exists
 *   FAULT_ALLOC_BYTES=N              buffers of more than N bytes in all cannot be had
 *   FAULT_MEMORY_BYTES=N             what the device says it has
 *   FAULT_BUFFER_BYTES=N             what it says one buffer may have
 *   FAULT_GROUP_ITEMS=N              work items that a group may have; larger groups are refused
 *   FAULT_LOCAL_BYTES=N              local memory; kernels that need more are refused
 *   FAULT_WITHOUT=NAME               an extension that it does not name: cl_khr_fp16 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : -1;
}

/* The function of that name behind this library; a loader without it is no loader. */
static void *next(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (f) return f;
    fprintf(stderr, "no %s behind the faults\n", name);
    abort();
}

/* The code that this call of `name` shall fail with; CL_SUCCESS: none. */
static cl_int fault(const char *name)
{
    static atomic_llong calls;
    static atomic_bool lost;
    const char *call = getenv("FAULT_CALL"), *when = getenv("FAULT_WHEN");
    const cl_int code = (cl_int)number("FAULT_CODE");
    if (atomic_load(&lost)) return code;
    if (!call || strcmp(call, name) || (when && access(when, F_OK))) return CL_SUCCESS;
    if (atomic_fetch_add(&calls, 1) + 1 != number("FAULT_AT")) return CL_SUCCESS;
    if (code == CL_DEVICE_NOT_AVAILABLE) atomic_store(&lost, true);
    return code;
}

/* How a device refuses a kernel that exceeds its limits; CL_SUCCESS: it does not. */
static cl_int refusal(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *local)
{
    const long long items = number("FAULT_GROUP_ITEMS"), bytes = number("FAULT_LOCAL_BYTES");
    long long group = 1;
    cl_device_id device = NULL;
    cl_ulong used = 0;
    for (cl_uint i = 0; local && i < dims; i++) group *= (long long)local[i];
    if (items >= 0 && group > items) return CL_INVALID_WORK_GROUP_SIZE;
    if (bytes < 0) return CL_SUCCESS;
    /* looked up, not linked: PoCL starts programs without OpenCL, which are given this library, too */
    cl_int (*of_queue)(cl_command_queue, cl_command_queue_info, size_t, void *,
                       size_t *) = next("clGetCommandQueueInfo");
    cl_int (*of_kernel)(cl_kernel, cl_device_id, cl_kernel_work_group_info, size_t, void *,
                        size_t *) = next("clGetKernelWorkGroupInfo");
    if (of_queue(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL) ||
        of_kernel(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof used, &used, NULL))
        return CL_SUCCESS;
    return (long long)used > bytes ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                              const size_t *global, const size_t *local, cl_uint waits, const cl_event *wait,
                              cl_event *event)
{
    const cl_int fails = fault(__func__), code = fails ? fails : refusal(queue, kernel, dims, local);
    cl_int (*f)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,
                const cl_event *, cl_event *) = next(__func__);
    return code ? code : f(queue, kernel, dims, offset, global, local, waits, wait, event);
}

cl_int clFinish(cl_command_queue queue)
{
    const cl_int code = fault(__func__);
    cl_int (*f)(cl_command_queue) = next(__func__);
    return code ? code : f(queue);
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                           size_t bytes, void *to, cl_uint waits, const cl_event *wait, cl_event *event)
{
    const cl_int code = fault(__func__);
    cl_int (*f)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *,
                cl_event *) = next(__func__);
    return code ? code : f(queue, buffer, blocking, offset, bytes, to, waits, wait, event);
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                            size_t bytes, const void *from, cl_uint waits, const cl_event *wait,
                            cl_event *event)
{
    const cl_int code = fault(__func__);
    cl_int (*f)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *,
                cl_event *) = next(__func__);
    return code ? code : f(queue, buffer, blocking, offset, bytes, from, waits, wait, event);
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void *host, cl_int *code)
{
    static atomic_llong held;
    const long long most = number("FAULT_ALLOC_BYTES");
    cl_mem (*f)(cl_context, cl_mem_flags, size_t, void *, cl_int *) = next(__func__);
    if (most < 0 || atomic_fetch_add(&held, (long long)bytes) + (long long)bytes <= most)
        return f(context, flags, bytes, host, code);
    atomic_fetch_sub(&held, (long long)bytes);
    if (code) *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return NULL;
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size, void *value, size_t *got)
{
    const char *name = what == CL_DEVICE_GLOBAL_MEM_SIZE       ? "FAULT_MEMORY_BYTES"
                       : what == CL_DEVICE_MAX_MEM_ALLOC_SIZE  ? "FAULT_BUFFER_BYTES"
                       : what == CL_DEVICE_LOCAL_MEM_SIZE      ? "FAULT_LOCAL_BYTES"
                       : what == CL_DEVICE_MAX_WORK_GROUP_SIZE ? "FAULT_GROUP_ITEMS"
                                                               : NULL;
    cl_int (*f)(cl_device_id, cl_device_info, size_t, void *, size_t *) = next(__func__);
    const cl_int code = f(device, what, size, value, got);
    if (!code && name && value && size >= sizeof(cl_ulong) && number(name) >= 0)
        memcpy(value, &(cl_ulong){ (cl_ulong)number(name) }, sizeof(cl_ulong));
    const char *without = what == CL_DEVICE_EXTENSIONS && !code && value ? getenv("FAULT_WITHOUT") : NULL;
    char *at = without ? strstr(value, without) : NULL;
    if (at) memset(at, '-', strlen(without)); /* no extension has this name */
    return code;
}
