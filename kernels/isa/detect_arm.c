/* Detect what this 64-bit ARM CPU and its operating system both support. The kernel passes these bits to
 * every process and leaves out what it does not support itself. */
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "kernels/isa/isa_kernels.h"

uint32_t isa_detect_arm(void)
{
    const unsigned long words = getauxval(AT_HWCAP);
    uint32_t isa = 0;
    if (!(words & HWCAP_ASIMD)) return 0;
    isa |= ISA_NEON;
    if (words & HWCAP_ASIMDDP) isa |= ISA_DOTPROD;
    return isa;
}
