/* kernels/formats/ternary/layout.h - where a block of 256 ternary weights keeps what. */
#ifndef QDYNO_KERNELS_FORMATS_TERNARY_LAYOUT_H
#define QDYNO_KERNELS_FORMATS_TERNARY_LAYOUT_H

#include <stdint.h>

/* Eight parts of 32 weights. Byte offsets of the f16 scale, and of tq1_0's three runs of bytes (see
 * README.md); a code 0..2 is too large by TQ_BIAS. */
enum {
    TQ_BLOCK = 256,
    TQ_PARTS = 8,
    TQ_BIAS = 1,
    TQ1_0_SECOND = 32,
    TQ1_0_THIRD = 48,
    TQ1_0_D = 52,
    TQ1_0_BYTES = 54,
    TQ2_0_D = 64,
    TQ2_0_BYTES = 66,
};

/* tq1_0's three runs: byte m of a run holds weights first + m + n * bytes for n < trits. */
struct tq1_0_run {
    int at, bytes, trits, first;
};
static const struct tq1_0_run TQ1_0_RUNS[] = { { 0, 32, 5, 0 },
                                               { TQ1_0_SECOND, 16, 5, 160 },
                                               { TQ1_0_THIRD, 4, 4, 240 } };

static inline uint8_t tq1_0_trit(uint8_t byte, int n)
{
    static const uint8_t POWERS[5] = { 1, 3, 9, 27, 81 };
    return (uint8_t)((uint8_t)(byte * POWERS[n]) * 3 >> 8);
}

#endif
