/* tests/engine/split_experts.h - a copy of a model file with one tensor for each expert, as the first files
 * of Mixtral have them. */
#ifndef QDYNO_TESTS_SPLIT_EXPERTS_H
#define QDYNO_TESTS_SPLIT_EXPERTS_H

#include <stdio.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "tests/check.h"

/* What is wrong with the copy. */
enum split_fault {
    SPLIT_RIGHT,
    SPLIT_MISSING, /* no up matrix of the last expert of layer 0 */
    SPLIT_SHAPE,   /* the up matrix of the last expert of layer 0 lacks a row */
    SPLIT_BOTH,    /* the tensor with all up matrices of layer 0, too */
    SPLIT_MORE,    /* one expert more than the metadata say */
};

/* The name of expert e's tensor; false: `name` is not the tensor of all experts. */
static inline bool split_name(char *buf, size_t size, const char *name, int64_t e)
{
    const char *end = strstr(name, "_exps.weight");
    if (!end) return false;
    snprintf(buf, size, "%.*s.%lld.weight", (int)(end - name), name, (long long)e);
    return true;
}

/* Call once to declare the tensors (declare true) and once to write them. */
static inline void split_tensor(struct gguf_writer *w, const struct gguf_tensor *t, enum split_fault fault,
                                bool declare)
{
    struct err why = { 0 };
    char name[128];
    const bool odd = !strncmp(t->name, "blk.0.ffn_up_exps", 17);
    const bool split = split_name(name, sizeof name, t->name, 0);
    const int64_t last = t->shape[2] - 1, each = t->bytes / t->shape[2];
    if (!split || (odd && fault == SPLIT_BOTH)) {
        if (declare)
            gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
        else
            CHECK_OK(gguf_writer_write(w, t->data, t->bytes, &why));
    }
    for (int64_t e = 0; split && e <= last + (odd && fault == SPLIT_MORE); e++) {
        const bool bad = odd && e == last;
        if (bad && fault == SPLIT_MISSING) continue;
        const int64_t less = bad && fault == SPLIT_SHAPE, from = MIN(e, last);
        const int64_t shape[2] = { t->shape[0], t->shape[1] - less };
        split_name(name, sizeof name, t->name, e);
        if (declare)
            gguf_writer_add_tensor(w, name, t->format, 2, shape);
        else
            CHECK_OK(gguf_writer_write(w, (const char *)t->data + from * each, each / t->shape[1] * shape[1],
                                       &why));
    }
}

static inline void split_file(const char *path, const char *model, enum split_fault fault)
{
    struct err why = { 0 };
    struct gguf *g;
    struct gguf_writer *w;
    CHECK_OK(gguf_open(&g, model, &why));
    CHECK_OK(gguf_writer_open(&w, path, &why));
    for (int64_t i = 0; i < gguf_kv_count(g); i++) gguf_writer_copy_kv(w, gguf_kv_at(g, i));
    for (int declare = 1; declare >= 0; declare--)
        for (int64_t i = 0; i < gguf_tensor_count(g); i++)
            split_tensor(w, gguf_tensor_at(g, i), fault, declare);
    CHECK_OK(gguf_writer_commit(w, &why));
    gguf_close(g);
}

#endif
