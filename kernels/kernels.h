/* kernels/kernels.h - the public header of kernels/: number formats, and the operations a transformer needs.
 *
 * There are three layers: FORMATS (how bytes become numbers), the kernel sets of each instruction set (chosen
 * at run time, internal) and the backend (memory and operations). The engine uses the backend only: its layer
 * code is written once against `struct backend` and knows no instruction set. Every address handed to a
 * backend must come from that backend (backend_alloc, or a weight that it bound). On the CPU these addresses
 * are ordinary pointers; on other devices the host must not dereference them. */
#ifndef QDYNO_KERNELS_H
#define QDYNO_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "kernels/recurrent.h"

/* ---------------------------------------------------------------- formats */

/* Every tensor type that a GGUF file may hold and this program knows. */
enum format_id {
    FORMAT_F32,
    FORMAT_F16,
    FORMAT_BF16,
    FORMAT_Q8_0,
    FORMAT_Q4_0,
    FORMAT_Q4_1,
    FORMAT_Q5_0,
    FORMAT_Q5_1,
    FORMAT_Q2_K,
    FORMAT_Q3_K,
    FORMAT_Q4_K,
    FORMAT_Q5_K,
    FORMAT_Q6_K,
    FORMAT_IQ4_NL,
    FORMAT_IQ4_XS,
    FORMAT_TQ1_0,
    FORMAT_TQ2_0,
    FORMAT_MXFP4,
    FORMAT_NVFP4,
    FORMAT_IQ1_S,
    FORMAT_IQ1_M,
    FORMAT_IQ2_XXS,
    FORMAT_IQ2_XS,
    FORMAT_IQ2_S,
    FORMAT_IQ3_XXS,
    FORMAT_IQ3_S,
    FORMAT_Q1_0,
    FORMAT_Q2_0,
    FORMAT_FP8_E4M3,
    FORMAT_FP8_E5M2,
    FORMAT_FP8_E4M3_B128,
    FORMAT_INT8,
    FORMAT_U4_G32,
    FORMAT_U4_G64,
    FORMAT_U4_G128,
    FORMAT_U3_G64,
    FORMAT_U3_G128,
    FORMAT_U2_G64,
    FORMAT_U2_G128,
    FORMAT_U8_G64,
    FORMAT_U8_G128,
    FORMAT_NF4,
    FORMAT_FP4,
    FORMAT_NF4_DQ,
    FORMAT_FP4_DQ,
    FORMAT_COUNT /* at most 64: a set of formats is a bit mask (format_bit) */
};

/* Convert n weights between floats and blocks.
 *   x       [n] floats; n is a multiple of block_weights
 *   blocks  format_row_bytes(n) bytes, any alignment
 * n may cover several rows, except in formats with row_tail_bytes: there it is exactly one row, whose tail
 * follows its blocks. (format_encode_rows and format_decode_rows handle this.) Both are pure functions that
 * allocate nothing. The bytes of ggml's formats are identical with those of ggml's reference encoders. */
typedef void format_encode_fn(const float *x, void *blocks, int64_t n);
typedef void format_decode_fn(const void *blocks, float *x, int64_t n);

/* Formats that ggml does not have use type ids from this number on. Other programs do not know these ids, so
 * the metadata of a file that uses them names the formats (docs/formats.md). */
enum { FORMAT_OWN_TYPES = 1000 };

struct format {
    const char *name;       /* as in config lines and file names: "q4_0" */
    uint32_t ggml_type;     /* id in GGUF tensor headers; from FORMAT_OWN_TYPES on, one of ours */
    uint32_t block_weights; /* a row is a whole number of blocks */
    uint32_t block_bytes;
    uint32_t row_tail_bytes; /* bytes after the blocks of a row: 0, or 4 for an f32 scale of the whole row */
    double max_nmse; /* limit of the normalized mean squared error of decode(encode(x)); see FORMATS */
    format_encode_fn *encode;
    format_decode_fn *decode;
    const char *readme; /* README of the format's folder: layout, sources */
    bool row_encode;    /* encode uses statistics of a whole row: call it with one row at a time */
    bool weighted;      /* format_encode_weighted uses the importance of columns */
    /* Without importance an encoding is poor: commands that quantize models refuse it. (At this level,
     * columns then count equally: random weights need no better.) */
    bool needs_importance;
    bool searched; /* the encoder tries many codes: below 50 million weights a second with reference code */
};
extern const struct format FORMATS[FORMAT_COUNT];         /* indexed by enum format_id */
static inline uint64_t format_bit(const struct format *f) /* the bit of f in a set of formats */
{
    return 1ull << (f - FORMATS);
}

const struct format *format_find(const char *name);           /* NULL when unknown; case-insensitive */
const struct format *format_by_ggml_type(uint32_t type);      /* NULL when unknown */
int64_t format_row_bytes(const struct format *f, int64_t n);  /* bytes of a row of n weights, with its tail */
int64_t format_span_bytes(const struct format *f, int64_t n); /* bytes of n weights, without a tail */
double format_bits_per_weight(const struct format *f);        /* without tails */

/* Encode or decode `rows` rows of `cols` weights; encoded rows are format_row_bytes apart. Encoding uses the
 * fastest kernels of this machine and produces the bytes of `encode`. */
void format_encode_rows(const struct format *f, const float *x, void *out, int64_t rows, int64_t cols);
void format_decode_rows(const struct format *f, const void *in, float *x, int64_t rows, int64_t cols);

