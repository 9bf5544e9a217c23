/* kernels/kernels.h - the door of kernels/: number formats, and the operations a transformer needs on them.
 *
 * Three layers: FORMATS (how bytes become numbers), kernel sets per ISA (chosen at run time, internal), and
 * the backend (memory + operations), which is all the engine sees. The layer code of the engine is written
 * once against `struct backend` and knows no ISA. Addresses handed to a backend are the backend's own
 * (backend_alloc, or a weight it bound): on the CPU they are ordinary pointers, elsewhere they may not be
 * dereferenced. */
#ifndef QDYNO_KERNELS_H
#define QDYNO_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* ---------------------------------------------------------------- formats */

/* Every tensor type a GGUF file may hold. Rows whose `decode` is NULL are known (size, name) but cannot be
 * run yet. */
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
    FORMAT_COUNT /* at most 64: sets of formats are bits */
};

/* x: n floats, n a multiple of block_weights. blocks: format_row_bytes(n) bytes, any alignment. n may span
 * several rows, but not in a format with row_tail_bytes: there it is exactly one row, whose tail lies behind
 * its blocks (format_encode_rows and format_decode_rows know this, and row_encode). The encoders are the
 * field's reference (ggml's formats byte-identical with ggml); both are pure functions without allocation. */
typedef void format_encode_fn(const float *x, void *blocks, int64_t n);
typedef void format_decode_fn(const void *blocks, float *x, int64_t n);

/* Formats that ggml does not have carry ids from here on: nobody else's, so a file that holds them says in
 * its metadata which they are (docs/formats.md). */
enum { FORMAT_OWN_TYPES = 1000 };

struct format {
    const char *name;       /* as in config lines and file names: "q4_0" */
    uint32_t ggml_type;     /* id in GGUF tensor headers; from FORMAT_OWN_TYPES on, one of ours */
    uint32_t block_weights; /* a row is a whole number of blocks */
    uint32_t block_bytes;
    uint32_t row_tail_bytes; /* behind a row's blocks: 0, or 4 for the f32 its codes are multiplied by */
    double max_nmse; /* decode(encode(x)) on N(0,1), 2^16 samples in rows of 4096; NAN without encode */
    format_encode_fn *encode; /* NULL: cannot be made by us yet */
    format_decode_fn *decode; /* NULL: cannot be run by us yet */
    const char *readme;       /* the folder's README, NULL with decode NULL */
    bool row_encode;          /* encode looks at a whole row: one row a call */
    bool weighted;            /* format_encode_weighted makes use of importance */
};
extern const struct format FORMATS[FORMAT_COUNT];         /* indexed by enum format_id */
static inline uint64_t format_bit(const struct format *f) /* in a set of formats */
{
    return 1ull << (f - FORMATS);
}

const struct format *format_find(const char *name);           /* NULL when unknown; case-insensitive */
const struct format *format_by_ggml_type(uint32_t type);      /* NULL when unknown */
int64_t format_row_bytes(const struct format *f, int64_t n);  /* n a multiple of block_weights; with tail */
int64_t format_span_bytes(const struct format *f, int64_t n); /* where weight n of a row begins: no tail */
double format_bits_per_weight(const struct format *f);        /* of the blocks */

/* Whole rows of `cols` weights each, format_row_bytes apart. Encoding is by the fastest kernels of this
 * machine, to the bytes of `encode`. */
/* The largest |x[i]| of n floats; NaN when one of them is NaN. 0 for none. By the calling thread. */
float kernels_largest_magnitude(const float *x, int64_t n);
void format_encode_rows(const struct format *f, const float *x, void *out, int64_t rows, int64_t cols);
void format_decode_rows(const struct format *f, const void *in, float *x, int64_t rows, int64_t cols);

/* The same where an error in column i counts importance[i] >= 0 (mean square of the inputs that meet it;
 * NULL: format_encode_rows). Formats that are not `weighted` encode as ever. */
