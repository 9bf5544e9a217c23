/* kernels/opencl/opencl.h - the inside of the OpenCL backend.
 *
 * Addresses of this backend are places in a range of the host's address space that is reserved and never
 * backed by memory: arithmetic on them works, reading them faults at once. opencl_place finds the buffer of
 * the device and the offset in it. Operations are enqueued in order on one queue and return at once; the
 * first error is kept and stops all later work (opencl_ok), until backend_finish has told it.
 *
 * Kernels are OpenCL C 1.2 for any device: no subgroups, no images, no half arithmetic unless -DFP16 says the
 * device has it (struct device_info). They take buffers as `global uchar *` with an offset in bytes. */
#ifndef QDYNO_KERNELS_OPENCL_OPENCL_H
#define QDYNO_KERNELS_OPENCL_OPENCL_H

#define CL_TARGET_OPENCL_VERSION          300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* the one way to open a queue on any version */
#include <CL/cl.h>

#include "kernels/backend.h"
#include "kernels/opencl/shapes.h"

/* ---------------------------------------------------------------- sources and programs */

/* What the .cl files of this folder hold, compiled into the program. */
enum opencl_source {
    SOURCE_FORMATS,   /* formats.cl: unpack8 of -DFORMAT=... ; in front of those that read stored weights */
    SOURCE_DOT,       /* dot.cl: dot4, of bytes; in front of those that multiply integers */
    SOURCE_PRODUCTS,  /* products.cl */
    SOURCE_INTEGERS,  /* integers.cl: what it has for INT8; behind products.cl */
    SOURCE_VECTORS,   /* vectors.cl: norms, rope, activations, gather */
    SOURCE_KV,        /* kv.cl: rows of the KV cache: kv_store; in front of attention.cl */
    SOURCE_ATTENTION, /* attention.cl */
    SOURCE_TOP,       /* top.cl: the largest of a row */
    SOURCE_CEILINGS,  /* ceilings.cl: copies and multiply-adds at the device's limit */
    SOURCE_COUNT
};

/* One function of a program: which sources, one after the other (1 << enum opencl_source), compiled with
 * which options (besides those of every program: see program.c), and its name. Options are the identity of a
 * variant: keep them short and in one order. */
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
struct built_kernel { /* of all that were asked for */
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
    char *scratch;               /* an address; what opencl_reserve took for attention and products */
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
/* Keep the first failure: what was tried ("product q4_0 [4096][4096]"), and the OpenCL code that came. */
void opencl_fail(struct opencl *o, cl_int code, const char *what);
const char *opencl_error_name(cl_int code); /* "CL_OUT_OF_RESOURCES" */
bool opencl_is_memory(cl_int code);         /* it says that there is no memory, and surely nothing else */

struct opencl_place {
    cl_mem mem;
    cl_ulong offset; /* bytes */
};
struct opencl_place opencl_place(const struct opencl *o, const void *address); /* asserts that it is ours */

/* A host array (ids, positions, tables) on the device, sent again only where it differs from what was sent
 * last. Valid for operations enqueued before the next call with the same host address. */
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
/* Two arguments: the buffer and the offset in bytes. NULL is the backend's own scratch at 0: a valid buffer
 * that the kernel must not touch (say by another argument that there is nothing). */
#define ARG_PLACE(o, address)                                                                                \
    ARG_MEM(opencl_place(o, address).mem), ARG_ULONG(opencl_place(o, address).offset)

/* Build the kernel if that has not been done, set its arguments, enqueue it over global items in groups of
 * local (both [3]; global a multiple of local). Failures are kept. */
void opencl_run(struct opencl *o, const struct opencl_kernel *k, const size_t global[3],
                const size_t local[3], const struct opencl_arg *args, int count);

/* The same, timed by the device: seconds between its start and end, NAN on failure. For autotuning. */
double opencl_time(struct opencl *o, const struct opencl_kernel *k, const size_t global[3],
                   const size_t local[3], const struct opencl_arg *args, int count);

/* program.c: the built kernel, or NULL (kept as failure, with the build log's first lines). */
cl_kernel opencl_kernel(struct opencl *o, const struct opencl_kernel *k);
void opencl_programs_close(struct opencl *o);

/* shapes.c: products in the shapes that `all` (struct backend_options) has for this device. */
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
void opencl_activate(struct backend *b, const struct activate *p);
/* attention.c */
void opencl_kv_store(struct backend *b, const struct kv_store *p);
void opencl_attention(struct backend *b, const struct attention *p);
int64_t opencl_attention_scratch_bytes(int64_t rows, int64_t max_cols);
/* top.c */
void opencl_top(struct backend *b, const struct top *p);
int64_t opencl_top_bytes(int n, int k, int64_t cols);

#endif
