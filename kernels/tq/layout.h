/* kernels/tq/layout.h - where a block of 256 ternary weights keeps what. */
#ifndef QDYNO_KERNELS_TQ_LAYOUT_H
#define QDYNO_KERNELS_TQ_LAYOUT_H

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

#endif
