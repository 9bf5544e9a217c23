/* Integer GEMM with 1 to 32 tokens, AVX-512 VNNI. Vector lanes are weight rows: stored weights are
 * transposed into q8_columns piece by piece, and every vector of four inputs of 16 rows is multiplied with
 * four inputs of each token, broadcast from memory. So no lane is idle, however few tokens there are, and 32
 * weight rows share a broadcast.
 *
 * A result has the same bits as with packed panels (gemm_int8_avx512vnni.c): the operations of a lane and
 * their order are the same. */
#include "kernels/cpu.h"
#include "kernels/isa/gemm/columns_avx512.h"
#include "kernels/isa/gemm/gemm_int8.h"
#include "kernels/isa/isa_kernels.h"

enum {
    LANES = 16,
    ROWS = 2 * LANES, /* weight rows that share a broadcast */
    PIECE_BLOCKS = Q8_PIECE / Q8_BLOCK,
    UNPACK_COST = 6, /* time to unpack, in units of the time to multiply with one token */
    MOST_TOKENS = 6, /* whose sums fit the registers */
};

/* 32 inputs of up to 32 tokens, token after token. */
struct few_sliver {
    int8_t q[SLIVER][Q8_BLOCK];
    float d[SLIVER];
    int32_t sums[2][SLIVER]; /* of q, in the first and the second half of the block */
};

/* Terms that depend on the token but not on the row: the start of integer sums, and the factor of minima. */
struct token_terms {
    int32_t start[2][SLIVER];
    float sum[2][SLIVER];
};

/* Constants of one kernel; halves: number of scales in a block of 32. */
struct shape {
    int tokens, halves;
    bool has_min;
};

/* 32 weight rows and up to Q8_PIECE inputs. */
struct piece {
    const struct q8_columns *w[2];
    const struct few_sliver *x;
    const struct token_terms *terms;
    int blocks, tokens;
    float (*sum)[ROWS];    /* [tokens] */
    struct prefetch ahead; /* with every block and group of tokens */
};

static void block_sums(const int8_t *q, int32_t *first, int32_t *second)
{
    const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1),
                                             _mm256_loadu_si256((const __m256i *)q));
    __m128i low = _mm256_castsi256_si128(sums), high = _mm256_extracti128_si256(sums, 1);
    low = _mm_hadd_epi32(low, high);
    low = _mm_hadd_epi32(low, low);
    *first = _mm_cvtsi128_si32(low), *second = _mm_extract_epi32(low, 1);
}

static void pack(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    int8_t q[INT8_CHUNK];
    float d[INT8_CHUNK_BLOCKS], sum[INT8_CHUNK_BLOCKS];
    for (int i = 0; i < k; i += INT8_CHUNK) {
        const int some = MIN(k - i, (int)INT8_CHUNK);
        struct few_sliver *out = (struct few_sliver *)sliver + i / Q8_BLOCK;
        for (int t = 0; t < tokens; t++) {
            VECTORS_AVX512.quantize_q8(x + t * x_stride + i, some, q, d, sum);
            for (int b = 0; b < some / Q8_BLOCK; b++) {
                memcpy(out[b].q[t], q + b * Q8_BLOCK, Q8_BLOCK);
                out[b].d[t] = d[b];
                block_sums(q + b * Q8_BLOCK, &out[b].sums[0][t], &out[b].sums[1][t]);
            }
        }
    }
}

static void find_terms(const struct few_sliver *x, int blocks, int tokens, const struct q8_kind *kind,
                       struct token_terms *terms)
{
    const __m512i by = _mm512_set1_epi32(-kind->bias);
    for (int b = 0; b < blocks; b++, x++, terms++) {
        for (int t = 0; t < tokens; t += LANES) {
            const __mmask16 lanes = first_lanes(tokens - t);
            const __m512 d = _mm512_maskz_loadu_ps(lanes, x->d + t);
            __m512i sum[2] = { _mm512_maskz_loadu_epi32(lanes, x->sums[0] + t),
                               _mm512_maskz_loadu_epi32(lanes, x->sums[1] + t) };
            if (kind->sub == 32) sum[0] = _mm512_add_epi32(sum[0], sum[1]);
            for (int h = 0; h < 32 / kind->sub; h++) {
                _mm512_storeu_si512(terms->start[h] + t, _mm512_mullo_epi32(sum[h], by));
                if (!kind->has_min) continue;
                _mm512_storeu_ps(terms->sum[h] + t, _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum[h])));
            }
        }
    }
}

