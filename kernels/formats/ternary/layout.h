/* kernels/formats/ternary/layout.h - byte layout of blocks of 256 ternary weights. */
#ifndef QDYNO_KERNELS_FORMATS_TERNARY_LAYOUT_H
#define QDYNO_KERNELS_FORMATS_TERNARY_LAYOUT_H

#include <stdint.h>

/* A block has eight parts of 32 weights. The offsets are those of the f16 scale and of tq1_0's three runs of
 * bytes (README.md). TQ_BIAS is subtracted from a code 0 .. 2. */
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

/* The three runs of tq1_0. Trit n of byte m of a run is weight first + m + n * bytes, for n < trits. */
struct tq1_0_run {
    int at, bytes, trits, first;
};
static const struct tq1_0_run TQ1_0_RUNS[] = {
    { .at = 0, .bytes = 32, .trits = 5, .first = 0 },
    { .at = TQ1_0_SECOND, .bytes = 16, .trits = 5, .first = 160 },
    { .at = TQ1_0_THIRD, .bytes = 4, .trits = 4, .first = 240 },
};

static inline uint8_t tq1_0_trit(uint8_t byte, int n)
{
    static const uint8_t POWERS[5] = { 1, 3, 9, 27, 81 };
    return (uint8_t)((uint8_t)(byte * POWERS[n]) * 3 >> 8);
}

#endif
