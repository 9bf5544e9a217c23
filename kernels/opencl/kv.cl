/* Rows of the KV cache: kv_store writes them. With -DK and -DV (names of formats), this file instead defines
 * the functions that read them, for attention.cl, which follows.
 *
 * The stored bytes are those of the reference encoders (kernels/formats/), operation by operation, so
 * contraction to fused multiply-adds is disabled. Exception: a device that flushes f32 subnormals to zero
 * stores zeros for rows whose numbers are all below about 1e-36. */
#pragma OPENCL FP_CONTRACT OFF

/* ---------------------------------------------------------------- writing */

#if !defined K

#define ITEMS   64
#define DIM_MAX 1024

/* a / b, correctly rounded. The division of a device may be off by 2.5 units in the last place, and the
 * stored bytes must not depend on the device: one Newton step with the remainder corrects the quotient. */
float divide(float a, float b)
{
    const float q = a / b, rest = fma(-q, b, a);
    /* Adding a remainder of 0 would turn -0 into 0. */
    return isfinite(rest) && rest != 0 ? fma(rest, 1 / b, q) : q;
}

ushort half_bits(float x)
{
    const uint u = as_uint(x);
    const int a = u & 0x7fffffff;
    /* below 2^-14 (subnormal f16): floats near 0.5 are multiples of 2^-24, so adding 0.5 rounds to these */
    const int small = as_int(as_float(a) + 0.5f) - 0x3f000000;
    int h = (a - ((127 - 15) << 23) + 0xfff + (a >> 13 & 1)) >> 13;
    h = a < 0x38800000 ? small : h;
    h = a >= 0x477ff000 ? 0x7c00 : h; /* 65520 and above round to infinity */
    h = a > 0x7f800000 ? 0x7e00 : h;
    return (u >> 16 & 0x8000) | h;
}

