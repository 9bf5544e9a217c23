/* Codebooks, reference. Source: bitsandbytes. Each weight, divided by the largest magnitude of its unit, gets
 * the nearest of sixteen values. With double quantization, the magnitudes minus their mean become 8-bit
 * codes, too. */
#include <assert.h>
#include <math.h>

#include "kernels/formats/codebooks/codebooks.h"
#include "kernels/formats/codebooks/layout.h"
#include "kernels/isa/gemv/dot_ref.h"

struct book {
    float values[16];
    int8_t high[16], low[16]; /* on the grid of the products with 8-bit activations */
    int scale;
    uint8_t (*nearest)(float v);
};

/* ---------------------------------------------------------------- choosing codes */

static const float NF4_VALUE[16] = { NF4_VALUES };

static uint8_t nf4_nearest(float v)
{
    uint8_t code = 0; /* a value exactly at a midpoint gets the lower code */
    for (int i = 0; i < 15; i++) code += (NF4_VALUE[i] + NF4_VALUE[i + 1]) / 2 < v;
    return code;
}

static uint8_t fp4_nearest(float v)
{
    static const float VALUE[16] = { FP4_VALUES };
    static const uint8_t BY_SIZE[8] = { 0, 1, 6, 7, 4, 5, 2, 3 };
    const float magnitude = fabsf(v);
    int rank = 0;
    for (int i = 0; i < 7; i++) rank += (VALUE[BY_SIZE[i]] + VALUE[BY_SIZE[i + 1]]) / 2 < magnitude;
    return (uint8_t)(BY_SIZE[rank] + (v < 0 ? 8 : 0));
}

static uint8_t dynamic_nearest(float v)
{
    int from = 0, to = 255; /* the number of midpoints below v */
    while (from < to) {
        const int at = (from + to) / 2;
        if ((CODEBOOK_DYNAMIC_MAP[at] + CODEBOOK_DYNAMIC_MAP[at + 1]) / 2 < v)
            from = at + 1;
        else
            to = at;
    }
    return (uint8_t)from;
}

static float largest_of(const float *x)
{
    float amax = 0;
    for (int i = 0; i < UNIT; i++) amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    return amax;
}

static void encode_unit(const struct book *b, const float *x, float largest, uint8_t *codes)
{
    const float by = 1 / (largest > 1e-38f ? largest : 1e-38f);
    memset(codes, 0, UNIT_BYTES);
    for (int i = 0; i < UNIT; i++) {
        const float v = x[i] * by, near = v < -1 ? -1 : v > 1 ? 1 : v;
        codes[i / 32 * 16 + i % 16] |= (uint8_t)(b->nearest(near) << 4 * (i % 32 / 16));
    }
}

static void encode_plain(const struct book *b, const float *x, uint8_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += UNIT, out += PLAIN_BYTES) {
        const float largest = largest_of(x + i);
        memcpy(out, &largest, sizeof largest);
        encode_unit(b, x + i, largest, out + PLAIN_CODES);
    }
}

static void encode_nested(const struct book *b, const float *x, float offset, float largest, uint8_t *out)
{
    memcpy(out + NESTED_LARGEST, &largest, sizeof largest);
    memcpy(out + NESTED_OFFSET, &offset, sizeof offset);
    for (int u = 0; u < NESTED_UNITS; u++) {
        const float own = largest_of(x + u * UNIT), over = own - offset;
        out[NESTED_SCALES + u] = dynamic_nearest(largest > 0 ? over / largest : 0);
        encode_unit(b, x + u * UNIT, own, out + NESTED_CODES + u * UNIT_BYTES);
    }
}

/* Encode one row with statistics of its own: the mean over the row, the largest distance over runs of 256
 * units. */
static void encode_row(const struct book *b, const float *x, uint8_t *out, int64_t n)
{
    enum { RUN = NESTED_RUN * UNIT };
    double sum = 0;
    for (int64_t i = 0; i < n; i += UNIT) sum += largest_of(x + i);
    const float offset = (float)(sum / (double)(n / UNIT));
    for (int64_t run = 0; run < n; run += RUN) {
        const int64_t end = MIN(run + RUN, n);
        float largest = 0;
        for (int64_t i = run; i < end; i += UNIT) {
            const float over = fabsf(largest_of(x + i) - offset);
            largest = over > largest ? over : largest;
        }
        for (int64_t i = run; i < end; i += UNIT * NESTED_UNITS, out += NESTED_BYTES)
            encode_nested(b, x + i, offset, largest, out);
    }
}

/* ---------------------------------------------------------------- reading */