ALWAYS_INLINE __m512i four_inputs(const int8_t *q)
{
    int four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Add the products of one block of 32 inputs to the sums of s.tokens tokens from t0 on. */
ALWAYS_INLINE void block_add(const struct q8_columns *const w[2], const struct few_sliver *x,
                             const struct token_terms *terms, int t0, const struct shape s, __m512 sum[][2])
{
    const int steps = Q8_BLOCK / 4 / s.halves;
    __m512 scaled[MOST_TOKENS][2];
#pragma GCC unroll 2
    for (int h = 0; h < s.halves; h++) {
        __m512i dots[MOST_TOKENS][2];
#pragma GCC unroll 6
        for (int t = 0; t < s.tokens; t++)
            dots[t][0] = dots[t][1] = _mm512_set1_epi32(terms->start[h][t0 + t]);
#pragma GCC unroll 8
        for (int i = h * steps; i < (h + 1) * steps; i++) {
            const __m512i a = _mm512_load_si512(w[0]->code[i]), b = _mm512_load_si512(w[1]->code[i]);
#pragma GCC unroll 6
            for (int t = 0; t < s.tokens; t++) {
                const __m512i q = four_inputs(x->q[t0 + t] + 4 * i);
                dots[t][0] = _mm512_dpbusd_epi32(dots[t][0], a, q);
                dots[t][1] = _mm512_dpbusd_epi32(dots[t][1], b, q);
            }
        }
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            const __m512 scale = _mm512_load_ps(w[v]->scale[h]);
#pragma GCC unroll 6
            for (int t = 0; t < s.tokens; t++) {
                const __m512 f = _mm512_cvtepi32_ps(dots[t][v]);
                scaled[t][v] = h ? _mm512_fmadd_ps(f, scale, scaled[t][v]) : _mm512_mul_ps(f, scale);
            }
        }
    }
#pragma GCC unroll 6
    for (int t = 0; t < s.tokens; t++) {
        const __m512 d = _mm512_set1_ps(x->d[t0 + t]);
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) sum[t][v] = _mm512_fmadd_ps(scaled[t][v], d, sum[t][v]);
    }
    if (!s.has_min) return;
#pragma GCC unroll 2
    for (int h = 0; h < s.halves; h++) {
#pragma GCC unroll 6
        for (int t = 0; t < s.tokens; t++) {
            const __m512 by = _mm512_set1_ps(terms->sum[h][t0 + t]);
#pragma GCC unroll 2
            for (int v = 0; v < 2; v++)
                sum[t][v] = _mm512_fmadd_ps(_mm512_load_ps(w[v]->min[h]), by, sum[t][v]);
        }
    }
}

ALWAYS_INLINE void tokens_multiply(const struct piece *p, int t0, const struct shape s)
{
    const struct q8_columns *w[2] = { p->w[0], p->w[1] };
    const struct few_sliver *x = p->x;
    const struct token_terms *terms = p->terms;
    struct prefetch ahead = p->ahead;
    __m512 sum[MOST_TOKENS][2];
#pragma GCC unroll 6
    for (int t = 0; t < s.tokens; t++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) sum[t][v] = _mm512_loadu_ps(p->sum[t0 + t] + LANES * v);
    for (int b = 0; b < p->blocks; b++, w[0]++, w[1]++, x++, terms++) {
        prefetch_step(&ahead);
        block_add(w, x, terms, t0, s, sum);
    }
#pragma GCC unroll 6
    for (int t = 0; t < s.tokens; t++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) _mm512_storeu_ps(p->sum[t0 + t] + LANES * v, sum[t][v]);
}

typedef void tokens_fn(const struct piece *p, int t0);

#define KERNEL(T, H, M)                                                                                      \
    static void tokens_##T##_##H##_##M(const struct piece *p, int t0)                                        \
    {                                                                                                        \
        tokens_multiply(p, t0, (struct shape){ .tokens = T, .halves = H, .has_min = M });                    \
    }
#define KERNELS(T) KERNEL(T, 1, 0) KERNEL(T, 1, 1) KERNEL(T, 2, 0) KERNEL(T, 2, 1)
KERNELS(1)
KERNELS(2)
KERNELS(3)
KERNELS(4)
KERNELS(5)
KERNELS(6)

static tokens_fn *kernel_for(int tokens, const struct q8_kind *kind)
{
#define ROW(T)                                                                                               \
    {                                                                                                        \
        { tokens_##T##_1_0, tokens_##T##_1_1 },                                                              \
        {                                                                                                    \
            tokens_##T##_2_0, tokens_##T##_2_1                                                               \
        }                                                                                                    \
    }
    static tokens_fn *const KERNEL[MOST_TOKENS][2][2] = { ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6) };
#undef ROW
    return KERNEL[tokens - 1][kind->sub == 16][kind->has_min];
}

/* Multiply a piece with all tokens, in groups of about equal size. */
static void piece_multiply(struct piece *p, const struct q8_kind *kind, int64_t next_bytes)
{
    const int groups = (p->tokens + MOST_TOKENS - 1) / MOST_TOKENS;
    p->ahead.step = next_bytes / (groups * p->blocks);
    for (int g = 0, t = 0; g < groups; g++) {
        const int tokens = p->tokens * (g + 1) / groups - t;
        kernel_for(tokens, kind)(p, t);
        p->ahead.next += p->ahead.step * p->blocks;
        t += tokens;
    }
}

