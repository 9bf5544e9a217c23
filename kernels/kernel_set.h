/* kernels/kernel_set.h - the interfaces that a format and an instruction set (ISA) implement; internal.
 *
 * A kernel set is a struct of function pointers. select.c fills it once: first with the reference kernels,
 * then with the kernels of every ISA that may be used. The drivers (gemv.c, gemm.c, attention.c, ops.c)
 * handle shapes, blocking and threads and contain no ISA or format code. A kernel is written for one ISA and
 * one format and knows nothing else. */
#ifndef QDYNO_KERNELS_KERNEL_SET_H
#define QDYNO_KERNELS_KERNEL_SET_H

#include "kernels/kernels.h"

/* ---------------------------------------------------------------- per format */

enum {
    DOT_X = 4,       /* most rows of activations in one call of a dot kernel */
    Q8_BLOCK = 32,   /* activations that share one 8-bit scale */
    TILE_ROWS = 16,  /* weight rows of an AMX tile */
    TILE_DEPTH = 32, /* bf16 values in one row of an AMX tile */
};

/* Activations quantized to 8 bits in blocks of 32: x[i] ~ d[i / 32] * q[i]. sum[b] = d[b] * (sum of the q of
 * block b). Weight codes often carry an offset (codes 0..15 for values -8..7); with the sums, a dot kernel
 * corrects for it by one multiply-add per block. Rows are q_stride and d_stride elements apart. */
struct act_q8 {
    int8_t *q;
    float *d, *sum;
    float *sum16; /* as sum, for every 16 activations; rows are 2 * d_stride apart */
    int64_t q_stride, d_stride;
};

/* Compute sum16 of n activations (a multiple of 32) from their q and d. */
static inline void q8_sums16(const int8_t *q, const float *d, int64_t n, float *sum16)
{
    for (int64_t i = 0; i < n; i += 16) {
        int total = 0;
        for (int j = 0; j < 16; j++) total += q[i + j];
        sum16[i / 16] = d[i / Q8_BLOCK] * (float)total;
    }
}

/* GEMV kernel: y[i][r] = dot(x row i, weight row r) for i < n <= DOT_X, r < rows. Kernels call a function
 * ..._unrolled with n as a constant, so that the compiler keeps the sums of all rows of x in registers.
 *   w  [rows] rows of blocks, row_bytes apart, any alignment; nothing after a row is read
 *   x  [n][cols] f32, read by dot_f32
 *   q  the same activations in 8 bits, read by dot_q8; cols is a multiple of 32
 *   y  [n][rows] f32, overwritten */
struct dot {
    const uint8_t *w;
    int64_t row_bytes;
    int rows;
    int64_t cols;
    const float *x;
    int64_t x_stride;
    struct act_q8 q;
    int n;
    float *y;
    int64_t y_stride;
    bool skip_prefetch; /* do not prefetch weights that are floats (kernels_skip_prefetch) */
};
typedef void dot_fn(const struct dot *d);

/* Convert weights to bf16 (round to nearest even) in AMX tile order. Tile t holds inputs 32 t .. 32 t + 31 of
 * 16 weight rows: 64 bytes a row, 1024 bytes a tile.
 *   w    the first wanted input of the first row; rows are row_bytes apart
 *   k    inputs, a multiple of the block; missing inputs of the last tile become 0
 *   out  any row of tile 0, 64-byte aligned; `rows` rows are written, the other rows are left unchanged */
typedef void unpack_bf16_fn(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out);

/* 32 inputs of TILE_ROWS weight rows as small integers, for integer GEMM:
 *   weight = scale[i / sub] * (code - bias) + min[i / sub]          (i: input 0..31; min only with has_min)
 * If not wide, |code - bias| <= 512 / sub, so 16-bit sums over half a block's products cannot overflow. The
 * GEMM kernel reads `kind` from the first group of a packed panel only. */
