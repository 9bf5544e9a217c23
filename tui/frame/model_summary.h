/* tui/frame/model_summary.h - summary of a model file: groups of tensors, and the memory of a session by KV
 * type and context length (internal, part of frame.h). */
#ifndef QDYNO_TUI_FRAME_MODEL_SUMMARY_H
#define QDYNO_TUI_FRAME_MODEL_SUMMARY_H

#include "advisor/predict/predict.h"
#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"

enum { SUMMARY_GROUPS = 96, SUMMARY_CONTEXTS = 6, SUMMARY_CACHES = 4 };

/* Tensors with one name (without the layer number) and one format. */
struct tensor_group {
    char name[56], format[16], shape[40];
    int count;
    int64_t params, bytes;
};

struct model_summary {
    int groups; /* 0: no model; the largest first */
    struct tensor_group group[SUMMARY_GROUPS];
    int left_out; /* tensors beyond SUMMARY_GROUPS groups, and their bytes */
    int64_t left_out_bytes, bytes;
    /* Memory of a session by KV type and context length, from the loader's plan; -1: such a session is
     * impossible. */
    int contexts, caches;
    int64_t context[SUMMARY_CONTEXTS];
    const char *cache[SUMMARY_CACHES]; /* KV types */
    int64_t total[SUMMARY_CACHES][SUMMARY_CONTEXTS];
    int64_t kv_bytes_per_token[SUMMARY_CACHES];
    int experts, experts_used;     /* 0: the model has no experts */
    struct stored_experts choices; /* text "": not measured */
};

/* From the header of the file; no weights are read. */
void model_summary_make(struct model_summary *out, const struct gguf *g, const struct model_shape *s);
/* About the longest context, in tokens, that fits into `free` bytes with the KV type `cache` (an index into
 * l->cache): on the line through the plans of the shortest and the longest context. -1: unknown; 0: none. */
int64_t model_summary_longest(const struct model_summary *l, int cache, int64_t free);

#endif
