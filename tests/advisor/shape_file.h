/* tests/advisor/shape_file.h - writes a model file of any size that takes no space: a valid header, and a
 * hole where the weights would be. For tests that read shapes only. */
#ifndef QDYNO_TESTS_SHAPE_FILE_H
#define QDYNO_TESTS_SHAPE_FILE_H

#include <unistd.h>

#include "tests/advisor/fake.h"

struct shape_file {
    const char *arch; /* "llama" */
    const struct format *format;
    int layers, heads, kv_heads, window, experts, experts_used;
    int64_t embd, ff, vocab, ctx;
};

static inline void shape_put(FILE *f, const void *p, size_t n)
{
    assert_int_equal(fwrite(p, 1, n, f), n);
}

static inline void shape_put_text(FILE *f, const char *s)
{
    const uint64_t n = strlen(s);
    shape_put(f, &n, 8);
    shape_put(f, s, n);
}

static inline void shape_put_u32(FILE *f, const char *arch, const char *key, uint32_t v)
{
    char name[96];
    const uint32_t type = 4;
    snprintf(name, sizeof name, "%s.%s", arch, key);
    shape_put_text(f, name);
    shape_put(f, &type, 4);
    shape_put(f, &v, 4);
}

static inline void shape_put_f32(FILE *f, const char *arch, const char *key, float v)
{
    char name[96];
    const uint32_t type = 6;
    snprintf(name, sizeof name, "%s.%s", arch, key);
    shape_put_text(f, name);
    shape_put(f, &type, 4);
    shape_put(f, &v, 4);
}

/* Append one tensor's entry; returns the offset of the next one. */
static inline uint64_t shape_put_tensor(FILE *f, const char *name, const struct format *format,
                                        const int64_t shape[3], uint64_t at)
{
    const uint32_t dims = shape[2] > 1 ? 3 : shape[1] > 1 ? 2 : 1, type = format->ggml_type;
    shape_put_text(f, name);
    shape_put(f, &dims, 4);
    for (uint32_t d = 0; d < dims; d++) shape_put(f, &shape[d], 8);
    shape_put(f, &type, 4);
    shape_put(f, &at, 8);
    const uint64_t bytes = (uint64_t)(format_row_bytes(format, shape[0]) * shape[1] * shape[2]);
    return (at + bytes + 31) / 32 * 32;
}

static inline void shape_file_write(const char *path, const struct shape_file *s)
{
    static const struct {
        const char *name;
        char rows, cols; /* e: embd, k: KV, f: ff, 1: a vector */
    } LAYER[] = { { "attn_norm", '1', 'e' }, { "attn_q", 'e', 'e' },      { "attn_k", 'k', 'e' },
                  { "attn_v", 'k', 'e' },    { "attn_output", 'e', 'e' }, { "ffn_norm", '1', 'e' },
                  { "ffn_gate", 'f', 'e' },  { "ffn_up", 'f', 'e' },      { "ffn_down", 'e', 'f' } };
    const int64_t kv = s->embd / s->heads * s->kv_heads;
    const struct format *f32 = &FORMATS[FORMAT_F32];
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    const uint32_t version = 3, text_type = 8;
    const uint64_t per_layer = COUNT_OF(LAYER) + (s->experts ? 1 : 0);
    const uint64_t tensors = 3 + per_layer * (uint64_t)s->layers;
    const uint64_t keys = 8 + (s->window ? 1 : 0) + (s->experts ? 2 : 0);
    shape_put(f, "GGUF", 4);
    shape_put(f, &version, 4);
    shape_put(f, &tensors, 8);
    shape_put(f, &keys, 8);
    shape_put_text(f, "general.architecture");
    shape_put(f, &text_type, 4);
    shape_put_text(f, s->arch);
    shape_put_u32(f, s->arch, "block_count", (uint32_t)s->layers);
    shape_put_u32(f, s->arch, "embedding_length", (uint32_t)s->embd);
    shape_put_u32(f, s->arch, "feed_forward_length", (uint32_t)s->ff);
    shape_put_u32(f, s->arch, "context_length", (uint32_t)s->ctx);
    shape_put_u32(f, s->arch, "attention.head_count", (uint32_t)s->heads);
    shape_put_u32(f, s->arch, "attention.head_count_kv", (uint32_t)s->kv_heads);
    shape_put_f32(f, s->arch, "attention.layer_norm_rms_epsilon", 1e-5f);
    if (s->window) shape_put_u32(f, s->arch, "attention.sliding_window", (uint32_t)s->window);
    if (s->experts) {
        shape_put_u32(f, s->arch, "expert_count", (uint32_t)s->experts);
        shape_put_u32(f, s->arch, "expert_used_count", (uint32_t)s->experts_used);
    }
    uint64_t at = shape_put_tensor(f, "token_embd.weight", s->format, (int64_t[]){ s->embd, s->vocab, 1 }, 0);
    at = shape_put_tensor(f, "output.weight", s->format, (int64_t[]){ s->embd, s->vocab, 1 }, at);
    at = shape_put_tensor(f, "output_norm.weight", f32, (int64_t[]){ s->embd, 1, 1 }, at);
    for (int l = 0; l < s->layers; l++) {
        char name[96];
        for (size_t i = 0; i < COUNT_OF(LAYER); i++) {
            const bool expert = s->experts && !strncmp(LAYER[i].name, "ffn_", 4) && LAYER[i].rows != '1';
            const char dims[2] = { LAYER[i].cols, LAYER[i].rows };
            int64_t shape[3] = { 1, 1, expert ? s->experts : 1 };
            for (int d = 0; d < 2; d++)
                shape[d] = dims[d] == 'e' ? s->embd : dims[d] == 'k' ? kv : dims[d] == 'f' ? s->ff : 1;
            snprintf(name, sizeof name, "blk.%d.%s%s.weight", l, LAYER[i].name, expert ? "_exps" : "");
            at = shape_put_tensor(f, name, shape[1] == 1 ? f32 : s->format, shape, at);
        }
        if (s->experts) {
            snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", l);
            at = shape_put_tensor(f, name, f32, (int64_t[]){ s->embd, s->experts, 1 }, at);
        }
    }
    const long header = ftell(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(path, (off_t)((header + 31) / 32 * 32) + (off_t)at), 0);
}

#endif