struct q8_group {
    uint8_t code[TILE_ROWS][Q8_BLOCK];
    float scale[2][TILE_ROWS], min[2][TILE_ROWS];
    struct q8_kind {
        int sub;  /* weights that share a scale: 16 or 32 */
        int bias; /* offset of the codes; a multiple of 16 when wide */
        bool has_min;
        bool wide; /* codes use all 8 bits */
    } kind;
    uint8_t unused[52];
    uint8_t high[TILE_ROWS]
                [Q8_BLOCK]; /* free for the GEMM kernel, which may split wide codes into two bytes */
};
_Static_assert(sizeof(struct q8_group) == 1344, "whole cache lines");

/* Convert k inputs (a multiple of the block) of `rows` <= 16 weight rows to k / 32 groups. Missing rows get
 * codes and scales of 0. */
typedef void unpack_q8_fn(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, struct q8_group *out);

/* 32 inputs of TILE_ROWS weight rows with the rows side by side, for integer GEMM with weight rows in vector
 * lanes: code[i][4 * r + j] is the code of input 4 * i + j in row r. Codes, scales and minima are those that
 * unpack_q8 produces. */
struct q8_columns {
    uint8_t code[Q8_BLOCK / 4][4 * TILE_ROWS];
    float scale[2][TILE_ROWS], min[2][TILE_ROWS];
};

/* Convert k inputs (a multiple of the block, at most Q8_PIECE) of exactly TILE_ROWS weight rows to k / 32
 * columns, 64-byte aligned. Returns the kind, the same at every call. */
enum { Q8_PIECE = 256 };
struct prefetch {
    const uint8_t *next; /* moved on by the kernel, `step` bytes with every 32 inputs */
    int64_t step;
};
typedef struct q8_kind unpack_columns_fn(const uint8_t *w, int64_t row_bytes, int64_t k,
                                         struct q8_columns *out, struct prefetch *ahead);

/* Attention of a few queries, straight from K or V rows as a cache holds them: `n` rows, row_bytes apart, of
 * dim numbers each (a multiple of ROW_DIMS).
 *   row_scores  s[j][i] = dot(query j, row i)
 *   row_values  o[j] += sum over i of s[j][i] * row i, in ascending order of i
 * Row scales (row_tail_bytes) are left out. A result has the same bits whatever other queries and rows a call
 * has, and the bits that the f32 kernels compute from the decoded rows. */
enum { ROW_DIMS = 16 };
struct cached_rows {
    const uint8_t *rows; /* any alignment; nothing after a row is read */
    int64_t row_bytes;
    int n, dim, queries;
    const uint8_t *next; /* as many rows that a later call reads, to prefetch meanwhile; NULL: none */
    const float *q;      /* [queries][dim], read by row_scores */
    float *s;            /* [queries][n], s_stride apart */
    int64_t s_stride;
    float *o; /* [queries][dim], row_values */
};
typedef void cached_rows_fn(const struct cached_rows *p);

/* Encode [rows][cols] floats to rows of blocks, format_row_bytes apart (tails included). Every ISA produces
 * the bytes of the reference encoder. */
struct encode {
    const float *x;
    const float *importance; /* [cols] >= 0, weight of the squared error of a column; NULL: all equal */
    uint8_t *out;
    int64_t rows, cols;
};
typedef void encode_rows_fn(const struct encode *e);

/* W8A8 GEMV kernel: int8 weights times 8-bit activations with one scale per token, x ~ scale * (code - zero).
 *   y[i][r] = sum over k of w[r][k] * (code[i][k] - zero), an exact integer below 2^31, converted to float,
 * for i < n, r < rows. The caller applies the scales. cols is a multiple of 32 and at most W8A8_COLS. Nothing
 * after a row is read. */
enum { W8A8_COLS = 1 << 16 };
struct w8a8_dot {
    const uint8_t *w;
    int64_t row_bytes;
    int rows;
    int64_t cols;
    const uint8_t *code;
    int64_t code_stride;
    int n, zero;
    float *y;
    int64_t y_stride;
};
typedef void w8a8_dot_fn(const struct w8a8_dot *d);

