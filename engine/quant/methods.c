/* METHODS: one row per way of choosing numbers. */
#include "engine/quant/methods.h"

#include <strings.h>

const struct method METHODS[] = {
    { .name = "rtn",
      .help = "round to nearest: each block by itself, no calibration",
      .quantize_rows = rtn_quantize_rows },
};
const size_t METHOD_COUNT = COUNT_OF(METHODS);

const struct method *method_find(const char *name)
{
    for (size_t i = 0; i < METHOD_COUNT; i++)
        if (!strcasecmp(METHODS[i].name, name)) return &METHODS[i];
    return NULL;
}
