/* engine/quant/methods.h - what the files of single methods give to the table. Internal to engine/quant/. */
#ifndef QDYNO_ENGINE_QUANT_METHODS_H
#define QDYNO_ENGINE_QUANT_METHODS_H

#include "engine/quant/quant.h"

/* Round to nearest: the format's own encoder, which looks at one block at a time and at nothing else. */
void rtn_quantize_rows(const float *x, void *out, int64_t rows, int64_t cols, const struct format *format);

#endif