/* Encode so that the sum of importance[i] * (error in column i)^2 becomes small. importance: [cols] >= 0, the
 * mean square of the activations that column i is multiplied by; NULL: as format_encode_rows. Formats that
 * are not `weighted` ignore it. */
void format_encode_weighted(const struct format *f, const float *x, const float *importance, void *out,
                            int64_t rows, int64_t cols);

/* Store n codes that the caller chose, and the scale they are multiplied by, as one row of a format with
 * row_tail_bytes (fp8_*, int8). */
void format_row_pack(const struct format *f, const uint8_t *codes, float scale, void *row, int64_t n);

/* Encode one row of fp8_e4m3 or fp8_e5m2 with the caller's scale (> 0): the codes nearest to x / *scale. */
void format_fp8_encode(const struct format *f, const float *scale, const float *x, void *row, int64_t n);

/* Encode nf4 or fp4 with the caller's magnitudes: the values nearest to x / absmax[i / 64], clamped to
 * [-1, 1]. absmax: [n / 64]; where it is not > 0, the weights become 0. */
void format_codebook_encode(const struct format *f, const float *absmax, const float *x, void *blocks,
                            int64_t n);

/* One block of a group format (u4_g64 ...) with codes that the caller chose: weight i is
 * scale * (code[i] - zero). The block stores scale and zero as f16 and each code in format_group_bits. */
struct group_codes {
    float scale, zero;
    uint8_t code[128]; /* block_weights of them */
};
int format_group_bits(const struct format *f); /* 0: not a group format */
void format_group_pack(const struct format *f, const struct group_codes *g, void *block);
void format_group_unpack(const struct format *f, const void *block, struct group_codes *g);

/* Encode nf4_dq or fp4_dq with statistics of a whole tensor (double quantization), where `encode` sees one
 * row only. x: n weights (a multiple of 256), which are weights first, first + 1 ... of the tensor. */
struct nested_scales {
    float offset;         /* mean over all units of 64 weights of a unit's largest magnitude */
    const float *largest; /* for every 16384 weights: the largest distance of such a magnitude from offset */
};
void format_nested_encode(const struct format *f, const struct nested_scales *s, int64_t first,
                          const float *x, void *blocks, int64_t n);

/* The largest |x[i]| of n floats; NaN when one of them is NaN. 0 for n = 0. Runs on the calling thread. */
float kernels_largest_magnitude(const float *x, int64_t n);

/* Scalar conversions, bit-exact with the definitions (round to nearest even, subnormals, NaN). */
float f16_to_f32(uint16_t h);
uint16_t f16_from_f32(float x);
float bf16_to_f32(uint16_t h);
uint16_t bf16_from_f32(float x);

/* ---------------------------------------------------------------- instruction sets */

/* Independent bits, never an ordered scale. */
enum isa {
    ISA_SSE41 = 1 << 0,
    ISA_AVX2 = 1 << 1,   /* with FMA, F16C, BMI2 */
    ISA_AVX512 = 1 << 2, /* F, BW, DQ, VL (not VBMI) */
    ISA_AVX512VNNI = 1 << 3,
    ISA_AVX512BF16 = 1 << 4,
    ISA_AMX = 1 << 5, /* tile, int8, bf16, and the kernel's permission to use them */
    ISA_NEON = 1 << 6,
    ISA_DOTPROD = 1 << 7,
    ISA_AVXVNNI = 1 << 8, /* vpdpbusd on 256-bit vectors, for processors without AVX-512 */
};

/* The bits that both the CPU and the operating system support (CPUID and XGETBV; for AMX it asks the kernel
 * for permission). */
uint32_t isa_detect(void);

/* Bits of level names. A level includes those it builds on: "ref" -> 0, "avx2" -> SSE41|AVX2, "all" -> every
 * bit. A comma-separated list is the union. Errors: ERR_USAGE with the nearest known name. */
enum err_code isa_parse(uint32_t *out, const char *names, struct err *why);

/* The bits that may be used: isa_detect() & isa_parse(getenv("QDYNO_ISA")). The variable can only remove
 * bits. Errors: ERR_USAGE when the variable does not parse. */
enum err_code isa_usable(uint32_t *out, struct err *why);

/* All level names, the least first: "ref" "sse41" "avx2" ... */
struct isa_level {
    const char *name;
    uint32_t bits;
};
extern const struct isa_level ISA_LEVELS[];
extern const size_t ISA_LEVEL_COUNT;

/* Write the names of these bits ("avx2 avx512 avx512vnni amx", or "ref" for none) into buf. Returns buf. */
const char *isa_names(uint32_t bits, char *buf, size_t size);

/* ---------------------------------------------------------------- the backend */

/* How exact matrix products are; kernels/README.md, "Precision", has the error bounds.
 * HIGHEST: f32 operands and sums. HIGH: with many rows and AMX, each operand is split into two bf16 numbers
 * and three bf16 products are summed; otherwise as HIGHEST. MEDIUM: both operands may be rounded to bf16
 * (GEMM) or activations to 8 bits in blocks of 32 (quantized weights); sums in f32 or s32. */
enum precision {
    PRECISION_HIGHEST,
    PRECISION_HIGH,
    PRECISION_MEDIUM,
    PRECISION_AUTO, /* by weight format: HIGHEST for f32, HIGH for f16 (bf16 would round it), else MEDIUM */
};
/* Their names on command lines, in configs and in documents. */
#define PRECISION_NAME_HIGHEST "highest"
#define PRECISION_NAME_HIGH    "high"
#define PRECISION_NAME_MEDIUM  "medium"
#define PRECISION_NAME_AUTO    "auto"
extern const char *const PRECISION_NAMES[]; /* indexed by enum precision, NULL-terminated */

