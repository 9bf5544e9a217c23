/* dot.cl - dot4: sum + four products of signed bytes. It uses the device's instruction if the compiler
 * declares one (cl_khr_integer_dot_product) or is NVIDIA's (DP4A, compute capability 6.1 and later), and
 * plain C otherwise. */
#if defined __opencl_c_integer_dot_product_input_4x8bit_packed

int dot4(const uint a, const uint b, const int sum)
{
    return sum + dot_4x8packed_ss_int(a, b);
}

#elif defined DP4A

int dot4(const uint a, const uint b, const int sum)
{
    int out;
    __asm__("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
    return out;
}

#else

int dot4(const uint a, const uint b, const int sum)
{
    const char4 x = as_char4(a), y = as_char4(b);
    return sum + x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
}

#endif
