/* The loops of training for AVX2. */
#define ROWS_LOOPS ROWS_LOOPS_AVX2
#define WIDE       8
#include "engine/train/rows_loops_body.h"
