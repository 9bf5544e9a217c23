/* kernels/kernel_set.h - what a format and an instruction set supply, inside kernels/ only.
 *
 * A kernel set is a struct of functions chosen once (select.c): the reference in every place, then whatever
 * the usable ISA bits allow written over it. Drivers (gemv.c, gemm.c, attention.c, ops.c) know shapes,
 * blocking and threads but no ISA and no format; kernels know one ISA and one format but nothing else. */
#ifndef QDYNO_KERNELS_KERNEL_SET_H
#define QDYNO_KERNELS_KERNEL_SET_H

#include "kernels/kernels.h"

/* ---------------------------------------------------------------- per format */

enum {
    DOT_X = 4,       /* rows of activations a dot takes at once */
    Q8_BLOCK = 32,   /* activations of one 8-bit block */
    TILE_ROWS = 16,  /* weight rows of an AMX tile */
    TILE_DEPTH = 32, /* bf16 inputs of an AMX tile row */
};

/* Activations in 8 bits: x[i] ~ d[i / 32] * q[i]. sum[b] = d[b] * (sum of the block's q), which turns an
 * offset of the weights (codes 0..15 that mean -8..7) into one multiply-add a block. Rows q_stride, d_stride
 * apart. */
struct act_q8 {
    int8_t *q;
    float *d, *sum;
    float *sum16; /* as sum, of every 16; rows 2 * d_stride apart */
    int64_t q_stride, d_stride;
};

/* sum16 of n activations (a multiple of 32) from their q and d. */
static inline void q8_sums16(const int8_t *q, const float *d, int64_t n, float *sum16)
{
    for (int64_t i = 0; i < n; i += 16) {
        int total = 0;
        for (int j = 0; j < 16; j++) total += q[i + j];
        sum16[i / 16] = d[i / Q8_BLOCK] * (float)total;
    }
}

/* y[i][r] = dot(x row i, weight row r) for i < n <= DOT_X, r < rows. Weight rows lie row_bytes apart, any
 * alignment, and nothing behind a row is read. dot_f32 reads x, dot_q8 reads q (cols a multiple of 32). */
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
    bool hands_off; /* weights that are floats are not asked for ahead (kernels_hands_off) */
};
typedef void dot_fn(const struct dot *d);

/* Weights to bf16 (to nearest even), tile by tile: tile t holds inputs 32t..32t+31 of 16 weight rows, 64
 * bytes a row, 1024 bytes a tile. Of these, `rows` rows are written, from `out` (any row of tile 0, 64-byte
 * aligned) on, the others left alone; inputs up to 32 that do not exist become 0. `w` points at the first
 * wanted input of the first row; k inputs (a multiple of the block). */
typedef void unpack_bf16_fn(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out);

/* 32 inputs of TILE_ROWS weight rows as small integers:
 *   weight = scale[i / sub] * (code - bias) + min[i / sub]          (min only with has_min, i: input 0..31)
 * |code - bias| <= 512 / sub where not wide: 16-bit sums of half a block's products cannot overflow. `kind`
 * is read from the first of a run. */
struct q8_group {
    uint8_t code[TILE_ROWS][Q8_BLOCK];
    float scale[2][TILE_ROWS], min[2][TILE_ROWS];
    struct q8_kind {
        int sub;  /* weights under one scale: 16 or 32 */
        int bias; /* what codes are too large by; a multiple of 16 when wide */
        bool has_min;
        bool wide; /* codes use all 8 bits */
    } kind;
    uint8_t unused[52];
    uint8_t high[TILE_ROWS][Q8_BLOCK]; /* left to the kernel, which may split wide codes */
};
_Static_assert(sizeof(struct q8_group) == 1344, "whole cache lines");

/* k inputs (a multiple of the block) of `rows` <= 16 weight rows to k / 32 groups. Rows that do not exist get
 * codes and scales of 0. */
typedef void unpack_q8_fn(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, struct q8_group *out);

/* rows x cols weights, row after row, to rows of blocks (format_row_bytes apart, tails included). Bytes are
 * the reference encoder's on every ISA. */
struct encode {
    const float *x;
    const float *importance; /* [cols] >= 0, what an error in a column counts; NULL: none given */
    uint8_t *out;
    int64_t rows, cols;
};
typedef void encode_rows_fn(const struct encode *e);

