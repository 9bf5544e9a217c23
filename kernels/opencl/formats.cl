/* formats.cl - decode stored weights of every format to f32.
 *
 * On a device a matrix consists of up to four planes, each with one row after the other (weights.c creates
 * them):
 *
 *   low     the lower LOW bits of all codes, in the order of the weights, the first in the lowest bits
 *   high    the HIGH bits above them, likewise
 *   fine    scales and minima of SPAN weights
 *   coarse  scales of 256 weights (SHARED_K*) or of a row (SHARED_ROW)
 *
 * So eight neighbouring weights (a chunk) are one number in each plane, and in every format a weight is code
 * * scale or code * scale + add. Options: LOW (2 4 8 16 32), HIGH (0 1 2), SPAN; VALUES_*: the meaning of
 * codes; BIAS: the offset of VALUES_NUMBER codes; SHARED_*: the encoding of scales; INT8: codes are
 * multiplied as integers (integers.cl). The bits and roundings are those of FORMATS[].decode. */
#ifdef LOW

#if LOW == 8
#define CHUNKS 2
#elif LOW > 8
#define CHUNKS 1
#else
#define CHUNKS 4
#endif
/* A unit: the weights that a work item loads at once, 16 bytes of the low plane. Rows are padded to whole
 * units with weights of 0. */
#define UNIT (8 * CHUNKS)

#if LOW == 8
typedef uint2 low_bits;
#elif LOW == 16
typedef uint4 low_bits;
#elif LOW == 32
typedef float8 low_bits;
#else
typedef uint low_bits; /* LOW == 2: only the lower 16 bits belong to this chunk */
#endif

/* The entries of a table: floats, or signed bytes for products of integers. */
#ifdef INT8
typedef uint table_number;
#define TABLE_NUMBER(v) ((uint)(int)(v)&255u)
#else
typedef float table_number;
#define TABLE_NUMBER(v) (v)
#endif

struct chunk {
    low_bits low;
    uint high; /* only the lower 8 * HIGH bits belong to this chunk */
};

struct weights {
    global const uchar *low, *high, *fine, *coarse;
    uint units; /* of a row */
    local const table_number *table;
};

/* The parameters of a kernel that describe a matrix, and the struct weights made from them. */
#define WEIGHTS_PARAMETERS(w)                                                                                \
    global const uchar *w, const ulong w##_low, const ulong w##_high, const ulong w##_fine,                  \
        const ulong w##_coarse
#define WEIGHTS_OF(w, units, table)                                                                          \
    {                                                                                                        \
        w + w##_low, w + w##_high, w + w##_fine, w + w##_coarse, units, table                                \
    }

/* ---------------------------------------------------------------- tables */

/* Sixteen values each, to the bit those of kernels/formats/blocks32/layout.h and
 * kernels/formats/codebooks/tables.h. */