/* Activation quantization for products with quantized weights, where precision is MEDIUM.
 * AUTO: the fastest within the bounds of MEDIUM: 8 bits or bf16 (on OpenCL devices: f32). INT8: 8 bits in
 * blocks of 32 at any number of rows (on OpenCL devices only for formats with integer codes; the others keep
 * f32). INT8_TOKEN: for int8 weights 8 bits with one scale per token (INPUT_INT8_TOKEN), other formats as
 * AUTO. */
enum activations {
    ACTIVATIONS_AUTO,
    ACTIVATIONS_INT8,
    ACTIVATIONS_INT8_TOKEN,
};

/* Which memory requests 2 MiB pages, which cause fewer TLB misses. The kernel may refuse. Mapped files hardly
 * ever get huge pages, so ALL copies the weights into allocated memory. */
enum huge_pages {
    HUGE_PAGES_BUFFERS, /* what the backend allocates: KV cache, activations, scratch */
    HUGE_PAGES_OFF,
    HUGE_PAGES_ALL, /* buffers and weights */
};

/* How operators are put together and their kernels chosen. FUSED: a gated pair runs as one operation,
 * products of the same activations share their packing, and the number of rows chooses a kernel by a fixed
 * rule. OFF: each product and activation function runs by itself, for comparison. AUTOTUNE: as FUSED, but for
 * 2 to 64 rows the CPU uses the kernels that backend_autotune measured as the fastest. */
enum compile {
    COMPILE_FUSED,
    COMPILE_OFF,
    COMPILE_AUTOTUNE,
};

/* How attention is computed. FLASH: a tile of scores at a time, with a running softmax. PLAIN: all scores of
 * a batch in scratch memory, then their softmax, then the weighted sum of the values, for comparison; with
 * f32 products at every precision, and only on the CPU. */
enum attention_method {
    ATTENTION_FLASH,
    ATTENTION_PLAIN,
};

struct backend;

struct backend_options {
    int threads; /* >= 1 */
    enum affinity affinity;
    enum numa_policy numa; /* CPU only; LOCAL, INTERLEAVE and REPLICATE copy weights out of the mapped file */
    int nodes;             /* memory nodes of this machine, for the sizes of copies; 0 and 1: one */
    uint32_t isa;          /* bits that may be used; bits this machine lacks are ignored */
    enum precision precision;
    enum activations activations;
    enum huge_pages huge_pages;
    bool repack; /* weights may be held in another format than the file's (backend_held_format) */
    /* CPU only: the result of a row has the same bits whatever other rows a call has, and at any number of
     * threads. Weights whose input_scheme looks at all rows of a product cannot be bound (ERR_USAGE). */
    bool batch_invariant;
    enum compile compile; /* with batch_invariant, AUTOTUNE is as FUSED */
    enum attention_method attention;
    /* NULL, or lines of opencl_shapes_measure and backend_autotune for any devices; read by backend_open
     * only. Lines of other devices and settings, and what this build does not understand, are ignored. */
    const char *shapes;
};

/* Open a device: "cpu", or "opencl:0", "opencl:1" ... as opencl_devices lists them. *out is owned by the
 * caller: backend_close. Errors: ERR_ABSENT (no such device), ERR_NOMEM, ERR_USAGE. */
enum err_code backend_open(struct backend **out, const char *device, const struct backend_options *options,
                           struct err *why);
void backend_close(struct backend *b); /* NULL is fine */

/* What a backend uses now. Strings are borrowed from the backend. */
struct backend_info {
    const char *device;
    const char *gpu; /* PCI address of the GPU ("" when unknown); NULL: the device is no GPU */
    bool remote;     /* only backend_read and backend_write reach its memory */
    int threads;     /* on the host */
    bool pinned;
    uint32_t isa;              /* bits that the selected kernels use */
    int64_t huge_wanted_bytes; /* memory for which huge pages were requested */
    int64_t copied_bytes;      /* weights that were copied instead of used in the mapped file */
    int nodes;                 /* memory nodes that its threads are bound to; 0: none */
    int64_t placed_bytes;      /* memory that the system put on nodes as options.numa wants it */
    int64_t repacked_bytes;    /* of copied_bytes, weights held in another format than the file's */
    int64_t scratch_bytes;     /* scratch memory for operations (backend_scratch_bytes) */
    int64_t device_bytes;      /* allocated in the device's own memory; 0 when it has none */
    uint32_t inputs;           /* 1 << enum input_kind, for the products of every weight bound so far */
};
void backend_describe(const struct backend *b, struct backend_info *out);

/* The thread pool that operations run on, so that callers can run their own work on the same threads. */
struct threadpool *backend_threads(struct backend *b);

/* Wait until all operations so far are complete; a device runs them asynchronously. Returns the first error
 * of any operation since the last call: ERR_NOMEM, ERR_ABSENT (the device is lost: it can run nothing more).
 * Data from backend_read is valid only when this returns ERR_OK. */
enum err_code backend_finish(struct backend *b, struct err *why);

/* Zeroed memory aligned to 64 bytes, owned by the caller: backend_free. NULL when memory is short. */
void *backend_alloc(struct backend *b, size_t bytes);
void backend_free(struct backend *b, void *p);
void backend_write(struct backend *b, void *dst, const void *host_src, size_t bytes);
void backend_read(struct backend *b, void *host_dst, const void *src, size_t bytes);