/* Activations of 8 bits under one scale a token, x ~ scale * (code - zero), meet int8 weights:
 *   y[i][r] = sum of w[r][k] * (code[i][k] - zero), an exact integer below 2^31, then a float
 * for i < n, r < rows; cols a multiple of 32 and at most W8A8_COLS. Nothing behind a row is read. */
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

/* Kernels see blocks only: in a format with a row tail they give codes as if the tail's scale were 1, from
 * any block of a row on, and the drivers multiply (format_row_scale of backend.h). */
struct format_kernels {
    format_decode_fn *decode;    /* blocks to f32, same bits as the reference decode */
    dot_fn *dot_f32;             /* f32 activations, f32 (or better) sums */
    dot_fn *dot_q8;              /* NULL: the format has none (16 and 32-bit floats) */
    unpack_bf16_fn *unpack_bf16; /* NULL: decode, then round (the scheme does it) */
    unpack_q8_fn *unpack_q8;     /* NULL: no integer matrix product */
    bool wide_q8;                /* its kind.wide */
    bool sums16;                 /* dot_q8 reads q.sum16 */
    encode_rows_fn *encode;      /* NULL: FORMATS' encode, which knows no importance */
};

/* A family's kernels of one ISA are a table of these; NULL functions leave what was there. */
struct format_row {
    enum format_id id;
    struct format_kernels k;
};

/* ---------------------------------------------------------------- per ISA */

/* C[m][n] (+)= A[m][k] * B[k][n], all row-major f32. Any m, n, k >= 0. The shape behind prompt matrix
 * products (A: decoded weights, B: transposed activations) and both halves of attention. */
struct tile {
    int m, n, k;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    bool add; /* C += instead of C = */
};
typedef void tile_fn(const struct tile *t);

/* One way of multiplying matrices. Weights become panels of `panel_rows` rows by kc inputs, activations
 * slivers of SLIVER tokens by kc inputs; multiply makes c[rows][SLIVER] of one panel and one sliver. What is
 * inside a panel or a sliver is the scheme's own business. */
enum { SLIVER = 32, DEPTH_STEP = 32 /* inputs to which operands are padded, unless the scheme says more */ };

/* <= 16 weight rows, k inputs from a block's start, into one group of a panel. */
struct unpacking {
    const struct format *format;
    const struct format_kernels *f;
    const uint8_t *w;
    int64_t row_bytes;
    int rows, k;
    void *group;
    int32_t *sums; /* [16] of the codes of each row: schemes of 8-bit codes write them */
};

/* One panel or a part of it meets one sliver. */
struct gemm_step {
    const void *panel, *sliver;
    int rows, tokens, k;
    float *c;            /* [rows up to whole groups of 16][SLIVER], 64-byte aligned */
    int zero;            /* the code of 0; of 8-bit codes */
    const int32_t *sums; /* [rows] as unpacked */
};

/* At most `few_rows` weight rows with all their inputs meet one sliver: weights go through the first cache
 * and leave no panel behind. Inputs lie in chunks of few_depth, each packed as a sliver of its own, one
 * behind the other. */
struct few_product {
    struct unpacking u; /* rows <= few_rows, k: all inputs; group: two chunks of weights */
    const void *sliver;
    int tokens;
    float *c; /* [few_rows][SLIVER] */
    int zero; /* as above */
};

struct gemm_kernel {
    const char *name;  /* "f32", "bf16_tile" */
    int min_rows;      /* fewer rows of activations than this are dotted from the stored bytes instead */
    int min_rows_wide; /* the same of formats with codes of 8 bits (wide_q8); 0: never */
    int panel_rows;    /* multiple of 16 */
    int kc;            /* inputs a panel holds at most, multiple of 256 */
    int mc;            /* rows of activations for which a panel is kept, multiple of SLIVER */
    int depth;         /* inputs to which operands are padded; 0: DEPTH_STEP */
    int panel_step;    /* bytes that `depth` inputs take of 16 weight rows */
    int sliver_step;   /* and of SLIVER tokens */
    bool long_lots;    /* so fast that slivers from the third cache are waited for (supposed) */
    /* Around a thread's calls of the others (tile state); NULL: nothing to do. */
    void (*begin)(void);
    void (*end)(void);
    /* tokens <= SLIVER rows of k inputs into one sliver; missing tokens (and inputs up to a step) become 0.
     */
    void (*pack)(const float *x, int64_t x_stride, int tokens, int k, void *sliver);
    /* The same of 8-bit codes, `stride` apart; NULL: the scheme takes floats. */
    void (*pack_codes)(const uint8_t *code, int64_t stride, int tokens, int k, void *sliver);
    void (*unpack)(const struct unpacking *u);
    void (*multiply)(const struct gemm_step *p);
    /* Up to SLIVER tokens without panels; NULL: they are treated like more. */
    void (*multiply_few)(const struct few_product *p);
    int few_rows, few_depth; /* multiples of 16 and 256 */
};