#if defined VALUES_IQ4
constant float VALUES[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
#elif defined VALUES_MXFP4
constant float VALUES[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
#elif defined VALUES_IQ1 /* in eighths; index: half of the byte of IQ1_BYTES, less its smallest */
constant float VALUES[16] = { -9, -7, 0, 0, -1, 1, 0, 0, 7, 9 };
#elif defined VALUES_IQ2 /* index: magnitude, and 8 where it is negative */
constant float VALUES[16] = { 8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43 };
#elif defined VALUES_IQ3_XXS
constant float VALUES[16] = { 4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62 };
#elif defined VALUES_IQ3_S
constant float VALUES[16] = { 1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15 };
#elif defined VALUES_NF4
constant float VALUES[16] = { -1.0f,         -0.696192801f, -0.525073051f,  -0.394917488f,
                              -0.284441382f, -0.18477343f,  -0.0910500363f, 0.0f,
                              0.0795802996f, 0.160930201f,  0.246112302f,   0.337915242f,
                              0.440709829f,  0.562617004f,  0.722956836f,   1.0f };
#elif defined VALUES_FP4
constant float VALUES[16] = { 0.0f,          0.00520833349f, 0.666666687f,  1.0f,  0.333333343f,
                              0.5f,          0.166666672f,   0.25f,         0.0f,  -0.00520833349f,
                              -0.666666687f, -1.0f,          -0.333333343f, -0.5f, -0.166666672f,
                              -0.25f };
#endif

/* Copy the table to local memory. Items look up different entries at the same time, which constant memory
 * would serve one after another. All items of a group must execute this, at the beginning of a kernel. */
#if defined VALUES_IQ4 || defined VALUES_MXFP4 || defined VALUES_NF4 || defined VALUES_FP4 ||                \
    defined VALUES_IQ1 || defined VALUES_IQ2 || defined VALUES_IQ3_XXS || defined VALUES_IQ3_S
#define TABLE_LOAD(name)                                                                                     \
    local table_number name[16];                                                                             \
    {                                                                                                        \
        const uint items = get_local_size(0) * get_local_size(1);                                            \
        for (uint i = get_local_id(1) * get_local_size(0) + get_local_id(0); i < 16; i += items)             \
            name[i] = TABLE_NUMBER(VALUES[i]);                                                               \
    }                                                                                                        \
    barrier(CLK_LOCAL_MEM_FENCE)
#define LOOKED_UP
#else
#define TABLE_LOAD(name) local const table_number *const name = 0
#endif

/* ---------------------------------------------------------------- codes */

float half_of(const ushort bits)
{
    return vload_half(0, (const private half *)&bits);
}

/* Eight fields of `each` bits as eight integers. */
uint8 spread(const uint bits, const uint each)
{
    const uint8 at = (uint8)(0, 1, 2, 3, 4, 5, 6, 7) * each;
    return (uint8)(bits) >> at & ((1u << each) - 1);
}

#ifndef INT8

/* The eight codes of a chunk as integers. */
#if LOW <= 8
uint8 chunk_codes(const struct chunk *c)
{
#if LOW == 8
    const uint4 at = (uint4)(0, 8, 16, 24);
    return (uint8)((uint4)(c->low.x) >> at, (uint4)(c->low.y) >> at) & 255u;
#elif HIGH > 0
    return spread(c->low, LOW) | spread(c->high, HIGH) << LOW;
#else
    return spread(c->low, LOW);
#endif
}
#endif

/* The eight values of a chunk, before the scale is applied. An integer code below 2^23 becomes a float by
 * setting it as the mantissa of 2^23 and subtracting 2^23 (+ BIAS), which is exact and faster than a
 * conversion. */
float8 chunk_values(const struct chunk *c, local const float *table)
{
#if LOW == 32
    return c->low;
#elif defined VALUES_HALF
    const uint4 v = c->low;
    return vload_half8(0, (const private half *)&v);
#elif defined VALUES_BHALF
    const uint4 even = c->low << 16, odd = c->low & 0xffff0000u;
    const float4 a = as_float4(even), b = as_float4(odd);
    return (float8)(a.x, b.x, a.y, b.y, a.z, b.z, a.w, b.w);
#elif defined VALUES_E4M3
    /* Shifted left by 7 bits, a code is an f16; its exponent bias of 15 instead of 7 is corrected by 2^8. */
    const uint8 code = chunk_codes(c);
    const ushort8 bits = convert_ushort8((code & 0x80) << 8 | (code & 0x7f) << 7);
    return vload_half8(0, (const private half *)&bits) * 256.0f;
#elif defined VALUES_E5M2
    const ushort8 bits = convert_ushort8(chunk_codes(c) << 8);
    return vload_half8(0, (const private half *)&bits);
#elif defined LOOKED_UP
    const uint8 code = chunk_codes(c);
    return (float8)(table[code.s0], table[code.s1], table[code.s2], table[code.s3], table[code.s4],
                    table[code.s5], table[code.s6], table[code.s7]);
#else
    return as_float8(chunk_codes(c) | 0x4b000000u) - (8388608.0f + BIAS);
#endif
}

#endif

/* ---------------------------------------------------------------- loading */

struct chunk chunk_load(const struct weights *w, const uint row, const uint chunk)
{
    struct chunk c;
    const ulong at = (ulong)row * w->units * CHUNKS + chunk;
#if LOW == 2
    c.low = ((global const ushort *)w->low)[at];
#elif LOW == 32
    global const float4 *p = (global const float4 *)w->low + 2 * at;
    c.low = (float8)(p[0], p[1]);
#else
    c.low = ((global const low_bits *)w->low)[at];
#endif
#if HIGH == 1
    c.high = w->high[at];
#elif HIGH == 2
    c.high = ((global const ushort *)w->high)[at];
#else
    c.high = 0;
#endif
    return c;
}

void unit_load(const struct weights *w, const uint row, const uint unit, struct chunk *out)
{
    const ulong at = (ulong)row * w->units + unit;
#if LOW == 2
    const uint2 v = ((global const uint2 *)w->low)[at];
    out[0].low = v.x, out[1].low = v.x >> 16, out[2].low = v.y, out[3].low = v.y >> 16;
#elif LOW == 4
    const uint4 v = ((global const uint4 *)w->low)[at];
    out[0].low = v.x, out[1].low = v.y, out[2].low = v.z, out[3].low = v.w;
#elif LOW == 8
    const uint4 v = ((global const uint4 *)w->low)[at];
    out[0].low = v.xy, out[1].low = v.zw;
#else
    out[0] = chunk_load(w, row, unit);
#endif
#if HIGH == 1
    const uint h = ((global const uint *)w->high)[at];
    out[0].high = h, out[1].high = h >> 8, out[2].high = h >> 16, out[3].high = h >> 24;
#elif HIGH == 2
    const uint2 h = ((global const uint2 *)w->high)[at];
    out[0].high = h.x, out[1].high = h.x >> 16, out[2].high = h.y, out[3].high = h.y >> 16;
#endif
}

/* ---------------------------------------------------------------- scales */

/* ADDS: weights have an addend (a minimum or zero point). SHARED: the fine plane contains scales. */
#if defined SHARED_HALF_MIN || defined SHARED_HALF_ZERO || defined SHARED_K_MIN || defined SHARED_K_NIBBLES
#define ADDS
#endif
#if !defined SHARED_NONE && !defined SHARED_ROW
#define SHARED
#endif

/* (scale, add) of a chunk: weight = scale * value + add. (1, 0) for formats without a fine plane. */
float2 scale_and_add(const struct weights *w, const uint row, const uint chunk)
{
#ifdef SHARED
    const ulong at = (ulong)row * (w->units * UNIT / SPAN) + chunk / (SPAN / 8);
#endif
#if defined SHARED_K || defined SHARED_K_FLOAT || defined SHARED_K_MIN || defined SHARED_K_NIBBLES
    const ulong block = (ulong)row * (w->units * UNIT / 256) + chunk / 32;
#endif
#if defined SHARED_HALF
    return (float2)(half_of(((global const ushort *)w->fine)[at]), 0);
#elif defined SHARED_HALF_MIN
    const ushort2 v = ((global const ushort2 *)w->fine)[at];
    return (float2)(half_of(v.x), half_of(v.y));
#elif defined SHARED_HALF_ZERO
    /* Both products are exact in f32, so only the sum rounds, as in (code - zero) * scale. */
    const ushort2 v = ((global const ushort2 *)w->fine)[at];
    const float scale = half_of(v.x);
    return (float2)(scale, -(half_of(v.y) * scale));
#elif defined SHARED_POWER /* half of 2^(e - 127): subnormal for the two smallest e */
    const uint e = w->fine[at];
    return (float2)(as_float(e >= 2 ? (e - 1) << 23 : 0x00200000u << e), 0);
#elif defined SHARED_FLOAT
    return (float2)(((global const float *)w->fine)[at], 0);
#elif defined SHARED_K
    const float d = half_of(((global const ushort *)w->coarse)[block]);
    return (float2)(d * (float)((global const char *)w->fine)[at], 0);
#elif defined SHARED_K_FLOAT
    return (float2)(((global const float *)w->coarse)[block] * (float)((global const char *)w->fine)[at], 0);
#elif defined SHARED_UE4M3 /* half of it: as the upper bits of an f16 it is 2^-8 of itself; 0x7f means 0 */
    const uint e = w->fine[at] & 0x7fu;
    return (float2)(half_of((ushort)(e == 0x7fu ? 0 : e << 7)) * 128.0f, 0);
#elif defined SHARED_K_MIN
    const ushort2 d = ((global const ushort2 *)w->coarse)[block];
    const uchar2 v = ((global const uchar2 *)w->fine)[at];
    return (float2)(half_of(d.x) * (float)v.x, -(half_of(d.y) * (float)v.y));
#elif defined SHARED_K_NIBBLES
    const ushort2 d = ((global const ushort2 *)w->coarse)[block];
    const uchar v = w->fine[at];
    return (float2)(half_of(d.x) * (float)(v & 15), -(half_of(d.y) * (float)(v >> 4)));
#else
    return (float2)(1, 0);
#endif
}

/* The scale of a whole row, by which its sums of products are multiplied; 1 for formats without one. */
float row_scale(const struct weights *w, const uint row)
{
#ifdef SHARED_ROW
    return ((global const float *)w->coarse)[row];
#else
    return 1;
#endif
}

#ifndef INT8

/* The eight weights of a chunk of a row, bit for bit those of FORMATS[].decode. */
float8 chunk_weights(const struct weights *w, const uint row, const uint chunk)
{
#pragma OPENCL FP_CONTRACT OFF
    const struct chunk c = chunk_load(w, row, chunk);
    const float8 values = chunk_values(&c, w->table);
#if defined ADDS
    const float2 s = scale_and_add(w, row, chunk);
    const float8 scaled = values * s.x;
    return scaled + s.y;
#elif defined SHARED
    return values * scale_and_add(w, row, chunk).x;
#elif defined SHARED_ROW
    return values * row_scale(w, row);
#else
    return values;
#endif
}

#endif
#endif