void format_encode_weighted(const struct format *f, const float *x, const float *importance, void *out,
                            int64_t rows, int64_t cols);

/* The formats with row_tail_bytes (fp8_*, int8), for those who choose codes themselves: n codes as they are
 * stored, and what they are multiplied by. */
void format_row_pack(const struct format *f, const uint8_t *codes, float scale, void *row, int64_t n);

/* One row of fp8_e4m3 or fp8_e5m2 under a scale chosen elsewhere (> 0): the nearest codes to x / *scale. */
void format_fp8_encode(const struct format *f, const float *scale, const float *x, void *row, int64_t n);

/* nf4 and fp4 under magnitudes chosen elsewhere: the nearest values to x / absmax[i / 64], cut at -1 and 1.
 * absmax: [n / 64], > 0 or the weights are 0. */
void format_codebook_encode(const struct format *f, const float *absmax, const float *x, void *blocks,
                            int64_t n);

/* The group formats (u4_g64 ...), for those who choose codes themselves: weight i of a group is
 * scale * (code[i] - zero). Scale and zero are rounded to f16 in the block; codes take format_group_bits. */
struct group_codes {
    float scale, zero;
    uint8_t code[128]; /* block_weights of them */
};
int format_group_bits(const struct format *f); /* 0: not a group format */
void format_group_pack(const struct format *f, const struct group_codes *g, void *block);
void format_group_unpack(const struct format *f, const void *block, struct group_codes *g);

/* nf4_dq and fp4_dq with statistics of more than the row `encode` looks at (double quantization of a tensor):
 * n weights, a multiple of 256, that are weights first.. of the tensor. */
struct nested_scales {
    float offset;         /* mean of the largest magnitudes of all 64 weights */
    const float *largest; /* for each 16384 weights: the largest distance of those magnitudes from offset */
};
void format_nested_encode(const struct format *f, const struct nested_scales *s, int64_t first,
                          const float *x, void *blocks, int64_t n);

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
    ISA_AVX512 = 1 << 2, /* F, BW, DQ, VL, VBMI not implied */
    ISA_AVX512VNNI = 1 << 3,
    ISA_AVX512BF16 = 1 << 4,
    ISA_AMX = 1 << 5, /* tile, int8, bf16, and the kernel's permission to use them */
    ISA_NEON = 1 << 6,
    ISA_DOTPROD = 1 << 7,
    ISA_AVXVNNI = 1 << 8, /* vpdpbusd on 256 bits, which processors without AVX-512 have */
};

/* What the CPU and the operating system both support (CPUID and XGETBV; AMX asks the kernel for permission).
 */
uint32_t isa_detect(void);

/* A level name stands for itself and what it builds on: "ref" -> 0, "avx2" -> SSE41|AVX2, "avx512vnni" -> ...
 * A comma-separated list is a union. "all" -> every bit. Errors: ERR_USAGE with the nearest name. */
enum err_code isa_parse(uint32_t *out, const char *names, struct err *why);

/* The bits that may be used: detected & isa_parse(getenv("QDYNO_ISA")), which can only take away. A variable
 * that does not parse is ERR_USAGE. */
enum err_code isa_usable(uint32_t *out, struct err *why);

/* Level names this table knows, least first: "ref" "sse41" "avx2" ... */
struct isa_level {
    const char *name;
    uint32_t bits;
};
extern const struct isa_level ISA_LEVELS[];
extern const size_t ISA_LEVEL_COUNT;

/* "avx2 avx512 avx512vnni amx" or "ref" into buf. Returns buf. */
const char *isa_names(uint32_t bits, char *buf, size_t size);

/* ---------------------------------------------------------------- the backend */

/* How exact the products are. HIGHEST: f32 operands, f32 sums. MEDIUM: both operands may be rounded to bf16
 * (matrix products), activations to 8 bits in blocks of 32 (quantized weights), sums in f32/s32. HIGH: many
 * rows by three bf16 products of operands split in two where there are tiles for it, else as HIGHEST. */
