/* kernels/isa/inline.h - what the kernels of every instruction set share: forced inlining, and the distance
 * of software prefetches. */
#ifndef QDYNO_KERNELS_ISA_INLINE_H
#define QDYNO_KERNELS_ISA_INLINE_H

/* Kernels are templates: an inlined function whose parameters are constants at the call becomes a loop of its
 * own. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Weights are read once, in order, and the hardware prefetcher stops at every 4 KiB page. Prefetching this
 * far ahead hides the start of the next page. Prefetches past the last row are useless but harmless. */
enum { AHEAD_BYTES = 4096, LINE_BYTES = 64 };

#endif
