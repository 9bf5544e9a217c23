/* Round to nearest: the baseline that every other method has to beat to be worth its time. */
#include "engine/quant/methods.h"

const struct method METHOD_RTN = {
    .name = "rtn",
    .help = "round to nearest, each block independently, no calibration",
    .good = "8 bits and more; a baseline that costs nothing",
    .bad = "below 4 bits",
    .rows = nearest_rows,
};
