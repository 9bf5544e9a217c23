/* tui/ledger.h - what a model file is made of, and what it takes in memory: the figures of the model view. */
#ifndef QDYNO_TUI_LEDGER_H
#define QDYNO_TUI_LEDGER_H

#include "engine/engine.h"

enum { LEDGER_GROUPS = 96, LEDGER_CONTEXTS = 6, LEDGER_CACHES = 4 };

/* Tensors of one name (the layer's number left out) and one format. */
struct tensor_group {
    char name[56], format[16], shape[40];
    int count;
    int64_t params, bytes;
};

struct model_ledger {
    int groups; /* 0: no model; the largest first */
    struct tensor_group group[LEDGER_GROUPS];
    int left_out; /* tensors beyond LEDGER_GROUPS groups, and their bytes */
    int64_t left_out_bytes, bytes;
    /* Memory of a session, by KV type and context: the loader's own plan. -1: it cannot be (reason in the log
     * of whoever tries). */
    int contexts, caches;
    int64_t context[LEDGER_CONTEXTS];
    const char *cache[LEDGER_CACHES]; /* KV types */
    int64_t total[LEDGER_CACHES][LEDGER_CONTEXTS];
    int64_t kv_bytes_per_token[LEDGER_CACHES];
};

/* All of it, from the file's header: no weight is read. */
void ledger_make(struct model_ledger *out, const struct gguf *g, const struct model_shape *s);

#endif
