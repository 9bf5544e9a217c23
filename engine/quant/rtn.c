/* Round to nearest, the field's base line: every other method has to beat it to be worth its time. */
#include "engine/quant/methods.h"

const struct method METHOD_RTN = {
    .name = "rtn",
    .help = "round to nearest: each block by itself, no calibration",
    .good = "8 bits and more; a base line that costs nothing",
    .bad = "below 4 bits",
    .rows = nearest_rows,
};