/* Activation quantization prescribed by one weight. A quantization method may require that the activations of
 * its products are quantized in a certain way. Then every product with that weight does so, at any number of
 * rows, on every instruction set, regardless of the backend's options. kernels/README.md, "Inputs", has the
 * formulas. */
enum input_kind {
    INPUT_FREE,          /* nothing is prescribed: the backend's precision and activations decide */
    INPUT_INT8_TOKEN,    /* 8 bits, symmetric, one scale per token */
    INPUT_INT8_TENSOR,   /* 8 bits, one scale and zero point for all tokens of a product */
    INPUT_INT8_STATIC,   /* 8 bits, with the scale and zero point of the scheme */
    INPUT_INT8_OUTLIERS, /* LLM.int8: as INT8_TOKEN, but columns with outliers are multiplied as floats */
    INPUT_FP8_TOKEN,     /* fp8 (e5m2 for fp8_e5m2 weights, else e4m3), one scale per token */
    INPUT_FP8_STATIC,    /* the same with the scale of the scheme */
    INPUT_TF32,          /* rounded to 10 bits of mantissa, then multiplied as HIGHEST */
    INPUT_KIND_COUNT
};
const char *input_kind_name(enum input_kind kind); /* "int8_token" */
/* Write the names of a set (bits 1 << kind) into buf, as "free int8_token". Returns buf. */
const char *input_kind_names(uint32_t bits, char *buf, size_t size);

/* The scheme is borrowed by the weight that prescribes it and must outlive it. Absent arrays are NULL. */
struct input_scheme {
    enum input_kind kind;
    float scale;             /* INT8_STATIC: x ~ scale * (code - zero); FP8_STATIC: x ~ scale * code */
    int zero;                /* INT8_STATIC: code of 0, in 0..most */
    int most;                /* INT8_STATIC: the largest code, 1..255; 0 means 255 */
    float threshold;         /* INT8_OUTLIERS: a column with any |x| >= threshold is an outlier; 0: none */
    float limit;             /* FP8_TOKEN: upper bound of a token's largest magnitude; 0: none */
    const float *divide;     /* [cols] x[i] is divided by divide[i] first */
    const int32_t *order;    /* [cols] column i of the weights belongs to element order[i] of x */
    const int32_t *outliers; /* [outlier_count] ascending: columns also stored as f16 */
    int outlier_count;
    const uint16_t *outlier_weights; /* f16 [outlier_count][rows]: these columns' weights for outlier
                                        products; other outlier columns use the decoded int8 weights */
};

/* A weight matrix [rows][cols] in `format`, row-major. */
struct weight {
    const struct format *format;
    int64_t rows, cols;
    const void *data; /* backend address; on the CPU usually the mapped file itself */
    void *owned;      /* memory that backend_weight_release frees; NULL when the file is used in place */
    void **copies;    /* NUMA_REPLICATE: `owned`, then the matrix of each node; NULL: there is one */
    const struct input_scheme *input; /* NULL: nothing is prescribed */
    float scale; /* all weights are multiplied by it; 0: by nothing. Set after binding, on the CPU backend
                    only */
    int tuned;   /* the backend's number of its measured kernels (backend_autotune); 0: none */
};

/* The format in which memory holds a matrix of format f: f itself, or with options.repack a format that holds
 * exactly the same numbers and is faster to multiply despite more bytes. */
const struct format *backend_held_format(const struct backend_options *o, const struct format *f);

/* Bytes that a matrix takes in the memory of that device, for the memory plan. arrays: how many of the arrays
 * `divide` and `order` its input_scheme has (0 to 2); devices other than the CPU copy them. */
int64_t backend_weight_bytes(const char *device, const struct backend_options *o, const struct format *f,
                             int64_t rows, int64_t cols, int arrays);

/* Make the host bytes of a matrix usable by this backend. The CPU uses them in place, so they must outlive
 * the weight, unless out->owned is set: with HUGE_PAGES_ALL, or when backend_held_format is another format,
 * they are copied. input: NULL, or the prescribed activation quantization (borrowed). out:
 * backend_weight_release. Errors: ERR_USAGE when the format cannot be run, or not with that input kind
 * (INT8_* need int8 weights); ERR_FORMAT when the numbers of the scheme are invalid; ERR_NOMEM. */
enum err_code backend_weight_bind(struct backend *b, struct weight *out, const struct format *format,
                                  int64_t rows, int64_t cols, const struct input_scheme *input,
                                  const void *host, struct err *why);
void backend_weight_release(struct backend *b, struct weight *w);

/* Measure, on this backend's threads, which kernel is the fastest at 2 to 64 rows for each format and shape
 * among these matrices (bound by this backend) that has no measured choice yet, and use it from now on. Only
 * kernels within the error bounds of the backend's precision and activations take part. Does nothing unless
 * the backend is the CPU's with COMPILE_AUTOTUNE; takes seconds. Matrices of the same format and shape that
 * are bound later get the same choice. progress (may be NULL) returns false to cancel. Errors: ERR_NOMEM,
 * ERR_CANCELLED. */
struct autotuned {
    int measured;   /* pairs of a format and a shape that were measured now */
    double seconds; /* that this took */
    char *text; /* a line for backend_options.shapes with all known choices; free(). NULL: measured is 0 */
};
enum err_code backend_autotune(struct backend *b, struct weight *const *weights, int count,
                               bool (*progress)(void *ctx, int done, int of), void *ctx,
                               struct autotuned *out, struct err *why);

