/* Kernels that reach the limits of a device: sequential reads and copies, and multiply-adds in registers
 * (dot4: dot.cl). */

/* Every item reads `share` pieces of 16 bytes (share: a multiple of 8). Item i reads the pieces i * begin,
 * i * begin + step, i * begin + 2 * step, ... On a GPU neighbouring items read neighbouring pieces; on a CPU
 * each item reads consecutive pieces. */
kernel void read_all(global const uint4 *x, ulong share, ulong begin, ulong step, global uint *out)
{
    uint4 sums[8];
    x += get_global_id(0) * begin;
    for (int k = 0; k < 8; k++) sums[k] = 0;
    for (ulong i = 0; i < share; i += 8)
        for (int k = 0; k < 8; k++) sums[k] += x[(i + k) * step];
    for (int k = 1; k < 8; k++) sums[0] += sums[k];
    out[get_global_id(0)] = sums[0].x + sums[0].y + sums[0].z + sums[0].w;
}

kernel void copy_all(global const uint4 *x, ulong share, ulong begin, ulong step, global uint4 *y)
{
    x += get_global_id(0) * begin;
    y += get_global_id(0) * begin;
    for (ulong i = 0; i < share; i++) y[i * step] = x[i * step];
}

/* 4 independent chains of multiply-adds with 16 lanes per item, enough to hide the latency of each. */
#define MULTIPLY(type, type16)                                                                               \
    const type16 a = (type)by, b = (type)plus;                                                               \
    type16 x0 = (type)(get_global_id(0) % 7), x1 = x0 + 1, x2 = x0 + 2, x3 = x0 + 3;                         \
    for (int i = 0; i < rounds; i++) {                                                                       \
        x0 = fma(x0, a, b);                                                                                  \
        x1 = fma(x1, a, b);                                                                                  \
        x2 = fma(x2, a, b);                                                                                  \
        x3 = fma(x3, a, b);                                                                                  \
    }                                                                                                        \
    x0 += x1 + x2 + x3;                                                                                      \
    out[get_global_id(0)] = x0.s0 + x0.s1 + x0.s2 + x0.s3 + x0.s4 + x0.s5 + x0.s6 + x0.s7 + x0.s8 + x0.s9 +  \
                            x0.sa + x0.sb + x0.sc + x0.sd + x0.se + x0.sf

kernel void multiply_f32(global float *out, int rounds, float by, float plus)
{
    MULTIPLY(float, float16);
}

#if defined FP16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
kernel void multiply_f16(global float *out, int rounds, float by, float plus)
{
    MULTIPLY(half, half16);
}
#endif

#if defined INT_DOT
kernel void multiply_int8(global float *out, int rounds, float by, float plus)
{
    const uint a = as_uint(by);
    int x[16];
    for (int k = 0; k < 16; k++) x[k] = get_global_id(0) + k;
    for (int i = 0; i < rounds; i++)
        for (int k = 0; k < 16; k++) x[k] = dot4(as_uint(x[k]), a, x[k]);
    for (int k = 1; k < 16; k++) x[0] += x[k];
    out[get_global_id(0)] = x[0];
}
#endif
