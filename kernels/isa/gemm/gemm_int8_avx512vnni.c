/* Integer GEMM with AVX-512 VNNI. Codes of weights are the unsigned operand of vpdpbusd, activations the
 * signed one. Sums start at minus bias times the sum of the activations, so a bias costs nothing per row. */
#include "kernels/isa/avx512.h"
#include "kernels/isa/gemm/gemm_int8.h"
#include "kernels/isa/isa_kernels.h"

enum { LANES = 16, VECTOR = 64 };

/* Terms that depend on the lane but not on the row: the start of integer sums, and the factor of minima. */
struct lane_terms {
    int32_t start[2][SLIVER];
    float sum[2][SLIVER];
};

/* Constants of one kernel; halves: number of scales in a block of 32. */
struct shape {
    int rows, vectors, halves;
    bool has_min;
};

/* Transpose 16 tokens x 32 bytes to 8 vectors with four bytes of each token: two 8 x 8 transposes side by
 * side, tokens 8 to 15 in the upper halves. */
static void turn_16_tokens(const int8_t (*rows)[INT8_CHUNK], int8_t *out, int step)
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    __m512i r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)rows[i]);
        r[i] = _mm512_inserti64x4(_mm512_castsi256_si512(a), _mm256_loadu_si256((const __m256i *)rows[i + 8]),
                                  1);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(out + i * step, _mm512_permutex2var_epi64(r[i], low, r[i + 4]));
        _mm512_storeu_si512(out + (i + 4) * step, _mm512_permutex2var_epi64(r[i], high, r[i + 4]));
    }
}

/* Pack block b of all tokens into *out, with the sum of each token's inputs. Formats with one scale for 16
 * weights need the sum of each half of the block (out->sums[0] and [1]); others add the two (find_terms). */
static void block_pack(const struct q8_rows *in, int b, int tokens, int vectors, struct q8_sliver *out)
{
    if (tokens == LANES * vectors) {
        for (int v = 0; v < vectors; v++)
            turn_16_tokens((const int8_t(*)[INT8_CHUNK])(in->q[LANES * v] + b * Q8_BLOCK),
                           out->q + VECTOR * v, VECTOR * vectors);
        for (int t = 0; t < tokens; t++) out->d[t] = in->d[t][b];
    } else {
        q8_block_place(in, b, tokens, vectors, LANES, out);
    }
    enum { STEPS = Q8_BLOCK / 4 };
    for (int v = 0; v < vectors; v++) {
        __m512i sum[2] = { _mm512_setzero_si512(), _mm512_setzero_si512() };
        for (int s = 0; s < STEPS; s++) {
            const __m512i x = _mm512_loadu_si512(out->q + (s * vectors + v) * VECTOR);
            /* vpdpbusd multiplies four bytes by four and adds the products: with ones, it adds the bytes */
            sum[2 * s / STEPS] = _mm512_dpbusd_epi32(sum[2 * s / STEPS], _mm512_set1_epi8(1), x);
        }
        for (int h = 0; h < 2; h++) _mm512_storeu_si512(out->sums[h] + LANES * v, sum[h]);
    }
}

static void pack_vnni(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    const int vectors = q8_vectors_for(tokens, LANES);
    struct q8_sliver *out = sliver;
    struct q8_rows rows;
    for (int i = 0; i < k; i += INT8_CHUNK) {
        const int some = MIN(k - i, (int)INT8_CHUNK);
        q8_rows_quantize(&VECTORS_AVX512, x + i, x_stride, tokens, some, &rows);
        for (int b = 0; b < some / Q8_BLOCK; b++) block_pack(&rows, b, tokens, vectors, out++);
    }
}