/* The largest operations that will run. The size of scratch memory follows from it. */
struct backend_work {
    int64_t rows, cols; /* largest activations of one operation, [rows][cols] */
    int head_dim;       /* largest of attention; 0: cols */
    /* With ATTENTION_PLAIN, of the largest call of attention: query heads, and positions of a sequence */
    int heads, context;
    int64_t pairs;    /* most pairs of a row and an expert; 0: no experts */
    uint64_t formats; /* format_bit of every format that weights are held in; binding a weight adds its own */
    uint32_t inputs;  /* 1 << enum input_kind of every weight; binding a weight adds its own */
};
/* backend_scratch_bytes: bytes of scratch memory for that work, for the memory plan. backend_reserve
 * allocates it (ERR_NOMEM); binding a weight whose products need more allocates the rest. Operations never
 * allocate. */
int64_t backend_scratch_bytes(const char *device, const struct backend_options *options,
                              const struct backend_work *work);
enum err_code backend_reserve(struct backend *b, const struct backend_work *work, struct err *why);

/* Operations. All pointers are backend addresses unless noted; all matrices are row-major f32 with a row
 * stride in elements. Sizes that a correct engine cannot get wrong are asserted. The CPU backend splits the
 * work over its threads and returns when it is done; devices queue it (backend_finish). */

/* y[i] = row ids[i] of the table, as f32 (added to y[i] when `add`). If the table's scheme reorders or
 * divides inputs, the row is converted back to the order and scale of x. ids: host memory, 0 <= id < rows. */
struct gather {
    const struct weight *table;
    const int32_t *ids;
    int n;
    float *y;
    int64_t y_stride;
    bool add;    /* y += instead of y = (learned positions) */
    float scale; /* the row is multiplied by it; 1 for most models */
};
void backend_gather(struct backend *b, const struct gather *g);

/* y[i] = sum over j < k of weights[i * k + j] * row ids[i * k + j] of x, in this order (added to y[i] when
 * `add`). y may be x when each row i uses row i only. */
struct mix {
    const float *x; /* [rows][cols] */
    int64_t x_stride;
    int64_t rows;
    const int32_t *ids;   /* host memory [n][k], 0 <= id < rows */
    const float *weights; /* host memory [n][k] */
    int n, k;
    int64_t cols;
    float *y; /* [n][cols] */
    int64_t y_stride;
    bool add;
};
void backend_mix(struct backend *b, const struct mix *p);

/* y[n][rows] = x[n][cols] * w^T (+ bias[rows]) (+ residual[n][rows], which may be y itself). Error against
 * binary64 with HIGHEST: at most 1e-6 of the sum of |terms|; for the others see kernels/README.md,
 * "Precision". */
struct matmul {
    const struct weight *w;
    const float *x;
    int64_t x_stride;
    int n;
    const float *bias;     /* NULL: none */
    const float *residual; /* NULL: none; stride y_stride */
    float *y;
    int64_t y_stride;
};
/* The name of the CEILINGS row whose rate bounds a GEMM with weights of this format: "f32_fma", "bf16_tile",
 * "int8_dot" or "int8_tile". Of the options, isa, precision and activations matter. */
const char *matmul_ceiling(const struct format *f, const struct backend_options *o);

/* Whether the CPU backend runs an operation of that size on the calling thread only, because waking the other
 * threads would cost more than it saves. amount: elements read or written (WORK_ELEMENTS), multiply-adds of
 * GEMV or attention (WORK_DOTS), multiply-adds of GEMM (WORK_PRODUCTS). */
enum work_kind { WORK_ELEMENTS, WORK_DOTS, WORK_PRODUCTS };
bool backend_runs_alone(enum work_kind kind, double amount);

/* Run `count` products in one parallel region. Neighbours with the same x, n and x_stride share the packing
 * or quantization of x. */
void backend_matmul(struct backend *b, const struct matmul *m, int count);

enum activation {
    ACT_SILU,
    ACT_GELU_TANH,
    ACT_GELU_ERF,
    ACT_RELU,
    ACT_SWIGLU_CLIPPED, /* g sigmoid(1.702 g) (up + 1) with g = min(gate, 7), up clipped to [-7, 7]; `up` is
                           needed. gpt-oss */
    ACT_RELU_SQUARED,   /* max(g, 0)^2 */
    ACT_SIGMOID,
    ACT_COUNT
};

/* y = act(gate) * up, where gate and up are products of the same x. A fused kernel writes y only; otherwise
 * the intermediate results go to gate.y and up.y (y may be gate.y). gate and up must have no residual. */
struct gated {
    struct matmul gate, up;
    enum activation act;
    float *y;
    int64_t y_stride;
};
void backend_gated(struct backend *b, const struct gated *p);

/* Which rows of a batch go to which experts of a layer: pairs of a row and an expert, sorted by expert. */
struct expert_rows {
    int experts;          /* at most EXPERTS_AT_ONCE */
    const int32_t *first; /* host memory [experts + 1]: pairs first[e] to first[e + 1] - 1 are of expert e */
    const int32_t *row;   /* host memory [pairs]: row of each pair, 0 to rows - 1, ascending by expert */
    int rows;
};
enum { EXPERTS_AT_ONCE = 1024 };

/* For each pair i of expert e: y[i] = act(x[row[i]] gate[e]^T + gate_bias[e]) * (x[row[i]] up[e]^T +
 * up_bias[e]). Matrices of a kind have the same rows, columns and format for all experts. */
