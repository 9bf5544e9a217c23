/* Weights on a device: the blocks of a file are rearranged into planes, so that neighbouring work items read
 * neighbouring bytes.
 *
 * In a block of 18 or 34 bytes, numbers are unaligned and neighbouring weights are often far apart. Here
 * every matrix is split into up to four planes (see formats.cl): the lower bits of the codes and the upper
 * bits, both in the order of the weights; the scales of few weights; and the scales of many. All formats use
 * this scheme, so each is a row of a table: where in a block the bits are, and which bytes are scales.
 * Nothing is rounded; README.md lists the additional bytes. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/formats/blocks32/layout.h"
#include "kernels/formats/blocks64/blocks64.h"
#include "kernels/formats/blocks64/layout.h"
#include "kernels/formats/codebooks/layout.h"
#include "kernels/formats/fp8/fp8.h"
#include "kernels/formats/groups/layout.h"
#include "kernels/formats/iquants/layout.h"
#include "kernels/inputs.h"
#include "kernels/formats/kquants/layout.h"
#include "kernels/opencl/products.h"
#include "kernels/formats/ternary/layout.h"
#include "kernels/formats/ternary/ternary.h"

/* Where a block stores bits of its codes. A run of `bytes` bytes holds the first `bytes` weights in the
 * lowest bits of its bytes, the next ones in the next bits, and so on; then the next run follows. bytes = 1:
 * natural order. */
struct bits {
    uint8_t at, count, bytes;
};

typedef void scales_fn(const uint8_t *block, uint8_t *out);

/* How the blocks of a format are split into the planes that formats.cl reads. */
struct plane_layout {
    struct bits low, high; /* bits of a code for the low and the high plane; high.count 0: no high plane */
    const char *values;    /* what codes mean: VALUES_... of formats.cl */
    int bias;              /* offset that is subtracted from the codes */
    const char *scales;    /* how scales are encoded: SHARED_... of formats.cl */
    uint16_t span;         /* weights per scale of the fine plane; 0: no fine plane */
    uint8_t fine_at, fine_bytes; /* bytes of a block that the fine plane gets, unless `fine` computes them */
    uint8_t coarse_at, coarse_bytes; /* bytes of a block that the coarse plane gets */
    scales_fn *fine;                 /* computes the fine_bytes bytes of the fine plane from a block */
    bool is_signed;                  /* codes are signed bytes; the device gets code + 128 */
    /* Writes what the planes are taken from, where a block does not store codes; NULL: the block itself. */
    void (*expand)(const uint8_t *block, uint8_t *out);
    /* For formats that are first converted to another format that represents the same numbers. */
    enum format_id converted_format;
    void (*convert)(const void *blocks, void *out, int64_t weights);
};

static void q4_k_fine(const uint8_t *block, uint8_t *out)
{
    struct k_scales s;
    q4_k_scales(block, &s);
    for (int i = 0; i < 8; i++)
        out[2 * i] = (uint8_t)(s.scale[0] >> 8 * i), out[2 * i + 1] = (uint8_t)(s.min[0] >> 8 * i);
}

static void q3_k_fine(const uint8_t *block, uint8_t *out)
{
    struct k_scales s;
    q3_k_scales(block, &s);
    memcpy(out, s.scale, sizeof s.scale);
}

static void iq4_xs_fine(const uint8_t *block, uint8_t *out)
{
    struct k_scales s;
    iq4_xs_scales(block, &s);
    memcpy(out, s.scale, sizeof s.scale[0]);
}

/* Convert nf4_dq to nf4 (and fp4_dq to fp4) by computing the nested scales, bit for bit. */
static void nested_scales_expand(const void *blocks, void *out, int64_t weights)
{
    const uint8_t *in = blocks;
    uint8_t *to = out;
    for (int64_t i = 0; i < weights; i += NESTED_UNITS * UNIT, in += NESTED_BYTES)
        for (int u = 0; u < NESTED_UNITS; u++, to += PLAIN_BYTES) {
            const float largest = unit_largest(in, u, 1);
            memcpy(to, &largest, sizeof largest);
            memcpy(to + PLAIN_CODES, unit_codes(in, u, 1), UNIT_BYTES);
        }
}