/* The kernels of one format. They see blocks only: in a format with a row tail they work as if the row's
 * scale were 1, and the drivers multiply by it (format_row_scale of cpu.h). */
struct format_kernels {
    format_decode_fn *decode;    /* blocks to f32, same bits as the reference decode */
    dot_fn *dot_f32;             /* f32 activations, f32 (or better) sums */
    dot_fn *dot_q8;              /* NULL: the format has no product with 8-bit activations */
    unpack_bf16_fn *unpack_bf16; /* NULL: the GEMM kernel decodes and rounds */
    unpack_q8_fn *unpack_q8;     /* NULL: no integer GEMM */
    bool wide_q8;                /* the q8_kind.wide that unpack_q8 produces */
    int int8_from; /* rows from which integer GEMM is faster than dot_q8; 0: gemm_int8.min_rows */
    unpack_columns_fn *unpack_columns; /* NULL: gemm_columns cannot be used */
    bool sums16;                       /* dot_q8 reads q.sum16 */
    cached_rows_fn *row_scores;        /* both NULL: attention decodes the rows and uses those of f32 */
    cached_rows_fn *row_values;        /* (if these are NULL, too: dots and tile) */
    encode_rows_fn *encode;            /* NULL: FORMATS' encode, which ignores importance */
};

/* A family's kernels for one ISA are a table of these rows. NULL functions keep the kernel set before. */
struct format_row {
    enum format_id id;
    struct format_kernels k;
};

/* ---------------------------------------------------------------- per ISA */

/* Small f32 matrix product C[m][n] (+)= A[m][k] * B[k][n], all row-major, any m, n, k >= 0. f32 GEMM (A:
 * decoded weights, B: transposed activations) and both products of attention are built from it. */
struct tile {
    int m, n, k;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    bool add; /* C += instead of C = */
};
typedef void tile_fn(const struct tile *t);

/* A GEMM kernel multiplies packed operands. Weights are packed into panels of `panel_rows` rows by kc inputs,
 * activations into slivers of SLIVER tokens by kc inputs. `multiply` computes c[rows][SLIVER] of one panel
 * and one sliver. Each kernel defines its own layout inside panels and slivers. */
enum { SLIVER = 32, DEPTH_STEP = 32 /* packed operands are padded to a multiple of this, or of `depth` */ };

/* Pack <= 16 weight rows, k inputs from the start of a block, into one group of a panel. */
struct unpacking {
    const struct format *format;
    const struct format_kernels *f;
    const uint8_t *w;
    int64_t row_bytes;
    int rows, k;
    void *group;
    int32_t *sums; /* [16] output of W8A8 kernels: the sum of each row's codes */
};

/* Multiply one panel (or its first rows) by one sliver. */
struct gemm_step {
    const void *panel, *sliver;
    int rows, tokens, k;
    float *c;            /* [rows up to whole groups of 16][SLIVER], 64-byte aligned */
    int zero;            /* W8A8: the activation code of 0 */
    const int32_t *sums; /* [rows] as written by unpack */
};

/* Multiply at most `few_rows` weight rows by one sliver without packing a panel: the weights are unpacked
 * piece by piece into the first-level cache. The inputs are packed in chunks of few_depth, each chunk as a
 * sliver of its own, one after the other. */
struct few_product {
    struct unpacking u; /* rows <= few_rows, k <= kc; group: space for two chunks of weights */
    const void *sliver;
    int tokens;
    const uint8_t *next; /* [next_bytes] stored weights that a later call reads, to prefetch meanwhile */
    int64_t next_bytes;
    float *c; /* [few_rows][SLIVER] */
    int zero; /* as above */
};