struct expert_up {
    const struct expert_rows *to;
    const struct weight *gate; /* [experts] of [ff][cols]; with `joined` of [2 ff][cols]: gate, then up */
    const struct weight *up;   /* [experts] of [ff][cols]; NULL and not joined: y = act(gate) */
    bool joined;
    const float *gate_bias, *up_bias; /* [experts][ff]; NULL: none; not with `joined` */
    const float *x;                   /* [rows][cols], or one row for each pair with by_pair */
    int64_t x_stride;
    bool by_pair;
    enum activation act;
    float *y; /* [pairs][2 ff], or [pairs][ff] without up: results come first, the rest is working space */
    int64_t y_stride;
};
/* y[j] = sum of weight[i] * (x[i] down[e]^T + bias[e]) over the pairs i of row j (added to y[j] when `add`),
 * in an order that depends on how many rows each expert has; with batch_invariant, in the order of the
 * experts. */
struct expert_down {
    const struct expert_rows *to;
    const float *weight;       /* host memory [pairs] */
    const struct weight *down; /* [experts] of [out][ff] */
    const float *bias;         /* [experts][out]; NULL: none */
    const float *x;            /* [pairs][ff] */
    int64_t x_stride;
    float *y; /* [rows][out] */
    int64_t y_stride;
    bool add;
};
/* Can the two operations below run on that backend, with these matrices of `experts` experts? up may be NULL.
 * Without them (other devices, compile=off, activations in 8 bits by token), experts are products of their
 * own. */
bool backend_groups_experts(const struct backend *b, const struct weight *gate, const struct weight *up,
                            const struct weight *down, int experts);
/* The products of all experts of a layer in few parallel regions: one for each kernel that their numbers of
 * rows need, more only if their inputs exceed the scratch memory. Errors as backend_matmul. */
void backend_expert_up(struct backend *b, const struct expert_up *p);
void backend_expert_down(struct backend *b, const struct expert_down *p);

enum norm_kind { NORM_RMS, NORM_LAYER };
struct norm {
    enum norm_kind kind;
    const float *x;
    int64_t x_stride;
    int n;
    int64_t cols;
    const float *w;    /* [cols] */
    const float *bias; /* [cols] or NULL */
    float eps;
    float *y; /* may be x */
    int64_t y_stride;
};
void backend_norm(struct backend *b, const struct norm *p);

/* Rotary position embedding: rotate pairs among the first rot_dims elements of each head by the angle
 * pos * freq[i] and multiply them by magnitude. Pair i is (2i, 2i+1), or (i, i + rot_dims/2) when
 * half_split. */
struct rope {
    float *x; /* in place, [n][heads][head_dim] */
    int64_t x_stride;
    int n, heads, head_dim, rot_dims;
    bool half_split;
    const float *freq;  /* host memory [rot_dims/2] */
    float magnitude;    /* 1, except with YaRN scaling */
    const int32_t *pos; /* host memory [n] */
};
void backend_rope(struct backend *b, const struct rope *p);

/* Multiply each block of a row by the Hadamard matrix of its size: x = H x / sqrt(block), where H[i][j] is -1
 * if i and j have an odd number of 1 bits in common, else 1. The matrix is orthonormal and symmetric, so a
 * second call restores x and products of two transformed vectors are those of the vectors, both but for
 * rounding (each sum of a block rounds log2(block) times). */
enum { HADAMARD_MAX = 512 };
struct hadamard {
    float *x; /* in place, [n][cols] */
    int64_t x_stride;
    int n;
    int64_t cols; /* a multiple of block */
    int block;    /* a power of two, at most HADAMARD_MAX */
};
void backend_hadamard(struct backend *b, const struct hadamard *p);
/* The largest block that divides heads of that size. */
static inline int hadamard_block(int head_dim)
{
    return MIN(head_dim & -head_dim, HADAMARD_MAX);
}

/* The KV cache of one layer: blocks of `block_tokens` tokens, inside a block [kv_head][token][head_dim]. */
struct kv_layer {
    const struct format *k_format, *v_format; /* with `encode`; k_dim and v_dim are multiples of the block */
    void *k, *v;
    int kv_heads, k_dim, v_dim; /* k_dim and v_dim: elements of one head */
    /* V is the first v_dim elements of K, in whole blocks, and not stored again: v is k, v_format is k_format
     */
    bool v_in_k;
    int block_tokens, blocks;
};
int64_t
kv_layer_bytes(const struct kv_layer *kv); /* bytes of K and V together; reads all fields but k and v */

/* Encode k[n][kv_heads][k_dim] and v[n][kv_heads][v_dim] into the cache; with v_in_k, v is not read. slots[i]
 * is block * block_tokens + (token within the block); negative (CPU only): row i is not stored. */
struct kv_store {
    const struct kv_layer *kv;
    const float *k, *v;
    int64_t k_stride, v_stride;
    int n;
    const int32_t *slots; /* host memory [n] */
};
void backend_kv_store(struct backend *b, const struct kv_store *p);

/* Several caches have the positions of a sequence between them, in blocks of SHARE_TOKENS. Of each group of
 * as many blocks as there are caches, each cache has one: in the first group in the order of the caches, in
 * the second in reverse order, and so on, so that all of them have equally much of what rows of a prompt see.
 * A cache has its blocks one after the other. Attention to the positions of one cache gives a share of the
 * result. Source of the order: "zigzag" ring attention. */
