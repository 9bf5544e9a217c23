/* kernels/opencl/opencl.h - internals of the OpenCL backend.
 *
 * Addresses of this backend are in a range of the host's address space that is reserved without memory behind
 * it. Arithmetic on them works; reading them faults. opencl_place finds the device buffer and the offset in
 * it. Operations are enqueued in order on one queue and return at once. The first error is stored and stops
 * all later work (opencl_ok), until backend_finish has returned it.
 *
 * Kernels are OpenCL C 1.2 for any device: no subgroups, no images, no half arithmetic unless -DFP16 says the
 * device has it (struct device_info). They take buffers as `global uchar *` with an offset in bytes. */
#ifndef QDYNO_KERNELS_OPENCL_OPENCL_H
#define QDYNO_KERNELS_OPENCL_OPENCL_H

#define CL_TARGET_OPENCL_VERSION          300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* clCreateCommandQueue works with every version */
#include <CL/cl.h>

#include "kernels/backend.h"
#include "kernels/opencl/shapes.h"

/* ---------------------------------------------------------------- sources and programs */

/* The .cl files of this folder, which are embedded in the program. */
enum opencl_source {
    SOURCE_FORMATS,   /* formats.cl: decoding of stored weights; before sources that read them */
    SOURCE_DOT,       /* dot.cl: dot4, of bytes; before sources that multiply integers */
    SOURCE_PRODUCTS,  /* products.cl: GEMV, GEMM, gather */
    SOURCE_INTEGERS,  /* integers.cl: products of integers (INT8); after products.cl */
    SOURCE_VECTORS,   /* vectors.cl: norms, rope, Hadamard transforms, activations */
    SOURCE_KV,        /* kv.cl: rows of the KV cache; before attention.cl */
    SOURCE_ATTENTION, /* attention.cl */
    SOURCE_TOP,       /* top.cl: the largest numbers of a row */
    SOURCE_CEILINGS,  /* ceilings.cl: copies and multiply-adds at the device's limit */
    SOURCE_COUNT
};

/* A kernel function: a set of sources (1 << enum opencl_source, concatenated in order), compiled with options
 * (in addition to those of every program: see program.c), and its name. Sources and options identify a
 * compiled variant, so callers must always write options in the same order. */
struct opencl_kernel {
    uint32_t sources;
    const char *options, *name;
};

/* ---------------------------------------------------------------- the backend */

struct region { /* an allocation */
    char *address;
    size_t bytes;
    cl_mem mem;
};

struct built_program {
    uint32_t sources;
    char *options;
    cl_program program;
};
struct built_kernel { /* a compiled kernel, or a failed attempt */
    uint32_t sources;
    char *options, *name;
    cl_kernel kernel;
};

struct mirror { /* a host array as it was last sent to the device */
    const void *host;
    void *copy;
    size_t bytes, room;
    cl_mem mem;
    uint64_t used;
};
enum { MIRRORS = 32 };

struct opencl_ints { /* host memory that operations write once it is large enough, for opencl_mirror */
    int32_t *at;
    int64_t room;
};

struct opencl {
    struct backend base;
    struct device_info device;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    struct region *regions; /* by address */
    int region_count;
    struct built_program *programs;
    int program_count;
    struct built_kernel *built;
    int built_count;
    struct mirror mirrors[MIRRORS];
    struct opencl_ints plans[2]; /* attention.c: of layers without and with a window */
    uint64_t clock;              /* of mirrors */
    char *scratch; /* a device address: scratch memory of attention and products (opencl_reserve) */
    int64_t scratch_bytes;
    struct opencl_tuning tuning; /* of products */
    int64_t uploaded_bytes;      /* of weights */
    uint32_t inputs;             /* as backend_info */
    struct err failed;           /* code 0: none */
    bool lost;                   /* the device is gone for good */
};

static inline struct opencl *opencl_of(struct backend *b)
{
    return (struct opencl *)b;
}

/* Whether work may go on: nothing has failed so far. */
static inline bool opencl_ok(const struct opencl *o)
{
    return !o->failed.code;
}
/* Store the first failure: what was tried ("product q4_0 [4096][4096]") and the OpenCL error code. */
void opencl_fail(struct opencl *o, cl_int code, const char *what);
const char *opencl_error_name(cl_int code); /* "CL_OUT_OF_RESOURCES" */
bool opencl_is_memory(cl_int code);         /* whether the code can only mean lack of memory */

struct opencl_place {
    cl_mem mem;
    cl_ulong offset; /* bytes */
};
struct opencl_place opencl_place(const struct opencl *o, const void *address); /* asserts that it is ours */

