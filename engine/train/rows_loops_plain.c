/* The loops of training for any processor, in vectors of 128 bits. */
#define ROWS_LOOPS ROWS_LOOPS_PLAIN
#define WIDE       4
#include "engine/train/rows_loops_body.h"