enum { SHARE_TOKENS = 1024 };
struct attention_share {
    int parts, part;   /* this is cache `part` of so many */
    int first, blocks; /* its blocks [first, first + blocks): all that a row of the call attends to */
    float *out; /* [n][heads][blocks][attention_share_floats], host memory: what attention_sum_add takes */
};
/* The cache that has a block of positions, and the number of blocks before `block` that cache `part` has. */
static inline int share_owner(int parts, int block)
{
    const int place = block % parts;
    return block / parts & 1 ? parts - 1 - place : place;
}
static inline int share_blocks_before(int parts, int part, int block)
{
    const int group = block / parts, place = group & 1 ? parts - 1 - part : part;
    return group + (block % parts > place);
}
/* The number of positions before `position` that this cache has. */
static inline int share_before(const struct attention_share *s, int position)
{
    const int block = position / SHARE_TOKENS;
    const bool here = share_owner(s->parts, block) == s->part;
    return share_blocks_before(s->parts, s->part, block) * SHARE_TOKENS +
           (here ? position % SHARE_TOKENS : 0);
}

/* Softmax attention. Row i attends to positions attention_first(pos[i]) .. pos[i] of its sequence seq[i];
 * position t of a sequence is in cache block tables[seq[i]][t / block_tokens], or without tables (CPU only)
 * in block seq[i]. Query head h uses KV head h / (heads / kv_heads). */
struct attention {
    const struct kv_layer *kv;
    const float *q; /* [n][heads][k_dim] */
    int64_t q_stride;
    int n, heads;
    const int32_t *pos;                 /* host memory [n] */
    const int32_t *seq;                 /* host memory [n] */
    const int32_t *const *tables;       /* host memory, by sequence; NULL: sequence i has only block i */
    float scale;                        /* of q.k, usually 1/sqrt(k_dim) */
    float softcap;                      /* 0: none */
    int window;                         /* tokens that a row sees at most; 0: all */
    int chunk;                          /* a row sees tokens from the last multiple of it on; 0: all */
    const float *sinks;                 /* [heads] one more score of each head, without a value; NULL: none */
    const struct format *weight_format; /* format of the layer's weights: PRECISION_AUTO is resolved as for a
                                       product with them; NULL: f32 */
    float *y;                           /* [n][heads][v_dim] */
    int64_t y_stride;
    const struct attention_share *share; /* y is not written, but these; CPU only, not with ATTENTION_PLAIN.
                                            NULL: the cache has all positions */
};
static inline int attention_first(const struct attention *p, int pos)
{
    const int first = p->chunk > 0 ? pos / p->chunk * p->chunk : 0;
    return p->window > 0 ? MAX(first, pos - p->window + 1) : first;
}
/* The positions [begin, end) that a row attends to, by their number in this cache. */
static inline int attention_begin(const struct attention *p, int row)
{
    const int first = attention_first(p, p->pos[row]);
    return p->share ? share_before(p->share, first) : first;
}
static inline int attention_end(const struct attention *p, int row)
{
    return p->share ? share_before(p->share, p->pos[row] + 1) : p->pos[row] + 1;
}
void backend_attention(struct backend *b, const struct attention *p);

/* The softmax over some positions, before it is divided by `total`: the largest score (-inf: none of them is
 * visible), and the sum of exp(score - peak). The sum of exp(score - peak) * V belongs to it. */
struct attention_sum {
    float peak, total;
};
/* In memory: an attention_sum, then from ATTENTION_SUM_HEAD floats on the sum of values [v_dim]. */
enum { ATTENTION_SUM_HEAD = 16 }; /* a cache line */
static inline int64_t attention_share_floats(int v_dim)
{
    return ATTENTION_SUM_HEAD + (v_dim + 15) / 16 * 16;
}
/* Add one share, with values o [v_dim], to the sum of those before it, with values y [v_dim]; *sum {0} at
 * first. In ascending order of blocks, the bits are those of attention to all positions with batch_invariant.
 */
void attention_sum_add(struct attention_sum *sum, float *y, struct attention_sum share, const float *o,
                       int v_dim);
void attention_sum_finish(const struct attention_sum *sum, float *y, int v_dim);

/* y = act(gate) * up, or act(gate) when up is NULL. y may be gate. */
struct activate {
    enum activation act;
    const float *gate, *up;
    int64_t stride; /* of gate and up */
    int n;
    int64_t cols;
    float *y;
    int64_t y_stride;
};
void backend_activate(struct backend *b, const struct activate *p);

/* The k largest numbers of each row of x, sorted descending; among equals the smaller index comes first.
 * Infinities and NaN rank before all numbers and are written as NaN, so out[0] of a row shows whether the row
 * is finite; 0 and -0 are equal. A device may write 0 for -0 and any NaN for a NaN. */
enum { TOP_MAX = 64 };
struct ranked {
    float value;
    int32_t id;
};
struct top {
    const float *x; /* [n][cols] */
    int64_t x_stride;
    int n, k;           /* 1 <= k <= TOP_MAX, and not more than cols */
    int64_t cols;       /* at most 2^31 - 1 */
    void *scratch;      /* backend_top_bytes() bytes, overwritten; NULL where that is 0 */
    struct ranked *out; /* [n][k] */
};
void backend_top(struct backend *b, const struct top *p);
int64_t backend_top_bytes(const char *device, int n, int k, int64_t cols); /* 0 on the CPU */
/* The same for host memory, on the calling thread, without scratch. */
void top_rows(const struct top *p);

/* ---------------------------------------------------------------- other devices */