struct gemm_kernel {
    const char *name;  /* "f32", "bf16_tile"; of int8 and bf16 kernels, the CEILINGS row that bounds them */
    int min_rows;      /* with fewer rows of activations, GEMV kernels are used instead */
    int min_rows_wide; /* the same for formats with 8-bit codes (wide_q8); 0: never use this kernel */
    int panel_rows;    /* multiple of 16 */
    int kc;            /* most inputs of a panel, multiple of 256 */
    int mc;            /* most rows of activations that are multiplied with a panel in one pass; of SLIVER */
    int depth;         /* operands are padded to a multiple of this many inputs; 0: DEPTH_STEP */
    int panel_step;    /* bytes of `depth` inputs of 16 weight rows in a panel */
    int sliver_step;   /* bytes of `depth` inputs of SLIVER tokens in a sliver */
    bool
        long_chunks; /* threads take equal shares instead of small chunks: rereading slivers would stall it */
    /* Called before and after a thread's calls of the functions below (AMX tile state); NULL: nothing to do.
     */
    void (*begin)(void);
    void (*end)(void);
    /* Pack k inputs of tokens <= SLIVER rows into one sliver. Missing tokens and padded inputs become 0. */
    void (*pack)(const float *x, int64_t x_stride, int tokens, int k, void *sliver);
    /* The same for 8-bit codes, rows `stride` apart; NULL: the kernel packs floats. */
    void (*pack_codes)(const uint8_t *code, int64_t stride, int tokens, int k, void *sliver);
    void (*unpack)(const struct unpacking *u);
    void (*multiply)(const struct gemm_step *p);
    /* Products with up to SLIVER tokens, without panels; NULL: they use panels, too. */
    void (*multiply_few)(const struct few_product *p);
    int few_rows, few_depth; /* multiples of 16 and 256 */
};

/* Store the results of one panel and sliver: y[t][r] = c[r][t] + residual[t][r] for t < tokens, r < rows. */
struct result_store {
    const float *c; /* [rows up to whole groups of 16][SLIVER], 64-byte aligned */
    int rows, tokens;
    const float *residual; /* NULL: none; may be y */
    float *y;
    int64_t stride;    /* of y and residual */
    const int32_t *to; /* NULL, or [tokens]: y[to[t]][r] += by[t] * c[r][t] instead; residual is NULL then */
    const float *by;   /* [tokens] */
    bool streaming;    /* y is too large to stay in cache until it is read: use non-temporal stores */
};

/* One step of attention on bf16 tiles: up to 32 queries of one KV head attend to a block of tokens, with the
 * online softmax. All operands are transposed, [token][query] and [dim][query], so that the softmax runs down
 * columns. A tile is 16 rows of 32 bf16, 1 KiB, 64-byte aligned. */
struct attend {
    const uint16_t *q;          /* from `pack`, already multiplied by the scale */
    const uint16_t *k;          /* [tokens / 16][depth] tiles of 16 tokens x 32 inputs (unpack_bf16) */
    const uint16_t *v;          /* [v_dim / 16][tokens / 32] tiles of 16 dims x 32 tokens (`transpose_v`) */
    int64_t v_stride;           /* elements of v from one group of 16 dims to the next */
    int depth, v_dim;           /* tiles of 32 inputs of K; dims of V, a multiple of 32 */
    int tokens, queries;        /* tokens a multiple of 32 */
    int position;               /* of the first token */
    const int32_t *first, *end; /* [32] query i attends to positions first[i]..end[i]-1 */
    bool masked;                /* false: all queries attend to all tokens; first and end are not read */
    const float *k_scale, *v_scale; /* [tokens] scale of each token's row; NULL: 1 */
    float softcap;                  /* 0: q.k is the score as an exponent of 2; else q.k = score / softcap */
    float *s;                       /* [tokens][32] scratch: scores */
    uint16_t *p;                    /* [tokens][32] scratch: softmax weights in bf16 */
    float *o;                       /* [v_dim][32] += softmax weights times V, relative to 2^peak */
    float *peak, *total; /* [32] largest score so far, log2 (-inf at first); sum of 2^(score - peak) */
};

