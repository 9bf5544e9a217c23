/* Which kernel runs: the reference in every place, then whatever the usable ISA bits allow written over it.
 * The only file that knows architectures at compile time. */
#include "kernels/bf16/bf16.h"
#include "kernels/f16/f16.h"
#include "kernels/f32/f32.h"
#include "kernels/isa/isa_kernels.h"
#include "kernels/q4_0/q4_0.h"
#include "kernels/q8_0/q8_0.h"

#if defined(__x86_64__)
#define ARCH_X86 1
#else
#define ARCH_X86 0
#endif

uint32_t isa_detect(void)
{
#if ARCH_X86
    return isa_detect_x86();
#else
    return 0;
#endif
}

static struct kernel_set reference(void)
{
    return (struct kernel_set){
        .format = {
            [FORMAT_F32] = { f32_decode_ref, f32_dot_f32_ref, NULL, NULL },
            [FORMAT_F16] = { f16_decode_ref, f16_dot_f32_ref, NULL, NULL },
            [FORMAT_BF16] = { bf16_decode_ref, bf16_dot_f32_ref, NULL, NULL },
            [FORMAT_Q8_0] = { q8_0_decode_ref, q8_0_dot_f32_ref, q8_0_dot_q8_ref, NULL },
            [FORMAT_Q4_0] = { q4_0_decode_ref, q4_0_dot_f32_ref, q4_0_dot_q8_ref, NULL },
        },
        .tile = tile_ref,
        .vec = VECTORS_REF,
        .gemm_f32 = GEMM_F32_REF,
    };
}

struct kernel_set kernels_select(uint32_t usable)
{
    struct kernel_set k = reference();
#if ARCH_X86
    (void)usable;
#else
    (void)usable;
#endif
    return k;
}

/* ---------------------------------------------------------------- ceilings */

/* In the order of CEILINGS. */
static ceiling_fn *const CEILING_FNS[] = {
    ceiling_f32_fma_ref,
};

const struct ceiling CEILINGS[] = {
    { "f32_fma", "ref", 0 },
};
const size_t CEILING_COUNT = COUNT_OF(CEILINGS);

ceiling_fn *kernels_ceiling(const struct ceiling *c)
{
    return c >= CEILINGS && c < CEILINGS + CEILING_COUNT ? CEILING_FNS[c - CEILINGS] : NULL;
}