/* A copy of a host array (ids, positions, tables) on the device; it is sent again only if it differs from the
 * last copy. Valid for operations enqueued before the next call with the same host address. */
cl_mem opencl_mirror(struct opencl *o, const void *host, size_t bytes);

/* Arguments of a kernel, in the order of its parameters. */
struct opencl_arg {
    size_t size;
    union {
        cl_mem mem;
        cl_int i;
        cl_uint u;
        cl_ulong ul;
        cl_long l;
        cl_float f;
    } v;
};
#define ARG_MEM(x)   ((struct opencl_arg){ .size = sizeof(cl_mem), .v.mem = (x) })
#define ARG_INT(x)   ((struct opencl_arg){ .size = sizeof(cl_int), .v.i = (cl_int)(x) })
#define ARG_ULONG(x) ((struct opencl_arg){ .size = sizeof(cl_ulong), .v.ul = (cl_ulong)(x) })
#define ARG_LONG(x)  ((struct opencl_arg){ .size = sizeof(cl_long), .v.l = (cl_long)(x) })
#define ARG_FLOAT(x) ((struct opencl_arg){ .size = sizeof(cl_float), .v.f = (x) })
/* Set two arguments: buffer and offset in bytes. For NULL it passes the backend's scratch at 0, a valid
 * buffer that the kernel must not access; tell the kernel by another argument that the pointer is absent. */
#define ARG_PLACE(o, address)                                                                                \
    ARG_MEM(opencl_place(o, address).mem), ARG_ULONG(opencl_place(o, address).offset)

/* Compile the kernel if necessary, set its arguments, and enqueue it over `global` items in groups of `local`
 * (both [3]; global is a multiple of local). Failures are stored. */
void opencl_run(struct opencl *o, const struct opencl_kernel *k, const size_t global[3],
                const size_t local[3], const struct opencl_arg *args, int count);

/* The same, and return the device's execution time in seconds, NAN on failure. For autotuning. */
double opencl_time(struct opencl *o, const struct opencl_kernel *k, const size_t global[3],
                   const size_t local[3], const struct opencl_arg *args, int count);

/* program.c: the compiled kernel, or NULL (a failure is stored with the first lines of the build log). */
cl_kernel opencl_kernel(struct opencl *o, const struct opencl_kernel *k);
void opencl_programs_close(struct opencl *o);

/* shapes.c: use the product shapes in `all` (backend_options.shapes) that belong to this device. */
void opencl_shapes_use(struct opencl *o, const char *all);

/* ---------------------------------------------------------------- operations (struct backend_ops) */

/* memory.c */
void *opencl_alloc(struct backend *b, size_t bytes);
void opencl_free(struct backend *b, void *p);
void opencl_write(struct backend *b, void *dst, const void *host_src, size_t bytes);
void opencl_read(struct backend *b, void *host_dst, const void *src, size_t bytes);
void opencl_memory_close(struct opencl *o);

enum err_code opencl_open(struct backend **out, const char *device, const struct backend_options *options,
                          struct err *why);
int64_t opencl_scratch_bytes(const struct backend_options *options, const struct backend_work *work);
extern const struct backend_ops OPENCL_OPS;

int64_t opencl_plan_bytes(const struct backend_options *options, const struct format *f, int64_t rows,
                          int64_t cols, int arrays);

/* weights.c, products.c */
/* On the device, with so many arrays of its inputs. */
int64_t opencl_weight_bytes(const struct format *f, int64_t rows, int64_t cols, int arrays);
enum err_code opencl_bind(struct backend *b, struct weight *out, const struct format *format, int64_t rows,
                          int64_t cols, const struct input_scheme *input, const void *host, struct err *why);
void opencl_release(struct backend *b, struct weight *w);
void opencl_matmul(struct backend *b, const struct matmul *m, int count);
void opencl_gather(struct backend *b, const struct gather *p);
int64_t opencl_product_scratch_bytes(const struct backend_options *options, int64_t rows, int64_t max_cols);
/* vectors.c */
void opencl_norm(struct backend *b, const struct norm *p);
void opencl_rope(struct backend *b, const struct rope *p);
void opencl_hadamard(struct backend *b, const struct hadamard *p);
void opencl_mix(struct backend *b, const struct mix *p);
void opencl_activate(struct backend *b, const struct activate *p);
/* attention.c */
void opencl_kv_store(struct backend *b, const struct kv_store *p);
void opencl_attention(struct backend *b, const struct attention *p);
int64_t opencl_attention_scratch_bytes(int64_t rows, int64_t max_cols);
/* top.c */
void opencl_top(struct backend *b, const struct top *p);
int64_t opencl_top_bytes(int n, int k, int64_t cols);

#endif