static void find_terms(const struct q8_sliver *x, int blocks, int vectors, const struct q8_kind *kind,
                       struct lane_terms *terms)
{
    const __m512i by = _mm512_set1_epi32(-kind->bias);
    for (int b = 0; b < blocks; b++, x++, terms++) {
        for (int v = 0; v < vectors; v++) {
            const __m512 d = _mm512_loadu_ps(x->d + LANES * v);
            __m512i sum[2] = { _mm512_loadu_si512(x->sums[0] + LANES * v),
                               _mm512_loadu_si512(x->sums[1] + LANES * v) };
            if (kind->sub == 32) sum[0] = _mm512_add_epi32(sum[0], sum[1]);
            for (int h = 0; h < 32 / kind->sub; h++) {
                _mm512_storeu_si512(terms->start[h] + LANES * v, _mm512_mullo_epi32(sum[h], by));
                _mm512_storeu_ps(terms->sum[h] + LANES * v, _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum[h])));
            }
        }
    }
}

/* Add the products of one block of 32 inputs to the sums of s.rows rows from r0 on. */
ALWAYS_INLINE void block_add(const struct q8_group *w, const struct q8_sliver *x,
                             const struct lane_terms *terms, int r0, const struct shape s, __m512 sum[][2])
{
    const int steps = Q8_BLOCK / 4 / s.halves;
    __m512 scaled[8][2];
#pragma GCC unroll 2
    for (int h = 0; h < s.halves; h++) {
        __m512i dots[8][2];
#pragma GCC unroll 8
        for (int r = 0; r < s.rows; r++)
#pragma GCC unroll 2
            for (int v = 0; v < s.vectors; v++) dots[r][v] = _mm512_loadu_si512(terms->start[h] + LANES * v);
#pragma GCC unroll 8
        for (int i = h * steps; i < (h + 1) * steps; i++) {
            __m512i q[2];
#pragma GCC unroll 2
            for (int v = 0; v < s.vectors; v++)
                q[v] = _mm512_loadu_si512(x->q + (i * s.vectors + v) * VECTOR);
#pragma GCC unroll 8
            for (int r = 0; r < s.rows; r++) {
                int four;
                memcpy(&four, &w->code[r0 + r][4 * i], sizeof four);
                const __m512i code = _mm512_set1_epi32(four);
#pragma GCC unroll 2
                for (int v = 0; v < s.vectors; v++) dots[r][v] = _mm512_dpbusd_epi32(dots[r][v], code, q[v]);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < s.rows; r++) {
            const __m512 scale = _mm512_set1_ps(w->scale[h][r0 + r]);
#pragma GCC unroll 2
            for (int v = 0; v < s.vectors; v++) {
                const __m512 f = _mm512_cvtepi32_ps(dots[r][v]);
                scaled[r][v] = h ? _mm512_fmadd_ps(f, scale, scaled[r][v]) : _mm512_mul_ps(f, scale);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < s.rows; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < s.vectors; v++)
            sum[r][v] = _mm512_fmadd_ps(scaled[r][v], _mm512_loadu_ps(x->d + LANES * v), sum[r][v]);
    }
    if (!s.has_min) return;
#pragma GCC unroll 8
    for (int r = 0; r < s.rows; r++) {
#pragma GCC unroll 2
        for (int h = 0; h < s.halves; h++) {
            const __m512 min = _mm512_set1_ps(w->min[h][r0 + r]);
#pragma GCC unroll 2
            for (int v = 0; v < s.vectors; v++)
                sum[r][v] = _mm512_fmadd_ps(min, _mm512_loadu_ps(terms->sum[h] + LANES * v), sum[r][v]);
        }
    }
}

ALWAYS_INLINE void sum_store(__m512 sum, float *c, bool add)
{
    _mm512_storeu_ps(c, add ? _mm512_add_ps(sum, _mm512_loadu_ps(c)) : sum);
}

ALWAYS_INLINE void rows_multiply(const struct q8_chunk *p, const struct q8_group *w,
                                 const struct lane_terms *terms, int r0, float *c, const struct shape s)
{
    const struct q8_sliver *x = p->x;
    __m512 sum[8][2];
#pragma GCC unroll 8
    for (int r = 0; r < s.rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < s.vectors; v++) sum[r][v] = _mm512_setzero_ps();
    for (int b = 0; b < p->blocks; b++) block_add(w + b, x + b, terms + b, r0, s, sum);
#pragma GCC unroll 8
    for (int r = 0; r < s.rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < s.vectors; v++) sum_store(sum[r][v], c + (r0 + r) * SLIVER + LANES * v, p->add);
}

/* Multiply 16 rows (missing ones are zeros in the panel). With two vectors per row, six rows fit 32
 * registers. */
ALWAYS_INLINE void group_multiply(const struct q8_chunk *p, const struct q8_group *w,
                                  const struct lane_terms *terms, float *c, const struct shape s)
{
    if (s.vectors == 2) {
        const struct shape six = { .rows = 6, .vectors = 2, .halves = s.halves, .has_min = s.has_min };
        const struct shape five = { .rows = 5, .vectors = 2, .halves = s.halves, .has_min = s.has_min };
        rows_multiply(p, w, terms, 0, c, six);
        for (int r = 6; r < TILE_ROWS; r += 5) rows_multiply(p, w, terms, r, c, five);
    } else {
        for (int r = 0; r < TILE_ROWS; r += 8) rows_multiply(p, w, terms, r, c, s);
    }
}

typedef void group_fn(const struct q8_chunk *p, const struct q8_group *w, const struct lane_terms *terms,
                      float *c);

/* wide: 32 tokens in two vectors; sixteen: one vector. */
#define KERNELS(name, V)                                                                                     \
    static void name##_32(const struct q8_chunk *p, const struct q8_group *w, const struct lane_terms *t,    \
                          float *c)                                                                          \
    {                                                                                                        \
        group_multiply(p, w, t, c, (struct shape){ .rows = 8, .vectors = V, .halves = 1 });                  \
    }                                                                                                        \
    static void name##_32_min(const struct q8_chunk *p, const struct q8_group *w,                            \
                              const struct lane_terms *t, float *c)                                          \
    {                                                                                                        \
        group_multiply(p, w, t, c, (struct shape){ .rows = 8, .vectors = V, .halves = 1, .has_min = true }); \
    }                                                                                                        \
    static void name##_16(const struct q8_chunk *p, const struct q8_group *w, const struct lane_terms *t,    \
                          float *c)                                                                          \
    {                                                                                                        \
        group_multiply(p, w, t, c, (struct shape){ .rows = 8, .vectors = V, .halves = 2 });                  \
    }                                                                                                        \
    static void name##_16_min(const struct q8_chunk *p, const struct q8_group *w,                            \
                              const struct lane_terms *t, float *c)                                          \
    {                                                                                                        \
        group_multiply(p, w, t, c, (struct shape){ .rows = 8, .vectors = V, .halves = 2, .has_min = true }); \
    }
