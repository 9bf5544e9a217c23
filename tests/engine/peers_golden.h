/* tests/engine/peers_golden.h - results of the methods' reference implementations for one matrix of 64 x 256
 * weights and 384 x 256 inputs (../shared/data/quant-golden). The test owns the arrays (free). */
#ifndef QDYNO_TESTS_PEERS_GOLDEN_H
#define QDYNO_TESTS_PEERS_GOLDEN_H

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/check.h"

enum { PEER_ROWS = 64, PEER_COLS = 256, PEER_TOKENS = 384 };

#define PEERS_OR_SKIP                                                                                        \
    do {                                                                                                     \
        char peers_path[512];                                                                                \
        SHARED_OR_SKIP(peers_path, "quant-golden/peers/manifest.json");                                      \
    } while (0)

static inline void *peer_file(const char *name, size_t bytes)
{
    char path[512];
    data_path(path, sizeof path, "quant-golden/peers/%s", name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s cannot be opened", path);
    char *data = malloc(bytes + 1);
    assert_non_null(data);
    if (fread(data, 1, bytes + 1, file) != bytes) fail_msg("%s does not have %zu bytes", path, bytes);
    fclose(file);
    return data;
}

/* Values stored as f16. */
static inline float *peer_halves(const char *name, size_t count)
{
    uint16_t *half = peer_file(name, count * sizeof *half);
    float *x = malloc(count * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < count; i++) x[i] = f16_to_f32(half[i]);
    free(half);
    return x;
}

static inline float *peer_weights(void)
{
    return peer_halves("in/weight.f16", PEER_ROWS * PEER_COLS);
}

static inline float *peer_inputs(void)
{
    return peer_halves("in/activation.f16", PEER_TOKENS * PEER_COLS);
}

#endif
