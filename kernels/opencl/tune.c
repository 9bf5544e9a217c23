/* In which shapes products run on this device. */
#include "kernels/opencl/products.h"

#include <stdio.h>

/* Until it is measured: what no GPU is bad at, and what takes a CPU's driver little time to compile. */
static const struct opencl_shape DEFAULTS[2][PRODUCT_KIND_COUNT] = {
    {
        [PRODUCT_ONE] = { .lanes = 8, .ways = 1, .rows = 1 },
        [PRODUCT_FEW] = { .lanes = 8, .ways = 1, .rows = 1 },
        [PRODUCT_NARROW] = { .tm = 32, .tn = 32, .rm = 2, .rn = 2 },
        [PRODUCT_WIDE] = { .tm = 32, .tn = 32, .rm = 2, .rn = 2 },
    },
    {
        [PRODUCT_ONE] = { .lanes = 32, .ways = 4, .rows = 2 },
        [PRODUCT_FEW] = { .lanes = 32, .ways = 4, .rows = 2 },
        [PRODUCT_NARROW] = { .tm = 64, .tn = 16, .rm = 4, .rn = 2 },
        [PRODUCT_WIDE] = { .tm = 64, .tn = 64, .rm = 4, .rn = 4 },
    },
};

const struct opencl_shape *opencl_shape_of(const struct opencl *o, enum product_kind kind,
                                           const struct format *f)
{
    const struct opencl_shape *s = &o->tuning.shapes[kind][opencl_family(f)];
    return s->lanes || s->tm ? s : &DEFAULTS[o->device.gpu][kind];
}

const char *opencl_shape_options(const struct opencl_shape *s, int n, char *buf, size_t size)
{
    if (s->tm)
        snprintf(buf, size, "-DTM=%d -DTN=%d -DRM=%d -DRN=%d%s", s->tm, s->tn, s->rm, s->rn,
                 s->half_tiles ? " -DHALF_TILES" : "");
    else /* N: of a few sizes only, for each is compiled */
        snprintf(buf, size, "-DN=%d -DLANES=%d -DWAYS=%d -DROWS=%d",
                 n > 4   ? 8
                 : n > 2 ? 4
                         : n,
                 s->lanes, s->ways, s->rows);
    return buf;
}
