/* Names and types of the tensors that lie beside a matrix. */
#include "engine/quant/sides.h"

#include <stdio.h>

static const struct {
    const char *what;
    enum format_id format;
} SIDES[SIDE_MAX] = {
    [SIDE_ORDER] = { "order", FORMAT_F32 },
    [SIDE_DIVIDE] = { "divide", FORMAT_F32 },
    [SIDE_INPUT] = { "input", FORMAT_F32 },
    [SIDE_OUTLIERS] = { "outliers", FORMAT_F32 },
    [SIDE_OUTLIER_WEIGHTS] = { "outlier_weights", FORMAT_F16 },
};

const char *side_name(const char *matrix, enum side_what what, char *buf, size_t size)
{
    snprintf(buf, size, "%s.%s", matrix, SIDES[what].what);
    return buf;
}

const struct format *side_format(enum side_what what)
{
    return &FORMATS[SIDES[what].format];
}

const struct gguf_tensor *side_find(const struct gguf *g, const char *matrix, enum side_what what)
{
    char name[160];
    return gguf_tensor_find(g, side_name(matrix, what, name, sizeof name));
}

bool side_is(const char *name)
{
    char tail[64];
    for (size_t i = 0; i < COUNT_OF(SIDES); i++) {
        snprintf(tail, sizeof tail, ".weight.%s", SIDES[i].what);
        if (str_ends(name, tail)) return true;
    }
    return false;
}
