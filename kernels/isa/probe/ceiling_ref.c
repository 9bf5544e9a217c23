/* The rate of f32 multiply-adds in plain C: the ceiling of machines for which there are no ISA kernels. */
#include "kernels/isa/isa_kernels.h"

double ceiling_f32_fma_ref(int64_t rounds)
{
    enum { LANES = 32 };
    float sum[LANES] = { 0 };
    volatile float one = 1.0000001f, tiny = 1e-9f;
    const float a = one, b = tiny;
    for (int64_t i = 0; i < rounds; i++)
        for (int j = 0; j < LANES; j++) sum[j] = sum[j] * a + b;
    volatile float sink = 0;
    for (int j = 0; j < LANES; j++) sink = sink + sum[j];
    return 2.0 * LANES * (double)rounds;
}
