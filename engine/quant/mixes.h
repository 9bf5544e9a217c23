/* engine/quant/mixes.h - the published mixes of GGUF formats: what "Q4_K_M" means for each tensor.
 *
 * A few matrices hurt more than others when they are rounded (values of the attention, the way out of the
 * feed-forward block, the output matrix), so llama.cpp's file types give them a larger format. These are its
 * rules, so that a file of ours has the formats that a file of that name has everywhere. Pure. */
#ifndef QDYNO_ENGINE_QUANT_MIXES_H
#define QDYNO_ENGINE_QUANT_MIXES_H

#include "kernels/kernels.h"

/* What the rules ask about a model. */
struct mix_facts {
    bool falcon; /* has rules of its own */
    int heads, kv_heads, layers;
    int values;      /* tensors that hold values: attn_v, or attn_qkv where they are fused */
    int experts;     /* 0 or 1: none */
    bool seventy_b;  /* the shape of Llama 70B: its attn_v is an eighth as large as usual */
    bool has_output; /* an output matrix of its own, not the token embedding again */
    bool has_imatrix;
};

struct mix_rule;
struct mix {
    const char *name; /* "q4_K_M" */
    enum format_id base;
    uint32_t file_type;           /* general.file_type */
    const struct mix_rule *rules; /* first match, up to the row without a tensor; NULL: none */
};
extern const struct mix MIXES[];
extern const size_t MIX_COUNT;
const struct mix *mix_find(const char *name); /* NULL when unknown; case-insensitive */

/* The format of a matrix that is quantized at all. `name` as in the file; `index`: its layer, counted among
 * the layers that have a tensor of this kind; cols: length of a row, to which the result fits (f16 where
 * nothing else does). */
const struct format *mix_format(const struct mix *mix, const struct mix_facts *facts, const char *name,
                                int index, int64_t cols);

/* What stands in where a row of `cols` weights is no whole number of f's blocks; f itself where it is. */
const struct format *mix_fitting(const struct format *f, int64_t cols);

#endif