/* A block of a codebook format for a device: d (with the unit) as f32, its integer scales, and a code of four
 * bits for each weight. */
enum { IQ_EXPANDED_SCALES = 4, IQ_EXPANDED_CODES = 20 };

static void iq_expand(const struct k_shape *shape, k_scales_fn *scales, iq_part_fn *part, const int shift,
                      const uint8_t *block, uint8_t *out)
{
    struct k_scales s;
    scales(block, &s);
    const float d = half_to_float(s.d) * shape->unit;
    memcpy(out, &d, sizeof d);
    memcpy(out + IQ_EXPANDED_SCALES, s.scale, sizeof s.scale);
    for (int p = 0; p < IQ_PARTS; p++) {
        struct iq_part v;
        part(block, p, &v);
        for (int i = 0; i < IQ_PART; i++) {
            const int byte = (int)(v.bytes[i / 8] >> i % 8 * 8 & 0xff);
            const int code = byte >> shift | (int)(v.negative >> i & 1) << 3;
            uint8_t *at = out + IQ_EXPANDED_CODES + (p * IQ_PART + i) / 2;
            *at = (uint8_t)(i % 2 ? *at | code << 4 : code);
        }
    }
}

/* The smallest of iq1's bytes becomes 0. */
static void iq1_part_lowered(iq_part_fn *part, const uint8_t *block, int p, struct iq_part *out)
{
    enum { SMALLEST = 7 };
    part(block, p, out);
    for (int g = 0; g < IQ_GROUPS; g++) out->bytes[g] -= k_bytes(SMALLEST);
}

static void iq1_s_lowered(const uint8_t *block, int p, struct iq_part *out)
{
    iq1_part_lowered(iq1_s_part, block, p, out);
}

static void iq1_m_lowered(const uint8_t *block, int p, struct iq_part *out)
{
    iq1_part_lowered(iq1_m_part, block, p, out);
}

