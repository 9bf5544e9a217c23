/* Device memory behind host addresses. Every allocation reserves a range of host address space without memory
 * behind it. Pointer arithmetic works on such addresses, they are unique, and reading them by mistake faults.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/opencl/opencl.h"

enum { PAGE = 4096 };

static size_t region_reserved_bytes(size_t bytes)
{
    return (bytes / PAGE + 2) * PAGE; /* at least one page after the end, so that the address past the end
                                         still belongs to the region */
}

/* Index of the region that begins at or before the address; -1: none. */
static int region_before(const struct opencl *o, const char *address)
{
    int low = 0, high = o->region_count;
    while (low < high) {
        const int mid = (low + high) / 2;
        if (o->regions[mid].address <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low - 1;
}

struct opencl_place opencl_place(const struct opencl *o, const void *address)
{
    const char *at = address ? address : o->scratch;
    const int i = region_before(o, at);
    assert(i >= 0 && (size_t)(at - o->regions[i].address) <= o->regions[i].bytes);
    return (struct opencl_place){ .mem = o->regions[i].mem,
                                  .offset = (cl_ulong)(at - o->regions[i].address) };
}

/* Create a buffer of zeros. Drivers delay the real allocation until the first use; the buffer is written
 * here, so that lack of memory is detected where it can be reported. If that loses the device, the failure is
 * stored. */
static cl_mem buffer_new_zeroed(struct opencl *o, size_t bytes)
{
    static const cl_uchar ZERO = 0;
    cl_int code = 0;
    cl_mem mem = clCreateBuffer(o->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (!code) code = clEnqueueFillBuffer(o->queue, mem, &ZERO, 1, 0, bytes, 0, NULL, NULL);
    if (!code) code = clFinish(o->queue);
    if (!code) return mem;
    if (!opencl_is_memory(code)) opencl_fail(o, code, "taking memory");
    if (mem) clReleaseMemObject(mem);
    return NULL;
}

static bool add_region(struct opencl *o, const struct region *r)
{
    struct region *more = realloc(o->regions, (size_t)(o->region_count + 1) * sizeof *more);
    if (!more) return false;
    o->regions = more;
    const int at = region_before(o, r->address) + 1;
    memmove(more + at + 1, more + at, (size_t)(o->region_count - at) * sizeof *more);
    more[at] = *r;
    o->region_count++;
    return true;
}

void *opencl_alloc(struct backend *b, size_t bytes)
{
    struct opencl *o = opencl_of(b);
    if (!opencl_ok(o) || bytes > SIZE_MAX / 2) return NULL;
    struct region r = { .bytes = MAX(bytes, (size_t)16) };
    r.address = mmap(NULL, region_reserved_bytes(r.bytes), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r.address == MAP_FAILED) return NULL;
    r.mem = buffer_new_zeroed(o, r.bytes);
    if (r.mem && add_region(o, &r)) return r.address;
    if (r.mem) clReleaseMemObject(r.mem);
    munmap(r.address, region_reserved_bytes(r.bytes));
    return NULL;
}

void opencl_free(struct backend *b, void *p)
{
    struct opencl *o = opencl_of(b);
    const int i = region_before(o, p);
    assert(i >= 0 && o->regions[i].address == (char *)p);
    clReleaseMemObject(o->regions[i].mem); /* enqueued commands hold a reference until they complete */
    munmap(o->regions[i].address, region_reserved_bytes(o->regions[i].bytes));
    memmove(o->regions + i, o->regions + i + 1, (size_t)(o->region_count - i - 1) * sizeof *o->regions);
    o->region_count--;
}

void opencl_memory_close(struct opencl *o)
{
    while (o->region_count) opencl_free(&o->base, o->regions[o->region_count - 1].address);
    free(o->regions);
    for (int i = 0; i < MIRRORS; i++) {
        if (o->mirrors[i].mem) clReleaseMemObject(o->mirrors[i].mem);
        free(o->mirrors[i].copy);
    }
    for (size_t i = 0; i < COUNT_OF(o->plans); i++) free(o->plans[i].at);
}

void opencl_write(struct backend *b, void *dst, const void *host_src, size_t bytes)
{
    struct opencl *o = opencl_of(b);
    if (!opencl_ok(o) || !bytes) return;
    const struct opencl_place at = opencl_place(o, dst);
    opencl_fail(o, clEnqueueWriteBuffer(o->queue, at.mem, CL_TRUE, at.offset, bytes, host_src, 0, NULL, NULL),
                "writing to the device");
}

void opencl_read(struct backend *b, void *host_dst, const void *src, size_t bytes)
{
    struct opencl *o = opencl_of(b);
    if (!opencl_ok(o) || !bytes) return;
    const struct opencl_place at = opencl_place(o, src);
    opencl_fail(o, clEnqueueReadBuffer(o->queue, at.mem, CL_TRUE, at.offset, bytes, host_dst, 0, NULL, NULL),
                "reading from the device");
}

/* ---------------------------------------------------------------- host arrays */

/* The mirror of that array, or the least recently used one. */
static struct mirror *mirror_of(struct opencl *o, const void *host)
{
    struct mirror *oldest = &o->mirrors[0];
    for (int i = 0; i < MIRRORS; i++) {
        struct mirror *m = &o->mirrors[i];
        if (m->host == host && m->mem) return m;
        if (m->used < oldest->used) oldest = m;
    }
    return oldest;
}

static bool mirror_grow(struct opencl *o, struct mirror *m, size_t bytes)
{
    cl_int code = 0;
    void *copy = realloc(m->copy, bytes);
    if (copy) m->copy = copy;
    if (m->mem) clReleaseMemObject(m->mem);
    m->bytes = m->room = 0;
    m->mem = copy ? clCreateBuffer(o->context, CL_MEM_READ_ONLY, bytes, NULL, &code) : NULL;
    if (!copy) code = CL_OUT_OF_HOST_MEMORY;
    opencl_fail(o, code, "sending an array to the device");
    if (m->mem) m->room = bytes;
    return m->mem;
}

cl_mem opencl_mirror(struct opencl *o, const void *host, size_t bytes)
{
    struct mirror *m = mirror_of(o, host);
    m->used = ++o->clock;
    if (m->host == host && m->mem && m->bytes >= bytes && !memcmp(m->copy, host, bytes)) return m->mem;
    if ((m->room < bytes || !m->mem) && !mirror_grow(o, m, MAX(bytes, (size_t)64))) return NULL;
    m->host = host;
    m->bytes = bytes;
    memcpy(m->copy, host, bytes);
    /* The queue is in order, so earlier commands still read the old content. Wait, because the host copy may
     * change. */
    opencl_fail(o, clEnqueueWriteBuffer(o->queue, m->mem, CL_TRUE, 0, bytes, m->copy, 0, NULL, NULL),
                "sending an array to the device");
    return m->mem;
}