KERNELS(wide, 2)
KERNELS(sixteen, 1)

static group_fn *kernel_for(int vectors, const struct q8_kind *kind)
{
    static group_fn *const KERNEL[2][2][2] = { { { sixteen_32, sixteen_32_min },
                                                 { sixteen_16, sixteen_16_min } },
                                               { { wide_32, wide_32_min }, { wide_16, wide_16_min } } };
    return KERNEL[vectors == 2][kind->sub == 16][kind->has_min];
}

static void chunk_vnni(const struct q8_chunk *p)
{
    const int vectors = q8_vectors_for(p->tokens, LANES);
    const struct q8_group *w = p->w;
    struct lane_terms terms[INT8_CHUNK_BLOCKS];
    find_terms(p->x, p->blocks, vectors, p->kind, terms);
    group_fn *run = kernel_for(vectors, p->kind);
    for (int r = 0; r < p->rows; r += TILE_ROWS, w += p->step) run(p, w, terms, p->c + (int64_t)r * SLIVER);
}

static void unpack_vnni(const struct unpacking *u)
{
    u->f->unpack_q8(u->w, u->row_bytes, u->rows, u->k, u->group);
}

static void multiply_vnni(const struct gemm_step *p)
{
    q8_multiply(p, chunk_vnni);
}

static void multiply_few_vnni(const struct few_product *p)
{
    q8_multiply_few(p, unpack_vnni, chunk_vnni);
}

const struct gemm_kernel GEMM_INT8_AVX512VNNI = GEMM_INT8_TABLE(9, 9, pack_vnni, unpack_vnni, multiply_vnni,
                                                                multiply_few_vnni);