/* shift: magnitudes differ in the bits above. */
#define IQ_EXPAND(name, NAME, part, shift)                                                                   \
    static void name##_expand(const uint8_t *block, uint8_t *out)                                            \
    {                                                                                                        \
        iq_expand(&NAME##_SHAPE, name##_scales, part, shift, block, out);                                    \
    }
IQ_EXPAND(iq1_s, IQ1_S, iq1_s_lowered, 1)
IQ_EXPAND(iq1_m, IQ1_M, iq1_m_lowered, 1)
IQ_EXPAND(iq2_xxs, IQ2_XXS, iq2_xxs_part, 4)
IQ_EXPAND(iq2_xs, IQ2_XS, iq2_xs_part, 4)
IQ_EXPAND(iq2_s, IQ2_S, iq2_s_part, 4)
IQ_EXPAND(iq3_xxs, IQ3_XXS, iq3_xxs_part, 3)
IQ_EXPAND(iq3_s, IQ3_S, iq3_s_part, 1)

#define CODE_BITS(offset, bits, run)                                                                         \
    {                                                                                                        \
        .at = offset, .count = bits, .bytes = run                                                            \
    }
static const struct plane_layout PLANE_LAYOUTS[FORMAT_COUNT] = {
    [FORMAT_F32] = { .low = CODE_BITS(0, 32, 1), .values = "FLOAT", .scales = "NONE" },
    [FORMAT_F16] = { .low = CODE_BITS(0, 16, 1), .values = "HALF", .scales = "NONE" },
    [FORMAT_BF16] = { .low = CODE_BITS(0, 16, 1), .values = "BHALF", .scales = "NONE" },
    [FORMAT_Q8_0] = { .low = CODE_BITS(2, 8, 1),
                      .values = "NUMBER",
                      .bias = 128,
                      .scales = "HALF",
                      .span = 32,
                      .fine_bytes = 2,
                      .is_signed = true },
    [FORMAT_Q4_0] = { .low = CODE_BITS(2, 4, 16),
                      .values = "NUMBER",
                      .bias = 8,
                      .scales = "HALF",
                      .span = 32,
                      .fine_bytes = 2 },
    [FORMAT_Q4_1] = { .low = CODE_BITS(Q4_1_CODES, 4, 16),
                      .values = "NUMBER",
                      .scales = "HALF_MIN",
                      .span = 32,
                      .fine_bytes = 4 },
    [FORMAT_Q5_0] = { .low = CODE_BITS(Q5_0_CODES, 4, 16),
                      .high = CODE_BITS(Q5_0_HIGH, 1, 1),
                      .values = "NUMBER",
                      .bias = Q5_0_BIAS,
                      .scales = "HALF",
                      .span = 32,
                      .fine_bytes = 2 },
    [FORMAT_Q5_1] = { .low = CODE_BITS(Q5_1_CODES, 4, 16),
                      .high = CODE_BITS(Q5_1_HIGH, 1, 1),
                      .values = "NUMBER",
                      .scales = "HALF_MIN",
                      .span = 32,
                      .fine_bytes = 4 },
    [FORMAT_Q2_K] = { .low = CODE_BITS(Q2_K_CODES, 2, 32),
                      .values = "NUMBER",
                      .scales = "K_NIBBLES",
                      .span = 16,
                      .fine_at = Q2_K_SCALES,
                      .fine_bytes = 16,
                      .coarse_at = Q2_K_D,
                      .coarse_bytes = 4 },
    [FORMAT_Q3_K] = { .low = CODE_BITS(Q3_K_CODES, 2, 32),
                      .high = CODE_BITS(Q3_K_HIGH, 1, 32),
                      .values = "NUMBER",
                      .bias = 4,
                      .scales = "K",
                      .span = 16,
                      .fine_bytes = 16,
                      .coarse_at = Q3_K_D,
                      .coarse_bytes = 2,
                      .fine = q3_k_fine },
    [FORMAT_Q4_K] = { .low = CODE_BITS(Q4_K_CODES, 4, 32),
                      .values = "NUMBER",
                      .scales = "K_MIN",
                      .span = 32,
                      .fine_bytes = 16,
                      .coarse_at = Q4_K_D,
                      .coarse_bytes = 4,
                      .fine = q4_k_fine },
    [FORMAT_Q5_K] = { .low = CODE_BITS(Q5_K_CODES, 4, 32),
                      .high = CODE_BITS(Q5_K_HIGH, 1, 32),
                      .values = "NUMBER",
                      .scales = "K_MIN",
                      .span = 32,
                      .fine_bytes = 16,
                      .coarse_at = Q4_K_D,
                      .coarse_bytes = 4,
                      .fine = q4_k_fine },
    [FORMAT_Q6_K] = { .low = CODE_BITS(Q6_K_LOW, 4, 64),
                      .high = CODE_BITS(Q6_K_HIGH, 2, 32),
                      .values = "NUMBER",
                      .bias = 32,
                      .scales = "K",
                      .span = 16,
                      .fine_at = Q6_K_SCALES,
                      .fine_bytes = 16,
                      .coarse_at = Q6_K_D,
                      .coarse_bytes = 2 },
    [FORMAT_IQ4_NL] = { .low = CODE_BITS(IQ4_NL_CODES, 4, 16),
                        .values = "IQ4",
                        .scales = "HALF",
                        .span = 32,
                        .fine_bytes = 2 },
    [FORMAT_IQ4_XS] = { .low = CODE_BITS(IQ4_XS_CODES, 4, 16),
                        .values = "IQ4",
                        .scales = "K",
                        .span = 32,
                        .fine_bytes = 8,
                        .coarse_at = IQ4_XS_D,
                        .coarse_bytes = 2,
                        .fine = iq4_xs_fine },
    [FORMAT_TQ1_0] = { .converted_format = FORMAT_TQ2_0, .convert = tq1_0_to_tq2_0 },
    [FORMAT_TQ2_0] = { .low = CODE_BITS(0, 2, 32),
                       .values = "NUMBER",
                       .bias = TQ_BIAS,
                       .scales = "HALF",
                       .span = TQ_BLOCK,
                       .fine_at = TQ2_0_D,
                       .fine_bytes = 2 },
    [FORMAT_MXFP4] = { .low = CODE_BITS(MXFP4_CODES, 4, 16),
                       .values = "MXFP4",
                       .scales = "POWER",
                       .span = 32,
                       .fine_bytes = 1 },
    [FORMAT_NVFP4] = { .low = CODE_BITS(NVFP4_CODES, 4, NVFP4_GROUP / 2),
                       .values = "MXFP4",
                       .scales = "UE4M3",
                       .span = NVFP4_GROUP,
                       .fine_bytes = NVFP4_GROUPS },
    [FORMAT_Q1_0] = { .converted_format = FORMAT_Q2_0, .convert = q1_0_to_q2_0 },
    [FORMAT_Q2_0] = { .low = CODE_BITS(Q12_CODES, 2, 1),
                      .values = "NUMBER",
                      .bias = Q12_BIAS,
                      .scales = "HALF",
                      .span = Q2_0_BLOCK,
                      .fine_bytes = 2 },
#define CODEBOOK(name, NAME, meaning, size)                                                                  \
    [FORMAT_##NAME] = { .low = CODE_BITS(IQ_EXPANDED_CODES, 4, 1),                                           \
                        .values = meaning,                                                                   \
                        .scales = "K_FLOAT",                                                                 \
                        .span = size,                                                                        \
                        .fine_at = IQ_EXPANDED_SCALES,                                                       \
                        .fine_bytes = K_BLOCK / (size),                                                      \
                        .coarse_bytes = sizeof(float),                                                       \
                        .expand = name##_expand }
    CODEBOOK(iq1_s, IQ1_S, "IQ1", 32),
    CODEBOOK(iq1_m, IQ1_M, "IQ1", 16),
    CODEBOOK(iq2_xxs, IQ2_XXS, "IQ2", 32),
    CODEBOOK(iq2_xs, IQ2_XS, "IQ2", 16),
    CODEBOOK(iq2_s, IQ2_S, "IQ2", 16),
    CODEBOOK(iq3_xxs, IQ3_XXS, "IQ3_XXS", 32),
    CODEBOOK(iq3_s, IQ3_S, "IQ3_S", 32),
    [FORMAT_FP8_E4M3] = { .low = CODE_BITS(0, 8, 1), .values = "E4M3", .scales = "ROW" },
    [FORMAT_FP8_E5M2] = { .low = CODE_BITS(0, 8, 1), .values = "E5M2", .scales = "ROW" },
    [FORMAT_FP8_E4M3_B128] = { .low = CODE_BITS(0, 8, 1),
                               .values = "E4M3",
                               .scales = "FLOAT",
                               .span = FP8_BLOCK,
                               .fine_at = FP8_BLOCK,
                               .fine_bytes = 4 },
    [FORMAT_INT8] = { .low = CODE_BITS(0, 8, 1),
                      .values = "NUMBER",
                      .bias = 128,
                      .scales = "ROW",
                      .is_signed = true },
    [FORMAT_NF4] = { .low = CODE_BITS(PLAIN_CODES, 4, 16),
                     .values = "NF4",
                     .scales = "FLOAT",
                     .span = UNIT,
                     .fine_bytes = 4 },
    [FORMAT_FP4] = { .low = CODE_BITS(PLAIN_CODES, 4, 16),
                     .values = "FP4",
                     .scales = "FLOAT",
                     .span = UNIT,
                     .fine_bytes = 4 },
    [FORMAT_NF4_DQ] = { .converted_format = FORMAT_NF4, .convert = nested_scales_expand },
    [FORMAT_FP4_DQ] = { .converted_format = FORMAT_FP4, .convert = nested_scales_expand },
#define GROUP(name, NAME, group_bits, size)                                                                  \
    [FORMAT_##NAME] = { .low = CODE_BITS(GROUP_CODES, (group_bits) == 3 ? 2 : (group_bits),                  \
                                         (group_bits) == 8 ? 1 : GROUP_UNIT_BYTES),                          \
                        .high = CODE_BITS(GROUP_THIRD_BITS(size), (group_bits) == 3, 1),                     \
                        .values = "NUMBER",                                                                  \
                        .scales = "HALF_ZERO",                                                               \
                        .span = size,                                                                        \
                        .fine_bytes = 4 },
    GROUP_FORMATS(GROUP)
};

/* ---------------------------------------------------------------- layout */

/* The planes: the lower bits of the codes, their upper bits, the scales of few weights (often relative to
 * those of many), and the scales of many weights. */
enum { LOW, HIGH, FINE, COARSE };

/* The format whose blocks are split into planes: f, or the format that f is first converted to. */
static const struct format *device_format(const struct format *f)
{
    const struct plane_layout *l = &PLANE_LAYOUTS[f - FORMATS];
    return l->convert ? &FORMATS[l->converted_format] : f;
}

static const struct plane_layout *format_layout(const struct format *f)
{
    return &PLANE_LAYOUTS[device_format(f) - FORMATS];
}

static bool layout_has_row_scale(const struct plane_layout *l)
{
    return !strcmp(l->scales, "ROW");
}

struct planes opencl_planes(const struct format *f, int64_t rows, int64_t cols)
{
    const struct plane_layout *l = format_layout(f);
    const int64_t unit = l->low.count > 8 ? 8 : l->low.count == 8 ? 16 : 32;
    struct planes p = { .units = (cols + unit - 1) / unit };
    p.row_bytes[LOW] = p.units * unit * l->low.count / 8;
    p.row_bytes[HIGH] = p.units * unit * l->high.count / 8;
    p.row_bytes[FINE] = cols / device_format(f)->block_weights * l->fine_bytes;
    p.row_bytes[COARSE] = layout_has_row_scale(l) ? (int64_t)sizeof(float)
                                                  : cols / device_format(f)->block_weights * l->coarse_bytes;
    for (int i = 0; i < PLANE_COUNT; i++) {
        p.at[i] = p.end;
        p.end = round_up(p.end + rows * p.row_bytes[i], PLANE_ALIGN);
    }
    return p;
}

enum { ARRAY_ITEM = 4 }; /* bytes of a number of an input's order, or of what it is divided by */

int64_t opencl_weight_bytes(const struct format *f, int64_t rows, int64_t cols, int arrays)
{
    return opencl_planes(f, rows, cols).end + arrays * cols * ARRAY_ITEM;
}

static int input_arrays(const struct input_scheme *s)
{
    return s ? !!s->order + !!s->divide : 0;
}

const void *opencl_order(const struct weight *w)
{
    if (!w->input || !w->input->order) return NULL;
    return (const char *)w->data + opencl_planes(w->format, w->rows, w->cols).end;
}

const void *opencl_divide(const struct weight *w)
{
    if (!w->input || !w->input->divide) return NULL;
    const int64_t order = w->input->order ? w->cols * ARRAY_ITEM : 0;
    return (const char *)w->data + opencl_planes(w->format, w->rows, w->cols).end + order;
}

enum weight_family opencl_family(const struct format *f)
{
    switch (format_layout(f)->low.count) {
    case 32: return FAMILY_32;
    case 16: return FAMILY_16;
    case 8: return FAMILY_8;
    case 4: return FAMILY_4;
    default: return FAMILY_2;
    }
}

int opencl_code_bits(const struct format *f)
{
    static const char *const WHOLE[] = { "NUMBER", "IQ1", "IQ2", "IQ3_XXS", "IQ3_S", "IQ4", "MXFP4" };
    const struct plane_layout *l = format_layout(f);
    for (size_t i = 0; i < COUNT_OF(WHOLE); i++)
        if (!strcmp(l->values, WHOLE[i])) return l->low.count;
    return 0;
}

const char *opencl_format_options(const struct format *f, char *buf, size_t size)
{
    const struct plane_layout *l = format_layout(f);
    const int used = snprintf(buf, size, "-DLOW=%d -DHIGH=%d -DVALUES_%s -DBIAS=%d -DSHARED_%s -DSPAN=%d",
                              l->low.count, l->high.count, l->values, l->bias, l->scales, l->span);
    assert(used > 0 && (size_t)used < size);
    (void)used;
    return buf;
}

/* ---------------------------------------------------------------- splitting blocks */

static uint64_t byte_repeat(unsigned b)
{
    return 0x0101010101010101u * b;
}

/* The lowest `count` bits of eight bytes, side by side. */
static uint64_t bits_pack(uint64_t codes, int count)
{
    const int gap = 8 - count;
    const uint64_t two = (1u << 2 * count) - 1, four = ((uint64_t)1 << 4 * count) - 1;
    codes = (codes | codes >> gap) & (two | two << 16 | two << 32 | two << 48);
    codes = (codes | codes >> 2 * gap) & (four | four << 32);
    return codes | codes >> 4 * gap;
}

/* Bits of the codes i..i+7 of a block, as many bytes as they have bits. */
static uint64_t chunk_bits(const uint8_t *block, const struct bits *b, int i)
{
    uint64_t v = 0;
    if (b->bytes == 1) {
        memcpy(&v, block + b->at + i / 8 * b->count, b->count);
        return v;
    }
    const int period = b->bytes * 8 / b->count;
    const int first = i / period * b->bytes + i % b->bytes, shift = i % period / b->bytes * b->count;
    memcpy(&v, block + b->at + first, sizeof v);
    return bits_pack(v >> shift & byte_repeat((1u << b->count) - 1), b->count);
}

struct upload {
    struct opencl *o;
    const struct weight *w;
    const uint8_t *host;
    struct planes planes;
    int64_t row0, rows; /* of this piece */
    uint8_t *piece[PLANE_COUNT];
};

/* Copy the parts of one block to the planes of its row. out: where the row begins in each plane. at: index of
 * the block in its row. Codes are moved in chunks of 8 weights.
 *
 * Kernels read every code as an unsigned number and subtract the format's bias (128 for signed bytes). Adding
 * 128 to a signed byte is inverting its highest bit, hence the 0x80. */
static void block_split(const struct plane_layout *l, const struct format *f, const uint8_t *block,
                        int64_t at, uint8_t *const out[PLANE_COUNT])
{
    const uint64_t sign_bits = l->is_signed ? byte_repeat(0x80) : 0;
    const int chunks = (int)f->block_weights / 8;
    for (int c = 0; c < chunks; c++) {
        const uint64_t low = chunk_bits(block, &l->low, 8 * c) ^ sign_bits;
        memcpy(out[LOW] + (at * chunks + c) * l->low.count, &low, l->low.count);
        if (!l->high.count) continue;
        const uint64_t high = chunk_bits(block, &l->high, 8 * c);
        memcpy(out[HIGH] + (at * chunks + c) * l->high.count, &high, l->high.count);
    }
    if (l->fine)
        l->fine(block, out[FINE] + at * l->fine_bytes);
    else
        memcpy(out[FINE] + at * l->fine_bytes, block + l->fine_at, l->fine_bytes);
    memcpy(out[COARSE] + at * l->coarse_bytes, block + l->coarse_at, l->coarse_bytes);
}

static void upload_split_row(const struct upload *u, const uint8_t *row, uint8_t *const out[PLANE_COUNT])
{
    enum { MADE = 256 }; /* bytes of a block's weights in another format */
    const struct format *f = u->w->format, *as = device_format(f);
    const struct plane_layout *l = format_layout(f);
    const int64_t span = format_span_bytes(f, u->w->cols);
    const uint32_t each = f->block_weights / as->block_weights; /* blocks that one becomes */
    uint8_t made[MADE];
    if (layout_has_row_scale(l)) memcpy(out[COARSE], row + span, sizeof(float));
    if (f->block_weights == 1) {
        memcpy(out[LOW], row, (size_t)span);
        memset(out[LOW] + span, 0, (size_t)(u->planes.row_bytes[LOW] - span));
        return;
    }
    assert(each * as->block_bytes <= sizeof made || each == 1);
    for (int64_t b = 0; b < u->w->cols / f->block_weights; b++) {
        const uint8_t *block = row + b * f->block_bytes;
        if (f != as) {
            PLANE_LAYOUTS[f - FORMATS].convert(block, made, f->block_weights);
            block = made;
        }
        if (l->expand) {
            l->expand(block, made);
            block = made;
        }
        for (uint32_t i = 0; i < each; i++)
            block_split(l, as, block + i * as->block_bytes, b * each + i, out);
    }
}

static void upload_split_rows(void *arg, int member, int size)
{
    const struct upload *u = arg;
    const int64_t row_bytes = format_row_bytes(u->w->format, u->w->cols);
    int64_t from, to;
    member_share(u->rows, member, size, &from, &to);
    for (int64_t r = from; r < to; r++) {
        uint8_t *out[PLANE_COUNT];
        for (int i = 0; i < PLANE_COUNT; i++) out[i] = u->piece[i] + r * u->planes.row_bytes[i];
        upload_split_row(u, u->host + (u->row0 + r) * row_bytes, out);
    }
}

/* ---------------------------------------------------------------- sending */

/* Send the rows in pieces, so that the host never holds a second copy of a large matrix. */
static enum err_code upload_send_rows(struct upload *u, struct err *why)
{
    enum { PIECE_BYTES = 8 << 20 };
    struct backend *b = &u->o->base;
    int64_t row_bytes = 0;
    for (int i = 0; i < PLANE_COUNT; i++) row_bytes += u->planes.row_bytes[i];
    const int64_t most = MIN(u->w->rows, MAX(PIECE_BYTES / row_bytes, (int64_t)1));
    uint8_t *piece = malloc((size_t)(most * row_bytes));
    if (!piece)
        return err_set(why, ERR_NOMEM, "out of memory for sending %lld bytes of weights",
                       (long long)(most * row_bytes));
    for (u->row0 = 0; u->row0 < u->w->rows; u->row0 += u->rows) {
        u->rows = MIN(most, u->w->rows - u->row0);
        uint8_t *at = piece;
        for (int i = 0; i < PLANE_COUNT; at += u->rows * u->planes.row_bytes[i], i++) u->piece[i] = at;
        threadpool_run(b->pool, upload_split_rows, u);
        for (int i = 0; i < PLANE_COUNT; i++)
            opencl_write(b, (char *)u->w->owned + u->planes.at[i] + u->row0 * u->planes.row_bytes[i],
                         u->piece[i], (size_t)(u->rows * u->planes.row_bytes[i]));
    }
    free(piece);
    return ERR_OK;
}

enum err_code opencl_bind(struct backend *b, struct weight *out, const struct format *format, int64_t rows,
                          int64_t cols, const struct input_scheme *input, const void *host, struct err *why)
{
    struct opencl *o = opencl_of(b);
    struct weight w = { .format = format, .rows = rows, .cols = cols, .input = input };
    const enum input_kind kind = inputs_scheme(&b->options, &w).kind;
    if (!opencl_prepares(kind))
        return err_set(why, ERR_USAGE,
                       "%s: there are no inputs of kind %s on OpenCL devices; device=cpu runs them",
                       o->device.name, input_kind_name(kind));
    const int64_t bytes = opencl_weight_bytes(format, rows, cols, input_arrays(input));
    w.data = w.owned = opencl_alloc(b, (size_t)bytes);
    if (!w.data && !opencl_ok(o)) return err_set(why, o->failed.code, "%s", o->failed.message);
    if (!w.data)
        return err_set(
            why, ERR_NOMEM,
            "%s: %s weights [%lld][%lld] do not fit: they need %lld bytes; it has %lld in all, %lld for "
            "one buffer",
            o->device.name, format->name, (long long)rows, (long long)cols, (long long)bytes,
            (long long)o->device.memory_bytes, (long long)o->device.alloc_bytes);
    struct upload u = { .o = o, .w = &w, .host = host, .planes = opencl_planes(format, rows, cols) };
    enum err_code rc = upload_send_rows(&u, why);
    if (!rc && opencl_order(&w))
        opencl_write(b, (void *)opencl_order(&w), input->order, (size_t)cols * sizeof *input->order);
    if (!rc && opencl_divide(&w))
        opencl_write(b, (void *)opencl_divide(&w), input->divide, (size_t)cols * sizeof *input->divide);
    if (!rc && !opencl_ok(o)) rc = err_set(why, o->failed.code, "%s", o->failed.message);
    if (rc) {
        opencl_free(b, w.owned);
        return rc;
    }
    o->inputs |= 1u << kind;
    o->uploaded_bytes += bytes;
    *out = w;
    return ERR_OK;
}

void opencl_release(struct backend *b, struct weight *w)
{
    opencl_free(b, w->owned);
}