ushort bhalf_bits(float x)
{
    const uint u = as_uint(x);
    return (u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

uchar fp8_bits(float x, int cut, int bias, float least_normal, float per_unit, int largest_code)
{
    const uint u = as_uint(x), a = u & 0x7fffffff;
    /* subnormal codes: floats near 1.5 * 2^23 are whole numbers, so adding that rounds to a whole number */
    const int small = as_int(as_float(a) * per_unit + 12582912.0f) & 0xff;
    const int normal = (int)((a + (1u << (cut - 1)) - 1 + (a >> cut & 1)) >> cut) - bias;
    const int code = as_float(a) < least_normal ? small : normal;
    return (u >> 24 & 0x80) | min(code, largest_code);
}

/* Each store_* function writes a row of dim numbers from local memory, with all items of the group. most
 * [ITEMS]: the largest magnitude among the numbers of each item, as the bits of a float. */
void store_f32(local const float *x, local const int *most, int dim, global uchar *row)
{
    for (int i = get_local_id(0); i < dim; i += ITEMS) ((global float *)row)[i] = x[i];
}

void store_f16(local const float *x, local const int *most, int dim, global uchar *row)
{
    for (int i = get_local_id(0); i < dim; i += ITEMS) ((global ushort *)row)[i] = half_bits(x[i]);
}

void store_bf16(local const float *x, local const int *most, int dim, global uchar *row)
{
    for (int i = get_local_id(0); i < dim; i += ITEMS) ((global ushort *)row)[i] = bhalf_bits(x[i]);
}

/* A block is 17 words of 16 bits: the scale and 32 codes. An item writes single words, so it computes the
 * scale of each block for itself. */
void store_q8_0(local const float *x, local const int *most, int dim, global uchar *row)
{
    for (int i = get_local_id(0); i < dim / 32 * 17; i += ITEMS) {
        local const float *block = x + i / 17 * 32;
        const int at = (i % 17 - 1) * 2;
        int largest = 0;
        for (int j = 0; j < 32; j++) largest = max(largest, as_int(block[j]) & 0x7fffffff);
        const float d = divide(as_float(largest), 127), by = d != 0 ? divide(1, d) : 0;
        ((global ushort *)row)[i] = at < 0 ? half_bits(d)
                                           : ((int)round(block[at] * by) & 0xff) |
                                                 ((int)round(block[at + 1] * by) & 0xff) << 8;
    }
}

int q4_0_code(float x, float by)
{
    return min((int)(x * by + 8.5f), 15);
}

/* A block is 9 words of 16 bits. d = extreme / -8: the first number of the largest magnitude gets code 0. */
void store_q4_0(local const float *x, local const int *most, int dim, global uchar *row)
{
    for (int i = get_local_id(0); i < dim / 32 * 9; i += ITEMS) {
        local const float *block = x + i / 9 * 32;
        const int at = (i % 9 - 1) * 2;
        float extreme = 0;
        for (int j = 0; j < 32; j++) extreme = fabs(block[j]) > fabs(extreme) ? block[j] : extreme;
        const float d = divide(extreme, -8), by = d != 0 ? divide(1, d) : 0;
        ((global ushort *)row)[i] = at < 0 ? half_bits(d)
                                           : q4_0_code(block[at], by) | q4_0_code(block[at + 16], by) << 4 |
                                                 q4_0_code(block[at + 1], by) << 8 |
                                                 q4_0_code(block[at + 17], by) << 12;
    }
}

float fp8_scale(local const int *most, float largest_value)
{
    int largest = 0;
    for (int j = 0; j < ITEMS; j++) largest = max(largest, most[j]);
    const float size = as_float(largest);
    return divide(size > 1e-12f ? size : 1e-12f, largest_value);
}

void store_fp8_e4m3(local const float *x, local const int *most, int dim, global uchar *row)
{
    const float scale = fp8_scale(most, 448);
    for (int i = get_local_id(0); i < dim; i += ITEMS)
        row[i] = fp8_bits(divide(x[i], scale), 20, (127 - 7) << 3, 0x1p-6f, 0x1p9f, 0x7e);
    if (!get_local_id(0)) vstore4(as_uchar4(scale), 0, row + dim);
}

void store_fp8_e5m2(local const float *x, local const int *most, int dim, global uchar *row)
{
    const float scale = fp8_scale(most, 57344);
    for (int i = get_local_id(0); i < dim; i += ITEMS)
        row[i] = fp8_bits(divide(x[i], scale), 21, (127 - 15) << 2, 0x1p-14f, 0x1p16f, 0x7b);
    if (!get_local_id(0)) vstore4(as_uchar4(scale), 0, row + dim);
}

/* format: struct format.ggml_type. */
void store(int format, local const float *x, local const int *most, int dim, global uchar *row)
{
    switch (format) {
    case 0: store_f32(x, most, dim, row); break;
    case 1: store_f16(x, most, dim, row); break;
    case 2: store_q4_0(x, most, dim, row); break;
    case 8: store_q8_0(x, most, dim, row); break;
    case 30: store_bf16(x, most, dim, row); break;
    case 1000: store_fp8_e4m3(x, most, dim, row); break;
    case 1001: store_fp8_e5m2(x, most, dim, row); break;
    }
}

/* A group writes one row of one head. Groups: tokens; KV heads; keys or values. */
kernel void kv_store(global const uchar *k_buffer, ulong k_at, long k_stride, int k_dim, int k_format,
                     int k_bytes, global uchar *keys, ulong keys_at, global const uchar *v_buffer, ulong v_at,
                     long v_stride, int v_dim, int v_format, int v_bytes, global uchar *values,
                     ulong values_at, global const int *slots, int block_tokens)
{
    local float x[DIM_MAX];
    local int most[ITEMS];
    const int id = get_local_id(0), head = get_group_id(1), kv_heads = get_num_groups(1);
    const long token = get_group_id(0), slot = slots[token];
    const long row = (slot / block_tokens * kv_heads + head) * block_tokens + slot % block_tokens;
    const bool is_value = get_group_id(2);
    const int dim = is_value ? v_dim : k_dim;
    global const float *from = is_value ? (global const float *)(v_buffer + v_at) + token * v_stride
                                        : (global const float *)(k_buffer + k_at) + token * k_stride;
    int largest = 0;
    for (int i = id; i < dim; i += ITEMS) {
        x[i] = from[head * dim + i];
        largest = max(largest, as_int(x[i]) & 0x7fffffff);
    }
    most[id] = largest;
    barrier(CLK_LOCAL_MEM_FENCE);
    global uchar *out = is_value ? values + values_at + row * v_bytes : keys + keys_at + row * k_bytes;
    for (int j = 0; j < ITEMS; j++) largest = max(largest, most[j]);
    if (largest >= 0x7f800000) { /* not finite: bytes that decode to NaN, as kernels/ops.c stores them */
        for (int i = id; i < (is_value ? v_bytes : k_bytes); i += ITEMS) out[i] = 0xff;
        return;
    }
    store(is_value ? v_format : k_format, x, most, dim, out);
}

#else

/* ---------------------------------------------------------------- reading */

/* Bytes of a row of dim numbers. */
#define BYTES_f32(dim)      ((dim)*4)
#define BYTES_f16(dim)      ((dim)*2)
#define BYTES_bf16(dim)     ((dim)*2)
#define BYTES_q8_0(dim)     ((dim) / 32 * 34)
#define BYTES_q4_0(dim)     ((dim) / 32 * 18)
#define BYTES_fp8_e4m3(dim) ((dim) + 4)
#define BYTES_fp8_e5m2(dim) ((dim) + 4)

/* load8_*: the eight numbers of a row from index `at` (a multiple of 8); numbers past dim are 0. If dim is a
 * multiple of 8, rows are aligned for vector loads. Formats with one scale per row return numbers without
 * that scale; fp8_row_scale reads it. */
float8 load8_f32(global const uchar *row, int at, int dim)
{
    global const float *p = (global const float *)row + at;
    float v[8];
    if (dim % 8 == 0) return (float8)(*(global const float4 *)p, *(global const float4 *)(p + 4));
    for (int i = 0; i < 8; i++) v[i] = at + i < dim ? p[i] : 0;
    return vload8(0, v);
}

float8 load8_f16(global const uchar *row, int at, int dim)
{
    global const half *p = (global const half *)row + at;
    float v[8];
    if (dim % 8 == 0) return vloada_half8(0, p);
    for (int i = 0; i < 8; i++) v[i] = at + i < dim ? vload_half(i, p) : 0;
    return vload8(0, v);
}

float8 load8_bf16(global const uchar *row, int at, int dim)
{
    global const ushort *p = (global const ushort *)row + at;
    float v[8];
    if (dim % 8 == 0) {
        const uint4 u = *(global const uint4 *)p;
        return (float8)(as_float(u.x << 16), as_float(u.x & 0xffff0000), as_float(u.y << 16),
                        as_float(u.y & 0xffff0000), as_float(u.z << 16), as_float(u.z & 0xffff0000),
                        as_float(u.w << 16), as_float(u.w & 0xffff0000));
    }
    for (int i = 0; i < 8; i++) v[i] = at + i < dim ? as_float((uint)p[i] << 16) : 0;
    return vload8(0, v);
}

/* Blocks have 34 and 18 bytes, so codes are only aligned to 2 bytes. */
float8 load8_q8_0(global const uchar *row, int at, int dim)
{
    global const uchar *block = row + at / 32 * 34;
    const ushort4 codes = vload4(0, (global const ushort *)(block + 2 + at % 32));
    return convert_float8(as_char8(codes)) * vload_half(0, (global const half *)block);
}

float8 load8_q4_0(global const uchar *row, int at, int dim)
{
    global const uchar *block = row + at / 32 * 18;
    const uchar8 codes = as_uchar8(vload4(0, (global const ushort *)(block + 2 + at % 16)));
    const uchar8 half_bytes = at % 32 < 16 ? codes & (uchar8)15 : codes >> (uchar8)4;
    return (convert_float8(half_bytes) - 8) * vload_half(0, (global const half *)block);
}

uchar8 load8_codes(global const uchar *row, int at, int dim)
{
    uchar v[8];
    if (dim % 8 == 0) {
        /* A row has dim + 4 bytes, so it is aligned to 4. */
        global const uint *p = (global const uint *)(row + at);
        return as_uchar8((uint2)(p[0], p[1]));
    }
    for (int i = 0; i < 8; i++) v[i] = at + i < dim ? row[at + i] : 0;
    return vload8(0, v);
}

/* fp8 codes to f32. Normal codes: shift exponent and mantissa to their place in an f32 and correct the
 * exponent bias. Subnormal codes are multiples of `unit`. The sign bit is added to both. */
float8 fp8_values(uchar8 codes, int cut, uint bias, float unit)
{
    const uint8 c = convert_uint8(codes), magnitude = c & 0x7f;
    const int8 normal = convert_int8(magnitude >> (23 - cut)) != 0;
    const float8 small = convert_float8(magnitude) * unit;
    const uint8 bits = select(as_uint8(small), (magnitude << cut) + bias, as_uint8(normal));
    return as_float8(bits | (c & 0x80) << 24);
}

float8 load8_fp8_e4m3(global const uchar *row, int at, int dim)
{
    return fp8_values(load8_codes(row, at, dim), 20, (127 - 7) << 23, 0x1p-9f);
}

float8 load8_fp8_e5m2(global const uchar *row, int at, int dim)
{
    return fp8_values(load8_codes(row, at, dim), 21, (127 - 15) << 23, 0x1p-16f);
}

float fp8_row_scale(global const uchar *row, int dim)
{
    if (dim % 4 == 0) return *(global const float *)(row + dim);
    return as_float(vload4(0, row + dim));
}

#define SCALED_f32      0
#define SCALED_f16      0
#define SCALED_bf16     0
#define SCALED_q8_0     0
#define SCALED_q4_0     0
#define SCALED_fp8_e4m3 1
#define SCALED_fp8_e5m2 1

#endif