enum precision {
    PRECISION_HIGHEST,
    PRECISION_HIGH,
    PRECISION_MEDIUM,
    PRECISION_AUTO, /* by the weight: HIGHEST for f32, HIGH for f16 (bf16 would round them), else MEDIUM */
};

/* How activations meet quantized weights where precision allows rounding (MEDIUM). AUTO: as is fastest within
 * MEDIUM's bounds: 8 bits or bf16. INT8: 8 bits in blocks of 32 at any number of rows. INT8_TOKEN: int8
 * weights meet 8 bits under one scale a token (INPUT_INT8_TOKEN), other formats as AUTO. On OpenCL devices
 * AUTO is f32; INT8 holds for formats whose codes are whole numbers, others keep f32. */
enum activations {
    ACTIVATIONS_AUTO,
    ACTIVATIONS_INT8,
    ACTIVATIONS_INT8_TOKEN,
};

/* Which memory asks for huge pages. 2 MiB pages spare walks of the page tables; the kernel may refuse, and a
 * file that is mapped has them hardly anywhere, so ALL copies the weights into memory of our own. */
enum huge_pages {
    HUGE_PAGES_BUFFERS, /* what the backend allocates: KV cache, activations, scratch */
    HUGE_PAGES_OFF,
    HUGE_PAGES_ALL, /* and weights */
};

struct backend;

struct backend_options {
    int threads; /* >= 1 */
    enum affinity affinity;
    uint32_t isa; /* bits that may be used (already & detected) */
    enum precision precision;
    enum activations activations;
    enum huge_pages huge_pages;
    bool repack;        /* weights may be held in another format than the file's (backend_held_format) */
    const char *shapes; /* NULL, or lines of opencl_shapes_measure, of any devices; only opening reads it */
};

/* device: "cpu", or "opencl:0" and on as opencl_devices lists them. *out owned: backend_close. Errors:
 * ERR_ABSENT (no such device), ERR_NOMEM, ERR_USAGE. */
enum err_code backend_open(struct backend **out, const char *device, const struct backend_options *options,
                           struct err *why);
void backend_close(struct backend *b); /* NULL is fine */

/* What really runs: device, threads, pinned, isa in use. Strings are borrowed from the backend. */
struct backend_info {
    const char *device;
    const char *gpu; /* PCI address of the GPU it is, "" unknown; NULL: no GPU */
    bool remote;     /* addresses are not the host's: only backend_read and backend_write reach them */
    int threads;     /* of the host */
    bool pinned;
    uint32_t isa;              /* bits the chosen kernels use */
    int64_t huge_wanted_bytes; /* in huge pages, if the kernel agreed, of what was allocated and filled */
    int64_t copied_bytes;      /* of weights that are not used where the file is mapped */
    int64_t repacked_bytes;    /* of these, what is held in another format than the file's */
    int64_t scratch_bytes;     /* for operations, as backend_scratch_bytes has it */
    int64_t device_bytes;      /* allocated now in a memory of the device's own; 0: there is none */
    uint32_t inputs;           /* 1 << enum input_kind of every weight bound so far, as its products run */
};
void backend_describe(const struct backend *b, struct backend_info *out);

/* The threads operations run on, for work between them that is no operation of ours. */
struct threadpool *backend_threads(struct backend *b);

/* Wait until all operations so far are done, which a device may do long after they were asked for. Errors of
 * any since the last call: ERR_NOMEM, ERR_ABSENT (the device is lost: nothing more can be run on it). Results
 * of backend_read are right only when this says so. */
enum err_code backend_finish(struct backend *b, struct err *why);

/* Zeroed memory aligned to 64 bytes. NULL when there is none. */
void *backend_alloc(struct backend *b, size_t bytes);
void backend_free(struct backend *b, void *p);
void backend_write(struct backend *b, void *dst, const void *host_src, size_t bytes);
void backend_read(struct backend *b, void *host_dst, const void *src, size_t bytes);