/* An OpenCL device as its driver describes it. Unknown numbers are -1, unknown texts "". */
struct device_info {
    char name[16]; /* "opencl:0": for backend_open */
    char model[96], vendor[64], platform[64], driver[64], version[64];
    char pci[16]; /* "0000:65:00.0": telemetry identifies GPUs by it */
    bool gpu;
    bool shares_memory;                        /* with the host */
    bool fp16, fp64, int_dot, bf16, subgroups; /* features that its kernels may use */
    bool dp4a; /* NVIDIA's 4 x 8 bit dot instruction, used through inline PTX */
    int compute_units, clock_mhz, subgroup_size;
    int64_t memory_bytes, alloc_bytes /* largest single buffer */, local_bytes;
    int64_t group_items; /* largest work group */
};
/* List the devices of all OpenCL platforms in the loader's order, at most `most` of them. Returns how many
 * there are. A missing device, driver or loader yields 0, not an error. */
int opencl_devices(struct device_info *out, int most);

/* Measure which work-group shapes make products fastest on that device. *out: a line of text for
 * backend_options.shapes; free(). Takes minutes, mostly compilation. progress (may be NULL) returns false to
 * cancel. Errors: those of opening the device, ERR_NOMEM, ERR_CANCELLED. */
enum err_code opencl_shapes_measure(char **out, const char *device,
                                    bool (*progress)(void *ctx, int done, int of), void *ctx,
                                    struct err *why);

/* Whether `all` (NULL: no lines) has a line of opencl_shapes_measure for that device. False also when there
 * is no such device. */
bool opencl_shapes_known(const char *all, const char *device);

/* Measure the highest rates of an OpenCL device; each is the best of repeated runs over `seconds`. A
 * multiply-add counts as 2 operations. NAN: the device lacks the feature or the memory to measure it. Errors:
 * ERR_USAGE and ERR_ABSENT for a name that is no device of this machine, ERR_INTERNAL when its driver fails.
 */
struct device_ceilings {
    double read_bytes_s, copy_bytes_s; /* its own memory; each copied byte counts as one read and one write */
    double f32_ops_s, f16_ops_s, int8_ops_s;
    double to_device_bytes_s, from_device_bytes_s; /* transfers between host and device memory */
};
enum err_code opencl_ceilings(struct device_ceilings *out, const char *device, double seconds,
                              struct err *why);

/* ---------------------------------------------------------------- ceilings of this machine */

/* Placement of a memory bandwidth measurement. Without nodes each thread reads the pages it touched first,
 * which the system placed on its own NUMA node. */
struct ceiling_reading {
    int threads;
    struct numa *nodes; /* NULL, or: all pages are placed on node `node` of these */
    int node;
    bool near; /* the threads run on the CPUs of that node */
};
/* Bandwidth in bytes/s of reading `bytes` (far more than the last-level cache) in order by all threads: the
 * best of repeated runs over `seconds`. NAN when memory is short or the system cannot place pages or threads
 * as requested. */
double ceiling_read_bytes_s(const struct ceiling_reading *what, int64_t bytes, double seconds);

/* The speed probe: a short measurement of how fast memory and cores are right now. On a shared host other
 * tenants change both from one second to the next. Results are comparable between equal backends.
 *
 * Memory speed is a GEMV with q8_0 weights that no cache holds, as in decoding: the times of other formats
 * correlate better with it than with plain reading. Core speed is the same GEMV with weights in each core's
 * own cache. It shows when two virtual CPUs share one physical core, which no system counter reports and
 * register-only multiply-adds did not show (kernels/SPEED.md). */
struct speed_probe;
enum { SPEED_PROBE_BYTES = 128 << 20, SPEED_PROBE_COLS = 2048 };
/* Open a probe on the threads and kernels of a CPU backend, which must have PRECISION_AUTO and a reservation
 * for one row of SPEED_PROBE_COLS. The backend is borrowed, so that probes and the work timed between them
 * run on the same threads: the threads of two pools can end up on the same CPU for a while, which doubles all
 * times. *out owned by the caller: speed_probe_close, before the backend is closed. Errors: ERR_NOMEM and
 * those of backend_weight_bind. */
enum err_code speed_probe_open(struct speed_probe **out, struct backend *backend, struct err *why);
void speed_probe_close(struct speed_probe *p); /* NULL is fine */
/* Memory speed in seconds per weight; takes a few milliseconds. */
double speed_probe_read_s(struct speed_probe *p);
/* Core speed in seconds per weight, all threads of `on` together; takes about 0.1 ms. `on`: the probe's
 * backend or one with as many threads. */
double speed_probe_compute_s(struct speed_probe *p, struct backend *on);
/* The typical value of n results (which it sorts): the mean of their middle half. Speed jumps between several
 * levels, so the median would pick one of them, and in a plain mean one interruption would outweigh the rest.
 * NAN for n < 1. */
double speed_probe_typical_s(double *reading_s, int n);
/* The best repeatable value of n results (which it sorts): the tenth percentile. The minimum could come from
 * a short clock boost. NAN for n < 1. */
double speed_probe_best_s(double *reading_s, int n);

/* Arithmetic ceilings: one row for each kind of multiply-add that this build has code for. */
struct ceiling {
    const char *name; /* "f32_fma" "int8_dot" "bf16_dot" "bf16_tile" "int8_tile" */
    const char *isa;  /* "avx2" ... */
    uint32_t needs;   /* isa bits */
};
extern const struct ceiling CEILINGS[];
extern const size_t CEILING_COUNT;
/* The widest row of that name that these instruction sets allow; NULL: none. */
const struct ceiling *ceiling_widest(const char *name, uint32_t isa);
/* Operations per second (a multiply-add counts as 2) of `threads` threads, the best of repeated runs over
 * `seconds`. NAN when bits of `needs` are missing from `usable`. */
double ceiling_ops_s(const struct ceiling *c, uint32_t usable, int threads, double seconds);

#endif
