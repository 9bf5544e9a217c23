/* The loops of training for AVX-512. */
#define ROWS_LOOPS ROWS_LOOPS_AVX512
#define WIDE       16
#include "engine/train/rows_loops_body.h"