/* How the inputs of one weight's products are treated where the method that made it prescribes it: every
 * product with this weight runs so, at any number of rows, on every ISA, whatever the backend's options say
 * (kernels/README.md, "Inputs"). Borrowed by the weight: outlives it. Absent arrays are NULL. */
enum input_kind {
    INPUT_FREE,          /* as precision and activations say */
    INPUT_INT8_TOKEN,    /* 8 bits, symmetric, a scale for each token */
    INPUT_INT8_TENSOR,   /* 8 bits, a scale and a zero for all tokens of a product */
    INPUT_INT8_STATIC,   /* 8 bits, scale and zero as given */
    INPUT_INT8_OUTLIERS, /* LLM.int8: as INT8_TOKEN, but columns with large values multiply as floats */
    INPUT_FP8_TOKEN,     /* through fp8 (the weight's kind of it, else e4m3), a scale for each token */
    INPUT_FP8_STATIC,    /* the same under the scale that is given */
    INPUT_TF32,          /* 10 bits of mantissa, then HIGHEST */
    INPUT_KIND_COUNT
};
const char *input_kind_name(enum input_kind kind); /* "int8_token" */
/* "free int8_token" of bits 1 << kind into buf. Returns buf. */
const char *input_kind_names(uint32_t bits, char *buf, size_t size);
struct input_scheme {
    enum input_kind kind;
    float scale;     /* INT8_STATIC: x ~ scale * (code - zero); FP8_STATIC: x ~ scale * code */
    int zero;        /* INT8_STATIC, 0..most */
    int most;        /* INT8_STATIC: codes 0..most, 1..255; 0: 255 */
    float threshold; /* INT8_OUTLIERS: |x| >= threshold makes a column an outlier of this product; 0: none */
    float limit;     /* FP8_TOKEN: upper bound of a token's max (activation_scale_ub); 0: none */
    const float *divide;             /* [cols] x[i] is divided by it first */
    const int32_t *order;            /* [cols] stored input i is input order[i] of x (and of divide) */
    const int32_t *outliers;         /* stored inputs, ascending, whose column is kept besides */
    int outlier_count;               /* of them */
    const uint16_t *outlier_weights; /* f16 [outlier_count][rows], what an outlier column is multiplied by;
                                        columns not kept: the weights as stored */
};

/* A weight matrix [rows][cols] in `format`, row-major. */
struct weight {
    const struct format *format;
    int64_t rows, cols;
    const void *data; /* backend address; on the CPU the mapped file itself */
    void *owned;      /* what backend_weight_release gives back; NULL when the file is used in place */
    const struct input_scheme *input; /* NULL: INPUT_FREE, in the order of x */
};

/* The format in which a matrix of f is held under these options: f, or with `repack` one that holds exactly
 * the same numbers and multiplies faster than it costs in bytes. */
const struct format *backend_held_format(const struct backend_options *o, const struct format *f);

/* Bytes that a matrix takes where that device holds it, by the memory plan: of a mapped file as much as it
 * has there, of copies whole cache lines. arrays: how many of divide and order its input_scheme has, which
 * other devices hold beside it. */
int64_t backend_weight_bytes(const char *device, const struct backend_options *o, const struct format *f,
                             int64_t rows, int64_t cols, int arrays);

/* Make host bytes usable by this backend. The CPU uses them in place: they must outlive the weight; with
 * HUGE_PAGES_ALL, or where backend_held_format is another one, it copies them (then out->owned is not NULL).
 * input: NULL, or how inputs are treated. Errors: ERR_USAGE when the format cannot be run, or not with such
 * inputs (INT8_* are products of int8 only); ERR_FORMAT when the scheme's numbers cannot be right; ERR_NOMEM.
 */