/* ---------------------------------------------------------------- weights */

/* Unpack `rows` <= 16 rows. Missing ones get any codes and scales, and their results are not used. */
static struct q8_kind columns_unpack(const struct unpacking *u, const uint8_t *w, int rows, int k,
                                     struct q8_columns *out, struct prefetch *ahead)
{
    enum { MOST_BYTES = Q8_PIECE * 3 / 2 };
    if (rows == TILE_ROWS) return u->f->unpack_columns(w, u->row_bytes, k, out, ahead);
    uint8_t all[TILE_ROWS][MOST_BYTES];
    const int64_t bytes = format_span_bytes(u->format, k);
    memset(all, 0, sizeof all);
    for (int r = 0; r < rows; r++) memcpy(all[r], w + r * u->row_bytes, (size_t)bytes);
    return u->f->unpack_columns(all[0], MOST_BYTES, k, out, ahead);
}

/* c[row][token] = sum[token][row] */
static void results_store(float (*sum)[ROWS], int tokens, float *c)
{
    for (int v = 0; v < ROWS; v += LANES) {
        for (int t = 0; t < tokens; t += LANES) {
            __m512i lanes[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) lanes[i] = _mm512_loadu_si512(sum[t + i] + v);
            transpose_16x16(lanes);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) _mm512_storeu_si512(c + (v + i) * SLIVER + t, lanes[i]);
        }
    }
}

/* Multiply up to Q8_PIECE inputs, from k on, and add the products to sum[token][row]. */
static void piece_run(const struct few_product *p, int k, float (*sum)[ROWS])
{
    struct q8_columns(*columns)[PIECE_BLOCKS] = p->u.group;
    struct token_terms terms[PIECE_BLOCKS];
    const struct unpacking *u = &p->u;
    const int first = MIN(u->rows, (int)TILE_ROWS), second = u->rows - first;
    const int some = MIN(u->k - k, (int)Q8_PIECE);
    const uint8_t *w = u->w + format_span_bytes(u->format, k);
    const int64_t bytes = p->next_bytes * some / u->k;
    const int64_t unpack_bytes = bytes * UNPACK_COST / (UNPACK_COST + p->tokens);
    struct prefetch ahead = { .next = p->next + p->next_bytes * k / u->k,
                              .step = unpack_bytes * Q8_BLOCK / (some * (second ? 2 : 1)) };
    const struct q8_kind kind = columns_unpack(u, w, first, some, columns[0], &ahead);
    if (second) columns_unpack(u, w + TILE_ROWS * u->row_bytes, second, some, columns[1], &ahead);
    struct piece piece = { .w = { columns[0], columns[second ? 1 : 0] },
                           .x = (const struct few_sliver *)p->sliver + k / Q8_BLOCK,
                           .terms = terms,
                           .blocks = some / Q8_BLOCK,
                           .tokens = p->tokens,
                           .sum = sum,
                           .ahead = ahead };
    find_terms(piece.x, piece.blocks, p->tokens, &kind, terms);
    piece_multiply(&piece, &kind, bytes - unpack_bytes);
}

/* Inputs are added up in chunks of INT8_CHUNK, as with packed panels. */
static void multiply_few(const struct few_product *p)
{
    float sum[SLIVER][ROWS], total[SLIVER][ROWS];
    const size_t used = (size_t)round_up(p->tokens, LANES) * sizeof *sum;
    memset(total, 0, used);
    for (int k = 0; k < p->u.k; k += INT8_CHUNK) {
        memset(sum, 0, used);
        for (int i = k; i < MIN(p->u.k, k + (int)INT8_CHUNK); i += Q8_PIECE) piece_run(p, i, sum);
        for (int t = 0; t < p->tokens; t++)
            for (int r = 0; r < ROWS; r++) total[t][r] = k ? total[t][r] + sum[t][r] : sum[t][r];
    }
    results_store(total, p->tokens, p->c);
}

/* From 5 rows on it is faster than dot products. Panels are never used: matmul_scheme chooses this kernel for
 * up to SLIVER rows only. */
const struct gemm_kernel GEMM_COLUMNS_AVX512VNNI = { .name = "int8_dot",
                                                     .min_rows = 5,
                                                     .panel_rows = ROWS,
                                                     .kc = INT8_KC,
                                                     .mc = INT8_MC,
                                                     .panel_step = sizeof(struct q8_columns),
                                                     .sliver_step = sizeof(struct few_sliver),
                                                     .pack = pack,
                                                     .multiply_few = multiply_few,
                                                     .few_rows = ROWS,
                                                     .few_depth = INT8_CHUNK };
