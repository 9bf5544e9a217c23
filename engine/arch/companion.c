/* Names and types of the companion tensors of a matrix. */
#include <stdio.h>
#include <string.h>

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

/* Endings of scales, and whether they belong to the weights or to the inputs. */
static const struct {
    const char *end;
    bool weights;
} SCALE_ENDS[] = {
    { ".weight.scale", true }, { ".scale", true }, { ".weight.input_scale", false }, { ".input_scale", false }
};

const struct gguf_tensor *matrix_scale_find(const struct gguf *g, const char *matrix)
{
    static const char WEIGHT[] = ".weight";
    const struct gguf_tensor *t = NULL;
    char name[160];
    if (!str_ends(matrix, WEIGHT)) return NULL;
    const int stem = (int)(strlen(matrix) - strlen(WEIGHT));
    for (size_t i = 0; i < COUNT_OF(SCALE_ENDS) && !t; i++) {
        if (!SCALE_ENDS[i].weights) continue;
        snprintf(name, sizeof name, "%.*s%s", stem, matrix, SCALE_ENDS[i].end);
        t = gguf_tensor_find(g, name);
    }
    return t;
}

bool matrix_scale_is(const char *name, char *matrix, size_t size)
{
    for (size_t i = 0; i < COUNT_OF(SCALE_ENDS); i++) {
        if (!str_ends(name, SCALE_ENDS[i].end)) continue;
        snprintf(matrix, size, "%.*s.weight", (int)(strlen(name) - strlen(SCALE_ENDS[i].end)), name);
        return true;
    }
    return false;
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
