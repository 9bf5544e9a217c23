/* Names and types of the companion tensors of a matrix. */
#include <stdio.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

static const struct {
    const char *what;
    enum format_id format;
} SIDES[COMPANION_COUNT] = {
    [COMPANION_ORDER] = { "order", FORMAT_F32 },
    [COMPANION_DIVISORS] = { "divide", FORMAT_F32 },
    [COMPANION_INPUT_SCALE] = { "input", FORMAT_F32 },
    [COMPANION_OUTLIERS] = { "outliers", FORMAT_F32 },
    [COMPANION_OUTLIER_WEIGHTS] = { "outlier_weights", FORMAT_F16 },
};

const char *companion_name(const char *matrix, enum companion_kind what, char *buf, size_t size)
{
    snprintf(buf, size, "%s.%s", matrix, SIDES[what].what);
    return buf;
}

const struct format *companion_format(enum companion_kind what)
{
    return &FORMATS[SIDES[what].format];
}

const struct gguf_tensor *companion_find(const struct gguf *g, const char *matrix, enum companion_kind what)
{
    char name[160];
    return gguf_tensor_find(g, companion_name(matrix, what, name, sizeof name));
}

bool companion_is(const char *name)
{
    char tail[64];
    for (size_t i = 0; i < COUNT_OF(SIDES); i++) {
        snprintf(tail, sizeof tail, ".weight.%s", SIDES[i].what);
        if (str_ends(name, tail)) return true;
    }
    return false;
}