/* Products to where they belong: y[t][r] = c[r][t] + residual[t][r], t < tokens, r < rows. */
struct delivery {
    const float *c; /* [rows up to whole groups of 16][SLIVER], 64-byte aligned */
    int rows, tokens;
    const float *residual; /* NULL: none; may be y */
    float *y;
    int64_t stride; /* of y and residual */
    bool far;       /* y is too large to be in cache when it is read again: write past the caches */
};

/* One step of attention on bf16 tiles: up to 32 queries of one KV head meet a block of tokens. Everything is
 * turned on its side, [token][query] and [dim][query]; a tile is 16 rows of 32 bf16, 1 KiB, 64-byte aligned.
 */
struct attend {
    const uint16_t *q;              /* as `pack` made it, times the scale */
    const uint16_t *k;              /* [tokens / 16][depth] tiles of 16 tokens x 32 inputs (unpack_bf16) */
    const uint16_t *v;              /* [v_dim / 16][tokens / 32] tiles of 16 dims x 32 tokens (`turn`) */
    int64_t v_stride;               /* weights from one 16 dims to the next */
    int depth, v_dim;               /* tiles of 32 inputs of K; dims of V, a multiple of 32 */
    int tokens, queries;            /* tokens a multiple of 32 */
    int position;                   /* of the first token */
    const int32_t *first, *end;     /* [32] query i sees positions first[i]..end[i]-1 */
    bool masked;                    /* false: all see all, first and end do not matter */
    const float *k_scale, *v_scale; /* [tokens] what a token's codes are multiplied by; NULL: 1 */
    float softcap;                  /* 0: q.k is a power of 2; else it is score / softcap */
    float *s;                       /* [tokens][32] scratch */
    uint16_t *p;                    /* [tokens][32] scratch */
    float *o;                       /* [v_dim][32] += weights times V */
    float *peak, *total; /* [32] in powers of 2: what o and total are relative to (-inf before the first) */
};

struct attention_kernel {
    void (*begin)(void); /* around a thread's calls (tile state) */
    void (*end)(void);
    /* n <= 32 vectors of k floats, times `by`, to two runs of (k + 31) / 32 tiles; what is missing becomes 0.
     */
    void (*pack)(const float *const *x, int n, int k, float by, uint16_t *out);
    /* Rows of K or V to tiles, as unpack_bf16, of any format. */
    void (*load)(const struct format *format, const struct format_kernels *f, const uint8_t *rows_of,
                 int64_t row_bytes, int rows, int64_t k, uint16_t *out);
    /* V of 32 tokens, [tiles] tiles of 16 tokens x 32 dims each in a and b, to [2 tiles] tiles of 16 dims x
     * 32 tokens, out_stride weights apart. */
    void (*turn)(const uint16_t *a, const uint16_t *b, int tiles, uint16_t *out, int64_t out_stride);
    /* `count` groups of queries, one after another: s and p of neighbours differ, all o do. NULL: none on
     * these ISA bits. */
    void (*attend)(const struct attend *a, int count);
    /* y[i][v_dim] = o[v_dim][32] column i times by[i], i < n <= 32. by: [32]. */
    void (*unpack)(const float *o, const float *by, int n, int v_dim, float *const *y);
};

