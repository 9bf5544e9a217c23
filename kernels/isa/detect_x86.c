/* Detect what this x86 CPU and its operating system both support. A CPUID bit alone is not enough: without
 * the matching XCR0 bits the kernel does not save the registers, and a process must request permission for
 * AMX once. */
#include <cpuid.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/isa/isa_kernels.h"

enum {
    XCR0_SSE_AVX = 0x6,
    XCR0_AVX512 = 0xe0 | XCR0_SSE_AVX,
    XCR0_AMX = 0x60000,
    XFEATURE_XTILEDATA = 18,
    ARCH_REQ_XCOMP_PERM_CODE = 0x1023, /* asm/prctl.h of Linux 5.16; older headers lack the name */
};

static uint64_t xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Permission is per process and idempotent. */
static bool amx_permitted(void)
{
    return !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_CODE, XFEATURE_XTILEDATA);
}

uint32_t isa_detect_x86(void)
{
    uint32_t a, b, c, d, isa = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    if (c & bit_SSE4_1) isa |= ISA_SSE41;
    const bool fma_f16c = (c & bit_FMA) && (c & bit_F16C);
    if (!(c & bit_OSXSAVE)) return isa;
    const uint64_t saved = xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return isa;
    if ((saved & XCR0_SSE_AVX) != XCR0_SSE_AVX || !(b & bit_AVX2) || !(b & bit_BMI2) || !fma_f16c) return isa;
    isa |= ISA_AVX2;
    uint32_t more, ignored; /* the second page of the same leaf */
    if (a < 1 || !__get_cpuid_count(7, 1, &more, &ignored, &ignored, &ignored)) more = 0;
    if (more & 1u << 4) isa |= ISA_AVXVNNI; /* not named by older compilers' headers */
    const uint32_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    if ((saved & XCR0_AVX512) != XCR0_AVX512 || (b & avx512) != avx512) return isa;
    isa |= ISA_AVX512;
    if (c & bit_AVX512VNNI) isa |= ISA_AVX512VNNI;
    /* tile, int8, bf16: GCC and clang name these bits differently */
    const uint32_t amx = 1u << 24 | 1u << 25 | 1u << 22;
    const bool has_amx = (d & amx) == amx && (saved & XCR0_AMX) == XCR0_AMX;
    if (more & bit_AVX512BF16) isa |= ISA_AVX512BF16;
    if (has_amx && amx_permitted()) isa |= ISA_AMX;
    return isa;
}

/* True on AMD family 19h (Zen 3 and 4; measured on a Zen 4). Zen 5 (family 1ah) needs software prefetches,
 * most of all with long rows. */
bool isa_skip_prefetch_x86(void)
{
    uint32_t a, vendor[3], c, d;
    enum { ZEN_3_AND_4 = 0x19 };
    if (!__get_cpuid(0, &a, &vendor[0], &vendor[2], &vendor[1])) return false;
    if (memcmp(vendor, "AuthenticAMD", sizeof vendor)) return false;
    return __get_cpuid(1, &a, &vendor[0], &c, &d) && (a >> 8 & 0xf) + (a >> 20 & 0xff) == ZEN_3_AND_4;
}
