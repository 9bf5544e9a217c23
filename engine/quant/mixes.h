/* engine/quant/mixes.h - llama.cpp's mixes of GGUF formats: what "Q4_K_M" means for each tensor. Internal.
 *
 * Rounding errors in a few matrices (attention values, the feed-forward's down projection, the output matrix)
 * hurt more than in others, so llama.cpp's file types give those a larger format. These are the same rules,
 * so that a file made here has the formats that a file of that name has elsewhere. Pure. Source: llama.cpp,
 * src/llama-quant.cpp, llama_tensor_get_type. */
#ifndef QDYNO_ENGINE_QUANT_MIXES_H
#define QDYNO_ENGINE_QUANT_MIXES_H

#include "kernels/kernels.h"

/* Properties of a model that the rules depend on. */
struct mix_facts {
    bool falcon; /* the Falcon architecture has rules of its own */
    int heads, kv_heads, layers;
    int values;      /* number of attn_v tensors, or of attn_qkv where they are fused */
    int experts;     /* 0 or 1: none */
    bool seventy_b;  /* shaped like Llama 2 70B, whose attn_v is an eighth as large as usual */
    bool has_output; /* a separate output matrix; false: tied to the token embedding */
    bool has_imatrix;
};

struct mix_rule;
struct format_mix {
    const char *name; /* "q4_K_M" */
    enum format_id base;
    uint32_t file_type;           /* general.file_type */
    const struct mix_rule *rules; /* first match wins; ends with a row without a tensor; NULL: no rules */
    /* Of the output matrix and the token embedding, where they differ from the rules of all mixes;
     * FORMAT_F32: they do not. */
    enum format_id output, embedding;
    bool needs_importance; /* without an importance matrix the model is useless */
};
extern const struct format_mix MIXES[];
extern const size_t MIX_COUNT;
const struct format_mix *mix_find(const char *name); /* NULL when unknown; case-insensitive */

/* Format of a tensor `name` that is quantized. index: position of its layer among the layers that have a
 * tensor of this kind. The result fits rows of `cols` weights (f16 if no smaller format does). */
const struct format *mix_format(const struct format_mix *mix, const struct mix_facts *facts, const char *name,
                                int index, int64_t cols);

/* Replacement for format f where rows of `cols` weights are not a multiple of its block; f itself where they
 * are. */
const struct format *mix_fitting(const struct format *f, int64_t cols);

#endif