struct attention_kernel {
    void (*begin)(void); /* before and after a thread's calls (AMX tile state) */
    void (*end)(void);
    /* Convert n <= 32 vectors of k floats, times `by`, to two runs of (k + 31) / 32 tiles, padded with 0. */
    void (*pack)(const float *const *x, int n, int k, float by, uint16_t *out);
    /* Convert rows of K or V of any format to tiles, as unpack_bf16. */
    void (*load)(const struct format *format, const struct format_kernels *f, const uint8_t *rows_of,
                 int64_t row_bytes, int rows, int64_t k, uint16_t *out);
    /* Transpose V of 32 tokens: from [tiles] tiles of 16 tokens x 32 dims in each of a and b to [2 * tiles]
     * tiles of 16 dims x 32 tokens, out_stride elements apart. */
    void (*transpose_v)(const uint16_t *a, const uint16_t *b, int tiles, uint16_t *out, int64_t out_stride);
    /* Run `count` groups of queries. Their o must differ, and so must s and p of neighbouring groups, because
     * the kernel overlaps them. NULL: this kernel set has no tiles. */
    void (*attend)(const struct attend *a, int count);
    /* y[i][0..v_dim) = column i of o[v_dim][32] times by[i], for i < n <= 32. by: [32]. */
    void (*unpack)(const float *o, const float *by, int n, int v_dim, float *const *y);
};

/* Operations on vectors of floats. They need no alignment and read nothing past the end. */
struct vector_kernels {
    void (*transpose)(const float *src, int64_t src_stride, int rows, int cols, float *dst,
                      int64_t dst_stride);               /* dst[c][r] = src[r][c] */
    void (*store_results)(const struct result_store *d); /* NULL: gemm.c uses transpose */
    /* n is a multiple of 32. A block with an infinity or NaN gets d = NaN: integers can represent neither,
     * and without this a damaged weight would yield plausible finite results. */
    void (*quantize_q8)(const float *x, int64_t n, int8_t *q, float *d, float *sum);
    void (*norm_rms)(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y);
    void (*norm_layer)(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y);
    float (*max)(const float *x, int64_t n);          /* n >= 1 */
    float (*exp_sum)(float *x, int64_t n, float max); /* x = exp(x - max), returns the sum */
    void (*scale)(float *x, int64_t n, float by);     /* x *= by */
    /* y[r] = dot(x, row r) for n rows of `cols` floats, `stride` apart. */
    void (*dots)(const float *rows, int64_t stride, int n, int64_t cols, const float *x, float *y);
    void (*softcap)(float *x, int64_t n, float cap); /* x = cap tanh(x / cap); infinities become NaN */
    /* sine = by * sin(x), cosine = by * cos(x); x in radians. */
    void (*sincos)(const float *x, int64_t n, float by, float *sine, float *cosine);
    /* Rotate `pairs` pairs in place: [0] pairs (2i, 2i + 1), [1] pairs (i, i + pairs). */
    void (*rotate[2])(float *x, int pairs, const float *sine, const float *cosine);
    /* x[block] = H x / sqrt(block), in place; every ISA yields the bits of the reference. */
    void (*hadamard)(float *x, int block);
    void (*activate[ACT_COUNT])(const float *gate, const float *up, int64_t n, float *y); /* up may be NULL */
};

/* Parameters of quantization to 8-bit codes: clamp(zero + rne(x / by), 0, 255), or, when `by` is 0,
 * clamp(zero + rne(x * reciprocal), 0, 255). rne: round to nearest even. */
struct u8_scale {
    float by, reciprocal; /* reciprocal is 1 / by when `by` is not 0 */
    int zero;
};

/* A float format with fewer bits than binary32. It lacks the lowest `drop` of the 23 mantissa bits. Below
 * `normal` (its smallest normal number) its numbers are multiples of one unit; adding and subtracting
 * `magic`, around which binary32 numbers have that spacing, rounds to it. Larger magnitudes become `largest`.
 */
struct small_float {
    int drop;
    float normal, magic, largest;
};

/* Apply scales and biases to the results of a panel and a sliver: c[r][t] = c[r][t] * by[t] * scale[r] +
 * add[r]. by: scales of tokens; scale: scales of weight rows; add: biases. */