static int code_at(const uint8_t *codes, int i)
{
    return codes[i / 32 * 16 + i % 16] >> 4 * (i % 32 / 16) & 15;
}

static void book_decode(const struct book *b, const uint8_t *in, float *x, int64_t n, int nested)
{
    for (int64_t i = 0; i < n; in += block_bytes(nested)) {
        for (int u = 0; u < block_units(nested); u++, i += UNIT) {
            const float largest = unit_largest(in, u, nested);
            const uint8_t *codes = unit_codes(in, u, nested);
            for (int j = 0; j < UNIT; j++) x[i + j] = b->values[code_at(codes, j)] * largest;
        }
    }
}

/* Values on their integer grid times 8-bit activations: exact sums of each 32. */
static void dot_q8(const struct book *b, const struct dot *d, int nested)
{
    for (int r = 0; r < d->rows; r++) {
        double sum[DOT_X] = { 0 };
        for (int64_t k = 0; k < d->cols; k += Q8_BLOCK) {
            const int64_t unit = k / UNIT;
            const uint8_t *block = d->w + r * d->row_bytes + unit / block_units(nested) * block_bytes(nested);
            const int u = (int)(unit % block_units(nested));
            const double largest = unit_largest(block, u, nested);
            const uint8_t *codes = unit_codes(block, u, nested);
            for (int i = 0; i < d->n; i++) {
                int32_t dot = 0;
                for (int j = 0; j < Q8_BLOCK; j++) {
                    const int code = code_at(codes, (int)(k % UNIT) + j);
                    dot += (128 * b->high[code] + b->low[code]) * d->q.q[i * d->q.q_stride + k + j];
                }
                sum[i] += largest / b->scale * d->q.d[i * d->q.d_stride + k / Q8_BLOCK] * dot;
            }
        }
        for (int i = 0; i < d->n; i++) d->y[i * d->y_stride + r] = (float)sum[i];
    }
}

static const struct book NF4_BOOK = { { NF4_VALUES }, { NF4_HIGH }, { NF4_LOW }, NF4_SCALE, nf4_nearest },
                         FP4_BOOK = { { FP4_VALUES }, { FP4_HIGH }, { FP4_LOW }, FP4_SCALE, fp4_nearest };

#define FUNCTIONS(name, NAME, book, nested)                                                                  \
    void name##_encode_ref(const float *x, void *blocks, int64_t n)                                          \
    {                                                                                                        \
        (nested ? encode_row : encode_plain)(&book##_BOOK, x, blocks, n);                                    \
    }                                                                                                        \
    void name##_decode_ref(const void *blocks, float *x, int64_t n)                                          \
    {                                                                                                        \
        book_decode(&book##_BOOK, blocks, x, n, nested);                                                     \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        dot_f32_by_decoding(d, FORMAT_##NAME, name##_decode_ref);                                            \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        dot_q8(&book##_BOOK, d, nested);                                                                     \
    }
CODEBOOK_FORMATS(FUNCTIONS)

#define ROW(name, NAME, book, nested)                                                                        \
    { FORMAT_##NAME, { .decode = name##_decode_ref, .dot_f32 = name##_dot_f32, .dot_q8 = name##_dot_q8 } },
const struct format_row CODEBOOKS_REF[CODEBOOKS_COUNT] = { CODEBOOK_FORMATS(ROW) };

/* ---------------------------------------------------------------- statistics from elsewhere */

void format_codebook_encode(const struct format *f, const float *absmax, const float *x, void *blocks,
                            int64_t n)
{
    const bool nf4 = f == &FORMATS[FORMAT_NF4];
    assert(nf4 || f == &FORMATS[FORMAT_FP4]);
    assert(n % UNIT == 0);
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i += UNIT, out += PLAIN_BYTES) {
        memcpy(out, &absmax[i / UNIT], sizeof *absmax);
        encode_unit(nf4 ? &NF4_BOOK : &FP4_BOOK, x + i, absmax[i / UNIT], out + PLAIN_CODES);
    }
}

void format_nested_encode(const struct format *f, const struct nested_scales *s, int64_t first,
                          const float *x, void *blocks, int64_t n)
{
    const bool nf4 = f == &FORMATS[FORMAT_NF4_DQ];
    assert(nf4 || f == &FORMATS[FORMAT_FP4_DQ]);
    assert(first % (UNIT * NESTED_UNITS) == 0 && n % (UNIT * NESTED_UNITS) == 0);
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i += UNIT * NESTED_UNITS, out += NESTED_BYTES)
        encode_nested(nf4 ? &NF4_BOOK : &FP4_BOOK, x + i, s->offset,
                      s->largest[(first + i) / (UNIT * NESTED_RUN)], out);
}
