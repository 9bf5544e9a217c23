/* A model file comes from strangers: whatever bytes it holds, opening ends in a reader whose every pointer
 * lies inside them, or in a message. */
#include <stdlib.h>

#include "tests/engine/gguf_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct err why = { 0 };
    if (gguf_open_memory(&g, data, size, &why)) {
        if (!why.message[0]) abort();
        return 0;
    }
    volatile uint64_t sum = gguf_walk(g);
    (void)sum;
    gguf_close(g);
    return 0;
}