/* Plain vectors. None needs alignment, none reads past its end. */
struct vector_kernels {
    void (*transpose)(const float *src, int64_t src_stride, int rows, int cols, float *dst,
                      int64_t dst_stride);     /* dst[c][r] = src[r][c] */
    void (*deliver)(const struct delivery *d); /* NULL: gemm.c's own, by transpose */
    /* n a multiple of 32. A block with an infinity or NaN gets d = NaN: integers cannot carry either, and
     * without this a damaged weight would yield plausible finite results. */
    void (*quantize_q8)(const float *x, int64_t n, int8_t *q, float *d, float *sum);
    void (*norm_rms)(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y);
    void (*norm_layer)(const float *x, const float *w, const float *bias, int64_t n, float eps, float *y);
    float (*max)(const float *x, int64_t n);          /* n >= 1 */
    float (*exp_sum)(float *x, int64_t n, float max); /* x = exp(x - max), returns the sum */
    void (*scale)(float *x, int64_t n, float by);     /* x *= by */
    /* y[r] = x . row r of n rows of `cols`, `stride` apart. */
    void (*dots)(const float *rows, int64_t stride, int n, int64_t cols, const float *x, float *y);
    void (*softcap)(float *x, int64_t n, float cap); /* x = cap tanh(x / cap); infinities become NaN */
    /* by * sin x and by * cos x, in radians. */
    void (*sincos)(const float *x, int64_t n, float by, float *sine, float *cosine);
    /* Turn `pairs` pairs in place: [0] neighbours (2i, 2i + 1), [1] halves (i, i + pairs). */
    void (*rotate[2])(float *x, int pairs, const float *sine, const float *cosine);
    void (*activate[ACT_RELU + 1])(const float *gate, const float *up, int64_t n,
                                   float *y); /* up may be NULL */
};

/* What 8-bit codes of floats are made by: clamp(zero + rne(x / by), 0, 255), or by 0: x * reciprocal. */
struct u8_scale {
    float by, reciprocal; /* 1 / by, where by is not 0 */
    int zero;
};

/* Floats of fewer bits: `drop` of 23 bits of mantissa are missing, below `normal` numbers are whole multiples
 * of a unit, which is that of the binary32 numbers around `magic`; nothing beyond `largest`. */
struct small_float {
    int drop;
    float normal, magic, largest;
};

/* A panel's results with a sliver to what they stand for: c[r][t] = c[r][t] * by[t] * scale[r] + add[r]. */
struct adjustment {
    float *c; /* [rows][SLIVER] */
    int rows;
    const float *by, *scale, *add; /* [SLIVER], [rows], [rows] */
};

/* Activations to numbers of fewer bits, and results back (kernels/inputs.c). Same bits on every ISA. */
struct rounding_kernels {
    float (*largest)(const float *x, int64_t n); /* of |x|; NaN where one is */
    void (*quantize_u8)(const float *x, int64_t n, const struct u8_scale *s, uint8_t *code);
    void (*round)(const float *x, int64_t n, float by, const struct small_float *k, float *y); /* of x / by */
    void (*adjust)(const struct adjustment *a);
};

struct kernel_set {
    uint32_t isa; /* bits whose kernels are in use */
    struct format_kernels format[FORMAT_COUNT];
    tile_fn *tile;
    struct vector_kernels vec;
    struct gemm_kernel gemm_f32;
    struct gemm_kernel gemm_high; /* three products of bf16 halves; multiply NULL: gemm_f32 */
    struct gemm_kernel gemm_bf16; /* multiply NULL: none on these ISA bits */
    struct gemm_kernel gemm_int8; /* the same; for formats with unpack_q8 */
    struct rounding_kernels rounding;
    w8a8_dot_fn *w8a8_dot;
    struct gemm_kernel gemm_w8a8; /* multiply NULL: dots, at any number of rows */
    struct attention_kernel attend;
};

/* Encoding by the kernels of a set. */
void encode_with(const struct kernel_set *k, const struct format *f, const struct encode *e);

/* By value, so that a test can hold two sets and compare them. */
struct kernel_set kernels_select(uint32_t usable);

/* Some processors follow a plain stream across pages by themselves, and asking ahead of it only costs:
 * weights that are floats come a quarter faster without (SPEED.md). Those of blocks do not. Asks the
 * processor, which a virtual machine makes slow: once a backend. */
bool kernels_hands_off(void);

/* The innermost loop behind a row of CEILINGS: runs `rounds` rounds, returns the operations done. NULL when
 * this build has no code for it. */
typedef double ceiling_fn(int64_t rounds);
ceiling_fn *kernels_ceiling(const struct ceiling *c);

#endif