struct adjustment {
    float *c; /* [rows][SLIVER] */
    int rows;
    const float *by, *scale, *add; /* [SLIVER], [rows], [rows] */
};

/* Some rows of one head of a recurrence (recurrent.h), all of one sequence, in order. With M the state before
 * a row and N the state after it: add = by * (v - decay * M^T k) if delta, else by * v N = decay * M + k
 * add^T o = N^T q */
struct recurrence_step {
    bool delta;
    int rows, key_dim, value_dim;
    const float *k, *q; /* [rows][key_dim], key_stride apart */
    int64_t key_stride;
    const float *v; /* [rows][value_dim] */
    int64_t v_stride;
    const float *decay, *by; /* [rows] */
    float *state;            /* key_dim * value_dim floats in the kernel's own order; all 0 at first */
    float *o;                /* [rows][value_dim], o_stride apart */
    int64_t o_stride;
};

/* One row of a convolution: out[c] = bias[c] + sum over t of w[t][c] * u[t][c]. */
struct convolution_step {
    int taps;
    int64_t channels, w_stride;
    const float *w, *bias; /* bias may be NULL */
    const float *const *u; /* [taps] */
    float *out;            /* none of u */
};

struct recurrent_kernels {
    void (*recur)(const struct recurrence_step *p);
    void (*convolve)(const struct convolution_step *p);
};

/* Activation quantization (kernels/inputs.c). Every ISA produces the same bits. */
struct rounding_kernels {
    float (*largest)(const float *x, int64_t n); /* largest |x|; NaN if x contains one */
    void (*quantize_u8)(const float *x, int64_t n, const struct u8_scale *s, uint8_t *code);
    /* y = x / by, rounded to the numbers of k */
    void (*round)(const float *x, int64_t n, float by, const struct small_float *k, float *y);
    void (*adjust)(const struct adjustment *a);
};

struct kernel_set {
    uint32_t isa; /* bits whose kernels are in use */
    struct format_kernels format[FORMAT_COUNT];
    tile_fn *tile;
    struct vector_kernels vec;
    struct recurrent_kernels recurrent;
    struct gemm_kernel gemm_f32;
    struct gemm_kernel gemm_high; /* three products of bf16 parts; multiply NULL: use gemm_f32 */
    struct gemm_kernel gemm_bf16; /* multiply NULL: none in this kernel set */
    bool bf16_beats_int8;         /* gemm_bf16 is faster than gemm_int8 */
    struct gemm_kernel gemm_int8; /* for formats with unpack_q8; multiply NULL: none */
    /* As gemm_int8, with the same bits, for up to SLIVER rows and formats with unpack_columns; it has
     * multiply_few only. min_rows 0: none. */
    struct gemm_kernel gemm_columns;
    struct rounding_kernels rounding;
    w8a8_dot_fn *w8a8_dot;
    struct gemm_kernel gemm_w8a8; /* multiply NULL: w8a8_dot at any number of rows */
    struct attention_kernel attend;
};

/* Encode with the kernels of set k. */
void encode_with(const struct kernel_set *k, const struct format *f, const struct encode *e);

/* The best kernels for these ISA bits. Returned by value, so that a test can compare two sets. */
struct kernel_set kernels_select(uint32_t usable);

/* Whether to leave out software prefetches of float weights on this CPU. The hardware prefetcher of AMD Zen 3
 * and Zen 4 follows a plain stream across pages, so software prefetches only cost time: without them float
 * weights are read up to 1.3 times as fast (SPEED.md). Block formats need them everywhere. Executes CPUID,
 * which is slow in a virtual machine: call it once per backend. */
bool kernels_skip_prefetch(void);

/* The innermost loop of a row of CEILINGS: runs `rounds` rounds and returns the number of operations. NULL
 * when this build has no code for it. */
typedef double ceiling_fn(int64_t rounds);
ceiling_fn *kernels_ceiling(const struct ceiling *c);

#endif