enum err_code backend_weight_bind(struct backend *b, struct weight *out, const struct format *format,
                                  int64_t rows, int64_t cols, const struct input_scheme *input,
                                  const void *host, struct err *why);
void backend_weight_release(struct backend *b, struct weight *w);

/* The most that operations will ask for, which scratch follows. */
struct backend_work {
    int64_t rows, cols; /* inputs of one operation, [rows][cols] */
    int head_dim;       /* of attention; 0: as wide as a row */
    uint64_t formats;   /* format_bit of what weights are held in; binding a weight adds its own */
    uint32_t inputs;    /* 1 << enum input_kind that they prescribe; likewise */
};
/* Bytes of scratch the backend allocates itself for that work: part of the memory plan. backend_reserve takes
 * it (ERR_NOMEM), and binding a weight whose products need more takes the rest; operations never allocate. */
int64_t backend_scratch_bytes(const char *device, const struct backend_options *options,
                              const struct backend_work *work);
enum err_code backend_reserve(struct backend *b, const struct backend_work *work, struct err *why);

/* Operations. All pointers are backend addresses; all matrices row-major f32 with a row stride in elements;
 * sizes that a correct engine cannot get wrong are asserted. Splits work over the threads and returns when
 * done. */

/* y[i] = row ids[i] of the table, as f32 (+ y[i] when add), in the order of x where the table prescribes its
 * own. ids: host memory, 0 <= id < rows. */
struct gather {
    const struct weight *table;
    const int32_t *ids;
    int n;
    float *y;
    int64_t y_stride;
    bool add;    /* y += instead of y = (learned positions) */
    float scale; /* multiplies the row; 1 for most models */
};
void backend_gather(struct backend *b, const struct gather *g);

/* y[n][rows] = x[n][cols] * w^T (+ bias[rows]) (+ residual[n][rows], which may be y itself). Error bound
 * against f64: HIGHEST 1e-6 relative to sum |terms|; MEDIUM as the format's own rounding of activations (see
 * kernels/README.md). */
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
/* Which kind of CEILINGS row bounds matrix products of many rows: "f32_fma", "bf16_tile" or "int8_dot". Of
 * the options, isa, precision and activations matter. */
const char *matmul_ceiling(const struct format *f, const struct backend_options *o);

/* Whether the processor's backend runs a call of so much work on the caller's thread alone, as starting the
 * others costs more than it saves. Elements passed over; multiply-adds of dots: products of one or few rows,
 * attention; or of products of many rows. */
enum work_kind { WORK_ELEMENTS, WORK_DOTS, WORK_PRODUCTS };
bool backend_runs_alone(enum work_kind kind, double amount);

/* `count` products in one parallel region; those with the same x, n and x_stride share its preparation. */
void backend_matmul(struct backend *b, const struct matmul *m, int count);

enum activation { ACT_SILU, ACT_GELU_TANH, ACT_GELU_ERF, ACT_RELU };

/* y = act(gate) * up of two products of the same x. Where they can be made together, only y is written;
 * else gate.y and up.y take what comes between (y may be gate.y). gate and up have no residual. */
struct gated {
    struct matmul gate, up;
    enum activation act;
    float *y;
    int64_t y_stride;
};
void backend_gated(struct backend *b, const struct gated *p);

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

/* Rotate pairs of the first rot_dims of each head: angle = pos * freq[i], both outputs times magnitude. Pair
 * i is (2i, 2i+1), or (i, i + rot_dims/2) when half_split. */
struct rope {
    float *x; /* in place, [n][heads][head_dim] */
    int64_t x_stride;
    int n, heads, head_dim, rot_dims;
    bool half_split;
    const float *freq;  /* host memory [rot_dims/2] */
    float magnitude;    /* 1 but for yarn */
    const int32_t *pos; /* host memory [n] */
};
void backend_rope(struct backend *b, const struct rope *p);

