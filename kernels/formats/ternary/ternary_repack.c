/* Convert tq1_0 to tq2_0. Codes and scales are the same, but a byte has four 2-bit codes instead of five
 * trits. Extracting them needs shifts only, so products are two to three times as fast (README.md). */
#include "kernels/half.h"
#include "kernels/formats/ternary/layout.h"
#include "kernels/formats/ternary/ternary.h"

void tq1_0_to_tq2_0(const void *blocks, void *out, int64_t n)
{
    const uint8_t *in = blocks;
    uint8_t *to = out, code[TQ_BLOCK];
    for (int64_t i = 0; i < n; i += TQ_BLOCK, in += TQ1_0_BYTES, to += TQ2_0_BYTES) {
        for (size_t r = 0; r < COUNT_OF(TQ1_0_RUNS); r++) {
            const struct tq1_0_run *run = &TQ1_0_RUNS[r];
            for (int t = 0; t < run->trits; t++)
                for (int m = 0; m < run->bytes; m++)
                    code[run->first + t * run->bytes + m] = tq1_0_trit(in[run->at + m], t);
        }
        for (int h = 0; h < 2; h++)
            for (int m = 0; m < 32; m++) {
                const uint8_t *c = code + 128 * h + m;
                to[32 * h + m] = (uint8_t)(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
            }
        store_u16(to + TQ2_0_D, load_u16(in + TQ1_0_D));
    }
}
