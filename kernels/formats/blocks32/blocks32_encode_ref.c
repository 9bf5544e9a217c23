/* Reference encoders of blocks of 32 weights without a search (q8_0 and q4_0 are in files of their own); see
 * encode.h. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/encode.h"

#define ENCODER(name, NAME)                                                                                  \
    void name##_encode_ref(const float *x, void *blocks, int64_t n)                                          \
    {                                                                                                        \
        B32_ENCODE(name, NAME##_BYTES, x, blocks, n);                                                        \
    }
ENCODER(q4_1, Q4_1)
ENCODER(q5_0, Q5_0)
ENCODER(q5_1, Q5_1)
ENCODER(mxfp4, MXFP4)