/* The KV cache of one layer: blocks of `block_tokens` tokens, inside a block [kv_head][token][head_dim]. */
struct kv_layer {
    const struct format *k_format, *v_format; /* any that can be made (head dims a multiple of the block) */
    void *k, *v;
    int kv_heads, k_dim, v_dim; /* per head */
    int block_tokens, blocks;
};
int64_t kv_layer_bytes(const struct kv_layer *kv); /* K and V together; fields but k and v set */

/* Store k[n][kv_heads][k_dim], v[n][kv_heads][v_dim] at physical slots (block * block_tokens + token in
 * block). */
struct kv_store {
    const struct kv_layer *kv;
    const float *k, *v;
    int64_t k_stride, v_stride;
    int n;
    const int32_t *slots; /* host memory [n] */
};
void backend_kv_store(struct backend *b, const struct kv_store *p);

/* Each row i attends to positions max(0, pos[i]-window+1) .. pos[i] of its sequence, whose token t lies in
 * physical block tables[seq[i]][t / block_tokens]. Query head h uses KV head h / (heads / kv_heads). */
struct attention {
    const struct kv_layer *kv;
    const float *q; /* [n][heads][k_dim] */
    int64_t q_stride;
    int n, heads;
    const int32_t *pos;           /* host memory [n] */
    const int32_t *seq;           /* host memory [n] */
    const int32_t *const *tables; /* host memory, by sequence */
    float scale;                  /* of q.k, usually 1/sqrt(k_dim) */
    float softcap;                /* 0: none */
    int window;                   /* 0: none */
    const struct format *like;    /* of the weights around it: AUTO is resolved as for them; NULL: f32 */
    float *y;                     /* [n][heads][v_dim] */
    int64_t y_stride;
};
void backend_attention(struct backend *b, const struct attention *p);

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

/* The k largest numbers of each row of x, the largest first, of equals the one with the smaller index.
 * Infinities and NaN come before all numbers and are written as NaN, so that out[0] of a row says whether the
 * row is finite; zeros of both signs are equal. A device may write 0 for -0, and one NaN for another. */
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
    void *scratch;      /* backend_top_bytes of them, overwritten; NULL where that is 0 */
    struct ranked *out; /* [n][k] */
};
void backend_top(struct backend *b, const struct top *p);
int64_t backend_top_bytes(const char *device, int n, int k, int64_t cols); /* 0 on the CPU */
/* The same of host memory, by the calling thread, without scratch. */
void top_rows(const struct top *p);

/* ---------------------------------------------------------------- other devices */

/* An OpenCL device as its driver describes it. Unknown numbers are -1, unknown texts "". */
struct device_info {
    char name[16]; /* "opencl:0": for backend_open */
    char model[96], vendor[64], platform[64], driver[64], version[64];
    char pci[16];                              /* "0000:65:00.0", which telemetry knows it by */
    bool gpu, shares_memory;                   /* with the host */
    bool fp16, fp64, int_dot, bf16, subgroups; /* what its kernels may use */
    bool dp4a; /* NVIDIA's instruction for int_dot, which needs no extension */
    int compute_units, clock_mhz, subgroup_size;
    int64_t memory_bytes, alloc_bytes /* of one buffer at most */, local_bytes;
    int64_t group_items; /* a work group at most */
};
/* The devices of all OpenCL platforms, in the loader's order, at most `most`; returns how many there are. No
 * device, no driver or no loader is 0, not an error. */
int opencl_devices(struct device_info *out, int most);

/* How products are best cut into groups on that device, by measuring: a line of text for backend_options.
 * *out: free(). Takes minutes, mostly of compiling; progress (may be NULL) returns false to stop. Errors:
 * those of opening the device, ERR_NOMEM, ERR_CANCELLED. */
enum err_code opencl_shapes_measure(char **out, const char *device,
                                    bool (*progress)(void *ctx, int done, int of), void *ctx,
                                    struct err *why);

/* What such a device can do at most, each the best of runs that fill `seconds`. A multiply-add is 2
 * operations. NAN: it cannot do that, or did not have the memory to try. Errors: ERR_USAGE and ERR_ABSENT for
 * a name that is no device here, ERR_INTERNAL when its driver fails. */
struct device_ceilings {
    double read_bytes_s, copy_bytes_s; /* its own memory; a copied byte is one read and one written */
    double f32_ops_s, f16_ops_s, int8_ops_s;
    double to_device_bytes_s, from_device_bytes_s; /* from and to the host's memory */
};
enum err_code opencl_ceilings(struct device_ceilings *out, const char *device, double seconds,
                              struct err *why);

/* ---------------------------------------------------------------- ceilings of this machine */

/* Who reads what. Without nodes each thread reads what it touched first, so what lies beside it. */
struct ceiling_reading {
    int threads;
    struct numa *nodes; /* NULL, or: all that is read lies on `node` of these */
    int node;
    bool near; /* and its own processors read it */
};
/* Streaming read of `bytes` (far beyond the last cache), all members of a pool; bytes/s, the best of runs
 * that fill `seconds`. NAN when memory is short, or the system places neither pages nor threads. */
double ceiling_read_bytes_s(const struct ceiling_reading *what, int64_t bytes, double seconds);

/* How fast this machine is just now, which others on its host change from one second to the next. No
 * ceilings. Reading is one row through q8_0 weights that no cache holds, as decoding does: other formats
 * follow it closer than they follow plain reading (kernels/SPEED.md). Computing is the same with weights in
 * each core's own cache, which nothing but the cores themselves can slow down: where two virtual processors,
 * or ours and somebody else's, share one core, each has a part of it, and no counter of the system says so.
 * Multiply-adds in registers did not say it either (kernels/SPEED.md). Readings compare where they were made
 * with equal backends. */
struct pacer;
enum { PACE_BYTES = 128 << 20, PACE_COLS = 2048 };
/* Of the threads and kernels of a processor's backend, opened with PRECISION_AUTO as models are and
 * reserved for a row of PACE_COLS. It is borrowed, so that what is timed between readings runs on the same
 * threads: two pools in turns find their threads on one processor now and then, where all takes twice as
 * long. *out owned: pace_close, before the backend. Errors: ERR_NOMEM (the bank), as backend_weight_bind. */
enum err_code pace_open(struct pacer **out, struct backend *backend, struct err *why);
void pace_close(struct pacer *p);    /* NULL is fine */
double pace_read_s(struct pacer *p); /* seconds a weight; takes some milliseconds */
/* Seconds a weight of all threads of a backend together, the pacer's or one of as many; some 0.1 ms. */
double pace_compute_s(struct pacer *p, struct backend *on);
/* Of several such readings, which it sorts: the mean of their middle half. Pace has two levels and more, so
 * no single one of them stands for it, and a moment without a processor would outweigh all others. NAN for
 * none. */
double pace_usual_s(double *reading_s, int n);
/* The same, but what is reached in one of ten: a clock that rises for a moment is not what others are
 * measured by. */
double pace_best_s(double *reading_s, int n);

/* Arithmetic ceilings: rows of a table, one per kind of multiply-add this build has code for. */
struct ceiling {
    const char *name; /* "f32_fma" "int8_dot" "bf16_dot" "bf16_tile" "int8_tile" */
    const char *isa;  /* "avx2" ... */
    uint32_t needs;   /* isa bits */
};
extern const struct ceiling CEILINGS[];
extern const size_t CEILING_COUNT;
/* The widest of a name that these instruction sets allow; NULL: none. */
const struct ceiling *ceiling_widest(const char *name, uint32_t isa);
/* operations/s (a multiply-add is 2) with `threads`, or NAN when the isa bits are not all in `usable`. */
double ceiling_ops_s(const struct ceiling *c, uint32_t usable, int threads, double seconds);

#endif
